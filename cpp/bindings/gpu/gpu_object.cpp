#include "bindings/python/numpy_api.h"

#include "bindings/gpu/gpu_object.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <type_traits>

#include "bindings/input/config_input.h"
#include "bindings/python/bytes.h"
#include "bindings/python/errors.h"
#include "core/env_set.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace stepmill {
namespace {

void* stream_of(std::uintptr_t stream) { return reinterpret_cast<void*>(stream); }

dlpack::DataType type_of(DType dtype) {
  const auto bits = static_cast<std::uint8_t>(8 * item_size(dtype));
  switch (dtype) {
    case DType::kBool: return {dlpack::kBool, bits, 1};
    case DType::kUInt8:
    case DType::kUInt16:
    case DType::kUInt32:
    case DType::kUInt64: return {dlpack::kUInt, bits, 1};
    case DType::kFloat16:
    case DType::kFloat32:
    case DType::kFloat64: return {dlpack::kFloat, bits, 1};
    default: return {dlpack::kInt, bits, 1};
  }
}

// What a library holds of a batch. The extents and strides come right behind it.
template <class Managed>
struct Held {
  Managed tensor;
  std::shared_ptr<GpuEnvs::Batch> batch;
};

// Called in whichever thread drops a tensor, which need not have to do with Python.
template <class Managed>
void let_go(Managed* self) {
  auto* held = static_cast<Held<Managed>*>(self->owner);
  std::optional<nb::gil_scoped_release> released;
  if (held->batch->envs().will_free() && Py_IsInitialized() && PyGILState_Check()) released.emplace();
  held->~Held();
  std::free(held);
}

template <class Managed>
constexpr const char* kCapsule = std::is_same_v<Managed, dlpack::ManagedTensor> ? "dltensor_versioned" : "dltensor";

template <class Managed>
void let_go_of_capsule(PyObject* capsule) {
  if (!PyCapsule_IsValid(capsule, kCapsule<Managed>)) return;  // somebody has taken it over
  auto* tensor = static_cast<Managed*>(PyCapsule_GetPointer(capsule, kCapsule<Managed>));
  tensor->deleter(tensor);
}

std::vector<const void*> addresses(const std::vector<std::uintptr_t>& action) {
  std::vector<const void*> out;
  for (const std::uintptr_t one : action) out.push_back(reinterpret_cast<const void*>(one));
  return out;
}

// What the caller has in a Python object with an entry per env.
template <class T>
std::span<const T> entries(const std::optional<Contents>& given) {
  if (!given) return {};
  const auto bytes = given->bytes();
  return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
}
std::optional<Contents>& open(std::optional<Contents>& place, nb::handle object) {
  if (!object.is_none()) place.emplace(object);
  return place;
}

GpuEnvs::Ids ids_in(const std::optional<Contents>& given) {
  if (!given) return std::nullopt;
  return entries<std::int32_t>(given);
}

template <class T>
nb::object bytes_in(const std::vector<T>& values) {
  return to_bytes(std::as_bytes(std::span(values)));
}
template <class T>
std::vector<T> values_in(nb::handle object) {
  const Contents contents(object);
  std::vector<T> out(contents.bytes().size() / sizeof(T));
  std::memcpy(out.data(), contents.bytes().data(), out.size() * sizeof(T));
  return out;
}

GpuEnvs::State state_in(nb::tuple given) {
  return {values_in<std::uint64_t>(given[0]), values_in<gpu::Seldom>(given[1]), values_in<double>(given[2]),
          values_in<std::int32_t>(given[3]), values_in<std::uint32_t>(given[4])};
}

nb::object content_of(GpuEnvs& envs, const GpuEnvs::Tables& tables, std::uintptr_t address, std::uintptr_t stream) {
  const std::size_t size = tables.size_at(address);
  if (size == 0) return nb::none();
  return bytes_with(size, [&](std::span<std::byte> to) {
    const nb::gil_scoped_release released;
    envs.copy_to_host(to.data(), address, to.size(), stream_of(stream));
  });
}

// The arrays of a batch, in the order of GpuEnvs::Fixed.
std::shared_ptr<const GpuColumns> columns_of(const EnvSpec& spec, std::int32_t num_envs, bool same_step,
                                             std::int32_t memory_kind) {
  auto columns = std::make_shared<GpuColumns>(GpuColumns{{}, memory_kind});
  const auto add = [&](DType dtype, std::vector<std::int64_t> shape = {}) {
    shape.insert(shape.begin(), num_envs);
    columns->all.push_back({dtype, std::move(shape)});
  };
  for (int times = same_step ? 2 : 1; times > 0; --times) {
    for (const Leaf& leaf : spec.observation) add(leaf.dtype, leaf.shape);
    for (const Leaf& leaf : spec.info) add(leaf.dtype, leaf.shape);
    for (std::size_t i = 0; i < spec.info.size(); ++i) add(DType::kBool);
  }
  for (const GpuEnvs::FixedArray& one : GpuEnvs::kFixedArrays) add(one.dtype);
  return columns;
}

// Envs as the host builds them. One object stands for all that are alike: those with one configuration, unless they read
// tables of their own.
class HostObjects {
 public:
  HostObjects(const sm_env_table& table, nb::handle configs) : table_(table) {
    std::vector<ConfigRun> runs = read_runs(table, configs, nb::none());
    all_differ_ = runs.size() > 1;
    if (!all_differ_) {
      built_ = build_envs(table, {{runs[0].config, 1}});
      all_differ_ = object(0).read != nullptr;
    }
    if (all_differ_) built_ = build_envs(table, runs);
  }

