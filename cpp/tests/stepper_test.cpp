#include "core/stepper.h"

#include <algorithm>
#include <string>

#include "tests/check.h"
#include "tests/obedient_env.h"
#include "tests/rows.h"

namespace stepmill::stepper_test {

using test::Reference;
using test::FaultRecord;

// One env of the kind under test, and short words for what its row shows.
struct Single {
  explicit Single(sm_autoreset mode, std::int32_t limit = 0, bool keep_last = false)
      : env(test::obedient_table(), test::obedient_configs(1), test::obedient_spec(),
            {1, limit, mode, false, keep_last}) {
    env.seed(0, 42);
  }

  bool step(std::int64_t order) { return env.step(0, order); }
  bool reset() { return env.reset(0); }

  const sm_columns& c() const { return env.columns(); }
  const sm_env_state& state() { return env.table().state(0); }
  double steps() const { return static_cast<double*>(c().observation[0])[0]; }
  double resets() const { return static_cast<double*>(c().observation[0])[1]; }
  double final_steps() const { return static_cast<double*>(c().final_observation[0])[0]; }
  double final_resets() const { return static_cast<double*>(c().final_observation[0])[1]; }
  double reward() const { return *static_cast<double*>(c().reward); }
  std::int32_t info() const { return *static_cast<std::int32_t*>(c().info[0]); }
  // terminated, truncated, ended, as a word: "---", "t-e", ...
  std::string flags() const {
    return {*c().terminated ? 't' : '-', *c().truncated ? 'u' : '-', *c().ended ? 'e' : '-'};
  }

