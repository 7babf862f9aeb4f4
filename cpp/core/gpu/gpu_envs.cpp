#include "core/gpu/gpu_envs.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

namespace stepmill {
namespace {

constexpr int kLeastCuda = 13000;       // whose kernels the compilers that we accept make
constexpr unsigned kWithoutTiming = 2;  // of events
constexpr std::int64_t kArrayAlignment = 256;

std::int64_t aligned(std::int64_t bytes) { return (bytes + kArrayAlignment - 1) / kArrayAlignment * kArrayAlignment; }

// What the pool asks the envs for, besides their states.
struct Noted {
  gpu::Notes now, taken;
  unsigned long long ended;
};

template <class T>
T* pointer(CudaDriver::Address address) {
  return reinterpret_cast<T*>(address);
}

std::string shown(std::size_t bytes) {
  constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB"};
  double size = static_cast<double>(bytes);
  int unit = 0;
  for (; unit < 3 && size >= 1024; ++unit) size /= 1024;
  char text[32];
  std::snprintf(text, sizeof text, "%.4g %s", size, kUnits[unit]);
  return text;
}

}  // namespace

int gpu_architecture(const char* library, int device) {
  CudaDriver driver(library);
  driver.find_kernel_functions();
  driver.check(driver.init(0), "the NVIDIA driver does not start");
  int cuda = 0;
  driver.check(driver.version(&cuda), "the NVIDIA driver");
  if (cuda < kLeastCuda)
    throw std::runtime_error("the NVIDIA driver knows CUDA " + std::to_string(cuda / 1000) + "." +
                             std::to_string(cuda % 1000 / 10) + ": expected 13.0 or later, which drivers from 580 on know: update it");
  int found = 0, major = 0, minor = 0;
  driver.check(driver.device_get(&found, device), "GPU " + std::to_string(device));
  constexpr int kMajor = 75, kMinor = 76;  // of the attributes that a device has
  driver.check(driver.device_attribute(&major, kMajor, found), "GPU " + std::to_string(device));
  driver.check(driver.device_attribute(&minor, kMinor, found), "GPU " + std::to_string(device));
  return 10 * major + minor;
}

GpuEnvs::GpuEnvs(const char* library, int device, std::span<const std::byte> image, std::int32_t num_envs, GpuForm form,
                 std::int32_t max_episode_steps, bool hides_streams)
    : driver_(library),
      number_(device),
      num_envs_(num_envs),
      max_episode_steps_(max_episode_steps),
      hides_streams_(hides_streams),
      form_(std::move(form)),
      pid_(getpid()) {
  driver_.find_kernel_functions();
  const std::string gpu = "GPU " + std::to_string(device);
  driver_.check(driver_.init(0), "the NVIDIA driver does not start");
  driver_.check(driver_.device_get(&device_, device), gpu);
  driver_.check(driver_.retain(&context_, device_), gpu);
  try {
    const InContext inside(driver_, context_);
    driver_.check(inside.result(), gpu);
    driver_.check(driver_.module_load(&module_, image.data()), gpu + " does not take the compiled env");
    step_ = kernel("stepmill_step");
    copy_ = kernel("stepmill_copy");
    count_ = kernel("stepmill_count");
    take_notes_ = kernel("stepmill_take_notes");

    const auto envs = static_cast<std::int64_t>(num_envs);
    const auto column = [&](std::int64_t row_bytes) {
      offsets_.push_back(batch_bytes_);
      batch_bytes_ += aligned(row_bytes * envs);
    };
    const auto rows = [&] {
      for (const std::int64_t bytes : form_.observation) column(bytes);
      for (const std::int64_t bytes : form_.info) column(bytes);
      for (std::size_t i = 0; i < form_.info.size(); ++i) column(1);
    };
    rows();
    if (form_.same_step) rows();
    for (const FixedArray& one : kFixedArrays) column(item_size(one.dtype));

    tables_ = std::make_shared<Tables>(*this);
    envs_ = std::make_unique<States>(*this, num_envs);
    noted_ = std::make_unique<Memory>(*this, sizeof(Noted));
    driver_.check(driver_.fill(noted_->address(), 0, sizeof(Noted), nullptr), gpu);
    driver_.check(driver_.event_create(&moved_, kWithoutTiming), gpu);
    // The first launch takes memory for local variables: here, and not in the middle of a run.
    gpu::Arguments of_no_env{};
    start(step_, &of_no_env, 1, nullptr);
    driver_.check(driver_.stream_synchronize(nullptr), gpu);
  } catch (...) {
    noted_.reset();
    envs_.reset();
    tables_.reset();
    {
      const InContext inside(driver_, context_);
      if (moved_) driver_.event_destroy(moved_);
      if (module_) driver_.module_unload(module_);
    }
    driver_.let_go(device_);
    throw;
  }
}

// A child has no part in the GPU, and what its objects hold is the parent's.
GpuEnvs::~GpuEnvs() {
  if (getpid() != pid_) return;
  in_graph_ = false;
  close();
  {
    const InContext inside(driver_, context_);
    const ApartFromCaptures apart(driver_);
    driver_.event_destroy(moved_);
    driver_.module_unload(module_);
  }
  driver_.let_go(device_);
}

void GpuEnvs::close() noexcept {
  if (getpid() != pid_ || in_graph_) return;
  noted_.reset();
  envs_.reset();
  tables_.reset();
  std::vector<Block> free, unsettled;
  {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    free.swap(free_);
    unsettled.swap(unsettled_);
  }
  will_free_.store(true, std::memory_order_relaxed);
  for (const Block& block : free) free_block(block);
  for (const Block& block : unsettled) free_block(block);
}

// Freeing memory waits for work that uses it.
void GpuEnvs::free_block(const Block& block) noexcept {
  const InContext inside(driver_, context_);
  const ApartFromCaptures apart(driver_);
  driver_.event_destroy(block.event);
  driver_.free(block.memory);
  memory_bytes_.fetch_sub(batch_bytes_, std::memory_order_relaxed);
}

GpuEnvs::Memory::Memory(GpuEnvs& envs, std::size_t bytes) : envs_(envs), bytes_(static_cast<std::int64_t>(bytes)) {
  const InContext inside(envs.driver_, envs.context_);
  const ApartFromCaptures apart(envs.driver_);
  const CudaDriver::Result result = envs.driver_.allocate(&address_, std::max<std::size_t>(bytes, 1));
  if (result == CudaDriver::kOutOfMemory)
    throw GpuError("GPU " + std::to_string(envs.number_) + " has too little memory left: a pool of " +
                       std::to_string(envs.num_envs_) + " envs has asked for " + shown(bytes) +
                       " more. Make it with fewer envs, or drop earlier results and saved states",
                   true);
  envs.driver_.check(result, "GPU " + std::to_string(envs.number_));
  envs.memory_bytes_.fetch_add(bytes_, std::memory_order_relaxed);
}

GpuEnvs::Memory::~Memory() {
  if (address_ == 0 || getpid() != envs_.pid_) return;
  const InContext inside(envs_.driver_, envs_.context_);
  const ApartFromCaptures apart(envs_.driver_);
  envs_.driver_.free(address_);
  envs_.memory_bytes_.fetch_sub(bytes_, std::memory_order_relaxed);
}

std::vector<GpuEnvs::Address> GpuEnvs::Tables::keep(std::span<const std::span<const std::byte>> tables, void* stream) {
  std::vector<std::byte> all;
  std::vector<Address> addresses;
  for (const auto& one : tables) {
    addresses.push_back(all.size());
    all.insert(all.end(), one.begin(), one.end());
    all.resize(static_cast<std::size_t>(aligned(static_cast<std::int64_t>(all.size()))));
  }
  auto memory = envs_.copy_of(all.data(), all.size(), stream);
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < tables.size(); ++i) {
    addresses[i] += memory->address();
    sizes_[addresses[i]] = tables[i].size();
  }
  memory_.push_back(std::move(memory));
  return addresses;
}

