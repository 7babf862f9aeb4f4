"""EnvPool's `xla`: its signature and results, and a training whose rollout is one program, as in CleanRL's script."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pytest

jax = pytest.importorskip("jax")
jnp = jax.numpy

import stepmill.interop.envpool.legacy  # noqa: E402
from support.programs import assert_shows, await_all  # noqa: E402

pytestmark = pytest.mark.usefixtures("deadline")


def numpy_of(tree: Any) -> Any:
    return jax.tree_util.tree_map(np.asarray, tree)


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "Blackjack-v1", "Taxi-v3"])
@pytest.mark.parametrize("env_type", ["gym", "gymnasium", "dm"])
def test_results_are_those_of_the_pool(envpool: Any, env_id: str, env_type: str) -> None:
    inside, outside = (envpool.make(env_id, env_type, num_envs=4, seed=3) for _ in range(2))
    handle, _, _, step = inside.xla()
    inside.reset()
    outside.reset()
    jitted = jax.jit(step)
    draw = np.random.default_rng(0)
    for _ in range(30):
        action = np.stack([np.asarray(outside.spec.action_space.sample()) for _ in range(4)])
        action = draw.permutation(action)
        handle, result = jitted(handle, jnp.asarray(action))
        expected = outside.step(action)
        result, expected = numpy_of(result), expected
        if env_type == "dm":
            # Of infos, a TimeStep here has what EnvPool has.
            assert type(result.observation).__name__ == "State"
            assert result.observation._fields == expected.observation._fields
        assert_shows(result, expected)


def test_old_gym_and_recv_after_async_reset() -> None:
    legacy = stepmill.interop.envpool.legacy
    with legacy.make_gym("CartPole-v1", num_envs=4, batch_size=2, seed=1) as env:
        handle, recv, send, _ = env.xla()
        env.async_reset()
        handle, (obs, _, done, info) = jax.jit(recv)(handle)
        assert obs.shape == (2, 4) and not done.any()
        assert set(info) >= {"env_id", "elapsed_step", "TimeLimit.truncated", "players"}
        handle = jax.jit(send)(handle, jnp.zeros(2, jnp.int32), info["env_id"])
        env.drain()


# ---- PPO whose rollout is one program ----------------------------------------------------------------


class Storage(NamedTuple):
    obs: Any
    action: Any
    logprob: Any
    value: Any
    reward: Any
    done: Any


def forward(weights: dict[str, Any], obs: Any) -> tuple[Any, Any]:
    hidden = jnp.tanh(obs @ weights["in"] + weights["bias"])
    return hidden @ weights["policy"], (hidden @ weights["value"])[:, 0]


def initial(key: Any, hidden: int = 32) -> dict[str, Any]:
    a, b, c = jax.random.split(key, 3)
    return {
        "in": jax.random.normal(a, (4, hidden)) / 2,
        "bias": jnp.zeros(hidden),
        "policy": jax.random.normal(b, (hidden, 2)) / 100,
        "value": jax.random.normal(c, (hidden, 1)) / hidden,
    }


def loss(weights: dict[str, Any], batch: Storage, advantage: Any, target: Any) -> Any:
    logits, value = forward(weights, batch.obs)
    logprob = jnp.take_along_axis(jax.nn.log_softmax(logits), batch.action[:, None], 1)[:, 0]
    ratio = jnp.exp(logprob - batch.logprob)
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    policy = jnp.maximum(-advantage * ratio, -advantage * jnp.clip(ratio, 0.8, 1.2)).mean()
    return policy + 0.5 * ((value - target) ** 2).mean()


def test_a_training_whose_rollout_is_one_program(envpool: Any) -> None:
    """Its return grows: what is learnt from is what the envs did."""
    num_envs, steps, updates = 16, 64, 40
    envs = envpool.make("CartPole-v1", env_type="gym", num_envs=num_envs, seed=1)
    handle, _, _, step_env = envs.xla()
    weights = initial(jax.random.PRNGKey(0))

    def step_once(carry: Any, _: Any, weights: Any) -> Any:
        obs, done, ended, count, key, handle = carry
        key, own = jax.random.split(key)
        logits, value = forward(weights, obs)
        action = jax.random.categorical(own, logits)
        logprob = jnp.take_along_axis(jax.nn.log_softmax(logits), action[:, None], 1)[:, 0]
        handle, (next_obs, reward, terminated, truncated, info) = step_env(handle, action)
        next_done = terminated | truncated
        ended += jnp.where(next_done, info["episode_return"], 0).sum()
        stored = Storage(obs, action, logprob, value, reward, done)
        return (next_obs, next_done, ended, count + next_done.sum(), key, handle), stored

    @jax.jit
    def update(weights: Any, obs: Any, done: Any, key: Any, handle: Any) -> Any:
        carry = (obs, done, jnp.float32(0), jnp.int32(0), key, handle)
        carry, storage = jax.lax.scan(partial(step_once, weights=weights), carry, length=steps)
        obs, done, ended, count, key, handle = carry
        _, last = forward(weights, obs)
        next_values = jnp.concatenate([storage.value[1:], last[None]])
        next_dones = jnp.concatenate([storage.done[1:], done[None]])

        def estimate(advantage: Any, one: Any) -> Any:
            value, next_value, next_done, reward = one
            delta = reward + 0.99 * next_value * (1 - next_done) - value
            advantage = delta + 0.99 * 0.95 * (1 - next_done) * advantage
            return advantage, advantage

        columns = storage.value, next_values, next_dones, storage.reward
        _, advantages = jax.lax.scan(estimate, jnp.zeros(num_envs), columns, reverse=True)
        flat = jax.tree_util.tree_map(lambda one: one.reshape(-1, *one.shape[2:]), storage)
        targets = (advantages + storage.value).reshape(-1)

        def improve(weights: Any, _: Any) -> Any:
            slope = jax.grad(loss)(weights, flat, advantages.reshape(-1), targets)
            norm = jnp.sqrt(sum((one**2).sum() for one in jax.tree_util.tree_leaves(slope)))
            scale = 0.05 / jnp.maximum(norm, 0.5)
            return jax.tree_util.tree_map(lambda w, s: w - scale * s, weights, slope), None

        weights, _ = jax.lax.scan(improve, weights, length=8)
        return weights, obs, done, key, handle, ended / jnp.maximum(count, 1)

    obs, _ = envs.reset()
    obs, done, key = jnp.asarray(obs), jnp.zeros(num_envs, bool), jax.random.PRNGKey(1)
    returns = []
    for _ in range(updates):
        weights, obs, done, key, handle, mean = update(weights, obs, done, key, handle)
        returns.append(float(mean))
    await_all(weights)
    assert envs.stats()["steps"] == num_envs * (1 + steps * updates)
    first, last = np.mean(returns[:5]), np.mean(returns[-5:])
    assert first < 40 < 2 * first < last, returns
