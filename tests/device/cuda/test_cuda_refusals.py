"""What a pool on a GPU cannot do, and what a machine lacks, is said in a sentence, and nothing is left behind."""

from __future__ import annotations

import gc
import operator
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stepmill
from stepmill import errors
from stepmill.device.cuda import driver, nvrtc
from stepmill.managers import BaseEnvManager
from stepmill.views.gymnasium import GymnasiumPool
from support.cuda_pools import Both, HostGpu
from support.envs import ProbeTwin

N = 3
TASK = "CartPole-v1"
COIN = Path(__file__).parents[3] / "examples/own_envs/coin.h"

ARGUMENTS: dict[str, tuple[Any, dict[str, Any], str]] = {
    "batch_size": (TASK, {"batch_size": 2}, "batch_size: all envs move together"),
    "step_timeout": (TASK, {"step_timeout": 1.0}, "step_timeout: there are no worker processes"),
    "num_workers": (TASK, {"num_workers": 2}, "num_workers: there are no worker processes"),
    "python": (TASK, {"python": "/usr/bin/python3"}, "python"),
    "on_error": (TASK, {"on_error": "restart"}, "on_error: a kernel raises nothing"),
    "render_mode": (TASK, {"render_mode": "rgb_array"}, "render_mode: envs on a GPU cannot be drawn"),
    "a mode that draws every step": (TASK, {"render_mode": "human"}, "render_mode: CartPole-v1 is native, and in mode"),
    "render_mode of a file": (
        str(COIN),
        {"render_mode": "rgb_array"},
        r"coin\.h is native, and cannot be drawn: leave",
    ),
    "players": ("TemplatePlayers-v0", {"max_num_players": 2}, "TemplatePlayers-v0 has several players"),
    "Python env": (ProbeTwin, {}, "ProbeTwin is none"),
    "Gymnasium's env": ("gymnasium:CartPole-v1", {}, "is none"),
    "no kPlainMemory": ("Probe-v0", {}, "Probe-v0 cannot be copied to a GPU: its class does not say kPlainMemory"),
    "MuJoCo": ("Ant-v5", {}, "calls a simulator, which runs on the host"),
    "other tasks": ([TASK, "Taxi-v3", TASK], {}, "expected the same task for all envs, got CartPole-v1 and Taxi-v3"),
}


@pytest.fixture(autouse=True)
def nothing_is_left(gpu: HostGpu) -> Iterator[None]:
    gc.collect()
    before = gpu.left()
    yield
    gc.collect()
    assert gpu.left() == before


@pytest.mark.parametrize("name", ["batch_size", "players", "render_mode", "MuJoCo"])
def test_nobody_is_told_the_spec_of_a_pool_that_cannot_be_made(name: str) -> None:
    task, arguments, words = ARGUMENTS[name]
    with pytest.raises(errors.UnsupportedError, match=words):
        stepmill.make_spec(task, backend="cuda", num_envs=N, **arguments)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_arguments_that_are_not_for_such_pools(name: str) -> None:
    task, arguments, words = ARGUMENTS[name]
    with pytest.raises(errors.StepmillError, match=words) as caught:
        stepmill.make(task, backend="cuda", **{"num_envs": N, **arguments})
    assert isinstance(caught.value, errors.CompileError) or "\n" not in str(caught.value)


