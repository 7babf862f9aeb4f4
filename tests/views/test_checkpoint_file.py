"""The files of checkpoints: what is damaged is refused, and what was there stays until the next one is whole."""

from __future__ import annotations

import errno
import io
import multiprocessing
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepmill
from stepmill import errors
from stepmill.views.checkpoint import FORMAT, Checkpoint
from support.envs import ProbeTwin
from support.probes import assert_same
from support.subprocesses import run, run_well


@pytest.fixture
def content() -> bytes:
    """A checkpoint."""
    file = io.BytesIO()
    with stepmill.make("CartPole-v1", num_envs=3, batch_size=2, backend="inline") as pool:
        pool.async_reset()
        pool.recv()
        pool.checkpoint(file)
    return file.getvalue()


# ---- damaged -------------------------------------------------------------------------------------


def test_a_file_that_was_cut_off_anywhere_is_refused(content: bytes) -> None:
    for length in range(len(content)):
        with pytest.raises(errors.StateError, match=r"^resume: "):
            Checkpoint.read(io.BytesIO(content[:length]))


def test_a_file_in_which_a_bit_has_changed_is_refused(content: bytes) -> None:
    head = len(content.partition(b"\n")[0]) + 1
    drawn = np.random.default_rng(3).integers(0, 8 * len(content), 500).tolist()
    for bit in [*range(8 * head), *drawn]:
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(errors.StateError, match=r"^resume: "):
            Checkpoint.read(io.BytesIO(damaged))


@pytest.mark.parametrize(
    "other",
    [b"", b"\n", b"PK\x03\x04", b"stepmill checkpoint", bytes(range(255, 0, -1)) * 4],
    ids=["empty", "line", "zip", "head", "noise"],
)
def test_another_file_is_refused(other: bytes, tmp_path: Path) -> None:
    path = tmp_path / "other"
    path.write_bytes(other)
    with pytest.raises(errors.StateError, match=f"resume: {path} is no checkpoint of a pool"):
        stepmill.resume(path)


def test_a_file_that_does_not_exist_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        stepmill.resume(tmp_path / "none")


def test_another_format_or_version_is_refused_before_it_is_read(content: bytes) -> None:
    head, _, body = content.partition(b"\n")
    words = head.split()
    for number, other in ((2, b"0"), (3, b"0.0.1")):
        changed = [*words[:number], other, *words[number + 1 :]]
        with pytest.raises(errors.StateError, match=rf"expected format {FORMAT}, and the same version, "):
            stepmill.resume(io.BytesIO(b" ".join(changed) + b"\n" + body))


def test_rows_that_do_not_fit_are_refused(content: bytes) -> None:
    """Whole files can hold nonsense too: the task they name may have changed."""
    arguments, memory, _ = Checkpoint.read(io.BytesIO(content))
    table, parcels, *others = memory.rest
    (gather, parcel), *_ = parcels
    longer = [(gather, parcel + b"x")]
    twice = [(gather, parcel), (gather, parcel)]
    for rest in ((table[:-1], parcels, *others), (table, longer, *others), (table, twice, *others)):
        file = io.BytesIO()
        Checkpoint(arguments, memory._replace(rest=rest), None).write(file)
        file.seek(0)
        with pytest.raises(errors.StateError, match="resume: what the checkpoint holds does not fit this pool"):
            stepmill.resume(file)


# ---- other pools ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"num_envs": 4}, "num_envs=4 was given, and the checkpoint has 3"),
        ({"batch_size": 3}, "batch_size=3 was given, and the checkpoint has 2"),
        ({"seed": 1}, re.escape("seed=[1, 2, 3] was given, and the checkpoint has [42, 43, 44]")),
        ({"autoreset": "SameStep"}, "autoreset='same_step' was given, and the checkpoint has 'next_step'"),
        ({"env_type": "dm"}, "env_type='dm' was given, and the checkpoint has 'gymnasium'"),
        ({"max_episode_steps": 7}, "max_episode_steps=7 was given, and the checkpoint has None"),
        ({"env_config": [{}] * 3}, "env_config="),
        ({"sutton_barto_reward": True}, "sutton_barto_reward=True was given, and the checkpoint has no such argument"),
        ({"foo": 3}, "foo=3 was given, and the checkpoint has no such argument"),
        ({"seed": None}, re.escape("seed=None was given, which draws one, and the checkpoint has [42, 43, 44]")),
    ],
)
def test_other_arguments_are_refused_with_both_values(given: Any, said: str, content: bytes) -> None:
    with pytest.raises(errors.StateError, match=rf"^resume: {said}.*only num_threads, num_workers, backend may differ"):
        stepmill.resume(io.BytesIO(content), **given)