std::size_t GpuEnvs::Tables::size_at(Address address) const {
  const std::lock_guard lock(mutex_);
  const auto found = sizes_.find(address);
  return found == sizes_.end() ? 0 : found->second;
}

std::size_t GpuEnvs::Tables::longest() const {
  const std::lock_guard lock(mutex_);
  std::size_t longest = 0;
  for (const auto& [_, size] : sizes_) longest = std::max(longest, size);
  return longest;
}

// A block that nobody reads; one without memory if there is none.
GpuEnvs::Block GpuEnvs::take_free(void* stream) {
  const std::lock_guard lock(mutex_);
  // One that this stream has used, whose work comes one after another; or one whose event tells when it is free, or can be
  // made to tell now, as the stream is not captured any more.
  auto found = std::ranges::find(free_, stream, &Block::stream);
  if (found == free_.end()) found = std::ranges::find(free_, true, &Block::is_told);
  if (found == free_.end())
    found = std::ranges::find_if(free_, [&](const Block& one) {
      return !is_capturing(one.stream) && driver_.event_record(one.event, one.stream) == CudaDriver::kSuccess;
    });
  if (found == free_.end()) return {};
  const Block block = *found;
  free_.erase(found);
  return block;
}

// Waits until nobody reads what was let go of, if there are so many blocks of it: so a wait is for several steps.
void GpuEnvs::settle(std::size_t least) {
  std::vector<Block> settled;
  {
    const std::lock_guard lock(mutex_);
    if (unsettled_.size() < least || !free_.empty()) return;
    settled.swap(unsettled_);
  }
  const bool is_done = driver_.synchronize() == CudaDriver::kSuccess;  // not while a CUDA graph is captured, for instance
  const std::lock_guard lock(mutex_);
  auto& to = is_done ? free_ : unsettled_;
  to.insert(to.end(), settled.begin(), settled.end());
}

