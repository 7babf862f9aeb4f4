"""Arithmetic as Python does it: functions that stand in compiled code for Python's own."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir as llvm_ir
from numba.core import cgutils, errors, types
from numba.core.imputils import impl_ret_borrowed
from numba.core.registry import cpu_target
from numba.extending import intrinsic, overload
from numba.np import numpy_support

# Functions of the C library, which Python's own ``math`` calls too.
CHECKED = frozenset(
    {"acos", "acosh", "asin", "asinh", "atan", "atanh", "cos", "cosh", "exp", "expm1"}
    | {"log", "log10", "log1p", "log2", "sin", "sinh", "sqrt", "tan", "tanh"}
)
_OVERFLOWING = ("cosh", "exp", "expm1", "sinh")


def checked_function(name: str) -> Callable[[float], float]:
    """A function of ``math`` that raises where Python's does."""
    function = getattr(math, name)
    if name in ("cos", "sin"):
        # Checked before, not after: the same check for both leaves them side by side, and LLVM computes them together.
        def checked(x):
            if math.isinf(x):
                raise ValueError("math domain error")
            return function(float(x))

    elif name in _OVERFLOWING:

        def checked(x):
            value = function(float(x))
            if not math.isfinite(value) and math.isfinite(x):
                raise OverflowError("math range error")
            return value

    else:

        def checked(x):
            value = function(float(x))
            if not math.isfinite(value) and (math.isfinite(x) or (math.isnan(value) and not math.isnan(x))):
                raise ValueError("math domain error")
            return value

    return checked


@intrinsic
def _c_pow(typing_context: Any, x: Any, y: Any) -> Any:
    """The C library's, under a name that LLVM does not know: it takes ``pow(x, 2)`` for ``x * x``."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        double = llvm_ir.DoubleType()
        kind = llvm_ir.FunctionType(double, [double, double])
        return builder.call(cgutils.get_or_insert_function(builder.module, kind, "stepmill_pow"), args)

    return types.float64(types.float64, types.float64), generate


def power(x: Any, y: Any) -> Any:
    """``x ** y``."""
    return x**y


def float_power(x: Any, y: Any) -> float:
    """``math.pow(x, y)``."""
    return math.pow(x, y)


@overload(power, strict=False)
def _power(x: Any, y: Any) -> Any:
    if isinstance(x, types.Integer | types.Boolean) and isinstance(y, types.Integer | types.Boolean):

        def of_integers(x, y):
            if y < 0:
                raise ValueError("an int to a negative power: make one of them a float")
            value, factor, left = 1, int(x), int(y)
            while left > 0:
                if left & 1:
                    value *= factor
                factor *= factor
                left >>= 1
            return value

        return of_integers
    return _float_power(x, y)


@overload(float_power, strict=False)
def _float_power(x: Any, y: Any) -> Any:
    if isinstance(x, types.Number | types.Boolean) and isinstance(y, types.Number | types.Boolean):

        def of_floats(x, y):
            a, b = float(x), float(y)
            if a == 0.0 and b < 0.0 and math.isfinite(b):
                raise ZeroDivisionError("0.0 cannot be raised to a negative power")
            if a < 0.0 and math.isfinite(a) and math.isfinite(b) and b != np.floor(b):
                raise ValueError("a negative number to a fractional power")  # complex in Python
            value = _c_pow(a, b)
            if math.isinf(value) and math.isfinite(a) and a != 0.0 and math.isfinite(b):
                raise OverflowError("math range error")
            return value

        return of_floats
    return None


def shift_left(x: int, y: int) -> int:
    """``x << y``."""
    return x << y


def shift_right(x: int, y: int) -> int:
    """``x >> y``."""
    return x >> y


def _is_integer(kind: Any) -> bool:
    return isinstance(kind, types.Integer | types.Boolean)


@overload(shift_left, strict=False)
def _shift_left(x: Any, y: Any) -> Any:
    if not (_is_integer(x) and _is_integer(y)):
        return None

    def shifted(x, y):
        if y < 0:
            raise ValueError("negative shift count")
        return int(x) << int(y) if y < 64 else 0

    return shifted


@overload(shift_right, strict=False)
def _shift_right(x: Any, y: Any) -> Any:
    if not (_is_integer(x) and _is_integer(y)):
        return None

    def shifted(x, y):
        if y < 0:
            raise ValueError("negative shift count")
        return int(x) >> min(int(y), 63)

    return shifted


def apart(value: Any) -> Any:
    """What ``array += value`` adds: a copy, as numpy makes one where the two share memory."""
    return value


@overload(apart, strict=False)
def _apart(value: Any) -> Any:
    if isinstance(value, types.Array):
        return lambda value: value.copy()
    return lambda value: value


@intrinsic
def widened(typing_context: Any, value: Any) -> Any:
    """An element of an array as Python has it: a float64, an int64 or a bool. Anything else as it is."""
    value = types.unliteral(value) if isinstance(value, types.Literal) else value
    result = value
    if isinstance(value, types.Float):
        result = types.float64
    elif isinstance(value, types.Integer):
        result = types.int64

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if result == value:
            return impl_ret_borrowed(context, builder, result, args[0])
        return context.cast(builder, args[0], value, result)

    return result(value), generate


@intrinsic
def as_float(typing_context: Any, value: Any) -> Any:
    """``float(value)``."""
    if not isinstance(value, types.Float | types.Integer | types.Boolean):
        raise errors.TypingError(f"float: expected a number, got {value}")

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.cast(builder, args[0], signature.args[0], types.float64)

    return types.float64(value), generate


@intrinsic
def _cut(typing_context: Any, value: Any) -> Any:
    """The integer that a number contains."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.cast(builder, args[0], signature.args[0], types.int64)

    return types.int64(value), generate


