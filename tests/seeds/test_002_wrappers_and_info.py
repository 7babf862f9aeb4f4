"""How to bring an env (seed 002), its advanced part: twelve wrappers, their shapes, and ``info()``."""

from __future__ import annotations

import copy
import functools
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import ale_py
import gymnasium as gym
import numpy as np
import pytest
from easydict import EasyDict
from gymnasium import spaces

import stepmill
from stepmill import wrappers
from stepmill.envs import BaseEnv, BaseEnvInfo, BaseEnvTimestep, to_ndarray
from stepmill.envs.common.env_element import EnvElementInfo
from stepmill.errors import ConfigError
from stepmill.wrappers import (
    ClipRewardEnv,
    EpisodicLifeEnv,
    FireResetEnv,
    FrameStack,
    MaxAndSkipEnv,
    NoopResetEnv,
    ObsNormEnv,
    ObsTransposeWrapper,
    RamWrapper,
    RewardNormEnv,
    ScaledFloatFrame,
    WarpFrame,
    update_shape,
)
from support.envs.scripted import RAM, RGB, VECTOR, ChanceEnv, Moment, ScriptEnv
from support.seed_runs import MANAGERS, OldGym, assert_same, manager_of, play, pool_of

PONG = "PongNoFrameskip-v4"

gym.register_envs(ale_py)


@pytest.fixture(autouse=True)
def _global_generator_restored() -> Iterator[None]:
    """The document's ``seed`` seeds numpy's own generator."""
    state = np.random.get_state()
    yield
    np.random.set_state(state)


# ---- advanced 1: what each wrapper does ----------------------------------------------------------


def script(*values: float, **first: Any) -> list[Moment]:
    """Frames of these values, the last of which ends the game."""
    last = len(values) - 1
    return [Moment(value, end="terminated" if i == last else "", **first) for i, value in enumerate(values)]


def test_noop_reset_snippet() -> None:
    """The two lines of the document, on Pong: some no-ops have passed when reset returns."""
    env = gym.make(PONG)
    env = NoopResetEnv(env)
    assert isinstance(env, gym.Wrapper)
    obs, info = env.reset(seed=0)
    assert obs.shape == (210, 160, 3)
    assert 1 <= info["frame_number"] <= 30
    env.close()


def test_noop_reset_takes_a_random_number_of_no_ops() -> None:
    """NoopResetEnv: after each reset, another number of them."""
    counts = []
    for seed in range(8):
        inner = ScriptEnv(script(*range(40)))
        NoopResetEnv(inner, noop_max=5).reset(seed=seed)
        assert set(inner.calls[1:]) == {0}
        counts.append(len(inner.calls) - 1)
    assert set(counts) <= set(range(1, 6))
    assert len(set(counts)) > 1


def test_differs_no_ops_are_drawn_from_the_envs_generator() -> None:
    """There from numpy's global one. Here the same seed gives the same number, whatever else draws."""
    lengths = set()
    for _ in range(4):
        inner = ScriptEnv(script(*range(40)))
        NoopResetEnv(inner).reset(seed=3)
        lengths.add(len(inner.calls))
        np.random.random()
    assert len(lengths) == 1


def test_max_and_skip_is_a_maximum_over_frames() -> None:
    """MaxAndSkipEnv: the action goes on for some frames, of which the pixels' largest values are seen."""
    env = MaxAndSkipEnv(ScriptEnv([Moment(0), Moment(9, 1.0), Moment(2, 1.0), Moment(7, 1.0), Moment(5, 1.0)]), skip=4)
    env.reset()
    obs, reward, *_ = env.step(2)
    assert obs.tolist() == [7, 7]
    assert reward == 4.0


def test_differs_max_and_skip_looks_at_the_last_two_frames() -> None:
    """The document says a few frames; an early peak does not last until the next action, as in DeepMind's Atari."""
    env = MaxAndSkipEnv(ScriptEnv(script(0, 9, 2, 3, 1, 0)), skip=4)
    env.reset()
    assert env.step(2)[0].tolist() == [3, 3]


def test_warp_frame_is_grey_and_84_by_84() -> None:
    """WarpFrame: cv2 makes it grey and resizes it."""
    env = WarpFrame(ChanceEnv(spaces.Box(0, 255, (210, 160, 3), np.uint8)))
    obs, _ = env.reset(seed=0)
    assert (obs.shape, obs.dtype) == ((84, 84), np.uint8)
    assert WarpFrame(ChanceEnv(RGB), size=5).reset(seed=0)[0].shape == (5, 5)


