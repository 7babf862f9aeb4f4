"""``stepmill.testing``: every rule reports its broken env and no other, and good envs pass."""

from __future__ import annotations

import copy
import importlib
import random
import sys
from typing import Any

import dm_env
import gymnasium
import numpy as np
import pytest
from dm_env import specs
from gymnasium import spaces
from gymnasium.envs.classic_control import CartPoleEnv

from stepmill.envs import DingEnvWrapper
from stepmill.errors import ConfigError
from stepmill.testing import RULES, Finding, Report, check_env
from support.envs.broken import (
    DoubleObs,
    NumpyDone,
    RaisesInInit,
    RaisesInSecondReset,
    RandomActionOutside,
    ResetsInInit,
    SameArray,
)
from support.envs.broken_runs import StepsFromTheStream, close_what_is_left
from support.envs.good import BROKEN, GOOD, Endless, GoodEnv, NothingRandom

pytest_plugins = ("pytester",)

CFG = {"length": 5, "nested": {"list": [1]}}
NAMES = [rule.name for rule in RULES]


def check(env: Any, cfg: Any = None, **options: Any) -> Report:
    return check_env(env, cfg, **{"episodes": 1, "steps": 10, "print_report": False, **options})


def rules_in(report: Report) -> set[str]:
    return {finding.rule for finding in report}


# ---- the rules ------------------------------------------------------------------------------------


def test_every_rule_has_a_broken_env() -> None:
    assert {rule for rule, _ in BROKEN} == set(NAMES)
    assert len(set(NAMES)) == len(NAMES)


@pytest.mark.parametrize(("rule", "env"), BROKEN, ids=lambda value: getattr(value, "__name__", value))
def test_a_broken_env_is_reported_by_its_rule_alone(rule: str, env: type[Any]) -> None:
    try:
        report = check(env, CFG)
    finally:
        close_what_is_left()
    assert rules_in(report) == {rule}, str(report)
    assert rule in report.checked
    assert rule not in report.unchecked


@pytest.mark.parametrize("env", GOOD)
def test_a_good_env_passes(env: type[Any]) -> None:
    report = check(env, CFG)
    assert report == [], str(report)
    unchecked = {
        NothingRandom: {"dynamic_seed_renews", "distinct_envs"},
        Endless: {"episode_return", "episode_return_alias"},
    }
    assert set(report.unchecked) == unchecked.get(env, set())
    assert report.checked == [name for name in NAMES if name not in report.unchecked]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_rule_says_what_it_means_and_what_to_do(rule: Any) -> None:
    for text in (rule.meaning, rule.advice):
        assert text.endswith("."), text
        assert len(text) > 15


def test_what_is_broken_under_a_static_seed_only_is_found_there() -> None:
    class DoubleWhenStatic(GoodEnv):
        def _observe(self) -> Any:
            assert self._seeds is not None
            return self._place.astype(np.float32 if self._seeds.dynamic else np.float64)

    (finding,) = check(DoubleWhenStatic)
    assert finding.rule == "obs_dtype"
    assert finding.where == "obs, reset of episode 0 (static seed 0)"


class HasNoTruth:
    """Raises wherever it is asked for anything."""

    def __bool__(self) -> bool:
        raise RuntimeError

    def __eq__(self, other: object) -> bool:
        raise RuntimeError

    def __repr__(self) -> str:
        raise RuntimeError

    __hash__ = None


ODD = [
    None,
    "text",
    [1, 2],
    {1: 2},
    (np.zeros(3), {}),
    np.array([None, 1, 2]),
    np.array(["a", "b", "c"]),
    np.zeros(3, [("field", "i4")]),
    np.zeros(0),
    np.ones(3, bool),
    HasNoTruth(),
]


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: f"{type(odd).__name__}-{getattr(odd, 'dtype', '')}")
@pytest.mark.parametrize("part", ["obs", "reward", "done", "info", "eval_episode_return", "timestep", "num_agents"])
def test_whatever_an_env_returns_is_a_finding_and_no_exception(part: str, odd: Any) -> None:
    class Odd(GoodEnv):
        num_agents = odd if part == "num_agents" else 1

        def step(self, action: Any) -> Any:
            timestep = super().step(action)
            if part == "timestep":
                return odd
            if part == "eval_episode_return":
                timestep.info.update({part: odd, "final_eval_reward": odd})
                return timestep
            return timestep._replace(**{part: odd}) if part in timestep._fields else timestep

    report = check(Odd, {"length": 2})
    assert report
    assert [line for line in str(report).splitlines() if line.startswith(f"  {report[0].rule} ")]


