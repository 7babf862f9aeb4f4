"""Type checkers over the programs of users: mypy and pyright know what is right, and what is not.

pyright comes as basedpyright, which is pyright with more rules (turned off here) and brings all it needs in its wheels:
the package ``pyright`` downloads itself when it runs.
"""

from __future__ import annotations

import importlib.util
import json
import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest
from gymnasium.vector import AutoresetMode

import stepmill
from stepmill import settings
from stepmill.errors import ConfigError
from stepmill.make import EnvType

CLIENTS = Path(__file__).parent / "support"
MISTAKE = re.compile(r"  # mypy: (.+?) pyright: (.+)$", re.MULTILINE)

needs_mypy = pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="no mypy: pip install mypy")
needs_pyright = pytest.mark.skipif(
    importlib.util.find_spec("basedpyright") is None, reason="no pyright: pip install basedpyright"
)
both = pytest.mark.parametrize("client", ["numpy", pytest.param("torch", marks=pytest.mark.torch)])


@both
def test_the_client_runs(client: str) -> None:
    runpy.run_path(str(CLIENTS / f"{client}_client.py"), run_name="__main__")


# ---- checkers ------------------------------------------------------------------------------------

# Not looked into: it would take a minute. What pyright knows of tensors must do.
MYPY = """
[mypy]
strict = true
warn_unused_ignores = false
ignore_missing_imports = true
[mypy-torch.*,jax.*]
follow_imports = skip
"""


@needs_mypy
def test_mypy(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    source = client_in(tmp_path, "numpy")
    (tmp_path / "mypy.ini").write_text(MYPY)
    cache = getattr(pytestconfig, "cache", None)  # what it knows of numpy takes longer than all the rest
    kept = tmp_path if cache is None else cache.mkdir("mypy")
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(kept), "client.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.stderr == ""
    said = [(int(at), text) for at, text in re.findall(r"^client\.py:(\d+): error: (.*)$", done.stdout, re.MULTILINE)]
    compare(source, said, 1, done.stdout)


@needs_pyright
@both
def test_pyright(tmp_path: Path, client: str) -> None:
    source = client_in(tmp_path, client)
    (tmp_path / "pyrightconfig.json").write_text(
        json.dumps({"typeCheckingMode": "standard", "reportUnusedExpression": False})
    )
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable, "client.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    found: list[dict[str, Any]] = json.loads(done.stdout)["generalDiagnostics"]
    said = [(one["range"]["start"]["line"] + 1, one["message"]) for one in found if one["severity"] == "error"]
    compare(source, said, 2, done.stdout)


def client_in(folder: Path, client: str) -> str:
    """Outside of this repository: the checkers see the installed package, and no configuration of ours."""
    source = (CLIENTS / f"{client}_client.py").read_text(encoding="utf-8")
    (folder / "client.py").write_text(source, encoding="utf-8")
    return source


def compare(source: str, said: list[tuple[int, str]], group: int, output: str) -> None:
    lines = dict(enumerate(source.splitlines(), 1))
    expected = {at: match[group] for at, line in lines.items() if (match := MISTAKE.search(line))}
    assert {at for at, _ in said} == expected.keys(), output
    for at, words in expected.items():
        assert any(words in text for one, text in said if one == at), (lines[at], output)


# ---- one list ------------------------------------------------------------------------------------


def type_of(name: str) -> Any:
    """What an argument of ``make`` may be; of a backend, the words."""
    annotation = stepmill.make.__annotations__[name].removesuffix(" | Ray | Process")
    return eval(annotation, vars(sys.modules["stepmill.make"]))


@pytest.mark.parametrize("name", ["backend", "on_error", "action_bounds", "output"])
def test_the_words_of_a_setting_are_those_of_its_type(name: str) -> None:
    words = get_args(type_of(name))
    assert len(words) >= 2
    assert settings.SETTINGS[name].default in words
    for word in words:
        assert settings.SETTINGS[name].check(name, word) == word
    with pytest.raises(ConfigError, match=", ".join(map(repr, words[:2]))):
        settings.SETTINGS[name].check(name, "other")


def test_the_words_of_autoreset_are_ours_and_gymnasiums() -> None:
    *ours, enum = get_args(type_of("autoreset"))
    assert enum is AutoresetMode
    words = [word for literal in ours for word in (get_args(literal) or (literal,))]
    assert words == [*settings.GYMNASIUM_MODES, *(mode.value for mode in settings.GYMNASIUM_MODES.values())]
    assert [settings.SETTINGS["autoreset"].check("autoreset", word) for word in words] == [
        *settings.AUTORESET_MODES
    ] * 2


def test_the_views_are_those_of_the_type() -> None:
    for view in get_args(EnvType):
        stepmill.make("CartPole-v1", view).close()
    with pytest.raises(ConfigError, match=", ".join(map(repr, get_args(EnvType)))):
        stepmill.make("CartPole-v1", "other")  # type: ignore[call-overload]
