"""The first description of the environment layer (seed 001), from top to bottom: overview and base class."""

from __future__ import annotations

from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepmill
from stepmill.envs import BaseEnv, BaseEnvInfo, BaseEnvTimestep, EnvElement, EnvElementRunner, as_gymnasium, one_hot
from stepmill.envs.common.env_element import EnvElement as ElementOfItsModule
from stepmill.envs.common.env_element import EnvElementInfo
from stepmill.envs.common.env_element_runner import EnvElementRunner as RunnerOfItsModule
from stepmill.errors import EnvError, UnsupportedError
from stepmill.managers import EnvState
from stepmill.testing import check_env
from support.seed_runs import IN_ONE_PROCESS, MANAGERS, POOLS, WAYS, assert_same, manager_of, play, pool_of

FIVE = ["obs", "act", "reward", "done", "info"]

MyTimestep = namedtuple("MyTimestep", FIVE)
MyInfo = namedtuple("MyInfo", [*BaseEnvInfo._fields, "length"])


class Corridor:
    """A simulator with an interface like old Gym's: a walk with a draft that the seed decides."""

    built = 0

    def __init__(self, length: int) -> None:
        type(self).built += 1
        self.length = length
        self.draft = 0.0

    def seed(self, seed: int) -> None:
        self.draft = np.random.RandomState(seed).uniform(-0.1, 0.1)

    def reset(self, place: float = 0.0) -> list[float]:
        self.place, self.time = place, 0
        return [self.place, self.draft]

    def step(self, action: int) -> tuple[list[float], float, bool, dict[str, Any]]:
        self.time += 1
        self.place += action + self.draft
        return [self.place, self.draft], self.place, self.time == self.length, {}

    def close(self) -> None:
        self.length = 0


class CorridorEnv(BaseEnv):
    """What a reader of the document writes: seven methods, no space, and a timestep of five fields."""

    def __init__(self, cfg: dict) -> None:
        self._cfg = cfg
        self._init_flag = False
        self.calls = ["__init__"]

    def reset(self, place: float = 0.0) -> Any:
        self.calls.append("reset")
        if not self._init_flag:
            self._env = Corridor(self._cfg.get("length", 3))
            self._init_flag = True
        if hasattr(self, "_seed"):
            self._env.seed(self._seed)
        self._total = 0.0
        return np.array(self._env.reset(place), np.float32)

    def close(self) -> None:
        if self._init_flag:
            self._env.close()
        self._init_flag = False

    def step(self, action: Any) -> MyTimestep:
        obs, reward, done, info = self._env.step(int(action))
        self._total += reward
        if self._env.time == self._cfg.get("abnormal_at"):
            info["abnormal"] = True
        if done:
            info["final_eval_reward"] = self._total
        return MyTimestep(np.array(obs, np.float32), action, np.array([reward], np.float32), done, info)

    def seed(self, seed: int) -> None:
        self.calls.append("seed")
        self._seed = seed

    def info(self) -> BaseEnvInfo:
        return BaseEnvInfo(
            agent_num=1,
            obs_space=EnvElementInfo((2,), {"min": -100.0, "max": 100.0, "dtype": np.float32}, None, None),
            act_space=EnvElementInfo((2,), {"min": 0, "max": 2, "dtype": np.int64}, None, None),
            rew_space=EnvElementInfo((1,), {"min": -100.0, "max": 100.0, "dtype": np.float32}, None, None),
        )

    def __repr__(self) -> str:
        return f"CorridorEnv({self._cfg})"


# ---- overview, structure of the code -------------------------------------------------------------


def test_overview_the_two_parts_are_where_it_says() -> None:
    """Code structure: the base class for callers, and beside it ``common`` with elements and functions."""
    assert (ElementOfItsModule, RunnerOfItsModule) == (EnvElement, EnvElementRunner)
    assert one_hot([2], 3).tolist() == [[0.0, 0.0, 1.0]]


# ---- BaseEnv: the snippet ------------------------------------------------------------------------


def test_snippet_the_timestep_is_a_namedtuple_of_four() -> None:
    """The definition of BaseEnvTimestep."""
    assert BaseEnvTimestep._fields == ("obs", "reward", "done", "info")
    assert BaseEnvTimestep(1, 2, False, {})._asdict() == {"obs": 1, "reward": 2, "done": False, "info": {}}