CALLS = {
    "call": lambda pool: pool.call("reset"),
    "apply": lambda pool: pool.apply(print),
    "set_attr": lambda pool: pool.set_attr("length", 3),
    "set_model": lambda pool: pool.set_model(None, {}),
    "get_model": lambda pool: pool.get_model(None, []),
    "np_random": lambda pool: pool.np_random,
    "session": lambda pool: pool.session(),
    "watch": lambda pool: pool.watch(),
    "xla": lambda pool: pool.xla(),
    "functional": lambda pool: pool.functional(),
    "graph_step": lambda pool: pool.graph_step(np.zeros(N, int)),
    "render": lambda pool: pool.render(),
    "clone_limit": lambda pool: pool.clone_limit,
    "record_order": lambda pool: pool.record_order("order.bin"),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_that_are_not_for_such_pools(both: Callable[..., Both], name: str) -> None:
    pool = both(TASK, num_envs=N).gpu
    pool.reset()
    with pytest.raises(errors.UnsupportedError, match=rf"^{name}: ") as caught:
        CALLS[name](pool)
    assert "\n" not in str(caught.value)
    assert pool.step(np.zeros(N, int))[4]["elapsed_step"].tolist() == [1] * N


def test_results_stay_those_of_one_library(gpu: HostGpu) -> None:
    with stepmill.make(TASK, backend="cuda", num_envs=N) as pool:
        with pytest.raises(errors.UnsupportedError, match=r"for numpy: make it with output='torch'"):
            GymnasiumPool.over(pool, output="torch")
        assert GymnasiumPool.over(pool, output="numpy").reset()[0].shape == (N, 4)


def test_graph_step_is_refused_elsewhere() -> None:
    with (
        stepmill.make(TASK, num_envs=N) as pool,
        pytest.raises(errors.UnsupportedError, match=r"^graph_step: .* got backend='thread' and output='numpy'"),
    ):
        pool.graph_step(np.zeros(N, int))


def test_managers_are_refused(gpu: HostGpu) -> None:
    with pytest.raises(errors.StepmillError):
        BaseEnvManager([lambda cfg: stepmill.make(TASK, backend="cuda")] * 2).launch()


def test_configurations_that_are_wrong(gpu: HostGpu) -> None:
    for backend in ("thread", "cuda"):
        with pytest.raises(errors.UnknownConfigError, match="gravty"):
            stepmill.make(TASK, backend=backend, gravty=1)
        with pytest.raises(errors.ConfigError, match="map_name: expected '4x4'"):
            stepmill.make("FrozenLake-v1", backend=backend, map_name="5x5")
        with pytest.raises(errors.ConfigError):
            stepmill.make(TASK, backend=backend, num_envs=0)
        with pytest.raises(errors.ConfigError):
            stepmill.make(TASK, backend=backend, num_envs=2, seed=[1])


# ---- what a machine lacks ------------------------------------------------------------------------


def test_no_driver(gpu: HostGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "LIBRARY", "libcuda_that_nobody_has.so.1")
    with pytest.raises(errors.UnsupportedError, match=r"backend='cuda': there is no NVIDIA driver: .*nvidia-smi"):
        stepmill.make(TASK, backend="cuda")


def test_no_such_gpu(gpu: HostGpu) -> None:
    with pytest.raises(
        errors.UnsupportedError, match=r"backend='cuda': GPU 3: invalid device ordinal. nvidia-smi lists"
    ):
        stepmill.make(TASK, backend="cuda", device="cuda:3")


def test_a_gpu_that_is_too_old(gpu: HostGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stepmill.device.open._LEAST_ARCHITECTURE", 100)  # the driver's GPU has 9.9
    with pytest.raises(errors.UnsupportedError, match=r"GPU 0 has compute capability 9\.9: expected at least 10\.0"):
        stepmill.make(TASK, backend="cuda")


def test_no_compiler(gpu: HostGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Any:
        raise errors.MissingPackageError("backend='cuda' compiles envs with NVRTC")

    monkeypatch.setattr(nvrtc, "version", missing)
    with pytest.raises(errors.MissingPackageError):
        stepmill.make(TASK, backend="cuda")


def test_no_compiler_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "_places", lambda: iter(["/nowhere/libnvrtc.so.13"]))
    nvrtc._library.cache_clear()
    try:
        with pytest.raises(errors.MissingPackageError, match=r"there is none: pip install 'stepmill\[cuda\]'"):
            nvrtc._library()
    finally:
        nvrtc._library.cache_clear()


def test_a_driver_that_is_too_old(gpu: HostGpu) -> None:
    with (
        gpu.with_number("cuda", 12080),
        pytest.raises(errors.UnsupportedError, match=r"the NVIDIA driver knows CUDA 12\.8: expected 13\.0 or later"),
    ):
        stepmill.make(TASK, backend="cuda", num_envs=N)


@pytest.mark.parametrize(
    ("answer", "error", "said"),
    [
        (2, errors.OutOfMemoryError, "GPU 0 has too little memory left for the env's members"),
        (1, errors.ResourceError, "GPU 0 cannot start the kernel: the env's members .* need more than the 512 KiB"),
    ],
)
def test_no_memory_for_local_variables(gpu: HostGpu, answer: int, error: type[Exception], said: str) -> None:
    """The first launch takes it, in `make`."""
    with gpu.with_number("launch_refused", answer), pytest.raises(error, match=said):
        stepmill.make(TASK, backend="cuda", num_envs=N)


@pytest.mark.torch
def test_a_library_that_sees_no_gpu(gpu: HostGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("torch sees one")
    monkeypatch.setattr(driver, "MEMORY_KIND", 2)
    with pytest.raises(errors.UnsupportedError, match="finds no GPU"):
        stepmill.make(TASK, backend="cuda", num_envs=N, output="torch")
    with pytest.raises(errors.UnsupportedError, match="JAX finds no GPU"):
        stepmill.make(TASK, backend="cuda", num_envs=N, output="jax")


def test_no_memory_for_a_step_changes_nothing(both: Callable[..., Both], gpu: HostGpu) -> None:
    """And no result that was handed out is written to by what comes next."""
    pools = both(TASK, num_envs=40)
    action = np.ones(40, int)
    for pool in pools.pools:
        pool.reset()
        pool.step(action)
    calls: list[Callable[[Any], Any]] = [
        lambda pool: pool.step(action),
        lambda pool: pool.step([1], [1]),
        lambda pool: pool.reset([0]),
        lambda pool: pool.reset(seed=3),
        lambda pool: pool.fork(0, [1]),
    ]
    for call in calls:
        for left in (0, 4, 39, 40, 159, 160, 319, 320, 1000):  # of memory for each thing that is asked for
            before = [bytes(one) for one in pools.gpu.save()], pools.gpu.np_random_seed
            try:
                with gpu.memory_left(left):
                    call(pools.gpu)
            except errors.OutOfMemoryError:
                assert ([bytes(one) for one in pools.gpu.save()], pools.gpu.np_random_seed) == before
            else:
                assert left
                pools.cpu.drain()
                call(pools.cpu)
            assert pools.gpu.in_flight == []
        expected, got = pools.cpu.step(action), pools.gpu.step(action)
        np.testing.assert_array_equal(got[0], expected[0])


# ---- files ---------------------------------------------------------------------------------------


def test_an_env_of_one_file(both: Callable[..., Both]) -> None:
    pools = both(str(COIN), num_envs=N, max_episode_steps=9, bias=0.75, seed=[4, 4, 1])
    pools.do(lambda pool: pool.reset())
    for _ in range(30):
        action = pools.actions()
        got, expected = pools.do(operator.methodcaller("step", action))
        for one, other in zip(got[:4], expected[:4], strict=True):
            np.testing.assert_array_equal(one, other)
    with pytest.raises(errors.ConfigError, match="bias: expected 0 to 1"):
        stepmill.make(str(COIN), backend="cuda", bias=2.0)


def test_a_kernel_is_compiled_once(gpu: HostGpu, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    gpu.compiled.clear()

    def compiles(task: Any = TASK, **arguments: Any) -> list[int]:
        gpu.compiled.clear()
        stepmill.make(task, backend="cuda", **arguments).close()
        return list(gpu.compiled)

    assert compiles() == [99]
    assert compiles() == compiles(num_envs=7, seed=3, max_episode_steps=5) == []
    assert compiles(sutton_barto_reward=True) == []
    assert compiles(autoreset="same_step") == [99]
    assert compiles("Taxi-v3") == [99]
    monkeypatch.setattr("stepmill._native.gpu_architecture", lambda library, device: 90)
    assert compiles() == [90]
    assert compiles() == []
    monkeypatch.setattr(nvrtc, "version", lambda: (13, 1))
    assert compiles() == [90]
    monkeypatch.setattr(nvrtc, "OPTIONS", (*nvrtc.OPTIONS, "-lineinfo"))
    assert compiles() == [90]
    file = tmp_path / "coin.h"
    file.write_text(COIN.read_text())
    assert compiles(str(file)) == [90]
    assert compiles(str(file)) == []
    file.write_text(COIN.read_text().replace("1.0 : 0.0", "2.0 : 0.0"))
    assert compiles(str(file)) == [90]


def test_a_library_is_not_a_source(gpu: HostGpu, tmp_path: Path) -> None:
    library = stepmill.compile(COIN)
    stepmill.make(library, backend="cuda").close()
    made = tmp_path / "libcoin.so"
    command = ["gcc", "-shared", "-fPIC", f"-I{stepmill.get_include()}", str(COIN.with_name("coin.c")), "-o", str(made)]
    subprocess.run(command, check=True)
    with pytest.raises(errors.UnsupportedError, match=r"compiled for the host already: a GPU needs the C.. file"):
        stepmill.make(str(made), backend="cuda")
