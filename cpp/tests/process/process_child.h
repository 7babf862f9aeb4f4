// What runs in a worker process of a test, and the board on which the test says what a worker is to do at which
// point of the protocol (die, stop, wait) and sees how far a worker came.
#pragma once

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <iterator>
#include <memory>
#include <new>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/kill_points.h"
#include "core/process/process_pool.h"
#include "core/process/process_worker.h"
#include "tests/check.h"
#include "tests/obedient_env.h"
#include "tests/pool_driver.h"

namespace stepmill::test {

inline std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }
inline std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// ---- waiting -----------------------------------------------------------------------------------

// Nothing here takes a second: who waits this long waits for ever.
constexpr auto kLongEnough = std::chrono::seconds(20);

struct Hang : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Waits for what wakes nobody.
template <class F>
void until(const char* what, F holds) {
  const auto end = Clock::now() + kLongEnough;
  while (!holds()) {
    if (Clock::now() > end) throw Hang(std::string("waited in vain: ") + what);
    std::this_thread::yield();
  }
}

using Word = std::atomic<std::uint32_t>;

inline void raise_word(Word& word) {
  word.fetch_add(1, std::memory_order_seq_cst);
  futex_wake(word, 1 << 20, true);
}

// Until `word` is at least that.
inline void await_word(const char* what, Word& word, std::uint32_t least = 1) {
  const auto end = Clock::now() + kLongEnough;
  for (std::uint32_t seen; (seen = word.load(std::memory_order_seq_cst)) < least;) {
    if (Clock::now() > end) throw Hang(std::string("waited in vain: ") + what);
    futex_wait(word, seen, end - Clock::now(), true);
  }
}

// ---- what test and workers share ---------------------------------------------------------------

// At a point of the protocol, once.
struct Trap {
  enum Deed : std::uint32_t { kKill, kStop, kHold };
  std::int32_t worker;
  std::uint32_t life;
  Deed deed;
  char point[24];
  std::atomic<std::int32_t> passes;  // until then
  Word armed, reached, released;
  std::int32_t env;  // whose row it was, the how manieth in that life; -1 where no env has its turn yet
  std::int32_t row;
};

struct Board {
  static constexpr std::size_t kTraps = 16, kNames = 64, kName = 24, kCodes = 1024;

  Trap traps[kTraps];
  Word entered, open;          // the gate that envs and calls can be ordered to stand at
  Word published, refused;     // rows that workers wrote, and that the pool would not have
  Word name_count;             // points of the protocol that were passed
  char names[kNames][kName];
  Word code_count;             // workers that ended, and how: exit codes, or minus the signal
  std::int32_t codes[kCodes];

  static Board* make() {
    void* memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    return new (memory) Board{};
  }
  struct Unmap {
    void operator()(Board* board) const { munmap(board, sizeof(Board)); }
  };

  Trap& arm(Trap::Deed deed, std::int32_t worker, const std::string& point, std::int32_t pass = 1,
            std::uint32_t life = 1) {
    Trap* const trap = std::find_if(traps, traps + kTraps, [](const Trap& one) { return one.armed == 0; });
    if (trap == traps + kTraps) throw std::logic_error("more traps than the board has");
    trap->deed = deed;
    trap->worker = worker;
    trap->life = life;
    trap->passes = pass;
    point.copy(trap->point, sizeof trap->point - 1);
    trap->armed.store(1, std::memory_order_release);
    return *trap;
  }
  void pass_gate() {
    raise_word(entered);
    while (open.load(std::memory_order_seq_cst) == 0) futex_wait(open, 0, std::chrono::hours(1), true);
  }
};

// What a worker process knows of itself. The test's own process is none.
struct Self {
  Board* board = nullptr;
  ProcessWorker* worker = nullptr;
  std::int32_t number = -1, env = -1;
  std::uint32_t life = 0;
  bool same_step = false;
  int stack = -1, arena = -1;
  std::shared_ptr<Arena> memory;
  std::mt19937_64 random;
  double drawn = 0.0;              // what the env shows that was observed last
  std::vector<std::int32_t> rows;  // by env: rows written
};
inline Self self;

