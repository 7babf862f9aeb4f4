"""Saved states of MuJoCo tasks: the simulation, its changed model and its picture go on as they were, bit for bit."""

from __future__ import annotations

import contextlib
import pickle
import zlib
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector.utils import iterate

import stepmill
from stepmill import errors
from stepmill.values.saved_states import SavedState
from support.lanes import Lanes
from support.probes import MODES, assert_same
from support.processes import kill_worker
from support.subprocesses import run_well

mujoco = pytest.importorskip("mujoco", reason="needs mujoco")

from stepmill.zoo.mujoco.tasks import TASKS  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:.*out of date:DeprecationWarning")  # Gymnasium says so of v4

ASSETS = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"
CASES: dict[str, tuple[str, dict[str, Any]]] = {id: (id, {}) for id in TASKS} | {
    "Ant-v4-forces": ("Ant-v4", {"use_contact_forces": True}),
}
LONG = {"Ant-v5", "HalfCheetah-v5", "Humanoid-v5"}
ORDER = (2, 0, 3, 1)


def heavier(pool: Any, factor: float) -> np.ndarray:
    return np.asarray(pool.get_model(None, ["body_mass"])["body_mass"][0] * factor)


@pytest.mark.parametrize("autoreset", MODES)
@pytest.mark.parametrize("case", CASES)
def test_a_restored_env_goes_on_as_the_saved_one(case: str, autoreset: str) -> None:
    rng = np.random.default_rng(zlib.crc32(f"{case}{autoreset}".encode()))
    (id, config), steps = CASES[case], 300 if case in LONG else 60
    backend = ("thread", "inline")[int(rng.integers(2))]
    settings: dict[str, Any] = {"num_envs": 4, "backend": backend, "autoreset": autoreset, "max_episode_steps": 40}
    settings |= config
    with stepmill.make(id, seed=7, **settings) as pool, stepmill.make(id, seed=99, **settings) as other:
        assert pool.state_kind == "simulator"
        other.reset()
        pool.reset()
        lanes = Lanes(pool, [(i, 0) for i in range(4)])
        last = lanes.go(int(rng.integers(1, 60)))
        states, at = pool.save(), list(lanes.at)
        expected = lanes.go(steps)
        for to, order in ((pool, range(4)), (pool, ORDER), (other, ORDER)):
            observations, _ = to.restore([states[i] for i in order])
            for shown, i in zip(iterate(to.observation_space, observations), order, strict=True):
                assert_same(shown, last[i][-1][0])
            got = Lanes(to, [at[i] for i in order]).go(steps)
            for env_id, i in enumerate(order):
                assert_same(got[env_id], expected[i])


@pytest.mark.parametrize("autoreset", MODES)
def test_states_at_an_end_and_right_after_it(autoreset: str) -> None:
    settings: dict[str, Any] = {"num_envs": 3, "autoreset": autoreset, "max_episode_steps": 5}
    with stepmill.make("Humanoid-v5", seed=1, **settings) as pool, stepmill.make("Humanoid-v5", **settings) as other:
        pool.reset()
        other.reset()
        for time in range(4, 8):
            lanes = Lanes(pool, [(i, 0) for i in range(3)])
            pool.reset(seed=[1, 2, 3])
            lanes.go(time)
            states, at = pool.save(), list(lanes.at)
            expected = lanes.go(12)
            other.restore(states)
            assert_same(Lanes(other, at).go(12), expected)


def test_infos_of_the_last_step_are_shown_again() -> None:
    with stepmill.make("Ant-v5", num_envs=2) as pool:
        pool.reset()
        *_, info = pool.step(pool.action_space.sample())
        states = pool.save()
        pool.step(pool.action_space.sample())
        _, again = pool.restore(states)
        assert_same(again["reward_forward"], info["reward_forward"])
        assert_same(again["x_velocity"], info["x_velocity"])


def test_fork_in_the_middle_of_an_episode() -> None:
    with stepmill.make("HalfCheetah-v5", num_envs=4) as pool:
        pool.reset()
        pool.step(pool.action_space.sample())
        pool.fork(2, [0, 1, 3])
        action = np.repeat(pool.action_space.sample()[:1], 4, axis=0)
        observation = pool.step(action)[0]
        assert (observation == observation[2]).all()


