"""The gymnasium view: a ``gymnasium.vector.VectorEnv`` that also has ``send`` and ``recv``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gymnasium.vector import VectorEnv

from stepmill import _native
from stepmill.description import player_rows
from stepmill.pool.direct import Call, direct
from stepmill.pool.settings import Settings
from stepmill.spec import PoolSpec
from stepmill.views.base import Array, PoolView

__all__ = ["GymnasiumPool"]


# `closed` asks the engine; `np_random` and its seed are those of the envs, as in Gymnasium's own vector envs.
class GymnasiumPool(PoolView, VectorEnv[Any, Any, Array]):  # type: ignore[misc, override]
    """Results are ``(obs, reward, terminated, truncated, info)``; rewards are float64."""

    def __init__(self, engine: _native.Engine, spec: PoolSpec, settings: Settings) -> None:
        super().__init__(engine, spec, settings)
        self.metadata = {**self._host.metadata, "autoreset_mode": self.autoreset_mode}
        self.render_mode = self._host.render_mode
        self.single_observation_space = spec.observation_space
        self.single_action_space = spec.action_space
        rows = settings.num_envs, self._host.num_players, self._host.player_kinds
        self.observation_space = player_rows(spec.observation_space, *rows)
        self.action_space = player_rows(spec.action_space, *rows)
        if self._output is not None:
            engine.show_as(self._output.before_info, self._output.before_info)
        self._take_engine_calls(GymnasiumPool)  # the engine's results are this view's

    @direct
    def reset(
        self, env_id: Any = None, *, seed: Any = None, options: Mapping[str, Any] | None = None
    ) -> Call[tuple[Any, dict[str, Any]]]:
        """Resets all envs, or those of ``env_id`` in that order, and returns ``(obs, info)``.

        Args:
            env_id: Ids of the envs to reset; all by default.
            seed: Reseeds env i with ``seed + i``; or a list with one seed (or None) per env that is reset.
            options: Passed to the envs. ``options["reset_mask"]`` selects envs as in Gymnasium: the result then has a
                row for every env, and the others are not changed.
        """
        return self._engine.reset, self._reset_arguments(env_id, seed, options)

    @direct
    def step(self, actions: Any, env_id: Any = None) -> Call[tuple[Any, Array, Array, Array, dict[str, Any]]]:
        """``send`` then ``recv``."""
        return self._engine.step, (actions, env_id)

    @direct
    def recv(self, timeout: float | None = None) -> Call[tuple[Any, Array, Array, Array, dict[str, Any]]]:
        """Waits for ``min(batch_size, in flight)`` envs and returns their results.

        Args:
            timeout: Seconds after which to raise ``RecvTimeoutError``; everything stays in flight.
        """
        return self._engine.recv, (timeout,)

    def close(self, **kwargs: Any) -> None:
        """Ends the pool's workers and frees its memory, except for the batches you still hold."""
        PoolView.close(self)

    def __del__(self) -> None:
        """Does nothing, unlike that of ``VectorEnv``: a kept ``pool.step`` still works, and the engine ends itself."""
