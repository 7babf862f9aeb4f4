"""Envs of one file, in reading order: ``task_file`` finds the class in it, ``compiler`` makes a library of that, with
the ``sanitizers`` if the author debugs it, ``cache`` keeps it, and ``env_library`` is what a pool, its workers and
other machines are given.
"""
