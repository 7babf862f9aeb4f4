"""The first difference of two values, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stepmill.tools.verify.side_by_side import NOTHING, info_mismatch, mismatch

F32, F64, I64 = np.float32, np.float64, np.int64
QUIET_NAN = np.array([0x7FC00000], np.uint32).view(F32)
OTHER_NAN = np.array([0xFFC00001], np.uint32).view(F32)

EQUAL = [
    (np.array([1, 2], F32), np.array([1, 2], F32)),
    (F64(0.1), 0.1),
    (F64(0.1), F64(0.1)),
    (F64(1), 1),
    (I64(3), 3),
    (np.int8(3), 3),
    (I64(3), np.array(3)),
    (np.True_, True),
    (3, I64(3)),
    (QUIET_NAN, OTHER_NAN),
    (F64("nan"), float("nan")),
    (np.array(["a"]), np.array(["a"])),
    ("text", "text"),
    (None, None),
    ({"a": F64(1), "b": (I64(1), I64(2))}, {"b": (1, 2), "a": 1.0}),
]


@pytest.mark.parametrize(("ours", "theirs"), EQUAL, ids=str)
def test_equal_values_have_no_mismatch(ours: Any, theirs: Any) -> None:
    assert mismatch("x", ours, theirs) is None


DIFFERENT = [
    (np.array([1, 2], F32), np.array([1, np.nextafter(F32(2), F32(3))], F32), "x[1]"),
    (np.array([[1, 2], [3, 4]]), np.array([[1, 2], [5, 6]]), "x[1, 0]"),
    (np.array([0.0]), np.array([-0.0]), "x[0]"),
    (F64(0), -0.0, "x"),
    (np.array([np.nan, 1.0]), np.array([np.nan, 2.0]), "x[1]"),
    (np.array([np.nan]), np.array([1.0]), "x[0]"),
    (F32(1), F64(1), "x.dtype"),
    (F32(1), 1.0, "x.dtype"),
    (np.array([1, 2], F32), np.array([1, 2], F64), "x.dtype"),
    (np.zeros((2, 3)), np.zeros((3, 2)), "x.shape"),
    (np.zeros(1), 0.0, "x.shape"),
    (np.zeros(1), 0, "x"),
    (F32(1), 1, "x"),
    (F64(0.5), 0, "x"),
    (np.int8(44), 300, "x"),
    (np.True_, 1, "x"),
    (I64(1), True, "x.dtype"),
    (I64(1), "1", "x"),
    (F64(1), None, "x"),
    ("a", "b", "x"),
    ({"a": F64(1)}, {"a": 2.0}, "x['a']"),
    ({"a": F64(1)}, {"a": 1.0, "b": 2}, "x['b']"),
    ({"a": F64(1), "b": I64(2)}, {"a": 1.0}, "x['b']"),
    ((I64(1), {"k": np.array([1, 2])}), (1, {"k": np.array([1, 3])}), "x[1]['k'][1]"),
    ((I64(1),), (1, 2), "x"),
]


@pytest.mark.parametrize(("ours", "theirs", "field"), DIFFERENT, ids=str)
def test_the_first_mismatch_is_named(ours: Any, theirs: Any, field: str) -> None:
    found = mismatch("x", ours, theirs)
    assert found is not None
    assert found.field == field
    assert str(found.ours) != str(found.theirs) or type(found.ours) is not type(found.theirs)


def test_a_mismatch_has_the_parts_that_differ() -> None:
    found = mismatch("x", np.array([[1, 2], [3, 4]], F32), np.array([[1, 2], [3, 5]], F32))
    assert found == ("x[1, 1]", 4, 5)
    assert type(found.ours) is F32
    assert mismatch("x", F32(1), 1.0) == ("x.dtype", F32, F64)
    assert mismatch("x", np.zeros((2, 3)), np.zeros(3)) == ("x.shape", (2, 3), (3,))
    assert mismatch("x", {}, {"k": 1}) == ("x['k']", NOTHING, 1)
    assert mismatch("x", {"k": I64(1)}, {}) == ("x['k']", 1, NOTHING)


# ---- infos ---------------------------------------------------------------------------------------

YES, NO = [True, True], [False, True]


def columns(**given: tuple[Any, Any]) -> dict[str, Any]:
    """The info of a batch of two, from each key's column and mask."""
    merged: dict[str, Any] = {}
    for key, (column, mask) in given.items():
        merged[key] = column if isinstance(column, dict) else np.array(column)
        if mask is not None:
            merged[f"_{key}"] = np.array(mask)
    return merged


