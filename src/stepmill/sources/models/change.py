"""What was set in a model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

Fields = Mapping[str, np.ndarray]  # values by the names of fields, such as "opt.gravity"


@dataclass(frozen=True)
class ModelChange:
    """Assignments to a model: ``before``, then ``mj_setConst`` if ``set_const``, then ``after``.

    That is enough for any number of changes in a row: ``mj_setConst`` overwrites all that it derives from the rest.
    """

    before: Fields = field(default_factory=dict)
    set_const: bool = False
    after: Fields = field(default_factory=dict)

    @classmethod
    def of(cls, fields: Fields, set_const: bool) -> ModelChange:
        return cls(fields, True) if set_const else cls(after=fields)

    @property
    def may_be_refused(self) -> bool:
        """Whether MuJoCo may refuse it: derived values, and options that are flags or choices."""
        options = (value for name, value in self.after.items() if name.startswith("opt."))
        return self.set_const or any(value.dtype.kind == "i" for value in options)

    def then(self, later: ModelChange) -> ModelChange:
        """Both changes, one after the other."""
        if later.set_const:
            return ModelChange({**self.before, **self.after, **later.before}, True, later.after)
        return ModelChange(self.before, self.set_const, {**self.after, **later.after})
