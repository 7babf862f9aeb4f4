"""``render`` of native envs: modes, refusals, failures, the end. Pictures: ``tests/zoo/test_gymnasium_drawers.py``."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import stepmill
from stepmill.errors import (
    ClosedError,
    ConfigError,
    EnvError,
    InFlightError,
    MissingPackageError,
    NeedsResetError,
    UnknownConfigError,
    UnsupportedError,
    WorkerDiedError,
)
from support.moviepy import pretend_moviepy
from support.subprocesses import run

pytestmark = pytest.mark.usefixtures("server")

BACKENDS = ("thread", "inline", "process")


@pytest.fixture(autouse=True, scope="module")
def _quiet_display() -> Iterator[None]:
    """No test asks for a window, and none may open one."""
    before = os.environ.get("SDL_VIDEODRIVER")
    os.environ["SDL_VIDEODRIVER"] = "dummy"
    yield
    if before is None:
        del os.environ["SDL_VIDEODRIVER"]
    else:
        os.environ["SDL_VIDEODRIVER"] = before


# ---- what a pool says about it -------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mode", [None, "rgb_array"])
def test_mode_and_metadata_are_gymnasiums(make: Any, backend: str, mode: str | None) -> None:
    pool = make("CartPole-v1", num_envs=2, backend=backend, render_mode=mode)
    oracle = gymnasium.make("CartPole-v1", render_mode=mode)
    assert pool.render_mode == oracle.render_mode == mode
    assert pool.metadata == {**oracle.metadata, "autoreset_mode": AutoresetMode.NEXT_STEP}
    assert pool.get_attr("metadata") == (oracle.metadata,) * 2
    assert pool.get_attr("render_mode") == (mode,) * 2
    assert pool.config.get("render_mode") == mode
    assert stepmill.make_spec("CartPole-v1", render_mode=mode).config.get("render_mode") == mode
    pool.metadata["render_modes"].append("mine")
    assert oracle.metadata["render_modes"] == ["human", "rgb_array"]


@pytest.mark.parametrize("view", ["gym", "dm"])
def test_every_view_draws(make: Any, view: str) -> None:
    pool = make("CartPole-v1", view, num_envs=2, render_mode="rgb_array")
    pool.reset()
    assert [frame.shape for frame in pool.render()] == [(400, 600, 3)] * 2
    assert len(pool.render([1])) == 1


def test_frames_are_the_callers_own(make: Any) -> None:
    pool = make("Blackjack-v1", num_envs=2, render_mode="rgb_array")
    pool.reset()
    one, other = pool.render([0, 0])
    assert np.array_equal(one, other)
    one[:] = 0
    assert np.array_equal(pool.render([0])[0], other)


def test_gymnasiums_vector_wrappers_find_what_they_need(make: Any) -> None:
    pool = make("CartPole-v1", num_envs=3, render_mode="rgb_array")
    shown = gymnasium.wrappers.vector.HumanRendering(pool)
    assert shown.render_mode == "human"
    shown.reset()
    shown.step(np.zeros(3, np.int64))
    shown.close()


def test_gymnasium_records_videos_of_a_pool(make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_moviepy(monkeypatch)
    pool = make("CartPole-v1", num_envs=2, render_mode="rgb_array")
    recorded = gymnasium.wrappers.vector.RecordVideo(pool, str(tmp_path / "videos"), video_length=3)
    recorded.reset()
    for _ in range(4):
        recorded.step(np.zeros(2, np.int64))
    recorded.close()
    (path,) = (tmp_path / "videos").iterdir()
    video = np.load(path)
    assert video["frames"].shape == (4, 400, 1200, 3)  # two envs side by side
    assert video["fps"] == 50


def test_gymnasiums_make_vec_takes_the_mode_too() -> None:
    with gymnasium.make_vec("stepmill/CartPole-v1", num_envs=2, render_mode="rgb_array") as pool:
        pool.reset()
        assert (pool.render_mode, len(pool.render())) == ("rgb_array", 2)


# ---- modes that draw at every step ---------------------------------------------------------------


@pytest.mark.parametrize("mode", ["human", "rgb_array_list", "ansi_list"])
def test_modes_that_draw_at_every_step_run_gymnasiums_env(make: Any, mode: str) -> None:
    id = "Taxi-v4" if mode == "ansi_list" else "CartPole-v1"
    pool = make(id, backend="inline", render_mode=mode)
    assert not pool.is_native
    pool.reset()
    for _ in range(2):
        pool.step([1])
    (frames,) = pool.render()
    assert frames is None if mode == "human" else len(frames) == 3
    with pytest.raises(UnsupportedError, match=rf"mode '{mode}' .*every step.*'gymnasium:{id}'.*inline"):
        stepmill.make(id, backend="thread", render_mode=mode)


def test_that_it_is_not_native_is_told_once(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stepmill.system.warn_once._shown", set())
    with pytest.warns(UserWarning, match="render_mode='human' draws CartPole-v1 at every step, so a Python env runs"):
        make("CartPole-v1", backend="inline", render_mode="human")
    with warnings.catch_warnings(record=True) as told:
        make("CartPole-v1", backend="inline", render_mode="human")
        assert make("CartPole-v1", render_mode="rgb_array").is_native
    assert told == []


# ---- refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["auto", *BACKENDS])
@pytest.mark.parametrize("mode", ["ansi", "rgb", "ansi_list", "human_list", "", 5, ["rgb_array"]])
def test_an_unknown_mode_lists_the_known_ones(backend: str, mode: Any) -> None:
    expected = "'rgb_array', 'human', 'rgb_array_list'" if isinstance(mode, str) else "expected None or a str"
    with pytest.raises(ConfigError, match=f"render_mode: .*{expected}, got"):
        stepmill.make("CartPole-v1", backend=backend, render_mode=mode)


def test_a_misspelt_key_is_told() -> None:
    with pytest.raises(UnknownConfigError, match="did you mean 'render_mode'"):
        stepmill.make("CartPole-v1", render_mod="rgb_array")


@pytest.mark.parametrize("configs", [[{}, {"render_mode": "ansi"}], [{"render_mode": "rgb_array"}, {}]])
def test_envs_of_one_pool_share_their_mode(configs: list[dict[str, Any]]) -> None:
    with pytest.raises(ConfigError, match="env_config: the envs of one pool share their render_mode, but got"):
        stepmill.make("Taxi-v4", num_envs=2, env_config=configs)
    with stepmill.make("Taxi-v4", num_envs=2, env_config=[{"render_mode": "ansi"}] * 2) as pool:
        pool.reset()
        assert len(pool.render()) == 2


@pytest.mark.parametrize("id", ["Catch-v0", "NChain-v0", "Probe-v0", "Template-v0"])
def test_native_envs_that_nothing_draws(make: Any, id: str) -> None:
    for backend, words in (("thread", "is native, and cannot be drawn"), ("inline", "is native only")):
        with pytest.raises(UnsupportedError, match=f"{id} {words}"):
            stepmill.make(id, backend=backend, render_mode="rgb_array")
    pool = make(id)
    assert (pool.render_mode, pool.metadata) == (None, {"autoreset_mode": AutoresetMode.NEXT_STEP})
    pool.reset()
    with pytest.raises(UnsupportedError, match=f"render: {id} is native, and stepmill cannot draw it"):
        pool.render()


@pytest.mark.parametrize("backend", BACKENDS)
def test_without_a_mode_there_are_no_pictures(make: Any, backend: str) -> None:
    pool = make("CartPole-v1", backend=backend)
    pool.reset()
    with pytest.raises(
        UnsupportedError, match=r"without a render_mode: make\('CartPole-v1', render_mode='rgb_array'\)"
    ):
        pool.render()


@pytest.mark.parametrize("backend", BACKENDS)
def test_before_the_first_reset_there_is_nothing_to_draw(make: Any, backend: str) -> None:
    pool = make("Blackjack-v1", num_envs=3, backend=backend, render_mode="rgb_array")
    with pytest.raises(NeedsResetError, match=r"render: env 0 has no state.*reset\(\)"):
        pool.render()
    pool.reset([1])
    assert len(pool.render([1])) == 1
    with pytest.raises(gymnasium.error.ResetNeeded, match="env 2"):
        pool.render([1, 2])
    pool.step(np.zeros(3, np.int64))  # the first action of an env resets it
    assert len(pool.render()) == 3


@pytest.mark.parametrize("backend", ["thread", "inline"])
def test_an_env_in_flight_is_not_drawn(make: Any, backend: str) -> None:
    pool = make("Pendulum-v1", num_envs=3, batch_size=1, backend=backend, render_mode="rgb_array")
    pool.reset()
    before = pool.render()
    pool.send(np.ones((1, 1), np.float32), [1])
    with pytest.raises(InFlightError, match=r"env 1 is in flight, and its state is in use: recv\(\)"):
        pool.render()
    assert np.array_equal(pool.render([0, 2]), [before[0], before[2]])
    pool.recv()
    assert not np.array_equal(pool.render([1])[0], before[1])


def test_in_a_worker_process_a_picture_waits_for_the_step(make: Any) -> None:
    waits, sees = (
        make("CartPole-v1", num_envs=2, backend="process", num_workers=1, render_mode="rgb_array") for _ in range(2)
    )
    for pool in (waits, sees):
        pool.reset()
        pool.send([1, 0])
    sees.recv()
    assert np.array_equal(waits.render(), sees.render())
    waits.recv()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("ids", [[3], [-1], [0.5], 1])
def test_wrong_ids(make: Any, backend: str, ids: Any) -> None:
    pool = make("CartPole-v1", num_envs=3, backend=backend, render_mode="rgb_array")
    pool.reset()
    with pytest.raises(stepmill.StepmillError, match="env_id"):
        pool.render(ids)
    assert pool.render([]) == ()


# ---- failures ------------------------------------------------------------------------------------


@pytest.fixture
def replace_pygame(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Puts a pygame of these lines before the installed one, for this process and new workers."""

    def put(lines: str) -> None:
        (tmp_path / "pygame.py").write_text(lines)
        for name in [name for name in sys.modules if name.partition(".")[0] == "pygame"]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.syspath_prepend(tmp_path)

    return put


