"""Errors of managers are of the class of the env's own exception too: ``except ValueError`` around ``step`` works."""

from __future__ import annotations

import pickle
import traceback
from email.message import Message
from typing import Any
from urllib.error import HTTPError

import pytest

import stepmill
from stepmill.envs import BaseEnvTimestep
from stepmill.errors import EnvError, EnvTimeoutError, InputError, WorkerDiedError
from stepmill.managers import BaseEnvManager, SyncSubprocessEnvManager
from stepmill.managers.env_class import in_class_of_cause
from support.envs.good import GoodEnv

MANAGERS = pytest.mark.parametrize("manager", [BaseEnvManager, SyncSubprocessEnvManager])


class OwnError(LookupError):
    """With a constructor of its own."""

    def __init__(self, where: str, code: int) -> None:
        super().__init__(f"{where}: {code}")
        self.code = code

    def __reduce__(self) -> Any:
        return OwnError, ("there", self.code)


class Unpicklable(OwnError):
    def __reduce__(self) -> Any:
        raise TypeError("not me")


class SaysBuiltins(ValueError):
    """As those of some extensions: their names have no dot."""

    __module__ = "builtins"

    def __reduce__(self) -> Any:
        raise TypeError("not me")


class Interrupting(KeyboardInterrupt, ValueError):
    """An Exception, and one that ends the program."""


ERRORS: dict[str, BaseException] = {
    "SaysBuiltins": SaysBuiltins("it broke"),
    "HTTPError": HTTPError("http://example.org/map", 404, "no map", Message(), None),
    "Interrupting": Interrupting("it broke"),
    "ValueError": ValueError("it broke"),
    "OwnError": OwnError("there", 3),
    "Unpicklable": Unpicklable("there", 3),
    "FileNotFoundError": FileNotFoundError(2, "no map"),
    "StopIteration": StopIteration("no more"),
}


class Breaking(GoodEnv):
    """Raises one of these where the cfg says."""

    def __init__(self, cfg: Any = None) -> None:
        super().__init__(cfg)
        self._break("constructor")

    def reset(self, **kwargs: Any) -> Any:
        self._break("reset")
        return super().reset(**kwargs)

    def step(self, action: Any) -> BaseEnvTimestep:
        self._break("step")
        return super().step(action)

    def _break(self, where: str) -> None:
        name = self._cfg.get(where)
        if name is not None:
            raise ERRORS[name]


def failure(manager: Any, cfgs: list[dict[str, str]], **settings: Any) -> EnvError:
    with manager(Breaking, cfgs, **settings) as envs, pytest.raises(EnvError) as caught:
        play(envs)
    return caught.value


def play(envs: Any) -> None:
    envs.launch()
    envs.step(dict.fromkeys(envs.ready_obs, 0))


@MANAGERS
@pytest.mark.parametrize("where", ["constructor", "reset", "step"])
def test_a_value_error_of_the_env_is_one_of_launch_reset_and_step(manager: Any, where: str) -> None:
    error = failure(manager, [{where: "ValueError"}], max_retry=0)
    assert isinstance(error, ValueError)
    assert "ValueError: it broke" in str(error)
    assert isinstance(error.__cause__, ValueError)
    assert (error.env_id, error.phase) == (0, where)


@MANAGERS
def test_a_class_of_the_env_and_its_nearest_built_in_base(manager: Any) -> None:
    error = failure(manager, [{"step": "OwnError"}])
    assert isinstance(error, OwnError)
    assert error.__cause__.code == 3  # type: ignore[attr-defined]  # what its own constructor set
    again = pickle.loads(pickle.dumps(error))
    assert isinstance(again, OwnError)
    assert isinstance(again, EnvError)
    assert (str(again), again.env_id) == (str(error), 0)
    assert isinstance(failure(manager, [{"step": "FileNotFoundError"}]), OSError)


