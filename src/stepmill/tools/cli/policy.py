"""``--policy``: who acts. One function for one env, or for a batch of them; the same for every command."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import click
import numpy as np
from gymnasium.vector.utils import batch_space, iterate

from stepmill.errors import summary
from stepmill.tools.cli.failures import place_of
from stepmill.tools.cli.target import attribute_of
from stepmill.views.gymnasium import GymnasiumPool

__all__ = ["Act", "Policy", "load_policy", "telling_failures"]

Act = Callable[[Any, Any], Any]
_DRAWN_BATCHES = 32


def load_policy(text: str) -> Act | None:
    """The function that ``--policy`` names; ``None`` is random actions. A class is called without arguments."""
    if text == "random":
        return None
    found = attribute_of(text, "'random', or a policy")
    if isinstance(found, type):
        try:
            found = found()
        except Exception as error:
            raise click.UsageError(f"{text} cannot be called without arguments: {summary(error)}") from error
    if not callable(found):
        raise click.UsageError(f"{text}: expected a function of an observation and a generator, got {found!r}")
    act: Act = found
    return act


@contextlib.contextmanager
def telling_failures() -> Iterator[None]:
    """Turns what the user's function raises into one line that says where."""
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit too: it would end the command as if all were well
        raise click.ClickException(f"the policy failed: {summary(error)}{place_of(error)}") from error


class Policy:
    """Chooses the actions of a batch.

    Args:
        act: What ``load_policy`` returned.
        pool: Whose envs it plays.
        seed: Each env has a generator, which follows from this and its id.
        repeated: Whether random actions are drawn once and repeated: where the envs' speed is measured, drawing must
            cost nothing.
    """

    def __init__(self, act: Act | None, pool: GymnasiumPool, seed: int, *, repeated: bool = False) -> None:
        self._act = act
        self._batched = bool(getattr(act, "batched", False))
        self._observations = pool.spec.observation_space
        self._action_space = pool.spec.action_space
        count = 0 if act is None else pool.num_envs  # random actions come from the space
        self._generators = [np.random.default_rng((seed, env_id)) for env_id in range(count)]
        self._rows: dict[int, Any] = {}  # spaces of so many actions, for random ones
        self._seed = seed
        self._drawn: dict[int, Iterator[Any]] | None = {} if repeated else None

    def actions(self, obs: Any, info: dict[str, Any]) -> dict[str, Any]:
        """What ``send`` takes: an action for each row of a batch, or for each of its players."""
        players = info.get("players")
        owners = info["env_id"] if players is None else players["env_id"]
        chosen = self._random(len(owners)) if self._act is None else self._asked(self._act, obs, owners)
        sent = {"action": chosen, "env_id": info["env_id"]}
        return sent if players is None else {**sent, "players.env_id": owners}

    def _random(self, rows: int) -> Any:
        if rows not in self._rows:
            self._rows[rows] = batch_space(self._action_space, rows)
            self._rows[rows].seed(self._seed + rows)
        if self._drawn is None:
            return self._rows[rows].sample()
        if rows not in self._drawn:
            self._drawn[rows] = itertools.cycle([self._rows[rows].sample() for _ in range(_DRAWN_BATCHES)])
        return next(self._drawn[rows])

    def _asked(self, act: Act, obs: Any, owners: Sequence[int]) -> Any:
        generators = [self._generators[env_id] for env_id in owners]
        with telling_failures():
            if self._batched:
                return act(obs, generators)
            rows = iterate(batch_space(self._observations, len(generators)), obs)
            return [act(row, generator) for row, generator in zip(rows, generators, strict=True)]
