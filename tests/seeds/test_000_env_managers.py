"""Env managers, from the document that describes them: what both have, member by member.

Each test names its passage. The env is written as the documents write theirs: ``info()``, no spaces, ``seed(seed)``.
What differs on purpose is a test too, and says why. What only the manager of processes has is in
``test_000_subprocess.py``.
"""

from __future__ import annotations

import inspect
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepmill.envs import BaseEnvTimestep
from stepmill.errors import ClosedError, ConfigError, InFlightError, UsageError
from stepmill.managers import BaseEnvManager, SubprocessEnvManager
from support.envs.contract import Corridor, corridors
from support.waiting import eventually

MANAGERS = {"base": BaseEnvManager, "subprocess": SubprocessEnvManager}
BOTH = pytest.mark.parametrize("kind", MANAGERS)

pytestmark = pytest.mark.usefixtures("deadline", "server")


def make(kind: str, cfgs: list[dict[str, Any]], env_fn: Any = Corridor, **settings: Any) -> BaseEnvManager:
    return MANAGERS[kind](env_fn, cfgs, len(cfgs), retry_waiting_time=0, **settings)


def finish_episodes(manager: Any) -> dict[int, int]:
    """The loop of the document: ask what is ready, then step it. How many steps each env made."""
    steps = dict.fromkeys(range(manager.env_num), 0)
    while not manager.done:
        next_obs = manager.next_obs
        timesteps = manager.step({env_id: np.array(1) for env_id in next_obs})
        for env_id in timesteps:
            steps[env_id] += 1
    return steps


# ---- overview ------------------------------------------------------------------------------------


def test_there_are_two_kinds_and_one_inherits_from_the_other() -> None:
    """Overview, code structure: a loop over envs, and a subclass whose envs are in processes."""
    assert issubclass(SubprocessEnvManager, BaseEnvManager)


@BOTH
def test_envs_of_one_kind_with_different_configurations(kind: str) -> None:
    """Overview: several envs of the same type, each with its own cfg."""
    with make(kind, [{"id": 0, "length": 2}, {"id": 1, "length": 4}], episode_num=1) as manager:
        manager.launch()
        assert manager.cfg == [{"id": 0, "length": 2}, {"id": 1, "length": 4}]
        assert finish_episodes(manager) == {0: 2, 1: 4}


OF_BOTH = ["env_num", "next_obs", "done", "method_name_list", "env_done", "all_done"]
METHODS = ["launch", "reset", "step", "seed", "close"]


@pytest.mark.parametrize("name", OF_BOTH + METHODS)
@BOTH
def test_both_have_the_same_members(kind: str, name: str) -> None:
    """Class definitions, and the note that both are used the same way."""
    assert callable(getattr(MANAGERS[kind], name)) == (name in METHODS)


# ---- __init__ ------------------------------------------------------------------------------------


@BOTH
def test_arguments_of_the_constructor(kind: str) -> None:
    """__init__: four arguments in this order; two more of the second manager."""
    names = list(inspect.signature(MANAGERS[kind]).parameters)
    first = ["env_fn", "env_cfg", "env_num", "episode_num"]
    assert names[:4] == first
    if kind == "subprocess":
        assert names[4:6] == ["timeout", "wait_num"]


@BOTH
def test_arguments_by_position_and_by_name(kind: str) -> None:
    """__init__."""
    cfgs = corridors(2)
    for manager in (
        MANAGERS[kind](Corridor, cfgs, 2),
        MANAGERS[kind](Corridor, cfgs, 2, 3),
        MANAGERS[kind](Corridor, env_cfg=cfgs, env_num=2),
        MANAGERS[kind](env_fn=Corridor, env_cfg=cfgs, env_num=2, episode_num="inf"),
    ):
        assert (manager.env_num, manager.closed) == (2, True)


@BOTH
def test_episode_num_is_inf_by_default(kind: str) -> None:
    """__init__, episode_num: the word, which means no end, or a number."""
    assert MANAGERS[kind].default_config()["episode_num"] == math.inf
    for given in ({}, {"episode_num": "inf"}, {"episode_num": float("inf")}):
        with make(kind, corridors(1, length=1), **given) as manager:
            manager.launch()
            for _ in range(3):
                assert eventually(lambda manager=manager: 0 in manager.next_obs)
                manager.step({0: np.array(1)})
            assert not manager.done


