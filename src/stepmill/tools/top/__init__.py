"""Looks at the pools of running processes from outside.

A process with pools has a file of counters, which only processes of the same user can open
(``cpp/core/counters/counter_file.h``). ``processes.py`` finds it and makes snapshots of the pools
(``hosts/observing.py``), ``report.py`` says what happened between two of them.
"""
