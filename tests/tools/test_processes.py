"""Which processes can be looked at, and what becomes of the counters when a process forks, execs or is killed."""

from __future__ import annotations

import os
import re
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest

import stepmill
from stepmill import _native
from stepmill.errors import UsageError
from stepmill.hosts.observing import printable
from stepmill.tools.processes import look_at, pids_with_pools, report
from support.subprocesses import run_well, start

# A program with a pool, which says so and waits for a line.
PROGRAM = """
import os, sys
import stepmill
pool = stepmill.make("CartPole-v1", num_envs=3)
pool.reset()
{body}
os.write(1, b"ready\\n")
sys.stdin.readline()
"""


def own_files(pid: int | str = "self") -> list[str]:
    """The paths of the counter files that a process has open."""
    found = []
    for name in os.listdir(f"/proc/{pid}/fd"):
        path = f"/proc/{pid}/fd/{name}"
        if os.path.lexists(path) and _native.COUNTER_FILE in os.readlink(path):
            found.append(path)
    return found


def test_another_process_is_seen_and_found() -> None:
    with start(PROGRAM.format(body="")) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        assert child.pid in pids_with_pools()
        found = report(None, look_at(child.pid))
        assert (found["pid"], found["pools"][0]["steps"]) == (child.pid, 3)
        assert found["rss_bytes"] > 1_000_000
        assert "stepmill.make" in found["command"]


def test_a_killed_process_leaves_nothing() -> None:
    with start(PROGRAM.format(body="")) as child:
        assert child.stdout is not None
        child.stdout.readline()
        (path,) = own_files(child.pid)
        inode = os.stat(path).st_ino
        child.send_signal(signal.SIGKILL)
        child.wait()
        with pytest.raises(UsageError, match=f"there is no process {child.pid}"):
            look_at(child.pid)
        assert child.pid not in pids_with_pools()
        maps = Path("/proc/self/maps").read_text()
        assert f" {inode} /memfd:{_native.COUNTER_FILE}" not in re.sub(" +", " ", maps)  # no look keeps it


def test_the_last_pool_closes_the_file() -> None:
    out = run_well(
        """
        import os, pathlib, stepmill
        from stepmill import _native
        def files():
            links = (os.path.realpath(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd"))
            return sum(_native.COUNTER_FILE in link for link in links)
        counts = [files()]
        first = stepmill.make("CartPole-v1")
        second = stepmill.make("CartPole-v1")
        counts.append(files())
        first.close()
        counts.append(files())
        second.close()
        counts.append(files())
        with stepmill.make("CartPole-v1"):
            counts.append(files())
        print(counts, pathlib.Path("/proc/self/maps").read_text().count(_native.COUNTER_FILE))
        """
    )
    assert out == "[0, 1, 1, 0, 1] 0\n"


# ---- forks and execs -----------------------------------------------------------------------------


def test_a_forked_child_neither_shows_nor_changes_its_parents_pools() -> None:
    body = """
if os.fork() == 0:
    os.write(1, b"child %d\\n" % os.getpid())  # in one piece
    sys.stdin.readline()
    os._exit(0)
"""
    with start(PROGRAM.format(body=body)) as child:
        assert child.stdout is not None
        lines = sorted(child.stdout.readline() for _ in range(2))
        forked = int(lines[0].split()[1])
        assert own_files(forked) == []
        with pytest.raises(UsageError, match="has loaded stepmill, but shows no pools"):
            look_at(forked)
        assert report(None, look_at(child.pid))["pools"][0]["steps"] == 3


def test_a_forked_child_shows_pools_of_its_own() -> None:
    body = """
if os.fork() == 0:
    own = stepmill.make("CartPole-v1", num_envs=7)
    os.write(1, b"child %d\\n" % os.getpid())  # in one piece
    sys.stdin.readline()
    os._exit(0)
"""
    with start(PROGRAM.format(body=body)) as child:
        assert child.stdout is not None
        lines = sorted(child.stdout.readline() for _ in range(2))
        forked = int(lines[0].split()[1])
        assert [one["num_envs"] for one in report(None, look_at(forked))["pools"]] == [7]
        assert [one["num_envs"] for one in report(None, look_at(child.pid))["pools"]] == [3]


def test_worker_processes_do_not_inherit_it() -> None:
    with stepmill.make("CartPole-v1", num_envs=2, num_workers=2, backend="process") as pool:
        for worker in pool.stats()["workers"]:
            assert own_files(worker["pid"]) == []
            assert _native.COUNTER_FILE not in Path(f"/proc/{worker['pid']}/maps").read_text()


