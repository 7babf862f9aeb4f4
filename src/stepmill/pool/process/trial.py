"""The question what a step of an env costs, and the answer: ``backend="auto"`` wants to know."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["StepCost", "Trial"]


@dataclass(frozen=True)
class Trial:
    """What is to be tried: env 0, reset with ``seed``."""

    seed: int
    heavy_s: float  # a constructor that takes longer says enough
    enough_s: float  # of steps
    most_s: float  # of everything: it is ended then


@dataclass(frozen=True)
class StepCost:
    """Seconds of a step."""

    own: float  # of the env's own code, resets counted in
    info: float  # to pickle its info and to read it again, which only worker processes have to do
