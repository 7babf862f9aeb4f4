"""What the tests of sessions share: the places where envs run, and an env of a plain pool that is played like one."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

import numpy as np

import stepmill
from support.backends import INLINE, RAY, THREAD, TWO, Actor, Backend
from support.envs.remote import Teller


@dataclass(frozen=True)
class Place:
    """A pool of sessions, by the ways in which its rows come to the loop."""

    name: str
    backend: Backend
    task: Any
    arguments: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        return self.name

    def make(self, num_envs: int, view: str = "gymnasium", **arguments: Any) -> Any:
        return self.backend.make(self.task, view, num_envs=num_envs, **dict(self.arguments), **arguments)


PLACES = [
    Place("inline", INLINE, Teller),
    Place("inline-native", INLINE, "CartPole-v1"),
    Place("threads", THREAD, "CartPole-v1", (("num_threads", 2),)),
    Place("threads-that-may-block", THREAD, "Probe-v0", (("num_threads", 2), ("length", 7))),
    Place("threads-async", THREAD, "CartPole-v1", (("num_threads", 2), ("batch_size", 2))),
    Place("processes", TWO, Teller),
    Place("processes-native", TWO, "CartPole-v1"),
    Place("processes-async", TWO, Teller, (("batch_size", 2),)),
    *(Place("ray", backend, Teller) for backend in RAY),
]


def plain_twin(place: Place, num_envs: int, **arguments: Any) -> Any:
    """A pool of the same envs in the calling thread."""
    of_envs = {key: value for key, value in place.arguments if key not in ("num_threads", "batch_size")}
    return stepmill.make(place.task, num_envs=num_envs, backend="inline", **of_envs, **arguments)


class SingleEnv:
    """One env of a plain pool, which shows what a session with the same seed should."""

    def __init__(self, place: Place, seed: int) -> None:
        self._pool = plain_twin(place, 1, autoreset="disabled")
        self._seed: int | None = seed

    def reset(self) -> tuple[Any, dict[str, Any]]:
        seed, self._seed = self._seed, None
        observation, info = self._pool.reset(seed=seed)
        return observation[0].copy(), self._pool.info_rows(info)[0]

    def step(self, action: Any) -> tuple[Any, ...]:
        observation, reward, terminated, truncated, info = self._pool.step(np.asarray(action)[None])
        own = self._pool.info_rows(info)[0]
        if terminated[0] or truncated[0]:
            counted = {"episode_return": info["episode_return"][0], "episode_length": info["episode_length"][0]}
            own |= {key: value.item() for key, value in counted.items()}
        return observation[0].copy(), reward[0].item(), terminated[0].item(), truncated[0].item(), own

    def close(self) -> None:
        self._pool.close()


async def play(env: Any, act: Actor, steps: int) -> list[Any]:
    """What a session, or anything like it, shows in so many steps at random, with a reset after each end."""
    shown = [await _value(env.reset())]
    for _ in range(steps):
        shown.append(await _value(env.step(act.one())))
        if shown[-1][2] or shown[-1][3]:
            shown.append(await _value(env.reset()))
    for *_, info in shown:
        info.pop("id", None)  # a ``Teller`` says which env it is
    return shown


async def _value(result: Any) -> Any:
    return await result if isinstance(result, Coroutine) else result


class Harmless(Actor):
    """Random actions, but none that makes a ``Teller`` fail."""

    def one(self) -> Any:
        action = super().one()
        return action % 2 if isinstance(action, np.integer) else action


async def turns(count: int = 5) -> None:
    """Lets the loop go round some times, so that what was asked is on its way."""
    for _ in range(count):
        await asyncio.sleep(0)
