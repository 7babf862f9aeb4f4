"""The env managers: envs by id, dictionaries in and out, over a pool.

The pool does the work: it steps and resets envs, in worker processes or in this one, and every action gets exactly one
result. Here is the state of each env, and when a call has waited long enough. Nothing here runs in the background: what
became ready is looked at when the caller asks for something.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

from stepmill.arguments import true_or_false, whole_number
from stepmill.envs.common import to_tensor
from stepmill.envs.timestep import BaseEnvInfo, BaseEnvTimestep
from stepmill.errors import (
    ClosedError,
    ConfigError,
    EnvError,
    EnvIdError,
    EnvTimeoutError,
    InFlightError,
    InputError,
    UsageError,
    WorkerDiedError,
)
from stepmill.managers.config import DEFAULTS, read_recipes, read_settings
from stepmill.managers.envs import EnvSpaces, Instructions, env_info_of, open_pool, read_value, spaces_of
from stepmill.managers.rows import RowReader, all_copied, as_arrays, stack_actions
from stepmill.managers.states import EnvState
from stepmill.optional import require
from stepmill.pool.source import close_quietly

__all__ = [
    "AsyncSubprocessEnvManager",
    "BaseEnvManager",
    "SubprocessEnvManager",
    "SyncSubprocessEnvManager",
]

_SEED_LIMIT = 2**63


class BaseEnvManager:
    """Several envs, stepped in this process, one after another.

    Args:
        env_fn: A function that makes an env from a configuration; or a list of functions, each of which makes one. The
            env is a ``BaseEnv``, or any other kind that pools take.
        env_cfg: With one function: a list of configurations, one an env.
        env_num: How many envs, where that is to be checked.
        episode_num: Episodes that each env plays before it is DONE; ``"inf"`` for no end.
        cfg: A dict over ``default_config()``.
    """

    _backend = "inline"
    _defaults: Mapping[str, Any] = DEFAULTS
    # Whether an env whose step was abnormal is reset at once, rather than left to the caller.
    _resets_abnormal = False

    def __init__(
        self,
        env_fn: Any,
        env_cfg: Any = None,
        env_num: int | None = None,
        episode_num: Any = None,
        *,
        cfg: Any = None,
        **settings: Any,
    ) -> None:
        if episode_num is not None:
            settings["episode_num"] = episode_num
        in_processes = self._backend == "process"
        self._settings = read_settings(type(self).__name__, self._defaults, in_processes, cfg, settings)
        self._recipes = read_recipes(env_fn, env_cfg, env_num)
        self._pool: Any = None
        self._ref: Any = None
        self._spaces: EnvSpaces | None = None
        self._read_rows: RowReader | None = None
        self._replay_paths: dict[int, str] = {}
        self._seeds: dict[int, int] = {}  # given by the caller, and valid until others are
        self._unseeded: set[int] = set()  # whose seed goes with the next reset
        self._dynamic_seeds: dict[int, bool] = {}
        self._forget()

    @classmethod
    def default_config(cls) -> dict[str, Any]:
        """The keys that ``cfg`` may have, with what they are by default."""
        return dict(cls._defaults)

    def _forget(self) -> None:
        """As before the first launch."""
        every = range(len(self._recipes))
        self._states = dict.fromkeys(every, EnvState.VOID)
        self._ready: set[int] = set()  # can take an action
        self._observations: dict[int, Any] = {}  # the latest of each
        self._episodes = dict.fromkeys(every, 0)
        self._reset_params: dict[int, dict[str, Any]] = {env_id: {} for env_id in every}
        self._stepping: set[int] = set()  # an action is in flight
        self._resetting: set[int] = set()  # a reset is in flight, or to be tried again
        self._arrived: dict[int, BaseEnvTimestep] = {}  # results that no call has returned yet
        self._failed: dict[int, EnvError] = {}  # of steps, that no call has raised yet
        self._tries: dict[int, int] = {}  # failures of a reset that is tried again
        self._due: dict[int, float] = {}  # when it is
        self._told: set[int] = set()  # envs that know of videos and of how they are seeded

    # ---- life --------------------------------------------------------------------------------

    def launch(self, reset_param: Any = None) -> None:
        """Builds the envs and resets them. A manager that was closed can be launched again."""
        if self._pool is not None:
            raise UsageError(f"{self!r} is launched already: close() it first")
        self._forget()
        self._read_params(reset_param, None)  # before anything is built
        self._unseeded = set(self._seeds)
        self._pool = open_pool(self._recipes, self._settings, self._backend)
        try:
            self._states = dict.fromkeys(self._states, EnvState.INIT)
            self._spaces = self._pool.apply(spaces_of, [0])[0]
            shape = self.reward_space.shape
            self._read_rows = RowReader(self._pool.observation, self._pool.num_players, shape, self._settings.copies)
            self.reset(reset_param)
        except BaseException:
            close_quietly(self)
            raise

    def close(self) -> None:
        """Ends all envs and frees everything, whatever they are doing. Closing twice does nothing."""
        pool, self._pool = self._pool, None
        ref, self._ref = self._ref, None
        self._states = dict.fromkeys(self._states, EnvState.VOID)
        self._ready.clear()
        if ref is not None:
            close_quietly(ref)
        if pool is not None:
            pool.close()

    def __enter__(self) -> Self:
        """The manager itself; leaving closes it."""
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        """The class, and how many envs."""
        return f"{type(self).__name__}(env_num={self.env_num}{', closed' if self.closed else ''})"

    # ---- reset -------------------------------------------------------------------------------

    def reset(self, reset_param: Any = None, env_id: Any = None) -> None:
        """Resets envs and waits for them: all, those of ``env_id``, or those that a dict names.

        Args:
            reset_param: Keyword arguments of the envs' ``reset``: a list of dicts, one an env that is reset, or a dict
                from env id to a dict (None: as the last time). They hold for the automatic resets that follow, too.
            env_id: Which envs; by default all, or those of the dict.

        What these envs have in flight comes to nothing. Episode counts go on.
        """
        self._require_open()
        params = self._read_params(reset_param, env_id)
        ids = list(params)
        while not params.keys().isdisjoint(self._stepping | self._resetting):
            self._gather(1, 1, None)
        for one in ids:
            self._arrived.pop(one, None)
            self._failed.pop(one, None)
            given = params[one]
            if given is not None:
                self._reset_params[one] = dict(given)
        self._send_resets(ids)
        self._settle_resets(ids)

    def _read_params(self, reset_param: Any, env_id: Any) -> dict[int, Mapping[str, Any] | None]:
        if isinstance(reset_param, Mapping):
            ids = self._check_ids(list(reset_param) if env_id is None else env_id)
            if set(ids) != set(reset_param):
                raise InputError(f"reset: expected parameters of the envs {ids}, got them of {list(reset_param)}")
            params = dict(reset_param)
        else:
            ids = self._check_ids(range(self.env_num) if env_id is None else env_id)
            given = [None] * len(ids) if reset_param is None else list(reset_param)
            if len(given) != len(ids):
                raise InputError(f"reset: expected {len(ids)} parameters, one an env, got {len(given)}")
            params = dict(zip(ids, given, strict=True))
        for one, param in params.items():
            if param is not None and not isinstance(param, Mapping):
                raise InputError(f"reset: expected a dict of arguments for env {one}, got {param!r}")
        return params

    def _send_resets(self, ids: Sequence[int], renew: bool = False) -> None:
        """``renew``: an env each time is built anew first."""
        if not ids:
            return
        self._resetting.update(ids)
        self._ready.difference_update(ids)
        for one in ids:
            self._states[one] = EnvState.RESET
        # A static seed goes with every reset, others once.
        seeds = [self._seeds.get(one) if self._is_to_be_seeded(one) else None for one in ids]
        params = [self._reset_params[one] or None for one in ids]
        if renew:
            for one, seed, param in zip(ids, seeds, params, strict=True):
                self._pool.send_reset([one], [seed], [param], renew=self._instructions(one))
            self._told.update(ids)
        else:
            self._tell(ids)
            self._pool.send_reset(ids, seeds, params)
        self._unseeded.difference_update(ids)

    def _is_to_be_seeded(self, env_id: int) -> bool:
        return env_id in self._unseeded or self._dynamic_seeds.get(env_id) is False

    def _tell(self, ids: Sequence[int]) -> None:
        """Tells envs, once they are built, or built anew, what they do not know from their configuration."""
        groups: dict[Instructions, list[int]] = {}
        for one in ids:
            if one not in self._told:
                groups.setdefault(self._instructions(one), []).append(one)
        for instructions, group in groups.items():
            if instructions != Instructions(None, None):
                self._pool.apply(instructions, group)
            self._told.update(group)

    def _instructions(self, env_id: int) -> Instructions:
        return Instructions(self._dynamic_seeds.get(env_id), self._replay_paths.get(env_id))

    def _settle_resets(self, ids: Iterable[int]) -> None:
        wanted = set(ids)
        while left := len(wanted & self._resetting):
            self._gather(left, 1, None)

    # ---- step --------------------------------------------------------------------------------

    def step(self, actions: Mapping[int, Any]) -> dict[int, BaseEnvTimestep]:
        """Sends actions, by env id, and returns the timesteps that are ready, by env id.

        Waits as the manager's ``wait_num`` and ``step_wait_timeout`` say, and never returns only ended envs while
        others run. ``step({})`` gathers what is in flight. An env that fails is in state ERROR until it is reset; the
        error that is raised carries the other timesteps in ``batch``.
        """
        self._require_open()
        ids = self._check_actions(actions)
        if ids:
            stacked = stack_actions(self._pool.action, as_arrays(actions.values()), self._pool.num_players)
            self._pool.send(stacked, ids)
            self._stepping.update(ids)
            self._ready.difference_update(ids)
        self._wait_for_steps()
        if self._backend == "inline" and self._resetting:  # nothing goes on beside the caller: be done with it
            self._settle_resets(self._resetting)
        ready = {one: self._arrived[one] for one in sorted(self._arrived)}
        self._arrived.clear()
        self._ready.update(one for one in ready if self._states[one] is EnvState.RUN)
        if self._failed:
            failed, self._failed = self._failed, {}
            raise EnvError.gather([failed[one] for one in sorted(failed)], self._output(ready))
        return self._output(ready)

    def _check_actions(self, actions: Any) -> list[int]:
        if not isinstance(actions, Mapping):
            raise InputError(f"step: expected a dict from env id to action, got {actions!r}")
        if actions.keys() <= self._ready:
            return list(actions)
        ids = self._check_ids(list(actions))
        wrong = [one for one in ids if one not in self._ready]
        shown = {one: self._states[one].name if one in self._ready else self._standing(one) for one in ids}
        raise InFlightError(
            f"step: the envs {wrong} cannot take an action now, expected envs of ready_obs; nothing was sent: {shown}"
        )

    def _standing(self, env_id: int) -> str:
        state = self._states[env_id]
        return "in flight" if state is EnvState.RUN else state.name

    def _wait_for_steps(self) -> None:
        timeout = self._settings.wait_timeout
        end = None if timeout is None else time.monotonic() + timeout
        enough = min(self._settings.wait_num, len(self._stepping) + len(self._arrived) + len(self._failed))
        while self._stepping:
            # Only ended ones are nothing to go on with, as long as others run.
            useful = bool(self._failed) or any(not one.done for one in self._arrived.values())
            missing = max(int(enough) - len(self._arrived) - len(self._failed), 0 if useful else 1)
            left = 0.0 if end is None else max(0.0, end - time.monotonic())
            if missing == 0 and left == 0.0:
                return
            if left > 0.0:
                self._gather(len(self._stepping), missing, left)
            else:
                self._gather(missing, missing, None)

    # ---- results -----------------------------------------------------------------------------

    def _gather(self, enough: int, at_least: int, timeout: float | None) -> None:
        """Takes what is ready, as ``recv_some`` of the pool has it, or less: callers ask again.

        Sees to resets that failed, and to envs that ended.
        """
        if self._due:
            at_least, timeout = 0, self._until_due(timeout)
        batch = self._pool.recv_some(enough, at_least, timeout)
        if batch is not None:
            self._take(batch)
        if self._due:
            self._try_again()

    def _take(self, batch: Any) -> None:
        assert self._read_rows is not None
        rows = self._read_rows(batch)
        for row in rows.special:
            if (env_id := rows.ids[row]) in rows.faults:
                self._take_failure(env_id, rows.faults[env_id].error())
        # In one go, since nearly all rows are plain.
        good = dict(zip(rows.ids, rows.timesteps, strict=True))
        for one in rows.faults:
            del good[one]
        stepped = {one: step for one, step in good.items() if one in self._stepping} if self._resetting else good
        self._stepping.difference_update(stepped)
        self._arrived.update(stepped)
        self._observations.update(zip(rows.ids, rows.observations, strict=True))
        for one in good.keys() - stepped.keys():
            self._end_reset(one)
        ended = [one for row in rows.special if (one := rows.ids[row]) in stepped and self._ends(one, stepped[one])]
        self._send_resets(sorted(ended))

    def _end_reset(self, env_id: int) -> None:
        self._states[env_id] = EnvState.RUN
        self._ready.add(env_id)
        self._resetting.discard(env_id)
        self._tries.pop(env_id, None)

    def _ends(self, env_id: int, timestep: BaseEnvTimestep) -> bool:
        """Notes what a step that is not like the others means for its env; whether it is to be reset."""
        if timestep.info.get("abnormal", False):
            self._states[env_id] = EnvState.ERROR
            return self._resets_abnormal
        if not timestep.done:
            return False
        self._episodes[env_id] += 1
        if self._episodes[env_id] >= self._settings.episode_num:
            self._states[env_id] = EnvState.DONE
        elif not self._settings.auto_reset:
            self._states[env_id] = EnvState.NEED_RESET
        else:
            return True
        return False

    def _take_failure(self, env_id: int, error: EnvError) -> None:
        if isinstance(error, WorkerDiedError | EnvTimeoutError):
            self._told.clear()  # others were lost with it, and are built anew
        if env_id in self._stepping:
            self._stepping.discard(env_id)
            self._states[env_id] = EnvState.ERROR
            self._failed[env_id] = error
            return
        if env_id in self._seeds:
            self._unseeded.add(env_id)  # nobody knows whether it took its seed
        tries = self._tries[env_id] = self._tries.get(env_id, 0) + 1
        if tries > self._settings.max_retry:
            close_quietly(self)
            error.add_note(f"the reset of env {env_id} failed {tries} times, and the manager is closed")
            raise error
        self._due[env_id] = time.monotonic() + self._settings.retry_waiting_time

    def _until_due(self, timeout: float | None) -> float:
        """Seconds until a reset is to be tried again, or the time is over. Passes them where nothing is in flight."""
        left = max(0.0, min(self._due.values()) - time.monotonic())
        if timeout is not None:
            left = min(left, timeout)
        if not self._pool.in_flight_count:
            time.sleep(left)  # what retry_waiting_time asks for: there is nothing to wait for but the time
        return left

    def _try_again(self) -> None:
        now = time.monotonic()
        due = sorted(one for one, when in self._due.items() if when <= now)
        for one in due:
            del self._due[one]
        self._send_resets(due, renew=self._settings.retry_type == "renew")

    # ---- what is ready -----------------------------------------------------------------------

    @property
    def ready_obs(self) -> dict[int, Any]:
        """The observations of the envs that can take an action, by env id.

        Waits while all envs that live are resetting; empty when all are DONE.
        """
        ids = self._await_ready()
        seen = all_copied([self._observations[one] for one in ids])  # nobody else has what is handed out
        return self._output(dict(zip(ids, seen, strict=True)))

    @property
    def next_obs(self) -> dict[int, Any]:
        """An alias of ``ready_obs``."""
        return self.ready_obs

    @property
    def ready_obs_id(self) -> list[int]:
        """The ids of ``ready_obs``."""
        return self._await_ready()

    @property
    def ready_imgs(self) -> dict[int, Any]:
        """The pictures of the envs that can take an action, by env id."""
        ids = self._await_ready()
        return dict(zip(ids, self._pool.render(ids), strict=True)) if ids else {}

    def _await_ready(self) -> list[int]:
        self._require_open()
        if self._backend != "inline" and (self._stepping or self._resetting):
            self._gather(self.env_num, 0, 0.0)  # what has become ready meanwhile
        while self._resetting and not (self._ready or self._arrived or self._failed):
            self._gather(1, 1, None)
        return self.ready_env

    @property
    def active_env(self) -> list[int]:
        """The envs in state RUN, with or without an action in flight."""
        return [one for one, state in self._states.items() if state is EnvState.RUN]

    @property
    def ready_env(self) -> list[int]:
        """The envs that can take an action now."""
        return sorted(self._ready)

    @property
    def env_done(self) -> list[int]:
        """The envs that have played their ``episode_num``."""
        return [one for one, state in self._states.items() if state is EnvState.DONE]

    @property
    def all_done(self) -> bool:
        """Whether all envs have."""
        return len(self.env_done) == self.env_num

    @property
    def done(self) -> bool:
        """An alias of ``all_done``."""
        return self.all_done

    @property
    def closed(self) -> bool:
        """Whether it is not launched, or closed again."""
        return self._pool is None

    @property
    def env_num(self) -> int:
        """How many envs there are."""
        return len(self._recipes)

    @property
    def env_state(self) -> dict[int, EnvState]:
        """The state of every env."""
        return dict(self._states)

    @property
    def episode_count(self) -> dict[int, int]:
        """The episodes that every env has ended since the launch."""
        return dict(self._episodes)

    # ---- seeds, videos -----------------------------------------------------------------------

    def seed(self, seed: Any, env_id: Any = None, dynamic_seed: bool | None = None) -> None:
        """Seeds envs: the seeds go with the next ``launch`` or ``reset``.

        Args:
            seed: A number, for env i that and i; a list, one an env; or a dict from env id to seed.
            env_id: Which envs, where ``seed`` is not a dict; by default all.
            dynamic_seed: As ``BaseEnv.seed`` has it; None leaves that as it was.
        """
        if isinstance(seed, Mapping):
            ids = self._check_ids(list(seed))
            seeds = list(seed.values())
        else:
            ids = self._check_ids(range(self.env_num) if env_id is None else env_id)
            if isinstance(seed, Sequence) or hasattr(seed, "__len__"):
                seeds = list(seed)
            else:
                first = whole_number("seed", seed, 0, _SEED_LIMIT - 1)
                seeds = [first + one for one in ids]
        if len(seeds) != len(ids):
            raise ConfigError(f"seed: expected {len(ids)} seeds, one an env, got {len(seeds)}")
        read = {one: whole_number("seed", value, 0, _SEED_LIMIT - 1) for one, value in zip(ids, seeds, strict=True)}
        if dynamic_seed is not None:
            self._dynamic_seeds.update(dict.fromkeys(ids, true_or_false("dynamic_seed", dynamic_seed)))
        self._seeds.update(read)
        self._unseeded.update(read)
        self._told.difference_update(ids)

    def enable_save_replay(self, replay_path: Any = None) -> None:
        """Every episode from the next reset on becomes a video: see ``BaseEnv.enable_save_replay``.

        Args:
            replay_path: A folder, or a list of folders, one an env; ``./video`` by default.
        """
        paths = [replay_path] * self.env_num if not isinstance(replay_path, list | tuple) else list(replay_path)
        if len(paths) != self.env_num:
            raise ConfigError(f"replay_path: expected {self.env_num} folders, one an env, got {len(paths)}")
        self._replay_paths = {one: "./video" if path is None else str(path) for one, path in enumerate(paths)}
        self._told.clear()

    # ---- the envs themselves -----------------------------------------------------------------

    @property
    def env_ref(self) -> Any:
        """An env of this process, built when it is asked for: to look at, not to play."""
        if self._ref is None:
            self._ref = self._recipes[0]()
        return self._ref

    @property
    def _env_spaces(self) -> EnvSpaces:
        if self._spaces is None:
            self._spaces = spaces_of(self.env_ref)
        return self._spaces

    @property
    def observation_space(self) -> Any:
        """The observation space of one env."""
        return self._env_spaces.observation

    @property
    def action_space(self) -> Any:
        """The action space of one env."""
        return self._env_spaces.action

    @property
    def reward_space(self) -> Any:
        """The reward space of one env."""
        return self._env_spaces.reward

    @property
    def env_info(self) -> BaseEnvInfo:
        """What an env says of itself, in the old form."""
        info: BaseEnvInfo = env_info_of(self.env_ref) if self.closed else self._pool.apply(env_info_of, [0])[0]
        return info

    @property
    def method_name_list(self) -> list[str]:
        """The methods of the envs that can be called on the manager. A subclass may list more."""
        return ["reset", "step", "seed", "close"]

    def __getattr__(self, name: str) -> Any:
        """An attribute of the envs, as a list; a method of theirs that is listed, as a function that gives a list."""
        if name.startswith("_"):
            raise AttributeError(name)
        if self.closed:
            raise AttributeError(f"{type(self).__name__} has no {name!r}; its envs can be asked once it is launched")
        every = list(range(self.env_num))
        if name in self.method_name_list:
            pool = self._pool
            return lambda *args, **kwargs: pool.call(name, every, args, kwargs)
        return self._pool.apply(read_value(name), every)

    # ---- checks ------------------------------------------------------------------------------

    def _require_open(self) -> None:
        if self._pool is None:
            raise ClosedError(f"{self!r} is not launched: call launch() first")

    def _check_ids(self, ids: Any) -> list[int]:
        if hasattr(ids, "__index__"):
            ids = [ids]
        out: dict[int, None] = {}
        for one in ids:
            if isinstance(one, bool) or not hasattr(one, "__index__"):
                raise EnvIdError(f"env id: expected a whole number, got {one!r}")
            env_id = int(one)
            if not 0 <= env_id < self.env_num:
                raise EnvIdError(f"env id {one} is out of range [0, {self.env_num})")
            if env_id in out:
                raise EnvIdError(f"env id {one} is given twice")
            out[env_id] = None
        return list(out)

    def _output(self, values: dict[int, Any]) -> dict[int, Any]:
        if self._settings.output == "numpy":
            return values
        return {one: _with_tensors(value) for one, value in values.items()}


def _with_tensors(value: Any) -> Any:
    """An observation as float32 tensors; of a timestep the reward too, and the info stays as it is."""
    torch = require("torch", "torch", "torch", "output='torch'")
    if isinstance(value, BaseEnvTimestep):
        return value._replace(obs=to_tensor(value.obs, torch.float32), reward=to_tensor(value.reward, torch.float32))
    return to_tensor(value, torch.float32)


class SubprocessEnvManager(BaseEnvManager):
    """Envs in worker processes. ``step`` returns all that is ready, ``wait_num`` envs at least, after ``timeout``.

    Args:
        env_fn: As of ``BaseEnvManager``.
        env_cfg: As there.
        env_num: As there.
        episode_num: As there.
        timeout: Seconds that ``step`` waits for all; None: returns as soon as ``wait_num`` are ready.
        wait_num: Envs that ``step`` waits for in any case, at most those in flight.
        cfg: A dict over ``default_config()``.
    """

    _backend = "process"
    _defaults = {**DEFAULTS, "wait_num": 2, "step_wait_timeout": 0.01}  # noqa: RUF012  (read only)

    def __init__(
        self,
        env_fn: Any,
        env_cfg: Any = None,
        env_num: int | None = None,
        episode_num: Any = None,
        timeout: Any = ...,
        wait_num: Any = ...,
        *,
        cfg: Any = None,
        **settings: Any,
    ) -> None:
        if timeout is not ...:
            settings["step_wait_timeout"] = timeout
        if wait_num is not ...:
            settings["wait_num"] = wait_num
        super().__init__(env_fn, env_cfg, env_num, episode_num, cfg=cfg, **settings)


class AsyncSubprocessEnvManager(SubprocessEnvManager):
    """``SubprocessEnvManager`` by the name of its successor."""


class SyncSubprocessEnvManager(SubprocessEnvManager):
    """Envs in worker processes; ``step`` returns when all actions are done."""

    _defaults = DEFAULTS
