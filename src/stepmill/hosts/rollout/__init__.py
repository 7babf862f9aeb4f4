"""Many steps of all envs in one call: ``pool.rollout(policy, steps)``.

Read ``roll_out.py``, where a rollout starts and ends. Then ``play.py``, the loop, wherever the envs are; it calls
``policy.py`` and writes into ``record.py``. ``result.py`` is what the user gets.
"""
