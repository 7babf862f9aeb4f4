"""What holds for every wrapper: ``new_shape`` says what comes out, and envs in wrappers repeat, move and stay."""

from __future__ import annotations

import contextlib
import copy
import inspect
import pickle
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import data_equivalence
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import stepmill.wrappers as wrappers_package
from stepmill.envs.env_info import element_info_of
from stepmill.errors import ConfigError, SpaceError
from stepmill.wrappers import WRAPPERS, FrameStack, WarpFrame, find_wrapper, update_shape, wrap, wrapper_names
from support.envs.scripted import CASES, FLOATS, GREY, HYBRID, MIXED, PAIR, RAM, RGB, SCENE, VECTOR, Case, ChanceEnv

every_case = pytest.mark.parametrize("case", CASES, ids=str)


def told_shapes(env: gymnasium.Env[Any, Any]) -> tuple[Any, Any, Any]:
    """The shapes of an env's spaces, as ``BaseEnv.info()`` tells them."""
    return element_info_of(env.observation_space).shape, element_info_of(env.action_space).shape, (1,)


def seen_shape(space: spaces.Space[Any], observation: Any) -> Any:
    """The shape that an observation really has."""
    if isinstance(space, spaces.Dict):
        return {key: seen_shape(child, observation[key]) for key, child in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(seen_shape(child, part) for child, part in zip(space.spaces, observation, strict=True))
    return (int(space.n),) if isinstance(space, spaces.Discrete) else observation.shape


def check_what_comes_out(env: gymnasium.Env[Any, Any], expected: tuple[Any, Any, Any], steps: int = 12) -> None:
    """Every observation of some steps has the shape, and lies in the space; every action of the space is taken."""
    env.action_space.seed(0)
    observation, _ = env.reset(seed=0)
    for _ in range(steps):
        assert seen_shape(env.observation_space, observation) == expected[0]
        assert env.observation_space.contains(observation)
        observation, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        assert np.shape(reward) == ()
        if terminated or truncated:
            observation, _ = env.reset()


def record(env: gymnasium.Env[Any, Any], steps: int = 15) -> list[Any]:
    """All that an env says, from a seed on."""
    env.action_space.seed(3)
    return [copy.deepcopy(env.reset(seed=11)), *go_on(env, steps)]


def go_on(env: gymnasium.Env[Any, Any], steps: int) -> list[Any]:
    """All that an env says from where it is."""
    said: list[Any] = []
    for _ in range(steps):
        said.append(copy.deepcopy(env.step(env.action_space.sample())))
        if said[-1][2] or said[-1][3]:
            said.append(copy.deepcopy(env.reset()))
    return said


# ---- the shapes ---------------------------------------------------------------------------------


@every_case
def test_new_shape_is_what_really_comes_out(case: Case) -> None:
    inner = case.env()
    cls = WRAPPERS[case.wrapper]
    expected = cls.new_shape(*told_shapes(inner), **case.kwargs)
    env = cls(inner, **case.kwargs)
    assert told_shapes(env) == expected
    check_what_comes_out(env, expected)


def test_every_wrapper_has_cases() -> None:
    assert {case.wrapper for case in CASES} == set(WRAPPERS)


@pytest.mark.parametrize("name", WRAPPERS)
def test_new_shape_takes_the_arguments_of_the_constructor_with_its_defaults(name: str) -> None:
    cls = WRAPPERS[name]
    _, *own = inspect.signature(cls).parameters.values()
    told = list(inspect.signature(cls.new_shape).parameters.values())
    assert [one.name for one in told[:3]] == ["obs_shape", "act_shape", "rew_shape"]
    assert [one.name for one in told[3:]] == [one.name for one in own]
    for one, other in zip(told[3:], own, strict=True):
        # What the constructor insists on and no shape depends on may be left out: a list of names alone has to do.
        assert one.default is not inspect.Parameter.empty
        assert other.default in (inspect.Parameter.empty, one.default)


@pytest.mark.parametrize(
    ("name", "kwargs", "inside", "outside"),
    [
        ("NoopResetEnv", {}, (210, 160, 3), (210, 160, 3)),
        ("MaxAndSkipEnv", {"skip": 2}, (210, 160, 3), (210, 160, 3)),
        ("WarpFrame", {}, (210, 160, 3), (84, 84)),
        ("WarpFrame", {"size": (42, 30)}, (210, 160), (42, 30)),
        ("WarpFrame", {"size": 42, "dict_key": "eye"}, {"eye": (8, 8, 3), "ear": (5,)}, {"eye": (42, 42), "ear": (5,)}),
        ("ScaledFloatFrame", {}, (84, 84), (84, 84)),
        ("ClipRewardEnv", {}, (84, 84), (84, 84)),
        ("FrameStack", {}, (84, 84), (4, 84, 84)),
        ("FrameStack", {"n_frames": 2}, (3, 84, 84), (2, 3, 84, 84)),
        ("FrameStack", {"n_frames": 2}, (3,), (2, 3)),
        ("FrameStack", {"n_frames": 2}, 3, (2, 3)),
        ("FrameStack", {"n_frames": 2}, (np.int64(3), 4), (2, 3, 4)),
        ("FrameStack", {"n_frames": 2}, (), (2,)),
        ("FrameStack", {"n_frames": 2}, {"a": (3,), "b": ((), (4, 4))}, {"a": (2, 3), "b": ((2,), (2, 4, 4))}),
        ("ObsTransposeWrapper", {}, (210, 160, 3), (3, 210, 160)),
        ("ObsTransposeWrapper", {"dict_key": "eye"}, {"eye": (8, 9, 3), "ear": (5,)}, {"eye": (3, 8, 9), "ear": (5,)}),
        ("RamWrapper", {}, (128,), (128, 1, 1)),
        ("EpisodicLifeEnv", {}, (84, 84), (84, 84)),
        ("FireResetEnv", {}, (84, 84), (84, 84)),
        ("FlatObs", {}, {"a": (3,), "b": ((2, 2), ())}, (8,)),
        (
            "ObsPlusPrevActRew",
            {},
            (84, 84),
            {"obs": (84, 84), "prev_action": (6,), "prev_reward_extrinsic": (1,)},
        ),
    ],
)
def test_new_shape_by_hand(name: str, kwargs: dict[str, Any], inside: Any, outside: Any) -> None:
    assert WRAPPERS[name].new_shape(inside, (6,), (1,), **kwargs) == (outside, (6,), (1,))


def test_new_shape_of_a_hybrid_action_by_hand() -> None:
    shapes = WRAPPERS["GymHybridDictAction"].new_shape((10,), ((3,), (1,), (2,)), (1,))
    assert shapes == ((10,), {"action_type": (3,), "action_args": (3,)}, (1,))


@pytest.mark.parametrize(
    ("name", "kwargs", "shape"),
    [
        ("WarpFrame", {"dict_key": "eye"}, (8, 8, 3)),
        ("WarpFrame", {"dict_key": "eye"}, {"ear": (5,)}),
        ("WarpFrame", {}, (4,)),
        ("WarpFrame", {}, (8, 8, 4)),
        ("WarpFrame", {}, {"eye": (8, 8, 3)}),
        ("ScaledFloatFrame", {}, {"eye": (8, 8, 3)}),
        ("ObsTransposeWrapper", {}, (8, 8)),
        ("ObsTransposeWrapper", {}, 3),
        ("ObsTransposeWrapper", {}, {"a": (3,), "b": (3,), "c": (3,)}),
        ("RamWrapper", {}, (210, 160, 3)),
        ("RamWrapper", {}, {"ram": (128,)}),
        ("MaxAndSkipEnv", {}, {"eye": (8, 8, 3)}),
    ],
)
def test_new_shape_refuses_shapes_that_its_wrapper_cannot_serve(name: str, kwargs: Any, shape: Any) -> None:
    with pytest.raises(SpaceError, match=f"{name}: expected .*, got"):
        WRAPPERS[name].new_shape(shape, (2,), (1,), **kwargs)


@pytest.mark.parametrize(
    ("name", "kwargs"),
    [
        ("MaxAndSkipEnv", {"skip": 0}),
        ("NoopResetEnv", {"noop_max": 0}),
        ("FrameStack", {"n_frames": 0}),
        ("WarpFrame", {"size": 0}),
        ("ActionRepeat", {"action_repeat": 0}),
        ("DelayReward", {"delay_reward_step": 0}),
        ("TimeLimit", {"max_episode_steps": 0}),
    ],
)
def test_new_shape_refuses_numbers_that_its_wrapper_refuses(name: str, kwargs: dict[str, Any]) -> None:
    (argument,) = kwargs
    with pytest.raises(ConfigError, match=f"^{name}: {argument}: expected a whole number >= 1, got 0"):
        WRAPPERS[name].new_shape((8, 8, 3), (2,), (1,), **kwargs)


# ---- compositions -------------------------------------------------------------------------------

small = st.integers(1, 6)
ARGUMENTS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    **{name: st.just({}) for name in WRAPPERS},
    "NoopResetEnv": st.fixed_dictionaries({"noop_max": small}),
    "MaxAndSkipEnv": st.fixed_dictionaries({"skip": small}),
    "WarpFrame": st.fixed_dictionaries(
        {"size": small | st.tuples(small, small), "dict_key": st.sampled_from([None, "image"])}
    ),
    "ScaledFloatFrame": st.fixed_dictionaries({"dict_key": st.sampled_from([None, "image"])}),
    "ObsTransposeWrapper": st.fixed_dictionaries({"dict_key": st.sampled_from([None, "image"])}),
    "FrameStack": st.fixed_dictionaries({"n_frames": small}),
    "TimeLimit": st.fixed_dictionaries({"max_episode_steps": small}),
    "ActionRepeat": st.fixed_dictionaries({"action_repeat": small}),
    "DelayReward": st.fixed_dictionaries({"delay_reward_step": small}),
    "StaticObsNorm": st.just({"mean": 1.0, "std": 2.0}),
}
boxes = st.builds(
    lambda shape, kind: spaces.Box(*kind[:2], tuple(shape), kind[2]),
    st.lists(small, max_size=3) | st.tuples(small, small, st.sampled_from([1, 3])),
    st.sampled_from([(0, 255, np.uint8), (-1.0, 1.0, np.float32), (-np.inf, np.inf, np.float64), (-5, 5, np.int64)]),
)
leaves = boxes | st.sampled_from([spaces.MultiBinary(3), spaces.MultiDiscrete([2, 4]), spaces.Discrete(3)])
observation_spaces = st.one_of(
    leaves,
    st.builds(lambda image, rest: spaces.Dict({"image": image, "rest": rest}), leaves, leaves),
    st.builds(lambda one, other: spaces.Tuple((one, other)), leaves, leaves),
    st.sampled_from([RGB, GREY, FLOATS, RAM, SCENE, PAIR, MIXED, VECTOR]),
)
chains = st.lists(
    st.sampled_from(sorted(WRAPPERS)).flatmap(lambda name: st.tuples(st.just(name), ARGUMENTS[name])),
    min_size=1,
    max_size=5,
)


