"""gymnasium-robotics: its own envs, under its own ids."""

from stepmill.registry.records import Family, add_family
from stepmill.system.optional import ROBOTICS

_BEGINNINGS = (
    *("FetchReach", "FetchPush", "FetchSlide", "FetchPickAndPlace", "HandReach", "HandManipulate"),
    *("AdroitHand", "AntMaze_", "PointMaze_", "FrankaKitchen"),
)

add_family(
    Family(
        ROBOTICS,
        tuple(f"{one}.*" for one in _BEGINNINGS),
        simulator="mujoco",
        example="FetchReach-v4",
        at_least=153,
        without=r".*:MujocoPy|gymnasium_robotics\.envs\.mujoco\.",  # mujoco-py is no more
    )
)
