"""JAX worlds as the envs of a pool: one world, as many times as there are envs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gymnasium import spaces

from stepmill.errors import ConfigError, UnsupportedError
from stepmill.registry.factories import check_keys
from stepmill.registry.suites import suite_of
from stepmill.settings import ARGUMENTS
from stepmill.sources.configurations import once
from stepmill.sources.jax_world import JaxWorld


@dataclass(frozen=True)
class WorldSource:
    """A world of a suite (``sources/jax_world.py``), and how the pool is configured."""

    world: JaxWorld
    num_envs: int
    max_episode_steps: int | None
    render_mode: str | None

    @property
    def id(self) -> str:
        return self.world.id

    @property
    def observation_space(self) -> spaces.Space[Any]:
        return self.world.observation_space

    @property
    def action_space(self) -> spaces.Space[Any]:
        return self.world.action_space

    @property
    def reward_threshold(self) -> float | None:
        return self.world.reward_threshold

    @property
    def config(self) -> dict[str, Any]:
        drawn = {} if self.render_mode is None else {"render_mode": self.render_mode}
        return {**self.world.config, **drawn}

    @property
    def env_configs(self) -> list[dict[str, Any]]:
        return [self.config] * self.num_envs


def find_world(
    tasks: Sequence[Any], configs: Sequence[Mapping[str, Any]], backend: str, max_episode_steps: int | None
) -> WorldSource | None:
    """The world that the tasks name; None if they are other envs."""
    found = {id(task): task if isinstance(task, JaxWorld) else suite_of(task) for task in once(tasks)}
    if not any(found.values()):
        if backend == "jax":
            raise UnsupportedError(
                f"backend='jax' runs JAX worlds, such as gymnax:CartPole-v1, and {_name(tasks[0])} is not one. Leave "
                "this argument out"
            )
        return None
    suite = found[id(tasks[0])]
    if suite is None or any(task is not tasks[0] and task != tasks[0] for task in once(tasks)):
        raise UnsupportedError(
            "task_id: the envs of a JAX world are one program: expected the same task for all of them"
        )
    if any(config != configs[0] for config in once(configs)):
        raise UnsupportedError(
            f"env_config: the envs of {_name(tasks[0])} are one program with one configuration: pass it to make"
        )
    if backend not in ("auto", "jax"):
        raise UnsupportedError(
            f"backend={backend!r}: {_name(tasks[0])} is a JAX world, whose envs live in arrays: leave this argument "
            "out. device='cuda' puts them on a GPU"
        )
    config = dict(configs[0])
    render_mode = config.pop("render_mode", None)
    if isinstance(suite, JaxWorld):
        world = suite
        check_keys(world.id, config, [], ARGUMENTS)
    else:
        world = suite.make_world(tasks[0], config)
    if render_mode is not None and (world.draw is None or render_mode != "rgb_array"):
        known = "None" if world.draw is None else "None or 'rgb_array'"
        raise ConfigError(f"render_mode: expected {known} for {world.id}, got {render_mode!r}")
    limit = world.max_episode_steps if max_episode_steps is None else max_episode_steps
    if limit is not None and limit < 1:
        raise ConfigError(f"{world.id}: its time limit: expected at least 1 step, got {limit}")
    return WorldSource(world, len(tasks), limit, render_mode)


def _name(task: Any) -> str:
    return task if isinstance(task, str) else getattr(task, "id", type(task).__name__)
