"""A value against its space: what is taken, and the words for what is not."""

from __future__ import annotations

import pickle
import types
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from stepmill.errors import ActionError
from stepmill.values.fitting import Fitter, Misfit, array_of, fit, member_of
from stepmill.values.trees import tree_of

SPACE = spaces.Dict(
    {"eye": spaces.Box(0, 1, (2,), np.float32), "ear": spaces.Tuple([spaces.Discrete(3), spaces.MultiBinary(2)])}
)
TREE = tree_of(SPACE)
EYE, EAR = np.zeros(2, np.float32), (1, [0, 1])


def told(value: Any, **options: Any) -> str:
    with pytest.raises(Misfit) as caught:
        fit(member_of, TREE, value, **options)
    return caught.value.message("observation")


@pytest.mark.parametrize(
    "value",
    [
        {"eye": EYE, "ear": EAR},
        {"eye": [0, 1], "ear": list(EAR)},
        OrderedDict(ear=EAR, eye=EYE),
        types.MappingProxyType({"eye": EYE, "ear": EAR}),
        {"eye": np.zeros(2), "ear": (2.0, np.array([True, False]))},
    ],
    ids=["as it is", "lists", "another order", "another mapping", "other types"],
)
def test_what_fits_comes_out_in_the_types_of_the_space(value: Any) -> None:
    out = fit(member_of, TREE, value)
    assert list(out) == list(TREE)
    assert out["eye"].dtype == np.float32
    assert [part.dtype for part in out["ear"]] == [np.int64, np.int8]


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (None, "observation: expected a dict with the keys 'ear', 'eye', got None"),
        ({"eye": EYE}, "observation: expected a dict with the keys 'ear', 'eye', got a dict with the keys 'eye'"),
        ({}, "observation: expected a dict with the keys 'ear', 'eye', got an empty dict"),
        (
            {"eye": EYE, "ear": EAR, "nose": 1},
            "observation: expected a dict with the keys 'ear', 'eye', got a dict with the keys 'eye', 'ear', 'nose'",
        ),
        ({"eye": EYE, "ear": (1,)}, "observation['ear']: expected a tuple of 2 parts, got (1,)"),
        ({"eye": EYE, "ear": 1}, "observation['ear']: expected a tuple of 2 parts, got 1"),
        ({"eye": 1, "ear": EAR}, "observation['eye']: expected numbers of shape (2,) and type float32, got 1"),
        ({"eye": "no", "ear": EAR}, "observation['eye']: expected numbers of shape (2,) and type float32, got 'no'"),
        ({"eye": {}, "ear": EAR}, "observation['eye']: expected numbers of shape (2,) and type float32, got an empty"),
        ({"eye": EYE, "ear": (0.5, [0, 1])}, "observation['ear'][0]: expected numbers of shape () that int64 can hold"),
        ({"eye": EYE, "ear": (3, [0, 1])}, "observation['ear'][0]: expected Discrete(3), got 3"),
        ({"eye": EYE, "ear": (1, [0, 2])}, "observation['ear'][1]: expected MultiBinary(2), got [0, 2]"),
    ],
    ids=lambda value: None,
)
def test_what_does_not_fit_is_told_with_its_place(value: Any, says: str) -> None:
    assert told(value).startswith(says)


def test_spare_keys_may_be_allowed() -> None:
    value = {"eye": EYE, "ear": EAR, "nose": 1}
    assert list(fit(member_of, TREE, value, spare=True)) == list(TREE)
    assert told({"eye": EYE, "nose": 1}, spare=True).endswith("got a dict with the keys 'eye', 'nose'")


def test_an_array_that_fits_is_not_copied() -> None:
    assert array_of((2,), np.dtype(np.float32), EYE) is EYE


def test_a_fitter_travels_and_names_its_owner() -> None:
    fitter = pickle.loads(pickle.dumps(Fitter({"a": int, "b": (float,)}, "Env(x)", "action", ActionError)))
    assert fitter({"a": "3", "b": [1]}) == {"a": 3, "b": (1.0,)}
    with pytest.raises(ActionError, match=r"^Env\(x\): action\['b'\]: expected a tuple of 1 parts, got 5$"):
        fitter({"a": 1, "b": 5})
