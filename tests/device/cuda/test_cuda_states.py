"""Saved states of envs on a GPU, and checkpoints: they go on bit for bit, here, in other pools, in other processes."""

from __future__ import annotations

import contextlib
import gc
import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepmill
from stepmill import errors
from support.cuda_pools import Both, HostGpu
from support.probes import assert_same
from support.processes import child, went_well

FAILS = Path(__file__).parents[2] / "support" / "fails.h"
N = 4
MAPS = ["SFFF\nFHFH\nFFFH\nHFFG", "SFFH\nFFFF\nFFFF\nFFFG"]
LAKES = {
    "one map": {},
    "random maps": {"map_name": ""},
    "two maps": {"env_config": [{"desc": MAPS[i % 2]} for i in range(N)]},
}
ACTION = np.array([1, 2, 1, 2])


@pytest.fixture
def make_pool(gpu: HostGpu, make: Any) -> Callable[..., Any]:
    def made(task: Any = "CartPole-v1", view: str = "gymnasium", **arguments: Any) -> Any:
        return make(task, view, **{"num_envs": N, "seed": 5, "backend": "cuda", **arguments})

    return made


def play(pool: Any, steps: int = 60) -> list[Any]:
    pool.action_space.seed(1)
    return [pool.step(pool.action_space.sample()) for _ in range(steps)]


@pytest.mark.parametrize("task", ["CartPole-v1", "Blackjack-v1", "Taxi-v3"])
def test_what_is_restored_goes_on(make_pool: Any, task: str) -> None:
    pool = make_pool(task)
    pool.reset()
    play(pool, 13)
    states = pool.save()
    expected = play(pool)
    other = make_pool(task, seed=99)
    other.reset()
    for one, given in ((pool, states), (other, pickle.loads(pickle.dumps(states))), (other, list(states))):
        one.restore(given)
        assert_same(play(one), expected)
    assert other.np_random_seed == pool.np_random_seed == (5, 6, 7, 8)


@pytest.mark.parametrize("lake", LAKES)
def test_maps_go_with_their_envs(make_pool: Any, lake: str) -> None:
    """What an env reads is elsewhere on the GPU: its address means nothing to another pool."""
    pool = make_pool("FrozenLake-v1", **LAKES[lake])
    pool.reset()
    states, expected = pool.save(), play(pool)
    content = pickle.dumps(states)
    pool.close()  # with the maps
    other = make_pool("FrozenLake-v1", **LAKES[lake])
    other.reset()
    for _ in range(2):
        other.restore(pickle.loads(content))
        assert_same(play(other), expected)


def test_a_random_map_can_be_given_to_others(make_pool: Any) -> None:
    pool = make_pool("FrozenLake-v1", map_name="", is_slippery=False)
    pool.reset()
    states = pool.save()
    pool.restore(states[0])
    actions = np.random.default_rng(0).integers(0, 4, 100)
    for action in actions:
        observation = pool.step(np.full(N, action))[0]
        assert len(set(observation.tolist())) == 1
    pool.restore(states)


@pytest.mark.parametrize("task", ["Taxi-v3", "FrozenLake-v1"])
def test_states_go_to_any_envs_in_any_order(make_pool: Any, task: str) -> None:
    """Whether they are still on the GPU, of one save or of several, or have been on the host."""
    config = {"map_name": ""} if task == "FrozenLake-v1" else {}
    pool = make_pool(task, **config)
    pool.reset()
    play(pool, 5)
    early = pool.save()
    play(pool, 5)
    late = pool.save([3, 1])
    seeds = pool.np_random_seed
    pool.reset(seed=70)
    wanted = {0: late[0], 2: early[1], 1: late[1], 3: early[0]}
    whose = {0: seeds[3], 2: seeds[1], 1: seeds[1], 3: seeds[0]}

    def shown() -> list[Any]:
        assert pool.np_random_seed == tuple(whose[one] for one in range(N))
        return [pool.save()[one] for one in range(N)]

    pool.restore([wanted[one] for one in (0, 1, 2, 3)])
    expected = [bytes(one) for one in shown()]
    assert expected == [bytes(wanted[one]) for one in range(N)]
    assert [bytes(one) for one in early[:2]] == [bytes(wanted[3]), bytes(wanted[2])]
    pool.reset(seed=80)
    pool.restore([late[1], late[0]], [1, 0])
    pool.restore(early[1::-1], [2, 3])
    assert [bytes(one) for one in shown()] == expected
    pool.reset(seed=90)
    for one in (2, 0):
        pool.restore(wanted[one], [one])
    pool.restore(pickle.loads(pickle.dumps([wanted[3], wanted[1]])), [3, 1])
    assert [bytes(one) for one in shown()] == expected
    pool.fork(2, [0, 3])
    assert [bytes(one) for one in pool.save([0, 2, 3])] == [expected[2]] * 3


