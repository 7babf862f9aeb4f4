// Pages that NVIDIA's GPUs read by themselves.
//
// It asks the driver, libcuda.so.1.
#pragma once

#include "core/gpu/cuda_driver.h"
#include "core/memory/page_lock.h"

namespace stepmill {

class CudaPageLock final : public PageLock {
 public:
  // For copies to the GPU of this number. Throws std::runtime_error, which says why, if there is no driver or no such
  // GPU. `library`: the driver, or a test's.
  explicit CudaPageLock(int device, const char* library = "libcuda.so.1");
  ~CudaPageLock() override;

  bool lock(std::byte* from, std::size_t bytes) noexcept override;
  bool unlock(std::byte* from) noexcept override;
  void settle() noexcept override;

 private:
  const CudaDriver driver_;
  int device_ = 0;
  void* context_ = nullptr;  // the GPU's primary one, which torch and JAX use too
};

}  // namespace stepmill
