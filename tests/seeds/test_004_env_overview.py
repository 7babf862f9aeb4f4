"""The later description of the environment layer (seed 004), from top to bottom."""

from __future__ import annotations

from collections import namedtuple
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import stepmill
from stepmill.envs import BaseEnv, BaseEnvInfo, BaseEnvTimestep, DingEnvWrapper, as_gymnasium
from stepmill.errors import EnvError
from stepmill.managers import EnvState
from stepmill.testing import check_env
from support.seed_runs import IN_ONE_PROCESS, WAYS, assert_same, manager_of, play, pool_of

MyTimestep = namedtuple("MyTimestep", ["obs", "act", "reward", "done", "info"])


class Tide:
    """A simulator: its level rises by what is let in, and by chance."""

    built = 0

    def __init__(self, length: int) -> None:
        type(self).built += 1
        self._length = length
        self._random = np.random.RandomState()

    def seed(self, seed: int) -> None:
        self._random = np.random.RandomState(seed)

    def reset(self, level: float = 0.0) -> float:
        self._level, self._time = level + self._random.uniform(), 0
        return self._level

    def step(self, action: float) -> tuple[float, float, bool]:
        self._time += 1
        self._level += action + self._random.normal(0, 0.1)
        return self._level, -abs(self._level), self._time >= self._length

    def picture(self) -> np.ndarray:
        return np.full((32, 32, 3), min(max(int(10 * self._level), 0), 255), np.uint8)


class TideEnv(BaseEnv):
    """An env of the later form: spaces as properties, five fields in a timestep, seeds of two kinds."""

    def __init__(self, cfg: dict) -> None:
        self._cfg = cfg
        self._init_flag = False
        self._observation_space = spaces.Box(-100.0, 100.0, (2,), np.float32)
        self._action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
        self._reward_space = spaces.Box(-100.0, 0.0, (1,), np.float32)

    @property
    def observation_space(self) -> spaces.Space:
        return self._observation_space

    @property
    def action_space(self) -> spaces.Space:
        return self._action_space

    @property
    def reward_space(self) -> spaces.Space:
        return self._reward_space

    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        self._seed, self._dynamic_seed = seed, dynamic_seed
        self._episode_seeds = np.random.RandomState(seed)

    def reset(self, **kwargs: Any) -> np.ndarray:
        if not self._init_flag:
            self._env = Tide(self._cfg.get("length", 3))
            self._init_flag = True
        if hasattr(self, "_seed"):
            drawn = self._episode_seeds.randint(2**31 - 1) if self._dynamic_seed else self._seed
            self._env.seed(drawn)
        self._total = 0.0
        return self._observe(self._env.reset(**kwargs))

    def _observe(self, level: float) -> np.ndarray:
        return np.array([level, self.env_id], np.float32)

    def step(self, action: np.ndarray) -> MyTimestep:
        level, reward, done = self._env.step(float(action[0]))
        self._total += reward
        info: dict[str, Any] = {"abnormal": True} if self._env._time == self._cfg.get("abnormal_at") else {}
        if done:
            info["final_eval_reward"] = info["eval_episode_return"] = self._total
        return MyTimestep(self._observe(level), action, np.array([reward], np.float32), done, info)

    def render(self) -> np.ndarray:
        return self._env.picture()

    def close(self) -> None:
        self._init_flag = False


def rise(step: int) -> np.ndarray:
    return np.full(1, 0.5, np.float32)


# ---- like gym.Env, and more ----------------------------------------------------------------------


def test_step_and_reset_are_gyms() -> None:
    """Its introduction: ``reset`` begins an episode, ``step`` takes an action and gives a reward."""
    env = TideEnv({})
    env.seed(0)
    assert env.observation_space.contains(env.reset())
    timestep = env.step(env.action_space.sample())
    assert env.observation_space.contains(timestep.obs)
    assert env.reward_space.contains(timestep.reward)


def test_an_env_of_gyms_interface_takes_one_line() -> None:
    """Its introduction: a BaseEnv follows gym.Env; here each can be turned into the other."""
    env = as_gymnasium(TideEnv({}))
    assert isinstance(env, gymnasium.Env)
    assert len(env.reset(seed=0)) == 2
    assert len(env.step(rise(1))) == 5


