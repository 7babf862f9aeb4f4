"""What several test files need around their tests.

No test has any of these by itself: a file whose tests all need one says so at its top, in ``pytestmark``.
"""

from __future__ import annotations

import functools
import gc
import itertools
import signal
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import stepmill
from support.envs import ProbeTwin
from support.waiting import Gate, no_hang

# In the environment of the docs, where this file is not read: `make test-docs`.
collect_ignore = ["site"]

MOST_ENVS = 6  # in one pool or manager whose envs come to a gate
# Of each test, with `--quick`. The next cases count as slow, which `make test-more` runs, and the rest as long.
QUICK_CASES = 2
MOST_CASES = 4  # that are not long
LONG = (
    "zoo/",
    "examples/",
    "wrappers/test_atari.py",
    "tools/watching/test_page.py",
)  # simulators, trainings, a browser
WORLDS = "zoo/worlds/"  # which only `make test-jax` has


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="what drives simulators, and most cases, count as slow")


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`make test` asks every question in two cases, `make test-all` in every combination of what it may depend on.

    What holds for the project as a whole, in the files of this folder, is asked in all cases, which are quick.
    """
    if not config.getoption("quick"):
        return
    here = Path(__file__).parent
    for _, cases in itertools.groupby(items, key=lambda item: item.nodeid.partition("[")[0]):
        # In the order of a checksum: cases next to each other differ in the last parameter only.
        ordered = sorted(cases, key=lambda item: zlib.crc32(item.nodeid.encode()))
        path = ordered[0].path.relative_to(here).as_posix()
        if "/" in path and ordered[0].get_closest_marker("all_cases") is None:
            for case in ordered[0 if path.startswith(LONG) and not path.startswith(WORLDS) else QUICK_CASES :]:
                case.add_marker("slow")
            for case in ordered[MOST_CASES:]:
                case.add_marker("long")


def pytest_configure() -> None:
    """Programs that tests start inherit what is ignored: Ctrl-C in the background of a shell, SIGHUP below nohup."""
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


def pytest_collection_finish() -> None:
    """Garbage collections, which many tests ask for, need not look through the thousands of tests each time."""
    gc.collect()
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tests marked ``torch`` need it. `make test` does without; `make integrations` has it."""
    if item.get_closest_marker("torch") is not None:
        pytest.importorskip("torch")


@pytest.fixture
def make() -> Any:
    """``stepmill.make`` that closes what it made."""
    pools = []

    def build(*args: Any, **arguments: Any) -> Any:
        pools.append(stepmill.make(*args, **arguments))
        return pools[-1]

    yield build
    for pool in pools:
        pool.close()


@pytest.fixture
def stepmill_command(capfd: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """``stepmill_command("run", "CartPole-v1")``: its exit code, stdout and stderr."""
    from support.commands import run_command  # the command line has packages of its own

    return functools.partial(run_command, capfd)


@pytest.fixture
def deadline() -> Iterator[None]:
    """A test that would wait forever fails."""
    with no_hang():
        yield


@pytest.fixture(scope="session")
def server() -> Iterator[None]:
    """A pool that stays open: its server starts the workers of all others, and is the same before and after a test."""
    with stepmill.make(ProbeTwin, backend="process"):
        yield


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    """A gate in the folder of the test; after the test, nobody waits there any more."""
    opened = Gate(tmp_path, MOST_ENVS)
    yield opened
    opened.close()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stuck workers are not waited for as long as usual."""
    monkeypatch.setattr("stepmill.hosts.process.process_host._CLOSE_S", 0.2)


@pytest.fixture(scope="module")
def one_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cache of compiled envs for all tests of a file, so that each env is compiled once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield
