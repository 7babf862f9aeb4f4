// Which of its env's own infos a row has, in every mode and wherever the row lies.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "tests/check.h"
#include "tests/rows.h"

namespace stepmill::row_infos_test {

using test::FaultRecord;

enum Order : std::int64_t { kGoOn, kEnd, kFailInStep, kFailInObserve, kEndAndFailInObserve, kEndThenFailAfterReset, kOrders };

// Tells when it was born after a reset and its age after a step, and always its name. Where it fails in `observe`, it
// has asked for its infos before.
class Teller {
 public:
  static EnvSpec spec(const Config&) {
    EnvSpec spec;
    spec.observation = {box<float>({1}, {0.0}, {1.0})};
    spec.action = {discrete(kOrders)};
    spec.info = {box<std::int32_t>({}, {0.0}, {1e9}, "born"), box<double>({3}, {0.0}, {1e9}, "age"),
                 box<std::uint8_t>({}, {0.0}, {255.0}, "name")};
    return spec;
  }
  explicit Teller(const Config&) {}

  void reset(Rng&, const Options&) {
    age_ = 0;
    fails_ = order_ == kEndThenFailAfterReset;
    order_ = kGoOn;
  }
  Outcome step(const ActionRow& action, Rng&) {
    order_ = action.index();
    if (order_ == kFailInStep) throw std::runtime_error("ordered to fail in step");
    age_ += 1;
    fails_ = order_ == kFailInObserve || order_ == kEndAndFailInObserve;
    return {1.0, order_ == kEnd || order_ >= kEndAndFailInObserve, false};
  }
  void observe(const Row& row) const {
    *row.observation<float>() = 0.5f;
    if (age_ == 0)
      *row.info<std::int32_t>(0) = 7;
    else
      std::fill_n(row.info<double>(1), 3, age_);
    *row.info<std::uint8_t>(2) = 'T';
    if (fails_) throw std::runtime_error("ordered to fail in observe");
  }

 private:
  std::int64_t order_ = kGoOn;
  double age_ = 0;
  bool fails_ = false;
};

class StepsTogether : public Teller {
 public:
  using Teller::Teller;
  static void step_many(Turns<StepsTogether>& turns) noexcept {
    for (int i = 0; i < turns.size(); ++i) turns.outcome(i) = turns.env(i).step(turns.action(i), turns.rng(i));
  }
};

// One env whose row is the middle one of three, in a buffer that has been used before.
class Rows {
 public:
  Rows(const sm_env_table& table, sm_autoreset mode, bool claims)
      : spec_(Teller::spec({})),
        arena_(Arena::create(Arena::Kind::kPrivate)),
        table_(*arena_, spec_, {1, 0, mode, false, false}),
        envs_(table, std::vector<Config>(1)),
        layout_(spec_, 3, mode == SM_SAME_STEP, false),
        memory_(layout_.bytes()),
        claims_(claims) {
    layout_.fill(columns_, memory_.data());
  }

  // The infos of the row after this action: b(orn), a(ge), n(ame). Behind a colon those of the end, if the row has one.
  std::string step(std::int64_t order) {
    *reinterpret_cast<std::int64_t*>(table_.action(0)) = order;
    return advance();
  }
  std::string reset() { return command(SM_RESET); }
  std::string look() { return command(SM_OBSERVE); }
  const sm_columns& c() const { return columns_.c; }

 private:
  std::string command(sm_command what) {
    table_.state(0).command = what;
    return advance();
  }

  std::string advance() {
    std::fill(memory_.begin(), memory_.end(), std::byte{0xab});
    const std::int32_t env = 0;
    sm_job job{};
    job.shared = &table_.shared();
    job.env = &env;
    job.count = 1;
    job.first_row = 1;
    job.context = this;
    if (!claims_) job.columns = &columns_.c;
    job.claim = [](void* self, std::int32_t) -> sm_place { return {&static_cast<Rows*>(self)->columns_.c, 1}; };
    job.fault = [](void*, std::int32_t, std::int32_t, const char*) {};
    envs_.advance(job);
    for (const std::int64_t other : {0, 2}) CHECK(letters(c().info_present, other) == "???");
    std::string out = letters(c().info_present, 1);
    if (c().final_info_present && c().ended[1]) out += ":" + letters(c().final_info_present, 1);
    return out;
  }

