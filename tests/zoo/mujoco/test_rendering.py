"""Pictures of native MuJoCo envs are those of Gymnasium's, pixel for pixel, and the envs stay native."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import stepmill
from stepmill.errors import ConfigError, InFlightError, ResourceError
from stepmill.sources.find import find_source
from support.moviepy import pretend_moviepy
from support.subprocesses import run, run_well

mujoco = pytest.importorskip("mujoco", reason="needs mujoco")
pytest.importorskip("imageio", reason="Gymnasium's renderer needs imageio")

from stepmill.zoo.mujoco.drawer import MujocoDrawer  # noqa: E402
from stepmill.zoo.mujoco.tasks import TASKS  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:.*out of date:DeprecationWarning")  # Gymnasium says so of v4

SIZE = {"width": 64, "height": 48}
ASSETS = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"


@pytest.fixture(scope="module")
def two_cameras(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A pendulum with cameras and without shadows, which take long without a GPU."""
    text = (ASSETS / "inverted_pendulum.xml").read_text()
    path = tmp_path_factory.mktemp("model") / "two_cameras.xml"
    cameras = '<camera name="track" pos="0 -2 0" xyaxes="1 0 0 0 0 1"/><camera name="side" pos="1 -3 1"/>'
    path.write_text(text.replace("<worldbody>", f"<worldbody>{cameras}", 1))
    return str(path)


def expected_picture(env: gymnasium.Env[Any, Any]) -> Any:
    """Gymnasium's picture. With several envs in one thread it draws in the context of the one that drew first last."""
    viewer = env.unwrapped.mujoco_renderer.viewer  # type: ignore[attr-defined]
    if viewer is not None:
        viewer.make_context_current()
    return env.render()


def assert_equal(seen: Any, expected: Any) -> None:
    assert type(seen) is type(expected)
    if isinstance(expected, tuple):
        assert len(seen) == len(expected)
        for one, other in zip(seen, expected, strict=True):
            assert_equal(one, other)
        return
    assert (seen.dtype, seen.shape) == (expected.dtype, expected.shape)
    assert np.array_equal(seen, expected)


def play(pool: Any, oracle: Any, autoreset: AutoresetMode, steps: int) -> int:
    """Compares pictures of some envs at every step: Gymnasium aims a camera when it draws an env first."""
    rng = np.random.default_rng(3)
    pool.reset(seed=7)
    oracle.reset(seed=7)
    oracle.action_space.seed(5)
    ends = 0
    for _ in range(steps):
        chosen = np.flatnonzero(rng.random(pool.num_envs) < 0.6).tolist()
        for env_id, frame in zip(chosen, pool.render(chosen), strict=True):
            assert_equal(frame, expected_picture(oracle.envs[env_id]))
        action = oracle.action_space.sample()
        pool.step(action)
        *_, terminated, truncated, _ = oracle.step(action)
        done = terminated | truncated
        ends += int(done.sum())
        if autoreset is AutoresetMode.DISABLED and done.any():
            pool.reset(options={"reset_mask": done})
            oracle.reset(options={"reset_mask": done})
    return ends


def compare(make: Any, id: str, *, num_envs: int = 3, steps: int = 8, **how: Any) -> None:
    autoreset = how.pop("autoreset", AutoresetMode.NEXT_STEP)
    given = {"render_mode": "rgb_array", "max_episode_steps": 3, **SIZE, **how}
    backend = given.pop("backend", "thread")
    pool = make(id, num_envs=num_envs, backend=backend, autoreset=autoreset, **given)
    assert (pool.is_native, pool.backend) == (True, backend)
    oracle = SyncVectorEnv([lambda: gymnasium.make(id, **given)] * num_envs, autoreset_mode=autoreset)
    assert pool.render_mode == given["render_mode"]
    assert pool.metadata == oracle.metadata
    assert play(pool, oracle, autoreset, steps) >= num_envs
    oracle.close()


# ---- equal to Gymnasium's ------------------------------------------------------------------------


@pytest.mark.usefixtures("gl")
@pytest.mark.parametrize(
    ("autoreset", "mode"),
    [
        (AutoresetMode.NEXT_STEP, "rgb_array"),
        (AutoresetMode.SAME_STEP, "rgbd_tuple"),
        (AutoresetMode.DISABLED, "depth_array"),
    ],
)
def test_pictures_are_gymnasiums(make: Any, autoreset: AutoresetMode, mode: str) -> None:
    compare(make, "Reacher-v5", autoreset=autoreset, render_mode=mode)


