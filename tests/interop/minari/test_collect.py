"""What is in a data set: the episodes that were asked for, whatever played them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import gymnasium
import minari
import numpy as np
import pytest

import stepmill
from stepmill.interop.minari import collect
from support.envs.collected import Fails, Leaves, content, leaves_policy, leftovers

pytestmark = pytest.mark.usefixtures("deadline")
CARTPOLE = "CartPole-v1"


@stepmill.per_env
def random_policy(obs: Any, generator: np.random.Generator) -> int:
    return int(generator.integers(2))


@stepmill.per_env
def push_back(obs: Any, generator: np.random.Generator) -> int:
    """Lasts longer or shorter, by chance."""
    return int(obs[2] > generator.normal(scale=0.05))


# ---- the same arrays -----------------------------------------------------------------------------

POOLS = [
    {"backend": "inline"},
    {"backend": "inline", "num_envs": 2, "autoreset": "same_step"},
    {"backend": "inline", "num_envs": 3, "batch_size": 2, "autoreset": "disabled"},
    {"backend": "process", "num_envs": 3, "batch_size": 1},
    {"backend": "process", "num_envs": 2, "num_workers": 1, "autoreset": "same_step"},
]
NATIVE = [
    {"backend": "thread", "num_envs": 3, "batch_size": 1, "autoreset": "same_step"},
    {"backend": "thread", "num_envs": 2, "autoreset": "disabled"},
]


@pytest.mark.parametrize(
    ("task", "policy", "pools"),
    [(CARTPOLE, push_back, POOLS + NATIVE), (Leaves, leaves_policy, POOLS)],
    ids=["native", "python"],
)
def test_the_same_files_on_any_backend_with_any_number_of_envs(
    server: None, make: Any, task: Any, policy: Any, pools: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for number, arguments in enumerate(pools):
        monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / str(number)))
        collect(make(task, **arguments), policy, 12, "test/same-v0", seed=3)
        found.append(content("test/same-v0"))
        assert leftovers() == []
    assert [one == found[0] for one in found] == [True] * len(pools)


@pytest.mark.parametrize("arguments", [{"num_envs": 3}, {"num_envs": 3, "output": "torch"}])
def test_a_policy_of_many_envs_gives_the_same_files(make: Any, arguments: dict[str, Any]) -> None:
    sizes = set()

    def batched(obs: Any, env_ids: Any, generators: Any) -> Any:
        sizes.add(len(generators))
        return (obs[:, 2] > [one.normal(scale=0.05) for one in generators]).astype(int)

    found = []
    for policy in (push_back, batched):
        collect(make(CARTPOLE, **arguments), policy, 7, "x-v0", algorithm_name="A")
        found.append(content("x-v0"))
        minari.delete_dataset("x-v0")
    assert found[0] == found[1]
    assert max(sizes) == 3


# ---- the episodes --------------------------------------------------------------------------------


def test_episodes_are_in_order_whichever_ends_first(make: Any) -> None:
    """Long episodes are not left out: every one that was asked for is there."""
    dataset, missing = collect(make(CARTPOLE, num_envs=4, batch_size=1), push_back, 20, "order-v0", seed=8)
    assert missing == ()
    assert dataset.total_episodes == 20
    metadata = list(dataset.storage.get_episode_metadata(range(20)))
    assert [int(one["episode"]) for one in metadata] == list(range(20))
    seeds = [one["seed"] for one in metadata]
    assert len(set(seeds)) == 20
    lengths = [len(one) for one in dataset]
    assert len(set(lengths)) > 5
    more, _ = collect(make(CARTPOLE), push_back, 21, "more-v0", seed=8)
    assert [len(one) for one in more][:20] == lengths, "an episode does not depend on how many there are"


def test_every_episode_is_the_one_gymnasium_plays_with_its_seed(make: Any) -> None:
    dataset, _ = collect(make(CARTPOLE, num_envs=2, max_episode_steps=20), random_policy, 8, "gym-v0")
    env = dataset.recover_environment()
    assert env.spec.id == CARTPOLE
    assert env.spec.max_episode_steps == 20
    for episode, metadata in zip(dataset, dataset.storage.get_episode_metadata(range(8)), strict=True):
        obs, _ = env.reset(seed=metadata["seed"])
        seen, outcomes = [obs], []
        for action in episode.actions:
            obs, *outcome, _ = env.step(action)
            seen.append(obs)
            outcomes.append(outcome)
        assert np.array_equal(seen, episode.observations)
        rewards, terminated, truncated = zip(*outcomes, strict=True)
        assert np.array_equal(rewards, episode.rewards)
        assert np.array_equal(terminated, episode.terminations)
        assert np.array_equal(truncated, episode.truncations)
        assert episode.terminations[-1] or episode.truncations[-1]
    env.close()
    assert any(one.truncations[-1] for one in dataset)
    assert any(one.terminations[-1] for one in dataset)


def test_every_space_comes_back_as_it_was(make: Any) -> None:
    dataset, _ = collect(make(Leaves, num_envs=3, backend="inline"), leaves_policy, 5, "leaves-v0")
    assert dataset.observation_space == Leaves.observation_space
    assert dataset.action_space == Leaves.action_space
    env = Leaves()
    for episode, metadata in zip(dataset, dataset.storage.get_episode_metadata(range(5)), strict=True):
        obs, _ = env.reset(seed=metadata["seed"])
        for i in range(len(episode) + 1):
            seen = {key: episode.observations[key][i] for key in ("image", "half", "word")}
            assert {key: np.asarray(one).tobytes() for key, one in seen.items()} == {
                key: np.asarray(obs[key]).tobytes() for key in seen
            }
            assert (episode.observations["pair"][0][i], *episode.observations["pair"][1][i]) == (
                obs["pair"][0],
                *obs["pair"][1],
            )
            if i == len(episode):
                break
            number, parts, many = episode.actions
            action = number[i], {key: one[i] for key, one in parts.items()}, many[i]
            assert Leaves.action_space.contains(action)
            obs, reward, *_ = env.step(action)
            assert reward == episode.rewards[i]
    with pytest.raises(ValueError, match="cannot be recovered"):
        dataset.recover_environment()


def test_what_the_policy_changes_in_an_observation_is_not_recorded(make: Any) -> None:
    def scribbles(obs: Any, env_ids: Any, generators: Any) -> Any:
        obs[:] = 7
        return [0] * len(obs)

    dataset, _ = collect(make(CARTPOLE, num_envs=2), scribbles, 2, "scribble-v0")
    assert not any((one.observations == 7).any() for one in dataset)


@pytest.mark.parametrize(("bounds", "recorded"), [("pass", 5.0), ("clip", 2.0)])
def test_actions_are_recorded_as_the_env_got_them(make: Any, bounds: str, recorded: float) -> None:
    pool = make("Pendulum-v1", action_bounds=bounds, max_episode_steps=3)
    dataset, _ = collect(pool, lambda *_: [[5.0]], 1, "bounds-v0", algorithm_name="A")
    assert dataset[0].actions.dtype == np.float32
    assert dataset[0].actions.tolist() == [[recorded]] * 3


class Alternates:
    """A policy with a memory: left and right in turn, in each episode."""

    def __init__(self) -> None:
        self.last: dict[int, int | None] = {}

    def begin(self, env_ids: np.ndarray) -> None:
        self.last |= dict.fromkeys(env_ids.tolist())

    def __call__(self, obs: Any, env_ids: np.ndarray, generators: Any) -> list[int]:
        for env_id, generator in zip(env_ids.tolist(), generators, strict=True):
            last = self.last[env_id]
            self.last[env_id] = int(generator.integers(2)) if last is None else 1 - last
        return [self.last[env_id] or 0 for env_id in env_ids.tolist()]


def test_a_policy_may_remember_within_an_episode(make: Any) -> None:
    dataset, _ = collect(make(CARTPOLE, num_envs=3), Alternates(), 9, "memory-v0")
    assert all((np.diff(one.actions) != 0).all() for one in dataset)
    assert len({int(one.actions[0]) for one in dataset}) == 2
    assert dataset.storage.metadata["algorithm_name"] == "Alternates"


# ---- what Minari says about it -------------------------------------------------------------------


def test_the_data_set_is_one_of_minaris(make: Any) -> None:
    made, _ = collect(
        make("FrozenLake-v1", num_envs=2, is_slippery=False, seed=11),
        stepmill.per_env(lambda obs, generator: generator.integers(4)),
        6,
        "lake/deep/walk-v2",
        algorithm_name="drunkard",
        author={"Ada", "Bob"},
        author_email="ada@example.org",
        code_permalink="https://example.org/code",
        description="A walk.",
        requirements=["gymnasium>=1"],
    )
    dataset = minari.load_dataset("lake/deep/walk-v2")
    assert dataset.spec == made.spec
    assert len(dataset.sample_episodes(4)) == 4
    metadata = dataset.storage.metadata
    expected = {
        "algorithm_name": "drunkard",
        "author": {"Ada", "Bob"},
        "author_email": {"ada@example.org"},
        "code_permalink": "https://example.org/code",
        "description": "A walk.",
        "requirements": ["gymnasium>=1"],
        "seed": 11,
        "stepmill_version": stepmill.__version__,
        "missing_episodes": [],
        "total_episodes": 6,
    }
    assert {key: metadata[key] for key in expected} == expected
    assert "lake/deep" in minari.namespace.list_local_namespaces()
    assert list(minari.list_local_datasets()) == ["lake/deep/walk-v2"]
    env = dataset.recover_environment()
    assert env.spec.kwargs["is_slippery"] is False
    assert env.observation_space == dataset.observation_space
    env.close()
    repr(dataset[0])


@pytest.mark.parametrize("task", ["gymnasium:CartPole-v1", "CliffWalking-v1", "MountainCarContinuous-v0", "Catch-v0"])
def test_envs_that_gymnasium_has_can_be_recovered(make: Any, task: str) -> None:
    pool = make(task, backend="inline", max_episode_steps=5)
    space = pool.single_action_space
    dataset, _ = collect(pool, stepmill.per_env(lambda obs, generator: space.sample()), 1, "env-v0")
    if task == "Catch-v0":
        assert dataset.env_spec is None
        return
    env = dataset.recover_environment()
    assert env.observation_space == pool.single_observation_space
    assert env.spec.max_episode_steps == 5
    env.close()


def test_a_pool_can_be_used_before_and_after(make: Any) -> None:
    pool = make(CARTPOLE, num_envs=4, batch_size=2)
    pool.async_reset()
    pool.recv()
    assert collect(pool, random_policy, 2, "used-v0").dataset.total_episodes == 2
    obs, _ = pool.reset()
    assert len(obs) == 4


def test_the_folder_of_data_sets_may_be_relative(make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MINARI_DATASETS_PATH", "here")
    collect(make(CARTPOLE), random_policy, 2, "space/relative-v0")
    assert minari.load_dataset("space/relative-v0").total_episodes == 2


# ---- progress ------------------------------------------------------------------------------------


class Terminal:
    """A terminal that keeps what is written to it."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None:
        pass

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("wanted", [None, True, False])
def test_a_bar_on_terminals(make: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any, wanted: bool | None) -> None:
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", terminal)
        collect(make(CARTPOLE), random_policy, 3, "bar-v0", progress=wanted)
    assert ("bar-v0" in terminal.text and "3/3" in terminal.text) == (wanted is not False)
    assert capsys.readouterr() == ("", "")


