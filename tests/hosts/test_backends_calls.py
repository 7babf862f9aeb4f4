"""The envs themselves, wherever they run: calls, attributes, pictures, statistics, and calls that are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest

from stepmill import errors
from support.backends import INLINE, PROCESSES, RAY, THREAD, TWO, Backend, attempt
from support.envs import AnsweringEnv, CountingEnv, FailingEnv
from support.probes import VIEWS, assert_same

pytestmark = pytest.mark.usefixtures("server")

on_processes = pytest.mark.parametrize("backend", PROCESSES, ids=str)
N = 5


# ---- calls, attributes, pictures -----------------------------------------------------------------


def calls(pool: Any) -> list[Any]:
    out = [pool.call("add", 10, other=100), pool.call("add", 1, env_ids=[4, 0, 2]), pool.call("start")]
    out += [pool.call("add", 1, env_ids=ids) for ids in (np.array([3]), [], (1,), range(2))]
    out += [pool.call("move", 5, env_ids=[1, 3]), pool.step([0] * N), pool.call("add", 0)]
    return out


def calls_of_one_env_twice(pool: Any) -> list[Any]:
    return [pool.call("add", 1, env_ids=[2, 2, 0, 2]), pool.call("move", 1, env_ids=[1, 1]), pool.step([0] * N)]


def calls_with_anything(pool: Any) -> list[Any]:
    large = np.arange(500_000)
    out = [pool.call("echo", large, [None, {"x": (1, "y")}], key=np.float32(2.5)), pool.call("echo", large, large[:9])]
    return [*out, pool.call("apply", lambda count: [count] * 3), pool.call("echo", "after", env_ids=[0])]


def attributes(pool: Any) -> list[Any]:
    out = [pool.get_attr("start"), pool.set_attr("start", 4), pool.get_attr("start"), pool.get_attr("count", [3, 1])]
    out += [pool.set_attr("start", [1, 2, 3, 4, 5]), pool.get_attr("start", [4, 0]), pool.set_attr("start", (9,), [1])]
    out += [pool.reset(), pool.set_attr("fresh", {"a": np.arange(3)}, [2]), pool.get_attr("fresh", [2])]
    return [
        *out,
        pool.get_attr("np_random")[0].random(3),
        pool.get_attr("observation_space"),
        pool.get_attr("metadata"),
    ]


def pictures(pool: Any) -> list[Any]:
    out = [pool.render(), pool.step([0] * N), pool.render([4, 1]), pool.step([0], [1]), pool.render((1,))]
    return [*out, pool.render_mode, {key: pool.metadata[key] for key in ("render_modes", "render_fps")}]


def calls_in_flight(pool: Any) -> list[Any]:
    """The step of an action that was sent is not disturbed by what is asked meanwhile."""
    pool.send([0] * N)
    asked = [pool.get_attr("start"), pool.call("echo", 1, env_ids=[3])]
    out = [asked, pool.recv()]
    pool.send([1, 1], [4, 2])
    asked = [pool.get_attr("start", [2, 0]), pool.call("echo", 2, env_ids=[0, 4])]
    return [*out, asked, pool.recv(), pool.step([0] * N)]


ASKED = (calls, calls_of_one_env_twice, calls_with_anything, attributes, pictures, calls_in_flight)


def ask(backend: Backend, script: Callable[[Any], list[Any]], wrapped: bool) -> list[Any]:
    configs = [{"start": 10 * i} for i in range(N)]

    def build(start: int) -> Any:
        env = AnsweringEnv(start, render_mode="rgb_array")
        return gymnasium.wrappers.TimeLimit(env, 1000) if wrapped else env

    with backend.make(build, num_envs=N, env_config=configs) as pool:
        pool.reset()
        return script(pool)


@pytest.mark.parametrize("script", ASKED, ids=lambda script: script.__name__)
@on_processes
def test_what_envs_are_asked_they_answer_as_inline(backend: Backend, script: Any) -> None:
    assert_same(ask(backend, script, False), ask(INLINE, script, False))


@pytest.mark.parametrize("script", ASKED, ids=lambda script: script.__name__)
def test_they_are_found_through_wrappers(script: Any) -> None:
    assert_same(ask(TWO, script, True), ask(INLINE, script, True))


BAD_QUESTIONS: dict[str, Callable[[Any], Any]] = {
    "no such method": lambda pool: pool.call("no_such_thing"),
    "no such attribute": lambda pool: pool.get_attr("no_such_thing", [1]),
    "wrong arguments": lambda pool: pool.call("add"),
    "it raises": lambda pool: pool.call("complain", env_ids=[3]),
    "out of range": lambda pool: pool.call("add", 1, env_ids=[5]),
    "negative": lambda pool: pool.get_attr("start", [-1]),
    "no ids": lambda pool: pool.render([0.5]),
    "too few values": lambda pool: pool.set_attr("start", [1, 2]),
}


@pytest.mark.parametrize("name", BAD_QUESTIONS)
def test_a_bad_question_raises_the_same_and_changes_nothing(name: str) -> None:
    def told(pool: Any) -> list[Any]:
        with pytest.raises(Exception) as caught:  # noqa: PT011 - which one is what is compared
            BAD_QUESTIONS[name](pool)
        return [type(caught.value), str(caught.value), pool.step([0] * N), pool.call("add", 1)]

    assert_same(ask(TWO, told, False), ask(INLINE, told, False))


def test_a_picture_that_fails_names_its_env() -> None:
    def run(backend: Backend) -> list[Any]:
        configs = [{"fail_in": "render" if i == 2 else "", "fail_at": {1}} for i in range(3)]
        with backend.make(FailingEnv, num_envs=3, env_config=configs) as pool:
            pool.reset()
            return [attempt(pool.render), pool.render(), pool.step([0] * 3)]

    got = run(TWO)
    assert_same(got, run(INLINE))
    assert "env 2 failed in render" in got[0]["errors"][0][1]


def test_async_envs_are_asked_while_others_are_under_way() -> None:
    with TWO.make(CountingEnv, num_envs=6, batch_size=2, render_mode="rgb_array") as pool:
        pool.async_reset()
        steps = dict.fromkeys(range(6), -1)
        for turn in range(30):
            obs, *_, info = pool.recv()
            ids = info["env_id"].tolist()
            for one, count in zip(ids, obs.ravel().tolist(), strict=True):
                steps[one] += 1
                assert count == steps[one]
            assert pool.get_attr("count", ids) == tuple(steps[one] for one in ids)
            assert len(pool.call("add", turn)) == len(pool.render()) == 6
            pool.send([0, 0], ids)


def test_native_envs_have_no_object_to_ask() -> None:
    with TWO.make("CartPole-v1", num_envs=3) as pool, THREAD.make("CartPole-v1", num_envs=3) as oracle:
        assert pool.get_attr("max_episode_steps", [2, 0]) == oracle.get_attr("max_episode_steps", [2, 0]) == (500, 500)
        for call in (lambda: pool.call("step"), lambda: pool.set_attr("x", 1)):
            with pytest.raises(errors.UnsupportedError, match="native"):
                call()
        with pytest.raises(errors.UnsupportedError, match="without a render_mode"):
            pool.render()


# ---- statistics ----------------------------------------------------------------------------------


@pytest.mark.parametrize("task", [CountingEnv, "CartPole-v1"], ids=["python", "native"])
@pytest.mark.parametrize("backend", [one for one in PROCESSES if one not in RAY], ids=str)  # it has actors for workers
def test_stats_tell_of_steps_workers_and_memory(backend: Backend, task: Any) -> None:
    with backend.make(task, num_envs=N) as pool:
        pool.reset()
        for _ in range(20):
            pool.step([0] * N)
        pool.step([1, 1], [4, 0])
        stats = pool.stats()
    assert (stats["backend"], stats["num_envs"]) == ("process", N)
    assert (stats["batches"], stats["steps"], stats["in_flight"]) == (22, 21 * N + 2, 0)
    assert stats["steps_per_second"] > 0
    assert stats["restarts"] == 0
    assert stats["memory_bytes"] > 0
    times = [stats["step_seconds"][key] for key in ("p50", "p90", "p99")]
    assert [len(one) for one in times] == [N] * 3, "of every env"
    assert (times[0] > 0).all()
    assert (times[0] <= times[1]).all()
    assert (times[1] <= times[2]).all()
    workers = stats["workers"]
    assert len(workers) == min(backend.workers or 0, N)
    assert sum(worker["actions"] for worker in workers) == 21 * N + 2
    assert len({worker["pid"] for worker in workers}) == len(workers)
    for worker in workers:
        assert worker["alive"]
        assert 0 < worker["use"] <= 1
        assert worker["restarts"] == 0
        assert worker["memory_bytes"] > 100_000


def test_the_time_of_a_step_is_its_envs_own() -> None:
    """An env that works a thousand times longer shows in its percentiles, and in no other's."""

    class Working(CountingEnv):
        def step(self, action: int) -> Any:
            for _ in range(self.start):
                pass
            return super().step(action)

    with TWO.make(Working, num_envs=4, env_config=[{"start": 300_000 if i == 1 else 0} for i in range(4)]) as pool:
        pool.reset()
        for _ in range(15):
            pool.step([0] * 4)
        median = pool.stats()["step_seconds"]["p50"]
    assert median.argmax() == 1
    assert median[1] > 4 * np.delete(median, 1).max()


