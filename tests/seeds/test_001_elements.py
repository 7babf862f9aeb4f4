"""The first description of the environment layer (seed 001): elements, their runners, and the folder of an env."""

from __future__ import annotations

import copy
import inspect
import sys
import textwrap
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepmill.envs import BaseEnv, BaseEnvInfo, BaseEnvTimestep, EnvElement, EnvElementRunner
from stepmill.envs.common.env_element import EnvElementInfo, IEnvElement
from stepmill.envs.common.env_element_runner import IEnvElementRunner
from stepmill.errors import ConfigError, UsageError
from support.seed_runs import assert_same, play

FOUR = ["shape", "value", "to_agent_processor", "from_agent_processor"]

# ---- EnvElement ----------------------------------------------------------------------------------


class Place(EnvElement):
    _name = "Place"

    def _init(self, width: float = 10.0) -> None:
        self._shape = (1,)
        self._value = {"min": 0.0, "max": width, "dtype": np.float32}
        self._to_agent_processor = lambda place: np.array([place], np.float32)
        self._from_agent_processor = None

    def _details(self) -> str:
        return f"up to {self._value['max']:g}"


def fresh(base: type = Place) -> Any:
    """A class of its own, of which there is no instance yet."""
    return type("Fresh", (base,), {})


@pytest.mark.parametrize(
    ("interface", "methods"),
    [(IEnvElement, {"__repr__", "info"}), (IEnvElementRunner, {"__repr__", "info", "get", "reset"})],
)
def test_snippet_interfaces(interface: Any, methods: set[str]) -> None:
    """IEnvElement and IEnvElementRunner: what is abstract in them."""
    assert interface.__abstractmethods__ == methods


def test_element_info_template_is_a_namedtuple_of_four() -> None:
    """Class variable 1: shape, value, and the two functions; made by name."""
    assert list(EnvElement.info_template._fields) == FOUR
    assert EnvElement.info_template is EnvElementInfo
    info = Place().info
    assert isinstance(info, Place.info_template)
    shape, value, to_agent, from_agent = info
    assert (shape, value["max"], to_agent(3.0).tolist(), from_agent) == ((1,), 10.0, [3.0], None)


def test_element_info_template_of_ones_own() -> None:
    """Class variable 1: a subclass may set its own."""
    template = namedtuple("Mine", FOUR)
    cls = type("Fresh", (Place,), {"info_template": template})
    assert cls().info == template((1,), cls().info.value, cls().info.to_agent_processor, None)


def test_element_instance_is_the_only_one() -> None:
    """Class variable 2: ``_instance`` is None, then the one instance of that class."""
    one, other = fresh(), fresh()
    assert one._instance is None
    assert one() is one() is one._instance
    assert other() is not one()
    assert EnvElement._instance is None


def test_element_name_begins_its_text() -> None:
    """Class variable 3, and ``__repr__``: name and details."""
    assert EnvElement._name == "EnvElement"
    assert repr(Place()) == "Place: up to 10"


def test_element_is_the_same_wherever_it_is_asked_for() -> None:
    """Overview: one instance per class in a process, also through copies."""
    assert copy.deepcopy(Place()) is copy.copy(Place()) is Place()


def test_element_init_is_called_by_the_constructor_and_checked() -> None:
    """Methods to write: ``_init`` does the work, and ``_check`` always follows."""
    seen: list[str] = []

    class Noting(Place):
        def _init(self) -> None:
            super()._init()
            seen.append("_init")

        def _check(self) -> None:
            super()._check()
            seen.append("_check")

    Noting()
    assert seen == ["_init", "_check"]
    assert list(inspect.signature(EnvElement.__init__).parameters) == ["self", "args", "kwargs"]


@pytest.mark.parametrize("method", ["_init", "_details"])
def test_element_abstract_methods(method: str) -> None:
    """Methods to write: both are abstract."""
    others = {name: getattr(Place, name) for name in {"_init", "_details"} - {method}}
    with pytest.raises(TypeError, match=method):
        type("Partial", (EnvElement,), others)()


@pytest.mark.parametrize("missing", [f"_{name}" for name in FOUR])
def test_differs_a_missing_attribute_is_a_config_error(missing: str) -> None:
    """There it is an AssertionError with a list of flags, and nothing under ``python -O``. Here the name is said."""

    class Incomplete(Place):
        def _init(self) -> None:
            super()._init()
            delattr(self, missing)

    with pytest.raises(ConfigError, match=f"Incomplete.*{missing}"):
        Incomplete()


