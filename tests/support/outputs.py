"""For pools that hand out tensors: envs with all kinds of observations, and the comparison with numpy's arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

import stepmill
from support.envs import ProbeTwin
from support.envs.many_spaces import AllTypes


def make_kind(kind: str, view: str = "gymnasium", **arguments: Any) -> Any:
    """A pool of three envs: native ones, or Python ones in the calling thread or in worker processes."""
    if kind == "native":
        return stepmill.make("Probe-v0", view, num_envs=3, length=4, info=True, **arguments)
    env = AllTypes if kind == "objects" else ProbeTwin
    own = {} if kind == "objects" else {"length": 4, "info": True}
    backend = "process" if kind == "process" else "inline"
    return stepmill.make(env, view, num_envs=3, backend=backend, **own, **arguments)


def assert_shows(shown: Any, plain: Any, array_type: type, narrow: dict[str, str] | None = None) -> int:
    """A result shows the numpy result ``plain`` with arrays of that type. Returns how many arrays there were.

    ``narrow``: types that become another one.
    """
    if isinstance(plain, dict):
        assert shown.keys() == plain.keys()
        return sum(assert_shows(shown[key], plain[key], array_type, narrow) for key in plain)
    if isinstance(plain, tuple):
        assert type(shown) is type(plain)
        return sum(assert_shows(one, other, array_type, narrow) for one, other in zip(shown, plain, strict=True))
    if not isinstance(plain, np.ndarray | np.generic):
        assert shown == plain
        return 0
    assert isinstance(shown, array_type), type(shown)
    array = np.asarray(shown)
    name = plain.dtype.name
    assert (array.dtype.name, array.shape) == ((narrow or {}).get(name, name), plain.shape)
    np.testing.assert_array_equal(array, plain.astype(array.dtype))
    return 1


def split(view: str, result: Any) -> tuple[tuple[Any, ...], Any]:
    """A result of ``step`` as what ``output`` is about, and the rest, which stays numpy's."""
    if view == "dm":
        obs, *rest = result.observation
        return (obs, result.step_type, result.reward, result.discount), tuple(rest)
    return result[:-1], result[-1]
