#include "core/memory/arena.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <new>
#include <thread>
#include <vector>

#include "core/memory/wait.h"
#include "tests/check.h"

namespace stepmill::arena_test {

using Kind = Arena::Kind;

constexpr std::size_t kMegabyte = std::size_t{1} << 20;

bool all_zero(const std::byte* memory, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i)
    if (memory[i] != std::byte{0}) return false;
  return true;
}

std::int64_t backed_bytes(const Arena& arena) {
  struct stat status{};
  CHECK(fstat(arena.descriptor(), &status) == 0);
  return std::int64_t{status.st_blocks} * 512;
}

TEST(memory_is_zeroed_aligned_and_stays_where_it_is) {
  for (const Kind kind : {Kind::kPrivate, Kind::kShared}) {
    const auto arena = Arena::create(kind);
    CHECK(arena->shared() == (kind == Kind::kShared));
    const std::size_t first = arena->grow(10, 64);
    std::byte* const at = arena->at(first);
    std::memset(at, 7, 10);
    for (int i = 0; i < 20; ++i) {
      const std::size_t offset = arena->grow(kMegabyte + 3, 4096);
      CHECK(offset % 4096 == 0);
      CHECK(all_zero(arena->at(offset), kMegabyte + 3));
    }
    CHECK(arena->at(first) == at);
    CHECK(at[9] == std::byte{7});
    CHECK(arena->used() >= 20 * kMegabyte);
  }
}

TEST(exhaustion_is_an_error_and_changes_nothing) {
  for (const Kind kind : {Kind::kPrivate, Kind::kShared}) {
    const auto arena = Arena::create(kind);
    const std::size_t offset = arena->grow(100, 64);
    std::memset(arena->at(offset), 1, 100);
    const std::size_t used = arena->used();
    CHECK_THROWS(arena->grow(std::size_t{1} << 50, 64), std::bad_alloc);
    CHECK_THROWS(arena->grow(~std::size_t{0} - 8, 64), std::bad_alloc);  // the sum overflows
    CHECK(arena->used() == used);
    CHECK(arena->at(offset)[99] == std::byte{1});
    CHECK(arena->at(arena->grow(100, 64))[0] == std::byte{0});
  }
}

TEST(punched_pages_read_as_zeros_and_their_neighbours_stay) {
  for (const Kind kind : {Kind::kPrivate, Kind::kShared}) {
    const auto arena = Arena::create(kind);
    const std::size_t offset = arena->grow(kMegabyte, 4096);
    std::memset(arena->at(offset), 9, kMegabyte);
    arena->punch(offset + 1, kMegabyte - 2);  // the first and the last page are not whole
    CHECK(arena->at(offset)[0] == std::byte{9});
    CHECK(arena->at(offset)[kMegabyte - 1] == std::byte{9});
    CHECK(arena->at(offset)[kMegabyte / 2] == std::byte{0});
    arena->punch(offset, 10);  // no whole page: nothing happens
    CHECK(arena->at(offset)[0] == std::byte{9});
  }
}

// A hole that is written to without being backed first would be a SIGBUS where memory is short.
TEST(a_punched_range_of_shared_memory_can_be_backed_again) {
  const auto arena = Arena::create(Kind::kShared);
  const std::size_t offset = arena->grow(kMegabyte, 4096);
  const std::int64_t before = backed_bytes(*arena);
  arena->punch(offset, kMegabyte);
  CHECK(backed_bytes(*arena) <= before - static_cast<std::int64_t>(kMegabyte));
  arena->restore(offset, kMegabyte);
  CHECK(backed_bytes(*arena) == before);
}

TEST(an_attached_arena_is_the_same_memory_at_another_address) {
  const auto arena = Arena::create(Kind::kShared);
  const std::size_t offset = arena->grow(100, 64);
  const auto other = Arena::attach(arena->descriptor(), arena->reserved());
  CHECK(other->at(offset) != arena->at(offset));
  arena->at(offset)[5] = std::byte{42};
  CHECK(other->at(offset)[5] == std::byte{42});
  const std::size_t later = arena->grow(3 * kMegabyte, 64);
  other->at(later)[0] = std::byte{43};
  CHECK(arena->at(later)[0] == std::byte{43});
}

TEST(only_the_creator_of_an_arena_grows_it) {
  const auto arena = Arena::create(Kind::kShared);
  arena->grow(100, 64);
  const auto other = Arena::attach(arena->descriptor(), arena->reserved());
  CHECK_THROWS(other->grow(100, 64), std::bad_alloc);
}

