"""An info that cannot be merged into the batch's costs its own row, with a warning; an env's own keys are kept."""

from __future__ import annotations

import collections
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

import stepmill
from stepmill import errors
from stepmill.hosts.infos import merge_infos
from stepmill.system import warn_once
from support.envs import ProbeTwin
from support.probes import MODES, VIEWS, seen

pytestmark = pytest.mark.usefixtures("server", "deadline")

on_backends = pytest.mark.parametrize("backend", ["inline", "process"])


@pytest.fixture(autouse=True)
def nothing_told_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each word is said once in a process, and other tests run in this one."""
    monkeypatch.setattr(warn_once, "_shown", set())


class Broken(Exception):
    """Raised by what an env tells."""


class Unequal:
    def __eq__(self, _: object) -> bool:
        raise Broken

    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        raise Broken

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise Broken

    def __bool__(self) -> bool:
        raise Broken


class Unspeakable:
    """A key that has no text."""

    def __str__(self) -> str:
        raise Broken


class Locked(Mapping[str, Any]):
    """A mapping that cannot be read."""

    def __getitem__(self, key: str) -> Any:
        raise Broken

    def __iter__(self) -> Iterator[str]:
        raise Broken

    def __len__(self) -> int:
        return 1


class Sealed(dict[str, Any]):
    """A dict that cannot be looked through, and not be pickled."""

    def items(self) -> Any:
        raise Broken

    def __reduce_ex__(self, _: Any) -> Any:
        raise Broken


class Interrupting(dict[str, Any]):
    """Raises what Ctrl-C does, and is none."""

    def items(self) -> Any:
        raise KeyboardInterrupt


class Unreadable:
    """Can be pickled, and not be read again."""

    def __reduce__(self) -> Any:
        return fail, ()


def fail() -> Any:
    raise Broken


def endless() -> dict[str, Any]:
    info: dict[str, Any] = {"x": 1}
    info["self"] = info
    return info


def deep(levels: int) -> dict[str, Any]:
    info: dict[str, Any] = {}
    for _ in range(levels):
        info = {"x": info}
    return info


ODD: dict[str, Any] = {
    "endless": endless,
    "endless inside": lambda: {"a": {"b": [1], "c": endless()}},
    "too deep": lambda: deep(101),
    "much too deep": lambda: deep(100_000),
    "a key and its mask": lambda: {"x": 1, "_x": 2},
    "a mask first": lambda: {"_x": {"y": 1}, "x": np.zeros(3)},
    "a key and its mask inside": lambda: {"deep": {"x": 1, "_x": [2]}},
    "a key without a text": lambda: {Unspeakable(): 1},
    "a mapping that cannot be read": Locked,
}
SEALED: dict[str, Any] = {"that cannot be read": lambda: Sealed(x=1), "that interrupts": lambda: Interrupting(x=1)}
UNREADABLE = {"unreadable": lambda: {"x": Unreadable(), "y": 1}, "unreadable inside": lambda: {"x": [Unreadable()]}}
GOOD: dict[str, Any] = {
    "deep": lambda: deep(100),
    "numbers as keys": lambda: {1: 2, None: 3, (4, 5): 6},
    "odd values": lambda: {"x": Unequal()},
    "an ordered dict": lambda: collections.OrderedDict(x=1, y={"z": 2}),
    "a mapping": lambda: collections.ChainMap({"x": 1}),
    "masks of nothing": lambda: {"_x": 1, "__y": 2},
}


class Odd(ProbeTwin):
    """Tells what it is told to; each env by its number."""

    def __init__(self, env_id: int, odd: str = "", length: int = 10**6) -> None:
        super().__init__(length=length)
        self.place, self.odd = env_id, odd

    def step(self, action: Any) -> Any:
        told = {**ODD, **UNREADABLE, **GOOD, **SEALED}[self.odd]() if self.odd else {"place": self.place}
        return (*super().step(action)[:4], told)


@pytest.mark.filterwarnings("ignore:the info of env 1")
@pytest.mark.parametrize("odd", SEALED)
@on_backends
def test_a_dict_with_code_of_its_own_costs_neither_the_row_nor_the_worker(backend: str, odd: str) -> None:
    with stepmill.make(Odd, num_envs=3, backend=backend, env_config=[{}, {"odd": odd}, {}]) as pool:
        pool.reset()
        _, reward, *_, info = pool.step([0.25, 0.5, 0.75])
        assert reward.tolist() == [0.25, 0.5, 0.75]
        assert info["_place"].tolist() == [True, False, True]


@pytest.mark.filterwarnings("ignore:the info of env 1", "ignore:an info of env 1")
@pytest.mark.parametrize("odd", [*ODD, *UNREADABLE])
@pytest.mark.parametrize("mode", MODES)
@on_backends
def test_an_odd_info_costs_its_own_row_of_the_info(backend: str, mode: str, odd: str) -> None:
    if backend == "inline" and odd in UNREADABLE:
        pytest.skip("nothing is pickled")
    with stepmill.make(
        Odd, num_envs=3, backend=backend, autoreset=mode, length=2, env_config=[{}, {"odd": odd}, {}]
    ) as pool:
        pool.reset()
        for _ in range(2):  # the second step ends the episodes
            _, reward, *_, info = pool.step([0.25, 0.5, 0.75])
            assert reward.tolist() == [0.25, 0.5, 0.75]
            told = info.get("final_info", info)
            assert told["_place"].tolist() == [True, False, True]
            assert told["place"].tolist() == [0, 0, 2]
        assert pool.stats()["in_flight"] == 0


@pytest.mark.parametrize("odd", ODD)
@on_backends
def test_the_user_is_told_of_an_odd_info(backend: str, odd: str) -> None:
    with stepmill.make(Odd, num_envs=2, backend=backend, env_config=[{}, {"odd": odd}]) as pool:
        pool.reset()
        if backend == "process" and odd in ("much too deep", "a mapping that cannot be read"):
            pool.step([0.0, 0.0])  # the worker could not even pickle it
            return
        with pytest.warns(UserWarning, match="info of env 1 cannot be merged into the batch") as told:
            pool.step([0.0, 0.0])
        assert told[0].filename == __file__  # the line that called, not one of ours


@pytest.mark.parametrize("odd", GOOD)
@on_backends
def test_what_is_only_unusual_passes(backend: str, odd: str) -> None:
    with stepmill.make(Odd, num_envs=2, backend=backend, env_config=[{}, {"odd": odd}]) as pool:
        pool.reset()
        info = pool.step([0.0, 0.0])[4]
        for key in GOOD[odd]():
            assert info[f"_{key}"].tolist() == [False, True]


@on_backends
def test_keys_that_clash_between_envs_cost_the_later_row(backend: str) -> None:
    class One(ProbeTwin):
        def __init__(self, env_id: int) -> None:
            super().__init__()
            self.key = "x" if env_id != 1 else "_x"

        def step(self, action: Any) -> Any:
            return (*super().step(action)[:4], {self.key: 5, "deep": {self.key: 6}})

    with stepmill.make(One, num_envs=3, backend=backend) as pool:
        pool.reset()
        with pytest.warns(UserWarning, match="env 1 .*both 'x' and '_x'"):
            info = pool.step([0.0] * 3)[4]
        assert info["x"].tolist() == [5, 0, 5]
        assert info["_x"].tolist() == info["deep"]["_x"].tolist() == [True, False, True]


@on_backends
def test_an_error_of_a_kind_that_only_its_author_can_make_keeps_its_batch(backend: str) -> None:
    class Own(errors.ObservationError):
        def __init__(self, one: int, two: int) -> None:
            super().__init__(f"{one} {two}")

    class Raising(ProbeTwin):
        def step(self, action: Any) -> Any:
            raise Own(1, 2)

    with stepmill.make(Raising, num_envs=2, backend=backend) as pool:
        pool.reset()
        with pytest.raises(errors.EnvError, match="1 2") as caught:
            pool.step([0.0, 0.0])
        assert caught.value.batch[4]["abnormal"].tolist() == [True, True]


# ---- keys that are the engine's elsewhere --------------------------------------------------------


class Finals(ProbeTwin):
    def step(self, action: Any) -> Any:
        own = {"final_info": {"mine": 1, "discount": "none"}, "final_obs": [2], "_final_info": True, "elapsed_step": 77}
        if action < 0:
            del own["_final_info"]
        return (*super().step(action)[:4], own)


@pytest.mark.filterwarnings("ignore:the info of env")
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("mode", MODES)
@on_backends
def test_final_info_of_an_env_is_its_own_outside_of_same_step(backend: str, mode: str, view: str) -> None:
    with stepmill.make(Finals, view, num_envs=2, backend=backend, autoreset=mode, length=2) as pool:
        pool.reset()
        for elapsed in (1, 2):
            batch = seen(view, pool.step([-0.5, -0.5]))
            if mode != "same_step":
                assert batch.info["final_info"]["mine"].tolist() == [1, 1]
                assert batch.info["_final_info"].tolist() == [True, True]
                assert batch.info["final_obs"].tolist() == [[2], [2]]
                assert batch.elapsed == [elapsed] * 2
            elif elapsed == 1:
                assert "final_info" not in batch.info
            else:
                assert batch.info["final_info"]["final_obs"].tolist() == [[2], [2]]


@on_backends
def test_a_discount_that_is_no_number_is_left_to_the_info(backend: str) -> None:
    class Discounting(ProbeTwin):
        def step(self, action: Any) -> Any:
            told: Any = {0.0: 0.5, 0.25: "half", 0.5: [1], 0.75: 1, 1.0: {"a": 1}}[float(action)]
            return (*super().step(action)[:4], {"discount": told})

    with stepmill.make(Discounting, "dm", num_envs=2, backend=backend) as pool:
        pool.reset()
        for given, expected in (([0.0, 0.0], [0.5, 0.5]), ([0.0, 0.25], [0.5, 1.0]), ([0.5, 0.75], [1.0, 1.0])):
            assert pool.step(given).discount.tolist() == expected
        assert pool.step([1.0, 1.0]).discount.tolist() == [1.0, 1.0]


def test_a_key_that_is_a_dict_in_some_envs_only_has_each_envs_own_value() -> None:
    infos = [(0, 0, {"where": {"x": 1, "deep": {"y": 2.5}}}), (1, 1, {"where": {"x": 3}}), (2, 2, {"where": "nowhere"})]
    merged = merge_infos(infos, 3)
    assert merged["where"].tolist() == [{"x": 1, "deep": {"y": 2.5}}, {"x": 3}, "nowhere"]
    assert merged["_where"].tolist() == [True, True, True]
