"""PettingZoo's envs in pools: agents are players, of kinds, and come and go. The oracle is the env stepped alone."""

from __future__ import annotations

import functools
import importlib
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pettingzoo
import pytest
from gymnasium import spaces

import stepmill
from stepmill.envs import ParallelAsBaseEnv
from stepmill.envs.adapters.parallel_players import kinds_of
from stepmill.errors import ConfigError, EnvError
from support.envs.adapted import TagEnv, Two


def env_of(module: str, form: str = "parallel_env", **config: Any) -> Callable[[], Any]:
    return functools.partial(_make, module, form, config)


def _make(module: str, form: str, config: dict[str, Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer versions of PettingZoo prefer their registry
        return getattr(importlib.import_module(module), form)(**config)


HARD = {"max_zombies": 60, "spawn_delay": 1, "line_death": True, "num_archers": 4, "num_knights": 4}
# Some of the packages need pygame, or are not installed.
GAMES = {
    "tag": functools.partial(TagEnv, stay=6),
    "mpe2 simple_tag": env_of("mpe2.simple_tag_v3"),
    "mpe2 simple_spread": env_of("mpe2.simple_spread_v3", continuous_actions=True),
    "mpe2 simple_world_comm": env_of("mpe2.simple_world_comm_v3", max_cycles=12),
    "mpe2 simple_speaker_listener, AEC": env_of("mpe2.simple_speaker_listener_v4", "env"),
    "knights_archers_zombies": env_of("pettingzoo.butterfly.knights_archers_zombies_v11", **HARD),
    "knights_archers_zombies, AEC": env_of("pettingzoo.butterfly.knights_archers_zombies_v11", "env", **HARD),
    "pursuit": env_of("pettingzoo.sisl.pursuit_v5", x_size=7, y_size=7, n_pursuers=3, n_evaders=4, max_cycles=15),
    "rps, AEC": env_of("pettingzoo.classic.rps_v2", "env"),
}


@pytest.fixture
def game(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    factory = GAMES[request.param]
    try:
        factory().close()
    except ImportError as error:
        pytest.skip(str(error))
    return factory


def alone(factory: Callable[[], Any]) -> Any:
    env = factory()
    return env if isinstance(env, pettingzoo.ParallelEnv) else pettingzoo.utils.conversions.aec_to_parallel(env)


class Alone:
    """An env that is stepped beside those of a pool, and compared with what the pool shows of it."""

    def __init__(self, factory: Callable[[], Any], env_id: int, seed: int) -> None:
        self.env = alone(factory)
        self.env_id = env_id
        self.agents = list(self.env.possible_agents)
        self.kinds = kinds_of(self.agents, [self.spaces_of(agent) for agent in self.agents])
        self.ended = False
        self.sizes: set[int] = set()
        self.env.reset(seed=seed)

    def spaces_of(self, agent: Any) -> tuple[Any, Any]:
        return self.env.observation_space(agent), self.env.action_space(agent)

    def step(self, sent: dict[int, Any], batch: Any) -> None:
        """``sent``: by number of the player. ``batch``: what the pool showed for it."""
        acting = list(self.env.agents)
        if self.ended:
            seen, paid = self.env.reset()[0], {}
            acting = []
        else:
            seen, paid, *_ = self.env.step({agent: sent[self.agents.index(agent)] for agent in acting})
        shown = [agent for agent in self.agents if agent in acting or agent in self.env.agents]
        self.sizes.add(len(shown))
        rows = self._rows(batch[4]["players"])
        assert list(rows) == [self.agents.index(agent) for agent in shown]
        for agent in shown:
            self._compare(agent, rows[self.agents.index(agent)], seen, paid, batch)
        self.ended = bool(batch[2][self.env_id] or batch[3][self.env_id])
        assert self.ended == (not self.env.agents)

    def _rows(self, players: dict[str, np.ndarray]) -> dict[int, int]:
        """By number of the player: where its row is."""
        mine = np.flatnonzero(players["env_id"] == self.env_id)
        return dict(zip(players["id"][mine].tolist(), mine.tolist(), strict=True))

    def _compare(self, agent: Any, row: int, seen: Any, paid: Any, batch: Any) -> None:
        obs, reward, _, _, info = batch
        players = info["players"]
        if self.kinds:
            kind = self.kinds[self.agents.index(agent)]
            what = obs[kind][players["rows"][kind].tolist().index(row)]
        else:
            what = obs[row]
        assert np.array_equal(what, seen.get(agent, np.zeros_like(what))), agent
        assert reward[row] == paid.get(agent, 0.0)
        assert (players["terminated"][row] or players["truncated"][row]) == (agent not in self.env.agents)


def sampled(pool: Any, players: dict[str, Any], twin: Alone) -> tuple[list[Any], Any]:
    """An action for each row of the last batch, and all of them as the pool takes them."""
    taken = [twin.env.action_space(twin.agents[number]).sample() for number in players["id"]]
    if not twin.kinds:
        return taken, np.array(taken)
    action = {}
    for kind, rows in players["rows"].items():
        space = pool.single_action_space[kind]
        action[kind] = np.array([taken[row] for row in rows], space.dtype).reshape(len(rows), *space.shape)
    return taken, action


WAYS = [(name, "inline") for name in GAMES] + [("tag", "process"), ("mpe2 simple_tag", "process")]


@pytest.mark.parametrize(("game", "backend"), WAYS, indirect=["game"])
def test_a_pool_shows_what_the_envs_show_alone(game: Callable[[], Any], backend: str) -> None:
    twins = [Alone(game, env_id, 5 + env_id) for env_id in range(2)]
    for agent in twins[0].agents:
        twins[0].env.action_space(agent).seed(twins[0].agents.index(agent))
    with stepmill.make(game, num_envs=2, seed=5, backend=backend) as pool:
        players = pool.reset()[1]["players"]
        comes_and_goes = "zombies" in repr(game) or isinstance(twins[0].env, TagEnv)
        for _ in range(140 if comes_and_goes else 40):
            taken, action = sampled(pool, players, twins[0])
            batch = pool.step(action)
            for twin in twins:
                mine = np.flatnonzero(players["env_id"] == twin.env_id)
                twin.step({int(players["id"][row]): taken[row] for row in mine}, batch)
            players = batch[4]["players"]
    assert (len(twins[0].sizes | twins[1].sizes) > 2) == comes_and_goes
    for twin in twins:
        twin.env.close()


# ---- kinds ---------------------------------------------------------------------------------------

BOX, WIDE = spaces.Box(0, 1, (2,)), spaces.Box(0, 1, (3,))
TWO, THREE = spaces.Discrete(2), spaces.Discrete(3)


@pytest.mark.parametrize(
    ("agents", "own", "expected"),
    [
        (["wolf_0", "sheep_0"], [(BOX, TWO)] * 2, ()),  # one policy can play them all
        (["wolf_0", "sheep_0", "wolf_1"], [(BOX, TWO), (WIDE, TWO), (BOX, TWO)], ("wolf", "sheep", "wolf")),
        (["wolf_0", "sheep_0", "dog_0"], [(BOX, TWO), (BOX, TWO), (BOX, THREE)], ("wolf", "sheep", "dog")),
        (["a_0", "a_1", "a_2"], [(BOX, TWO), (WIDE, TWO), (BOX, TWO)], ("a_0", "a_1", "a_0")),
        (["alice", "bob", "eve"], [(BOX, TWO), (BOX, TWO), (WIDE, THREE)], ("alice", "bob", "eve")),
        (["first_0", "second_0"], [(BOX, TWO), (BOX, THREE)], ("first", "second")),
        ([0, 1], [(BOX, TWO), (WIDE, TWO)], ("0", "1")),
        (["a_0", "a_1", "a_1_0"], [(BOX, TWO), (WIDE, TWO), (BOX, THREE)], ("a_0", "a_1", "a_1_0")),
    ],
)
def test_kinds_are_named_by_what_agents_have_in_common(agents: Any, own: Any, expected: Any) -> None:
    assert kinds_of(agents, own) == expected


def test_the_padded_form_can_be_asked_for() -> None:
    names = ["hunter_0", "prey_0"]
    padded = functools.partial(ParallelAsBaseEnv, functools.partial(TagEnv, names=names), {"pad": True})
    with stepmill.make(padded, num_envs=2, backend="inline") as pool:
        obs, info = pool.reset()
        assert obs.shape == (4, 4)
        assert info["alive"].tolist() == [[True, False]] * 2
        assert pool.step([3, 0, 3, 0])[0].shape == (4, 4)


def test_envs_of_one_pool_have_the_same_players() -> None:
    with pytest.raises(ConfigError, match="env 1: expected the"):
        stepmill.make([TagEnv, functools.partial(TagEnv, 6)], num_envs=2, backend="inline")
    orders = (["hunter_0", "prey_0", "prey_1"], ["prey_0", "hunter_0", "prey_1"])
    mixed = [functools.partial(TagEnv, names=names) for names in orders]
    with pytest.raises(ConfigError, match="env 1: expected the player_kinds of env 0"):
        stepmill.make(mixed, num_envs=2, backend="inline")


# ---- what is refused -----------------------------------------------------------------------------


class Broken(TagEnv):
    """Shows what ``spoil`` makes of the results of a step."""

    def __init__(self, spoil: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self._spoil = spoil

    def step(self, actions: dict[str, Any]) -> Any:
        return self._spoil(self, list(super().step(actions)))


def _without_an_observation(env: Any, parts: Any) -> Any:
    return [{}, *parts[1:]]


def _with_a_stranger(env: Any, parts: Any) -> Any:
    env.agents = [*env.agents, "nobody"]
    return parts


def _with_a_wrong_shape(env: Any, parts: Any) -> Any:
    return [{agent: np.zeros(9) for agent in parts[0]}, *parts[1:]]


def _with_a_word_as_reward(env: Any, parts: Any) -> Any:
    return [parts[0], dict.fromkeys(parts[1], "much"), *parts[2:]]


def _with_lists(env: Any, parts: Any) -> Any:
    return [list(parts[0]), *parts[1:]]


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (_without_an_observation, "expected an observation for each living agent, got none for 'player_0'"),
        (_with_a_stranger, r"expected agents of possible_agents, got \['nobody'\]"),
        (_with_a_wrong_shape, r"observation of agent 'player_0': expected numbers of shape \(4,\)"),
        (_with_a_word_as_reward, "expected a number as reward of agent 'player_0', got 'much'"),
        (_with_lists, "expected a dict by agent as observations"),
    ],
)
def test_what_an_env_returns_is_looked_at(spoil: Any, says: str) -> None:
    with stepmill.make(lambda: Broken(spoil), backend="inline") as pool:
        pool.reset()
        with pytest.raises(EnvError, match=says) as caught:
            pool.step([0, 0])
        *_, truncated, info = caught.value.batch
        assert (truncated.tolist(), info["abnormal"].tolist()) == ([True], [True])
        assert info["players"]["id"].tolist() == [0, 1], "those that have acted"
        assert info["players"]["truncated"].all()
        info = pool.step([0, 0])[4]
        assert info["elapsed_step"].tolist() == [0]


def test_an_env_must_say_beforehand_which_agents_there_may_be() -> None:
    with pytest.raises(EnvError, match="expected a ParallelEnv with possible_agents, got one without"):
        stepmill.make(_Nameless, backend="inline")


class _Nameless(TagEnv):
    def __init__(self) -> None:
        super().__init__()
        del self.possible_agents


@pytest.mark.parametrize("kind", ["env_id", "id", "action", "players.env_id"])
def test_a_kind_must_not_be_named_like_a_key_that_goes_with_actions(kind: str) -> None:
    class Clash(Two):
        possible_agents = [f"{kind}_0", "other_0"]  # noqa: RUF012

        def observation_space(self, agent: str) -> Any:
            return spaces.Box(-5, 5, (len(agent),), np.float32)

    with pytest.raises(EnvError, match=f"expected agents that are not named action, .*got the kind '{kind}'"):
        stepmill.make(Clash, backend="inline")


def test_agents_must_have_names_of_their_own() -> None:
    with pytest.raises(EnvError, match=r"expected possible_agents of different names, got \['player_0', 'player_0'\]"):
        stepmill.make(_Doubled, backend="inline")


class _Doubled(TagEnv):
    def __init__(self) -> None:
        super().__init__()
        self.possible_agents = ["player_0", "player_0"]


def test_an_episode_must_begin_with_an_agent() -> None:
    says = "reset: expected agents that begin the episode, got none"
    with stepmill.make(_Deserted, backend="inline") as pool, pytest.raises(EnvError, match=says):
        pool.reset()


class _Deserted(TagEnv):
    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed, options=options)
        self.agents = []
        return {}, {}


def test_spaces_without_arrays_are_refused_and_the_env_is_closed() -> None:
    made: list[Two] = []

    def make_one() -> Two:
        made.append(Two(action_space=spaces.Text(3)))
        return made[-1]

    with pytest.raises(EnvError, match="expected agents whose spaces are arrays"):
        stepmill.make(make_one, backend="inline")
    assert [one.closed for one in made] == [1]


def test_attributes_and_methods_are_those_of_the_env_inside() -> None:
    with stepmill.make(TagEnv, num_envs=2, backend="inline") as pool:
        pool.reset()
        pool.step(np.zeros(4, int))
        assert pool.get_attr("possible_agents") == (["player_0", "player_1", "player_2", "player_3"],) * 2
        assert pool.get_attr("steps_taken") == (1, 1)
        pool.set_attr("steps_taken", 7)
        assert pool.call("steps_taken") == (7, 7)
