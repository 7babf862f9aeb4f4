"""From actions of single envs to batches."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np

from stepmill import _native
from stepmill.errors import ActionError
from stepmill.spaces import FlatSpace, Tree

__all__ = ["stack_actions"]


def stack_actions(space: FlatSpace, actions: list[Any], players: int) -> Any:
    """Actions of single envs, arrays or tensors or numbers, as a batch: a row an env, in every part."""
    return _stack(space.tree, space, actions, players, "action")


def _stack(tree: Tree, space: FlatSpace, actions: list[Any], players: int, path: str) -> Any:
    if isinstance(tree, dict):
        _check_parts(actions, dict, lambda one: set(one) == set(tree), f"a dict with the keys {list(tree)}", path)
        return {
            key: _stack(child, space, [one[key] for one in actions], players, f"{path}[{key!r}]")
            for key, child in tree.items()
        }
    if isinstance(tree, tuple):
        _check_parts(actions, tuple | list, lambda one: len(one) == len(tree), f"a tuple of {len(tree)}", path)
        return tuple(
            _stack(child, space, [one[i] for one in actions], players, f"{path}[{i}]") for i, child in enumerate(tree)
        )
    if tree < 0:
        return [_as_array(one) for one in actions]
    shape = space.leaves[tree].shape if players == 1 else (players, *space.leaves[tree].shape)
    stacked = _native.stack_alike(actions)
    if stacked is None:
        if not set(map(type, actions)) <= _PLAIN:
            actions = [_as_array(one) for one in actions]
        with contextlib.suppress(ValueError):  # of different shapes
            stacked = np.array(actions)
    if stacked is None or not _fits(stacked.shape[1:], shape):
        arrays = [np.asarray(one) for one in actions]
        if not all(_fits(one.shape, shape) for one in arrays):
            got = ", ".join(map(str, sorted({one.shape for one in arrays})))
            raise ActionError(f"{path}: expected shape {shape} of every env, got {got}")
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
        raise ActionError(f"action: expected numbers of a type that numpy has, got {action!r}: {error}") from error


def _fits(got: tuple[int, ...], expected: tuple[int, ...]) -> bool:
    """A Discrete action may have shape (1,), as policies give it: axes of one element are nobody's loss."""
    return [n for n in got if n != 1] == [n for n in expected if n != 1]


def _check_parts(actions: list[Any], kind: Any, fits: Any, expected: str, path: str) -> None:
    for one in actions:
        if not isinstance(one, kind) or not fits(one):
            raise ActionError(f"{path}: expected {expected}, got {one!r}")
