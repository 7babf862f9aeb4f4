"""What is handed out stays as it was, for as long as anyone holds any part of it, and not a byte longer."""

from __future__ import annotations

import copy
import gc
import itertools
import weakref
from typing import Any

import numpy as np
import pytest

import stepmill
from support import backends as playing
from support.backends import INLINE, PROCESSES, TWO, Backend
from support.envs import FailingEnv, Plain
from support.envs.many_spaces import WildEnv
from support.probes import ELSEWHERE, KINDS, MODES, VIEWS, assert_same, leaves, make_probe, seen
from support.subprocesses import run_well

N = 4

every_kind = pytest.mark.parametrize("kind", [*KINDS, *ELSEWHERE])


def actions(turn: int, count: int = N) -> np.ndarray:
    return np.full(count, (turn % 17) / 16, np.float32)


def play(pool: Any, turns: int, first: int = 0) -> list[Any]:
    """The results of so many turns, sync or async."""
    if not pool.is_async:
        return [pool.step(actions(turn)) for turn in range(first, first + turns)]
    if pool.stats()["in_flight"] == 0:
        pool.async_reset()
        pool.recv()
    results = []
    for turn in range(first, first + turns):
        pool.send(actions(turn, pool.batch_size))
        results.append(pool.recv())
    return results


# ---- kept as it was ------------------------------------------------------------------------------


# All views and modes, and in worker processes, where steps take longer, each of them once.
CASES = [*itertools.product(KINDS, VIEWS, MODES[:2])]
CASES += [(kind, view, mode) for kind in ELSEWHERE for view, mode in zip(VIEWS, (*MODES[:2], MODES[0]), strict=True)]


@pytest.mark.parametrize("batch_size", [N, 2], ids=["sync", "async"])
@pytest.mark.parametrize(("kind", "view", "mode"), CASES)
def test_hundreds_of_batches_still_hold_what_they_held(kind: str, view: str, mode: str, batch_size: int) -> None:
    with make_probe(kind, view, num_envs=N, batch_size=batch_size, autoreset=mode, length=5) as pool:
        kept, copies = [], []
        for turn in range(1000 if kind in KINDS else 400):
            (result,) = play(pool, 1, turn)
            kept.append(result)
            copies.append(copy.deepcopy(result))
        play(pool, 300)  # over what could be recycled
        for result, before in zip(kept, copies, strict=True):
            assert_same(result, before)


@every_kind
def test_batches_of_resets_are_kept_too(kind: str) -> None:
    with make_probe(kind, num_envs=N) as pool:
        kept = [pool.reset([i % N, (i + 1) % N]) for i in range(200)]
        copies = copy.deepcopy(kept)
        play(pool, 300)
        for result, before in zip(kept, copies, strict=True):
            assert_same(result, before)


PARTS = {
    "slice": lambda array: array[1:3],
    "row": lambda array: array[2],
    "reversed": lambda array: array[::-1],
    "transposed": lambda array: array.T,
    "reshaped": lambda array: array.reshape(-1),
    "reinterpreted": lambda array: array.view(np.uint8),
    "flat": lambda array: array.flat,
    "memoryview": memoryview,
    "dlpack": np.from_dlpack,
    "slice-of-dlpack": lambda array: np.from_dlpack(array)[1:],
    "array-interface": lambda array: np.asarray(memoryview(array)),
}


@every_kind
@pytest.mark.parametrize("name", PARTS)
def test_a_part_keeps_the_batch_alive(kind: str, name: str) -> None:
    with make_probe(kind, num_envs=N, length=5) as pool:
        parts, copies = [], []
        for turn in range(100):
            for array in leaves(pool.step(actions(turn))):
                if not array.flags.writeable:
                    continue  # shared by all batches: see below
                parts.append(PARTS[name](array))
                copies.append(np.array(parts[-1]))
        play(pool, 300)
        for part, before in zip(parts, copies, strict=True):
            np.testing.assert_array_equal(np.array(part), before)


