"""The arguments of ``make``, checked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gymnasium.vector import AutoresetMode

from stepmill import _native
from stepmill.arguments import one_of, seconds, whole_number
from stepmill.errors import ConfigError, UnsupportedError

__all__ = ["AUTORESET_MODES", "GYMNASIUM_MODES", "Settings", "check_seeds", "check_settings", "refuse_same_step"]

Autoreset = Literal["next_step", "same_step", "disabled"]

# In the order of sm_autoreset in cpp/core/env_table.h.
AUTORESET_MODES = ("next_step", "same_step", "disabled")
GYMNASIUM_MODES: dict[str, AutoresetMode] = dict(
    zip(AUTORESET_MODES, (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED), strict=True)
)
# In the order of Bounds in cpp/bindings/array_input.h.
ACTION_BOUNDS = ("pass", "clip", "error")
BACKENDS = ("auto", "thread", "process", "inline")
SEED_LIMIT = 2**63
# Beyond this the lists that describe the envs would fill the memory before an error could.
MOST_ENVS = 2**24
MOST_RESTARTS = 2**16 - 1  # SM_MOST_FAILURES in cpp/core/env_table.h


@dataclass(frozen=True)
class Settings:
    """How a pool runs its envs, whatever they are."""

    num_envs: int
    batch_size: int
    num_threads: int
    num_workers: int
    seeds: Sequence[int]  # one per env
    backend: str
    autoreset: Autoreset
    max_episode_steps: int | None
    max_num_players: int
    thread_affinity_offset: int
    step_timeout: float | None
    reset_timeout: float | None
    start_timeout: float
    only_processes: str | None  # what was asked for that only worker processes have
    on_error: str
    max_restarts: int | None  # None: never give up
    action_bounds: str
    reward_dtype: str
    # Results come as they are ready, also where a batch holds all envs: what the env managers use.
    as_ready: bool = False

    @property
    def is_async(self) -> bool:
        return self.batch_size < self.num_envs


def refuse_same_step(players: int, settings: Settings) -> None:
    """Raises where an autoreset mode does not go with many players."""
    if players > 1 and settings.autoreset == "same_step":
        raise UnsupportedError(
            "autoreset='same_step' with many players: the row of an end would hold the rewards of those who "
            "played and the observations of those who begin, and they may differ in number. Use 'next_step'"
        )


def check_settings(
    *,
    num_envs: Any,
    batch_size: Any,
    num_threads: Any,
    num_workers: Any,
    seed: Any,
    backend: Any,
    autoreset: Any,
    max_episode_steps: Any,
    max_num_players: Any,
    thread_affinity_offset: Any,
    step_timeout: Any,
    reset_timeout: Any,
    start_timeout: Any,
    on_error: Any,
    max_restarts: Any,
    action_bounds: Any,
    output: Any,
    reward_dtype: str,
) -> Settings:
    """Checks what the user passed to ``make`` and fills in what depends on the machine."""
    envs = whole_number("num_envs", num_envs, 1, MOST_ENVS)
    batch = envs if batch_size is None else whole_number("batch_size", batch_size, 1, envs)
    if num_threads is None:
        threads = min(batch, _native.available_cores())
    else:
        threads = min(whole_number("num_threads", num_threads, 0, 4096), envs)
        threads = threads or min(batch, _native.available_cores())
    one_of("backend", backend, BACKENDS)
    asked = {"num_workers": num_workers, "step_timeout": step_timeout, "reset_timeout": reset_timeout}
    only_processes = next((name for name, value in asked.items() if value is not None), None)
    if backend in ("thread", "inline"):
        refuse_processes(only_processes)
    one_of("on_error", on_error, ("raise", "restart"))
    one_of("action_bounds", action_bounds, ACTION_BOUNDS)
    one_of("output", output, ("numpy",))
    return Settings(
        num_envs=envs,
        batch_size=batch,
        num_threads=threads,
        num_workers=min(envs, _native.available_cores())
        if num_workers is None
        else min(whole_number("num_workers", num_workers, 1, 4096), envs),
        seeds=_all_seeds(seed, envs),
        backend=backend,
        autoreset=_autoreset(autoreset),
        max_episode_steps=None
        if max_episode_steps is None
        else whole_number("max_episode_steps", max_episode_steps, 1, 2**31 - 1),
        max_num_players=whole_number("max_num_players", max_num_players, 1, 2**15),
        thread_affinity_offset=whole_number("thread_affinity_offset", thread_affinity_offset, -1, 2**15),
        step_timeout=None if step_timeout is None else seconds("step_timeout", step_timeout),
        reset_timeout=None if reset_timeout is None else seconds("reset_timeout", reset_timeout),
        start_timeout=seconds("start_timeout", start_timeout),
        only_processes=only_processes,
        on_error=on_error,
        max_restarts=_restarts(max_restarts),
        action_bounds=action_bounds,
        reward_dtype=reward_dtype,
    )


def _autoreset(given: Any) -> Autoreset:
    """A mode by our name for it, by Gymnasium's, or as Gymnasium's enum."""
    for name, mode in GYMNASIUM_MODES.items():
        if given is mode or (isinstance(given, str) and given in (name, mode.value)):
            return name  # type: ignore[return-value]
    known = ", ".join(map(repr, AUTORESET_MODES))
    raise ConfigError(f"autoreset: expected one of {known}, or gymnasium.vector.AutoresetMode, got {given!r}")


def _restarts(given: Any) -> int | None:
    if given is None or (isinstance(given, float) and given == math.inf):
        return None
    try:
        return whole_number("max_restarts", given, 0, MOST_RESTARTS)
    except ConfigError as error:
        raise ConfigError(f"{error}. None means to never give up") from None


def refuse_processes(name: str | None) -> None:
    """For backends without worker processes, where something was asked for that only these have."""
    if name == "num_workers":
        raise UnsupportedError("num_workers is for worker processes, and there are none here: use backend='process'")
    if name is not None:
        raise UnsupportedError(
            f"{name}: a deadline needs an env that can be interrupted, and neither the inline nor the thread backend "
            "can do that: use backend='process'. recv(timeout=...) limits the wait of the caller"
        )


def check_seeds(seed: Any, env_ids: Sequence[int], *, allow_none: bool = False) -> list[int | None]:
    """A seed for each env: ``seed + env_id`` from one number, or one by one from a list."""
    if isinstance(seed, Sequence) or getattr(seed, "ndim", 0) != 0:
        if len(seed) != len(env_ids):
            raise ConfigError(f"seed: expected a list of {len(env_ids)} seeds, one an env, got {len(seed)}")
        return [None if allow_none and one is None else _seed(one) for one in seed]
    first = _seed(seed)
    last = first + max(env_ids, default=0)
    if last >= SEED_LIMIT:
        raise ConfigError(f"seed: expected seed + env id below 2**63, got {last}")
    return [first + env_id for env_id in env_ids]


def _all_seeds(seed: Any, num_envs: int) -> Sequence[int]:
    """The same for all envs of a pool; from one number a range, since there may be a million."""
    if isinstance(seed, Sequence) or getattr(seed, "ndim", 0) != 0:
        return tuple(one for one in check_seeds(seed, range(num_envs)) if one is not None)
    first, *_ = check_seeds(seed, (0,))
    check_seeds(seed, (num_envs - 1,))
    assert first is not None
    return range(first, first + num_envs)


def _seed(value: Any) -> int:
    return whole_number("seed", value, 0, SEED_LIMIT - 1)
