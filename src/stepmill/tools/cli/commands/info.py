"""``stepmill info``: what an env observes and takes, its options, and where it runs."""

from __future__ import annotations

import math
from typing import Any

import click
import numpy as np
from gymnasium import spaces
from rich.console import Console
from rich.text import Text

from stepmill.hosts.host import describe_source
from stepmill.registry.factories import REQUIRED, EnvFactory, accepted_keys, default_values
from stepmill.registry.records import family_of, registered
from stepmill.registry.suites import suite_of
from stepmill.sources.find import find_source
from stepmill.sources.models.env_model import MODEL_KEYS
from stepmill.sources.source import NativeSource, PythonSource
from stepmill.sources.world_source import WorldSource
from stepmill.tools.cli.options import json_option, set_option, target
from stepmill.tools.cli.terminal import Terminal, json_value, pairs

_FEW = 6  # numbers that a line shows one by one
_RUNS = {
    "thread": "on native threads",
    "jax": "as arrays of JAX, on the CPU or a GPU (device='cuda')",
    "process": "in worker processes",
    "auto": "in worker processes, or in the calling thread if a short trial shows that this is faster",
}


@click.command("info")
@target
@set_option
@json_option
def command(target: Any, name: str, config: dict[str, Any], terminal: Terminal) -> int:
    """Describe an env: its spaces, options with their defaults, time limit, players, and where it runs.

    A native env is described without building one. Most Python envs have to be built for that, once.

    \b
    stepmill info Ant-v5
    stepmill info Pong-v5 --set stack_num=2
    stepmill info my_envs.py:Maze --json
    """
    source = find_source(target, 1, config, None, "auto", None, None)
    if isinstance(source, WorldSource):
        own, options, takes_others = _of_world(source)
    else:
        own, options, takes_others = _of_native(source) if isinstance(source, NativeSource) else _of_python(source)
    facts = {
        "id": name,
        **own,
        "extra": _extra_of(target),
        "max_episode_steps": source.max_episode_steps,
        "reward_threshold": source.reward_threshold,
        "options": {key: value for key, value in options.items() if value is not REQUIRED},
        "required_options": [key for key, value in options.items() if value is REQUIRED],
        "takes_other_options": takes_others,
    }
    spaces_of_one = {key: space_document(facts[key]) for key in ("observation_space", "action_space")}
    document = {**facts, **spaces_of_one, "options": json_value(facts["options"])}
    terminal.result(document, lambda out: _draw(out, facts, options))
    return 0


def _of_native(source: NativeSource) -> tuple[dict[str, Any], dict[str, Any], bool]:
    """What there is to say about it, its options with their values, and whether it takes others."""
    facts = {
        "backend": "thread",
        "observation_space": source.observation_space,
        "action_space": source.action_space,
        "infos": list(source.info_space),
        "players": source.max_num_players,
        "render_modes": [] if source.drawer is None else list(source.drawer.render_modes()),
    }
    options = dict(source.config)
    if source.drawer is not None:
        options.setdefault("render_mode", None)
    if source.simulators is not None:
        options = {**MODEL_KEYS, **options}
    return facts, options, False


def _of_world(source: WorldSource) -> tuple[dict[str, Any], dict[str, Any], bool]:
    """The same about a JAX world."""
    facts = {
        "backend": "jax",
        "observation_space": source.observation_space,
        "action_space": source.action_space,
        "infos": [],
        "players": 1,
        "render_modes": [] if source.world.draw is None else ["rgb_array"],
    }
    return facts, {**source.config, "render_mode": source.render_mode}, False


def _of_python(source: PythonSource) -> tuple[dict[str, Any], dict[str, Any], bool]:
    """What ``_of_native`` says, about a Python env; an option without a value is ``REQUIRED``."""
    env = source.envs[0]
    described = describe_source(source)
    factory = env.factory
    if isinstance(factory, EnvFactory):
        backend = "process" if factory.is_heavy else "auto"
        defaults, known = factory.defaults(), factory.known_keys()
    else:
        backend, defaults, known = "auto", default_values(factory), accepted_keys(factory)
    facts = {
        "backend": backend,
        "observation_space": described.observation_space,
        "action_space": described.action_space,
        "infos": list(described.info_space or ()),  # those that are known beforehand
        "players": described.num_players,
        "render_modes": list(described.metadata.get("render_modes") or ()),
    }
    options = {**defaults, **env.config}
    return facts, {key: one for key, one in options.items() if key not in ("env_id", "worker_id")}, known is None


