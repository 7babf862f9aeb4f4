"""``stepmill.jit``: envs written in Python that Numba compiles. ``jit_class`` is what the decorator returns,
``python_twin`` runs it as Python, ``with_numba`` compiles it, and ``jit_library`` gives the machine code to the engine,
here and in workers.
"""
