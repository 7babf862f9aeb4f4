#include "core/counters/pool_counters.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/counters/counter_reader.h"
#include "tests/check.h"
#include "tests/pool_driver.h"

namespace stepmill::pool_counters_test {

const PoolLabel kLabel{"CartPole-v1", "thread", "pool"};

std::unique_ptr<PoolCounters> shown(std::int32_t workers = 2, const PoolLabel& label = kLabel) {
  auto counters = std::make_unique<PoolCounters>(label, 8, 4, workers);
  counters->publish();
  return counters;
}

// The descriptors of this process that are counter files.
std::vector<int> files() {
  std::vector<int> out;
  DIR* const folder = opendir("/proc/self/fd");
  while (const dirent* entry = readdir(folder)) {
    char target[256] = "";
    const std::string path = std::string("/proc/self/fd/") + entry->d_name;
    if (readlink(path.c_str(), target, sizeof target - 1) > 0 &&
        std::string(target).find(CounterFile::kName) != std::string::npos)
      out.push_back(std::atoi(entry->d_name));
  }
  closedir(folder);
  return out;
}

SeenPools look() { return files().empty() ? SeenPools{} : read_pools(files()[0]); }

std::uint64_t word(const Words& words, std::size_t offset) { return words[offset / sizeof(Word)]; }

std::string text(const Words& words, std::size_t offset, std::size_t bytes) {
  const char* from = reinterpret_cast<const char*>(words.data()) + offset;
  return {from, strnlen(from, bytes)};
}

// What a child returns that does this after a fork.
template <class F>
int in_child(F body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// ---- one file ----------------------------------------------------------------------------------

TEST(a_process_has_one_file_while_it_has_pools) {
  CHECK(files().size() == 0u);
  auto first = shown(), second = shown(0);
  CHECK(files().size() == 1u);
  CHECK((fcntl(files()[0], F_GETFD) & FD_CLOEXEC) != 0);
  CHECK(look().pools.size() == 2u);
  first.reset();
  CHECK(look().pools.size() == 1u);
  second.reset();
  CHECK(files().size() == 0u);
}

TEST(a_pool_shows_what_it_is) {
  auto counters = shown(3, {"name \xc3\xa4", "process", "manager"});
  const PoolWords pool = look().pools[0];
  CHECK(text(pool.pool, offsetof(PoolRecord, name), sizeof(PoolRecord::name)) == "name \xc3\xa4");
  CHECK(text(pool.pool, offsetof(PoolRecord, backend), sizeof(PoolRecord::backend)) == "process");
  CHECK(text(pool.pool, offsetof(PoolRecord, user), sizeof(PoolRecord::user)) == "manager");
  CHECK(word(pool.pool, offsetof(PoolRecord, num_envs)) == 8u);
  CHECK(pool.workers.size() == 3u);
  CHECK(word(look().header, offsetof(FileHeader, pid)) == static_cast<std::uint64_t>(getpid()));
}

TEST(a_name_is_cut_between_two_characters) {
  auto counters = shown(0, {"x" + std::string(47, ' ') + std::string("\xc3\xa4") + std::string(200, 'y'), "", ""});
  auto other = shown(0, {std::string(95, 'x') + "\xc3\xa4", "", ""});
  const SeenPools seen = look();
  CHECK(text(seen.pools[0].pool, offsetof(PoolRecord, name), sizeof(PoolRecord::name)).size() == 96u);
  CHECK(text(seen.pools[1].pool, offsetof(PoolRecord, name), sizeof(PoolRecord::name)) == std::string(95, 'x'));
}

TEST(a_copy_shows_what_a_reader_sees_and_after_the_end_no_workers) {
  const auto counters = shown();
  set(counters->pool().steps, 7);
  set(counters->worker(1).busy_ns, 3);
  const PoolWords copy = counters->copy(), seen = look().pools[0];
  CHECK(copy.pool == seen.pool);
  CHECK(copy.caller == seen.caller);
  CHECK(copy.workers == seen.workers);
  counters->withdraw();
  CHECK(word(counters->copy().pool, offsetof(PoolRecord, steps)) == 7);
  CHECK(counters->copy().workers.empty());
}

TEST(a_pool_that_is_not_published_is_not_seen) {
  const PoolCounters counters(kLabel, 1, 1, 0);
  CHECK(files().size() == 1u);
  CHECK(look().pools.size() == 0u);
}

TEST(places_are_used_again) {
  auto keeper = shown();
  const std::uint64_t before = word(look().header, offsetof(FileHeader, bytes));
  std::uint64_t largest = 0;
  for (int i = 0; i < 2'000; ++i) {
    const auto one = shown(2), two = shown(40);
    largest = std::max(largest, word(look().header, offsetof(FileHeader, bytes)));
  }
  CHECK(largest <= before + 16 * 1024);
}

TEST(what_does_not_fit_is_not_shown_and_counts_all_the_same) {
  std::vector<std::unique_ptr<PoolCounters>> all;
  for (std::size_t i = 0; i < kMostPools + 5; ++i) all.push_back(shown(1));
  CHECK(look().pools.size() == kMostPools);
  CHECK(word(look().header, offsetof(FileHeader, hidden)) == 5u);
  add_to(all.back()->pool().steps, 3);
  add_to(all.back()->worker(0).steps, 4);
  CHECK(get(all.back()->pool().steps) == 3u);
  const auto huge = shown(1 << 20);
  add_to(huge->worker((1 << 20) - 1).steps, 1);
  CHECK(look().pools.size() == kMostPools);
}

TEST(what_was_counted_stays_after_the_pool) {
  auto counters = shown();
  add_to(counters->pool().steps, 7);
  counters->withdraw();
  CHECK(files().size() == 0u);
  add_to(counters->pool().steps, 1);
  CHECK(get(counters->pool().steps) == 8u);
}

// ---- refusals ----------------------------------------------------------------------------------

TEST(without_descriptors_a_pool_counts_and_is_not_shown) {
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit none{3, before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &none);
  auto counters = shown(2);
  setrlimit(RLIMIT_NOFILE, &before);
  CHECK(files().size() == 0u);
  add_work(counters->worker(1), 5, 1);
  const CallTime call(*counters);
  CHECK(get(counters->worker(1).steps) == 1u);
}

// As programs do that become daemons.
TEST(a_file_that_got_the_number_of_ours_is_left_alone) {
  auto counters = shown();
  const int number = files()[0];
  const int other = memfd_create("other", MFD_CLOEXEC);
  dup2(other, number);
  std::vector<std::unique_ptr<PoolCounters>> more;
  for (int i = 0; i < 100; ++i) more.push_back(shown(8));  // more than the file has room for
  CHECK(lseek(number, 0, SEEK_END) == 0);
  more.clear();
  counters.reset();
  CHECK(fcntl(number, F_GETFD) >= 0);
  close(number);
  close(other);
}

// ---- forks -------------------------------------------------------------------------------------

TEST(a_child_neither_shows_nor_changes_the_parents_pools) {
  auto counters = shown();
  const int seen = in_child([&] {
    add_to(counters->pool().steps, 100);
    const bool hidden = files().empty();
    counters.reset();
    const auto own = shown(0);
    const SeenPools its = look();
    return hidden && its.pools.size() == 1 &&
                   word(its.header, offsetof(FileHeader, pid)) == static_cast<std::uint64_t>(getpid())
               ? 42
               : 1;
  });
  CHECK(seen == 42);
  CHECK(look().pools.size() == 1u);
  CHECK(word(look().pools[0].pool, offsetof(PoolRecord, steps)) == 0u);
}

TEST(a_child_of_a_process_without_pools_has_none) {
  { const auto before = shown(); }
  CHECK(in_child([] { return files().empty() ? 42 : 1; }) == 42);
}

TEST(forks_beside_threads_that_make_pools) {
  std::atomic<bool> stop{false};
  std::thread maker([&] {
    while (!stop) const auto one = shown(1);
  });
  for (int i = 0; i < 20; ++i)
    CHECK(in_child([] {
            const auto own = shown(0);
            return look().pools.size() == 1 ? 42 : 1;
          }) == 42);
  stop = true;
  maker.join();
}

// ---- readers -----------------------------------------------------------------------------------

// Beside one that makes and ends pools of two kinds in the same places.
TEST(a_reader_never_mixes_two_pools) {
  const auto keeper = shown(0);
  const int file = files()[0];
  std::atomic<bool> stop{false};
  std::thread maker([&] {
    while (!stop) {
      PoolCounters first({std::string(90, 'a'), "a", "a"}, 1, 1, 0);
      set(first.pool().steps, 1);
      first.publish();
      first.withdraw();
      PoolCounters second({std::string(90, 'b'), "b", "b"}, 2, 2, 0);
      set(second.pool().steps, 2);
      second.publish();
    }
  });
  const int looks = test::kSanitized ? 2'000 : 20'000;
  for (int i = 0; i < looks; ++i)
    for (const PoolWords& pool : read_pools(file).pools) {
      const std::uint64_t envs = word(pool.pool, offsetof(PoolRecord, num_envs));
      if (envs == 8) continue;
      CHECK(word(pool.pool, offsetof(PoolRecord, steps)) == envs);
      CHECK(text(pool.pool, offsetof(PoolRecord, name), sizeof(PoolRecord::name)) ==
            std::string(90, envs == 1 ? 'a' : 'b'));
    }
  stop = true;
  maker.join();
}

// A file as a hostile process of the same user could make it.
class Forgery {
 public:
  explicit Forgery(std::size_t bytes, int seals = F_SEAL_SHRINK)
      : descriptor_(memfd_create("forgery", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
    CHECK(ftruncate(descriptor_, static_cast<off_t>(bytes)) == 0);
    CHECK(fcntl(descriptor_, F_ADD_SEALS, seals) == 0);
    base_ = static_cast<std::byte*>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_, 0));
    bytes_ = bytes;
    if (bytes < sizeof(FileHeader)) return;
    set(header().magic, kMagic);
    set(header().layout, kLayout);
    set(header().bytes, bytes);
  }
  ~Forgery() {
    munmap(base_, bytes_);
    close(descriptor_);
  }
  FileHeader& header() { return *reinterpret_cast<FileHeader*>(base_); }
  PoolRecord& record() { return *reinterpret_cast<PoolRecord*>(base_ + sizeof(FileHeader)); }
  std::string refusal() {
    try {
      read_pools(descriptor_);
      return "";
    } catch (const UnreadableCounters& error) {
      return error.what();
    }
  }
  std::size_t pools() { return read_pools(descriptor_).pools.size(); }
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
  std::byte* base_;
  std::size_t bytes_;
};

TEST(a_file_that_is_not_ours_is_refused) {
  Forgery good(8192), unsealed(8192, 0), tiny(8), other(8192), newer(8192), longer(8192), shorter(8192);
  set(other.header().magic, 1);
  set(newer.header().layout, kLayout + 1);
  set(longer.header().bytes, 16384);
  set(shorter.header().bytes, 8);
  CHECK(good.refusal() == "");
  CHECK(unsealed.refusal() == "what it shows is not memory of stepmill");
  CHECK(other.refusal() == "what it shows is not memory of stepmill");
  CHECK(newer.refusal().find("another version of stepmill") != std::string::npos);
  for (Forgery* broken : {&tiny, &longer, &shorter}) CHECK(broken->refusal() == "what it shows is cut off or broken");
}

TEST(places_and_counts_that_lead_elsewhere_are_not_followed) {
  Forgery file(8192);
  set(file.record().serial, 1);
  for (const std::uint64_t place : {std::uint64_t{8192}, std::uint64_t{8192 - 64}, std::uint64_t{4097}, std::uint64_t{64},
                                    std::uint64_t{1} << 40, ~std::uint64_t{0}, ~std::uint64_t{63}}) {
    set(file.header().places[0], place);
    CHECK(file.pools() == 0u);
  }
  set(file.header().places[0], sizeof(FileHeader));
  CHECK(file.pools() == 1u);
  for (const std::uint64_t workers : {std::uint64_t{29}, std::uint64_t{1} << 60, ~std::uint64_t{0}}) {
    set(file.record().num_workers, workers);
    CHECK(file.pools() == 0u);
  }
  set(file.record().num_workers, 28);
  CHECK(file.pools() == 1u);
  for (Word& place : file.header().places) set(place, sizeof(FileHeader));
  CHECK(file.refusal() == "what it shows is cut off or broken");
}

TEST(a_part_outside_of_a_file_is_refused) {
  Forgery file(8192);
  CHECK(read_words(file.descriptor(), 0, 2)[0] == kMagic);
  CHECK(read_words(file.descriptor(), 8192, 0).size() == 0u);
  const auto refused = [&](std::uint64_t offset, std::uint64_t count) {
    try {
      read_words(file.descriptor(), offset, count);
      return false;
    } catch (const UnreadableCounters&) {
      return true;
    }
  };
  CHECK(refused(8184, 2));
  CHECK(refused(4, 1));
  CHECK(refused(1 << 20, 1));
  CHECK(refused(0, ~std::uint64_t{0} / 8 + 2));
}

// ---- time --------------------------------------------------------------------------------------

TEST(all_time_is_spent_in_one_state) {
  auto counters = shown();
  PoolRecord& r = counters->pool();
  {
    const CallTime call(*counters);
    CHECK((get(r.state) & 3) == static_cast<std::uint64_t>(CallerState::kInside));
    {
      WaitTime wait(*counters);
      CHECK((get(r.state) & 3) == static_cast<std::uint64_t>(CallerState::kInside));
      wait.begin(CallerState::kWaiting);
      wait.begin(CallerState::kWaiting);
      add_work(r.caller, 500, 1);
      CHECK((get(r.state) & 3) == static_cast<std::uint64_t>(CallerState::kWaiting));
    }
    add_work(r.caller, 20, 1);
    CHECK((get(r.state) & 3) == static_cast<std::uint64_t>(CallerState::kInside));
  }
  for (int i = 0; i < 9; ++i) {  // in most of them, the end of the wait is not timed
    const CallTime call(*counters);
    WaitTime wait(*counters);
    wait.begin(CallerState::kWaiting);
  }
  CHECK((get(r.state) & 3) == static_cast<std::uint64_t>(CallerState::kOutside));
  CHECK(get(r.calls) == 10u);
  CHECK(get(r.helped_waiting_ns) == 500u);
  std::uint64_t all = 0;
  for (const Word& one : r.ticks) all += get(one);
  CHECK(all == (get(r.state) >> 2) - get(r.made));
}

TEST(ticks_pass_as_seconds_do) {
  using Seconds = std::chrono::duration<double>;
  const auto before = Clock::now();
  const std::uint64_t first = read_ticks();
  const auto from = Clock::now();
  while (Clock::now() - from < std::chrono::milliseconds(20)) relax();
  const auto to = Clock::now();
  const std::uint64_t last = read_ticks();
  const auto after = Clock::now();
  const double passed = static_cast<double>(last - first) / ticks_per_second();
  CHECK(passed > Seconds(to - from).count() * 0.9);
  CHECK(passed < Seconds(after - before).count() * 1.1);
}

std::vector<std::pair<std::uint64_t, std::uint64_t>> slow_in(const WorkerRecord& record) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> out;
  for (const Word& one : record.slow)
    if (get(one)) out.emplace_back(get(one) & 0xffffff, get(one) >> 24);
  std::sort(out.begin(), out.end());
  return out;
}

