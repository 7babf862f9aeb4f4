// The caller's side of a process pool: questions to envs, besides their actions.
#include "core/process/process_pool.h"

#include <utility>

namespace stepmill {

bool ProcessPool::at_rest(std::int32_t env) {
  const Lock lock(books_.mutex);
  books_.check_whole();
  return is_over(env, false);
}

void ProcessPool::wait_at_rest(std::int32_t env, std::chrono::nanoseconds most) {
  WorkerBlock& block = tables_.worker(worker_of(env));
  block.watched.store(1, std::memory_order_seq_cst);
  const std::uint32_t seen = block.rested.load(std::memory_order_seq_cst);
  if (!at_rest(env)) futex_wait(block.rested, seen, most, true);
  block.watched.store(0, std::memory_order_relaxed);
}

void ProcessPool::queue_call(std::int32_t env, std::span<const std::byte> call) {
  {
    const Lock lock(books_.mutex);
    Call& its = books_.call(env);
    its.mail.put(*arena_, call);  // throws if there is no memory: change nothing before
    // The call takes over the word of a row not yet received.
    books_.save_notes(worker_of(env), books_.asked(env).incarnation);
    its.fault.reset();
    books_.inbox.forget_answer(env);
    if (books_.is_lost(env)) return books_.fail_call(env, books_.roster.crew_of(env).loss);  // it stays at rest
    its.is_open = true;
    queue(env, its.mail, {0, -1, Order::kCall, 0, monotonic_ns(), false});
  }
  ring_bell(worker_of(env));
}

std::optional<Fault> ProcessPool::take_call(std::int32_t env, std::vector<std::byte>& answer) {
  const Lock lock(books_.mutex);
  Call& its = books_.call(env);
  its.is_open = false;
  if (!its.fault && !books_.inbox.read_answer(env, answer))
    books_.fail_call(env, books_.found_broken(env, "the answer to a call"));
  return std::exchange(its.fault, std::nullopt);
}

}  // namespace stepmill
