"""``BaseEnv``: the contract between an env and its callers.

::

    env = MyEnv(cfg)                     stores the configuration, builds nothing
    env.seed(0, dynamic_seed=True)       notes the seed
    env.enable_save_replay("./video")    asks for videos; optional
    obs = env.reset()                    the first one builds the simulator
    obs, reward, done, info = env.step(action)
    env.close()                          a later reset builds it again
"""

from __future__ import annotations

import copy
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from stepmill.envs.configs import env_cfgs
from stepmill.envs.conform import as_arrays
from stepmill.envs.env_info import BaseEnvInfo, FromInfo, element_info_of
from stepmill.envs.timestep import BaseEnvTimestep
from stepmill.errors import ConfigError, UnsupportedError
from stepmill.registry.env_state import HasLayerState
from stepmill.registry.factories import accepts
from stepmill.values.arguments import true_or_false, whole_number

SEED_BITS = 31  # of the seeds that we draw: numpy's old generator and many simulators accept no more than 32
MOST_SEED_BITS = 63  # of those that a caller may give, or ask for


class BaseEnv(HasLayerState, ABC):
    """An env as a training framework sees it. A subclass has ``reset``, ``step``, ``close`` and its spaces.

    - ``__init__`` only stores configuration. The first ``reset`` builds the simulator; spaces are known before that.
    - Observations and actions are arrays of float32 or int64 (images may be uint8), or dicts and tuples of these.
      The reward is a float32 array of shape ``(1,)``, and ``done`` is a bool.
    - The ``info`` of a step that ends an episode has ``eval_episode_return``, a float: how well the episode went.
    - ``info["abnormal"]`` in any step: something went wrong, do not train on this step.
    - ``info["TimeLimit.truncated"]`` at an end: the episode was cut off, it did not end by itself.
    - Everything random comes from ``_next_seed()``, never from a global generator.
    - With many agents, observation and action have one row per agent, and so has the reward unless they share one.
    - If ``reset`` has more to report than the observation, such as the possible actions, it sets ``reset_info``; in a
      pool that is the info of the reset.
    - An env that a pool is to save has two more methods, ``get_state()`` and ``set_state(state)``. Its seeds are saved
      with it.
    """

    # A subclass sets the first two, and the others if they differ from the default; or it writes ``info()``.
    observation_space: spaces.Space[Any] = FromInfo("obs_space")  # type: ignore[assignment]
    action_space: spaces.Space[Any] = FromInfo("act_space")  # type: ignore[assignment]
    reward_space: spaces.Space[Any] = FromInfo("rew_space", spaces.Box(-np.inf, np.inf, (1,), np.float32))  # type: ignore[assignment]
    num_agents: int = FromInfo("agent_num", 1)  # type: ignore[assignment]
    # The number of this env in its pool, which sets it. Part of the names of its videos.
    env_id: int = 0
    # Frames per second of video.
    metadata: Mapping[str, Any] = {"render_fps": 30}
    # What the last reset reported besides its observation.
    reset_info: Mapping[str, Any] = {}

    # What is saved besides ``get_state()``, if the env has that.
    _state_names: tuple[str, ...] = ("_seeds", "_sampler")

    # Seeds of episodes are below 2**_seed_bits. The default suits every simulator; up to 63 for one that accepts more.
    _seed_bits: int = SEED_BITS
    _seeds: EpisodeSeeds | None = None
    _sampler: spaces.Space[Any] | None = None
    _replay_path: str | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """A class that says ``num_agent`` says ``num_agents``."""
        super().__init_subclass__(**kwargs)
        if "num_agent" in vars(cls) and "num_agents" not in vars(cls):
            cls.num_agents = vars(cls)["num_agent"]

    def __init__(self, cfg: Any = None) -> None:
        self._cfg = cfg

    # ---- an episode --------------------------------------------------------------------------

    @abstractmethod
    def reset(self, **kwargs: Any) -> Any:
        """Starts an episode and returns its first observation. Builds the simulator if there is none."""

    @abstractmethod
    def step(self, action: Any) -> BaseEnvTimestep:
        """Takes one action."""

    @abstractmethod
    def close(self) -> None:
        """Frees what ``reset`` built. A second call does nothing."""

    def __repr__(self) -> str:
        """The class and the id; a subclass may say more."""
        return f"{type(self).__name__}(env_id={self.env_id})"

    # ---- randomness --------------------------------------------------------------------------

    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        """Seeds the episodes to come.

        Args:
            seed: From 0 to ``2**63 - 1``.
            dynamic_seed: True (to collect data): every episode has a new seed, drawn from a generator that ``seed``
                seeds. False (to evaluate): every episode starts from ``seed`` itself.
        """
        self._seeds = EpisodeSeeds(seed, dynamic_seed, self._seed_bits)
        self._sampler = None

    def _next_seed(self) -> int | None:
        """For ``reset``: the seed of the new episode; None if ``seed`` was never called."""
        return None if self._seeds is None else self._seeds.next()

    def random_action(self) -> Any:
        """An action of the action space, from this env's own generator."""
        if self._sampler is None:
            self._sampler = copy.deepcopy(self.action_space)
            self._sampler.seed(None if self._seeds is None else self._seeds.seed)
        return as_arrays(self._sampler, self._sampler.sample())

    # ---- what it is --------------------------------------------------------------------------

    @property
    def num_agent(self) -> int:
        """An alias of ``num_agents``."""
        return self.num_agents

    @num_agent.setter
    def num_agent(self, value: int) -> None:
        self.num_agents = value

    def info(self) -> BaseEnvInfo:
        """The spaces in the old form, derived from the spaces themselves. An env that writes it may leave them out."""
        return BaseEnvInfo(
            agent_num=self.num_agents,
            obs_space=element_info_of(self.observation_space),
            act_space=element_info_of(self.action_space),
            rew_space=element_info_of(self.reward_space),
            use_wrappers=None,
        )

    # ---- pictures ----------------------------------------------------------------------------

    def render(self) -> Any:
        """A picture of the current state: an RGB array of uint8, (height, width, 3). Optional."""
        raise UnsupportedError(
            f"{type(self).__name__} has no renderer: give it a method render() that returns an image"
        )

    def enable_save_replay(self, replay_path: str | None = None) -> None:
        """Records every episode from the next ``reset`` on as a video file in ``replay_path`` (``./video``).

        Call it after ``seed`` and before ``reset``: some simulators must be built with drawing switched on.
        """
        from stepmill.envs.replay import record_episodes

        if not isinstance(replay_path, str | os.PathLike | None):
            raise ConfigError(f"{type(self).__name__}: replay_path: expected a folder, got {replay_path!r}")
        self._replay_path = "./video" if replay_path is None else os.fspath(replay_path)
        record_episodes(self, self._replay_path)

    # ---- configurations ----------------------------------------------------------------------

    @staticmethod
    def create_collector_env_cfg(cfg: Any) -> list[Any]:
        """One cfg for each env that collects data: ``cfg["collector_env_num"]`` copies, ``is_train`` true."""
        return env_cfgs(cfg, "collector_env_num", is_train=True)

    @staticmethod
    def create_evaluator_env_cfg(cfg: Any) -> list[Any]:
        """One cfg for each env that evaluates: ``cfg["evaluator_env_num"]`` copies, ``is_train`` false."""
        return env_cfgs(cfg, "evaluator_env_num", is_train=False)


