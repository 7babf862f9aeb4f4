"""``pool.watch()``: a page on this machine that shows a pool while it runs.

::

    recv() of the caller -> Book: returns, rewards, speed                  -> Reporter -> Server -> the page
                         -> Observer -> Looks: who is shown what, and when

The engine fills ``book.py`` with every result, and shows one to ``observer.py`` now and then, both in the thread that
uses the pool. ``looks.py`` keeps pictures; ``budget.py`` says when the next one may be drawn. The other half runs in
threads of its own: ``server.py`` answers browsers, ``guard.py`` decides which, ``entry_file.py`` lets them in.
``control.py`` is for a program that lets the page pause it.
"""