@pytest.mark.parametrize("form", [tuple, iter], ids=["a tuple", "an iterator"])
def test_env_cfg_is_any_iterable(form: Any) -> None:
    """__init__, env_cfg: the type that the signature says."""
    assert BaseEnvManager(Corridor, form(corridors(3)), 3).env_num == 3


@BOTH
def test_as_many_configurations_as_envs(kind: str) -> None:
    """_create_state: asserted at the launch there. Here the constructor refuses: the mistake shows where it is."""
    with pytest.raises(ConfigError, match=r"expected env_num=3 configurations.*got 2"):
        MANAGERS[kind](Corridor, corridors(2), 3)


@BOTH
def test_env_fn_is_called_with_the_cfg(kind: str) -> None:
    """__init__ and _create_state, env_fn: a class, or any function of a cfg, whatever it calls its argument."""
    for env_fn in (Corridor, lambda cfg: Corridor(cfg), lambda one: Corridor({**one, "length": 7})):
        with make(kind, corridors(2), env_fn) as manager:
            manager.launch()
            assert list(manager.next_obs) == [0, 1]


@BOTH
def test_the_cfg_stays_the_caller_s(kind: str) -> None:
    """__init__, env_cfg. Each env has a copy here: what one writes into it reaches neither you nor the others."""

    class Writing(Corridor):
        def __init__(self, cfg: dict) -> None:
            super().__init__(cfg)
            cfg["written"] = cfg.get("written", 0) + 1

    cfg = {"id": 0}
    with make(kind, [cfg, cfg], Writing) as manager:
        manager.launch()
        assert [one["written"] for one in manager.cfg] == [1, 1]
    assert cfg == {"id": 0}


# ---- env_ref -------------------------------------------------------------------------------------


@BOTH
def test_a_reference_env_tells_common_attributes(kind: str) -> None:
    """__init__, the comment on the reference env: shapes of observation and action."""
    manager = make(kind, corridors(2))
    info = manager.env_ref.info()
    assert (info.obs_space.shape, info.act_space.shape) == ((3,), (2,))
    assert manager.env_ref.cfg == {"id": 0}, "of the first cfg"
    assert manager.env_info.obs_space.shape == (3,)


def test_the_reference_env_is_built_when_it_is_asked_for() -> None:
    """__init__, the reference env: built by the constructor there. Here nobody pays for it who does not ask."""
    built = []

    class Built(Corridor):
        def __init__(self, cfg: dict) -> None:
            super().__init__(cfg)
            built.append(cfg["id"])

    manager = make("base", corridors(2), Built)
    assert built == []
    manager.launch()
    assert built == [0, 1]
    assert manager.env_ref is manager.env_ref
    assert built == [0, 1, 0]
    manager.close()


# ---- closed, env_num, method_name_list -----------------------------------------------------------


@BOTH
def test_a_closed_manager_refuses_to_step(kind: str) -> None:
    """_check_closed. An error of its own kind in place of an assertion, which Python can be told to skip."""
    manager = make(kind, corridors(1))
    for _ in range(2):
        with pytest.raises(ClosedError, match=r"not launched: call launch\(\)"):
            manager.step({0: np.array(1)})
        manager.launch()
        manager.close()


@BOTH
def test_env_num(kind: str) -> None:
    """env_num."""
    assert make(kind, corridors(3)).env_num == 3


@BOTH
def test_method_name_list(kind: str) -> None:
    """method_name_list."""
    assert make(kind, corridors(1)).method_name_list == ["reset", "step", "seed", "close"]


# ---- launch --------------------------------------------------------------------------------------


@BOTH
def test_launch_builds_and_resets(kind: str) -> None:
    """launch: builds the envs, then resets them."""
    with make(kind, corridors(2)) as manager:
        assert manager.launch() is None
        assert manager.starts == [[0], [0]]
        assert not manager.closed


@BOTH
def test_launch_with_parameters_of_the_resets(kind: str) -> None:
    """launch, reset_param: a list with the arguments of each env."""
    with make(kind, corridors(2)) as manager:
        manager.launch([{"start": 5}, {}])
        assert manager.starts == [[5], [0]]
        assert manager.next_obs[0].tolist() == [0, 5, 0]


