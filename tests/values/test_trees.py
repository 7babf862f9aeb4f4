"""The walk over nested values: every function on the same odd trees."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from gymnasium import spaces

from stepmill.values.trees import as_tree, leaves, map_tree, map_trees, paths, space_from, tree_of


class Pair(NamedTuple):
    one: Any
    two: Any


TREES = {
    "a leaf": 1,
    "a dict": {"b": 1, "a": 2},
    "a tuple": (1, 2),
    "nested": {"b": (1, {"c": 2}), "a": 3},
    "nothing in a dict": {},
    "nothing in a tuple": ((), {"a": ()}, 1),
    "a list is a leaf": ([1, 2], [3]),
    "None is a leaf": (None, 1),
    "a named tuple": {"a": Pair(1, (2,))},
}


@pytest.mark.parametrize("tree", TREES.values(), ids=TREES)
def test_a_map_keeps_form_and_order(tree: Any) -> None:
    seen = []
    out = map_tree(lambda leaf: seen.append(leaf) or leaf, tree)
    assert repr(out) == repr(tree)  # and the kinds of tuples
    assert seen == list(leaves(tree))
    assert map_trees(lambda leaf, same: leaf if leaf is same else "another", tree, tree) == tree


@pytest.mark.parametrize("tree", TREES.values(), ids=TREES)
def test_a_path_leads_to_its_leaf(tree: Any) -> None:
    found = paths(tree, "tree")
    for path, leaf in zip(leaves(found), leaves(tree), strict=True):
        assert eval(path, {"tree": tree}) is leaf


def test_others_are_read_by_the_keys_of_the_first() -> None:
    tree = {"a": (1, 2)}
    assert map_trees(lambda one, two: one + two, tree, {"more": 0, "a": [10, 20]}) == {"a": (11, 22)}


@pytest.mark.parametrize("other", [{}, {"a": (1,)}, {"a": 1}, 5, {"a": (1, 2, 3)}], ids=str)
def test_another_form_is_an_error_of_python(other: Any) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        map_trees(lambda one, two: one, {"a": (1, 2)}, other)


def test_paths_may_be_written_otherwise() -> None:
    tree = {"a": (1, 2), "b": 3}
    assert list(leaves(paths(tree, "", lambda path, key: f"{path}.{key}"))) == [".a.0", ".a.1", ".b"]


def test_what_only_looks_like_a_tree_becomes_one() -> None:
    class Items:
        def items(self) -> Any:
            return [("a", [1, 2])]

    assert as_tree([Items(), {"b": [3]}]) == ({"a": (1, 2)}, {"b": (3,)})


SPACES = {
    "Box": spaces.Box(0, 1, (2,)),
    "Dict": spaces.Dict({"b": spaces.Discrete(2), "a": spaces.Tuple([spaces.Discrete(3), spaces.Text(4)])}),
    "Dict of none": spaces.Dict({}),
    "Tuple of none": spaces.Tuple([spaces.Tuple([])]),
    "OneOf": spaces.OneOf([spaces.Discrete(2), spaces.Discrete(3)]),
}


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_a_space_and_its_tree(space: spaces.Space[Any]) -> None:
    tree = tree_of(space)
    assert space_from(tree) == space
    assert not any(isinstance(leaf, spaces.Dict | spaces.Tuple) for leaf in leaves(tree))


def test_a_value_is_walked_beside_its_space() -> None:
    space = spaces.Dict({"a": spaces.Box(0, 1, (2,)), "b": spaces.Tuple([spaces.Discrete(3)])})
    shapes = map_trees(lambda leaf, value: leaf.shape == np.shape(value), tree_of(space), space.sample())
    assert shapes == {"a": True, "b": (True,)}