  std::size_t words() const { return (static_cast<std::size_t>(object(0).object_bytes) + 7) / 8; }
  // Where in an object the address of the table is that it reads; -1 if it reads none.
  std::int64_t table_offset() const {
    const sm_env_memory first = object(0);
    return first.read ? first.read_offset : -1;
  }

  // All envs before their first reset. What they read is put into `tables`.
  GpuEnvs::State fresh(const std::vector<std::uint64_t>& seeds, GpuEnvs::Tables& tables) const {
    const std::size_t count = seeds.size(), words = this->words();
    const std::map<const void*, GpuEnvs::Address> places = kept_in(tables, count);
    GpuEnvs::State state{std::vector<std::uint64_t>(words * count), std::vector<gpu::Seldom>(count),
                         std::vector<double>(count), std::vector<std::int32_t>(count),
                         std::vector<std::uint32_t>(count, SM_FRESH | gpu::kHasSeed)};
    std::vector<std::uint64_t> content(words);
    for (std::size_t i = 0; i < count; ++i) {
      if (i == 0 || all_differ_) {
        const sm_env_memory memory = object(i);
        std::memcpy(content.data(), memory.object, static_cast<std::size_t>(memory.object_bytes));
        if (memory.read) {
          const GpuEnvs::Address place = places.at(memory.read);
          std::memcpy(reinterpret_cast<std::byte*>(content.data()) + memory.read_offset, &place, sizeof(place));
        }
      }
      for (std::size_t w = 0; w < words; ++w) state.memory[w * count + i] = content[w];
      state.seldom[i].seed = seeds[i];
    }
    return state;
  }

 private:
  sm_env_memory object(std::size_t env) const {
    sm_env_memory memory{};
    table_.memory(built_->envs(), static_cast<std::int32_t>(env), &memory);
    return memory;
  }

  std::map<const void*, GpuEnvs::Address> kept_in(GpuEnvs::Tables& tables, std::size_t count) const {
    std::map<const void*, GpuEnvs::Address> places;
    std::vector<std::span<const std::byte>> contents;
    for (std::size_t i = 0; i < (all_differ_ ? count : 1); ++i) {
      const sm_env_memory memory = object(i);
      if (!memory.read || !places.try_emplace(memory.read, contents.size()).second) continue;
      contents.emplace_back(static_cast<const std::byte*>(memory.read), static_cast<std::size_t>(memory.read_bytes));
    }
    if (contents.empty()) return places;
    const nb::gil_scoped_release released;
    const auto addresses = tables.keep(contents, nullptr);
    for (auto& [_, place] : places) place = addresses[place];
    return places;
  }

  const sm_env_table& table_;
  bool all_differ_;
  std::unique_ptr<EnvSet> built_;
};

}  // namespace

