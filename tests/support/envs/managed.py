"""Envs for the tests of the managers, and how the tests make and play these."""

from __future__ import annotations

import collections
import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

import stepmill
from stepmill import EnvError
from stepmill.envs import BaseEnv, BaseEnvTimestep
from stepmill.managers import BaseEnvManager, EnvState, RayEnvManager, SubprocessEnvManager, SyncSubprocessEnvManager
from support import ray_cluster
from support.envs.contract import Walk
from support.envs.faulty import MISHAPS
from support.waiting import Gate, tell_gate, wait_at_gate

KINDS: dict[str, type[BaseEnvManager]] = {
    "serial": BaseEnvManager,
    "sync": SyncSubprocessEnvManager,
    "async": SubprocessEnvManager,
} | ({"ray": RayEnvManager} if ray_cluster.WANTED else {})


# ---- envs ----------------------------------------------------------------------------------------


class Trial(Walk):
    """A walk with mishaps, whose info has the action that it was given.

    cfg, beside that of ``Walk``: ``mishaps``, from the name of a method to a mishap and the calls that suffer it, which
    count from 1 in each env; ``lives``: which of the envs that are built of one id, one after another, suffer them; a
    ``folder``, for gates, and to count what happens beyond the life of an env; ``id``, for the constructor, since envs
    are told theirs later.
    """

    def __init__(self, cfg: Any = None) -> None:
        super().__init__(cfg)
        self.env_id = self._cfg.get("id", 0)
        self.folder = str(self._cfg.get("folder", ""))
        self.life = self._count("built")
        self._calls: collections.Counter[str] = collections.Counter()
        self._suffer("constructor")

    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        self._suffer("seed")
        super().seed(seed, dynamic_seed)

    def reset(self, **kwargs: Any) -> np.ndarray:
        self._count("tried")
        self._suffer("reset")
        observation = super().reset(**kwargs)
        self._count("reset")
        return observation

    def step(self, action: np.ndarray) -> BaseEnvTimestep:
        self._suffer("step")
        timestep = super().step(action)
        timestep.info["action"] = int(action)
        self._count("step")
        return timestep

    def close(self) -> None:
        self._suffer("close")
        self._count("closed")
        super().close()

    def visit(self, value: Any = None) -> tuple[int, Any]:
        """A method: the id, and what was passed."""
        self._suffer("visit")
        return self.env_id, value

    @property
    def pid(self) -> int:
        """Where it runs."""
        return os.getpid()

    def _count(self, what: str) -> int:
        """How often this has happened to envs of this id."""
        if not self.folder:
            return 1
        with Path(self.folder, f"{what}-{self.env_id}").open("ab") as file:
            file.write(b"x")
            return file.tell()

    def _suffer(self, where: str) -> None:
        mishap, at = self._cfg.get("mishaps", {}).get(where, ("", ()))
        if not mishap or self.life not in self._cfg.get("lives", range(100)):
            return
        self._calls[where] += 1
        if self._calls[where] in at:
            tell_gate(self.folder, self.env_id)
            MISHAPS[mishap](self)  # type: ignore[arg-type]


def count(folder: Path, what: str, env_id: int) -> int:
    """How often something has happened to the ``Trial`` envs of an id: "built", "tried", "reset", "step", "closed"."""
    path = folder / f"{what}-{env_id}"
    return path.stat().st_size if path.exists() else 0


class Shapeless(BaseEnv):
    """Its observations are of no space: text, sets, whatever; cut off after 2 steps."""

    observation_space = spaces.Box(0, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self) -> Any:
        self.elapsed = 0
        return "begin"

    def step(self, action: np.ndarray) -> BaseEnvTimestep:
        self.elapsed += 1
        seen = {"set": {self.elapsed, "x"}, "list": [None, np.arange(self.elapsed)], "point": complex(1, int(action))}
        return BaseEnvTimestep(seen, np.ones(1, np.float32), self.elapsed == 2, {"eval_episode_return": 2.0})

    def close(self) -> None:
        pass


# What an action of ``Puppet`` does. Plus GATED, it waits at the gate first.
ON, END, ODD, FAIL, DIE, GATED = 0, 1, 2, 3, 4, 5


