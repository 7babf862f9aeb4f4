"""A scenario of ViZDoom, preprocessed: frames are skipped, made small and stacked, and rewards come from variables."""

from __future__ import annotations

import os
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from stepmill.errors import ConfigError
from stepmill.registry.description import EnvDescription
from stepmill.system.optional import VIZDOOM, require
from stepmill.zoo.vizdoom.buttons import combinations, read_delta_config
from stepmill.zoo.vizdoom.options import DoomOptions
from stepmill.zoo.vizdoom.rewards import (
    DEFAULT_REWARDS,
    DEFAULT_WEAPON_REWARDS,
    GameReward,
    read_weapon_config,
)
from stepmill.zoo.vizdoom.scenarios import Scenario
from stepmill.zoo.vizdoom.screens import Screens, choose_format
from stepmill.zoo.vizdoom.start import GameStarter

__all__ = ["DoomEnv", "describe"]

# The variables in every info, as in EnvPool.
_SHOWN = (
    *("AMMO2", "AMMO3", "AMMO4", "AMMO5", "AMMO6", "AMMO7", "ARMOR", "DAMAGECOUNT", "DEATHCOUNT", "FRAGCOUNT"),
    *("HEALTH", "HITCOUNT", "KILLCOUNT", "SELECTED_WEAPON", "SELECTED_WEAPON_AMMO", "USER2"),
)
_METADATA = {"render_modes": ["rgb_array"]}
_TICS_PER_SECOND = 35


def _configured(scenario: Scenario, options: DoomOptions, takes_any_wad: bool = False) -> Any:
    """A game that is not running yet."""
    vizdoom = require(*VIZDOOM, scenario.id)
    game = vizdoom.DoomGame()
    scenario.configure(game, options.cfg_path, options.wad_path, takes_any_wad)
    if options.vzd_path:
        game.set_vizdoom_path(os.path.abspath(options.vzd_path))
    if options.iwad_path or not game.get_doom_game_path():  # else a doom2.wad in the working directory would be taken
        game.set_doom_game_path(os.path.abspath(options.iwad_path or os.path.join(vizdoom.root_path, "freedoom2.wad")))
    if options.map_id:
        game.set_doom_map(options.map_id)
    if options.game_args:
        game.add_game_args(options.game_args)
    if not options.scenario_timeout:
        game.set_episode_timeout(0)
    choose_format(game)
    game.set_mode(vizdoom.Mode.PLAYER)
    game.set_window_visible(False)
    game.set_sound_enabled(False)
    for buffer in ("audio", "depth", "labels", "automap", "notifications"):  # nobody sees them
        getattr(game, f"set_{buffer}_buffer_enabled")(False)
    if not game.get_available_buttons():
        raise ConfigError(f"{scenario.id}: expected available_buttons in the scenario's configuration, got none")
    return game


def _spaces(game: Any, options: DoomOptions) -> tuple[spaces.Box, spaces.Space[Any], np.ndarray | None]:
    """What is observed, what is done, and the buttons of each combined action."""
    import vizdoom

    observation = Screens(game, options).space()
    names = [button.name for button in game.get_available_buttons()]
    deltas = read_delta_config(options.delta_button_config, names)
    if options.use_combined_action:
        order = [vizdoom.Button(i).name for i in range(len(vizdoom.Button.__members__))]
        rows = combinations(names, order, options.force_speed, deltas)
        return observation, spaces.Discrete(len(rows)), rows
    if deltas:
        raise ConfigError("delta_button_config needs use_combined_action=True: other actions have values of their own")
    has_value = np.array([name.endswith("_DELTA") for name in names])
    low, high = np.where(has_value, -np.inf, 0.0), np.where(has_value, np.inf, 1.0)
    return observation, spaces.Box(low, high, dtype=np.float64), None


def _metadata(options: DoomOptions) -> dict[str, Any]:
    return {**_METADATA, "render_fps": _TICS_PER_SECOND / options.frame_skip}