TEST(the_slowest_steps_are_remembered_for_a_while) {
  using Slow = std::vector<std::pair<std::uint64_t, std::uint64_t>>;
  WorkerRecord record{};
  constexpr std::uint64_t kWindow = kSlowWindow * 1'000'000'000, kAt = 7 * kWindow;
  for (std::int32_t env = 1; env <= 6; ++env)
    add_slow_step(record, env, static_cast<std::uint64_t>(env) * 100'000, kAt);
  add_slow_step(record, 7, 10, kAt);        // too little to be slow
  add_slow_step(record, 5, 900'000, kAt);   // again, and slower
  add_slow_step(record, 5, 200'000, kAt);   // again, and faster
  CHECK((slow_in(record) == Slow{{3, 300'000}, {4, 400'000}, {5, 900'000}, {6, 600'000}}));
  add_slow_step(record, 0, 50'000, kAt + kWindow);
  CHECK(slow_in(record).size() == 5u);
  add_slow_step(record, 0, 60'000, kAt + 5 * kWindow);
  CHECK((slow_in(record) == Slow{{0, 60'000}}));
}

// ---- pools -------------------------------------------------------------------------------------

TEST(threads_and_the_caller_count_what_they_step) {
  test::DriverOptions options = test::sync_of(64, 2, 2'000);
  test::Driver driver(options);
  for (int i = 0; i < 50; ++i) {
    driver.send(test::all_of(64), test::kGoOn, true);
    driver.recv_and_drop();
  }
  // A thread counts a chunk after its rows are there.
  std::uint64_t steps = 0;
  for (const auto end = Clock::now() + std::chrono::seconds(20); steps != 50 * 64 && Clock::now() < end;) {
    const PoolWords seen = look().pools[0];
    steps = word(seen.caller, offsetof(WorkerRecord, steps));
    for (const Words& worker : seen.workers) steps += word(worker, offsetof(WorkerRecord, steps));
  }
  CHECK(steps == 50u * 64u);
}

}  // namespace stepmill::pool_counters_test
