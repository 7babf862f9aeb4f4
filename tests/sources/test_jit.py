"""``stepmill.jit``: compiled envs, and the same classes as Python."""

# ruff: noqa: RUF012
import math
import pickle
import random as python_random
import re
import subprocess
import sys
from pathlib import Path

import cloudpickle
import numpy as np
import pytest
from gymnasium import spaces
from numpy.linalg import norm

import stepmill
from stepmill.errors import CompileError, ConfigError, EnvError, UnknownConfigError, UnsupportedError
from support.jit_envs import Board, CartPole, Formulas, Pendulum

TESTS = str(Path(__file__).parent.parent)


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def numba():
    return pytest.importorskip("numba")


def play(pool, steps):
    """All that a pool returns, with actions that follow from its spaces."""
    pool.action_space.seed(1)
    played = [pool.reset()]
    played += [pool.step(pool.action_space.sample()) for _ in range(steps)]
    pool.close()
    return played


def assert_equal(one, other):
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_equal(one[key], other[key])
    elif isinstance(one, tuple | list):
        for a, b in zip(one, other, strict=True):
            assert_equal(a, b)
    else:
        assert one.dtype == other.dtype
        assert one.tobytes() == other.tobytes()


def coin(**changes):
    """A class that can be changed."""

    class Coin:
        observation_space = spaces.Discrete(2)
        action_space = spaces.Discrete(2)
        state = [("side", np.int64)]
        settings = {"bias": 0.5}

        def reset(self, random):
            self.side = random.uniform() < self.bias

        def step(self, action, random):
            self.side = random.uniform() < self.bias
            return float(action == self.side), False, False

        def observe(self, observation):
            observation[...] = self.side

    return type("Coin", (Coin,), changes)


# ---- as Python -----------------------------------------------------------------------------------


def test_without_numba_a_class_runs_as_python_and_make_says_what_to_install():
    program = """
import sys
sys.modules["numba"] = None  # as if it were not installed
sys.path.insert(0, sys.argv[1])
import stepmill
from support.jit_envs import CartPole
pool = stepmill.make(CartPole, num_envs=2, jit=False, backend="inline")
assert pool.reset()[0].shape == (2, 4)
try:
    stepmill.make(CartPole)
except stepmill.errors.MissingPackageError as error:
    assert "pip install 'stepmill[numba]'" in str(error), error
    assert "jit=False" in str(error), error
else:
    raise SystemExit("no error")
"""
    run = subprocess.run([sys.executable, "-c", program, TESTS], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_importing_stepmill_imports_no_numba():
    program = "import stepmill, sys; stepmill.jit; raise SystemExit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_cartpole_in_python_equals_the_native_one():
    pool = stepmill.make(CartPole, num_envs=3, jit=False, backend="inline", max_episode_steps=500)
    assert_equal(play(pool, 300), play(stepmill.make("CartPole-v1", num_envs=3), 300))


def test_a_single_env_is_what_calling_the_class_gives():
    env = Pendulum(noisy=True)
    observation, info = env.reset(seed=3)
    assert observation in env.observation_space
    assert info["torque"].dtype == np.float32
    with pytest.raises(UnknownConfigError, match="did you mean 'noisy'"):
        Pendulum(noise=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"state": [("side", object)]}, "state: 'side': expected bools, integers or floats"),
        ({"state": "?"}, "state: expected"),
        ({"state": [("bias", np.float64)]}, "the name 'bias' stands for two things"),
        ({"settings": {"bias": "much"}}, "settings: expected numbers or bools as defaults, got 'much'"),
        ({"settings": {"seed": 1}}, "settings: 'seed' is an argument of make"),
        ({"settings": {"a b": 1}}, "expected names that a Python attribute can have, got 'a b'"),
        ({"observation_space": spaces.Text(3)}, "observation_space: expected a Box"),
        ({"action_space": None}, "action_space: expected a gymnasium space, got None"),
        ({"options": {"side": 0}}, r"expected reset\(self, random, options\), got reset\(self, random\)"),
        ({"info": {"side": spaces.Discrete(2)}}, r"expected observe\(self, observation, info\)"),
        ({"step": None}, r"it has no step\(self, action, random\)"),
    ],
)
def test_a_wrong_declaration_is_refused_with_what_was_expected(changes, message):
    with pytest.raises(ConfigError, match=message):
        stepmill.jit(coin(**changes))


def test_jit_must_be_true_or_false_and_the_same_for_all():
    with pytest.raises(ConfigError, match="jit: expected True or False, got 1"):
        stepmill.make(CartPole, jit=1)
    with pytest.raises(ConfigError, match="jit=True and jit=False"):
        stepmill.make(CartPole, num_envs=2, env_config=[{"jit": True}, {"jit": False}])


