// A library with the functions of NVIDIA's driver that we call, for machines without one. It has one GPU, refuses what
// the driver refuses, and keeps a diary. The memory of the GPU is the host's, and its kernels are libraries that were
// compiled for the host (`gpu/on_host.h`): the image of a module is the path of one.
#include <dlfcn.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>

namespace {

enum { kSuccess = 0, kInvalidValue = 1, kNoMemory = 2, kInvalidDevice = 101, kInvalidImage = 200, kNoContext = 201, kTwice = 712, kNotRegistered = 713, kCapturing = 900 };

int gpu;  // its address stands for the context
thread_local int depth = 0;
std::mutex mutex;
std::map<char*, std::size_t> ranges;

}  // namespace

extern "C" {

int fake_retained = 0, fake_synchronized = 0;
int fake_refuse_register = 0, fake_refuse_unregister = 0;  // the error to return

std::size_t fake_registered() {
  std::lock_guard lock(mutex);
  std::size_t sum = 0;
  for (const auto& [from, bytes] : ranges) sum += bytes;
  return sum;
}

int cuInit(unsigned flags) { return flags == 0 ? kSuccess : kInvalidValue; }
int cuGetErrorString(int error, const char** text) {
  *text = error == kInvalidDevice ? "invalid device ordinal" : nullptr;
  return kSuccess;
}
int cuDeviceGet(int* device, int number) {
  *device = number;
  return number == 0 ? kSuccess : kInvalidDevice;
}
int cuDevicePrimaryCtxRetain(void** context, int) {
  ++fake_retained;
  *context = &gpu;
  return kSuccess;
}
int cuDevicePrimaryCtxRelease_v2(int) {
  --fake_retained;
  return kSuccess;
}
int cuCtxPushCurrent_v2(void* context) {
  if (context != &gpu) return kInvalidValue;
  ++depth;
  return kSuccess;
}
int cuCtxPopCurrent_v2(void** context) {
  if (depth == 0) return kNoContext;
  --depth;
  *context = &gpu;
  return kSuccess;
}
int cuCtxSynchronize() {
  if (depth == 0) return kNoContext;
  ++fake_synchronized;
  return kSuccess;
}
int cuMemHostRegister_v2(void* from, std::size_t bytes, unsigned flags) {
  if (depth == 0) return kNoContext;
  if (bytes == 0 || flags != 1) return kInvalidValue;
  if (fake_refuse_register) return fake_refuse_register;
  std::lock_guard lock(mutex);
  auto* begin = static_cast<char*>(from);
  for (const auto& [other, size] : ranges)
    if (other < begin + bytes && begin < other + size) return kTwice;
  ranges[begin] = bytes;
  return kSuccess;
}
int cuMemHostUnregister(void* from) {
  if (depth == 0) return kNoContext;
  if (fake_refuse_unregister) return fake_refuse_unregister;
  std::lock_guard lock(mutex);
  return ranges.erase(static_cast<char*>(from)) == 1 ? kSuccess : kNotRegistered;
}
int fake_depth() { return depth; }

// ---- kernels: work is done at once, so there is one order ------------------------------------------

std::size_t fake_memory = std::size_t{1} << 40;  // that is left
int fake_allocated = 0, fake_events = 0, fake_modules = 0, fake_launches = 0, fake_waits = 0, fake_stream_waits = 0;

void* fake_capturing = nullptr;  // the stream that is captured into a CUDA graph
int fake_captured = 0;           // events that were recorded meanwhile
int fake_broken = 0;             // what streams say
int fake_launch_refused = 0;     // what launches say
thread_local int capture_mode = 0;

// What the driver refuses meanwhile, unless the thread has said that it does it apart from that.
bool is_refused() { return fake_capturing && capture_mode != 2; }

int fake_cuda = 13000;
int cuDriverGetVersion(int* version) {
  *version = fake_cuda;
  return kSuccess;
}
int cuDeviceGetAttribute(int* value, int, int) {
  *value = 9;
  return kSuccess;
}
int cuModuleLoadData(void** module, const void* image) {
  if (depth == 0) return kNoContext;
  *module = dlopen(static_cast<const char*>(image), RTLD_NOW | RTLD_LOCAL);
  if (!*module) return kInvalidImage;
  ++fake_modules;
  return kSuccess;
}
int cuModuleUnload(void*) {  // the library stays: threads of the host may have run it
  --fake_modules;
  return kSuccess;
}
int cuModuleGetFunction(void** function, void* module, const char* name) {
  *function = dlsym(module, (std::string(name) + "_on_host").c_str());
  return *function ? kSuccess : kInvalidImage;
}
int cuMemAlloc_v2(unsigned long long* address, std::size_t bytes) {
  if (depth == 0) return kNoContext;
  if (is_refused()) return kCapturing;
  if (bytes == 0) return kInvalidValue;
  if (bytes > fake_memory) return kNoMemory;
  void* made = nullptr;
  if (posix_memalign(&made, 256, bytes) != 0) return kNoMemory;
  std::memset(made, 0xAB, bytes);
  *address = reinterpret_cast<unsigned long long>(made);
  ++fake_allocated;
  return kSuccess;
}
int cuMemFree_v2(unsigned long long address) {
  if (depth == 0) return kNoContext;
  if (is_refused()) return kCapturing;
  std::free(reinterpret_cast<void*>(address));
  --fake_allocated;
  return kSuccess;
}
int cuMemcpyHtoDAsync_v2(unsigned long long to, const void* from, std::size_t bytes, void*) {
  if (depth == 0) return kNoContext;
  std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  return kSuccess;
}
int cuMemcpyDtoHAsync_v2(void* to, unsigned long long from, std::size_t bytes, void*) {
  if (depth == 0) return kNoContext;
  std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
  return kSuccess;
}
int cuMemsetD8Async(unsigned long long to, unsigned char value, std::size_t bytes, void*) {
  if (depth == 0) return kNoContext;
  std::memset(reinterpret_cast<void*>(to), value, bytes);
  return kSuccess;
}
int cuLaunchKernel(void* function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*,
                   void** arguments, void**) {
  if (depth == 0) return kNoContext;
  if (fake_launch_refused) return fake_launch_refused;
  ++fake_launches;
  reinterpret_cast<void (*)(const void*)>(function)(arguments[0]);
  return kSuccess;
}
int cuStreamSynchronize(void* stream) {
  if (fake_capturing && stream == fake_capturing) return kCapturing;
  ++fake_stream_waits;
  return depth == 0 ? kNoContext : kSuccess;
}
int cuStreamWaitEvent(void*, void*, unsigned) {
  ++fake_waits;
  return depth == 0 ? kNoContext : kSuccess;
}
int cuEventCreate(void** event, unsigned) {
  if (depth == 0) return kNoContext;
  *event = std::malloc(1);
  ++fake_events;
  return kSuccess;
}
int cuEventRecord(void*, void* stream) {
  if (depth == 0) return kNoContext;
  if (fake_capturing && stream == fake_capturing) ++fake_captured;
  return kSuccess;
}
int cuStreamIsCapturing(void* stream, int* answer) {
  *answer = fake_capturing && stream == fake_capturing;
  return depth == 0 ? kNoContext : fake_broken;
}
int cuThreadExchangeStreamCaptureMode(int* mode) {
  std::swap(*mode, capture_mode);
  return kSuccess;
}
int cuEventDestroy_v2(void* event) {
  std::free(event);
  --fake_events;
  return kSuccess;
}

}  // extern "C"
