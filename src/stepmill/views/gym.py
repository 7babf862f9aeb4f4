"""The gym view: four results per step, with one ``done``, as users of gym and EnvPool know it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any, Generic

import numpy as np
from gymnasium import spaces

from stepmill import _native
from stepmill.errors import UnsupportedError
from stepmill.settings import Settings
from stepmill.spec import PoolSpec
from stepmill.views.direct import Call, direct
from stepmill.views.outputs import Converter
from stepmill.views.pool import Array, PoolView

__all__ = ["GymPool"]


class GymPool(PoolView, Generic[Array]):
    """Results are ``(obs, reward, done, info)``; rewards are float32.

    ``info["TimeLimit.truncated"]`` marks episodes that did not really end: a limit cut them off.
    """

    def __init__(
        self, engine: _native.Engine, spec: PoolSpec, settings: Settings, converter: Converter | None = None
    ) -> None:
        super().__init__(engine, spec, settings, converter)
        if (output := self._output) is None:
            engine.show_as(_translate, operator.itemgetter(0), players=True)
        else:
            engine.show_as(
                lambda result: output.before_info(_translate(result)), lambda result: output(result[0])[0], players=True
            )
        self._take_engine_calls(GymPool)

    def _show_in_programs(self) -> tuple[Callable[[Any], Any], bool]:
        return _translate, True

    @property
    def observation_space(self) -> spaces.Space[Any]:
        """The space of a single env."""
        return self._pool_spec.observation_space

    @property
    def action_space(self) -> spaces.Space[Any]:
        """The space of a single env."""
        return self._pool_spec.action_space

    @direct
    def reset(self, env_id: Any = None, *, seed: Any = None, options: Mapping[str, Any] | None = None) -> Call[Any]:
        """Resets all envs, or those of ``env_id`` in that order, and returns their observations.

        Args:
            env_id: Ids of the envs to reset; all by default. In async mode, where the ids of the rows would be lost,
                use ``async_reset`` and ``recv`` to reset all.
            seed: Reseeds env i with ``seed + i``; or a list with one seed (or None) per env that is reset.
            options: Passed to the envs: a dict for all, or a list with one (or None) per env that is reset.
                ``options["reset_mask"]`` selects envs: the result then has a row for every env.

        Returns:
            The observations, a row per env. The arrays are yours: nothing writes to them later.

        Raises:
            InputError: Invalid ids (``EnvIdError``) or options (``ResetOptionError``). Nothing was reset.
            ConfigError: Invalid seeds. Nothing was reset.
            EnvError: An env failed, under ``on_error="raise"``. ``error.batch`` has the whole result.

        Example:
            >>> pool = stepmill.make_gym("CartPole-v1", num_envs=4)
            >>> obs = pool.reset(seed=7)  # env i is seeded with 7 + i
            >>> pool.reset(env_id=[3, 1]).shape
            (2, 4)
        """
        if env_id is None and self.is_async:
            self._engine.check_usable()
            raise UnsupportedError(
                "reset() returns observations only, and with batch_size < num_envs their ids would be lost: "
                "use async_reset() and recv()"
            )
        return self._engine.reset, self._reset_arguments(env_id, seed, options)

    @direct
    def step(self, action: Any, env_id: Any = None) -> Call[tuple[Any, Array, Array, dict[str, Any]]]:
        """Sends actions and waits for the results: ``send`` then ``recv``.

        Args:
            action: One action per env: an array with a row for each, a list, a tensor, or a dict
                ``{"action": ..., "env_id": ...}``.
            env_id: The envs that the actions are for: by default all envs, in async mode those of the last ``recv``.

        Returns:
            ``(obs, reward, done, info)``, a row per env of ``info["env_id"]``. Rewards are float32.
            ``info["TimeLimit.truncated"]`` marks those of the ends that a limit has brought about.

        Raises:
            InputError: The actions do not fit the action space (``ActionError``), or the ids are invalid
                (``EnvIdError``). Nothing was sent.
            UsageError: One of the envs is in flight (``InFlightError``), its episode is over and autoreset is disabled
                (``NeedsResetError``), or the pool is closed (``ClosedError``). Nothing was sent.
            EnvError: An env failed, under ``on_error="raise"``. ``error.batch`` has the whole result.

        Example:
            >>> pool = stepmill.make_gym("CartPole-v1", num_envs=4)
            >>> obs = pool.reset()
            >>> obs, reward, done, info = pool.step(np.ones(4, int))
            >>> done
            array([False, False, False, False])
        """
        return self._engine.step, (action, env_id)

    @direct
    def recv(
        self, timeout: float | None = None, at_least: int | None = None
    ) -> Call[tuple[Any, Array, Array, dict[str, Any]]]:
        """Waits for ``min(batch_size, in flight)`` envs and returns their results.

        Args:
            timeout: Seconds after which to raise ``RecvTimeoutError``; everything stays in flight. None: no limit.
            at_least: For async pools: when the time is over, return what is ready, as soon as there are this many
                rows. With 0 there may be none.

        Returns:
            ``(obs, reward, done, info)``, a row per env of ``info["env_id"]``: see ``step``.

        Raises:
            RecvTimeoutError: There was no complete batch in time.
            NothingInFlightError: There is nothing to wait for: ``send`` actions first.
            EnvError: An env failed, under ``on_error="raise"``. ``error.batch`` has the whole result.

        Example:
            >>> pool = stepmill.make_gym("CartPole-v1", num_envs=4, batch_size=2)
            >>> pool.async_reset()
            >>> for _ in range(10):
            ...     obs, reward, done, info = pool.recv()
            ...     pool.send(np.ones(2, int), info["env_id"])
        """
        return self._engine.recv, (timeout, at_least)


def _translate(result: Any) -> tuple[Any, np.ndarray, np.ndarray, dict[str, Any]]:
    observation, reward, terminated, truncated, info = result
    info["TimeLimit.truncated"] = truncated > terminated  # `truncated & ~terminated`, in one pass
    return observation, reward, terminated | truncated, info
