"""A program that starts a game and closes it again, and may crash: see ``start.py``.

It imports nothing of stepmill. Its argument is JSON: ``folder`` is made by ``private_folder``, ``path`` is the caller's
``sys.path``, ``settings`` are ViZDoom's.
"""

from __future__ import annotations

import json
import os
import sys


def main(folder: str, path: list[str], settings: dict[str, object]) -> None:
    """Plays the beginning of two episodes: the second is begun in another way than the first."""
    sys.path[:] = path
    import vizdoom

    os.symlink(str(os.getpid()), os.path.join(folder, "parent"))
    game = vizdoom.DoomGame()
    game.set_config(settings)
    game.set_vizdoom_path(os.path.join(folder, "start"))
    game.set_doom_config_path(os.devnull)
    game.set_window_visible(False)
    game.set_mode(vizdoom.Mode.PLAYER)
    game.init()
    game.new_episode()
    game.close()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
