"""Managers with stacked observations and trees: DI-engine's own are the measure of what comes out."""

import gc
import os
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import treetensor.numpy as tnp
import treetensor.torch as ttorch
from ding.envs import BaseEnvManager, create_env_manager
from ding_envs import Count, Nested
from easydict import EasyDict

from stepmill.envs import BaseEnv, BaseEnvTimestep
from stepmill.errors import ActionError, ConfigError
from stepmill.testing import end_servers

OURS = ["stepmill_base_v2", "stepmill_subprocess_v2"]


def launched(name, env_fn, **cfg):
    manager = create_env_manager(EasyDict(type=name, **cfg), env_fn)
    manager.seed(0, dynamic_seed=False)
    manager.launch()
    return manager


def play(manager, steps, width):
    """The first so many steps of every env: what was ready, and the tree that came back, by env id."""
    seen = {i: [] for i in range(manager.env_num)}
    while any(len(rows) < steps for rows in seen.values()):
        obs = manager.ready_obs
        ids = (obs if isinstance(obs, np.ndarray) else obs["count"])[:, 0].astype(int)  # the seed is the id
        timesteps = manager.step([np.full(width, (i + len(seen[i])) % 2, np.int64) for i in ids])
        assert [one.env_id.item() for one in timesteps] == ids.tolist()
        for row, one in enumerate(timesteps):
            seen[ids[row]].append((obs[row], one))
    return {i: rows[:steps] for i, rows in seen.items()}


def leaves(tree, path=""):
    if isinstance(tree, tnp.ndarray):
        for key in sorted(tree.keys()):
            yield from leaves(tree[key], f"{path}.{key}")
        yield path, "tree"
    else:
        assert type(tree) is np.ndarray, (path, type(tree))
        yield path, tree.dtype, tree.shape, tree.tolist()


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize(("env", "width"), [(Count, 1), (Nested, 2)])
def test_what_comes_out_is_what_comes_out_of_dings_own(name, env, width):
    cfg = {"info": {"a.b": 2.5, "3d": [1, 2], "text": "gone"}}
    with launched(name, [lambda: env(cfg)] * 3) as ours:
        ours.reset()
        stacked = ours.ready_obs
        found = play(ours, 12, width)
    its_cfg = EasyDict(BaseEnvManager.default_config(), type="base_v2")
    theirs = create_env_manager(its_cfg, [lambda: env(cfg)] * 3)
    theirs.seed(0)
    theirs.launch()
    theirs.reset()
    its_stacked = theirs.ready_obs
    expected = play(theirs, 12, width)
    theirs.close()
    assert list(leaves(stacked)) == list(leaves(its_stacked))
    for i in expected:
        assert len(found[i]) == len(expected[i]) == 12
        for (obs, ours_), (its_obs, its) in zip(found[i], expected[i], strict=True):
            assert list(leaves(obs)) == list(leaves(its_obs))
            ours_info = ours_.info
            if its.done:  # ours says more at an end
                assert {"final_eval_reward", "TimeLimit_truncated"} <= set(ours_info.keys())
                for key in ("final_eval_reward", "TimeLimit_truncated"):
                    del ours_info[key]
            assert list(leaves(ours_)) == list(leaves(its))


@pytest.mark.parametrize("name", OURS)
def test_actions_may_be_an_array_or_a_shorter_list(name):
    with launched(name, [Count] * 3) as manager:
        assert len(manager.ready_obs) == 3
        assert [one.obs[3] for one in manager.step(np.array([[0], [1], [2]]))] == [0, 1, 2]
        assert len(manager.ready_obs) == 3
        assert [one.env_id.item() for one in manager.step([np.array([1]), np.array([1])])] == [0, 1]
        assert manager.ready_obs[:, 2].tolist() == [2, 2, 1]


@pytest.mark.parametrize("name", OURS)
def test_more_actions_than_envs_are_refused_and_nothing_is_sent(name):
    with launched(name, [Count] * 2) as manager:
        assert len(manager.ready_obs) == 2
        with pytest.raises(ActionError, match="at most 2"):
            manager.step([np.array([1])] * 3)
        assert len(manager.step([np.array([1])] * 2)) == 2


class Steer(BaseEnv):
    """Shows the parts of its last action."""

    observation_space = gymnasium.spaces.Box(-9, 9, (2,), np.float32)
    action_space = gymnasium.spaces.Dict(
        {"turn": gymnasium.spaces.Box(-9, 9, (1,), np.float32), "go": gymnasium.spaces.Discrete(2)}
    )

    def reset(self):
        return np.zeros(2, np.float32)

    def step(self, action):
        obs = np.array([action["turn"][0], action["go"]], np.float32)
        return BaseEnvTimestep(obs, np.zeros(1, np.float32), False, {})

    def close(self):
        pass


@pytest.mark.parametrize("name", OURS)
def test_actions_may_be_a_tree(name):
    with launched(name, [Steer] * 2) as manager:
        actions = tnp.array({"turn": np.array([[3.0], [4.0]], np.float32), "go": np.array([1, 0])})
        assert [one.obs.tolist() for one in manager.step(actions)] == [[3, 1], [4, 0]]
        rows = [tnp.array({"turn": np.array([k], np.float32), "go": np.array(k)}) for k in range(2)]
        assert [one.obs.tolist() for one in manager.step(rows)] == [[0, 0], [1, 1]]


