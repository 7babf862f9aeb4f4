"""A fork with pools open: the parent's stay as they are, and the child's cannot be used."""

from __future__ import annotations

import pytest

from support.probes import (
    START,
    VIEWS,
)
from support.subprocesses import run_well

# ---- ends ----------------------------------------------------------------------------------------


def test_a_child_that_drops_the_pool_leaves_the_parents_python_envs_open() -> None:
    code = """
class Telling(ProbeTwin):
    def close(self):
        print("closed in", "parent" if os.getpid() == parent else "child", flush=True)

parent = os.getpid()
pools = [stepmill.make(Telling, num_envs=1)]
print(exit_code(child(pools.clear)), flush=True)
pools.clear()
"""
    assert run_well(FORK + code).splitlines() == ["0", "closed in parent"]


# ---- fork ----------------------------------------------------------------------------------------


FORK = (
    START
    + """
from support.processes import child, exit_code

view = "gymnasium"
"""
)


@pytest.mark.parametrize(
    "body",
    [
        "pass",
        "pool.close(); pool.close(); assert pool.closed",
        "gated.pool = None; globals().pop('pool'); gc.collect()",
        "[refused(call) for call in (pool.recv, pool.reset, pool.stats, lambda: pool.send(np.zeros(4)))]",
    ],
    ids=["exit", "close", "del", "use"],
)
@pytest.mark.parametrize("view", VIEWS)
def test_a_fork_with_steps_in_flight_leaves_the_parent_unharmed(view: str, body: str) -> None:
    out = run_well(
        FORK
        + f"""
import gc

def refused(call):
    try:
        call()
    except errors.ForkedError:
        return
    raise AssertionError(call)

gated = GatedPool(4, {view!r})
pool = gated.pool
held = pool.reset()
pool.send(np.array([0.25, 0.5, 0.75, 1.0]))

def body():
    {body}

print(exit_code(child(body)))
gated.open(4)
print(*seen({view!r}, pool.recv()).reward)
pool.close()
"""
    )
    assert out.splitlines() == ["0", "0.25 0.5 0.75 1.0"]


def test_a_child_may_end_like_any_program() -> None:
    """Not by os._exit: atexit handlers run in the child, with the parent's pools in its memory."""
    out = run_well(
        START
        + """
gated = GatedPool(4)
inline = make_probe("python", num_envs=2)
pool = gated.pool
pool.send(np.zeros(4))
inline.send(np.zeros(2))
pid = os.fork()
if pid == 0:
    sys.exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
gated.open(4)
print(len(pool.recv()[1]), len(inline.recv()[1]))
"""
    )
    assert out.split() == ["0", "4", "2"]


def test_a_fork_while_another_thread_waits_inside_the_pool() -> None:
    out = run_well(
        FORK
        + """
gated = GatedPool(4)
pool = gated.pool
results = []
pool.send(np.zeros(4))
thread = in_thread(lambda: results.append(pool.recv()))
wait_until_inside(pool)

def body():
    try:
        pool.recv()
    except errors.ForkedError:
        pool.close()
        return
    raise AssertionError

print(exit_code(child(body)))
gated.open(4)
thread.join()
print(len(results[0][1]))
"""
    )
    assert out.split() == ["0", "4"]


def test_closing_in_a_child_leaves_the_parents_python_envs_open() -> None:
    out = run_well(
        FORK
        + """
class Telling(ProbeTwin):
    def close(self):
        print("closed in", "parent" if os.getpid() == parent else "child", flush=True)

parent = os.getpid()
pool = stepmill.make(Telling, num_envs=1)
print(exit_code(child(pool.close)), flush=True)
pool.close()
"""
    )
    assert out.splitlines() == ["0", "closed in parent"]
