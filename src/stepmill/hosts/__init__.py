"""From the arguments of ``make`` to an engine over its host, in reading order.

``settings`` checks the arguments, ``source`` finds the envs. ``host`` says what a host is: the place where envs live.
There are three: ``native``, ``inline`` and ``process``; ``auto`` chooses between the last two. What a step returns
besides arrays passes through ``infos`` and ``rows``, and ``faults`` decides what a failed env means for the caller.
``models`` changes the physics models of envs, ``drawing`` draws native ones. To follow an action through the engine,
read ``cpp/bindings/engine.cpp`` and ``cpp/core``.
"""
