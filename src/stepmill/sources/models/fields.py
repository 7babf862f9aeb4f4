"""The fields of a MuJoCo model by name, ``body_mass`` or ``opt.gravity``: which there are, reading, assigning."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stepmill.errors import InputError, UnknownAttributeError
from stepmill.values.fitting import as_numbers, cast, description

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


_STRUCTS = ("opt", "stat", "vis")
_KINDS = "biuf"
# Most whole numbers in a model are indices and sizes: another value would make MuJoCo read what is not there. These are
# not, and neither are those of the structs.
_FREE_NUMBERS = ("_contype", "_conaffinity", "_priority", "_group", "tex_data")
_FLAGS = ("limited", "_active", "_active0", "_actearly", "_actgravcomp", "_castshadow", "_texuniform")
_INDICES = ("wrap_prm",)  # though not whole numbers

_CHOICES = {
    "opt.cone": "mjtCone",
    "opt.integrator": "mjtIntegrator",
    "opt.jacobian": "mjtJacobian",
    "opt.solver": "mjtSolver",
}


@dataclass(frozen=True)
class Field:
    """What values a field takes."""

    shape: tuple[int, ...]
    dtype: str
    low: int | None = None
    high: int | None = None
    fixed: str | None = None  # why it cannot be set; None if it can


def describe(model: Any, names: Sequence[str]) -> list[Field]:
    """Raises ``UnknownAttributeError`` if the model has no field of such a name."""
    return [_describe(name, _find(model, name)) for name in names]


def read(model: Any, names: Sequence[str]) -> list[np.ndarray]:
    """Copies of the values."""
    values = [_find(model, name) for name in names]
    return [np.array(value, dtype=_describe(name, value).dtype) for name, value in zip(names, values, strict=True)]


def apply(change: ModelChange, model: Any, data: Any) -> None:
    """Changes the model. ``data`` is used and overwritten by ``mj_setConst``, if that is asked for.

    Raises ``InputError`` if MuJoCo refuses; then the model is of no use any more.
    """
    for name, value in change.before.items():
        _assign(model, name, value)
    if change.set_const:
        import mujoco

        try:
            mujoco.mj_setConst(model, data)
        except mujoco.FatalError as error:
            raise InputError(f"set_const: MuJoCo refuses the values of {', '.join(change.before)}: {error}") from error
    for name, value in change.after.items():
        _assign(model, name, value)


def check(change: ModelChange, model: Any, data: Any) -> None:
    """Raises ``InputError`` if MuJoCo cannot simulate the changed model. ``data`` is overwritten.

    MuJoCo looks at flags and choices that exclude each other only then.
    """
    import mujoco

    try:
        mujoco.mj_resetData(model, data)
        mujoco.mj_forward(model, data)
    except mujoco.FatalError as error:
        names = ", ".join({**change.before, **change.after})
        raise InputError(f"MuJoCo refuses the values of {names}: {error}") from error


def _assign(model: Any, name: str, value: np.ndarray) -> None:
    *path, last = name.split(".")
    owner = model
    for one in path:
        owner = getattr(owner, one)
    if isinstance(getattr(owner, last), np.ndarray):
        getattr(owner, last)[...] = value
    else:
        setattr(owner, last, value.item())


def _find(model: Any, name: str) -> Any:
    """The value of a field: an array or a number."""
    value, path = model, name.split(".")
    if len(path) == 1 or path[0] in _STRUCTS:
        for part in path:
            value = None if _is_field(value) or part.startswith("_") else getattr(value, part, None)
        if _is_field(value):
            return value
    near = difflib.get_close_matches(name, _names(model), n=3)
    hint = f", did you mean {' or '.join(map(repr, near))}?" if near else ". Examples: 'body_mass', 'opt.gravity'"
    raise UnknownAttributeError(f"the model has no field {name!r} of numbers{hint}")


def _is_field(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.dtype.kind in _KINDS
    return isinstance(value, bool | int | float)


def _describe(name: str, value: Any) -> Field:
    is_array, is_in_struct = isinstance(value, np.ndarray), "." in name
    if is_array:
        dtype = value.dtype
    else:
        dtype = np.dtype("bool" if isinstance(value, bool) else "float64" if isinstance(value, float) else "int32")
        if not is_in_struct:
            if dtype == "int32":
                dtype = np.dtype("uint64" if name == "signature" else "int64")
            return Field((), dtype.name, fixed="it is a size, which is decided when the model is compiled")
    is_free = is_in_struct or dtype.kind == "f" or name.endswith((*_FREE_NUMBERS, *_FLAGS))
    if not is_free or name in _INDICES:
        return Field(np.shape(value), dtype.name, fixed="it says how the model is put together")
    if name.startswith("opt.") and dtype.kind == "i":  # a count of iterations, a choice, flags
        return Field(np.shape(value), dtype.name, 0, _last_choice(name))
    return Field(np.shape(value), dtype.name)


def _last_choice(name: str) -> int | None:
    """The largest value of a field that is a choice. MuJoCo itself does not check all of them."""
    import mujoco

    if name not in _CHOICES:
        return None
    choices = getattr(mujoco, _CHOICES[name]).__members__.values()
    return max(int(one) for one in choices)


def _names(model: Any) -> Iterator[str]:
    for name in dir(model):
        if name.startswith("_"):
            continue
        value = getattr(model, name)
        if _is_field(value):
            yield name
        elif name in _STRUCTS:
            yield from (f"{name}.{inner}" for inner in _names_in(value))


def _names_in(struct: Any, depth: int = 2) -> Iterator[str]:
    for name in dir(struct):
        value = None if name.startswith("_") else getattr(struct, name)
        if _is_field(value):
            yield name
        elif depth > 1 and value is not None and not isinstance(value, type) and not callable(value):
            yield from (f"{name}.{inner}" for inner in _names_in(value, depth - 1))


# ---- values --------------------------------------------------------------------------------------

_EXAMPLE = "{'body_mass': [...], 'opt.gravity': [0, 0, -9.81]}"


def check_names(fields: Any) -> Mapping[str, Any]:
    """A dict by the names of fields."""
    if not isinstance(fields, Mapping) or not all(isinstance(name, str) for name in fields):
        raise InputError(f"expected a dict of values by the names of fields, such as {_EXAMPLE}, got {fields!r:.200}")
    return fields


def read_values(fields: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The values as arrays."""
    values = {}
    for name, value in fields.items():
        array = as_numbers(value)
        if array is None:
            raise InputError(f"field {name!r}: expected numbers, got {description(value)}")
        values[name] = array
    return values


def value_for(name: str, value: np.ndarray, field: Field, row: int = 0, rows: int = 0) -> np.ndarray:
    """A copy of the value of one env, of the field's type.

    If ``rows`` is not 0, the value may also have that many rows, one per env; ``row`` is that of this env.
    """
    where = f"field {name!r}"
    if field.fixed is not None:
        raise InputError(f"{where} cannot be set: {field.fixed}")
    if rows and value.shape == (rows, *field.shape):
        value = value[row]
    if value.shape != field.shape:
        either = f", or {(rows, *field.shape)} with a row per env" if rows else ""
        raise InputError(f"{where}: expected an array of shape {field.shape}{either}, got {description(value)}")
    result = cast(value, np.dtype(field.dtype))
    if result is None:
        raise InputError(f"{where}: expected values of type {field.dtype}, got {description(value)}")
    if not np.isfinite(result).all():
        raise InputError(f"{where}: expected finite {field.dtype} values, got {description(value)}")
    low, high = field.low, field.high
    if (low is not None and (result < low).any()) or (high is not None and (result > high).any()):
        bounds = f">= {low}" if high is None else f"in [{low}, {high}]"
        raise InputError(f"{where}: expected values {bounds}, got {description(value)}")
    return result