def test_snippet_the_info_is_a_namedtuple_of_four() -> None:
    """The definition of BaseEnvInfo; the later document adds ``use_wrappers`` at the end, None unless given."""
    assert BaseEnvInfo._fields == ("agent_num", "obs_space", "act_space", "rew_space", "use_wrappers")
    info = BaseEnvInfo(2, "o", "a", "r")
    assert (info.agent_num, info.obs_space, info.act_space, info.rew_space) == (2, "o", "a", "r")
    assert tuple(info) == (2, "o", "a", "r", None)
    assert info[0] == 2
    assert info._replace(agent_num=3).agent_num == 3
    assert info._asdict() == dict(zip(info._fields, info, strict=True))


@pytest.mark.parametrize("method", ["reset", "step", "close"])
def test_snippet_abstract_methods(method: str) -> None:
    """What an env cannot do without is abstract."""
    others = {name: getattr(CorridorEnv, name) for name in {"reset", "step", "close"} - {method}}
    with pytest.raises(TypeError, match=method):
        type("Partial", (BaseEnv,), others)({})


@pytest.mark.parametrize("method", ["__init__", "seed", "info", "__repr__"])
def test_differs_four_methods_have_a_default(method: str) -> None:
    """There they are abstract too. Here an env that has nothing to add leaves them out."""
    written = {**vars(CorridorEnv), "_init_flag": False, "calls": []}
    written.pop(method)
    env = type("Shorter", (BaseEnv,), written)({"length": 2})
    assert env._cfg == {"length": 2}
    assert "Shorter" in repr(env) or method != "__repr__"
    env.seed(0)
    assert env.reset().shape == (2,)
    env.close()


@pytest.mark.parametrize("name", ["collector", "evaluator"])
def test_snippet_cfgs_of_collectors_and_evaluators(name: str) -> None:
    """As many cfgs as the cfg says, without that key; one where it says nothing. Each serves an env."""
    create = getattr(CorridorEnv, f"create_{name}_env_cfg")
    cfgs = create({"length": 2, f"{name}_env_num": 3})
    assert len(cfgs) == 3
    assert all(cfg["length"] == 2 and f"{name}_env_num" not in cfg for cfg in cfgs)
    assert len(create({})) == 1
    assert len(play("serial", CorridorEnv, cfgs)) == 3


def test_differs_cfgs_are_copies_and_the_callers_stays() -> None:
    """There the key is taken out of the caller's cfg, and all envs share that one object: one env's change is all's."""
    cfg = {"collector_env_num": 2, "map": [1]}
    one, two = CorridorEnv.create_collector_env_cfg(cfg)
    one["map"].append(2)
    assert cfg == {"collector_env_num": 2, "map": [1]}
    assert two["map"] == [1]


def test_snippet_replays_are_optional() -> None:
    """An env without pictures says so with NotImplementedError, once it should draw."""
    env = CorridorEnv({})
    env.enable_save_replay("./video")
    with pytest.raises(NotImplementedError, match="render") as caught:
        env.reset()
    assert isinstance(caught.value, UnsupportedError)


# ---- BaseEnv: its variables ----------------------------------------------------------------------


@pytest.mark.parametrize("way", WAYS)
def test_variables_a_timestep_of_five_fields(way: str) -> None:
    """BaseEnvTimestep of obs, act, reward, done and info, one's own, is read by its names."""
    ((episode, _), _) = play(way, CorridorEnv, [{}, {}], episodes=2)
    places = [float(obs[0]) for obs in episode.observations]
    np.testing.assert_allclose(episode.rewards, places[1:], rtol=1e-6)
    assert episode.info["final_eval_reward"] == pytest.approx(sum(places[1:]))
    assert isinstance(episode.info["final_eval_reward"], float)


@pytest.mark.parametrize("way", MANAGERS)
def test_variables_managers_hand_out_the_five(way: str) -> None:
    """A caller reads the fifth field from the timestep."""
    with manager_of(way, CorridorEnv, [{}]) as manager:
        manager.launch()
        timestep = manager.step({0: 1})[0]
        assert int(timestep.act) == 1
        assert timestep.obs.shape == (2,)
        assert timestep.done is False


