"""``stepmill collect``: data sets from the command line."""

from __future__ import annotations

from pathlib import Path

import minari
import numpy as np
import pytest

from stepmill.tools.cli.entry import main

POLICY = """
import sys
import stepmill

@stepmill.per_env
def one(observation, generator):
    return 1

@stepmill.per_env
def confused(observation, generator):
    raise ValueError("left or right?")

@stepmill.per_env
def leaving(observation, generator):
    sys.exit(0)

class Unwilling:
    def __call__(self, observations, env_ids, generators):
        return [1] * len(env_ids)

    def begin(self, env_ids):
        raise ValueError("not today")
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "datasets"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def collect(*arguments: object) -> int:
    return main(["collect", "CartPole-v1", *map(str, arguments)])


def test_the_same_data_set_however_it_is_played(capsys: pytest.CaptureFixture[str]) -> None:
    assert collect("--episodes", 5, "-o", "cli/a-v0", "--num-envs", 4) == 0
    assert "minari.load_dataset('cli/a-v0')" in capsys.readouterr().out
    assert collect("--episodes", 5, "-o", "cli/b-v0", "--num-envs", 2, "--backend", "inline") == 0
    for a, b in zip(minari.load_dataset("cli/a-v0"), minari.load_dataset("cli/b-v0"), strict=True):
        np.testing.assert_array_equal(a.observations, b.observations)
        np.testing.assert_array_equal(a.actions, b.actions)
    assert len(set(np.concatenate([one.actions for one in minari.load_dataset("cli/a-v0")]).tolist())) == 2


def test_a_data_set_that_is_complete_already_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    for _ in range(2):
        assert collect("--episodes", 2, "-o", "cli/a-v0") == 0
        said.append(capsys.readouterr().out)
    assert ["nothing was played" in one for one in said] == [False, True]
    assert collect("--episodes", 2, "-o", "cli/a-v0", "--json") == 0
    assert '"was_complete": true' in capsys.readouterr().out


def test_a_policy_from_a_file(folder: Path) -> None:
    (folder / "ones.py").write_text(POLICY)
    assert collect("--episodes", 3, "-o", "cli/ones-v0", "--policy", "ones.py:one") == 0
    dataset = minari.load_dataset("cli/ones-v0")
    assert [episode.id for episode in dataset] == [0, 1, 2]
    assert all((episode.actions == 1).all() for episode in dataset)


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ("confused", "ValueError: left or right?"),
        ("leaving", "SystemExit: 0"),
        ("Unwilling", "ValueError: not today"),
    ],
)
def test_a_policy_that_fails_is_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], policy: str, said: str
) -> None:
    (folder / "failing.py").write_text(POLICY)
    assert collect("--episodes", 3, "-o", "cli/failing-v0", "--policy", f"failing.py:{policy}") == 1
    line = capsys.readouterr().err
    assert f"the policy failed: {said}" in line
    assert "failing.py, line" in line
    assert line.count("\n") == 1


@pytest.mark.parametrize("place", ["a-file/datasets", "a-folder"])
def test_a_folder_that_cannot_be_written_to_is_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    (folder / "a-file").touch()
    (folder / "a-folder").mkdir()
    (folder / "a-folder" / "cli").touch()  # where the data set's folder would be
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(folder / place))
    assert collect("--episodes", 3, "-o", "cli/a-v0") == 2
    line = capsys.readouterr().err
    assert f"cannot write to {folder / place}" in line
    assert line.count("\n") == 1


def test_a_name_that_minari_does_not_take_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert collect("--episodes", 3, "-o", "no version") == 2
    assert capsys.readouterr().err.count("\n") == 1
