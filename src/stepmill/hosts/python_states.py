"""Saves the Python envs of this process and gives them saved states: for the inline host, and in workers.

A state is a pickle of what the env itself remembers, and of what its place in the pool does: the observation and the
info that it has shown last, its elapsed steps, the options of its next reset. Both are in one pickle, so that an
observation that is also a part of the env stays one. It is written and read only where the env lives.
"""

from __future__ import annotations

import copy
import functools
import io
import pickle
import random
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

import cloudpickle
import numpy as np

from stepmill.errors import StateError, StepmillError, UnsupportedError, summary
from stepmill.hosts.process import pickling
from stepmill.registry.description import player_rows
from stepmill.registry.env_state import check_layers, get_state, is_whole, layer_name, set_state, why_no_state
from stepmill.registry.factories import close_quietly
from stepmill.system.warn_once import warn_once
from stepmill.values.trees import leaves

# Remembers which modules can be imported: finding that out takes longer than to pickle a state.
dumps = functools.partial(pickling.dumps, searched={})

WAYS = ("methods", "pickle")  # how an env is saved: by its methods, or if the user asks for it, the whole object
# What else there is for an env that has no state, in this process and in a worker process that has several.
ELSEWHERE = "; or use backend='process' with num_workers=num_envs: its process is saved by forking it (docs/saving.md)"
BY_FORK = "; or use num_workers=num_envs: a process that has one env is saved by forking it (docs/saving.md)"


class _Place(Protocol):
    """Where envs are stepped: the native half of a host, or a worker."""

    def memory(self, env: int) -> tuple[Any, ...]: ...

    def set_memory(self, env: int, memory: tuple[Any, ...]) -> None: ...


class PythonStates:
    """Args:
    place: Where the envs are stepped.
    env_of: The env with an id.
    put_env: Puts another env in its place.
    renew: Builds an env anew.
    proven: The envs whose pickles can be trusted; it adds to them.
    advice: What else there is for an env that has no state.
    """

    def __init__(
        self,
        place: _Place,
        env_of: Callable[[int], Any],
        put_env: Callable[[int, Any], None],
        renew: Callable[[int], None],
        proven: set[int],
        advice: str = "",
    ) -> None:
        self._place, self._env_of, self._put_env, self._renew, self._proven = place, env_of, put_env, renew, proven
        self._advice = advice

    def kind(self, env_id: int) -> str:
        """How an env is saved, in a word, or ``"none: "`` and why it cannot be."""
        why = why_no_state(self._env_of(env_id))
        return "methods" if why is None else f"none: {why}{self._advice}"

    def save(self, env_id: int, by: str | None) -> bytes:
        """The state of an env, saved by its methods, or by pickling all of it."""
        env = self._env_of(env_id)
        if by == "pickle":
            if env_id not in self._proven:
                _prove_pickle(env_id, env)
                self._proven.add(env_id)
            return self._pickled(env_id, "pickle", env)
        with _StateErrors("save", env_id, self._advice):
            state = get_state(env)
        return self._pickled(env_id, "methods", state)

    def _pickled(self, env_id: int, way: str, own: Any) -> bytes:
        elapsed, seen, info, options, presence = self._place.memory(env_id)
        if way == "methods" and is_whole(self._env_of(env_id)):
            seen = None
        try:
            return dumps((way, own, (elapsed, seen, info, options, presence)))
        except Exception:
            _check_pickled(env_id, "its env" if way == "pickle" else "what get_state() returned", own)
            _check_pickled(env_id, "its observation", seen)
            _check_pickled(env_id, "the options of its next reset", options)
        return dumps((way, own, (elapsed, seen, _picklable(env_id, info), options, presence)))

    @staticmethod
    def read(env_id: int, state: bytes) -> Any:
        """What a saved state holds. Changes nothing."""
        try:
            way, own, memory = pickle.loads(state)
        except Exception as error:
            raise StateError(f"restore: the state for env {env_id} cannot be read here: {summary(error)}") from error
        if way not in WAYS:
            raise StateError(f"restore: expected a state saved by {' or '.join(WAYS)} for env {env_id}, got {way!r}")
        return way, own, memory

    def is_sure(self, env_id: int, content: Any) -> bool:
        """Whether an env takes what ``read`` has returned in any case."""
        return content[0] == "methods" and is_whole(self._env_of(env_id))

    def former(self, env_id: int, content: Any) -> Any:
        """What an env is before it is given a state, for ``give_back``."""
        if content[0] == "pickle":
            mine, its = ([layer_name(one) for one in _envs_in(env)] for env in (self._env_of(env_id), content[1]))
            with _StateErrors("restore", env_id):
                check_layers(mine, its)
            return _Replaced(self._env_of(env_id), self._place.memory(env_id))
        try:
            return self.save(env_id, None)
        except UnsupportedError:
            raise
        except Exception:
            memory = self._place.memory(env_id)
            if memory[1]:  # it has shown something
                raise
            return _NeverReset(memory)

    def give(self, env_id: int, content: Any) -> None:
        """Gives an env what ``read`` has returned. If it raises, the env may be anything."""
        way, own, (elapsed, seen, *rest) = content
        if way == "pickle":
            self._put_env(env_id, own)
        else:
            with _StateErrors("restore", env_id):
                set_state(self._env_of(env_id), own)
        if seen is None and is_whole(env := self._env_of(env_id)):
            seen = (env.last_observation(),)
        self._place.set_memory(env_id, (elapsed, seen, *rest))

    def give_back(self, env_id: int, former: Any) -> None:
        """Makes an env what it was."""
        try:
            self._give_back(env_id, former)
        except Exception as error:
            raise StateError(f"{error}. It is neither what it was nor what it should be: reset it") from error

    def _give_back(self, env_id: int, former: Any) -> None:
        if isinstance(former, _Replaced):
            self._put_env(env_id, former.take())
            self._place.set_memory(env_id, former.memory)
        elif isinstance(former, _NeverReset):
            self._renew(env_id)
            self._place.set_memory(env_id, former.memory)
        elif former is not None:
            self.give(env_id, self.read(env_id, former))