def test_variables_pools_have_the_fifth_as_info() -> None:
    """Pools hand out arrays: a field beyond the usual four is a key of the info."""
    with pool_of("inline", CorridorEnv, [{}]) as pool:
        pool.reset()
        assert pool.step(np.array([1]))[-1]["act"].tolist() == [1]


def test_variables_five_values_without_these_names_are_not_a_timestep() -> None:
    """The names decide, never the number: five plain values may be Gymnasium's."""

    class Nameless(CorridorEnv):
        def step(self, action: Any) -> Any:
            return tuple(super().step(action))

    with manager_of("serial", Nameless, [{}]) as manager:
        manager.launch()
        with pytest.raises(EnvError, match="BaseEnvTimestep"):
            manager.step({0: 1})


class WithMoreInfo(CorridorEnv):
    def info(self) -> Any:
        return MyInfo(*super().info(), length=3)


@pytest.mark.parametrize("way", IN_ONE_PROCESS)
def test_variables_an_info_of_ones_own(way: str) -> None:
    """BaseEnvInfo may have more fields: a namedtuple of its fields and one's own."""
    assert WithMoreInfo({}).info().length == 3
    ((episode,),) = play(way, WithMoreInfo, [{}])
    assert len(episode.rewards) == 3


@pytest.mark.parametrize("way", MANAGERS)
def test_variables_the_info_is_there_to_create_networks_from(way: str) -> None:
    """Number of agents and shapes, before anything runs and while it does; one's own fields too."""
    with manager_of(way, WithMoreInfo, [{}, {}]) as manager:
        for _ in range(2):
            info = manager.env_info
            assert (info.agent_num, info.obs_space.shape, info.act_space.shape, info.rew_space.shape) == (
                1,
                (2,),
                (2,),
                (1,),
            )
            assert info.length == 3
            if manager.closed:
                manager.launch()


def test_variables_spaces_come_from_the_info() -> None:
    """An env written from the document has no spaces but its info: they are read from that."""
    env = as_gymnasium(CorridorEnv({}))
    assert env.observation_space.shape == (2,)
    assert env.observation_space.dtype == np.float32
    assert (env.observation_space.low.min(), env.observation_space.high.max()) == (-100, 100)
    assert env.action_space.n == 2


class WrongSpace(CorridorEnv):
    def info(self) -> BaseEnvInfo:
        info = super().info()
        info.obs_space.shape = (3,)
        return info


class NoSpace(CorridorEnv):
    def info(self) -> BaseEnvInfo:
        info = super().info()
        info.obs_space = None
        return info


def test_note_shared_memory_needs_a_true_obs_space() -> None:
    """Note: shared memory is laid out by ``obs_space``, so an observation of another shape is an error that says so."""
    with manager_of("subprocess", WrongSpace, [{}]) as manager, pytest.raises(EnvError, match=r"\(3,\)"):
        manager.launch()


def test_note_without_shared_memory_no_obs_space_is_needed() -> None:
    """The other half of that note."""
    with manager_of("subprocess", NoSpace, [{}], shared_memory=False) as manager:
        manager.launch()
        assert manager.ready_obs[0].shape == (2,)
        assert manager.step({0: 1})[0].obs.shape == (2,)


def test_note_an_obs_space_that_is_missing_is_named() -> None:
    """With shared memory, the error says what to add."""
    with (
        manager_of("subprocess", NoSpace, [{}]) as manager,
        pytest.raises(stepmill.StepmillError, match="observation_space"),
    ):
        manager.launch()


# ---- BaseEnv: its methods ------------------------------------------------------------------------


def test_method_init_stores_and_nothing_more() -> None:
    """1, and the note on lazy construction: asking for dimensions opens no simulator."""
    before = Corridor.built
    assert CorridorEnv({}).info().obs_space.shape == (2,)
    with manager_of("serial", CorridorEnv, [{}]) as manager:
        assert manager.env_info.obs_space.shape == (2,)
    assert Corridor.built == before


