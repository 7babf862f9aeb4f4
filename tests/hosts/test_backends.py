"""One suite over all backends: the same seed gives the same episodes, bit for bit, wherever the envs run.

Inline is the oracle for worker processes, and for native envs on processes the thread backend.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest

from stepmill.errors import ConcurrentUseError, ConfigError
from stepmill.registry.records import find, own_ids
from support.backends import INLINE, PROCESSES, THREAD, TWO, Actor, Backend, attempt, play, play_async
from support.envs import CountingEnv, DiscountEnv, OddEnv
from support.envs.many_spaces import Thing, WildEnv, build_by_id
from support.probes import MODES, VIEWS, assert_same
from support.waiting import in_thread

pytestmark = pytest.mark.usefixtures("server")

on_processes = pytest.mark.parametrize("backend", PROCESSES, ids=str)
in_every_mode_and_view = pytest.mark.parametrize(
    ("backend", "mode", "view"),
    [(b, mode, view) for b in PROCESSES for mode in MODES for view in VIEWS if b is TWO or view == "gymnasium"],
    ids=str,
)
N = 9  # on 2 and 7 workers: not the same number of envs for each


# ---- whole episodes ------------------------------------------------------------------------------

GYMNASIUM = {
    "Acrobot-v1": {"max_episode_steps": 20},
    "Blackjack-v1": {},
    "CartPole-v1": {},
    "CliffWalking-v1": {"max_episode_steps": 30},
    "FrozenLake-v1": {"map_name": "8x8"},
    "MountainCar-v0": {"max_episode_steps": 20},
    "MountainCarContinuous-v0": {"max_episode_steps": 20},
    "Pendulum-v1": {"max_episode_steps": 20},
    "Taxi-v4": {"max_episode_steps": 20},
}


@functools.cache
def gymnasium_episodes(id: str, mode: str) -> list[Any]:
    with INLINE.make(f"gymnasium:{id}", num_envs=N, autoreset=mode, **GYMNASIUM[id]) as pool:
        return play(pool, 100)


@on_processes
@pytest.mark.parametrize("id", GYMNASIUM)
def test_episodes_of_gymnasiums_envs(backend: Backend, id: str) -> None:
    mode = MODES[list(GYMNASIUM).index(id) % 3]
    with backend.make(f"gymnasium:{id}", num_envs=N, autoreset=mode, **GYMNASIUM[id]) as pool:
        assert (pool.backend, pool.is_native) == (backend.name, False)
        assert_same(play(pool, 100), gymnasium_episodes(id, mode))
        assert pool.stats()["episodes"] > N


@functools.cache
def wild_episodes(mode: str, view: str) -> list[Any]:
    with INLINE.make(WildEnv, view, num_envs=N, autoreset=mode, max_episode_steps=17) as pool:
        return play(pool, 80)


@in_every_mode_and_view
def test_episodes_with_everything_in_them(backend: Backend, mode: str, view: str) -> None:
    """Nested observations with text, hybrid actions, infos of every kind, ends of every kind, a time limit."""
    with backend.make(WildEnv, view, num_envs=N, autoreset=mode, max_episode_steps=17) as pool:
        assert_same(play(pool, 80), wild_episodes(mode, view))


def test_the_episodes_have_everything_in_them() -> None:
    """What the test above compares: in some row both ends are true, in some the time limit alone ended it."""
    results = [result for result in wild_episodes("same_step", "gymnasium") if len(result) == 5]
    both = [terminated & truncated for _, _, terminated, truncated, _ in results]
    assert np.any(both)
    assert any(17 in info.get("episode_length", ()) for *_, info in results)
    assert any("final_obs" in info and "sometimes" in info["final_info"] for *_, info in results)


@on_processes
@pytest.mark.parametrize("view", VIEWS)
def test_a_discount_of_the_envs_own(backend: Backend, view: str) -> None:
    with INLINE.make(DiscountEnv, view, num_envs=3, discount=0.5) as oracle:
        expected = play(oracle, 30)
    with backend.make(DiscountEnv, view, num_envs=3, discount=0.5) as pool:
        assert_same(play(pool, 30), expected)


@in_every_mode_and_view
def test_async_every_env_lives_the_same_life(backend: Backend, mode: str, view: str) -> None:
    """Who comes first may differ; what each env shows, in its own order, does not."""
    with backend.make(WildEnv, view, num_envs=N, batch_size=4, autoreset=mode) as pool:
        assert_same(play_async(pool, 40), wild_lives(mode, view))


@functools.cache
def wild_lives(mode: str, view: str) -> list[list[Any]]:
    with INLINE.make(WildEnv, view, num_envs=N, batch_size=4, autoreset=mode) as pool:
        return play_async(pool, 40)


@on_processes
@pytest.mark.parametrize("batch_size", [1, N - 1])
def test_async_lives_do_not_depend_on_the_batch(backend: Backend, batch_size: int) -> None:
    with backend.make(WildEnv, num_envs=N, batch_size=batch_size, autoreset="same_step") as pool:
        assert_same(play_async(pool, 40), wild_lives("same_step", "gymnasium"))


def test_async_reset_of_all_is_in_order() -> None:
    with TWO.make(WildEnv, num_envs=N, batch_size=4) as pool, INLINE.make(WildEnv, num_envs=N, batch_size=4) as oracle:
        assert_same(pool.reset(seed=5), oracle.reset(seed=5))
        act = Actor(pool)(4)
        pool.send(act, [8, 1, 5, 0])
        assert sorted(pool.recv()[4]["env_id"]) == [0, 1, 5, 8]


# ---- native envs in processes --------------------------------------------------------------------


@functools.cache
def native_episodes(id: str, mode: str) -> list[Any]:
    with THREAD.make(id, num_envs=N, autoreset=mode, num_threads=2) as pool:
        return play(pool, 100)


NATIVE = [id for id in own_ids() if find(id).native is not None]
NATIVE.remove("TemplatePlayers-v0")  # its players leave: see test_player_rows.py


@pytest.mark.parametrize("id", NATIVE)
@pytest.mark.parametrize("backend", [INLINE, *PROCESSES], ids=str)
def test_native_episodes_are_those_of_threads(backend: Backend, id: str) -> None:
    mode = MODES[NATIVE.index(id) % 3]
    with backend.make(id, num_envs=N, autoreset=mode) as pool:
        assert (pool.backend, pool.is_native) == (backend.name, True)
        assert_same(play(pool, 100), native_episodes(id, mode))


@in_every_mode_and_view
def test_async_native_envs_live_as_on_threads(backend: Backend, mode: str, view: str) -> None:
    arguments = {"num_envs": N, "batch_size": 4, "autoreset": mode, "max_episode_steps": 20}
    with THREAD.make("CartPole-v1", view, num_threads=2, **arguments) as oracle:
        expected = play_async(oracle, 60)
    with backend.make("CartPole-v1", view, **arguments) as pool:
        assert_same(play_async(pool, 60), expected)


@on_processes
def test_native_envs_of_many_players(backend: Backend) -> None:
    def run(where: Backend) -> list[Any]:
        with where.make("Template-v0", num_envs=5, max_num_players=3, length=7) as pool:
            results = [pool.reset()]
            for turn in range(40):
                owners = results[-1][-1]["players"]["env_id"]
                move = {"action": (np.arange(len(owners)) + turn) % 2, "env_id": np.arange(5), "players.env_id": owners}
                results.append(pool.step(move))
            return results

    assert_same(run(backend), run(THREAD))


@on_processes
def test_native_envs_of_several_configurations_and_reset_options(backend: Backend) -> None:
    def run(where: Backend) -> list[Any]:
        configs = [{"sutton_barto_reward": i % 2 == 0} for i in range(N)]
        with where.make("CartPole-v1", num_envs=N, env_config=configs, seed=list(range(50, 50 + N))) as pool:
            mask = np.arange(N) % 3 == 0
            start = pool.reset(options={"low": -0.01, "high": 0.02})
            masked = pool.reset(seed=3, options={"reset_mask": mask, "low": -0.02, "high": 0.0})
            return [start, *play(pool, 60), masked, pool.reset([7, 2], seed=[1, None]), *play(pool, 5)]

    assert_same(run(backend), run(THREAD))


# ---- what make takes -----------------------------------------------------------------------------


ARGUMENTS: dict[str, dict[str, Any]] = {
    "a list of seeds": {"seed": [3, 1, 4, 1, 5, 9, 2, 6, 5]},
    "a large seed": {"seed": 2**63 - 1 - N},
    "a time limit": {"max_episode_steps": 3},
    "a time limit of one step": {"max_episode_steps": 1, "autoreset": "same_step"},
    "a configuration": {"length": 2.0},
    "configurations one by one": {"env_config": [{"length": 1.5 + i} for i in range(N)]},
    "both": {"length": 3.0, "env_config": [{"length": 5.0}, *[{}] * (N - 1)]},
    "a function": {"task": build_by_id, "length": 4.0},
    "a lambda": {"task": lambda length=3: WildEnv(length)},
    "a partial": {"task": functools.partial(WildEnv, length=2.5)},
    "a list of factories": {"task": [WildEnv, build_by_id, lambda: WildEnv(2.0)] * 3},
    "wrappers": {"task": lambda: gymnasium.wrappers.TimeLimit(WildEnv(), 4)},
    "failures borne": {"on_error": "restart"},
    "clipped actions": {"action_bounds": "clip"},
}


def make_of(backend: Backend, name: str) -> Any:
    return backend.make(**{"task": WildEnv, "num_envs": N, **ARGUMENTS[name]})


@pytest.mark.parametrize("name", ARGUMENTS)
def test_every_argument_means_the_same(name: str) -> None:
    backend = PROCESSES[2]
    with make_of(backend, name) as pool, make_of(INLINE, name) as oracle:
        assert_same(play(pool, 25), play(oracle, 25))
        ours, theirs = pool.config, oracle.config
        assert ours.pop("num_workers") == backend.workers
        assert theirs.pop("num_workers") is not None
        assert_same(ours, theirs)
        for attribute in ("metadata", "render_mode", "observation_space", "action_space", "single_action_space"):
            assert getattr(pool, attribute) == getattr(oracle, attribute)


@on_processes
def test_factories_are_given_their_ids(backend: Backend) -> None:
    class Placed(CountingEnv):
        def __init__(self, env_id: int, worker_id: int) -> None:
            super().__init__(start=env_id)
            self.worker_id = worker_id

    with backend.make(Placed, num_envs=N) as pool:
        assert pool.get_attr("start") == tuple(range(N))
        workers = pool.get_attr("worker_id")
        assert sorted(set(workers)) == list(range(backend.workers or 0)), "each worker has some"
        assert list(workers) == sorted(workers), "neighbours share a worker"
        loads = [workers.count(worker) for worker in set(workers)]
        assert max(loads) - min(loads) <= 1
        assert pool.reset()[0].ravel().tolist() == list(range(N))


@on_processes
def test_the_envs_of_one_pool_share_their_spaces(backend: Backend) -> None:
    def build(env_id: int) -> CountingEnv:
        env = CountingEnv()
        env.action_space = gymnasium.spaces.Discrete(3 if env_id == 4 else 2)
        return env

    with pytest.raises(ConfigError, match=r"expected the action_space of env \d, Discrete\(\d\), got Discrete\(\d\)"):
        backend.make(build, num_envs=N)


# ---- what reset and step take --------------------------------------------------------------------


def chosen_resets(pool: Any, act: Actor) -> list[Any]:
    first = [pool.reset([3]), pool.reset([8, 0, 4]), pool.reset()]
    return [*first, pool.step(act(N)), pool.reset(np.array([7, 2, 5])), pool.step(act(N)), pool.reset([0])]


def masks(pool: Any, act: Actor) -> list[Any]:
    some, one = np.arange(N) % 2 == 0, np.arange(N) == 4
    out = [pool.reset(options={"reset_mask": some}), pool.step(act(N)), pool.reset(options={"reset_mask": one})]
    out += [pool.step(act(N)), pool.reset(options={"reset_mask": some, "level": 2}, seed=9), pool.step(act(N))]
    return out


def seeds(pool: Any, act: Actor) -> list[Any]:
    out = [pool.reset(seed=7), pool.step(act(N)), pool.reset(seed=[1, 2, None, 4, 5, 6, 7, None, 9])]
    return [*out, pool.step(act(N)), pool.reset([6, 1], seed=[3, None]), pool.reset([6, 1], seed=3), pool.step(act(N))]


def options(pool: Any, act: Actor) -> list[Any]:
    things = {"level": 3, "array": np.arange(4, dtype=np.int16), "set": {1, 2}, "deep": {"er": (None, "text", 1j)}}
    out = [pool.reset(options={**things, "thing": Thing([1, 2])}), pool.step(act(N)), pool.reset()]
    out += [pool.reset([5, 3], options={"thing": Thing("x")}), pool.reset(options={}), pool.step(act(N))]
    large = np.arange(300_000)
    return [*out, pool.reset(options={"large": large}), pool.reset([1], options={"larger": [large, large]})]


def some_at_a_time(pool: Any, act: Actor) -> list[Any]:
    out = [pool.reset(), pool.step(act(3), [7, 0, 4]), pool.step(act(1), np.array([8])), pool.step(act(N))]
    pool.send(act(2), [6, 1])
    pool.send(act(3), [0, 8, 3])
    out += [pool.recv(), pool.step(act(N), np.arange(N)[::-1])]
    return out


def steps_that_begin(pool: Any, act: Actor) -> list[Any]:
    """A step before the first reset acts as one."""
    return [pool.step(act(2), [4, 2]), pool.step(act(N)), pool.step(act(N)), pool.reset()]


def queued_resets(pool: Any, act: Actor) -> list[Any]:
    pool.async_reset(seed=4, options={"level": 1})
    out = [pool.recv(), pool.step(act(N))]
    pool.async_reset()
    out.append(pool.recv())
    pool.send(act(N))
    return [*out, pool.reset(), pool.step(act(N))]  # what was in flight is dropped


SCRIPTS: tuple[Callable[[Any, Actor], list[Any]], ...] = (
    chosen_resets,
    masks,
    seeds,
    options,
    some_at_a_time,
    steps_that_begin,
    queued_resets,
)


def run(backend: Backend, script: Callable[[Any, Actor], list[Any]], mode: str) -> list[Any]:
    with backend.make(WildEnv, num_envs=N, autoreset=mode, length=1e9) as pool:
        act = Actor(pool, 3)
        return [*script(pool, act), *(pool.step(act(N)) for _ in range(3))]


@pytest.mark.parametrize(("backend", "mode"), [*((TWO, mode) for mode in MODES), (PROCESSES[2], MODES[0])], ids=str)
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_reset_and_step_take_the_same(backend: Backend, script: Any, mode: str) -> None:
    assert_same(run(backend, script, mode), run(INLINE, script, mode))


@on_processes
def test_after_an_end_autoreset_goes_on_as_inline(backend: Backend) -> None:
    """Resets by the caller between ends and autoresets."""

    def run(where: Backend, mode: str) -> list[Any]:
        with where.make(WildEnv, num_envs=N, autoreset=mode, length=3.0) as pool:
            act, out = Actor(pool), [pool.reset()]
            for turn in range(30):
                out.append(pool.step(act(N)))
                if turn % 4 == 0:
                    out.append(pool.reset([turn % N, (turn + 1) % N]))
                if turn % 7 == 0:
                    out.append(pool.reset(options={"reset_mask": np.arange(N) % 3 == turn % 3}))
            return out

    for mode in MODES[:2]:
        assert_same(run(backend, mode), run(INLINE, mode))


# ---- what envs give that they should not ---------------------------------------------------------


ODD: dict[str, Callable[..., Any]] = {
    "four values": lambda obs, reward, end, cut, info: (obs, reward, end, info),
    "a list": lambda *values: [*values],
    "nothing": lambda *values: None,
    "a reward of nothing": lambda obs, reward, *rest: (obs, None, *rest),
    "a reward in text": lambda obs, reward, *rest: (obs, "1", *rest),
    "a reward in an array": lambda obs, reward, *rest: (obs, np.array([1.5]), *rest),
    "a reward that is nan": lambda obs, reward, *rest: (obs, np.nan, *rest),
    "an end in an array": lambda obs, reward, end, *rest: (obs, reward, np.array([True, False]), *rest),
    "an end of nothing": lambda obs, reward, end, cut, info: (obs, reward, None, 1, info),
    "an info of nothing": lambda obs, reward, end, cut, info: (obs, reward, end, cut, None),
    "an info that is a list": lambda obs, reward, end, cut, info: (obs, reward, end, cut, [1]),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_results_are_taken_or_refused_as_inline_does(name: str) -> None:
    def run(where: Backend) -> list[Any]:
        with where.make(OddEnv, num_envs=3, spoil=ODD[name]) as pool:
            return [pool.reset(), *(attempt(lambda: pool.step([1] * 3)) for _ in range(3)), pool.reset()]

    assert_same(run(TWO), run(INLINE))


def test_two_threads_never_share_a_step() -> None:
    """One of them is refused, and what the other gets is whole."""
    done, refused = [], []
    with TWO.make(CountingEnv, num_envs=4) as pool:
        pool.reset()

        def work() -> None:
            for _ in range(100):
                try:
                    done.append(pool.step([0] * 4)[0].ravel().tolist())
                except ConcurrentUseError as error:
                    refused.append(error)

        threads = [in_thread(work) for _ in range(3)]
        for thread in threads:
            thread.join()
        assert len(done) + len(refused) == 300
        assert sorted(done) == [[float(i)] * 4 for i in range(1, len(done) + 1)]


# ---- how many ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("num_envs", "workers"), [(1, 1), (1, 5), (3, 7), (2, 4096), (24, 24), (150, 3)])
def test_any_number_of_envs_and_workers(num_envs: int, workers: int) -> None:
    """More envs than cores, more workers than cores; never a worker without an env."""
    with (
        Backend("process", workers).make(CountingEnv, num_envs=num_envs) as pool,
        INLINE.make(CountingEnv, num_envs=num_envs) as oracle,
    ):
        assert pool.config["num_workers"] == len(pool.stats()["workers"]) == min(num_envs, workers)
        assert_same(play(pool, 30), play(oracle, 30))