  Reference env;
};

TEST(the_first_action_resets_and_is_discarded) {
  for (const auto mode : {SM_NEXT_STEP, SM_SAME_STEP, SM_DISABLED}) {
    Single s(mode);
    CHECK(s.step(test::kTerminate) == false);
    CHECK(s.flags() == "---");
    CHECK(s.steps() == 0.0);
    CHECK(s.resets() == 1.0);
    CHECK(s.reward() == 0.0);
    CHECK(*s.c().elapsed_step == 0);
    CHECK(s.state().phase == SM_LIVE);
    CHECK(s.state().episode == 1);
    CHECK(static_cast<double*>(s.c().observation[0])[2] == Rng(42).random());
  }
}

TEST(steps_count_and_add_up) {
  Single s(SM_NEXT_STEP);
  s.reset();
  double sum = 0.0;
  for (int i = 1; i <= 3; ++i) {
    CHECK(s.step(test::kGoOn) == false);
    CHECK(*s.c().elapsed_step == i);
    CHECK(*s.c().episode_return == 0.0);  // only where an episode ended
    CHECK(s.steps() == i);
    sum += s.reward();
  }
  CHECK(s.step(test::kTerminate) == true);
  sum += s.reward();
  CHECK(*s.c().episode_return == sum);
  CHECK(*s.c().episode_length == 4);
}

TEST(next_step_resets_with_the_action_after_the_end) {
  Single s(SM_NEXT_STEP);
  s.reset();
  CHECK(s.step(test::kTruncate) == true);
  CHECK(s.flags() == "-ue");
  CHECK(s.steps() == 1.0);
  CHECK(s.state().phase == SM_ENDED);
  CHECK(s.step(test::kTerminate) == false);
  CHECK(s.flags() == "---");
  CHECK(s.resets() == 2.0);
  CHECK(s.steps() == 1.0);
  CHECK(s.reward() == 0.0);
  CHECK(*s.c().elapsed_step == 0);
  CHECK(*s.c().episode_length == 0);
}

TEST(same_step_resets_inside_the_ending_step) {
  Single s(SM_SAME_STEP);
  s.reset();
  s.step(test::kGoOn);
  CHECK(s.step(test::kTerminate) == true);
  CHECK(s.flags() == "t-e");
  CHECK(s.final_steps() == 2.0);
  CHECK(s.final_resets() == 1.0);
  CHECK(*static_cast<std::int32_t*>(s.c().final_info[0]) == 1);
  CHECK(s.resets() == 2.0);
  CHECK(s.info() == 2);
  CHECK(*s.c().elapsed_step == 0);
  CHECK(*s.c().episode_length == 2);
  CHECK(s.reward() >= 1.0);  // of the ending step
  CHECK(s.state().phase == SM_LIVE);
  s.step(test::kGoOn);
  CHECK(*s.c().elapsed_step == 1);
  CHECK(s.flags() == "---");
}

TEST(disabled_leaves_the_env_ended_until_a_reset) {
  Single s(SM_DISABLED);
  s.reset();
  s.step(test::kTerminate);
  CHECK(s.state().phase == SM_ENDED);
  CHECK(s.c().final_observation == nullptr);
  s.reset();
  CHECK(s.resets() == 2.0);
  CHECK(s.state().phase == SM_LIVE);
}

TEST(a_reset_command_ends_the_episode_in_every_mode) {
  for (const auto mode : {SM_NEXT_STEP, SM_SAME_STEP, SM_DISABLED}) {
    Single s(mode);
    s.reset();
    s.step(test::kGoOn);
    CHECK(s.reset() == false);
    CHECK(s.flags() == "---");
    CHECK(s.resets() == 2.0);
    CHECK(s.state().command == SM_STEP);
    s.step(test::kGoOn);
    CHECK(*s.c().elapsed_step == 1);
  }
}

TEST(the_time_limit_truncates_and_may_coincide_with_an_end) {
  Single s(SM_NEXT_STEP, 2);
  s.reset();
  s.step(test::kGoOn);
  CHECK(s.flags() == "---");
  CHECK(s.step(test::kGoOn) == true);
  CHECK(s.flags() == "-ue");
  s.step(test::kGoOn);  // resets
  s.step(test::kGoOn);
  CHECK(s.step(test::kTerminate) == true);
  CHECK(s.flags() == "tue");
  CHECK(*s.c().episode_length == 2);
  s.reset();
  s.step(test::kTerminateAndTruncate);
  CHECK(s.flags() == "tue");
}

TEST(seed_and_options_serve_one_reset) {
  Single s(SM_NEXT_STEP);
  sm_reset_request& request = s.env.table().reset_request(0);
  request.option[0] = 5.0;
  request.option_mask = 1;
  s.reset();
  const double first = static_cast<double*>(s.c().observation[0])[2];
  CHECK(static_cast<double*>(s.c().observation[0])[3] == 5.0);
  s.reset();
  CHECK(static_cast<double*>(s.c().observation[0])[3] == 0.0);
  CHECK(static_cast<double*>(s.c().observation[0])[2] != first);
  s.env.seed(0, 42);
  s.reset();
  CHECK(static_cast<double*>(s.c().observation[0])[2] == first);
}

// ---- faults ----

TEST(a_fault_in_step_fills_its_row) {
  for (const auto mode : {SM_NEXT_STEP, SM_SAME_STEP, SM_DISABLED}) {
    Single s(mode);
    s.reset();
    s.step(test::kGoOn);
    CHECK(s.step(test::kThrowInStep) == false);
    CHECK(s.flags() == "-u-");
    CHECK(s.reward() == 0.0);
    CHECK(s.steps() == 0.0);
    CHECK(s.c().info_present[0] == 0);
    CHECK(*s.c().elapsed_step == 1);
    CHECK(*s.c().env_id == 0);
    CHECK(s.state().phase == SM_ENDED);
    CHECK(s.state().failures == 1);
    CHECK(s.env.faults() == std::vector<FaultRecord>{{0, SM_IN_STEP, "ordered to fail in step"}});
    if (mode == SM_DISABLED)
      s.reset();
    else
      s.step(test::kGoOn);
    CHECK(s.resets() == 2.0);
    CHECK(s.flags() == "---");
    s.step(test::kGoOn);
    CHECK(s.state().failures == 0);
  }
}

TEST(whatever_is_thrown_is_reported) {
  Single s(SM_NEXT_STEP);
  s.reset();
  s.step(test::kThrowOddThing);
  CHECK(s.env.faults()[0].message == "the env threw something that is not a std::exception");
}

TEST(a_fault_in_observe_is_reported_as_one) {
  Single s(SM_NEXT_STEP);
  s.reset();
  CHECK(s.step(test::kThrowInObserve) == false);
  CHECK(s.flags() == "-u-");
  CHECK(s.reward() == 0.0);
  CHECK(s.env.faults()[0].phase == SM_IN_OBSERVE);
  CHECK(s.state().phase == SM_ENDED);
}

TEST(a_fault_in_observe_at_an_end_takes_the_end_back) {
  for (const auto mode : {SM_NEXT_STEP, SM_SAME_STEP}) {
    Single s(mode);
    s.reset();
    s.step(test::kEndAndThrowInObserve);
    CHECK(s.flags() == "-u-");
    CHECK(*s.c().episode_return == 0.0);
    CHECK(*s.c().episode_length == 0);
    CHECK(s.env.faults()[0].phase == SM_IN_OBSERVE);
  }
}

TEST(failures_count_until_a_step_is_good) {
  for (const std::int64_t order : {test::kThrowInStep, test::kThrowInObserve, test::kEndAndThrowInObserve}) {
    for (const auto mode : {SM_NEXT_STEP, SM_SAME_STEP}) {
      Single s(mode);
      s.reset();
      for (int i = 1; i <= 300; ++i) {
        s.step(order);
        CHECK(s.state().failures == i);
        s.step(test::kGoOn);  // resets: no step
      }
      s.env.table().state(0).failures = SM_MOST_FAILURES;
      s.step(order);
      CHECK(s.state().failures == SM_MOST_FAILURES);
      s.step(test::kGoOn);
      s.step(test::kGoOn);
      CHECK(s.state().failures == 0);
    }
  }
}

TEST(a_fault_in_a_reset_leaves_the_env_to_be_reset_again) {
  Single s(SM_NEXT_STEP);
  s.reset();
  s.step(test::kEndThenThrowInReset);
  CHECK(s.flags() == "t-e");
  CHECK(s.step(test::kGoOn) == false);
  CHECK(s.flags() == "-u-");
  CHECK(s.env.faults()[0].phase == SM_IN_RESET);
  CHECK(s.state().phase == SM_ENDED);
  s.step(test::kGoOn);
  CHECK(s.flags() == "---");
  CHECK(s.resets() == 2.0);
}

TEST(a_seed_is_kept_for_the_reset_that_succeeds) {
  Single s(SM_NEXT_STEP);
  s.reset();
  s.step(test::kEndThenThrowInReset);
  s.env.seed(0, 7);
  s.reset();
  CHECK(s.env.faults().size() == 1);
  s.step(test::kGoOn);
  CHECK(static_cast<double*>(s.c().observation[0])[2] == Rng(7).random());
}

// The step was good and its end stands; the observation is the final one.
TEST(same_step_with_a_failing_reset_keeps_the_end) {
  for (const std::int64_t order : {test::kEndThenThrowInReset, test::kEndThenThrowAfterReset}) {
    Single s(SM_SAME_STEP, 0, true);
    s.reset();
    s.step(test::kGoOn);
    CHECK(s.step(order) == true);
    CHECK(s.flags() == "t-e");
    CHECK(s.reward() >= static_cast<double>(order));
    CHECK(*s.c().episode_length == 2);
    CHECK(*s.c().elapsed_step == 2);  // of what the row shows
    CHECK(s.steps() == 2.0);
    CHECK(s.resets() == 1.0);
    CHECK(s.info() == 1);
    CHECK(s.final_steps() == 2.0);
    CHECK(s.env.faults().size() == 1);
    CHECK(s.state().phase == SM_ENDED);
    CHECK(s.state().failures == 1);
    // The last good observation is the one that was shown.
    CHECK(static_cast<double*>(s.env.table().shared().last_observation[0])[0] == 2.0);
    s.step(test::kGoOn);
    CHECK(s.flags() == "---");
    CHECK(*s.c().elapsed_step == 0);
    s.step(test::kGoOn);
    CHECK(*s.c().elapsed_step == 1);
  }
}

TEST(the_last_good_observation_can_stand_for_a_lost_one) {
  for (const std::int64_t order : {test::kThrowInStep, test::kThrowInObserve}) {
    Single s(SM_NEXT_STEP, 0, true);
    s.reset();
    s.step(test::kGoOn);
    const std::string bytes(static_cast<char*>(s.c().observation[1]), 5);
    const double drawn = static_cast<double*>(s.c().observation[0])[2];
    s.step(order);
    CHECK(s.flags() == "-u-");
    CHECK(s.steps() == 1.0);
    CHECK(static_cast<double*>(s.c().observation[0])[2] == drawn);
    CHECK(std::string(static_cast<char*>(s.c().observation[1]), 5) == bytes);
  }
}

// ---- looking ----

TEST(a_look_shows_where_the_env_stands_and_moves_nothing) {
  Single s(SM_NEXT_STEP);
  s.reset();
  s.step(test::kGoOn);
  const double drawn = static_cast<double*>(s.c().observation[0])[2];
  s.env.table().state(0).command = SM_OBSERVE;
  CHECK(s.env.advance(0) == false);
  CHECK(s.flags() == "---");
  CHECK(s.reward() == 0.0);
  CHECK(s.steps() == 1.0);
  CHECK(*s.c().elapsed_step == 1);
  CHECK(static_cast<double*>(s.c().observation[0])[2] == drawn);
  s.step(test::kGoOn);
  CHECK(s.steps() == 2.0);
  CHECK(*s.c().elapsed_step == 2);
}

// ---- pictures ----

TEST(a_picture_has_the_numbers_of_the_env_and_counts_its_good_resets) {
  Single s(SM_NEXT_STEP);
  CHECK(s.env.picture(0).resets == 0);
  s.reset();
  s.step(test::kGoOn);
  const Picture picture = s.env.picture(0);
  CHECK(picture.resets == 1);
  CHECK(picture.numbers == (std::vector<double>{1.0, static_cast<double*>(s.c().observation[0])[2]}));
  s.step(test::kEndThenThrowInReset);
  CHECK(s.env.picture(0).numbers[0] == 2.0);  // the last state of an episode, until the next one begins
  s.step(test::kGoOn);
  CHECK(s.env.picture(0).resets == 1);
  s.step(test::kGoOn);
  CHECK(s.env.picture(0).resets == 2);
}

TEST(an_exception_in_picture_crosses_the_table_as_text) {
  Single s(SM_NEXT_STEP);
  s.reset();
  s.step(test::kThrowInObserve);
  CHECK_THROWS(s.env.picture(0), std::runtime_error);
}

// ---- many players ----

// Two of three players are present; an action is the reward of its player.
class Crowd {
 public:
  static constexpr bool kManyPlayers = true;
  static EnvSpec spec(const Config&) {
    EnvSpec spec;
    spec.observation = {box<double>({2}, {0.0}, {9.0})};
    spec.action = {discrete(100)};
    spec.max_num_players = 3;
    return spec;
  }
  explicit Crowd(const Config&) {}

