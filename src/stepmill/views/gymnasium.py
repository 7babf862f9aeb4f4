"""The gymnasium view: a ``gymnasium.vector.VectorEnv`` that also has ``send`` and ``recv``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gymnasium.vector import VectorEnv

from stepmill import _native
from stepmill.registry.description import player_rows
from stepmill.settings import Settings
from stepmill.spec import PoolSpec
from stepmill.views.direct import Call, direct
from stepmill.views.outputs import Converter
from stepmill.views.pool import Array, PoolView

__all__ = ["GymnasiumPool"]


# `closed` asks the engine; `np_random` and its seed are those of the envs, as in Gymnasium's own vector envs.
class GymnasiumPool(PoolView, VectorEnv[Any, Any, Array]):  # type: ignore[misc, override]
    """Results are ``(obs, reward, terminated, truncated, info)``; rewards are float64."""

    def __init__(
        self, engine: _native.Engine, spec: PoolSpec, settings: Settings, converter: Converter | None = None
    ) -> None:
        super().__init__(engine, spec, settings, converter)
        self.metadata = {**self._host.metadata, "autoreset_mode": self.autoreset_mode}
        self.render_mode = self._host.render_mode
        self.single_observation_space = spec.observation_space
        self.single_action_space = spec.action_space
        rows = settings.num_envs, self._host.num_players, self._host.player_kinds
        self.observation_space = player_rows(spec.observation_space, *rows)
        self.action_space = player_rows(spec.action_space, *rows)
        show = None if self._output is None else self._output.before_info
        engine.show_as(show, show)
        self._take_engine_calls(GymnasiumPool)  # the engine's results are this view's

    @direct
    def reset(
        self, env_id: Any = None, *, seed: Any = None, options: Mapping[str, Any] | None = None
    ) -> Call[tuple[Any, dict[str, Any]]]:
        """Resets all envs, or those of ``env_id`` in that order, and returns ``(obs, info)``.

        Args:
            env_id: Ids of the envs to reset; all by default.
            seed: Reseeds env i with ``seed + i``; or a list with one seed (or None) per env that is reset.
            options: Passed to the envs: a dict for all, or a list with one (or None) per env that is reset.
                ``options["reset_mask"]`` selects envs as in Gymnasium: the result then has a row for every env, and the
                others are not changed.

        Returns:
            The observations, a row per env, and the infos. The arrays are yours: nothing writes to them later.

        Raises:
            InputError: Invalid ids (``EnvIdError``) or options (``ResetOptionError``). Nothing was reset.
            ConfigError: Invalid seeds. Nothing was reset.
            EnvError: An env failed, under ``on_error="raise"``. ``error.batch`` has the whole result.

        Example:
            >>> pool = stepmill.make("CartPole-v1", num_envs=4)
            >>> obs, info = pool.reset(seed=7)  # env i is seeded with 7 + i
            >>> obs, info = pool.reset(env_id=[3, 1])
            >>> obs.shape, info["env_id"]
            ((2, 4), array([3, 1], dtype=int32))
        """
        return self._engine.reset, self._reset_arguments(env_id, seed, options)

    @direct
    def step(self, actions: Any, env_id: Any = None) -> Call[tuple[Any, Array, Array, Array, dict[str, Any]]]:
        """Sends actions and waits for the results: ``send`` then ``recv``.

        Args:
            actions: One action per env: an array with a row for each, a list, a tensor, or a dict
                ``{"action": ..., "env_id": ...}``.
            env_id: The envs that the actions are for: by default all envs, in async mode those of the last ``recv``.

        Returns:
            ``(obs, reward, terminated, truncated, info)``, a row per env of ``info["env_id"]``: in sync mode the envs
            that were sent to, in async mode the ``batch_size`` that are done first. Rewards are float64, the flags are
            bool. The arrays are yours: nothing writes to them later.

        Raises:
            InputError: The actions do not fit the action space (``ActionError``), or the ids are invalid
                (``EnvIdError``). Nothing was sent.
            UsageError: One of the envs is in flight (``InFlightError``), its episode is over and autoreset is disabled
                (``NeedsResetError``), or the pool is closed (``ClosedError``). Nothing was sent.
            EnvError: An env failed, under ``on_error="raise"``. ``error.batch`` has the whole result.

        Example:
            >>> pool = stepmill.make("CartPole-v1", num_envs=4)
            >>> obs, info = pool.reset()
            >>> obs, reward, terminated, truncated, info = pool.step(np.ones(4, int))
            >>> obs.shape, reward
            ((4, 4), array([1., 1., 1., 1.]))
            >>> obs, reward, *_ = pool.step([1, 0], env_id=[3, 0])  # some of them
        """
        return self._engine.step, (actions, env_id)

    @direct
    def recv(
        self, timeout: float | None = None, at_least: int | None = None
    ) -> Call[tuple[Any, Array, Array, Array, dict[str, Any]]]:
        """Waits for ``min(batch_size, in flight)`` envs and returns their results.

        Args:
            timeout: Seconds after which to raise ``RecvTimeoutError``; everything stays in flight. None: no limit.
            at_least: For async pools: when the time is over, return what is ready, as soon as there are this many
                rows. With 0 there may be none.

        Returns:
            ``(obs, reward, terminated, truncated, info)``, a row per env of ``info["env_id"]``. In sync mode the rows
            are in the order of the ids, in async mode in the order in which the envs were done. The row of a reset has
            reward 0.

        Raises:
            RecvTimeoutError: There was no complete batch in time.
            NothingInFlightError: There is nothing to wait for: ``send`` actions first.
            EnvError: An env failed, under ``on_error="raise"``. ``error.batch`` has the whole result.

        Example:
            >>> pool = stepmill.make("CartPole-v1", num_envs=4, batch_size=2)
            >>> pool.async_reset()
            >>> for _ in range(10):
            ...     obs, reward, terminated, truncated, info = pool.recv()
            ...     pool.send(np.ones(2, int), info["env_id"])
        """
        return self._engine.recv, (timeout, at_least)

    def close(self, **kwargs: Any) -> None:
        """Ends the pool's workers and frees its memory, except for the batches you still hold."""
        PoolView.close(self)

    def __del__(self) -> None:
        """Does nothing, unlike that of ``VectorEnv``: a kept ``pool.step`` still works, and the engine ends itself."""