@pytest.mark.parametrize("backend", BACKENDS)
def test_without_pygame_the_error_names_what_to_install(make: Any, backend: str, replace_pygame: Any) -> None:
    replace_pygame("raise ModuleNotFoundError('there is none', name='pygame')")
    pool = make("CartPole-v1", backend=backend, render_mode="rgb_array")
    pool.reset()
    with pytest.raises(MissingPackageError, match=r"render_mode='rgb_array' of CartPole-v1 needs pygame.*\[render\]"):
        pool.render()
    pool.step([0])
    texts = make("Taxi-v4", backend=backend, render_mode="ansi")
    texts.reset()
    assert texts.render()[0].startswith("+---")


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_drawer_that_fails_is_an_env_error(make: Any, backend: str, replace_pygame: Any) -> None:
    replace_pygame("raise SystemExit('a broken install')")
    pool = make("CartPole-v1", num_envs=2, backend=backend, render_mode="rgb_array")
    pool.reset()
    with pytest.raises(EnvError, match=r"env 1 failed in render .*SystemExit: a broken install") as caught:
        pool.render([1])
    assert (caught.value.env_id, caught.value.phase) == (1, "render")
    assert isinstance(caught.value.__cause__, SystemExit)
    pool.step([0, 1])


HEADLESS = """
import os

os.environ["SDL_VIDEODRIVER"] = "nonsense"

import stepmill

with stepmill.make("CartPole-v1", backend={backend!r}, render_mode="rgb_array") as pool:
    pool.reset()
    try:
        pool.render()
    except stepmill.errors.ResourceError as error:
        print(error)
    pool.step([0])
"""


