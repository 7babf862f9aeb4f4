"""Saved states of Atari games: the emulator, its pictures and sticky actions go on as they were, bit for bit."""

from __future__ import annotations

import pickle
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ale_py = pytest.importorskip("ale_py", reason="needs ale-py")

import stepmill  # noqa: E402
from stepmill import errors  # noqa: E402
from stepmill.wrappers import wrap_atari  # noqa: E402
from stepmill.zoo.atari import AtariEnv, AtariGame  # noqa: E402
from stepmill.zoo.atari.emulator import Emulator  # noqa: E402
from stepmill.zoo.atari.games import GAMES  # noqa: E402
from support.lanes import Lanes  # noqa: E402
from support.probes import MODES, assert_same  # noqa: E402
from support.subprocesses import run_well  # noqa: E402

SHORT = {"max_num_frames_per_episode": 150}
STICKY = {"repeat_action_probability": 0.4}
# Short games, so that what happens around their ends is seen too.
CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "usual": ("Breakout-v5", {**SHORT}),
    "sticky": ("SpaceInvaders-v5", {**SHORT, **STICKY}),
    "lives": ("Breakout-v5", {"episodic_life": True, "reward_clip": True, "zero_discount_on_life_loss": True}),
    "colours": ("Pong-v5", {**SHORT, "gray_scale": False, "img_height": 50, "img_width": 40, "stack_num": 2}),
    "opencv": ("Seaquest-v5", {**SHORT, **STICKY, "use_inter_area_resize": False, "frame_skip": 1, "stack_num": 1}),
    "no-fire": ("MsPacman-v5", {**SHORT, "noop_max": 0, "mode": 1, "full_action_space": True, "frame_skip": 3}),
    "time-limit": ("Pong-v5", {"max_episode_steps": 20, "episodic_life": True, "render_mode": None}),
    "gymnasium": ("ALE/Breakout-v5", {**SHORT, "render_mode": "rgb_array"}),
    "gymnasium-ram": ("ALE/Pong-v5", {**SHORT, "obs_type": "ram", "frameskip": (2, 5)}),
    "gymnasium-grey": ("ALE/Boxing-v5", {**SHORT, "obs_type": "grayscale", "continuous": True}),
    "base-env": (lambda: AtariEnv({"env_id": "ALE/Breakout-v5", "env_kwargs": SHORT}), {}),
}


def make(task: Any, backend: str, num_envs: int = 2, **arguments: Any) -> Any:
    workers = {"num_workers": num_envs} if backend == "process" else {}
    return stepmill.make(task, num_envs=num_envs, backend=backend, **workers, **arguments)


@pytest.mark.parametrize("autoreset", MODES)
@pytest.mark.parametrize("case", CASES)
def test_a_restored_game_goes_on_as_the_saved_one(case: str, autoreset: str) -> None:
    rng = np.random.default_rng(zlib.crc32(f"{case}{autoreset}".encode()))
    task, config = CASES[case]
    backends = rng.permutation(["inline", "process"])
    with (
        make(task, backends[0], autoreset=autoreset, seed=7, **config) as pool,
        make(task, backends[1], autoreset=autoreset, seed=99, **config) as other,
    ):
        assert pool.state_kind == other.state_kind == "methods"
        pool.reset()
        lanes = Lanes(pool, [(0, 0), (1, 0)])
        shown = [row[-1][0] for row in lanes.go(int(rng.integers(1, 60)))]
        states, at, pictures = pool.save(), list(lanes.at), drawn(pool)
        expected = lanes.go(60)
        for to, order in ((pool, [0, 1]), (other, [1, 0]), (other, [0, 0])):  # the other one was never reset
            for _ in range(2):  # also when it was restored just before
                observations, _ = to.restore([states[i] for i in order])
                assert_same(list(observations), [shown[i] for i in order])
                assert_same(drawn(to), None if pictures is None else [pictures[i] for i in order])
                assert_same([bytes(one) for one in to.save()], [bytes(one) for one in to.save()])
            got = Lanes(to, [at[i] for i in order]).go(60)
            for env_id, i in enumerate(order):
                assert_same(got[env_id], expected[i])


def drawn(pool: Any) -> Any:
    return None if pool.render_mode is None else list(pool.render())


@pytest.mark.long
@pytest.mark.parametrize("rom", GAMES)
def test_every_game_is_saved_with_any_options(rom: str) -> None:
    rng = np.random.default_rng(zlib.crc32(rom.encode()))

    def draw(*values: Any) -> Any:
        return values[rng.integers(len(values))]

    options = {
        "repeat_action_probability": draw(0.0, 0.25, 0.9),
        "gray_scale": draw(True, False),
        "frame_skip": draw(1, 2, 4, 5),
        "stack_num": draw(1, 3, 4),
        "noop_max": draw(0, 1, 30),
        "episodic_life": draw(True, False),
        "full_action_space": draw(True, False),
        "use_fire_reset": draw(True, False),
        "max_num_frames_per_episode": draw(200, 1000, None),
        "img_height": draw(84, 210, 64),
    }
    game, other = AtariGame(rom, **options), AtariGame(rom, **options)
    game.reset(seed=1)
    steps = int(draw(0, 1, 3, rng.integers(10, 200)))
    play(game, rng.integers(0, game.action_space.n, steps))
    saved, actions = pickle.dumps(game.get_state()), rng.integers(0, game.action_space.n, 200)
    expected = play(game, actions)
    for to in (game, other):
        to.set_state(pickle.loads(saved))
        assert_same(play(to, actions), expected)