def test_a_sample_of_a_discrete_space_comes_as_an_array() -> None:
    seen = []

    class Watching(GoodEnv):
        def step(self, action: Any) -> Any:
            seen.append(action)
            return super().step(action)

    assert check(Watching) == []
    assert all(isinstance(action, np.ndarray) and action.dtype == np.int64 and action.shape == () for action in seen)
    assert {int(action) for action in seen} == {0, 1, 2}


def test_while_a_profiler_runs_the_calls_in_init_are_not_watched() -> None:
    def profiler(*_: Any) -> None:
        pass

    sys.setprofile(profiler)
    try:
        report = check(ResetsInInit)
        assert sys.getprofile() is profiler
    finally:
        sys.setprofile(None)
    assert report == []
    assert "profiler" in report.unchecked["lazy_construction"]


# ---- findings and the report ----------------------------------------------------------------------


def test_a_finding_says_what_where_expected_got_and_advice_in_one_line() -> None:
    (finding,) = check(NumpyDone)
    # 5 steps of one whole episode, 4 runs of 6 short episodes, 2 of 3.
    assert finding == Finding(
        rule="done_type",
        where="done, step 1 of episode 0",
        expected="a bool",
        got="an np.bool_",
        advice="Return bool(done).",
        count=5 * (1 + 4 * 6 + 2 * 3),
    )
    assert str(finding) == (
        "done_type: done, step 1 of episode 0: expected a bool, got an np.bool_ (seen 155 times). Return bool(done)."
    )


def test_the_report_is_printed_line_by_line(capsys: pytest.CaptureFixture[str]) -> None:
    class Broken(DoubleObs):
        def close(self) -> None:
            if self._world is None:
                raise RuntimeError("closed\nalready")
            super().close()

    report = check(Broken, episodes=2, print_report=True)
    printed = capsys.readouterr().out
    line = Broken.close.__code__.co_firstlineno + 2
    assert printed == (
        "check_env(Broken): 32 episodes, 160 steps, seed 0\n"
        "  obs_dtype    obs, reset of episode 0: expected float32 or int64, or uint8 for an image, got float64 "
        "(seen 192 times). Cast it, obs.astype(np.float32), and let the observation space say the same.\n"
        "  close_twice  close() of a closed env: expected nothing to happen, got RuntimeError: closed already "
        f"(test_check_env.py:{line}). Let close() do nothing if nothing is open.\n"
        "  not checked: cfg_unchanged: needs a configuration: pass cfg=\n"
        f"{len(RULES) - 1} rules checked, 2 findings, 1 rule not checked\n"
    )
    assert str(report) == printed.rstrip("\n")


def test_a_clean_report_is_two_lines(capsys: pytest.CaptureFixture[str]) -> None:
    assert check_env(GoodEnv, CFG, seed=3, episodes=1) == []
    assert capsys.readouterr().out == (
        f"check_env(GoodEnv): 31 episodes, 155 steps, seed 3\n{len(RULES)} rules checked, 0 findings\n"
    )


def test_nothing_is_printed_where_that_was_not_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    check_env(NumpyDone, print_report=False, episodes=1)
    assert capsys.readouterr().out == ""


def test_a_trial_that_breaks_off_says_what_it_could_not_check() -> None:
    report = check(RaisesInInit, CFG)
    (finding,) = report
    assert finding.got.startswith("KeyError: 'level' (broken.py:")
    assert report.checked == ["no_exception"]
    assert str(report).splitlines()[2:] == [
        f"  not checked: {len(RULES) - 1} rules: the constructor raised",
        f"1 rule checked, 1 finding, {len(RULES) - 1} rules not checked",
    ]


class Exits(GoodEnv):
    def step(self, action: Any) -> Any:
        sys.exit(1)


class ExitsInClose(GoodEnv):
    def close(self) -> None:
        sys.exit(1)


class AnswersWithErrors(GoodEnv):
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"no {name} here")


class DmWithoutSpecs(dm_env.Environment):
    def reset(self) -> Any:
        raise AssertionError("not reached")

    def step(self, action: Any) -> Any:
        raise AssertionError("not reached")

    def observation_spec(self) -> Any:
        raise KeyError("eye")

    action_spec = observation_spec


