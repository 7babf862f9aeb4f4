"""All that is done with envs of one kind to check them.

::

    first env    described; whole episodes, dynamic seed s
    second       its constructor watched; short episodes, dynamic seed s; what it leaves open
    third        the same again: a run repeats
    fourth       the same, in turns with a fifth of seed s + 1: envs leave each other alone, and differ
    sixth        static seed s: every episode the same
    seventh      static seed s + 1; closed, closed again, reset

Where there is only one env, it is seeded anew instead, and what needs several is left out.
"""

from __future__ import annotations

import contextlib
import copy
import gc
from collections.abc import Callable
from itertools import zip_longest
from typing import Any

from gymnasium import spaces

from stepmill.testing.belongings import Belongings
from stepmill.testing.calls import Stopped
from stepmill.testing.constructor_watch import ConstructorWatch
from stepmill.testing.evidence import Episode, Evidence
from stepmill.testing.keeper import Keeper
from stepmill.testing.moments import Moment, Spaces
from stepmill.testing.play import fixed_actions, new_actions, play
from stepmill.testing.subject import Subject
from stepmill.testing.trees import digest

__all__ = ["gather"]

# Seeds are compared on many short episodes rather than on a few long ones.
_DYNAMIC_EPISODES = 6
_STATIC_EPISODES = 3
_SHORT_EPISODE = 25
# Threads and processes that close() told to end may take that long.
_PATIENCE_SECONDS = 2.0


def gather(subject: Subject, seed: int, episodes: int, steps: int, see: Callable[[Moment], None]) -> Evidence:
    """Plays through the list above. ``see`` is given every reset and step."""
    evidence = Evidence(subject, seed)
    envs = Keeper(subject, evidence.calls)
    trial = _Trial(evidence, envs, steps, see)
    try:
        trial.play_whole_episodes(episodes)
        trial.compare_dynamic_seeds()
        trial.compare_static_seeds()
    except Stopped as stop:
        evidence.stopped = str(stop)
    finally:
        envs.close_all()
    return evidence


