"""Sessions: every env is a single env, for one task, wherever it runs."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import stepmill
from stepmill import errors
from support.envs import ProbeTwin
from support.envs.many_spaces import Mixed
from support.envs.remote import Teller
from support.probes import MODES, assert_same
from support.sessions import PLACES, Harmless, Place, SingleEnv, plain_twin, play, turns

pytestmark = pytest.mark.usefixtures("server", "deadline")

N = 4


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("place", PLACES, ids=str)
def test_a_session_shows_what_a_single_env_shows(place: Place, mode: str) -> None:
    """Two rounds, so that the second one finds envs in the midst of things."""
    steps = 30

    async def session(pool: Any, number: int) -> list[Any]:
        async with pool.session(seed=100 + number) as env:
            return await play(env, Harmless(pool, number), steps)

    async def main(pool: Any) -> list[Any]:
        return await asyncio.gather(*(session(pool, number) for number in range(2 * N)))

    with place.make(N, autoreset=mode) as pool:
        for number, shown in enumerate(asyncio.run(main(pool))):
            single = SingleEnv(place, 100 + number)
            assert_same(shown, asyncio.run(play(single, Harmless(pool, number), steps)))
            single.close()


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_the_pool_is_as_before_when_all_sessions_have_ended(place: Place) -> None:
    async def session(pool: Any) -> None:
        async with pool.session() as env:
            await play(env, Harmless(pool), 3)

    async def main(pool: Any) -> None:
        await asyncio.gather(*(session(pool) for _ in range(N)))

    with place.make(N, seed=5) as pool, plain_twin(place, N, seed=5) as twin:
        for seed in (1, 2):
            asyncio.run(main(pool))
            assert pool.in_flight == []
            act = Harmless(pool, seed)
            results = [one.reset(seed=seed)[0] for one in (pool, twin)]
            for _ in range(6):
                actions = np.stack([act.one() for _ in range(N)])
                for one in (pool, twin):
                    one.send(actions, np.arange(N))
                batches = [sorted_rows(one) for one in (pool, twin)]
                assert_same(batches[0], batches[1])
            assert_same(results[0], results[1])


def sorted_rows(pool: Any) -> dict[int, Any]:
    """What comes of all envs, by their ids."""
    rows = {}
    while pool.in_flight:
        observation, reward, terminated, truncated, info = pool.recv()
        for row, env_id in enumerate(info["env_id"].tolist()):
            rows[env_id] = (observation[row].copy(), reward[row], terminated[row], truncated[row])
    return rows


@pytest.mark.parametrize("view", ["gymnasium", "gym", "dm"])
@pytest.mark.parametrize("output", ["numpy"])
def test_results_are_gymnasiums_whatever_the_view(view: str, output: str) -> None:
    async def main(pool: Any) -> list[Any]:
        async with pool.session(seed=3) as env:
            return await play(env, Harmless(pool), 20)

    with stepmill.make("CartPole-v1", view, num_envs=2, output=output) as pool:
        shown = asyncio.run(main(pool))
        plain = pool.reset(seed=3)  # in the form of the view again
        assert type(plain) is type(pool.reset())
    single = SingleEnv(PLACES[1], 3)
    assert_same(shown, asyncio.run(play(single, Harmless(pool), 20)))
    single.close()
    observation, reward, terminated, truncated, info = shown[1]
    assert isinstance(observation, np.ndarray)
    assert [type(one) for one in (reward, terminated, truncated, info)] == [float, bool, bool, dict]


@pytest.mark.parametrize("backend", ["inline", "process"])
def test_spaces_of_all_kinds(backend: str) -> None:
    """Dicts, tuples, texts and numbers, as a single env takes and returns them."""

    async def main(pool: Any) -> None:
        async with pool.session(seed=1) as env:
            observation, _ = await env.reset()
            assert pool.spec.observation_space.contains(observation), observation
            pool.spec.action_space.seed(1)
            for _ in range(4):
                action = pool.spec.action_space.sample()
                observation, *_ = await env.step(action)
                assert pool.spec.observation_space.contains(observation), observation
            with pytest.raises(errors.ActionError):
                await env.step(7)

    with stepmill.make(Mixed, num_envs=2, backend=backend) as pool:
        asyncio.run(main(pool))


def test_discrete_observations_are_numbers() -> None:
    async def main(pool: Any) -> None:
        async with pool.session() as env:
            observation, _ = await env.reset()
            assert type(observation) is int
            assert type((await env.step(2))[0]) is int

    with stepmill.make("FrozenLake-v1", num_envs=2) as pool:
        asyncio.run(main(pool))


def test_an_observation_keeps_nothing_else() -> None:
    """It is a copy: one that is kept does not keep the batch, and nothing writes to it later."""

    async def main(pool: Any) -> None:
        async with pool.session() as env:
            first, _ = await env.reset()
            before = first.copy()
            for _ in range(5):
                await env.step(0)
            assert first.base is None
            assert_same(first, before)

    with stepmill.make("CartPole-v1", num_envs=8) as pool:
        asyncio.run(main(pool))


# ---- seeds and options ---------------------------------------------------------------------------


def test_a_seed_is_that_of_the_first_reset() -> None:
    async def firsts(pool: Any, **arguments: Any) -> list[float]:
        async with pool.session(**arguments) as env:
            return [(await env.reset())[0][0] for _ in range(3)]

    async def main(pool: Any) -> list[list[float]]:
        return [await firsts(pool, seed=4), await firsts(pool, seed=4), await firsts(pool)]

    with stepmill.make(ProbeTwin, num_envs=1, backend="inline") as pool:
        first, again, without = asyncio.run(main(pool))
    stream = np.random.Generator(np.random.PCG64(4)).random(6).tolist()
    assert first == again == stream[:3]
    assert without == stream[3:]  # the env goes on where it was


@pytest.mark.parametrize("backend", ["inline", "process"])
def test_options_are_those_of_each_reset(backend: str) -> None:
    async def told(pool: Any, **arguments: Any) -> list[str]:
        async with pool.session(**arguments) as env:
            return [(await env.reset())[1]["options"] for _ in range(2)]

    async def main(pool: Any) -> list[list[str]]:
        return await asyncio.gather(told(pool, options={"level": 1}), told(pool, options={"level": 2}), told(pool))

    with stepmill.make(Teller, num_envs=3, backend=backend) as pool:
        assert asyncio.run(main(pool)) == [["{'level': 1}"] * 2, ["{'level': 2}"] * 2, ["None"] * 2]


def test_with_same_step_the_next_episode_is_not_reset_twice() -> None:
    """Its first observation is there already, and the env's random numbers go on as in the other modes."""

    async def firsts(pool: Any, sessions: int) -> list[float]:
        drawn = []
        for _ in range(sessions):
            async with pool.session() as env:
                for _ in range(2):
                    drawn.append((await env.reset())[0][0])
                    observation, _, terminated, _, info = await env.step(0.5)
                    assert (observation[0], observation[1], terminated) == (drawn[-1], 1.0, True)
                    assert info == {"episode_return": 0.5, "episode_length": 1}
        return drawn

    drawn = {}
    for mode in MODES:
        with stepmill.make(ProbeTwin, num_envs=1, seed=9, length=1, backend="inline", autoreset=mode) as pool:
            drawn[mode] = asyncio.run(firsts(pool, 3))
    assert drawn["same_step"] == drawn["next_step"] == drawn["disabled"]
    assert len(set(drawn["same_step"])) == 6


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"seed": -1}, errors.ConfigError),
        ({"seed": "a"}, errors.ConfigError),
        ({"seed": [1]}, errors.ConfigError),
        ({"options": [{}]}, errors.ResetOptionError),
        ({"options": {"reset_mask": np.ones(2, bool)}}, errors.ResetOptionError),
        ({"options": 3}, errors.ResetOptionError),
        ({"timeout": 0}, errors.ConfigError),
        ({"timeout": float("nan")}, errors.ConfigError),
    ],
    ids=str,
)
def test_invalid_arguments(arguments: Any, error: type[Exception]) -> None:
    with stepmill.make("CartPole-v1", num_envs=2) as pool:
        with pytest.raises(error):
            pool.session(**arguments)
        pool.reset()


