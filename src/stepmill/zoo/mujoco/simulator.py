"""Models and states of the installed MuJoCo, for native envs to step."""

from __future__ import annotations

import base64
import contextlib
import copy
import functools
import importlib
import logging
import os
import pickle
import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np

from stepmill import _native
from stepmill.errors import ConfigError, InputError, OutOfMemoryError, StateError, UsageError
from stepmill.sources.models import fields
from stepmill.sources.models.fields import Field, ModelChange
from stepmill.sources.simulator import UnsuitableSimulator, Values
from stepmill.system.headless import drawing
from stepmill.system.optional import MUJOCO, require
from stepmill.zoo.mujoco.installed import WarningLog, bindings_path
from stepmill.zoo.mujoco.render_arguments import RENDER_KEYS, check_render_arguments, fit_offscreen_buffer
from stepmill.zoo.mujoco.tasks import TASKS

# The arrays that C++ reads (cpp/envs/mujoco/simulation.h).
_DATA_ARRAYS = (
    "qpos", "qvel", "ctrl", "xpos", "xipos", "site_xpos", "cinert", "cvel", "cfrc_ext", "qfrc_actuator",
    "qfrc_constraint", "ten_length", "ten_velocity",
)  # fmt: skip
_MODEL_ARRAYS = ("body_mass",)


class MujocoFamily:
    """A ``SimulatorFamily``."""

    def __init__(self, env_class: str, is_silent: bool = False) -> None:
        self._mujoco = _import_mujoco(env_class)
        self._env_class = env_class
        self._warnings = WarningLog(env_class, is_silent)
        self._task = TASKS[env_class]
        self._compiled: dict[tuple[Any, ...], Any] = {}
        check_mujoco(self._mujoco)
        keys: dict[str, Any] = dict(RENDER_KEYS)
        if self._task.own_model:
            keys["xml_file"] = self._task.xml_file
        if self._task.body_key is not None:
            keys[self._task.body_key] = self._task.bodies[self._task.body_key]
        if self._version >= 5 or env_class == "Swimmer-v4":  # the other v4 ids have a camera of their own
            keys["default_camera_config"] = None
        self.keys = keys

    @property
    def _version(self) -> int:
        return int(self._env_class[-1])

    def __reduce__(self) -> Any:
        return type(self), (self._env_class, True)  # in a worker: the caller has logged what there is to say

    def prepare(self, config: Mapping[str, Any]) -> MujocoModel:
        config = {**self.keys, **config}
        path = _model_path(config.get("xml_file", self._task.xml_file))
        model = self._compile(path, config)
        check_render_arguments(config, self._mujoco, model)
        fit_offscreen_buffer(config, model)
        bodies = {
            name: self._body(model, config.get(name, default) if name == self._task.body_key else default, path)
            for name, default in self._task.bodies.items()
        }
        return MujocoModel(self._mujoco, model, {**bodies, **self._numerics()})

    def _compile(self, path: str, config: Mapping[str, Any]) -> Any:
        """The model in a file, compiled once per pool for each size of pictures, which is written into it.

        What MuJoCo warns of is logged once per pool, and not written into a file. What is deprecated in Gymnasium's own
        models is not logged: whoever uses them cannot change them.
        """
        key = path, repr(config["width"]), repr(config["height"])
        if key in self._compiled:
            return self._compiled[key]
        with self._warnings.listening(tells_deprecations=os.path.dirname(path) != _assets()):
            try:
                model = self._mujoco.MjModel.from_xml_path(path)
            except ValueError as error:
                _refuse_callbacks(self._mujoco, error)
                raise ConfigError(f"xml_file: MuJoCo cannot compile {path}: {error}") from error
        self._compiled[key] = model
        return model

    def _numerics(self) -> Values:
        center = {"fused_mass_center": fuses_mass_center(self._version)} if self._task.reads_mass_center else {}
        return {"fused_dot": fuses_dot(), **center}

    def _body(self, model: Any, body: Any, path: str) -> int:
        """The index of a body that the env reads."""
        try:
            if isinstance(body, bool):
                raise TypeError("a flag names no body")
            return int(model.body(body).id)
        except (KeyError, IndexError, TypeError) as error:
            names = [model.body(i).name for i in range(model.nbody)]
            raise ConfigError(
                f"{self._env_class} reads the position of body {body!r}, and {path} has none: its bodies are {names}"
            ) from error


