"""How an env describes itself in the older form, ``info()``: made from its spaces, or the other way round.

An env has spaces, from which ``BaseEnv.info`` derives the older form; or it has an ``info()`` of its own and no spaces,
which are then derived from that.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from numbers import Integral
from typing import Any, NamedTuple, Self

import numpy as np
from gymnasium import spaces

from stepmill.errors import SpaceError, UnsupportedError, summary
from stepmill.registry.factories import close_quietly
from stepmill.values.arguments import whole_number
from stepmill.values.trees import map_tree, space_from, step_into, tree_of


class _FieldNames:
    """``_fields``, of a class and of its instances: a subclass that adds fields has them too."""

    def __get__(self, instance: Any, owner: Any) -> tuple[str, ...]:
        return tuple(field.name for field in dataclasses.fields(owner))


@dataclass
class _Record:
    """A named tuple whose fields can be set."""

    _fields = _FieldNames()

    def __iter__(self) -> Iterator[Any]:
        return (getattr(self, name) for name in self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __getitem__(self, index: Any) -> Any:
        return tuple(self)[index]

    def __setitem__(self, index: int, value: Any) -> None:
        setattr(self, self._fields[index], value)

    def _asdict(self) -> dict[str, Any]:
        return dict(zip(self._fields, self, strict=True))

    def _replace(self, **changes: Any) -> Self:
        return dataclasses.replace(self, **changes)


@dataclass
class EnvElementInfo(_Record):
    """The shape of an observation, an action or a reward; ``value`` has its ``min``, ``max`` and ``dtype``."""

    shape: Any
    value: Any
    to_agent_processor: Callable[..., Any] | None = None
    from_agent_processor: Callable[..., Any] | None = None


@dataclass
class BaseEnvInfo(_Record):
    """What ``BaseEnv.info()`` returns. A subclass may add fields with defaults."""

    agent_num: int
    obs_space: Any
    act_space: Any
    rew_space: Any
    use_wrappers: str | None = None


# ---- from spaces ---------------------------------------------------------------------------------


def element_info_of(space: spaces.Space[Any] | None) -> EnvElementInfo:
    """A space in the old form: ``Discrete(n)`` has shape ``(n,)``; Dict and Tuple have one shape and value per part."""
    parts = tree_of(space)
    return EnvElementInfo(map_tree(_shape, parts), map_tree(_value, parts))


def _shape(space: Any) -> Any:
    return (int(space.n),) if isinstance(space, spaces.Discrete) else getattr(space, "shape", None)


def _value(space: Any) -> dict[str, Any] | None:
    if isinstance(space, spaces.Discrete):
        start, n = int(space.start), int(space.n)
        return {"min": start, "max": start + n, "dtype": np.dtype(space.dtype).type}
    if isinstance(space, spaces.Box):
        return {"min": space.low, "max": space.high, "dtype": space.dtype.type}
    if isinstance(space, spaces.MultiDiscrete):
        return {"min": space.start, "max": space.start + space.nvec, "dtype": space.dtype.type}
    if isinstance(space, spaces.MultiBinary):
        return {"min": 0, "max": 1, "dtype": np.dtype(space.dtype).type}
    return None  # text, graphs, sequences, no space at all: they have no bounds


# ---- to spaces -----------------------------------------------------------------------------------

_NOTHING: Any = object()


class FromInfo:
    """An attribute of ``BaseEnv`` that the env's own ``info()`` may say.

    It is not a data descriptor: an attribute of a subclass, or of the env itself, takes its place.

    Args:
        field: The name of what says it in ``info()``.
        default: What it is if neither the env nor its ``info()`` says it.
    """

    def __init__(self, field: str, default: Any = _NOTHING) -> None:
        self._field = field
        self._default = default

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name
        self._base = owner

    def __get__(self, env: Any, owner: type) -> Any:
        if env is None:
            return self if self._default is _NOTHING else self._default
        try:
            described = self._described(env)
        except (SpaceError, NotImplementedError):
            if self._default is _NOTHING:
                raise
            described = None
        if described is not None and self._field not in described.read:
            described.read[self._field] = _read(type(env).__name__, described.info, self._field)
        value = None if described is None else described.read[self._field]
        if value is not None:
            return value
        if self._default is not _NOTHING:
            return self._default
        raise AttributeError(
            f"{type(env).__name__} has no {self._name}: set it in __init__ or as a class attribute, or let info() "
            f"return a BaseEnvInfo with {self._field}"
        )

    def _described(self, env: Any) -> _InfoReading | None:
        """What the env's own ``info()`` says; None if it has none, or if defaults do beside spaces of its own."""
        if type(env).info is self._base.info:  # type: ignore[attr-defined]
            return None
        own = vars(env)
        has_space = "observation_space" in own or not isinstance(type(env).observation_space, FromInfo)
        if has_space and self._default is not _NOTHING:
            return None
        if "_described" not in own:
            own["_described"] = None  # while info() runs: it may ask for what it is expected to say
            try:
                own["_described"] = _InfoReading(info_of(env), {})
            except BaseException as error:
                del own["_described"]
                if isinstance(error, NotImplementedError):
                    raise UnsupportedError(f"{_expected(env)}, got {summary(error)}") from error
                raise
        described: _InfoReading | None = own["_described"]
        return described


