"""MiniGrid and BabyAI: their own envs, under their own ids. ``mission`` is a text, and so a tuple in a batch."""

from stepmill.registry.records import Family, add_family
from stepmill.system.optional import MINIGRID

add_family(
    Family(
        MINIGRID,
        (r"MiniGrid-.+-v\d+", r"BabyAI-.+-v\d+"),
        example="MiniGrid-Empty-8x8-v0",
        at_least=172,
        without=r"minigrid\.envs\.wfc",  # the wheel of 3.2 lacks the pictures that they read
    )
)
