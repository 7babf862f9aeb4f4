"""An env that fails fills its row like any result: no action is lost, no other env disturbed, and the pool goes on."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import stepmill
from stepmill import EnvError, errors
from support.envs import ProbeTwin
from support.envs.faulty import outcome
from support.probes import KINDS, MODES, VIEWS, assert_same, make_probe, reset_obs, seen
from support.processes import new_threads, threads

N = 4
ACTION = np.array([0.25, 0.5, 0.75, 1.0], np.float32)
WELL = {"fail_in": ""}


def only(env_id: int, **config: Any) -> list[dict[str, Any]]:
    """Configurations of which only one env's asks for failures."""
    return [config if i == env_id else WELL for i in range(N)]


# ---- the failed row ------------------------------------------------------------------------------


@pytest.mark.parametrize("on_error", ["raise", "restart"])
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_failed_step_is_truncated_marked_and_without_reward(kind: str, view: str, on_error: str) -> None:
    configs = only(2, fail_in="step", fail_at=3)
    with (
        make_probe(kind, view, num_envs=N, env_config=configs, on_error=on_error) as pool,
        make_probe(kind, view, num_envs=N) as well,
    ):
        pool.reset()
        well.reset()
        for _ in range(2):
            last = well.step(ACTION)
            assert_same(pool.step(ACTION), last)
        result, error = outcome(lambda: pool.step(ACTION))
        batch, right = seen(view, result), seen(view, well.step(ACTION))

        assert (error is not None) == (on_error == "raise")
        assert batch.abnormal == [False, False, True, False]
        assert batch.info["_abnormal"].tolist() == [True] * N
        assert batch.done.tolist() == [False, False, True, False]
        assert batch.reward.tolist() == [0.25, 0.5, 0.0, 1.0]
        kept = seen(view, last).obs[2] if on_error == "restart" else [0.0, 0.0]
        np.testing.assert_array_equal(batch.obs[2], kept)
        others = [0, 1, 3]
        np.testing.assert_array_equal(batch.obs[others], right.obs[others])
        assert [batch.elapsed[i] for i in others] == [3, 3, 3]
        assert "episode_return" not in batch.info


@pytest.mark.parametrize("kind", KINDS)
def test_each_view_tells_a_failure_from_a_real_end(kind: str) -> None:
    fails = {"num_envs": 1, "fail_in": "step", "on_error": "restart"}
    with make_probe(kind, "gymnasium", **fails) as pool:
        pool.reset()
        _, _, terminated, truncated, _ = pool.step([0.5])
        assert (terminated.tolist(), truncated.tolist()) == ([False], [True])
    with make_probe(kind, "gym", **fails) as pool:
        pool.reset()
        _, _, done, info = pool.step([0.5])
        assert (done.tolist(), info["TimeLimit.truncated"].tolist()) == ([True], [True])
    with make_probe(kind, "dm", **fails) as pool:
        pool.reset()
        timestep = pool.step([0.5])
        assert (timestep.step_type.tolist(), timestep.discount.tolist()) == ([2], [1.0])


