#include "core/failed_row.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "core/action_table.h"
#include "core/memory/batch_layout.h"
#include "tests/check.h"

namespace stepmill::failed_row_test {

constexpr std::int32_t kRows = 3, kEnv = 5, kElapsed = 7;
constexpr std::uint8_t kOld = 0xab, kLast = 0x5c;

// A batch in which every byte has been used before, with two leaves of observation and two of info.
struct Batch {
  explicit Batch(std::int32_t players, bool float32, bool same_step = false) : players_(players), arena(Arena::create(Arena::Kind::kPrivate)) {
    spec.observation = {box<float>({2}, {-1}, {1}), box<std::uint8_t>({3}, {0}, {255})};
    spec.action = {discrete(2)};
    spec.info = {box<double>({}, {0}, {1}, "luck"), box<double>({}, {0}, {1}, "skill")};
    spec.max_num_players = players;
    TableOptions options;
    options.num_envs = kEnv + 1;
    options.reward_is_float32 = float32;
    table.emplace(*arena, spec, options);
    const BatchLayout layout(spec, kRows, same_step, float32);
    memory.assign(layout.bytes(), std::byte{kOld});
    layout.fill(columns, memory.data());
    reward_bytes = static_cast<std::size_t>(players) * (float32 ? sizeof(float) : sizeof(double));
  }

  // Whether all bytes of a row of a column are that one.
  static bool is_all(const void* column, std::size_t bytes, std::int64_t row, std::uint8_t value) {
    const auto* at = static_cast<const std::uint8_t*>(column) + static_cast<std::size_t>(row) * bytes;
    return std::all_of(at, at + bytes, [&](std::uint8_t byte) { return byte == value; });
  }
  std::size_t observation_bytes(std::size_t leaf) const {
    return static_cast<std::size_t>(spec.observation[leaf].row_bytes() * players_);
  }

  const std::int32_t players_;
  std::shared_ptr<Arena> arena;
  EnvSpec spec;
  std::optional<ActionTable> table;
  std::vector<std::byte> memory;
  Columns columns;
  std::size_t reward_bytes;
};

void check_row(std::int32_t players, bool float32, bool keeps_last) {
  Batch batch(players, float32);
  const std::vector<std::uint8_t> last(batch.observation_bytes(0) + batch.observation_bytes(1), kLast);
  if (players > 1) batch.table->action_players()[kEnv * players + 1] = 0;  // it has not acted
  write_failed_row(batch.table->shared(), batch.columns.c, 1, kEnv, kElapsed,
                   [&](int) { return keeps_last ? last.data() : nullptr; });
  const sm_columns& c = batch.columns.c;
  CHECK(c.env_id[1] == kEnv);
  CHECK(c.elapsed_step[1] == kElapsed);
  CHECK(c.terminated[1] == 0);
  CHECK(c.truncated[1] == 1);
  CHECK(c.ended[1] == 0);
  CHECK(c.episode_return[1] == 0.0);
  CHECK(c.episode_length[1] == 0);
  CHECK((c.players != nullptr) == (players > 1));
  if (c.players)
    for (std::int32_t player = 0; player < players; ++player)
      CHECK(c.players[players + player] == (player == 1 ? 0 : SM_HAS_ROW));
  CHECK(batch.is_all(c.reward, batch.reward_bytes, 1, 0));
  for (std::size_t leaf = 0; leaf < 2; ++leaf)
    CHECK(batch.is_all(c.observation[leaf], batch.observation_bytes(leaf), 1, keeps_last ? kLast : 0));
  CHECK(batch.is_all(c.info_present, 2, 1, 0));
  for (const std::int64_t other : {0, 2}) {  // the rows beside it
    CHECK(batch.is_all(c.env_id, sizeof(std::int32_t), other, kOld));
    CHECK(batch.is_all(c.truncated, 1, other, kOld));
    CHECK(batch.is_all(c.episode_return, sizeof(double), other, kOld));
    CHECK(batch.is_all(c.reward, batch.reward_bytes, other, kOld));
    for (std::size_t leaf = 0; leaf < 2; ++leaf)
      CHECK(batch.is_all(c.observation[leaf], batch.observation_bytes(leaf), other, kOld));
    CHECK(batch.is_all(c.info_present, 2, other, kOld));
  }
}

TEST(a_failed_row_is_written_whole_and_touches_no_other) {
  for (const std::int32_t players : {1, 3})
    for (const bool float32 : {false, true})
      for (const bool keeps_last : {false, true}) check_row(players, float32, keeps_last);
}

TEST(the_row_of_an_end_whose_reset_failed_has_the_infos_of_the_end) {
  Batch batch(1, false, true);
  const sm_columns& c = batch.columns.c;
  const std::uint8_t end[] = {0, 1};
  std::memcpy(c.final_info_present + 2, end, 2);
  static_cast<double*>(c.final_info[1])[1] = 0.5;
  show_end(batch.table->shared(), c, 1);
  CHECK(std::equal(end, end + 2, c.info_present + 2));
  CHECK(static_cast<double*>(c.info[1])[1] == 0.5);
  for (const std::int64_t other : {0, 2}) CHECK(batch.is_all(c.info_present, 2, other, kOld));
}

}  // namespace stepmill::failed_row_test
