"""How to bring an env (seed 002), from top to bottom: the basics, replays and cfgs.

Wrappers, ``info()`` and other kinds of envs are in the files beside this one.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from easydict import EasyDict

from stepmill.envs import BaseEnv, BaseEnvInfo, BaseEnvTimestep, to_ndarray
from stepmill.envs.common.env_element import EnvElementInfo
from stepmill.testing import check_env
from support.seed_runs import IN_ONE_PROCESS, MANAGERS, WAYS, assert_same, manager_of, play, play_manager, pool_of


class Pond:
    """Somebody's simulator, with old Gym's interface: numbers of float64, ``seed`` apart from ``reset``."""

    built = 0

    def __init__(self, length: int = 4) -> None:
        type(self).built += 1
        self.calls: list[Any] = []
        self._length = length
        self._random = np.random.RandomState()

    def seed(self, seed: int) -> None:
        self.calls.append(("seed", seed))
        self._random = np.random.RandomState(seed)

    def reset(self) -> Any:
        self.calls.append("reset")
        self._time = 0
        self._water = self._random.uniform(-1, 1, 3)
        return self._water.copy()

    def step(self, action: int) -> tuple[Any, float, bool, dict[str, Any]]:
        assert type(action) is int
        self._time += 1
        self._water += 0.1 * action + self._random.normal(0, 0.01, 3)
        return self._water.copy(), float(self._water[0]), self._time == self._length, {}

    def close(self) -> None:
        self.calls.append("close")


class PondEnv(BaseEnv):
    """The document's env, method by method, around a ``Pond`` instead of Atari."""

    def __init__(self, cfg: dict) -> None:
        self._cfg = cfg
        self._init_flag = False

    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        self._seed = seed
        self._dynamic_seed = dynamic_seed
        np.random.seed(self._seed)

    def _make_env(self, only_info: bool = False) -> Any:
        return "" if only_info else Pond(self._cfg.get("length", 4))

    def reset(self) -> np.ndarray:
        if not self._init_flag:
            self._env = self._make_env(only_info=False)
            self._init_flag = True
        if hasattr(self, "_seed") and hasattr(self, "_dynamic_seed") and self._dynamic_seed:
            np_seed = 100 * np.random.randint(1, 1000)
            self._env.seed(self._seed + np_seed)
        elif hasattr(self, "_seed"):
            self._env.seed(self._seed)
        obs = self._env.reset()
        obs = to_ndarray(obs)
        self._final_eval_reward = 0.0
        return obs

    def step(self, action: np.ndarray) -> BaseEnvTimestep:
        assert isinstance(action, np.ndarray), type(action)
        action = action.item()
        obs, rew, done, info = self._env.step(action)
        self._final_eval_reward += rew
        obs = to_ndarray(obs)
        rew = to_ndarray([rew])
        if done:
            info["final_eval_reward"] = self._final_eval_reward
        return BaseEnvTimestep(obs, rew, done, info)

    def close(self) -> None:
        if self._init_flag:
            self._env.close()
        self._init_flag = False

    def info(self) -> BaseEnvInfo:
        def floats(shape: Any) -> EnvElementInfo:
            return EnvElementInfo(shape, {"min": -10.0, "max": 10.0, "dtype": np.float32})

        moves = EnvElementInfo((3,), {"min": 0, "max": 3, "dtype": np.int64})
        return BaseEnvInfo(1, obs_space=floats((3,)), act_space=moves, rew_space=floats(1), use_wrappers=None)

    @property
    def is_seeded(self) -> bool:
        return hasattr(self, "_seed")

    def __repr__(self) -> str:
        return "PondEnv"


@pytest.fixture(autouse=True)
def _global_generator_restored() -> Iterator[None]:
    """The document's ``seed`` seeds numpy's own generator."""
    state = np.random.get_state()
    yield
    np.random.set_state(state)


def seeds_of(env: PondEnv) -> list[int]:
    return [call[1] for call in env._env.calls if call[0] == "seed"]


# ---- basics 1: __init__ --------------------------------------------------------------------------


def test_init_builds_nothing_and_the_first_reset_does() -> None:
    """Basics 1 and 3, lazy init: the env holds a simulator from its first reset on, and keeps it."""
    before = Pond.built
    env = PondEnv({})
    assert (env._init_flag, hasattr(env, "_env"), Pond.built) == (False, False, before)
    env.reset()
    env.reset()
    assert (env._init_flag, Pond.built) == (True, before + 1)


