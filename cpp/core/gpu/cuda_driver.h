// The functions of NVIDIA's driver that we use, found at run time: nothing here needs CUDA to be built, or to be installed
// where nobody uses it. Every program that uses a GPU has loaded the driver already.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace stepmill {

// What the driver has refused.
class GpuError : public std::runtime_error {
 public:
  GpuError(const std::string& message, bool out_of_memory)
      : std::runtime_error(message), is_out_of_memory(out_of_memory) {}
  const bool is_out_of_memory;
};

// The caller's stream is being captured into a CUDA graph, which cannot have in it what was asked for.
class CaptureError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// By the names that the driver's versions since CUDA 4 have; those of kernels since 12.
struct CudaDriver {
  using Result = int;
  static constexpr Result kSuccess = 0;
  static constexpr Result kInvalidValue = 1;
  static constexpr Result kOutOfMemory = 2;
  // Whoever unloads the driver has let go of all memory: at the end of the program.
  static constexpr Result kDeinitialized = 4;

  using Address = unsigned long long;

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

  // Those of kernels; null until `find_kernel_functions`.
  Result (*version)(int* cuda) = nullptr;
  Result (*device_attribute)(int* value, int attribute, int device) = nullptr;
  Result (*module_load)(void** module, const void* image) = nullptr;
  Result (*module_unload)(void* module) = nullptr;
  Result (*module_function)(void** function, void* module, const char* name) = nullptr;
  Result (*allocate)(Address* address, std::size_t bytes) = nullptr;
  Result (*free)(Address address) = nullptr;
  Result (*to_device)(Address to, const void* from, std::size_t bytes, void* stream) = nullptr;
  Result (*to_host)(void* to, Address from, std::size_t bytes, void* stream) = nullptr;
  Result (*fill)(Address to, unsigned char value, std::size_t bytes, void* stream) = nullptr;
  Result (*launch)(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                   unsigned block_z, unsigned shared_bytes, void* stream, void** arguments, void** extra) = nullptr;
  Result (*stream_synchronize)(void* stream) = nullptr;
  Result (*stream_is_capturing)(void* stream, int* answer) = nullptr;
  Result (*exchange_capture_mode)(int* mode) = nullptr;
  Result (*stream_wait)(void* stream, void* event, unsigned flags) = nullptr;
  Result (*event_create)(void** event, unsigned flags) = nullptr;
  Result (*event_record)(void* event, void* stream) = nullptr;
  Result (*event_destroy)(void* event) = nullptr;

  // Throws std::runtime_error if there is no such driver, or an old one.
  explicit CudaDriver(const char* library);
  void find_kernel_functions();

  // Throws GpuError, which begins with `what`, if it is an error.
  void check(Result result, const std::string& what) const;

 private:
  template <class F>
  void find(const char* name, F& function);

  void* handle_;
};

// The GPU's context, in the calling thread, whichever that is.
class InContext {
 public:
  InContext(const CudaDriver& driver, void* context) noexcept : driver_(driver), result_(driver.push(context)) {}
  ~InContext() {
    void* context;
    if (result_ == CudaDriver::kSuccess) driver_.pop(&context);
  }
  InContext(const InContext&) = delete;
  InContext& operator=(const InContext&) = delete;

  CudaDriver::Result result() const { return result_; }

 private:
  const CudaDriver& driver_;
  const CudaDriver::Result result_;
};

// Meanwhile, this thread may take and free memory although somebody captures a CUDA graph: what it does is no part of that.
class ApartFromCaptures {
 public:
  explicit ApartFromCaptures(const CudaDriver& driver) noexcept : driver_(driver) {
    driver_.exchange_capture_mode(&mode_);
  }
  ~ApartFromCaptures() { driver_.exchange_capture_mode(&mode_); }
  ApartFromCaptures(const ApartFromCaptures&) = delete;
  ApartFromCaptures& operator=(const ApartFromCaptures&) = delete;

 private:
  const CudaDriver& driver_;
  int mode_ = 2;  // relaxed
};

}  // namespace stepmill
