"""Models for MuJoCo tasks other than Gymnasium's own: a small one, and changed copies of Gymnasium's."""

from __future__ import annotations

import os
from pathlib import Path

import gymnasium

ASSETS = Path(gymnasium.__file__).parent / "envs" / "mujoco" / "assets"

# A free body with an arm and a foot; no tendons, no sites, and no actuator on the foot.
CRAWLER = """
<mujoco>
  <option timestep="0.004" integrator="RK4"/>
  <worldbody>
    <geom type="plane" size="10 10 1"/>
    <body name="trunk" pos="0 0 0.3">
      <freejoint/>
      <geom type="sphere" size="0.1" mass="1.5"/>
      <body name="arm" pos="0.1 0 0">
        <joint name="shoulder" axis="0 1 0" range="-90 90" limited="true"/>
        <geom type="capsule" fromto="0 0 0 0.2 0 -0.1" size="0.03" mass="0.2"/>
        <body name="hand" pos="0.2 0 -0.1">
          <joint name="elbow" axis="0 0 1" damping="0.1"/>
          <geom type="capsule" fromto="0 0 0 0.15 0 -0.1" size="0.02" mass="0.1"/>
        </body>
      </body>
      <body name="foot" pos="-0.1 0 0">
        <joint axis="0 1 0" stiffness="3"/>
        <geom type="capsule" fromto="0 0 0 -0.1 0 -0.2" size="0.03" mass="0.3"/>
      </body>
    </body>
  </worldbody>
  <actuator>
    <motor joint="shoulder" gear="2" ctrlrange="-1 1" ctrllimited="true"/>
    <motor joint="elbow" gear="1" ctrlrange="-0.5 2" ctrllimited="true"/>
  </actuator>
</mujoco>
"""


PENDULUM = """
<mujoco>
  <worldbody>
    <body name="pole"><joint axis="0 1 0"/><geom type="capsule" fromto="0 0 0 0.1 0 -0.5" size="0.05"/></body>
  </worldbody>
</mujoco>
"""


def crawler(folder: Path) -> str:
    """The path of a small model, written into ``folder``."""
    path = folder / "crawler.xml"
    path.write_text(CRAWLER)
    return os.fspath(path)


def pendulum(folder: Path) -> str:
    """A model with one joint and no actuator."""
    path = folder / "pendulum.xml"
    path.write_text(PENDULUM)
    return os.fspath(path)


def centipede(folder: Path, links: int) -> str:
    """A chain of so many bodies on a free one, each with a joint and a motor."""
    link = '<body pos="0.05 0 0"><joint name="{i}" axis="0 {y} {z}"/><geom size="0.02" mass="0.{m}"/>'
    chain = "".join(link.format(i=i, y=i % 2, z=1 - i % 2, m=i % 9 + 1) for i in range(links)) + "</body>" * links
    motors = "".join(f'<motor joint="{i}" gear="0.01" ctrlrange="-1 1" ctrllimited="true"/>' for i in range(links))
    path = folder / "centipede.xml"
    path.write_text(
        '<mujoco><worldbody><geom type="plane" size="9 9 1"/><body pos="0 0 0.1"><freejoint/><geom size="0.03"/>'
        f"{chain}</body></worldbody><actuator>{motors}</actuator></mujoco>"
    )
    return os.fspath(path)


def changed(folder: Path, asset: str, *changes: tuple[str, str]) -> str:
    """The path of a copy of one of Gymnasium's models in which each first text is replaced by the second."""
    text = (ASSETS / asset).read_text()
    for old, new in changes:
        if old not in text:
            raise ValueError(f"{asset} has no {old!r}")
        text = text.replace(old, new)
    path = folder / asset
    path.write_text(text)
    return os.fspath(path)
