"""For pools that hand out tensors: envs with all kinds of observations, and the comparison with numpy's arrays."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

import stepmill
from support.probes import ProbeTwin

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

    def observe(self) -> dict[str, Any]:
        numbers = {name: np.full(2, self.count % 2 if name == "bool" else self.count, name) for name in DTYPES}
        return {**numbers, "pair": (self.count, np.full(3, self.count % 2, np.int8)), "word": "x" * self.count}


def make_kind(kind: str, view: str = "gymnasium", **arguments: Any) -> Any:
    """A pool of three envs: native ones, or Python ones in the calling thread or in worker processes."""
    if kind == "native":
        return stepmill.make("Probe-v0", view, num_envs=3, length=4, info=True, **arguments)
    env = AllTypes if kind == "objects" else ProbeTwin
    own = {} if kind == "objects" else {"length": 4, "info": True}
    backend = "process" if kind == "process" else "inline"
    return stepmill.make(env, view, num_envs=3, backend=backend, **own, **arguments)


def assert_shows(shown: Any, plain: Any, array_type: type, narrow: dict[str, str] | None = None) -> int:
    """A result shows the numpy result ``plain`` with arrays of that type. Returns how many arrays there were.

    ``narrow``: types that become another one.
    """
    if isinstance(plain, dict):
        assert shown.keys() == plain.keys()
        return sum(assert_shows(shown[key], plain[key], array_type, narrow) for key in plain)
    if isinstance(plain, tuple):
        assert type(shown) is type(plain)
        return sum(assert_shows(one, other, array_type, narrow) for one, other in zip(shown, plain, strict=True))
    if not isinstance(plain, np.ndarray | np.generic):
        assert shown == plain
        return 0
    assert isinstance(shown, array_type), type(shown)
    array = np.asarray(shown)
    name = plain.dtype.name
    assert (array.dtype.name, array.shape) == ((narrow or {}).get(name, name), plain.shape)
    np.testing.assert_array_equal(array, plain.astype(array.dtype))
    return 1


def split(view: str, result: Any) -> tuple[tuple[Any, ...], Any]:
    """A result of ``step`` as what ``output`` is about, and the rest, which stays numpy's."""
    if view == "dm":
        obs, *rest = result.observation
        return (obs, result.step_type, result.reward, result.discount), tuple(rest)
    return result[:-1], result[-1]
