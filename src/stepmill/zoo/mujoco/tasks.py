"""What each MuJoCo env takes from its model: the file, and the bodies that it reads by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Task:
    """One native env class."""

    xml_file: str  # in Gymnasium's assets
    own_model: bool = True  # whether the user may give another file
    bodies: Mapping[str, str | int] = field(default_factory=dict)  # the name in C++: the body's name or index
    body_key: str | None = None  # a configuration key that names the body of that name in C++
    reads_mass_center: bool = False


_REACHER_BODIES = {"fingertip": "fingertip", "target": "target"}
_PUSHER_BODIES = {"object": "object", "tips_arm": "tips_arm", "goal": "goal"}

TASKS: Mapping[str, Task] = {
    "Ant-v4": Task("ant.xml", bodies={"main_body": "torso"}),
    "Ant-v5": Task("ant.xml", bodies={"main_body": 1}, body_key="main_body"),
    "HalfCheetah-v4": Task("half_cheetah.xml", own_model=False),
    "HalfCheetah-v5": Task("half_cheetah.xml"),
    "Hopper-v4": Task("hopper.xml", own_model=False),
    "Hopper-v5": Task("hopper.xml"),
    "Humanoid-v4": Task("humanoid.xml", own_model=False, reads_mass_center=True),
    "Humanoid-v5": Task("humanoid.xml", reads_mass_center=True),
    "HumanoidStandup-v4": Task("humanoidstandup.xml", own_model=False),
    "HumanoidStandup-v5": Task("humanoidstandup.xml"),
    "InvertedDoublePendulum-v4": Task("inverted_double_pendulum.xml", own_model=False),
    "InvertedDoublePendulum-v5": Task("inverted_double_pendulum.xml"),
    "InvertedPendulum-v4": Task("inverted_pendulum.xml", own_model=False),
    "InvertedPendulum-v5": Task("inverted_pendulum.xml"),
    "Pusher-v5": Task("pusher_v5.xml", bodies=_PUSHER_BODIES),
    "Reacher-v4": Task("reacher.xml", own_model=False, bodies=_REACHER_BODIES),
    "Reacher-v5": Task("reacher.xml", bodies=_REACHER_BODIES),
    "Swimmer-v4": Task("swimmer.xml", own_model=False),
    "Swimmer-v5": Task("swimmer.xml"),
    "Walker2d-v4": Task("walker2d.xml", own_model=False),
    "Walker2d-v5": Task("walker2d_v5.xml"),
}
