// Every action accounted for: sends actions to worker processes, and holds every row that comes back against
// what it must be.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tests/check.h"
#include "tests/process/process_driver.h"
#include "tests/rows.h"

namespace stepmill::test {

// The envs of a pool once more, stepped one at a time in the test's own process: what rows must be. An env that
// is lost with its worker is built anew here too.
class Twins {
 public:
  explicit Twins(const ProcessDriverOptions& options)
      : options_(options),
        spec_(obedient_spec()),
        arena_(Arena::create(Arena::Kind::kPrivate)),
        table_(*arena_, spec_, options.table()),
        layout_(spec_, 1, options.autoreset == SM_SAME_STEP, false) {
    layout_.fill(columns_, arena_->at(arena_->grow(layout_.bytes(), kCacheLine)));
    for (std::int32_t env = 0; env < options.num_envs; ++env) envs_.push_back(build(env));
  }

  ActionTable& table() { return table_; }
  const sm_columns& columns() const { return columns_.c; }
  std::string row() const { return row_bytes(spec_, options_.table(), columns_.c, 0); }
  std::vector<FaultRecord> take_faults() { return std::exchange(faults_, {}); }

  void seed(std::int32_t env, std::uint64_t value) {
    table_.reset_request(env).seed = value;
    table_.reset_request(env).has_seed = 1;
  }
  void rebuild(std::int32_t env) { envs_[static_cast<std::size_t>(env)] = build(env); }

  void step(std::int32_t env, std::int64_t order) {
    reinterpret_cast<std::int64_t*>(table_.action(0))[env] = order;
    advance(env);
  }
  void reset(std::int32_t env) {
    table_.state(env).command = SM_RESET;
    advance(env);
  }

 private:
  std::unique_ptr<EnvSet> build(std::int32_t env) const {
    return std::make_unique<EnvSet>(steered_table(), steered_configs(env, 1, options_.work), env);
  }
  void advance(std::int32_t env) {
    faults_.clear();
    advance_one(*envs_[static_cast<std::size_t>(env)], table_, env, columns_.c, faults_);
  }

  const ProcessDriverOptions options_;
  const EnvSpec spec_;
  const std::shared_ptr<Arena> arena_;
  ActionTable table_;
  std::vector<std::unique_ptr<EnvSet>> envs_;
  const BatchLayout layout_;
  Columns columns_;
  std::vector<FaultRecord> faults_;
};

class Ledger {
 public:
  explicit Ledger(Processes& processes, std::uint32_t seed = 1)
      : random(seed),
        p_(processes),
        twins_(processes.options),
        members_(static_cast<std::size_t>(processes.options.num_envs)) {
    excused_.resize(static_cast<std::size_t>(p_.options.num_workers));
    idle_ = all_of(p_.options.num_envs);
    for (std::int32_t env = 0; env < p_.options.num_envs; ++env) {
      twins_.seed(env, static_cast<std::uint64_t>(env));
      member(env).last = nothing();
    }
  }
  ~Ledger() {
    for (const Held& held : held_) Processes::drop(held.batch);
  }
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  struct Result {
    std::int32_t env;
    std::optional<Fault> fault;  // why the row is abnormal
    bool is_reset;               // it was sent as one
    bool lost() const { return fault && fault->kind != Fault::kRaised; }
  };

  // A worker's envs may each come back abnormal once more.
  void excuse(std::int32_t worker, int times = 1) { excused_[static_cast<std::size_t>(worker)] += times; }
  int lost(std::int32_t env) { return member(env).lost; }
  // Good rows since the env was built, and in the life before.
  std::int32_t rows(std::int32_t env) { return member(env).rows; }
  std::int32_t rows_before(std::int32_t env) { return member(env).rows_before; }
  const Ids& idle() const { return idle_; }

  // ---- sending ----

  void send(Ids envs, std::int64_t order) {
    for (const std::int32_t env : envs) give(env, order);
    p_.pool->send(envs, false, false);
  }
  void send_reset(Ids envs, bool gather, bool seeded = true) {
    for (const std::int32_t env : envs) give_reset(env, seeded);
    if (gather) gathered_ = envs;
    p_.pool->send(envs, gather, gather);
  }
  // Any order, to all that are idle or to some; resets too, where these are wanted.
  void send_any(bool some, bool raise, bool resets = false) {
    Ids envs = idle_;
    std::shuffle(envs.begin(), envs.end(), random);
    if (some && !envs.empty()) envs.resize(1 + random() % envs.size());
    for (const std::int32_t env : envs)
      if (resets && random() % 3 == 0)
        give_reset(env, true);
      else
        give(env, any_order(raise));
    if (!envs.empty()) p_.pool->send(envs, false, false);
  }
  std::int64_t any_order(bool raise) {
    if (raise && random() % 12 == 0) return static_cast<std::int64_t>(random() % kOrders);
    return random() % 8 == 0 ? kTerminate : kGoOn;
  }

