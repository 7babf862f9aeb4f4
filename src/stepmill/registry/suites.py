"""Suites of JAX worlds: packages whose envs are functions of JAX. Their ids begin with the package's name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stepmill.errors import ConfigError, StepmillError, summary
from stepmill.system.optional import Package, check_installed, imported


@dataclass(frozen=True)
class Suite:
    """A suite, which is imported when one of its envs is asked for.

    Args:
        package: It.
        world: ``"module:function"``: makes a ``stepmill.sources.jax_world.JaxWorld`` of a name or an env object, and a
            configuration.
        ids: ``"module:function"`` that lists the names of its envs.
        example: The id of one of them, as ``make`` takes it.
        at_least: How many there are.
    """

    package: Package
    world: str
    ids: str
    example: str
    at_least: int

    @property
    def prefix(self) -> str:
        """What its ids begin with."""
        return f"{self.package.module}:"

    def ids_for_make(self) -> list[str]:
        return [f"{self.prefix}{name}" for name in imported(self.ids)()]

    def make_world(self, task: Any, config: Mapping[str, Any]) -> Any:
        """The world of an id, or of an env object of this suite."""
        check_installed(self.package, task if isinstance(task, str) else self.example)
        make = imported(self.world)
        try:
            return make(task.removeprefix(self.prefix) if isinstance(task, str) else task, config)
        except StepmillError:
            raise
        except Exception as error:
            if not config:
                raise
            # Suites check no values: what is wrong with one shows when their functions are traced.
            name = task if isinstance(task, str) else type(task).__name__
            raise ConfigError(f"{name} cannot be made with {dict(config)}: {summary(error)}") from error


_suites: list[Suite] = []


def add_suite(suite: Suite) -> None:
    """Makes a suite known. Nothing is imported."""
    _suites.append(suite)


def suites() -> tuple[Suite, ...]:
    return tuple(_suites)


def suite_of(task: Any) -> Suite | None:
    """The suite of an id, or of an env object: one whose class, or a base of it, is defined in the package."""
    if isinstance(task, str):
        return next((one for one in _suites if task.startswith(one.prefix)), None)
    if isinstance(task, type):
        return None
    packages = {base.__module__.partition(".")[0] for base in type(task).__mro__}
    return next((one for one in _suites if one.package.module in packages), None)
