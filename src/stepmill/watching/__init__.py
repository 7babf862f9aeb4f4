"""``pool.watch()``: a page on this machine that shows a pool while it runs.

::

    recv() of the caller -> Observer -> Book:  returns, rewards, speed      -> Reporter -> Server -> the page
                                     -> Looks: who is shown what, and when

``observer.py`` is called with every result, in the thread that uses the pool, and does as little as it can there.
``book.py`` and ``looks.py`` keep what it saw; ``budget.py`` says when the next picture may be drawn. The other half
runs in threads of its own: ``server.py`` answers browsers, ``guard.py`` decides which, ``entry_file.py`` lets them in.
``control.py`` is for a program that lets the page pause it.
"""
