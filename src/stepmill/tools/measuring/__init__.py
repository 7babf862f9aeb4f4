"""Measuring on this machine, for ``stepmill bench``, ``demo`` and ``tune``, and for ``benchmarks/``.

``runners.py`` steps envs and reads the clock, ``peers.py`` knows the other libraries, ``machine.py`` where it was.
``runners.py`` imports nothing of stepmill: benchmarks load it without that into processes that measure other libraries.
"""
