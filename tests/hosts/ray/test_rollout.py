"""Rollouts on a real Ray cluster: the policy goes to the envs, and what comes back is what one machine gives."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepmill
from stepmill import errors
from stepmill.hosts.ray.actors import Actors
from support.envs.many_spaces import Mixed
from support.envs.remote import Teller
from support.on_ray import actors_of, make_on_ray, wait_until_dead
from support.probes import assert_same

pytestmark = [
    pytest.mark.usefixtures("cluster", "server", "deadline"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"),
]


N, T = 5, 30
MODES = ["next_step", "same_step"]
NAMES = ["observations", "actions", "rewards", "terminated", "truncated", "reset", "abnormal", "final_observations"]
NAMES += ["extras", "last_observation"]


def draw(observation: Any, env_ids: np.ndarray, rngs: Sequence[np.random.Generator]) -> Any:
    """Each row depends on its own observation and generator."""
    chosen = np.array([int(rng.random() < 0.5) for rng in rngs])
    observation += 0  # it can be written to
    return chosen, observation.sum(axis=1), np.stack([env_ids, chosen], axis=1)


def assert_same_rollouts(left: stepmill.Rollout, right: stepmill.Rollout) -> None:
    for name in NAMES:
        assert_same(getattr(left, name), getattr(right, name))


@pytest.mark.parametrize("num_actors", [1, 3])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("task", ["CartPole-v1", Teller])
def test_is_what_one_machine_gives(task: Any, mode: str, num_actors: int) -> None:
    arguments = {"num_envs": N, "seed": 3, "autoreset": mode, "max_episode_steps": 9}
    with make_on_ray(task, num_actors, **arguments) as pool, stepmill.make(task, **arguments) as plain:
        for _ in range(2):
            assert_same_rollouts(pool.rollout(draw, T), plain.rollout(draw, T))
        rng = np.random.default_rng(1)
        for _ in range(20):
            action = rng.integers(0, 2, N)
            result = pool.step(action)
            assert_same(result, plain.step(action))
        assert_same_rollouts(
            pool.rollout(draw, 3, observation=result[0]), plain.rollout(draw, 3, observation=result[0])
        )
        assert_same(pool.reset(seed=9), plain.reset(seed=9))
        assert pool.stats()["steps"] == plain.stats()["steps"]
        assert pool.stats()["episodes"] == plain.stats()["episodes"]
        with pytest.raises(errors.UsageError, match="have moved"):
            pool.rollout(draw, 2)


def draw_parts(observation: Any, env_ids: np.ndarray, rngs: Sequence[np.random.Generator]) -> Any:
    push = np.array([rng.uniform(-1, 1, 2) for rng in rngs]) * observation["noise"][:, 0, :1]
    return (observation["counts"][0] % 3, {"push": push}), env_ids


@pytest.mark.parametrize("batch_size", [5, 2])
def test_observations_and_actions_of_several_parts(batch_size: int) -> None:
    arguments = {"num_envs": 5, "seed": 3}
    with make_on_ray(Mixed, 2, batch_size=batch_size, **arguments) as pool, stepmill.make(Mixed, **arguments) as plain:
        for _ in range(2):
            assert_same_rollouts(pool.rollout(draw_parts, 12), plain.rollout(draw_parts, 12))


def test_a_policy_is_put_once_whatever_the_number_of_actors(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    class Heavy:
        weights = None

        def __init__(self) -> None:
            self.weights = np.zeros(2_000_000, np.uint8)

        def __call__(self, observation: Any, env_ids: np.ndarray, rngs: Any) -> Any:
            return np.zeros(len(env_ids), int)

    put = ray.put
    sizes = []

    def counted(value: Any, **arguments: Any) -> Any:
        sizes.append(len(value))
        return put(value, **arguments)

    monkeypatch.setattr(ray, "put", counted)
    with make_on_ray("CartPole-v1", 3, num_envs=6) as pool:
        for count in (1, 2):
            pool.rollout(Heavy(), 4)
            assert len(sizes) == count
    assert min(sizes) > 2_000_000


def test_more_steps_than_there_is_memory_for() -> None:
    with make_on_ray("CartPole-v1", 2, num_envs=4) as pool, stepmill.make("CartPole-v1", num_envs=4) as plain:
        for steps in (10**13, 10**18):
            for one in (pool, plain):
                with pytest.raises(errors.OutOfMemoryError, match=r"rollout: there is no memory .* shorter rollouts"):
                    one.rollout(draw, steps)
            assert_same_rollouts(pool.rollout(draw, 2), plain.rollout(draw, 2))  # as the message says


def test_is_the_same_in_async_batches() -> None:
    arguments = {"num_envs": 7, "seed": 3}
    with make_on_ray(Teller, 2, batch_size=3, **arguments) as pool, stepmill.make(Teller, **arguments) as plain:
        assert_same_rollouts(pool.rollout(draw, T), plain.rollout(draw, T))
        pool.send(np.ones(7, int))  # to all
        assert len(pool.recv()[4]["env_id"]) == 3


# ---- failures --------------------------------------------------------------------------------------


def breaks(observation: Any, env_ids: np.ndarray, rngs: Sequence[np.random.Generator]) -> np.ndarray:
    """Env 3 fails now and then."""
    return np.array([2 if i == 3 and rng.random() < 0.2 else 1 for i, rng in zip(env_ids, rngs, strict=True)])


def test_a_failing_env_is_named_and_all_come_home() -> None:
    with make_on_ray(Teller, 2, num_envs=4, seed=3) as pool:
        with pytest.raises(errors.EnvError, match=r"env 3 failed in step .*it broke at"):
            pool.rollout(breaks, T)
        with pytest.raises(errors.UsageError, match="have moved"):
            pool.rollout(draw, 2)
        observation, _ = pool.reset()
        pool.rollout(draw, 2, observation=observation)
        pool.step(np.zeros(4, int))


@pytest.mark.parametrize("mode", MODES)
def test_failures_that_are_tolerated_are_those_of_one_machine(mode: str) -> None:
    arguments = {"num_envs": 4, "seed": 3, "on_error": "restart", "max_restarts": None, "autoreset": mode}
    with make_on_ray(Teller, 2, **arguments) as pool, stepmill.make(Teller, **arguments) as plain:
        ours = pool.rollout(breaks, T)
        assert ours.abnormal.any()
        assert_same_rollouts(ours, plain.rollout(breaks, T))
        action = np.array([0, 0, 0, 2])
        assert_same(pool.step(action), plain.step(action))  # shows what the env showed last


def test_what_a_policy_raises_somewhere_is_raised_here() -> None:
    def policy(observation: Any, env_ids: np.ndarray, rngs: Any) -> Any:
        if 3 in env_ids:
            raise ZeroDivisionError("not today")
        return np.zeros(len(env_ids), int)

    with make_on_ray("CartPole-v1", 2, num_envs=4, seed=3) as pool:
        with pytest.raises(ZeroDivisionError, match="not today") as caught:
            pool.rollout(policy, 4)
        assert "in policy" in "".join(caught.value.__notes__)
        with pytest.raises(errors.ActionTypeError, match="policy: expected one action for each of 2 envs, got None"):
            pool.rollout(lambda *_: None, 4, observation=pool.reset()[0])
        observation, _ = pool.reset()
        pool.rollout(draw, 2, observation=observation)


def test_a_policy_that_cannot_travel_is_named() -> None:
    lock = threading.Lock()
    with make_on_ray("CartPole-v1", 2, num_envs=4) as pool:
        with pytest.raises(errors.InputError, match=r"rollout\(policy\): expected a value that can be pickled"):
            pool.rollout(lambda *_: lock, 4)
        pool.rollout(draw, 2)


class Deadly:
    """Ends the process that runs env 3 in the third call, once for each letter of the file."""

    def __init__(self, file: Path, lives: int) -> None:
        self.file, self.calls = file, 0
        file.write_text("x" * lives)

    def __call__(self, observation: Any, env_ids: np.ndarray, rngs: Sequence[np.random.Generator]) -> Any:
        self.calls += 1
        if 3 in env_ids and self.calls == 3 and (left := self.file.read_text()):
            self.file.write_text(left[1:])
            os.kill(os.getpid(), signal.SIGKILL)
        return np.ones(len(env_ids), int), observation.sum(axis=1)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("task", ["CartPole-v1", Teller])
def test_a_killed_actor_costs_its_envs_a_step(task: Any, mode: str, tmp_path: Path) -> None:
    arguments = {"num_envs": 4, "seed": 3, "on_error": "restart", "max_restarts": None, "autoreset": mode}
    with make_on_ray(task, 2, **arguments) as pool, stepmill.make(task, **arguments) as plain:
        observation, _ = pool.reset()
        rollout = pool.rollout(Deadly(tmp_path / "lives", 2), 12, observation=observation)
        expected = plain.rollout(Deadly(tmp_path / "none", 0), 12, observation=plain.reset()[0])
        assert rollout.abnormal[:2].tolist() == [[False, False, True, True]] * 2
        assert rollout.truncated[:2].tolist() == [[False, False, True, True]] * 2
        assert not rollout.abnormal[2:].any()
        assert rollout.reset[2].tolist() == [False, False, True, True]
        assert_same(rollout.observations[2, 2:], observation[2:])
        assert (rollout.rewards[:3, 2:] == 0).all()
        assert (rollout.rewards[3, 2:] != 0).all()
        for name in NAMES[:-2]:
            assert_same(getattr(rollout, name)[:, :2], getattr(expected, name)[:, :2])
        pool.step(np.ones(4, int))
        assert pool.rollout(draw, 3, observation=pool.reset()[0]).rewards.shape == (3, 4)


class ShortLived:
    """Ends a process in which it was called more often than so. Returns how often this copy of it was called."""

    def __init__(self, calls_in_a_life: int) -> None:
        self.most, self.calls = calls_in_a_life, 0

    def __call__(self, observation: Any, env_ids: np.ndarray, rngs: Sequence[np.random.Generator]) -> Any:
        in_this_life = int(os.environ.get("CALLS", "0")) + 1
        os.environ["CALLS"] = str(in_this_life)
        if in_this_life > self.most:
            os.kill(os.getpid(), signal.SIGKILL)
        self.calls += 1
        return np.ones(len(env_ids), int), np.full(len(env_ids), self.calls), np.array([rng.random() for rng in rngs])


def test_what_is_done_comes_home_however_often_actors_are_lost() -> None:
    """Each life is too short for the rest of the rollout. What a policy remembers lasts until the next loss."""
    with make_on_ray("CartPole-v1", 1, num_envs=2, on_error="restart", max_restarts=None) as pool:
        rollout = pool.rollout(ShortLived(6), 24, seed=9)
        assert pool.stats()["restarts"] == 5
    # It is to make 24 steps; 6, then 12; 3, then 6; 1, then 2, then 4; and so on.
    assert np.flatnonzero(rollout.abnormal[:, 0]).tolist() == [0, 7, 11, 15, 19]
    calls, drawn = rollout.extras
    for begin, end in ((1, 7), (8, 11), (12, 15), (16, 19), (20, 24)):
        assert calls[begin:end, 0].tolist() == list(range(1, end - begin + 1))
        for env_id in range(2):
            assert_same(drawn[begin:end, env_id], np.random.default_rng((9, env_id, begin)).random(end - begin))


def test_an_actor_that_is_lost_before_it_is_ready_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    started = []
    replace = Actors.replace

    def replace_by_a_dying_one(self: Actors, group: int, *rest: Any) -> None:
        replace(self, group, *rest)
        started.append(self._actors[group].handle)
        ray.kill(started[-1])

    monkeypatch.setattr(Actors, "replace", replace_by_a_dying_one)
    with make_on_ray("CartPole-v1", 2, num_envs=4, on_error="restart", max_restarts=None) as pool:
        rollout = pool.rollout(Deadly(tmp_path / "lives", 1), 12, observation=pool.reset()[0])
    assert len(started) == 1
    assert rollout.abnormal[0].tolist() == [False, False, True, True]
    assert not rollout.abnormal[1:].any()


def test_after_a_loss_other_numbers_are_drawn(tmp_path: Path) -> None:
    deadly = Deadly(tmp_path / "lives", 1)

    def policy(observation: Any, env_ids: np.ndarray, rngs: Sequence[np.random.Generator]) -> Any:
        actions, _ = deadly(observation, env_ids, rngs)
        return actions, np.array([rng.random() for rng in rngs])

    with make_on_ray("CartPole-v1", 2, num_envs=4, seed=3, on_error="restart", max_restarts=None) as pool:
        (drawn,) = pool.rollout(policy, 12, seed=9).extras
    for env_id in range(2):
        assert_same(drawn[:, env_id], np.random.default_rng((9, env_id)).random(12))
    for env_id in range(2, 4):
        assert_same(drawn[1:, env_id], np.random.default_rng((9, env_id, 1)).random(11))


def test_a_killed_actor_is_an_error_unless_told_otherwise(tmp_path: Path) -> None:
    with make_on_ray("CartPole-v1", 2, num_envs=4, seed=3) as pool:
        with pytest.raises(
            errors.WorkerDiedError, match=r"env 2 failed in step .*that ran it is gone.*after its step 0"
        ):
            pool.rollout(Deadly(tmp_path / "lives", 1), 12)
        observation, *_ = pool.step(np.zeros(4, int))
        pool.rollout(draw, 3, observation=observation)


def test_all_that_fail_in_one_step_are_in_the_error() -> None:
    with make_on_ray(Teller, 2, num_envs=6, seed=3) as pool:
        observation, _ = pool.reset()
        with pytest.raises(errors.EnvError, match="it broke") as caught:
            pool.rollout(lambda seen, env_ids, rngs: np.where(env_ids < 3, 0, 2), 4, observation=observation)
        assert [one.env_id for one in caught.value.errors] == [3, 4, 5]


def stops(observation: Any, env_ids: np.ndarray, rngs: Any) -> Any:
    os.kill(os.getpid(), signal.SIGSTOP)
    threading.Event().wait()  # it may take a moment until this thread is stopped, too


def test_silence_is_named() -> None:
    with make_on_ray("CartPole-v1", 1, num_envs=2, node_timeout=5) as pool:
        observation, _ = pool.reset()
        with pytest.raises(errors.EnvTimeoutError, match=r"gave no sign of life for node_timeout=5 s"):
            pool.rollout(stops, 4, observation=observation)


def assert_raises_and_goes_on(monkeypatch: pytest.MonkeyPatch, method: str, broken: Any, message: str) -> None:
    """A rollout with this method of ``Actors`` raises, and the next one, without it, is good."""
    with make_on_ray("CartPole-v1", 2, num_envs=4) as pool:
        observation, _ = pool.reset()
        monkeypatch.setattr(Actors, method, broken)
        with pytest.raises(MemoryError, match=message):
            pool.rollout(draw, 4, observation=observation)
        monkeypatch.undo()
        pool.rollout(draw, 4, observation=pool.reset()[0])


def test_nothing_waits_for_what_cannot_be_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    send_out = Actors.send_out

    def full(actors: Actors, group: int, *rest: Any) -> None:
        if group == 1:
            raise MemoryError("the object store is full")
        send_out(actors, group, *rest)

    assert_raises_and_goes_on(monkeypatch, "send_out", full, "is full")


def test_nothing_waits_for_what_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = Actors.answers
    raised = []

    def broken(actors: Actors, seconds: float) -> Iterator[Any]:
        for one in answers(actors, seconds):
            if not raised:
                raised.append(one)
                raise MemoryError("no room for it")
            yield one

    assert_raises_and_goes_on(monkeypatch, "answers", broken, "no room for it")


def test_restarts_are_limited(tmp_path: Path) -> None:
    with make_on_ray("CartPole-v1", 2, num_envs=4, seed=3, on_error="restart", max_restarts=2) as pool:
        with pytest.raises(errors.WorkerDiedError, match=r"env 2 failed"):
            pool.rollout(Deadly(tmp_path / "lives", 9), 12)
        assert (tmp_path / "lives").read_text() == "x" * 7
        pool.rollout(draw, 3, observation=pool.reset()[0])


def test_an_actor_that_died_before_costs_its_envs_their_first_step() -> None:
    import ray

    with make_on_ray("CartPole-v1", 2, num_envs=4, seed=3, on_error="restart", max_restarts=None) as pool:
        observation, _ = pool.reset()
        ray.kill(actors_of(pool)[1])
        wait_until_dead(actors_of(pool)[1])
        *_, info = pool.step(np.zeros(1, int), env_id=[3])  # so it is noticed, and env 2 is not told yet
        assert info["abnormal"].all()
        rollout = pool.rollout(draw, 4, observation=observation)
        assert rollout.abnormal[:, 2].tolist() == [True, False, False, False]
        assert rollout.reset[:, 2].tolist() == [False, True, False, False]
        assert rollout.reset[:, 3].tolist() == [True, False, False, False]
        assert not rollout.abnormal[:, [0, 1, 3]].any()


def test_ctrl_c_brings_all_envs_home(tmp_path: Path) -> None:
    def policy(observation: Any, env_ids: np.ndarray, rngs: Any) -> Any:
        if 3 in env_ids and not (tmp_path / "sent").exists():
            (tmp_path / "sent").touch()
            os.kill(driver, signal.SIGINT)
        return np.zeros(len(env_ids), int)

    driver = os.getpid()
    with make_on_ray("CartPole-v1", 2, num_envs=4, seed=3) as pool:
        with pytest.raises(KeyboardInterrupt):
            pool.rollout(policy, 12)
        pool.step(np.zeros(4, int))
        pool.rollout(policy, 3, observation=pool.reset()[0])


def test_ctrl_c_does_not_wait_for_the_other_steps(tmp_path: Path) -> None:
    steps = 20_000

    def policy(observation: Any, env_ids: np.ndarray, rngs: Any) -> Any:
        with (tmp_path / f"calls-{env_ids[0]}").open("a") as file:
            file.write("x")
        if 3 in env_ids and not (tmp_path / "sent").exists():
            (tmp_path / "sent").touch()
            os.kill(driver, signal.SIGINT)
        time.sleep(0.01)
        return np.zeros(len(env_ids), int)

    driver = os.getpid()
    (tmp_path / "calls-0").touch()  # its actor may be called off before it begins
    with make_on_ray("CartPole-v1", 2, num_envs=4, seed=3) as pool:
        with pytest.raises(KeyboardInterrupt):
            pool.rollout(policy, steps)
        assert all(len((tmp_path / f"calls-{first}").read_text()) < steps for first in (0, 2))
        pool.rollout(policy, 3, observation=pool.reset()[0])  # the next one is not called off


def test_what_a_policy_raises_ends_the_others_too(tmp_path: Path) -> None:
    steps = 20_000

    def policy(observation: Any, env_ids: np.ndarray, rngs: Any) -> Any:
        if 3 in env_ids:
            raise RuntimeError("no idea")
        with (tmp_path / "calls").open("a") as file:
            file.write("x")
        time.sleep(0.01)
        return np.zeros(len(env_ids), int)

    (tmp_path / "calls").touch()
    with make_on_ray("CartPole-v1", 2, num_envs=4, seed=3) as pool:
        with pytest.raises(RuntimeError, match="no idea"):
            pool.rollout(policy, steps)
        assert len((tmp_path / "calls").read_text()) < steps


class Remembering:
    def __init__(self) -> None:
        self.calls: dict[int, int] = {}

    def begin(self, env_ids: np.ndarray) -> None:
        self.calls.update(dict.fromkeys(env_ids.tolist(), 0))

    def __call__(self, observations: Any, env_ids: np.ndarray, generators: Any) -> Any:
        counts = np.array([self.calls[env_id] for env_id in env_ids.tolist()])
        self.calls.update(zip(env_ids.tolist(), (counts + 1).tolist(), strict=True))
        return np.zeros(len(env_ids), int), counts


def test_a_policy_with_a_memory_begins_where_the_envs_are() -> None:
    with (
        make_on_ray("CartPole-v1", 2, num_envs=4, seed=3) as pool,
        stepmill.make("CartPole-v1", num_envs=4, seed=3) as here,
    ):
        there = pool.rollout(Remembering(), 40)
        np.testing.assert_array_equal(there.extras[0], here.rollout(Remembering(), 40).extras[0])
        assert there.reset.any()
        assert (pool.rollout(Remembering(), 2).extras[0][0] == 0).all()
