"""Toy text: native versions of Gymnasium's tabular envs, and two small ones that EnvPool's users know."""

from stepmill.registry.records import register, register_drawer

register("FrozenLake-v1", native="FrozenLake", config={"map_name": "4x4"}, max_episode_steps=100, reward_threshold=0.70)
register(
    "FrozenLake8x8-v1", native="FrozenLake", config={"map_name": "8x8"}, max_episode_steps=200, reward_threshold=0.85
)
register("CliffWalking-v1", native="CliffWalking")
register("CliffWalkingSlippery-v1", native="CliffWalking", config={"is_slippery": True})
register("Taxi-v3", native="Taxi", config={"version": 3}, max_episode_steps=200, reward_threshold=8.0)
register("Taxi-v4", native="Taxi", max_episode_steps=200, reward_threshold=8.0)
register("Blackjack-v1", native="Blackjack", config={"sab": True, "natural": False})
register("Catch-v0", native="Catch")
register("NChain-v0", native="NChain", max_episode_steps=1000)

for _name in ("FrozenLake", "CliffWalking", "Taxi", "Blackjack"):
    register_drawer(_name, f"stepmill.zoo.gymnasium_drawers:{_name}")
