"""The messages that docs/faq.md explains are those that users get: each is provoked here, or found in the sources."""

import asyncio
import copy
import os
import re
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import stepmill

ROOT = Path(__file__).resolve().parent.parent
HEADINGS = re.findall(r"^### (.+)$", (ROOT / "docs" / "faq.md").read_text(encoding="utf-8"), re.MULTILINE)

# They need a limit of the system, a machine without a GPU, or another process or thread at the right moment.
UNPROVOKED = {
    "device=…: torch … finds no GPU",
    "there is no NVIDIA driver: …",
    "pip install 'stepmill[…]'",
    "start_timeout=…: the process that starts the workers of … did not answer in time",
    "address: no Ray cluster answers at …",  # these need Ray: tests/hosts/ray provokes them
    "Ray's client would carry every batch over one more hop",
    "this process is in the Ray cluster at …, and cannot be in the one at … too",
    "not ready within …. Each needs … of one node; all nodes together have free: …",
    "actors have a place in the cluster, but had not built their envs within …",
    "a node of the cluster has stepmill …, and the caller …: install the same on all",
    "a node of the cluster has no module …, which the envs need",
    "the Ray actor that ran it is gone: …",
    "the Ray actor that ran it gave no sign of life for node_timeout=… s: its machine may be gone",
    "the pool was made before a fork and belongs to the parent process",
    "another thread is inside this pool: a pool serves one thread at a time",
    "This process has no descriptors left: raise the limit (ulimit -n)",
    "No more processes or threads are allowed: raise the limit",
    "There is no memory or no address space left",
}
# Messages of other libraries: the tests of tests/interop, where these are installed, provoke them.
THEIRS = {
    "The environment is of type …, not a Gymnasium environment. In this case, we expect OpenAI Gym to be installed",
}


class Trouble(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self, what: str = "raise") -> None:
        self.what = what

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        if self.what == "raise":
            raise ValueError("it broke")
        if self.what == "exit":
            os._exit(3)
        if self.what == "hang":
            threading.Event().wait()
        if self.what == "four":
            return np.zeros(2, np.float32), 0.0, False, {}
        return np.zeros(3, np.float32), 0.0, False, False, {}


class Sized(Trouble):
    def __init__(self, size: int) -> None:
        super().__init__()


class NoArguments(Trouble):
    def reset(self):
        return np.zeros(2, np.float32), {}


def step(task: Any = "CartPole-v1", action: Any = (1, 1), env_id: Any = None, **arguments: Any) -> None:
    with stepmill.make(task, num_envs=2, **arguments) as pool:
        pool.reset()
        pool.step(action, env_id)


def use(call: Callable[[Any], Any], **arguments: Any) -> None:
    with stepmill.make("CartPole-v1", **arguments) as pool:
        call(pool)


def send_twice(pool: Any) -> None:
    pool.send([1])
    pool.send([1])


def step_past_the_end(pool: Any) -> None:
    pool.reset()
    pool.step([1])
    pool.step([1])


def in_sessions(call: Callable[[Any, Any], Any]) -> None:
    async def main(pool: Any) -> None:
        async with pool.session(), pool.session() as env:
            await env.reset()
            await call(pool, env)

    with stepmill.make("CartPole-v1", num_envs=2, max_episode_steps=1) as pool:
        asyncio.run(main(pool))


async def step_twice(env: Any) -> None:
    await env.step(0)
    await env.step(0)


def close_and_step(pool: Any) -> None:
    pool.close()
    pool.step([1])


def loop_over_final_info() -> list[Any]:
    """As scripts for Gymnasium 0.29 do."""

    def recorded() -> Any:
        return gymnasium.wrappers.RecordEpisodeStatistics(gymnasium.make("CartPole-v1", max_episode_steps=1))

    with stepmill.make(recorded, backend="inline", autoreset="same_step") as pool:
        pool.reset()
        infos = pool.step([1])[-1]
    return [info["episode"]["r"] for info in infos["final_info"] if info and "episode" in info]


def receive_too_early() -> None:
    with stepmill.make(Trouble, num_envs=2, what="hang", backend="process") as pool:
        pool.reset()
        pool.send([0, 0])
        try:
            pool.recv(timeout=0.01)
        finally:
            for worker in pool.stats()["workers"]:
                os.kill(worker["pid"], signal.SIGKILL)  # else close() waits for them for a while