@pytest.mark.torch
@pytest.mark.parametrize("kind", KINDS)
def test_torch_tensors_keep_the_batch_alive(kind: str) -> None:
    import torch

    with make_probe(kind, num_envs=N, length=5) as pool:
        tensors, copies = [], []
        for turn in range(100):
            obs, reward, terminated, *_ = pool.step(actions(turn))
            tensors += [torch.from_numpy(obs), torch.from_dlpack(reward), torch.as_tensor(terminated)[1:]]
            copies += [tensor.clone() for tensor in tensors[-3:]]
        del obs, reward, terminated
        play(pool, 300)
        assert all(torch.equal(tensor, before) for tensor, before in zip(tensors, copies, strict=True))


@pytest.mark.parametrize("mode", MODES[:2])
@pytest.mark.parametrize(
    ("task", "backend"),
    [(WildEnv, INLINE), *[(WildEnv, one) for one in PROCESSES], ("Blackjack-v1", INLINE), ("Taxi-v4", INLINE)],
    ids=lambda value: value if isinstance(value, str) else getattr(value, "__name__", str(value)),
)
def test_observations_of_many_parts_and_infos_are_kept(task: Any, backend: Backend, mode: str) -> None:
    with backend.make(task, num_envs=N, autoreset=mode) as pool:
        kept = playing.play(pool, 60)
        copies = copy.deepcopy(kept)
        playing.play(pool, 60, seed=1)
        assert_same(kept, copies)


@pytest.mark.parametrize("end", ["close", "collect"])
@pytest.mark.parametrize(
    ("kind", "view"), [*itertools.product(KINDS, VIEWS), *[(kind, "gymnasium") for kind in ELSEWHERE]]
)
def test_batches_outlive_their_pool(kind: str, view: str, end: str) -> None:
    pool = make_probe(kind, view, num_envs=N, length=5)
    kept = play(pool, 100)
    copies = copy.deepcopy(kept)
    if end == "close":
        pool.close()
    del pool
    gc.collect()
    with make_probe(kind, view, num_envs=N) as other:  # which may well be given the same addresses
        play(other, 100)
    for result, before in zip(kept, copies, strict=True):
        assert_same(result, before)


# ---- the caller's own ----------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [N, 2], ids=["sync", "async"])
@every_kind
def test_arrays_of_different_batches_never_overlap(kind: str, batch_size: int) -> None:
    with make_probe(kind, num_envs=N, batch_size=batch_size, autoreset="same_step", length=3) as pool:
        spans = []
        kept = play(pool, 300)
        for number, result in enumerate(kept):
            for array in leaves(result):
                if array.flags.writeable:
                    start = array.__array_interface__["data"][0]
                    spans.append((start, start + array.nbytes, number))
        spans.sort()
        for (_, end, left), (start, _, right) in itertools.pairwise(spans):
            assert left == right or end <= start


@every_kind
def test_what_the_caller_writes_into_a_batch_stays_there_and_reaches_no_env(kind: str) -> None:
    with make_probe(kind, num_envs=N, length=5) as pool, make_probe("python", num_envs=N, length=5) as twin:
        kept = []
        for turn in range(50):
            kept.append(pool.step(actions(turn)))
            assert_same(kept[-1], twin.step(actions(turn)))
            for array in leaves(kept[-1]):
                if array.flags.writeable:
                    array.fill(7)
        for result in kept:
            assert all((array == array.dtype.type(7)).all() for array in leaves(result) if array.flags.writeable)


def test_the_batch_of_an_error_is_kept() -> None:
    with TWO.make(FailingEnv, num_envs=3, fail_in="step", fail_at={2}) as pool:
        pool.reset()
        pool.step([0] * 3)
        with pytest.raises(stepmill.EnvError) as caught:
            pool.step([1] * 3)
        before = copy.deepcopy(caught.value.batch)
        for _ in range(200):
            pool.step([1] * 3)
        assert_same(caught.value.batch, before)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("kind", KINDS)