def test_a_state_is_restored_in_another_process(tmp_path: Path) -> None:
    with stepmill.make("Ant-v5", num_envs=2, seed=4) as pool:
        pool.reset()
        pool.set_model(None, {"body_mass": heavier(pool, 1.5)})
        pool.reset([1])
        lanes = Lanes(pool, [(0, 0), (1, 0)])
        lanes.go(10)
        (tmp_path / "states").write_bytes(pickle.dumps(pool.save()))
        expected = [row[0].tolist() for rows in lanes.go(20) for row in rows]
    out = run_well(
        f"""
        import pickle
        from pathlib import Path
        import stepmill
        from support.lanes import Lanes
        pool = stepmill.make("Ant-v5", num_envs=2)
        pool.restore(pickle.loads(Path({str(tmp_path / "states")!r}).read_bytes()))
        print([row[0].tolist() for rows in Lanes(pool, [(0, 10), (1, 10)]).go(20) for row in rows])
        """
    )
    assert out.strip() == str(expected)


# ---- models --------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["thread", "process", "inline"])
@pytest.mark.parametrize("set_const", [False, True])
def test_a_state_carries_its_changed_model(backend: str, set_const: bool) -> None:
    """Of env 0 nothing is changed, env 1 uses a changed model, env 2 takes one up in its next reset, env 3 has both."""
    settings: dict[str, Any] = {"num_envs": 4, "backend": backend, "max_episode_steps": 15}
    names = ["body_mass", "opt.gravity", "body_invweight0"]
    with stepmill.make("Hopper-v5", seed=3, **settings) as pool, stepmill.make("Hopper-v5", **settings) as other:
        pool.reset()
        plain = pool.get_model(None, names)
        pool.set_model([1, 3], {"body_mass": heavier(pool, 1.3)}, set_const=set_const)
        pool.set_model([1, 3], {"opt.gravity": [0, 0, -8.0]})
        pool.reset()
        pool.set_model([2, 3], {"body_mass": heavier(pool, 0.7)}, set_const=set_const)
        models = pool.get_model(None, names)
        lanes = Lanes(pool, [(i, 0) for i in range(4)])
        lanes.go(6)
        states, at = pool.save(), list(lanes.at)
        expected = lanes.go(40)

        other.reset()
        for order in (range(4), ORDER, (3, 2, 1, 0), (0, 0, 0, 0), ORDER):
            other.restore([states[i] for i in order])
            assert_same(other.get_model(None, names), {name: value[list(order)] for name, value in models.items()})
            got = Lanes(other, [at[i] for i in order]).go(40)
            for env_id, i in enumerate(order):
                assert_same(got[env_id], expected[i])
        other.restore(states[0])
        assert_same(other.get_model(None, names), plain)


def test_a_restored_env_keeps_its_model_and_can_be_given_others() -> None:
    with stepmill.make("Hopper-v5", num_envs=2, seed=3) as pool:
        pool.reset()
        pool.set_model([0], {"body_mass": heavier(pool, 2.0)})
        pool.reset([0])
        changed = pool.get_model(None, ["body_mass"])["body_mass"]
        pool.fork(0, [1])
        assert (pool.get_model(None, ["body_mass"])["body_mass"] == changed[0]).all()
        pool.reset(seed=[5, 5])
        action = np.zeros((2, 3), np.float32)
        for _ in range(20):
            observation = pool.step(action)[0]
            assert (observation[0] == observation[1]).all()
        pool.set_model([1], {"body_mass": changed[0] * 2})
        pool.reset(seed=[5, 5])
        observation = pool.step(action)[0]
        assert (observation[0] != observation[1]).any()


def test_envs_with_models_in_their_configuration() -> None:
    gravity = [{"model": {"opt.gravity": [0, 0, value]}} for value in (-5.0, -15.0)]
    with stepmill.make("Hopper-v5", num_envs=2, env_config=gravity) as pool:
        pool.reset()
        states = pool.save()
        expected = pool.step(np.zeros((2, 3), np.float32))
        pool.restore(states)
        assert_same(pool.step(np.zeros((2, 3), np.float32)), expected)
        with pytest.raises(errors.StateError, match="env 1 cannot take a state of another configuration"):
            pool.restore(states[0], [1])


# ---- refused -------------------------------------------------------------------------------------


