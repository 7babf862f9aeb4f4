"""``stepmill.verify``: what it returns, what it skips, what it refuses, and that it leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import stepmill
from stepmill import errors
from stepmill.registry.records import find, own_ids
from stepmill.tools.verify import entry as VERIFY
from stepmill.tools.verify.side_by_side import NOTHING
from support.official import PythonProbe, at, fail

MODES = ("next_step", "same_step", "disabled")
WAYS = {
    "threads": {"num_threads": 2},
    "inline": {"backend": "inline"},
    "async": {"batch_size": 3},
}


# ---- equal ---------------------------------------------------------------------------------------


def test_all_native_envs_equal_gymnasium(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)  # MuJoCo writes a log where it runs, if Gymnasium's models make it warn
    result = stepmill.verify(steps=300, num_envs=3)
    assert result, str(result)
    native = {id: find(id) for id in own_ids() if find(id).native is not None}
    both = [id for id, record in native.items() if id in gymnasium.registry or record.factory is not None]
    assert sorted([*(one.id for one in result), *result.skipped]) == both
    assert "CartPole-v1" in [one.id for one in result]
    for one in result:
        assert 300 <= one.steps < 303
    for id in result.skipped:  # what can be made must not be skipped
        assert is_refused_by_gymnasium(id), result.skipped[id]


def is_refused_by_gymnasium(id: str) -> bool:
    try:
        gymnasium.make(id).close()
    except Exception:
        return True
    return False


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("autoreset", MODES)
@pytest.mark.parametrize("id", ["CartPole-v1", "Blackjack-v1", "Pendulum-v1", "Taxi-v4", "FrozenLake-v1"])
def test_envs_are_equal_in_every_mode(id: str, autoreset: str, way: str) -> None:
    result = stepmill.verify(id, steps=600, num_envs=6, autoreset=autoreset, max_episode_steps=40, **WAYS[way])
    assert result.equal is True, str(result)
    assert 600 <= result.steps < 606
    assert result.episodes >= 600 // 40 - 6
    assert result.backend == ("inline" if way == "inline" else "thread")


def test_native_envs_in_worker_processes_are_equal_too() -> None:
    result = stepmill.verify("CartPole-v1", steps=200, num_envs=2, backend="process")
    assert (result.equal, result.backend) == (True, "process"), str(result)


def test_configuration_goes_to_both() -> None:
    with stepmill.make("Pendulum-v1", num_envs=2, g=3.0) as pool, stepmill.make("Pendulum-v1", num_envs=2) as other:
        pool.reset(), other.reset()
        still = np.zeros((2, 1), np.float32)
        assert not np.array_equal(pool.step(still)[0], other.step(still)[0]), "g must matter"
    assert stepmill.verify("Pendulum-v1", steps=500, g=3.0)


def test_the_result_says_what_was_compared() -> None:
    result = stepmill.verify("CartPole-v1", steps=100, num_envs=4, seed=[3, 1, 4, 1])
    assert (result.id, result.num_envs, result.difference) == ("CartPole-v1", 4, None)
    assert dict(result.versions) == {"gymnasium": gymnasium.__version__, "numpy": np.__version__}
    played = f"{result.steps} steps in 4 envs, {result.episodes} episodes"
    assert str(result) == f"CartPole-v1: equal, {played}, Gymnasium {gymnasium.__version__}"
    with pytest.raises(AttributeError):
        result.steps = 1  # type: ignore[misc]


def test_the_same_seed_plays_the_same_run() -> None:
    first, again, other = (stepmill.verify("CartPole-v1", steps=400, seed=seed) for seed in (5, 5, 6))
    assert (first.steps, first.episodes) == (again.steps, again.episodes)
    assert (first.steps, first.episodes) != (other.steps, other.episodes)


# ---- ending early --------------------------------------------------------------------------------


@pytest.fixture
def pools(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The pools that verify makes."""
    made: list[Any] = []

    def make(*arguments: Any, **more: Any) -> Any:
        made.append(stepmill.make(*arguments, **more))
        return made[-1]

    monkeypatch.setattr(VERIFY, "make", make)
    return made


def interrupt(result: Any) -> Any:
    raise KeyboardInterrupt


@pytest.mark.parametrize("way", WAYS)
def test_ctrl_c_ends_it_and_closes_everything(probe: Any, pools: list[Any], way: str) -> None:
    made = probe(at(2, 13, interrupt))
    with pytest.raises(KeyboardInterrupt):
        stepmill.verify("Probe-v0", num_envs=6, **WAYS[way])
    assert made[2].calls == 13
    assert all(env.closed for env in made)
    assert [pool.closed for pool in pools] == [True]


def test_pools_are_closed_after_a_difference(probe: Any, pools: list[Any]) -> None:
    probe(at(0, 1, fail))
    assert not stepmill.verify("Probe-v0", batch_size=2)
    assert [pool.closed for pool in pools] == [True]


def test_an_env_that_cannot_be_closed_does_not_hide_the_result(probe: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PythonProbe, "close", fail)
    probe()
    assert stepmill.verify("Probe-v0", steps=10)