def test_the_same_arguments_are_taken(content: bytes) -> None:
    same: dict[str, Any] = {
        "num_envs": 3,
        "batch_size": 2,
        "seed": 42,
        "autoreset": "NextStep",
        "env_type": "gymnasium",
    }
    with stepmill.resume(io.BytesIO(content), "CartPole-v1", **same, num_threads=1) as pool:
        assert pool.backend == "inline"
        assert pool.settings.num_threads == 1


def test_another_task_is_refused(content: bytes) -> None:
    with pytest.raises(
        errors.StateError,
        match=r"^resume: env 0 .*another env: it was saved with 'CartPole-v1', and the env has 'Acrobot",
    ):
        stepmill.resume(io.BytesIO(content), "Acrobot-v1")


def test_a_task_that_cannot_be_imported_is_asked_for() -> None:
    factory = lambda **config: ProbeTwin(**config)  # noqa: E731
    on_step = lambda *_: None  # noqa: E731
    file = io.BytesIO()
    with stepmill.make(factory, num_envs=2, length=9, backend="inline") as pool:
        pool.reset()
        pool.checkpoint(file)
        for given, said in (
            ({}, r"the task of .* cannot be imported here .*: pass it: stepmill.resume\(path, task=...\)"),
        ):
            file.seek(0)
            with pytest.raises(errors.StateError, match=said):
                stepmill.resume(file, **given)
        file.seek(0)
        with stepmill.resume(file, factory) as again:
            assert_same(again.step(np.zeros(2, np.float32)), pool.step(np.zeros(2, np.float32)))
    file = io.BytesIO()
    with stepmill.make(ProbeTwin, on_step=on_step, length=9, backend="inline") as pool:
        pool.reset()
        pool.checkpoint(file)
        file.seek(0)
        with stepmill.resume(file, length=9, on_step=on_step) as again:
            assert_same(again.step(np.zeros(1, np.float32)), pool.step(np.zeros(1, np.float32)))


def test_states_of_other_kinds_stay_where_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stepmill.hosts.saving._MOVABLE", ("memory",))
    with stepmill.make(ProbeTwin, backend="inline") as pool:
        pool.reset()
        with pytest.raises(errors.UnsupportedError, match="states of the kind 'methods' cannot leave this process"):
            pool.checkpoint(io.BytesIO())


# ---- writing -------------------------------------------------------------------------------------


