"""A pool inside of ``jax.jit``: ``recv``, ``send`` and ``step`` as functions of JAX, see ``PoolView.xla``.

XLA calls C++ (``cpp/bindings/xla``), which steps the pool and fills the arrays of the program. What is here runs only
while JAX traces a program: it says which arrays go in and come out, and builds the results of the view from them.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np

from stepmill import _native
from stepmill.errors import ActionError, ActionTypeError, EnvIdError, UnsupportedError
from stepmill.hosts.host import Host
from stepmill.hosts.infos import engine_keys
from stepmill.settings import Settings
from stepmill.system.optional import JAX, require
from stepmill.values.spaces import ArrayLeaf, FlatSpace, flatten
from stepmill.values.trees import map_tree, map_trees

Send = Callable[..., Any]
Show = Callable[[Any], Any]  # from the five results of the gymnasium view to those of another one

_OLDEST = (0, 5)  # the first JAX whose ffi_call has side effects, aliases and the typed interface
_TARGET = "stepmill_{}"
_HANDLE_WORDS = 3
_NUMBERS = frozenset("biuf")  # kinds of numpy's types that C++ reads; JAX has others, of half a byte


class _Column(NamedTuple):
    """A result of the handler, as the engine describes it."""

    part: str
    name: str  # of an info
    dtype: str
    shape: tuple[int, ...]  # of a row


def xla_functions(
    engine: _native.Engine, settings: Settings, show: Show, with_players: bool
) -> tuple[Any, Send, Send, Send]:
    """The handle of a pool, and its recv, send and step."""
    host: Host = engine.host
    _check_pool(host)
    jax = _registered()
    calls = _Calls(jax, engine, settings, show, with_players)
    infos = {key for one in calls.columns if one.name for key in (one.name, f"_{one.name}")}
    words = _native.EngineXla.open(engine, sorted(engine_keys(settings.autoreset) | infos))
    return jax.numpy.array(words, np.uint32), calls.recv, calls.send, calls.step


# ---- what can be done --------------------------------------------------------------------------------


def _check_pool(host: Host) -> None:
    if host.backend == "ray":
        raise UnsupportedError(
            "xla: the envs of this pool are on a cluster, and its driver gathers them in Python: "
            "use backend='process' or 'thread'"
        )
    if host.num_players > 1:
        raise UnsupportedError(
            "xla: envs of several players have as many rows as players are there, and the arrays of a compiled "
            "program have a fixed shape"
        )
    for what, flat in (("observation", host.observation), ("action", host.action)):
        if flat.object_spaces:
            raise UnsupportedError(
                f"xla: the {what} space has a part that does not fit in arrays, {flat.object_spaces[0]}, and a "
                "compiled program has arrays only"
            )


@functools.cache
def _registered() -> Any:
    """JAX, which knows our functions from now on."""
    jax = require(*JAX, "xla()")
    version = tuple(int(one) for one in re.findall(r"\d+", jax.__version__)[:2])
    if version < _OLDEST:
        raise UnsupportedError(f"xla: expected JAX 0.5 or later, got {jax.__version__}: pip install -U jax")
    importlib.import_module("jax.ffi")  # the package alone does not bring it
    for name, handler in _native.xla_handlers(_minor_version(jax)).items():
        jax.ffi.register_ffi_target(_TARGET.format(name), handler, platform="cpu", api_version=1)
    return jax


def _minor_version(jax: Any) -> int:
    """That of XLA's foreign function interface: early versions take only handlers of their own."""
    header = Path(jax.ffi.include_dir()) / "xla" / "ffi" / "api" / "c_api.h"
    try:
        found = re.search(r"define XLA_FFI_API_MINOR (\d+)", header.read_text())
    except OSError:
        found = None
    return int(found[1]) if found else 0


def _refuse_vmap(*_: Any) -> Any:
    raise UnsupportedError(
        "xla: a pool has one state, so vmap cannot make several calls of one: call it outside of vmap"
    )


# ---- calls in a program ------------------------------------------------------------------------------


