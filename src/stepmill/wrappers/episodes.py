"""Wrappers that change how episodes begin and end: no-ops and FIRE after a reset, an episode per life, a time limit."""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from stepmill.registry.env_state import HasLayerState
from stepmill.values.arguments import whole_number
from stepmill.wrappers.base import RecordedWrapper, Shapes, ShapeTeller, refuse

NOOP = 0
FIRE = 1


def action_meanings(env: gymnasium.Env[Any, Any]) -> list[str] | None:
    """The name of each action; None if the env does not say."""
    if not env.has_wrapper_attr("get_action_meanings"):
        return None
    return list(env.get_wrapper_attr("get_action_meanings")())


def require_noop(wrapper: str, env: gymnasium.Env[Any, Any]) -> None:
    """Raises an error if the env has no action 0, or if action 0 is known to do something."""
    if not isinstance(env.action_space, spaces.Discrete) or not env.action_space.contains(NOOP):
        refuse(wrapper, "a Discrete action space that holds action 0, the no-op", env.action_space)
    meanings = action_meanings(env)
    if meanings is not None and meanings[:1] != ["NOOP"]:
        refuse(wrapper, "an env whose action 0 means NOOP", f"one with the actions {meanings}")


def fires(env: gymnasium.Env[Any, Any]) -> bool:
    """Whether action 1 means FIRE."""
    meanings = action_meanings(env)
    return meanings is not None and meanings[FIRE : FIRE + 1] == ["FIRE"]


class NoopResetEnv(RecordedWrapper):
    """After each reset, takes action 0 between 1 and ``noop_max`` times.

    Takes any observation, also a Dict, and Discrete actions; if the env says what they mean, 0 must be NOOP.

    - The number is drawn from the generator that ``reset(seed=...)`` seeded, ``np_random`` of the unwrapped env: same
      seed, same episodes. If an env does not use that generator, the wrapper has its own.
    - If an episode ends during the no-ops, a new one starts, and the remaining no-ops are taken in it.
    - The info is that of the reset, updated with those of the no-ops.

    Args:
        env: The env to wrap.
        noop_max: The most no-ops, at least 1.
    """

    _state_names = ("_own_generator",)

    def __init__(self, env: gymnasium.Env[Any, Any], noop_max: int = 30) -> None:
        self.noop_max = whole_number("NoopResetEnv: noop_max", noop_max, 1)
        super().__init__(env, noop_max=noop_max)
        require_noop("NoopResetEnv", env)
        self._own_generator: np.random.Generator | None = None

    @staticmethod
    def new_shape(obs_shape: Any, act_shape: Any, rew_shape: Any, noop_max: int = 30) -> Shapes:
        """All shapes stay the same."""
        whole_number("NoopResetEnv: noop_max", noop_max, 1)
        return obs_shape, act_shape, rew_shape

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Starts an episode and lets a random number of steps pass."""
        obs, said = self._seeded_reset(seed, options)
        info = dict(said)  # the env may write its next info into the same dict
        generator = self.unwrapped.np_random if self._own_generator is None else self._own_generator
        for _ in range(int(generator.integers(1, self.noop_max + 1))):
            obs, _, terminated, truncated, said = self.env.step(NOOP)
            info = {**info, **said}
            if terminated or truncated:
                # Without the seed: with it the new episode would equal the one that just ended.
                obs, said = self.env.reset(options=options)
                info = dict(said)
        return obs, info

    def _seeded_reset(self, seed: int | None, options: dict[str, Any] | None) -> tuple[Any, dict[str, Any]]:
        if seed is None:
            return self.env.reset(options=options)
        before = self.unwrapped.np_random
        obs, info = self.env.reset(seed=seed, options=options)
        # Seeding makes a new generator. If it is still the old one, the env uses another source of randomness.
        untouched = self.unwrapped.np_random is before
        self._own_generator = np.random.default_rng(seed) if untouched else None
        return obs, info


class FireResetEnv(RecordedWrapper):
    """After each reset takes action 1, which must mean FIRE: some games do not start without it.

    Takes any observation, also a Dict. If the episode ends on the FIRE, a new one starts, without a FIRE. The info is
    that of the reset, updated with that of the FIRE.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        if not isinstance(env.action_space, spaces.Discrete) or not env.action_space.contains(FIRE):
            refuse("FireResetEnv", "a Discrete action space that holds action 1", env.action_space)
        if not fires(env):
            meanings = action_meanings(env)
            told = "one without get_action_meanings()" if meanings is None else f"one with the actions {meanings}"
            refuse("FireResetEnv", "an env whose action 1 means FIRE", told)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Starts an episode and fires once."""
        _, at_reset = self.env.reset(seed=seed, options=options)
        info = dict(at_reset)  # the env may write its next info into the same dict
        obs, _, terminated, truncated, said = self.env.step(FIRE)
        if terminated or truncated:
            return self.env.reset(options=options)
        return obs, {**info, **said}


class EpisodicLifeEnv(RecordedWrapper):
    """A lost life ends the episode (``terminated``), and the next one continues the game.

    Takes any observation, also a Dict, and Discrete actions; if the env says what they mean, 0 must be NOOP. The env
    says how many lives are left in ``info["lives"]`` or through ``ale.lives()``.

    - The game itself is reset only after its real end. Before that, ``reset()`` takes one no-op; if the game ends on
      it, it is reset after all.
    - ``reset`` with a seed or options always resets the game: they cannot take effect in the middle of a game.
    - Every lost life counts, also the last one: some games go on with 0 lives left.
    - ``lives`` and ``was_real_done`` (the game is over, or has not started) show the state of the game.
    - Put a time limit inside this wrapper: outside, it would cut episodes, and the game would never be reset.
    """

    _state_names = ("lives", "was_real_done")

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        require_noop("EpisodicLifeEnv", env)
        self.lives = 0
        self.was_real_done = True

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Starts an episode: with the next life, or after the real end with a new game."""
        if self.was_real_done or seed is not None or options:
            obs, info = self.env.reset(seed=seed, options=options)
        else:
            obs, _, terminated, truncated, info = self.env.step(NOOP)
            if terminated or truncated:
                obs, info = self.env.reset()
        self.was_real_done = False
        self.lives = self._lives_left(info)
        return obs, info

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Takes a step; also terminated if a life was lost."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        self.was_real_done = bool(terminated or truncated)
        lives_before, self.lives = self.lives, self._lives_left(info)
        return obs, reward, bool(terminated or self.lives < lives_before), truncated, info

    def _lives_left(self, info: dict[str, Any]) -> int:
        if "lives" in info:
            return int(info["lives"])
        console = getattr(self.unwrapped, "ale", None)
        if console is None:
            refuse("EpisodicLifeEnv", 'an env with its lives in info["lives"] or ale.lives()', self.unwrapped)
        return int(console.lives())