class MujocoModel:
    """A ``SimulatorKind``: a compiled model, which the envs of one configuration share."""

    def __init__(self, mujoco: Any, model: Any, extra: Values) -> None:
        self.mujoco = mujoco
        self.model = model
        self.why_unsaved = _why_unsaved(self.make_data(model))
        low, high = model.actuator_ctrlrange.astype("float32").T
        self.sizes: Values = {
            **{name: int(getattr(model, name)) for name in ("nq", "nv", "nu", "nbody", "nsite", "ntendon")},
            "ctrl_low": [float(x) for x in low],
            "ctrl_high": [float(x) for x in high],
            **extra,
        }

    @functools.cached_property
    def fingerprint(self) -> str:
        model = copy.copy(self.model)
        model.vis.global_.offwidth = model.vis.global_.offheight = 0  # the size of pictures
        compiled = np.empty(self.mujoco.mj_sizeModel(model), np.uint8)
        self.mujoco.mj_saveModel(model, None, compiled)
        return f"MuJoCo {self.mujoco.__version__} with model {zlib.crc32(compiled.tobytes()):08x}"

    def describe_model(self, names: Sequence[str]) -> list[Field]:
        return fields.describe(self.model, names)

    def read_change(self, line: bytes) -> ModelChange | None:
        return pickle.loads(base64.b64decode(line)) if line else None

    def make(self) -> MujocoSimulator:
        return MujocoSimulator(self, self.make_data(self.model))

    def make_data(self, model: Any) -> Any:
        try:
            return self.mujoco.MjData(model)
        except self.mujoco.FatalError as error:
            if "memory" not in str(error):
                raise
            raise OutOfMemoryError(f"MuJoCo cannot allocate the state of another env: {error}") from error


@dataclass(frozen=True)
class ChangedModel:
    """A model, and all that was changed in it since it was compiled."""

    model: Any
    change: ModelChange | None = None

    def then(self, change: ModelChange) -> ChangedModel:
        """A copy of it with another change to be applied."""
        return ChangedModel(copy.copy(self.model), change if self.change is None else self.change.then(change))

    def line(self) -> bytes:
        """The change as a line of ``model_changes``."""
        return b"" if self.change is None else base64.b64encode(pickle.dumps(self.change))


