"""``DingEnvWrapper``: any gymnasium env as a ``BaseEnv``."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import stepmill
from stepmill.envs import (
    AsGymnasium,
    BaseEnv,
    DingEnvWrapper,
)
from stepmill.errors import (
    ActionError,
    ConfigError,
    EnvError,
    SpaceError,
    StepmillError,
    UsageError,
)
from stepmill.registry import records
from stepmill.registry.env_state import get_state, set_state
from support.envs.adapted import Duck, Obedient
from support.envs.contract import Pair, Walk

BACKENDS = ["inline", "process"]


class Versatile(gymnasium.Env[Any, Any]):
    """Observations and actions of any space; keeps the action it was given."""

    def __init__(
        self, observation_space: Any = None, action_space: Any = None, value: Any = None, reward: Any = 1.0
    ) -> None:
        self.observation_space = observation_space or spaces.Box(-9, 9, (2,), np.float64)
        self.action_space = action_space or spaces.Discrete(2)
        self._value, self._reward, self.taken, self.closed = value, reward, None, 0

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.seed_given, self.options = seed, options
        return self._shown(), {"fresh": True}

    def _shown(self) -> Any:
        return self.observation_space.sample() if self._value is None else self._value

    def step(self, action: Any) -> Any:
        self.taken = action
        return self._shown(), self._reward, False, False, {}

    def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize(
    ("space", "value", "dtype", "then"),
    [
        (spaces.Box(-9, 9, (2,), np.float64), np.array([1.5, 2.5]), np.float32, spaces.Box(-9, 9, (2,), np.float32)),
        (spaces.Box(0, 9, (2,), np.int8), np.array([1, 2], np.int8), np.int64, spaces.Box(0, 9, (2,), np.int64)),
        (spaces.Box(0, 255, (2, 2, 3), np.uint8), np.full((2, 2, 3), 7, np.uint8), np.uint8, None),
        (spaces.Discrete(5, start=1), 3, np.int64, None),
        (spaces.MultiBinary(3), np.array([1, 0, 1], np.int8), np.int64, spaces.MultiDiscrete([2, 2, 2])),
        (
            spaces.MultiDiscrete([3, 4], dtype=np.int32),
            np.array([2, 3], np.int32),
            np.int64,
            spaces.MultiDiscrete([3, 4]),
        ),
        (spaces.Box(0, 2**64 - 1, (1,), np.uint64), np.array([5], np.uint64), np.int64, None),
        (spaces.Box(-np.inf, np.finfo(np.float64).max, (1,), np.float64), np.array([1.0]), np.float32, None),
    ],
)
def test_observations_have_the_types_of_the_contract(space: Any, value: Any, dtype: Any, then: Any) -> None:
    env = DingEnvWrapper(Versatile(space, value=value))
    obs = env.reset()
    assert isinstance(obs, np.ndarray)
    assert obs.dtype == dtype
    assert np.array_equal(obs, value)
    assert env.observation_space.contains(obs)
    if then is not None:
        assert env.observation_space == then
    assert not np.shares_memory(env.step(np.array(1)).obs, env.step(np.array(1)).obs)


def test_nested_observations_are_converted_part_by_part() -> None:
    space = spaces.Dict(
        {"a": spaces.Box(0, 1, (1,), np.float64), "b": spaces.Tuple([spaces.Discrete(3), spaces.Text(4)])}
    )
    obs = DingEnvWrapper(Versatile(space, value={"a": np.ones(1), "b": (2, "hi")})).reset()
    assert obs["a"].dtype == np.float32
    assert obs["b"][0].dtype == np.int64
    assert obs["b"][1] == "hi"


HYBRID = spaces.Tuple([spaces.Discrete(3), spaces.Box(0, 1, (1,), np.float32)])
NESTED = spaces.Dict({"verb": spaces.Discrete(3), "where": spaces.Box(-1, 1, (2,), np.float32)})


@pytest.mark.parametrize(
    ("space", "action", "taken"),
    [
        (spaces.Discrete(3), np.array(2), 2),
        (spaces.Discrete(3), np.array([2]), 2),
        (spaces.Discrete(3, start=-1), -1, -1),
        (spaces.Discrete(3), np.array(1.0, np.float32), 1),
        (spaces.Box(-1, 1, (2,), np.float32), [0.5, 5], np.array([0.5, 5], np.float32)),
        (spaces.Box(-1, 1, (2, 1), np.float32), np.zeros(2), np.zeros((2, 1), np.float32)),
        (spaces.MultiDiscrete([2, 3]), [1, 2], np.array([1, 2])),
        (HYBRID, [np.array(1), [0.5]], (1, np.array([0.5], np.float32))),
        (NESTED, {"verb": np.array(2), "where": np.zeros(2)}, {"verb": 2, "where": np.zeros(2, np.float32)}),
    ],
)
def test_actions_arrive_as_the_env_takes_them(space: Any, action: Any, taken: Any) -> None:
    inner = Versatile(action_space=space)
    env = DingEnvWrapper(inner)
    env.reset()
    env.step(action)
    assert repr(inner.taken) == repr(taken)


@pytest.mark.parametrize(
    ("space", "action"),
    [
        (spaces.Discrete(3), 3),
        (spaces.Discrete(3), 0.5),
        (spaces.Discrete(3), np.array([1, 2])),
        (spaces.Discrete(3), "up"),
        (spaces.Box(-1, 1, (2,), np.float32), [1.0]),
        (spaces.Box(-1, 1, (2,), np.float32), [np.nan, 0]),
        (spaces.MultiDiscrete([2, 3]), [1, 3]),
        (HYBRID, [1]),
        (HYBRID, [5, [0.1]]),
        (NESTED, {"verb": 1}),
    ],
)
def test_a_wrong_action_is_an_error_that_names_the_env_and_what_it_takes(space: Any, action: Any) -> None:
    env = DingEnvWrapper(Versatile(action_space=space))
    env.reset()
    with pytest.raises(ActionError, match=r"DingEnvWrapper\(.*Versatile.*action.*: expected .*, got "):
        env.step(action)


def test_an_episode_of_cartpole_is_gymnasiums_with_the_seed_of_the_episode() -> None:
    env = DingEnvWrapper("CartPole-v1")
    env.seed(5, dynamic_seed=False)
    twin = gymnasium.make("CartPole-v1")
    obs, (expected, _) = env.reset(), twin.reset(seed=5)
    assert np.array_equal(obs, expected)
    total, done = 0.0, False
    while not done:
        obs, reward, done, info = env.step(np.array(1))
        expected, paid, terminated, truncated, _ = twin.step(1)
        total += float(paid)
        assert np.array_equal(obs, expected)
        assert (reward.shape, reward.dtype, type(done)) == ((1,), np.float32, bool)
        assert done == (terminated or truncated)
    assert info["eval_episode_return"] == info["final_eval_reward"] == total
    assert type(info["eval_episode_return"]) is float
    assert info["TimeLimit.truncated"] is False


def test_the_cfg_builds_the_env_with_its_wrappers() -> None:
    cfg = {
        "env_id": "Pendulum-v1",
        "env_kwargs": {"g": 5.0},
        "env_wrapper": [
            ("DelayReward", {"delay_reward_step": 2}),
            {"type": "TimeLimit", "kwargs": {"max_episode_steps": 4}},
        ],
        "act_scale": True,
    }
    env = DingEnvWrapper(cfg=cfg)
    assert env.action_space == spaces.Box(-1, 1, (1,), np.float32)
    env.reset()
    rewards = [env.step(np.array([1.0])).reward[0] for _ in range(3)]
    assert rewards[0] == rewards[2] == 0 != rewards[1]
    step = env.step(np.array([0.0]))
    assert step.done
    assert step.info["TimeLimit.truncated"]
    assert env.info().use_wrappers == "DelayReward\nTimeLimit"
    assert env._env.unwrapped.g == 5.0
    assert env._env.unwrapped.last_u == 0.0


@pytest.mark.parametrize("name", ["default", "mujoco_default"])
def test_the_name_of_a_list_of_wrappers_stands_for_it(name: str) -> None:
    env = DingEnvWrapper(cfg={"env_id": "Pendulum-v1", "env_wrapper": name, "max_episode_steps": 3})
    assert env.info().use_wrappers == "EvalEpisodeReturn"
    env.reset()
    steps = [env.step(np.array([1.0])) for _ in range(3)]
    assert steps[2].info["eval_episode_return"] == pytest.approx(sum(one.reward.item() for one in steps))


def test_hybrid_actions_by_the_name_of_a_list() -> None:
    env = DingEnvWrapper(cfg={"env_id": "Moving-v0", "env_wrapper": "gym_hybrid_default"})
    assert env.info().use_wrappers == "GymHybridDictAction\nEvalEpisodeReturn"
    assert isinstance(env.action_space, spaces.Dict)
    env.reset()
    assert env.step(env.random_action()).obs.shape == env.observation_space.shape


@pytest.mark.parametrize("is_train", [True, False])
@pytest.mark.parametrize("game", ["Pong", "Breakout"])
def test_the_list_of_atari_is_the_one_of_di_engine(game: str, is_train: bool) -> None:
    pytest.importorskip("ale_py")
    cfg = {"env_id": f"{game}NoFrameskip-v4", "env_wrapper": "atari_default", "is_train": is_train}
    env = DingEnvWrapper(cfg=cfg)
    expected = ["NoopResetEnv", "MaxAndSkipEnv", "EpisodicLifeEnv", "WarpFrame", "ScaledFloatFrame", "FrameStack"]
    if game == "Pong":
        expected.insert(3, "FireResetEnv")
    if is_train:
        expected.insert(-1, "ClipRewardEnv")
    assert env.info().use_wrappers == "\n".join([*expected, "EvalEpisodeReturn"])
    assert env.observation_space.shape == (4, 84, 84)
    env.close()


def test_an_unknown_name_of_wrappers_is_an_error() -> None:
    with pytest.raises(ConfigError, match="mujoco_defaults"):
        DingEnvWrapper(cfg={"env_id": "Pendulum-v1", "env_wrapper": "mujoco_defaults"}).reset()


def test_an_id_or_a_function_is_built_when_needed_and_again_after_close() -> None:
    made: list[Versatile] = []

    def make_one(**kwargs: Any) -> Versatile:
        made.append(Versatile())
        return made[-1]

    env = DingEnvWrapper(make_one)
    assert not made
    with pytest.raises(UsageError, match="step before reset"):
        env.step(np.array(0))
    assert env.observation_space.shape == (2,)
    assert len(made) == 1
    env.reset()
    env.close()
    env.close()
    assert (len(made), made[0].closed) == (1, 1)
    env.reset()
    assert len(made) == 2
    given = DingEnvWrapper(Versatile())
    given.close()
    with pytest.raises(UsageError, match="give DingEnvWrapper an id or a function"):
        given.reset()


def test_reset_arguments_are_options_and_the_info_of_reset_is_kept() -> None:
    inner = Versatile()
    env = DingEnvWrapper(inner)
    env.reset(level=3)
    assert inner.options == {"level": 3}
    assert env.reset_info == {"fresh": True}


def test_rewards_of_many_objectives_stay_many() -> None:
    env = DingEnvWrapper(Versatile(reward=np.array([1.0, 2.0])))
    env.reset()
    assert env.step(np.array(0)).reward.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("env", "says"),
    [(3, "expected an id, a gymnasium.Env, its class or a function, got 3"), ("Nothing-v0", "unknown env id")],
)
def test_what_is_no_env_is_an_error(env: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        DingEnvWrapper(env).reset()


@pytest.mark.parametrize("result", [None, (1, 2, 3), 5])
def test_an_env_with_another_interface_is_named(result: Any) -> None:
    class Old(Versatile):
        def step(self, action: Any) -> Any:
            return result

        def reset(self, **kwargs: Any) -> Any:
            return super().reset(**kwargs) if result is None else result

    def play() -> None:
        env = DingEnvWrapper(Old())
        env.reset()
        env.step(np.array(0))

    with pytest.raises(EnvError, match=r"DingEnvWrapper\(.*Old.*: (step|reset): expected \("):
        play()


def test_act_scale_needs_a_bounded_box() -> None:
    with pytest.raises(ConfigError, match=r"act_scale: expected a bounded Box as action space, got Discrete\(2\)"):
        DingEnvWrapper("CartPole-v1", {"act_scale": True}).reset()


def test_a_wrapped_env_can_be_pickled() -> None:
    env = DingEnvWrapper("CartPole-v1")
    env.seed(1)
    env.reset()
    twin = pickle.loads(pickle.dumps(env))
    assert np.array_equal(env.step(np.array(1)).obs, twin.step(np.array(1)).obs)
    assert np.array_equal(env.reset(), twin.reset())


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_wrapped_env_runs_in_a_pool(backend: str) -> None:
    with stepmill.make(DingEnvWrapper, cfg={"env_id": "CartPole-v1"}, num_envs=2, backend=backend, seed=3) as pool:
        obs, _ = pool.reset()
        alone = DingEnvWrapper("CartPole-v1")
        alone.seed(4)
        assert np.array_equal(obs[1], alone.reset())
        for _ in range(30):
            obs, _, terminated, _, info = pool.step([1, 1])
            if terminated.any():
                break
        assert info["eval_episode_return"][terminated].tolist() == info["episode_return"][terminated].tolist()


def test_a_base_env_is_not_a_gymnasium_env_by_accident() -> None:
    assert not issubclass(BaseEnv, gymnasium.Env)
    assert issubclass(AsGymnasium, gymnasium.Env)


def test_an_env_class_is_a_recipe_and_actions_have_the_types_of_the_contract() -> None:
    class Fine(Versatile):
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(action_space=spaces.Box(-1, 1, (2,), np.float64))

    env = DingEnvWrapper(Fine)
    assert env.action_space == spaces.Box(-1, 1, (2,), np.float32)
    env.reset()
    env.step(env.random_action())
    assert env._env.taken.dtype == np.float64


def test_an_id_that_is_native_only_is_an_env_too() -> None:
    env = DingEnvWrapper("Catch-v0", {"max_episode_steps": 3})
    env.seed(1, dynamic_seed=False)
    env.reset()
    state = get_state(env)
    played = [env.step(1) for _ in range(3)]
    assert [one.done for one in played] == [False, False, True]
    set_state(env, state)
    assert [env.step(1).obs.tolist() for _ in range(3)] == [one.obs.tolist() for one in played]
    env.close()


@pytest.mark.parametrize(("id", "says"), [("Pair-v0", "is a BaseEnv already"), ("Cach-v0", "did you mean|Catch-v0")])
def test_an_id_that_is_no_single_gymnasium_env_is_an_error_that_says_so(
    id: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(records._records, "Pair-v0", records.EnvRecord("Pair-v0", factory=Pair))
    with pytest.raises(StepmillError, match=says):
        DingEnvWrapper(id).reset()


@pytest.mark.parametrize("space", [spaces.Graph(spaces.Discrete(3), None), spaces.OneOf([spaces.Discrete(2)])])
def test_random_actions_of_odd_spaces_are_of_the_space(space: Any) -> None:
    env = DingEnvWrapper(Versatile(action_space=space))
    assert env.action_space.contains(env.random_action())


# ---- actions -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("space", "action"),
    [
        (spaces.MultiDiscrete([3, 3]), [0.7, 1.2]),
        (spaces.MultiDiscrete([3, 3]), [np.inf, 0]),
        (spaces.MultiDiscrete([3, 3]), [2**70, 0]),
        (spaces.Box(0, 255, (2,), np.uint8), np.array([-1, 300])),
        (spaces.Box(0, 255, (2,), np.uint8), [-1, 300]),
        (spaces.Box(-1, 1, (2,), np.float32), [None, 0]),
        (spaces.Box(-1, 1, (2,), np.float32), [[0.0], [0.0, 0.0]]),
        (spaces.Discrete(3), np.inf),
        (spaces.Discrete(3), 2**70),
        (spaces.MultiBinary(2), [2, 0]),
    ],
)
def test_an_action_that_a_cast_would_change_is_refused(space: Any, action: Any) -> None:
    env = DingEnvWrapper(Obedient(action_space=space))
    env.reset()
    with pytest.raises(ActionError, match=r"Obedient.*: action: expected .*, got "):
        env.step(action)
    assert env._env.taken is None


def test_whole_valued_floats_and_other_widths_are_taken() -> None:
    inner = Obedient(action_space=spaces.MultiDiscrete([3, 3]))
    env = DingEnvWrapper(inner)
    env.reset()
    env.step(np.array([2.0, 1.0], np.float32))
    assert inner.taken.tolist() == [2, 1]
    assert inner.taken.dtype == np.int64


# ---- building ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cfg", "says"),
    [
        ({"max_episode_steps": 0}, "max_episode_steps: expected a whole number >= 1, got 0"),
        ({"max_episode_steps": 2.5}, "max_episode_steps: expected a whole number, got 2.5"),
        ({"env_kwargs": None}, "env_kwargs: expected a dict, got None"),
        ({"env_kwargs": 5}, "env_kwargs: expected a dict, got 5"),
        ({"act_scale": "no"}, "act_scale: expected True or False, got 'no'"),
        ({"replay_path": 5}, "replay_path: expected a folder, got 5"),
        ({"seed_bits": 0}, r"seed_bits: expected a whole number in \[1, 63\], got 0"),
    ],
)
def test_a_wrong_cfg_is_named(cfg: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=f"DingEnvWrapper: {says}"):
        DingEnvWrapper(Obedient(render_mode="rgb_array"), cfg)


def test_actions_are_scaled_in_the_type_of_the_box() -> None:
    inner = Obedient(action_space=spaces.Box(np.array([-2.0, 0.0]), np.array([2.0, 8.0]), dtype=np.float64))
    env = DingEnvWrapper(inner, {"act_scale": True})
    env.reset()
    env.step([0.5, -0.5])
    assert inner.taken.tolist() == [1.0, 2.0]
    with pytest.raises(ConfigError, match="act_scale: expected a Box of floats as action space, got Box"):
        DingEnvWrapper(Obedient(action_space=spaces.Box(-3, 3, (2,), np.int64)), {"act_scale": True}).reset()


@pytest.mark.parametrize(
    ("source", "says"),
    [
        (Duck(), "env: expected an id, a gymnasium.Env, its class or a function, got <"),
        (gymnasium.make_vec("CartPole-v1", 2), "env: expected an id, a gymnasium.Env, its class or a function, got "),
        (Walk({}), "env: expected an id, a gymnasium.Env, its class or a function, got Walk"),
        (lambda: None, r"DingEnvWrapper\(<lambda>\): expected a gymnasium.Env, got None"),
        (Walk, r"DingEnvWrapper\(Walk\): expected a gymnasium.Env, got Walk.*, which is a BaseEnv already"),
    ],
)
def test_what_is_no_gymnasium_env_is_refused(source: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        DingEnvWrapper(source).reset()


def test_an_env_that_its_wrappers_refuse_is_closed_and_a_given_one_is_left_as_it_was() -> None:
    made: list[Obedient] = []

    def make_one() -> Obedient:
        made.append(Obedient())
        return made[-1]

    cfg = {"env_wrapper": ["WarpFrame"], "max_episode_steps": 5}
    env, given = DingEnvWrapper(make_one, cfg), Obedient()
    for one in (env, given_env := DingEnvWrapper(given, cfg)):
        for _ in range(2):
            with pytest.raises(SpaceError):
                one.reset()
    assert [one.closed for one in made] == [1, 1]
    assert env._env is None
    assert given.closed == 0
    assert given_env._env is given


def test_the_limit_of_the_cfg_is_in_place_of_the_registered_one() -> None:
    class Endless(Obedient):
        """Ends by its limit alone."""

    gymnasium.register("Endless-v0", entry_point=Endless, max_episode_steps=2)
    stepmill.register("OwnEndless-v0", Endless, max_episode_steps=2)
    try:
        for id in ("Endless-v0", "OwnEndless-v0"):
            for cfg, limit in (({}, 2), ({"max_episode_steps": 4}, 4), ({"max_episode_steps": 1}, 1)):
                env = DingEnvWrapper(id, cfg)
                env.reset()
                done = [env.step(0).done for _ in range(limit)]
                assert done == [False] * (limit - 1) + [True]
    finally:
        del gymnasium.registry["Endless-v0"]
        del stepmill.registry.records._records["OwnEndless-v0"]


def test_all_wrappers_of_the_cfg_are_named() -> None:
    frames = (gymnasium.wrappers.FrameStackObservation, {"stack_size": 3})
    env = DingEnvWrapper("CartPole-v1", {"env_wrapper": [frames, "FlatObs"]})
    assert env.info().use_wrappers == "FrameStackObservation\nFlatObs"
    assert DingEnvWrapper("CartPole-v1", {"max_episode_steps": 5}).info().use_wrappers is None


# ---- seeds ---------------------------------------------------------------------------------------


class Shortsighted(Obedient):
    """Takes seeds of 32 bits."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.random = np.random.RandomState(seed)
        return super().reset()


