"""Stable-Baselines3 on stepmill beside its own vector envs: a step of the envs alone, and a training with PPO."""

from __future__ import annotations

import contextlib
import importlib.util
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from benchmarks.timing import Effort, Log, interleaved
from stepmill.tools.measuring.runners import ACTION_BATCHES, SEED, Contestant

Make = Callable[[int], Any]


def sb3(effort: Effort, log: Log) -> list[dict[str, Any]]:
    """Every case that has its packages: steps per second without a policy, then of PPO."""
    if importlib.util.find_spec("stable_baselines3") is None:
        log("no stable-baselines3: left out")
        return []
    return [_compare(case, effort, log) for case in _cases(log)]


@dataclass(frozen=True)
class Case:
    """Envs, how each contestant makes them, and what PPO is told."""

    env: str
    num_envs: int
    makers: dict[str, Make]
    policy: str
    ppo: dict[str, Any]
    steps: int  # of all envs together, in one sample of a training


class Pictures(gymnasium.Env[np.ndarray, int]):
    """A Python env that does nothing but show a moving square, in pictures as Atari agents see them."""

    observation_space = spaces.Box(0, 255, (4, 84, 84), np.uint8)
    action_space = spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._place, self._t = int(self.np_random.integers(70)), 0
        return self._draw(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._place = (self._place + int(action)) % 70
        self._t += 1
        return self._draw(), 1.0, self._t >= 200, False, {}

    def _draw(self) -> np.ndarray:
        picture = np.zeros((4, 84, 84), np.uint8)
        picture[:, self._place : self._place + 14, 30:44] = 255
        return picture


def _cases(log: Log) -> list[Case]:
    images: dict[str, Any] = {"n_steps": 16, "batch_size": 128, "n_epochs": 1}
    cases = [
        *(Case("CartPole-v1", n, _same("CartPole-v1"), "MlpPolicy", _small(n), 1024) for n in (8, 64)),
        Case("pictures", 8, _same(Pictures), "CnnPolicy", images, 128),
    ]
    if importlib.util.find_spec("ale_py") is None:
        log("no ale-py: Pong is left out")
        return cases
    return [*cases, Case("Pong", 8, _pong(), "CnnPolicy", images, 128)]


def _small(num_envs: int) -> dict[str, Any]:
    """As RL Zoo trains CartPole: 256 steps, then 20 passes over them."""
    return {"n_steps": 256 // num_envs, "batch_size": 256, "n_epochs": 20}


def _same(env: Any) -> dict[str, Make]:
    """The same env everywhere, with SB3's Monitor around it where the engine does not count."""
    from stable_baselines3.common.env_util import make_vec_env as sb3_make_vec_env
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

    from stepmill.interop.sb3 import make_vec_env

    return {
        "stepmill": lambda n: make_vec_env(env, n, seed=SEED),
        "dummy": lambda n: sb3_make_vec_env(env, n, seed=SEED, vec_env_cls=DummyVecEnv),
        "subproc": lambda n: sb3_make_vec_env(
            env, n, seed=SEED, vec_env_cls=SubprocVecEnv, vec_env_kwargs={"start_method": "fork"}
        ),
    }


def _pong() -> dict[str, Make]:
    """Four frames of 84 x 84 in each: our preset, and SB3's wrappers."""
    import ale_py
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecFrameStack

    from stepmill.interop.sb3 import make_vec_env

    gymnasium.register_envs(ale_py)

    def theirs(n: int, kind: Any, **arguments: Any) -> Any:
        made = make_atari_env("PongNoFrameskip-v4", n, seed=SEED, vec_env_cls=kind, vec_env_kwargs=arguments)
        return VecFrameStack(made, 4)

    return {
        "stepmill": lambda n: make_vec_env("Pong-v5", n, seed=SEED, episodic_life=True, reward_clip=True),
        "dummy": partial(theirs, kind=DummyVecEnv),
        "subproc": partial(theirs, kind=SubprocVecEnv, start_method="fork"),
    }


def _compare(case: Case, effort: Effort, log: Log) -> dict[str, Any]:
    log(f"{case.env}, {case.num_envs} envs")
    row: dict[str, Any] = {"env": case.env, "num_envs": case.num_envs}
    with contextlib.ExitStack() as made:
        envs = {}
        for name, make in case.makers.items():
            envs[name] = make(case.num_envs)
            made.callback(envs[name].close)
        runners = {name: Contestant(one, _draw_actions(one)) for name, one in envs.items()}
        row |= interleaved(runners, effort)
        log("  PPO")
        trainings = {name: Training(one, case) for name, one in envs.items()}
        for name, samples in _train(trainings, effort).items():
            row[name] |= samples
    return row


def _draw_actions(envs: Any) -> list[np.ndarray]:
    generator = np.random.default_rng(SEED)
    return [generator.integers(0, envs.action_space.n, envs.num_envs) for _ in range(ACTION_BATCHES)]


# ---- training --------------------------------------------------------------------------------------


class Training:
    """PPO, and how long it and the steps of its envs take."""

    def __init__(self, envs: Any, case: Case) -> None:
        from stable_baselines3 import PPO

        self._clock = timed(envs)
        self._steps = case.steps
        self._model = PPO(case.policy, self._clock, seed=SEED, device="cpu", **case.ppo)
        self.sample()  # warms up

    def sample(self) -> tuple[float, float]:
        """Microseconds per step of one env: all, and those in the envs."""
        self._clock.seconds = 0.0
        start = time.perf_counter()
        self._model.learn(self._steps, reset_num_timesteps=False)
        whole = time.perf_counter() - start
        return whole / self._steps * 1e6, self._clock.seconds / self._steps * 1e6


def timed(envs: Any) -> Any:
    """The envs, with ``seconds``: how long their steps have taken."""
    from stable_baselines3.common.vec_env import VecEnvWrapper

    class Timed(VecEnvWrapper):
        seconds = 0.0

        def reset(self) -> Any:
            return self.venv.reset()

        def step_async(self, actions: np.ndarray) -> None:
            start = time.perf_counter()
            self.venv.step_async(actions)
            self.seconds += time.perf_counter() - start

        def step_wait(self) -> Any:
            start = time.perf_counter()
            result = self.venv.step_wait()
            self.seconds += time.perf_counter() - start
            return result

    return Timed(envs)


def _train(trainings: dict[str, Training], effort: Effort) -> dict[str, dict[str, Any]]:
    """One sample of each, round after round."""
    samples: dict[str, list[tuple[float, float]]] = {name: [] for name in trainings}
    for _ in range(effort.repeats):
        for name, training in trainings.items():
            samples[name].append(training.sample())
    return {
        name: {
            "training_us": statistics.median(whole for whole, _ in all_),
            "training_env_us": statistics.median(inside for _, inside in all_),
            "training_samples": all_,
        }
        for name, all_ in samples.items()
    }
