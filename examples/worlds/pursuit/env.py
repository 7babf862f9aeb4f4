"""Two agents: runners that must get out through two gates before a hunter, which the world controls, catches them.

``PursuitEnv`` is a ``BaseEnv``; ``parallel.py`` has the same world as a PettingZoo env. A step, in this order:

1. the runners move by one step up, down, left or right, or stay; walls keep them in the field;
2. a runner in an open gate is out, and the gate closes behind it: the other runner needs the other gate;
3. the hunter goes towards the nearest runner, and hesitates now and then; a runner that it reaches is caught.

It is slower than they are and follows only one of them at a time, so cooperation pays.
"""

from __future__ import annotations

import functools
import math
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from stepmill.envs import BaseEnv, BaseEnvTimestep, read_cfg
from stepmill.errors import ActionError, ActionTypeError, NeedsResetError, ResetOptionError
from stepmill.values.arguments import true_or_false, whole_number

from .canvas import Canvas, Colour, Point

__all__ = ["PursuitEnv"]

# ---- the world -----------------------------------------------------------------------------------

RUNNERS = 2
NUMBERS = 15  # in an observation of one runner
MOVES: list[Point] = [(0.0, 0.0), (0.0, 1.0), (0.0, -1.0), (-1.0, 0.0), (1.0, 0.0)]  # stay, up, down, left, right
STRIDE = 0.08  # of a runner, in a field that is 2 wide
HUNTER_STRIDE = 0.04
HESITATION = 0.2  # the probability that the hunter stays where it is
GATE_RADIUS = 0.15
CATCH_RADIUS = 0.1
STEP_COST = 0.01


class Fate(IntEnum):
    """What happened to a runner."""

    IN_PLAY = 0
    OUT = 1
    CAUGHT = 2


class Start(NamedTuple):
    """Where everyone starts."""

    runners: tuple[Point, Point]
    gates: tuple[Point, Point]
    hunter: Point


def draw_start(random: np.random.Generator) -> Start:
    """Gates, hunter and runners at a distance from each other."""
    places: list[Point] = []
    for least in (0.0, 0.8, 0.5, 0.5, 0.5):
        while True:
            place = tuple(random.uniform(-0.85, 0.85, 2).tolist())
            if all(math.dist(place, other) >= least for other in places):
                break
        places.append(place)
    first_gate, second_gate, hunter, first, second = places
    return Start((first, second), (first_gate, second_gate), hunter)


