// Envs that live on an NVIDIA GPU, and the kernel that steps them (`gpu/kernel.h`).
//
// A step whose action is on the GPU is one launch: it does not wait, and after the first few it allocates nothing. Its
// results are a block of memory of the GPU, which whoever keeps one of its arrays owns: it is written to again when all of
// them were let go.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "core/env/dtype.h"
#include "core/gpu/cuda_driver.h"
#include "gpu/arguments.h"

namespace stepmill {

// The rows of the arrays of a class, in bytes, and what its kernel was compiled for.
struct GpuForm {
  std::vector<std::int64_t> observation, info;
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
  enum Fixed { kReward, kTerminated, kTruncated, kEnded, kAbnormal, kEnvId, kElapsedStep, kEpisodeLength, kEpisodeReturn, kFixed };
  struct FixedArray {
    const char* name;
    DType dtype;
  };
  static constexpr FixedArray kFixedArrays[kFixed] = {
      {"reward", DType::kFloat32},   {"terminated", DType::kBool},   {"truncated", DType::kBool},
      {"ended", DType::kBool},       {"abnormal", DType::kBool},     {"env_id", DType::kInt32},
      {"elapsed_step", DType::kInt32}, {"episode_length", DType::kInt32}, {"episode_return", DType::kFloat64}};

  class Batch;

  // `image`: the compiled kernel. `hides_streams`: whether those who read results do so in streams that we are not told of,
  // and let go of them while they read. Throws GpuError if there is no such GPU, or too little memory.
  GpuEnvs(const char* library, int device, std::span<const std::byte> image, std::int32_t num_envs, GpuForm form,
          std::int32_t max_episode_steps, bool hides_streams);
  ~GpuEnvs();

  // Lets go of all memory but that of batches and copies that somebody has. Nothing else may be called then. Waits for
  // kernels that run.
  void close() noexcept;

  int device() const { return number_; }
  const GpuForm& form() const { return form_; }
  int array_count() const { return static_cast<int>(offsets_.size()); }
  int fixed_array(Fixed which) const { return array_count() - kFixed + which; }

  // Envs on the host: the words of their memory, word by word, their generators, and what their episodes have come to.
  struct State {
    std::vector<std::uint64_t> memory;
    std::vector<gpu::Seldom> seldom;
    std::vector<double> episode_return;
    std::vector<std::int32_t> elapsed;
    std::vector<std::uint32_t> phase;
  };
  // Envs on the GPU: those of the pool, and copies that were put aside.
  class States;
  using Ids = std::optional<std::span<const std::int32_t>>;  // none: all, in order

  // What envs read, and do not change.
  class Tables;
  Tables& tables() { return *tables_; }

  // Copies of these envs. Waits, as all that follows: until then nothing may write what is read.
  std::unique_ptr<States> save(Ids ids, void* stream);
  // Between the GPU and the host: of copies, and of all envs.
  State read(const States& states, void* stream);
  std::unique_ptr<States> states_of(const State& state, void* stream);
  void write(const State& state, void* stream);

  // The word of each env that its phase is in.
  std::vector<std::uint32_t> phases(void* stream);
  // How many episodes have ended.
  std::uint64_t episodes(void* stream);

  // What a kernel is given besides: arrays of the host with an entry per env, or empty.
  struct Commands {
    std::span<const std::uint8_t> which, command, has_seed;
    std::span<const std::uint64_t> seed;
    std::span<const double> option;
    std::uint32_t option_mask = 0;
  };

  // Which envs become what copies are: env `ids[i]` what the copy `which[i]` is.
  struct Restored {
    const States& from;
    Ids which, ids;
  };

  // Streams: what happens to the envs happens in the order of the calls, whichever stream each of them is on. Not so where
  // a stream is being captured: a graph runs when somebody replays it.

  // Throws CaptureError if work of this stream becomes a part of a CUDA graph.
  void refuse_capture(void* stream) const;

  // A block that nobody reads, for results of work on this stream. May wait if streams are hidden.
  std::shared_ptr<Batch> take_batch(void* stream);
  bool hides_streams() const { return hides_streams_; }
  // Steps envs. `action`: where each array is on the GPU.
  void step(Batch& batch, std::span<const void* const> action, void* stream);
  // Makes some envs what copies are before that. All that may fail comes first: if it does, nothing has changed. (A driver
  // may then still refuse the second of two launches: it does if the GPU is broken, which nothing survives.)
  void step(Batch& batch, std::span<const void* const> action, const Commands& commands, void* stream,
            const Restored* restored = nullptr);
  // Likewise, maybe captured into a CUDA graph: so nothing happens but the launch.
  void graph_step(Batch& batch, std::span<const void* const> action, void* stream);
  // Whether it ever was: then a graph may step the envs at any time.
  bool is_in_graph() const { return in_graph_; }

  // What was noted since this was asked.
  gpu::Notes take_notes(void* stream);

