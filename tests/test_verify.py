"""``stepmill.verify``: equal envs are found equal, and the first difference is found where it is.

``Probe-v0`` is native and does what a test asks for. Here, Gymnasium gets an env of that name, which can be told to
do something else at a certain step.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec, load_env_creator

import stepmill
from stepmill import errors
from stepmill.registry import find
from stepmill.verifying.comparing import NOTHING

VERIFY = sys.modules["stepmill.verify"]
MODES = ("next_step", "same_step", "disabled")
WAYS = {
    "threads": {"num_threads": 2},
    "inline": {"backend": "inline"},
    "async": {"batch_size": 3},
}
NATIVE = [id for id in stepmill.list_all_envs() if find(id).native is not None and id in gymnasium.registry]


# ---- equal ---------------------------------------------------------------------------------------


def test_all_native_envs_equal_gymnasium() -> None:
    result = stepmill.verify(steps=300, num_envs=3)
    assert result, str(result)
    assert sorted([*(one.id for one in result), *result.skipped]) == NATIVE
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


# ---- Gymnasium's side, told what to do -----------------------------------------------------------


class PythonProbe(gymnasium.Env):
    """Does what the native Probe does, except where ``alter`` changes the result of a step or a reset.

    ``alter(env, result)`` is called with every result; ``env.calls`` and ``env.resets`` say where it is.
    """

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gymnasium.spaces.Box(-1, 1, (), np.float32)

    def __init__(self, index: int, alter: Callable[[PythonProbe, Any], Any] | None, length: int = 10) -> None:
        self.index = index
        self.length = length
        self.alter = alter or (lambda env, result: result)
        self.steps = self.calls = self.resets = 0
        self.actions: list[Any] = []
        self.closed = False

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.draw = self.np_random.random()
        self.steps = 0
        self.resets += 1
        return self.alter(self, (self.observation(), {}))

    def step(self, action: Any) -> Any:
        self.steps += 1
        self.calls += 1
        self.actions.append(action)
        return self.alter(self, (self.observation(), float(action), self.steps >= self.length, False, {}))

    def observation(self) -> np.ndarray:
        return np.array([self.draw, self.steps], np.float64)

    def close(self) -> None:
        self.closed = True


Alter = Callable[[PythonProbe, Any], Any]


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[PythonProbe]]:
    """Gives Gymnasium its own Probe-v0. Returns the list to which every env of it will be added."""

    def install(alter: Alter | None = None) -> list[PythonProbe]:
        made: list[PythonProbe] = []

        def create(fail_in: str = "", fail_at: int = 1, **config: Any) -> PythonProbe:
            made.append(PythonProbe(len(made), alter, **config))
            return made[-1]

        monkeypatch.setitem(gymnasium.registry, "Probe-v0", EnvSpec("Probe-v0", entry_point=create))
        return made

    return install


def at(env_id: int, call: int, change: Callable[[Any], Any]) -> Alter:
    """Changes one step of one env."""

    def alter(env: PythonProbe, result: Any) -> Any:
        return change(result) if len(result) == 5 and (env.index, env.calls) == (env_id, call) else result

    return alter


def place(difference: stepmill.Difference | None) -> tuple[int, int, int, int]:
    assert difference is not None
    return difference.env_id, difference.step, difference.episode, difference.episode_step


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("autoreset", MODES)
def test_the_probe_of_gymnasium_is_equal(probe: Any, autoreset: str, way: str) -> None:
    made = probe()
    result = stepmill.verify("Probe-v0", steps=240, num_envs=6, autoreset=autoreset, **WAYS[way])
    assert result, str(result)
    assert result.steps == sum(env.calls for env in made)
    assert result.episodes == sum(env.calls // 10 for env in made)
    assert len(made) == 6
    assert all(env.closed for env in made)


# The result of step 37 of env 2, which is step 7 of its episode 4, as Gymnasium has it; and what must be found.
STEP_CHANGES: dict[str, tuple[Callable[[Any], Any], str, Any, Any]] = {
    "observation": (lambda r: (r[0] + [0, 0.5], *r[1:]), "obs[1]", 7.0, 7.5),
    "type of observation": (lambda r: (r[0].astype(np.float32), *r[1:]), "obs.dtype", np.float64, np.float32),
    "shape of observation": (lambda r: (r[0][:1], *r[1:]), "obs.shape", (2,), (1,)),
    "terminated": (lambda r: (*r[:2], True, *r[3:]), "terminated", False, True),
    "truncated": (lambda r: (*r[:3], True, r[4]), "truncated", False, True),
    "extra key of theirs": (lambda r: (*r[:4], {"x": 3}), "info['x']", NOTHING, 3),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("autoreset", MODES)
@pytest.mark.parametrize("change", STEP_CHANGES)
def test_a_changed_step_is_found(probe: Any, change: str, autoreset: str, way: str) -> None:
    function, field, ours, theirs = STEP_CHANGES[change]
    probe(at(2, 37, function))
    result = stepmill.verify("Probe-v0", steps=1000, num_envs=6, autoreset=autoreset, **WAYS[way])
    assert not result
    assert result.equal is False
    assert place(result.difference) == (2, 37, 4, 7)
    assert (result.difference.field, result.difference.ours, result.difference.theirs) == (field, ours, theirs)


def test_the_smallest_change_of_a_reward_is_found(probe: Any) -> None:
    made = probe(at(1, 5, lambda r: (r[0], np.nextafter(r[1], 9), *r[2:])))
    result = stepmill.verify("Probe-v0", steps=1000)
    assert place(result.difference) == (1, 5, 1, 5)
    reward = float(made[1].actions[-1])
    assert result.difference.field == "reward"
    assert (result.difference.ours, result.difference.theirs) == (reward, np.nextafter(reward, 9))


def test_the_first_of_several_differences_is_found(probe: Any) -> None:
    def alter(env: PythonProbe, result: Any) -> Any:
        first = {5: 4, 3: 2, 4: 2}.get(env.index, 99)  # envs 3 and 4 differ first, and at the same step
        return (result[0] + 1, *result[1:]) if env.calls == first else result

    probe(alter)
    result = stepmill.verify("Probe-v0", steps=1000, num_envs=6)
    assert place(result.difference) == (3, 2, 1, 2)
    assert result.difference.field == "obs[0]"


@pytest.mark.parametrize("later", [0, 1])
@pytest.mark.parametrize("autoreset", MODES)
def test_an_episode_that_ends_elsewhere_is_found(probe: Any, autoreset: str, later: int) -> None:
    def alter(env: PythonProbe, result: Any) -> Any:
        if len(result) == 2 or env.index != 1 or env.calls < 20:
            return result
        return (*result[:2], env.steps >= (11 if later else 9), *result[3:])

    probe(alter)
    result = stepmill.verify("Probe-v0", steps=1000, num_envs=2, autoreset=autoreset)
    assert place(result.difference) == ((1, 20, 2, 10) if later else (1, 29, 3, 9))
    assert (result.difference.field, result.difference.theirs) == ("terminated", not later)
    assert result.difference.ours == later


@pytest.mark.parametrize(("autoreset", "where"), [("next_step", (1, 20, 3, 0)), ("disabled", (1, 20, 3, 0))])
def test_a_changed_reset_is_found(probe: Any, autoreset: str, where: Any) -> None:
    probe(lambda env, r: (r[0] - 1, r[1]) if len(r) == 2 and (env.index, env.resets) == (1, 3) else r)
    result = stepmill.verify("Probe-v0", steps=1000, num_envs=3, autoreset=autoreset)
    assert place(result.difference) == where
    assert result.difference.field == "obs[0]"
    assert result.difference.ours - 1 == result.difference.theirs
    assert "at the reset of env 1 that begins its episode 3 (after 20 steps): obs[0]: ours 0." in str(result)


@pytest.mark.parametrize("autoreset", MODES)
def test_a_changed_first_reset_is_found(probe: Any, autoreset: str) -> None:
    probe(lambda env, r: (r[0], {"k": 2}) if len(r) == 2 and env.index == 2 else r)
    result = stepmill.verify("Probe-v0", num_envs=3, autoreset=autoreset)
    assert place(result.difference) == (2, 0, 1, 0)
    assert (result.difference.field, result.difference.ours, result.difference.theirs) == ("info['k']", NOTHING, 2)
    assert (result.steps, result.episodes) == (0, 0)


FINALS = {
    "final obs": (lambda r: (r[0] + [0, 1], *r[1:]), "info['final_obs'][1]", 10, 11),
    "final info": (lambda r: (*r[:4], {"k": 2}), "info['final_info']['k']", NOTHING, 2),
}


@pytest.mark.parametrize("change", FINALS)
def test_a_changed_end_is_found_when_the_reset_hides_it(probe: Any, change: str) -> None:
    function, *expected = FINALS[change]
    probe(at(1, 20, function))
    result = stepmill.verify("Probe-v0", steps=1000, num_envs=3, autoreset="same_step")
    assert place(result.difference) == (1, 20, 2, 10)
    assert [result.difference.field, result.difference.ours, result.difference.theirs] == expected


def test_an_end_is_compared_as_it_was_before_the_reset(probe: Any) -> None:
    """Like envs of MuJoCo, whose infos have views of the simulator's own arrays."""

    def alter(env: PythonProbe, result: Any) -> Any:
        if not hasattr(env, "own"):
            env.own = np.zeros(2)
        env.own[:] = result[0]
        return (env.own, *result[1:])

    probe(alter)
    assert stepmill.verify("Probe-v0", steps=100, num_envs=3, autoreset="same_step")


