#include "core/env/state.h"

#include "core/env_set.h"
#include "core/table_of.h"
#include "envs/toy/frozen_lake.h"
#include "tests/check.h"

namespace stepmill::state_test {
namespace {

template <class F>
std::string error_of(F body) {
  try {
    body();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

// An env whose states can be refused after a part of them was taken.
class Picky {
 public:
  static EnvSpec spec(const Config&) { return {}; }
  explicit Picky(const Config&) {}
  void reset(Rng&, const Options&) {}
  Outcome step(const ActionRow&, Rng&) { return {}; }
  void observe(const Row&) const {}

  void save(Writer& to) const { to.put(words_, number_); }
  void load(Reader& from) {
    from.take(words_);
    if (words_ == "no") throw std::runtime_error("not this one");
    from.take(number_);
  }

 private:
  std::string words_ = "yes";
  std::int64_t number_ = 7;
};

std::vector<std::byte> written(const std::string& words, std::int64_t number) {
  std::vector<std::byte> out;
  Writer to(&out, add_bytes);
  to.put(Rng(3).state(), std::int64_t{1}, words, number);
  return out;
}

}  // namespace

TEST(values_come_back_in_their_order) {
  std::vector<std::byte> bytes;
  Writer to(&bytes, add_bytes);
  const double many[] = {1.5, -2.5};
  to.put(std::int32_t{3}, std::string("a text"), true, std::string());
  to.put_array(many, 2);

  Reader from(bytes.data(), std::ssize(bytes));
  std::int32_t number = 0;
  std::string text, empty = "x";
  bool flag = false;
  double got[2] = {};
  from.take(number, text, flag, empty);
  from.take_array(got, 2);
  CHECK(number == 3);
  CHECK(text == "a text");
  CHECK(flag);
  CHECK(empty.empty());
  CHECK(got[0] == 1.5);
  CHECK(got[1] == -2.5);
  CHECK(from.left() == 0u);
  from.finish();
}

TEST(a_state_that_ends_too_soon_is_refused) {
  std::vector<std::byte> bytes;
  Writer to(&bytes, add_bytes);
  to.put(std::string("text"));
  for (std::int64_t size = 0; size < std::ssize(bytes); ++size) {
    std::string text;
    CHECK(error_of([&] { Reader(bytes.data(), size).take(text); }) == "a state that ends too soon");
  }
  const std::uint64_t huge = ~std::uint64_t{0};
  std::memcpy(bytes.data(), &huge, sizeof(huge));
  std::string text;
  CHECK(error_of([&] { Reader(bytes.data(), std::ssize(bytes)).take(text); }) == "a state that ends too soon");
  CHECK(error_of([&] { Reader(bytes.data(), 1).finish(); }) == "a state that goes on after its end");
}

TEST(an_env_that_refuses_its_state_can_be_given_what_it_was) {
  EnvSet envs(*table_of<Picky>("Picky"), std::vector<Config>(1));
  std::vector<std::byte> before, after;
  envs.save(0, before);
  for (const auto& bad : {written("no", 1), std::vector<std::byte>(3), [] {
         auto longer = written("maybe", 1);
         longer.push_back({});
         return longer;
       }()}) {
    CHECK(!error_of([&] { envs.load(0, bad); }).empty());
    envs.load(0, before);
    after.clear();
    envs.save(0, after);
    CHECK(before == after);
  }
  envs.load(0, written("maybe", 2));
  after.clear();
  envs.save(0, after);
  CHECK(after == written("maybe", 2));
}

TEST(only_classes_that_say_how_can_be_saved) {
  struct Silent {
    static EnvSpec spec(const Config&) { return {}; }
    explicit Silent(const Config&) {}
    void reset(Rng&, const Options&) {}
    Outcome step(const ActionRow&, Rng&) { return {}; }
    void observe(const Row&) const {}
  };
  CHECK(!EnvSet(*table_of<Silent>("Silent"), std::vector<Config>(1)).can_save());
  const sm_env_table& lake = *table_of<FrozenLake>("FrozenLake");
  CHECK(EnvSet(lake, std::vector<Config>{default_config(lake)}).can_save());
}

}  // namespace stepmill::state_test
