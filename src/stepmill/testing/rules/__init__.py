"""Every rule of the contract that can be checked from outside, in the order of a report."""

from __future__ import annotations

from stepmill.testing.rules import calls, construction, episodes, results, seeds, spaces
from stepmill.testing.rules.rule import MomentRule, Rule

RULES: tuple[Rule | MomentRule, ...] = (
    calls.no_exception,
    construction.lazy_construction,
    construction.cfg_unchanged,
    construction.env_cfgs,
    spaces.spaces_known,
    spaces.spaces_fixed,
    spaces.num_agents,
    spaces.action_dtype,
    spaces.random_action,
    spaces.repr_text,
    results.reset_result,
    results.step_result,
    results.obs_type,
    results.obs_dtype,
    results.obs_shape,
    results.obs_bounds,
    results.reward_type,
    results.reward_dtype,
    results.reward_shape,
    results.reward_bounds,
    results.done_type,
    results.info_type,
    results.info_flags,
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
    calls.close_twice,
    calls.reset_after_close,
    calls.close_frees,
)
