"""What ``make`` refuses, and how many workers it takes where nobody says."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import numpy as np
import pytest

import stepmill
from stepmill import StepmillError, errors
from stepmill.settings import check_settings
from support.envs import ProbeTwin
from support.probes import KINDS, VIEWS
from support.processes import new_threads, threads
from support.subprocesses import run_well
from support.twins import TASKS

CONFIG = (errors.ConfigError, ValueError)
UNSUPPORTED = (errors.UnsupportedError, NotImplementedError)


def _case(*expected: Any, **arguments: Any) -> Any:
    text = ",".join(f"{key}={value!r:.20}" for key, value in arguments.items())
    return pytest.param(arguments, expected, id=text)


BAD_SETTINGS = [
    *(
        _case(*CONFIG, f"{name}: expected a whole number", repr(value), **{name: value})
        for name, values in {
            "num_envs": [0, -1, 2**40, 1.5, True, "2", None, [2], np.nan],
            "batch_size": [0, -1, 3, 1.5, True, "2"],
            "num_threads": [-1, 1.5, True, "2", 2**40],
            "seed": [True, -1, 2**63, 1.5, np.nan],
            "max_episode_steps": [0, -1, 1.5, True, 2**40, "3"],
            "max_num_players": [0, -1, 1.5, True],
            "max_restarts": [-1, 2**16, 0.5, "inf", True],
            "thread_affinity_offset": [-2, 0.5, None],
        }.items()
        for value in values
    ),
    _case(*CONFIG, "below 2**63", seed=2**63 - 1),
    _case(*CONFIG, "list of 2 seeds", "got 1", seed=[1]),
    _case(*CONFIG, "seed: expected a whole number", "'ab'", seed="ab"),
    _case(*CONFIG, "list of 2 seeds", "got 3", seed=(1, 2, 3)),
    _case(*CONFIG, "seed: expected a whole number", "None", seed=[1, None]),
    _case(*CONFIG, "seed: expected a whole number", "-1", seed=[1, -1]),
    *(
        _case(*CONFIG, f"{name}: expected one of", repr(value), **{name: value})
        for name in ("backend", "autoreset", "on_error", "action_bounds", "output", "env_type")
        for value in ("bogus", None, 1, ["pass"])
    ),
    _case(*CONFIG, "backend: expected one of", backend=np.array(["thread", "inline"])),
    *(
        _case(*CONFIG, "start_timeout: expected a finite number of seconds > 0", start_timeout=v)
        for v in (0, -1, np.nan, np.inf, "x", None, True)
    ),
    *(_case(*CONFIG, "num_workers: expected", num_workers=v, backend="process") for v in (0, -1, 1.5, "two")),
    _case(*CONFIG, "step_timeout: expected", step_timeout=0, backend="process"),
    _case(*CONFIG, "reset_timeout: expected", reset_timeout=-1, backend="process"),
    _case(*UNSUPPORTED, "step_timeout", step_timeout=1.0, backend="inline"),
    _case(*UNSUPPORTED, "reset_timeout", reset_timeout=1.0, backend="inline"),
    _case(*UNSUPPORTED, "num_workers", num_workers=2, backend="inline"),
    _case(errors.StepmillError, Exception, "max_num_players", max_num_players=2),
    _case(*CONFIG, "env_config: expected a list of dicts", env_config={}),
    _case(*CONFIG, "env_config[0]: expected a dict", env_config="ab"),
    _case(*CONFIG, "env_config: expected 2 dicts", "got 1", env_config=[{}]),
    _case(*CONFIG, "env_config: expected 2 dicts", "got 3", env_config=[{}, {}, {}]),
    _case(*CONFIG, "env_config[1]: expected a dict", "5", env_config=[{}, 5]),
    _case(errors.UnknownConfigError, KeyError, "'bogus'", "Known keys", bogus=1),
    _case(errors.UnknownConfigError, KeyError, "'sutton_barto'", "did you mean", sutton_barto=True),
    _case(errors.UnknownConfigError, KeyError, "'bogus'", env_config=[{}, {"bogus": 1}]),
    _case(errors.UnknownConfigError, KeyError, "5", env_config=[{}, {5: 1}]),
]


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("arguments", "expected"), BAD_SETTINGS)
def test_make_refuses_invalid_arguments(kind: str, view: str, arguments: dict[str, Any], expected: tuple) -> None:
    error, standard, *words = expected
    before = threads()
    with pytest.raises(error) as caught:
        stepmill.make(TASKS[kind], **{"env_type": view, "num_envs": 2, **arguments})
    assert isinstance(caught.value, StepmillError)
    assert isinstance(caught.value, standard)
    for word in words:
        assert word in str(caught.value)
    assert new_threads(before) == 0


def five() -> int:
    return 5


@pytest.mark.parametrize(
    ("task", "error", "standard", "words"),
    [
        ("CartPole-v9", errors.UnknownEnvError, KeyError, ["'CartPole-v9'", "did you mean", "CartPole-v1"]),
        ("cartpole", errors.UnknownEnvError, KeyError, ["'cartpole'"]),
        ("", errors.UnknownEnvError, KeyError, ["unknown env id ''"]),
        ("no_such_module:CartPole-v1", errors.UnknownEnvError, KeyError, ["no_such_module"]),
        (".relative:CartPole-v1", errors.UnknownEnvError, KeyError, [".relative"]),
        (":", errors.UnknownEnvError, KeyError, ["':'"]),
        ("\0", errors.UnknownEnvError, KeyError, []),
        (None, errors.ConfigError, ValueError, ["task_id: expected an id", "None"]),
        (5, errors.ConfigError, ValueError, ["task_id: expected an id", "5"]),
        (b"CartPole-v1", errors.ConfigError, ValueError, ["task_id: expected an id"]),
        ({"id": "CartPole-v1"}, errors.ConfigError, ValueError, ["task_id: expected an id"]),
        ([], errors.ConfigError, ValueError, ["expected"]),
        (["CartPole-v1"] * 3, errors.ConfigError, ValueError, ["num_envs=2", "got 3"]),
        (["CartPole-v1", None], errors.ConfigError, ValueError, ["task_id: expected an id", "None"]),
        (["gymnasium:CartPole-v1", "gymnasium:Pendulum-v1"], errors.ConfigError, ValueError, ["share their spaces"]),
        (five, errors.ConfigError, ValueError, ["expected a gymnasium.Env, a BaseEnv", "int without reset, step"]),
        (ProbeTwin(), errors.ConfigError, ValueError, ["task_id: expected an id", "a function that makes one"]),
    ],
    ids=lambda one: getattr(one, "__name__", repr(one)[:30]) if not isinstance(one, type | list) else "",
)
def test_make_refuses_an_env_that_is_none(task: Any, error: type, standard: type, words: list[str]) -> None:
    with pytest.raises(error) as caught:
        stepmill.make(task, num_envs=2)
    assert isinstance(caught.value, standard)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"length": "x"}, ["'length'", "a whole number", "'x'"]),
        ({"length": 1.5}, ["'length'", "a whole number", "1.5"]),
        ({"length": True}, ["'length'", "a whole number", "True"]),
        ({"length": 2**70}, ["'length'", "at most 64 bits"]),
        ({"fail_in": 5}, ["'fail_in'", "a string", "5"]),
        ({"obs_size": 1}, ["obs_size", "at least 2", "got 1"]),
        ({"obs_size": -(2**40)}, ["obs_size", "at least 2"]),
    ],
    ids=str,
)
def test_a_native_configuration_of_the_wrong_type_is_refused(config: dict[str, Any], words: list[str]) -> None:
    for make in (stepmill.make, stepmill.make_spec):
        with pytest.raises(errors.ConfigError) as caught:
            make("Probe-v0", num_envs=2, **config)
        for word in words:
            assert word in str(caught.value)


def test_backend_thread_is_for_native_envs() -> None:
    with pytest.raises(errors.UnsupportedError, match="'process', 'inline' or 'auto'"):
        stepmill.make("gymnasium:CartPole-v1", backend="thread")


def test_a_space_of_too_many_dimensions_is_refused() -> None:
    code = """
    import numpy as np, stepmill
    from gymnasium import spaces
    from support.envs.many_spaces import env_of

    space = spaces.Box(0, 1, (1,) * 33, np.float32)
    for args in ((spaces.Discrete(2), space), (space,)):
        try:
            stepmill.make(env_of(*args))
        except stepmill.errors.ConfigError as error:
            assert "33 dimensions" in str(error), error
        else:
            raise AssertionError
    """
    run_well(code)


@pytest.mark.parametrize("text", ["\ud800", "4x4\0junk"])
def test_config_text_that_cannot_be_passed_on(text: str) -> None:
    for value in (text, [text]):
        with pytest.raises(errors.ConfigError, match="UTF-8"):
            stepmill.make("FrozenLake-v1", **{"map_name" if value is text else "desc": value})


def test_odd_characters_in_messages() -> None:
    for text in ("é" * 2000, "x" + "é" * 2000):  # cut within a character by the env's message buffer
        with pytest.raises(errors.StepmillError):
            stepmill.make("FrozenLake-v1", map_name=text)
    with stepmill.make("Pendulum-v1") as pool:
        with pytest.raises(errors.ResetOptionError, match="ud800"):
            pool.reset(options={"\ud800": 1})
        with pytest.raises(errors.ActionError):
            pool.step({"\ud800": 1})


# ---- backends with options -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_actors": 0}, "num_actors: expected"),
        ({"num_actors": 1.5}, "num_actors: expected"),
        ({"resources": [1]}, "resources: expected a dict of amounts by name"),
        ({"resources": {"CPU": "2"}}, "resources: expected a dict of amounts by name"),
        ({"resources": {"CPU": -1}}, r"resources\['CPU'\]: expected a number from 0 on, got -1"),
        ({"address": 3}, "address: expected a text"),
        ({"node_timeout": 0}, "node_timeout: expected"),
        ({"runtime_env": "pip"}, "runtime_env: expected a dict"),
    ],
)
def test_options_of_ray_are_checked_when_they_are_written(options: dict[str, Any], message: str) -> None:
    with pytest.raises(errors.ConfigError, match=message):
        stepmill.Ray(**options)


def test_backend_ray_is_ray_without_options() -> None:
    assert check_settings(backend="ray", reward_dtype="float32") == check_settings(
        backend=stepmill.Ray(), reward_dtype="float32"
    )
    assert check_settings(backend=stepmill.Ray(num_actors=3), reward_dtype="float32").ray.num_actors == 3


def test_options_stay_as_they_were() -> None:
    asked = {"CPU": 1}
    ray = stepmill.Ray(resources=asked)
    asked["CPU"] = 2
    assert ray.resources == {"CPU": 1.0}
    with pytest.raises(dataclasses.FrozenInstanceError):
        ray.num_actors = 2  # type: ignore[misc]


def accepts_anything(**config: Any) -> ProbeTwin:
    return ProbeTwin()


class Addressed(ProbeTwin):
    def __init__(self, address: str) -> None:
        super().__init__()
        self.address = address


@pytest.mark.parametrize("backend", ["auto", "ray"])
@pytest.mark.parametrize("task", ["CartPole-v1", "gymnasium:CartPole-v1", ProbeTwin, accepts_anything])
@pytest.mark.parametrize("option", dataclasses.fields(stepmill.Ray), ids=lambda option: option.name)
def test_make_says_where_an_option_of_ray_goes(option: dataclasses.Field[Any], task: Any, backend: Any) -> None:
    expected = re.escape(f"{option.name}: this is an option of Ray: use backend=stepmill.Ray({option.name}=5)")
    for make in (stepmill.make, stepmill.make_spec):
        with pytest.raises(errors.UnknownConfigError, match=expected):
            make(task, backend=backend, **{option.name: 5})
        with pytest.raises(errors.UnknownConfigError, match=expected):
            make(task, backend=backend, env_config=[{option.name: 5}])


def test_an_env_with_an_argument_of_that_name_gets_it() -> None:
    with stepmill.make(Addressed, address="here", backend="inline") as pool:
        assert pool.get_attr("address") == ("here",)


# ---- how many workers ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("num_envs", "batch_size", "cores", "workers"),
    [
        # Sync: one per core, and none without an env.
        (1, 1, 2, 1),
        (2, 2, 16, 2),
        (4, 4, 2, 2),
        (64, 64, 16, 16),
        # Async and few: one per env.
        (2, 1, 1, 2),
        (3, 2, 1, 3),
        (4, 2, 2, 4),
        (7, 1, 2, 7),
        (8, 4, 16, 8),
        (32, 16, 16, 32),
        (33, 16, 16, 16),
        (64, 1, 256, 64),
        # Async and many: one per core again.
        (4, 1, 1, 1),
        (8, 4, 2, 2),
        (64, 32, 2, 2),
        (64, 32, 16, 16),
        (65, 1, 48, 48),
        (300, 1, 256, 256),
    ],
)
def test_the_default_number_of_workers(
    monkeypatch: pytest.MonkeyPatch, num_envs: int, batch_size: int, cores: int, workers: int
) -> None:
    monkeypatch.setattr("stepmill._native.available_cores", lambda: cores)
    asked = {"num_envs": num_envs, "batch_size": batch_size, "reward_dtype": "float64"}
    assert check_settings(**asked).num_workers == workers
    assert check_settings(**asked, num_workers=1).num_workers == 1
    assert check_settings(**asked, num_workers=4096).num_workers == num_envs
    spec = stepmill.make_spec(ProbeTwin, num_envs=num_envs, batch_size=batch_size)
    assert spec.config["num_workers"] == workers
