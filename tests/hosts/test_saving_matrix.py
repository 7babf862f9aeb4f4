"""Saved states of every kind, on every backend, in every autoreset mode, given to every kind of env.

An env that is given a state goes on as the saved one did, bit for bit: in the same env, in another one, in another pool
on another backend, and in another process. Some of the saved envs are within an episode, some at its end.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.journeys import WAYS, Journey, Traveller, every_case, some_cases
from support.probes import MODES
from support.subprocesses import run_well

STEPS = 300


def check(name: str, folder: Path, cases: Sequence[tuple[str, str, str]]) -> None:
    """States of a way go to the same env, to others, to another pool, and to another process."""
    way = WAYS[name]
    for package in way.packages:
        pytest.importorskip(package)
    rng = np.random.default_rng(5)
    parcels: list[tuple[Any, ...]] = []
    expected_there = []
    for task, backend, mode in cases:
        another = way.backends[way.backends.index(backend) - 1]
        with (
            way.make(task, backend, autoreset=mode, seed=7) as pool,
            way.make(task, another, autoreset=mode, seed=99) as other,
        ):
            pool.reset()
            other.reset()
            journey = Journey(pool, [Traveller(lane) for lane in range(3)])
            journey.go(int(rng.integers(1, 30)))
            journey.go_until_some_end()
            states, saved = pool.save(by=way.by), list(journey.travellers)
            assert states.origins[0].kind == name
            expected = journey.go(STEPS)
            journey.go(int(rng.integers(0, 30)))
            for to, order in ((pool, [0, 2, 1]), (other, [1, 2, 0])):  # one to the same env, and the others to others
                to.restore([states[i] for i in order])
                got = Journey(to, [saved[i] for i in order]).go(STEPS)
                assert got == [expected[i] for i in order], (task, backend, mode, order)
            parcels.append((task, backend, mode, states, saved))
            expected_there.append(expected)
    file = folder / "parcels"
    file.write_bytes(pickle.dumps(parcels))
    code = f"""
        import pickle
        from pathlib import Path
        from support.journeys import travel_on
        if __name__ == "__main__":
            print(travel_on({name!r}, pickle.loads(Path({str(file)!r}).read_bytes()), {STEPS}))
        """
    assert run_well(code).strip() == str(expected_there)


# Not one test with cases: `make test` asks for all of these.


def test_native_envs_go_on_from_copies_of_their_memory(tmp_path: Path) -> None:
    check("memory", tmp_path, some_cases("memory"))


@pytest.mark.slow
def test_simulators_go_on_from_copies_of_their_data(tmp_path: Path) -> None:
    check("simulator", tmp_path, some_cases("simulator"))


def test_python_envs_go_on_from_what_their_methods_tell(tmp_path: Path) -> None:
    check("methods", tmp_path, some_cases("methods"))


def test_python_envs_go_on_from_their_pickles(tmp_path: Path) -> None:
    check("pickle", tmp_path, some_cases("pickle"))


@pytest.mark.long
@pytest.mark.parametrize("name", WAYS)
def test_envs_go_on_in_every_mode_on_every_backend(name: str, tmp_path: Path) -> None:
    check(name, tmp_path, every_case(WAYS[name]))


def test_few_cases_have_every_backend_with_every_mode() -> None:
    found = {(backend, mode) for name in WAYS for _, backend, mode in some_cases(name)}
    assert found == {(backend, mode) for way in WAYS.values() for backend in way.backends for mode in MODES}
