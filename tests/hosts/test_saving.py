"""Saved states: an env that is given one goes on as the saved env did, bit for bit."""

from __future__ import annotations

import pickle
import zlib
from typing import Any

import numpy as np
import pytest
from gymnasium.vector.utils import iterate

import stepmill
from stepmill import errors
from stepmill.values.saved_states import FORMAT, SavedState, SavedStates
from support.lanes import Lanes
from support.probes import MODES, VIEWS, GatedPool, assert_same, reset_obs
from support.subprocesses import run_well

STEPS = 300
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "cartpole": ("CartPole-v1", {}),
    "pendulum": ("Pendulum-v1", {}),
    "car": ("MountainCar-v0", {"max_episode_steps": 50}),
    "continuous-car": ("MountainCarContinuous-v0", {"max_episode_steps": 50}),
    "acrobot": ("Acrobot-v1", {"max_episode_steps": 50}),
    "lake": ("FrozenLake-v1", {}),
    "random-lake": ("FrozenLake-v1", {"map_name": "", "success_rate": 0.8}),
    "cliff": ("CliffWalking-v1", {"is_slippery": True, "max_episode_steps": 30}),
    "taxi": ("Taxi-v4", {"is_rainy": True, "fickle_passenger": True, "max_episode_steps": 40}),
    "blackjack": ("Blackjack-v1", {}),
    "catch": ("Catch-v0", {}),
    "chain": ("NChain-v0", {"max_episode_steps": 20}),
    "moving": ("Moving-v0", {"max_episode_steps": 30}),
    "sliding": ("Sliding-v0", {"max_episode_steps": 30}),
    "probe": ("Probe-v0", {"info": True}),
    "template": ("Template-v0", {"length": 5}),
}


@pytest.mark.parametrize("target", ["same", "others", "pool"])
@pytest.mark.parametrize("autoreset", MODES)
@pytest.mark.parametrize("backend", ["thread", "inline"])
@pytest.mark.parametrize("case", CASES)
def test_a_restored_env_goes_on_as_the_saved_one(case: str, backend: str, autoreset: str, target: str) -> None:
    rng = np.random.default_rng(zlib.crc32(f"{case}{backend}{autoreset}{target}".encode()))
    id, config = CASES[case]
    settings: dict[str, Any] = {"num_envs": 4, "backend": backend, "autoreset": autoreset, **config}
    with stepmill.make(id, seed=7, **settings) as pool, stepmill.make(id, seed=99, **settings) as other:
        other.reset()
        pool.reset()
        lanes = Lanes(pool, [(i, 0) for i in range(4)])
        last = lanes.go(int(rng.integers(1, 60)))
        states, at = pool.save(), list(lanes.at)
        expected = lanes.go(STEPS)
        lanes.go(int(rng.integers(0, 30)))

        order = range(4) if target == "same" else rng.permutation(4).tolist()
        to = other if target == "pool" else pool
        observations, info = to.restore([states[i] for i in order])
        for env_id, (shown, i) in enumerate(zip(iterate(to.observation_space, observations), order, strict=True)):
            assert_same(shown, last[i][-1][0])
            assert info["env_id"][env_id] == env_id
        got = Lanes(to, [at[i] for i in order]).go(STEPS)
        for env_id, i in enumerate(order):
            assert_same(got[env_id], expected[i])


@pytest.mark.parametrize("id", ["Ant-v5", "HalfCheetah-v5"])
def test_a_restored_simulator_goes_on_as_the_saved_one(id: str) -> None:
    pytest.importorskip("mujoco")
    with stepmill.make(id, num_envs=2, seed=7) as pool, stepmill.make(id, num_envs=2, backend="inline") as other:
        pool.reset()
        other.reset()
        lanes = Lanes(pool, [(0, 0), (1, 0)])
        lanes.go(30)
        states, at = pool.save(), list(lanes.at)
        expected = lanes.go(STEPS)
        other.restore(states)
        assert_same(Lanes(other, at).go(STEPS), expected)


