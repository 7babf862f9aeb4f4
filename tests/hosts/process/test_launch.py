"""Worker processes start from any program: scripts without a guard, ids and classes of ``__main__``, edited modules.

Each case is a program of its own, run as a user would run it.
"""

from __future__ import annotations

import importlib
import logging
import os
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import stepmill
from stepmill.errors import ConfigError
from support.envs import CountingEnv
from support.subprocesses import DEADLINE, run_well

# What every program begins with. It says so: whoever runs it a second time is heard.
BEGIN = """
print("begun", flush=True)
import gymnasium, os, sys
import numpy as np
import stepmill
from support.probes import assert_same
from support.backends import play
from support.envs import CountingEnv

class Mine(CountingEnv):
    '''Whatever this module holds can be used: here, a constant and a function.'''

    def step(self, action):
        obs, reward, *rest = super().step(action)
        return obs, twice(reward) + BONUS, *rest

BONUS = 0.25

def twice(number):
    return 2 * number

def same_as_inline(task, **arguments):
    with stepmill.make(task, num_envs=3, backend="process", num_workers=2, **arguments) as pool:
        got = play(pool, 5)
    with stepmill.make(task, num_envs=3, backend="inline", **arguments) as oracle:
        assert_same(got, play(oracle, 5))
    return True
"""