class _InfoReading(NamedTuple):
    """What an ``info()`` said, and what has been read of it: a space or a number by the name of its field."""

    info: Any
    read: dict[str, Any]


def declared_space(env: Any, name: str) -> Any:
    """A space of an env; None if the env does not say it."""
    try:
        return getattr(env, name, None)
    except (SpaceError, NotImplementedError):
        return None


def info_of(env: Any) -> Any:
    """The env's ``info()``. If it needs the simulator, which the first reset builds, a copy of the env is asked."""
    try:
        return env.info()
    except AttributeError as error:
        probe = copy_if_possible(env)
        try:
            probe.reset()
            return probe.info()
        except Exception as again:
            raise SpaceError(
                f"{_expected(env)}, got {summary(error)}, and from a copy of the env that was reset {summary(again)}"
            ) from error
        finally:
            close_quietly(probe)


def _expected(env: Any) -> str:
    return f"{type(env).__name__}: expected an observation_space and an action_space, or an info() that says them"


def copy_if_possible(env: Any) -> Any:
    """A copy, because not every closed env can be reset again; the env itself if it cannot be copied."""
    try:
        return copy.deepcopy(env)
    except Exception:  # whatever its parts raise
        return env


def _read(owner: str, info: Any, field: str) -> Any:
    """The space that a field of an ``info()`` describes, or the number of agents; None if it says nothing."""
    element = getattr(info, field, None)
    if element is None:
        return None
    if field == "agent_num":
        return whole_number(f"{owner}: info().agent_num", element, 1)
    return space_from(_tree(element, f"{owner}: info().{field}", is_action=field == "act_space"))


def _tree(element: Any, path: str, is_action: bool) -> Any:
    """The spaces that an ``EnvElementInfo`` describes, or several of them in a dict or a list."""
    if isinstance(element, spaces.Space):
        return element
    if hasattr(element, "shape"):
        return _of_shape(element.shape, getattr(element, "value", None), path, is_action)
    if isinstance(element, Mapping):
        return {key: _tree(part, step_into(path, key), is_action) for key, part in element.items()}
    if isinstance(element, list | tuple):
        return tuple(_tree(part, step_into(path, i), is_action) for i, part in enumerate(element))
    raise SpaceError(f"{path}: expected an EnvElementInfo(shape, value), got {element!r}")


def _of_shape(shape: Any, value: Any, path: str, is_action: bool) -> Any:
    """The space of one shape, or of several that are nested; ``value`` is nested in the same way, or one for all."""
    if isinstance(shape, Mapping):
        is_nested = isinstance(value, Mapping) and shape.keys() <= value.keys()
        return {
            key: _of_shape(part, value[key] if is_nested else value, step_into(path, key), is_action)
            for key, part in shape.items()
        }
    if isinstance(shape, list | tuple) and not all(isinstance(one, Integral) for one in shape):
        values = value if isinstance(value, list | tuple) and len(value) == len(shape) else [value] * len(shape)
        pairs = enumerate(zip(shape, values, strict=True))
        return tuple(_of_shape(part, its, step_into(path, i), is_action) for i, (part, its) in pairs)
    try:
        dims = (int(shape),) if isinstance(shape, Integral) else tuple(int(one) for one in shape)
        return _leaf(dims, {} if value is None else dict(value), is_action)
    except Exception as error:
        raise SpaceError(
            f"{path}: expected a shape, and as value None or a dict with min, max and dtype, got {shape!r} and "
            f"{value!r}: {summary(error)}. Or set the space itself: observation_space, action_space, reward_space"
        ) from error


def _leaf(dims: tuple[int, ...], value: dict[str, Any], is_action: bool) -> spaces.Space[Any]:
    dtype = np.dtype(value.get("dtype") or np.float32)
    low, high = value.get("min"), value.get("max")
    if is_action and _is_choice(dims, low, high, dtype):
        return spaces.Discrete(dims[0])
    bounds = (_bound(low, -np.inf, dims, dtype), _bound(high, np.inf, dims, dtype))
    return spaces.Box(*bounds, dims, dtype.type)


def _is_choice(dims: tuple[int, ...], low: Any, high: Any, dtype: np.dtype[Any]) -> bool:
    """Whether an action is one of n: shape ``(n,)``, from 0 to n.

    Some say float32 all the same, the type of what their policies return. Bounds that are written as whole numbers tell
    that from a vector of floats; but ``(1,)``, 0 to 1, is a throttle more often than a choice of one.
    """
    if len(dims) != 1 or np.ndim(low) or np.ndim(high) or low != 0 or high != dims[0]:
        return False
    return dtype.kind in "iu" or (dims[0] > 1 and isinstance(low, Integral) and isinstance(high, Integral))


def _bound(given: Any, default: float, dims: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray:
    bound = np.asarray(default if given is None else given)
    if dtype.kind in "iub":  # no infinity
        least, most = (0, 1) if dtype.kind == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        # Not clipped as floats: there 2**63 - 1 is 2**63, which int64 does not have.
        inside = np.where((bound > least) & (bound < most), bound, 0).astype(dtype)
        bound = np.where(bound <= least, dtype.type(least), np.where(bound >= most, dtype.type(most), inside))
    with np.errstate(over="ignore"):  # the largest float64 is unbounded as a float32
        return np.broadcast_to(bound.astype(dtype), dims)
