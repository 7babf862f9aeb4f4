"""The known ids, and the env behind each."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from stepmill.errors import ConfigError, MissingPackageError, StepmillError, UnknownEnvError, UnsupportedError
from stepmill.registry.factories import EnvFactory, default_values
from stepmill.registry.hints import ids_like
from stepmill.system.optional import Package, check_installed, explained_misfit, imported, is_installed, require
from stepmill.values.arguments import whole_number


@dataclass(frozen=True)
class EnvRecord:
    """One id: a native env class, or a factory of Python envs, with its defaults.

    With both, pools run the native class, and the factory makes its Python twin: for ``verify``, for pools of several
    kinds of envs, and as a single env.

    ``needs`` is the optional package without which it cannot be made, ``short`` another name for ``make``.
    """

    id: str
    native: str | None = None
    file: str | None = None  # of an env of one file, which is compiled when it is asked for
    simulator: str | None = None  # the Python half of a native family, "module:class", see sources/simulator.py
    factory: Callable[..., Any] | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    max_episode_steps: int | None = None
    reward_threshold: float | None = None
    needs: Package | None = None
    short: str | None = None


@dataclass(frozen=True)
class Family:
    """The ids of a package, which is imported when one of them is asked for.

    Most packages register their ids with Gymnasium when they are imported.
    """

    package: Package
    patterns: tuple[str, ...]  # regular expressions, one of which matches the whole id
    factory: str | None = None  # "module:class", made with an id; Gymnasium's own env by default
    simulator: str | None = None  # the package whose newer versions break this one, without a word
    ids: str | None = None  # "module:function" that lists the ids, if Gymnasium's registry does not have them
    example: str | None = None  # one of the ids
    at_least: int = 1  # how many ids there are: `make test-zoo` fails if it finds fewer
    without: str | None = None  # entry points of ids that it registers though they can no longer be made; a pattern

    def has(self, id: str, *, any_case: bool = False) -> bool:
        return any(re.fullmatch(one, id, re.IGNORECASE if any_case else 0) for one in self.patterns)

    def registers(self, spec: Any) -> bool:
        """Whether an entry of Gymnasium's registry is an id of this family, and can be made."""
        entry_point = str(spec.entry_point)
        if self.without is not None and re.match(self.without, entry_point):
            return False
        return self.has(spec.id) or entry_point.partition(":")[0].split(".")[0] == self.package.module


_VERSIONS = ("", "-v0", "_v0")  # what may be missing at the end of an id
_records: dict[str, EnvRecord] = {}  # by id, and by short name
_families: list[Family] = []
_drawers: dict[str, str] = {}  # by native class


def register(
    id: str,
    factory: Callable[..., Any] | str | os.PathLike[str] | None = None,
    *,
    native: str | None = None,
    config: Mapping[str, Any] | None = None,
    max_episode_steps: int | None = None,
    reward_threshold: float | None = None,
) -> None:
    """Gives an env an id for ``make``.

    Args:
        id: The name, such as ``"MyEnv-v0"``.
        factory: A class or function that returns a ``gymnasium.Env``, or the path of an env of one file, such as
            ``"coin.h"``, which is compiled when the id is made.
        native: Instead of a factory, the name of an env class that is compiled into this build.
        config: Default arguments of the factory or the native class.
        max_episode_steps: The time limit; ``None`` for none.
        reward_threshold: The mean return at which the env counts as solved, if any.
    """
    if not isinstance(id, str) or not id.strip():
        raise ConfigError(f"register: expected a name as the id, such as 'MyEnv-v0', got {id!r}")
    if (factory is None) == (native is None):
        raise ConfigError(f"register({id!r}): expected either a factory or native=..., got both or neither")
    file = None
    if isinstance(factory, str | os.PathLike):
        file, factory = os.path.abspath(factory), None  # wherever the program is when it makes it
    if factory is not None and not callable(factory):
        raise ConfigError(f"register({id!r}): expected a callable factory or the path of a file, got {factory!r}")
    if max_episode_steps is not None:
        max_episode_steps = whole_number(f"register({id!r}): max_episode_steps", max_episode_steps, 1)
    add(
        EnvRecord(
            id,
            native=native,
            file=file,
            factory=factory,
            config=dict(config or {}),
            max_episode_steps=max_episode_steps,
            reward_threshold=reward_threshold,
        )
    )


def add(record: EnvRecord) -> None:
    """Makes a record known, here and to Gymnasium."""
    _records[record.id] = record
    if record.short is not None:
        _records[record.short] = record
    _tell_gymnasium(record)


def add_family(family: Family) -> None:
    """Makes the ids of a package known. Nothing is imported."""
    _families.append(family)


