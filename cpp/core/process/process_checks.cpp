#include "core/process/process_checks.h"

namespace stepmill {

// ---- words -------------------------------------------------------------------------------------

std::optional<EnvWord> ProcessChecks::word(std::int32_t env, const Asked& asked) const {
  const EnvWord now = EnvWord::unpack(tables_.word(env).load(std::memory_order_seq_cst));
  if (now.epoch != asked.epoch || now.incarnation != asked.incarnation) return std::nullopt;
  if (now.stage > Stage::kFault || (now.stage == Stage::kFault && !asked.given_up)) return std::nullopt;
  return now;
}

bool ProcessChecks::is_idle(std::int32_t env, const Asked& asked) const {
  const auto now = word(env, asked);
  return now && (now->stage == Stage::kRest || now->stage == Stage::kDone);
}

std::optional<ProcessChecks::Run> ProcessChecks::run(std::int32_t env, const Asked& asked) const {
  const std::uint64_t begun = tables_.begun(env).load(std::memory_order_acquire);
  const std::uint64_t since = begun >> 2;
  if (since < asked.at || since > monotonic_ns()) return std::nullopt;
  return Run{since, activity_of(env, begun)};
}

Activity ProcessChecks::activity(std::int32_t env) const {
  return activity_of(env, tables_.begun(env).load(std::memory_order_acquire));
}

Activity ProcessChecks::activity_of(std::int32_t env, std::uint64_t begun) const {
  const auto activity = static_cast<Activity>(begun & 3);
  return activity == Activity::kResetAfterEnd && !tables_.ending(env) ? Activity::kReset : activity;
}

// ---- notes -------------------------------------------------------------------------------------

ProcessChecks::Note ProcessChecks::note(std::int32_t env) const {
  const Report& report = tables_.report(env);
  return {copy(report.note), copy(report.note_bytes), copy(report.note_seal)};
}

ProcessChecks::Note ProcessChecks::call(std::int32_t env) const {
  const Report& report = tables_.report(env);
  return {copy(report.call), copy(report.call_bytes), copy(report.call_seal)};
}

}  // namespace stepmill
