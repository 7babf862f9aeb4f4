"""Changed models: ``set_model``, ``get_model`` and ``model`` in configurations mean assignment to Gymnasium's model."""

from __future__ import annotations

import copy
import gc
import os
import signal
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np
import pytest

import stepmill
from stepmill import errors
from stepmill.hosts.inline_host import InlineHost
from stepmill.hosts.native_host import NativeHost

mujoco = pytest.importorskip("mujoco")
pytestmark = pytest.mark.filterwarnings("ignore:.*is out of date:DeprecationWarning")

ENVS, LIMIT, SEED = 3, 4, 7
PLACES = {  # where the envs live: the prefix of the id, and the backend
    "native-thread": ("", "thread"),
    "native-inline": ("", "inline"),
    "native-process": ("", "process"),
    "python-inline": ("gymnasium:", "inline"),
    "python-process": ("gymnasium:", "process"),
}
MODES = ("next_step", "same_step", "disabled")
Row = tuple[np.ndarray, float, bool, bool]


# ---- the oracle: assignment to Gymnasium's own env -------------------------------------------------


class Twin:
    """Gymnasium's env, with a model that changes right before a reset."""

    def __init__(self, id: str, mode: str, seed: int, **config: Any) -> None:
        self.env = gymnasium.make(id, max_episode_steps=LIMIT, **config)
        self.mode = mode
        self.seed: int | None = seed
        self.waiting: list[tuple[Mapping[str, Any], bool]] = []
        self.is_over = False

    @property
    def model(self) -> Any:
        return self.env.unwrapped.model  # type: ignore[attr-defined]

    def set(self, fields: Mapping[str, Any], set_const: bool = False) -> None:
        self.waiting.append((fields, set_const))

    def reset(self) -> Row:
        for fields, set_const in self.waiting:
            for name, value in fields.items():
                *path, last = name.split(".")
                owner = self.model
                for one in path:
                    owner = getattr(owner, one)
                if np.ndim(value):
                    getattr(owner, last)[:] = value
                else:
                    setattr(owner, last, value)
            if set_const:
                mujoco.mj_setConst(self.model, self.env.unwrapped.data)  # type: ignore[attr-defined]
        self.waiting.clear()
        self.is_over = False
        observation, _ = self.env.reset(seed=self.seed)
        self.seed = None
        return observation, 0.0, False, False

    def step(self, action: np.ndarray) -> Row:
        if self.is_over:
            return self.reset()
        observation, reward, terminated, truncated, _ = self.env.step(action)
        self.is_over = terminated or truncated
        if self.is_over and self.mode == "same_step":
            observation = self.reset()[0]
        return observation, float(reward), terminated, truncated


class Pair:
    """A pool, and the twins that it has to equal."""

    def __init__(self, place: str, id: str, mode: str, config: Any = None, models: Any = None, **more: Any) -> None:
        prefix, backend = PLACES[place]
        arguments: dict[str, Any] = {"num_envs": ENVS, "backend": backend, "autoreset": mode, "seed": SEED, **more}
        if backend == "process":
            arguments["num_workers"] = 2
        self.pool = stepmill.make(
            prefix + id, max_episode_steps=LIMIT, env_config=models, **(config or {}), **arguments
        )
        assert self.pool.is_native == (not prefix)
        self.twins = [Twin(id, mode, SEED + i) for i in range(ENVS)]
        for i, twin in enumerate(self.twins):
            given = {**(config or {}), **(models[i] if models else {})}
            twin.set(given.get("model", {}), given.get("set_const", False))
        self.rng = np.random.default_rng(0)

    def set(self, env_ids: Any, fields: Mapping[str, Any], set_const: bool = False) -> None:
        self.pool.set_model(env_ids, fields, set_const=set_const)
        for i in range(ENVS) if env_ids is None else env_ids:
            self.twins[i].set(fields, set_const)

    def reset(self) -> None:
        observations, _ = self.pool.reset()
        for i, twin in enumerate(self.twins):
            np.testing.assert_array_equal(observations[i], twin.reset()[0])

    def play(self, steps: int) -> None:
        for _ in range(steps):
            actions = self.rng.uniform(-1, 1, self.pool.action_space.shape).astype(np.float32)
            over = [i for i, twin in enumerate(self.twins) if twin.is_over]
            if self.twins[0].mode == "disabled" and over:
                observations, _ = self.pool.reset(env_id=over)
                for i, observation in zip(over, observations, strict=True):
                    np.testing.assert_array_equal(observation, self.twins[i].reset()[0])
            observations, *rest, _ = self.pool.step(actions)
            for i, twin in enumerate(self.twins):
                expected = twin.step(actions[i])
                np.testing.assert_array_equal(observations[i], expected[0], f"env {i}")
                assert tuple(one[i] for one in rest) == expected[1:], f"env {i}"


