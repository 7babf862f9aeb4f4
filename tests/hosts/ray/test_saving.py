"""Saved states of envs on a cluster: they go on as the saved ones did, here and on this machine."""

from __future__ import annotations

import contextlib
import io
import pickle
import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import stepmill
from stepmill import errors
from stepmill.hosts.open_local_host import open_local_host
from stepmill.hosts.ray import env_actor
from stepmill.hosts.ray.env_actor import ActorStates, EnvActor
from stepmill.managers import BaseEnvManager, RayEnvManager
from support.backends import Actor
from support.envs import ProbeTwin
from support.envs.contract import Walk
from support.envs.many_spaces import WildEnv
from support.envs.scripted import ChanceEnv
from support.lanes import Lanes
from support.on_ray import actors_of, make_on_ray, wait_until_dead
from support.probes import MODES, assert_same
from support.ray_here import RayHere

pytestmark = [
    pytest.mark.usefixtures("server", "deadline"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::ResourceWarning"),
]
STEPS = 40


def chance() -> Any:
    return ChanceEnv(spaces.Box(-1, 1, (2, 3), np.float32), in_place=True)


# By name: the env, its configuration, and the backend that its actors have.
CASES: dict[str, tuple[Any, dict[str, Any], str]] = {
    "native": ("CartPole-v1", {"max_episode_steps": 20}, "thread"),
    "python": (chance, {}, "inline"),
    "infos": (ProbeTwin, {"info": True, "length": 7}, "inline"),
    "objects": (WildEnv, {}, "inline"),
}
IN_PROCESSES: dict[str, tuple[Any, dict[str, Any], str]] = {
    "native": ("Taxi-v4", {"is_rainy": True, "max_episode_steps": 20}, "process"),
    "python": (chance, {}, "process"),
    "objects": (WildEnv, {}, "process"),
}
WITH_PROCESSES = ["inline", pytest.param("process", marks=pytest.mark.slow)]


@pytest.fixture
def use_there(ray_here: RayHere, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Says on which backend the envs of actors run, which otherwise try what is faster."""

    def use(backend: str) -> None:
        def open_there(source: Any, settings: Any, finisher: Any) -> Any:
            return open_local_host(source, replace(settings, backend=backend), finisher)

        monkeypatch.setattr(env_actor, "open_local_host", open_there)

    return use


@pytest.fixture
def there(use_there: Callable[[str], None]) -> Callable[..., Any]:
    """Makes pools of two actors, whose envs run on a certain backend there."""

    def make(task: Any, backend: str, num_envs: int = 4, **arguments: Any) -> Any:
        use_there(backend)
        return stepmill.make(task, num_envs=num_envs, backend=stepmill.Ray(num_actors=2), **arguments)

    return make


@pytest.mark.parametrize("autoreset", MODES)
@pytest.mark.parametrize("case", CASES)
def test_a_restored_env_goes_on_as_the_saved_one(case: str, autoreset: str, there: Callable[..., Any]) -> None:
    goes_on(CASES[case], autoreset, there)


@pytest.mark.slow
@pytest.mark.parametrize("autoreset", MODES)
@pytest.mark.parametrize("case", IN_PROCESSES)
def test_envs_in_worker_processes_of_actors_go_on(case: str, autoreset: str, there: Callable[..., Any]) -> None:
    goes_on(IN_PROCESSES[case], autoreset, there)


def goes_on(case: tuple[Any, dict[str, Any], str], autoreset: str, there: Callable[..., Any]) -> None:
    """Restored after some steps, into other actors and into a pool of this machine, and back from there."""
    task, config, backend = case
    rng = np.random.default_rng(zlib.crc32(f"{config}{backend}{autoreset}".encode()))
    with (
        there(task, backend, autoreset=autoreset, seed=7, **config) as pool,
        stepmill.make(task, num_envs=4, backend="inline", autoreset=autoreset, seed=99, **config) as here,
    ):
        here.reset()
        assert pool.state_kind == here.state_kind
        first = pool.reset()
        assert_same(pool.restore(pool.save())[0], first[0])
        lanes = Lanes(pool, [(i, 0) for i in range(4)])
        lanes.go(int(rng.integers(1, 25)))
        states, at = pickle.loads(pickle.dumps(pool.save())), list(lanes.at)
        expected = lanes.go(STEPS)
        here.restore(states)
        for to, given in ((pool, states), (pool, here.save()), (here, states)):
            order = [int(i) for i in rng.permutation(4)]
            to.restore([given[i] for i in order])
            got = Lanes(to, [at[i] for i in order]).go(STEPS)
            for env_id, i in enumerate(order):
                assert_same(got[env_id], expected[i])


@pytest.mark.parametrize("autoreset", ["next_step", "same_step"])
@pytest.mark.parametrize("case", CASES)
def test_a_pool_is_resumed_with_the_results_that_waited(case: str, autoreset: str, there: Callable[..., Any]) -> None:
    """On this machine, and from there on a cluster again."""
    task, config, backend = CASES[case]
    with there(task, backend, autoreset=autoreset, seed=7, **config) as pool:
        pool.reset()
        lanes = Lanes(pool, [(i, 0) for i in range(4)])
        lanes.go(9)
        pool.send(Actor(pool)(2), [3, 1])
        with (
            resumed(pool, "inline") as here,
            resumed(here, stepmill.Ray(num_actors=2)) as again,
        ):
            expected = pool.recv()
            assert expected[4]["env_id"].tolist() == [3, 1]
            for other in (here, again):
                assert_same(other.recv(), expected)
            rows = lanes.go(20)
            for other in (here, again):
                assert_same(Lanes(other, [(i, 9) for i in range(4)]).go(20), rows)


def resumed(pool: Any, backend: Any) -> Any:
    file = io.BytesIO()
    pool.checkpoint(file)
    file.seek(0)
    return stepmill.resume(file, backend=backend)


@pytest.mark.parametrize("backend", ["thread", pytest.param("process", marks=pytest.mark.slow)])
def test_a_restored_simulator_goes_on_as_the_saved_one(backend: str, there: Callable[..., Any]) -> None:
    with there("HalfCheetah-v5", backend, seed=7) as pool, stepmill.make("HalfCheetah-v5", num_envs=4) as here:
        assert pool.state_kind == "simulator"
        pool.reset()
        here.reset()
        lanes = Lanes(pool, [(i, 0) for i in range(4)])
        lanes.go(5)
        states, at = pool.save(), list(lanes.at)
        expected = lanes.go(20)
        for to in (pool, here):
            to.restore(states)
            assert_same(Lanes(to, at).go(20), expected)
        pool.set_model([3], {"opt.gravity": [0.0, 0.0, -5.0]})
        changed = pool.save()
        pool.restore(states)  # takes the change back
        assert_same(Lanes(pool, at).go(20), expected)
        for to in (pool, here):
            to.restore(changed)
            assert list(to.get_model([3], ["opt.gravity"])["opt.gravity"][0]) == [0.0, 0.0, -5.0]
            lanes = Lanes(to, at)
            rows = lanes.go(20)
            to.restore(changed)
            assert_same(Lanes(to, at).go(20), rows)


def test_fork_crosses_actors_and_a_rollout_goes_on(there: Callable[..., Any]) -> None:
    def lean(observations: Any, env_ids: Any, generators: Any) -> Any:
        return (observations[:, 2] > 0).astype(int)

    with there("CartPole-v1", "thread", seed=3) as pool:
        first = pool.rollout(lean, 10)
        states = pool.save()
        observation, _ = pool.fork(0, [3, 1, 2])
        assert_same(observation, np.repeat(observation[:1], 3, axis=0))
        alike = pool.rollout(lean, 30, observation=np.repeat(observation[:1], 4, axis=0))
        assert (alike.observations == alike.observations[:, :1]).all()
        again, _ = pool.restore(states)
        twin = pool.rollout(lean, 30, observation=again)
        pool.restore(states)
        assert_same(pool.rollout(lean, 30, observation=again).observations, twin.observations)
        assert first.observations.shape == (10, 4, 4)


class Counting(gymnasium.Env[Any, Any]):
    """Shows how many steps it has made, and has no methods for that."""

    observation_space = spaces.Box(0, 100, (1,), np.float32)
    action_space = spaces.Discrete(2)
    steps = 0

    def reset(self, **_: Any) -> Any:
        self.steps = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return np.full(1, self.steps, np.float32), 0.0, False, False, {}


def test_an_env_without_methods_is_pickled_if_the_user_asks_for_it(there: Callable[..., Any]) -> None:
    with there(Counting, "inline") as pool:
        pool.reset()
        pool.step(np.zeros(4, int))
        assert pool.state_kind.startswith("none: its class Counting has no get_state() and set_state(state)")
        with pytest.raises(errors.UnsupportedError, match=r"save: env 2: its class Counting has no get_state\(\)"):
            pool.save([2, 3])
        with pytest.raises(errors.UnsupportedError, match="save: by='fork' copies the process of an env"):
            pool.save(by="fork")
        states = pool.save(by="pickle")
        pool.step(np.zeros(4, int))
        assert pool.restore(states[0], [2, 1])[0].tolist() == [[1], [1]]
        assert pool.step(np.zeros(4, int))[0].tolist() == [[3], [2], [2], [3]]


# ---- failures ------------------------------------------------------------------------------------


class Refusing(ProbeTwin):
    """Does not take a state if it was told so."""

    fails = False

    def set_state(self, state: Any) -> None:
        super().set_state(state)
        if self.fails:
            raise ValueError("not this one")


@pytest.mark.parametrize("backend", WITH_PROCESSES)
def test_an_env_that_does_not_take_its_state_changes_no_other(backend: str, there: Callable[..., Any]) -> None:
    with there(Refusing, backend, seed=1) as pool:
        pool.reset()
        states = pool.save()
        pool.step(np.zeros(4, np.float32))
        before = pool.save()
        pool.set_attr("fails", True, env_ids=[3])
        with pytest.raises(
            errors.StateError, match=r"restore: env 3: set_state\(\) raised ValueError: not this one"
        ) as caught:
            pool.restore(states)
        assert isinstance(caught.value.__cause__, ValueError)
        assert [bytes(one) for one in pool.save([0, 1, 2])] == [bytes(one) for one in before[:3]]
        pool.set_attr("fails", False, env_ids=[3])
        assert [bytes(one) for one in pool.save()] == [bytes(one) for one in before]
        pool.restore(states)


def test_a_native_env_that_does_not_take_its_state_changes_no_other(there: Callable[..., Any]) -> None:
    with there("Blackjack-v1", "thread", seed=1) as pool:
        pool.reset()
        states = pool.save()
        pool.step(np.ones(4, int))
        before = pool.save()
        whole = bytes(states[3])
        broken = replace_bytes(states[3], whole[:-1])
        with pytest.raises(errors.StateError):
            pool.restore([*states[:3], broken])
        assert [bytes(one) for one in pool.save()] == [bytes(one) for one in before]


def replace_bytes(state: Any, content: bytes) -> Any:
    return type(state)(state.origin, content, 0, len(content))


def test_an_interrupt_between_two_actors_leaves_the_old_states(
    there: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with there(ProbeTwin, "inline", seed=1) as pool:
        pool.reset()
        states = pool.save()
        pool.step(np.zeros(4, np.float32))
        before = pool.save()
        reply = pool._host._actors.reply
        replies: list[Any] = []

        def interrupted(*arguments: Any) -> Any:
            replies.append(reply(*arguments))
            if len(replies) == 2:  # both have taken their states
                raise KeyboardInterrupt
            return replies[-1]

        monkeypatch.setattr(pool._host._actors, "reply", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pool.restore(states)
        assert len(replies) == 4, "both were asked to go back"
        assert [bytes(one) for one in pool.save()] == [bytes(one) for one in before]


def test_a_lost_actor_costs_its_own_envs_alone(there: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    with there(ProbeTwin, "inline", seed=1) as pool:
        pool.reset()
        states = pool.save()
        pool.step(np.zeros(4, np.float32))
        before = pool.save()
        ask = EnvActor.ask

        def lost(self: Any, arguments: bytes, method: str) -> bytes:
            if method == "load_envs" and self._first:
                raise OSError("gone")
            return ask(self, arguments, method)

        with monkeypatch.context() as patched:
            patched.setattr(EnvActor, "ask", lost)
            with pytest.raises(errors.WorkerDiedError, match="env 2 failed in load_envs"):
                pool.restore(states)
        assert [bytes(one) for one in pool.save([0, 1])] == [bytes(one) for one in before[:2]]
        observation, _ = pool.restore(states)  # into another actor, without a reset
        assert_same(pool.restore(states)[0], observation)
        with stepmill.make(ProbeTwin, num_envs=4, seed=1, backend="inline") as twin:
            assert_same(twin.reset()[0], observation)
            assert_same(pool.step(np.ones(4, np.float32))[:4], twin.step(np.ones(4, np.float32))[:4])


def test_an_actor_forgets_what_its_envs_were(there: Callable[..., Any]) -> None:
    with there(ProbeTwin, "inline") as pool:
        pool.reset()
        pool.restore(pool.save())
        for handle in actors_of(pool):
            kept: ActorStates = handle._actor._states
            assert (list(kept._given), kept._former) == ([], [])


def test_a_call_that_is_refused_at_once_takes_nothing_back_from_the_one_before(there: Callable[..., Any]) -> None:
    """Its order may still be on its way when the next one is refused by the driver."""
    with there(ProbeTwin, "inline", seed=1) as pool:
        pool.reset()
        states = pool.save()
        pool.step(np.zeros(4, np.float32))
        own: ActorStates = actors_of(pool)[0]._actor._states
        own.load_envs([0], pool._host.save_envs([0], None))
        own.put_back([1])
        assert list(own._given) == [0]
        own.put_back([0])
        assert list(own._given) == []
        pool.restore(states)


# ---- managers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("auto_reset", [True, False])
def test_managers_save_and_restore(auto_reset: bool, use_there: Callable[[str], None]) -> None:
    use_there("inline")
    settings = {"auto_reset": auto_reset, "episode_num": 5}
    with (
        RayEnvManager(Walk, [{}] * 4, 4, backend=stepmill.Ray(num_actors=2), **settings) as manager,
        BaseEnvManager(Walk, [{}] * 4, 4, **settings) as here,
    ):
        for one in (manager, here):
            one.seed(3)
            one.launch()
        play(manager, 6)
        states = manager.save()
        expected = play(manager, 12)
        for to in (manager, here):
            to.restore(states)
            assert_same(play(to, 12), expected)


def play(manager: Any, rounds: int) -> list[Any]:
    """What the envs show and their manager says, of steps with all of them."""
    out = []
    for _ in range(rounds):
        ready = manager.ready_obs
        timesteps = manager.step({env_id: int(seen[2]) % 3 - 1 for env_id, seen in ready.items()})
        while len(timesteps) < len(ready):
            timesteps |= manager.step({})
        if not manager.done and (needy := [one for one in range(4) if manager.env_state[one].name == "NEED_RESET"]):
            manager.reset(dict.fromkeys(needy))
        while len(manager.ready_obs) < 4 - len(manager.env_done):
            pass
        out.append([timesteps, manager.ready_obs, manager.episode_count, manager.env_state])
    return out


# ---- on a real cluster ---------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["CartPole-v1", ProbeTwin, "HalfCheetah-v5"])
def test_a_cluster_saves_and_restores(task: Any, cluster: Any) -> None:
    with make_on_ray(task, 2, num_envs=4, seed=7) as pool, stepmill.make(task, num_envs=4, seed=9) as here:
        pool.reset()
        here.reset()
        assert pool.state_kind == here.state_kind
        lanes = Lanes(pool, [(i, 0) for i in range(4)])
        lanes.go(5)
        states, at = pool.save(), list(lanes.at)
        expected = lanes.go(20)
        for to in (pool, here):
            to.restore(states)
            assert_same(Lanes(to, at).go(20), expected)
        pool.restore(here.save())


def test_a_killed_actor_takes_states_again(cluster: Any) -> None:
    with make_on_ray(ProbeTwin, 2, num_envs=4, seed=7) as pool:
        pool.reset()
        states = pool.save()
        expected = pool.step(np.ones(4, np.float32))
        import ray

        (_, handle) = actors_of(pool)
        ray.kill(handle)
        wait_until_dead(handle)
        with contextlib.suppress(errors.WorkerDiedError):  # whoever asks first finds out
            pool.restore(states)
        pool.restore(states)
        assert_same(pool.step(np.ones(4, np.float32))[:4], expected[:4])