def run_file(folder: Path, code: str, *flags: str, cwd: Path | None = None) -> list[str]:
    """Runs a file as a program and returns the words it printed; it must end well and say nothing on stderr."""
    file = folder / "program.py"
    file.write_text(textwrap.dedent(code))
    path = os.pathsep.join([str(Path(__file__).parents[2]), str(Path(stepmill.__file__).parents[1])])
    done = subprocess.run(
        [sys.executable, "-W", "error", *flags, str(file)],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        cwd=cwd or folder,
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout.split()


# ---- __main__ ------------------------------------------------------------------------------------

OF_MAIN = """
import abc, collections.abc, dataclasses
from collections.abc import Mapping

def build(offset):
    def factory(env_id):
        return Mine(offset + env_id)
    return factory

class Doubled(gymnasium.RewardWrapper):
    def reward(self, reward):
        return twice(reward)

@dataclasses.dataclass
class Level:
    start: int

class Base(abc.ABC):
    pass

class Library(Mine, Base):
    '''What Python itself brings is Python's own in the worker too.'''

    def __init__(self):
        import abc, collections.abc, os.path
        assert Mapping is collections.abc.Mapping and isinstance({}, Mapping)
        assert abc.ABC in type(self).__mro__ and os.path.join is join
        super().__init__(len(os.getcwd()))

join = os.path.join

def of_level(level):
    assert type(level) is Level
    return Mine(level.start)

with stepmill.make(Mine, backend="process"):  # keeps the server that starts workers
    print("class", same_as_inline(Mine))
    print("configured", same_as_inline(Mine, env_config=[{"start": i} for i in range(3)]))
    print("lambda", same_as_inline(lambda: Mine(start=3)))
    print("list", same_as_inline([Mine, lambda: Mine(3), CountingEnv]))
    print("closure", same_as_inline(build(7)))
    print("wrapper", same_as_inline(lambda: Doubled(gymnasium.make("CartPole-v1"))))
    print("dataclass", same_as_inline(of_level, level=Level(4)))
    print("library", same_as_inline(Library))
"""
KINDS = ["class", "configured", "lambda", "list", "closure", "wrapper", "dataclass", "library"]


def test_a_script_without_a_guard_uses_what_it_defines(tmp_path: Path) -> None:
    assert run_file(tmp_path, BEGIN + OF_MAIN) == ["begun", *(word for kind in KINDS for word in (kind, "True"))]


def test_code_that_is_no_file_has_a_main_too() -> None:
    """As in a notebook: there is nothing that could be imported again."""
    assert run_well(BEGIN + "print(same_as_inline(lambda: Mine(2)))").split() == ["begun", "True"]


def test_ids_registered_in_main_are_found(tmp_path: Path) -> None:
    out = run_file(
        tmp_path,
        BEGIN
        + """
gymnasium.register("Class-v0", Mine)
gymnasium.register("Limited-v2", Mine, max_episode_steps=2, kwargs={"start": 5})
gymnasium.register("mine/Spaced-v1", Mine)
gymnasium.register("Text-v0", "__main__:Mine")
gymnasium.register("Lambda-v0", lambda **kwargs: Mine(9, **kwargs))
gymnasium.register("Library-v0", "support.envs:CountingEnv", kwargs={"start": 4})
stepmill.register("Ours-v0", Mine)
with stepmill.make(Mine, backend="process"):  # keeps the server that starts workers
    for id in ("Class-v0", "Limited-v2", "mine/Spaced-v1", "Text-v0", "Lambda-v0", "Library-v0"):
        print(id, same_as_inline(id), same_as_inline(lambda: gymnasium.make(id)))
    print("Ours-v0", same_as_inline("Ours-v0", start=2))
""",
    )
    assert out.count("begun") == 1
    assert out.count("True") == 13


def test_objects_of_main_go_there_and_back(tmp_path: Path) -> None:
    """As options, arguments, attributes and infos."""
    out = run_file(
        tmp_path,
        BEGIN
        + """
class Thing:
    def __init__(self, value):
        self.value = value

class Taking(Mine):
    def reset(self, *, seed=None, options=None):
        self.options = options
        return super().reset(seed=seed)[0], {"thing": Thing(-1) if options is None else options["thing"]}

    def take(self, thing):
        return type(thing) is Thing, thing

with stepmill.make(Taking, num_envs=3, backend="process", num_workers=2) as pool:
    info = pool.reset(options={"thing": Thing(3), "function": twice})[1]
    print([type(one) is Thing and one.value for one in info["thing"]] == [3, 3, 3])
    print([options["function"](4) for options in pool.get_attr("options")] == [8, 8, 8])
    known, things = zip(*pool.call("take", Thing(5)))
    print(all(known) and [type(one) is Thing and one.value for one in things] == [5, 5, 5])
    pool.set_attr("thing", [Thing(i) for i in range(3)])
    print([type(one) is Thing and one.value for one in pool.get_attr("thing")] == [0, 1, 2])
    print([type(one) is Thing and one.value for one in pool.reset()[1]["thing"]] == [-1] * 3)
""",
    )
    assert out == ["begun", *["True"] * 5]


# ---- modules -------------------------------------------------------------------------------------

MODULE = """
from support.envs import CountingEnv
class Env(CountingEnv):
    def __init__(self):
        super().__init__(start={start})
"""


def test_an_edited_module_is_seen_by_the_next_pool(tmp_path: Path) -> None:
    out = run_file(
        tmp_path,
        BEGIN
        + f"""
import importlib
from pathlib import Path

def write(start):
    Path("edited.py").write_text({MODULE!r}.format(start=start))

def start_of(task):
    with stepmill.make(task, num_envs=2, backend="process") as pool:
        return pool.reset()[0].ravel().tolist()

gymnasium.register("Edited-v0", "edited:Env")
write(1)
print(start_of("Edited-v0") == [1, 1])
with stepmill.make("Edited-v0", backend="process"):  # also while a server is kept by another pool
    write(22)
    print(start_of("Edited-v0") == [22, 22])
    import edited
    print(start_of(edited.Env) == [22, 22])
    write(333)
    importlib.reload(edited)
    print(start_of(edited.Env) == [333, 333])
write(4444)
print(start_of("Edited-v0") == [4444, 4444])
""",
        "-B",  # the clock of files is too coarse to tell edits of one second from one another
    )
    assert out == ["begun", *["True"] * 5]


def test_modules_beside_the_script_are_found_from_anywhere(tmp_path: Path) -> None:
    """``sys.path`` travels as it is, with what the program added."""
    (tmp_path / "beside.py").write_text(MODULE.format(start=6))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "added.py").write_text(MODULE.format(start=7))
    out = run_file(
        tmp_path,
        BEGIN
        + f"""
import beside
sys.path.append({str(tmp_path / "elsewhere")!r})
import added
print(same_as_inline(beside.Env), same_as_inline([added.Env, beside.Env, lambda: added.Env()]))
""",
        cwd=tmp_path / "elsewhere",
    )
    assert out == ["begun", "True", "True"]


