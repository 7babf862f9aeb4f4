"""Islands with packages that exclude ours, and another Python: those that `make islands` builds."""

from __future__ import annotations

import functools
import os
import platform
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepmill
from stepmill.errors import ConfigError, EnvTimeoutError, MissingPackageError, StateError, WorkerDiedError
from support.backends import play
from support.envs import AnsweringEnv, Plain
from support.envs.faulty import FaultyEnv
from support.envs.many_spaces import WildEnv
from support.envs.sealed import Walker
from support.lanes import assert_states_go_on
from support.probes import assert_same
from support.processes import kill_worker
from support.waiting import Gate

pytestmark = [pytest.mark.zoo, pytest.mark.usefixtures("deadline")]

ROOT = Path(__file__).resolve().parents[3]
NAMES = ("python", "nle", "metaworld")


@functools.cache
def why_missing(name: str) -> str:
    try:
        stepmill.list_all_envs(python=str(ROOT / f".venv-island-{name}"))
    except (ConfigError, MissingPackageError) as error:  # the latter: it was built from other sources
        return str(error)
    return ""


def built(name: str) -> str:
    """The folder of an island. Skips the test without it, except where all of them are wanted."""
    reason = why_missing(name)
    if reason:
        assert not os.environ.get("STEPMILL_ISLANDS"), reason
        pytest.skip(f"`make islands` builds it: {reason}")
    return str(ROOT / f".venv-island-{name}")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("autoreset", ["next_step", "same_step"])
def test_other_versions_play_the_same_episodes(name: str, autoreset: str) -> None:
    """Observations of all kinds, infos, pictures, spaces."""
    arguments: dict[str, Any] = {"num_envs": 3, "autoreset": autoreset, "length": 4.0}
    with stepmill.make(WildEnv, python=built(name), num_workers=2, **arguments) as pool:
        got = [play(pool, 25), pool.render(), pool.get_attr("length")]
        space = pool.single_observation_space
    with stepmill.make(WildEnv, backend="inline", **arguments) as oracle:
        assert_same(got, [play(oracle, 25), oracle.render(), oracle.get_attr("length")])
        assert space == oracle.single_observation_space


def test_one_pool_of_many_interpreters() -> None:
    """CartPole at home, with another Python, with an older numpy and Gymnasium: the same seeds."""
    islands = [None, None, built("python"), built("python"), built("nle"), built("nle")]
    with stepmill.make(
        "CartPole-v1", seed=[7] * 6, env_config=[{"python": one} for one in islands], num_envs=6
    ) as pool:
        assert pool.spec.config["max_episode_steps"] == 500
        obs, _ = pool.reset()
        for step in range(300):
            assert (obs == obs[0]).all(), step
            obs, *_ = pool.step(np.full(6, step // 3 % 2))


def test_versions_do_differ() -> None:
    """Else these tests prove nothing."""
    islands = [built("python"), built("nle")]
    with stepmill.make(AnsweringEnv, env_config=[{"python": one} for one in islands], num_envs=2) as pool:
        python, nle = pool.call("versions")
    if python[0] == platform.python_version():
        pytest.skip("there is no other version of Python on this machine")
    assert nle[1].startswith("1.")
    assert nle[2] == "1.2.0"


def test_arrays_and_spaces_go_both_ways_between_versions_of_numpy() -> None:
    given = [np.arange(6).reshape(2, 3), np.float32(2), np.bool_(True), {"a": (1, [None])}, WildEnv.observation_space]
    for name in ("nle", "python"):
        with stepmill.make(AnsweringEnv, python=built(name)) as pool:
            ((args, _),) = pool.call("echo", *given)
        assert_same(list(args[:4]), given[:4])
        assert args[4] == given[4]


@pytest.mark.parametrize("name", ["python", "nle"])
@pytest.mark.parametrize(("task", "kind"), [(Walker, "fork"), (WildEnv, "methods")])
def test_states_are_saved_and_restored_by_other_versions(name: str, task: Any, kind: str) -> None:
    with stepmill.make(task, num_envs=2, num_workers=2, python=built(name), seed=5) as pool:
        assert_states_go_on(pool, kind)


def test_code_by_value_is_refused_by_another_python() -> None:
    class Local(Plain):
        pass

    with pytest.raises(ConfigError, match=r"only between equal versions, got cpython-3.*Local.* cannot be imported"):
        stepmill.make(Local, python=built("python"))
    with stepmill.make(Local, python=built("nle")) as pool:  # the same Python
        assert pool.reset()[0].shape == (1, 2)


def test_deaths_and_deadlines_on_another_python(gate: Gate) -> None:
    island = built("python")
    with stepmill.make(Plain, num_envs=3, num_workers=3, env_config=[{}, {"python": island}, {}]) as pool:
        pool.reset()
        kill_worker(pool, 1)
        with pytest.raises(WorkerDiedError, match="SIGKILL"):
            pool.step([1, 1, 1])
        assert "abnormal" not in pool.step([1, 1, 1])[-1]
    stuck = {"mishap": "gate", "folder": gate.folder, "length": 1000, "python": island}
    with stepmill.make(FaultyEnv, num_envs=2, env_config=[{"length": 1000}, stuck], step_timeout=0.3) as pool:
        pool.reset()
        with pytest.raises(EnvTimeoutError, match="wait_at_gate"):
            pool.step([0, 0])


# ---- packages that exclude each other ------------------------------------------------------------


def test_nethack() -> None:
    """Nle pins Gymnasium 1.2.0."""
    with stepmill.make("NetHackScore-v0", num_envs=2, num_workers=2, python=built("nle")) as pool:
        obs, _ = pool.reset(seed=3)
        assert obs["glyphs"].shape == (2, 21, 79)
        assert pool.single_action_space.n == 23
        for action in range(20):
            obs, reward, *_, info = pool.step([action, 22 - action])
        assert info["end_status"].tolist() == [0, 0]
        assert reward.dtype == np.float64
        with pytest.raises(StateError, match=r"env 0: its process cannot be saved by fork, as it has a file, .*nle"):
            pool.save()
    spec = stepmill.make_spec("NetHackScore-v0", python=built("nle"))
    assert spec.observation_space["message"].shape == (256,)


def test_metaworld() -> None:
    """It pins MuJoCo 3.3.0."""
    where: dict[str, Any] = {"python": built("metaworld"), "num_workers": 2}
    with stepmill.make("Meta-World/MT1", num_envs=2, env_name="reach-v3", **where) as pool:
        obs, _ = pool.reset()
        assert obs.shape == (2, 39)
        for _ in range(20):
            obs, *_, info = pool.step(np.zeros((2, 4), np.float32))
        assert info["success"].shape == (2,)
        assert pool.spec.config["env_name"] == "reach-v3"
        assert_states_go_on(pool, "fork")


def test_both_at_once() -> None:
    nethack = stepmill.make("NetHackScore-v0", python=built("nle"))
    arm = stepmill.make("Meta-World/MT1", python=built("metaworld"), env_name="reach-v3")
    with nethack, arm:
        nethack.reset()
        arm.reset()
        assert nethack.step([0])[0]["tty_chars"].shape == (1, 24, 80)
        assert arm.step(np.zeros((1, 4), np.float32))[0].shape == (1, 39)
