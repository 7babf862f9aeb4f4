"""Measuring on this machine, for ``stepmill bench``, ``demo`` and ``tune``, and for ``benchmarks/``.

``runners.py`` steps the envs of one library, ``timing.py`` reads the clock, ``peers.py`` knows the other libraries,
``setups.py`` the settings of a pool that can be tried. ``runners.py`` and ``timing.py`` import nothing of stepmill:
benchmarks load them without it into processes that measure other libraries.
"""