def test_a_reset_in_the_same_step_is_compared(probe: Any) -> None:
    probe(lambda env, r: (r[0] - 1, r[1]) if len(r) == 2 and (env.index, env.resets) == (1, 3) else r)
    result = stepmill.verify("Probe-v0", steps=1000, num_envs=3, autoreset="same_step")
    assert place(result.difference) == (1, 20, 2, 10)  # the step that returned it
    assert result.difference.field == "obs[0]"


# ---- real envs, slightly wrong -------------------------------------------------------------------


@pytest.fixture
def change_official(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Replaces how Gymnasium makes an id, by a function of its creator and the configuration."""

    def replace(id: str, create: Callable[..., Any]) -> None:
        spec = copy.copy(gymnasium.registry[id])
        creator = load_env_creator(spec.entry_point)
        spec.entry_point = lambda **config: create(creator, **config)
        monkeypatch.setitem(gymnasium.registry, id, spec)

    return replace


class InfoChanged(gymnasium.Wrapper):
    """Changes the infos of all steps from the ninth on."""

    def __init__(self, env: Any, change: Callable[[dict[str, Any]], Any]) -> None:
        super().__init__(env)
        self.change, self.calls = change, 0

    def step(self, action: Any) -> Any:
        *result, info = self.env.step(action)
        self.calls += 1
        if self.calls >= 9:
            self.change(info)
        return (*result, info)


INFO_CHANGES: dict[str, tuple[Callable[[dict[str, Any]], Any], str, Any]] = {
    "value": (lambda info: info.update(prob=0.5), "info['prob']", 0.5),
    "missing key": (lambda info: info.pop("prob"), "info['prob']", NOTHING),
    "extra key": (lambda info: info.update(x=1), "info['x']", 1),
    "array": (lambda info: info["action_mask"].__setitem__(3, 7), "info['action_mask'][3]", 7),
    "type": (lambda info: info.update(prob=np.float32(1)), "info['prob'].dtype", np.float32),
    "type of array": (
        lambda info: info.update(action_mask=info["action_mask"].astype(np.int64)),
        "info['action_mask'].dtype",
        np.int64,
    ),
}


@pytest.mark.skipif("Taxi-v4" not in gymnasium.registry, reason="this Gymnasium has no Taxi-v4")
@pytest.mark.parametrize("autoreset", MODES)
@pytest.mark.parametrize("change", INFO_CHANGES)
def test_a_changed_info_is_found(change_official: Any, change: str, autoreset: str) -> None:
    function, field, theirs = INFO_CHANGES[change]
    change_official("Taxi-v4", lambda creator, **config: InfoChanged(creator(**config), function))
    result = stepmill.verify("Taxi-v4", num_envs=2, autoreset=autoreset)
    assert place(result.difference) == (0, 9, 1, 9)
    assert (result.difference.field, result.difference.theirs) == (field, theirs)
    assert result.difference.ours != theirs


def test_another_configuration_is_found(change_official: Any) -> None:
    change_official("Pendulum-v1", lambda creator, g=10.0, **config: creator(g=g * (1 + 1e-6), **config))
    result = stepmill.verify("Pendulum-v1", steps=1000)
    assert place(result.difference) == (0, 1, 1, 1)
    assert result.difference.field.startswith("obs[")
    assert result.difference.ours == pytest.approx(result.difference.theirs, abs=1e-4)


def test_another_space_is_found(change_official: Any) -> None:
    def create(creator: Any, **config: Any) -> Any:
        env = creator(**config)
        env.action_space = gymnasium.spaces.Discrete(3)
        return env

    change_official("CartPole-v1", create)
    result = stepmill.verify("CartPole-v1")
    assert (result.difference.field, result.steps) == ("action_space", 0)
    assert str(result) == "CartPole-v1: different before the first reset: action_space: ours Discrete(2), " + (
        "theirs Discrete(3)"
    )


# ---- exceptions ----------------------------------------------------------------------------------


def fail(result: Any) -> Any:
    raise ValueError("it broke")


def test_only_gymnasium_fails(probe: Any) -> None:
    made = probe(at(2, 13, fail))
    result = stepmill.verify("Probe-v0", num_envs=3)
    assert place(result.difference) == (2, 13, 2, 3)
    assert str(result) == (
        "Probe-v0: different at step 13 of env 2 (step 3 of its episode 2): exception: ours nothing, "
        "theirs ValueError: it broke"
    )
    assert all(env.closed for env in made)


@pytest.mark.parametrize(
    ("fail_in", "autoreset", "where"),
    [
        ("step", "next_step", (0, 13, 2, 3)),
        ("step", "same_step", (0, 13, 2, 3)),
        ("step", "disabled", (0, 13, 2, 3)),
        ("reset", "next_step", (0, 120, 13, 0)),
        ("reset", "same_step", (0, 120, 12, 10)),
        ("reset", "disabled", (0, 120, 13, 0)),
    ],
)
def test_only_ours_fails(probe: Any, fail_in: str, autoreset: str, where: Any) -> None:
    probe()
    result = stepmill.verify("Probe-v0", num_envs=3, autoreset=autoreset, fail_in=fail_in, fail_at=13)
    assert place(result.difference) == where
    assert result.difference.field == "exception"
    assert f"the probe was asked to fail in {fail_in}" in result.difference.ours
    assert result.difference.theirs is NOTHING


def test_if_both_fail_there_is_nothing_to_compare(probe: Any) -> None:
    made = probe(lambda env, result: fail(result) if env.calls == 4 else result)
    with pytest.raises(stepmill.EnvError, match="asked to fail in step") as caught:
        stepmill.verify("Probe-v0", num_envs=2, fail_in="step", fail_at=4)
    assert str(caught.value.__cause__) == "it broke"
    assert all(env.closed for env in made)


def test_gymnasium_refuses_what_ours_accepts(probe: Any) -> None:
    made = probe()
    result = stepmill.verify("Probe-v0", work=1)  # the Python one has no such argument
    assert result.difference.field == "exception"
    assert result.difference.ours is NOTHING
    assert "unexpected keyword argument 'work'" in result.difference.theirs
    assert str(result).startswith("Probe-v0: different before the first reset: exception: ours nothing, theirs TypeE")
    assert (made, result.steps) == ([], 0)


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
    return lambda *ids: monkeypatch.setattr(VERIFY, "list_all_envs", lambda: list(ids))


def test_without_an_id_only_native_ids_of_both_are_played(only: Any) -> None:
    only("CartPole-v1", "Catch-v0", "Moving-v0")
    result = stepmill.verify(steps=10)
    assert [one.id for one in result] == ["CartPole-v1"]
    assert dict(result.skipped) == {}


def test_several_results_are_a_sequence_and_print_as_a_table(only: Any, change_official: Any) -> None:
    def missing(creator: Any, **config: Any) -> Any:
        raise gymnasium.error.DependencyNotInstalled("pip install this")

    change_official("Acrobot-v1", missing)
    change_official("Pendulum-v1", lambda creator, **config: creator(g=9.0, **config))
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


def test_an_id_that_only_ours_refuses_is_a_difference(
    only: Any, probe: Any, monkeypatch: pytest.MonkeyPatch, change_official: Any
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
    change_official("Pendulum-v1", lambda creator, **config: fail(None))  # both refuse it
    only("Acrobot-v1", "CartPole-v1", "Pendulum-v1", "Probe-v0")
    results = stepmill.verify(steps=10)
    assert [(one.id, one.equal) for one in results] == [("CartPole-v1", True), ("Probe-v0", False)]
    assert "asked to fail in constructor" in results[1].difference.ours
    assert results[1].difference.theirs is NOTHING
    assert dict(results.skipped) == {"Acrobot-v1": "not installed", "Pendulum-v1": "refused"}


# ---- what cannot be compared ---------------------------------------------------------------------

BAD = [
    (("Catch-v0",), {}, errors.UnsupportedError, "Gymnasium .* has no Catch-v0"),
    (("Moving-v0",), {}, errors.UnsupportedError, "Moving-v0 has no native version"),
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


# ---- actions -------------------------------------------------------------------------------------


def test_actions_reach_the_corners(probe: Any) -> None:
    made = probe()
    assert stepmill.verify("Probe-v0", steps=8000, num_envs=4)
    for env in made:
        actions = np.array(env.actions)
        assert actions.dtype == np.float32
        beyond = np.mean(np.abs(actions) > 1)
        assert 0.01 < beyond < 0.2
        assert np.abs(actions).max() <= 2
        repeated = np.mean(actions[1:] == actions[:-1])
        assert repeated > 0.8 if env.index % 2 else repeated == 0
    assert made[0].actions != made[2].actions
