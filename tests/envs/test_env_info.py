"""``info()``, the older form of spaces: records like named tuples, and spaces derived from an env's own ``info()``."""

from __future__ import annotations

import copy
import pickle
from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

import stepmill
from stepmill.envs import BaseEnv, BaseEnvInfo, BaseEnvTimestep, EnvElementInfo
from stepmill.envs.env_info import element_info_of
from stepmill.errors import ConfigError, EnvError, SpaceError
from stepmill.managers import BaseEnvManager, SyncSubprocessEnvManager

UNSIGNED = spaces.Box(np.array([3, 0], np.uint64), np.full(2, 2**64 - 1, np.uint64), dtype=np.uint64)
FLOATS = {"min": -1.0, "max": 1.0, "dtype": np.float32}


class Old(BaseEnv):
    """Has ``info()`` and no spaces; what it says is in the cfg."""

    def reset(self, **kwargs: Any) -> Any:
        return np.zeros(3, np.float32)

    def step(self, action: Any) -> BaseEnvTimestep:
        return BaseEnvTimestep(np.zeros(3, np.float32), np.ones(1, np.float32), False, {})

    def close(self) -> None:
        pass

    def info(self) -> Any:
        said = {"agent_num": 1, "obs_space": element((3,)), "act_space": choice(2), "rew_space": element((1,))}
        return BaseEnvInfo(**{**said, **(self._cfg or {})})


def element(shape: Any, value: Any = None) -> EnvElementInfo:
    return EnvElementInfo(shape, value)


def choice(n: int, dtype: Any = np.int64) -> EnvElementInfo:
    return EnvElementInfo((n,), {"min": 0, "max": n, "dtype": dtype})


# ---- records -------------------------------------------------------------------------------------


def test_records_are_like_named_tuples_that_can_be_changed() -> None:
    info = BaseEnvInfo(1, element((3,)), choice(2), None)
    assert BaseEnvInfo._fields == ("agent_num", "obs_space", "act_space", "rew_space", "use_wrappers")
    assert EnvElementInfo._fields[:2] == ("shape", "value")
    agents, _, act_space, *rest = info
    assert (agents, act_space.shape, rest, len(info)) == (1, (2,), [None, None], 5)
    assert info[0] == 1
    assert info[-2:] == (None, None)
    info.agent_num = 2
    info[3] = element((1,))
    changed = info._replace(agent_num=3)
    assert (info.agent_num, info.rew_space.shape, changed.agent_num) == (2, (1,), 3)
    assert list(info._asdict()) == list(BaseEnvInfo._fields)
    with pytest.raises(TypeError):
        info._replace(agents=3)
    assert pickle.loads(pickle.dumps(info)) == info == copy.deepcopy(info)


def test_fields_can_be_added() -> None:
    wider = namedtuple("wider", [*BaseEnvInfo._fields, "world"])
    assert wider(*BaseEnvInfo(1, None, None, None), world="flat").world == "flat"

    @dataclass
    class Wider(BaseEnvInfo):
        world: str = "flat"

    assert Wider._fields == (*BaseEnvInfo._fields, "world")
    assert Wider(1, None, None, None)[-1] == "flat"


# ---- spaces --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "space"),
    [
        (element((3,), FLOATS), spaces.Box(-1, 1, (3,), np.float32)),
        (element((3,)), spaces.Box(-np.inf, np.inf, (3,), np.float32)),
        (element(2, {"min": 0}), spaces.Box(0, np.inf, (2,), np.float32)),
        (element([2, 2], {"dtype": "uint8"}), spaces.Box(0, 255, (2, 2), np.uint8)),
        (element((), {"dtype": "int64", "min": -np.inf, "max": 5}), spaces.Box(-(2**63), 5, (), np.int64)),
        (element((), {"dtype": "int64"}), spaces.Box(-(2**63), 2**63 - 1, (), np.int64)),
        (element((2,), {"dtype": "uint64", "min": [3, -1]}), UNSIGNED),
        (element((1,), {"dtype": bool}), spaces.Box(np.zeros(1, bool), np.ones(1, bool), dtype=bool)),
        (
            element((2,), {"min": [0, -1], "max": np.array([1, 1])}),
            spaces.Box(np.array([0, -1], np.float32), np.ones(2, np.float32)),
        ),
        (choice(2), spaces.Box(0, 2, (2,), np.int64)),  # only an action is a choice
        (
            element({"a": (1,), "b": {"c": ()}}),
            spaces.Dict(a=(box := spaces.Box(-np.inf, np.inf, (1,))), b=spaces.Dict(c=spaces.Box(-np.inf, np.inf, ()))),
        ),
        (element({"a": (1,)}, {"a": FLOATS}), spaces.Dict(a=spaces.Box(-1, 1, (1,)))),
        (element({"a": (1,)}, FLOATS), spaces.Dict(a=spaces.Box(-1, 1, (1,)))),
        (element(((1,), (1,)), (FLOATS, None)), spaces.Tuple([spaces.Box(-1, 1, (1,)), box])),
        ({"a": element((1,))}, spaces.Dict(a=box)),
        ([element((1,)), element((1,))], spaces.Tuple([box, box])),
        (namedtuple("short", "shape value")((1,), None), box),
        (box, box),
    ],
)
def test_an_observation_space_comes_from_info(said: Any, space: spaces.Space[Any]) -> None:
    assert Old({"obs_space": said}).observation_space == space