def test_every_native_id_can_be_saved() -> None:
    with_memory = {CASES[case][0] for case in CASES} | {"TemplatePlayers-v0"}
    for id in with_memory:
        with stepmill.make(id) as pool:
            assert pool.state_kind == "memory"


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_restores_what_its_reset_returns(view: str) -> None:
    with stepmill.make("CartPole-v1", view, num_envs=3) as pool:
        first = pool.reset()
        states = pool.save()
        pool.step(np.ones(3, int))
        again = pool.restore(states)
        assert type(again) is type(first)
        assert_same(reset_obs(view, again), reset_obs(view, first))


def test_some_envs_are_saved_and_others_do_not_notice() -> None:
    with (
        stepmill.make("CartPole-v1", num_envs=4, seed=1) as pool,
        stepmill.make("CartPole-v1", num_envs=4, seed=1) as twin,
    ):
        pool.reset()
        twin.reset()
        states = pool.save([3, 1])
        for _ in range(5):
            assert_same(pool.step(np.ones(4, int)), twin.step(np.ones(4, int)))
        _, info = pool.restore(states, [3, 1])
        assert info["env_id"].tolist() == [3, 1]
        for _ in range(5):
            got, expected = pool.step(np.ones(4, int)), twin.step(np.ones(4, int))
            for mine, its in zip(got[:4], expected[:4], strict=True):
                assert_same(mine[[0, 2]], its[[0, 2]])


def test_fork_gives_others_the_state_of_one() -> None:
    with stepmill.make("Pendulum-v1", num_envs=5) as pool:
        observation, _ = pool.reset()
        shown, info = pool.fork(2, [0, 1, 4])
        assert info["env_id"].tolist() == [0, 1, 4]
        assert (shown == observation[2]).all()
        after = pool.step(np.full((5, 1), 0.5, np.float32))[0]
        assert (after[[0, 1, 4]] == after[2]).all()
        assert (after[3] != after[2]).any()


@pytest.mark.parametrize("autoreset", ["next_step", "disabled"])
@pytest.mark.parametrize("id", ["TemplatePlayers-v0", "Template-v0"])
def test_players_that_were_there_are_there_again(id: str, autoreset: str) -> None:
    every = np.arange(3)

    def play(pool: Any, shown: tuple[Any, dict[str, Any]], steps: int) -> list[Any]:
        """Each player's actions depend on what it sees, so that a wrong row changes what follows."""
        obs, info = shown
        results = []
        for _ in range(steps):
            result = pool.step((obs.sum(axis=1).astype(int) + info["players"]["id"]) % 2)
            results.append(result)
            obs, info = result[0], result[-1]
            ended = info["env_id"][result[2] | result[3]]
            if autoreset == "disabled" and len(ended):
                pool.reset(ended)
                obs, info = pool.reset(options={"reset_mask": every == ended[0]})
                results.append((obs, info))
        return results

    settings = {"num_envs": 3, "max_num_players": 4, "autoreset": autoreset}
    with stepmill.make(id, seed=3, **settings) as pool, stepmill.make(id, seed=8, **settings) as other:
        other.reset()
        for moment in (3, 10, 24):
            last = play(pool, pool.reset(), moment)[-1]
            states = pool.save()
            expected = play(pool, (last[0], last[-1]), 60)
            obs, info = other.restore(states)
            assert_same(obs, last[0])
            assert_same(info["players"]["id"], last[-1]["players"]["id"])
            assert_same(play(other, (obs, info), 60), expected)


def test_async_envs_in_flight_do_not_notice() -> None:
    with GatedPool(4, batch_size=2) as gated:
        pool = gated.pool
        states = pool.save([0, 1])
        pool.send(np.zeros(1, np.float32), [2])
        _, info = pool.restore(states, [1, 0])
        assert info["env_id"].tolist() == [1, 0]
        assert pool.in_flight == [2]
        for call in (lambda: pool.save([1, 2]), lambda: pool.restore(states, [1, 2]), lambda: pool.fork(0, [2])):
            with pytest.raises(errors.InFlightError, match="env 2 is in flight, and its state is in use"):
                call()
        gated.open(1)
        assert pool.recv()[4]["env_id"].tolist() == [2]


