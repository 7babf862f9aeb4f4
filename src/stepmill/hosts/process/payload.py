"""What the caller sends to the workers: the blueprints of the envs, and the surroundings that they expect.

There are two layers. The outer one holds plain data and can always be read. It sets up ``sys.path``, the working
directory, the environment, warnings and logging. Only then can the inner one be read, which imports the user's modules.

An island keeps what belongs to its interpreter: its own ``sys.path``, to which only the user's own folders are added,
and its own ids.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
import logging
import os
import pickle
import re
import resource
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium

from stepmill.errors import ConfigError
from stepmill.hosts.process import plain
from stepmill.hosts.process.pickling import AT_HOME, ON_RAY, CodeByValue, Destination, dumps
from stepmill.sources.find import resolved
from stepmill.sources.source import NativeSource, PythonSource
from stepmill.system.interpreters import environ_for, own_folders

Dump = Callable[[Any], bytes]

# Each worker has one core at best: libraries that start a thread per core would only get in the way.
_THREAD_SETTINGS = (
    "OPENBLAS_NUM_THREADS",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)


def one_thread_each(environ: Mapping[str, str]) -> dict[str, str]:
    """An environment in which numerical libraries use one thread, unless the user has set another number."""
    return {**dict.fromkeys(_THREAD_SETTINGS, "1"), **environ}


def pack_payload(source: PythonSource | NativeSource, python: str | None = None, to: Destination = AT_HOME) -> bytes:
    """Packs a source and the surroundings of the calling process; for an island, the path of its interpreter."""
    dump = functools.partial(dumps, searched={}, to=to)
    environ = dict(os.environ)
    return pickle.dumps(
        {
            "argv": list(getattr(sys, "argv", [])),
            "sys_path": [one for one in sys.path if isinstance(one, str)] if python is None else own_folders(),
            "cwd": _working_directory(),
            "environ": environ if python is None else environ_for(python, environ),
            "inherited": _inherited(),
            "warnings": _warning_filters(dump),
            "logging": _logging(dump),
            "gymnasium_level": gymnasium.logger.min_level,
            "specs": _pickled_specs(dump) if python is None else [],
            "pickled_source": _pickled_source(source, dump, to),
        },
        plain.PROTOCOL,
    )


def unpack_payload(packed: bytes) -> Payload:
    """Reads the outer layer."""
    return Payload(**pickle.loads(packed))


def pack_sources(sources: Iterable[PythonSource | NativeSource]) -> list[SourcePayload]:
    """Packs sources for other machines, which have surroundings of their own. All get the same ids."""
    dump = functools.partial(dumps, searched={}, to=ON_RAY)
    specs = _pickled_specs(dump)
    return [SourcePayload(specs, _pickled_source(source, dump, ON_RAY)) for source in sources]


@dataclass(frozen=True)
class SourcePayload:
    """The envs to build, and the ids that they may ask for."""

    specs: list[bytes]
    pickled_source: bytes

    def source(self) -> PythonSource | NativeSource:
        """Reads the envs. This runs the user's code, and may raise whatever that raises."""
        self._register_specs()  # the objects that are rebuilt may ask for an env by its id
        source: PythonSource | NativeSource = pickle.loads(self.pickled_source)
        if isinstance(source, PythonSource):
            source = resolved(source)
        self._register_specs()  # the modules imported just now have registered their own versions
        return source

    def _register_specs(self) -> None:
        for specs in self.specs:
            # A spec that cannot be read is missing only for envs that use it.
            with contextlib.suppress(Exception):
                gymnasium.registry.update(pickle.loads(specs))