def test_scaled_float_frame_is_from_0_to_1() -> None:
    """ScaledFloatFrame: float32."""
    env = ScaledFloatFrame(ScriptEnv(script(0, 51, 255)))
    obs, _ = env.reset()
    seen = [obs, env.step(0)[0], env.step(0)[0]]
    assert [float(one[0]) for one in seen] == pytest.approx([0.0, 0.2, 1.0])
    assert seen[0].dtype == env.observation_space.dtype == np.float32


def test_clip_reward_is_the_sign() -> None:
    """ClipRewardEnv: +1, 0 or -1."""
    env = ClipRewardEnv(ScriptEnv([Moment(0), Moment(0, 7.5), Moment(0, 0.0), Moment(0, -0.1)]))
    env.reset()
    assert [env.step(0)[1] for _ in range(3)] == [1.0, 0.0, -1.0]


def test_frame_stack_shows_the_last_four() -> None:
    """FrameStack: so that a direction can be seen; at reset the first frame four times."""
    env = FrameStack(ScriptEnv(script(1, 2, 3)))
    assert env.reset()[0][:, 0].tolist() == [1, 1, 1, 1]
    env.step(0)
    assert env.step(0)[0][:, 0].tolist() == [1, 1, 2, 3]
    assert env.observation_space.shape == (4, 2)


def test_obs_transpose_puts_channels_first() -> None:
    """ObsTransposeWrapper: (H, W, C) to (C, H, W), the same pixels."""
    plain, env = ChanceEnv(RGB), ObsTransposeWrapper(ChanceEnv(RGB))
    np.testing.assert_array_equal(env.reset(seed=1)[0], plain.reset(seed=1)[0].transpose(2, 0, 1))


def test_obs_norm_uses_a_running_mean_and_deviation() -> None:
    """ObsNormEnv: by RunningMeanStd, over all observations so far."""
    env = ObsNormEnv(ChanceEnv(spaces.Box(5.0, 9.0, (3,), np.float32)))
    seen = [env.reset(seed=0)[0]] + [env.step(0)[0] for _ in range(400)]
    assert isinstance(env.statistics, wrappers.RunningMeanStd)
    np.testing.assert_allclose(np.mean(seen[200:], 0), 0, atol=0.3)
    np.testing.assert_allclose(np.std(seen[200:], 0), 1, atol=0.2)


def test_reward_norm_uses_a_running_deviation() -> None:
    """RewardNormEnv: by RunningMeanStd, of the returns; large rewards come out of a usual size."""
    env = RewardNormEnv(ScriptEnv([Moment(0)] + [Moment(0, 1000.0 * (i % 3)) for i in range(300)]))
    env.reset()
    rewards = [env.step(0)[1] for _ in range(300)]
    assert isinstance(env.statistics, wrappers.RunningMeanStd)
    assert 0.1 < max(rewards[10:]) < 10


def test_ram_wrapper_makes_an_image_of_128_bytes() -> None:
    """RamWrapper: (128, 1, 1)."""
    env = RamWrapper(ChanceEnv(RAM))
    assert env.reset(seed=0)[0].shape == env.observation_space.shape == (128, 1, 1)


def test_episodic_life_ends_with_a_life() -> None:
    """EpisodicLifeEnv: a lost life ends the episode, and the game goes on with the next."""
    game = [
        Moment(0, lives=2),
        Moment(1, lives=2),
        Moment(2, lives=1),
        Moment(3, lives=1),
        Moment(4, lives=0, end="terminated"),
    ]
    inner = ScriptEnv(game)
    env = EpisodicLifeEnv(inner)
    env.reset()
    assert [env.step(1)[2] for _ in range(2)] == [False, True]
    env.reset()
    assert env.step(1)[2]
    assert [call for call in inner.calls if not isinstance(call, int)] == [("reset", None, None)]


def test_fire_reset_takes_action_1() -> None:
    """FireResetEnv: right after reset."""
    inner = ScriptEnv(script(0, 1, 2))
    assert FireResetEnv(inner).reset()[0].tolist() == [1, 1]
    assert inner.calls == [("reset", None, None), 1]


