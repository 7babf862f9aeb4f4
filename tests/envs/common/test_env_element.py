"""Elements: one stateless instance a class. Runners: the state of one element in one env."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
import threading
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cloudpickle
import numpy as np
import pytest

from stepmill.envs.common.env_element import EnvElement, EnvElementInfo, IEnvElement
from stepmill.envs.common.env_element_runner import EnvElementRunner, IEnvElementRunner
from stepmill.errors import ConfigError, UsageError


def double(value: float) -> float:
    return 2 * value


class Speed(EnvElement):
    _name = "Speed"

    def _init(self, limit: float = 10.0, unit: str = "m/s") -> None:
        self._shape = (1,)
        self._value = {"min": 0.0, "max": limit, "dtype": np.float32}
        self._to_agent_processor = double
        self._from_agent_processor = None
        self.unit = unit

    def _details(self) -> str:
        return f"up to {self._value['max']:g} {self.unit}"


def fresh() -> type[Speed]:
    """A class of its own, of which there is no instance yet."""

    class FreshSpeed(Speed):
        pass

    return FreshSpeed


# ---- what an element says ------------------------------------------------------------------------


def test_info_has_shape_value_and_processors() -> None:
    assert Speed().info == EnvElementInfo((1,), {"min": 0.0, "max": 10.0, "dtype": np.float32}, double, None)


def test_repr_is_the_name_and_the_details() -> None:
    assert repr(Speed()) == "Speed: up to 10 m/s"


def test_a_changed_info_changes_no_element() -> None:
    info = Speed().info
    info.shape = (7,)
    info.value["max"] = -1.0
    assert Speed().info.shape == (1,)
    assert Speed().info.value["max"] == 10.0


def test_the_template_of_the_info_can_be_ones_own() -> None:
    names = ["shape", "value", "to_agent_processor", "from_agent_processor"]

    class Plain(Speed):
        info_template = namedtuple("PlainInfo", names)

    info = Plain().info
    assert info._fields == tuple(names)
    assert info.shape == (1,)


def test_empty_values_are_none() -> None:
    class Nothing(Speed):
        def _init(self) -> None:
            self._shape = self._value = self._to_agent_processor = self._from_agent_processor = None

        def _details(self) -> str:
            return "nothing"

    assert Nothing().info == EnvElementInfo(None, None, None, None)


# ---- what an element must have -------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["_shape", "_value", "_to_agent_processor", "_from_agent_processor"])
def test_a_missing_attribute_is_named_with_its_class(missing: str) -> None:
    class Incomplete(Speed):
        def _init(self) -> None:
            super()._init()
            delattr(self, missing)

    with pytest.raises(ConfigError, match=f"^Incomplete: .*got no {missing}$"):
        Incomplete()
    with pytest.raises(ConfigError, match="Incomplete"):  # nothing half made was kept
        Incomplete()


def test_all_missing_attributes_are_named_at_once() -> None:
    class Empty(Speed):
        def _init(self) -> None:
            self._shape = (1,)

    with pytest.raises(ConfigError, match=r"got no _value, _to_agent_processor, _from_agent_processor$"):
        Empty()


def test_an_attribute_of_the_class_counts() -> None:
    class Constant(EnvElement):
        _shape = (2,)
        _value = _to_agent_processor = _from_agent_processor = None

        def _init(self) -> None:
            pass

        def _details(self) -> str:
            return ""

    assert Constant().info.shape == (2,)


def test_check_can_be_extended() -> None:
    class Checked(Speed):
        def _check(self) -> None:
            super()._check()
            if self._value["max"] <= 0:
                raise ConfigError("Checked: expected a limit > 0")

    with pytest.raises(ConfigError, match="limit > 0"):
        Checked(-1.0)
    assert Checked(1.0).info.value["max"] == 1.0


@pytest.mark.parametrize("method", ["_init", "_details"])
def test_what_a_subclass_must_write_is_abstract(method: str) -> None:
    others = {name: lambda self: None for name in ("_init", "_details") if name != method}
    with pytest.raises(TypeError, match=method):
        type("Partial", (EnvElement,), others)()


def test_the_interfaces_are_abstract() -> None:
    assert IEnvElement.__abstractmethods__ == {"__repr__", "info"}
    assert IEnvElementRunner.__abstractmethods__ == {"__repr__", "info", "get", "reset"}
    assert issubclass(EnvElementRunner, IEnvElementRunner)
    assert issubclass(IEnvElementRunner, IEnvElement)


# ---- one instance --------------------------------------------------------------------------------


def test_a_class_has_one_instance() -> None:
    assert Speed() is Speed()


def test_a_subclass_has_its_own() -> None:
    sub, base = fresh()(), Speed()
    assert sub is not base
    assert type(sub)() is sub


@pytest.mark.parametrize("again", [((5.0,), {}), ((), {"limit": 5.0}), ((5.0, "m/s"), {}), ((5,), {})])
def test_the_same_arguments_written_differently_give_the_instance(again: tuple[Any, Any]) -> None:
    cls = fresh()
    assert cls(5.0) is cls(*again[0], **again[1])


def test_default_arguments_may_be_spelled_out() -> None:
    cls = fresh()
    assert cls() is cls(limit=10.0, unit="m/s")


@pytest.mark.parametrize(
    "again", [((), {}), ((6.0,), {}), ((5.0,), {"unit": "km/h"}), ((5.0, "m", 3), {}), ((5.0,), {"size": 1})]
)
def test_other_arguments_are_an_error_that_names_both(again: tuple[Any, Any]) -> None:
    cls = fresh()
    cls(5.0)
    with pytest.raises(ConfigError, match=r"FreshSpeed: .*made with \(5\.0\), got \(.*subclass"):
        cls(*again[0], **again[1])


class Lookup(EnvElement):
    """Arguments that == cannot compare."""

    def _init(self, table: Any) -> None:
        self._shape, self._value = np.shape(table), None
        self._to_agent_processor = self._from_agent_processor = None

    def _details(self) -> str:
        return "a table"


@pytest.mark.parametrize(
    ("first", "same", "other"),
    [
        (np.arange(3), np.arange(3), np.arange(4)),
        (np.arange(3), np.arange(3), np.arange(3, dtype=np.float32)),
        ([np.zeros(2), 1], [np.zeros(2), 1], [np.ones(2), 1]),
        ({"a": np.zeros(2)}, {"a": np.zeros(2)}, {"b": np.zeros(2)}),
    ],
)
def test_arrays_are_compared_as_arrays(first: Any, same: Any, other: Any) -> None:
    class OwnLookup(Lookup):
        _shape = ()

        def _init(self, table: Any) -> None:
            super()._init(0)

    instance = OwnLookup(first)
    assert OwnLookup(same) is instance
    with pytest.raises(ConfigError, match="OwnLookup"):
        OwnLookup(other)


def test_a_constructor_of_ones_own_may_take_other_arguments() -> None:
    class Wide(Speed):
        def __init__(self, wide: bool) -> None:
            super().__init__(100.0 if wide else 1.0)

    assert Wide(True) is Wide(wide=True)
    assert Wide(True).info.value["max"] == 100.0
    with pytest.raises(ConfigError, match=r"made with \(True\), got \(False\)"):
        Wide(False)


def test_a_thread_that_asks_while_it_is_made_gets_the_same() -> None:
    begun, asked = threading.Event(), threading.Event()

    class Slow(Speed):
        def _init(self) -> None:
            super()._init()
            begun.set()
            assert asked.wait(30)

    def ask() -> Slow:
        assert begun.wait(30)
        asked.set()
        return Slow()

    with ThreadPoolExecutor(1) as thread:
        other = thread.submit(ask)
        assert Slow() is other.result(30)


def test_an_element_may_make_others() -> None:
    class Outer(Speed):
        def _init(self) -> None:
            super()._init()
            self.inner = Speed()

    assert Outer().inner is Speed()


def test_an_element_keeps_no_state() -> None:
    cls = fresh()
    element = cls()
    with pytest.raises(UsageError, match=r"FreshSpeed: .*got count = 1; .*runner"):
        element.count = 1
    with pytest.raises(UsageError, match=r"FreshSpeed: .*got del _shape; .*runner"):
        del element._shape
    assert not hasattr(element, "count")


# ---- copies and processes ------------------------------------------------------------------------


def test_copies_and_pickles_are_the_instance() -> None:
    speed = Speed()
    assert copy.copy(speed) is speed
    assert copy.deepcopy({"a": [speed]})["a"][0] is speed
    assert pickle.loads(pickle.dumps(speed)) is speed


FAR_SIDE = """
import pickle, sys
element, runner = pickle.loads(sys.stdin.buffer.read())
assert type(element)(3.0) is element, "a second instance"
assert runner._core is element
print(element, runner.count)
"""


def test_an_element_pickled_by_value_is_made_anew_with_its_arguments() -> None:
    """A class of a script or a notebook: it travels whole, and its instance is made on the other side."""
    namespace: dict[str, Any] = {"__name__": "__main__", "EnvElement": EnvElement, "Runner": EnvElementRunner}
    code = (
        "class Limit(EnvElement):\n"
        "    def _init(self, limit):\n"
        "        self._shape, self._value = (1,), limit\n"
        "        self._to_agent_processor = self._from_agent_processor = None\n"
        "    def _details(self):\n"
        "        return str(self._value)\n"
        "class LimitRunner(Runner):\n"
        "    def _init(self):\n"
        "        self._core, self.count = Limit(3.0), 5\n"
        "    def get(self, engine):\n"
        "        return engine\n"
        "    def reset(self):\n"
        "        self.count = 0\n"
    )
    exec(code, namespace)
    runner = namespace["LimitRunner"]()
    sent = cloudpickle.dumps((namespace["Limit"](3.0), runner))
    done = subprocess.run([sys.executable, "-c", FAR_SIDE], input=sent, capture_output=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode().strip() == "EnvElement: 3.0 5"


# ---- runners -------------------------------------------------------------------------------------


class SpeedRunner(EnvElementRunner):
    """The mean of the speeds seen."""

    _core: Speed

    def _init(self, core: Any = None) -> None:
        self._core = Speed() if core is None else core
        self.seen: list[float] = []

    def get(self, engine: Any) -> float:
        self.seen.append(double(engine))
        return sum(self.seen) / len(self.seen)

    def reset(self) -> None:
        self.seen = []


def test_a_runner_speaks_for_its_element() -> None:
    runner = SpeedRunner()
    assert runner.info == Speed().info
    assert repr(runner) == "Speed: up to 10 m/s"


def test_a_runner_has_state_of_its_own_until_it_is_reset() -> None:
    one, other = SpeedRunner(), SpeedRunner()
    assert [one.get(1.0), one.get(3.0), other.get(5.0)] == [2.0, 4.0, 10.0]
    one.reset()
    assert one.get(7.0) == 14.0


@pytest.mark.parametrize(
    ("core", "message"), [(7, "got 7$"), (Speed, "the class itself: call it$"), ("Speed", "got 'Speed'$")]
)
def test_the_core_of_a_runner_is_an_element(core: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=f"^SpeedRunner: expected _init to set _core to an EnvElement, .*{message}"):
        SpeedRunner(core)


def test_a_runner_without_a_core_is_an_error() -> None:
    class Hollow(SpeedRunner):
        def _init(self) -> None:
            pass

    with pytest.raises(ConfigError, match=r"^Hollow: expected .*, got no _core$"):
        Hollow()


def test_the_check_of_a_runner_can_be_extended() -> None:
    class Checked(SpeedRunner):
        def _check(self) -> None:
            super()._check()
            raise ConfigError("Checked: never content")

    with pytest.raises(ConfigError, match="never content"):
        Checked()