@settings(max_examples=250, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(observation_spaces, st.sampled_from([spaces.Discrete(4), HYBRID]), chains)
def test_update_shape_is_true_for_whatever_can_be_composed(
    observation: spaces.Space[Any], action: spaces.Space[Any], chain: list[tuple[str, dict[str, Any]]]
) -> None:
    env: gymnasium.Env[Any, Any] = ChanceEnv(observation, action)
    inside = told_shapes(env)
    taken = []
    for entry in chain:
        with contextlib.suppress(SpaceError):  # what cannot be served is left out
            env = wrap(env, [entry])
            taken.append(entry)
    outside = update_shape(*inside, taken)
    assert told_shapes(env) == outside
    check_what_comes_out(env, outside, steps=4)


def test_update_shape_takes_names_classes_and_arguments_and_skips_empty_names() -> None:
    chain = [
        "",
        "NoopResetEnv",
        WarpFrame,
        ("ScaledFloatFrame", {}),
        (FrameStack, {"n_frames": 2}),
        {"type": "frame_stack", "kwargs": {"n_frames": 3}},
        {"type": "clip_reward"},
        " ",
    ]
    assert update_shape((210, 160, 3), (6,), (1,), chain) == ((3, 2, 84, 84), (6,), (1,))


def test_update_shape_takes_names_joined_by_newlines() -> None:
    names = wrapper_names(["NoopResetEnv", "", ("warp_frame", {"size": 84}), FrameStack])
    assert names == "NoopResetEnv\nWarpFrame\nFrameStack"
    assert update_shape((210, 160, 3), (6,), (1,), names) == ((4, 84, 84), (6,), (1,))
    assert update_shape((210, 160, 3), (6,), (1,), names.split("\n")) == ((4, 84, 84), (6,), (1,))


@pytest.mark.parametrize("nothing", [None, [], "", [""], "\n"])
def test_no_wrappers_change_nothing(nothing: Any) -> None:
    env = ChanceEnv(RGB)
    assert update_shape((3,), (2,), (1,), nothing) == ((3,), (2,), (1,))
    assert wrap(env, nothing) is env
    assert wrapper_names(nothing) == ""


# ---- names --------------------------------------------------------------------------------------


def test_the_catalogue_has_the_twenty() -> None:
    assert len(WRAPPERS) == 20
    for name, cls in WRAPPERS.items():
        assert cls.__name__ == name
        assert getattr(wrappers_package, name) is cls
        assert name in wrappers_package.__all__
    assert list(wrappers_package.__all__) == sorted(
        wrappers_package.__all__, key=lambda name: (not name.isupper(), name[0].islower(), name)
    )


def test_wrappers_are_found_by_name_config_name_and_class() -> None:
    assert find_wrapper("WarpFrame") is WarpFrame
    assert find_wrapper("warp_frame") is WarpFrame
    assert find_wrapper(WarpFrame) is WarpFrame
    assert find_wrapper("obs_plus_prev_action_reward") is WRAPPERS["ObsPlusPrevActRew"]
    assert find_wrapper(gymnasium.wrappers.FlattenObservation) is gymnasium.wrappers.FlattenObservation


@pytest.mark.parametrize("use", [find_wrapper, lambda it: update_shape((3,), (2,), (1,), [it])])
def test_an_unknown_name_is_an_error_with_the_nearest(use: Any) -> None:
    with pytest.raises(ConfigError, match=r"unknown wrapper 'WrapFrame', did you mean .*WarpFrame"):
        use("WrapFrame")
    with pytest.raises(ConfigError, match=r"unknown wrapper '\?\?'\. There are NoopResetEnv, "):
        use("??")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (3, "expected .* got 3"),
        (int, "expected .* got <class 'int'>"),
        (("FrameStack",), r"as \(name, kwargs\), got \('FrameStack',\)"),
        (("FrameStack", 4), "arguments of wrapper 'FrameStack' as a dict, got 4"),
        ({"kwargs": {}}, 'as {"type": name'),
        ({"type": "FrameStack", "n_frames": 2}, 'as {"type": name'),
        (("FrameStack", {"frames": 2}), "FrameStack: .*'frames'; its arguments are: n_frames"),
        (("FrameStack", {"n_frames": 0}), "FrameStack: n_frames: expected a whole number >= 1, got 0"),
    ],
)
def test_a_wrapper_that_cannot_be_is_an_error_for_envs_and_for_shapes(entry: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        wrap(ChanceEnv(VECTOR), [entry])
    with pytest.raises(ConfigError, match=message):
        update_shape((3,), (2,), (1,), [entry])


@pytest.mark.parametrize("wrappers", [3, {"type": "FrameStack"}])
def test_what_is_not_a_list_of_wrappers_is_an_error(wrappers: Any) -> None:
    with pytest.raises(ConfigError, match="expected a list of wrappers, got"):
        wrap(ChanceEnv(VECTOR), wrappers)


def test_wrap_says_which_argument_is_missing() -> None:
    with pytest.raises(ConfigError, match=r"TimeLimit: missing .*'max_episode_steps'"):
        wrap(ChanceEnv(VECTOR), ["TimeLimit"])


def test_wrap_takes_wrappers_of_others_and_functions() -> None:
    env = wrap(
        ChanceEnv(RGB),
        [
            gymnasium.wrappers.FlattenObservation,
            lambda inner: FrameStack(inner, 2),
            ["time_limit", {"max_episode_steps": 3}],
        ],
    )
    assert str(env).startswith("<TimeLimit<FrameStack<FlattenObservation<ChanceEnv")
    assert env.observation_space.shape == (2, 360)
    with pytest.raises(ConfigError, match="FlattenObservation, which has none"):
        update_shape((3,), (2,), (1,), [gymnasium.wrappers.FlattenObservation])


def test_a_function_that_makes_no_env_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"expected it to return a gymnasium\.Env, got None"):
        wrap(ChanceEnv(RGB), [lambda inner: None])


