#include "core/action_table.h"

#include <algorithm>
#include <limits>
#include <new>
#include <utility>

#include "tests/check.h"
#include "tests/obedient_env.h"

namespace stepmill::action_table_test {

TableOptions options_for(std::int32_t envs) {
  TableOptions options;
  options.num_envs = envs;
  options.max_episode_steps = 9;
  options.autoreset = SM_SAME_STEP;
  options.reward_is_float32 = true;
  return options;
}

TEST(the_parts_of_a_table_do_not_overlap) {
  const auto arena = Arena::create(Arena::Kind::kPrivate);
  EnvSpec spec = test::obedient_spec();
  spec.max_num_players = 3;
  TableOptions options = options_for(11);
  options.keep_last_observation = true;
  const ActionTable table(*arena, spec, options);
  const sm_shared& s = table.shared();
  std::vector<std::pair<std::byte*, std::int64_t>> parts;
  const auto add = [&](const void* at, std::int64_t row) {
    parts.push_back({const_cast<std::byte*>(static_cast<const std::byte*>(at)), row * 11});
  };
  add(s.state, sizeof(sm_env_state));
  add(s.reset, sizeof(sm_reset_request));
  add(s.action_players, spec.max_num_players);
  add(s.action[0], 8 * 3);
  add(s.last_observation[0], 4 * 8 * 3);
  add(s.last_observation[1], 5 * 3);
  std::sort(parts.begin(), parts.end());
  const std::byte* end = arena->at(table.offset());
  for (const auto& [at, bytes] : parts) {
    CHECK(reinterpret_cast<std::uintptr_t>(at) % kCacheLine == 0);
    CHECK(at >= end);
    end = at + bytes;
  }
  CHECK(end <= arena->at(arena->used()));
}

TEST(a_new_table_is_of_fresh_envs_without_requests) {
  const auto arena = Arena::create(Arena::Kind::kPrivate);
  const ActionTable table(*arena, test::obedient_spec(), options_for(5));
  for (std::int32_t env = 0; env < 5; ++env) {
    CHECK(table.state(env).phase == SM_FRESH);
    CHECK(table.state(env).command == SM_STEP);
    CHECK(table.reset_request(env).has_seed == 0u);
  }
}

TEST(the_table_carries_the_options) {
  const auto arena = Arena::create(Arena::Kind::kPrivate);
  const ActionTable table(*arena, test::obedient_spec(), options_for(5));
  const sm_shared& s = table.shared();
  CHECK(s.autoreset == SM_SAME_STEP);
  CHECK(s.max_episode_steps == 9);
  CHECK(s.max_num_players == 1);
  CHECK(s.reward_is_float32 == 1);
  CHECK(s.observation_leaves == 2);
  CHECK(s.info_leaves == 1);
  CHECK(s.observation_bytes[0] == 32);
  CHECK(s.observation_bytes[1] == 5);
  CHECK(s.last_observation == nullptr);
  CHECK(s.action_players == nullptr);
}

TEST(an_attached_table_is_the_same_table) {
  const auto arena = Arena::create(Arena::Kind::kShared);
  arena->grow(100, 1);
  const ActionTable table(*arena, test::obedient_spec(), options_for(5));
  const auto other_arena = Arena::attach(arena->descriptor(), arena->reserved());
  const ActionTable other(*other_arena, table.offset(), test::obedient_spec(), options_for(5));
  table.state(4).episode = 77;
  reinterpret_cast<std::int64_t*>(table.action(0))[4] = 5;
  other.reset_request(3).seed = 9;
  CHECK(other.state(4).episode == 77);
  CHECK(static_cast<std::int64_t*>(other.shared().action[0])[4] == 5);
  CHECK(table.reset_request(3).seed == 9u);
}

TEST(a_table_too_large_for_any_address_is_an_error) {
  const auto arena = Arena::create(Arena::Kind::kPrivate);
  EnvSpec spec = test::obedient_spec();
  spec.action[0].shape = {std::int64_t{1} << 40};
  CHECK_THROWS(ActionTable(*arena, spec, options_for(std::numeric_limits<std::int32_t>::max())),
               std::bad_alloc);
}

}  // namespace stepmill::action_table_test