@pytest.mark.parametrize(
    ("said", "space"),
    [
        (choice(4), spaces.Discrete(4)),
        (choice(4, "int32"), spaces.Discrete(4)),
        (choice(1), spaces.Discrete(1)),
        (choice(2, np.float32), spaces.Discrete(2)),  # what policies return is float32, and some write that
        (element((1,), {"min": 0, "max": 1, "dtype": np.float32}), spaces.Box(0, 1, (1,), np.float32)),
        (element((2,), {"min": 0.0, "max": 2.0, "dtype": np.float32}), spaces.Box(0, 2, (2,), np.float32)),
        (element((2,), {"min": 0, "max": 3, "dtype": np.int64}), spaces.Box(0, 3, (2,), np.int64)),
        (element({"kind": (3,)}, {"kind": choice(3).value}), spaces.Dict(kind=spaces.Discrete(3))),
    ],
)
def test_an_action_space_comes_from_info(said: Any, space: spaces.Space[Any]) -> None:
    assert Old({"act_space": said}).action_space == space


@pytest.mark.parametrize("space", [spaces.Discrete(5), spaces.Box(-2, 2, (3,)), spaces.Dict(a=spaces.Box(0, 1, ()))])
def test_spaces_of_actions_survive_both_ways(space: spaces.Space[Any]) -> None:
    assert Old({"act_space": element_info_of(space)}).action_space == space


def test_rewards_and_agents_come_from_info() -> None:
    env = Old({"rew_space": element(1, {"min": -1, "max": 1, "dtype": np.float32}), "agent_num": 3})
    assert env.reward_space == spaces.Box(-1, 1, (1,), np.float32)
    assert env.num_agents == env.num_agent == 3
    silent = Old({"rew_space": None, "agent_num": None})
    assert (silent.reward_space, silent.num_agents) == (BaseEnv.reward_space, 1)
    for wrong in ("two", 2.5, 0):
        with pytest.raises(ConfigError, match=r"Old: info\(\).agent_num: expected a whole number"):
            Old({"agent_num": wrong}).num_agents  # noqa: B018


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (element(None), "obs_space: expected a shape"),
        (element("many"), "obs_space: expected a shape"),
        (element((3,), {"min": [0, 0]}), "obs_space: expected a shape"),
        (element((3,), {"dtype": "floaty"}), "floaty"),
        (element((3,), 7), "None or a dict with min, max and dtype"),
        (element({"a": "b"}), r"obs_space\['a'\]: expected a shape"),
        (7, r"expected an EnvElementInfo\(shape, value\), got 7"),
    ],
)
def test_what_cannot_be_derived_says_what_to_add(said: Any, words: str) -> None:
    with pytest.raises(SpaceError, match=words):
        Old({"obs_space": said}).observation_space  # noqa: B018


def test_an_env_without_either_says_what_to_add() -> None:
    class Neither(Old):
        info = BaseEnv.info

    with pytest.raises(AttributeError, match="Neither has no observation_space: set it in __init__ or as a class attr"):
        Neither().observation_space  # noqa: B018
    assert not hasattr(Neither(), "action_space")
    with pytest.raises(AttributeError, match=r"or let info\(\) return a BaseEnvInfo with obs_space"):
        Old({"obs_space": None}).observation_space  # noqa: B018
    with pytest.raises(EnvError, match="Neither has no observation_space: set it"):
        stepmill.make(Neither, backend="inline")


@pytest.mark.parametrize("manager", [BaseEnvManager, SyncSubprocessEnvManager])
def test_an_info_that_is_not_implemented_says_nothing(manager: Any) -> None:
    class Silent(Old):
        action_space = spaces.Discrete(2)

        def info(self) -> Any:
            raise NotImplementedError("no such game")

    with pytest.raises(EnvError, match=r"Silent: expected an observation_space .* NotImplementedError: no such game"):
        stepmill.make(Silent, backend="inline")
    with manager(Silent, [{}], 1, cfg={"shared_memory": False}) as envs:
        envs.launch()
        assert envs.step({0: 1})[0].reward == 1