@pytest.mark.parametrize("on_error", ["raise", "restart"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_after_a_failure_the_env_goes_on_by_its_autoreset_mode(kind: str, mode: str, on_error: str) -> None:
    configs = only(1, fail_in="step", fail_at=2)
    with make_probe(kind, num_envs=N, env_config=configs, autoreset=mode, on_error=on_error) as pool:
        pool.reset()
        pool.step(ACTION)
        outcome(lambda: pool.step(ACTION))
        if mode == "disabled":
            with pytest.raises(errors.NeedsResetError, match="env 1"):
                pool.step(ACTION)
            pool.reset([1])
            elapsed = [3, 1, 3, 3]
        else:
            elapsed = [3, 0, 3, 3]
        obs, reward, terminated, truncated, info = pool.step(ACTION)
        assert info["elapsed_step"].tolist() == elapsed
        assert reward[1] == (0.5 if mode == "disabled" else 0.0)
        assert not (terminated | truncated).any()
        assert "abnormal" not in info
        assert obs[1, 0] != 0.0
        assert pool.step(ACTION)[4]["elapsed_step"].tolist() == [value + 1 for value in elapsed]


@pytest.mark.parametrize("kind", KINDS)
def test_the_others_play_on_as_if_nothing_had_failed(kind: str) -> None:
    configs = only(1, fail_in="step", fail_at=2, fail_count=100)
    with (
        make_probe(kind, num_envs=N, env_config=configs, length=3, on_error="raise") as pool,
        make_probe(kind, num_envs=N, length=3) as well,
    ):
        pool.reset()
        well.reset()
        others = [0, 2, 3]
        for _ in range(20):
            result, _ = outcome(lambda: pool.step(ACTION))
            right = well.step(ACTION)
            for got, expected in zip(result[:4], right[:4], strict=True):
                np.testing.assert_array_equal(got[others], expected[others])
            np.testing.assert_array_equal(result[4]["elapsed_step"][others], right[4]["elapsed_step"][others])


def test_a_failed_observation_is_a_failure() -> None:
    with stepmill.make("Probe-v0", num_envs=N, env_config=only(1, fail_in="observe", fail_at=3)) as pool:
        pool.reset()
        pool.step(ACTION)
        with pytest.raises(EnvError, match="env 1 failed in observe") as caught:
            pool.step(ACTION)
        obs, reward, _, truncated, info = caught.value.batch
        assert info["abnormal"].tolist() == truncated.tolist() == [False, True, False, False]
        assert (obs[1].tolist(), reward[1]) == ([0.0, 0.0], 0.0)
        assert pool.step(ACTION)[4]["elapsed_step"].tolist() == [3, 0, 3, 3]


# ---- the error -----------------------------------------------------------------------------------


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_error_carries_the_whole_batch_and_every_failure(kind: str, view: str) -> None:
    configs = [{"fail_in": "step", "fail_at": 2} if i in (1, 3) else WELL for i in range(N)]
    with make_probe(kind, view, num_envs=N, env_config=configs) as pool:
        pool.reset()
        good = pool.step(ACTION)
        with pytest.raises(EnvError) as caught:
            pool.step(ACTION)
        error = caught.value
        assert isinstance(error, RuntimeError)
        assert type(error.batch) is type(good)
        assert len(error.batch) == len(good)
        batch = seen(view, error.batch)
        assert batch.ids == [0, 1, 2, 3]
        assert batch.abnormal == [False, True, False, True]
        assert error.errors[0] is error
        for one, env_id in zip(error.errors, (1, 3), strict=True):
            assert (one.env_id, one.phase, one.episode, one.step) == (env_id, "step", 1, 1)
            assert f"env {env_id} failed in step (episode 1, step 1)" in str(one)
            assert "the probe was asked to fail in step" in str(one)
            if kind == "python":
                assert isinstance(one.__cause__, RuntimeError)
                assert one.__cause__.__traceback__ is not None
        assert pool.stats()["in_flight"] == 0


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_failed_reset_carries_what_reset_would_have_returned(kind: str, view: str) -> None:
    configs = only(2, fail_in="reset")
    with (
        make_probe(kind, view, num_envs=N, env_config=configs) as pool,
        make_probe(kind, view, num_envs=N) as well,
    ):
        good = well.reset()
        with pytest.raises(EnvError, match="env 2 failed in reset") as caught:
            pool.reset()
        assert (caught.value.env_id, caught.value.phase) == (2, "reset")
        batch = caught.value.batch
        assert type(batch) is type(good)
        obs, right = reset_obs(view, batch), reset_obs(view, good)
        np.testing.assert_array_equal(obs[[0, 1, 3]], right[[0, 1, 3]])
        assert obs[2].tolist() == [0.0, 0.0]
        # The next action resets it, with the seed that it was to be reset with.
        result = seen(view, pool.step(ACTION))
        assert result.elapsed == [1, 1, 0, 1]
        np.testing.assert_array_equal(result.obs[2], right[2])


@pytest.mark.parametrize("kind", KINDS)
def test_failures_in_resets_of_chosen_envs(kind: str) -> None:
    with make_probe(kind, num_envs=N, env_config=only(2, fail_in="reset", fail_at=2, fail_count=2)) as pool:
        pool.reset()
        with pytest.raises(EnvError, match="env 2") as caught:
            pool.reset([3, 2])
        obs, info = caught.value.batch
        assert info["env_id"].tolist() == [3, 2]
        assert info["abnormal"].tolist() == [False, True]
        assert obs[1].tolist() == [0.0, 0.0]
        with pytest.raises(EnvError, match="env 2") as caught:
            pool.reset(options={"reset_mask": np.array([True, False, True, False])})
        assert caught.value.batch[1]["abnormal"].tolist() == [False, False, True, False]
        assert pool.reset()[1]["env_id"].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", KINDS)
def test_failures_of_drained_steps_are_dropped_with_them(kind: str) -> None:
    with make_probe(kind, num_envs=N, fail_in="step") as pool:
        pool.reset()
        pool.send(ACTION)
        assert "abnormal" not in pool.reset()[1]
        assert "abnormal" not in pool.step(ACTION)[4]


# ---- same_step -----------------------------------------------------------------------------------


@pytest.mark.parametrize("on_error", ["raise", "restart"])
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("kind", KINDS)
def test_same_step_keeps_a_good_end_when_the_reset_after_it_fails(kind: str, view: str, on_error: str) -> None:
    with make_probe(
        kind,
        view,
        num_envs=N,
        autoreset="same_step",
        length=2,
        on_error=on_error,
        env_config=only(1, fail_in="reset", fail_at=2),
    ) as pool:
        pool.reset()
        before = seen(view, pool.step(ACTION))
        result, error = outcome(lambda: pool.step(ACTION))
        batch = seen(view, result)
        assert (error is not None) == (on_error == "raise")
        assert batch.abnormal == [False, True, False, False]
        assert batch.done.tolist() == [True] * N
        np.testing.assert_array_equal(batch.reward, ACTION)
        assert batch.info["episode_return"].tolist() == (2 * ACTION).tolist()
        assert batch.info["episode_length"].tolist() == [2] * N
        assert batch.info["_final_obs"].tolist() == [True] * N
        final = [before.obs[1, 0], 2.0]
        np.testing.assert_array_equal(batch.info["final_obs"][1], final)
        np.testing.assert_array_equal(batch.obs[1], final)
        batch = seen(view, pool.step(ACTION))  # which resets env 1
        assert batch.elapsed == [1, 0, 1, 1]
        assert batch.reward[1] == 0.0
        assert batch.abnormal == [False] * N


@pytest.mark.parametrize("kind", KINDS)
def test_same_step_with_a_failing_step_shows_no_final_observation_of_it(kind: str) -> None:
    with make_probe(
        kind, num_envs=N, autoreset="same_step", length=2, env_config=only(1, fail_in="step", fail_at=2)
    ) as pool:
        pool.reset()
        pool.step(ACTION)
        with pytest.raises(EnvError) as caught:
            pool.step(ACTION)
        info = caught.value.batch[4]
        assert info["_final_obs"].tolist() == [True, False, True, True]
        assert info["final_obs"][1] is None
        assert pool.step(ACTION)[4]["elapsed_step"].tolist() == [1, 0, 1, 1]


# ---- restart -------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_restarts", [1, 2, 5])
@pytest.mark.parametrize("kind", KINDS)
def test_restart_raises_at_max_restarts_failures_in_a_row(kind: str, max_restarts: int) -> None:
    configs = only(3, fail_in="reset", fail_at=2, fail_count=100)
    with make_probe(
        kind, num_envs=N, env_config=configs, length=1, on_error="restart", max_restarts=max_restarts
    ) as pool:
        pool.reset()
        pool.step(ACTION)
        for _ in range(max_restarts - 1):
            assert pool.step(ACTION)[4]["abnormal"].tolist() == [False, False, False, True]
        for _ in range(3):
            with pytest.raises(EnvError, match="env 3") as caught:
                pool.step(ACTION)
            assert caught.value.batch[4]["abnormal"].tolist() == [False, False, False, True]


@pytest.mark.parametrize("kind", KINDS)
def test_the_count_goes_beyond_a_byte(kind: str) -> None:
    with make_probe(
        kind, num_envs=1, fail_in="reset", fail_at=2, fail_count=10_000, length=1, on_error="restart", max_restarts=300
    ) as pool:
        pool.reset()
        pool.step([0.5])
        assert all(pool.step([0.5])[4]["abnormal"][0] for _ in range(299))
        with pytest.raises(EnvError, match="env 0"):
            pool.step([0.5])


@pytest.mark.parametrize("never", [None, math.inf, np.float64(np.inf)])
@pytest.mark.parametrize("kind", KINDS)
def test_restart_without_a_limit_never_gives_up(kind: str, never: Any) -> None:
    with make_probe(
        kind, num_envs=1, fail_in="reset", fail_at=2, fail_count=400, length=1, on_error="restart", max_restarts=never
    ) as pool:
        assert pool.config["max_restarts"] is None
        pool.reset()
        pool.step([0.5])
        assert all(pool.step([0.5])[4]["abnormal"][0] for _ in range(400))
        assert "abnormal" not in pool.step([0.5])[4]


@pytest.mark.parametrize("max_restarts", [0, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_with_no_restart_allowed_the_first_failure_raises(kind: str, max_restarts: int) -> None:
    with make_probe(kind, num_envs=N, fail_in="step", on_error="restart", max_restarts=max_restarts) as pool:
        pool.reset()
        with pytest.raises(EnvError) as caught:
            pool.step(ACTION)
        assert [error.env_id for error in caught.value.errors] == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", KINDS)
def test_a_good_reset_between_two_failures_is_no_good_step(kind: str) -> None:
    with make_probe(kind, num_envs=1, fail_in="step", fail_count=3, on_error="restart", max_restarts=2) as pool:
        pool.reset()
        assert pool.step([0.5])[4]["abnormal"].tolist() == [True]
        assert "abnormal" not in pool.step([0.5])[4]  # the reset
        with pytest.raises(EnvError):
            pool.step([0.5])


def test_a_good_step_between_makes_the_count_begin_anew() -> None:
    class Flaky(ProbeTwin):
        """Fails at every second step."""

        good = False

        def step(self, action: Any) -> Any:
            self.good = not self.good
            if not self.good:
                raise RuntimeError("every second time")
            return super().step(action)

    with stepmill.make(Flaky, num_envs=1, on_error="restart", max_restarts=2) as pool:
        pool.reset()
        abnormal = ["abnormal" in pool.step([0.5])[4] for _ in range(9)]
    assert abnormal == [False, True, False] * 3  # a good step, a failure, the reset


@pytest.mark.parametrize("kind", KINDS)
def test_restart_keeps_the_last_good_observation(kind: str) -> None:
    with make_probe(kind, num_envs=2, fail_in="step", fail_at=4, on_error="restart", length=100) as pool:
        pool.reset()
        for _ in range(3):
            obs = pool.step(ACTION[:2])[0]
        failed = pool.step(ACTION[:2])[0]
        np.testing.assert_array_equal(failed, obs)
        assert not np.shares_memory(failed, obs)


@pytest.mark.parametrize("kind", KINDS)
def test_restart_has_zeros_where_there_never_was_an_observation(kind: str) -> None:
    with make_probe(kind, num_envs=2, fail_in="reset", on_error="restart") as pool:
        obs, info = pool.reset()
        assert info["abnormal"].tolist() == [True, True]
        assert not obs.any()


# ---- constructors --------------------------------------------------------------------------------


@pytest.mark.parametrize("on_error", ["raise", "restart"])
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_constructor_that_fails_raises_from_make(kind: str, view: str, on_error: str) -> None:
    before = threads()
    with pytest.raises(EnvError, match=r"constructor of env 2.*asked to fail in constructor") as caught:
        make_probe(kind, view, num_envs=N, env_config=only(2, fail_in="constructor"), on_error=on_error)
    assert caught.value.batch is None
    if kind == "python":
        assert (caught.value.env_id, caught.value.phase) == (2, "constructor")
        assert isinstance(caught.value.__cause__, RuntimeError)
    assert new_threads(before) == 0


def test_envs_built_before_a_failing_constructor_are_closed() -> None:
    built: list[ProbeTwin] = []

    def factory(env_id: int) -> ProbeTwin:
        if env_id == 2:
            raise OSError("no licence left")
        built.append(ProbeTwin())
        return built[-1]

    with pytest.raises(EnvError, match="no licence left"):
        stepmill.make(factory, num_envs=N, backend="inline")
    assert [env.closed for env in built] == [True, True]


# ---- every action gets exactly one result --------------------------------------------------------


TURNS_UNTIL_STARVED = 20_000  # far more than a fair pool takes for what is asked below


@pytest.mark.parametrize("num_threads", [1, 3])
@pytest.mark.parametrize("batch_size", [8, 3, 1], ids=["sync", "async-3", "async-1"])
@pytest.mark.parametrize("on_error", ["raise", "restart"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_action_gets_exactly_one_result(kind: str, on_error: str, batch_size: int, num_threads: int) -> None:
    """Every env fails now and then; what is sent and what comes back is counted, env by env."""
    count = 8
    configs = [{"fail_in": ("step", "reset")[i % 2], "fail_at": 2 + i, "fail_count": 3} for i in range(count)]
    arguments = {"work": 2000} if kind == "native" else {}
    with make_probe(
        kind,
        num_envs=count,
        batch_size=batch_size,
        num_threads=num_threads,
        env_config=configs,
        length=3,
        on_error=on_error,
        max_restarts=2,
        **arguments,
    ) as pool:
        sent, received = np.zeros(count, int), np.zeros(count, int)
        failed: dict[int, int] = dict.fromkeys(range(count), 0)
        pool.send(np.zeros(count), np.arange(count))
        sent += 1
        for _ in range(TURNS_UNTIL_STARVED):
            if received.min() >= 60:
                break
            batch, error = outcome(pool.recv)
            info = batch[4]
            ids = info["env_id"]
            received[ids] += 1
            abnormal = ids[info["abnormal"]].tolist() if "abnormal" in info else []
            for one in abnormal:
                failed[one] += 1
            if error is not None:
                assert sorted(e.env_id for e in error.errors) == sorted(abnormal)
            elif on_error == "raise":
                assert not abnormal
            pool.send(np.zeros(len(ids)), ids)
            sent[ids] += 1
        while pool.stats()["in_flight"]:
            batch, _ = outcome(pool.recv)
            received[batch[4]["env_id"]] += 1
        np.testing.assert_array_equal(sent, received)
        assert received.min() >= 60
        assert failed == dict.fromkeys(range(count), 3)


@pytest.mark.parametrize("work", [0, 2000])
@pytest.mark.parametrize("num_threads", [1, 2, 3])
@pytest.mark.parametrize(("count", "batch_size"), [(8, 1), (8, 3), (8, 7), (256, 128)])
def test_no_action_waits_forever_while_others_come_and_go(
    count: int, batch_size: int, num_threads: int, work: int
) -> None:
    """Async: whoever came back is sent to again at once, so a queue that prefers it would starve the rest."""
    with stepmill.make("Probe-v0", num_envs=count, batch_size=batch_size, num_threads=num_threads, work=work) as pool:
        received = np.zeros(count, int)
        pool.send(np.zeros(count), np.arange(count))
        for _ in range(TURNS_UNTIL_STARVED):
            if received.min() >= 20:
                break
            ids = pool.recv()[4]["env_id"]
            received[ids] += 1
            pool.send(np.zeros(len(ids)), ids)
        assert received.min() >= 20


@pytest.mark.parametrize("num_threads", [1, 3])
def test_many_native_failures_in_one_batch(num_threads: int) -> None:
    count = 512
    configs = [{"fail_in": "step", "fail_at": 1 + i % 2} for i in range(count)]
    with stepmill.make("Probe-v0", num_envs=count, num_threads=num_threads, env_config=configs, work=500) as pool:
        pool.reset()
        for parity in (0, 1):
            with pytest.raises(EnvError) as caught:
                pool.step(np.zeros(count))
            failed = [i for i in range(count) if i % 2 == parity]
            assert sorted(error.env_id for error in caught.value.errors) == failed
            assert np.flatnonzero(caught.value.batch[4]["abnormal"]).tolist() == failed
