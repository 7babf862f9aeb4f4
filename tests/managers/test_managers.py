"""The env managers, by the sentences of their contract: making, states, steps, resets, seeds, what is handed out."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from easydict import EasyDict
from gymnasium import spaces

import stepmill
from stepmill import EnvError, errors
from stepmill.envs import BaseEnvTimestep, DingEnvWrapper
from stepmill.managers import (
    AsyncSubprocessEnvManager,
    BaseEnvManager,
    EnvState,
    SubprocessEnvManager,
    SyncSubprocessEnvManager,
    create_env_manager,
    get_vec_env_setting,
)
from support.contract_envs import DmWalk, Pair, PairWithState
from support.envs import SpaceEnv
from support.manager_envs import KINDS, Shapeless, Trial, count, doing, elapsed, launched, make, play, states, suffering
from support.probes import ProbeTwin, assert_equal
from support.process_envs import Gate, eventually
from support.replay_envs import CountingEnv, counts

pytestmark = pytest.mark.usefixtures("deadline", "server")

VOID, INIT, RUN, RESET, DONE, ERROR, NEED_RESET = EnvState
ALL = pytest.mark.parametrize("kind", KINDS)
# Where the ways of waiting say nothing new.
BOTH = pytest.mark.parametrize("kind", ["serial", "async"])


# ---- making --------------------------------------------------------------------------------------


@BOTH
def test_one_function_makes_an_env_of_each_cfg(kind: str) -> None:
    with KINDS[kind](Trial, [{"length": 2}, {"length": 3}], 2, 1) as manager:
        manager.launch()
        assert (manager.env_num, manager.closed) == (2, False)
        assert [len(one[0].rewards) for one in play(manager).values()] == [2, 3]


@BOTH
def test_each_function_of_a_list_makes_an_env(kind: str) -> None:
    functions = [lambda: Trial({"length": 2}), lambda: Trial({"length": 3})]
    with KINDS[kind](env_fn=functions, cfg={"episode_num": 1}) as manager:
        manager.launch()
        assert [len(one[0].rewards) for one in play(manager).values()] == [2, 3]


def test_a_cfg_arrives_as_it_is_whatever_its_type() -> None:
    class Asking(Trial):
        def __init__(self, config: Any) -> None:  # its name is the env's own
            self.given = config
            super().__init__(config)

    cfg = EasyDict(length=3, inner={"deep": 1})
    with SubprocessEnvManager(Asking, [cfg], 1) as manager:
        manager.launch()
        (given,) = manager.given
        assert type(given) is EasyDict
        assert given.inner.deep == 1


def test_old_arguments_may_be_given_by_place(gate: Gate) -> None:
    cfgs = [suffering("step", "gate", folder=gate.folder, id=0), {}]
    with SubprocessEnvManager(Trial, cfgs, 2, "inf", None, 1) as manager:
        manager.launch()
        assert list(manager.step({0: 0, 1: 0})) == [1]
        gate.open(0)


WRONG_ENVS: dict[str, tuple[tuple[Any, ...], str]] = {
    "too few cfgs": ((Trial, [{}], 2), "expected env_num=2 configurations, one an env, got 1"),
    "too many cfgs": ((Trial, [{}] * 3, 2), "expected env_num=2 configurations, one an env, got 3"),
    "no cfgs": ((Trial, [], 0), "env_num: expected a whole number >= 1, got 0"),
    "a cfg instead of a list": ((Trial, {"length": 2}, 1), "env_cfg: expected a list of configurations"),
    "nothing": ((Trial,), "env_cfg: expected a list of configurations"),
    "cfgs with a list": (([Trial], [{}]), "env_cfg: it goes with one env_fn"),
    "another number": (([Trial], None, 2), "env_num: expected 1"),
    "an env": ((Trial(),), "env_fn: expected a function, or a list of functions"),
    "a list of envs": (([Trial()],), "env_fn: expected a function, or a list of functions"),
    "an empty list": (([],), "env_fn: expected a function, or a list of functions"),
}


@BOTH
@pytest.mark.parametrize("wrong", WRONG_ENVS)
def test_envs_that_cannot_be_are_an_error(kind: str, wrong: str) -> None:
    arguments, message = WRONG_ENVS[wrong]
    with pytest.raises(errors.ConfigError, match=message):
        KINDS[kind](*arguments)


def test_the_default_config() -> None:
    for kind in KINDS.values():
        config = kind.default_config()
        expected = {
            "max_retry": 1,
            "retry_type": "reset",
            "retry_waiting_time": 0.1,
            "auto_reset": True,
            "step_timeout": None,
            "reset_timeout": None,
            "shared_memory": True,
        }
        assert {key: config[key] for key in expected} == expected
        assert config["episode_num"] in ("inf", math.inf)
        assert {"step_wait_timeout", "connect_timeout", "copy_on_get", "context", "reset_inplace"} <= config.keys()
        config["max_retry"] = 9
        assert kind.default_config()["max_retry"] == 1, "it is a copy"
        assert not kind([Trial], cfg=kind.default_config()).done


def test_async_managers_wait_for_two_envs_and_ten_milliseconds_and_sync_ones_for_all() -> None:
    for kind in (SubprocessEnvManager, AsyncSubprocessEnvManager):
        assert kind.default_config()["wait_num"] == 2
        assert kind.default_config()["step_wait_timeout"] == 0.01
    assert SyncSubprocessEnvManager.default_config()["wait_num"] == math.inf


WRONG_SETTINGS: dict[str, tuple[dict[str, Any], str]] = {
    "retry_type": ({"retry_type": "again"}, "retry_type: expected one of 'reset', 'renew', got 'again'"),
    "max_retry": ({"max_retry": -1}, "max_retry: expected a whole number >= 0, got -1"),
    "waiting": ({"retry_waiting_time": -0.5}, "retry_waiting_time: expected a finite number"),
    "episodes": ({"episode_num": 0}, "episode_num: expected a whole number >= 1, got 0"),
    "half an episode": ({"episode_num": 1.5}, "episode_num: expected a whole number, got 1.5"),
    "auto_reset": ({"auto_reset": "yes"}, "auto_reset: expected True or False, got 'yes'"),
    "output": ({"output": "jax"}, "output: expected one of 'numpy', 'torch', got 'jax'"),
    "wait_num": ({"wait_num": 0}, "wait_num: expected a whole number >= 1, got 0"),
    "timeout": ({"step_wait_timeout": -1}, "step_wait_timeout: expected a finite number >= 0"),
    "step_timeout": ({"step_timeout": 0}, "step_timeout: expected a finite number of seconds > 0, got 0"),
    "reset_timeout": ({"reset_timeout": "soon"}, "reset_timeout: expected a finite number of seconds > 0, got 'soon'"),
    "connect_timeout": ({"connect_timeout": 0}, "connect_timeout: expected a finite number of seconds > 0, got 0"),
    "context": ({"context": "thread"}, "context: expected one of 'fork', 'spawn', 'forkserver', got 'thread'"),
    "unknown": ({"max_retries": 3}, "no config key 'max_retries'.*max_retry"),
    "not a dict": ([("max_retry", 1)], "cfg: expected a dict"),  # type: ignore[dict-item]
}


@pytest.mark.parametrize("wrong", WRONG_SETTINGS)
def test_settings_that_cannot_be_are_an_error(wrong: str) -> None:
    cfg, message = WRONG_SETTINGS[wrong]
    with pytest.raises(errors.ConfigError, match=f"^SubprocessEnvManager.*{message}"):
        SubprocessEnvManager([Trial], cfg=cfg)


def test_an_unknown_argument_is_an_error() -> None:
    with pytest.raises(errors.ConfigError, match=r"BaseEnvManager.*max_retries.*max_retry"):
        BaseEnvManager([Trial], max_retries=3)


def test_a_deadline_in_this_process_is_refused() -> None:
    for key in ("step_timeout", "reset_timeout"):
        with pytest.raises(errors.UnsupportedError, match=f"BaseEnvManager: {key}: .*SubprocessEnvManager"):
            BaseEnvManager([Trial], cfg={key: 1.0})


@BOTH
def test_what_the_caller_passed_stays_as_it_was(kind: str) -> None:
    class Greedy(Trial):
        def __init__(self, cfg: Any) -> None:
            cfg["length"] = cfg.pop("inner").pop("length")
            super().__init__(cfg)

    cfgs = [{"inner": {"length": 2}}, {"inner": {"length": 3}}]
    given = {"cfgs": cfgs, "settings": {"episode_num": 1}, "seeds": [5, 6], "params": [{"a": 1}, {"b": 2}]}
    before = copy.deepcopy(given)
    with KINDS[kind](Greedy, cfgs, 2, cfg=given["settings"]) as manager:
        manager.seed(given["seeds"])
        manager.launch(given["params"])
        manager.env_ref  # noqa: B018  (it takes a copy, too)
        actions = {0: np.array([1]), 1: np.array([0])}
        manager.step(actions)
        assert (given, actions) == (before, {0: np.array([1]), 1: np.array([0])})
        cfgs[0]["inner"]["length"] = 9
        manager.close()
        manager.launch()
        assert [len(one[0].rewards) for one in play(manager).values()] == [2, 3], "cfgs are read once"


@BOTH
def test_envs_are_built_where_they_run_and_the_parent_builds_one_when_it_is_asked_for(
    kind: str, tmp_path: Path
) -> None:
    def counted(what: str) -> list[int]:
        return [count(tmp_path, what, env_id) for env_id in (0, 1)]

    manager = make(kind, [{"folder": tmp_path}] * 2)
    assert counted("built") == [0, 0]
    manager.launch()
    assert manager.observation_space == Trial.observation_space
    assert manager.env_info.act_space.shape == (3,)
    assert counted("built") == [1, 1]
    ref = manager.env_ref
    assert manager.env_ref is ref
    assert (manager.pid[0] == ref.pid) == (kind == "serial")
    assert counted("built") == [2, 1]
    manager.close()
    assert counted("closed") == [2, 1]


@BOTH
def test_spaces_and_env_info_are_those_of_one_env_before_and_after_launch(kind: str) -> None:
    manager = make(kind, 2)
    for launch in (False, True):
        if launch:
            manager.launch()
        assert manager.observation_space == Trial.observation_space
        assert manager.action_space == Trial.action_space
        assert manager.reward_space == Trial.reward_space
        assert str(manager.env_info) == str(Trial().info())
    manager.close()


TYPES = {
    "base": BaseEnvManager,
    "subprocess": SyncSubprocessEnvManager,
    "async_subprocess": AsyncSubprocessEnvManager,
    "BaseEnvManager": BaseEnvManager,
    "SubprocessEnvManager": SubprocessEnvManager,
    "SyncSubprocessEnvManager": SyncSubprocessEnvManager,
    "AsyncSubprocessEnvManager": AsyncSubprocessEnvManager,
}


@pytest.mark.parametrize("name", TYPES)
def test_create_env_manager_makes_the_manager_that_cfg_names(name: str) -> None:
    cfg = EasyDict(type=name, episode_num=3, import_names=["json"], shared_memory=False, connect_timeout=50)
    before = copy.deepcopy(cfg)
    manager = create_env_manager(cfg, [Trial, Trial])
    assert type(manager) is TYPES[name]
    assert manager.env_num == 2
    assert cfg == before
    assert create_env_manager({"type": name, "env_fn": Trial, "env_cfg": [{}] * 3, "env_num": 3}).env_num == 3


def test_create_env_manager_says_what_is_wrong() -> None:
    with pytest.raises(errors.MissingConfigError, match="create_env_manager: expected a cfg with the key type"):
        create_env_manager({}, [Trial])
    with pytest.raises(errors.ConfigError, match=r"type: expected one of base, subprocess.*got 'ray'"):
        create_env_manager({"type": "ray"}, [Trial])
    with pytest.raises(errors.UnknownConfigError, match="no config key 'episodes'"):
        create_env_manager({"type": "base", "episodes": 3}, [Trial])
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        create_env_manager({"type": "base", "import_names": ["no_such_module"]}, [Trial])


def test_get_vec_env_setting_gives_the_env_and_the_cfgs_of_a_run() -> None:
    cfg = EasyDict(type=Trial, collector_env_num=3, evaluator_env_num=2, length=4)
    before = copy.deepcopy(cfg)
    env_fn, collectors, evaluators = get_vec_env_setting(cfg)
    assert env_fn is Trial
    assert [(one["is_train"], one["length"]) for one in collectors or ()] == [(True, 4)] * 3
    assert [(one["is_train"], one["length"]) for one in evaluators or ()] == [(False, 4)] * 2
    assert cfg == before
    with BaseEnvManager(env_fn, collectors, 3, 1) as manager:
        manager.launch()
        assert [len(one[0].rewards) for one in play(manager).values()] == [4, 4, 4]
    assert get_vec_env_setting(cfg, eval_=False)[2] is None
    assert get_vec_env_setting(cfg, collect=False)[1] is None


@pytest.mark.parametrize("kind", ["support.manager_envs:Trial", "CartPole-v1"])
def test_get_vec_env_setting_finds_envs_by_path_and_by_id(kind: str) -> None:
    env_fn, cfgs, _ = get_vec_env_setting({"type": kind, "collector_env_num": 2})
    env = env_fn((cfgs or [])[0])
    assert env.observation_space.shape == ((3,) if kind == "support.manager_envs:Trial" else (4,))
    env.close()


def test_get_vec_env_setting_says_what_is_wrong() -> None:
    with pytest.raises(errors.MissingConfigError, match="get_vec_env_setting: expected a cfg with the key type"):
        get_vec_env_setting({})
    with pytest.raises(errors.ConfigError, match="type: expected an env class, a path to one or an id, got 3"):
        get_vec_env_setting({"type": 3})


# ---- launch and close ----------------------------------------------------------------------------


@BOTH
def test_launch_leads_from_void_to_run(kind: str) -> None:
    seen = []

    class Watched(KINDS[kind]):  # type: ignore[misc]
        def reset(self, *args: Any, **kwargs: Any) -> None:
            seen.append(states(self))
            super().reset(*args, **kwargs)

    manager = Watched(Trial, [{}, {}], 2)
    seen.append(states(manager))
    manager.launch()
    seen.append(states(manager))
    manager.close()
    seen.append(states(manager))
    assert seen == [[VOID] * 2, [INIT] * 2, [RUN] * 2, [VOID] * 2]


def test_envs_that_are_being_reset_are_in_state_reset() -> None:
    seen = []

    class Watching(Trial):
        def reset(self, **kwargs: Any) -> Any:
            seen.append(manager.env_state[self.env_id])
            return super().reset(**kwargs)

    with make("serial", [{"length": 1}], Watching) as manager:
        manager.launch()
        manager.step({0: 0})
    assert seen == [RESET, RESET]


@BOTH
def test_closing_twice_is_silent_and_a_closed_manager_can_be_launched_again(kind: str) -> None:
    manager = make(kind, [{"length": 2}] * 2, episode_num=1)
    manager.close()
    manager.seed(3)
    first = None
    for _ in range(2):
        manager.launch()
        assert (manager.closed, list(manager.episode_count.values())) == (False, [0, 0])
        played = play(manager)
        assert first is None or played == first, "the seeds that were given hold"
        first = played
        assert list(manager.episode_count.values()) == [1, 1]
        manager.close()
        manager.close()
        assert (manager.closed, states(manager)) == (True, [VOID, VOID])


@BOTH
def test_launching_an_open_manager_is_an_error_and_changes_nothing(kind: str) -> None:
    with launched(kind, 2) as manager:
        manager.step({0: 0})
        with pytest.raises(errors.UsageError, match="launched already"):
            manager.launch()
        assert elapsed(manager) == {0: 1, 1: 0}


@BOTH
def test_use_of_a_manager_that_is_not_launched_is_an_error(kind: str) -> None:
    manager = make(kind, 2)
    uses = {
        "ready_obs": lambda: manager.ready_obs,
        "next_obs": lambda: manager.next_obs,
        "ready_obs_id": lambda: manager.ready_obs_id,
        "reset": lambda: manager.reset(),
        "step": lambda: manager.step({0: 0}),
        "step nothing": lambda: manager.step({}),
    }
    for _ in range(2):
        for use in uses.values():
            with pytest.raises(errors.ClosedError, match=r"not launched: call launch\(\)"):
                use()
        with pytest.raises(AttributeError, match="pid"):
            manager.pid  # noqa: B018
        assert (manager.ready_env, manager.active_env, manager.env_done, manager.done) == ([], [], [], False)
        manager.launch()
        manager.close()


@BOTH
def test_a_launch_with_wrong_parameters_leaves_the_manager_closed(kind: str) -> None:
    manager = make(kind, 2)
    with pytest.raises(errors.InputError, match="expected 2 parameters"):
        manager.launch([{}])
    assert (manager.closed, states(manager)) == (True, [VOID, VOID])
    manager.launch([{}, {}])
    manager.close()


def test_the_name_says_what_it_is() -> None:
    manager = make("async", 2)
    assert repr(manager) == "SubprocessEnvManager(env_num=2, closed)"


# ---- states --------------------------------------------------------------------------------------


@BOTH
def test_an_env_is_reset_as_soon_as_it_ends_and_the_others_are_not(kind: str) -> None:
    with launched(kind, [{"length": 1}, {"length": 5}]) as manager:
        timesteps = {}
        while len(timesteps) < 2:
            timesteps.update(manager.step({} if timesteps else {0: 0, 1: 0}))
        assert [timesteps[i].done for i in (0, 1)] == [True, False]
        assert timesteps[0].obs[2] == 1, "an end shows the last observation"
        assert eventually(lambda: 0 in manager.ready_obs)
        assert states(manager) == [RUN, RUN]
        assert elapsed(manager) == {0: 0, 1: 1}
        assert manager.episode_count == {0: 1, 1: 0}


def test_an_env_whose_reset_is_not_over_is_in_state_reset_and_takes_no_action(gate: Gate) -> None:
    cfgs = [suffering("reset", "gate", [2], folder=gate.folder, length=1), {}]
    with launched("async", cfgs) as manager:
        manager.step({0: 0, 1: 0})
        assert gate.wait() == 0
        assert states(manager) == [RESET, RUN]
        assert list(manager.ready_obs) == manager.ready_obs_id == manager.active_env == manager.ready_env == [1]
        with pytest.raises(errors.InFlightError, match=r"the envs \[0\].*nothing was sent.*0: 'RESET', 1: 'RUN'"):
            manager.step({0: 0, 1: 0})
        assert elapsed(manager) == {1: 1}
        assert list(manager.step({1: 0})) == [1]
        gate.open(0)
        assert eventually(lambda: 0 in manager.ready_obs)
        assert (states(manager), elapsed(manager)) == ([RUN, RUN], {0: 0, 1: 2})


@BOTH
def test_without_auto_reset_an_ended_env_needs_one(kind: str) -> None:
    with launched(kind, [{"length": 1}, {}], auto_reset=False) as manager:
        manager.step({0: 0})
        assert states(manager) == [NEED_RESET, RUN]
        assert elapsed(manager) == {1: 0}
        with pytest.raises(errors.InFlightError, match="0: 'NEED_RESET'"):
            manager.step({0: 0, 1: 0})
        assert elapsed(manager) == {1: 0}, "nothing was sent"
        manager.reset({0: None})
        assert (states(manager), elapsed(manager)) == ([RUN, RUN], {0: 0, 1: 0})
        assert manager.episode_count == {0: 1, 1: 0}


@pytest.mark.parametrize(
    ("kind", "auto_reset"), [("serial", True), ("serial", False), ("sync", True), ("async", True), ("async", False)]
)
def test_every_env_plays_its_episodes_and_not_one_more(kind: str, auto_reset: bool, tmp_path: Path) -> None:
    lengths = [1, 2, 3, 7]
    with launched(
        kind, [{"length": n, "folder": tmp_path} for n in lengths], episode_num=3, auto_reset=auto_reset
    ) as manager:
        episodes: list[list[int]] = [[] for _ in lengths]
        steps = [0] * len(lengths)
        while not manager.done:
            assert manager.env_done == [i for i, one in enumerate(episodes) if len(one) == 3]
            for env_id in [i for i, state in manager.env_state.items() if state is NEED_RESET]:
                manager.reset({env_id: None})
            for env_id, timestep in manager.step(dict.fromkeys(manager.ready_obs, 0)).items():
                steps[env_id] += 1
                if timestep.done:
                    episodes[env_id].append(steps[env_id])
                    steps[env_id] = 0
        assert episodes == [[n] * 3 for n in lengths]
        assert manager.episode_count == dict.fromkeys(range(4), 3)
        assert (states(manager), manager.env_done) == ([DONE] * 4, [0, 1, 2, 3])
        assert (manager.all_done, manager.done) == (True, True)
        for env_id, n in enumerate(lengths):
            assert count(tmp_path, "step", env_id) == 3 * n
            assert count(tmp_path, "reset", env_id) == 3, "there is no reset after the last one"


@BOTH
def test_an_env_that_is_done_takes_no_action(kind: str) -> None:
    with launched(kind, [{"length": 1}, {}], episode_num=1) as manager:
        manager.step({0: 0})
        assert (states(manager), manager.env_done, manager.all_done) == ([DONE, RUN], [0], False)
        with pytest.raises(errors.InFlightError, match=r"the envs \[0\].*0: 'DONE', 1: 'RUN'"):
            manager.step({0: 0, 1: 0})
        assert elapsed(manager) == {1: 0}
        assert list(manager.step({1: 0})) == [1]


@BOTH
def test_an_abnormal_step_marks_the_env_and_is_flagged_to_the_caller(kind: str) -> None:
    with launched(kind, [{"abnormal_at": 2, "length": 2}, {}]) as manager:
        manager.step({0: 0})
        timesteps = manager.step({0: 0})
        assert timesteps[0].info["abnormal"] is True
        assert (states(manager), list(manager.ready_obs)) == ([ERROR, RUN], [1])
        assert manager.episode_count[0] == 0, "it is no episode to learn from"
        with pytest.raises(errors.InFlightError, match="0: 'ERROR'"):
            manager.step({0: 0})
        manager.reset({0: None})
        assert (states(manager), elapsed(manager)) == ([RUN, RUN], {0: 0, 1: 0})


# ---- step ----------------------------------------------------------------------------------------


@BOTH
def test_a_timestep_is_what_the_env_gave(kind: str) -> None:
    lone = Trial({"length": 2})
    lone.seed(7)
    with make(kind, [{"length": 2}]) as manager:
        manager.seed(7)
        manager.launch()
        assert_equal(manager.ready_obs, {0: lone.reset()})
        for done in (False, True):
            seen, expected = manager.step({0: 1})[0], lone.step(np.array(1))
            assert type(seen) is BaseEnvTimestep
            assert_equal(tuple(seen)[:3], tuple(expected)[:3])
            assert type(seen.done) is bool
            assert seen.done == done
            assert seen.info.items() >= expected.info.items()
        assert seen.info["eval_episode_return"] == seen.info["final_eval_reward"] == lone.score


ACTIONS = [1, np.int32(1), np.array(1), np.array([1]), [1], 1.0]


@BOTH
def test_actions_may_be_numbers_arrays_and_lists(kind: str) -> None:
    with launched(kind, [{"length": 50}] * 2) as manager:
        for action, other in [*zip(ACTIONS, ACTIONS, strict=True), ([1], 0), (0, np.array([[1]]))]:
            timesteps = manager.step({0: action, 1: other})
            while len(timesteps) < 2:
                timesteps.update(manager.step({}))
            assert {i: one.info["action"] for i, one in timesteps.items()} == {0: np.sum(action), 1: np.sum(other)}


@pytest.mark.torch
@BOTH
def test_actions_may_be_tensors(kind: str) -> None:
    import torch

    with launched(kind, 1) as manager:
        for action in (torch.tensor(1), torch.tensor([1.0], requires_grad=True)):
            assert manager.step({0: action})[0].info["action"] == 1


STRUCTURED = spaces.Dict(
    {"move": spaces.Box(-1, 1, (2,), np.float32), "keys": spaces.Tuple([spaces.Discrete(3), spaces.MultiBinary(2)])}
)


@pytest.mark.torch
@BOTH
def test_actions_of_dict_and_tuple_spaces(kind: str) -> None:
    import torch

    functions = [lambda: SpaceEnv(spaces.Box(0, 1, (1,)), STRUCTURED) for _ in range(2)]
    with KINDS[kind](functions) as manager:
        manager.launch()
        first = {"move": np.array([0.5, -0.5], np.float32), "keys": (2, np.array([0, 1], np.int8))}
        second = {"move": torch.tensor([0.25, 0.0]), "keys": [torch.tensor(1), [1, 0]]}
        manager.step({0: first, 1: second})
        (one,), (other,) = manager.received
        assert (one["move"].tolist(), one["keys"][0], one["keys"][1].tolist()) == ([0.5, -0.5], 2, [0, 1])
        assert (other["move"].tolist(), other["keys"][0], other["keys"][1].tolist()) == ([0.25, 0.0], 1, [1, 0])


WRONG_ACTIONS: dict[str, tuple[Any, type[Exception], str]] = {
    "a list": ([0, 0], errors.InputError, "expected a dict from env id to action"),
    "out of range": ({0: 0, 2: 0}, errors.EnvIdError, r"env id 2 is out of range \[0, 2\)"),
    "negative": ({-1: 0}, errors.EnvIdError, r"env id -1 is out of range \[0, 2\)"),
    "no id": ({"0": 0}, errors.EnvIdError, "expected a whole number, got '0'"),
    "not in the space": ({0: 0, 1: 2}, errors.ActionError, "action"),
    "a fraction": ({0: 0.5}, errors.ActionError, "action"),
    "two for one": ({0: [0, 0]}, errors.ActionError, "action"),
    "shapes that differ": ({0: [0, 0], 1: 0}, errors.ActionError, "expected shape"),
    "nothing": ({0: None}, errors.ActionError, "action"),
    "text": ({0: "up"}, errors.ActionError, "action"),
}


@BOTH
def test_a_wrong_action_is_an_error_and_nothing_is_sent(kind: str) -> None:
    with launched(kind, 2) as manager:
        for actions, error, message in WRONG_ACTIONS.values():
            with pytest.raises(error, match=message):
                manager.step(actions)
        assert elapsed(manager) == {0: 0, 1: 0}
        assert manager.step({}) == {}
        manager.step({0: 0})


@pytest.mark.parametrize("shape", [(1,), (), (2, 2), (4, 2), (1, 2)])
def test_an_action_is_not_bent_to_the_shape_of_the_space(shape: tuple[int, ...]) -> None:
    functions = [lambda: SpaceEnv(spaces.Box(0, 1, (1,)), spaces.Box(-1, 1, (4,), np.float32)) for _ in range(4)]
    with BaseEnvManager(functions) as manager:
        manager.launch()
        with pytest.raises(errors.ActionError):
            manager.step(dict.fromkeys(range(4), np.zeros(shape, np.float32)))
        assert manager.received == [[]] * 4


@BOTH
def test_step_of_some_steps_those_and_no_others(kind: str) -> None:
    with launched(kind, 3) as manager:
        assert list(manager.step({2: 0, 0: 0})) == [0, 2]
        assert elapsed(manager) == {0: 1, 1: 0, 2: 1}
        assert list(manager.step({1: 0})) == [1]
        assert elapsed(manager) == {0: 1, 1: 1, 2: 1}


@BOTH
def test_step_of_nothing_gathers_what_is_in_flight(kind: str) -> None:
    with launched(kind, 2) as manager:
        assert manager.step({}) == {}
        got = dict(manager.step({0: 0, 1: 0}))
        while len(got) < 2:
            got.update(manager.step({}))
        assert manager.step({}) == {}
        assert elapsed(manager) == {0: 1, 1: 1}


@ALL
def test_actions_reach_the_envs_that_were_named_whatever_ends(kind: str) -> None:
    """``play`` asserts it of every action."""
    with launched(kind, [{"length": n} for n in (1, 2, 3, 1)], episode_num=8) as manager:
        assert [len(one) for one in play(manager).values()] == [8] * 4


def test_an_action_reaches_its_env_though_a_reset_ends_between_ready_obs_and_step(gate: Gate) -> None:
    cfgs = [suffering("reset", "gate", [2], folder=gate.folder, length=1), {"length": 9}, {"length": 9}]
    with launched("async", cfgs) as manager:
        manager.step({0: 0, 1: 0})
        assert gate.wait() == 0
        while manager.step({}):
            pass
        ready = manager.ready_obs
        assert list(ready) == [1, 2]
        gate.open(0)
        assert eventually(lambda: count(gate.folder, "reset", 0) == 2)
        timesteps = manager.step({1: 1, 2: -1})
        while len(timesteps) < 2:
            timesteps.update(manager.step({}))
        assert {i: (one.obs[0], one.info["action"]) for i, one in timesteps.items()} == {1: (1, 1), 2: (2, -1)}
        assert eventually(lambda: 0 in manager.ready_obs)
        assert elapsed(manager) == {0: 0, 1: 2, 2: 1}


# ---- when step returns ---------------------------------------------------------------------------


def gated(gate: Gate, *steps: int, **cfg: Any) -> dict[str, Any]:
    """The cfg of an env that waits at the gate in these steps."""
    return suffering("step", "gate", steps, folder=gate.folder, **cfg)


def test_sync_managers_return_when_all_that_are_in_flight_are_ready(gate: Gate) -> None:
    with launched("sync", [{"folder": gate.folder}, gated(gate, 1)]) as manager:

        def let_through() -> None:
            assert gate.wait() == 1
            assert eventually(lambda: count(gate.folder, "step", 0) == 1)
            gate.open(1)

        join = doing(let_through)
        assert list(manager.step({0: 0, 1: 0})) == [0, 1]
        join()


@pytest.mark.parametrize("timeout", [None, 0, 0.01])
def test_async_managers_return_at_least_wait_num(gate: Gate, timeout: float | None) -> None:
    cfgs = [{"folder": gate.folder}, gated(gate, 1), gated(gate, 1)]
    with launched("async", cfgs, wait_num=2, timeout=timeout) as manager:

        def let_through() -> None:
            assert sorted([gate.wait(), gate.wait()]) == [1, 2]
            assert eventually(lambda: count(gate.folder, "step", 0) == 1)
            gate.open(1)

        join = doing(let_through)
        assert list(manager.step({0: 0, 1: 0, 2: 0})) == [0, 1]
        join()
        assert list(manager.ready_obs) == [0, 1]
        with pytest.raises(errors.InFlightError, match=r"0: 'RUN', 2: 'in flight'"):
            manager.step({0: 0, 2: 0})
        gate.open(2)
        assert list(manager.step({})) == [2], "capped at those in flight"


def test_with_time_left_step_waits_for_all_that_are_in_flight(gate: Gate) -> None:
    with launched("async", [{"folder": gate.folder}, gated(gate, 1)], wait_num=1, timeout=1000) as manager:

        def let_through() -> None:
            assert gate.wait() == 1
            assert eventually(lambda: count(gate.folder, "step", 0) == 1)
            gate.open(1)

        join = doing(let_through)
        assert list(manager.step({0: 0, 1: 0})) == [0, 1]
        join()


def test_step_does_not_wait_for_the_resets_of_others(gate: Gate) -> None:
    cfgs = [suffering("reset", "gate", [2], folder=gate.folder, length=1), {}]
    with launched("async", cfgs, wait_num=1, timeout=1000) as manager:
        manager.step({0: 0})
        assert gate.wait() == 0
        for _ in range(3):
            assert list(manager.step({1: 0})) == [1]
        gate.open(0)


@pytest.mark.parametrize(("wait_num", "timeout"), [(2, 0.01), (1, None), (2, 0)])
def test_the_others_go_on_while_one_env_never_finishes(gate: Gate, wait_num: int, timeout: float | None) -> None:
    # Two episodes never end: a call returns wait_num envs, and not only ended ones, while the stuck one runs.
    cfgs: list[dict[str, Any]] = [{"length": 3}, gated(gate, 1), {"length": 10**6}, {"length": 10**6}]
    with launched("async", cfgs, wait_num=wait_num, timeout=timeout) as manager:
        got = dict.fromkeys(range(4), 0)
        actions = dict.fromkeys(range(4), 0)
        while min(got[i] for i in (0, 2, 3)) < 20:
            for env_id in manager.step(actions):
                got[env_id] += 1
            actions = dict.fromkeys(manager.ready_obs, 0)
            assert 1 not in actions
        assert got[1] == 0
        assert manager.active_env.count(1) == 1
        gate.open(1)
        while not got[1]:
            for env_id in manager.step({}):
                got[env_id] += 1
        assert got[1] == 1


def test_step_never_returns_only_ended_envs_while_others_run(gate: Gate) -> None:
    cfgs = [{"folder": gate.folder, "length": 1}, gated(gate, 1)]
    with launched("async", cfgs, wait_num=1, timeout=0) as manager:

        def let_through() -> None:
            assert gate.wait() == 1
            # Its reset follows when the manager has seen the end.
            assert eventually(lambda: count(gate.folder, "reset", 0) == 2)
            gate.open(1)

        join = doing(let_through)
        timesteps = manager.step({0: 0, 1: 0})
        join()
        assert {i: one.done for i, one in timesteps.items()} == {0: True, 1: False}


@BOTH
def test_ended_envs_are_returned_where_no_other_runs(kind: str) -> None:
    with launched(kind, [{"length": 1}] * 2) as manager:
        timesteps = manager.step({0: 0, 1: 0})
        while len(timesteps) < 2:
            timesteps.update(manager.step({}))
        assert all(one.done for one in timesteps.values())


def test_a_result_is_not_lost_when_others_ask_before_step_does(gate: Gate) -> None:
    """``ready_obs`` and ``reset`` look at what has arrived; an env whose timestep nobody has takes no action."""
    cfgs = [{}, gated(gate, 1, 2, length=9), gated(gate, 1)]
    with launched("async", cfgs, wait_num=1, timeout=0.01) as manager:
        assert list(manager.step({0: 0, 1: 1, 2: 1})) == [0]
        assert sorted([gate.wait(), gate.wait()]) == [1, 2]
        gate.open(1)
        assert eventually(lambda: count(gate.folder, "step", 1) == 1)
        manager.reset({0: None})
        for _ in range(10):
            assert list(manager.ready_obs) == [0]
        with pytest.raises(errors.InFlightError, match=r"the envs \[1\]"):
            manager.step({1: 0})
        timesteps = manager.step({})
        assert {i: (one.info["action"], one.obs[2]) for i, one in timesteps.items()} == {1: (1, 1)}
        assert list(manager.ready_obs) == [0, 1]
        assert list(manager.step({0: 0, 1: 0})) == [0], "the next one is on its way"
        gate.open(1)
        gate.open(2)
        timesteps = manager.step({})
        while len(timesteps) < 2:
            timesteps.update(manager.step({}))
        assert {i: (one.info["action"], one.obs[2]) for i, one in timesteps.items()} == {1: (0, 2), 2: (1, 1)}


def test_an_end_is_not_lost_when_others_ask_before_step_does(gate: Gate) -> None:
    with launched("async", [{}, gated(gate, 1, length=1)], wait_num=1, timeout=0) as manager:
        assert list(manager.step({0: 0, 1: 1})) == [0]
        assert gate.wait() == 1
        gate.open(1)
        assert eventually(lambda: bool(manager.ready_obs) and count(gate.folder, "reset", 1) == 2)
        for _ in range(10):
            assert list(manager.ready_obs) == [0]
        with pytest.raises(errors.InFlightError, match=r"the envs \[1\]"):
            manager.step({1: 0})
        timesteps = manager.step({})
        assert {i: (one.info["action"], one.done) for i, one in timesteps.items()} == {1: (1, True)}
        assert eventually(lambda: 1 in manager.ready_obs)
        assert elapsed(manager) == {0: 1, 1: 0}


# ---- ready_obs -----------------------------------------------------------------------------------


@BOTH
def test_ready_obs_has_the_envs_that_can_take_an_action(kind: str) -> None:
    with launched(kind, 2) as manager:
        first = manager.ready_obs
        assert list(first) == [0, 1] == manager.ready_obs_id == manager.ready_env == manager.active_env
        assert_equal(manager.next_obs, first)
        assert [one.tolist()[::2] for one in first.values()] == [[0, 0], [1, 0]]
        stepped = manager.step({1: 0})
        assert_equal(manager.ready_obs, {0: first[0], 1: stepped[1].obs})


def test_ready_obs_waits_while_all_live_envs_are_resetting(gate: Gate) -> None:
    cfgs = [suffering("reset", "gate", [2], folder=gate.folder, length=1) for _ in range(2)]
    with launched("sync", cfgs) as manager:
        manager.step({0: 0, 1: 0})
        assert sorted([gate.wait(), gate.wait()]) == [0, 1]
        gate.open(1)
        assert elapsed(manager) == {1: 0}
        gate.open(0)


def test_ready_obs_waits_while_the_only_one_that_is_not_done_is_resetting(gate: Gate) -> None:
    cfgs = [{"length": 1}, suffering("reset", "gate", [3], folder=gate.folder, length=1)]
    with launched("sync", cfgs, episode_num=3) as manager:
        manager.step({1: 0})
        for _ in range(3):
            assert eventually(lambda: 0 in manager.ready_obs)
            manager.step({0: 0})
        assert eventually(lambda: 1 in manager.ready_obs)
        manager.step({1: 0})
        assert (gate.wait(), states(manager)) == (1, [DONE, RESET])
        gate.open(1)
        assert elapsed(manager) == {1: 0}


@BOTH
def test_ready_obs_is_empty_when_all_are_done(kind: str) -> None:
    with launched(kind, [{"length": 1}] * 2, episode_num=1) as manager:
        play(manager)
        assert (manager.ready_obs, manager.ready_obs_id, manager.step({})) == ({}, [], {})


@BOTH
def test_ready_obs_does_not_wait_for_envs_that_the_caller_has_to_reset(kind: str) -> None:
    with launched(kind, [{"abnormal_at": 1}, {"length": 1}], auto_reset=False) as manager:
        while manager.step(dict.fromkeys(manager.ready_obs, 0)):
            pass
        assert (states(manager), manager.ready_obs) == ([ERROR, NEED_RESET], {})


def test_ready_obs_does_not_wait_for_an_action_in_flight(gate: Gate) -> None:
    with launched("async", [gated(gate, 1), suffering("step", "raise")], wait_num=1, timeout=0) as manager:
        with pytest.raises(EnvError, match="env 1"):
            manager.step({0: 0, 1: 0})
        assert (manager.ready_obs, manager.active_env, manager.ready_env) == ({}, [0], [])
        gate.open(0)
        assert list(manager.step({})) == [0]


# ---- reset ---------------------------------------------------------------------------------------


@BOTH
def test_reset_begins_all_envs_anew(kind: str) -> None:
    with launched(kind, 2) as manager:
        while manager.step(dict.fromkeys(manager.ready_obs, 0)) and max(elapsed(manager).values()) < 3:
            pass
        manager.reset()
        assert (states(manager), elapsed(manager)) == ([RUN, RUN], {0: 0, 1: 0})
        assert manager.step({}) == {}, "what was in flight came to nothing"


PARAMS: dict[str, tuple[dict[str, Any], dict[int, Any]]] = {
    "all, nothing": ({}, {0: {}, 1: {}, 2: {}}),
    "all, a list": ({"reset_param": [{"a": 1}, {}, {"b": 2}]}, {0: {"a": 1}, 1: {}, 2: {"b": 2}}),
    "some, a dict": ({"reset_param": {2: {"a": 1}, 0: None}}, {0: {}, 2: {"a": 1}}),
    "some, a list": ({"reset_param": [{"a": 1}, {"b": 2}], "env_id": [2, 0]}, {0: {"b": 2}, 2: {"a": 1}}),
    "some, nothing": ({"env_id": [1]}, {1: {}}),
    "some, both": ({"reset_param": {1: {"a": 1}}, "env_id": [1]}, {1: {"a": 1}}),
    "one": ({"env_id": 1}, {1: {}}),
}


@BOTH
def test_reset_takes_parameters_of_some_or_all(kind: str) -> None:
    with launched(kind, 3) as manager:
        for arguments, expected in PARAMS.values():
            manager.reset([{}] * 3)
            manager.step({0: 0})
            manager.step({1: 0})
            manager.step({2: 0})
            manager.reset(**arguments)
            assert elapsed(manager) == {i: int(i not in expected) for i in range(3)}
            assert {i: kwargs for i, kwargs in enumerate(manager.reset_kwargs) if i in expected} == expected


@BOTH
def test_parameters_hold_for_the_resets_that_follow(kind: str) -> None:
    with make(kind, [{"length": 1}, {"length": 2}]) as manager:
        manager.launch({0: {"a": 1}, 1: {"b": 2}})
        assert manager.reset_kwargs == [{"a": 1}, {"b": 2}]
        play(manager, lambda ended: min(map(len, ended.values())) == 2)
        assert manager.reset_kwargs == [{"a": 1}, {"b": 2}]
        manager.reset([None, {}])
        assert manager.reset_kwargs == [{"a": 1}, {}]


WRONG_RESETS: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "too few": ({"reset_param": [{}]}, errors.InputError, "expected 2 parameters, one an env, got 1"),
    "too many": ({"reset_param": [{}, {}], "env_id": [1]}, errors.InputError, "expected 1 parameters.*got 2"),
    "others": ({"reset_param": {0: {}}, "env_id": [1]}, errors.InputError, r"of the envs \[1\], got them of \[0\]"),
    "not a dict": ({"reset_param": [{}, 3]}, errors.InputError, "a dict of arguments for env 1, got 3"),
    "out of range": ({"reset_param": {2: {}}}, errors.EnvIdError, r"env id 2 is out of range \[0, 2\)"),
    "twice": ({"env_id": [1, 1]}, errors.EnvIdError, "env id 1 is given twice"),
    "no id": ({"env_id": ["a"]}, errors.EnvIdError, "expected a whole number, got 'a'"),
}


@BOTH
def test_a_reset_that_cannot_be_is_an_error_and_changes_nothing(kind: str) -> None:
    with launched(kind, 2) as manager:
        manager.step({0: 0})
        for arguments, error, message in WRONG_RESETS.values():
            with pytest.raises(error, match=message):
                manager.reset(**arguments)
        assert elapsed(manager) == {0: 1, 1: 0}


def test_reset_of_an_env_in_flight_voids_its_action_and_no_other(gate: Gate) -> None:
    with launched("async", [gated(gate, 1), gated(gate, 1), {}], wait_num=1, timeout=0) as manager:
        assert list(manager.step({0: 1, 1: 1, 2: 1})) == [2]
        assert sorted([gate.wait(), gate.wait()]) == [0, 1]
        gate.open(0)
        manager.reset({0: None})
        assert elapsed(manager) == {0: 0, 2: 1}
        gate.open(1)
        timesteps = manager.step({})
        assert {i: one.info["action"] for i, one in timesteps.items()} == {1: 1}


def test_an_end_that_a_reset_voids_is_not_counted(gate: Gate) -> None:
    with launched("async", [gated(gate, 1, length=1), {}], wait_num=1, timeout=0, episode_num=1) as manager:
        assert list(manager.step({0: 0, 1: 0})) == [1]
        assert gate.wait() == 0
        gate.open(0)
        manager.reset({0: None})
        assert (states(manager), manager.episode_count, elapsed(manager)) == ([RUN, RUN], {0: 0, 1: 0}, {0: 0, 1: 1})
        assert manager.step({0: 0})[0].done
        assert (states(manager), manager.episode_count) == ([DONE, RUN], {0: 1, 1: 0})


def test_reset_of_an_env_that_is_resetting_waits_for_that_one(gate: Gate) -> None:
    cfgs = [suffering("reset", "gate", [2], folder=gate.folder, length=1), {}]
    with launched("async", cfgs) as manager:
        manager.step({0: 0})
        assert gate.wait() == 0
        gate.open(0)
        manager.reset({0: {"a": 1}})
        assert (elapsed(manager), manager.reset_kwargs[0]) == ({0: 0, 1: 0}, {"a": 1})
        assert count(gate.folder, "reset", 0) == 3


@BOTH
def test_reset_brings_a_done_env_back_and_its_episodes_are_counted_on(kind: str) -> None:
    with launched(kind, [{"length": 1}], episode_num=1) as manager:
        for episodes in (1, 2):
            play(manager)
            assert (states(manager), manager.episode_count) == ([DONE], {0: episodes})
            manager.reset()
            assert (states(manager), manager.done) == ([RUN], False)


# ---- seeds ---------------------------------------------------------------------------------------


SEEDS: dict[str, tuple[dict[str, Any], list[int]]] = {
    "a number": ({"seed": 5}, [5, 6, 7]),
    "a list": ({"seed": [9, 3, 3]}, [9, 3, 3]),
    "an array": ({"seed": np.array([9, 3, 2**40])}, [9, 3, 2**40]),
    "a dict": ({"seed": {2: 8, 0: 7, 1: 2**63 - 1}}, [7, 2**63 - 1, 8]),
}


@BOTH
def test_seeds_come_from_a_number_a_list_or_a_dict(kind: str) -> None:
    with make(kind, 3) as manager:
        for arguments, expected in SEEDS.values():
            manager.seed(**arguments, dynamic_seed=False)
            manager.reset() if not manager.closed else manager.launch()
            assert manager.last_seed == expected
        manager.seed(1, env_id=[2, 0], dynamic_seed=False)
        manager.reset()
        assert manager.last_seed == [1, 2**63 - 1, 3]
        manager.seed([4], env_id=[1], dynamic_seed=False)
        manager.seed(6, env_id=2, dynamic_seed=False)
        manager.reset()
        assert manager.last_seed == [1, 4, 8]


WRONG_SEEDS: dict[str, tuple[dict[str, Any], str]] = {
    "too few": ({"seed": [1]}, "expected 2 seeds, one an env, got 1"),
    "too many": ({"seed": [1, 2], "env_id": [0]}, "expected 1 seeds, one an env, got 2"),
    "negative": ({"seed": -1}, "seed: expected a whole number"),
    "a fraction": ({"seed": [1, 2.5]}, "seed: expected a whole number, got 2.5"),
    "too large": ({"seed": 2**63}, "seed: expected a whole number"),
    "too large in the end": ({"seed": 2**63 - 1}, "seed: expected a whole number"),
    "text": ({"seed": "ab"}, "seed: expected a whole number"),
    "nothing": ({"seed": None}, "seed: expected a whole number, got None"),
    "dynamic": ({"seed": 1, "dynamic_seed": "no"}, "dynamic_seed: expected True or False"),
}


def test_a_seed_that_cannot_be_is_an_error_and_changes_nothing() -> None:
    with make("serial", 2) as manager:
        manager.seed(5, dynamic_seed=False)
        for arguments, message in WRONG_SEEDS.values():
            with pytest.raises(errors.ConfigError, match=message):
                manager.seed(**arguments)
        with pytest.raises(errors.EnvIdError, match="env id 2 is out of range"):
            manager.seed({2: 1})
        manager.launch()
        assert manager.last_seed == [5, 6]
        manager.reset()
        assert manager.last_seed == [5, 6]


def lone_seeds(seed: int, episodes: int) -> list[int | None]:
    """The seeds of the episodes of an env that nobody manages."""
    env = Trial()
    env.seed(seed)
    out = []
    for _ in range(episodes):
        env.reset()
        out.append(env.last_seed)
    return out


@BOTH
def test_dynamic_seeds_are_new_in_every_episode_and_static_ones_the_same(kind: str) -> None:
    with make(kind, 2) as manager:
        manager.seed({0: 5, 1: 6}, dynamic_seed=True)
        manager.launch()
        seen = [manager.last_seed]
        for _ in range(2):
            manager.reset()
            seen.append(manager.last_seed)
        assert [list(one) for one in zip(*seen, strict=True)] == [lone_seeds(5, 3), lone_seeds(6, 3)]
        manager.seed({0: 9}, dynamic_seed=False)
        for episode in range(2):
            manager.reset()
            assert manager.last_seed == [9, lone_seeds(6, 5)[3 + episode]], "a matter of each env"


@BOTH
def test_dynamic_is_how_envs_are_seeded_unless_told_otherwise(kind: str) -> None:
    with make(kind, 1) as manager:
        manager.seed(5)
        manager.launch()
        first = manager.last_seed
        manager.reset()
        assert [*first, *manager.last_seed] == lone_seeds(5, 2)


@BOTH
def test_a_seed_goes_with_the_next_reset_that_is_asked_for(kind: str) -> None:
    with make(kind, [{"length": 1}, {}]) as manager:
        manager.seed(5)
        manager.launch()
        manager.seed({0: 8, 1: 9})
        assert manager.last_seed == [lone_seeds(5, 1)[0], lone_seeds(6, 1)[0]]
        manager.step({0: 0})
        assert eventually(lambda: 0 in manager.ready_obs)
        assert manager.last_seed == [lone_seeds(5, 2)[1], lone_seeds(6, 1)[0]]
        manager.reset()
        assert manager.last_seed == [lone_seeds(8, 1)[0], lone_seeds(9, 1)[0]]


def test_envs_that_nobody_seeded_play_different_episodes() -> None:
    with launched("serial", 3) as manager:
        assert len(set(manager.last_seed)) == 3
        assert len({float(one[1]) for one in manager.ready_obs.values()}) == 3


@pytest.mark.parametrize(("dynamic_seed", "shared_memory"), [(True, True), (False, False), (None, True)])
def test_serial_and_subprocess_managers_play_the_same_episodes(dynamic_seed: bool | None, shared_memory: bool) -> None:
    played = []
    for kind in KINDS:
        settings = {} if kind == "serial" else {"shared_memory": shared_memory, "num_workers": 2}
        with make(kind, [{"length": n} for n in (1, 2, 5)], episode_num=4, **settings) as manager:
            manager.seed([3, 3, 4], dynamic_seed=dynamic_seed)
            manager.launch()
            played.append(play(manager))
    assert played[0] == played[1] == played[2]
    for episodes in played[0].values():
        assert len({str(one) for one in episodes}) == (1 if dynamic_seed is False else 4)


# ---- attributes and methods of the envs ----------------------------------------------------------


class Listing(SubprocessEnvManager):
    """Lists a method more."""

    @property
    def method_name_list(self) -> list[str]:
        return [*super().method_name_list, "visit"]


@BOTH
def test_attributes_of_the_envs_are_lists(kind: str) -> None:
    with launched(kind, [{"length": 3}, {"length": 4}]) as manager:
        manager.step({1: 0})
        assert manager.elapsed == [0, 1]
        assert manager.num_agents == [1, 1]
        assert len(set(manager.pid)) == (1 if kind == "serial" else 2)


@BOTH
def test_a_name_that_nobody_has_is_an_error(kind: str) -> None:
    with launched(kind, 2) as manager:
        assert not hasattr(manager, "no_such_thing")
        with pytest.raises(AttributeError, match="neither the manager nor its envs have 'no_such_thing'"):
            manager.no_such_thing  # noqa: B018
        assert elapsed(manager) == {0: 0, 1: 0}


@BOTH
def test_a_method_that_is_not_listed_is_an_error(kind: str) -> None:
    with launched(kind, 2) as manager:
        assert manager.method_name_list == ["reset", "step", "seed", "close"]
        with pytest.raises(AttributeError, match=r"'visit' is a method.*method_name_list"):
            manager.visit  # noqa: B018


def test_a_listed_method_is_called_on_every_env() -> None:
    with Listing(Trial, [{}, {}], 2) as manager:
        manager.launch()
        assert manager.visit("x") == [(0, "x"), (1, "x")]
        assert manager.visit(value=3) == [(0, 3), (1, 3)]


def test_an_attribute_that_is_read_with_steps_in_flight_is_that_attribute(gate: Gate) -> None:
    with launched("async", [gated(gate, 1), {}], wait_num=1, timeout=0) as manager:
        assert list(manager.step({0: 1, 1: 1})) == [1]
        assert gate.wait() == 0
        gate.open(0)
        assert manager.elapsed == [1, 1]
        assert manager.life == [1, 1]
        timesteps = manager.step({})
        assert {i: (one.info["action"], one.obs[2]) for i, one in timesteps.items()} == {0: (1, 1)}


def test_envs_can_be_asked_while_they_are_resetting(gate: Gate) -> None:
    cfgs = [suffering("reset", "gate", [2], folder=gate.folder, length=1), {}]
    with launched("async", cfgs) as manager:
        manager.step({0: 0, 1: 0})
        assert gate.wait() == 0
        gate.open(0)
        assert manager.life == [1, 1]
        assert eventually(lambda: 0 in manager.ready_obs)
        assert elapsed(manager)[0] == 0


# ---- what is handed out --------------------------------------------------------------------------


SPACES: dict[str, spaces.Space[Any]] = {
    "float16": spaces.Box(-1, 1, (3,), np.float16),
    "a number": spaces.Box(-1, 1, (), np.float32),
    "Discrete": spaces.Discrete(5, start=3),
    "Tuple": spaces.Tuple([spaces.Box(-1, 1, (2,), np.float16), spaces.Discrete(4), spaces.MultiDiscrete([3, 4])]),
    "nested Dict": spaces.Dict(
        {
            "camera": spaces.Dict({"left": spaces.Box(0, 255, (2, 2), np.uint8), "lit": spaces.Discrete(2)}),
            "body": spaces.Tuple([spaces.Box(-1, 1, (3,), np.float64), spaces.Dict({"x": spaces.MultiBinary(2)})]),
        }
    ),
    "objects": spaces.Dict({"text": spaces.Text(5), "list": spaces.Sequence(spaces.Box(-1, 1, (2,), np.float32))}),
}


def normal(value: Any) -> Any:
    """Numbers as arrays: a manager gives arrays all through."""
    if isinstance(value, dict):
        return {key: normal(child) for key, child in value.items()}
    if isinstance(value, tuple):
        return tuple(normal(child) for child in value)
    return np.asarray(value) if isinstance(value, np.generic) else value


@pytest.mark.parametrize("name", SPACES)
def test_shared_memory_works_for_every_space(name: str) -> None:
    lone = SpaceEnv(SPACES[name], spaces.Discrete(2))
    space = SPACES[name]
    with SubprocessEnvManager([lambda: SpaceEnv(space, spaces.Discrete(2))]) as manager:
        assert manager.default_config()["shared_memory"]
        manager.seed(3)
        manager.launch()
        assert_equal(manager.ready_obs[0], normal(lone.reset(seed=3)[0]))
        assert manager.observation_space == space
        for _ in range(4):
            expected = lone.step(0)
            timestep = manager.step({0: 0})[0]
            assert_equal(timestep.obs, normal(expected[0]))
            assert (timestep.reward, timestep.done) == (np.float32(expected[1]), expected[2])
            assert set(timestep.info) >= set(expected[4])
        assert_equal(manager.ready_obs[0], normal(lone.reset()[0]))


@BOTH
def test_without_shared_memory_any_object_is_an_observation(kind: str) -> None:
    with KINDS[kind](Shapeless, [{}, {}], 2, shared_memory=False) as manager:
        manager.launch()
        assert manager.ready_obs == {0: "begin", 1: "begin"}
        assert manager.observation_space == Shapeless.observation_space
        timestep = manager.step({1: 1})[1]
        assert timestep.obs["set"] == {1, "x"}
        assert timestep.obs["list"][1].tolist() == [0]
        assert timestep.obs["point"] == 1 + 1j
        timestep = manager.step({1: 0})[1]
        assert (timestep.done, timestep.obs["set"], timestep.info["eval_episode_return"]) == (True, {2, "x"}, 2.0)
        assert eventually(lambda: 1 in manager.ready_obs)
        assert manager.ready_obs == {0: "begin", 1: "begin"}


class Reusing(Trial):
    """Has one array for all its observations."""

    def __init__(self, cfg: Any = None) -> None:
        super().__init__(cfg)
        self._array = np.zeros(3, np.float32)

    def _observation(self) -> np.ndarray:
        self._array[:] = super()._observation()
        return self._array


@pytest.mark.parametrize(
    ("kind", "shared_memory"), [("serial", True), ("serial", False), ("sync", True), ("async", False)]
)
def test_observations_are_the_caller_s_own(kind: str, shared_memory: bool) -> None:
    with launched(kind, [{"length": 3}] * 2, Reusing, shared_memory=shared_memory) as manager:
        kept, values = [], []
        for _ in range(8):
            ready = manager.ready_obs
            for one in (ready, manager.ready_obs, {i: t.obs for i, t in manager.step(dict.fromkeys(ready, 0)).items()}):
                kept += list(one.values())
                values += [seen.tolist() for seen in one.values()]
        assert [one.tolist() for one in kept] == values, "nobody writes to them any more"
        ready = manager.ready_obs
        for seen in ready.values():
            seen[:] = 99
        assert all((seen != 99).all() for seen in manager.ready_obs.values())
        timesteps = manager.step(dict.fromkeys(ready, 0))
        for one in timesteps.values():
            one.obs[:] = 99
        assert all((seen != 99).all() for seen in manager.ready_obs.values())


@pytest.mark.torch
@BOTH
def test_output_of_torch_is_float32_tensors(kind: str) -> None:
    import torch

    with make(kind, [{"length": 2}] * 2) as plain, make(kind, [{"length": 2}] * 2, output="torch") as manager:
        for one in (plain, manager):
            one.seed(3)
            one.launch()
        for _ in range(2):
            ready = manager.ready_obs
            for env_id, seen in plain.ready_obs.items():
                assert (ready[env_id].dtype, ready[env_id].tolist()) == (torch.float32, seen.tolist())
            for env_id in (0, 1):
                (expected,), (timestep,) = plain.step({env_id: 1}).values(), manager.step({env_id: 1}).values()
                for tensor, array in ((timestep.obs, expected.obs), (timestep.reward, expected.reward)):
                    assert (tensor.dtype, tensor.shape, tensor.tolist()) == (
                        torch.float32,
                        array.shape,
                        array.tolist(),
                    )
                assert timestep.done is expected.done
                assert timestep.info.keys() == expected.info.keys()
        assert float(timestep.info["eval_episode_return"]) == np.float32(expected.info["eval_episode_return"])


# ---- envs of every kind --------------------------------------------------------------------------


def a_lone_cartpole(seed: int, episodes: int) -> list[tuple[list[float], int]]:
    """First observation and length of episodes in which the action is 0."""
    env = gymnasium.make("CartPole-v1")
    out = []
    for episode in range(episodes):
        first = env.reset(seed=None if episode else seed)[0].tolist()
        steps = 0
        done = False
        while not done:
            done = env.step(0)[2]
            steps += 1
        out.append((first, steps))
    env.close()
    return out


@BOTH
def test_gymnasium_envs(kind: str) -> None:
    with KINDS[kind]([lambda: gymnasium.make("CartPole-v1")] * 2, cfg={"episode_num": 3}) as manager:
        manager.seed([3, 4])
        manager.launch()
        assert manager.env_info.act_space.shape == (2,)
        assert manager.reward_space.shape == (1,)
        played: list[list[Any]] = [[], []]
        firsts: dict[int, Any] = {}
        steps = [0, 0]
        while not manager.done:
            ready = manager.ready_obs
            for env_id, seen in ready.items():
                firsts[env_id] = seen.tolist() if steps[env_id] == 0 else firsts[env_id]
            for env_id, timestep in manager.step(dict.fromkeys(ready, 0)).items():
                steps[env_id] += 1
                assert (timestep.reward.shape, timestep.reward.dtype, timestep.reward.item()) == ((1,), np.float32, 1)
                if timestep.done:
                    assert timestep.info["eval_episode_return"] == steps[env_id]
                    assert timestep.info["final_eval_reward"] == steps[env_id]
                    played[env_id].append((firsts[env_id], steps[env_id]))
                    steps[env_id] = 0
        assert played == [a_lone_cartpole(3, 3), a_lone_cartpole(4, 3)]


@BOTH
def test_a_gymnasium_env_with_a_static_seed_repeats_its_episode(kind: str) -> None:
    with KINDS[kind]([lambda: gymnasium.make("CartPole-v1")]) as manager:
        manager.seed(3, dynamic_seed=False)
        manager.launch()
        first = a_lone_cartpole(3, 1)[0][0]
        for _ in range(3):
            assert manager.ready_obs[0].tolist() == first
            while not manager.step({0: 0})[0].done:
                pass


class Telling(ProbeTwin):
    """A Gymnasium env whose info has keys that mean something elsewhere."""

    def step(self, action: Any) -> Any:
        return *super().step(action)[:4], {"rewards": {"wins": 1}, "env_id": "mine", "players": [1], "episode": 3}


@BOTH
def test_an_info_is_the_env_s_own(kind: str) -> None:
    with KINDS[kind]([Telling]) as manager:
        manager.launch()
        timestep = manager.step({0: 0.5})[0]
        assert (timestep.reward.tolist(), timestep.reward.dtype) == ([0.5], np.float32)
        assert timestep.info == {"rewards": {"wins": 1}, "env_id": "mine", "players": [1], "episode": 3}


@BOTH
@pytest.mark.parametrize("cut_off", [True, False])
def test_a_time_limit_is_told(kind: str, cut_off: bool) -> None:
    with launched(kind, [{"length": 1, "cut_off": cut_off}]) as manager:
        assert manager.step({0: 0})[0].info["TimeLimit.truncated"] is cut_off


@BOTH
def test_dm_envs(kind: str) -> None:
    with KINDS[kind]([DmWalk] * 2) as manager:
        manager.launch()
        for step in range(1, 4):
            timesteps = manager.step({0: 2, 1: 3})
            while len(timesteps) < 2:
                timesteps.update(manager.step({}))
            assert [one.reward.tolist() for _, one in sorted(timesteps.items())] == [[2.0], [3.0]]
            assert timesteps[1].obs["count"] == step
            assert timesteps[1].obs["place"].tolist() == [step] * 2
            assert timesteps[1].done == (step == 3)
        assert timesteps[1].info["eval_episode_return"] == 9.0


@BOTH
@pytest.mark.parametrize(
    ("env", "shared", "shared_memory"),
    [(Pair, True, True), (Pair, False, True), (Pair, False, False), (PairWithState, False, True)],
)
def test_envs_of_many_agents(kind: str, env: type[Pair], shared: bool, shared_memory: bool) -> None:
    with KINDS[kind](env, [{"shared": shared}] * 2, 2, shared_memory=shared_memory) as manager:
        manager.launch()
        assert manager.observation_space == env.observation_space
        assert manager.action_space == env.action_space
        assert manager.env_info.agent_num == 2
        for step in range(1, 4):
            timestep = manager.step({1: np.array([1, 3])})[1]
            assert_equal(timestep.reward, np.array([4] if shared else [1, 3], np.float32))
            agents = timestep.obs if env is Pair else timestep.obs["agents"]
            assert_equal(agents, np.array([[1, step], [1, 3 * step]], np.float32))
            if env is PairWithState:
                assert timestep.obs["state"].tolist() == [step] * 3
            assert timestep.done == (step == 3)
        assert timestep.info["eval_episode_return"] == 12.0
        assert "rewards" not in timestep.info


@BOTH
def test_parallel_envs(kind: str) -> None:
    pytest.importorskip("pettingzoo")
    from stepmill.zoo.pursuit_parallel import parallel_env

    with KINDS[kind]([parallel_env] * 2, cfg={"episode_num": 1}) as manager:
        manager.seed(0)
        manager.launch()
        agents = manager.env_info.agent_num
        assert agents > 1
        while not manager.done:
            actions = dict.fromkeys(manager.ready_obs, np.zeros(agents, np.int64))
            for timestep in manager.step(actions).values():
                assert len(timestep.reward) == agents
        assert manager.episode_count == {0: 1, 1: 1}


def test_wrapped_envs() -> None:
    cfgs = [{"env_id": "CartPole-v1"}] * 2
    with SubprocessEnvManager(lambda cfg: DingEnvWrapper(cfg["env_id"]), cfgs, 2, 1) as manager:
        manager.seed(3)
        manager.launch()
        while not manager.done:
            timesteps = manager.step(dict.fromkeys(manager.ready_obs, np.array([0])))
        assert next(iter(timesteps.values())).info["eval_episode_return"] > 1


# ---- videos --------------------------------------------------------------------------------------


def videos(folder: Path) -> dict[str, list[int]]:
    return {path.name: counts(path) for path in sorted(folder.iterdir())}


def play_counting(manager: BaseEnvManager) -> None:
    while not manager.done:
        manager.step(dict.fromkeys(manager.ready_obs, 0))


@BOTH
def test_videos_are_named_by_env_and_episode(kind: str, tmp_path: Path) -> None:
    with make(kind, [{"length": 2}, {"length": 4}], CountingEnv, episode_num=2) as manager:
        manager.seed(0)
        manager.enable_save_replay(tmp_path)
        manager.launch()
        play_counting(manager)
    assert videos(tmp_path) == {
        "env_0_episode_0000.mp4": [0, 1, 2],
        "env_0_episode_0001.mp4": [0, 1, 2],
        "env_1_episode_0000.mp4": [0, 1, 2, 3, 4],
        "env_1_episode_0001.mp4": [0, 1, 2, 3, 4],
    }


@BOTH
def test_videos_can_be_asked_for_after_launch_and_begin_with_the_next_reset(kind: str, tmp_path: Path) -> None:
    with launched(kind, [{"length": 2}, {"length": 3}], CountingEnv, episode_num=2) as manager:
        manager.enable_save_replay(str(tmp_path))
        play_counting(manager)
    assert videos(tmp_path) == {"env_0_episode_0000.mp4": [0, 1, 2], "env_1_episode_0000.mp4": [0, 1, 2, 3]}


def test_the_folder_of_videos_is_video_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with make("async", [{"length": 2}], CountingEnv, episode_num=1) as manager:
        manager.enable_save_replay()
        manager.launch()
        play_counting(manager)
    assert list(videos(tmp_path / "video")) == ["env_0_episode_0000.mp4"]


@BOTH
def test_videos_of_envs_that_cannot_record_are_an_error(kind: str, tmp_path: Path) -> None:
    manager = KINDS[kind]([ProbeTwin])
    manager.enable_save_replay(tmp_path)
    with pytest.raises(stepmill.StepmillError, match="enable_save_replay"):
        manager.launch()
    assert manager.closed
    manager = make(kind, 1)
    manager.enable_save_replay(tmp_path)
    with pytest.raises(EnvError, match="Trial has no renderer"):
        manager.launch()
    assert manager.closed


@BOTH
def test_ready_imgs_are_the_pictures_of_the_envs_that_are_ready(kind: str) -> None:
    with launched(kind, 2, CountingEnv) as manager:
        images = manager.ready_imgs
        assert list(images) == [0, 1]
        assert images[1].shape == (32, 96, 3)
        assert not images[1].any()