@pytest.fixture
def pair() -> Iterator[Any]:
    pairs: list[Pair] = []

    def build(*args: Any, **arguments: Any) -> Pair:
        pairs.append(Pair(*args, **arguments))
        return pairs[-1]

    yield build
    for one in pairs:
        one.pool.close()
        for twin in one.twins:
            twin.env.close()


def masses(id: str, factor: float) -> np.ndarray:
    return np.asarray(mujoco_model(id).body_mass * factor)


_models: dict[str, Any] = {}


def mujoco_model(id: str) -> Any:
    if id not in _models:
        _models[id] = copy.copy(Twin(id, "disabled", 0).model)
    return _models[id]


# ---- equality --------------------------------------------------------------------------------------


# Resets are the engine's in every mode, so one mode per kind of env in worker processes, which take longer to start.
@pytest.mark.parametrize(
    ("place", "mode"),
    [
        *[(place, mode) for place in PLACES if "process" not in place for mode in MODES],
        ("native-process", "same_step"),
        ("python-process", "next_step"),
    ],
)
def test_a_changed_model_plays_the_episodes_of_the_oracle(pair: Any, place: str, mode: str) -> None:
    both = pair(place, "Ant-v5", mode, config={"model": {"opt.gravity": [0.0, 0.5, -8.0]}})
    both.set([1], {"body_mass": masses("Ant-v5", 2.0)})  # before the first reset
    both.reset()
    both.play(2)
    # In the middle of an episode: it goes on as it was.
    both.set([0, 2], {"geom_friction": mujoco_model("Ant-v5").geom_friction * 0.3, "opt.timestep": 0.007})
    both.play(1)
    both.set([2], {"actuator_gear": mujoco_model("Ant-v5").actuator_gear * 1.5})  # adds to what waits
    both.set([1], {"body_mass": masses("Ant-v5", 0.5)}, set_const=True)
    both.play(9)


@pytest.mark.parametrize(("id", "place", "mode"), [
    ("HalfCheetah-v5", "native-thread", "next_step"),
    ("HalfCheetah-v4", "native-inline", "same_step"),
    ("Ant-v4", "native-thread", "disabled"),
    ("HalfCheetah-v5", "python-inline", "same_step"),
])  # fmt: skip
def test_other_fields(pair: Any, id: str, place: str, mode: str) -> None:
    both = pair(place, id, mode)
    both.reset()
    model = mujoco_model(id)
    both.set(None, {"qpos0": model.qpos0 + 0.01, "dof_damping": model.dof_damping * 3, "opt.iterations": 3})
    both.play(6)
    both.set([0], {"opt.integrator": 0, "geom_conaffinity": np.zeros(model.ngeom)}, set_const=True)
    both.set([0], {"body_subtreemass": model.body_subtreemass})  # after mj_setConst, which would overwrite it
    both.set([1], {"jnt_range": model.jnt_range * 0.5, "jnt_limited": np.ones(model.njnt)})
    both.play(9)


TASKS = [
    "Hopper", "Humanoid", "HumanoidStandup", "InvertedDoublePendulum", "InvertedPendulum", "Pusher", "Reacher",
    "Swimmer", "Walker2d",
]  # fmt: skip


@pytest.mark.parametrize("task", TASKS)
def test_other_envs(pair: Any, task: str) -> None:
    """What a task reads from its model is that of the model in use."""
    both = pair("native-inline", f"{task}-v5", "next_step")
    both.reset()
    fields = {"body_mass": masses(f"{task}-v5", 1.5), "opt.timestep": 0.004, "opt.gravity": [0.0, 0.3, -5.0]}
    both.set([0, 1], fields)
    both.play(4)
    both.set([1], {"body_mass": masses(f"{task}-v5", 0.9)}, set_const=True)
    both.play(8)


