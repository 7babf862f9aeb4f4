"""Envs on the machines of a Ray cluster.

Read ``place.py``, what an actor does: it has a pool of its own, on its node. Then ``actors.py``, how they are started
and how their answers come. Then ``host.py``, which puts the two together for the engine.
"""
