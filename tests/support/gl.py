"""What MuJoCo can draw with on this machine without a display."""

from __future__ import annotations

import functools
import os
import subprocess
import sys

DRAW = "import mujoco; mujoco.Renderer(mujoco.MjModel.from_xml_string('<mujoco/>'), 8, 8).render()"


@functools.cache
def gl_backend() -> str | None:
    """A value of MUJOCO_GL that works; None if there is none."""
    for name in ("egl", "osmesa"):
        env = {**os.environ, "MUJOCO_GL": name}
        if subprocess.run([sys.executable, "-c", DRAW], env=env, capture_output=True, timeout=600).returncode == 0:
            return name
    return None