def test_a_module_that_nothing_would_find_goes_by_value(tmp_path: Path) -> None:
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "loaded.py").write_text(MODULE.format(start="START") + "START = 8\n")
    out = run_file(
        tmp_path,
        BEGIN
        + """
import importlib.util
spec = importlib.util.spec_from_file_location("loaded", "hidden/loaded.py")
sys.modules["loaded"] = loaded = importlib.util.module_from_spec(spec)
spec.loader.exec_module(loaded)
print(same_as_inline(loaded.Env), same_as_inline(lambda: loaded.Env()))

# A name in a package that cannot be found itself, though the folder is: as pytest loads tests.
import types
sys.path.append(os.path.abspath("hidden"))
sys.modules["ghost"] = types.ModuleType("ghost")
sys.modules["ghost"].__path__ = [os.path.abspath("hidden")]
spec = importlib.util.spec_from_file_location("ghost.loaded", os.path.abspath("hidden/loaded.py"))
sys.modules["ghost.loaded"] = module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
print(same_as_inline(module.Env), same_as_inline(lambda: module.Env()))
""",
    )
    assert out == ["begun", *["True"] * 4]


def test_workers_stand_where_the_program_stands(tmp_path: Path) -> None:
    """Working directory, environment and arguments are those at the time of ``make``."""
    out = run_file(
        tmp_path,
        BEGIN
        + """
class Placed(CountingEnv):
    def surroundings(self):
        return os.getcwd(), os.environ.get("PLACED"), sys.argv, __debug__, sys.flags.dev_mode

os.mkdir("below")
with stepmill.make(Placed, backend="process") as first:
    os.chdir("below")
    os.environ["PLACED"] = "yes"
    sys.argv.append("more")
    with stepmill.make(Placed, backend="process") as second:
        here = os.getcwd(), "yes", sys.argv, __debug__, sys.flags.dev_mode
        print(second.call("surroundings") == (here,))
        print(first.call("surroundings")[0][:2] == (os.path.dirname(here[0]), None))
""",
        "-O",
    )
    assert out == ["begun", "True", "True"]


# ---- whoever makes it ----------------------------------------------------------------------------


def test_a_program_with_threads_and_locks_held_makes_pools(tmp_path: Path) -> None:
    out = run_file(
        tmp_path,
        BEGIN
        + """
import logging, threading

ready, stop = threading.Barrier(5), threading.Event()

def hold(lock):
    with lock:
        ready.wait()
        stop.wait()

def work():
    ready.wait()
    while not stop.is_set():
        np.linalg.svd(np.ones((20, 20)))

# What a fork of this process would leave locked for ever.
handler = logging.StreamHandler()
logging.getLogger().addHandler(handler)
threads = [threading.Thread(target=hold, args=[lock]) for lock in (handler.lock, threading.RLock())]
threads += [threading.Thread(target=work) for _ in range(2)]
for thread in threads:
    thread.start()
ready.wait()
print(same_as_inline(Mine))
stop.set()
for thread in threads:
    thread.join()
""",
    )
    assert out == ["begun", "True"]


def test_a_pool_outlives_the_thread_that_made_it(tmp_path: Path) -> None:
    out = run_file(
        tmp_path,
        BEGIN
        + """
import threading

pools = []
thread = threading.Thread(target=lambda: pools.append(stepmill.make(Mine, num_envs=3, backend="process")))
thread.start()
thread.join()
with stepmill.make(Mine, num_envs=3, backend="inline") as oracle, pools[0] as pool:
    assert_same(play(pool, 20), play(oracle, 20))
    print(pool.stats()["restarts"])
""",
    )
    assert out == ["begun", "0"]


