#include "core/memory/batch_layout.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <new>
#include <utility>

#include "tests/check.h"
#include "tests/obedient_env.h"

namespace stepmill::batch_layout_test {

// Every column as (first byte, bytes), from what `fill` gave.
std::vector<std::pair<std::byte*, std::int64_t>> columns_of(const Columns& columns, const EnvSpec& spec,
                                                            std::int64_t rows, std::int64_t reward_bytes) {
  std::vector<std::pair<std::byte*, std::int64_t>> out;
  const auto add = [&](void* at, std::int64_t row) { out.push_back({static_cast<std::byte*>(at), row * rows}); };
  const sm_columns& c = columns.c;
  const std::int64_t players = spec.max_num_players;
  add(c.terminated, 1);
  add(c.truncated, 1);
  add(c.ended, 1);
  add(c.env_id, 4);
  add(c.elapsed_step, 4);
  add(c.episode_length, 4);
  add(c.reward, reward_bytes * players);
  add(c.episode_return, 8);
  if (c.players) add(c.players, players);
  for (std::size_t i = 0; i < spec.observation.size(); ++i) {
    add(c.observation[i], spec.observation[i].row_bytes() * players);
    if (c.final_observation) add(c.final_observation[i], spec.observation[i].row_bytes() * players);
  }
  for (std::size_t i = 0; i < spec.info.size(); ++i) {
    add(c.info[i], spec.info[i].row_bytes());
    if (c.final_info) add(c.final_info[i], spec.info[i].row_bytes());
  }
  for (std::uint8_t* present : {c.info_present, c.final_info_present})
    if (present) add(present, std::ssize(spec.info));
  return out;
}

TEST(columns_lie_one_after_the_other_inside_the_buffer) {
  for (const std::int32_t players : {1, 3})
    for (const bool same_step : {false, true})
      for (const bool float32 : {false, true}) {
        EnvSpec spec = test::obedient_spec();
        spec.max_num_players = players;
        const BatchLayout layout(spec, 17, same_step, float32);
        std::vector<std::byte> memory(layout.bytes() + kCacheLine);
        std::byte* buffer = memory.data() + kCacheLine - reinterpret_cast<std::uintptr_t>(memory.data()) % kCacheLine;
        Columns columns;
        layout.fill(columns, buffer);
        auto all = columns_of(columns, spec, 17, float32 ? 4 : 8);
        CHECK(all.size() == (8 + (players > 1) + 4 * (same_step ? 2 : 1)));
        std::sort(all.begin(), all.end());
        const std::byte* end = buffer + sizeof(BatchHeader);
        for (const auto& [at, bytes] : all) {
          CHECK(reinterpret_cast<std::uintptr_t>(at) % kCacheLine == 0);
          CHECK(at >= end);
          end = at + bytes;
        }
        CHECK(end <= buffer + layout.bytes());
      }
}

TEST(optional_columns_are_null_where_they_are_not_asked_for) {
  const EnvSpec spec = test::obedient_spec();
  const BatchLayout layout(spec, 2, false, false);
  std::vector<std::byte> memory(layout.bytes());
  Columns columns;
  layout.fill(columns, memory.data());
  CHECK(columns.c.final_observation == nullptr);
  CHECK(columns.c.final_info == nullptr);
  CHECK(columns.c.final_info_present == nullptr);
  CHECK(columns.c.players == nullptr);
  layout.fill(columns, memory.data());  // filling again names the columns again, and adds none
  CHECK(columns.observation.size() == 2);
}

TEST(two_processes_find_the_same_offsets) {
  const EnvSpec spec = test::obedient_spec();
  const BatchLayout one(spec, 5, true, false), other(spec, 5, true, false);
  std::vector<std::byte> here(one.bytes()), there(other.bytes());
  CHECK(one.bytes() == other.bytes());
  Columns a, b;
  one.fill(a, here.data());
  other.fill(b, there.data());
  CHECK(reinterpret_cast<std::byte*>(a.c.env_id) - here.data() ==
        reinterpret_cast<std::byte*>(b.c.env_id) - there.data());
  CHECK(static_cast<std::byte*>(a.c.final_info[0]) - here.data() ==
        static_cast<std::byte*>(b.c.final_info[0]) - there.data());
}

TEST(a_copied_row_brings_the_flags_of_its_infos) {
  EnvSpec spec = test::obedient_spec();
  spec.info.resize(3, spec.info[0]);
  const BatchLayout one(spec, 1, true, false), many(spec, 4, true, false);
  std::vector<std::byte> single(one.bytes()), batch(many.bytes());
  Columns from, to;
  one.fill(from, single.data());
  many.fill(to, batch.data());
  for (const int leaf : {0, 2}) from.c.info_present[leaf] = 1;
  from.c.final_info_present[1] = 1;
  one.copy_row(single.data(), 0, many, batch.data(), 2);
  const std::uint8_t expected[2][12] = {{0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0}, {0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0}};
  CHECK(std::equal(expected[0], expected[0] + 12, to.c.info_present));
  CHECK(std::equal(expected[1], expected[1] + 12, to.c.final_info_present));
}

TEST(without_infos_there_are_no_flags_of_them) {
  EnvSpec spec = test::obedient_spec();
  const std::size_t with = BatchLayout(spec, 4, true, false).bytes();
  spec.info.clear();
  const BatchLayout layout(spec, 4, true, false);
  CHECK(layout.bytes() == with - 4 * kCacheLine);
  std::vector<std::byte> memory(layout.bytes());
  Columns columns;
  layout.fill(columns, memory.data());
  CHECK(columns.c.info_present == nullptr);
  CHECK(columns.c.final_info_present == nullptr);
}

TEST(a_batch_too_large_for_any_address_is_an_error) {
  EnvSpec spec = test::obedient_spec();
  spec.observation[0].shape = {std::int64_t{1} << 40};
  const std::int64_t rows = std::numeric_limits<std::int32_t>::max();
  CHECK_THROWS(BatchLayout(spec, rows, false, false), std::bad_alloc);
}

}  // namespace stepmill::batch_layout_test
