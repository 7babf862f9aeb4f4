"""The reward is a sum of terms: each is an element that says what it pays, and a runner that knows what it has paid
for.

==================  ============================================================================
``DeliveryReward``  a delivery: 1 at the beginning of the shift, down to 0.5 at its end
``ProgressReward``  0.02 for every cell nearer to the target, 0.2 for picking up a package
``BatteryReward``   -0.2 when no charger is within reach any more (paid back when one is), -1 for a crash
``StepCost``        -0.002 per step
==================  ============================================================================

The first is what counts; the others help to learn it and are paid only in training. ``EpisodeScore`` is the sum of the
first: how well the episode went.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np

from stepmill.envs import EnvElement, EnvElementRunner

from .world import HasWorld

__all__ = [
    "BatteryReward",
    "BatteryRewardRunner",
    "CourierReward",
    "CourierRewardRunner",
    "DeliveryReward",
    "DeliveryRewardRunner",
    "EpisodeScore",
    "EpisodeScoreRunner",
    "ProgressReward",
    "ProgressRewardRunner",
    "StepCost",
    "StepCostRunner",
]


class _Payment(EnvElement):
    """A number. ``pay`` computes it from what happened in the world."""

    bounds: ClassVar[tuple[float, float]]
    pay: Callable[..., float]

    def _init(self) -> None:
        low, high = self.bounds
        self._shape = (1,)
        self._value = {"min": low, "max": high, "dtype": np.float32}
        self._to_agent_processor = self.pay
        self._from_agent_processor = None

    def _details(self) -> str:
        return f"from {self.bounds[0]:g} to {self.bounds[1]:g} per step"


class DeliveryReward(_Payment):
    """Pays for a delivery: the sooner, the more."""

    _name = "DeliveryReward"
    bounds = (0.0, 1.0)

    @staticmethod
    def pay(deliveries: int, passed: float) -> float:
        """``passed`` is the share of the shift that is over."""
        return deliveries * (1.0 - 0.5 * passed)


class DeliveryRewardRunner(EnvElementRunner):
    """Remembers how many deliveries it has paid for."""

    def _init(self) -> None:
        self._core = DeliveryReward()
        self._paid = 0

    def get(self, engine: HasWorld) -> float:
        world = engine.world
        new = world.delivered - self._paid
        self._paid = world.delivered
        return DeliveryReward.pay(new, world.steps / world.config.max_steps)

    def reset(self, engine: HasWorld) -> None:
        self._paid = engine.world.delivered


class ProgressReward(_Payment):
    """Pays for steps towards a delivery."""

    _name = "ProgressReward"
    bounds = (-0.02, 0.2)

    @staticmethod
    def pay(cells_nearer: int, lifted: bool) -> float:
        return 0.2 if lifted else 0.02 * cells_nearer


class ProgressRewardRunner(EnvElementRunner):
    """Remembers the distance to the target. A new target starts again: changing it pays nothing."""

    def _init(self) -> None:
        self._core = ProgressReward()

    def get(self, engine: HasWorld) -> float:
        world = engine.world
        leg, way = self._leg, self._way
        self.reset(engine)
        if self._leg == leg:
            return ProgressReward.pay(way - self._way, False)
        return ProgressReward.pay(0, world.carried is not None)

    def reset(self, engine: HasWorld) -> None:
        world = engine.world
        self._leg = (len(world.waiting), world.carried is not None)
        self._way = world.way


class BatteryReward(_Payment):
    """Against flying too far. Leaving the reach of a charger costs what coming back pays: there is nothing to gain."""

    _name = "BatteryReward"
    bounds = (-1.2, 0.2)

    @staticmethod
    def pay(stranded_before: bool, stranded: bool, crashed: bool) -> float:
        return 0.2 * (stranded_before - stranded) - crashed


class BatteryRewardRunner(EnvElementRunner):
    """Remembers whether a charger was within reach."""

    def _init(self) -> None:
        self._core = BatteryReward()

    def get(self, engine: HasWorld) -> float:
        before = self._stranded
        self.reset(engine)
        return BatteryReward.pay(before, self._stranded, engine.world.crashed)

    def reset(self, engine: HasWorld) -> None:
        self._stranded = engine.world.reserve < 0


class StepCost(_Payment):
    """Against standing still."""

    _name = "StepCost"
    bounds = (-0.002, -0.002)

    @staticmethod
    def pay() -> float:
        return -0.002


class StepCostRunner(EnvElementRunner):
    """Has nothing to remember."""

    def _init(self) -> None:
        self._core = StepCost()

    def get(self, engine: HasWorld) -> float:
        return StepCost.pay()

    def reset(self, engine: HasWorld) -> None:
        pass


class CourierReward(EnvElement):
    """The sum of the terms."""

    _name = "CourierReward"

    def _init(self) -> None:
        self._terms = (DeliveryReward(), ProgressReward(), BatteryReward(), StepCost())
        self._shape = (1,)
        self._value = {
            "min": sum(term.bounds[0] for term in self._terms),
            "max": sum(term.bounds[1] for term in self._terms),
            "dtype": np.float32,
        }
        self._to_agent_processor = self.add
        self._from_agent_processor = None

    def _details(self) -> str:
        return " + ".join(term._name for term in self._terms)

    @staticmethod
    def add(payments: list[float]) -> np.ndarray:
        """The sum in the form of an env's reward."""
        return np.array([sum(payments)], np.float32)


class CourierRewardRunner(EnvElementRunner):
    """Adds up the terms: all of them in training, else only the deliveries."""

    _core: CourierReward

    def _init(self, is_train: bool) -> None:
        self._core = CourierReward()
        self._terms: list[EnvElementRunner] = [DeliveryRewardRunner()]
        if is_train:
            self._terms += [ProgressRewardRunner(), BatteryRewardRunner(), StepCostRunner()]

    def get(self, engine: HasWorld) -> np.ndarray:
        return self._core.add([term.get(engine) for term in self._terms])

    def reset(self, engine: HasWorld) -> None:
        for term in self._terms:
            term.reset(engine)


class EpisodeScore(EnvElement):
    """How well the episode went: the value of its deliveries."""

    _name = "EpisodeScore"

    def _init(self) -> None:
        self._shape = (1,)
        self._value = {"min": 0.0, "max": np.inf, "dtype": np.float32}
        self._to_agent_processor = None
        self._from_agent_processor = None

    def _details(self) -> str:
        return "the sum of DeliveryReward"


class EpisodeScoreRunner(EnvElementRunner):
    """Adds up the deliveries of the episode."""

    def _init(self) -> None:
        self._core = EpisodeScore()
        self._delivery = DeliveryRewardRunner()
        self._score = 0.0

    def get(self, engine: HasWorld) -> float:
        self._score += self._delivery.get(engine)
        return self._score

    def reset(self, engine: HasWorld) -> None:
        self._delivery.reset(engine)
        self._score = 0.0
