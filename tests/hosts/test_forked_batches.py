"""Batches that a process held when it forked: parent and child keep them, and neither disturbs the other."""

from __future__ import annotations

import itertools

import pytest

from support.probes import ELSEWHERE, KINDS, VIEWS
from support.subprocesses import run_well

START = """
import copy, os
import numpy as np
import stepmill
from support.probes import assert_same, make_probe
from support.processes import child, went_well

action = np.zeros(16, np.float32)
"""
# Small batches share pages with others, large ones do not.
of_every_kind = pytest.mark.parametrize(
    ("kind", "obs_size"), [*((kind, 2) for kind in (*KINDS, *ELSEWHERE)), ("python-process", 1000)]
)


@of_every_kind
def test_a_forked_child_keeps_what_it_holds_while_the_parent_goes_on(kind: str, obs_size: int) -> None:
    out = run_well(
        START
        + f"""
pool = make_probe({kind!r}, num_envs=16, length=7, obs_size={obs_size})
kept = [pool.step(action) for _ in range(150)]
copies = copy.deepcopy(kept)
pool.send(action)
read, write = os.pipe()

def body():
    os.read(read, 1)  # until the parent has let go of everything and used the memory again
    assert_same(kept, copies)

pid = child(body)
pool.recv()
del kept
for _ in range(700):
    pool.step(action)
os.write(write, b"x")
print(went_well(pid))
pool.close()
"""
    )
    assert out.split() == ["True"]


@pytest.mark.parametrize("obs_size", [2, 1000], ids=["small", "large"])
def test_a_forked_child_keeps_it_after_the_parent_closed_its_pool(obs_size: int) -> None:
    out = run_well(
        START
        + f"""
pool = make_probe("python-process", num_envs=16, length=7, obs_size={obs_size})
kept = [pool.step(action) for _ in range(50)]
copies = copy.deepcopy(kept)
read, write = os.pipe()

def body():
    os.read(read, 1)
    assert_same(kept, copies)

pid = child(body)
del kept
pool.close()
os.write(write, b"x")
print(went_well(pid))
"""
    )
    assert out.split() == ["True"]


@of_every_kind
def test_a_child_that_drops_or_writes_its_arrays_does_not_disturb_the_parent(kind: str, obs_size: int) -> None:
    out = run_well(
        START
        + f"""
pool, twin = (make_probe(kind, num_envs=16, length=7, obs_size={obs_size}) for kind in ({kind!r}, "python"))
kept = [pool.step(action) for _ in range(100)]
expected = [twin.step(action) for _ in range(100)]

def body():
    for result in kept:
        result[0].fill(-1)
    kept.clear()

print(went_well(child(body)))
assert_same(kept, expected)
for _ in range(200):
    assert_same(pool.step(action), twin.step(action))
print(pool.stats()["batches_held"])
pool.close()
"""
    )
    assert out.split() == ["True", "100"]


@pytest.mark.slow
def test_memory_stays_flat_over_forks() -> None:
    """Children that end give back what they kept the parent from using again."""
    out = run_well(
        START
        + """
pool = make_probe("python-process", num_envs=16, length=7, obs_size=1000)

def play():
    for _ in range(30):
        kept = [pool.step(action) for _ in range(4)]
        assert went_well(child(lambda: None))
        del kept
        for _ in range(20):
            pool.step(action)
    return pool.stats()["memory_bytes"]

first = play()
print(play() - first, 16 * 1000 * 8)
pool.close()
"""
    )
    growth, batch = map(int, out.split())
    assert growth < 40 * batch


@pytest.mark.parametrize(("kind", "view"), [*itertools.product(KINDS, VIEWS), ("python-process", "gymnasium")])
def test_a_forked_child_may_not_use_the_pool_but_make_its_own(kind: str, view: str) -> None:
    out = run_well(
        START
        + f"""
pool = make_probe({kind!r}, {view!r}, num_envs=16)
pool.reset()
pool.send(action)

def refuses(call):
    try:
        call()
    except stepmill.errors.ForkedError as error:
        assert isinstance(error, RuntimeError) and "fork" in str(error)
        return True
    return False

def body():
    calls = [
        pool.recv, pool.reset, pool.async_reset, pool.stats,
        lambda: pool.send(action), lambda: pool.step(action), lambda: pool.get_attr("length"),
    ]
    assert all(map(refuses, calls)), [refuses(call) for call in calls]
    own = make_probe({kind!r}, {view!r}, num_envs=16)
    own.reset()
    own.step(action)
    own.close()
    pool.close()
    assert pool.closed

print(went_well(child(body)))
twin = make_probe("python", {view!r}, num_envs=16)
twin.reset()
assert_same(pool.recv(), twin.step(action))
assert_same(pool.step(action), twin.step(action))
print(pool.closed)
pool.close()
"""
    )
    assert out.split() == ["True", "False"]
