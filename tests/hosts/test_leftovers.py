"""Nothing is left of hundreds of pools: no thread, no descriptor, no memory."""

from __future__ import annotations

import numpy as np
import pytest

from support.probes import KINDS, START, VIEWS, make_probe
from support.processes import descriptor_count, new_threads, threads
from support.subprocesses import run_well


def assert_nothing_left(body: str) -> None:
    """Runs ``body`` (a function ``once``) many times: threads, descriptors and memory end where they were."""
    out = run_well(
        START
        + """
import gc
"""
        + body
        + """
for _ in range(20):
    once()
gc.collect()
before = threads(), descriptor_count(), resident_bytes()
for _ in range(200):
    once()
gc.collect()
after = new_threads(before[0]), descriptor_count(), resident_bytes()
print(after[0], after[1] - before[1], after[2] - before[2])
"""
    )
    started, descriptors, memory = map(int, out.split())
    assert (started, descriptors) == (0, 0)
    assert memory < 2_000_000


BUSY = "work=2000, num_threads=2, num_envs=64"  # enough for threads to be started


@pytest.mark.parametrize("end", ["pool.close()", "del pool", "pool.send(np.zeros(64)); pool.close()", "pool.me = pool"])
@pytest.mark.parametrize("view", VIEWS)
def test_two_hundred_native_pools_leave_nothing(view: str, end: str) -> None:
    assert_nothing_left(
        f"""
def once():
    pool = make_probe("native", {view!r}, {BUSY})
    pool.reset()
    for _ in range(3):
        pool.step(np.zeros(64))
    {end}
"""
    )


@pytest.mark.parametrize("end", ["pool.close()", "del pool", "pool.send(np.zeros(4)); del pool"])
def test_two_hundred_python_pools_leave_nothing(end: str) -> None:
    assert_nothing_left(
        f"""
def once():
    pool = make_probe("python", num_envs=4)
    pool.reset()
    pool.step(np.zeros(4))
    {end}
"""
    )


@pytest.mark.parametrize("kind", KINDS)
def test_two_hundred_failures_leave_nothing(kind: str) -> None:
    assert_nothing_left(
        f"""
def once():
    try:
        make_probe({kind!r}, num_envs=4, fail_in="constructor")
    except stepmill.EnvError:
        pass
    pool = make_probe({kind!r}, num_envs=4, fail_in="step")
    pool.reset()
    try:
        pool.step(np.zeros(4))
    except stepmill.EnvError as error:
        assert len(error.errors) == 4
"""
    )


@pytest.mark.parametrize("kind", KINDS)
def test_thousands_of_checkpoints_leave_nothing(kind: str) -> None:
    """Also of a pool that could not be resumed."""
    assert_nothing_left(
        f"""
import io
writer = make_probe({kind!r}, num_envs=8, batch_size=3, backend="inline", info=True)
writer.async_reset()
def once():
    for _ in range(10):
        ids = writer.recv()[4]["env_id"]
        writer.send(np.zeros(len(ids), np.float32), ids)
        writer.checkpoint(file := io.BytesIO())
    file.seek(0)
    with stepmill.resume(file) as pool:
        assert pool.in_flight == writer.in_flight
    file.seek(0)
    try:
        stepmill.resume(file, "CartPole-v1")
    except stepmill.errors.StepmillError:
        pass
"""
    )


def test_threads_were_running_in_the_tests_above() -> None:
    before = threads()
    with make_probe("native", num_envs=64, num_threads=2, work=200_000) as pool:
        pool.reset()
        pool.step(np.zeros(64))
        pool.step(np.zeros(64))
        assert threads() - before
    assert new_threads(before) == 0
    assert descriptor_count() > 0
