"""A text game on a server that fails: thousands of episodes open at once, and what a failure must not do to the return.

    python examples/text_game.py
    python examples/text_game.py --failures zero    # the usual mistake: a failure counts as a return of 0

The env is below: each step waits for a server, as for a simulator, a sandbox or a tool elsewhere, and a worker process
waits for thousands of them at once. The player goes down a mine from hall to hall, finds a nugget in each, and has them
if it leaves in time. It chooses by the words that it reads: a linear softmax over them, learned with numpy alone.

The deeper, the more often the server fails: it raises, says nothing until the deadline, or sends nonsense. So those who
play well fail more than others. Three ways to deal with the row of a failure:

- `mask` takes the row out of the loss, and keeps the steps before it. They count by the value of the hall that they led
  to, not by what happened to the server there.
- `drop` takes the whole episode out: the sum over those that are left favours short ones, which leave early.
- `zero` keeps it, as an episode that ended with nothing: then the server's failures are the player's fault.

`mask` is right if a failure says nothing about what would have come, given the text that was seen and the action that
was taken. The same game on a server that never fails shows what the policy is really worth.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import string
import time
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from gymnasium import spaces

import stepmill

LEFT, RIGHT, LEAVE = range(3)
FAILURES = "mask", "drop", "zero"

# ---- the env ---------------------------------------------------------------------------------------


class Mine:
    """A mine of eight halls, played on a server.

    Args:
        wait: How long an answer takes, in seconds: the mean. 0: no server at all.
        fails: The probability that the way out of the last hall fails. It falls with the third power of the depth.
    """

    HALLS = 8
    # What is heard of a tunnel, and the probability to come through.
    SIGNS: ClassVar = {
        "a draught of cold air": 0.97,
        "a gleam of daylight": 0.95,
        "the song of a bird": 0.9,
        "only silence": 0.6,
        "a smell of gas": 0.25,
        "the growl of a bear": 0.1,
    }

    observation_space = spaces.Text(200, charset=string.printable)
    action_space = spaces.Discrete(3)

    def __init__(self, wait: float, fails: float) -> None:
        self.wait, self.fails = wait, fails

    async def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Any]:
        if seed is not None:  # without one, the streams go on
            self.game, self.server = np.random.default_rng(seed).spawn(2)
        await self.answer()
        self.hall = 0
        return self.go_on(), {}

    async def step(self, action: int) -> tuple[str, float | None, bool, bool, dict[str, Any]]:
        await self.answer()
        if action == LEAVE:
            return "You see the sun.", self.hall - 1.0, True, False, {}
        if self.server.random() < self.fails * (self.hall / self.HALLS) ** 3:
            return await self.fail()
        if self.game.random() >= self.SIGNS[self.signs[action]]:
            return "You are lost.", 0.0, True, False, {}
        if self.hall == self.HALLS:
            return "You see the sun.", float(self.hall), True, False, {}
        return self.go_on(), 0.0, False, False, {}

    def go_on(self) -> str:
        self.hall += 1
        self.signs = self.game.choice(list(self.SIGNS), 2)
        return (
            f"Hall {self.hall} of the old mine. Left: {self.signs[LEFT]}. Right: {self.signs[RIGHT]}. "
            f"You carry {self.hall - 1} nuggets."
        )

    @classmethod
    def best_return(cls) -> float:
        """The mean return of those who know the signs: from the last hall back to the first."""
        chances, value = cls.SIGNS.values(), float(cls.HALLS)
        for hall in range(cls.HALLS, 0, -1):
            value = float(
                np.mean([max(left * value, right * value, hall - 1) for left in chances for right in chances])
            )
        return value

    async def answer(self) -> None:
        if self.wait:
            await asyncio.sleep(self.server.exponential(self.wait))

    async def fail(self) -> tuple[str, float | None, bool, bool, dict[str, Any]]:
        how = self.server.integers(3)
        if how == 0:
            raise ConnectionError("the server has closed the connection")
        if how == 1:
            await asyncio.Event().wait()  # for ever: `step_timeout` ends it
        return "<html>502 Bad Gateway</html>", None, False, False, {}  # None is no reward, and the pool says so


# ---- what was played -------------------------------------------------------------------------------


class Words:
    """The texts that were seen, by number, and which words are in them."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self._words: dict[tuple[str, str], int] = {}
        self._of: list[list[int]] = []

    def number(self, text: str) -> int:
        if text not in self.numbers:
            self.numbers[text] = len(self._of)
            # A word means something else after "Left:" than after "Right:", so it is taken with its sentence's first.
            sentences = (sentence.split() for sentence in text.split(". "))
            pairs = {(first, word) for first, *rest in sentences for word in rest}
            self._of.append([self._words.setdefault(pair, len(self._words)) for pair in sorted(pairs)])
        return self.numbers[text]

    def table(self) -> np.ndarray:
        """A row per text, a column per word: 1 where it is in the text."""
        table = np.zeros((len(self._of), len(self._words)))
        for row, words in zip(table, self._of, strict=True):
            row[words] = 1.0
        return table


