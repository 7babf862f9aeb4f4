"""PettingZoo's envs by id: mpe2, and a game that is played in turns."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import stepmill
from stepmill.errors import MissingPackageError, UnknownConfigError, UnknownEnvError
from stepmill.system.optional import BOX2D, Package, is_installed
from stepmill.zoo.pettingzoo import pettingzoo_ids
from support.subprocesses import run_well
from support.zoo import fingerprint

mpe2 = pytest.importorskip("mpe2", reason="mpe2 is not installed")


@pytest.mark.parametrize("backend", ["inline", "process"])
def test_an_id_plays_the_episodes_of_its_parallel_env(make: Any, backend: str) -> None:
    from mpe2 import simple_spread_v3

    settings = {"num_envs": 3, "seed": 7, "backend": backend, "N": 2, "max_cycles": 5}
    pools = [make("simple_spread_v3", **settings), make(simple_spread_v3.parallel_env, **settings)]
    assert fingerprint(pools[0], 20) == fingerprint(pools[1], 20)


def test_an_id_may_name_its_collection(make: Any) -> None:
    short, full = make("simple_v3", backend="inline"), make("mpe2/simple_v3", backend="inline")
    assert short.observation_space == full.observation_space
    with pytest.raises(UnknownEnvError, match=r"unknown env id 'simple_v2', did you mean simple_v3\?"):
        stepmill.make("mpe2/simple_v2")


def test_keys_are_those_of_the_env_inside() -> None:
    spec = stepmill.make_spec("simple_spread_v3", N=5)
    assert spec.config["max_num_players"] == 5
    with pytest.raises(UnknownConfigError, match="has no config key 'max_cycle', did you mean 'max_cycles'"):
        stepmill.make("simple_spread_v3", max_cycle=3)


@pytest.mark.parametrize(
    ("id", "needs", "extra"), [("pistonball_v6", "pymunk", "pettingzoo"), ("multiwalker_v9", "Box2D", "box2d")]
)
def test_a_package_that_an_env_needs_in_addition_is_named(
    id: str, needs: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, needs, None)
    for loaded in [name for name in sys.modules if name.startswith(("pettingzoo.butterfly", "pettingzoo.sisl"))]:
        monkeypatch.delitem(sys.modules, loaded)
    with pytest.raises(MissingPackageError, match=rf"^{id} needs {needs}, .*pip install 'stepmill\[{extra}\]'"):
        stepmill.make(id)


def test_the_module_of_an_id_is_imported_before_workers_are_forked() -> None:
    code = """
        import sys
        from stepmill.registry.records import find
        factory = find("simple_spread_v3").factory
        factory.preload({})
        print("mpe2.simple_spread_v3" in sys.modules)
    """
    assert run_well(code) == "True\n"


def test_games_in_turns_are_converted(make: Any) -> None:
    pytest.importorskip("pygame")
    with make("tictactoe_v3", backend="inline") as pool:
        obs, _ = pool.reset()
        assert obs["action_mask"].shape == (2, 9)
        moves = [(0, 0), (0, 3), (1, 0), (0, 4), (2, 0)]  # of the player whose turn it is
        for turn, (first, second) in enumerate(moves):
            actions = [first, second] if turn % 2 == 0 else [0, second]
            obs, reward, terminated, _, _ = pool.step(np.array(actions))
        assert terminated.all()
        assert reward.tolist() == [1.0, -1.0]


def test_a_game_that_draws_anew_follows_its_seed(make: Any) -> None:
    pytest.importorskip("shimmy")
    pytest.importorskip("pyspiel")
    config = {"num_envs": 3, "backend": "inline"}
    seen = [fingerprint(make("hanabi_v5", seed=seed, **config), 30) for seed in (7, 7, 70)]
    assert seen[0] == seen[1] != seen[2]


def test_multiwalker_names_the_package_that_it_needs_besides(monkeypatch: pytest.MonkeyPatch) -> None:
    def has(package: Package) -> bool:
        return package != BOX2D and is_installed(package)

    monkeypatch.setattr("stepmill.system.optional.is_installed", has)
    monkeypatch.setattr("stepmill.zoo.pettingzoo.is_installed", has)
    with pytest.raises(MissingPackageError, match=r"multiwalker_v9 needs Box2D.*pip install 'stepmill\[box2d\]'"):
        stepmill.make("multiwalker_v9")
    assert not any(id.startswith("multiwalker") for id in pettingzoo_ids())
