"""The picture of a moment: the town from above, and a caption with deliveries, time, battery and the last verb."""

from __future__ import annotations

import numpy as np

from stepmill.zoo.courier.lettering import write
from stepmill.zoo.courier.sprites import ADDRESS, BUILDING, CHARGER, DRONE, LOAD, PACKAGE, RGB, SIDE, paint
from stepmill.zoo.courier.town import Package
from stepmill.zoo.courier.world import Verb, World

__all__ = ["draw"]

_STREET = ((222, 217, 205), (215, 210, 198))
_SHADOW = (176, 170, 158)
_TRAIL = np.array((88, 150, 214))
_INK, _DIM, _BAR = (240, 240, 236), (142, 150, 164), (30, 34, 43)
_GREEN, _AMBER, _RED = (88, 184, 112), (236, 178, 64), (222, 84, 72)

# Roofs, as body, light edge, dark edge.
_ROOFS: tuple[tuple[RGB, RGB, RGB], ...] = (
    ((176, 92, 76), (200, 122, 104), (134, 66, 56)),
    ((104, 122, 146), (136, 154, 176), (76, 92, 114)),
    ((150, 128, 104), (178, 156, 130), (116, 96, 76)),
)
_WALL = {"w": (204, 190, 170), "g": (92, 118, 138), "s": _SHADOW}
_CHARGER = {"p": (58, 74, 72), "e": (34, 46, 46), "y": (250, 214, 84)}
_DRONE = {"o": (84, 90, 104), "a": (44, 48, 58), "b": (250, 250, 250), "e": (64, 160, 228)}
_CRASHED = {"o": (120, 60, 52), "a": (70, 40, 38), "b": (214, 96, 80), "e": (60, 30, 30)}

# Of packages and their addresses; the ninth looks like the first.
_COLOURS: tuple[RGB, ...] = (
    (232, 136, 52),
    (74, 134, 222),
    (210, 84, 150),
    (92, 170, 84),
    (150, 104, 206),
    (60, 176, 178),
    (200, 164, 48),
    (196, 76, 68),
)

_CAPTION = 60


def draw(world: World, trail: np.ndarray, verb: Verb | None) -> np.ndarray:
    """RGB, uint8, 240 pixels wide or more; both sides are even, as videos want it."""
    size = world.config.size
    scale = 3 if size <= 12 else 2
    step = SIDE * scale
    picture = np.empty((size * step + _CAPTION, size * step, 3), np.uint8)
    _draw_streets(picture, size, step, trail)

    def put(sprite: np.ndarray, cell: int, colours: dict[str, RGB]) -> None:
        paint(picture, sprite, cell // size * step, cell % size * step, scale, colours)

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
    _draw_caption(picture[size * step :], world, verb)
    return picture


def _draw_streets(picture: np.ndarray, size: int, step: int, trail: np.ndarray) -> None:
    odd = np.add.outer(np.arange(size), np.arange(size)) % 2
    ground = np.array(_STREET)[odd]
    picture[: size * step] = ground.repeat(step, axis=0).repeat(step, axis=1)
    third = step // 3
    for row, column in np.argwhere(trail > 0.05):
        spot = picture[
            row * step + third : (row + 1) * step - third, column * step + third : (column + 1) * step - third
        ]
        spot[:] = ground[row, column] + 0.6 * trail[row, column] * (_TRAIL - ground[row, column])


def _draw_caption(bar: np.ndarray, world: World, verb: Verb | None) -> None:
    config, right = world.config, bar.shape[1] - 12
    bar[:] = _BAR
    small = {"c": _COLOURS[0], "t": (250, 224, 170), "k": (120, 66, 20)}
    paint(bar, PACKAGE[3:13], 9, 6, 1, small)
    write(bar, f"{world.delivered}/{config.packages}", 8, 28, _INK, "left")
    write(bar, f"{world.steps}/{config.max_steps}", 8, right, _DIM, "right")
    text = "CRASHED" if world.crashed else "DONE" if world.finished else "-" if verb is None else verb.name
    write(bar, text, 36, right, _RED if world.crashed else _GREEN if world.finished else _INK, "right")
    share = world.battery / config.capacity
    width = bar.shape[1] - 24 - 12 * 7 - 12  # the longest text has seven letters
    bar[36:50, 12 : 12 + width] = _DIM
    bar[40:46, 12 + width : 16 + width] = _DIM
    bar[38:48, 14 : 10 + width] = _BAR
    bar[38:48, 14 : 14 + round(share * (width - 4))] = _RED if world.reserve < 0 else _AMBER if share < 0.4 else _GREEN


def _box_colours(world: World, package: Package) -> dict[str, RGB]:
    colour = _COLOURS[world.town.packages.index(package) % len(_COLOURS)]
    dark: RGB = (colour[0] // 2, colour[1] // 2, colour[2] // 2)
    return {"c": colour, "k": dark, "t": (250, 236, 205), "w": (252, 252, 250), "s": _SHADOW}


def _faded(colours: dict[str, RGB]) -> dict[str, RGB]:
    """Nearer to the street: an address that is not flown to yet."""
    red, green, blue = _STREET[0]
    return {key: ((r + 2 * red) // 3, (g + 2 * green) // 3, (b + 2 * blue) // 3) for key, (r, g, b) in colours.items()}
