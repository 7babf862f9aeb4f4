// Envs that live elsewhere: the same rows as envs that are stepped one by one, one row per action whatever is lost, and
// nothing taken from a parcel that cannot be one.
#include "core/remote/remote_pool.h"

#include <algorithm>
#include <memory>
#include <random>

#include "tests/check.h"
#include "tests/pool_driver.h"

namespace stepmill::remote_pool_test {

using test::all_of;
using test::Driver;
using test::DriverOptions;
using test::Ids;

constexpr auto kModes = {SM_NEXT_STEP, SM_SAME_STEP, SM_DISABLED};

// The place where one group lives: a pool that gives results as they are ready.
class Place {
 public:
  Place(DriverOptions options, std::int32_t envs)
      : driver_(made(options, envs)),
        orders_(pool().table(), pool().spec()),
        states_(pool().table()),
        answers_(pool().spec(), pool().options().table, pool().table()) {
    for (std::int32_t env = 0; env < envs; ++env) pool().table().reset_request(env).has_seed = 0;  // orders bring them
  }

  void take(std::span<const std::byte> order) {
    const Ids envs = orders_.envs(order, pool().num_envs());
    orders_.unpack(order, envs);
    pool().send(envs, false, false);
  }
  // An answer with so many rows or more.
  std::vector<std::byte> give(std::int32_t at_least, RemotePool& to, std::int32_t first) {
    const Batch batch = driver_.recv_some(at_least);
    for (Fault fault : driver_.faults) {
      fault.env += first;
      to.add_fault(fault);
    }
    std::vector<std::byte> answer(answers_.bytes(batch.rows));
    answers_.pack(batch, answer);
    driver_.drop(batch);
    return answer;
  }
  LocalPool& pool() { return driver_.pool; }

  // Envs that are lent to it, which then does so many steps with each of them.
  Ids host(std::span<const std::byte> states, int steps) {
    const Ids envs = states_.envs(states, pool().num_envs());
    states_.unpack(states, envs);
    for (int step = 0; step < steps; ++step) {
      for (const std::int32_t env : envs) reinterpret_cast<std::int64_t*>(pool().table().action(0))[env] = test::kGoOn;
      pool().send(envs, false, false);
      driver_.drop(driver_.recv_some(static_cast<std::int32_t>(envs.size())));
    }
    return envs;
  }
  std::vector<std::byte> send_home(const Ids& envs) {
    std::vector<std::byte> parcel(states_.bytes(envs.size()));
    states_.pack(envs, 0, parcel);
    return parcel;
  }

 private:
  static DriverOptions made(DriverOptions options, std::int32_t envs) {
    options.num_envs = options.batch_size = envs;
    options.as_ready = true;
    return options;
  }

  Driver driver_;
  EnvRows orders_, states_;
  AnswerRows answers_;
};

// A remote pool, and who carries its parcels.
class Remote {
 public:
  explicit Remote(const DriverOptions& options, std::vector<std::int32_t> first_envs = {0, 1})
      : options_(options), first_(first_envs), pool(test::obedient_spec(), options.pool(), first_envs, seeds(options)) {
    for (std::int32_t env = 0; env < options.num_envs; ++env) {
      pool.table().reset_request(env).seed = static_cast<std::uint64_t>(env);
      pool.table().reset_request(env).has_seed = 1;
    }
    first_.push_back(options.num_envs);
    places_.resize(first_envs.size());
    for (int group = 0; group < pool.groups(); ++group) open(group);
  }

  void open(int group) {
    const auto g = static_cast<std::size_t>(group);
    places_[g] = std::make_unique<Place>(options_, first_[g + 1] - first_[g]);
  }
  Place& place(int group) { return *places_[static_cast<std::size_t>(group)]; }
  std::int32_t first(int group) const { return first_[static_cast<std::size_t>(group)]; }