class MujocoSimulator:
    """A ``Simulator``: the state of one env."""

    def __init__(self, kind: MujocoModel, data: Any) -> None:
        self._kind = kind
        self.data = data
        # The env takes up a changed model in its next reset. Until then it steps the former one, which must live on.
        self._newest = self._former = ChangedModel(kind.model)
        # The env writes them: the address of the model that it uses, and whether it was given a saved state.
        self._notes = np.zeros(2, np.int64)

    @property
    def model(self) -> Any:
        """The model that the env uses. It must be idle."""
        return self._in_use.model

    @property
    def _in_use(self) -> ChangedModel:
        return self._newest if self._newest.model._address == self._notes[0] else self._former

    def find_contacts(self) -> None:
        """Finds the contacts of a saved state that the env was given: they are not in it, but pictures show them."""
        if self._notes[1]:
            self._kind.mujoco.mj_collision(self.model, self.data)
            self._kind.mujoco.mj_makeConstraint(self.model, self.data)
            self.data.efc_force[:] = 0.0  # the next step finds the forces: these are whatever was in their memory
            self._notes[1] = 0

    def describe_model(self, names: Sequence[str]) -> list[Field]:
        return fields.describe(self._newest.model, names)

    def get_model(self, names: Sequence[str]) -> list[np.ndarray]:
        return fields.read(self._newest.model, names)

    def try_model(self, change: ModelChange) -> None:
        model = copy.copy(self._newest.model)
        with WarningLog("set_model", is_silent=True).listening():
            fields.apply(change, model, self._kind.make_data(self.model))
            fields.check(change, model, self._kind.make_data(model))

    def set_model(self, change: ModelChange) -> None:
        newest = self._newest.then(change)
        self._apply(change, newest.model)
        self._newest, self._former = newest, self._in_use

    def _apply(self, change: ModelChange, model: Any) -> None:
        if not change.set_const:
            fields.apply(change, model, None)
            return
        # mj_setConst needs a state, and may not overwrite that of an episode that goes on.
        with WarningLog("set_model").listening():
            fields.apply(change, model, self._kind.make_data(self.model))

    def model_changes(self) -> bytes:
        newest, former = self._newest, self._former
        if newest.change is None and former.change is None:
            return b""
        return newest.line() if self._in_use is newest else former.line() + b"\n" + newest.line()

    def put_model(self, changes: bytes) -> None:
        newest = ChangedModel(self._kind.model)
        if (change := self._kind.read_change(changes)) is not None:
            newest = newest.then(change)
            try:
                self._apply(change, newest.model)
            except InputError as error:
                raise StateError(f"restore: the model of a state is refused: {error}") from error
        self._newest, self._former = newest, self._in_use

    def values(self) -> Values:
        newest = self._newest.model
        return {
            **self._kind.sizes,
            "bindings": bindings_path(),
            "model": newest._address,
            "data": self.data._address,
            "notes": _address(self._notes, "int64"),
            "timestep": float(newest.opt.timestep),
            **{name: _address(getattr(self.data, name)) for name in _DATA_ARRAYS},
            **{name: _address(getattr(newest, name)) for name in _MODEL_ARRAYS},
            **_memory(self.data),
        }

    def close(self) -> None: ...


def _address(array: Any, dtype: str = "float64") -> int:
    if array.dtype != dtype or not array.flags.c_contiguous:
        raise UnsuitableSimulator(f"an array of MuJoCo is {array.dtype} with strides {array.strides}")
    return int(array.__array_interface__["data"][0])


# Which arrays come first and last in the memory of a data. Those that MuJoCo computes anew in every step are elsewhere.
_FIRST, _LAST = "qpos", "cfrc_ext"


def _memory(data: Any) -> dict[str, int]:
    """Where all arrays of a state are, in two pieces: between them are addresses of what plugins keep."""
    first = _address(getattr(data, _FIRST))
    last = _address(getattr(data, _LAST)) + getattr(data, _LAST).nbytes
    plugins = _address(data.plugin_data, "uint64") if data.nplugin else last  # without any, it has no place
    after = plugins + data.plugin_data.nbytes
    return {
        "memory": first,
        "memory_bytes": plugins - first,
        "memory_after_plugins": after,
        "memory_after_plugins_bytes": last - after,
    }


def _why_unsaved(data: Any) -> str | None:
    """MuJoCo says how much memory the arrays have, with up to 63 bytes to spare. It must be what we know of."""
    found = _memory(data)
    size = found["memory_after_plugins"] + found["memory_after_plugins_bytes"] - found["memory"]
    if data.nbuffer - 64 < size <= data.nbuffer and found["memory_after_plugins_bytes"] >= 0:
        return None
    return "this MuJoCo keeps its arrays in another way than stepmill knows"


# ---- the installed package -----------------------------------------------------------------------


def _import_mujoco(user: str) -> Any:
    """MUJOCO_GL makes it import OpenGL, which may be missing."""
    with contextlib.nullcontext() if MUJOCO.module in sys.modules else drawing(user):
        return require(*MUJOCO, user)


@functools.cache
def check_mujoco(mujoco: Any) -> None:
    """Raises ``UnsuitableSimulator`` if this MuJoCo lacks what native envs need."""
    try:
        _native.check_mujoco(bindings_path())
        model = mujoco.MjModel.from_xml_string("<mujoco/>")
        MujocoSimulator(MujocoModel(mujoco, model, {}), mujoco.MjData(model)).values()
    except ValueError as error:
        _refuse_callbacks(mujoco, error)
        raise
    except (RuntimeError, AttributeError) as error:
        raise UnsuitableSimulator(str(error)) from error


