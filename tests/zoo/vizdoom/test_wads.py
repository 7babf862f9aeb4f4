"""WADs are looked at before the game, which ignores broken ones or crashes."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from stepmill.errors import ConfigError
from stepmill.zoo.vizdoom.wads import maps_in

vizdoom = pytest.importorskip("vizdoom")
BASIC = Path(vizdoom.scenarios_path) / "basic.wad"


def test_the_maps_of_every_wad_that_comes_with_vizdoom() -> None:
    assert maps_in("X", "it", str(BASIC)) == {"MAP01"}
    assert "E4M9" in (maps_in("X", "it", f"{vizdoom.root_path}/freedoom1.wad") or ())
    assert {f"MAP{i:02}" for i in range(1, 33)} <= (maps_in("X", "it", f"{vizdoom.root_path}/freedoom2.wad") or set())
    for wad in vizdoom.wads:
        assert maps_in("X", "it", f"{vizdoom.scenarios_path}/{wad}")


def test_an_archive_is_left_to_the_game() -> None:
    assert maps_in("X", "it", f"{vizdoom.root_path}/vizdoom.pk3") is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "expected a WAD"),
        (bytes(range(256)) * 20, "expected a WAD"),
        (b"PK and then something else", "expected a WAD"),
        (BASIC.read_bytes()[:1000], "its list of"),
        (BASIC.read_bytes()[:12], "its list of"),
        (b"PWAD" + struct.pack("<ii", 2**30, 12), "its list of"),
        (b"PWAD" + struct.pack("<ii", -5, 12), "its list of"),
        (b"PWAD" + struct.pack("<ii", 2, 2**30), "its list of"),
        (b"PWAD" + struct.pack("<ii", 1, 12) + struct.pack("<ii8s", 5, 9999, b"MAP01"), "entry b'MAP01'"),
        (b"PWAD" + struct.pack("<ii", 1, 12) + struct.pack("<ii8s", 5, -1, b"MAP01"), "entry b'MAP01'"),
    ],
)
def test_a_broken_wad(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "x.wad"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        maps_in("X", "it", str(path))


def test_no_wad_at_all(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        maps_in("X", "it", str(tmp_path / "x.wad"))
    with pytest.raises(ConfigError, match="Is a directory"):
        maps_in("X", "it", str(tmp_path))
