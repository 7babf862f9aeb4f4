"""Kinds of players: agents whose spaces are equal.

If all agents have the same spaces, there is one kind, and values are plain arrays, whatever the agents are called: that
is what one policy for all of them takes. If not, values are dicts by kind. The names of agents then say what they are,
as in PettingZoo: ``adversary_0``, ``agent_0`` and ``agent_1`` are of the kinds ``adversary`` and ``agent``. Two kinds
stay apart even if their spaces happen to be equal, because they have different tasks, and because a name that depended
on the spaces of others could change with a setting of the env. Only where agents of one name have different spaces is
that name not enough: those with equal spaces are then a kind with the name of the first of them, such as ``agent_0``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from gymnasium import spaces

__all__ = ["kinds_of"]

Spaces = tuple[spaces.Space[Any], ...]


def kinds_of(agents: Sequence[Any], own: Sequence[Spaces]) -> tuple[str, ...]:
    """The kind of each agent, from their names and their spaces; empty if all have the same spaces."""
    if all(one == own[0] for one in own):
        return ()
    groups: list[tuple[str, Spaces, str]] = []  # the common name, the spaces, and the first agent of each group
    numbers = []
    for agent, its in zip(agents, own, strict=True):
        name = re.sub(r"_\d+$", "", str(agent))
        found = (i for i, group in enumerate(groups) if group[:2] == (name, its))
        number = next(found, len(groups))
        if number == len(groups):
            groups.append((name, its, str(agent)))
        numbers.append(number)
    common = [name for name, *_ in groups]
    names = [name if common.count(name) == 1 else first for name, _, first in groups]
    if len(set(names)) < len(names):  # an agent is called what others have in common
        names = [first for *_, first in groups]
    return tuple(names[number] for number in numbers)