@pytest.mark.parametrize("backend", ["thread", "process"])
def test_without_a_video_device_the_error_says_what_to_do(backend: str) -> None:
    finished = run(HEADLESS.format(backend=backend))
    assert finished.code == 0, finished
    assert "pygame found no video device" in finished.out
    assert "SDL_VIDEODRIVER" in finished.out


def test_an_env_whose_worker_died_is_drawn_again_after_its_next_reset(make: Any) -> None:
    pool = make("Taxi-v4", num_envs=2, backend="process", num_workers=1, render_mode="ansi", on_error="restart")
    pool.reset()
    assert len(pool.render()) == 2
    os.kill(pool.stats()["workers"][0]["pid"], signal.SIGKILL)
    with pytest.raises(WorkerDiedError, match="env 0 failed in render"):
        pool.render()
    assert pool.step([0, 0])[4]["abnormal"].all()
    with pytest.raises(NeedsResetError):
        pool.render()
    pool.step([0, 0])
    assert len(pool.render()) == 2


# ---- the end -------------------------------------------------------------------------------------


def test_a_closed_pool_leaves_nothing_of_pygame_behind(make: Any) -> None:
    pygame = pytest.importorskip("pygame")
    pygame.quit()
    threads = set(os.listdir("/proc/self/task"))
    pools = [make("MountainCar-v0", num_envs=2, backend="inline", render_mode="rgb_array") for _ in range(2)]
    for pool in pools:
        pool.reset()
        pool.render()
    assert pygame.display.get_init()
    pools[0].close()
    assert len(pools[1].render()) == 2
    pools[1].close()
    assert not pygame.display.get_init()
    assert set(os.listdir("/proc/self/task")) <= threads
    with pytest.raises(ClosedError):
        pools[0].render()


def test_a_window_of_somebody_else_stays_open(make: Any) -> None:
    pygame = pytest.importorskip("pygame")
    pygame.quit()
    pool = make("MountainCar-v0", render_mode="rgb_array")
    pool.reset()
    pool.render()
    window = pygame.display.set_mode((8, 8))
    pool.close()
    assert pygame.display.get_surface() is window
    pygame.quit()
