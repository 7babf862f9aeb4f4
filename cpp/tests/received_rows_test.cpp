#include "core/received_rows.h"

#include "tests/check.h"
#include "tests/obedient_env.h"

namespace stepmill::received_rows_test {

struct Written {
  explicit Written(std::int32_t rows) : store(arena, BatchLayout(test::obedient_spec(), rows, false, false)) {
    batch.buffer = store.acquire();
    batch.rows = rows;
  }
  ~Written() { store.release(batch.buffer); }

  const std::shared_ptr<Arena> arena = Arena::create(Arena::Kind::kPrivate);
  BufferStore store;
  Batch batch;
};

// Whatever stands in a flag, numpy must find 0 or 1 there, and nobody can change it any more.
TEST(flags_are_copied_as_zero_or_one) {
  Written w(3);
  sm_columns& c = w.batch.buffer->columns.c;
  const std::uint8_t written[] = {0, 1, 200};
  for (int row = 0; row < 3; ++row) {
    c.terminated[row] = written[row];
    c.truncated[row] = written[2 - row];
    c.ended[row] = 0;
  }
  ReceivedRows received(3, 1);
  for (int row = 0; row < 3; ++row) received.set_env(row, 2 - row);
  received.put_into(w.batch);
  for (int row = 0; row < 3; ++row) c.terminated[row] = 77;
  for (int row = 0; row < 3; ++row) {
    CHECK(w.batch.env_id[row] == 2 - row);
    CHECK(w.batch.terminated[row] == (row != 0));
    CHECK(w.batch.truncated[row] == (row != 2));
    CHECK(w.batch.ended[row] == 0);
  }
  CHECK(w.batch.any_ended == false);
  c.ended[1] = 4;
  received.put_into(w.batch);
  CHECK(w.batch.any_ended == true);
}

TEST(flags_of_players_are_copied_without_bits_that_mean_nothing) {
  EnvSpec spec = test::obedient_spec();
  spec.max_num_players = 3;
  const std::shared_ptr<Arena> arena = Arena::create(Arena::Kind::kPrivate);
  BufferStore store(arena, BatchLayout(spec, 2, false, false));
  Batch batch;
  batch.buffer = store.acquire();
  batch.rows = 2;
  sm_columns& c = batch.buffer->columns.c;
  for (int row = 0; row < 2; ++row) c.terminated[row] = c.truncated[row] = c.ended[row] = 0;
  const std::uint8_t written[] = {0, 1, 255, 3, 8, 5};
  const std::uint8_t expected[] = {0, 1, 7, 3, 0, 5};
  for (int i = 0; i < 6; ++i) c.players[i] = written[i];
  ReceivedRows received(2, 3);
  received.put_into(batch);
  for (int i = 0; i < 6; ++i) CHECK(batch.players[i] == expected[i]);
  for (int i = 3; i < 6; ++i) c.players[i] = 1;
  received.spoil(c, 1);
  for (int i = 0; i < 6; ++i) CHECK(batch.players[i] == (i < 3 ? expected[i] : 1));
  store.release(batch.buffer);
}

TEST(a_row_that_is_spoiled_is_truncated) {
  Written w(2);
  sm_columns& c = w.batch.buffer->columns.c;
  for (int row = 0; row < 2; ++row) c.terminated[row] = c.ended[row] = 1, c.truncated[row] = 0;
  ReceivedRows received(2, 1);
  received.put_into(w.batch);
  received.spoil(c, 1);
  CHECK(w.batch.terminated[0] == 1);
  CHECK(w.batch.truncated[0] == 0);
  CHECK(w.batch.ended[0] == 1);
  CHECK(w.batch.terminated[1] == 0);
  CHECK(w.batch.truncated[1] == 1);
  CHECK(w.batch.ended[1] == 0);
}

}  // namespace stepmill::received_rows_test
