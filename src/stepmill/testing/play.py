"""Plays episodes with an env. Every ``reset`` and ``step`` becomes a ``Moment``, with as many parts as can be read."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from stepmill.envs.conform import as_arrays
from stepmill.envs.timestep import BaseEnvTimestep, is_timestep
from stepmill.testing.subject import CheckedEnvs, StopTrial
from stepmill.testing.values import arrays_in

_NAMES = BaseEnvTimestep._fields

# What is wrong with the form of a result: expected, got.
Form = tuple[str, str] | None


class Spaces(NamedTuple):
    """How an env describes itself."""

    observation: Any
    action: Any
    reward: Any
    num_agents: Any


class HeldArray(NamedTuple):
    """An array that an env returned, and its content at that time."""

    where: str
    path: str
    array: np.ndarray
    content: bytes


@dataclass
class HeldResults:
    """What an env returned and a caller may still hold: the last few results, and the first of the episode."""

    first: list[HeldArray] = field(default_factory=list)
    last: deque[list[HeldArray]] = field(default_factory=lambda: deque(maxlen=4))
    infos: deque[Any] = field(default_factory=lambda: deque(maxlen=4))

    def __iter__(self) -> Iterator[HeldArray]:
        yield from self.first
        for arrays in self.last:
            yield from arrays

    def add(self, moment: Moment) -> None:
        """Adds the arrays of a result, after the rules have seen it."""
        arrays = [HeldArray(moment.where, path, array, array.tobytes()) for path, array in moment.arrays()]
        if moment.call == "reset":
            self.first = arrays
        else:
            self.last.append(arrays)
            self.infos.append(moment.info)


@dataclass(frozen=True)
class Moment:
    """The result of a call, and what is needed to judge it. Parts that cannot be found are None."""

    run: str
    call: str  # "reset" or "step"
    episode: int
    spaces: Spaces
    held: HeldResults
    form: Form
    obs: Any
    step: int = 0
    is_readable: bool = True  # whether the parts of the result could be told apart
    reward: Any = None
    done: Any = None
    info: Any = None
    action: Any = None
    action_before: Any = None

    @property
    def where(self) -> str:
        """``step 3 of episode 0``."""
        return place(self.run, self.call, self.episode, self.step)

    @property
    def over(self) -> bool:
        """Whether the env says that the episode ended."""
        return self.call == "step" and _truth(self.done)

    def arrays(self) -> Iterable[tuple[str, np.ndarray]]:
        """The arrays that the caller may keep."""
        yield from arrays_in(self.obs, "obs")
        yield from arrays_in(self.reward, "reward")


def _truth(value: Any) -> bool:
    """The truth of whatever an env returns as ``done``; with one flag per agent, whether all are true."""
    try:
        return bool(value)
    except Exception:
        pass
    try:
        return bool(np.asarray(value).all())
    except Exception:
        return False


def place(run: str, call: str, episode: int, step: int = 0) -> str:
    """Which call it was, in words."""
    what = f"step {step}" if call == "step" else call
    return f"{what} of episode {episode}{f' ({run})' if run else ''}"


def read_reset(returned: Any, space: spaces.Space[Any]) -> tuple[Any, Form]:
    """The observation in what ``reset`` returned."""
    is_pair = isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], dict)
    if not is_pair or isinstance(space, spaces.Tuple):
        return returned, None
    return returned[0], ("only the observation", "a tuple (observation, info), as in Gymnasium")


def read_step(returned: Any) -> tuple[tuple[Any, Any, Any, Any] | None, Form]:
    """The four parts of what ``step`` returned, or None if they cannot be told apart."""
    expected = f"a BaseEnvTimestep({', '.join(_NAMES)})"
    if not isinstance(returned, tuple):
        return None, (expected, f"a {type(returned).__name__}")
    names = getattr(returned, "_fields", ())
    if set(_NAMES) <= set(names):
        obs, reward, done, info = (getattr(returned, name) for name in _NAMES)
        form = None if is_timestep(returned) else (expected, f"a tuple with the fields {', '.join(names)}")
        return (obs, reward, done, info), form
    if len(returned) == 4:
        return (returned[0], returned[1], returned[2], returned[3]), (expected, "a tuple of 4 without these fields")
    if len(returned) == 5:
        obs, reward, terminated, truncated, info = returned
        ended = _truth(terminated) or _truth(truncated)
        return (obs, reward, ended, info), (expected, "a tuple of 5 with terminated and truncated, as in Gymnasium")
    return None, (expected, f"a tuple of {len(returned)}")


# ---- playing -------------------------------------------------------------------------------------

# From the number of a step in its episode to its action.
Actions = Callable[[int], Any]


def new_actions(space: spaces.Space[Any], seed: int) -> Actions:
    """Samples of the action space, a new one each time, from our own generator."""
    sampler = copy.deepcopy(space)
    sampler.seed(seed)
    return lambda step: as_arrays(space, sampler.sample())


def fixed_actions(space: spaces.Space[Any], seed: int) -> Actions:
    """Samples of the action space, the same in every episode: any difference then comes from the env."""
    sample = new_actions(space, seed)
    drawn: list[Any] = []

    def action(step: int) -> Any:
        while len(drawn) < step:
            drawn.append(sample(step))
        return copy.deepcopy(drawn[step - 1])

    return action


def play(
    envs: CheckedEnvs, env: Any, seen: Spaces, actions: Actions, episodes: int, steps: int, run: str = ""
) -> Iterator[Moment]:
    """Plays episodes of at most ``steps`` steps each. Raises ``StopTrial`` if the env cannot go on."""
    held = HeldResults()
    for episode in range(episodes):
        returned = envs.call("reset", place(run, "reset", episode), env.reset)
        obs, form = read_reset(returned, seen.observation)
        moment = Moment(run=run, call="reset", episode=episode, spaces=seen, held=held, form=form, obs=obs)
        yield moment
        held.add(moment)
        for step in range(1, steps + 1):
            action = actions(step)
            before = copy.deepcopy(action)
            returned = envs.call("step", place(run, "step", episode, step), env.step, action)
            parts, form = read_step(returned)
            obs, reward, done, info = parts or (None, None, None, None)
            moment = Moment(
                run=run,
                call="step",
                episode=episode,
                step=step,
                spaces=seen,
                held=held,
                form=form,
                is_readable=parts is not None,
                obs=obs,
                reward=reward,
                done=done,
                info=info,
                action=action,
                action_before=before,
            )
            yield moment
            if parts is None:
                raise StopTrial(f"{moment.where} returned something unreadable")
            held.add(moment)
            if moment.over:
                break
