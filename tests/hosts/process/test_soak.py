"""A short soak; ``make soak`` is the long one. And that its books would show what they are kept for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepmill.errors import EnvError
from support.soak.env import HEAD, Order
from support.soak.ledger import Harm, Ledger, Violation
from support.soak.memory import growth
from support.subprocesses import run

SEED = 20
N, WIDTH, PID = 3, 16, 1234
Result = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]


@pytest.mark.slow
def test_a_short_soak_accounts_for_every_action_and_leaves_nothing_behind() -> None:
    arguments = ["--seconds", "8", "--kills", "16", "--seed", str(SEED)]
    finished = run(f"import sys; from support.soak.__main__ import main; sys.exit(main({arguments}))", deadline=300.0)
    assert finished.out.startswith(f"soak: seed {SEED}"), finished
    assert finished.code == 0, f"{finished.out}\n{finished.err}"


# ---- the books -----------------------------------------------------------------------------------


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    """Of a pool whose envs were all reset, by process ``PID``."""
    ledger = Ledger(N, "next_step", "restart", 3, Harm(tmp_path / "flaw"))
    ledger.sent_reset(range(N), 7)
    ledger.received((np.stack([shown(-7, i, 0) for i in range(N)]), info()), None)
    return ledger


def shown(serial: int, env_id: int, steps: int) -> np.ndarray:
    row = np.full(WIDTH, serial, np.int64)
    row[1:HEAD] = env_id, PID, steps
    return row


def info(**others: Any) -> dict[str, Any]:
    return {"env_id": np.arange(N), "elapsed_step": np.zeros(N, np.int32), **others}


def step(ledger: Ledger, orders: list[Order]) -> Result:
    """Sends the orders; gives the batch that has to come back where all of them are good ones."""
    actions = ledger.actions(range(N), orders)
    ledger.sent(range(N), actions)
    serials = actions[:, 0]
    told = serials % 3 == 0
    told_info = info(elapsed_step=np.ones(N, np.int32), serial=np.where(told, serials, 0), _serial=told)
    rows = np.stack([shown(int(serial), i, 1) for i, serial in enumerate(serials)])
    ends = np.array([order is Order.END for order in orders])
    return rows, serials.astype(np.float64), ends, np.zeros(N, np.bool_), told_info


def fail_row(batch: Result, row: int) -> None:
    """Makes it what a failed env's row is: after the reset, that is the last good observation."""
    observation, reward, terminated, truncated, its_info = batch
    observation[row] = shown(-7, row, 0)
    reward[row], terminated[row], truncated[row] = 0.0, False, True
    its_info["abnormal"] = np.arange(N) == row


def test_good_rows_are_taken(ledger: Ledger) -> None:
    ledger.received(step(ledger, [Order.STEP, Order.END, Order.LINGER]), None)
    ledger.settle()
    assert (ledger.counts.actions, ledger.counts.results, ledger.counts.abnormal) == (2 * N, 2 * N, 0)


def swap_rows(batch: Result) -> None:
    batch[0][[0, 1]] = batch[0][[1, 0]]


def tear_row(batch: Result) -> None:
    batch[0][1, WIDTH - 1] -= 1


def repeat_env(batch: Result) -> None:
    batch[-1]["env_id"][2] = 1


def lose_end(batch: Result) -> None:
    batch[2][1] = False


def lose_step(batch: Result) -> None:
    batch[-1]["elapsed_step"][0] = 0


def swap_infos(batch: Result) -> None:
    batch[-1]["serial"][:] += 3


def fail_for_nothing(batch: Result) -> None:
    fail_row(batch, 0)


@pytest.mark.parametrize(
    "tamper",
    [swap_rows, tear_row, repeat_env, lose_end, lose_step, swap_infos, fail_for_nothing],
    ids=lambda f: f.__name__,
)
def test_a_wrong_row_is_seen(ledger: Ledger, tamper: Callable[[Result], None]) -> None:
    batch = step(ledger, [Order.STEP, Order.END, Order.STEP])
    tamper(batch)
    with pytest.raises(Violation):
        ledger.received(batch, None)


def test_a_row_that_nothing_was_sent_for_is_seen(ledger: Ledger) -> None:
    batch = step(ledger, [Order.STEP] * N)
    ledger.received(batch, None)
    with pytest.raises(Violation, match="nothing was sent"):
        ledger.received(batch, None)


def test_a_row_that_does_not_come_is_seen(ledger: Ledger) -> None:
    observation, reward, terminated, truncated, its_info = step(ledger, [Order.STEP] * N)
    fewer = {key: value[:2] for key, value in its_info.items()}
    ledger.received((observation[:2], reward[:2], terminated[:2], truncated[:2], fewer), None)
    with pytest.raises(Violation, match="6 actions, 5 results"):
        ledger.settle()


def test_a_restored_env_shows_what_the_saved_one_did(ledger: Ledger) -> None:
    snapshot = ledger.snapshot(1)
    ledger.received(step(ledger, [Order.STEP] * N), None)
    ledger.sent_restore([0], [snapshot])
    ledger.received((shown(-7, 1, 0)[None], {"env_id": np.array([0]), "elapsed_step": np.zeros(1, np.int32)}), None)
    ledger.sent_restore([0], [snapshot])
    with pytest.raises(Violation, match="a restored env shows"):
        ledger.received((shown(-7, 0, 0)[None], {"env_id": np.array([0]), "elapsed_step": np.zeros(1, np.int32)}), None)


def test_an_abnormal_row_is_taken_where_there_is_a_cause(tmp_path: Path, ledger: Ledger) -> None:
    batch = step(ledger, [Order.RAISE, Order.STEP, Order.STEP])
    fail_row(batch, 0)
    ledger.received(batch, None)
    assert ledger.counts.abnormal == 1
    assert ledger.unreset == [0]


def test_a_good_row_of_an_env_that_was_told_to_fail_is_seen(ledger: Ledger) -> None:
    with pytest.raises(Violation, match="told to fail"):
        ledger.received(step(ledger, [Order.RAISE, Order.STEP, Order.STEP]), None)


def test_an_error_for_other_envs_than_the_abnormal_ones_is_seen(ledger: Ledger) -> None:
    batch = step(ledger, [Order.RAISE, Order.STEP, Order.STEP])
    fail_row(batch, 0)
    error = EnvError.gather([EnvError("of another", env_id=1)], batch)
    with pytest.raises(Violation, match="errors for envs"):
        ledger.received(batch, error)


def test_an_error_that_comes_too_early_is_seen(ledger: Ledger) -> None:
    batch = step(ledger, [Order.RAISE, Order.STEP, Order.STEP])
    fail_row(batch, 0)
    error = EnvError.gather([EnvError("the first in a row", env_id=0)], batch)
    with pytest.raises(Violation, match="limit 3"):
        ledger.received(batch, error)


def test_growth_is_from_the_second_round_to_the_last() -> None:
    assert growth([1.0, 5.0]) == 0.0
    assert growth([1.0, 5.0, 6.0, 9.5]) == 4.5