class Odd:
    def __array__(self, *_, **__):
        raise RuntimeError("no")


@pytest.mark.parametrize("name", OURS)
def test_of_an_info_numbers_remain(name):
    info = {
        "number": 3,
        "flag": True,
        "list": [1.5, 2.5],
        "reversed": np.arange(3)[::-1],
        "swapped": np.array([1.0], ">f4"),
        "none": None,
        "text": "a",
        "texts": ["a", "b"],
        "bytes": b"a",
        "ragged": [[1], [1, 2]],
        "huge": 2**70,
        "long": np.array(1, np.longdouble),
        "object": Odd(),
        "error": ValueError("x"),
        "inner": {"text": "a", "deep": {"value": np.float32(2)}, 7: 1},
    }
    with launched(name, [lambda: Count({"info": info})]) as manager:
        tree = manager.step([np.array([1])])[0]
    tensors = tree.tensor()
    kept = tensors.info
    assert set(kept.keys()) == {"number", "flag", "list", "reversed", "swapped", "inner"} | (
        set() if np.dtype(np.longdouble).itemsize > 8 else {"long"}
    )
    assert (kept.number.item(), kept.flag.item(), kept.list.tolist()) == (3, True, [1.5, 2.5])
    assert (kept.reversed.tolist(), kept.swapped.tolist()) == ([2, 1, 0], [1.0])
    assert (set(kept.inner.keys()), kept.inner.deep.value.item()) == ({"deep", "_7"}, 2.0)


@pytest.mark.parametrize("name", OURS)
def test_observations_are_the_callers_own(name):
    with launched(name, [Count] * 2) as manager:
        obs = manager.ready_obs
        ttorch.as_tensor(obs).zero_()
        assert manager.ready_obs[:, 3].tolist() == [-1, -1]


@pytest.mark.parametrize("name", OURS)
def test_an_abnormal_step_ends_nothing_and_the_env_goes_on(name):
    with launched(name, [lambda: Count({"abnormal_at": 2, "length": 3})]) as manager:
        trees = [tree for _, tree in play(manager, 5, 1)[0]]
    assert [bool(one.done) for one in trees] == [False, False, False, False, True]
    assert "abnormal" in trees[1].info
    assert trees[1].tensor().obs.tolist() == [0, 1, 1, 0]  # the last good one
    assert trees[4].info.eval_episode_return.item() == 1.0  # of the second episode


def test_actions_go_to_those_whose_observations_were_seen(tmp_path):
    release = tmp_path / "release"
    slow = {"length": 1, "release": str(release)}
    fns = [Count, lambda: Count(slow), Count]
    with launched("stepmill_subprocess_v2", fns, num_workers=3) as manager:
        manager.step([np.array([0])] * 3)  # env 1 ends, and its reset waits
        assert manager.ready_obs[:, 0].tolist() == [0, 2]
        release.touch()
        while manager.ready_obs_id != [0, 1, 2]:
            pass
        timesteps = manager.step([np.array([1]), np.array([2])])
        assert [one.env_id.item() for one in timesteps] == [0, 2]
        assert [one.obs[3] for one in timesteps] == [1, 2]
        assert len(manager.ready_obs) == 3


def test_it_waits_for_all_whatever_the_configuration_says():
    with launched("stepmill_subprocess_v2", [Count] * 4, wait_num=1, step_wait_timeout=0.0, num_workers=4) as manager:
        for _ in range(3):
            assert len(manager.step([np.array([0])] * 4)) == 4


def test_nothing_is_ready_when_all_are_done():
    with launched("stepmill_base_v2", [lambda: Count({"length": 1})] * 2, episode_num=1) as manager:
        manager.step([np.array([0])] * 2)
        assert manager.done
        assert manager.ready_obs.shape == (0, 4)


def test_v2_managers_give_no_tensors():
    with pytest.raises(ConfigError, match="numpy"):
        create_env_manager(EasyDict(type="stepmill_base_v2", output="torch"), [Count])


# ---- nobody closes them ----------------------------------------------------------------------------


def descendants(pid):
    """All processes below one."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:  # it has ended meanwhile
        return set()
    return set(children).union(*map(descendants, children))


def test_workers_end_with_the_manager():
    end_servers()
    before = descendants(os.getpid())
    manager = launched("stepmill_subprocess_v2", [Count] * 2)
    assert len(descendants(os.getpid()) - before) > 2
    del manager
    gc.collect()
    assert len(descendants(os.getpid()) - before) <= 1  # the server, which stays for a while


def test_workers_end_with_the_interpreter():
    code = """
import warnings; warnings.simplefilter("ignore")
from ding_envs import Count
import numpy as np
import stepmill.interop.ding as interop
manager = interop.DingSubprocessEnvManagerV2([Count] * 2)
manager.launch()
manager.step([np.array([1])] * 2)
print("stepped", flush=True)
"""
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=Path(__file__).parent)
    assert done.returncode == 0, done.stderr
    assert "stepped" in done.stdout
    assert "ignored" not in done.stderr
    assert "Traceback" not in done.stderr