class Doubled(gym.ObservationWrapper):
    """A wrapper of one's own: everything twice."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        (size,) = env.observation_space.shape
        self.observation_space = spaces.Box(-np.inf, np.inf, (2 * size,), np.float32)

    @staticmethod
    def new_shape(obs_shape: Any, act_shape: Any, rew_shape: Any) -> Any:
        return (2 * obs_shape[0],), act_shape, rew_shape

    def observation(self, observation: Any) -> Any:
        return np.tile(observation, 2)


def test_wrappers_of_ones_own() -> None:
    """After the list: whatever is missing there is written as any wrapper, and works beside ours."""
    env = FrameStack(Doubled(ChanceEnv(VECTOR)))
    assert env.reset(seed=0)[0].shape == (4, 6)
    assert update_shape((3,), (4,), (1,), [Doubled, "FrameStack"]) == ((4, 6), (4,), (1,))


# ---- advanced 1: new_shape -----------------------------------------------------------------------

SHAPES = {
    "NoopResetEnv": (RGB, (10, 12, 3)),
    "MaxAndSkipEnv": (RGB, (10, 12, 3)),
    "WarpFrame": (RGB, (84, 84)),
    "ScaledFloatFrame": (RGB, (10, 12, 3)),
    "ClipRewardEnv": (RGB, (10, 12, 3)),
    "FrameStack": (VECTOR, (4, 3)),
    "ObsTransposeWrapper": (RGB, (3, 10, 12)),
    "ObsNormEnv": (VECTOR, (3,)),
    "RewardNormEnv": (VECTOR, (3,)),
    "RamWrapper": (RAM, (128, 1, 1)),
    "EpisodicLifeEnv": (RGB, (10, 12, 3)),
    "FireResetEnv": (RGB, (10, 12, 3)),
}


def my_update_shape(obs_shape: Any, act_shape: Any, rew_shape: Any, wrapper_names: Any) -> Any:
    """The function as a reader of the document writes it."""
    for wrapper_name in wrapper_names:
        if wrapper_name:
            try:
                obs_shape, act_shape, rew_shape = eval(wrapper_name).new_shape(obs_shape, act_shape, rew_shape)
            except Exception:
                continue
    return obs_shape, act_shape, rew_shape


@pytest.mark.parametrize("name", SHAPES)
def test_new_shape_is_static_and_true(name: str) -> None:
    """Each wrapper tells the three shapes without an env, and they are those of the wrapped env."""
    space, expected = SHAPES[name]
    cls = getattr(wrappers, name)
    assert issubclass(cls, gym.Wrapper)
    assert isinstance(vars(cls).get("new_shape", wrappers.ShapeTeller.__dict__["new_shape"]), staticmethod)
    assert cls.new_shape(space.shape, (4,), (1,)) == (expected, (4,), (1,))
    assert cls(ChanceEnv(space)).observation_space.shape == expected
    assert my_update_shape(space.shape, (4,), (1,), [name]) == update_shape(space.shape, (4,), (1,), [name])


def test_differs_ram_wrapper_tells_the_truth_for_other_lengths() -> None:
    """There (128, 1, 1) whatever goes in; here the length that goes in."""
    assert RamWrapper.new_shape((64,), (4,), (1,))[0] == (64, 1, 1)


# ---- advanced 2: info of CartPole ----------------------------------------------------------------


class CartpoleEnv(BaseEnv):
    """Its ``info`` is the document's, which needs the simulator that the first reset builds."""

    def __init__(self, cfg: dict) -> None:
        self._cfg = cfg
        self._init_flag = False

    def reset(self) -> np.ndarray:
        if not self._init_flag:
            self._env = OldGym(gym.make("CartPole-v1", max_episode_steps=5))
            self._init_flag = True
        if hasattr(self, "_seed"):
            self._env.seed(self._seed)
        self._final_eval_reward = 0.0
        return to_ndarray(self._env.reset())

    def step(self, action: np.ndarray) -> BaseEnvTimestep:
        obs, rew, done, info = self._env.step(action.item())
        self._final_eval_reward += rew
        if done:
            info["final_eval_reward"] = self._final_eval_reward
        return BaseEnvTimestep(to_ndarray(obs), to_ndarray([rew]), done, info)

    def seed(self, seed: int, dynamic_seed: bool = True) -> None:
        self._seed = seed

    def close(self) -> None:
        if self._init_flag:
            self._env.close()
        self._init_flag = False

    def info(self) -> BaseEnvInfo:
        obs_space = self._env.observation_space
        act_space = self._env.action_space
        return BaseEnvInfo(
            agent_num=1,
            obs_space=EnvElementInfo(
                shape=obs_space.shape,
                value={"min": obs_space.low, "max": obs_space.high, "dtype": np.float32},
            ),
            act_space=EnvElementInfo(
                shape=(act_space.n,),
                value={"min": 0, "max": act_space.n, "dtype": np.float32},
            ),
            rew_space=EnvElementInfo(
                shape=1,
                value={"min": -1, "max": 1, "dtype": np.float32},
            ),
            use_wrappers=None,
        )

    def __repr__(self) -> str:
        return "CartpoleEnv"