def test_an_exec_closes_it_and_a_child_that_is_given_it_does_not_show_it() -> None:
    command = [sys.executable, "-c", "import sys; print('ready', flush=True); sys.stdin.readline()"]
    with stepmill.make("CartPole-v1"):
        file = int(own_files()[0].rpartition("/")[2])
        for given, count in (((), 0), ((file,), 1)):
            with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=given) as child:
                assert child.stdout is not None
                child.stdout.readline()
                assert len(own_files(child.pid)) == count
                with pytest.raises(UsageError, match=f"process {child.pid} has no pools of stepmill"):
                    look_at(child.pid)
                child.communicate(b"\n")
        os.set_inheritable(file, False)


# ---- refusals ------------------------------------------------------------------------------------


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_cannot_look() -> None:
    with stepmill.make("CartPole-v1"):
        code = f"""
import os, sys
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
try:
    os.listdir("/proc/{os.getpid()}/fd")
except PermissionError:
    print("refused")
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=600)
        assert done.stdout == "refused\n", done.stderr


def test_a_process_of_another_user_is_named_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    with start("import sys; sys.stdin.readline()") as child:

        def refuse(path: str) -> list[str]:
            if path.startswith(f"/proc/{child.pid}"):
                raise PermissionError(13, "Permission denied", path)
            return []

        monkeypatch.setattr(os, "listdir", refuse)
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
        with pytest.raises(
            UsageError, match=f"process {child.pid} belongs to another user|does not let this user look"
        ):
            look_at(child.pid)


def test_without_a_file_the_pool_works_and_top_says_why() -> None:
    body = """
pool.close()
import resource
limits = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
pool = stepmill.make("CartPole-v1", num_envs=3)
resource.setrlimit(resource.RLIMIT_NOFILE, limits)
pool.reset()
pool.step([0, 0, 0])
assert pool.stats()["steps"] == 6
pool.close()
"""
    with start(PROGRAM.format(body=body)) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        with pytest.raises(UsageError, match=r"shows no pools: none is open, or the system has refused.*memfd_create"):
            look_at(child.pid)


@pytest.mark.parametrize(
    ("content", "seals", "said"),
    [
        (b"", True, "cut off or broken"),
        (bytes(4096), True, "not memory of stepmill"),
        (b"stepmill" + bytes(4088), False, "not memory of stepmill"),
        (b"stepmill" + bytes(4088), True, "another version of stepmill"),
    ],
    ids=["empty", "zeros", "can shrink", "another version"],
)
def test_a_file_that_is_not_ours_is_refused_in_words(content: bytes, seals: bool, said: str) -> None:
    pid_at = [name for name, _ in _native.HEADER_WORDS].index("pid") * 8
    code = f"""
        import fcntl, os, sys
        fd = os.memfd_create({_native.COUNTER_FILE!r}, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        content = bytearray({content!r})
        if content:
            content[{pid_at}:{pid_at + 8}] = os.getpid().to_bytes(8, "little")
        os.write(fd, content)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK if {seals} else 0)
        print("ready", flush=True)
        sys.stdin.readline()
        """
    with start(code) as child:
        assert child.stdout is not None
        child.stdout.readline()
        with pytest.raises(UsageError, match=f"process {child.pid}: .*{said}"):
            look_at(child.pid)
        assert child.pid in pids_with_pools()


def test_text_of_another_process_cannot_steer_the_terminal() -> None:
    assert (
        printable(b"CartPole \x1b[31m\x07\r\n\xe2\x80\xae\xff ok")
        == "CartPole \ufffd[31m\ufffd\ufffd\ufffd\ufffd\ufffd ok"
    )
    names = [name for name, count in _native.POOL_WORDS for _ in range(count)]
    with stepmill.make("CartPole-v1"):
        with open(own_files()[0], "r+b", buffering=0) as file:
            content = file.read()
            # The names of records; others than this pool's are in use too, or were, if the process had other pools.
            places = [found.start() for found in re.finditer(b"CartPole-v1", content)]
            places = [at for at in places if at % 512 == 8 * names.index("name")]
            assert places
            for at in places:
                file.seek(at)
                file.write(struct.pack("8s", b"\x1b]0;x\x07"))
        (name,) = {one["name"] for one in report(None, look_at(os.getpid()))["pools"] if "\ufffd" in one["name"]}
        assert name == "\ufffd]0;x\ufffd"
