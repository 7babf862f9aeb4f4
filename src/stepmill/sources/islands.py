"""What an island is told about an env: the id or the factory, looked up there and not here.

A package that is installed only there may know the id, and its env may take other arguments there.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from importlib.machinery import PathFinder
from typing import Any

import gymnasium

from stepmill.registry import records as registry
from stepmill.system.interpreters import own_folders


@dataclass(frozen=True)
class IslandTask:
    """The task of one env. ``record`` and ``spec`` come along if the user has registered the id, with their code."""

    task: Any
    record: registry.EnvRecord | None = None
    spec: dict[str, Any] | None = None  # the arguments of gymnasium.register

    @classmethod
    def of(cls, task: Any) -> IslandTask:
        if not isinstance(task, str):
            return cls(task)
        record = registry.registered(task)
        if record is not None and record.factory is not None and not _is_of_stepmill(record.factory):
            return cls(task, record)
        return cls(task, None, _own_spec(task.rpartition(":")[2]))

    def look_up(self) -> Any:
        """On the island: the task, once its id is known. What the island knows itself has precedence."""
        if self.record is not None and registry.registered(self.record.id) is None:
            registry.add(self.record)
        if self.spec is not None and self.spec["id"] not in gymnasium.registry:
            gymnasium.register(**self.spec)
        return self.task

    def __call__(self, **config: Any) -> Any:
        """Never called: a worker builds what the island has found."""
        raise NotImplementedError(f"{self.task!r} has not been looked up on its island")


def _is_of_stepmill(factory: Any) -> bool:
    owner = factory if hasattr(factory, "__module__") else type(factory)
    return str(owner.__module__).partition(".")[0] == "stepmill"


_REGISTERED = (
    *("id", "reward_threshold", "nondeterministic", "max_episode_steps", "order_enforce"),
    *("disable_env_checker", "kwargs"),
)


def _own_spec(id: str) -> dict[str, Any] | None:
    """Gymnasium's record of an id whose code is the user's own."""
    spec = gymnasium.registry.get(id)
    entry_point: Any = None if spec is None else spec.entry_point
    if isinstance(entry_point, str):
        module, _, name = entry_point.partition(":")
        if module == "__main__":
            entry_point = getattr(sys.modules["__main__"], name, None)
        elif PathFinder.find_spec(module.partition(".")[0], [one for one in own_folders() if one is not None]) is None:
            return None
    if spec is None or entry_point is None:
        return None
    return {**{name: getattr(spec, name) for name in _REGISTERED}, "entry_point": entry_point}
