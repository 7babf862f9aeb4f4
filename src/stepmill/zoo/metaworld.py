"""Meta-World: its own envs, under its own ids, with seeds that decide goals and episodes.

Meta-World takes a seed only when an env is built, and ``reset(seed=...)`` leaves the choice of the goal to chance. Here
a reset with a seed does what a new env with that seed would do.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from stepmill.errors import ConfigError, UnsupportedError
from stepmill.registry.factories import REQUIRED, EnvFactory, default_values
from stepmill.registry.records import Family, add_family
from stepmill.system.optional import METAWORLD, explained_misfit
from stepmill.values.arguments import one_of

_PREFIX = "Meta-World/"
_BENCHMARKS = ("MT10", "MT25", "MT50")  # their tasks are those of the envs of a pool, one after the other
_SINGLE = ("MT1", "goal_hidden", "goal_observable")  # the task is the argument ``env_name``
_GOAL = slice(36, 39)  # where the goal is in an observation


def ids() -> list[str]:
    """The ids that a pool can run."""
    return [_PREFIX + name for name in (*_SINGLE, *_BENCHMARKS)]


@dataclass(frozen=True)
class MetaWorldFactory(EnvFactory):
    """Makes envs of one id."""

    id: str

    def __post_init__(self) -> None:
        if self.id not in ids():
            raise UnsupportedError(
                f"{self.id}: Meta-World has it only as a vector env of its own. Pools run {', '.join(ids())}"
            )

    def __call__(self, env_id: int = 0, **config: Any) -> Any:
        with explained_misfit(METAWORLD, "mujoco", self.id):
            return SeededMetaWorld(self._builder(env_id, config))

    def _builder(self, env_id: int, config: dict[str, Any]) -> Callable[[int], Any]:
        """What makes the env for a seed, as Meta-World's own entry points do."""
        import metaworld

        name = self.id.removeprefix(_PREFIX)
        if name in _BENCHMARKS:
            tasks = _tasks_of(name)
            index = env_id % len(tasks)
            return functools.partial(_make_mt, tasks[index], {"env_id": index, "num_tasks": len(tasks), **config})
        config = dict(config)
        task = config.pop("env_name", None)
        one_of(f"{self.id}: env_name", task, tuple(metaworld.ALL_V3_ENVIRONMENTS))
        if name == "MT1":
            return functools.partial(_make_mt, task, config)
        if config:
            raise ConfigError(f"{self.id}: expected no other keys than env_name, got {', '.join(config)}")
        return functools.partial(_make_goal_env, name, task)

    def known_keys(self) -> list[str] | None:
        """The keys that Meta-World passes on to each env, as far as it says."""
        import metaworld

        return list(self.defaults()) if hasattr(metaworld, "_init_each_env") else None

    def defaults(self) -> dict[str, Any]:
        import metaworld

        own = {} if self.id.removeprefix(_PREFIX) in _BENCHMARKS else {"env_name": REQUIRED}
        inner = getattr(metaworld, "_init_each_env", None)
        passed_on = {} if inner is None else default_values(inner)
        given = ("env_cls", "tasks", "seed", "env_id", "num_tasks")
        return {**own, **{name: value for name, value in passed_on.items() if name not in given}}


def _tasks_of(benchmark: str) -> list[str]:
    from metaworld import env_dict

    return list(getattr(env_dict, f"{benchmark}_V3"))


def _make_mt(task: str, config: dict[str, Any], seed: int) -> Any:
    import metaworld

    return metaworld.make_mt_envs(task, seed=seed, **config)


def _make_goal_env(kind: str, task: str, seed: int) -> Any:
    return gymnasium.make(f"{_PREFIX}{kind}", env_name=task, seed=seed, disable_env_checker=True)


class SeededMetaWorld(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An env that is built anew for each reset with a seed."""

    def __init__(self, build: Callable[[int], Any]) -> None:
        super().__init__(build(0))
        self._build = build
        assert isinstance(self.env.observation_space, spaces.Box)
        # Meta-World says that the goal is always 0, which holds only where it is hidden. Elsewhere its bounds would
        # differ from task to task, and the envs of a pool share their spaces.
        low, high = self.env.observation_space.low.copy(), self.env.observation_space.high.copy()
        low[_GOAL], high[_GOAL] = -np.inf, np.inf
        self.observation_space = spaces.Box(low, high, dtype=np.float64)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """A seed draws the goals anew, and everything else."""
        if seed is not None:
            self.env.close()
            self.env = self._build(seed)
        return self.env.reset(options=options)


add_family(
    Family(
        METAWORLD,
        (rf"{_PREFIX}.+",),
        factory="stepmill.zoo.metaworld:MetaWorldFactory",
        ids="stepmill.zoo.metaworld:ids",
        example=f"{_PREFIX}MT1",
        at_least=6,
    )
)
