"""The pool interface, from the document that describes it: ``make``, the calls of a pool, actions, results.

Each test names its passage. Its programs are written as a reader of the document would write them, with one line
exchanged: ``import stepmill as envpool``. What differs on purpose is a test too, and says why. The last two
sections of the document are in ``test_003_batches.py``.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import dm_env
import gymnasium
import numpy as np
import pytest
from dm_env import StepType, specs
from gymnasium import spaces

import stepmill as envpool
from stepmill import _native
from stepmill.errors import ActionError, ConfigError, EnvError, EnvIdError, UnsupportedError
from support.envs import DiscountEnv, ProbeTwin, draws
from support.envs.adapted import TagEnv
from support.envs.many_spaces import SpaceEnv
from support.probes import assert_same, seen

VIEWS = ("gym", "dm")  # those of the document
EVERY_VIEW = pytest.mark.parametrize("view", VIEWS)

pytestmark = pytest.mark.usefixtures("deadline")


def defaults() -> dict[str, Any]:
    return {one.name: one.default for one in inspect.signature(envpool.make).parameters.values()}


# ---- envpool.make: its arguments, row by row -----------------------------------------------------


@pytest.mark.parametrize("id", ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "Pong-v5", "Breakout-v5"])
def test_task_id_is_one_of_those_that_list_all_envs_shows(id: str) -> None:
    """make, task_id."""
    assert id in envpool.list_all_envs()
    assert envpool.make_spec(id).config["task_id"] == id


def test_an_unknown_task_id_is_refused() -> None:
    """make, task_id."""
    with pytest.raises(KeyError, match="CartPole-v1"):
        envpool.make("CartPol-v1")


def test_env_type_is_gym_or_dm(make: Any) -> None:
    """make, env_type: which of the two interfaces; both words, by position and by name."""
    for pool in (make("CartPole-v1", "gym"), make("CartPole-v1", env_type="gym")):
        assert isinstance(pool.observation_space, spaces.Box)
        assert len(pool.step(np.zeros(1, int))) == 4
    for pool in (make("CartPole-v1", "dm"), make("CartPole-v1", env_type="dm")):
        assert isinstance(pool.observation_spec(), specs.BoundedArray)
        assert isinstance(pool.step(np.zeros(1, int)), dm_env.TimeStep)


def test_env_type_is_gymnasium_if_none_is_given(make: Any) -> None:
    """make, env_type. There is a third word here, which is the default: it tells ends from time limits."""
    assert defaults()["env_type"] == "gymnasium"
    assert isinstance(make("CartPole-v1"), gymnasium.vector.VectorEnv)
    with pytest.raises(ConfigError, match="'gymnasium', 'gym', 'dm'"):
        envpool.make("CartPole-v1", env_type="gym3")


@EVERY_VIEW
def test_num_envs_is_1_by_default(make: Any, view: str) -> None:
    """make, num_envs."""
    assert defaults()["num_envs"] == 1
    assert make("CartPole-v1", view).num_envs == 1
    assert make("CartPole-v1", view, num_envs=5).num_envs == 5


@EVERY_VIEW
def test_batch_size_is_num_envs_by_default(make: Any, view: str) -> None:
    """make, batch_size."""
    assert make("CartPole-v1", view, num_envs=5).config["batch_size"] == 5
    assert make("CartPole-v1", view, num_envs=5, batch_size=3).config["batch_size"] == 3


def test_num_threads_is_batch_size_by_default_but_at_most_the_cores(make: Any) -> None:
    """make, num_threads. More threads than cores take time from each other; whoever asks for them has them."""
    cores = _native.available_cores()
    assert make("CartPole-v1", "gym", num_envs=8, batch_size=1).config["num_threads"] == 1
    assert make("CartPole-v1", "gym", num_envs=64, batch_size=48).config["num_threads"] == min(48, cores)
    assert make("CartPole-v1", "gym", num_envs=8, num_threads=cores + 1).config["num_threads"] == min(8, cores + 1)


@EVERY_VIEW
def test_env_i_is_seeded_with_i_plus_seed_and_seed_is_42_by_default(make: Any, view: str) -> None:
    """make, seed."""
    assert defaults()["seed"] == 42
    for given, first in (({}, 42), ({"seed": 7}, 7)):
        timestep = seen(view, make("Probe-v0", view, num_envs=3, **given).step(np.zeros(3)))
        assert timestep.obs[:, 0].tolist() == [draws(first + i, 1)[0] for i in range(3)]


@pytest.mark.parametrize(("given", "limit"), [({}, 500), ({"max_episode_steps": 3}, 3)])
def test_max_episode_steps_is_the_env_s_own_by_default(make: Any, given: dict[str, int], limit: int) -> None:
    """make, max_episode_steps."""
    assert make("CartPole-v1", "gym", **given).config["max_episode_steps"] == limit


def test_max_episode_steps_of_atari_are_108000_frames() -> None:
    """make, max_episode_steps. It counts steps here, of four frames each, in Atari as everywhere: the same limit."""
    config = envpool.make_spec("Pong-v5").config
    assert config["max_episode_steps"] * config["frame_skip"] == 108_000


@pytest.mark.parametrize("id", ["CartPole-v1", "Pong-v5"])
def test_max_num_players_is_1_in_envs_of_one_agent(id: str) -> None:
    """make, max_num_players."""
    assert envpool.make_spec(id).config["max_num_players"] == 1
    assert envpool.make_spec(id, max_num_players=1).config["max_num_players"] == 1


def test_max_num_players_bounds_the_rows_of_an_env_of_many(make: Any) -> None:
    """make, max_num_players: for envs of many agents."""
    pool = make("TemplatePlayers-v0", "gym", num_envs=2, max_num_players=3, join=1.0)
    assert pool.config["max_num_players"] == 3
    obs = pool.reset()
    for _ in range(3):
        obs, _, _, info = pool.step(np.zeros(len(obs), int))
        assert max(np.bincount(info["players"]["env_id"])) <= 3


@EVERY_VIEW
def test_thread_affinity_offset_is_minus_1_by_default(make: Any, view: str) -> None:
    """make, thread_affinity_offset: -1 binds no thread, a number binds from that one on."""
    assert defaults()["thread_affinity_offset"] == -1
    assert make("CartPole-v1", view).config["thread_affinity_offset"] == -1
    pool = make("CartPole-v1", view, num_envs=4, thread_affinity_offset=0)
    assert pool.config["thread_affinity_offset"] == 0
    assert seen(view, pool.step(np.zeros(4, int))).ids == [0, 1, 2, 3]


ATARI = {"img_height": 60, "img_width": 70, "stack_num": 3, "frame_skip": 2, "noop_max": 5}


@pytest.mark.parametrize("key", ATARI)
def test_other_configurations_of_atari(key: str) -> None:
    """make, other configurations: those of Atari, one by one."""
    assert envpool.make_spec("Pong-v5", **{key: ATARI[key]}).config[key] == ATARI[key]


def test_other_configurations_of_atari_change_what_is_seen(make: Any) -> None:
    """make, other configurations: those of Atari, all at once, in the spec and in the pool."""
    assert envpool.make_spec("Pong-v5", **ATARI).observation_space.shape == (3, 60, 70)
    pool = make("Pong-v5", "gym", num_envs=2, backend="inline", **ATARI)
    assert pool.reset().shape == (2, 3, 60, 70)
    _, _, _, info = pool.step(np.zeros(2, int))
    assert (info["elapsed_step"] == 1).all()


def test_reward_metric_of_vizdoom() -> None:
    """make, other configurations: what ViZDoom's rewards are; its later name in the spec."""
    pytest.importorskip("vizdoom")
    metric = {"KILLCOUNT": (1.0, 0.0)}
    assert envpool.make_spec("Basic-v1", reward_metric=metric).config["reward_config"] == metric
    for make in (envpool.make_spec, envpool.make):
        with pytest.raises(ConfigError, match="reward_metric: "):
            make("Basic-v1", reward_metric="x")