class PursuitWorld:
    """One episode. It is over when no runner is in play, or when the time is up."""

    def __init__(self, start: Start, random: np.random.Generator, time_limit: int) -> None:
        self.runners = list(start.runners)
        self.gates = start.gates
        self.hunter = start.hunter
        self.fates = [Fate.IN_PLAY] * RUNNERS
        self.gate_open = [True] * len(start.gates)
        self.steps = 0
        self.paths = [[place] for place in (*self.runners, self.hunter)]  # for the picture
        self._random = random
        self._time_limit = time_limit

    def step(self, moves: list[int]) -> list[float]:
        """Takes one move for each runner, including those that left, and returns one reward for each.

        A runner in play pays a little for the step; being out gives it 1, being caught costs 1.
        """
        rewards = [-STEP_COST if self.in_play(i) else 0.0 for i in range(RUNNERS)]
        self._move_runners(moves)
        for i in self._let_out():
            rewards[i] += 1
        self._move_hunter()
        for i in self._catch():
            rewards[i] -= 1
        self.steps += 1
        for path, place in zip(self.paths, (*self.runners, self.hunter), strict=True):
            path.append(place)
        return rewards

    def _move_runners(self, moves: list[int]) -> None:
        for i, move in enumerate(moves):
            if self.in_play(i):
                x, y = (place + STRIDE * way for place, way in zip(self.runners[i], MOVES[move], strict=True))
                self.runners[i] = (min(max(x, -1.0), 1.0), min(max(y, -1.0), 1.0))

    def _let_out(self) -> list[int]:
        """If both are in one gate, the first runner is out."""
        left = []
        for i, runner in enumerate(self.runners):
            for gate, place in enumerate(self.gates):
                if self.in_play(i) and self.gate_open[gate] and math.dist(runner, place) <= GATE_RADIUS:
                    self.fates[i] = Fate.OUT
                    self.gate_open[gate] = False
                    left.append(i)
        return left

    def _move_hunter(self) -> None:
        hesitates = self._random.random() < HESITATION  # drawn in every step, so that draws do not depend on moves
        prey = [runner for i, runner in enumerate(self.runners) if self.in_play(i)]
        if hesitates or not prey:
            return
        (x, y), goal = self.hunter, min(prey, key=lambda runner: math.dist(runner, self.hunter))
        distance = math.dist(goal, self.hunter)
        share = 1.0 if distance <= HUNTER_STRIDE else HUNTER_STRIDE / distance
        self.hunter = (x + share * (goal[0] - x), y + share * (goal[1] - y))

    def _catch(self) -> list[int]:
        caught = [
            i
            for i, runner in enumerate(self.runners)
            if self.in_play(i) and math.dist(runner, self.hunter) <= CATCH_RADIUS
        ]
        for i in caught:
            self.fates[i] = Fate.CAUGHT
        return caught

    # ---- the state ---------------------------------------------------------------------------

    def in_play(self, runner: int) -> bool:
        """Neither out nor caught."""
        return self.fates[runner] is Fate.IN_PLAY

    @property
    def out_of_time(self) -> bool:
        """The last step was taken; runners still in play are cut off."""
        return self.steps >= self._time_limit

    @property
    def over(self) -> bool:
        """Whether the episode is over."""
        return self.out_of_time or not any(map(self.in_play, range(RUNNERS)))

    @property
    def succeeded(self) -> bool:
        """Both runners are out."""
        return all(fate is Fate.OUT for fate in self.fates)

    @property
    def time_left(self) -> float:
        """The time that is left, from 1 at the start to 0."""
        return 1 - self.steps / self._time_limit

    def observe(self, runner: int) -> NDArray[np.float32]:
        """What a runner sees; positions of others are relative to its own.

        Its place (2) and whether it is in play; the other runner (2) and whether that is in play; the hunter (2); each
        gate (2) and whether it is open; the time left. 15 numbers.
        """
        x, y = self.runners[runner]
        mate = 1 - runner

        def away(place: Point) -> Point:
            return place[0] - x, place[1] - y

        numbers: list[float] = [x, y, self.in_play(runner)]
        numbers += [*away(self.runners[mate]), self.in_play(mate), *away(self.hunter)]
        for gate, is_open in zip(self.gates, self.gate_open, strict=True):
            numbers += [*away(gate), is_open]
        return np.array([*numbers, self.time_left], np.float32)


def observation_bounds() -> tuple[list[float], list[float]]:
    """The lowest and the highest value of each number of an observation."""
    others = [[2.0, 2.0, 1.0], [2.0, 2.0], [2.0, 2.0, 1.0], [2.0, 2.0, 1.0]]
    high = [1.0, 1.0, 1.0, *(number for other in others for number in other), 1.0]
    flags = {2, 5, 10, 13, 14}
    return [0.0 if i in flags else -bound for i, bound in enumerate(high)], high


# ---- the env -------------------------------------------------------------------------------------

TIME_LIMIT = 150
_DEFAULTS = {"shared_reward": False, "time_limit": TIME_LIMIT, "replay_path": None}


def begin_episode(random: np.random.Generator, time_limit: int) -> PursuitWorld:
    """A world whose start and random events all come from that generator."""
    return PursuitWorld(draw_start(random), random, time_limit)