// What `body` returns in a child process; 1 where it throws.
template <class F>
int exit_code_of(F body) {
  const pid_t child = fork();
  if (child == 0) {
    try {
      _exit(body());
    } catch (const std::exception& error) {
      std::cerr << error.what() << "\n";
      _exit(1);
    }
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// Under a limit (ulimit -v) a pool must not take the addresses that everything else lives from.
TEST(an_arena_leaves_addresses_to_others) {
  if (test::kSanitized) return;  // sanitizers reserve more than any limit
  const auto with_limit = [] {
    const rlimit limit{std::size_t{4} << 30, std::size_t{4} << 30};
    setrlimit(RLIMIT_AS, &limit);
    std::vector<std::shared_ptr<Arena>> arenas;
    for (int i = 0; i < 3; ++i) {
      arenas.push_back(Arena::create(i % 2 ? Kind::kShared : Kind::kPrivate));
      arenas.back()->grow(16 * kMegabyte, 64);
    }
    arenas.push_back(Arena::attach(arenas[1]->descriptor(), arenas[1]->reserved()));
    const std::vector<char> own(1024 * kMegabyte);
    return static_cast<int>(own[7]);
  };
  CHECK(exit_code_of(with_limit) == 0);
}

// Between the least that an arena takes and twice that, there is nothing to give back.
TEST(an_arena_takes_what_little_there_is) {
  if (test::kSanitized) return;
  for (const Kind kind : {Kind::kPrivate, Kind::kShared}) {
    const auto with_limit = [kind] {
      std::size_t pages = 0;
      std::ifstream("/proc/self/statm") >> pages;
      const std::size_t most = pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) + 96 * kMegabyte;
      const rlimit limit{most, most};
      setrlimit(RLIMIT_AS, &limit);
      const auto arena = Arena::create(kind);
      arena->at(arena->grow(kMegabyte, 64))[0] = std::byte{1};
      return arena->reserved() == 64 * kMegabyte ? 0 : 2;
    };
    CHECK(exit_code_of(with_limit) == 0);
  }
}

// Pages that the pool is about to touch cannot be taken away: that would be a SIGBUS of the pool.
TEST(nobody_can_shrink_a_shared_arena) {
  const auto arena = Arena::create(Kind::kShared);
  arena->grow(3 * kMegabyte, 64);
  CHECK(ftruncate(arena->descriptor(), 0) == -1);
  CHECK(ftruncate(arena->descriptor(), kMegabyte) == -1);
  CHECK(fcntl(arena->descriptor(), F_ADD_SEALS, F_SEAL_WRITE) == -1);
  const std::size_t later = arena->grow(3 * kMegabyte, 64);
  arena->at(later)[kMegabyte] = std::byte{1};
}

// Whoever has mapped it cannot make it take more memory than the pool has asked for.
TEST(memory_beyond_the_end_of_a_shared_arena_is_nobodys) {
  if (test::kSanitized) return;  // which would report the crash
  const auto arena = Arena::create(Kind::kShared);
  arena->grow(100, 64);
  const std::int64_t before = backed_bytes(*arena);
  const pid_t child = fork();
  if (child == 0) {
    const rlimit none{0, 0};
    setrlimit(RLIMIT_CORE, &none);
    Arena::attach(arena->descriptor(), arena->reserved())->at(512 * kMegabyte)[0] = std::byte{1};
    _exit(0);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status) == true);
  CHECK(backed_bytes(*arena) == before);
}

TEST(an_attached_arena_keeps_no_descriptor) {
  const auto arena = Arena::create(Kind::kShared);
  arena->grow(100, 64);
  CHECK(Arena::attach(arena->descriptor(), arena->reserved())->descriptor() == -1);
}

TEST(a_descriptor_that_is_none_is_refused) { CHECK_THROWS(Arena::attach(-1, kMegabyte), std::system_error); }

// A signal interrupts the system call that backs memory; that must not look like no memory.
TEST(growth_goes_on_after_signals) {
  static std::atomic<int> signals;
  struct sigaction before{}, action{};
  action.sa_handler = [](int) { signals += 1; };
  sigaction(SIGUSR1, &action, &before);
  std::atomic<bool> grown{false};
  std::thread signaller([&, target = pthread_self()] {
    while (!grown) {
      const int sent = signals;
      pthread_kill(target, SIGUSR1);
      while (!grown && signals == sent) relax();
    }
  });
  const auto arena = Arena::create(Kind::kShared);
  while (signals < 1) relax();
  for (int i = 0; i < 100; ++i) {
    arena->grow(4 * kMegabyte, 4096);
    arena->punch(0, arena->used());
  }
  grown = true;
  signaller.join();
  sigaction(SIGUSR1, &before, nullptr);
}

}  // namespace stepmill::arena_test
