"""Envs in other engines, with parcels in between: the same batches, and one row for every action whatever is lost."""

from __future__ import annotations

import pickle
import struct
from typing import Any

import numpy as np
import pytest

import stepmill
from stepmill import _native, errors
from stepmill.hosts.observing import snapshot_of
from support.carried import make_carried
from support.envs.remote import Teller
from support.probes import MODES, assert_same

pytestmark = pytest.mark.usefixtures("server")


def with_plain(task: Any, groups: list[int], **arguments: Any) -> Any:
    """A carried engine beside the engine of an ordinary pool."""
    engine, host = make_carried(task, groups, **arguments)
    plain = stepmill.make(task, **arguments)
    return engine, host, plain


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("task", "backend"), [("CartPole-v1", "thread"), (Teller, "process")])
def test_batches_are_those_of_an_ordinary_pool(task: Any, backend: str, mode: str) -> None:
    engine, _, plain = with_plain(task, [0, 1, 3], num_envs=5, seed=3, backend=backend, autoreset=mode)
    with plain:
        assert_same(engine.reset(None, None, None), plain.reset())
        rng = np.random.default_rng(1)
        for _ in range(3 if mode == "disabled" else 60):
            action = rng.integers(0, 2, 5)
            assert_same(engine.step(action), plain.step(action))
    engine.close()


def test_options_and_seeds_of_a_reset_reach_the_envs() -> None:
    arguments = {"num_envs": 3, "seed": 3, "backend": "process"}
    engine, _, plain = with_plain(Teller, [0, 2], **arguments)
    with plain:
        plain.reset()
        engine.reset(None, None, None)
        ours = engine.reset(None, [7, 8, 9], {"level": 2})
        assert_same(ours, plain.reset(seed=[7, 8, 9], options={"level": 2}))
        assert ours[1]["options"].tolist() == ["{'level': 2}"] * 3
    engine.close()


def test_a_failure_of_an_env_is_that_of_an_ordinary_pool() -> None:
    engine, _, plain = with_plain(Teller, [0, 2], num_envs=3, seed=3, backend="process", on_error="restart")
    with plain:
        plain.reset()
        engine.reset(None, None, None)
        for action in ([0, 1, 0], [0, 2, 1], [1, 1, 1], [2, 0, 2]):
            assert_same(engine.step(np.array(action)), plain.step(np.array(action)))
    engine.close()


def test_an_error_names_the_env_of_the_whole_pool() -> None:
    engine, _ = make_carried(Teller, [0, 2], num_envs=3, seed=3, backend="process")
    engine.reset(None, None, None)
    with pytest.raises(errors.EnvError, match=r"env 2 failed in step \(episode 1, step 0\): .*it broke at 1") as caught:
        engine.step(np.array([0, 0, 2]))
    assert isinstance(caught.value.__cause__, ValueError)
    assert caught.value.batch[4]["env_id"].tolist() == [0, 1, 2]
    engine.close()


def test_every_action_of_a_lost_group_gets_a_row() -> None:
    engine, host = make_carried("CartPole-v1", [0, 2], num_envs=4, batch_size=2, seed=3, on_error="restart")
    engine.send_reset(None, None, None)
    for _ in range(2):
        engine.recv()
    engine.send(np.zeros(3, int), np.array([0, 1, 3]))
    host.lose(0, "its node is gone")
    assert snapshot_of(_native.Tap(engine)).restarts == 1
    *_, truncated, info = engine.recv()
    assert info["env_id"].tolist() == [0, 1]
    assert truncated.all()
    assert info["abnormal"].all()
    *_, truncated, info = engine.recv()
    assert (info["env_id"].tolist(), truncated.tolist()) == ([3], [False])
    with pytest.raises(errors.NothingInFlightError):
        engine.recv()
    engine.close()


@pytest.mark.parametrize("mode", ["next_step", "same_step"])
def test_what_a_lost_env_was_doing_is_named(mode: str) -> None:
    engine, host = make_carried(Teller, [0], num_envs=1, seed=3, backend="process", autoreset=mode)

    def phase_of_loss() -> str:
        host.lose(0, "its node is gone")
        with pytest.raises(errors.WorkerDiedError, match=r"env 0 failed in (reset|step) .*its node is gone") as caught:
            engine.recv()
        return str(caught.value.phase)

    engine.send_reset(None, None, None)
    assert phase_of_loss() == "reset"
    engine.send(np.zeros(1, int), None)  # resets, as the episode is over
    assert phase_of_loss() == "reset"
    engine.reset(None, None, None)
    engine.send(np.zeros(1, int), None)
    assert phase_of_loss() == "step"
    engine.close()


# ---- parcels that are none -----------------------------------------------------------------------

HEAD = struct.Struct("<qii")  # bytes of rows, enclosures, spare
ENCLOSURE = struct.Struct("<qii")  # bytes, env, kind
OBJECTS, OPTIONS, NOTE, FAULT = range(4)


