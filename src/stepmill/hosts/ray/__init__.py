"""Envs on the machines of a Ray cluster.

Read ``cluster.py``, how this process comes into one, and how many actors a pool has there. Then ``env_actor.py``, what
runs in an actor: a group of envs with an engine of their own, on its node. Then ``actors.py``, how actors are started
and how their answers come. Then ``ray_host.py``, which puts all of it together for the driver's engine. States by fork
stay in their actors: ``remote_clones.py`` knows in which. Rollouts go another way: ``ray_rollout.py`` sends a policy
out, and brings home what the envs did with it.
"""
