#include "core/memory/cuda_page_lock.h"

#include <string>

namespace stepmill {
namespace {

using Result = CudaDriver::Result;
// Locked for every context, so also for a GPU that copies from this memory later.
constexpr unsigned kPortable = 1;

}  // namespace

CudaPageLock::CudaPageLock(int device, const char* library) : driver_(library) {
  driver_.check(driver_.init(0), "the NVIDIA driver does not start");
  driver_.check(driver_.device_get(&device_, device), ("GPU " + std::to_string(device)).c_str());
  driver_.check(driver_.retain(&context_, device_), ("GPU " + std::to_string(device)).c_str());
}

CudaPageLock::~CudaPageLock() { driver_.let_go(device_); }

bool CudaPageLock::lock(std::byte* from, std::size_t bytes) noexcept {
  const InContext inside(driver_, context_);
  return inside.result() == CudaDriver::kSuccess && driver_.host_register(from, bytes, kPortable) == CudaDriver::kSuccess;
}

bool CudaPageLock::unlock(std::byte* from) noexcept {
  const InContext inside(driver_, context_);
  const Result result = inside.result() == CudaDriver::kSuccess ? driver_.host_unregister(from) : inside.result();
  return result == CudaDriver::kSuccess || result == CudaDriver::kDeinitialized;
}

void CudaPageLock::settle() noexcept {
  if (const InContext inside(driver_, context_); inside.result() == CudaDriver::kSuccess) driver_.synchronize();
}

}  // namespace stepmill
