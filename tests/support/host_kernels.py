"""Kernels of envs, compiled for the host, and run by a driver of CUDA that is none (``cpp/tests/fake_cuda.cpp``).

``Twin`` steps such envs beside those of the engine.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

import stepmill
from stepmill import _native
from stepmill.device.cuda.kernel import _own_headers
from stepmill.device.cuda.kernel_source import kernel_source
from stepmill.registry.records import find
from stepmill.sources.files.compiler import INCLUDES
from stepmill.sources.files.env_library import EnvLibrary
from stepmill.system.numpy_parity import choices
from stepmill.values.spaces import ArrayLeaf, LeafKind, flatten
from stepmill.values.trees import leaves

ROOT = Path(__file__).parents[2]
CPU = 1  # where the memory of the driver is, as DLPack has it
FLAGS = ["-std=c++20", "-O1", "-ffp-contract=off", "-fno-strict-aliasing", "-fno-exceptions", "-fno-rtti"]
FLAGS += ["-nostdinc++", "-fPIC", "-shared", "-w"]
FLAGS += ["-mfma"] if platform.machine() == "x86_64" else []
MODES = ("next_step", "same_step", "disabled")
FIXED = _native.FIXED_GPU_ARRAYS
SM_FRESH, SM_LIVE, SM_ENDED = 0, 1, 2
HAS_SEED = 1 << 8  # in the word of a phase
SM_STEP, SM_RESET, SM_OBSERVE = 0, 1, 2

# What the engine keeps of an env: its standing, the request of its next reset, its generator, how often it was reset.
_SAVED = struct.Struct("<diBBHq 64x 4QII q")
SELDOM = np.dtype(
    [
        ("random", "<u8", 5),
        ("seed", "<u8"),
        ("ended", "<u4"),
        ("option_mask", "<u4"),
        ("option", "<f8", 6),
        ("_", "V24"),
    ]
)


def definitions() -> list[str]:
    """What a kernel is compiled for besides: the arithmetic of numpy that was chosen."""
    trig, keeps_float32 = choices()
    return [f"-DSTEPMILL_FLOAT32_TRIG={trig}", f"-DSTEPMILL_SCALAR_PROMOTION={int(not keeps_float32)}"]


def headers() -> dict[str, str]:
    """The header of each class that is a part of stepmill."""
    return _own_headers()


@dataclass(frozen=True)
class Place:
    """Where a class is defined."""

    env_class: str  # as the engine knows it
    header: str
    name: str

    @classmethod
    def of(cls, task: Any) -> Place:
        """Of an id, or of an env of one file that ``stepmill.compile`` returned."""
        if isinstance(task, EnvLibrary):
            return cls(task.env_class, next(iter(task.sources)), f"::{task.name}")
        native = str(find(task).native)
        return cls(native, headers()[native], f"stepmill::{native}")


@dataclass(frozen=True)
class Form:
    """The arrays of an env class, and how its pool resets envs."""

    observation: Sequence[ArrayLeaf]
    action: Sequence[ArrayLeaf]
    info: Sequence[ArrayLeaf]
    size: tuple[int, int]
    autoreset: Any
    bounds: Any = "pass"

    @classmethod
    def of(cls, pool: Any, env_class: str) -> Form:
        told = _native.describe(env_class, with_players(env_class, pool.spec.env_configs[0]), None)
        info = [
            ArrayLeaf(x["name"], LeafKind(x["kind"]), x["dtype"], tuple(x["shape"]), list(x["low"]), list(x["high"]))
            for x in told["info"]
        ]
        observation, action = flatten(pool.single_observation_space), flatten(pool.single_action_space)
        size = told["object_bytes"], told["object_alignment"]
        settings = pool.settings
        return cls(observation.leaves, action.leaves, info, size, settings.autoreset, settings.action_bounds)

    def source(self, place: Place) -> str:
        leaves = (self.observation, self.action, self.info)
        return kernel_source(place.header, place.name, self.size, *leaves, self.autoreset, self.bounds)


class Kernels:
    """Compiles for the host, each source once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)

    def compile(self, source: str, *flags: str, kernel: bool = True) -> Path:
        """The library of a source."""
        command = [shutil.which("g++") or "g++"]
        command += [*FLAGS, f"-I{INCLUDES}/gpu/std", *definitions()] if kernel else ["-std=c++20", "-fPIC", "-shared"]
        command += [f"-I{INCLUDES}", *flags]
        known = hashlib.sha256("\0".join([*command, source]).encode()).hexdigest()[:24]
        library = self.folder / f"{known}.so"
        if not library.exists():
            with tempfile.TemporaryDirectory(dir=self.folder) as made:
                text = Path(made, "kernel.cpp")
                text.write_text(source)
                done = subprocess.run(
                    [*command, str(text), "-o", f"{made}/made.so"], capture_output=True, text=True, check=False
                )
                if done.returncode != 0:
                    raise RuntimeError(done.stderr)
                os.replace(f"{made}/made.so", library)  # another process may make it at the same time
        return library

    @cached_property
    def driver_path(self) -> str:
        source = ROOT / "cpp/tests/fake_cuda.cpp"
        return str(self.compile(source.read_text(), "-O1", "-ldl", kernel=False))

    @cached_property
    def driver(self) -> ctypes.CDLL:
        return ctypes.CDLL(self.driver_path)

    def count(self, name: str) -> int:
        """A number in the driver's diary: ``launches``, ``waits``, and those of ``left``."""
        return ctypes.c_int.in_dll(self.driver, f"fake_{name}").value

    def left(self) -> dict[str, int]:
        """What the driver has given out and not got back."""
        return {name: self.count(name) for name in ("allocated", "events", "modules", "retained")}

    def envs(self, form: Form, place: Place, **arguments: Any) -> _native.GpuEnvs:
        """Envs of a kernel; ``arguments`` are those of ``GpuEnvs``."""
        arguments.setdefault("library", self.driver_path)
        arguments.setdefault("memory_kind", CPU)
        arguments.setdefault("device", 0)
        arguments.setdefault("max_episode_steps", 0)
        arguments.setdefault("hides_streams", False)
        arguments.setdefault("env_class", place.env_class)
        if "image" not in arguments:
            arguments["image"] = str(self.compile(form.source(place))).encode() + b"\0"
        return _native.GpuEnvs(same_step=form.autoreset == "same_step", **arguments)


