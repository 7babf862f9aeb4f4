"""Envs on islands: worker processes of another interpreter, with its own packages, in the same pool."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import stepmill
from stepmill.errors import (
    ConfigError,
    EnvError,
    EnvTimeoutError,
    InputError,
    MissingPackageError,
    RemoteEnvError,
    StateError,
    StepmillError,
    UnknownConfigError,
    UnknownEnvError,
    UnsupportedError,
    WorkerDiedError,
)
from stepmill.hosts.shares import Share, share_out
from stepmill.sources.source import EnvBlueprint, PythonSource
from stepmill.system.interpreters import build_mark
from support.backends import play
from support.envs import AnsweringEnv, CountingEnv, Plain
from support.envs.faulty import FaultyEnv
from support.envs.many_spaces import Colour, Pair, WildEnv, WishingEnv
from support.envs.sealed import Walker
from support.islands import ONLY_THERE, make_environment, make_program
from support.lanes import assert_states_go_on
from support.probes import assert_same
from support.processes import belongings, kill_worker, left_since, worker_pids
from support.subprocesses import run_well, start
from support.waiting import Gate, ends, eventually

pytestmark = pytest.mark.usefixtures("deadline")


@pytest.fixture(scope="module")
def island(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An environment with a package of its own. A pool keeps its server, which spares the tests its start."""
    folder = make_environment(tmp_path_factory.mktemp("island") / "there", files={"only_there.py": ONLY_THERE})
    with stepmill.make(Plain, python=folder):
        yield str(folder)


def interpreter_of(folder: str) -> str:
    return os.path.join(folder, "bin", "python")


# ---- the same as at home -------------------------------------------------------------------------


@pytest.mark.parametrize("autoreset", ["next_step", "same_step"])
def test_an_island_plays_the_same_episodes(island: str, autoreset: str) -> None:
    arguments: dict[str, Any] = {"num_envs": 3, "autoreset": autoreset, "length": 4.0}
    with stepmill.make(WildEnv, python=island, num_workers=2, **arguments) as pool:
        assert pool.backend == "process"
        got = [play(pool, 25), pool.render(), pool.get_attr("length"), pool.observation_space, pool.metadata]
    with stepmill.make(WildEnv, backend="inline", **arguments) as oracle:
        expected = [
            play(oracle, 25),
            oracle.render(),
            oracle.get_attr("length"),
            oracle.observation_space,
            oracle.metadata,
        ]
    assert_same(got, expected)


def test_single_envs_of_a_pool_are_on_islands(island: str) -> None:
    """Async, so that rows of all of them meet in every batch."""
    where = [{}, {"python": island}, {"python": island}, {"python": None}, {"python": Path(island)}]
    with stepmill.make(WildEnv, num_envs=5, batch_size=5, env_config=where, length=4.0) as pool:
        assert pool.spec.config["num_workers"] >= 4  # as no worker can have envs of two interpreters
        got = play(pool, 20)
        shown = [one.get("python") for one in pool.spec.env_configs]
    with stepmill.make(WildEnv, num_envs=5, backend="inline", length=4.0) as oracle:
        assert_same(got, play(oracle, 20))
    there = interpreter_of(island)
    assert shown == [None, there, there, None, there]


def test_a_space_of_a_package_is_the_same_at_home_and_on_an_island(island: str) -> None:
    """MiniGrid's missions are texts in such a space."""
    with stepmill.make(WishingEnv, num_envs=3, env_config=[{}, {"python": island}, {}]) as pool:
        obs, _ = pool.reset()
        assert obs["wish"] == ("tea",) * 3
        assert pool.step([0, 0, 0])[0]["wish"] == ("salt",) * 3


def test_at_home_is_where_it_always_was() -> None:
    with stepmill.make("CartPole-v1", num_envs=2, env_config=[{"python": None}] * 2) as pool:
        assert pool.is_native


