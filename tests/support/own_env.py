"""A file with an env class that is made up of pieces, for tests of what such classes may be."""

from __future__ import annotations

from pathlib import Path

SPEC = "spec.action = {discrete(5)}; spec.observation = {box<double>({1}, {-1e9}, {1e9})};"
_CLASS = """\
#pragma once
#include <stepmill/env.h>
%(head)s
class %(name)s {
 public:
  static constexpr bool kNeverBlocks = true, kPlainMemory = true;
  static stepmill::EnvSpec spec(const stepmill::Config&) {
    using namespace stepmill;
    EnvSpec spec;
    %(spec)s
    return spec;
  }
  explicit %(name)s(const stepmill::Config&) {}
  void reset(stepmill::Rng& rng, const stepmill::Options& options) { %(reset)s }
  stepmill::Outcome step(const stepmill::ActionRow& action, stepmill::Rng& rng) { %(step)s }
  void observe(const stepmill::Row& row) const { %(observe)s }

 private:
  double x_ = 0.0;
  %(members)s
};
"""


def own_env(
    path: Path,
    name: str = "Own",
    *,
    spec: str = SPEC,
    head: str = "",
    reset: str = "x_ = rng.random();",
    step: str = "x_ = rng.random(); return {x_, x_ < 0.1, false};",
    observe: str = "*row.observation<double>() = x_;",
    members: str = "",
) -> str:
    """Writes the file, and returns the task that names it."""
    given = {"name": name, "spec": spec, "head": head, "reset": reset, "step": step, "observe": observe}
    path.write_text(_CLASS % {**given, "members": members})
    return str(path)
