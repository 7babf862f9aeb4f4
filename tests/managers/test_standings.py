"""Every move of envs between their standings, and what holds after each of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stepmill.envs import BaseEnvTimestep
from stepmill.errors import EnvError
from stepmill.managers import EnvState
from stepmill.managers.managed_env import ManagedEnv
from stepmill.managers.standings import Standings
from stepmill.managers.states import Arrival, Handover, Sending, SentResets, Standing

N = 4
STEP = BaseEnvTimestep(np.zeros(1, np.float32), np.zeros(1, np.float32), False, {})
ALL = range(N)


def failure(env_id: int) -> EnvError:
    return EnvError("broken", env_id=env_id, phase="step")


def built() -> Standings:
    standings = Standings([ManagedEnv() for _ in ALL])
    standings.move(ALL, Standing.BUILT)
    standings.check(())
    return standings


def send_resets(standings: Standings, ids: list[int], *, automatic: bool = False, **more: Any) -> None:
    standings.sending = Sending(ids, SentResets([None] * len(ids), automatic, more.get("params", {}), {}))
    standings.note_sent()
    standings.check()


def send(standings: Standings, ids: list[int]) -> None:
    standings.sending = Sending(ids)
    standings.note_sent()
    standings.check()


def arrive(standings: Standings, standing: dict[int, Standing], **more: Any) -> None:
    places = [(np.zeros((N, 1)), one) for one in standing]
    standings.arrival = Arrival(list(standing), places, standing, **more)
    standings.note_arrival()
    standings.check()


def running() -> Standings:
    standings = built()
    send_resets(standings, list(ALL))
    arrive(standings, dict.fromkeys(ALL, Standing.READY), failures=dict.fromkeys(ALL, 0))
    standings.check(())
    return standings


def test_every_state_is_that_of_a_standing() -> None:
    assert {standing.state for standing in Standing} == set(EnvState)


def test_a_step_goes_out_and_comes_back() -> None:
    standings = running()
    assert standings.ready() == list(ALL)
    send(standings, [0, 2])
    standings.check([0, 2])
    assert standings.ready() == [1, 3]
    assert standings.count(Standing.STEPPING) == 2
    arrive(standings, {2: Standing.READY}, timesteps={2: STEP})
    assert standings.ready() == [1, 3], "nobody has its result yet"
    assert not standings.are_ready([2])
    standings.hand_over(Handover(object(), dict(standings.timesteps), {}, None))
    assert standings.ready() == [1, 2, 3]
    assert standings.are_ready([3, 2])
    assert not standings.are_ready([0])
    assert not standings.are_ready([N])
    standings.check([0])


def test_an_automatic_reset_leaves_the_end_before_it_to_the_next_step() -> None:
    standings = running()
    send(standings, [1])
    arrive(standings, {1: Standing.ENDED}, timesteps={1: STEP}, episodes={1: 1}, has_ended=True)
    send_resets(standings, [1], automatic=True)
    assert list(standings.timesteps) == [1]
    arrive(standings, {1: Standing.READY}, failures={1: 0})
    assert standings.ready() == [0, 2, 3]


def test_a_reset_that_was_asked_for_makes_results_void() -> None:
    standings = running()
    send(standings, [0, 1])
    arrive(standings, {0: Standing.READY, 1: Standing.FAILED}, timesteps={0: STEP}, errors={1: failure(1)})
    assert standings.states()[1] is EnvState.ERROR
    send_resets(standings, [0, 1])
    assert standings.result_count() == 0


def test_a_reset_that_failed_is_due_until_it_is_sent_again() -> None:
    standings = built()
    send_resets(standings, list(ALL))
    arrive(standings, {3: Standing.RETRYING}, failures={3: 1}, retry_at={3: 0.0})
    assert standings.states()[3] is EnvState.RESET
    send_resets(standings, [3])
    assert not standings.retry_at


def test_what_is_dropped_is_only_what_steps() -> None:
    standings = running()
    send(standings, [0])
    standings.drop([0, 1])
    standings.check([0])
    assert standings[0] is Standing.DROPPED
    assert standings[1] is Standing.READY


# ---- after an exception --------------------------------------------------------------------------


@pytest.mark.parametrize("was_sent", [False, True])
def test_what_was_being_sent_is_noted_if_the_pool_has_it(was_sent: bool) -> None:
    standings = running()
    standings.sending = Sending([0, 1])
    in_flight = [0, 1] if was_sent else []
    standings.mend(in_flight)
    standings.check(in_flight)
    assert standings.ready() == ([2, 3] if was_sent else list(ALL))


def test_parameters_of_a_reset_that_was_not_sent_are_not_kept() -> None:
    envs = [ManagedEnv() for _ in ALL]
    standings = Standings(envs)
    standings.sending = Sending([0], SentResets([None], False, {0: {"level": 3}}, {}))
    standings.mend(())
    assert envs[0].params == {}
    standings.sending = Sending([0], SentResets([None], False, {0: {"level": 3}}, {}))
    standings.mend([0])
    assert envs[0].params == {"level": 3}


def test_an_arrival_is_the_same_if_it_is_noted_twice() -> None:
    standings = running()
    send(standings, [0, 1])
    places = [(np.zeros((2, 1)), 0), (np.zeros((2, 1)), 1)]
    after = {0: Standing.READY, 1: Standing.FAILED}
    arrival = Arrival([0, 1], places, after, timesteps={0: STEP}, errors={1: failure(1)}, episodes={0: 1})
    for _ in range(2):
        standings.arrival = arrival
        standings.mend(())
        standings.check(())
        assert (list(standings.timesteps), list(standings.errors)) == ([0], [1])


@pytest.mark.parametrize("is_lost", [False, True])
def test_what_the_caller_did_not_get_is_for_the_next_step(is_lost: bool) -> None:
    standings = running()
    send(standings, [0])
    arrive(standings, {0: Standing.READY}, timesteps={0: STEP})
    handover = Handover(object(), dict(standings.timesteps), {}, None)
    standings.hand_over(handover)
    handover.is_lost = is_lost
    standings.mend(())
    standings.check(())
    assert list(standings.timesteps) == ([0] if is_lost else [])


def test_the_pool_is_believed() -> None:
    standings = running()
    send(standings, [0])
    standings.reconcile([1])
    standings.check([1])
    assert (standings[0], standings[1]) == (Standing.FAILED, Standing.DROPPED)


# ---- the check itself ----------------------------------------------------------------------------


def test_what_is_broken_is_said() -> None:
    standings = running()
    send(standings, [0])
    with pytest.raises(AssertionError, match="the envs that step or reset are those"):
        standings.check([1])
    standings.timesteps[0] = STEP
    with pytest.raises(AssertionError, match="an env steps only after its last result was returned"):
        standings.check([0])
    standings.errors[0] = failure(0)
    with pytest.raises(AssertionError, match=r"an env has one result at most; .*only failed envs have errors"):
        standings.check([0])
    standings.retry_at[2] = 0.0
    with pytest.raises(AssertionError, match="the envs that are retried have a time for it"):
        standings.check()