  // Copies to the GPU and from it, and wait for it.
  void copy_to_device(Address to, const void* from, std::size_t bytes, void* stream);
  void copy_to_host(void* to, Address from, std::size_t bytes, void* stream);
  // A copy on the GPU, of numbers of the host.
  class Memory;
  std::unique_ptr<Memory> copy_of(const void* from, std::size_t bytes, void* stream);

  // Whether batches that are let go of are freed, which waits for the GPU.
  bool will_free() const { return will_free_.load(std::memory_order_relaxed); }

  std::int64_t batch_bytes() const { return batch_bytes_; }
  // All memory of the GPU that is held: of envs, of batches, free ones too, and of copies.
  std::int64_t memory_bytes() const { return memory_bytes_.load(std::memory_order_relaxed); }

 private:
  struct Block {
    Address memory = 0;
    void* stream = nullptr;  // whose work wrote it, and may still read it
    void* event = nullptr;   // when that was done, as of its return
    bool is_told = true;     // whether the event tells
  };

  gpu::Arguments arguments(const Batch& batch, std::span<const void* const> action) const;
  void* kernel(const char* name);
  template <class Given>
  void launch(void* kernel, Given& given, void* stream);
  void start(void* kernel, void* given, unsigned blocks, void* stream);
  template <class S, class Move>
  static void move(S& state, const States& states, Move&& move);
  void fill(const States& states, const State& state, void* stream);
  bool is_capturing(void* stream) const;
  void come_after(void* stream);
  Block take_free(void* stream);
  Block new_block(void* stream);
  void settle(std::size_t least);
  void free_block(const Block& block) noexcept;
  void give_back(Block block) noexcept;

  CudaDriver driver_;
  const int number_;
  int device_ = 0;
  void* context_ = nullptr;
  void* module_ = nullptr;
  void *step_ = nullptr, *copy_ = nullptr, *count_ = nullptr, *take_notes_ = nullptr;  // kernels
  const std::int32_t num_envs_, max_episode_steps_;
  const bool hides_streams_;
  const GpuForm form_;
  std::vector<std::int64_t> offsets_;  // of the arrays of a batch
  std::int64_t batch_bytes_ = 0;
  std::unique_ptr<States> envs_;
  std::shared_ptr<Tables> tables_;
  std::unique_ptr<Memory> noted_;
  void* last_stream_ = nullptr;  // on which the envs were moved or read
  void* moved_ = nullptr;        // an event of that stream
  const int pid_;
  std::atomic<std::int64_t> memory_bytes_ = 0;  // a sum, which nothing else depends on

  std::mutex mutex_;
  // Guarded by mutex_: what nobody reads, and, if streams are hidden, what was let go of and may still be read.
  std::vector<Block> free_, unsettled_;
  bool is_closed_ = false;
  bool in_graph_ = false;  // whether a CUDA graph steps the envs: their memory then stays as long as its results
  std::atomic<bool> will_free_ = false;  // whether what is let go of is freed, which waits: a hint
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
  const std::int64_t bytes_;
  Address address_ = 0;
};

// They stay as long as the envs, or copies of these. Any thread may ask for them.
class GpuEnvs::Tables {
 public:
  explicit Tables(GpuEnvs& envs) : envs_(envs) {}
  // Where copies of these bytes are. Waits.
  std::vector<Address> keep(std::span<const std::span<const std::byte>> tables, void* stream);
  // The size of a table in bytes; 0: there is none of that address.
  std::size_t size_at(Address address) const;
  std::size_t longest() const;

 private:
  GpuEnvs& envs_;
  mutable std::mutex mutex_;
  // Guarded by mutex_.
  std::vector<std::unique_ptr<Memory>> memory_;
  std::map<Address, std::size_t> sizes_;
};

class GpuEnvs::States {
 public:
  States(GpuEnvs& envs, std::int32_t count);

  std::int32_t count() const { return count_; }
  const Tables& tables() const { return *tables_; }

 private:
  friend class GpuEnvs;
  std::int32_t count_;
  std::shared_ptr<const Tables> tables_;  // which they read
  std::unique_ptr<Memory> memory_;
  gpu::Envs places_{};
};

// The results of a step. It keeps the envs' context alive, not the pool.
class GpuEnvs::Batch {
 public:
  Batch(std::shared_ptr<GpuEnvs> envs, Block block) : envs_(std::move(envs)), block_(block) {}
  ~Batch() { envs_->give_back(block_); }
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;

  // Lets this stream wait for the results.
  void ready_for(void* stream);

  Address array(int index) const { return block_.memory + static_cast<Address>(envs_->offsets_[static_cast<std::size_t>(index)]); }
  GpuEnvs& envs() const { return *envs_; }

 private:
  friend class GpuEnvs;
  std::shared_ptr<GpuEnvs> envs_;
  Block block_;
};

}  // namespace stepmill
