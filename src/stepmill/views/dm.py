"""The dm view: ``dm_env.TimeStep`` with one row per env.

Every env runs through ``FIRST → MID → ... → LAST ⇢ FIRST``. The fields of a batch's TimeStep are arrays, so its envs
may be at different points of that line. With ``autoreset="same_step"`` the row of a LAST already holds the first
observation of the next episode, so no batch after the first reset shows FIRST.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

import dm_env
import numpy as np

from stepmill import _native
from stepmill.settings import Settings
from stepmill.spec import PoolSpec
from stepmill.views.direct import Call, direct
from stepmill.views.outputs import Converter, Output
from stepmill.views.pool import Array, PoolView

__all__ = ["DmPool", "Observation", "Players", "TimeStep"]

Show = Callable[[Any], dm_env.TimeStep]  # from a result of the engine

_LAST = int(dm_env.StepType.LAST)


class Players(NamedTuple):
    """Whose rows those of per-player arrays are; all but ``env_id`` only where envs have several players."""

    env_id: np.ndarray
    id: np.ndarray | None = None
    terminated: np.ndarray | None = None
    truncated: np.ndarray | None = None
    rows: dict[str, np.ndarray] | None = None


class Observation(NamedTuple):
    """The observation in a batch's TimeStep."""

    obs: Any
    env_id: np.ndarray
    elapsed_step: np.ndarray
    players: Players
    info: dict[str, Any]


if TYPE_CHECKING:

    class TimeStep(dm_env.TimeStep, Generic[Array]):  # type: ignore[misc]  # of Any, for those without dm_env's source
        """A ``dm_env.TimeStep`` for type checkers: dm_env does not say what the fields are."""

        step_type: Array
        reward: Array
        discount: Array
        observation: Observation

else:
    TimeStep = dm_env.TimeStep


class DmPool(PoolView, Generic[Array]):
    """Results are ``dm_env.TimeStep``; rewards and discounts are float32.

    The discount is the env's own if it has one (the info key ``discount``), otherwise 0 at a real end and 1 elsewhere:
    at a time limit the step is LAST with discount 1.
    """

    def __init__(
        self, engine: _native.Engine, spec: PoolSpec, settings: Settings, converter: Converter | None = None
    ) -> None:
        super().__init__(engine, spec, settings, converter)
        step: Show = functools.partial(timestep_of, settings.autoreset == "same_step")
        begin: Show = first_timestep_of
        if self._output is not None:
            step, begin = (functools.partial(_converted, self._output, show) for show in (step, begin))
        engine.show_as(step, begin, players=True)
        self._take_engine_calls(DmPool)

    def _show_in_programs(self) -> tuple[Callable[[Any], Any], bool]:
        return functools.partial(timestep_of, self._settings.autoreset == "same_step"), True

    def observation_spec(self) -> Any:
        """The observation of a single env."""
        return self._pool_spec.observation_spec()

    def action_spec(self) -> Any:
        """The action of a single env."""
        return self._pool_spec.action_spec()

    def reward_spec(self) -> Any:
        """The reward of a single env."""
        return self._pool_spec.reward_spec()

    def discount_spec(self) -> Any:
        """The discount of a single env."""
        return self._pool_spec.discount_spec()

    @direct
    def reset(
        self, env_id: Any = None, *, seed: Any = None, options: Mapping[str, Any] | None = None
    ) -> Call[TimeStep[Array]]:
        """Resets all envs, or those of ``env_id`` in that order: FIRST, reward 0, discount 1.

        Args:
            env_id: Ids of the envs to reset; all by default.
            seed: Reseeds env i with ``seed + i``; or a list with one seed (or None) per env that is reset.
            options: Passed to the envs: a dict for all, or a list with one (or None) per env that is reset.
                ``options["reset_mask"]`` selects envs; the rows of the others show where they are: MID or FIRST.

        Returns:
            A ``dm_env.TimeStep`` of arrays, a row per env of ``timestep.observation.env_id``.

        Raises:
            InputError: Invalid ids (``EnvIdError``) or options (``ResetOptionError``). Nothing was reset.
            ConfigError: Invalid seeds. Nothing was reset.
            EnvError: An env failed, under ``on_error="raise"``. ``error.batch`` has the whole result.

        Example:
            >>> pool = stepmill.make_dm("CartPole-v1", num_envs=4)
            >>> timestep = pool.reset(seed=7)  # env i is seeded with 7 + i
            >>> timestep.observation.obs.shape, timestep.discount
            ((4, 4), array([1., 1., 1., 1.], dtype=float32))
        """
        return self._engine.reset, self._reset_arguments(env_id, seed, options)

    @direct
    def step(self, action: Any, env_id: Any = None) -> Call[TimeStep[Array]]:
        """Sends actions and waits for the results: ``send`` then ``recv``.

        Args:
            action: One action per env: an array with a row for each, a list, a tensor, or a dict
                ``{"action": ..., "env_id": ...}``.
            env_id: The envs that the actions are for: by default all envs, in async mode those of the last ``recv``.

        Returns:
            A ``dm_env.TimeStep`` of arrays, a row per env of ``timestep.observation.env_id``: the observations are in
            ``timestep.observation.obs``, and the infos in ``timestep.observation.info``.

        Raises:
            InputError: The actions do not fit the action space (``ActionError``), or the ids are invalid
                (``EnvIdError``). Nothing was sent.
            UsageError: One of the envs is in flight (``InFlightError``), its episode is over and autoreset is disabled
                (``NeedsResetError``), or the pool is closed (``ClosedError``). Nothing was sent.
            EnvError: An env failed, under ``on_error="raise"``. ``error.batch`` has the whole result.

        Example:
            >>> pool = stepmill.make_dm("CartPole-v1", num_envs=4)
            >>> timestep = pool.reset()
            >>> timestep = pool.step(np.ones(4, int))
            >>> timestep.step_type, timestep.reward
            (array([1, 1, 1, 1], dtype=int32), array([1., 1., 1., 1.], dtype=float32))
        """
        return self._engine.step, (action, env_id)

    @direct
    def recv(self, timeout: float | None = None, at_least: int | None = None) -> Call[TimeStep[Array]]:
        """Waits for ``min(batch_size, in flight)`` envs and returns their results.

        Args:
            timeout: Seconds after which to raise ``RecvTimeoutError``; everything stays in flight. None: no limit.
            at_least: For async pools: when the time is over, return what is ready, as soon as there are this many
                rows. With 0 there may be none.

        Returns:
            A ``dm_env.TimeStep`` of arrays, a row per env of ``timestep.observation.env_id``: see ``step``.

        Raises:
            RecvTimeoutError: There was no complete batch in time.
            NothingInFlightError: There is nothing to wait for: ``send`` actions first.
            EnvError: An env failed, under ``on_error="raise"``. ``error.batch`` has the whole result.

        Example:
            >>> pool = stepmill.make_dm("CartPole-v1", num_envs=4, batch_size=2)
            >>> pool.async_reset()
            >>> for _ in range(10):
            ...     timestep = pool.recv()
            ...     pool.send(np.ones(2, int), timestep.observation.env_id)
        """
        return self._engine.recv, (timeout, at_least)


