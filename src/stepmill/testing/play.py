"""Plays episodes with an env, and gives what came back, call by call."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

from gymnasium import spaces

from stepmill.envs.conform import as_arrays
from stepmill.testing.calls import Calls, Stopped
from stepmill.testing.moments import Held, Moment, Spaces, place, read_reset, read_step

__all__ = ["Actions", "fixed_actions", "new_actions", "play"]

# The action of a step, by its number in the episode.
Actions = Callable[[int], Any]


def new_actions(space: spaces.Space[Any], seed: int) -> Actions:
    """Samples of the action space, a new one each time, from a generator of our own."""
    sampler = copy.deepcopy(space)
    sampler.seed(seed)
    return lambda step: as_arrays(space, sampler.sample())


def fixed_actions(space: spaces.Space[Any], seed: int) -> Actions:
    """Samples of the action space, in every episode the same: what differs then is the env's doing."""
    sample = new_actions(space, seed)
    drawn: list[Any] = []

    def action(step: int) -> Any:
        while len(drawn) < step:
            drawn.append(sample(step))
        return copy.deepcopy(drawn[step - 1])

    return action


def play(
    calls: Calls, env: Any, seen: Spaces, actions: Actions, episodes: int, steps: int, run: str = ""
) -> Iterator[Moment]:
    """Episodes of at most so many steps each. Raises ``Stopped`` where the env cannot be played on."""
    held = Held()
    for episode in range(episodes):
        returned = calls("reset", place(run, "reset", episode), env.reset)
        obs, form = read_reset(returned, seen.observation)
        moment = Moment(run=run, call="reset", episode=episode, spaces=seen, held=held, form=form, obs=obs)
        yield moment
        held.add(moment)
        for step in range(1, steps + 1):
            action = actions(step)
            before = copy.deepcopy(action)
            returned = calls("step", place(run, "step", episode, step), env.step, action)
            parts, form = read_step(returned)
            obs, reward, done, info = parts or (None, None, None, None)
            moment = Moment(
                run=run,
                call="step",
                episode=episode,
                step=step,
                spaces=seen,
                held=held,
                form=form,
                is_readable=parts is not None,
                obs=obs,
                reward=reward,
                done=done,
                info=info,
                action=action,
                action_before=before,
            )
            yield moment
            if parts is None:
                raise Stopped(f"{moment.where} returned what nobody can read")
            held.add(moment)
            if moment.over:
                break