class _Calls:
    """The three functions. They keep the pool as long as somebody has them, such as a compiled program."""

    def __init__(self, jax: Any, engine: _native.Engine, settings: Settings, show: Show, with_players: bool) -> None:
        self._jax, self._engine, self._show, self._with_players = jax, engine, show, with_players
        host: Host = engine.host
        self._observation, self._action = host.observation, host.action
        self._leaves = _leaves_by_number(host.action)
        self._rows, self._num_envs = settings.batch_size, settings.num_envs
        self._same_step = settings.autoreset == "same_step"
        self.columns = [_Column(*one) for one in _native.EngineXla.columns(engine)]

    def recv(self, handle: Any) -> tuple[Any, Any]:
        """Waits for a whole batch: ``(handle, results)``."""
        handle, *arrays = self._call("recv", self._result_types(), self._handle(handle))
        return handle, self._results(arrays)

    def send(self, handle: Any, action: Any, env_id: Any = None) -> Any:
        """Queues actions: ``handle``."""
        (handle,) = self._call("send", [], *self._arguments(handle, action, env_id))
        return handle

    def step(self, handle: Any, action: Any, env_id: Any = None) -> tuple[Any, Any]:
        """``send`` then ``recv``: ``(handle, results)``."""
        handle, *arrays = self._call("step", self._result_types(), *self._arguments(handle, action, env_id))
        return handle, self._results(arrays)

    def _call(self, name: str, results: list[Any], *arguments: Any) -> Any:
        handle = self._jax.ShapeDtypeStruct((_HANDLE_WORDS,), np.uint32)
        call = self._jax.ffi.ffi_call(
            _TARGET.format(name),
            [handle, *results],
            has_side_effect=True,
            vmap_method=None,
            input_output_aliases={0: 0},
        )
        once = self._jax.custom_batching.custom_vmap(call)
        once.def_vmap(_refuse_vmap)
        return once(*arguments)

    # ---- what goes in ------------------------------------------------------------------------

    def _handle(self, handle: Any) -> Any:
        array = self._jax.numpy.asarray(handle)
        if array.shape != (_HANDLE_WORDS,) or array.dtype != np.uint32:
            raise UnsupportedError(
                f"xla: expected the handle that xla() or one of its functions has returned, got {array.dtype} of shape "
                f"{array.shape}"
            )
        return array

    def _arguments(self, handle: Any, action: Any, env_id: Any) -> list[Any]:
        arguments = [self._handle(handle)]
        rows = self._rows
        ids: list[Any] = []
        if env_id is not None:
            array = self._jax.numpy.asarray(env_id)
            if array.ndim != 1 or array.dtype not in (np.int32, np.int64):
                raise EnvIdError(f"env_id: expected a 1-d array of integers, got {array.dtype} of shape {array.shape}")
            rows = array.shape[0]
            ids.append(array)
        parts: dict[int, Any] = {}
        try:
            map_trees(parts.__setitem__, self._action.tree, action)
        except (KeyError, TypeError, ValueError):
            self._refuse_form(action)
        if isinstance(self._action.tree, dict) and len(action) != len(self._action.tree):
            self._refuse_form(action)  # it has other keys as well, perhaps a misspelt one
        arguments += [self._part(leaf, parts[leaf], rows) for leaf in sorted(self._leaves)]
        return arguments + ids

    def _refuse_form(self, action: Any) -> NoReturn:
        raise ActionError(f"action: expected the parts of {self._action.space}, got {action!r}") from None

    def _part(self, number: int, given: Any, rows: int) -> Any:
        leaf = self._leaves[number]
        name = f"action {leaf.name!r}" if leaf.name else "action"
        array = self._jax.numpy.asarray(given)
        expected = (rows, *leaf.shape)
        if array.shape != expected:
            raise ActionError(f"{name}: expected shape {expected} (one row per env), got {array.shape}")
        if self._jax.dtypes.issubdtype(array.dtype, np.floating) and array.dtype not in (np.float32, np.float64):
            return array.astype(np.float32)  # no smaller one has values that this does not have
        if getattr(array.dtype, "kind", None) not in _NUMBERS:
            raise ActionTypeError(f"{name}: expected numbers that {leaf.dtype} can hold, got {array.dtype}")
        return array

    # ---- what comes out ----------------------------------------------------------------------

    def _result_types(self) -> list[Any]:
        canonical = self._jax.dtypes.canonicalize_dtype
        return [
            self._jax.ShapeDtypeStruct((self._rows, *one.shape), canonical(np.dtype(one.dtype))) for one in self.columns
        ]

    def _results(self, arrays: list[Any]) -> Any:
        """The results of the view: they have the keys of a batch in which episodes end, and envs tell all they can."""
        by_part: dict[str, list[Any]] = {}
        infos: dict[str, dict[str, Any]] = {part: {} for part in ("info", "has_info", "final_info", "has_final_info")}
        for column, array in zip(self.columns, arrays, strict=True):
            if column.name:
                infos[column.part][column.name] = array
            else:
                by_part.setdefault(column.part, []).append(array)
        one = {part: found[0] for part, found in by_part.items()}
        info: dict[str, Any] = {"env_id": one["env_id"]}
        if self._with_players:
            info["players"] = {"env_id": one["env_id"]}
        info["elapsed_step"] = one["elapsed_step"]
        info |= _with_masks(infos["info"], infos["has_info"])
        info |= {"episode_return": one["episode_return"], "_episode_return": one["ended"]}
        info |= {"episode_length": one["episode_length"], "_episode_length": one["ended"]}
        if self._same_step:
            final = map_tree(by_part["final_observation"].__getitem__, self._observation.tree)
            info |= {"final_obs": final, "_final_obs": one["ended"]}
            info["final_info"] = _with_masks(infos["final_info"], infos["has_final_info"])
            info["_final_info"] = one["ended"]
        own = info.get("abnormal", False) & info.get("_abnormal", False)  # what envs say of themselves
        info |= {"abnormal": one["abnormal"] | own, "_abnormal": self._jax.numpy.ones(self._rows, bool)}
        observation = map_tree(by_part["observation"].__getitem__, self._observation.tree)
        return self._show((observation, one["reward"], one["terminated"], one["truncated"], info))


def _with_masks(values: dict[str, Any], masks: dict[str, Any]) -> dict[str, Any]:
    return {key: one for name in values for key, one in ((name, values[name]), (f"_{name}", masks[name]))}


def _leaves_by_number(flat: FlatSpace) -> dict[int, ArrayLeaf]:
    """The arrays of a space by their numbers in its tree."""
    own, out = flatten(flat.space), dict[int, ArrayLeaf]()
    map_trees(lambda number, leaf: out.update({number: own.leaves[leaf]}), flat.tree, own.tree)
    return out
