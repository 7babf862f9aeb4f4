"""The configuration: what can be chosen, with defaults and checks."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from stepmill.values.arguments import real_number, whole_number
from stepmill.envs import read_cfg


@dataclass(frozen=True)
class TemplateConfig:
    """The river and the time there is to cross it. Distances are shares of the river's width."""

    current: float = 0.03  # how far the water moves in a step, at most
    gusts: float = 0.01  # how much that varies from step to step
    stage: float = 0.1  # half the length of the landing stage
    max_steps: int = 100

    @classmethod
    def of(cls, cfg: Any) -> TemplateConfig:
        """Reads a cfg; None means the defaults. Other keys are ignored: a cfg may have keys for other readers."""
        defaults = asdict(cls())
        given = read_cfg("TemplateEnv", {} if cfg is None else cfg, defaults=defaults)
        return cls(
            current=real_number("TemplateEnv: current", given["current"], 0.0, 0.1),
            gusts=real_number("TemplateEnv: gusts", given["gusts"], 0.0, 0.1),
            stage=real_number("TemplateEnv: stage", given["stage"], 0.01, 1.0),
            max_steps=whole_number("TemplateEnv: max_steps", given["max_steps"], 1, 1_000_000),
        )