class PursuitEnv(BaseEnv):
    """Two runners must get out, each through its own gate, before the hunter catches them.

    - Observation: one row of 15 numbers per runner (``PursuitWorld.observe``). Its last one is from the step in which
      it was caught or got out; after that its row is zeros.
    - Action: one move per runner: 0 stay, 1 up, 2 down, 3 left, 4 right. The move of a runner that left does nothing.
    - Reward: one number per runner: -0.01 per step, plus 1 for getting out, minus 1 for being caught, 0 after that.
      With ``shared_reward`` one number, their sum.
    - Done when no runner is in play, or cut off after ``time_limit`` steps.

    The cfg may have ``shared_reward`` (False), ``time_limit`` (150), and ``replay_path``, a folder for a video of every
    episode. ``info["alive"]`` says for each runner whether it acts in the next step, ``info["is_success"]`` whether
    both got out. ``eval_episode_return`` is the sum of all rewards of both.
    """

    num_agents = RUNNERS
    metadata = {"render_fps": 20}  # noqa: RUF012  (read only)

    def __init__(self, cfg: Any = None) -> None:
        super().__init__({} if cfg is None else cfg)
        settings = read_cfg("PursuitEnv", self._cfg, defaults=_DEFAULTS)
        self._shared = true_or_false("PursuitEnv: shared_reward", settings["shared_reward"])
        self._time_limit = whole_number("PursuitEnv: time_limit", settings["time_limit"], 1)
        low, high = (np.array([bounds] * RUNNERS, np.float32) for bounds in observation_bounds())
        self.observation_space = spaces.Box(low, high)
        self.action_space = spaces.MultiDiscrete([len(MOVES)] * RUNNERS)
        self.reward_space = spaces.Box(-np.inf, np.inf, (1 if self._shared else RUNNERS,), np.float32)
        self._world: PursuitWorld | None = None
        self._random: np.random.Generator | None = None
        self._return = 0.0
        if settings["replay_path"] is not None:
            self.enable_save_replay(settings["replay_path"])

    def reset(self, **kwargs: Any) -> NDArray[np.float32]:
        """Starts an episode; it has no arguments."""
        if kwargs:
            raise ResetOptionError(f"PursuitEnv: reset: expected no arguments, got {', '.join(kwargs)}")
        seed = self._next_seed()
        if seed is not None or self._random is None:
            self._random = np.random.default_rng(seed)
        self._world = begin_episode(self._random, self._time_limit)
        self._return = 0.0
        return self._observe(self._world, [True] * RUNNERS)

    def step(self, action: Any) -> BaseEnvTimestep:
        """Moves both runners."""
        world = self._running("step")
        if world.over:
            raise NeedsResetError("PursuitEnv: step: the episode is over, call reset first")
        moves = _read_moves(action)
        took_part = [world.in_play(i) for i in range(RUNNERS)]
        rewards = world.step(moves)
        self._return += sum(rewards)
        alive = np.array([world.in_play(i) for i in range(RUNNERS)])
        info: dict[str, Any] = {"is_success": world.succeeded, "alive": alive & (not world.over)}
        if world.over:
            info["TimeLimit.truncated"] = bool(alive.any())
            info["eval_episode_return"] = info["final_eval_reward"] = self._return
        reward = np.array([sum(rewards)] if self._shared else rewards, np.float32)
        return BaseEnvTimestep(self._observe(world, took_part), reward, world.over, info)

    def render(self) -> NDArray[np.uint8]:
        """A picture of the current state."""
        return draw(self._running("render"))

    def close(self) -> None:
        """Frees the world; a later reset makes a new one."""
        self._world = None

    @staticmethod
    def _observe(world: PursuitWorld, sees: list[bool]) -> NDArray[np.float32]:
        nothing = np.zeros(NUMBERS, np.float32)
        return np.stack([world.observe(i) if sees[i] else nothing for i in range(RUNNERS)])

    def _running(self, call: str) -> PursuitWorld:
        if self._world is None:
            raise NeedsResetError(f"PursuitEnv: {call}: call reset first")
        return self._world


def _read_moves(action: Any) -> list[int]:
    moves = np.asarray(action)
    if moves.shape != (RUNNERS,):
        raise ActionError(f"PursuitEnv: action: expected one move for each of {RUNNERS} runners, got {action!r}")
    return [read_move("PursuitEnv", move) for move in moves]


