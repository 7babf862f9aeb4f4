#include "bindings/python/numpy_api.h"

#include "bindings/xla/handlers.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <cstring>
#include <exception>
#include <stdexcept>

#include "bindings/engine_xla.h"
#include "bindings/xla/ffi.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace stepmill {
namespace {

// The minor version of the interface that the installed XLA speaks: Python reads it in JAX's header. Early ones take only
// handlers of their own minor version, though nothing that we use has changed since.
std::atomic<int> minor_version{0};

xla::Error* failure(const xla::Api& api, const std::string& message) {
  xla::ErrorOrder order{offsetof(xla::ErrorOrder, code) + sizeof(order.code), nullptr, message.c_str(), xla::kInternal};
  return api.create_error(&order);
}

// Whether XLA only asks what this handler is.
bool tell_of_itself(const xla::CallFrame& frame) {
  for (xla::Extension* one = frame.extensions; one; one = one->next) {
    if (one->type != xla::kMetadataExtension) continue;
    xla::Metadata& metadata = *reinterpret_cast<xla::MetadataExtension*>(one)->metadata;
    metadata.version.major = xla::kMajorVersion;
    metadata.version.minor = minor_version.load(std::memory_order_relaxed);
    metadata.traits = 0;
    return true;
  }
  return false;
}

XlaHandle read_handle(const xla::CallFrame& frame) {
  const bool is_one = frame.arguments.count > 0 && frame.arguments[0].type == xla::Type::kU32 &&
                      frame.arguments[0].rank == 1 && frame.arguments[0].extents[0] == 3;
  if (!is_one) throw std::invalid_argument("expected a handle of xla(), an array of 3 numbers of uint32");
  XlaHandle handle;
  std::memcpy(handle.data(), frame.arguments[0].data, sizeof(handle));
  if (frame.results.count > 0 && frame.results[0].data != frame.arguments[0].data)
    std::memcpy(frame.results[0].data, handle.data(), sizeof(handle));
  return handle;
}

// Calls `call` with the pool. Nothing may be thrown into XLA.
template <class F>
xla::Error* with_pool(xla::CallFrame* frame, const F& call) noexcept {
  if (tell_of_itself(*frame) || frame->stage != xla::Stage::kExecute) return nullptr;
  try {
    XlaVisit visit(read_handle(*frame));
    EngineXla pool(visit);
    try {
      call(pool);
      return nullptr;
    } catch (nb::python_error& error) {
      return failure(*frame->api, pool.keep(error));
    } catch (const std::exception& error) {
      return failure(*frame->api, pool.keep(error));
    }
  } catch (const StaleHandle& stale) {
    return failure(*frame->api, std::string(stale.message));
  } catch (const std::exception& error) {
    return failure(*frame->api, std::string("stepmill: ") + error.what());
  }
}

xla::Error* send(xla::CallFrame* frame) {
  return with_pool(frame, [&](EngineXla& pool) { pool.send(frame->arguments); });
}

xla::Error* recv(xla::CallFrame* frame) {
  return with_pool(frame, [&](EngineXla& pool) { pool.recv(frame->results); });
}

xla::Error* step(xla::CallFrame* frame) {
  return with_pool(frame, [&](EngineXla& pool) { pool.step(frame->arguments, frame->results); });
}

nb::object capsule(xla::Handler* handler) {
  return nb::steal(PyCapsule_New(reinterpret_cast<void*>(handler), nullptr, nullptr));
}

}  // namespace

void register_xla(nb::module_& m) {
  nb::class_<EngineXla>(m, "EngineXla")
      .def_static("open", &EngineXla::open, "engine"_a, "info_names"_a)
      .def_static("columns", &EngineXla::columns, "engine"_a)
      .def_static("error", &EngineXla::error, "engine"_a);
  m.def("xla_handlers", [](int minor) {
    minor_version.store(minor, std::memory_order_relaxed);
    nb::dict out;
    out["send"] = capsule(send);
    out["recv"] = capsule(recv);
    out["step"] = capsule(step);
    return out;
  }, "minor_version"_a, "The functions for jax.ffi.register_ffi_target, by name.");
}

}  // namespace stepmill
