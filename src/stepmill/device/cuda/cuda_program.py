"""Steps the envs of a pool on a GPU, by a kernel that was compiled of their class."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from stepmill import _native
from stepmill.device.cuda import driver
from stepmill.device.cuda.action_tensors import ActionTensors
from stepmill.device.cuda.cuda_states import CudaKeeper
from stepmill.errors import UnsupportedError
from stepmill.settings import Settings
from stepmill.sources.source import NativeSource
from stepmill.values.spaces import ArrayLeaf
from stepmill.values.trees import leaves

_RESET, _OBSERVE, _RECALL = 1, 2, 3  # sm_command
_ENDED = 2  # sm_phase
_ABNORMAL = _native.FIXED_GPU_ARRAYS.index("abnormal") - len(_native.FIXED_GPU_ARRAYS)  # of the arrays of a batch

State = tuple[bytes, ...]  # of all envs, as GpuStates.read() gives it
Past = tuple[int, int | None, int | None, int]  # what `notes` gives, and how many episodes have ended


class Uploaded(NamedTuple):
    """An action that was copied from the host."""

    arrays: list[_native.GpuArray]


class CudaProgram:
    """The envs of a pool, and what moves them.

    ``step`` and ``graph_step`` do not wait for the GPU if the action is there; all else does.

    Args:
        source: The envs.
        settings: The settings of the pool.
        action: The arrays of an action.
        image: The kernel.
        gpu: The number of the GPU.
        stream: Says which stream is the caller's now.
    """

    backend = "cuda"
    keeper = CudaKeeper
    # Calls of a pool that these envs cannot do, and why.
    refusals: ClassVar[dict[str, str]] = {
        "np_random": "the generators of the envs of this pool are on their GPU",
        "render": "envs on a GPU cannot be drawn",
        "xla": "the envs of this pool are on a GPU: XLA's programs on the CPU cannot step them",
    }

    def __init__(
        self,
        source: NativeSource,
        settings: Settings,
        action: Sequence[ArrayLeaf],
        image: bytes,
        gpu: int,
        stream: Callable[[], int],
    ) -> None:
        self.gpu, self._action, self.stream = gpu, action, stream
        self._env_class = source.env_class
        self.envs = _native.GpuEnvs(
            library=driver.LIBRARY,
            memory_kind=driver.MEMORY_KIND,
            device=gpu,
            image=image,
            env_class=source.env_class,
            configs=source.configs,
            seeds=settings.seed,
            same_step=settings.autoreset == "same_step",
            max_episode_steps=source.max_episode_steps or 0,
            hides_streams=settings.output == "jax",
        )
        self.num_envs = settings.num_envs
        self.place = f"cuda:{gpu}"
        offset = self.envs.table_offset
        self.table_word = None if offset < 0 else offset // 8  # which word of an env says what table it reads
        self.memory_words = self.envs.memory_words
        self.token = object()  # of these envs, for copies of them, which may outlive them
        self._batch: Any = None  # of the last step
        self._seen: Any = None  # the last batch that was handed out; until then, one takes the rows of more envs
        self._of_graphs: Any = None  # the batch that all calls of graph_step fill
        self._tensors: ActionTensors | None = None
        if settings.output == "torch":
            envs = self.envs  # and not this object: a cycle would keep the GPU's memory
            self._tensors = ActionTensors(action, self.num_envs, lambda: envs.refuse_capture(stream()))

    @property
    def stands(self) -> object:
        """Another object as soon as envs were moved."""
        return self._batch

    def on_device(self, action: Any) -> Uploaded:
        """A copy of an action of the host."""
        return Uploaded([self.envs.upload(np.ascontiguousarray(part), self.stream()) for part in leaves(action)])

    # ---- what moves the envs -----------------------------------------------------------------
    # ``call_into`` sets the batch without an instruction of Python in between, where a signal handler could raise.

    def step(self, action: Any) -> None:
        """Steps all envs."""
        addresses, _kept = self._addresses(action)
        _native.call_into(self, "_batch", self.envs.step, addresses, self.stream())

    def step_some(self, action: Any, which: np.ndarray) -> None:
        """Steps some of them. ``action`` has a row for each; those of the others are not looked at."""
        addresses, _kept = self._addresses(action)
        self._command(addresses, self._open(), which.tobytes(), None)

    def reset(
        self,
        which: np.ndarray | None,
        seeds: np.ndarray | None,
        has_seed: np.ndarray | None,
        options: tuple[bytes, int] | None,
        shows_all: bool,
    ) -> None:
        """Begins episodes of all envs, or of some, of which some may be given seeds."""
        command = np.full(self.num_envs, _RESET, np.uint8)
        moved = None
        if which is not None and shows_all:
            command[~which] = _OBSERVE
        elif which is not None:
            moved = which.tobytes()
        into = None if which is None else self._open()
        action, _kept = self._addresses(self._no_action)
        self._command(action, into, moved, command.tobytes(), seeds, has_seed, options)

    def load(self, states: _native.GpuStates, places: np.ndarray | None, ids: np.ndarray) -> None:
        """Makes some envs what saved ones were, and has them show it. ``places`` says which of these is whose."""
        which = np.zeros(self.num_envs, bool)
        which[ids] = True
        action, _kept = self._addresses(self._no_action)
        moved = action, self.stream(), self._open(), which.tobytes(), bytes([_RECALL]) * self.num_envs
        _native.call_into(self, "_batch", self.envs.load, states, places, ids, *moved)

    def graph_step(self, action: Any) -> Any:
        """Steps all envs into a batch that is the same each time: after the first call, this is one launch."""
        addresses, _kept = self._addresses(action)
        if self._of_graphs is None:
            _native.call_into(self, "_of_graphs", self.envs.step, addresses, self.stream())
        else:
            self.envs.graph_step(addresses, self.stream(), self._of_graphs)
        return self._of_graphs

    def _open(self) -> Any:
        """The last batch, if nobody has it yet."""
        return None if self._batch is self._seen else self._batch

    def _command(
        self,
        addresses: tuple[int, ...],
        into: Any,
        which: bytes | None,
        command: bytes | None,
        seeds: np.ndarray | None = None,
        has_seed: np.ndarray | None = None,
        options: tuple[bytes, int] | None = None,
    ) -> None:
        numbers, mask = options or (None, 0)
        told = [None if one is None else one.tobytes() for one in (has_seed, seeds)]
        given = (addresses, self.stream(), into, which, command, *told, numbers, mask)
        _native.call_into(self, "_batch", self.envs.command, *given)

    def _addresses(self, action: Any) -> tuple[tuple[int, ...], Any]:
        """Where the arrays of an action are, in the types of the kernel; and what keeps them there."""
        if isinstance(action, Uploaded):
            return tuple(one.address for one in action.arrays), action
        assert self._tensors is not None  # else actions are read on the host
        return self._tensors.addresses(action)

    @functools.cached_property
    def _no_action(self) -> Uploaded:
        """An action that no env looks at, but that is read."""
        return self.on_device(tuple(np.zeros((self.num_envs, *leaf.shape), leaf.dtype) for leaf in self._action))

    # ---- what is asked about them ------------------------------------------------------------

    def read_options(self, options: Mapping[str, Any] | None) -> tuple[bytes, int] | None:
        """Options of a reset, as the kernel takes them."""
        if not options:
            return None
        read: tuple[bytes, int] = _native.read_reset_options(self._env_class, dict(options))
        return read

    def shown(self, told: np.ndarray | None) -> Any:
        """The last batch. Its rows belong to whoever asks for them."""
        self._seen = self._batch
        return self._batch

    def over(self) -> np.ndarray:
        """Whose episode is over. Waits for the GPU."""
        over: np.ndarray = np.frombuffer(self.envs.phases(self.stream()), np.uint8) == _ENDED
        return over

    def check_moment(self) -> None:
        """Raises if nothing can be done now, because a CUDA graph is being captured."""
        self.envs.refuse_capture(self.stream())

    @property
    def is_in_graph(self) -> bool:
        """Whether a CUDA graph was captured that steps the envs when it is replayed."""
        return self.envs.is_in_graph

    def notes(self) -> tuple[int, int | None, int | None]:
        """How many steps and resets have failed, and which envs have had bad actions and failed. Waits for the GPU.

        Of those envs, the lowest id each, since it was forgotten; None: none.
        """
        self.check_moment()
        misfit = None if self._tensors is None else self._tensors.misfit()
        failures, bad, failed = self.envs.notes(self.stream())
        return failures, min((one for one in (bad, misfit) if one is not None), default=None), failed

    def failed(self, ids: np.ndarray) -> np.ndarray:
        """Which of the last rows of these envs are failures. Waits for the GPU."""
        flags = self._batch.arrays(self.stream())[_ABNORMAL]
        failed: np.ndarray = ids[flags[ids]]
        return failed

    def forget_bad(self) -> None:
        if self._tensors is not None:
            self._tensors.forget_misfit()
        self.envs.forget_bad()

    def forget_failed(self) -> None:
        self.envs.forget_failed()

    def past(self) -> Past:
        """What was counted and noted until now. Waits for the GPU."""
        return *self.notes(), self.episodes()

    def episodes(self) -> int:
        """How many have ended. Waits for the GPU."""
        return int(self.envs.episodes(self.stream()))

    def size(self) -> int:
        """The bytes of the GPU that envs, results and saved states of this pool hold."""
        return int(self.envs.memory_bytes)

    def is_lost(self) -> bool:
        return False

    def copies(self, ids: np.ndarray | None) -> _native.GpuStates:
        """All that decides how some envs go on, on the GPU. Waits for it."""
        return self.envs.save(ids, self.stream())

    def copies_of(self, state: State) -> _native.GpuStates:
        """The same, of what ``GpuStates.read`` gave. Waits for the GPU."""
        return self.envs.states_of(state, self.stream())

    def in_flight_rows(self) -> bytes:
        """What the last batch has. Waits for the GPU."""
        rows: bytes = self._batch.content(self.stream())
        return rows

    @property
    def longest_table(self) -> int:
        """Its size in bytes."""
        return self.envs.longest_table

    def table(self, address: int) -> bytes | None:
        """What envs read there; None if it is no table of theirs. Waits for the GPU."""
        content: bytes | None = self.envs.table(address, self.stream())
        return content

    def keep_table(self, content: bytes) -> int:
        """Where a new table is."""
        return int(self.envs.keep_table(content, self.stream()))

    def set_now(self, now: tuple[State, bytes | None, Past]) -> None:
        """Goes on from what another program was, and from rows that nobody has seen."""
        state, rows, past = now
        self.envs.write(state, self.stream())
        self.envs.go_on_from(*past)
        self._batch = None if rows is None else self.envs.batch_of(rows, self.stream())

    def functional(self, seeds: Sequence[int]) -> Any:
        raise UnsupportedError("functional: the envs of this pool are a kernel, and no functions of JAX")
