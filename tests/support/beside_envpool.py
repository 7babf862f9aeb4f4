"""Our drop-in beside EnvPool itself: the same spaces, shapes, dtypes, infos, attributes. `make test-envpool` runs it.

EnvPool has its own environment (`make bench`), so this is a program and not a test. It fails if anything differs that
is not listed here; docs/from-envpool.md lists the same.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import stepmill.interop.envpool

IDS = ["CartPole-v0", "CartPole-v1", "Pendulum-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Acrobot-v1"]
IDS += ["Catch-v0", "FrozenLake-v1", "FrozenLake8x8-v1", "Taxi-v3", "NChain-v0", "CliffWalking-v0", "CliffWalking-v1"]
IDS += ["Blackjack-v1", "Pong-v5", "Breakout-v5", "D1Basic-v1", "D3Battle-v1"]
IDS += [f"{name}-v{version}" for version in (4, 5) for name in ("Ant", "HalfCheetah", "Hopper", "Humanoid", "Swimmer")]
IDS += [f"{name}-v{version}" for version in (4, 5) for name in ("InvertedDoublePendulum", "InvertedPendulum")]
IDS += [f"{name}-v{version}" for version in (4, 5) for name in ("Reacher", "Walker2d", "HumanoidStandup")] + [
    "Pusher-v5"
]

# What differs, by a part of what is printed, and why.
KNOWN = {
    "float64 in EnvPool, float32 here": "as in Gymnasium",
    "float32 in EnvPool, float64 here": "as in Gymnasium",
    "info state is missing": "Acrobot's angles; Gymnasium's env does not tell them",
    "info reward_": "a part of a MuJoCo task's reward that has another name in Gymnasium, or is not told",
    "action_space is Box(2.2250738585072014e-308": "the buttons of Doom, which have no bounds in EnvPool",
}
# Methods of pybind11, and of how EnvPool is built.
INTERNAL = {"gen_config"}


def main() -> int:
    warnings.simplefilter("ignore")
    import envpool

    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):  # EnvPool's Doom writes files
        found = list(dict.fromkeys([one for id in IDS for one in differences(envpool, id)] + attributes(envpool)))
    found += unlisted_ids(envpool)
    for one in found:
        why = next((reason for part, reason in KNOWN.items() if part in one), None)
        print(f"{one}: {why or 'NOT KNOWN'}")  # noqa: T201
    unknown = [one for one in found if not any(part in one for part in KNOWN)]
    print(f"{len(IDS)} ids, {len(found)} differences, {len(unknown)} of them not known")  # noqa: T201
    return 1 if unknown else 0


def families() -> dict[str, list[str]]:
    """EnvPool's ids by family, of those families that are here too."""
    _, *blocks = Path(__file__).with_name("envpool_ids.txt").read_text(encoding="utf-8").split("\n\n")
    return {name: ids.split() for name, _, ids in (block.partition(":\n") for block in blocks)}


def unlisted_ids(envpool: Any) -> Iterator[str]:
    """What envpool_ids.txt has and EnvPool has not; other versions have other ids."""
    ids = set(envpool.list_all_envs())
    if envpool.__version__ == stepmill.interop.envpool.__version__:
        yield from (f"EnvPool has no id {id}" for own in families().values() for id in own if id not in ids)


def differences(envpool: Any, id: str) -> Iterator[str]:
    """What differs between two pools of the same id, in every view."""
    for kind in ("gymnasium", "dm"):
        theirs = envpool.make(id, kind, num_envs=3, seed=1)
        ours = stepmill.interop.envpool.make(id, kind, num_envs=3, seed=1)
        with ours:
            if kind == "gymnasium":
                yield from unequal_spaces(id, theirs, ours)
                yield from (f"{id}: {one}" for one in unlike("reset", theirs.reset(), ours.reset()))
                action = np.stack([ours.action_space.sample() for _ in range(3)])
                yield from (f"{id}: {one}" for one in unlike("step", theirs.step(action), ours.step(action)))
            else:
                first, begun = theirs.reset(), ours.reset()
                yield from (f"{id}: dm {one}" for one in unlike("timestep", plain(first), plain(begun)))
                yield from (
                    f"{id}: dm {one}"
                    for one in unlike("spec", plain(theirs.observation_spec()), plain(ours.observation_spec()))
                )


def unequal_spaces(id: str, theirs: Any, ours: Any) -> Iterator[str]:
    for name in ("observation_space", "action_space"):
        their, our = getattr(theirs, name), getattr(ours, name)
        if type(their) is not type(our) or their.shape != our.shape or getattr(their, "n", 0) != getattr(our, "n", 0):
            yield f"{id}: {name} is {their} in EnvPool, {our} here"
        elif their.dtype != our.dtype:
            yield f"{id}: {name} is {their.dtype} in EnvPool, {our.dtype} here"
        elif hasattr(their, "low") and not (np.allclose(their.low, our.low) and np.allclose(their.high, our.high)):
            yield f"{id}: {name} is {their} in EnvPool, {our} here"


def plain(value: Any) -> Any:
    """Named tuples as dicts."""
    return {key: plain(one) for key, one in value._asdict().items()} if hasattr(value, "_asdict") else value


def unlike(where: str, theirs: Any, ours: Any) -> Iterator[str]:
    """Keys, shapes and dtypes that theirs has and ours has not."""
    if isinstance(theirs, tuple):
        if len(theirs) != len(ours):
            yield f"{where} has {len(theirs)} results in EnvPool, {len(ours)} here"
        for name, *both in zip((where, "reward", "terminated", "truncated", "info"), theirs, ours, strict=False):
            yield from unlike("info" if isinstance(both[0], dict) else name, *both)
    elif isinstance(theirs, dict):
        for key, one in theirs.items():
            if key not in ours:
                yield f"{'info' if where in ('observation', 'spec') else where} {key} is missing"
            else:
                yield from unlike(key if where == "timestep" else f"{where} {key}", one, ours[key])
    elif theirs.dtype != ours.dtype:
        yield f"{where} is {theirs.dtype} in EnvPool, {ours.dtype} here"
    elif theirs.shape != ours.shape:
        yield f"{where} has shape {theirs.shape} in EnvPool, {ours.shape} here"


def attributes(envpool: Any) -> list[str]:
    """Public names that EnvPool's objects have and ours have not."""
    module = stepmill.interop.envpool
    functions = {name for name in dir(envpool) if name.startswith(("make", "list", "register"))} - {"registration"}
    pairs = [("the module", functions, dir(module))]
    for kind in ("gymnasium", "dm"):
        theirs, ours = envpool.make("CartPole-v1", kind), module.make("CartPole-v1", kind)
        pairs.append((kind, set(dir(theirs)), dir(ours)))
        ours.close()
    spec, array = envpool.make_spec("CartPole-v1"), envpool.make_spec("CartPole-v1").action_array_spec["action"]
    own = module.make_spec("CartPole-v1")
    pairs += [("spec", set(dir(spec)), dir(own)), ("array spec", set(dir(array)), dir(own.action_array_spec["action"]))]
    pairs.append(("config", set(spec.config._fields), own.config._fields))
    return [
        f"{where} has {name} in EnvPool, not here"
        for where, theirs, ours in pairs
        for name in sorted(theirs - set(ours) - INTERNAL)
        if not name.startswith("_")
    ]


if __name__ == "__main__":
    sys.exit(main())
