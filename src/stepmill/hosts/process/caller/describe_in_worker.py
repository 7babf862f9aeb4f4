"""Asks an env what only an env knows, in the process where a pool would build it."""

from __future__ import annotations

import pickle

from stepmill.hosts.process.caller.launcher import Launcher
from stepmill.registry.description import EnvDescription
from stepmill.settings import Settings
from stepmill.sources.source import PythonSource


def describe_source_in_worker(source: PythonSource, settings: Settings) -> tuple[PythonSource, EnvDescription]:
    """What env 0 is like, and the source with what islands have found out. As ``describe_source``, in a worker."""
    launcher = Launcher(source, settings)
    described: EnvDescription = pickle.loads(launcher.describe())
    return source.completed(launcher.found), described