def test_options_that_the_env_does_not_have_are_an_error_of_that_session() -> None:
    async def main(pool: Any) -> None:
        async with pool.session(options={"lows": 1.0}) as wrong, pool.session() as right:
            resets = await asyncio.gather(wrong.reset(), right.reset(), return_exceptions=True)
            assert isinstance(resets[0], errors.ResetOptionError)
            assert resets[1][0].shape == (4,)

    with stepmill.make("CartPole-v1", num_envs=2) as pool:
        asyncio.run(main(pool))


# ---- who gets which env --------------------------------------------------------------------------


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_a_thousand_sessions_share_the_envs(place: Place) -> None:
    sessions = 100 if place.name == "ray" else 1000
    using: set[int] = set()
    order: list[int] = []

    async def session(pool: Any, number: int) -> float:
        async with pool.session(seed=number) as env:
            order.append(number)
            assert env.env_id not in using
            using.add(env.env_id)
            await env.reset()
            total = sum([(await env.step(pool.spec.action_space.dtype.type(0)))[1] for _ in range(3)])
            using.remove(env.env_id)
            return total

    async def main(pool: Any) -> list[float]:
        return await asyncio.gather(*(session(pool, number) for number in range(sessions)))

    with place.make(64) as pool:
        before = pool.stats()["steps"]
        assert len(asyncio.run(main(pool))) == sessions
        assert pool.stats()["steps"] - before == 4 * sessions  # with the resets
    assert order == list(range(sessions))


def test_a_session_waits_so_long_for_an_env() -> None:
    async def main(pool: Any) -> None:
        async with pool.session(), pool.session() as last:
            with pytest.raises(TimeoutError, match="one of the 2 envs") as caught:
                async with pool.session(timeout=0.01):
                    pass
            assert isinstance(caught.value, errors.SessionTimeoutError)
            taken = last.env_id
            waiting = asyncio.create_task(first_of(pool))
            await turns()
        assert await waiting == taken

    async def first_of(pool: Any) -> int:
        async with pool.session(timeout=60) as env:
            return env.env_id

    with stepmill.make("CartPole-v1", num_envs=2) as pool:
        asyncio.run(main(pool))
        pool.reset()


@pytest.mark.parametrize("how", ["before", "just when it gets one"])
def test_who_stops_waiting_for_an_env_takes_none_along(how: str) -> None:
    async def take(pool: Any) -> int:
        async with pool.session() as env:
            return env.env_id

    async def main(pool: Any) -> None:
        async with pool.session():
            waiting = [asyncio.create_task(take(pool)) for _ in range(3)]
            await turns()
            if how == "before":
                waiting[0].cancel()
                await turns()
        waiting[0].cancel()
        assert await asyncio.gather(*waiting, return_exceptions=True) != [0, 0, 0]
        assert await take(pool) == 0

    with stepmill.make("CartPole-v1", num_envs=1) as pool:
        asyncio.run(main(pool))
        pool.reset()