// Throws if the driver says what is wrong with it.
bool GpuEnvs::is_capturing(void* stream) const {
  constexpr int kByAnother = 906;  // a stream that the default one would wait for
  int answer = 0;
  const auto result = driver_.stream_is_capturing(stream, &answer);
  if (result == kByAnother) return true;
  driver_.check(result, "GPU " + std::to_string(number_));
  return answer != 0;
}

void GpuEnvs::refuse_capture(void* stream) const {
  const InContext inside(driver_, context_);
  if (is_capturing(stream))
    throw CaptureError("the current stream is being captured into a CUDA graph, and only graph_step can be captured: make "
                       "all other calls of this pool before or after the capture");
}

// Lets this stream wait for what was done to the envs on another one.
void GpuEnvs::come_after(void* stream) {
  if (stream == last_stream_ || is_capturing(stream) || is_capturing(last_stream_)) return;
  if (driver_.event_record(moved_, last_stream_) != CudaDriver::kSuccess ||  // somebody may have ended that stream
      driver_.stream_wait(stream, moved_, 0) != CudaDriver::kSuccess)
    driver_.check(driver_.synchronize(), "GPU " + std::to_string(number_));
  last_stream_ = stream;
}

std::shared_ptr<GpuEnvs::Batch> GpuEnvs::take_batch(void* stream) {
  const InContext inside(driver_, context_);
  refuse_capture(stream);
  constexpr std::size_t kEnough = 4;
  if (hides_streams_) settle(kEnough);
  Block block = take_free(stream);
  if (block.memory == 0) {
    try {
      block = new_block(stream);
    } catch (const GpuError& error) {
      if (!error.is_out_of_memory || !hides_streams_) throw;
      settle(1);
      block = take_free(stream);
      if (block.memory == 0) throw;
    }
  }
  if (block.stream != stream) driver_.check(driver_.stream_wait(stream, block.event, 0), "a stream");
  block.stream = stream;
  return std::make_shared<Batch>(shared_from_this(), block);
}

GpuEnvs::Block GpuEnvs::new_block(void* stream) {
  Block block{.stream = stream};
  auto memory = Memory(*this, static_cast<std::size_t>(batch_bytes_));
  // What no env has written, such as the last observations of episodes that go on, is 0 at first.
  driver_.check(driver_.fill(memory.address_, 0, static_cast<std::size_t>(batch_bytes_), stream), "a stream");
  driver_.check(driver_.event_create(&block.event, kWithoutTiming), "an event");
  block.memory = std::exchange(memory.address_, 0);
  return block;
}

