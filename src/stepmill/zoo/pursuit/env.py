"""Pursuit as a ``BaseEnv`` of two agents."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from stepmill.arguments import true_or_false, whole_number
from stepmill.envs.base_env import BaseEnv
from stepmill.envs.configs import read_cfg
from stepmill.envs.timestep import BaseEnvTimestep
from stepmill.errors import ActionError, ActionTypeError, NeedsResetError, ResetOptionError
from stepmill.zoo.pursuit.drawing import draw
from stepmill.zoo.pursuit.world import MOVES, NUMBERS, RUNNERS, PursuitWorld, draw_start, observation_bounds

__all__ = ["TIME_LIMIT", "PursuitEnv", "begin_episode", "read_move"]

TIME_LIMIT = 150
_DEFAULTS = {"shared_reward": False, "time_limit": TIME_LIMIT, "replay_path": None}


def begin_episode(random: np.random.Generator, time_limit: int) -> PursuitWorld:
    """A world whose start and whose chances all come from that generator."""
    return PursuitWorld(draw_start(random), random, time_limit)


class PursuitEnv(BaseEnv):
    """Two runners must get out, each by a gate of its own, before the hunter catches them.

    - Observation: a row of 15 numbers a runner (``PursuitWorld.observe``). Its last one is that of the step in which
      it was caught or got out; after that its row is zeros.
    - Action: a move a runner: 0 stay, 1 up, 2 down, 3 left, 4 right. That of a runner who left does nothing.
    - Reward: a number a runner: -0.01 a step, 1 more for getting out, 1 less for being caught, 0 after that. With
      ``shared_reward`` one number, their sum.
    - Done when nobody is in play, or cut off after ``time_limit`` steps.

    The cfg may have ``shared_reward`` (False), ``time_limit`` (150), and ``replay_path``, a folder for a video of every
    episode. ``info["alive"]`` says of each runner whether it acts in the next step, ``info["is_success"]`` whether both
    got out. ``eval_episode_return`` is the sum of all rewards of both.
    """

    num_agents = RUNNERS
    metadata = {"render_fps": 20}  # noqa: RUF012  (read only)

    def __init__(self, cfg: Any = None) -> None:
        super().__init__({} if cfg is None else cfg)
        settings = read_cfg("PursuitEnv", self._cfg, defaults=_DEFAULTS)
        self._shared = true_or_false("PursuitEnv: shared_reward", settings["shared_reward"])
        self._time_limit = whole_number("PursuitEnv: time_limit", settings["time_limit"], 1)
        low, high = (np.array([bounds] * RUNNERS, np.float32) for bounds in observation_bounds())
        self.observation_space = spaces.Box(low, high)
        self.action_space = spaces.MultiDiscrete([len(MOVES)] * RUNNERS)
        self.reward_space = spaces.Box(-np.inf, np.inf, (1 if self._shared else RUNNERS,), np.float32)
        self._world: PursuitWorld | None = None
        self._random: np.random.Generator | None = None
        self._return = 0.0
        if settings["replay_path"] is not None:
            self.enable_save_replay(settings["replay_path"])

    def reset(self, **kwargs: Any) -> NDArray[np.float32]:
        """Begins an episode; it takes no arguments."""
        if kwargs:
            raise ResetOptionError(f"PursuitEnv: reset: expected no arguments, got {', '.join(kwargs)}")
        seed = self._next_seed()
        if seed is not None or self._random is None:
            self._random = np.random.default_rng(seed)
        self._world = begin_episode(self._random, self._time_limit)
        self._return = 0.0
        return self._observe(self._world, [True] * RUNNERS)

    def step(self, action: Any) -> BaseEnvTimestep:
        """Moves both runners."""
        world = self._running("step")
        if world.over:
            raise NeedsResetError("PursuitEnv: step: the episode is over, call reset first")
        moves = _read_moves(action)
        took_part = [world.in_play(i) for i in range(RUNNERS)]
        rewards = world.step(moves)
        self._return += sum(rewards)
        alive = np.array([world.in_play(i) for i in range(RUNNERS)])
        info: dict[str, Any] = {"is_success": world.succeeded, "alive": alive & (not world.over)}
        if world.over:
            info["TimeLimit.truncated"] = bool(alive.any())
            info["eval_episode_return"] = info["final_eval_reward"] = self._return
        reward = np.array([sum(rewards)] if self._shared else rewards, np.float32)
        return BaseEnvTimestep(self._observe(world, took_part), reward, world.over, info)

    def render(self) -> NDArray[np.uint8]:
        """The picture of this moment."""
        return draw(self._running("render"))

    def close(self) -> None:
        """Frees the world; a reset after it makes a new one."""
        self._world = None

    @staticmethod
    def _observe(world: PursuitWorld, sees: list[bool]) -> NDArray[np.float32]:
        nothing = np.zeros(NUMBERS, np.float32)
        return np.stack([world.observe(i) if sees[i] else nothing for i in range(RUNNERS)])

    def _running(self, call: str) -> PursuitWorld:
        if self._world is None:
            raise NeedsResetError(f"PursuitEnv: {call}: expected a reset before it, got none")
        return self._world


def _read_moves(action: Any) -> list[int]:
    moves = np.asarray(action)
    if moves.shape != (RUNNERS,):
        raise ActionError(f"PursuitEnv: action: expected a move for each of {RUNNERS} runners, got {action!r}")
    return [read_move("PursuitEnv", move) for move in moves]


def read_move(owner: str, value: Any) -> int:
    """One move as a number from 0 to 4, or an error in that env's name."""
    move = np.asarray(value)
    if move.dtype.kind not in "iu" or move.size != 1:
        raise ActionTypeError(f"{owner}: action: expected a whole number as a move, got {value!r}")
    if not 0 <= int(move.item()) < len(MOVES):
        raise ActionError(f"{owner}: action: expected a move from 0 to {len(MOVES) - 1}, got {value!r}")
    return int(move.item())
