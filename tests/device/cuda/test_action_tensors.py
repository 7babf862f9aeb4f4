"""Actions in tensors become what a kernel reads: any type of any other, and no number changes silently."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stepmill.device.cuda.action_tensors import ActionTensors
from stepmill.errors import ActionError
from stepmill.values.spaces import ArrayLeaf, LeafKind

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.torch

WHOLE = ("bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64")
FLOATS = ("float16", "bfloat16", "float32", "float64")


def made_of(target: str, given: Any) -> tuple[Any, int | None]:
    """The tensor that a kernel is given, and the first env whose number was changed."""
    action = ActionTensors([ArrayLeaf("", LeafKind.BOX, target, ())], len(given), lambda: None)
    _, kept = action.addresses(given)
    misfit = action.misfit()
    assert action.misfit() == misfit
    action.forget_misfit()
    assert action.misfit() is None
    return kept[0] if isinstance(kept, list) else kept, misfit


@pytest.mark.parametrize("source", [*WHOLE, *FLOATS])
@pytest.mark.parametrize("target", [*WHOLE, "float32", "float64"])
def test_what_fits_is_the_same_number(target: str, source: str) -> None:
    given = torch.tensor([0, 1, 1, 0]).to(getattr(torch, source))
    made, misfit = made_of(target, given)
    assert made.dtype == getattr(torch, target)
    assert made.data_ptr() % 16 == 0
    assert misfit is None
    assert made.to(torch.float64).tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize("source", [one for one in WHOLE if one != "bool"])
@pytest.mark.parametrize("target", WHOLE)
def test_what_does_not_fit_is_the_nearest_and_noted(target: str, source: str) -> None:
    ends = [0, np.iinfo(source).min, np.iinfo(source).max]
    given = torch.from_numpy(np.array(ends, source))
    least, most = (0, 1) if target == "bool" else (np.iinfo(target).min, np.iinfo(target).max)
    made, misfit = made_of(target, given)
    expected = [min(max(one, least), most) for one in ends]
    bad = [env for env, pair in enumerate(zip(ends, expected, strict=True)) if pair[0] != pair[1]]
    assert misfit == (bad[0] if bad else None)
    assert made.numpy().astype(object).tolist() == expected


@pytest.mark.parametrize("number", [0.5, -0.25, float("nan"), float("inf"), 1e30])
def test_no_whole_number(number: float) -> None:
    made, misfit = made_of("int64", torch.tensor([1.0, number, 0.0], dtype=torch.float64))
    assert misfit == 1
    assert made.tolist()[::2] == [1, 0]


@pytest.mark.parametrize("source", ["float32", "float64"])
def test_large_whole_numbers_in_floats(source: str) -> None:
    given = torch.tensor([2.0**62, 2.0**63, 1.5 * 2.0**63, 2.0**64, -1.0]).to(getattr(torch, source))
    made, misfit = made_of("uint64", given)
    assert misfit == 3
    assert made.numpy().astype(object).tolist() == [2**62, 2**63, 3 * 2**62, 2**64 - 2048, 0]
    made, misfit = made_of("int64", given)
    assert misfit == 1
    assert made.tolist() == [2**62, *[2**63 - 1024] * 3, -1]


def test_the_least_env_of_several_steps_is_told() -> None:
    action = ActionTensors([ArrayLeaf("", LeafKind.BOX, "int8", (2,))], 3, lambda: None)
    for rows in ([[0, 1], [2, 3], [4, 500]], [[0, 1], [-300, 3], [4, 5]], [[0, 1], [2, 3], [400, 5]]):
        action.addresses(torch.tensor(rows))
    assert action.misfit() == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (torch.zeros(3).to_sparse(), "expected a dense tensor, got one in the layout torch.sparse_coo"),
        (torch.zeros(3, device="meta"), "expected a tensor with memory"),
    ],
)
def test_what_is_no_memory(given: Any, said: str) -> None:
    with pytest.raises(ActionError, match=said):
        made_of("float32", given)
