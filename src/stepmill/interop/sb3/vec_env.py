"""``StepmillVecEnv``: a pool as Stable-Baselines3 sees it."""

from __future__ import annotations

import copy
import functools
import os
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.monitor import Monitor, ResultsWriter
from stable_baselines3.common.vec_env import VecEnv

from stepmill.errors import ConfigError, EnvError, EnvIdError, InputError, UnknownAttributeError, UsageError
from stepmill.interop.pools import reset_until_good
from stepmill.interop.sb3.checks import check_pool, make_pool
from stepmill.managers.stacking import stack_actions
from stepmill.registry.attributes import call_env, class_name, has_attribute, wrapper_names
from stepmill.settings import SEED_LIMIT
from stepmill.spec import PoolSpec
from stepmill.values.arguments import whole_number
from stepmill.values.spaces import flatten
from stepmill.values.trees import leaves, map_tree
from stepmill.views.gymnasium import GymnasiumPool

Indices = int | Iterable[int] | None
StepReturn = tuple[Any, np.ndarray, np.ndarray, list[dict[str, Any]]]

_ALWAYS = ("env_id", "elapsed_step")  # the keys that every info has


class StepmillVecEnv(VecEnv):  # type: ignore[misc]  # SB3 may not be installed where mypy runs
    """Steps the envs of a pool for Stable-Baselines3.

    The last observation of an episode is ``info["terminal_observation"]``, ``info["TimeLimit.truncated"]`` says whether
    a limit ended it, and ``info["episode"]`` has return, length and time as from SB3's ``Monitor``, counted by the
    engine. All arrays are the caller's own.

    A row of a failed env is ``done`` and truncated, with reward 0 and ``info["abnormal"]``, and without
    ``info["episode"]``. With ``on_error="restart"`` its observation is the first of a new episode.

    Args:
        envs: A pool, ``stepmill.make(..., autoreset="same_step")``; or functions that make envs, one per env, as
            ``DummyVecEnv`` takes them.
        monitor_dir: A folder for files as SB3's ``Monitor`` writes them, one per env.
        start_index: The number of the first file.
        **settings: For functions: what ``stepmill.make`` takes besides, such as ``backend``.
    """

    _seeds: Sequence[int | None]  # these two are SB3's, for the next reset
    _options: Sequence[dict[str, Any]]

    def __init__(
        self,
        envs: GymnasiumPool | Sequence[Callable[[], Any]],
        *,
        monitor_dir: str | os.PathLike[str] | None = None,
        start_index: int = 0,
        **settings: Any,
    ) -> None:
        if monitor_dir is not None and not isinstance(monitor_dir, str | os.PathLike):
            raise ConfigError(f"monitor_dir: expected the path of a folder, got {monitor_dir!r}")
        first_file = whole_number("start_index", start_index, 0)
        if isinstance(envs, list | tuple):
            envs = make_pool(list(envs), **settings)
        elif settings:
            raise ConfigError(f"StepmillVecEnv: a pool has its settings already, got {', '.join(settings)} for it")
        self.pool = check_pool(envs)
        # Copies: SB3 seeds action spaces, and its VecNormalize changes observation spaces.
        super().__init__(
            self.pool.num_envs,
            copy.deepcopy(self.pool.single_observation_space),
            copy.deepcopy(self.pool.single_action_space),
        )
        self.metadata = dict(self.pool.metadata)
        # The spaces of actions with several parts: SB3 may give them as a list, with an action per env.
        has_parts = isinstance(self.action_space, spaces.Dict | spaces.Tuple)
        self._parts = flatten(self.action_space) if has_parts else None
        self._batch: Any = None  # of the pool, while SB3 does not have it: Ctrl-C may come at any time
        self._last: Any = None  # the observation that SB3 has
        self._is_resumed = False
        self._has_unfinished_reset = False
        self._episodes: list[tuple[int, dict[str, Any]]] = []  # the ends of this step
        self._started = time.time()
        # Where a Monitor is among the wrappers, it counts: other wrappers above it may change what an episode is.
        self._monitored = [class_name(Monitor) in names for names in self._wrapper_names(range(self.num_envs))]
        self._files: list[ResultsWriter] = []  # one per env, with a line per episode
        if monitor_dir is not None:
            header = {"t_start": self._started, "env_id": self.spec.id}
            for number in range(first_file, first_file + self.num_envs):
                self._files.append(ResultsWriter(os.path.join(monitor_dir, str(number)), header=header))

    @property
    def spec(self) -> PoolSpec:
        """What the envs are. SB3's ``VecMonitor`` reads its id."""
        spec: PoolSpec = self.pool.spec
        return spec

    # ---- stepping ----------------------------------------------------------------------------

    def step_async(self, actions: Any) -> None:
        """Sends the actions: an array with a row per env, or a list with an action per env.

        If Ctrl-C has left a step under way, of which SB3 knows nothing, ``step_wait`` returns the result of that one,
        and the new actions are not used: no result is lost, and with it no end of an episode.
        """
        if self.pool.in_flight or self._batch is not None or self._has_unfinished_reset:
            self._is_resumed = True
            return
        if self._parts is not None and isinstance(actions, list):
            actions = stack_actions(self._parts, actions, 1)
        self.pool.send(actions)

    def step_wait(self) -> StepReturn:
        """Waits for all envs: observations, rewards, dones, infos."""
        if self._has_unfinished_reset:
            return self._finish_reset()
        try:
            if self._batch is None:
                self.pool.recv_into(self, "_batch")
        except EnvError as error:
            self._batch = error.batch  # before anything else, as Ctrl-C may come again
            # If it has come before, envs in this thread were in the middle of a step. Then nobody has to know.
            if not self._is_resumed or not all(isinstance(one.__cause__, KeyboardInterrupt) for one in error.errors):
                if error.batch is not None:
                    error.batch = self._translate(error.batch)[0]
                    self._write_episodes()
                self._batch, self._is_resumed = None, False
                raise
        step, failed = self._translate(self._batch)
        if failed:
            step = self._start_again(failed, step)
        if self._episodes:
            self._write_episodes()
        self._last, self._batch, self._is_resumed = step[0], None, False
        return step

    def reset(self) -> Any:
        """Resets all envs, with the seeds and options that were set since the last reset, and returns observations."""
        options: Any = [one or None for one in self._options] if any(self._options) else None
        unfinished, self._has_unfinished_reset = self._has_unfinished_reset, self._last is not None
        observation: Any = None
        try:
            for env_ids, rows, info in reset_until_good(self.pool, None, self._seeds, options):
                if observation is None:
                    observation = rows
                self._keep_first_rows(observation, env_ids, rows, info)
        except (ConfigError, InputError, UsageError):  # nothing was reset
            self._has_unfinished_reset = unfinished
            raise
        no_options: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        # Together, and right before the return: Ctrl-C finds all of it or nothing.
        self._seeds, self._options, self._episodes = [None] * self.num_envs, no_options, []
        self._last, self._batch, self._has_unfinished_reset = observation, None, False
        return observation

    def _finish_reset(self) -> StepReturn:
        """A step after a reset that was interrupted or that failed: does it again; the old episodes were cut off."""
        last = self._last
        rewards, dones = np.zeros(self.num_envs, np.float32), np.ones(self.num_envs, np.bool_)
        infos = [
            {"TimeLimit.truncated": True, "terminal_observation": _row(last, env_id)} for env_id in range(self.num_envs)
        ]
        return self.reset(), rewards, dones, infos  # last, as nothing is kept any more when it has returned

    def _translate(self, batch: Any) -> tuple[StepReturn, list[int]]:
        """A batch as SB3 sees it, and the envs that failed in it and have not begun a new episode."""
        observation, rewards, terminated, truncated, info = batch
        dones = terminated | truncated
        failed: list[int] = []
        if len(info) == len(_ALWAYS):
            infos: list[dict[str, Any]] = [{"TimeLimit.truncated": False} for _ in range(self.num_envs)]
        else:
            infos = self.pool.info_rows(info)
            for row in infos:
                row["TimeLimit.truncated"] = False  # SB3's own vector envs overwrite it, too
            ended = dones.nonzero()[0].tolist()
            if ended:
                failed = self._end_episodes(ended, batch, infos)
        return (observation, rewards.astype(np.float32), dones, infos), failed

    def _end_episodes(self, ended: list[int], batch: Any, infos: list[dict[str, Any]]) -> list[int]:
        """Puts what was told last, the last observation and the episode's figures into infos. Returns the failed."""
        observation, _, terminated, truncated, info = batch
        self._episodes = []
        finished = [env_id for env_id in ended if "final_obs" in infos[env_id]]
        for env_id in finished:
            first = infos[env_id]  # what was told with the new episode
            last = first.pop("final_info", {})
            infos[env_id] = {**last, "terminal_observation": first.pop("final_obs")}
            if first.pop("abnormal", False):
                infos[env_id]["abnormal"] = True
            del first["TimeLimit.truncated"]
            self.reset_infos[env_id] = first
        failed = []
        if "abnormal" in info:
            # Failed in the step, or in the reset after the episode's end.
            failed = [env_id for env_id in ended if env_id not in finished or info["elapsed_step"][env_id]]
            for env_id in failed:
                infos[env_id]["terminal_observation"] = _row(self._last_good(env_id, observation, info), env_id)
        for env_id in ended:
            infos[env_id]["TimeLimit.truncated"] = bool(truncated[env_id]) and not terminated[env_id]
            if "episode_return" in info and info["_episode_return"][env_id] and not self._monitored[env_id]:
                self._tell_episode(infos[env_id], env_id, info)
        return failed

    def _last_good(self, env_id: int, observation: Any, info: dict[str, Any]) -> Any:
        """Where a failed env's last observation is: in its row, unless a step has failed and the pool keeps none."""
        has_ended = "_episode_return" in info and info["_episode_return"][env_id]  # then the reset after it has failed
        is_kept = has_ended or self.pool.settings.on_error == "restart"
        return observation if is_kept or self._last is None else self._last

    def _tell_episode(self, row: dict[str, Any], env_id: int, info: dict[str, Any]) -> None:
        """Says how the episode went, as SB3's Monitor does, unless the env has said it."""
        episode = {
            "r": round(float(info["episode_return"][env_id]), 6),
            "l": int(info["episode_length"][env_id]),
            "t": round(time.time() - self._started, 6),
        }
        row.setdefault("episode", episode)
        self._episodes.append((env_id, episode))

    def _start_again(self, failed: list[int], step: StepReturn) -> StepReturn:
        """Resets failed envs now rather than in the next step: to SB3, the row of an end begins a new episode."""
        observation = map_tree(np.copy, step[0])  # Ctrl-C may come: then the batch is translated again
        try:
            self.pool.drain()  # what Ctrl-C has left of this same reset
            for rows, first, info in reset_until_good(self.pool, failed):
                self._keep_first_rows(observation, [failed[row] for row in rows], first, info)
        except EnvError as error:
            error.batch = (observation, *step[1:])
            self._write_episodes()
            self._batch = None
            raise
        return observation, *step[1:]

    def _keep_first_rows(self, target: Any, env_ids: list[int], observation: Any, info: dict[str, Any]) -> None:
        """Puts the first observations of new episodes into the rows of their envs; keeps what was told with them."""
        if target is not observation:
            for whole, part in zip(leaves(target), leaves(observation), strict=True):
                whole[env_ids] = part
        for env_id, row in zip(env_ids, self.pool.info_rows(info), strict=True):
            self.reset_infos[env_id] = row

    def _write_episodes(self) -> None:
        """Adds the episodes of a step to the files: at its end, as one that Ctrl-C interrupts is translated again."""
        if self._files:
            for env_id, episode in self._episodes:
                self._files[env_id].write_row(episode)
        self._episodes = []

    def seed(self, seed: int | None = None) -> Sequence[int | None]:
        """Sets the seeds of the next reset: ``seed + i`` for env i; by default drawn from ``np.random``, as in SB3."""
        if seed is not None:
            seed = whole_number("seed", seed, 0, SEED_LIMIT - self.num_envs)
        seeds: Sequence[int | None] = super().seed(seed)
        return seeds

    # ---- the envs themselves -----------------------------------------------------------------

    def has_attr(self, attr_name: str) -> bool:
        """Whether all envs have the attribute. Its value is not asked for: it need not be picklable."""
        if not self.pool.is_native:
            return all(self.pool.apply(functools.partial(has_attribute, name=attr_name)))
        try:
            self.pool.get_attr(attr_name)
        except UnknownAttributeError:
            return False
        return True

    def get_attr(self, attr_name: str, indices: Indices = None) -> list[Any]:
        """An attribute of every env, or of the given ones."""
        return list(self.pool.get_attr(attr_name, self._get_indices(indices)))

    def set_attr(self, attr_name: str, value: Any, indices: Indices = None) -> None:
        """Sets an attribute of every env, or of the given ones, to one value."""
        env_ids = self._get_indices(indices)
        self.pool.set_attr(attr_name, [value] * len(env_ids), env_ids)

    def env_method(self, method_name: str, *method_args: Any, indices: Indices = None, **method_kwargs: Any) -> Any:
        """Calls a method of every env, or of the given ones, and returns a list of results."""
        env_ids = self._get_indices(indices)
        if method_name == "render" and not (method_args or method_kwargs):
            return list(self.pool.render(env_ids))  # native envs have no methods, but they can be drawn
        # Not `pool.call`, which has an argument `env_ids` of its own.
        call = functools.partial(call_env, name=method_name, args=method_args, kwargs=method_kwargs)
        return list(self.pool.apply(call, env_ids))

    def env_is_wrapped(self, wrapper_class: type, indices: Indices = None) -> list[bool]:
        """Whether envs have a wrapper of that class; of SB3's ``Monitor`` always, as its work is done here."""
        env_ids = self._get_indices(indices)
        if not isinstance(wrapper_class, type):
            raise InputError(f"env_is_wrapped: expected the class of a wrapper, got {wrapper_class!r}")
        if issubclass(Monitor, wrapper_class):
            return [True] * len(env_ids)
        return [class_name(wrapper_class) in names for names in self._wrapper_names(env_ids)]

    def get_images(self) -> Sequence[np.ndarray | None]:
        """A picture of every env, if the envs were made with ``render_mode="rgb_array"``."""
        if self.render_mode != "rgb_array":
            warnings.warn(
                f"get_images: expected envs with render_mode='rgb_array', got {self.render_mode!r}", stacklevel=2
            )
            return [None] * self.num_envs
        return list(self.pool.render())

    def close(self) -> None:
        """Closes the pool, also one that was made elsewhere."""
        self.pool.close()
        self._batch, self._has_unfinished_reset = None, False  # nothing to go on with
        for file in self._files:
            file.close()

    def _wrapper_names(self, env_ids: Sequence[int]) -> Sequence[set[str]]:
        return [set()] * len(env_ids) if self.pool.is_native else self.pool.apply(wrapper_names, env_ids)

    def _get_indices(self, indices: Indices) -> list[int]:
        """Env ids from what SB3 calls indices: None for all, one, or several; negative ones count from the end."""
        if indices is None:
            return list(range(self.num_envs))
        several = list(indices) if isinstance(indices, Iterable) else [indices]
        try:
            return [range(self.num_envs)[one] for one in several]
        except (IndexError, TypeError):
            most = self.num_envs
            raise EnvIdError(
                f"indices: expected None, or one or several of [-{most}, {most}), got {indices!r}"
            ) from None


def _row(observation: Any, env_id: int) -> Any:
    return map_tree(lambda array: array[env_id].copy(), observation)
