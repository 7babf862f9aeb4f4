"""Pictures of native envs, drawn where the envs live: in the caller's process, or in a worker process.

::

    native env -- picture() --> numbers -- Drawer --> what render() of Gymnasium's env returns

The env has no other part in it (``cpp/core/env/env.h``), and is idle meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from stepmill.errors import NeedsResetError, UnsupportedError
from stepmill.sources.simulator import Simulator
from stepmill.sources.source import NativeSource


@dataclass(frozen=True)
class Scene:
    """What there is to draw of one env."""

    env_id: int
    resets: int  # how often the env was reset, at least once: a change means another episode
    numbers: Sequence[float]  # from its ``picture``
    simulator: Simulator | None  # the env's own, in families that have one


class Drawer(Protocol):
    """Draws the native envs of one class: all of a pool, or all of a worker process. Each family has its own.

    ``registry.register_drawer`` says which one draws which native class.
    """

    def __init__(self, source: NativeSource) -> None:
        """Called at the first picture. ``source.render_mode`` is one of ``render_modes``, and not ``"human"``."""
        ...

    @classmethod
    def render_modes(cls) -> Sequence[str]:
        """The render modes of Gymnasium's env."""
        ...

    @classmethod
    def metadata(cls, source: NativeSource) -> dict[str, Any]:
        """The ``metadata`` of Gymnasium's env with the configuration of the first env."""
        ...

    def draw(self, scene: Scene) -> Any:
        """What ``render()`` of Gymnasium's env would return now."""
        ...

    def close(self) -> None:
        """Frees what lives outside this process's memory."""
        ...


class Renderer:
    """``render`` of native envs. Makes their drawer at the first picture.

    ``simulators`` are those of the envs from ``first_env`` on, in families that have some.
    """

    def __init__(self, source: NativeSource, simulators: Sequence[Simulator] | None = None, first_env: int = 0) -> None:
        self._source = source
        self._simulators = simulators
        self._first_env = first_env
        self._drawer: Drawer | None = None

    def check_usable(self) -> None:
        """Raises if the pool was not made for drawing."""
        source = self._source
        if source.render_mode is not None:
            return
        if source.drawer is None:
            raise UnsupportedError(
                f"render: {source.id} is native, and stepmill cannot draw it. make('gymnasium:{source.id}', "
                "render_mode='rgb_array') runs Gymnasium's own env, if it has one"
            )
        raise UnsupportedError(
            f"render: this pool was made without a render_mode: make({source.id!r}, render_mode='rgb_array')"
        )

    def draw(self, env_id: int, resets: int, numbers: Sequence[float]) -> Any:
        """A picture of one env. Raises what its drawer raises."""
        if resets == 0:
            raise NeedsResetError(
                f"render: env {env_id} has no state to draw before its first reset: call reset() first"
            )
        if self._drawer is None:
            self._drawer = self._source.drawer(self._source)
        simulator = None if self._simulators is None else self._simulators[env_id - self._first_env]
        return self._drawer.draw(Scene(env_id, resets, numbers, simulator))

    def close(self) -> None:
        """Closes the drawer, if there is one, and lets go of the simulators."""
        drawer, self._drawer = self._drawer, None
        self._simulators = None
        if drawer is not None:
            drawer.close()
