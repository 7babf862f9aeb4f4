"""What is taken of a GPU and its driver, and that all of it is given back."""

from __future__ import annotations

import ctypes
import gc
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from stepmill.device.cuda.cuda_results import OnGpu
from stepmill.errors import OutOfMemoryError, ResourceError, UnsupportedError
from support.host_kernels import Kernels, Place, Twin

NUM_ENVS = 4
ACTION = np.zeros(NUM_ENVS, np.int64)


@pytest.fixture(autouse=True)
def before(kernels: Kernels) -> Iterator[dict[str, int]]:
    """What the driver has given out before a test, and has to have given out after it."""
    gc.collect()
    given = kernels.left()
    yield given
    gc.collect()
    assert kernels.left() == given


@contextmanager
def memory_left(kernels: Kernels, bytes: int) -> Iterator[None]:
    left = ctypes.c_size_t.in_dll(kernels.driver, "fake_memory")
    before = left.value
    left.value = bytes
    try:
        yield
    finally:
        left.value = before


def test_results_that_are_kept_are_not_written_to(kernels: Kernels) -> None:
    twin = Twin(kernels, "CartPole-v1", num_envs=NUM_ENVS)
    action = np.zeros(NUM_ENVS, np.int64)
    kept = [twin.envs.step((action.ctypes.data,), 0) for _ in range(3)]
    copies = [batch.arrays(0) for batch in kept]
    for _ in range(5):
        twin.envs.step((action.ctypes.data,), 0)
    for batch, copy in zip(kept, copies, strict=True):
        for one, other in zip(batch.arrays(0), copy, strict=True):
            assert np.array_equal(one, other)
    twin.close()


def test_memory_of_results_is_used_again(kernels: Kernels) -> None:
    twin = Twin(kernels, "CartPole-v1", num_envs=NUM_ENVS)
    action = np.zeros(NUM_ENVS, np.int64)
    twin.envs.step((action.ctypes.data,), 0)
    allocated = kernels.count("allocated")
    for _ in range(100):
        twin.envs.step((action.ctypes.data,), 0)
    assert kernels.count("allocated") == allocated
    twin.close()


def test_a_tensor_keeps_its_memory_when_all_else_is_gone(kernels: Kernels, before: dict[str, int]) -> None:
    twin = Twin(kernels, "CartPole-v1", num_envs=NUM_ENVS)
    action = np.zeros(NUM_ENVS, np.int64)
    batch = twin.envs.step((action.ctypes.data,), 0)
    expected = batch.arrays(0)[0]
    observation = np.from_dlpack(OnGpu(batch, 0, 0))
    del batch
    twin.close()
    gc.collect()
    assert kernels.left() != before
    assert np.array_equal(observation, expected)
    # Whichever thread lets go of it, and that thread has no context of its own.
    held = [observation]
    del observation
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()


def test_results_for_another_stream_wait_for_the_first(kernels: Kernels) -> None:
    twin = Twin(kernels, "CartPole-v1", num_envs=NUM_ENVS)
    action = np.zeros(NUM_ENVS, np.int64)
    one, other = 16, 32  # the driver does not look at them
    twin.envs.step((action.ctypes.data,), one)
    before = kernels.count("waits")
    for stream in (one, one):
        twin.envs.step((action.ctypes.data,), stream)
    assert kernels.count("waits") == before
    twin.envs.step((action.ctypes.data,), other)
    assert kernels.count("waits") == before + 2  # for the envs, and for the memory
    kept = [twin.envs.step((action.ctypes.data,), stream) for stream in (one, other)]
    del kept
    before = kernels.count("waits")
    for stream in (other, one, other, one):  # each has its own memory now
        twin.envs.step((action.ctypes.data,), stream)
    assert kernels.count("waits") == before + 3
    twin.close()


MOVES: dict[str, Callable[[Any, int], Any]] = {
    "step": lambda envs, stream: envs.step((ACTION.ctypes.data,), stream),
    "command": lambda envs, stream: envs.command(
        (ACTION.ctypes.data,), stream, None, None, b"\1" * NUM_ENVS, None, None, None, 0
    ),
    "save": lambda envs, stream: envs.save(None, stream),
    "phases": lambda envs, stream: envs.phases(stream),
    "notes": lambda envs, stream: envs.notes(stream),
    "episodes": lambda envs, stream: envs.episodes(stream),
}