def test_method_reset_may_take_arguments() -> None:
    """2: what an episode begins with can be told from outside, in pools by options, in managers by reset_param."""
    assert CorridorEnv({}).reset(place=7.0)[0] == 7
    with pool_of("inline", CorridorEnv, [{}]) as pool:
        assert pool.reset(options={"place": 7.0})[0][0, 0] == 7
    with manager_of("serial", CorridorEnv, [{}, {}]) as manager:
        manager.launch([{"place": 7.0}, {"place": 8.0}])
        assert [obs[0] for obs in manager.ready_obs.values()] == [7, 8]
        manager.reset({1: {"place": 9.0}})
        assert manager.ready_obs[1][0] == 9


@pytest.mark.parametrize("way", ["inline", "serial"])
def test_method_close_frees_the_simulator(way: str) -> None:
    """3: the env's own close is called with the pool or the manager."""
    made: list[CorridorEnv] = []

    def env_fn(cfg: Any) -> CorridorEnv:
        made.append(CorridorEnv(cfg))
        return made[-1]

    play(way, env_fn, [{}, {}])
    assert made
    assert not any(env._init_flag for env in made)


@pytest.mark.parametrize("way", IN_ONE_PROCESS)
def test_method_step_runs_one_step_of_the_action(way: str) -> None:
    """4: one action, one time step; every way of running gives the same."""
    got = play(way, CorridorEnv, [{"length": 2}, {"length": 3}], episodes=2)
    assert [[len(episode.rewards) for episode in episodes] for episodes in got] == [[2, 2], [3, 3]]
    assert_same(got, play("alone", CorridorEnv, [{"length": 2}, {"length": 3}], episodes=2))


@pytest.mark.parametrize("way", ["alone", "inline", "subprocess"])
def test_method_seed_of_one_argument(way: str) -> None:
    """5: ``seed(seed)`` alone; env i of a pool or manager gets seed + i."""
    drafts = [episodes[0].observations[0][1] for episodes in play(way, CorridorEnv, [{}, {}], seed=5)]
    expected = [np.random.RandomState(seed).uniform(-0.1, 0.1) for seed in (5, 6)]
    np.testing.assert_allclose(drafts, expected, rtol=1e-6)


def test_method_info_tells_agents_and_dimensions() -> None:
    """6."""
    agents, obs, act, rew, _ = CorridorEnv({}).info()
    assert (agents, obs.shape, act.shape, rew.shape) == (1, (2,), (2,), (1,))
    assert obs.value["dtype"] is np.float32


def test_method_repr_is_shown_in_errors() -> None:
    """7: the text of the class itself; it is not overwritten."""
    assert repr(CorridorEnv({"length": 9})) == "CorridorEnv({'length': 9})"
    assert "CorridorEnv({'length': 9})" in str(as_gymnasium(CorridorEnv({"length": 9})))


def test_methods_of_collector_and_evaluator_cfgs_are_independent_of_each_other() -> None:
    """8 and 9: an env may write one of them anew and keep the other."""

    class Longer(CorridorEnv):
        @staticmethod
        def create_evaluator_env_cfg(cfg: dict) -> list[dict]:
            return [{**one, "length": 5} for one in BaseEnv.create_evaluator_env_cfg(cfg)]

    cfg = {"length": 2, "collector_env_num": 1, "evaluator_env_num": 2}
    train = play("serial", Longer, Longer.create_collector_env_cfg(cfg))
    test = play("serial", Longer, Longer.create_evaluator_env_cfg(cfg))
    assert [len(one.rewards) for (one,) in train] == [2]
    assert [len(one.rewards) for (one,) in test] == [5, 5]


def test_method_enable_save_replay_of_ones_own(tmp_path: Path) -> None:
    """10: optional, called before the env runs; an env's own way to save is used."""

    class Saving(CorridorEnv):
        def enable_save_replay(self, replay_path: str) -> None:
            self._folder = replay_path

        def step(self, action: Any) -> Any:
            timestep = super().step(action)
            if timestep.done:
                Path(self._folder, f"env_{self.env_id}.txt").write_text("saved")
            return timestep

    with manager_of("serial", Saving, [{}, {}], episode_num=1) as manager:
        manager.enable_save_replay(str(tmp_path))
        manager.launch()
        while not manager.done:
            manager.step(dict.fromkeys(manager.ready_obs, 1))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["env_0.txt", "env_1.txt"]


# ---- BaseEnv: notes, tip and warning -------------------------------------------------------------


class Hasty(CorridorEnv):
    """Builds its simulator in the constructor."""

    def __init__(self, cfg: dict) -> None:
        super().__init__(cfg)
        self._env, self._init_flag = Corridor(cfg.get("length", 3)), True


