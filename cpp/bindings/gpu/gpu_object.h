// Envs on a GPU, and the results of their steps, as Python has them.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "bindings/python/dlpack.h"
#include "core/env/spec.h"
#include "core/gpu/gpu_envs.h"

namespace stepmill {

// An array of a batch: what DLPack and numpy are told of it.
struct GpuColumn {
  DType dtype;
  std::vector<std::int64_t> shape;  // the envs first
};

struct GpuColumns {
  std::vector<GpuColumn> all;
  std::int32_t memory_kind;  // as DLPack has it
};

// Freeing memory of the GPU waits for it.
template <class T>
struct DeleteWithoutGil {
  void operator()(T* object) const {
    const nanobind::gil_scoped_release released;
    delete object;
  }
};

class GpuBatchObject {
 public:
  GpuBatchObject(std::shared_ptr<GpuEnvs::Batch> batch, std::shared_ptr<const GpuColumns> columns)
      : batch_(std::move(batch)), columns_(std::move(columns)) {}

  // Its arrays as tensors of the library whose C functions these are, without a copy.
  nanobind::tuple tensors(nanobind::handle api) const;
  // One of its arrays in a capsule of DLPack, for libraries without such functions.
  nanobind::object capsule(int array, bool versioned) const;
  std::size_t count() const { return columns_->all.size(); }
  // Copies of its arrays, in numpy's. Waits for the stream.
  nanobind::tuple arrays(std::uintptr_t stream) const;
  // Lets a stream of whoever takes them over wait for the results.
  void ready_for(std::uintptr_t stream) const;
  // All of it, for a checkpoint. Waits.
  nanobind::object content(std::uintptr_t stream) const;

  const std::shared_ptr<GpuEnvs::Batch>& batch() const { return batch_; }

 private:
  template <class Managed>
  Managed* describe(int array) const;

  std::shared_ptr<GpuEnvs::Batch> batch_;
  std::shared_ptr<const GpuColumns> columns_;
};

// Memory of the GPU with what an array of the host had.
class GpuArrayObject {
 public:
  GpuArrayObject(std::shared_ptr<GpuEnvs> envs, std::unique_ptr<GpuEnvs::Memory> memory)
      : envs_(std::move(envs)), memory_(memory.release()) {}
  std::uintptr_t address() const { return static_cast<std::uintptr_t>(memory_->address()); }

 private:
  std::shared_ptr<GpuEnvs> envs_;
  std::unique_ptr<GpuEnvs::Memory, DeleteWithoutGil<GpuEnvs::Memory>> memory_;
};

// Copies of envs on the GPU.
class GpuStatesObject {
 public:
  GpuStatesObject(std::shared_ptr<GpuEnvs> envs, std::unique_ptr<GpuEnvs::States> states)
      : envs_(std::move(envs)), states_(states.release()) {}
  // All of it, in bytes. Waits.
  nanobind::tuple read(std::uintptr_t stream) const;
  // What is in a table that one of them reads; None if there is none of that address. Waits.
  nanobind::object table(std::uintptr_t address, std::uintptr_t stream) const;
  const GpuEnvs::States& states() const { return *states_; }

 private:
  std::shared_ptr<GpuEnvs> envs_;
  std::unique_ptr<GpuEnvs::States, DeleteWithoutGil<GpuEnvs::States>> states_;
};

class GpuObject {
 public:
  // Builds envs on the host, and copies them. `memory_kind`: DLPack's number for the memory of that driver's GPUs.
  GpuObject(const std::string& library, std::int32_t memory_kind, int device, nanobind::bytes image,
            nanobind::object env_class, nanobind::object configs, const std::vector<std::uint64_t>& seeds,
            bool same_step, std::int32_t max_episode_steps, bool hides_streams);

  ~GpuObject();
  GpuObject(const GpuObject&) = delete;
  GpuObject& operator=(const GpuObject&) = delete;

