"""``python -m benchmarks.ding_managers``: our env managers compared with DI-engine's own, in DI-engine's environment.

All managers of a case are there at once, and are measured in turn, round after round. ``make bench-ding`` runs it.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import logging
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium
from rich.console import Console

from benchmarks import store, tables
from benchmarks.manager_parts import SEED, ManagedContestant, above_pools, bare_pool, draw_actions
from benchmarks.python_envs import calibrate
from benchmarks.timing import Effort, interleaved
from stepmill.envs.adapters.ding import build_env
from stepmill.tools.measuring import machine

OURS = {f"stepmill_{name}": name for name in tables.DING_MANAGERS}
PACKAGES = ("DI-engine", "gym", "DI-treetensor")


# ---- contestants -----------------------------------------------------------------------------------


class Manager(ManagedContestant):
    """A manager, v2 or not, by its name in DI-engine's registry."""

    def __init__(self, name: str, env_fn: Sequence[Callable[[], Any]]) -> None:
        from ding.utils import ENV_MANAGER_REGISTRY

        cls = ENV_MANAGER_REGISTRY[name]
        manager = cls(env_fn=list(env_fn), cfg=cls.default_config())
        manager.seed(SEED)
        manager.launch()
        super().__init__(manager, draw_actions(len(env_fn))[1])

    def close(self) -> None:
        time.sleep(0.2)  # DI-engine's own fails to close while a thread of it resets an env
        with contextlib.suppress(OSError, EOFError, RuntimeError):
            self.manager.close()
        for process in getattr(self.manager, "_subprocesses", None) or ():
            with contextlib.suppress(Exception):
                process.terminate()


# ---- measuring -------------------------------------------------------------------------------------


def cases(iterations: int) -> dict[str, tuple[Callable[[], Any], int]]:
    from benchmarks.ding_envs import CartPole, Frames

    return {
        "8 x CartPole": (CartPole, 8),
        "64 x CartPole": (CartPole, 64),
        "64 x 100 µs and a frame": (functools.partial(Frames, iterations), 64),
    }


def measure(env: Callable[[], Any], count: int, effort: Effort) -> dict[str, Any]:
    runners: dict[str, Any] = {}
    try:
        # Theirs first: they fork, and our threads should not be running then.
        for name in (*tables.DING_MANAGERS, *OURS):
            runners[name] = Manager(name, [env] * count)
        for name in tables.MANAGER_POOLS:
            runners[f"pool_{name}"] = bare_pool([functools.partial(build_env, env)] * count, name)
        results = interleaved(runners, effort)
    finally:
        for runner in runners.values():
            runner.close()
    out: dict[str, Any] = dict(results)
    out["ratio"] = {name: results[ours]["steps_per_s"] / results[name]["steps_per_s"] for ours, name in OURS.items()}
    out["above_pool_ns"] = above_pools(results, managers="stepmill_")
    return out


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ding_managers", description=__doc__)
    parser.add_argument("--repeats", type=int, help="rounds of each comparison (default: 7, quick: 3)")
    parser.add_argument("--seconds", type=float, help="for each contestant in each round (default: 0.6, quick: 0.2)")
    parser.add_argument("--quick", action="store_true", help="short; writes to build/benchmarks")
    parser.add_argument("--output", type=Path, help="folder for the JSON file (default: benchmarks/results/ding)")
    return parser.parse_args(arguments)


def main() -> int:
    options = parse()
    console = Console(highlight=False)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    gymnasium.logger.min_level = gymnasium.logger.ERROR
    import stepmill.interop.ding  # noqa: F401  (registers ours)

    effort = Effort(
        options.repeats or (3 if options.quick else 7),
        options.seconds or (0.2 if options.quick else 0.6),
        options.quick,
    )
    part = {}
    for name, (env, count) in cases(calibrate()).items():
        part[name] = measure(env, count, effort)
        console.print(f"{name}: done", style="dim")
    described = machine.describe()
    described["packages"] |= {package: machine.version(package) for package in PACKAGES}
    results = {
        "machine": described,
        "effort": {"repeats": effort.repeats, "seconds": effort.seconds, "quick": effort.quick},
        "parts": {"ding": part},
    }
    tables.ding(results).print(console)
    ours = store.ROOT / "build" / "benchmarks" / "ding" if options.quick else store.RESULTS / "ding"
    path = (options.output or ours) / f"{machine.name()}.json"
    store.save(path, results)
    console.print(f"wrote {store.shown(path)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
