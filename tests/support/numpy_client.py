"""A program of a user, for type checkers: ``tests/test_types.py`` runs it, mypy and pyright over it.

``assert_type`` says what a checker must know. A line that ends in ``# mypy: ... pyright: ...`` is a mistake, and each
checker must say these words about it, and nothing about any other line.
"""

import math
from typing import Any, Literal, assert_type

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

import stepmill
from stepmill.envs import BaseEnvTimestep
from stepmill.managers import BaseEnvManager
from stepmill.views.dm import DmPool
from stepmill.views.gym import GymPool
from stepmill.views.gymnasium import GymnasiumPool

Row = tuple[float, bool]


def mean_return(num_envs: int, steps: int) -> float:
    with stepmill.make("CartPole-v1", num_envs=num_envs, seed=3, backend="thread", autoreset="same_step") as pool:
        assert_type(pool, GymnasiumPool)
        obs, info = pool.reset(seed=7)
        returns: list[float] = []
        for _ in range(steps):
            obs, reward, terminated, truncated, info = pool.step((obs[:, 2] > 0).astype(int))
            assert_type(reward, np.ndarray)
            assert_type(terminated, np.ndarray)
            assert_type(truncated, np.ndarray)
            assert_type(info, dict[str, Any])
            if "episode_return" in info:
                returns += info["episode_return"][info["_episode_return"]].tolist()
        return float(np.mean(returns)) if returns else math.nan


def ready_first(pool: GymnasiumPool, batches: int) -> np.ndarray:
    total = np.zeros(pool.num_envs)
    pool.async_reset()
    for _ in range(batches):
        _, reward, _, _, info = pool.recv(timeout=600.0)
        total[info["env_id"]] += reward
        pool.send(np.zeros(len(reward), int), info["env_id"])
    return total


def one_done(pool: GymPool) -> bool:
    pool.reset()
    _, reward, done, _ = pool.step([0] * len(pool))
    assert_type(reward, np.ndarray)
    assert_type(done, np.ndarray)
    return bool(done.any())


def last_rows(pool: DmPool) -> np.ndarray:
    timestep = pool.reset()
    timestep = pool.step([0] * len(pool))
    assert_type(timestep.reward, np.ndarray)
    assert_type(timestep.step_type, np.ndarray)
    assert_type(timestep.observation.env_id, np.ndarray)
    ids: np.ndarray = timestep.observation.env_id[timestep.step_type == 2]
    return ids


def managed() -> dict[int, Row]:
    with BaseEnvManager([lambda: gymnasium.make("CartPole-v1")] * 2) as manager:
        manager.launch()
        timesteps = manager.step(dict.fromkeys(manager.ready_obs, 0))
        assert_type(timesteps, dict[int, BaseEnvTimestep])
        assert_type(timesteps[0].done, bool)
        return {one: (float(timestep.reward[0]), timestep.done) for one, timestep in timesteps.items()}


def makers(env_type: Literal["gymnasium", "gym", "dm"], any_arguments: dict[str, Any]) -> None:
    """Never called: what each function returns."""
    assert_type(stepmill.make("CartPole-v1", env_type, num_envs=2), GymnasiumPool | GymPool | DmPool)
    assert_type(stepmill.make("CartPole-v1", "gymnasium", autoreset=AutoresetMode.DISABLED), GymnasiumPool)
    assert_type(stepmill.make("CartPole-v1", autoreset="NextStep", on_error="restart"), GymnasiumPool)
    assert_type(stepmill.make(lambda env_id: None, "gym", batch_size=None, num_envs=2), GymPool)
    assert_type(stepmill.make(["CartPole-v1"], env_type="gym", max_restarts=math.inf), GymPool)
    assert_type(stepmill.make("CartPole-v1", "dm", seed=None, output="numpy", action_bounds="clip"), DmPool)
    assert_type(stepmill.make("Catch-v0", height=4, width=3.5, env_config=[{"paddle": 1}]), GymnasiumPool)
    assert_type(stepmill.make("CartPole-v1", backend=stepmill.Ray(num_actors=2)), GymnasiumPool)
    assert_type(stepmill.make_gymnasium("CartPole-v1", num_envs=2, start_timeout=5), GymnasiumPool)
    assert_type(stepmill.make_gym(task_id="CartPole-v1", own_setting="any"), GymPool)
    assert_type(stepmill.make_dm("CartPole-v1", step_timeout=0.5, on_error="restart"), DmPool)
    assert_type(stepmill.make_spec("CartPole-v1", "gym", num_envs=2, own_setting="any"), stepmill.PoolSpec)
    vector: VectorEnv[Any, Any, np.ndarray] = stepmill.make("CartPole-v1", **any_arguments)
    vector.step(vector.action_space.sample())


