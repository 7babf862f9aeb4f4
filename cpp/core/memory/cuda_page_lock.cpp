#include "core/memory/cuda_page_lock.h"

#include <dlfcn.h>

#include <stdexcept>
#include <string>

namespace stepmill {
namespace {

using Result = int;
constexpr Result kSuccess = 0;
// Whoever unloads the driver has let go of all memory: at the end of the program.
constexpr Result kDeinitialized = 4;
// Locked for every context, so also for a GPU that copies from this memory later.
constexpr unsigned kPortable = 1;

}  // namespace

// The functions of the driver's interface that we use, by the names that its versions since CUDA 4 have.
struct CudaPageLock::Driver {
  Result (*init)(unsigned flags);
  Result (*error_string)(Result error, const char** text);
  Result (*device_get)(int* device, int number);
  Result (*retain)(void** context, int device);
  Result (*let_go)(int device);
  Result (*push)(void* context);
  Result (*pop)(void** context);
  Result (*synchronize)();
  Result (*host_register)(void* from, std::size_t bytes, unsigned flags);
  Result (*host_unregister)(void* from);

  explicit Driver(const char* library) {
    void* handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);  // never closed: other libraries use it too
    if (!handle) throw std::runtime_error(std::string("there is no driver of NVIDIA: ") + dlerror());
    find(handle, "cuInit", init);
    find(handle, "cuGetErrorString", error_string);
    find(handle, "cuDeviceGet", device_get);
    find(handle, "cuDevicePrimaryCtxRetain", retain);
    find(handle, "cuDevicePrimaryCtxRelease_v2", let_go);
    find(handle, "cuCtxPushCurrent_v2", push);
    find(handle, "cuCtxPopCurrent_v2", pop);
    find(handle, "cuCtxSynchronize", synchronize);
    find(handle, "cuMemHostRegister_v2", host_register);
    find(handle, "cuMemHostUnregister", host_unregister);
  }

  void check(Result result, const char* what) const {
    if (result == kSuccess) return;
    const char* text = nullptr;
    error_string(result, &text);
    throw std::runtime_error(std::string(what) + ": " + (text ? text : "error " + std::to_string(result)));
  }

 private:
  template <class F>
  static void find(void* handle, const char* name, F& function) {
    function = reinterpret_cast<F>(dlsym(handle, name));
    if (!function) throw std::runtime_error(std::string("the driver of NVIDIA is too old: it has no ") + name);
  }
};

// The context, in the calling thread, whichever that is: buffers are released by any.
class CudaPageLock::Inside {
 public:
  explicit Inside(const CudaPageLock& lock) noexcept
      : driver_(*lock.driver_), result_(driver_.push(lock.context_)) {}
  ~Inside() {
    void* context;
    if (result_ == kSuccess) driver_.pop(&context);
  }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

  Result result() const { return result_; }

 private:
  const Driver& driver_;
  const Result result_;
};

CudaPageLock::CudaPageLock(int device, const char* library) : driver_(std::make_unique<Driver>(library)) {
  driver_->check(driver_->init(0), "the driver of NVIDIA does not start");
  driver_->check(driver_->device_get(&device_, device), ("GPU " + std::to_string(device)).c_str());
  driver_->check(driver_->retain(&context_, device_), ("GPU " + std::to_string(device)).c_str());
}

CudaPageLock::~CudaPageLock() { driver_->let_go(device_); }

bool CudaPageLock::lock(std::byte* from, std::size_t bytes) noexcept {
  const Inside inside(*this);
  return inside.result() == kSuccess && driver_->host_register(from, bytes, kPortable) == kSuccess;
}

bool CudaPageLock::unlock(std::byte* from) noexcept {
  const Inside inside(*this);
  const Result result = inside.result() == kSuccess ? driver_->host_unregister(from) : inside.result();
  return result == kSuccess || result == kDeinitialized;
}

void CudaPageLock::settle() noexcept {
  if (const Inside inside(*this); inside.result() == kSuccess) driver_->synchronize();
}

}  // namespace stepmill
