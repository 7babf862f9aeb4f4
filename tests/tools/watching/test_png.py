"""Our PNG files, read by another reader."""

from __future__ import annotations

import numpy as np
import pytest

from stepmill.tools.watching.png import png_of

cv2 = pytest.importorskip("cv2")


@pytest.mark.parametrize("shape", [(1, 1, 3), (7, 5, 3), (84, 84, 3)])
def test_a_reader_finds_the_same_pixels(shape: tuple[int, ...]) -> None:
    picture = np.random.default_rng(3).integers(0, 256, shape, dtype=np.uint8)
    read = cv2.imdecode(np.frombuffer(png_of(picture), np.uint8), cv2.IMREAD_UNCHANGED)
    np.testing.assert_array_equal(read[:, :, ::-1], picture)
