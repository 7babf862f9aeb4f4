"""``examples/own_envs``: one env in several languages plays the episodes of the same env in Python, bit for bit."""

from __future__ import annotations

import importlib.util
import pickle
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepmill
from stepmill.errors import ConfigError, EnvError
from stepmill.testing import check_env

pytestmark = pytest.mark.usefixtures("one_cache")
EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "own_envs"
Coin = runpy.run_path(str(EXAMPLES / "coin.py"))["Coin"]
ZIG = ["zig"] if shutil.which("zig") else [sys.executable, "-m", "ziglang"]
HAS = {
    "coin.c": shutil.which("cc"),
    "coin.rs": shutil.which("rustc"),
    "coin.h": shutil.which("g++"),
    "coin.zig": ZIG == ["zig"] or importlib.util.find_spec("ziglang"),
}


def built(source: str, folder: Path) -> str:
    """What ``make`` takes: the file itself, or the library that the command in its first lines builds."""
    if source.endswith(".h"):
        return str(EXAMPLES / source)
    indented = re.findall(r"^(?://| \*) {5,}(.*)$", (EXAMPLES / source).read_text(), re.MULTILINE)
    command = " ".join(line.rstrip("\\") for line in indented).replace(
        '$(python -c "import stepmill; print(stepmill.get_include())")', stepmill.get_include()
    )
    words = [str(EXAMPLES / word) if word == source else word for word in command.split()]
    subprocess.run([*ZIG, *words[1:]] if words[0] == "zig" else words, cwd=folder, check=True)
    return str(folder / f"lib{Path(source).stem}.so")


@pytest.fixture(scope="module")
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    if not HAS[request.param]:
        pytest.skip(f"no compiler for {request.param}")
    return built(request.param, tmp_path_factory.mktemp("library"))


LANGUAGES = pytest.mark.parametrize(
    "library",
    [pytest.param(one, marks=pytest.mark.long if one == "coin.zig" else ()) for one in HAS],
    indirect=True,
)


@LANGUAGES
@pytest.mark.parametrize("backend", ["thread", "process"])
def test_its_episodes_are_those_of_python(library: str, backend: Any) -> None:
    result = stepmill.verify(
        library, reference=Coin, steps=2000, max_episode_steps=20, bias=0.7, backend=backend, autoreset="same_step"
    )
    assert result, result
    assert result.episodes > 50


@LANGUAGES
def test_it_keeps_the_rules(library: str) -> None:
    findings = check_env(library, print_report=False, steps=50, episodes=2)
    assert not findings, findings


@LANGUAGES
def test_a_wrong_setting_is_refused_in_its_words(library: str) -> None:
    with pytest.raises(ConfigError, match=r"bias: expected 0 to 1, got 2\.000000"):
        stepmill.make(library, bias=2.0)


@LANGUAGES
def test_states_are_saved_restored_and_forked_while_it_is_watched(library: str) -> None:
    actions = np.random.default_rng(2).integers(0, 2, (30, 4))
    with stepmill.make(library, num_envs=4, seed=5, max_episode_steps=12) as pool:
        pool.reset()
        pool.step(actions[0])
        states = pool.save()
        seen = [pool.step(action)[:2] for action in actions]
        pool.restore(pickle.loads(pickle.dumps(states)))
        for row, action in zip(seen, actions, strict=True):
            np.testing.assert_array_equal(pool.step(action)[:2], row)
        pool.fork(0, [1, 2, 3])
        with pool.watch(open_browser=False):
            for action in actions:
                assert len({*pool.step(np.full(4, action[0]))[0]}) == 1


def test_cart_pole_in_c_is_gymnasiums(tmp_path: Path) -> None:
    if not HAS["coin.c"]:
        pytest.skip("no compiler for C")
    library = built("cart_pole.c", tmp_path)
    for batch_size in (8, 3):
        result = stepmill.verify(
            library, reference="CartPole-v1", steps=2000, max_episode_steps=500, batch_size=batch_size
        )
        assert result, result


def test_a_panic_in_rust_is_the_error_of_that_env(tmp_path: Path) -> None:
    if not HAS["coin.rs"]:
        pytest.skip("no compiler for Rust")
    source = (EXAMPLES / "coin.rs").read_text()
    begins = "random: &mut Random) -> Outcome {"
    assert begins in source
    (tmp_path / "coin.rs").write_text(source.replace(begins, begins + ' assert!(guess == 0, "it fell");'))
    command = ["rustc", "--edition", "2021", "-O", "--crate-type", "cdylib", "coin.rs"]
    subprocess.run(command, cwd=tmp_path, check=True)
    with stepmill.make(str(tmp_path / "libcoin.so"), num_envs=2) as pool:
        pool.reset()
        with pytest.raises(EnvError, match="it fell"):
            pool.step(np.array([0, 1]))
        pool.step(np.zeros(2, int))
