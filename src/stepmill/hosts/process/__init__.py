"""Envs in worker processes, in reading order.

The engine talks to ``process_host``. ``caller`` runs in the same process: its ``launcher`` starts the workers of each
interpreter (``interpreter_part``), through ``handles`` of the processes that fork them, and ``construction`` waits
until they have built their envs. ``servers`` keeps the first of these processes for the next pool. ``forked`` runs in
the other processes: ``server`` forks one ``template`` per pool, which loads the payload once and forks each ``worker``.
A worker builds its envs and runs ``worker_loop``, or measures what a step costs. A state by fork is a ``clone`` of it,
which sleeps; the caller's end of that is in ``clones``. ``system/guardian.py`` makes sure that no process outlives its
purpose. The other files are for both sides: ``payload`` packs what the envs are built from, ``wire`` carries messages,
``notes`` is what goes with rows besides arrays, ``outgoing`` packs what leaves a worker, in plain values (``plain``) if
its interpreter is not the caller's, and ``remote_error`` carries an exception to the caller.
"""
