"""``stepmill.jit``: an env that is written in Python, and compiled."""

from __future__ import annotations

import inspect
import sys
from typing import Any

from stepmill.errors import ConfigError
from stepmill.registry.factories import EnvFactory, check_keys
from stepmill.sources.jit.declaration import Declaration
from stepmill.sources.jit.jit_library import JitLibrary
from stepmill.sources.jit.python_twin import PythonTwin


def jit(env_class: type) -> JitClass:
    """Makes an env of a class whose functions Numba can compile: ``make(Coin, num_envs=4096)`` runs it on threads.

    The class has, besides ``observation_space`` and ``action_space``:

    - ``state``: what an env remembers, as numpy describes a record: ``[("x", np.float64), ("row", np.int8, (3,))]``.
      Each is an attribute of ``self``, and 0 at first.
    - ``settings``: numbers that ``make(..., key=value)`` may change, with their defaults. Attributes of ``self`` too.
    - ``info`` and ``options``, if there are any: the spaces of its infos, and the defaults of what
      ``reset(options={...})`` may say, all numbers.
    - ``reset(self, random)``, with ``options`` as a third parameter if there are any.
    - ``step(self, action, random)``, which returns ``reward, terminated, truncated``.
    - ``observe(self, observation)``, which writes all of the observation; with ``info`` as a third parameter if there
      are infos.
    - ``init(self)``, if something depends on the settings alone.

    Its other methods and plain functions are compiled along; other attributes are constants. ``random`` has
    ``uniform(low=0.0, high=1.0)``, ``integer(low, high)`` and ``normal(mean=0.0, deviation=1.0)``: numpy's numbers for
    the seed of the env. ``make(Coin, jit=False)`` runs the same class as Python, with the same episodes bit for bit,
    and without Numba.
    """
    if not isinstance(env_class, type):
        raise ConfigError(f"stepmill.jit: expected a class, got {env_class!r:.200}")
    return JitClass(env_class)


class JitClass(Declaration, EnvFactory):
    """What ``stepmill.jit`` makes of a class. Called with settings, it makes a single ``gymnasium.Env``, in Python."""

    def __init__(self, env_class: type) -> None:
        super().__init__(env_class)
        self._library: JitLibrary | None = None
        keys = [inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=v) for key, v in self.settings.items()]
        self.__signature__ = inspect.Signature(
            [*keys, inspect.Parameter("jit", inspect.Parameter.KEYWORD_ONLY, default=True)]
        )

    # ---- as a factory of Python envs

    def __call__(self, **config: Any) -> PythonTwin:
        config.pop("jit", None)
        check_keys(self.__name__, config, self.settings)
        return PythonTwin(self, {**self.settings, **config})

    def known_keys(self) -> list[str]:
        return [*self.settings, "jit"]

    def __reduce__(self) -> Any:
        place: Any = sys.modules.get(self.__module__)
        for name in self.__qualname__.split("."):
            place = getattr(place, name, None)
        if place is self and self.__module__ != "__main__":
            return self.__qualname__
        return JitClass, (self.env_class,)

    def __repr__(self) -> str:
        return f"<stepmill.jit class {self.__module__}.{self.__qualname__}>"

    # ---- as a native class

    def library(self) -> JitLibrary:
        """Its functions, compiled, and known to the engine of this process; again if a global of theirs has changed."""
        if self._library is None or not self._library.is_current():
            self._library = JitLibrary.compiled(self)
        return self._library
