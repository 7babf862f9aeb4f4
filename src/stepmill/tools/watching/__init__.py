"""``pool.watch()``: a page on this machine that shows a pool while it runs.

::

    recv() of the caller -> Book: returns, rewards, snapshots of the pool  -> Reporter -> Server -> the page
                         -> Observer -> Looks: who is shown what, and when

The engine fills the book with every result, and shows one to ``observer.py`` now and then, both in the thread that uses
the pool. ``details.py`` says what is shown of an env, ``looks.py`` keeps the pictures, and the time that they may take.
The other half runs in threads of its own: ``report.py`` and ``server.py`` answer browsers, ``guard.py`` lets them in.
``control.py`` is for a program that lets the page pause it.
"""
