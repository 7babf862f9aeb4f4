"""``stepmill bench``: which libraries take part, and what is said of them."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from rich.console import Console

from stepmill.tools.cli.commands import bench
from stepmill.tools.cli.terminal import Terminal
from stepmill.tools.measuring import peers
from stepmill.tools.measuring.runners import Contestant, Effort

Run = Callable[..., Any]
QUICK = ["--num-envs", 2, "--repeats", 2, "--seconds", 0.01]
OURS = {"stepmill", "stepmill, async"}
GYMNASIUM = {"Gymnasium SyncVectorEnv", "Gymnasium AsyncVectorEnv"}


@pytest.fixture(autouse=True)
def only_gymnasium(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same here and where more libraries are installed."""
    monkeypatch.setattr(peers, "is_installed", lambda package: False)


@pytest.mark.parametrize(
    ("id", "others", "native"),
    [("CartPole-v1", GYMNASIUM, True), ("gymnasium:CartPole-v1", GYMNASIUM, False), ("Catch-v0", set(), True)],
)
def test_every_library_that_has_the_env_takes_part(
    stepmill_command: Run, id: str, others: set[str], native: bool
) -> None:
    done = stepmill_command("bench", id, *QUICK, "--json")
    assert done.code == 0, done.err
    [env] = done.json["envs"]
    assert set(env["steps_per_second"]) == OURS | others
    assert all(len(every) == 2 for every in env["samples"].values())
    assert env["native"] is native
    assert env["versions"].get("Gymnasium SyncVectorEnv", gymnasium.__version__) == gymnasium.__version__


def test_an_env_of_ones_own(stepmill_command: Run, user_folder: Path) -> None:
    done = stepmill_command("bench", "my_envs.py:Still", "--set", "size=2", *QUICK)
    assert done.code == 0, done.err
    for name in OURS | GYMNASIUM:
        assert name in done.out


def test_libraries_that_would_start_too_many_processes_are_left_out(
    stepmill_command: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "cores", lambda: 2)
    arguments = ["bench", "CartPole-v1", "--repeats", 1, "--seconds", 0.01, "--num-envs"]
    [env] = stepmill_command(*arguments, 16, "--json").json["envs"]
    assert (set(env["steps_per_second"]), env["left_out"]) == (OURS | GYMNASIUM, [])
    [env] = stepmill_command(*arguments, 17, "--json").json["envs"]
    assert set(env["steps_per_second"]) == OURS | {"Gymnasium SyncVectorEnv"}
    assert env["left_out"] == ["Gymnasium AsyncVectorEnv"]
    done = stepmill_command(*arguments, 1024)
    assert "Left out: Gymnasium AsyncVectorEnv. Each would start 1,024 processes" in done.out
    assert "No other library" not in done.out