  void reset(Rng&, const Options&) { has_moved_ = false; }
  Outcome step(const ActionRow& action, Rng&) {
    has_moved_ = true;
    double sum = 0.0;
    for (int player = 0; player < 3; ++player)
      if (action.acts(player)) sum += reward_[player] = static_cast<double>(*action.get<std::int64_t>(0, player));
    if (sum == 99.0) throw std::runtime_error("99");
    return {sum, sum == 50.0, false};
  }
  void observe(const Row& row) const {
    row.set_presence(2, Presence::kAbsent);
    for (int player = 0; player < 2; ++player) {
      row.observation<double>(0, player)[0] = player;
      row.observation<double>(0, player)[1] = reward_[player];
      if (has_moved_) row.set_reward(player, reward_[player]);
    }
  }

 private:
  double reward_[3] = {};
  bool has_moved_ = false;
};

struct CrowdOfTwo {
  explicit CrowdOfTwo(sm_autoreset mode, bool float32 = false)
      : env(*table_of<Crowd>("Crowd"), std::vector<Config>(2), Crowd::spec({}), {2, 0, mode, float32, false}) {}

  bool step(std::int32_t id, std::int64_t first, std::int64_t second) {
    auto* actions = reinterpret_cast<std::int64_t*>(env.table().action(0));
    actions[id * 3] = first;
    actions[id * 3 + 1] = second;
    env.table().action_players()[id * 3 + 2] = 0;
    return env.advance(id);
  }
  double reward(int player) const { return static_cast<double*>(env.columns().reward)[player]; }
  std::string presence() const {
    std::string out;
    for (int player = 0; player < 3; ++player) out += static_cast<char>('0' + env.columns().players[player]);
    return out;
  }
  double seen(int player) const { return static_cast<double*>(env.columns().observation[0])[player * 2 + 1]; }

