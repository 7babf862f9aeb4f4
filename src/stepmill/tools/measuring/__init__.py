"""Measuring on this machine: ``stepmill bench`` and ``stepmill tune``, and what ``benchmarks/`` is built on.

``runners.py`` steps the envs of one library, ``timing.py`` reads the clock, ``peers.py`` knows the other libraries,
``trials.py`` the settings of a pool that can be tried. ``runners.py`` and ``timing.py`` import nothing of stepmill:
benchmarks load them alone into processes that measure other libraries.
"""
