"""Registers our managers with DI-engine."""

import stepmill.interop.ding  # noqa: F401
