"""The text game on a server that fails, as a reader runs it, and what each way to deal with failures sees."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def text_game(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(EXAMPLES)
    import text_game

    return text_game


@pytest.mark.parametrize("failures", ["mask", "zero"])
def test_it_runs_and_says_what_it_reached(failures: str, tmp_path: Path) -> None:
    few = "--seed 3 --updates 2 --num-envs 64 --wait 0.001 --step-timeout 0.5 --fails 1 --log curve"
    command = [sys.executable, str(EXAMPLES / "text_game.py"), *few.split(), "--failures", failures]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stderr) == (0, "")
    end = (
        rf"\nseed 3, --failures {failures}: mean return \d\.\d+ ± \d\.\d+ over 256 episodes in which nothing fails, "
        r"where 2\.548 is the best possible, after \d+ steps of which [1-9]\d* failed, and \d+ s\n"
        r"the same policy where the server fails: mask \d\.\d+, drop \d\.\d+, zero \d\.\d+\n"
    )
    assert re.search(end, done.stdout), done.stdout
    curve = [json.loads(line) for line in (tmp_path / "curve").read_text().splitlines()]
    assert len(curve) == 3
    assert [line["failures"] for line in curve] == sorted(line["failures"] for line in curve)
    assert curve[-1].keys() == {"steps", "seconds", "return", "estimate", "failures"}


def played(text_game: ModuleType, episodes: int, fails: float) -> tuple[np.ndarray, np.ndarray]:
    """Steps as rows of ``Steps`` and first texts, of a game that can be counted on fingers, chosen at random.

    In text 0, action 0 gives nothing and leads to text 1, and action 1 gives 1 and ends. In text 1, action 0 gives 4 or
    nothing, as often, and ends; it fails with probability ``fails``. So under a policy that does not care the return is
    1.5 (1 or 2), where in text 1 action 1 gives 2.
    """
    rng = np.random.default_rng(5)
    rows = []
    for env_id in range(episodes):
        first = rng.integers(2)
        if first == 1:
            rows.append((env_id, 0, 1, 1.0, 2, True, False))
            continue
        rows.append((env_id, 0, 0, 0.0, 1, False, False))
        second = rng.integers(2)
        has_failed = second == 0 and rng.random() < fails
        reward = 2.0 if second == 1 else 4.0 * rng.integers(2)
        rows.append((env_id, 1, second, 0.0 if has_failed else reward, 1 if has_failed else 2, True, has_failed))
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    return text_game.Steps(*columns), np.zeros(episodes, int)


@pytest.mark.parametrize("fails", [0.0, 0.6])
def test_masked_failures_leave_the_value_as_it_is_and_others_do_not(text_game: ModuleType, fails: float) -> None:
    episodes = 40_000
    steps, starts = played(text_game, episodes, fails)
    player = text_game.Player(seed=1, learning_rate=0.1)
    for text in ("a b", "c d", "e f"):  # without weights, all actions are as likely
        player.words.number(text)
    # The third action is never played, and counts for nothing.
    values = player.values(steps.learned_from("mask"))
    told = text_game.estimates(values[starts], steps, episodes)
    error = 0.03  # five standard errors
    assert told["mask"] == pytest.approx(1.5, abs=error)
    expected = {"zero": 1.5 - fails * 0.25 * 2.0, "drop": (1.5 - fails * 0.25 * 2.0) / (1 - fails * 0.25)}
    assert told["zero"] == pytest.approx(expected["zero"], abs=error)
    assert told["drop"] == pytest.approx(expected["drop"], abs=error)
    naive = player.values(steps.learned_from("zero"))
    assert naive[0] == pytest.approx(expected["zero"], abs=error)


def test_a_word_is_known_by_its_sentence(text_game: ModuleType) -> None:
    words = text_game.Words()
    texts = ["Left: gas. Right: light.", "Left: light. Right: gas.", "Left: gas. Right: light."]
    assert [words.number(text) for text in texts] == [0, 1, 0]
    table = words.table()
    assert table.shape == (2, 4)
    assert (table.sum(1) == 2).all()
    assert (table[0] * table[1]).sum() == 0


def test_learning_makes_the_better_action_likelier(text_game: ModuleType) -> None:
    steps, _ = played(text_game, 1000, 0.5)
    player = text_game.Player(seed=1, learning_rate=0.1)
    for text in ("a b", "c d", "e f"):
        player.words.number(text)
    values = player.values(steps)
    player.learn(steps, values)
    assert player.policy()[1, 1] > player.policy()[1, 0], "where failures count, the action that fails is worse"
