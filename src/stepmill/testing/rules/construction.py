"""Rules about ``__init__`` and configurations."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from stepmill.envs.configs import copy_cfg
from stepmill.testing.finding import Problem, Unchecked
from stepmill.testing.rules.rule import rule
from stepmill.testing.subject import FAILURES
from stepmill.testing.trial import Trial
from stepmill.testing.values import kind_of, same, show


@rule("Build the simulator in reset(), if there is none yet.")
def lazy_construction(trial: Trial) -> Iterator[Problem]:
    """``__init__`` only stores configuration: many callers build an env just to ask for its spaces."""
    trial.need_several()
    if trial.subject.is_adapted:
        raise Unchecked("only a BaseEnv promises it, and this env is one only through an adapter")
    watch = trial.seen(trial.constructor)
    if watch.signs:
        yield Problem("__init__", "it only to store configuration", " and ".join(watch.signs))
    elif not watch.saw_calls:
        raise Unchecked("a profiler is running, so calls in __init__ cannot be seen")


@rule("Copy what you want to change: self._cfg = copy.deepcopy(cfg).")
def cfg_unchanged(trial: Trial) -> Iterator[Problem]:
    """The configuration belongs to the caller: an env only reads it."""
    before = trial.subject.given_cfg
    if before is None:
        raise Unchecked("needs a configuration: pass cfg=")
    trial.seen(trial.env)
    after = trial.subject.first_cfg
    if same(before, after):
        return
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in [*before, *(key for key in after if key not in before)]:
            if key not in after:
                yield Problem(f"cfg[{key!r}]", f"{show(before[key])}, as it was passed", "no such key")
            elif key not in before:
                yield Problem(f"cfg[{key!r}]", "no such key, as it was passed", show(after[key]))
            elif not same(before[key], after[key]):
                yield Problem(f"cfg[{key!r}]", f"{show(before[key])}, as it was passed", show(after[key]))
    else:
        yield Problem("cfg", f"{show(before)}, as it was passed", show(after))


@rule("Inherit both from BaseEnv, or return copy.deepcopy(cfg) once for each env.")
def env_cfgs(trial: Trial) -> Iterator[Problem]:
    """``create_collector_env_cfg`` and ``create_evaluator_env_cfg`` return independent copies of the cfg."""
    env = trial.seen(trial.env)
    cfg = trial.subject.given_cfg
    if cfg is None:
        with contextlib.suppress(*FAILURES):  # it need not have one
            cfg = env._cfg
    if not isinstance(cfg, Mapping):
        raise Unchecked("needs a configuration: pass cfg=, a dict")
    for name, count_key, is_train in (
        ("create_collector_env_cfg", "collector_env_num", True),
        ("create_evaluator_env_cfg", "evaluator_env_num", False),
    ):
        given: Any = copy_cfg("cfg", cfg)
        given[count_key] = 2
        before = copy_cfg("cfg", given)
        try:
            made = getattr(env, name)(given)
        except FAILURES as error:
            yield Problem(f"{name}(cfg)", "two configurations", f"{type(error).__name__}: {error}")
            continue
        if not same(before, given):
            yield Problem(f"{name}(cfg)", "it not to change the cfg", show(given))
        elif not isinstance(made, list) or len(made) != 2 or not all(isinstance(one, type(given)) for one in made):
            expected = f"a list of 2, each {kind_of(given)}, for {count_key}=2"
            yield Problem(f"{name}(cfg)", expected, show(made))
        elif _parts(made[0]) & _parts(made[1]) or _parts(given) & (_parts(made[0]) | _parts(made[1])):
            yield Problem(f"{name}(cfg)", "copies that share nothing", "copies that share objects")
        elif any(one.get("is_train") is not is_train or count_key in one for one in made):
            yield Problem(f"{name}(cfg)", f"is_train={is_train} and no {count_key} in each", show(made[0]))


def _parts(value: Any) -> set[int]:
    """The ids of all mutable objects in it."""
    if isinstance(value, Mapping):
        return {id(value)}.union(*map(_parts, value.values()))
    if isinstance(value, list | tuple):
        own = {id(value)} if isinstance(value, list) else set()
        return own.union(*map(_parts, value))
    return {id(value)} if isinstance(value, np.ndarray) else set()
