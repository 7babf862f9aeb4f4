"""Atari games as a ``BaseEnv``, with the usual preprocessing."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from stepmill.envs.base_env import BaseEnv
from stepmill.envs.configs import check_mapping, read_cfg
from stepmill.envs.conform import action_reader
from stepmill.envs.env_info import BaseEnvInfo
from stepmill.envs.timestep import BaseEnvTimestep
from stepmill.errors import ConfigError, UnknownEnvError, UsageError
from stepmill.registry.factories import check_keys
from stepmill.registry.records import GymnasiumFactory
from stepmill.values.arguments import true_or_false, whole_number
from stepmill.values.fitting import Fitter
from stepmill.wrappers.atari import atari_wrappers, wrap_atari
from stepmill.wrappers.catalogue import wrapper_names
from stepmill.wrappers.episodes import fires
from stepmill.zoo.atari.factory import AleFactory
from stepmill.zoo.atari.game import AtariGame, quiet_emulator
from stepmill.zoo.atari.games import GAMES
from stepmill.zoo.atari.options import DEFAULTS

# Arguments of wrap_atari.
_WRAPPING = {"noop_max": 30, "frame_skip": 4, "fire_reset": True, "size": 84, "scale": True, "frame_stack": 4}
_DEFAULTS: dict[str, Any] = {**_WRAPPING, "is_train": True, "env_kwargs": {}, "replay_path": None}


class AtariEnv(BaseEnv):
    """A game of the Arcade Learning Environment with the usual preprocessing: ``AtariGame`` as a ``BaseEnv``.

    What is no preprocessing of pictures (no ``size``, no ``frame_skip``, observations of RAM or sound, continuous
    actions) is left to the wrappers of ``wrap_atari``.

    Keys of ``cfg``:

    - ``env_id``: ``"ALE/Pong-v5"``, ``"PongNoFrameskip-v4"``; the only required key;
    - ``is_train`` (true): rewards are clipped to their sign, and a lost life ends the episode;
    - ``noop_max`` (30), ``frame_skip`` (4), ``fire_reset`` (true), ``size`` (84, or (height, width)), ``scale`` (true:
      float32 from 0 to 1; else uint8), ``frame_stack`` (4): as in ``wrap_atari``;
    - ``env_kwargs``: a dict for ``gymnasium.make``: a mode, a difficulty, ``repeat_action_probability``;
    - ``replay_path``: a folder for a video of every episode.

    ``info["eval_episode_return"]`` is the true score of the game so far, even if rewards are clipped.

    After a lost life, ``reset`` continues with the next life, so a seed applies to a whole game: a new game starts when
    the last one is over, or after ``seed``. With ``dynamic_seed=False`` every episode is a new game from that seed.
    """

    _state_names: tuple[str, ...] = (*BaseEnv._state_names, "_is_seeded_anew")

    def __init__(self, cfg: Any) -> None:
        super().__init__(cfg)
        given = read_cfg("AtariEnv", cfg, ["env_id"], _DEFAULTS)
        is_train = true_or_false("AtariEnv: is_train", given["is_train"])
        if not isinstance(given["env_id"], str):
            raise ConfigError(f"AtariEnv: env_id: expected the id of a game, got {given['env_id']!r}")
        for key in ("noop_max", "frame_skip", "frame_stack"):
            if given[key]:
                whole_number(f"AtariEnv: {key}", given[key], 1)
        for key in ("fire_reset", "scale"):
            true_or_false(f"AtariEnv: {key}", given[key])
        if isinstance(given["size"], tuple | list) and len(given["size"]) != 2:
            raise ConfigError(f"AtariEnv: size: expected a number, or (height, width), got {given['size']!r}")
        check_mapping("AtariEnv: env_kwargs", given["env_kwargs"])
        self._id = given["env_id"]
        self._wrapping = {key: given[key] for key in _WRAPPING}
        self._wrapping.update(episode_life=is_train, clip_rewards=is_train)
        # Costs nothing until render() is called: the emulator draws its pictures anyway.
        self._env_kwargs = {"render_mode": "rgb_array", **given["env_kwargs"]}
        self.metadata = {"render_fps": 60 / (given["frame_skip"] or 1)}  # as fast as on the console
        if is_train:
            self.reward_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
        self._env: Any = None
        self._is_seeded_anew = False
        if given["replay_path"] is not None:
            self.enable_save_replay(given["replay_path"])

    def __repr__(self) -> str:
        """Names the game too."""
        return f"AtariEnv({self._id}, env_id={self.env_id})"

    # ---- an episode --------------------------------------------------------------------------

    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        super().seed(seed, dynamic_seed)
        self._is_seeded_anew = True

    def reset(self, **kwargs: Any) -> np.ndarray[Any, Any]:
        seed = self._next_seed() if self._begins_a_game() else None
        observation, _ = self._open().reset(seed=seed, options=kwargs or None)
        self._is_seeded_anew = False
        return self._shown(observation)

    def _begins_a_game(self) -> bool:
        if self._env is None or self._is_seeded_anew or not self._wrapping["episode_life"]:
            return True
        is_static = self._seeds is not None and not self._seeds.dynamic
        return is_static or bool(self._env.get_wrapper_attr("was_real_done"))

    def step(self, action: Any) -> BaseEnvTimestep:
        if self._env is None:
            raise UsageError(f"{self!r}: step before reset")
        observation, reward, terminated, truncated, info = self._env.step(self._read_action(action))
        done = bool(terminated or truncated)
        if done:
            score = float(self._env.get_wrapper_attr("episode_return"))
            info = {
                **info,
                "eval_episode_return": score,
                "final_eval_reward": score,
                "TimeLimit.truncated": not terminated,
            }
        return BaseEnvTimestep(self._shown(observation), np.array([reward], np.float32), done, info)

    def close(self) -> None:
        if self._env is not None:
            self._env.close()
        self._env = None

    def render(self) -> Any:
        return self._open().render()

    def _open(self) -> Any:
        """The game, built if it is not yet."""
        if self._env is None:
            self._env = self._wrapped_game() if self._pipeline is None else AtariGame(**self._pipeline)
            self._read_action = action_reader(self._env.action_space, repr(self))
        return self._env

    def _state_inside(self) -> Any:
        return self._open()

    _read_action: Fitter

    def _wrapped_game(self) -> Any:
        try:
            return wrap_atari(self._id, config=self._env_kwargs, **self._wrapping)
        except (RuntimeError, TypeError):
            AleFactory(self._id).check_variant(self._env_kwargs)
            raise

    def _shown(self, observation: Any) -> np.ndarray[Any, Any]:
        """The observation as its space says. Wrappers give it like that."""
        if self._pipeline is None:
            return np.asarray(observation)
        shown: np.ndarray = observation if self._wrapping["frame_stack"] else observation[0]
        return np.divide(shown, np.float32(255)) if self._wrapping["scale"] else shown

    # ---- what it is: without the emulator, unless wrappers do the work ------------------------

    @cached_property
    def _pipeline(self) -> dict[str, Any] | None:
        """The arguments of an ``AtariGame`` that does all that is asked for; None if wrappers have to."""
        kwargs, w = self._kwargs(), self._wrapping
        rom, own_skip = kwargs.pop("game", None), self._env_kwargs.get("frameskip", 1)
        kwargs.pop("frameskip", None)
        is_usual = rom in GAMES and own_skip == 1 and kwargs.keys() <= DEFAULTS.keys()
        if not is_usual or not w["size"] or not w["frame_skip"]:
            return None
        height, width = w["size"] if isinstance(w["size"], tuple | list) else (w["size"], w["size"])
        return {
            "game": rom,
            **kwargs,
            "img_height": height,
            "img_width": width,
            "stack_num": w["frame_stack"] or 1,
            "frame_skip": w["frame_skip"],
            "noop_max": w["noop_max"] or 0,
            "use_fire_reset": w["fire_reset"],
            "episodic_life": w["episode_life"],
            "reward_clip": w["clip_rewards"],
        }

    @cached_property
    def observation_space(self) -> spaces.Space[Any]:  # type: ignore[override]
        if self._pipeline is None:
            space: spaces.Space[Any] = self._open().observation_space
            return space
        frame = self._pipeline["img_height"], self._pipeline["img_width"]
        shape = (self._pipeline["stack_num"], *frame) if self._wrapping["frame_stack"] else frame
        return (
            spaces.Box(0.0, 1.0, shape, np.float32) if self._wrapping["scale"] else spaces.Box(0, 255, shape, np.uint8)
        )

    @cached_property
    def action_space(self) -> spaces.Space[Any]:  # type: ignore[override]
        if self._pipeline is None:
            space: spaces.Space[Any] = self._open().action_space
            return space
        return spaces.Discrete(GAMES[self._pipeline["game"]].action_count(self._has_all_actions))

    def info(self) -> BaseEnvInfo:
        info = super().info()
        if self._pipeline is None:
            has_fire = fires(self._open())
        else:
            has_fire = GAMES[self._pipeline["game"]].fires(self._has_all_actions)
        wrapping = {**self._wrapping, "fire_reset": self._wrapping["fire_reset"] and has_fire}
        info.use_wrappers = wrapper_names(atari_wrappers(**wrapping))
        return info

    @property
    def _has_all_actions(self) -> bool:
        return bool(self._env_kwargs.get("full_action_space"))

    def _kwargs(self) -> dict[str, Any]:
        """What the game is made with: as its id is registered, and what the user gives."""
        quiet_emulator()  # the import registers the games
        try:
            registered = gymnasium.spec(self._id).kwargs
        except gymnasium.error.Error as error:
            raise UnknownEnvError(f"AtariEnv: env_id: expected the id of a game, got {self._id!r}: {error}") from error
        known = GymnasiumFactory(self._id).known_keys()
        if known is not None:
            check_keys("AtariEnv: env_kwargs", self._env_kwargs, [*known, "max_episode_steps"])
        return {**registered, **self._env_kwargs}
