"""Classic control: native versions of Gymnasium's envs, with its time limits and thresholds."""

from stepmill.registry.records import register, register_drawer

register("CartPole-v0", native="CartPole", max_episode_steps=200, reward_threshold=195.0)
register("CartPole-v1", native="CartPole", max_episode_steps=500, reward_threshold=475.0)
register("Pendulum-v1", native="Pendulum", max_episode_steps=200)
register("MountainCar-v0", native="MountainCar", max_episode_steps=200, reward_threshold=-110.0)
register("MountainCarContinuous-v0", native="MountainCarContinuous", max_episode_steps=999, reward_threshold=90.0)
register("Acrobot-v1", native="Acrobot", max_episode_steps=500, reward_threshold=-100.0)

for _name in ("CartPole", "Pendulum", "MountainCar", "MountainCarContinuous", "Acrobot"):
    register_drawer(_name, f"stepmill.zoo.gymnasium_drawers:{_name}")
