"""An env of DI-engine as a ``BaseEnv``, and as managers step it. Imports nothing from DI-engine."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

from stepmill.envs.adapters.as_gymnasium import AsGymnasium
from stepmill.envs.base_env import BaseEnv, seed_env
from stepmill.envs.env_info import copy_if_possible
from stepmill.envs.results import truth
from stepmill.envs.timestep import LEFTOVER, BaseEnvTimestep, Leftover, more_fields
from stepmill.errors import UnsupportedError
from stepmill.registry.factories import accepts
from stepmill.values.fitting import as_numbers, fits
from stepmill.values.spaces import AnyValue, flatten
from stepmill.values.trees import map_tree, space_from, tree_of

_SPACES = ("observation_space", "action_space")


def is_ding_env(env: Any) -> bool:
    """Whether it has DI-engine's interface and is not one of ours. An env inside a ``gym.Wrapper`` has it as well."""
    return not isinstance(env, BaseEnv) and hasattr(env, "create_collector_env_cfg")


class DingAsBaseEnv(BaseEnv):
    """DI-engine's ``BaseEnv`` with what ours promises.

    - Spaces are Gymnasium's and known from the start: if an env knows them only after a reset, a copy of it is reset
      and closed. If it has none even then, as some with several players, managers accept it and pools do not.
    - A ``Discrete`` action has shape ``(1,)``, as DI-engine's policies send it.
    - ``seed`` is called with the arguments that it accepts: some do not know ``dynamic_seed``.
    - An abnormal timestep has an observation and a reward: the last one and 0 if the env gave none.
    - All other attributes are those of the env inside, ``env``.
    """

    _state_names: tuple[str, ...] = (*BaseEnv._state_names, "_last")

    def __init__(self, env: Any) -> None:
        super().__init__(getattr(env, "_cfg", None))
        self.env = env
        self.observation_space, self.action_space, self.reward_space = _spaces_of(env)
        self.num_agents = int(getattr(env, "num_agents", getattr(env, "num_agent", 1)))
        self._is_discrete = isinstance(self.action_space, spaces.Discrete)
        self._last: Any = None

    def _state_inside(self) -> Any:
        return self.env

    def reset(self, **kwargs: Any) -> Any:
        self._last = self.env.reset(**kwargs)
        return self._last

    def step(self, action: Any) -> BaseEnvTimestep:
        if self._is_discrete:
            action = np.asarray(action)
            action = action[None] if action.ndim == 0 else action.reshape(1)  # the first is the faster one
        return self.pass_on(action)

    def pass_on(self, action: Any) -> BaseEnvTimestep:
        """``step`` with an action that the action space does not describe: the env gets it unchanged."""
        timestep = self.env.step(action)
        if type(timestep) is tuple:  # a wrapper turned the env's timestep into a plain tuple
            timestep = BaseEnvTimestep(*timestep)
        if "abnormal" in timestep.info:
            timestep = timestep._replace(
                obs=self._last if timestep.obs is None else timestep.obs,
                reward=np.zeros(1, np.float32) if timestep.reward is None else timestep.reward,
            )
        self._last = timestep.obs
        return timestep  # type: ignore[no-any-return]

    def close(self) -> None:
        self.env.close()

    def __repr__(self) -> str:
        """The env inside."""
        return repr(self.env)

    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        super().seed(seed, dynamic_seed)  # for `random_action`
        seed_env(self.env, seed, dynamic_seed)

    def random_action(self) -> Any:
        """The env's own, or a sample of the action space if it has none."""
        action = self.env.random_action()
        if action is None and not isinstance(self.action_space, spaces.Space):
            raise UnsupportedError(f"{self!r}: random_action: the env has neither an action space nor a random_action")
        return super().random_action() if action is None else action

    def enable_save_replay(self, replay_path: str | None = None) -> None:
        """Passed on to the env, which writes its videos itself."""
        self._replay_path = "./video" if replay_path is None else str(replay_path)
        self.env.enable_save_replay(self._replay_path)

    def render(self) -> Any:
        """A picture from the env's simulator, which DI-engine's envs keep as ``_env``."""
        inner = getattr(self.env, "_env", self.env)
        return inner.render(mode="rgb_array") if accepts(inner.render, mode="rgb_array") else inner.render()

    def __getattr__(self, name: str) -> Any:
        """All other attributes are the env's."""
        if name == "env":  # not set yet, while it is being unpickled
            raise AttributeError(name)
        return getattr(self.env, name)


def _spaces_of(env: Any) -> list[Any]:
    if all(getattr(env, name, None) is not None for name in _SPACES):
        return _present_spaces(env)
    probe = copy_if_possible(env)
    try:
        probe.reset()
        return _present_spaces(probe)
    finally:
        probe.close()  # if it is the env itself, its next reset builds it again, with its seed and videos


def _present_spaces(env: Any) -> list[Any]:
    found = [gymnasium_space(getattr(env, name, None)) for name in _SPACES]
    reward = getattr(env, "reward_space", None)
    return [*found, BaseEnv.reward_space if reward is None else gymnasium_space(reward)]


def build_env(env_fn: Callable[[], Any]) -> Any:
    """The env that a function makes; an env of DI-engine becomes one of ours. The pool adapts all other kinds."""
    env = env_fn()
    return DingAsBaseEnv(env) if is_ding_env(env) else env


# ---- spaces of old gym ---------------------------------------------------------------------------