# ---- compiled ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env_class", "steps", "config"),
    [
        (CartPole, 3400, {}),
        (Pendulum, 3400, {"noisy": True, "g": 9.81, "max_episode_steps": 100}),
        (Board, 300, {"env_config": [{"limit": 10}, {}, {"limit": 15}]}),
    ],
)
def test_compiled_episodes_equal_those_in_python(numba, env_class, steps, config):
    compiled = stepmill.make(env_class, num_envs=3, **config)
    plain = stepmill.make(env_class, num_envs=3, jit=False, backend="inline", **config)
    assert compiled.spec.observation_space == plain.spec.observation_space
    assert compiled.spec.action_space == plain.spec.action_space
    assert_equal(play(compiled, steps), play(plain, steps))


@pytest.mark.slow
def test_compiled_cartpole_equals_gymnasiums(numba):
    compiled = stepmill.make(CartPole, num_envs=3, max_episode_steps=500)
    assert_equal(play(compiled, 300), play(stepmill.make("gymnasium:CartPole-v1", num_envs=3, backend="inline"), 300))


@pytest.mark.slow
def test_every_function_has_the_last_digits_that_python_gives(numba):
    compiled = stepmill.make(Formulas, num_envs=1)
    plain = stepmill.make(Formulas, num_envs=1, jit=False, backend="inline")
    compiled.reset(), plain.reset()
    for action in np.random.default_rng(1).normal(0, 8, (2000, 1, 2)):
        assert_equal(compiled.step(action)[:4], plain.step(action)[:4])
    compiled.close(), plain.close()


@stepmill.jit
class Awkward:
    """A step for each action, of which Numba by itself would compute something else than Python, or raise nothing."""

    observation_space = spaces.Box(-np.inf, np.inf, (6,), np.float64)
    action_space = spaces.Discrete(14)
    state = [("row", np.float64, (6,)), ("small", np.uint8), ("bytes", np.uint8, (2,)), ("count", np.int64)]
    settings = {"inf": np.inf}
    equal = 6  # actions below: computes the same. From there on: raises in both

    def reset(self, random):
        self.row[...] = np.arange(6)

    def step(self, action, random):
        n = action + 60
        if action == 0:
            self.row[1:] += self.row[:-1]
        elif action == 1:
            grid = self.row.reshape(2, 3)
            grid -= grid[:, :1]
        elif action == 2:
            self.row[0] = -5 >> (n + 20)
        elif action == 3:
            self.row[0] = math.pow(10, n)
        elif action == 4:
            self.row[0] = (-1.0) ** (1e300 + n) + 0.0 ** (-self.inf)
        elif action == 5:
            self.row[0] = self.row.max() + self.row.max() // 2
        elif action == 6:
            self.small = n * 10
        elif action == 7:
            self.bytes[0] = 0 - n
        elif action == 8:
            self.bytes[...] = n * 10
        elif action == 9:
            self.count = self.inf - self.inf
        elif action == 10:
            self.row[0] = math.floor(self.inf)
        elif action == 11:
            self.row[0] = round(self.inf)
        elif action == 12:
            self.row[0] = n >> (n - 100)
        else:
            self.row[0] = 1 / (self.row.min() * 0.0)
        return self.row[0], False, False

    def observe(self, observation):
        observation[...] = self.row


@pytest.mark.slow
def test_what_numba_would_compute_otherwise_is_computed_as_python_does(numba):
    compiled = stepmill.make(Awkward, num_envs=14, on_error="restart")
    plain = stepmill.make(Awkward, num_envs=14, jit=False, backend="inline", on_error="restart")
    compiled.reset(), plain.reset()
    ours, theirs = (pool.step(np.arange(14)) for pool in (compiled, plain))
    assert np.flatnonzero(ours[-1]["abnormal"]).tolist() == list(range(Awkward.env_class.equal, 14))
    assert_equal(ours[:4], theirs[:4])
    compiled.close(), plain.close()


_weight = 1.0


@pytest.mark.slow
def test_a_global_that_changes_is_seen_by_the_next_make(numba, monkeypatch):
    def reset(self, random):
        self.side = _weight == 1.0

    changing = stepmill.jit(coin(reset=reset))
    with stepmill.make(changing) as pool:
        library = changing.library()
        assert pool.reset()[0] == 1
    assert changing.library() is library
    monkeypatch.setitem(globals(), "_weight", 2.0)
    with stepmill.make(changing) as pool:
        assert pool.reset()[0] == 0