@pytest.mark.parametrize("rom", ["tetris", "qbert", "pong"])
@pytest.mark.parametrize("steps", [0, 1, 2, 3, 7])
def test_a_game_goes_on_wherever_its_emulator_was(rom: str, steps: int) -> None:
    """In some games the first frames after a reset are others than they would be later."""
    options: dict[str, Any] = {"noop_max": 0, "frame_skip": 1, "episodic_life": False, "use_fire_reset": steps % 2 == 0}
    game, fresh, later = (AtariGame(rom, **options) for _ in range(3))
    for one in (game, later):
        one.reset(seed=1)
    play(later, [0] * 20)
    play(game, [0] * steps)
    saved = pickle.dumps(game.get_state())
    expected = play(game, [0] * 30)
    for to in (game, fresh, later, fresh, game):
        to.set_state(pickle.loads(saved))
        assert_same(play(to, [0] * 30), expected)


def play(game: AtariGame, actions: Any) -> list[Any]:
    out = []
    for action in actions:
        *row, info = game.step(int(action))
        out.append((*row, info, game.render()))
        if row[2] or row[3]:
            out.append(game.reset())
    return out


def test_sticky_actions_are_those_of_the_emulator() -> None:
    """Against ale-py's own, through several games."""
    path = ale_py.roms.get_rom_path("breakout")
    actions = np.random.default_rng(0).integers(0, 18, 1500)
    for seed, probability in ((3, 0.25), (-5, 0.9), (7, 1.0), (8, 0.0)):
        seen = []
        for kind in (ale_py.ALEInterface, Emulator):
            ale = kind()
            ale.setFloat("repeat_action_probability", probability)
            ale.setInt("random_seed", seed)
            ale.setInt("max_num_frames_per_episode", 400)
            ale.loadROM(path)
            ale.reset_game()
            assert ale.getFloat("repeat_action_probability") == np.float32(probability)
            rows = []
            for action in actions:
                rows.append((ale.act(int(action)), ale.getRAM().tobytes()))
                if ale.game_over():
                    ale.reset_game()
            seen.append(rows)
        assert seen[0] == seen[1]


def test_a_state_is_restored_in_another_process(tmp_path: Path) -> None:
    with stepmill.make("Pong-v5", num_envs=2, seed=4, backend="inline", **STICKY) as pool:
        pool.reset()
        lanes = Lanes(pool, [(0, 0), (1, 0)])
        lanes.go(10)
        (tmp_path / "states").write_bytes(pickle.dumps(pool.save()))
        expected = [zlib.crc32(row[0].tobytes()) for rows in lanes.go(20) for row in rows]
    out = run_well(
        f"""
        import pickle, zlib
        from pathlib import Path
        import stepmill
        from support.lanes import Lanes
        pool = stepmill.make("Pong-v5", num_envs=2, backend="inline", repeat_action_probability=0.4)
        pool.restore(pickle.loads(Path({str(tmp_path / "states")!r}).read_bytes()))
        rows = Lanes(pool, [(0, 10), (1, 10)]).go(20)
        print([zlib.crc32(row[0].tobytes()) for one in rows for row in one])
        """
    )
    assert out.strip() == str(expected)


@pytest.mark.parametrize("at", [0, 1])
def test_games_that_are_restored_when_a_signal_comes_have_their_states(
    at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    usual = AtariGame.set_state

    def interrupted(game: AtariGame, state: Any) -> None:
        calls.append(game)
        if len(calls) == at + 1:
            game.lives = 77
            raise KeyboardInterrupt
        usual(game, state)

    with make("Breakout-v5", "inline", seed=3) as pool:
        pool.reset()
        lanes = Lanes(pool, [(0, 0), (1, 0)])
        lanes.go(9)
        states = pool.save()
        expected = lanes.go(20)
        with monkeypatch.context() as patch:
            patch.setattr(AtariGame, "set_state", interrupted)
            with pytest.raises(KeyboardInterrupt):
                pool.restore(states[::-1])
        pool.recv()  # they have their states, and what they show is in flight
        assert_same(Lanes(pool, [(1, 9), (0, 9)]).go(20), expected[::-1])


def test_states_of_other_games_or_options_are_refused() -> None:
    with make("Pong-v5", "inline") as pong:
        pong.reset()
        expected = pong.step([0, 0])
        states = pong.save()
        for id, config in (("Breakout-v5", {}), ("Pong-v5", STICKY), ("Pong-v5", {"stack_num": 3})):
            refused = pytest.raises(errors.StateError, match=r"of another (env|configuration)")
            with make(id, "inline", **config) as other, refused:
                other.restore(states)
        assert_same(pong.restore(states)[0], expected[0])


def test_a_game_that_has_not_begun_has_no_state() -> None:
    with pytest.raises(errors.UsageError, match="get_state before reset"):
        AtariGame("pong").get_state()


def test_a_state_of_another_emulator_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    game = AtariGame("pong")
    game.reset(seed=1)
    state = game.get_state()
    monkeypatch.setattr(ale_py, "__version__", "9.9")
    with pytest.raises(errors.StateError, match=r"expected a state of ale-py 9\.9, got one of"):
        game.set_state(state)


def test_games_in_our_wrappers_are_saved_if_they_are_ours() -> None:
    with stepmill.make(lambda: wrap_atari("PongNoFrameskip-v4"), backend="inline") as pool:
        assert pool.state_kind.startswith("none: its class AtariEnv has no get_state() and set_state(state)")
