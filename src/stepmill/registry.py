"""The known ids, and the env behind each."""

from __future__ import annotations

import contextlib
import difflib
import importlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from stepmill.arguments import whole_number
from stepmill.errors import ConfigError, StepmillError, UnknownEnvError
from stepmill.factories import imported
from stepmill.optional import ALE, ROBOTICS, Package, check_installed, explained_misfit, is_installed, require

__all__ = ["EnvRecord", "add", "drawer_of", "find", "list_all_envs", "register", "register_drawer"]

# Packages that register their envs with Gymnasium when they are imported, and how the ids of these envs begin.
_REGISTER_THEMSELVES = {
    ALE: ("ALE/",),
    ROBOTICS: (
        *("FetchReach", "FetchPush", "FetchSlide", "FetchPickAndPlace", "HandReach", "HandManipulate"),
        *("AdroitHand", "AntMaze_", "PointMaze_", "FrankaKitchen"),
    ),
}


@dataclass(frozen=True)
class EnvRecord:
    """One id: a native env class, or a factory of Python envs, with its defaults.

    ``needs`` is the optional package without which it cannot be made, ``short`` another name for ``make``.
    """

    id: str
    native: str | None = None
    simulator: str | None = None  # the Python half of a native family, "module:class", see pool/simulator.py
    factory: Callable[..., Any] | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    max_episode_steps: int | None = None
    reward_threshold: float | None = None
    needs: Package | None = None
    short: str | None = None


_records: dict[str, EnvRecord] = {}  # by id, and by short name
_drawers: dict[str, str] = {}  # by native class


def register(
    id: str,
    factory: Callable[..., Any] | None = None,
    *,
    native: str | None = None,
    config: Mapping[str, Any] | None = None,
    max_episode_steps: int | None = None,
    reward_threshold: float | None = None,
) -> None:
    """Gives an env an id for ``make``.

    Args:
        id: The name, such as ``"MyEnv-v0"``.
        factory: A class or function that returns a ``gymnasium.Env``.
        native: Instead of a factory, the name of an env class that is compiled into this build.
        config: Default arguments of the factory or the native class.
        max_episode_steps: The time limit; ``None`` for none.
        reward_threshold: The mean return at which the env counts as solved, if any.
    """
    if (factory is None) == (native is None):
        raise ConfigError(f"register({id!r}): expected either a factory or native=..., got both or neither")
    if factory is not None and not callable(factory):
        raise ConfigError(f"register({id!r}): expected a callable factory, got {factory!r}")
    if max_episode_steps is not None:
        max_episode_steps = whole_number(f"register({id!r}): max_episode_steps", max_episode_steps, 1)
    add(
        EnvRecord(
            id,
            native=native,
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


def register_drawer(native: str, place: str) -> None:
    """Says what draws the envs of a native class: a ``Drawer`` (``pool/drawing.py``), imported when it is needed.

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
            vector_entry_point="stepmill.gymnasium_entry:make_pool",
            reward_threshold=record.reward_threshold,
            max_episode_steps=record.max_episode_steps,
            kwargs={"task_id": record.id},
        )


def list_all_envs() -> list[str]:
    """The ids that stepmill registers; those of an optional package only if it is installed.

    ``make`` also accepts every id of Gymnasium's registry.
    """
    return sorted({one.id for one in _records.values() if one.needs is None or is_installed(one.needs)})


def find(id: str) -> EnvRecord:
    """The record of an id, from here or from Gymnasium."""
    record = _records.get(id)
    if record is not None:
        if record.needs is not None:
            check_installed(record.needs, id)
        return record
    import gymnasium

    try:
        spec = gymnasium_spec(id)
    except StepmillError:  # says which package is missing
        raise
    except (gymnasium.error.Error, ModuleNotFoundError, TypeError, ValueError) as error:
        if isinstance(error, ModuleNotFoundError) and not _is_named_in(id, error.name):
            raise  # the module exists, but one that it needs does not
        known = {*_records, *gymnasium.registry}
        near = difflib.get_close_matches(id, known, n=4, cutoff=0.5)
        hint = f", did you mean {' or '.join(near)}?" if near else "."
        raise UnknownEnvError(
            f"unknown env id {id!r}{hint} list_all_envs() lists stepmill's own; ids of Gymnasium work too, those of "
            f"another package as 'package:id'"
        ) from error
    return EnvRecord(
        id,
        factory=GymnasiumFactory(id),
        max_episode_steps=spec.max_episode_steps,
        reward_threshold=spec.reward_threshold,
    )


def _is_named_in(id: str, module: str | None) -> bool:
    """Whether ``module`` is the one before the colon of an id, or a package that contains it."""
    return module is not None and f"{id.rpartition(':')[0]}.".startswith(f"{module}.")


def gymnasium_spec(id: str) -> Any:
    """Gymnasium's record of an id; ``module:id`` imports the module first, as ``gymnasium.make`` does.

    The packages in ``_REGISTER_THEMSELVES`` are imported when one of their ids is asked for.
    """
    import gymnasium

    module, _, name = id.rpartition(":")
    if module:
        importlib.import_module(module)
    package = _package_of(name)
    if package is not None and name not in gymnasium.registry:
        require(*package, name)
    return gymnasium.spec(name)


def _package_of(name: str) -> Package | None:
    return next((one for one, beginnings in _REGISTER_THEMSELVES.items() if name.startswith(beginnings)), None)


@dataclass(frozen=True)
class GymnasiumFactory:
    """Makes envs of an id in Gymnasium's registry. The engine checks what they return."""

    id: str

    def __call__(self, **config: Any) -> Any:
        import gymnasium

        config.setdefault("disable_env_checker", True)
        if _package_of(self.id.rpartition(":")[2]) == ROBOTICS:
            with explained_misfit(ROBOTICS, "mujoco", self.id):
                return gymnasium.make(self.id, **config)
        return gymnasium.make(self.id, **config)

    def creator(self) -> Callable[..., Any]:
        """The env class, or the function that makes the env."""
        from gymnasium.envs.registration import load_env_creator

        entry_point: Any = gymnasium_spec(self.id).entry_point
        return load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point

    def known_keys(self) -> list[str] | None:
        """The keyword arguments of the env class, and those that ``gymnasium.make`` adds."""
        try:
            parameters = inspect.signature(self.creator()).parameters
        except (TypeError, ValueError):
            return None
        if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
            return None
        return list(dict.fromkeys([*parameters, "render_mode", "disable_env_checker"]))
