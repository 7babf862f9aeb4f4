"""The first difference is found where it is: env, step, field and both values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest

import stepmill
from stepmill.tools.verify.side_by_side import NOTHING
from support.official import PythonProbe, at, fail

MODES = ("next_step", "same_step", "disabled")
WAYS = {
    "threads": {"num_threads": 2},
    "inline": {"backend": "inline"},
    "async": {"batch_size": 3},
}


def place(difference: stepmill.Difference | None) -> tuple[int, int, int, int]:
    assert difference is not None
    return difference.env_id, difference.step, difference.episode, difference.episode_step


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("autoreset", MODES)
def test_the_probe_of_gymnasium_is_equal(probe: Any, autoreset: str, way: str) -> None:
    made = probe()
    result = stepmill.verify("Probe-v0", steps=240, num_envs=6, autoreset=autoreset, **WAYS[way])
    assert result, str(result)
    assert result.steps == sum(env.calls for env in made)
    assert result.episodes == sum(env.calls // 10 for env in made)
    assert len(made) == 6
    assert all(env.closed for env in made)


# The result of step 37 of env 2, which is step 7 of its episode 4, as Gymnasium has it; and what must be found.
STEP_CHANGES: dict[str, tuple[Callable[[Any], Any], str, Any, Any]] = {
    "observation": (lambda r: (r[0] + [0, 0.5], *r[1:]), "obs[1]", 7.0, 7.5),
    "type of observation": (lambda r: (r[0].astype(np.float32), *r[1:]), "obs.dtype", np.float64, np.float32),
    "shape of observation": (lambda r: (r[0][:1], *r[1:]), "obs.shape", (2,), (1,)),
    "terminated": (lambda r: (*r[:2], True, *r[3:]), "terminated", False, True),
    "truncated": (lambda r: (*r[:3], True, r[4]), "truncated", False, True),
    "extra key of theirs": (lambda r: (*r[:4], {"x": 3}), "info['x']", NOTHING, 3),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("autoreset", MODES)
@pytest.mark.parametrize("change", STEP_CHANGES)
def test_a_changed_step_is_found(probe: Any, change: str, autoreset: str, way: str) -> None:
    function, field, ours, theirs = STEP_CHANGES[change]
    probe(at(2, 37, function))
    result = stepmill.verify("Probe-v0", steps=1000, num_envs=6, autoreset=autoreset, **WAYS[way])
    assert not result
    assert result.equal is False
    assert place(result.difference) == (2, 37, 4, 7)
    assert (result.difference.field, result.difference.ours, result.difference.theirs) == (field, ours, theirs)


def test_the_smallest_change_of_a_reward_is_found(probe: Any) -> None:
    made = probe(at(1, 5, lambda r: (r[0], np.nextafter(r[1], 9), *r[2:])))
    result = stepmill.verify("Probe-v0", steps=1000)
    assert place(result.difference) == (1, 5, 1, 5)
    reward = float(made[1].actions[-1])
    assert result.difference.field == "reward"
    assert (result.difference.ours, result.difference.theirs) == (reward, np.nextafter(reward, 9))


def test_the_first_of_several_differences_is_found(probe: Any) -> None:
    def alter(env: PythonProbe, result: Any) -> Any:
        first = {5: 4, 3: 2, 4: 2}.get(env.index, 99)  # envs 3 and 4 differ first, and at the same step
        return (result[0] + 1, *result[1:]) if env.calls == first else result

    probe(alter)
    result = stepmill.verify("Probe-v0", steps=1000, num_envs=6)
    assert place(result.difference) == (3, 2, 1, 2)
    assert result.difference.field == "obs[0]"


@pytest.mark.parametrize("later", [0, 1])
@pytest.mark.parametrize("autoreset", MODES)
def test_an_episode_that_ends_elsewhere_is_found(probe: Any, autoreset: str, later: int) -> None:
    def alter(env: PythonProbe, result: Any) -> Any:
        if len(result) == 2 or env.index != 1 or env.calls < 20:
            return result
        return (*result[:2], env.steps >= (11 if later else 9), *result[3:])

    probe(alter)
    result = stepmill.verify("Probe-v0", steps=1000, num_envs=2, autoreset=autoreset)
    assert place(result.difference) == ((1, 20, 2, 10) if later else (1, 29, 3, 9))
    assert (result.difference.field, result.difference.theirs) == ("terminated", not later)
    assert result.difference.ours == later


@pytest.mark.parametrize(("autoreset", "where"), [("next_step", (1, 20, 3, 0)), ("disabled", (1, 20, 3, 0))])
def test_a_changed_reset_is_found(probe: Any, autoreset: str, where: Any) -> None:
    probe(lambda env, r: (r[0] - 1, r[1]) if len(r) == 2 and (env.index, env.resets) == (1, 3) else r)
    result = stepmill.verify("Probe-v0", steps=1000, num_envs=3, autoreset=autoreset)
    assert place(result.difference) == where
    assert result.difference.field == "obs[0]"
    assert result.difference.ours - 1 == result.difference.theirs
    assert "at the reset of env 1 that begins its episode 3 (after 20 steps): obs[0]: ours 0." in str(result)


@pytest.mark.parametrize("autoreset", MODES)
def test_a_changed_first_reset_is_found(probe: Any, autoreset: str) -> None:
    probe(lambda env, r: (r[0], {"k": 2}) if len(r) == 2 and env.index == 2 else r)
    result = stepmill.verify("Probe-v0", num_envs=3, autoreset=autoreset)
    assert place(result.difference) == (2, 0, 1, 0)
    assert (result.difference.field, result.difference.ours, result.difference.theirs) == ("info['k']", NOTHING, 2)
    assert (result.steps, result.episodes) == (0, 0)


FINALS = {
    "final obs": (lambda r: (r[0] + [0, 1], *r[1:]), "info['final_obs'][1]", 10, 11),
    "final info": (lambda r: (*r[:4], {"k": 2}), "info['final_info']['k']", NOTHING, 2),
}


@pytest.mark.parametrize("change", FINALS)
def test_a_changed_end_is_found_when_the_reset_hides_it(probe: Any, change: str) -> None:
    function, *expected = FINALS[change]
    probe(at(1, 20, function))
    result = stepmill.verify("Probe-v0", steps=1000, num_envs=3, autoreset="same_step")
    assert place(result.difference) == (1, 20, 2, 10)
    assert [result.difference.field, result.difference.ours, result.difference.theirs] == expected


def test_an_end_is_compared_as_it_was_before_the_reset(probe: Any) -> None:
    """Like envs of MuJoCo, whose infos have views of the simulator's own arrays."""

    def alter(env: PythonProbe, result: Any) -> Any:
        if not hasattr(env, "own"):
            env.own = np.zeros(2)
        env.own[:] = result[0]
        return (env.own, *result[1:])

    probe(alter)
    assert stepmill.verify("Probe-v0", steps=100, num_envs=3, autoreset="same_step")


