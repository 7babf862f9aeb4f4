#include "core/gpu/cuda_driver.h"

#include <dlfcn.h>

#include <string>

namespace stepmill {

CudaDriver::CudaDriver(const char* library)
    : handle_(dlopen(library, RTLD_NOW | RTLD_LOCAL)) {  // never closed: other libraries use it too
  if (!handle_) throw std::runtime_error(std::string("there is no NVIDIA driver: ") + dlerror());
  find("cuInit", init);
  find("cuGetErrorString", error_string);
  find("cuDeviceGet", device_get);
  find("cuDevicePrimaryCtxRetain", retain);
  find("cuDevicePrimaryCtxRelease_v2", let_go);
  find("cuCtxPushCurrent_v2", push);
  find("cuCtxPopCurrent_v2", pop);
  find("cuCtxSynchronize", synchronize);
  find("cuMemHostRegister_v2", host_register);
  find("cuMemHostUnregister", host_unregister);
}

void CudaDriver::find_kernel_functions() {
  find("cuDriverGetVersion", version);
  find("cuDeviceGetAttribute", device_attribute);
  find("cuModuleLoadData", module_load);
  find("cuModuleUnload", module_unload);
  find("cuModuleGetFunction", module_function);
  find("cuMemAlloc_v2", allocate);
  find("cuMemFree_v2", free);
  find("cuMemcpyHtoDAsync_v2", to_device);
  find("cuMemcpyDtoHAsync_v2", to_host);
  find("cuMemsetD8Async", fill);
  find("cuLaunchKernel", launch);
  find("cuStreamSynchronize", stream_synchronize);
  find("cuStreamIsCapturing", stream_is_capturing);
  find("cuThreadExchangeStreamCaptureMode", exchange_capture_mode);
  find("cuStreamWaitEvent", stream_wait);
  find("cuEventCreate", event_create);
  find("cuEventRecord", event_record);
  find("cuEventDestroy_v2", event_destroy);
}

void CudaDriver::check(Result result, const std::string& what) const {
  if (result == kSuccess) return;
  const char* text = nullptr;
  error_string(result, &text);
  throw GpuError(what + ": " + (text ? text : "error " + std::to_string(result)), result == kOutOfMemory);
}

template <class F>
void CudaDriver::find(const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(handle_, name));
  if (!function) throw std::runtime_error(std::string("the NVIDIA driver is too old: it has no ") + name);
}

}  // namespace stepmill