class _Trial:
    def __init__(self, evidence: Evidence, envs: Keeper, steps: int, see: Callable[[Moment], None]) -> None:
        self._evidence = evidence
        self._envs = envs
        self._subject = evidence.subject
        self._calls = evidence.calls
        self._seed = evidence.seed
        self._steps = steps
        self._see = see
        self._seen = Spaces(None, None, None, None)  # what results are judged by

    # ---- whole episodes ----------------------------------------------------------------------

    def play_whole_episodes(self, episodes: int) -> None:
        evidence = self._evidence
        env = evidence.env = self._envs.new("")
        evidence.early = self._ask(env, "before reset")
        evidence.text = self._envs.attempt("repr", "repr(env)", repr, env)
        self._envs.seed(env, self._seed, dynamic=True)
        self._seen = self._spaces_of(env, evidence.early)
        evidence.action_space = self._seen.action
        actions = new_actions(self._seen.action, self._seed)
        for moment in play(self._calls, env, self._seen, actions, episodes, self._steps):
            self._look_at(moment)
            if moment.call == "reset" and moment.episode == 0:
                evidence.late.append(("after reset", self._ask(env, "after reset")))
                self._ask_optional(env)
        evidence.late.append(("after some episodes", self._ask(env, "after some episodes")))
        self._envs.leave(env)

    def _look_at(self, moment: Moment) -> None:
        self._evidence.episodes += moment.call == "reset"
        self._evidence.steps += moment.call == "step"
        self._see(moment)

    def _ask_optional(self, env: Any) -> None:
        if self._calls.has(env, "random_action"):
            with contextlib.suppress(Stopped):
                self._evidence.random_action = (self._calls("random_action", "random_action()", env.random_action),)
        if self._calls.has(env, "info") and all(one is not None for one in self._seen):  # it tells of these
            self._envs.attempt("info", "info()", env.info)

    def _ask(self, env: Any, when: str) -> Spaces:
        """What the env says of itself now; None for what it cannot say."""
        names = ("observation_space", "action_space", "reward_space", "num_agents")
        return Spaces(*(self._envs.attempt(name, f"{name} {when}", _copy_of, env, name) for name in names))

    def _spaces_of(self, env: Any, early: Spaces) -> Spaces:
        """The spaces to judge by; where they are not there before reset, those after it."""
        if _has_spaces(early):
            return early
        self._calls("reset", "the first reset", env.reset)
        late = self._ask(env, "after reset")
        if not _has_spaces(late):
            raise Stopped("there is no observation_space or no action_space, before reset and after it")
        return late

    # ---- seeds -------------------------------------------------------------------------------

    def compare_dynamic_seeds(self) -> None:
        evidence, seed, other_seed = self._evidence, self._seed, self._seed + 1
        with ConstructorWatch() as watch:
            env = self._envs.new("a second env")
        before = Belongings.now()
        (evidence.run,) = self._play_short({f"seed {seed}, a second env": (env, seed)}, dynamic=True)
        self._envs.leave(env)
        if self._subject.makes_many:
            evidence.constructor = watch
            evidence.left_open = _left_open(before)

        env = self._envs.new("a third env")
        (evidence.run_again,) = self._play_short({f"seed {seed} again": (env, seed)}, dynamic=True)
        self._envs.leave(env)

        other = self._envs.new("an env of another seed")
        runs = {f"seed {other_seed}": (other, other_seed)}
        if self._subject.makes_many:
            env = self._envs.new("an env in turns with another")
            runs[f"seed {seed}, in turns with another env"] = (env, seed)
        evidence.run_of_other_seed, *in_turns = self._play_short(runs, dynamic=True)
        evidence.run_in_turns = in_turns[0] if in_turns else None
        for one, _ in runs.values():
            self._envs.leave(one)

    def compare_static_seeds(self) -> None:
        evidence, seed, other_seed = self._evidence, self._seed, self._seed + 1
        env = self._envs.new("an env of a static seed")
        (evidence.static_run,) = self._play_short({f"static seed {seed}": (env, seed)}, dynamic=False)
        self._envs.leave(env)
        env = self._envs.new("an env of another static seed")
        runs = {f"static seed {other_seed}": (env, other_seed)}
        (evidence.static_run_of_other_seed,) = self._play_short(runs, dynamic=False)
        self._close_and_reset(env)

    def _play_short(self, runs: dict[str, tuple[Any, int]], dynamic: bool) -> list[list[Episode]]:
        """Short episodes of each env, all with the same actions. Several envs take turns, a call each."""
        episodes, steps = _DYNAMIC_EPISODES if dynamic else _STATIC_EPISODES, min(self._steps, _SHORT_EPISODE)
        plays = []
        for run, (env, seed) in runs.items():
            self._envs.seed(env, seed, dynamic)
            actions = fixed_actions(self._seen.action, self._seed)
            plays.append(play(self._calls, env, self._seen, actions, episodes, steps, run))
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
        self._evidence.was_closed_twice = True
        if self._subject.is_adapted:
            return  # nobody told the adapter how to build it again
        self._envs.attempt("reset after close", "reset() of a closed env", self._begin_again, env)
        self._evidence.was_reset_after_close = True
        self._envs.attempt("close", "close() after that reset", env.close)

    def _begin_again(self, env: Any) -> None:
        env.reset()
        env.step(new_actions(self._seen.action, self._seed)(1))


def _left_open(before: Belongings) -> list[str]:
    if not Belongings.now().since(before):
        return []
    gc.collect()  # what only waits for that is not left open
    return Belongings.now().since(before, _PATIENCE_SECONDS)


def _copy_of(env: Any, name: str) -> Any:
    """As it is now: the env may change it."""
    return copy.deepcopy(getattr(env, name))


def _has_spaces(seen: Spaces) -> bool:
    return isinstance(seen.observation, spaces.Space) and isinstance(seen.action, spaces.Space)


def _note(trace: list[Episode], moment: Moment) -> None:
    if moment.call == "reset":
        trace.append([])
    trace[-1].append(digest((moment.obs, moment.reward, moment.over)))