  // ---- receiving ----

  std::vector<Result> receive() {
    const std::int32_t expected = p_.pool->expected();
    const bool gathers = p_.pool->gathering();
    const Batch batch = p_.recv();
    CHECK(batch.rows == expected);
    std::vector<Result> results;
    bool any_ended = false;
    std::size_t faults = 0;
    for (std::int32_t row = 0; row < batch.rows; ++row) {
      const std::int32_t env = batch.buffer->columns.c.env_id[row];
      if (env < 0 || env >= p_.options.num_envs) throw std::runtime_error("a row of no env");
      CHECK(member(env).order != kNothing);  // each action once
      Result result{env, fault_of(env, faults), member(env).order == kReset};
      if (result.lost())
        check_lost(batch, row, *result.fault);
      else
        check_good(batch, row, result.fault);
      any_ended |= batch.buffer->columns.c.ended[row] != 0;
      member(env).order = kNothing;
      idle_.push_back(env);
      results.push_back(std::move(result));
    }
    CHECK(faults == p_.faults.size());  // and none of an env that is not here
    CHECK(batch.any_ended == any_ended);
    if (gathers) check_order(results);
    hold(batch);
    return results;
  }
  // What is ready, once so many rows are: of steps where only these count, as long as there are any on their way.
  std::vector<Result> receive_some(std::int32_t at_least, bool steps_only) {
    const bool gathers = p_.pool->gathering();
    const auto in_flight = std::count_if(members_.begin(), members_.end(),
                                         [](const Member& its) { return its.order != kNothing; });
    const auto steps = std::count_if(members_.begin(), members_.end(),
                                     [](const Member& its) { return its.order != kNothing && its.order != kReset; });
    p_.wait_for_some(at_least, steps_only);
    auto results = receive();
    if (gathers) return results;  // comes first, and as it is
    const auto come = std::count_if(results.begin(), results.end(),
                                    [](const Result& result) { return !result.is_reset; });
    if (steps_only && steps > 0)
      CHECK(come >= std::min<std::ptrdiff_t>(at_least, steps));
    else
      CHECK(std::ssize(results) >= std::min<std::ptrdiff_t>(at_least, in_flight));
    return results;
  }
  // The rows that are there when the first one has woken the caller, which waits in an event loop.
  std::vector<Result> receive_in_loop() {
    p_.wait_in_loop();
    return receive_some(1, false);
  }
  void drain() {
    while (p_.pool->in_flight_count() != 0) receive();
    CHECK(p_.pool->expected() == 0);
    for (const Member& its : members_) CHECK(its.order == kNothing);
  }

  std::mt19937 random;

 private:
  static constexpr std::int64_t kNothing = -1, kReset = -2;

  struct Member {
    std::int64_t order = kNothing;
    std::string mail;
    sm_env_state state_at_send{};
    sm_reset_request request_at_send{};
    std::string last;  // good observation
    std::int32_t rows = 0, rows_before = 0;
    int lost = 0;
    std::set<std::uint64_t> seeds;
  };
  struct Held {
    Batch batch;
    std::string bytes;
  };

  Member& member(std::int32_t env) { return members_[static_cast<std::size_t>(env)]; }
  TableOptions table_options() const { return p_.options.table(); }
  std::string nothing() const {
    std::size_t bytes = 0;
    for (const Leaf& leaf : p_.pool->spec().observation) bytes += static_cast<std::size_t>(leaf.row_bytes());
    return std::string(bytes, '\0');
  }
  std::string observation(void* const* columns, std::int64_t row) const {
    std::string out;
    for (std::size_t i = 0; i < p_.pool->spec().observation.size(); ++i) {
      const std::int64_t bytes = p_.pool->spec().observation[i].row_bytes();
      out.append(static_cast<const char*>(columns[i]) + row * bytes, static_cast<std::size_t>(bytes));
    }
    return out;
  }

