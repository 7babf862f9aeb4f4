"""``stepmill tune``: which settings of ``make`` are fastest for an env on this machine."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console

import stepmill
from stepmill.errors import EnvError, ResourceError, UnsupportedError, summary
from stepmill.hosts.rollout.policy import Policy
from stepmill.tools.cli.bars import Measure, bars_of, save_bars
from stepmill.tools.cli.options import (
    Seconds,
    json_option,
    picture_option,
    policy_option,
    seed_option,
    set_option,
    target,
)
from stepmill.tools.cli.policy import load_policy, play_on
from stepmill.tools.cli.program import in_child
from stepmill.tools.cli.terminal import ProgressLine, Terminal, short, until_interrupted
from stepmill.tools.measuring.machine import cores, describe, up_to
from stepmill.tools.measuring.peers import Workload, quiet
from stepmill.tools.measuring.runners import steps_per_second
from stepmill.views.gymnasium import GymnasiumPool

_FINALISTS = 3
_ROUNDS = 3
_MOST_BARS = 16
_NATIVE_ENVS = (8, 64, 512, 4096)
_ENVS_PER_WORKER = (1, 4, 16)
_EQUAL = 0.97  # of two settings whose speeds are so close, the simpler one is better


@click.command("tune")
@in_child
@target
@click.option("--num-envs", type=click.IntRange(min=1), help="Only with this many envs.  [default: several]")
@click.option(
    "--seconds",
    type=Seconds(60),
    default=0.5,
    show_default=True,
    help="How long to measure each choice of settings.",
)
@picture_option()
@policy_option
@seed_option
@set_option
@json_option
def command(
    target: Any,
    name: str,
    num_envs: int | None,
    seconds: float,
    picture: Path | None,
    policy: str,
    seed: int,
    config: dict[str, Any],
    terminal: Terminal,
) -> int:
    """Find the fastest settings for an env here: backend, envs, workers, batch size, sync or async.

    Measures pools with different settings, then the best ones again in turn, and prints the call of `make` to use. With
    --policy the time that choosing actions takes counts too: async helps where that is long. Of settings that are
    equally fast within 3 %, the simplest wins.

    \b
    stepmill tune HalfCheetah-v5
    stepmill tune my_envs.py:Maze --num-envs 64 --policy agent.py:act -o tuning.png
    """
    subject = Workload(name, target, num_envs or 1, config)
    if subject.is_world:
        raise UnsupportedError(
            f"tune: the envs of {name} are one program on a device, without workers or batches to choose. More of them "
            "make better use of it, and so does a GPU: device='cuda'"
        )
    tuning = _Tuning(subject, load_policy(policy), seed, seconds)
    first = first_setups(subject.is_native, cores(), num_envs)
    with quiet(), until_interrupted() as ending, terminal.progress(name, None, "measurements") as bar:
        tuning.run(first, bar)
    if not tuning.rates:
        if ending.interrupted:
            raise KeyboardInterrupt
        raise EnvError(f"no settings work for {name}: {next(iter(tuning.failed.values()))}")
    best = best_of(tuning.rates)
    document: dict[str, Any] = {
        "id": name,
        "best": {**best.arguments, **config},
        "call": _call(name, best, config),
        "steps_per_second": tuning.rates[best],
        "trials": [{**trial.arguments, "steps_per_second": rate} for trial, rate in tuning.sorted()],
        "failed": [{**trial.arguments, "error": error} for trial, error in tuning.failed.items()],
        "machine": describe(),
        "interrupted": ending.interrupted,
    }
    if picture is not None:
        machine = document["machine"]
        note = f"{machine['cores']} cores, {machine['architecture']}, {machine['date']}"
        title = f"{name}: steps per second by settings"
        save_bars(picture, title, _measures(tuning, best), "Steps per second", note)
    terminal.result(document, lambda out: _draw(out, name, tuning, best, document["call"], picture))
    return ending.code


class _Tuning:
    """Measures pools with one choice of settings after another."""

    def __init__(self, subject: Workload, policy: Policy | None, seed: int, seconds: float) -> None:
        self.rates: dict[Setup, float] = {}
        self.failed: dict[Setup, str] = {}
        self._subject = subject
        self._policy = policy
        self._seed = seed
        self._seconds = seconds

    def run(self, first: list[Setup], bar: ProgressLine) -> None:
        """All sync pools, the best of them in async, and the best of all again."""
        bar.expect(len(first))
        self._try(first, bar)
        if not self.rates:
            return
        further = batch_setups(best_of(self.rates))
        finalists = _FINALISTS * _ROUNDS
        bar.expect(len(first) + len(further) + finalists)
        self._try(further, bar)
        best = [trial for trial, _ in self.sorted()[:_FINALISTS]]
        if best_of(self.rates) not in best:
            best.append(best_of(self.rates))
        samples: dict[Setup, list[float]] = {trial: [] for trial in best}
        for _, trial in itertools.product(range(_ROUNDS), best):
            bar.add(1, f"again: {trial}")
            samples[trial].append(self._measure(trial))
            self.rates[trial] = statistics.median(samples[trial])

    def sorted(self) -> list[tuple[Setup, float]]:
        """The fastest first."""
        return sorted(self.rates.items(), key=lambda item: -item[1])

    def _try(self, trials: Iterable[Setup], bar: ProgressLine) -> None:
        for trial in trials:
            bar.add(1, str(trial))
            try:
                self.rates[trial] = self._measure(trial)
            except (ResourceError, EnvError) as error:  # too many for this machine; others may still work
                self.failed[trial] = summary(error)

    def _measure(self, trial: Setup) -> float:
        """Steps per second, those of the policy's time included."""
        with stepmill.make(self._subject.task, seed=self._seed, **trial.arguments, **self._subject.config) as pool:
            return steps_per_second(_Player(pool, self._policy, self._seed), self._seconds)


