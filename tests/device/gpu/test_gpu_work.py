"""Work on a real GPU that is under way: streams, graphs, pools that are dropped, a fork, memory that is full."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import stepmill
from stepmill.errors import ActionError, ForkedError, ResourceError, UsageError
from support.processes import child, went_well

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.usefixtures("one_cache")

NUM_ENVS = 5000
TASK = "Taxi-v3"  # without sines: equal bit for bit


def on_gpu(num_envs: int = NUM_ENVS, **arguments: Any) -> Any:
    return stepmill.make(TASK, num_envs=num_envs, seed=1, backend="cuda", output="torch", **arguments)


def drawn(steps: int, num_envs: int = NUM_ENVS) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 6, (steps, num_envs))


@pytest.fixture(scope="module")
def expected() -> list[np.ndarray]:
    """What threads show after each of these steps: observations, and rewards."""
    with stepmill.make(TASK, num_envs=NUM_ENVS, seed=1, backend="thread") as pool:
        pool.reset()
        return [pool.step(action)[:2] for action in drawn(60)]


def assert_steps(got: list[Any], expected: list[Any]) -> None:
    for step, (ours, theirs) in enumerate(zip(got, expected, strict=True)):
        np.testing.assert_array_equal(ours[0].cpu().numpy(), theirs[0], err_msg=f"step {step}")
        np.testing.assert_array_equal(ours[1].cpu().numpy(), theirs[1].astype(np.float32), err_msg=f"step {step}")


def test_nothing_that_was_given_out_is_written_to_again(expected: list[Any]) -> None:
    with on_gpu() as pool:
        pool.reset()
        actions = torch.from_numpy(drawn(60)).cuda()
        got = [pool.step(action)[:2] for action in actions]
    assert_steps(got, expected)


def test_two_streams_take_turns(expected: list[Any]) -> None:
    actions = torch.from_numpy(drawn(60)).cuda()
    torch.cuda.synchronize()
    streams = torch.cuda.Stream(), torch.cuda.Stream()
    heavy = torch.ones(2000, 2000, device="cuda")
    got = []
    with on_gpu() as pool:
        pool.reset()
        torch.cuda.synchronize()
        for step, action in enumerate(actions):
            here, before = streams[step % 2], streams[1 - step % 2]
            here.wait_stream(before)
            with torch.cuda.stream(here):
                heavy = heavy @ heavy.T / 2000  # so that work is still under way when the other stream comes
                obs, reward, *_ = pool.step(action)
                got.append((obs.clone(), reward.clone()))
                del obs, reward  # their memory may be used by the next step, which is in the other stream
        torch.cuda.synchronize()
    assert_steps(got, expected)


def test_two_pools_do_not_disturb_each_other(expected: list[Any]) -> None:
    actions = torch.from_numpy(drawn(60)).cuda()
    with on_gpu() as one, on_gpu(autoreset="same_step", max_episode_steps=3) as other:
        one.reset(), other.reset()
        got = []
        for action in actions:
            got.append(one.step(action)[:2])
            other.step(action)
    assert_steps(got, expected)


def test_a_graph_steps_like_the_pool(expected: list[Any]) -> None:
    actions = torch.from_numpy(drawn(60)).cuda()
    action = actions[0].clone()
    got = []
    with on_gpu() as pool:
        pool.reset()
        obs, reward, *_ = pool.graph_step(action)
        got.append((obs.clone(), reward.clone()))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            again, *_ = pool.graph_step(action)
        assert again.data_ptr() == obs.data_ptr()
        for one in actions[1:]:
            action.copy_(one)
            graph.replay()
            got.append((obs.clone(), reward.clone()))
        del graph
    assert_steps(got, expected)


def test_a_graph_of_many_steps_with_a_policy_inside() -> None:
    with on_gpu() as by_graph, on_gpu() as by_steps:
        by_graph.reset()
        obs, _ = by_steps.reset()
        action = torch.zeros(NUM_ENVS, dtype=torch.int64, device="cuda")
        shown, *_ = by_graph.graph_step(action)
        obs, *_ = by_steps.step(action)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(10):
                action.copy_((shown * 7 + 3) % 6)
                by_graph.graph_step(action)
        for _ in range(5):
            graph.replay()
            for _ in range(10):
                obs, *_ = by_steps.step((obs * 7 + 3) % 6)
            assert torch.equal(shown, obs)
        del graph


def test_a_capture_is_not_disturbed(expected: list[Any]) -> None:
    """By results and pools that are dropped meanwhile, in its stream and elsewhere, or by calls that are refused."""
    actions = torch.from_numpy(drawn(60)).cuda()
    action, stream = actions[0].clone(), torch.cuda.Stream()
    with on_gpu() as pool:
        other = on_gpu(100)
        other.reset()
        pool.reset()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            dropped = pool.step(actions[0])
            obs, reward, *_ = pool.graph_step(actions[1])
            got = [(dropped[0].clone(), dropped[1].clone()), (obs.clone(), reward.clone())]
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            pool.graph_step(action)
            del dropped, other
            gc.collect()
            for call in (lambda: pool.step(action), pool.reset, pool.save, pool.check):
                with pytest.raises(UsageError, match="of which only graph_step can be a part"):
                    call()
        for one in actions[2:30]:
            action.copy_(one)
            graph.replay()
            got.append((obs.clone(), reward.clone()))
        torch.cuda.synchronize()
        got += [pool.step(one)[:2] for one in actions[30:]]  # in the memory of what was dropped, among others
        del graph
    assert_steps(got, expected)


@pytest.mark.parametrize("task", [TASK, "FrozenLake-v1"])  # the latter's envs read a map
def test_a_graph_may_be_replayed_after_its_pool_was_closed(task: str) -> None:
    action = torch.zeros(NUM_ENVS, dtype=torch.int64, device="cuda")
    pool = stepmill.make(task, num_envs=NUM_ENVS, seed=1, backend="cuda", output="torch")
    pool.reset()
    obs, *_ = pool.graph_step(action)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        pool.graph_step(action)
    pool.close()
    del pool
    gc.collect()
    others = torch.zeros(64 << 20, dtype=torch.uint8, device="cuda")
    for _ in range(10):
        graph.replay()
    torch.cuda.synchronize()
    assert int(obs.max()) < 500
    assert not others.any()
    del graph


def test_actions_anywhere_in_memory(expected: list[Any]) -> None:
    packed = torch.zeros(1 + NUM_ENVS, dtype=torch.int64, device="cuda")
    got = []
    with on_gpu() as pool:
        pool.reset()
        for action in drawn(60):
            packed[1:] = torch.from_numpy(action).cuda()
            got.append(pool.step(packed[1:])[:2])
        packed[100] = 2**40
        pool.step(packed[1:].to(torch.float64))
        with pytest.raises(ActionError, match="env 99 was given an action outside"):
            pool.check()
    assert_steps(got, expected)


def test_a_pool_that_is_dropped_while_it_works_leaves_nothing() -> None:
    def work() -> Any:
        pool = on_gpu(200_000)
        pool.reset()
        actions = torch.from_numpy(drawn(2, 200_000)).cuda()
        heavy = torch.ones(4000, 4000, device="cuda")
        for i in range(100):
            heavy = heavy @ heavy.T / 4000
            last = pool.step(actions[i % 2])
        return last[0]

    gc.collect()
    torch.cuda.synchronize()
    work()
    torch.cuda.empty_cache()
    before = torch.cuda.mem_get_info()[0]
    for _ in range(3):
        last = work()  # the pool is gone, and its steps are not done
        assert int(last.max()) < 500
        del last
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    assert before - torch.cuda.mem_get_info()[0] <= 64 << 20


def test_tensors_outlive_their_pool(expected: list[Any]) -> None:
    pool = on_gpu()
    pool.reset()
    got = [pool.step(action)[:2] for action in torch.from_numpy(drawn(60)).cuda()]
    pool.close()
    del pool
    gc.collect()
    assert_steps(got, expected)


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # of JAX, where other tests have imported it
def test_a_fork_leaves_the_pool_to_the_parent(expected: list[Any]) -> None:
    actions = torch.from_numpy(drawn(60)).cuda()
    with on_gpu() as pool:
        pool.reset()
        got = [pool.step(action)[:2] for action in actions[:30]]

        first = actions[0]  # torch itself does nothing more with a GPU in a child

        def in_child() -> None:
            with pytest.raises(ForkedError):
                pool.step(first)
            got.clear()
            pool.close()
            gc.collect()

        assert went_well(child(in_child))
        got += [pool.step(action)[:2] for action in actions[30:]]
    assert_steps(got, expected)


def test_bad_actions_on_the_gpu_are_told_of_later() -> None:
    pool = on_gpu()
    pool.reset()
    action = torch.zeros(NUM_ENVS, dtype=torch.int64, device="cuda")
    action[4321] = 6
    pool.step(action)
    with pytest.raises(ActionError, match="env 4321 was given an action outside"):
        pool.check()
    pool.check()
    pool.close()


def test_a_gpu_without_memory_is_an_error_that_leaves_nothing() -> None:
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info()
    taken = torch.empty(free - (300 << 20), dtype=torch.uint8, device="cuda")
    with pytest.raises(ResourceError, match="left for 4000000 envs: take fewer"):
        on_gpu(4_000_000)
    before = torch.cuda.mem_get_info()[0]
    del taken
    torch.cuda.empty_cache()
    assert torch.cuda.mem_get_info()[0] > before
    with on_gpu() as pool:
        assert pool.reset()[0].shape == (NUM_ENVS,)
