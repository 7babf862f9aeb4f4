"""How env managers are made: envs, cfgs, settings, and what is wrong with them."""

from __future__ import annotations

import copy
import functools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from easydict import EasyDict

from stepmill import EnvError, errors
from stepmill.errors import InputError
from stepmill.managers import (
    AsyncSubprocessEnvManager,
    BaseEnvManager,
    SubprocessEnvManager,
    SyncSubprocessEnvManager,
    create_env_manager,
    get_vec_env_setting,
)
from support.envs.contract import Walk
from support.envs.managed import KINDS, Trial, count, make, play, suffering
from support.manager_cases import SERIAL_AND_ASYNC
from support.waiting import Gate

pytestmark = pytest.mark.usefixtures("deadline", "server")


@SERIAL_AND_ASYNC
def test_one_function_makes_an_env_of_each_cfg(kind: str) -> None:
    with KINDS[kind](Trial, [{"length": 2}, {"length": 3}], 2, 1) as manager:
        manager.launch()
        assert (manager.env_num, manager.closed) == (2, False)
        assert [len(one[0].rewards) for one in play(manager).values()] == [2, 3]


@SERIAL_AND_ASYNC
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


class Careless(dict[str, Any]):
    """A dict whose items are attributes, as many write it: copying and pickling need an AttributeError."""

    __getattr__ = dict.__getitem__


WRONG_ENVS: dict[str, tuple[tuple[Any, ...], str]] = {
    "too few cfgs": ((Trial, [{}], 2), "expected env_num=2 configurations, one per env, got 1"),
    "too many cfgs": ((Trial, [{}] * 3, 2), "expected env_num=2 configurations, one per env, got 3"),
    "no cfgs": ((Trial, [], 0), "env_num: expected a whole number >= 1, got 0"),
    "a cfg instead of a list": ((Trial, {"length": 2}, 1), "env_cfg: expected a list of configurations"),
    "nothing": ((Trial,), "env_cfg: expected a list of configurations"),
    "cfgs with a list": (([Trial], [{}]), "env_cfg: expected None with a list of functions"),
    "another number": (([Trial], None, 2), "env_num: expected 1"),
    "an env": ((Trial(),), "env_fn: expected a function, or a list of functions"),
    "a list of envs": (([Trial()],), "env_fn: expected a function, or a list of functions"),
    "an empty list": (([],), "env_fn: expected a function, or a list of functions"),
    "no cfg taken": (
        (lambda: Trial(), [{}]),
        r"env_fn: it is called with one argument, the cfg .* takes \(\)\. Pass a",
    ),
    "two arguments": ((lambda cfg, more: Trial(cfg), [{}]), r"the cfg of its env, but <lambda> takes \(cfg, more\)"),
    "a cfg that cannot be copied": (
        (Trial, [{}, Careless()]),
        r"env_cfg\[1\]: expected a dict that can be copied, got a",
    ),
}


@SERIAL_AND_ASYNC
@pytest.mark.parametrize("wrong", WRONG_ENVS)
def test_invalid_envs_are_an_error(kind: str, wrong: str) -> None:
    arguments, message = WRONG_ENVS[wrong]
    with pytest.raises(errors.ConfigError, match=message):
        KINDS[kind](*arguments)


@SERIAL_AND_ASYNC
def test_what_a_decorator_says_of_its_arguments_does_not_matter(kind: str) -> None:
    @functools.wraps(lambda: None)
    def decorated(*args: Any) -> Trial:
        return Trial(*args)

    KINDS[kind](decorated, [{}]).close()


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