def read_move(owner: str, value: Any) -> int:
    """One move as a number from 0 to 4, or an error in that env's name."""
    move = np.asarray(value)
    if move.dtype.kind not in "iu" or move.size != 1:
        raise ActionTypeError(f"{owner}: action: expected a whole number as a move, got {value!r}")
    if not 0 <= int(move.item()) < len(MOVES):
        raise ActionError(f"{owner}: action: expected a move from 0 to {len(MOVES) - 1}, got {value!r}")
    return int(move.item())


# ---- the picture ---------------------------------------------------------------------------------

MARGIN, FIELD, GRID, EDGE = (30, 34, 48), (44, 50, 68), (52, 59, 79), (92, 102, 130)
CLOCK, CLOCK_BACK = (150, 160, 188), (52, 58, 76)
RUNNER: list[Colour] = [(255, 196, 61), (86, 190, 255)]
EYE, HUNTER, TEETH = (34, 38, 54), (240, 72, 88), (255, 240, 240)
GATE_OPEN, GATE_CLOSED = (82, 214, 148), (104, 112, 134)


def draw(world: PursuitWorld) -> NDArray[np.uint8]:
    """The world as an RGB array, (400, 400, 3).

    Open gates are green rings, a closed one is grey and holds the runner that left by it. Runners are yellow and blue,
    a caught one is a faded cross; the hunter is red, within the circle in which it catches. The bar below is the time
    left.
    """
    canvas = _empty_field().copy()
    canvas.bar(-1.11, 0.03, world.time_left, CLOCK, CLOCK_BACK)
    for place, is_open in zip(world.gates, world.gate_open, strict=True):
        _draw_gate(canvas, place, is_open)
    for path, colour in zip(world.paths, [*RUNNER, HUNTER], strict=True):
        canvas.trail(path[-25:], 0.02, colour, oldest=0.0, newest=0.5)
    for place, fate, colour in zip(world.runners, world.fates, RUNNER, strict=True):
        _draw_runner(canvas, place, fate, colour)
    _draw_hunter(canvas, world.hunter)
    return canvas.picture()


@functools.cache
def _empty_field() -> Canvas:
    canvas = Canvas(400, 400, MARGIN, reach=1.16)  # the field and a margin, in which the clock is
    canvas.box((-1.06, -1.06), (1.06, 1.06), EDGE, rounding=0.08)
    canvas.box((-1.05, -1.05), (1.05, 1.05), FIELD, rounding=0.07)
    canvas.grid(1.03, 0.2, 0.006, GRID)
    return canvas


def _draw_gate(canvas: Canvas, place: Point, is_open: bool) -> None:
    colour = GATE_OPEN if is_open else GATE_CLOSED
    if is_open:
        canvas.disc(place, GATE_RADIUS, colour, 0.3, blur=0.12)
    canvas.disc(place, GATE_RADIUS, colour, 0.2)
    canvas.ring(place, GATE_RADIUS, 0.02, colour)
    canvas.ring(place, 0.6 * GATE_RADIUS, 0.01, colour, 0.6)


def _draw_runner(canvas: Canvas, place: Point, fate: Fate, colour: Colour) -> None:
    x, y = place
    if fate is Fate.CAUGHT:
        canvas.line((x - 0.035, y - 0.035), (x + 0.035, y + 0.035), 0.024, colour, 0.6)
        canvas.line((x - 0.035, y + 0.035), (x + 0.035, y - 0.035), 0.024, colour, 0.6)
        return
    canvas.disc((x, y - 0.012), 0.05, MARGIN, 0.5, blur=0.05)
    canvas.disc(place, 0.05, colour)
    for side in (-1, 1):
        canvas.disc((x + 0.019 * side, y + 0.008), 0.0105, EYE)


def _draw_hunter(canvas: Canvas, place: Point) -> None:
    x, y = place
    canvas.disc(place, CATCH_RADIUS, HUNTER, 0.16)
    canvas.ring(place, CATCH_RADIUS, 0.008, HUNTER, 0.6)
    body = [(x - 0.055, y - 0.04), (x + 0.055, y - 0.04), (x, y + 0.05)]
    canvas.polygon(body, HUNTER, rounding=0.016)
    for side in (-1, 1):
        canvas.disc((x + 0.02 * side, y - 0.008), 0.011, TEETH)
