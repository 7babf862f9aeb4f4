"""The picture: the town from above, and a caption with deliveries, time, battery and the last verb."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .sprites import ADDRESS, BUILDING, CHARGER, DRONE, LOAD, PACKAGE, SIDE, Dots, letters
from .town import Package
from .world import Verb, World

__all__ = ["draw"]

Colour = tuple[int, int, int]

_STREET = ((222, 217, 205), (215, 210, 198))
_SHADOW = (176, 170, 158)
_TRAIL = (88, 150, 214)
_INK, _DIM, _BAR = (240, 240, 236), (142, 150, 164), (30, 34, 43)
_GREEN, _AMBER, _RED = (88, 184, 112), (236, 178, 64), (222, 84, 72)

# The colours of roofs: body, light edge, dark edge.
_ROOFS: tuple[tuple[Colour, Colour, Colour], ...] = (
    ((176, 92, 76), (200, 122, 104), (134, 66, 56)),
    ((104, 122, 146), (136, 154, 176), (76, 92, 114)),
    ((150, 128, 104), (178, 156, 130), (116, 96, 76)),
)
_WALL = {"w": (204, 190, 170), "g": (92, 118, 138), "s": _SHADOW}
_CHARGER = {"p": (58, 74, 72), "e": (34, 46, 46), "y": (250, 214, 84)}
_DRONE = {"o": (84, 90, 104), "a": (44, 48, 58), "b": (250, 250, 250), "e": (64, 160, 228)}
_CRASHED = {"o": (120, 60, 52), "a": (70, 40, 38), "b": (214, 96, 80), "e": (60, 30, 30)}

# The colours of packages and their addresses; the ninth looks like the first.
_COLOURS: tuple[Colour, ...] = (
    (232, 136, 52),
    (74, 134, 222),
    (210, 84, 150),
    (92, 170, 84),
    (150, 104, 206),
    (60, 176, 178),
    (200, 164, 48),
    (196, 76, 68),
)

_CAPTION = 60  # its height in pixels


def draw(world: World, trail: np.ndarray, verb: Verb | None) -> np.ndarray:
    """RGB, uint8, at least 240 pixels wide; both sides are even, as videos require."""
    size = world.config.size
    scale = 3 if size <= 12 else 2
    step = SIDE * scale
    picture = np.full((size * step + _CAPTION, size * step, 3), _BAR, np.uint8)
    _draw_streets(picture, size, step, trail)

    def put(thing: np.ndarray, cell: int, colours: dict[str, Colour]) -> None:
        _put_dots(picture, thing, cell // size * step, cell % size * step, scale, colours)

    for cell, is_blocked in enumerate(world.town.blocked):
        if is_blocked:
            roof, light, dark = _ROOFS[(7 * (cell // size) + 5 * (cell % size)) % 3]
            put(BUILDING, cell, {"r": roof, "l": light, "d": dark, **_WALL})
    for cell in world.town.chargers:
        put(CHARGER, cell, _CHARGER)
    for package in world.waiting:
        put(ADDRESS, package.address, _faded(_box_colours(world, package)))
        put(PACKAGE, package.origin, _box_colours(world, package))
    if world.carried is not None:
        put(ADDRESS, world.carried.address, _box_colours(world, world.carried))
    put(DRONE, world.cell, _CRASHED if world.crashed else _DRONE)
    if world.carried is not None:
        put(LOAD, world.cell, _box_colours(world, world.carried))
    _draw_caption(picture, size * step, size * step, world, verb)
    return picture


def _draw_streets(picture: np.ndarray, size: int, step: int, trail: np.ndarray) -> None:
    for row, column in np.ndindex(size, size):
        _fill(picture, row * step, column * step, step, step, _STREET[(row + column) % 2])
    third = step // 3
    for row, column in np.argwhere(trail > 0.05):
        ground = np.array(_STREET[(row + column) % 2])
        red, green, blue = (ground + 0.6 * trail[row, column] * (_TRAIL - ground)).astype(int).tolist()
        _fill(
            picture, row * step + third, column * step + third, step - 2 * third, step - 2 * third, (red, green, blue)
        )


def _draw_caption(picture: np.ndarray, top: int, width: int, world: World, verb: Verb | None) -> None:
    config, right = world.config, width - 12
    _put_dots(picture, PACKAGE[3:13], top + 9, 6, 1, {"c": _COLOURS[0], "t": (250, 224, 170), "k": (120, 66, 20)})
    _write(picture, f"{world.delivered}/{config.packages}", top + 8, 28, _INK)
    _write(picture, f"{world.steps}/{config.max_steps}", top + 8, right, _DIM, is_end=True)
    text = "CRASHED" if world.crashed else "DONE" if world.finished else "-" if verb is None else verb.name
    ink = _RED if world.crashed else _GREEN if world.finished else _INK
    _write(picture, text, top + 36, right, ink, is_end=True)
    share = world.battery / config.capacity
    level = _RED if world.reserve < 0 else _AMBER if share < 0.4 else _GREEN
    long = width - 24 - 12 * 7 - 12  # the longest text has seven letters
    _fill(picture, top + 36, 12, 14, long, _DIM)
    _fill(picture, top + 40, 12 + long, 6, 4, _DIM)
    _fill(picture, top + 38, 14, 10, long - 4, _BAR)
    _fill(picture, top + 38, 14, 10, round(share * (long - 4)), level)


def _fill(picture: np.ndarray, row: int, column: int, height: int, width: int, colour: Colour) -> None:
    """A filled rectangle."""
    picture[row : row + height, column : column + width] = colour


def _put_dots(
    picture: np.ndarray, dots: Dots, row: int, column: int, scale: int, colours: Mapping[str, Colour]
) -> None:
    """A drawing of dots, each ``scale`` pixels wide; letters without a colour are transparent."""
    large = dots.repeat(scale, axis=0).repeat(scale, axis=1)
    place = picture[row : row + large.shape[0], column : column + large.shape[1]]
    for letter, colour in colours.items():
        place[large == letter] = colour


def _write(picture: np.ndarray, text: str, row: int, column: int, colour: Colour, is_end: bool = False) -> None:
    """Writes from a column on, or up to it; a dot is 2 by 2 pixels."""
    dots = letters(text)
    _put_dots(picture, dots, row, column - 2 * dots.shape[1] if is_end else column, 2, {"#": colour})


def _box_colours(world: World, package: Package) -> dict[str, Colour]:
    colour = _COLOURS[world.town.packages.index(package) % len(_COLOURS)]
    dark = (colour[0] // 2, colour[1] // 2, colour[2] // 2)
    return {"c": colour, "k": dark, "t": (250, 236, 205), "w": (252, 252, 250), "s": _SHADOW}


def _faded(colours: dict[str, Colour]) -> dict[str, Colour]:
    """Closer to the colour of the street: for an address that is not the current target."""
    red, green, blue = _STREET[0]
    return {key: ((r + 2 * red) // 3, (g + 2 * green) // 3, (b + 2 * blue) // 3) for key, (r, g, b) in colours.items()}