@pytest.mark.parametrize(
    ("settings", "value", "message"),
    [
        ({"n": 3}, 2.5, "expected a whole number of at most 2**53, got 2.5"),
        ({"n": 3}, 2**60 + 1, "expected a whole number of at most 2**53"),
        ({"n": True}, 2, "expected True or False, got 2"),
        ({"n": 0.5}, "a", "expected a number, got 'a'"),
    ],
)
def test_in_python_settings_are_checked_as_the_engine_does(settings, value, message):
    with pytest.raises(ConfigError, match=re.escape(f"config key 'n': {message}")):
        stepmill.jit(coin(settings={**settings, "bias": 0.5}))(n=value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (1, "ValueError: cannot be reset"),
        (2, "ZeroDivisionError: division by zero"),
        (3, "IndexError: index is out of bounds"),
        (4, "ValueError: math domain error"),
        (5, "ValueError: place"),
    ],
)
def test_what_a_compiled_function_raises_is_the_error_of_its_row(numba, fault, message):
    pool = stepmill.make(Board, num_envs=3, env_config=[{}, {"fault": fault}, {}], on_error="raise")

    def reset_and_step():
        pool.reset()
        pool.step(pool.action_space.sample())

    with pytest.raises(EnvError, match=message) as caught:
        reset_and_step()
    assert caught.value.env_id == 1
    if fault in (1, 5):  # Numba keeps the lines of `raise` alone
        assert re.search(r"jit_envs.py, line \d+", str(caught.value))
    pool.close()


@pytest.mark.slow
def test_ids_specs_and_reset_options_are_those_of_any_env(numba):
    stepmill.register("Coin-v0", stepmill.jit(coin()), config={"bias": 1.0}, max_episode_steps=5)
    assert stepmill.make_spec("Coin-v0").config["bias"] == 1.0
    pool = stepmill.make("Coin-v0", num_envs=2, env_config=[{}, {"bias": 0.0}])
    assert pool.reset()[0].tolist() == [1, 0]
    pool.close()
    assert stepmill.make("Coin-v0", jit=False, backend="inline").reset()[0].tolist() == [1]
    with pytest.raises(UnknownConfigError, match="Coin-v0 has no config key 'biass', did you mean 'bias'"):
        stepmill.make("Coin-v0", biass=1.0)
    pool = stepmill.make(CartPole, num_envs=2)
    assert pool.reset(options={"low": 0.01, "high": 0.01})[0][:, 0].tolist() == [np.float32(0.01)] * 2
    pool.close()


@pytest.mark.slow
def test_worker_processes_get_the_machine_code(numba):
    expected = play(stepmill.make(Board, num_envs=3), 100)
    assert_equal(play(stepmill.make(Board, num_envs=3, backend="process", num_workers=2), 100), expected)


@pytest.mark.slow
def test_states_are_saved_restored_and_forked(numba):
    pool = stepmill.make(Board, num_envs=3)
    actions = [pool.action_space.sample() for _ in range(20)]
    pool.reset()
    for action in actions[:5]:
        pool.step(action)
    saved = pool.save()
    expected = [pool.step(action)[:4] for action in actions]
    pool.restore(saved)
    assert_equal([pool.step(action)[:4] for action in actions], expected)
    pool.close()


@pytest.mark.slow
def test_the_machine_code_is_kept_until_the_class_changes(numba, monkeypatch):
    from stepmill.sources.jit.with_numba import c_functions

    compiled = []
    compile_functions = c_functions.compile_functions
    monkeypatch.setattr(c_functions, "compile_functions", lambda one: compiled.append(one) or compile_functions(one))
    for _ in range(2):
        pool = stepmill.make(stepmill.jit(coin(weight=3)), bias=1.0)
        assert pool.reset()[0].tolist() == [1]
        pool.close()
    assert len(compiled) == 1
    stepmill.make(stepmill.jit(coin(weight=4))).close()
    assert len(compiled) == 2


@pytest.mark.slow
def test_verify_compares_with_python_or_with_a_reference(numba):
    assert stepmill.verify(Board, steps=200)
    assert stepmill.verify(CartPole, reference="CartPole-v1", max_episode_steps=500, steps=200)
    difference = stepmill.verify(CartPole, reference=lambda: Pendulum(), steps=200).difference
    assert difference.field == "observation_space"


@pytest.mark.slow
def test_check_env_finds_nothing_to_say(numba):
    assert stepmill.testing.check_env(Board, print_report=False) == []


def test_states_in_python_are_saved_and_restored():
    pool = stepmill.make(Board, num_envs=2, jit=False, backend="inline")
    actions = [pool.action_space.sample() for _ in range(8)]
    pool.reset()
    saved = pool.save()
    expected = [pool.step(action)[:4] for action in actions]
    pool.restore(saved)
    assert_equal([pool.step(action)[:4] for action in actions], expected)
    pool.close()


