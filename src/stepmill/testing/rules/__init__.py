"""Every rule of the contract that can be checked from outside, in the order of a report."""

from __future__ import annotations

from stepmill.testing.rule import MomentRule, Rule
from stepmill.testing.rules import construction, episodes, life, observations, seeds, spaces, steps

__all__ = ["RULES"]

RULES: tuple[Rule | MomentRule, ...] = (
    life.no_exception,
    life.action_accepted,
    construction.lazy_construction,
    construction.cfg_unchanged,
    construction.env_cfgs,
    spaces.spaces_known,
    spaces.spaces_fixed,
    spaces.num_agents,
    spaces.action_dtype,
    spaces.random_action,
    spaces.repr_text,
    steps.reset_result,
    steps.step_result,
    observations.obs_type,
    observations.obs_dtype,
    observations.obs_shape,
    observations.obs_bounds,
    steps.reward_type,
    steps.reward_dtype,
    steps.reward_shape,
    steps.reward_bounds,
    steps.done_type,
    steps.info_type,
    steps.info_flags,
    episodes.episode_return,
    episodes.episode_return_alias,
    episodes.no_nan,
    episodes.own_memory,
    episodes.action_unchanged,
    seeds.static_seed,
    seeds.dynamic_seed_repeats,
    seeds.dynamic_seed_renews,
    seeds.distinct_envs,
    seeds.independent_envs,
    seeds.global_generators,
    life.close_twice,
    life.reset_after_close,
    life.close_frees,
)
