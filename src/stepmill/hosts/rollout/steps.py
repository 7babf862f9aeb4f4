"""``pool.play``: envs play on and on with a policy, and the user sees every batch."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, cast

import numpy as np

from stepmill import _native
from stepmill.errors import EnvError, InFlightError, UnsupportedError
from stepmill.hosts.rollout.play import Player, Turn
from stepmill.hosts.rollout.policy import Generators, Policy, PolicyCaller, check_policy
from stepmill.settings import Settings
from stepmill.values.arguments import whole_number
from stepmill.values.trees import map_tree, map_trees, tree_of

_LARGEST_SEED = 2**63 - 1


class StepBatch(NamedTuple):
    """What some envs have just done: a row per env of ``env_ids``, as ``step`` of the gymnasium view has it.

    Attributes:
        env_ids: The envs.
        observations: What they show now.
        actions: What led to it, in the dtypes of the action space, before any clipping. The row of a reset has the
            action that was ignored, or zeros. None if envs have several players.
        rewards: The reward of each; with several players, of each player.
        terminated: Whether the step ended an episode.
        truncated: Whether the step cut an episode off.
        info: As ``step`` returns it. ``info["elapsed_step"]`` is 0 where an episode begins.
        episodes: The seeds of the episodes that the envs play, -1 for one without; None if ``play`` was not given any.
        seconds: How long sending the actions and waiting for this batch took, without the policy.
        error: What envs raised, if ``play`` goes on in spite of errors.
    """

    env_ids: np.ndarray
    observations: Any
    actions: Any
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    info: dict[str, Any]
    episodes: np.ndarray | None
    seconds: float
    error: EnvError | None

    @property
    def ended(self) -> np.ndarray:
        """Whether the step ended an episode, or cut it off."""
        ended: np.ndarray = self.terminated | self.truncated
        return ended


def play_on(
    engine: _native.Engine,
    settings: Settings,
    policy: Policy,
    seed: int,
    episodes: Iterable[int | None] | None,
    raise_errors: bool,
) -> Iterator[StepBatch]:
    """See ``PoolView.play``. Everything that can be refused is refused before the first batch is asked for."""
    engine.check_usable()
    check_policy(policy, "play")
    generators = Generators(whole_number("play: seed", seed, 0))
    if episodes is None and settings.autoreset == "disabled":
        raise UnsupportedError(
            "play: with autoreset='disabled' nobody would reset an env whose episode is over: make the pool with "
            "autoreset='next_step' or 'same_step', or pass episodes=..."
        )
    if engine.in_flight_count:
        raise InFlightError("play: envs are in flight: recv() their results first, or reset() all envs")
    return _Play(engine, settings, policy, generators, episodes, raise_errors).batches()


class _Play:
    def __init__(
        self,
        engine: _native.Engine,
        settings: Settings,
        policy: Policy,
        generators: Generators,
        episodes: Iterable[int | None] | None,
        raise_errors: bool,
    ) -> None:
        self._engine = engine
        self._num_envs = settings.num_envs
        self._generators = generators
        self._waiting = None if episodes is None else iter(episodes)
        self._episodes = np.zeros(settings.num_envs, np.int64)
        caller = PolicyCaller(_guarded(engine, policy), engine.host.action.space, generators)
        batch_size = settings.batch_size if settings.is_async else None
        self._player = Player(engine, caller, batch_size, keeps_on=not raise_errors)
        self._actions: _LastActions | None = None
        if engine.host.num_players == 1:
            self._actions = _LastActions(engine, settings.num_envs, not settings.is_async)

    def batches(self) -> Iterator[StepBatch]:
        begun = self._begin(range(self._num_envs))
        if not begun[0]:
            return
        self._engine.send_reset(*begun, None)
        turns = self._player.turns()
        while (turn := self._engine.plainly(next, turns, None)) is not None:
            yield self._batch(turn)
            if self._waiting is not None:
                self._begin_next(turn)

    def _batch(self, turn: Turn) -> StepBatch:
        observations, rewards, terminated, truncated, info = turn.result
        actions = None if self._actions is None else self._actions.of(turn)
        episodes = None if self._waiting is None else self._episodes[turn.env_ids]
        return StepBatch(
            turn.env_ids,
            observations,
            actions,
            rewards,
            terminated,
            truncated,
            info,
            episodes,
            turn.seconds,
            turn.error,
        )

    # ---- episodes with seeds -------------------------------------------------------------------------

    def _begin_next(self, turn: Turn) -> None:
        """Envs whose episode has ended, or failed, play the next one that waits."""
        _, _, terminated, truncated, info = turn.result
        ended = terminated | truncated
        if "abnormal" in info:
            ended = ended | info["abnormal"]
        if ended.any():
            turn.goes_on = ~ended
            begun = self._begin(turn.env_ids[ended].tolist())
            turn.resets = begun if begun[0] else None

    def _begin(self, env_ids: Iterable[int]) -> tuple[list[int], list[int | None] | None]:
        """Gives envs episodes, as far as there are any; returns these envs and their seeds."""
        if self._waiting is None:
            return list(env_ids), None
        chosen = dict(zip(env_ids, self._waiting, strict=False))
        for env_id, seed in chosen.items():
            if seed is None:
                self._episodes[env_id] = -1
                continue
            self._episodes[env_id] = whole_number("play: episodes: a seed", seed, 0, _LARGEST_SEED)
            self._generators.renew(env_id, seed)
        return list(chosen), list(chosen.values())


class _LastActions:
    """The last action of each env: in async mode its result comes later than others'."""

    def __init__(self, engine: _native.Engine, num_envs: int, is_sync: bool) -> None:
        action = engine.host.action
        self._is_sync = is_sync

        def table(space: Any) -> np.ndarray:
            if any(space is one for one in action.object_spaces):
                return np.zeros(num_envs, object)
            return np.zeros((num_envs, *space.shape), space.dtype)

        self._tables = map_tree(table, tree_of(action.space))

    def of(self, turn: Turn) -> Any:
        """The actions that led to the rows of a turn."""
        is_plain = type(self._tables) is np.ndarray  # nearly always
        if is_plain and self._is_sync and len(turn.sent) == 1 and len(turn.sent[0][0]) == len(turn.env_ids):
            return np.array(_native.without_torch(turn.sent[0][1]), self._tables.dtype)
        for env_ids, actions, _ in turn.sent:
            self._put(env_ids, actions)
        if is_plain:
            return self._tables[turn.env_ids]
        return map_tree(operator.itemgetter(turn.env_ids), self._tables)

    def _put(self, env_ids: np.ndarray, actions: Any) -> None:
        if type(self._tables) is np.ndarray:
            self._tables[env_ids] = _native.without_torch(actions)
            return
        map_trees(lambda table, part: table.__setitem__(env_ids, _native.without_torch(part)), self._tables, actions)


def _guarded(engine: _native.Engine, policy: Policy) -> Policy:
    """The policy; while it is asked, the pool refuses calls: one that steps the pool would play in its own episodes."""
    guarded: Any = functools.partial(engine.use, policy)
    if hasattr(policy, "begin"):
        guarded.begin = functools.partial(engine.use, policy.begin)
    return cast(Policy, guarded)
