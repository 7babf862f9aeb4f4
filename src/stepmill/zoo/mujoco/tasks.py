"""What each MuJoCo env takes from its model: the file, and the bodies that it reads by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["TASKS", "Task"]


@dataclass(frozen=True)
class Task:
    """One native env class."""

    xml_file: str  # in Gymnasium's assets
    own_model: bool = True  # whether the user may give another file
    bodies: Mapping[str, str | int] = field(default_factory=dict)  # the name in C++: the body's name or index
    body_key: str | None = None  # a configuration key that names the body of that name in C++


TASKS: Mapping[str, Task] = {
    "Ant-v4": Task("ant.xml", bodies={"main_body": "torso"}),
    "Ant-v5": Task("ant.xml", bodies={"main_body": 1}, body_key="main_body"),
    "HalfCheetah-v4": Task("half_cheetah.xml", own_model=False),
    "HalfCheetah-v5": Task("half_cheetah.xml"),
}
