"""Broken twins of the good env: each breaks one rule about seeds or about ``close``, and that one alone."""

from __future__ import annotations

import os
import random
import subprocess
from typing import Any, ClassVar

import numpy as np

from support.envs.good import GoodEnv, breaks


@breaks("static_seed")
class AlwaysDynamic(GoodEnv):
    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        super().seed(seed, True)


@breaks("static_seed")
class StepsFromTheStream(GoodEnv):
    """Begins every static episode alike, and goes on with what is left of a generator."""

    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        super().seed(seed, dynamic_seed)
        self._stream = np.random.default_rng(seed)

    def _begin(self, generator: np.random.Generator) -> None:
        super()._begin(generator)
        self._generator = self._stream


@breaks("dynamic_seed_repeats")
class DynamicMeansUnseeded(GoodEnv):
    def _begin(self, generator: np.random.Generator) -> None:
        super()._begin(np.random.default_rng() if self._seeds is not None and self._seeds.dynamic else generator)


@breaks("dynamic_seed_renews")
class AlwaysStatic(GoodEnv):
    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        super().seed(seed, False)


@breaks("distinct_envs")
class IgnoresTheSeed(GoodEnv):
    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        super().seed(0 if dynamic_seed else seed, dynamic_seed)


@breaks("distinct_envs")
class CountsUp(GoodEnv):
    """The seed plus the number of the episode: the neighbour's next one."""

    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        super().seed(seed, dynamic_seed)
        self._next = seed

    def _begin(self, generator: np.random.Generator) -> None:
        if self._seeds is not None and self._seeds.dynamic:
            generator = np.random.default_rng(self._next)
            self._next += 1
        super()._begin(generator)


@breaks("distinct_envs")
class OneStaticEpisode(GoodEnv):
    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        super().seed(seed if dynamic_seed else 5, dynamic_seed)


@breaks("independent_envs")
class GeneratorOfTheClass(GoodEnv):
    _shared: ClassVar[Any] = None

    def _begin(self, generator: np.random.Generator) -> None:
        GeneratorOfTheClass._shared = generator
        super()._begin(generator)

    def _move(self, action: Any) -> None:
        self._generator = GeneratorOfTheClass._shared
        super()._move(action)


@breaks("global_generators")
class SeedsNumpy(GoodEnv):
    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        super().seed(seed, dynamic_seed)
        np.random.seed(seed)


@breaks("global_generators")
class DrawsFromRandom(GoodEnv):
    def _move(self, action: Any) -> None:
        super()._move(action)
        random.random()


@breaks("close_twice")
class ClosesOnce(GoodEnv):
    def close(self) -> None:
        if self._world is None:
            raise RuntimeError("closed already")
        super().close()


@breaks("reset_after_close")
class NoWayBack(GoodEnv):
    _was_closed = False

    def reset(self, **kwargs: Any) -> Any:
        if self._was_closed:
            raise RuntimeError("closed for good")
        return super().reset()

    def close(self) -> None:
        self._was_closed = True
        super().close()


@breaks("reset_after_close")
class ForgetsToBuildAgain(GoodEnv):
    _was_built = False

    def reset(self, **kwargs: Any) -> Any:
        obs = super().reset()
        if self._was_built and self._count == 0 and self._built_once is not self._world:
            self._world = None  # step finds nothing
        self._was_built, self._built_once = True, self._world
        return obs

    _built_once: Any = None


@breaks("close_frees")
class LeavesAFile(GoodEnv):
    opened: ClassVar[list[Any]] = []

    def reset(self, **kwargs: Any) -> Any:
        if self._world is None:
            self.opened.append(open(os.devnull))  # noqa: SIM115
        return super().reset()


@breaks("close_frees")
class LeavesAProcess(GoodEnv):
    opened: ClassVar[list[Any]] = []

    def reset(self, **kwargs: Any) -> Any:
        if self._world is None:
            self.opened.append(subprocess.Popen(["cat"], stdin=subprocess.PIPE))
        return super().reset()


def close_what_is_left() -> None:
    """Ends what the last two leave open."""
    for file in LeavesAFile.opened:
        file.close()
    for process in LeavesAProcess.opened:
        process.communicate(timeout=600)
    LeavesAFile.opened.clear()
    LeavesAProcess.opened.clear()