def common_kind(kinds: Iterable[str]) -> str:
    """How the envs of a pool are saved, from what each of them says."""
    known = list(kinds)
    usual = "fork" if "fork" in known else "methods"
    return next((kind for kind in known if kind.startswith("none")), usual)


def raise_first(calls: Iterable[Callable[[], None]]) -> None:
    """Makes all these calls, then raises what the first of them raised."""
    errors = []
    for call in calls:
        try:
            call()
        except Exception as error:
            errors.append(error)
    if errors:
        raise errors[0]


class _Replaced:
    """An env in whose place another one was put: it is closed, unless it is put back."""

    def __init__(self, env: Any, memory: tuple[Any, ...]) -> None:
        self._env, self.memory = env, memory

    def take(self) -> Any:
        env, self._env = self._env, None
        return env

    def __del__(self) -> None:
        if self._env is not None:
            close_quietly(self._env)


class _NeverReset(NamedTuple):
    """An env that has no state before its first reset: it is what it was when it was built."""

    memory: tuple[Any, ...]


class _StateErrors:
    """Says of which env a state could not be found or taken. What the env raised is the cause."""

    def __init__(self, call: str, env_id: int, advice: str = "") -> None:
        self._call, self._env_id, self._advice = call, env_id, advice

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is None or isinstance(error, KeyboardInterrupt):
            return
        place = f"{self._call}: env {self._env_id}"
        if isinstance(error, UnsupportedError):
            raise type(error)(f"{place}: {error}{self._advice}") from error.__cause__
        if isinstance(error, StateError):
            raise type(error)(f"{place}: {error}") from error.__cause__
        call = "get_state()" if self._call == "save" else "set_state()"
        raise StateError(f"{place}: {call} raised {summary(error)}") from error


def _check_pickled(env_id: int, what: str, value: Any) -> None:
    try:
        dumps(value)
    except Exception as error:
        raise StateError(f"save: env {env_id}: {what} cannot be pickled: {summary(error)}") from error


def _picklable(env_id: int, info: Any) -> dict[Any, Any]:
    """The parts of an info that can be pickled. It decides nothing: a state without the rest of it is still whole."""
    kept = {}
    for key, value in (info or {}).items():
        try:
            dumps((key, value))
            kept[key] = value
        except Exception as error:
            warn_once(
                f"info[{key!r}] of env {env_id} cannot be pickled, and is not in its saved state: {summary(error)}"
            )
    return kept


