"""Envs of each kind that adapters take, which do as they are told and keep what they are given."""

from __future__ import annotations

from typing import Any, ClassVar

import gymnasium
import numpy as np
import pettingzoo
from gymnasium import spaces
from pettingzoo import ParallelEnv

PAIR = spaces.Box(-1, 1, (2,), np.float32)


class Obedient(gymnasium.Env[Any, Any]):
    """Returns what it is told to, and keeps what it is given."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012

    def __init__(
        self,
        observation_space: Any = PAIR,
        action_space: Any = None,
        at_reset: Any = None,
        at_step: Any = None,
        render_mode: str | None = None,
    ) -> None:
        self.observation_space = observation_space
        self.action_space = action_space or spaces.Discrete(2)
        self.render_mode = render_mode
        self._at_reset, self._at_step = at_reset, at_step
        self.taken: Any = None
        self.closed = self.steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.steps = 0
        return (np.zeros(2, np.float32), {}) if self._at_reset is None else self._at_reset

    def step(self, action: Any) -> Any:
        self.taken = action
        self.steps += 1
        return (np.zeros(2, np.float32), 1.0, False, False, {}) if self._at_step is None else self._at_step

    def render(self) -> Any:
        return np.full((16, 16, 3), self.steps, np.uint8)

    def close(self) -> None:
        self.closed += 1


ZEROS = np.zeros(2, np.float32)


class Two(pettingzoo.ParallelEnv):
    """Two agents for ``length`` steps, each with an action mask in its info."""

    metadata = {"name": "two"}  # noqa: RUF012
    possible_agents = ["a", "b"]  # noqa: RUF012

    def __init__(self, shown: Any = None, action_space: Any = None, length: int = 2) -> None:
        self._shown = np.zeros(3, np.float32) if shown is None else shown
        self._action_space = action_space or spaces.Discrete(2)
        self._length = length
        self.taken: Any = None
        self.closed = 0

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(-5, 5, (3,), np.float32)

    def action_space(self, agent: str) -> Any:
        return self._action_space

    def _infos(self) -> Any:
        return {agent: {"action_mask": np.array([1, int(agent == "a")])} for agent in self.possible_agents}

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents, self.count = list(self.possible_agents), 0
        return self._observations(), self._infos()

    def _observations(self) -> Any:
        return dict.fromkeys(self.possible_agents, self._shown)

    def step(self, actions: Any) -> Any:
        self.taken = actions
        self.count += 1
        if self.count == self._length:
            self.agents = []
        ended = dict.fromkeys(self.possible_agents, not self.agents)
        unpaid = dict.fromkeys(self.possible_agents, 0.0)
        return self._observations(), unpaid, ended, dict.fromkeys(ended, False), self._infos()

    def close(self) -> None:
        self.closed += 1


class Duck:
    """Has the methods of an env, and is none."""

    observation_space = PAIR
    action_space = spaces.Discrete(2)

    def reset(self) -> None:
        """Nothing."""

    def step(self, action: Any) -> None:
        """Nothing."""


# ---- of several agents ---------------------------------------------------------------------------


class TagEnv(pettingzoo.ParallelEnv):
    """``names``: how the agents are called; by default all are players, with equal spaces.

    With ``"hunter"`` in them, hunters see one number less than the others and have an action more, which does nothing.
    """

    metadata = {"name": "tag", "render_modes": []}  # noqa: RUF012  (read only)
    render_mode = None

    def __init__(
        self, most: int = 4, tiles: int = 12, stay: int = 30, join: float = 0.2, names: list[str] | None = None
    ) -> None:
        self.possible_agents = names or [f"player_{i}" for i in range(most)]
        self.agents: list[str] = []
        self._tiles, self._stay, self._join = tiles, stay, join
        self._random = np.random.default_rng()
        self.steps_taken = 0  # of all episodes

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        most, far = len(self.possible_agents), self._tiles / 2
        low, high = [0.0, -far, 0.0, 0.0], [self._tiles - 1.0, far, 1.0, most]
        size = 3 if agent.startswith("hunter") else 4
        return spaces.Box(np.array(low[:size], np.float32), np.array(high[:size], np.float32))

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(4 if agent.startswith("hunter") else 3)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        if seed is not None:
            self._random = np.random.Generator(np.random.PCG64(seed))
        self._tile: dict[str, int] = {}
        self._stayed: dict[str, int] = {}
        self.agents = []
        for agent in self.possible_agents[: (len(self.possible_agents) + 1) // 2]:
            self._enter(agent)
        return self._seen(self.agents), {}

    def _enter(self, agent: str) -> None:
        self._tile[agent], self._stayed[agent] = int(self._random.integers(0, self._tiles)), 0
        self.agents = [one for one in self.possible_agents if one in self.agents or one == agent]

    def step(self, actions: dict[str, Any]) -> Any:
        acting = list(self.agents)
        if list(actions) != acting:
            raise ValueError(f"expected actions of {acting}, got {list(actions)}")
        self.steps_taken += 1
        rewards = dict.fromkeys(acting, 0.1)
        for agent in acting:
            self._tile[agent] = (self._tile[agent] + {1: -1, 2: 1}.get(int(actions[agent]), 0)) % self._tiles
            self._stayed[agent] += 1
        tagger = acting[0]
        tagged = [one for one in acting[1:] if self._tile[one] == self._tile[tagger]]
        for one in tagged:
            rewards[one] = -1.0
            rewards[tagger] += 1.0
        tired = [one for one in acting if one not in tagged and self._stayed[one] >= self._stay]
        self.agents = [one for one in acting if one not in tagged and one not in tired]
        absent = [one for one in self.possible_agents if one not in acting]
        if self._random.random() < self._join and absent:
            self._enter(absent[0])
        seen = self._seen([*acting, *(one for one in self.agents if one not in acting)])
        terminated = {one: one in tagged for one in acting}
        return seen, rewards, terminated, {one: one in tired for one in acting}, {}

    def _seen(self, shown: list[str]) -> dict[str, np.ndarray]:
        tagger = self.agents[0] if self.agents else None
        out = {}
        for one in shown:
            right = 0 if tagger is None else (self._tile[tagger] - self._tile[one]) % self._tiles
            way = right - self._tiles if 2 * right > self._tiles else right
            numbers = [self._tile[one], way, one == tagger, len(self.agents)]
            out[one] = np.array(numbers[: self.observation_space(one).shape[0]], np.float32)
        return out

    def close(self) -> None:
        pass


# ---- whose observations tell where they are ------------------------------------------------------

CRASH = 4  # the action


def length_of(env_id: int, episode: int) -> int:
    """How many steps an episode has."""
    return 2 + (3 * env_id + 2 * episode) % 5


class Diary(gymnasium.Env):
    """Tells its id, its episode, its step and the last action. Every second episode is truncated."""

    observation_space = spaces.Box(-1.0, 1000.0, (4,), np.float32)
    action_space = spaces.Discrete(4)
    bad_resets: ClassVar[list[int]] = []  # the numbers of resets that fail, in whichever env

    def __init__(self, env_id: int = 0) -> None:
        self.env_id, self.episode, self.at = env_id, -1, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        if self.bad_resets and self.bad_resets.pop(0):
            raise ValueError("no reset today")
        self.episode, self.at = self.episode + 1, 0
        return self._told(-1), {}

    def step(self, action: Any) -> Any:
        self.at += 1
        over, even = self.at == length_of(self.env_id, self.episode), self.episode % 2 == 0
        return self._told(action), 10.0 * self.env_id + self.at, over and even, over and not even, {}

    def _told(self, action: int) -> np.ndarray:
        return np.array([self.env_id, self.episode, self.at, action], np.float32)


class FragileDiary(Diary):
    """Fails if it is asked to."""

    action_space = spaces.Discrete(5)

    def step(self, action: Any) -> Any:
        if action == CRASH:
            raise ValueError("it broke")
        return super().step(action)


class EverySpace(gymnasium.Env):
    """A Dict observation with parts of each kind, and an action with parts."""

    observation_space = spaces.Dict(
        {
            "box": spaces.Box(-1.0, 1.0, (2, 3), np.float32),
            "open": spaces.Box(-np.inf, np.inf, (2,), np.float64),
            "half": spaces.Box(0.0, np.inf, (2,), np.float32),
            "scalar": spaces.Box(-5.0, 5.0, (), np.float32),
            "image": spaces.Box(0, 255, (1, 4, 4), np.uint8),
            "wide": spaces.Box(0, 65535, (2,), np.uint16),
            "yes": spaces.Box(0, 1, (3,), np.bool_),
            "number": spaces.Discrete(7),
            "later": spaces.Discrete(7, start=-3),
            "numbers": spaces.MultiDiscrete([3, 5]),
            "table": spaces.MultiDiscrete([[3, 5], [2, 2]]),
            "bits": spaces.MultiBinary(4),
            "grid": spaces.MultiBinary((2, 3)),
            "inner": spaces.Dict({"deep": spaces.Box(0.0, 1.0, (1,), np.float32)}),
            "pair": spaces.Tuple([spaces.Discrete(2), spaces.Box(0.0, 1.0, (2,), np.float32)]),
        }
    )
    action_space = spaces.Dict(
        {
            "turn": spaces.Discrete(3),
            "gears": spaces.MultiDiscrete([2, 4]),
            "push": spaces.Box(-1.0, 1.0, (2,), np.float32),
            "lights": spaces.MultiBinary(3),
            "both": spaces.Tuple([spaces.Discrete(2), spaces.Box(-1.0, 1.0, (), np.float32)]),
        }
    )

    def __init__(self) -> None:
        self.actions: list[Any] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.at = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        if not self.action_space.contains(action):
            raise ValueError(f"not in the action space: {action}")
        self.actions.append(action)
        self.at += 1
        return self.observation_space.sample(), 1.0, self.at == 5, False, {}


class Chase(ParallelEnv):
    """A cat and two mice, of different spaces. The second mouse leaves after two steps, the others after five."""

    metadata: ClassVar[dict[str, Any]] = {"name": "chase"}
    possible_agents: ClassVar[list[str]] = ["mouse_0", "cat_0", "mouse_1"]

    def observation_space(self, agent: str) -> Any:
        at = spaces.Box(-9.0, 9.0, (2,), np.float32)
        return at if agent.startswith("mouse") else spaces.Dict({"at": at, "mood": spaces.Discrete(3)})

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(3) if agent.startswith("mouse") else spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, seed: Any = None, options: Any = None) -> Any:
        self.agents, self.at, self.did = list(self.possible_agents), 0, dict.fromkeys(self.possible_agents, 0.0)
        return self._seen(self.agents), {}

    def step(self, actions: Any) -> Any:
        acting, self.at = self.agents, self.at + 1
        self.did |= {one: float(np.asarray(action).ravel()[0]) for one, action in actions.items()}
        left = {one: self.at == 5 or (one == "mouse_1" and self.at == 2) for one in acting}
        self.agents = [one for one in acting if not left[one]]
        return self._seen(acting), {one: float(self.at) for one in acting}, left, dict.fromkeys(acting, False), {}

    def get_state(self) -> Any:
        return self.agents, self.at, self.did

    def set_state(self, state: Any) -> None:
        self.agents, self.at, self.did = state

    def _seen(self, agents: list[str]) -> Any:
        told = {one: np.array([self.at, self.did[one]], np.float32) for one in agents}
        return {one: at if one.startswith("mouse") else {"at": at, "mood": self.at % 3} for one, at in told.items()}
