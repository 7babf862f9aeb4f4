"""Env elements: descriptions of an observation, an action or a reward, independent of any single env.

::

    EnvElement          stateless, one instance per class: shape, bounds, and the functions that encode and decode
    EnvElementRunner    stateful, one per env: what changes during an episode (``env_element_runner.py``)
"""

from __future__ import annotations

import copy
import inspect
import threading
from abc import ABC, ABCMeta, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np

from stepmill.envs.env_info import EnvElementInfo
from stepmill.errors import ConfigError, UsageError

__all__ = ["EnvElement", "EnvElementInfo", "IEnvElement"]


class IEnvElement(ABC):
    """What elements and their runners have in common: they describe themselves."""

    @abstractmethod
    def __repr__(self) -> str:
        """What this is, for people."""

    @property
    @abstractmethod
    def info(self) -> Any:
        """What this is, for programs."""


class _Element(NamedTuple):
    instance: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


# Not an attribute of the classes: a class that cloudpickle sends by value would take its instance along.
_made: dict[type, _Element] = {}
_making = threading.RLock()  # reentrant: an element may make others in its _init


class _OneInstance(ABCMeta):
    """Calling the class again returns the object of the first call. Each subclass has its own."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        with _making:
            made = _made.get(cls)
            if made is None:
                made = _Element(super().__call__(*args, **kwargs), args, kwargs)
                _made[cls] = made
            elif not _same(_bound(cls, args, kwargs), _bound(cls, made.args, made.kwargs)):
                raise ConfigError(
                    f"{cls.__name__}: an element has one instance, which was made with "
                    f"{_text(made.args, made.kwargs)}, got {_text(args, kwargs)}; make a subclass for other arguments"
                )
            return made.instance


class _Instance:
    """``_instance``: the one object of a class, also asked through that object; None before it is made."""

    def __get__(self, element: Any, owner: type) -> Any:
        made = _made.get(owner)
        return None if made is None else made.instance


class EnvElement(IEnvElement, metaclass=_OneInstance):
    """An observation, an action or a reward: its form, and how it is translated. Keeps no state.

    Every class has one instance in a process, so that all callers get the same answer; a call with other arguments than
    the first is an error. Pickling and copying return that instance too.

    A subclass writes ``_init``, which sets the four attributes below (``None`` if not needed), and ``_details``; it may
    extend ``_check`` (call the inherited one first). Once made, an element cannot be changed: what changes belongs in a
    runner.
    """

    # The class of ``info``. Your own class must accept these four as keywords.
    info_template: ClassVar[Callable[..., Any]] = EnvElementInfo
    _name: str = "EnvElement"
    _instance: ClassVar[Any] = _Instance()

    _shape: Any  # a tuple, or a dict or tuple of these
    _value: Any  # ``min``, ``max`` and ``dtype``
    _to_agent_processor: Callable[..., Any] | None  # from the simulator's form to the agent's
    _from_agent_processor: Callable[..., Any] | None  # and back

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._init(*args, **kwargs)
        self._check()

    @abstractmethod
    def _init(self, *args: Any, **kwargs: Any) -> None:
        """Sets the attributes."""

    @abstractmethod
    def _details(self) -> str:
        """What ``repr`` says after the name."""

    def _check(self) -> None:
        """Raises a ``ConfigError`` if the element is incomplete."""
        needed = ("_shape", "_value", "_to_agent_processor", "_from_agent_processor")
        missing = [name for name in needed if not hasattr(self, name)]
        if missing:
            raise ConfigError(
                f"{type(self).__name__}: expected _init to set {', '.join(needed)} (None if not needed), "
                f"got no {', '.join(missing)}"
            )

    @property
    def info(self) -> Any:
        """A copy for the caller: changing it does not change the element."""
        return type(self).info_template(
            shape=copy.deepcopy(self._shape),
            value=copy.deepcopy(self._value),
            to_agent_processor=self._to_agent_processor,
            from_agent_processor=self._from_agent_processor,
        )

    def __repr__(self) -> str:
        return f"{self._name}: {self._details()}"

    def __setattr__(self, name: str, value: Any) -> None:
        self._refuse_change(f"{name} = {value!r}")
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        self._refuse_change(f"del {name}")
        super().__delattr__(name)

    def _refuse_change(self, change: str) -> None:
        if type(self) in _made:
            raise UsageError(
                f"{type(self).__name__}: an element is shared by all envs of a process and cannot be changed, "
                f"got {change}; keep state in a runner"
            )

    def __reduce__(self) -> Any:
        made = _made[type(self)]
        return _made_again, (type(self), made.args, made.kwargs)

    def __copy__(self) -> EnvElement:
        return self

    def __deepcopy__(self, memo: Any) -> EnvElement:
        return self


def _made_again(cls: type[EnvElement], args: tuple[Any, ...], kwargs: dict[str, Any]) -> EnvElement:
    return cls(*args, **kwargs)


def _bound(cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any] | None:
    """The arguments by name, with the defaults: ``E()`` and ``E(size=3)`` are the same where 3 is the default.

    None for arguments that the class does not accept.
    """
    takes_them = cls._init if cls.__init__ is EnvElement.__init__ else cls.__init__
    try:
        bound = inspect.signature(takes_them).bind(None, *args, **kwargs)
    except TypeError:
        return None
    bound.apply_defaults()
    return dict(bound.arguments)


def _same(left: Any, right: Any) -> bool:
    if left is right:
        return True
    if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
        return type(left) is type(right) and left.dtype == right.dtype and np.array_equal(left, right)
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    if isinstance(left, tuple | list) and type(left) is type(right):
        return len(left) == len(right) and all(map(_same, left, right))
    return bool(left == right)


def _text(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    return f"({', '.join([*map(repr, args), *(f'{key}={value!r}' for key, value in kwargs.items())])})"
