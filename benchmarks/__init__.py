"""How fast stepmill is compared with EnvPool, Gymnasium and others, measured in one run: ``python -m benchmarks``.

``stepmill.tools.measuring`` has the clock, the machine and those who take part, as for ``stepmill bench``; here is what
the package itself does not need. ``parts`` says what is measured, and ``*_parts`` measure it. ``bare`` are plain loops
without a pool: what the machine could give. ``store`` keeps the results, in ``benchmarks/results/<machine>.json``;
``tables`` prints them, of ``cells``; ``plots`` draws them; ``documents`` writes them into README and docs.
``neighbours`` is apart: it tries what the README says of the others.

Python envs have modules of their own: ``python_envs``, ``python_contestants`` and ``python_parts``. There each
contestant is a process, ``python_child``.
"""