def test_lmp_save_dir_of_vizdoom(tmp_path: Path) -> None:
    """make, other configurations: where ViZDoom's recordings go."""
    pytest.importorskip("vizdoom")
    assert envpool.make_spec("Basic-v1").config["lmp_save_dir"] == ""
    assert envpool.make_spec("Basic-v1", lmp_save_dir=str(tmp_path)).config["lmp_save_dir"] == str(tmp_path)


def test_other_configurations_that_the_env_does_not_have_are_refused() -> None:
    """make, other configurations: a key of another family."""
    with pytest.raises(ConfigError, match="img_height"):
        envpool.make("CartPole-v1", img_height=84)


# ---- envpool.make: spaces and shortcuts ----------------------------------------------------------


@pytest.mark.parametrize(("id", "shape"), [("Pong-v5", (4, 84, 84)), ("Basic-v1", (12, 84, 84))])
def test_pictures_are_channel_first(id: str, shape: tuple[int, ...]) -> None:
    """make: the observation space is that of a single env, channels first."""
    if id == "Basic-v1":
        pytest.importorskip("vizdoom")
    spec = envpool.make_spec(id, num_envs=5)
    assert spec.observation_space.shape == spec.observation_spec().shape == shape


@pytest.mark.parametrize(("batch_size", "rows"), [(None, 4), (4, 4), (2, 2)], ids=["sync", "sync by name", "async"])
def test_spaces_are_those_of_one_env_and_batches_have_a_row_per_env(make: Any, batch_size: Any, rows: int) -> None:
    """make: the first dimension is ``num_envs`` in sync mode, ``batch_size`` in async mode."""
    gym = make("CartPole-v1", "gym", num_envs=4, batch_size=batch_size)
    dm = make("CartPole-v1", "dm", num_envs=4, batch_size=batch_size)
    assert gym.observation_space.shape == dm.observation_spec().shape == (4,)
    assert gym.action_space.n == dm.action_spec().num_values == 2
    for view, pool in (("gym", gym), ("dm", dm)):
        pool.async_reset()
        for _ in range(5):
            batch = seen(view, pool.recv())
            assert batch.obs.shape == (rows, 4)
            assert len(batch.reward) == len(batch.done) == len(batch.ids) == rows
            pool.send(np.zeros(rows, int), np.array(batch.ids))


