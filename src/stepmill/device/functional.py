"""All envs of a pool as two pure functions, for ``jax.lax.scan`` and the like; ``JaxProgram`` compiles them for a pool.

Keys: env i has a key of its own, made of its seed as ``jax.random.PRNGKey`` does. A step splits it in two: one for the
next step, one for the env's ``step``, or for its ``reset`` if that is what the step does. With ``same_step``, where a
step may be followed by a reset, it splits it in three, and the last one is for resets. A reset that was asked for does
the same as a step that is one. So an env depends on its seed and its actions alone, and not on how many others there
are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, NoReturn, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from stepmill.errors import ConfigError, UnsupportedError
from stepmill.hosts.infos import engine_keys
from stepmill.settings import Autoreset, check_seeds
from stepmill.sources.jax_world import Begun, JaxWorld, Moved
from stepmill.values.trees import map_tree, tree_of

R = TypeVar("R")

# Resets that are not cheap are done so many at a time: this part of the envs, and at least these.
_PART, _LEAST = 16, 8


class Envs(NamedTuple):
    """What goes from one step to the next; every array has a row per env. Whoever holds one can go on from it."""

    key: jax.Array
    state: Any
    is_over: jax.Array  # the next step begins an episode
    elapsed: jax.Array
    episode_return: jax.Array


class WorldStep(NamedTuple):
    """What a step or a reset shows. A reset has reward 0 and no flags."""

    observation: Any
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    info: dict[str, Any]


class Functional(NamedTuple):
    """``reset`` and ``step`` of all envs of a pool, as ``pool.functional()`` returns them."""

    reset: Callable[..., tuple[Envs, WorldStep]]
    step: Callable[[Envs, Any], tuple[Envs, WorldStep]]


class WorldRules:
    """How envs of a world are reset, stepped and counted.

    Args:
        world: One of them.
        num_envs: How many there are.
        autoreset: When envs whose episode is over are reset. With ``"disabled"``, the caller sees to it that no such
            env is stepped.
        max_episode_steps: The time limit.
    """

    def __init__(self, world: JaxWorld, num_envs: int, autoreset: Autoreset, max_episode_steps: int | None) -> None:
        if jax.config.jax_default_prng_impl != "threefry2x32":
            raise UnsupportedError(
                f"{world.id}: the keys of pools are those of threefry2x32, and jax_default_prng_impl says "
                f"{jax.config.jax_default_prng_impl}: leave that option as it is"
            )
        self.world, self.num_envs, self._same_step = world, num_envs, autoreset == "same_step"
        self._limit = max_episode_steps
        self._part = min(num_envs, max(_LEAST, math.ceil(num_envs / _PART)))
        self._learn_forms(engine_keys(autoreset))

    def _learn_forms(self, taken: frozenset[str]) -> None:
        """The types of what a reset and a step give: they have to be the same, whichever it was."""
        key = jax.ShapeDtypeStruct((2,), jnp.uint32)
        begun = self._forms_of(Begun, self.world.reset, key)
        action = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), self._no_action())
        moved = self._forms_of(Moved, self.world.step, key, begun.state, action)
        if _types(moved.state) != _types(begun.state) and _shapes(moved.state) == _shapes(begun.state):
            # A step that makes 0.5 of 0: what it shows of that tells the types of the steps after it.
            moved = self._forms_of(Moved, self.world.step, key, moved.state, action)
        scalars = {name: getattr(moved, name).shape for name in ("reward", "terminated", "truncated")}
        if any(scalars.values()):
            self._refuse("a step must give a scalar for each of these", scalars)
        if _shapes(moved.state) != _shapes(begun.state):
            self._refuse("a reset and a step must give states of the same form", _shapes(begun.state), moved.state)
        space = tree_of(self.world.observation_space)
        expected = map_tree(lambda one: one.shape, space)
        for told in (begun, moved):
            if _shapes(told.observation) != expected:
                self._refuse("observations must have the form of their space", expected, told.observation)
        shown = map_tree(lambda one: jax.dtypes.canonicalize_dtype(one.dtype), space)
        self._types = {"state": _types(moved.state), "observation": shown}
        infos = [{key: one for key, one in told.info.items() if key not in taken} for told in (begun, moved)]
        self._begun_infos, self._moved_infos = infos

    def _forms_of(self, kind: type[R], function: Callable[..., R], *args: Any) -> R:
        forms = jax.eval_shape(function, *args)
        if not isinstance(forms, kind):
            call = "reset" if kind is Begun else "step"
            got = "an array" if isinstance(forms, jax.ShapeDtypeStruct) else f"a {type(forms).__name__}"
            raise ConfigError(f"{self.world.id}: {call}: expected a {kind.__name__}, got {got}")
        return forms

    def _refuse(self, rule: str, expected: Any, got: Any = None) -> NoReturn:
        shapes = f"got shapes {expected}" if got is None else f"expected shapes {expected}, got {_shapes(got)}"
        raise ConfigError(f"{self.world.id}: {rule}: {shapes}")

    def _no_action(self) -> Any:
        return map_tree(
            lambda space: jnp.zeros(space.shape, jax.dtypes.canonicalize_dtype(space.dtype)),
            tree_of(self.world.action_space),
        )

    # ---- the two functions -------------------------------------------------------------------

    def new(self, keys: Any) -> Envs:
        """Envs of which none has begun: the next step of each begins its first episode."""
        # A state of some episode, so that a step of it ends.
        one = self._typed("state", jax.jit(self.world.reset)(jnp.zeros(2, jnp.uint32)).state)
        state = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (self.num_envs, *leaf.shape)), one)
        count = (self.num_envs,)
        zeros = jnp.zeros(count, jnp.int32), jnp.zeros(count, jnp.float32)
        return Envs(jnp.asarray(keys, jnp.uint32), state, jnp.ones(count, bool), *zeros)

    def reset(self, envs: Envs, which: jax.Array | None = None) -> tuple[Envs, WorldStep]:
        """Begins an episode of all envs, or of some. What is shown of the others means nothing."""
        key, _, fresh_key = self._split(envs.key)
        mask = jnp.ones(self.num_envs, bool) if which is None else which
        shown = jax.tree.map(lambda leaf: jnp.zeros((self.num_envs, *leaf.shape), leaf.dtype), self._forms())
        rows = self._begin(mask, fresh_key, (envs.state, *shown), all_of_them=which is None)
        state, observation, infos = rows
        no, zero = jnp.zeros(self.num_envs, bool), jnp.zeros(self.num_envs, jnp.float32)
        fresh = Envs(key, state, no, jnp.zeros(self.num_envs, jnp.int32), zero)
        made = fresh if which is None else Envs(*(select(mask, *pair) for pair in zip(fresh, envs, strict=True)))
        counts = self._counts(made.elapsed, no, zero, made.elapsed)
        info = {**counts, **self._masked(infos, self._begun_infos, mask)}
        unknown = {name: self._zeros_of(form) for name, form in self._moved_infos.items() if name not in infos}
        info |= self._masked(unknown, {}, ~no)
        if self._same_step:
            info |= _final(no, observation, self._zeros_of(self._moved_infos))
        return made, WorldStep(observation, zero, no, no, info)

    def step(self, envs: Envs, action: Any, which: jax.Array | None = None) -> tuple[Envs, WorldStep]:
        """Steps all envs; those whose episode is over begin the next one instead.

        ``which``: the envs that may be reset. The others are stepped as well, and the caller throws that away.
        """
        key, step_key, reset_key = self._split(envs.key)
        resets = envs.is_over if which is None else envs.is_over & which
        moved = jax.vmap(self.world.step)(step_key, envs.state, action)
        reward = jnp.where(resets, 0, jnp.asarray(moved.reward, jnp.float32))
        elapsed = jnp.where(resets, 0, envs.elapsed + 1)
        episode_return = jnp.where(resets, 0, envs.episode_return) + reward
        terminated = jnp.asarray(moved.terminated, bool) & ~resets
        truncated = jnp.asarray(moved.truncated, bool) & ~resets
        if self._limit is not None:
            truncated |= elapsed >= self._limit
        ended = terminated | truncated
        infos = {name: moved.info[name] for name in self._moved_infos}
        extra = {name: self._zeros_of(form) for name, form in self._begun_infos.items() if name not in infos}
        rows = self._typed("state", moved.state), self._typed("observation", moved.observation), {**infos, **extra}
        begins = resets | ended if self._same_step else resets
        state, observation, told = self._begin(begins, reset_key, rows)
        info = self._counts(jnp.where(begins, 0, elapsed), ended, episode_return, elapsed)
        info |= self._masked(told, self._begun_infos, begins, self._moved_infos)
        if self._same_step:
            info |= _final(ended, rows[1], infos)
            episode_return = jnp.where(ended, 0, episode_return)
            elapsed = jnp.where(ended, 0, elapsed)
        is_over = jnp.zeros_like(ended) if self._same_step else ended
        return Envs(key, state, is_over, elapsed, episode_return), WorldStep(
            observation, reward, terminated, truncated, info
        )

    # ---- their parts -------------------------------------------------------------------------

    def _split(self, keys: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        """The next key of each env, that of its step, and that of its reset."""
        count = 3 if self._same_step else 2
        if jax.config.jax_threefry_partitionable:
            # The keys that split makes, one by one: XLA leaves out those that nobody uses. Many worlds step without.
            key, *others = (jax.vmap(lambda key, i=i: jax.random.fold_in(key, i))(keys) for i in range(count))
        else:
            made = jax.vmap(lambda key: jax.random.split(key, count))(keys)
            key, *others = (made[:, i] for i in range(count))
        return key, others[0], others[-1]

    def _begin(self, which: jax.Array, keys: jax.Array, rows: Any, *, all_of_them: bool = False) -> Any:
        """Rows of state, observation and infos, in which those of new episodes take the place of some."""

        def fresh(keys: jax.Array) -> Any:
            begun = jax.vmap(self.world.reset)(keys)
            infos = {name: begun.info[name] for name in self._begun_infos}
            return self._typed("state", begun.state), self._typed("observation", begun.observation), infos

        others = {name: leaf for name, leaf in rows[2].items() if name not in self._begun_infos}
        begun = {name: leaf for name, leaf in rows[2].items() if name in self._begun_infos}
        rows = rows[0], rows[1], begun
        if all_of_them:
            made = fresh(keys)
        elif self.world.resets_cheaply:
            made = select(which, fresh(keys), rows)
        else:
            made = self._begin_in_parts(which, keys, rows, fresh)
        return made[0], made[1], {**others, **made[2]}

    def _begin_in_parts(self, which: jax.Array, keys: jax.Array, rows: Any, fresh: Callable[..., Any]) -> Any:
        """The same, with as many resets as are needed, or some more."""

        def some(carry: Any) -> Any:
            which, rows = carry
            ids = jnp.nonzero(which, size=self._part, fill_value=self.num_envs)[0]  # those beyond all are dropped
            made = fresh(keys[ids])
            rows = jax.tree.map(lambda leaf, new: leaf.at[ids].set(new.astype(leaf.dtype), mode="drop"), rows, made)
            return which.at[ids].set(False, mode="drop"), rows

        return jax.lax.while_loop(lambda carry: carry[0].any(), some, (which, rows))[1]

    def _typed(self, name: str, tree: Any) -> Any:
        """States in the types that a step gives, as a reset may use Python's; observations in those of their space."""

        def one(leaf: Any, dtype: Any) -> Any:
            is_key = jax.dtypes.issubdtype(dtype, jax.dtypes.extended)
            return leaf if is_key else jax.lax.convert_element_type(leaf, dtype)

        return jax.tree.map(one, tree, self._types[name])

    def _forms(self) -> Any:
        """The forms of an observation and of the infos of a reset."""
        begun = jax.eval_shape(self.world.reset, jax.ShapeDtypeStruct((2,), jnp.uint32))
        return jax.eval_shape(lambda tree: self._typed("observation", tree), begun.observation), self._begun_infos

    def _zeros_of(self, tree: Any) -> Any:
        return jax.tree.map(lambda leaf: jnp.zeros((self.num_envs, *leaf.shape), leaf.dtype), tree)

    def _counts(self, shown: Any, ended: Any, episode_return: Any, length: Any) -> dict[str, Any]:
        counted = {"episode_return": episode_return, "episode_length": length}
        masks = {f"_{name}": ended for name in counted}
        return {"elapsed_step": shown, **{name: jnp.where(ended, one, 0) for name, one in counted.items()}, **masks}

    def _masked(
        self, infos: Mapping[str, Any], begun: Mapping[str, Any], begins: Any, moved: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """The worlds' own infos, each with a mask that says which rows have it."""
        out: dict[str, Any] = {}
        for name, leaf in infos.items():
            at_reset, at_step = name in begun, moved is not None and name in moved
            has = jnp.ones_like(begins) if at_reset and at_step else begins if at_reset else ~begins
            out |= _with_mask(name, leaf, has)
        return out


def _shapes(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf.shape, tree)


def _types(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf.dtype, tree)


def _with_mask(name: str, leaf: Any, has: jax.Array) -> dict[str, Any]:
    """An info, however deep its dicts are, in Gymnasium's layout."""
    if isinstance(leaf, Mapping):
        leaf = {key: part for inner, one in leaf.items() for key, part in _with_mask(inner, one, has).items()}
    return {name: leaf, f"_{name}": has}


def _final(ended: jax.Array, observation: Any, infos: Mapping[str, Any]) -> dict[str, Any]:
    told = {key: part for name, leaf in infos.items() for key, part in _with_mask(name, leaf, ended).items()}
    return {"final_obs": observation, "_final_obs": ended, "final_info": told, "_final_info": ended}


def keys_of(seeds: Any) -> np.ndarray:
    """The key of each seed, as ``jax.random.PRNGKey`` makes it where numbers have 64 bits."""
    numbers = np.asarray(seeds, np.uint64)
    return np.stack([numbers >> np.uint64(32), numbers & np.uint64(2**32 - 1)], -1).astype(np.uint32)


def functional(rules: WorldRules, seeds: Any) -> Functional:
    """``rules`` as pure functions. ``seeds``: those that ``reset()`` takes if it is given none."""
    own = keys_of(seeds)

    def reset(seed: Any = None) -> tuple[Envs, WorldStep]:
        if seed is None:
            keys = own
        elif isinstance(seed, jax.core.Tracer):  # in a program that is being traced
            keys = _keys_of_array(seed, rules.num_envs)
        else:
            known = np.asarray(seed) if isinstance(seed, jax.Array) else seed
            keys = keys_of(check_seeds(known, range(rules.num_envs)))
        return rules.reset(rules.new(keys))

    def step(envs: Envs, action: Any) -> tuple[Envs, WorldStep]:
        return rules.step(envs, action)

    return Functional(reset, step)


def _keys_of_array(seed: jax.Array, num_envs: int) -> jax.Array:
    if seed.shape not in ((), (num_envs,)) or not jnp.issubdtype(seed.dtype, jnp.integer):
        raise ConfigError(
            f"seed: expected a whole number, or {num_envs} of them, one per env, got an array of shape {seed.shape} "
            f"and type {seed.dtype}"
        )
    if seed.dtype.itemsize == 8:
        wide = seed if seed.ndim else seed + jnp.arange(num_envs, dtype=seed.dtype)
        return jnp.stack([(wide >> 32).astype(jnp.uint32), wide.astype(jnp.uint32)], -1)
    numbers = seed.astype(jnp.uint32)
    each = numbers if seed.ndim else numbers + jnp.arange(num_envs, dtype=jnp.uint32)
    return jnp.stack([(each < numbers).astype(jnp.uint32), each], -1)  # seed + i may need more than 32 bits


def select(mask: jax.Array, yes: Any, no: Any) -> Any:
    """Rows of one tree where the mask is true, and of the other where it is not."""

    def one(a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.where(mask.reshape(mask.shape + (1,) * (a.ndim - 1)), a, b)

    return jax.tree.map(one, yes, no)
