// Two processes fill the same batches: the arena's promise. The parent lays the stations out in a
// shared arena; a forked child maps it at another address and serves half of the envs, the parent
// the other half. What comes back must be what a plain pool gives, bit for bit.
//
// Each process is a single thread: what one orders through the other, the thread sanitizer cannot
// see, and it would report as a race.

#include <sys/wait.h>
#include <unistd.h>

#include <numeric>
#include <optional>
#include <stdexcept>

#include "core/pool.h"
#include "tests/check.h"
#include "tests/pool_driver.h"

namespace stepmill::shared_arena_test {

using test::Driver;
using test::DriverOptions;
using Ids = std::vector<std::int32_t>;

constexpr std::int32_t kEnvs = 12, kHalf = kEnvs / 2;

// Where the parts of one server's inbox lie in the arena. The envs of a process live there, so each
// process has a queue of its own.
struct Doorbell {
  alignas(kCacheLine) std::atomic<std::uint32_t> rung;
  std::atomic<std::uint32_t> stop;
};

struct Offsets {
  std::size_t table, ring, queue[2], bell[2];
};

// One process's side: it steps its half of the envs into slots of whichever batch is open.
class Server {
 public:
  Server(const std::shared_ptr<Arena>& arena, const Offsets& at, const DriverOptions& options, int side)
      : arena_(arena),
        options_(options),
        spec_(test::obedient_spec()),
        table_(*arena, at.table, spec_, options.table()),
        ring_(arena->at(at.ring), kEnvs, options.batch_size),
        queue_(arena->at(at.queue[side]), kEnvs),
        bell_(*reinterpret_cast<Doorbell*>(arena->at(at.bell[side]))),
        envs_(test::obedient_table(), test::obedient_configs(kHalf, options.work), side * kHalf),
        layout_(spec_, options.batch_size, options.autoreset == SM_SAME_STEP, false) {}

  // Steps a few envs. False where none is queued.
  bool serve_some() {
    std::int32_t ids[kEnvs];
    const std::int32_t count = queue_.pop(3, ids);
    serve({ids, static_cast<std::size_t>(count)});
    return count != 0;
  }

  // Serves until the bell says stop.
  void run() {
    while (true) {
      const std::uint32_t seen = bell_.rung.load();
      while (serve_some()) continue;
      if (bell_.stop.load() != 0) return;
      futex_wait(bell_.rung, seen, std::chrono::hours(1), true);
    }
  }

 private:
  void serve(std::span<const std::int32_t> envs) {
    while (!envs.empty()) {
      const BatchRing::Slots slots = ring_.claim(static_cast<std::uint32_t>(envs.size()));
      std::byte* buffer = arena_->at(slots.offset);
      layout_.fill(columns_, buffer);
      sm_job job{};
      job.shared = &table_.shared();
      job.env = envs.data();
      job.first_row = slots.first;
      job.columns = &columns_.c;
      job.count = static_cast<std::int32_t>(slots.count);
      job.fault = [](void*, std::int32_t, std::int32_t, const char*) {};
      const bool ended = envs_.advance(job);
      commit(*BatchLayout::header(buffer), slots.count, 0, ended, true);
      envs = envs.subspan(slots.count);
    }
  }

  const std::shared_ptr<Arena> arena_;
  const DriverOptions options_;
  const EnvSpec spec_;
  ActionTable table_;
  BatchRing ring_;
  ReadyQueue queue_;
  Doorbell& bell_;
  EnvSet envs_;
  const BatchLayout layout_;
  Columns columns_;
};

// The caller's side: what a pool over worker processes does, with no more than the test needs.
class Caller {
 public:
  explicit Caller(const DriverOptions& options)
      : options_(options),
        spec_(test::obedient_spec()),
        arena_(Arena::create(Arena::Kind::kShared)),
        table_(*arena_, spec_, options.table()),
        store_(arena_, BatchLayout(spec_, options.batch_size, options.autoreset == SM_SAME_STEP, false)) {
    at_.table = table_.offset();
    at_.ring = arena_->grow(BatchRing::bytes(kEnvs, options.batch_size), kCacheLine);
    for (int side = 0; side < 2; ++side) {
      at_.queue[side] = arena_->grow(ReadyQueue::bytes(kEnvs), kCacheLine);
      at_.bell[side] = arena_->grow(sizeof(Doorbell), kCacheLine);
      queue_.emplace_back(arena_->at(at_.queue[side]), kEnvs);
    }
    ring_.emplace(arena_->at(at_.ring), kEnvs, options.batch_size);
    buffers_.resize(ring_->places());
    for (std::int32_t env = 0; env < kEnvs; ++env) {
      table_.reset_request(env).seed = static_cast<std::uint64_t>(env);
      table_.reset_request(env).has_seed = 1;
    }
    child_ = fork();
    if (child_ == 0) serve_in_child();
    own_half_.emplace(arena_, at_, options_, 0);
  }

