"""Every slot of a pool has an env of its own: one object in several is refused, wherever and however envs run."""

from __future__ import annotations

import functools
import gc
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest

import stepmill
from stepmill.errors import ConfigError
from stepmill.managers import BaseEnvManager, SubprocessEnvManager
from support.envs.managed import Trial
from support.envs.unmovable import SHARED, Walk, given
from support.processes import belongings, left_since

pytestmark = pytest.mark.usefixtures("deadline", "server")


N = 4
PLACES: dict[str, dict[str, Any]] = {
    "inline": {"backend": "inline"},
    "auto": {},
    "one worker": {"backend": "process", "num_workers": 1},
    "two workers": {"backend": "process", "num_workers": 2},
    "a worker each": {"backend": "process", "num_workers": N},
}


@pytest.fixture(params=PLACES.values(), ids=PLACES.keys())
def where(request: Any) -> dict[str, Any]:
    return request.param


# ---- one object in several slots -----------------------------------------------------------------


@pytest.mark.parametrize("shared", SHARED.values(), ids=SHARED.keys())
def test_an_env_that_the_factory_hands_out_again_is_refused(where: dict[str, Any], shared: Any) -> None:
    before = belongings()
    with pytest.raises(ConfigError, match=r"env \d .*expected an env of its own, got a .*Build the env inside"):
        stepmill.make(shared(), num_envs=N, **where)
    assert left_since(before) == []


def test_the_same_goes_for_several_factories_over_one_env(where: dict[str, Any]) -> None:
    env = Walk()
    with pytest.raises(ConfigError, match="env of its own"):
        stepmill.make([lambda: Walk(), lambda: env, lambda: Walk(), lambda: env], **where)


def test_the_same_goes_for_an_env_in_the_configuration(where: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="env of its own"):
        stepmill.make(given, num_envs=N, env=Walk(), **where)


def test_an_env_that_is_refused_is_not_closed() -> None:
    closed: list[int] = []

    class Closing(Walk):
        def close(self) -> None:
            closed.append(1)

    env = Closing()
    with pytest.raises(ConfigError, match="env of its own"):
        stepmill.make(lambda: env, num_envs=2, backend="inline")
    assert closed == []


def test_a_factory_that_keeps_its_first_env_is_refused_where_it_is_asked_twice() -> None:
    with pytest.raises(ConfigError, match=r"env 1 .*that is already in env 0"):
        stepmill.make(functools.cache(Walk), num_envs=2, backend="inline")


@pytest.mark.parametrize("manager", [BaseEnvManager, SubprocessEnvManager])
@pytest.mark.parametrize("shared_memory", [True, False])
@pytest.mark.parametrize("workers", [1, 2, N])
def test_managers_refuse_it_too(manager: Any, shared_memory: bool, workers: int) -> None:
    env = Trial({})
    settings = {"num_workers": workers} if manager is SubprocessEnvManager else {}
    envs = manager([lambda: env] * N, shared_memory=shared_memory, **settings)
    with pytest.raises(ConfigError, match="env of its own"):
        envs.launch()


# ---- envs of their own ---------------------------------------------------------------------------


def assert_works(pool: Any) -> None:
    with pool:
        pool.reset(seed=1)
        for turn in range(1, 4):
            obs, *_ = pool.step(np.zeros(pool.num_envs, int))
            assert obs[:, 0].tolist() == [turn] * pool.num_envs


class Endless(Walk):
    """Its episodes do not end."""

    def step(self, action: int) -> Any:
        obs, reward, *_, info = super().step(action)
        return obs, reward, False, False, info


def test_a_single_env_may_exist_already() -> None:
    env = Endless()
    assert_works(stepmill.make(lambda: env, backend="inline"))
    assert_works(stepmill.make(lambda: env))
    assert_works(stepmill.make(lambda: env, backend="process"))


def test_envs_that_exist_already_are_fine_if_each_is_in_one_slot(where: dict[str, Any]) -> None:
    envs = [Endless() for _ in range(N)]
    assert_works(stepmill.make([lambda env=env: env for env in envs], **where))
    assert_works(stepmill.make([functools.partial(given, env) for env in envs], **where))
    assert_works(stepmill.make(given, num_envs=N, env_config=[{"env": env} for env in envs], **where))
    assert_works(stepmill.make([lambda i=i: envs[i] for i in range(N)], **where))