def test_spaces_of_the_gymnasium_view_are_batched(make: Any) -> None:
    """make: the single env's spaces. Those of the view that is added here are batched, as in Gymnasium."""
    pool = make("CartPole-v1", num_envs=3)
    assert pool.observation_space.shape == (3, 4)
    assert pool.single_observation_space.shape == (4,)


@pytest.mark.parametrize("view", VIEWS)
def test_make_gym_and_make_dm_are_shortcuts(make: Any, view: str) -> None:
    """make: its two shortcuts."""
    shortcut = getattr(envpool, f"make_{view}")
    with shortcut("Probe-v0", num_envs=3, seed=5, length=2) as pool:
        same = make("Probe-v0", env_type=view, num_envs=3, seed=5, length=2)
        assert type(pool) is type(same)
        for _ in range(5):
            assert_same(pool.step(np.full(3, 0.5)), same.step(np.full(3, 0.5)))


# ---- envpool.make_spec ---------------------------------------------------------------------------


def test_make_spec_has_the_arguments_of_make() -> None:
    """make_spec: the same arguments."""
    of_make, of_spec = (list(inspect.signature(one).parameters) for one in (envpool.make, envpool.make_spec))
    assert of_spec == of_make
    spec = envpool.make_spec("CartPole-v1", env_type="gym", num_envs=4, batch_size=2, seed=7, max_episode_steps=9)
    assert [spec.config[name] for name in ("num_envs", "batch_size", "max_episode_steps")] == [4, 2, 9]
    assert spec.config["seed"] == [7, 8, 9, 10], "one per env"


