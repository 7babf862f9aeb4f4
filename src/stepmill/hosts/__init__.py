"""Where the envs of a pool live, in reading order.

``host`` says what a host is, and puts an engine on top of it. There are four: ``native_host`` (compiled envs, on
threads), ``inline_host`` (Python envs, in the calling thread), ``process`` (worker processes) and ``ray`` (actors of a
cluster). ``open_host`` and ``open_local_host`` choose one; ``auto`` decides between the calling thread and processes,
and ``shares`` which worker has which envs. What a step returns besides arrays passes through ``rows`` and ``infos``,
and ``faults`` says what a failed env means for the caller; ``elsewhere`` is what the last two hosts share. ``frames``
and ``generators`` ask single envs. ``rollout`` plays many steps in one call. To follow an action through the engine,
read ``cpp/bindings/engine.cpp`` and ``cpp/core``.
"""