def test_arrays_shared_by_all_batches_are_read_only(kind: str, view: str) -> None:
    with make_probe(kind, view, num_envs=N) as pool:
        first, second = (seen(view, pool.step(actions(turn))).info for turn in range(2))
        assert np.shares_memory(first["env_id"], second["env_id"])
        for ids in (first["env_id"], *([] if view == "gymnasium" else [first["players"]["env_id"]])):
            with pytest.raises(ValueError, match="read-only"):
                ids[0] = 3
            with pytest.raises(ValueError, match="WRITEABLE"):
                ids.flags.writeable = True
        assert second["env_id"].tolist() == list(range(N))


def test_the_masks_of_native_infos_are_read_only() -> None:
    with stepmill.make("Taxi-v4", num_envs=N) as pool:
        info = pool.reset()[1]
        assert "_action_mask" in info
        with pytest.raises(ValueError, match="read-only"):
            info["_action_mask"][0] = False


@every_kind
def test_letting_a_batch_go_gives_it_back_at_once(kind: str) -> None:
    with make_probe(kind, num_envs=N) as pool:
        kept = play(pool, 50)
        assert pool.stats()["batches_held"] == 50
        part = kept[10][0][1:, :1]
        del kept
        assert pool.stats()["batches_held"] == 1
        del part
        assert pool.stats()["batches_held"] == 0


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("kind", KINDS)
def test_an_error_that_is_let_go_of_lets_its_batch_go(kind: str, view: str) -> None:
    with make_probe(kind, view, num_envs=N, fail_in="step", fail_count=100) as pool:
        pool.reset()
        gc.disable()
        try:
            for _ in range(5):
                with pytest.raises(stepmill.EnvError):
                    pool.step(actions(0))
                pool.step(actions(0))
            assert pool.stats()["batches_held"] == 0
        finally:
            gc.enable()


# ---- memory --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [1000, 500], ids=["sync", "async"])
@pytest.mark.parametrize("view", VIEWS)
def test_resident_size_is_flat_over_a_million_steps(view: str, batch_size: int) -> None:
    out = run_well(
        f"""
        import numpy as np
        import stepmill
        from support.processes import resident_bytes

        pool = stepmill.make("CartPole-v1", {view!r}, num_envs=1000, batch_size={batch_size})
        action = np.ones({batch_size}, np.int64)
        pool.async_reset()
        pool.recv()

        def play(steps):
            for _ in range(steps // {batch_size}):
                pool.send(action)
                pool.recv()

        play(200_000)
        before = resident_bytes()
        play(1_000_000)
        print(resident_bytes() - before)
        """
    )
    assert int(out) < 1_000_000


def test_resident_size_of_python_envs_is_flat() -> None:
    out = run_well(
        """
        import numpy as np
        from support.probes import make_probe
        from support.processes import resident_bytes

        pool = make_probe("python", num_envs=50, length=10)
        action = np.zeros(50, np.float32)
        for _ in range(200):
            pool.step(action)
        before = resident_bytes()
        for _ in range(1000):
            pool.step(action)
        print(resident_bytes() - before)
        """
    )
    assert int(out) < 1_000_000


HOLD = """
import numpy as np
from support.probes import make_probe
from support.processes import resident_bytes

# 64 KiB of observations a batch, 128 MiB in all.
pool = make_probe("native", num_envs=8, obs_size=1024, length=10)
action = np.zeros(8, np.float32)
for _ in range(600):
    pool.step(action)
before = resident_bytes()
kept = [pool.step(action) for _ in range(2000)]
held = resident_bytes() - before
"""


def test_memory_of_dropped_batches_goes_back() -> None:
    out = run_well(
        HOLD
        + """
del kept
for _ in range(800):  # the store remembers for two windows of 256 batches how many were held at once
    pool.step(action)
print(held, resident_bytes() - before)
"""
    )
    held, left = map(int, out.split())
    assert held > 100 << 20
    assert left < 8 << 20