class Steps(NamedTuple):
    """Steps of many episodes, in the order in which they came back."""

    env_id: np.ndarray  # each env plays one episode
    text: np.ndarray  # the number of what was seen
    action: np.ndarray
    reward: np.ndarray
    following: np.ndarray  # the number of what was seen then
    ended: np.ndarray
    abnormal: np.ndarray

    def learned_from(self, failures: str) -> Steps:
        """The rows that count."""
        if failures == "zero":
            return self
        chosen = ~self.abnormal
        if failures == "drop":
            chosen = ~np.isin(self.env_id, self.env_id[self.abnormal])
        return Steps(*(part[chosen] for part in self))

    def returns(self, values: np.ndarray) -> np.ndarray:
        """From each step on, where texts are worth this."""
        returns: np.ndarray = self.reward + np.where(self.ended, 0.0, values[self.following])
        return returns

    @classmethod
    def joined(cls, parts: list[Steps]) -> Steps:
        return cls(*map(np.concatenate, zip(*parts, strict=True)))


class Player:
    """A linear softmax policy over the words of a text."""

    def __init__(self, seed: int, learning_rate: float) -> None:
        self.words, self.rng, self.learning_rate = Words(), np.random.default_rng(seed), learning_rate
        # Of each word and action: the weight, and the means that Adam keeps of its gradient and of that one's square.
        self.weights, self.mean, self.square = np.zeros((3, 0, 3))
        self.updates = 0

    def policy(self) -> np.ndarray:
        """The probabilities of all actions, a row per text."""
        table = self.words.table()
        new = np.zeros((table.shape[1] - len(self.weights), 3))
        self.weights, self.mean, self.square = (
            np.concatenate([part, new]) for part in (self.weights, self.mean, self.square)
        )
        logits = table @ self.weights
        likely = np.exp(logits - logits.max(1, keepdims=True))
        return np.asarray(likely / likely.sum(1, keepdims=True))

    def play(self, pool: Any) -> tuple[np.ndarray, Steps]:
        """One episode of every env, all at once: the numbers of the first texts, and all steps."""
        text, action = np.zeros((2, pool.num_envs), np.int64)
        plays = np.zeros(pool.num_envs, bool)  # otherwise its first text is on the way
        policy, batches, starts = self.policy(), [], []
        in_flight = pool.num_envs
        pool.async_reset()
        while in_flight:
            # A batch is what has come within 20 ms. It is full only where the server is fast.
            seen, reward, terminated, truncated, info = pool.recv(timeout=0.02, at_least=1)
            ids, ended = info["env_id"], terminated | truncated
            abnormal = info.get("abnormal", np.zeros(len(ids), bool))
            following = np.array([self.words.number(one) for one in seen])
            if len(self.words.numbers) > len(policy):
                policy = self.policy()
            now = plays[ids]
            rows = Steps(ids, text[ids], action[ids], reward, following, ended, abnormal)
            batches.append(Steps(*(part[now] for part in rows)))
            starts.append(following[~now & ~abnormal])

            ids = ids[~ended]
            text[ids], plays[ids] = following[~ended], True
            likely = policy[text[ids]].cumsum(1)
            action[ids] = (self.rng.random((len(ids), 1)) > likely[:, :2]).sum(1)
            in_flight += len(ids) - len(ended)
            if len(ids):
                pool.send(action[ids], ids)
        return np.concatenate(starts), Steps.joined(batches)

    def values(self, steps: Steps) -> np.ndarray:
        """The value of each text, where these steps are all that is known of the game.

        An action is worth the mean of what its steps led to, a text the mean over the actions of the policy. So an
        action that fails often is not taken for one that is seldom chosen. Actions that were not seen in a text count
        for nothing there, and a text without any is worth what texts are worth on the whole.
        """
        policy = self.policy()
        pair, size = steps.text * 3 + steps.action, policy.size
        seen = np.bincount(pair, minlength=size)
        weights = policy * (seen > 0).reshape(policy.shape)
        is_known = weights.any(1)
        values, before = np.zeros(len(policy)), None
        while before is None or not np.allclose(values, before):  # at most as often as an episode has steps
            before = values
            mean = (np.bincount(pair, steps.returns(values), size) / np.maximum(seen, 1)).reshape(policy.shape)
            values = (weights * mean).sum(1) / np.where(is_known, weights.sum(1), 1.0)
            values[~is_known] = values[steps.text].mean()
        return values

    def learn(self, steps: Steps, values: np.ndarray) -> None:
        """REINFORCE with a baseline: a step that was better than its text is worth becomes more likely."""
        advantages = steps.returns(values) - values[steps.text]
        advantages /= advantages.std() + 1e-8
        policy = self.policy()
        gradient = np.zeros_like(policy)
        np.add.at(gradient, (steps.text, steps.action), advantages)
        gradient -= gradient.sum(1, keepdims=True) * policy
        step = self.words.table().T @ gradient / len(advantages)
        self.updates += 1
        self.mean += (step - self.mean) * 0.2
        self.square += (step**2 - self.square) * 0.05
        mean, square = self.mean / (1 - 0.8**self.updates), self.square / (1 - 0.95**self.updates)
        self.weights += self.learning_rate * mean / (np.sqrt(square) + 1e-8)