@pytest.mark.parametrize("name", ["side_of_coin", "sides"])
def test_in_python_an_attribute_must_be_declared_too(name):
    class Sides:
        observation_space = action_space = spaces.Discrete(2)
        state = [("sides", np.int64, (2,))]

        def reset(self, random):
            setattr(self, name, 1)

        def step(self, action, random):
            return 0.0, False, False

        def observe(self, observation):
            observation[...] = 0

    with pytest.raises(AttributeError, match=f"self.{name} is"):
        stepmill.jit(Sides)().reset()


@pytest.mark.parametrize(
    ("name", "message"), [("USING_SVML", "NUMBA_DISABLE_INTEL_SVML=1"), ("DISABLE_JIT", "NUMBA_DISABLE_JIT=1 is set")]
)
def test_a_numba_that_approximates_or_does_not_compile_is_refused(numba, monkeypatch, name, message):
    monkeypatch.setattr(numba.config, name, True)
    with pytest.raises(UnsupportedError, match=message):
        stepmill.make(stepmill.jit(coin()))


def test_a_class_can_be_pickled():
    assert pickle.loads(pickle.dumps(CartPole)) is CartPole
    copy = cloudpickle.loads(cloudpickle.dumps(stepmill.jit(coin())))
    assert copy(bias=1.0).reset(seed=1)[0] == 1


# ---- refusals ------------------------------------------------------------------------------------

_NUMBERS = np.ones(3)
_NARROW = np.ones(3, np.float32)
_NARROW_IN_TUPLE = (np.float32(0.1), np.float32(0.2))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "message"),
    [
        (lambda self, action, random: (self.sides, False, False), "sides"),
        (lambda self, action, random: (np.sin(1.0 * action), False, False), "numpy.sin has other last digits"),
        (lambda self, action, random: (math.hypot(action, 1), False, False), "math.hypot has other last digits"),
        (lambda self, action, random: (np.random.rand(), False, False), "use the argument `random`"),
        (lambda self, action, random: (python_random.random(), False, False), "use the argument `random`"),
        (lambda self, action, random: (_NUMBERS.sum(), False, False), "write the loop"),
        (lambda self, action, random: (_NUMBERS @ _NUMBERS, False, False), "write the loop"),
        (lambda self, action, random: (np.float32(action) * 2, False, False), "arithmetic with float32"),
        (lambda self, action, random: (_NARROW[0] * 0.1, False, False), "an array of float32"),
        (lambda self, action, random: (np.zeros(2, np.int8)[0] - 1, False, False), "an array of int8"),
        (lambda self, action, random: (np.ones(2).astype(np.float32)[0] * 0.1, False, False), "an array of float32"),
        (lambda self, action, random: (_NARROW_IN_TUPLE[0] * 0.1, False, False), "in a tuple"),
        (lambda self, action, random: (np.uint64(action) - 1, False, False), "arithmetic with uint64"),
        (lambda self, action, random: (np.arange(1, 2, 0.1)[2], False, False), "numpy.arange of floats"),
        (lambda self, action, random: (np.linalg.norm(_NUMBERS), False, False), "numpy.linalg has other last digits"),
        (lambda self, action, random: (norm(_NUMBERS), False, False), "norm has other last digits"),
        (lambda self, action, random: (np.isnan(0.5) + np.isnan(0.1), False, False), "arithmetic with two bools"),
        (lambda self, action, random: (~(action > 0), False, False), "write not"),
        (lambda self, action, random: (-max(0, 0.5 * action), False, False), "write 0.0"),
        (lambda self, action, random: (-(0 if action else 0.5), False, False), "write 0.0"),
        (lambda self, action, random: (np.maximum(_NUMBERS, 1.0, _NUMBERS)[0], False, False), "assign what it returns"),
        (lambda self, action, random: (round(0.5 * action, 2), False, False), "round with digits"),
        (
            lambda self, action, random: ("reward", False, False),
            "step: expected to return reward, terminated, truncated, got Tuple",
        ),
        (lambda self, action, random: 1.0, "step: expected to return reward, terminated, truncated, got float"),
    ],
)
def test_what_would_have_other_numbers_is_refused_with_its_line(numba, step, message):
    with pytest.raises(CompileError, match=re.escape(message)) as caught:
        stepmill.make(stepmill.jit(coin(step=step)))
    if not message.startswith("step: "):
        assert f"test_jit.py, line {step.__code__.co_firstlineno}" in str(caught.value)


@pytest.mark.slow
def test_a_failure_within_numba_is_a_compile_error(numba):
    def reset(self, random):
        self.side = self.other

    with pytest.raises(CompileError, match="Coin cannot be compiled by Numba, which failed: ValueError"):
        stepmill.make(stepmill.jit(coin(other=property(lambda self: 1), reset=reset)))
