// CudaPageLock over a driver that is not one (fake_cuda.cpp). The real one is in tests/interop/torch/test_cuda.py.
#include "core/memory/cuda_page_lock.h"

#include <dlfcn.h>

#include <array>
#include <stdexcept>
#include <string>
#include <thread>

#include "tests/check.h"

namespace stepmill::cuda_page_lock_test {

struct Fake {
  void* handle = dlopen(FAKE_CUDA, RTLD_NOW | RTLD_LOCAL);

  int& number(const char* name) const { return *static_cast<int*>(dlsym(handle, name)); }
  std::size_t registered() const { return reinterpret_cast<std::size_t (*)()>(dlsym(handle, "fake_registered"))(); }
  int depth() const { return reinterpret_cast<int (*)()>(dlsym(handle, "fake_depth"))(); }
};

const Fake& fake() {
  static const Fake fake;
  return fake;
}

std::string refusal_of(int device, const char* library) {
  try {
    const CudaPageLock lock(device, library);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

alignas(4096) std::array<std::byte, 8192> memory;

TEST(memory_is_locked_and_unlocked_in_any_thread) {
  CudaPageLock lock(0, FAKE_CUDA);
  CHECK(lock.lock(memory.data(), memory.size()));
  CHECK(fake().registered() == memory.size());
  CHECK(!lock.lock(memory.data(), memory.size()));  // the driver refuses the same pages twice
  std::thread([&] { CHECK(lock.unlock(memory.data())); }).join();
  CHECK(fake().registered() == 0);
  CHECK(fake().depth() == 0);  // the thread's own context is current again
}

TEST(the_context_is_kept_while_it_is_used) {
  {
    CudaPageLock lock(0, FAKE_CUDA);
    CHECK(fake().number("fake_retained") == 1);
    lock.settle();
    CHECK(fake().number("fake_synchronized") == 1);
  }
  CHECK(fake().number("fake_retained") == 0);
}

TEST(memory_that_the_driver_does_not_let_go_of_counts_as_locked) {
  CudaPageLock lock(0, FAKE_CUDA);
  CHECK(lock.lock(memory.data(), memory.size()));
  int& refuse = fake().number("fake_refuse_unregister");
  refuse = 700;  // an earlier kernel failed
  CHECK(!lock.unlock(memory.data()));
  refuse = 4;  // the driver has been unloaded
  CHECK(lock.unlock(memory.data()));
  refuse = 0;
  CHECK(lock.unlock(memory.data()));
}

TEST(memory_that_cannot_be_locked_is_no_error) {
  CudaPageLock lock(0, FAKE_CUDA);
  int& refuse = fake().number("fake_refuse_register");
  refuse = 2;  // no memory
  CHECK(!lock.lock(memory.data(), memory.size()));
  refuse = 0;
}

TEST(a_machine_without_a_driver_or_without_the_gpu_is_told_so) {
  CHECK(refusal_of(0, "libno-such-driver.so").starts_with("there is no NVIDIA driver: "));
  CHECK(refusal_of(3, FAKE_CUDA) == "GPU 3: invalid device ordinal");
  CHECK(refusal_of(0, "libm.so.6") == "the NVIDIA driver is too old: it has no cuInit");
}

}  // namespace stepmill::cuda_page_lock_test
