"""Pools inside of programs that JAX compiles, beside the same pools stepped from Python."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import stepmill
from support.envs import ProbeTwin
from support.envs.compiled import ManyArrays

KINDS = ("native", "native-process", "inline", "process", "arrays-inline", "arrays-process")


def make_kind(kind: str, view: str = "gymnasium", **arguments: Any) -> Any:
    """A pool of three envs whose episodes are short."""
    family, _, place = kind.rpartition("-")
    backend = {"native": "thread"}.get(place, place)
    arguments = {"num_envs": 3, "seed": 5, "backend": backend, **arguments}
    if family == "arrays":
        return stepmill.make(ManyArrays, view, **arguments)
    if "native" in kind:
        return stepmill.make("Probe-v0", view, **{"length": 4, "info": True, **arguments})
    return stepmill.make(ProbeTwin, view, **{"length": 4, **arguments})


def actions_of(kind: str, steps: int, rows: int = 3) -> Any:
    """An action per step and row."""
    draw = np.random.default_rng(3)
    if not kind.startswith("arrays"):
        return draw.uniform(-1, 1, (steps, rows)).astype(np.float32)
    return {
        "push": draw.integers(-9, 9, (steps, rows, 2)).astype(np.float64),
        "turn": (draw.integers(1, 4, (steps, rows)), draw.integers(0, 4, (steps, rows, 2))),
    }


def at(tree: Any, step: int) -> Any:
    """One step of arrays with an axis for steps."""
    return jax.tree_util.tree_map(lambda one: np.asarray(one)[step], tree)


def on_jax(tree: Any) -> Any:
    return jax.tree_util.tree_map(jnp.asarray, tree)


def await_all(tree: Any) -> Any:
    return jax.block_until_ready(tree)


# ---- comparison --------------------------------------------------------------------------------------


def assert_shows(got: Any, plain: Any) -> None:
    """A result of a program is that of the pool: the same bits, in JAX's types; what the pool leaves out is 0 there."""
    if isinstance(plain, dict):
        assert got.keys() >= plain.keys()
        for key, one in got.items():
            _assert_key(key, one, got, plain)
    elif isinstance(plain, tuple):
        assert type(got) is type(plain) and len(got) == len(plain)
        for one, other in zip(got, plain, strict=True):
            assert_shows(one, other)
    elif plain is None:
        assert got is None
    else:
        _assert_array(got, plain)


def _assert_array(got: Any, plain: Any) -> None:
    plain = np.asarray(plain)
    assert (got.dtype, got.shape) == (jax.dtypes.canonicalize_dtype(plain.dtype), plain.shape)
    assert got.tobytes() == plain.astype(got.dtype).tobytes(), f"expected {plain!r}, got {got!r}"


def _assert_key(key: str, one: Any, got: dict[str, Any], plain: dict[str, Any]) -> None:
    mask = plain.get(f"_{key}")
    if key not in plain:
        flags = jax.tree_util.tree_leaves(one)
        assert all((flag == (key == "_abnormal")).all() for flag in flags), key
    elif mask is None or isinstance(plain[key], dict):
        assert_shows(one, plain[key])
    else:
        for row, is_there in enumerate(mask):
            if key == "final_obs":
                shown = plain[key][row] if is_there else None
            else:
                shown = plain[key][row : row + 1]
            part = jax.tree_util.tree_map(lambda leaf, row=row: leaf[row : row + 1], one)
            if not is_there:
                assert all(not leaf.any() for leaf in jax.tree_util.tree_leaves(part)), key
            elif key == "final_obs":
                assert_shows(part, _with_axis(shown))
            else:
                assert_shows(part, shown)


def _with_axis(observation: Any) -> Any:
    if isinstance(observation, dict):
        return {key: _with_axis(one) for key, one in observation.items()}
    if isinstance(observation, tuple):
        return tuple(map(_with_axis, observation))
    return np.asarray(observation)[None]
