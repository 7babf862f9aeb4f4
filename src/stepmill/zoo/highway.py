"""highway-env: its own envs, under its own ids."""

from stepmill.optional import HIGHWAY
from stepmill.registry import Family, add_family

__all__: list[str] = []

_BEGINNINGS = (
    *("exit", "highway", "intersection", "lane-keeping", "merge", "parking", "racetrack", "roundabout", "two-way"),
    "u-turn",
)

add_family(Family(HIGHWAY, tuple(rf"{one}(-.+)?-v\d+" for one in _BEGINNINGS), example="highway-v0", at_least=31))