@pytest.mark.parametrize("way", ["inline", "serial"])
def test_init_one_simulator_per_env(way: str) -> None:
    """Basics 1: pools and managers too let it build one simulator for each env that runs, and no more."""
    before = Pond.built
    play(way, PondEnv, [{}, {}, {}], episodes=2)
    assert Pond.built == before + 3


# ---- basics 2: seed ------------------------------------------------------------------------------


def test_seed_sets_the_libraries_at_once_and_the_simulator_at_reset() -> None:
    """Basics 2: ``np.random`` in ``seed`` itself; the simulator's seed is only noted, and set before its reset."""
    env = PondEnv({})
    env.seed(7, dynamic_seed=False)
    assert np.random.randint(1000) == np.random.RandomState(7).randint(1000)
    env.reset()
    assert env._env.calls == [("seed", 7), "reset"]


def test_seed_static_every_episode_has_the_same() -> None:
    """Basics 2: ``dynamic_seed=False``, for evaluation."""
    env = PondEnv({})
    env.seed(7, dynamic_seed=False)
    first = [env.reset().tolist() for _ in range(3)]
    assert seeds_of(env) == [7, 7, 7]
    assert first[0] == first[1] == first[2]


@pytest.mark.parametrize("arguments", [(), (True,)])
def test_seed_dynamic_episodes_differ_and_the_run_repeats(arguments: Any) -> None:
    """Basics 2: the default, or ``dynamic_seed=True``: seeds from a generator that ``seed`` has seeded."""
    env = PondEnv({})
    env.seed(7, *arguments)
    first = [env.reset().tolist() for _ in range(3)]
    drawn = np.random.RandomState(7)
    assert seeds_of(env) == [7 + 100 * drawn.randint(1, 1000) for _ in range(3)]
    env.seed(7, *arguments)
    assert [env.reset().tolist() for _ in range(3)] == first


@pytest.mark.parametrize("way", WAYS)
def test_seed_static_everywhere(way: str) -> None:
    """Basics 2 in pools and managers: the same episodes as alone, for each of three envs."""
    cfgs = [{"dynamic_seed": False}] * 3
    got = play(way, PondEnv, cfgs, episodes=2, seed=5)
    assert_same(got, play("alone", PondEnv, cfgs, episodes=2, seed=5))
    assert all(np.array_equal(one.observations, two.observations) for one, two in got)


@pytest.mark.parametrize("way", ["inline", "process", "serial"])
def test_seed_dynamic_everywhere(way: str) -> None:
    """Basics 2: an env that has its process to itself plays the same run everywhere."""
    got = play(way, PondEnv, [{}], episodes=3, seed=5)
    assert_same(got, play("alone", PondEnv, [{}], episodes=3, seed=5))


def test_differs_a_worker_may_run_several_envs() -> None:
    """There each env has a process, and so a global generator, to itself; here with one worker per env."""
    expected = play("alone", PondEnv, [{}, {}], episodes=3, seed=5)
    with manager_of("subprocess", PondEnv, [{}, {}], episode_num=3, num_workers=2) as manager:
        manager.seed(5)
        manager.launch()
        assert_same(play_manager(manager), expected)


@pytest.mark.parametrize("way", MANAGERS)
def test_seed_that_nobody_sets(way: str) -> None:
    """Basics 3: the ``hasattr`` of its reset; in a manager that nobody seeds, the env is not seeded either."""
    with manager_of(way, PondEnv, [{}, {}]) as manager:
        manager.launch()
        manager.step(dict.fromkeys(manager.ready_obs, 1))
        assert manager.is_seeded == [False, False]


@pytest.mark.parametrize("way", ["inline", "process"])
def test_seed_of_a_pool_that_draws_its_own(way: str) -> None:
    """Basics 2: ``np.random.seed`` takes 32 bits, so a pool without a seed draws none that is longer."""
    ((one,),) = play(way, PondEnv, [{}], seed=None)
    assert len(one.rewards) == 4


class Still(PondEnv):
    """Nothing is random in it, so it has no ``seed`` of its own."""

    seed = BaseEnv.seed

    def _make_env(self, only_info: bool = False) -> Any:
        sea = Pond()
        sea.seed(0)
        return sea


