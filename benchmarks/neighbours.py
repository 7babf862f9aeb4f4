"""Tries what the README says about EnvPool and Gymnasium: ``python -m benchmarks.neighbours``.

Each claim is a few lines of Python that run in a process of their own, because some of them crash or hang it.
What they printed, or how the process ended, is the result. Needs neither stepmill nor its build.
"""

from __future__ import annotations

import importlib.metadata
import platform
import signal
import subprocess
import sys
import textwrap

DEADLINE = 5  # seconds that a trial may take once its imports are done: the system's alarm then ends it
LONGEST = 60  # seconds, imports included
ALARM = f"import signal; signal.alarm({DEADLINE})\n"

ENVPOOL = """
import envpool, numpy as np
def make(**arguments): return envpool.make_gymnasium("CartPole-v1", **{"num_envs": 4, "seed": 42, **arguments})
"""
GYMNASIUM = """
import gymnasium, numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv
def make(count=4): return gymnasium.make_vec("CartPole-v1", num_envs=count, vectorization_mode="sync")
"""

# (library, what is tried, its code)
TRIALS: list[tuple[str, str, str]] = [
    (
        "EnvPool",
        "native env families",
        "print(len(envpool.list_all_envs()), 'ids, such as', *[i for i in envpool.list_all_envs()"
        " if i in ('CartPole-v1', 'FrozenLake-v1', 'Pong-v5', 'Ant-v4')])",
    ),
    (
        "EnvPool",
        "a Python env through make",
        "import gymnasium; envpool.make_gymnasium(lambda: gymnasium.make('CartPole-v1'), num_envs=4)",
    ),
    (
        "EnvPool",
        "the episodes of Gymnasium for the same seed",
        """
        import gymnasium
        theirs, _ = gymnasium.make("CartPole-v1").reset(seed=42)
        ours, _ = make().reset()
        print("equal" if np.array_equal(theirs, ours[0]) else f"different: {ours[0]} and {theirs}")
        """,
    ),
    (
        "EnvPool",
        "the step after an end",
        """
        pool = make(num_envs=1)
        pool.reset()
        while not (result := pool.step(np.zeros(1, int)))[2][0]: pass
        after = pool.step(np.zeros(1, int))
        print("elapsed_step", after[4]["elapsed_step"], "reward", after[1])
        """,
    ),
    (
        "EnvPool",
        "reset(seed=...)",
        """
        def first(seed):
            pool = make()
            return pool.reset(seed=seed)[0]
        print("ignored" if np.array_equal(first(1), first(2)) else "reseeds")
        """,
    ),
    (
        "EnvPool",
        "an env id out of range",
        "pool = make(); pool.reset(); pool.send(np.zeros(1, int), np.array([99])); print('went on')",
    ),
    ("EnvPool", "too few actions", "pool = make(); pool.reset(); pool.step(np.zeros(2, int)); print('went on')"),
    (
        "EnvPool",
        "recv with nothing in flight, sync",
        "pool = make(); pool.reset(); print('returned a batch of', len(pool.recv()[1]))",
    ),
    (
        "EnvPool",
        "recv with nothing in flight, async",
        """
        pool = make(batch_size=2)
        pool.async_reset(); pool.recv(); pool.recv()
        print("returned a batch of", len(pool.recv()[1]))
        """,
    ),
    (
        "EnvPool",
        "keys of info at the end of an episode",
        """
        pool = make(num_envs=1)
        pool.reset()
        while not (result := pool.step(np.zeros(1, int)))[2][0]: pass
        print(*sorted(result[4]))
        """,
    ),
    ("Gymnasium", "autoreset modes", "print(*[mode.name.lower() for mode in AutoresetMode])"),
    (
        "Gymnasium",
        "reset(seed=...)",
        "print('ignored' if np.array_equal(make().reset(seed=1)[0], make().reset(seed=2)[0]) else 'reseeds')",
    ),
    ("Gymnasium", "too few actions", "envs = make(); envs.reset(); envs.step(np.zeros(2, int)); print('went on')"),
    ("Gymnasium", "send and recv", "print(hasattr(make(), 'send'), hasattr(make(), 'recv'))"),
    (
        "Gymnasium",
        "an exception inside an env",
        """
        class Fragile(gymnasium.Env):
            observation_space, action_space = gymnasium.spaces.Discrete(2), gymnasium.spaces.Discrete(2)
            def reset(self, *, seed=None, options=None): return 0, {}
            def step(self, action):
                if action: raise ValueError("it broke")
                return 1, 1.0, False, False, {}
        envs = SyncVectorEnv([Fragile] * 2)
        envs.reset()
        try:
            envs.step([0, 1])
        except Exception as error:
            print(type(error).__name__, "raised, with", {k: v for k, v in vars(error).items()} or "no results")
        """,
    ),
    (
        "Gymnasium",
        "keys of info at the end of an episode",
        """
        envs = make(1)
        envs.reset(seed=42)
        while not (result := envs.step(np.zeros(1, int)))[2][0]: pass
        print(*sorted(result[4]) or ["none"])
        """,
    ),
]


def attempt(code: str) -> str:
    """Runs ``code`` in its own process and reports how that went."""
    try:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=LONGEST)
    except subprocess.TimeoutExpired:
        return f"not begun after {LONGEST} s"
    if done.returncode == -signal.SIGALRM:
        return f"still waiting after {DEADLINE} s"
    if done.returncode < 0:
        return f"the process crashed ({signal.Signals(-done.returncode).name})"
    if done.returncode > 0:
        return f"an error: {done.stderr.strip().splitlines()[-1]}"
    return " ".join(done.stdout.split())


def main() -> None:
    versions = {}
    for name in ("envpool", "gymnasium"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            print(f"{name} is not installed: pip install {name}")
    print(*(f"{name} {version}" for name, version in versions.items()), platform.system(), platform.machine())
    for who, what, code in TRIALS:
        if who.lower() in versions:
            start = ENVPOOL if who == "EnvPool" else GYMNASIUM
            said = attempt(start + ALARM + textwrap.dedent(code))
            print(f"{who}: {what}: {said}", flush=True)


if __name__ == "__main__":
    main()