# ---- states as objects ---------------------------------------------------------------------------


def test_states_are_a_sequence_over_one_buffer() -> None:
    with stepmill.make("CartPole-v1", num_envs=5) as pool:
        pool.reset()
        states = pool.save()
    assert len(states) == 5
    assert [bytes(one) for one in states] == [bytes(states[i]) for i in range(5)]
    assert bytes(states[-1]) == bytes(states[4])
    assert [bytes(one) for one in states[1:4:2]] == [bytes(states[1]), bytes(states[3])]
    assert states[1:3].parts[0] is states.parts[0]
    assert states.nbytes == sum(one.nbytes for one in states)
    assert repr(states) == f"SavedStates(CartPole-v1, 5 states, {states.nbytes} bytes)"
    with pytest.raises(IndexError):
        states[5]
    with pytest.raises(AttributeError):
        states.anything = 3  # type: ignore[attr-defined]


def test_a_pickle_holds_its_states_alone() -> None:
    with stepmill.make("CartPole-v1", num_envs=100) as pool:
        pool.reset()
        states = pool.save()
        for part in (states, states[10:12], states[3]):
            again = pickle.loads(pickle.dumps(part))
            assert type(again) is type(part)
            assert again.nbytes == part.nbytes
        assert len(pickle.dumps(states[3])) < 1_000
        assert_same(pool.restore(pickle.loads(pickle.dumps(states)))[0], pool.restore(states)[0])


def test_a_state_is_restored_in_another_process(tmp_path: Any) -> None:
    with stepmill.make("Taxi-v4", num_envs=3, is_rainy=True) as pool:
        pool.reset()
        lanes = Lanes(pool, [(i, 0) for i in range(3)])
        lanes.go(10)
        (tmp_path / "states").write_bytes(pickle.dumps(pool.save()))
        expected = [row[0].tolist() for rows in lanes.go(20) for row in rows]
    out = run_well(
        f"""
        import pickle
        from pathlib import Path
        import stepmill
        from support.lanes import Lanes
        pool = stepmill.make("Taxi-v4", num_envs=3, is_rainy=True)
        pool.restore(pickle.loads(Path({str(tmp_path / "states")!r}).read_bytes()))
        print([row[0].tolist() for rows in Lanes(pool, [(i, 10) for i in range(3)]).go(20) for row in rows])
        """
    )
    assert out.strip() == str(expected)


# ---- refused -------------------------------------------------------------------------------------


def refused_states() -> dict[str, tuple[Any, type[Exception], str]]:
    def saved(id: str, **arguments: Any) -> SavedStates:
        with stepmill.make(id, **arguments) as pool:
            pool.reset()
            return pool.save()

    good = saved("CartPole-v1", num_envs=2)
    short = SavedState(good.origins[0], bytes(good[0])[:-1], 0, good[0].nbytes - 1)
    return {
        "another-env": (saved("Pendulum-v1", num_envs=2), errors.StateError, "of another env: .*'Pendulum-v1'"),
        "another-configuration": (
            saved("CartPole-v1", num_envs=2, sutton_barto_reward=True),
            errors.StateError,
            "of another configuration: .*sutton_barto_reward=True.*sutton_barto_reward=False",
        ),
        "another-limit": (
            saved("CartPole-v1", num_envs=2, max_episode_steps=9),
            errors.StateError,
            "of another max_episode_steps: it was saved with 9, and the env has 500",
        ),
        "too-few": (
            good[:1],
            errors.StateError,
            r"expected 2 states, one per env, got 1; one state, as in states\[0\]",
        ),
        "too-many": (list(good) * 2, errors.StateError, "expected 2 states, one per env, got 4"),
        "short": ([good[0], short], errors.StateError, r"a state of another size: expected \d+ bytes"),
        "nothing": (None, errors.InputError, "expected what save.. returned, .* got NoneType"),
        "a-list-of-others": ([1, 2], errors.InputError, "expected what save.. returned, .* got list"),
        "bytes": (b"abc", errors.InputError, "got bytes"),
    }


