"""Ctrl-C in the middle of anything: SB3 goes on with the next step, and no episode's end is lost."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stable_baselines3 import PPO
from stable_baselines3.common.monitor import load_results

from stepmill.errors import ClosedError, EnvError, NothingInFlightError, ResetOptionError
from stepmill.interop.sb3 import StepmillVecEnv, make_vec_env
from support.envs import talkative
from support.envs.talkative import CRASH, InterruptingEnv
from support.injection import Alarms, at_every_point

pytestmark = pytest.mark.usefixtures("server", "deadline")

BACKENDS = pytest.mark.parametrize("backend", ["inline", "process"])


@pytest.fixture
def make() -> Iterator[Callable[..., StepmillVecEnv]]:
    made: list[StepmillVecEnv] = []

    def build(backend: str = "process", **settings: Any) -> StepmillVecEnv:
        made.append(make_vec_env(InterruptingEnv, 2, seed=3, backend=backend, **settings))
        made[-1].reset()
        return made[-1]

    yield build
    for vec_env in made:
        vec_env.close()


def interrupt(owner: Any, name: str, *, after: bool) -> Any:
    """A function that Ctrl-C interrupts once, before or after it has done its work."""
    original = getattr(owner, name)
    calls: list[int] = []

    def interrupted(*args: Any, **kwargs: Any) -> Any:
        calls.append(1)
        if len(calls) > 1:
            return original(*args, **kwargs)
        if after:
            original(*args, **kwargs)
        raise KeyboardInterrupt

    return interrupted


@BACKENDS
@pytest.mark.parametrize(
    ("where", "after"), [("send", True), ("recv_into", False), ("_translate", False), ("_write_episodes", False)]
)
def test_the_next_step_returns_what_the_interrupted_one_did(
    make: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, backend: str, where: str, after: bool
) -> None:
    """Even twice in a row. The actions are not used: one would crash."""
    vec_env = make(backend, monitor_dir=tmp_path)
    owner = vec_env.pool if where in ("send", "recv_into") else vec_env
    vec_env.step([0, 0])
    vec_env.step([0, 0])
    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(owner, where, interrupt(owner, where, after=after))
            with pytest.raises(KeyboardInterrupt):
                vec_env.step([0, 0])
            if where == "send":
                break  # there is nothing to send any more
    observation, rewards, dones, infos = vec_env.step([CRASH, CRASH])
    assert dones.tolist() == [True, True]
    assert rewards.tolist() == [1, 1]
    assert [info["terminal_observation"]["count"] for info in infos] == [3, 3]
    assert [info["episode"]["l"] for info in infos] == [3, 3]
    assert observation["count"].tolist() == [0, 0]
    assert vec_env.step([0, 0])[0]["count"].tolist() == [1, 1]
    vec_env.close()
    assert load_results(str(tmp_path))["l"].tolist() == [3, 3]


def test_a_real_ctrl_c(make: Any) -> None:
    """From the worker of env 1, in the step that ends the episode."""
    vec_env = make()
    vec_env.step([0, 0])
    vec_env.step([0, 0])
    vec_env.set_attr("target", os.getpid(), 1)
    with pytest.raises(KeyboardInterrupt):
        vec_env.step([0, 0])
    _, _, dones, infos = vec_env.step([CRASH, CRASH])
    assert dones.tolist() == [True, True]
    assert [info["episode"]["l"] for info in infos] == [3, 3]


@pytest.mark.parametrize("on_error", ["raise", "restart"])
def test_ctrl_c_inside_an_env(make: Any, on_error: str) -> None:
    """In the calling thread, env 1 is left in the middle of its step. It is cut off at the last observation."""
    vec_env = make("inline", on_error=on_error)
    seen, *_ = vec_env.step([0, 0])
    vec_env.set_attr("target", os.getpid(), 1)
    with pytest.raises(KeyboardInterrupt):
        vec_env.step([0, 0])
    observation, rewards, dones, infos = vec_env.step([CRASH, CRASH])
    assert dones.tolist() == [False, True]
    assert rewards[1] == 0
    assert observation["count"].tolist() == [2, 0]
    assert infos[1]["TimeLimit.truncated"] is True
    assert infos[1]["abnormal"] is True
    assert "episode" not in infos[1]
    np.testing.assert_array_equal(infos[1]["terminal_observation"]["place"], seen["place"][1])
    assert infos[1]["terminal_observation"]["count"] == 1
    assert vec_env.step([0, 0])[0]["count"].tolist() == [0, 1]


def points(attempt: Callable[[Alarms], None]) -> int:
    """Calls ``attempt`` with Ctrl-C at every point of our code and SB3's, but not of the envs'."""
    return at_every_point(attempt, __file__, talkative.__file__, raising=KeyboardInterrupt)


def test_no_step_is_lost_wherever_ctrl_c_comes(make: Any) -> None:
    """Again and again, and the second time while the first is being made good."""
    vec_env = make("inline")
    count = 0

    def attempt(alarms: Alarms) -> None:
        nonlocal count
        step = None
        for ctrl_c in (Alarms(alarms.n // 2, __file__, talkative.__file__, raising=KeyboardInterrupt), alarms):
            try:
                with ctrl_c:
                    step = vec_env.step([0, 0])
            except KeyboardInterrupt:
                continue
            check(step)
        if step is None:
            check(vec_env.step([0, 0]))

    def check(step: Any) -> None:
        nonlocal count
        observation, _, dones, infos = step
        count = (count + 1) % 3
        assert observation["count"].tolist() == [count] * 2
        assert dones.tolist() == [count == 0] * 2
        if count == 0:
            assert [info["terminal_observation"]["count"] for info in infos] == [3, 3]
            assert [info["episode"]["l"] for info in infos] == [3, 3]

    assert points(attempt) > 30


def test_the_end_of_a_failed_env_is_the_same_wherever_ctrl_c_comes(make: Any) -> None:
    vec_env = make("inline", on_error="restart", max_restarts=None)

    def attempt(alarms: Alarms) -> None:
        before = vec_env.step([0, 0])[0]
        actions = [0, CRASH]
        try:
            with alarms:
                step = vec_env.step(actions)
        except KeyboardInterrupt:
            step = vec_env.step(actions)
        observation, _, dones, infos = step
        assert dones[1]
        assert infos[1]["abnormal"] is True
        np.testing.assert_array_equal(infos[1]["terminal_observation"]["place"], before["place"][1])
        assert infos[1]["terminal_observation"]["count"] == before["count"][1]
        assert observation["count"][1] == 0
        vec_env.reset()

    assert points(attempt) > 60


def test_a_reset_is_done_or_to_be_done_wherever_ctrl_c_comes(make: Any) -> None:
    """The step that does it says that all episodes were cut off."""
    vec_env = make("inline")

    def attempt(alarms: Alarms) -> None:
        seen, *_ = vec_env.step([0, 0])
        vec_env.seed(9)
        try:
            with alarms:
                observation = vec_env.reset()
        except KeyboardInterrupt:
            observation, _, dones, infos = vec_env.step([0, 0])
            if not dones.any():  # it was interrupted before it began
                assert observation["count"].tolist() == [2, 2]
                observation = vec_env.reset()
            else:
                assert [info["terminal_observation"]["count"] for info in infos] == seen["count"].tolist()
        np.testing.assert_array_equal(observation["place"], expected["place"])
        assert vec_env._seeds == [None, None]

    vec_env.seed(9)
    expected = vec_env.reset()
    assert points(attempt) > 30


def test_the_step_that_does_an_interrupted_reset_may_be_interrupted_too(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    vec_env = make("inline")

    def attempt(alarms: Alarms) -> None:
        vec_env.step([0, 0])
        with monkeypatch.context() as patch:
            patch.setattr(vec_env.pool, "reset", lambda *_, **__: interrupt(vec_env.pool, "async_reset", after=True)())
            with pytest.raises(KeyboardInterrupt):
                vec_env.reset()
        try:
            with alarms:
                step = vec_env.step([0, 0])
        except KeyboardInterrupt:
            step = vec_env.step([0, 0])
        observation, _, dones, infos = step
        assert dones.all()
        assert [info["terminal_observation"]["count"] for info in infos] == [1, 1]
        assert observation["count"].tolist() == [0, 0]

    assert points(attempt) > 30


def test_in_the_reset_of_a_failed_env(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    vec_env = make(on_error="restart")
    with monkeypatch.context() as patch:
        patch.setattr(
            vec_env.pool, "reset", lambda env_ids, **_: interrupt(vec_env.pool, "async_reset", after=True)(env_ids)
        )
        with pytest.raises(KeyboardInterrupt):
            vec_env.step([0, CRASH])
    observation, _, dones, infos = vec_env.step([CRASH, CRASH])
    assert dones.tolist() == [False, True]
    assert infos[1]["abnormal"] is True
    assert observation["count"].tolist() == [1, 0]
    assert vec_env.step([0, 0])[0]["count"].tolist() == [2, 1]


@BACKENDS
def test_a_reset_that_was_interrupted_is_done_by_the_next_step(
    make: Any, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    """It cuts off all episodes, at the last observations."""
    vec_env = make(backend)
    seen, *_ = vec_env.step([0, 0])
    vec_env.seed(9)
    with monkeypatch.context() as patch:
        patch.setattr(vec_env.pool, "reset", lambda *_, **__: interrupt(vec_env.pool, "async_reset", after=True)())
        with pytest.raises(KeyboardInterrupt):
            vec_env.reset()
    observation, rewards, dones, infos = vec_env.step([CRASH, CRASH])
    assert dones.tolist() == [True, True]
    assert rewards.tolist() == [0, 0]
    assert rewards.dtype == np.float32
    for env_id, info in enumerate(infos):
        assert info.keys() == {"TimeLimit.truncated", "terminal_observation"}
        assert info["TimeLimit.truncated"] is True
        np.testing.assert_array_equal(info["terminal_observation"]["place"], seen["place"][env_id])
    assert vec_env.step([0, 0])[0]["count"].tolist() == [1, 1]
    vec_env.seed(9)
    np.testing.assert_array_equal(vec_env.reset()["place"], observation["place"])  # the seeds were not lost


def test_a_reset_that_raised_is_done_by_the_next_step(make: Any) -> None:
    vec_env = make()
    vec_env.step([0, 0])
    vec_env.set_attr("crashes", 1, 1)
    with pytest.raises(EnvError, match="no reset today"):
        vec_env.reset()
    observation, _, dones, _ = vec_env.step([CRASH, CRASH])
    assert dones.tolist() == [True, True]
    assert observation["count"].tolist() == [0, 0]


def test_a_reset_with_invalid_options_changes_nothing() -> None:
    vec_env = make_vec_env("CartPole-v1", 2)
    vec_env.reset()
    vec_env.set_options({"nope": 1})
    with pytest.raises(ResetOptionError):
        vec_env.reset()
    assert not vec_env.step([0, 0])[2].any()
    vec_env.close()


def test_what_closing_leaves(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    vec_env = make()
    with monkeypatch.context() as patch:
        patch.setattr(vec_env, "_translate", interrupt(vec_env, "_translate", after=False))
        with pytest.raises(KeyboardInterrupt):
            vec_env.step([0, 0])
    vec_env.close()
    with pytest.raises(ClosedError):
        vec_env.step([0, 0])


def test_a_second_step_async_sends_nothing(make: Any) -> None:
    """After Ctrl-C between sending and waiting it is right. As a mistake it is an error in the second ``step_wait``."""
    vec_env = make()
    vec_env.step_async([0, 0])
    vec_env.step_async([CRASH, CRASH])
    vec_env.step_wait()
    with pytest.raises(NothingInFlightError):
        vec_env.step_wait()
    vec_env.step([0, 0])


@BACKENDS
def test_training_goes_on(make: Any, backend: str) -> None:
    """``learn`` without a reset."""
    vec_env = make(backend, on_error="restart", max_restarts=None)
    model = PPO("MultiInputPolicy", vec_env, n_steps=8, batch_size=16, n_epochs=1, seed=0, device="cpu")
    model.learn(16)
    vec_env.set_attr("target", os.getpid(), 1)
    with pytest.raises(KeyboardInterrupt):
        model.learn(160, reset_num_timesteps=False)
    before = model.num_timesteps
    model.learn(32, reset_num_timesteps=False)
    assert model.num_timesteps > before
