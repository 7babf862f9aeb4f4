"""Batches and autoreset, from the last two sections of the document on the pool interface.

Each test names its passage; see ``test_003_interface.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from dm_env import StepType

import stepmill as envpool
from stepmill.errors import InFlightError
from support.envs import ProbeTwin, draws
from support.envs.faulty import FaultyEnv
from support.probes import assert_same, seen
from support.waiting import Gate

EVERY_VIEW = pytest.mark.parametrize("view", ["gym", "dm"])

pytestmark = pytest.mark.usefixtures("deadline")


# ---- batch size ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("server")
@EVERY_VIEW
def test_a_batch_is_there_when_batch_size_envs_have_finished(make: Any, view: str, gate: Gate) -> None:
    """Batch size, text and figure: the results of the first that finish; the slow one comes with a later batch."""
    held = {"mishap": "gate", "folder": gate.folder}
    pool = make(FaultyEnv, view, num_envs=3, batch_size=2, backend="process", num_workers=3, env_config=[held, {}, {}])
    pool.async_reset()
    begun = sorted(one for _ in range(2) for one in seen(view, pool.recv()).ids)
    assert begun == [0, 1, 2]
    pool.send(np.zeros(3), np.arange(3))
    assert gate.wait() == 0
    for turn in range(1, 4):
        batch = seen(view, pool.recv())
        assert (sorted(batch.ids), batch.elapsed) == ([1, 2], [turn, turn])
        pool.send(np.zeros(2), np.array(batch.ids))
    with pytest.raises(InFlightError):
        pool.send(np.zeros(1), np.array([0]))
    gate.open(0)
    late = []
    while 0 not in late:
        batch = seen(view, pool.recv())
        late += batch.ids
    assert batch.elapsed[batch.ids.index(0)] == 1


@EVERY_VIEW
def test_without_ids_an_action_is_for_the_envs_of_the_last_batch(make: Any, view: str) -> None:
    """Batch size: the loop of an async program, with and without ids."""
    pool = make("Probe-v0", view, num_envs=5, batch_size=2, length=1000)
    pool.async_reset()
    steps = dict.fromkeys(range(5), -1)
    for turn in range(50):
        batch = seen(view, pool.recv())
        for env_id, elapsed in zip(batch.ids, batch.elapsed, strict=True):
            steps[env_id] += 1
            assert elapsed == steps[env_id]
        pool.send(np.zeros(2), np.array(batch.ids)) if turn % 2 else pool.send(np.zeros(2))


@EVERY_VIEW
def test_sync_is_the_case_in_which_a_batch_has_all_envs(make: Any, view: str) -> None:
    """Batch size, the last sentence: ``batch_size == num_envs``, and the ids are all ids."""
    one, other = make("CartPole-v1", view, num_envs=3), make("CartPole-v1", view, num_envs=3, batch_size=3)
    for _ in range(20):
        result = one.step(np.ones(3))
        assert seen(view, result).ids == [0, 1, 2]
        assert_same(other.step(np.ones(3), np.arange(3)), result)


# ---- auto reset ----------------------------------------------------------------------------------

SEED = 42  # the default
TASKS = {"native": ("Probe-v0", "thread"), "python": (ProbeTwin, "inline")}
EVERY_TASK = pytest.mark.parametrize("task", TASKS)


@dataclass(frozen=True)
class Call:
    """One of the five calls of ``step``, and what the document says of it."""

    episode: int  # which draw of the env it shows: a reset draws anew
    elapsed: int
    reward: float
    done: bool


# A reset discards the action, which is the reward of a step of the probe.
CALLS = [
    Call(0, 0, 0.0, False),
    Call(0, 1, 0.5, False),
    Call(0, 2, 0.5, False),
    Call(0, 3, 0.5, True),
    Call(1, 0, 0.0, False),
]


def make_probe(task: str, view: str, **arguments: Any) -> Any:
    env, backend = TASKS[task]
    return envpool.make(env, view, backend=backend, **arguments)


@pytest.mark.parametrize("row", range(1, 6), ids=lambda row: f"row {row}")
@EVERY_VIEW
@EVERY_TASK
def test_the_table_of_five_calls(task: str, view: str, row: int) -> None:
    """Auto reset, list and table: what each of five calls of ``step`` does, without a ``reset`` before."""
    with make_probe(task, view, max_episode_steps=3) as env:
        for _ in range(row):
            result = seen(view, env.step(np.full(1, 0.5)))
    expected = CALLS[row - 1]
    assert result.obs.tolist() == [[draws(SEED, 2)[expected.episode], expected.elapsed]]
    assert result.elapsed == [expected.elapsed]
    assert (result.reward.tolist(), result.done.tolist()) == ([expected.reward], [expected.done])


@EVERY_TASK
def test_the_fourth_call_tells_that_the_limit_was_hit_in_gym(task: str) -> None:
    """Auto reset, the fourth call: ``info["TimeLimit.truncated"]``."""
    with make_probe(task, "gym", max_episode_steps=3) as env:
        told = [env.step(np.zeros(1))[3]["TimeLimit.truncated"].tolist() for _ in range(5)]
    assert told == [[False], [False], [False], [True], [False]]


@EVERY_TASK
def test_the_five_calls_in_dm(task: str) -> None:
    """Auto reset, as the table of outputs has it for dm: FIRST, MID, MID, LAST, FIRST."""
    with make_probe(task, "dm", max_episode_steps=3) as env:
        kinds = [StepType(int(env.step(np.zeros(1)).step_type[0])) for _ in range(5)]
    assert kinds == [StepType.FIRST, StepType.MID, StepType.MID, StepType.LAST, StepType.FIRST]


@EVERY_TASK
def test_the_five_calls_in_the_default_view(task: str) -> None:
    """Auto reset, the fourth call: in the view that the document does not have, the limit is ``truncated``."""
    with make_probe(task, "gymnasium", max_episode_steps=3) as env:
        ends = [env.step(np.zeros(1))[2:4] for _ in range(5)]
    assert [(end.item(), cut.item()) for end, cut in ends] == [(False, False)] * 3 + [(False, True), (False, False)]


@EVERY_TASK
def test_a_program_that_resets_first_begins_at_the_second_call(task: str) -> None:
    """Auto reset, the first call: a ``reset`` of the caller's own is in its place."""
    with make_probe(task, "gym", max_episode_steps=3) as env:
        env.reset()
        elapsed = [env.step(np.zeros(1))[3]["elapsed_step"].item() for _ in range(4)]
    assert elapsed == [1, 2, 3, 0]


