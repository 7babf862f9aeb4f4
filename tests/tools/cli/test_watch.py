"""``stepmill watch``."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support.envs import command
from support.waiting import eventually
from support.watching import Client

pytestmark = pytest.mark.usefixtures("deadline")

ENV = f"{command.__file__}:Painted"


def _as_from_a_terminal() -> None:
    """Whoever runs the tests with nohup passes on that a closed terminal is ignored."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


class Program:
    """The command in a process of its own."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "stepmill", "watch", *arguments, "--no-browser", "--json"]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=_as_from_a_terminal
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1]
        self.said = json.loads(line)
        self.client = Client(SimpleNamespace(port=self.said["port"], file=Path(self.said["file"])))  # type: ignore[arg-type]

    def interrupt(self) -> tuple[int, str, str]:
        self.process.send_signal(signal.SIGINT)
        out, err = self.process.communicate(timeout=600)
        return self.process.returncode, out, err


@pytest.fixture
def start() -> Iterator[Callable[..., Program]]:
    programs: list[Program] = []

    def new(*arguments: str) -> Program:
        programs.append(Program(*arguments))
        return programs[-1]

    yield new
    for one in programs:
        one.process.terminate()  # and not kill: it removes its file
        one.process.communicate()


def test_it_plays_until_ctrl_c(start: Callable[..., Program]) -> None:
    program = start(ENV, "--num-envs", "3", "--backend", "inline")
    assert program.said.keys() == {"port", "url", "file"}
    assert eventually(lambda: program.client.state()["envs"][2]["picture"] is not None)  # it asks for them itself
    assert eventually(lambda: program.client.state()["totals"]["episodes"] > 3)
    assert program.interrupt() == (130, "", "")
    assert not os.path.exists(program.said["file"])


def test_an_address_that_works_once(start: Callable[..., Program]) -> None:
    program = start(ENV, "--num-envs", "1", "--backend", "inline", "--link")
    path = program.said["link"].removeprefix(program.said["url"].rstrip("/"))
    assert [program.client.get(path, cookie=None).status for _ in range(2)] == [200, 403]


def test_pictures_may_take_more_time_where_nobody_trains(start: Callable[..., Program]) -> None:
    assert start(ENV, "--num-envs", "1", "--backend", "inline").client.state()["pictures"]["limit"] == 0.5


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_kill_and_a_closed_terminal_leave_nothing_behind(start: Callable[..., Program], number: signal.Signals) -> None:
    program = start(ENV, "--num-envs", "1", "--backend", "inline")
    program.process.send_signal(number)
    program.process.communicate(timeout=600)
    assert program.process.returncode == 130
    assert not os.path.exists(Path(program.said["file"]).parent)


@pytest.mark.parametrize("backend", ["inline", "process"])
def test_pausing_and_stepping(start: Callable[..., Program], backend: str) -> None:
    client = start(ENV, "--num-envs", "2", "--backend", backend, "--paused").client
    assert eventually(lambda: all(one["picture"] is not None for one in client.state()["envs"]))
    start_at = client.state()["totals"]["steps"]
    assert client.command("step") == 200
    assert eventually(lambda: client.state()["totals"]["steps"] == start_at + 2)
    assert client.state()["control"] == {"paused": True, "speed": None}
    assert client.command("resume") == 200
    assert eventually(lambda: client.state()["totals"]["steps"] > start_at + 10)


def test_the_speed_is_limited(start: Callable[..., Program]) -> None:
    client = start(ENV, "--num-envs", "1", "--backend", "inline", "--speed", "0.001").client
    assert client.state()["control"]["speed"] == 0.001
    assert client.state()["totals"]["steps"] <= 2
    assert client.command("speed", speed=1000) == 200
    assert eventually(lambda: client.state()["totals"]["steps"] > 10)
    assert client.command("speed", speed=-1) == 400


def test_native_envs(start: Callable[..., Program]) -> None:
    program = start("CartPole-v1", "--num-envs", "2")
    assert eventually(lambda: program.client.state()["totals"]["episodes"] > 3)
    assert program.interrupt()[0] == 130


@pytest.mark.usefixtures("user_folder")
def test_an_env_that_fails_is_shown_and_goes_on(start: Callable[..., Program]) -> None:
    client = start("my_envs.py:Stumbling", "--num-envs", "1", "--backend", "inline").client
    assert eventually(lambda: client.state()["envs"][0]["failures"] > 2)
    assert "no more" in client.state()["errors"][0]["text"]


@pytest.mark.usefixtures("user_folder")
def test_an_env_that_only_fails_ends_it(stepmill_command: Callable[..., Any]) -> None:
    done = stepmill_command("watch", "my_envs.py:Stuck", "--backend", "inline", "--no-browser", "--num-envs", 1)
    assert done.code == 1
    assert "never" in done.err
    assert "open.html" in done.err  # it has said where the page is


@pytest.mark.parametrize(
    "arguments", [["Cartpole-v9"], ["CartPole-v1", "--port", "99999"], ["CartPole-v1", "--speed", "0"]]
)
def test_a_wrong_call_is_exit_code_2(stepmill_command: Callable[..., Any], arguments: list[str]) -> None:
    done = stepmill_command("watch", *arguments, "--no-browser")
    assert done.code == 2
    assert done.err.count("\n") == 1
