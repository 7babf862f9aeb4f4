"""docs/from-envpool.md says which of EnvPool's ids are not here: that is compared with EnvPool's own names."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import gymnasium
import pytest

import stepmill
from stepmill.interop.envpool.arguments import IDS
from stepmill.registry import records as registry
from stepmill.system.optional import HIGHWAY, MINIGRID, ROBOTICS, is_installed
from support.beside_envpool import families

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "from-envpool.md").read_text(encoding="utf-8")
# A row: the family, how many ids it has, and patterns of those that are not here.
ROWS = {
    name: (int(count), re.findall(r"`([^`]+)`", absent.partition(":")[0]))
    for name, count, absent in re.findall(r"^\| (.+?) \| (\d+) \| (.*?) ?\|$", PAGE.partition("\n## Ids\n")[2], re.M)
}
NEEDS = {"MiniGrid": MINIGRID, "highway-env": HIGHWAY, "gymnasium-robotics": ROBOTICS}  # to list what it registers
APART = {"highway-env", "gymnasium-robotics"}  # `make test` does without these


@pytest.fixture(scope="module")
def listed() -> set[str]:
    return set(stepmill.list_all_envs())


def is_here(id: str, listed: set[str]) -> bool:
    """Whether it can be made, if need be with a package that is not installed here."""
    id = IDS.get(id, id)
    if registry.registered(id) is not None or id in listed:
        return True
    family = registry.family_of(id)
    lacks_package = id.startswith(("phys2d/", "tabular/")) or (family is not None and not is_installed(family.package))
    return lacks_package and id in gymnasium.registry


def test_the_page_has_every_family() -> None:
    assert {name: count for name, (count, _) in ROWS.items()} == {name: len(ids) for name, ids in families().items()}


@pytest.mark.parametrize(
    "family", [pytest.param(name, marks=[pytest.mark.zoo] if name in APART else []) for name in families()]
)
def test_the_page_says_which_ids_are_not_here(family: str, listed: set[str]) -> None:
    if family in NEEDS and not is_installed(NEEDS[family]):
        pytest.skip(f"{NEEDS[family].name} is not installed")
    ids = families()[family]
    absent = [id for id in ids if not is_here(id, listed)]
    assert absent == [id for id in ids if any(fnmatchcase(id, one) for one in ROWS[family][1])]


def test_every_task_of_dm_control_has_envpools_name(envpool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(families()["dm_control"]) == {theirs for theirs, ours in IDS.items() if ours.startswith("dm_control/")}
    seen = []
    monkeypatch.setattr("stepmill.interop.envpool.make_pool_spec", lambda task_id, **_: seen.append(task_id) or spec)
    spec = stepmill.make_spec("CartPole-v1")
    envpool.make_spec("HumanoidCMURun-v1")
    assert seen == ["dm_control/humanoid_CMU-run-v0"]


def test_ids_that_only_envpool_has_are_listed_too(envpool: Any) -> None:
    ids = envpool.list_all_envs()
    assert "CliffWalking-v0" in ids
    assert ids == sorted(set(ids))