def as_int(value: Any) -> int:
    """``int(value)``, and ``math.trunc``."""
    return int(value)


@overload(as_int, strict=False)
def _as_int(value: Any) -> Any:
    if _is_integer(value):
        return lambda value: _cut(value)
    if not isinstance(value, types.Float):
        return None

    def of_float(value):
        if not -9223372036854775808.0 <= value < 9223372036854775808.0:
            raise ValueError("cannot convert float to an integer of 64 bits")
        return _cut(value)

    return of_float


def _rounding(function: Any, exact: Any) -> Any:
    """A function that rounds to an int, by one that rounds to a float."""

    def rounded(value: Any) -> int:
        return int(function(value))

    @overload(rounded, strict=False)
    def _rounded(value: Any) -> Any:
        if isinstance(value, types.Float):
            return lambda value: as_int(exact(value))
        return (lambda value: _cut(value)) if _is_integer(value) else None

    return rounded


ROUNDING = {
    math.floor: _rounding(math.floor, np.floor),
    math.ceil: _rounding(math.ceil, np.ceil),
    math.trunc: as_int,
    round: _rounding(round, np.rint),
}


def fitting(target: Any, value: Any) -> Any:
    """A number that is stored in an array of integers, which must be able to hold it."""
    return value


@overload(fitting, strict=False)
def _fitting(target: Any, value: Any) -> Any:
    if isinstance(target, types.Array) and isinstance(target.dtype, types.Integer):
        return fitting_into(target.dtype, value) or (lambda target, value: value)
    return lambda target, value: value


@functools.cache
def fitting_field(name: str) -> Any:
    """The same for ``self.name = value``."""

    def fitting_one(target: Any, value: Any) -> Any:
        return value

    @overload(fitting_one, strict=False)
    def _fitting_one(target: Any, value: Any) -> Any:
        state = target.jit_class.state if hasattr(target, "jit_class") else np.dtype([])
        kind = numpy_support.from_dtype(state[name].base) if name in (state.names or ()) else None
        check = fitting_into(kind, value) if isinstance(kind, types.Integer) else None
        return check or (lambda target, value: value)

    cpu_target.typing_context.refresh()  # a function is being compiled, and began before this one was known
    return fitting_one


def fitting_into(kind: Any, value: Any) -> Any:
    """A function of anything and a number that raises if this kind of integer cannot hold it; None: it always can."""
    if not isinstance(value, types.Float | types.Integer):
        return None
    if kind.bitwidth == 64:
        return (lambda target, value: as_int(value)) if isinstance(value, types.Float) else None
    low, high, message = kind.minval, kind.maxval, f"an integer out of bounds for {kind}"

    def checked(target, value):
        number = as_int(value)
        if number < low or number > high:
            raise OverflowError(message)
        return number

    return checked
