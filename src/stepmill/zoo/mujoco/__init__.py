"""MuJoCo: native versions of Gymnasium's tasks, which step the MuJoCo that the user has installed.

``simulator.py`` is their Python half, imported when the first such pool is made.
"""

from stepmill.registry import register

_FAMILY = "stepmill.zoo.mujoco.simulator:MujocoFamily"

# Task: time limit and reward threshold, as Gymnasium registers them.
_TASKS: dict[str, tuple[int, float | None]] = {
    "Ant": (1000, 6000.0),
    "HalfCheetah": (1000, 4800.0),
}
for _task, (_limit, _threshold) in _TASKS.items():
    for _version in (4, 5):
        _id = f"{_task}-v{_version}"
        register(_id, native=_id, simulator=_FAMILY, max_episode_steps=_limit, reward_threshold=_threshold)
