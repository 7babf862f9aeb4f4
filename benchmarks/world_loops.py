"""JAX worlds in a pool, beside the loop that a user of the suite would write: ``python -m benchmarks.world_loops``.

The loops below use the suite's functions, JAX and nothing of ours: ``vmap``, autoreset in the same step, time limit,
return and length of episodes. A jitted call of the loop gives as many arrays as one of the pool: what it has fewer, it
fills up with masks, as an array costs some µs on the host whatever is in it.

This file needs neither rich nor the other benchmarks' libraries: it runs on any machine with JAX and the suites.
"""

from __future__ import annotations

import argparse
import statistics
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import stepmill
from benchmarks.timing import Effort, interleaved

CARTPOLE = "gymnax:CartPole-v1"
CASES = ((CARTPOLE, 64), (CARTPOLE, 4096), (CARTPOLE, 65536), ("brax:inverted_pendulum", 256))
SCANNED = 100  # steps of a scan
BRAX_LIMIT = 1000


class Carry(NamedTuple):
    """What a loop carries from step to step."""

    key: jax.Array
    state: Any
    length: jax.Array
    returned: jax.Array


class Moved(NamedTuple):
    """What the envs of a suite give in a step, after their autoreset."""

    state: Any
    observation: Any
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    info: Any
    final: Any  # the observation and the info of the step, where an episode may have ended


class Loop(NamedTuple):
    """``begin(key)`` gives a carry, ``step(carry, action)`` a carry and what is shown."""

    begin: Callable[[jax.Array], Carry]
    step: Callable[[Carry, jax.Array], tuple[Carry, dict[str, Any]]]


# ---- the suites' own loops -------------------------------------------------------------------------


def gymnax_loop(name: str, num_envs: int) -> Loop:
    """Gymnax's ``step`` resets by itself and counts for its time limit."""
    import gymnax

    env, params = gymnax.make(name)

    def begin(keys: jax.Array) -> Any:
        return jax.vmap(env.reset, (0, None))(keys, params)[1]

    def step(keys: jax.Array, state: Any, action: jax.Array, length: jax.Array) -> Moved:
        obs, state, reward, terminated, truncated, info = jax.vmap(env.step, (0, 0, 0, None))(
            keys, state, action, params
        )
        own = {"discount": info["discount"]}
        return Moved(state, obs, reward, terminated, truncated, own, (info["final_observation"], own))

    return loop(begin, step, num_envs)


def brax_loop(name: str, num_envs: int) -> Loop:
    """Brax's own wrapper begins every episode in the first one's state. This loop draws a new one, if any is needed."""
    from brax import envs

    env = envs.get_environment(name)

    def begin(keys: jax.Array) -> Any:
        return jax.vmap(env.reset)(keys)

    def step(keys: jax.Array, state: Any, action: jax.Array, length: jax.Array) -> Moved:
        moved = jax.vmap(env.step)(state, action)
        terminated = moved.done.astype(bool)
        truncated = length + 1 >= BRAX_LIMIT
        ended = terminated | truncated

        def choose(fresh: jax.Array, old: jax.Array) -> jax.Array:
            return jnp.where(ended.reshape(-1, *[1] * (old.ndim - 1)), fresh, old)

        now = jax.lax.cond(ended.any(), lambda: jax.tree.map(choose, begin(keys), moved), lambda: moved)
        final = moved.obs, moved.metrics
        return Moved(now, now.obs, moved.reward, terminated, truncated, now.metrics, final)

    return loop(begin, step, num_envs)


LOOPS = {"gymnax": gymnax_loop, "brax": brax_loop}


def loop(begin: Callable[..., Any], step: Callable[..., Moved], num_envs: int) -> Loop:
    """A suite's envs with keys and the statistics of episodes."""

    def begun(key: jax.Array) -> Carry:
        key, now = jax.random.split(key)
        zeros = jnp.zeros(num_envs, jnp.int32), jnp.zeros(num_envs)
        return Carry(key, begin(jax.random.split(now, num_envs)), *zeros)

    def stepped(carry: Carry, action: jax.Array) -> tuple[Carry, dict[str, Any]]:
        key, now = jax.random.split(carry.key)
        moved = step(jax.random.split(now, num_envs), carry.state, action, carry.length)
        ended = moved.terminated | moved.truncated
        returned, length = carry.returned + moved.reward, carry.length + 1
        going_on = jnp.where(ended, 0, length)
        shown = {
            **moved._asdict(),
            "state": (),
            "ended": ended,
            "elapsed_step": going_on,
            "episode_return": jnp.where(ended, returned, 0),
            "episode_length": jnp.where(ended, length, 0),
        }
        return Carry(key, moved.state, going_on, jnp.where(ended, 0, returned)), shown

    return Loop(begun, stepped)


# ---- contestants -----------------------------------------------------------------------------------


class Steps:
    """Calls of a function that is given what it gave, and actions; the clock waits for the last of them."""

    def __init__(self, step: Callable[[Any, Any], Any], carry: Any, actions: list[Any], rows_per_call: int) -> None:
        self._step, self._carry, self._actions, self.rows_per_call = step, carry, actions, rows_per_call

    def run(self, calls: int) -> None:
        result = None
        for i in range(calls):
            self._carry, result = self._step(self._carry, self._actions[i % len(self._actions)])
        jax.block_until_ready(result)