@pytest.mark.parametrize("place", PLACES)
def test_every_env_may_have_its_own_model(pair: Any, place: str) -> None:
    models = [{}, {"model": {"body_mass": masses("Ant-v5", 2.0)}, "set_const": True}, {"model": {"opt.timestep": 0.02}}]
    both = pair(place, "Ant-v5", "next_step", models=models)
    both.reset()
    both.play(7)
    expected = np.stack([twin.model.body_mass for twin in both.twins])
    np.testing.assert_array_equal(both.pool.get_model(None, ["body_mass"])["body_mass"], expected)
    assert both.pool.get_model([2, 0], ["opt.timestep"])["opt.timestep"].tolist() == [0.02, 0.01]


@pytest.mark.parametrize("place", PLACES)
def test_rows_are_for_single_envs_and_show_before_the_reset(pair: Any, place: str) -> None:
    both = pair(place, "HalfCheetah-v5", "next_step")
    both.reset()
    rows = np.stack([masses("HalfCheetah-v5", factor) for factor in (1.5, 0.7)])
    both.pool.set_model([2, 0], {"body_mass": rows, "opt.density": [0.0, 1.2]}, set_const=True)
    for i, mass, density in ((2, rows[0], 0.0), (0, rows[1], 1.2)):
        both.twins[i].set({"body_mass": mass, "opt.density": density}, True)
    shown = both.pool.get_model(None, ["body_mass", "opt.density", "dof_M0", "nq", "geom_bodyid"])
    np.testing.assert_array_equal(shown["body_mass"][[2, 0]], rows)
    assert shown["opt.density"].tolist() == [1.2, 0.0, 0.0]
    assert shown["nq"].tolist() == [9, 9, 9]
    both.play(6)
    for i, twin in enumerate(both.twins):  # also what mj_setConst derives
        np.testing.assert_array_equal(shown["dof_M0"][i], twin.model.dof_M0)
    after = both.pool.get_model(None, list(shown))
    for name in shown:
        np.testing.assert_array_equal(after[name], shown[name])


# ---- what is kept ----------------------------------------------------------------------------------


def pid_of(pool: Any, worker: int) -> int:
    return int(pool.stats()["workers"][worker]["pid"])


def step_until_abnormal(pool: Any) -> None:
    """Until the death of its worker has been reported for every env."""
    reported = np.zeros(ENVS, bool)
    while not reported.all():
        info = pool.step(np.zeros(pool.action_space.shape, np.float32))[4]
        reported |= info.get("abnormal", np.zeros(ENVS, bool))


@pytest.mark.parametrize("place", ["native-process", "python-process"])
def test_changes_survive_a_killed_worker(pair: Any, place: str, deadline: None) -> None:
    both = pair(place, "HalfCheetah-v5", "next_step", config={"model": {"opt.density": 2.0}}, on_error="restart")
    both.reset()
    both.set(None, {"body_mass": masses("HalfCheetah-v5", 2.0)}, set_const=True)
    both.play(LIMIT + 1)
    both.set(None, {"opt.gravity": [0.0, 0.0, -5.0]})  # waits for the next reset, which a new worker does
    for worker in (0, 1):
        os.kill(pid_of(both.pool, worker), signal.SIGKILL)
    step_until_abnormal(both.pool)
    shown = both.pool.get_model(None, ["body_mass", "opt.gravity", "opt.density"])
    assert (shown["body_mass"] == masses("HalfCheetah-v5", 2.0)).all()
    assert (shown["opt.gravity"] == [0, 0, -5]).all()
    assert (shown["opt.density"] == 2.0).all()
    for i, twin in enumerate(both.twins):
        twin.seed = 100 + i
    observations, _ = both.pool.reset(seed=100)
    for i, twin in enumerate(both.twins):
        np.testing.assert_array_equal(observations[i], twin.reset()[0])
    both.play(6)


def test_a_dead_worker_is_an_error_that_changes_nothing(pair: Any, deadline: None) -> None:
    """It is like calls of methods: until the env's next row has reported the death."""
    both = pair("native-process", "HalfCheetah-v5", "next_step", on_error="restart")
    both.reset()
    both.set(None, {"opt.density": 1.0})
    os.kill(pid_of(both.pool, 1), signal.SIGKILL)  # of envs 1 and 2
    with pytest.raises(errors.WorkerDiedError):
        both.pool.set_model(None, {"opt.density": 2.0})
    assert both.pool.get_model([0], ["opt.density"])["opt.density"].tolist() == [1.0]
    observations, _ = both.pool.reset(seed=100)
    for i, twin in enumerate(both.twins):
        twin.seed = 100 + i
        np.testing.assert_array_equal(observations[i], twin.reset()[0])
    both.set(None, {"opt.density": 3.0})
    both.play(6)


