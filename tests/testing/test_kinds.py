"""``check_env`` of ids, and of envs of Gymnasium: its advice is for their kind."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import stepmill
from stepmill.errors import UnknownEnvError, UnsupportedError
from stepmill.testing import Report, check_env

PLACE = spaces.Box(-10.0, 10.0, (1,), np.float32)


class Walk(gymnasium.Env[Any, Any]):
    """Draws from ``self.generator()``, ten times."""

    observation_space = PLACE
    action_space = spaces.Discrete(2)

    def generator(self) -> Any:
        return self.np_random

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self.draw(), {}

    def draw(self) -> np.ndarray:
        return np.asarray(self.generator().uniform(-1, 1, 1), np.float32)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return self.draw(), 0.0, self.steps == 10, False, {}


class Global(Walk):
    def generator(self) -> Any:
        return np.random


class Own(Walk):
    """Its generator is not the one that ``seed`` seeds."""

    def __init__(self) -> None:
        self.own = np.random.default_rng(3)

    def generator(self) -> Any:
        return self.own


class Broken(Walk):
    def step(self, action: Any) -> Any:
        return {}["speed"]


class OldGym(Walk):
    def step(self, action: Any) -> Any:
        obs, reward, done, _, info = super().step(action)
        return obs, reward, done, info


def check(env: Any, cfg: Any = None) -> Report:
    return check_env(env, cfg, episodes=1, print_report=False)


# ---- envs of Gymnasium ---------------------------------------------------------------------------


def test_an_env_that_uses_np_random_has_no_findings() -> None:
    assert check(Walk) == []


@pytest.mark.parametrize(("env", "rule"), [(Global, "global_generators"), (Own, "static_seed")])
def test_the_advice_is_to_use_self_np_random(env: type[Walk], rule: str) -> None:
    report = check(env)
    assert rule in {finding.rule for finding in report}
    for finding in report:
        assert "self.np_random" in finding.advice
        assert "_next_seed" not in finding.advice


def test_an_exception_in_step_is_one() -> None:
    (finding,) = check(Broken)
    assert finding.rule == "no_exception"
    assert finding.where == "step 1 of episode 0"
    assert finding.expected.startswith("no exception")
    assert finding.got.startswith("KeyError: 'speed' (test_kinds.py:")


def test_a_tuple_of_four_is_old_gym() -> None:
    (finding,) = check(OldGym)
    assert (finding.rule, finding.where) == ("no_exception", "step 1 of episode 0")
    assert "got a tuple of 4. Old Gym's step returned" in finding.got


# ---- ids -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("id", ["CartPole-v1", "Catch-v0", "Blackjack-v1", "Moving-v0", "gymnasium:CartPole-v1"])
def test_ids_are_checked(id: str) -> None:
    report = check(id)
    assert report == []
    assert report.title.startswith(f"check_env({id}): ")
    assert {"no_exception", "obs_bounds", "static_seed", "independent_envs", "close_twice"} <= set(report.checked)


def test_a_configuration_goes_to_the_env_of_an_id() -> None:
    assert check("Catch-v0", {"height": 4}) == []
    (finding,) = check("Catch-v0", {"heigth": 4})
    assert (finding.rule, finding.where) == ("no_exception", "the constructor")
    assert "did you mean 'height'?" in finding.got


def test_an_id_of_the_users_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stepmill.registry.records._records", {})
    stepmill.register("Walks-v0", factory=Global)
    assert "global_generators" in {finding.rule for finding in check("Walks-v0")}


def test_ids_that_cannot_be_checked() -> None:
    with pytest.raises(UnknownEnvError, match="did you mean CartPole-v1"):
        check("CartPol-v1")
    with pytest.raises(UnsupportedError, match="TemplatePlayers-v0 is native and has several players"):
        check("TemplatePlayers-v0")
