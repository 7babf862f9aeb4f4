"""Players that leave and join: whose rows a batch has, and which actions it then takes.

The game is tag on a ring, native (``TemplatePlayers-v0``) and as a ``ParallelEnv`` (``support/envs/adapted.py``): the
same seeds and actions give the same rows everywhere.
"""

from __future__ import annotations

import functools
import os
import signal
from typing import Any

import numpy as np
import pytest

import stepmill
from stepmill.errors import ActionError, EnvError, EnvIdError, InFlightError, NeedsResetError, StepmillError
from support.envs.adapted import TagEnv

MOST = 5
RULES = {"tiles": 7, "stay": 9, "join": 0.35}
WAYS = {
    "native threads": ("TemplatePlayers-v0", "thread"),
    "native processes": ("TemplatePlayers-v0", "process"),
    "native inline": ("TemplatePlayers-v0", "inline"),
    "Python processes": (TagEnv, "process"),
    "Python inline": (TagEnv, "inline"),
}
Row = tuple[Any, ...]


def make(way: str = "native threads", view: str = "gymnasium", **arguments: Any) -> Any:
    env, backend = WAYS[way]
    players = {"most": MOST} if env is TagEnv else {"max_num_players": MOST}
    rest = {"num_envs": 4, "seed": 3, "max_episode_steps": 40, **RULES, **arguments}
    return stepmill.make(env, view, backend=backend, **players, **rest)


def actions_of(players: dict[str, np.ndarray], elapsed: dict[int, int]) -> np.ndarray:
    """An action that depends only on who acts and when, not on the order of rows."""
    env, number = players["env_id"], players["id"]
    steps = np.array([elapsed[one] for one in env.tolist()], int)
    return (env * 7 + number * 3 + steps * 5 + env * number * steps) % 3


def rows_of(obs: Any, reward: Any, terminated: Any, truncated: Any, info: Any) -> dict[int, list[Row]]:
    """What a batch shows of each env: its end, and the rows of its players."""
    players = info["players"]
    out: dict[int, list[Row]] = {
        int(env): [(bool(terminated[i]), bool(truncated[i]), int(info["elapsed_step"][i]))]
        for i, env in enumerate(info["env_id"])
    }
    ends = zip(players["terminated"], players["truncated"], strict=True)
    for i, (env, number, end) in enumerate(zip(players["env_id"], players["id"], ends, strict=True)):
        out[int(env)].append((int(number), obs[i].tolist(), float(reward[i]), *map(bool, end)))
    return out


def in_any_order(players: dict[str, np.ndarray], action: np.ndarray, random: np.random.Generator) -> dict[str, Any]:
    """The same action with its rows shuffled; some leave out players that have just left."""
    order = random.permutation(len(action))
    if random.random() < 0.5:
        gone = players["terminated"] | players["truncated"]
        order = order[~gone[order]]
    return {"action": action[order], "players.env_id": players["env_id"][order], "players.id": players["id"][order]}


def play(pool: Any, steps: int, shuffle: np.random.Generator | None = None) -> dict[int, list[Any]]:
    """What each env has shown, in its order, until each has shown at least so much."""
    shown: dict[int, list[Any]] = {env: [] for env in range(pool.num_envs)}
    elapsed: dict[int, int] = {}
    pool.async_reset()
    while min(map(len, shown.values())) < steps:
        batch = pool.recv()
        for env, rows in rows_of(*batch).items():
            shown[env].append(rows)
            elapsed[env] = rows[0][2]
        players = batch[4]["players"]
        action: Any = actions_of(players, elapsed)
        if shuffle is not None:
            action = {**in_any_order(players, action, shuffle), "env_id": shuffle.permutation(batch[4]["env_id"])}
        pool.send(action)
    return {env: rows[:steps] for env, rows in shown.items()}


@pytest.fixture(scope="module")
def expected() -> dict[int, list[Any]]:
    with make("Python inline") as pool:
        return play(pool, 150)


