"""``device="cuda"`` on a real GPU: `make test-cuda`. What holds on every machine is in test_cuda_tensors.py."""

from __future__ import annotations

import gc
import os
import random
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

import stepmill
from support.outputs import assert_shows, make_kind, split
from support.probes import MODES, VIEWS, assert_same
from support.processes import child, went_well

pytestmark = [
    pytest.mark.usefixtures("server"),
    pytest.mark.skipif(
        not torch.cuda.is_available() and not os.environ.get("STEPMILL_CUDA"), reason="no GPU: make test-cuda"
    ),
]
SHAPE = (4, 84, 84)
PATTERN = np.arange(np.prod(SHAPE), dtype=np.int64).reshape(SHAPE) * 31


def frame(env_id: int, count: int) -> np.ndarray:
    """Differs in every pixel from those of other envs and of steps nearby."""
    return (PATTERN + 7 * env_id + 13 * count).astype(np.uint8)


class Frames(gymnasium.Env[np.ndarray, int]):
    """Its frames say whose they are and when they were made."""

    observation_space = spaces.Box(0, 255, SHAPE, np.uint8)
    action_space = spaces.Discrete(2)

    def __init__(self, env_id: int) -> None:
        self.env_id, self.count = env_id, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        return frame(self.env_id, self.count), {"count": self.count}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.count += 1
        return frame(self.env_id, self.count), float(self.count), False, False, {"count": self.count}


def assert_right(obs: torch.Tensor, info: dict[str, Any]) -> None:
    seen = obs.cpu().numpy()
    for row, (env_id, count) in enumerate(zip(info["env_id"], info["count"], strict=True)):
        np.testing.assert_array_equal(seen[row], frame(env_id, count), err_msg=f"env {env_id}, step {count}")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("kind", ["native", "inline", "objects", "process"])
def test_tensors_on_the_gpu_show_what_arrays_show(kind: str, view: str, mode: str) -> None:
    tensors = make_kind(kind, view, autoreset=mode, output="torch", device="cuda")
    arrays = make_kind(kind, view, autoreset=mode)
    with tensors, arrays:
        tensors.reset()
        arrays.reset()
        for turn in range(4 if mode == "disabled" else 12):
            action = np.full(3, turn % 2)
            shown, plain = (split(view, pool.step(action)) for pool in (tensors, arrays))
            assert leaves_on_gpu(shown[0]) > 0
            assert_shows(to_cpu(shown[0]), plain[0], torch.Tensor)
            assert_same(shown[1], plain[1])


def leaves_on_gpu(shown: Any) -> int:
    if isinstance(shown, torch.Tensor):
        assert shown.is_cuda
        return 1
    parts = shown.values() if isinstance(shown, dict) else shown if isinstance(shown, tuple | list) else ()
    return sum(map(leaves_on_gpu, parts))


def to_cpu(shown: Any) -> Any:
    if isinstance(shown, torch.Tensor):
        return shown.cpu()
    if isinstance(shown, dict):
        return {key: to_cpu(part) for key, part in shown.items()}
    return type(shown)(map(to_cpu, shown)) if isinstance(shown, tuple | list) else shown


@pytest.mark.parametrize("backend", ["inline", "process"])
def test_memory_that_the_gpu_reads_is_locked(backend: str) -> None:
    with stepmill.make(Frames, num_envs=8, backend=backend, output="torch", device="cuda") as pool:
        pool.reset()
        assert pool.stats()["locked_bytes"] >= 8 * np.prod(SHAPE)
    with stepmill.make(Frames, num_envs=8, backend=backend, output="torch") as pool:
        pool.reset()
        assert pool.stats()["locked_bytes"] == 0


