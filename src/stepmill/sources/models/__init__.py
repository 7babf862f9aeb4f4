"""Changes of the envs' physics models: domain randomisation.

::

    calls.py     set_model and get_model of a pool: checks all values, before anything changes
    change.py    what was set, as it travels to the env and is remembered
    env_model.py the model of one env, as hosts ask for it, wherever the env lives
    python_env.py  that of a Python env; ``zoo/mujoco/simulator.py`` has that of native envs
    fields.py    the fields of a MuJoCo model: which there are, reading and assigning
    config.py    ``model`` in the configuration of envs
"""