@pytest.mark.parametrize("name", list(refused_states()))
def test_what_is_no_state_of_these_envs_is_refused_and_changes_nothing(name: str) -> None:
    states, error, message = refused_states()[name]
    with (
        stepmill.make("CartPole-v1", num_envs=2, seed=5) as pool,
        stepmill.make("CartPole-v1", num_envs=2, seed=5) as twin,
    ):
        assert_same(pool.reset(), twin.reset())
        with pytest.raises(error, match=message):
            pool.restore(states)
        for _ in range(50):
            assert_same(pool.step([0, 1]), twin.step([0, 1]))


def test_an_env_that_was_never_reset_is_not_saved() -> None:
    with stepmill.make("CartPole-v1", num_envs=3) as pool:
        with pytest.raises(errors.NeedsResetError, match=r"env 0 was never reset.* its seed is its state"):
            pool.save()
        pool.reset([1])
        states = pool.save([1])
        pool.restore(states[0], [0, 2])
        pool.save()


def test_damaged_pickles_are_refused() -> None:
    with stepmill.make("CartPole-v1", num_envs=2) as pool:
        pool.reset()
        states = pool.save()
    read, arguments = states.__reduce__()
    assert len(read(*arguments)) == 2
    form, origins, sizes, buffer, checksum = arguments
    assert form == FORMAT
    for position in range(0, len(buffer), 7):
        bad = bytearray(buffer)
        bad[position] ^= 1
        with pytest.raises(errors.StateError, match="damaged"):
            read(form, origins, sizes, bytes(bad), checksum)
    with pytest.raises(errors.StateError, match="damaged"):
        read(form, origins, sizes, buffer[:-1], checksum)
    with pytest.raises(errors.StateError, match="damaged"):
        read(form, origins, [*sizes[::-1], 0], buffer, checksum)
    with pytest.raises(errors.StateError, match="in format 0: expected 1"):
        read(0, "whatever it was then")


@pytest.mark.parametrize("config", [[{}, {}], [{}, {"sutton_barto_reward": True}]], ids=["alike", "different"])
@pytest.mark.parametrize("ids", [3, [2], [-1], [[0, 1]], [0.5], "ab", [0, 0], [True], {"a": 1, "b": 2}], ids=repr)
def test_bad_ids_are_refused(ids: Any, config: Any) -> None:
    with stepmill.make("CartPole-v1", num_envs=2, env_config=config) as pool:
        pool.reset()
        states = pool.save()
        for call in (lambda: pool.save(ids), lambda: pool.restore(states, ids), lambda: pool.restore(states[0], ids)):
            with pytest.raises((errors.EnvIdError, errors.StateError)):
                call()


@pytest.mark.parametrize("source", [True, 2, -1, [0], 0.0, None], ids=repr)
def test_fork_refuses_what_is_no_id(source: Any) -> None:
    with stepmill.make("CartPole-v1", num_envs=2) as pool:
        pool.reset()
        with pytest.raises(errors.EnvIdError):
            pool.fork(source, [0])


def test_states_go_to_envs_of_the_same_configuration() -> None:
    config = [{}, {"sutton_barto_reward": True}, {}]
    with stepmill.make("CartPole-v1", num_envs=3, env_config=config) as pool:
        pool.reset()
        states = pool.save()
        pool.restore(states[::2], [2, 0])
        with pytest.raises(errors.StateError, match=r"env 1 cannot take a state of another configuration"):
            pool.restore(states[0], [2, 1])
        with pytest.raises(errors.StateError, match=r"env 0 cannot take a state of another configuration"):
            pool.restore(states[::-1], [2, 0, 1])


def test_a_closed_pool_saves_nothing() -> None:
    pool = stepmill.make("CartPole-v1")
    pool.reset()
    states = pool.save()
    pool.close()
    with pytest.raises(errors.ClosedError):
        pool.save()
    with pytest.raises(errors.ClosedError):
        pool.restore(states)
