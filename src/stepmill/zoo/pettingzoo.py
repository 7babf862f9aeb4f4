"""PettingZoo's envs of many players: those of mpe2, butterfly and SISL, and classic games.

The ids are PettingZoo's, with or without the collection before them: ``simple_spread_v3``, ``mpe2/simple_spread_v3``,
``butterfly/pistonball_v6``. Nothing of PettingZoo is imported before one is asked for.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from stepmill.registry.factories import EnvFactory, accepted_keys, default_values
from stepmill.registry.records import Family, add_family
from stepmill.system.optional import BOX2D, MPE2, PETTINGZOO, check_installed, is_installed, missing
from stepmill.zoo.further_seeds import FurtherSeeds

_HERE = "stepmill.zoo.pettingzoo"
_MPE2 = "mpe2"
_COLLECTIONS = ("butterfly", "sisl", "classic")
# Without a version: packages raise it from release to release.
_NAMES = {
    _MPE2: ("collect_treasure", "simple", r"simple_\w+"),
    "butterfly": ("cooperative_pong", "knights_archers_zombies", "pistonball"),
    "sisl": ("multiwalker", "pursuit", "waterworld"),
    "classic": (
        *("chess", "connect_four", "go", "hanabi", "leduc_holdem", "rps", "texas_holdem", "texas_holdem_no_limit"),
        "tictactoe",
    ),
}
_SEEDED_EACH_TIME = ("hanabi",)  # its C++ draws anew without a seed, and refuses seeds of more than 31 bits
_WITH_BOX2D = ("multiwalker",)  # Box2D has no wheel for some machines, so the extra does not bring it


@dataclass(frozen=True)
class PettingZooFactory(EnvFactory):
    """Makes the ``ParallelEnv`` of an id; a game that is played in turns is made one by PettingZoo's own conversion."""

    id: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "id", self.id.rpartition("/")[2])  # frozen, and known by its short name
        if self.id.startswith(_WITH_BOX2D):
            check_installed(BOX2D, self.id)

    def __call__(self, **config: Any) -> Any:
        module = self._module()
        if hasattr(module, "parallel_env"):
            return module.parallel_env(**config)
        from pettingzoo.utils import conversions

        env = module.env(**config)
        if env.metadata.get("is_parallelizable"):
            return conversions.aec_to_parallel(env)
        together = conversions.turn_based_aec_to_parallel(env)
        return _seeded_each_time(together) if self.id.startswith(_SEEDED_EACH_TIME) else together

    def known_keys(self) -> list[str] | None:
        """The keyword arguments of the env inside its wrappers, whose functions accept any."""
        return accepted_keys(self._inner())

    def defaults(self) -> dict[str, Any]:
        return default_values(self._inner())

    def _inner(self) -> Callable[..., Any]:
        module = self._module()
        make: Callable[..., Any] = getattr(module, "raw_env", None) or getattr(module, "parallel_env", module.env)
        return make

    def preload(self, config: Mapping[str, Any]) -> None:
        self._module()

    def _module(self) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # PettingZoo 1.27 has another way too, older ones not
            try:
                return importlib.import_module(_modules()[self.id])
            except ModuleNotFoundError as error:  # PettingZoo is there, but not what this env needs in addition
                extra = (BOX2D if error.name == BOX2D.module else PETTINGZOO).extra
                raise missing(str(error.name), extra, self.id) from error


def _seeded_each_time(env: Any) -> Any:
    from pettingzoo.utils.wrappers import BaseParallelWrapper

    class SeededEachTime(BaseParallelWrapper):  # type: ignore[misc]
        """The seeds of all episodes follow from the one that the user gives."""

        def __init__(self, env: Any) -> None:
            super().__init__(env)
            self._further_seeds = FurtherSeeds()

        def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            return self.env.reset(seed=int(self._further_seeds.after(seed).integers(2**31)), options=options)

    return SeededEachTime(env)


def mpe2_ids() -> list[str]:
    """The ids of the installed mpe2."""
    return list(_modules_in(_MPE2))


def pettingzoo_ids() -> list[str]:
    """The ids of the installed PettingZoo that can be made."""
    ids = [id for collection in _COLLECTIONS for id in _modules_in(f"pettingzoo.{collection}")]
    return [id for id in ids if is_installed(BOX2D) or not id.startswith(_WITH_BOX2D)]


def _modules() -> dict[str, str]:
    """The module of each id."""
    packages = (_MPE2, *(f"pettingzoo.{one}" for one in _COLLECTIONS))
    return {id: module for package in packages for id, module in _modules_in(package).items()}


def _modules_in(package: str) -> dict[str, str]:
    """The modules of a package that are named like an id, by that name. None of them is imported."""
    try:
        spec = importlib.util.find_spec(package)
    except ModuleNotFoundError:
        return {}
    folders = [] if spec is None or spec.submodule_search_locations is None else spec.submodule_search_locations
    names = [one.name for one in pkgutil.iter_modules(folders)]
    return {name: f"{package}.{name}" for name in names if re.fullmatch(r"\w+_v\d+", name)}


def _patterns(*collections: str) -> tuple[str, ...]:
    return tuple(rf"({one}/)?({'|'.join(_NAMES[one])})_v\d+" for one in collections)


add_family(
    Family(
        MPE2,
        _patterns(_MPE2),
        factory=f"{_HERE}:PettingZooFactory",
        ids=f"{_HERE}:mpe2_ids",
        example="simple_spread_v3",
        at_least=12,
    )
)
add_family(
    Family(
        PETTINGZOO,
        _patterns(*_COLLECTIONS),
        factory=f"{_HERE}:PettingZooFactory",
        ids=f"{_HERE}:pettingzoo_ids",
        example="pistonball_v6",
        at_least=13,  # and multiwalker with Box2D
    )
)