  ~Caller() {
    bell(1).stop = 1;
    ring_bell(1);
    int status = -1;
    if (child_ > 0) CHECK(waitpid(child_, &status, 0) == child_);
    CHECK(status == 0);
  }
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  void send(const Ids& envs, const std::vector<std::int64_t>& orders) {
    in_flight_ += static_cast<std::int32_t>(envs.size());
    const auto batches = static_cast<std::uint32_t>((in_flight_ + options_.batch_size - 1) / options_.batch_size);
    for (; opened_ - head_ < batches; ++opened_) {
      Buffer* buffer = buffers_[ring_->place(opened_)] = store_.acquire();
      ring_->open(opened_, buffer->offset);
    }
    for (int side = 0; side < 2; ++side) {
      Ids mine;
      for (std::size_t i = 0; i < envs.size(); ++i)
        if (envs[i] / kHalf == side) {
          reinterpret_cast<std::int64_t*>(table_.action(0))[envs[i]] = orders[i];
          mine.push_back(envs[i]);
        }
      queue_[static_cast<std::size_t>(side)].push(mine);
      ring_bell(side);
    }
  }

  // The next batch as rows by env. Everything in flight is in it where it is short.
  std::vector<std::pair<std::int32_t, std::string>> recv() {
    Buffer* buffer = buffers_[ring_->place(head_)];
    const auto want = static_cast<std::uint32_t>(std::min(options_.batch_size, in_flight_));
    BatchHeader& header = *buffer->header;
    while (header.done.load() < want) {
      if (own_half_->serve_some()) continue;
      header.want.store(want);
      const std::uint32_t done = header.done.load();
      if (done < want) futex_wait(header.done, done, std::chrono::seconds(1), true);
      header.want.store(0);
      if (child_ended()) throw std::runtime_error("the child ended before its time");
    }
    CHECK(header.done.load() == want);
    if (want < static_cast<std::uint32_t>(options_.batch_size)) ring_->seal(head_);
    head_ += 1;
    in_flight_ -= static_cast<std::int32_t>(want);
    std::vector<std::pair<std::int32_t, std::string>> rows;
    for (std::uint32_t row = 0; row < want; ++row)
      rows.push_back({buffer->columns.c.env_id[row],
                      test::row_bytes(spec_, options_.table(), buffer->columns.c, row)});
    store_.release(buffer);
    return rows;
  }

 private:
  Doorbell& bell(int side) { return *reinterpret_cast<Doorbell*>(arena_->at(at_.bell[side])); }

  void ring_bell(int side) {
    bell(side).rung.fetch_add(1);
    futex_wake(bell(side).rung, 1, true);
  }

  bool child_ended() {
    if (waitpid(child_, nullptr, WNOHANG) != child_) return false;
    child_ = -1;
    return true;
  }

  // Never comes back: the tests that follow are the parent's.
  [[noreturn]] void serve_in_child() {
    alarm(200);  // not inherited, and nobody else would end a child that hangs
    try {
      const auto mapped = Arena::attach(arena_->descriptor(), arena_->reserved());
      if (mapped->at(0) == arena_->at(0)) _exit(10);
      Server(mapped, at_, options_, 1).run();
    } catch (const std::exception& error) {
      std::cerr << "in the child: " << error.what() << "\n";
      _exit(11);
    }
    _exit(test::failed_checks == 0 ? 0 : 12);
  }

