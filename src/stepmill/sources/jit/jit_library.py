"""The compiled functions of a ``stepmill.jit`` class, which a pool, its workers and other machines are given."""

from __future__ import annotations

import ctypes
import math
import os
import pickle
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from stepmill import _native
from stepmill.sources.files.cache import Cache, Entry
from stepmill.sources.files.env_library import Machine
from stepmill.sources.jit.declaration import Declaration
from stepmill.system.optional import NUMBA, require
from stepmill.values.spaces import ArrayLeaf, FlatSpace

if TYPE_CHECKING:
    from stepmill.sources.jit.with_numba.c_functions import Function

# ---- the structures of c_env.h -------------------------------------------------------------------

_VERSION = 1
_DTYPES = (
    "bool",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float16",
    "float32",
    "float64",
)
_SETTING_TYPES = (bool, int, float)


class _Setting(ctypes.Structure):
    _fields_ = [("key", ctypes.c_char_p), ("type", ctypes.c_int32), ("value", ctypes.c_double)]


class _Array(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("kind", ctypes.c_int32),
        ("dtype", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("low", ctypes.c_double),
        ("high", ctypes.c_double),
        ("lows", ctypes.POINTER(ctypes.c_double)),
        ("highs", ctypes.POINTER(ctypes.c_double)),
    ]


class _Spaces(ctypes.Structure):
    _fields_ = [
        *((name, ctypes.POINTER(_Array)) for name in ("observation", "action", "info")),
        *((f"{name}_count", ctypes.c_int32) for name in ("observation", "action", "info")),
    ]


class _Env(ctypes.Structure):
    _fields_ = [
        ("version", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("name", ctypes.c_char_p),
        ("env_size", ctypes.c_int64),
        ("never_blocks", ctypes.c_int32),
        ("setting_count", ctypes.c_int32),
        ("settings", ctypes.POINTER(_Setting)),
        ("options", ctypes.POINTER(ctypes.c_char_p)),
        ("spaces", _Spaces),
        *((n, ctypes.c_void_p) for n in ("describe", "init", "reset", "step", "observe")),
        *((n, ctypes.c_void_p) for n in ("step_many", "save", "load", "close")),
    ]


def _array(leaf: ArrayLeaf, is_named: bool) -> _Array:
    each: list[Any] = [None, None]
    if len(leaf.low) > 1 or len(leaf.high) > 1:
        count = math.prod(leaf.shape)
        each = [(ctypes.c_double * count)(*(one * count)[:count]) for one in (leaf.low, leaf.high)]
    return _Array(
        name=leaf.name.encode() if is_named else None,
        kind=int(leaf.kind),
        dtype=_DTYPES.index(leaf.dtype),
        rank=len(leaf.shape),
        shape=(ctypes.c_int64 * len(leaf.shape))(*leaf.shape),
        low=leaf.low[0],
        high=leaf.high[0],
        lows=each[0],
        highs=each[1],
    )


def _arrays(flat: FlatSpace) -> Any:
    is_named = isinstance(flat.tree, dict)
    return (_Array * len(flat.leaves))(*(_array(leaf, is_named) for leaf in flat.leaves))


def _c_env(jit_class: Declaration, addresses: dict[str, int]) -> _Env:
    spaces = {"observation": jit_class.observation, "action": jit_class.action, "info": jit_class.info}
    settings = [
        _Setting(key.encode(), _SETTING_TYPES.index(type(value)), float(value))
        for key, value in jit_class.settings.items()
    ]
    options = [*(key.encode() for key in jit_class.options), None]
    return _Env(
        version=_VERSION,
        size=ctypes.sizeof(_Env),
        name=jit_class.__name__.encode(),
        env_size=max(jit_class.state.itemsize, 1),
        never_blocks=1,
        setting_count=len(settings),
        settings=(_Setting * len(settings))(*settings),
        options=(ctypes.c_char_p * len(options))(*options),
        spaces=_Spaces(*map(_arrays, spaces.values()), *(len(one.leaves) for one in spaces.values())),
        **addresses,
    )


# ---- the library ---------------------------------------------------------------------------------

_kept: list[Any] = []  # what the engine refers to, for good


@dataclass(frozen=True)
class JitLibrary:
    """A compiled class. Its pickle holds the machine code, so workers need not compile it again."""

    jit_class: Declaration
    env_class: str  # the name under which the engine knows it
    machine: Machine = field(repr=False)
    functions: dict[str, Function] = field(repr=False)
    key: str | None = field(default=None, repr=False)  # of its machine code
    worker_environ: ClassVar[dict[str, str]] = {}

    @property
    def code(self) -> str:
        """What an env remembers: functions may change between a save and a restore, as those of a Python env may."""
        return str(self.jit_class.state.descr)

    @classmethod
    def compiled(cls, jit_class: Declaration) -> JitLibrary:
        """The library of a class, compiled unless it was before."""
        # Two classes of one name are two classes, in one program or in several: a worker may serve more than one.
        name = f"{jit_class.__qualname__}@{os.urandom(8).hex()}"
        key = _key(jit_class)
        return cls(jit_class, name, Machine.here(), _compiled_or_kept(jit_class, key), key).load()

    def is_current(self) -> bool:
        """Whether the class, and what it refers to, is as it was when this was compiled."""
        return self.key is None or self.key == _key(self.jit_class)

    def load(self) -> JitLibrary:
        """Makes the class known to the engine of this process."""
        env = _c_env(self.jit_class, {name: function.address() for name, function in self.functions.items()})
        _kept.append((env, self.functions))
        _native.add_foreign_env(self.env_class, ctypes.addressof(env))
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, (self.jit_class, self.env_class, self.machine, _packed(self.functions))


def _received(jit_class: Declaration, name: str, machine: Machine, code: bytes) -> JitLibrary:
    """A class that came from another process or machine, loaded; compiled again if that machine is another kind."""
    here = Machine.here()
    functions = _unpacked(jit_class, code) if machine == here else _compiled_or_kept(jit_class, _key(jit_class))
    return JitLibrary(jit_class, name, here, functions).load()


def _packed(functions: dict[str, Function]) -> bytes:
    return pickle.dumps({name: (one.symbol, one.code) for name, one in functions.items()})


def _unpacked(jit_class: Declaration, code: bytes) -> dict[str, Function]:
    c_functions = _compiler(jit_class)
    return {name: c_functions.Function.from_code(*one) for name, one in pickle.loads(code).items()}


def _compiler(jit_class: Declaration) -> Any:
    """The module that needs Numba."""
    require(
        *NUMBA, f"{jit_class.__name__} is a stepmill.jit class, and make(..., jit=False) runs it in Python; compiled it"
    )
    from stepmill.sources.jit.with_numba import c_functions

    c_functions.prepare()
    return c_functions


def _key(jit_class: Declaration) -> str | None:
    _compiler(jit_class)
    from stepmill.sources.jit.with_numba.fingerprint import fingerprint

    return fingerprint(jit_class)


def _compiled_or_kept(jit_class: Declaration, key: str | None) -> dict[str, Function]:
    """The functions of a class, compiled unless they were before, in this program or another."""
    c_functions, cache = _compiler(jit_class), Cache()
    if key is None:
        functions: dict[str, Function] = c_functions.compile_functions(jit_class)
        return functions
    with cache.find_or_lock(key) as entry:
        if entry is None:
            begin = time.process_time()
            functions = c_functions.compile_functions(jit_class)
            cache.keep(key, Entry(_packed(functions), {}, [], time.process_time() - begin, ""))
            return functions
    return _unpacked(jit_class, entry.library)