inline void pass_point(const char* name) {
  Board& board = *self.board;
  const std::uint32_t count = std::min<std::uint32_t>(board.name_count, Board::kNames);
  if (std::none_of(board.names, board.names + count, [&](const char* known) { return !std::strcmp(known, name); }))
    if (const std::uint32_t at = board.name_count.fetch_add(1); at < Board::kNames)
      std::strncpy(board.names[at], name, Board::kName - 1);
  for (Trap& trap : board.traps) {
    if (trap.armed.load(std::memory_order_acquire) == 0 || trap.worker != self.number || trap.life != self.life ||
        std::strcmp(trap.point, name) != 0 || trap.passes.fetch_sub(1) != 1)
      continue;
    trap.env = self.env;
    trap.row = self.env < 0 ? -1 : self.rows[static_cast<std::size_t>(self.env)];
    raise_word(trap.reached);
    if (trap.deed == Trap::kHold)
      while (trap.released.load(std::memory_order_seq_cst) == 0)
        futex_wait(trap.released, 0, std::chrono::hours(1), true);
    else
      kill(getpid(), trap.deed == Trap::kKill ? SIGKILL : SIGSTOP);
  }
}

// ---- the env -----------------------------------------------------------------------------------

// As a wild pointer does: into all of the arena, and more often into its beginning, where the tables are.
inline void scribble(int words) {
  struct stat status{};
  fstat(self.arena, &status);
  const auto all = static_cast<std::uint64_t>(status.st_size) / sizeof(std::uint64_t);
  auto& random = self.random;
  for (int i = 0; i < words; ++i) {
    const std::uint64_t limit = random() % 10 < 7 ? std::min<std::uint64_t>(all, 8192) : all;
    auto& word = reinterpret_cast<std::atomic<std::uint64_t>*>(self.memory->at(0))[random() % limit];
    const std::uint64_t old = word.load(std::memory_order_relaxed);
    const std::uint64_t values[] = {random(), std::uint64_t{1} << random() % 64, old ^ std::uint64_t{1} << random() % 64,
                                    old + random() % 5 - 2, (random() % 40) << 32 | random() % 40};
    word.store(values[random() % std::size(values)], std::memory_order_relaxed);
  }
}

// What an action may order beside what an obedient env knows. In the test's own process (the reference)
// nothing of it happens.
enum Further : std::int64_t {
  kBlock = kOrders,          // stand at the gate
  kEndThenBlockInReset,      // the next reset stands there
  kExit,                     // the process exits
  kScribble,                 // write random words over everything that is shared with the pool
};
constexpr int kExitCode = 7;

class Steered {
 public:
  static std::vector<ConfigItem> configuration() {
    auto items = Obedient::configuration();
    items.push_back({"id", std::int64_t{0}});
    return items;
  }
  static constexpr const char* kResetOptions[] = {"offset", nullptr};
  static EnvSpec spec(const Config& config) { return Obedient::spec(config); }

  explicit Steered(const Config& config) : inner_(config), id_(static_cast<std::int32_t>(config.integer("id"))) {}

  void reset(Rng& rng, const Options& options) {
    // As the Python envs do.
    if (std::exchange(ending_, false) && self.worker && self.same_step) self.worker->reset_after_end(id_);
    if (std::exchange(reset_blocks_, false) && self.board) self.board->pass_gate();
    inner_.reset(rng, options);
  }

  Outcome step(const ActionRow& action, Rng& rng) {
    ending_ = false;
    std::int64_t order = action.index();
    if (self.board && order == kBlock) self.board->pass_gate();
    if (self.board && order == kExit) _exit(kExitCode);
    if (self.memory && order == kScribble) scribble(200);
    reset_blocks_ = order == kEndThenBlockInReset;
    order = order == kEndThenBlockInReset ? kTerminate : order >= kOrders ? kGoOn : order;
    void* const leaves[] = {&order};
    const std::int64_t row_bytes[] = {sizeof order};
    sm_shared one{};
    one.action = leaves;
    one.action_bytes = row_bytes;
    const Outcome outcome = inner_.step(ActionRow(one, 0, 1), rng);
    ending_ = outcome.terminated || outcome.truncated;
    return outcome;
  }

  void observe(const Row& row) {
    try {
      inner_.observe(row);
    } catch (...) {
      ending_ = false;  // no reset follows in this step
      throw;
    }
    self.drawn = row.observation<double>(0)[2];
  }

 private:
  Obedient inner_;
  std::int32_t id_;
  bool ending_ = false, reset_blocks_ = false;
};

inline const sm_env_table& steered_table() { return *table_of<Steered>("Steered"); }

inline std::vector<Config> steered_configs(std::int32_t first, std::int32_t count, std::int64_t work) {
  std::vector<Config> out;
  for (std::int32_t id = first; id < first + count; ++id)
    out.push_back(Config({{"work", work}, {"id", std::int64_t{id}}}));
  return out;
}

// ---- what workers say beside their rows ---------------------------------------------------------