  const DriverOptions options_;
  const EnvSpec spec_;
  const std::shared_ptr<Arena> arena_;
  ActionTable table_;
  BufferStore store_;
  Offsets at_{};
  std::vector<ReadyQueue> queue_;
  std::optional<BatchRing> ring_;
  std::vector<Buffer*> buffers_;
  std::uint32_t head_ = 0, opened_ = 0;
  std::int32_t in_flight_ = 0;
  pid_t child_ = -1;
  std::optional<Server> own_half_;
};

// The order that env `id` is given as its n-th one: faults and ends among them.
std::int64_t order_for(std::int32_t id, int n) {
  const int x = id * 31 + n * 17;
  if (x % 23 == 0) return (x / 23) % test::kOrders;
  return x % 11 == 0 ? test::kTerminate : test::kGoOn;
}

using History = std::vector<std::vector<std::string>>;  // by env

// Sends every env its next order as soon as the one before came back, `rounds` to each.
template <class Send, class Recv>
History play(int rounds, Send send, Recv recv) {
  History history(kEnvs);
  Ids ready(kEnvs);
  std::iota(ready.begin(), ready.end(), 0);
  std::int32_t in_flight = 0;
  while (true) {
    std::vector<std::int64_t> orders;
    std::erase_if(ready, [&](std::int32_t env) { return history[static_cast<std::size_t>(env)].size() >= static_cast<std::size_t>(rounds); });
    for (const std::int32_t env : ready)
      orders.push_back(order_for(env, static_cast<int>(history[static_cast<std::size_t>(env)].size())));
    if (!ready.empty()) send(ready, orders);
    in_flight += static_cast<std::int32_t>(ready.size());
    if (in_flight == 0) return history;
    ready.clear();
    for (auto& [env, row] : recv()) {
      history[static_cast<std::size_t>(env)].push_back(std::move(row));
      ready.push_back(env);
    }
    in_flight -= static_cast<std::int32_t>(ready.size());
  }
}

History play_in_pool(const DriverOptions& options, int rounds) {
  Driver driver(options);
  return play(
      rounds,
      [&](const Ids& envs, const std::vector<std::int64_t>& orders) {
        for (std::size_t i = 0; i < envs.size(); ++i) driver.write(envs[i], orders[i]);
        driver.pool.send(envs, false, false);
      },
      [&] {
        const Batch batch = driver.recv();
        std::vector<std::pair<std::int32_t, std::string>> rows;
        for (std::int32_t row = 0; row < batch.rows; ++row)
          rows.push_back({batch.buffer->columns.c.env_id[row], driver.row(batch, row)});
        driver.drop(batch);
        return rows;
      });
}

History play_across_processes(const DriverOptions& options, int rounds) {
  Caller caller(options);
  return play(
      rounds, [&](const Ids& envs, const std::vector<std::int64_t>& orders) { caller.send(envs, orders); },
      [&] { return caller.recv(); });
}

void compare(const DriverOptions& options, int rounds) {
  const History expected = play_in_pool(options, rounds), got = play_across_processes(options, rounds);
  for (std::size_t env = 0; env < kEnvs; ++env) {
    CHECK(got[env].size() == static_cast<std::size_t>(rounds));
    CHECK((got[env] == expected[env]) == true);
  }
}

constexpr int kRounds = test::kSanitized ? 300 : 3000;

TEST(two_processes_fill_async_batches) {
  for (const std::int32_t batch_size : {1, 5, 7})
    for (const auto mode : {SM_NEXT_STEP, SM_SAME_STEP}) {
      DriverOptions options;
      options.num_envs = kEnvs;
      options.batch_size = batch_size;
      options.num_threads = 0;
      options.work = 50;
      options.autoreset = mode;
      options.max_episode_steps = 40;
      options.keep_last_observation = batch_size == 5;
      compare(options, kRounds);
    }
}

TEST(two_processes_fill_batches_of_all_envs) {
  DriverOptions options;
  options.num_envs = options.batch_size = kEnvs;
  options.num_threads = 0;
  options.work = 50;
  compare(options, kRounds);
}

TEST(a_descriptor_is_all_a_process_needs) {
  const auto arena = Arena::create(Arena::Kind::kShared);
  const std::size_t offset = arena->grow(64, 64);
  const pid_t child = fork();
  if (child == 0) {
    *reinterpret_cast<std::uint64_t*>(Arena::attach(arena->descriptor(), arena->reserved())->at(offset)) = 77;
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  CHECK(status == 0);
  CHECK(*reinterpret_cast<std::uint64_t*>(arena->at(offset)) == 77u);
}

}  // namespace stepmill::shared_arena_test
