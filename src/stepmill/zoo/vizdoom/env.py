"""A scenario of ViZDoom, preprocessed: frames are skipped, made small and stacked, and rewards come from variables."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from stepmill.errors import ConfigError
from stepmill.system.optional import VIZDOOM, require
from stepmill.zoo.vizdoom.options import DoomOptions, read_deltas
from stepmill.zoo.vizdoom.scenarios import WHY_NO_STATE, Scenario

# The variables in every info, as in EnvPool.
_SHOWN = (
    *("AMMO2", "AMMO3", "AMMO4", "AMMO5", "AMMO6", "AMMO7", "ARMOR", "DAMAGECOUNT", "DEATHCOUNT", "FRAGCOUNT"),
    *("HEALTH", "HITCOUNT", "KILLCOUNT", "SELECTED_WEAPON", "SELECTED_WEAPON_AMMO", "USER2"),
)
_TICS_PER_SECOND = 35


def _configured(scenario: Scenario, options: DoomOptions) -> Any:
    """A game that is not running yet."""
    vizdoom = require(*VIZDOOM, scenario.id)
    game = vizdoom.DoomGame()
    scenario.configure(game, options.cfg_path)
    if options.iwad_path or not game.get_doom_game_path():  # else a doom2.wad in the working directory would be taken
        game.set_doom_game_path(os.path.abspath(options.iwad_path or os.path.join(vizdoom.root_path, "freedoom2.wad")))
    if options.map_id:
        game.set_doom_map(options.map_id)
    if options.game_args:
        game.add_game_args(options.game_args)
    if not options.scenario_timeout:
        game.set_episode_timeout(0)
    if game.get_screen_format() != vizdoom.ScreenFormat.GRAY8:  # as ViZDoom's own envs do
        game.set_screen_format(vizdoom.ScreenFormat.RGB24)
    game.set_mode(vizdoom.Mode.PLAYER)
    game.set_window_visible(False)
    game.set_sound_enabled(False)
    for buffer in ("audio", "depth", "labels", "automap", "notifications"):  # nobody sees them
        getattr(game, f"set_{buffer}_buffer_enabled")(False)
    if not game.get_available_buttons():
        raise ConfigError(f"{scenario.id}: expected available_buttons in the scenario's configuration, got none")
    return game


def _actions(game: Any, options: DoomOptions) -> tuple[spaces.Space[Any], np.ndarray | None]:
    """The space of actions, and the buttons of each combined action."""
    import vizdoom

    names = [button.name for button in game.get_available_buttons()]
    deltas = read_deltas(options.delta_button_config, names)
    if options.use_combined_action:
        order = [vizdoom.Button(i).name for i in range(len(vizdoom.Button.__members__))]
        rows = combinations(names, order, options.force_speed, deltas)
        return spaces.Discrete(len(rows)), rows
    if deltas:
        raise ConfigError("delta_button_config needs use_combined_action=True: other actions have values of their own")
    has_value = np.array([name.endswith("_DELTA") for name in names])
    return spaces.Box(np.where(has_value, -np.inf, 0.0), np.where(has_value, np.inf, 1.0), dtype=np.float64), None


class DoomEnv(gymnasium.Env[np.ndarray, Any]):
    """Plays the episodes that Gymnasium's env of the scenario plays for the same seed. ``start`` starts its game.

    Args:
        scenario: What is played.
        options: How it is shown, paid and recorded.
        env_id: For the names of recordings.
    """

    _why_no_state = WHY_NO_STATE

    def __init__(self, scenario: Scenario, options: DoomOptions, env_id: int = 0) -> None:
        self._scenario, self._env_id, self._options = scenario, env_id, options
        self._game = _configured(scenario, options)
        self._channels = int(self._game.get_screen_channels())
        shape = (options.stack_num * self._channels, options.img_height, options.img_width)
        self.observation_space = spaces.Box(0, 255, shape, np.uint8)
        self.action_space, self._combinations = _actions(self._game, options)
        self.info_space = spaces.Dict({name: spaces.Box(-np.inf, np.inf, (), np.float64) for name in _SHOWN})
        self.metadata = {"render_modes": ["rgb_array"], "render_fps": _TICS_PER_SECOND / options.frame_skip}
        self.render_mode = options.render_mode
        self._cv2 = require("cv2", "opencv-python-headless", "vizdoom", "ViZDoom")
        self._reward, self._variables = self._read_rewards()
        self._episode = 0
        self._recordings: int | None = None

    def _read_rewards(self) -> tuple[GameReward, list[Any]]:
        import vizdoom

        rewards, weapons = self._options.reward_config, self._options.selected_weapon_reward_config
        named = rewards if isinstance(rewards, dict) else {}
        names = [*_SHOWN, *(one.name for one in self._game.get_available_game_variables()), *named]
        names = list(dict.fromkeys(names))
        rewards = DEFAULT_REWARDS if rewards == "default" else named
        weapons = DEFAULT_WEAPON_REWARDS if weapons == "default" else weapons
        reward = GameReward(names, rewards, weapons, self._options.weapon_duration)
        return reward, [vizdoom.GameVariable.__members__[name] for name in names]

    def start(self) -> None:
        """Starts the game, the first or another one."""
        from stepmill.zoo.vizdoom.start import starting

        options = self._options
        if options.wad_path or (self._scenario.wad is not None and not options.cfg_path):
            self._game.set_doom_scenario_path(os.path.abspath(options.wad_path or self._scenario.find_wad()))
        if options.lmp_save_dir and self._recordings is None:
            self._recordings = _open_folder(options.lmp_save_dir)
        with starting(self._game, self._scenario.id, options.vzd_path):
            self._game.init()

    # ---- an episode --------------------------------------------------------------------------

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        game = self._game
        if not game.is_running():  # it was killed, most likely
            self.start()
        has_life = self._options.episodic_life and not game.is_episode_finished()
        if seed is None and has_life and game.is_player_dead():  # a life has ended, and not the game
            game.respawn_player()
        else:
            # As Gymnasium's env draws it. The game draws its own numbers from there on, for this episode.
            game.set_seed(int(self.np_random.integers(0, 2**32, dtype=np.uint32)))
            game.new_episode(self._recording())
        self._reward.begin(self._read_variables())
        self._seen = np.concatenate([self._frame(game.get_state().screen_buffer)] * self._options.stack_num)
        return self._seen, self._info()

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        game = self._game
        buttons = action if self._combinations is None else self._combinations[int(action)]
        paid = game.make_action(buttons, self._options.frame_skip)
        reward = self._reward.step(self._read_variables())
        if self._options.reward_config is None:
            reward = paid
        state = game.get_state()
        if state is not None:  # the last step of an episode has no screen of its own
            self._seen = np.concatenate([self._seen[self._channels :], self._frame(state.screen_buffer)])
        is_dead, is_over = game.is_player_dead(), game.is_episode_finished()
        truncated = is_over and not is_dead and game.is_episode_timeout_reached()
        terminated = (is_over and not truncated) or (is_dead and self._options.episodic_life)
        return self._seen, reward, terminated, truncated, self._info()

    def _frame(self, screen: np.ndarray) -> np.ndarray:
        """A screen as observed: small, channels first."""
        self._screen, cv2, options = screen, self._cv2, self._options
        how = cv2.INTER_AREA if options.use_inter_area_resize else cv2.INTER_LINEAR
        small = cv2.resize(screen, (options.img_width, options.img_height), interpolation=how)
        return small[None] if small.ndim == 2 else np.moveaxis(small, -1, 0)

    def _read_variables(self) -> list[float]:
        read = self._game.get_game_variable
        return [read(one) for one in self._variables]

    def _info(self) -> dict[str, Any]:
        values = self._reward.values
        return {name: values[name] for name in _SHOWN}

    def _recording(self) -> str:
        """Where to record the next episode; nowhere if empty."""
        self._episode += 1
        if self._recordings is None:
            return ""
        # The game takes only short paths, and silently does not record to others.
        name = f"{self._scenario.id}-env{self._env_id}-episode{self._episode}.lmp"
        return f"/proc/{os.getpid()}/fd/{self._recordings}/{name}"

    # ---- what it looks like, and its end -----------------------------------------------------

    def render(self) -> np.ndarray | None:
        """The last screen as it was: ``(height, width, 3)``."""
        if self.render_mode is None:
            return None
        return self._screen if self._channels == 3 else np.repeat(self._screen[:, :, None], 3, axis=2)

    def close(self) -> None:
        self._game.close()
        if self._recordings is not None:
            os.close(self._recordings)
            self._recordings = None


def _open_folder(path: str) -> int:
    try:
        os.makedirs(path, exist_ok=True)
        return os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigError(f"lmp_save_dir: expected a folder to write to, got {path!r}: {error.strerror}") from error


# ---- rewards ---------------------------------------------------------------------------------------

# EnvPool's: for each unit that a variable rises, and for each that it falls.
DEFAULT_REWARDS: Mapping[str, tuple[float, float]] = {
    "FRAGCOUNT": (1, -1.5),
    "KILLCOUNT": (1, 0),
    "DEATHCOUNT": (-0.75, 0.75),
    "HITCOUNT": (0.01, -0.01),
    "DAMAGECOUNT": (0.003, -0.003),
    "HEALTH": (0.005, -0.003),
    "ARMOR": (0.005, -0.001),
    **{f"WEAPON{i}": (0.02, -0.01) if i < 3 else (0.1, -0.05) if i < 6 else (0.2, -0.1) for i in range(8)},
    **{f"AMMO{i}": (0.0002, -0.0001) if i < 3 else (0.001, -0.0005) if i < 6 else (0.002, -0.001) for i in range(8)},
}
DEFAULT_WEAPON_REWARDS: Mapping[int, float] = {i: 0.0002 if i < 3 else 0.001 if i < 6 else 0.002 for i in range(8)}
# They go on from one episode to the next: https://github.com/Farama-Foundation/ViZDoom/issues/399
_SINCE_START = ("HITCOUNT", "DAMAGECOUNT", "DEATHCOUNT")
_MOST_AT_ONCE = {"DAMAGECOUNT": 200.0, "HITCOUNT": 5.0}  # or some weapons would pay too well


class GameReward:
    """Keeps the variables of a game from step to step.

    Args:
        names: The variables that are read, ``SELECTED_WEAPON`` and ``SELECTED_WEAPON_AMMO`` among them.
        rewards: For each unit that a variable rises or falls.
        weapons: For each step with a weapon in hand that has ammunition,
        duration: from the step on that is this many steps after it was taken, that step included.
    """

    def __init__(
        self,
        names: Sequence[str],
        rewards: Mapping[str, tuple[float, float]],
        weapons: Mapping[int, float],
        duration: int,
    ) -> None:
        self._names, self._weapons, self._duration = tuple(names), weapons, duration
        self._rewards = {name: rewards[name] for name in names if name in rewards}

    def begin(self, values: Sequence[float]) -> None:
        """An episode begins with these values of the variables."""
        self.values = dict(zip(self._names, values, strict=True))
        self._begin = {name: self.values[name] for name in _SINCE_START if name in self.values}
        self.values |= dict.fromkeys(self._begin, 0.0)
        if self.values.get("HEALTH", 0.0) < 0:
            self.values["HEALTH"] = 100.0
        self._weapon, self._held = -1, 0
        self._hold()

    def step(self, values: Sequence[float]) -> float:
        """The reward of a step after which the variables have these values."""
        before, after = self.values, dict(zip(self._names, values, strict=True))
        for name, begin in self._begin.items():
            after[name] -= begin
        if after.get("HEALTH", 0.0) < 0:  # -999900, or a blow that was more than deadly
            after["HEALTH"] = before["HEALTH"]
        self.values = after
        reward = 0.0
        for name, (rise, fall) in self._rewards.items():
            change = after[name] - before[name]
            reward += rise * min(change, _MOST_AT_ONCE.get(name, change)) if change > 0 else -fall * change
        return reward + self._hold()

    def _hold(self) -> float:
        weapon = int(self.values["SELECTED_WEAPON"])
        self._held = self._held + 1 if weapon == self._weapon else 1
        self._weapon = weapon
        if weapon < 0 or self._held < self._duration or self.values["SELECTED_WEAPON_AMMO"] <= 0:
            return 0.0
        return self._weapons.get(weapon, 0.0)


# ---- combined actions ------------------------------------------------------------------------------

# Buttons of which at most one is pressed at a time.
_EXCLUSIVE = (
    ("MOVE_RIGHT", "MOVE_LEFT"),
    ("MOVE_BACKWARD", "MOVE_FORWARD"),
    ("TURN_RIGHT", "TURN_LEFT"),
    ("LOOK_UP", "LOOK_DOWN"),
    ("MOVE_UP", "MOVE_DOWN"),
    ("SELECT_NEXT_WEAPON", "SELECT_PREV_WEAPON"),
    ("SELECT_NEXT_ITEM", "SELECT_PREV_ITEM"),
    tuple(f"SELECT_WEAPON{i}" for i in (*range(1, 10), 0)),
)
_MOST_COMBINATIONS = 1_000_000


def combinations(
    available: Sequence[str], order: Sequence[str], force_speed: bool, deltas: Mapping[str, tuple[int, float, float]]
) -> np.ndarray:
    """All combinations of buttons, one per row, with a column per available button.

    Args:
        available: The scenario's buttons.
        order: All buttons that there are. The first ones change most slowly from row to row, as in EnvPool.
        force_speed: SPEED is pressed in every row.
        deltas: How many values a button takes that has values, and the first and last of them. Others stay at 0.
    """
    released = np.zeros(len(available))
    pressed = dict(zip(available, np.eye(len(available)), strict=True))
    groups: list[list[np.ndarray]] = []  # each the rows of buttons that exclude each other
    seen: set[str] = set()
    for name in (one for one in order if one in available):
        if name in deltas:
            number, first, last = deltas[name]
            groups.append([value * pressed[name] for value in np.linspace(first, last, number)])
        elif name not in seen and not name.endswith("_DELTA"):
            exclusive = next((group for group in _EXCLUSIVE if name in group), (name,))
            seen.update(exclusive)
            rows = [pressed[one] for one in exclusive if one in available]
            groups.append(rows if name == "SPEED" and force_speed else [released, *rows])
    count = math.prod(map(len, groups))
    if count > _MOST_COMBINATIONS:
        raise ConfigError(
            f"use_combined_action: expected at most {_MOST_COMBINATIONS} combinations of buttons, got {count}, of "
            f"{len(available)} buttons: give the scenario fewer of them, or delta_button_config fewer values"
        )
    table = released[None]
    for group in groups:
        table = (table[:, None] + group).reshape(-1, len(available))
    return table
