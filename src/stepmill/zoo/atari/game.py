"""``AtariGame``: an Atari game as agents are trained on it, equal to Gymnasium's wrappers and ours on top of them."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import EzPickle, seeding

from stepmill.errors import ConfigError, EnvError, UnknownConfigError, UsageError
from stepmill.system.optional import ALE, require
from stepmill.wrappers.episodes import FIRE, NOOP, EpisodicLifeEnv, FireResetEnv
from stepmill.wrappers.rewards import ClipRewardEnv
from stepmill.zoo.atari.frames import Frames
from stepmill.zoo.atari.games import GAMES, WIDTH
from stepmill.zoo.atari.options import DEFAULTS, RENDER_MODES, AtariOptions

RAM_BYTES = 128


def quiet_emulator() -> Any:
    """Imports ale_py and keeps it from printing its name in every process; errors are still printed."""
    ale_py = require(*ALE, "an Atari game")
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    return ale_py


def metadata(options: AtariOptions) -> dict[str, Any]:
    """Rendered as fast as on the console, which shows 60 frames per second."""
    return {"render_modes": list(RENDER_MODES), "render_fps": 60 / options.frame_skip}


def info_space(options: AtariOptions) -> spaces.Dict:
    """The keys that every info has."""

    def number(dtype: Any) -> spaces.Box:
        low, high = (-np.inf, np.inf) if dtype is np.float32 else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        return spaces.Box(low, high, (), dtype)

    keys: dict[str, spaces.Space[Any]] = {
        "lives": number(np.int32),
        "episode_frame_number": number(np.int64),
        "frame_number": number(np.int64),
        "reward": number(np.float32),
        "terminated": number(np.int32),
        "ram": spaces.Box(0, 255, (RAM_BYTES,), np.uint8),
    }
    if options.zero_discount_on_life_loss:
        keys["discount"] = spaces.Box(0.0, 1.0, (), np.float32)
    return spaces.Dict(keys)


class AtariGame(gymnasium.Env[np.ndarray, Any], EzPickle):
    """A game with the usual preprocessing; ``AtariOptions`` lists the keyword arguments, docs/zoo.md explains them.

    ``AtariConsole`` makes the pictures. Over it are our wrappers for lives, FIRE and clipped rewards, each only if its
    option is on.

    The ROM is loaded by the first reset, and again by every reset with a seed: that takes 0.2 s.

    Args:
        game: The name of its ROM, as ``"ms_pacman"``.
        reuse_memory: Every observation is the same array, which the next step overwrites: for callers that copy it at
            once, as pools do.
        **options: See above.
    """

    _state_is_whole = True

    def __init__(self, game: str, *, reuse_memory: bool = False, **options: Any) -> None:
        EzPickle.__init__(self, game, reuse_memory=reuse_memory, **options)
        for key in options:
            if key not in DEFAULTS and key != "max_episode_steps":
                raise UnknownConfigError(f"{game} has no option {key!r}. Known: {', '.join(DEFAULTS)}")
        self.game = game
        self.options = o = AtariOptions.read(game, options)
        self._console = console = AtariConsole(game, o, reuse_memory)
        self.ale, self.info_space = console.ale, info_space(o)
        self.metadata, self.render_mode = console.metadata, console.render_mode
        self.observation_space, self.action_space = console.observation_space, spaces.Discrete(console.num_actions)
        self._env: Any = console
        self._lives = EpisodicLifeEnv(console) if o.episodic_life else None
        if self._lives is not None:
            self._env = self._lives
        if o.use_fire_reset and console.has_fire:
            self._env = FireResetEnv(self._env)
        if o.reward_clip:
            self._env = ClipRewardEnv(self._env)
        self.lives = 0
        self._steps = 0  # of the episode

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Starts an episode: a new game, or with ``episodic_life`` the next life, unless there is a seed or options."""
        if self.options.max_episode_steps is not None and self._steps >= self.options.max_episode_steps:
            options = options or {"new_game": True}  # the pool has cut the life off: it is not continued
        observation, info = self._env.reset(seed=seed, options=options)
        self._steps, self.lives = 0, info["lives"]
        info["reward"] = 0.0  # whatever a no-op and FIRE brought
        if self.options.zero_discount_on_life_loss:
            info["discount"] = 1.0
        return observation, info

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Takes an action ``frame_skip`` times, or until the game is over."""
        if not self._console.is_loaded:
            raise UsageError(f"{self.game}: step before reset")
        observation, reward, terminated, truncated, info = self._env.step(self._console.actions[action])
        self._steps += 1
        before, self.lives = self.lives, info["lives"]
        if self.options.zero_discount_on_life_loss:
            info["discount"] = 0.0 if terminated or self.lives < before else 1.0
        return observation, reward, terminated, truncated, info

    def render(self) -> Any:
        """The screen in colour; with ``render_mode="human"`` the emulator shows it by itself."""
        return self._console.render()

    def get_action_meanings(self) -> list[str]:
        """The name of each action, such as ``"NOOP"`` and ``"FIRE"``."""
        self._console.load_once()
        names = self._console.get_action_meanings()
        return [names[action] for action in self._console.actions]

    @property
    def episode_return(self) -> float:
        """The score of the game so far: all rewards, unclipped."""
        return self._console.episode_return

    @episode_return.setter
    def episode_return(self, value: float) -> None:
        self._console.episode_return = value

    @property
    def was_real_done(self) -> bool:
        """Whether the game is over, or has not begun. If it is set to true, the next reset begins a game."""
        return self._console.is_over

    @was_real_done.setter
    def was_real_done(self, value: bool) -> None:
        self._console.is_over = value
        if self._lives is not None:
            self._lives.was_real_done = value

    # The generator is the console's, which draws the number of no-ops.

    @property
    def _np_random(self) -> np.random.Generator | None:
        return self._console._np_random

    @_np_random.setter
    def _np_random(self, value: np.random.Generator | None) -> None:
        self._console._np_random = value

    @property
    def _np_random_seed(self) -> int | None:
        return self._console._np_random_seed

    @_np_random_seed.setter
    def _np_random_seed(self, value: int | None) -> None:
        self._console._np_random_seed = value

    # ---- saved states ------------------------------------------------------------------------

    def last_observation(self) -> np.ndarray:
        """What the last step or reset has returned. It is in the state."""
        return self._console.last_observation()

    def get_state(self) -> tuple[Any, ...]:
        """Everything that decides how the game goes on, and its pictures."""
        if not self._console.is_loaded:
            raise UsageError(f"{self.game}: get_state before reset")
        lives = None if self._lives is None else (self._lives.lives, self._lives.was_real_done)
        return self._console.get_state(), lives, self.lives, self._steps

    def set_state(self, state: tuple[Any, ...]) -> None:
        """Goes on from what ``get_state`` of a game with the same options returned."""
        console, lives, *own = state
        self._console.set_state(console)
        self.lives, self._steps = own
        if self._lives is not None:
            self._lives.lives, self._lives.was_real_done = lives


class AtariConsole(gymnasium.Env[np.ndarray, Any]):
    """The emulator with a game: no-ops at its start, skipped frames, and the last pictures, small and stacked.

    Its episodes are those of Gymnasium's ``FrameStackObservation(AtariPreprocessing(...))``: pixels, rewards, ends,
    infos, for the same seeds. Its actions are those of the emulator, so in all games 0 is NOOP and 1 is FIRE.
    """

    def __init__(self, game: str, options: AtariOptions, reuse_memory: bool) -> None:
        self.game, self.options, o = game, options, options
        ale_py = quiet_emulator()
        from stepmill.zoo.atari.emulator import Emulator

        self._rom = _checked_rom(ale_py, game)
        self.metadata, self.render_mode = metadata(o), o.render_mode
        self.ale = ale = Emulator()
        ale.setFloat("repeat_action_probability", o.repeat_action_probability)
        ale.setInt("max_num_frames_per_episode", o.most_frames)
        if o.render_mode == "human":
            ale.setBool("display_screen", True)
            ale.setBool("sound", True)
        self._names = [action.name for action in ale_py.Action]
        self.action_space = spaces.Discrete(len(self._names))
        self.actions = list(range(len(self._names)))  # the game's own, once it is loaded
        self.is_loaded = False
        known = GAMES.get(game)
        if known is None or o.mode is not None or o.difficulty is not None:  # to see now whether the game has them
            self._seed_emulator(None)
            self._load()
        height = ale.getScreenDims()[0] if known is None else known.height
        self.num_actions = len(self.actions) if known is None else known.action_count(o.full_action_space)
        self.has_fire = FIRE in self.actions if known is None else known.fires(o.full_action_space)
        self.observation_space = spaces.Box(0, 255, o.shape, np.uint8)
        self._frames = Frames(ale, height, o)
        self._reuses_memory = reuse_memory
        # Bound once: these are called in every step.
        self._act, self._game_over = ale.fast_act(), ale.game_over
        self._take, self._push, self._stack = self._frames.take, self._frames.push, self._frames.stack
        self._countdown, self._takes_maximum = tuple(reversed(range(o.frame_skip))), o.frame_skip > 1
        self.episode_return = 0.0
        self.is_over = True

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        seeds = self._begin_game(seed)
        most = self.options.noop_max
        for _ in range(int(self.np_random.integers(1, most + 1)) if most else 0):
            self.episode_return += self._act(NOOP)
            if self._game_over():
                self._begin_game(seed)
        self._frames.fill()
        self.is_over = False
        return self.last_observation(), self._info(0.0, False) | seeds

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        act, game_over = self._act, self._game_over
        self._frames.has_saved_screen = False
        reward, terminated, truncated = 0.0, False, False
        for left in self._countdown:
            reward += act(action)
            if game_over():
                # As in Gymnasium, the frame at which a game ends is not shown.
                terminated, truncated = game_over(with_truncation=False), self.ale.game_truncated()
                break
            if left < 2:
                self._take(left)
        self._push(self._takes_maximum)
        self.episode_return += reward
        self.is_over = terminated or truncated
        return self.last_observation(), reward, terminated, truncated, self._info(reward, terminated)

    def last_observation(self) -> np.ndarray:
        return self._stack if self._reuses_memory else self._stack.copy()

    def _info(self, reward: float, is_over: bool) -> dict[str, Any]:
        ale = self.ale
        return {
            "lives": ale.lives(),
            "episode_frame_number": ale.getEpisodeFrameNumber(),
            "frame_number": ale.getFrameNumber(),
            "reward": reward,
            "terminated": int(is_over),
            "ram": ale.getRAM(),
        }

    def render(self) -> Any:
        if self.render_mode == "human":
            return None
        if self.render_mode is None:
            raise UsageError(f"{self.game}: render: expected an env with a render_mode, {', '.join(RENDER_MODES)}")
        self.load_once()
        return self._frames.draw()

    def get_action_meanings(self) -> list[str]:
        """The name of each action of the emulator."""
        return self._names

    # ---- the emulator --------------------------------------------------------------------------

    def _begin_game(self, seed: int | None) -> dict[str, Any]:
        """Returns what the info of a seeded reset has in addition."""
        told = {}
        if seed is not None:
            told["seeds"] = self._seed_emulator(seed)
            self._load()
        else:
            self.load_once()
        self.ale.reset_game()
        self._frames.has_saved_screen = False
        self.episode_return = 0.0
        return told

    def _seed_emulator(self, seed: int | None) -> tuple[Any, Any]:
        """Seeds the generator of the no-ops and that of the emulator, as Gymnasium's env does."""
        for_numpy, for_ale = np.random.SeedSequence(seed).generate_state(2)
        self._np_random, _ = seeding.np_random(int(for_numpy))
        self.ale.setInt("random_seed", int(for_ale.astype(np.int32)))
        return for_numpy, for_ale

    def load_once(self) -> None:
        """Loads the ROM, if it is not loaded yet."""
        if not self.is_loaded:
            self._seed_emulator(None)
            self._load()

    def _load(self) -> None:
        ale, o = self.ale, self.options
        ale.loadROM(self._rom)
        _set("mode", self.game, o.mode, ale.setMode, ale.getAvailableModes)
        _set("difficulty", self.game, o.difficulty, ale.setDifficulty, ale.getAvailableDifficulties)
        own = ale.getLegalActionSet() if o.full_action_space else ale.getMinimalActionSet()
        self.actions = [action.value for action in own]
        known = GAMES.get(self.game)
        found = (len(ale.getMinimalActionSet()), *ale.getScreenDims())
        if known is not None and found != (known.num_actions, known.height, WIDTH):
            raise EnvError(
                f"{self.game}: expected {known.num_actions} actions and a screen of {known.height} x {WIDTH}, got "
                f"{found[0]} and {found[1]} x {found[2]}: this ale-py is newer than this stepmill knows"
            )
        self.is_loaded = True

    # ---- saved states ------------------------------------------------------------------------

    def get_state(self) -> tuple[Any, ...]:
        numbers = self.np_random.bit_generator.state, self._np_random_seed
        return self.ale.get_state(), self._frames.get_state(), numbers, self.episode_return, self.is_over

    def set_state(self, state: tuple[Any, ...]) -> None:
        emulator, frames, (numbers, seed), *own = state
        self.load_once()
        self.ale.set_state(emulator)
        self._frames.set_state(frames)
        bits = self.np_random.bit_generator
        if type(bits).__name__ != numbers["bit_generator"]:  # the user has put another one in
            bits = getattr(np.random, numbers["bit_generator"])()
            self._np_random = np.random.Generator(bits)
        bits.state, self._np_random_seed = numbers, seed
        self.episode_return, self.is_over = own


def _set(what: str, game: str, value: int | None, put: Any, available: Any) -> None:
    if value is None:
        return
    try:
        put(value)
    except RuntimeError as error:
        known = ", ".join(map(str, available()))
        raise ConfigError(f"{game}: {what}: expected one of {known}, got {value}") from error


def _checked_rom(ale_py: Any, game: str) -> str:
    """The file of a game. The emulator would end the process if it could not read it, or not play it alone."""
    roms = ale_py.roms
    if game not in roms.get_all_rom_ids():
        raise ConfigError(f"an Atari game: expected the name of a ROM, such as 'ms_pacman', got {game!r}")
    try:
        path = roms.get_rom_path(game)
    except OSError as error:
        raise EnvError(
            f"{game}: its ROM is missing or broken: {error}. Install ale-py again, or see to ALE_ROMS_DIR"
        ) from error
    if game not in GAMES and not ale_py.ALEInterface.isSupportedROM(path):
        raise ConfigError(f"an Atari game: expected one that a single player can play, got {game!r}")
    return str(path)
