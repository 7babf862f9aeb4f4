"""``output="torch"``: the same results as tensors, in every view, for every kind of env."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import stepmill
from stepmill import errors
from stepmill.interop.torch import as_tensors
from stepmill.views.gymnasium import GymnasiumPool
from support.envs.many_spaces import DTYPES, AllTypes
from support.outputs import assert_shows, make_kind, split
from support.probes import MODES, VIEWS, assert_same, make_probe

pytestmark = pytest.mark.usefixtures("server")
KINDS = ("native", "inline", "objects", "process")
ARRAYS = {"gymnasium": 4, "gym": 3, "dm": 4}  # of a step, with an observation of one array


def actions(turn: int, count: int = 3) -> np.ndarray:
    return np.full(count, turn % 2)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("kind", KINDS)
def test_tensors_show_what_arrays_show(kind: str, view: str, mode: str) -> None:
    tensors, arrays = (make_kind(kind, view, autoreset=mode, output=output) for output in ("torch", "numpy"))
    with tensors, arrays:
        first = [pool.reset() for pool in (tensors, arrays)]
        if view == "gym":
            assert_shows(*first, torch.Tensor)
        else:
            shown, plain = (split(view, one) for one in first)
            assert assert_shows(shown[0], plain[0], torch.Tensor) > 0
            assert_same(shown[1], plain[1])
        for turn in range(4 if mode == "disabled" else 12):
            shown, plain = (split(view, pool.step(actions(turn))) for pool in (tensors, arrays))
            count = assert_shows(shown[0], plain[0], torch.Tensor)
            assert count == ARRAYS[view] + (len(DTYPES) + 1 if kind == "objects" else 0)
            assert_same(shown[1], plain[1])


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("kind", ["native", "objects"])
def test_an_older_torch_shows_the_same(kind: str, view: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stepmill.views.outputs._exchange_api", lambda _: None)
    with make_kind(kind, view, output="torch") as tensors, make_kind(kind, view) as arrays:
        tensors.reset()
        arrays.reset()
        for turn in range(6):
            shown, plain = (split(view, pool.step(actions(turn))) for pool in (tensors, arrays))
            assert assert_shows(shown[0], plain[0], torch.Tensor) >= ARRAYS[view]
            assert_same(shown[1], plain[1])


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("kind", ["native", "process"])
def test_batches_of_those_that_are_done_first(kind: str, view: str) -> None:
    with make_kind(kind, view, batch_size=2, output="torch") as pool:
        pool.async_reset()
        for turn in range(20):
            shown, rest = split(view, pool.recv())
            assert all(isinstance(one, torch.Tensor) and len(one) == 2 for one in shown)
            info = rest if view != "dm" else rest[-1]
            assert isinstance(info["env_id"], np.ndarray)
            pool.send(torch.from_numpy(actions(turn, 2)), info["env_id"])


@pytest.mark.parametrize("view", VIEWS)
def test_rows_of_many_players(view: str) -> None:
    arguments = {"num_envs": 2, "slip": 0.0, "max_num_players": 3, "length": 5}
    tensors, arrays = (stepmill.make("Template-v0", view, output=output, **arguments) for output in ("torch", "numpy"))
    with tensors, arrays:
        tensors.reset()
        arrays.reset()
        for _ in range(8):
            shown, plain = (split(view, pool.step(np.ones(6, np.int64))) for pool in (tensors, arrays))
            assert assert_shows(shown[0], plain[0], torch.Tensor) == ARRAYS[view]
            assert_same(shown[1], plain[1])


def test_rows_of_a_reset_of_some_envs() -> None:
    with make_kind("native", output="torch") as pool:
        pool.reset()
        obs, info = pool.reset([2, 0])
        assert isinstance(obs, torch.Tensor)
        assert obs.shape == (2, 2)
        assert info["env_id"].tolist() == [2, 0]


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("kind", ["native", "python"])
def test_the_batch_of_an_error_has_tensors_too(kind: str, view: str) -> None:
    with make_probe(kind, view, num_envs=2, fail_in="step", output="torch") as pool:
        pool.reset()
        with pytest.raises(errors.EnvError) as raised:
            pool.step([0.0, 0.0])
        shown, _ = split(view, raised.value.batch)
        assert all(isinstance(one, torch.Tensor) for one in shown)


def test_spaces_stay_as_they_are() -> None:
    with make_kind("objects", output="torch") as tensors, make_kind("objects") as arrays:
        assert tensors.observation_space == arrays.observation_space
        assert tensors.single_observation_space == arrays.single_observation_space
        assert "output" not in tensors.config


def test_every_type_has_its_tensor() -> None:
    with stepmill.make(AllTypes, num_envs=2, backend="inline", output="torch") as pool:
        obs, _ = pool.reset()
        assert {name: str(obs[name].dtype) for name in DTYPES} == {name: f"torch.{name}" for name in DTYPES}
        assert obs["word"] == ("", "")


def test_a_type_that_an_older_torch_does_not_have_is_an_error_of_make(monkeypatch: pytest.MonkeyPatch) -> None:
    from_numpy = torch.from_numpy

    def older(array: np.ndarray) -> torch.Tensor:
        if array.dtype == np.uint16:
            raise TypeError("can't convert np.ndarray of type numpy.uint16")
        return from_numpy(array)

    monkeypatch.setattr(torch, "from_numpy", older)
    monkeypatch.setattr("stepmill.views.outputs._exchange_api", lambda _: None)
    closed = []

    class Watched(AllTypes):
        def close(self) -> None:
            closed.append(self)

    with pytest.raises(errors.UnsupportedError, match=r"observation\['uint16'\].*uint16.*output='numpy'"):
        stepmill.make(Watched, num_envs=2, backend="inline", output="torch")
    assert len(closed) >= 2


# ---- infos ---------------------------------------------------------------------------------------


def test_as_tensors_converts_infos_on_request() -> None:
    with make_kind("objects", autoreset="same_step", output="torch") as pool:
        pool.reset()
        for _ in range(4):
            *_, info = pool.step(actions(1))
        assert isinstance(info["final_obs"][0]["float32"], np.ndarray)
        shown = as_tensors(info)
        assert shown.keys() == info.keys()
        assert shown["episode_return"].tolist() == [4.0] * 3
        assert shown["final_info"]["seen"].tolist() == [4] * 3
        assert shown["final_info"]["place"].tolist() == [[0.5, 0.5]] * 3
        final = shown["final_obs"]
        assert final.shape == (3,)
        assert_shows(final[0], info["final_obs"][0], torch.Tensor)
        assert final[0]["word"] == "xxxx"
        # Over the same memory, unless that is shared by all batches.
        shown["episode_return"][0] = 7.0
        assert info["episode_return"][0] == 7.0
        shown["env_id"][0] = 7
        assert info["env_id"].tolist() == [0, 1, 2]


def test_as_tensors_takes_any_nesting() -> None:
    assert as_tensors({"a": [np.float32(2), "x", None], "b": (np.arange(2),)})["b"][0].tolist() == [0, 1]
    assert as_tensors(np.float32(2)).dtype == torch.float32
    assert as_tensors(np.array(["x"])).tolist() == ["x"]
    assert as_tensors(3) == 3
    assert as_tensors(np.arange(3, dtype=">f4")).tolist() == [0, 1, 2]
    assert as_tensors(np.arange(6).reshape(2, 3).T).tolist() == [[0, 3], [1, 4], [2, 5]]
    wide = np.ones(2, np.longdouble)
    assert wide.itemsize == 8 or as_tensors(wide) is wide


# ---- tensors of the last step go back into the pool ----------------------------------------------


def test_flags_select_the_envs_to_reset() -> None:
    with make_kind("native", autoreset="disabled", output="torch") as pool:
        pool.reset()
        for _ in range(4):
            obs, _, terminated, truncated, _ = pool.step(actions(0))
        done = terminated | truncated
        assert done.all()
        done[1] = False
        obs, _ = pool.reset(options={"reset_mask": done})
        assert obs[:, 1].tolist() == [0.0, 4.0, 0.0]
        with pytest.raises(errors.ResetOptionError, match="float32 array"):
            pool.reset(options={"reset_mask": done.float()})


def test_a_policy_of_torch_plays() -> None:
    torch.manual_seed(0)
    policy = torch.nn.Linear(4, 2)
    with stepmill.make("CartPole-v1", num_envs=8, output="torch") as pool:
        obs, _ = pool.reset()
        for _ in range(50):
            logits = policy(obs)
            obs, reward, *_ = pool.step(torch.distributions.Categorical(logits=logits).sample())
        loss = -(policy(obs).logsumexp(1) * reward).mean()
        loss.backward()
        assert policy.weight.grad is not None


def test_a_view_with_tensors_takes_the_place_of_one_with_arrays() -> None:
    pool = stepmill.make("CartPole-v1", num_envs=2)
    with GymnasiumPool.over(pool, output="torch") as tensors:
        assert (tensors.settings.output, pool.settings.output, tensors.device) == ("torch", "numpy", "cpu")
        observation, _ = tensors.reset()
        assert isinstance(observation, torch.Tensor)
        arrays = GymnasiumPool.over(tensors, output="numpy")  # and back
        assert isinstance(arrays.reset()[0], np.ndarray)


def test_the_device_is_the_gpu_that_was_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    with stepmill.make("CartPole-v1", output="torch") as pool:
        assert pool.device == "cpu"
        monkeypatch.setattr(pool._output, "reader", 3)
        assert pool.device == "cuda:3"
