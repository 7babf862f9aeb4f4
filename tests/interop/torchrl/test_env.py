"""``PoolEnv``: its specs, and whether every transition is whole, in rollouts and collectors, in each autoreset mode."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from tensordict import TensorDict
from torchrl.collectors import Collector
from torchrl.envs import Compose, InitTracker, RewardSum, SerialEnv, StepCounter, TransformedEnv
from torchrl.envs.utils import check_env_specs

import stepmill
from stepmill import errors
from stepmill.interop.torchrl import PoolEnv, make_env
from support.envs.adapted import Diary, EverySpace, length_of

pytestmark = pytest.mark.filterwarnings("ignore")  # TorchRL warns of many things

MODES = pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])


def diary(mode: str = "next_step", num_envs: int = 3, **arguments: Any) -> Any:
    return make_env(Diary, num_envs=num_envs, autoreset=mode, **{"backend": "inline", **arguments})


def act(tensordict: Any) -> Any:
    shape = tensordict["observation"].shape[:-1]
    return tensordict.set("action", torch.randint(4, shape))


def check_whole(data: Any) -> None:
    """Each transition is one step of one episode, and each begins where the one before it has ended."""
    now, action, then = data["observation"], data["action"], data["next", "observation"]
    assert torch.equal(now[..., :2], then[..., :2]), "the env and the episode"
    assert torch.equal(now[..., 2] + 1, then[..., 2]), "the step"
    assert torch.equal(then[..., 3], action.float()), "the action that was taken"
    reward, flags = data["next", "reward"].squeeze(-1), data["next"]
    assert torch.equal(reward, 10 * then[..., 0] + then[..., 2])
    lengths = torch.tensor(
        [[length_of(int(e), int(k)) for e, k, *_ in row] for row in now.flatten(0, -2)[None].tolist()]
    )
    ends = (then[..., 2] == lengths.reshape(then.shape[:-1])).unsqueeze(-1)
    is_even = (now[..., 1] % 2 == 0).unsqueeze(-1)
    assert torch.equal(flags["done"], ends)
    assert torch.equal(flags["terminated"], ends & is_even)
    assert torch.equal(flags["truncated"], ends & ~is_even)
    done = flags["done"].squeeze(-1)[:, :-1]
    assert torch.equal((now[:, 1:, :3] == then[:, :-1, :3]).all(-1), ~done)
    assert torch.equal(now[:, 1:, 1] - now[:, :-1, 1], done.float()), "no episode is left out"


# ---- transitions ---------------------------------------------------------------------------------


@MODES
def test_every_transition_of_a_rollout_is_whole(mode: str) -> None:
    env = diary(mode)
    data = env.rollout(40, act, break_when_any_done=False)
    assert data.shape == (3, 40)
    assert data["next", "done"].sum() > 20
    assert not data["done"].any()
    check_whole(data)
    env.close()


@MODES
def test_every_transition_of_a_collector_is_whole(mode: str) -> None:
    env = diary(mode)
    collector = Collector(env, act, frames_per_batch=30, total_frames=150)
    data = torch.cat(list(collector), 1)
    assert data.shape == (3, 50)
    check_whole(data)
    episodes = data["observation"][..., 1]
    first = data["collector", "traj_ids"][:, :1]
    assert torch.equal(
        data["collector", "traj_ids"][:, 1:] != data["collector", "traj_ids"][:, :-1], episodes.diff() > 0
    )
    assert first.flatten().tolist() == [0, 1, 2]
    collector.shutdown()


@MODES
def test_a_rollout_that_stops_with_the_first_end_or_with_the_last(mode: str) -> None:
    env = diary(mode)
    data = env.rollout(40, act)
    assert data.shape == (3, min(length_of(env_id, 0) for env_id in range(3)))
    data = env.rollout(40, act, break_when_any_done=False, break_when_all_done=True)
    last = data["next", "observation"][:, -1]
    assert last[:, 2].tolist() == [length_of(int(env_id), int(episode)) for env_id, episode, *_ in last.tolist()]
    assert data["next", "done"][:, -1].all()
    check_whole(env.rollout(30, act, break_when_any_done=False))  # and it goes on
    env.close()


@MODES
def test_some_envs_can_be_reset_in_the_middle(mode: str) -> None:
    env = diary(mode)
    now = env.step(act(env.reset()))["next"].exclude("reward")
    mask = torch.tensor([[False], [True], [False]])
    after = env.reset(now.set("_reset", mask))
    assert after["observation"][:, 1].tolist() == [0, 1, 0]
    assert after["observation"][:, 2].tolist() == [1, 0, 1]
    # Beside one whose episode has just ended: in same_step it has begun the next one already.
    for _ in range(9):
        data = env.step(act(after))
        if data["next", "done"].any():
            break
        after = data["next"].exclude("reward")
    ended = data["next", "done"].squeeze(-1)
    episodes = data["next", "observation"][:, 1]
    after = env.reset(data["next"].exclude("reward").set("_reset", torch.ones(3, 1, dtype=torch.bool)))
    assert ended.any()
    assert not ended.all()
    assert torch.equal(after["observation"][:, 1], episodes + 1)
    assert not after["observation"][:, 2].any()
    env.close()


@MODES
def test_an_env_whose_episode_is_over_is_not_stepped(mode: str) -> None:
    env = diary(mode, num_envs=2)
    with pytest.raises(errors.NeedsResetError, match=r"envs \[0, 1\] have ended, or have not begun: call reset\(\)"):
        env.step(TensorDict({"action": torch.zeros(2, dtype=torch.int64)}, [2]))
    data = env.rollout(9, act)
    ended = data["next", "done"][:, -1].flatten().nonzero().flatten().tolist()
    with pytest.raises(errors.NeedsResetError, match=rf"envs \[{ended[0]}\] have ended"):
        env.step(act(data["next"][:, -1].exclude("reward")))
    env.close()


@MODES
def test_after_an_interrupt_a_reset_begins_anew(mode: str) -> None:
    env = diary(mode)
    now = env.reset()
    env.pool.send(torch.zeros(3, dtype=torch.int64))  # as if a step had been interrupted
    with pytest.raises(errors.InFlightError):
        env.step(act(now))
    check_whole(env.rollout(20, act, break_when_any_done=False))
    env.close()


def test_a_reset_of_no_env_changes_nothing() -> None:
    env = diary()
    now = env.step(act(env.reset()))["next"].exclude("reward")
    after = env.reset(now.clone().set("_reset", torch.zeros(3, 1, dtype=torch.bool)))
    assert (after == now).all()
    env.close()


def test_the_episodes_are_gymnasiums() -> None:
    env = make_env("CartPole-v1", num_envs=2, seed=7)
    data = env.rollout(200, break_when_any_done=False)
    for i in range(2):
        alone = gymnasium.make("CartPole-v1")
        seen, _ = alone.reset(seed=7 + i)
        for step in data[i]:
            assert torch.equal(step["observation"], torch.as_tensor(seen))
            seen, reward, terminated, truncated, _ = alone.step(int(step["action"]))
            assert torch.equal(step["next", "observation"], torch.as_tensor(seen))
            assert step["next", "reward"].item() == reward
            assert (step["next", "terminated"].item(), step["next", "truncated"].item()) == (terminated, truncated)
            if terminated or truncated:
                seen, _ = alone.reset()
    assert data["next", "done"].sum() > 4
    env.close()


def test_worker_processes_play_the_same() -> None:
    rollouts = []
    for backend in ("inline", "process"):
        env = diary(backend=backend)
        torch.manual_seed(2)
        rollouts.append(env.rollout(20, act, break_when_any_done=False))
        env.close()
    for key in rollouts[0].keys(True, True):
        assert torch.equal(rollouts[0][key], rollouts[1][key]), key


# ---- specs ---------------------------------------------------------------------------------------


@MODES
@pytest.mark.parametrize("categorical", [True, False])
def test_every_space_has_a_spec(mode: str, categorical: bool) -> None:
    env = make_env(EverySpace, num_envs=2, backend="inline", autoreset=mode, categorical_action_encoding=categorical)
    check_env_specs(env)
    assert env.batch_size == (2,)
    data = env.rollout(12, break_when_any_done=False)  # the env checks the actions
    assert data["next", "done"].sum() == 4
    assert env.observation_spec.is_in(data["next"][:, 0].select(*env.observation_spec.keys()))
    shapes = {key: tuple(data[key].shape[2:]) for key in env.observation_spec.keys(True, True)}
    assert shapes["scalar"] == (1,)
    assert shapes["number"] == ()
    assert shapes["inner", "deep"] == (1,)
    assert (shapes["pair", "0"], shapes["pair", "1"]) == ((), (2,))
    assert data["wide"].dtype == torch.int32
    assert data["image"].dtype == torch.uint8
    assert data["action", "turn"].shape == ((2, 12) if categorical else (2, 12, 3))
    assert data["action", "gears"].shape == (2, 12, 2 if categorical else 6)
    taken = env.pool.get_attr("actions")
    assert taken[0][-1]["both"][1] == data["action", "both", "1"][0, -1].item()
    env.close()


def test_what_is_at_observation() -> None:
    for task, shape in (("CartPole-v1", (4,)), ("FrozenLake-v1", ())):
        env = make_env(task, num_envs=3)
        check_env_specs(env)
        assert list(env.observation_spec.keys()) == ["observation"]
        assert env.reset()["observation"].shape == (3, *shape)
        env.close()
    env = make_env("Blackjack-v1", num_envs=3)
    check_env_specs(env)
    assert list(env.observation_spec.keys(True, True)) == [("observation", part) for part in "012"]
    env.close()


def test_random_actions_are_finite() -> None:
    class Open(Diary):
        action_space = spaces.Box(np.array([-np.inf, 0], np.float32), np.array([np.inf, 1], np.float32))

        def step(self, action: Any) -> Any:
            assert np.isfinite(action).all()
            return super().step(0)

    env = make_env(Open, num_envs=2, backend="inline")
    check_env_specs(env)
    env.rollout(20, break_when_any_done=False)
    env.close()


class Odd(Diary):
    """Has the space that a test gives it."""

    def reset(self, **_: Any) -> Any:
        return self.observation_space.sample(), {}


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Dict({"note": spaces.Text(5)}), r"observation\['note'\]: expected Box, .* got Text\(.*tensors only"),
        (spaces.Sequence(spaces.Discrete(3)), "observation: expected Box, .* got Sequence"),
        (spaces.Dict({"reward": spaces.Discrete(3)}), "expected names that mean nothing else .* got 'reward'"),
        (spaces.Dict({"next": spaces.Discrete(3)}), "expected names that mean nothing else .* got 'next'"),
        (spaces.Box(0, 2**60, (2,), np.uint64), "observation: expected numbers of a type .* got uint64"),
    ],
    ids=["text", "sequence", "reward", "next", "uint64"],
)
def test_a_space_without_a_spec_is_named(space: Any, message: str) -> None:
    odd = type("Odd", (Odd,), {"observation_space": space})
    with stepmill.make(odd, backend="inline") as pool, pytest.raises(errors.SpaceError, match=message):
        PoolEnv(pool)


# ---- as TorchRL's own envs -----------------------------------------------------------------------


@MODES
def test_transforms(mode: str) -> None:
    env = TransformedEnv(diary(mode), Compose(InitTracker(), StepCounter(), RewardSum()))
    check_env_specs(env)
    data = env.rollout(30, act, break_when_any_done=False)
    check_whole(data)
    assert torch.equal(data["is_init"].squeeze(-1), data["observation"][..., 2] == 0)
    assert torch.equal(data["next", "step_count"].squeeze(-1), data["next", "observation"][..., 2].long())
    steps, env_ids = data["next", "observation"][..., 2], data["observation"][..., 0]
    assert torch.equal(data["next", "episode_reward"].squeeze(-1), steps * (steps + 1) / 2 + 10 * env_ids * steps)
    env.close()


def test_several_pools_in_one_env() -> None:
    env = SerialEnv(2, lambda: diary())
    data = env.rollout(20, act, break_when_any_done=False)
    assert data.shape == (2, 3, 20)
    for one in data:
        check_whole(one)
    env.close()


def test_seeds() -> None:
    def first(env: Any, **arguments: Any) -> Any:
        return env.reset(**arguments)["observation"]

    env, other = (make_env("CartPole-v1", num_envs=3, seed=seed) for seed in (3, 0))
    expected = [first(env) for _ in range(2)]
    assert not torch.equal(first(other), expected[0])
    other.set_seed(3)
    assert torch.equal(first(other), expected[0])
    assert torch.equal(first(other), expected[1])
    assert torch.equal(first(other, seed=3), expected[0])
    # Each env gets its seed when it is reset next, not in the middle of an episode.
    other.set_seed(3)
    now = other.reset(other.fake_tensordict().exclude("next").set("_reset", torch.tensor([[False], [True], [False]])))
    assert torch.equal(now["observation"][1], expected[0][1])
    now = other.reset(now.set("_reset", torch.tensor([[True], [True], [False]])))
    assert torch.equal(now["observation"][:2], torch.stack([expected[0][0], expected[1][1]]))
    with pytest.raises(errors.ConfigError):
        other.set_seed(-1)
    env.close()
    other.close()


def test_devices() -> None:
    env = make_env("CartPole-v1", num_envs=2)
    assert env.device is env.reset().device is None
    assert env.to("cpu") is env
    assert env.rollout(3).device == env.device == torch.device("cpu")
    check_env_specs(env)
    env.close()


def test_options_reach_the_envs() -> None:
    env = make_env("CartPole-v1", num_envs=2)
    now = env.reset(options={"low": 0.02, "high": 0.03})
    assert ((now["observation"] >= 0.02) & (now["observation"] <= 0.03)).all()
    env.close()


def test_a_pool_of_any_output_and_only_a_sync_one() -> None:
    for output in ("numpy", "torch"):
        env = PoolEnv(stepmill.make("CartPole-v1", num_envs=2, output=output))
        assert env.rollout(3)["observation"].shape[0] == 2
        assert "CartPole-v1" in repr(env)
        env.close()
        assert env.is_closed
        with pytest.raises(errors.ClosedError):
            env.reset()
    with (
        stepmill.make("CartPole-v1", num_envs=2, batch_size=1) as pool,
        pytest.raises(errors.ConfigError, match=r"batch_size=1 of num_envs=2: leave out .* PoolCollector"),
    ):
        PoolEnv(pool)
    with stepmill.make("CartPole-v1", "dm") as pool, pytest.raises(errors.ConfigError, match="got a pool of another"):
        PoolEnv(pool)
    with pytest.raises(errors.ConfigError, match=r"PoolEnv: expected a pool of stepmill.make\(.*, got 'CartPole-v1'"):
        PoolEnv("CartPole-v1")


def test_what_is_handed_out_stays_as_it_was_and_is_not_copied() -> None:
    env = make_env("CartPole-v1", num_envs=4)
    now = env.reset()
    nexts = [(now, now.clone())]
    for _ in range(5):
        now = env.rand_step(now.copy())["next"].exclude("reward")
        nexts.append((now, now.clone()))
    for now, before in nexts:
        assert (now == before).all()
    batch = env.pool.step(torch.zeros(4, dtype=torch.int64))
    assert env._batches.following(batch).following["observation"].data_ptr() == batch[0].data_ptr()
    env.close()
