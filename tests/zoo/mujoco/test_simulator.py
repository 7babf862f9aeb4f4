"""The MuJoCo that native envs step: which library, whose memory, and what its errors and warnings do."""

from __future__ import annotations

import gc
import logging
import os
import threading
import weakref
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import stepmill
from stepmill import _native
from stepmill.errors import EnvError, InFlightError, UnsupportedError
from stepmill.sources.simulator import UnsuitableSimulator
from support.subprocesses import run

mujoco = pytest.importorskip("mujoco", reason="needs mujoco")

from stepmill.zoo.mujoco import simulator as family  # noqa: E402  # imports mujoco

ASSETS = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"


def run_python(code: str) -> None:
    """Runs a program that must end well. It may log warnings about a model on stderr."""
    finished = run(code)
    assert finished.code == 0, finished


def actions_for(pool: Any, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, pool.action_space.shape).astype(np.float32)


@pytest.fixture
def small_memory(tmp_path: Path) -> str:
    """An Ant whose memory is too small for the contacts of some steps: then MuJoCo raises an error."""
    text = (ASSETS / "ant.xml").read_text()
    path = tmp_path / "small.xml"
    path.write_text(text.replace("<worldbody>", '<size memory="12K"/><worldbody>', 1))
    return str(path)


# ---- which library -------------------------------------------------------------------------------


def test_functions_come_from_the_package() -> None:
    assert Path(_native.check_mujoco(family.bindings_path())).parent == Path(mujoco.__file__).parent


def test_another_mujoco_in_the_process_is_left_alone(tmp_path: Path) -> None:
    """A second MuJoCo in the process, as EnvPool brings one."""
    library = Path(_native.check_mujoco(family.bindings_path()))
    other = tmp_path / "libother"
    # Under another name, or the loader would take it for the one that MuJoCo's package wants.
    name = library.name.encode()
    other.write_bytes(library.read_bytes().replace(name, name.replace(b"mujoco", b"others")))
    run_python(
        f"""
        import ctypes, os
        ctypes.CDLL({str(other)!r})
        import numpy as np
        import stepmill
        from stepmill import _native
        pool = stepmill.make("Ant-v5", num_envs=2)
        pool.reset()
        pool.step(np.zeros((2, 8), np.float32))
        from stepmill.zoo.mujoco.simulator import bindings_path
        assert pool.is_native
        assert os.path.samefile(_native.check_mujoco(bindings_path()), {str(library)!r})
        """
    )


def test_beside_envpool() -> None:
    pytest.importorskip("envpool", reason="needs EnvPool")
    run_python("import envpool, stepmill; assert stepmill.verify('Ant-v5', steps=200)")


def test_mujoco_is_imported_with_the_first_pool() -> None:
    run_python(
        """
        import sys
        import stepmill
        assert "mujoco" not in sys.modules
        stepmill.make("HalfCheetah-v5", num_envs=1).close()
        assert "mujoco" in sys.modules
        """
    )


def test_a_version_that_lacks_something_runs_in_python(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_: Any) -> None:
        raise UnsuitableSimulator("MuJoCo's library has no function mj_step")

    monkeypatch.setattr(family, "check_mujoco", refuse)
    with stepmill.make("HalfCheetah-v5", num_envs=2, backend="process") as pool:
        assert not pool.is_native
        assert pool.reset()[0].shape == (2, 17)
    assert "HalfCheetah-v5 runs in Python, not natively: MuJoCo's library has no function mj_step" in caplog.text
    with pytest.raises(UnsupportedError, match="cannot run natively here: MuJoCo's library has no function"):
        stepmill.make("HalfCheetah-v5", backend="thread")


def test_the_check_says_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(family, "bindings_path", lambda: str(tmp_path / "_functions.so"))
    with pytest.raises(UnsuitableSimulator, match="is not loaded"):
        family.check_mujoco.__wrapped__(mujoco)


def test_without_mujoco_the_error_names_the_extra() -> None:
    run_python(
        """
        import sys
        sys.modules["mujoco"] = None
        import stepmill.errors
        try:
            stepmill.make("Ant-v5")
        except stepmill.errors.MissingPackageError as error:
            assert "stepmill[mujoco]" in str(error), error
        else:
            raise AssertionError("no error")
        """
    )


# ---- whose memory --------------------------------------------------------------------------------


