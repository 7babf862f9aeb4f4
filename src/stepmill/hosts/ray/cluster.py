"""The cluster: how this process comes into one, and how many actors of which size a pool has there."""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from stepmill.errors import ConfigError, ResourceError, UnsupportedError, UsageError, summary
from stepmill.settings import Settings
from stepmill.system.optional import RAY, require

# What a client of HTTP/2, which Ray's services speak, says first: its greeting, and that it has no settings.
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
# How the answer begins after three bytes of length: settings too, of the whole connection.
_SETTINGS = bytes([4, 0, 0, 0, 0, 0])
# A service that runs answers at once.
_ANSWER_S = 10.0
# Ray divides resources no finer.
_FINEST = 10_000


# ---- coming into a cluster -----------------------------------------------------------------------


def connect(settings: Settings) -> ModuleType:
    """Ray, in a cluster: the one of this process, the one at the address, one of this machine, or a new one here."""
    ray = require(*RAY, "backend='ray'")
    address = settings.ray.address
    if address is not None:
        _refuse_client(address)
    if ray.is_initialized():
        if ray.util.client.ray.is_connected():
            raise UnsupportedError(
                "backend='ray': this process is in a cluster through Ray's client (ray://), which would carry every "
                "batch over one more hop: run the program on a machine of the cluster instead, with `ray job submit`"
            )
        here = ray.get_runtime_context().gcs_address
        if address == "local" and _has_started_it(ray):
            return ray  # so that a second pool may say the same as the first
        if address not in (None, "auto") and not _is_same(address, here, ray.util.get_node_ip_address()):
            raise UsageError(
                f"address: this process is in the Ray cluster at {here}, and cannot be in the one at {address} too: "
                "leave address out, or call ray.shutdown() first"
            )
        return ray
    if given := os.environ.get("RAY_ADDRESS") if address in (None, "auto") else address:
        _refuse_client(given)
        _reach(ray, given, settings.start_timeout)
    try:
        ray.init(address=address, logging_level=logging.WARNING)
    except Exception as error:  # Ray raises anything, also a bare Exception
        where = f"at {given!r}" if given else "here"
        raise ResourceError(f"no Ray cluster could be joined or started {where}: {summary(error)}") from error
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


def _has_started_it(ray: ModuleType) -> bool:
    """Whether this process has started the cluster that it is in, and ends it when it leaves."""
    node = getattr(ray._private.worker, "_global_node", None)
    return bool(node is not None and node.is_head())


def _reach(ray: ModuleType, address: str, seconds: float) -> None:
    """Ray itself would try for a long time, and then say little; at what is no Ray cluster it would wait forever."""
    if address in ("auto", "local"):
        return
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise ConfigError(f"address: expected 'host:port', 'auto' or 'local', got {address!r}")
    end = time.monotonic() + seconds
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=min(seconds, _ANSWER_S)) as connection:
            stranger = None if _is_encrypted() else _stranger(connection)
    except OSError as error:
        raise ResourceError(
            f"address: no Ray cluster answers at {address}: {summary(error)}. `ray status` on the head node tells "
            "whether it runs, and `ray start --head` prints the address"
        ) from error
    stranger = stranger or _stranger_to_ray(ray, address, end - time.monotonic())
    if stranger is not None:
        raise ResourceError(
            f"address: no Ray cluster answers at {address}: {stranger}. `ray start --head` prints the address: its "
            "port is 6379 by default, and 8265 is that of the dashboard"
        )


def _is_encrypted() -> bool:
    return os.environ.get("RAY_USE_TLS", "").lower() in ("1", "true")


def _stranger(connection: socket.socket) -> str | None:
    """What is at the other end if it is none of Ray's services. No token is needed to learn this."""
    end = time.monotonic() + (connection.gettimeout() or _ANSWER_S)
    connection.sendall(_GREETING)
    said = b""
    expected = 3 + len(_SETTINGS)
    try:
        while len(said) < expected and (more := connection.recv(expected - len(said))):
            said += more
            connection.settimeout(max(0.001, end - time.monotonic()))
    except TimeoutError:
        return "something takes connections there, and says nothing that Ray would"
    except ConnectionError:
        pass  # it did not like the greeting
    if said[3:] == _SETTINGS:
        return None
    return "a web server does" if said.startswith((b"HTTP/", b"<")) else "something else does"