# Without its type parameters: RL Zoo puts a class that has none in the place of Gymnasium's.
class TimeLimit(ShapeTeller, HasLayerState, gymnasium.wrappers.TimeLimit):
    """Truncates an episode at its ``max_episode_steps``-th step.

    If the env ends by itself on that very step, it is both terminated and truncated. The info of that step has
    ``TimeLimit.truncated``, which a ``BaseEnv`` needs because it has one flag for both: True if only the limit ended
    the episode, False if the env did too. The rest of the env's info is kept.

    Observations may be anything, also Dicts. If the outermost wrapper of the env is a ``TimeLimit`` of Gymnasium with
    the same limit, it is removed: this one replaces it, and ``gymnasium.make(env.spec)``, which adds one, makes the
    same env.
    """

    _state_names = ("_elapsed_steps",)

    def __init__(self, env: gymnasium.Env[Any, Any], max_episode_steps: int) -> None:
        limit = whole_number("TimeLimit: max_episode_steps", max_episode_steps, 1)
        if type(env) is gymnasium.wrappers.TimeLimit and env._max_episode_steps == limit:
            env = env.env
        super().__init__(env, limit)
        # Gymnasium starts with None, and a step before the first reset would fail.
        self._elapsed_steps: Any = 0

    @property
    def spec(self) -> EnvSpec | None:  # type: ignore[override]  # a property in every wrapper of Gymnasium's
        """How to make this env again: with this wrapper, and without Gymnasium's own in addition.

        Gymnasium's limit is inside all wrappers of a spec. If this one is innermost too, the spec has the lower of both
        limits; if it is outside others, which may repeat actions, it is only among the spec's wrappers.
        """
        spec: EnvSpec | None = gymnasium.Wrapper.spec.__get__(self)
        if spec is not None and len(spec.additional_wrappers) == 1:
            inner = spec.max_episode_steps
            spec.max_episode_steps = self._max_episode_steps if inner is None else min(inner, self._max_episode_steps)
        return spec

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """One step; the last one is truncated."""
        observation, reward, terminated, truncated, info = super().step(action)
        if self._elapsed_steps >= self._max_episode_steps:
            truncated, info = True, {**info, "TimeLimit.truncated": not terminated}
        return observation, reward, terminated, truncated, info

    @staticmethod
    def new_shape(obs_shape: Any, act_shape: Any, rew_shape: Any, max_episode_steps: int | None = None) -> Shapes:
        """All shapes stay the same."""
        if max_episode_steps is not None:
            whole_number("TimeLimit: max_episode_steps", max_episode_steps, 1)
        return obs_shape, act_shape, rew_shape