def _extra_of(target: Any) -> str | None:
    """The extra that brings the env's package."""
    if not isinstance(target, str):
        return None
    suite = suite_of(target)
    if suite is not None:
        return suite.package.extra
    record, family = registered(target), family_of(target)
    package = record.needs if record is not None else None if family is None else family.package
    return None if package is None else package.extra


# ---- what is shown ---------------------------------------------------------------------------------


def _draw(out: Console, facts: dict[str, Any], options: dict[str, Any]) -> None:
    limit, threshold = facts["max_episode_steps"], facts["reward_threshold"]
    rows = {
        "runs": _RUNS[facts["backend"]],
        "observation": "\n".join(space_lines(facts["observation_space"])),
        "action": "\n".join(space_lines(facts["action_space"])),
        "infos": ", ".join(facts["infos"]),
        "players": f"up to {facts['players']}" if facts["players"] > 1 else "",
        "episodes": f"at most {limit:,} steps" if limit else "without a time limit",
        "solved at": "" if threshold is None else f"a mean return of {threshold:g}",
        "render_mode": ", ".join(facts["render_modes"]),
        "extra": "" if facts["extra"] is None else f"stepmill[{facts['extra']}]",
    }
    out.print(Text(facts["id"], style="bold"))
    out.print(pairs(rows))
    shown = {
        key: Text("has to be given", style="yellow") if value is REQUIRED else Text(_short(value))
        for key, value in options.items()
    }
    if facts["takes_other_options"]:
        shown["..."] = Text("and others: its constructor takes any name")
    if not shown:
        out.print("\nIt has no options.")
        return
    out.print(Text("\noptions", style="bold"))
    out.print(pairs(shown))


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 200 else f"{text[:200]}..."


# ---- spaces in a few words, and as JSON has them ---------------------------------------------------------


def space_lines(space: spaces.Space[Any]) -> list[str]:
    """A line for a plain space; one for each entry of a Dict or a Tuple, indented."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        entries = space.items() if isinstance(space, spaces.Dict) else enumerate(space)
        lines = [f"{type(space).__name__} of {len(space)}"]
        for key, one in entries:
            first, *rest = space_lines(one)
            lines += [f"  {key}: {first}", *(f"  {line}" for line in rest)]
        return lines
    if isinstance(space, spaces.Box):
        return [f"Box{space.shape} {space.dtype}, {_bounds(space)}"]
    return [" ".join(str(space).split())]


def _bounds(space: spaces.Box) -> str:
    low, high = _one_or_all(space.low), _one_or_all(space.high)
    if isinstance(low, list) and isinstance(high, list) and len(low) > _FEW:
        return "each number with its own bounds"
    if low == -math.inf and high == math.inf:
        return "without bounds"
    return f"from {_few(low)} to {_few(high)}"


def _few(bound: Any) -> str:
    if not isinstance(bound, list):
        return f"{bound:.6g}"
    return f"[{', '.join(f'{one:.6g}' for one in bound)}]" if len(bound) <= _FEW else "bounds that vary"


def _one_or_all(bounds: np.ndarray) -> Any:
    """A number if all are the same, else the list of them."""
    numbers = bounds.ravel()
    return numbers[0].item() if numbers.size and (numbers == numbers[0]).all() else numbers.tolist()


def space_document(space: spaces.Space[Any]) -> dict[str, Any]:
    """The space as JSON has it; bounds that are all the same are one number."""
    document: dict[str, Any] = {"type": type(space).__name__, "text": " ".join(space_lines(space))}
    if isinstance(space, spaces.Dict):
        return {**document, "spaces": {str(key): space_document(one) for key, one in space.items()}}
    if isinstance(space, spaces.Tuple):
        return {**document, "spaces": [space_document(one) for one in space]}
    document |= {"shape": space.shape, "dtype": None if space.dtype is None else str(space.dtype)}
    if isinstance(space, spaces.Box):
        bounds = {"low": _one_or_all(space.low), "high": _one_or_all(space.high)}
        document |= {name: json_value(bound) for name, bound in bounds.items()}
    if isinstance(space, spaces.Discrete):
        document |= {"n": int(space.n), "start": int(space.start)}
    if isinstance(space, spaces.MultiDiscrete):
        document |= {"nvec": space.nvec.tolist()}
    return document