@pytest.mark.parametrize("way", IN_ONE_PROCESS)
def test_seed_can_be_left_out(way: str) -> None:
    """Basics 2: an env without chance need not write ``seed``; it can be called all the same."""
    got = play(way, Still, [{}, {}], seed=3)
    np.testing.assert_array_equal(got[0][0].observations[0], got[1][0].observations[0])


def test_differs_the_envs_own_generator_is_recommended() -> None:
    """There all envs of a process draw from one generator, so that one disturbs the other; the checker says so.

    ``self._next_seed()`` of ``BaseEnv`` is the same thing with a generator of the env's own.
    """

    class OwnGenerator(PondEnv):
        seed = BaseEnv.seed

        def reset(self) -> np.ndarray:
            if not self._init_flag:
                self._env, self._init_flag = self._make_env(), True
            if (seed := self._next_seed()) is not None:
                self._env.seed(seed)
            self._final_eval_reward = 0.0
            return to_ndarray(self._env.reset())

    found = {finding.rule for finding in check_env(PondEnv, {}, print_report=False)}
    assert found == {"episode_return", "global_generators", "independent_envs"}
    found = {finding.rule for finding in check_env(OwnGenerator, {}, print_report=False)}
    assert found == {"episode_return"}
    together = play("inline", OwnGenerator, [{}, {}], episodes=3)
    assert_same(together, play("alone", OwnGenerator, [{}, {}], episodes=3))


# ---- basics 3, 4, 6: reset, step and their data --------------------------------------------------


def test_reset_gives_an_array_and_sets_the_return_to_0() -> None:
    """Basics 3 and 6: the observation of reset is an array of float32."""
    env = PondEnv({})
    obs = env.reset()
    assert (type(obs), obs.dtype, env._final_eval_reward) == (np.ndarray, np.float32, 0.0)
    with manager_of("serial", PondEnv, [{}]) as manager:
        manager.launch()
        obs = manager.ready_obs[0]
        assert (type(obs), obs.dtype, obs.shape) == (np.ndarray, np.float32, (3,))


@pytest.mark.parametrize("action", [np.array(1), np.array([1]), np.int64(1), 1, [1]], ids=str)
def test_step_takes_an_array_with_an_item(action: Any) -> None:
    """Basics 4 and 6: the env gets an array, whatever form its caller's action has."""
    with manager_of("serial", PondEnv, [{}]) as manager:
        manager.launch()
        assert manager.step({0: action})[0].done is False


@pytest.mark.parametrize("way", MANAGERS)
def test_step_gives_obs_reward_done_and_info(way: str) -> None:
    """Basics 4 and 6: a namedtuple of an array, a reward of one axis, a bool and a dict."""
    with manager_of(way, PondEnv, [{}]) as manager:
        manager.seed(0)
        manager.launch()
        timestep = manager.step({0: np.array(2)})[0]
        obs, reward, done, info = timestep
        assert timestep._fields == ("obs", "reward", "done", "info")
        assert (type(obs), obs.dtype, obs.shape) == (np.ndarray, np.float32, (3,))
        assert (type(reward), reward.dtype, reward.shape) == (np.ndarray, np.float32, (1,))
        assert (type(done), type(info)) == (bool, dict)


def _changed(name: str, value: Any) -> type[PondEnv]:
    class Changed(PondEnv):
        def step(self, action: np.ndarray) -> BaseEnvTimestep:
            timestep = super().step(action)
            return timestep._replace(**{name: value(getattr(timestep, name))})

    return Changed


SPECIFICATIONS = {
    "obs of float64": ("obs", lambda obs: obs.astype(np.float64), "obs_dtype"),
    "obs as a list": ("obs", list, "obs_type"),
    "reward of no axis": ("reward", lambda reward: reward[0], "reward_type"),
    "reward of float64": ("reward", lambda reward: reward.astype(np.float64), "reward_dtype"),
    "reward of shape ()": ("reward", lambda reward: reward.reshape(()), "reward_shape"),
    "done of numpy": ("done", np.bool_, "done_type"),
}


@pytest.mark.parametrize("case", SPECIFICATIONS)
def test_data_the_checker_knows_each_line_of_the_specification(case: str) -> None:
    """Basics 6: what it asks of each method's data is a rule of the checker."""
    name, value, rule = SPECIFICATIONS[case]
    assert rule in {finding.rule for finding in check_env(_changed(name, value), {}, print_report=False)}


