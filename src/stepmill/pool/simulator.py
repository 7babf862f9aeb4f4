"""The Python half of a native family whose envs call a simulator of another package.

Its structs are made in Python by that package, where the envs will live: in the caller for threads, in the workers for
processes. C++ gets addresses and steps the very library that the user has installed. ``zoo/mujoco`` is such a family.

::

    SimulatorFamily("Ant-v5")    one per env class; finds out whether the package can be used
      .prepare(config)           a SimulatorKind: one per configuration; what all of its envs share (a compiled model)
        .make()                  a Simulator: one per env; what belongs to it alone (its state)
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from stepmill.pool.models.config import GivenModel
from stepmill.pool.models.env_model import EnvModel
from stepmill.pool.models.fields import Field

__all__ = ["Simulator", "SimulatorFamily", "SimulatorKind", "SimulatorSource", "UnsuitableSimulator", "load_family"]

# What C++ reads by name (``Config`` in cpp/core/spec.h).
Values = Mapping[str, bool | int | float | str | Sequence[float]]


class UnsuitableSimulator(Exception):
    """The installed package cannot be called from C++, and why. Then the Python env runs instead."""


class Simulator(EnvModel, Protocol):
    """What one env calls. The pool keeps it until nothing steps the env any more.

    After ``set_model``, the env has to be connected again: it uses the new model from its next reset on.
    """

    def values(self) -> Values:
        """The sizes of its kind, and the addresses that the env uses from its next reset on."""
        ...

    def close(self) -> None: ...


class SimulatorKind(Protocol):
    """What the simulators of one configuration share."""

    sizes: Values  # what the description of the env depends on

    def describe_model(self, names: Sequence[str]) -> list[Field]:
        """As ``EnvModel`` has it."""
        ...

    def make(self) -> Simulator: ...


class SimulatorFamily(Protocol):
    """Makes simulators for one env class. Its configuration keys are those that only Python reads."""

    keys: Mapping[str, Any]  # with their defaults

    def prepare(self, config: Mapping[str, Any]) -> SimulatorKind:
        """Raises ``ConfigError`` if the configuration is invalid."""
        ...


@dataclass(frozen=True)
class SimulatorSource:
    """Simulators for the envs of a pool, with one configuration per env; equal ones share one dict."""

    family: SimulatorFamily
    configs: list[dict[str, Any]]
    models: list[GivenModel | None]  # what changes in the model of each env before its first reset
    _kinds: dict[int, SimulatorKind] = field(default_factory=dict, compare=False)  # by the id of the configuration

    def kind(self, env_id: int) -> SimulatorKind:
        """What the env shares with others of its configuration, prepared once."""
        config = self.configs[env_id]
        kind = self._kinds.get(id(config))
        if kind is None:
            kind = self._kinds[id(config)] = self.family.prepare(config)
        return kind

    def check_model(self, env_id: int) -> None:
        """Raises ``ConfigError`` if what changes in the model of an env before its first reset does not fit it."""
        given = self.models[env_id]
        if given is not None:
            given.change_for(self.kind(env_id), env_id)

    def make(self, env_id: int) -> Simulator:
        simulator = self.kind(env_id).make()
        given = self.models[env_id]
        if given is not None:
            given.put_into(simulator, env_id)
        return simulator

    def __getstate__(self) -> dict[str, Any]:
        """Without what is prepared: a worker prepares its own."""
        return {"family": self.family, "configs": self.configs, "models": self.models}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in {**state, "_kinds": {}}.items():
            object.__setattr__(self, name, value)


def load_family(path: str, env_class: str) -> SimulatorFamily:
    """The family named ``"module:class"``. Raises ``UnsuitableSimulator``, or an error about a missing package."""
    module, _, name = path.partition(":")
    family: SimulatorFamily = getattr(importlib.import_module(module), name)(env_class)
    return family
