"""PPO on JAX worlds, as one compiled program: envs, networks and learning never leave the device.

    pip install 'stepmill[jax-worlds]'
    python examples/ppo_jax.py                                  # Gymnax's CartPole, solved at 475, in seconds
    python examples/ppo_jax.py --env-id brax:inverted_pendulum  # continuous actions, solved at 950
    python examples/ppo_jax.py --seeds 8                        # eight trainings side by side
    python examples/ppo_jax.py --device cuda --num-envs 2048 --total-steps 20_000_000

`pool.functional()` returns the envs of a pool as two pure functions, with its autoreset, time limits and episode
statistics. The whole training is one `lax.scan` over updates, in each of which a `lax.scan` steps the envs: the way of
PureJaxRL (Lu et al., 2022). For networks and Adam, JAX alone is enough.

Trains, then plays 100 episodes of envs with other seeds and prints their mean return.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax import lax

import stepmill

OTHER_SEEDS = 1_000_000  # from here on, for the episodes at the end


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env-id", default="gymnax:CartPole-v1", help="of a JAX world")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="of envs and networks")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=count, default=1, help="how many trainings, with seeds from --seed on")
    parser.add_argument("--num-envs", type=count, default=64)
    parser.add_argument("--num-steps", type=count, default=64, help="of each env, between updates")
    parser.add_argument("--total-steps", type=count, default=200_000, help="of all envs of a training together")
    parser.add_argument("--epochs", type=count, default=4, help="how often each update goes over its data")
    parser.add_argument("--minibatches", type=count, default=8)
    parser.add_argument("--learning-rate", type=float, default=1e-3, help="at the start; it falls to 0")
    parser.add_argument("--clip", type=float, default=0.2)
    parser.add_argument("--gamma", type=float, default=0.99)
    parser.add_argument("--gae-lambda", type=float, default=0.95)
    parser.add_argument("--entropy", type=float, default=0.0)
    parser.add_argument("--value-weight", type=float, default=0.5)
    parser.add_argument("--max-gradient", type=float, default=0.5)
    parser.add_argument("--hidden", type=count, default=64, help="the width of the networks")
    parser.add_argument("--episodes", type=count, default=100, help="played at the end")
    parser.add_argument("--log", type=Path, help="a file for the learning curve, a line of JSON per update")
    args = parser.parse_args()
    batch = args.num_envs * args.num_steps
    if args.total_steps < batch:
        parser.error(f"--total-steps: expected enough for an update, {batch:,} or more")
    if batch % args.minibatches:
        parser.error(f"--minibatches: expected a divisor of the {batch:,} steps of an update, got {args.minibatches:,}")
    args.updates = args.total_steps // batch
    return args


def count(text: str) -> int:
    """A whole number from 1 on."""
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 on, got {text}")
    return int(text)


# ---- networks --------------------------------------------------------------------------------------


class Agent(NamedTuple):
    """What is learned: the weights of two networks, and the spread of continuous actions."""

    policy: Any
    value: Any
    log_spread: jax.Array


def new_agent(args: argparse.Namespace, key: jax.Array, inputs: int, outputs: int) -> Agent:
    policy, value = jax.random.split(key)
    sizes = inputs, args.hidden, args.hidden
    return Agent(layers(policy, (*sizes, outputs), 0.01), layers(value, (*sizes, 1), 1.0), jnp.full(outputs, -0.5))


def layers(key: jax.Array, sizes: tuple[int, ...], last_gain: float) -> list[tuple[jax.Array, jax.Array]]:
    """Weights and biases. A small last layer: at the start all actions are about as likely, and values about 0."""
    gains = [math.sqrt(2)] * (len(sizes) - 2) + [last_gain]
    keys = jax.random.split(key, len(gains))
    return [
        (jax.nn.initializers.orthogonal(gain)(one, shape), jnp.zeros(shape[1]))
        for one, gain, shape in zip(keys, gains, itertools.pairwise(sizes), strict=True)
    ]


def run(network: list[tuple[jax.Array, jax.Array]], inputs: jax.Array) -> jax.Array:
    for weights, biases in network[:-1]:
        inputs = jnp.tanh(inputs @ weights + biases)
    weights, biases = network[-1]
    return inputs @ weights + biases


class Choice:
    """Discrete actions: the policy's outputs are their log-probabilities, up to a constant."""

    def __init__(self, space: spaces.Discrete) -> None:
        self.outputs, self.first = int(space.n), int(space.start)

    def best(self, agent: Agent, obs: jax.Array) -> jax.Array:
        return run(agent.policy, obs).argmax(-1)

    def sample(self, agent: Agent, obs: jax.Array, key: jax.Array) -> jax.Array:
        return jax.random.categorical(key, run(agent.policy, obs))

    def judge(self, agent: Agent, obs: jax.Array, action: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The log-probability of actions, and the entropy of the policy there."""
        every = jax.nn.log_softmax(run(agent.policy, obs))
        return jnp.take_along_axis(every, action[..., None], -1)[..., 0], -(jnp.exp(every) * every).sum(-1)

    def for_env(self, action: jax.Array) -> jax.Array:
        return action + self.first


class Gauss:
    """Continuous actions: the policy's outputs are the means of normal distributions, in which -1 and 1 are bounds."""

    def __init__(self, space: spaces.Box) -> None:
        self.outputs, self.shape = math.prod(space.shape), space.shape
        self.low, self.high = jnp.asarray(space.low), jnp.asarray(space.high)

    def best(self, agent: Agent, obs: jax.Array) -> jax.Array:
        return run(agent.policy, obs)

    def sample(self, agent: Agent, obs: jax.Array, key: jax.Array) -> jax.Array:
        mean = run(agent.policy, obs)
        return mean + jnp.exp(agent.log_spread) * jax.random.normal(key, mean.shape)

    def judge(self, agent: Agent, obs: jax.Array, action: jax.Array) -> tuple[jax.Array, jax.Array]:
        mean, log_spread = run(agent.policy, obs), agent.log_spread
        log_probs = jax.scipy.stats.norm.logpdf(action, mean, jnp.exp(log_spread)).sum(-1)
        return log_probs, jnp.full_like(log_probs, (log_spread + 0.5 * math.log(2 * math.pi * math.e)).sum())

    def for_env(self, action: jax.Array) -> jax.Array:
        inside = jnp.clip(action, -1, 1).reshape(-1, *self.shape)
        return self.low + (inside + 1) / 2 * (self.high - self.low)


# ---- running scales and Adam -----------------------------------------------------------------------


class Scale(NamedTuple):
    """Mean and variance of all rows that were seen."""

    rows: jax.Array
    mean: jax.Array
    variance: jax.Array

    def seen(self, more: jax.Array) -> Scale:
        more = more.reshape(-1, *self.mean.shape)
        rows, distance = self.rows + len(more), more.mean(0) - self.mean
        part = len(more) / rows
        variance = self.variance + part * (more.var(0) - self.variance + (1 - part) * distance**2)
        return Scale(rows, self.mean + part * distance, variance)

    def __call__(self, value: jax.Array) -> jax.Array:
        return jnp.clip((value - self.mean) / jnp.sqrt(self.variance + 1e-8), -10, 10)


def new_scale(*shape: int) -> Scale:
    return Scale(jnp.float32(1e-4), jnp.zeros(shape), jnp.ones(shape))


class Adam(NamedTuple):
    """The state of Adam (Kingma and Ba, 2015)."""

    steps: jax.Array
    mean: Any
    square: Any


def adam_step(args: argparse.Namespace, adam: Adam, agent: Any, gradient: Any, rate: jax.Array) -> tuple[Adam, Any]:
    norm = jnp.sqrt(sum((leaf**2).sum() for leaf in jax.tree.leaves(gradient)))
    gradient = jax.tree.map(lambda leaf: leaf * jnp.minimum(1.0, args.max_gradient / (norm + 1e-6)), gradient)
    steps = adam.steps + 1
    mean = jax.tree.map(lambda old, new: 0.9 * old + 0.1 * new, adam.mean, gradient)
    square = jax.tree.map(lambda old, new: 0.999 * old + 0.001 * new**2, adam.square, gradient)

    def moved(weight: jax.Array, mean: jax.Array, square: jax.Array) -> jax.Array:
        return weight - rate * (mean / (1 - 0.9**steps)) / (jnp.sqrt(square / (1 - 0.999**steps)) + 1e-5)

    return Adam(steps, mean, square), jax.tree.map(moved, agent, mean, square)


# ---- training --------------------------------------------------------------------------------------


class Training(NamedTuple):
    """All that one training carries from update to update."""

    key: jax.Array
    agent: Agent
    adam: Adam
    obs_scale: Scale
    return_scale: Scale
    envs: Any  # what `pool.functional()` needs for the next step
    obs: jax.Array
    discounted: jax.Array  # rewards so far, discounted: their spread is what rewards are divided by


class Steps(NamedTuple):
    """What an update learns from: arrays with a row per step, and in it one per env."""

    obs: jax.Array
    action: jax.Array
    log_prob: jax.Array
    reward: jax.Array
    terminated: jax.Array
    ended: jax.Array
    next_obs: jax.Array  # what the step led to, also where the next episode has already begun
    discounted: jax.Array
    episode_return: jax.Array  # where an episode has ended


class Trainer:
    """PPO on the envs of a pool, as pure functions of one training; ``jax.vmap`` makes many of them."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        pool = make(args, args.num_envs)
        space = pool.single_action_space
        self.actions = Choice(space) if isinstance(space, spaces.Discrete) else Gauss(space)
        self.inputs = math.prod(pool.single_observation_space.shape)
        self.reset, self.step = pool.functional()

    def begin(self, seed: jax.Array) -> Training:
        key, first = jax.random.split(jax.random.PRNGKey(seed))
        agent = new_agent(self.args, first, self.inputs, self.actions.outputs)
        zeros = jax.tree.map(jnp.zeros_like, agent)
        # Env i of a pool takes the seed plus i: trainings must not share any.
        envs, start = self.reset(seed * self.args.num_envs)
        obs = flat(start.observation)
        return Training(
            key,
            agent,
            Adam(jnp.int32(0), zeros, zeros),
            new_scale(self.inputs).seen(obs),
            new_scale(),
            envs,
            obs,
            jnp.zeros(self.args.num_envs),
        )

    def update(self, now: Training, rate: jax.Array) -> tuple[Training, jax.Array]:
        """One update: steps, then PPO. Also the mean return of the episodes that ended, which is NaN if none did."""
        key, *keys = jax.random.split(now.key, 3)
        act = partial(self.act, now.agent, now.obs_scale)
        envs, steps = lax.scan(act, (now.envs, now.obs, now.discounted), jax.random.split(keys[0], self.args.num_steps))
        return_scale = now.return_scale.seen(steps.discounted)
        reward = steps.reward / jnp.sqrt(return_scale.variance + 1e-8)
        advantages, targets = self.estimate(now, steps._replace(reward=reward))
        learned = self.learn(now, rate, keys[1], (now.obs_scale(steps.obs), *steps[1:3], advantages, targets))
        mean = jnp.mean(steps.episode_return, where=steps.ended)
        return Training(key, *learned, now.obs_scale.seen(steps.obs), return_scale, *envs), mean

    def act(self, agent: Agent, scale: Scale, carry: Any, key: jax.Array) -> tuple[Any, Steps]:
        """One step of all envs."""
        envs, obs, discounted = carry
        action = self.actions.sample(agent, scale(obs), key)
        log_prob, _ = self.actions.judge(agent, scale(obs), action)
        envs, result = self.step(envs, self.actions.for_env(action))
        following, ended = flat(result.observation), result.terminated | result.truncated
        # With autoreset="same_step", the observation after an episode's end is the first one of the next episode.
        next_obs = jnp.where(ended[:, None], flat(result.info["final_obs"]), following)
        discounted = discounted * self.args.gamma + result.reward
        done = Steps(
            obs,
            action,
            log_prob,
            result.reward,
            result.terminated,
            ended,
            next_obs,
            discounted,
            result.info["episode_return"],
        )
        return (envs, following, jnp.where(ended, 0, discounted)), done

    def estimate(self, now: Training, steps: Steps) -> tuple[jax.Array, jax.Array]:
        """GAE: advantages, and what the values should have been. A truncated episode would have gone on."""
        values, following = (run(now.agent.value, now.obs_scale(obs))[..., 0] for obs in (steps.obs, steps.next_obs))
        errors = steps.reward + self.args.gamma * following * ~steps.terminated - values

        def back(later: jax.Array, one: Any) -> tuple[jax.Array, jax.Array]:
            error, ended = one
            advantage = error + self.args.gamma * self.args.gae_lambda * ~ended * later
            return advantage, advantage

        _, advantages = lax.scan(back, jnp.zeros_like(errors[0]), (errors, steps.ended), reverse=True)
        return advantages, advantages + values

    def learn(self, now: Training, rate: jax.Array, key: jax.Array, data: Any) -> tuple[Agent, Adam]:
        """Some epochs of PPO's clipped loss, over minibatches in random order."""
        rows = self.args.num_envs * self.args.num_steps
        data = jax.tree.map(lambda leaf: leaf.reshape(rows, *leaf.shape[2:]), data)

        def minibatch(carry: tuple[Agent, Adam], ids: jax.Array) -> tuple[tuple[Agent, Adam], None]:
            agent, adam = carry
            gradient = jax.grad(self.loss)(agent, *(leaf[ids] for leaf in data))
            adam, agent = adam_step(self.args, adam, agent, gradient, rate)
            return (agent, adam), None

        def epoch(carry: tuple[Agent, Adam], key: jax.Array) -> tuple[tuple[Agent, Adam], None]:
            return lax.scan(minibatch, carry, jax.random.permutation(key, rows).reshape(self.args.minibatches, -1))

        learned, _ = lax.scan(epoch, (now.agent, now.adam), jax.random.split(key, self.args.epochs))
        return learned

    def loss(
        self,
        agent: Agent,
        obs: jax.Array,
        action: jax.Array,
        old_log_prob: jax.Array,
        advantage: jax.Array,
        target: jax.Array,
    ) -> jax.Array:
        log_prob, entropy = self.actions.judge(agent, obs, action)
        ratio = jnp.exp(log_prob - old_log_prob)
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        clipped = jnp.clip(ratio, 1 - self.args.clip, 1 + self.args.clip)
        policy_loss = -jnp.minimum(ratio * advantage, clipped * advantage).mean()
        value_loss = ((run(agent.value, obs)[..., 0] - target) ** 2).mean()
        return policy_loss + self.args.value_weight * value_loss - self.args.entropy * entropy.mean()


def flat(obs: jax.Array) -> jax.Array:
    """A row of numbers per env, whatever the shape and the type of its observation."""
    return obs.reshape(len(obs), -1).astype(jnp.float32)


def make(args: argparse.Namespace, num_envs: int) -> Any:
    pool = stepmill.make(args.env_id, num_envs=num_envs, device=args.device, autoreset="same_step", output="jax")
    obs, action = pool.single_observation_space, pool.single_action_space
    if not isinstance(obs, spaces.Box) or not isinstance(action, spaces.Discrete | spaces.Box):
        raise SystemExit(f"{args.env_id}: this file is for arrays and for one choice or an array, got {obs}, {action}")
    return pool


def train_all(args: argparse.Namespace, seeds: jax.Array, clock: Clock) -> tuple[Trainer, Training, float]:
    """The trainings of all seeds, and their seconds."""
    trainer = Trainer(args)

    def whole(seeds: jax.Array) -> Training:
        def update(now: Training, number: jax.Array) -> tuple[Training, None]:
            rate = args.learning_rate * (1 - number / args.updates)
            now, means = jax.vmap(trainer.update, (0, None))(now, rate)
            jax.debug.callback(clock.show, number, means, ordered=True)  # all that the host hears of it
            return now, None

        return lax.scan(update, jax.vmap(trainer.begin)(seeds), jnp.arange(args.updates))[0]

    compiled = jax.jit(whole).lower(seeds).compile()
    clock.start()
    trained = jax.block_until_ready(compiled(seeds))
    return trainer, trained, clock.seconds()


class Clock:
    """Prints how a training is going."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.began, self.mean = args, time.perf_counter(), math.nan

    def start(self) -> None:
        print(f"compiled in {self.seconds():.1f} s", flush=True)
        self.began = time.perf_counter()

    def seconds(self) -> float:
        return time.perf_counter() - self.began

    def show(self, update: Any, means: Any) -> None:
        """The returns of an update, one per seed; NaN where no episode has ended."""
        args, seconds = self.args, self.seconds()
        steps = (int(update) + 1) * args.num_envs * args.num_steps
        ended = np.asarray(means)[~np.isnan(means)]
        mean = float(ended.mean()) if ended.size else math.nan
        self.mean = self.mean if math.isnan(mean) else mean
        print(
            f"\r{steps:>11,} of {args.updates * args.num_envs * args.num_steps:,} steps, "
            f"{steps * args.seeds / seconds:,.0f} per second, mean return {self.mean:.1f}   ",
            end="",
            flush=True,
        )
        if args.log is not None:
            with args.log.open("w" if update == 0 else "a") as file:
                file.write(json.dumps({"steps": steps, "seconds": seconds, "return": mean}) + "\n")


# ---- what it has learned ---------------------------------------------------------------------------


def evaluate(args: argparse.Namespace, trainer: Trainer, trained: Training) -> np.ndarray:
    """The returns of the first episode of each of some envs, with the best action in each step; a row per seed."""
    reset, step = make(args, args.episodes).functional()

    def play(trained: Training) -> jax.Array:
        def goes_on(carry: Any) -> jax.Array:
            return jnp.isnan(carry[2]).any()

        def one(carry: Any) -> Any:
            envs, obs, returns = carry
            action = trainer.actions.best(trained.agent, trained.obs_scale(flat(obs)))
            envs, result = step(envs, trainer.actions.for_env(action))
            is_first = (result.terminated | result.truncated) & jnp.isnan(returns)
            return envs, result.observation, jnp.where(is_first, result.info["episode_return"], returns)

        envs, start = reset(jnp.uint32(OTHER_SEEDS))
        _, _, returns = lax.while_loop(goes_on, one, (envs, start.observation, jnp.full(args.episodes, jnp.nan)))
        return returns

    return np.asarray(jax.jit(jax.vmap(play))(trained))


def main() -> None:
    args = arguments()
    with jax.default_device(jax.local_devices(backend=args.device)[0]):
        seeds = jnp.arange(args.seed, args.seed + args.seeds, dtype=jnp.uint32)
        trainer, trained, seconds = train_all(args, seeds, Clock(args))
        print()
        for seed, returns in zip(seeds, evaluate(args, trainer, trained), strict=True):
            print(
                f"{args.env_id}, seed {seed}: mean return {returns.mean():.1f} ± {returns.std():.1f} "
                f"over {returns.size} episodes, after {seconds:.1f} s of training"
            )


if __name__ == "__main__":
    main()