@dataclass(frozen=True)
class Payload(SourcePayload):
    """The outer layer: what ``pack_payload`` found in the caller, and the inner layer as bytes."""

    argv: list[str]
    sys_path: list[str | None]  # None stands for what this interpreter has itself
    cwd: str
    environ: dict[str, str]
    inherited: dict[str, Any]
    warnings: list[tuple[str, bytes]]
    logging: dict[str, Any]
    gymnasium_level: int

    def apply(self) -> None:
        """Makes this process look like the caller's, as far as modules can tell when they are imported."""
        sys.argv[:] = self.argv
        own = list(sys.path)
        sys.path[:] = [one for entry in self.sys_path for one in (own if entry is None else [entry])]
        with contextlib.suppress(OSError):  # it was deleted in the meantime
            os.chdir(self.cwd)
        os.environ.clear()
        os.environ.update(one_thread_each(self.environ))
        _inherit(**self.inherited)
        importlib.invalidate_caches()  # files may have changed since they were looked up
        gymnasium.logger.min_level = self.gymnasium_level
        _apply_logging(self.logging)
        warnings.resetwarnings()
        # We register the caller's ids before the modules that register them are imported: no reason to warn.
        warnings.filterwarnings("ignore", r".*Overriding environment .* already in registry")
        self._apply_warnings(self._known_warnings())

    def _known_warnings(self) -> set[int]:
        """The filters of categories whose module is loaded. The others mean nothing here."""
        return {i for i, (module, _) in enumerate(self.warnings) if module in sys.modules}

    def _apply_warnings(self, chosen: set[int]) -> None:
        for i in sorted(chosen):
            with contextlib.suppress(Exception):  # the category may be the user's own class
                action, message, category, module, line = pickle.loads(self.warnings[i][1])
                warnings.filterwarnings(action, message, category, module, line, append=True)

    def source(self) -> PythonSource | NativeSource:
        """Reads the inner layer."""
        before = self._known_warnings()
        source = super().source()
        self._apply_warnings(self._known_warnings() - before)  # of the modules that this imported
        return source


# ---- the source ----------------------------------------------------------------------------------


def _pickled_source(source: PythonSource | NativeSource, dump: Dump, to: Destination) -> bytes:
    try:
        return dump(source)
    except CodeByValue:
        raise
    except Exception as error:  # pickling a user's object may raise anything
        has_islands = isinstance(source, PythonSource) and source.has_islands
        inline = "" if has_islands or to == ON_RAY else ", or use backend='inline'"
        raise ConfigError(
            f"{_culprit(source)} cannot be sent to {to.name}: {type(error).__name__}: {error}. "
            f"Build what cannot be pickled inside the factory{inline}"
        ) from error


def _culprit(source: PythonSource | NativeSource) -> str:
    """The part of the source that cannot be pickled."""
    if isinstance(source, PythonSource):
        for env_id, env in enumerate(source.envs):
            if not _is_picklable(env.factory):
                return f"the factory of env {env_id} ({source.id})"
            for key, value in env.config.items():
                if not _is_picklable(value):
                    return f"config key {key!r} of env {env_id} ({source.id})"
    return source.id


def _is_picklable(value: Any) -> bool:
    try:
        dumps(value)
    except Exception:
        return False
    return True


# ---- gymnasium's registry ------------------------------------------------------------------------


def _pickled_specs(dump: Dump) -> list[bytes]:
    """Every id that Gymnasium knows here. Specs that only name their code go together: reading them cannot fail."""
    named, with_code = {}, []
    for id, spec in gymnasium.registry.items():
        found = _without_main(spec)
        if isinstance(found.entry_point, str | None) and isinstance(found.vector_entry_point, str | None):
            named[id] = found
        else:
            with_code.append({id: found})
    return [*_each_pickled([named, *with_code], dump, split=True)]


def _without_main(spec: Any) -> Any:
    """A spec with the objects themselves for entry points in ``__main__``: no worker has that module."""
    main = sys.modules.get("__main__")
    for field in ("entry_point", "vector_entry_point"):
        module, _, name = str(getattr(spec, field)).partition(":")
        if module == "__main__" and hasattr(main, name):
            spec = copy.copy(spec)
            setattr(spec, field, getattr(main, name))
    return spec


def _each_pickled(values: list[Any], dump: Dump, split: bool = False) -> list[bytes]:
    """Pickles values one by one and leaves out those that fail; a dict that fails is split by its keys."""
    pickled = []
    for value in values:
        try:
            pickled.append(dump(value))
        except Exception:
            if split and len(value) > 1:
                pickled += _each_pickled([{key: one} for key, one in value.items()], dump)
    return pickled


