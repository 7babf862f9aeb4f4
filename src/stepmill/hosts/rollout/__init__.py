"""Envs that play with a policy: ``pool.rollout(policy, steps)`` and ``pool.play(policy)``.

Read ``policy.py``, what a policy is and how it is asked. Then ``play.py``, the loop, wherever the envs are. A rollout
starts and ends in ``roll_out.py``; the loop writes it into ``record.py``, and ``result.py`` is what the user gets.
``pool.play`` is in ``steps.py``.
"""
