"""From the arguments of ``make`` to an engine over its host, in reading order.

``settings`` checks the arguments, ``source`` finds the envs. ``host`` says what a host is: the place where envs live.
``native``, ``inline`` and ``process`` are the three; ``auto`` chooses between the latter two. What a step gives beside
arrays passes through ``infos`` and ``rows``, and ``faults`` decides what a failed env means for the caller. The way of
an action through the engine is in ``cpp/bindings/engine.cpp`` and ``cpp/core``.
"""
