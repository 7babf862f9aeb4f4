"""The best figures as sentences, for the first screen of the README. None if they were not measured."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.python_contestants import PEERS
from benchmarks.tables import Results, envpool, number, time_of


def native(results: Results) -> str | None:
    """For a pool as large as in training: 1,024 envs."""
    row = next((row for row in results["parts"].get("sync") or [] if row["num_envs"] == 1024), None)
    if row is None or not {"envpool", "gymnasium"} <= row.keys():
        return None
    ours = row["stepmill"]["steps_per_s"]
    over = {name: round_ratio(ours / row[name]["steps_per_s"]) for name in ("envpool", "gymnasium")}
    return (
        f"**{over['envpool']} times as fast as {envpool(results, 'sync')} and {over['gymnasium']} times as fast as "
        f"Gymnasium's SyncVectorEnv**: {millions(ours)} steps of CartPole-v1 per second with 1,024 envs on "
        f"{results['machine']['cores']} cores."
    )


def python(results: Results) -> str | None:
    """For the envs of the README's plot: many, and each step works for a while."""
    row = next((row for row in results["parts"].get("python") or [] if row["env"] == "busy"), None)
    if row is None or "auto" not in row or not any(name in row for name in PEERS):
        return None
    best = max(row[name]["steps_per_s"] for name in PEERS if name in row)
    ours = row["auto"]["steps_per_s"]
    reach = ""
    if "meeting" in row:
        reach = f", {ours / row['meeting']['steps_per_s']:.0%} of what plain loops on all cores do"
    return (
        f"**Python envs at {round_ratio(ours / best)} times the speed of the best other library**: "
        f"{number(ours)} steps per second of {row['num_envs']} envs that work for 100 µs each, on "
        f"{results['machine']['cores']} cores{reach}."
    )


def step(results: Results) -> str | None:
    part = results["parts"].get("overhead") or {}
    if not {"stepmill", "envpool"} <= part.keys():
        return None
    ours, theirs = (time_of(part[name]["step_ns"]) for name in ("stepmill", "envpool"))
    return f"**One step of one env takes {ours}**, where {envpool(results, 'overhead')} takes {theirs}."


FACTS: dict[str, Callable[[Results], str | None]] = {"native": native, "python": python, "step": step}


def round_ratio(ratio: float) -> str:
    """Rounded as in speech: 2.1, 38, 540."""
    if ratio < 10:
        return f"{ratio:.1f}"
    return f"{ratio:.0f}" if ratio < 100 else f"{round(ratio, -1):,.0f}"


def millions(rate: float) -> str:
    return f"{rate / 1e6:.0f} million" if rate >= 1e7 else f"{rate / 1e6:.1f} million"
