"""Adapters and what they must not let through: defects that were found, each with the call that showed it."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import dm_env
import gymnasium
import numpy as np
import pettingzoo
import pytest
from dm_env import specs
from gymnasium import spaces

import stepmill
from stepmill.envs import (
    AsGymnasium,
    BaseEnvTimestep,
    DingEnvWrapper,
    ParallelAsBaseEnv,
    as_base_env,
    as_gymnasium,
)
from stepmill.envs.as_gymnasium import player_space
from stepmill.envs.dm import space_of_spec
from stepmill.errors import ActionError, ConfigError, EnvError, ObservationError, SpaceError, UsageError
from support.contract_envs import Walk

BACKENDS = ["inline", "process"]
PAIR = spaces.Box(-1, 1, (2,), np.float32)


class Told(gymnasium.Env[Any, Any]):
    """Returns what it is told to, and keeps what it is given."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 30}  # noqa: RUF012

    def __init__(
        self,
        observation_space: Any = PAIR,
        action_space: Any = None,
        at_reset: Any = None,
        at_step: Any = None,
        render_mode: str | None = None,
    ) -> None:
        self.observation_space = observation_space
        self.action_space = action_space or spaces.Discrete(2)
        self.render_mode = render_mode
        self._at_reset, self._at_step = at_reset, at_step
        self.taken: Any = None
        self.closed = self.steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.steps = 0
        return (np.zeros(2, np.float32), {}) if self._at_reset is None else self._at_reset

    def step(self, action: Any) -> Any:
        self.taken = action
        self.steps += 1
        return (np.zeros(2, np.float32), 1.0, False, False, {}) if self._at_step is None else self._at_step

    def render(self) -> Any:
        return np.full((16, 16, 3), self.steps, np.uint8)

    def close(self) -> None:
        self.closed += 1


# ---- what an env returns -------------------------------------------------------------------------

ZEROS = np.zeros(2, np.float32)


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        (np.array([0.25, 0.75]), r"reset: expected \(observation, info\), got an array of shape \(2,\)"),
        ((ZEROS, None), r"reset: expected \(observation, info\), the info a dict, got None as info"),
        ((np.zeros(5), {}), r"observation: expected numbers of shape \(2,\) and type float32, got an array of shape"),
        ((None, {}), r"observation: expected numbers of shape \(2,\) and type float32, got None"),
        (({"a": 1}, {}), r"observation: expected numbers of shape \(2,\) and type float32, got {'a': 1}"),
    ],
)
def test_what_reset_returns_is_looked_at(returned: Any, says: str) -> None:
    with pytest.raises(EnvError, match=rf"DingEnvWrapper\(.*Told.*\): {says}"):
        DingEnvWrapper(Told(at_reset=returned)).reset()


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        ((np.zeros(5), 1.0, True, False, {}), r"observation: expected numbers of shape \(2,\)"),
        ((ZEROS, None, False, False, {}), r"step: expected a number, or several, as reward, got None"),
        ((ZEROS, [], False, False, {}), r"step: expected a number, or several, as reward, got \[\]"),
        ((ZEROS, 1.0, "no", False, {}), r"step: expected True or False as terminated, got 'no'"),
        ((ZEROS, 1.0, False, [True, False], {}), r"step: expected True or False as truncated, got \[True, False\]"),
        ((ZEROS, 1.0, True, False, None), r"step: expected .*, the info a dict, got None as info"),
        (np.zeros(5), r"step: expected \(observation, reward, terminated, truncated, info\), got an array"),
    ],
)
def test_what_step_returns_is_looked_at(returned: Any, says: str) -> None:
    env = DingEnvWrapper(Told(at_step=returned))
    env.reset()
    with pytest.raises(EnvError, match=rf"DingEnvWrapper\(.*Told.*\): {says}"):
        env.step(0)


@pytest.mark.parametrize(
    ("space", "value", "says"),
    [
        (
            spaces.Dict({"a": PAIR, "b": PAIR}),
            {"a": ZEROS},
            r"observation: expected a dict with the keys 'a', 'b', got",
        ),
        (spaces.Dict({"a": PAIR}), {"a": np.zeros(3)}, r"observation\['a'\]: expected numbers of shape \(2,\)"),
        (spaces.Tuple([PAIR, PAIR]), (ZEROS,), r"observation: expected a tuple of 2 parts, got"),
        (spaces.Tuple([PAIR]), (np.zeros(1),), r"observation\[0\]: expected numbers of shape \(2,\)"),
        (spaces.Discrete(3), 0.5, r"observation: expected numbers of shape \(\) and type int64, got 0.5"),
    ],
)
def test_parts_of_observations_are_named(space: Any, value: Any, says: str) -> None:
    with pytest.raises(ObservationError, match=says):
        DingEnvWrapper(Told(space, at_reset=(value, {}))).reset()


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
    env = DingEnvWrapper(Told(action_space=space))
    env.reset()
    with pytest.raises(ActionError, match=r"Told.*: action: expected .*, got "):
        env.step(action)
    assert env._env.taken is None


