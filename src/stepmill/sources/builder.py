"""Builds the envs of a pool, and makes sure that every slot has its own.

One object in two slots, as ``lambda: env`` returns it, would be stepped for both and reset by either. Two signs reveal
it: the object is already in another slot of this process; or it existed before the factories were called, and the
factories of several slots refer to it. The second sign works even in a worker with a single env, so the answer does not
depend on how envs are distributed. It misses envs that a factory takes out of a list or a dict, or makes once and
keeps: those are found only if two slots are in the same process.
"""

from __future__ import annotations

import collections
import functools
import gc
import types
from collections.abc import Iterator
from typing import Any

from stepmill.errors import ConfigError
from stepmill.registry.env_state import HasLayerState
from stepmill.registry.factories import close_quietly
from stepmill.sources.models.python_env import PythonModels
from stepmill.sources.source import PythonSource


class EnvBuilder:
    """Builds the envs that this process runs, and refuses an env that is shared with another slot."""

    def __init__(self, source: PythonSource) -> None:
        self._source = source
        self.models = PythonModels([env.model for env in source.envs])
        self._common = _common_envs(source)  # by object id; found before any factory is called
        self._layers: dict[int, list[Any]] = {}  # by env id: the env and the envs inside it
        self._owners: dict[int, int] = {}  # the env id of each layer, by object id

    def build(self, env_id: int, worker_id: int = 0) -> Any:
        """Builds an env, or builds it again. An env of another slot is refused, and not closed."""
        env = self._source.build(env_id, worker_id)
        self.adopt(env_id, env)
        return env

    def adopt(self, env_id: int, env: Any) -> None:
        """Takes note of an env that takes a slot."""
        self._check_slot(env_id, env)
        try:
            self.models.add_built(env_id, env)
        except BaseException:
            close_quietly(env)
            raise

    def _check_slot(self, env_id: int, env: Any) -> None:
        if len(self._source.envs) == 1:  # there is no other slot to share it with
            return
        for old in self._layers.get(env_id, ()):  # in this order, and again where a signal handler raised before
            self._owners.pop(id(old), None)
        self._layers.pop(env_id, None)
        layers = _layers(env)
        for layer in layers:
            owner = self._owners.get(id(layer))
            if owner not in (None, env_id) or id(layer) in self._common:
                whose = "other envs would share" if owner is None else f"is already in env {owner}"
                raise ConfigError(
                    f"env {env_id} ({self._source.id}): expected an env of its own, got {_shown(env, layer)} that "
                    f"{whose}. Build the env inside the factory, so that each call makes a new one"
                )
        self._layers[env_id] = layers
        self._owners |= {id(layer): env_id for layer in layers}

    def move(self, env_id: int, to: int) -> None:
        """Gives the env of this process another number: the process takes the place of another one."""
        layers = self._layers.pop(env_id, [])
        self._layers[to] = layers
        self._owners |= {id(layer): to for layer in layers}
        for layer in layers:
            if isinstance(layer, HasLayerState) and _has_own(layer, "env_id"):  # a BaseEnv, which knows its number
                layer.env_id = to  # type: ignore[attr-defined]
        self.models.move(env_id, to)

    def forget(self) -> None:
        """Drops all references to the envs."""
        self._layers.clear()
        self._owners.clear()
        self.models.forget()


def _shown(env: Any, layer: Any) -> str:
    inside = "" if layer is env else f" (inside the {type(env).__name__})"
    return f"a {type(layer).__name__}{inside}"


# ---- envs ----------------------------------------------------------------------------------------

_SPACES = ("observation_space", "observation_spec", "observation_spaces", "possible_agents")


def _is_env(value: Any) -> bool:
    kind = type(value)
    return (
        hasattr(kind, "step")
        and hasattr(kind, "reset")
        and not isinstance(value, type)
        and any(hasattr(kind, name) or _has_own(value, name) for name in _SPACES)
    )


def _layers(env: Any) -> list[Any]:
    """An env and the envs inside it, whatever attribute a wrapper or adapter keeps them in."""
    found: dict[int, Any] = {}
    todo = [env]
    while todo:
        one = todo.pop()
        if id(one) not in found and _is_env(one):
            found[id(one)] = one
            todo += _kept_by(one)
    return list(found.values())


# We inspect envs without `__dict__`: once any code has asked for that, CPython 3.11 and 3.12 read and write the
# attributes of the object more slowly for the rest of its life.


def _kept_by(env: Any) -> list[Any]:
    """The values of an env's attributes."""
    values = gc.get_referents(env)
    for one in values:
        if type(one) is dict and one and _is_dict_of(one, env):
            return [*values, *one.values()]
    return values


def _is_dict_of(attributes: dict[Any, Any], env: Any) -> bool:
    """Whether this is the ``__dict__`` of an env that already has one, and not a dict in one of its attributes."""
    kind = type(env)
    return all(
        type(name) is str
        and (hasattr(kind, name) or (_has_own(env, name) and object.__getattribute__(env, name) is value))
        for name, value in attributes.items()
    )


