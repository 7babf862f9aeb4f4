"""What needs Numba, in reading order: ``same_numbers`` says what may be computed so that Python computes the same, with
the functions of ``python_numbers``; ``env_types`` has the types of ``self`` and ``random``; ``c_functions`` makes
functions for the engine; ``fingerprint`` names their machine code in the cache.
"""

from stepmill.system.optional import NUMBA, require

require(*NUMBA, "stepmill.jit")