@pytest.mark.usefixtures("gl", "server")
@pytest.mark.parametrize("backend", ["inline", "process"])
def test_on_every_backend(make: Any, backend: str) -> None:
    compare(make, "InvertedPendulum-v4", backend=backend, num_envs=2, steps=4)


@pytest.mark.usefixtures("gl")
def test_with_textures_and_shadows(make: Any) -> None:
    compare(make, "Ant-v5", num_envs=1, steps=3)


@pytest.mark.usefixtures("gl")
def test_every_argument_of_the_renderer_counts(make: Any, two_cameras: str) -> None:
    configs: list[dict[str, Any]] = [
        {"width": 640, "height": 20, "camera_id": 1},  # wider than the buffer that the model asks for
        {"camera_name": "side", "visual_options": {mujoco.mjtVisFlag.mjVIS_JOINT: True, 7: True}},
        {"default_camera_config": {"distance": 5.0, "lookat": np.array([0.0, 0.5, 0.2])}, "max_geom": 4},
        {"default_camera_config": None, "camera_name": "nowhere"},
    ]
    shared = {"render_mode": "rgb_array", "xml_file": two_cameras, **SIZE}
    pool = make("InvertedPendulum-v5", num_envs=len(configs), env_config=configs, **shared)
    pool.reset(seed=[3] * len(configs))
    for frame, config in zip(pool.render(), configs, strict=True):
        oracle = gymnasium.make("InvertedPendulum-v5", **{**shared, **config})
        oracle.reset(seed=3)
        assert_equal(frame, oracle.render())
        oracle.close()


@pytest.mark.parametrize("id", TASKS)
def test_arguments_and_metadata_of_every_id(id: str) -> None:
    oracle = gymnasium.make(id).unwrapped
    source: Any = find_source(id, 1, {}, None, "thread", None, 1)
    assert source.metadata == oracle.metadata
    drawer = MujocoDrawer(source)
    seen = drawer._arguments(0)
    drawer.close()
    renderer: Any = oracle.mujoco_renderer  # type: ignore[attr-defined]
    assert seen.pop("camera_id") is seen.pop("camera_name") is None
    assert seen.pop("visual_options") == renderer._vopt
    assert seen.keys() == {"width", "height", "max_geom", "default_cam_config"}
    for name, value in seen.items():
        assert value is getattr(renderer, name) or value == getattr(renderer, name)
    size = source.simulators.kind(0).model.vis.global_
    assert (size.offwidth, size.offheight) == (oracle.model.vis.global_.offwidth, oracle.model.vis.global_.offheight)  # type: ignore[attr-defined]


@pytest.mark.parametrize("frame_skip", [1, 7])
def test_the_speed_of_videos_follows_frame_skip(make: Any, frame_skip: int) -> None:
    pool = make("Hopper-v5", frame_skip=frame_skip)
    assert pool.metadata["render_fps"] == gymnasium.make("Hopper-v5", frame_skip=frame_skip).metadata["render_fps"]


# ---- models of their own -------------------------------------------------------------------------


@pytest.mark.usefixtures("gl")
def test_an_env_is_drawn_with_the_model_that_it_has_now(make: Any) -> None:
    """Equals Gymnasium's env if somebody assigns to its model, before its first picture or later."""
    given = {"render_mode": "rgb_array", **SIZE}
    pool = make("Reacher-v5", num_envs=3, **given)
    oracles = [gymnasium.make("Reacher-v5", **given) for _ in range(3)]
    names = ("geom_rgba", "geom_size")
    new = {name: pool.get_model([0], [name])[name][0] * (0.5, 1.5)[name == "geom_size"] for name in names}

    def reset(seed: int) -> None:
        pool.reset(seed=seed)
        for i, oracle in enumerate(oracles):
            oracle.reset(seed=seed + i)

    def check(*env_ids: int) -> Any:
        frames = pool.render(env_ids)
        for env_id, frame in zip(env_ids, frames, strict=True):
            assert_equal(frame, expected_picture(oracles[env_id]))
        return frames

    reset(seed=0)
    before = check(0, 1)
    pool.set_model([0, 2], new)
    assert np.array_equal(check(0, 1), before)  # they are taken up in the next reset
    for i in (0, 2):
        for name in names:
            getattr(oracles[i].unwrapped.model, name)[:] = new[name]  # type: ignore[attr-defined]
    reset(seed=0)
    after = check(0, 1, 2, 0)
    assert not np.array_equal(after[0], before[0])
    assert np.array_equal(after[1], before[1])
    for oracle in oracles:
        oracle.close()


