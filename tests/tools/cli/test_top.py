"""``stepmill top``."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import stepmill
from support.subprocesses import start

Run = Callable[..., Any]
PROGRAM = """
import sys
import stepmill
pool = stepmill.make("CartPole-v1", num_envs=3)
pool.reset()
print("ready", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def child() -> Iterator[subprocess.Popen[str]]:
    """A process with a pool, which ends when it is sent a line."""
    with start(PROGRAM) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process


def top(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "stepmill", "top", *map(str, arguments)]


def test_one_look_as_json(stepmill_command: Run, child: subprocess.Popen[str]) -> None:
    done = stepmill_command("top", child.pid, "--once", "--json", "--interval", 0.1)
    assert (done.code, done.err) == (0, "")
    (process,) = done.json["processes"]
    assert process["pid"] == child.pid
    assert process["pools"][0]["num_envs"] == 3
    assert process["pools"][0]["steps_per_second"] == 0
    assert process["pools"][0]["time"]["caller"] > 0.99


def test_one_look_as_a_table(stepmill_command: Run, child: subprocess.Popen[str]) -> None:
    with stepmill.make("CartPole-v1", num_envs=2, num_workers=2, backend="process") as pool:
        pool.reset()
        done = stepmill_command("top", os.getpid(), "--once", "--interval", 0.1)
        for word in (
            str(os.getpid()),
            "CartPole-v1",
            "2 envs, process",
            "steps/s",
            "caller",
            "2 processes",
            "restarts",
        ):
            assert word in done.out
        assert "\x1b" not in done.out


def test_without_a_pid_all_processes_are_listed(stepmill_command: Run, child: subprocess.Popen[str]) -> None:
    with stepmill.make("CartPole-v1"):
        done = stepmill_command("top", "--once", "--json", "--interval", 0.1)
        assert {os.getpid(), child.pid} <= {one["pid"] for one in done.json["processes"]}
        done = stepmill_command("top", "--once", "--interval", 0.1)
        assert str(child.pid) in done.out
        assert "stepmill top PID shows one of them" in done.out


def test_what_cannot_be_shown_is_one_line_and_exit_code_2(stepmill_command: Run) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as bare:
        done = stepmill_command("top", bare.pid)
        assert (done.code, done.out, done.err) == (2, "", f"stepmill: process {bare.pid} has no pools of stepmill\n")
        bare.communicate(b"\n")
    done = stepmill_command("top", bare.pid)
    assert (done.code, done.err) == (2, f"stepmill: there is no process {bare.pid}\n")
    for wrong in (["0"], ["x"], ["1", "--interval", "0"]):
        assert stepmill_command("top", *wrong).code == 2


def test_a_document_per_line_until_the_process_ends(child: subprocess.Popen[str]) -> None:
    with subprocess.Popen(top(child.pid, "--json", "--interval", 0.1), stdout=subprocess.PIPE, text=True) as command:
        assert command.stdout is not None
        documents = [json.loads(command.stdout.readline()) for _ in range(2)]
        assert [one["processes"][0]["pid"] for one in documents] == [child.pid] * 2
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
        assert command.wait(60) == 0


def test_ctrl_c_ends_it_with_130(child: subprocess.Popen[str]) -> None:
    with subprocess.Popen(top(child.pid, "--json", "--interval", 0.1), stdout=subprocess.PIPE, text=True) as command:
        assert command.stdout is not None
        command.stdout.readline()
        command.send_signal(signal.SIGINT)
        assert command.wait(60) == 130


def test_q_ends_the_live_view(child: subprocess.Popen[str]) -> None:
    ours, theirs = pty.openpty()
    arguments = top(child.pid, "--interval", 0.1)
    with subprocess.Popen(arguments, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True) as command:
        os.close(theirs)
        shown = b""
        end = time.monotonic() + 60
        while shown.count(b"steps/s") < 2:
            assert select.select([ours], [], [], max(0.0, end - time.monotonic()))[0], shown
            shown += os.read(ours, 65536)
        os.write(ours, b"xq")
        while command.poll() is None:  # what it still writes must go somewhere
            if select.select([ours], [], [], 0.05)[0]:
                try:
                    shown += os.read(ours, 65536)
                except OSError:  # the other end is closed
                    break
        assert command.wait(60) == 0
    os.close(ours)
    assert b"CartPole-v1" in shown
