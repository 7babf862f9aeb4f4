"""What tests share: envs, gates, programs in processes of their own, and the long runs ``soak`` and ``scribble``.

``tests`` is on the path of pytest and of every process that it starts, so a worker imports ``support.…`` under the same
name as the test that sent the env.
"""
