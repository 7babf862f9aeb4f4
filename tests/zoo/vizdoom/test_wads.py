"""Files of the user's own are looked at before the game, which ignores broken ones or waits forever."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from stepmill.errors import ConfigError

vizdoom = pytest.importorskip("vizdoom")
BASIC = Path(vizdoom.scenarios_path) / "basic.wad"


def check(path: Path | str, wanted: str = "map01") -> None:
    from stepmill.zoo.vizdoom.start import check_wads

    check_wads("X", [str(path)], wanted)


def test_the_wads_that_come_with_vizdoom_have_their_maps() -> None:
    check(f"{vizdoom.root_path}/freedoom1.wad", "E4M9")
    check(f"{vizdoom.root_path}/freedoom2.wad", "map32")
    for wad in vizdoom.wads:
        check(f"{vizdoom.scenarios_path}/{wad}")
    with pytest.raises(ConfigError, match=r"X: expected a map that .*basic.wad has, got 'map02'"):
        check(BASIC, "map02")


def test_an_archive_is_left_to_the_game() -> None:
    check(f"{vizdoom.root_path}/vizdoom.pk3", "anything")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        bytes(range(256)) * 20,
        b"PK and then something else",
        BASIC.read_bytes()[:1000],
        BASIC.read_bytes()[:12],
        b"PWAD" + struct.pack("<ii", 2**30, 12),
        b"PWAD" + struct.pack("<ii", -5, 12),
        b"PWAD" + struct.pack("<ii", 2, 2**30),
    ],
    ids=range(8),
)
def test_a_broken_wad(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.wad"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"expected a WAD, got '.*x.wad', which is none, or broken"):
        check(path)