@pytest.mark.all_cases
@pytest.mark.parametrize("name", MOVES)
def test_calls_on_several_streams_find_the_envs_in_order(kernels: Kernels, name: str) -> None:
    twin = Twin(kernels, "CartPole-v1", num_envs=NUM_ENVS)
    kept = [twin.envs.step((ACTION.ctypes.data,), 16)]  # so that no call waits for memory
    for stream, waits in ((16, 0), (32, 1), (32, 0), (16, 1)):
        before = kernels.count("waits")
        kept.append(MOVES[name](twin.envs, stream))
        assert kernels.count("waits") == before + waits, stream
    kept.clear()
    twin.close()


def test_a_step_is_one_launch(kernels: Kernels) -> None:
    twin = Twin(kernels, "CartPole-v1", num_envs=300)  # of several blocks
    action = np.zeros(300, np.int64)
    before = kernels.count("launches")
    for _ in range(10):
        twin.envs.step((action.ctypes.data,), 0)
    assert kernels.count("launches") == before + 10
    twin.close()


def test_no_memory_for_envs(kernels: Kernels, before: dict[str, int]) -> None:
    with (
        memory_left(kernels, 1000),
        pytest.raises(OutOfMemoryError, match=r"GPU 0 has too little .* 4 envs has asked for 1\.5 KiB more\. Make"),
    ):
        Twin(kernels, "CartPole-v1", num_envs=NUM_ENVS)
    gc.collect()
    assert kernels.left() == before


def test_no_memory_for_results(kernels: Kernels) -> None:
    twin = Twin(kernels, "CartPole-v1", num_envs=NUM_ENVS)
    action = np.zeros(NUM_ENVS, np.int64)
    kept = twin.envs.step((action.ctypes.data,), 0)
    state = twin.envs.save(None, 0).read(0)
    with memory_left(kernels, 100), pytest.raises(OutOfMemoryError, match="fewer envs, or drop earlier results"):
        twin.envs.step((action.ctypes.data,), 0)
    assert twin.envs.save(None, 0).read(0) == state
    del kept  # its memory serves again
    with memory_left(kernels, 100):
        twin.envs.step((action.ctypes.data,), 0)
    twin.close()


def test_what_a_gpu_does_not_take(kernels: Kernels) -> None:
    twin = Twin(kernels, "CartPole-v1", num_envs=NUM_ENVS)
    place, form = Place.of("CartPole-v1"), twin.form
    arguments: dict[str, Any] = {"configs": [{}] * NUM_ENVS, "seeds": list(range(NUM_ENVS))}
    with pytest.raises(ResourceError, match="GPU 7: invalid device ordinal"):
        kernels.envs(form, place, device=7, **arguments)
    with pytest.raises(RuntimeError, match="there is no NVIDIA driver: "):
        kernels.envs(form, place, library="/nowhere/libcuda.so.1", **arguments)
    with pytest.raises(RuntimeError, match="the NVIDIA driver is too old: it has no cuInit"):
        kernels.envs(form, place, library=str(kernels.compile(form.source(place))), **arguments)
    with pytest.raises(ResourceError, match="GPU 0 does not take the compiled env: error 200"):
        kernels.envs(form, place, image=b"/nowhere/kernel\0", **arguments)
    twin.close()


def test_whoever_takes_results_over_in_another_stream_waits_for_them(kernels: Kernels) -> None:
    twin = Twin(kernels, "CartPole-v1", num_envs=NUM_ENVS)
    action = np.zeros(NUM_ENVS, np.int64)
    default, own, other = 0, 16, 32
    for ours, theirs, waits in ((own, own, 0), (own, other, 1), (default, None, 0), (default, 1, 0), (own, -1, 0)):
        array = OnGpu(twin.envs.step((action.ctypes.data,), ours), 0, 0)
        before = kernels.count("waits")
        array.__dlpack__(stream=theirs)
        assert kernels.count("waits") == before + waits, (ours, theirs)
    del array
    twin.close()