def test_counts_are_those_of_inline() -> None:
    def run(backend: Backend) -> list[Any]:
        with backend.make(CountingEnv, num_envs=N, max_episode_steps=3, autoreset="same_step") as pool:
            for _ in range(10):
                pool.step([0] * N)
            pool.send([0, 0], [3, 1])
            stats = pool.stats()
            return [stats[key] for key in ("batches", "steps", "episodes", "in_flight", "num_envs")]

    assert run(TWO) == run(INLINE) == [10, 10 * N, 3 * N, 2, N]


# ---- calls that are refused ----------------------------------------------------------------------

OK = np.array([0, 1, 0])
BAD_CALLS: dict[str, Callable[[Any], Any]] = {
    "an int": lambda pool: pool.step(0),
    "nothing": lambda pool: pool.send(None),
    "too few": lambda pool: pool.step([0, 1]),
    "too many": lambda pool: pool.step([0, 1, 0, 1]),
    "a column": lambda pool: pool.step([[0], [1], [0]]),
    "out of its space": lambda pool: pool.step([0, 2, 0]),
    "negative": lambda pool: pool.send([0, 0, -1]),
    "a fraction": lambda pool: pool.step([0.0, 0.5, 1.0]),
    "nan": lambda pool: pool.step([0.0, np.nan, 1.0]),
    "texts": lambda pool: pool.step(["0", "1", "0"]),
    "ragged": lambda pool: pool.step([[0], [0, 1], 0]),
    "keys misspelt": lambda pool: pool.step({"actions": OK}),
    "an id out of range": lambda pool: pool.step([0], [3]),
    "an id far out": lambda pool: pool.send([0], [2**40]),
    "a negative id": lambda pool: pool.step([0], [-1]),
    "an id twice": lambda pool: pool.step([0, 0], [1, 1]),
    "no ids": lambda pool: pool.step([], []),
    "ids that are none": lambda pool: pool.step([0], [0.5]),
    "more ids than actions": lambda pool: pool.step([0], [0, 1]),
    "nothing in flight": lambda pool: pool.recv(),
    "a bad timeout": lambda pool: pool.recv(timeout=-1),
    "a reset of no env": lambda pool: pool.reset([7]),
    "a bad seed": lambda pool: pool.reset(seed=-1),
    "too few seeds": lambda pool: pool.reset(seed=[1, 2]),
    "options that are none": lambda pool: pool.reset(options=3),
    "a bad mask": lambda pool: pool.reset(options={"reset_mask": np.ones(4, bool)}),
    "an empty mask": lambda pool: pool.reset(options={"reset_mask": np.zeros(3, bool)}),
}