# ---- surroundings --------------------------------------------------------------------------------


def _working_directory() -> str:
    try:
        return os.getcwd()
    except FileNotFoundError:  # it was deleted, and can be entered in this way only
        return f"/proc/{os.getpid()}/cwd"


_LIMITS = {getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")}


def _inherited() -> dict[str, Any]:
    """What a process has from its parent. A worker's is the server, which may have started long ago."""
    return {
        "limits": {limit: resource.getrlimit(limit) for limit in _LIMITS},
        "cores": os.sched_getaffinity(0),
        "niceness": os.getpriority(os.PRIO_PROCESS, 0),
        "umask": int(re.findall(rb"^Umask:\s*(\d+)", Path("/proc/self/status").read_bytes(), re.MULTILINE)[0], 8),
    }


def _inherit(limits: dict[int, tuple[int, int]], cores: set[int], niceness: int, umask: int) -> None:
    os.umask(umask)
    with contextlib.suppress(OSError):  # the cores may be taken away at any time
        os.sched_setaffinity(0, cores)
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, niceness)
    for limit, values in limits.items():
        with contextlib.suppress(OSError, ValueError):  # to raise some takes a privilege
            if resource.getrlimit(limit) != values:
                resource.setrlimit(limit, values)


def _warning_filters(dump: Dump) -> list[tuple[str, bytes]]:
    """The filters, each with the module of its category: unpickling one of torch's would import torch."""
    out = []
    for action, message, category, module, line in warnings.filters:
        with contextlib.suppress(Exception):  # it may be impossible to pickle the category
            packed = dump((action, _pattern(message), category, _pattern(module), line))
            out.append((category.__module__, packed))
    return out


def _pattern(given: Any) -> str:
    """A filter holds None, text or a compiled expression."""
    return getattr(given, "pattern", given) or ""


def _logging(dump: Dump) -> dict[str, Any]:
    loggers = {name: one for name, one in logging.root.manager.loggerDict.items() if isinstance(one, logging.Logger)}
    loggers[""] = logging.getLogger()
    return {
        "disabled": logging.root.manager.disable,
        "levels": {name: one.level for name, one in loggers.items() if one.level != logging.NOTSET or not name},
        "silent": [name for name, one in loggers.items() if not one.propagate],
        # One per logger: what the caller logs to files or streams goes to stderr in a worker.
        "formatters": {
            name: _formatter(name, one.handlers[0].formatter, dump) for name, one in loggers.items() if one.handlers
        },
    }


def _formatter(logger: str, formatter: logging.Formatter | None, dump: Dump) -> bytes:
    """A formatter as bytes. If it cannot be pickled, a plain one with the same format replaces it.

    The same goes for a formatter that a package has for its own loggers: unpickling torch's would import torch.
    """
    is_its_own = logger.partition(".")[0] == type(formatter).__module__.partition(".")[0]
    with contextlib.suppress(Exception):
        pickled = dump(formatter)
        if not is_its_own:
            pickle.loads(pickled)
            return pickled
    with contextlib.suppress(Exception):
        simple = logging.Formatter(getattr(formatter, "_fmt", None), getattr(formatter, "datefmt", None))
        return dump(simple)
    return pickle.dumps(None)


class StderrHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Shows log records in a worker if the caller has handlers for them."""


def _apply_logging(settings: dict[str, Any]) -> None:
    logging.disable(settings["disabled"])
    for name, level in settings["levels"].items():
        logging.getLogger(name).setLevel(level)
    for name in settings["silent"]:
        logging.getLogger(name).propagate = False
    for name, formatter in settings["formatters"].items():
        handler = StderrHandler(sys.stderr)
        with contextlib.suppress(Exception):  # its class may be in a module that is gone
            handler.setFormatter(pickle.loads(formatter))
        logging.getLogger(name).addHandler(handler)
