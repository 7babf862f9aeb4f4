"""Writes the tables of normal draws on a GPU: ``python scripts/normal_tables.py > cpp/gpu/normal_tables.h``.

The ziggurat of Marsaglia and Tsang covers the curve exp(-x * x / 2), x >= 0, with 256 layers of the same area. Layer i
reaches from 0 to x[i], and x[1] < ... < x[255]. The lowest one has the number 0, and all that is right of x[255] too.

Draws equal numpy's only if every bit of the tables does, and numpy's were made in doubles. So this computes them in the
same way, with each exponential and logarithm rounded correctly, which does not depend on the machine.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable
from decimal import Context, Decimal
from typing import TypeVar

_RIGHT = 3.6541528853610088  # x[255]
_AREA = 0.004928673233974652
_LAYERS = 256
_BITS = 52  # of a draw
_PER_LINE = 4
_DIGITS = Context(prec=50)
_T = TypeVar("_T", int, float)


def _exp(x: float) -> float:
    return float(_DIGITS.exp(Decimal(x)))


def _log(x: float) -> float:
    return float(_DIGITS.ln(Decimal(x)))


def ends() -> list[float]:
    """Where the layers end. Of the lowest one: where it would end if it were a rectangle."""
    found = [_RIGHT]
    while len(found) < _LAYERS - 1:
        found.append(math.sqrt(-2.0 * _log(_AREA / found[-1] + _height(found[-1]))))
    return [_AREA / _height(_RIGHT), *found[::-1]]


def _height(x: float) -> float:
    value = _exp(-0.5 * x * x)
    # One of them ends 0.498 of a unit in the last place above a double. The library of numpy's tables rounded it up.
    return math.nextafter(value, 1.0) if value == 0.6773880362187734 else value


def header() -> str:
    """The file."""
    x = ends()
    scale = 2.0**_BITS
    inside = [round(_RIGHT / x[0] * scale), 0, *(round(x[i - 1] / x[i] * scale) for i in range(2, _LAYERS))]
    return f"""\
// Written by scripts/normal_tables.py, which says what these are.
#pragma once

#include <cstdint>

namespace stepmill::gpu {{

inline constexpr double kNormalRight = {_RIGHT.hex()};  // where the tail begins

// A draw of a layer that is less than this is under the curve.
inline constexpr std::uint64_t kNormalInside[{_LAYERS}] = {{
{_lines(inside, hex)}
}};

// What a draw is multiplied by, to reach from 0 to the end of its layer.
inline constexpr double kNormalWidth[{_LAYERS}] = {{
{_lines([end / scale for end in x], float.hex)}
}};

// The height of the curve where each layer ends.
inline constexpr double kNormalHeight[{_LAYERS}] = {{
{_lines([1.0, *map(_height, x[1:])], float.hex)}
}};

}}  // namespace stepmill::gpu
"""


def _lines(values: Iterable[_T], shown: Callable[[_T], str]) -> str:
    texts = [f"{shown(value)}," for value in values]
    return "\n".join("    " + " ".join(texts[i : i + _PER_LINE]) for i in range(0, len(texts), _PER_LINE))


if __name__ == "__main__":
    sys.stdout.write(header())