@pytest.mark.parametrize("id", ["CartPole-v1", "Pendulum-v1", "Blackjack-v1", "Pong-v5"])
def test_make_spec_tells_what_the_pools_have(make: Any, id: str) -> None:
    """make_spec: the four questions, and that a pool answers the same."""
    spec = envpool.make_spec(id, num_envs=2)
    gym, dm = make(id, "gym", num_envs=2, backend="inline"), make(id, "dm", num_envs=2, backend="inline")
    assert spec.observation_space == gym.observation_space
    assert spec.action_space == gym.action_space
    assert repr(spec.observation_spec()) == repr(dm.observation_spec())
    assert repr(spec.action_spec()) == repr(dm.action_spec())


def test_make_spec_builds_no_env() -> None:
    """make_spec: for those who do not want to create an env."""
    assert envpool.make_spec("Probe-v0", fail_in="constructor").observation_space.shape == (2,)
    with pytest.raises(EnvError):
        envpool.make("Probe-v0", fail_in="constructor")


def test_make_spec_of_an_env_in_python_builds_one_and_closes_it() -> None:
    """make_spec. The document has envs in C++ only; one in Python has to exist to tell its spaces."""
    built: list[ProbeTwin] = []

    def build() -> ProbeTwin:
        built.append(ProbeTwin())
        return built[-1]

    assert envpool.make_spec(build, num_envs=3).observation_space.shape == (2,)
    assert [env.closed for env in built] == [True]


# ---- extended API --------------------------------------------------------------------------------


@EVERY_VIEW
def test_reset_of_all_envs(make: Any, view: str) -> None:
    """Extended API, reset without ids."""
    pool = make("Probe-v0", view, num_envs=3, seed=5)
    result = pool.reset()
    obs = result if view == "gym" else result.observation.obs
    assert obs[:, 0].tolist() == [draws(5 + i, 1)[0] for i in range(3)]
    assert_same(make("Probe-v0", view, num_envs=3, seed=5).reset(None), result)


@EVERY_VIEW
def test_reset_of_given_ids(make: Any, view: str) -> None:
    """Extended API, reset with ids: those envs are reset, and their observations returned, in the order of the ids."""
    pool = make("Probe-v0", view, num_envs=4, seed=5)
    pool.reset()
    pool.step(np.zeros(4))
    result = pool.reset(np.array([2, 0]))
    obs = result if view == "gym" else result.observation.obs
    assert obs.tolist() == [[draws(7, 2)[1], 0], [draws(5, 2)[1], 0]]
    assert seen(view, pool.step(np.zeros(4))).elapsed == [1, 2, 1, 2]


@EVERY_VIEW
def test_reset_names_its_ids_as_the_other_calls_do(make: Any, view: str) -> None:
    """Extended API, reset: ``id`` there, ``env_id`` here, as ``send`` and ``step`` have it in both."""
    pool = make("Probe-v0", view, num_envs=4)
    result = pool.reset(env_id=np.array([3]))
    assert len(result if view == "gym" else result.observation.obs) == 1
    with pytest.raises(TypeError, match="'id'"):
        pool.reset(id=np.array([3]))


@EVERY_VIEW
def test_async_reset_returns_nothing_and_recv_the_results(make: Any, view: str) -> None:
    """Extended API, async_reset."""
    pool = make("Probe-v0", view, num_envs=3, seed=5)
    assert pool.async_reset() is None
    batch = seen(view, pool.recv())
    assert (batch.ids, batch.elapsed, batch.done.tolist()) == ([0, 1, 2], [0] * 3, [False] * 3)