def _stranger_to_ray(ray: ModuleType, address: str, seconds: float) -> str | None:
    """Which service of Ray answers that is not the cluster's own, such as a node's; None as far as Ray can tell."""
    try:
        ask = ray._raylet.InnerGcsClient.standalone  # what `ray health-check` uses, with a deadline
        lacks_token, has_no_answer = ray.exceptions.AuthenticationError, ray.exceptions.RpcError
    except AttributeError:  # another version of Ray: ray.init is to find out
        return None
    try:
        ask(address, None, max(1, int(seconds * 1000)))
    except lacks_token as error:
        raise ResourceError(f"address: the Ray cluster at {address} refuses this process: {summary(error)}") from error
    except has_no_answer as error:
        return f"another service does ({summary(error).rstrip(' :')})"
    except Exception:  # it takes other arguments in this version of Ray: the same
        return None
    return None


# ---- how many actors of which size ---------------------------------------------------------------


@dataclass(frozen=True)
class ActorPlan:
    """The actors of a pool."""

    num_actors: int
    workers: int  # threads or processes of each
    needs: Mapping[str, float]  # what each takes of its node; "CPU" is always there

    @property
    def shown_needs(self) -> str:
        return ", ".join(f"{amount:g} {name}" for name, amount in self.needs.items())

    def options(self) -> dict[str, Any]:
        """What each actor needs, as options of Ray."""
        rest = dict(self.needs)
        options: dict[str, Any] = {"num_cpus": rest.pop("CPU"), "num_gpus": rest.pop("GPU", 0)}
        if "memory" in rest:
            options["memory"] = int(rest.pop("memory"))
        return {**options, "resources": rest}


def plan_actors(nodes: Sequence[Mapping[str, Any]], settings: Settings, on_threads: bool) -> ActorPlan:
    """By default an actor per node, with a worker for each of its CPUs.

    Args:
        nodes: As ``ray.nodes()`` describes them.
        settings: Says how many actors, how many workers each, and what else an actor needs, as far as it does.
        on_threads: Whether threads are the workers, or processes.
    """
    needs = dict(settings.ray.resources or {})
    asked = settings.num_threads if on_threads else settings.num_workers
    if not asked and needs.get("CPU", 0) >= 1:
        asked = int(needs["CPU"])
    fitting = [one for one in (node["Resources"] for node in nodes if node["Alive"]) if _fits(one, 1, needs)]
    most = settings.ray.num_actors
    if most is None:
        workers = asked or min((int(one["CPU"]) for one in fitting), default=1)
        most = sum(_fits(one, workers, needs) for one in fitting) if asked else len(fitting)
    else:
        workers = asked or _largest(fitting, most, needs)
    num_actors = max(1, min(most, settings.num_envs))
    workers = min(workers, -(-settings.num_envs // num_actors))
    return ActorPlan(num_actors, workers, {"CPU": float(workers), **needs})


def _fits(node: Mapping[str, float], workers: int, needs: Mapping[str, float]) -> int:
    """How many actors with ``workers`` each a node could have, if nothing else ran there."""
    wanted = {**needs, "CPU": max(workers, needs.get("CPU", 0))}  # not more workers than CPUs, even if they take less
    return min(_times(name, node.get(name, 0), amount) for name, amount in wanted.items() if amount)


def _times(name: str, available: float, amount: float) -> int:
    """How often an amount of a resource can be taken."""
    if name == "GPU" and amount < 1:  # an actor has its fraction of one GPU, not of two
        return int(available) * _times("", 1, amount)
    return round(available * _FINEST) // max(1, round(amount * _FINEST))


def _largest(nodes: Sequence[Mapping[str, float]], num_actors: int, needs: Mapping[str, float]) -> int:
    """The most workers per actor with which all actors fit on the nodes; 1 if none do: more nodes may come."""
    for workers in range(max((int(one["CPU"]) for one in nodes), default=1), 1, -1):
        if sum(_fits(one, workers, needs) for one in nodes) >= num_actors:
            return workers
    return 1