def _has_own(value: Any, name: str) -> bool:
    """Whether an object has an attribute that its class does not have; no code of the object runs."""
    try:
        object.__getattribute__(value, name)
    except AttributeError:
        return False
    return True


# ---- what factories refer to ---------------------------------------------------------------------


def _common_envs(source: PythonSource) -> dict[int, Any]:
    """The envs that the factories or configurations of several slots refer to."""
    if len(source.envs) == 1:
        return {}
    known: dict[int, dict[int, Any]] = {}  # the envs of each value: usually all slots have the same values
    slots: collections.Counter[int] = collections.Counter()
    found: dict[int, Any] = {}
    for blueprint in source.envs:
        envs: dict[int, Any] = {}
        for value in (*_parts(blueprint.factory), *blueprint.config.values()):
            if id(value) not in known:
                known[id(value)] = _envs_of(value)
            envs |= known[id(value)]
        found |= envs
        slots.update(envs.keys())
    return {key: env for key, env in found.items() if slots[key] > 1}


def _parts(factory: Any) -> Iterator[Any]:
    """The arguments of a partial, and its function, which it often shares with the partials of other slots."""
    while isinstance(factory, functools.partial):
        yield from (*factory.args, *factory.keywords.values())
        factory = factory.func
    yield factory


def _envs_of(root: Any) -> dict[int, Any]:
    """The envs that a factory could return without making one, and the envs inside them.

    Looks at what its code can name: captured values, defaults, globals, arguments of a partial, attributes of all
    these, and what the functions it calls can name. Does not look into lists and dicts: an env in one of these may be
    meant for a single slot.
    """
    envs: dict[int, Any] = {}
    seen: dict[int, tuple[Any, Names]] = {}
    todo: list[tuple[Any, Names, int]] = [(root, frozenset(), 0)]
    while todo:
        value, names, depth = todo.pop()
        _, before = seen.get(id(value), (None, None))
        if depth > _DEPTH or isinstance(value, _PLAIN) or (before is not None and names <= before):
            continue
        seen[id(value)] = value, names | (before or frozenset())
        if _is_env(value):
            envs |= {id(layer): layer for layer in _layers(value)}
        todo += [(one, used, depth + 1) for one, used in _references(value, names)]
    return envs


Names = frozenset[str]
_PLAIN = (types.NoneType, bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset)
_DEPTH = 10  # from an object that calls another, which calls a function it keeps, to what that has captured are 6 steps


def _references(value: Any, names: Names) -> Iterator[tuple[Any, Names]]:
    """What code that uses ``names`` reaches from a value, each with the names that it can use from there on."""
    if isinstance(value, functools.partial):
        for one in (value.func, *value.args, *value.keywords.values()):
            yield one, names
    elif isinstance(value, types.MethodType):
        yield value.__func__, names
        yield value.__self__, _names_in(value.__func__)
    elif isinstance(value, types.FunctionType):
        names = _names_in(value)
        for one in _bound_to(value, names):
            yield one, names
    else:
        yield from _attributes(value, names)


def _bound_to(function: types.FunctionType, names: Names) -> Iterator[Any]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()
    for name in names & function.__globals__.keys():
        value = function.__globals__[name]
        # A function of another module has its own globals, and what they refer to may be large.
        if not isinstance(value, types.FunctionType) or value.__globals__ is function.__globals__:
            yield value


def _attributes(value: Any, names: Names) -> Iterator[tuple[Any, Names]]:
    """The attributes with these names, the methods of an object bound to it.

    Functions and classes of a module or a class are left out: they are other code.
    """
    is_object = not isinstance(value, type | types.ModuleType)
    own = getattr(value, "__dict__", {})
    for name in (*names, "__call__") if is_object else names:
        one = _static(value, name)
        if isinstance(one, types.FunctionType):
            if is_object:
                yield one if name in own else types.MethodType(one, value), names
        elif not isinstance(one, type | types.ModuleType):
            yield one, names


@functools.lru_cache(1024)
def _names_of_code(code: types.CodeType) -> Names:
    inner = (_names_of_code(one) for one in code.co_consts if isinstance(one, types.CodeType))
    return frozenset(code.co_names).union(*inner)


def _names_in(function: Any) -> Names:
    """All names in the code of a function, and in the functions defined inside it."""
    code = getattr(function, "__code__", None)
    return _names_of_code(code) if isinstance(code, types.CodeType) else frozenset()


def _static(value: Any, name: str) -> Any:
    """An attribute as it is stored, without running any code to get it. None if there is none."""
    homes = value.__mro__ if isinstance(value, type) else (value, *type(value).__mro__)
    for home in homes:
        found = getattr(home, "__dict__", {})
        if name in found:
            return found[name]
    return None
