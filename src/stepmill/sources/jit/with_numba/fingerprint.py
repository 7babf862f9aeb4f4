"""What the machine code of a ``stepmill.jit`` class depends on: the name of its entry in the cache."""

from __future__ import annotations

import enum
import functools
import hashlib
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numba
import numpy as np

from stepmill._version import __version__
from stepmill.sources.files.cache import key_of
from stepmill.sources.files.env_library import Machine
from stepmill.sources.jit.declaration import Declaration

_CONSTANTS = (bool, int, float, str, bytes, type(None), type(Ellipsis))


class _Unknown(Exception):
    """Something whose value cannot be told from its look."""


def fingerprint(jit_class: Declaration) -> str | None:
    """A key that differs if the code would; None if functions refer to something that cannot be compared."""
    here = Machine.here()
    try:
        facts = {
            "functions": sorted((name, [*_function(one, set())]) for name, one in jit_class.functions.items()),
            "constants": sorted((name, _value(one, (), set())) for name, one in jit_class.constants().items()),
            "state": [str(jit_class.state.descr), repr(jit_class.settings), repr(jit_class.options)],
            "spaces": [[repr(one.tree), repr(one.leaves)] for one in _spaces(jit_class)],
            "versions": [__version__, _rules(), numba.__version__, llvm.llvm_version_info, np.__version__, sys.version],
            "machine": [here.architecture, sorted(here.features), here.glibc, llvm.get_host_cpu_name()],
            "options": [numba.config.OPT.__repr__(), numba.config.CPU_NAME, numba.config.CPU_FEATURES],
        }
    except _Unknown:
        return None
    return key_of(facts)


@functools.cache
def _rules() -> str:
    """What compiles: in a checkout it changes without its version."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return hashlib.sha256(b"".join(one.read_bytes() for one in files)).hexdigest()


def _spaces(jit_class: Declaration) -> tuple[Any, ...]:
    return jit_class.observation, jit_class.action, jit_class.info


def _function(function: types.FunctionType, seen: set[int]) -> Iterator[Any]:
    """A function: its code, and what it refers to."""
    if id(function) in seen:
        return
    seen.add(id(function))
    names: set[str] = set()
    yield from _code(function.__code__, names)
    for value in (function.__defaults__, *(cell.cell_contents for cell in function.__closure__ or ())):
        yield _value(value, names, seen)
    for name in sorted(names & function.__globals__.keys()):
        yield [name, _value(function.__globals__[name], names, seen)]


def _code(code: types.CodeType, names: set[str]) -> Iterator[Any]:
    names |= {*code.co_names}
    # The lines too: messages name them.
    yield [code.co_filename, code.co_code.hex(), code.co_linetable.hex(), code.co_firstlineno]
    yield [list(code.co_names), list(code.co_varnames), list(code.co_freevars)]
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _code(constant, names)
        else:
            yield [type(constant).__name__, repr(constant)]


def _value(value: Any, names: Any, seen: set[int]) -> Any:
    if isinstance(value, _CONSTANTS):
        return [type(value).__name__, repr(value)]
    if isinstance(value, tuple):
        return [type(value).__name__, [_value(one, names, seen) for one in value]]
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biuf":
        return [str(value.dtype), list(value.shape), value.tobytes().hex()]
    if isinstance(value, types.ModuleType):
        if value.__name__ in ("math", "numpy", "numba"):
            return value.__name__
        return [
            value.__name__,
            [_value(getattr(value, name), names, seen) for name in sorted(names) if hasattr(value, name)],
        ]
    value = getattr(value, "py_func", value)  # compiled by numba.njit
    if isinstance(value, types.FunctionType):
        return [*_function(value, seen)]
    if isinstance(value, enum.EnumMeta):
        members: dict[str, Any] = dict(value.__members__)
        return [value.__name__, [[name, repr(one.value)] for name, one in members.items()]]
    if isinstance(value, type | types.BuiltinFunctionType | np.ufunc):
        return [getattr(value, "__module__", ""), value.__name__]
    raise _Unknown
