"""Envs whose observations and actions are of many spaces, and objects of no space at all.

Workers import this module, so it is quick to import.
"""

from __future__ import annotations

import copy
from collections import namedtuple
from dataclasses import dataclass
from enum import Enum
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from support.envs import CountingEnv


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

    def get_state(self) -> None:
        """Nothing but its generator decides how it goes on."""

    def set_state(self, state: None) -> None:
        pass

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


def build_by_id(env_id: int, length: float = 5.0) -> WildEnv:
    return WildEnv(length + env_id)


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


class Wish(spaces.Space[str]):
    """A space of a package, of no kind that Gymnasium has, as that of MiniGrid's missions is."""

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


@dataclass(frozen=True)
class Thing:
    """An object that is no number, array or text."""

    name: Any
    part: Any = None


class Colour(Enum):
    RED = "red"


Pair = namedtuple("Pair", "left right")


class SpaceEnv(gymnasium.Env[Any, Any]):
    """Shows samples of its observation space, tells an info of every kind, and keeps the actions it was given."""

    def __init__(self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any], length: int = 4) -> None:
        self.observation_space = copy.deepcopy(observation_space)  # samples of one env are its own
        self.action_space = action_space
        self.received: list[Any] = []
        self.options: list[Any] = []
        self._length = length
        self._steps = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.options.append(options)
        self._steps = 0
        return self.observation_space.sample(), {"at_reset": self.np_random.random()}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.received.append(copy.deepcopy(action))
        self._steps += 1
        reward = float(self.np_random.random())
        return self.observation_space.sample(), reward, self._steps >= self._length, False, self._info()

    def _info(self) -> dict[str, Any]:
        number = int(self.np_random.integers(100))
        info = {
            "int": number,
            "float": number / 8,
            "bool": number % 2 == 0,
            "float32": np.float32(number),
            "array": np.arange(3, dtype=np.int16) + np.int16(number),
            "text": f"number {number}",
            "list": [number, None],
            "nested": {"int": number, "deeper": {"array": np.full((2, 2), float(number))}},
        }
        if number % 3 == 0:
            info["sometimes"] = number
        return info


class ShowEnv(CountingEnv):
    """Shows whatever it is told to, whether its space holds that or not."""

    def __init__(self, observation_space: spaces.Space[Any], show: Any, at: int = 1) -> None:
        super().__init__()
        self.observation_space = observation_space
        self._show, self._at = show, at

    def _observe(self) -> Any:
        if self.count == self._at:
            return self._show
        self.observation_space.seed(0)
        return self.observation_space.sample()


def env_of(action: spaces.Space[Any], observation: spaces.Space[Any] | None = None) -> type[gymnasium.Env]:
    """A class of envs of these spaces, whose info is the action that they got."""

    class Env(gymnasium.Env):
        observation_space = observation or spaces.Discrete(2)
        action_space = action

        def reset(self, *, seed: Any = None, options: Any = None) -> Any:
            return self.observation_space.sample(), {}

        def step(self, action: Any) -> Any:
            return self.observation_space.sample(), 0.0, False, False, {"got": action}

    return Env


class Mixed(gymnasium.Env[Any, Any]):
    """Observations and actions have several parts, of several types."""

    observation_space = spaces.Dict(
        {
            "noise": spaces.Box(-1, 1, (2, 3), np.float32),
            "counts": spaces.Tuple([spaces.Discrete(100), spaces.MultiBinary(2)]),
        }
    )
    action_space = spaces.Tuple([spaces.Discrete(3), spaces.Dict({"push": spaces.Box(-1, 1, (2,), np.float64)})])

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.at = 0
        return self._look(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        chosen, pushed = action
        self.at += 1
        return self._look(), float(chosen + pushed["push"].sum()), self.at == 5, False, {}

    def get_state(self) -> int:
        return self.at

    def set_state(self, state: int) -> None:
        self.at = state

    def _look(self) -> Any:
        noise = self.np_random.uniform(-1, 1, (2, 3)).astype(np.float32)
        return {"noise": noise, "counts": (self.at, np.array([self.at % 2, 1], np.int8))}


INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


DTYPES = ("bool", *INTEGERS, "float16", "float32", "float64")


class AllTypes(gymnasium.Env[Any, Any]):
    """Observations of every type that the engine has, with a text between them."""

    action_space = spaces.Discrete(3)

    def __init__(self) -> None:
        numbers = {name: spaces.Box(0, 1 if name == "bool" else 100, (2,), np.dtype(name).type) for name in DTYPES}
        self.observation_space = spaces.Dict(
            {**numbers, "pair": spaces.Tuple([spaces.Discrete(9), spaces.MultiBinary(3)]), "word": spaces.Text(9)}
        )
        self.count = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.count = 0
        return self.observe(), {"seen": self.count}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.count += 1
        return self.observe(), float(action), self.count == 4, False, {"seen": self.count, "place": np.full(2, 0.5)}

    def get_state(self) -> int:
        return self.count

    def set_state(self, state: int) -> None:
        self.count = state

    def observe(self) -> dict[str, Any]:
        numbers = {name: np.full(2, self.count % 2 if name == "bool" else self.count, name) for name in DTYPES}
        return {**numbers, "pair": (self.count, np.full(3, self.count % 2, np.int8)), "word": "x" * self.count}