Row = dict[str, np.ndarray]


@dataclass
class State:
    """What ``GpuStates.read`` returns, as arrays."""

    memory: np.ndarray  # a row per word
    seldom: np.ndarray
    episode_return: np.ndarray
    elapsed: np.ndarray
    phase: np.ndarray

    @classmethod
    def read(cls, envs: Any, num_envs: int) -> State:
        memory, seldom, total, elapsed, phase = envs.save(None, 0).read(0)
        return cls(
            np.frombuffer(memory, np.uint64).reshape(-1, num_envs).copy(),
            np.frombuffer(seldom, SELDOM).copy(),
            np.frombuffer(total, np.float64).copy(),
            np.frombuffer(elapsed, np.int32).copy(),
            np.frombuffer(phase, np.uint32).copy(),
        )

    def write(self, envs: Any) -> None:
        envs.write(
            (
                self.memory.tobytes(),
                self.seldom.tobytes(),
                *map(bytes, (self.episode_return, self.elapsed, self.phase)),
            ),
            0,
        )

    @classmethod
    def of_engine(cls, pool: Any) -> State:
        """What ``pool.save`` keeps, for classes that a copy of their memory saves."""
        saved = [bytes(one._buffer[one._first : one._last]) for one in pool.save()]
        num_envs, rest = len(saved), len(saved[0]) - _SAVED.size
        words = -(-rest // 8)
        state = cls(
            np.zeros((words, num_envs), np.uint64),
            np.zeros(num_envs, SELDOM),
            np.zeros(num_envs),
            np.zeros(num_envs, np.int32),
            np.zeros(num_envs, np.uint32),
        )
        for i, one in enumerate(saved):
            total, elapsed, phase, _, failures, _, *random, has_half, half, _ = _SAVED.unpack_from(one)
            state.episode_return[i], state.elapsed[i], state.phase[i] = total, elapsed, phase | failures << 16
            state.seldom[i]["random"] = [*random, has_half | half << 32]
            state.memory[:, i] = np.frombuffer(one[_SAVED.size :].ljust(8 * words, b"\0"), np.uint64)
        return state


class Twin:
    """A pool of the engine, and the same envs in a kernel."""

    def __init__(
        self,
        kernels: Kernels,
        task: Any,
        *,
        num_envs: int = 8,
        seed: int = 3,
        **arguments: Any,
    ) -> None:
        self.pool = stepmill.make(task, num_envs=num_envs, seed=seed, **arguments)
        self.pool.action_space.seed(seed)
        self.num_envs = num_envs
        spec = self.pool.spec
        place = Place.of(task)
        self.form = Form.of(self.pool, place.env_class)
        self.envs = kernels.envs(
            self.form,
            place,
            configs=[with_players(place.env_class, one) for one in spec.env_configs],
            seeds=[seed + i for i in range(num_envs)],
            max_episode_steps=spec.max_episode_steps or 0,
        )

    def close(self) -> None:
        self.pool.close()
        del self.envs

    # ---- one call on both sides -----------------------------------------------------------------

    def reset(self) -> tuple[Row, Row]:
        """Resets all."""
        observation, info = self.pool.reset()
        command = bytes([SM_RESET]) * self.num_envs
        batch = self.command(self.no_action(), command=command)
        return self.engine_row(observation, None, None, None, info), self.kernel_row(batch)

    def step(self, action: Any) -> tuple[Row, Row]:
        """Steps all."""
        engine = self.engine_row(*self.pool.step(action))
        return engine, self.kernel_step(action)

    def sample(self) -> Any:
        return self.pool.action_space.sample()

    def kernel_step(self, action: Any) -> Row:
        return self.kernel_row(self.envs.step(self.addresses(action), 0))

    def command(self, action: Any, **given: Any) -> Any:
        names = ("into", "which", "command", "has_seed", "seed", "option")
        entries = {name: given.get(name) for name in names}
        return self.envs.command(self.addresses(action), 0, **entries, option_mask=given.get("option_mask", 0))

    def no_action(self) -> list[np.ndarray]:
        return [np.zeros((self.num_envs, *leaf.shape), leaf.dtype) for leaf in self.form.action]

    def addresses(self, action: Any) -> tuple[int, ...]:
        found = list(leaves(action)) if isinstance(action, (dict, tuple)) else action
        parts = found if isinstance(found, list) else [found]
        self._action = [np.ascontiguousarray(x, leaf.dtype) for x, leaf in zip(parts, self.form.action, strict=True)]
        return tuple(x.ctypes.data for x in self._action)

    # ---- rows -----------------------------------------------------------------------------------

    def engine_row(self, observation: Any, reward: Any, terminated: Any, truncated: Any, info: Any) -> Row:
        none = np.zeros(self.num_envs, bool)
        row: Row = {}
        self._observations(row, "observation", observation)
        row["reward"] = np.zeros(self.num_envs, np.float32) if reward is None else np.asarray(reward, np.float32)
        row["terminated"] = none if terminated is None else np.asarray(terminated)
        row["truncated"] = none if truncated is None else np.asarray(truncated)
        row["elapsed_step"] = np.asarray(info["elapsed_step"], np.int32)
        row["ended"] = np.asarray(info.get("_episode_return", none))
        row["abnormal"] = np.asarray(info.get("abnormal", none))
        for name, dtype in (("episode_return", np.float64), ("episode_length", np.int32)):
            row[name] = np.where(row["ended"], np.asarray(info.get(name, none), dtype), 0).astype(dtype)
        self._infos(row, "info", info)
        if self.form.autoreset == "same_step":
            self._infos(row, "final_info", info.get("final_info", {}))
            finals = info.get("final_obs", [None] * self.num_envs)
            for i, leaf in enumerate(self.form.observation):
                made = np.zeros((self.num_envs, *leaf.shape), leaf.dtype)
                for env in np.flatnonzero(row["ended"]):
                    made[env] = _parts(finals[env])[i]
                row[f"final_observation {i}"] = made
        return row

    def _observations(self, row: Row, name: str, observation: Any) -> None:
        for i, one in enumerate(_parts(observation)):
            row[f"{name} {i}"] = np.asarray(one)

    def _infos(self, row: Row, name: str, info: Mapping[str, Any]) -> None:
        for leaf in self.form.info:
            present = np.asarray(info.get(f"_{leaf.name}", np.zeros(self.num_envs, bool)))
            values = np.zeros((self.num_envs, *leaf.shape), leaf.dtype)
            for env in np.flatnonzero(present):
                values[env] = info[leaf.name][env]
            row[f"{name} has {leaf.name}"], row[f"{name} {leaf.name}"] = present, values

    def kernel_row(self, batch: Any) -> Row:
        arrays = iter(batch.arrays(0))
        row: Row = {}
        finals: list[str] = []

        def rows(prefix: str) -> None:
            for i, _ in enumerate(self.form.observation):
                row[f"{prefix}observation {i}"] = next(arrays)
            values = [next(arrays) for _ in self.form.info]
            for leaf, value in zip(self.form.info, values, strict=True):
                present = next(arrays)
                row[f"{prefix}info has {leaf.name}"], row[f"{prefix}info {leaf.name}"] = present, value

        rows("")
        if self.form.autoreset == "same_step":
            rows("final_")
            finals = [name for name in row if name.startswith("final_")]
        for name in FIXED:
            row[name] = next(arrays)
        assert np.array_equal(row.pop("env_id"), np.arange(self.num_envs))
        for name in finals:  # of rows that did not end nothing was written
            row[name][~row["ended"]] = 0
        for name in [name for name in row if " has " in name]:
            row[name.replace(" has", "")][~row[name]] = 0
        return row


def _parts(value: Any) -> list[Any]:
    return list(leaves(value)) if isinstance(value, (dict, tuple)) else [value]


def with_players(env_class: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration of the class: one with players has their number among its keys."""
    one = dict(config)
    if "max_num_players" in _native.default_config(env_class):
        one["max_num_players"] = 1
    return one


def differences(one: Row, other: Row) -> dict[str, int]:
    """How many envs differ in each array."""
    assert one.keys() == other.keys()
    found = {}
    for name, values in one.items():
        same = _bits(values) == _bits(other[name])
        differ = int((~same.reshape(len(same), -1).all(axis=1)).sum())
        if differ:
            found[name] = differ
    return found


@dataclass
class Tally:
    """In how many floats two rows or states differ, and how far they are apart at most, in units in the last place."""

    compared: int = 0
    differ: int = 0
    furthest: int = 0

    def add(self, one: np.ndarray, other: np.ndarray) -> None:
        apart = [abs(a - b) for a, b in zip(_ordered(one), _ordered(other), strict=True) if a != b]
        self.compared += one.size
        self.differ += len(apart)
        self.furthest = max([self.furthest, *apart])


def _bits(values: np.ndarray) -> np.ndarray:
    """Floats as their bits: -0.0 is not 0.0."""
    return values.view(f"u{values.itemsize}") if values.dtype.kind == "f" else values


def _ordered(values: np.ndarray) -> list[int]:
    """A number for each float, so that those of neighbours are neighbours; both zeros have the same one."""
    bits, least = values.view(f"i{values.itemsize}").ravel().tolist(), -(1 << (8 * values.itemsize - 1))
    return [least - one if one < 0 else one for one in bits]
