"""The common functions, against values computed by hand."""

from __future__ import annotations

import subprocess
import sys
from collections import namedtuple
from typing import Any

import numpy as np
import pytest

import stepmill.envs as common
from stepmill.envs.timestep import BaseEnvTimestep
from stepmill.errors import ConfigError, InputError

torch: Any
try:
    import torch
except ModuleNotFoundError:  # optional: what needs it is skipped
    torch = None
needs_torch = pytest.mark.torch


def hot(*places: int, num: int) -> list[list[float]]:
    return [[1.0 if column == place else 0.0 for column in range(num)] for place in places]


def check(out: np.ndarray, expected: Any) -> None:
    assert isinstance(out, np.ndarray)
    assert out.dtype == np.float32
    assert out.tolist() == expected


# ---- one-hot -------------------------------------------------------------------------------------


def test_one_hot() -> None:
    check(common.one_hot([2, 0], 3), [[0, 0, 1], [1, 0, 0]])


def test_one_hot_of_a_single_number_is_one_vector() -> None:
    check(common.one_hot(1, 3), [0, 1, 0])


def test_one_hot_of_an_array_adds_an_axis_at_the_end() -> None:
    check(common.one_hot(np.array([[0, 1], [1, 0]]), 2), [[[1, 0], [0, 1]], [[0, 1], [1, 0]]])


def test_one_hot_with_the_new_axis_first_makes_planes() -> None:
    planes = [[[1, 0], [0, 0]], [[0, 0], [0, 1]], [[0, 1], [1, 0]]]
    grid = np.array([[0, 2], [2, 1]])
    check(common.one_hot(grid, 3, num_first=True), planes)
    check(common.num_first_one_hot(grid, 3), planes)
    assert common.num_first_one_hot(grid, 3).flags.c_contiguous


def test_one_hot_of_nothing_has_no_rows() -> None:
    assert common.one_hot([], 3).shape == (0, 3)
    assert common.one_hot(np.zeros((2, 0), np.int64), 3).shape == (2, 0, 3)


