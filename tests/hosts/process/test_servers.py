"""The server that starts workers stays for a while after the last pool, for the next one, and holds nothing of them."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import stepmill
from stepmill.hosts.process.caller import servers
from stepmill.hosts.process.caller.server_handle import ServerHandle
from stepmill.testing import end_servers
from support.envs import ProbeTwin
from support.envs.faulty import Surroundings
from support.islands import make_environment
from support.processes import belongings, descendants, left_since, parent_of, server_of, server_of_a_pool, signal_to
from support.subprocesses import run_well, start
from support.waiting import ends

pytestmark = pytest.mark.usefixtures("deadline")


@pytest.fixture(autouse=True)
def own_servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Those of other tests, which the open pools of fixtures use, are not seen here."""
    monkeypatch.setattr(servers, "_servers", {})
    monkeypatch.setattr(servers, "_STAY_S", 1e6)  # no test depends on how fast it is
    yield
    end_servers()


def make() -> Any:
    return stepmill.make(ProbeTwin, backend="process")


# ---- it stays ------------------------------------------------------------------------------------


def test_the_next_pool_finds_the_server_of_the_last_one() -> None:
    before = belongings()
    first = server_of_a_pool()
    with stepmill.make("CartPole-v1", num_envs=2) as other:
        (shown,) = other.stats()["servers"]
        assert (shown["pid"], shown["pools"]) == (first, 0)
    assert descendants() >= {first}
    assert server_of_a_pool() == first
    with make() as one, make() as two:
        assert server_of(one) == server_of(two) == first
        assert [server["pools"] for server in one.stats()["servers"]] == [2]
    assert left_since(before) == []
    assert ends(first)
    assert server_of_a_pool() != first


def test_it_is_not_ended_while_a_pool_needs_it() -> None:
    with make() as pool:
        server = server_of(pool)
        end_servers()
        pool.reset()
        assert server_of(pool) == server


def test_pools_of_several_threads_share_it() -> None:
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(server_of_a_pool())) for _ in range(4)]
    for _ in range(2):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        threads = [threading.Thread(target=lambda: found.append(server_of_a_pool()))]
    assert found == found[:1] * 5


def test_an_island_has_one_of_its_own(tmp_path: Path) -> None:
    folder = make_environment(tmp_path / "there")
    home, there = server_of_a_pool(), server_of_a_pool(python=folder)
    assert home != there
    assert (server_of_a_pool(), server_of_a_pool(python=folder)) == (home, there)
    with stepmill.make("CartPole-v1") as pool:
        assert {one["pid"]: one["python"] for one in pool.stats()["servers"]}[there] == str(folder / "bin" / "python")
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "__pycache__").mkdir(exist_ok=True)
    assert server_of_a_pool(python=folder) == there, "bytecode is no package"
    (site / "another-1.0.dist-info").mkdir()
    assert (server_of_a_pool(), server_of_a_pool(python=folder) == there) == (home, False), "installed there"


@pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "LD_SOMETHING", "PYTHONSOMETHING"])
def test_variables_that_are_read_at_import_have_servers_of_their_own(name: str, monkeypatch: Any) -> None:
    class Asked(ProbeTwin):
        def at_start(self) -> bytes:
            server = parent_of(os.getppid())
            return Path(f"/proc/{server}/environ").read_bytes()

    first = server_of_a_pool()
    monkeypatch.setenv("ANOTHER", "1")
    assert server_of_a_pool() == first
    monkeypatch.setenv(name, "5")
    with stepmill.make(Asked, backend="process") as pool:
        assert server_of(pool) != first
        assert f"{name}=5".encode() in pool.call("at_start")[0].split(b"\0")
    monkeypatch.delenv(name)
    assert server_of_a_pool() == first


# ---- what a pool has from its caller -------------------------------------------------------------


def test_workers_inherit_from_the_caller_as_it_is_now() -> None:
    out = run_well(
        """
        import os, resource, stepmill
        from support.envs.faulty import Surroundings
        from support.processes import server_of

        with stepmill.make(Surroundings, backend="process") as pool:
            before = server_of(pool)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 7, hard))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.umask(0o027)
        os.nice(3)
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        with stepmill.make(Surroundings, backend="process") as pool:
            print(server_of(pool) == before, pool.call("inherited")[0] == Surroundings().inherited())
        """
    )
    assert out == "True True\n"


