"""How native versions of Gymnasium's envs are drawn: by Gymnasium's own env, put into the state of the native one.

Equal pixel for pixel, because each twin is given all that its ``render`` reads, in the types that it has there: numpy
draws a float32 angle elsewhere than a float64 one.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Hashable, Sequence
from typing import Any, ClassVar

import numpy as np

from stepmill.errors import ResourceError
from stepmill.sources.drawing import Scene
from stepmill.sources.source import NativeSource
from stepmill.system.optional import imported, require

_SDL_DRIVER = "SDL_VIDEODRIVER"


class TwinDrawer:
    """A ``Drawer``: see ``stepmill.sources.drawing``.

    One twin serves all envs, since everything it draws is put into it each time. It is neither reset nor stepped.
    """

    entry_point: ClassVar[str]  # of Gymnasium's class, as "module:name"

    def __init__(self, source: NativeSource) -> None:
        self._id = source.id
        self._render_mode = source.render_mode
        self._twins: dict[Hashable, Any] = {}
        self._pygame: Any = None
        self._display_is_ours = False

    @classmethod
    def render_modes(cls) -> list[str]:
        return list(cls._gymnasium_class().metadata["render_modes"])

    @classmethod
    def metadata(cls, source: NativeSource) -> dict[str, Any]:
        metadata: dict[str, Any] = copy.deepcopy(cls._gymnasium_class().metadata)
        return metadata

    @classmethod
    def _gymnasium_class(cls) -> Any:
        return imported(cls.entry_point)

    # ---- what a class of envs says about itself ----------------------------------------------

    def put(self, twin: Any, scene: Scene) -> None:
        """Makes the twin look like the env."""
        raise NotImplementedError

    def size(self, numbers: Sequence[float]) -> Hashable:
        """Envs of the same size share a twin."""
        return None

    def arguments(self, numbers: Sequence[float]) -> dict[str, Any]:
        """The arguments of Gymnasium's class that a picture depends on."""
        return {}

    # ---- drawing -----------------------------------------------------------------------------

    def draw(self, scene: Scene) -> Any:
        if self._render_mode == "ansi":
            return self._render(scene)
        if self._pygame is None:
            self._pygame = require("pygame", "pygame-ce", "render", f"render_mode={self._render_mode!r} of {self._id}")
            self._display_is_ours = not self._pygame.display.get_init()
        try:
            if self._display_is_ours:
                _open_display(self._pygame)
            return self._render(scene)
        except self._pygame.error as error:
            if self._pygame.display.get_init():
                raise
            raise ResourceError(
                f"render_mode={self._render_mode!r} of {self._id}: pygame found no video device ({error}). Set the "
                "environment variable SDL_VIDEODRIVER to 'dummy' before the first picture: it needs none"
            ) from error

    def _render(self, scene: Scene) -> Any:
        size = self.size(scene.numbers)
        twin = self._twins.get(size)
        if twin is None:
            twin = self._gymnasium_class()(render_mode=self._render_mode, **self.arguments(scene.numbers))
            # Only for the pace of a window, which we do not have: a Clock would start a thread that pygame never ends.
            twin.clock = "no clock"
            self._twins[size] = twin
        self.put(twin, scene)
        return twin.render()

    def close(self) -> None:
        """Releases the video device, unless somebody else uses it. ``close`` of a twin would close all windows."""
        self._twins.clear()
        if self._display_is_ours and self._pygame.display.get_surface() is None:
            self._pygame.display.quit()
        self._display_is_ours = False


def _open_display(pygame: Any) -> None:
    """Where there is no display, SDL would look for one all the same, and complain on stderr. A picture needs none."""
    if any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", _SDL_DRIVER)):
        return
    os.environ[_SDL_DRIVER] = "dummy"
    try:
        pygame.display.init()
    finally:
        del os.environ[_SDL_DRIVER]


# ---- classic control -----------------------------------------------------------------------------


class CartPole(TwinDrawer):
    """Numbers: the state."""

    entry_point = "gymnasium.envs.classic_control:CartPoleEnv"

    def put(self, twin: Any, scene: Scene) -> None:
        twin.state = np.array(scene.numbers)


class MountainCar(TwinDrawer):
    """Numbers: the state."""

    entry_point = "gymnasium.envs.classic_control:MountainCarEnv"

    def put(self, twin: Any, scene: Scene) -> None:
        twin.state = np.array(scene.numbers)


