"""What the author of a ``stepmill.jit`` class has declared, checked."""

from __future__ import annotations

import inspect
import keyword
import types
from collections import namedtuple
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from stepmill.errors import ConfigError
from stepmill.settings import ARGUMENTS
from stepmill.values.spaces import FlatSpace, flatten

_MOST_ARRAYS, _MOST_OPTIONS = 16, 6  # of c_env.h
_LARGEST = 2**53  # settings are handed over as doubles
_DECLARED = ("observation_space", "action_space", "info", "state", "settings", "options")
# Of each function, the parameters that follow `self`.
_PARAMETERS = {"init": (), "reset": ("random",), "step": ("action", "random"), "observe": ("observation",)}


class Declaration:
    """A class whose functions Numba can compile: its spaces, its memory, its settings, its functions."""

    def __init__(self, env_class: type) -> None:
        self.env_class = env_class
        self.__name__, self.__qualname__ = env_class.__name__, env_class.__qualname__
        self.__module__, self.__doc__ = env_class.__module__, env_class.__doc__
        self.observation = self._flat("observation_space", self._declared("observation_space"))
        self.action = self._flat("action_space", self._declared("action_space"))
        self.info = self._flat("info", spaces.Dict(self._mapping("info")))
        self.settings = self._numbers("settings")
        for key in self.settings:
            if isinstance(self.settings[key], int) and abs(self.settings[key]) > _LARGEST:
                raise self._error(f"settings: {key!r}: expected an int of at most 2**53, got {self.settings[key]}")
            if key in ARGUMENTS or key == "jit":
                raise self._error(f"settings: {key!r} is an argument of make")
        self.options = {key: float(value) for key, value in self._numbers("options").items()}
        if len(self.options) > _MOST_OPTIONS:
            raise self._error(f"options: expected at most {_MOST_OPTIONS}, got {len(self.options)}")
        self.options_type = namedtuple("options", self.options) if self.options else None
        self.state = self._state_dtype()
        self.functions = self._own_functions()

    def _error(self, text: str) -> ConfigError:
        return ConfigError(f"stepmill.jit: {self.__qualname__}: {text}")

    def _declared(self, name: str) -> Any:
        if not hasattr(self.env_class, name):
            raise self._error(f"it has no {name}")
        return getattr(self.env_class, name)

    def _mapping(self, name: str) -> dict[str, Any]:
        given = getattr(self.env_class, name, {})
        if not isinstance(given, Mapping | spaces.Dict):
            raise self._error(f"{name}: expected a dict, got {given!r:.200}")
        return {self._identifier(name, key): value for key, value in given.items()}

    def _identifier(self, where: str, key: Any) -> str:
        if not isinstance(key, str) or not key.isidentifier() or keyword.iskeyword(key) or key.startswith("_"):
            raise self._error(f"{where}: expected names that a Python attribute can have, got {key!r:.200}")
        return key

    def _numbers(self, name: str) -> dict[str, bool | int | float]:
        given = self._mapping(name)
        for key, value in given.items():
            if not isinstance(value, bool | int | float):
                raise self._error(f"{name}: expected numbers or bools as defaults, got {value!r:.200} for {key!r}")
        return {k: next(kind(v) for kind in (bool, int, float) if isinstance(v, kind)) for k, v in given.items()}

    def _flat(self, name: str, space: Any) -> FlatSpace:
        """A space of which every leaf is an array, at most one level deep."""
        if not isinstance(space, spaces.Space):
            raise self._error(f"{name}: expected a gymnasium space, got {space!r:.200}")
        flat = flatten(space)
        children = (
            flat.tree.values() if isinstance(flat.tree, dict) else flat.tree if isinstance(flat.tree, tuple) else ()
        )
        if flat.object_spaces or not all(isinstance(one, int) for one in children):
            raise self._error(
                f"{name}: expected a Box, Discrete, MultiDiscrete or MultiBinary space, or a Dict or Tuple of these, "
                f"got {space}"
            )
        if len(flat.leaves) > _MOST_ARRAYS:
            raise self._error(f"{name}: expected at most {_MOST_ARRAYS} arrays, got {len(flat.leaves)}")
        if any(leaf.dtype == "float16" for leaf in flat.leaves):
            raise self._error(f"{name}: Numba has no float16")
        if isinstance(flat.tree, dict):
            for key in flat.tree:
                self._identifier(name, key)
        return flat

    def _state_dtype(self) -> np.dtype[Any]:
        """The memory of an env: its state, then the settings."""
        given = getattr(self.env_class, "state", [])
        try:
            state = np.dtype(given)
        except (TypeError, ValueError) as error:
            raise self._error(f"state: expected [(name, dtype), (name, dtype, shape), ...]: {error}") from error
        if state.names is None and given != []:
            raise self._error(f"state: expected [(name, dtype), (name, dtype, shape), ...], got {given!r:.200}")
        kinds: list[Any] = []
        for name in state.names or ():
            field = state[name]
            if field.base.kind not in "biuf" or field.base.name in ("float16", "longdouble") or field.base.itemsize > 8:
                raise self._error(
                    f"state: {name!r}: expected bools, integers or floats of 32 or 64 bits, got {field.base}"
                )
            kinds.append((self._identifier("state", name), field.base.newbyteorder("="), field.shape))
        kinds += [(key, np.dtype(type(value)), ()) for key, value in self.settings.items()]
        names = [one[0] for one in kinds]
        for name in names:
            if names.count(name) > 1 or (hasattr(self.env_class, name)):
                raise self._error(f"the name {name!r} stands for two things")
        return np.dtype(kinds, align=True)

    def _own_functions(self) -> dict[str, types.FunctionType]:
        found = {name: value for name, value in self._attributes().items() if isinstance(value, types.FunctionType)}
        more = {"reset": ("options",) if self.options else (), "observe": ("info",) if self.info.leaves else ()}
        for name, parameters in _PARAMETERS.items():
            expected = ["self", *parameters, *more.get(name, ())]
            if name not in found:
                if name == "init":
                    continue
                raise self._error(f"it has no {name}({', '.join(expected)})")
            got = list(inspect.signature(found[name]).parameters)
            if len(got) != len(expected):
                raise self._error(f"expected {name}({', '.join(expected)}), got {name}({', '.join(got)})")
        return found

    def setting(self, key: str, value: Any) -> bool | int | float:
        """A value that was given for a setting, as the engine takes it."""
        default = self.settings[key]
        if isinstance(default, bool):
            is_fit, expected = isinstance(value, bool | np.bool_), "True or False"
        elif isinstance(default, int):
            is_fit = isinstance(value, int | np.integer) and not isinstance(value, bool) and abs(int(value)) <= _LARGEST
            expected = "a whole number of at most 2**53"
        else:
            is_fit = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
            expected = "a number"
        if not is_fit:
            raise ConfigError(f"config key {key!r}: expected {expected}, got {value!r:.200}")
        return type(default)(value)

    def constants(self) -> dict[str, Any]:
        """Attributes of the class that are neither functions nor declarations."""
        given = self._attributes().items()
        return {k: v for k, v in given if not (k.startswith("__") or k in _DECLARED or callable(v))}

    def _attributes(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for one in reversed(self.env_class.__mro__[:-1]):
            found |= vars(one)
        return found