def test_after_close_only_held_batches_pin_memory() -> None:
    out = run_well(
        HOLD
        + """
pool.close()
del kept[100:]
hundred = resident_bytes() - before
value = kept[99][0].sum()
del kept
print(held, hundred, resident_bytes() - before)
"""
    )
    held, hundred, left = map(int, out.split())
    assert held > 100 << 20
    assert hundred < 16 << 20
    assert left < 8 << 20


@pytest.mark.parametrize("batch_size", [N, 2], ids=["sync", "async"])
@pytest.mark.parametrize("kind", ELSEWHERE)
def test_memory_of_a_pool_is_flat_when_batches_are_dropped(kind: str, batch_size: int) -> None:
    with make_probe(kind, num_envs=N, batch_size=batch_size, length=5, obs_size=500) as pool:
        play(pool, 50)
        before = pool.stats()["memory_bytes"]
        for turn in range(500):
            play(pool, 1, turn)
        assert pool.stats()["memory_bytes"] == before


@pytest.mark.slow
def test_resident_size_is_flat_in_caller_and_workers() -> None:
    """With infos, text and resets that carry options, all of which go through more than the batches."""
    out = run_well(
        """
        import gc
        import numpy as np
        import stepmill
        from support.backends import Actor
        from support.envs.many_spaces import WildEnv

        def own_bytes(pid):
            '''What a process has for itself, whatever files others map beside it.'''
            with open(f"/proc/{pid}/status") as lines:
                return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))

        pool = stepmill.make(WildEnv, num_envs=8, backend="process", num_workers=2, autoreset="same_step")
        act = Actor(pool)
        actions = [act(8) for _ in range(50)]
        pool.reset()

        def play(rounds):
            for _ in range(rounds):
                pool.reset([1, 5], options={"text": "x" * 1000})
                pool.call("render")
                for action in actions:
                    pool.step(action)
            gc.collect()
            return [own_bytes(pid) for pid in ("self", *(worker["pid"] for worker in pool.stats()["workers"]))]

        before = play(8)
        print(*(after - first for first, after in zip(before, play(20))))
        pool.close()
        """
    )
    growth = list(map(int, out.split()))
    assert len(growth) == 3
    assert max(growth) < 1_000_000


def test_memory_that_workers_share_goes_back() -> None:
    """64 KiB of observations a batch, 32 MiB in all: back to the machine when they are let go of, and after close."""
    out = run_well(
        """
        import os
        import numpy as np
        import stepmill
        from support.envs import ProbeTwin

        def arena_bytes():
            '''What the memory that caller and workers share takes.'''
            sizes = {}
            for name in os.listdir("/proc/self/fd"):
                try:
                    if "memfd:stepmill" in os.readlink(f"/proc/self/fd/{name}"):
                        status = os.stat(f"/proc/self/fd/{name}")
                        sizes[status.st_ino] = status.st_blocks * 512
                except FileNotFoundError:
                    pass
            return sum(sizes.values())

        def mapped():
            with open("/proc/self/maps") as lines:
                return sum("memfd:stepmill" in line for line in lines)

        pool = stepmill.make(ProbeTwin, num_envs=8, obs_size=1024, backend="process", num_workers=2)
        action = np.zeros(8, np.float32)
        for _ in range(30):
            pool.step(action)
        before = arena_bytes()
        kept = [pool.step(action) for _ in range(500)]
        held = arena_bytes() - before
        del kept
        for _ in range(800):  # the store remembers for two windows of 256 batches how many were held at once
            pool.step(action)
        dropped = arena_bytes() - before
        last = pool.step(action)
        pool.close()
        pinned = mapped()
        assert np.isfinite(last[0]).all()
        del last
        print(held, dropped, pinned > 0, mapped())
        """
    )
    held, dropped, pinned, left = out.split()
    assert int(held) > 30 << 20
    assert int(dropped) < 4 << 20
    assert (pinned, left) == ("True", "0")


def test_a_pool_whose_env_refers_to_it_is_collected() -> None:
    pool = stepmill.make(Plain, num_envs=2, backend="inline")
    pool.reset()
    pool.set_attr("owner", [pool, pool])
    seen = weakref.ref(pool)
    del pool
    gc.collect()
    assert seen() is None