def test_an_env_that_takes_small_seeds_gets_them() -> None:
    env = DingEnvWrapper(Shortsighted())
    env.seed(2**40)  # seeds the generator of seeds
    drawn = set()
    for _ in range(5):
        env.reset()
        drawn.add(env._env.unwrapped.random.randint(2**31))
    assert len(drawn) == 5


def test_a_static_seed_is_as_large_as_the_caller_says_unless_the_cfg_says_less() -> None:
    env = DingEnvWrapper("Blackjack-v1")
    env.seed(2**40, dynamic_seed=False)
    env.reset()
    assert env._env.unwrapped.np_random_seed == 2**40
    env = DingEnvWrapper(Shortsighted(), {"seed_bits": 32})
    with pytest.raises(ConfigError, match=r"seed: expected a whole number in \[0, 4294967295\]"):
        env.seed(2**40, dynamic_seed=False)


# ---- pictures ------------------------------------------------------------------------------------


def videos(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_asking_for_videos_leaves_the_episode_alone(tmp_path: Path) -> None:
    made: list[Obedient] = []

    def make_one(render_mode: str | None = None) -> Obedient:
        made.append(Obedient(render_mode=render_mode))
        return made[-1]

    env = DingEnvWrapper(make_one)
    env.reset()
    env.step(0)
    env.enable_save_replay(str(tmp_path))
    env.step(0)
    assert [(one.steps, one.closed) for one in made] == [(2, 0)]
    env.reset()
    env.step(0)
    env.close()
    assert [(one.render_mode, one.closed) for one in made] == [(None, 1), ("rgb_array", 1)]
    assert videos(tmp_path) == ["env_0_episode_0000.mp4"]


def test_asking_for_videos_leaves_the_episodes_of_a_pool_alone(tmp_path: Path) -> None:
    with stepmill.make(lambda: DingEnvWrapper("CartPole-v1"), num_envs=2, backend="process") as pool:
        pool.reset()
        pool.step([0, 0])
        pool.call("enable_save_replay", str(tmp_path))
        assert pool.step([0, 0])[4]["elapsed_step"].tolist() == [2, 2]


def test_a_function_that_makes_an_env_that_draws_can_record(tmp_path: Path) -> None:
    env = DingEnvWrapper(lambda: Obedient(render_mode="rgb_array"), {"replay_path": str(tmp_path)})
    env.reset()
    env.step(0)
    env.close()
    assert videos(tmp_path) == ["env_0_episode_0000.mp4"]
