// Lives of two workers with two envs each, without any process: what a worker would write is written here.
#include "core/process/worker_roster.h"

#include <poll.h>
#include <signal.h>

#include <array>

#include "tests/check.h"
#include "tests/obedient_env.h"

namespace stepmill::worker_roster_test {

constexpr std::int32_t kEnvs = 4, kWorkers = 2;
constexpr std::array<std::int32_t, kWorkers> kFirstEnvs{0, 2};

struct Books {
  Books() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
    const Descriptor reads(ends[0]);
    writes = Descriptor(ends[1]);
    roster.emplace(kEnvs, kFirstEnvs, checks, asked, reads.get());
  }

  static TableOptions table() {
    TableOptions out;
    out.num_envs = kEnvs;
    return out;
  }

  // A life whose end a test can see: the other end of its pidfd, which is a pipe's, is closed.
  static WorkerRoster::Life life(int pid, Descriptor* other_end = nullptr) {
    WorkerRoster::Life out;
    out.pid = pid;
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
    out.pidfd = Descriptor(ends[1]);
    const Descriptor reads(ends[0]);
    if (other_end) *other_end = Descriptor::duplicate(reads.get());
    return out;
  }
  void announce(std::int32_t worker, std::uint32_t number) { tables.worker(worker).ready.store(number); }
  void write_obituary(std::int32_t worker, std::int32_t incarnation, std::int32_t code) {
    const std::array<std::int32_t, 3> one{worker, incarnation, code};
    CHECK(write(writes.get(), one.data(), sizeof one) == static_cast<ssize_t>(sizeof one));
  }
  void read_obituaries() { roster->read_obituaries(POLLIN); }
  std::string message(std::int32_t worker) { return roster->why_ended(worker).message; }

  const EnvSpec spec = test::obedient_spec();
  ProcessTables tables{spec, table(), kEnvs, {kWorkers, false}};
  std::vector<std::uint64_t> memory = std::vector<std::uint64_t>(tables.bytes() / 8 + 32);
  SlotRing ring{(tables.attach(reinterpret_cast<std::byte*>(align_up(reinterpret_cast<std::size_t>(memory.data()), 128))),
                 tables.slot_ring()),
                kEnvs, kEnvs};
  const ProcessChecks checks{kEnvs, tables, ring};
  std::vector<Asked> asked = std::vector<Asked>(kEnvs);
  Descriptor writes;
  std::optional<WorkerRoster> roster;
};

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

TEST(every_env_has_the_worker_that_runs_it) {
  Books books;
  for (std::int32_t env = 0; env < kEnvs; ++env) CHECK(books.roster->worker_of(env) == env / 2);
  CHECK(books.roster->crew(1).first == 2);
  CHECK(books.roster->crew(1).end() == 4);
  CHECK(books.roster->all_ended());
}

TEST(workers_have_as_many_envs_as_they_are_given) {
  Books books;
  const std::array<std::int32_t, 3> first{0, 1, 3};
  const WorkerRoster roster(kEnvs, first, books.checks, books.asked, books.writes.get());
  CHECK(roster.num_workers() == 3);
  for (const auto& [env, worker] : {std::pair{0, 0}, std::pair{1, 1}, std::pair{2, 1}, std::pair{3, 2}})
    CHECK(roster.worker_of(env) == worker);
  CHECK(roster.crew(1).first == 1);
  CHECK(roster.crew(1).count == 2);
  CHECK(roster.crew(2).end() == kEnvs);
}

TEST(a_life_is_called_for_once_and_serves_when_it_is_admitted) {
  Books books;
  WorkerRoster& roster = *books.roster;
  CHECK(!roster.wants_attention());
  CHECK(roster.call_for(2) == 1u);
  CHECK(roster.call_for(3) == 1u);
  CHECK(roster.wants_attention());
  const auto wanted = roster.to_restart();
  CHECK(wanted.size() == 1u);
  CHECK(wanted.at(0).first == 1);
  CHECK(wanted.at(0).second == 1u);
  roster.admit(1, 1, books.life(10));
  CHECK(!roster.wants_attention());
  CHECK(roster.call_for(2) == 1u);
  CHECK(!roster.all_ended());
  CHECK(roster.crew(1).restarts == 0u);
}

