"""Env classes that fail in a kernel, or cannot run there: what a pool says of them."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepmill import errors
from support.cuda_pools import HostGpu, in_float32
from support.host_kernels import MODES
from support.own_env import SPEC, own_env
from support.probes import assert_same

N = 4
SOURCE = """
#include <stepmill/env.h>
{include}
using namespace stepmill;

class Odd {{
 public:
  static constexpr bool kNeverBlocks = true;
  static constexpr bool kPlainMemory = true;
  static EnvSpec spec(const Config&) {{
    EnvSpec spec;
    spec.observation = {{box<double>({{}}, {{0.0}}, {{1e9}})}};
    spec.action = {{discrete(4)}};
    return spec;
  }}
  explicit Odd(const Config&) {{}}
  void reset(Rng&, const Options&) {{ steps_ = 0; }}
  Outcome step(const ActionRow& action, Rng&) {{
    steps_ += 1;
    {step}
    return {{1.0, false, false}};
  }}
  void observe(const Row& row) const {{ *row.observation<double>() = 1.0 + steps_; }}

 private:
  double steps_ = 0.0;
}};
"""
THROWS = 'if (action.index() == 3) throw std::runtime_error("three");'


@pytest.fixture
def make_odd(gpu: HostGpu, make: Any, tmp_path: Path) -> Callable[..., Any]:
    """A pool of envs of one file, with these lines in their step."""

    def made(step: str = THROWS, include: str = "", **arguments: Any) -> Any:
        path = tmp_path / "odd.h"
        path.write_text(SOURCE.format(step=step, include=include))
        return make(str(path), **{"num_envs": N, "backend": "cuda", **arguments})

    return made


@pytest.mark.parametrize("mode", MODES)
def test_a_failed_env_has_a_row_and_goes_on(make_odd: Any, mode: str) -> None:
    pool = make_odd(autoreset=mode)
    pool.reset()
    pool.step(np.zeros(N, int))
    observation, reward, terminated, truncated, info = pool.step([0, 3, 0, 3])
    assert truncated.tolist() == [False, True, False, True]
    assert not terminated.any()
    assert observation.tolist() == [3, 0, 3, 0]
    assert reward.tolist() == [1, 0, 1, 0]
    assert "episode_return" not in info
    if mode == "disabled":
        with pytest.raises(errors.NeedsResetError, match="env 1"):
            pool.step(np.zeros(N, int))
        pool.reset([1, 3])
    else:
        observation, reward, _, truncated, info = pool.step(np.zeros(N, int))
        assert observation.tolist() == [4, 1, 4, 1]
        assert reward.tolist() == [1, 0, 1, 0]
        assert not truncated.any()
    assert pool.step(np.zeros(N, int))[0].tolist()[1::2] == [2, 2]
    with pytest.raises(errors.EnvError):
        pool.check()


@pytest.mark.parametrize("mode", MODES)
def test_rows_of_failed_envs_are_those_of_threads(make_odd: Any, mode: str) -> None:
    """Down to which infos there are. There, an error carries them."""
    gpu, threads = make_odd(autoreset=mode), make_odd(autoreset=mode, backend="thread")
    gpu.reset(), threads.reset()
    for action in ([0, 0, 0, 0], [0, 3, 0, 3]):
        try:
            expected = threads.step(action)
        except errors.EnvError as error:
            expected = error.batch
        observation, reward, *rest = gpu.step(action)
        assert_same((observation, reward.astype(np.float64), *rest), expected)
    assert expected[4]["abnormal"].tolist() == [False, True, False, True]
    with pytest.raises(errors.EnvError):
        gpu.close()


@pytest.mark.parametrize("told_by", ["check", "stats", "close"])
def test_failures_are_told_once_and_counted(make_odd: Any, told_by: str) -> None:
    pool = make_odd()
    pool.reset()
    pool.check()
    pool.step([0, 3, 3, 0])
    pool.step([0, 3, 3, 0])  # which is discarded
    pool.step([0, 0, 0, 3])
    with pytest.raises(
        errors.EnvError, match=r"env 1 failed: its code threw an exception.*backend='thread' shows"
    ) as caught:
        getattr(pool, told_by)()
    assert caught.value.env_id == 1
    assert caught.value.batch is None
    if told_by == "close":
        assert pool.closed
        pool.close()
        return
    pool.check()
    assert pool.stats()["failures"] == 3
    assert pool.stats()["episodes"] == 0
    pool.reset()
    pool.step([3, 0, 0, 0])
    with pytest.raises(errors.EnvError, match="env 0 failed"):
        pool.check()
    assert pool.stats()["failures"] == 4


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ValueError])
def test_what_ends_a_with_block_is_what_its_user_sees(make_odd: Any, error: type[BaseException]) -> None:
    pool = make_odd()

    def use() -> None:
        with pool:
            pool.reset()
            pool.step([0, 0, 3, 0])
            raise error

    with pytest.raises(error):
        use()
    assert pool.closed


def test_a_pool_on_a_gpu_that_is_broken_can_be_closed(make_odd: Any, gpu: HostGpu) -> None:
    before = gpu.left()
    pool = make_odd()
    pool.reset()
    with gpu.with_number("broken", 700), pytest.raises(errors.ResourceError, match="error 700"):
        pool.close()
    assert pool.closed
    pool.close()
    del pool
    gc.collect()
    assert gpu.left() == before


def test_options_are_kept_until_a_reset_has_gone_well(gpu: HostGpu, make: Any, tmp_path: Path) -> None:
    task = own_env(
        tmp_path / "own.h",
        reset="if (options.has(1) && rng.random() < 0.5) throw 1; x_ = options.get(0, -1.0);",
        step="return {1.0, x_ == 5.0, false};",
        members='public: static constexpr const char* kResetOptions[] = {"start", "risky", nullptr};',
    )
    both = [make(task, num_envs=8, backend=backend, seed=3) for backend in ("cuda", "thread")]
    shown: list[list[Any]] = [[], []]
    for pool, rows in zip(both, shown, strict=True):
        calls = [pool.reset, lambda pool=pool: pool.reset(options={"start": 7.0, "risky": 1.0})]
        calls += [lambda pool=pool: pool.step(np.zeros(8, int))] * 8
        # One without options takes them back.
        calls += [lambda pool=pool: pool.reset(options={"start": 5.0, "risky": 1.0}), pool.reset]
        calls += [lambda pool=pool: pool.step(np.zeros(8, int))] * 2
        for call in calls:
            try:
                rows.append(call()[0])
            except errors.EnvError as error:
                rows.append(error.batch[0])
    assert_same(*shown)
    assert set(shown[0][9].ravel()) == {7.0}
    assert (shown[0][1] == 0).any()
    with pytest.raises(errors.EnvError):
        both[0].check()


@pytest.mark.parametrize("way", ["rollout", "play"])
def test_rollouts_raise_what_those_of_threads_do(make_odd: Any, way: str) -> None:
    def acts(observations: Any, env_ids: Any, generators: Any) -> Any:
        return np.where(observations > 4, 3 * (env_ids % 2), 0)

    def run(pool: Any) -> Any:
        with pytest.raises(errors.EnvError, match="env 1 failed") as caught:
            pool.rollout(acts, 20) if way == "rollout" else list(pool.play(acts))
        return caught.value

    with make_odd() as gpu, make_odd(backend="thread") as threads:
        got, expected = run(gpu), run(threads)
        assert [one.env_id for one in got.errors] == [one.env_id for one in expected.errors] == [1, 3]
        assert_same(got.batch, in_float32("gymnasium", expected.batch))
        gpu.check()  # it was told
        kept = [batch for batch, _ in zip(gpu.play(acts, raise_errors=False), range(12), strict=False)]
        assert [one.error is not None for one in kept].count(True) == 2


def test_a_failure_before_a_rollout_is_told_by_it(make_odd: Any) -> None:
    pool = make_odd()
    observation, _ = pool.reset()
    observation = pool.step([0, 0, 3, 0])[0]
    with pytest.raises(errors.EnvError, match="env 2 failed"):
        pool.rollout(lambda *_: np.zeros(N, int), 3, observation=observation)
    assert pool.rollout(lambda *_: np.zeros(N, int), 3, observation=observation).rewards.sum() == 2 * 4 + 3


@pytest.fixture
def make_frank(gpu: HostGpu, make: Any, tmp_path: Path) -> Callable[..., Any]:
    """A pool of envs that say themselves that something went wrong, after an action of 1, and fail after one of 3."""
    task = own_env(
        tmp_path / "frank.h",
        "Frank",
        spec=SPEC + 'spec.info = {box<bool>({}, {0}, {1}, "abnormal")};',
        step="told_ = action.index() == 1; if (action.index() == 3) throw 3; return {1, false, false};",
        observe="*row.observation<double>() = 1; *row.info<bool>(0) = told_;",
        members="bool told_ = false;",
    )
    return lambda **arguments: make(task, **{"num_envs": N, "backend": "cuda", **arguments})


def test_envs_that_call_a_row_abnormal_and_envs_that_fail(make_frank: Any) -> None:
    gpu, threads = make_frank(), make_frank(backend="thread")
    gpu.reset(), threads.reset()
    with pytest.raises(errors.EnvError) as caught:
        threads.step([0, 1, 3, 1])
    batch: Any = caught.value.batch
    for info in (gpu.step([0, 1, 3, 1])[4], batch[4]):
        assert info["abnormal"].tolist() == [False, True, True, True]
    with pytest.raises(errors.EnvError, match="env 2 failed"):
        gpu.check()


def test_rollouts_of_envs_that_call_rows_abnormal(make_frank: Any) -> None:
    acts = lambda _observations, env_ids, _generators: env_ids % 2  # noqa: E731
    shown = [vars(make_frank(backend=backend).rollout(acts, 6)) for backend in ("cuda", "thread")]
    assert shown[0]["abnormal"].tolist() == shown[1]["abnormal"].tolist()
    assert shown[0]["abnormal"].any()


def test_a_pool_that_is_left_by_a_with_block(make_odd: Any) -> None:
    def use() -> None:
        with make_odd() as pool:
            pool.reset()
            pool.step([0, 0, 3, 0])

    with pytest.raises(errors.EnvError, match="env 2 failed"):
        use()


def test_words_around_a_try_mean_what_they_mean_on_the_host(make_odd: Any) -> None:
    step = "if (action.index() == 1) try { steps_ += 10; } catch (...) { steps_ = -1; } else steps_ += 100;"
    for backend in ("cuda", "thread"):
        pool = make_odd(step, backend=backend)
        pool.reset()
        assert pool.step([0, 1, 2, 1])[0].tolist() == [102, 12, 102, 12], backend


def test_what_the_others_do_does_not_change(make_odd: Any) -> None:
    one, other = make_odd(), make_odd()
    for action in ([0, 0, 0, 0], [0, 3, 0, 0], [1, 1, 1, 1], [0, 3, 0, 0]):
        a, b = one.step(action), other.step(np.minimum(action, 2))
        assert_same(a[0][[0, 2, 3]], b[0][[0, 2, 3]])
    with pytest.raises(errors.EnvError):
        one.close()


def test_an_exception_of_the_host_says_what_it_is(make_odd: Any) -> None:
    make_odd().close()
    pool = make_odd(backend="thread")
    pool.reset()
    with pytest.raises(errors.EnvError, match="three"):
        pool.step([0, 3, 0, 0])


@pytest.mark.parametrize(
    ("step", "include", "named"),
    [
        ("try { steps_ = 1; } catch (const std::exception& error) { steps_ = *error.what(); }", "", "error"),
        ("steps_ += std::unordered_map<int, int>().size();", "#include <unordered_map>", "unordered_map"),
        ('FILE* file = std::fopen("x", "r"); steps_ += file != nullptr;', "#include <cstdio>", "fopen"),
    ],
)
def test_a_class_that_cannot_run_there_says_why(make_odd: Any, step: str, include: str, named: str) -> None:
    make_odd(step, include, backend="thread").close()  # it is fine on the host
    with pytest.raises(errors.CompileError, match=r"odd\.h cannot run on a GPU: ") as caught:
        make_odd(step, include)
    assert named in caught.value.output


def test_an_error_of_the_author_is_told_as_on_the_host(make_odd: Any) -> None:
    for backend in ("thread", "cuda"):
        with pytest.raises(errors.CompileError, match="nonsense"):
            make_odd("nonsense;", backend=backend)
