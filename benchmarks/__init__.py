"""How fast stepmill is compared with EnvPool, Gymnasium and others, measured in one run: ``python -m benchmarks``.

``parts`` says what is measured, ``timing`` how the clock is read. ``stepmill.tools.measuring.peers`` has those who take
part, as for ``stepmill bench``. ``bare`` are plain loops without a pool: what the machine could give. The results go to
``benchmarks/results/<machine>.json``; ``tables`` prints them, ``plots`` draws them, and ``documents`` writes them into
README and docs, with the sentences of ``facts``. ``neighbours`` is apart: it tries what the README says of the others.

Python envs have modules of their own: ``python_envs``, ``python_contestants`` and ``python_parts``. There each
contestant is a process (``python_child``), asked in turn by ``python_host``.
"""