# ---- seeds, processes, memory -------------------------------------------------------------------


@every_case
def test_same_seed_same_episodes(case: Case) -> None:
    first, second = (WRAPPERS[case.wrapper](case.env(), **case.kwargs) for _ in range(2))
    said = record(first)
    assert data_equivalence(said, record(second))
    if case.wrapper not in ("ObsNormEnv", "RewardNormEnv"):  # those remember
        assert data_equivalence(said, record(first))


@every_case
def test_a_wrapped_env_can_be_pickled_and_goes_on_where_it_was(case: Case) -> None:
    env = WRAPPERS[case.wrapper](case.env(), **case.kwargs)
    record(env, steps=5)
    copied = pickle.loads(pickle.dumps(env))
    assert copied.observation_space == env.observation_space
    assert copied.action_space == env.action_space
    assert data_equivalence(go_on(copied, 15), go_on(env, 15))


@pytest.mark.parametrize("name", WRAPPERS)
def test_seeds_and_options_reach_the_env(name: str) -> None:
    case = next(one for one in CASES if one.wrapper == name)
    env = WRAPPERS[name](case.env(), **case.kwargs)
    env.reset(seed=5, options={"level": 2})
    assert env.unwrapped.resets[0] == (5, {"level": 2})


@every_case
def test_the_spec_of_a_wrapped_env_has_its_arguments(case: Case) -> None:
    env = WRAPPERS[case.wrapper](case.env(), **case.kwargs)
    env.unwrapped.spec = gymnasium.envs.registration.EnvSpec(
        "Chance-v0", entry_point=case.env, order_enforce=False, disable_env_checker=True
    )
    assert env.spec is not None
    again = gymnasium.make(env.spec)
    assert type(again) is type(env)
    assert data_equivalence(record(again), record(env))


