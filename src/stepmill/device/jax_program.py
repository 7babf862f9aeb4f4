"""Steps the envs of a pool on a device, by programs that JAX has compiled."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from stepmill import _native
from stepmill.device.functional import Envs, WorldRules, WorldStep, keys_of, select
from stepmill.errors import UsageError
from stepmill.settings import ActionBounds
from stepmill.values.spaces import ArrayLeaf, FlatSpace, LeafKind
from stepmill.values.trees import map_tree, map_trees


class Notes(NamedTuple):
    """What a pool wants to know now and then, and does not wait for."""

    bad: jax.Array  # the first env that was given a bad action since somebody looked; the number of envs: none was
    episodes: jax.Array  # how many have ended: the low and the high half of a number


class Now(NamedTuple):
    """Where a pool is: one value, so that whatever is interrupted, all of it is from before or from after a call."""

    envs: Envs
    notes: Notes
    shown: WorldStep | None  # the last row of every env; None: nothing was shown


class JaxProgram:
    """The envs of a pool, and what moves them. Nothing here waits for the device, but for ``bad`` and the like.

    Args:
        rules: Of these envs.
        action: Their action space.
        bounds: What happens to actions outside the bounds of a Box.
        device: Where the envs live: a device of JAX.
        seeds: Of the envs.
    """

    def __init__(self, rules: WorldRules, action: FlatSpace, bounds: ActionBounds, device: Any, seeds: Any) -> None:
        self.rules, self.device, self._action, self._bounds = rules, device, action, bounds
        self.here = jax.sharding.SingleDeviceSharding(device)
        # The envs and the notes are given away with every call, so that their memory is used again. Where all arguments
        # are has to be said: else JAX compiles once more for those that it may move, such as jnp.zeros(...).
        self._step, self._step_some, self._reset, self._load = (
            jax.jit(one, donate_argnums=(0, 1), in_shardings=self.here)
            for one in (self._trace_step, self._trace_step_some, self._trace_reset, self._trace_load)
        )
        self._take = jax.jit(lambda tree, ids: jax.tree.map(lambda leaf: leaf[ids], tree))
        notes = Notes(jnp.int32(rules.num_envs), jnp.zeros(2, jnp.uint32))
        with jax.default_device(device):
            envs = jax.jit(rules.new)(jnp.asarray(keys_of(seeds)))
        envs, notes = jax.device_put((envs, notes), device)
        self.now = Now(envs, notes, None)

    def on_device(self, tree: Any) -> Any:
        """Copies of arrays of the host; arrays of JAX only move if they are elsewhere."""
        return jax.device_put(tree, self.device, may_alias=False)

    # ---- what moves the envs -----------------------------------------------------------------
    # ``call_into`` sets ``now`` without an instruction of Python in between, where a signal handler could raise: then
    # the envs would be given away, and what came of them lost.

    def step(self, action: Any) -> None:
        """Steps all envs."""
        now = self._whole()
        _native.call_into(self, "now", self._step, now.envs, now.notes, action)

    def step_some(self, action: Any, which: np.ndarray) -> None:
        """Steps some of them. ``action`` has a row for each; those of the others are not looked at."""
        now = self._whole()
        shown = self._shown()
        _native.call_into(self, "now", self._step_some, now.envs, now.notes, shown, action, self.on_device(which))

    def reset(self, which: np.ndarray | None, keys: np.ndarray | None, has_key: np.ndarray | None) -> None:
        """Begins episodes of all envs, or of some, of which some may be given keys."""
        now = self._whole()
        shown = None if which is None else self._shown()
        given = self.on_device((which, keys, has_key))
        _native.call_into(self, "now", self._reset, now.envs, now.notes, shown, *given)

    def load(self, envs: Envs, observation: Any, ids: np.ndarray) -> None:
        """Makes some envs what others were."""
        now = self._whole()
        given = self.on_device((envs, observation, ids))
        _native.call_into(self, "now", self._load, now.envs, now.notes, self._shown(), *given)

    def take(self, tree: Any, ids: np.ndarray) -> Any:
        """Some rows of arrays on the device."""
        return self._take(tree, self.on_device(ids))

    def take_bad(self) -> int | None:
        """The first env that was given a bad action since this was asked; None: none was. Waits for the device."""
        bad = int(self.now.notes.bad)
        if bad == self.rules.num_envs:
            return None
        self.now = self.now._replace(notes=self.now.notes._replace(bad=self.on_device(np.int32(self.rules.num_envs))))
        return bad

    def episodes(self) -> int:
        """How many have ended. Waits for the device."""
        low, high = map(int, np.asarray(self.now.notes.episodes))
        return low | high << 32

    def _whole(self) -> Now:
        if self.now.notes.bad.is_deleted():
            raise UsageError("an interrupted call has lost the envs of this pool: make a new one")
        return self.now

    def _shown(self) -> WorldStep:
        if self.now.shown is None:
            action = map_tree(lambda leaf: self._no_rows(self._action.leaves[leaf]), self._action.tree)
            forms = jax.eval_shape(self.rules.step, self.now.envs, action)[1]
            zeros = jax.tree.map(lambda form: np.zeros(form.shape, form.dtype), forms)
            self.now = self.now._replace(shown=self.on_device(zeros))
        assert self.now.shown is not None
        return self.now.shown

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
        if shown is not None:
            step = step._replace(observation=select(which, step.observation, shown.observation))
        return Now(envs, notes, step)

    def _trace_load(self, envs: Envs, notes: Notes, shown: WorldStep, given: Envs, observation: Any, ids: Any) -> Now:
        def put(to: jax.Array, rows: jax.Array) -> jax.Array:
            return to.at[ids].set(rows)

        return Now(
            jax.tree.map(put, envs, given),
            notes,
            shown._replace(observation=jax.tree.map(put, shown.observation, observation)),
        )

    def _judge(self, action: Any) -> tuple[Any, jax.Array]:
        """The action in the types of JAX, and whose was bad. What cannot be passed on is put into the space."""
        is_bad = jnp.zeros(self.rules.num_envs, bool)

        def one(leaf_id: int, given: Any) -> Any:
            nonlocal is_bad
            leaf = self._action.leaves[leaf_id]
            wrong = jnp.isnan(given) if jnp.issubdtype(given.dtype, jnp.floating) else jnp.zeros(given.shape, bool)
            low, high = (np.reshape(one, leaf.shape) if len(one) > 1 else one[0] for one in (leaf.low, leaf.high))
            if leaf.kind != LeafKind.BOX or self._bounds == "error":
                wrong |= (given < low) | (given > high)
            is_bad |= wrong.reshape(self.rules.num_envs, -1).any(1)
            if leaf.kind != LeafKind.BOX or self._bounds == "clip":
                given = jnp.clip(given, low, high)
            return given.astype(jax.dtypes.canonicalize_dtype(leaf.dtype))

        return map_trees(one, self._action.tree, action), is_bad


def _noted(notes: Notes, step: WorldStep, is_bad: jax.Array) -> Notes:
    count = len(is_bad)
    bad = jnp.where(is_bad, jnp.arange(count, dtype=jnp.int32), count).min()
    low, high = notes.episodes
    added = low + (step.terminated | step.truncated).sum(dtype=jnp.uint32)
    return Notes(jnp.where(notes.bad < count, notes.bad, bad), jnp.stack([added, high + (added < low)]))