def test_a_class_that_does_not_travel_has_its_nearest_built_in_base() -> None:
    error = failure(SyncSubprocessEnvManager, [{"step": "Unpicklable"}])
    assert isinstance(error, LookupError)
    assert not isinstance(error, Unpicklable)
    assert "Unpicklable: there: 3" in str(error)


@MANAGERS
def test_a_class_that_says_it_is_built_in(manager: Any) -> None:
    error = failure(manager, [{"step": "SaysBuiltins"}])
    assert type(error) is not WorkerDiedError
    assert isinstance(error, ValueError)
    assert "SaysBuiltins: it broke" in str(error)
    assert isinstance(pickle.loads(pickle.dumps(error)), ValueError)


@MANAGERS
@pytest.mark.parametrize("where", ["reset", "step"])
def test_a_class_that_cannot_be_shown_without_its_constructor(manager: Any, where: str) -> None:
    error = failure(manager, [{where: "HTTPError"}], max_retry=0)
    assert isinstance(error, OSError)
    assert "no map" in "".join(traceback.format_exception(error))


def test_an_interrupt_that_an_env_raises_does_not_become_one_of_the_manager() -> None:
    error = failure(SyncSubprocessEnvManager, [{"step": "Interrupting"}])
    assert isinstance(error, ValueError)
    assert not isinstance(error, KeyboardInterrupt)


def test_a_local_class_is_pickled_as_its_nearest_built_in_base() -> None:
    class Local(KeyError):
        pass

    error = EnvError("failed", env_id=3)
    error.__cause__ = Local("key")
    both = in_class_of_cause(error)
    assert isinstance(both, Local)
    again = pickle.loads(pickle.dumps(both))
    assert isinstance(again, KeyError)
    assert (str(again), again.env_id) == ("failed", 3)


@MANAGERS
def test_what_ends_loops_stays_away(manager: Any) -> None:
    error = failure(manager, [{"step": "StopIteration"}])
    assert type(error) is EnvError
    assert "StopIteration: no more" in str(error)


@MANAGERS
def test_of_several_the_first_one_counts_and_carries_the_others(manager: Any) -> None:
    error = failure(manager, [{}, {"step": "OwnError"}, {"step": "ValueError"}])
    assert isinstance(error, OwnError)
    assert not isinstance(error, ValueError)
    assert [one.env_id for one in error.errors] == [1, 2]
    assert isinstance(error.errors[1], ValueError)
    assert list(error.batch) == [0]


def test_kinds_of_errors_are_kept() -> None:
    late = EnvTimeoutError("late", env_id=3)
    late.__cause__ = AttributeError("of another layout")
    assert in_class_of_cause(late) is late
    late.__cause__ = KeyError("key")
    both = in_class_of_cause(late)
    assert isinstance(both, KeyError)
    assert isinstance(both, EnvTimeoutError)
    assert str(both) == "late"
    gone = WorkerDiedError("gone")
    assert in_class_of_cause(gone) is gone
    for cause in (Exception("plain"), KeyboardInterrupt(), SystemExit(3), RuntimeError("it is one already")):
        error = EnvError("failed")
        error.__cause__ = cause
        assert in_class_of_cause(error) is error


def test_a_class_that_refuses_subclasses_has_its_nearest_built_in_base() -> None:
    class Final(ValueError):
        def __init_subclass__(cls) -> None:
            raise TypeError("no subclasses")

    error = EnvError("failed")
    error.__cause__ = Final()
    assert isinstance(in_class_of_cause(error), ValueError)


def test_in_a_pool_a_value_error_means_bad_input() -> None:
    with stepmill.make(lambda: Breaking({"step": "ValueError"}), backend="inline") as pool:
        pool.reset()
        with pytest.raises(EnvError) as caught:
            pool.step([0])
        assert not isinstance(caught.value, ValueError)
        pool.reset()
        with pytest.raises(ValueError, match="expected") as refused:
            pool.step([7])
        assert isinstance(refused.value, InputError)