def mistakes(pool: GymnasiumPool, word: str) -> None:
    """Never called."""
    stepmill.make()  # mypy: at least one argument pyright: No overloads for "__call__"
    stepmill.make("CartPole-v1", "gmy")  # mypy: No overload variant pyright: No overloads for "__call__"
    stepmill.make("CartPole-v1", "gym", 4)  # mypy: No overload variant pyright: No overloads for "__call__"
    stepmill.make("CartPole-v1", num_envs="4")  # mypy: No overload variant pyright: parameter "num_envs"
    stepmill.make("CartPole-v1", backend="tread")  # mypy: No overload variant pyright: parameter "backend"
    stepmill.make("CartPole-v1", backend=word)  # mypy: No overload variant pyright: parameter "backend"
    stepmill.make("CartPole-v1", backend=stepmill.Ray)  # mypy: No overload variant pyright: parameter "backend"
    stepmill.Ray(num_actor=2)  # mypy: Unexpected keyword argument "num_actor" pyright: No parameter named "num_actor"
    stepmill.make("CartPole-v1", autoreset="next")  # mypy: No overload variant pyright: parameter "autoreset"
    stepmill.make("CartPole-v1", on_error="ignore")  # mypy: No overload variant pyright: parameter "on_error"
    stepmill.make("CartPole-v1", action_bounds="cut")  # mypy: No overload variant pyright: parameter "action_bounds"
    stepmill.make("CartPole-v1", output="tensor")  # mypy: No overload variant pyright: parameter "output"
    stepmill.make_gymnasium("CartPole-v1", 4)  # mypy: No overload variant pyright: No overloads for "__call__"
    stepmill.make_gym("CartPole-v1", seed=3.5)  # mypy: No overload variant pyright: parameter "seed"
    stepmill.make_dm("CartPole-v1", env_config={"height": 4})  # mypy: No overload pyright: parameter "env_config"
    stepmill.make_spec("CartPole-v1", backend="tread")  # mypy: "backend" to pyright: parameter "backend"
    stepmill.make_spec("CartPole-v1", start_timeout=None)  # mypy: "start_timeout" to pyright: parameter "start_timeout"
    pool.step(0, 1, 2)  # mypy: Too many arguments pyright: Expected 2 positional arguments
    pool.recv("soon")  # mypy: expected "float | None" pyright: parameter "timeout"
    str(pool.recv()[1].rewrad)  # mypy: has no attribute "rewrad" pyright: Cannot access attribute "rewrad"


def main() -> None:
    """What the types promise, at run time."""
    assert mean_return(4, 50) > 5
    with stepmill.make("CartPole-v1", num_envs=4, batch_size=2) as pool:
        assert ready_first(pool, 20).sum() > 0
    with stepmill.make_gym("CartPole-v1", num_envs=4) as gym_pool:
        assert not one_done(gym_pool)
    with stepmill.make_dm("CartPole-v1", num_envs=4) as dm_pool:
        assert len(last_rows(dm_pool)) == 0
    assert managed() == {0: (1.0, False), 1: (1.0, False)}


if __name__ == "__main__":
    main()