def test_a_restore_without_memory_for_its_results_changes_nothing(kernels: Kernels) -> None:
    twin = Twin(kernels, "CartPole-v1", num_envs=NUM_ENVS)
    action = np.zeros(NUM_ENVS, np.int64)
    saved = twin.envs.save(None, 0)
    kept = twin.envs.step((action.ctypes.data,), 0)
    before = twin.envs.save(None, 0).read(0)
    for places in (None, np.arange(NUM_ENVS, dtype=np.int32)):
        with memory_left(kernels, 600), pytest.raises(OutOfMemoryError):
            twin.envs.load(saved, places, None, (action.ctypes.data,), 0, None, None, None)
        assert twin.envs.save(None, 0).read(0) == before
    del kept, saved
    twin.close()


def test_memory_that_may_still_be_read_is_not_written_to(kernels: Kernels) -> None:
    """Where nobody tells which streams read results, the GPU is waited for, once for several of them."""
    twin = Twin(kernels, "CartPole-v1", num_envs=NUM_ENVS)
    envs = kernels.envs(
        twin.form, Place.of("CartPole-v1"), configs=[{}] * NUM_ENVS, seeds=range(NUM_ENVS), hides_streams=True
    )
    action = np.zeros(NUM_ENVS, np.int64)
    first, waited = kernels.count("allocated"), kernels.count("synchronized")
    unread: set[int] = set()  # addresses of results that were let go of
    for step in range(40):
        batch = envs.step((action.ctypes.data,), 0)
        if kernels.count("synchronized") > waited:
            waited += 1
            unread.clear()
        address = np.from_dlpack(OnGpu(batch, 0, 0)).ctypes.data
        assert address not in unread, step
        del batch
        unread.add(address)
    assert kernels.count("synchronized") == waited
    assert kernels.count("allocated") - first <= 5
    kept = [envs.step((action.ctypes.data,), 0) for _ in range(8)]
    kept.pop()
    with memory_left(kernels, 100):  # one is there, as soon as it was waited for
        kept.append(envs.step((action.ctypes.data,), 0))
        with pytest.raises(OutOfMemoryError):
            envs.step((action.ctypes.data,), 0)
    kept.clear()
    del envs
    twin.close()


def test_a_class_that_cannot_be_copied(kernels: Kernels) -> None:
    twin = Twin(kernels, "CartPole-v1", num_envs=1)
    with pytest.raises(UnsupportedError, match="Probe cannot be copied to a GPU: its class does not say kPlainMemory"):
        kernels.envs(twin.form, Place.of("CartPole-v1"), env_class="Probe", configs=[{}], seeds=[1])
    twin.close()


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # of JAX, where other tests have imported it
def test_a_child_has_no_part_in_it(kernels: Kernels) -> None:
    twin = Twin(kernels, "CartPole-v1", num_envs=NUM_ENVS)
    action = np.zeros(NUM_ENVS, np.int64)
    batch = twin.envs.step((action.ctypes.data,), 0)
    tensors = [batch.capsule(i, versioned) for i in range(batch.count) for versioned in (False, True)]
    before, expected = kernels.left(), batch.arrays(0)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            tensors.clear()
            del batch
            del twin.envs
            gc.collect()
            code = 0 if kernels.left() == before else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert kernels.left() == before
    for one, other in zip(batch.arrays(0), expected, strict=True):
        assert np.array_equal(one, other)
    tensors.clear()
    del batch
    twin.close()


def test_two_sets_of_envs_know_nothing_of_each_other(kernels: Kernels) -> None:
    one, other = (Twin(kernels, "Taxi-v3", num_envs=NUM_ENVS, seed=seed) for seed in (5, 5))
    for _ in range(20):
        action = one.sample()
        rows = [one.kernel_step(action), other.kernel_step(action)]
        assert all(np.array_equal(rows[0][name], rows[1][name]) for name in rows[0])
    one.close()
    other.kernel_step(other.sample())
    other.close()