# These work on arrays of numpy, on those of JAX, which cannot be written to, and on tensors of torch.


def _cast(array: Any, dtype: Any) -> Any:
    if hasattr(array, "astype"):
        return array.astype(dtype)
    torch = sys.modules["torch"]
    return array.to(getattr(torch, np.dtype(dtype).name))


def _begun_or_not(info: dict[str, Any]) -> Any:
    """FIRST before an env's first step, then MID: these are 0 and 1."""
    return _cast(info["elapsed_step"] > 0, np.int32)


def _observation(obs: Any, info: dict[str, Any]) -> Observation:
    return Observation(obs, info["env_id"], info["elapsed_step"], Players(**info["players"]), info)


def first_timestep_of(result: tuple[Any, dict[str, Any]]) -> dm_env.TimeStep:
    """What ``reset`` returns, from ``(obs, info)``."""
    obs, info = result
    step_type = _begun_or_not(info)
    reward = _cast(info["players"]["env_id"] * 0, np.float32)
    return dm_env.TimeStep(step_type, reward, _cast(step_type >= 0, np.float32), _observation(obs, info))


def timestep_of(same_step: bool, result: Any) -> dm_env.TimeStep:
    """What ``step`` returns, from the five results of the gymnasium view."""
    obs, reward, terminated, truncated, info = result
    begun = _begun_or_not(info)
    step_type = begun + (terminated | truncated) * (_LAST - begun)
    discount = _cast(~terminated, np.float32)
    # With `same_step`, the info of an episode's end is in `final_info`.
    for told in (info, info.get("final_info", {}) if same_step else {}):
        if "discount" in told:
            discount = _with_discounts(told["discount"], told["_discount"], discount)
    return dm_env.TimeStep(step_type, reward, discount, _observation(obs, info))


def _converted(output: Output, show: Show, result: Any) -> dm_env.TimeStep:
    step_type, reward, discount, seen = show(result)
    obs, *arrays = output(seen.obs, step_type, reward, discount)
    return dm_env.TimeStep(*arrays, seen._replace(obs=obs))


def _with_discounts(told: Any, has: Any, discount: Any) -> Any:
    """The discounts, where the envs have told none of their own. What is not a number stays in the info only."""
    if not hasattr(told, "ndim") or told.ndim != 1:
        return discount
    if not hasattr(told.dtype, "kind"):
        return _cast(sys.modules["torch"].where(has, told, discount), np.float32)
    if told.dtype.kind in "biuf":
        if isinstance(told, np.ndarray):
            return np.where(has, told, discount).astype(np.float32)
        return told.__array_namespace__().where(has, told, discount).astype(np.float32)
    for row in np.flatnonzero(has):
        if isinstance(told[row], bool | int | float | np.number | np.bool_):
            discount[row] = told[row]
    return discount
