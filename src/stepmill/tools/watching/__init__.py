"""``pool.watch()``: a page on this machine that shows a pool while it runs.

::

    recv() of the caller -> Book: returns, rewards, snapshots of the pool  -> Reporter -> Server -> the page
                         -> Observer -> Looks: who is shown what, and when

The engine fills ``book.py`` with every result, and shows one to ``observer.py`` now and then, both in the thread that
uses the pool; how much time pictures and texts may take is decided there too. ``details.py`` says what is shown of an
env, ``looks.py`` keeps the pictures. The other half runs in threads of its own: ``server.py`` answers browsers,
``guard.py`` lets them in. ``control.py`` is for a program that lets the page pause it.
"""