def test_an_env_of_a_pool_on_an_island_can_stay_at_home(island: str) -> None:
    task = "only_there:build"
    where = [{}, {"python": None}]
    with pytest.raises(UnknownEnvError, match="only_there:build"):  # at home nobody knows it
        stepmill.make(task, num_envs=2, python=island, env_config=where)


@pytest.mark.parametrize(("shares", "sizes"), [(1, [7]), (3, [2, 2, 3]), (7, [1] * 7)])
def test_workers_share_the_envs_evenly_and_in_order(shares: int, sizes: list[int]) -> None:
    out = share_out(PythonSource("x", [EnvBlueprint(Plain, {}, None)] * 7, None, None), 7, shares)
    assert [one.last - one.first for one in out] == sizes
    assert [one.first for one in out] == [0, *(one.last for one in out[:-1])]


def test_a_worker_has_envs_of_one_interpreter() -> None:
    envs = [EnvBlueprint(Plain, {}, None, python=one) for one in [None] * 2 + ["a"] * 5 + ["b"]]
    source = PythonSource("x", envs, None, None)
    assert share_out(source, 8, 3) == [Share(0, 2, None), Share(2, 7, "a"), Share(7, 8, "b")]
    fives = [Share(2, 3, "a"), Share(3, 5, "a"), Share(5, 7, "a")]
    assert share_out(source, 8, 5) == [Share(0, 2, None), *fives, Share(7, 8, "b")]
    assert [one.last - one.first for one in share_out(source, 8, 8)] == [1] * 8


# ---- saved states --------------------------------------------------------------------------------


@pytest.mark.parametrize(("task", "kind"), [(Walker, "fork"), pytest.param(WildEnv, "methods", marks=pytest.mark.slow)])
def test_states_are_saved_and_restored_there(island: str, task: Any, kind: str) -> None:
    with stepmill.make(task, num_envs=2, num_workers=2, python=island, seed=5) as pool:
        assert_states_go_on(pool, kind)


@pytest.mark.slow
def test_a_state_is_for_envs_of_the_same_interpreter(island: str) -> None:
    where: list[dict[str, Any]] = [{}, {"python": island}, {"python": island}]
    with stepmill.make(Walker, num_envs=3, num_workers=3, env_config=where, seed=[7, 8, 7]) as pool:
        pool.reset()
        states = pool.save()
        expected = [pool.step(np.ones(3, int))[0] for _ in range(5)]
        for given, env_ids in ((states[0], [1]), ([states[1], states[0]], [0, 2])):
            with pytest.raises(StateError, match=rf"env {env_ids[0]} cannot take a state of another configuration"):
                pool.restore(given, env_ids)
        pool.restore([states[0], states[2], states[1]])
        got = [pool.step(np.ones(3, int))[0] for _ in range(5)]
        assert_same(got, [one[[0, 2, 1]] for one in expected])
        assert len(pool.stats()["clones"]) == 3


MEETING = """
import pathlib, sys
# Opening either end of a named pipe waits for the other one.
home = pathlib.Path(sys.prefix)
open(home.parent / "{name}", "rb" if home.name == "left" else "wb").close()
"""


