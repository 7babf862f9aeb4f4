"""What ``backend="auto"`` asks a worker and what it answers: the cost of a step."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["StepCost", "Trial"]


@dataclass(frozen=True)
class Trial:
    """How to try out env 0: reset it with ``seed``, and how much time to spend."""

    seed: int
    heavy_s: float  # an env whose constructor takes longer is not stepped
    enough_s: float  # how long to step it
    most_s: float  # for everything: after that it is killed


@dataclass(frozen=True)
class StepCost:
    """The cost of a step, in seconds."""

    own: float  # the env's own code, including its share of resets
    info: float  # pickling and unpickling the info, which only worker processes do