def test_several_threads_make_pools_at_once(tmp_path: Path) -> None:
    out = run_file(
        tmp_path,
        BEGIN
        + """
from concurrent.futures import ThreadPoolExecutor

with ThreadPoolExecutor(4) as threads:
    print(*threads.map(same_as_inline, [Mine, "gymnasium:CartPole-v1", lambda: Mine(2), CountingEnv]))
""",
    )
    assert out == ["begun", *["True"] * 4]


def test_a_forked_process_makes_pools_of_its_own(tmp_path: Path) -> None:
    out = run_file(
        tmp_path,
        BEGIN
        + """
import multiprocessing

with stepmill.make(Mine, num_envs=3, backend="process") as pool:
    pool.reset()
    process = multiprocessing.get_context("fork").Process(target=lambda: print(same_as_inline(Mine), flush=True))
    process.start()
    process.join()
    pool.step([0, 0, 0])
    print(process.exitcode, pool.stats()["restarts"])
""",
    )
    assert out == ["begun", "True", "0", "0"]


def test_an_env_may_make_a_pool_of_its_own(tmp_path: Path) -> None:
    out = run_file(
        tmp_path,
        BEGIN
        + """
class Nested(Mine):
    def __init__(self):
        super().__init__()
        self.inner = stepmill.make(CountingEnv, num_envs=2, backend="process", num_workers=2)
        self.inner.reset()

    def step(self, action):
        return *super().step(action)[:4], {"inner": self.inner.step([0, 0])[0]}

    def close(self):
        self.inner.close()

print(same_as_inline(Nested))
""",
    )
    assert out == ["begun", "True"]


def test_nothing_is_left_of_a_program_that_does_not_close_its_pools(tmp_path: Path) -> None:
    out = run_file(
        tmp_path,
        BEGIN
        + """
pool = stepmill.make(Mine, num_envs=3, backend="process", num_workers=2)
pool.reset()
pool.send([0, 1, 0])
print(*(worker["pid"] for worker in pool.stats()["workers"]))
""",
    )
    assert out[0] == "begun"
    assert len(out) == 3
    assert not any(Path(f"/proc/{pid}").exists() for pid in out[1:])


# ---- what cannot be sent -------------------------------------------------------------------------


class Unsendable:
    """Refuses to be pickled."""

    def __reduce__(self) -> Any:
        raise TypeError("not for travelling")


def test_a_factory_that_cannot_be_pickled_is_named() -> None:
    thing = Unsendable()
    factories = [CountingEnv, CountingEnv, lambda: (thing, CountingEnv())[1]]
    with pytest.raises(ConfigError, match=r"factory of env 2 .*not for travelling.*inside the factory"):
        stepmill.make(factories, backend="process")


def test_a_configuration_that_cannot_be_pickled_is_named() -> None:
    with pytest.raises(ConfigError, match=r"config key 'start' of env 1 .*not for travelling"):
        stepmill.make(CountingEnv, num_envs=2, env_config=[{}, {"start": Unsendable()}], backend="process")


def test_options_and_attributes_that_cannot_be_pickled_change_nothing() -> None:
    with stepmill.make(CountingEnv, num_envs=2, backend="process", num_workers=1) as pool:
        pool.reset()
        calls = [
            lambda: pool.reset(options={"thing": Unsendable()}),
            lambda: pool.reset([1], options={"thing": Unsendable()}),
            lambda: pool.set_attr("start", [1, Unsendable()]),
            lambda: pool.call("add", Unsendable()),
        ]
        for call in calls:
            with pytest.raises(Exception, match="not for travelling"):
                call()
            assert pool.stats()["in_flight"] == 0
        assert pool.get_attr("start") == (0, 0)
        assert pool.step([0, 0])[0].tolist() == [[1.0], [1.0]]


class Broken:
    """Can be pickled, and never be read again."""

    def __reduce__(self) -> Any:
        return _refuse, ()


def _refuse() -> Any:
    raise LookupError("not to be read")


