"""A ``stepmill.jit`` class as a Python env: the same numbers as compiled, without Numba."""

from __future__ import annotations

import functools
from collections import namedtuple
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np

from stepmill.errors import ResetOptionError
from stepmill.sources.jit.declaration import Declaration
from stepmill.values.spaces import FlatSpace
from stepmill.values.trees import leaves, map_tree, map_trees


class Numbers(np.ndarray):
    """An array whose elements are Python's numbers: float, int and bool, as compiled functions have them."""

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        return found.item() if isinstance(found, np.generic) else found

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        """What a function of numpy gives, such as ``max``: a number of Python's, too."""
        return array.item() if array.ndim == 0 else array.view(Numbers)


class Random:
    """The random numbers of an env."""

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator

    def uniform(self, low: float = 0.0, high: float = 1.0) -> float:
        return low + (high - low) * float(self._generator.random())

    def integer(self, low: int, high: int) -> int:
        return int(self._generator.integers(low, high)) if low < high else low

    def normal(self, mean: float = 0.0, deviation: float = 1.0) -> float:
        return mean + deviation * float(self._generator.standard_normal())


def _field(name: str, is_array: bool) -> property:
    """An attribute that lies in the env's record."""
    if is_array:
        return property(lambda self: self._record[name].view(Numbers))

    def put(self: Any, value: Any) -> None:
        self._record[name] = value

    return property(lambda self: self._record[name].item(), put)


def _set_field(self: Any, name: str, value: Any) -> None:
    """Refuses what compiled functions cannot do."""
    if name not in self._record.dtype.names:
        raise AttributeError(f"self.{name} is not in `state`: declare it there")
    if self._record.dtype[name].shape:
        raise AttributeError(f"self.{name} is an array: write self.{name}[...] = value")
    object.__setattr__(self, name, value)


class PythonTwin(gymnasium.Env[Any, Any]):
    """One env. Its state can be saved, as that of the native one."""

    def __init__(self, jit_class: Declaration, settings: dict[str, Any]) -> None:
        author = jit_class.env_class
        self._class = jit_class
        self.observation_space, self.action_space = jit_class.observation.space, jit_class.action.space
        if jit_class.info.leaves:
            self.info_space = jit_class.info.space
        fields = {name: _field(name, bool(jit_class.state[name].shape)) for name in jit_class.state.names or ()}
        tables = {k: v.view(Numbers) for k, v in jit_class.constants().items() if isinstance(v, np.ndarray)}
        own = {"__slots__": ("_record",), "__setattr__": _set_field, **tables, **fields}
        kind = type(author.__name__, (author,), own)
        self._env: Any = object.__new__(kind)
        object.__setattr__(self._env, "_record", np.zeros((), jit_class.state))
        for key, value in settings.items():
            self._env._record[key] = jit_class.setting(key, value)
        if "init" in jit_class.functions:
            self._env.init()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        random = Random(self.np_random)
        if self._class.options_type is None:
            self._env.reset(random)
        else:
            unknown = [key for key in options or {} if key not in self._class.options]
            if unknown:
                raise ResetOptionError(f"{self._class.__name__} has no reset option {unknown[0]!r}")
            given = {key: float(value) for key, value in (options or {}).items()}
            self._env.reset(random, self._class.options_type(**{**self._class.options, **given}))
        return self._observed()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward, terminated, truncated = self._env.step(_shown(self._class.action, action), Random(self.np_random))
        observation, info = self._observed()
        return observation, float(reward), bool(terminated), bool(truncated), info

    def _observed(self) -> tuple[Any, dict[str, Any]]:
        observation, values = _rows(self._class.observation)
        info, infos = _rows(self._class.info)
        self._env.observe(observation, *((info,) if self._class.info.leaves else ()))
        return map_tree(lambda leaf: values[leaf][()], self._class.observation.tree), {
            leaf.name: value[()] for leaf, value in zip(self._class.info.leaves, infos, strict=True)
        }

    def get_state(self) -> tuple[bytes, Any]:
        return self._env._record.tobytes(), self.np_random.bit_generator.state

    def set_state(self, state: tuple[bytes, Any]) -> None:
        record, generator = state
        self._env._record[...] = np.frombuffer(record, self._class.state)[0]
        self.np_random.bit_generator.state = generator


@functools.cache
def _named(keys: tuple[str, ...]) -> Any:
    return namedtuple("Arrays", keys)


def in_tree(flat: FlatSpace, values: list[Any]) -> Any:
    """Values as an author sees them: alone, as a tuple, or by name."""
    if isinstance(flat.tree, dict):
        return _named(tuple(flat.tree))(*values)
    return tuple(values) if isinstance(flat.tree, tuple) else values[0]


def _rows(flat: FlatSpace) -> tuple[Any, list[np.ndarray]]:
    """Arrays to write into, as the author sees them, and in order."""
    arrays = [np.zeros(leaf.shape, leaf.dtype) for leaf in flat.leaves]
    return in_tree(flat, [one.view(Numbers) for one in arrays]), arrays


def _shown(flat: FlatSpace, action: Any) -> Any:
    """An action as the author sees it: arrays, and numbers where there is no shape."""

    def part(index: int, value: Any) -> Any:
        leaf = flat.leaves[index]
        array = np.asarray(value, leaf.dtype).reshape(leaf.shape).view(Numbers)
        return array if leaf.shape else array[()]

    return in_tree(flat, list(leaves(map_trees(part, flat.tree, action))))
