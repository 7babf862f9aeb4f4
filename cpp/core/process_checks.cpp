#include "core/process_checks.h"

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
  return Run{since, static_cast<Activity>(begun & 3) == Activity::kResetAfterEnd && tables_.ending(env)};
}

bool ProcessChecks::was_reset_after_end(std::int32_t env) const {
  const std::uint64_t begun = tables_.begun(env).load(std::memory_order_acquire);
  return static_cast<Activity>(begun & 3) == Activity::kResetAfterEnd && tables_.ending(env);
}

// ---- rows --------------------------------------------------------------------------------------

std::optional<ProcessChecks::Row> ProcessChecks::row(std::int32_t env, std::uint32_t epoch) const {
  const Report& report = tables_.report(env);
  Row row;
  row.note = {copy(report.note), copy(report.note_bytes), copy(report.note_seal)};
  row.fault_phase = copy(report.fault_phase);
  if (copy(report.epoch) != epoch || row.fault_phase < -1 || row.fault_phase > SM_IN_OBSERVE) return std::nullopt;
  return row;
}

ProcessChecks::Note ProcessChecks::call(std::int32_t env) const {
  const Report& report = tables_.report(env);
  return {copy(report.call), copy(report.call_bytes), copy(report.call_seal)};
}

std::optional<std::int32_t> ProcessChecks::players(const sm_columns& columns, std::int64_t row) const {
  if (!columns.players) return 1;
  const std::int32_t players = copy(columns.players[row]);
  return players >= 0 && players <= max_players_ ? std::optional(players) : std::nullopt;
}

ProcessChecks::Slot ProcessChecks::slot(std::uint32_t number, std::uint32_t row) const {
  const SlotRing::Owner owner = ring_.owner(number, row);
  if (owner.env < static_cast<std::uint32_t>(num_envs_))
    return {Slot::kTaken, static_cast<std::int32_t>(owner.env), owner.epoch};
  // The word of a slot without an owner holds the number of its batch.
  const Slot::Kind kind = owner.epoch != number             ? Slot::kBroken
                          : owner.env == SlotRing::kEmpty   ? Slot::kFree
                          : owner.env == SlotRing::kSealed ? Slot::kSealed
                                                           : Slot::kBroken;
  return {kind, -1, 0};
}

}  // namespace stepmill