# ---- several ids ---------------------------------------------------------------------------------


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes these all ids that there are."""
    return lambda *ids: monkeypatch.setattr(VERIFY, "own_ids", lambda: list(ids))


def test_without_an_id_only_native_ids_of_both_are_played(only: Any) -> None:
    only("CartPole-v1", "Catch-v0", "Moving-v0", "Pong-v5")
    result = stepmill.verify(steps=10)
    assert [one.id for one in result] == ["CartPole-v1", "Moving-v0"], "Moving-v0 has a Python env of our own"
    assert dict(result.skipped) == {}


def test_several_results_are_a_sequence_and_print_as_a_table(only: Any, official: Any) -> None:
    def missing(creator: Any, **config: Any) -> Any:
        raise gymnasium.error.DependencyNotInstalled("pip install this")

    official("Acrobot-v1", missing)
    official("Pendulum-v1", lambda creator, **config: creator(g=9.0, **config))
    only("Acrobot-v1", "CartPole-v1", "Pendulum-v1")
    results = stepmill.verify(steps=100, num_envs=2)
    assert (bool(results), results.equal, len(results)) == (False, False, 2)
    cart, pendulum = results
    assert (cart.id, bool(cart), pendulum.id, bool(pendulum)) == ("CartPole-v1", True, "Pendulum-v1", False)
    assert results[0] is cart
    assert results[-1:] == (pendulum,)
    reason = "verify('Acrobot-v1'): Gymnasium's env cannot be made: pip install this"
    assert dict(results.skipped) == {"Acrobot-v1": reason}
    assert str(results).splitlines() == [
        f"CartPole-v1  equal      {cart.steps:9,} steps     2 envs  {cart.episodes:7,} episodes",
        f"Pendulum-v1  different  {pendulum.difference}",
        f"Acrobot-v1   skipped    {reason}",
        f"1 equal, 1 different, 1 skipped (Gymnasium {gymnasium.__version__})",
    ]
    assert stepmill.Verifications((cart,), results.skipped)
    assert not stepmill.Verifications((), results.skipped), "nothing was compared"


def test_an_id_that_fails_in_both_is_skipped(only: Any, probe: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    probe(lambda env, result: fail(result) if env.calls == 4 else result)
    monkeypatch.setattr(VERIFY, "make", partial(stepmill.make, fail_in="step", fail_at=4))
    only("Probe-v0")
    results = stepmill.verify()
    assert len(results) == 0
    assert "asked to fail in step" in results.skipped["Probe-v0"]


def test_an_id_that_only_ours_refuses_is_a_difference(
    only: Any, probe: Any, monkeypatch: pytest.MonkeyPatch, official: Any
) -> None:
    def make(id: str, **arguments: Any) -> Any:
        fails = {"fail_in": "constructor"} if id == "Probe-v0" else {}
        if id == "Pendulum-v1":
            raise errors.ConfigError("refused")
        if id == "Acrobot-v1":
            raise errors.MissingPackageError("not installed")
        return stepmill.make(id, **arguments, **fails)

    probe()
    monkeypatch.setattr(VERIFY, "make", make)
    official("Pendulum-v1", lambda creator, **config: fail(None))  # both refuse it
    only("Acrobot-v1", "CartPole-v1", "Pendulum-v1", "Probe-v0")
    results = stepmill.verify(steps=10)
    assert [(one.id, one.equal) for one in results] == [("CartPole-v1", True), ("Probe-v0", False)]
    assert "asked to fail in constructor" in results[1].difference.ours
    assert results[1].difference.theirs is NOTHING
    assert dict(results.skipped) == {"Acrobot-v1": "not installed", "Pendulum-v1": "refused"}


# ---- what cannot be compared ---------------------------------------------------------------------

BAD = [
    (("Catch-v0",), {}, errors.UnsupportedError, "Catch-v0 is not in Gymnasium"),
    (("Pong-v5",), {}, errors.UnsupportedError, "Pong-v5 has no native version"),
    (("gymnasium:CartPole-v1",), {}, errors.UnsupportedError, "no native version"),
    (("CartPol-v1",), {}, errors.UnknownEnvError, "CartPole-v1"),
    ((gymnasium.Env,), {}, errors.ConfigError, "expected an id"),
    (("CartPole-v1",), {"g": 9.81}, errors.UnknownConfigError, "no config key 'g'"),
    (("CartPole-v1",), {"steps": 0}, errors.ConfigError, "steps"),
    (("CartPole-v1",), {"num_envs": 0}, errors.ConfigError, "num_envs"),
    (("CartPole-v1",), {"autoreset": "never"}, errors.ConfigError, "autoreset"),
    (("CartPole-v1",), {"backend": "gpu"}, errors.ConfigError, "backend"),
    (("CartPole-v1",), {"seed": -1}, errors.ConfigError, "seed"),
    (("CartPole-v1",), {"action_bounds": "clip"}, errors.ConfigError, "'action_bounds'"),
    (("CartPole-v1",), {"env_config": []}, errors.ConfigError, "'env_config'"),
    ((), {"steps": 1.5}, errors.ConfigError, "steps"),
    ((), {"seed": -1}, errors.ConfigError, "seed"),
    ((), {"g": 9.81}, errors.ConfigError, "expected an id"),
]


@pytest.mark.parametrize(("arguments", "more", "error", "words"), BAD, ids=str)
def test_bad_arguments_are_explained(arguments: Any, more: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        stepmill.verify(*arguments, **more)


def test_an_env_that_does_not_run_natively_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def make(id: str, **arguments: Any) -> Any:
        return stepmill.make(f"gymnasium:{id}", **{**arguments, "backend": "inline"})

    monkeypatch.setattr(VERIFY, "make", make)
    with pytest.raises(errors.UnsupportedError, match="no native env ran"):
        stepmill.verify("CartPole-v1")
