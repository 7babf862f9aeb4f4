"""What is to be done in a rollout, but for the policy."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Plan:
    """``batch_size``: how many envs make a batch; None if all envs step together."""

    steps: int
    seed: int
    begin: int  # how many steps were made before; not 0 for envs whose first machine was lost
    batch_size: int | None
    reward_dtype: str
    same_step: bool  # envs are reset in the step that ends an episode
    begins: bool = True  # a policy with a memory hears of all envs first; False if it goes on