def _refuse_callbacks(mujoco: Any, error: ValueError) -> None:
    """Raises an error if a callback in Python is why a model cannot be compiled.

    MuJoCo calls it for the model, of which there is no Python object yet that the callback could be given.
    """
    names = [f"set_mjcb_{name}" for name in ("control", "passive") if getattr(mujoco, f"get_mjcb_{name}")() is not None]
    if names and "Python exception" in str(error):
        raise UsageError(
            f"MuJoCo cannot compile a model while a callback in Python is set (mujoco.{', mujoco.'.join(names)}): make "
            "the pool first, then set the callback"
        ) from error


def _assets() -> str:
    """The folder of Gymnasium's models."""
    return os.path.join(os.path.dirname(gymnasium.__file__), "envs", "mujoco", "assets")


def _model_path(xml_file: Any) -> str:
    """The path that Gymnasium reads: names without a folder are its own models."""
    if isinstance(xml_file, os.PathLike):
        xml_file = os.path.abspath(xml_file)
    if not isinstance(xml_file, str):
        raise ConfigError(f"xml_file: expected the path of a model, as a str or a Path, got {xml_file!r}")
    if xml_file.startswith((".", "/")):
        path = xml_file
    elif xml_file.startswith("~"):
        path = os.path.expanduser(xml_file)
    else:
        path = os.path.join(_assets(), xml_file)
    if not os.path.exists(path):
        raise ConfigError(f"xml_file: there is no file {path}")
    return path


# ---- numerics ------------------------------------------------------------------------------------
#
# How the installed numpy and Gymnasium sum products: with one rounding per term, or with two. BLAS and ``np.einsum``
# fuse a product with its sum on some CPUs. Native envs do what is found here.

_PROBES = 200


@functools.cache
def fuses_dot() -> bool:
    """Whether ``np.linalg.norm`` of two and three numbers fuses. They differ in one of six results."""
    vectors = [np.random.default_rng(i).normal(size=2 + i % 2) for i in range(_PROBES)]
    return _agrees(
        "np.linalg.norm", lambda fused, x: np.sqrt(_native.sum_of_products(fused, x, x)) == np.linalg.norm(x), vectors
    )


@functools.cache
def fuses_mass_center(version: int) -> bool:
    """Whether Gymnasium's centre of mass of a humanoid fuses."""
    rng = np.random.default_rng(0)
    probes = [(rng.uniform(0, 5, 14), rng.normal(size=(14, 3))) for _ in range(_PROBES)]
    center = _mass_center(version)

    def equal(fused: bool, probe: tuple[np.ndarray, np.ndarray]) -> bool:
        mass, positions = probe
        ours = _native.sum_of_products(fused, mass, np.ascontiguousarray(positions[:, 0])) / mass.sum()
        return bool(ours == center(mass, positions)[0])

    return _agrees("the centre of mass of a humanoid", equal, probes)


def _mass_center(version: int) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """Gymnasium's own function if it can be imported: its formula has changed between versions."""
    try:
        theirs = importlib.import_module(f"gymnasium.envs.mujoco.humanoid_v{version}").mass_center
    except (ImportError, AttributeError):  # it needs packages that rendering needs
        return lambda mass, positions: np.einsum("b,bj->j", mass, positions) / mass.sum()
    return lambda mass, positions: theirs(SimpleNamespace(body_mass=mass), SimpleNamespace(xipos=positions))


def _agrees(what: str, equal: Callable[..., bool], probes: list[Any]) -> bool:
    """Whether the fused form agrees on more probes than the other one: one of them should agree on all."""
    fused, separate = (sum(bool(equal(form, probe)) for probe in probes) for form in (True, False))
    if max(fused, separate) < len(probes):
        logging.getLogger("stepmill").warning(
            "%s here is computed in a way that stepmill does not know: some native MuJoCo envs may differ from "
            "Gymnasium's in the last bit of a number. stepmill.verify() says which",
            what,
        )
    return fused > separate
