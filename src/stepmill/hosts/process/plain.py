"""Values for a process with other versions of Python, numpy and Gymnasium: plain values and arrays.

Pickles name the functions that rebuild their objects, and numpy and Gymnasium rename theirs, or change what these take.
So arrays, numbers of numpy, generators and spaces are pickled as descriptions, which functions in this file rebuild:
both processes have the same stepmill. They are read as any other pickle is.
"""

from __future__ import annotations

import enum
import io
import pickle
import sys
from collections.abc import Callable, Mapping, Set
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import numpy as np
from gymnasium import spaces

from stepmill.values.spaces import AnyValue

PROTOCOL = 5  # the highest that Python 3.11 has


class NotPlain(pickle.PicklingError):
    """An object that only its own interpreter knows."""


def dumps(value: Any) -> bytes:
    """Pickles a value that is made of plain values, arrays, spaces, and objects of Python itself and of stepmill.

    Objects of other classes become what they are besides: numbers, text, dicts, tuples; if that is nothing, raises
    ``NotPlain``.
    """
    buffer = io.BytesIO()
    _PlainPickler(buffer, PROTOCOL).dump(value)
    return buffer.getvalue()


class _PlainPickler(pickle.Pickler):
    # Not called for None, numbers, text, and containers of exactly the built-in types.
    def reducer_override(self, value: Any) -> Any:
        found = described(value)
        if found is not NotImplemented or _is_known_everywhere(value):
            return found
        return _same, (_as_plain(value),)


_EVERYWHERE = frozenset({*sys.stdlib_module_names, "builtins", "stepmill"})
_EXCEPTIONS = frozenset({"gymnasium", "numpy"})  # if the other version has another one, a stand-in takes its place


def _is_known_everywhere(value: Any) -> bool:
    is_code = isinstance(value, type | FunctionType | BuiltinFunctionType)
    owner = value if is_code else type(value)
    module = str(getattr(owner, "__module__", None) or "builtins")
    root = module.partition(".")[0]
    if root in _EXCEPTIONS:
        return issubclass(owner, BaseException) if isinstance(owner, type) else False
    return root in _EVERYWHERE and module != "__main__"


# A class may have other ideas of what `int(value)` or `str(value)` is.
_PLAIN: dict[type, Callable[[Any], Any]] = {
    int: int.__int__,
    float: float.__float__,
    complex: complex.__complex__,
    str: str.__str__,
    bytes: bytes.__bytes__,
    bytearray: bytearray,
}


def _as_plain(value: Any) -> Any:
    """An object as the built-in type that its class is derived from."""
    if isinstance(value, enum.Enum) and not isinstance(value, int | float | str | bytes):
        return value.value
    for kind, plain in _PLAIN.items():
        if isinstance(value, kind):
            return plain(value)
    if isinstance(value, Mapping):
        return dict(value.items())
    if isinstance(value, tuple | list):
        return tuple(value) if isinstance(value, tuple) else list(value)
    if isinstance(value, Set):
        return set(value)
    if isinstance(value, spaces.Space):  # of no kind that Gymnasium has: its values are objects, such as texts
        return AnyValue()
    owner = value if isinstance(value, type | FunctionType) else type(value)
    kind_of = "the module" if isinstance(value, ModuleType) else "code" if owner is value else "an object"
    raise NotPlain(
        f"expected plain values, arrays or spaces, got {kind_of} {getattr(value, '__name__', owner.__name__)} of "
        f"{owner.__module__}, which another interpreter does not know"
    )


# ---- descriptions --------------------------------------------------------------------------------


def described(value: Any) -> Any:
    """How to rebuild an array, a number of numpy, a generator or a space; NotImplemented for everything else."""
    if isinstance(value, np.ndarray) and not isinstance(value, np.ma.MaskedArray):
        return _described_array(np.asarray(value))
    if isinstance(value, np.generic):
        if value.dtype.hasobject:
            return NotImplemented
        return _scalar, (np.lib.format.dtype_to_descr(value.dtype), value.tobytes())
    if isinstance(value, np.dtype):
        return _dtype, (np.lib.format.dtype_to_descr(value),)
    if isinstance(value, type) and issubclass(value, np.generic):
        is_concrete = value in np.sctypeDict.values()
        return (_scalar_type, (np.dtype(value).str,)) if is_concrete else NotImplemented
    if isinstance(value, np.random.Generator):
        bits = value.bit_generator
        return _generator, (type(bits).__name__, bits.state)
    if isinstance(value, spaces.Space):
        return _described_space(value)
    return NotImplemented


