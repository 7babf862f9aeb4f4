"""The envs that ViZDoom registers with Gymnasium, as they are, in games that leave nothing behind."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium

from stepmill.errors import UnknownConfigError
from stepmill.registry.description import EnvDescription
from stepmill.registry.records import GymnasiumFactory
from stepmill.zoo.vizdoom.start import GameStarter

__all__ = ["VizdoomFactory"]


@dataclass(frozen=True)
class VizdoomFactory(GymnasiumFactory):
    """Makes them. ViZDoom starts a game at the first reset."""

    is_heavy = True

    def __call__(self, **config: Any) -> Any:
        return _InItsFolder(super().__call__(**config), self.id, "game_args" in config)

    def known_keys(self) -> list[str] | None:
        return None  # all that ViZDoom's .cfg files may contain

    def limited(
        self, config: dict[str, Any], given: int | None, registered: int | None
    ) -> tuple[dict[str, Any], int | None]:
        self._check(config)
        return super().limited(config, given, registered)

    def _check(self, config: Mapping[str, Any]) -> None:
        """ViZDoom ignores settings that it does not understand."""
        import vizdoom

        arguments = {*inspect.signature(self.creator()).parameters, "max_episode_steps", "disable_env_checker"}
        settings = {key: value for key, value in config.items() if key not in arguments}
        unknown = [key for key, value in settings.items() if not vizdoom.DoomGame().set_config({key: value})]
        if unknown:
            raise UnknownConfigError(
                f"{self.id}: expected arguments of ViZDoom's envs or settings of its .cfg files, got "
                f"{', '.join(f'{key}={settings[key]!r}' for key in unknown)}"
            )

    def describe(self, config: Mapping[str, Any]) -> EnvDescription:
        env = super().__call__(**config)
        try:
            return EnvDescription.of(env)
        finally:
            env.close()


class _InItsFolder(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Starts the game of an env where it leaves nothing behind."""

    def __init__(self, env: gymnasium.Env[Any, Any], id: str, is_custom: bool) -> None:
        super().__init__(env)
        self._id = id
        self._game = env.get_wrapper_attr("game")
        self._starter = GameStarter(self._game, id, is_custom)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        if self._game.is_running():
            return self.env.reset(seed=seed, options=options)
        with self._starter.starting():
            return self.env.reset(seed=seed, options=options)