@pytest.mark.parametrize(
    ("kind", "env_num", "settings", "workers"),
    [
        (SyncSubprocessEnvManager, 5, {}, 2),
        (SubprocessEnvManager, 5, {}, 5),
        (AsyncSubprocessEnvManager, 5, {}, 5),
        (SubprocessEnvManager, 8, {}, 2),
        (SubprocessEnvManager, 5, {"num_workers": 3}, 3),
        (SubprocessEnvManager, 5, {"wait_num": 5}, 2),
        (SyncSubprocessEnvManager, 5, {"wait_num": 4}, 5),
        (BaseEnvManager, 5, {}, 1),
    ],
    ids=["sync", "few", "async", "many", "asked for", "waits for all", "waits for some", "serial"],
)
def test_the_number_of_workers(
    monkeypatch: pytest.MonkeyPatch, kind: type[BaseEnvManager], env_num: int, settings: dict[str, Any], workers: int
) -> None:
    monkeypatch.setattr("stepmill._native.available_cores", lambda: 2)
    with kind(Trial, [{}] * env_num, env_num, **settings) as manager:
        manager.launch()
        assert len(set(manager.pid)) == workers


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
def test_invalid_settings_are_an_error(wrong: str) -> None:
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


@SERIAL_AND_ASYNC
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


@SERIAL_AND_ASYNC
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


@SERIAL_AND_ASYNC
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
    with pytest.raises(errors.ConfigError, match=r"type: expected one of base, subprocess.*got 'cloud'"):
        create_env_manager({"type": "cloud"}, [Trial])
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


@pytest.mark.parametrize("kind", ["support.envs.managed:Trial", "CartPole-v1"])
def test_get_vec_env_setting_finds_envs_by_path_and_by_id(kind: str) -> None:
    env_fn, cfgs, _ = get_vec_env_setting({"type": kind, "collector_env_num": 2})
    env = env_fn((cfgs or [])[0])
    assert env.observation_space.shape == ((3,) if kind == "support.envs.managed:Trial" else (4,))
    env.close()


def test_get_vec_env_setting_says_what_is_wrong() -> None:
    with pytest.raises(errors.MissingConfigError, match="get_vec_env_setting: expected a cfg with the key type"):
        get_vec_env_setting({})
    with pytest.raises(errors.ConfigError, match="type: expected an env class, a path to one or an id, got 3"):
        get_vec_env_setting({"type": 3})


def test_an_env_that_cannot_be_built_says_so_where_it_is_looked_at() -> None:
    def broken() -> Any:
        raise AttributeError("inner")

    with pytest.raises(EnvError, match="env_ref: the constructor of env 0 failed: AttributeError: inner"):
        _ = BaseEnvManager([broken]).observation_space


def test_shared_memory_in_a_cfg_is_checked_there() -> None:
    with pytest.raises(errors.ConfigError, match="env_cfg: shared_memory: expected True or False, got"):
        BaseEnvManager(Walk, [{"shared_memory": np.zeros(2)}] * 2, 2)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda manager: manager.reset(5), InputError),
        (lambda manager: manager.reset(env_id=3.5), errors.EnvIdError),
        (lambda manager: manager.reset(env_id=np.array([[0, 1]])), errors.EnvIdError),
        (lambda manager: manager.step(np.array(1), env_id=[0]), InputError),
        (lambda manager: manager.step([1], env_id=[0, 1]), InputError),
    ],
)
def test_what_is_no_list_is_an_error_of_ours(call: Any, error: Any) -> None:
    with BaseEnvManager([lambda: Walk({})] * 2) as manager:
        manager.launch()
        with pytest.raises(error, match="expected"):
            call(manager)
        manager.seed(np.array(4))
        manager.reset()
        assert list(manager.ready_obs) == [0, 1]


def test_no_more_actions_are_taken_from_a_generator_than_there_are_envs() -> None:
    actions = iter(range(1000))  # it may have no end
    with BaseEnvManager([lambda: Walk({})] * 2) as manager:
        manager.launch()
        with pytest.raises(InputError, match="expected a list of 2 actions, one per env of env_id, got more"):
            manager.step(actions, env_id=[0, 1])
    assert next(actions) == 3