def test_the_description_makes_no_state(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Any) -> Any:
        raise AssertionError("a state was made")

    monkeypatch.setattr(family.MujocoModel, "make", refuse)
    spec = stepmill.make_spec("Ant-v5", num_envs=1000)
    assert spec.observation_space == gymnasium.make("Ant-v5").observation_space
    assert spec.action_space == gymnasium.make("Ant-v5").action_space


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Weak references to all simulators that are made."""
    references: list[Any] = []
    make = family.MujocoModel.make

    def record(kind: Any) -> Any:
        simulator = make(kind)
        references.append(weakref.ref(simulator))
        return simulator

    monkeypatch.setattr(family.MujocoModel, "make", record)
    return references


def test_envs_that_differ_only_in_what_is_not_in_the_model_share_it(make: Any, made: list[Any]) -> None:
    configs = [{"default_camera_config": {"distance": 4.0}}, {"camera_id": 0}, {"frame_skip": 2}, {"width": 700}]
    make("Ant-v5", num_envs=4, env_config=configs)
    models = [one().model for one in made]
    assert models[0] is models[1] is models[2]
    assert models[3] is not models[0]


def test_envs_of_one_configuration_share_their_model(make: Any, made: list[Any]) -> None:
    pool = make("Ant-v5", num_envs=3, env_config=[{}, {"frame_skip": 2}, {"xml_file": "ant.xml"}])
    assert pool.is_native
    same = make("Ant-v5", num_envs=3)
    assert len({id(one().model) for one in made[3:]}) == 1
    assert len({id(one().data) for one in made}) == 6
    del same


def test_the_pool_keeps_states_until_it_is_closed(made: list[Any]) -> None:
    pool = stepmill.make("HalfCheetah-v5", num_envs=3)
    gc.collect()
    assert all(one() is not None for one in made)
    pool.reset()
    pool.send(actions_for(pool, 0))
    pool.close()
    gc.collect()
    assert all(one() is None for one in made)


@pytest.mark.slow
def test_two_hundred_pools_leave_nothing(made: list[Any]) -> None:
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    for i in range(200):
        if i == 50:
            before = resident()
        pool = stepmill.make("HalfCheetah-v5", num_envs=2, num_threads=2)
        pool.reset()
        pool.step(actions_for(pool, i))
        pool.close() if i % 2 else None
        del pool
    gc.collect()
    assert all(one() is None for one in made)
    assert resident() - before < 20e6  # an env that stays would make 150 of them: 200 MB


def test_the_program_may_end_with_steps_under_way() -> None:
    run_python(
        """
        import numpy as np, stepmill
        pool = stepmill.make("Ant-v5", num_envs=8, batch_size=4, num_threads=2)
        pool.async_reset()
        pool.recv()
        pool.send(np.zeros((4, 8), np.float32))
        """
    )


def test_a_forked_child_leaves_the_pool_to_its_parent() -> None:
    run_python(
        """
        import os, numpy as np, stepmill.errors
        pool = stepmill.make("Ant-v5", num_envs=4, num_threads=2)
        pool.reset()
        action = np.zeros((4, 8), np.float32)
        child = os.fork()
        if child == 0:
            try:
                pool.step(action)
            except stepmill.errors.ForkedError:
                del pool
                os._exit(0)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        pool.step(action)
        pool.close()
        """
    )


# ---- beside the user's own MuJoCo ------------------------------------------------------------------


def test_user_code_steps_beside_the_pool(make: Any) -> None:
    """Its own models in its own threads, while the pool steps: both get what they get alone."""
    model = mujoco.MjModel.from_xml_path(str(ASSETS / "hopper.xml"))

    def play() -> np.ndarray:
        data = mujoco.MjData(model)
        for _ in range(2000):
            mujoco.mj_step(model, data)
        return np.concatenate([data.qpos, data.qvel])

    alone = play()
    beside: list[np.ndarray] = []
    threads = [threading.Thread(target=lambda: beside.append(play())) for _ in range(3)]
    pool = make("HalfCheetah-v5", num_envs=8, seed=3, num_threads=2)
    for thread in threads:
        thread.start()
    pool.reset()
    for i in range(100):
        observation = pool.step(actions_for(pool, i))[0]
    for thread in threads:
        thread.join()
    again = make("HalfCheetah-v5", num_envs=8, seed=3, backend="inline")
    again.reset()
    for i in range(100):
        expected = again.step(actions_for(again, i))[0]
    np.testing.assert_array_equal(observation, expected)
    assert all((one == alone).all() for one in beside)


def test_errors_of_user_code_stay_python_exceptions(make: Any, small_memory: str) -> None:
    """MuJoCo has one slot per thread for its error handler, which its bindings use too."""
    pool = make("Ant-v5", num_envs=2, xml_file=small_memory, backend="inline", on_error="restart", max_restarts=None)
    pool.reset()
    bad = sum(int(pool.step(actions_for(pool, i))[-1].get("abnormal", np.zeros(2)).sum()) for i in range(100))
    if bad == 0:
        pytest.skip("this MuJoCo needs less memory")
    with pytest.raises(ValueError, match="XML"):
        mujoco.MjModel.from_xml_string("<nonsense/>")
    model = mujoco.MjModel.from_xml_path(small_memory)
    data = mujoco.MjData(model)

    def play() -> None:
        for i in range(1000):
            data.ctrl[:] = np.random.default_rng(i).uniform(-1, 1, 8)
            mujoco.mj_step(model, data)

    with pytest.raises(mujoco.FatalError, match="memory"):
        play()


@pytest.mark.parametrize("backend", ["thread", "inline"])
def test_a_callback_of_the_user_that_raises_is_the_cause(backend: str) -> None:
    """MuJoCo calls it for the envs of pools too, on threads that Python does not know."""
    run_python(
        f"""
        import sys
        import mujoco, numpy as np, stepmill
        from stepmill.errors import EnvError
        shown = []
        sys.unraisablehook = shown.append
        pool = stepmill.make("HalfCheetah-v5", num_envs=16, backend={backend!r}, num_threads=2)
        pool.reset()
        def control(model, data):
            raise ValueError(f"boom {{data.time}}")
        mujoco.set_mjcb_control(control)
        for _ in range(3):
            try:
                pool.step(np.zeros((16, 6), np.float32))
            except EnvError as error:
                assert "env 0 failed in" in str(error) and "raised ValueError: boom 0.0" in str(error), error
                assert [one.env_id for one in error.errors] == list(range(16))
                for one in error.errors:
                    cause = one.__cause__
                    assert type(cause) is ValueError and str(cause) == "boom 0.0", repr(cause)
                    assert cause.__traceback__.tb_frame.f_code is control.__code__
            else:
                assert False
        mujoco.set_mjcb_control(None)
        pool.reset()
        pool.step(np.zeros((16, 6), np.float32))
        assert not shown, shown
        """
    )


def test_an_error_of_mujoco_itself_has_no_cause_from_a_callback(small_memory: str) -> None:
    """Also where a callback is set, which raises nothing."""
    run_python(
        f"""
        import mujoco, numpy as np, stepmill
        from stepmill.errors import EnvError
        pool = stepmill.make("Ant-v5", num_envs=2, xml_file={small_memory!r}, num_threads=1)
        pool.reset()
        mujoco.set_mjcb_control(lambda model, data: None)
        rng = np.random.default_rng(0)
        for _ in range(100):
            try:
                pool.step(rng.uniform(-1, 1, (2, 8)).astype(np.float32))
            except EnvError as error:
                assert "memory" in str(error) and error.errors[0].__cause__ is None, error
        """
    )


def test_ctrl_c_inside_a_callback_arrives_and_loses_nothing() -> None:
    run_python(
        """
        import signal
        import mujoco, numpy as np, stepmill
        from stepmill.errors import EnvError
        pool = stepmill.make("HalfCheetah-v5", num_envs=2, backend="inline")
        pool.reset()
        pressed = []
        def control(model, data):
            if not pressed:
                pressed.append(True)
                signal.raise_signal(signal.SIGINT)
        mujoco.set_mjcb_control(control)
        try:
            pool.step(np.zeros((2, 6), np.float32))
        except KeyboardInterrupt:
            pass
        else:
            assert False
        try:
            pool.recv()
        except EnvError as error:
            assert [one.env_id for one in error.errors] == [0]
            assert isinstance(error.errors[0].__cause__, KeyboardInterrupt)
            assert error.batch[-1]["abnormal"].tolist() == [True, False]
        else:
            assert False
        pool.step(np.zeros((2, 6), np.float32))
        """
    )


def test_a_callback_in_python_that_keeps_mujoco_from_compiling_is_named() -> None:
    """MuJoCo has no Python object yet that it could give to the callback."""
    run_python(
        """
        import mujoco, numpy as np, stepmill
        from stepmill.errors import UsageError
        mujoco.set_mjcb_passive(lambda model, data: None)
        for _ in range(2):
            try:
                stepmill.make("HalfCheetah-v5", num_envs=2)
            except UsageError as error:
                assert "mujoco.set_mjcb_passive" in str(error) and "make the pool first" in str(error), error
            else:
                assert False
        mujoco.set_mjcb_passive(None)
        pool = stepmill.make("HalfCheetah-v5", num_envs=2)
        mujoco.set_mjcb_passive(lambda model, data: None)
        pool.reset()
        pool.step(np.zeros((2, 6), np.float32))
        try:
            stepmill.make("Ant-v5")
        except UsageError as error:
            assert "mujoco.set_mjcb_passive" in str(error), error
        else:
            assert False
        """
    )


def test_a_refused_change_of_a_model_in_use_changes_nothing(make: Any) -> None:
    """The host itself refuses, whatever another thread sent after the view looked."""
    pool = make("HalfCheetah-v5", num_envs=2)
    pool.reset()
    before = pool.get_model(None, ["body_mass"])["body_mass"]
    pool.send(actions_for(pool, 0))
    with pytest.raises(InFlightError, match="its model is in use"):
        pool._host.ask_models("set_model", [None, None], [0, 1])
    pool.recv()
    np.testing.assert_array_equal(pool.get_model(None, ["body_mass"])["body_mass"], before)


# ---- errors and warnings -----------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["thread", "inline", "process"])
def test_an_error_of_mujoco_fails_one_row(make: Any, small_memory: str, backend: str) -> None:
    """It would end the process. Here the env fails, and after its reset plays on as a new one."""
    pool = make("Ant-v5", num_envs=4, seed=0, xml_file=small_memory, backend=backend)
    pool.reset()
    errors = []
    for i in range(300):
        try:
            pool.step(actions_for(pool, i))
        except EnvError as error:
            errors.append(error)
    if not errors:
        pytest.skip("this MuJoCo needs less memory")
    assert "MuJoCo: " in str(errors[0])
    assert "memory" in str(errors[0])
    _, _, terminated, truncated, info = errors[0].batch
    assert info["abnormal"].sum() == len(errors[0].errors)
    assert truncated[info["abnormal"]].all()
    assert not terminated[info["abnormal"]].any()
    failed = errors[0].errors[0].env_id
    observation, info = pool.reset(seed=[11, 12, 13, 14])
    twin = gymnasium.make("Ant-v5", xml_file=small_memory)
    np.testing.assert_array_equal(observation[failed], twin.reset(seed=11 + failed)[0])


def test_a_warning_about_the_model_is_logged_once(
    caplog: pytest.LogCaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets" / "half_cheetah.xml"
    (tmp_path / "mine.xml").write_text(model.read_text())
    with caplog.at_level(logging.WARNING, "stepmill"):
        stepmill.make(
            "HalfCheetah-v5", num_envs=4, xml_file="./mine.xml", env_config=[{"width": i + 1} for i in range(4)]
        ).close()
    logged = [record.message for record in caplog.records if "MuJoCo warns" in record.message]
    if not logged:
        pytest.skip("this MuJoCo has no warnings about half_cheetah.xml")
    assert len(logged) == len(set(logged))
    assert [one.name for one in tmp_path.iterdir()] == ["mine.xml"]  # not even MUJOCO_LOG.TXT


def test_what_is_deprecated_in_models_of_gymnasium_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Whoever uses them cannot change them."""
    with caplog.at_level(logging.WARNING, "stepmill"):
        stepmill.make("HalfCheetah-v5").close()
        stepmill.make("HalfCheetah-v5", xml_file="half_cheetah.xml").close()
    assert not [record.message for record in caplog.records if "deprecated" in record.message]


