"""``pool.rollout``: what a loop over ``step`` gives, on every backend, and a usable pool whatever the policy does."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import stepmill
from stepmill import errors
from support.envs.remote import Teller
from support.probes import assert_same

pytestmark = pytest.mark.usefixtures("server")

N, T = 5, 30
MODES = ["next_step", "same_step"]
BACKENDS = [("CartPole-v1", "thread"), ("CartPole-v1", "process"), (Teller, "inline"), (Teller, "process")]


def draw(observation: Any, env_ids: np.ndarray, rngs: Sequence[np.random.Generator]) -> Any:
    """Each row depends on its own observation and generator."""
    chosen = np.array([int(rng.random() < 0.5) for rng in rngs])
    return chosen, observation.sum(axis=1), np.stack([env_ids, chosen], axis=1)


def by_hand(pool: Any, observation: Any, steps: int, seed: int) -> dict[str, Any]:
    """A sync pool, stepped with the same policy, in the words of ``Rollout``."""
    ids = np.arange(pool.num_envs)
    rngs = [np.random.default_rng((seed, i)) for i in ids]
    rows: dict[str, list[Any]] = {
        name: [] for name in ("observations", "actions", "rewards", "terminated", "truncated")
    }
    rows |= {"reset": [], "abnormal": [], "final_observations": [], "values": []}
    for _ in range(steps):
        actions, values, _ = draw(observation, ids, rngs)
        rows["observations"].append(observation)
        rows["actions"].append(actions)
        rows["values"].append(values)
        observation, reward, terminated, truncated, info = pool.step(actions)
        ended = terminated | truncated
        final = np.where(ended[:, None], observation, 0)
        if "final_obs" in info:
            for row in np.flatnonzero(info["_final_obs"]):
                final[row] = info["final_obs"][row]
        rows["rewards"].append(reward)
        rows["terminated"].append(terminated)
        rows["truncated"].append(truncated)
        rows["reset"].append((info["elapsed_step"] == 0) & ~ended)
        rows["abnormal"].append(info.get("abnormal", np.zeros(len(ids), bool)))
        rows["final_observations"].append(final)
    return {**{name: np.stack(one) for name, one in rows.items()}, "last_observation": observation}


def assert_is(rollout: stepmill.Rollout, expected: dict[str, Any]) -> None:
    for name, value in expected.items():
        got = rollout.extras[0] if name == "values" else getattr(rollout, name)
        assert got.dtype == value.dtype, name
        np.testing.assert_array_equal(got, value, err_msg=name)


# ---- the same as a loop over step ----------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [N, 2], ids=["sync", "async"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("task", "backend"), BACKENDS)
def test_is_what_a_loop_over_step_gives(task: Any, backend: str, mode: str, batch_size: int) -> None:
    arguments = {"num_envs": N, "seed": 3, "autoreset": mode, "max_episode_steps": 9}
    with (
        stepmill.make(task, backend=backend, batch_size=batch_size, **arguments) as pool,
        stepmill.make(task, backend=backend, **arguments) as plain,
    ):
        first = pool.rollout(draw, T)
        observation, _ = plain.reset()
        expected = by_hand(plain, observation, T, 0)
        assert_is(first, expected)
        assert first.truncated.any() or task is Teller
        assert first.reset.any() == (mode == "next_step")
        assert first.extras[1].shape == (T, N, 2)
        assert (first.extras[1][:, :, 0] == np.arange(N)).all()
        second = pool.rollout(draw, 7)  # goes on, with other generators
        assert_is(second, by_hand(plain, expected["last_observation"], 7, 1))
        third = pool.rollout(draw, 1, seed=9, observation=second.last_observation)
        assert_is(third, by_hand(plain, second.last_observation, 1, 9))
        assert pool.stats()["steps"] == plain.stats()["steps"]
        pool.send(np.zeros(N, int))  # in async mode too: the last that was seen is all envs
        results = [pool.recv() for _ in range(-(-N // batch_size))]
        assert sorted(np.concatenate([one[4]["env_id"] for one in results])) == list(range(N))


class Framed(gymnasium.Env[dict[str, Any], Any]):
    """Dicts and tuples of arrays, in and out."""

    observation_space = spaces.Dict({"place": spaces.Box(-9, 9, (2,), np.float32), "at": spaces.Discrete(9)})
    action_space: spaces.Space[Any] = spaces.Dict({"turn": spaces.Discrete(3), "push": spaces.Box(-1, 1, (2,))})

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        super().reset(seed=seed)
        self.at = 0
        return self.shown(self.np_random.random(2)), {}

    def shown(self, place: Any) -> dict[str, Any]:
        return {"at": np.int64(self.at), "place": np.asarray(place, np.float32)}

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        self.at += 1
        return self.shown(action["push"]), float(action["turn"]), self.at == 3, False, {}


class Paired(Framed):
    action_space = spaces.Tuple([spaces.Discrete(3), spaces.Box(-1, 1, (2,))])

    def step(self, action: Any) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        return super().step({"turn": action[0], "push": action[1]})


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("task", [Framed, Paired])
def test_nested_observations_and_actions_keep_their_structure(task: Any, mode: str) -> None:
    def policy(observation: Any, env_ids: np.ndarray, rngs: Any) -> Any:
        turn = (observation["at"] + env_ids) % 3
        push = np.stack([rng.uniform(-1, 1, 2) for rng in rngs]).astype(np.float32)
        return ((turn, push) if task is Paired else {"push": push, "turn": turn}), observation["at"]

    with stepmill.make(task, num_envs=3, backend="inline", autoreset=mode) as pool:
        rollout = pool.rollout(policy, 8)
    turn, push = rollout.actions if task is Paired else (rollout.actions["turn"], rollout.actions["push"])
    assert (turn.shape, push.shape) == ((8, 3), (8, 3, 2))
    if mode == "next_step":
        assert rollout.observations["at"][:, 0].tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
        assert rollout.reset[:, 0].tolist() == [False, False, False, True] * 2
    else:
        assert rollout.observations["at"][:, 0].tolist() == [0, 1, 2, 0, 1, 2, 0, 1]
        assert not rollout.reset.any()
    ended = rollout.terminated
    assert (rollout.final_observations["at"] == np.where(ended, 3, 0)).all()
    np.testing.assert_array_equal(rollout.final_observations["place"][ended], push[ended])
    assert (rollout.rewards == np.where(rollout.reset, 0, turn)).all()
    assert (rollout.extras[0] == rollout.observations["at"]).all()
    assert rollout.last_observation["place"].shape == (3, 2)


@pytest.mark.parametrize("view", ["gym", "dm"])
def test_policies_see_numpy_in_every_view(view: str) -> None:
    with (
        stepmill.make("CartPole-v1", num_envs=N, seed=3) as plain,
        stepmill.make("CartPole-v1", view, num_envs=N, seed=3) as pool,
    ):
        assert_same(pool.rollout(draw, T).observations, plain.rollout(draw, T).observations)
        result = pool.step(np.zeros(N, int))  # the view is itself again
        assert hasattr(result, "step_type") if view == "dm" else len(result) == 4


def test_policies_see_numpy_where_the_pool_gives_tensors() -> None:
    torch = pytest.importorskip("torch")

    def policy(observation: Any, env_ids: np.ndarray, rngs: Any) -> Any:
        assert type(observation) is np.ndarray
        return torch.from_numpy((observation[:, 2] > 0).astype(int)), torch.ones(len(env_ids))

    with stepmill.make("CartPole-v1", num_envs=3, output="torch") as pool:
        observation, _ = pool.reset()
        rollout = pool.rollout(policy, 4, observation=observation)
        assert type(rollout.actions) is np.ndarray
        assert rollout.extras[0].dtype == np.float32
        assert isinstance(pool.step(np.zeros(3, int))[0], torch.Tensor)


def test_a_policy_may_write_into_what_it_sees() -> None:
    def policy(observation: Any, env_ids: np.ndarray, rngs: Any) -> Any:
        observation[:] = 7.0
        return np.zeros(len(env_ids), int)

    with stepmill.make("CartPole-v1", num_envs=3) as pool:
        observation, _ = pool.reset()
        kept = observation.copy()
        rollout = pool.rollout(policy, 4, observation=observation)
        assert (rollout.observations != 7.0).all()
        assert_same(observation, kept)
        assert_same(pool.rollout(policy, 1).observations[0], rollout.last_observation)


@pytest.mark.parametrize("batch_size", [4, 2], ids=["sync", "async"])
def test_a_policy_cannot_send_its_actions_to_other_envs(batch_size: int) -> None:
    """The ids that it sees are read-only, in every turn."""
    turns: list[bool] = []

    def swap(observation: Any, env_ids: np.ndarray, rngs: Any) -> Any:
        turns.append(env_ids.flags.writeable)
        return np.zeros(len(env_ids), np.int64)

    with stepmill.make("CartPole-v1", num_envs=4, batch_size=batch_size, seed=0) as pool:
        pool.rollout(swap, 8)
        for batch, _ in zip(pool.play(swap), range(6), strict=False):
            turns.append(batch.env_ids.flags.writeable or batch.info["env_id"].flags.writeable)
    assert set(turns) == {False}


def test_generators_are_those_of_seed_and_env() -> None:
    def policy(observation: Any, env_ids: np.ndarray, rngs: Sequence[np.random.Generator]) -> Any:
        assert len(rngs) == len(env_ids)
        assert rngs[-1] is rngs[len(rngs) - 1]
        assert rngs[1:] == list(rngs)[1:]
        return np.zeros(len(env_ids), int), np.array([rng.random() for rng in rngs])

    with stepmill.make("CartPole-v1", num_envs=3) as pool:
        for seed, given in ((0, None), (1, None), (40, 40), (3, None)):
            drawn = pool.rollout(policy, 2, seed=given).extras[0]
            expected = [np.random.default_rng((seed, i)).random(2) for i in range(3)]
            assert_same(drawn, np.stack(expected, axis=1))


# ---- where it starts -------------------------------------------------------------------------------


def zeros(observation: Any, env_ids: np.ndarray, rngs: Any) -> np.ndarray:
    return np.zeros(len(env_ids), int)


def test_it_says_so_if_envs_have_moved() -> None:
    with stepmill.make("CartPole-v1", num_envs=3) as pool:
        observation, _ = pool.reset()
        with pytest.raises(
            errors.UsageError, match=r"moved since the pool was made.*rollout\(\.\.\., observation=obs\)"
        ):
            pool.rollout(zeros, 2)
        pool.rollout(zeros, 2, observation=observation)
        pool.rollout(zeros, 2)
        pool.step(np.zeros(3, int))
        with pytest.raises(errors.UsageError, match="moved since the last rollout ended"):
            pool.rollout(zeros, 2)
        pool.send(np.zeros(3, int))
        with pytest.raises(errors.InFlightError, match="rollout: envs are in flight"):
            pool.rollout(zeros, 2, observation=observation)
        pool.recv()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"steps": 0}, errors.ConfigError, "rollout: steps: expected a whole number >= 1, got 0"),
        ({"steps": 2, "seed": -1}, errors.ConfigError, "rollout: seed: expected a whole number >= 0"),
        ({"steps": 2, "observation": np.zeros((2, 4))}, errors.InputError, r"observation: expected .*shape \(3, 4\)"),
        ({"steps": 2, "observation": {"a": 1}}, errors.InputError, r"rollout: observation: expected"),
        (
            {"steps": 2, "policy": 3},
            errors.InputError,
            r"expected a function policy\(observations, env_ids, generators\), got 3",
        ),
    ],
)
def test_bad_arguments_change_nothing(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with stepmill.make("CartPole-v1", num_envs=3) as pool:
        with pytest.raises(error, match=message):
            pool.rollout(**{"policy": zeros, **arguments})
        assert pool.stats()["steps"] == 0
        pool.rollout(zeros, 2)


def test_a_pool_without_autoreset_or_a_closed_one_is_refused() -> None:
    with (
        stepmill.make("CartPole-v1", num_envs=3, autoreset="disabled") as pool,
        pytest.raises(errors.UnsupportedError, match="autoreset='next_step' or 'same_step'"),
    ):
        pool.rollout(zeros, 2)
    with pytest.raises(errors.ClosedError):
        pool.rollout(zeros, 2)


# ---- bad policies --------------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [3, 2])
@pytest.mark.parametrize(
    ("returned", "error", "message"),
    [
        (None, errors.ActionTypeError, "policy: expected one action for each of . envs, got None"),
        ((), errors.ActionError, "policy: expected actions, .* got an empty tuple"),
        (np.zeros(7, int), errors.ActionError, "policy: .*7"),
        (np.zeros((2, 2)), errors.ActionError, "policy: .*"),
        ({"action": 1}, errors.ActionTypeError, "policy: expected an array of actions, got a dict"),
        ((zeros, None), errors.InputError, "policy: part 1 .* expected . rows of numbers, got None"),
        ((zeros, np.zeros(7)), errors.InputError, r"policy: part 1 .* got an array of float64 and shape \(7,\)"),
    ],
)
def test_what_a_policy_returns_is_checked(returned: Any, error: type[Exception], message: str, batch_size: int) -> None:
    def policy(observation: Any, env_ids: np.ndarray, rngs: Any) -> Any:
        if isinstance(returned, tuple) and returned:
            return zeros(observation, env_ids, rngs), *returned[1:]
        return returned

    with stepmill.make("CartPole-v1", num_envs=3, batch_size=batch_size) as pool:
        with pytest.raises(error, match=message):
            pool.rollout(policy, 2)
        assert pool.stats()["in_flight"] == 0
        observation, _ = pool.reset()
        pool.rollout(zeros, 2, observation=observation)


@pytest.mark.parametrize("shapes", [[(3,), (3, 2)], [None, (3,)], [(3,), None]])
def test_what_else_a_policy_returns_keeps_its_form(shapes: list[Any]) -> None:
    left = iter(shapes)

    def policy(observation: Any, env_ids: np.ndarray, rngs: Any) -> Any:
        shape = next(left)
        return np.zeros(3, int) if shape is None else (np.zeros(3, int), np.zeros(shape))

    with (
        stepmill.make("CartPole-v1", num_envs=3) as pool,
        pytest.raises(errors.InputError, match=r"as in its first call"),
    ):
        pool.rollout(policy, 2)


def test_a_tuple_space_needs_a_tuple_around_its_actions() -> None:
    with stepmill.make(Paired, num_envs=3, backend="inline") as pool:
        with pytest.raises(errors.ActionError, match=r"policy: the action space is a Tuple, so .*\(actions,\)"):
            pool.rollout(lambda *_: (np.zeros(3, int), np.zeros((3, 2), np.float32)), 2)
        observation, _ = pool.reset()
        pool.rollout(lambda *_: ((np.zeros(3, int), np.zeros((3, 2), np.float32)),), 2, observation=observation)


class Strange(Exception):
    """Not one of ours."""


@pytest.mark.parametrize("batch_size", [3, 2])
def test_what_a_policy_raises_comes_as_it_is(batch_size: int) -> None:
    calls = iter(range(100))

    def policy(observation: Any, env_ids: np.ndarray, rngs: Any) -> Any:
        if next(calls) == 4:
            raise Strange
        return np.zeros(len(env_ids), int)

    with stepmill.make(Teller, num_envs=3, batch_size=batch_size, backend="process") as pool:
        with pytest.raises(Strange):
            pool.rollout(policy, 20)
        assert pool.stats()["in_flight"] == 0
        with pytest.raises(errors.UsageError, match="have moved"):
            pool.rollout(policy, 2)
        observation, _ = pool.reset()
        pool.rollout(policy, 2, observation=observation)


@pytest.mark.parametrize("batch_size", [3, 2])
def test_ctrl_c_leaves_nothing_in_flight(batch_size: int) -> None:
    calls = iter(range(100))

    def policy(observation: Any, env_ids: np.ndarray, rngs: Any) -> Any:
        if next(calls) == 4:
            os.kill(os.getpid(), signal.SIGINT)
        return np.zeros(len(env_ids), int)

    with stepmill.make(Teller, "gym", num_envs=3, batch_size=batch_size, backend="process") as pool:
        with pytest.raises(KeyboardInterrupt):
            pool.rollout(policy, 20)
        assert pool.stats()["in_flight"] == 0
        pool.async_reset()
        assert len(pool.recv()) == 4


def test_a_policy_cannot_use_the_pool_that_asks_it() -> None:
    with stepmill.make("CartPole-v1", num_envs=3) as pool:

        def steps(observation: Any, env_ids: np.ndarray, rngs: Any) -> Any:
            pool.step(np.zeros(3, int))
            return np.zeros(3, int)

        with pytest.raises(errors.UsageError, match="the policy stepped or reset envs of the pool that asks it"):
            pool.rollout(steps, 2)
        observation, _ = pool.reset()
        with pytest.raises(errors.ConcurrentUseError, match="a rollout of this pool is under way"):
            pool.rollout(lambda *_: pool.rollout(zeros, 1, observation=observation), 2, observation=observation)


# ---- failing envs --------------------------------------------------------------------------------


def breaks(observation: Any, env_ids: np.ndarray, rngs: Sequence[np.random.Generator]) -> np.ndarray:
    """Env 1 fails now and then."""
    return np.array([2 if i == 1 and rng.random() < 0.2 else 1 for i, rng in zip(env_ids, rngs, strict=True)])


@pytest.mark.parametrize("batch_size", [3, 2])
@pytest.mark.parametrize("backend", ["inline", "process"])
def test_a_failing_env_is_raised_as_from_step(backend: str, batch_size: int) -> None:
    with stepmill.make(Teller, num_envs=3, batch_size=batch_size, backend=backend) as pool:
        with pytest.raises(errors.EnvError, match=r"env 1 failed in step .*it broke at") as caught:
            pool.rollout(breaks, T)
        assert isinstance(caught.value.__cause__, ValueError)
        assert caught.value.batch[4]["abnormal"].sum() == 1
        assert pool.stats()["in_flight"] == 0
        observation, _ = pool.reset()
        pool.rollout(zeros, 2, observation=observation)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("backend", ["inline", "process"])
def test_failures_that_are_tolerated_are_marked(backend: str, mode: str) -> None:
    arguments = {"num_envs": 3, "on_error": "restart", "autoreset": mode, "seed": 3}
    with stepmill.make(Teller, backend=backend, max_restarts=None, **arguments) as pool:
        rollout = pool.rollout(breaks, T)
    failed = rollout.abnormal
    assert failed[:, 1].any()
    assert not failed[:, [0, 2]].any()
    assert rollout.truncated[failed].all()
    assert (rollout.rewards[failed] == 0).all()
    steps, envs = np.nonzero(failed[:-1])
    assert (rollout.reset | failed)[steps + 1, envs].all()  # or its reset fails too
    assert (rollout.observations[steps + 1, envs] == rollout.observations[steps, envs]).all()  # the last good one
    assert (rollout.final_observations[steps, envs] == rollout.observations[steps, envs]).all()


def test_it_says_what_it_is() -> None:
    with stepmill.make("CartPole-v1", num_envs=3, seed=1) as pool:
        assert repr(pool.rollout(zeros, 12)) == "Rollout(steps=12, num_envs=3, episodes that ended: 3)"