def test_the_game_has_what_the_tests_are_about(expected: dict[int, list[Any]]) -> None:
    rows = [row for shown in expected.values() for one in shown for row in one[1:]]
    ends = [one[0] for shown in expected.values() for one in shown]
    assert {(terminated, truncated) for *_, terminated, truncated in rows} >= {
        (False, False),
        (True, False),
        (False, True),
    }
    assert {number for number, *_ in rows} == set(range(MOST))
    assert {len(one) - 1 for shown in expected.values() for one in shown} >= {1, 2, 3, 4, 5}
    assert {elapsed == 40 for _, truncated, elapsed in ends if truncated} == {True, False}, "by the limit, and its own"


@pytest.mark.parametrize("shuffled", [False, True], ids=["in order", "in any order"])
@pytest.mark.parametrize("batch_size", [4, 1])
@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_running_it_shows_the_same_rows(
    expected: dict[int, list[Any]], way: str, batch_size: int, shuffled: bool
) -> None:
    with make(way, batch_size=batch_size) as pool:
        assert play(pool, 150, np.random.default_rng(batch_size) if shuffled else None) == expected


@pytest.mark.parametrize("seed", range(5))
def test_games_of_any_rules_are_equal_in_both_languages(seed: int) -> None:
    random = np.random.default_rng(seed)
    rules = {"tiles": int(random.integers(2, 9)), "stay": int(random.integers(1, 12)), "join": float(random.random())}
    most, seed = int(random.integers(2, 9)), int(random.integers(2**31))
    shared = {"num_envs": 3, "seed": seed, "backend": "inline", "max_episode_steps": 30, **rules}
    with (
        stepmill.make(TagEnv, most=most, **shared) as python,
        stepmill.make("TemplatePlayers-v0", max_num_players=most, **shared) as native,
    ):
        assert play(native, 80, random) == play(python, 80)


@pytest.mark.parametrize("way", ["native threads", "Python processes"])
def test_the_other_views_show_the_same_rows(expected: dict[int, list[Any]], way: str) -> None:
    with make(way, "dm", batch_size=3) as pool:
        pool.async_reset()
        step = pool.recv()
        players = step.observation.players
        for row, (env, number) in enumerate(zip(players.env_id, players.id, strict=True)):
            mine = [one for one in expected[int(env)][0][1:] if one[0] == number]
            assert [one[1] for one in mine] == [step.observation.obs[row].tolist()]
        assert len(step.reward) == len(players.env_id)
        assert not players.terminated.any()
    with make(way, "gym") as pool:
        obs = pool.reset()
        assert len(obs) == 4 * 3
        obs, reward, done, info = pool.step(np.zeros(12, int))
        assert len(obs) == len(reward) == len(info["players"]["id"])
        assert done.shape == (4,)


@pytest.mark.parametrize("way", WAYS)
def test_some_envs_can_be_reset_while_the_others_go_on(way: str) -> None:
    with make(way, join=0.0, stay=30) as pool:
        _, info = pool.reset()
        assert np.bincount(info["players"]["env_id"]).tolist() == [3, 3, 3, 3]
        while len(info["players"]["id"]) >= 12:  # until somebody is tagged, and gone
            alive = ~(info["players"]["terminated"] | info["players"]["truncated"])
            players = {key: info["players"][key][alive] for key in ("env_id", "id")}
            info = pool.step({"action": players["env_id"] % 3, **{f"players.{key}": players[key] for key in players}})[
                4
            ]
        _, info = pool.reset([2, 0])
        assert info["env_id"].tolist() == [2, 0]
        assert info["players"]["env_id"].tolist() == [2, 2, 2, 0, 0, 0]
        assert info["players"]["id"].tolist() == [0, 1, 2, 0, 1, 2]
        mask = np.array([False, True, False, False])
        _, info = pool.reset(options={"reset_mask": mask})
        assert np.bincount(info["players"]["env_id"], minlength=4)[:3].tolist() == [3, 3, 3]
        pool.step(np.zeros(len(info["players"]["id"]), int))


