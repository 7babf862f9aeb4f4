"""``make run``: the demo, run as a user runs it."""

import re
import subprocess
import sys

import pytest

pytest.importorskip("rich")


def demo(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "stepmill.cli.demo", *arguments], capture_output=True, text=True, timeout=120
    )


def row(output, name):
    """The cells of the table row whose first cell begins with ``name``."""
    for line in output.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0].startswith(name):
            return cells
    pytest.fail(f"no row {name!r} in\n{output}")


def test_demo_prints_a_table():
    result = demo("--seconds", "0.5", "--num-envs", "64")
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert "CartPole-v1, 64 envs" in result.stdout
    for name in ("stepmill", "Gymnasium"):
        _, steps, episodes, mean = row(result.stdout, name)
        assert int(steps.replace(",", "")) > 0
        assert int(episodes.replace(",", "")) > 0
        assert 8 <= float(mean) <= 500
    assert float(row(result.stdout, "ratio")[1].rstrip("x").replace(",", "")) > 0
    compared = re.search(r"([\d,]+) steps in 8 envs equal Gymnasium's, bit for bit", result.stdout)
    assert int(compared[1].replace(",", "")) >= 2000


def test_output_is_plain_without_a_terminal():
    result = demo("--seconds", "0.1", "--num-envs", "4")
    assert result.stdout.isascii()
    assert "\x1b" not in result.stdout
    assert "\r" not in result.stdout


def test_an_env_that_gymnasium_lacks_runs_alone():
    result = demo("--seconds", "0.1", "--num-envs", "4", "--env", "Catch-v0")
    assert result.returncode == 0, result.stderr
    assert "Gymnasium has no Catch-v0" in result.stdout
    row(result.stdout, "stepmill")


def test_an_env_that_is_not_native_is_not_compared_with_itself():
    result = demo("--seconds", "0.1", "--num-envs", "1", "--env", "gymnasium:CartPole-v1")
    assert result.returncode == 0, result.stderr
    assert "stepmill ran Gymnasium's own env, so there is nothing to compare" in result.stdout
    row(result.stdout, "Gymnasium")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--env", "CartPol-v1"), "CartPole-v1"),
        (("--num-envs", "0"), "num_envs"),
        (("--seconds", "0"), "--seconds"),
        (("--seconds", "nan"), "--seconds"),
    ],
)
def test_bad_arguments_are_explained(arguments, message):
    result = demo(*arguments)
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr
