"""A PettingZoo ``ParallelEnv`` as pools step it: each agent is a player, and has rows while it is there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

from stepmill.envs.adapters.as_gymnasium import InnerAttributes
from stepmill.envs.results import check_by_agent, own_infos, reset_parts, step_by_agent
from stepmill.errors import ConfigError, EnvError, ObservationError, SpaceError, UsageError
from stepmill.registry.env_state import HasLayerState
from stepmill.values.fitting import Fitter, array_of, holds_arrays
from stepmill.values.trees import leaves, map_tree, map_trees, tree_of

# Bits of sm_player_flag in cpp/core/env/env_table.h.
_HERE, _TERMINATED, _TRUNCATED = 1, 2, 4


class ParallelAsPlayers(HasLayerState, InnerAttributes):
    """A player's number is the place of its agent in ``possible_agents``.

    A row of a batch shows the agents that have just acted and those that act next. An agent that has left has its last
    reward and observation there (zeros if the env gives it none), and no more rows until it joins again. The episode is
    over when no agent is left. ``info["agents"]`` has the agents' own infos.

    The spaces are those of one agent; if they differ, dicts by kind of agent (``kinds_of``).
    """

    _state_names = ("presence",)
    players_vary = True  # after each call, `presence` tells the pool who is there

    def __init__(self, env: Any) -> None:
        self._inner = self.parallel_env = env
        self._agents = _possible_agents(env)
        self.num_players = len(self._agents)
        own = [(env.observation_space(agent), env.action_space(agent)) for agent in self._agents]
        self.player_kinds = kinds_of(self._agents, own)
        by_kind = dict(zip(self.player_kinds or [""] * len(own), own, strict=True))
        for space in (one for pair in by_kind.values() for one in pair):
            _check_space(env, space)
        _check_kinds(env, by_kind)
        if self.player_kinds:
            self.observation_space = spaces.Dict({kind: pair[0] for kind, pair in by_kind.items()})
            self.action_space = spaces.Dict({kind: pair[1] for kind, pair in by_kind.items()})
        else:
            self.observation_space, self.action_space = own[0]
        self._readers = {
            agent: Fitter(
                map_tree(_Reader, tree_of(seen)), str(env), f"observation of agent {agent!r}", ObservationError
            )
            for agent, (seen, _) in zip(self._agents, own, strict=True)
        }
        self._set_places()
        self.metadata = dict(getattr(env, "metadata", None) or {})
        self.render_mode = getattr(env, "render_mode", None)
        self.presence = bytes(self.num_players)

    def _set_places(self) -> None:
        """Where the rows of each agent are: the path to its kind, and its rank there."""
        kinds = self.player_kinds or ("",) * self.num_players
        self._places = {agent: (kinds[i], kinds[:i].count(kinds[i])) for i, agent in enumerate(self._agents)}
        self._kind_trees = {
            kind: tree_of(self.observation_space[kind] if self.player_kinds else self.observation_space)  # type: ignore[index]
            for kind in kinds
        }
        self._kind_sizes = {kind: kinds.count(kind) for kind in kinds}

    def _state_inside(self) -> Any:
        return self.parallel_env

    # ---- an episode --------------------------------------------------------------------------

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        observations, infos = reset_parts(self, self.parallel_env.reset(seed=seed, options=options))
        if not self.parallel_env.agents:
            raise EnvError(f"{self!r}: reset: expected agents that begin the episode, got none")
        self._look_around({}, {}, set())
        return self._rows("reset", observations), own_infos(infos)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        env = self.parallel_env
        acting = list(env.agents)  # a copy: some envs change theirs
        if not acting:
            raise UsageError(f"{self!r}: step: the episode is over, call reset first")
        given = {agent: self._action_of(agent, action) for agent in acting}
        played = step_by_agent(self, self._agents, env.step(given))
        self._look_around(played.terminated, played.truncated, set(acting))
        is_over = not env.agents
        ends = (is_over and not played.is_cut_off, is_over and played.is_cut_off)
        return self._rows("step", played.observations), played.rewards, *ends, own_infos(played.infos)

    def _action_of(self, agent: Any, action: Any) -> Any:
        kind, rank = self._places[agent]
        return map_tree(lambda rows: rows[rank], action[kind] if self.player_kinds else action)

    def _look_around(self, terminated: Mapping[Any, Any], truncated: Mapping[Any, Any], acted: set[Any]) -> None:
        """Sets ``presence``."""
        here = set(self.parallel_env.agents)
        if unknown := here.difference(self._agents):
            raise EnvError(f"{self!r}: expected agents of possible_agents, got {sorted(map(str, unknown))}")
        flags = bytearray(self.num_players)
        for i, agent in enumerate(self._agents):
            if agent in here:
                flags[i] = _HERE
            elif agent in acted:
                is_cut_off = bool(truncated.get(agent))
                has_ended = bool(terminated.get(agent)) or not is_cut_off
                flags[i] = _HERE | (_TERMINATED if has_ended else 0) | (_TRUNCATED if is_cut_off else 0)
        self.presence = bytes(flags)

    def _rows(self, call: str, observations: Any) -> Any:
        check_by_agent(self, call, "observations", observations)
        rows = {kind: map_tree(_Zeros(self._kind_sizes[kind]), tree) for kind, tree in self._kind_trees.items()}
        for i, agent in enumerate(self._agents):
            if not self.presence[i]:
                continue
            if agent in observations:
                kind, rank = self._places[agent]
                map_trees(_Put(rank), rows[kind], self._readers[agent](observations[agent]))
            elif self.presence[i] == _HERE:
                raise ObservationError(
                    f"{self!r}: {call}: expected an observation for each living agent, got none for {agent!r}"
                )
        return rows if self.player_kinds else rows[""]

    def render(self) -> Any:
        return self.parallel_env.render()

    def close(self) -> None:
        self.parallel_env.close()

    def __repr__(self) -> str:
        """The env inside."""
        return str(self.parallel_env)

    __str__ = __repr__


def _possible_agents(env: Any) -> list[Any]:
    agents = list(getattr(env, "possible_agents", None) or ())
    if not agents:
        raise ConfigError(
            f"{env}: expected a ParallelEnv with possible_agents, got one without: a pool must know beforehand which "
            "agents there may be"
        )
    if len(set(agents)) < len(agents):
        raise ConfigError(f"{env}: expected possible_agents of different names, got {agents}")
    return agents


_TAKEN = ("action", "env_id", "id", "players.env_id", "players.id")  # keys that go with the action of a batch


def _check_kinds(env: Any, kinds: Iterable[str]) -> None:
    clash = next((kind for kind in kinds if kind in _TAKEN), None)
    if clash is not None:
        raise ConfigError(
            f"{env}: expected agents that are not named {', '.join(_TAKEN)}, got the kind {clash!r}: its actions would "
            "be under a key that means something else. Rename these agents"
        )


def _check_space(env: Any, space: spaces.Space[Any]) -> None:
    if not all(holds_arrays(leaf) for leaf in leaves(tree_of(space))):
        raise SpaceError(f"{env}: expected agents whose spaces are arrays, or Dicts and Tuples of these, got {space}")


# Classes, not closures: an env is pickled together with them.


class _Reader:
    """An observation as an array of its space's shape and type."""

    def __init__(self, space: spaces.Space[Any]) -> None:
        self._shape, self._dtype = space.shape or (), np.dtype(space.dtype)

    def __call__(self, value: Any) -> np.ndarray:
        return array_of(self._shape, self._dtype, value)