def test_without_autoreset_an_env_waits_for_its_reset() -> None:
    with make(autoreset="disabled", max_episode_steps=2) as pool:
        pool.reset()
        for _ in range(2):
            info = pool.step(pool.action_space.sample())[4]
        assert (info["players"]["terminated"] | info["players"]["truncated"]).all()
        with pytest.raises(NeedsResetError, match="env 0 is over"):
            pool.step(pool.action_space.sample())
        info = pool.reset([1])[1]
        assert info["players"]["id"].tolist() == [0, 1, 2]
        assert pool.step({"action": [0, 0, 0], "env_id": [1]})[4]["env_id"].tolist() == [1]


class Mortal(TagEnv):
    """Its process is killed in the third step; an end that it knows of is an exception."""

    def __init__(self, dies: bool) -> None:
        super().__init__(most=MOST, tiles=3, join=0.0)
        self._dies = dies

    def step(self, actions: dict[str, Any]) -> Any:
        if self.steps_taken == 2 and self._dies:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.steps_taken == 2:
            raise RuntimeError("no third step")
        return super().step(actions)


@pytest.mark.parametrize("on_error", ["raise", "restart"])
@pytest.mark.parametrize(("backend", "dies"), [("inline", False), ("process", False), ("process", True)])
def test_the_row_of_a_failure_shows_the_players_that_have_acted(backend: str, dies: bool, on_error: str) -> None:
    with stepmill.make(functools.partial(Mortal, dies), seed=1, backend=backend, on_error=on_error) as pool:
        info = pool.reset()[1]
        for _ in range(2):
            obs, *_, info = pool.step(np.zeros(len(info["players"]["id"]), int))
        players = info["players"]
        goes_on = ~(players["terminated"] | players["truncated"])
        assert 0 < goes_on.sum() < 3
        action = {"action": [0] * goes_on.sum(), "players.env_id": [0] * goes_on.sum()}
        try:
            batch = pool.step(action)
        except EnvError as error:
            assert on_error == "raise"
            batch = error.batch
        last, reward, terminated, truncated, info = batch
        assert (terminated.tolist(), truncated.tolist(), info["abnormal"].tolist()) == ([False], [True], [True])
        assert info["players"]["id"].tolist() == players["id"][goes_on].tolist()
        assert info["players"]["truncated"].all()
        assert not reward.any()
        assert np.array_equal(last, obs[goes_on] if on_error == "restart" else np.zeros_like(last))
        info = pool.step(np.zeros(len(reward), int))[4]  # begins anew
        assert (info["elapsed_step"].tolist(), info["players"]["id"].tolist()) == ([0], [0, 1, 2])


# ---- what is refused -----------------------------------------------------------------------------


def begun(way: str) -> tuple[Any, dict[str, np.ndarray]]:
    """A pool in which somebody has left, and in which nobody enters: env ids and numbers of those that are there."""
    pool = make(way, num_envs=2, tiles=2, join=0.0, seed=5)
    players = pool.reset()[1]["players"]
    for _ in range(2):
        players = pool.step(np.zeros(len(players["id"]), int))[4]["players"]
    return pool, {key: players[key] for key in ("env_id", "id")}


BAD = {
    "too few rows": ({"rows": slice(1, None)}, ActionError, r"expected shape|one row per player"),
    "too few rows of an env": (
        {"rows": slice(1, None), "keys": ["env_id"]},
        ActionError,
        "one per player that is there",
    ),
    "a player without an action": ({"rows": slice(1, None), "keys": ["env_id", "id"]}, ActionError, "none of player"),
    "a player that has left": ({"id": MOST - 1}, ActionError, "is not there: it has left"),
    "a number that no player has": ({"id": MOST}, ActionError, r"players.id 5 is out of range \[0, 5\)"),
    "a negative number": ({"id": -1}, ActionError, "out of range"),
    "a player twice": ({"twice": True}, ActionError, "player 0 is given twice"),
    "an env that there is not": ({"env": 7}, EnvIdError, r"players.env_id 7 is out of range"),
    "an env that is not stepped": ({"env_id": [0]}, EnvIdError, "names env 1, which env_id does not"),
    "numbers without envs": ({"keys": ["id"]}, ActionError, "expected players.env_id beside it"),
    "fewer numbers than rows": ({"short": True}, ActionError, r"players.id: expected \d numbers"),
    "numbers that are no numbers": ({"text": True}, EnvIdError, "players.id"),
    "an action out of range": ({"action": 9}, ActionError, "env 0, player 0"),
}