def _described_array(array: np.ndarray) -> Any:
    if array.dtype == object or array.dtype.kind == "T":  # the latter: text of any length, which numpy 1 does not have
        return _objects, (array.shape, array.ravel().tolist())
    if array.dtype.hasobject:
        return NotImplemented
    return _array, (np.lib.format.dtype_to_descr(array.dtype), array.shape, array.tobytes())


def _array(dtype: Any, shape: tuple[int, ...], content: bytes) -> np.ndarray:
    return np.frombuffer(bytearray(content), np.lib.format.descr_to_dtype(dtype)).reshape(shape)


def _objects(shape: tuple[int, ...], content: list[Any]) -> np.ndarray:
    array = np.empty(len(content), object)
    array[:] = content
    return array.reshape(shape)


def _scalar(dtype: Any, content: bytes) -> Any:
    return np.frombuffer(content, np.lib.format.descr_to_dtype(dtype))[0]


def _dtype(dtype: Any) -> np.dtype[Any]:
    return np.lib.format.descr_to_dtype(dtype)


def _scalar_type(dtype: str) -> type[np.generic]:
    return np.dtype(dtype).type


def _generator(kind: str, state: Any) -> np.random.Generator:
    bits = getattr(np.random, kind)()
    bits.state = state
    return np.random.Generator(bits)


def _same(value: Any) -> Any:
    return value


def _described_space(space: spaces.Space[Any]) -> Any:
    if isinstance(space, spaces.Box):
        return _space, ("Box", (_bounds(space.low), _bounds(space.high), space.shape, np.dtype(space.dtype)))
    if isinstance(space, spaces.Discrete):
        return _space, ("Discrete", (int(space.n), int(space.start), np.dtype(space.dtype)))
    if isinstance(space, spaces.MultiDiscrete):
        start = np.asarray(space.start)
        return _space, ("MultiDiscrete", (np.asarray(space.nvec), start, np.dtype(space.dtype)))
    if isinstance(space, spaces.MultiBinary):
        return _space, ("MultiBinary", (space.shape if isinstance(space.n, tuple) else int(space.n),))
    if isinstance(space, spaces.Text):
        return _space, ("Text", (space.min_length, space.max_length, space.characters))
    if isinstance(space, spaces.Dict):
        return _space, ("Dict", (list(space.spaces.items()),))
    if isinstance(space, spaces.Tuple | spaces.OneOf):
        return _space, ("OneOf" if isinstance(space, spaces.OneOf) else "Tuple", (list(space.spaces),))
    if isinstance(space, spaces.Sequence):
        return _space, ("Sequence", (space.feature_space, space.stack))
    if isinstance(space, spaces.Graph):
        return _space, ("Graph", (space.node_space, space.edge_space))
    if type(space).__module__.partition(".")[0] == "stepmill":  # our own have no arguments
        return type(space), ()
    return NotImplemented


def _bounds(bounds: np.ndarray) -> Any:
    """The array, or one number if all are equal: images have thousands of them."""
    flat = bounds.ravel()
    return flat[0] if flat.size > 1 and (flat == flat[0]).all() else bounds


def _space(kind: str, about: tuple[Any, ...]) -> spaces.Space[Any]:
    if kind == "Box":
        low, high, shape, dtype = about
        return spaces.Box(np.full(shape, low, dtype), np.full(shape, high, dtype), shape, dtype.type)
    if kind == "Discrete":
        n, start, dtype = about
        is_usual = dtype == np.int64  # older versions of Gymnasium know no other
        return spaces.Discrete(n, start=start) if is_usual else spaces.Discrete(n, start=start, dtype=dtype.type)
    if kind == "MultiDiscrete":
        nvec, start, dtype = about
        return spaces.MultiDiscrete(nvec, dtype=dtype.type, start=start)
    if kind == "Text":
        shortest, longest, characters = about
        return spaces.Text(longest, min_length=shortest, charset=characters)
    if kind == "Sequence":
        feature, stack = about
        return spaces.Sequence(feature, stack=stack)
    made: spaces.Space[Any] = getattr(spaces, kind)(*about)
    return made
