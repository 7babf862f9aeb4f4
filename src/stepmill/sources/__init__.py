"""From a task (an id, a class, a factory, or a list of these) to what is built, in reading order.

``find`` makes a ``source`` of it: native envs, or a blueprint per Python env, with the ``configurations`` of each;
``islands`` has what another interpreter is told. ``builder`` builds Python envs where they live. ``simulator`` is the
Python half of native envs that call somebody's simulator, ``models`` changes its physics, and ``drawing`` draws native
envs.
"""
