"""What is handed out stays as it was, for as long as anyone holds any part of it, and not a byte longer."""

from __future__ import annotations

import copy
import gc
import itertools
import weakref
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import stepmill
from support.envs import Plain
from support.probes import KINDS, MODES, VIEWS, assert_same, leaves, make_probe, seen
from support.subprocesses import run_well

N = 4


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


@pytest.mark.parametrize("batch_size", [N, 2], ids=["sync", "async"])
@pytest.mark.parametrize("mode", MODES[:2])
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_thousand_batches_still_hold_what_they_held(kind: str, view: str, mode: str, batch_size: int) -> None:
    with make_probe(kind, view, num_envs=N, batch_size=batch_size, autoreset=mode, length=5) as pool:
        kept, copies = [], []
        for turn in range(1000):
            (result,) = play(pool, 1, turn)
            kept.append(result)
            copies.append(copy.deepcopy(result))
        play(pool, 300)  # over what could be recycled
        for result, before in zip(kept, copies, strict=True):
            assert_same(result, before)


@pytest.mark.parametrize("kind", KINDS)
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


@pytest.mark.parametrize("kind", KINDS)
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


class Nested(gymnasium.Env[Any, Any]):
    """Dict and Tuple observations, and an info with arrays in it."""

    action_space = spaces.Box(-1, 1, (), np.float32)
    observation_space = spaces.Dict(
        {
            "image": spaces.Box(0, 255, (3, 4), np.uint8),
            "pair": spaces.Tuple([spaces.Discrete(1000), spaces.MultiBinary(3)]),
        }
    )

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        self.steps = 0
        return self.observe()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        obs, info = self.observe()
        return obs, float(action), self.steps == 7, False, info

    def observe(self) -> tuple[Any, dict[str, Any]]:
        obs = {
            "image": np.full((3, 4), self.steps, np.uint8),
            "pair": (self.steps, np.full(3, self.steps % 2, np.int8)),
        }
        return obs, {"speed": self.steps / 2, "place": np.full(2, self.steps), "deep": {"er": self.steps}}


@pytest.mark.parametrize("mode", MODES[:2])
@pytest.mark.parametrize("task", [Nested, "Blackjack-v1", "Taxi-v4"], ids=["nested", "native-tuple", "native-info"])
def test_observations_of_many_parts_and_infos_are_kept(task: Any, mode: str) -> None:
    with stepmill.make(task, num_envs=N, autoreset=mode, backend="inline") as pool:
        kept, copies = [pool.reset()], []
        kept += [pool.step(np.zeros(N, int)) for _ in range(300)]
        copies = copy.deepcopy(kept)
        for _ in range(300):
            pool.step(np.zeros(N, int))
        for result, before in zip(kept, copies, strict=True):
            assert_same(result, before)


def test_an_env_that_reuses_its_arrays_does_not_change_what_was_handed_out() -> None:
    class Reusing(Nested):
        observation_space = spaces.Box(0, 1e9, (2,), np.float64)

        def reset(self, **_: Any) -> tuple[Any, dict[str, Any]]:
            self.obs = np.zeros(2)
            self.numbers = np.zeros(2)
            return self.obs, {"numbers": self.numbers}

        def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
            self.obs += 1
            self.numbers += 1
            return self.obs, 0.0, False, False, {"numbers": self.numbers}

    with stepmill.make(Reusing, num_envs=2, backend="inline") as pool:
        pool.reset()
        kept = [pool.step(np.zeros(2)) for _ in range(10)]
        for turn, result in enumerate(kept, 1):
            assert result[0].tolist() == [[turn, turn]] * 2
            assert result[4]["numbers"].tolist() == [[turn, turn]] * 2


@pytest.mark.parametrize("end", ["close", "collect"])
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("kind", KINDS)
def test_batches_outlive_their_pool(kind: str, view: str, end: str) -> None:
    pool = make_probe(kind, view, num_envs=N, length=5)
    kept = play(pool, 100)
    copies = copy.deepcopy(kept)
    if end == "close":
        pool.close()
    del pool
    gc.collect()
    with make_probe(kind, view, num_envs=N) as other:
        play(other, 100)
    for result, before in zip(kept, copies, strict=True):
        assert_same(result, before)


# ---- the caller's own ----------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [N, 2], ids=["sync", "async"])
@pytest.mark.parametrize("kind", KINDS)
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


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_caller_writes_into_a_batch_stays_there(kind: str) -> None:
    with make_probe(kind, num_envs=N) as pool, make_probe(kind, num_envs=N) as twin:
        for turn in range(50):
            result = pool.step(actions(turn))
            assert_same(result, twin.step(actions(turn)))
            for array in leaves(result):
                if array.flags.writeable:
                    array.fill(77)


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


@pytest.mark.parametrize("kind", KINDS)
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


# ---- fork ----------------------------------------------------------------------------------------

FORK = """
import copy, os, sys
import numpy as np
import stepmill
from support.processes import child, went_well
from support.probes import KINDS, assert_same, make_probe

action = np.zeros(64, np.float32)
"""


@pytest.mark.parametrize("kind", KINDS)
def test_a_forked_child_keeps_what_it_holds_while_the_parent_goes_on(kind: str) -> None:
    out = run_well(
        FORK
        + f"""
pool = make_probe({kind!r}, num_envs=64, length=7)
kept = [pool.step(action) for _ in range(300)]
copies = copy.deepcopy(kept)
tell, hear = os.pipe()[::-1], os.pipe()

def body():
    os.read(tell[1], 1)  # until the parent has let go of everything and used the memory again
    for result, before in zip(kept, copies, strict=True):
        assert_same(result, before)

pid = child(body)
del kept
for _ in range(600):
    pool.step(action)
os.write(tell[0], b"x")
print(went_well(pid))
"""
    )
    assert out.split() == ["True"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_child_that_drops_or_writes_its_arrays_does_not_disturb_the_parent(kind: str) -> None:
    out = run_well(
        FORK
        + f"""
pool = make_probe({kind!r}, num_envs=64, length=7)
twin = make_probe({kind!r}, num_envs=64, length=7)
kept = [pool.step(action) for _ in range(300)]
expected = [twin.step(action) for _ in range(300)]

def body():
    for result in kept:
        result[0].fill(-1)
    kept.clear()

print(went_well(child(body)))
for result, right in zip(kept, expected, strict=True):
    assert_same(result, right)
for _ in range(300):
    assert_same(pool.step(action), twin.step(action))
print(pool.stats()["batches_held"])
"""
    )
    assert out.split() == ["True", "300"]


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_forked_child_may_not_use_the_pool_but_make_its_own(kind: str, view: str) -> None:
    out = run_well(
        FORK
        + f"""
pool = make_probe({kind!r}, {view!r}, num_envs=64)
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
    own = make_probe({kind!r}, {view!r}, num_envs=64)
    own.reset()
    own.step(action)
    own.close()
    pool.close()
    assert pool.closed

print(went_well(child(body)))
pool.recv()
pool.step(action)
print(pool.closed)
"""
    )
    assert out.split() == ["True", "False"]


def test_a_pool_whose_env_refers_to_it_is_collected() -> None:
    pool = stepmill.make(Plain, num_envs=2, backend="inline")
    pool.reset()
    pool.set_attr("owner", [pool, pool])
    seen = weakref.ref(pool)
    del pool
    gc.collect()
    assert seen() is None
