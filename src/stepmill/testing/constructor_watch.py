"""Sees what an env does in ``__init__``, where it should only store its configuration."""

from __future__ import annotations

import sys
from types import FrameType, TracebackType
from typing import Any

import gymnasium

from stepmill.envs.base_env import BaseEnv
from stepmill.testing.belongings import Belongings

__all__ = ["ConstructorWatch"]


class ConstructorWatch:
    """Watches the calls of this thread while a ``BaseEnv`` is built. ``signs`` are those of a simulator.

    Such signs are, while ``__init__`` of a ``BaseEnv`` runs: the ``__init__`` of an env of Gymnasium, dm_env or
    PettingZoo, and the env's own ``reset``; and after it: a thread, a child process or a file descriptor that was not
    there before. A simulator of another kind that opens nothing leaves none of these, and is not seen.
    """

    def __init__(self) -> None:
        self.signs: list[str] = []
        # Profilers do not share: where one runs, calls are not seen.
        self.saw_calls = sys.getprofile() is None
        self._constructor: FrameType | None = None

    def __enter__(self) -> ConstructorWatch:
        self._before = Belongings.now()
        if self.saw_calls:
            sys.setprofile(self._see)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.saw_calls:
            sys.setprofile(None)
        self._constructor = None
        self.signs += [f"{one} opened" for one in Belongings.now().since(self._before)]

    def _see(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "return" and frame is self._constructor:
            self._constructor = None
        elif event == "call" and frame.f_code.co_name in ("__init__", "reset"):
            self._see_method(frame, frame.f_code.co_name)

    def _see_method(self, frame: FrameType, name: str) -> None:
        owner = _owner(frame)
        if self._constructor is None:
            if name == "__init__" and _is_base_env(owner):
                self._constructor = frame
        elif name == "reset" and owner is _owner(self._constructor):
            self.signs.append("reset() called")
        # Wrappers come after what they wrap: the first one says it.
        elif name == "__init__" and _is_simulator(owner) and not self.signs:
            self.signs.append(f"{type(owner).__name__} built")


def _owner(frame: FrameType) -> Any:
    code = frame.f_code
    return frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None


def _is_base_env(thing: Any) -> bool:
    """Ours, or DI-engine's. The class is asked: the instance is half built, and a wrapper has nothing inside yet."""
    return isinstance(thing, BaseEnv) or hasattr(type(thing), "create_collector_env_cfg")


def _is_simulator(thing: Any) -> bool:
    if _is_base_env(thing):
        return False  # it has its own __init__ to answer for
    if isinstance(thing, gymnasium.Env | gymnasium.vector.VectorEnv):
        return True
    for module, name in (("dm_env", "Environment"), ("pettingzoo", "ParallelEnv"), ("pettingzoo", "AECEnv")):
        kind = getattr(sys.modules.get(module), name, None)
        if isinstance(kind, type) and isinstance(thing, kind):
            return True
    return False
