"""Pools end: closed, dropped, collected, or with the interpreter, with steps under way or not."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import stepmill
from support.envs import ProbeTwin
from support.probes import KINDS, START, VIEWS, GatedPool, make_probe
from support.processes import new_threads, threads
from support.subprocesses import run_well, start


def test_close_waits_for_the_steps_under_way_and_drops_the_rest() -> None:
    before = threads()
    with GatedPool(8) as gated:
        gated.pool.send(np.zeros(8))
        assert threads() - before
        gated.open_for_good()
        gated.pool.close()
        assert new_threads(before) == 0


@pytest.mark.parametrize("view", VIEWS)
def test_an_unclosed_pool_with_steps_in_flight_can_be_dropped(view: str) -> None:
    before = threads()
    with GatedPool(8, view) as gated:
        gated.pool.send(np.zeros(8))
        assert threads() - before
        gated.open_for_good()
        gated.pool = None
        gc.collect()
        assert new_threads(before) == 0


@pytest.mark.parametrize("how", ["end", "sys.exit(0)", "cycle"])
@pytest.mark.parametrize("view", VIEWS)
def test_the_interpreter_ends_with_an_open_pool_and_steps_in_flight(view: str, how: str) -> None:
    code = (
        START
        + f"""
import atexit

gated = GatedPool(4, {view!r})
gated.pool.send(np.zeros(4))
print(gated.pool.stats()["in_flight"])
atexit.register(gated.open_for_good)  # runs before stepmill's own, which was registered earlier
inline = make_probe("python", {view!r}, num_envs=2)
inline.send([0.0, 0.0])
held = inline.recv()
inline.send([0.0, 0.0])
"""
    )
    code += {"cycle": "gated.itself = gated; inline.itself = inline", "end": ""}.get(how, how)
    assert run_well(code).split() == ["4"]


def test_an_error_of_one_env_at_exit_does_not_keep_other_pools_open() -> None:
    code = (
        START
        + """
class Clinging(ProbeTwin):
    def close(self):
        raise RuntimeError("will not go")

class Leaving(ProbeTwin):
    def close(self):
        print("left", flush=True)

pools = [stepmill.make(task, num_envs=1) for task in (Leaving, Clinging, Leaving)]
"""
    )
    with start(code) as process:
        out, err = process.communicate()
    assert out.split() == ["left", "left"]
    assert "will not go" in err


@pytest.mark.parametrize("end", ["close", "collect", "with"])
@pytest.mark.parametrize("view", VIEWS)
def test_python_envs_are_closed_with_their_pool(view: str, end: str) -> None:
    envs: list[ProbeTwin] = []

    def factory() -> ProbeTwin:
        envs.append(ProbeTwin())
        return envs[-1]

    pool = stepmill.make(factory, view, num_envs=3, backend="inline")
    pool.send([0.0] * 3)
    if end == "with":
        with pool:
            pass
    elif end == "close":
        pool.close()
    del pool
    gc.collect()
    assert [env.closed for env in envs] == [True] * 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_method_that_is_kept_keeps_the_pool(kind: str) -> None:
    """The engine ends with its last user, who need not be the view."""
    assert len(make_probe(kind, num_envs=2).step([0.0, 0.0])[1]) == 2
    pool = make_probe(kind, num_envs=2)
    step = pool.step
    del pool
    gc.collect()
    for _ in range(3):
        assert len(step([0.0, 0.0])[1]) == 2


def test_python_envs_are_closed_once_with_the_last_user_of_their_pool() -> None:
    closed: list[int] = []

    class Counting(ProbeTwin):
        def close(self) -> None:
            closed.append(1)
            raise RuntimeError("nobody hears of it")

    step = stepmill.make(Counting, num_envs=2, backend="inline").step
    gc.collect()
    assert not closed
    step([0.0, 0.0])
    del step
    gc.collect()
    assert len(closed) == 2


def test_an_engine_that_outlives_its_view_is_closed_at_exit() -> None:
    code = """
class Leaving(ProbeTwin):
    def close(self):
        print("left", flush=True)

step = stepmill.make(Leaving, num_envs=1).step
step([0.0])
gated = GatedPool(4)
gated.pool.send(np.zeros(4))
gated.open_for_good()
recv, gated.pool = gated.pool.recv, None
"""
    assert run_well(START + code).split() == ["left"]


def test_an_error_in_an_envs_close_is_told_and_the_others_are_closed() -> None:
    envs: list[ProbeTwin] = []

    class Clinging(ProbeTwin):
        def __init__(self, env_id: int) -> None:
            super().__init__()
            self.place = env_id
            envs.append(self)

        def close(self) -> None:
            super().close()
            if self.place < 2:
                raise RuntimeError("will not go")

    pool = stepmill.make(Clinging, num_envs=3, backend="inline")
    with pytest.raises(stepmill.EnvError, match="will not go") as caught:
        pool.close()
    assert [error.env_id for error in caught.value.errors] == [0, 1]
    assert all(env.closed for env in envs)
    assert pool.closed
    pool.close()
