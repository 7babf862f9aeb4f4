"""The pool of a manager: how it is made, and every call of it. No other file of the managers calls a pool."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from stepmill import _native
from stepmill.envs.env_info import BaseEnvInfo
from stepmill.errors import ActionError, StepmillError
from stepmill.hosts.host import Preparation, PythonHost, open_engine
from stepmill.hosts.observing import WatchedPool
from stepmill.hosts.open_host import open_host
from stepmill.hosts.saving import StateKeeper
from stepmill.managers.config import EnvRecipe, ManagerSettings
from stepmill.managers.env_rows import RowReader, RowsAsTheyCome, result_of
from stepmill.managers.env_side import (
    EnvInstructions,
    EnvSpaces,
    ManagedEnvFactory,
    ReadAttribute,
    check_can_record,
    env_info_of,
    random_action_of,
    spaces_of,
)
from stepmill.managers.stacking import stack_actions, stack_any_actions
from stepmill.settings import check_settings, default_workers
from stepmill.sources.islands import IslandTask
from stepmill.sources.source import EnvBlueprint, PythonSource
from stepmill.system.uninterrupted import try_or
from stepmill.values.saved_states import SavedStates


def open_pool(recipes: Sequence[EnvRecipe], settings: ManagerSettings, backend: str) -> _native.Engine:
    """A pool that gives results as soon as they are ready, and resets nothing by itself."""
    factories = [ManagedEnvFactory(one, not settings.shared_memory) for one in recipes]
    source = PythonSource(
        _name_of(recipes[0].env_fn), [_blueprint(one, settings.python) for one in factories], None, None
    )
    workers = settings.num_workers
    if workers is None and backend == "process":
        workers = default_workers(len(recipes), waits_for_all=settings.wait_num >= len(recipes))
    pool_settings = check_settings(
        num_envs=len(recipes),
        num_workers=workers,
        seed=None,  # until the caller calls `seed`; a BaseEnv does not see these, see ManagedEnvFactory
        backend=settings.ray or backend,
        python=settings.python,
        autoreset="disabled",
        step_timeout=settings.step_timeout,
        reset_timeout=settings.reset_timeout,
        start_timeout=settings.start_timeout,
        reward_dtype="float32",
        as_ready=True,
    )
    return open_engine(open_host(source, pool_settings, RowsAsTheyCome), pool_settings)


def _blueprint(factory: ManagedEnvFactory, python: str | None) -> EnvBlueprint:
    task = factory if python is None else IslandTask.of(factory)
    return EnvBlueprint(task, {}, None, python=python)


def _name_of(env_fn: Any) -> str:
    return getattr(env_fn, "__name__", type(env_fn).__name__)


class ManagerPool:
    """The envs of a launched manager, in a pool. Every action and every reset that is sent gets exactly one result.

    Attributes:
        spaces: The spaces of one env.
        rows: Reads batches.
        batch: What ``receive`` took from the pool, until the caller sets it to None.
    """

    def __init__(self, recipes: Sequence[EnvRecipe], settings: ManagerSettings, backend: str) -> None:
        self._recipes, self._settings = recipes, settings
        self._name = _name_of(recipes[0].env_fn)
        self._all_ids = list(range(len(recipes)))
        self.batch: Any = None
        self._engine = open_pool(recipes, settings, backend)
        self._host: PythonHost = self._engine.host
        try:
            self.spaces: EnvSpaces = self._apply(spaces_of, [0])[0]
            reward_shape = getattr(self.spaces.reward, "shape", None) or ()
            self.rows = RowReader(self._host.observation, self._host.num_players, reward_shape, len(recipes))
        except BaseException:
            with contextlib.suppress(Exception):
                self._engine.close()
            raise

    @property
    def runs_beside_the_caller(self) -> bool:
        """Whether envs step and reset while the caller does something else."""
        return self._host.runs_beside_the_caller

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self._engine.closed

    def check_usable(self) -> None:
        """Raises if it is the parent's, in a forked child."""
        self._engine.check_usable()

    def close(self) -> None:
        """Ends all envs."""
        self._engine.close()

    def watched(self, name: str) -> WatchedPool:
        """What a page shows of it."""
        facts = [f"{len(self._all_ids):,} envs of {name}", f"backend {self._host.backend}"]
        return WatchedPool(self._engine, self._name, len(self._all_ids), facts, result_of)

    # ---- what goes out -----------------------------------------------------------------------

    def send_actions(self, ids: list[int], actions: list[Any]) -> None:
        """Sends one action per env; if one of them is invalid, sends none."""
        if self.spaces.takes_anything:
            batch, objects = self._pack_any(ids, actions)
            self._engine.send(batch, ids, objects)
        else:
            self._engine.send(stack_actions(self._host.action, actions, self._host.num_players), ids)

    def _pack_any(self, ids: list[int], actions: list[Any]) -> tuple[Any, dict[int, Any]]:
        """A batch, and by env id what does not fit into it."""
        host = self._host

        def pack() -> tuple[Any, dict[int, Any]]:
            batch, objects = stack_any_actions(host.action, actions)
            return batch, {ids[row]: host.pack_objects(parts) for row, parts in objects.items()}

        def refuse(failure: BaseException) -> NoReturn:
            if isinstance(failure, StepmillError):
                raise failure
            text = f"step: expected actions that can be copied and pickled, got {actions}: {failure}"
            raise ActionError(text) from failure

        return try_or(pack, refuse)

    def send_resets(
        self,
        ids: Sequence[int],
        seeds: Sequence[int | None],
        params: Sequence[Mapping[str, Any]],
        instructions: EnvInstructions | None,
        renew: bool,
    ) -> None:
        """Sends one reset per env; with ``renew`` each env is built anew first, then given the instructions."""
        preparation = Preparation(renew, instructions) if renew or instructions is not None else None
        self._engine.send_reset(ids, seeds, [dict(one) or None for one in params], preparation)

    # ---- what comes back ---------------------------------------------------------------------

    @property
    def in_flight_count(self) -> int:
        """How many envs have a result to come."""
        return self._engine.in_flight_count

    @property
    def in_flight_ids(self) -> list[int]:
        """The envs that have a result to come."""
        return self._engine.in_flight_ids

    def receive(self, enough: int, at_least: int, timeout: float | None, steps_only: bool) -> None:
        """Waits for results, as the pool's ``recv_some`` does, and puts them into ``batch``; None if there are none."""
        # In one piece: an exception between the call and an assignment would lose the batch.
        _native.call_into(self, "batch", self._engine.recv_some, enough, at_least, timeout, steps_only)

    # ---- saved states ------------------------------------------------------------------------

    @functools.cached_property
    def _keeper(self) -> StateKeeper:
        settings = self._settings
        managed = {name: getattr(settings, name) for name in ("auto_reset", "episode_num", "shared_memory")}
        configs = [{"env_fn": one.env_fn, "env_cfg": one.args, "managed": managed} for one in self._recipes]
        return StateKeeper(self._engine, self._name, configs, None)

    @property
    def state_kind(self) -> str:
        """How envs are saved; see ``PoolView.state_kind``."""
        return self._keeper.kind

    def save(self, ids: list[int], by: str | None) -> SavedStates:
        """The states of envs that have nothing in flight."""
        return self._keeper.save(ids, by)

    def check_states(self, given: Any, ids: list[int]) -> SavedStates:
        """One state per env, from what the user gave. Raises if one of them is not for its env."""
        return self._keeper.checked(given, ids)

    def send_restore(self, ids: Sequence[int], states: SavedStates) -> None:
        """Gives each env a state; its result is what the saved env showed last."""
        self._keeper.send_restore(states, ids)

    # ---- questions to the envs ---------------------------------------------------------------

    def render(self, ids: list[int]) -> list[Any]:
        """A picture of each of these envs."""
        return list(self._engine.use(self._host.render, ids))

    def random_actions(self, ids: list[int]) -> list[Any]:
        """What the ``random_action`` of each of these envs returns."""
        return self._apply(random_action_of, ids)

    def check_can_record(self) -> None:
        """Raises if an env cannot write videos."""
        self._apply(check_can_record, self._all_ids)

    def env_info(self) -> BaseEnvInfo:
        """What env 0 says about itself."""
        info: BaseEnvInfo = self._apply(env_info_of, [0])[0]
        return info

    def read_attribute(self, name: str) -> list[Any]:
        """An attribute of every env that is not a method."""
        return self._apply(ReadAttribute(name), self._all_ids)

    def call(self, name: str, ids: list[int] | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """Calls a method of these envs; None: of all of them."""
        ids = self._all_ids if ids is None else ids
        return self._engine.use(self._host.call, name, ids, args, kwargs)

    def _apply(self, function: Callable[[Any], Any], ids: list[int]) -> list[Any]:
        """``function(env)`` of each of these envs, where it runs."""
        return self._engine.use(self._host.apply, function, ids)
