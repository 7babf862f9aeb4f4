"""The envs that come with stepmill: a file or a folder per family. Each registers its ids when it is imported."""

from stepmill.zoo import (  # noqa: F401
    atari,
    box2d,
    classic,
    debug,
    dm_control,
    highway,
    hybrid,
    metaworld,
    minigrid,
    mujoco,
    nethack,
    pettingzoo,
    robotics,
    toy,
    vizdoom,
    worlds,
)