@pytest.mark.parametrize("way", WAYS)
def test_1_a_timestep_of_five_fields(way: str) -> None:
    """1: obs, act, reward, done and info, one's own namedtuple."""
    got = play(way, TideEnv, [{"length": 2}, {"length": 3}], episodes=2, action=rise)
    assert [[len(one.rewards) for one in episodes] for episodes in got] == [[2, 2], [3, 3]]
    assert got[0][0].info["final_eval_reward"] == pytest.approx(sum(got[0][0].rewards), rel=1e-5)


def test_1_the_checker_takes_it() -> None:
    """1: nothing to complain about in an env of this document."""
    assert not check_env(TideEnv, {}, print_report=False)


@pytest.mark.parametrize("order", [("obs", "reward", "done", "info", "act"), ("info", "act", "done", "reward", "obs")])
def test_1_names_decide_and_not_places(order: Any) -> None:
    """1: the fields must be there; where they stand is one's own affair."""
    mine = namedtuple("Ordered", order)

    class Ordered(TideEnv):
        def step(self, action: np.ndarray) -> Any:
            return mine(**super().step(action)._asdict())

    expected = play("alone", TideEnv, [{}], action=rise)
    for way in IN_ONE_PROCESS:
        assert_same(play(way, Ordered, [{}], action=rise), expected)


def test_1_a_field_that_is_missing_is_an_error() -> None:
    """1: without ``done`` it is no timestep."""
    short = namedtuple("Short", ["obs", "act", "reward", "info"])

    class Doneless(TideEnv):
        def step(self, action: np.ndarray) -> Any:
            obs, act, reward, _, info = super().step(action)
            return short(obs, act, reward, info)

    with manager_of("serial", Doneless, [{}]) as manager:
        manager.launch()
        with pytest.raises(EnvError, match="BaseEnvTimestep"):
            manager.step({0: rise(1)})


def test_2_spaces_are_attributes() -> None:
    """2: three of one kind; ``reward_space`` in the place of gym's ``reward_range``. Known before a reset."""
    before = Tide.built
    env = TideEnv({})
    assert all(isinstance(one, spaces.Space) for one in (env.observation_space, env.action_space, env.reward_space))
    assert Tide.built == before
    with manager_of("serial", TideEnv, [{}]) as manager:
        assert manager.observation_space == env.observation_space
        assert manager.action_space == env.action_space
        assert manager.reward_space == env.reward_space
    with pool_of("inline", TideEnv, [{}]) as pool:
        assert pool.single_observation_space == env.observation_space
        assert pool.single_action_space == env.action_space


def test_2_reward_space_has_a_default() -> None:
    """2: an env that says nothing has one reward of any size."""
    assert BaseEnv.reward_space == spaces.Box(-np.inf, np.inf, (1,), np.float32)


class Fleet(TideEnv):
    """Three agents, each with a row; told by the document's name."""

    num_agent = 3

    def __init__(self, cfg: dict) -> None:
        super().__init__(cfg)
        self._observation_space = spaces.Box(-100.0, 100.0, (3, 2), np.float32)
        self._action_space = spaces.Box(-1.0, 1.0, (3, 1), np.float32)

    def _observe(self, level: float) -> np.ndarray:
        return np.tile(super()._observe(level), (3, 1))

    def step(self, action: np.ndarray) -> MyTimestep:
        return super().step(action.mean(0))


def test_2_num_agent_says_how_many() -> None:
    """2: an env of many agents sets ``num_agent``; it is the same as ``num_agents``."""
    env = Fleet({})
    assert (env.num_agent, env.num_agents, env.info().agent_num) == (3, 3, 3)
    assert TideEnv({}).num_agent == 1
    with manager_of("serial", Fleet, [{}, {}]) as manager:
        manager.launch()
        assert manager.env_info.agent_num == 3
        timestep = manager.step({0: np.full((3, 1), 0.5, np.float32), 1: np.zeros((3, 1), np.float32)})[0]
        assert timestep.obs.shape == (3, 2)
    with pool_of("inline", Fleet, [{}, {}]) as pool:
        assert pool.reset()[0].shape == (6, 2)


