"""What a worker does once its envs are built: serves them to the pool until told to stop.

The loop is C++ (``cpp/bindings/worker_object.cpp``); here is what it calls for everything that arrays
cannot carry: reset options and objects on their way in, infos, objects and exceptions on their way out.
"""

from __future__ import annotations

import functools
import os
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import cloudpickle

from stepmill import _native
from stepmill.errors import ConfigError
from stepmill.pool.attributes import call_env, get_attribute, set_attribute
from stepmill.pool.process.remote_error import describe
from stepmill.pool.process.wire import Wire
from stepmill.pool.rows import objects_of, snapshot
from stepmill.pool.source import NativeSource, PythonSource

__all__ = ["serve"]


def serve(
    wire: Wire,
    worker_id: int,
    source: PythonSource | NativeSource,
    envs: list[Any],
    first_env: int,
    attachment: dict[str, Any],
    fds: list[int],
    set_current_env: Callable[[Callable[[], int | None]], None],
) -> list[tuple[int, bytes]]:
    """Runs until the pool stops this worker, then closes the envs: (env id, what failed) of each that raised."""
    arena, outbox = fds
    common = {
        "arena": arena,
        "outbox": outbox,
        "worker": worker_id,
        "first_env": first_env,
        "read_mail": pickle.loads,
        "answer": functools.partial(_answer, envs, first_env),
        **attachment,
    }
    if isinstance(source, NativeSource):
        last_env = first_env + attachment["env_count"]
        worker = _native.Worker.make(
            **{**common, "configs": source.configs[first_env:last_env]}, write_note=pickle.dumps
        )
    else:
        tree = attachment["observation_tree"]
        worker = _native.Worker.make(
            **common,
            envs=envs,
            limits=[env.max_episode_steps for env in source.envs[first_env : first_env + len(envs)]],
            snapshot=snapshot,
            objects_of=functools.partial(objects_of, tree) if attachment["has_objects"] else None,
            write_note=_write_note,
        )
    for fd in fds:
        os.close(fd)
    set_current_env(lambda: None if worker.running < 0 else worker.running)
    worker.run()
    failed = []
    for env_id, env in enumerate(envs, first_env):
        set_current_env(functools.partial(int, env_id))
        try:
            env.close()
        except Exception as error:
            failed.append((env_id, describe(error)))
    return failed


# ---- out -----------------------------------------------------------------------------------------


def _write_note(
    info: Any, final_info: Any, objects: Any, final_objects: Any, error: BaseException | None, phase: str
) -> bytes:
    described = None if error is None else describe(error)
    note = (info, final_info, objects, final_objects, described, phase)
    try:
        return pickle.dumps(note, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception:
        pass
    try:  # lambdas, and classes that only this process knows
        by_value: bytes = cloudpickle.dumps(note)
        return by_value
    except Exception:
        kept = (_travelling(info), _travelling(final_info), objects, final_objects, described, phase)
        pruned: bytes = cloudpickle.dumps(kept)
        return pruned


def _travelling(info: Any) -> Any:
    """The parts of an info that can be pickled. The others cannot leave this process, and the user is told."""
    if not isinstance(info, dict):
        return info
    kept = {}
    for key, value in info.items():
        try:
            cloudpickle.dumps(value)
        except Exception as error:
            warnings.warn(
                f"info[{key!r}] cannot be pickled, so it stays in the worker process: {type(error).__name__}: {error}",
                stacklevel=2,
            )
        else:
            kept[key] = value
    return kept


# ---- calls ---------------------------------------------------------------------------------------


def _answer(envs: list[Any], first_env: int, env_id: int, question: bytes) -> bytes:
    """Does what the pool asks of one env. Never raises: what goes wrong is the answer."""
    try:
        kind, name, args, kwargs = pickle.loads(question)
        value = _do(envs[env_id - first_env], kind, name, args, kwargs)
    except BaseException as error:
        return pickle.dumps((False, describe(error)))
    try:
        return pickle.dumps((True, value), protocol=pickle.HIGHEST_PROTOCOL)
    except Exception:
        pass
    try:
        by_value: bytes = cloudpickle.dumps((True, value))
        return by_value
    except Exception as error:
        reason = f"{kind} {name!r} of env {env_id}: its value, a {type(value).__name__}, cannot be pickled: {error}"
        return pickle.dumps((False, describe(ConfigError(reason))))


def _do(env: Any, kind: str, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if kind == "call":
        return call_env(env, name, args, kwargs)
    if kind == "get":
        return get_attribute(env, name)
    if kind == "set":
        set_attribute(env, name, *args)
        return None
    if kind == "render":
        return env.render()
    return cloudpickle.dumps(env)  # "pickle": an env on its way to another process
