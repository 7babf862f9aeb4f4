"""Checkpoints: a pool that is resumed from one goes on as the pool that wrote it, bit for bit."""

from __future__ import annotations

import io
import pickle
import signal
import threading
import zlib
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import stepmill
from stepmill import errors, wrappers
from support.backends import Actor
from support.envs import ProbeTwin
from support.envs.contract import Pair
from support.envs.faulty import FaultyEnv
from support.envs.many_spaces import Mixed, WildEnv
from support.envs.scripted import ChanceEnv
from support.lanes import Lanes
from support.probes import MODES, VIEWS, GatedPool, assert_same, seen
from support.processes import kill_worker
from support.subprocesses import run_well

STEPS = 60
BACKENDS = {"native": ("thread", "inline", "process"), "python": ("inline", "process")}
BOX = spaces.Box(-1, 1, (2, 3), np.float32)
HERE_AND_SLOWLY_ELSEWHERE = ["inline", pytest.param("process", marks=pytest.mark.slow)]
COUNTS = ("batches", "steps", "episodes", "failures", "restarts")


def with_wrappers() -> Any:
    env: Any = ChanceEnv(BOX, in_place=True)
    for wrapper in (wrappers.ObsNormEnv, wrappers.RewardNormEnv, wrappers.FrameStack):
        env = wrapper(env)
    return gymnasium.wrappers.TimeLimit(env, 9)


class Telling(ProbeTwin):
    """Its infos travel as arrays."""

    info_space = spaces.Dict({"steps": spaces.Box(0, 99, (), np.int64)})


CASES: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "cartpole": ("native", "CartPole-v1", {}),
    "taxi": ("native", "Taxi-v4", {"is_rainy": True, "max_episode_steps": 20}),
    "infos": ("python", ProbeTwin, {"info": True, "length": 7}),
    "info-arrays": ("python", Telling, {"info": True, "length": 7}),
    "nested": ("python", Mixed, {}),
    "objects": ("python", WildEnv, {}),
    "wrappers": ("python", with_wrappers, {}),
}
WAYS = [
    (case, mine, other) for case, (kind, *_) in CASES.items() for mine in BACKENDS[kind] for other in BACKENDS[kind]
]


def counts_of(pool: Any) -> dict[str, int]:
    return {name: count for name, count in pool.stats().items() if name in COUNTS}


def resumed(pool: Any, **arguments: Any) -> Any:
    """A pool that goes on where this one is."""
    file = io.BytesIO()
    pool.checkpoint(file)
    file.seek(0)
    return stepmill.resume(file, **arguments)


def ending(call: Any) -> Any:
    """What a call returned, or what it raised: the text and the batch of an error."""
    try:
        return call()
    except errors.EnvError as error:
        return type(error).__name__, str(error), [type(one.__cause__).__name__ for one in error.errors], error.batch


def received(pool: Any) -> list[Any]:
    """All that is in flight."""
    out = []
    while pool.in_flight:
        out.append(ending(pool.recv))
    return out


# ---- it goes on ----------------------------------------------------------------------------------


@pytest.mark.parametrize("autoreset", MODES)
@pytest.mark.parametrize(("case", "backend", "other"), WAYS)
def test_a_resumed_pool_goes_on_as_one_that_was_never_stopped(
    case: str, backend: str, other: str, autoreset: str
) -> None:
    rng = np.random.default_rng(zlib.crc32(f"{case}{backend}{other}{autoreset}".encode()))
    _, task, config = CASES[case]
    settings: dict[str, Any] = {"num_envs": 4, "backend": backend, "autoreset": autoreset, "seed": 7, **config}
    with stepmill.make(task, **settings) as pool, stepmill.make(task, **settings) as twin:
        lanes, twins = (Lanes(one, [(i, 0) for i in range(4)]) for one in (pool, twin))
        pool.reset()
        twin.reset()
        steps = int(rng.integers(1, 40))
        assert_same(lanes.go(steps), twins.go(steps))
        with resumed(pool, backend=other) as again:
            assert again.backend == other
            assert counts_of(again) == counts_of(twin)
            expected = twins.go(STEPS)
            assert_same(Lanes(again, lanes.at).go(STEPS), expected)
            assert_same(lanes.go(STEPS), expected)
            assert counts_of(again) == counts_of(pool) == counts_of(twin)
            assert again.config == pool.config | {name: again.config[name] for name in ("num_threads", "num_workers")}