def test_whole_valued_floats_and_other_widths_are_taken() -> None:
    inner = Told(action_space=spaces.MultiDiscrete([3, 3]))
    env = DingEnvWrapper(inner)
    env.reset()
    env.step(np.array([2.0, 1.0], np.float32))
    assert inner.taken.tolist() == [2, 1]
    assert inner.taken.dtype == np.int64


# ---- many agents ---------------------------------------------------------------------------------


class Two(pettingzoo.ParallelEnv):
    """Two agents for ``length`` steps, each with an action mask in its info."""

    metadata = {"name": "two"}  # noqa: RUF012
    possible_agents = ["a", "b"]  # noqa: RUF012

    def __init__(self, shown: Any = None, action_space: Any = None, length: int = 2) -> None:
        self._shown = np.zeros(3, np.float32) if shown is None else shown
        self._action_space = action_space or spaces.Discrete(2)
        self._length = length
        self.taken: Any = None
        self.closed = 0

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(-5, 5, (3,), np.float32)

    def action_space(self, agent: str) -> Any:
        return self._action_space

    def _infos(self) -> Any:
        return {agent: {"action_mask": np.array([1, int(agent == "a")])} for agent in self.possible_agents}

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents, self.count = list(self.possible_agents), 0
        return self._observations(), self._infos()

    def _observations(self) -> Any:
        return dict.fromkeys(self.possible_agents, self._shown)

    def step(self, actions: Any) -> Any:
        self.taken = actions
        self.count += 1
        if self.count == self._length:
            self.agents = []
        ended = dict.fromkeys(self.possible_agents, not self.agents)
        unpaid = dict.fromkeys(self.possible_agents, 0.0)
        return self._observations(), unpaid, ended, dict.fromkeys(ended, False), self._infos()

    def close(self) -> None:
        self.closed += 1


SMALL_SEEDS = {"seed_bits": 32}


@pytest.mark.parametrize("pad", [False, True])
@pytest.mark.parametrize("shown", [np.array([1.0, 2.0]), np.float64(7), np.zeros((3, 1)), np.zeros(5), "abc"])
def test_observations_of_a_wrong_shape_are_not_filled_up(shown: Any, pad: bool) -> None:
    with pytest.raises(
        ObservationError, match=r"ParallelAsBaseEnv\(.*: observation of agent 'a': expected numbers of shape \(3,\)"
    ):
        ParallelAsBaseEnv(Two(shown), {"pad": pad}).reset()


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        (dict.fromkeys("ab", np.zeros(3)), r"reset: expected \(observation, info\), got"),
        (([np.zeros(3)] * 2, {}), "reset: expected a dict with the agents as keys as observations, got"),
        (({"a": np.zeros(3)}, {}), r"reset: expected an observation of each living agent, got none of \['b'\]"),
    ],
)
def test_what_reset_of_a_parallel_env_returns_is_looked_at(returned: Any, says: str) -> None:
    class Wrong(Two):
        def reset(self, seed: int | None = None, options: Any = None) -> Any:
            super().reset()
            return returned

    with pytest.raises(EnvError, match=says):
        ParallelAsBaseEnv(Wrong()).reset()


@pytest.mark.parametrize(
    ("space", "action"),
    [
        (spaces.Discrete(2), [1.7, 0.2]),
        (spaces.Discrete(2), [np.inf, 0]),
        (spaces.Box(-1, 1, (2,), np.float32), np.full((2, 2), np.nan)),
        (spaces.Box(0, 255, (1,), np.uint8), [[-1], [0]]),
    ],
)
def test_an_agents_action_is_read_as_any_other(space: Any, action: Any) -> None:
    inner = Two(action_space=space)
    env = ParallelAsBaseEnv(inner)
    env.reset()
    with pytest.raises(ActionError, match=r"ParallelAsBaseEnv\(two\): action of agent 'a': expected .*, got "):
        env.step(np.array(action))
    assert inner.taken is None


