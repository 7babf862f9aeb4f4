"""The state of a Python env: what its ``get_state()`` returns, and the memory of everything around it.

An env in a pool has layers: wrappers, adapters, and innermost the env itself. Each layer adds what it remembers. Those
of ours name their memory (``_state_names``); those that ``gymnasium.make`` adds are known here; any other has
``get_state()`` and ``set_state(state)``, or the env cannot be saved: a layer whose memory were left out would go on
wrongly, and nobody would notice.
"""

from __future__ import annotations

import functools
import io
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from stepmill.errors import StateError, UnsupportedError, summary
from stepmill.registry.attributes import class_name
from stepmill.registry.factories import accepts
from stepmill.values.saved_states import configuration_text

# What Gymnasium's wrappers remember. What else they have is set once, from their arguments. A question mark: in some
# versions.
_GYMNASIUM: dict[str, tuple[str, ...]] = {
    "TimeLimit": ("_elapsed_steps",),
    "OrderEnforcing": ("_has_reset",),
    "PassiveEnvChecker": (
        "checked_reset",
        "checked_step",
        "checked_render",
        "checked_data_reuse?",
        "_previous_data?",
    ),
    "RecordEpisodeStatistics": (
        "episode_count",
        "episode_start_time",
        "episode_returns",
        "episode_lengths",
        "time_queue",
        "return_queue",
        "length_queue",
    ),
    "NormalizeObservation": ("obs_rms", "_update_running_mean"),
    "NormalizeReward": ("return_rms", "discounted_reward", "_update_running_mean"),
    "FrameStackObservation": ("obs_queue", "padding_value"),
    "DelayObservation": ("observation_queue",),
    "TimeAwareObservation": ("timesteps",),
    "StickyAction": ("last_action", "is_sticky_actions", "num_repeats", "repeats_taken"),
    "MaxAndSkipObservation": ("_obs_buffer",),
    "AtariPreprocessing": ("obs_buffer", "lives", "game_over"),
    **dict.fromkeys(
        (
            "ClipAction",
            "ClipReward",
            "DiscretizeAction",
            "DiscretizeObservation",
            "DtypeObservation",
            "FilterObservation",
            "FlattenObservation",
            "GrayscaleObservation",
            "RepeatAction",
            "RescaleAction",
            "RescaleObservation",
            "ReshapeObservation",
            "ResizeObservation",
        ),
        (),
    ),
}
# Packages whose envs are made of plain Python objects: all of their attributes are their memory, except for these.
_BY_ATTRIBUTES = {"minigrid": ("action_space", "observation_space", "spec", "clock", "window")}
_DOCS = "docs/environments.md"


class HasLayerState:
    """The base of our wrappers and adapters, and of ``BaseEnv``."""

    # The attributes that it remembers, besides those of the env inside.
    _state_names: tuple[str, ...] = ()

    def _state_inside(self) -> Any:
        """The env inside; None if there is none, and this is an env that has a state itself."""
        return None


def get_state(env: Any) -> list[Any]:
    """What decides how an env goes on, layer by layer, as it is in the env: to be copied at once, by pickling it.

    Raises:
        UnsupportedError: One of the layers does not say what it remembers.
    """
    if is_whole(env):
        return [(class_name(type(env)), {}, env.get_state(), [], [])]
    return [(layer_name(one), _named(one), _told(one), _generators(one), _aliases(one)) for one in _known_layers(env)]


def set_state(env: Any, state: list[Any]) -> None:
    """Gives an env what ``get_state`` of another one was. It takes over the objects in it.

    Raises:
        StateError: It is the state of an env with other wrappers.
    """
    if is_whole(env):
        check_layers([class_name(type(env))], [one[0] for one in state])
        env.set_state(state[0][2])
        return
    layers = _known_layers(env)
    check_layers([layer_name(one) for one in layers], [one[0] for one in state])
    # As they were built.
    for layer, (_, named, told, generators, aliases) in zip(layers[::-1], state[::-1], strict=True):
        if _left_out(layer) is not None:
            _set_attributes(layer, told)
        elif _method(layer, "set_state") is not None and _needs_methods(layer):
            layer.set_state(told)
        for name, value in named.items():
            setattr(layer, name, value)
        _set_generators(layer, generators)
        for name in aliases:
            vars(layer)[name] = _env_generator(layer)


def is_whole(env: Any) -> bool:
    """Whether ``get_state()`` of an env tells everything, its generators too, and ``set_state`` takes that in any case.

    Only classes of ours say so, each for itself: then nothing else is asked, and nothing is kept to go back to. They
    also have ``last_observation()``, so that it need not be saved beside the state.
    """
    return bool(type(env).__dict__.get("_state_is_whole"))