# ---- training --------------------------------------------------------------------------------------


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--failures", choices=FAILURES, default="mask", help="what the loss sees of them")
    parser.add_argument("--num-envs", type=count, default=4096, help="episodes that are open at once")
    parser.add_argument("--updates", type=count, default=20, help="each of one episode of every env")
    parser.add_argument("--learning-rate", type=float, default=0.08)
    parser.add_argument("--wait", type=float, default=0.05, help="seconds that an answer of the server takes, the mean")
    parser.add_argument("--step-timeout", type=float, default=1.0, help="seconds until it is given up")
    parser.add_argument("--fails", type=float, default=0.4, help="the probability that the last step fails")
    parser.add_argument("--log", type=Path, help="a file for the learning curve, a line of JSON per update")
    return parser.parse_args()


def count(text: str) -> int:
    """A whole number from 1 on."""
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 on, got {text}")
    return int(text)


def make(args: argparse.Namespace, seed: int, wait: float = 0.0, fails: float = 0.0) -> Any:
    return stepmill.make(
        Mine,
        num_envs=args.num_envs,
        batch_size=max(1, args.num_envs // 8),
        seed=seed,
        step_timeout=args.step_timeout if fails else None,
        on_error="restart",  # a failure is a row, not an exception
        max_restarts=None,  # however many there are
        wait=wait,
        fails=fails,
    )


def train(args: argparse.Namespace) -> None:
    player = Player(args.seed, args.learning_rate)
    # What halls are worth is found from all steps so far: how the game goes on after an action is not up to the policy.
    known: dict[str, list[Steps]] = {"mask": [], args.failures: []}
    made = failed = 0
    began = time.perf_counter()
    with make(args, args.seed, args.wait, args.fails) as pool, make(args, args.seed + 1_000_000) as honest:
        for update in range(args.updates + 1):
            starts, steps = player.play(pool)
            made, failed = made + len(steps.text), failed + int(steps.abnormal.sum())
            for how, parts in known.items():
                parts.append(steps.learned_from(how))
            values = {how: player.values(Steps.joined(parts)) for how, parts in known.items()}
            told = estimates(values["mask"][starts], steps, args.num_envs)
            returns = returns_of(player.play(honest)[1], args.num_envs)
            show(args, update, made, failed, time.perf_counter() - began, told, float(returns.mean()))
            if update < args.updates:
                player.learn(known[args.failures][-1], values[args.failures])
        returns = np.concatenate([returns_of(player.play(honest)[1], args.num_envs) for _ in range(4)])
    print()
    tell(args, failed, made, time.perf_counter() - began, told, returns)


def estimates(values: np.ndarray, steps: Steps, num_envs: int) -> dict[str, float]:
    """The mean return, as each way to deal with failures sees it. The first needs the values of the first texts."""
    complete = steps.learned_from("drop")
    return {
        "mask": float(values.mean()),
        "drop": float(complete.reward.sum() / max(1, complete.ended.sum())),
        "zero": float(complete.reward.sum() / num_envs),
    }


def returns_of(steps: Steps, num_envs: int) -> np.ndarray:
    """The return of each episode, where nothing fails."""
    if steps.abnormal.any():
        raise RuntimeError("the game that never fails has failed: see the log of its worker")
    return np.bincount(steps.env_id, steps.reward, num_envs)


def show(
    args: argparse.Namespace, update: int, steps: int, failed: int, seconds: float, told: dict[str, float], real: float
) -> None:
    estimate = told[args.failures]
    print(
        f"\r{update} of {args.updates} updates, {steps:,} steps, {failed:,} of them failed; "
        f"estimated return {estimate:.3f}, real return {real:.3f}   ",
        end="",
        flush=True,
    )
    if args.log is not None:
        line = {"steps": steps, "seconds": seconds, "return": real, "estimate": estimate, "failures": failed}
        with args.log.open("w" if update == 0 else "a") as file:
            file.write(json.dumps(line) + "\n")


def tell(
    args: argparse.Namespace, failed: int, steps: int, seconds: float, told: dict[str, float], returns: np.ndarray
) -> None:
    """What it has reached, on a server that never fails, and what is known of it from one that does."""
    print(
        f"seed {args.seed}, --failures {args.failures}: mean return {returns.mean():.3f} "
        f"± {returns.std() / len(returns) ** 0.5:.3f} over {len(returns):,} episodes in which nothing fails, "
        f"where {Mine.best_return():.3f} is the best possible, "
        f"after {steps:,} steps of which {failed:,} failed, and {seconds:.0f} s"
    )
    print("the same policy where the server fails: " + ", ".join(f"{how} {one:.3f}" for how, one in told.items()))


if __name__ == "__main__":
    train(arguments())