def register_drawer(native: str, place: str) -> None:
    """Says what draws the envs of a native class: a ``Drawer`` (``sources/drawing.py``), imported when it is needed.

    Args:
        native: The name of the env class, which any number of ids may share.
        place: Where the drawer's class is, as ``"module:name"``.
    """
    _drawers[native] = place


def drawer_of(native: str) -> Any:
    """The class that draws the envs of a native class; None if there is none."""
    return imported(_drawers[native]) if native in _drawers else None


def _tell_gymnasium(record: EnvRecord) -> None:
    """Registers the env for ``gymnasium.make_vec("stepmill/<id>")`` too, under its short name if it has one."""
    import gymnasium

    name = f"stepmill/{record.short or record.id}"
    gymnasium.registry.pop(name, None)  # registering again deserves no warning
    # An id that Gymnasium's syntax does not allow, such as one with its own namespace, works only here.
    with contextlib.suppress(gymnasium.error.Error):
        gymnasium.register(
            name,
            vector_entry_point="stepmill.make:make_for_gymnasium",
            reward_threshold=record.reward_threshold,
            max_episode_steps=record.max_episode_steps,
            kwargs={"task_id": record.id},
        )


def own_ids() -> list[str]:
    """The ids that stepmill registers itself; those of an optional package only if it is installed."""
    return sorted({one.id for one in _records.values() if one.needs is None or is_installed(one.needs)})


def records() -> Iterable[EnvRecord]:
    """Everything that is registered here, whether it can be made or not."""
    return {one.id: one for one in _records.values()}.values()


def families() -> tuple[Family, ...]:
    """The packages whose ids are known by patterns."""
    return tuple(_families)


def registered(id: str) -> EnvRecord | None:
    """The record of an id that was registered here, even if its package is missing."""
    return _records.get(id)


def find(id: str) -> EnvRecord:
    """The record of an id, from here, from a family or from Gymnasium."""
    record = _records.get(id)
    if record is not None:
        if record.needs is not None:
            check_installed(record.needs, id)
        return record
    import gymnasium

    family = family_of(id)
    try:
        if family is not None and family.ids is not None:
            return _found_in(family, id)
        spec = gymnasium_spec(id)
    except StepmillError:  # says which package or module is missing
        raise
    except gymnasium.error.Error as error:
        module, _, name = id.rpartition(":")
        if name in _records and module != "gymnasium":  # the module registers its envs here; Gymnasium does not
            return find(name)
        raise _unknown(id) from error
    make_factory = GymnasiumFactory if family is None or family.factory is None else imported(family.factory)
    return EnvRecord(
        id,
        factory=make_factory(id),
        max_episode_steps=spec.max_episode_steps,
        reward_threshold=spec.reward_threshold,
    )


def python_twin(record: EnvRecord, why: str) -> tuple[EnvRecord, Callable[..., Any]]:
    """The Python env of an id, and what makes it: for a native id that has none, Gymnasium's env of that name.

    Raises if there is none either; ``why`` says who needs a Python env.
    """
    if record.factory is None:
        try:
            record = find(f"gymnasium:{record.id}")
        except UnknownEnvError:
            raise UnsupportedError(f"{record.id} is native only: there is no Python env of that name. {why}") from None
    assert record.factory is not None
    return record, record.factory


def _found_in(family: Family, id: str) -> EnvRecord:
    """The record of an id in a family that Gymnasium does not know."""
    assert family.ids is not None
    assert family.factory is not None
    load_family(family, id)
    factory = imported(family.factory)(id.rpartition(":")[2])
    if factory.id not in imported(family.ids)():
        raise _unknown(factory.id)
    return EnvRecord(id, factory=factory, needs=family.package)


def _unknown(id: str) -> UnknownEnvError:
    """Says what resembles an unknown id: other ids, or those of a package that is not installed."""
    import gymnasium

    meant = id.strip()
    alike = [one for one in _families if any(one.has(f"{meant}{v}", any_case=True) for v in _VERSIONS)]
    for family in alike:
        if is_installed(family.package):
            load_family(family, id)  # its ids are known from now on
    in_gymnasium = [one for one, spec in gymnasium.registry.items() if isinstance(spec.entry_point, str)]
    module, _, name = meant.rpartition(":")
    if module:
        return _unknown_in(module, name, in_gymnasium)
    near = ids_like(id, [*_records, *in_gymnasium, *_ids_of_others()])
    hint = f", did you mean {' or '.join(near)}?" if near else "."
    missing = [one.package for one in alike if not is_installed(one.package)]
    if not near and missing:
        hint = f": it resembles those of {missing[0].name}, which pip install 'stepmill[{missing[0].extra}]' brings."
    return UnknownEnvError(
        f"unknown env id {id!r}{hint} list_all_envs() and `stepmill list` list those that are installed; those of a "
        "package that they do not know are written 'package:id'"
    )


