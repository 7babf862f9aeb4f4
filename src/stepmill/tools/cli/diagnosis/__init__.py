"""What ``stepmill doctor`` looks at.

``machine.py`` (cores, memory, limits), ``packages.py`` (versions, extras, what excludes what, with the table in
``known.py``) and ``trials.py`` (imports and tiny pools, each in a process of its own: what is broken may crash or
hang). Each fills a ``Part``, see ``part.py``.
"""