def test_rows_appear_as_they_come(stepmill_command: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    before_each: list[int] = []
    measure = bench.sample

    def noting(runner: Any, seconds: float) -> float:
        before_each.append(len(said))
        return measure(runner, seconds)

    monkeypatch.setattr(bench, "sample", noting)
    monkeypatch.setattr(Terminal, "remark", lambda self, text: said.append(text))
    stepmill_command("bench", "Catch-v0", *QUICK)
    assert before_each == [0, 1, 2, 2]
    assert [line.partition(":")[0] for line in said] == ["stepmill", "stepmill, async"]


def test_rows_appear_on_a_terminal_and_vanish_with_the_bar() -> None:
    terminal, written = Terminal(), io.StringIO()
    terminal.notes, terminal.draws = Console(file=written, force_terminal=True, width=100), True
    subject = peers.Workload.of("Catch-v0", 2)
    measured = bench.SideBySide(subject, peers.peers_of(subject))
    measured.measure(Effort(1, 0.01), terminal)
    assert "stepmill, async" in written.getvalue()
    assert "2 copies at once" in written.getvalue()


@pytest.mark.usefixtures("deadline")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_the_processes_of_other_libraries_end_with_it(user_folder: Path, number: signal.Signals) -> None:
    """Also if the signal comes while they are being started."""
    os.mkfifo("pipe")
    pipe = os.open("pipe", os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(pipe, True)
    unused = os.open("pipe", os.O_WRONLY)  # so that there is no end before the first one has come
    command = [sys.executable, "-m", "stepmill", "bench", "my_envs.py:Lasting", "--num-envs", "2", "--seconds", "3600"]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        os.read(pipe, 1)
        os.close(unused)
        child.send_signal(number)
        child.wait(timeout=300)
        while os.read(pipe, 1):
            pass  # until all of them have ended
    finally:
        child.kill()
        os.close(pipe)


def test_actions_that_are_not_an_array_are_refused(stepmill_command: Run, user_folder: Path) -> None:
    done = stepmill_command("bench", "my_envs.py:Mixed", *QUICK)
    assert done.code == 2
    assert "an array of actions is needed" in done.err


def test_a_library_that_fails_is_named_and_the_others_are_measured(
    stepmill_command: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("no such luck")

    monkeypatch.setattr(gymnasium.vector, "AsyncVectorEnv", broken)
    done = stepmill_command("bench", "CartPole-v1", *QUICK, "--json")
    assert done.code == 0
    [env] = done.json["envs"]
    assert env["failed"] == {"Gymnasium AsyncVectorEnv": "RuntimeError: no such luck"}
    assert "Gymnasium SyncVectorEnv" in env["steps_per_second"]


def test_a_library_that_fails_later_is_named_too(stepmill_command: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("no such luck")

    monkeypatch.setattr(gymnasium.vector.SyncVectorEnv, "step", broken)
    [env] = stepmill_command("bench", "CartPole-v1", *QUICK, "--json").json["envs"]
    assert env["failed"] == {"Gymnasium SyncVectorEnv": "RuntimeError: no such luck"}
    assert set(env["samples"]) == {*OURS, "Gymnasium AsyncVectorEnv"}


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("def list_all_envs(): return []", None),
        ("def list_all_envs(): return ['CartPole-v1']", "no attribute 'make_gymnasium'"),
        ("import no_such_package", "No module named 'no_such_package'"),
    ],
)
def test_an_envpool_that_is_broken_is_named(
    stepmill_command: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, said: str | None
) -> None:
    (tmp_path / "envpool.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "envpool", raising=False)
    monkeypatch.setattr(peers, "is_installed", lambda package: package.module == "envpool")
    [env] = stepmill_command("bench", "CartPole-v1", *QUICK, "--json").json["envs"]
    sys.modules.pop("envpool", None)  # not by monkeypatch, which would put it back
    assert list(env["failed"]) == ([] if said is None else ["EnvPool"])
    assert said is None or said in env["failed"]["EnvPool"]
    assert set(env["steps_per_second"]) == OURS | GYMNASIUM


@pytest.mark.parametrize("calls", [0, 20])
def test_ctrl_c_ends_it_with_what_there_is(
    stepmill_command: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    pytest.importorskip("matplotlib")
    run, left = Contestant.run, calls

    def interrupted(contestant: Contestant, count: int) -> None:
        nonlocal left
        if left == 0:
            raise KeyboardInterrupt
        left -= isinstance(contestant.envs, gymnasium.vector.SyncVectorEnv)
        run(contestant, count)

    monkeypatch.setattr(Contestant, "run", interrupted)
    done = stepmill_command("bench", "CartPole-v1", "Catch-v0", *QUICK, "--repeats", 1000, "-o", tmp_path / "plots")
    assert done.code == 130
    if calls:
        assert "CartPole-v1, 2 copies at once" in done.out
        assert "Catch-v0" not in done.out
        assert [path.name for path in (tmp_path / "plots").iterdir()] == ["CartPole-v1.png"]
    else:
        assert (done.out, done.err.strip()) == ("", "stepmill: stopped")


def test_a_picture_per_env(stepmill_command: Run, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    done = stepmill_command("bench", "Catch-v0", *QUICK, "-o", tmp_path / "plots")
    assert done.code == 0, done.err
    assert (tmp_path / "plots" / "Catch-v0.png").read_bytes().startswith(b"\x89PNG")
    assert "No other library here has this env." in done.out


def test_a_picture_needs_matplotlib_before_anything_is_measured(
    stepmill_command: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = stepmill_command("bench", "Catch-v0", *QUICK, "-o", tmp_path / "plots")
    assert done.code == 2
    assert "pip install 'stepmill[cli]'" in done.err
    assert done.out == ""