void GpuEnvs::Batch::ready_for(void* stream) {
  if (stream == block_.stream) return;
  const InContext inside(envs_->driver_, envs_->context_);
  envs_->driver_.check(envs_->driver_.event_record(block_.event, block_.stream), "a stream");
  envs_->driver_.check(envs_->driver_.stream_wait(stream, block_.event, 0), "a stream");
}

void GpuEnvs::give_back(Block block) noexcept {
  if (getpid() != pid_) return;
  try {
    const std::lock_guard lock(mutex_);
    if (!is_closed_) {
      const InContext inside(driver_, context_);
      // An event that becomes a part of a CUDA graph tells nobody else.
      int is_capturing = 1;
      block.is_told = driver_.stream_is_capturing(block.stream, &is_capturing) == CudaDriver::kSuccess && !is_capturing &&
                      driver_.event_record(block.event, block.stream) == CudaDriver::kSuccess;
      (hides_streams_ ? unsettled_ : free_).push_back(block);
      return;
    }
  } catch (const std::bad_alloc&) {  // there is no place to remember it
  }
  free_block(block);
}

gpu::Arguments GpuEnvs::arguments(const Batch& batch, std::span<const void* const> action) const {
  gpu::Arguments a{};
  a.envs = envs_->places_;
  a.notes = pointer<gpu::Notes>(noted_->address() + offsetof(Noted, now));
  a.num_envs = num_envs_;
  a.max_episode_steps = max_episode_steps_;
  std::ranges::copy(action, a.action);
  int next = 0;
  const auto columns = [&]<class T>(T** to, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) to[i] = pointer<T>(batch.array(next++));
  };
  gpu::Results& r = a.results;
  columns(r.observation, form_.observation.size());
  columns(r.info, form_.info.size());
  columns(r.has_info, form_.info.size());
  if (form_.same_step) {
    columns(r.final_observation, form_.observation.size());
    columns(r.final_info, form_.info.size());
    columns(r.has_final_info, form_.info.size());
  }
  const auto fixed = [&](Fixed which) { return batch.array(fixed_array(which)); };
  r.reward = pointer<float>(fixed(kReward));
  r.terminated = pointer<std::uint8_t>(fixed(kTerminated));
  r.truncated = pointer<std::uint8_t>(fixed(kTruncated));
  r.ended = pointer<std::uint8_t>(fixed(kEnded));
  r.abnormal = pointer<std::uint8_t>(fixed(kAbnormal));
  r.env_id = pointer<std::int32_t>(fixed(kEnvId));
  r.elapsed_step = pointer<std::int32_t>(fixed(kElapsedStep));
  r.episode_length = pointer<std::int32_t>(fixed(kEpisodeLength));
  r.episode_return = pointer<double>(fixed(kEpisodeReturn));
  return a;
}

void* GpuEnvs::kernel(const char* name) {
  void* found = nullptr;
  driver_.check(driver_.module_function(&found, module_, name), name);
  return found;
}

template <class Given>
void GpuEnvs::launch(void* kernel, Given& given, void* stream) {
  if (given.num_envs == 0) return;
  start(kernel, &given, (static_cast<unsigned>(given.num_envs) + gpu::kBlock - 1) / gpu::kBlock, stream);
}

void GpuEnvs::start(void* kernel, void* given, unsigned blocks, void* stream) {
  void* parameters[] = {given};
  const CudaDriver::Result result = driver_.launch(kernel, blocks, 1, 1, gpu::kBlock, 1, 1, 0, stream, parameters, nullptr);
  if (result == CudaDriver::kSuccess) return;
  const std::string gpu = "GPU " + std::to_string(number_);
  if (result == CudaDriver::kOutOfMemory)
    throw GpuError(gpu + " has too little memory left for the env's members and the local variables of its functions, of which "
                       "each thread has a copy: make them smaller, or free other memory",
                   true);
  if (result == CudaDriver::kInvalidValue)  // all else that a launch is given is ours
    throw GpuError(gpu + " cannot start the kernel: the env's members and the local variables of its functions need more than "
                       "the 512 KiB that a thread can have: make them smaller, or use backend='thread'",
                   false);
  driver_.check(result, gpu + " cannot start the kernel");
}