def bad_action(players: dict[str, np.ndarray], case: dict[str, Any]) -> Any:
    rows = case.get("rows", slice(None))
    given: dict[str, Any] = {
        key: players[key][rows].copy() for key in case.get("keys", ["env_id", "id"] if "rows" not in case else [])
    }
    action = np.zeros(len(players["id"][rows]), int)
    action[0] = case.get("action", 0)
    if "id" in case:
        given["id"][0] = case["id"]
    if "env" in case:
        given["env_id"][0] = case["env"]
    if "twice" in case:
        given = {key: np.append(one, one[0]) for key, one in given.items()}
        action = np.append(action, 0)
    if "short" in case:
        given["id"] = given["id"][1:]
    if "text" in case:
        given["id"] = ["a"] * len(action)
    out = {"action": action, **{f"players.{key}": one for key, one in given.items()}}
    return {**out, "env_id": case["env_id"]} if "env_id" in case else out


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("way", ["native threads", "Python inline"])
def test_bad_rows_are_refused_and_nothing_is_queued(way: str, case: str) -> None:
    pool, players = begun(way)
    with pool:
        wrong, error, words = BAD[case]
        with pytest.raises(error, match=words) as caught:
            pool.send(bad_action(players, wrong))
        assert isinstance(caught.value, StepmillError)
        assert pool.stats()["in_flight"] == 0
        _, reward, *_ = pool.step(np.zeros(len(players["id"]), int))
        assert len(reward) == len(players["id"])


def test_an_env_in_flight_takes_no_action_of_its_players() -> None:
    with make(batch_size=1) as pool:
        pool.async_reset()
        info = pool.recv()[4]
        other = int((info["env_id"][0] + 1) % 4)
        with pytest.raises(InFlightError, match=f"env {other} is in flight"):
            pool.send({"action": [0] * 3, "env_id": [other], "players.env_id": [other] * 3})


def test_before_the_first_reset_and_after_an_end_any_number_of_rows_will_do() -> None:
    with make(num_envs=2, max_episode_steps=1) as pool:
        for rows in (1, 5, 3):
            owners = np.repeat([0, 1], rows)
            info = pool.step({"action": np.zeros(2 * rows, int), "players.env_id": owners})[4]  # a reset
            assert info["elapsed_step"].tolist() == [0, 0]
            info = pool.step(np.zeros(len(info["players"]["id"]), int))[4]
            assert (info["players"]["truncated"] | info["players"]["terminated"]).all()
        with pytest.raises(ActionError, match="env 0: expected 0 actions"):
            pool.step({"action": np.zeros(12, int), "players.env_id": np.repeat([0, 1], 6)})
        info = pool.step({"action": np.zeros(0, int), "players.env_id": []})[4]
        assert info["elapsed_step"].tolist() == [0, 0]


def test_whatever_is_in_the_action_space_is_an_action() -> None:
    """It has a row for every player that there may be; those of absent ones are not read."""
    with make() as pool:
        info = pool.reset()[1]
        assert len(info["players"]["id"]) < pool.action_space.shape[0] == 4 * MOST
        pool.action_space.seed(0)
        for _ in range(30):
            pool.step(pool.action_space.sample())


# ---- kinds of players ----------------------------------------------------------------------------

NAMES = ["hunter_0", "prey_0", "hunter_1", "prey_1", "prey_2"]
mixed = functools.partial(TagEnv, names=NAMES)


def of_kinds(view: str = "gymnasium", **arguments: Any) -> Any:
    rest = {"num_envs": 4, "seed": 3, "max_episode_steps": 40, "backend": "inline", **RULES, **arguments}
    return stepmill.make(mixed, view, **rest)