@EVERY_TASK
def test_an_end_of_the_env_s_own_is_no_limit(task: str) -> None:
    """Auto reset: the key marks limits only, and an end of the env's own is followed by a reset as well."""
    with make_probe(task, "gym", length=2, max_episode_steps=3) as env:
        calls = [env.step(np.zeros(1)) for _ in range(4)]
    assert [done.item() for _, _, done, _ in calls] == [False, False, True, False]
    assert not any(info["TimeLimit.truncated"].item() for *_, info in calls)


@EVERY_TASK
def test_each_env_resets_at_its_own_end(task: str) -> None:
    """Auto reset, of several envs: one of them is reset while another goes on."""
    with make_probe(task, "gym", num_envs=2, max_episode_steps=3, env_config=[{"length": 1}, {}]) as env:
        elapsed = [env.step(np.zeros(2))[3]["elapsed_step"].tolist() for _ in range(5)]
    assert elapsed == [[0, 0], [1, 1], [0, 2], [1, 3], [0, 0]]


def test_autoreset_is_on_by_default() -> None:
    """Auto reset, the first sentence. Here it can be switched off, or moved into the step that ends."""
    assert envpool.make_spec("Probe-v0").config["autoreset"] == "next_step"
    for mode in ("same_step", "disabled"):
        assert envpool.make_spec("Probe-v0", autoreset=mode).config["autoreset"] == mode