  void write(std::int32_t env, std::int64_t order) {
    reinterpret_cast<std::int64_t*>(pool.table().action(0))[env] = order;
  }
  void send(const Ids& envs, std::int64_t order) {
    for (const std::int32_t env : envs) write(env, order);
    pool.send(envs, false, false);
  }
  void send_reset(const Ids& envs) {
    for (const std::int32_t env : envs) pool.table().state(env).command = SM_RESET;
    pool.send(envs, false, false);
  }

  std::vector<std::byte> pack(int group, std::size_t most) {
    const std::size_t count = std::min(most, pool.waiting(group).size());
    std::vector<std::byte> order(pool.order_bytes(count));
    pool.pack(group, count, order);
    return order;
  }
  void carry_out(int group, std::size_t most = 1000) {
    if (!pool.waiting(group).empty()) place(group).take(pack(group, most));
  }
  void carry_back(int group, std::int32_t at_least = 1) {
    pool.unpack(group, place(group).give(at_least, pool, first(group)));
  }
  // Everything that is needed for a batch.
  Batch recv() {
    while (!pool.ready())
      for (int group = 0; group < pool.groups(); ++group) {
        carry_out(group);
        if (pool.away(group) > 0) carry_back(group);
      }
    return take();
  }
  Batch take() {
    faults.clear();
    return pool.take_batch(faults);
  }
  void drop(const Batch& batch) { batch.store->release(batch.buffer); }
  std::string row(const Batch& batch, std::int32_t index) const {
    return test::row_bytes(pool.spec(), pool.options().table, batch.buffer->columns.c, index);
  }

 private:
  static std::vector<std::uint64_t> seeds(const DriverOptions& options) {
    std::vector<std::uint64_t> out;
    for (std::int32_t env = 0; env < options.num_envs; ++env) out.push_back(static_cast<std::uint64_t>(env));
    return out;
  }

  const DriverOptions options_;
  std::vector<std::int32_t> first_;
  std::vector<std::unique_ptr<Place>> places_;

