"""Envs in other engines, with parcels in between: the same batches, and one row for every action whatever is lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stepmill
from stepmill import _native, errors
from stepmill.hosts.observing import snapshot_of
from support.carried import make_carried
from support.probes import MODES, assert_equal
from support.ray_envs import Teller

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
        assert_equal(engine.reset(None, None, None), plain.reset())
        rng = np.random.default_rng(1)
        for _ in range(3 if mode == "disabled" else 60):
            action = rng.integers(0, 2, 5)
            assert_equal(engine.step(action), plain.step(action))
    engine.close()


def test_options_and_seeds_of_a_reset_reach_the_envs() -> None:
    arguments = {"num_envs": 3, "seed": 3, "backend": "process"}
    engine, _, plain = with_plain(Teller, [0, 2], **arguments)
    with plain:
        plain.reset()
        engine.reset(None, None, None)
        ours = engine.reset(None, [7, 8, 9], {"level": 2})
        assert_equal(ours, plain.reset(seed=[7, 8, 9], options={"level": 2}))
        assert ours[1]["options"].tolist() == ["{'level': 2}"] * 3
    engine.close()


def test_a_failure_of_an_env_is_that_of_an_ordinary_pool() -> None:
    engine, _, plain = with_plain(Teller, [0, 2], num_envs=3, seed=3, backend="process", on_error="restart")
    with plain:
        plain.reset()
        engine.reset(None, None, None)
        for action in ([0, 1, 0], [0, 2, 1], [1, 1, 1], [2, 0, 2]):
            assert_equal(engine.step(np.array(action)), plain.step(np.array(action)))
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


def test_a_broken_answer_changes_nothing() -> None:
    engine, host = make_carried("CartPole-v1", [0], num_envs=2, seed=3)
    engine.send_reset(None, None, None)
    (server,) = host.servers
    server.send(*host.pack(0, 2))
    parcel, notes, faults = server.recv(2, 0, None, None)
    for broken in (b"", parcel[:-1], parcel + b"x", b"\xff" * len(parcel)):
        with pytest.raises(ValueError, match=r"parcel|answer|row"):
            host.unpack(0, broken, notes, faults)
    with pytest.raises(ValueError, match="was not asked"):
        host.unpack(0, parcel, [(0, 7, b"")], faults)
    for broken_notes, broken_faults in [([(0,)], []), ([(0, "one", b"")], []), ([], [(0,)]), ([], [(0,) * 7]), (3, [])]:
        with pytest.raises((ValueError, TypeError, IndexError, RuntimeError)):
            host.unpack(0, parcel, broken_notes, broken_faults)
    assert host.away(0) == 2
    host.unpack(0, parcel, notes, faults)
    assert engine.recv()[4]["env_id"].tolist() == [0, 1]
    engine.close()


def test_an_answer_has_at_least_the_rows_that_were_asked_for_however_late() -> None:
    engine, host = make_carried("CartPole-v1", [0], num_envs=8, seed=3)
    engine.send_reset(None, None, None)
    (server,) = host.servers
    for _ in range(100):
        server.send(*host.pack(0, 8))
        host.unpack(0, *server.recv(8, 6, 0.0, None))
        assert host.away(0) <= 2
        if host.away(0):
            host.unpack(0, *server.recv(host.away(0), 0, None, None))
        *_, info = engine.recv()
        assert sorted(info["env_id"]) == list(range(8))
        engine.send(np.zeros(8, int), info["env_id"])
    engine.close()


def test_a_broken_order_changes_nothing() -> None:
    engine, host = make_carried("CartPole-v1", [0], num_envs=2, seed=3)
    engine.send_reset(None, None, None)
    (server,) = host.servers
    parcel, objects, options = host.pack(0, 2)
    for broken in (b"", parcel[:-1], b"\xff" * len(parcel)):
        with pytest.raises(ValueError, match=r"parcel|order"):
            server.send(broken, objects, options)
    assert host.places[0].in_flight_count == 0
    server.send(parcel, objects, options)
    with pytest.raises(errors.InFlightError, match="env 0 is in flight"):
        server.send(parcel, objects, options)
    engine.close()