@pytest.mark.parametrize("backend", ["inline", "process"])
def test_thousands_of_batches_under_memory_pressure(backend: str) -> None:
    """Batches are held and dropped in waves, so that their memory goes back to the system and comes again, copies are
    slow, and the program takes and frees memory of its own: every byte is right, at once or much later.
    """
    chance = random.Random(backend)
    num_envs, batch_size = 16, 8
    with stepmill.make(
        Frames, num_envs=num_envs, batch_size=batch_size, backend=backend, output="torch", device="cuda"
    ) as pool:
        side = pool._output._convert.__self__._stream
        held: list[tuple[torch.Tensor, dict[str, Any]]] = []
        waste: list[np.ndarray] = []
        locked = set()
        pool.async_reset()
        most = 0
        for turn in range(4000):
            obs, _, _, _, info = pool.recv()
            pool.send(np.zeros(batch_size, np.int64), info["env_id"])
            held.append((obs, info))
            if turn % 500 == 0:
                most = chance.choice((0, 3, 30, 120))
            if turn % 50 == 0:
                with torch.cuda.stream(side):
                    torch.cuda._sleep(chance.choice((0, 10**6, 10**8)))
                waste = [np.ones(chance.randrange(1, 10**7)) for _ in range(3)]
            if turn % 701 == 0:
                assert went_well(child(lambda: None))
            if turn % 100 == 0:
                locked.add(pool.stats()["locked_bytes"])
            while len(held) > most:
                assert_right(*held.pop(chance.randrange(len(held))))
        for one in held:
            assert_right(*one)
        assert len(waste) == 3
        assert len(locked) > 2, "no memory went back to the system"


def test_a_tensor_outlives_its_pool() -> None:
    pool = stepmill.make(Frames, num_envs=8, backend="process", output="torch", device="cuda")
    obs, info = pool.reset()
    with torch.cuda.stream(pool._output._convert.__self__._stream):
        torch.cuda._sleep(10**8)
    obs, *_, info = pool.step(np.zeros(8, np.int64))
    pool.close()
    del pool
    gc.collect()
    assert_right(obs, {"env_id": np.arange(8), "count": info["count"]})


def test_a_program_computes_with_a_batch_at_once() -> None:
    """The stream of the program waits for the copy, not the program; also a stream of its own."""
    with stepmill.make(Frames, num_envs=64, backend="inline", output="torch", device="cuda") as pool:
        pool.reset()
        own = torch.cuda.Stream()
        for turn in range(1, 50):
            with torch.cuda.stream(own):
                obs, *_ = pool.step(np.zeros(64, np.int64))
                total = obs.to(torch.int64).sum()
            expected = sum(int(frame(env_id, turn).astype(np.int64).sum()) for env_id in range(64))
            own.synchronize()
            assert int(total) == expected


def test_memory_of_the_gpu_is_not_used_again_while_a_stream_reads_it() -> None:
    with stepmill.make(Frames, num_envs=64, backend="inline", output="torch", device="cuda") as pool:
        pool.reset()
        sums, expected = [], []
        for turn in range(1, 200):
            obs, *_ = pool.step(np.zeros(64, np.int64))
            torch.cuda._sleep(10**6)
            sums.append(obs.to(torch.int64).sum())  # reads it long after `del`
            del obs
            expected.append(sum(int(frame(env_id, turn).astype(np.int64).sum()) for env_id in range(64)))
        assert [int(one) for one in sums] == expected


def test_an_action_on_the_gpu_closes_the_circle() -> None:
    with (
        stepmill.make("CartPole-v1", num_envs=64, seed=3, output="torch", device="cuda") as pool,
        stepmill.make("CartPole-v1", num_envs=64, seed=3) as plain,
    ):
        obs, _ = pool.reset()
        plain_obs, _ = plain.reset()
        for _ in range(300):
            obs, reward, *_ = pool.step((obs[:, 2] > 0).long())
            plain_obs, plain_reward, *_ = plain.step((plain_obs[:, 2] > 0).astype(np.int64))
            np.testing.assert_array_equal(obs.cpu().numpy(), plain_obs)
            np.testing.assert_array_equal(reward.cpu().numpy(), plain_reward)


def test_jax_has_its_arrays_on_the_gpu_too() -> None:
    jax = pytest.importorskip("jax")
    if jax.default_backend() == "cpu":
        pytest.skip("this JAX has no GPU")
    with stepmill.make(Frames, num_envs=8, backend="process", output="jax", device="cuda") as pool:
        pool.reset()
        for turn in range(1, 300):
            obs, *_ = pool.step(np.zeros(8, np.int64))
            assert obs.devices().pop().platform in ("gpu", "cuda")
            np.testing.assert_array_equal(np.asarray(obs), [frame(env_id, turn) for env_id in range(8)])
