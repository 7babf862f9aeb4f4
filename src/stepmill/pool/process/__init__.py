"""Envs in worker processes, in reading order.

``host`` is what the engine talks to. ``caller`` runs in the same process: its ``launcher`` starts the workers, over
handles of the processes that fork them, and ``construction`` waits until they have built their envs. ``forked`` runs in
the others: ``server`` forks a ``template`` for each pool, which loads the payload once and forks each ``worker``; that
builds its envs and runs ``worker_loop``, or finds out what a step costs. ``guardian`` sees to it that no process
outlives its purpose. What lies between the two is for both sides: ``payload`` packs what the envs are built from,
``wire`` carries messages, ``remote_error`` brings an exception home.
"""