def test_a_state_keeps_only_itself_and_what_envs_read(gpu: HostGpu) -> None:
    gc.collect()
    before = gpu.left()["allocated"]
    pool = stepmill.make("FrozenLake-v1", num_envs=N, backend="cuda", map_name="")
    pool.reset()
    state = pool.save([3])
    pool.step(ACTION)
    pool.close()
    del pool
    gc.collect()
    assert gpu.left()["allocated"] == before + 2  # it, and the maps, which are one block
    assert bytes(state[0])
    del state
    assert gpu.left()["allocated"] == before


def test_states_outlive_their_pool(make_pool: Any) -> None:
    pool = make_pool("FrozenLake-v1", map_name="")
    pool.reset()
    states, expected = pool.save(), play(pool)
    pool.close()
    del pool
    other = make_pool("FrozenLake-v1", map_name="", seed=6)
    other.restore(states)
    assert_same(play(other), expected)


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
def test_a_forked_child_cannot_ask_the_gpu_for_states(make_pool: Any) -> None:
    pool = make_pool()
    pool.reset()
    asked, states = pool.save(), pool.save()
    known = bytes(asked[0])

    def in_child() -> None:
        assert bytes(asked[0]) == known  # they had come to the host
        with pytest.raises(errors.ForkedError, match="pickle them before the fork"):
            pickle.dumps(states)

    assert went_well(child(in_child))
    assert len(pool.restore(states)[0]) == N


def test_a_state_of_another_map_is_refused(make_pool: Any) -> None:
    pool = make_pool("FrozenLake-v1", **LAKES["two maps"])
    pool.reset()
    states = pool.save()
    before = play(pool, 3)
    with pytest.raises(errors.StateError, match="env 1 cannot take a state of another configuration"):
        pool.restore(states[0])
    with pytest.raises(errors.StateError, match="env 1 cannot take a state of another configuration"):
        pool.fork(0, [2, 1])
    pool.restore(states)
    assert_same(play(pool, 3), before)
    pool.fork(0, [2])
    with pytest.raises(errors.StateError, match="env 0 cannot take a state of another max_episode_steps"):
        make_pool("FrozenLake-v1", **LAKES["two maps"], max_episode_steps=7).restore(states)


def test_states_that_do_not_fit_are_refused(make_pool: Any) -> None:
    pool = make_pool()
    pool.reset()
    with stepmill.make("CartPole-v1", num_envs=N) as threads:
        threads.reset()
        foreign = threads.save()
        with pytest.raises(errors.StateError, match="another kind"):
            threads.restore(pool.save())
    damaged = bytearray(pickle.dumps(pool.save()))
    damaged[damaged.index(bytes(pool.save()[0])[:16])] ^= 1
    with pytest.raises(errors.StateError, match="damaged"):
        pickle.loads(bytes(damaged))
    for states in (foreign, foreign[0], 3, None, [], [pool.save()], pool.save([0, 1])):
        with pytest.raises(errors.InputError):
            pool.restore(states)
    for by in ("fork", "pickle", "memory"):
        with pytest.raises(errors.UnsupportedError, match=r"^save: by: expected 'arrays'"):
            pool.save(by=by)
    assert pool.state_kind == "arrays"
    assert pool.step(ACTION % 2)[4]["elapsed_step"].tolist() == [1] * N


def test_nobody_saves_what_has_not_begun_or_is_in_flight(both: Callable[..., Both]) -> None:
    pools = both("CartPole-v1")
    for pool in pools.pools:
        with pytest.raises(errors.NeedsResetError, match="env 0 was never reset"):
            pool.save()
        pool.reset()
        pool.send([1], [2])
        for call in (pool.save, lambda pool=pool: pool.fork(0, [2]), lambda pool=pool: pool.fork(2, [0])):
            with pytest.raises(errors.InFlightError):
                call()


@pytest.mark.parametrize("in_flight", [None, [0, 2], [3, 2, 1, 0]])
@pytest.mark.parametrize("view", ["gymnasium", "gym", "dm"])
def test_a_checkpoint_goes_on_with_what_was_in_flight(make_pool: Any, view: str, in_flight: list[int] | None) -> None:
    pool = make_pool("FrozenLake-v1", view, autoreset="same_step", max_episode_steps=3, map_name="")
    pool.reset()
    pool.step(ACTION)
    if in_flight is not None:
        pool.send(ACTION[in_flight], in_flight)
    file = io.BytesIO()
    pool.checkpoint(file)
    file.seek(0)
    with stepmill.resume(file) as again:
        assert again.in_flight == pool.in_flight == sorted(in_flight or [])
        calls = [lambda one: one.recv()] if in_flight is not None else []
        calls += [lambda one: one.step(ACTION)] * 9 + [lambda one: one.reset()]
        for call in calls:
            assert_same(call(again), call(pool))
        assert again.stats()["steps"] == pool.stats()["steps"]
        assert again.stats()["episodes"] == pool.stats()["episodes"]