  Reference env;
};

TEST(every_player_has_its_own_action_reward_and_observation) {
  CrowdOfTwo crowd(SM_NEXT_STEP);
  crowd.env.reset(1);
  CHECK(crowd.presence() == "110");
  crowd.step(1, 3, 4);
  CHECK(crowd.reward(0) == 3.0);
  CHECK(crowd.reward(1) == 4.0);
  CHECK(crowd.seen(0) == 3.0);
  CHECK(crowd.seen(1) == 4.0);
  CHECK(*crowd.env.columns().env_id == 1);
  CHECK(crowd.env.table().state(1).episode_return == 7.0);
  crowd.env.reset(1);
  for (int player = 0; player < 3; ++player) CHECK(crowd.reward(player) == 0.0);
}

TEST(a_fault_clears_the_rows_of_all_players) {
  CrowdOfTwo crowd(SM_NEXT_STEP);
  crowd.env.reset(0);
  crowd.step(0, 3, 4);
  crowd.step(0, 98, 1);
  CHECK(crowd.env.faults().size() == 1);
  CHECK(crowd.presence() == "110");  // those that have acted
  for (int player = 0; player < 3; ++player) {
    CHECK(crowd.reward(player) == 0.0);
    CHECK(crowd.seen(player) == 0.0);
  }
}

TEST(same_step_shows_the_rewards_of_the_end_to_every_player) {
  CrowdOfTwo crowd(SM_SAME_STEP);
  crowd.env.reset(0);
  CHECK(crowd.step(0, 20, 30) == true);
  CHECK(crowd.reward(0) == 20.0);
  CHECK(crowd.reward(1) == 30.0);
  CHECK(static_cast<double*>(crowd.env.columns().final_observation[0])[3] == 30.0);
}

TEST(a_look_shows_no_player_a_reward) {
  CrowdOfTwo crowd(SM_NEXT_STEP);
  crowd.env.reset(0);
  crowd.step(0, 3, 4);
  crowd.env.table().state(0).command = SM_OBSERVE;
  crowd.env.advance(0);
  CHECK(crowd.seen(1) == 4.0);
  CHECK(crowd.reward(0) == 0.0);
  CHECK(crowd.reward(1) == 0.0);
}

TEST(rewards_can_be_float32) {
  CrowdOfTwo crowd(SM_NEXT_STEP, true);
  crowd.env.reset(0);
  crowd.step(0, 3, 4);
  CHECK(static_cast<float*>(crowd.env.columns().reward)[1] == 4.0f);
}

// ---- many at once ----

// Counts, and says how it was stepped.
class Together {
 public:
  static EnvSpec spec(const Config&) {
    EnvSpec spec;
    spec.observation = {box<std::int64_t>({2}, {0.0}, {1e9})};
    spec.action = {discrete(100)};
    return spec;
  }
  explicit Together(const Config&) {}

