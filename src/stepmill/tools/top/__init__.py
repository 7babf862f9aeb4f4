"""Looks at the pools of running processes from outside.

A process with pools has a file of counters, which only processes of the same user can open
(``cpp/core/counters/counter_file.h``). ``processes.py`` finds it, ``words.py`` reads it, ``shared.py`` reads what
workers count, ``looks.py`` puts that together, and ``report.py`` says what happened between two looks. Nothing that
is read is trusted: another process of the same user may show anything.
"""
