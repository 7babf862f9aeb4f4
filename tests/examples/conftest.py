"""The worlds of ``examples/`` are not installed: a reader runs them where they are."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "worlds"))
