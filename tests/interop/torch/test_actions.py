"""Tensors as actions, ids and masks: of any device, type and layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

import stepmill
from stepmill import errors
from support.envs import Plain
from support.probes import KINDS, make_probe

N = 3
VALUES = [0.25, -0.5, 1.0]
HALVES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}


def rewards(pool: Any, action: Any, *ids: Any) -> list[float]:
    """The probe's reward is its action."""
    return pool.step(action, *ids)[1].tolist()


@pytest.mark.parametrize("output", ["numpy", "torch"])
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("kind", KINDS)
def test_floats_of_any_width(kind: str, dtype: str, output: str) -> None:
    with make_probe(kind, num_envs=N, output=output) as pool:
        pool.reset()
        assert rewards(pool, torch.tensor(VALUES, dtype=HALVES[dtype])) == VALUES


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_end_at_the_env(kind: str) -> None:
    with make_probe(kind, num_envs=N) as pool:
        pool.reset()
        mean = torch.tensor(VALUES, requires_grad=True)
        assert rewards(pool, mean) == VALUES
        assert rewards(pool, (mean * 1).to(torch.bfloat16)) == VALUES
        assert rewards(pool, torch.nn.Parameter(torch.tensor(VALUES))) == VALUES
        mean.sum().backward()  # the graph is as it was


LAYOUTS = {
    "column": lambda values: torch.stack([values, values * 9], 1)[:, 0],
    "reversed": lambda values: values.flip(0).as_strided((N,), (1,)).flip(0),
    "expanded": lambda values: values[None].expand(2, N)[1],
    "negative": lambda values: torch.complex(values, values).conj().imag.neg(),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_any_layout(name: str) -> None:
    with make_probe("native", num_envs=N) as pool:
        pool.reset()
        assert rewards(pool, LAYOUTS[name](torch.tensor(VALUES))) == VALUES


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64, torch.float32, torch.bfloat16, torch.bool])
def test_discrete_actions(dtype: torch.dtype) -> None:
    action = torch.tensor([1, 0], dtype=dtype)
    with stepmill.make("CartPole-v1", num_envs=2) as pool, stepmill.make("CartPole-v1", num_envs=2) as twin:
        pool.reset()
        twin.reset()
        np.testing.assert_array_equal(pool.step(action)[0], twin.step([1, 0])[0])
        with pytest.raises(errors.ActionError, match="whole number"):
            pool.step(torch.tensor([0.5, 0.0]))
        with pytest.raises(errors.ActionError, match=r"in \[0, 1\], got 2"):
            pool.step(torch.tensor([1, 2]))


def test_ids_may_be_tensors() -> None:
    with make_probe("native", num_envs=N) as pool:
        pool.reset()
        action = torch.tensor(VALUES)
        assert rewards(pool, action, torch.tensor([2, 0, 1])) == VALUES
        assert rewards(pool, {"action": action[:1], "env_id": torch.tensor([2], dtype=torch.int32)}) == VALUES[:1]
        assert pool.reset(torch.tensor([1]), seed=7)[1]["env_id"].tolist() == [1]


def test_lists_of_tensors() -> None:
    with make_probe("native", num_envs=N) as pool:
        pool.reset()
        assert rewards(pool, [torch.tensor(value) for value in VALUES]) == VALUES


class Hybrid(Plain):
    """A nested action, whose parts come back as the reward."""

    action_space = spaces.Dict({"kind": spaces.Discrete(4), "size": spaces.Tuple([spaces.Box(-9, 9, (2,))])})

    def step(self, action: Any) -> Any:
        obs, _, *rest = super().step(0)
        return obs, float(action["kind"] * 100 + action["size"][0].sum()), *rest


def test_nested_actions() -> None:
    with stepmill.make(Hybrid, num_envs=2, backend="inline", output="torch") as pool:
        pool.reset()
        size = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
        action = {"kind": torch.tensor([1, 3]), "size": (size,)}
        assert pool.step(action)[1].tolist() == [103.0, 307.0]
        assert pool.step({"action": action, "env_id": torch.tensor([1, 0])})[1].tolist() == [103.0, 307.0]


BAD = {
    "sparse": (lambda: torch.zeros(N).to_sparse(), "to_dense"),
    "sparse rows": (lambda: torch.eye(N).to_sparse_csr(), "to_dense"),
    "no data": (lambda: torch.zeros(N, device="meta"), "meta tensor"),
    "complex": (lambda: torch.zeros(N, dtype=torch.complex64), "complex64"),
    "quantized": (lambda: torch.quantize_per_tensor(torch.zeros(N), 0.1, 0, torch.quint8), "QUInt8"),
    "nested": (lambda: torch.nested.nested_tensor([torch.zeros(N)]), "NestedTensor"),
}


@pytest.mark.filterwarnings("ignore")  # torch's, about layouts that are new or old
@pytest.mark.parametrize("name", BAD)
def test_what_has_no_numbers_is_refused(name: str) -> None:
    make, words = BAD[name]
    action = make()
    with make_probe("native", num_envs=N) as pool:
        pool.reset()
        with pytest.raises(errors.ActionTypeError, match=words):
            pool.send(action)
        with pytest.raises(errors.EnvIdError):
            pool.send(np.zeros(N), action)
        assert rewards(pool, torch.tensor(VALUES)) == VALUES


def test_a_tensor_inside_of_a_transformation_is_refused() -> None:
    with make_probe("native", num_envs=N) as pool:
        pool.reset()
        with pytest.raises(errors.ActionTypeError, match="storage"):
            torch.func.vmap(lambda row: pool.send(row))(torch.zeros(2, N))
        with torch.inference_mode():
            assert rewards(pool, torch.tensor(VALUES)) == VALUES


def test_an_action_may_change_once_it_was_sent() -> None:
    with make_probe("native", num_envs=N) as pool:
        pool.reset()
        action = torch.tensor(VALUES)
        pool.send(action)
        action.zero_()
        assert pool.recv()[1].tolist() == VALUES


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_tensors_on_the_gpu_are_copied() -> None:
    with make_probe("native", num_envs=N, autoreset="disabled", output="torch") as pool:
        pool.reset()
        action = torch.tensor(VALUES, device="cuda", requires_grad=True)
        ids = torch.arange(N, device="cuda")
        assert rewards(pool, action, ids) == VALUES
        assert rewards(pool, action.to(torch.bfloat16)) == VALUES
        mask = torch.tensor([True, False, True], device="cuda")
        assert pool.reset(options={"reset_mask": mask})[0][:, 1].tolist() == [0.0, 2.0, 0.0]
