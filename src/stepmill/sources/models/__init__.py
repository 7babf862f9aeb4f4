"""Changes of the envs' physics models: domain randomisation.

::

    fields.py        the fields of a MuJoCo model: which there are, what may be set, what was set
    env_model.py     the model of one env, as hosts ask for it and as the configuration sets it, wherever the env lives
    python_env.py    the model of a Python env; ``zoo/mujoco/simulator.py`` has that of native envs

``views/model_calls.py`` has ``set_model`` and ``get_model`` of a pool: it checks all values before anything changes.
"""