# The others hand on what the env gave them.
MAKE_OBSERVATIONS = {
    "MaxAndSkipEnv",
    "WarpFrame",
    "ScaledFloatFrame",
    "FrameStack",
    "ObsTransposeWrapper",
    "ObsNormEnv",
    "RamWrapper",
    "StaticObsNorm",
    "FlatObs",
}


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case.wrapper in MAKE_OBSERVATIONS and isinstance(case.observation, spaces.Box)],
    ids=str,
)
def test_what_was_handed_out_stays_as_it_was_over_an_env_that_writes_into_the_same_memory(case: Case) -> None:
    env = WRAPPERS[case.wrapper](case.env(in_place=True), **case.kwargs)
    env.action_space.seed(0)
    handed_out = [env.reset(seed=0)[0]]
    kept = copy.deepcopy(handed_out)
    for _ in range(8):
        observation, _, terminated, truncated, _ = env.step(env.action_space.sample())
        handed_out.append(observation)
        kept.append(copy.deepcopy(observation))
        if terminated or truncated:
            env.reset()
    assert data_equivalence(handed_out, kept)
    assert not data_equivalence(handed_out[0], handed_out[1])


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.wrapper in MAKE_OBSERVATIONS and case.observation.shape], ids=str
)
def test_a_wrapper_does_not_care_whether_the_env_writes_into_the_same_memory(case: Case) -> None:
    cls = WRAPPERS[case.wrapper]
    one, other = cls(case.env(), **case.kwargs), cls(case.env(in_place=True), **case.kwargs)
    assert data_equivalence(record(one), record(other))
