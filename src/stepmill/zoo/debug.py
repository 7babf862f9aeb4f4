"""Envs to learn from and to test the engine with."""

from stepmill.registry.records import register

register("Probe-v0", native="Probe")
register("Template-v0", native="Template", max_episode_steps=100)
register("TemplatePlayers-v0", native="TemplatePlayers", config={"max_num_players": 4}, max_episode_steps=200)
