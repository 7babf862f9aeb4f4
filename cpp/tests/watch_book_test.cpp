#include "core/watch_book.h"

#include "tests/check.h"
#include "tests/obedient_env.h"

namespace stepmill::watch_book_test {

struct Row {
  std::int32_t env;
  double reward;
  std::int32_t elapsed;
  bool ended = false;
};

// A batch whose rows a test writes.
class Written {
 public:
  explicit Written(std::int32_t players = 1, bool is_float32 = false) : players_(players), is_float32_(is_float32) {
    EnvSpec spec = test::obedient_spec();
    spec.max_num_players = players;
    store_.emplace(arena_, BatchLayout(spec, 8, false, is_float32));
    batch_.buffer = store_->acquire();
  }
  ~Written() { store_->release(batch_.buffer); }

  // Each player of a row gets its reward; only the first two of them are there.
  void add_to(WatchBook& book, const std::vector<Row>& rows, const std::vector<Fault>& faults = {}) {
    sm_columns& c = batch_.buffer->columns.c;
    batch_.rows = static_cast<std::int32_t>(rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      c.env_id[i] = rows[i].env;
      c.elapsed_step[i] = rows[i].elapsed;
      c.ended[i] = rows[i].ended;
      c.episode_return[i] = 100.0 + rows[i].env;
      c.episode_length[i] = rows[i].elapsed;
      for (std::int32_t player = 0; player < players_; ++player) {
        const std::size_t at = i * static_cast<std::size_t>(players_) + static_cast<std::size_t>(player);
        if (is_float32_)
          static_cast<float*>(c.reward)[at] = static_cast<float>(rows[i].reward);
        else
          static_cast<double*>(c.reward)[at] = rows[i].reward;
        if (players_ > 1) c.players[at] = player < 2 ? SM_HAS_ROW : 0;
      }
    }
    batch_.env_id = c.env_id;
    batch_.ended = c.ended;
    batch_.players = players_ > 1 ? c.players : nullptr;
    book.add(batch_, players_, is_float32_, faults);
  }

 private:
  const std::int32_t players_;
  const bool is_float32_;
  const std::shared_ptr<Arena> arena_ = Arena::create(Arena::Kind::kPrivate);
  std::optional<BufferStore> store_;
  Batch batch_;
};

TEST(returns_add_up_from_the_reset_on) {
  WatchBook book(2);
  Written w;
  w.add_to(book, {{1, 5.0, 3}});
  CHECK(std::isnan(book.numbers(1).episode_return));  // its beginning was not seen
  w.add_to(book, {{0, 0.0, 0}, {1, 0.0, 0}});
  w.add_to(book, {{1, 2.0, 1}, {0, 1.0, 1}});
  w.add_to(book, {{1, 2.5, 2, true}});
  CHECK(book.numbers(0).episode_return == 1.0);
  CHECK(book.numbers(1).episode_return == 4.5);
  CHECK(book.numbers(1).elapsed == 2);
  CHECK(book.numbers(1).last_return == 101.0);
  CHECK(book.numbers(1).episodes == 1);
  CHECK(std::isnan(book.numbers(0).last_return));
}

TEST(the_last_rewards_are_those_of_steps) {
  for (const bool is_float32 : {false, true}) {
    WatchBook book(3);
    Written w(1, is_float32);
    for (int episode = 0; episode < 3; ++episode) {
      w.add_to(book, {{0, 0.0, 0}, {2, 0.0, 0}});
      w.add_to(book, {{2, 1.0, 1}, {0, -1.0, 1}});
      w.add_to(book, {{0, 2.0, 2, true}, {2, 3.0, 2, true}});
    }
    const std::int32_t envs[] = {2, 1, 0};
    const auto rewards = book.rewards(envs, 3);
    CHECK(rewards[0].values == (std::vector<float>{3.0f, 1.0f, 3.0f}));
    CHECK(rewards[0].ends == (std::vector<std::int32_t>{0, 2}));
    CHECK(rewards[1].values.empty());
    CHECK(rewards[2].values == (std::vector<float>{2.0f, -1.0f, 2.0f}));
    CHECK(book.rewards(envs, 100)[2].values.size() == 6u);
    CHECK(book.rewards(envs, 0)[2].values.empty());
  }
}

// `same_step`: the row of an end is already at the beginning of the next episode.
TEST(an_end_that_was_reset_at_once_keeps_its_reward) {
  WatchBook book(1);
  Written w;
  w.add_to(book, {{0, 0.0, 0}});
  w.add_to(book, {{0, 7.0, 0, true}});
  const std::int32_t envs[] = {0};
  CHECK(book.rewards(envs, 5)[0].values == std::vector<float>{7.0f});
  CHECK(book.numbers(0).episode_return == 0.0);
}

TEST(the_rewards_of_players_that_are_there_are_summed_up) {
  WatchBook book(1);
  Written w(3);
  w.add_to(book, {{0, 0.0, 0}});
  w.add_to(book, {{0, 1.5, 1}});
  CHECK(book.numbers(0).episode_return == 3.0);
}

TEST(it_never_grows_and_forgets_the_oldest) {
  WatchBook book(2);
  Written w;
  for (std::size_t i = 0; i < WatchBook::kFewestRows / 8 + 100; ++i)
    w.add_to(book, {{0, 1.0, 1}, {0, 2.0, 2}, {0, 3.0, 3}, {0, 4.0, 4}, {0, 5.0, 5}, {0, 6.0, 6}, {0, 7.0, 7}, {0, 8.0, 8, true}});
  const std::int32_t envs[] = {0, 1};
  const auto rewards = book.rewards(envs, 2 * WatchBook::kFewestRows);
  CHECK(rewards[0].values.size() == WatchBook::kFewestRows);
  CHECK(rewards[0].values.back() == 8.0f);
  CHECK(rewards[0].ends.back() == static_cast<std::int32_t>(WatchBook::kFewestRows) - 1);
  CHECK(book.recent().size() == WatchBook::kRecent);
}

TEST(returns_since_the_last_question_and_failures) {
  WatchBook book(2);
  Written w;
  Fault fault;
  fault.env = 1;
  w.add_to(book, {{0, 1.0, 1, true}, {1, 1.0, 1, true}}, {fault});
  const auto first = book.take_returns();
  CHECK(first.sum == 201.0);
  CHECK(first.count == 2);
  CHECK(book.take_returns().count == 0);
  CHECK(book.numbers(1).failures == 1);
  CHECK(book.numbers(0).failures == 0);
}

}  // namespace stepmill::watch_book_test