@pytest.mark.slow
@pytest.mark.parametrize("id", ["Ant-v5", "HalfCheetah-v5"])
def test_simulators_go_on(id: str) -> None:
    pytest.importorskip("mujoco")
    with stepmill.make(id, num_envs=2, seed=7) as pool:
        pool.reset()
        lanes = Lanes(pool, [(0, 0), (1, 0)])
        lanes.go(30)
        with resumed(pool, backend="inline") as again:
            assert_same(Lanes(again, lanes.at).go(STEPS), lanes.go(STEPS))


@pytest.mark.parametrize("backend", HERE_AND_SLOWLY_ELSEWHERE)
def test_envs_that_are_pickled_go_on(backend: str) -> None:
    with stepmill.make(ProbeTwin, num_envs=3, backend=backend, length=5) as pool:
        pool.reset()
        lanes = Lanes(pool, [(i, 0) for i in range(3)])
        lanes.go(7)
        file = io.BytesIO()
        pool.checkpoint(file, by="pickle")
        file.seek(0)
        with stepmill.resume(file) as again:
            assert_same(Lanes(again, lanes.at).go(20), lanes.go(20))
        with pytest.raises(errors.UnsupportedError, match="checkpoint: by: expected 'methods' or 'pickle'"):
            pool.checkpoint(io.BytesIO(), by="magic")


@pytest.mark.parametrize("backend", HERE_AND_SLOWLY_ELSEWHERE)
def test_players_that_come_and_go_go_on(backend: str) -> None:
    with stepmill.make(Pair, num_envs=4, backend=backend) as pool:
        pool.reset()
        for _ in range(3):
            pool.step(np.arange(8) % 4)
        pool.send(np.arange(8) % 4)
        with resumed(pool) as again:
            for _ in range(9):
                assert_same(again.recv(), pool.recv())
                again.send(np.arange(8) % 4)
                pool.send(np.arange(8) % 4)


@pytest.mark.parametrize("other", BACKENDS["native"])
def test_a_pool_that_was_never_reset_begins_with_its_seeds(other: str) -> None:
    with stepmill.make("CartPole-v1", num_envs=3, seed=None) as pool, resumed(pool, backend=other) as again:
        assert again.np_random_seed == pool.np_random_seed
        assert again.config["seed"] == pool.config["seed"]
        assert_same(again.reset(), pool.reset())


def test_envs_that_were_never_reset_begin_with_their_seeds() -> None:
    with stepmill.make(ProbeTwin, num_envs=4, seed=11, backend="inline") as pool:
        pool.reset([1, 2])
        pool.step(np.zeros(1, np.float32), [2])
        with resumed(pool, backend="process") as again:
            for _ in range(12):
                assert_same(again.step(np.zeros(4, np.float32)), pool.step(np.zeros(4, np.float32)))


def test_rollouts_go_on_with_their_numbers_and_observations() -> None:
    def draw(observations: Any, env_ids: Any, generators: Any) -> Any:
        return np.array([generator.integers(2) for generator in generators])

    with stepmill.make("CartPole-v1", num_envs=3) as pool:
        pool.rollout(draw, 20)
        with resumed(pool) as again:
            mine, its = pool.rollout(draw, 30), again.rollout(draw, 30)
            assert_same(its.observations, mine.observations)
            assert_same(its.actions, mine.actions)
        pool.step(np.zeros(3, int))
        with resumed(pool) as again, pytest.raises(errors.UsageError, match="moved since the last rollout ended"):
            again.rollout(draw, 1)


def test_what_the_next_reset_is_given_goes_on() -> None:
    with stepmill.make(FailingReset, num_envs=2, backend="inline") as pool:
        pool.reset()
        with pytest.raises(errors.EnvError, match="asked to fail in reset"):
            pool.reset(options={"kept": 1}, seed=[5, 6])
        with resumed(pool) as again:
            assert again.np_random_seed == pool.np_random_seed
            for _ in range(3):
                assert_same(again.step(np.zeros(2, np.float32)), pool.step(np.zeros(2, np.float32)))


class FailingReset(ProbeTwin):
    def __init__(self) -> None:
        super().__init__(fail_in="reset", fail_at=2)


# ---- results that nobody has received ------------------------------------------------------------