@BOTH
def test_a_launched_manager_is_closed_before_it_is_launched_again(kind: str) -> None:
    """launch, its check. An error of its own kind, as above."""
    with make(kind, corridors(1)) as manager:
        manager.launch()
        with pytest.raises(UsageError, match=r"launched already: close\(\) it first"):
            manager.launch()
        manager.close()
        manager.launch()
        assert list(manager.next_obs) == [0]


# ---- next_obs, done ------------------------------------------------------------------------------


@BOTH
def test_next_obs_has_the_observations_by_env_id(kind: str) -> None:
    """next_obs: of the resets, then of the last steps."""
    with make(kind, corridors(2)) as manager:
        manager.launch()
        assert {i: obs.tolist() for i, obs in manager.next_obs.items()} == {0: [0, 0, 0], 1: [1, 0, 0]}
        timesteps = manager.step({0: np.array(1), 1: np.array(0)})
        assert {i: obs.tolist() for i, obs in manager.next_obs.items()} == {0: [0, 1, 1], 1: [1, -1, 1]}
        assert {i: one.obs.tolist() for i, one in timesteps.items()} == {0: [0, 1, 1], 1: [1, -1, 1]}


@BOTH
def test_next_obs_leaves_out_the_envs_that_are_done(kind: str) -> None:
    """next_obs: only of envs that are not done."""
    with make(kind, [{"id": 0, "length": 1}, {"id": 1, "length": 2}], episode_num=1) as manager:
        manager.launch()
        manager.step({0: np.array(1), 1: np.array(1)})
        assert list(manager.next_obs) == [1]
        manager.step({1: np.array(1)})
        assert manager.next_obs == {}


@BOTH
def test_done_when_every_env_has_played_its_episodes(kind: str) -> None:
    """done, and the count of episodes in step."""
    with make(kind, [{"id": 0, "length": 1}, {"id": 1, "length": 3}], episode_num=2) as manager:
        manager.launch()
        assert not manager.done
        assert finish_episodes(manager) == {0: 2, 1: 6}, "and not one more"
        assert manager.done
        assert manager.episode_count == {0: 2, 1: 2}


@BOTH
def test_what_is_handed_out_is_numpy(kind: str) -> None:
    """_inv_transform: float32 tensors there. Here arrays as the env gave them, and no torch is needed."""
    with make(kind, corridors(1)) as manager:
        manager.launch()
        timestep = manager.step({0: np.array(1)})[0]
        for value in (manager.next_obs[0], timestep.obs, timestep.reward):
            assert (type(value), value.dtype) == (np.ndarray, np.float32)


@pytest.mark.torch
@BOTH
def test_tensors_are_handed_out_on_request(kind: str) -> None:
    """_transform and _inv_transform: tensors in and out, with ``output="torch"``."""
    import torch

    with make(kind, corridors(1), output="torch") as manager:
        manager.launch()
        assert (manager.next_obs[0].dtype, manager.next_obs[0].tolist()) == (torch.float32, [0, 0, 0])
        timestep = manager.step({0: torch.tensor(1)})[0]
        assert (timestep.obs.dtype, timestep.obs.tolist()) == (torch.float32, [0, 1, 1])
        assert (timestep.reward.dtype, timestep.reward.tolist()) == (torch.float32, [1])
        assert isinstance(manager.actions[0][0], np.ndarray)


# ---- reset ---------------------------------------------------------------------------------------


@BOTH
def test_reset_of_all_envs(kind: str) -> None:
    """reset, and item 2 of the list of methods: all envs if nothing is said."""
    with make(kind, corridors(2)) as manager:
        manager.launch()
        manager.step({0: np.array(1), 1: np.array(1)})
        assert manager.reset() is None
        assert [obs[2] for obs in manager.next_obs.values()] == [0, 0]
        assert manager.starts == [[0, 0], [0, 0]]


@BOTH
def test_reset_with_parameters(kind: str) -> None:
    """reset, reset_param: a list with the arguments of each env."""
    with make(kind, corridors(2)) as manager:
        manager.launch()
        manager.reset([{"start": 3}, {"start": 4}])
        manager.reset(reset_param=[{}, {"start": 6}])
        assert manager.starts == [[0, 3, 0], [0, 4, 6]]


@BOTH
def test_automatic_resets_have_the_parameters_of_the_last_reset(kind: str) -> None:
    """_reset: it passes what reset was given."""
    with make(kind, corridors(1, length=1)) as manager:
        manager.launch([{"start": 5}])
        manager.step({0: np.array(1)})
        assert eventually(lambda: 0 in manager.next_obs)
        assert manager.next_obs[0].tolist() == [0, 5, 0]


