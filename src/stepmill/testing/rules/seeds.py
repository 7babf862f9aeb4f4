"""Rules about randomness: seeds, and where random numbers come from."""

from __future__ import annotations

from collections.abc import Iterator

from stepmill.testing.finding import Problem, Unchecked
from stepmill.testing.rules.rule import rule
from stepmill.testing.trial import Episode, Trial

# What a gymnasium.Env has instead of `_next_seed`.
_NP_RANDOM = "In reset(), call super().reset(seed=seed); draw everything random from self.np_random, and seed with it."


@rule("Seed the simulator with self._next_seed() in every reset().", for_gymnasium=_NP_RANDOM)
def static_seed(trial: Trial) -> Iterator[Problem]:
    """``seed(s, dynamic_seed=False)``: every episode is the same, for the same actions."""
    first, *others = trial.seen(trial.static_run)
    for number, other in enumerate(others, 1):
        step = _first_difference(first, other)
        if step is not None:
            expected = "the same as in episode 0, for the same actions"
            yield Problem(f"episode {number} with a static seed", expected, f"a difference in {_name(step)}")
            return


@rule("Draw everything from the seed that self._next_seed() returns, and from nothing else.", for_gymnasium=_NP_RANDOM)
def dynamic_seed_repeats(trial: Trial) -> Iterator[Problem]:
    """``seed(s)``: two envs with the same seed play the same run."""
    run, again = trial.seen(trial.run), trial.seen(trial.run_again)
    place = _first_place(run, again)
    if place is not None:
        yield Problem(
            f"two runs of seed({trial.seed})", "the same episodes for the same actions", f"a difference in {place}"
        )


@rule("Take a new seed for every episode: self._next_seed() in every reset().", for_gymnasium=_NP_RANDOM)
def dynamic_seed_renews(trial: Trial) -> Iterator[Problem]:
    """``seed(s)``: the episodes of a run are not all the same."""
    run = trial.seen(trial.run)
    _need_chance(trial)
    if len(run) > 1 and all(episode == run[0] for episode in run):
        yield Problem(f"seed({trial.seed})", "a new episode after every reset", f"the same {len(run)} times")


@rule(
    "Draw every episode's seed from a generator that the env's seed seeds, as self._next_seed() does; do not count up.",
    for_gymnasium=_NP_RANDOM,
)
def distinct_envs(trial: Trial) -> Iterator[Problem]:
    """Envs with different seeds play different episodes."""
    run, other = trial.seen(trial.run), trial.seen(trial.run_of_other_seed)
    static, static_other = trial.seen(trial.static_run), trial.seen(trial.static_run_of_other_seed)
    _need_chance(trial)
    one, two = trial.seed, trial.seed + 1
    if run == other:
        yield Problem(f"seed({one}) and seed({two})", "different episodes", "the same ones")
    elif _overlap(run, other):
        yield Problem(f"seed({one}) and seed({two})", "different episodes", "the same ones, shifted by a few")
    if static == static_other:
        yield Problem(f"the static seeds {one} and {two}", "different episodes", "the same one")


@rule("Keep generators and all other state in the env, not in its class or module.")
def independent_envs(trial: Trial) -> Iterator[Problem]:
    """An env plays the same episodes when another one runs at the same time."""
    trial.need_several()
    run, in_turns = trial.seen(trial.run), trial.seen(trial.run_in_turns)
    if trial.run != trial.run_again:
        raise Unchecked("its episodes do not even repeat when it runs alone")
    place = _first_place(run, in_turns)
    if place is not None:
        yield Problem("two envs in turns", "the episodes that each plays alone", f"a difference in {place}")


@rule(
    "Use a generator of the env's own: np.random.default_rng(self._next_seed()).",
    for_gymnasium="Use self.np_random, which super().reset(seed=seed) seeds.",
)
def global_generators(trial: Trial) -> Iterator[Problem]:
    """No call draws from the generators of the modules ``random`` and ``np.random``, nor seeds them."""
    trial.seen(trial.env)
    same_method = {"second close": "close", "reset after close": "reset"}
    for touched in trial.subject.touched:
        method = same_method.get(touched.call, touched.call)
        yield Problem(f"{touched.generator} in {method}()", "no use of it", f"a use in {touched.where}")


# ---- comparing -----------------------------------------------------------------------------------


def _need_chance(trial: Trial) -> None:
    """An env that plays the same with every seed may have nothing random in it; from outside one cannot tell."""
    runs = (trial.run, trial.run_again, trial.run_of_other_seed, trial.static_run)
    episodes = [episode for run in runs for episode in run or []]
    if all(episode == episodes[0] for episode in episodes):
        raise Unchecked("every episode was the same, whatever the seed: this env seems to have nothing random")


def _first_difference(one: Episode, other: Episode) -> int | None:
    """The step where two episodes differ; 0 is the reset."""
    for step, (mine, yours) in enumerate(zip(one, other, strict=False)):
        if mine != yours:
            return step
    return None if len(one) == len(other) else min(len(one), len(other))


def _first_place(one: list[Episode], other: list[Episode]) -> str | None:
    for number, (mine, yours) in enumerate(zip(one, other, strict=True)):
        step = _first_difference(mine, yours)
        if step is not None:
            return f"{_name(step)} of episode {number}"
    return None


def _name(step: int) -> str:
    return f"step {step}" if step else "reset"


def _overlap(one: list[Episode], other: list[Episode]) -> bool:
    """Whether one run is the other, a few episodes later: what seed + episode number gives."""
    for shift in (1, 2):
        for early, late in ((one, other), (other, one)):
            common = late[: len(late) - shift]
            if early[shift:] == common and any(episode != common[0] for episode in common):
                return True
    return False
