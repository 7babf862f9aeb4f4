"""Envs in worker processes, in reading order.

``payload`` packs what the envs are built from, ``launcher`` is the caller's side of starting them. On the other
side ``server`` forks a ``template`` for each pool, which loads the payload once and forks the ``worker`` processes.
``wire`` carries messages between all of these, ``guardian`` sees to it that no process outlives its purpose, and
``remote_error`` brings an env's exception home.
"""
