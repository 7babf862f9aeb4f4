"""The options of preprocessed Atari games: EnvPool's names and defaults."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from stepmill.values.arguments import real_number, whole_number
from stepmill.zoo.frame_options import checked_options

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
    # Gymnasium's env has those from here on too, but for the last.
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
        bounds = {**dict.fromkeys(("img_height", "img_width", "stack_num"), (1, _MOST)), "noop_max": (0, None)}
        given = checked_options(f"{owner}: ", cls, config, RENDER_MODES, **bounds)
        given["repeat_action_probability"] = real_number(
            f"{owner}: repeat_action_probability", given["repeat_action_probability"], 0.0, 1.0
        )
        lows = {"mode": -1, "difficulty": -1, "max_num_frames_per_episode": 0, "max_episode_steps": 1}
        for key, low in lows.items():
            if given[key] is not None:
                given[key] = whole_number(f"{owner}: {key}", given[key], low)
                if given[key] == -1:  # as EnvPool says "the game's own"
                    given[key] = None
        return cls(**given)

    @property
    def channels(self) -> int:
        """The channels of one frame."""
        return 1 if self.gray_scale else 3

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of an observation."""
        return self.stack_num * self.channels, self.img_height, self.img_width

    @property
    def most_frames(self) -> int:
        """After how many frames the emulator ends a game; 0: never, as the pool ends it by its own limit."""
        if self.max_num_frames_per_episode is not None:
            return self.max_num_frames_per_episode
        return MOST_FRAMES if self.max_episode_steps is None else 0


# What make() takes; max_episode_steps is a setting of the pool, which tells the env.
DEFAULTS = {one.name: one.default for one in dataclasses.fields(AtariOptions) if one.name != "max_episode_steps"}
# The options that make an id of Gymnasium's a preprocessed env.
PREPROCESSING = frozenset(list(DEFAULTS)[: list(DEFAULTS).index("repeat_action_probability")])
