"""Files of ``stepmill.tools.measuring`` without the package: for a process that must not import ours."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def load(name: str) -> ModuleType:
    """``stepmill/tools/measuring/NAME.py`` as a module of its own."""
    package = importlib.util.find_spec("stepmill")  # finds it, and imports nothing
    if package is None or package.origin is None:
        raise ModuleNotFoundError("stepmill is not installed: pip install .", name="stepmill")
    alias = f"stepmill_measuring_{name}"
    if alias not in sys.modules:
        path = Path(package.origin).parent / "tools" / "measuring" / f"{name}.py"
        spec = importlib.util.spec_from_file_location(alias, path)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[alias] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[alias])
    return sys.modules[alias]