def test_an_info_that_asks_for_the_spaces_it_is_to_say_is_no_endless_loop() -> None:
    class Circle(Old):
        def info(self) -> Any:
            return BaseEnvInfo(1, element_info_of(self.observation_space), choice(2), None)

    with pytest.raises(SpaceError, match="Circle: expected an observation_space and an action_space, or an info"):
        Circle().action_space  # noqa: B018


def test_spaces_of_the_env_are_preferred_and_info_is_not_asked() -> None:
    class Both(Old):
        action_space = spaces.Discrete(7)

        def __init__(self, cfg: Any = None) -> None:
            super().__init__(cfg)
            self.observation_space = spaces.Box(0, 1, (3,))

        def info(self) -> Any:
            raise AssertionError

    env = Both()
    assert (env.observation_space.shape, env.action_space.n, env.num_agents) == ((3,), 7, 1)  # type: ignore[attr-defined]
    assert env.reward_space == BaseEnv.reward_space


def test_an_action_space_comes_from_info_beside_an_observation_space_of_the_env() -> None:
    class Half(Old):
        observation_space = spaces.Box(0, 1, (3,))

    assert Half({"agent_num": 3}).action_space == spaces.Discrete(2)
    assert Half({"agent_num": 3}).num_agents == 1


def test_an_env_that_refuses_new_attributes_has_spaces_from_info() -> None:
    class Strict(Old):
        def __setattr__(self, name: str, value: Any) -> None:
            if name != "_cfg":
                raise TypeError(f"no {name} here")
            super().__setattr__(name, value)

    assert Strict().observation_space.shape == (3,)


class Simulator:
    built = 0

    def __init__(self) -> None:
        type(self).built += 1
        self.observation_space = spaces.Box(-3, 3, (3,))
        self.is_open = True


class Lazy(Old):
    """Its ``info()`` needs the simulator, which only ``reset`` builds."""

    def reset(self, **kwargs: Any) -> Any:
        if not hasattr(self, "_env"):
            self._env = Simulator()
        if not self._env.is_open:
            raise RuntimeError("a closed simulator does not open again")
        return super().reset()

    def close(self) -> None:
        self._env.is_open = False

    def info(self) -> Any:
        return super().info()._replace(obs_space=element((3,), {"min": self._env.observation_space.low, "max": 3.0}))


def test_a_copy_is_reset_if_info_needs_the_simulator() -> None:
    Simulator.built = 0
    env = Lazy()
    assert env.observation_space == spaces.Box(-3, 3, (3,))
    assert env.action_space == spaces.Discrete(2)
    assert Simulator.built == 1  # asked once
    assert not hasattr(env, "_env")
    env.reset()  # its own simulator is open


@pytest.mark.parametrize("manager", [BaseEnvManager, SyncSubprocessEnvManager])
@pytest.mark.parametrize("env", [Old, Lazy])
def test_managers_and_pools_run_envs_without_spaces(env: type[Old], manager: Any) -> None:
    with manager(env, [{}] * 2, 2) as envs:
        envs.launch()
        assert envs.action_space == spaces.Discrete(2)
        assert envs.step({0: 1, 1: np.array([0])})[1].reward == 1
    pool = stepmill.make(env, num_envs=2, backend="inline")
    assert pool.single_action_space == spaces.Discrete(2)
    pool.reset()
    assert pool.step(np.array([0, 1]))[0].shape == (2, 3)
    pool.close()


@pytest.mark.parametrize("manager", [BaseEnvManager, SyncSubprocessEnvManager])
def test_without_shared_memory_no_observation_space_is_needed(manager: Any) -> None:
    class Strange(Old):
        def reset(self, **kwargs: Any) -> Any:
            return {"anything": {1, 2}}

        def step(self, action: Any) -> BaseEnvTimestep:
            return super().step(action)._replace(obs=("a", {}))

    for said in (None, element("nonsense")):
        with manager(Strange, [{"obs_space": said}], 1, cfg={"shared_memory": False}) as envs:
            envs.launch()
            assert envs.ready_obs == {0: {"anything": {1, 2}}}
            assert envs.step({0: 1})[0].obs == ("a", {})
            assert envs.observation_space is None
        with manager(Strange, [{"obs_space": said}], 1) as envs, pytest.raises(EnvError, match="obs_space"):
            envs.launch()


def test_several_agents_of_info_are_players_of_a_pool() -> None:
    class Team(Old):
        def __init__(self, **kwargs: Any) -> None:
            super().__init__({"agent_num": 2, "obs_space": element((2, 3)), "act_space": element((2, 1), FLOATS)})

        def reset(self, **kwargs: Any) -> Any:
            return np.zeros((2, 3), np.float32)

    with stepmill.make(Team, num_envs=2, backend="inline") as pool:
        assert pool.single_action_space.shape == (1,)
        assert pool.reset()[0].shape == (4, 3)