@pytest.mark.parametrize(
    ("env", "rule", "where", "got"),
    [
        (Exits, "no_exception", "step 1 of episode 0", "SystemExit: 1"),
        (ExitsInClose, "no_exception", "close()", "SystemExit: 1"),
        (AnswersWithErrors, "no_exception", "hasattr(env, 'unwrapped')", "RuntimeError: no unwrapped here"),
        (DmWithoutSpecs, "no_exception", "as_base_env(env)", "KeyError: 'eye'"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_whatever_an_env_raises_is_a_finding(env: Any, rule: str, where: str, got: str) -> None:
    first = next(iter(check(env)))
    assert (first.rule, first.where) == (rule, where)
    assert first.got.startswith(f"{got} (")


def test_an_env_that_answers_with_errors_is_checked_all_the_same() -> None:
    report = check(AnswersWithErrors)
    assert rules_in(report) == {"no_exception"}
    assert "static_seed" in report.checked
    assert str(check(AnswersWithErrors())).startswith("check_env(AnswersWithErrors): ")


def test_rules_are_still_checked_on_what_was_seen_before_an_exception() -> None:
    class Both(RaisesInSecondReset, NumpyDone):
        pass

    report = check(Both, episodes=2)
    assert rules_in(report) == {"no_exception", "done_type"}
    assert report.unchecked["static_seed"] == "reset of episode 1 raised"
    assert "obs_dtype" in report.checked


def test_an_episode_without_an_end_is_said_and_not_counted_as_a_finding() -> None:
    report = check(Endless, steps=5)
    assert report == []
    assert report.unchecked["episode_return"] == "no episode ended within 5 steps: give it more of them (steps)"


# ---- what can be checked --------------------------------------------------------------------------


def test_one_env_is_checked_as_far_as_one_env_can_be() -> None:
    report = check(GoodEnv(CFG))
    assert report == []
    assert set(report.unchecked) == {"lazy_construction", "cfg_unchanged", "independent_envs", "close_frees"}
    assert rules_in(check(SameArray())) == {"own_memory"}
    assert rules_in(check(StepsFromTheStream())) == {"static_seed"}


def test_one_env_is_closed_at_the_end() -> None:
    env = GoodEnv()
    check(env)
    assert env._world is None


def test_a_function_that_makes_envs() -> None:
    report = check(lambda: GoodEnv(CFG))
    assert report == []
    assert set(report.unchecked) == {"cfg_unchanged"}
    assert report.title.startswith("check_env(GoodEnv): ")


def test_a_function_that_takes_a_cfg() -> None:
    report = check(lambda cfg: GoodEnv({**cfg, "length": 3}), CFG, episodes=2)
    assert report == []
    assert report.title == "check_env(GoodEnv): 32 episodes, 96 steps, seed 0"


def test_a_gymnasium_env_by_function_by_class_and_by_itself() -> None:
    needs_base_env = {"lazy_construction", "reset_after_close"}
    report = check(lambda: gymnasium.make("CartPole-v1"), steps=100)
    assert report == []
    assert set(report.unchecked) == {*needs_base_env, "cfg_unchanged"}
    report = check(CartPoleEnv, {"sutton_barto_reward": True}, steps=100)
    assert report == []
    assert set(report.unchecked) == needs_base_env
    report = check(gymnasium.make("CartPole-v1"), steps=100)
    assert report == []
    assert report.title.startswith("check_env(CartPoleEnv): ")


def test_a_gymnasium_env_that_is_broken() -> None:
    class Outside(CartPoleEnv):
        def step(self, action: Any) -> Any:
            observation, reward, terminated, truncated, info = super().step(action)
            return observation * 1000, reward, terminated, truncated, info

    assert rules_in(check(Outside)) == {"obs_bounds"}


def test_a_gymnasium_env_through_its_wrapper_is_built_late() -> None:
    assert set(check(DingEnvWrapper, "FrozenLake-v1", steps=100).unchecked) == {"env_cfgs"}
    assert check(DingEnvWrapper, "FrozenLake-v1") == []


def test_an_adapter_that_was_given_an_env_cannot_build_it_again() -> None:
    report = check(lambda: DingEnvWrapper(gymnasium.make("CartPole-v1")))
    assert report == []
    assert "give it a function" in report.unchecked["reset_after_close"]


class Counter(dm_env.Environment):
    """Counts to five."""

    def reset(self) -> dm_env.TimeStep:
        self._count = 0
        return dm_env.restart(np.zeros(1, np.float32))

    def step(self, action: Any) -> dm_env.TimeStep:
        self._count += 1
        seen = np.full(1, self._count, np.float32)
        return dm_env.termination(1.0, seen) if self._count == 5 else dm_env.transition(1.0, seen)

    def observation_spec(self) -> Any:
        return specs.Array((1,), np.float32)

    def action_spec(self) -> Any:
        return specs.DiscreteArray(2)


def test_a_dm_env() -> None:
    report = check(Counter)
    assert report == []
    assert "nothing random" in report.unchecked["distinct_envs"]


@pytest.mark.parametrize(
    ("module", "name", "cfg"),
    [
        ("control", "CartPoleEnv", {}),
        ("control", "PendulumEnv", {}),
        ("hybrid", "HybridEnv", {"env_id": "Moving"}),
        ("hybrid", "HybridEnv", {"env_id": "Sliding"}),
    ],
)
def test_the_zoo_keeps_the_contract(module: str, name: str, cfg: dict[str, Any]) -> None:
    env = getattr(importlib.import_module(f"stepmill.zoo.{module}"), name)
    report = check(env, cfg, steps=1000)
    assert report == [], str(report)
    assert report.unchecked == {}


def test_the_atari_env_keeps_the_contract() -> None:
    pytest.importorskip("ale_py")
    from stepmill.zoo.atari import AtariEnv

    report = check(AtariEnv, {"env_id": "ALE/Pong-v5", "noop_max": 1}, steps=3)
    assert report == [], str(report)
    assert set(report.unchecked) == {"episode_return", "episode_return_alias"}


def test_a_function_that_makes_no_env_is_an_error() -> None:
    with pytest.raises(ConfigError, match="check_env: expected <lambda> to make an env, got 3"):
        check_env(lambda: 3)


@pytest.mark.parametrize("wrong", [3, None, {}])
def test_what_is_no_env_is_an_error(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="expected an env, an env class, a function that makes one or an id, got"):
        check_env(wrong)


def test_an_env_that_exists_takes_no_cfg() -> None:
    with pytest.raises(ConfigError, match="exists already"):
        check_env(GoodEnv(), cfg={})


@pytest.mark.parametrize(("name", "least"), [("seed", 0), ("episodes", 1), ("steps", 1)])
@pytest.mark.parametrize("wrong", [-1, 1.5, True, "3"])
def test_invalid_numbers_are_an_error(name: str, least: int, wrong: Any) -> None:
    with pytest.raises(ConfigError, match=f"check_env: {name}: expected a whole number.*, got {wrong!r}"):
        check_env(GoodEnv, **{name: wrong})
    with pytest.raises(ConfigError, match=f"check_env: {name}: expected a whole number >= {least}, got {least - 1}"):
        check_env(GoodEnv, **{name: least - 1})


def test_numbers_of_numpy_are_numbers() -> None:
    assert check(GoodEnv, seed=np.int64(1), episodes=np.int32(1), steps=np.uint8(10)) == []


# ---- what a check leaves alone --------------------------------------------------------------------


@pytest.mark.parametrize("raises_at", [1, 10, 30, 100])
def test_every_env_is_closed_whatever_it_raises(raises_at: int) -> None:
    made, steps = [], 0

    class Raises(GoodEnv):
        def __init__(self, cfg: Any = None) -> None:
            super().__init__(cfg)
            made.append(self)

        def step(self, action: Any) -> Any:
            nonlocal steps
            steps += 1
            if steps == raises_at:
                raise ValueError("enough")
            return super().step(action)

    assert rules_in(check(Raises)) == {"no_exception"}
    assert [env._world for env in made] == [None] * len(made)
    steps = 0
    env = Raises()
    assert rules_in(check(env)) == {"no_exception"}
    assert env._world is None


def test_the_global_generators_are_as_they_were() -> None:
    class Uses(GoodEnv):
        def reset(self, **kwargs: Any) -> Any:
            random.seed(0)
            np.random.seed(0)
            return super().reset()

    np.random.seed(5)
    random.seed(5)
    expected = np.random.RandomState(5).rand(), random.Random(5).random()
    report = check(Uses)
    assert rules_in(report) == {"global_generators"}
    assert [finding.where for finding in report] == ["np.random in reset()", "random in reset()"]
    assert (np.random.rand(), random.random()) == expected


def test_the_cfg_of_the_caller_is_as_it_was() -> None:
    class Clears(GoodEnv):
        def reset(self, **kwargs: Any) -> Any:
            self._cfg.clear()
            return super().reset()

    cfg = copy.deepcopy(CFG)
    assert rules_in(check(Clears, cfg)) == {"cfg_unchanged"}
    assert cfg == CFG


def test_a_random_action_is_judged_part_by_part() -> None:
    (finding,) = check(RandomActionOutside)
    assert (finding.expected, finding.got) == ("an action of Discrete(3)", "array(3)")


def test_a_text_in_an_observation_is_checked_by_its_space() -> None:
    class Speaks(GoodEnv):
        def __init__(self, cfg: Any = None) -> None:
            super().__init__(cfg)
            text = spaces.Text(5, charset="ab")
            self.observation_space = spaces.Dict({"place": self.observation_space, "text": text})

        def _observe(self) -> Any:
            return {"place": super()._observe(), "text": self._word()}

        def _word(self) -> str:
            return "ab"

    class SpeaksAnother(Speaks):
        def _word(self) -> str:
            return "c"

    assert check(Speaks) == []
    (finding,) = check(SpeaksAnother)
    assert (finding.rule, finding.got) == ("obs_bounds", "'c'")
    assert finding.where == "obs['text'], reset of episode 0"