def test_a_pool_that_has_not_begun_resumes_with_its_seeds(make_pool: Any) -> None:
    pool, file = make_pool(seed=[7, 2, 9, 4]), io.BytesIO()
    pool.checkpoint(file)
    file.seek(0)
    with stepmill.resume(file) as again:
        assert again.np_random_seed == (7, 2, 9, 4)
        with pytest.raises(errors.NeedsResetError):
            again.save()
        assert_same(play(again, 10), play(pool, 10))
    file.seek(0)
    with pytest.raises(errors.StateError):
        stepmill.resume(file, max_episode_steps=3)


def test_episodes_are_counted_where_they_ended(both: Callable[..., Both]) -> None:
    """Not where a state goes to, as on threads."""
    pools = both("CartPole-v1", num_envs=N)
    counts: list[tuple[int, int]] = []

    def counted() -> None:
        counts.append(pools.do(lambda pool: pool.stats()["episodes"]))

    pools.do(lambda pool: pool.reset())
    pools.do(lambda pool: [pool.step(np.zeros(N, int)) for _ in range(50)])
    counted()
    states = [pool.save() for pool in pools.pools]
    pools.do(lambda pool: pool.fork(0, [1, 2, 3]))
    counted()
    pools.do(lambda pool: [pool.step(np.zeros(N, int)) for _ in range(60)])
    for pool, saved in zip(pools.pools, states, strict=True):
        pool.restore(saved)
    counted()
    assert all(got == expected for got, expected in counts)
    assert 0 < counts[0][0] == counts[1][0] < counts[2][0]


def test_a_resumed_pool_has_what_was_counted_and_noted(both: Callable[..., Both], tmp_path: Any) -> None:
    pools = both(str(FAILS), num_envs=N, env_config=[{"where": 2 * (one == 2), "when": 3} for one in range(N)])
    for pool in pools.pools:
        pool.reset()
        for _ in range(12):
            with contextlib.suppress(errors.EnvError):
                pool.step(np.zeros(N, np.float32))
    pools.gpu.checkpoint(tmp_path / "run.pool")
    with pytest.raises(errors.EnvError):
        pools.gpu.check()
    with stepmill.resume(tmp_path / "run.pool") as again:
        with pytest.raises(errors.EnvError, match="env 2 failed"):  # which nobody was told of
            again.check()
        found, expected = again.stats(), pools.cpu.stats()
        for name in ("steps", "batches", "episodes", "failures"):
            assert found[name] == expected[name] > 0, name


@pytest.mark.parametrize(("first", "then"), [("cuda", "thread"), ("thread", "cuda"), ("cuda", "inline")])
def test_a_checkpoint_goes_on_where_it_was(gpu: HostGpu, first: str, then: str) -> None:
    file = io.BytesIO()
    with stepmill.make("CartPole-v1", num_envs=N, backend=first) as pool:
        pool.reset()
        pool.checkpoint(file)
    file.seek(0)
    with pytest.raises(errors.StateError, match=f"backend='{then}' was given, and .* backend='{first}'"):
        stepmill.resume(file, backend=then)


@pytest.mark.parametrize("device", ["cpu", "cuda", "cuda:0"])
def test_a_checkpoint_goes_on_on_any_gpu(gpu: HostGpu, device: str) -> None:
    file = io.BytesIO()
    with stepmill.make("CartPole-v1", num_envs=N, backend="cuda") as pool:
        pool.reset()
        pool.checkpoint(file)
        expected = pool.step(np.zeros(N, int))[0]
    file.seek(0)
    with stepmill.resume(file, backend="cuda", device=device) as again:
        assert np.array_equal(again.step(np.zeros(N, int))[0], expected)


def test_all_memory_is_counted(make_pool: Any) -> None:
    pool = make_pool("FrozenLake-v1", map_name="")
    pool.reset()
    before = pool.stats()["memory_bytes"]
    states = pool.save()
    with_states = pool.stats()["memory_bytes"]
    assert with_states - before >= 128 * N  # at least their generators
    kept = [pool.step(ACTION) for _ in range(3)]
    del states
    gc.collect()
    assert pool.stats()["memory_bytes"] < with_states + len(kept) * before
    assert pool.stats()["memory_bytes"] >= before