class _Zeros:
    def __init__(self, rows: int) -> None:
        self._rows = rows

    def __call__(self, space: spaces.Space[Any]) -> np.ndarray:
        return np.zeros((self._rows, *(space.shape or ())), space.dtype)


class _Put:
    def __init__(self, row: int) -> None:
        self._row = row

    def __call__(self, rows: np.ndarray, value: np.ndarray) -> None:
        rows[self._row] = value


# ---- kinds ---------------------------------------------------------------------------------------

Spaces = tuple[spaces.Space[Any], ...]


def kinds_of(agents: Sequence[Any], own: Sequence[Spaces]) -> tuple[str, ...]:
    """The kind of each agent, from their names and their spaces; empty if all have the same spaces.

    If all agents have the same spaces, there is one kind, and values are plain arrays, whatever the agents are called:
    that is what one policy for all of them takes. If not, values are dicts by kind. The names of agents then say what
    they are, as in PettingZoo: ``adversary_0``, ``agent_0`` and ``agent_1`` are of the kinds ``adversary`` and
    ``agent``. Two kinds stay apart even if their spaces happen to be equal, because they have different tasks, and
    because a name that depended on the spaces of others could change with a setting of the env. Only where agents of
    one name have different spaces is that name not enough: those with equal spaces are then a kind with the name of the
    first of them, such as ``agent_0``.
    """
    if all(one == own[0] for one in own):
        return ()
    groups: list[tuple[str, Spaces, str]] = []  # the common name, the spaces, and the first agent of each group
    numbers = []
    for agent, its in zip(agents, own, strict=True):
        name = re.sub(r"_\d+$", "", str(agent))
        found = (i for i, group in enumerate(groups) if group[:2] == (name, its))
        number = next(found, len(groups))
        if number == len(groups):
            groups.append((name, its, str(agent)))
        numbers.append(number)
    common = [name for name, *_ in groups]
    names = [name if common.count(name) == 1 else first for name, _, first in groups]
    if len(set(names)) < len(names):  # an agent is called what others have in common
        names = [first for *_, first in groups]
    return tuple(names[number] for number in numbers)
