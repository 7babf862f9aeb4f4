"""Builds the engine over native envs."""

from __future__ import annotations

from stepmill import _native
from stepmill.pool.faults import FaultPolicy
from stepmill.pool.settings import ACTION_BOUNDS, AUTORESET_MODES, Settings, refuse_same_step
from stepmill.pool.source import NativeSource

__all__ = ["native_pool"]


def native_pool(source: NativeSource, settings: Settings) -> _native.Engine:
    """The pool that the views talk to; on ``inline``, one without threads."""
    refuse_same_step(source.max_num_players, settings)
    return _native.Engine.make_native(
        env_class=source.env_class,
        configs=source.configs,
        spec=None,
        observation_tree=source.observation_tree,
        action_tree=source.action_tree,
        seeds=settings.seed,
        num_envs=settings.num_envs,
        batch_size=settings.batch_size,
        as_ready=settings.as_ready,
        num_threads=0 if settings.backend == "inline" else settings.num_threads,
        affinity_offset=settings.thread_affinity_offset,
        autoreset=AUTORESET_MODES.index(settings.autoreset),
        max_episode_steps=source.max_episode_steps or 0,
        reward_is_float32=settings.reward_dtype == "float32",
        keep_last_observation=settings.on_error == "restart",
        bounds=ACTION_BOUNDS.index(settings.action_bounds),
        on_rows=FaultPolicy(settings.on_error, settings.max_restarts).settle_native,
    )