TEST(numbers_are_those_that_env_words_hold) {
  Books books;
  books.roster->admit(0, 0x1000005, books.life(10));
  CHECK(books.roster->call_for(0) == 5u);
  CHECK(books.roster->crew(0).next == 0x1000006u);
  CHECK(books.roster->crew(0).next_number() == 6u);
  CHECK(books.roster->crew(0).restarts == 1u);
}

TEST(a_life_that_is_retired_may_write_until_it_is_removed) {
  Books books;
  WorkerRoster& roster = *books.roster;
  Descriptor other_end;
  roster.admit(0, 1, books.life(10, &other_end));
  roster.retire(0, roster.why_ended(0), true);
  CHECK(roster.crew(0).life.number == 0u);
  CHECK(roster.may_live(0, 1));
  CHECK(roster.may_live(0, 2));  // which is to come
  CHECK(!roster.may_live(0, 3));
  CHECK(!roster.all_ended());
  pollfd its{other_end.get(), POLLIN, 0};
  CHECK(poll(&its, 1, 0) == 0);
  roster.remove(0, 1);
  CHECK(!roster.may_live(0, 1));
  CHECK(roster.all_ended());
  CHECK(poll(&its, 1, 0) == 1);  // its descriptors are closed
}

TEST(only_a_worker_that_had_started_is_started_again) {
  Books books;
  WorkerRoster& roster = *books.roster;
  roster.admit(0, 1, books.life(10));
  roster.admit(1, 1, books.life(11));
  books.announce(1, 1);
  roster.retire(0, Fault{}, true);
  CHECK(!roster.wants_attention());
  roster.retire(1, Fault{}, true);
  CHECK(roster.wants_attention());
  CHECK(!roster.crew(0).wanted);
  CHECK(roster.crew(1).wanted);
  roster.admit(1, 2, books.life(12));
  books.announce(1, 2);
  roster.retire(1, Fault{}, false);  // as where the pool stops
  CHECK(!roster.wants_attention());
}

TEST(an_env_that_runs_shows_that_its_worker_has_started) {
  Books books;
  WorkerRoster::Life life = books.life(10);
  life.start_deadline = 1;
  books.roster->admit(0, 1, std::move(life));
  CHECK(books.roster->start_deadline(0) == 1u);
  books.asked[1].epoch = 1;
  books.asked[1].incarnation = 1;
  books.tables.word(1).store(EnvWord{1, 1, Stage::kQueued}.pack());
  CHECK(books.roster->start_deadline(0) == 1u);
  books.tables.word(1).store(EnvWord{1, 1, Stage::kRunning}.pack());
  CHECK(books.roster->start_deadline(0) == 0u);
}

TEST(one_that_could_not_be_started_is_gone_at_once) {
  Books books;
  WorkerRoster& roster = *books.roster;
  roster.call_for(0);
  roster.record_failed_start(0, 1);
  roster.retire(0, Fault{}, false);
  roster.remove(0, 1);
  CHECK(roster.all_ended());
  CHECK(!roster.wants_attention());
  CHECK(roster.call_for(0) == 2u);
}

TEST(a_successor_is_no_restart_and_a_number_that_was_skipped_does_not_come) {
  Books books;
  WorkerRoster& roster = *books.roster;
  roster.admit(0, 1, books.life(10));
  books.announce(0, 1);
  roster.skip(0, 2);
  CHECK(roster.crew(0).next == 3u);
  roster.skip(0, 2);  // once
  CHECK(roster.crew(0).next == 3u);
  roster.retire(0, Fault{}, true);
  CHECK(roster.wants_attention());
  roster.admit_successor(0, 3, books.life(12));
  CHECK(!roster.wants_attention());
  CHECK(roster.crew(0).life.number == 3u);
  CHECK(roster.crew(0).restarts == 0u);
  CHECK(roster.crew(0).next == 4u);
}