class Puppet(BaseEnv):
    """Does what its action says. The observation is (env id, the seed modulo 1000 or -1, step).

    cfg: ``folder``, of the gate. Arguments of ``reset``: ``order``, the name of this order; ``fail``: which of the
    resets by this order fail, from 1; ``slow``: which of them wait at the gate; ``place``: where at the gate it waits.
    """

    observation_space = spaces.Box(-1, 1000, (3,), np.float32)
    action_space = spaces.Discrete(2 * GATED)

    def __init__(self, cfg: Any = None) -> None:
        super().__init__(cfg)
        self._resets: collections.Counter[int] = collections.Counter()

    def reset(self, order: int, fail: Sequence[int], slow: Sequence[int], place: int) -> np.ndarray:
        self._place = place
        self._resets[order] += 1
        if self._resets[order] in slow:
            wait_at_gate(self._cfg["folder"], place)
        if self._resets[order] in fail:
            raise RuntimeError("no strings")
        seed = self._next_seed()
        self._seen = -1 if seed is None else seed % 1000
        self.elapsed = 0
        return self._observation()

    def _observation(self) -> np.ndarray:
        return np.array([self.env_id, self._seen, self.elapsed], np.float32)

    def get_state(self) -> Any:
        return self._resets, self._place, self._seen, self.elapsed

    def set_state(self, state: Any) -> None:
        self._resets, self._place, self._seen, self.elapsed = state

    def step(self, action: np.ndarray) -> BaseEnvTimestep:
        gated, what = divmod(int(action), GATED)
        if gated:
            wait_at_gate(self._cfg["folder"], self._place)
        if what == FAIL:
            raise RuntimeError("a string broke")
        if what == DIE:
            os._exit(7)
        self.elapsed += 1
        info: dict[str, Any] = {"abnormal": True} if what == ODD else {}
        if what == END:
            info["eval_episode_return"] = float(self.elapsed)
        return BaseEnvTimestep(self._observation(), np.full(1, action, np.float32), what == END, info)

    def close(self) -> None:
        pass


# ---- managers ------------------------------------------------------------------------------------


def make(kind: str, cfgs: int | Sequence[dict[str, Any]], env_fn: Any = Trial, **settings: Any) -> BaseEnvManager:
    """A manager in which every env has a process of its own, where there are processes."""
    given = [{} for _ in range(cfgs)] if isinstance(cfgs, int) else cfgs
    whole = [{"id": env_id, **cfg} for env_id, cfg in enumerate(given)]
    if kind != "serial":
        settings.setdefault("num_workers", len(whole))
    if kind == "ray":
        ray_cluster.cluster()
        settings.setdefault("backend", stepmill.Ray(num_actors=2, resources={"CPU": 0.5}))  # room for two managers
    return KINDS[kind](env_fn, whole, len(whole), **{"retry_waiting_time": 0, **settings})


@contextlib.contextmanager
def launched(
    kind: str, cfgs: int | Sequence[dict[str, Any]], env_fn: Any = Trial, **settings: Any
) -> Iterator[BaseEnvManager]:
    with make(kind, cfgs, env_fn, **settings) as manager:
        manager.launch()
        yield manager


def states(manager: BaseEnvManager) -> list[EnvState]:
    return list(manager.env_state.values())


def elapsed(manager: BaseEnvManager) -> dict[int, int]:
    """The step of each env that is ready, as the env tells it."""
    return {env_id: int(seen[2]) for env_id, seen in manager.ready_obs.items()}


def suffering(where: str, mishap: str, at: Sequence[int] = (1,), **cfg: Any) -> dict[str, Any]:
    """The cfg of a ``Trial`` that suffers in one place."""
    return {"mishaps": {where: (mishap, at)}, **cfg}


@dataclass
class Episode:
    """What a ``Trial`` showed and gave from a reset to its end."""

    observations: list[list[float]]
    rewards: list[float] = field(default_factory=list)
    eval_return: float | None = None


def action_of(observation: np.ndarray) -> int:
    """What is done in a ``Trial``, by what it shows: it does not matter when the other envs are stepped."""
    return (int(observation[0]) + int(observation[2])) % 3 - 1


def play(manager: BaseEnvManager, enough: Callable[[dict[int, list[Episode]]], bool] | None = None) -> Any:
    """Plays until all envs are done, or it is enough: the episodes that ended, by env id."""
    under_way: dict[int, Episode] = {}
    ended: dict[int, list[Episode]] = {env_id: [] for env_id in range(manager.env_num)}
    while not (manager.done if enough is None else enough(ended)):
        ready = manager.ready_obs
        for env_id, observation in ready.items():
            assert observation[0] == env_id
            if observation[2] == 0:
                under_way[env_id] = Episode([observation.tolist()])
            assert observation.tolist() == under_way[env_id].observations[-1]
        for env_id, timestep in manager.step({one: action_of(seen) for one, seen in ready.items()}).items():
            episode = under_way[env_id]
            assert timestep.info["action"] == action_of(np.array(episode.observations[-1]))
            episode.observations.append(timestep.obs.tolist())
            episode.rewards.append(timestep.reward.item())
            if timestep.done:
                episode.eval_return = timestep.info["eval_episode_return"]
                ended[env_id].append(episode)
    return ended


def gated(gate: Gate, *steps: int, **cfg: Any) -> dict[str, Any]:
    """The cfg of an env that waits at the gate in these steps."""
    return suffering("step", "gate", steps, folder=gate.folder, **cfg)


def step_all(manager: BaseEnvManager, *env_ids: int) -> tuple[dict[int, Any], list[EnvError]]:
    """Steps envs, all that are ready by default, until nothing is in flight: what came of each."""
    timesteps: dict[int, Any] = {}
    raised: list[EnvError] = []
    actions = dict.fromkeys(env_ids or list(manager.ready_obs), 0)
    while actions or set(manager.active_env) - set(manager.ready_env):
        try:
            timesteps.update(manager.step(actions))
        except EnvError as error:
            timesteps.update(error.batch)
            raised += error.errors
        actions = {}
    return timesteps, raised
