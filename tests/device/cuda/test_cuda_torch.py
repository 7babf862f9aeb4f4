"""Pools on a GPU that hand out tensors: what those of numpy say, owned by the caller; and steps for CUDA graphs."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepmill
from stepmill import errors
from support.cuda_pools import HostGpu
from support.own_env import SPEC, own_env
from support.probes import VIEWS

torch = pytest.importorskip("torch")

N = 4
TASK = "CartPole-v1"
MODES = ("next_step", "same_step")

pytestmark = pytest.mark.torch


@pytest.fixture
def make_pool(gpu: HostGpu) -> Iterator[Callable[..., Any]]:
    """``make_pool(view)`` with tensors; afterwards nothing of the GPU is in use."""
    gc.collect()
    before, made = gpu.left(), []

    def make(view: str = "gymnasium", task: str = TASK, **arguments: Any) -> Any:
        arguments = {"num_envs": N, "seed": 5, "output": "torch", **arguments}
        made.append(stepmill.make(task, view, backend="cuda", **arguments))
        return made[-1]

    yield make
    while made:
        made.pop().close()
    gc.collect()
    assert gpu.left() == before


def ones() -> Any:
    return torch.ones(N, dtype=torch.int64)


def info_of(view: str, result: Any) -> Any:
    return result.observation.info if view == "dm" else result[-1]


def shown(view: str, result: Any) -> list[Any]:
    """All but infos, in order."""
    if view == "dm":
        return [result.step_type, result.reward, result.discount, result.observation.obs]
    return list(result[:-1])


def tensors(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [one for part in value.values() for one in tensors(part)]
    if isinstance(value, tuple):
        return [one for part in value for one in tensors(part)]
    return [] if value is None else [value]


def assert_says(view: str, got: Any, expected: Any) -> None:
    """Tensors say what arrays of numpy say; infos do where their masks are true."""
    for one, other in zip(shown(view, got), shown(view, expected), strict=True):
        assert isinstance(one, torch.Tensor)
        assert one.numpy().dtype == (np.float32 if other.dtype == np.float64 else other.dtype)
        np.testing.assert_array_equal(one.numpy(), other)
    infos, plain = info_of(view, got), info_of(view, expected)
    for key in ("env_id", "elapsed_step", "TimeLimit.truncated"):
        if key in plain:
            np.testing.assert_array_equal(infos[key].numpy(), plain[key])
    for key in ("episode_return", "episode_length", "final_obs"):
        if f"_{key}" in infos:
            has = infos[f"_{key}"].numpy()
            assert has.tolist() == (plain[f"_{key}"].tolist() if key in plain else [False] * len(has))
            for row in np.flatnonzero(has):
                np.testing.assert_array_equal(infos[key][row].numpy(), plain[key][row])


@pytest.mark.parametrize("mode", [*MODES, "disabled"])
@pytest.mark.parametrize("view", VIEWS)
def test_tensors_say_what_arrays_of_numpy_say(make_pool: Any, view: str, mode: str) -> None:
    pool, plain = (make_pool(view, autoreset=mode, max_episode_steps=6, output=one) for one in ("torch", "numpy"))

    def both(call: Callable[[Any], Any]) -> Any:
        got, expected = call(pool), call(plain)
        if view != "gym" and len(got) != 2:
            assert_says(view, got, expected)
        return expected

    def step(tensor: Any, array: np.ndarray, one: Any) -> Any:
        return one.step(tensor if one is pool else array)

    both(lambda one: one.reset())
    for i in range(20):
        action = np.array([i % 2, 1, 0, 1])
        both(functools.partial(step, torch.as_tensor(action), action))
        if mode == "disabled" and (i + 1) % 6 == 0:
            both(lambda one: one.reset())
    both(lambda one: one.reset([2, 0]))
    both(lambda one: one.step([1, 0], [2, 1]))
    both(lambda one: one.reset(options={"reset_mask": np.arange(N) % 2 == 0}))
    both(lambda one: one.fork(0, [3]))
    both(lambda one: (one.send([1], [3]), one.send([1], [1]), one.recv())[-1])


def test_a_result_is_the_caller_s_own(make_pool: Any) -> None:
    pool, plain = make_pool(), make_pool(output="numpy")
    kept, expected = [], []
    for i in range(30):
        kept.append(pool.reset([1]) if i == 7 else pool.step([1], [2]) if i == 9 else pool.step(ones()))
        expected.append(plain.reset([1]) if i == 7 else plain.step([1], [2]) if i == 9 else plain.step(np.ones(N, int)))
    for got, other in zip(kept, expected, strict=True):
        np.testing.assert_array_equal(got[0].numpy(), other[0])
    for got in kept:
        for one in tensors(got):
            one.fill_(1)
    np.testing.assert_array_equal(pool.step(ones())[0].numpy(), plain.step(np.ones(N, int))[0])


def test_memory_is_used_again_when_the_last_tensor_is_dropped(make_pool: Any, gpu: HostGpu) -> None:
    pool = make_pool()
    kept = [pool.step(ones()) for _ in range(5)]
    kept = [one[0] for one in kept]  # each keeps its batch
    for _ in range(3):
        pool.step(ones())
    more = gpu.left()
    for _ in range(20):
        pool.step(ones())
    assert gpu.left() == more
    kept.clear()
    kept = [pool.step(ones()) for _ in range(5)]
    assert gpu.left() == more


def test_tensors_outlive_their_pool(make_pool: Any, gpu: HostGpu) -> None:
    pool = make_pool()
    observation = pool.step(ones())[0]
    values = observation.numpy().copy()
    pool.close()
    del pool
    gc.collect()
    np.testing.assert_array_equal(observation.numpy(), values)
    assert gpu.left()["modules"] >= 1


@pytest.mark.parametrize("told_by", ["check", "stats", "close"])
def test_bad_actions_in_tensors_are_told_later(make_pool: Any, told_by: str) -> None:
    pool = make_pool()
    pool.reset()
    pool.step(torch.tensor([0, 1, 7, -1]))
    pool.step(ones())
    with pytest.raises(errors.ActionError, match=r"env 2 was given an action outside Discrete\(2\)"):
        getattr(pool, told_by)()
    if told_by != "close":
        pool.check()
        assert pool.stats()["failures"] == 0
    assert pool.closed == (told_by == "close")


@pytest.mark.parametrize("kind", ["bool", "uint16", "uint32", "uint64", "bfloat16", "float16", "float64"])
def test_numbers_of_any_type_become_the_types_of_actions(make_pool: Any, kind: str) -> None:
    pool, other = make_pool(), make_pool()
    for one in (pool, other):
        one.reset()
    assert torch.equal(pool.step(ones().to(getattr(torch, kind)))[0], other.step(ones())[0])


REFUSED = {
    "too few": (lambda: torch.ones(2), r"expected shape \(4,\)"),
    "0-d": (lambda: torch.tensor(1), r"expected shape \(4,\)"),
    "2-d": (lambda: torch.ones(N, 1), r"got shape"),
    "complex": (
        lambda: torch.ones(N, dtype=torch.complex64),
        "expected bools, whole numbers or floats, which become int64, got type torch.complex64",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_can_be_seen_without_looking_is_refused_at_once(make_pool: Any, name: str) -> None:
    make_action, words = REFUSED[name]
    pool = make_pool()
    pool.reset()
    with pytest.raises(errors.ActionError, match=words):
        pool.step(make_action())
    assert pool.in_flight == []
    assert pool.step(torch.ones(N, dtype=torch.int8))[4]["elapsed_step"].tolist() == [1] * N
    assert pool.step(ones().repeat(2)[::2])[4]["elapsed_step"].tolist() == [2] * N
    assert pool.step(torch.ones(N, requires_grad=True))[4]["elapsed_step"].tolist() == [3] * N


# ---- steps for CUDA graphs -----------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("view", VIEWS)
def test_graph_steps_fill_the_same_tensors(make_pool: Any, gpu: HostGpu, view: str, mode: str) -> None:
    pool, plain = (make_pool(view, autoreset=mode, max_episode_steps=6, output=one) for one in ("torch", "numpy"))
    for one in (pool, plain):
        one.reset()
    kept = pool.step(ones())
    values, first, left = [one.clone() for one in tensors(kept)], None, {}
    plain.step(np.ones(N, int))
    for i in range(25):
        action = torch.tensor([i % 2, 1, 0, 1])
        launches = gpu.kernels.count("launches")
        got = pool.graph_step(action)
        assert gpu.kernels.count("launches") == launches + 1
        assert_says(view, got, plain.step(action.numpy()))
        if first is not None:
            assert all(one is other for one, other in zip(tensors(got), tensors(first), strict=True))
            assert gpu.left() == left
        first, left = got, gpu.left()
    for one, other in zip(tensors(kept), values, strict=True):
        assert torch.equal(one, other)
    assert pool.stats()["steps"] == plain.stats()["steps"]
    assert_says(view, pool.step(ones()), plain.step(np.ones(N, int)))
    assert_says(view, pool.step([1], [2]), plain.step([1], [2]))
    expected = [one.clone() for one in tensors(first)]
    pool.step(ones())
    for one, other in zip(tensors(first), expected, strict=True):
        assert torch.equal(one, other)


ACTIONS = {
    "type": lambda: ones().int(),
    "gaps": lambda: torch.ones(2 * N, dtype=torch.int64)[::2],
    "count": lambda: torch.ones(N + 1, dtype=torch.int64),
    "numpy": lambda: np.ones(N, int),
    "list": lambda: [1] * N,
    "none": lambda: None,
    "elsewhere": lambda: torch.ones(N, dtype=torch.int64, device="meta"),
}


WRONG = {
    "too wide": ("NChain-v0", torch.tensor([0, 2**33, 1, 0]), None, 1),  # which the kernel notes
    "a fraction": ("NChain-v0", torch.tensor([0.0, 1.0, 0.5, 0.0]), torch.tensor([0, 1, 0, 0]), 2),
    "no number": ("NChain-v0", torch.tensor([float("nan"), 1.0, 0.0, 1.0]), torch.tensor([0, 1, 0, 1]), 0),
    "half, whole": ("NChain-v0", torch.tensor([0, 1, 1, 0], dtype=torch.float16), torch.tensor([0, 1, 1, 0]), None),
    "truth": ("NChain-v0", torch.tensor([False, True, True, False]), torch.tensor([0, 1, 1, 0]), None),
    "narrow": ("NChain-v0", torch.tensor([0, 1, 1, 0], dtype=torch.int8), torch.tensor([0, 1, 1, 0]), None),
    "double for float": ("Pendulum-v1", torch.full((4, 1), 0.1, dtype=torch.float64), torch.full((4, 1), 0.1), None),
}


@pytest.mark.parametrize("name", WRONG)
def test_numbers_that_do_not_fit_are_noted_and_others_are_converted(make_pool: Any, name: str) -> None:
    task, action, same, noted = WRONG[name]
    pool, twin = make_pool(task=task), make_pool(task=task)
    pool.reset(), twin.reset()
    got = pool.step(action)
    if same is not None:
        for one, other in zip(got[:4], twin.step(same)[:4], strict=True):
            assert torch.equal(one, other)
    if noted is None:
        pool.check()
    else:
        with pytest.raises(errors.ActionError, match=f"env {noted} was given an action"):
            pool.check()
    pool.check()


def test_actions_may_lie_anywhere_in_memory(make_pool: Any) -> None:
    """A kernel reads up to 16 bytes at once, from multiples of 16: others are copied."""
    pool, twin = make_pool(), make_pool()
    pool.reset(), twin.reset()
    packed = torch.zeros(1 + N, dtype=torch.int64)
    packed[1:] = torch.tensor([0, 1, 1, 0])
    assert packed[1:].data_ptr() % 16
    assert torch.equal(pool.step(packed[1:])[0], twin.step(packed[1:].clone())[0])
    with pytest.raises(errors.ActionError, match=r"does not begin at a multiple of 16 bytes: clone\(\) it"):
        pool.graph_step(packed[1:])


@pytest.mark.parametrize("action", [torch.zeros(N).to_sparse(), torch.zeros(N, dtype=torch.int64, device="meta")])
def test_tensors_without_memory_of_their_own_are_refused(make_pool: Any, action: Any) -> None:
    pool = make_pool()
    pool.reset()
    with pytest.raises(errors.ActionError):
        pool.step(action)
    pool.step(ones())


@pytest.mark.parametrize("name", ACTIONS)
def test_a_graph_takes_only_what_a_kernel_reads_as_it_is(make_pool: Any, name: str) -> None:
    pool = make_pool()
    pool.reset()
    with pytest.raises(
        errors.ActionError, match=r"^graph_step: action: expected a contiguous torch.int64 tensor of shape"
    ):
        pool.graph_step(ACTIONS[name]())
    assert pool.graph_step(ones())[4]["elapsed_step"].tolist() == [1] * N


def test_an_action_of_several_arrays(make_pool: Any) -> None:
    pool, plain = (make_pool(task="Moving-v0", output=one) for one in ("torch", "numpy"))
    kind, power, turn = torch.zeros(N, dtype=torch.int64), torch.full((N, 1), 0.5), torch.full((N, 1), -0.5)
    for _ in range(5):
        assert_says(
            "gymnasium", pool.graph_step((kind, power, turn)), plain.step((kind.numpy(), power.numpy(), turn.numpy()))
        )
    for action in ((kind,), kind, {"a": kind}, (power, kind, turn)):
        with pytest.raises(errors.ActionError, match=r"^graph_step: "):
            pool.graph_step(action)


def test_when_it_is_no_time_for_a_graph_step(make_pool: Any) -> None:
    pool = make_pool()
    pool.reset()
    pool.send([1], [2])
    with pytest.raises(errors.InFlightError):
        pool.graph_step(ones())
    pool.recv()
    pool.graph_step(ones())
    pool.close()
    with pytest.raises(errors.ClosedError):
        pool.graph_step(ones())
    with pytest.raises(errors.UnsupportedError, match=r"^graph_step: with autoreset='disabled'"):
        make_pool(autoreset="disabled").graph_step(ones())


def test_the_first_graph_step_is_no_part_of_a_graph(make_pool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = make_pool()
    with monkeypatch.context() as patch:
        patch.setattr(torch.cuda, "is_available", lambda: True)
        patch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
        with pytest.raises(errors.UsageError, match=r"^graph_step: call it once before the capture"):
            pool.graph_step(ones())
        patch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
        pool.graph_step(ones())
        patch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
        assert pool.graph_step(ones())[4]["elapsed_step"].tolist() == [1] * N


@pytest.mark.parametrize("mode", MODES)
def test_infos_of_envs_that_were_left_alone_are_zero(make_pool: Any, tmp_path: Path, mode: str) -> None:
    task = own_env(
        tmp_path / "fast.h",
        "Fast",
        spec=SPEC + 'spec.info = {box<double>({2}, {0.0}, {1e9}, "speed")};',
        observe="*row.observation<double>() = x_; row.info<double>(0)[1] = 5.0;",
        step="return {1.0, false, false};",
    )
    pool = make_pool(task=task, autoreset=mode)
    pool.reset()
    pool.step(ones())
    _, info = pool.reset(options={"reset_mask": np.arange(N) == 1})
    assert info["_speed"].tolist() == [False, True, False, False]
    assert info["speed"].tolist() == [[0, 0], [0, 5], [0, 0], [0, 0]]
