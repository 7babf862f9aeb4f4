"""Tensors own their memory as arrays do: never overwritten, given back when the last of them is gone."""

from __future__ import annotations

import copy
import gc
import pickle
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from support.probes import KINDS, VIEWS, make_probe
from support.subprocesses import run_well

N = 4


def actions(turn: int) -> torch.Tensor:
    return torch.full((N,), (turn % 17) / 16)


def play(pool: Any, turns: int, first: int = 0) -> list[Any]:
    return [pool.step(actions(turn)) for turn in range(first, first + turns)]


def tensors_of(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [one for child in value for one in tensors_of(child)] if isinstance(value, list | tuple) else []


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("kind", KINDS)
def test_many_batches_still_hold_what_they_held(kind: str, view: str, mode: str) -> None:
    with make_probe(kind, view, num_envs=N, autoreset=mode, length=5, output="torch") as pool:
        kept = [tensors_of(result) for result in play(pool, 600)]
        copies = copy.deepcopy(kept)
        play(pool, 300)  # over what could be recycled
        for batch, before in zip(kept, copies, strict=True):
            assert all(map(torch.equal, batch, before))


PARTS: dict[str, Callable[[torch.Tensor], Any]] = {
    "slice": lambda tensor: tensor[1:3],
    "row": lambda tensor: tensor[2],
    "view": lambda tensor: tensor.view(-1),
    "transposed": lambda tensor: tensor.T,
    "detached": lambda tensor: tensor.detach(),
    "unbound": lambda tensor: tensor.unbind()[1],
    "reinterpreted": lambda tensor: tensor.view(torch.uint8),
    "numpy": lambda tensor: tensor.numpy(),
    "slice-of-numpy": lambda tensor: tensor.numpy()[1:],
    "dlpack": torch.from_dlpack,
    "memoryview": lambda tensor: memoryview(tensor.numpy()),
    "storage": lambda tensor: torch.tensor([], dtype=tensor.dtype).set_(tensor.untyped_storage(), 0, (N,)),
}


@pytest.mark.filterwarnings("ignore:The use of `x.T`")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", PARTS)
def test_a_part_keeps_the_batch_alive(kind: str, name: str) -> None:
    with make_probe(kind, num_envs=N, output="torch") as pool:
        parts, copies = [], []
        for turn in range(50):
            for tensor in pool.step(actions(turn))[:2]:
                parts.append(PARTS[name](tensor))
                copies.append(np.asarray(parts[-1]).copy())
        del tensor
        assert pool.stats()["batches_held"] == 50
        play(pool, 200)
        for part, before in zip(parts, copies, strict=True):
            np.testing.assert_array_equal(np.asarray(part), before)
        del parts, part
        assert pool.stats()["batches_held"] == 0


@pytest.mark.parametrize("kind", KINDS)
def test_tensors_that_are_let_go_in_any_order_give_the_batch_back(kind: str) -> None:
    draw = random.Random(0)
    with make_probe(kind, num_envs=N, output="torch") as pool:
        kept = [one for result in play(pool, 50) for one in tensors_of(result)]
        assert pool.stats()["batches_held"] == 50
        draw.shuffle(kept)
        while kept:
            kept.pop()
        assert pool.stats()["batches_held"] == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_tensor_in_a_graph_keeps_its_batch_until_the_graph_is_gone(kind: str) -> None:
    with make_probe(kind, num_envs=N, output="torch") as pool:
        obs = pool.step(actions(0))[0]
        expected = obs.clone()
        weight = torch.ones(2, dtype=torch.float64, requires_grad=True)
        loss = (obs * weight).sum()
        del obs
        play(pool, 300)
        assert pool.stats()["batches_held"] == 1
        loss.backward()  # needs the observation
        assert weight.grad is not None
        assert torch.equal(weight.grad, expected.sum(0))
        del loss
        assert pool.stats()["batches_held"] == 0


def test_what_the_caller_writes_into_a_tensor_stays_there() -> None:
    with make_probe("native", num_envs=N, output="torch") as pool, make_probe("native", num_envs=N) as twin:
        for turn in range(50):
            result = pool.step(actions(turn))
            assert torch.equal(result[0], torch.from_numpy(twin.step(actions(turn))[0]))
            for tensor in tensors_of(result):
                tensor.fill_(1)


def test_a_pickled_tensor_is_a_copy_of_what_it_shows() -> None:
    with make_probe("native", num_envs=N, output="torch") as pool:
        obs = pool.step(actions(3))[0]
        stored = pickle.dumps(obs)
        assert len(stored) < 1000  # not the whole batch
        before = obs.clone()
        obs.zero_()
        assert torch.equal(pickle.loads(stored), before)
        assert torch.equal(copy.deepcopy(before), before)


@pytest.mark.parametrize("end", ["close", "collect"])
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("kind", KINDS)
def test_tensors_outlive_their_pool(kind: str, view: str, end: str) -> None:
    pool = make_probe(kind, view, num_envs=N, output="torch")
    kept = [tensors_of(result) for result in play(pool, 50)]
    copies = copy.deepcopy(kept)
    if end == "close":
        pool.close()
    del pool
    gc.collect()
    with make_probe(kind, view, num_envs=N, output="torch") as other:
        play(other, 50)
    for batch, before in zip(kept, copies, strict=True):
        assert all(map(torch.equal, batch, before))


HOLD = """
import numpy as np
import torch
from support.probes import make_probe
from support.processes import resident_bytes

# 64 KiB of observations a batch, 64 MiB in all.
pool = make_probe("native", num_envs=8, obs_size=1024, length=10, output="torch")
action = torch.zeros(8)
for _ in range(600):
    pool.step(action)
before = resident_bytes()
kept = [pool.step(action)[0] for _ in range(1000)]
held = resident_bytes() - before
"""


def test_memory_of_dropped_tensors_goes_back() -> None:
    out = run_well(
        HOLD
        + """
expected = [one.clone() for one in kept[::100]]
part = kept[500][3:5]
before_part = part.clone()
del kept[1::2]
for _ in range(800):  # the store remembers for two windows of 256 batches how many were held at once
    pool.step(action)
half = resident_bytes() - before
assert all(map(torch.equal, kept[::50], expected))
del kept, expected
for _ in range(800):
    pool.step(action)
assert torch.equal(part, before_part)
print(held, half, resident_bytes() - before)
"""
    )
    held, half, left = map(int, out.split())
    assert held > 50 << 20
    assert half < held * 3 // 4 + (4 << 20)
    assert left < 8 << 20


def test_after_close_only_tensors_that_are_held_pin_memory() -> None:
    out = run_well(
        HOLD
        + """
pool.close()
del kept[50:]
fifty = resident_bytes() - before
value = kept[49].sum()
del kept
print(held, fifty, resident_bytes() - before)
"""
    )
    held, fifty, left = map(int, out.split())
    assert held > 50 << 20
    assert fifty < 12 << 20
    assert left < 8 << 20


def test_a_forked_child_keeps_its_tensors_while_the_parent_goes_on() -> None:
    out = run_well(
        """
import os
import torch
from support.processes import child, went_well
from support.probes import make_probe

torch.set_num_threads(1)
action = torch.zeros(64)
pool = make_probe("native", num_envs=64, length=7, output="torch")
kept = [pool.step(action)[0] for _ in range(200)]
copies = [one.clone() for one in kept]
hear, tell = os.pipe()

def body():
    os.read(hear, 1)  # until the parent has let go of everything and used the memory again
    for one, before in zip(kept, copies, strict=True):
        assert (one.numpy() == before.numpy()).all()

pid = child(body)
del kept
for _ in range(400):
    pool.step(action)
os.write(tell, b"x")
print(went_well(pid))
"""
    )
    assert out.split() == ["True"]
