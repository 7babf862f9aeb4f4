"""What the suites over all backends share: the backends, envs that show much, and an equality that forgives nothing.

The inline backend is the oracle: whatever it shows, every other backend shows too, bit for bit. Workers import
this module for its envs, so it is quick to import.
"""

from __future__ import annotations

import copy
import functools
import platform
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import batch_space, concatenate, create_empty_array, iterate

import stepmill
from stepmill.errors import EnvError
from support import ray_cluster
from support.envs import CountingEnv
from support.probes import seen


@dataclass(frozen=True)
class Backend:
    """Where envs run, and on how many workers."""

    name: str
    workers: int | None = None

    def __str__(self) -> str:
        return self.name if self.workers is None else f"{self.name}-{self.workers}"

    def make(self, task: Any, view: str = "gymnasium", **arguments: Any) -> Any:
        if self.name == "ray":
            ray_cluster.cluster()
            ray = stepmill.Ray(num_actors=self.workers, resources={"CPU": 1})
            return stepmill.make(task, view, backend=ray, **arguments)
        if self.workers is not None:
            arguments["num_workers"] = self.workers
        return stepmill.make(task, view, backend=self.name, **arguments)


INLINE, THREAD = Backend("inline"), Backend("thread")
TWO = Backend("process", 2)
RAY = (Backend("ray", 2),) if ray_cluster.WANTED else ()
PROCESSES = (Backend("process", 1), TWO, Backend("process", 7), *RAY)


# ---- equal ---------------------------------------------------------------------------------------


def assert_same(got: Any, expected: Any, where: str = "") -> None:
    """Equal in structure, type and every bit: 0.0 is not -0.0 here, and NaN is NaN."""
    assert type(got) is type(expected), f"{where}: expected {expected!r}, got {got!r}"
    if isinstance(expected, dict):
        assert got.keys() == expected.keys(), f"{where}: expected the keys {[*expected]}, got {[*got]}"
        for key in expected:
            assert_same(got[key], expected[key], f"{where}[{key!r}]")
    elif isinstance(expected, list | tuple):
        assert len(got) == len(expected), f"{where}: expected {len(expected)} items, got {len(got)}"
        for i, (one, other) in enumerate(zip(got, expected, strict=True)):
            assert_same(one, other, f"{where}[{i}]")
    elif isinstance(expected, np.ndarray | np.generic):
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape), where
        if expected.dtype == object:
            assert_same(got.tolist(), expected.tolist(), where)
        else:
            assert got.tobytes() == expected.tobytes(), f"{where}: expected {expected!r}, got {got!r}"
    else:
        assert got == expected or (got != got and expected != expected), f"{where}: expected {expected!r}, got {got!r}"


def attempt(call: Callable[[], Any]) -> Any:
    """What a call gives, or, where an env failed, everything that its error says."""
    try:
        return call()
    except EnvError as error:
        told = [(type(one), str(one), one.env_id, one.phase, one.episode, one.step) for one in error.errors]
        return {"errors": told, "causes": [type(one.__cause__) for one in error.errors], "batch": error.batch}


# ---- played --------------------------------------------------------------------------------------


def view_of(pool: Any) -> str:
    return {"GymnasiumPool": "gymnasium", "GymPool": "gym", "DmPool": "dm"}[type(pool).__name__]


class _Samples:
    """Samples of a space, drawn once: drawing them costs more than most steps."""

    def __init__(self, space: spaces.Space[Any], seed: int) -> None:
        self._space = copy.deepcopy(space)
        self._space.seed(seed)
        self._drawn: list[Any] = []

    def __getitem__(self, index: int) -> Any:
        while len(self._drawn) <= index:
            self._drawn.append(self._space.sample())
        return self._drawn[index]


_samples: dict[tuple[str, int], _Samples] = {}


class Actor:
    """Random actions, the same for the same seed, for any number of envs at a time."""

    def __init__(self, pool: Any, seed: int = 0) -> None:
        self._space = pool.spec.action_space
        key = (repr(self._space), seed)
        self._samples = _samples.setdefault(key, _Samples(self._space, seed))
        self._used = 0

    def one(self) -> Any:
        self._used += 1
        return self._samples[self._used - 1]

    def __call__(self, count: int) -> Any:
        return stack(self._space, [self.one() for _ in range(count)])


