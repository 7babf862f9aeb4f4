"""Orders of an async pool's results: how tests make them, read their files, and play what depends on them."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import stepmill
from support.backends import Actor, Backend, stack
from support.probes import leaves

N, BATCH = 6, 2
LAST, FAILED, TIMEOUT = 1 << 15, 1 << 14, (1 << 16) - 1  # see cpp/bindings/order.h


def make(backend: Backend, task: Any = "CartPole-v1", **arguments: Any) -> Any:
    arguments = {"num_envs": N, "batch_size": BATCH, "seed": 3, **arguments}
    if backend.name == "ray":
        return stepmill.make(task, backend=stepmill.Ray(num_actors=backend.workers), **arguments)
    return backend.make(task, **arguments)


def words_of(file: Path) -> list[int]:
    """What is behind the head."""
    return np.frombuffer(file.read_bytes().partition(b"\n")[2], "<u2").tolist()


def ids_in(results: list[Any]) -> list[list[int]]:
    return [result[-1]["env_id"].tolist() for result in results]


# ---- programs whose every action depends on all that they have received ----------------------------


class Program:
    """Sends parts of what it can, resets some envs or all, and receives: all of it as a random generator says."""

    def __init__(self, pool: Any, seed: int, before_recv: Callable[[Any], None] = lambda pool: None) -> None:
        self.pool, self.before_recv = pool, before_recv
        self.results: list[Any] = []
        self._rng = np.random.default_rng(seed)
        self._samples = Actor(pool, seed)._samples
        self._mood = 0
        self._rows = np.ones(pool.num_envs, int)  # players of each env

    def play(self, turns: int) -> list[Any]:
        self.pool.async_reset()
        return self.go_on(turns)

    def go_on(self, turns: int) -> list[Any]:
        for _ in range(turns):
            self.before_recv(self.pool)
            self._see(self.pool.recv())
            self._reset_some()
            self._send(self._some_of(self._idle()))
            self._send(self._some_of(self._idle()))
            if not self.pool.in_flight:
                self._send(self._idle())
        while self.pool.in_flight:
            self.before_recv(self.pool)
            self._see(self.pool.recv())
        return self.results

    def _see(self, result: Any) -> None:
        self.results.append(result)
        for leaf in leaves(result):
            self._mood = zlib.crc32(leaf.tobytes(), self._mood)
        info = result[-1]
        self._rows[info["env_id"]] = 1
        if "players" in info:
            owners = info["players"]["env_id"]
            for env_id in info["env_id"]:
                self._rows[env_id] = int((owners == env_id).sum())

    def _idle(self) -> list[int]:
        return sorted(set(range(self.pool.num_envs)) - set(self.pool.in_flight))

    def _some_of(self, ids: list[int]) -> list[int]:
        return self._rng.permutation(ids)[: self._rng.integers(0, len(ids) + 1)].tolist()

    def _reset_some(self) -> None:
        dice = self._rng.random()
        if dice < 0.05:
            self._see(self.pool.reset())
        elif dice < 0.2 and (some := self._some_of(self._idle())):
            self._see(self.pool.reset(some))
        elif dice < 0.3 and (some := self._some_of(self._idle())):
            self.pool.async_reset(some)

    def _send(self, ids: list[int]) -> None:
        if not ids:
            return
        owners = np.repeat(ids, self._rows[ids])
        chosen = [self._samples[(self._mood + i) % 50] for i in range(len(owners))]
        actions = stack(self.pool.spec.action_space, chosen)
        if self.pool.num_players > 1:
            self.pool.send({"action": actions, "env_id": ids, "players.env_id": owners.astype(np.int32)})
        else:
            self.pool.send(actions, ids)


class AnyOrder:
    """Writes an order down while it is replayed, chosen by a random generator among those that are possible."""

    def __init__(self, file: Path, pool: Any, seed: int) -> None:
        self._file, self._rng = file, np.random.default_rng(seed)
        pool.record_order(file)  # its head
        pool.close()

    def __call__(self, pool: Any) -> None:
        ids = self._rng.permutation(pool.in_flight)[: pool.batch_size]
        with self._file.open("ab") as file:
            file.write(np.array([*ids[:-1], ids[-1] | LAST], "<u2").tobytes())