@pytest.mark.parametrize("case", SPECIFICATIONS)
def test_differs_other_forms_of_the_same_value_are_taken(case: str) -> None:
    """There they break the pipeline. Here pools and managers hand out what the contract says, if no value is lost."""
    name, value, _ = SPECIFICATIONS[case]
    env_fn = _changed(name, value)
    with manager_of("serial", env_fn, [{"length": 1}]) as manager:
        manager.seed(3)
        manager.launch()
        timestep = manager.step({0: 1})[0]
    assert (timestep.obs.dtype, timestep.reward.shape, timestep.done) == (np.float32, (1,), True)
    assert_same(play("inline", env_fn, [{}]), play("alone", PondEnv, [{}]))


def test_data_actions_are_int64_or_float32() -> None:
    """Basics 6: what ``step`` is given."""
    seen: list[Any] = []

    class Noting(PondEnv):
        def step(self, action: np.ndarray) -> BaseEnvTimestep:
            seen.append((type(action), action.dtype))
            return super().step(action)

    play("inline", Noting, [{}])
    play("serial", Noting, [{}], action=lambda step: 1)
    assert set(seen) == {(np.ndarray, np.dtype(np.int64))}


# ---- basics 5: the measure of an episode ---------------------------------------------------------


@pytest.mark.parametrize("way", IN_ONE_PROCESS)
def test_final_eval_reward_is_the_sum_and_begins_anew(way: str) -> None:
    """Basics 5: set to 0 by reset, summed by step, told at the end, episode by episode; a float."""
    for episode in play(way, PondEnv, [{}], episodes=2)[0]:
        assert type(episode.info["final_eval_reward"]) in (float, np.float64)
        assert episode.info["final_eval_reward"] == pytest.approx(sum(episode.rewards), rel=1e-5)


@pytest.mark.parametrize("way", IN_ONE_PROCESS)
def test_final_eval_reward_can_be_another_measure(way: str) -> None:
    """Basics 5: such as a rate of wins; it is handed on, whatever the rewards are."""

    class WinRate(PondEnv):
        def step(self, action: np.ndarray) -> BaseEnvTimestep:
            timestep = super().step(action)
            if timestep.done:
                timestep.info["final_eval_reward"] = 0.75
            return timestep

    ((episode,),) = play(way, WinRate, [{}])
    assert episode.info["final_eval_reward"] == 0.75


# ---- advanced 3: enable_save_replay --------------------------------------------------------------


class Monitor:
    """Stands for old Gym's wrapper of that name: notes what it would film."""

    def __init__(self, env: Any, path: str, video_callable: Any, force: bool) -> None:
        self._env, self._path, self._video_callable = env, path, video_callable
        self._episode = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def reset(self) -> Any:
        if self._video_callable(self._episode):
            Path(self._path, f"episode_{self._episode}.txt").write_text("filmed")
        self._episode += 1
        return self._env.reset()


class Filmed(PondEnv):
    """As the document has it; the simulator that it films is built here, if it is not yet."""

    def __init__(self, cfg: dict) -> None:
        super().__init__(cfg)
        self.calls: list[str] = []

    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        self.calls.append("seed")
        super().seed(seed, dynamic_seed)

    def reset(self) -> np.ndarray:
        self.calls.append("reset")
        return super().reset()

    def enable_save_replay(self, replay_path: str | None = None) -> None:
        self.calls.append("enable_save_replay")
        if replay_path is None:
            replay_path = "./video"
        self._replay_path = replay_path
        if not self._init_flag:
            self._env, self._init_flag = self._make_env(only_info=False), True
        self._env = Monitor(self._env, self._replay_path, video_callable=lambda episode_id: True, force=True)


def test_replay_only_sets_a_flag_and_has_a_default_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Advanced 3: nothing is saved by the call itself; without an argument the folder is ./video."""
    monkeypatch.chdir(tmp_path)
    for env in (Filmed({}), PondEnv({})):
        env.seed(0)
        env.enable_save_replay()
        assert env._replay_path == "./video"
        assert not list(tmp_path.iterdir())


def test_replay_of_ones_own_in_a_manager(tmp_path: Path) -> None:
    """Advanced 3: the env's method is called after ``seed`` and before ``reset``, with the folder of that env."""
    folders = [tmp_path / "env_0", tmp_path / "env_1"]
    for folder in folders:
        folder.mkdir()
    with manager_of("serial", Filmed, [{}, {}], episode_num=2) as manager:
        manager.seed(0, dynamic_seed=False)
        manager.enable_save_replay([str(folder) for folder in folders])
        manager.launch()
        assert manager.calls == [["seed", "enable_save_replay", "reset"]] * 2
        while not manager.done:
            manager.step(dict.fromkeys(manager.ready_obs, 1))
    for folder in folders:
        assert sorted(path.name for path in folder.iterdir()) == ["episode_0.txt", "episode_1.txt"]


