"""Drawings of things and letters, in dots; ``picture.py`` has their colours. A full stop is transparent."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["ADDRESS", "BUILDING", "CHARGER", "DRONE", "LOAD", "PACKAGE", "SIDE", "Dots", "letters"]

SIDE = 16  # of a thing, in dots
Dots = NDArray[np.str_]


def read_dots(drawing: str) -> Dots:
    """A drawing in letters, one line per row of dots; each letter stands for a colour."""
    return np.array([list(line) for line in drawing.split()])


# r roof, l its light edge, d its dark one, w wall, g glass, s shadow on the ground
BUILDING = read_dots("""
................
.lllllllllllll..
.lrrrrrrrrrrrds.
.lrrrrrrrrrrrds.
.lrddrrrrrrrrds.
.lrdlrrrrrrrrds.
.lrrrrrrrrrrrds.
.lrrrrrrrddrrds.
.lrrrrrrrdlrrds.
.lrrrrrrrrrrrds.
.ddddddddddddds.
.wwwwwwwwwwwwws.
.wggwggwggwggws.
.wggwggwggwggws.
.wwwwwwwwwwwwws.
..ssssssssssssss
""")

# p plate, e its edge, y the bolt
CHARGER = read_dots("""
................
..eeeeeeeeeeee..
.eppppppppppppe.
.epppppppyypppe.
.eppppppyyppppe.
.epppppyypppppe.
.eppppyyppppppe.
.epppyyyyyypppe.
.epppppppyypppe.
.eppppppyyppppe.
.epppppyypppppe.
.eppppyyppppppe.
.eppppypppppppe.
.eppppppppppppe.
..eeeeeeeeeeee..
................
""")

# c the package's colour, k outline, t tape, s shadow
PACKAGE = read_dots("""
................
................
................
..kkkkkkkkkkkk..
..kccccttcccck..
..kccccttcccck..
..kkkkkttkkkkk..
..kccccttcccck..
..kcccctttccck..
..kcccccccccck..
..kcccccccccck..
..kcccccccccck..
..kkkkkkkkkkkks.
...sssssssssss..
................
................
""")

# c the colour of the package that belongs here
ADDRESS = read_dots("""
................
.....kkkkkk.....
....kcccccck....
...kcccccccck...
...kccwwwwcck...
...kccwwwwcck...
...kccwwwwcck...
...kcccccccck...
....kcccccck....
.....kcccck.....
......kcck......
......kcck......
.......kk.......
.....ssssss.....
......ssss......
................
""")

# a arm, b body, e eye, o rotor, s shadow
DRONE = read_dots("""
..oooo....oooo..
.oo..oo..oo..oo.
.o.aa.o..o.aa.o.
.oo.aaoooaaa.oo.
..oooaabbaaooo..
.....abbbba.....
....abbeebba....
....bbeeeebb....
....bbeeeebb....
....abbeebba....
.....abbbba.....
..oooaabbaaooo..
.oo.aao..oaa.oo.
.o.aa.o..o.aa.o.
.oo..oo..oo..oo.
..oooo....oooo..
""")

# What hangs below the drone.
LOAD = read_dots("""
................
................
................
................
................
................
................
................
................
....kkkkkkkk....
....kccttcck....
....kccttcck....
....kcccccck....
....kkkkkkkk....
................
................
""")

# ---- letters -------------------------------------------------------------------------------------

# 5 by 7 dots each: the ones that the caption needs.
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


def _cut(text: str, sheet: str) -> dict[str, Dots]:
    rows = [line.split() for line in sheet.strip().split("\n")]
    return {letter: read_dots("\n".join(row[place] for row in rows)) for place, letter in enumerate(text)}


_LETTERS = {letter: dots for sheet in _SHEETS for letter, dots in _cut(*sheet).items()}


def letters(text: str) -> Dots:
    """A line of text as dots, ``#`` for ink; a letter without a drawing is a gap."""
    gap, blank = np.full((7, 1), "."), np.full((7, 5), ".")
    parts = [part for letter in text for part in (gap, _LETTERS.get(letter, blank))]
    return np.concatenate(parts[1:], axis=1)
