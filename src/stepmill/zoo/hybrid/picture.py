"""How native Moving and Sliding are drawn: their numbers become a ``World``, which ``hybrid.draw`` draws."""

from __future__ import annotations

import copy
from typing import Any

from stepmill.sources.drawing import Scene
from stepmill.sources.source import NativeSource
from stepmill.zoo.hybrid import FieldEnv, HybridAction, MovingWorld, Rules, Start, draw

__all__ = ["FieldDrawer"]


class FieldDrawer:
    """A ``Drawer``: see ``stepmill.sources.drawing``.

    ``Field::picture`` in ``cpp/envs/hybrid/field.h`` tells the numbers.
    """

    def __init__(self, source: NativeSource) -> None:
        pass  # the numbers say everything

    @classmethod
    def render_modes(cls) -> list[str]:
        return list(FieldEnv.metadata["render_modes"])

    @classmethod
    def metadata(cls, source: NativeSource) -> dict[str, Any]:
        return copy.deepcopy(FieldEnv.metadata)

    def draw(self, scene: Scene) -> Any:
        limit, radius, penalty, x, y, heading, vx, vy, steps, kind, power, angle, *path = scene.numbers
        positions = list(zip(path[::2], path[1::2], strict=True))
        # A picture does not depend on how the agent moves: either world will do.
        world = MovingWorld(Start(positions[-1], heading, (x, y)), Rules(int(limit), radius, penalty))
        world.velocity, world.steps, world.path = (vx, vy), int(steps), positions
        world.action = HybridAction(int(kind), power, angle) if kind >= 0 else None
        return draw(world)

    def close(self) -> None:
        """Nothing lives outside this process's memory."""