def stack(space: spaces.Space[Any], values: list[Any]) -> Any:
    """Values of single envs as one of a batch."""
    return concatenate(space, values, create_empty_array(space, len(values)))


def play(pool: Any, steps: int, seed: int = 0) -> list[Any]:
    """The results of a reset and of ``steps`` random actions; where autoreset is off, of the resets between."""
    act = Actor(pool, seed)
    results = [pool.reset()]
    for _ in range(steps):
        results.append(pool.step(act(pool.num_envs)))
        if pool.config["autoreset"] == "disabled":
            ended = np.flatnonzero(seen(view_of(pool), results[-1]).done)
            if len(ended):
                results.append(pool.reset(ended[::-1]))
    return results


def play_async(pool: Any, count: int, seed: int = 0) -> list[list[Any]]:
    """The first ``count`` results of every env. What an env does depends on nothing but its own results so far."""
    view, space = view_of(pool), pool.spec.action_space
    batched = functools.cache(functools.partial(batch_space, pool.spec.observation_space))
    actors = [Actor(pool, seed + env_id) for env_id in range(pool.num_envs)]
    rows: list[list[Any]] = [[] for _ in range(pool.num_envs)]
    pool.async_reset()
    in_flight = pool.num_envs
    while in_flight:
        ids = add_rows(rows, view, batched, pool.recv())
        going = [one for one in ids if len(rows[one]) < count]
        ended = [one for one in going if pool.config["autoreset"] == "disabled" and rows[one][-1]["done"]]
        if ended:
            pool.reset(ended)  # what it shows is seen by the sync suites
        in_flight += len(going) - len(ids)
        if going:
            pool.send(stack(space, [actors[one].one() for one in going]), going)
    return rows


def add_rows(rows: list[list[Any]], view: str, batched: Callable[[int], spaces.Space[Any]], batch: Any) -> list[int]:
    """Adds each row of a batch to those of its env, and returns whose rows they were."""
    result = seen(view, batch)
    observations = list(iterate(batched(len(result.ids)), result.obs))
    for i, env_id in enumerate(result.ids):
        row = {"obs": observations[i], "reward": result.reward[i], "done": result.done[i]}
        if view == "gymnasium":
            row |= {"terminated": batch[2][i], "truncated": batch[3][i]}
        elif view == "dm":
            row |= {"step_type": batch.step_type[i], "discount": batch.discount[i]}
        rows[env_id].append({**row, "info": info_row(result.info, i)})
    return result.ids


def info_row(info: dict[str, Any], row: int) -> dict[str, Any]:
    """What the info of a batch says of one row."""
    out = {}
    for key, column in info.items():
        is_mask = key.startswith("_") and key[1:] in info
        if not is_mask and info.get(f"_{key}", np.ones(row + 1, np.bool_))[row]:
            out[key] = info_row(column, row) if isinstance(column, dict) else column[row]
    return out


# ---- envs ----------------------------------------------------------------------------------------


class Saying(spaces.Space[str]):
    """Derived from none of Gymnasium's kinds, as the space of MiniGrid's missions is."""

    def contains(self, x: Any) -> bool:
        return x in ("hot", "cold")


