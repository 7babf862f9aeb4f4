"""``ID|FILE|MODULE:ENV``: which env a command is about."""

from __future__ import annotations

import ast
import contextlib
import difflib
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import cloudpickle

import stepmill
from stepmill.errors import UnknownConfigError, UnknownEnvError, summary
from stepmill.registry.factories import accepted_keys
from stepmill.registry.records import find, registered
from stepmill.registry.suites import suite_of
from stepmill.sources.files.task_file import is_file_task
from stepmill.tools.cli.program import place_of
from stepmill.views.gymnasium import GymnasiumPool


def find_target(text: str, *, elsewhere: bool = False) -> Any:
    """What ``make`` takes: ids and ``FILE.h`` as they are, ``MODULE:ENV`` or ``FILE.py:ENV`` as what has that name.

    ``MODULE:ID`` is left to Gymnasium, which imports the module: so it is if the module has no such attribute. With the
    name of a suite of JAX worlds it is an id of that.
    ``elsewhere``: whether the env is made in another environment, which may have other modules.
    """
    module, colon, name = text.rpartition(":")
    if is_file_task(text) or suite_of(text) is not None:
        return text
    if not colon:
        if text.endswith(".py"):
            raise click.UsageError(f"{text}: expected FILE.py:ENV, got only a file")
        return text
    is_file = module.endswith(".py")
    _look_first_in(os.getcwd())
    found = load_module(module) if is_file or is_module(module) else None
    if found is not None and hasattr(found, name):
        return getattr(found, name)
    if elsewhere or (not is_file and _is_id(text)):
        return text
    if found is None:
        raise click.UsageError(
            f"{text}: there is no module {module!r} here, and no env of that id. Expected ID, FILE.h, MODULE:ENV or "
            "FILE.py:ENV"
        )
    raise click.UsageError(_no_attribute(module, name, found))


def attribute_of(place: str, what: str) -> Any:
    """The function or class of ``MODULE:NAME`` or ``FILE.py:NAME``."""
    module, colon, name = place.rpartition(":")
    if not colon or not name:
        raise click.UsageError(f"{place}: expected {what} as FILE.py:NAME or MODULE:NAME")
    found = load_module(module)
    if not hasattr(found, name):
        raise click.UsageError(_no_attribute(module, name, found))
    return getattr(found, name)


def load_module(place: str) -> ModuleType:
    """Imports a module, or a file of Python, with the working directory first, as ``python -m`` does."""
    _look_first_in(os.getcwd())
    try:
        if not place.endswith(".py"):
            return importlib.import_module(place)
        return _load_file(Path(place))
    except (KeyboardInterrupt, click.UsageError):
        raise
    except BaseException as error:  # whatever the user's module raises, SystemExit as well
        raise click.UsageError(f"{place} cannot be imported: {summary(error)}{place_of(error)}") from error


def config_of(settings: Iterable[str]) -> dict[str, Any]:
    """``--set key=value``: the values of Python literals, everything else is a text."""
    config = {}
    for one in settings:
        key, equals, value = one.partition("=")
        if not equals or not key.isidentifier():
            raise click.UsageError(f"--set: expected NAME=VALUE, got {one!r}")
        config[key] = value
        with contextlib.suppress(ValueError, SyntaxError):
            config[key] = ast.literal_eval(value)
    return config


def fitted(target: Any, config: dict[str, Any]) -> dict[str, Any]:
    """The configuration as ``make`` takes it: envs with a single argument ``cfg`` are given all of it as that."""
    known = registered(target) if isinstance(target, str) else None
    factory = target if known is None else known.factory
    if not config or "cfg" in config or not callable(factory):
        return config
    own = [name for name in accepted_keys(factory) or () if name not in ("env_id", "worker_id")]
    return {"cfg": config} if own == ["cfg"] else config


def _load_file(path: Path) -> ModuleType:
    """Runs the file as a module. Workers get what it defines by value: they could not import it by its name."""
    if not path.is_file():
        raise click.UsageError(f"{path}: there is no such file")
    _look_first_in(str(path.resolve().parent))  # for what it imports from beside it
    name = path.stem if path.stem not in sys.modules else f"{path.stem}_{abs(hash(path.resolve())):x}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise click.UsageError(f"{path}: expected a file of Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    cloudpickle.register_pickle_by_value(module)
    return module


def _look_first_in(folder: str) -> None:
    if folder not in sys.path:
        sys.path.insert(0, folder)


def _is_id(text: str) -> bool:
    try:
        find(text)
    except UnknownEnvError:
        return False
    return True


def is_module(name: str) -> bool:
    """Whether a module of that name can be imported."""
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _no_attribute(module: str, name: str, found: ModuleType) -> str:
    close = difflib.get_close_matches(name, [one for one in vars(found) if not one.startswith("_")], n=1)
    return f"{module} has no {name}" + (f", did you mean {close[0]}?" if close else "")


def make_drawn(target: Any, arguments: dict[str, Any]) -> GymnasiumPool:
    """``make`` with ``render_mode="rgb_array"``, unless another mode is given or the env does not know that option.

    An env of ours, a ``BaseEnv``, does not: whether it draws is shown by its ``render``.
    """
    pool: GymnasiumPool
    try:
        pool = stepmill.make(target, **{"render_mode": "rgb_array", **arguments})
    except UnknownConfigError:
        if "render_mode" in arguments:
            raise
        pool = stepmill.make(target, **arguments)  # which says so if another option is unknown
    return pool