def damaged(state: SavedState, cut: slice) -> SavedState:
    data = bytes(state)[cut]
    return SavedState(state.origin, data, 0, len(data))


@pytest.mark.parametrize("cut", [slice(0, -1), slice(0, -8), slice(0, 500), slice(1, None), slice(0, 100)], ids=repr)
def test_a_state_that_is_refused_changes_nothing(cut: slice) -> None:
    with stepmill.make("Hopper-v5", num_envs=3, seed=5) as pool, stepmill.make("Hopper-v5", num_envs=3) as twin:
        for one in (pool, twin):
            one.reset(seed=5)
            one.set_model([0, 1], {"body_mass": heavier(one, 2.0)})
            one.reset([0])
            one.step(np.zeros((3, 3), np.float32))
        good = twin.save()
        states = [good[2], good[0], damaged(good[1], cut)]
        with pytest.raises(errors.StateError):
            pool.restore(states)
        assert_same(pool.get_model(None, ["body_mass"]), twin.get_model(None, ["body_mass"]))
        for _ in range(60):
            assert_same(pool.step(np.ones((3, 3), np.float32)), twin.step(np.ones((3, 3), np.float32)))


def test_a_state_of_another_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "hopper.xml"
    path.write_text((ASSETS / "hopper.xml").read_text())
    with stepmill.make("Hopper-v5", xml_file=str(path)) as pool:
        pool.reset()
        states = pool.save()
    with stepmill.make("Hopper-v5", xml_file=str(path), num_envs=1) as pool:
        pool.restore(states)
    path.write_text(path.read_text().replace('friction="0.9"', 'friction="0.8"'))
    with stepmill.make("Hopper-v5", xml_file=str(path)) as pool:
        pool.reset()
        with pytest.raises(errors.StateError, match=r"of another simulator: it was saved with 'MuJoCo .* with model"):
            pool.restore(states)


# ---- after failures, and with what MuJoCo keeps elsewhere ------------------------------------------


def test_an_env_whose_simulation_failed_takes_a_state(tmp_path: Path) -> None:
    """Its memory is too small for the contacts of some steps: then MuJoCo raises an error."""
    path = tmp_path / "small.xml"
    text = (ASSETS / "ant.xml").read_text()
    path.write_text(text.replace("<worldbody>", '<size memory="12K"/><worldbody>', 1))
    settings: dict[str, Any] = {"xml_file": str(path), "on_error": "restart", "max_restarts": None}
    still, steps = np.zeros((1, 8), np.float32), 100
    with stepmill.make("Ant-v5", seed=1, **settings) as pool:
        pool.reset()
        states = pool.save()
        expected = pool.step(still)
        rng, failures = np.random.default_rng(3), 0
        for _ in range(steps):
            *_, info = pool.step(rng.uniform(-1, 1, (1, 8)).astype(np.float32))
            if "abnormal" in info and info["abnormal"][0]:
                failures += 1
                pool.restore(states)
                assert_same(pool.step(still), expected)
        if failures == 0:
            pytest.skip("this MuJoCo needs less memory")


@pytest.mark.parametrize("what", ["sleep", "plugin"])
def test_bodies_that_sleep_and_plugins(tmp_path: Path, what: str) -> None:
    extras = {
        "sleep": (
            '<option><flag sleep="enable"/></option>',
            '<body pos="5 0 2"><freejoint/><geom type="box" size=".1 .1 .1"/></body>',
            "",
        ),
        "plugin": (
            '<extension><plugin plugin="mujoco.pid"><instance name="pid"><config key="ki" value="4"/>'
            '<config key="kp" value="9"/><config key="slewmax" value="3"/></instance></plugin></extension>',
            "",
            '<plugin joint="thigh_joint" plugin="mujoco.pid" instance="pid" actdim="2"/>',
        ),
    }
    option, body, actuator = extras[what]
    text = (ASSETS / "hopper.xml").read_text()
    text = text.replace("<worldbody>", f"{option}<worldbody>{body}", 1).replace("</actuator>", f"{actuator}</actuator>")
    path = tmp_path / "more.xml"
    path.write_text(text)
    try:
        mujoco.MjModel.from_xml_path(str(path))
    except ValueError as error:
        pytest.skip(f"this MuJoCo has no such thing: {error}")
    settings: dict[str, Any] = {"num_envs": 2, "xml_file": str(path), "terminate_when_unhealthy": False}
    with stepmill.make("Hopper-v5", seed=1, **settings) as pool, stepmill.make("Hopper-v5", **settings) as other:
        pool.reset()
        other.reset()
        lanes = Lanes(pool, [(0, 0), (1, 0)])
        for _ in range(4):
            lanes.go(100)
            states, at = pool.save(), list(lanes.at)
            expected = lanes.go(50)
            other.restore(states)
            assert_same(Lanes(other, at).go(50), expected)