@pytest.mark.parametrize(
    "values",
    [
        [True, False],
        [1.0, 0.0],
        np.array([1, 0], np.uint8),
        *([pytest.param(torch.tensor([1, 0]), marks=needs_torch)] if torch else []),
    ],
)
def test_one_hot_takes_whole_numbers_of_any_type(values: Any) -> None:
    check(common.one_hot(values, 2), [[0, 1], [1, 0]])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([0, 3], "one_hot: expected values from 0 to 2, got 3$"),
        ([-1, 0], "one_hot: expected values from 0 to 2, got -1$"),
        ([0.5], "one_hot: expected whole numbers, got 0.5$"),
        ([1e30], r"one_hot: expected whole numbers, got 1e\+30$"),
        ([float("nan")], "one_hot: expected finite numbers, got nan$"),
        (["a"], r"one_hot: expected numbers, got \['a'\]$"),
        (None, "one_hot: expected numbers, got None$"),
        ([[0], [0, 1]], r"one_hot: expected numbers, got \[\[0\], \[0, 1\]\]$"),
    ],
)
def test_one_hot_refuses_what_has_no_place(values: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        common.one_hot(values, 3)


@pytest.mark.parametrize("num", [0, -1, 1.5, True, None])
def test_the_number_of_places_is_a_whole_one(num: Any) -> None:
    with pytest.raises(ConfigError, match=f"num: expected a whole number.*, got {num!r}"):
        common.one_hot([0], num)
    with pytest.raises(ConfigError, match=f"num: expected a whole number.*, got {num!r}"):
        common.clip_one_hot([0], num)


def test_clip_one_hot_moves_values_to_the_ends() -> None:
    check(common.clip_one_hot([-5, 0, 2, 3, 99], 4), hot(0, 0, 2, 3, 3, num=4))


def test_clip_one_hot_refuses_fractions() -> None:
    with pytest.raises(InputError, match=r"clip_one_hot: expected whole numbers, got 1.5"):
        common.clip_one_hot([1.5], 4)


def test_sqrt_one_hot_has_finer_steps_for_small_values() -> None:
    # The roots are 0, 1, 1.73, 2, 2.83, 3 and 3.16: the whole parts of these, and the last place for 10 and beyond.
    check(common.sqrt_one_hot([0, 1, 3, 4, 8, 9, 10], 10), hot(0, 1, 1, 2, 2, 3, 3, num=4))
    check(common.sqrt_one_hot([11, 1000, -4], 10), hot(3, 3, 0, num=4))
    check(common.sqrt_one_hot([3.99, 4.0], 4), hot(1, 2, num=3))


def test_sqrt_one_hot_keeps_the_shape() -> None:
    assert common.sqrt_one_hot(np.ones((2, 3)), 6).shape == (2, 3, 3)


def test_div_one_hot_has_steps_of_equal_width() -> None:
    check(common.div_one_hot([0, 9, 10, 29, 30, 35], 35, 10), hot(0, 0, 1, 2, 3, 3, num=4))
    check(common.div_one_hot([36, 1e9, -1], 35, 10), hot(3, 3, 0, num=4))
    check(common.div_one_hot(0.75, 1.0, 0.25), hot(3, num=5)[0])


@pytest.mark.parametrize("wrong", [0, -1, float("inf"), float("nan"), "4", None, True])
def test_sizes_of_sqrt_and_div_are_positive(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="sqrt_one_hot: max_val: expected a finite number > 0, got"):
        common.sqrt_one_hot([1], wrong)
    with pytest.raises(ConfigError, match="div_one_hot: max_val: expected a finite number > 0, got"):
        common.div_one_hot([1], wrong, 1)
    with pytest.raises(ConfigError, match="div_one_hot: ratio: expected a finite number > 0, got"):
        common.div_one_hot([1], 4, wrong)


@pytest.mark.parametrize("function", [common.sqrt_one_hot, lambda v, most: common.div_one_hot(v, most, 1)])
def test_nan_is_never_clipped_to_a_place(function: Any) -> None:
    with pytest.raises(InputError, match="expected finite numbers, got nan"):
        function([1.0, float("nan")], 4)


# ---- values with gaps ----------------------------------------------------------------------------

PLACES = {2: 0, 3: 1, 5: 2, 7: 3}
TABLE = np.array([-1, -1, 0, 1, -1, 2, -1, 3])
# Action 0 stands for 5, action 1 for 2.
TRANSFORM = np.array([5, 2])


def reorder(v: Any, num: int = 4, transform: Any = None) -> list[np.ndarray]:
    return [
        common.reorder_one_hot(v, PLACES, num, transform),
        common.reorder_one_hot_array(v, TABLE, num, transform),
    ]


def test_reorder_one_hot_by_a_dictionary_and_by_an_array() -> None:
    for out in reorder([7, 2, 5]):
        check(out, hot(3, 0, 2, num=4))
    for out in reorder([[7], [2]]):
        assert out.shape == (2, 1, 4)
    for out in reorder(3, num=5):
        check(out, [0, 1, 0, 0, 0])


def test_reorder_transforms_first() -> None:
    for out in reorder([0, 1, 0], transform=TRANSFORM):
        check(out, hot(2, 0, 2, num=4))


@pytest.mark.parametrize("stranger", [0, 4, 8, -1, -8])
def test_reorder_refuses_values_without_a_place(stranger: int) -> None:
    with pytest.raises(InputError, match=rf"reorder_one_hot: expected values among \[2, 3, 5, 7\], got {stranger}$"):
        common.reorder_one_hot([2, stranger], PLACES, 4)
    with pytest.raises(InputError, match=f"reorder_one_hot_array: expected values .*, got {stranger}$"):
        common.reorder_one_hot_array([2, stranger], TABLE, 4)


def test_reorder_refuses_places_beyond_the_last() -> None:
    with pytest.raises(InputError, match=r"reorder_one_hot: places: expected values from 0 to 2, got 3$"):
        common.reorder_one_hot([7], PLACES, 3)
    with pytest.raises(InputError, match=r"reorder_one_hot_array: places: expected values from 0 to 2, got 3$"):
        common.reorder_one_hot_array([7], TABLE, 3)


def test_reorder_refuses_what_cannot_be_transformed() -> None:
    with pytest.raises(InputError, match=r"transform: expected values from 0 to 1, got 2$"):
        common.reorder_one_hot([2], PLACES, 4, TRANSFORM)


@pytest.mark.parametrize("table", [5, [[0, 1]], "ab", [0.5], [[0], [1, 2]], None], ids=str)
def test_the_tables_of_reorder_have_one_axis_of_whole_numbers(table: Any) -> None:
    with pytest.raises(ConfigError, match=r"^reorder_one_hot_array: array: expected .*, got "):
        common.reorder_one_hot_array([0], table, 2)
    if table is not None:
        with pytest.raises(ConfigError, match=r"^reorder_one_hot: transform: expected .*, got "):
            common.reorder_one_hot([0], PLACES, 2, table)


def test_reorder_boolean_vector_says_what_occurs() -> None:
    check(common.reorder_boolean_vector([7, 2, 7], PLACES, 5), [1, 0, 0, 1, 0])
    check(common.reorder_boolean_vector([], PLACES, 3), [0, 0, 0])
    check(common.reorder_boolean_vector([[2, 3], [5, 5]], PLACES, 4), [[1, 1, 0, 0], [0, 0, 1, 0]])
    check(common.reorder_boolean_vector([1, 1], PLACES, 4, TRANSFORM), [1, 0, 0, 0])


def test_reorder_boolean_vector_refuses_strangers_and_single_numbers() -> None:
    with pytest.raises(InputError, match=r"reorder_boolean_vector: expected values among .*, got 4$"):
        common.reorder_boolean_vector([2, 4], PLACES, 4)
    with pytest.raises(InputError, match="at least one axis"):
        common.reorder_boolean_vector(2, PLACES, 4)


# ---- digits and positions ------------------------------------------------------------------------


def test_binary_digits_come_highest_first() -> None:
    check(common.batch_binary_encode([0, 1, 6, 7], 3), [[0, 0, 0], [0, 0, 1], [1, 1, 0], [1, 1, 1]])
    check(common.batch_binary_encode(5, 4), [0, 1, 0, 1])
    assert common.batch_binary_encode(np.zeros((2, 3), np.int64), 4).shape == (2, 3, 4)


def test_binary_digits_of_the_largest_number() -> None:
    assert common.batch_binary_encode(2**63 - 1, 63).sum() == 63


@pytest.mark.parametrize("value", [8, -1])
def test_binary_refuses_what_does_not_fit(value: int) -> None:
    with pytest.raises(InputError, match=f"batch_binary_encode: expected values from 0 to 7, got {value}$"):
        common.batch_binary_encode([1, value], 3)


@pytest.mark.parametrize("bits", [0, 64, 2.5])
def test_binary_has_1_to_63_digits(bits: Any) -> None:
    with pytest.raises(ConfigError, match=r"bit_num: expected a whole number( in \[1, 63\])?, got"):
        common.batch_binary_encode([1], bits)


def test_position_vector() -> None:
    # Two positions: the first is divided by 1, the second by 10000 ** (2 / 4) = 100.
    out = common.get_position_vector([np.pi / 2, 100 * np.pi])
    assert out.dtype == np.float32
    np.testing.assert_allclose(out, [1, 0, 0, -1], atol=1e-6)
    assert common.get_position_vector(np.zeros((5, 32))).shape == (5, 64)
    assert common.get_postion_vector is common.get_position_vector


@pytest.mark.parametrize("wrong", [3.0, []])
def test_position_vector_needs_an_axis_of_positions(wrong: Any) -> None:
    with pytest.raises(InputError, match="get_position_vector: expected positions along the last axis"):
        common.get_position_vector(wrong)


# ---- scaling -------------------------------------------------------------------------------------


def test_div_func_divides_and_adds_an_axis() -> None:
    check(common.div_func([2, 4], 4), [[0.5], [1.0]])
    check(common.div_func([2, 4], 4, unsqueeze_dim=None), [0.5, 1.0])
    check(common.div_func([2, 4], 4, unsqueeze_dim=0), [[0.5, 1.0]])
    check(common.div_func([2, 4], 4, unsqueeze_dim=-1), [[0.5], [1.0]])
    assert common.div_func(np.ones((2, 3)), 2).shape == (2, 1, 3)


def test_div_func_refuses_zero_and_an_invalid_axis() -> None:
    with pytest.raises(ConfigError, match="div_func: expected a divisor other than 0, got 0"):
        common.div_func([1], 0)
    with pytest.raises(ConfigError, match=r"unsqueeze_dim: expected one from -2 to 1 .*\(2,\), got 2"):
        common.div_func([1, 2], 2, unsqueeze_dim=2)
    with pytest.raises(ConfigError, match=r"unsqueeze_dim: expected one from -2 to 1 .*, got 'x'"):
        common.div_func([1, 2], 2, unsqueeze_dim="x")  # type: ignore[arg-type]


SCALINGS = {
    "div_func": lambda data: common.div_func(data, 2),
    "affine_transform": lambda data: common.affine_transform(data, alpha=2),
    "inverse_affine_transform": lambda data: common.inverse_affine_transform(data, min_val=0, max_val=1),
}


@pytest.mark.parametrize("data", ["x", "5", None, [[1], [2, 3]], [1j]], ids=str)
@pytest.mark.parametrize("name", SCALINGS)
def test_what_is_no_number_is_not_scaled(name: str, data: Any) -> None:
    with pytest.raises(InputError, match=rf"^{name}: (data|inputs): expected numbers, got "):
        SCALINGS[name](data)


@pytest.mark.parametrize(
    ("scale", "message"),
    [
        (lambda: common.div_func([1], "x"), "div_func: other: expected numbers, got 'x'"),
        (lambda: common.affine_transform([1], alpha="x"), "affine_transform: alpha: expected numbers, got 'x'"),
        (lambda: common.affine_transform([1], alpha=1, beta="x"), "affine_transform: beta: expected numbers, got 'x'"),
        (
            lambda: common.inverse_affine_transform([1], min_val="x", max_val=1),
            "inverse_affine_transform: min_val: expected numbers, got 'x'",
        ),
        (
            lambda: common.affine_transform(np.zeros(3), alpha=np.zeros(2)),
            r"affine_transform: expected shapes that fit each other, got data \(3,\), factor \(2,\), offset \(\)",
        ),
        (
            lambda: common.inverse_affine_transform(np.zeros(3), alpha=np.ones(2)),
            r"inverse_affine_transform: expected shapes that fit each other, got data \(3,\), factor \(2,\)",
        ),
        (
            lambda: common.affine_transform([1], min_val=np.zeros(3), max_val=np.ones(2)),
            r"affine_transform: expected shapes that fit each other, got min_val \(3,\), max_val \(2,\)",
        ),
        (
            lambda: common.div_func(np.zeros(3), np.ones(2), None),
            r"div_func: expected shapes that fit each other, got inputs \(3,\), other \(2,\)",
        ),
    ],
)
def test_an_invalid_scale_is_an_error(scale: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{message}"):
        scale()


def test_affine_transform_by_bounds() -> None:
    check(common.affine_transform([-1, -0.5, 0, 1], min_val=-2, max_val=6), [-2, 0, 2, 6])


def test_affine_transform_by_factor_and_offset() -> None:
    check(common.affine_transform([-1, 0, 2], alpha=4, beta=1), [-3, 1, 9])
    check(common.affine_transform([-1, 0, 2], alpha=4), [-4, 0, 8])


def test_affine_transform_clips_only_when_asked() -> None:
    check(common.affine_transform([-3, 2], min_val=0, max_val=2), [-2, 3])
    check(common.affine_transform([-3, 2], action_clip=True, min_val=0, max_val=2), [0, 2])


def test_affine_transform_takes_bounds_for_each_element() -> None:
    low, high = np.array([0, -1], np.float32), np.array([10, 1], np.float32)
    check(
        common.affine_transform([[-1, -1], [1, 1], [0, 0.5]], min_val=low, max_val=high), [[0, -1], [10, 1], [5, 0.5]]
    )


def test_affine_transform_meets_its_bounds_exactly() -> None:
    rng = np.random.default_rng(0)
    low = rng.normal(size=1000).astype(np.float32)
    high = low + rng.exponential(size=1000).astype(np.float32)
    assert (common.affine_transform(np.ones(1000), min_val=low, max_val=high) == high).all()
    assert (common.affine_transform(-np.ones(1000), min_val=low, max_val=high) == low).all()


def test_inverse_affine_transform() -> None:
    check(common.inverse_affine_transform([-2, 2, 6], min_val=-2, max_val=6), [-1, 0, 1])
    check(common.inverse_affine_transform([9, 1], alpha=4, beta=1), [2, 0])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "or min_val and max_val, got none$"),
        ({"beta": 1.0}, "or min_val and max_val, got beta$"),
        ({"min_val": 0.0}, "or min_val and max_val, got min_val$"),
        ({"max_val": 0.0}, "or min_val and max_val, got max_val$"),
        ({"alpha": 1.0, "min_val": 0.0, "max_val": 1.0}, "or min_val and max_val, got alpha, min_val, max_val$"),
        ({"beta": 1.0, "min_val": 0.0, "max_val": 1.0}, "expected no beta beside min_val and max_val, got 1.0$"),
        ({"min_val": 1.0, "max_val": 0.0}, "expected finite bounds, min_val <= max_val, got 1.0 and 0.0$"),
        ({"min_val": 0.0, "max_val": np.inf}, "expected finite bounds"),
    ],
)
@pytest.mark.parametrize("function", [common.affine_transform, common.inverse_affine_transform])
def test_affine_transforms_say_what_they_need(function: Any, given: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{function.__name__}: .*{message}"):
        function([0.0], **given)


def test_a_transform_to_one_point_has_no_inverse() -> None:
    check(common.affine_transform([-1, 1], min_val=3, max_val=3), [3, 3])
    with pytest.raises(ConfigError, match="got a factor of 0"):
        common.inverse_affine_transform([3.0], min_val=3, max_val=3)


# ---- to arrays and tensors -----------------------------------------------------------------------

Point = namedtuple("Point", ["x", "y"])
both = pytest.mark.parametrize(
    "convert",
    [
        pytest.param(common.to_ndarray, id="to_ndarray"),
        pytest.param(common.to_tensor, id="to_tensor", marks=needs_torch),
    ],
)
TENSORS = (
    [
        pytest.param(torch.tensor([1.5, 2.5], dtype=torch.float64), "float32", [1.5, 2.5], marks=needs_torch),
        pytest.param(torch.tensor(1.5, requires_grad=True), "float32", 1.5, marks=needs_torch),
        pytest.param(torch.tensor([1, 2], dtype=torch.uint8), "uint8", [1, 2], marks=needs_torch),
    ]
    if torch
    else []
)


def kind(value: Any) -> tuple[str, str, list[Any]]:
    """Type, dtype and values of an array or a tensor."""
    return type(value).__name__, str(value.dtype).removeprefix("torch."), value.tolist()


NAMES = {common.to_ndarray: "ndarray", common.to_tensor: "Tensor"}


@both
@pytest.mark.parametrize(
    ("item", "dtype", "values"),
    [
        (1.5, "float32", 1.5),
        (3, "int64", 3),
        (np.float64(1.5), "float32", 1.5),
        (np.int32(3), "int32", 3),
        ([1, 2], "int64", [1, 2]),
        ((1, 2.5), "float32", [1.0, 2.5]),
        ([True, False], "bool", [True, False]),
        (np.array([1.5, 2.5]), "float32", [1.5, 2.5]),
        (np.array([1, 2], np.uint8), "uint8", [1, 2]),
        *TENSORS,
    ],
)
def test_leaves_have_the_types_of_an_env(convert: Any, item: Any, dtype: str, values: Any) -> None:
    assert kind(convert(item)) == (NAMES[convert], dtype, values)


@both
@pytest.mark.parametrize("item", [None, True, "text", b"bytes", [], (), {}])
def test_what_holds_no_number_stays(convert: Any, item: Any) -> None:
    out = convert(item)
    assert out == item
    assert type(out) is type(item)


@both
def test_structures_keep_their_form(convert: Any) -> None:
    out = convert({"a": [np.zeros(2), {"b": 1}], "c": (1, "x"), "d": Point(1.5, None), "e": [[1, 2], [3]]})
    assert list(out) == ["a", "c", "d", "e"]
    assert isinstance(out["a"], list)
    assert kind(out["a"][0])[1:] == ("float32", [0.0, 0.0])
    assert kind(out["a"][1]["b"])[1:] == ("int64", 1)
    assert isinstance(out["c"], tuple)
    assert out["c"][1] == "x"
    assert isinstance(out["d"], Point)
    assert kind(out["d"].x)[1:] == ("float32", 1.5)
    assert out["d"].y is None
    assert [one.tolist() for one in out["e"]] == [[1, 2], [3]]


@both
def test_a_timestep_keeps_its_done(convert: Any) -> None:
    out = convert(BaseEnvTimestep([1, 2], [0.5], False, {"lives": 3}))
    assert isinstance(out, BaseEnvTimestep)
    assert out.done is False
    assert kind(out.reward) == (NAMES[convert], "float32", [0.5])
    assert kind(out.info["lives"])[1:] == ("int64", 3)


@needs_torch
def test_a_dtype_holds_for_all_leaves() -> None:
    out = common.to_ndarray({"a": 1, "b": [np.zeros(2), [1.0, 2.0]]}, np.float64)
    assert [one.dtype for one in (out["a"], *out["b"])] == [np.float64] * 3
    tensors = common.to_tensor({"a": 1, "b": [np.zeros(2), [1.0, 2.0]]}, torch.float64)
    assert [one.dtype for one in (tensors["a"], *tensors["b"])] == [torch.float64] * 3


@needs_torch
def test_a_wide_dtype_loses_nothing_on_the_way() -> None:
    assert common.to_ndarray(0.1, np.float64) == 0.1
    assert common.to_tensor(0.1, torch.float64).item() == 0.1
    assert common.to_tensor(np.array([0.1]), torch.float64).item() == 0.1


@both
def test_what_comes_out_shares_no_memory(convert: Any) -> None:
    sources = [np.zeros(2, np.float32), *([torch.zeros(2)] if torch else [])]
    outs = [convert(one) for one in sources]
    for one in sources:
        one[:] = 1
    assert [one.tolist() for one in outs] == [[0, 0]] * len(sources)


@needs_torch
def test_read_only_arrays_become_tensors_that_can_be_written() -> None:
    array = np.zeros(2, np.float32)
    array.flags.writeable = False
    common.to_tensor(array)[:] = 1
    assert array.tolist() == [0, 0]


@both
def test_what_is_no_data_is_refused(convert: Any) -> None:
    with pytest.raises(InputError, match=f"{convert.__name__}: expected arrays, .* got .* of type set$"):
        convert({"a": [{1}]})


@both
@pytest.mark.parametrize("number", [2**70, [1, 2**70]], ids=str)
def test_a_number_beyond_64_bits_is_refused(convert: Any, number: Any) -> None:
    with pytest.raises(InputError, match=f"{convert.__name__}: expected numbers that can be converted, got .*{2**70}"):
        convert(number)


@needs_torch
def test_what_torch_has_no_type_for_is_refused() -> None:
    with pytest.raises(InputError, match=r"to_tensor: expected numbers that can be converted, got array\(\['a'\]"):
        common.to_tensor(np.array(["a"]))
    with pytest.raises(
        InputError, match="to_ndarray: expected numbers that can be converted, got 1180591620717411303424"
    ):
        common.to_ndarray(2**70, np.int64)


@needs_torch
def test_the_order_of_bytes_does_not_matter() -> None:
    out = common.to_tensor(np.array([1.5, -2.0], ">f4"))
    assert (out.dtype, out.tolist()) == (torch.float32, [1.5, -2.0])
    assert common.to_tensor(np.array([3], ">i8"), torch.float32).tolist() == [3]


@needs_torch
def test_bfloat16_becomes_an_array_of_float32() -> None:
    out = common.to_ndarray(torch.tensor([1.5, -2.0], dtype=torch.bfloat16))
    check(out, [1.5, -2.0])


@needs_torch
def test_torch_is_imported_only_for_tensors() -> None:
    code = (
        "import sys; from stepmill.envs import one_hot, to_ndarray, to_tensor; one_hot(1, 2); to_ndarray([1.0]);"
        "before = 'torch' in sys.modules; to_tensor(1); print(before, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=600)
    assert done.stdout.split() == ["False", "True"]
