"""Suites of envs that are functions of JAX: an adapter each, which is imported when one of its envs is asked for."""

from __future__ import annotations

from stepmill.registry.suites import Suite, add_suite
from stepmill.system.optional import BRAX, CRAFTAX, GYMNAX, JUMANJI, PGX

for _package, _example, _at_least in (
    (GYMNAX, "CartPole-v1", 25),
    (BRAX, "ant", 11),
    (JUMANJI, "Snake-v1", 22),
    (PGX, "connect_four", 20),
    (CRAFTAX, "Craftax-Symbolic-v1", 4),
):
    _module = f"stepmill.zoo.worlds.{_package.module}"
    add_suite(
        Suite(
            _package,
            world=f"{_module}:world_of",
            ids=f"{_module}:names",
            example=f"{_package.module}:{_example}",
            at_least=_at_least,
        )
    )
