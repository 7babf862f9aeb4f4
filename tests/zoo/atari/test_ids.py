"""Atari ids in pools: what each stands for, its options, limits and infos."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import ale_py
import gymnasium
import numpy as np
import pytest

import stepmill
from stepmill.errors import ConfigError, EnvError, MissingPackageError, UnknownConfigError
from stepmill.registry.records import _records
from stepmill.zoo.atari import AtariGame
from stepmill.zoo.atari.games import GAMES, id_patterns
from stepmill.zoo.atari.options import DEFAULTS
from support.subprocesses import run_well

gymnasium.register_envs(ale_py)


def no_emulator(*_: Any, **__: Any) -> Any:
    raise AssertionError("the emulator was built")


# ---- which ids there are -------------------------------------------------------------------------


def test_every_game_has_an_id_with_envpools_name_and_defaults() -> None:
    ids = stepmill.list_all_envs()
    assert {"Pong-v5", "MsPacman-v5", "TicTacToe3d-v5", "UpNDown-v5"} < set(ids)
    assert len([id for id in ids if id.removesuffix("-v5") in {game.name for game in GAMES.values()}]) == 104
    assert _records["TicTacToe3D-v5"] is _records["TicTacToe3d-v5"]
    shown = stepmill.make_spec("Pong-v5")
    assert {key: shown.config[key] for key in DEFAULTS} == DEFAULTS
    assert shown.config["max_episode_steps"] == 27_000


def test_ids_of_gymnasium_are_known_by_their_names() -> None:
    import re

    names = [id for id, spec in gymnasium.registry.items() if str(spec.entry_point).startswith("ale_py")]
    assert len(names) > 300
    assert [id for id in names if not any(re.fullmatch(one, id) for one in id_patterns())] == []


def test_nothing_is_imported_before_an_id_is_asked_for() -> None:
    code = (
        "import sys, stepmill; from stepmill.registry.records import find\n"
        "stepmill.make_spec('Pong-v5', stack_num=2); before = {'ale_py', 'cv2'} & set(sys.modules)\n"
        "print(before, find('ALE/Pong-v5').id, find('gymnasium:ALE/Freeway-v5').id, find('PongNoFrameskip-v4').id)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set() ALE/Pong-v5 gymnasium:ALE/Freeway-v5 PongNoFrameskip-v4"


@pytest.mark.parametrize("id", ["ALE/Pong-v5", "PongNoFrameskip-v4"])
def test_a_missing_emulator_is_an_error_that_says_so(id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ale_py", None)
    monkeypatch.delitem(gymnasium.registry, id)
    with pytest.raises(MissingPackageError, match=rf"^{id} needs ale-py, .*stepmill\[atari\]"):
        stepmill.make(id, num_envs=1)


def test_a_missing_emulator_is_an_error_for_our_own_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stepmill.system.optional.importlib.util.find_spec", lambda _: None)
    with pytest.raises(MissingPackageError, match=r"^Pong-v5 needs ale-py, .*pip install 'stepmill\[atari\]'"):
        stepmill.make("Pong-v5", num_envs=1)
    assert "Pong-v5" not in stepmill.list_all_envs()


# ---- specs without the emulator ------------------------------------------------------------------

SPECS: list[tuple[str, dict[str, Any]]] = [
    ("Pong-v5", {}),
    ("Pong-v5", {"img_height": 40, "img_width": 30, "stack_num": 2, "gray_scale": False, "full_action_space": True}),
    ("ALE/Carnival-v5", {}),
    ("ALE/Freeway-v5", {"obs_type": "ram"}),
    ("ALE/Freeway-v5", {"stack_num": 3, "frame_skip": 2}),
    ("Skiing-v5", {"full_action_space": True}),  # one of two games without FIRE in any action
    ("ALE/LostLuggage-v5", {"full_action_space": True}),
    ("PongNoFrameskip-v4", {"obs_type": "grayscale", "full_action_space": True, "render_mode": "rgb_array"}),
]


@pytest.mark.parametrize(("id", "config"), SPECS, ids=str)
def test_specs_need_no_emulator_and_are_right(id: str, config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(ale_py, "ALEInterface", no_emulator)
        spec = stepmill.make_spec(id, **config)
    with stepmill.make(id, num_envs=1, **config) as pool:
        assert pool.single_observation_space == spec.observation_space
        assert pool.single_action_space == spec.action_space
        assert pool.spec.config == spec.config
        observation, _ = pool.reset()
        assert spec.observation_space.contains(observation[0])
        last = spec.action_space.n - 1
        pool.step([last])
        assert len(pool.call("get_action_meanings")[0]) == last + 1


def test_what_the_table_does_not_know_the_emulator_is_asked() -> None:
    assert stepmill.make_spec("ALE/Freeway-v5", continuous=True).action_space.shape == (3,)


# ---- what an id stands for -----------------------------------------------------------------------


def test_an_id_of_gymnasium_is_gymnasiums_env_unless_an_option_asks_for_preprocessing() -> None:
    env = gymnasium.make("ALE/Breakout-v5")
    with stepmill.make("ALE/Breakout-v5", num_envs=1, seed=3) as pool:
        np.testing.assert_array_equal(pool.reset()[0][0], env.reset(seed=3)[0])
        for action in (1, 2, 3, 0):
            ours, theirs = pool.step([action]), env.step(action)
            np.testing.assert_array_equal(ours[0][0], theirs[0])
            assert {key: ours[4][key][0] for key in theirs[4]} == theirs[4]
    env.close()


@pytest.mark.parametrize(("id", "sticky"), [("ALE/Pong-v5", 0.25), ("PongNoFrameskip-v4", 0.0), ("Pong-v0", 0.25)])
def test_preprocessing_keeps_the_sticky_actions_of_an_id(id: str, sticky: float) -> None:
    with stepmill.make(id, num_envs=1, noop_max=7) as pool:
        (options,) = pool.get_attr("options")
        assert (options.repeat_action_probability, options.noop_max, options.frame_skip) == (sticky, 7, 4)
        assert options.most_frames == 108_000
        assert pool.single_observation_space.shape == (4, 84, 84)


def test_options_that_do_not_go_together_are_an_error() -> None:
    with pytest.raises(UnknownConfigError, match=r"'frameskip' with preprocessing, frame_skip is .*: stack_num turned"):
        stepmill.make("ALE/Pong-v5", stack_num=4, frameskip=4)
    with pytest.raises(UnknownConfigError, match="Pong-v5 has no config key 'stack_number', did you mean 'stack_num'"):
        stepmill.make("Pong-v5", stack_number=4)
    with pytest.raises(ConfigError, match="pong: frame_skip: expected a whole number, got 'x'"):
        stepmill.make("Pong-v5", frame_skip="x")


def test_calls_of_envpools_users_work() -> None:
    config = {
        "img_height": 64,
        "img_width": 64,
        "stack_num": 2,
        "frame_skip": 2,
        "noop_max": 3,
        "episodic_life": True,
        "zero_discount_on_life_loss": True,
        "reward_clip": True,
        "use_fire_reset": True,
        "repeat_action_probability": 0.1,
        "use_inter_area_resize": True,
        "gray_scale": True,
        "full_action_space": False,
        "mode": -1,
        "difficulty": -1,
        "render_mode": "rgb_array",
    }
    with stepmill.make("Breakout-v5", "dm", num_envs=2, seed=1, backend="inline", **config) as pool:
        first = pool.reset()
        assert first.observation.obs.shape == (2, 2, 64, 64)
        discounts, lives = [], []
        for _ in range(150):
            step = pool.step(np.zeros(2, np.int32))
            discounts.append(step.discount.copy())
            lives.append(step.observation.info["lives"])
        assert step.observation.info["ram"].shape == (2, 128)
        assert pool.render()[0].shape == (210, 160, 3)
    lost = np.diff(lives, axis=0) < 0
    np.testing.assert_array_equal(np.array(discounts)[1:] == 0, lost)
    assert lost.any()


# ---- limits --------------------------------------------------------------------------------------


def test_the_emulators_limit_counts_frames() -> None:
    config = {"max_num_frames_per_episode": 40, "noop_max": 0, "use_fire_reset": False}
    with stepmill.make("Pong-v5", num_envs=1, **config) as pool:
        assert pool.spec.max_episode_steps == 10
        pool.reset()
        ends = [pool.step([0])[2:4] for _ in range(10)]
        assert [bool(truncated[0]) for _, truncated in ends] == [False] * 9 + [True]


def test_a_given_limit_is_the_pools() -> None:
    with stepmill.make("Pong-v5", num_envs=1, max_episode_steps=6, autoreset="same_step") as pool:
        pool.reset()
        assert [bool(pool.step([0])[3][0]) for _ in range(12)] == ([False] * 5 + [True]) * 2
        assert pool.get_attr("ale")[0].getInt("max_num_frames_per_episode") == 0


# ---- pools ---------------------------------------------------------------------------------------


def play(num_workers: int, steps: int = 12) -> list[Any]:
    """All that seven envs of two games return."""
    ids = ["Breakout-v5", "Atlantis-v5"] * 3 + ["Breakout-v5"]
    out: list[Any] = []
    given = {"episodic_life": True, "max_num_frames_per_episode": 70, "img_height": 20, "img_width": 20}
    with stepmill.make(ids, seed=4, backend="process", num_workers=num_workers, **given) as pool:
        out.append(pool.reset())
        generator = np.random.default_rng(0)
        out += [pool.step(generator.integers(0, 4, 7)) for _ in range(steps)]
    return out


def test_same_seed_same_episodes_on_any_number_of_workers() -> None:
    runs = [play(workers) for workers in (1, 2, 7)]
    assert any(step[3].any() for step in runs[0][1:])  # an episode was cut off
    for other in runs[1:]:
        for one, two in zip(runs[0], other, strict=True):
            for a, b in zip(one[:-1], two[:-1], strict=True):
                np.testing.assert_array_equal(a, b)
            for key in ("lives", "reward", "terminated", "ram", "frame_number", "episode_frame_number"):
                np.testing.assert_array_equal(one[-1][key], two[-1][key])


def test_games_with_other_actions_do_not_share_a_pool() -> None:
    with pytest.raises(ConfigError, match=r"expected the action_space of env 0, Discrete\(6\), got Discrete\(3\)"):
        stepmill.make(["Pong-v5", "Freeway-v5"], backend="inline")


def test_an_env_of_a_pool_equals_the_game_alone() -> None:
    alone = AtariGame("pong")
    with stepmill.make("Pong-v5", num_envs=2, seed=8, backend="process", num_workers=1) as pool:
        shown, info = pool.reset()
        kept = shown.copy()
        first, its_info = alone.reset(seed=9)
        np.testing.assert_array_equal(shown[1], first)
        assert info["seeds"][1] == its_info["seeds"]
        for action in (2, 3, 1, 0):
            ours, theirs = pool.step([action, action]), alone.step(action)
            np.testing.assert_array_equal(ours[0][1], theirs[0])
            assert [part[1] for part in ours[1:4]] == list(theirs[1:4])
        np.testing.assert_array_equal(shown, kept)  # what was handed out stays as it was


@pytest.mark.parametrize("id", ["Pong-v5", "ALE/Pong-v5"])
def test_no_worker_prints_the_emulators_name(id: str) -> None:
    code = f"import stepmill; stepmill.make({id!r}, num_envs=2, backend='process').reset()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Arcade Learning" not in done.stdout + done.stderr


def test_a_game_for_two_does_not_end_the_process() -> None:
    code = "from stepmill.zoo.atari import AtariGame; AtariGame('combat')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "ConfigError: an Atari game: expected one that a single player can play, got 'combat'" in done.stderr


@pytest.mark.parametrize("backend", ["inline", "process"])
def test_a_broken_rom_does_not_end_a_worker(backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pong.bin").write_bytes(b"no game")
    monkeypatch.setenv("ALE_ROMS_DIR", str(tmp_path))
    with pytest.raises(
        EnvError, match=r"constructor of env \d \(Pong-v5\) failed: .*pong: its ROM is missing or broken"
    ):
        stepmill.make("Pong-v5", num_envs=2, backend=backend)


@pytest.mark.parametrize("backend", ["inline", "process"])
@pytest.mark.parametrize("id", ["Pong-v5", "ALE/Pong-v5"])
def test_a_mode_that_the_game_does_not_have_is_an_error_that_lists_its_modes(id: str, backend: str) -> None:
    with pytest.raises(ConfigError, match=r"^pong: mode: expected one of 0, 1, got 77"):
        stepmill.make(id, backend=backend, mode=77)


def test_a_difficulty_that_the_game_does_not_have_is_an_error_that_lists_its_difficulties() -> None:
    with pytest.raises(ConfigError, match=r"^pong: difficulty: expected one of 0, 1, 2, 3, got 9"):
        stepmill.make("PongNoFrameskip-v4", backend="inline", difficulty=9)


@pytest.mark.parametrize(("config", "loaded"), [({}, {"ale_py.env"}), ({"stack_num": 2}, {"ale_py.env", "cv2"})])
def test_what_an_env_needs_is_imported_before_workers_are_forked(config: dict[str, Any], loaded: set[str]) -> None:
    code = f"""
        import sys
        from stepmill.registry.records import find
        find("ALE/Pong-v5").factory.preload({config})
        print(sorted({{"ale_py.env", "cv2"}} & set(sys.modules)))
    """
    assert run_well(code) == f"{sorted(loaded)}\n"