# ---- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"width": 0}, "width: expected a whole number in"),
        ({"height": "tall"}, "height: expected a whole number"),
        ({"max_geom": -1}, "max_geom: expected"),
        ({"camera_id": 2}, r"camera_id: expected a whole number in \[-1, 1\], got 2"),
        ({"camera_id": 0, "camera_name": "side"}, "camera_id, camera_name: expected one of them"),
        ({"camera_name": 3}, "camera_name: expected None or a str"),
        ({"visual_options": {999: True}}, "visual_options: MuJoCo does not take 999: True"),
        ({"visual_options": [1]}, "visual_options: expected None or a dict"),
        ({"default_camera_config": {"distnace": 1}}, "default_camera_config: MuJoCo does not take 'distnace'"),
        ({"default_camera_config": {"distance": "far"}}, "default_camera_config: MuJoCo does not take 'distance'"),
    ],
)
def test_invalid_arguments_are_refused_before_anything_is_drawn(
    two_cameras: str, config: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        stepmill.make("InvertedPendulum-v5", xml_file=two_cameras, render_mode="rgb_array", **config)


def test_an_env_in_flight_is_not_drawn(make: Any) -> None:
    pool = make("Reacher-v5", num_envs=2, render_mode="rgb_array")
    pool.reset()
    pool.send(np.zeros((2, 2), np.float32))
    with pytest.raises(InFlightError, match=r"env 1 is in flight.*recv\(\)"):
        pool.render([1])
    pool.recv()


@pytest.mark.usefixtures("gl")
def test_a_size_that_opengl_refuses(make: Any) -> None:
    large, small = (make("Reacher-v5", render_mode="rgb_array", width=width, height=9) for width in (10**6, 9))
    for pool in (large, small):
        pool.reset()
    for _ in range(2):
        with pytest.raises(ResourceError, match="width, height: OpenGL cannot draw pictures of 1000000 x 9"):
            large.render()
    assert small.render()[0].shape == (9, 9, 3)


@pytest.mark.usefixtures("gl")
def test_warnings_are_logged_once_and_not_written_to_a_file(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    pool = make("Reacher-v5", render_mode="rgb_array", max_geom=1, **SIZE)
    pool.reset()
    with caplog.at_level(logging.WARNING, "stepmill"):
        for _ in range(2):
            pool.render()
    assert [record.message for record in caplog.records if "geom" in record.message] != []
    assert len({record.message for record in caplog.records}) == len(caplog.records)
    assert list(tmp_path.iterdir()) == []


def test_without_imageio_only_pictures_are_missing(tmp_path: Path) -> None:
    """Gymnasium's renderer imports it, and ``pip install mujoco gymnasium`` does not bring it."""
    (tmp_path / "imageio.py").write_text("raise ModuleNotFoundError('there is none', name='imageio')")
    out = run_well(
        f"""
        import sys

        sys.path.insert(0, {str(tmp_path)!r})

        import stepmill

        for id in ("Reacher-v4", "Reacher-v5"):
            with stepmill.make(id, render_mode="rgb_array") as pool:
                pool.step([[0, 0]])
                try:
                    pool.render()
                except stepmill.errors.MissingPackageError as error:
                    print(error)
        """
    )
    lines = out.splitlines()
    assert len(lines) == 2
    assert all("needs imageio" in line and "stepmill[mujoco]" in line for line in lines)


# ---- videos --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("gl")
def test_gymnasium_records_videos(make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_moviepy(monkeypatch)
    pool = make("Reacher-v5", num_envs=2, render_mode="rgb_array", **SIZE)
    recorded = gymnasium.wrappers.vector.RecordVideo(pool, str(tmp_path / "videos"), video_length=3)
    recorded.reset()
    for _ in range(4):
        recorded.step(np.zeros((2, 2), np.float32))
    recorded.close()
    (path,) = (tmp_path / "videos").iterdir()
    video = np.load(path)
    assert video["frames"].shape == (4, 48, 128, 3)  # two envs side by side
    assert video["fps"] == 50


# ---- the end -------------------------------------------------------------------------------------


def drawing_threads() -> int:
    return sum(thread.name.startswith("stepmill draws") for thread in threading.enumerate())


@pytest.mark.usefixtures("gl")
def test_a_closed_pool_leaves_nothing_that_draws(make: Any) -> None:
    first, second = (make("Reacher-v5", num_envs=2, render_mode="rgb_array", **SIZE) for _ in range(2))
    before = drawing_threads()
    for pool in (first, second):
        pool.reset()
    expected = first.render()
    assert np.array_equal(second.render(), expected)
    assert drawing_threads() == before + 2
    first.close()
    assert drawing_threads() == before + 1
    assert np.array_equal(second.render(), expected)
    second.close()
    assert drawing_threads() == before


START = f"""
import gc, os, sys
import stepmill

pool = stepmill.make("Reacher-v5", num_envs=2, render_mode="rgb_array", **{SIZE})
pool.reset()
frames = pool.render()
"""


@pytest.mark.usefixtures("gl")
def test_the_program_may_end_or_fork_with_pictures_open() -> None:
    """The children end as programs do, and free what they hold; the parent draws on, and leaves its pool open."""
    out = run_well(
        START
        + """
def use():
    try:
        pool.render()
    except stepmill.errors.ForkedError:
        print("refused", flush=True)
    pool.close()

def drop():
    global pool
    del pool
    gc.collect()

def draw():
    with stepmill.make("Reacher-v5", render_mode="rgb_array") as own:
        own.reset()
        try:
            own.render()
        except stepmill.errors.UnsupportedError as error:
            print("forked from one that had drawn" in str(error), flush=True)

for function in (use, drop, draw):
    child = os.fork()
    if child == 0:
        function()
        sys.exit()
    assert os.waitpid(child, 0)[1] == 0
print(all((one == other).all() for one, other in zip(frames, pool.render())))
"""
    )
    assert out.split() == ["refused", "True", "True"]


# ---- without a display ---------------------------------------------------------------------------


@pytest.fixture
def headless(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL", "PYOPENGL_PLATFORM"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


DRAW_TWICE = """
import stepmill
{before}
with stepmill.make("Reacher-v5", backend={backend!r}, render_mode="rgb_array") as pool:
    pool.reset()
    for _ in range(2):  # MuJoCo would end the process at the second try
        try:
            print(pool.render()[0].any())
        except stepmill.errors.UnsupportedError as error:
            print(error)
    pool.step([[0, 0]])
"""
USER = "render_mode='rgb_array' of Reacher-v5 cannot draw: "


@pytest.mark.parametrize("backend", ["thread", "process"])
def test_without_a_display_the_error_says_what_there_is(headless: pytest.MonkeyPatch, backend: str) -> None:
    headless.setenv("MUJOCO_GL", "glfw")
    finished = run(DRAW_TWICE.format(backend=backend, before=""))
    assert finished.code == 0, finished
    lines = finished.out.splitlines()
    assert len(lines) == 2
    for line in lines:
        assert line.startswith(f"{USER}GLFW needs a display. MUJOCO_GL is 'glfw', there is no display, ")
        assert all(
            f"{name} is installed" in line or f"{name} is missing (install " in line for name in ("EGL", "OSMESA")
        )
        assert line.endswith("before Python starts")


@pytest.mark.usefixtures("headless")
def test_where_nothing_draws_the_error_says_what_is_missing() -> None:
    hide = "import stepmill.system.headless; stepmill.system.headless._loads = lambda library: False"
    finished = run(DRAW_TWICE.format(backend="inline", before=hide))
    assert finished.code == 0, finished
    for line in finished.out.splitlines():
        assert line.startswith(USER)
        assert "EGL is missing (install libegl1" in line
        assert "OSMESA is missing (install libosmesa6)" in line


def test_a_wrong_choice_of_what_draws_is_explained(headless: pytest.MonkeyPatch) -> None:
    headless.setenv("MUJOCO_GL", "crayons")
    finished = run("import stepmill; stepmill.make('Reacher-v5')")
    assert finished.code == 1
    assert "UnsupportedError: Reacher-v5 cannot draw: " in finished.err
    assert "MUJOCO_GL is 'crayons', there is no display" in finished.err


def test_without_a_choice_the_first_that_works_draws(gl: str, headless: pytest.MonkeyPatch) -> None:
    if gl != "egl":
        pytest.skip("EGL does not draw here")
    assert run_well(DRAW_TWICE.format(backend="thread", before="")).split() == ["True", "True"]
