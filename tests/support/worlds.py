"""Steps a world beside the functions of its suite, and compares them bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

import stepmill
from stepmill.sources.jax_world import JaxWorld

NUM_ENVS = 3


def follow(
    world: JaxWorld, reset: Callable[[Any], Any], step: Callable[[Any, Any, Any], Any], steps: int = 50
) -> dict[str, int]:
    """Plays both with the same keys and actions, and begins a new episode of an env in both where one is over.

    Args:
        world: Ours.
        reset: The suite's: of a key to a state and an observation.
        step: The suite's: of a key, a state and an action to a state, an observation, a reward, whether it terminated,
            whether it was truncated (without our limit), and the infos that both have.
        steps: How many.

    Returns how many episodes terminated, and how many were truncated.
    """
    ours = _compiled(world.reset), _compiled(world.step)
    theirs = _compiled(reset), _compiled(step)
    world.action_space.seed(1)
    keys = _keys(0)
    begun, (state, observation) = ours[0](keys), theirs[0](keys)
    check_equal((begun.state, begun.observation), (state, observation))
    _check_space(world.observation_space, begun.observation)
    form = jax.tree.map(_form, begun.state)
    own = begun.state
    ends = {"terminated": 0, "truncated": 0}
    for i in range(steps):
        actions = batch([world.action_space.sample() for _ in range(NUM_ENVS)])
        moved, expected = ours[1](_keys(2 * i + 1), own, actions), theirs[1](_keys(2 * i + 1), state, actions)
        got = (moved.state, moved.observation, moved.reward, moved.terminated, moved.truncated)
        check_equal(got, expected[:5])
        check_equal({key: moved.info[key] for key in expected[5]}, expected[5])
        _check_space(world.observation_space, moved.observation)
        assert jax.tree.map(_form, moved.state) == form
        for flag in (moved.terminated, moved.truncated):
            assert (flag.shape, flag.dtype) == ((NUM_ENVS,), bool)
        assert moved.reward.shape == (NUM_ENVS,)
        assert not (moved.terminated & moved.truncated).any()
        ends["terminated"] += int(moved.terminated.sum())
        ends["truncated"] += int(moved.truncated.sum())
        over = moved.terminated | moved.truncated
        own, state = moved.state, expected[0]
        if over.any():
            keys = _keys(2 * i + 2)
            own, state = (_chosen(over, *pair) for pair in ((ours[0](keys).state, own), (theirs[0](keys)[0], state)))
    return ends


def compare_with_a_loop(
    id: str, reset: Callable[[Any], Any], step: Callable[[Any, Any, Any], Any], steps: int = 50
) -> int:
    """Plays a pool beside a loop over envs of the suite, one after the other, whose keys are split as the docs say.

    XLA rounds differently when it compiles one env and many: so numbers may differ by 1e-4, and all else is equal.

    Args:
        id: Of envs without a time limit that these steps reach.
        reset: As for ``follow``.
        step: As for ``follow``.
        steps: How many.

    Returns how many episodes ended.
    """
    seed, ended = 5, 0
    reset, step = jax.jit(reset), jax.jit(step)
    with stepmill.make(id, num_envs=NUM_ENVS, seed=seed) as pool:
        pool.action_space.seed(1)
        observations, _ = pool.reset()
        keys = [jax.random.PRNGKey(seed + i) for i in range(NUM_ENVS)]
        states: list[Any] = [None] * NUM_ENVS
        over = [True] * NUM_ENVS
        for i in range(NUM_ENVS):
            keys[i], now = jax.random.split(keys[i])
            states[i], expected = reset(now)
            _check_close(_row(observations, i), expected)
            over[i] = False
        for _ in range(steps):
            actions = pool.action_space.sample()
            observations, rewards, terminated, truncated, _ = pool.step(actions)
            for i in range(NUM_ENVS):
                keys[i], now = jax.random.split(keys[i])
                if over[i]:
                    states[i], expected = reset(now)
                    told = 0.0, False, False
                else:
                    action = jax.tree.map(jnp.asarray, _row(actions, i))
                    states[i], expected, *told = step(now, states[i], action)[:5]
                _check_close(_row(observations, i), expected)
                _check_close(rewards[i], told[0])
                assert (bool(terminated[i]), bool(truncated[i])) == (bool(told[1]), bool(told[2]))
                over[i] = bool(told[1]) or bool(told[2])
                ended += over[i]
    return ended


def _row(tree: Any, row: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[row], tree)


def _check_close(got: Any, expected: Any) -> None:
    assert jax.tree.structure(got) == jax.tree.structure(expected)
    for ours, theirs in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(ours, float), np.asarray(theirs, float), rtol=1e-4, atol=1e-4)


def check_equal(got: Any, expected: Any) -> None:
    """Raises if two trees differ in a bit."""
    assert jax.tree.structure(got) == jax.tree.structure(expected)
    for ours, theirs in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))


def batch(values: list[Any]) -> Any:
    """Actions or the like, one per env, as JAX takes them."""
    return jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *values)


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return jax.jit(jax.vmap(function))


def _keys(number: int) -> Any:
    return jax.random.split(jax.random.PRNGKey(number), NUM_ENVS)


def _form(leaf: Any) -> tuple[Any, Any]:
    return leaf.shape, leaf.dtype


def _chosen(which: Any, yes: Any, no: Any) -> Any:
    def one(a: Any, b: Any) -> Any:
        return jnp.where(which.reshape(which.shape + (1,) * (a.ndim - 1)), a, b)

    return jax.tree.map(one, yes, no)


def _check_space(space: spaces.Space[Any], value: Any) -> None:
    """Raises if a batch has not the shapes and types of a space, or leaves it."""
    if isinstance(space, spaces.Dict):
        assert set(space.spaces) == set(value)
        for key, one in space.spaces.items():
            _check_space(one, value[key])
    elif isinstance(space, spaces.Tuple):
        assert isinstance(value, tuple)
        for one, part in zip(space.spaces, value, strict=True):
            _check_space(one, part)
    else:
        assert (value.shape, value.dtype) == ((NUM_ENVS, *(space.shape or ())), space.dtype)
        for row in np.asarray(value):
            assert space.contains(np.asarray(row)), f"{row} is not in {space}"
