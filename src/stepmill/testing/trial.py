"""Everything that is done with envs of one kind to check them.

::

    first env    asked for its spaces; whole episodes, dynamic seed s
    second       its constructor is watched; short episodes, dynamic seed s; what it leaves open
    third        the same again: does a run repeat?
    fourth       the same, in turns with a fifth of seed s + 1: are envs independent and different?
    sixth        static seed s: is every episode the same?
    seventh      static seed s + 1; closed, closed again, reset

If there is only one env, it is seeded again instead, and what needs several is left out.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, TypeVar

from gymnasium import spaces

from stepmill.testing.finding import Unchecked
from stepmill.testing.play import Moment, Spaces, fixed_actions, new_actions, play
from stepmill.testing.subject import CallFailure, CheckedEnvs, StopTrial
from stepmill.testing.values import digest
from stepmill.testing.watch import ConstructorWatch, OpenResources

# Many short episodes show more about seeds than a few long ones.
_DYNAMIC_EPISODES = 6
_STATIC_EPISODES = 3
_SHORT_EPISODE = 25

T = TypeVar("T")

# The results of one episode, call by call, in a form that can be compared.
Episode = list[tuple[Any, ...]]


@dataclass
class Trial:
    """What was seen of an env, for the rules. Parts that the trial did not reach are None."""

    subject: CheckedEnvs
    seed: int
    # Why the trial stopped early.
    stopped: str | None = None
    # How much was played in total.
    episodes: int = 0
    steps: int = 0

    # About the first env.
    env: Any = None
    early: Spaces | None = None  # what it said before reset; a part is None if it could not say
    late: list[tuple[str, Spaces]] = field(default_factory=list)  # and later, with the time
    text: Any = None
    action_space: Any = None  # what its actions were drawn from
    random_action: tuple[Any] | None = None

    # About the others.
    constructor: ConstructorWatch | None = None
    left_open: list[str] | None = None
    run: list[Episode] | None = None  # dynamic seed
    run_again: list[Episode] | None = None
    run_in_turns: list[Episode] | None = None
    run_of_other_seed: list[Episode] | None = None
    static_run: list[Episode] | None = None
    static_run_of_other_seed: list[Episode] | None = None
    was_closed_twice: bool = False
    was_reset_after_close: bool = False

    def seen(self, part: T | None) -> T:
        """A part of this, or why there is none."""
        if part is None or part is False:
            raise Unchecked(self.stopped or "the trial did not get that far")
        return part

    def raised_in(self, *calls: str) -> list[CallFailure]:
        """What calls of these names raised."""
        return [one for one in self.subject.raised if one.call in calls]

    def need_several(self) -> None:
        """For rules about more than one env."""
        if not self.subject.makes_many:
            raise Unchecked("needs several envs: pass the class, or a function that makes one")


def run_trial(trial: Trial, episodes: int, steps: int, see: Callable[[Moment], None]) -> None:
    """Goes through the list above, and notes in the trial what it saw. ``see`` is called with every reset and step."""
    player = _Player(trial, steps, see)
    try:
        player.play_whole_episodes(episodes)
        player.compare_dynamic_seeds()
        player.compare_static_seeds()
    except StopTrial as stop:
        trial.stopped = str(stop)
    except KeyboardInterrupt:
        trial.stopped = "the check was interrupted"
        raise
    finally:
        trial.subject.close_all()


class _Player:
    """Goes through the list, and notes in the trial what it saw."""

    def __init__(self, trial: Trial, steps: int, see: Callable[[Moment], None]) -> None:
        self._trial = trial
        self._envs = trial.subject
        self._seed = trial.seed
        self._steps = steps
        self._see = see
        self._spaces = Spaces(None, None, None, None)  # what results are judged by

    # ---- whole episodes ----------------------------------------------------------------------

    def play_whole_episodes(self, episodes: int) -> None:
        trial = self._trial
        env = trial.env = self._envs.new("")
        trial.early = self._ask(env, "before reset")
        trial.text = self._envs.attempt("repr", "repr(env)", repr, env)
        self._envs.seed(env, self._seed, dynamic=True)
        self._spaces = self._spaces_of(env, trial.early)
        trial.action_space = self._spaces.action
        actions = new_actions(self._spaces.action, self._seed)
        for moment in play(self._envs, env, self._spaces, actions, episodes, self._steps):
            self._look_at(moment)
            if moment.call == "reset" and moment.episode == 0:
                trial.late.append(("after reset", self._ask(env, "after reset")))
                self._ask_optional(env)
        trial.late.append(("after some episodes", self._ask(env, "after some episodes")))
        self._envs.leave(env)

    def _look_at(self, moment: Moment) -> None:
        self._trial.episodes += moment.call == "reset"
        self._trial.steps += moment.call == "step"
        self._see(moment)

    def _ask_optional(self, env: Any) -> None:
        if self._envs.has(env, "random_action"):
            with contextlib.suppress(StopTrial):
                self._trial.random_action = (self._envs.call("random_action", "random_action()", env.random_action),)
        if self._envs.has(env, "info") and all(one is not None for one in self._spaces):  # it describes these
            self._envs.attempt("info", "info()", env.info)

    def _ask(self, env: Any, when: str) -> Spaces:
        """How the env describes itself now; None for what it cannot say."""
        names = ("observation_space", "action_space", "reward_space", "num_agents")
        return Spaces(*(self._envs.attempt(name, f"{name} {when}", _copy_of, env, name) for name in names))

    def _spaces_of(self, env: Any, early: Spaces) -> Spaces:
        """The spaces to judge by: those before reset, or if there are none, those after it."""
        if _has_spaces(early):
            return early
        self._envs.call("reset", "the first reset", env.reset)
        late = self._ask(env, "after reset")
        if not _has_spaces(late):
            raise StopTrial("there is no observation_space or no action_space, neither before nor after reset")
        return late

    # ---- seeds -------------------------------------------------------------------------------

    def compare_dynamic_seeds(self) -> None:
        trial, seed, other_seed = self._trial, self._seed, self._seed + 1
        with ConstructorWatch() as watch:
            env = self._envs.new("a second env")
        before = OpenResources.now()
        (trial.run,) = self._play_short({f"seed {seed}, a second env": (env, seed)}, dynamic=True)
        self._envs.leave(env)
        if self._envs.makes_many:
            trial.constructor = watch
            trial.left_open = OpenResources.left_since(before)

        env = self._envs.new("a third env")
        (trial.run_again,) = self._play_short({f"seed {seed} again": (env, seed)}, dynamic=True)
        self._envs.leave(env)

        other = self._envs.new("an env of another seed")
        runs = {f"seed {other_seed}": (other, other_seed)}
        if self._envs.makes_many:
            env = self._envs.new("an env in turns with another")
            runs[f"seed {seed}, in turns with another env"] = (env, seed)
        trial.run_of_other_seed, *in_turns = self._play_short(runs, dynamic=True)
        trial.run_in_turns = in_turns[0] if in_turns else None
        for one, _ in runs.values():
            self._envs.leave(one)

    def compare_static_seeds(self) -> None:
        trial, seed, other_seed = self._trial, self._seed, self._seed + 1
        env = self._envs.new("an env of a static seed")
        (trial.static_run,) = self._play_short({f"static seed {seed}": (env, seed)}, dynamic=False)
        self._envs.leave(env)
        env = self._envs.new("an env of another static seed")
        runs = {f"static seed {other_seed}": (env, other_seed)}
        (trial.static_run_of_other_seed,) = self._play_short(runs, dynamic=False)
        self._close_and_reset(env)

    def _play_short(self, runs: dict[str, tuple[Any, int]], dynamic: bool) -> list[list[Episode]]:
        """Short episodes of each env, all with the same actions. Several envs take turns after each call."""
        episodes, steps = _DYNAMIC_EPISODES if dynamic else _STATIC_EPISODES, min(self._steps, _SHORT_EPISODE)
        plays = []
        for run, (env, seed) in runs.items():
            self._envs.seed(env, seed, dynamic)
            actions = fixed_actions(self._spaces.action, self._seed)
            plays.append(play(self._envs, env, self._spaces, actions, episodes, steps, run))
        traces: list[list[Episode]] = [[] for _ in runs]
        for moments in zip_longest(*plays):
            for trace, moment in zip(traces, moments, strict=True):
                if moment is not None:
                    self._look_at(moment)
                    _note(trace, moment)
        return traces

    # ---- the end -----------------------------------------------------------------------------

    def _close_and_reset(self, env: Any) -> None:
        self._envs.close(env)
        self._envs.attempt("second close", "close() of a closed env", env.close)
        self._trial.was_closed_twice = True
        if self._envs.is_adapted:
            return  # the adapter does not know how to build it again
        self._envs.attempt("reset after close", "reset() of a closed env", self._begin_again, env)
        self._trial.was_reset_after_close = True
        self._envs.attempt("close", "close() after that reset", env.close)

    def _begin_again(self, env: Any) -> None:
        env.reset()
        env.step(new_actions(self._spaces.action, self._seed)(1))


def _copy_of(env: Any, name: str) -> Any:
    """The attribute as it is now: the env may change it later."""
    return copy.deepcopy(getattr(env, name))


def _has_spaces(seen: Spaces) -> bool:
    return isinstance(seen.observation, spaces.Space) and isinstance(seen.action, spaces.Space)


def _note(trace: list[Episode], moment: Moment) -> None:
    if moment.call == "reset":
        trace.append([])
    trace[-1].append(digest((moment.obs, moment.reward, moment.over)))