  void reset(Rng&, const Options&) { count_ = 0; }
  Outcome step(const ActionRow& action, Rng& rng) {
    count_ += action.index();
    return {rng.random(), count_ >= 20, false};
  }
  static void step_many(Turns<Together>& turns) {
    for (int i = 0; i < turns.size(); ++i) {
      turns.outcome(i) = turns.env(i).step(turns.action(i), turns.rng(i));
      turns.env(i).together_ += 1;
    }
  }
  void observe(const Row& row) const {
    row.observation<std::int64_t>()[0] = count_;
    row.observation<std::int64_t>()[1] = together_;
  }

 private:
  std::int64_t count_ = 0, together_ = 0;
};

// More envs than one block holds, some of them at their reset while others step.
TEST(envs_that_step_together_do_what_they_do_alone) {
  constexpr std::int32_t kEnvs = 150;
  const EnvSpec spec = Together::spec({});
  const TableOptions options{kEnvs, 7, SM_NEXT_STEP, false, false};
  const sm_env_table& table = *table_of<Together>("Together");
  Reference alone(table, std::vector<Config>(kEnvs), spec, options);
  const auto arena = Arena::create(Arena::Kind::kPrivate);
  ActionTable actions(*arena, spec, options);
  EnvSet envs(table, std::vector<Config>(kEnvs));
  const BatchLayout layout(spec, kEnvs, false, false);
  Columns columns;
  layout.fill(columns, arena->at(arena->grow(layout.bytes(), kCacheLine)));
  std::vector<std::int32_t> ids(kEnvs), rows(kEnvs);
  for (std::int32_t i = 0; i < kEnvs; ++i) {
    const std::int32_t id = (i * 7) % kEnvs;  // in no order
    ids[static_cast<std::size_t>(i)] = id;
    rows[static_cast<std::size_t>(id)] = i;
  }
  sm_job job{};
  job.shared = &actions.shared();
  job.env = ids.data();
  job.first_row = 0;
  job.columns = &columns.c;
  job.count = kEnvs;
  for (int round = 0; round < 30; ++round) {
    for (std::int32_t env = 0; env < kEnvs; ++env)
      reinterpret_cast<std::int64_t*>(actions.action(0))[env] = (env + round) % 9;
    const bool any_ended = envs.advance(job);
    bool expected = false;
    for (std::int32_t env = 0; env < kEnvs; ++env) {
      expected |= alone.step(env, (env + round) % 9);
      CHECK((test::row_bytes(spec, options, columns.c, rows[static_cast<std::size_t>(env)]) == alone.row()) == true);
    }
    CHECK(any_ended == expected);
  }
}

// ---- where a row lies ----

TEST(an_env_without_a_set_row_claims_one_when_its_step_is_done) {
  const auto arena = Arena::create(Arena::Kind::kPrivate);
  const EnvSpec spec = test::obedient_spec();
  ActionTable table(*arena, spec, {2, 0, SM_NEXT_STEP, false, false});
  EnvSet envs(test::obedient_table(), test::obedient_configs(1), 1);  // holds env 1 only
  const BatchLayout layout(spec, 4, false, false);
  Columns columns;
  layout.fill(columns, arena->at(arena->grow(layout.bytes(), kCacheLine)));
  struct Context {
    const sm_columns* columns;
    int claims = 0, faults = 0;
  } context{&columns.c};
  const std::int32_t env = 1;
  sm_job job{};
  job.shared = &table.shared();
  job.env = &env;
  job.count = 1;
  job.context = &context;
  job.claim = [](void* p, std::int32_t) -> sm_place {
    auto& c = *static_cast<Context*>(p);
    return {c.columns, c.claims++};
  };
  job.fault = [](void* p, std::int32_t, std::int32_t, const char*) { static_cast<Context*>(p)->faults += 1; };
  const std::int64_t orders[] = {test::kGoOn, test::kGoOn, test::kThrowInStep, test::kGoOn};
  for (const std::int64_t order : orders) {
    reinterpret_cast<std::int64_t*>(table.action(0))[1] = order;
    envs.advance(job);
  }
  CHECK(context.claims == 4);  // one per step, also where it failed before it had a row
  CHECK(context.faults == 1);
  for (int row = 0; row < 4; ++row) CHECK(columns.c.env_id[row] == 1);
  CHECK(columns.c.truncated[2] == 1);
}

}  // namespace stepmill::stepper_test