@EVERY_VIEW
def test_send_returns_nothing_and_recv_the_results_with_their_ids(make: Any, view: str) -> None:
    """Extended API, send and recv: the ids are in ``info["env_id"]`` (gym)."""
    pool = make("Probe-v0", view, num_envs=3)
    pool.reset()
    assert pool.send(np.array([0.25, 0.5]), np.array([2, 1])) is None
    result = pool.recv()
    assert seen(view, result).reward.tolist() == [0.25, 0.5]
    ids = result[3]["env_id"] if view == "gym" else result.observation.env_id
    assert (ids.tolist(), ids.dtype) == ([2, 1], np.int32)


def test_ids_of_the_dm_view_are_beside_the_observation(make: Any) -> None:
    """Extended API, recv: ``observation.obs.env_id`` there. Here ``obs`` is a plain array, with the ids beside it."""
    timestep = make("CartPole-v1", "dm", num_envs=2).reset()
    assert timestep.observation.env_id.tolist() == timestep.observation.info["env_id"].tolist() == [0, 1]
    assert type(timestep.observation.obs) is np.ndarray


@EVERY_VIEW
def test_step_of_ids(make: Any, view: str) -> None:
    """Extended API, step: an action for each of the ids, and the results of these envs."""
    pool = make("Probe-v0", view, num_envs=4)
    pool.reset()
    batch = seen(view, pool.step(np.array([0.25, 0.5]), env_id=np.array([3, 1])))
    assert (batch.ids, batch.reward.tolist(), batch.elapsed) == ([3, 1], [0.25, 0.5], [1, 1])
    batch = seen(view, pool.step(np.zeros(4)))
    assert (batch.ids, batch.elapsed) == ([0, 1, 2, 3], [1, 2, 1, 2])


@pytest.mark.parametrize(
    ("actions", "ids"), [(np.zeros(2), [0, 1, 2]), (np.zeros(3), [0, 1])], ids=["too few actions", "too many"]
)
@EVERY_VIEW
def test_step_wants_as_many_actions_as_ids(make: Any, view: str, actions: np.ndarray, ids: list[int]) -> None:
    """Extended API, step: there are as many actions as ids."""
    pool = make("Probe-v0", view, num_envs=4)
    pool.reset()
    with pytest.raises(ActionError, match=f"{len(ids)}.*got.*{len(actions)}"):
        pool.step(actions, np.array(ids))
    assert seen(view, pool.step(np.zeros(4))).elapsed == [1] * 4, "nothing was sent"


@EVERY_VIEW
def test_step_is_send_and_recv(make: Any, view: str) -> None:
    """Extended API, in short."""
    one, other = (make("CartPole-v1", view, num_envs=3, seed=5) for _ in range(2))
    for turn in range(60):
        ids = np.array([[0, 1, 2], [2, 0, 1], [1]][turn % 3])
        action = np.arange(turn, turn + len(ids)) % 2
        other.send(action, ids)
        assert_same(one.step(action, ids), other.recv())


@pytest.mark.parametrize("ids", [[0, 0], [3], [-1]], ids=["twice", "too high", "negative"])
def test_invalid_ids_are_refused(make: Any, ids: list[int]) -> None:
    """Extended API: the ids of envs are 0 to ``num_envs`` - 1, each once."""
    pool = make("CartPole-v1", "gym", num_envs=3)
    with pytest.raises(EnvIdError):
        pool.send(np.zeros(len(ids)), np.array(ids))


# ---- action input format -------------------------------------------------------------------------


FORMATS: dict[str, Any] = {
    "an array": lambda n: (np.ones(n),),
    "an array, and ids": lambda n: (np.ones(n), np.arange(n)),
    "a dict": lambda n: ({"action": np.ones(n, dtype=np.int32), "env_id": np.arange(n, dtype=np.int32)},),
}