class MountainCarContinuous(TwinDrawer):
    """Numbers: the state, and whether the car has moved, which makes the state float32."""

    entry_point = "gymnasium.envs.classic_control:Continuous_MountainCarEnv"

    def put(self, twin: Any, scene: Scene) -> None:
        *state, has_moved = scene.numbers
        twin.state = np.array(state, np.float32 if has_moved else np.float64)


class Acrobot(TwinDrawer):
    """Numbers: the state, and whether the arm has moved, which makes the state float64."""

    entry_point = "gymnasium.envs.classic_control:AcrobotEnv"

    def put(self, twin: Any, scene: Scene) -> None:
        *state, has_moved = scene.numbers
        twin.state = np.array(state, np.float64 if has_moved else np.float32)


class Pendulum(TwinDrawer):
    """Numbers: the state, and the torque of the last step, if there was one in this episode."""

    entry_point = "gymnasium.envs.classic_control:PendulumEnv"

    def put(self, twin: Any, scene: Scene) -> None:
        *state, torque = scene.numbers if len(scene.numbers) > 2 else (*scene.numbers, None)
        twin.state = np.array(state)
        twin.last_u = None if torque is None else np.float32(torque)


# ---- toy text ------------------------------------------------------------------------------------


def _action(number: float) -> int | None:
    """The last action; none in this episode is -1."""
    return int(number) if number >= 0 else None


class CliffWalking(TwinDrawer):
    """Numbers: the state, the last action."""

    entry_point = "gymnasium.envs.toy_text:CliffWalkingEnv"

    def put(self, twin: Any, scene: Scene) -> None:
        twin.s, twin.lastaction = int(scene.numbers[0]), _action(scene.numbers[1])


class FrozenLake(TwinDrawer):
    """Numbers: the state, the last action, the number of columns, and the letters of the map."""

    entry_point = "gymnasium.envs.toy_text:FrozenLakeEnv"

    def put(self, twin: Any, scene: Scene) -> None:
        twin.s, twin.lastaction = int(scene.numbers[0]), _action(scene.numbers[1])
        twin.desc = np.asarray(self._rows(scene.numbers), dtype="c")

    def size(self, numbers: Sequence[float]) -> Hashable:
        return len(numbers), numbers[2]

    def arguments(self, numbers: Sequence[float]) -> dict[str, Any]:
        return {"desc": self._rows(numbers)}

    def _rows(self, numbers: Sequence[float]) -> list[str]:
        columns, tiles = int(numbers[2]), "".join(chr(int(number)) for number in numbers[3:])
        return [tiles[first : first + columns] for first in range(0, len(tiles), columns)]


class Taxi(TwinDrawer):
    """Numbers: the state, the last action.

    Gymnasium's taxi turns when it is drawn: into the direction of its last action, if that was a move.
    """

    entry_point = "gymnasium.envs.toy_text:TaxiEnv"

    def __init__(self, source: NativeSource) -> None:
        super().__init__(source)
        self._last_seen: dict[int, tuple[int, int]] = {}  # by env: the number of resets, and the direction

    def put(self, twin: Any, scene: Scene) -> None:
        twin.s, twin.lastaction = int(scene.numbers[0]), _action(scene.numbers[1])
        resets, orientation = self._last_seen.get(scene.env_id, (0, 0))
        twin.taxi_orientation = orientation if resets == scene.resets else 0

    def draw(self, scene: Scene) -> Any:
        frame = super().draw(scene)
        self._last_seen[scene.env_id] = scene.resets, self._twins[None].taxi_orientation
        return frame


class Blackjack(TwinDrawer):
    """Numbers: the sum of the player's cards, whether there is an ace, and the dealer's card: value, suit, face."""

    entry_point = "gymnasium.envs.toy_text:BlackjackEnv"

    def put(self, twin: Any, scene: Scene) -> None:
        total, has_ace, shown, suit, face = map(int, scene.numbers)
        twin.player = [1, total - 1] if has_ace else [total]  # only the sum is drawn
        twin.dealer = [shown]
        twin.dealer_top_card_suit = "CDHS"[suit]
        twin.dealer_top_card_value_str = {1: "A", 10: "JQK"[face]}.get(shown, str(shown))
