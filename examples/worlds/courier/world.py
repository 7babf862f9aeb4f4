"""The simulator: a drone, its battery, its packages. It carries out verbs and does not judge them."""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol

from .config import CourierConfig
from .town import Package, Town

__all__ = ["HasWorld", "Verb", "World"]


class Verb(IntEnum):
    """What the drone can do."""

    NORTH = 0
    EAST = 1
    SOUTH = 2
    WEST = 3
    HANDLE = 4  # pick up the package that waits here, or deliver the one that belongs here
    CHARGE = 5  # on a charger


class World:
    """One shift in one town.

    A step takes 1 from the battery, a step to another cell with a package 2, charging nothing. What is not possible
    (against a wall, nothing to handle, no charger) is hovering and takes 1. An empty battery away from a charger is a
    crash.
    """

    def __init__(self, config: CourierConfig, town: Town) -> None:
        self.config = config
        self.town = town
        self.cell = town.chargers[0]
        self.battery = config.capacity
        self.waiting = list(town.packages)
        self.carried: Package | None = None
        self.delivered = 0
        self.steps = 0
        self.crashed = False
        self._chargers = frozenset(town.chargers)
        self._find_target()

    def tick(self, verb: Verb) -> None:
        """One step."""
        cost = 1
        if verb <= Verb.WEST:
            there = self.town.neighbours[self.cell][verb]
            if there != self.cell:
                self.cell = there
                cost = self.cell_cost
        elif verb == Verb.HANDLE:
            self._handle()
        elif self.at_charger:
            cost = -min(self.config.charge, self.config.capacity - self.battery)
        self.battery = max(self.battery - cost, 0)
        self.crashed = self.battery == 0 and not self.at_charger
        self.steps += 1
        self._find_target()

    def _handle(self) -> None:
        if self.carried is not None:
            if self.cell == self.carried.address:
                self.carried = None
                self.delivered += 1
            return
        for package in self.waiting:
            if package.origin == self.cell:
                self.waiting.remove(package)
                self.carried = package
                return

    def _find_target(self) -> None:
        """Where to go next, and the distance: the address of the package, else the nearest one that waits."""
        cell = self.cell
        if self.carried is not None:
            self.target, self.way = self.carried.address, self.carried.to_address[cell]
        elif self.waiting:
            self.way, self.target = min([(package.to_origin[cell], package.origin) for package in self.waiting])
        else:
            self.target, self.way = cell, 0

    # ---- the state ---------------------------------------------------------------------------

    @property
    def at_charger(self) -> bool:
        """The drone is on a charger."""
        return self.cell in self._chargers

    @property
    def cell_cost(self) -> int:
        """What flying to the next cell takes from the battery."""
        return 1 if self.carried is None else 2

    @property
    def reserve(self) -> int:
        """What would be left in the battery at the nearest charger; below 0, it cannot be reached."""
        return self.battery - self.town.to_charger[self.cell] * self.cell_cost

    @property
    def finished(self) -> bool:
        """Everything is delivered."""
        return self.carried is None and not self.waiting

    @property
    def late(self) -> bool:
        """The shift is over."""
        return self.steps >= self.config.max_steps


class HasWorld(Protocol):
    """What runners need from the env."""

    @property
    def world(self) -> World:
        """The simulator."""