def test_workers_stand_in_a_folder_that_was_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    server_of_a_pool()
    monkeypatch.chdir(folder)
    folder.rmdir()
    with stepmill.make(Surroundings, backend="process") as pool:
        assert pool.call("folder") == (f"{folder} (deleted)",)


def test_it_holds_nothing_of_a_closed_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def held() -> tuple[list[str], str]:
        paths = Path(f"/proc/{server}/fd").iterdir()
        return sorted(os.readlink(path) for path in paths), os.readlink(f"/proc/{server}/cwd")

    monkeypatch.chdir(tmp_path)
    server = server_of_a_pool()
    before = held()
    assert os.readlink("/proc/self/fd/2") not in before[0]
    assert before[1] == "/"
    for _ in range(3):
        assert server_of_a_pool(num_envs=3, num_workers=3) == server
    assert held() == before
    assert descendants(server) == set()


# ---- it ends -------------------------------------------------------------------------------------


def test_it_ends_by_itself_and_the_next_pool_starts_another(monkeypatch: pytest.MonkeyPatch) -> None:
    before = belongings()
    monkeypatch.setattr(servers, "_STAY_S", 0.0)
    first = server_of_a_pool()
    assert ends(first)
    with make() as pool:
        assert server_of(pool) != first
        assert len(pool.stats()["servers"]) == 1
    assert left_since(before) == []


@pytest.mark.parametrize("way", ["ending", "killed", "stopped", "interrupted"])
def test_whatever_happened_to_it_the_next_pool_is_made(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = belongings()
    server = server_of_a_pool()
    number = {"stopped": signal.SIGSTOP, "interrupted": signal.SIGINT}.get(way, signal.SIGKILL)
    signal_to(server, number)
    assert number != signal.SIGKILL or ends(server)
    with monkeypatch.context() as patched:
        if way == "ending":  # at the very moment when the next pool asks: it is gone, and does not look so yet
            patched.setattr(ServerHandle, "is_alive", True)
            patched.setattr(servers, "_end_resting", lambda **_: None)
        assert (server_of_a_pool() == server) == (number != signal.SIGKILL)
    assert left_since(before) == []


def test_one_that_does_not_answer_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    before = belongings()
    server = server_of_a_pool()
    monkeypatch.setattr(ServerHandle, "_resume", lambda self: None)
    monkeypatch.setattr("stepmill.hosts.process.caller.server_handle._WAKE_S", 0.01)
    signal_to(server, signal.SIGSTOP)
    assert server_of_a_pool() != server
    assert ends(server)
    assert left_since(before) == []


PROGRAM = """
import os, sys
from support.processes import server_of_a_pool
print(server_of_a_pool(), flush=True)
"""


def test_it_ends_with_the_program() -> None:
    assert ends(int(run_well(PROGRAM, flags=["-X", "dev"])))


def test_it_ends_with_a_program_that_is_killed() -> None:
    with start(PROGRAM + "sys.stdin.read()") as process:
        assert process.stdout is not None
        server = int(process.stdout.readline())
        assert descendants(process.pid) == {server}
        process.kill()
        assert ends(server)


def test_a_forked_child_has_none() -> None:
    out = run_well(
        PROGRAM
        + """
from support.processes import descendants
for _ in range(2):
    child = os.fork()
    if child == 0:
        server_of_a_pool()
        os._exit(5 if descendants() else 0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), server_of_a_pool())
"""
    )
    first, *rest = out.split()
    assert rest == ["0", first] * 2


def test_the_garbage_collector_may_close_a_pool_while_the_program_ends_its_servers() -> None:
    out = run_well(
        PROGRAM
        + """
import gc
import stepmill
from stepmill.hosts.process.caller.server_handle import ServerHandle
from support.envs import ProbeTwin

os.environ["OMP_NUM_THREADS"] = "3"  # so that the garbage has another server
gc.disable()
garbage = [stepmill.make(ProbeTwin, backend="process")]
garbage.append(garbage)
del garbage

def end_later(self, end=ServerHandle.end):
    gc.collect()
    end(self)

ServerHandle.end = end_later
"""
    )
    assert ends(int(out))
