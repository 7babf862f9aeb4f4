"""The options of preprocessed Atari games: EnvPool's names and defaults."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from stepmill.errors import ConfigError
from stepmill.values.arguments import one_of, real_number, true_or_false, whole_number

__all__ = ["DEFAULTS", "MOST_FRAMES", "PREPROCESSING", "RENDER_MODES", "AtariOptions"]

MOST_FRAMES = 108_000  # of a game, by default: half an hour at 60 frames per second
RENDER_MODES = ("rgb_array", "human")
_MOST = 16_384  # of a picture's height and width: larger ones are a mistake


@dataclass(frozen=True)
class AtariOptions:
    """How a game is played and shown. docs/zoo.md explains each."""

    img_height: int = 84
    img_width: int = 84
    stack_num: int = 4
    gray_scale: bool = True
    use_inter_area_resize: bool = True
    frame_skip: int = 4
    noop_max: int = 30
    use_fire_reset: bool = True
    episodic_life: bool = False
    zero_discount_on_life_loss: bool = False
    reward_clip: bool = False
    # Those from here on Gymnasium's env has too, but for the last.
    repeat_action_probability: float = 0.0
    full_action_space: bool = False
    mode: int | None = None
    difficulty: int | None = None
    max_num_frames_per_episode: int | None = None
    render_mode: str | None = "rgb_array"
    max_episode_steps: int | None = None

    @classmethod
    def read(cls, owner: str, config: dict[str, Any]) -> AtariOptions:
        """The options, checked. ``owner`` names the env in errors; the keys are known ones."""
        given: dict[str, Any] = {**{one.name: one.default for one in dataclasses.fields(cls)}, **config}

        def whole(key: str, low: int, high: int | None = None) -> None:
            given[key] = whole_number(f"{owner}: {key}", given[key], low, high)

        whole("img_height", 1, _MOST)
        whole("img_width", 1, _MOST)
        whole("stack_num", 1, _MOST)
        whole("frame_skip", 1)
        whole("noop_max", 0)
        for key in _FLAGS:
            given[key] = true_or_false(f"{owner}: {key}", given[key])
        given["repeat_action_probability"] = real_number(
            f"{owner}: repeat_action_probability", given["repeat_action_probability"], 0.0, 1.0
        )
        for key in ("mode", "difficulty"):
            if given[key] is not None:
                whole(key, -1)
                given[key] = None if given[key] == -1 else given[key]  # as EnvPool says "the game's own"
        for key, low in (("max_num_frames_per_episode", 0), ("max_episode_steps", 1)):
            if given[key] is not None:
                whole(key, low)
        if given["render_mode"] is not None:
            one_of(f"{owner}: render_mode", given["render_mode"], RENDER_MODES)
        if given["img_height"] * given["img_width"] * given["stack_num"] > 1 << 28:
            raise ConfigError(
                f"{owner}: img_height, img_width, stack_num: expected observations of at most 256 MB, got "
                f"{given['stack_num']} frames of {given['img_height']} x {given['img_width']}"
            )
        return cls(**given)

    @property
    def channels(self) -> int:
        """Of one frame."""
        return 1 if self.gray_scale else 3

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of an observation."""
        return self.stack_num * self.channels, self.img_height, self.img_width

    @property
    def most_frames(self) -> int:
        """After how many frames the emulator ends a game; 0: never, as the pool ends it after so many steps."""
        if self.max_num_frames_per_episode is not None:
            return self.max_num_frames_per_episode
        return MOST_FRAMES if self.max_episode_steps is None else 0


_FLAGS = tuple(one.name for one in dataclasses.fields(AtariOptions) if type(one.default) is bool)
# What make() takes; max_episode_steps is a setting of the pool, which tells the env.
DEFAULTS = {one.name: one.default for one in dataclasses.fields(AtariOptions) if one.name != "max_episode_steps"}
# Those that make an id of Gymnasium's a preprocessed env.
PREPROCESSING = frozenset(list(DEFAULTS)[: list(DEFAULTS).index("repeat_action_probability")])
