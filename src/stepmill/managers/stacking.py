"""Actions of single envs become a batch."""

from __future__ import annotations

import contextlib
import copy
import functools
from typing import Any

import numpy as np

from stepmill import _native
from stepmill.errors import ActionError
from stepmill.values.fitting import Misfit, as_numbers, fits, form_of, has_form
from stepmill.values.spaces import FlatSpace
from stepmill.values.trees import Tree, map_tree, step_into


def stack_actions(space: FlatSpace, actions: list[Any], players: int) -> Any:
    """Actions of single envs (arrays, tensors, numbers) as a batch: every part has one row per env."""
    return _stack(space.tree, space, actions, players, "action")


def stack_any_actions(space: FlatSpace, actions: list[Any]) -> tuple[Any, dict[int, list[Any]]]:
    """Actions of single envs that also take what their space does not describe: see ``DingAsItIs``.

    Returns a batch, and by row the actions that do not fit into it: in the batch, valid actions stand in for these.
    """
    tree = space.tree[0]
    batch, sent = None, {}
    if isinstance(tree, int) and tree >= 0:  # nearly always, and the actions nearly always fit
        try:
            batch = _stack(tree, space, actions, 1, "action")
        except ActionError:
            batch = None
    if batch is None or batch.dtype.kind not in "biuf":
        sent = {row: one for row, one in enumerate(actions) if not _describes(tree, space, one)}
        stand_in = map_tree(functools.partial(_any_action, space), tree)
        known = [stand_in if row in sent else one for row, one in enumerate(actions)]
        batch = _stack(tree, space, known, 1, "action")
    nothing = [None] * len(actions)
    return (batch, nothing), {row: [(copy.deepcopy(_as_array(one)),)] for row, one in sent.items()}


def _describes(tree: Tree, space: FlatSpace, action: Any) -> bool:
    """Whether an action has the form of the space. Its values are checked by the engine."""

    def accepts(index: int, part: Any) -> bool:
        numbers = None if index < 0 else as_numbers(_as_array(part))
        return numbers is not None and _same_shape(numbers.shape, space.leaves[index].shape)

    return tree != () and fits(accepts, tree, action)  # an env without an action space has an empty tree


def _any_action(space: FlatSpace, index: int) -> np.ndarray | None:
    if index < 0:
        return None
    leaf = space.leaves[index]
    low = np.where(np.isfinite(leaf.low), leaf.low, 0.0).astype(leaf.dtype)
    return np.full(leaf.shape, low[0]) if low.size == 1 else low.reshape(leaf.shape)  # one value for all


def _stack(tree: Tree, space: FlatSpace, actions: list[Any], players: int, path: str) -> Any:
    if isinstance(tree, dict):
        _check_form(tree, actions, path)
        return {
            key: _stack(child, space, [one[key] for one in actions], players, step_into(path, key))
            for key, child in tree.items()
        }
    if isinstance(tree, tuple):
        _check_form(tree, actions, path)
        return tuple(
            _stack(child, space, [one[i] for one in actions], players, step_into(path, i))
            for i, child in enumerate(tree)
        )
    if tree < 0:
        return [_as_array(one) for one in actions]
    shape = space.leaves[tree].shape if players == 1 else (players, *space.leaves[tree].shape)
    stacked = _native.stack_alike(actions)
    if stacked is None:
        if not set(map(type, actions)) <= _PLAIN:
            actions = [_as_array(one) for one in actions]
        with contextlib.suppress(ValueError):  # their shapes differ
            stacked = np.array(actions)
    if stacked is None or not _same_shape(stacked.shape[1:], shape):
        arrays = [np.asarray(one) for one in actions]
        if not all(_same_shape(one.shape, shape) for one in arrays):
            got = ", ".join(map(str, sorted({one.shape for one in arrays})))
            raise ActionError(f"{path}: expected shape {shape} for every env, got {got}")
        stacked = np.array([one.reshape(shape) for one in arrays])
    return stacked.reshape(len(actions) * players, *space.leaves[tree].shape)


_PLAIN = {int, float, np.ndarray, np.int64, np.int32, np.float32, np.float64}


def _as_array(action: Any) -> Any:
    if isinstance(action, dict):
        return {key: _as_array(child) for key, child in action.items()}
    if isinstance(action, tuple | list):
        return type(action)(_as_array(child) for child in action) if type(action) in (tuple, list) else action
    if not hasattr(action, "detach"):
        return action
    try:
        return action.detach().cpu().numpy()
    except TypeError as error:  # bfloat16 and others
        raise ActionError(f"action: expected numbers of a type that numpy knows, got {action!r}: {error}") from error


def _same_shape(got: tuple[int, ...], expected: tuple[int, ...]) -> bool:
    """Axes of length one do not matter: policies give Discrete actions of shape (1,)."""
    return [n for n in got if n != 1] == [n for n in expected if n != 1]


def _check_form(tree: Tree, actions: list[Any], path: str) -> None:
    for one in actions:
        if not has_form(tree, one):
            raise ActionError(Misfit(form_of(tree), one).message(path))