SAME_INFOS = [
    (columns(), {}),
    (columns(a=([1.0, 2.0], YES)), {"a": 1.0}),
    (columns(a=([0.0, 2.0], NO)), {}),
    (columns(a=([[1, 2], [3, 4]], YES)), {"a": np.array([1, 2])}),
    (columns(a=(columns(b=([1.5, 0.5], YES)), YES)), {"a": {"b": 1.5}}),
    (columns(a=(columns(b=([0.0, 0.5], NO)), YES)), {"a": {}}),
    (columns(a=({}, YES)), {"a": {}}),
    ({"engine": np.zeros(2), **columns(a=([1.0, 2.0], YES))}, {"a": 1.0}),
    (columns(a=([1.0, 2.0], YES)), {"a": 1.0, "engine": "left out"}),
]


@pytest.mark.parametrize(("merged", "own"), SAME_INFOS, ids=str)
def test_a_row_of_an_info_equals_that_of_its_env(merged: dict[str, Any], own: dict[str, Any]) -> None:
    assert info_mismatch("info", merged, 0, own, frozenset({"engine"})) is None


OTHER_INFOS = [
    (columns(), {"a": 1.0}, ("info['a']", NOTHING, 1.0)),
    (columns(a=([0.0, 2.0], NO)), {"a": 0.0}, ("info['a']", NOTHING, 0.0)),
    (columns(a=([1.0, 2.0], None)), {"a": 1.0}, ("info['_a']", NOTHING, True)),
    (columns(a=([1.0, 2.0], YES)), {}, ("info['a']", 1.0, NOTHING)),
    (columns(a=([1.0, 2.0], None)), {}, ("info['a']", 1.0, NOTHING)),
    (columns(a=([0.0, 0.0], [False, False])), {}, ("info['a']", 0.0, NOTHING)),
    (columns(a=([1.0, 2.0], YES)), {"a": 1.5}, ("info['a']", 1.0, 1.5)),
    (columns(a=([1.0, 2.0], YES)), {"a": F32(1)}, ("info['a'].dtype", F64, F32)),
    (columns(a=([[1, 2], [3, 4]], YES)), {"a": np.array([1, 3])}, ("info['a'][1]", 2, 3)),
    (columns(a=(columns(b=([1.5, 0.5], YES)), YES)), {"a": {"b": 2.5}}, ("info['a']['b']", 1.5, 2.5)),
    (columns(a=(columns(b=([1.5, 0.5], YES)), YES)), {"a": {}}, ("info['a']['b']", 1.5, NOTHING)),
    (columns(engine=([1.0, 2.0], YES)), {"engine": {"deep": 1}, "b": 2}, ("info['b']", NOTHING, 2)),
]


@pytest.mark.parametrize(("merged", "own", "expected"), OTHER_INFOS, ids=str)
def test_the_first_key_that_differs_is_named(merged: dict[str, Any], own: dict[str, Any], expected: Any) -> None:
    assert info_mismatch("info", merged, 0, own, frozenset({"engine", "_engine"})) == expected


def test_a_dict_where_the_other_has_a_number_differs() -> None:
    found = info_mismatch("info", columns(a=(columns(b=([1.5, 0.5], YES)), YES)), 0, {"a": 1.5})
    assert found is not None
    assert (found.field, found.theirs) == ("info['a']", 1.5)
