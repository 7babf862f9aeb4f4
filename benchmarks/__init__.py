"""How fast stepmill is, beside EnvPool and Gymnasium, measured in one run: ``python -m benchmarks``.

``parts`` says what is measured, ``contestants`` who takes part, ``timing`` how the clock is read. The
results go to ``benchmarks/results/<machine>.json``; ``tables`` prints them, ``plots`` draws them and
``readme`` writes them into the documents. ``neighbours`` is apart: it tries what the README says of the others.
"""
