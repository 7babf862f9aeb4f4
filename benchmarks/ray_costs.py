"""What a pool on Ray costs, on one machine: the inputs of ``ray_sizing.py``, and what its calculation is checked with.

The driver's costs are CPU time of its thread, which does not depend on what else the machine does.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

import stepmill
from benchmarks.python_envs import STEP_S, Busy
from benchmarks.python_parts import iterations
from benchmarks.ray_sizing import ROLLOUT_STEPS
from benchmarks.timing import Calls, Effort, Log, interleaved
from stepmill.system.optional import ALE, RAY, is_installed
from stepmill.tools.measuring.machine import cores

WORK_S = 1e-3  # of a step of the Python env
SMALL = 1000  # bytes: a call that costs what calls cost
FEW = 16  # rows of a request that carries next to nothing
MOST_BYTES = 16e6  # of the arrays that are carried to measure what a rollout costs
OBJECT_STORE = 200 << 20


@dataclass(frozen=True)
class Case:
    """Envs of one kind, and how many of them a node has."""

    name: str
    task: Any
    num_envs: int
    size: str  # the argument that says how many workers an actor has


def _few(num_envs: int) -> Case:
    """Rows that cost next to nothing."""
    return Case("", "CartPole-v1", num_envs, "num_threads")


def cases() -> list[Case]:
    out = [Case("CartPole-v1, native", "CartPole-v1", 1024, "num_threads")]
    busy = partial(Busy, round(iterations() * WORK_S / STEP_S))
    out.append(Case("Python env, 1 ms of work", busy, 64, "num_workers"))
    if is_installed(ALE):
        out.append(Case("Pong-v5, 4 x 84 x 84", "Pong-v5", 32, "num_workers"))
    return out


def sizing(effort: Effort, log: Log) -> dict[str, Any]:
    """Costs of calls, and for each kind of env its speed here and on Ray, bytes and the driver's time per row."""
    if not is_installed(RAY):
        log("ray is not installed: left out")
        return {}
    import ray

    os.environ.setdefault("RAY_worker_niceness", "0")  # Ray's 15 would let everything else on the machine go first
    quiet = {"log_to_driver": False, "include_dashboard": False, "configure_logging": False}
    ray.init(address="local", num_cpus=5 * cores(), object_store_memory=OBJECT_STORE, **quiet)
    try:
        with _on_ray(_few(FEW)) as pool:
            driver_call_s = _driver_s(pool, effort)
        measured = [_measure(ray, case, driver_call_s, effort, log) for case in cases()]
    finally:
        ray.shutdown()
    return {
        "call_s": statistics.median(case["request_s"] for case in measured),
        "call2_s": statistics.median(case["request2_s"] for case in measured),
        "driver_call_s": driver_call_s,
        "cores": cores(),
        "ray": ray.__version__,
        "cases": measured,
    }


def _measure(ray: Any, case: Case, driver_call_s: float, effort: Effort, log: Log) -> dict[str, Any]:
    log(f"{case.num_envs} x {case.name}")
    out: dict[str, Any] = {"name": case.name, "num_envs": case.num_envs}
    with _counted(case.num_envs) as counted, _on_ray(case) as pool:
        driver_s = _driver_s(pool, effort)
        out["order_bytes"], out["answer_bytes"] = counted.order_bytes, counted.answer_bytes
        out["driver_row_s"] = max(driver_s - driver_call_s, 0.0) / case.num_envs
    out |= _speeds(case, effort)
    with stepmill.make(case.task, num_envs=case.num_envs, seed=0) as pool:
        rollout_rows = _rollout_rows(pool)
    sizes = out["order_bytes"] * case.num_envs, out["answer_bytes"] * case.num_envs
    out["call_s"] = out["request_s"] + _carrying_s(ray, 1, *sizes, effort)
    out["call2_s"] = out["request2_s"] + _carrying_s(ray, 2, *(size / 2 for size in sizes), effort)
    out["rollout_bytes"] = sum(row.nbytes for row in rollout_rows)
    out["driver_rollout_row_s"], out["rollout_call_s"] = _gather_s(ray, rollout_rows, case.num_envs, effort)
    return out


