"""The three autoreset modes, row by row, on every backend: a probe whose observation says where it stands.

A probe shows (its draw at reset, steps since), its reward is its action, and it terminates after ``length`` steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stepmill
from stepmill import errors
from stepmill.errors import EnvError, NeedsResetError, ResetOptionError
from support.envs import Plain, ProbeTwin, draws

BACKENDS = {
    "native threads": ("Probe-v0", "thread"),
    "native inline": ("Probe-v0", "inline"),
    "python inline": (ProbeTwin, "inline"),
}
MODES = ("next_step", "same_step", "disabled")
SEED = 5


@pytest.fixture(params=BACKENDS)
def make(request: pytest.FixtureRequest) -> Any:
    """``make`` over probes on one of the backends; closes what it made."""
    pools = []
    task, backend = BACKENDS[request.param]

    def build(**arguments: Any) -> Any:
        pool = stepmill.make(task, backend=backend, seed=SEED, **arguments)
        assert pool.backend == backend
        assert pool.is_native == isinstance(task, str)
        pools.append(pool)
        return pool

    yield build
    for pool in pools:
        pool.close()


def actions(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def row(batch: Any, index: int = 0) -> tuple[float, int, float, bool, bool]:
    """(draw, steps, reward, terminated, truncated) of one row."""
    observation, reward, terminated, truncated, _ = batch
    return (*observation[index].tolist(), reward[index], bool(terminated[index]), bool(truncated[index]))


# ---- next_step ------------------------------------------------------------------------------------


def test_next_step_with_a_limit_of_three_does_reset_1_2_3_reset(make: Any) -> None:
    first, second = draws(SEED, 2)
    pool = make(max_episode_steps=3)
    assert [row(pool.step(actions(0.5))) for _ in range(5)] == [
        (first, 0, 0.0, False, False),
        (first, 1, 0.5, False, False),
        (first, 2, 0.5, False, False),
        (first, 3, 0.5, False, True),
        (second, 0, 0.0, False, False),
    ]


def test_next_step_shows_the_last_observation_in_the_ending_step(make: Any) -> None:
    pool = make(length=2)
    pool.reset()
    pool.step(actions(1))
    batch = pool.step(actions(1))
    assert row(batch) == (draws(SEED, 1)[0], 2, 1.0, True, False)
    assert "final_obs" not in batch[4]


def test_next_step_resets_each_env_at_its_own_end(make: Any) -> None:
    pool = make(num_envs=2, env_config=[{"length": 1}, {"length": 2}])
    pool.reset()
    (a, b), (c, d) = draws(SEED, 2), draws(SEED + 1, 2)
    first, second, third = (pool.step(actions(0.25, 0.75)) for _ in range(3))
    assert [row(first, 0), row(first, 1)] == [(a, 1, 0.25, True, False), (c, 1, 0.75, False, False)]
    assert [row(second, 0), row(second, 1)] == [(b, 0, 0.0, False, False), (c, 2, 0.75, True, False)]
    assert [row(third, 0), row(third, 1)] == [(b, 1, 0.25, True, False), (d, 0, 0.0, False, False)]


def test_next_step_of_a_subset_leaves_the_ends_of_others_waiting(make: Any) -> None:
    pool = make(num_envs=2, length=1)
    pool.reset()
    pool.step(actions(0, 0))  # both end
    assert row(pool.step(actions(1), [1]))[1:] == (0, 0.0, False, False)
    assert row(pool.step(actions(1), [1]))[1:] == (1, 1.0, True, False)
    batch = pool.step(actions(1, 1))
    assert [row(batch, 0)[1:], row(batch, 1)[1:]] == [(0, 0.0, False, False), (0, 0.0, False, False)]


# ---- same_step ------------------------------------------------------------------------------------


def test_same_step_resets_inside_the_ending_step(make: Any) -> None:
    first, second, third = draws(SEED, 3)
    pool = make(max_episode_steps=2, autoreset="same_step")
    batches = [pool.step(actions(0.5)) for _ in range(5)]
    assert [row(batch) for batch in batches] == [
        (first, 0, 0.0, False, False),
        (first, 1, 0.5, False, False),
        (second, 0, 0.5, False, True),
        (second, 1, 0.5, False, False),
        (third, 0, 0.5, False, True),
    ]
    assert ["final_obs" in batch[4] for batch in batches] == [False, False, True, False, True]
    assert batches[2][4]["final_obs"][0].tolist() == [first, 2]
    assert batches[4][4]["final_obs"][0].tolist() == [second, 2]


def test_same_step_masks_the_rows_that_ended(make: Any) -> None:
    pool = make(num_envs=3, autoreset="same_step", env_config=[{"length": 2}, {"length": 3}, {"length": 2}])
    pool.reset()
    assert "final_obs" not in pool.step(actions(0, 0, 0))[4]
    info = pool.step(actions(0, 0, 0))[4]
    assert info["_final_obs"].tolist() == info["_final_info"].tolist() == [True, False, True]
    assert [info["final_obs"][i].tolist() for i in (0, 2)] == [[draws(SEED + i, 1)[0], 2] for i in (0, 2)]
    info = pool.step(actions(0, 0, 0))[4]
    assert info["_final_obs"].tolist() == [False, True, False]
    assert info["final_obs"][1].tolist() == [draws(SEED + 1, 1)[0], 3]


# ---- disabled -------------------------------------------------------------------------------------


def test_disabled_refuses_a_step_after_the_end_and_queues_nothing(make: Any) -> None:
    pool = make(num_envs=2, autoreset="disabled", env_config=[{"length": 1}, {"length": 9}])
    pool.reset()
    pool.step(actions(0, 0))
    for _ in range(2):
        with pytest.raises(NeedsResetError, match="env 0"):
            pool.step(actions(0, 0))
    assert row(pool.step(actions(0.5), [1]))[1:] == (2, 0.5, False, False)
    pool.reset([0])
    batch = pool.step(actions(0.25, 0.5))
    assert row(batch, 0) == (draws(SEED, 2)[1], 1, 0.25, True, False)
    assert row(batch, 1)[1:] == (3, 0.5, False, False)


def test_disabled_reset_of_ids_returns_them_in_the_order_asked(make: Any) -> None:
    pool = make(num_envs=3, autoreset="disabled", length=1)
    pool.reset()
    pool.step(actions(0, 0, 0))
    observation, info = pool.reset([2, 0])
    assert info["env_id"].tolist() == [2, 0]
    assert observation.tolist() == [[draws(SEED + 2, 2)[1], 0], [draws(SEED, 2)[1], 0]]
    with pytest.raises(NeedsResetError, match="env 1"):
        pool.step(actions(0, 0, 0))


@pytest.mark.parametrize("autoreset", MODES)
def test_a_reset_mask_resets_the_chosen_and_keeps_the_others(make: Any, autoreset: str) -> None:
    pool = make(num_envs=3, autoreset=autoreset)
    pool.reset()
    pool.step(actions(0, 0, 0))
    pool.step(actions(0, 0, 0))
    observation, info = pool.reset(options={"reset_mask": np.array([False, True, False])})
    assert observation.tolist() == [[draws(SEED, 1)[0], 2], [draws(SEED + 1, 2)[1], 0], [draws(SEED + 2, 1)[0], 2]]
    assert info["env_id"].tolist() == [0, 1, 2]
    assert info["elapsed_step"].tolist() == [2, 0, 2]
    observation, *_, info = pool.step(actions(0, 0, 0))
    assert observation[:, 1].tolist() == info["elapsed_step"].tolist() == [3, 1, 3]


def test_a_masked_reset_leaves_an_ended_env_ended(make: Any) -> None:
    pool = make(num_envs=2, autoreset="disabled", length=1)
    pool.reset()
    pool.step(actions(0, 0))
    observation, _ = pool.reset(options={"reset_mask": np.array([True, False])})
    assert observation.tolist() == [[draws(SEED, 2)[1], 0], [draws(SEED + 1, 1)[0], 1]]
    with pytest.raises(NeedsResetError, match="env 1"):
        pool.step(actions(0, 0))


def test_a_mask_before_the_first_reset_starts_the_others_too(make: Any) -> None:
    """There is no observation to keep yet: the first action of an env is its reset."""
    pool = make(num_envs=2)
    observation, _ = pool.reset(options={"reset_mask": np.array([True, False])})
    assert observation.tolist() == [[draws(SEED, 1)[0], 0], [draws(SEED + 1, 1)[0], 0]]


@pytest.mark.parametrize(
    "mask", [np.array([False, False]), np.array([True]), np.array([1, 0]), [True, False], None], ids=repr
)
def test_a_wrong_mask_is_an_error_and_resets_nothing(make: Any, mask: Any) -> None:
    pool = make(num_envs=2)
    pool.reset()
    pool.step(actions(0, 0))
    with pytest.raises(ResetOptionError, match="reset_mask"):
        pool.reset(options={"reset_mask": mask})
    assert pool.step(actions(0, 0))[0][:, 1].tolist() == [2, 2]


# ---- in every mode --------------------------------------------------------------------------------


@pytest.mark.parametrize("autoreset", MODES)
def test_a_step_before_the_first_reset_acts_as_one(make: Any, autoreset: str) -> None:
    pool = make(num_envs=2, autoreset=autoreset)
    batch = pool.step(actions(1, 1))
    assert [row(batch, i) for i in (0, 1)] == [(draws(SEED + i, 1)[0], 0, 0.0, False, False) for i in (0, 1)]
    assert batch[4]["elapsed_step"].tolist() == [0, 0]
    assert row(pool.step(actions(1, 1)))[1:] == (1, 1.0, False, False)


@pytest.mark.parametrize("autoreset", MODES)
def test_an_end_on_the_limit_step_is_terminated_and_truncated(make: Any, autoreset: str) -> None:
    pool = make(length=2, max_episode_steps=2, autoreset=autoreset)
    pool.reset()
    assert row(pool.step(actions(0)))[3:] == (False, False)
    assert row(pool.step(actions(0)))[3:] == (True, True)


@pytest.mark.parametrize(("length", "limit", "expected"), [(2, 3, (True, False)), (3, 2, (False, True))])
def test_terminated_and_truncated_are_independent(
    make: Any, length: int, limit: int, expected: tuple[bool, bool]
) -> None:
    pool = make(length=length, max_episode_steps=limit)
    pool.reset()
    pool.step(actions(0))
    assert row(pool.step(actions(0)))[3:] == expected


@pytest.mark.parametrize("autoreset", MODES)
def test_a_reset_midway_starts_the_limit_anew(make: Any, autoreset: str) -> None:
    pool = make(max_episode_steps=3, autoreset=autoreset)
    pool.reset()
    pool.step(actions(0))
    pool.step(actions(0))
    assert pool.reset()[0].tolist() == [[draws(SEED, 2)[1], 0]]
    ends = [row(pool.step(actions(0)))[4] for _ in range(3)]
    assert ends == [False, False, True]


@pytest.mark.parametrize("autoreset", MODES)
def test_a_reset_by_hand_after_an_end_is_the_only_one(make: Any, autoreset: str) -> None:
    pool = make(length=1, autoreset=autoreset)
    pool.reset()
    pool.step(actions(0))
    used = 3 if autoreset == "same_step" else 2
    assert pool.reset()[0].tolist() == [[draws(SEED, used)[-1], 0]]
    batch = pool.step(actions(1))
    assert row(batch)[2:] == (1.0, True, False)


@pytest.mark.parametrize("autoreset", MODES)
def test_the_engine_counts_return_and_length_of_each_episode(make: Any, autoreset: str) -> None:
    pool = make(num_envs=2, autoreset=autoreset, env_config=[{"length": 2}, {"length": 3}])
    pool.reset()
    assert "episode_return" not in pool.step(actions(0.5, 1.0))[4]
    info = pool.step(actions(0.25, 1.0))[4]
    assert info["_episode_return"].tolist() == info["_episode_length"].tolist() == [True, False]
    assert info["episode_return"].tolist() == [0.75, 0.0]
    assert info["episode_length"].tolist() == [2, 0]
    if autoreset == "disabled":
        pool.reset([0])
        pool.step(actions(1), [0])
        info = pool.step(actions(-1.0), [1])[4]
        assert (info["episode_return"].tolist(), info["episode_length"].tolist()) == ([1.0], [3])
        return
    info = pool.step(actions(1.0, -1.0))[4]
    assert info["_episode_return"].tolist() == [False, True]
    assert (info["episode_return"].tolist(), info["episode_length"].tolist()) == ([0.0, 1.0], [0, 3])


def test_the_return_of_an_episode_starts_at_zero_again(make: Any) -> None:
    pool = make(length=2)
    returns = []
    pool.reset()
    for value in (1.0, 0.5, 0.125, 0.25, 0.25):
        info = pool.step(actions(value))[4]
        if "episode_return" in info:
            returns.append(info["episode_return"].item())
    assert returns == [1.5, 0.5]


@pytest.mark.parametrize(
    ("autoreset", "expected"), [("next_step", [0, 1, 2, 0, 1, 2, 0]), ("same_step", [0, 1, 0, 1, 0, 1, 0])]
)
def test_elapsed_step_counts_the_steps_of_the_episode_shown(make: Any, autoreset: str, expected: list[int]) -> None:
    pool = make(length=2, autoreset=autoreset)
    assert [pool.step(actions(0))[4]["elapsed_step"].item() for _ in range(7)] == expected


def test_without_a_limit_nothing_is_truncated(make: Any) -> None:
    pool = make(length=10**6)
    pool.reset()
    assert not any(pool.step(actions(0))[3].any() for _ in range(1500))


@pytest.mark.parametrize("autoreset", MODES)
def test_reset_with_a_seed_repeats_the_episodes(make: Any, autoreset: str) -> None:
    pool = make(num_envs=2, autoreset=autoreset)
    pool.reset()
    assert pool.reset(seed=SEED)[0][:, 0].tolist() == [draws(SEED, 1)[0], draws(SEED + 1, 1)[0]]
    assert pool.reset(seed=[77, None])[0][:, 0].tolist() == [draws(77, 1)[0], draws(SEED + 1, 2)[1]]
    assert pool.reset([1], seed=30)[0][:, 0].tolist() == [draws(31, 1)[0]], "env i gets seed + i"
    assert pool.reset([1, 0], seed=[8, 9])[0][:, 0].tolist() == [draws(8, 1)[0], draws(9, 1)[0]]


def test_async_reset_with_a_seed_reseeds(make: Any) -> None:
    pool = make(num_envs=2)
    pool.async_reset(seed=11)
    observation, _, _, _, info = pool.recv()
    assert observation[:, 0].tolist() == [draws(11, 1)[0], draws(12, 1)[0]]
    assert info["elapsed_step"].tolist() == [0, 0]


@pytest.mark.parametrize("autoreset", MODES)
@pytest.mark.parametrize("batch_size", [2, 3])
def test_async_reset_of_some_envs_beside_actions_of_others(make: Any, autoreset: str, batch_size: int) -> None:
    pool = make(num_envs=3, batch_size=batch_size, autoreset=autoreset)
    pool.reset()
    pool.async_reset([2, 0], seed=[8, None])
    pool.send(np.zeros(1, int), [1])
    rows = {}
    while len(rows) < 3:
        obs, _, _, _, info = pool.recv()
        for env, one, step in zip(info["env_id"].tolist(), obs[:, 0].tolist(), info["elapsed_step"], strict=True):
            rows[env] = one, int(step)
    assert rows[2] == (draws(8, 1)[0], 0)
    assert rows[0] == (draws(SEED, 2)[1], 0)
    assert rows[1][1] == 1


@pytest.mark.parametrize("again", ["reset", "step"])
def test_a_seed_that_a_failed_reset_did_not_use_still_counts(make: Any, again: str) -> None:
    pool = make(fail_in="reset", fail_at=1)
    with pytest.raises(EnvError, match="failed in reset"):
        pool.reset()
    obs = pool.reset()[0] if again == "reset" else pool.step(actions(0))[0]
    assert obs.tolist() == [[draws(SEED, 1)[0], 0]]


@pytest.mark.parametrize("backend", ["inline", "process"])
def test_the_info_of_an_end_stands_when_the_reset_after_it_fails(backend: str) -> None:
    class Ending(Plain):
        ended = False

        def reset(self, **arguments: Any) -> Any:
            if self.ended:
                raise ValueError("no more")
            return np.zeros(2, np.float32), {}

        def step(self, action: Any) -> Any:
            self.ended = True
            return np.ones(2, np.float32), 3.0, True, False, {"score": 7}

    with stepmill.make(Ending, num_envs=2, backend=backend, autoreset="same_step") as pool:
        pool.reset()
        with pytest.raises(errors.EnvError) as caught:
            pool.step([0, 0])
        info = caught.value.batch[-1]
        assert caught.value.batch[1].tolist() == [3.0, 3.0]
        assert info["final_info"]["score"].tolist() == [7, 7]
        assert info["score"].tolist() == [7, 7]
