"""The tasks of dm_control's suite, by the ids that Shimmy gives them: ``dm_control/cheetah-run-v0``.

``cheetah-run`` is short for it. Nothing of dm_control is imported before such an env is made.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from stepmill.errors import ConfigError
from stepmill.registry.records import EnvRecord, add
from stepmill.system.optional import DM_CONTROL
from stepmill.values.arguments import one_of, true_or_false, whole_number

TASKS = {
    "acrobot": ("swingup", "swingup_sparse"),
    "ball_in_cup": ("catch",),
    "cartpole": ("balance", "balance_sparse", "swingup", "swingup_sparse", "two_poles", "three_poles"),
    "cheetah": ("run",),
    "dog": ("stand", "walk", "trot", "run", "fetch"),
    "finger": ("spin", "turn_easy", "turn_hard"),
    "fish": ("upright", "swim"),
    "hopper": ("stand", "hop"),
    "humanoid": ("stand", "walk", "run", "run_pure_state"),
    "humanoid_CMU": ("stand", "walk", "run"),
    "lqr": ("lqr_2_1", "lqr_6_2"),
    "manipulator": ("bring_ball", "bring_peg", "insert_ball", "insert_peg"),
    "pendulum": ("swingup",),
    "point_mass": ("easy", "hard"),
    "quadruped": ("walk", "run", "escape", "fetch"),
    "reacher": ("easy", "hard"),
    "stacker": ("stack_2", "stack_4"),
    "swimmer": ("swimmer6", "swimmer15"),
    "walker": ("stand", "walk", "run"),
}


def load(
    domain: str,
    task: str,
    flat_observation: bool = False,
    from_pixels: bool = False,
    pixels_only: bool = True,
    height: int = 84,
    width: int = 84,
    camera_id: int | str = 0,
    visualize_reward: bool = False,
    task_kwargs: Mapping[str, Any] | None = None,
    environment_kwargs: Mapping[str, Any] | None = None,
    render_mode: str | None = "rgb_array",
) -> Any:
    """A task of the suite as a Gymnasium env.

    Args:
        domain: Such as ``"cheetah"``.
        task: Such as ``"run"``.
        flat_observation: One array instead of a Dict: its entries in dm_control's order, or the picture alone. With
            both, a Dict of ``observations`` and ``pixels``.
        from_pixels: A picture of the scene is observed, under the key ``pixels``: uint8, channels first.
        pixels_only: With ``from_pixels``: nothing else is observed.
        height: Of pictures, those of ``render`` too.
        width: Of pictures.
        camera_id: The number or the name of a camera; -1 is one that shows the whole scene.
        visualize_reward: Colours show the reward.
        task_kwargs: For ``suite.load``, such as ``{"time_limit": 5}`` (seconds).
        environment_kwargs: For ``suite.load``, such as ``{"n_sub_steps": 4}``.
        render_mode: ``"rgb_array"`` or None; ``render`` always draws one.
    """
    from stepmill.zoo.suite_env import SuiteEnv, SuiteTask

    one = SuiteTask(
        domain,
        task,
        flat_observation=true_or_false("flat_observation", flat_observation),
        from_pixels=true_or_false("from_pixels", from_pixels),
        pixels_only=true_or_false("pixels_only", pixels_only),
        picture={
            "height": whole_number("height", height, 1),
            "width": whole_number("width", width, 1),
            "camera_id": camera_id,
        },
        visualize_reward=true_or_false("visualize_reward", visualize_reward),
        task_kwargs=_keywords("task_kwargs", task_kwargs),
        environment_kwargs=_keywords("environment_kwargs", environment_kwargs),
    )
    if "random" in one.task_kwargs:
        raise ConfigError("task_kwargs: expected no 'random', which is the seed: use seed=... of make or reset")
    if render_mode is not None:
        one_of("render_mode", render_mode, ("rgb_array",))
    return SuiteEnv(one)


def _keywords(name: str, given: Any) -> dict[str, Any]:
    if given is not None and not isinstance(given, Mapping):
        raise ConfigError(f"{name}: expected a dict, got {given!r}")
    return dict(given or {})


for _domain, _tasks in TASKS.items():
    for _task in _tasks:
        add(
            EnvRecord(
                f"dm_control/{_domain}-{_task}-v0",
                factory=functools.partial(load, _domain, _task),
                needs=DM_CONTROL,
                short=f"{_domain}-{_task}",
            )
        )