def test_ragged_actions_are_refused() -> None:
    env = ParallelAsBaseEnv(Two(action_space=PAIR))
    env.reset()
    with pytest.raises(ActionError, match=r"action: expected a row an agent, shape \(2, 2\), got \[\[1\], \[1, 2\]\]"):
        env.step([[1], [1, 2]])


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_infos_of_the_agents_are_there_from_reset_on(backend: str) -> None:
    with stepmill.make(Two, num_envs=2, backend=backend) as pool:
        _, info = pool.reset()
        assert info["agents"]["b"]["action_mask"].tolist() == [[1, 0]] * 2
        assert info["alive"].tolist() == [[True, True]] * 2
        pool.step([0, 0, 0, 0])
        info = pool.step([0, 0, 0, 0])[4]
        assert info["alive"].tolist() == [[False, False]] * 2
        info = pool.step([0, 0, 0, 0])[4]  # the reset
        assert info["elapsed_step"].tolist() == [0, 0]
        assert info["agents"]["b"]["action_mask"].tolist() == [[1, 0]] * 2
        assert info["alive"].tolist() == [[True, True]] * 2


@pytest.mark.parametrize(
    ("cfg", "says"),
    [
        ("x", "ParallelAsBaseEnv: cfg: expected a dict, got 'x'"),
        ({"shared_reward": "no"}, "ParallelAsBaseEnv: shared_reward: expected True or False, got 'no'"),
        ({"pad": 1}, "ParallelAsBaseEnv: pad: expected True or False, got 1"),
        ({"seed_bits": 64}, r"ParallelAsBaseEnv: seed_bits: expected a whole number in \[1, 63\], got 64"),
    ],
)
def test_a_wrong_cfg_of_a_parallel_env_is_named(cfg: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        ParallelAsBaseEnv(Two(), cfg)


def test_a_parallel_env_steps_after_a_reset() -> None:
    with pytest.raises(UsageError, match=r"ParallelAsBaseEnv\(two\): step before reset"):
        ParallelAsBaseEnv(Two()).step(np.zeros(2))


def test_a_parallel_env_whose_spaces_do_not_fit_is_closed() -> None:
    made: list[Two] = []

    def make_one() -> Two:
        made.append(Two(action_space=spaces.Text(3)))
        return made[-1]

    with pytest.raises(SpaceError):
        ParallelAsBaseEnv(make_one).reset()
    assert [one.closed for one in made] == [1]


def test_the_space_of_one_agent_keeps_its_type() -> None:
    assert player_space(spaces.MultiDiscrete([3, 3], np.int32), 2) == spaces.Discrete(3, dtype=np.int32)
    assert player_space(spaces.MultiDiscrete([[3, 4]] * 2, np.int32), 2) == spaces.MultiDiscrete([3, 4], np.int32)


def test_the_hint_to_pad_can_be_followed() -> None:
    class Unlike(Two):
        def action_space(self, agent: str) -> Any:
            return spaces.Discrete(2 + (agent == "b"))

    with pytest.raises(SpaceError, match=r"ParallelAsBaseEnv\(env, cfg={'pad': True}\) fills up"):
        _ = ParallelAsBaseEnv(Unlike()).action_space
    assert ParallelAsBaseEnv(Unlike(), cfg={"pad": True}).action_space == spaces.MultiDiscrete([3, 3])


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
        DingEnvWrapper(Told(render_mode="rgb_array"), cfg)


def test_actions_are_scaled_in_the_type_of_the_box() -> None:
    inner = Told(action_space=spaces.Box(np.array([-2.0, 0.0]), np.array([2.0, 8.0]), dtype=np.float64))
    env = DingEnvWrapper(inner, {"act_scale": True})
    env.reset()
    env.step([0.5, -0.5])
    assert inner.taken.tolist() == [1.0, 2.0]
    with pytest.raises(ConfigError, match="act_scale: expected a Box of floats as action space, got Box"):
        DingEnvWrapper(Told(action_space=spaces.Box(-3, 3, (2,), np.int64)), {"act_scale": True}).reset()


class Duck:
    """Has the methods of an env, and is none."""

    observation_space = PAIR
    action_space = spaces.Discrete(2)

    def reset(self) -> None:
        """Nothing."""

    def step(self, action: Any) -> None:
        """Nothing."""


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
    made: list[Told] = []

    def make_one() -> Told:
        made.append(Told())
        return made[-1]

    cfg = {"env_wrapper": ["WarpFrame"], "max_episode_steps": 5}
    env, given = DingEnvWrapper(make_one, cfg), Told()
    for one in (env, given_env := DingEnvWrapper(given, cfg)):
        for _ in range(2):
            with pytest.raises(SpaceError):
                one.reset()
    assert [one.closed for one in made] == [1, 1]
    assert env._env is None
    assert given.closed == 0
    assert given_env._env is given


def test_the_limit_of_the_cfg_is_in_place_of_the_registered_one() -> None:
    class Endless(Told):
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
        del stepmill.registry._records["OwnEndless-v0"]


def test_all_wrappers_of_the_cfg_are_named() -> None:
    frames = (gymnasium.wrappers.FrameStackObservation, {"stack_size": 3})
    env = DingEnvWrapper("CartPole-v1", {"env_wrapper": [frames, "FlatObs"]})
    assert env.info().use_wrappers == "FrameStackObservation\nFlatObs"
    assert DingEnvWrapper("CartPole-v1", {"max_episode_steps": 5}).info().use_wrappers is None


# ---- seeds ---------------------------------------------------------------------------------------


class Shortsighted(Told):
    """Takes seeds of 32 bits."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.random = np.random.RandomState(seed)
        return super().reset()


def test_an_env_that_takes_small_seeds_is_given_such() -> None:
    env = DingEnvWrapper(Shortsighted())
    env.seed(0)
    says = r"Shortsighted.*: reset: expected .* 63 bits, got ValueError: Seed.*'seed_bits': 32"
    with pytest.raises(EnvError, match=says) as caught:
        env.reset()
    assert isinstance(caught.value.__cause__, ValueError)
    env = DingEnvWrapper(Shortsighted(), SMALL_SEEDS)
    env.seed(2**40)  # seeds the generator of seeds
    drawn = set()
    for _ in range(5):
        env.reset()
        drawn.add(env._env.unwrapped.random.randint(2**31))
    assert len(drawn) == 5
    with pytest.raises(ConfigError, match=r"seed: expected a whole number in \[0, 4294967295\]"):
        env.seed(2**40, dynamic_seed=False)


def test_other_errors_of_reset_are_not_blamed_on_the_seed() -> None:
    class Broken(Told):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            raise ValueError("no map")

    env = DingEnvWrapper(Broken())
    env.seed(0)
    with pytest.raises(ValueError, match=r"^no map$"):
        env.reset()


def test_small_seeds_of_other_kinds_of_envs() -> None:
    class ShortsightedTwo(Two):
        def reset(self, seed: int | None = None, options: Any = None) -> Any:
            np.random.RandomState(seed)
            return super().reset()

    team = ParallelAsBaseEnv(ShortsightedTwo())
    team.seed(0)
    with pytest.raises(EnvError, match=r"ParallelAsBaseEnv\(env, cfg={'seed_bits': 32}\) gives it smaller ones"):
        team.reset()
    team = ParallelAsBaseEnv(ShortsightedTwo(), SMALL_SEEDS)
    team.seed(0)
    assert team.reset().shape == (2, 3)

    class Small(Walk):
        _seed_bits = 4

    env = Small({})
    env.seed(0)
    seeds = []
    for _ in range(40):
        env.reset()
        seeds.append(env.last_seed)
    assert set(seeds) == set(range(16)) & set(seeds)
    assert len(set(seeds)) > 8


# ---- pictures ------------------------------------------------------------------------------------


def videos(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_asking_for_videos_leaves_the_episode_alone(tmp_path: Path) -> None:
    made: list[Told] = []

    def make_one(render_mode: str | None = None) -> Told:
        made.append(Told(render_mode=render_mode))
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
    env = DingEnvWrapper(lambda: Told(render_mode="rgb_array"), {"replay_path": str(tmp_path)})
    env.reset()
    env.step(0)
    env.close()
    assert videos(tmp_path) == ["env_0_episode_0000.mp4"]


def test_the_render_mode_is_that_of_the_env_inside() -> None:
    assert AsGymnasium(DingEnvWrapper(Told())).render_mode is None
    assert AsGymnasium(DingEnvWrapper(Told(render_mode="rgb_array"))).render_mode == "rgb_array"
    assert AsGymnasium(Walk({})).render_mode is None
    assert as_gymnasium(Two()).render_mode is None

    class Drawn(Walk):
        def render(self) -> Any:
            return np.zeros((2, 2, 3), np.uint8)

    assert AsGymnasium(Drawn({})).render_mode == "rgb_array"
    with stepmill.make(functools.partial(DingEnvWrapper, "CartPole-v1"), backend="inline") as pool:
        assert pool.render_mode is None


# ---- a BaseEnv as gymnasium ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reset_info", "returned", "says"),
    [
        ({}, (np.zeros(3, np.float32), {}), r"reset: expected the observation alone, got \(observation, info\)"),
        (None, np.zeros(3, np.float32), "reset_info: expected a dict, got None"),
    ],
)
def test_a_reset_as_gymnasium_has_it_is_named(reset_info: Any, returned: Any, says: str) -> None:
    class Mixed(Walk):
        def reset(self, **kwargs: Any) -> Any:
            super().reset()
            self.reset_info = reset_info
            return returned

    with stepmill.make(Mixed, backend="inline") as pool, pytest.raises(EnvError, match=f"Mixed: {says}"):
        pool.reset()


@pytest.mark.parametrize(("second", "is_right"), [(spaces.Dict({"b": PAIR}), True), (PAIR, False)])
def test_a_tuple_of_two_parts_may_be_an_observation(second: Any, is_right: bool) -> None:
    class Tupled(Walk):
        observation_space = spaces.Tuple([PAIR, second])  # type: ignore[assignment]

        def reset(self, **kwargs: Any) -> Any:
            return ZEROS, {"b": ZEROS}

    env = as_gymnasium(Tupled({}))
    if is_right:
        assert env.reset()[0][1]["b"] is ZEROS
    else:
        with pytest.raises(EnvError, match="expected the observation alone"):
            env.reset()


@pytest.mark.parametrize("done", ["no", None, np.array([True, False]), 2])
def test_done_is_true_or_false(done: Any) -> None:
    class Vague(Walk):
        def step(self, action: Any) -> Any:
            return BaseEnvTimestep(np.zeros(3, np.float32), np.ones(1, np.float32), done, {})

    with stepmill.make(Vague, backend="inline") as pool:
        pool.reset()
        with pytest.raises(EnvError, match="Vague: step: expected True or False as done, got "):
            pool.step([0])


@pytest.mark.parametrize("done", [np.bool_(True), np.array([True]), 1])
def test_what_is_as_good_as_true_is_taken(done: Any) -> None:
    class Ended(Walk):
        def step(self, action: Any) -> Any:
            return super().step(action)._replace(done=done)

    env = as_gymnasium(Ended({}))
    env.reset()
    assert env.step(0)[2:4] == (True, False)


def test_wrappers_of_gymnasium_show_what_is_inside() -> None:
    env = gymnasium.wrappers.TimeLimit(as_gymnasium(DingEnvWrapper("CartPole-v1")), 5)
    assert str(env) == "<TimeLimit<DingEnvWrapper(CartPole-v1)>>"


# ---- what is no env ------------------------------------------------------------------------------


class Turns(pettingzoo.AECEnv):
    """One agent after the other."""

    metadata = {"name": "turns"}  # noqa: RUF012
    possible_agents = ["a"]  # noqa: RUF012

    def observation_space(self, agent: str) -> Any:
        return PAIR

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(2)


@pytest.mark.parametrize("adapt", [as_gymnasium, as_base_env])
@pytest.mark.parametrize("env", [5, "CartPole-v1", None, Duck(), Turns()])
def test_what_cannot_be_adapted_is_refused(adapt: Any, env: Any) -> None:
    with pytest.raises(
        ConfigError, match=rf"{adapt.__name__}: expected a gymnasium.Env, a BaseEnv, .* got a {type(env).__name__}"
    ):
        adapt(env)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_aec_env_is_named_with_the_way_to_a_parallel_one(backend: str) -> None:
    with pytest.raises(ConfigError, match=r"got a Turns, an AECEnv: pettingzoo.utils.conversions.aec_to_parallel"):
        stepmill.make(Turns, backend=backend)


def test_spaces_that_are_none_are_named() -> None:
    class Shapes(Walk):
        observation_space = (2,)  # type: ignore[assignment]

    with pytest.raises(ConfigError, match=r"observation_space: expected a gymnasium.spaces.Space, got \(2,\)"):
        stepmill.make(Shapes, backend="inline")


# ---- dm_env --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [object, np.complex64, "U3"])
def test_specs_without_numbers_are_refused(dtype: Any) -> None:
    with pytest.raises(SpaceError, match="expected arrays of numbers"):
        space_of_spec(specs.Array((2,), dtype))


class DmPair(dm_env.Environment):
    """Pays two rewards at once."""

    def reset(self) -> Any:
        return dm_env.restart(ZEROS)

    def step(self, action: Any) -> Any:
        return dm_env.transition(np.ones(2), ZEROS)

    def observation_spec(self) -> Any:
        return specs.Array((2,), np.float32)

    def action_spec(self) -> Any:
        return specs.DiscreteArray(2)


def test_a_dm_env_pays_one_number() -> None:
    env = as_gymnasium(DmPair())
    env.reset()
    with pytest.raises(EnvError, match=r"DmPair.*: step: expected one number as reward, got an array of shape \(2,\)"):
        env.step(0)
    assert env.render_mode is None
