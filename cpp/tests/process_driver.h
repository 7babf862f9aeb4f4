// Worker processes of a test: forked from it, they serve a ProcessPool as Python workers do.
//
// The test and its workers share a `Board`. There the test says what a worker is to do at which point of the
// protocol (die, stop, wait), and sees how far a worker came. `Processes` starts workers, and others in their
// place; `Ledger` sends actions and holds every row that comes back against what it must be.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <new>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/kill_points.h"
#include "core/process_pool.h"
#include "core/process_worker.h"
#include "tests/check.h"
#include "tests/obedient_env.h"
#include "tests/pool_driver.h"
#include "tests/rows.h"

namespace stepmill::test {

using Ids = std::vector<std::int32_t>;

inline Ids all_of(std::int32_t count) {
  Ids out(static_cast<std::size_t>(count));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

inline std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }
inline std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// ---- waiting -----------------------------------------------------------------------------------

// Nothing here takes a second: who waits this long waits for ever.
constexpr auto kPatience = std::chrono::seconds(20);

struct Hang : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Waits for what wakes nobody.
template <class F>
void until(const char* what, F holds) {
  const auto end = Clock::now() + kPatience;
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
  const auto end = Clock::now() + kPatience;
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
  int stack = -1;
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

// What an action may order beside what an obedient env knows. In the test's own process (the reference)
// nothing of it happens.
enum Further : std::int64_t {
  kBlock = kOrders,          // stand at the gate
  kEndThenBlockInReset,      // the next reset stands there
  kExit,                     // the process exits
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
  Deadlines deadlines;
  std::uint64_t start_ns = 0;
  bool obituaries = true;  // how workers ended is told
  // The pool gets descriptors that it cannot kill by, and learns of an end only when the test says so.
  bool immortal = false;
  std::function<void(std::int32_t worker, std::uint32_t life)> before_announce;  // in the worker
};

// Never comes back: what follows is the test's.
[[noreturn]] inline void serve(const ProcessPlan& plan, const ProcessDriverOptions& options, int arena, int outbox) {
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
    ProcessWorker worker(arena, outbox, obedient_spec(), plan, self.number, self.life);
    EnvSet envs(steered_table(), steered_configs(worker.first_env(), worker.env_count(), options.work),
                worker.first_env());
    self.worker = &worker;
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

// ---- where workers come from ---------------------------------------------------------------------

// Sends some bytes and descriptors over a socket, or receives them. False where the other side is gone.
template <class T, std::size_t N>
bool pass(int socket, T& message, std::array<int, N>& descriptors, bool sends) {
  iovec data{&message, sizeof message};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof descriptors)]{};
  msghdr header{};
  header.msg_iov = &data;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  cmsghdr* const first = CMSG_FIRSTHDR(&header);
  first->cmsg_level = SOL_SOCKET;
  first->cmsg_type = SCM_RIGHTS;
  first->cmsg_len = CMSG_LEN(sizeof descriptors);
  if (sends) {
    std::memcpy(CMSG_DATA(first), descriptors.data(), sizeof descriptors);
    return sendmsg(socket, &header, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof message);
  }
  if (recvmsg(socket, &header, MSG_CMSG_CLOEXEC) != static_cast<ssize_t>(sizeof message)) return false;
  std::memcpy(descriptors.data(), CMSG_DATA(first), sizeof descriptors);
  return true;
}

// A process with one thread, forked before the pool has any: a fork beside threads would find the locks of a
// sanitizer's allocator as they happened to be. It forks the workers, and says how they ended.
class Nursery {
 public:
  Nursery(Board& board, const ProcessDriverOptions& options, int obituaries) {
    int sockets[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0) throw std::runtime_error("socketpair");
    pid_ = fork();
    if (pid_ < 0) throw std::runtime_error("fork");
    socket_ = sockets[pid_ == 0];
    ::close(sockets[pid_ != 0]);
    if (pid_ == 0) run(board, options, obituaries);
  }
  // By now its workers have ended.
  ~Nursery() {
    ::close(socket_);
    waitpid(pid_, nullptr, 0);
  }
  Nursery(const Nursery&) = delete;
  Nursery& operator=(const Nursery&) = delete;