@pytest.mark.filterwarnings("ignore:overflow encountered")  # in Gymnasium's own sum
def test_an_unstable_state_is_a_row_like_any_other(make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pool = make("HalfCheetah-v5", num_envs=2, seed=0)
    pool.reset()
    twin = gymnasium.make("HalfCheetah-v5", disable_env_checker=True)
    twin.reset(seed=0)
    for _ in range(20):
        action = np.full((2, 6), 1e30, np.float32)
        observation, reward, _, _, info = pool.step(action)
        expected = twin.step(action[0])
        np.testing.assert_array_equal(observation[0], expected[0])
        np.testing.assert_array_equal(reward[0], expected[1])
        assert "abnormal" not in info
    twin.close()
    (tmp_path / "MUJOCO_LOG.TXT").unlink(missing_ok=True)  # Gymnasium's


def test_no_log_file_is_written() -> None:
    run_python(
        """
        import os, tempfile
        os.chdir(tempfile.mkdtemp())
        import numpy as np, stepmill
        pool = stepmill.make("HalfCheetah-v5", num_envs=2)
        pool.reset()
        for _ in range(20):
            pool.step(np.full((2, 6), 1e30, np.float32))
        assert stepmill.verify("HalfCheetah-v5", steps=20)
        assert not os.listdir(), os.listdir()
        """
    )
