"""The observation and the action of one env, or of the players of one kind, in tensordicts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torchrl.data import Binary, Bounded, Categorical, Composite, MultiCategorical, MultiOneHot, OneHot, Unbounded

from stepmill.errors import SpaceError
from stepmill.values.trees import Tree, map_trees, paths, tree_of

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
        seen_specs = map_trees(_observation_spec, seen, paths(seen, "observation"))
        acts_specs = map_trees(lambda space, path: _action_spec(space, path, one_hot), acts, paths(acts, "action"))
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


# ---- specs of leaves -----------------------------------------------------------------------------

# torch has these types, but can do next to nothing with them.
_WIDER = {"uint16": torch.int32, "uint32": torch.int64}

_WholeNumbers = spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary


def _observation_spec(space: spaces.Space[Any], path: str) -> Any:
    """The spec of a leaf of an observation."""
    dtype = _dtype(space, path)
    if isinstance(space, spaces.Box):
        return _box_spec(space, dtype)
    return _spec_of_whole_numbers(space, dtype)


def _action_spec(space: spaces.Space[Any], path: str, one_hot: bool) -> Any:
    """The spec of a leaf of an action."""
    dtype = _dtype(space, path)
    if isinstance(space, spaces.Box):
        spec = _box_spec(space, dtype)
        # A random action must be finite: where not all values have bounds, TorchRL draws from normal distributions.
        return spec if space.is_bounded() else Unbounded(spec.shape, dtype=spec.dtype)
    spec = _spec_of_whole_numbers(space, dtype)
    if one_hot and type(spec) is Categorical:  # not Binary, which is a subclass
        return OneHot(spec.n, dtype=torch.long)  # of the type that TorchRL's own envs take
    if one_hot and type(spec) is MultiCategorical:
        return MultiOneHot(spec.nvec.tolist(), dtype=torch.long)
    return spec


def flags_spec(*shape: int) -> Any:
    """The spec of bools, such as ``done``."""
    return Categorical(2, shape=torch.Size(shape), dtype=torch.bool)


def _box_spec(space: spaces.Box, dtype: torch.dtype) -> Any:
    shape = torch.Size(space.shape or (1,))  # TorchRL's networks want a dimension for features
    if dtype == torch.bool:
        return Binary(shape[-1], shape=shape, dtype=dtype)
    if dtype.is_floating_point and not (np.isfinite(space.low).any() or np.isfinite(space.high).any()):
        return Unbounded(shape, dtype=dtype)
    low, high = (torch.as_tensor(bound.tolist(), dtype=dtype).reshape(shape) for bound in (space.low, space.high))
    return Bounded(low, high, shape, dtype=dtype)


def _spec_of_whole_numbers(space: Any, dtype: torch.dtype) -> Any:
    if isinstance(space, spaces.MultiBinary):
        return Binary(space.shape[-1], shape=torch.Size(space.shape), dtype=dtype)
    if isinstance(space, spaces.Discrete) and space.start == 0:
        return Categorical(int(space.n), dtype=dtype)
    if isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1 and not space.start.any():
        return MultiCategorical(space.nvec.tolist(), dtype=dtype)
    # TorchRL's categories begin at 0 and have one axis.
    count = np.asarray(space.n if isinstance(space, spaces.Discrete) else space.nvec)
    low, high = torch.as_tensor(np.asarray(space.start)), torch.as_tensor(space.start + count - 1)
    return Bounded(low, high, torch.Size(space.shape or ()), dtype=dtype)


def _dtype(space: spaces.Space[Any], path: str) -> torch.dtype:
    """The type of the tensors of a leaf, if it can have any."""
    if not isinstance(space, spaces.Box | _WholeNumbers):
        raise SpaceError(
            f"{path}: expected Box, Discrete, MultiDiscrete or MultiBinary, or a Dict or Tuple of these, got {space}: "
            "tensordicts have tensors only. Use a wrapper of the env that makes an array of it"
        )
    name = str(space.dtype)
    if name in _WIDER:
        return _WIDER[name]
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype) or name == "uint64":
        raise SpaceError(f"{path}: expected numbers of a type that torch can compute with, got {name}: {space}")
    return dtype