template <class Managed>
Managed* GpuBatchObject::describe(int array) const {
  const GpuColumn& column = columns_->all[static_cast<std::size_t>(array)];
  const std::size_t axes = column.shape.size();
  void* memory = std::malloc(sizeof(Held<Managed>) + 2 * axes * sizeof(std::int64_t));
  if (!memory) throw std::bad_alloc();
  auto* held = new (memory) Held<Managed>{{}, batch_};
  auto* shape = reinterpret_cast<std::int64_t*>(held + 1);
  std::int64_t* strides = shape + axes;
  std::int64_t elements = 1;
  for (std::size_t i = axes; i-- > 0;) {
    shape[i] = column.shape[i];
    strides[i] = elements;
    elements *= shape[i];
  }
  Managed& made = held->tensor;
  if constexpr (std::is_same_v<Managed, dlpack::ManagedTensor>) made.version = {dlpack::kMajor, 0};
  made.owner = held;
  made.deleter = &let_go<Managed>;
  made.tensor = {reinterpret_cast<void*>(batch_->array(array)), {columns_->memory_kind, batch_->envs().device()},
                 static_cast<std::int32_t>(axes), type_of(column.dtype), shape, strides, 0};
  return &made;
}

nb::tuple GpuBatchObject::tensors(nb::handle api) const {
  const dlpack::ExchangeApi* functions = dlpack::find_api(api.ptr());
  if (!functions) raise("UnsupportedError", "expected the C functions of DLPack 1, got " + describe_object(api));
  const auto count = static_cast<Py_ssize_t>(columns_->all.size());
  nb::object out = owned(PyTuple_New(count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    void* made = nullptr;
    // If it fails, it may have taken over the tensor or not. So we do not free it.
    if (functions->to_object(describe<dlpack::ManagedTensor>(static_cast<int>(i)), &made) != 0) throw nb::python_error();
    PyTuple_SET_ITEM(out.ptr(), i, static_cast<PyObject*>(made));
  }
  return nb::borrow<nb::tuple>(out);
}

nb::object GpuBatchObject::capsule(int array, bool versioned) const {
  if (std::cmp_less(array, 0) || std::cmp_greater_equal(array, columns_->all.size())) throw nb::index_error();
  const auto made = [&]<class Managed>(Managed* tensor) {
    return owned(PyCapsule_New(tensor, kCapsule<Managed>, &let_go_of_capsule<Managed>));
  };
  return versioned ? made(describe<dlpack::ManagedTensor>(array)) : made(describe<dlpack::OldManagedTensor>(array));
}

nb::tuple GpuBatchObject::arrays(std::uintptr_t stream) const {
  GpuEnvs& envs = batch_->envs();
  std::vector<std::byte> all(static_cast<std::size_t>(envs.batch_bytes()));
  {
    const nb::gil_scoped_release released;
    batch_->ready_for(stream_of(stream));
    envs.copy_to_host(all.data(), batch_->array(0), all.size(), stream_of(stream));
  }
  nb::list out;
  for (std::size_t i = 0; i < columns_->all.size(); ++i) {
    const GpuColumn& column = columns_->all[i];
    std::vector<npy_intp> shape(column.shape.begin(), column.shape.end());
    nb::object array = owned(PyArray_SimpleNew(static_cast<int>(shape.size()), shape.data(), numpy_type(column.dtype)));
    auto* made = reinterpret_cast<PyArrayObject*>(array.ptr());
    std::memcpy(PyArray_DATA(made), all.data() + (batch_->array(static_cast<int>(i)) - batch_->array(0)),
                static_cast<std::size_t>(PyArray_NBYTES(made)));
    out.append(array);
  }
  return nb::tuple(out);
}

void GpuBatchObject::ready_for(std::uintptr_t stream) const { batch_->ready_for(stream_of(stream)); }

nb::object GpuBatchObject::content(std::uintptr_t stream) const {
  GpuEnvs& envs = batch_->envs();
  return bytes_with(static_cast<std::size_t>(envs.batch_bytes()), [&](std::span<std::byte> to) {
    const nb::gil_scoped_release released;
    batch_->ready_for(stream_of(stream));
    envs.copy_to_host(to.data(), batch_->array(0), to.size(), stream_of(stream));
  });
}

GpuObject::GpuObject(const std::string& library, std::int32_t memory_kind, int device, nb::bytes image, nb::object env_class, nb::object configs,
                     const std::vector<std::uint64_t>& seeds, bool same_step, std::int32_t max_episode_steps,
                     bool hides_streams) {
  const sm_env_table& table = *find_table(env_class);
  if (!table.memory)
    raise("UnsupportedError", std::string(table.name) + " cannot be copied to a GPU: its class does not say kPlainMemory");
  const auto num_envs = static_cast<std::int32_t>(seeds.size());
  const EnvSpec spec = read_native_spec(table, read_config(table, configs[0]), {});
  if (std::max({spec.observation.size(), spec.action.size(), spec.info.size()}) > gpu::kMostArrays)
    throw std::invalid_argument(std::string(table.name) + ": expected at most " + std::to_string(gpu::kMostArrays) + " arrays");
  const HostObjects objects(table, configs);

  GpuForm form;
  for (const Leaf& leaf : spec.observation) form.observation.push_back(leaf.row_bytes());
  for (const Leaf& leaf : spec.info) form.info.push_back(leaf.row_bytes());
  form.memory_words = static_cast<std::int64_t>(objects.words());
  form.same_step = same_step;
  {
    const auto kernel = bytes_of(image);
    const nb::gil_scoped_release released;
    envs_ = std::make_shared<GpuEnvs>(library.c_str(), device, kernel, num_envs, form, max_episode_steps, hides_streams);
  }
  columns_ = columns_of(spec, num_envs, same_step, memory_kind);
  table_offset_ = objects.table_offset();
  const GpuEnvs::State fresh = objects.fresh(seeds, envs_->tables());
  const nb::gil_scoped_release released;
  envs_->write(fresh, nullptr);
}

GpuObject::~GpuObject() {
  const nb::gil_scoped_release released;  // memory is freed when nothing works with it any more
  envs_->close();
  envs_.reset();
}

// Where streams are hidden, it may wait.
std::shared_ptr<GpuEnvs::Batch> GpuObject::take_batch(std::uintptr_t stream) {
  std::optional<nb::gil_scoped_release> released;
  if (envs_->hides_streams()) released.emplace();
  return envs_->take_batch(stream_of(stream));
}

// A launch waits if so many are under way that the driver has no place for more.
GpuBatchObject GpuObject::step(const std::vector<std::uintptr_t>& action, std::uintptr_t stream) {
  auto batch = take_batch(stream);
  const auto arrays = addresses(action);
  {
    const nb::gil_scoped_release released;
    envs_->step(*batch, arrays, stream_of(stream));
  }
  return {std::move(batch), columns_};
}

void GpuObject::graph_step(const std::vector<std::uintptr_t>& action, std::uintptr_t stream, const GpuBatchObject& into) {
  const auto arrays = addresses(action);
  const nb::gil_scoped_release released;
  envs_->graph_step(*into.batch(), arrays, stream_of(stream));
}

GpuBatchObject GpuObject::advance(const std::vector<std::uintptr_t>& action, std::uintptr_t stream, nb::handle into,
                                  const GpuEnvs::Commands& commands, const GpuEnvs::Restored* restored) {
  auto batch = into.is_none() ? take_batch(stream) : nb::cast<GpuBatchObject&>(into).batch();
  const auto arrays = addresses(action);
  {
    const nb::gil_scoped_release released;
    envs_->step(*batch, arrays, commands, stream_of(stream), restored);
  }
  return {std::move(batch), columns_};
}

GpuBatchObject GpuObject::command(const std::vector<std::uintptr_t>& action, std::uintptr_t stream, nb::object into,
                                  nb::object which, nb::object command, nb::object has_seed, nb::object seed,
                                  nb::object option, std::uint32_t option_mask) {
  std::optional<Contents> places[5];
  const GpuEnvs::Commands commands{entries<std::uint8_t>(open(places[0], which)),
                                   entries<std::uint8_t>(open(places[1], command)),
                                   entries<std::uint8_t>(open(places[2], has_seed)),
                                   entries<std::uint64_t>(open(places[3], seed)),
                                   entries<double>(open(places[4], option)),
                                   option_mask};
  return advance(action, stream, into, commands, nullptr);
}

GpuBatchObject GpuObject::load(const GpuStatesObject& states, nb::object places, nb::object ids,
                               const std::vector<std::uintptr_t>& action, std::uintptr_t stream, nb::object into,
                               nb::object which, nb::object command) {
  std::optional<Contents> given[4];
  const GpuEnvs::Restored restored{states.states(), ids_in(open(given[0], places)), ids_in(open(given[1], ids))};
  GpuEnvs::Commands commands;
  commands.which = entries<std::uint8_t>(open(given[2], which));
  commands.command = entries<std::uint8_t>(open(given[3], command));
  return advance(action, stream, into, commands, &restored);
}

nb::object GpuObject::phases(std::uintptr_t stream) {
  std::vector<std::uint32_t> phases;
  {
    const nb::gil_scoped_release released;
    phases = envs_->phases(stream_of(stream));
  }
  return bytes_in(std::vector<std::uint8_t>(phases.begin(), phases.end()));
}

GpuArrayObject GpuObject::upload(nb::object array, std::uintptr_t stream) {
  const Contents contents(array);
  const nb::gil_scoped_release released;
  return {envs_, envs_->copy_of(contents.bytes().data(), contents.bytes().size(), stream_of(stream))};
}

GpuStatesObject GpuObject::save(nb::object ids, std::uintptr_t stream) {
  std::optional<Contents> given;
  const GpuEnvs::Ids of = ids_in(open(given, ids));
  const nb::gil_scoped_release released;
  return {envs_, envs_->save(of, stream_of(stream))};
}

GpuStatesObject GpuObject::states_of(nb::tuple state, std::uintptr_t stream) {
  const GpuEnvs::State given = state_in(state);
  const nb::gil_scoped_release released;
  return {envs_, envs_->states_of(given, stream_of(stream))};
}

void GpuObject::write(nb::tuple state, std::uintptr_t stream) {
  const GpuEnvs::State given = state_in(state);
  const nb::gil_scoped_release released;
  envs_->write(given, stream_of(stream));
}

nb::tuple GpuStatesObject::read(std::uintptr_t stream) const {
  GpuEnvs::State state;
  {
    const nb::gil_scoped_release released;
    state = envs_->read(*states_, stream_of(stream));
  }
  return nb::make_tuple(bytes_in(state.memory), bytes_in(state.seldom), bytes_in(state.episode_return),
                        bytes_in(state.elapsed), bytes_in(state.phase));
}

GpuBatchObject GpuObject::batch_of(nb::bytes content, std::uintptr_t stream) {
  const auto bytes = bytes_of(content);
  if (std::cmp_not_equal(bytes.size(), envs_->batch_bytes())) throw nb::value_error("expected a batch of this pool, got another size");
  auto batch = take_batch(stream);
  const nb::gil_scoped_release released;
  envs_->copy_to_device(batch->array(0), bytes.data(), bytes.size(), stream_of(stream));
  return {std::move(batch), columns_};
}

nb::object GpuObject::table(std::uintptr_t address, std::uintptr_t stream) const {
  return content_of(*envs_, envs_->tables(), address, stream);
}

nb::object GpuStatesObject::table(std::uintptr_t address, std::uintptr_t stream) const {
  return content_of(*envs_, states_->tables(), address, stream);
}

std::uintptr_t GpuObject::keep_table(nb::bytes content, std::uintptr_t stream) {
  const std::span<const std::byte> table = bytes_of(content);
  const nb::gil_scoped_release released;
  return static_cast<std::uintptr_t>(envs_->tables().keep({&table, 1}, stream_of(stream)).front());
}

nb::tuple GpuObject::notes(std::uintptr_t stream) {
  {
    const nb::gil_scoped_release released;
    const gpu::Notes taken = envs_->take_notes(stream_of(stream));
    noted_.failures += taken.failures;
    noted_.bad_action = std::max(noted_.bad_action, taken.bad_action);
    noted_.failed = std::max(noted_.failed, taken.failed);
  }
  const auto env = [](unsigned kept) { return kept ? nb::object(nb::int_(~kept)) : nb::none(); };
  return nb::make_tuple(noted_.failures, env(noted_.bad_action), env(noted_.failed));
}

std::uint64_t GpuObject::episodes(std::uintptr_t stream) {
  const nb::gil_scoped_release released;
  return ended_before_ + envs_->episodes(stream_of(stream));
}

void GpuObject::go_on_from(std::uint64_t failures, std::optional<std::uint32_t> bad_action,
                           std::optional<std::uint32_t> failed, std::uint64_t episodes) {
  const auto kept = [](std::optional<std::uint32_t> env) { return env ? ~*env : 0; };
  noted_ = {failures, kept(bad_action), kept(failed)};
  ended_before_ = episodes;
}

void register_gpu(nb::module_& m) {
  m.attr("MOST_GPU_ARRAYS") = gpu::kMostArrays;
  nb::list names;
  for (const GpuEnvs::FixedArray& one : GpuEnvs::kFixedArrays) names.append(one.name);
  m.attr("FIXED_GPU_ARRAYS") = nb::tuple(names);
  m.def("gpu_architecture", [](const std::string& library, int device) { return gpu_architecture(library.c_str(), device); }, "library"_a, "device"_a,
        "The version of a GPU's instructions, such as 90. Raises RuntimeError if there is no such GPU.");
  m.def("read_reset_options",
        [](nb::handle env_class, nb::handle options) {
          const sm_reset_request request = read_options(*find_table(env_class), options);
          return nb::make_tuple(to_bytes(std::as_bytes(std::span(request.option))), request.option_mask);
        },
        "env_class"_a, "options"_a.none(), "The options of a reset as numbers, and which of them were given.");
  nb::class_<GpuBatchObject>(m, "GpuBatch")
      .def("tensors", &GpuBatchObject::tensors, "api"_a)
      .def("capsule", &GpuBatchObject::capsule, "array"_a, "versioned"_a)
      .def_prop_ro("count", &GpuBatchObject::count)
      .def("arrays", &GpuBatchObject::arrays, "stream"_a)
      .def("ready_for", &GpuBatchObject::ready_for, "stream"_a)
      .def("content", &GpuBatchObject::content, "stream"_a);
  nb::class_<GpuArrayObject>(m, "GpuArray").def_prop_ro("address", &GpuArrayObject::address);
  nb::class_<GpuStatesObject>(m, "GpuStates")
      .def("read", &GpuStatesObject::read, "stream"_a)
      .def("table", &GpuStatesObject::table, "address"_a, "stream"_a);
  nb::class_<GpuObject>(m, "GpuEnvs")
      .def(nb::init<const std::string&, std::int32_t, int, nb::bytes, nb::object, nb::object,
                    const std::vector<std::uint64_t>&, bool, std::int32_t, bool>(),
           "library"_a, "memory_kind"_a, "device"_a, "image"_a, "env_class"_a, "configs"_a, "seeds"_a, "same_step"_a,
           "max_episode_steps"_a, "hides_streams"_a)
      .def("step", &GpuObject::step, "action"_a, "stream"_a)
      .def("refuse_capture", &GpuObject::refuse_capture, "stream"_a)
      .def_prop_ro("is_in_graph", &GpuObject::is_in_graph)
      .def("graph_step", &GpuObject::graph_step, "action"_a, "stream"_a, "into"_a)
      .def("command", &GpuObject::command, "action"_a, "stream"_a, "into"_a.none(), "which"_a.none(),
           "command"_a.none(), "has_seed"_a.none(), "seed"_a.none(), "option"_a.none(), "option_mask"_a)
      .def("phases", &GpuObject::phases, "stream"_a)
      .def("upload", &GpuObject::upload, "array"_a, "stream"_a)
      .def("save", &GpuObject::save, "ids"_a.none(), "stream"_a)
      .def("states_of", &GpuObject::states_of, "state"_a, "stream"_a)
      .def("load", &GpuObject::load, "states"_a, "places"_a.none(), "ids"_a.none(), "action"_a, "stream"_a,
           "into"_a.none(), "which"_a.none(), "command"_a.none())
      .def("write", &GpuObject::write, "state"_a, "stream"_a)
      .def("batch_of", &GpuObject::batch_of, "content"_a, "stream"_a)
      .def_prop_ro("table_offset", &GpuObject::table_offset)
      .def("table", &GpuObject::table, "address"_a, "stream"_a)
      .def("keep_table", &GpuObject::keep_table, "content"_a, "stream"_a)
      .def("notes", &GpuObject::notes, "stream"_a)
      .def("episodes", &GpuObject::episodes, "stream"_a)
      .def("go_on_from", &GpuObject::go_on_from, "failures"_a, "bad_action"_a.none(), "failed"_a.none(), "episodes"_a)
      .def("forget_bad", &GpuObject::forget_bad)
      .def("forget_failed", &GpuObject::forget_failed)
      .def_prop_ro("memory_words", &GpuObject::memory_words)
      .def_prop_ro("longest_table", &GpuObject::longest_table)
      .def_prop_ro("memory_bytes", &GpuObject::memory_bytes)
      .def_prop_ro("batch_bytes", &GpuObject::batch_bytes);
}

}  // namespace stepmill