def test_info_fields() -> None:
    """The definitions below the snippet: five fields and two, by name, and they can be set."""
    assert BaseEnvInfo._fields == ("agent_num", "obs_space", "act_space", "rew_space", "use_wrappers")
    assert EnvElementInfo._fields[:2] == ("shape", "value")
    element = EnvElementInfo((2,), None)
    element.shape = (3,)
    assert (element.shape, element.value, element[0]) == ((3,), None, (3,))
    info = BaseEnvInfo(1, element, element, element, use_wrappers=None)
    info.use_wrappers = "FrameStack"
    assert info[4] == info.use_wrappers == "FrameStack"


def test_info_snippet() -> None:
    """Cartpole's info: shape and dtype of observation, action and reward."""
    env = CartpoleEnv({})
    env.reset()
    info = env.info()
    assert (info.agent_num, info.obs_space.shape, info.act_space.shape, info.rew_space.shape) == (1, (4,), (2,), 1)
    assert info.obs_space.value["dtype"] is np.float32
    assert info.use_wrappers is None
    env.close()


@pytest.mark.parametrize("way", ["alone", "inline", "serial", "subprocess"])
def test_info_that_needs_the_simulator_runs_everywhere(way: str) -> None:
    """Cartpole's info is known only after a reset, and says float32 for its actions: it runs all the same."""
    ((episode,), _) = play(way, CartpoleEnv, [{}, {}])
    assert episode.info["final_eval_reward"] == sum(episode.rewards) == 5.0
    assert_same([[episode]], [play("alone", CartpoleEnv, [{}])[0]])


def test_info_gives_the_spaces() -> None:
    """What networks and shared memory need of it: ``shape=(n,)`` from 0 to n is a choice among n."""
    with pool_of("inline", CartpoleEnv, [{}]) as pool:
        assert pool.single_observation_space.shape == (4,)
        assert pool.single_observation_space.dtype == np.float32
        assert pool.single_action_space == spaces.Discrete(2)
    with manager_of("serial", CartpoleEnv, [{}]) as manager:
        assert manager.env_info.obs_space.shape == (4,)
        manager.launch()
        assert manager.env_info.act_space.shape == (2,)
        assert manager.action_space == spaces.Discrete(2)
        assert manager.reward_space.shape == (1,)
        assert set(manager.random_action()) == {0}


# ---- advanced 2: info of Atari -------------------------------------------------------------------


def _pixels(act_dim: int) -> BaseEnvInfo:
    return BaseEnvInfo(
        agent_num=1,
        obs_space=EnvElementInfo(shape=(210, 160, 3), value={"min": 0, "max": 255, "dtype": np.float32}),
        act_space=EnvElementInfo(shape=(act_dim,), value={"min": 0, "max": act_dim, "dtype": np.int64}),
        rew_space=EnvElementInfo(shape=1, value={"min": -1, "max": 1, "dtype": np.float32}),
        use_wrappers=None,
    )


ATARIENV_INFO_DICT = {PONG: _pixels(6)}


class AtariEnv(CartpoleEnv):
    """The document's Atari: wrappers by the cfg, and an info that they have changed."""

    def _make_env(self, only_info: bool = False) -> Any:
        chain = [(NoopResetEnv, {"noop_max": 3}), (MaxAndSkipEnv, {}), (WarpFrame, {}), (ScaledFloatFrame, {})]
        chain += [(ClipRewardEnv, {})] if self._cfg.is_train else []
        chain += [(FrameStack, {"n_frames": 4})]
        if only_info:
            return "\n".join(cls.__name__ for cls, _ in chain)
        env = gym.make(self._cfg.env_id, max_episode_steps=40)
        for cls, kwargs in chain:
            env = cls(env, **kwargs)
        return OldGym(env)

    def reset(self) -> np.ndarray:
        if not self._init_flag:
            self._env = self._make_env(only_info=False)
            self._init_flag = True
        return super().reset()

    def info(self) -> BaseEnvInfo:
        if self._cfg.env_id in ATARIENV_INFO_DICT:
            info = copy.deepcopy(ATARIENV_INFO_DICT[self._cfg.env_id])
            info.use_wrappers = self._make_env(only_info=True)
            obs_shape, act_shape, rew_shape = update_shape(
                info.obs_space.shape, info.act_space.shape, info.rew_space.shape, info.use_wrappers.split("\n")
            )
            info.obs_space.shape = obs_shape
            info.act_space.shape = act_shape
            info.rew_space.shape = rew_shape
            return info
        raise NotImplementedError(f"{self._cfg.env_id} not found in ATARIENV_INFO_DICT [{ATARIENV_INFO_DICT.keys()}]")