  // The env is built anew, and goes on from where the pool says it stands.
  void rebuild(std::int32_t env, const sm_env_state& state, const sm_reset_request& request) {
    Member& its = member(env);
    twins_.rebuild(env);
    twins_.table().state(env) = state;
    twins_.table().reset_request(env) = request;
    its.rows_before = std::exchange(its.rows, 0);
    if (!p_.options.keep_last_observation) return;
    std::size_t at = 0;
    for (std::size_t i = 0; i < p_.pool->spec().observation.size(); ++i) {
      const auto bytes = static_cast<std::size_t>(p_.pool->spec().observation[i].row_bytes());
      std::memcpy(static_cast<char*>(twins_.table().shared().last_observation[i]) +
                      static_cast<std::size_t>(env) * bytes,
                  its.last.data() + at, bytes);
      at += bytes;
    }
  }

  void give(std::int32_t env, std::int64_t order) {
    Member& its = member(env);
    CHECK(its.order == kNothing);
    std::erase(idle_, env);
    its.order = order;
    its.state_at_send = p_.pool->table().state(env);
    its.state_at_send.command = order == kReset ? SM_RESET : SM_STEP;
    its.request_at_send = p_.pool->table().reset_request(env);
    its.mail.clear();
    if (random() % 9 == 0) {
      its.mail = std::string(random() % 40 == 0 ? 50'000 : 1 + random() % 300, static_cast<char>('A' + env % 26));
      p_.pool->set_mail(env, bytes_of(its.mail));
    }
    if (order != kReset) p_.write_order(env, order);
  }

  void give_reset(std::int32_t env, bool seeded) {
    if (seeded) {
      const std::uint64_t value = random();
      p_.seed(env, value);
      twins_.seed(env, value);
    }
    give(env, kReset);
    p_.pool->table().state(env).command = SM_RESET;
  }

  std::optional<Fault> fault_of(std::int32_t env, std::size_t& count) const {
    std::optional<Fault> found;
    for (const Fault& fault : p_.faults)
      if (fault.env == env) {
        CHECK(!found);
        found = fault;
        ++count;
      }
    return found;
  }

  void play(std::int32_t env) {
    if (member(env).order == kReset)
      twins_.reset(env);
    else
      twins_.step(env, member(env).order);
  }

  // What the env's own code gave, be it a failure.
  void check_good(const Batch& batch, std::int32_t row, const std::optional<Fault>& fault) {
    const sm_columns& c = batch.buffer->columns.c;
    const std::int32_t env = c.env_id[row];
    Member& its = member(env);
    const std::string got = row_bytes(p_.pool->spec(), table_options(), c, row);
    play(env);
    // A reset begins anew, also an env that was lost meanwhile.
    if (got != twins_.row() && its.order == kReset && excuses(env) > 0) {
      rebuild(env, its.state_at_send, its.request_at_send);
      play(env);
    }
    CHECK((got == twins_.row()) == true);
    const auto raised = twins_.take_faults();
    CHECK(raised.size() == (fault ? 1u : 0u));
    if (!raised.empty() && fault) CHECK(fault->phase == raised[0].phase);
    const sm_env_state &state = p_.pool->table().state(env), &expected = twins_.table().state(env);
    CHECK(state.phase == expected.phase);
    CHECK(state.elapsed == expected.elapsed);
    CHECK(state.episode == expected.episode);
    CHECK(state.failures == expected.failures);
    const std::string shows = observation(c.observation, row);
    double drawn;
    std::memcpy(&drawn, shows.data() + 2 * sizeof drawn, sizeof drawn);
    const std::string note = raised.empty() ? note_of(env, its.rows, drawn, its.mail) : raised[0].message;
    CHECK((p_.note(env) == note) == true);
    if (!fault || c.ended[row]) its.last = shows;  // an end is good, also where the reset after it failed
    its.rows += 1;
  }

  std::string shown_by_a_new_env(std::int32_t env) {
    rebuild(env, member(env).state_at_send, member(env).request_at_send);
    play(env);
    return observation(twins_.columns().observation, 0);
  }

  int excuses(std::int32_t env) { return excused_[static_cast<std::size_t>(p_.worker_of(env))] - member(env).lost; }

  // What the pool answered in its worker's place.
  void check_lost(const Batch& batch, std::int32_t row, const Fault& fault) {
    const sm_columns& c = batch.buffer->columns.c;
    const std::int32_t env = c.env_id[row];
    Member& its = member(env);
    CHECK(excuses(env) > 0);
    its.lost += 1;
    CHECK(fault.message.empty() == false);
    CHECK(fault.failures >= 1);
    CHECK(p_.note(env) == "");
    const bool stepped = its.state_at_send.phase == SM_LIVE && its.order != kReset;
    play(env);
    const std::string would_show = observation(twins_.columns().observation, 0);
    const std::string shows = observation(c.observation, row);
    if (c.ended[row]) {
      // The reset after a good end failed: the end stands.
      CHECK(p_.options.autoreset == SM_SAME_STEP);
      const sm_columns& r = twins_.columns();
      CHECK(stepped == true);
      CHECK(static_cast<double*>(c.reward)[row] == *static_cast<double*>(r.reward));
      CHECK(c.terminated[row] == *r.terminated);
      CHECK(c.truncated[row] == *r.truncated);
      CHECK(c.episode_return[row] == *r.episode_return);
      CHECK(c.episode_length[row] == *r.episode_length);
      CHECK((shows == observation(r.final_observation, 0)) == true);
      CHECK((observation(c.final_observation, row) == shows) == true);
      CHECK(c.info_present[row] == 1);
      CHECK(c.final_info_present[row] == 1);
    } else {
      CHECK(c.truncated[row] == 1);
      CHECK(c.terminated[row] == 0);
      CHECK(static_cast<double*>(c.reward)[row] == 0.0);
      CHECK(c.episode_return[row] == 0.0);
      CHECK(c.episode_length[row] == 0);
      CHECK(c.info_present[row] == 0);
      if (!p_.options.keep_last_observation)
        CHECK((shows == nothing()) == true);
      else if (shows != its.last && shows != would_show)  // it may have been good, its worker killed a little later
        CHECK((its.order == kReset && shows == shown_by_a_new_env(env)) == true);
    }
    its.last = p_.options.keep_last_observation ? shows : nothing();
    const sm_env_state& state = p_.pool->table().state(env);
    CHECK(state.phase == SM_ENDED);
    CHECK(state.command == SM_STEP);
    const sm_reset_request& request = p_.pool->table().reset_request(env);
    CHECK(request.has_seed == 1u);  // who begins anew plays other episodes
    if (request.seed != its.request_at_send.seed) CHECK(its.seeds.insert(request.seed).second);
    rebuild(env, state, request);
  }

  void check_order(const std::vector<Result>& results) {
    for (std::size_t i = 0; i < results.size(); ++i) CHECK(results[i].env == gathered_[i]);
  }

  // Some batches are held for a while: what was handed out must stay as it was.
  void hold(const Batch& batch) {
    if (random() % 2 == 0) {
      Processes::drop(batch);
    } else {
      held_.push_back({batch, bytes_of_batch(batch)});
    }
    while (held_.size() > 4) {
      CHECK((bytes_of_batch(held_.front().batch) == held_.front().bytes) == true);
      Processes::drop(held_.front().batch);
      held_.pop_front();
    }
  }
  std::string bytes_of_batch(const Batch& batch) const {
    std::string out;
    for (std::int32_t row = 0; row < batch.rows; ++row)
      out += row_bytes(p_.pool->spec(), table_options(), batch.buffer->columns.c, row);
    return out;
  }

  Processes& p_;
  Twins twins_;
  std::vector<Member> members_;
  std::vector<int> excused_;
  Ids idle_, gathered_;  // the latter as they were sent
  std::deque<Held> held_;
};

// One action of each env, and a batch.
inline std::vector<Ledger::Result> act(Ledger& ledger, const Ids& envs, std::int64_t order = kGoOn) {
  ledger.send(envs, order);
  return ledger.receive();
}

// A wait of any kind that is given up soon, and then one that is not.
inline void receive_some_kind(Processes& p, Ledger& ledger) {
  auto& random = ledger.random;
  if (random() % 4 == 0) {
    p.pool->be_content_with(1 + static_cast<std::int32_t>(random() % 4), random() % 2 == 0);
    if (!p.pool->ready()) p.pool->work_or_wait(std::chrono::microseconds(random() % 100));
  }
  ledger.receive_some(1 + static_cast<std::int32_t>(random() % 4), random() % 4 != 0);
}

}  // namespace stepmill::test
