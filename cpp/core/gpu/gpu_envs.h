// Envs that live on a GPU of NVIDIA, and the kernel that steps them (`gpu/kernel.h`).
//
// A step is one launch: the program never waits, and after the first steps nothing is allocated. Its results are a block
// of memory of the GPU, which whoever keeps one of its arrays owns: it is written to again when all of them were let go.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "core/gpu/cuda_driver.h"
#include "gpu/arguments.h"

namespace stepmill {

// The rows of the arrays of a class, in bytes, and what its kernel was compiled for.
struct GpuForm {
  std::vector<std::int64_t> observation, info, action;
  std::int64_t memory_words = 0;
  bool same_step = false;
};

// The version of a GPU's instructions, such as 90. Throws std::runtime_error if there is no driver, GpuError if there is no
// such GPU.
int gpu_architecture(const char* library, int device);

class GpuEnvs : public std::enable_shared_from_this<GpuEnvs> {
 public:
  using Address = CudaDriver::Address;

  // The arrays of a batch, in this order: observations, infos, whether they are there; with `same_step` the same of ends;
  // then these.
  enum Fixed { kReward, kTerminated, kTruncated, kEnded, kEnvId, kElapsedStep, kEpisodeLength, kEpisodeReturn, kFixed };

  class Batch;

  // `image`: the compiled kernel. Throws GpuError if the GPU or its memory cannot be had.
  GpuEnvs(const char* library, int device, std::span<const std::byte> image, std::int32_t num_envs, GpuForm form,
          std::int32_t max_episode_steps);
  ~GpuEnvs();

  std::int32_t num_envs() const { return num_envs_; }
  int device() const { return number_; }
  const GpuForm& form() const { return form_; }
  int array_count() const { return static_cast<int>(offsets_.size()); }
  int fixed_array(Fixed which) const { return array_count() - kFixed + which; }

  // Every env: the words of its memory, word by word, its generator, and what its episode has come to. Waits.
  struct State {
    std::vector<std::uint64_t> memory;
    std::vector<gpu::Seldom> seldom;
    std::vector<double> episode_return;
    std::vector<std::int32_t> elapsed;
    std::vector<std::uint32_t> phase;
  };
  State read(void* stream);
  void write(const State& state, void* stream);

  // The word of each env that its phase is in. Waits.
  std::vector<std::uint32_t> phases(void* stream);

  // A copy of a table that envs read, which stays as long as they do. Returns where it is.
  Address keep(std::span<const std::byte> bytes, void* stream);

  // What a kernel is given besides: arrays of the host with an entry per env, or empty.
  struct Commands {
    std::span<const std::uint8_t> which, command, has_seed;
    std::span<const std::uint64_t> seed;
    std::span<const double> option;
    std::uint32_t option_mask = 0;
  };

  // A block that nobody reads, for results of work on this stream.
  std::shared_ptr<Batch> take_batch(void* stream);
  // Steps envs. `action`: where each array is on the GPU.
  void step(Batch& batch, std::span<const void* const> action, void* stream);
  void step(Batch& batch, std::span<const void* const> action, const Commands& commands, void* stream);

  gpu::Notes notes(void* stream);  // waits
  void clear_notes(void* stream);

  // Copies to the GPU and from it, and wait for it.
  void copy_to_device(Address to, const void* from, std::size_t bytes, void* stream);
  void copy_to_host(void* to, Address from, std::size_t bytes, void* stream);
  // A copy on the GPU, of numbers of the host.
  class Memory;
  std::unique_ptr<Memory> copy_of(const void* from, std::size_t bytes, void* stream);

  std::int64_t batch_bytes() const { return batch_bytes_; }
  std::int64_t env_bytes() const { return env_bytes_; }

 private:
  struct Block {
    Address memory = 0;
    void* stream = nullptr;  // whose work wrote it, and may still read it
    void* event = nullptr;   // when that was done, as of its return
  };

  gpu::Arguments arguments(const Batch& batch, std::span<const void* const> action) const;
  void launch(gpu::Arguments& arguments, void* stream);
  void give_back(Block block) noexcept;

  CudaDriver driver_;
  const int number_;
  int device_ = 0;
  void* context_ = nullptr;
  void* module_ = nullptr;
  void* function_ = nullptr;
  const std::int32_t num_envs_, max_episode_steps_;
  const GpuForm form_;
  std::vector<std::int64_t> offsets_;  // of the arrays of a batch
  std::int64_t batch_bytes_ = 0, env_bytes_ = 0;
  std::unique_ptr<Memory> envs_memory_, notes_memory_;
  std::vector<std::unique_ptr<Memory>> tables_;
  gpu::Envs envs_{};
  const int pid_;

  std::mutex mutex_;
  std::vector<Block> free_;  // guarded by mutex_
};

// Memory of the GPU. Freed in whatever thread lets go of it.
class GpuEnvs::Memory {
 public:
  Memory(GpuEnvs& envs, std::size_t bytes);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  Address address() const { return address_; }

 private:
  friend class GpuEnvs;
  GpuEnvs& envs_;
  Address address_ = 0;
};

// The results of a step. It keeps the envs' context alive, not the pool.
class GpuEnvs::Batch {
 public:
  Batch(std::shared_ptr<GpuEnvs> envs, Block block) : envs_(std::move(envs)), block_(block) {}
  ~Batch() { envs_->give_back(block_); }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  Address array(int index) const { return block_.memory + static_cast<Address>(envs_->offsets_[static_cast<std::size_t>(index)]); }
  GpuEnvs& envs() const { return *envs_; }

 private:
  friend class GpuEnvs;
  std::shared_ptr<GpuEnvs> envs_;
  Block block_;
};

}  // namespace stepmill