def test_no_bar_elsewhere(make: Any, capsys: Any) -> None:
    collect(make(CARTPOLE), random_policy, 3, "bar-v0")
    assert capsys.readouterr() == ("", "")


# ---- failures ------------------------------------------------------------------------------------


@pytest.mark.parametrize("on_error", ["raise", "restart"])
@pytest.mark.parametrize(
    ("how", "backend"),
    [("raise", "inline"), ("abnormal", "inline"), ("reset", "inline"), ("exit", "process"), ("kill", "process")],
)
def test_episodes_that_fail_are_played_again(
    server: None, make: Any, tmp_path: Path, on_error: str, how: str, backend: str
) -> None:
    for times, folder in ((0, tmp_path / "sound"), (2, tmp_path / "frail")):
        folder.mkdir()
        pool = make(Fails, num_envs=2, backend=backend, on_error=on_error, folder=str(folder), how=how, times=times)
        dataset, missing = collect(pool, random_policy, 8, f"fails-v{times}", max_restarts=2)
        assert missing == ()
        assert [one.observations[:, 1].tolist() for one in dataset] == [[0, 1, 2, 3]] * 8
        pool.close()
    assert any((tmp_path / "frail").iterdir())
    sound, frail = (content(f"fails-v{times}")["main_data.hdf5"] for times in (0, 2))
    assert sound == frail


