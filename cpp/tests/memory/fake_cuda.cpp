// A library with the functions of NVIDIA's driver that we call, for machines without one. It has one GPU, refuses what
// the driver refuses, and keeps a diary.
#include <cstddef>
#include <map>
#include <mutex>

namespace {

enum { kSuccess = 0, kInvalidValue = 1, kInvalidDevice = 101, kNoContext = 201, kTwice = 712, kNotRegistered = 713 };

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

}  // extern "C"
