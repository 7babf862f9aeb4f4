"""Envs that run for very long without a deadline: a warning names each once, with its stack.

The warning opens the gate at which the env waits: nothing depends on how fast the machine is.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import stepmill
from support.envs.faulty import act, collect, send
from support.waiting import Gate

pytestmark = pytest.mark.usefixtures("deadline", "server")


class Said(list[str]):
    """The warnings so far. Each env that one names is let through."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def show(self, message: Any, *_: Any, **__: Any) -> None:
        self.append(str(message))
        for env_id in self.envs():
            self._gate.open(env_id)

    def envs(self) -> list[int]:
        """Those of the last warning."""
        return [int(env_id) for env_id in re.findall(r"env (\d+) has been in", self[-1])]


@pytest.fixture
def said(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> Iterator[Said]:
    said = Said(gate)
    monkeypatch.setattr("stepmill.hosts.host.SLOW_S", 0.05)
    with warnings.catch_warnings():
        warnings.showwarning = said.show
        yield said


@pytest.mark.parametrize("batch_size", [4, 1], ids=["sync", "async"])
def test_a_step_is_named_with_its_stack(make: Any, said: Said, batch_size: int) -> None:
    pool = make({2: "gate"}, num_envs=4, batch_size=batch_size)
    pool.reset()
    send(pool, 2)
    rows = collect(pool)
    (text,) = said
    assert re.match(
        r"FaultyEnv: env 2 has been in step for 0.05 s, and no step_timeout ends it. It runs in worker 1 \(pid \d+\)",
        text,
    )
    assert "in wait_at_gate" in text
    assert "waiting.py" in text
    assert not rows[2].abnormal


def test_an_env_is_named_once(make: Any, said: Said, gate: Gate) -> None:
    pool = make({0: "gate", 2: "gate"}, num_envs=4, num_workers=2, batch_size=1, at=[1, 2])
    pool.reset()
    send(pool, 0)
    collect(pool)
    assert (len(said), said.envs()) == (1, [0])
    send(pool, 0)  # is slow again, and this time nothing opens the gate
    send(pool, 2)
    pool.recv()
    assert (len(said), said.envs()) == (2, [2])
    gate.open(0)
    pool.recv()
    assert len(said) == 2


def test_the_same_env_of_another_pool_is_named_too(make: Any, said: Said) -> None:
    for count in (1, 2):
        pool = make({0: "gate"}, num_envs=2)
        pool.reset()
        send(pool, 0)
        collect(pool)
        assert (len(said), said.envs()) == (count, [0])


def test_a_reset_is_named_too(make: Any, said: Said) -> None:
    pool = make({1: "gate"}, num_envs=2, where="reset")
    pool.reset()
    (text,) = said
    assert text.startswith("FaultyEnv: env 1 has been in reset for 0.05 s, and no reset_timeout ends it")


def test_what_has_a_deadline_is_not_named(make: Any, said: Said, gate: Gate) -> None:
    pool = make({0: "gate"}, num_envs=2, where="reset", reset_timeout=600)
    pool.async_reset()
    assert gate.wait() == 0
    # Steps have none: that one is named shows that the monitor has looked at the reset too.
    other = make({1: "gate"}, num_envs=2)
    other.reset()
    send(other, 1)
    collect(other)
    assert (len(said), said.envs()) == (1, [1])
    gate.open(0)
    pool.recv()
    assert len(said) == 1


def test_a_call_is_named(make: Any, said: Said) -> None:
    pool = make({0: "gate"}, num_envs=2, where="visit")
    pool.reset()
    assert pool.call("visit", env_ids=[0]) == ((0, None),)
    (text,) = said
    assert text.startswith("FaultyEnv: env 0 has been in a call for 0.05 s")


def test_by_default_it_is_a_minute() -> None:
    from stepmill.hosts import host

    assert host.SLOW_S == 60


def test_a_warning_never_becomes_an_error(make: Any, said: Said) -> None:
    pool = make({0: "gate"}, num_envs=2)
    pool.reset()
    warnings.simplefilter("error")
    rows = act(pool)
    assert not rows[0].abnormal
    assert said.envs() == [0]


# ---- native envs on threads ----------------------------------------------------------------------


def test_a_native_env_on_a_thread_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stepmill.hosts.host.SLOW_S", 0.05)
    read, write = os.pipe()
    said: list[str] = []

    def show(message: Any, *_: Any, **__: Any) -> None:
        said.append(str(message))
        os.write(write, b"x")

    configs = [{"gate_fd": read if i == 2 else -1, "gate_in": "step"} for i in range(3)]
    with (
        stepmill.make("Probe-v0", num_envs=3, num_threads=2, length=1 << 30, env_config=configs) as pool,
        warnings.catch_warnings(),
    ):
        warnings.showwarning = show
        pool.reset()
        pool.step(np.zeros(3, np.float32))
        (text,) = said
        assert text.startswith("Probe-v0: env 2 has been in step or reset for 0.05 s, on a thread")
        os.write(write, b"x")
        pool.step(np.zeros(3, np.float32))
        assert len(said) == 1
    os.close(read)
    os.close(write)