def test_a_reset_in_the_same_step_is_compared(probe: Any) -> None:
    probe(lambda env, r: (r[0] - 1, r[1]) if len(r) == 2 and (env.index, env.resets) == (1, 3) else r)
    result = stepmill.verify("Probe-v0", steps=1000, num_envs=3, autoreset="same_step")
    assert place(result.difference) == (1, 20, 2, 10)  # the step that returned it
    assert result.difference.field == "obs[0]"


# ---- real envs, slightly wrong -------------------------------------------------------------------


class InfoChanged(gymnasium.Wrapper):
    """Changes the infos of all steps from the ninth on."""

    def __init__(self, env: Any, change: Callable[[dict[str, Any]], Any]) -> None:
        super().__init__(env)
        self.change, self.calls = change, 0

    def step(self, action: Any) -> Any:
        *result, info = self.env.step(action)
        self.calls += 1
        if self.calls >= 9:
            self.change(info)
        return (*result, info)


INFO_CHANGES: dict[str, tuple[Callable[[dict[str, Any]], Any], str, Any]] = {
    "value": (lambda info: info.update(prob=0.5), "info['prob']", 0.5),
    "missing key": (lambda info: info.pop("prob"), "info['prob']", NOTHING),
    "extra key": (lambda info: info.update(x=1), "info['x']", 1),
    "array": (lambda info: info["action_mask"].__setitem__(3, 7), "info['action_mask'][3]", 7),
    "type": (lambda info: info.update(prob=np.float32(1)), "info['prob'].dtype", np.float32),
    "type of array": (
        lambda info: info.update(action_mask=info["action_mask"].astype(np.int64)),
        "info['action_mask'].dtype",
        np.int64,
    ),
}


@pytest.mark.skipif("Taxi-v4" not in gymnasium.registry, reason="this Gymnasium has no Taxi-v4")
@pytest.mark.parametrize("autoreset", MODES)
@pytest.mark.parametrize("change", INFO_CHANGES)
def test_a_changed_info_is_found(official: Any, change: str, autoreset: str) -> None:
    function, field, theirs = INFO_CHANGES[change]
    official("Taxi-v4", lambda creator, **config: InfoChanged(creator(**config), function))
    result = stepmill.verify("Taxi-v4", num_envs=2, autoreset=autoreset)
    assert place(result.difference) == (0, 9, 1, 9)
    assert (result.difference.field, result.difference.theirs) == (field, theirs)
    assert result.difference.ours != theirs