def rows_of(parcel: bytes) -> bytes:
    return parcel[HEAD.size : HEAD.size + HEAD.unpack_from(parcel)[0]]


def parcel_of(rows: bytes, *enclosures: tuple[int, int, bytes], spare: int = 0) -> bytes:
    parts = [ENCLOSURE.pack(len(content), env, kind) + content for env, kind, content in enclosures]
    return HEAD.pack(len(rows), len(enclosures), spare) + rows + b"".join(parts)


def test_parcels_are_as_written_here() -> None:
    engine, host = make_carried(Teller, [0, 1], num_envs=2, seed=3, backend="process")
    engine.send_reset(None, None, {"level": 2})
    order = host.pack(1, 1, 5)
    assert HEAD.unpack_from(order)[1:] == (1, 5)
    _, env, kind = ENCLOSURE.unpack_from(order, HEAD.size + len(rows_of(order)))
    assert (env, kind) == (0, OPTIONS)
    content = order[HEAD.size + len(rows_of(order)) + ENCLOSURE.size :]
    assert pickle.loads(content)[0] == {"level": 2}
    assert parcel_of(rows_of(order), (0, OPTIONS, content), spare=5) == order
    engine.close()


def test_a_broken_answer_changes_nothing() -> None:
    engine, host = make_carried("CartPole-v1", [0], num_envs=2, seed=3)
    engine.send_reset(None, None, None)
    answer = host.parcels[0].exchange(host.pack(0, 2, 0), 0.0, None)
    rows = rows_of(answer)
    fault = struct.pack("<qiiii", 1, 1, 0, 1, 0) + b"message"
    for broken in (
        *(answer[:size] for size in range(len(answer))),
        answer + b"x",
        b"\xff" * len(answer),
        parcel_of(rows[:-1]),
        parcel_of(b"\xff" * len(rows)),
        parcel_of(rows, (2, NOTE, b"")),
        parcel_of(rows, (-1, NOTE, b"")),
        parcel_of(rows, (0, 4, b"")),
        parcel_of(rows, (0, FAULT, fault[:23])),
        parcel_of(rows, (0, FAULT, struct.pack("<qiiii", 1, 9, 0, 1, 0))),
        parcel_of(rows, (0, FAULT, struct.pack("<qiiii", 1, 1, 0, 1, 3))),
        HEAD.pack(2**62, 0, 0) + rows,
        HEAD.pack(len(rows), 2**31 - 1, 0) + rows,
        HEAD.pack(len(rows), 1, 0) + rows + ENCLOSURE.pack(2**62, 0, NOTE),
    ):
        with pytest.raises(ValueError, match=r"parcel|answer|row|failure"):
            host.unpack(0, broken)
    for stranger in (None, 3, "rows", (answer,)):
        with pytest.raises(TypeError):
            host.unpack(0, stranger)
    assert host.away(0) == 2
    assert host.unpack(0, answer) == 2
    assert engine.recv()[4]["env_id"].tolist() == [0, 1]
    with pytest.raises(ValueError, match="was not asked"):
        host.unpack(0, parcel_of(b"", (0, NOTE, b"")))
    assert host.unpack(0, parcel_of(b"")) == 0
    engine.close()


def test_an_answer_has_at_least_the_rows_that_were_asked_for_however_late() -> None:
    engine, host = make_carried("CartPole-v1", [0], num_envs=8, seed=3)
    engine.send_reset(None, None, None)
    (parcels,) = host.parcels
    for _ in range(100):
        assert host.unpack(0, parcels.exchange(host.pack(0, 8, 2), 0.0, None)) >= 6
        while host.away(0):
            host.unpack(0, parcels.exchange(host.pack(0, 0, 0), 0.0, None))
        *_, info = engine.recv()
        assert sorted(info["env_id"]) == list(range(8))
        engine.send(np.zeros(8, int), info["env_id"])
    engine.close()


def test_a_broken_order_changes_nothing() -> None:
    engine, host = make_carried("CartPole-v1", [0], num_envs=2, seed=3)
    engine.send_reset(None, None, None)
    (parcels,) = host.parcels
    order = host.pack(0, 2, 2)
    rows = rows_of(order)
    for broken in (order[:-1], b"", b"\xff" * len(order), parcel_of(rows[:-1]), parcel_of(rows, (2, OPTIONS, b""))):
        with pytest.raises(ValueError, match=r"parcel|order"):
            parcels.exchange(broken, 0.0, None)
    assert host.engines[0].in_flight_count == 0
    with pytest.raises(RuntimeError, match="nothing to do"):
        parcels.exchange(host.pack(0, 0, 0), 0.0, None)
    host.engines[0].send_reset(None, None, None)
    with pytest.raises(errors.InFlightError, match="env 0 is in flight"):
        parcels.exchange(order, 0.0, None)
    engine.close()