// With the n-th row of an env in a life: nothing, something, or more than fits where the last one was.
inline std::string note_of(std::int32_t env, std::int32_t n, double drawn, const std::string& mail) {
  const std::int32_t kind = env + n;
  const std::size_t filler = kind % 41 == 11 ? 1'200'000 : kind % 7 == 3 ? 5'000 : 20;
  if (kind % 3 == 0 && mail.empty()) return "";
  return "env " + std::to_string(env) + " row " + std::to_string(n) + " drew " + shown(drawn) + " mail " + mail +
         std::string(filler, static_cast<char>('a' + kind % 26));
}

inline std::string answer_to(const std::string& call, std::int32_t env, std::uint32_t life) {
  if (call.empty()) return "";
  if (call.starts_with("large ")) return std::string(std::stoul(call.substr(6)), static_cast<char>('a' + env % 26));
  return "env " + std::to_string(env) + " life " + std::to_string(life) + " answers " + call;
}

// ---- a worker process --------------------------------------------------------------------------

struct ProcessDriverOptions : DriverOptions {
  std::int32_t num_workers = 2;
  std::int32_t most_running = 0;  // of workers with event loops
  Deadlines deadlines;
  std::uint64_t start_ns = 0;
  std::uint32_t seed = 0;  // of what workers do at random
  bool obituaries = true;  // how workers ended is told
  // The pool gets descriptors that it cannot kill by, and learns of an end only when the test says so.
  bool immortal = false;
  std::function<void(std::int32_t worker, std::uint32_t life)> before_announce;  // in the worker
};

// The first env of each worker: as even as possible.
inline std::int32_t first_env_of(std::int32_t worker, std::int32_t num_workers, std::int32_t num_envs) {
  return worker * num_envs / num_workers;
}

inline std::vector<std::int32_t> first_envs_of(const ProcessDriverOptions& options) {
  std::vector<std::int32_t> out;
  for (std::int32_t worker = 0; worker < options.num_workers; ++worker)
    out.push_back(first_env_of(worker, options.num_workers, options.num_envs));
  return out;
}

inline WorkerPost post_of(const ProcessPlan& plan, std::int32_t worker, std::uint32_t life) {
  const auto first = [&](std::int32_t w) { return first_env_of(w, plan.process.num_workers, plan.table.num_envs); };
  return {worker, life, first(worker), first(worker + 1) - first(worker)};
}

// Never comes back: what follows is the test's.
[[noreturn]] inline void serve(const ProcessPlan& plan, const ProcessDriverOptions& options, int arena, int outbox,
                               int rows_event) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
#ifdef STEPMILL_KILL_POINTS
  kill_point = pass_point;
#endif
  ::signal(SIGSEGV, SIG_DFL);  // a sanitizer would exit instead
  // What faulthandler does in a Python worker.
  ::signal(SIGRTMAX - 3, [](int) {
    static constexpr char kText[] = "the stack of a worker\n";
    (void)!write(self.stack, kText, sizeof kText - 1);
  });
  try {
    ProcessWorker worker(arena, outbox, rows_event, obedient_spec(), plan, post_of(plan, self.number, self.life));
    EnvSet envs(steered_table(), steered_configs(worker.first_env(), worker.env_count(), options.work),
                worker.first_env());
    self.worker = &worker;
    self.arena = arena;
    self.memory = Arena::attach(arena, plan.arena_bytes);
    self.random.seed(static_cast<std::uint64_t>(self.life) << 32 | static_cast<std::uint32_t>(self.number) << 8 |
                     options.seed);
    self.same_step = options.autoreset == SM_SAME_STEP;
    self.rows.resize(static_cast<std::size_t>(options.num_envs));
    if (options.before_announce) options.before_announce(self.number, self.life);
    worker.announce();
    while (!worker.told_to_stop()) {
      self.env = -1;
      const std::int32_t env = worker.next();
      if (env < 0) {
        worker.wait();
        continue;
      }
      self.env = env;
      const std::string mail = text_of(worker.mail(env));
      bool taken = false;
      if (worker.is_call(env)) {
        if (mail == "block") self.board->pass_gate();
        if (mail == "exit") _exit(kExitCode);
        taken = worker.publish_call(env, bytes_of(answer_to(mail, env, self.life)));
      } else {
        worker.advance(envs, env);
        std::int32_t& rows = self.rows[static_cast<std::size_t>(env)];
        const std::string note = worker.fault().empty() ? note_of(env, rows, self.drawn, mail) : worker.fault();
        taken = worker.publish(env, bytes_of(note));
        rows += 1;
      }
      raise_word(taken ? self.board->published : self.board->refused);
    }
  } catch (const std::exception& error) {
    (void)!write(2, error.what(), std::strlen(error.what()));
    _exit(11);
  }
  _exit(0);
}

}  // namespace stepmill::test