@pytest.mark.parametrize(("view", "case", "backend", "other"), [(VIEWS[i % 3], *way) for i, way in enumerate(WAYS)])
def test_results_that_wait_come_first(view: str, case: str, backend: str, other: str) -> None:
    """Async, with more of them than a batch holds: a batch that is partly filled goes on to be filled."""
    _, task, config = CASES[case]
    with stepmill.make(task, view, num_envs=7, batch_size=3, backend=backend, seed=3, **config) as pool:
        actor = Actor(pool, 0)
        pool.async_reset()
        for _ in range(20):
            ids = seen(view, pool.recv()).ids
            pool.send(actor(len(ids)), ids)
        idle = seen(view, pool.recv()).ids
        with resumed(pool, backend=other) as again, resumed(again, backend=backend) as third:
            assert sorted(pool.in_flight) == again.in_flight == third.in_flight
            assert len(pool.in_flight) == 4
            one = actor(1)
            pools = (pool, again, third)
            for each in pools:
                each.send(one, idle[:1])
            expected, *others = ([each.recv(), each.recv()] for each in pools)
            assert [len(seen(view, batch).reward) for batch in expected] == [3, 2]
            for got in others:
                assert_same(got, expected)
            assert counts_of(third) == counts_of(again) == counts_of(pool)


@pytest.mark.parametrize("backend", ["inline", "process"])
@pytest.mark.parametrize("kind", ["native", "python"])
def test_later_sends_follow_what_waits_in_a_sync_pool(kind: str, backend: str) -> None:
    task = {"native": "Probe-v0", "python": ProbeTwin}[kind]
    with stepmill.make(task, num_envs=5, backend=backend, info=True) as pool:
        pool.reset()
        pool.send(np.zeros(2, np.float32), [3, 1])
        with resumed(pool) as again:
            for each in (pool, again):
                each.send(np.zeros(2, np.float32), [4, 0])
            expected = pool.recv()
            assert expected[4]["env_id"].tolist() == [3, 1, 4, 0]
            assert_same(again.recv(), expected)


def test_a_send_without_ids_goes_to_the_envs_of_the_last_batch() -> None:
    with stepmill.make("CartPole-v1", num_envs=6, batch_size=2, backend="inline") as pool:
        pool.async_reset()
        pool.recv()
        with resumed(pool) as again:
            for _ in range(30):
                for each in (pool, again):
                    each.send(np.ones(2, int))
                assert_same(again.recv(), pool.recv())


@pytest.mark.parametrize("on_error", ["raise", "restart"])
@pytest.mark.parametrize("autoreset", MODES)
@pytest.mark.parametrize(
    ("backend", "other"),
    [("inline", "inline")]
    + [
        pytest.param(*way, marks=pytest.mark.slow)
        for way in (("inline", "process"), ("process", "inline"), ("process", "process"))
    ],
)
def test_failures_and_final_observations_wait_too(backend: str, other: str, autoreset: str, on_error: str) -> None:
    settings: dict[str, Any] = {"backend": backend, "autoreset": autoreset, "on_error": on_error, "max_restarts": 2}
    with stepmill.make([Failing, *[ProbeTwin] * 2], batch_size=2, length=4, **settings) as pool:
        pool.async_reset()
        received(pool)
        texts = []
        for _ in range(6):
            if autoreset == "disabled":
                pool.async_reset()
                received(pool)
            pool.send(np.zeros(3, np.float32), np.arange(3))
            with resumed(pool, backend=other) as again:
                mine, its = received(pool), received(again)
                assert_same(its, mine)
                assert counts_of(again) == counts_of(pool)
            texts.append(str(mine))
        assert any("asked to fail in step" in text for text in texts)
        assert any("final_obs" in text for text in texts) == (autoreset == "same_step")


class Failing(ProbeTwin):
    """Fails twice in a row now and then, so that the second failure is one too many."""

    def __init__(self, length: int) -> None:
        super().__init__(length, fail_in="step", fail_at=3, fail_count=2, info=True)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["thread", "process"])
def test_failures_of_native_envs_wait_too(backend: str) -> None:
    settings: dict[str, Any] = {"fail_in": "step", "fail_at": 2, "fail_count": 100}
    for other in BACKENDS["native"]:
        with stepmill.make("Probe-v0", num_envs=2, backend=backend, **settings) as pool:
            pool.reset()
            pool.step(np.zeros(2, np.float32))
            pool.send(np.zeros(2, np.float32))
            with resumed(pool, backend=other) as again:
                mine, its = received(pool), received(again)
                assert "asked to fail" in mine[0][1]
                assert_same(its, mine)


