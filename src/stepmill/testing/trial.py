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
    trial = _Trial(evidence, steps, see)
    try:
        trial.play_whole_episodes(episodes)
        trial.compare_dynamic_seeds()
        trial.compare_static_seeds()
    except Stopped as stop:
        evidence.stopped = str(stop)
    finally:
        trial.close_what_is_open()
    return evidence


class _Trial:
    def __init__(self, evidence: Evidence, steps: int, see: Callable[[Moment], None]) -> None:
        self._evidence = evidence
        self._subject = evidence.subject
        self._calls = evidence.calls
        self._seed = evidence.seed
        self._steps = steps
        self._see = see
        self._seen = Spaces(None, None, None, None)  # what results are judged by
        self._open: list[Any] = []

    # ---- whole episodes ----------------------------------------------------------------------

    def play_whole_episodes(self, episodes: int) -> None:
        evidence = self._evidence
        env = evidence.env = self._new("")
        evidence.early = self._ask(env, "before reset")
        evidence.text = self._try("repr", "repr(env)", repr, env)
        self._sow(env, self._seed, dynamic=True)
        self._seen = self._spaces_of(env, evidence.early)
        evidence.action_space = self._seen.action
        actions = new_actions(self._seen.action, self._seed)
        for moment in play(self._calls, env, self._seen, actions, episodes, self._steps):
            self._see(moment)
            evidence.episodes = moment.episode + 1
            evidence.steps += moment.call == "step"
            if moment.call == "reset" and moment.episode == 0:
                evidence.late.append(("after reset", self._ask(env, "after reset")))
                self._ask_optional(env)
        evidence.late.append(("after some episodes", self._ask(env, "after some episodes")))
        self._leave(env)

    def _ask_optional(self, env: Any) -> None:
        if hasattr(env, "random_action"):
            self._evidence.random_action = self._try("random_action", "random_action()", env.random_action)
        if hasattr(env, "info") and None not in self._seen:  # it tells of the spaces
            self._try("info", "info()", env.info)

    def _ask(self, env: Any, when: str) -> Spaces:
        """What the env says of itself now; None for what it cannot say."""
        names = ("observation_space", "action_space", "reward_space", "num_agents")
        said = (self._try(name, f"{name} {when}", getattr, env, name) for name in names)
        return Spaces(*(copy.deepcopy(one) for one in said))

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
            env = self._new("a second env")
        before = Belongings.now()
        (evidence.run,) = self._play_short({f"seed {seed}, a second env": (env, seed)}, dynamic=True)
        self._leave(env)
        if self._subject.makes_many:
            evidence.constructor = watch
            evidence.left_open = _left_open(before)

        env = self._new("a third env")
        (evidence.run_again,) = self._play_short({f"seed {seed} again": (env, seed)}, dynamic=True)
        self._leave(env)

        other = self._new("an env of another seed")
        runs = {f"seed {other_seed}": (other, other_seed)}
        if self._subject.makes_many:
            env = self._new("an env in turns with another")
            runs[f"seed {seed}, in turns with another env"] = (env, seed)
        evidence.run_of_other_seed, *in_turns = self._play_short(runs, dynamic=True)
        evidence.run_in_turns = in_turns[0] if in_turns else None
        for one, _ in runs.values():
            self._leave(one)

    def compare_static_seeds(self) -> None:
        evidence, seed, other_seed = self._evidence, self._seed, self._seed + 1
        env = self._new("an env of a static seed")
        (evidence.static_run,) = self._play_short({f"static seed {seed}": (env, seed)}, dynamic=False)
        self._leave(env)
        env = self._new("an env of another static seed")
        runs = {f"static seed {other_seed}": (env, other_seed)}
        (evidence.static_run_of_other_seed,) = self._play_short(runs, dynamic=False)
        self._close_and_reset(env)

    def _play_short(self, runs: dict[str, tuple[Any, int]], dynamic: bool) -> list[list[Episode]]:
        """Short episodes of each env, all with the same actions. Several envs take turns, a call each."""
        episodes, steps = _DYNAMIC_EPISODES if dynamic else _STATIC_EPISODES, min(self._steps, _SHORT_EPISODE)
        plays = []
        for run, (env, seed) in runs.items():
            self._sow(env, seed, dynamic)
            actions = fixed_actions(self._seen.action, self._seed)
            plays.append(play(self._calls, env, self._seen, actions, episodes, steps, run))
        traces: list[list[Episode]] = [[] for _ in runs]
        for moments in zip_longest(*plays):
            for trace, moment in zip(traces, moments, strict=True):
                if moment is not None:
                    self._see(moment)
                    _note(trace, moment)
        return traces

    # ---- an env ------------------------------------------------------------------------------

    def _new(self, who: str) -> Any:
        env = self._subject.env(self._calls, who)
        self._open.append(env)
        return env

    def _sow(self, env: Any, seed: int, dynamic: bool) -> None:
        if hasattr(env, "seed"):  # it may be left out where nothing is random
            self._calls("seed", f"seed({seed}, dynamic_seed={dynamic})", env.seed, seed, dynamic_seed=dynamic)

    def _leave(self, env: Any) -> None:
        if self._subject.makes_many:  # else it is needed again
            self._close(env)

    def _close(self, env: Any) -> None:
        self._open = [one for one in self._open if one is not env]
        self._calls("close", "close()", env.close)

    def close_what_is_open(self) -> None:
        """After a trial that broke off: nobody else can close these."""
        for env in self._open:
            with contextlib.suppress(Exception):
                env.close()

    def _close_and_reset(self, env: Any) -> None:
        self._close(env)
        self._try("second close", "close() of a closed env", env.close)
        self._evidence.was_closed_twice = True
        if self._subject.is_adapted:
            return  # nobody told the adapter how to build it again
        self._try("reset after close", "reset() of a closed env", self._begin_again, env)
        self._evidence.was_reset_after_close = True
        self._try("close", "close() after that reset", env.close)

    def _begin_again(self, env: Any) -> None:
        env.reset()
        env.step(new_actions(self._seen.action, self._seed)(1))

    def _try(self, call: str, where: str, function: Callable[..., Any], *args: Any) -> Any:
        """A call that the rest does not depend on; None where it raises."""
        with contextlib.suppress(Stopped):
            return self._calls(call, where, function, *args)
        return None


def _left_open(before: Belongings) -> list[str]:
    if not Belongings.now().since(before):
        return []
    gc.collect()  # what only waits for that is not left open
    return Belongings.now().since(before, _PATIENCE_SECONDS)


def _has_spaces(seen: Spaces) -> bool:
    return isinstance(seen.observation, spaces.Space) and isinstance(seen.action, spaces.Space)


def _note(trace: list[Episode], moment: Moment) -> None:
    if moment.call == "reset":
        trace.append([])
    trace[-1].append(digest((moment.obs, moment.reward, moment.over)))