TEST(a_life_is_condemned_once) {
  Books books;
  WorkerRoster& roster = *books.roster;
  Fault reason;
  reason.message = "the first reason";
  CHECK(!roster.condemn(0, reason));  // there is none
  roster.admit(0, 1, books.life(10));
  CHECK(roster.condemn(0, reason));
  CHECK(!roster.condemn(0, Fault{}));
  const auto taken = roster.take_condemned(0);
  CHECK(taken.has_value());
  CHECK(taken->message == "the first reason");
  CHECK(!roster.take_condemned(0).has_value());
}

TEST(an_obituary_tells_how_a_life_ended) {
  Books books;
  books.roster->admit(0, 1, books.life(10));
  books.announce(0, 1);
  CHECK(ends_with(books.message(0), "(pid 10) ended"));
  books.write_obituary(0, 1, 3);
  books.write_obituary(7, 1, 3);  // no such worker
  books.read_obituaries();
  CHECK(ends_with(books.message(0), "exited with code 3"));
  books.write_obituary(0, 1, -SIGSEGV);
  books.read_obituaries();
  CHECK(ends_with(books.message(0), "was killed by SIGSEGV"));
}

TEST(an_obituary_may_come_before_its_life_is_admitted) {
  Books books;
  books.write_obituary(0, 1, 9);
  books.write_obituary(1, 1, 4);
  books.read_obituaries();
  books.roster->admit(0, 1, books.life(10));
  CHECK(ends_with(books.message(0), "exited with code 9 while it was starting"));
  books.roster->admit(1, 2, books.life(11));  // another one than was meant
  CHECK(ends_with(books.message(1), "(pid 11) ended while it was starting"));
}

TEST(who_waits_for_an_obituary_stops_when_it_comes_or_cannot_come) {
  Books books;
  std::mutex mutex;
  WorkerRoster::Lock lock(mutex);
  bool quit = false;
  books.roster->admit(0, 1, books.life(10));
  books.write_obituary(0, 1, 3);
  books.roster->await_obituary(lock, 0, 1, quit);
  CHECK(lock.owns_lock());
  CHECK(books.roster->crew(0).life.code == std::optional<int>(3));
  books.roster->admit(1, 1, books.life(11));
  quit = true;
  books.roster->await_obituary(lock, 1, 1, quit);  // at once
  quit = false;
  books.writes = Descriptor();  // what starts workers is gone
  books.roster->await_obituary(lock, 1, 1, quit);
  CHECK(!books.roster->crew(1).life.code.has_value());
  books.roster->read_obituaries(POLLHUP);
  CHECK(books.roster->obituaries() == -1);
}

TEST(a_worker_stands_still_where_what_it_has_to_do_does_not_change) {
  Books books;
  books.roster->admit(0, 1, books.life(10));
  books.announce(0, 1);
  CHECK(books.roster->stands_still_for(0) == 0u);  // nothing to do
  books.asked[0].epoch = 1;
  books.asked[0].incarnation = 1;
  const auto at = [&](Stage stage) { books.tables.word(0).store(EnvWord{1, 1, stage}.pack()); };
  at(Stage::kQueued);
  CHECK(books.roster->stands_still_for(0) == 0u);  // that is new
  while (books.roster->stands_still_for(0) == 0u) {}  // it does, as soon as the clock goes on
  at(Stage::kRunning);
  CHECK(books.roster->stands_still_for(0) == 0u);  // which may take long
  CHECK(books.roster->stands_still_for(0) == 0u);
  at(Stage::kWriting);
  CHECK(books.roster->stands_still_for(0) == 0u);
  while (books.roster->stands_still_for(0) == 0u) {}  // it does, as soon as the clock goes on
}

}  // namespace stepmill::worker_roster_test