TRAIN = EasyDict(env_id=PONG, is_train=True)


def test_info_through_wrappers() -> None:
    """Atari's info: a copy of the table's entry, with its attributes set to what the wrappers make of them."""
    info = AtariEnv(TRAIN).info()
    assert (info.obs_space.shape, info.act_space.shape, info.rew_space.shape) == ((4, 84, 84), (6,), 1)
    assert info.use_wrappers.split("\n")[:2] == ["NoopResetEnv", "MaxAndSkipEnv"]
    assert ATARIENV_INFO_DICT[PONG].obs_space.shape == (210, 160, 3)


@functools.cache
def _atari_alone() -> Any:
    return play("alone", AtariEnv, [TRAIN])


@pytest.mark.parametrize("way", ["inline", "subprocess"])
def test_atari_env_of_ones_own(way: str) -> None:
    """The whole AtariEnv: pictures of the wrappers' shape and type, alone, in pools and in managers."""
    ((episode,),) = played = play(way, AtariEnv, [TRAIN])
    assert episode.observations[0].shape == (4, 84, 84)
    assert episode.observations[0].dtype == np.float32
    assert set(episode.rewards) <= {-1.0, 0.0, 1.0}
    assert_same(played, _atari_alone())


def test_atari_env_without_its_package_imported() -> None:
    """Gymnasium knows Atari's ids once ``import ale_py`` has run: an error says that this line is missing."""
    code = f"""
import gymnasium, numpy, stepmill
from gymnasium import spaces
from stepmill.envs import BaseEnv

class AtariEnv(BaseEnv):
    observation_space, action_space = spaces.Box(0, 255, (210, 160, 3), numpy.uint8), spaces.Discrete(6)
    def reset(self):
        self._env = gymnasium.make({PONG!r})
        return self._env.reset()[0]
    def step(self, action): ...
    def close(self): ...

try:
    stepmill.make(AtariEnv, backend="inline").reset()
except stepmill.StepmillError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "import ale_py" in done.stdout


@pytest.mark.parametrize("way", MANAGERS)
def test_info_of_an_unknown_game(way: str) -> None:
    """The last branch: NotImplementedError, which a caller of the manager can catch as such."""
    cfg = EasyDict(env_id="Tennis2000-v0", is_train=True)
    with pytest.raises(NotImplementedError, match="Tennis2000-v0"):
        AtariEnv(cfg).info()
    with manager_of(way, AtariEnv, [cfg]) as manager, pytest.raises(NotImplementedError, match="Tennis2000-v0"):
        manager.launch()


@pytest.mark.parametrize("names", [["FrameStack", "", "ClipRewardEnv"], "FrameStack\n\nClipRewardEnv", []])
def test_update_shape_skips_empty_names(names: Any) -> None:
    """``update_shape``: one name after another, empty ones left out."""
    listed = names.split("\n") if isinstance(names, str) else names
    assert update_shape((3,), (2,), 1, names) == my_update_shape((3,), (2,), 1, listed)


def test_differs_update_shape_refuses_unknown_names() -> None:
    """There a wrapper that cannot be found or fails is passed over, and the shapes are silently wrong."""
    assert my_update_shape((3,), (2,), 1, ["FrameStak"]) == ((3,), (2,), 1)
    with pytest.raises(ConfigError, match=r"FrameStak.*FrameStack"):
        update_shape((3,), (2,), 1, ["FrameStak"])
    with pytest.raises(ConfigError, match="WarpFrame"):
        update_shape((3,), (2,), 1, ["WarpFrame"])


def test_info_names_wrappers_that_are_not_ours() -> None:
    """``use_wrappers``: the names are those of all wrappers, one's own too."""
    env = stepmill.envs.DingEnvWrapper("CartPole-v1", {"env_wrapper": [Doubled, "FrameStack"]})
    assert env.info().use_wrappers == "Doubled\nFrameStack"
    assert env.info().obs_space.shape == (4, 8)
    env.close()
    assert wrappers.wrapper_names([Doubled, "FrameStack"]) == "Doubled\nFrameStack"


def test_cfg_decides_on_wrappers() -> None:
    """Advanced 4 on Atari: signs of rewards in training alone; ``use_wrappers`` says so."""
    names = [AtariEnv(EasyDict(env_id=PONG, is_train=is_train)).info().use_wrappers for is_train in (True, False)]
    assert ["ClipRewardEnv" in one for one in names] == [True, False]
