"""Stable-Baselines3's own tests on our ``VecEnv``: a plugin for pytest, see ``make test-sb3``.

Ours takes the place of ``DummyVecEnv`` and ``SubprocVecEnv`` before the tests are imported. The tests that cannot pass
are listed here, with the reason; if one passes after all, the list is wrong, and that is a failure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from stable_baselines3.common import base_class, env_util, vec_env

from stepmill.interop.sb3 import StepmillVecEnv

_MONITORED = "env_is_wrapped(Monitor) is always true here, as the engine counts episodes"
_OPTIONS = "the test's env has a reset without options, which Gymnasium's interface has"
_EXPECTED_TO_FAIL = {
    "test_vec_env_is_wrapped": _MONITORED,
    "test_vec_monitor_ppo": _MONITORED,  # VecMonitor warns of it
    "test_evaluate_policy_monitors": _MONITORED,
    "test_check_nan": _OPTIONS,
    "test_subclassed_space_env": _OPTIONS,
    "test_env[CustomSubClassedSpaceEnv]": _OPTIONS,
    "test_subproc_start_method": "how workers start is not a choice",
    "test_discrete_obs": "an exception of an env's constructor is the cause of an EnvError",
}
_PASSES = {"test_evaluate_policy_monitors[None]"}  # of those above
# The env draws from its action space, which SB3 seeds because DummyVecEnv shares it. Unseeded, it is luck.
_MAY_FAIL = {f"test_discrete[env{env}-{model}]" for env in (1, 2) for model in ("A2C", "PPO")}
_MAY_FAIL |= {f"test_continuous[{model}]" for model in ("A2C", "PPO", "SAC", "DDPG", "TD3")}


class InThisProcess(StepmillVecEnv):
    """In the place of ``DummyVecEnv``."""

    def __init__(self, env_fns: list[Callable[[], Any]]) -> None:
        super().__init__(env_fns, backend="inline")

    @property
    def envs(self) -> list[Any]:
        return self.pool._host._envs


class InWorkers(StepmillVecEnv):
    """In the place of ``SubprocVecEnv``."""

    def __init__(self, env_fns: list[Callable[[], Any]], start_method: str | None = None) -> None:
        super().__init__(env_fns, backend="process")


for module in (vec_env, env_util, base_class):
    for name, ours in (("DummyVecEnv", InThisProcess), ("SubprocVecEnv", InWorkers)):
        if hasattr(module, name):
            setattr(module, name, ours)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        reason = _EXPECTED_TO_FAIL.get(item.name, _EXPECTED_TO_FAIL.get(item.name.partition("[")[0]))
        if reason is not None and item.name not in _PASSES:
            item.add_marker(pytest.mark.xfail(strict=True, reason=reason))
        elif item.name in _MAY_FAIL:
            item.add_marker(pytest.mark.xfail(strict=False, reason="its env is not seeded"))