def test_models_are_freed() -> None:
    """An env that is randomised in every episode holds a few models, not all it ever had."""
    with stepmill.make("HalfCheetah-v5", num_envs=2, backend="inline", max_episode_steps=2) as pool:
        pool.reset()
        simulator = pool._host.simulator(0)
        seen = []
        for i in range(200):
            pool.set_model([0], {"opt.density": float(i)})
            seen.append(weakref.ref(simulator._newest.model))
            if i % 3 == 0:
                assert simulator.model is not simulator._newest.model  # the episode goes on with the one before
                pool.reset()
                assert simulator.model is simulator._newest.model
        gc.collect()
        assert len({id(ref()) for ref in seen if ref() is not None}) <= 2
        del simulator
        pool.close()
        gc.collect()
        assert all(ref() is None for ref in seen)


def test_envs_share_a_model_until_it_is_changed() -> None:
    with stepmill.make("HalfCheetah-v5", num_envs=3, backend="thread", env_config=[{}, {}, {}]) as pool:
        pool.reset()
        models = [pool._host.simulator(i).model for i in range(3)]
        assert models[0] is models[1] is models[2]
        pool.set_model([1], {"opt.density": 1.0})
        pool.reset()
        assert [pool._host.simulator(i).model is models[0] for i in range(3)] == [True, False, True]
        assert models[0].opt.density == 0.0


@pytest.mark.parametrize(
    ("id", "backend", "host", "method"),
    [
        ("HalfCheetah-v5", "thread", NativeHost, "connect"),
        ("gymnasium:HalfCheetah-v5", "inline", InlineHost, "before_reset"),
    ],
)
def test_a_signal_does_not_interrupt_a_change(
    make: Any, monkeypatch: Any, id: str, backend: str, host: type, method: str
) -> None:
    """All envs use the model that ``get_model`` shows, also if a signal handler raises in the middle of the call."""
    pool = make(id, num_envs=3, backend=backend)
    pool.reset()
    function, told = getattr(host, method), []

    def interrupted(self: Any, env_id: int, *arguments: Any) -> None:
        if not told:
            os.kill(os.getpid(), signal.SIGINT)
        function(self, env_id, *arguments)
        told.append(env_id)

    monkeypatch.setattr(host, method, interrupted)
    with pytest.raises(KeyboardInterrupt):
        pool.set_model(None, {"opt.timestep": 0.02})
    assert told == [0, 1, 2]
    before = pool.reset()[1]["x_position"]
    info = pool.step(np.ones((3, 6), np.float32))[4]
    assert (pool.get_model(None, ["opt.timestep"])["opt.timestep"] == 0.02).all()
    np.testing.assert_allclose((info["x_position"] - before) / info["x_velocity"], 5 * 0.02)


@pytest.mark.parametrize("place", PLACES)
def test_every_number_of_a_model_can_be_read(make: Any, place: str) -> None:
    prefix, backend = PLACES[place]
    pool = make(f"{prefix}HalfCheetah-v5", num_envs=2, backend=backend)
    model = mujoco_model("HalfCheetah-v5")
    values = {name: getattr(model, name) for name in dir(model) if not name.startswith("_")}
    numbers = {name: value for name, value in values.items() if isinstance(value, bool | int | float)}
    assert {name: rows[1] for name, rows in pool.get_model(None, list(numbers)).items()} == numbers


# ---- bad input -------------------------------------------------------------------------------------

