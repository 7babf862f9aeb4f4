"""Envs on the machines of a Ray cluster.

Read ``cluster.py``, how this process comes into one, and how many actors a pool has there. Then ``place.py``, what an
actor does: it has a pool of its own, on its node. Then ``actors.py``, how they are started and how their answers come.
Then ``host.py``, which puts all of it together for the engine. Rollouts go another way: ``rollout.py`` sends a policy
out, and ``visit.py`` is where it arrives.
"""