last: Any = None


def rebinds() -> Any:
    global last
    last = Endless()
    return last


def test_factories_may_refer_to_envs_that_they_do_not_return(where: dict[str, Any]) -> None:
    kept, made = Endless(), []

    def remembers() -> Any:
        env = Endless()
        made.append(env)
        return env

    def like_another() -> Any:
        env = type(kept)()
        env.spec = kept.spec
        return env

    rebinds()
    for factory in (rebinds, remembers, like_another, Endless, functools.partial(Endless)):
        assert_works(stepmill.make(factory, num_envs=N, **where))


class Simulator:
    """What envs may share: it is none."""

    def reset(self) -> None: ...

    def step(self) -> None: ...


def test_envs_may_share_what_is_no_env(where: dict[str, Any]) -> None:
    simulator = Simulator()

    def make() -> Any:
        env = Endless()
        env.simulator = simulator  # type: ignore[attr-defined]
        return env

    assert_works(stepmill.make(make, num_envs=N, **where))


class Slotted:
    """A factory without a dict, one of whose attributes was never set."""

    __slots__ = ("env",)

    def __call__(self) -> Any:
        return Endless()


class Asked:
    """Code of its own runs when it is asked for an attribute, and must not."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # pickle asks
            raise AttributeError(name)
        raise AssertionError(f"somebody asked for {name}")


def test_looking_at_a_factory_runs_none_of_its_code(where: dict[str, Any]) -> None:
    asked = Asked()
    assert_works(stepmill.make(Slotted(), num_envs=N, **where))
    assert_works(stepmill.make(lambda: (asked, Endless())[1], num_envs=N, **where))
    assert_works(stepmill.make(lambda: Endless() if True else asked.env, num_envs=N, **where))


def test_an_env_that_is_built_anew_takes_its_own_place() -> None:
    envs = [Trial({}) for _ in range(2)]
    manager = BaseEnvManager([lambda env=env: env for env in envs], retry_type="renew")
    manager.launch()
    manager.reset({0: {}, 1: {}})
    manager.close()


def test_a_closed_pool_keeps_no_env() -> None:
    import gc
    import weakref

    made: list[Any] = []

    def make() -> Any:
        env = Endless()
        made.append(weakref.ref(env))
        return env

    pool = stepmill.make(make, num_envs=2, backend="inline")
    pool.close()
    gc.collect()
    assert [one() for one in made] == [None, None]


# ---- what looking for it costs -------------------------------------------------------------------


class Keeper(Walk):
    """Keeps something that is only in its attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.kept = object()


@pytest.mark.skipif(sys.implementation.name != "cpython", reason="of how CPython keeps attributes")
def test_the_attributes_of_an_env_stay_fast() -> None:
    """Whoever asks an object for its ``__dict__`` makes CPython 3.11 and 3.12 read its attributes more slowly."""
    with stepmill.make(Keeper, num_envs=2, backend="inline") as pool:
        for env, kept in zip(pool.call("__getattribute__", "unwrapped"), pool.get_attr("kept"), strict=True):
            assert any(one is kept for one in gc.get_referents(env))  # not by way of a dict


def test_an_env_inside_of_one_that_has_a_dict_by_now_is_found() -> None:
    inner = Walk()

    def wrapped() -> gymnasium.Env[Any, Any]:
        env = gymnasium.Wrapper(inner)
        assert env.__dict__["env"] is inner
        return env

    with pytest.raises(ConfigError, match="an env of its own"):
        stepmill.make(wrapped, num_envs=2, backend="inline")


def test_a_dict_that_envs_keep_in_common_may_have_envs_in_it() -> None:
    everyone: dict[str, Any] = {}

    class Registered(Walk):
        def __init__(self) -> None:
            super().__init__()
            self.others = everyone
            everyone[str(len(everyone))] = self

    stepmill.make(Registered, num_envs=3, backend="inline").close()