def shared() -> None:
    one = Trouble()
    stepmill.make(lambda: one, num_envs=2, backend="inline")


def unpicklable() -> None:
    lock = threading.Lock()
    stepmill.make(lambda: (lock, Trouble())[1], num_envs=2, backend="process")


MISTAKES: list[Callable[[], object]] = [
    lambda: stepmill.make("CartPol-v1"),
    lambda: stepmill.make("my_package:Maze-v0"),
    lambda: stepmill.make("CartPole-v1", num_env=3),
    lambda: stepmill.make(Sized, backend="inline"),
    lambda: stepmill.make("CartPole-v1", wrappers=[gymnasium.Wrapper]),
    lambda: stepmill.make(Trouble, backend="thread"),
    lambda: stepmill.make(Trouble, backend="cuda"),
    lambda: stepmill.make("CartPole-v1", step_timeout=1),
    lambda: stepmill.make("CartPole-v1", num_actors=2),
    lambda: stepmill.make("CartPole-v1", backend="ray", python="python3"),
    shared,
    lambda: stepmill.make(Trouble()),
    lambda: stepmill.make(lambda: 3, backend="inline"),
    unpicklable,
    lambda: stepmill.make(["CartPole-v1", "Pendulum-v1"], num_envs=2),
    lambda: step(action=[1]),
    lambda: step(action=[0, 2]),
    lambda: step("Pendulum-v1", [[0.0], [np.nan]]),
    lambda: step(action=[1], env_id=[9]),
    lambda: use(send_twice),
    lambda: use(lambda pool: pool.recv()),
    receive_too_early,
    lambda: in_sessions(lambda pool, _: pool.step(np.zeros(2, int))),
    lambda: in_sessions(lambda pool, _: asyncio.wait_for(pool.session(timeout=0.01).__aenter__(), None)),
    lambda: in_sessions(lambda _, env: step_twice(env)),
    lambda: in_sessions(lambda _, env: asyncio.to_thread(asyncio.run, step_twice(env))),
    lambda: use(step_past_the_end, autoreset="disabled", max_episode_steps=1),
    loop_over_final_info,
    lambda: use(lambda pool: pool.reset(), env_type="gym", num_envs=4, batch_size=2),
    lambda: use(lambda pool: pool.call("reset")),
    lambda: use(lambda pool: pool.render()),
    lambda: use(lambda pool: pool.reset(options={"x": 1})),
    lambda: use(copy.deepcopy),
    lambda: use(close_and_step),
    lambda: step(Trouble, backend="inline"),
    lambda: step(Trouble, what="exit", backend="process"),
    lambda: step(Trouble, what="hang", backend="process", step_timeout=0.05),
    lambda: step(Trouble, what="four", backend="inline"),
    lambda: step(Trouble, what="shape", backend="inline"),
    lambda: step(NoArguments, backend="inline"),
]


@pytest.fixture(scope="module")
def messages() -> list[str]:
    found = []
    for mistake in MISTAKES:
        expected = TypeError if mistake is loop_over_final_info else stepmill.StepmillError
        with pytest.raises(expected) as caught:
            mistake()
        found.append(str(caught.value))
    return found


@pytest.fixture(scope="module")
def sources() -> list[str]:
    """As one reads them: literals that follow each other are one text."""
    files = [*(ROOT / "src").rglob("*.py"), *(ROOT / "cpp").rglob("*.cpp"), *(ROOT / "cpp").rglob("*.h")]
    return [re.sub(r"\"\s*\n\s*f?\"", "", file.read_text(encoding="utf-8")) for file in files]


def test_every_message_is_explained_once():
    assert len(set(HEADINGS)) == len(HEADINGS) == len(MISTAKES) + len(UNPROVOKED) + len(THEIRS)
    assert set(HEADINGS) >= UNPROVOKED | THEIRS


@pytest.mark.parametrize("heading", [one for one in HEADINGS if one not in THEIRS])
def test_users_get_this_message(heading, messages, sources):
    parts = [part.strip() for part in heading.split("…")]
    if heading in UNPROVOKED:
        assert any(all(part in text for part in parts) for text in sources)
    else:
        pattern = re.compile(r".*?".join(re.escape(part) for part in heading.split("…")), re.DOTALL)
        assert any(pattern.search(message) for message in messages), messages