def describe(scenario: Scenario, options: DoomOptions) -> EnvDescription:
    """What an env will be like. No game is started."""
    game = _configured(scenario, options, takes_any_wad=True)
    observation, action, _ = _spaces(game, options)
    return EnvDescription(observation, action, 1, _metadata(options), options.render_mode, info_space=_info_space())


def _info_space() -> spaces.Dict:
    return spaces.Dict({name: spaces.Box(-np.inf, np.inf, (), np.float64) for name in _SHOWN})


class DoomEnv(gymnasium.Env[np.ndarray, Any]):
    """Plays the episodes that Gymnasium's env of the scenario plays for the same seed.

    Args:
        scenario: What is played.
        options: How it is shown, paid and recorded.
        env_id: For the names of recordings.
    """

    def __init__(self, scenario: Scenario, options: DoomOptions, env_id: int = 0) -> None:
        import vizdoom

        self._id, self._env_id, self._options = scenario.id, env_id, options
        self._game = _configured(scenario, options)
        self.observation_space, self.action_space, self._combinations = _spaces(self._game, options)
        self.info_space = _info_space()
        self.metadata, self.render_mode = _metadata(options), options.render_mode
        self._screens = Screens(self._game, options)
        self._reward, self._variables = self._read_rewards(vizdoom.GameVariable.__members__)
        self._episode = 0
        self._recordings = _open_folder(options.lmp_save_dir) if options.lmp_save_dir else None
        self._starter = GameStarter(self._game, scenario.id, bool(options.game_args or options.cfg_path))
        try:
            self._starter.start()
        except BaseException:
            self.close()
            raise

    def _read_rewards(self, known: Any) -> tuple[GameReward, list[Any]]:
        options = self._options
        offered = [one.name for one in self._game.get_available_game_variables()]
        is_default = options.reward_config == "default"
        rewards = DEFAULT_REWARDS if is_default else options.reward_config or {}
        named = [] if is_default else list(rewards)
        weapons = options.selected_weapon_reward_config
        weapons = DEFAULT_WEAPON_REWARDS if weapons == "default" else read_weapon_config(weapons)
        names = list(dict.fromkeys([*_SHOWN, *offered, *named]))
        reward = GameReward(names, rewards, weapons, options.weapon_duration)
        return reward, [known[name] for name in names]

    def button_names(self) -> list[str]:
        """The buttons of an action, in order."""
        return [button.name for button in self._game.get_available_buttons()]

    # ---- an episode --------------------------------------------------------------------------

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        if not self._game.is_running():  # it was killed, most likely
            self._starter.start()
        if seed is None and self._may_respawn():
            self._game.respawn_player()
        else:
            # As Gymnasium's env draws it. The game draws its own numbers from there on, for this episode.
            self._game.set_seed(int(self.np_random.integers(0, 2**32, dtype=np.uint32)))
            self._game.new_episode(self._recording())
        self._reward.begin(self._read_variables())
        return self._screens.first(self._game.get_state().screen_buffer), self._info()

    def _may_respawn(self) -> bool:
        """Whether a life has ended, and not the game."""
        game = self._game
        return self._options.episodic_life and not game.is_episode_finished() and game.is_player_dead()

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        game = self._game
        buttons = action if self._combinations is None else self._combinations[int(action)]
        paid = game.make_action(buttons, self._options.frame_skip)
        reward = self._reward.step(self._read_variables())
        if self._options.reward_config is None:
            reward = paid
        state = game.get_state()
        # The last step of an episode has no screen of its own.
        observation = self._screens.last if state is None else self._screens.next(state.screen_buffer)
        is_dead = game.is_player_dead()
        is_over = game.is_episode_finished()
        truncated = is_over and not is_dead and game.is_episode_timeout_reached()
        terminated = (is_over and not truncated) or (is_dead and self._options.episodic_life)
        return observation, reward, terminated, truncated, self._info()

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
        return f"/proc/{os.getpid()}/fd/{self._recordings}/{self._id}-env{self._env_id}-episode{self._episode}.lmp"

    # ---- what it looks like, and its end -----------------------------------------------------

    def render(self) -> np.ndarray | None:
        return self._screens.picture() if self.render_mode is not None else None

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
