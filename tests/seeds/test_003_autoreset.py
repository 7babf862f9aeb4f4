"""Autoreset, from the last section of the document on the pool interface: its list, and its table of five calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from dm_env import StepType

import stepmill as envpool
from support.envs import draws
from support.probes import ProbeTwin, seen

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


def make(task: str, view: str, **arguments: Any) -> Any:
    env, backend = TASKS[task]
    return envpool.make(env, view, backend=backend, **arguments)


@pytest.mark.parametrize("row", range(1, 6), ids=lambda row: f"row {row}")
@pytest.mark.parametrize("view", ["gym", "dm"])
@EVERY_TASK
def test_the_table_of_five_calls(task: str, view: str, row: int) -> None:
    """Auto reset, list and table: what each of five calls of ``step`` does, without a ``reset`` before."""
    with make(task, view, max_episode_steps=3) as env:
        for _ in range(row):
            result = seen(view, env.step(np.full(1, 0.5)))
    expected = CALLS[row - 1]
    assert result.obs.tolist() == [[draws(SEED, 2)[expected.episode], expected.elapsed]]
    assert result.elapsed == [expected.elapsed]
    assert (result.reward.tolist(), result.done.tolist()) == ([expected.reward], [expected.done])


@EVERY_TASK
def test_the_fourth_call_tells_that_the_limit_was_hit_in_gym(task: str) -> None:
    """Auto reset, the fourth call: ``info["TimeLimit.truncated"]``."""
    with make(task, "gym", max_episode_steps=3) as env:
        told = [env.step(np.zeros(1))[3]["TimeLimit.truncated"].tolist() for _ in range(5)]
    assert told == [[False], [False], [False], [True], [False]]


@EVERY_TASK
def test_the_five_calls_in_dm(task: str) -> None:
    """Auto reset, as the table of outputs has it for dm: FIRST, MID, MID, LAST, FIRST."""
    with make(task, "dm", max_episode_steps=3) as env:
        kinds = [StepType(int(env.step(np.zeros(1)).step_type[0])) for _ in range(5)]
    assert kinds == [StepType.FIRST, StepType.MID, StepType.MID, StepType.LAST, StepType.FIRST]


@EVERY_TASK
def test_the_five_calls_in_the_default_view(task: str) -> None:
    """Auto reset, the fourth call: in the view that the document does not have, the limit is ``truncated``."""
    with make(task, "gymnasium", max_episode_steps=3) as env:
        ends = [env.step(np.zeros(1))[2:4] for _ in range(5)]
    assert [(end.item(), cut.item()) for end, cut in ends] == [(False, False)] * 3 + [(False, True), (False, False)]


@EVERY_TASK
def test_a_program_that_resets_first_begins_at_the_second_call(task: str) -> None:
    """Auto reset, the first call: a ``reset`` of the caller's own is in its place."""
    with make(task, "gym", max_episode_steps=3) as env:
        env.reset()
        elapsed = [env.step(np.zeros(1))[3]["elapsed_step"].item() for _ in range(4)]
    assert elapsed == [1, 2, 3, 0]


@EVERY_TASK
def test_an_end_of_the_env_s_own_is_no_limit(task: str) -> None:
    """Auto reset: the key marks limits only, and an end of the env's own is followed by a reset as well."""
    with make(task, "gym", length=2, max_episode_steps=3) as env:
        calls = [env.step(np.zeros(1)) for _ in range(4)]
    assert [done.item() for _, _, done, _ in calls] == [False, False, True, False]
    assert not any(info["TimeLimit.truncated"].item() for *_, info in calls)


@EVERY_TASK
def test_each_env_resets_at_its_own_end(task: str) -> None:
    """Auto reset, of several envs: one of them is reset while another goes on."""
    with make(task, "gym", num_envs=2, max_episode_steps=3, env_config=[{"length": 1}, {}]) as env:
        elapsed = [env.step(np.zeros(2))[3]["elapsed_step"].tolist() for _ in range(5)]
    assert elapsed == [[0, 0], [1, 1], [0, 2], [1, 3], [0, 0]]


def test_autoreset_is_on_by_default() -> None:
    """Auto reset, the first sentence. Here it can be switched off, or moved into the step that ends."""
    assert envpool.make_spec("Probe-v0").config["autoreset"] == "next_step"
    for mode in ("same_step", "disabled"):
        assert envpool.make_spec("Probe-v0", autoreset=mode).config["autoreset"] == mode