class Liar(TideEnv):
    def __init__(self, cfg: dict) -> None:
        super().__init__(cfg)
        self._observation_space = spaces.Box(-100.0, 100.0, (5,), np.float32)


def test_note_shared_memory_needs_a_true_observation_space() -> None:
    """Note: the error says what was expected; without shared memory the observation is passed as it is."""
    with manager_of("subprocess", Liar, [{}]) as manager, pytest.raises(EnvError, match=r"\(5,\)"):
        manager.launch()
    with manager_of("subprocess", Liar, [{}], shared_memory=False) as manager:
        manager.launch()
        assert manager.ready_obs[0].shape == (2,)


@pytest.mark.parametrize(("name", "is_train"), [("collector", True), ("evaluator", False)])
def test_3_and_4_cfgs(name: str, is_train: bool) -> None:
    """3 and 4: as many copies as the cfg asks for, one by default, for each of the two tasks."""
    create = getattr(TideEnv, f"create_{name}_env_cfg")
    cfg = {"length": 2, "collector_env_num": 2, "evaluator_env_num": 2}
    made = create(cfg)
    assert [(one["length"], one["is_train"]) for one in made] == [(2, is_train)] * 2
    assert len(create({"length": 2})) == 1
    assert len(play("serial", TideEnv, made, action=rise)) == 2


def test_differs_cfgs_are_independent() -> None:
    """There one object for all envs, and the caller's loses a key. Here copies, and the caller's stays."""
    cfg = {"collector_env_num": 2, "map": {"size": 1}}
    one, two = TideEnv.create_collector_env_cfg(cfg)
    one["map"]["size"] = 9
    assert (two["map"]["size"], cfg) == (1, {"collector_env_num": 2, "map": {"size": 1}})


def test_5_enable_save_replay(tmp_path: Path) -> None:
    """5: tells the env to film what follows, and where; optional, called before it runs."""
    env = TideEnv({})
    env.enable_save_replay(str(tmp_path))
    assert not list(tmp_path.iterdir())
    env.reset()
    while not env.step(rise(1)).done:
        pass
    env.close()
    assert [path.name for path in tmp_path.iterdir()] == ["env_0_episode_0000.mp4"]


# ---- what differs from gym.Env in detail ---------------------------------------------------------


def test_details_1_the_seed_is_a_seed_of_seeds() -> None:
    """Details 1: dynamic seeds come from what is set; static ones are what is set."""
    env = TideEnv({})
    env.seed(3)
    run = [float(env.reset()[0]) for _ in range(3)]
    env.seed(3)
    assert [float(env.reset()[0]) for _ in range(3)] == run
    assert len(set(run)) == 3
    env.seed(3, dynamic_seed=False)
    assert len({float(env.reset()[0]) for _ in range(3)}) == 1


@pytest.mark.parametrize("dynamic", [True, False])
@pytest.mark.parametrize("way", ["inline", "serial"])
def test_details_1_both_kinds_everywhere(way: str, dynamic: bool) -> None:
    """Details 1: several envs at once play what each plays alone."""
    cfgs = [{"dynamic_seed": dynamic}] * 2
    got = play(way, TideEnv, cfgs, episodes=3, action=rise)
    firsts = {float(one.observations[0][0]) for one in got[0]}
    assert len(firsts) == (3 if dynamic else 1)
    expected = play("alone", TideEnv, cfgs, episodes=3, action=rise)
    for one, other in zip(got, expected, strict=True):
        assert [episode.rewards for episode in one] == [episode.rewards for episode in other]


@pytest.mark.parametrize("way", ["inline", "serial"])
def test_details_2_lazy_init(way: str) -> None:
    """Details 2 and the first note: the first reset builds the simulator, once per env; asking builds none."""
    before = Tide.built
    play(way, TideEnv, [{}, {}], episodes=3, action=rise)
    assert Tide.built == before + 2


class Eager(TideEnv):
    def __init__(self, cfg: dict) -> None:
        super().__init__(cfg)
        self._env, self._init_flag = Tide(3), True