  struct Child {
    int pid, pidfd;
  };
  Child start(std::int32_t worker, std::uint32_t life, const ProcessPlan& plan, int arena, int outbox, int stack) {
    Request request{worker, life, plan};
    std::array<int, 3> given{arena, outbox, stack};
    int pid = -1;
    std::array<int, 1> pidfd{-1};
    if (!pass(socket_, request, given, true) || !pass(socket_, pid, pidfd, false) || pid < 0)
      throw std::runtime_error("no worker process could be started");
    return {pid, pidfd[0]};
  }

 private:
  struct Request {
    std::int32_t worker;
    std::uint32_t life;
    ProcessPlan plan;
  };
  struct Born {
    std::int32_t worker;
    std::uint32_t life;
    int pidfd;
  };

  [[noreturn]] void run(Board& board, const ProcessDriverOptions& options, int obituaries) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    std::vector<Born> children;
    for (;;) {
      std::vector<pollfd> polled{{socket_, POLLIN, 0}};
      for (const Born& child : children) polled.push_back({child.pidfd, POLLIN, 0});
      poll(polled.data(), polled.size(), -1);
      for (std::size_t i = children.size(); i > 0; --i)
        if (polled[i].revents != 0) {
          bury(children[i - 1], board, options.obituaries ? obituaries : -1);
          children.erase(children.begin() + static_cast<std::ptrdiff_t>(i) - 1);
        }
      if (polled[0].revents == 0) continue;
      Request request{};
      std::array<int, 3> given{};
      if (!pass(socket_, request, given, false)) _exit(0);
      int pid = fork();
      if (pid == 0) {
        self.board = &board;
        self.number = request.worker;
        self.life = request.life;
        self.stack = given[2];
        serve(request.plan, options, given[0], given[1]);
      }
      for (const int descriptor : given) ::close(descriptor);
      std::array<int, 1> pidfd{static_cast<int>(syscall(SYS_pidfd_open, pid, 0))};
      pass(socket_, pid, pidfd, true);
      children.push_back({request.worker, request.life, pidfd[0]});
    }
  }

  static void bury(const Born& child, Board& board, int obituaries) {
    siginfo_t info{};
    waitid(P_PIDFD, static_cast<id_t>(child.pidfd), &info, WEXITED);
    ::close(child.pidfd);
    const int code = info.si_code == CLD_EXITED ? info.si_status : -info.si_status;
    board.codes[board.code_count % Board::kCodes] = code;
    const std::array<std::int32_t, 3> obituary{child.worker, static_cast<std::int32_t>(child.life), code};
    if (obituaries >= 0) (void)!write(obituaries, obituary.data(), sizeof obituary);
    raise_word(board.code_count);
  }

  pid_t pid_;
  int socket_;
};

// ---- the test's side ---------------------------------------------------------------------------

// What the kernel says of a process or thread: S sleeps, T is stopped.
inline char state_of(const std::string& process) {
  std::ifstream file("/proc/" + process + "/stat");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const auto name_ends = text.rfind(')');
  return name_ends != text.npos && name_ends + 2 < text.size() ? text[name_ends + 2] : '?';
}