  static std::string letters(const std::uint8_t* present, std::int64_t row) {
    std::string out;
    for (int leaf = 0; leaf < 3; ++leaf) {
      const std::uint8_t has = present[row * 3 + leaf];
      out += has > 1 ? '?' : has ? "ban"[leaf] : '-';
    }
    return out;
  }

  const EnvSpec spec_;
  const std::shared_ptr<Arena> arena_;
  ActionTable table_;
  EnvSet envs_;
  const BatchLayout layout_;
  std::vector<std::byte> memory_;
  Columns columns_;
  const bool claims_;
};

// Rows of these modes, in all the ways that a row can come about.
template <class F>
void for_all(std::initializer_list<sm_autoreset> modes, F check) {
  for (const sm_autoreset mode : modes)
    for (const sm_env_table* table : {table_of<Teller>("Teller"), table_of<StepsTogether>("StepsTogether")})
      for (const bool claims : {false, true}) {
        Rows rows(*table, mode, claims);
        check(rows);
      }
}

TEST(a_row_has_the_infos_that_its_env_asks_for) {
  for_all({SM_NEXT_STEP, SM_SAME_STEP, SM_DISABLED}, [](Rows& rows) {
    CHECK(rows.step(kGoOn) == "b-n");  // the first action is a reset
    CHECK(static_cast<std::int32_t*>(rows.c().info[0])[1] == 7);
    CHECK(rows.step(kGoOn) == "-an");
    CHECK(static_cast<double*>(rows.c().info[1])[5] == 1.0);
    CHECK(rows.reset() == "b-n");
  });
}

TEST(an_end_has_the_infos_of_a_step) {
  for_all({SM_NEXT_STEP, SM_DISABLED}, [](Rows& rows) {
    rows.reset();
    CHECK(rows.step(kEnd) == "-an");
    CHECK(rows.reset() == "b-n");
  });
  for_all({SM_NEXT_STEP}, [](Rows& rows) {
    rows.reset();
    rows.step(kEnd);
    CHECK(rows.step(kGoOn) == "b-n");
  });
}

TEST(with_same_step_an_end_has_the_infos_of_both) {
  for_all({SM_SAME_STEP}, [](Rows& rows) {
    rows.reset();
    rows.step(kGoOn);
    CHECK(rows.step(kEnd) == "b-n:-an");
    CHECK(static_cast<double*>(rows.c().final_info[1])[3] == 2.0);
    CHECK(rows.step(kGoOn) == "-an");
  });
}

TEST(a_failure_has_no_infos) {
  for_all({SM_NEXT_STEP, SM_SAME_STEP, SM_DISABLED}, [](Rows& rows) {
    for (const std::int64_t order : {kFailInObserve, kEndAndFailInObserve}) {
      rows.reset();
      CHECK(rows.step(order) == "---");
      CHECK(rows.c().truncated[1] == 1);
    }
  });
  for (const sm_autoreset mode : {SM_NEXT_STEP, SM_SAME_STEP, SM_DISABLED})
    for (const bool claims : {false, true}) {
      Rows rows(*table_of<Teller>("Teller"), mode, claims);
      rows.reset();
      CHECK(rows.step(kFailInStep) == "---");
    }
  for_all({SM_NEXT_STEP}, [](Rows& rows) {
    rows.reset();
    rows.step(kEndThenFailAfterReset);
    CHECK(rows.step(kGoOn) == "---");
    CHECK(rows.step(kGoOn) == "b-n");
  });
}

TEST(an_end_whose_reset_failed_has_the_infos_of_the_end) {
  for_all({SM_SAME_STEP}, [](Rows& rows) {
    rows.reset();
    CHECK(rows.step(kEndThenFailAfterReset) == "-an:-an");
    CHECK(static_cast<double*>(rows.c().info[1])[4] == 1.0);
  });
}

// Like an env that a masked reset leaves alone in Gymnasium.
TEST(a_look_has_no_infos) {
  for_all({SM_NEXT_STEP, SM_SAME_STEP, SM_DISABLED}, [](Rows& rows) {
    rows.reset();
    rows.step(kGoOn);
    CHECK(rows.look() == "---");
    CHECK(rows.step(kGoOn) == "-an");
    rows.reset();
    CHECK(rows.look() == "---");
  });
}

}  // namespace stepmill::row_infos_test
