"""A session: what one task of an asyncio program sees of a pool."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from stepmill.errors import NeedsResetError, UsageError
from stepmill.views.sessions import EpisodeStage, LentEnv, Sessions
from stepmill.views.single_rows import Row


class Session:
    """An env of a pool, for one task: ``async with pool.session() as env``. See ``PoolView.session``."""

    def __init__(
        self, sessions: Sessions, seed: int | None, options: dict[str, Any] | None, timeout: float | None
    ) -> None:
        self._sessions = sessions
        self._seed = seed
        self._options = options
        self._timeout = timeout
        self._lent: LentEnv | None = None
        self._state = "not entered yet: async with pool.session() as env"

    def __repr__(self) -> str:
        return f"Session({self._state if self._lent is None else f'env_id={self._lent.env_id}'})"

    @property
    def env_id(self) -> int:
        """The id of the env in its pool: for ``render``, ``call`` and the like."""
        return self._usable().env_id

    async def __aenter__(self) -> Self:
        if self._lent is not None:
            raise UsageError("this session is open already: another pool.session() is another env")
        self._lent = await self._sessions.take(self._timeout)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        lent, self._lent = self._lent, None
        self._state = "left"
        if lent is not None:
            self._sessions.give_back(lent)

    async def reset(self) -> tuple[Any, dict[str, Any]]:
        """Begins an episode.

        Returns:
            The observation and the info of the env.

        Raises:
            EnvError: The env failed. It is replaced, so that you can ``reset`` again.
            InputError: The options are not those of the env (``ResetOptionError``).
            UsageError: Its step is in flight (``InFlightError``), or the pool is closed (``ClosedError``).
        """
        lent = await self._settled()
        if lent.begun is not None and self._seed is None and self._options is None:
            begun, lent.begun = lent.begun, None
            lent.stage = EpisodeStage.LIVE
            return begun
        future = self._sessions.put_reset(lent, self._seed, self._options)
        self._seed = None
        observation, _, _, _, info = await future
        return observation, info

    async def step(self, action: Any) -> Row:
        """Makes one step.

        If this is cancelled, the step goes on, and its result is dropped: the next ``step`` or ``reset`` waits for it
        first.

        Args:
            action: One action of the env's action space; for envs with several players, a row per player.

        Returns:
            ``(obs, reward, terminated, truncated, info)``, as a single env of Gymnasium returns it. The info of a step
            that ends an episode has ``episode_return`` and ``episode_length`` too.

        Raises:
            ActionError: The action does not fit the action space. Nothing was sent.
            EnvError: The env failed. ``error.batch`` has what it would have returned; ``reset`` goes on.
            UsageError: There was no ``reset`` before, or the episode is over (``NeedsResetError``); or another step is
                in flight (``InFlightError``), or the pool is closed (``ClosedError``).
        """
        lent = await self._settled()
        if lent.stage is not EpisodeStage.LIVE:
            raise _needs_reset(lent)
        row: Row = await self._sessions.put_action(lent, action)
        return row

    async def _settled(self) -> LentEnv:
        lent = self._usable()
        while lent.in_flight:  # with what a cancelled call has left
            await self._sessions.settle(lent)
            lent = self._usable()  # meanwhile this may have been left, and another session may have the env
        return lent

    def _usable(self) -> LentEnv:
        if self._lent is None or not self._lent.is_taken:
            raise UsageError(f"this session was {self._state}")
        self._sessions.check_loop()
        return self._lent


def _needs_reset(lent: LentEnv) -> NeedsResetError:
    why = {
        EpisodeStage.BEFORE_RESET: "this session has not reset it yet",
        EpisodeStage.ENDED: "its episode is over",
        EpisodeStage.FAILED: "it has failed, and its episode is over",
    }[lent.stage]
    error = NeedsResetError(f"step of env {lent.env_id}: {why}: call `await env.reset()` first")
    error.__cause__ = lent.failure if lent.stage is EpisodeStage.FAILED else None
    return error