void GpuEnvs::step(Batch& batch, std::span<const void* const> action, void* stream) {
  gpu::Arguments a = arguments(batch, action);
  batch.block_.stream = stream;
  const InContext inside(driver_, context_);
  come_after(stream);
  launch(step_, a, stream);
}

void GpuEnvs::graph_step(Batch& batch, std::span<const void* const> action, void* stream) {
  step(batch, action, stream);
  const InContext inside(driver_, context_);
  if (is_capturing(stream)) in_graph_ = true;
}

void GpuEnvs::step(Batch& batch, std::span<const void* const> action, const Commands& commands, void* stream,
                   const Restored* restored) {
  gpu::Arguments a = arguments(batch, action);
  batch.block_.stream = stream;
  a.option_mask = commands.option_mask;
  std::vector<std::unique_ptr<Memory>> copies;
  const auto copy = [&](auto& to, const auto& from) {
    if (from.empty()) return;
    copies.push_back(copy_of(from.data(), from.size_bytes(), stream));
    to = pointer<std::remove_reference_t<decltype(*to)>>(copies.back()->address());
  };
  copy(a.which, commands.which);
  copy(a.command, commands.command);
  copy(a.has_seed, commands.has_seed);
  copy(a.seed, commands.seed);
  copy(a.option, commands.option);
  gpu::Copy moved{};
  if (restored) {
    const auto count = restored->ids ? static_cast<std::int32_t>(restored->ids->size()) : num_envs_;
    if (std::cmp_not_equal(restored->which ? restored->which->size() : static_cast<std::size_t>(restored->from.count()), count))
      throw std::invalid_argument("expected a state for each of " + std::to_string(count) + " envs");
    moved = {restored->from.places_, envs_->places_, restored->from.count(), num_envs_, form_.memory_words, nullptr,
             nullptr, count, true};
    if (restored->which) copy(moved.from_index, *restored->which);
    if (restored->ids) copy(moved.to_index, *restored->ids);
  }
  const InContext inside(driver_, context_);
  come_after(stream);
  if (restored) launch(copy_, moved, stream);
  launch(step_, a, stream);
}  // freeing the copies waits for the kernels

std::unique_ptr<GpuEnvs::Memory> GpuEnvs::copy_of(const void* from, std::size_t bytes, void* stream) {
  auto made = std::make_unique<Memory>(*this, bytes);
  copy_to_device(made->address(), from, bytes, stream);
  return made;
}

void GpuEnvs::copy_to_device(Address to, const void* from, std::size_t bytes, void* stream) {
  const InContext inside(driver_, context_);
  refuse_capture(stream);
  driver_.check(driver_.to_device(to, from, bytes, stream), "a copy to the GPU");
  driver_.check(driver_.stream_synchronize(stream), "a copy to the GPU");
}

void GpuEnvs::copy_to_host(void* to, Address from, std::size_t bytes, void* stream) {
  const InContext inside(driver_, context_);
  refuse_capture(stream);
  driver_.check(driver_.to_host(to, from, bytes, stream), "a copy from the GPU");
  driver_.check(driver_.stream_synchronize(stream), "a copy from the GPU");
}

GpuEnvs::States::States(GpuEnvs& envs, std::int32_t count) : count_(count), tables_(envs.tables_) {
  std::int64_t bytes = 0;
  const auto place = [&](std::int64_t row_bytes) {
    const std::int64_t at = bytes;
    bytes += aligned(row_bytes * count);
    return static_cast<Address>(at);
  };
  const Address memory = place(8 * envs.form_.memory_words), seldom = place(sizeof(gpu::Seldom)), sum = place(8),
                elapsed = place(4), phase = place(4);
  memory_ = std::make_unique<Memory>(envs, static_cast<std::size_t>(bytes));
  const Address first = memory_->address();
  places_ = {pointer<std::uint64_t>(first + memory), pointer<gpu::Seldom>(first + seldom), pointer<double>(first + sum),
             pointer<std::int32_t>(first + elapsed), pointer<std::uint32_t>(first + phase)};
}

