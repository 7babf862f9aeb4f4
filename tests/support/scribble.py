"""Envs that write anywhere in the memory that they share with their pool, and what must hold then.

Run by itself, it does so thousands of times::

    PYTHONPATH=tests python -m support.scribble --rounds 40 --steps 200 --seed 1
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import struct
import sys
import time
from collections.abc import Iterator
from typing import Any, ClassVar

import gymnasium
import numpy as np

import stepmill
from stepmill.errors import BrokenPoolError, EnvError

WORDS = 200  # that an env writes in one step
STEP_TIMEOUT = 1.0
# A call ends when the env has missed its deadline, was killed, and its worker was seen to end. Under load, later.
MOST_SECONDS = 30.0
MOST_GROWTH = 512 << 20


def shared_ranges(name: str = "memfd:stepmill") -> Iterator[tuple[int, int]]:
    """The addresses in this process of what a pool and its workers share, as far as there is memory behind them."""
    with open("/proc/self/maps") as lines, open("/proc/self/mem", "rb", buffering=0) as memory:
        for line in lines:
            if name not in line:
                continue
            first, last = (int(part, 16) for part in line.split()[0].split("-"))
            low, high = first, min(last, first + (64 << 20))
            while high - low > 4096:  # beyond the end of the file nothing can be read
                middle = (low + high) // 2 // 4096 * 4096
                try:
                    readable = bool(os.pread(memory.fileno(), 1, middle))
                except OSError:
                    readable = False
                low, high = (middle, high) if readable else (low, middle)
            yield first, low


class Scribbler(gymnasium.Env[np.ndarray, np.int64]):
    """Action 1: writes random words over everything it shares with the pool; 2: and raises; 3: and hangs."""

    observation_space: ClassVar[Any] = gymnasium.spaces.Box(-1e9, 1e9, (3,), np.float64)
    action_space: ClassVar[Any] = gymnasium.spaces.Discrete(4)

    def __init__(self, env_id: int = 0, seed: int = 0) -> None:
        # Another one in each life: else each would do the same harm.
        self.random = np.random.default_rng([seed, env_id, os.getpid()])
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        self.steps = 0
        return self.look(), {"steps": 0}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.steps += 1
        if action:
            self.scribble()
        if action == 2:
            raise ValueError("it raised")
        while action == 3:
            time.sleep(60)
        info = {"steps": self.steps, "text": "x" * int(self.random.integers(1, 3000))}
        return self.look(), 1.0, self.steps % 7 == 0, False, info

    def look(self) -> np.ndarray:
        return np.full(3, self.steps, np.float64)

    def scribble(self) -> None:
        ranges = [one for one in shared_ranges() if one[1] > one[0]]
        fd = os.open("/proc/self/mem", os.O_RDWR)
        try:
            for _ in range(WORDS):
                first, last = ranges[self.random.integers(len(ranges))]
                if self.random.random() < 0.7:  # where the words, the reports and the ring are
                    last = min(last, first + (64 << 10))
                at = first + int(self.random.integers((last - first) // 8)) * 8
                with contextlib.suppress(OSError):
                    os.pwrite(fd, self.word(os.pread(fd, 8, at)), at)
        finally:
            os.close(fd)

    def word(self, old: bytes) -> bytes:
        kind = self.random.integers(5)
        if kind == 0:
            return self.random.bytes(8)
        if kind == 1:
            return struct.pack("<Q", 1 << int(self.random.integers(64)))
        if kind == 2:
            return struct.pack("<ii", *(int(self.random.integers(-5, 40)) for _ in range(2)))
        value = int.from_bytes(old, "little")
        if kind == 3:  # a bit of what is there
            return (value ^ (1 << int(self.random.integers(64)))).to_bytes(8, "little")
        return ((value + int(self.random.integers(-2, 3))) % 2**64).to_bytes(8, "little")


MODES: dict[str, dict[str, Any]] = {
    "sync": {},
    "async": {"batch_size": 3},
    "one by one": {"batch_size": 1},
    "same_step": {"autoreset": "same_step"},
}


# In these each env has a row of its own: what an env can hit belongs to one env, and costs a worker at most.
MODES_WITHOUT_A_RING = ("sync", "same_step")


class Trial:
    """One pool of scribblers: every action has its row, or the pool says that it is broken, and can be closed."""

    def __init__(self, mode: str, seed: int, on_error: str = "restart") -> None:
        self.random = np.random.default_rng([seed, len(mode)])
        self.pool: Any = stepmill.make(
            Scribbler,
            num_envs=6,
            num_workers=3,
            backend="process",
            step_timeout=STEP_TIMEOUT,
            reset_timeout=STEP_TIMEOUT,
            on_error=on_error,
            max_restarts=255,
            env_config=[{"seed": seed}] * 6,
            **MODES[mode],
        )
        self.in_flight: set[int] = set()
        self.rows = self.abnormal = 0

    def run(self, steps: int) -> bool:
        """Whether the pool lived to the end."""
        try:
            return self.play(steps)
        finally:
            self.timed(self.close)

    def play(self, steps: int) -> bool:
        try:
            self.send_reset()
            for _ in range(steps):
                self.receive()
                self.act()
                if self.random.random() < 0.05:
                    self.ask()
                if self.random.random() < 0.05:
                    self.pool.stats()
            while self.in_flight:
                self.receive()
        except BrokenPoolError:
            for call in (lambda: self.pool.recv(), lambda: self.pool.reset(), lambda: self.pool.get_attr("steps")):
                try:
                    call()
                except BrokenPoolError:
                    continue
                raise AssertionError("a broken pool can be used") from None
            return False
        return True

    def timed(self, call: Any, *args: Any) -> Any:
        began = time.monotonic()
        try:
            return call(*args)
        finally:
            spent = time.monotonic() - began
            assert spent < MOST_SECONDS, f"{call} took {spent} s"

    def close(self) -> None:
        with contextlib.suppress(EnvError):  # of an env's close()
            self.pool.close()

    def send_reset(self) -> None:
        self.pool.async_reset()
        self.in_flight = set(range(6))

    def act(self) -> None:
        idle = [env_id for env_id in range(6) if env_id not in self.in_flight]
        if not idle:
            return
        deeds = self.random.choice(4, len(idle), p=[0.55, 0.4, 0.04, 0.01])
        self.timed(self.pool.send, deeds, np.asarray(idle, np.int32))
        self.in_flight |= set(idle)

    def receive(self) -> None:
        if not self.in_flight:
            return
        try:
            batch = self.timed(self.pool.recv)
        except EnvError as error:
            batch = error.batch
        assert batch is not None, "an error without the rows"
        *_, truncated, info = batch
        ids = info["env_id"].tolist()
        assert len(ids) == len(set(ids)) == len(truncated), f"an env has two rows: {ids}"
        assert set(ids) <= self.in_flight, f"a row of an env that was sent nothing: {ids}, {self.in_flight}"
        self.in_flight -= set(ids)
        self.rows += len(ids)
        self.abnormal += int(np.sum(info.get("abnormal", 0)))

    def ask(self) -> None:
        with contextlib.suppress(EnvError):
            self.timed(self.pool.get_attr, "steps")


def peak_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def trials(rounds: int, steps: int, seed: int) -> Iterator[str]:
    """Runs them, and says of each how it went."""
    for number in range(rounds):
        for mode in MODES:
            trial = Trial(mode, seed + number, "restart" if number % 2 else "raise")
            before = peak_memory()
            lived = trial.run(steps)
            assert lived or mode not in MODES_WITHOUT_A_RING, f"{mode}, seed {seed + number}: the pool broke"
            grown = peak_memory() - before
            assert grown < MOST_GROWTH, f"{mode}, seed {seed + number}: the caller grew by {grown >> 20} MiB"
            yield f"seed {seed + number}, {mode}: {trial.rows} rows, {trial.abnormal} abnormal, lived: {lived}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m support.scribble", description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    for line in trials(chosen.rounds, chosen.steps, chosen.seed):
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
