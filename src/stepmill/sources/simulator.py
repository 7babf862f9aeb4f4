"""The Python half of a native family whose envs call a simulator of another package.

Its structs are made in Python by that package, where the envs will live: in the caller for threads, in the workers for
processes. C++ gets addresses and steps the very library that the user has installed. ``zoo/mujoco`` is such a family.

::

    SimulatorFamily("Ant-v5")    one per env class; finds out whether the package can be used
      .prepare(config)           a SimulatorKind: one per configuration; what all of its envs share (a compiled model)
        .make()                  a Simulator: one per env; what belongs to it alone (its state)
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from stepmill.errors import ConfigError, StateError, summary
from stepmill.sources.models.env_model import EnvModel, ModelConfig
from stepmill.sources.models.fields import Field, ModelChange

# What C++ reads by name (``Config`` in cpp/core/env/spec.h).
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

    def model_changes(self) -> bytes:
        """What was changed in the model that the env uses and, after a line break, in that of its next reset.

        The second line is missing if that is the same one, and both if nothing was ever changed.
        """
        ...

    def put_model(self, changes: bytes) -> None:
        """Makes the next model from one such line. Raises ``StateError`` if it cannot."""
        ...

    def close(self) -> None: ...


class SimulatorKind(Protocol):
    """What the simulators of one configuration share."""

    sizes: Values  # what the description of the env depends on
    why_unsaved: str | None  # why its envs cannot be saved

    @property
    def fingerprint(self) -> str:
        """What its envs have in common: a state is only for an env of which the same is true."""
        ...

    def describe_model(self, names: Sequence[str]) -> list[Field]:
        """See ``EnvModel``."""
        ...

    def read_change(self, line: bytes) -> ModelChange | None:
        """What one line of ``model_changes`` says."""
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
    models: list[ModelConfig | None]  # what changes in the model of each env before its first reset
    # By the id of the configuration. `_promised`, in a worker: the sizes that the caller laid its batches out for.
    _kinds: dict[int, SimulatorKind] = field(default_factory=dict, compare=False)
    _promised: dict[int, Values] = field(default_factory=dict, compare=False)

    def part(self, first: int, last: int) -> SimulatorSource:
        """The simulators of some of the envs, neighbours, counted from 0."""
        return replace(self, configs=self.configs[first:last], models=self.models[first:last])

    def kind(self, env_id: int) -> SimulatorKind:
        """What the env shares with others of its configuration, prepared once."""
        config = self.configs[env_id]
        kind = self._kinds.get(id(config))
        if kind is None:
            kind = self.family.prepare(config)
            _check_sizes(kind.sizes, self._promised.get(id(config), kind.sizes))
            self._kinds[id(config)] = kind
        return kind

    def check_model(self, env_id: int) -> None:
        """Raises ``ConfigError`` if what changes in the model of an env before its first reset does not fit it."""
        given = self.models[env_id]
        if given is not None:
            given.change_for(self.kind(env_id), env_id)

    def build(self, env_id: int, worker_id: int = 0) -> Simulator:
        """The simulator of one env; called as ``EnvBuilder.build`` is."""
        simulator = self.kind(env_id).make()
        given = self.models[env_id]
        if given is not None:
            given.put_into(simulator, env_id)
        return simulator

    def change_in(self, env_id: int, state: bytes) -> ModelChange | None:
        """What was changed in the model that a saved env uses from its next reset on.

        A state ends with the lines of ``Simulator.model_changes``, and the size of these.
        """
        size = int.from_bytes(state[-8:], sys.byteorder)
        try:
            return self.kind(env_id).read_change(state[len(state) - 8 - size : -8].rpartition(b"\n")[2])
        except Exception as error:
            raise StateError(f"restore: the state for env {env_id} cannot be read: {summary(error)}") from error

    def __getstate__(self) -> dict[str, Any]:
        """Without what is prepared: a worker prepares its own, of the same sizes."""
        distinct = {id(config): config for config in self.configs}
        sizes = [(config, self._kinds[one].sizes) for one, config in distinct.items() if one in self._kinds]
        return {"family": self.family, "configs": self.configs, "models": self.models, "sizes": sizes}

    def __setstate__(self, state: dict[str, Any]) -> None:
        promised = {id(config): sizes for config, sizes in state.pop("sizes")}
        for name, value in {**state, "_kinds": {}, "_promised": promised}.items():
            object.__setattr__(self, name, value)


def _check_sizes(sizes: Values, promised: Values) -> None:
    """Raises ``ConfigError`` if the rows of an env would not be those that the batches have room for."""
    for name, value in sizes.items():
        if value != promised[name]:
            raise ConfigError(
                f"the simulator's model has changed since the pool was made: {name} is {value!r:.100} now, and was "
                f"{promised[name]!r:.100}. Make a new pool, and leave the file alone while a pool uses it"
            )