def test_a_disk_that_is_full_leaves_the_checkpoint_before(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with stepmill.make("CartPole-v1", num_envs=3) as pool:
        pool.reset()
        pool.checkpoint(path)
        before = path.read_bytes()
        pool.step(np.ones(3, int))
    code = f"""
        import resource, stepmill
        from stepmill import errors
        with stepmill.resume({str(path)!r}) as pool:
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
            try:
                pool.checkpoint({str(path)!r})
            except errors.ResourceError as error:
                print(error.errno, error)
    """
    assert re.match(rf"{errno.EFBIG} checkpoint: {path} could not be written: ", run_well(code))
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["run"]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_any_failure_leaves_the_checkpoint_before(call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "run"
    with stepmill.make("CartPole-v1") as pool:
        pool.reset()
        pool.checkpoint(path)
        before = path.read_bytes()
        pool.step([1])
        monkeypatch.setattr(os, call, fail)
        with pytest.raises(errors.ResourceError, match=r"No space left on device\. The file that was there"):
            pool.checkpoint(path)
        monkeypatch.undo()
        assert path.read_bytes() == before
        assert os.listdir(tmp_path) == ["run"]
        pool.checkpoint(path)
        assert path.read_bytes() != before


@pytest.mark.parametrize("call", ["fsync", pytest.param("replace", marks=pytest.mark.slow)])
def test_a_process_that_is_killed_while_it_writes_leaves_the_checkpoint_before(call: str, tmp_path: Path) -> None:
    path = tmp_path / "run"
    code = f"""
        import os, signal, numpy as np, stepmill
        pool = stepmill.make("CartPole-v1", num_envs=2)
        pool.reset()
        pool.checkpoint({str(path)!r})
        pool.step(np.ones(2, int))
        os.{call} = lambda *_: signal.raise_signal(signal.SIGKILL)
        pool.checkpoint({str(path)!r})
    """
    assert run(code).code == -9
    with stepmill.resume(path) as pool:
        assert pool.stats()["steps"] == 2
        pool.checkpoint(path)
    assert os.listdir(tmp_path) == ["run"]


# ---- odd files -----------------------------------------------------------------------------------


class Little(io.RawIOBase):
    """A file without a buffer that takes and gives a few bytes at a time."""

    def __init__(self) -> None:
        self.content, self.place = b"", 0

    def write(self, data: Any) -> int:
        self.content += bytes(data[:100])
        return min(len(data), 100)

    def readinto(self, buffer: Any) -> int:
        part = self.content[self.place : self.place + min(len(buffer), 100)]
        buffer[: len(part)] = part
        self.place += len(part)
        return len(part)

    def readable(self) -> bool:
        return True


def test_a_file_without_a_buffer_gets_all_and_gives_all() -> None:
    file: Any = Little()
    with stepmill.make("CartPole-v1", num_envs=3, backend="inline") as pool:
        pool.reset()
        pool.checkpoint(file)
        with stepmill.resume(file) as again:
            assert_same(again.step(np.ones(3, int)), pool.step(np.ones(3, int)))


def test_a_size_that_no_file_has_is_refused(content: bytes, tmp_path: Path) -> None:
    head, _, body = content.partition(b"\n")
    words = head.split(b" ")
    words[-2] = b"9" * 18
    (tmp_path / "run").write_bytes(b" ".join(words) + b"\n" + body)
    with pytest.raises(errors.StateError, match="is damaged"):
        Checkpoint.read(tmp_path / "run")


def test_a_pipe_stays_one_and_a_link_too(tmp_path: Path) -> None:
    pipe, link, file = tmp_path / "pipe", tmp_path / "link", tmp_path / "file"
    os.mkfifo(pipe)
    link.symlink_to(file)
    with stepmill.make("CartPole-v1", num_envs=1, backend="inline") as pool:
        with pytest.raises(errors.ResourceError, match="Not a regular file"):
            pool.checkpoint(pipe)
        for _ in range(2):
            pool.checkpoint(link)
    assert pipe.is_fifo()
    assert link.is_symlink()
    assert file.is_file()
    assert sorted(os.listdir(tmp_path)) == ["file", "link", "pipe"]


def write_often(path: str, times: int) -> None:
    with stepmill.make("CartPole-v1", num_envs=2, backend="inline") as pool:
        pool.reset()
        for _ in range(times):
            pool.checkpoint(path)
            with stepmill.resume(path):
                pass


def test_two_processes_may_write_the_same_file(tmp_path: Path) -> None:
    path = str(tmp_path / "run.pool")
    context = multiprocessing.get_context("spawn")
    other = context.Process(target=write_often, args=(path, 100))
    other.start()
    write_often(path, 100)
    other.join()
    assert other.exitcode == 0
    assert os.listdir(tmp_path) == ["run.pool"]


def test_a_file_that_others_may_not_read_stays_so(tmp_path: Path) -> None:
    path = tmp_path / "run.pool"
    with stepmill.make("CartPole-v1", num_envs=2) as pool:
        pool.checkpoint(path)
        path.chmod(0o600)
        pool.checkpoint(path)
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("given", [None, 3, b"run.pool"])
def test_a_place_that_is_none_is_refused(given: Any) -> None:
    with stepmill.make("CartPole-v1") as pool, pytest.raises(errors.InputError, match="checkpoint: expected a path"):
        pool.checkpoint(given)
    with pytest.raises(errors.InputError, match="resume: expected a path"):
        stepmill.resume(given)
