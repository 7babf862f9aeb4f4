"""Files of recorded orders: who may replay one, where a run departs from it, and what it survives."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepmill
from stepmill import errors
from support.backends import INLINE, THREAD, Backend
from support.envs import ProbeTwin
from support.orders import BATCH, LAST, N, Program, ids_in, make, words_of
from support.probes import assert_same, leaves
from support.subprocesses import run, run_well

pytestmark = pytest.mark.usefixtures("deadline")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "order.bin"


# ---- departures ------------------------------------------------------------------------------------


@pytest.fixture
def recorded(file: Path) -> Iterator[Any]:
    """A file, of a run that received all envs after their reset in order, and a pool that replays it."""
    with make(INLINE) as pool:
        pool.record_order(file)
        pool.async_reset()
        assert ids_in(pool.drain()) == [[0, 1], [2, 3], [4, 5]]
    with make(INLINE) as pool:
        pool.replay_order(file)
        yield pool


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        ([1, 2, 3], "env 0 was received there, and was not sent anything here"),
        ([0], "2 envs were received there, and here it would be 1"),
    ],
)
def test_a_run_that_sends_something_else_departs(recorded: Any, sent: list[int], message: str) -> None:
    recorded.async_reset(sent)
    for _ in range(2):
        with pytest.raises(errors.StateError, match=f"departs .* after 0 rows in 0 batches: {message}"):
            recorded.recv()
    assert recorded.in_flight == sent
    recorded.async_reset([one for one in range(N) if one not in sent])  # it does not depart any more
    assert ids_in(recorded.drain()) == [[0, 1], [2, 3], [4, 5]]


def test_a_run_that_is_longer_departs_at_the_end(recorded: Any, file: Path) -> None:
    recorded.async_reset()
    recorded.drain()
    recorded.send(np.zeros(BATCH, int), [0, 1])
    with pytest.raises(errors.StateError, match=r"order\.bin ends here, after 6 rows in 3 batches"):
        recorded.recv()


def test_a_file_that_is_cut_off_anywhere_ends_with_its_last_whole_batch(file: Path) -> None:
    with make(THREAD) as pool:
        pool.record_order(file)
        results = Program(pool, 4).play(6)
    whole = file.read_bytes()
    words = words_of(file)
    head = len(whole) - 2 * len(words)
    for size in [*range(0, head, 16), *range(head - 2, len(whole))]:
        file.write_bytes(whole[:size])
        with make(INLINE) as pool:
            if size < head:
                with pytest.raises(errors.StateError, match="is no file that record_order"):
                    pool.replay_order(file)
                continue
            pool.replay_order(file)
            program = Program(pool, 4)
            with pytest.raises(errors.StateError, match="ends here"):
                program.play(6)
            assert_same(program.results, results[: len(program.results)])
            complete = sum(bool(word & LAST) for word in words[: (size - head) // 2])
            received = [result for result in program.results if len(result) == 5]
            assert len(received) == complete


@pytest.mark.parametrize("fails", ["there", "here"])
def test_a_failure_that_was_none_departs(fails: str, file: Path) -> None:
    mishap = [""]

    def complain() -> None:
        if mishap[0]:
            raise RuntimeError(mishap[0])

    def start() -> Any:
        return make(INLINE, lambda: ProbeTwin(on_step=complain), on_error="restart")

    def played(pool: Any) -> None:
        pool.async_reset()
        pool.recv()
        pool.send(np.zeros(BATCH, np.float32))
        for _ in range(3):
            pool.recv()

    with start() as pool:
        mishap[0] = "broken" * (fails == "there")
        pool.record_order(file)
        played(pool)
    with start() as pool:
        mishap[0] = "broken" * (fails == "here")
        pool.replay_order(file)
        message = "failed there, and not here" if fails == "there" else "failed here, and not there"
        with pytest.raises(errors.StateError, match=f"departs .* after 6 rows in 3 batches: env 0 {message}"):
            played(pool)
        with pytest.raises(errors.StateError, match=message):
            pool.recv()  # nothing has changed
        mishap[0] = ""
        pool.reset()  # but that is always possible


OTHERS: dict[str, dict[str, Any]] = {
    "num_envs": {"num_envs": N + 1},
    "batch_size": {"batch_size": BATCH + 1},
    "seed": {"seed": 4},
    "task_id": {"task": "Acrobot-v1"},
    "autoreset": {"autoreset": "same_step"},
    "max_episode_steps": {"max_episode_steps": 7},
    "action_bounds": {"action_bounds": "clip"},
    "configuration": {"sutton_barto_reward": True},
}


@pytest.mark.parametrize("what", OTHERS)
def test_the_file_of_another_pool_is_refused(recorded: Any, what: str, file: Path) -> None:
    was = json.loads(file.read_bytes().partition(b"\n")[0])[what]
    with make(INLINE, **OTHERS[what]) as pool:
        with pytest.raises(errors.StateError) as refusal:
            pool.replay_order(file)
        text = f"replay_order: {file} was recorded with {what}={was!r}, and this pool has {what}="
        assert str(refusal.value).startswith(text)
        pool.async_reset()  # and it goes on without
        pool.recv()


def test_backend_and_workers_may_be_others_and_configurations_one_per_env(file: Path) -> None:
    configs = [{"length": 3 + i} for i in range(N)]
    with make(THREAD, "Probe-v0", env_config=configs, seed=[5, 3, 1, 2, 4, 9]) as pool:
        pool.record_order(file)
        results = Program(pool, 1).play(9)
    other = make(INLINE, "Probe-v0", env_config=configs[::-1], seed=[5, 3, 1, 2, 4, 9])
    with other, pytest.raises(errors.StateError, match="configuration='6 different ones"):
        other.replay_order(file)
    with make(Backend("process", 1), "Probe-v0", env_config=configs, seed=[5, 3, 1, 2, 4, 9]) as pool:
        pool.replay_order(file)
        assert_same(Program(pool, 1).play(9), results)


@pytest.mark.parametrize("call", ["record_order", "replay_order"])
def test_calls_at_the_wrong_time_are_refused_and_leave_the_file_alone(call: str, file: Path) -> None:
    with make(THREAD) as pool:
        pool.record_order(file)
        before = file.read_bytes()
        with pytest.raises(errors.UsageError, match="is recorded or replayed already"):
            getattr(pool, call)(file)
    with pytest.raises(errors.ClosedError):
        getattr(pool, call)(file)
    for send in (lambda pool: pool.reset(), lambda pool: pool.async_reset([1]), lambda pool: pool.send([0], [1])):
        with make(THREAD) as pool:
            send(pool)
            with pytest.raises(errors.UsageError, match=f"{call}: envs were sent .* right after make"):
                getattr(pool, call)(file)
    sync = stepmill.make("CartPole-v1", num_envs=3)
    with sync, pytest.raises(errors.UnsupportedError, match="of all 3 envs, which always come in the same order"):
        getattr(sync, call)(file)
    assert file.read_bytes() == before


def test_an_order_can_be_asked_for_after_what_was_refused_and_after_a_restore(file: Path) -> None:
    with make(THREAD) as pool:
        pool.reset()
        states = pool.save()
    with make(THREAD) as pool:
        with pytest.raises(errors.ActionError):
            pool.send([7], [0])
        pool.restore(states)
        pool.record_order(file)
        pool.send(np.zeros(N, int), range(N))
        results = pool.drain()
    with make(INLINE) as pool:
        pool.restore(states)
        pool.replay_order(file)
        pool.send(np.zeros(N, int), range(N))
        assert_same(pool.drain(), results)


@pytest.mark.parametrize("content", [b"", b"{}\n", b"[1]\n", b"\xff\n", b'{"format": "stepmill order 2"}\n', b"1" * 99])
def test_a_file_of_something_else_is_refused(content: bytes, file: Path) -> None:
    file.write_bytes(content)
    with make(THREAD) as pool, pytest.raises(errors.StateError, match="is no file that record_order"):
        pool.replay_order(file)
    with make(THREAD) as pool, pytest.raises(FileNotFoundError):
        pool.replay_order(file.with_name("other"))


def test_a_pool_is_closed_with_rows_that_wait(recorded: Any) -> None:
    recorded.async_reset()
    held = recorded.recv()
    before = [leaf.copy() for leaf in leaves(held)]
    recorded.send(np.zeros(BATCH, int))
    with pytest.raises(errors.InFlightError):
        recorded.send(np.zeros(1, int), [5])
    recorded.close()
    assert_same(leaves(held), before)


# ---- the file --------------------------------------------------------------------------------------


def test_a_program_that_is_killed_leaves_all_that_it_has_received(file: Path) -> None:
    code = f"""
    import os, signal, sys
    import numpy as np
    import stepmill
    pool = stepmill.make("CartPole-v1", num_envs={N}, batch_size={BATCH}, seed=3)
    pool.record_order({str(file)!r})
    pool.async_reset()
    for _ in range(50):
        ids = pool.recv()[-1]["env_id"]
        print(*ids, flush=True)
        pool.send(np.zeros({BATCH}, int), ids)
    os.kill(os.getpid(), signal.SIGKILL)
    """
    finished = run(code)
    assert finished.code == -signal.SIGKILL
    ids = [int(one) for one in finished.out.split()]
    assert [word & ~LAST for word in words_of(file)] == ids
    assert len(ids) == 50 * BATCH
    with make(INLINE) as pool:
        pool.replay_order(file)
        pool.async_reset()
        for at in range(50):
            batch = pool.recv()[-1]["env_id"]
            assert batch.tolist() == ids[at * BATCH : (at + 1) * BATCH]
            pool.send(np.zeros(BATCH, int), batch)


def test_a_full_disk_raises_and_loses_nothing(file: Path) -> None:
    run_well(f"""
    import os, resource, signal
    import stepmill
    from stepmill import errors
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    def refused(call, *arguments):
        try:
            call(*arguments)
        except errors.ResourceError as error:
            return str(error)

    pool = stepmill.make("CartPole-v1", num_envs=4, batch_size=2, backend="inline")
    full = "record_order: /dev/full cannot be written: No space left on device"
    assert refused(pool.record_order, "/dev/full") == full
    pool.record_order({str(file)!r})
    pool.async_reset()
    size = os.stat({str(file)!r}).st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 5, resource.RLIM_INFINITY))
    assert pool.recv()[-1]["env_id"].tolist() == [0, 1]
    for _ in range(2):
        assert "cannot be written: File too large. No result is lost" in refused(pool.recv)
    assert pool.in_flight == [2, 3]
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert pool.recv()[-1]["env_id"].tolist() == [2, 3]
    assert os.stat({str(file)!r}).st_size == size + 8
    """)


def test_very_many_envs_take_words_of_four_bytes(file: Path) -> None:
    count, batch = 1 << 14, (1 << 14) - 1

    def played(pool: Any) -> list[Any]:
        pool.async_reset()
        return pool.drain()

    arguments = {"num_envs": count, "batch_size": batch, "backend": "inline"}
    with stepmill.make("CartPole-v1", **arguments) as pool:
        pool.record_order(file)
        results = played(pool)
    assert len(file.read_bytes().partition(b"\n")[2]) == 4 * count
    with stepmill.make("CartPole-v1", **arguments) as pool:
        pool.replay_order(file)
        assert_same(played(pool), results)
