"""Atari games: ``Pong-v5`` and the like with the usual preprocessing, and the ids that ale-py registers.

``games.py`` knows the games, ``options.py`` the options, ``factory.py`` what an id stands for. ``game.py`` is the env,
``frames.py`` its pictures, ``env.py`` the same as a ``BaseEnv``: these are imported when they are used.
"""

from typing import TYPE_CHECKING, Any

from stepmill.registry.records import EnvRecord, Family, add, add_family
from stepmill.system.optional import ALE
from stepmill.zoo.atari.factory import AtariFactory
from stepmill.zoo.atari.games import GAMES, id_patterns
from stepmill.zoo.atari.options import DEFAULTS

if TYPE_CHECKING:
    from stepmill.zoo.atari.env import AtariEnv
    from stepmill.zoo.atari.game import AtariGame

__all__ = ["AtariEnv", "AtariGame"]

for _game in GAMES.values():
    add(
        EnvRecord(
            f"{_game.name}-v5",
            factory=AtariFactory(_game.rom),
            config=DEFAULTS,
            needs=ALE,
            short=f"{_game.ale_name}-v5" if _game.ale_name != _game.name else None,
        )
    )
add_family(Family(ALE, id_patterns(), "stepmill.zoo.atari.factory:AleFactory", example="ALE/Pong-v5", at_least=352))


def __getattr__(name: str) -> Any:
    """The classes, imported when they are asked for: they need much that registering ids does not."""
    if name == "AtariEnv":
        from stepmill.zoo.atari.env import AtariEnv

        return AtariEnv
    if name == "AtariGame":
        from stepmill.zoo.atari.game import AtariGame

        return AtariGame
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