class Processes {
 public:
  explicit Processes(const ProcessDriverOptions& o, bool start_all = true)
      : options(o), board_(Board::make()), current_(static_cast<std::size_t>(o.num_workers)) {
    if (pipe2(obituaries_, O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
    nursery_.emplace(*board_, o, obituaries_[1]);
    std::vector<std::uint64_t> seeds;
    for (std::int32_t env = 0; env < o.num_envs; ++env) seeds.push_back(static_cast<std::uint64_t>(env));
    pool = std::make_unique<ProcessPool>(obedient_spec(), o.pool(),
                                         ProcessOptions{o.num_workers, o.keep_last_observation}, o.deadlines, seeds,
                                         obituaries_[0]);
    for (std::int32_t env = 0; env < o.num_envs; ++env) seed(env, static_cast<std::uint64_t>(env));
    for (std::int32_t worker = 0; start_all && worker < o.num_workers; ++worker) start(worker, 1);
  }
  ~Processes() { end(); }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  Board& board() { return *board_; }
  std::int32_t worker_of(std::int32_t env) const {
    std::int32_t worker = 0;
    while (first_env_of(worker + 1, options.num_workers, options.num_envs) <= env) ++worker;
    return worker;
  }
  Ids envs_of(std::int32_t worker) const {
    Ids out;
    for (std::int32_t env = 0; env < options.num_envs; ++env)
      if (worker_of(env) == worker) out.push_back(env);
    return out;
  }

  // ---- workers ----

  void start(std::int32_t worker, std::uint32_t life) {
    int stack[2];
    if (pipe2(stack, O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
    const int outbox = Outbox::create();
    const auto child = nursery_->start(worker, life, pool->plan(), pool->arena_descriptor(), outbox, stack[1]);
    lives_.push_back({child.pid, child.pidfd, options.immortal ? eventfd(0, EFD_CLOEXEC) : -1});
    const Life& made = current_[static_cast<std::size_t>(worker)] = lives_.back();
    pool->admit(worker, life, made.pid, options.immortal ? made.end : made.pidfd, stack[0], outbox, options.start_ns);
    for (const int descriptor : {stack[0], stack[1], outbox}) ::close(descriptor);
  }
  // Starts whom the pool wants.
  void attend() {
    if (!pool->wants_attention()) return;
    for (const auto& [worker, life] : pool->to_restart()) start(worker, life);
  }

  // One life of a worker. `end`: what the pool was given instead of the pidfd, where they are immortal.
  struct Life {
    int pid = -1, pidfd = -1, end = -1;
  };
  Life life(std::int32_t worker) const { return current_[static_cast<std::size_t>(worker)]; }
  int pid_of(std::int32_t worker) const { return life(worker).pid; }
  static void send(const Life& life, int number) {
    (void)syscall(SYS_pidfd_send_signal, life.pidfd, number, nullptr, 0);
  }
  static void let_see_the_end(const Life& life) {
    const std::uint64_t one = 1;
    (void)!write(life.end, &one, sizeof one);
  }

  // To the worker's present life.
  void signal(std::int32_t worker, int number) { send(life(worker), number); }
  // Stops it, for certain when this returns.
  void stop(std::int32_t worker) {
    signal(worker, SIGSTOP);
    await_stop(worker);
  }
  void await_stop(std::int32_t worker) {
    until("a worker is stopped", [&] { return state_of(std::to_string(pid_of(worker))) == 'T'; });
  }
  // Kills it and waits until the pool has seen it end.
  void kill_and_await(std::int32_t worker) {
    signal(worker, SIGKILL);
    await_loss(worker);
  }
  void await_loss(std::int32_t worker) {
    until("the pool sees a worker end", [&] { return !is_alive(worker); });
  }
  bool is_alive(std::int32_t worker) const {
    return pool->worker_stats()[static_cast<std::size_t>(worker)].alive;
  }
  std::uint32_t restarts(std::int32_t worker) const {
    return pool->worker_stats()[static_cast<std::size_t>(worker)].restarts;
  }
  // What only who starts workers would say: worker, life, code.
  void write_obituary(const std::array<std::int32_t, 3>& obituary) {
    (void)!write(obituaries_[1], obituary.data(), sizeof obituary);
  }
  // Of those that ended, in the order of their ends: exit codes, or minus the signal.
  std::vector<int> codes() { return {board_->codes, board_->codes + board_->code_count}; }

  void open_gate() {
    board_->open.store(1, std::memory_order_seq_cst);
    futex_wake(board_->open, 1 << 20, true);
  }
  static void release(Trap& trap) { raise_word(trap.released); }

  // ---- actions ----

  void seed(std::int32_t env, std::uint64_t value) {
    pool->table().reset_request(env).seed = value;
    pool->table().reset_request(env).has_seed = 1;
  }
  void write_order(std::int32_t env, std::int64_t order) {
    reinterpret_cast<std::int64_t*>(pool->table().action(0))[env] = order;
  }
  void send_orders(const Ids& envs, std::int64_t order) {
    for (const std::int32_t env : envs) write_order(env, order);
    pool->send(envs, false, false);
  }

  // ---- results ----

  // Until the batch is ready. A wake that was lost would last as long as patience does.
  void wait() {
    const auto end = Clock::now() + kPatience;
    while (!pool->ready()) {
      attend();
      if (Clock::now() >= end) throw Hang("recv hangs");
      pool->work_or_wait(end - Clock::now());
    }
    if (Clock::now() >= end) throw Hang("recv was not woken");
  }
  Batch recv() {
    wait();
    faults.clear();
    return pool->take_batch(faults);
  }
  static void drop(const Batch& batch) { batch.store->release(batch.buffer); }
  void recv_and_drop() { drop(recv()); }

  std::string note(std::int32_t env) {
    std::string out;
    pool->read_note(env, [&](std::span<const std::byte> bytes) { out = text_of(bytes); });
    return out;
  }

  void await_rest(std::int32_t env) {
    const auto end = Clock::now() + kPatience;
    while (!pool->at_rest(env)) {
      attend();
      if (Clock::now() >= end) throw Hang("an env does not come to rest");
      pool->wait_at_rest(env, end - Clock::now());
    }
    if (Clock::now() >= end) throw Hang("who waits for rest was not woken");
  }
  // The answer; where there is none, why.
  std::pair<std::string, std::optional<Fault>> call(std::int32_t env, const std::string& text) {
    await_rest(env);
    pool->queue_call(env, bytes_of(text));
    return take_answer(env);
  }
  std::pair<std::string, std::optional<Fault>> take_answer(std::int32_t env) {
    await_rest(env);
    std::vector<std::byte> answer;
    auto fault = pool->take_call(env, answer);
    return {text_of(answer), std::move(fault)};
  }

  // Ends everything, as far as it has not ended yet.
  void end() {
    pool.reset();
    if (!nursery_) return;
    for (const Life& life : lives_) send(life, SIGKILL);
    await_word("all workers end", board_->code_count, static_cast<std::uint32_t>(lives_.size()));
    nursery_.reset();
    for (const Life& life : lives_)
      for (const int descriptor : {life.pidfd, life.end})
        if (descriptor >= 0) ::close(descriptor);
    for (const int descriptor : obituaries_) ::close(descriptor);
  }

  const ProcessDriverOptions options;
  std::unique_ptr<ProcessPool> pool;
  std::vector<Fault> faults;

 private:
  std::unique_ptr<Board, Board::Unmap> board_;
  int obituaries_[2];
  std::optional<Nursery> nursery_;
  std::vector<Life> current_;  // by worker
  std::vector<Life> lives_;
};

// ---- every action accounted for -----------------------------------------------------------------

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
    sm_job job{};
    job.shared = &table_.shared();
    job.env = &env;
    job.columns = &columns_.c;
    job.count = 1;
    job.context = this;
    job.fault = [](void* twins, std::int32_t id, std::int32_t phase, const char* message) {
      static_cast<Twins*>(twins)->faults_.push_back({id, phase, message});
    };
    envs_[static_cast<std::size_t>(env)]->advance(job);
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
    for (const std::int32_t env : envs) {
      if (seeded) {
        const std::uint64_t value = random();
        p_.seed(env, value);
        twins_.seed(env, value);
      }
      give(env, kReset);
      p_.pool->table().state(env).command = SM_RESET;
    }
    if (gather) gathered_ = envs;
    p_.pool->send(envs, gather, gather);
  }
  // Any order, to all that are idle or to some.
  void send_any(bool some, bool raise) {
    Ids envs = idle_;
    std::shuffle(envs.begin(), envs.end(), random);
    if (some && !envs.empty()) envs.resize(1 + random() % envs.size());
    for (const std::int32_t env : envs) give(env, any_order(raise));
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
      Result result{env, fault_of(env, faults)};
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
    } else {
      CHECK(c.truncated[row] == 1);
      CHECK(c.terminated[row] == 0);
      CHECK(static_cast<double*>(c.reward)[row] == 0.0);
      CHECK(c.episode_return[row] == 0.0);
      CHECK(c.episode_length[row] == 0);
      CHECK(static_cast<std::int32_t*>(c.info[0])[row] == 0);
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

}  // namespace stepmill::test
