// Worker processes of a test: forked from it, they serve a ProcessPool as Python workers do.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/process/process_pool.h"
#include "tests/check.h"
#include "tests/process/process_child.h"

namespace stepmill::test {

inline ProcessDriverOptions options_of(std::int32_t envs, std::int32_t batch, std::int32_t workers) {
  ProcessDriverOptions options;
  options.num_envs = envs;
  options.batch_size = batch;
  options.num_workers = workers;
  return options;
}

inline bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

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
  Child start(std::int32_t worker, std::uint32_t life, const ProcessPlan& plan, std::array<int, 4> given) {
    Request request{worker, life, plan};
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
      std::array<int, 4> given{};  // arena, outbox, stack, event
      if (!pass(socket_, request, given, false)) _exit(0);
      int pid = fork();
      if (pid == 0) {
        self.board = &board;
        self.number = request.worker;
        self.life = request.life;
        self.stack = given[2];
        serve(request.plan, options, given[0], given[1], given[3]);
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

// What a pool shares with its workers, as the test sees it.
struct SharedTables {
  explicit SharedTables(const ProcessPool& pool)
      : plan(pool.plan()),
        arena(Arena::attach(pool.arena_descriptor(), plan.arena_bytes)),
        tables(pool.spec(), plan.table, plan.batch_size, plan.process) {
    tables.attach(arena->at(plan.process_offset));
  }

  const ProcessPlan plan;
  const std::shared_ptr<Arena> arena;
  ProcessTables tables;
};

class Processes {
 public:
  explicit Processes(const ProcessDriverOptions& o, bool start_all = true)
      : options(o), board_(Board::make()), current_(static_cast<std::size_t>(o.num_workers)) {
    if (pipe2(obituaries_, O_CLOEXEC) != 0) throw std::runtime_error("pipe2");
    nursery_.emplace(*board_, o, obituaries_[1]);
    std::vector<std::uint64_t> seeds;
    for (std::int32_t env = 0; env < o.num_envs; ++env) seeds.push_back(static_cast<std::uint64_t>(env));
    pool = std::make_unique<ProcessPool>(obedient_spec(), o.pool(),
                                         ProcessOptions{o.num_workers, o.keep_last_observation, o.most_running, o.most_running != 0},
                                         o.deadlines,
                                         first_envs_of(o), seeds, obituaries_[0]);
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
    const auto child = nursery_->start(worker, life, pool->plan(), {pool->arena_descriptor(), outbox, stack[1],
                                                                    pool->rows_event_descriptor()});
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

  // As an event loop waits for a row: it sleeps until the event is rung, with no look in between. A lost wake-up would last
  // until the alarm.
  void wait_in_loop() {
    while (pool->watch_rows()) {
      pollfd one{pool->rows_event().descriptor(), POLLIN, 0};
      CHECK(poll(&one, 1, -1) == 1);
      pool->look_again(true);
      attend();
    }
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
    const bool alive = get(pool->counters()->worker(worker).pid) != 0;
    pool->outbox_bytes();  // takes the lock: what the monitor was doing when it changed the counter is done
    return alive;
  }
  std::uint64_t restarts(std::int32_t worker) const {
    return get(pool->counters()->worker(worker).restarts);
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

  // Until the batch is ready. A wake that was lost would last for kLongEnough.
  void wait() {
    const auto end = Clock::now() + kLongEnough;
    while (!pool->ready()) {
      attend();
      if (Clock::now() >= end) throw Hang("recv hangs");
      pool->work_or_wait(end - Clock::now());
    }
    if (Clock::now() >= end) throw Hang("recv was not woken");
  }
  // Until so many rows are ready. The batch then ends after what is taken of it.
  void wait_for_some(std::int32_t at_least, bool steps_only) {
    pool->be_content_with(at_least, steps_only);
    wait();
    pool->be_content_with(0);
    if (!pool->ready()) pool->seal_early();
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
    const bool good = pool->read_note(env, [&](std::span<const std::byte> bytes) {
      out = text_of(bytes);
      return bytes_of(out);
    });
    return good ? out : "a note that is broken";
  }

  void await_rest(std::int32_t env) {
    const auto end = Clock::now() + kLongEnough;
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

}  // namespace stepmill::test