def test_three_formats_of_actions_in_atari() -> None:
    """Action input format, the example: three ways to send the same, floats where the action is a number."""
    batch_size = 2
    with envpool.make_gym("Pong-v5", num_envs=batch_size, noop_max=1, backend="inline") as pool:
        pool.reset()
        pool.send(np.ones(batch_size))
        first = pool.recv()
        pool.send(np.ones(batch_size), env_id=np.arange(batch_size))
        second = pool.recv()
        pool.send(
            {
                "action": np.ones(batch_size, dtype=np.int32),
                "env_id": np.arange(batch_size, dtype=np.int32),
            }
        )
        third = pool.recv()
    assert [one[3]["env_id"].tolist() for one in (first, second, third)] == [[0, 1]] * 3
    assert [one[3]["elapsed_step"].tolist() for one in (first, second, third)] == [[1, 1], [2, 2], [3, 3]]


@pytest.mark.parametrize("name", FORMATS)
@EVERY_VIEW
def test_formats_of_actions_do_the_same(make: Any, view: str, name: str) -> None:
    """Action input format: by ``send``, and by ``step(action, env_id)`` or ``step(action)`` with a dict."""
    pools = [make("CartPole-v1", view, num_envs=3) for _ in range(3)]
    for pool in pools:
        pool.reset()
    plain, sending, stepping = pools
    given = FORMATS[name](3)
    for _ in range(30):
        sending.send(*given)
        expected = plain.step(np.ones(3, np.int64))
        assert_same(sending.recv(), expected)
        assert_same(stepping.step(*given), expected)


def test_a_fraction_is_no_discrete_action(make: Any) -> None:
    """Action input format, the note on dtypes: floats are taken where they are whole numbers."""
    pool = make("CartPole-v1", "gym", num_envs=2)
    pool.reset()
    with pytest.raises(ActionError):
        pool.send(np.full(2, 0.5))


def test_actions_of_several_keys(make: Any) -> None:
    """Action input format: a dict with an entry for each key of the action space."""
    action_space = spaces.Dict({"move": spaces.Box(-1, 1, (2,), np.float32), "key": spaces.Discrete(3)})
    envs = [SpaceEnv(spaces.Discrete(2), action_space) for _ in range(2)]
    pool = make([lambda one=one: one for one in envs], "gym", backend="inline")
    pool.reset()
    move, key = np.array([[0.5, -0.5], [1.0, 0.0]], np.float32), np.array([2, 1])
    pool.step({"move": move, "key": key, "env_id": np.array([1, 0], np.int32)})
    assert [env.received[0]["move"].tolist() for env in envs] == [[1.0, 0.0], [0.5, -0.5]]
    assert [env.received[0]["key"] for env in envs] == [1, 2]


def test_players_whose_action_spaces_differ(make: Any) -> None:
    """Action input format: a dict for players whose action spaces are not the same."""
    names = ["hunter_0", "prey_0", "prey_1", "prey_2"]
    pool = make(lambda: TagEnv(names=names, join=0.0, tiles=1000), "gym", num_envs=2, backend="inline")
    obs = pool.reset()
    assert {kind: len(rows) for kind, rows in obs.items()} == {"hunter": 2, "prey": 2}
    action = {"hunter": np.full(2, 3), "prey": np.full(2, 2), "env_id": np.arange(2)}
    _, reward, _, info = pool.step(action)
    assert len(reward) == len(info["players"]["env_id"]) == 4


# ---- data output format --------------------------------------------------------------------------


TWO_KEYS = spaces.Dict({"place": spaces.Box(-1, 1, (2,), np.float32), "lit": spaces.Discrete(2)})


def test_reset_of_the_gym_view_with_a_single_observation(make: Any) -> None:
    """Data output format, reset, gym: an array."""
    obs = make("CartPole-v1", "gym", num_envs=3).reset()
    assert (type(obs), obs.shape, obs.dtype) == (np.ndarray, (3, 4), np.float32)


def test_reset_of_the_gym_view_with_several_observations(make: Any) -> None:
    """Data output format, reset, gym: a dict where the observation has several parts."""
    pool = make(lambda: SpaceEnv(TWO_KEYS, spaces.Discrete(2)), "gym", num_envs=3, backend="inline")
    obs = pool.reset()
    assert {key: part.shape for key, part in obs.items()} == {"lit": (3,), "place": (3, 2)}


