"""Actions in arrays on a device: nobody looks at them, but they are noted; those of numpy are checked as always."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from gymnasium import spaces  # noqa: E402

import stepmill  # noqa: E402
from stepmill import errors  # noqa: E402
from stepmill.sources.jax_world import Begun, JaxWorld, Moved  # noqa: E402

N = 3


def echo_world(space: spaces.Space[Any]) -> JaxWorld:
    """Shows the action that it was given, flat, in float32."""

    def flat(action: Any) -> Any:
        return jnp.concatenate([jnp.ravel(leaf).astype(jnp.float32) for leaf in jax.tree.leaves(action)])

    size = int(
        sum(np.prod(leaf.shape, dtype=int) for leaf in jax.tree.leaves(jax.tree.map(np.asarray, space.sample())))
    )

    def reset(key: Any) -> Begun:
        return Begun(jnp.zeros(size), jnp.zeros(size))

    def step(key: Any, state: Any, action: Any) -> Moved:
        return Moved(flat(action), flat(action), 0.0, False, False)

    shown = spaces.Box(-np.inf, np.inf, (size,), np.float32)
    return JaxWorld("Echo", shown, space, reset, step, resets_cheaply=True)


BOX = spaces.Box(-1, np.array([1, 2], np.float32), (2,), np.float32)
SPACES: dict[str, spaces.Space[Any]] = {
    "discrete": spaces.Discrete(3, start=5),
    "many": spaces.MultiDiscrete([2, 3], start=[0, 4]),
    "binary": spaces.MultiBinary(2),
    "box": BOX,
    "bytes": spaces.Box(0, 200, (2,), np.uint8),
    "small": spaces.Box(-100, 100, (), np.int8),
    "nested": spaces.Dict({"a": spaces.Discrete(2), "b": spaces.Tuple([BOX, spaces.MultiBinary(1)])}),
}
WORLDS = {name: echo_world(space) for name, space in SPACES.items()}


@pytest.fixture
def pool_of(fresh_pool: Any) -> Any:
    return lambda name, **arguments: fresh_pool(WORLDS[name], num_envs=N, output="jax", **arguments)


def rows(*values: Any) -> Any:
    return jnp.asarray(values)


@pytest.mark.parametrize("name", SPACES)
def test_good_actions_come_as_they_are_from_everywhere(pool_of: Any, name: str) -> None:
    pool = pool_of(name)
    pool.reset()
    space = SPACES[name]
    space.seed(1)
    samples = [space.sample() for _ in range(N)]
    batch = jax.tree.map(lambda *leaves: np.stack(leaves), *samples)
    batch = dict(batch) if isinstance(batch, dict) else batch
    expected = [np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(one)]).tolist() for one in samples]
    for action in (batch, jax.tree.map(jnp.asarray, batch)):
        shown = pool.step(action)[0]
        np.testing.assert_allclose(shown, expected, rtol=1e-6)
    pool.check()


BAD = {
    "below": ("discrete", rows(5, 4, 6), 1, [5, 5, 6]),
    "above": ("discrete", rows(5, 6, 99), 2, [5, 6, 7]),
    "fraction": ("discrete", rows(5.0, 6.4, 7.0), 1, [5, 6, 7]),
    "nan": ("discrete", rows(jnp.nan, 6, 7), 0, [5, 6, 7]),
    "infinite": ("discrete", rows(jnp.inf, 6, 7), 0, [7, 6, 7]),
    "bools": ("discrete", rows(True, False, True), 0, [5, 5, 5]),
    "many": ("many", rows([0, 4], [1, 7], [2, 4]), 1, [[0, 4], [1, 6], [1, 4]]),
    "binary": ("binary", rows([0, 1], [1, 1], [0, 2]), 2, [[0, 1], [1, 1], [0, 1]]),
    "box-nan": ("box", rows([0.0, 1.0], [jnp.nan, 9.0], [0.0, 0.0]), 1, [[0, 1], [np.nan, 9], [0, 0]]),
    "bytes-fraction": ("bytes", rows([0.0, 1.0], [2.5, 9.0], [0.0, 0.0]), 1, [[0, 1], [2, 9], [0, 0]]),
    "bytes-wide": ("bytes", rows([0, 256], [0, 1], [0, 0]), 0, [[0, 255], [0, 1], [0, 0]]),
    "bytes-negative": ("bytes", rows([0, 1], [0, 1], [0, -1]), 2, [[0, 1], [0, 1], [0, 0]]),
    "small-wide": ("small", rows(1, 300, -300), 1, [1, 127, -128]),
    "small-unsigned": ("small", jnp.array([1, 2, 255], jnp.uint8), 2, [1, 2, 127]),
    "small-float": ("small", rows(1.0, 2.0, 1e30), 2, [1, 2, 127]),
}


@pytest.mark.parametrize("told_by", ["check", "stats", "close"])
@pytest.mark.parametrize("name", BAD)
def test_bad_ones_are_noted_and_told_later(pool_of: Any, name: str, told_by: str) -> None:
    if told_by != "check" and name not in ("below", "box-nan"):
        return
    kind, action, first, acted = BAD[name]
    pool = pool_of(kind)
    pool.reset()
    np.testing.assert_array_equal(np.squeeze(pool.step(action)[0]), acted)
    pool.step(jnp.stack([SPACES[kind].sample()] * N))  # good ones
    with pytest.raises(errors.ActionError, match=f"env {first} was given an action outside"):
        getattr(pool, told_by)()
    if told_by == "close":
        assert pool.closed
        pool.close()
    else:
        pool.check()  # it was told
        assert pool.stats()["in_flight"] == 0


@pytest.mark.parametrize("bounds", ["pass", "clip", "error"])
def test_bounds_are_kept_as_the_pool_was_told(pool_of: Any, bounds: str) -> None:
    pool = pool_of("box", action_bounds=bounds)
    pool.reset()
    action = np.array([[0, 0], [-2, 1], [0, 3]], np.float32)
    shown = pool.step(jnp.asarray(action))[0]
    clipped = [[0, 0], [-1, 1], [0, 2]]
    np.testing.assert_array_equal(shown, clipped if bounds == "clip" else action)
    if bounds != "error":
        pool.check()
        np.testing.assert_array_equal(pool.step(action)[0], clipped if bounds == "clip" else action)
        return
    with pytest.raises(errors.ActionError, match="env 1 was given"):
        pool.check()
    with pytest.raises(errors.ActionError, match="env 1"):
        pool.step(action)


def test_a_step_that_is_a_reset_notes_bad_actions_too_and_a_restore_forgets_none(pool_of: Any) -> None:
    pool = pool_of("discrete")
    pool.step(rows(5, 5, 0))  # the first one resets
    states = pool.save()
    pool.restore(states)
    with pytest.raises(errors.ActionError, match="env 2"):
        pool.check()


def test_the_bad_one_of_the_least_id_is_told_and_then_forgotten(pool_of: Any) -> None:
    pool = pool_of("discrete")
    pool.reset()
    pool.step(rows(5, 5, 0))
    pool.step(rows(5, 0, 5))
    with pytest.raises(errors.ActionError, match="env 1"):
        pool.check()
    pool.check()


def deleted() -> Any:
    array = jnp.full(N, 5)
    array.delete()
    return array


REFUSED = {
    "too few": (lambda: jnp.full(2, 5), r"expected shape \(3,\)"),
    "0-d": (lambda: jnp.array(5), r"expected shape \(3,\)"),
    "2-d": (lambda: jnp.full((N, 1), 5), r"got shape \(3, 1\)"),
    "half a byte": (lambda: jnp.full(N, 5, jnp.int4), "got type int4"),
    "complex": (lambda: jnp.full(N, 5j), "got type complex64"),
    "keys": (lambda: jax.random.split(jax.random.key(0), N), "got type key"),
    "deleted": (deleted, "was deleted"),
}


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn"])
@pytest.mark.parametrize("name", ["discrete", "box"])
def test_numbers_that_only_jax_has(pool_of: Any, name: str, dtype: str) -> None:
    pool = pool_of(name)
    pool.reset()
    action = jnp.array({"discrete": [5, 6, 7], "box": [[1, 2], [0, 1], [-1, 0]]}[name], dtype)
    np.testing.assert_array_equal(np.squeeze(pool.step(action)[0]), np.asarray(action, np.float32))
    pool.check()


@pytest.mark.parametrize("bounds", ["pass", "clip", "error"])
def test_large_whole_numbers_are_not_rounded(bounds: str) -> None:
    """32-bit floats have 24 bits for digits."""
    for space in (spaces.Discrete(2**31 - 1), spaces.Box(-(2**31), 2**31 - 1, (), np.int32)):
        whole = JaxWorld(
            "Large",
            spaces.Box(0, 255, (4,), np.uint8),
            space,
            lambda key: Begun(0, jnp.zeros(4, jnp.uint8)),
            lambda key, state, action: Moved(0, action[None].view(jnp.uint8), 0.0, False, False),
            resets_cheaply=True,
        )
        with stepmill.make(whole, num_envs=N, action_bounds=bounds) as pool:
            pool.reset()
            action = np.array([2**24 + 1, 2**31 - 2, 0], np.int32)
            for given in (action, action.astype(np.int64), jnp.asarray(action)):
                assert pool.step(given)[0].view(np.int32)[:, 0].tolist() == action.tolist()


@pytest.mark.parametrize("name", REFUSED)
def test_what_can_be_seen_without_looking_is_refused_at_once(pool_of: Any, name: str) -> None:
    make_action, words = REFUSED[name]
    pool = pool_of("discrete")
    pool.reset()
    with pytest.raises(errors.ActionError, match=words):
        pool.step(make_action())
    assert pool.in_flight == []
    assert pool.step(jnp.full(N, 5))[4]["elapsed_step"].tolist() == [1] * N


def test_arrays_for_some_envs_or_beside_ids_are_read(pool_of: Any) -> None:
    pool = pool_of("discrete")
    pool.reset()
    assert pool.step(jnp.array([7, 6]), [2, 0])[0].tolist() == [[7], [6]]
    assert pool.step({"action": jnp.array([6]), "env_id": [1]})[0].tolist() == [[6]]
    with pytest.raises(errors.ActionError, match="env 2"):
        pool.step(jnp.array([0]), [2])
    nested = pool_of("nested")
    nested.reset()
    a, b = jnp.array([1]), (jnp.array([[0.5, 1.5]]), jnp.array([[1]]))
    assert nested.step({"a": a, "b": b, "env_id": [2]})[0].tolist() == [[1, 0.5, 1.5, 1]]


def test_an_array_may_be_written_to_as_soon_as_it_was_sent(pool_of: Any) -> None:
    pool = pool_of("discrete")
    pool.reset()
    action, shown = np.full(N, 5), []
    for i in range(30):
        action[:] = 5 + i % 3
        shown.append(pool.step(action)[0])
    assert [one.ravel().tolist() for one in shown] == [[5 + i % 3] * N for i in range(30)]


def test_with_autoreset_off_an_ended_env_takes_only_a_reset(fresh_pool: Any) -> None:
    ending = functools.partial(fresh_pool, WORLDS["discrete"], num_envs=N, output="jax", autoreset="disabled")
    pool = ending(max_episode_steps=1)
    pool.step(jnp.full(N, 5))
    assert pool.step(jnp.full(N, 5))[3].tolist() == [True] * N
    with pytest.raises(errors.NeedsResetError, match=r"env 0 is over .* reset\(env_id=\[0\]\)"):
        pool.step(jnp.full(N, 5))
    pool.reset([0, 1, 2])
    assert pool.step(jnp.full(N, 5))[3].tolist() == [True] * N


@pytest.mark.torch
def test_tensors_on_the_cpu_are_checked() -> None:
    import torch

    with stepmill.make(WORLDS["discrete"], num_envs=N, output="torch") as pool:
        pool.reset()
        assert pool.step(torch.full((N,), 6))[0].tolist() == [[6.0]] * N
        with pytest.raises(errors.ActionError, match="env 0"):
            pool.step(torch.zeros(N))