@pytest.mark.slow
def test_failures_go_on_counting() -> None:
    """Also on worker processes, which have books of their own about them."""
    settings: dict[str, Any] = {"on_error": "restart", "max_restarts": 3, "fail_in": "step", "fail_count": 100}
    for kind, backend in (("Probe-v0", "process"), ("Probe-v0", "inline"), (ProbeTwin, "process")):
        with stepmill.make(kind, num_envs=1, backend=backend, **settings) as pool:
            pool.reset()
            pool.step(np.zeros(1, np.float32))  # fails
            pool.step(np.zeros(1, np.float32))  # resets
            pool.step(np.zeros(1, np.float32))  # fails
            with resumed(pool) as again:
                for each in (pool, again):
                    each.step(np.zeros(1, np.float32))
                    with pytest.raises(errors.EnvError):
                        each.step(np.zeros(1, np.float32))


def test_a_worker_that_dies_after_it_was_resumed_gets_the_seed_that_it_would_have_got() -> None:
    with stepmill.make(ProbeTwin, num_envs=2, backend="process", num_workers=2, on_error="restart") as pool:
        pool.reset(seed=100)

        def lose(one: Any) -> Any:
            kill_worker(one, 0)
            return [one.step(np.zeros(2, np.float32)) for _ in range(3)]

        lose(pool)
        with resumed(pool) as again:
            assert counts_of(again)["restarts"] == 1
            assert_same(lose(again), lose(pool))
            assert again.np_random_seed == pool.np_random_seed


@pytest.mark.parametrize("backend", ["inline", "process"])
def test_a_row_that_was_put_back_survives_the_death_of_its_worker(backend: str) -> None:
    with stepmill.make(FaultyEnv, num_envs=2, backend="process", num_workers=1, on_error="restart") as pool:
        pool.reset()
        pool.send(np.zeros(2, np.float32))
        with resumed(pool, backend=backend) as again:
            kill_worker(pool, 0)
            assert_same(pool.recv(), again.recv())
            assert pool.step(np.zeros(2, np.float32))[4]["abnormal"].all()
            assert "abnormal" not in again.step(np.zeros(2, np.float32))[4]


def test_it_waits_for_envs_that_are_still_at_work(tmp_path: Any) -> None:
    with GatedPool(5, batch_size=2) as gated:
        pool = gated.pool
        pool.send(np.zeros(5, np.float32), np.arange(5))
        gated.open(2)
        gated.open_for_good()
        pool.checkpoint(tmp_path / "run")
        assert pool.in_flight == [0, 1, 2, 3, 4]
        assert [len(pool.recv(timeout=0)[1]) for _ in range(3)] == [2, 2, 1]


def test_an_env_that_was_built_again_begins_with_its_new_seed() -> None:
    """Nobody asks it for a state before its first reset, when it may have none."""
    with stepmill.make(Lazy, num_envs=2, backend="process", num_workers=2, on_error="restart") as pool:
        pool.reset()
        kill_worker(pool, 0)
        assert pool.step(np.zeros(2, np.float32))[4]["abnormal"].tolist() == [True, False]
        with resumed(pool) as again:
            assert again.np_random_seed == pool.np_random_seed
            for _ in range(3):
                assert_same(again.step(np.zeros(2, np.float32)), pool.step(np.zeros(2, np.float32)))


class Lazy(ProbeTwin):
    """Builds what it plays with in its first reset."""

    world: list[int] | None = None

    def reset(self, **arguments: Any) -> Any:
        self.world = [1]
        return super().reset(**arguments)

    def get_state(self) -> Any:
        assert self.world is not None
        return vars(self)

    def set_state(self, state: Any) -> None:
        vars(self).update(state)


def test_an_idle_env_whose_worker_is_gone_is_told_of_first() -> None:
    with stepmill.make(ProbeTwin, num_envs=2, backend="process", num_workers=2, on_error="restart") as pool:
        pool.reset()
        pool.send(np.zeros(1, np.float32), [1])
        kill_worker(pool, 0)
        with pytest.raises(errors.WorkerDiedError, match="env 0"):
            pool.checkpoint(io.BytesIO())
        pool.send(np.zeros(1, np.float32), [0])
        with resumed(pool) as again:
            expected = pool.recv()
            assert expected[4]["abnormal"].tolist() == [False, True]
            assert_same(again.recv(), expected)


