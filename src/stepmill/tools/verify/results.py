"""What ``verify`` returns: whether the envs of an id are equal to Gymnasium's, or where they first differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, overload


@dataclass(frozen=True, eq=False)  # the values may be arrays, which have no truth value
class Difference:
    """The first difference between an env of ours and Gymnasium's.

    Attributes:
        env_id: The env that differs.
        step: Which step of this env it was, counted from 1. At a reset: how many steps came before it.
        episode: Which episode of this env, counted from 1. 0 if not even the first one began.
        episode_step: Which step of that episode, counted from 1. 0 is its reset.
        field: What differs, such as ``obs[3]``, ``info['prob']``, ``obs.dtype``, ``observation_space``, ``exception``.
        ours: The value here. It prints as ``nothing`` if only Gymnasium has one.
        theirs: The value in Gymnasium; likewise.
    """

    env_id: int
    step: int
    episode: int
    episode_step: int
    field: str
    ours: Any
    theirs: Any

    def __str__(self) -> str:
        return f"{self._when()}: {self.field}: ours {_short(self.ours)}, theirs {_short(self.theirs)}"

    def _when(self) -> str:
        if not self.episode:
            return "before the first reset"
        if not self.episode_step:
            return f"at the reset of env {self.env_id} that begins its episode {self.episode} (after {self.step} steps)"
        where = f"step {self.episode_step} of its episode {self.episode}"
        return f"at step {self.step} of env {self.env_id} ({where})"


@dataclass(frozen=True, eq=False)
class Verification:
    """The result for one id. It is true if all that was compared is equal, and prints as one line.

    Attributes:
        id: The id.
        num_envs: How many envs were played.
        steps: How many steps were compared, of all envs together. Resets are compared too, and not counted.
        episodes: How many episodes ended in them.
        backend: Where the native envs ran: ``"thread"``, ``"process"`` or ``"inline"``.
        versions: The versions of Gymnasium, numpy, and other packages that Gymnasium's env is made of.
        difference: The first difference; None if there is none.
    """

    id: str
    num_envs: int
    steps: int
    episodes: int
    backend: str
    versions: Mapping[str, str]
    difference: Difference | None = None

    @property
    def equal(self) -> bool:
        """Whether all that was compared is equal, bit for bit."""
        return self.difference is None

    def __bool__(self) -> bool:
        return self.equal

    def __str__(self) -> str:
        if self.difference is not None:
            return f"{self.id}: different {self.difference}"
        played = f"{_count(self.steps, 'step')} in {_count(self.num_envs, 'env')}, {_count(self.episodes, 'episode')}"
        return f"{self.id}: equal, {played}, {_made_of(self.versions)}"


@dataclass(frozen=True, eq=False)
class Verifications(Sequence[Verification]):
    """The results for several ids, in order. True if there are any and all are equal; prints as a table.

    Attributes:
        results: One result per id that was played.
        skipped: The ids that could not be played, such as those whose packages are not installed, and why.
    """

    results: tuple[Verification, ...]
    skipped: Mapping[str, str] = field(default_factory=dict)

    @property
    def equal(self) -> bool:
        """Whether there are results and all of them are equal."""
        return bool(self.results) and all(self.results)

    def __bool__(self) -> bool:
        return self.equal

    def __len__(self) -> int:
        return len(self.results)

    @overload
    def __getitem__(self, index: int) -> Verification: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Verification, ...]: ...
    def __getitem__(self, index: int | slice) -> Verification | tuple[Verification, ...]:
        return self.results[index]

    def __str__(self) -> str:
        different = sum(not one for one in self.results)
        counts = [f"{len(self) - different} equal", f"{different} different", f"{len(self.skipped)} skipped"]
        versions = {name: version for one in self.results for name, version in one.versions.items()}
        made_of = f" ({_made_of(versions)})" if versions else ""
        return "\n".join([*self._rows(), f"{', '.join(counts)}{made_of}"])

    def _rows(self) -> list[str]:
        width = max((len(id) for id in [*(one.id for one in self.results), *self.skipped]), default=0)
        rows = [
            f"{one.id:{width}}  equal      {one.steps:>9,} steps  {one.num_envs:>4,} envs  {one.episodes:>7,} episodes"
            if one.difference is None
            else f"{one.id:{width}}  different  {one.difference}"
            for one in self.results
        ]
        return rows + [f"{id:{width}}  skipped    {reason}" for id, reason in self.skipped.items()]


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _made_of(versions: Mapping[str, str]) -> str:
    names = {"gymnasium": "Gymnasium"}
    return ", ".join(f"{names.get(name, name)} {version}" for name, version in versions.items() if name != "numpy")


def _short(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 200 else f"{text[:200]}..."
