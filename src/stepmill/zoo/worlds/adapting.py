"""What the adapters have in common: names that a suite does not have, and Gymnasium's spaces for arrays of JAX."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from stepmill.errors import ResourceError, UnknownEnvError, summary
from stepmill.registry.hints import ids_like

KEY = jax.ShapeDtypeStruct((2,), jnp.uint32)
"""The form of a key."""


def id_of(suite: str, task: Any, known: Iterable[str]) -> str:
    """The id of a name that the suite knows, or what to call an env object."""
    if not isinstance(task, str):
        return f"{suite}:{type(task).__name__}"
    known = list(known)
    if task not in known:
        near = [f"{suite}:{one}" for one in ids_like(task, known)]
        hint = f", did you mean {' or '.join(near)}?" if near else "."
        raise UnknownEnvError(f"unknown env id '{suite}:{task}'{hint} {suite} has: {', '.join(known)}")
    return f"{suite}:{task}"


@contextlib.contextmanager
def downloading(id: str, downloads: bool) -> Iterator[None]:
    """Says what is wrong if an env cannot be made because what it downloads is not there."""
    try:
        yield
    except OSError as error:
        if not downloads:
            raise
        raise ResourceError(
            f"{id} downloads data when it is made, which failed: {summary(error)}. It needs a network, or the files "
            "that an earlier download left"
        ) from error


def pixels_of(figure: Any) -> np.ndarray:
    """What is drawn on a figure of Matplotlib, which is then closed."""
    import matplotlib.pyplot as plt

    try:
        figure.canvas.draw()
        return np.array(figure.canvas.buffer_rgba())[..., :3].copy()
    finally:
        plt.close(figure)


def fields_of(params: Any) -> dict[str, Any]:
    """The fields of a dataclass, with their values."""
    return {one.name: getattr(params, one.name) for one in dataclasses.fields(params)}


def with_fields(params: Any, config: Mapping[str, Any]) -> Any:
    """A copy of a dataclass with those of its fields that a configuration has. An array stays one."""
    changed = {}
    for name, default in fields_of(params).items():
        if name in config:
            is_array = isinstance(default, jax.Array)
            changed[name] = jnp.asarray(config[name], default.dtype) if is_array else config[name]
    return dataclasses.replace(params, **changed)


def box_of(form: Any, low: Any = None, high: Any = None) -> spaces.Box:
    """The space of arrays of this form, between bounds, or of all values of its type."""
    dtype = np.dtype(form.dtype)
    if low is None or high is None:
        least: Any = -np.inf if dtype.kind == "f" else False if dtype.kind == "b" else np.iinfo(dtype).min
        most: Any = np.inf if dtype.kind == "f" else True if dtype.kind == "b" else np.iinfo(dtype).max
        low, high = least if low is None else low, most if high is None else high
    low, high = (np.broadcast_to(np.asarray(bound), form.shape).astype(dtype) for bound in (low, high))
    return spaces.Box(low, high, form.shape, dtype.type)


def boxes_of(tree: Any) -> spaces.Space[Any]:
    """The space of an array, or of dicts and tuples of arrays, without bounds."""
    if isinstance(tree, Mapping):
        return spaces.Dict({key: boxes_of(one) for key, one in tree.items()})
    if isinstance(tree, tuple | list):
        return spaces.Tuple([boxes_of(one) for one in tree])
    return box_of(tree)


def space_like(space: Any, form: Any = None) -> spaces.Space[Any]:
    """Gymnasium's space for one of Gymnax's, or of a suite that has these too.

    ``form`` is that of the arrays that an env really gives: their types are not always those of its space. For actions
    there is none.
    """
    inside = getattr(space, "spaces", None)
    if isinstance(inside, Mapping):
        return spaces.Dict({key: space_like(one, None if form is None else form[key]) for key, one in inside.items()})
    if inside is not None:
        return spaces.Tuple([space_like(one, None if form is None else form[i]) for i, one in enumerate(inside)])
    if hasattr(space, "n"):
        return spaces.Discrete(int(space.n), dtype=np.int64 if form is None else np.dtype(form.dtype).type)
    return box_of(space if form is None else form, space.low, space.high)
