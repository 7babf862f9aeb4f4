"""Native envs whose calls wait for something: nobody waits for them who need not."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import numpy as np
import pytest

import stepmill
from support.waiting import wait_until_inside

N = 12


@pytest.fixture
def gate() -> Iterator[tuple[int, int]]:
    read, write = os.pipe()
    yield read, write
    os.close(read)
    os.close(write)


@pytest.mark.parametrize("batch_size", [1, N - 1])
@pytest.mark.parametrize("where", ["step", "reset"])
@pytest.mark.parametrize("stuck", [0, N // 2, N - 1])
def test_envs_come_back_past_one_that_is_stuck(gate: tuple[int, int], stuck: int, where: str, batch_size: int) -> None:
    read, write = gate
    configs = [{"gate_fd": read if i == stuck else -1, "gate_in": where} for i in range(N)]
    pool = stepmill.make(
        "Probe-v0", num_envs=N, batch_size=batch_size, num_threads=2, length=1 << 30, env_config=configs
    )
    with pool:
        actions, ids = np.zeros(N, np.float32), np.arange(N)
        others = sorted(set(range(N)) - {stuck})
        if where == "reset":
            os.write(write, b"x")
        pool.reset()
        for _ in range(20):  # steps are known to be cheap then
            os.write(write, b"x" * (where == "step"))
            pool.send(actions, ids)
            while pool.stats()["in_flight"]:
                pool.recv()
        for _ in range(3):
            if where == "reset":
                pool.async_reset()
            else:
                pool.send(actions, ids)
            back: list[int] = []
            while len(back) < N - 1:
                back += pool.recv()[-1]["env_id"].tolist()
            assert sorted(back) == others
            for _ in range(5):  # as long as it takes
                pool.send(actions[: N - 1], np.array(others))
                back = []
                while len(back) < N - 1:
                    back += pool.recv()[-1]["env_id"].tolist()
                assert sorted(back) == others
            os.write(write, b"x")
            assert pool.recv()[-1]["env_id"].tolist() == [stuck]


@pytest.mark.parametrize("batch_size", [1, 2])
def test_a_calling_thread_that_is_stuck_lets_others_run(gate: tuple[int, int], batch_size: int) -> None:
    read, write = gate
    with stepmill.make(
        "Probe-v0", num_envs=2, batch_size=batch_size, backend="inline", length=1 << 30, gate_fd=read
    ) as pool:
        actions, ids = np.zeros(2, np.float32), np.arange(2)
        pool.reset()

        def step() -> None:
            pool.send(actions, ids)
            while pool.stats()["in_flight"]:
                pool.recv()

        for _ in range(20):  # now its steps are known to be cheap
            os.write(write, b"xx")
            step()

        def open_gate() -> None:
            wait_until_inside(pool)
            os.write(write, b"xx")

        opener = threading.Thread(target=open_gate)
        opener.start()
        step()
        opener.join()