def _speeds(case: Case, effort: Effort) -> dict[str, float]:
    """Steps per second here, and on Ray on this machine, and the time of requests that carry next to nothing.

    In turn: they are to be compared.
    """
    envs = case.num_envs
    local = {"num_envs": envs, "seed": 0}
    with (
        stepmill.make(case.task, **local) as stepped,
        stepmill.make(case.task, **local) as played,
        _on_ray(case) as on_ray,
        _on_ray(case) as rolled,
        _on_ray(case, batch_size=envs // 2) as received,
        _on_ray(_few(FEW)) as one,
        _on_ray(_few(2 * FEW), batch_size=FEW) as two,
    ):
        received.async_reset()
        two.async_reset()
        runners = {
            "steps_per_s": Calls(_stepper(stepped), envs),
            "policy_steps_per_s": Calls(_roller(played), envs * ROLLOUT_STEPS),
            "ray_step_per_s": Calls(_stepper(on_ray), envs),
            "ray_async_per_s": Calls(_receiver(received, envs // 2), envs // 2),
            "ray_rollout_per_s": Calls(_roller(rolled), envs * ROLLOUT_STEPS),
            "request_s": Calls(_stepper(one), 1),
            "request2_s": Calls(_receiver(two, FEW), 1),
        }
        rates = {name: result["steps_per_s"] for name, result in interleaved(runners, effort).items()}
        return {name: rate if name.endswith("per_s") else 1 / rate for name, rate in rates.items()}


# ---- pools -----------------------------------------------------------------------------------------


@contextlib.contextmanager
def _on_ray(case: Case, **arguments: Any) -> Iterator[Any]:
    """One actor, which has all cores, as the whole of a node would."""
    size = {case.size: cores()}
    with stepmill.make(
        case.task, num_envs=case.num_envs, seed=0, backend=stepmill.Ray(num_actors=1), **size, **arguments
    ) as pool:
        yield pool


def _stepper(pool: Any) -> Callable[[], Any]:
    """All envs make a step, with actions that were chosen before."""
    pool.reset()
    action = np.asarray(pool.action_space.sample())
    return lambda: pool.step(action)


def _roller(pool: Any) -> Callable[[], Any]:
    """A rollout of all envs."""
    policy = _random_policy(pool)
    pool.rollout(policy, ROLLOUT_STEPS, seed=0, observation=pool.reset()[0])
    return partial(pool.rollout, policy, ROLLOUT_STEPS, seed=0)


def _receiver(pool: Any, batch_size: int) -> Callable[[], Any]:
    """Whatever is ready makes a step."""
    action = np.asarray(pool.action_space.sample())[:batch_size]

    def receive() -> None:
        info = pool.recv()[-1]
        pool.send(action, info["env_id"])

    return receive


def _random_policy(pool: Any) -> Any:
    kinds = int(pool.single_action_space.n)
    rng = np.random.default_rng(0)
    return lambda observation, env_ids, rngs: rng.integers(kinds, size=len(env_ids))


def _rollout_rows(pool: Any) -> list[np.ndarray]:
    """A row of each array of a rollout: observation, action, reward, and four flags."""
    space = pool.single_observation_space
    return [np.zeros(space.shape, space.dtype), np.zeros((), "q"), np.zeros(()), *(np.zeros((), "?") for _ in range(4))]


# ---- clocks ----------------------------------------------------------------------------------------


def _rate(call: Callable[[], Any], rows: int, effort: Effort) -> float:
    """Rows per second."""
    rate: float = interleaved({"": Calls(call, rows)}, effort)[""]["steps_per_s"]
    return rate


def _thread_s(call: Callable[[], Any], effort: Effort) -> float:
    """CPU seconds of this thread per call: of the quickest round, as whatever disturbs one only adds to it."""
    call()
    costs = []
    for _ in range(effort.repeats):
        start, begin, calls = time.thread_time(), time.perf_counter(), 0
        while time.perf_counter() - begin < effort.seconds or calls < 2:
            call()
            calls += 1
        costs.append((time.thread_time() - start) / calls)
    return min(costs)


def _driver_s(pool: Any, effort: Effort) -> float:
    """What the driver's thread spends on a step of all envs of its one actor: one request."""
    return _thread_s(_stepper(pool), effort)


def _carrying_s(ray: Any, most: int, order_bytes: float, answer_bytes: float, effort: Effort) -> float:
    """How much longer a call takes that carries these bytes."""
    loaded = _call_s(ray, most, round(order_bytes), round(answer_bytes), effort)
    return max(loaded - _call_s(ray, most, SMALL, SMALL, effort), 0.0)


def _call_s(ray: Any, most: int, order_bytes: int, answer_bytes: int, effort: Effort) -> float:
    """Seconds per call of an actor that does nothing but carry these bytes, with ``most`` calls under way."""

    class Echo:
        def back(self, order: bytes) -> np.ndarray:
            return np.ones(answer_bytes, np.uint8)

    actor = ray.remote(Echo).options(num_cpus=1).remote()
    order = bytes(order_bytes)
    under_way: deque[Any] = deque()

    def call() -> None:
        while len(under_way) < most:
            under_way.append(actor.back.remote(order))
        ray.get(under_way.popleft())

    seconds = 1 / _rate(call, 1, effort)
    ray.kill(actor)
    return seconds


def _gather_s(ray: Any, rows: list[np.ndarray], num_envs: int, effort: Effort) -> tuple[float, float]:
    """Of rollouts: what the driver's thread spends on a row, and how long a call takes for each of its steps.

    The thread takes the arrays from Ray, and copies them into its own.
    """
    steps = max(2, min(ROLLOUT_STEPS, int(MOST_BYTES / (num_envs * sum(row.nbytes for row in rows)))))

    class Source:
        def arrays(self) -> list[np.ndarray]:
            return [np.ones((steps, num_envs, *row.shape), row.dtype) for row in rows]

    actor = ray.remote(Source).options(num_cpus=1).remote()

    def gather() -> None:
        for array in ray.get(actor.arrays.remote()):
            own = np.empty_like(array)  # new memory, as for every rollout
            own[...] = array

    result = _thread_s(gather, effort) / (steps * num_envs), 1 / _rate(gather, steps, effort)
    ray.kill(actor)
    return result


# ---- bytes -----------------------------------------------------------------------------------------


class _Counted:
    """Bytes of each request and of each answer of a pool whose requests are for all of its envs."""

    def __init__(self, num_envs: int) -> None:
        self._num_envs = num_envs
        self.orders: list[int] = []
        self.answers: list[int] = []

    @property
    def order_bytes(self) -> float:
        """Per row."""
        return statistics.median(self.orders) / self._num_envs

    @property
    def answer_bytes(self) -> float:
        """Per row."""
        return statistics.median(self.answers) / self._num_envs


@contextlib.contextmanager
def _counted(num_envs: int) -> Iterator[_Counted]:
    """Counts what pools send to their actors and get back."""
    from stepmill.hosts.ray.actors import Actors

    counted = _Counted(num_envs)
    request, answers = Actors.request, Actors.answers

    def counted_request(self: Any, group: int, order: bytes) -> None:
        counted.orders.append(len(order))
        request(self, group, order)

    def counted_answers(self: Any, seconds: float) -> Iterator[Any]:
        for group, answer in answers(self, seconds):
            if isinstance(answer, bytes | np.ndarray):  # neither a loss nor a rollout
                counted.answers.append(len(answer))
            yield group, answer

    Actors.request, Actors.answers = counted_request, counted_answers  # type: ignore[method-assign]
    try:
        yield counted
    finally:
        Actors.request, Actors.answers = request, answers  # type: ignore[method-assign]