def layer_name(layer: Any) -> str:
    """The class of a layer and, if it has kept them, the arguments that it was made with, such as its time limit."""
    given = getattr(layer, "__dict__", {}).get("_saved_kwargs")
    return class_name(type(layer)) + (f"({configuration_text(given)})" if given else "")


def check_layers(expected: list[str], got: list[str]) -> None:
    """Raises if a state is of an env with other layers, by their names."""
    if expected != got:
        raise StateError(
            f"expected the state of an env of {' around '.join(expected)}, got one of {' around '.join(got)}"
        )


def why_no_state(env: Any) -> str | None:
    """Why an env has no state that can be saved, in a sentence; None if it has one."""
    return next((why for one in _layers(env) if (why := _why_not(one)) is not None), None)


# ---- layers --------------------------------------------------------------------------------------


def _layers(env: Any) -> Iterator[Any]:
    """An env and those inside it, the outermost first."""
    while env is not None:
        yield env
        if isinstance(env, HasLayerState) and (inside := env._state_inside()) is not None:
            env = inside
        else:
            env = env.env if isinstance(env, gymnasium.Wrapper) else None


def _known_layers(env: Any) -> list[Any]:
    layers = list(_layers(env))
    for one in layers:
        if (why := _why_not(one)) is not None:
            raise UnsupportedError(why)
    return layers


def _why_not(layer: Any) -> str | None:
    missing = next((name for name in _names(layer) if not hasattr(layer, name)), None)
    if missing is not None:  # other versions of Gymnasium may call it otherwise
        return f"its wrapper {type(layer).__name__} has no attribute {missing!r}, in which its memory was expected"
    if (known := getattr(type(layer), "_why_no_state", None)) is not None:
        return str(known)
    if not _needs_methods(layer):
        return None
    is_wrapper = isinstance(layer, gymnasium.Wrapper)
    what = f"its wrapper {type(layer).__name__}" if is_wrapper else f"its class {type(layer).__name__}"
    calls = {"get_state": 0, "set_state": 1}
    lacking = [name for name in calls if _method(layer, name) is None]
    if lacking and is_wrapper and type(layer).__module__.startswith("gymnasium."):
        return f"{what}, one of Gymnasium's, may remember something that is not known here: write one ({_DOCS})"
    if lacking:
        memory = ", and may remember something" if is_wrapper else ""
        shown = " and ".join(_shown(name) for name in lacking)
        return f"{what} has no {shown}{memory}: write {'it' if len(lacking) == 1 else 'them'} ({_DOCS})"
    other = next((name for name, count in calls.items() if not _takes(_method(layer, name), count)), None)
    return None if other is None else f"{what} has a {other} with other arguments: expected {_shown(other)} ({_DOCS})"


def _shown(name: str) -> str:
    return "get_state()" if name == "get_state" else "set_state(state)"


def _needs_methods(layer: Any) -> bool:
    """Whether only its own methods tell what it remembers: a subclass of one of ours may remember more."""
    kind = type(layer)
    if isinstance(layer, HasLayerState) and kind.__module__.partition(".")[0] == "stepmill":
        return layer._state_inside() is None and not isinstance(layer, gymnasium.Wrapper)
    return _left_out(layer) is None and not (
        kind.__module__.startswith("gymnasium.wrappers.") and kind.__name__ in _GYMNASIUM
    )


def _method(layer: Any, name: str) -> Callable[..., Any] | None:
    """A method of the layer itself. Some wrappers pass on all that they do not have."""
    try:
        found = object.__getattribute__(layer, name)
    except AttributeError:
        return None
    return found if callable(found) else None


def _takes(method: Any, count: int) -> bool:
    return _accepts(getattr(method, "__func__", method), count + hasattr(method, "__func__"))


@functools.lru_cache(256)
def _accepts(function: Callable[..., Any], count: int) -> bool:
    return accepts(function, *range(count))


# ---- what a layer remembers ----------------------------------------------------------------------


def _names(layer: Any) -> tuple[str, ...]:
    if isinstance(layer, HasLayerState):
        return layer._state_names
    kinds = [one for one in type(layer).__mro__ if one.__module__.startswith("gymnasium.wrappers.")]
    names = [name for kind in kinds for name in _GYMNASIUM.get(kind.__name__, ())]  # also those of a subclass's base
    return tuple(one.rstrip("?") for one in names if not one.endswith("?") or hasattr(layer, one[:-1]))


