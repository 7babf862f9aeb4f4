"""``set_model``, ``get_model`` and ``model`` for Python envs of all kinds that have a MuJoCo model."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest

from stepmill import errors
from stepmill.hosts.host import Preparation

mujoco = pytest.importorskip("mujoco")

BACKENDS = ["inline", "process"]
DENSITY = {"opt.density": 3.0}


def half_cheetah() -> gymnasium.Env[Any, Any]:
    return gymnasium.make("HalfCheetah-v5")


def own_class() -> type:
    from gymnasium.envs.mujoco.half_cheetah_v5 import HalfCheetahEnv

    class Own(HalfCheetahEnv):  # type: ignore[misc]
        """A class that passes any argument on, as Gymnasium's do."""

        def __init__(self, **config: Any) -> None:
            super().__init__(**config)

    return Own


def density(pool: Any) -> list[float]:
    return [float(one.opt.density) for one in pool.get_attr("model")]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", ["function", "class", "wrapped"])
def test_any_env_with_a_model(make: Any, kind: str, backend: str) -> None:
    factories = {
        "function": half_cheetah,
        "class": own_class(),
        "wrapped": lambda: gymnasium.wrappers.FlattenObservation(half_cheetah()),
    }
    pool = make(factories[kind], num_envs=2, backend=backend, env_config=[{"model": DENSITY}, {}])
    assert pool.config["model"] == DENSITY
    pool.reset()
    pool.set_model([1], {"opt.density": 5.0})
    assert pool.get_model(None, ["opt.density"])["opt.density"].tolist() == [3.0, 5.0]
    if backend == "inline":
        assert density(pool) == [3.0, 0.0]  # not before its next reset
        pool.reset()
        assert density(pool) == [3.0, 5.0]


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_env_that_is_built_again_has_what_was_set(make: Any, backend: str) -> None:
    pool = make("gymnasium:HalfCheetah-v5", num_envs=2, backend=backend, model=DENSITY)
    pool.reset()
    pool.set_model([1], {"opt.viscosity": 0.5})
    pool.reset()
    pool._engine.send_reset(None, None, None, Preparation(renew=True))
    pool.recv()
    shown = pool.get_model(None, ["opt.density", "opt.viscosity"])
    assert shown["opt.density"].tolist() == [3.0, 3.0]
    assert shown["opt.viscosity"].tolist() == [0.0, 0.5]
    if backend == "inline":
        assert density(pool) == [3.0, 3.0]


class Unfinished(gymnasium.Env[Any, Any]):
    """Builds its simulator in the first reset."""

    observation_space = gymnasium.spaces.Box(-1, 1, ())
    action_space = gymnasium.spaces.Discrete(2)
    model = None

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.model = mujoco.MjModel.from_xml_string("<mujoco/>")
        return np.zeros((), np.float32), {}


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_env_that_has_no_model_yet_says_so(make: Any, backend: str) -> None:
    message = r"env 0: expected a MuJoCo model \(mujoco.MjModel\) in env.unwrapped.model, got nothing in Unfinished"
    with pytest.raises(errors.UnknownConfigError, match=message):
        make(Unfinished, backend=backend, model=DENSITY)
    pool = make(Unfinished, backend=backend)
    with pytest.raises(errors.UnsupportedError, match=message):
        pool.set_model(None, DENSITY)
    pool.reset()
    pool.set_model(None, DENSITY)
    with pytest.raises(errors.UnsupportedError, match=r"MuJoCo data \(mujoco.MjData\)"):
        pool.set_model(None, {"opt.density": 4.0}, set_const=True)
    assert pool.get_model(None, ["opt.density"])["opt.density"].tolist() == [3.0]


def test_gymnasium_robotics(make: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("gymnasium_robotics", exc_type=ImportError)
    try:
        twin: Any = gymnasium.make("FetchReach-v4", disable_env_checker=True)
    except (AssertionError, AttributeError):
        pytest.skip("gymnasium-robotics does not fit the installed mujoco: make test-mujoco3")
    fields = {"opt.gravity": [0.0, 0.0, -3.0], "dof_damping": twin.unwrapped.model.dof_damping * 2}
    pool = make("FetchReach-v4", backend="process", seed=3, model=fields)
    twin.unwrapped.model.opt.gravity[:] = fields["opt.gravity"]
    twin.unwrapped.model.dof_damping[:] = fields["dof_damping"]
    assert (pool.reset()[0]["observation"][0] == twin.reset(seed=3)[0]["observation"]).all()
    for action in np.random.default_rng(0).uniform(-1, 1, (10, 4)).astype(np.float32):
        assert (pool.step(action[None])[0]["observation"][0] == twin.step(action)[0]["observation"]).all()
    twin.close()


@pytest.mark.parametrize("backend", BACKENDS)
def test_dm_control(make: Any, backend: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # GLFW misses a display
        suite = pytest.importorskip("dm_control.suite", exc_type=ImportError)
    try:
        twin = suite.load("cheetah", "run", task_kwargs={"random": 3})
    except AttributeError:
        pytest.skip("dm_control does not fit the installed mujoco: make test-mujoco3")
    gravity, damping = [0.0, 0.0, -3.0], twin.physics.model.dof_damping * 2
    pool = make("dm_control/cheetah-run-v0", backend=backend, seed=3, model={"opt.gravity": gravity})
    twin.physics.model.opt.gravity[:] = gravity
    assert (pool.reset()[0]["position"][0] == twin.reset().observation["position"]).all()
    pool.set_model(None, {"dof_damping": damping}, set_const=True)
    actions = np.random.default_rng(0).uniform(-1, 1, (2, 5, 6))
    for episode in actions:
        for action in episode:
            assert (pool.step(action[None])[0]["velocity"][0] == twin.step(action).observation["velocity"]).all()
        twin.physics.model.dof_damping[:] = damping
        mujoco.mj_setConst(twin.physics.model.ptr, twin.physics.data.ptr)
        assert (pool.reset()[0]["position"][0] == twin.reset().observation["position"]).all()
