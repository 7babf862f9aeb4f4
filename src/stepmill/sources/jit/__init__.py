"""``stepmill.jit``: envs written in Python that Numba compiles. ``declaration`` is what the author has
written, ``python_twin`` runs it as Python, ``with_numba`` compiles it, ``jit_library`` gives the machine code to the
engine, here and in workers, and ``jit_class`` is what the decorator returns.
"""