class _Player:
    """Plays a pool, a number of batches at a time."""

    def __init__(self, pool: GymnasiumPool, policy: Policy | None, seed: int) -> None:
        self.rows_per_call = pool.batch_size
        self._batches = play_on(pool, policy, seed, repeated=True)

    def run(self, calls: int) -> None:
        for _ in itertools.islice(self._batches, calls):
            pass


def _call(name: str, best: Setup, config: dict[str, Any]) -> str:
    task = repr(name) if ":" not in name or name.startswith("gymnasium:") else name.rpartition(":")[2]
    given = "".join(f", {key}={value!r}" for key, value in {**best.arguments, **config}.items())
    return f"stepmill.make({task}{given})"


def _measures(tuning: _Tuning, best: Setup) -> list[Measure]:
    shown = tuning.sorted()[:_MOST_BARS]
    return [Measure(str(trial), rate, trial == best, "best" if trial == best else "") for trial, rate in shown]


def _draw(out: Console, name: str, tuning: _Tuning, best: Setup, call: str, picture: Path | None) -> None:
    out.print(bars_of(out, f"{name}: steps per second by settings", _measures(tuning, best), "/s"))
    if len(tuning.rates) > _MOST_BARS:
        out.print(f"and {len(tuning.rates) - _MOST_BARS} that were slower", soft_wrap=True)
    for trial, why in tuning.failed.items():
        out.print(f"{trial} failed: {why}", soft_wrap=True)
    out.print(f"\n{call}", style="bold", soft_wrap=True)
    out.print(f"{short(tuning.rates[best])} steps per second", soft_wrap=True)
    if picture is not None:
        out.print(f"picture: {picture}", soft_wrap=True)


# ---- which settings to try -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setup:
    """One choice of settings.

    Args:
        num_envs: How many envs.
        backend: Where they run.
        workers: How many threads or processes step them; None: as many as ``make`` chooses.
        batch_size: How many results make a batch; None is sync.
    """

    num_envs: int
    backend: str
    workers: int | None = None
    batch_size: int | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of ``make`` that are not defaults."""
        given: dict[str, Any] = {"num_envs": self.num_envs}
        if self.backend != "thread":  # native envs have it by default
            given["backend"] = self.backend
        if self.workers is not None:
            given["num_threads" if self.backend == "thread" else "num_workers"] = self.workers
        if self.batch_size is not None:
            given["batch_size"] = self.batch_size
        return given

    def __str__(self) -> str:
        said = [f"{self.num_envs:,} env{'s' * (self.num_envs > 1)}"]
        if self.workers is not None:
            what = "thread" if self.backend == "thread" else "worker"
            said.append(f"{self.workers} {what}{'s' * (self.workers > 1)}")
        elif self.backend == "inline":
            said.append("inline")
        said.append("sync" if self.batch_size is None else f"batches of {self.batch_size:,}")
        return ", ".join(said)

    @property
    def effort(self) -> tuple[int, bool, int]:
        """What it takes: less is simpler."""
        return self.num_envs, self.batch_size is not None, self.workers or 1


def first_setups(is_native: bool, cores: int, num_envs: int | None) -> list[Setup]:
    """Sync pools: all numbers of envs and workers that are worth a try."""
    if is_native:
        counts = _NATIVE_ENVS if num_envs is None else (num_envs,)
        return [Setup(n, "thread", threads) for n in counts for threads in up_to(cores) if threads <= n]
    if num_envs is not None:
        found = [Setup(num_envs, "inline")]
        return found + [Setup(num_envs, "process", n) for n in up_to(2 * cores) if n <= num_envs]
    workers = [n for n in up_to(2 * cores) if 2 * n >= cores]
    envs = sorted({n * share for n in workers for share in _ENVS_PER_WORKER})
    setups = [Setup(cores * share, "inline") for share in _ENVS_PER_WORKER]
    return setups + [Setup(n, "process", w) for n in envs for w in workers if n % w == 0 and n // w in _ENVS_PER_WORKER]


def batch_setups(best: Setup) -> list[Setup]:
    """The best setup in async mode, with smaller and smaller batches."""
    if best.backend == "inline":  # nothing goes on while a batch is received
        return []
    sizes = {best.num_envs // share for share in (2, 4, 8)} - {0, best.num_envs}
    return [replace(best, batch_size=size) for size in sorted(sizes, reverse=True)]


def best_of(rates: dict[Setup, float]) -> Setup:
    """The simplest one that is about as fast as the fastest."""
    fastest = max(rates.values())
    return min((setup for setup, rate in rates.items() if rate >= _EQUAL * fastest), key=lambda setup: setup.effort)