def test_another_configuration_is_found(official: Any) -> None:
    official("Pendulum-v1", lambda creator, g=10.0, **config: creator(g=g * (1 + 1e-6), **config))
    result = stepmill.verify("Pendulum-v1", steps=1000)
    assert place(result.difference) == (0, 1, 1, 1)
    assert result.difference.field.startswith("obs[")
    assert result.difference.ours == pytest.approx(result.difference.theirs, abs=1e-4)


def test_another_space_is_found(official: Any) -> None:
    def create(creator: Any, **config: Any) -> Any:
        env = creator(**config)
        env.action_space = gymnasium.spaces.Discrete(3)
        return env

    official("CartPole-v1", create)
    result = stepmill.verify("CartPole-v1")
    assert (result.difference.field, result.steps) == ("action_space", 0)
    assert str(result) == "CartPole-v1: different before the first reset: action_space: ours Discrete(2), " + (
        "theirs Discrete(3)"
    )


# ---- exceptions ----------------------------------------------------------------------------------


def test_only_gymnasium_fails(probe: Any) -> None:
    made = probe(at(2, 13, fail))
    result = stepmill.verify("Probe-v0", num_envs=3)
    assert place(result.difference) == (2, 13, 2, 3)
    assert str(result) == (
        "Probe-v0: different at step 13 of env 2 (step 3 of its episode 2): exception: ours nothing, "
        "theirs ValueError: it broke"
    )
    assert all(env.closed for env in made)


@pytest.mark.parametrize(
    ("fail_in", "autoreset", "where"),
    [
        ("step", "next_step", (0, 13, 2, 3)),
        ("step", "same_step", (0, 13, 2, 3)),
        ("step", "disabled", (0, 13, 2, 3)),
        ("reset", "next_step", (0, 120, 13, 0)),
        ("reset", "same_step", (0, 120, 12, 10)),
        ("reset", "disabled", (0, 120, 13, 0)),
    ],
)
def test_only_ours_fails(probe: Any, fail_in: str, autoreset: str, where: Any) -> None:
    probe()
    result = stepmill.verify("Probe-v0", num_envs=3, autoreset=autoreset, fail_in=fail_in, fail_at=13)
    assert place(result.difference) == where
    assert result.difference.field == "exception"
    assert f"the probe was asked to fail in {fail_in}" in result.difference.ours
    assert result.difference.theirs is NOTHING


def test_if_both_fail_there_is_nothing_to_compare(probe: Any) -> None:
    made = probe(lambda env, result: fail(result) if env.calls == 4 else result)
    with pytest.raises(stepmill.EnvError, match="asked to fail in step") as caught:
        stepmill.verify("Probe-v0", num_envs=2, fail_in="step", fail_at=4)
    assert str(caught.value.__cause__) == "it broke"
    assert all(env.closed for env in made)


def test_gymnasium_refuses_what_ours_accepts(probe: Any) -> None:
    made = probe()
    result = stepmill.verify("Probe-v0", work=1)  # the Python one has no such argument
    assert result.difference.field == "exception"
    assert result.difference.ours is NOTHING
    assert "unexpected keyword argument 'work'" in result.difference.theirs
    assert str(result).startswith("Probe-v0: different before the first reset: exception: ours nothing, theirs TypeE")
    assert (made, result.steps) == ([], 0)


# ---- actions -------------------------------------------------------------------------------------


def test_actions_reach_the_corners(probe: Any) -> None:
    made = probe()
    assert stepmill.verify("Probe-v0", steps=8000, num_envs=4)
    for env in made:
        actions = np.array(env.actions)
        assert actions.dtype == np.float32
        beyond = np.mean(np.abs(actions) > 1)
        assert 0.01 < beyond < 0.2
        assert np.abs(actions).max() <= 2
        repeated = np.mean(actions[1:] == actions[:-1])
        assert repeated > 0.8 if env.index % 2 else repeated == 0
    assert made[0].actions != made[2].actions


class Scribbler(gymnasium.ActionWrapper):
    """Hands its env a copy of the action and writes over the action itself."""

    def action(self, action: Any) -> Any:
        own = action.copy()
        action[:] = np.nan
        return own


def test_an_env_may_write_into_its_action(official: Any) -> None:
    official("Pendulum-v1", lambda creator, **config: Scribbler(creator(**config)))
    assert stepmill.verify("Pendulum-v1", steps=200, num_envs=2)
