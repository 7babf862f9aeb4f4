"""``make_spec``, ``list_all_envs``, ``register``, and what ``gymnasium.make_vec`` finds."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import stepmill
from stepmill.errors import ConfigError, EnvError, MissingPackageError, UnknownEnvError, UnsupportedError
from stepmill.registry import records as registry
from stepmill.system.optional import Package, explained_misfit
from support.envs import CountingEnv
from support.probes import zeros


def own_ids() -> list[str]:
    """Without those of optional packages."""
    return [id for id in registry.own_ids() if registry.find(id).needs is None]


# ---- Python twins --------------------------------------------------------------------------------


def test_the_python_twin_of_an_id() -> None:
    """Its own factory; for a native id without one, Gymnasium's env of that name; else an error that says why."""
    for id, twin in [("Moving-v0", "Moving-v0"), ("CartPole-v1", "gymnasium:CartPole-v1")]:
        record, factory = registry.python_twin(registry.find(id), "")
        assert record.id == twin
        assert factory is record.factory
        factory(**record.config).close()
    with pytest.raises(UnsupportedError, match=r"Catch-v0 is native only.* name\. Wrappers need one"):
        registry.python_twin(registry.find("Catch-v0"), "Wrappers need one")


# ---- make_spec, list_all_envs, register ----------------------------------------------------------


@pytest.mark.parametrize("id", ["CartPole-v1", "Pendulum-v1", "Blackjack-v1", "FrozenLake8x8-v1", "Catch-v0"])
def test_make_spec_tells_what_the_pool_has(make: Any, id: str) -> None:
    spec = stepmill.make_spec(id, num_envs=2)
    pool = make(id, num_envs=2)
    assert spec == pool.spec
    assert spec.observation_space == pool.single_observation_space
    assert spec.action_space == pool.single_action_space
    assert spec.config == pool.config
    assert spec.observation_spec() == make(id, "dm").observation_spec()
    assert spec.action_spec() == make(id, "dm").action_spec()


def test_make_spec_knows_the_reward_type_of_each_view() -> None:
    assert stepmill.make_spec("CartPole-v1").reward_space.dtype == np.float64
    assert stepmill.make_spec("CartPole-v1", "gym").reward_space.dtype == np.float32
    assert stepmill.make_spec("CartPole-v1").reward_space.shape == ()


def test_make_spec_builds_no_native_env() -> None:
    config = {"fail_in": "constructor"}
    with pytest.raises(EnvError, match="fail in constructor"):
        stepmill.make("Probe-v0", **config)
    assert stepmill.make_spec("Probe-v0", **config).observation_space.shape == (2,)


def test_make_spec_follows_the_configuration() -> None:
    spec = stepmill.make_spec("Catch-v0", height=4, width=3)
    assert spec.observation_space.shape == (4, 3)
    assert (spec.config["height"], spec.config["width"]) == (4, 3)
    assert stepmill.make_spec("CartPole-v1", max_episode_steps=7).max_episode_steps == 7


def test_make_spec_of_a_python_env_builds_one_and_closes_it() -> None:
    built: list[CountingEnv] = []

    def factory() -> CountingEnv:
        built.append(CountingEnv())
        return built[-1]

    spec = stepmill.make_spec(factory, num_envs=3)
    assert spec.observation_space == built[0].observation_space
    assert [env.closed for env in built] == [True]


