"""What an Atari id stands for: the preprocessed env, or Gymnasium's as it is. Imports neither emulator nor OpenCV."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from stepmill.errors import UnknownConfigError
from stepmill.registry.description import EnvDescription
from stepmill.registry.factories import EnvFactory
from stepmill.registry.records import GymnasiumFactory, gymnasium_spec
from stepmill.zoo.atari.games import GAMES, WIDTH, Game
from stepmill.zoo.atari.options import DEFAULTS, PREPROCESSING, RENDER_MODES, AtariOptions

Limited = tuple[dict[str, Any], int | None]


@dataclass(frozen=True)
class AtariFactory(EnvFactory):
    """Makes ``Pong-v5`` and the like: the preprocessed game."""

    rom: str
    is_heavy = True

    def __call__(self, **config: Any) -> Any:
        return _game(self.rom, config)

    def known_keys(self) -> list[str]:
        return list(DEFAULTS)

    def defaults(self) -> Mapping[str, Any]:
        return DEFAULTS

    def preload(self, config: Mapping[str, Any]) -> None:
        _preload_frames()

    def limited(self, config: dict[str, Any], given: int | None, registered: int | None) -> Limited:
        return _limited(self.rom, config, given, config)

    def describe(self, config: Mapping[str, Any]) -> EnvDescription | None:
        return _described(GAMES[self.rom], AtariOptions.read(self.rom, dict(config)))


@dataclass(frozen=True)
class AleFactory(GymnasiumFactory):
    """Makes the envs of an id that ale-py registers: Gymnasium's own, or preprocessed if an option asks for it."""

    is_heavy = True

    def __call__(self, **config: Any) -> Any:
        from stepmill.zoo.atari.game import quiet_emulator

        quiet_emulator()
        if not PREPROCESSING & config.keys():
            try:
                return self._as_it_is(config)
            except (RuntimeError, TypeError):
                self.check_variant(config)
                raise
        config = self._with_kwargs(config)
        return _game(config.pop("game"), config)

    def _as_it_is(self, config: dict[str, Any]) -> Any:
        spec = gymnasium_spec(self.id)
        if spec.entry_point != "ale_py.env:AtariEnv":  # in other versions
            return super().__call__(**config)
        saved = dataclasses.replace(spec, entry_point="stepmill.zoo.atari.emulator:AleEnv")
        return gymnasium.make(saved, **{"disable_env_checker": True, **config})

    def known_keys(self) -> list[str] | None:
        own = super().known_keys()
        return None if own is None else list(dict.fromkeys([*own, *DEFAULTS]))

    def defaults(self) -> dict[str, Any]:
        """Returns the defaults of Gymnasium's env, and those of the options that preprocess it."""
        own = super().defaults()
        return {**own, **{key: value for key, value in DEFAULTS.items() if key not in own}}

    def preload(self, config: Mapping[str, Any]) -> None:
        from stepmill.zoo.atari.game import quiet_emulator

        quiet_emulator()
        super().preload(config)
        if PREPROCESSING & config.keys():
            _preload_frames()

    def limited(self, config: dict[str, Any], given: int | None, registered: int | None) -> Limited:
        if PREPROCESSING & config.keys():
            whole = self._with_kwargs(config)
            whole.pop("game")
            return _limited(self.id, config, given, whole)
        return super().limited(config, given, registered)

    def describe(self, config: Mapping[str, Any]) -> EnvDescription | None:
        if PREPROCESSING & config.keys():
            kwargs = self._with_kwargs(config)
            rom = kwargs.pop("game")
            return _described(GAMES[rom], AtariOptions.read(self.id, kwargs)) if rom in GAMES else None
        return _described_as_it_is({**gymnasium_spec(self.id).kwargs, **config})

    def check_variant(self, config: Mapping[str, Any]) -> None:
        """Raises if the game has no such mode or difficulty: the emulator does not say which it has."""
        from stepmill.zoo.atari.game import AtariGame

        given = {key: config[key] for key in ("mode", "difficulty") if config.get(key) is not None}
        if given:
            AtariGame(gymnasium_spec(self.id).kwargs["game"], **given)

    def _with_kwargs(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """The options of the preprocessed game: what the id is registered with, and what the user gives."""
        for key in config:
            if key not in DEFAULTS and key != "max_episode_steps":
                hint = ", frame_skip is the one to use" if key == "frameskip" else ""
                raise UnknownConfigError(
                    f"{self.id} has no config key {key!r} with preprocessing{hint}: "
                    f"{', '.join(sorted(PREPROCESSING & config.keys()))} turned it on. Known keys: "
                    f"{', '.join(DEFAULTS)}"
                )
        registered = gymnasium_spec(self.id).kwargs
        kept = {key: value for key, value in registered.items() if key == "game" or key in DEFAULTS}
        if "max_episode_steps" in config:  # the pool's limit replaces the emulator's
            kept.pop("max_num_frames_per_episode", None)
        return {**kept, **config}


def _game(rom: str, config: dict[str, Any]) -> Any:
    from stepmill.zoo.atari.game import AtariGame

    # The pool copies each observation before the next step.
    return AtariGame(rom, reuse_memory=True, **config)


def _preload_frames() -> None:
    """OpenCV: 45 ms that each worker would spend by itself."""
    from stepmill.zoo.atari.frames import preload
    from stepmill.zoo.atari.game import quiet_emulator

    quiet_emulator()
    preload()


def _limited(owner: str, config: dict[str, Any], given: int | None, whole: dict[str, Any]) -> Limited:
    """Returns the pool's limit. Without one the emulator ends games, by a number of frames, never later than the pool.

    ``whole`` has in addition what the id is registered with. Its values are checked here, before any env is made.
    """
    options = AtariOptions.read(owner, whole)
    if given is not None:
        return {**config, "max_episode_steps": given}, given
    return config, math.ceil(options.most_frames / options.frame_skip) or None


def _described(game: Game, options: AtariOptions) -> EnvDescription:
    from stepmill.zoo.atari.game import info_space, metadata

    return EnvDescription(
        spaces.Box(0, 255, options.shape, np.uint8),
        spaces.Discrete(game.action_count(options.full_action_space)),
        1,
        metadata(options),
        options.render_mode,
        info_space=info_space(options),
    )


def _described_as_it_is(kwargs: dict[str, Any]) -> EnvDescription | None:
    """Gymnasium's env, as far as our table tells."""
    game = GAMES.get(kwargs.get("game", ""))
    shapes = {"rgb": (3,), "grayscale": (), "ram": None}
    kind = kwargs.get("obs_type", "rgb")
    if game is None or kind not in shapes or kwargs.get("sound_obs") or kwargs.get("continuous"):
        return None
    channels = shapes[kind]
    shape = (128,) if channels is None else (game.height, WIDTH, *channels)
    return EnvDescription(
        spaces.Box(0, 255, shape, np.uint8),
        spaces.Discrete(game.action_count(bool(kwargs.get("full_action_space")))),
        1,
        {"render_modes": sorted(RENDER_MODES), "render_fps": 30},
        kwargs.get("render_mode"),
    )