def test_islands_of_one_pool_start_and_load_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One after another, the first would wait for the second until the deadline; so would one that starts twice."""
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)  # bytecode in site-packages is no new package
    files = {name: MEETING.format(name=name) for name in ("sitecustomize", "meeting")}
    files["meeting"] += "from support.envs import Plain"
    for name in files:
        os.mkfifo(tmp_path / name)
    modules = {f"{name}.py": content for name, content in files.items()}
    islands = [make_environment(tmp_path / name, files=modules) for name in ("left", "right")]
    with stepmill.make("meeting:Plain", num_envs=2, env_config=[{"python": one} for one in islands]) as pool:
        assert pool.reset()[0].shape == (2, 2)


# ---- what only the island knows ------------------------------------------------------------------


def test_an_id_that_only_the_island_knows(island: str) -> None:
    with stepmill.make("only_there:OnlyThere-v0", num_envs=2, python=island) as pool:
        assert pool.spec.config["max_episode_steps"] == 9
        assert pool.spec.reward_threshold == 2.5
        assert pool.get_attr("size") == (4, 4)
        assert pool.metadata["render_fps"] == 7
        assert "token" not in pool.metadata
        assert pool.spec.action_space == gymnasium.spaces.Discrete(4, start=-1)
        obs, info = pool.reset(options={"a": 1})
        assert obs["word"] == ("there", "there")
        assert info["options"]["a"].tolist() == [1, 1]
    assert "only_there" not in sys.modules


def test_a_factory_that_only_the_island_knows(island: str) -> None:
    with stepmill.make("only_there:build", num_envs=2, python=island, env_config=[{}, {"size": 7}]) as pool:
        assert pool.get_attr("size") == (5, 7)
        assert pool.get_attr("python") == (interpreter_of(island),) * 2
        assert pool.get_attr("prefix") == (island,) * 2


def test_a_factory_by_its_name_works_at_home_too() -> None:
    with stepmill.make("support.envs:CountingEnv", num_envs=2, backend="inline", start=3) as pool:
        assert pool.get_attr("start") == (3, 3)


@pytest.mark.parametrize(
    ("task", "config"),
    [("CratPole-v1", {}), ("support.envs:Nobody", {}), ("CartPole-v1", {"colour": 3}), (Plain, {"colour": 3})],
    ids=["unknown id", "unknown name", "unknown key", "unknown key of a class"],
)
def test_what_is_wrong_is_told_in_the_same_words(island: str, task: Any, config: dict[str, Any]) -> None:
    def refusal(**where: Any) -> tuple[type, str]:
        with pytest.raises((UnknownEnvError, UnknownConfigError)) as told:
            stepmill.make(task, num_envs=2, **where, **config)
        return type(told.value), str(told.value)

    (kind, words), (kind_there, words_there) = refusal(backend="inline"), refusal(python=island)
    assert kind_there is kind
    assert (
        words_there.partition("did you mean")[0].partition("Known keys")[0]
        == (words.partition("did you mean")[0].partition("Known keys")[0])
    )


def test_a_missing_package_is_named_with_where_it_is_missing(tmp_path: Path) -> None:
    folder = make_environment(tmp_path / "there", files={"hide.pth": "import sys; sys.modules['ale_py'] = None"})
    with pytest.raises(MissingPackageError, match=rf"pip install 'stepmill\[atari\]', with {folder}/bin/python -m pip"):
        stepmill.make("ALE/Pong-v5", python=folder)


def test_make_spec_asks_the_island(island: str) -> None:
    before = belongings()
    spec = stepmill.make_spec("only_there:OnlyThere-v0", num_envs=3, python=island, size=6)
    assert spec.observation_space["word"] == gymnasium.spaces.Text(9)
    assert (spec.max_episode_steps, spec.reward_threshold) == (9, 2.5)
    assert spec.config["size"] == 6
    with pytest.raises(UnknownEnvError):
        stepmill.make_spec("only_there:OnlyThere-v0")
    assert left_since(before) == []


def test_list_all_envs_asks_the_island(island: str, tmp_path: Path) -> None:
    ask = "import stepmill; print(*stepmill.list_all_envs())"  # in this process, other tests may have registered more
    assert list(stepmill.list_all_envs(python=island)) == run_well(ask).split()
    with pytest.raises(MissingPackageError, match="pip install 'stepmill=="):
        stepmill.list_all_envs(python=str(make_environment(tmp_path / "bare", packages=False)))


# ---- what travels --------------------------------------------------------------------------------


def test_the_users_folders_travel_and_packages_do_not(island: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("PYTHONHOME", str(tmp_path))  # would keep any interpreter from starting
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("MINE", "yes")
    monkeypatch.syspath_prepend(str(tmp_path / "own"))
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "my_envs.py").write_text(
        "import os, sys\nfrom support.envs import CountingEnv\n"
        "class Mine(CountingEnv):\n    def seen(self): return sys.path, dict(os.environ), os.getcwd()\n"
    )
    with stepmill.make("my_envs:Mine", python=island) as pool:
        (path, environ, folder) = pool.call("seen")[0]
    assert str(tmp_path / "own") in path
    assert environ["MINE"] == "yes"
    assert environ["VIRTUAL_ENV"] == island
    assert environ["PATH"].split(os.pathsep)[0] == os.path.join(island, "bin")
    assert not {"PYTHONHOME", "PYTHONPATH"} & environ.keys()
    assert folder == os.getcwd()
    ours = Path(sys.prefix) / "lib"
    at_home = [one for one in path if Path(one).is_relative_to(ours)]
    assert path.index(at_home[0]) > path.index(str(Path(island) / "lib" / ours_of(island) / "site-packages"))


def ours_of(island: str) -> str:
    return next(Path(island, "lib").iterdir()).name


def test_code_travels_by_value_between_equal_versions(island: str, monkeypatch: Any) -> None:
    class Local(CountingEnv):
        def step(self, action: int) -> Any:
            return super().step(action)

    with stepmill.make(lambda: Local(4), num_envs=2, python=island) as pool:
        assert pool.get_attr("start") == (4, 4)
    monkeypatch.setattr("stepmill.hosts.process.caller.interpreter_part.versions", lambda: ("cpython-399", "3"))
    with pytest.raises(ConfigError, match=r"only between equal versions.*cpython-399.*Local.* cannot be imported"):
        stepmill.make(Local, num_envs=2, python=island)
    pool = stepmill.make(AnsweringEnv, python=island)  # it can be imported there
    with pool, pytest.raises(InputError, match=r"sent to an island.*cannot be imported there"):
        pool.call("apply", lambda count: count)


def test_ids_that_the_user_registered_travel_with_their_code(island: str, monkeypatch: Any) -> None:
    monkeypatch.setattr("stepmill.registry.records._records", dict(stepmill.registry.records._records))
    stepmill.register("Mine-v7", Plain, max_episode_steps=3)
    gymnasium.register("Yours-v7", "support.envs:CountingEnv", max_episode_steps=4, kwargs={"start": 2})
    gymnasium.register("Theirs-v7", lambda: CountingEnv(5))
    try:
        for id, limit in (("Mine-v7", 3), ("Yours-v7", 4), ("Theirs-v7", None)):
            with stepmill.make(id, num_envs=2, python=island) as pool:
                assert pool.spec.max_episode_steps == limit
                assert pool.reset()[0].shape[0] == 2
    finally:
        for id in ("stepmill/Mine-v7", "Yours-v7", "Theirs-v7"):
            del gymnasium.registry[id]


def test_values_come_back_plain(island: str) -> None:
    with stepmill.make("only_there:build", num_envs=2, python=island) as pool:
        pool.reset()
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            info = pool.step([0, 0])[-1]
        assert told == []  # the worker has told it, on stderr
        assert "token" not in info
        assert info["colour"].tolist() == ["red", "red"]
        assert info["level"].tolist() == [3, 3]
        assert info["array"].tolist() == [[0, 1, 2, 3, 4]] * 2
        with pytest.raises(UnsupportedError, match=r"get 'token' of env 0.*a Token.*another interpreter does not know"):
            pool.get_attr("token")
        pool.set_attr("size", [2, 3])
        assert pool.get_attr("size") == (2, 3)
        assert [one.size for one in pool.call("render")] == [12, 12]


def test_a_space_of_no_kind_that_gymnasium_has_comes_back_as_one_that_contains_any_value(island: str) -> None:
    spec = stepmill.make_spec(WishingEnv, python=island)
    with stepmill.make(WishingEnv, num_envs=2, python=island) as pool:
        assert pool.single_observation_space == spec.observation_space
        seen = [pool.reset()[0], pool.step([0, 0])[0]]
        assert all(pool.observation_space.contains(one) for one in seen)
        assert [one["wish"] for one in seen] == [("tea", "tea"), ("salt", "salt")]


def test_arguments_and_results_keep_what_both_know(island: str) -> None:
    given = [np.arange(3, dtype=">i2"), np.float32(2), {"a": (1, [None])}, gymnasium.spaces.Discrete(3), np.dtype("f4")]
    with stepmill.make(AnsweringEnv, python=island) as pool:
        (got,) = pool.call("echo", *given, pair=Pair(1, 2), colour=Colour.RED)
    assert_same(list(got[0][:3]), given[:3])
    assert list(got[0][3:]) == given[3:]
    assert got[1] == {"pair": (1, 2), "colour": "red"}  # classes of the user stay behind on the way back


def test_exceptions_of_an_island(island: str) -> None:
    with stepmill.make("only_there:build", num_envs=2, python=island) as pool:
        pool.reset()
        with pytest.raises(EnvError, match="ZeroDivisionError: a mistake of everybody") as told:
            pool.step([-1, 0])
        assert type(told.value.__cause__) is ZeroDivisionError
        pool.reset()
        with pytest.raises(EnvError, match="Mistake: a mistake of its own") as told:
            pool.step([0, 2])
        assert type(told.value.__cause__) is RemoteEnvError
        assert "only_there.py" in "".join(told.value.__cause__.__notes__)


def test_no_pickle_of_an_island_names_a_package() -> None:
    """They would be read by other versions of numpy and Gymnasium."""
    from stepmill.hosts.process import plain

    values = [
        np.arange(6).reshape(2, 3), np.array(["a", None], object), np.zeros(2, [("a", "i4"), ("b", "U3")]),
        np.float64(1), np.bool_(True), np.str_("x"), np.datetime64("2020-01-01"), np.dtype("int8"), np.float32,
        np.random.default_rng(3), WildEnv.observation_space, WildEnv.action_space, np.zeros((0, 2)), np.array(4),
        gymnasium.spaces.Sequence(gymnasium.spaces.Discrete(3)), gymnasium.spaces.MultiDiscrete([2, 3], start=[1, 2]),
        gymnasium.spaces.Graph(gymnasium.spaces.Box(0, 1, (2,)), None), gymnasium.spaces.MultiBinary((2, 3)),
        gymnasium.spaces.OneOf([gymnasium.spaces.Discrete(2)]), gymnasium.spaces.Box(0, 255, (4, 4), np.uint8),
    ]  # fmt: skip
    for value in values:
        packed = plain.dumps([value])
        assert b"numpy" not in packed
        assert b"gymnasium" not in packed
        (got,) = pickle.loads(packed)
        if isinstance(value, np.random.Generator):
            assert got.random() == value.random()
        elif isinstance(value, np.ndarray | np.generic):
            assert_same(got, value)
        else:
            assert got == value


# ---- when something goes wrong -------------------------------------------------------------------


def test_a_killed_worker_is_replaced_on_its_island(island: str) -> None:
    where = [{}, {"python": island}]
    with stepmill.make(Plain, num_envs=2, env_config=where, num_workers=2) as pool:
        pool.reset()
        kill_worker(pool, 1)
        with pytest.raises(WorkerDiedError, match="SIGKILL"):
            pool.step([1, 1])
        obs, *_, info = pool.step([1, 1])
        assert "abnormal" not in info
        assert obs[0].tolist() == [1, 1]
        assert pool.stats()["restarts"] == 1
        here, there = (Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].decode() for pid in worker_pids(pool))
        assert (here, there) == (sys.executable, interpreter_of(island))


def test_a_killed_server_or_template_of_an_island_is_replaced(island: str) -> None:
    with stepmill.make(Plain, num_envs=2, python=island, num_workers=1, on_error="restart") as pool:
        pool.reset()
        template = int(Path(f"/proc/{worker_pids(pool)[0]}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(template, signal.SIGKILL)
        assert eventually(lambda: "abnormal" in pool.step([0, 0])[-1])
        assert eventually(lambda: "abnormal" not in pool.step([0, 0])[-1])


def test_deadlines_hold_on_an_island(island: str, gate: Gate) -> None:
    configs = [{"length": 1000}, {"mishap": "gate", "folder": gate.folder, "length": 1000, "python": island}]
    with stepmill.make(FaultyEnv, num_envs=2, env_config=configs, num_workers=2, step_timeout=0.3) as pool:
        pool.reset()
        with pytest.raises(EnvTimeoutError, match="wait_at_gate"):  # the stack of the worker there
            pool.step([0, 0])


def test_nothing_is_left_of_an_island(tmp_path: Path) -> None:
    folder = make_environment(tmp_path / "there")
    before = belongings()
    with stepmill.make(Plain, num_envs=3, env_config=[{}, {"python": folder}, {}]) as pool:
        pool.reset()
    assert eventually(lambda: left_since(before) == [])


# ---- what cannot be an island --------------------------------------------------------------------


def broken_stepmill(text: str) -> dict[str, str]:
    return {"stepmill/__init__.py": text}


@pytest.mark.parametrize(
    ("files", "packages", "words"),
    [
        ({}, False, r"must be installed there too, version .* -m pip install 'stepmill=="),
        (broken_stepmill("__version__ = '0.0.1'\n_native = 1"), True, r"expected stepmill .*, got 0\.0\.1: .* -m pip"),
        (broken_stepmill("import nothing_like_that"), True, "cannot be imported.*nothing_like_that.*--force-reinstall"),
        (broken_stepmill("1 +"), True, "cannot be imported.*SyntaxError"),
    ],
    ids=["none", "another version", "broken", "unreadable"],
)
def test_stepmill_must_be_installed_there(files: Any, packages: bool, words: str, tmp_path: Path) -> None:
    folder = make_environment(tmp_path / "there", packages=packages, files=files)
    before = belongings()
    with pytest.raises(MissingPackageError, match=words) as told:
        stepmill.make(Plain, num_envs=2, python=folder)
    assert str(folder / "bin" / "python") in str(told.value)
    assert left_since(before) == []


@pytest.mark.parametrize("part", [min, max], ids=["compiled", "python"])
def test_another_build_of_the_same_version_is_refused(tmp_path: Path, monkeypatch: Any, part: Any) -> None:
    folder = make_environment(tmp_path / "there")
    ours = build_mark()
    assert len(ours) == 2
    monkeypatch.setattr("stepmill.system.interpreters.build_mark", lambda: {**ours, part(ours): 1})
    with pytest.raises(MissingPackageError, match="another build of version"):
        stepmill.make(Plain, python=folder)


@pytest.mark.parametrize(
    ("program", "kind", "words"),
    [
        ("#!/bin/sh\nexit 3\n", ConfigError, "does not run Python code: it exited with code 3"),
        ("#!/bin/sh\necho no >&2; exit 0\n", ConfigError, "code 0 and said: no"),
        ("not a program", ConfigError, "cannot be run"),
        ("#!/bin/sh\necho '{\"python\": [3, 8, 18]}'\n", ConfigError, r"expected Python 3\.11 or later, got 3\.8\.18"),
        ("#!/bin/sh\nexec sleep 1000\n", EnvTimeoutError, r"start_timeout=0\.5.* did not answer in time"),
    ],
    ids=["fails", "says something", "is text", "too old", "hangs"],
)
def test_it_must_be_an_interpreter(program: str, kind: type[StepmillError], words: str, tmp_path: Path) -> None:
    path = make_program(tmp_path / "python", program)
    timeout = 0.5 if "sleep" in program else 60
    before = belongings()
    with pytest.raises(kind, match=words) as told:
        stepmill.make(Plain, num_envs=2, python=path, start_timeout=timeout)
    assert str(path) in str(told.value)
    assert left_since(before) == []


# ---- scripts in place of an interpreter ----------------------------------------------------------

SPAWNING = """#!/bin/sh
sleep 1000 &
echo $$ $! > {fifo}
wait
"""


@pytest.fixture
def spawning(tmp_path: Path) -> tuple[Path, Path]:
    """A script that starts another program and waits for it; and where it says its own pid and that of the program."""
    fifo = tmp_path / "pids"
    os.mkfifo(fifo)
    return make_program(tmp_path / "python", SPAWNING.format(fifo=fifo)), fifo


def test_a_script_that_starts_the_interpreter_is_an_island_too(tmp_path: Path) -> None:
    folder = make_environment(tmp_path / "there")
    script = make_program(tmp_path / "python", f'#!/bin/sh\n"{folder}/bin/python" "$@"\n')
    before = belongings()
    with stepmill.make(Plain, num_envs=2, python=script) as pool:
        pool.reset()
        assert "abnormal" not in pool.step([0, 0])[-1]
    assert left_since(before) == []


def test_what_a_script_has_started_ends_with_a_failed_start(spawning: tuple[Path, Path]) -> None:
    script, fifo = spawning
    heard: list[str] = []
    reader = threading.Thread(target=lambda: heard.extend(fifo.read_text().split()))
    reader.start()
    before = belongings()
    with pytest.raises(EnvTimeoutError, match="did not answer in time"):
        stepmill.make(Plain, num_envs=2, python=script, start_timeout=3.0)
    if not heard:  # a busy machine: the script came no further
        fifo.write_text("")
    reader.join()
    assert all(ends(int(pid)) for pid in heard)
    assert left_since(before) == []


def test_what_a_script_has_started_ends_with_a_caller_that_is_killed(spawning: tuple[Path, Path]) -> None:
    script, fifo = spawning
    code = f"""
        import stepmill
        from support.envs import Plain
        stepmill.make(Plain, num_envs=2, python={str(script)!r})
        """
    with start(code) as process:
        pids = [int(pid) for pid in fifo.read_text().split()]
        assert len(pids) == 2
        process.kill()
        assert all(ends(pid) for pid in pids)


def test_what_a_script_has_started_ends_when_the_script_does(tmp_path: Path) -> None:
    script = make_program(tmp_path / "python", f"#!/bin/sh\nsleep 1000 &\necho $! >> {tmp_path / 'pids'}\nexit 3\n")
    with pytest.raises(ConfigError, match="does not run Python code: it exited with code 3"):
        stepmill.make(Plain, num_envs=2, python=script)
    pids = (tmp_path / "pids").read_text().split()
    assert len(pids) == 2, "it was tried, and then asked why"
    assert all(ends(int(pid)) for pid in pids)


@pytest.mark.parametrize("backend", ["inline", "thread"])
def test_islands_are_processes(backend: str, island: str) -> None:
    for task in ("CartPole-v1", Plain):
        for where in ({"python": island}, {"env_config": [{"python": island}]}):
            with pytest.raises(UnsupportedError, match=r"python: .* worker processes: use backend='process'"):
                stepmill.make(task, backend=backend, **where)


def test_there_is_a_worker_for_each_stretch(island: str) -> None:
    where = [{}, {"python": island}, {}]
    with pytest.raises(ConfigError, match=r"num_workers: expected at least 3, .* got 2"):
        stepmill.make(Plain, num_envs=3, env_config=where, num_workers=2)
    with stepmill.make(Plain, num_envs=3, env_config=where) as pool:
        assert pool.spec.config["num_workers"] == 3


def test_ids_that_are_native_only_run_and_envs_that_exist_are_refused(island: str) -> None:
    with stepmill.make("Catch-v0", python=island, seed=1) as pool, stepmill.make("Catch-v0", seed=1) as twin:
        assert pool.reset()[0].tolist() == twin.reset()[0].tolist()
    with pytest.raises(ConfigError, match="An env that exists already"):
        stepmill.make(Plain(), python=island)


def test_envs_of_one_pool_share_their_spaces_across_islands(island: str) -> None:
    with pytest.raises(ConfigError, match="env 1: expected the observation_space of env 0"):
        stepmill.make(["only_there:build", Plain], env_config=[{"python": island}, {}])
