#include "core/process/outbox.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "tests/check.h"

namespace stepmill::outbox_test {

// A descriptor that ends with its scope.
struct File {
  explicit File(int descriptor) : number(descriptor) {}
  ~File() { ::close(number); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  const int number;
};

struct Pair {
  File file{Outbox::create()};
  Outbox worker{file.number, true}, pool{file.number, false};

  void write(Outbox::Block& block, std::string_view text) {
    std::memcpy(worker.reserve(block, text.size()), text.data(), text.size());
  }
  std::string read(const Outbox::Block& block, std::size_t bytes) const {
    const auto found = pool.read(block.offset, bytes);
    return {reinterpret_cast<const char*>(found.data()), found.size()};
  }
};

std::string text_of(std::size_t bytes, char first) {
  std::string text(bytes, ' ');
  for (std::size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(first + i % 23);
  return text;
}

TEST(the_pool_reads_what_the_worker_wrote) {
  Pair p;
  Outbox::Block a, b;
  p.write(a, "an info");
  p.write(b, "another");
  CHECK(p.read(a, 7) == "an info");
  CHECK(p.read(b, 7) == "another");
  CHECK(a.offset != 0u);
}

TEST(a_block_stays_where_it_is_while_it_fits) {
  Pair p;
  Outbox::Block block;
  p.write(block, text_of(100, 'a'));
  const std::uint64_t offset = block.offset, capacity = block.capacity;
  CHECK(capacity >= 100u);
  for (std::size_t bytes = 0; bytes <= capacity; bytes += 10) {
    p.write(block, text_of(bytes, 'b'));
    CHECK(block.offset == offset);
    CHECK(block.capacity == capacity);
    CHECK(p.read(block, bytes) == text_of(bytes, 'b'));
  }
}

TEST(a_block_that_grows_harms_no_other) {
  Pair p;
  constexpr std::size_t kBlocks = 8;
  Outbox::Block blocks[kBlocks];
  std::size_t sizes[kBlocks] = {};
  const auto text = [&](std::size_t i) { return text_of(sizes[i], static_cast<char>('a' + i)); };
  for (std::size_t round = 0; round < 48; ++round) {
    const std::size_t grown = round % kBlocks;
    sizes[grown] = 1 + round * round * 600;  // from small ones to those that give their memory back
    p.write(blocks[grown], text(grown));
    if (round % 11 != 0 && round != 47) continue;
    for (std::size_t i = 0; i < kBlocks; ++i) CHECK((p.read(blocks[i], sizes[i]) == text(i)) == true);
  }
}

TEST(outgrown_blocks_are_used_again) {
  Pair p;
  Outbox::Block small[64], large[64];
  for (auto& block : small) p.write(block, text_of(200, 'a'));
  for (auto& block : large) p.write(block, text_of(200, 'a'));
  for (auto& block : large) p.write(block, text_of(5'000, 'b'));
  const std::size_t before = p.pool.memory();
  Outbox::Block more[64];  // find room where `large` were
  for (auto& block : more) p.write(block, text_of(200, 'c'));
  CHECK(p.pool.memory() == before);
  for (auto& block : more) {
    CHECK(p.read(block, 200) == text_of(200, 'c'));
    for (const auto& other : small) CHECK(block.offset != other.offset);
  }
  for (const auto& block : small) CHECK(p.read(block, 200) == text_of(200, 'a'));
}

TEST(large_blocks_give_their_memory_back) {
  constexpr std::size_t kMiB = 1 << 20;
  Pair p;
  Outbox::Block block;
  for (std::size_t size = 2; size <= 6; ++size) {
    p.write(block, text_of(size * kMiB, 'x'));
    CHECK((p.read(block, size * kMiB) == text_of(size * kMiB, 'x')) == true);
    CHECK(block.capacity <= size * kMiB * 3 / 2 + 4096);
    CHECK(p.pool.memory() >= size * kMiB);
    CHECK(p.pool.memory() <= block.capacity + kMiB);
  }
}

TEST(a_block_that_grows_a_little_each_time_seldom_moves) {
  Pair p;
  Outbox::Block block;
  int moves = 0;
  for (std::size_t size = 1'000'000; size < 4'000'000; size += 10'000) {
    const std::uint64_t before = block.offset;
    p.worker.reserve(block, size);
    moves += block.offset != before;
  }
  CHECK(moves <= 6);
}

TEST(memory_counts_what_is_used_not_what_is_reserved) {
  Pair p;
  CHECK(p.pool.memory() <= 4096u);
  Outbox::Block block;
  p.write(block, text_of(100'000, 'a'));
  CHECK(p.pool.memory() >= 100'000u);
  CHECK(p.pool.memory() <= 300'000u);
}

// The numbers come from a process that may have gone mad.
TEST(numbers_that_lie_outside_read_as_nothing) {
  Pair p;
  Outbox::Block block;
  p.write(block, "text");
  const std::uint64_t most = ~std::uint64_t{0};
  CHECK(p.pool.read(0, 4).empty());  // offset 0 means none
  CHECK(p.pool.read(most, 4).empty());
  CHECK(p.pool.read(most - 2, 4).empty());
  CHECK(p.pool.read(block.offset, most).empty());
  CHECK(p.pool.read(block.offset, most - block.offset + 1).empty());
  CHECK(p.pool.read(std::uint64_t{1} << 60, 4).empty());
  CHECK(p.pool.read(block.offset, std::uint64_t{1} << 60).empty());
  CHECK(p.pool.read(block.offset, 0).empty());
  CHECK(p.pool.read(block.offset, 4).size() == 4u);
}

TEST(without_room_a_block_stays_as_it_was) {
  Pair p;
  Outbox::Block block;
  p.write(block, "still here");
  const Outbox::Block before = block;
  for (const std::uint64_t bytes : {std::uint64_t{1} << 50, ~std::uint64_t{0}, ~std::uint64_t{0} - 4096})
    CHECK_THROWS(p.worker.reserve(block, bytes), std::bad_alloc);
  CHECK(block.offset == before.offset);
  CHECK(block.capacity == before.capacity);
  CHECK(p.read(block, 10) == "still here");
  p.write(block, text_of(1'000, 'a'));
  CHECK(p.read(block, 1'000) == text_of(1'000, 'a'));
}

// What a worker says of its size costs the pool no memory: only what was written is read.
TEST(a_hole_reads_as_nothing) {
  Pair p;
  Outbox::Block small, large;
  p.write(small, "text");
  CHECK(p.pool.read(small.offset, 1u << 30).empty());
  CHECK(p.pool.read(std::uint64_t{1} << 30, 1u << 20).empty());
  const std::string text = text_of(3'000'000, 'a');
  p.write(large, text);
  CHECK((p.read(large, text.size()) == text) == true);
  CHECK(p.pool.read(large.offset, 1u << 30).empty());
  CHECK(p.pool.memory() < 4'000'000u);
}

// An env may close any descriptor and open its own file under the same number.
TEST(a_worker_touches_no_file_of_its_envs) {
  const int made = Outbox::create();
  Outbox worker(made, true);
  const Outbox pool(made, false);
  const int numbers = 64;
  const File mine(memfd_create("a user's file", MFD_CLOEXEC));
  const std::string text = text_of(4'000'000, 'm');
  CHECK(pwrite(mine.number, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size()));
  std::vector<int> reused;  // every number there is, but for those of the pool's side
  for (int number = 3; number < numbers; ++number)
    if (fcntl(number, F_GETFD) < 0 && dup2(mine.number, number) == number) reused.push_back(number);
  CHECK(dup2(mine.number, made) == made);
  Outbox::Block block;
  for (std::size_t size = 1'200'000; size < 12'000'000; size *= 2) {
    const std::string note = text_of(size, 'n');
    std::memcpy(worker.reserve(block, size), note.data(), size);
  }
  CHECK(pool.memory() < 2 * block.capacity);
  std::string after(text.size(), ' ');
  CHECK(pread(mine.number, after.data(), after.size(), 0) == static_cast<ssize_t>(after.size()));
  CHECK((after == text) == true);
  CHECK(lseek(mine.number, 0, SEEK_END) == static_cast<off_t>(text.size()));
  for (const int number : reused) ::close(number);
  ::close(made);
}

// Pages that the pool is about to read cannot be taken away: that would be a SIGBUS of the pool.
TEST(nobody_can_shrink_it) {
  const File file(Outbox::create());
  CHECK(ftruncate(file.number, 0) == -1);
  CHECK(ftruncate(file.number, 1 << 20) == -1);
}

TEST(what_is_no_outbox_is_refused) {
  CHECK_THROWS(Outbox(-1, false), std::system_error);
  const File empty(memfd_create("not an outbox", MFD_CLOEXEC));
  CHECK_THROWS(Outbox(empty.number, false), std::system_error);
}

int open_descriptors() {
  int count = 0;
  for (int number = 0; number < 1024; ++number) count += fcntl(number, F_GETFD) >= 0;
  return count;
}

TEST(nothing_is_left_behind) {
  const int before = open_descriptors();
  {
    Pair p;
    Outbox::Block block;
    p.write(block, "text");
    CHECK(open_descriptors() == before + 2);  // the worker has none
  }
  CHECK(open_descriptors() == before);
}

// The sanitizers need addresses themselves.
// So many bytes of addresses beyond what the process has now, until the end of the scope.
class FewAddresses {
 public:
  explicit FewAddresses(std::size_t free) {
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    getrlimit(RLIMIT_AS, &usual_);
    rlimit tight = usual_;
    tight.rlim_cur = pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE)) + free;
    setrlimit(RLIMIT_AS, &tight);
  }
  ~FewAddresses() { setrlimit(RLIMIT_AS, &usual_); }
  FewAddresses(const FewAddresses&) = delete;
  FewAddresses& operator=(const FewAddresses&) = delete;

 private:
  rlimit usual_{};
};

TEST(with_few_addresses_it_is_smaller) {
  if (test::kSanitized) return;
  const FewAddresses few(std::size_t{7} << 28);
  Pair p;
  Outbox::Block block;
  p.write(block, text_of(1'000'000, 'a'));
  CHECK((p.read(block, 1'000'000) == text_of(1'000'000, 'a')) == true);
  CHECK_THROWS(p.worker.reserve(block, std::uint64_t{2} << 30), std::bad_alloc);
  CHECK(p.pool.read(std::uint64_t{2} << 30, 4).empty());
}

TEST(with_few_addresses_there_is_room_for_those_of_other_workers) {
  if (test::kSanitized) return;
  const FewAddresses few(std::size_t{400} << 20);
  std::vector<std::unique_ptr<File>> files;
  std::vector<std::unique_ptr<Outbox>> outboxes;  // as a pool of four workers maps them
  for (int worker = 0; worker < 4; ++worker) {
    files.push_back(std::make_unique<File>(Outbox::create()));
    outboxes.push_back(std::make_unique<Outbox>(files.back()->number, false));
  }
}

}  // namespace stepmill::outbox_test