# ---- whole envs ----------------------------------------------------------------------------------


def _prove_pickle(env_id: int, env: Any) -> None:
    """Raises unless a pickled env goes on as the env itself does: two copies take the same step, and are reset.

    The other copy is made of the attributes of the env and of all that are inside it, whatever they say about pickling
    themselves. ``EzPickle`` is refused at once: it makes a new env with the same arguments, which may go on alike now,
    and not later.
    """
    advice = "Write get_state() and set_state(state) instead (docs/environments.md)"
    try:
        pickled = pickle.loads(dumps(env))
    except Exception as error:
        raise UnsupportedError(f"save: env {env_id} cannot be pickled: {summary(error)}. {advice}") from error
    if lossy := sorted({type(one).__name__ for one in _envs_in(env) if _is_ez(one)}):
        close_quietly(pickled)
        reason = f"{', '.join(lossy)} pickles only the arguments of its constructor (EzPickle)"
        raise UnsupportedError(f"save: env {env_id}: its pickle cannot be trusted: {reason}. {advice}")
    try:
        plain = _plain_copy(env)
    except Exception as error:
        reason = f"a plain copy of it cannot be made: {summary(error)}"
        raise UnsupportedError(f"save: env {env_id}: its pickle cannot be trusted: {reason}. {advice}") from error
    drawn = random.getstate(), np.random.get_state()
    try:
        if not _same(_played(plain), _played(pickled)):
            raise StateError(f"save: env {env_id} goes on otherwise after it was pickled. {advice}")
    finally:
        close_quietly(pickled)
        close_quietly(plain)
        random.setstate(drawn[0])  # envs that draw from these go on as if nobody had played
        np.random.set_state(drawn[1])


def _is_ez(env: Any) -> bool:
    """Whether it is one of Gymnasium's or PettingZoo's ``EzPickle``, with its way of pickling."""
    ez = next((one for one in type(env).__mro__ if one.__name__ == "EzPickle"), None)
    return ez is not None and type(env).__setstate__ is ez.__setstate__  # type: ignore[attr-defined]


def _is_env(value: Any) -> bool:
    return hasattr(type(value), "step") and hasattr(type(value), "reset") and not isinstance(value, type)


def _envs_in(env: Any) -> list[Any]:
    """The env, its wrappers and the envs inside adapters."""
    found: list[Any] = []
    todo = [env]
    while todo:
        one = todo.pop()
        if not _is_env(one) or any(one is known for known in found):
            continue
        found.append(one)
        todo += getattr(one, "__dict__", {}).values()
    return found


class _PlainPickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    def reducer_override(self, value: Any) -> Any:
        if _is_env(value):
            return _bare, (type(value),), object.__getstate__(value), None, None, _fill
        return super().reducer_override(value)


def _bare(kind: type) -> Any:
    return object.__new__(kind)


def _fill(env: Any, state: Any) -> None:
    attributes, slots = state if isinstance(state, tuple) else (state, None)
    env.__dict__.update(attributes or {})
    for name, value in (slots or {}).items():
        setattr(env, name, value)


def _plain_copy(env: Any) -> Any:
    buffer = io.BytesIO()
    _PlainPickler(buffer).dump(env)
    return pickle.loads(buffer.getvalue())


def _played(env: Any) -> tuple[Any, ...]:
    """What an env returns for a step and a reset, or the class of what it raises: its episode may be over."""
    players = getattr(env, "num_players", 1)
    space = copy.deepcopy(env.action_space)
    if players > 1:
        space = player_rows(space, 1, players, getattr(env, "player_kinds", ()))
    space.seed(0)
    out: list[Any] = []
    calls: list[Callable[[], Any]] = [lambda: env.step(space.sample())[:4], lambda: env.reset()[:1]]
    for call in calls:
        try:
            out.append(call())
        except StepmillError:
            raise
        except Exception as error:
            out.append(type(error).__name__)
    return tuple(out)


def _same(one: Any, other: Any) -> bool:
    mine, its = list(leaves(one)), list(leaves(other))
    return len(mine) == len(its) and all(map(_equal, mine, its))


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, np.ndarray | np.generic | int | float):
        return bool(np.array_equal(np.asarray(one), np.asarray(other), equal_nan=np.asarray(one).dtype.kind in "fc"))
    return dumps(one) == dumps(other)