def test_differs_an_element_cannot_be_changed() -> None:
    """There stateless is a promise; here it holds: every env of the process would see the change."""
    with pytest.raises(UsageError, match="runner"):
        Place()._shape = (2,)
    info = Place().info
    info.value["max"] = 0
    assert Place().info.value["max"] == 10.0


def test_differs_other_arguments_are_an_error() -> None:
    """There the arguments of a second call are ignored silently."""
    with pytest.raises(ConfigError, match="one instance"):
        Place(width=20.0)


def test_last_notes_empty_values_are_none() -> None:
    """Last notes 3: what an element does not have is None; 2: what comes in is checked, what goes out has its form."""

    class Empty(EnvElement):
        def _init(self) -> None:
            self._shape = self._value = self._to_agent_processor = self._from_agent_processor = None

        def _details(self) -> str:
            return "nothing"

    assert tuple(Empty().info) == (None, None, None, None)


# ---- EnvElementRunner ----------------------------------------------------------------------------


class PlaceRunner(EnvElementRunner):
    def _init(self) -> None:
        self._core = Place()
        self._last = 0.0

    def get(self, engine: Any) -> Any:
        moved, self._last = engine.place - self._last, engine.place
        return self._core.info.to_agent_processor(moved)

    def reset(self) -> None:
        self._last = 0.0


class WalkEnv(BaseEnv):
    """The env of the notes: static parts in an element, what changes in its runner, the rest in the env."""

    def __init__(self, cfg: dict) -> None:
        self._cfg = cfg
        self._obs_runner = PlaceRunner()
        self._place = 0.0

    @property
    def place(self) -> float:
        return self._place

    def info(self) -> BaseEnvInfo:
        moves = EnvElementInfo((2,), {"min": 0, "max": 2, "dtype": np.int64}, None, None)
        return BaseEnvInfo(1, EnvElementInfo((1,), None, None, None), moves, EnvElementInfo((1,), None, None, None))

    def seed(self, seed: int) -> None:
        self._seed = seed

    def reset(self) -> Any:
        self._place, self._time = 0.0, 0
        self._obs_runner.reset()
        return self._obs_runner.get(self)

    def step(self, action: Any) -> BaseEnvTimestep:
        self._place += int(action)
        self._time += 1
        reward, done = np.ones(1, np.float32), self._time == 3
        return BaseEnvTimestep(self._obs_runner.get(self), reward, done, {"final_eval_reward": 3.0} if done else {})

    def close(self) -> None:
        pass

    def __repr__(self) -> str:
        return f"WalkEnv({self._obs_runner})"


def test_runner_info_and_text_are_the_elements() -> None:
    """Methods 1 and 2: both are asked of ``_core``."""
    runner = PlaceRunner()
    assert runner.info == Place().info
    assert repr(runner) == repr(Place())
    assert PlaceRunner() is not runner


def test_runner_get_reads_the_env_and_reset_forgets() -> None:
    """Methods 3 and 4: the value of now from the env, through its property; state begins anew with the episode."""
    env, other = WalkEnv({}), WalkEnv({})
    for _ in range(2):
        assert env.reset().tolist() == [0]
        assert [env.step(np.array(1)).obs.tolist() for _ in range(2)] == [[1], [1]]
    other.reset()
    assert other.step(np.array(0)).obs.tolist() == [0]


@pytest.mark.parametrize("way", ["inline", "process", "serial"])
def test_notes_an_env_of_element_and_runner(way: str) -> None:
    """Note: both together are a whole element. ``value=None`` is an unbounded float32."""
    assert_same(play(way, WalkEnv, [{}, {}], episodes=2), play("alone", WalkEnv, [{}, {}], episodes=2))


@pytest.mark.parametrize("method", ["_init", "get", "reset"])
def test_runner_abstract_methods(method: str) -> None:
    """Methods to write."""
    others = {name: getattr(PlaceRunner, name) for name in {"_init", "get", "reset"} - {method}}
    with pytest.raises(TypeError, match=method):
        type("Partial", (EnvElementRunner,), others)()


@pytest.mark.parametrize("core", [None, Place, 3])
def test_differs_a_wrong_core_is_a_config_error(core: Any) -> None:
    """``_check``: there an AssertionError with two flags, here a ConfigError that says what is missing."""

    class Coreless(PlaceRunner):
        def _init(self) -> None:
            if core is not None:
                self._core = core

    with pytest.raises(ConfigError, match="_core"):
        Coreless()


