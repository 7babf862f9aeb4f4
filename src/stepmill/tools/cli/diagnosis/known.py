"""Versions of packages that do not work, or not together, though pip installs them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stepmill.tools.cli.diagnosis.part import Level

__all__ = ["KNOWN", "Known"]

_SAME_FOLDER = "have their files in the same folder, so that one has overwritten the other"


@dataclass(frozen=True)
class Known:
    """Applies if all these packages are installed, in these versions."""

    versions: Mapping[str, str]  # "" is any
    level: Level
    what: str
    advice: str
    unless: str | None = None  # another package is installed


KNOWN = (
    Known(
        {"mujoco": "==4.0.0"},
        "warning",
        # Release notes of 4.0.1, google-deepmind/mujoco#3767.
        "the Newton solver of MuJoCo 4.0.0 factorises sparse matrices wrongly: slow, wrong or diverging steps in "
        "models with a sparse Jacobian, which by default are those of 60 or more degrees of freedom. Gymnasium's tasks "
        "are smaller and not affected; models of your own may be",
        "pip install -U 'mujoco!=4.0.0' (4.0.1 has it repaired), or <option jacobian=\"dense\"/> in the model",
    ),
    Known(
        {"dm-control": "<=1.0.50", "mujoco": ">=4"},
        "broken",
        "dm-control up to 1.0.50 does not work with MuJoCo 4",
        "pip install 'stepmill[dm-control]', which installs an older MuJoCo",
    ),
    Known(
        {"gymnasium-robotics": "<=1.4.2", "mujoco": ">=3.12"},
        "warning",
        "Fetch, Hand and FrankaKitchen of gymnasium-robotics up to 1.4.2 fail with MuJoCo 3.12 and later; the mazes "
        "and AdroitHand work",
        "pip install 'stepmill[robotics]', which installs an older MuJoCo",
    ),
    Known(
        {"pygame": "", "pygame-ce": ""},
        "broken",
        f"pygame and pygame-ce {_SAME_FOLDER}",
        "pip uninstall pygame pygame-ce && pip install pygame-ce",
    ),
    Known(
        {"pygame": ""},
        "note",
        "pygame is installed, and not pygame-ce, which Gymnasium 1.4, PettingZoo, MiniGrid and highway-env ask for",
        "pip uninstall pygame && pip install pygame-ce: the two have their files in the same folder",
        unless="pygame-ce",
    ),
    Known(
        {"opencv-python": "", "opencv-python-headless": ""},
        "warning",
        f"opencv-python and opencv-python-headless {_SAME_FOLDER}",
        "pip uninstall opencv-python opencv-python-headless && pip install opencv-python-headless",
    ),
    Known(
        {"box2d": "", "box2d-py": ""},
        "warning",
        f"box2d and box2d-py {_SAME_FOLDER}",
        "pip uninstall box2d box2d-py && pip install 'stepmill[box2d]'",
    ),
)
