"""Steps the envs of a pool on a device, by programs that JAX has compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from stepmill import _native
from stepmill.device.device_states import DeviceKeeper
from stepmill.device.functional import Envs, Functional, WorldRules, WorldStep, functional, keys_of, select
from stepmill.errors import ResetOptionError, UsageError
from stepmill.settings import ActionBounds
from stepmill.values.spaces import ArrayLeaf, FlatSpace, LeafKind
from stepmill.values.trees import map_tree, map_trees

# What an info says of the end of an episode.
_ENDS = {"episode_return", "episode_length", "final_obs", "final_info"}


class Notes(NamedTuple):
    """What a pool wants to know now and then, and does not wait for. Sums over all envs would be kernels."""

    bad: jax.Array  # whether an env was given a bad action since somebody looked
    episodes: jax.Array  # how many of each have ended


class Now(NamedTuple):
    """Where a pool is: one value, so that whatever is interrupted, all of it is from before or from after a call."""

    envs: Envs
    notes: Notes
    shown: WorldStep  # the last row of every env


class JaxProgram:
    """The envs of a pool, and what moves them. Nothing here waits for the device, but for ``bad`` and the like.

    Args:
        rules: Of these envs.
        action: Their action space.
        bounds: What happens to actions outside the bounds of a Box.
        device: Where the envs live: a device of JAX.
        seeds: Of the envs.
    """

    backend = "jax"
    keeper = DeviceKeeper
    # Calls of a pool that these envs cannot do, and why.
    refusals: ClassVar[dict[str, str]] = {
        "np_random": "the envs of this pool draw from keys of JAX, and have no generators of numpy",
        "xla": "the envs of this pool are functions of JAX already: functional() returns them",
    }

    def __init__(self, rules: WorldRules, action: FlatSpace, bounds: ActionBounds, device: Any, seeds: Any) -> None:
        self.rules, self.device, self._action, self._bounds = rules, device, action, bounds
        self.place = "cpu" if device.platform == "cpu" else f"cuda:{device.id}"
        self.here = jax.sharding.SingleDeviceSharding(device)
        self._step, self._step_some = self._compiled(self._trace_step), self._compiled(self._trace_step_some)
        self._reset, self._load = self._compiled(self._trace_reset), self._compiled(self._trace_load)
        self._take = jax.jit(lambda tree, ids: jax.tree.map(lambda leaf: leaf[ids], tree))
        self._told = jax.jit(_told)
        notes = Notes(jnp.zeros(rules.num_envs, bool), jnp.zeros(rules.num_envs, jnp.uint32))
        with jax.default_device(device):
            envs = jax.jit(rules.new)(jnp.asarray(keys_of(seeds)))
        given, self._given_form = jax.tree.flatten((envs, notes))
        no_action = map_tree(lambda leaf: self._no_rows(action.leaves[leaf]), action.tree)
        _, shown = jax.eval_shape(self._step, given, no_action)  # sets the form of what is shown
        self._arrays = self.on_device((given, [np.zeros(form.shape, form.dtype) for form in shown]))

    def _compiled(self, trace: Callable[..., Now]) -> Any:
        """A program that takes and gives arrays in flat lists, of which the first is given away: it is used again.

        Whoever makes trees of them runs Python, where a signal handler may raise; so that is done when nothing can be
        lost any more.
        """

        def flat(given: list[Any], *args: Any) -> tuple[list[Any], list[Any]]:
            now = trace(*jax.tree.unflatten(self._given_form, given), *args)
            shown, self._shown_form = jax.tree.flatten(now.shown)
            return jax.tree.leaves((now.envs, now.notes)), shown

        return jax.jit(flat, donate_argnums=0)

    # Trees of many arrays take some µs to make: so they are made for who asks for them.

    @property
    def stands(self) -> object:
        """The same object until the envs are moved."""
        return self._arrays

    @property
    def now(self) -> Now:
        """Where the pool is."""
        envs, notes = jax.tree.unflatten(self._given_form, self._arrays[0])
        return Now(envs, notes, self._last())

    @now.setter
    def now(self, now: Now) -> None:
        self._arrays = jax.tree.leaves((now.envs, now.notes)), jax.tree.leaves(now.shown)

    def _last(self) -> WorldStep:
        last: WorldStep = jax.tree.unflatten(self._shown_form, self._arrays[1])
        return last

    def on_device(self, tree: Any) -> Any:
        """Copies of arrays of the host; arrays of JAX only move if they are elsewhere."""
        return jax.device_put(tree, self.device, may_alias=False)

    # ---- what moves the envs -----------------------------------------------------------------
    # ``call_into`` sets the arrays without an instruction of Python in between, where a signal handler could raise:
    # then the envs would be given away, and what came of them lost.

    def step(self, action: Any) -> None:
        """Steps all envs."""
        self._move(self._step, action)

    def step_some(self, action: Any, which: np.ndarray) -> None:
        """Steps some of them. ``action`` has a row for each; those of the others are not looked at."""
        self._move(self._step_some, self._last(), action, self.on_device(which))

    def reset(
        self,
        which: np.ndarray | None,
        seeds: np.ndarray | None,
        has_seed: np.ndarray | None,
        options: None,
        shows_all: bool,
    ) -> None:
        """Begins episodes of all envs, or of some, of which some may be given seeds."""
        keys, has_key = None if seeds is None else keys_of(seeds), has_seed
        self._move(self._reset, None if which is None else self._last(), *self.on_device((which, keys, has_key)))

    def load(self, envs: Envs, shown: WorldStep, ids: np.ndarray) -> None:
        """Makes some envs what others were."""
        self._move(self._load, self._last(), *self.on_device((envs, shown, ids)))

    def _move(self, function: Any, *args: Any) -> None:
        self._check_whole()
        before = self._arrays
        _native.call_into(self, "_arrays", function, before[0], *args)
        if isinstance(self._arrays[0][-1], jax.core.Tracer):
            self._arrays = before
            raise traced()

    def whole(self) -> Now:
        """What ``now`` is, if it is anything."""
        self._check_whole()
        return self.now

    def _check_whole(self) -> None:
        if self.is_lost():
            raise UsageError(
                "the envs of this pool are lost, because a call failed or was interrupted in the middle of a step: "
                "make a new pool"
            )

    def is_lost(self) -> bool:
        """Whether the envs were given away to a program that has not returned others."""
        return bool(self._arrays[0][-1].is_deleted())

    # ---- what is asked about them ------------------------------------------------------------

    def shown(self, told: np.ndarray | None) -> WorldStep:
        """The last row of every env. With infos of some of them, if ``told`` says so."""
        shown = self._last()
        if told is None:
            return shown
        return shown._replace(info=self._told(shown.info, self.on_device(told)))

    def take(self, tree: Any, ids: np.ndarray) -> Any:
        """Some rows of arrays on the device."""
        return self._take(tree, self.on_device(ids))

    def check_moment(self) -> None:
        """A program can be called at any time."""

    def notes(self) -> tuple[int, int | None, None]:
        """As of ``CudaProgram``: the functions of a world do not fail. Waits for the device."""
        bad = np.flatnonzero(np.asarray(self.whole().notes.bad))
        return 0, int(bad[0]) if len(bad) else None, None

    def failed(self, ids: np.ndarray) -> np.ndarray:
        """None of these envs."""
        return ids[:0]

    def forget_bad(self) -> None:
        none = self.on_device(np.zeros(self.rules.num_envs, bool))
        self.now = self.now._replace(notes=self.now.notes._replace(bad=none))

    def read_options(self, options: Mapping[str, Any] | None) -> None:
        """Options of a reset, of which worlds have none."""
        if options:
            raise ResetOptionError(
                f"unknown reset option {str(next(iter(options)))!r}, expected one of: none (this env takes no options)"
            )

    def over(self) -> np.ndarray:
        """Whose episode is over. Waits for the device."""
        over: np.ndarray = np.asarray(self.now.envs.is_over)
        return over

    def render(self, draw: Callable[[Any], np.ndarray], ids: np.ndarray) -> tuple[np.ndarray, ...]:
        """Pictures of some envs."""
        states = jax.device_get(self.take(self.whole().envs.state, ids))
        return tuple(draw(jax.tree.map(lambda leaf, row=row: np.array(leaf[row]), states)) for row in range(len(ids)))

    def functional(self, seeds: Sequence[int]) -> Functional:
        """The rules as pure functions."""
        return functional(self.rules, seeds)

    def set_now(self, now: Any) -> None:
        """Goes on from what another program was, in arrays of the host."""
        self.now = self.on_device(now)

    def episodes(self) -> int:
        """How many have ended. Waits for the device."""
        return int(np.asarray(self.now.notes.episodes).sum(dtype=np.int64))

    def size(self) -> int:
        """The size of all arrays of the pool."""
        return sum(leaf.nbytes for leaf in jax.tree.leaves(self.now))

    def _no_rows(self, leaf: ArrayLeaf) -> Any:
        return jax.ShapeDtypeStruct((self.rules.num_envs, *leaf.shape), jax.dtypes.canonicalize_dtype(leaf.dtype))

    # ---- what is compiled --------------------------------------------------------------------

    def _trace_step(self, envs: Envs, notes: Notes, action: Any) -> Now:
        action, is_bad = self._judge(action)
        envs, step = self.rules.step(envs, action)
        return Now(envs, _noted(notes, step, is_bad), step)

    def _trace_step_some(self, envs: Envs, notes: Notes, shown: WorldStep, action: Any, which: jax.Array) -> Now:
        action, is_bad = self._judge(action)
        made, step = self.rules.step(envs, action, which)
        ended = step.terminated & which, step.truncated & which
        notes = _noted(notes, step._replace(terminated=ended[0], truncated=ended[1]), is_bad & which)
        return Now(select(which, made, envs), notes, select(which, step, shown))

    def _trace_reset(
        self, envs: Envs, notes: Notes, shown: WorldStep | None, which: Any, keys: Any, has_key: Any
    ) -> Now:
        if keys is not None:
            envs = envs._replace(key=select(has_key, keys, envs.key))
        envs, step = self.rules.reset(envs, which)
        return Now(envs, notes, step if shown is None else select(which, step, shown))

    def _trace_load(self, envs: Envs, notes: Notes, shown: WorldStep, given: Envs, step: WorldStep, ids: Any) -> Now:
        """What ended the episode that a state is of is not told again: a restore shows what a reset shows.

        So nothing is missed if the state comes from a pool with another autoreset, which tells other things of ends.
        """
        ends = {name: leaf for name, leaf in shown.info.items() if name.removeprefix("_") in _ENDS}
        none = jax.tree.map(lambda leaf: jnp.zeros((len(ids), *leaf.shape[1:]), leaf.dtype), ends)
        step = step._replace(info={name: none[name] if name in none else step.info[name] for name in shown.info})
        envs, shown = jax.tree.map(lambda to, rows: to.at[ids].set(rows), (envs, shown), (given, step))
        return Now(envs, notes, shown)

    def _judge(self, action: Any) -> tuple[Any, jax.Array]:
        """The action in the types of JAX, and whose was bad. What cannot be passed on is put into the space."""
        is_bad = jnp.zeros(self.rules.num_envs, bool)

        def one(leaf_id: int, given: Any) -> Any:
            nonlocal is_bad
            leaf = self._action.leaves[leaf_id]
            dtype = jax.dtypes.canonicalize_dtype(leaf.dtype)
            low, high = (_bound(one, leaf.shape, dtype) for one in (leaf.low, leaf.high))
            wrong = jnp.zeros(given.shape, bool)
            if jnp.issubdtype(given.dtype, jnp.floating):
                if given.dtype.itemsize < 4:  # which cannot hold the bounds, perhaps
                    given = given.astype(jnp.float32)
                wrong |= jnp.isnan(given)
                if not jnp.issubdtype(dtype, jnp.floating):
                    wrong |= given != jnp.floor(given)
                    given = jnp.round(jnp.nan_to_num(given))
            if jnp.issubdtype(dtype, jnp.integer) and given.dtype != dtype:
                given, was_cut = _cut(given, dtype)
                wrong |= was_cut
            if leaf.kind != LeafKind.BOX or self._bounds == "error":
                wrong |= (given < low) | (given > high)
            is_bad |= wrong.reshape(self.rules.num_envs, -1).any(1)
            if leaf.kind != LeafKind.BOX or self._bounds == "clip":
                given = jnp.clip(given, low, high)
            return given.astype(dtype)

        return map_trees(one, self._action.tree, action), is_bad


def _bound(bound: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    """The bounds of an action. Those of whole numbers are of their type: in floats, large actions would be others."""
    each = np.reshape(bound, shape) if len(bound) > 1 else bound[0]
    if not jnp.issubdtype(dtype, jnp.integer):
        return each
    holds = np.iinfo(dtype)
    flat = [min(max(int(one), holds.min), holds.max) for one in np.ravel(each)]
    return np.array(flat, dtype).reshape(np.shape(each))


def _cut(given: jax.Array, dtype: Any) -> tuple[jax.Array, jax.Array]:
    """Whole numbers as near as an integer type comes to them, and where that is another number."""
    holds = jnp.iinfo(dtype)
    if jnp.issubdtype(given.dtype, jnp.floating):
        low, high = float(holds.min), float(holds.max)
    elif jnp.issubdtype(given.dtype, jnp.integer):  # compared in their own type, in which no bound may be too large
        own = jnp.iinfo(given.dtype)
        low, high = max(int(own.min), int(holds.min)), min(int(own.max), int(holds.max))
    else:
        return given.astype(dtype), jnp.zeros(given.shape, bool)
    return jnp.clip(given, low, high).astype(dtype), (given < low) | (given > high)


def is_float_of_jax(dtype: Any) -> bool:
    """Whether it is a type of floats, even if numpy has not that one, as bfloat16."""
    return bool(jnp.issubdtype(dtype, jnp.floating))


def traced() -> UsageError:
    """What a pool says to a function that is traced."""
    return UsageError(
        "a pool cannot be used in a function that JAX traces, where nothing happens yet: pool.functional() returns "
        "functions that can"
    )


def _told(info: Mapping[str, Any], which: jax.Array) -> dict[str, Any]:
    """Infos of which only these rows mean something."""

    def one(name: str, leaf: Any) -> Any:
        if isinstance(leaf, Mapping):
            return _told(leaf, which)
        return leaf & which if name.startswith("_") and name[1:] in info else leaf

    return {name: one(name, leaf) for name, leaf in info.items()}


def _noted(notes: Notes, step: WorldStep, is_bad: jax.Array) -> Notes:
    return Notes(notes.bad | is_bad, notes.episodes + (step.terminated | step.truncated).astype(jnp.uint32))