@BOTH
def test_reset_without_parameters_has_those_of_the_last_one(kind: str) -> None:
    """reset_param is not given: none there. Here the same as last time, as the successor has it; ``{}`` means none."""
    with make(kind, corridors(1)) as manager:
        manager.launch([{"start": 5}])
        manager.reset()
        manager.reset([{}])
        assert manager.starts == [[5, 5, 0]]


@BOTH
def test_reset_of_some_envs(kind: str) -> None:
    """Methods, item 2: a list of env ids, with or without their parameters."""
    with make(kind, corridors(3), wait_num="inf") as manager:
        manager.launch()
        manager.step(dict.fromkeys(range(3), np.array(1)))
        manager.reset(env_id=[1])
        manager.reset([{"start": 8}], env_id=[2])
        assert manager.starts == [[0], [0, 0], [0, 8]]
        assert [obs.tolist() for obs in manager.next_obs.values()] == [[0, 1, 1], [1, 0, 0], [2, 8, 0]]


# ---- step ----------------------------------------------------------------------------------------


@BOTH
def test_step_takes_actions_by_env_id_and_returns_timesteps_by_env_id(kind: str) -> None:
    """step, and item 4 of the list of methods."""
    with make(kind, corridors(2)) as manager:
        manager.launch()
        timesteps = manager.step({0: np.array(1), 1: np.array(0)})
        assert sorted(timesteps) == [0, 1]
        for timestep in timesteps.values():
            assert timestep._fields == BaseEnvTimestep._fields == ("obs", "reward", "done", "info")
        assert timesteps[1].reward.tolist() == [-1]
        assert (timesteps[1].done, timesteps[1].info) == (False, {})
        assert timesteps[1]._replace(obs=None).obs is None
        assert manager.step({1: np.array(1)})[1].obs.tolist() == [1, 0, 2]
        assert manager.steps == [1, 2]


@BOTH
def test_step_of_a_list_of_envs(kind: str) -> None:
    """Methods, item 4: a list of env ids, as in reset."""
    with make(kind, corridors(3), wait_num="inf") as manager:
        manager.launch()
        timesteps = manager.step([np.array(1), np.array(0)], env_id=[2, 0])
        assert {i: one.obs.tolist() for i, one in timesteps.items()} == {0: [0, -1, 1], 2: [2, 1, 1]}
        assert manager.steps == [1, 0, 1]


@BOTH
def test_envs_get_arrays(kind: str) -> None:
    """_transform: an action of any kind becomes an array."""
    with make(kind, corridors(1, length=9)) as manager:
        manager.launch()
        for action in (np.array(1), np.array([1]), 1, [1]):
            manager.step({0: action})
        assert [(type(one), one.item()) for one in manager.actions[0]] == [(np.ndarray, 1)] * 4


@BOTH
def test_the_last_step_of_an_episode_says_so(kind: str) -> None:
    """step: done, with the last observation and the env's own info."""
    with make(kind, corridors(1, length=2)) as manager:
        manager.launch()
        assert manager.step({0: np.array(1)})[0].done is False
        timestep = manager.step({0: np.array(1)})[0]
        assert (timestep.done, timestep.obs.tolist()) == (True, [0, 2, 2])
        assert timestep.info["final_eval_reward"] == 2.0


@BOTH
def test_each_env_is_reset_when_it_ends(kind: str) -> None:
    """step, its end: all are reset when all are done there. Here each at once: none waits for the others."""
    with make(kind, [{"id": 0, "length": 1}, {"id": 1, "length": 3}]) as manager:
        manager.launch()
        manager.step({0: np.array(1), 1: np.array(1)})
        assert eventually(lambda: 0 in manager.next_obs)
        assert {i: obs.tolist() for i, obs in manager.next_obs.items()} == {0: [0, 0, 0], 1: [1, 1, 1]}


@BOTH
def test_all_envs_are_reset_when_all_are_done(kind: str) -> None:
    """step, its end: while there are episodes to play, the next one begins."""
    with make(kind, corridors(2, length=1), episode_num=2) as manager:
        manager.launch()
        manager.step({0: np.array(1), 1: np.array(1)})
        assert eventually(lambda: len(manager.next_obs) == 2)
        assert (manager.starts, manager.done) == ([[0, 0], [0, 0]], False)
        manager.step({0: np.array(1), 1: np.array(1)})
        assert (manager.starts, manager.done) == ([[0, 0], [0, 0]], True)


