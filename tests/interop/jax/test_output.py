"""``output="jax"``: the same results as JAX arrays, over the same memory where JAX can use it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import stepmill
from stepmill import errors
from stepmill.interop.jax import as_jax_arrays
from support.envs.many_spaces import DTYPES, AllTypes
from support.outputs import assert_shows, make_kind, split
from support.probes import VIEWS, assert_same, make_probe

pytestmark = pytest.mark.usefixtures("server")
NARROW = {"float64": "float32", "int64": "int32", "uint64": "uint32"}
ARRAYS = {"gymnasium": 4, "gym": 3, "dm": 4}  # of a step, with an observation of one array


@pytest.fixture(params=[False, True], ids=["32-bit", "64-bit"])
def narrow(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    """Which types become narrower, with ``jax_enable_x64`` and without."""
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", request.param)
    yield {} if request.param else NARROW
    jax.config.update("jax_enable_x64", before)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("kind", ["native", "inline", "objects", "process"])
def test_jax_arrays_show_what_arrays_show(kind: str, view: str, narrow: dict[str, str]) -> None:
    shows, arrays = (make_kind(kind, view, autoreset="same_step", output=output) for output in ("jax", "numpy"))
    with shows, arrays:
        first = [pool.reset() for pool in (shows, arrays)]
        if view == "gym":
            assert_shows(*first, jax.Array, narrow)
        for turn in range(10):
            shown, plain = (split(view, pool.step(np.full(3, turn % 2))) for pool in (shows, arrays))
            count = assert_shows(shown[0], plain[0], jax.Array, narrow)
            assert count == ARRAYS[view] + (len(DTYPES) + 1 if kind == "objects" else 0)
            assert_same(shown[1], plain[1])


def test_every_type(narrow: dict[str, str]) -> None:
    with stepmill.make(AllTypes, num_envs=2, backend="inline", output="jax") as pool:
        obs, _ = pool.reset()
        assert {name: obs[name].dtype.name for name in DTYPES} == {name: narrow.get(name, name) for name in DTYPES}
        assert obs["word"] == ("", "")
        assert {device.platform for device in obs["float32"].devices()} == {"cpu"}


# ---- memory --------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["thread", "process"])
def test_columns_of_a_batch_are_used_where_they_are(backend: str) -> None:
    """A batch that is held shows that its memory is: copies would have let it go."""
    with stepmill.make("CartPole-v1", num_envs=3, backend=backend, output="jax") as pool:
        pool.reset()
        kept = [pool.step([0, 1, 0])[0] for _ in range(20)]
        assert pool.stats()["batches_held"] == 20
        assert all(one.unsafe_buffer_pointer() % 64 == 0 for one in kept)


def test_what_is_narrowed_is_a_copy() -> None:
    with stepmill.make("CartPole-v1", num_envs=3, output="jax") as pool:
        pool.reset()
        kept = [pool.step([0, 1, 0])[1] for _ in range(20)]  # rewards, of float64
        assert kept[0].dtype == jnp.float32
        jax.block_until_ready(kept)
        assert pool.stats()["batches_held"] < 20  # JAX lets go of what it has copied a little later


@pytest.mark.parametrize("kind", ["native", "python"])
def test_many_batches_still_hold_what_they_held(kind: str, narrow: dict[str, str]) -> None:
    with make_probe(kind, num_envs=4, length=5, output="jax") as pool:
        kept = [pool.step(np.full(4, turn % 2))[:4] for turn in range(200)]
        copies = [[np.array(one) for one in batch] for batch in kept]
        for turn in range(200):  # over what could be recycled
            pool.step(np.full(4, turn % 2))
        for batch, before in zip(kept, copies, strict=True):
            for one, other in zip(batch, before, strict=True):
                np.testing.assert_array_equal(np.asarray(one), other)
        pool.close()
        np.testing.assert_array_equal(np.asarray(kept[7][0]), copies[7][0])
        del kept, batch, one
        gc.collect()


def test_computations_that_are_still_running_keep_the_batch() -> None:
    slow = jax.jit(lambda x: jax.lax.fori_loop(0, 2000, lambda _, y: y * 1.0, x).sum())
    with make_probe("native", num_envs=4, obs_size=256, output="jax") as pool:
        sums, expected = [], []
        with make_probe("native", num_envs=4, obs_size=256) as twin:
            for _ in range(30):
                sums.append(slow(pool.step(np.zeros(4))[0]))  # nobody holds the observation any more
                expected.append(twin.step(np.zeros(4))[0].astype(np.float32).sum())
        np.testing.assert_allclose([float(one) for one in sums], expected, rtol=1e-5)


def test_a_donated_array_spoils_nothing() -> None:
    double = jax.jit(lambda x: x * 2, donate_argnums=0)
    with (
        stepmill.make("CartPole-v1", num_envs=64, output="jax") as pool,
        stepmill.make("CartPole-v1", num_envs=64) as twin,
    ):
        pool.reset()
        twin.reset()
        for _ in range(20):
            obs, _, terminated, _, _ = pool.step(np.zeros(64, int))
            right, _, ended, _, _ = twin.step(np.zeros(64, int))
            np.testing.assert_array_equal(np.asarray(double(obs)), right * 2)
            np.testing.assert_array_equal(np.asarray(terminated), ended)


# ---- what goes back into the pool ----------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_floats_of_any_width_are_taken(dtype: str) -> None:
    values = [0.25, -0.5, 1.0]
    with make_probe("native", num_envs=3, output="jax") as pool:
        pool.reset()
        action = jnp.array(values, dtype)
        assert pool.step(action)[1].tolist() == values
        assert pool.step(action, jnp.array([2, 0, 1]))[1].tolist() == values


def test_discrete_actions_and_masks_are_taken() -> None:
    with stepmill.make("CartPole-v1", num_envs=2, autoreset="disabled", output="jax") as pool:
        pool.reset()
        pool.step(jnp.array([1, 0]))
        with pytest.raises(errors.ActionError, match="whole number"):
            pool.step(jnp.array([0.5, 0.0], jnp.bfloat16))
        _, info = pool.reset(options={"reset_mask": jnp.array([True, False])})
        assert info["elapsed_step"].tolist() == [0, 1]


def test_an_array_that_has_no_values_yet_is_refused() -> None:
    with stepmill.make("CartPole-v1", num_envs=2) as pool:
        pool.reset()
        with pytest.raises(errors.ActionTypeError, match="traced array"):
            jax.jit(pool.send)(jnp.array([1, 0]))


def test_a_policy_of_jax_plays() -> None:
    with stepmill.make("CartPole-v1", num_envs=8, output="jax") as pool:
        policy = jax.jit(lambda weights, obs: jnp.argmax(obs @ weights, 1))
        weights = jax.random.normal(jax.random.key(0), (4, 2))
        obs, _ = pool.reset()
        for _ in range(30):
            obs, reward, *_ = pool.step(policy(weights, obs))
        assert reward.shape == (8,)


# ---- infos, interruptions ------------------------------------------------------------------------


def test_as_jax_arrays_converts_infos_on_request() -> None:
    with make_kind("objects", autoreset="same_step", output="jax") as pool:
        pool.reset()
        for _ in range(4):
            *_, info = pool.step(np.ones(3, int))
        shown = as_jax_arrays(info)
        assert isinstance(shown["env_id"], jax.Array)
        assert shown["final_info"]["seen"].tolist() == [4] * 3
        assert_shows(shown["final_obs"][0], info["final_obs"][0], jax.Array, NARROW)


@pytest.mark.parametrize("view", VIEWS)
def test_no_batch_is_lost_if_a_handler_raises_inside_jax(view: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put, interrupted = jax.device_put, []

    def once(*args: Any, **arguments: Any) -> Any:
        if not interrupted:
            interrupted.append(True)
            raise KeyboardInterrupt
        return put(*args, **arguments)

    with make_kind("native", view, output="jax") as pool:
        pool.reset()
        monkeypatch.setattr(jax, "device_put", once)
        with pytest.raises(KeyboardInterrupt):
            pool.step(np.ones(3))
        shown, rest = split(view, pool.recv())
        assert all(isinstance(one, jax.Array) for one in shown)
        info: dict[str, Any] = rest[-1] if view == "dm" else rest
        assert info["elapsed_step"].tolist() == [1] * 3
