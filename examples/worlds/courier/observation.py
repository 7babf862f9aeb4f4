"""The observation: a vector of features, and a map of what is around the drone.

All tables are made once, with functions of ``stepmill.envs``; a step only looks rows up.
"""

from __future__ import annotations

import numpy as np

from stepmill.envs import EnvElement, EnvElementRunner, clip_one_hot, div_one_hot

from .world import HasWorld, World

__all__ = ["FeaturesObs", "FeaturesObsRunner", "MapObs", "MapObsRunner"]


class FeaturesObs(EnvElement):
    """The readings of the instruments, each within [-1, 1].

    ======  ================================================================================
    0       whether a package is carried
    1, 2    the target (the address, or the nearest package): rows down and columns right of here
    3       the length of the way to it
    4, 5    the nearest charger, likewise
    6       the length of the way to it
    7       what would be left in the battery there
    8       how much of the shift is left
    9..19   the battery in tenths, one-hot
    20..25  packages not yet delivered: 0, 1, ... 5 or more, one-hot
    ======  ================================================================================
    """

    _name = "FeaturesObs"

    def _init(self) -> None:
        self._shape = (26,)
        self._value = {"min": -1.0, "max": 1.0, "dtype": np.float32}
        self._to_agent_processor = self.encode
        self._from_agent_processor = None
        self._battery = div_one_hot(np.arange(101), 100, 10)
        self._left = clip_one_hot(np.arange(101), 6)

    def _details(self) -> str:
        return "9 instruments, the battery in 11 places, the packages left in 6"

    def encode(self, world: World) -> np.ndarray:
        """The current features."""
        config, cell = world.config, world.cell
        size, span = config.size, config.size - 1
        row, column = divmod(cell, size)
        target, charger = world.target, world.town.nearest_charger[cell]
        out = np.empty(26, np.float32)
        out[:9] = (
            world.carried is not None,
            (target // size - row) / span,
            (target % size - column) / span,
            min(world.way / (2 * size), 1.0),
            (charger // size - row) / span,
            (charger % size - column) / span,
            min(world.town.to_charger[cell] / (2 * size), 1.0),
            max(world.reserve / config.capacity, -1.0),
            1.0 - world.steps / config.max_steps,
        )
        out[9:20] = self._battery[100 * world.battery // config.capacity]
        out[20:] = self._left[config.packages - world.delivered]
        return out


class FeaturesObsRunner(EnvElementRunner):
    """Reads the instruments. They show everything at once, so there is no state."""

    _core: FeaturesObs

    def _init(self) -> None:
        self._core = FeaturesObs()

    def get(self, engine: HasWorld) -> np.ndarray:
        return self._core.encode(engine.world)

    def reset(self) -> None:
        pass


class MapObs(EnvElement):
    """The 7 by 7 cells around the drone, north up, as planes: buildings, packages, address, chargers, trail.

    Outside the town everything is built over. The trail is 1 where the drone is, and fades where it was.
    """

    RADIUS = 3
    BUILDINGS, PACKAGES, ADDRESS, CHARGERS, TRAIL = range(5)
    _name = "MapObs"

    def _init(self) -> None:
        side = 2 * self.RADIUS + 1
        self._shape = (5, side, side)
        self._value = {"min": 0.0, "max": 1.0, "dtype": np.float32}
        self._to_agent_processor = self.crop
        self._from_agent_processor = None

    def _details(self) -> str:
        return f"planes of {self._shape[1]} by {self._shape[2]}: buildings, packages, address, chargers, trail"

    def crop(self, planes: np.ndarray, row: int, column: int) -> np.ndarray:
        """The part around a cell of the town, of planes that have a margin of ``RADIUS``."""
        side = self._shape[1]
        return planes[:, row : row + side, column : column + side].copy()


class MapObsRunner(EnvElementRunner):
    """Keeps the planes of the whole town, and updates only what changed."""

    FADE = 0.8
    _core: MapObs

    def _init(self) -> None:
        self._core = MapObs()
        self._planes: np.ndarray | None = None
        self._drawn = (-1, False)

    def get(self, engine: HasWorld) -> np.ndarray:
        world = engine.world
        if self._planes is None:
            self._planes = self._draw_town(world)
        # How many wait and whether one is carried: when these change, the marks must be drawn again.
        state = (len(world.waiting), world.carried is not None)
        if state != self._drawn:
            self._draw_marks(self._planes, world)
            self._drawn = state
        radius = MapObs.RADIUS
        row, column = divmod(world.cell, world.config.size)
        trail = self._planes[MapObs.TRAIL]
        trail *= self.FADE
        trail[row + radius, column + radius] = 1.0
        return self._core.crop(self._planes, row, column)

    def reset(self) -> None:
        self._planes = None
        self._drawn = (-1, False)

    @property
    def trail(self) -> np.ndarray | None:
        """Where the drone was, without the margin; None before the first ``get`` of an episode."""
        radius = MapObs.RADIUS
        return None if self._planes is None else self._planes[MapObs.TRAIL, radius:-radius, radius:-radius]

    @staticmethod
    def _draw_town(world: World) -> np.ndarray:
        size, radius = world.config.size, MapObs.RADIUS
        planes = np.zeros((5, size + 2 * radius, size + 2 * radius), np.float32)
        planes[MapObs.BUILDINGS] = 1.0
        inner = planes[:, radius:-radius, radius:-radius]
        inner[MapObs.BUILDINGS] = np.reshape(world.town.blocked, (size, size))
        for cell in world.town.chargers:
            inner[MapObs.CHARGERS, cell // size, cell % size] = 1.0
        return planes

    @staticmethod
    def _draw_marks(planes: np.ndarray, world: World) -> None:
        size, radius = world.config.size, MapObs.RADIUS
        planes[MapObs.PACKAGES : MapObs.ADDRESS + 1] = 0.0
        for package in world.waiting:
            planes[MapObs.PACKAGES, package.origin // size + radius, package.origin % size + radius] = 1.0
        if world.carried is not None:
            address = world.carried.address
            planes[MapObs.ADDRESS, address // size + radius, address % size + radius] = 1.0
