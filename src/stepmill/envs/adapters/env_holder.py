"""What the adapters share that are a ``BaseEnv`` around an env of another kind."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from gymnasium import spaces

from stepmill.envs.base_env import BaseEnv

__all__ = ["EnvHolder"]


class EnvHolder(BaseEnv):
    """Holds an env, ``_env``, which ``_open`` builds when it is first needed and again after ``close``."""

    _env: Any = None
    _is_open = _has_begun = False
    # Set by ``_open``.
    _observation_space: spaces.Space[Any]
    _action_space: spaces.Space[Any]

    @abstractmethod
    def _open(self) -> Any:
        """The env inside, built if it is not yet."""

    @property
    def observation_space(self) -> spaces.Space[Any]:  # type: ignore[override]
        self._open()
        return self._observation_space

    @property
    def action_space(self) -> spaces.Space[Any]:  # type: ignore[override]
        self._open()
        return self._action_space

    @property
    def metadata(self) -> Any:  # type: ignore[override]
        return self._open().metadata

    @property
    def render_mode(self) -> str | None:
        """That of the env inside."""
        return getattr(self._open(), "render_mode", None)

    def render(self) -> Any:
        return self._open().render()

    def close(self) -> None:
        if self._env is not None:
            self._env.close()
        self._env = None
        self._is_open = self._has_begun = False