@pytest.mark.parametrize("way", IN_ONE_PROCESS)
def test_note_an_env_may_build_its_simulator_in_the_constructor(way: str) -> None:
    """First note, its last sentence."""
    assert_same(play(way, Eager, [{}], action=rise), play("alone", TideEnv, [{}], action=rise))


def test_details_3_final_eval_reward_at_the_end() -> None:
    """Details 3 and warning 1: in the info of the timestep that ends an episode, a float, and in no other."""
    with manager_of("serial", TideEnv, [{}]) as manager:
        manager.launch()
        infos = [manager.step({0: rise(1)})[0].info for _ in range(3)]
    assert ["final_eval_reward" in info for info in infos] == [False, False, True]
    assert type(infos[-1]["final_eval_reward"]) is float


def test_warning_1_pools_have_it_too() -> None:
    """Warning 1 in a pool: a column of the infos, with its mask; beside it the return that the engine counts."""
    with pool_of("inline", TideEnv, [{"length": 1}, {"length": 2}]) as pool:
        pool.reset()
        info = pool.step(np.stack([rise(1)] * 2))[-1]
    assert info["_final_eval_reward"].tolist() == [True, False]
    assert info["final_eval_reward"][0] == pytest.approx(info["episode_return"][0])


def test_warning_1_an_env_that_leaves_it_out_is_found() -> None:
    """Warning 1: the checker says so; a manager puts the sum of the rewards there."""

    class Silent(TideEnv):
        def step(self, action: np.ndarray) -> MyTimestep:
            return super().step(action)._replace(info={})

    assert {finding.rule for finding in check_env(Silent, {}, print_report=False)} == {"episode_return"}
    ((episode,),) = play("serial", Silent, [{}], action=rise)
    assert episode.info["final_eval_reward"] == pytest.approx(sum(episode.rewards))


def test_warning_2_abnormal() -> None:
    """Warning 2: an optional bool of any step, flagged to the caller; a manager sets the env aside until a reset."""
    with pool_of("inline", TideEnv, [{"abnormal_at": 1}, {}]) as pool:
        pool.reset()
        assert pool.step(np.stack([rise(1)] * 2))[-1]["abnormal"].tolist() == [True, False]
    with manager_of("serial", TideEnv, [{"abnormal_at": 1}, {}]) as manager:
        manager.launch()
        timesteps = manager.step({0: rise(1), 1: rise(1)})
        assert timesteps[0].info["abnormal"] is True
        assert manager.env_state == {0: EnvState.ERROR, 1: EnvState.RUN}


# ---- notes, tip and picture ----------------------------------------------------------------------


def test_note_the_defaults_can_be_imported_and_extended() -> None:
    """Second note: its import line; one's own timestep from the fields of ours."""
    assert BaseEnvInfo is stepmill.envs.BaseEnvInfo
    mine = namedtuple("Mine", (*BaseEnvTimestep._fields, "act"))
    assert mine(1, 2, False, {}, 3).act == 3


@pytest.mark.parametrize("way", ["inline", "serial"])
def test_tip_seed_is_called_between_the_constructor_and_reset(way: str) -> None:
    """Tip: and it only notes the value."""
    calls: list[str] = []

    class Noting(TideEnv):
        def seed(self, seed: int, dynamic_seed: bool = True) -> None:
            calls.append(f"seed, built: {self._init_flag}")
            super().seed(seed, dynamic_seed)

        def reset(self, **kwargs: Any) -> np.ndarray:
            calls.append("reset")
            return super().reset(**kwargs)

    play(way, Noting, [{}], action=rise)
    assert calls[:2] == ["seed, built: False", "reset"]


def test_picture_of_the_classes() -> None:
    """The last picture: envs inherit from BaseEnv, which is abstract; what a subclass must write and what it may."""
    assert issubclass(DingEnvWrapper, BaseEnv)
    assert BaseEnv.__abstractmethods__ == {"reset", "step", "close"}
    optional = ["seed", "create_collector_env_cfg", "create_evaluator_env_cfg", "enable_save_replay", "random_action"]
    assert all(callable(getattr(BaseEnv, name)) for name in optional)
