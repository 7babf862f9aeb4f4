"""Copies to a GPU, on one that is slow on purpose: what they read is held until they are done, and no longer.

The real one is in test_cuda.py.
"""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import stepmill
from stepmill import errors
from stepmill.views import cuda_tensors
from stepmill.views.cuda_tensors import CudaTensors
from support.envs.many_spaces import DTYPES
from support.fake_gpu import FakeEvent, FakeGpu

LARGE = np.arange(50_000, dtype=np.float64).reshape(100, 500)


def batches(pool: Any, count: int, first: int = 0) -> list[tuple[np.ndarray, ...]]:
    return [pool.step(np.full(pool.num_envs, (first + turn) % 2))[:4] for turn in range(count)]


def make_pool(**arguments: Any) -> Any:
    """Its observations are above the size that is copied directly, the other arrays below."""
    pool = stepmill.make("CartPole-v1", num_envs=4096, seed=1, **arguments)
    pool.reset()
    return pool


def test_a_copy_shows_every_number_and_type() -> None:
    gpu = FakeGpu()
    numbers = [np.arange(5).astype(kind) for kind in DTYPES]
    arrays = [*numbers, LARGE, np.zeros((0, 3)), np.array(7), np.ones((2, 3, 4), np.uint8)]
    made = CudaTensors(gpu, 0).convert(arrays)  # type: ignore[arg-type]
    for array, tensor in zip(arrays, made, strict=True):
        seen = gpu.read(tensor)
        assert (seen.dtype, seen.shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(seen, array)


def test_small_arrays_take_one_copy_and_each_large_one_another() -> None:
    gpu = FakeGpu()
    CudaTensors(gpu, 0).convert([np.ones(3), LARGE, np.zeros(7, bool), LARGE.copy()])  # type: ignore[arg-type]
    assert gpu.side.given == 3


def test_the_stream_of_the_program_waits_for_the_copy_and_keeps_the_memory() -> None:
    gpu = FakeGpu()
    tensors = CudaTensors(gpu, 0)  # type: ignore[arg-type]
    small, large = tensors.convert([np.ones(3), LARGE])
    assert gpu.side.done == 0
    assert {address for address, _ in gpu.recorded} == {small.data_ptr(), large.data_ptr()}
    assert all(stream is gpu.main for _, stream in gpu.recorded)
    gpu.main.run()
    assert gpu.side.done == gpu.side.given


@pytest.mark.parametrize("backend", ["thread", "process"])
def test_what_a_copy_reads_is_not_recycled(backend: str) -> None:
    """Each copy happens long after the pool has stepped on, and shows its own batch all the same."""
    gpu = FakeGpu()
    tensors = CudaTensors(gpu, 0)  # type: ignore[arg-type]
    with make_pool(backend=backend) as pool, make_pool(backend=backend) as plain:
        for turn in range(20):
            copies = [tensors.convert(batch) for batch in batches(pool, 5)]
            assert pool.stats()["batches_held"] >= 5
            for copy, batch in zip(copies, batches(plain, 5), strict=True):
                for tensor, array in zip(copy, batch, strict=True):
                    np.testing.assert_array_equal(gpu.read(tensor), array, err_msg=f"turn {turn}")


def test_what_is_copied_is_released() -> None:
    gpu = FakeGpu()
    tensors = CudaTensors(gpu, 0)  # type: ignore[arg-type]
    with make_pool() as pool:
        for turn in range(200):
            (batch,) = batches(pool, 1, turn)
            tensors.convert(batch)
            del batch
            gpu.side.run()
            assert pool.stats()["batches_held"] <= 2


def test_a_program_is_not_ahead_of_its_copies_without_bound() -> None:
    gpu = FakeGpu()
    tensors = CudaTensors(gpu, 0)  # type: ignore[arg-type]
    with make_pool() as pool:
        for turn in range(300):
            tensors.convert(*batches(pool, 1, turn))
        assert pool.stats()["batches_held"] <= cuda_tensors._MOST_AHEAD + 1


def test_an_interrupted_copy_counts_as_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = FakeGpu()
    tensors = CudaTensors(gpu, 0)  # type: ignore[arg-type]

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with make_pool() as pool, monkeypatch.context() as patch:
        (batch,) = batches(pool, 1)
        patch.setattr(FakeEvent, "record", interrupt)
        with pytest.raises(KeyboardInterrupt):
            tensors.convert(batch)
        patch.undo()
        begun = gpu.side.given
        assert begun > gpu.side.done == 0
        again = tensors.convert(batch)  # waits for the first, of which it knows nothing
        assert gpu.side.done == begun
        for tensor, array in zip(again, batch, strict=True):
            np.testing.assert_array_equal(gpu.read(tensor), array)


def test_the_end_of_a_pool_waits_for_its_copies() -> None:
    gpu = FakeGpu()
    tensors = CudaTensors(gpu, 0)  # type: ignore[arg-type]
    pool = make_pool()
    shown = tensors.convert(*batches(pool, 1))
    (expected,) = batches(make_pool(), 1)
    pool.close()
    side = gpu.side
    assert side.done == 0
    del pool, tensors
    gc.collect()
    assert side.done == side.given
    np.testing.assert_array_equal(gpu.read(shown[0]), expected[0])


# ---- what make says ------------------------------------------------------------------------------


def test_arrays_of_numpy_are_on_the_cpu() -> None:
    with pytest.raises(errors.ConfigError, match=r"device='cuda': numpy's arrays are on the CPU: use output='torch'"):
        stepmill.make("CartPole-v1", device="cuda")


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:x", "cuda:-1", 0, None])
def test_a_device_is_one_that_exists(device: Any) -> None:
    with pytest.raises(errors.ConfigError, match="device: expected 'cpu', 'cuda', or one of several GPUs"):
        stepmill.make("CartPole-v1", output="torch", device=device)


def test_a_torch_without_cuda_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr("torch.version.cuda", None)
    with pytest.raises(errors.UnsupportedError, match=r"torch \S+ finds no GPU: it was built without CUDA"):
        stepmill.make("CartPole-v1", output="torch", device="cuda")
    monkeypatch.setattr("torch.version.cuda", "13.0")
    with pytest.raises(errors.UnsupportedError, match="finds no GPU: see nvidia-smi"):
        stepmill.make("CartPole-v1", output="torch", device="cuda:0")


def test_a_gpu_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    with pytest.raises(errors.UnsupportedError, match="device='cuda:2': torch finds 2 GPUs, numbered from 0"):
        stepmill.make("CartPole-v1", output="torch", device="cuda:2")


def test_torch_s_own_devices_are_taken() -> None:
    import torch

    with stepmill.make("CartPole-v1", output="torch", device=torch.device("cpu")) as pool:
        assert pool.reset()[0].device == torch.device("cpu")