# ---- seeds ---------------------------------------------------------------------------------------


class EpisodeSeeds:
    """Static: every episode has the same seed. Dynamic: each has a new seed, and the whole run repeats.

    Dynamic seeds have ``bits`` bits and come from the env's own generator. The default suits every simulator; with 63
    bits two envs hardly ever draw the same seed.
    """

    def __init__(self, seed: Any, dynamic: Any = True, bits: int = SEED_BITS) -> None:
        self.dynamic = true_or_false("dynamic_seed", dynamic)
        # A dynamic seed only seeds the generator, so it may have more bits than the env accepts. A static one goes to
        # the env; the default number of bits is our caution and says nothing about the env.
        is_free = self.dynamic or bits == SEED_BITS
        self.seed = whole_number("seed", seed, 0, 2 ** (MOST_SEED_BITS if is_free else bits) - 1)
        self._limit = 2**bits
        self._generator = np.random.Generator(np.random.PCG64(self.seed))

    def next(self) -> int:
        """The seed of the next episode."""
        if not self.dynamic:
            return self.seed
        return int(self._generator.integers(self._limit))


def seed_env(env: Any, seed: int, dynamic_seed: bool) -> None:
    """Calls ``env.seed``, without ``dynamic_seed`` if it does not accept that, as in older envs."""
    if accepts(env.seed, seed, dynamic_seed):
        env.seed(seed, dynamic_seed)
    elif accepts(env.seed, seed, dynamic_seed=dynamic_seed):
        env.seed(seed, dynamic_seed=dynamic_seed)
    else:
        env.seed(seed)


# ---- around an env of another kind ---------------------------------------------------------------


class EnvHolder(BaseEnv):
    """Holds an env, ``_env``, which ``_open`` builds when it is first needed and again after ``close``."""

    _env: Any = None
    _is_open = _has_begun = False
    # Set by ``_open``.
    _observation_space: spaces.Space[Any]
    _action_space: spaces.Space[Any]

    _state_names: tuple[str, ...] = (*BaseEnv._state_names, "_has_begun")

    @abstractmethod
    def _open(self) -> Any:
        """The env inside, built if it is not yet."""

    def _state_inside(self) -> Any:
        return self._open()

    @property
    def observation_space(self) -> spaces.Space[Any]:  # type: ignore[override]
        self._open()
        return self._observation_space

    @property
    def action_space(self) -> spaces.Space[Any]:  # type: ignore[override]
        self._open()
        return self._action_space

    @property
    def metadata(self) -> Any:  # type: ignore[override]
        return self._open().metadata

    @property
    def render_mode(self) -> str | None:
        """The render mode of the env inside."""
        return getattr(self._open(), "render_mode", None)

    def render(self) -> Any:
        return self._open().render()

    def close(self) -> None:
        if self._env is not None:
            self._env.close()
        self._env = None
        self._is_open = self._has_begun = False