def merged(batch: Any) -> Any:
    """The rows of all kinds in one array, with a 0 for what hunters do not see."""
    obs, *rest, info = batch
    rows = info["players"]["rows"]
    both = np.zeros((len(info["players"]["id"]), 4), np.float32)
    for kind in obs:
        assert len(obs[kind]) == len(rows[kind])
        both[rows[kind], : obs[kind].shape[1]] = obs[kind]
    return both, *rest, info


@pytest.mark.parametrize("backend", ["inline", "process"])
@pytest.mark.parametrize("batch_size", [4, 2])
def test_players_of_different_spaces_are_dicts_by_kind(
    expected: dict[int, list[Any]], backend: str, batch_size: int
) -> None:
    random = np.random.default_rng(0)
    with of_kinds(backend=backend, batch_size=batch_size) as pool:
        assert list(pool.single_observation_space) == list(pool.single_action_space) == ["hunter", "prey"]
        assert pool.observation_space["hunter"].shape == (8, 3)
        assert pool.action_space["prey"].shape == (12,)
        shown: dict[int, int] = dict.fromkeys(range(4), 0)
        elapsed: dict[int, int] = {}
        pool.async_reset()
        while min(shown.values()) < 60:
            batch = pool.recv()
            players = batch[4]["players"]
            for env, rows in rows_of(*merged(batch)).items():
                if shown[env] < 150:
                    known = expected[env][shown[env]]
                    wanted = [known[0], *((n, [*o[:3], 0.0 if n in (0, 2) else o[3]], *r) for n, o, *r in known[1:])]
                    assert rows == wanted
                shown[env], elapsed[env] = shown[env] + 1, rows[0][2]
            action = actions_of(players, elapsed)
            given: dict[str, Any] = {kind: action[rows] for kind, rows in players["rows"].items()}
            if random.random() < 0.5:
                orders = {kind: random.permutation(rows) for kind, rows in players["rows"].items()}
                given = {kind: action[rows] for kind, rows in orders.items()}
                for key in ("env_id", "id"):
                    given[f"players.{key}"] = {kind: players[key][rows] for kind, rows in orders.items()}
            pool.send(given, batch[4]["env_id"])


def test_bad_actions_of_kinds_are_refused() -> None:
    with of_kinds() as pool:
        pool.reset()
        right = {"hunter": np.zeros(8, int), "prey": np.zeros(4, int)}
        owners = {"hunter": np.repeat(range(4), 2), "prey": np.arange(4)}
        for wrong, words in [
            (np.zeros(12, int), "expected a dict with the rows of each kind of player, 'hunter', 'prey'"),
            ({"hunter": np.zeros(8, int)}, "action: expected a dict with the keys 'hunter', 'prey'"),
            ({**right, "wolf": np.zeros(1, int)}, "wolf"),
            ({**right, "prey": np.zeros(5, int)}, r"action 'prey': expected shape \(4,\) \(one row per player\)"),
            ({**right, "prey": np.full(4, 3)}, r"env 0, player 1"),
            ({**right, "players.env_id": np.arange(12)}, "players.env_id: expected a dict with the keys"),
            (
                {**right, "players.env_id": owners, "players.id": {"hunter": [0, 2] * 4, "prey": [0] * 4}},
                "of another kind",
            ),
            ({**right, "players.id": {"hunter": [0, 2] * 4, "prey": [1] * 4}}, "expected players.env_id beside it"),
        ]:
            with pytest.raises(ActionError, match=words):
                pool.send(wrong)
            assert pool.stats()["in_flight"] == 0
        pool.step({**right, "players.env_id": owners, "players.id": {"hunter": [0, 2] * 4, "prey": [1] * 4}})


def test_the_action_space_of_kinds_and_the_other_views() -> None:
    with of_kinds() as pool:
        pool.reset()
        pool.action_space.seed(0)
        for _ in range(5):
            pool.step(pool.action_space.sample())
    with of_kinds("dm") as pool:
        step = pool.reset()
        assert set(step.observation.obs) == set(step.observation.players.rows) == {"hunter", "prey"}
        assert len(step.reward) == 12
    with of_kinds("gym") as pool:
        assert set(pool.reset()) == {"hunter", "prey"}
