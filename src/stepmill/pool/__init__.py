"""One step in reading order.

``settings`` checks the arguments of ``make``, ``source`` finds the envs, ``native`` and ``inline`` build
the engine over them. On the way back, ``stepper`` is the autoreset machine of Python envs, ``infos``
batches their info dicts, and ``faults`` decides what a failed env means for the caller. The way of an
action through the native engine is in ``cpp/core``.
"""
