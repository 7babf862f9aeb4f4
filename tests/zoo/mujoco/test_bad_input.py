"""Invalid models and arguments of MuJoCo tasks: a clear error, and never the end of the process."""

from __future__ import annotations

import math
import os
import signal
from pathlib import Path
from typing import Any

import gymnasium
import pytest

import stepmill
from stepmill.errors import ConfigError, UnknownConfigError, WorkerDiedError
from support.mujoco_models import crawler, pendulum

pytest.importorskip("mujoco", reason="needs mujoco")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no XML",
        "<mujoco><worldbody>",
        "<mujoco><unheard_of/></mujoco>",
        "<mujoco><worldbody><geom size='-1'/></worldbody></mujoco>",
        "<mujoco><worldbody><body><freejoint/></body></worldbody></mujoco>",
        "<mujoco><actuator><motor joint='missing'/></actuator></mujoco>",
    ],
)
def test_a_model_that_mujoco_cannot_compile(tmp_path: Path, text: str) -> None:
    path = tmp_path / "model.xml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"xml_file: MuJoCo cannot compile .*model.xml: "):
        stepmill.make("Ant-v5", xml_file=str(path))


@pytest.mark.parametrize(
    ("id", "body"),
    [
        ("Ant-v4", "torso"),
        ("Ant-v5", "torso"),
        ("Reacher-v5", "fingertip"),
        ("Pusher-v5", "object"),
    ],
)
def test_a_model_without_the_bodies_that_the_env_reads(tmp_path: Path, id: str, body: str) -> None:
    config = {"main_body": body} if id == "Ant-v5" else {}
    with pytest.raises(ConfigError, match=rf"{id} reads the position of body '{body}'.*'trunk', 'arm'"):
        stepmill.make(id, xml_file=crawler(tmp_path), **config)


@pytest.mark.parametrize("body", ["nowhere", 99, -1, 1.5, True, None, [1], 10**30])
def test_a_main_body_that_does_not_exist(body: Any) -> None:
    with pytest.raises(ConfigError, match="reads the position of body"):
        stepmill.make("Ant-v5", main_body=body)


@pytest.mark.parametrize(
    ("id", "config", "message"),
    [
        ("Ant-v5", {}, "nq=1"),
        ("Hopper-v5", {}, "nq=1"),
        ("Walker2d-v5", {}, "nq=1"),
        ("Swimmer-v5", {}, "nq=1"),
        ("Humanoid-v5", {}, "nq=1"),
        ("HumanoidStandup-v5", {"include_qfrc_actuator_in_observation": False}, "nq=1"),
        ("InvertedPendulum-v5", {}, "2 numbers, and those of this env have 4"),
        ("InvertedDoublePendulum-v5", {}, "nv=1"),
        ("InvertedDoublePendulum-v5", {"xml_file": "hopper.xml"}, "nsite=0"),
        ("Humanoid-v5", {"xml_file": "inverted_double_pendulum.xml"}, "nv=3"),
    ],
)
def test_a_model_that_is_too_small(tmp_path: Path, id: str, config: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f"xml_file: the model .*{message}"):
        stepmill.make(id, **{"xml_file": pendulum(tmp_path), **config})


def test_a_model_that_gives_other_observations_than_the_id_promises(tmp_path: Path) -> None:
    path = Path(crawler(tmp_path))
    path.write_text(path.read_text().replace('"trunk"', '"torso"'))
    with pytest.raises(ConfigError, match="observations of 17 numbers, and those of this env have 27"):
        stepmill.make("Ant-v4", xml_file=str(path))


@pytest.mark.parametrize("file", ["nowhere.xml", "./nowhere.xml", "~/no-such-folder/nowhere.xml", "nul\0.xml"])
def test_a_file_that_does_not_exist(file: str) -> None:
    with pytest.raises(ConfigError, match="xml_file: there is no file"):
        stepmill.make("Hopper-v5", xml_file=file)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("xml_file", 5, "the path of a model, as a str or a Path, got 5"),
        ("xml_file", None, "the path of a model, as a str or a Path, got None"),
        ("frame_skip", 0, "at least 1 and at most 2147483647, got 0"),
        ("frame_skip", -2, "at least 1 and at most 2147483647, got -2"),
        ("frame_skip", 1.5, "a whole number, got 1.5"),
        ("frame_skip", "5", "a whole number, got '5'"),
        ("frame_skip", 2**40, "at most 2147483647, got 1099511627776"),
        ("frame_skip", 2**70, "at most 64 bits"),
        ("reset_noise_scale", -0.1, "a number from 0 .*got -0.1"),
        ("reset_noise_scale", math.nan, "a number from 0 .*got nan"),
        ("reset_noise_scale", 1e308, r"a number from 0 .*got 1e\+308"),
        ("ctrl_cost_weight", "much", "a number, got 'much'"),
        ("terminate_when_unhealthy", 1, "True or False, got 1"),
        ("healthy_z_range", 1.0, "a sequence of numbers, got 1.0"),
        ("healthy_z_range", (1.0,), "a sequence of 2 numbers"),
        ("healthy_z_range", ("low", "high"), "a sequence of numbers"),
    ],
)
def test_invalid_arguments(key: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=f"{key}.*{message}"):
        stepmill.make("Hopper-v5", **{key: value})


@pytest.mark.parametrize(("id", "key"), [("Hopper-v4", "frame_skip"), ("Humanoid-v4", "xml_file")])
def test_arguments_that_only_v5_takes(id: str, key: str) -> None:
    with pytest.raises(UnknownConfigError, match=f"{id} has no config key '{key}'"):
        stepmill.make(id, **{key: 3})


def test_a_worker_process_says_it_too() -> None:
    with pytest.raises(ConfigError, match="frame_skip: expected at least 1"):
        stepmill.make("Hopper-v5", backend="process", frame_skip=0)


def test_a_model_that_changes_before_a_worker_is_replaced(tmp_path: Path) -> None:
    """Its rows would not fit into those of the pool, so the env must not run."""
    path = Path(crawler(tmp_path))
    with stepmill.make("HalfCheetah-v5", num_envs=2, num_workers=2, backend="process", xml_file=str(path)) as pool:
        pool.reset()
        action = pool.action_space.sample()
        text = path.read_text()
        path.write_text(text.replace("</worldbody>", "<body><freejoint/><geom size='1'/></body></worldbody>"))
        os.kill(pool.stats()["workers"][1]["pid"], signal.SIGKILL)
        with pytest.raises(WorkerDiedError):
            pool.step(action)
        with pytest.raises(WorkerDiedError, match="model has changed since the pool was made: nq is 17 now, and was"):
            pool.step(action)
        path.write_text(text)
        pool.step(action)
        assert "abnormal" not in pool.step(action)[4]


def test_a_model_may_be_given_as_a_path(make: Any) -> None:
    path = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets" / "ant.xml"
    assert make("Ant-v5", xml_file=path).is_native