@pytest.mark.parametrize("autoreset", ["next_step", "same_step", "disabled"])
def test_episodes_that_fail_every_time_are_missing(make: Any, tmp_path: Path, autoreset: str) -> None:
    pool = make(Fails, num_envs=3, backend="inline", autoreset=autoreset, folder=str(tmp_path), how="raise", times=100)
    with pytest.warns(UserWarning, match=r"of 9 episodes failed at every attempt.*missing: .*RuntimeError: broke"):
        dataset, missing = collect(pool, random_policy, 9, "missing-v0", max_restarts=1)
    assert len(missing) == 3
    metadata = list(dataset.storage.get_episode_metadata(range(6)))
    assert [int(one["episode"]) for one in metadata] == [k for k in range(9) if k not in missing]
    assert all(one["seed"] % 3 for one in metadata)
    assert dataset.storage.metadata["missing_episodes"] == list(missing)
    assert {file.stat().st_size for file in tmp_path.iterdir() if file.is_file()} == {2}, "two attempts each"
    assert collect(pool, random_policy, 9, "missing-v0").missing == missing


def test_a_data_set_of_nothing_is_an_error(make: Any) -> None:
    class Never(gymnasium.Env[Any, Any]):
        observation_space, action_space = Fails.observation_space, Fails.action_space

        def reset(self, *, seed: Any = None, options: Any = None) -> Any:
            raise ValueError("not today")

    with pytest.raises(stepmill.EnvError, match=r"2 of 2 episodes failed.*not today") as caught:
        collect(make(Never, backend="inline"), random_policy, 2, "nothing-v0")
    assert isinstance(caught.value.__cause__, stepmill.EnvError)
    assert list(minari.list_local_datasets()) == []
