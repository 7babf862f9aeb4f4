"""What a kernel is asked besides to step: resets, some of the envs, states, and actions that are of no space."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stepmill
from support.host_kernels import (
    HAS_SEED,
    MODES,
    ROOT,
    SM_ENDED,
    SM_FRESH,
    SM_LIVE,
    SM_OBSERVE,
    SM_RESET,
    Kernels,
    Row,
    State,
    Twin,
    differences,
)

NUM_ENVS = 6


@pytest.fixture
def twin(kernels: Kernels) -> Any:
    """Makes pools and the same envs in kernels, and closes them."""
    made: list[Twin] = []

    def make(task: Any, **arguments: Any) -> Twin:
        made.append(Twin(kernels, task, **{"num_envs": NUM_ENVS, **arguments}))
        return made[-1]

    yield make
    for one in made:
        one.close()


def commands(mask: np.ndarray) -> bytes:
    """Resets of some envs, as a pool asks for them: the others are observed again."""
    return bytes(np.where(mask, SM_RESET, SM_OBSERVE).astype(np.uint8))


def reset(twin: Twin, mask: np.ndarray, **given: Any) -> Row:
    return twin.kernel_row(twin.command(twin.no_action(), command=commands(mask), **given))


@pytest.mark.parametrize("autoreset", MODES)
def test_a_masked_reset_observes_the_others_again(twin: Any, autoreset: str) -> None:
    both = twin("CartPole-v1", autoreset=autoreset)
    both.reset()
    for _ in range(5):
        both.step(both.sample())
    mask = np.array([True, False, False, True, True, False])
    observation, info = both.pool.reset(options={"reset_mask": mask})
    assert differences(both.engine_row(observation, None, None, None, info), reset(both, mask)) == {}
    assert differences(*both.step(both.sample())) == {}


def test_seeds_and_options_of_a_reset(twin: Any) -> None:
    both = twin("Pendulum-v1")
    both.reset()
    both.step(both.sample())
    seeds = np.array([5, 2**63 - 1, 7, 2**32, 9, 2**32 - 1], np.uint64)
    observation, info = both.pool.reset(seed=[int(one) for one in seeds], options={"y_init": 0.25})
    option = np.zeros(6)
    option[1] = 0.25
    row = reset(
        both,
        np.ones(NUM_ENVS, bool),
        has_seed=b"\1" * NUM_ENVS,
        seed=seeds.tobytes(),
        option=option.tobytes(),
        option_mask=0b10,
    )
    assert differences(both.engine_row(observation, None, None, None, info), row) == {}
    assert (np.abs(row["observation 0"][:, 2]) <= 0.25).all()
    # They were for one reset.
    observation, info = both.pool.reset()
    assert differences(both.engine_row(observation, None, None, None, info), reset(both, np.ones(NUM_ENVS, bool))) == {}


def test_some_envs_are_given_seeds(twin: Any) -> None:
    both = twin("CartPole-v1")
    first = both.reset()[1]
    mask = np.arange(NUM_ENVS) % 2 == 0
    seeds = np.arange(3, 3 + NUM_ENVS, dtype=np.uint64)  # those that they were made with
    row = reset(both, np.ones(NUM_ENVS, bool), has_seed=mask.tobytes(), seed=seeds.tobytes())
    same = (row["observation 0"] == first["observation 0"]).all(axis=1)
    assert same.tolist() == mask.tolist()


def test_the_rows_of_envs_that_are_not_stepped_stay(twin: Any) -> None:
    both = twin("Taxi-v3")
    both.reset()
    batch = both.envs.step(both.addresses(both.sample()), 0)
    before, state = both.kernel_row(batch), State.read(both.envs, NUM_ENVS)
    which = np.array([False, True, False, False, True, False])
    actions = both.sample()
    after = both.kernel_row(both.command(actions, into=batch, which=which.tobytes()))
    stepped = State.read(both.envs, NUM_ENVS)
    for name in before:
        assert np.array_equal(before[name][~which], after[name][~which]), name
    assert (after["elapsed_step"] - before["elapsed_step"]).tolist() == which.tolist()
    for name in ("memory", "seldom", "episode_return", "elapsed", "phase"):
        unchanged = (getattr(state, name) == getattr(stepped, name)).reshape(-1, NUM_ENVS).all(axis=0)
        assert unchanged[~which].all(), name
    assert (stepped.elapsed - state.elapsed).tolist() == which.tolist()


def test_what_is_observed_again_has_no_reward_and_does_not_move(twin: Any) -> None:
    both = twin("CartPole-v1")
    both.reset()
    shown = both.step(both.sample())[1]
    state = State.read(both.envs, NUM_ENVS)
    again = reset(both, np.zeros(NUM_ENVS, bool))
    assert np.array_equal(shown["observation 0"], again["observation 0"])
    assert not again["reward"].any()
    assert np.array_equal(State.read(both.envs, NUM_ENVS).memory, state.memory)


@pytest.mark.parametrize("task", ["CartPole-v1", "Blackjack-v1", "Moving-v0"])
def test_a_state_goes_on_as_it_did(twin: Any, task: str) -> None:
    both = twin(task)
    both.reset()
    for _ in range(7):
        both.step(both.sample())
    state, actions = both.envs.save(None, 0).read(0), [both.sample() for _ in range(60)]
    first = [both.kernel_step(action) for action in actions]
    both.envs.write(state, 0)
    for row, action in zip(first, actions, strict=True):
        assert differences(row, both.kernel_step(action)) == {}
    with pytest.raises(ValueError, match="expected the state of 6 envs of this kind"):
        both.envs.write((state[0][:-8], *state[1:]), 0)


def test_a_step_before_the_first_reset_is_one(twin: Any) -> None:
    both = twin("NChain-v0")
    assert (State.read(both.envs, NUM_ENVS).phase == SM_FRESH | HAS_SEED).all()
    assert differences(*both.step(both.sample())) == {}
    assert (State.read(both.envs, NUM_ENVS).phase == SM_LIVE).all()


def test_a_discrete_action_that_is_of_no_space_is_noted_and_put_into_it(twin: Any) -> None:
    both = twin("CartPole-v1")
    both.reset()
    state = both.envs.save(None, 0).read(0)
    inside = both.kernel_step(np.array([0, 1, 1, 0, 1, 0]))
    both.envs.write(state, 0)
    outside = both.kernel_step(np.array([-5, 1, 2**40, 0, 2, -1]))
    assert differences(inside, outside) == {}
    assert both.envs.notes(0) == (0, 0, None)
    both.envs.forget_bad()
    both.kernel_step(np.array([0, 1, 1, 0, 2, 2]))
    assert both.envs.notes(0) == (0, 4, None)  # the least that was bad
    both.envs.forget_bad()
    assert both.envs.notes(0) == (0, None, None)


def test_bounds_of_a_box(twin: Any) -> None:
    actions = np.array([[0.5], [2.0], [9.0], [-9.0], [np.inf], [-2.0]], np.float32)
    inside = np.clip(actions, -2, 2)
    rows, noted = {}, {}
    for bounds in ("pass", "clip", "error"):
        both = twin("Pendulum-v1", action_bounds=bounds)
        both.reset()
        rows[bounds] = both.kernel_step(actions)
        noted[bounds] = both.envs.notes(0)[1]
    both = twin("Pendulum-v1")
    both.reset()
    expected = both.kernel_step(inside)
    assert noted == {"pass": None, "clip": None, "error": 2}
    assert differences(expected, rows["clip"]) == {}
    assert differences(expected, rows["error"]) == {}


def test_a_number_that_is_none_is_noted(twin: Any) -> None:
    for bounds in ("pass", "clip", "error"):
        both = twin("Pendulum-v1", action_bounds=bounds)
        both.reset()
        actions = np.zeros((NUM_ENVS, 1), np.float32)
        actions[3] = np.nan
        both.kernel_step(actions)
        assert both.envs.notes(0) == (0, 3, None), bounds


def test_a_discarded_action_is_not_looked_at(twin: Any) -> None:
    both = twin("CartPole-v1")
    both.kernel_step(np.full(NUM_ENVS, 99))
    assert both.envs.notes(0) == (0, None, None)


def test_envs_with_maps_of_their_own(twin: Any) -> None:
    maps = ["SFFF\nFHFH\nFFFH\nHFFG", "SFFH\nFFFF\nFFFF\nFFFG", "SHFF\nFFFF\nHHFF\nGFFF"]
    both = twin("FrozenLake-v1", env_config=[{"desc": maps[i % 3]} for i in range(NUM_ENVS)])
    assert differences(*both.reset()) == {}
    for _ in range(200):
        assert differences(*both.step(both.sample())) == {}


def test_random_maps_are_copied_one_by_one(twin: Any, kernels: Kernels) -> None:
    same, random = twin("FrozenLake-v1"), twin("FrozenLake-v1", map_name="")
    tables = [{int(one) for one in State.read(both.envs, NUM_ENVS).memory[0]} for both in (same, random)]
    assert [len(one) for one in tables] == [1, NUM_ENVS]
    random.reset()
    ended = sum(int(random.kernel_step(random.sample())["ended"].sum()) for _ in range(300))
    assert ended > NUM_ENVS
    assert random.envs.notes(0) == (0, None, None)


@pytest.mark.parametrize("file", ["coin.h", "cart_pole.h"])
@pytest.mark.usefixtures("one_cache")
def test_an_env_of_one_file(twin: Any, file: str) -> None:
    library = stepmill.compile(ROOT / "examples/own_envs" / file)
    both = twin(library, max_episode_steps=40)
    assert differences(*both.reset()) == {}
    for _ in range(150):
        assert differences(*both.step(both.sample())) == {}


def test_after_an_end_an_env_waits_for_its_reset(twin: Any) -> None:
    both = twin("Catch-v0", autoreset="disabled")
    both.reset()
    while not (State.read(both.envs, NUM_ENVS).phase == SM_ENDED).all():
        both.kernel_step(np.ones(NUM_ENVS, int))
    row = reset(both, np.zeros(NUM_ENVS, bool))  # can be looked at
    assert not row["ended"].any()
    assert (State.read(both.envs, NUM_ENVS).phase == SM_ENDED).all()
