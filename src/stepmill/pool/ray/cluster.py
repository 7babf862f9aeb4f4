"""The cluster: how this process comes into one, and how many actors of which size a pool has there."""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from stepmill.errors import ConfigError, ResourceError, UnsupportedError, UsageError, summary
from stepmill.optional import RAY, require
from stepmill.pool.settings import Settings

__all__ = ["Plan", "connect", "plan_actors"]


# ---- coming into a cluster -----------------------------------------------------------------------


def connect(settings: Settings) -> ModuleType:
    """Ray, in a cluster: the one of this process, the one at the address, one of this machine, or a new one here."""
    ray = require(*RAY, "backend='ray'")
    address = settings.address
    if address is not None:
        _refuse_client(address)
    if ray.is_initialized():
        if ray.util.client.ray.is_connected():
            raise UnsupportedError(
                "backend='ray': this process is in a cluster through Ray's client (ray://), which would carry every "
                "batch over one more hop: run the program on a machine of the cluster instead, with `ray job submit`"
            )
        here = ray.get_runtime_context().gcs_address
        if address not in (None, "auto") and not _is_same(address, here, ray.util.get_node_ip_address()):
            raise UsageError(
                f"address: this process is in the Ray cluster at {here}, and cannot be in the one at {address} too: "
                "leave address out, or call ray.shutdown() first"
            )
        return ray
    if given := address or os.environ.get("RAY_ADDRESS"):
        _refuse_client(given)
        _reach(given, settings.start_timeout)
    try:
        ray.init(address=address, logging_level=logging.WARNING)
    except Exception as error:  # Ray raises anything, also a bare Exception
        where = "a Ray cluster could not be started here" if address is None else f"address={address!r}: no Ray cluster"
        raise ResourceError(f"{where}: {summary(error)}") from error
    return ray


def _refuse_client(address: str) -> None:
    if "://" in address:
        raise UnsupportedError(
            f"address: expected 'host:port', 'auto' or 'local', got {address!r}. Ray's client would carry every batch "
            "over one more hop: run the program on a machine of the cluster instead, with `ray job submit`"
        )


def _is_same(address: str, known: str, here: str) -> bool:
    """Whether an address is another name of a cluster that is known by a number. ``here``: this machine's own."""
    host, _, port = address.rpartition(":")
    known_host, _, known_port = known.rpartition(":")
    if port != known_port:
        return False
    numbers = _numbers(host)
    return not numbers.isdisjoint(_numbers(known_host)) or (
        known_host == here and any(ipaddress.ip_address(one).is_loopback for one in numbers)
    )


def _numbers(host: str) -> set[str]:
    host = host.strip("[]")
    try:
        return {str(one[4][0]) for one in socket.getaddrinfo(host, None)}
    except OSError:  # nobody knows that name
        return set()


def _reach(address: str, seconds: float) -> None:
    """Ray itself would try for a long time, and then say little."""
    if address in ("auto", "local"):
        return
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise ConfigError(f"address: expected 'host:port', 'auto' or 'local', got {address!r}")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=min(seconds, 10.0)).close()
    except OSError as error:
        raise ResourceError(
            f"address: no Ray cluster answers at {address}: {summary(error)}. `ray status` on the head node tells "
            "whether it runs, and `ray start --head` prints the address"
        ) from error


# ---- how many actors of which size ---------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """The actors of a pool."""

    num_actors: int
    workers: int  # threads or processes of each
    needs: Mapping[str, float]  # what each takes of its node; "CPU" is always there

    @property
    def shown_needs(self) -> str:
        return ", ".join(f"{amount:g} {name}" for name, amount in self.needs.items())

    def options(self) -> dict[str, Any]:
        """The same as Ray's options of an actor."""
        rest = dict(self.needs)
        options: dict[str, Any] = {"num_cpus": rest.pop("CPU"), "num_gpus": rest.pop("GPU", 0)}
        if "memory" in rest:
            options["memory"] = int(rest.pop("memory"))
        return {**options, "resources": rest}


def plan_actors(nodes: Sequence[Mapping[str, Any]], settings: Settings, is_native: bool) -> Plan:
    """By default an actor per node, with a worker for each of its CPUs.

    Args:
        nodes: As ``ray.nodes()`` describes them.
        settings: Says how many actors, how many workers each, and what else an actor needs, as far as it does.
        is_native: Whether threads or processes are the workers.
    """
    needs = dict(settings.resources or {})
    asked = settings.num_threads if is_native else settings.num_workers
    if not asked and needs.get("CPU", 0) >= 1:
        asked = int(needs["CPU"])
    cpus = [int(one["CPU"]) for one in (node["Resources"] for node in nodes if node["Alive"]) if _has(one, needs)]
    most = settings.num_actors
    if most is None:
        workers = asked or min(cpus, default=1)
        most = sum(count // workers for count in cpus) if asked else len(cpus)
    else:
        workers = asked or _largest(cpus, most)
    num_actors = max(1, min(most, settings.num_envs))
    workers = min(workers, -(-settings.num_envs // num_actors))
    return Plan(num_actors, workers, {"CPU": float(workers), **needs})


def _has(node: Mapping[str, float], needs: Mapping[str, float]) -> bool:
    """Whether a node could have one of the actors, if nothing else ran there."""
    return node.get("CPU", 0) >= 1 and all(node.get(name, 0) >= amount for name, amount in needs.items())


def _largest(cpus: Sequence[int], num_actors: int) -> int:
    """The most workers with which so many actors fit on the nodes; 1 if they do not fit: more nodes may come."""
    for workers in range(max(cpus, default=1), 1, -1):
        if sum(count // workers for count in cpus) >= num_actors:
            return workers
    return 1
