"""The observation and the action of one env, or of the players of one kind, in tensordicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from gymnasium import spaces
from torchrl.data import Composite, MultiOneHot, OneHot

from stepmill.errors import SpaceError
from stepmill.interop.torchrl.specs import action_spec, observation_spec
from stepmill.values.trees import Tree, map_trees, paths, tree_of

__all__ = ["Group", "check_keys"]

# Keys of tensordicts that have a meaning for TorchRL, or for us.
_TAKEN = {"action", "reward", "done", "terminated", "truncated", "next", "abnormal", "collector", "env_index"}

Convert = Callable[[torch.Tensor], torch.Tensor]


class Group:
    """Rows that share their spaces.

    The parts of a Dict are at its keys, those of a Tuple at "0", "1" and so on. An observation that is not a Dict is at
    ``observation``, an action at ``action``.
    """

    def __init__(
        self, observation: spaces.Space[Any], action: spaces.Space[Any], one_hot: bool, taken: str | None = None
    ) -> None:
        seen, acts = tree_of(observation), tree_of(action)
        seen_specs = map_trees(observation_spec, seen, paths(seen, "observation"))
        acts_specs = map_trees(lambda space, path: action_spec(space, path, one_hot), acts, paths(acts, "action"))
        self._is_dict = isinstance(seen, dict)
        self._has_tuples = _by_keys(paths(seen)) != paths(seen)
        self._shown = map_trees(_converter_from, seen, seen_specs)
        self._sent = map_trees(_converter_to, acts, acts_specs)
        specs = _by_keys(seen_specs)
        if self._is_dict:
            check_keys(specs, "the parts of the observation", taken)
        self._observation_specs = specs if self._is_dict else {"observation": specs}
        self._action_specs = {"action": _by_keys(acts_specs)}

    def observation_spec(self, *shape: int) -> Composite:
        """The specs of the observations of rows of this shape, by their keys."""
        return _composite(self._observation_specs).expand(*shape)

    def action_spec(self, *shape: int) -> Composite:
        """The specs of the actions of rows of this shape, by their keys."""
        return _composite(self._action_specs).expand(*shape)

    def observation(self, value: Tree) -> dict[str, Any]:
        """The tensors of an observation by their keys."""
        tensors = map_trees(_call, self._shown, value)
        if self._has_tuples:
            tensors = _by_keys(tensors)
        return tensors if self._is_dict else {"observation": tensors}

    def action(self, value: Any) -> Tree:
        """What is at ``action`` in a tensordict, as a pool takes it."""
        return _sent(self._sent, value)


# ---- keys ----------------------------------------------------------------------------------------


def _by_keys(tree: Tree) -> Any:
    """The same tree with dicts in place of tuples: tensordicts have texts as keys."""
    if isinstance(tree, dict):
        return {key: _by_keys(child) for key, child in tree.items()}
    if isinstance(tree, tuple):
        return {str(i): _by_keys(child) for i, child in enumerate(tree)}
    return tree


def check_keys(keys: Iterable[Any], what: str, taken: str | None = None) -> None:
    """Raises if a key means something else in tensordicts, or is ``taken``."""
    for key in keys:
        if not isinstance(key, str) or key in _TAKEN or key == taken or key.startswith("_"):
            raise SpaceError(
                f"{what}: expected names that mean nothing else in TorchRL's tensordicts, got {key!r}: rename it in a "
                "wrapper of the env"
            )


def _composite(specs: dict[str, Any]) -> Composite:
    return Composite({key: _composite(one) if isinstance(one, dict) else one.clone() for key, one in specs.items()})


# ---- values --------------------------------------------------------------------------------------


def _call(convert: Convert | None, tensor: torch.Tensor) -> torch.Tensor:
    return tensor if convert is None else convert(tensor)


def _sent(converts: Tree, value: Any) -> Tree:
    if isinstance(converts, dict):
        return {key: _sent(child, value.get(key)) for key, child in converts.items()}
    if isinstance(converts, tuple):
        return tuple(_sent(child, value.get(str(i))) for i, child in enumerate(converts))
    return _call(converts, value)


def _converter_from(space: spaces.Space[Any], spec: Any) -> Convert | None:
    """What makes a pool's tensors fit the spec of an observation; None if they do as they are."""
    if isinstance(space, spaces.Box) and space.shape == ():
        return lambda tensor: tensor.unsqueeze(-1).to(spec.dtype)
    if str(spec.dtype) != f"torch.{space.dtype}":
        return lambda tensor: tensor.to(spec.dtype)
    return None


def _converter_to(space: spaces.Space[Any], spec: Any) -> Convert | None:
    """What makes an action of a policy fit the pool's space; None if it does as it is."""
    if isinstance(space, spaces.Box) and space.shape == ():
        return lambda tensor: tensor.squeeze(-1)
    if isinstance(spec, OneHot | MultiOneHot):
        to_numbers: Convert = spec.to_categorical
        return to_numbers
    return None
