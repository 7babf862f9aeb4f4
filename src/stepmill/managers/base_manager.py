"""The env managers: envs by id, dictionaries in and out, over a pool."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from stepmill.envs.env_info import BaseEnvInfo
from stepmill.envs.timestep import BaseEnvTimestep
from stepmill.errors import EnvError, UsageError, summary
from stepmill.hosts.host import Uncopyable
from stepmill.managers.config import (
    DEFAULTS,
    asked_by_envs,
    read_actions,
    read_ids,
    read_recipes,
    read_replay_paths,
    read_reset_params,
    read_seeds,
    read_settings,
)
from stepmill.managers.env_side import EnvSpaces, env_info_of, spaces_of
from stepmill.managers.scheduler import Scheduler
from stepmill.managers.states import EnvState, Standing
from stepmill.registry.factories import close_quietly
from stepmill.values.arguments import true_or_false
from stepmill.values.saved_states import SavedState, SavedStates

if TYPE_CHECKING:  # imported when it is used: it brings a server
    from stepmill.tools.watching.watch import Watch


class BaseEnvManager(Uncopyable):
    """Several envs, stepped in this process, one after another.

    Args:
        env_fn: A function that makes an env from a configuration; or a list of functions, each of which makes one. The
            env is a ``BaseEnv``, or any other kind that pools take.
        env_cfg: With one function: a list of configurations, one per env.
        env_num: How many envs; given to be checked against ``env_cfg``.
        episode_num: Episodes that each env plays before it is DONE; ``"inf"`` for no limit.
        cfg: A dict of settings that override those of ``default_config()``.
    """

    _backend = "inline"
    _defaults: Mapping[str, Any] = DEFAULTS
    _resets_abnormal = False  # whether an env whose step was abnormal is reset at once

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
        in_processes = self._backend != "inline"
        name = type(self).__name__
        self._recipes = read_recipes(env_fn, env_cfg, env_num)
        is_said = "shared_memory" in settings or (isinstance(cfg, Mapping) and "shared_memory" in cfg)
        defaults = self._defaults if is_said else {**self._defaults, **asked_by_envs(self._recipes)}
        self._settings = read_settings(name, defaults, in_processes, cfg, settings)
        self._ref: Any = None
        self._page: Watch | None = None
        self._spaces: EnvSpaces | None = None
        self._scheduler = Scheduler(self, self._recipes, self._settings, self._backend, self._resets_abnormal)

    @classmethod
    def default_config(cls) -> dict[str, Any]:
        """The keys that ``cfg`` may have, with their defaults."""
        return dict(cls._defaults)

    # ---- life --------------------------------------------------------------------------------

    def launch(self, reset_param: Any = None) -> None:
        """Builds the envs and resets them. A manager that was closed can be launched again."""
        if not self.closed:
            raise UsageError(f"{self!r} is launched already: close() it first")
        if isinstance(reset_param, Mapping):  # it may name only some of the envs, but all are reset
            reset_param = {**dict.fromkeys(range(self.env_num)), **reset_param}
        read_reset_params(reset_param, None, self.env_num)  # before anything is built
        self._spaces = self._scheduler.open()
        try:
            self.reset(reset_param)
        except BaseException:
            close_quietly(self)
            raise

    def close(self) -> None:
        """Ends all envs and frees everything, whatever they are doing. Closing twice does nothing."""
        self._scheduler.close()  # first: if it refuses, nothing changes
        page, self._page = self._page, None
        if page is not None:
            page.close()
        ref, self._ref = self._ref, None
        if ref is not None:
            close_quietly(ref)

    def watch(self, *, port: int = 0, open_browser: bool | None = None) -> Watch:
        """Opens a page on this machine that shows the envs while you use them, as that of a pool does.

        Args:
            port: The port of the page, on this machine's own address; 0: any that is free.
            open_browser: Whether to open it in the default browser; by default if there is a terminal and a display.
        """
        from stepmill.tools.watching.watch import page_of

        pool = self._scheduler.pool.watched(type(self).__name__)
        self._page = page_of(pool, self._page, port, open_browser)
        return self._page

    @property
    def closed(self) -> bool:
        """Whether it is not launched, or closed again."""
        return self._scheduler.closed

    @property
    def env_num(self) -> int:
        """How many envs there are."""
        return self._scheduler.env_num

    def __repr__(self) -> str:
        """The class, and how many envs."""
        return repr(self._scheduler)

    def __enter__(self) -> Self:
        """The manager itself; leaving closes it."""
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # ---- reset -------------------------------------------------------------------------------

    def reset(self, reset_param: Any = None, env_id: Any = None) -> None:
        """Resets envs and waits for them: all of them, those of ``env_id``, or those that a dict names.

        Args:
            reset_param: Keyword arguments of the envs' ``reset``: a list of dicts, one per env that is reset, or a
                dict from env id to a dict (None: the same as last time). The automatic resets that follow use them too.
            env_id: Which envs; by default all, or those of the dict.

        The results of actions that these envs have in flight are dropped. Episode counts go on. ``ready_obs`` has the
        observations.

        Raises:
            UsageError: The manager is not launched.
            InputError: Invalid ids or parameters. Nothing was reset.
            EnvError: A reset failed ``max_retry`` times more: the manager is closed.

        Example:
            >>> manager.reset()  # all envs
            >>> manager.reset({0: None, 2: None})  # two of them
            >>> sorted(manager.ready_obs)
            [0, 1, 2]
        """
        self._scheduler.require_launched()
        self._scheduler.reset(read_reset_params(reset_param, env_id, self.env_num))

    # ---- saved states ------------------------------------------------------------------------

    @property
    def state_kind(self) -> str:
        """How envs are saved, or ``"none: "`` and why they cannot be; see the ``state_kind`` of pools."""
        return self._scheduler.pool.state_kind

    def save(self, env_ids: Any = None, *, by: str | None = None) -> SavedStates:
        """Saves envs as they are now, with all that the manager knows about them.

        That is their state (``env_state``), how many episodes they have ended, their seeds, the parameters of their
        resets and what their next ``random_action`` is. Waits for those that are being reset.

        Args:
            env_ids: The envs; by default all.
            by: ``"pickle"`` pickles envs as they are; see the ``save`` of pools.

        Returns:
            A sequence of states, one per env, for ``restore``. They cannot change, and can be pickled.

        Raises:
            UsageError: The manager is not launched; or one of the envs has an action in flight, or a result that no
                ``step`` has returned (``InFlightError``); or it cannot be saved (``UnsupportedError``).

        Example:
            >>> states = manager.save()
            >>> timesteps = manager.step({env_id: 1 for env_id in manager.ready_obs})
            >>> manager.restore(states)  # as if that step had not been
        """
        self._scheduler.require_launched()
        return self._scheduler.save(read_ids(env_ids, self.env_num), by)

    def restore(self, states: SavedStates | SavedState | Sequence[SavedState], env_ids: Any = None) -> None:
        """Gives envs saved states, and they go on from there. ``ready_obs`` has what they show.

        Args:
            states: What ``save`` returned, of this manager or of another one with the same envs and settings: one state
                per env, or a single one (``states[0]``) for all of them.
            env_ids: The envs; by default all.

        Raises:
            InputError: A state is damaged, of a pool, or of another env or configuration, or their number is another
                one (``StateError``). Nothing has changed.
            UsageError: As for ``save``. Nothing has changed.
            EnvError: An env failed, such as one whose worker has died. It is in state ERROR now, or with the next
                ``step``; a ``reset`` brings it back.
        """
        self._scheduler.require_launched()
        self._scheduler.restore(states, read_ids(env_ids, self.env_num))

    def fork(self, source: int, targets: Any) -> None:
        """Gives envs the state of another one: ``restore(save([source])[0], targets)``.

        Args:
            source: The env to copy.
            targets: The envs that get its state.
        """
        self._scheduler.require_launched()
        (one,) = read_ids([source], self.env_num)
        self._scheduler.fork(one, read_ids(targets, self.env_num))

    # ---- step --------------------------------------------------------------------------------

    def step(self, actions: Any, env_id: Any = None) -> dict[int, BaseEnvTimestep]:
        """Sends actions, by env id, and returns the timesteps that are ready, by env id.

        Waits as ``wait_num`` and ``step_wait_timeout`` say, and never returns only ended envs while others run.

        Args:
            actions: A dict with an action for each of the envs to step, which must be ready (``ready_obs``). An empty
                dict collects what is in flight. With ``env_id``, a list or an array of actions.
            env_id: The envs that a list of actions is for.

        Returns:
            A ``BaseEnvTimestep`` ``(obs, reward, done, info)`` for each env that is ready, by env id.

        Raises:
            UsageError: The manager is not launched, or one of the envs cannot take an action now (``InFlightError``,
                which lists the state of each). Nothing was sent.
            InputError: Invalid ids or actions. Nothing was sent.
            EnvError: An env failed. It is in state ERROR until it is reset; ``error.batch`` has the other timesteps.

        Example:
            >>> actions = {env_id: 1 for env_id in manager.ready_obs}
            >>> timesteps = manager.step(actions)
            >>> timesteps[0].reward, timesteps[0].done
            (array([1.], dtype=float32), False)
        """
        return self._scheduler.step(actions if env_id is None else read_actions(actions, env_id, self.env_num))

    # ---- what is ready -----------------------------------------------------------------------

    @property
    def ready_obs(self) -> dict[int, Any]:
        """The observations of the envs that can take an action, by env id.

        Waits while all live envs are resetting; empty when all are DONE.
        """
        return self._scheduler.ready_observations()

    @property
    def next_obs(self) -> dict[int, Any]:
        """An alias of ``ready_obs``."""
        return self.ready_obs

    @property
    def ready_obs_id(self) -> list[int]:
        """The ids of ``ready_obs``."""
        return self._scheduler.await_ready()

    @property
    def ready_imgs(self) -> dict[int, Any]:
        """The pictures of the envs that can take an action, by env id."""
        ids = self._scheduler.await_ready()
        return dict(zip(ids, self._scheduler.pool.render(ids), strict=True)) if ids else {}

    @property
    def active_env(self) -> list[int]:
        """The envs in state RUN, with or without an action in flight."""
        return self._scheduler.standings.ids_in(Standing.READY, Standing.STEPPING)

    @property
    def ready_env(self) -> list[int]:
        """The envs that can take an action now."""
        return self._scheduler.standings.ready()

    @property
    def env_done(self) -> list[int]:
        """The envs that have played their ``episode_num``."""
        return self._scheduler.standings.ids_in(Standing.DONE)

    @property
    def all_done(self) -> bool:
        """Whether all envs have played their ``episode_num``."""
        return self._scheduler.standings.count(Standing.DONE) == self.env_num

    @property
    def done(self) -> bool:
        """An alias of ``all_done``."""
        return self.all_done

    @property
    def env_state(self) -> dict[int, EnvState]:
        """The state of every env."""
        return self._scheduler.standings.states()

    def env_state_done(self, env_id: int) -> bool:
        """Whether an env has played its ``episode_num``."""
        (one,) = read_ids([env_id], self.env_num)
        return self._scheduler.standings[one] is Standing.DONE

    @property
    def episode_count(self) -> dict[int, int]:
        """How many episodes each env has finished since the launch."""
        return {one: env.episodes for one, env in enumerate(self._scheduler.envs)}

    def random_action(self) -> dict[int, Any]:
        """An action for each env of ``ready_obs``, by env id: from the env's own ``random_action``, or from its space.

        The same seeds give the same actions.
        """
        ids = self._scheduler.await_ready()
        if not ids:
            return {}
        if self._env_spaces.has_random_action:
            return dict(zip(ids, self._scheduler.pool.random_actions(ids), strict=True))
        return {one: self._sampler(one).sample() for one in ids}

    def _sampler(self, env_id: int) -> Any:
        env = self._scheduler.envs[env_id]
        if env.sampler is None:
            env.sampler = copy.deepcopy(self._env_spaces.action)
            env.sampler.seed(env.seed)
        return env.sampler

    # ---- seeds, videos -----------------------------------------------------------------------

    def seed(self, seed: Any, env_id: Any = None, dynamic_seed: bool | None = None) -> None:
        """Seeds envs: the seeds go with the next ``launch`` or ``reset``.

        Args:
            seed: A number (env i gets seed + i), a list with one seed per env, or a dict from env id to seed.
            env_id: Which envs, if ``seed`` is not a dict; by default all.
            dynamic_seed: See ``BaseEnv.seed``; None leaves it as it was.
        """
        self._scheduler.refuse_if_busy()
        seeds = read_seeds(seed, env_id, self.env_num)
        if dynamic_seed is not None:
            true_or_false("dynamic_seed", dynamic_seed)
        for one, value in seeds.items():
            self._scheduler.envs[one].set_seed(value, dynamic_seed)

    def enable_save_replay(self, replay_path: Any = None) -> None:
        """Records every episode from the next reset on: see ``BaseEnv.enable_save_replay``.

        Args:
            replay_path: A folder, or a list of folders, one per env; ``./video`` by default.
        """
        paths = read_replay_paths(replay_path, self.env_num)
        if not self.closed:
            self._scheduler.pool.check_can_record()
        for env, path in zip(self._scheduler.envs, paths, strict=True):
            env.record_to(path)

    # ---- the envs themselves -----------------------------------------------------------------

    @property
    def env_ref(self) -> Any:
        """An env in this process, built when you first ask for it: to look at, not to play."""
        if self._ref is None:
            try:
                self._ref = self._recipes[0]()
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                text = f"env_ref: the constructor of env 0 failed: {summary(error)}"
                raise EnvError(text, env_id=0, phase="constructor") from error
        return self._ref

    @property
    def _env_ref(self) -> Any:
        """``env_ref`` under the name that DI-engine's pipelines use."""
        return self.env_ref

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
        """What an env says about itself, in the older form."""
        info: BaseEnvInfo = env_info_of(self.env_ref) if self.closed else self._scheduler.pool.env_info()
        return info

    @property
    def method_name_list(self) -> list[str]:
        """The methods of the envs that can be called on the manager. A subclass may list more."""
        return ["reset", "step", "seed", "close"]

    def __getattr__(self, name: str) -> Any:
        """An attribute of the envs, as a list; one of their listed methods, as a function that returns a list."""
        if name.startswith("_") or hasattr(type(self), name):  # the latter: a property that raised an AttributeError
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        if self.closed:
            raise AttributeError(
                f"{type(self).__name__} has no attribute {name!r}; its envs can be asked once it is launched"
            )
        pool = self._scheduler.pool
        if name in self.method_name_list:
            return lambda *args, **kwargs: pool.call(name, None, args, kwargs)
        return pool.read_attribute(name)