 public:
  RemotePool pool;
  std::vector<Fault> faults;
};

Fault loss() {
  Fault fault;
  fault.phase = SM_IN_STEP;
  fault.message = "its node is gone";
  fault.kind = Fault::kDied;
  return fault;
}

template <class Function>
bool is_refused(Function function) {
  try {
    function();
  } catch (const BrokenParcel&) {
    return true;
  }
  return false;
}

// ---- the same rows ---------------------------------------------------------------------------------

// Any actions, in batches of all envs: every byte of every row, and every failure, as if each env were stepped alone.
TEST(rows_are_those_of_envs_that_are_stepped_one_by_one) {
  for (const sm_autoreset mode : kModes)
    for (const bool keep : {false, true}) {
      DriverOptions options = test::sync_of(7, 1);
      options.autoreset = mode;
      options.max_episode_steps = 9;
      options.keep_last_observation = keep;
      Remote r(options, {0, 1, 5});
      test::Reference one_by_one(test::obedient_table(), test::obedient_configs(7, 1), test::obedient_spec(), options.table());
      for (std::int32_t env = 0; env < 7; ++env) one_by_one.seed(env, static_cast<std::uint64_t>(env));
      std::mt19937 dice(3);
      std::vector<std::int64_t> orders(7);
      std::vector<std::uint8_t> resets(7, 1);
      for (int turn = 0; turn < 400; ++turn) {
        for (std::int32_t env = 0; env < 7; ++env) {
          const auto e = static_cast<std::size_t>(env);
          orders[e] = dice() % 3 ? test::kGoOn : static_cast<std::int64_t>(dice() % test::kOrders);
          r.write(env, orders[e]);
          resets[e] = turn == 0 || dice() % 20 == 0 || (mode == SM_DISABLED && r.pool.table().state(env).phase != SM_LIVE);
          if (resets[e]) r.pool.table().state(env).command = SM_RESET;
        }
        r.pool.send(all_of(7), false, true);
        const Batch batch = r.recv();
        CHECK(batch.rows == 7);
        CHECK(batch.all_in_order);
        for (std::int32_t env = 0; env < 7; ++env) {
          const auto e = static_cast<std::size_t>(env);
          if (resets[e]) one_by_one.table().state(env).command = SM_RESET;
          one_by_one.step(env, orders[e]);
          CHECK(r.row(batch, env) == one_by_one.row());
          const sm_env_state &ours = r.pool.table().state(env), &theirs = one_by_one.table().state(env);
          CHECK(ours.phase == theirs.phase);
          CHECK(ours.elapsed == theirs.elapsed);
          CHECK(ours.episode == theirs.episode);
          CHECK(ours.failures == theirs.failures);
        }
        const auto expected = one_by_one.take_faults();
        CHECK(r.faults.size() == expected.size());
        for (std::size_t i = 0; i < std::min(expected.size(), r.faults.size()); ++i)
          CHECK((test::FaultRecord{r.faults[i].env, r.faults[i].phase, r.faults[i].message}) == expected[i]);
        r.drop(batch);
      }
    }
}

TEST(a_reset_gives_its_options_and_its_seed) {
  Remote r(test::sync_of(2, 1));
  sm_reset_request& request = r.pool.table().reset_request(1);
  request.seed = 7;
  request.option[0] = 2.5;
  request.option_mask = 1;
  r.send_reset({0, 1});
  const Batch batch = r.recv();
  CHECK(static_cast<double*>(batch.buffer->columns.c.observation[0])[4 + 3] == 2.5);
  CHECK(request.option_mask == 0);
  CHECK(request.has_seed == 0);
  r.drop(batch);
}

// ---- batches of some envs --------------------------------------------------------------------------

// Parcels of any size, in any order: each action has one row, and the steps of an env stay in order.
TEST(each_action_has_one_row_however_parcels_travel) {
  for (const std::int32_t size : {1, 3, 8, 20}) {
    Remote r(test::async_of(20, size, 1), {0, 3, 4, 13});
    std::mt19937 dice(static_cast<unsigned>(size));
    std::vector<double> steps(20, -1.0);  // the first action of an env is its reset
    std::vector<std::uint8_t> idle(20, 1);
    for (int turn = 0; turn < 3000; ++turn) {
      Ids chosen;
      for (std::int32_t env = 0; env < 20; ++env)
        if (idle[static_cast<std::size_t>(env)] && dice() % 2) chosen.push_back(env);
      for (const std::int32_t env : chosen) idle[static_cast<std::size_t>(env)] = 0;
      if (!chosen.empty()) r.send(chosen, test::kGoOn);
      const int group = static_cast<int>(dice() % 4);
      r.carry_out(group, dice() % 5 + 1);
      if (r.pool.away(group) > 0 && dice() % 2)
        r.carry_back(group, static_cast<std::int32_t>(dice() % static_cast<unsigned>(r.pool.away(group))) + 1);
      while (r.pool.in_flight_count() > 0 && r.pool.ready()) {
        const Batch batch = r.take();
        for (std::int32_t row = 0; row < batch.rows; ++row) {
          const auto e = static_cast<std::size_t>(batch.env_id[row]);
          CHECK(idle[e] == 0);
          idle[e] = 1;
          CHECK(test::steps_of(batch, row) == ++steps[e]);
        }
        r.drop(batch);
      }
    }
  }
}

// ---- what is lost ----------------------------------------------------------------------------------

TEST(every_action_of_a_lost_group_has_a_row_that_says_so) {
  DriverOptions options = test::async_of(6, 2, 1);
  options.keep_last_observation = true;
  Remote r(options, {0, 3});
  r.send(all_of(6), test::kGoOn);
  for (int batches = 0; batches < 3; ++batches) r.drop(r.recv());
  r.send({0, 1, 4, 5}, test::kGoOn);
  r.carry_out(0, 1);  // env 0 is away, env 1 waits, env 2 is idle
  r.pool.lose(0, loss());
  CHECK(r.pool.away(0) == 0);
  CHECK(r.pool.waiting(0).empty());
  const Batch failed = r.recv();
  CHECK((Ids{failed.env_id[0], failed.env_id[1]}) == (Ids{0, 1}));
  CHECK(r.faults.size() == 2);
  CHECK(r.faults[1].env == 1);
  CHECK(r.faults[1].kind == Fault::kDied);
  CHECK(r.faults[1].failures == 1);
  CHECK(failed.truncated[0] == 1);
  CHECK(failed.terminated[0] == 0);
  CHECK(test::resets_of(failed, 0) == 1.0);  // its last observation
  r.drop(failed);
  r.drop(r.recv());  // the others go on
  // The next action of an env that was idle in an episode fails too, once, and does not travel.
  r.open(0);
  r.send({2, 0}, test::kGoOn);
  CHECK((Ids(r.pool.waiting(0).begin(), r.pool.waiting(0).end())) == (Ids{0}));
  const Batch next = r.recv();
  CHECK(next.env_id[0] == 2);
  CHECK(next.truncated[0] == 1);
  CHECK(r.faults.size() == 1);
  CHECK(r.faults[0].env == 2);
  CHECK(next.env_id[1] == 0);
  CHECK(next.truncated[1] == 0);
  CHECK(next.buffer->columns.c.elapsed_step[1] == 0);  // its reset
  r.drop(next);
  CHECK(r.pool.table().state(0).failures == 1);
  r.send({0, 2}, test::kGoOn);
  const Batch good = r.recv();
  CHECK(r.faults.empty());
  for (std::int32_t row = 0; row < 2; ++row)
    if (good.env_id[row] == 0) CHECK(r.pool.table().state(0).failures == 0);
  r.drop(good);
}

TEST(envs_that_are_built_again_have_other_seeds) {
  Remote r(test::sync_of(2, 1));
  r.send_reset({0, 1});
  r.drop(r.recv());
  const std::uint64_t first = r.pool.table().reset_request(1).seed;
  r.pool.lose(1, loss());
  CHECK(r.pool.table().reset_request(1).has_seed == 1);
  const std::uint64_t second = r.pool.table().reset_request(1).seed;
  CHECK(second != first);
  CHECK(r.pool.table().reset_request(0).has_seed == 0);
  r.pool.table().reset_request(1).seed = 5;  // the caller's own seed stands
  r.pool.lose(1, loss());
  CHECK(r.pool.table().reset_request(1).seed == 5);
}

// The caller has the last row of its episode, and has not sent the action that resets it.
TEST(envs_that_had_ended_have_other_seeds_too) {
  Remote r(test::sync_of(2, 1));
  r.send_reset({0, 1});
  r.drop(r.recv());
  r.pool.table().state(1).phase = SM_ENDED;
  r.pool.lose(1, loss());
  CHECK(r.pool.table().reset_request(1).has_seed == 1);
  CHECK(r.pool.table().reset_request(0).has_seed == 0);
}

TEST(a_reset_of_a_lost_env_starts_over) {
  Remote r(test::sync_of(2, 1));
  r.send_reset({0, 1});
  r.drop(r.recv());
  r.pool.lose(1, loss());
  r.open(1);
  r.send_reset({0, 1});
  const Batch batch = r.recv();
  CHECK(r.faults.empty());
  CHECK(batch.truncated[1] == 0);
  r.drop(batch);
}

// ---- lending -------------------------------------------------------------------------------------

// Steps that an env does elsewhere, and steps that it is sent, are one after another.
TEST(lent_envs_go_on_where_they_were) {
  for (const sm_autoreset mode : {SM_NEXT_STEP, SM_SAME_STEP})
    for (const bool keep : {false, true}) {
      DriverOptions options = test::sync_of(4, 1);
      options.autoreset = mode;
      options.max_episode_steps = 5;
      options.keep_last_observation = keep;
      Remote r(options, {0, 1});
      test::Reference one_by_one(test::obedient_table(), test::obedient_configs(4, 1), test::obedient_spec(), options.table());
      for (std::int32_t env = 0; env < 4; ++env) one_by_one.seed(env, static_cast<std::uint64_t>(env));
      for (int turn = 0; turn < 20; ++turn) {
        const Ids some = {1, 3};
        const Ids there = r.place(1).host(r.pool.lend(1, some), turn % 4);
        CHECK(there == (Ids{0, 2}));
        r.pool.take_back(1, r.place(1).send_home(there));
        for (int step = 0; step < turn % 4; ++step)
          for (const std::int32_t env : some) one_by_one.step(env, test::kGoOn);
        r.send(all_of(4), test::kGoOn);
        const Batch batch = r.recv();
        for (std::int32_t env = 0; env < 4; ++env) {
          one_by_one.step(env, test::kGoOn);
          CHECK(r.row(batch, env) == one_by_one.row());
        }
        r.drop(batch);
      }
    }
}

TEST(only_idle_envs_of_a_group_are_lent) {
  Remote r(test::async_of(4, 4, 1), {0, 2});
  const auto refused = [&](int group, const Ids& envs) {
    try {
      r.pool.lend(group, envs);
    } catch (const std::invalid_argument&) {
      return true;
    }
    return false;
  };
  r.send({0}, test::kGoOn);
  CHECK(refused(0, {0}));     // waits
  CHECK(refused(0, {1, 2}));  // one of another group
  CHECK(refused(1, {4}));
  r.pool.lend(0, Ids{1});
  CHECK(refused(0, {1}));  // twice
}

TEST(what_is_lost_while_it_is_lent_is_told_once) {
  DriverOptions options = test::sync_of(4, 1);
  options.keep_last_observation = true;
  Remote r(options, {0, 2});
  r.send_reset(all_of(4));
  r.drop(r.recv());
  const std::vector<std::byte> states = r.pool.lend(1, Ids{2});
  r.pool.lose(1, loss());
  CHECK(r.pool.take_losses(Ids{0, 1}).empty());
  const std::vector<Fault> told = r.pool.take_losses(Ids{2});
  CHECK(told.size() == 1);
  CHECK(told[0].env == 2);
  CHECK(told[0].failures == 1);
  CHECK(told[0].kind == Fault::kDied);
  CHECK(r.pool.take_losses(Ids{2}).empty());
  r.open(1);
  const Ids there = r.place(1).host(r.pool.lend(1, Ids{2}), 0);
  r.pool.take_back(1, r.place(1).send_home(there));
  // The next action of env 2 resets it; that of env 3, which was idle at home, tells of its loss.
  r.send({2, 3}, test::kGoOn);
  const Batch batch = r.recv();
  CHECK(batch.truncated[0] == 0);
  CHECK(batch.buffer->columns.c.elapsed_step[0] == 0);
  CHECK(batch.truncated[1] == 1);
  CHECK(r.faults.size() == 1);
  r.drop(batch);
}

TEST(an_env_that_is_lost_shows_what_it_showed_while_it_was_lent) {
  DriverOptions options = test::sync_of(2, 1);
  options.keep_last_observation = true;
  Remote r(options, {0});
  r.send_reset({0, 1});
  r.drop(r.recv());
  const std::vector<double> shown(static_cast<std::size_t>(r.pool.spec().observation[0].row_bytes()) / sizeof(double), 7.5);
  const auto rows = std::as_bytes(std::span(shown));
  CHECK(is_refused([&] { r.pool.keep_last(Ids{0, 1}, 0, rows); }));
  CHECK(is_refused([&] { r.pool.keep_last(Ids{1}, 99, rows); }));
  r.pool.keep_last(Ids{1}, 0, rows);
  r.send({0, 1}, test::kGoOn);
  r.pool.lose(0, loss());
  const Batch batch = r.recv();
  const auto* seen = static_cast<const double*>(batch.buffer->columns.c.observation[0]);
  CHECK(std::equal(shown.begin(), shown.end(), seen + shown.size()));
  CHECK(seen[0] != 7.5);
  r.drop(batch);
}

// ---- parcels that cannot be -----------------------------------------------------------------------

TEST(nothing_is_taken_from_an_answer_that_cannot_be_one) {
  Remote r(test::async_of(4, 4, 1), {0, 2});
  r.send({0, 1, 2}, test::kGoOn);
  r.carry_out(0);
  const std::vector<std::byte> good = r.place(0).give(2, r.pool, 0);
  const auto refused = [&](std::vector<std::byte> parcel) {
    const bool thrown = is_refused([&] { r.pool.unpack(0, parcel); });
    return thrown && r.pool.away(0) == 2 && !r.pool.ready();
  };
  CHECK(refused({}));
  CHECK(refused(std::vector<std::byte>(good.begin(), good.end() - 1)));
  for (const std::int64_t rows : {std::int64_t{-1}, std::int64_t{0}, std::int64_t{1}, std::int64_t{3}, std::int64_t{1} << 40}) {
    std::vector<std::byte> other = good;
    std::memcpy(other.data(), &rows, sizeof(rows));
    CHECK(refused(other));
  }
  const std::size_t at = sizeof(std::int64_t);
  for (const std::int32_t id : {-1, 1, 2, 1 << 30}) {  // 1 is twice there
    std::vector<std::byte> other = good;
    std::memcpy(other.data() + at, &id, sizeof(id));
    CHECK(refused(other));
  }
  CHECK(is_refused([&] { r.pool.unpack(1, good); }));  // env 2 and 3: the one waits, the other is idle
  r.pool.unpack(0, good);
  CHECK(r.pool.away(0) == 0);
  CHECK(is_refused([&] { r.pool.unpack(0, good); }));  // a second time
}

TEST(nothing_is_taken_from_states_that_cannot_be) {
  Remote r(test::async_of(4, 4, 1), {0, 2});
  const std::vector<std::byte> lent = r.pool.lend(1, Ids{3});
  const std::vector<std::byte> home = r.place(1).send_home(r.place(1).host(lent, 3));
  const auto refused = [&](int group, const std::vector<std::byte>& parcel) {
    return is_refused([&] { r.pool.take_back(group, parcel); }) && r.pool.table().state(3).phase == SM_FRESH;
  };
  CHECK(refused(1, {}));
  CHECK(refused(1, std::vector<std::byte>(home.begin(), home.end() - 1)));
  CHECK(refused(0, home));                              // env 1, which is at home
  CHECK(refused(1, r.place(1).send_home({0, 1})));      // env 2 too
  std::vector<std::byte> odd = home;
  sm_env_state state = r.place(1).pool().table().state(1);
  state.phase = SM_ENDED + 1;
  std::memcpy(odd.data() + sizeof(std::int64_t) + sizeof(std::int32_t), &state, sizeof(state));
  CHECK(refused(1, odd));
  r.pool.take_back(1, home);
  CHECK(r.pool.table().state(3).phase == SM_LIVE);
  CHECK(is_refused([&] { r.pool.take_back(1, home); }));  // a second time
}

TEST(nothing_is_taken_from_an_order_that_cannot_be_one) {
  Remote r(test::async_of(4, 4, 1), {0});
  r.send({0, 1}, test::kGoOn);
  const std::vector<std::byte> good = r.pack(0, 2);
  ActionTable& table = r.place(0).pool().table();
  const EnvRows orders(table, r.pool.spec());
  CHECK(is_refused([&] { orders.envs({}, 4); }));
  CHECK(is_refused([&] { orders.envs(std::span(good).first(good.size() - 1), 4); }));
  CHECK(is_refused([&] { orders.envs(good, 1); }));  // more envs than there are
  std::vector<std::byte> twice = good;
  const std::int32_t zero = 0;
  std::memcpy(twice.data() + orders.bytes(1), &zero, sizeof(zero));
  CHECK(is_refused([&] { orders.envs(twice, 4); }));
  CHECK(table.reset_request(0).has_seed == 0);
  CHECK(orders.envs(good, 4) == (Ids{0, 1}));
  orders.unpack(good, Ids{0, 1});
  CHECK(table.reset_request(0).has_seed == 1);
}

// ---- whole parcels -----------------------------------------------------------------------------

std::vector<std::byte> parcel_of(std::size_t row_bytes, std::span<const Enclosure> enclosures, std::int32_t spare) {
  std::vector<std::byte> out(Parcel::bytes(row_bytes, enclosures));
  std::ranges::fill(Parcel::pack(out, row_bytes, enclosures, spare), std::byte{7});
  return out;
}

TEST(a_parcel_brings_what_was_packed) {
  const std::vector<std::byte> note(3, std::byte{1});
  const Fault fault{1, SM_IN_OBSERVE, 5, 4, 3, "it broke", Fault::kLate};
  const std::vector<std::byte> described = packed(fault);
  const std::vector<Enclosure> enclosures = {
      {0, Enclosure::kNote, note}, {1, Enclosure::kFault, described}, {1, Enclosure::kOptions, {}}};
  const std::vector<std::byte> bytes = parcel_of(5, enclosures, 9);
  const Parcel parcel(bytes, 2);
  CHECK(parcel.spare() == 9);
  CHECK(parcel.rows().size() == 5u);
  CHECK(std::ranges::all_of(parcel.rows(), [](std::byte one) { return one == std::byte{7}; }));
  CHECK(parcel.enclosures().size() == 3u);
  CHECK(std::ranges::equal(parcel.enclosures()[0].content, note));
  CHECK(parcel.enclosures()[2].kind == Enclosure::kOptions);
  const Fault read = read_fault(parcel.enclosures()[1]);
  CHECK(read.env == 1);
  CHECK(read.phase == SM_IN_OBSERVE);
  CHECK(read.episode == 5);
  CHECK(read.step == 4);
  CHECK(read.failures == 3);
  CHECK(read.message == "it broke");
  CHECK(read.kind == Fault::kLate);
}

TEST(a_parcel_that_was_cut_or_changed_is_refused) {
  const std::vector<std::byte> note(3, std::byte{1});
  const std::vector<Enclosure> enclosures = {{0, Enclosure::kNote, note}, {1, Enclosure::kObjects, note}};
  const std::vector<std::byte> good = parcel_of(5, enclosures, 0);
  const auto refused = [](std::span<const std::byte> bytes, std::int32_t envs = 2) {
    return is_refused([&] { Parcel(bytes, envs); });
  };
  for (std::size_t size = 0; size < good.size(); ++size) CHECK(refused(std::span(good).first(size)));
  CHECK(refused(good, 1));  // fewer envs than one of them says
  std::vector<std::byte> longer = good;
  longer.push_back(std::byte{0});
  CHECK(refused(longer));
  for (std::size_t at = 0; at < 8; ++at) {  // the number of bytes of the rows
    std::vector<std::byte> odd = good;
    odd[at] = std::byte{0xff};
    CHECK(refused(odd));
  }
  CHECK(is_refused([&] { read_fault({0, Enclosure::kFault, note}); }));
}

// Flags become arrays of bool, and a bool that is neither 0 nor 1 reads outside of memory.
TEST(flags_are_0_or_1) {
  Remote r(test::async_of(2, 2, 1), {0});
  r.send({0, 1}, test::kGoOn);
  r.carry_out(0);
  std::vector<std::byte> answer = r.place(0).give(2, r.pool, 0);
  const BatchLayout layout(test::obedient_spec(), 2, false, false);
  Columns columns;
  std::byte* rows = answer.data() + answer.size() - layout.bytes();
  layout.fill(columns, rows);
  columns.c.terminated[0] = 2;
  columns.c.truncated[1] = 255;
  columns.c.info_present[1] = 4;
  r.pool.unpack(0, answer);
  const Batch batch = r.take();
  CHECK(batch.terminated[0] == 1);
  CHECK(batch.truncated[1] == 1);
  CHECK(batch.buffer->columns.c.info_present[1] == 1);
  r.drop(batch);
}

}  // namespace stepmill::remote_pool_test
