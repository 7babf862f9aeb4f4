"""MuJoCo: native versions of Gymnasium's tasks, which step the MuJoCo that the user has installed.

``simulator.py`` is their Python half, imported when the first such pool is made, ``drawer.py`` draws them.
"""

from stepmill.registry.records import EnvRecord, add, register_drawer
from stepmill.system.optional import MUJOCO

_FAMILY = "stepmill.zoo.mujoco.simulator:MujocoFamily"
_DRAWER = "stepmill.zoo.mujoco.drawer:MujocoDrawer"

# Task: time limit and reward threshold, as Gymnasium registers them.
_TASKS: dict[str, tuple[int, float | None]] = {
    "Ant": (1000, 6000.0),
    "HalfCheetah": (1000, 4800.0),
    "Hopper": (1000, 3800.0),
    "Humanoid": (1000, None),
    "HumanoidStandup": (1000, None),
    "InvertedDoublePendulum": (1000, 9100.0),
    "InvertedPendulum": (1000, 950.0),
    "Pusher": (100, 0.0),
    "Reacher": (50, -3.75),
    "Swimmer": (1000, 360.0),
    "Walker2d": (1000, None),
}
# Gymnasium's Pusher-v4 refuses every MuJoCo from 3.0 on, and says so itself.
_NOT_NATIVE = {"Pusher-v4"}

for _task, (_limit, _threshold) in _TASKS.items():
    for _version in (4, 5):
        _id = f"{_task}-v{_version}"
        if _id not in _NOT_NATIVE:
            add(
                EnvRecord(
                    _id,
                    native=_id,
                    simulator=_FAMILY,
                    max_episode_steps=_limit,
                    reward_threshold=_threshold,
                    needs=MUJOCO,
                )
            )
            register_drawer(_id, _DRAWER)