def test_options_that_the_worker_cannot_read_fail_that_env_alone() -> None:
    with stepmill.make(CountingEnv, num_envs=3, backend="process", num_workers=1) as pool:
        pool.reset()
        pool.step([0] * 3)
        with pytest.raises(stepmill.EnvError, match=r"env 1 failed in reset.*not to be read") as caught:
            pool.reset([1], options={"thing": Broken()})
        assert isinstance(caught.value.__cause__, LookupError)
        assert caught.value.batch[1]["abnormal"].tolist() == [True]
        assert pool.reset([1])[0].tolist() == [[0.0]]
        assert pool.step([0] * 3)[0].tolist() == [[2.0], [1.0], [2.0]]
        assert pool.stats()["restarts"] == 0


def test_an_info_that_the_caller_cannot_read_costs_nothing_else() -> None:
    class Telling(CountingEnv):
        def step(self, action: int) -> Any:
            return *super().step(action)[:4], {"broken": Broken(), "count": self.count} if action else {"count": -1}

    with stepmill.make(Telling, num_envs=3, backend="process", num_workers=1) as pool:
        pool.reset()
        with pytest.warns(UserWarning, match=r"env 1 .*not to be read"):
            obs, *_, info = pool.step([0, 1, 0])
        assert obs.tolist() == [[1.0]] * 3
        assert info["count"].tolist()[0::2] == [-1, -1]
        assert pool.step([0] * 3)[4]["count"].tolist() == [-1] * 3


def test_the_module_of_an_id_is_imported_once_for_all_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    importers = tmp_path / "importers"
    (tmp_path / "slow_to_import.py").write_text(
        "import os\nfrom support.envs import Plain\n"
        f"with open({str(importers)!r}, 'a') as file:\n    print(os.getpid(), file=file)"
    )
    monkeypatch.syspath_prepend(tmp_path)
    spec = gymnasium.envs.registration.EnvSpec("Slow-v0", "slow_to_import:Plain")
    monkeypatch.setitem(gymnasium.registry, spec.id, spec)
    with stepmill.make("Slow-v0", num_envs=3, num_workers=3, backend="process"):
        assert len(set(importers.read_text().split()) - {str(os.getpid())}) == 1


def test_what_the_caller_imported_is_not_imported_in_workers_for_its_warnings_and_logs(tmp_path: Path) -> None:
    """Every framework imports torch, and torch has a warning, a filter and a formatter of its own."""
    folder = str(tmp_path)
    (tmp_path / "heavy_framework.py").write_text(
        "import logging\n"
        "class HeavyWarning(UserWarning):\n    pass\n"
        "class HeavyFormatter(logging.Formatter):\n    pass\n"
    )
    sys.path.insert(0, folder)
    try:
        heavy = importlib.import_module("heavy_framework")
        handler = logging.StreamHandler()
        handler.setFormatter(heavy.HeavyFormatter())
        logging.getLogger("heavy_framework").addHandler(handler)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=heavy.HeavyWarning)
            with stepmill.make(LooksAtModules, backend="process", num_workers=1) as pool:
                assert pool.call("has", "heavy_framework") == (False,)
    finally:
        logging.getLogger("heavy_framework").handlers.clear()
        sys.path.remove(folder)
        sys.modules.pop("heavy_framework", None)


class LooksAtModules(gymnasium.Env):
    """Says what its process has imported."""

    observation_space = gymnasium.spaces.Box(0, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def has(self, name: str) -> bool:
        return name in sys.modules

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(1, np.float32), 0.0, False, False, {}


def test_a_module_is_searched_for_once_however_often_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with stepmill.make(CountingEnv, num_envs=3, backend="process"):
        asked: list[str] = []

        class Listener:
            @staticmethod
            def find_spec(name: str, *_: object) -> None:
                asked.append(name)

        monkeypatch.setattr(sys, "meta_path", [Listener, *sys.meta_path])
        stepmill.make(CountingEnv, num_envs=3, backend="process").close()
        assert CountingEnv.__module__ in asked
        assert sorted(asked) == sorted(set(asked))
