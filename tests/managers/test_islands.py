"""Managers whose envs run with another interpreter."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stepmill.envs import BaseEnvTimestep
from stepmill.errors import ConfigError, UnsupportedError
from stepmill.managers import BaseEnvManager, SyncSubprocessEnvManager
from support.envs.contract import Walk
from support.islands import make_environment

pytestmark = pytest.mark.usefixtures("deadline")


class Where(Walk):
    """Says which interpreter runs it."""

    @property
    def python(self) -> str:
        return sys.executable


def played(manager: Any) -> list[Any]:
    """Episodes, spaces and infos."""
    manager.seed(3)
    manager.launch()
    seen: list[Any] = [manager.observation_space, manager.action_space, manager.reward_space, repr(manager.env_info)]
    episodes: dict[int, list[Any]] = {0: [], 1: []}  # a reset may take longer than a step of the other env
    while not manager.done:
        for i, one in manager.step({i: np.array(i % 2) for i in manager.ready_obs}).items():
            assert type(one) is BaseEnvTimestep
            episodes[i].append((one.obs.tolist(), one.reward.tolist(), one.done, one.info))
    return [*seen, episodes]


@pytest.mark.parametrize("shared_memory", [True, False])
def test_envs_on_an_island_play_the_same_episodes(tmp_path: Path, shared_memory: bool) -> None:
    island = make_environment(tmp_path / "there")
    cfg = {"shared_memory": shared_memory, "episode_num": 2}
    with SyncSubprocessEnvManager(Where, [{}, {}], 2, cfg={**cfg, "python": island}) as there:
        on_the_island = played(there)
    with BaseEnvManager(Where, [{}, {}], 2, cfg=cfg) as here:
        assert on_the_island == played(here)
    with SyncSubprocessEnvManager(Where, [{}, {}], 2, python=island) as there:
        there.launch()
        assert there.python == [str(island / "bin" / "python")] * 2


def test_wrong_use_is_told(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="BaseEnvManager: python: another interpreter runs envs in worker"):
        BaseEnvManager(Walk, [{}], 1, python=sys.executable)
    with pytest.raises(ConfigError, match="SyncSubprocessEnvManager: python: expected the path of a Python"):
        SyncSubprocessEnvManager(Walk, [{}], 1, python=tmp_path / "nowhere")