def test_runner_check_can_be_extended() -> None:
    """Methods to write: one's own ``_check`` calls the inherited one and adds to it."""

    class Checked(PlaceRunner):
        def _check(self) -> None:
            super()._check()
            raise ConfigError("never good enough")

    with pytest.raises(ConfigError, match="never good enough"):
        Checked()


# ---- the folder of an env ------------------------------------------------------------------------

FOLDER = {
    "__init__.py": "",
    "config.py": "CONFIG = {'length': 4}\n",
    "other.py": "TARGET = 3\n",
    "observation.py": """
        import numpy as np
        from stepmill.envs import EnvElement, EnvElementRunner

        class Place(EnvElement):
            _name = "Place"
            def _init(self):
                self._shape, self._value = (1,), {"min": 0, "max": 100, "dtype": np.float32}
                self._to_agent_processor = lambda place: np.array([place], np.float32)
                self._from_agent_processor = None
            def _details(self):
                return "metres"

        class PlaceRunner(EnvElementRunner):
            def _init(self):
                self._core = Place()
            def get(self, engine):
                return self._core.info.to_agent_processor(engine.place)
            def reset(self):
                pass
        """,
    "action.py": """
        import numpy as np
        from stepmill.envs import EnvElement

        class Move(EnvElement):
            _name = "Move"
            def _init(self):
                self._shape, self._value = (2,), {"min": 0, "max": 2, "dtype": np.int64}
                self._to_agent_processor = None
                self._from_agent_processor = int
            def _details(self):
                return "0 stays, 1 goes"
        """,
    "reward.py": """
        import numpy as np
        from stepmill.envs import EnvElement

        class Arrival(EnvElement):
            _name = "Arrival"
            def _init(self):
                self._shape, self._value = (1,), {"min": 0, "max": 1, "dtype": np.float32}
                self._to_agent_processor = lambda is_there: np.array([is_there], np.float32)
                self._from_agent_processor = None
            def _details(self):
                return "1 at the target"
        """,
    "env.py": """
        from stepmill.envs import BaseEnv, BaseEnvInfo, BaseEnvTimestep
        from courier_in_a_folder.action import Move
        from courier_in_a_folder.config import CONFIG
        from courier_in_a_folder.observation import PlaceRunner
        from courier_in_a_folder.other import TARGET
        from courier_in_a_folder.reward import Arrival

        class CourierEnv(BaseEnv):
            def __init__(self, cfg):
                self._cfg = {**CONFIG, **cfg}
                self._obs, self._act, self._rew = PlaceRunner(), Move(), Arrival()
            def info(self):
                return BaseEnvInfo(1, self._obs.info, self._act.info, self._rew.info)
            def seed(self, seed):
                self._seed = seed
            def reset(self):
                self.place, self.time = 0, 0
                self._obs.reset()
                return self._obs.get(self)
            def step(self, action):
                self.place += self._act.info.from_agent_processor(action)
                self.time += 1
                done = self.time == self._cfg["length"]
                reward = self._rew.info.to_agent_processor(self.place >= TARGET)
                info = {"final_eval_reward": float(self.place)} if done else {}
                return BaseEnvTimestep(self._obs.get(self), reward, done, info)
            def close(self):
                pass
            def __repr__(self):
                return f"CourierEnv({self._obs}, {self._act}, {self._rew})"
        """,
}


@pytest.mark.parametrize("way", ["alone", "process", "serial"])
def test_note_an_env_is_a_folder_of_its_parts(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Note: observation, action, reward, config and other modules of an env in one folder; workers find it too."""
    package = tmp_path / "courier_in_a_folder"
    package.mkdir()
    for name, text in FOLDER.items():
        (package / name).write_text(textwrap.dedent(text))
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.startswith(package.name)]:
        monkeypatch.delitem(sys.modules, name)
    from courier_in_a_folder.env import CourierEnv

    ((episode,),) = play(way, CourierEnv, [{}])
    assert [obs.tolist() for obs in episode.observations] == [[0], [1], [2], [3], [4]]
    assert episode.rewards == [0, 0, 1, 1]
    assert repr(CourierEnv({})) == "CourierEnv(Place: metres, Move: 0 stays, 1 goes, Arrival: 1 at the target)"
