"""The options that Atari and Doom have in common, as EnvPool names them: their checks are written once."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from stepmill.errors import ConfigError
from stepmill.values.arguments import one_of, true_or_false, whole_number

_MOST = 1 << 28  # bytes of an observation, per channel: more is a mistake


def checked_options(
    before: str, known: Any, given: Mapping[str, Any], render_modes: tuple[str, ...], **bounds: tuple[int, int | None]
) -> dict[str, Any]:
    """Returns all options, those with a whole number, a flag or a render mode as their default checked.

    Args:
        before: What stands before the name of an option in errors.
        known: The dataclass of the options, which has their defaults.
        given: What the user gives; no unknown names.
        render_modes: What ``render_mode`` may be besides None.
        **bounds: The least and the largest value of whole numbers, if these are not 1 and none.
    """
    defaults = {one.name: one.default for one in dataclasses.fields(known)}
    options = {**vars(known()), **given}
    for name, default in defaults.items():
        if type(default) is int:
            options[name] = whole_number(f"{before}{name}", options[name], *bounds.get(name, (1, None)))
        elif type(default) is bool:
            options[name] = true_or_false(f"{before}{name}", options[name])
    if options["render_mode"] is not None:
        one_of(f"{before}render_mode", options["render_mode"], render_modes)
    stack, height, width = (options[name] for name in ("stack_num", "img_height", "img_width"))
    if stack * height * width > _MOST:
        raise ConfigError(
            f"{before}img_height, img_width, stack_num: expected observations of at most {_MOST >> 20} MB per channel, "
            f"got {stack} frames of {height} x {width}"
        )
    return options
