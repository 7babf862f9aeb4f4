"""The letters of the caption: 5 by 7 dots each."""

from __future__ import annotations

import numpy as np

__all__ = ["write"]

_SHEETS = (
    (
        "0123456789/-",
        """
.###. ..#.. .###. ##### ...#. ##### ..##. ##### .###. .###. ....# .....
#...# .##.. #...# ...#. ..##. #.... .#... ....# #...# #...# ....# .....
#..## ..#.. ....# ..#.. .#.#. ####. #.... ...#. #...# #...# ...#. .....
#.#.# ..#.. ...#. ...#. #..#. ....# ####. ..#.. .###. .#### ..#.. #####
##..# ..#.. ..#.. ....# ##### ....# #...# .#... #...# ....# .#... .....
#...# ..#.. .#... #...# ...#. #...# #...# .#... #...# ...#. #.... .....
.###. .###. ##### .###. ...#. .###. .###. .#... .###. .##.. #.... .....
""",
    ),
    (
        "ACDEGHLNORSTUW",
        """
.###. .###. ###.. ##### .###. #...# #.... #...# .###. ####. .#### ##### #...# #...#
#...# #...# #..#. #.... #...# #...# #.... #...# #...# #...# #.... ..#.. #...# #...#
#...# #.... #...# #.... #.... #...# #.... ##..# #...# #...# #.... ..#.. #...# #...#
#...# #.... #...# ####. #.### ##### #.... #.#.# #...# ####. .###. ..#.. #...# #.#.#
##### #.... #...# #.... #...# #...# #.... #..## #...# #.#.. ....# ..#.. #...# #.#.#
#...# #...# #..#. #.... #...# #...# #.... #...# #...# #..#. ....# ..#.. #...# #.#.#
#...# .###. ###.. ##### .#### #...# ##### #...# .###. #...# ####. ..#.. .###. .#.#.
""",
    ),
)


def _cut(letters: str, sheet: str) -> dict[str, np.ndarray]:
    rows = [line.split() for line in sheet.split("\n") if line]
    return {
        letter: np.array([[dot == "#" for dot in row[place]] for row in rows]) for place, letter in enumerate(letters)
    }


_GLYPHS = {letter: dots for sheet in _SHEETS for letter, dots in _cut(*sheet).items()}


def write(picture: np.ndarray, text: str, row: int, column: int, colour: tuple[int, int, int], align: str) -> None:
    """Writes into the picture, from ``column`` on, or, aligned ``right``, up to it; a dot is 2 by 2 pixels."""
    dots = np.zeros((7, 6 * len(text) - 1), bool)
    for place, letter in enumerate(text):
        if letter in _GLYPHS:
            dots[:, 6 * place : 6 * place + 5] = _GLYPHS[letter]
    dots = dots.repeat(2, axis=0).repeat(2, axis=1)
    left = column - dots.shape[1] if align == "right" else column
    picture[row : row + dots.shape[0], left : left + dots.shape[1]][dots] = colour
