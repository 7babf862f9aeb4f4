"""The runners of the reward: each remembers what it has paid for."""

from __future__ import annotations

import numpy as np

from stepmill.envs.element_runner import EnvElementRunner
from stepmill.zoo.courier.reward import (
    BatteryReward,
    CourierReward,
    DeliveryReward,
    EpisodeScore,
    ProgressReward,
    StepCost,
)
from stepmill.zoo.courier.world import HasWorld

__all__ = [
    "BatteryRewardRunner",
    "CourierRewardRunner",
    "DeliveryRewardRunner",
    "EpisodeScoreRunner",
    "ProgressRewardRunner",
    "StepCostRunner",
]


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


class ProgressRewardRunner(EnvElementRunner):
    """Remembers the way to the target. A new target begins anew: it pays nothing to have another one."""

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


class StepCostRunner(EnvElementRunner):
    """Has nothing to remember."""

    def _init(self) -> None:
        self._core = StepCost()

    def get(self, engine: HasWorld) -> float:
        return StepCost.pay()

    def reset(self, engine: HasWorld) -> None:
        pass


class CourierRewardRunner(EnvElementRunner):
    """Adds the terms up: all of them in training, else the deliveries alone."""

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


class EpisodeScoreRunner(EnvElementRunner):
    """Adds the deliveries of the episode up."""

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