def gymnasium_space(space: Any) -> Any:
    """A Gymnasium space with the same values. Anything but a space of old ``gym`` is returned unchanged.

    The generator is not kept: that of old ``gym`` cannot be pickled with newer versions of numpy.
    """
    old = sys.modules.get("gym.spaces")  # if there is such a space, the module has been imported
    if old is None or not isinstance(space, old.Space):
        return space
    return space_from(map_tree(lambda leaf: _leaf(leaf, old), tree_of(space, old)))


def _leaf(space: Any, old: Any) -> Any:
    if isinstance(space, old.Discrete):
        return spaces.Discrete(int(space.n), start=int(getattr(space, "start", 0)))
    if isinstance(space, old.MultiDiscrete):
        return spaces.MultiDiscrete(np.asarray(space.nvec))
    if isinstance(space, old.MultiBinary):
        return spaces.MultiBinary(space.n)
    if isinstance(space, old.Box):
        return spaces.Box(space.low, space.high, space.shape, space.dtype.type)
    return space


# ---- as managers step it -------------------------------------------------------------------------

_FLOAT32 = np.dtype(np.float32)


class DingAsItIs(AsGymnasium):
    """Values that the env's spaces do not describe pass through unchanged.

    DI-engine's own managers do not check spaces, so many of its envs declare spaces that do not match what they accept
    and return: a ``Dict`` with one part per agent while policies send one array with one row per agent; the space of
    one player when there are two; none at all. What a space describes travels in arrays, and actions are checked. The
    rest travels pickled and unchanged.

    ``step`` takes a pair: the action as the space describes it, and ``(action,)`` if the space does not, else None.

    Args:
        base_env: The env.
        by_value: Whether observations need not match the space.
    """

    base_env: DingAsBaseEnv

    def __init__(self, base_env: DingAsBaseEnv, by_value: bool = False) -> None:
        super().__init__(base_env, by_value or not isinstance(base_env.observation_space, spaces.Space))
        declared = base_env.action_space
        self.action_space = spaces.Tuple(
            [declared if isinstance(declared, spaces.Space) else spaces.Tuple([]), AnyValue()]
        )
        self._form = _Form(self.observation_space)
        self._plain_kind: type | None = None  # the class of timesteps with just the four fields

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        observation, info = super().reset(seed=seed, options=options)
        if self._form.holds(observation):
            return observation, info
        return self._form.zeros, {**info, LEFTOVER: Leftover({"obs": copy.deepcopy(observation)})}

    def _is_pair_of_gymnasium(self, observation: Any) -> bool:
        """The observations of two players may look like such a pair."""
        return not isinstance(self.observation_space, AnyValue) and super()._is_pair_of_gymnasium(observation)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        described, sent = action
        timestep = self.base_env.step(described) if sent is None else self.base_env.pass_on(sent[0])
        obs, reward, done, info = timestep.obs, timestep.reward, timestep.done, timestep.info
        if (
            type(timestep) is self._plain_kind
            and type(info) is dict
            and type(reward) is np.ndarray
            and reward.dtype is _FLOAT32
            and reward.shape == (1,)
            and self._form.holds(obs)
        ):  # nearly all of them
            reward = reward.item()
        else:
            obs, reward, info = self._take_apart(timestep)
        if type(done) is not bool:
            done = truth(type(self.base_env.env).__name__, "done", done)
        is_cut_off = bool(info.get("TimeLimit.truncated", False)) if info else False
        return obs, reward, done and not is_cut_off, done and is_cut_off, info

    def _take_apart(self, timestep: Any) -> tuple[Any, float, Any]:
        """What fits in the arrays of the pool; the rest becomes a leftover in the info."""
        obs, reward, info = timestep.obs, timestep.reward, timestep.info
        left = more_fields(timestep)
        if not left:
            self._plain_kind = type(timestep)
        if not self._form.holds(obs):
            left["obs"], obs = copy.deepcopy(obs), self._form.zeros
        numbers = as_numbers(reward)
        if numbers is None or numbers.size != 1:
            left["reward"] = copy.deepcopy(reward)
        if not isinstance(info, Mapping):
            left["info"], info = info, {}
        if left:
            info = {**info, LEFTOVER: Leftover.of(timestep, left)}
        return obs, 0.0 if numbers is None else float(numbers.sum()), info  # a dict by agent counts nothing


class _Form:
    """Whether an observation has the form of a space. Bounds are not checked."""

    def __init__(self, space: spaces.Space[Any]) -> None:
        flat = flatten(space)
        self._tree = flat.tree
        self._leaves = [(np.dtype(leaf.dtype), leaf.shape) for leaf in flat.leaves]
        self.zeros = map_tree(self._zero, flat.tree)

    def holds(self, value: Any) -> bool:
        if type(self._tree) is int:  # nearly always
            return self._accepts(self._tree, value)
        return fits(self._accepts, self._tree, value)

    def _accepts(self, index: int, value: Any) -> bool:
        if index < 0:
            return True
        dtype, shape = self._leaves[index]
        if type(value) is np.ndarray and value.dtype is dtype:  # nearly always
            return bool(value.shape == shape)
        numbers = as_numbers(value)
        return numbers is not None and numbers.shape == shape and np.can_cast(numbers.dtype, dtype, "same_kind")

    def _zero(self, index: int) -> np.ndarray | None:
        return None if index < 0 else np.zeros(self._leaves[index][1], self._leaves[index][0])
