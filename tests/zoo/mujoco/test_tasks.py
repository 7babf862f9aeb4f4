"""The ids of MuJoCo tasks: limits, spaces and arguments are Gymnasium's."""

from __future__ import annotations

import inspect
import logging
from typing import Any

import gymnasium
import pytest
from gymnasium.envs.registration import load_env_creator

import stepmill
from stepmill import _native
from stepmill.errors import StepmillError
from stepmill.registry.records import find, own_ids
from stepmill.zoo.mujoco.tasks import TASKS
from support.reference import Case

pytest.importorskip("mujoco", reason="needs mujoco")

from gymnasium.envs.mujoco import MujocoEnv  # imports mujoco

from stepmill.zoo.mujoco.simulator import MujocoFamily  # imports mujoco

THEIRS = [
    id for id, spec in gymnasium.registry.items() if "envs.mujoco." in str(spec.entry_point) and id != "Pusher-v4"
]
# MujocoEnv has them, and the env classes set them themselves.
SET_BY_CLASSES = {"self", "model_path", "frame_skip", "observation_space", "render_mode", "default_camera_config"}


def named_arguments(function: Any) -> dict[str, inspect.Parameter]:
    return {p.name: p for p in inspect.signature(function).parameters.values() if p.kind is not p.VAR_KEYWORD}


def our_defaults(id: str) -> dict[str, Any]:
    return {**_native.default_config(id), **MujocoFamily(id).keys}


def test_every_id_of_gymnasium_is_native() -> None:
    ours = {id for id in own_ids() if "mujoco" in (find(id).simulator or "")}
    assert ours == set(THEIRS) == set(TASKS)


@pytest.mark.parametrize("id", THEIRS)
def test_limits_and_spaces_are_gymnasiums(id: str) -> None:
    env = Case(id).make_gymnasium()
    spec = stepmill.make_spec(id)
    assert spec.observation_space == env.observation_space
    assert spec.action_space == env.action_space
    record = find(id)
    assert (record.max_episode_steps, record.reward_threshold) == (
        gymnasium.spec(id).max_episode_steps,
        gymnasium.spec(id).reward_threshold,
    )
    env.close()


@pytest.mark.parametrize("id", THEIRS)
def test_arguments_and_their_defaults_are_gymnasiums(id: str) -> None:
    ours = our_defaults(id)
    named = named_arguments(load_env_creator(gymnasium.spec(id).entry_point))
    passed_on = {name: p for name, p in named_arguments(MujocoEnv.__init__).items() if name not in SET_BY_CLASSES}
    assert ours.keys() - {"default_camera_config"} == named.keys() - {"default_camera_config"} | passed_on.keys()
    for name, parameter in {**passed_on, **named}.items():
        if name != "default_camera_config":
            value = tuple(ours[name]) if isinstance(parameter.default, tuple) else ours[name]
            assert value == parameter.default, name


@pytest.mark.parametrize("id", THEIRS)
def test_those_take_a_camera_that_do_so_in_gymnasium(id: str) -> None:
    case = Case(id, {"default_camera_config": {"distance": 2.0}})
    if "default_camera_config" in our_defaults(id):
        case.make_gymnasium().close()
    else:
        with pytest.raises(TypeError, match="default_camera_config"):
            case.make_gymnasium()


def test_pusher_v4_says_what_gymnasium_says(caplog: pytest.LogCaptureFixture) -> None:
    with (
        pytest.warns(DeprecationWarning, match="Pusher-v4"),
        caplog.at_level(logging.CRITICAL),
        pytest.raises(StepmillError, match="only supported on `mujoco<3`") as caught,
    ):
        stepmill.make("Pusher-v4", backend="inline")
    assert isinstance(caught.value.__cause__, ImportError)