def _unknown_in(module: str, name: str, known: list[str]) -> UnknownEnvError:
    """Says that a module is there, but neither registers what was written behind it nor has it."""
    near = [f"{module}:{one}" for one in ids_like(name, known)]
    hint = f", did you mean {' or '.join(near)}?" if near else ""
    return UnknownEnvError(
        f"unknown env id '{module}:{name}': the module {module!r} was imported, but neither registers an env {name!r} "
        f"nor has a class or function of that name{hint}"
    )


def _ids_of_others() -> Iterable[str]:
    """The ids of installed packages that do not register them with Gymnasium."""
    for family in _families:
        if family.ids is not None and is_installed(family.package):
            yield from imported(family.ids)()


def _is_named_in(id: str, module: str | None) -> bool:
    """Whether ``module`` is the one before the colon of an id, or a package that contains it."""
    return module is not None and f"{id.rpartition(':')[0]}.".startswith(f"{module}.")


def gymnasium_spec(id: str) -> Any:
    """Gymnasium's record of an id; ``module:id`` imports the module first, as ``gymnasium.make`` does.

    The package of a family is imported when one of its ids is asked for.
    """
    import gymnasium

    module, _, name = id.rpartition(":")
    if module:
        _import_for(id, module)
    family = family_of(name)
    if family is not None:
        if name not in gymnasium.registry:
            load_family(family, name)
        elif _is_of_gymnasium(gymnasium.registry[name]):
            check_installed(family.package, name)
    return gymnasium.spec(name)


def _import_for(id: str, module: str) -> None:
    """Imports the module before the colon of an id. What its code raises is not ours to explain."""
    cause = None
    if not module.startswith("."):  # a relative name says nothing here
        try:
            importlib.import_module(module)
            return
        except ModuleNotFoundError as error:
            if not _is_named_in(id, error.name):
                raise  # the module exists, but one that it needs does not
            cause = error
    raise UnknownEnvError(
        f"unknown env id {id!r}: there is no module {module!r}. What is before the colon is the module that has or "
        "registers the env: check its name, and that it is installed or in sys.path"
    ) from cause


def _is_of_gymnasium(spec: Any) -> bool:
    """Whether Gymnasium itself registered it, though its env needs another package."""
    return str(spec.entry_point).startswith("gymnasium.envs.")


def load_family(family: Family, user: str) -> None:
    """Imports the package of a family, which registers its ids with Gymnasium if it does so at all."""
    require(*family.package, user)


def family_of(id: str) -> Family | None:
    """The family that an id belongs to, with or without a module before it."""
    name = id.rpartition(":")[2]
    return next((one for one in _families if one.has(name)), None)


@dataclass(frozen=True)
class GymnasiumFactory(EnvFactory):
    """Makes envs of an id in Gymnasium's registry. The engine checks what they return."""

    id: str

    def __call__(self, **config: Any) -> Any:
        import gymnasium

        config.setdefault("disable_env_checker", True)
        family = family_of(self.id)
        if family is None or family.simulator is None:
            return gymnasium.make(self.id, **config)
        with explained_misfit(family.package, family.simulator, self.id):
            return gymnasium.make(self.id, **config)

    def creator(self) -> Callable[..., Any]:
        """The env class, or the function that makes the env."""
        from gymnasium.envs.registration import load_env_creator

        entry_point: Any = gymnasium_spec(self.id).entry_point
        if not isinstance(entry_point, str):
            return entry_point  # type: ignore[no-any-return]
        try:
            return load_env_creator(entry_point)
        except ModuleNotFoundError as error:
            if not entry_point.startswith("gymnasium.envs."):
                raise  # a package of the user's, which may have any reason
            raise MissingPackageError(
                f"{self.id} needs {error.name}, which is not installed: pip install 'gymnasium[jax]' brings what those "
                "of Gymnasium's envs need that are written in JAX"
            ) from error

    def preload(self, config: Mapping[str, Any]) -> None:
        with contextlib.suppress(Exception):  # the constructor will fail the same way, and say for which env
            self.creator()

    def limited(
        self, config: dict[str, Any], given: int | None, registered: int | None
    ) -> tuple[dict[str, Any], int | None]:
        """Gymnasium's own wrapper applies the limit."""
        return (config if given is None else {**config, "max_episode_steps": given}), None

    def known_keys(self) -> list[str] | None:
        """The keyword arguments of the env class, and those that ``gymnasium.make`` adds."""
        try:
            parameters = inspect.signature(self.creator()).parameters
        except (TypeError, ValueError):
            return None
        if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
            return None
        return list(dict.fromkeys([*parameters, "render_mode", "disable_env_checker"]))

    def defaults(self) -> dict[str, Any]:
        """The arguments of the env class, or what the id is registered with."""
        return {**default_values(self.creator()), **gymnasium_spec(self.id).kwargs}
