"""Pickles code that a new process cannot import.

cloudpickle sends what is in ``__main__`` by value, and assumes that every other module can be imported on the other
side. Test files that pytest loaded, or modules loaded from a path, cannot be imported there, so they go by value too.

Abroad, on an island, other versions of packages read the pickle: see ``plain``. Code goes there by value only between
equal versions of Python and cloudpickle, as bytecode changes with each.
"""

from __future__ import annotations

import contextlib
import io
import pickle
import sys
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from types import CodeType, FunctionType, ModuleType
from typing import Any

import cloudpickle
import numpy as np

from stepmill.errors import InputError, summary
from stepmill.hosts.process import plain
from stepmill.system.uninterrupted import reproduced_failure


@dataclass(frozen=True)
class Destination:
    """Where a pickle is read."""

    is_abroad: bool = False  # by an interpreter with other packages
    takes_code: bool = True  # by value
    name: str = "a worker process"


AT_HOME = Destination()
ON_RAY = Destination(name="a Ray actor")
ABROAD = Destination(is_abroad=True)
BY_NAME = Destination(is_abroad=True, takes_code=False)


def versions() -> tuple[str, str]:
    """What must be equal for code to go by value."""
    return str(sys.implementation.cache_tag), str(cloudpickle.__version__)


class CodeByValue(pickle.PicklingError):
    """Code that the destination cannot import, and does not take by value."""


def dumps(value: Any, searched: dict[str, bool] | None = None, to: Destination = AT_HOME) -> bytes:
    """Pickles ``value`` for a process that shares our ``sys.path``, or the user's part of it, and nothing else.

    ``searched`` remembers, for a caller that pickles many values, whether a module of a name can be imported: finding
    that out is most of the work.
    """
    buffer = io.BytesIO()
    if not to.is_abroad:
        try:
            _KnownPickler(buffer, pickle.HIGHEST_PROTOCOL).dump(value)  # much faster
            return buffer.getvalue()
        except _Unknown:
            buffer = io.BytesIO()
    with contextlib.ExitStack() as by_value:
        _Pickler(buffer, by_value, {} if searched is None else searched, to).dump(value)
    return buffer.getvalue()


def dumps_argument(what: str, value: Any, kind: type[InputError] = InputError, to: Destination = AT_HOME) -> bytes:
    """Pickles an argument of the call ``what``, or raises an error of class ``kind``."""
    try:
        return dumps(value, to=to)
    except Exception as error:
        if reproduced_failure(lambda: dumps(value, to=to)) is None:  # the value is good: a signal handler raised
            raise
        if to.is_abroad:
            raise kind(
                f"{what}: expected a value that can be pickled and sent to an island: {summary(error)}. Pass plain "
                "values and arrays, or objects of modules that can be imported there"
            ) from error
        inline = ", or use backend='inline'" if to == AT_HOME else ""
        raise kind(
            f"{what}: expected a value that can be pickled and sent to {to.name}: {summary(error)}. Pass such a "
            f"value{inline}"
        ) from error


class _Unknown(Exception):
    """A value that not every process knows."""


def _array(dtype: str, shape: tuple[int, ...], content: Any) -> np.ndarray:
    array = np.ndarray(shape, dtype, content)
    return array if array.flags.writeable else array.copy()


class _KnownPickler(pickle.Pickler):
    """Pickles numbers, text, arrays and containers of these, and raises ``_Unknown`` for anything else.

    It is asked only about what is not Python's own. Arrays of numbers are pickled in a way that takes half of the time.
    """

    def reducer_override(self, value: Any) -> Any:
        if type(value) is np.ndarray:
            if value.dtype.isbuiltin != 1 or value.dtype.hasobject or not value.flags.c_contiguous:
                return NotImplemented
            return _array, (value.dtype.char, value.shape, pickle.PickleBuffer(value))  # type: ignore[arg-type]
        if value is _array or isinstance(value, np.generic | np.dtype):
            return NotImplemented
        if getattr(value, "__module__", "").partition(".")[0] == "numpy" and callable(value):
            return NotImplemented
        raise _Unknown


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    def __init__(
        self, buffer: io.BytesIO, by_value: contextlib.ExitStack, searched: dict[str, bool], to: Destination
    ) -> None:
        super().__init__(buffer, plain.PROTOCOL if to.is_abroad else None)
        self._by_value = by_value
        self._searched = searched
        self._to = to
        self._looked_at: set[str] = set()

    def reducer_override(self, value: Any) -> Any:
        if self._to.is_abroad:
            described = plain.described(value)
            if described is not NotImplemented:
                return described
        if isinstance(value, type | FunctionType):
            self._look_at(value.__module__)
        elif isinstance(value, ModuleType):  # among the globals of a function
            self._look_at(value.__name__)
        elif isinstance(value, CodeType) and not self._to.takes_code:
            raise CodeByValue(f"{value.co_qualname} cannot be imported there")
        reduced = super().reducer_override(value)
        is_by_value = reduced is not NotImplemented and value.__module__ not in ("builtins", "types")
        if is_by_value and not self._to.takes_code:
            raise CodeByValue(f"{value.__qualname__} of {value.__module__} cannot be imported there")
        return reduced

    def _look_at(self, name: Any) -> None:
        if not isinstance(name, str) or name in self._looked_at:
            return
        self._looked_at.add(name)
        module = sys.modules.get(name)
        if (
            module is None
            or _can_be_imported(module, self._searched)
            or name in cloudpickle.list_registry_pickle_by_value()
        ):
            return
        cloudpickle.register_pickle_by_value(module)
        self._by_value.callback(cloudpickle.unregister_pickle_by_value, module)


def _can_be_imported(module: ModuleType, searched: dict[str, bool]) -> bool:
    name = module.__name__
    if name not in searched:
        searched[name] = _is_found(module, searched)
    return searched[name]


def _is_found(module: ModuleType, searched: dict[str, bool]) -> bool:
    """Whether an import would find the file of this module. A module without source is left to cloudpickle."""
    name, file = module.__name__, getattr(module, "__file__", None)
    if name == "__main__" or name.partition(".")[0] in sys.stdlib_module_names:
        return True
    if file is not None and not file.endswith(".py"):
        return True
    package = sys.modules.get(name.rpartition(".")[0])
    if "." in name and (package is None or not _can_be_imported(package, searched)):
        return False
    spec = _find(name, getattr(package, "__path__", None))
    if spec is None:
        return False
    if file is None:  # a folder without __init__.py
        return set(getattr(module, "__path__", ())) <= set(spec.submodule_search_locations or ())
    return not spec.has_location or spec.origin == file


def _find(name: str, path: Any) -> ModuleSpec | None:
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        spec: ModuleSpec | None = find(name, path) if find else None
        if spec is not None:
            return spec
    return None