def compare(env: str, num_envs: int, device: str, effort: Effort) -> dict[str, Any]:
    """Steps per second of a pool and of the loop, call by call and in a scan; and how much longer the pool takes."""
    place = jax.local_devices(backend=device)[0]
    with jax.default_device(place), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pool = stepmill.make(env, num_envs=num_envs, output="jax", device=device, autoreset="same_step", seed=0)
        rng = np.random.default_rng(0)
        drawn = [_drawn(pool.single_action_space, num_envs, rng) for _ in range(4)]
        actions = [jax.device_put(one, place) for one in drawn]  # committed, as what a policy makes of observations is
        suite, _, name = env.partition(":")
        own = LOOPS[suite](name, num_envs)
        runners = {
            "pool": pool_steps(pool, actions),
            "loop": loop_steps(own, actions, place, outputs_of(pool, actions[0])),
            "pool_scan": scan_steps(pool.functional().step, pool.functional().reset()[0], actions, place),
            "loop_scan": scan_steps(own.step, jax.jit(own.begin)(jax.random.PRNGKey(0)), actions, place),
        }
        timed = interleaved(runners, effort)
        pool.close()
    row: dict[str, Any] = {"env": env, "num_envs": num_envs, "device": device, **timed}
    row["step"], row["scan"] = times(timed, "pool", "loop"), times(timed, "pool_scan", "loop_scan")
    return row


def times(timed: dict[str, Any], ours: str, theirs: str) -> float:
    """How many times as long as the loop a pool takes: the median of all rounds, in each of which both have run."""
    pairs = zip(timed[ours]["samples"], timed[theirs]["samples"], strict=True)
    return statistics.median(loop / pool for pool, loop in pairs)


def _drawn(space: Any, num_envs: int, rng: np.random.Generator) -> np.ndarray:
    if hasattr(space, "n"):
        return rng.integers(0, space.n, num_envs).astype(np.int32)
    return rng.uniform(-1, 1, (num_envs, *space.shape)).astype(np.float32)


def pool_steps(pool: Any, actions: list[Any]) -> Steps:
    pool.reset()
    return Steps(lambda _, action: (None, pool.step(action)), None, actions, pool.num_envs)


def outputs_of(pool: Any, action: Any) -> int:
    """How many arrays a call of the pool's compiled step gives: what it shows, and what it keeps."""
    functions = pool.functional()
    notes = 2  # bad actions, and how many episodes have ended
    return notes + len(jax.tree.leaves(jax.eval_shape(lambda: functions.step(functions.reset()[0], action))))


def loop_steps(own: Loop, actions: list[Any], place: Any, outputs: int) -> Steps:
    carry = jax.jit(own.begin)(jax.random.PRNGKey(0))
    count = len(jax.tree.leaves(jax.eval_shape(own.step, carry, actions[0])))

    def step(carry: Carry, action: jax.Array) -> Any:
        carry, shown = own.step(carry, action)
        return carry, (shown, [shown["ended"]] * (outputs - count))

    jitted = jax.jit(step, donate_argnums=0)
    return Steps(jitted, jax.device_put(carry, place), actions, len(actions[0]))


def scan_steps(step: Callable[[Any, Any], Any], carry: Any, actions: list[Any], place: Any) -> Steps:
    """Many steps in one call, of which a training takes these arrays."""

    def shown(result: Any) -> Any:
        if isinstance(result, dict):
            names = "observation", "reward", "terminated", "truncated", "episode_return", "ended"
            return [result[name] for name in names]
        return *result[:4], result.info["episode_return"], result.info["_episode_return"]

    def scan(carry: Any, action: jax.Array) -> Any:
        def one(carry: Any, _: None) -> Any:
            carry, result = step(carry, action)
            return carry, shown(result)

        return jax.lax.scan(one, carry, None, length=SCANNED)

    jitted = jax.jit(scan, donate_argnums=0)
    carry = jax.device_put(jax.tree.map(jnp.array, carry), place)
    return Steps(jitted, carry, actions, len(actions[0]) * SCANNED)


# ---- alone -----------------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.world_loops", description=__doc__)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.5, help="for each contestant in each round")
    parser.add_argument("--cases", default=",".join(f"{env}={n}" for env, n in CASES), help="such as %(default)s")
    options = parser.parse_args()
    print(f"{'envs':26}{'µs per step: pool':>20}{'loop':>9}{'times':>7}{'in a scan: pool':>18}{'loop':>9}{'times':>7}")
    for case in options.cases.split(","):
        env, _, number = case.partition("=")
        row = compare(env, int(number), options.device, Effort(options.repeats, options.seconds))
        us = {name: 1e6 * int(number) / row[name]["steps_per_s"] for name in ("pool", "loop", "pool_scan", "loop_scan")}
        print(
            f"{env + ' x ' + number:26}{us['pool']:20.1f}{us['loop']:9.1f}{row['step']:7.2f}"
            f"{us['pool_scan']:18.1f}{us['loop_scan']:9.1f}{row['scan']:7.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