BAD = {
    "unknown": ({"body_mas": [1.0]}, errors.UnknownAttributeError, "env 0: .*did you mean 'body_mass'"),
    "unknown in struct": ({"opt.gravitation": 1.0}, errors.UnknownAttributeError, "'opt.gravity'"),
    "private": ({"_address": 1}, errors.UnknownAttributeError, "no field"),
    "method": ({"body": 1}, errors.UnknownAttributeError, "no field"),
    "struct": ({"opt": 1}, errors.UnknownAttributeError, "no field"),
    "inside of an array": ({"opt.gravity.size": 3}, errors.UnknownAttributeError, "no field"),
    "text": ({"names": b"a"}, errors.InputError, "numbers"),
    "size": ({"nq": 3}, errors.InputError, "size"),
    "index": ({"geom_bodyid": np.zeros(9)}, errors.InputError, "put together"),
    "short": ({"body_mass": [1.0, 2.0]}, errors.InputError, r"env 0.*\(8,\), or \(3, 8\) with a row per env"),
    "scalar": ({"opt.gravity": 9.81}, errors.InputError, r"\(3,\)"),
    "NaN": ({"opt.gravity": [0, 0, np.nan]}, errors.InputError, "finite"),
    "infinite": ({"opt.timestep": np.inf}, errors.InputError, "finite"),
    "no number": ({"body_mass": "heavy"}, errors.InputError, "expected numbers, got 'heavy'"),
    "fraction": ({"opt.iterations": 1.5}, errors.InputError, "int32"),
    "negative": ({"opt.iterations": -1}, errors.InputError, ">= 0"),
    "no such choice": ({"opt.cone": 2}, errors.InputError, r"in \[0, 1\]"),
    "second of two": ({"opt.density": 3.0, "body_mass": [1.0]}, errors.InputError, "body_mass"),
    "no dict": ([1.0], errors.InputError, "a dict of values"),
}  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_bad_fields_change_nothing(pair: Any, place: str) -> None:
    both = pair(place, "HalfCheetah-v5", "next_step")
    both.reset()
    for fields, error, message in BAD.values():
        with pytest.raises(error, match=message):
            both.pool.set_model(None, fields)
    with pytest.raises(errors.EnvIdError, match="each env once"):
        both.pool.set_model([0, 0], {"opt.density": 1.0})
    with pytest.raises(errors.EnvIdError, match="out of range"):
        both.pool.set_model([3], {"opt.density": 1.0})
    with pytest.raises(errors.ConfigError, match="set_const"):
        both.pool.set_model(None, {"opt.density": 1.0}, set_const=1)
    with pytest.raises(errors.UnknownAttributeError, match=r"env 1: .*did you mean"):
        both.pool.get_model([1], ["body_mas"])
    for names in ("body_mass", [1], None):
        with pytest.raises(errors.InputError, match="list of names"):
            both.pool.get_model(None, names)
    with pytest.raises(errors.InputError, match="at least one env"):
        both.pool.get_model([], ["body_mass"])
    both.pool.set_model([], {"opt.density": 1.0})
    both.pool.send(np.zeros(both.pool.action_space.shape, np.float32))
    with pytest.raises(errors.InFlightError, match="env 1 is in flight"):
        both.pool.set_model([1], {"opt.density": 1.0})
    assert both.pool.get_model([1], ["opt.density"])["opt.density"] == [0.0]
    both.pool.recv()
    for twin in both.twins:
        twin.step(np.zeros(6, np.float32))
    both.play(6)


@pytest.mark.parametrize("place", PLACES)
def test_what_mj_set_const_refuses_changes_nothing(make: Any, place: str) -> None:
    prefix, backend = PLACES[place]
    model = mujoco_model("Reacher-v5")
    refused = {"body_ipos": model.body_ipos + 0.01}  # not with bodies that are compiled as simple ones
    try:
        changed = copy.copy(model)
        changed.body_ipos[:] = refused["body_ipos"]
        mujoco.mj_setConst(changed, mujoco.MjData(changed))
    except mujoco.FatalError:
        pass
    else:
        pytest.skip("this version of MuJoCo refuses nothing")
    with pytest.raises(errors.ConfigError, match=r"model: env 0: set_const: .*body_ipos.*simple"):
        make(f"{prefix}Reacher-v5", backend=backend, model=refused, set_const=True)
    pool = make(f"{prefix}Reacher-v5", backend=backend, num_envs=2)
    pool.reset()
    with pytest.raises(errors.InputError, match=r"env 0: set_const: .*body_ipos.*simple"):
        pool.set_model(None, refused, set_const=True)
    assert (pool.get_model([0], ["body_ipos"])["body_ipos"][0] == model.body_ipos).all()
    pool.reset()


