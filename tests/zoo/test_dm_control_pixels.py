"""Pictures of dm_control's tasks, and what is said where nothing can draw.

dm_control chooses what draws when it is imported, so these envs live in worker processes, which import it anew.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import stepmill
from stepmill.errors import EnvError, UnsupportedError
from support.dm_suite import actions, check_equal, oracle, row
from support.gl import gl_backend


@pytest.fixture
def gl(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = gl_backend()
    if backend is None:
        pytest.skip("neither EGL nor OSMesa draws here")
    monkeypatch.setenv("MUJOCO_GL", backend)


class Reference:
    """What dm_control draws, for a worker to do."""

    def __init__(self, name: str, pixels_only: bool) -> None:
        from dm_control.suite.wrappers import pixels

        self._env = pixels.Wrapper(oracle(name, 42), pixels_only, {"height": 40, "width": 50, "camera_id": 0})

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)


def reference(name: str, pixels_only: bool = True) -> Any:
    from stepmill.envs import DmAsGymnasium

    return DmAsGymnasium(Reference(name, pixels_only))


@pytest.mark.usefixtures("gl")
def test_pixels_are_those_of_the_suite_with_channels_first(make: Any) -> None:
    size = {"height": 40, "width": 50}
    ours = make("reacher-easy", backend="process", from_pixels=True, pixels_only=False, **size)
    theirs = make(reference, name="reacher-easy", pixels_only=False, backend="process")
    assert ours.single_observation_space["pixels"] == spaces.Box(0, 255, (3, 40, 50), np.uint8)
    pictures = []
    for seed in (42, None, 42):
        seen, wanted = ours.reset(seed=seed)[0], theirs.reset(seed=seed)[0]
        for _ in range(2):
            assert seen.keys() == wanted.keys() == {"pixels", "position", "to_target", "velocity"}
            pictures.append(seen["pixels"][0])
            assert np.array_equal(np.moveaxis(wanted.pop("pixels"), -1, 1), seen.pop("pixels"))
            assert all(np.array_equal(seen[key], wanted[key]) for key in wanted)
            seen, wanted = ours.step([[0.5, -0.5]])[0], theirs.step([[0.5, -0.5]])[0]
    assert np.array_equal(pictures[0], pictures[4])
    assert not np.array_equal(pictures[0], pictures[2])
    assert np.array_equal(ours.render()[0], np.moveaxis(seen["pixels"][0], 0, -1))


@pytest.mark.usefixtures("gl")
def test_flat_pixels_are_one_array(make: Any) -> None:
    pool = make("cheetah-run", backend="process", from_pixels=True, flat_observation=True)
    assert pool.single_observation_space == spaces.Box(0, 255, (3, 84, 84), np.uint8)
    obs, _ = pool.reset()
    assert (obs.shape, obs.dtype) == ((1, 3, 84, 84), np.uint8)
    assert obs.any()
    pool = make("cheetah-run", backend="process", from_pixels=True, flat_observation=True, pixels_only=False)
    shapes = {key: space.shape for key, space in pool.single_observation_space.items()}
    assert shapes == {"observations": (17,), "pixels": (3, 84, 84)}


@pytest.mark.usefixtures("gl")
def test_a_task_that_needs_opengl_for_its_reset(make: Any) -> None:
    def escape() -> Any:
        from stepmill.envs import DmAsGymnasium

        return DmAsGymnasium(oracle("quadruped-escape", 42))

    ours = make("quadruped-escape", backend="process")
    theirs = make(escape, backend="process")
    for seed in (42, None):
        seen, wanted = ours.reset(seed=seed)[0], theirs.reset(seed=seed)[0]
        assert all(np.array_equal(seen[key], wanted[key]) for key in wanted)
        for _ in range(5):
            seen, *rest, _ = ours.step(np.ones((1, 12)))
            wanted, *others, _ = theirs.step(np.ones((1, 12)))
            assert all(np.array_equal(seen[key], wanted[key]) for key in wanted)
            assert rest == others


# ---- without anything that draws -------------------------------------------------------------------


@pytest.fixture
def headless(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "MUJOCO_GL"):
        monkeypatch.delenv(name, raising=False)


ADVICE = r"MUJOCO_GL is not set, there is no display, .*EGL is .*OSMESA is .*: set MUJOCO_GL=.* before Python starts"


@pytest.mark.usefixtures("headless")
def test_without_a_display_the_error_says_what_there_is(make: Any) -> None:
    with pytest.raises(EnvError, match=f"cheetah-run cannot draw: .*{ADVICE}"):
        stepmill.make("cheetah-run", backend="process", from_pixels=True)
    pool = make("quadruped-escape", backend="process")
    with pytest.raises(EnvError, match=f"quadruped-escape cannot draw: .*{ADVICE}"):
        pool.reset()
    pool = make("cheetah-run", backend="process")
    obs, _ = pool.reset()
    for _ in range(2):  # MuJoCo would abort the process at the second try
        with pytest.raises(EnvError, match=f"cheetah-run cannot draw: .*{ADVICE}") as caught:
            pool.render()
        assert isinstance(caught.value.__cause__, UnsupportedError)
    expected = oracle("cheetah-run", 42)
    check_equal(expected.reset(), row(obs, 0), 0.0, False, False)
    action = actions(expected, 1)[0]
    obs, *rest, _ = pool.step(action[None])
    check_equal(expected.step(action), row(obs, 0), *(one[0] for one in rest))


@pytest.mark.usefixtures("headless")
def test_a_wrong_choice_of_what_draws_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUJOCO_GL", "crayons")
    with pytest.raises(EnvError, match=r"cannot draw: .*MUJOCO_GL is 'crayons', there is no display.*set MUJOCO_GL="):
        stepmill.make("cheetah-run", backend="process")