@pytest.mark.parametrize("way", IN_ONE_PROCESS)
def test_note_a_simulator_built_in_the_constructor_works_too(way: str) -> None:
    """Note: it should be built in ``reset``; whoever builds it earlier may do so."""
    assert_same(play(way, Hasty, [{}, {}]), play("alone", CorridorEnv, [{}, {}]))


def test_note_the_default_timestep_and_info_can_be_imported() -> None:
    """Note: both come from the package of envs."""
    assert {"BaseEnvTimestep", "BaseEnvInfo"} <= set(stepmill.envs.__all__)


@pytest.mark.parametrize("way", ["inline", "serial"])
def test_tip_seed_comes_after_the_constructor_and_before_reset(way: str) -> None:
    """Tip: so ``seed`` need only note the value, and ``reset`` uses it."""
    made: list[CorridorEnv] = []

    def env_fn(cfg: Any) -> CorridorEnv:
        made.append(CorridorEnv(cfg))
        return made[-1]

    play(way, env_fn, [{}])
    played = [env.calls for env in made if "reset" in env.calls]
    assert [calls[:3] for calls in played] == [["__init__", "seed", "reset"]]


def test_differs_seeds_are_set_once() -> None:
    """There a manager seeds again at every reset. Here once: what follows is the env's own affair."""
    with manager_of("serial", CorridorEnv, [{}]) as manager:
        manager.seed(3)
        manager.launch()
        manager.reset()
        manager.reset()
        assert manager.calls == [["__init__", "seed", "reset", "reset", "reset"]]


@pytest.mark.parametrize("way", MANAGERS)
def test_tip_an_env_that_nobody_seeds_is_not_seeded(way: str) -> None:
    """The tip says when ``seed`` is called, if it is: a manager that nobody seeded does not call it."""
    with manager_of(way, CorridorEnv, [{}]) as manager:
        manager.launch()
        assert manager.calls == [["__init__", "reset"]]


@pytest.mark.parametrize("way", IN_ONE_PROCESS)
def test_warning_final_eval_reward_comes_with_the_end(way: str) -> None:
    """Warning 1: a float at ``done``; a manager has it under its later name too."""
    ((episode,),) = play(way, CorridorEnv, [{}])
    assert episode.info["final_eval_reward"] == pytest.approx(sum(episode.rewards))
    if way in MANAGERS:
        assert episode.info["eval_episode_return"] == episode.info["final_eval_reward"]


@pytest.mark.parametrize("way", POOLS)
def test_warning_abnormal_is_flagged_in_pools(way: str) -> None:
    """Warning 2: an optional bool of any step; here it is in the infos, and its data can be dropped."""
    with pool_of(way, CorridorEnv, [{"abnormal_at": 2, "length": 9}, {"length": 9}]) as pool:
        pool.reset()
        infos = [pool.step(np.array([1, 1]))[-1] for _ in range(3)]
    assert [bool(info["abnormal"][0]) if "abnormal" in info else False for info in infos] == [False, True, False]


@pytest.mark.parametrize("way", MANAGERS)
def test_warning_abnormal_marks_the_env_in_managers(way: str) -> None:
    """Warning 2 in a manager: the timestep has the flag and the env waits for a reset; the others go on."""
    with manager_of(way, CorridorEnv, [{"abnormal_at": 1, "length": 9}, {"length": 9}]) as manager:
        manager.launch()
        timesteps = manager.step({0: 1, 1: 1})
        assert timesteps[0].info["abnormal"] is True
        assert "abnormal" not in timesteps[1].info
        assert manager.env_state[0] is EnvState.ERROR
        assert list(manager.ready_obs) == [1]
        manager.reset({0: {}})
        assert sorted(manager.ready_obs) == [0, 1]


def test_warning_the_checker_reads_the_old_form() -> None:
    """The checker takes five fields, an info without spaces and a ``seed`` of one argument.

    It asks for two things more: the return under its later name too, and, since its seed starts each episode of this
    env alike, a new episode after each reset.
    """
    report = check_env(CorridorEnv, {}, print_report=False)
    assert {finding.rule for finding in report} == {"episode_return", "dynamic_seed_renews"}