class SayingEnv(gymnasium.Env[Any, Any]):
    """Says something."""

    observation_space = spaces.Dict({"place": spaces.Discrete(3), "saying": Saying()})
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return {"place": 0, "saying": "cold"}, {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return {"place": 2, "saying": "hot"}, 0.0, False, False, {}


class WildEnv(gymnasium.Env[Any, Any]):
    """All of it at random, from its own generator: what it shows and tells, when it ends and how."""

    observation_space = spaces.Dict(
        {
            "image": spaces.Box(0, 255, (2, 5, 5), np.uint8),
            "state": spaces.Tuple([spaces.Box(-np.inf, np.inf, (3,), np.float64), spaces.Discrete(9, start=-4)]),
            "word": spaces.Text(8),
            "flags": spaces.MultiBinary(3),
        }
    )
    action_space = spaces.Tuple(
        [spaces.Discrete(3), spaces.Dict({"push": spaces.Box(-1, 1, (2,), np.float32), "say": spaces.Text(5)})]
    )
    metadata = {"render_modes": ["rgb_array"], "render_fps": 12}  # noqa: RUF012
    render_mode = "rgb_array"

    def __init__(self, length: float = 12.0) -> None:
        self.length = length
        self.shown: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self._show(), {"options": options, "told": self.np_random.random()}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        end, cut = self.np_random.random(2) < 1 / self.length
        info = {"action": [copy.deepcopy(action)], "deep": {"number": np.float32(self.np_random.random())}}
        if self.np_random.random() < 0.3:
            info["sometimes"] = self.np_random.integers(0, 9, 2)
            info["deep"]["text"] = f"{self.np_random.integers(99)}"
        return self._show(), self.np_random.normal(), end, cut, info

    def render(self) -> np.ndarray:
        return np.moveaxis(self.shown["image"], 0, -1)

    def _show(self) -> Any:
        draw = self.np_random
        self.shown = {
            "image": draw.integers(0, 256, (2, 5, 5), np.uint8),
            "state": (draw.normal(size=3), draw.integers(-4, 5)),
            "word": draw.bytes(4).hex(),
            "flags": draw.integers(0, 2, 3, np.int8),
        }
        return self.shown


class EchoEnv(gymnasium.Env[Any, Any]):
    """Shows a sample of its space at resets, and its action after steps; tells the action once more, as it came."""

    def __init__(self, space: spaces.Space[Any], length: int = 4) -> None:
        self.observation_space, self.action_space = copy.deepcopy(space), space
        self.length = length
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            self.observation_space.seed(seed)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return action, float(self.steps), self.steps == self.length, False, {"action": [copy.deepcopy(action)]}


class InfoEnv(CountingEnv):
    """Tells the info that it is told to tell; an env that ``length`` steps end."""

    def __init__(self, info: Any = None, length: int = 10**9) -> None:
        super().__init__()
        self.info = {} if info is None else info
        self.length = length

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, Any]:
        return super().reset(seed=seed, options=options)[0], self.info

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, Any]:
        obs, reward, *_ = super().step(action)
        return obs, reward, self.count >= self.length, False, self.info


def build_by_id(env_id: int, length: float = 5.0) -> WildEnv:
    return WildEnv(length + env_id)


class OddEnv(CountingEnv):
    """Ends a step with whatever ``spoil`` makes of it."""

    def __init__(self, spoil: Callable[..., Any]) -> None:
        super().__init__()
        self._spoil = spoil

    def step(self, action: int) -> Any:
        return self._spoil(*super().step(action))


class RewritingEnv(CountingEnv):
    """Tells one and the same dict, with the same array and list in it, written over at every call."""

    def __init__(self) -> None:
        super().__init__()
        self._told: dict[str, Any] = {"array": np.zeros(2), "list": [0], "deep": {"array": np.zeros(1)}}

    def _tell(self) -> dict[str, Any]:
        self._told["array"][:] = self._told["deep"]["array"][:] = self._told["list"][0] = self.count
        return self._told

    def reset(self, **arguments: Any) -> Any:
        return super().reset(**arguments)[0], self._tell()

    def step(self, action: int) -> Any:
        return *super().step(action)[:4], self._tell()


class Wish(spaces.Space[str]):
    """A space of a package, of no kind that Gymnasium has."""

    def __init__(self, words: tuple[str, ...]) -> None:
        super().__init__((), np.str_)
        self.words = words

    def contains(self, x: Any) -> bool:
        return x in self.words

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Wish) and self.words == other.words


class WishingEnv(CountingEnv):
    """Observes a word of such a space beside its count."""

    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Dict({"count": self.observation_space, "wish": Wish(("tea", "salt"))})

    def reset(self, **arguments: Any) -> Any:
        count, info = super().reset(**arguments)
        return {"count": count, "wish": "tea"}, info

    def step(self, action: int) -> Any:
        count, *rest = super().step(action)
        return {"count": count, "wish": "salt"}, *rest


class AnsweringEnv(CountingEnv):
    """Answers questions."""

    def echo(self, *args: Any, **kwargs: Any) -> Any:
        return args, kwargs

    def apply(self, function: Callable[[Any], Any]) -> Any:
        return function(self.count)

    def move(self, by: int) -> None:
        self.count += by

    def versions(self) -> tuple[str, str, str]:
        return platform.python_version(), np.__version__, gymnasium.__version__

    def complain(self) -> None:
        raise ZeroDivisionError("asked too much")


# ---- things --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Thing:
    """An object that is no number, array or text."""

    name: Any
    part: Any = None


class Colour(Enum):
    RED = "red"


Pair = namedtuple("Pair", "left right")