@pytest.mark.parametrize("set_const", [True, False])
@pytest.mark.parametrize("place", PLACES)
def test_flags_that_mujoco_refuses_are_an_error_at_once(make: Any, place: str, set_const: bool) -> None:
    """It looks at them only when it simulates."""
    prefix, backend = PLACES[place]
    refused = {"opt.enableflags": 2**31 - 1}
    model = mujoco_model("HalfCheetah-v5")
    model.opt.enableflags = refused["opt.enableflags"]
    try:
        mujoco.mj_forward(model, mujoco.MjData(model))
    except mujoco.FatalError:
        pass
    else:
        pytest.skip("this version of MuJoCo refuses no flags")
    with pytest.raises(errors.ConfigError, match=r"model: env 0: MuJoCo refuses the values of opt\.enableflags: .*ipc"):
        make(f"{prefix}HalfCheetah-v5", backend=backend, model=refused, set_const=set_const)
    pool = make(f"{prefix}HalfCheetah-v5", backend=backend, num_envs=2)
    pool.reset()
    with pytest.raises(errors.InputError, match=r"env 0: MuJoCo refuses the values of opt\.enableflags: .*ipc"):
        pool.set_model(None, refused, set_const=set_const)
    assert pool.get_model(None, ["opt.enableflags"])["opt.enableflags"].tolist() == [0, 0]
    pool.reset()
    pool.set_model(None, {"opt.enableflags": 2})  # others are taken
    pool.reset()


@pytest.mark.parametrize("place", PLACES)
def test_bad_models_in_configurations(place: str) -> None:
    prefix, backend = PLACES[place]
    for model, error, message in (
        ({"body_mas": 1.0}, errors.UnknownConfigError, "model: env 0: .*did you mean 'body_mass'"),
        ({"body_mass": [1.0]}, errors.ConfigError, r"model: env 0: .* of shape \(8,\), got"),
        ({"body_mass": "heavy"}, errors.ConfigError, "model: .*expected numbers"),
        (3, errors.ConfigError, "model: expected a dict"),
    ):  # fmt: skip
        with pytest.raises(error, match=message):
            stepmill.make(f"{prefix}HalfCheetah-v5", backend=backend, model=model)
    with pytest.raises(errors.ConfigError, match="set_const"):
        stepmill.make(f"{prefix}HalfCheetah-v5", backend=backend, model={}, set_const=2)


@pytest.mark.parametrize("place", PLACES)
def test_envs_without_a_model_say_so(make: Any, place: str) -> None:
    prefix, backend = PLACES[place]
    with pytest.raises(errors.UnknownConfigError, match="model"):
        make(f"{prefix}CartPole-v1", backend=backend, model={"body_mass": 1.0})
    pool = make(f"{prefix}CartPole-v1", backend=backend)
    with pytest.raises(errors.UnsupportedError, match=r"env 0: .*MuJoCo model"):
        pool.set_model(None, {"body_mass": 1.0})
    with pytest.raises(errors.UnsupportedError, match=r"env 0: .*MuJoCo model"):
        pool.get_model(None, ["body_mass"])


# ---- around it -------------------------------------------------------------------------------------


class OwnModel(gymnasium.Env[Any, Any]):
    """An env whose ``model`` is something else, and its own argument."""

    observation_space = gymnasium.spaces.Box(-1, 1, ())
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, model: Any = "small") -> None:
        self.model = model

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros((), np.float32), {}


class AnyArgument(OwnModel):
    def __init__(self, **config: Any) -> None:
        super().__init__(config["model"])


def test_an_argument_of_the_env_is_left_to_it(make: Any) -> None:
    for factory in (OwnModel, AnyArgument):
        pool = make(factory, backend="inline", model={"layers": 2})
        assert pool.get_attr("model") == ({"layers": 2},)
        assert pool.config["model"] == {"layers": 2}
        with pytest.raises(errors.UnsupportedError, match="got a dict in"):
            pool.set_model(None, {"layers": 1})


def test_verify_changes_both() -> None:
    fields = {"body_mass": masses("Ant-v5", 1.3), "opt.gravity": [0.0, 0.0, -7.0]}
    assert stepmill.verify("Ant-v5", steps=60, num_envs=2, model=fields, set_const=True).equal


def test_the_views_and_the_spec_have_it(make: Any) -> None:
    for env_type in ("gym", "dm"):
        pool = make("HalfCheetah-v5", env_type, num_envs=2, model={"opt.density": 1.0})
        pool.set_model([1], {"opt.density": 2.0})
        assert pool.get_model(None, ["opt.density"])["opt.density"].tolist() == [1.0, 2.0]
    spec = stepmill.make_spec("HalfCheetah-v5", model={"opt.density": 1.0})
    assert spec.config["model"] == {"opt.density": 1.0}
    with pytest.raises(errors.ConfigError, match="model"):
        stepmill.make_spec("HalfCheetah-v5", model={"opt.density": [1.0]})
