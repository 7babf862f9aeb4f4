"""The emulator, and ale-py's own env around it, so that both can be saved. Imports ale-py: to be imported when used."""

from __future__ import annotations

from typing import Any

import ale_py
import numpy as np
from ale_py.env import AtariEnv

from stepmill.errors import StateError
from stepmill.wrappers.episodes import NOOP

_STICKY = "repeat_action_probability"


class Emulator(ale_py.ALEInterface):
    """Draws sticky actions itself: ale-py would not say which action it took last, nor let it be set.

    It draws them as ale-py does, from the same numbers, so that games are the same.
    """

    _AT_ONCE = 64  # draws
    _SETTLED = 4  # frames after a reset

    def __init__(self) -> None:
        super().__init__()
        self._bits = np.random.MT19937()
        self._taken: list[bool] = []  # whether the next actions are taken; the first of them is the last here
        self._last: tuple[Any, ...] = (NOOP,)
        self.setFloat(_STICKY, super().getFloat(_STICKY))

    def setFloat(self, key: str, value: float) -> None:
        if key == _STICKY:
            self._probability, value = float(np.float32(value)), 0.0
        super().setFloat(key, value)

    def getFloat(self, key: str) -> float:
        return self._probability if key == _STICKY else float(super().getFloat(key))

    def loadROM(self, path: Any) -> None:
        super().loadROM(path)
        seeded: Any = np.random.RandomState(self.getInt("random_seed") & 0xFFFFFFFF)
        self._bits.state = seeded.get_state(legacy=False)
        self._taken = []

    def reset_game(self) -> None:
        super().reset_game()
        self._last = (NOOP,)

    def act(self, *action: Any) -> int:
        """One frame. Takes an action and perhaps how strongly, or again what was taken before."""
        if self._probability:
            if not self._taken:
                drawn = self._bits.random_raw(2 * self._AT_ONCE)[-2::-2]  # the others are for a second player
                self._taken = (drawn / 2**32 >= self._probability).tolist()
            if self._taken.pop():
                self._last = action
            action = self._last
        return super().act(*action)

    def fast_act(self) -> Any:
        """A function like ``act``, for an emulator whose probability is set."""
        return self.act if self._probability else super().act

    def get_state(self) -> tuple[Any, ...]:
        """All but the screen. Of the emulator's own generator nothing depends any more."""
        sticky = (self._last, self._taken, self._bits.state) if self._probability else None
        return ale_py.__version__, self.getEpisodeFrameNumber(), self.cloneState().serialize(), sticky

    def _draw_frames(self, count: int) -> None:
        """As many since a reset, or more if they are settled: of the first ones, not all is in the emulator's state.

        Tetris and qbert show it, and count a frame more or less.
        """
        drawn = self.getEpisodeFrameNumber()
        if count < self._SETTLED and drawn != count:
            super().reset_game()
            drawn = 0
        for _ in range(drawn, count):
            super().act(NOOP)

    def set_state(self, state: tuple[Any, ...]) -> None:
        """Goes on from a state of the same game, which must be loaded."""
        version, frames, system, sticky = state
        if version != ale_py.__version__:
            raise StateError(f"expected a state of ale-py {ale_py.__version__}, got one of {version}")
        self._draw_frames(min(frames, self._SETTLED))
        self.restoreState(ale_py.ALEState(system))
        if sticky is not None:
            self._last, self._taken, self._bits.state = sticky


class AleEnv(AtariEnv):
    """ale-py's env as it is, which can be saved."""

    _picture: np.ndarray | None = None  # of a restored game, until it goes on: a state of the emulator has none

    def _set_ale(self, _: Any) -> None:  # once, by the constructor, before anything else is done with it
        self._emulator = Emulator()

    ale: Any = property(lambda self: self._emulator, _set_ale)

    def reset(self, **arguments: Any) -> Any:
        self._picture = None
        return super().reset(**arguments)

    def step(self, action: Any) -> Any:
        self._picture = None
        return super().step(action)

    def render(self) -> Any:
        return super().render() if self._picture is None else self._picture.copy()

    def get_state(self) -> tuple[Any, ...]:
        """Everything that decides how the game goes on, and its picture, but for the generator of skipped frames."""
        return self.ale.get_state(), self.render() if self.render_mode == "rgb_array" else None

    def set_state(self, state: tuple[Any, ...]) -> None:
        """Goes on from what ``get_state`` of an env with the same arguments returned."""
        emulator, picture = state
        self.ale.set_state(emulator)
        self._picture = picture