def test_reset_of_the_dm_view(make: Any) -> None:
    """Data output format, reset, dm: FIRST, reward 0, discount 1; observation, info and ids together."""
    timestep = make("CartPole-v1", "dm", num_envs=3).reset()
    assert isinstance(timestep, dm_env.TimeStep)
    assert timestep.step_type.tolist() == [StepType.FIRST] * 3
    assert (timestep.reward.tolist(), timestep.discount.tolist()) == ([0.0] * 3, [1.0] * 3)
    assert timestep.observation.obs.shape == (3, 4)
    assert timestep.observation.env_id.tolist() == [0, 1, 2]
    assert timestep.observation.info["elapsed_step"].tolist() == [0] * 3


def test_step_of_the_gym_view(make: Any) -> None:
    """Data output format, step, gym: four results, the ids in the last."""
    pool = make("Probe-v0", "gym", num_envs=3, length=1)
    pool.reset()
    obs, rew, done, info = pool.step(np.array([0.25, 0.5, 1.0]))
    assert obs.shape == (3, 2)
    assert (rew.tolist(), rew.dtype) == ([0.25, 0.5, 1.0], np.float32)
    assert (done.tolist(), done.dtype) == ([True] * 3, np.bool_)
    assert info["env_id"].tolist() == [0, 1, 2]


def test_step_of_the_dm_view(make: Any) -> None:
    """Data output format, step, dm: the step type, the reward, and 1 - done as the discount of an env that has none."""
    pool = make("Probe-v0", "dm", num_envs=2, env_config=[{"length": 1}, {"length": 2}])
    pool.reset()
    timestep = pool.step(np.array([0.25, 0.5]))
    assert timestep.step_type.tolist() == [StepType.LAST, StepType.MID]
    assert timestep.reward.tolist() == [0.25, 0.5]
    assert timestep.discount.tolist() == [0.0, 1.0]
    assert timestep.observation.obs[:, 1].tolist() == [1.0, 1.0]
    assert timestep.observation.env_id.tolist() == [0, 1]


def test_step_of_the_dm_view_with_the_env_s_own_discount(make: Any) -> None:
    """Data output format, step, dm: the env's discount, where it tells one."""
    pool = make(DiscountEnv, "dm", num_envs=2, backend="inline", discount=0.75, length=1)
    pool.reset()
    assert pool.step(np.zeros(2)).discount.tolist() == [0.75, 0.75]


def test_step_of_the_dm_view_at_a_time_limit(make: Any) -> None:
    """Data output format, step, dm. Here a time limit is LAST with discount 1: the state is worth as much as before."""
    pool = make("Probe-v0", "dm", max_episode_steps=1)
    pool.reset()
    timestep = pool.step(np.zeros(1))
    assert (timestep.step_type.tolist(), timestep.discount.tolist()) == ([StepType.LAST], [1.0])


def test_reset_of_the_gym_view_has_no_place_in_async_mode(make: Any) -> None:
    """Data output format, the note: without ids, so use the low-level calls."""
    pool = make("CartPole-v1", "gym", num_envs=4, batch_size=2)
    with pytest.raises(UnsupportedError, match=r"use async_reset\(\) and recv\(\)"):
        pool.reset()
    pool.async_reset()
    got = []
    for _ in range(2):
        _, _, _, info = pool.recv()
        got += info["env_id"].tolist()
    assert sorted(got) == [0, 1, 2, 3]


def test_reset_of_the_dm_view_waits_for_all_in_async_mode(make: Any) -> None:
    """Data output format, the note: of gym alone. The dm view has the ids, so it waits for all envs there."""
    timestep = make("CartPole-v1", "dm", num_envs=4, batch_size=2).reset()
    assert timestep.observation.env_id.tolist() == [0, 1, 2, 3]
