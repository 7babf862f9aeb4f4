"""The command line: ``stepmill``, or ``python -m stepmill``.

``entry.py`` is what the shell starts, ``program.py`` finds the command and turns errors into exit codes, and each file
in ``commands/`` is one command. They share ``options.py`` (what is typed), ``target.py`` and ``policy.py`` (what that
means), and ``terminal.py`` (what is shown).
"""