def test_replay_of_ones_own_in_a_pool(tmp_path: Path) -> None:
    """Advanced 3 in a pool: the method is called by name."""
    with pool_of("inline", Filmed, [{}]) as pool:
        pool.call("enable_save_replay", str(tmp_path))
        pool.reset()
    assert [path.name for path in tmp_path.iterdir()] == ["episode_0.txt"]


def test_differs_replays_need_no_code(tmp_path: Path) -> None:
    """There each env writes its own. Here it inherits one that films ``render()``, in files named as is advised."""

    class Drawn(PondEnv):
        def render(self) -> np.ndarray:
            return np.zeros((32, 32, 3), np.uint8)

    with manager_of("serial", Drawn, [{}, {}], episode_num=2) as manager:
        manager.enable_save_replay(str(tmp_path))
        manager.launch()
        while not manager.done:
            manager.step(dict.fromkeys(manager.ready_obs, 1))
    expected = [f"env_{env_id}_episode_{episode:04}.mp4" for env_id in range(2) for episode in range(2)]
    assert sorted(path.name for path in tmp_path.iterdir()) == expected


# ---- advanced 4: cfgs to train and to evaluate ---------------------------------------------------


class ByTask(PondEnv):
    """Rewards are signs in training and as they are in evaluation; its cfgs are made as in the document."""

    @staticmethod
    def create_collector_env_cfg(cfg: dict) -> list[dict]:
        collector_env_num = cfg.pop("collector_env_num")
        cfg = copy.deepcopy(cfg)
        cfg.is_train = True
        return [cfg for _ in range(collector_env_num)]

    @staticmethod
    def create_evaluator_env_cfg(cfg: dict) -> list[dict]:
        evaluator_env_num = cfg.pop("evaluator_env_num")
        cfg = copy.deepcopy(cfg)
        cfg.is_train = False
        return [cfg for _ in range(evaluator_env_num)]

    def step(self, action: np.ndarray) -> BaseEnvTimestep:
        timestep = super().step(action)
        return timestep._replace(reward=np.sign(timestep.reward)) if self._cfg.is_train else timestep


class Inheriting(ByTask):
    create_collector_env_cfg = staticmethod(BaseEnv.create_collector_env_cfg)
    create_evaluator_env_cfg = staticmethod(BaseEnv.create_evaluator_env_cfg)


@pytest.mark.parametrize("env_fn", [ByTask, Inheriting])
def test_cfgs_differ_between_training_and_evaluation(env_fn: Any) -> None:
    """Advanced 4: both lists from one cfg, ``is_train`` true and false, one's own or the inherited functions."""
    cfg = EasyDict(collector_env_num=2, evaluator_env_num=3, length=4)
    collector_env_cfg = env_fn.create_collector_env_cfg(cfg)
    evaluator_env_cfg = env_fn.create_evaluator_env_cfg(cfg)
    assert [one.is_train for one in collector_env_cfg + evaluator_env_cfg] == [True] * 2 + [False] * 3
    for way in IN_ONE_PROCESS:
        signs = [reward for (one,) in play(way, env_fn, collector_env_cfg) for reward in one.rewards]
        assert set(signs) <= {-1.0, 0.0, 1.0}
        rewards = [reward for (one,) in play(way, env_fn, evaluator_env_cfg) for reward in one.rewards]
        assert not set(rewards) <= {-1.0, 0.0, 1.0}


def test_differs_inherited_cfgs_leave_the_callers() -> None:
    """There the number is taken out of the caller's cfg, so that a second call fails, and all envs share one object."""
    cfg = EasyDict(collector_env_num=2, nested={"a": 1})
    for _ in range(2):
        one, two = Inheriting.create_collector_env_cfg(cfg)
        one.nested.a = 5
        assert (two.nested.a, cfg.nested.a, cfg.collector_env_num) == (1, 1, 2)
