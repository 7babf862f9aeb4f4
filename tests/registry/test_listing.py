"""``list_all_envs``: what can be made here, by family, and which extra brings the rest."""

from __future__ import annotations

import logging
import pickle
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import gymnasium
import pytest

import stepmill
from stepmill.registry import records as registry
from stepmill.registry.records import Family
from stepmill.registry.suites import suites
from stepmill.system.optional import Package

ZOO = Path(__file__).parents[2] / "docs" / "zoo.md"
RECORDS, FAMILIES = tuple(registry.records()), registry.families()  # before tests add any
PACKAGE = """
import gymnasium
for name in ("Village-Small-v0", "Village-Large-v0", "village/Old-v0"):
    gymnasium.register(name, "villages.envs:" + ("OldEnv" if "Old" in name else "Env"))
"""


@pytest.fixture(autouse=True)
def _few_families(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of the packages that happen to be installed; what a test registers is forgotten."""
    monkeypatch.setattr(registry, "_families", [])
    monkeypatch.setattr(registry, "_records", dict(registry._records))
    before = dict(gymnasium.registry)
    monkeypatch.setattr("gymnasium.registry", before)
    monkeypatch.setattr("gymnasium.envs.registration.registry", before)


@pytest.fixture
def villages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes a family, and the package that it needs, of this code."""

    def write(code: str | None) -> None:
        if code is not None:
            (tmp_path / "villages.py").write_text(code)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(__import__("sys").modules, "villages", raising=False)
        package = Package("villages", "villages-env", "villages")
        family = Family(package, (r"Village-.*",), example="Village-Small-v0", at_least=3, without=".*:OldEnv")
        registry.add_family(family)

    return write


def test_what_a_package_prints_when_it_is_imported_is_not_shown(
    villages: Callable[[str], None], capfd: pytest.CaptureFixture[str]
) -> None:
    villages(PACKAGE + "import sys\nprint('a notice')\nprint('another', file=sys.stderr)")
    assert "Village-Small-v0" in stepmill.list_all_envs()
    assert capfd.readouterr() == ("", "")


def test_it_is_a_sorted_list_of_ids() -> None:
    ids = stepmill.list_all_envs()
    assert isinstance(ids, list)
    assert ids == sorted(set(ids))
    assert {"CartPole-v1", "Catch-v0", "Moving-v0"} <= set(ids)
    assert all(type(id) is str for id in ids)


def test_the_families_are_the_same_ids() -> None:
    ids = stepmill.list_all_envs()
    assert sorted(id for part in ids.families.values() for id in part) == ids
    assert set(ids.families["stepmill"]) <= set(registry.own_ids())


def test_ids_of_gymnasium_that_only_raise_are_left_out() -> None:
    ids = stepmill.list_all_envs()
    assert "GymV21Environment-v0" not in ids.families.get("gymnasium", [])  # where Shimmy is installed, it is Shimmy's
    assert not any(id.startswith("stepmill/") for id in ids)


def test_ids_of_an_installed_package_are_there(villages: Callable[[str | None], None]) -> None:
    villages(PACKAGE)
    ids = stepmill.list_all_envs()
    assert ids.families["villages"] == ["Village-Large-v0", "Village-Small-v0"]
    assert "villages" not in ids.missing
    assert "villages (2): Village-Large-v0, Village-Small-v0\n" in f"{ids}\n"


def test_what_an_extra_would_bring_is_said(villages: Callable[[str | None], None]) -> None:
    villages(None)
    ids = stepmill.list_all_envs()
    assert "villages" not in ids.families
    assert ids.missing["villages"] == ("Village-Small-v0", 3)
    assert "pip install 'stepmill[villages]' brings Village-Small-v0 and 2 more" in str(ids).splitlines()


def test_a_broken_package_is_left_out_and_named(
    villages: Callable[[str | None], None], caplog: pytest.LogCaptureFixture
) -> None:
    villages("raise OSError('libvillage.so: cannot open shared object file')")
    with caplog.at_level(logging.WARNING, "stepmill"):
        ids = stepmill.list_all_envs()
    assert "CartPole-v1" in ids
    assert "leaves out villages-env, which cannot be imported: OSError: libvillage.so" in caplog.text


def test_ids_that_the_user_registered_are_others() -> None:
    gymnasium.register("Mine-v0", "my_module:MyEnv")
    assert "Mine-v0" in stepmill.list_all_envs().families["others"]


def test_an_id_of_ours_that_cannot_be_made_is_not_there_though_another_package_has_it() -> None:
    registry.add(registry.EnvRecord("Hut-v0", factory=dict, needs=Package("nowhere_village", "village", "huts")))
    gymnasium.register("Hut-v0", "another_package:Hut")
    ids = stepmill.list_all_envs()
    assert "Hut-v0" not in ids
    assert ids.missing["huts"] == ("Hut-v0", 1)


def test_the_table_in_the_docs_has_the_same_numbers() -> None:
    row = re.compile(r"^\| \[.*\]\(#.*\) \| .* \| (\d+).* \| (?:`([\w-]+)`.*|none) \| .* \|$", re.M)
    documented: Counter[str] = Counter()
    for count, extra in row.findall(ZOO.read_text()):
        documented[extra or "stepmill"] += int(count)
    known = Counter("stepmill" if one.needs is None else one.needs.extra for one in RECORDS)
    for family in FAMILIES:
        known[family.package.extra] += family.at_least
    for suite in suites():
        known[suite.package.extra] += suite.at_least
    assert documented == known


def test_it_can_be_pickled() -> None:
    ids = stepmill.list_all_envs()
    again = pickle.loads(pickle.dumps(ids))
    assert (again, again.families, again.missing) == (ids, ids.families, ids.missing)