PAIRS = [(task, view) for task in ("gymnasium:CartPole-v1", "CartPole-v1") for view in VIEWS]


@pytest.fixture(scope="module", params=PAIRS, ids="-".join)
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[Any, Any]]:
    """A pool of worker processes and its inline twin, on their way."""
    task, view = request.param
    with TWO.make(task, view, num_envs=3) as pool, INLINE.make(task, view, num_envs=3) as twin:
        for one in (pool, twin):
            one.reset()
        yield pool, twin


@pytest.mark.parametrize("name", BAD_CALLS)
def test_a_bad_call_is_refused_with_the_same_words_and_changes_nothing(pair: tuple[Any, Any], name: str) -> None:
    told = []
    for pool in pair:
        with pytest.raises(errors.StepmillError) as caught:
            BAD_CALLS[name](pool)
        told.append((type(caught.value), str(caught.value)))
        assert pool.stats()["in_flight"] == 0
    assert told[0] == told[1]
    assert_same(*(pool.step(OK) for pool in pair))


def test_an_env_in_flight_takes_no_second_action(pair: tuple[Any, Any]) -> None:
    told = []
    for pool in pair:
        pool.send([1, 0], [2, 0])
        refused = []
        for call in (lambda p=pool: p.send([0], [2]), lambda p=pool: p.step(OK), lambda p=pool: p.reset([0])):
            with pytest.raises(errors.InFlightError) as caught:
                call()
            refused.append(str(caught.value))
        told.append([refused, pool.stats()["in_flight"], pool.recv(), pool.step(OK)])
    assert_same(*told)
