"""Draws the town of an episode.

A cell is a number, ``row * size + column``. Ways are 4-connected and lead around buildings.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice

import numpy as np

from stepmill.errors import ConfigError

from .config import CourierConfig

__all__ = ["Package", "Town"]

# The distance to a cell that cannot be reached.
_FAR = 1 << 20
# How many towns are drawn before giving up.
_ATTEMPTS = 200


@dataclass(frozen=True)
class Package:
    """Waits at ``origin``, belongs to ``address``. The lists have the distance to each, in cells, from every cell."""

    origin: int
    address: int
    to_origin: list[int]
    to_address: list[int]


@dataclass(frozen=True)
class Town:
    """What does not change during an episode. The drone starts on the first charger."""

    size: int
    blocked: list[bool]
    neighbours: list[tuple[int, ...]]  # per cell: the cells to the north, east, south and west; itself if blocked
    chargers: list[int]
    nearest_charger: list[int]
    to_charger: list[int]  # the distance to it
    packages: list[Package]

    @classmethod
    def plan(cls, size: int, blocked: list[bool], chargers: list[int], errands: Iterable[tuple[int, int]] = ()) -> Town:
        """A given town. ``errands`` are pairs of origin and address."""
        neighbours = _neighbours(size, blocked)
        from_each = [_distances(neighbours, charger) for charger in chargers]
        nearest = [chargers[ways.index(min(ways))] for ways in zip(*from_each, strict=True)]
        to_charger = [min(ways) for ways in zip(*from_each, strict=True)]
        packages = [_package(neighbours, origin, address) for origin, address in errands]
        return cls(size, blocked, neighbours, chargers, nearest, to_charger, packages)

    @classmethod
    def draw(cls, config: CourierConfig, rng: np.random.Generator) -> Town:
        """A town in which a full battery is enough to fetch any package from any charger, deliver it and recharge."""
        for _ in range(_ATTEMPTS):
            blocked = _draw_buildings(config, rng)
            cells = [int(cell) for cell in rng.permutation(np.flatnonzero(~np.array(blocked)))]
            if len(cells) < config.chargers + 2 * config.packages:
                continue
            town = cls.plan(config.size, blocked, [cells.pop() for _ in range(config.chargers)])
            drawn = (_package(town.neighbours, *pair) for pair in zip(cells[::2], cells[1::2], strict=False))
            packages = list(islice((one for one in drawn if town.round_trip(one) <= config.capacity), config.packages))
            if len(packages) == config.packages:
                return replace(town, packages=packages)
        raise ConfigError(f"CourierEnv: expected a configuration that allows a town, got {config}")

    def round_trip(self, package: Package) -> int:
        """What a delivery costs: from the farthest charger to the one nearest to the address."""
        fetch = max(package.to_origin[charger] for charger in self.chargers)
        lift = hand_over = 1
        return fetch + lift + 2 * package.to_address[package.origin] + hand_over + self.to_charger[package.address]


def _package(neighbours: list[tuple[int, ...]], origin: int, address: int) -> Package:
    return Package(origin, address, _distances(neighbours, origin), _distances(neighbours, address))


def _distances(neighbours: list[tuple[int, ...]], goal: int) -> list[int]:
    """The distance from every cell to the goal."""
    out = [_FAR] * len(neighbours)
    out[goal] = 0
    edge = [goal]
    for cell in edge:  # grows during the loop: cells come in the order of their distance
        further = out[cell] + 1
        for near in neighbours[cell]:
            if out[near] > further:
                out[near] = further
                edge.append(near)
    return out


def _draw_buildings(config: CourierConfig, rng: np.random.Generator) -> list[bool]:
    """Cells that cannot be reached from the largest quarter of the town are built over."""
    drawn = (rng.random(config.size**2) < config.buildings).tolist()
    neighbours = _neighbours(config.size, drawn)
    best: list[bool] = []
    unseen = {cell for cell, is_blocked in enumerate(drawn) if not is_blocked}
    while unseen:
        way = _distances(neighbours, min(unseen))
        closed = [distance == _FAR for distance in way]
        unseen -= {cell for cell, is_closed in enumerate(closed) if not is_closed}
        if not best or closed.count(False) > best.count(False):
            best = closed
    return best or drawn


@cache
def _grid(size: int) -> list[tuple[int, ...]]:
    """The cells to the north, east, south and west in a town without buildings; the cell itself at the edge."""
    around = ((-1, 0), (0, 1), (1, 0), (0, -1))
    return [
        tuple(
            (row + down) * size + column + right
            if 0 <= row + down < size and 0 <= column + right < size
            else row * size + column
            for down, right in around
        )
        for row in range(size)
        for column in range(size)
    ]


def _neighbours(size: int, blocked: list[bool]) -> list[tuple[int, ...]]:
    return [
        (cell,) * 4 if blocked[cell] else tuple([cell if blocked[there] else there for there in around])
        for cell, around in enumerate(_grid(size))
    ]
