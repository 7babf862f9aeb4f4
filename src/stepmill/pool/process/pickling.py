"""Pickles code that a fresh process has no way to import.

cloudpickle sends what lives in ``__main__`` by value, and trusts that every other module can be imported on the
other side. Test files that pytest loaded, or a module that was loaded from a path, cannot: they go by value too.
"""

from __future__ import annotations

import contextlib
import io
import pickle
import sys
from importlib.machinery import ModuleSpec
from types import FunctionType, ModuleType
from typing import Any

import cloudpickle
import numpy as np

from stepmill.errors import InputError, summary
from stepmill.pool.foreign import own_failure

__all__ = ["dumps", "dumps_given"]


def dumps(value: Any, searched: dict[str, bool] | None = None) -> bytes:
    """Pickles ``value`` for a process that shares our ``sys.path`` and nothing else.

    ``searched`` is for who pickles many values at a time: whether a module can be imported, by its name. To find that
    out is most of the work.
    """
    if _is_known_anywhere(value):
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)  # much faster
    buffer = io.BytesIO()
    with contextlib.ExitStack() as by_value:
        _Pickler(buffer, by_value, {} if searched is None else searched).dump(value)
    return buffer.getvalue()


def dumps_given(what: str, value: Any, kind: type[InputError] = InputError) -> bytes:
    """Pickles what the user passed to a call named ``what``, or raises an error of that kind."""
    try:
        return dumps(value)
    except Exception as error:
        if own_failure(lambda: dumps(value)) is None:  # then it was not the value: a signal handler raised
            raise
        raise kind(
            f"{what}: expected what can be sent to a worker process: {summary(error)}. Pass what can be pickled, or "
            "use backend='inline'"
        ) from error


_PLAIN = frozenset({type(None), bool, int, float, str, bytes, np.bool_, np.int64, np.int32, np.float32, np.float64})


def _is_known_anywhere(value: Any, depth: int = 8) -> bool:
    """Whether it is of numbers, text, arrays, and what they are put in, as far down as such data usually goes."""
    kind = type(value)
    if kind in _PLAIN:
        return True
    if kind is np.ndarray:
        return not value.dtype.hasobject
    if depth == 0:
        return False
    if kind is dict:
        return all(_is_known_anywhere(one, depth - 1) for pair in value.items() for one in pair)
    return kind in (tuple, list) and all(_is_known_anywhere(one, depth - 1) for one in value)


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    def __init__(self, buffer: io.BytesIO, by_value: contextlib.ExitStack, searched: dict[str, bool]) -> None:
        super().__init__(buffer)
        self._by_value = by_value
        self._searched = searched
        self._looked_at: set[str] = set()

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, type | FunctionType):
            self._look_at(value.__module__)
        elif isinstance(value, ModuleType):  # among the globals of a function
            self._look_at(value.__name__)
        return super().reducer_override(value)

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
    """Whether a search finds what the module came from. One without source is left to cloudpickle."""
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