# ---- pictures ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("gl")
@pytest.mark.parametrize("shows", [{}, {"visual_options": {14: True}}], ids=["plain", "contacts"])
def test_pictures_are_those_of_the_restored_state(shows: dict[str, Any]) -> None:
    settings: dict[str, Any] = {"num_envs": 2, "render_mode": "rgb_array", "width": 64, "height": 48, **shows}
    with stepmill.make("Hopper-v5", seed=2, **settings) as pool:
        pool.reset()
        lanes = Lanes(pool, [(0, 0), (1, 0)])
        lanes.go(30)
        states, before, at = pool.save(), pool.render(), list(lanes.at)
        expected = lanes.go(30)
        assert not np.array_equal(pool.render()[0], before[0])
        pool.restore(states)
        assert_same(pool.render(), before)
        assert_same(Lanes(pool, at).go(30), expected)


@pytest.mark.usefixtures("gl")
def test_pictures_of_a_restored_model() -> None:
    settings: dict[str, Any] = {"num_envs": 1, "render_mode": "rgb_array", "width": 64, "height": 48}
    with stepmill.make("Hopper-v5", seed=2, **settings) as pool:
        pool.reset()
        pool.render()
        plain = pool.save()
        color = pool.get_model(None, ["geom_rgba"])["geom_rgba"][0]
        pool.set_model(None, {"geom_rgba": 1 - color * [1, 1, 1, 0]})
        pool.reset(seed=3)
        states, before = pool.save(), pool.render()
        pool.restore(plain)
        assert not np.array_equal(pool.render()[0], before[0])
        pool.restore(states)
        assert_same(pool.render(), before)


def test_states_pass_between_threads_and_workers() -> None:
    settings: dict[str, Any] = {"num_envs": 2, "max_episode_steps": 40}
    threads = stepmill.make("Ant-v5", seed=3, **settings)
    workers = stepmill.make("Ant-v5", seed=9, backend="process", num_workers=2, **settings)
    with threads, workers:
        assert threads.state_kind == workers.state_kind == "simulator"
        threads.reset()
        workers.reset()
        lanes = Lanes(threads, [(0, 0), (1, 0)])
        lanes.go(25)
        states = threads.save()
        expected = lanes.go(60)
        workers.restore(states)
        for _ in range(2):
            assert_same(Lanes(workers, [(0, 25), (1, 25)]).go(60), expected)
            workers.restore(pickle.loads(pickle.dumps(states)))


def test_a_new_worker_process_has_the_model_of_a_restored_env() -> None:
    settings: dict[str, Any] = {"num_envs": 2, "backend": "process", "num_workers": 2, "on_error": "restart"}
    masses = ["body_mass"]
    with stepmill.make("Hopper-v5", env_config=[{"model": {"opt.gravity": [0, 0, -5.0]}}] * 2, **settings) as pool:
        pool.reset()
        plain = pool.get_model(None, masses)["body_mass"]
        pool.set_model([0], {"body_mass": plain[0] * 2})
        states = pool.save()
        bad = damaged(states[0], slice(0, -1))
        for given, expected in (((0, 0), (2, 2)), ((1, 0), (1, 2)), (None, (1, 2)), ((1, 1), (1, 1))):
            if given is None:
                with pytest.raises(errors.StateError):
                    pool.restore([states[0], bad])
            else:
                pool.restore([states[i] for i in given])
            for _ in range(2):
                got = pool.get_model(None, ["body_mass", "opt.gravity"])
                assert_same(got["body_mass"], plain * np.array(expected)[:, None])
                assert (got["opt.gravity"] == [0, 0, -5.0]).all()
                kill_worker(pool, 0)
                with contextlib.suppress(errors.WorkerDiedError):
                    pool.reset()
                pool.reset()
