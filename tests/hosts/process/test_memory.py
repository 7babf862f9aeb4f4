"""What an env does in its worker process to memory and descriptors costs that worker at most."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepmill
from stepmill.errors import BrokenPoolError, StepmillError
from support import scribble
from support.envs import wild
from support.waiting import no_hang

MOMENTS = ("reset", "step", "render", "call")


@pytest.fixture(autouse=True)
def bounded() -> Any:
    with no_hang():
        yield


def make(env: Any, folder: Path | str = "", moment: str = "step", **options: Any) -> Any:
    return stepmill.make(
        env,
        num_envs=2,
        num_workers=options.pop("num_workers", 2),
        backend="process",
        env_config=[{"moment": moment, "folder": str(folder)}] * 2,
        **options,
    )


def play(pool: Any, steps: int = 12) -> list[list[float]]:
    """Everything that can be asked of an env; the observations of the steps."""
    pool.reset(seed=1)
    seen = []
    for _ in range(steps):
        obs, *_ = pool.step(np.zeros(2, np.int64))
        seen.append(obs[:, 0].tolist())
        assert [frame[0, 0, 0] for frame in pool.render()] == obs[:, 0].tolist()
        assert list(pool.call("called")) == obs[:, 0].tolist()
    return seen


# `next_step`: the action after the end of an episode resets.
EXPECTED = [[float(step % 6)] * 2 for step in range(1, 13)]


# ---- memory --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", scribble.MODES)
def test_whatever_envs_write_into_shared_memory_every_action_has_one_row(mode: str, capfd: Any) -> None:
    trial = scribble.Trial(mode, seed=7)
    before = scribble.peak_memory()
    lived = trial.run(25)
    assert lived or mode not in scribble.MODES_WITHOUT_A_RING
    assert scribble.peak_memory() - before < scribble.MOST_GROWTH
    capfd.readouterr()  # workers that crash say so


def test_a_worker_whose_word_is_broken_is_replaced() -> None:
    with make(Wiping, step_timeout=20, on_error="restart", max_restarts=100) as pool:
        pool.reset()
        pids = [worker["pid"] for worker in pool.stats()["workers"]]
        *_, info = pool.step(np.array([1, 0]))
        assert info["abnormal"].any()
        for _ in range(8):
            pool.step(np.zeros(2, np.int64))
        stats = pool.stats()
        assert stats["restarts"] >= 1
        assert [worker["pid"] for worker in stats["workers"]] != pids
        assert list(pool.get_attr("count")) is not None


def test_a_ring_that_an_env_overwrites_breaks_the_pool_within_one_recv() -> None:
    pool = make(Wiping, batch_size=1, on_error="restart", max_restarts=100)
    pool.reset()
    pool.send(np.array([1]), np.array([0]))
    for _ in range(2):
        with pytest.raises(BrokenPoolError, match=r"which env has which row.*close the pool and make it again"):
            pool.recv()
    with pytest.raises(BrokenPoolError):
        pool.send(np.array([0]), np.array([1]))
    pool.close()


class Wiping(wild.Counting):
    """Action 1: writes nonsense over all that it shares with the pool, and returns."""

    def step(self, action: np.int64) -> Any:
        if action:
            import os

            fd = os.open("/proc/self/mem", os.O_RDWR)
            for first, last in scribble.shared_ranges():
                os.pwrite(fd, b"\xa5" * min(last - first, 32 << 10), first)
            os.close(fd)
        return super().step(action)


def test_memory_cannot_be_cut_off_under_the_caller() -> None:
    with make(wild.Truncating) as pool:
        assert play(pool) == EXPECTED


def test_a_size_that_a_worker_claims_costs_the_caller_no_memory() -> None:
    # In one worker, one after the other.
    with make(wild.Claiming, num_workers=1, on_error="restart", max_restarts=200) as pool:
        pool.reset()
        before = scribble.peak_memory()
        for _ in range(10):
            pool.step(np.zeros(2, np.int64))
        assert pool.stats()["restarts"] > 0
        assert scribble.peak_memory() - before < 512 << 20


def test_a_broken_pool_says_so_in_the_tree_of_errors() -> None:
    assert issubclass(BrokenPoolError, StepmillError)
    assert issubclass(BrokenPoolError, RuntimeError)


# ---- descriptors ---------------------------------------------------------------------------------


def test_files_of_an_env_that_closes_what_it_finds_stay_its_own(tmp_path: Path) -> None:
    with make(wild.Closing, tmp_path, "reset", step_timeout=3, on_error="restart") as pool:
        pool.reset()
        for _ in range(5):
            *_, info = pool.step(np.zeros(2, np.int64))
            assert [len(one) for one in info["large"]] == [1_200_000 * count for count in pool.get_attr("count")]
        *_, info = pool.step(np.array([0, 0]))  # resets
        *_, info = pool.step(np.array([1, 0]))  # hangs: the caller asks for its stack, and kills it
        assert info["abnormal"].tolist() == [True, False]
    assert wild.damaged(tmp_path) == []


def test_a_worker_that_is_closed_writes_into_no_connection_of_its_env(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)  # paths of sockets have to be short
    count = 2 * wild.Connecting.FILES
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        listener.listen(count)
        with make(wild.Connecting, ".", "close") as pool:
            pool.reset()
        for _ in range(count):
            connection, _ = listener.accept()
            with connection:
                assert connection.recv(1 << 16) == b""


def test_a_constructor_that_closes_all_descriptors_is_told_of(tmp_path: Path, capfd: Any) -> None:
    with pytest.raises(StepmillError, match="exited with code 1"):
        make(wild.Closing, tmp_path, "constructor", num_workers=1)
    assert "closed descriptors that are not its own" in capfd.readouterr().err
    assert wild.damaged(tmp_path) == []


# ---- forks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", ["constructor", *MOMENTS])
@pytest.mark.parametrize("env", [wild.Forking, wild.ForkingUnseen, wild.ForkingAndLeaving])
def test_a_process_that_an_env_forks_off_does_not_serve_too(env: Any, moment: str, capfd: Any) -> None:
    with make(env, moment=moment) as pool:
        assert play(pool) == EXPECTED
        for ended in pool.call("endings"):
            assert len(ended) >= 1
            assert set(ended) <= {0, 3}  # 3: left by itself, as it was told to
        assert pool.stats()["restarts"] == 0
    printed = capfd.readouterr().out
    if moment == "constructor" and env is not wild.ForkingAndLeaving:
        assert printed.count("before-constructor.") == 2  # once for each env


@pytest.mark.parametrize("env", [wild.Forking, wild.ForkingAndLeaving])
def test_a_fork_in_close_ends_nothing_twice(env: Any, capfd: Any) -> None:
    pool = make(env, moment="close")
    assert play(pool) == EXPECTED
    pool.close()
    if env is wild.Forking:
        assert capfd.readouterr().out.count("before-close.") == 2


@pytest.mark.parametrize("moment", ["constructor", *MOMENTS])
def test_processes_that_an_env_employs_do_their_work(moment: str, tmp_path: Path) -> None:
    with make(wild.Employing, tmp_path, moment) as pool:
        assert play(pool, 3) == EXPECTED[:3]
        assert pool.stats()["restarts"] == 0
