"""While a stream is captured into a CUDA graph: what a pool does then is no part of it, and spoils nothing."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from stepmill.device.cuda.cuda_results import OnGpu
from stepmill.errors import ResourceError, UsageError
from support.cuda_pools import HostGpu
from support.host_kernels import Kernels, State, Twin

NUM_ENVS = 4
CAPTURED, OTHER = 16, 32  # streams; the driver does not look at them


@contextmanager
def capturing(kernels: Kernels, stream: int = CAPTURED) -> Iterator[None]:
    place = ctypes.c_void_p.in_dll(kernels.driver, "fake_capturing")
    place.value = stream
    try:
        yield
    finally:
        place.value = None


@pytest.fixture
def twin(kernels: Kernels) -> Iterator[Twin]:
    gc.collect()
    before = kernels.left()
    made = Twin(kernels, "Taxi-v3", num_envs=NUM_ENVS)
    yield made
    made.pool.close()
    made.__dict__.pop("envs", None)
    gc.collect()
    assert kernels.left() == before


def address(action: np.ndarray) -> tuple[int, ...]:
    return (action.ctypes.data,)


ACTION = np.zeros(NUM_ENVS, np.int64)
CALLS: dict[str, Callable[[Any], Any]] = {
    "step": lambda envs: envs.step(address(ACTION), CAPTURED),
    "command": lambda envs: envs.command(address(ACTION), CAPTURED, None, None, b"\1" * 4, None, None, None, 0),
    "upload": lambda envs: envs.upload(ACTION, CAPTURED),
    "save": lambda envs: envs.save(None, CAPTURED),
    "phases": lambda envs: envs.phases(CAPTURED),
    "notes": lambda envs: envs.notes(CAPTURED),
    "episodes": lambda envs: envs.episodes(CAPTURED),
}


@pytest.mark.parametrize("name", CALLS)
def test_only_a_graph_step_can_be_captured(kernels: Kernels, twin: Twin, name: str) -> None:
    batch = twin.envs.step(address(ACTION), CAPTURED)
    before, launches = State.read(twin.envs, NUM_ENVS), kernels.count("launches")
    with capturing(kernels), pytest.raises(UsageError, match="only graph_step can be captured"):
        CALLS[name](twin.envs)
    assert kernels.count("launches") == launches
    assert np.array_equal(State.read(twin.envs, NUM_ENVS).memory, before.memory)
    with capturing(kernels):
        twin.envs.graph_step(address(ACTION), CAPTURED, batch)
    assert (State.read(twin.envs, NUM_ENVS).elapsed > before.elapsed).all()


def test_results_that_are_dropped_meanwhile_are_no_part_of_it(kernels: Kernels, twin: Twin) -> None:
    """An event in a graph tells nobody outside of it, so other streams do not get that memory."""
    batch = twin.envs.step(address(ACTION), CAPTURED)
    place = np.from_dlpack(OnGpu(batch, 0, 0)).ctypes.data
    captured, waits = kernels.count("captured"), kernels.count("stream_waits")
    with capturing(kernels):
        del batch
        kept = [twin.envs.step(address(ACTION), OTHER) for _ in range(2)]
    assert kernels.count("captured") == captured
    assert kernels.count("stream_waits") == waits
    assert place not in [np.from_dlpack(OnGpu(one, 0, 0)).ctypes.data for one in kept]
    after = twin.envs.step(address(ACTION), OTHER)  # when an event can tell
    assert np.from_dlpack(OnGpu(after, 0, 0)).ctypes.data == place
    assert kernels.count("captured") == captured


def test_envs_can_end_while_others_are_captured(kernels: Kernels, twin: Twin) -> None:
    before = kernels.left()
    other = Twin(kernels, "CartPole-v1", num_envs=NUM_ENVS)
    kept = other.envs.step(address(ACTION), OTHER)
    with capturing(kernels):
        other.close()
        del kept
        gc.collect()
        assert kernels.left() == before


@pytest.mark.parametrize("task", ["CartPole-v1", "FrozenLake-v1"])  # the latter's envs read a map
def test_memory_that_a_graph_uses_stays_as_long_as_its_results(kernels: Kernels, task: str) -> None:
    twin = Twin(kernels, task, num_envs=NUM_ENVS)
    batch = twin.envs.step(address(ACTION), CAPTURED)
    with capturing(kernels):
        twin.envs.graph_step(address(ACTION), CAPTURED, batch)
    before = kernels.left()
    del twin.envs
    gc.collect()
    assert kernels.left() == before
    del batch
    gc.collect()
    assert kernels.left() != before


def test_what_the_driver_says_of_a_stream_is_told(kernels: Kernels, twin: Twin) -> None:
    """An env that has written wildly, for instance: that nobody captures is not what the user has to know."""
    place = ctypes.c_int.in_dll(kernels.driver, "fake_broken")
    place.value = 700
    try:
        with pytest.raises(ResourceError, match="GPU 0: error 700"):
            twin.envs.step(address(ACTION), OTHER)
    finally:
        place.value = 0


@pytest.mark.torch
def test_a_pool_refuses_what_cannot_be_captured_before_anything_changes(
    kernels: Kernels, gpu: HostGpu, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr("stepmill.device.open._gpu_and_stream", lambda settings: (0, lambda: CAPTURED))
    pool = make("Taxi-v3", num_envs=NUM_ENVS, backend="cuda", output="torch")
    pool.reset()
    before = pool.step(torch.zeros(NUM_ENVS, dtype=torch.int64))[4]["elapsed_step"].tolist()
    with capturing(kernels), monkeypatch.context() as patch:
        patch.setattr("stepmill.device.cuda.action_tensors.ActionTensors.misfit", lambda _: pytest.fail("it waits"))
        for call in (lambda: pool.step(torch.full((NUM_ENVS,), 0.5)), pool.reset, pool.save, pool.check, pool.close):
            with pytest.raises(UsageError, match="only graph_step can be captured"):
                call()
    pool.check()  # a half is no action, but nobody acted
    assert not pool.closed
    after = pool.step(torch.zeros(NUM_ENVS, dtype=torch.int64))[4]["elapsed_step"].tolist()
    assert after == [one + 1 for one in before]


@pytest.mark.torch
def test_a_rollout_after_a_capture_asks_what_envs_show(
    kernels: Kernels, gpu: HostGpu, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody tells the pool when a graph is replayed."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr("stepmill.device.open._gpu_and_stream", lambda settings: (0, lambda: CAPTURED))
    pool = make("Taxi-v3", num_envs=NUM_ENVS, backend="cuda", output="torch")

    def stay(observations: Any, env_ids: Any, generators: Any) -> Any:
        return np.zeros(len(observations), np.int64)

    pool.rollout(stay, 2)
    pool.rollout(stay, 2)  # goes on
    action = torch.zeros(NUM_ENVS, dtype=torch.int64)
    observation = pool.graph_step(action)[0]
    pool.rollout(stay, 2, observation=observation)
    pool.rollout(stay, 2)
    with capturing(kernels):
        observation = pool.graph_step(action)[0]
    pool.rollout(stay, 2, observation=observation)
    with pytest.raises(UsageError, match="what they show now is not known"):
        pool.rollout(stay, 2)
