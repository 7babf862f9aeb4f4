"""What ``help(pool.step)`` and editors show: a signature, and a text whose example runs."""

from __future__ import annotations

import doctest
import functools
import gc
import inspect
import pydoc
import re
import weakref
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import stepmill
from stepmill import _native
from stepmill.interop import envpool
from stepmill.managers import BaseEnvManager

MAKERS = {
    "gymnasium": stepmill.make_gymnasium,
    "gym": stepmill.make_gym,
    "dm": stepmill.make_dm,
    "envpool": functools.partial(envpool.make, env_type="gymnasium"),
}
CALLS = ("step", "recv", "send", "reset")
WAITS = "(timeout: 'float | None' = None, at_least: 'int | None' = None)"

ACTION = "(action: 'Any', env_id: 'Any' = None)"
SIGNATURES = {
    ("gymnasium", "step"): ACTION.replace("action", "actions")
    + " -> 'tuple[Any, Array, Array, Array, dict[str, Any]]'",
    ("gym", "step"): ACTION + " -> 'tuple[Any, Array, Array, dict[str, Any]]'",
    ("dm", "step"): ACTION + " -> 'TimeStep[Array]'",
    ("envpool", "step"): ACTION + " -> 'tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]'",
    ("gymnasium", "recv"): f"{WAITS} -> 'tuple[Any, Array, Array, Array, dict[str, Any]]'",
    ("dm", "recv"): f"{WAITS} -> 'TimeStep[Array]'",
    ("gymnasium", "send"): ACTION + " -> 'None'",
    ("gymnasium", "reset"): "(env_id: 'Any' = None, *, seed: 'Any' = None, options: 'Mapping[str, Any] | None' = None)"
    " -> 'tuple[Any, dict[str, Any]]'",
}


def shown(thing: Any) -> str:
    return pydoc.plain(pydoc.render_doc(thing))


def in_one_line(text: str) -> str:
    """From Python 3.13 on, a long signature has a line per parameter."""
    lines = re.sub(r"^ \|", "", text, flags=re.MULTILINE)  # of the methods of a class
    return re.sub(r",? \)", ")", " ".join(lines.split()).replace("( ", "("))


@pytest.mark.parametrize(("view", "call"), SIGNATURES)
def test_calls_have_a_signature(view: str, call: str) -> None:
    with MAKERS[view]("CartPole-v1", num_envs=2) as pool:
        assert str(inspect.signature(getattr(pool, call))) == SIGNATURES[view, call]
        bound = inspect.signature(getattr(pool, call)).parameters
        assert ["self", *bound] == list(inspect.signature(getattr(type(pool), call)).parameters)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("view", ["gymnasium", "gym", "dm"])
def test_help_says_what_a_call_takes_returns_and_raises(view: str, call: str) -> None:
    with MAKERS[view]("CartPole-v1", num_envs=2) as pool:
        text = shown(getattr(pool, call))
        title = f"{call}{inspect.signature(getattr(pool, call))}"
        assert title in in_one_line(text)
        for part in ("Args:", "Raises:", "Example:", *(() if call == "send" else ("Returns:",))):
            assert f"\n        {part}\n" in text.replace("    " + part, "        " + part), text
        for name in inspect.signature(getattr(pool, call)).parameters:
            assert f" {name}: " in text
        assert f"{call}(self" in in_one_line(shown(type(pool)))  # and help(type(pool)) has them all


@pytest.mark.parametrize("call", ["step", "reset"])
def test_managers_have_the_same(call: str) -> None:
    text = shown(getattr(BaseEnvManager, call))
    for part in ("Args:", "Raises:", "Example:"):
        assert part in text


CASES = [
    *((MAKERS[view], call) for view in ("gymnasium", "gym", "dm") for call in CALLS),
    (MAKERS["gymnasium"], "rollout"),
    (MAKERS["gymnasium"], "play"),
    (MAKERS["gymnasium"], "record_order"),
    (MAKERS["gymnasium"], "checkpoint"),
    (stepmill, "resume"),
    *((None, call) for call in ("step", "reset")),
]


@pytest.mark.parametrize(("maker", "call"), CASES)
def test_the_examples_run(maker: Any, call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"np": np, "stepmill": stepmill}
    if maker is None:
        owner: Any = BaseEnvManager
        names["manager"] = manager = BaseEnvManager([lambda: gymnasium.make("CartPole-v1")] * 3)
        manager.launch()
    elif maker is stepmill:
        owner = stepmill
    else:
        with maker("CartPole-v1") as pool:
            owner = pool
    (found,) = doctest.DocTestFinder(recurse=False).find(_Text(getattr(owner, call).__doc__), call, globs=names)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    assert runner.run(found, clear_globs=False).attempted > 2
    assert runner.failures == 0
    for made in map(found.globs.get, ("pool", "again", "manager")):
        if made is not None:
            made.close()


class _Text:
    """Where doctest looks for a text."""

    def __init__(self, text: str) -> None:
        self.__doc__ = text


# ---- the calls themselves ------------------------------------------------------------------------


def test_a_call_has_the_name_of_its_method() -> None:
    with stepmill.make("CartPole-v1") as pool:
        for call in ("step", "recv", "reset"):
            bound: Any = getattr(pool, call)
            assert bound.__name__ == call
            assert bound.__qualname__ == f"GymnasiumPool.{call}"
            assert bound.__module__ == "stepmill.views.gymnasium"
            assert repr(bound) == f"<bound GymnasiumPool.{call}>"
            assert functools.wraps(bound)(lambda: None).__doc__ == bound.__doc__


def count(*args: Any, **kwargs: Any) -> Any:
    return lambda *rest: (args, kwargs, rest), ("told",)


@pytest.mark.parametrize("given", [0, 1, 2, 12])
@pytest.mark.parametrize("more", [0, 1, 2, 12])
@pytest.mark.parametrize("named", [0, 1, 12])
def test_all_arguments_arrive_in_order(given: int, more: int, named: int) -> None:
    bound = _native.Bound(_native.call_prepared, (count, *range(given)), None)
    args, kwargs = tuple(range(100, 100 + more)), {f"k{i}": i for i in range(named)}
    for _ in range(2):  # the second time, nothing of the first is left
        assert bound(*args, **kwargs) == ((*range(given), *args), kwargs, ("told",))


def test_wrong_parts_are_errors() -> None:
    for parts in [(), (len, [], None), (len, ()), (3, (), None)]:
        with pytest.raises(TypeError):
            _native.Bound(*parts)
    with pytest.raises(TypeError):
        _native.Bound(len, (), None)()
    with pytest.raises(TypeError, match="keywords"):
        _native.Bound(len, (), shown=None)  # type: ignore[call-arg]


def test_a_kept_call_in_a_circle_is_collected() -> None:
    class Kept:
        """Refers to itself through a call."""

    kept = Kept()
    kept.call = _native.Bound(_native.call_prepared, (count, kept), None)  # type: ignore[attr-defined]
    gone = weakref.ref(kept)
    del kept
    gc.collect()
    assert gone() is None