def _named(layer: Any) -> dict[str, Any]:
    return {name: getattr(layer, name) for name in _names(layer)}


def _told(layer: Any) -> Any:
    if (left_out := _left_out(layer)) is not None:
        return _attributes(layer, left_out)
    if not _needs_methods(layer):
        return None
    try:
        return layer.get_state()
    except Exception as error:
        raise StateError(f"get_state() of {type(layer).__name__} raised {summary(error)}") from error


def _left_out(layer: Any) -> tuple[str, ...] | None:
    """For an env whose attributes are its memory: those that are not."""
    package = type(layer).__module__.partition(".")[0]
    return None if isinstance(layer, gymnasium.Wrapper) else _BY_ATTRIBUTES.get(package)


# What such an env has may refer to the env itself.


def _attributes(env: Any, left_out: tuple[str, ...]) -> bytes:
    buffer = io.BytesIO()
    pickler = _AroundEnv(buffer, pickle.HIGHEST_PROTOCOL)
    pickler.env = env
    pickler.dump({name: value for name, value in vars(env).items() if name not in left_out})
    return buffer.getvalue()


def _set_attributes(env: Any, state: bytes) -> None:
    unpickler = _IntoEnv(io.BytesIO(state))
    unpickler.env = env
    attributes = unpickler.load()
    for name in vars(env).keys() - attributes.keys() - set(_left_out(env) or ()):
        delattr(env, name)
    vars(env).update(attributes)


class _AroundEnv(pickle.Pickler):
    env: Any

    def persistent_id(self, value: Any) -> str | None:
        return "env" if value is self.env else None


class _IntoEnv(pickle.Unpickler):
    env: Any

    def persistent_load(self, _: Any) -> Any:
        return self.env


# Gymnasium's `reset(seed=...)` seeds `np_random`, which an env's own methods easily forget.


def _holders(layer: Any) -> list[Any]:
    """What has a generator ``_np_random``: an env, and the spaces that something may sample from."""
    if not isinstance(layer, gymnasium.Env):
        return []
    is_wrapper = isinstance(layer, gymnasium.Wrapper)
    return [*([] if is_wrapper else [layer]), *_parts(layer.action_space), *_parts(layer.observation_space)]


def _parts(space: Any) -> Iterator[Any]:
    if not isinstance(space, spaces.Space):
        return
    yield space
    inner = getattr(space, "spaces", ())
    for part in inner.values() if isinstance(inner, dict) else inner:
        yield from _parts(part)
    for name in ("feature_space", "node_space", "edge_space"):
        yield from _parts(getattr(space, name, None))


def _generators(layer: Any) -> list[tuple[Any, Any]]:
    return [(_bits(getattr(one, "_np_random", None)), getattr(one, "_np_random_seed", None)) for one in _holders(layer)]


def _env_generator(layer: Any) -> Any:
    """The generator ``np_random`` of an env, or of the one inside a wrapper; None if it has none yet."""
    return getattr(getattr(layer, "unwrapped", None), "_np_random", None) if isinstance(layer, gymnasium.Env) else None


def _aliases(layer: Any) -> list[str]:
    """The attributes that are this generator too, such as ``self.rng = self.np_random``.

    ``get_state()`` may return them, and then ``set_state`` puts a copy there, which would go on beside the original.
    """
    generator = _env_generator(layer)
    if generator is None:
        return []
    return [name for name, value in vars(layer).items() if value is generator and name != "_np_random"]


def _bits(generator: Any) -> Any:
    if not isinstance(generator, np.random.Generator):
        return generator
    state = generator.bit_generator.state
    return {"bits": state} if hasattr(np.random, state["bit_generator"]) else generator


def _set_generators(layer: Any, saved: list[tuple[Any, Any]]) -> None:
    for holder, (bits, seed) in zip(_holders(layer), saved, strict=True):
        if bits is None:  # nobody had drawn from it
            if isinstance(holder, gymnasium.Env):  # which may make it when it draws
                holder._np_random = None
            continue
        now = getattr(holder, "_np_random", None)
        if not isinstance(bits, dict):
            holder._np_random = bits
        else:
            name = bits["bits"]["bit_generator"]
            # Others may hold the same generator: it stays the same object.
            if not isinstance(now, np.random.Generator) or now.bit_generator.state["bit_generator"] != name:
                now = holder._np_random = np.random.Generator(getattr(np.random, name)())
            now.bit_generator.state = bits["bits"]
        if seed is not None:
            holder._np_random_seed = seed