std::unique_ptr<GpuEnvs::States> GpuEnvs::save(Ids ids, void* stream) {
  const std::int32_t count = ids ? static_cast<std::int32_t>(ids->size()) : num_envs_;
  auto made = std::make_unique<States>(*this, count);
  gpu::Copy given{envs_->places_, made->places_, num_envs_, count, form_.memory_words, nullptr, nullptr, count, false};
  std::unique_ptr<Memory> index;
  if (ids) {
    index = copy_of(ids->data(), ids->size_bytes(), stream);
    given.from_index = pointer<const std::int32_t>(index->address());
  }
  const InContext inside(driver_, context_);
  refuse_capture(stream);
  come_after(stream);
  launch(copy_, given, stream);
  driver_.check(driver_.stream_synchronize(stream), "a copy on the GPU");
  return made;
}

// Calls `move` with each array of some envs on the host, and with where it is on the GPU.
template <class S, class Move>
void GpuEnvs::move(S& state, const States& states, Move&& move) {
  move(state.memory, states.places_.memory);
  move(state.seldom, states.places_.seldom);
  move(state.episode_return, states.places_.episode_return);
  move(state.elapsed, states.places_.elapsed);
  move(state.phase, states.places_.phase);
}

GpuEnvs::State GpuEnvs::read(const States& states, void* stream) {
  State state;
  const auto count = static_cast<std::size_t>(states.count());
  state.memory.resize(count * static_cast<std::size_t>(form_.memory_words));
  state.seldom.resize(count);
  state.episode_return.resize(count);
  state.elapsed.resize(count);
  state.phase.resize(count);
  move(state, states, [&](auto& to, const auto* from) {
    copy_to_host(to.data(), reinterpret_cast<Address>(from), to.size() * sizeof(to[0]), stream);
  });
  return state;
}

void GpuEnvs::fill(const States& states, const State& state, void* stream) {
  const auto count = static_cast<std::size_t>(states.count());
  if (state.memory.size() != count * static_cast<std::size_t>(form_.memory_words) || state.seldom.size() != count ||
      state.episode_return.size() != count || state.elapsed.size() != count || state.phase.size() != count)
    throw std::invalid_argument("expected the state of " + std::to_string(count) + " envs of this kind, got another size");
  move(state, states, [&](const auto& from, const auto* to) {
    copy_to_device(reinterpret_cast<Address>(to), from.data(), from.size() * sizeof(from[0]), stream);
  });
}

std::unique_ptr<GpuEnvs::States> GpuEnvs::states_of(const State& state, void* stream) {
  auto made = std::make_unique<States>(*this, static_cast<std::int32_t>(state.phase.size()));
  fill(*made, state, stream);
  return made;
}

void GpuEnvs::write(const State& state, void* stream) {
  {
    const InContext inside(driver_, context_);
    come_after(stream);
  }
  fill(*envs_, state, stream);
}

std::vector<std::uint32_t> GpuEnvs::phases(void* stream) {
  std::vector<std::uint32_t> out(static_cast<std::size_t>(num_envs_));
  {
    const InContext inside(driver_, context_);
    come_after(stream);
  }
  copy_to_host(out.data(), reinterpret_cast<Address>(envs_->places_.phase), out.size() * sizeof(out[0]), stream);
  return out;
}

std::uint64_t GpuEnvs::episodes(void* stream) {
  unsigned long long sum = 0;
  const Address there = noted_->address() + offsetof(Noted, ended);
  gpu::Count given{envs_->places_, pointer<unsigned long long>(there), num_envs_};
  {
    const InContext inside(driver_, context_);
    refuse_capture(stream);
    come_after(stream);
    driver_.check(driver_.fill(there, 0, sizeof sum, stream), "a stream");
    launch(count_, given, stream);
  }
  copy_to_host(&sum, there, sizeof sum, stream);
  return sum;
}

gpu::Notes GpuEnvs::take_notes(void* stream) {
  gpu::Notes notes{};
  const Address there = noted_->address() + offsetof(Noted, taken);
  gpu::TakeNotes given{pointer<gpu::Notes>(noted_->address() + offsetof(Noted, now)), pointer<gpu::Notes>(there)};
  {
    const InContext inside(driver_, context_);
    refuse_capture(stream);
    come_after(stream);
    launch(take_notes_, given, stream);
  }
  copy_to_host(&notes, there, sizeof notes, stream);
  return notes;
}

}  // namespace stepmill