# ---- seed ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seed", "seeds"), [(7, [7, 8]), ([5, 3], [5, 3]), (np.int64(7), [7, 8])])
@BOTH
def test_seeds_are_a_number_or_a_list(kind: str, seed: Any, seeds: list[int]) -> None:
    """seed: from a number, that and the env's place; a list as it is. The next reset sets them."""
    with make(kind, corridors(2)) as manager:
        assert manager.seed(seed) is None
        manager.launch()
        assert manager.seeds == [[one] for one in seeds]
        assert all(type(one) is int for (one,) in manager.seeds)


@BOTH
def test_seeds_of_a_launched_manager_are_set_by_the_next_reset(kind: str) -> None:
    """seed, and reset: the former only keeps them."""
    with make(kind, corridors(2)) as manager:
        manager.launch()
        manager.seed([4, 9])
        assert manager.seeds == [[], []]
        manager.reset()
        assert manager.seeds == [[4], [9]]


@BOTH
def test_envs_that_nobody_seeded_are_not_seeded(kind: str) -> None:
    """reset: it calls the envs' seed only if there are seeds."""
    with make(kind, corridors(2, length=1)) as manager:
        manager.launch()
        manager.step({0: np.array(1), 1: np.array(1)})
        manager.reset()
        assert manager.seeds == [[], []]


@BOTH
def test_seeds_are_set_once(kind: str) -> None:
    """reset: it sets them again each time there. Here once, so that later episodes are not the first one again."""
    with make(kind, corridors(2, length=1)) as manager:
        manager.seed(7)
        manager.launch()
        manager.reset()
        manager.step({0: np.array(1), 1: np.array(1)})
        assert eventually(lambda: len(manager.next_obs) == 2)
        assert manager.seeds == [[7], [8]]


def test_seeds_stay_when_a_manager_is_launched_again() -> None:
    """seed, and close: what seed keeps is the manager's."""
    with make("base", corridors(2)) as manager:
        manager.seed(7)
        for _ in range(2):
            manager.launch()
            assert manager.seeds == [[7], [8]]
            manager.close()


@BOTH
def test_seeds_of_some_envs(kind: str) -> None:
    """Methods, item 5: a list of env ids."""
    with make(kind, corridors(3)) as manager:
        manager.seed([4, 9], env_id=[2, 0])
        manager.launch()
        assert manager.seeds == [[9], [], [4]]


def test_as_many_seeds_as_envs() -> None:
    """seed: a list that is too short leaves envs without there. Here it is an error."""
    with pytest.raises(ConfigError, match="expected 3 seeds, one per env, got 2"):
        make("base", corridors(3)).seed([1, 2])


# ---- close ---------------------------------------------------------------------------------------


@BOTH
def test_close_closes_every_env(kind: str, tmp_path: Path) -> None:
    """close, and item 3 of the list of methods: the envs; a second call does nothing."""
    manager = make(kind, corridors(2, folder=str(tmp_path)))
    manager.launch()
    assert manager.close() is None
    manager.close()
    assert manager.closed
    assert sorted(one.name for one in tmp_path.iterdir()) == ["closed-0", "closed-1"]


def test_close_closes_the_reference_env(tmp_path: Path) -> None:
    """close: the reference env too."""
    manager = make("subprocess", corridors(1, folder=str(tmp_path)))
    assert manager.env_ref.info().agent_num == 1
    manager.close()
    assert (tmp_path / "closed-0").exists()


# ---- env_done, all_done --------------------------------------------------------------------------


@BOTH
def test_env_done_and_all_done(kind: str) -> None:
    """Methods, items 6 and 7: which envs have finished, and whether all have."""
    with make(kind, [{"id": 0, "length": 1}, {"id": 1, "length": 2}], episode_num=1) as manager:
        manager.launch()
        seen = [(manager.env_done, manager.all_done)]
        for ids in ([0, 1], [1]):
            manager.step(dict.fromkeys(ids, np.array(1)))
            seen.append((manager.env_done, manager.all_done))
        assert seen == [([], False), ([0], False), ([0, 1], True)]
        with pytest.raises(InFlightError, match="0: 'DONE'"):
            manager.step({0: np.array(1)})
