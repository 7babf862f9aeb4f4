"""The reward, in terms: each an element that says what it pays. Their runners are in ``reward_runner.py``.

==================  ============================================================================
``DeliveryReward``  a delivery: 1 at the beginning of the shift, down to 0.5 at its end
``ProgressReward``  0.02 for every cell nearer to the target, 0.2 for lifting a package
``BatteryReward``   -0.2 when no charger can be reached any more (back when one can), -1 for a crash
``StepCost``        -0.002 for a step
==================  ============================================================================

The first is what counts, the others help to learn it: they are paid in training only. ``EpisodeScore`` adds up the
first: how well the episode went.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np

from stepmill.envs.element import EnvElement

__all__ = [
    "BatteryReward",
    "CourierReward",
    "DeliveryReward",
    "EpisodeScore",
    "ProgressReward",
    "StepCost",
]


class _Payment(EnvElement):
    """A number. ``pay`` makes it of what happened in the world."""

    bounds: ClassVar[tuple[float, float]]
    pay: Callable[..., float]

    def _init(self) -> None:
        low, high = self.bounds
        self._shape = (1,)
        self._value = {"min": low, "max": high, "dtype": np.float32}
        self._to_agent_processor = self.pay
        self._from_agent_processor = None

    def _details(self) -> str:
        return f"from {self.bounds[0]:g} to {self.bounds[1]:g} a step"


class DeliveryReward(_Payment):
    """The sooner the better."""

    _name = "DeliveryReward"
    bounds = (0.0, 1.0)

    @staticmethod
    def pay(deliveries: int, passed: float) -> float:
        """``passed`` is the share of the shift that is over."""
        return deliveries * (1.0 - 0.5 * passed)


class ProgressReward(_Payment):
    """For what leads to a delivery."""

    _name = "ProgressReward"
    bounds = (-0.02, 0.2)

    @staticmethod
    def pay(cells_nearer: int, lifted: bool) -> float:
        return 0.2 if lifted else 0.02 * cells_nearer


class BatteryReward(_Payment):
    """Against flying too far. What going out of reach costs, coming back returns: there is nothing to gain from it."""

    _name = "BatteryReward"
    bounds = (-1.2, 0.2)

    @staticmethod
    def pay(stranded_before: bool, stranded: bool, crashed: bool) -> float:
        return 0.2 * (stranded_before - stranded) - crashed


class StepCost(_Payment):
    """Against standing still."""

    _name = "StepCost"
    bounds = (-0.002, -0.002)

    @staticmethod
    def pay() -> float:
        return -0.002


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
        """As an env pays it."""
        return np.array([sum(payments)], np.float32)


class EpisodeScore(EnvElement):
    """How well the episode went: what its deliveries were worth."""

    _name = "EpisodeScore"

    def _init(self) -> None:
        self._shape = (1,)
        self._value = {"min": 0.0, "max": np.inf, "dtype": np.float32}
        self._to_agent_processor = None
        self._from_agent_processor = None

    def _details(self) -> str:
        return "the sum of DeliveryReward"