  // Raises UsageError if the stream is being captured into a CUDA graph.
  void refuse_capture(std::uintptr_t stream) const { envs_->refuse_capture(reinterpret_cast<void*>(stream)); }
  // Whether a CUDA graph may step the envs when nobody here looks.
  bool is_in_graph() const { return envs_->is_in_graph(); }
  // Steps all envs. `action`: the address of each array on the GPU.
  GpuBatchObject step(const std::vector<std::uintptr_t>& action, std::uintptr_t stream);
  // Steps all envs into a batch of an earlier step, which a CUDA graph can capture.
  void graph_step(const std::vector<std::uintptr_t>& action, std::uintptr_t stream, const GpuBatchObject& into);
  // Steps or resets some; `into`: rows of a step before this one, which stay, or None. The others are bytes with an entry
  // per env, or None (see gpu::Arguments).
  GpuBatchObject command(const std::vector<std::uintptr_t>& action, std::uintptr_t stream, nanobind::object into,
                         nanobind::object which, nanobind::object command, nanobind::object has_seed,
                         nanobind::object seed, nanobind::object option, std::uint32_t option_mask);

  // The phase of each env (sm_phase), in bytes. Waits.
  nanobind::object phases(std::uintptr_t stream);
  // A copy of an array of the host. Waits for kernels that read it when it is let go of.
  GpuArrayObject upload(nanobind::object array, std::uintptr_t stream);
  // Copies of some envs; `ids`: their numbers in 32 bits, or None for all. Waits.
  GpuStatesObject save(nanobind::object ids, std::uintptr_t stream);
  // What `GpuStatesObject::read` has read, on the GPU again. Waits.
  GpuStatesObject states_of(nanobind::tuple state, std::uintptr_t stream);
  // Makes some envs what copies are, of which `places` says which; then `command`. Both in one call, between whose parts no
  // signal handler runs. Waits.
  GpuBatchObject load(const GpuStatesObject& states, nanobind::object places, nanobind::object ids,
                      const std::vector<std::uintptr_t>& action, std::uintptr_t stream, nanobind::object into,
                      nanobind::object which, nanobind::object command);
  // Makes all envs what `GpuStatesObject::read` has read. Waits.
  void write(nanobind::tuple state, std::uintptr_t stream);
  // Rows with the content of a batch.
  GpuBatchObject batch_of(nanobind::bytes content, std::uintptr_t stream);

  // Where in an env's memory the address of the table is that it reads; -1 if it reads none.
  std::int64_t table_offset() const { return table_offset_; }
  std::size_t longest_table() const { return envs_->tables().longest(); }  // in bytes
  // What is in a table; None if there is none of that address. Waits.
  nanobind::object table(std::uintptr_t address, std::uintptr_t stream) const;
  // A new table, which stays as long as the envs: its address.
  std::uintptr_t keep_table(nanobind::bytes content, std::uintptr_t stream);

  // How many steps failed; the lowest ids of an env that was given a bad action, and of one that failed, or None, since they were
  // forgotten. Waits.
  nanobind::tuple notes(std::uintptr_t stream);
  void forget_bad() { noted_.bad_action = 0; }
  void forget_failed() { noted_.failed = 0; }
  // How many episodes have ended. Waits.
  std::uint64_t episodes(std::uintptr_t stream);

  // What another pool had counted and noted, with whose run this one goes on: as `notes` and `episodes` give it.
  void go_on_from(std::uint64_t failures, std::optional<std::uint32_t> bad_action, std::optional<std::uint32_t> failed,
                  std::uint64_t episodes);

  // Of the GPU, in bytes: the results of a step, and all that is held.
  std::int64_t batch_bytes() const { return envs_->batch_bytes(); }
  std::int64_t memory_bytes() const { return envs_->memory_bytes(); }
  std::int64_t memory_words() const { return envs_->form().memory_words; }

 private:
  std::shared_ptr<GpuEnvs::Batch> take_batch(std::uintptr_t stream);
  GpuBatchObject advance(const std::vector<std::uintptr_t>& action, std::uintptr_t stream, nanobind::handle into,
                         const GpuEnvs::Commands& commands, const GpuEnvs::Restored* restored);

  std::shared_ptr<GpuEnvs> envs_;
  std::shared_ptr<const GpuColumns> columns_;
  std::int64_t table_offset_ = -1;
  gpu::Notes noted_{};              // which the kernel has noted
  std::uint64_t ended_before_ = 0;  // episodes, in another pool with whose run this one goes on
};

void register_gpu(nanobind::module_& m);

}  // namespace stepmill
