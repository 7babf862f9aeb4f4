"""What the row of a failed env looks like to TorchRL, and how collecting goes on."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torchrl.collectors import Collector
from torchrl.envs.utils import check_env_specs

import stepmill
from stepmill.errors import EnvError
from stepmill.interop.torchrl import PoolCollector, make_env
from support.envs.adapted import CRASH, Diary, FragileDiary

pytestmark = pytest.mark.filterwarnings("ignore")  # TorchRL warns of many things

MODES = pytest.mark.parametrize("mode", ["next_step", "same_step", "disabled"])
BACKENDS = pytest.mark.parametrize("backend", ["inline", "process"])


def fragile(mode: str, **arguments: Any) -> Any:
    arguments = {"backend": "inline", "on_error": "restart", **arguments}
    return make_env(FragileDiary, num_envs=2, autoreset=mode, **arguments)


def acting(now: Any, *actions: int) -> Any:
    return now.set("action", torch.tensor(actions))


@MODES
@BACKENDS
def test_a_failed_step_is_truncated_and_abnormal(mode: str, backend: str) -> None:
    env = fragile(mode, backend=backend)
    check_env_specs(env)
    now = env.reset()
    assert not now["abnormal"].any()
    data, now = env.step_and_maybe_reset(acting(now, 1, CRASH))
    failed = data["next"]
    assert failed["abnormal"].flatten().tolist() == [False, True]
    assert failed["truncated"].flatten().tolist() == failed["done"].flatten().tolist() == [False, True]
    assert not failed["terminated"].any()
    assert failed["reward"].flatten().tolist() == [1, 0]
    assert torch.equal(failed["observation"][1], data["observation"][1]), "the last good observation"
    # The next one begins a new episode.
    assert now["observation"][:, 2].tolist() == [1, 0]
    assert not now["abnormal"].any()
    data, now = env.step_and_maybe_reset(acting(now, 1, 1))
    assert data["next", "observation"][:, 2].tolist() == [2, 1]
    assert not data["next", "abnormal"].any()
    env.close()


@MODES
def test_under_raise_the_error_carries_the_tensordict(mode: str) -> None:
    env = fragile(mode, on_error="raise")
    assert list(env.observation_spec.keys()) == ["observation"]
    now = env.reset()
    with pytest.raises(EnvError, match="it broke") as caught:
        env.step(acting(now, 1, CRASH))
    assert caught.value.batch["reward"].flatten().tolist() == [1, 0]
    assert caught.value.batch["done"].flatten().tolist() == [False, True]
    data = env.step(acting(env.reset(), 1, 1))
    assert not data["next", "done"].any()
    env.close()


@MODES
def test_a_reset_that_fails_is_tried_again(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    env = fragile(mode)
    monkeypatch.setattr(Diary, "bad_resets", [1, 0, 1])  # of envs 0 and 1, then of env 0 again
    now = env.reset()
    assert now["observation"][:, 2].tolist() == [0, 0]
    assert not now["abnormal"].any()
    # At the end of an episode.
    for _ in range(9):
        data = env.step(acting(now, 1, 1))
        if data["next", "done"].any():
            break
        now = data["next"].exclude("reward")
    monkeypatch.setattr(Diary, "bad_resets", [1])
    now = env.maybe_reset(data["next"].exclude("reward"))
    assert not now["done"].any()
    data = env.step(acting(now, 1, 1))
    assert torch.equal(data["next", "observation"][:, 2], now["observation"][:, 2] + 1)
    assert torch.equal(data["next", "observation"][:, 1], now["observation"][:, 1])
    env.close()


def test_a_reset_that_always_fails_raises_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    env = fragile("next_step", max_restarts=2)
    monkeypatch.setattr(Diary, "bad_resets", [1] * 99)
    with pytest.raises(EnvError, match="no reset today"):
        env.reset()
    env.close()


class Clumsy:
    """A policy that makes envs fail now and then."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, tensordict: Any) -> Any:
        self.calls += 1
        action = torch.ones(len(tensordict), dtype=torch.int64)
        action[self.calls % len(action)] = CRASH if self.calls % 3 == 0 else 0
        return tensordict.set("action", action)


def check_crashes(data: Any) -> None:
    crashed = data["action"] == CRASH
    assert crashed.sum() > 3
    following = data["next"]
    assert torch.equal(following["abnormal"].squeeze(-1), crashed)
    assert following["truncated"].squeeze(-1)[crashed].all()
    assert not following["terminated"].squeeze(-1)[crashed].any()
    whole = ~crashed
    assert torch.equal(data["observation"][whole][:, 2] + 1, following["observation"][whole][:, 2])
    assert torch.equal(data["observation"][whole][:, :2], following["observation"][whole][:, :2])
    begins = data["observation"][:, 1:, 2] == 0
    assert torch.equal(begins, following["done"].squeeze(-1)[:, :-1])


@MODES
def test_collectors_go_on(mode: str) -> None:
    env = fragile(mode)
    collector = Collector(env, Clumsy(), frames_per_batch=20, total_frames=60)
    check_crashes(torch.cat(list(collector), 1))
    collector.shutdown()
    pool = stepmill.make(
        FragileDiary, num_envs=4, batch_size=2, autoreset=mode, backend="inline", on_error="restart", max_restarts=None
    )
    collector = PoolCollector(pool, Clumsy(), frames_per_batch=80, total_frames=80)
    check_crashes(next(iter(collector)))
    collector.shutdown()


def test_a_collector_under_raise_ends_with_the_error() -> None:
    pool = stepmill.make(FragileDiary, num_envs=4, batch_size=2, backend="inline")
    collector = PoolCollector(pool, Clumsy(), frames_per_batch=80)
    with pytest.raises(EnvError, match="it broke"):
        next(iter(collector))
    assert pool.closed
