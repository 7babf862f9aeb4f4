"""Envs in worker processes, in reading order.

``pool`` is what the views talk to. ``payload`` packs what the envs are built from; ``launcher`` starts the workers,
over ``handles`` of the processes that fork them, and ``construction`` waits until they have built their envs. On the
other side ``server`` forks a ``template`` for each pool, which loads the payload once and forks each ``worker``; that
builds its envs and runs ``serve``, or finds out what a step costs (``trial``). ``wire`` carries messages between all of
these, ``guardian`` sees to it that no process outlives its purpose, ``remote_error`` brings an exception home.
"""
