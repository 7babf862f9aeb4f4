"""Every scenario, and a sample of ViZDoom's own ids, which differ only in their maps and actions: 200 random steps."""

from __future__ import annotations

import importlib
import importlib.util
import socket
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import stepmill
from stepmill.errors import EnvError
from stepmill.zoo.vizdoom import SCENARIOS
from support.doom import build, played, random_buttons

vizdoom = pytest.importorskip("vizdoom")
pytestmark = [pytest.mark.zoo, pytest.mark.usefixtures("clean_folder")]

STEPS = 200
NOT_IN_THE_WHEEL = ("D3Battle-v1", "D4Battle2-v1")


def vizdooms_own() -> list[str]:
    importlib.import_module("vizdoom.gymnasium_wrapper")  # registers them
    return sorted(id for id in gymnasium.registry if id.startswith("Vizdoom"))


def sample() -> list[str]:
    """All scenarios, and of the maps of whole games those that can be played without buying one."""
    ids = vizdooms_own()
    scenarios = [id for id in ids if "MAP" not in id and "oom1E" not in id and "DoomE" not in id]
    maps = [id for id in ids if "Freedoom" in id]
    return [*scenarios, *maps[:: len(maps) // 29]][: max(30, len(scenarios) + 4)]


def check(pool: Any, result: tuple[Any, ...]) -> None:
    obs, reward, *_ = result
    assert obs in pool.observation_space
    assert np.isfinite(reward).all()


def test_no_id_got_lost() -> None:
    assert len(SCENARIOS) == 21
    assert {one.id for one in SCENARIOS} <= set(stepmill.list_all_envs())
    assert len(vizdooms_own()) >= 704
    assert len(sample()) >= 30


@pytest.mark.parametrize("id", [one.id for one in SCENARIOS])
def test_every_scenario(id: str, tmp_path: Path) -> None:
    config = {}
    if id in NOT_IN_THE_WHEEL and importlib.util.find_spec("envpool_assets") is None:
        pytest.skip("needs a map of the package envpool-assets")
    if id == "VizdoomCustom-v1":
        config["cfg_path"] = f"{vizdoom.scenarios_path}/basic.cfg"
    with stepmill.make(id, num_envs=2, num_workers=1, backend="process", **config) as pool:
        spec = stepmill.make_spec(id, num_envs=2, **config)
        assert (spec.observation_space, spec.action_space) == (pool.single_observation_space, pool.single_action_space)
        pool.reset()
        rng = np.random.default_rng(0)
        for _ in range(STEPS):
            check(pool, pool.step(rng.integers(0, 2, pool.action_space.shape).astype(float)))


def test_scenarios_of_the_wheel_start_without_a_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    start = importlib.import_module("stepmill.zoo.vizdoom.start")
    monkeypatch.setattr(start, "_try_start", lambda *_: pytest.fail("a start was tried"))
    for id in ("Basic-v1", "Cig-v1", "PredictPosition-v1", "RocketBasic-v1"):
        build(id).close()


@pytest.mark.parametrize("id", sample())
def test_vizdooms_own(id: str) -> None:
    with stepmill.make(id, num_envs=1, backend="process") as pool:
        try:
            pool.reset()
        except EnvError as error:
            if "OpenAL" in str(error):
                pytest.skip("needs OpenAL")
            raise
        pool.action_space.seed(0)
        for _ in range(STEPS):
            check(pool, pool.step(pool.action_space.sample()))


def test_a_seed_decides_the_episodes_on_any_number_of_workers() -> None:
    for id, buttons in (("DefendTheCenter-v1", 3), ("Cig-v1", 10), ("Deathmatch-v1", 20)):
        actions = random_buttons(30, buttons)
        one, *others = (
            played(workers, actions, task_id=id, num_envs=7, seed=5, max_episode_steps=12) for workers in (1, 1, 2, 7)
        )
        for other in others:
            for a, b in zip(one, other, strict=True):
                np.testing.assert_array_equal(a, b)


def test_a_life_is_an_episode_and_the_game_goes_on() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = build("Cig-v1", game_args=f"-host 1 -port {port}", episodic_life=True)
    env.reset(seed=0)
    for _ in range(2):
        env.unwrapped._game.send_game_command("kill")
        _, _, terminated, truncated, info = env.step(np.zeros(10))
        assert (terminated, truncated, info["DEATHCOUNT"]) == (True, False, 1)
        _, info = env.reset()
        assert (info["DEATHCOUNT"], info["HEALTH"]) == (0, 100)
        assert env.step(np.zeros(10))[2:4] == (False, False)
    env.close()


def test_many_games_at_once() -> None:
    """The names of their shared memory do not clash."""
    with stepmill.make("Basic-v1", num_envs=64, backend="process", start_timeout=600) as pool:
        pool.reset()
        for _ in range(5):
            check(pool, pool.step(np.zeros((64, 3))))