# ---- calls that were interrupted -----------------------------------------------------------------


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("fails", [False, True])
def test_a_batch_that_an_interrupted_call_holds_comes_first(fails: bool, view: str) -> None:
    """Ctrl-C often comes right before a quick pool returns a batch."""
    config = {"fail_in": "step", "fail_count": 100} if fails else {}
    with stepmill.make(ProbeTwin, view, num_envs=3, batch_size=2, backend="inline", info=True, **config) as pool:
        pool.async_reset()
        received(pool)
        pool.send(np.zeros(3, np.float32), [2, 0, 1])
        interrupt_recv(pool)
        with resumed(pool, backend="process") as again:
            assert pool.in_flight == again.in_flight == [0, 1, 2]
            mine, its = received(pool), received(again)
            assert_same(its, mine)
            assert len(mine) == 2
            assert isinstance(mine[0][0], str) == fails


def interrupt_recv(pool: Any) -> None:
    finish = type(pool._host).finish_rows

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(pool._host), "finish_rows", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pool.recv()
    assert type(pool._host).finish_rows is finish


def test_a_checkpoint_that_is_interrupted_leaves_everything_in_flight(tmp_path: Any) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    with GatedPool(5, batch_size=2) as gated:

        def checkpoint() -> None:
            signal.setitimer(signal.ITIMER_REAL, 0.2)  # it waits at the gate until then
            gated.pool.checkpoint(tmp_path / "run")

        gated.pool.send(np.zeros(5, np.float32), np.arange(5))
        gated.open(3)
        former = signal.signal(signal.SIGALRM, interrupt)
        try:
            with pytest.raises(KeyboardInterrupt):
                checkpoint()
        finally:
            signal.signal(signal.SIGALRM, former)
        assert gated.pool.in_flight == [0, 1, 2, 3, 4]
        gated.open_for_good()
        assert [len(gated.pool.recv()[1]) for _ in range(3)] == [2, 2, 1]
        assert not list(tmp_path.iterdir())


# ---- the pool that wrote it ----------------------------------------------------------------------


def test_a_checkpoint_that_fails_changes_nothing() -> None:
    with stepmill.make(Unsavable, num_envs=3, batch_size=2, backend="inline") as pool:
        pool.async_reset()
        with pytest.raises(errors.UnsupportedError, match="get_state"):
            pool.checkpoint(io.BytesIO())
        assert [len(pool.recv()[1]), len(pool.recv()[1])] == [2, 1]


class Unsavable(gymnasium.Env[Any, Any]):
    observation_space, action_space = BOX, spaces.Discrete(2)

    def reset(self, **_: Any) -> Any:
        return np.zeros((2, 3), np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros((2, 3), np.float32), 0.0, False, False, {}


def test_the_pool_that_wrote_it_keeps_what_cannot_be_pickled() -> None:
    with stepmill.make(Secretive, num_envs=1, backend="inline") as pool:
        pool.async_reset()
        with pytest.warns(UserWarning, match=r"info\['secret'\] of env 0 cannot be pickled"):
            again = resumed(pool)
        with again:
            assert pool.recv()[4]["secret"][0] is not None
            assert "secret" not in again.recv()[4]


class Secretive(ProbeTwin):
    def reset(self, **arguments: Any) -> Any:
        observation, _ = super().reset(**arguments)
        return observation, {"secret": threading.Lock(), "open": 1}


def test_a_closed_pool_writes_nothing(tmp_path: Any) -> None:
    pool = stepmill.make("CartPole-v1")
    pool.close()
    with pytest.raises(errors.ClosedError):
        pool.checkpoint(tmp_path / "run")
    assert not list(tmp_path.iterdir())


def test_it_is_resumed_in_another_process(tmp_path: Any) -> None:
    path = tmp_path / "run"
    with stepmill.make(WildEnv, num_envs=3, batch_size=2, seed=5, backend="inline") as pool:
        pool.async_reset()
        pool.recv()
        pool.checkpoint(path)
        code = f"""
            import pickle, stepmill
            with stepmill.resume({str(path)!r}, backend="process", num_workers=2) as pool:
                print(pickle.dumps((pool.in_flight, pool.recv())).hex())
        """
        assert_same(pickle.loads(bytes.fromhex(run_well(code))), ([2], pool.recv()))