def test_list_all_envs_holds_our_ids_and_each_can_be_made(make: Any) -> None:
    ids = stepmill.list_all_envs()
    assert ids == sorted(ids)
    assert {
        "Acrobot-v1", "Blackjack-v1", "CartPole-v0", "CartPole-v1", "Catch-v0", "CliffWalking-v1",
        "CliffWalkingSlippery-v1", "FrozenLake-v1", "FrozenLake8x8-v1", "MountainCar-v0",
        "MountainCarContinuous-v0", "NChain-v0", "Pendulum-v1", "Taxi-v3", "Taxi-v4",
    } <= set(ids)  # fmt: skip
    for id in own_ids():
        pool = make(id, num_envs=2)
        assert pool.is_native
        obs, _ = pool.reset()
        assert obs in pool.observation_space or id == "TemplatePlayers-v0", "not all of its players are there"
        obs, *_ = pool.step(pool.action_space.sample())
        assert obs in pool.observation_space or id == "TemplatePlayers-v0"


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registry to write into."""
    monkeypatch.setattr(registry, "_records", dict(registry._records))


@pytest.mark.usefixtures("own_registry")
def test_register_a_factory(make: Any) -> None:
    stepmill.register("Counting-v0", CountingEnv, config={"start": 3}, max_episode_steps=2, reward_threshold=1.5)
    assert "Counting-v0" in stepmill.list_all_envs()
    pool = make("Counting-v0", num_envs=2)
    assert (pool.spec.id, pool.spec.max_episode_steps, pool.spec.reward_threshold) == ("Counting-v0", 2, 1.5)
    assert pool.config["start"] == 3
    assert pool.reset()[0].tolist() == [[3.0], [3.0]]
    assert not pool.step(zeros(2))[3].any()
    assert pool.step(zeros(2))[3].all()
    assert make("Counting-v0", start=7).reset()[0].tolist() == [[7.0]]


@pytest.mark.usefixtures("own_registry")
def test_register_a_native_class_with_another_configuration(make: Any) -> None:
    stepmill.register("SmallCatch-v0", native="Catch", config={"height": 4, "width": 3}, max_episode_steps=2)
    pool = make("SmallCatch-v0")
    assert pool.is_native
    assert pool.reset()[0].shape == (1, 4, 3)
    pool.step(zeros(1))
    assert pool.step(zeros(1))[3].all()
    assert make("SmallCatch-v0", width=5).reset()[0].shape == (1, 4, 5)


@pytest.mark.usefixtures("own_registry")
@pytest.mark.parametrize("arguments", [{}, {"factory": CountingEnv, "native": "Catch"}, {"factory": 3}])
def test_register_needs_one_thing_to_make(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"register\('Bad-v0'\)"):
        stepmill.register("Bad-v0", **arguments)
    assert "Bad-v0" not in stepmill.list_all_envs()


@pytest.mark.usefixtures("own_registry")
@pytest.mark.parametrize("limit", [0, -1, 2.0, "3", True])
def test_register_checks_the_time_limit_at_once(limit: Any) -> None:
    with pytest.raises(ConfigError, match=r"register\('Bad-v0'\): max_episode_steps: expected a whole number"):
        stepmill.register("Bad-v0", CountingEnv, max_episode_steps=limit)
    assert "Bad-v0" not in stepmill.list_all_envs()


@pytest.mark.parametrize("id", [None, 5, b"x", "", " ", ("a", "b")])
def test_register_takes_names_only(id: Any) -> None:
    with pytest.raises(ConfigError, match=r"register: expected a name as the id, such as 'MyEnv-v0', got"):
        stepmill.register(id, CountingEnv)
    with pytest.raises(UnknownEnvError, match="unknown env id 'Zyx-v0'"):
        stepmill.make("Zyx-v0")
    assert "CartPole-v1" in stepmill.list_all_envs()


def test_an_id_with_a_module_says_which_of_the_two_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "some_envs.py").write_text("Walk = 5")
    monkeypatch.syspath_prepend(tmp_path)
    for module in ("no_such_module", "some_envs.py", "some_envs.inner", ".some_envs"):
        with pytest.raises(UnknownEnvError, match=rf"unknown env id '{module}:Walk': there is no module '{module}'\."):
            stepmill.make(f"{module}:Walk")
    for name in ("Run-v0", "Walk"):
        there = (
            f"the module 'some_envs' was imported, but neither registers an env '{name}' nor has a class or function"
        )
        with pytest.raises(UnknownEnvError, match=there):
            stepmill.make(f"some_envs:{name}")
    with pytest.raises(UnknownEnvError, match="of that name, did you mean gymnasium:CartPole-v1 or"):
        stepmill.make("gymnasium:CartPole-v9")


@pytest.mark.usefixtures("own_registry")
def test_a_module_may_register_its_envs_with_us(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Any) -> None:
    (tmp_path / "our_envs.py").write_text(
        "import stepmill\nstepmill.register('Pole-v0', native='CartPole', max_episode_steps=3)"
    )
    monkeypatch.syspath_prepend(tmp_path)
    assert make("our_envs:Pole-v0").spec.max_episode_steps == 3


def test_what_a_module_raises_is_not_an_unknown_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_envs.py").write_text("raise ValueError('no licence')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=r"^no licence$"):
        stepmill.make("broken_envs:Some-v0")


def test_a_module_that_misses_another_is_no_unknown_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "needy_envs.py").write_text("import module_that_is_not_there")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="module_that_is_not_there"):
        stepmill.make("needy_envs:Some-v0")
    for id in ("no_such_module:Some-v0", "no_such_module.inner:Some-v0"):
        with pytest.raises(UnknownEnvError):
            stepmill.make(id)


# ---- ids of optional packages ----------------------------------------------------------------------


def is_missing(monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    for name in [name for name in sys.modules if f"{name}.".startswith(f"{module}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)


@pytest.mark.parametrize("id", ["dm_control/cheetah-run-v0", "cheetah-run"])
def test_without_dm_control_its_ids_name_the_extra(id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    is_missing(monkeypatch, "dm_control")
    with pytest.raises(MissingPackageError, match=rf"{id} needs dm-control.*pip install 'stepmill\[dm-control\]'"):
        stepmill.make(id)
    assert "dm_control/cheetah-run-v0" not in stepmill.list_all_envs()
    with pytest.raises(UnknownEnvError, match="did you mean dm_control/cheetah-run-v0"):
        stepmill.make("dm_control/cheetah-rnu-v0")


def test_ids_of_dm_control_are_listed_if_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    is_missing(monkeypatch, "dm_control")
    monkeypatch.delitem(sys.modules, "dm_control")
    (tmp_path / "dm_control.py").write_text("raise AssertionError('a list imports nothing')")
    monkeypatch.syspath_prepend(tmp_path)
    listed = registry.own_ids()
    assert sum(id.startswith("dm_control/") for id in listed) == 51
    assert "cheetah-run" not in listed


@pytest.mark.parametrize(
    ("id", "package", "extra"),
    [
        ("FetchReach-v4", "gymnasium-robotics", "robotics"),
        ("PointMaze_UMaze-v3", "gymnasium-robotics", "robotics"),
        ("MiniGrid-Empty-8x8-v0", "minigrid", "minigrid"),
        ("BabyAI-GoToObj-v0", "minigrid", "minigrid"),
        ("highway-v0", "highway-env", "highway"),
        ("parking-ActionRepeat-v0", "highway-env", "highway"),
        ("LunarLander-v3", "Box2D", "box2d"),
        ("CarRacing-v3", "Box2D", "box2d"),
        ("simple_spread_v3", "mpe2", "pettingzoo"),
        ("mpe2/simple_v3", "mpe2", "pettingzoo"),
        ("pistonball_v6", "pettingzoo", "pettingzoo"),
        ("sisl/pursuit_v5", "pettingzoo", "pettingzoo"),
        ("Meta-World/MT1", "metaworld", "metaworld"),
        ("NetHackScore-v0", "nle", "nethack"),
    ],
)
def test_without_the_package_of_a_family_its_ids_name_the_extra(
    id: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_missing(monkeypatch, package.replace("-", "_"))
    if extra != "box2d":  # those ids are Gymnasium's own
        monkeypatch.delitem(gymnasium.registry, id, raising=False)
    with pytest.raises(MissingPackageError, match=rf"{id} needs {package}, .*'stepmill\[{extra}\]'"):
        stepmill.make(id)


@pytest.mark.parametrize(("machine", "says"), [("aarch64", True), ("x86_64", False)])
def test_box2d_says_where_it_has_no_wheel(machine: str, says: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    is_missing(monkeypatch, "Box2D")
    monkeypatch.setattr("platform.machine", lambda: machine)
    with pytest.raises(MissingPackageError) as raised:
        stepmill.make("BipedalWalker-v3")
    assert ("has no wheel for aarch64" in str(raised.value)) == says


def test_an_id_that_resembles_those_of_a_missing_package_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    is_missing(monkeypatch, "nle")
    with pytest.raises(UnknownEnvError, match=r"it resembles those of nle, which pip install 'stepmill\[nethack\]'"):
        stepmill.make("nethackscore-v0")
    with pytest.raises(UnknownEnvError, match=r"it resembles those of nle"):
        stepmill.make("NetHackScore")


@pytest.mark.parametrize("id", ["Quarry", "quarry-v3", "Quarry-v3 ", " Quarry-v3\n"])
def test_an_id_without_version_or_with_spaces_is_found_in_a_package_that_nothing_has_imported(
    id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = Package("quarry_of_tests", "quarry", "quarry")
    monkeypatch.setattr(registry, "_families", [registry.Family(package, (r"Quarry-v\d",))])
    (tmp_path / "quarry_of_tests.py").write_text("import gymnasium\ngymnasium.register('Quarry-v3', 'nowhere:Env')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "quarry_of_tests", raising=False)
    monkeypatch.setattr(gymnasium.envs.registration, "registry", dict(gymnasium.registry))
    monkeypatch.setattr(gymnasium, "registry", gymnasium.envs.registration.registry)
    with pytest.raises(UnknownEnvError, match=r"did you mean Quarry-v3\?"):
        stepmill.make(id)


@pytest.mark.parametrize("id", ["phys2d/CartPole-v1", "tabular/Blackjack-v0"])
def test_gymnasiums_envs_in_jax_say_what_they_need(id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [
        name for name in sys.modules if name.startswith(("gymnasium.envs.phys2d", "gymnasium.envs.tabular"))
    ]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "jax", None)
    for call in (stepmill.make, stepmill.make_spec):
        with pytest.raises(MissingPackageError, match=rf"{id} needs jax, .*: pip install 'gymnasium\[jax\]'"):
            call(id)


def test_an_id_that_resembles_none_gets_no_hint() -> None:
    with pytest.raises(UnknownEnvError, match=r"unknown env id 'Zyx-v0'\. list_all_envs"):
        stepmill.make("Zyx-v0")


def test_versions_that_do_not_fit_each_other_are_named() -> None:
    package = Package("numpy", "numpy", "arrays")
    with (
        pytest.raises(MissingPackageError, match=r"MyEnv failed in numpy \d.* with gymnasium \d.*AttributeError: gone"),
        explained_misfit(package, "gymnasium", "MyEnv"),
    ):
        raise AttributeError("gone")
    with (
        pytest.raises(MissingPackageError, match=r"no-such \(not installed\).*AssertionError.*'stepmill\[arrays\]'"),
        explained_misfit(package, "no-such", "MyEnv"),
    ):
        raise AssertionError


# ---- gymnasium.make_vec --------------------------------------------------------------------------


def test_make_vec_finds_the_pools() -> None:
    env = gymnasium.make_vec(
        "stepmill/CartPole-v1", num_envs=3, num_threads=2, autoreset="same_step", sutton_barto_reward=True
    )
    assert type(env).__name__ == "GymnasiumPool"
    assert (env.num_envs, env.backend, env.is_native) == (3, "thread", True)
    assert env.config["sutton_barto_reward"]
    assert env.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert env.spec.id == "stepmill/CartPole-v1"
    obs, _ = env.reset(seed=3)
    with stepmill.make("CartPole-v1", num_envs=3, seed=3) as pool:
        assert np.array_equal(obs, pool.reset()[0])
    env.close()


def test_ids_under_stepmill_say_their_limit_and_threshold() -> None:
    for id in own_ids():
        spec, own = gymnasium.spec(f"stepmill/{id}"), registry.find(id)
        assert (spec.max_episode_steps, spec.reward_threshold) == (own.max_episode_steps, own.reward_threshold)
    cart_pole = gymnasium.spec("stepmill/CartPole-v1")
    assert (cart_pole.max_episode_steps, cart_pole.reward_threshold) == (500, 475.0)
    with gymnasium.make_vec("stepmill/CartPole-v1", num_envs=2) as env:
        assert env.spec.max_episode_steps == env.unwrapped.config["max_episode_steps"] == 500


def test_make_vec_passes_the_time_limit() -> None:
    env = gymnasium.make_vec("stepmill/Pendulum-v1", num_envs=2, max_episode_steps=3)
    env.reset()
    ends = [env.step(env.action_space.sample())[3].all() for _ in range(3)]
    assert ends == [False, False, True]
    env.close()


def test_make_vec_has_every_id() -> None:
    names = {registry.find(id).short or id for id in registry.own_ids()}
    assert {f"stepmill/{name}" for name in names} <= set(gymnasium.registry)


def test_make_vec_refuses_vector_kwargs_of_entry_points_by_itself() -> None:
    """Gymnasium takes ``vector_kwargs`` for its own vector envs only; ours are plain keyword arguments."""
    with pytest.raises(gymnasium.error.Error, match="vector_kwargs"):
        gymnasium.make_vec("stepmill/CartPole-v1", num_envs=2, vector_kwargs={"num_threads": 1})
