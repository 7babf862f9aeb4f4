"""Pools on a GPU beside a kernel written by hand, and beside gymnax: ``python -m benchmarks.cuda_loops``.

CartPole, and the same in a file of one's own (``examples/own_envs/cart_pole.h``), with ``output="torch"``:

- step by step from Python, where each step gives tensors of its own;
- in a CUDA graph of 100 steps, which is captured once (``pool.graph_step``);
- the kernel of ``plain_cart_pole.cu``, which reads and writes the same bytes and is launched in the same two ways;
- gymnax's own loop of the same number of envs, in a process of its own, if JAX finds the GPU and gymnax is installed.

They take turns; figures are medians. This file needs numpy, torch and an NVIDIA GPU, and none of the other benchmarks'
libraries.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import stepmill
from benchmarks.timing import Effort, interleaved
from stepmill import _native
from stepmill.device.cuda import driver, nvrtc

ROOT = Path(__file__).resolve().parent.parent
OWN = str(ROOT / "examples" / "own_envs" / "cart_pole.h")
TASKS = {"CartPole-v1": "CartPole-v1", "cart_pole.h": OWN}
SIZES = (65_536, 1_048_576)
IN_GRAPH = 100  # steps of a graph
STATE_BYTES = 4 * 8 + 4 + 8  # of the state, the steps and the return of an episode: read and written
RESULT_BYTES = 16 + 4 + 4 + 3 * 4 + 8
PHASE_BYTES, ACTION_BYTES = 4, 8  # read


class Steps:
    """Calls, each of which steps all envs some times; the clock waits for the last."""

    def __init__(self, call: Callable[[int], None], rows_per_call: int) -> None:
        self._call, self.rows_per_call = call, rows_per_call

    def run(self, calls: int) -> None:
        for i in range(calls):
            self._call(i)
        torch.cuda.synchronize()


class Gymnax:
    """Gymnax's process, which measures when it is told to."""

    def __init__(self, num_envs: int) -> None:
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.gymnax_child", str(num_envs)]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.is_there = self._read() == "ready"

    def steps_per_second(self, seconds: float) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()
        return float(self._read())

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def close(self) -> None:
        self._process.communicate()


def compare(task: str, num_envs: int, effort: Effort, *, beside_gymnax: bool = True) -> dict[str, Any]:
    """Steps per second of all contestants, and the bytes that a step moves."""
    pool: Any = stepmill.make(
        TASKS[task], num_envs=num_envs, backend="cuda", output="torch", seed=0, max_episode_steps=500
    )
    plain = Plain(pool)
    drawn = np.random.default_rng(0).integers(0, 2, (4, num_envs))
    actions = list(torch.from_numpy(drawn).cuda())
    pool.reset()
    runners: dict[str, Any] = {
        "pool": Steps(lambda i: pool.step(actions[i % 4]), num_envs),
        "plain": Steps(lambda i: plain.step(actions[i % 4]), num_envs),
        "pool_graph": in_graph(pool.graph_step, actions, num_envs),
        "plain_graph": in_graph(plain.step, actions, num_envs),
    }
    gymnax = Gymnax(num_envs) if beside_gymnax and importlib.util.find_spec("gymnax") else None
    if gymnax is not None and gymnax.is_there:
        runners["gymnax"] = gymnax
    try:
        row = {"env": task, "num_envs": num_envs, "bytes": plain.bytes_per_step, **interleaved(runners, effort)}
    finally:
        if gymnax is not None:
            gymnax.close()
        pool.close()
    return row


def in_graph(step: Callable[[torch.Tensor], Any], actions: list[torch.Tensor], num_envs: int) -> Steps:
    """A graph of many steps."""
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):  # a first time, for what is set up then
        step(actions[0])
    torch.cuda.current_stream().wait_stream(aside)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(IN_GRAPH):
            step(actions[i % len(actions)])
    return Steps(lambda _: graph.replay(), num_envs * IN_GRAPH)


class Plain:
    """The kernel that was written by hand, on envs like those of a pool."""

    def __init__(self, pool: Any) -> None:
        source = pool._engine.source
        device = torch.cuda.current_device()
        architecture = _native.gpu_architecture(driver.LIBRARY, device)
        words = 5 if source.id == "CartPole-v1" else 4
        text = Path(__file__).with_name("plain_cart_pole.cu").read_text()
        image = nvrtc.compile_kernel(text, architecture, [], [f"-DWORDS={words}"])
        self.bytes_per_step = 2 * STATE_BYTES + 8 * (words - 4) + PHASE_BYTES + ACTION_BYTES + RESULT_BYTES
        self._envs = _native.GpuEnvs(
            library=driver.LIBRARY,
            memory_kind=driver.MEMORY_KIND,
            device=device,
            image=image,
            env_class=source.env_class,
            configs=source.configs,
            seeds=list(range(pool.num_envs)),
            same_step=False,
            max_episode_steps=500,
            hides_streams=False,
        )
        self._batch: Any = None

    def step(self, action: torch.Tensor) -> None:
        """All steps write to the same results, and nobody makes tensors of them."""
        stream = torch.cuda.current_stream().cuda_stream
        self._batch = self._envs.command((action.data_ptr(),), stream, self._batch, None, None, None, None, None, 0)


# ---- alone -----------------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cuda_loops", description=__doc__)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.3, help="for each contestant in each round")
    parser.add_argument("--num-envs", default=",".join(map(str, SIZES)), help="by comma")
    options = parser.parse_args()
    effort = Effort(options.repeats, options.seconds)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, NVRTC {'.'.join(map(str, nvrtc.version()))}")
    print("µs per step of all envs, and how many times as fast as gymnax and as the plain kernel a pool is")
    print(
        f"{'envs':25}{'bytes':>6}{'pool':>9}{'plain':>9}{'gymnax':>9}{'x gymnax':>10}{'x plain':>9}"
        f"{'graph':>9}{'plain':>9}{'x gymnax':>10}{'x plain':>9}{'G steps/s':>11}"
    )
    for task in TASKS:
        for num_envs in map(int, options.num_envs.split(",")):
            print(line_of(compare(task, num_envs, effort)), flush=True)


def line_of(row: dict[str, Any]) -> str:
    rate = {name: one["steps_per_s"] for name, one in row.items() if isinstance(one, dict)}
    us = {name: 1e6 * row["num_envs"] / one for name, one in rate.items()}
    gymnax = f"{us['gymnax']:9.1f}" if "gymnax" in us else f"{'–':>9}"

    def times(ours: str, theirs: str) -> str:
        return f"{rate[ours] / rate[theirs]:.2f}" if theirs in rate else "–"

    return (
        f"{row['num_envs']:>9,} {row['env']:15}{row['bytes']:6}"
        f"{us['pool']:9.1f}{us['plain']:9.1f}{gymnax}{times('pool', 'gymnax'):>10}{times('pool', 'plain'):>9}"
        f"{us['pool_graph']:9.1f}{us['plain_graph']:9.1f}{times('pool_graph', 'gymnax'):>10}"
        f"{times('pool_graph', 'plain_graph'):>9}{rate['pool_graph'] / 1e9:11.1f}"
    )


if __name__ == "__main__":
    main()
