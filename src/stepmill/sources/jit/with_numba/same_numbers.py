"""What compiled functions may compute with, so that they give the numbers that Python gives, bit for bit.

Numba compiles more than this, and some of it with other results: ``x ** 2`` as a product, ``np.sin`` by another
algorithm than numpy's, ``float32`` times a constant as ``float64``, the logarithm of -1 as NaN where Python raises.
What has another result is given Python's here, or refused with the line where it is written.
"""

from __future__ import annotations

import builtins
import ctypes
import functools
import math
import operator
import os
import random
import types as python_types
from typing import Any

import llvmlite.binding as llvm
import numba
import numpy as np
from numba.core import errors, ir, types
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import AnalysisPass, FunctionPass, register_pass
from numba.core.dispatcher import Dispatcher
from numba.core.typed_passes import NopythonTypeInference
from numba.core.untyped_passes import InlineClosureLikes

from stepmill.errors import UnsupportedError
from stepmill.sources.jit.with_numba.python_numbers import (
    CHECKED,
    ROUNDING,
    apart,
    as_float,
    as_int,
    checked_function,
    fitting,
    fitting_field,
    float_power,
    power,
    shift_left,
    shift_right,
    widened,
)

_OPERATIONS = {operator.pow: power, operator.lshift: shift_left, operator.rshift: shift_right}


@functools.cache
def _replacements() -> dict[Any, Any]:
    own = {getattr(math, name): numba.njit(renamed(checked_function(name))) for name in CHECKED}
    return own | ROUNDING | _OPERATIONS | {math.pow: float_power, builtins.pow: power}


@functools.cache
def compiled(function: python_types.FunctionType) -> Any:
    """A function that compiled ones can call, to be compiled by the same rules."""
    return numba.njit(
        renamed(function),
        error_model="python",
        boundscheck=True,
        fastmath=False,
        pipeline_class=SameNumbers,
        no_cpython_wrapper=True,
    )


def renamed(function: Any) -> Any:
    """A copy. Names of machine code come from its name, and must differ where code of several processes is loaded."""
    own = python_types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    own.__qualname__ = f"{function.__qualname__}_{os.urandom(8).hex()}"
    own.__kwdefaults__, own.__module__ = function.__kwdefaults__, function.__module__
    return own


# ---- refusals ------------------------------------------------------------------------------------

_MATH = frozenset(
    {"atan2", "ceil", "copysign", "degrees", "fabs", "floor", "isfinite", "isinf", "isnan", "radians", "trunc"}
)
# Functions of numpy that are exact, element by element. No sums: their order differs.
_NUMPY = frozenset(
    {"abs", "absolute", "ceil", "clip", "copysign", "fabs", "floor", "isfinite", "isinf", "isnan", "maximum"}
    | {"minimum", "rint", "signbit", "sqrt", "square", "trunc", "where"}
    | {"arange", "array", "asarray", "ascontiguousarray", "copy", "full", "full_like", "ones", "ones_like", "zeros"}
    | {"zeros_like", "all", "any", "argmax", "argmin", "count_nonzero", "diff", "flip", "logical_and", "logical_not"}
    | {"logical_or", "max", "min", "nonzero", "roll", "sort", "unique"}
)
_METHODS = ("dot", "mean", "prod", "std", "sum", "var", "trace")

_KNOWN = {math: _MATH | CHECKED | {"pow"}, np: _NUMPY}
_WHY = {
    math: "has other last digits when it is compiled, or does not compile",
    np: "has other last digits when it is compiled, or does not compile: use functions of math, and loops for sums",
}
_FOREIGN = {
    id(getattr(module, name)): f"{module.__name__}.{name}"
    for module, known in _KNOWN.items()
    for name in dir(module)
    if callable(getattr(module, name)) and name not in known and not isinstance(getattr(module, name), type)
}
_KNOWN_OF_NUMPY = {id(getattr(np, name)) for name in _NUMPY}
_NARROW = "its elements have another type in numpy than compiled: use float64 or int64"
_RANDOM = "its numbers do not follow the seed of the env: use the argument `random`"


def _fault(value: Any) -> str | None:
    """Why a value must not be used; None if it may."""
    name = getattr(value, "__name__", str(value))
    if value is random or value is np.random or getattr(value, "__module__", None) in ("random", "numpy.random"):
        return f"{name}: {_RANDOM}"
    if isinstance(getattr(value, "__self__", None), random.Random | np.random.RandomState):
        return f"{name}: {_RANDOM}"
    if value is builtins.sum:
        return "sum adds in another order than compiled code: write the loop"
    if isinstance(value, np.ndarray) and value.dtype not in (np.float64, np.int64, np.bool_):
        return f"an array of {value.dtype}: {_NARROW}, or make it an attribute of the class"
    if isinstance(value, tuple):
        return fault_of_elements(value)
    module = name if isinstance(value, python_types.ModuleType) else str(getattr(value, "__module__", ""))
    if module.startswith("numpy.") and id(value) not in _KNOWN_OF_NUMPY:
        return f"{name} {_WHY[np]}"
    if id(value) in _FOREIGN:
        module = math if _FOREIGN[id(value)].startswith("math.") else np
        return f"{_FOREIGN[id(value)]} {_WHY[module]}"
    return None


def fault_of_elements(values: tuple[Any, ...]) -> str | None:
    """Why a tuple must not be used: Python does not widen what is in it."""
    for value in values:
        if isinstance(value, np.generic) and value.dtype not in (np.float64, np.int64, np.bool_):
            return f"{value!r} in a tuple: {_NARROW}"
        fault = _fault(value)
        if fault is not None:
            return fault
    return None


@register_pass(mutates_CFG=False, analysis_only=False)
class _AsPythonDoes(FunctionPass):
    """Puts our functions in the place of those with other results, and refuses what has no such function."""

    _name = "stepmill_as_python_does"

    def __init__(self) -> None:
        FunctionPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        values: dict[str, Any] = {}  # what is known of variables: modules, functions
        computed: set[str] = set()  # variables that share no memory with others
        for block in state.func_ir.blocks.values():
            body = []
            for statement in block.body:
                if isinstance(statement, ir.Assign):
                    self._look_at(statement, values)
                    body += self._replaced(statement, values, computed)
                elif isinstance(statement, ir.SetItem | ir.StaticSetItem | ir.SetAttr):
                    body += self._checked(statement)
                else:
                    body.append(statement)
            block.body = body
        state.func_ir._definitions = numba.core.ir_utils.build_definitions(state.func_ir.blocks)
        return True

    def _look_at(self, statement: ir.Assign, values: dict[str, Any]) -> None:
        value = statement.value
        if isinstance(value, ir.Global | ir.FreeVar):
            found = value.value
        elif isinstance(value, ir.Expr) and value.op == "getattr":
            owner = values.get(value.value.name)
            if not isinstance(owner, python_types.ModuleType) or not hasattr(owner, value.attr):
                return
            found = getattr(owner, value.attr)
        else:
            return
        values[statement.target.name] = found
        fault = _fault(found)
        if fault is not None:
            raise errors.UnsupportedError(fault, loc=statement.loc)
        if isinstance(found, Dispatcher):
            found = found.py_func
        if isinstance(found, python_types.FunctionType):
            if (found.__module__ or "").partition(".")[0] not in ("numba", "numpy"):
                statement.value = ir.Global(found.__name__, compiled(found), statement.loc)
        elif isinstance(found, python_types.BuiltinFunctionType) and found in _replacements():
            own = _replacements()[found]
            statement.value = ir.Global(own.__name__, own, statement.loc)

    def _checked(self, statement: Any) -> list[ir.Stmt]:
        """``array[index] = value`` or ``self.name = value``, if that can hold the value."""
        loc, scope = statement.loc, statement.target.scope
        function, value = scope.redefine("$stepmill", loc), scope.redefine("$fitting", loc)
        call = ir.Expr.call(function, [statement.target, statement.value], (), loc)
        statement.value = value
        own = fitting_field(statement.attr) if isinstance(statement, ir.SetAttr) else fitting
        return [ir.Assign(ir.Global("fitting", own, loc), function, loc), ir.Assign(call, value, loc), statement]

    def _replaced(self, statement: ir.Assign, values: dict[str, Any], computed: set[str]) -> list[ir.Stmt]:
        value, loc, scope = statement.value, statement.loc, statement.target.scope
        if not isinstance(value, ir.Expr):
            return [statement]
        function = scope.redefine("$stepmill", loc)
        if value.op in ("binop", "inplace_binop", "unary"):
            computed.add(statement.target.name)
        if value.op in ("binop", "inplace_binop"):
            operation = value.immutable_fn if value.op == "inplace_binop" else value.fn
            if operation is operator.matmul:
                raise errors.UnsupportedError("@ adds in another order than numpy: write the loop", loc=loc)
            if operation in _OPERATIONS:
                own: Any = _OPERATIONS[operation]
                call = ir.Expr.call(function, [value.lhs, value.rhs], (), loc)
                return [
                    ir.Assign(ir.Global(own.__name__, own, loc), function, loc),
                    ir.Assign(call, statement.target, loc),
                ]
        if value.op == "inplace_binop" and value.rhs.name not in computed:
            operand = scope.redefine("$apart", loc)
            call = ir.Expr.call(function, [value.rhs], (), loc)
            value.rhs = operand
            return [ir.Assign(ir.Global("apart", apart, loc), function, loc), ir.Assign(call, operand, loc), statement]
        called = values.get(value.func.name) if value.op == "call" else None
        if called is builtins.round and len(value.args) + len(value.kws) > 1:
            raise errors.UnsupportedError("round with digits rounds otherwise than Python's", loc=loc)
        if isinstance(called, np.ufunc) and (len(value.args) > called.nin or value.kws):
            raise errors.UnsupportedError(
                f"{called.__name__} with an array to write to: assign what it returns", loc=loc
            )
        if called is builtins.float or called is builtins.int:
            own = as_float if called is builtins.float else as_int
            value.func = function
            return [ir.Assign(ir.Global(own.__name__, own, loc), function, loc), statement]
        if value.op in ("getitem", "static_getitem", "typed_getitem", "pair_first"):
            element = scope.redefine("$element", loc)
            call = ir.Expr.call(function, [element], (), loc)
            return [
                ir.Assign(value, element, loc),
                ir.Assign(ir.Global("widened", widened, loc), function, loc),
                ir.Assign(call, statement.target, loc),
            ]
        return [statement]


@register_pass(mutates_CFG=False, analysis_only=True)
class _OnlyWideNumbers(AnalysisPass):
    """Refuses to compute with float32, int8 and the like, where Numba's results have another type than numpy's."""

    _name = "stepmill_only_wide_numbers"

    def __init__(self) -> None:
        AnalysisPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        mixed = _maybe_integer_zeros(state.func_ir, state.typemap)
        for block in state.func_ir.blocks.values():
            for statement in block.find_insts(ir.Assign):
                if isinstance(statement.value, ir.Expr):
                    self._check(statement.value, state.typemap, statement.loc)
                    self._check_zero(statement.value, mixed, statement.loc)
                    self._check_new_array(statement, state.typemap)
        return False

    def _check(self, value: ir.Expr, kinds: Any, loc: Any) -> None:
        if value.op == "getattr" and isinstance(kinds[value.value.name], types.Array):
            if value.attr in _METHODS:
                raise errors.UnsupportedError(
                    f".{value.attr}() adds in another order than numpy: write the loop", loc=loc
                )
            if value.attr == "flat":
                raise errors.UnsupportedError(f".flat: {_NARROW}, or write .reshape(-1)", loc=loc)
        operands = []
        if value.op in ("binop", "inplace_binop", "unary"):
            operands = [getattr(kinds[one.name], "dtype", kinds[one.name]) for one in value.list_vars()]
            self._check_bools(value, operands, loc)
        elif value.op == "call" and getattr(kinds[value.func.name], "typing_key", None) not in _FOR_NARROW:
            operands = [kinds[one.name] for one in value.args]
            if getattr(kinds[value.func.name], "typing_key", None) is np.arange and any(
                isinstance(one, types.Float) for one in operands
            ):
                raise errors.UnsupportedError("numpy.arange of floats has other last digits: write the loop", loc=loc)
        for kind in operands:
            if _is_narrow(kind):
                raise errors.UnsupportedError(
                    f"arithmetic with {kind} has other types in numpy than compiled: write float(...) or int(...), or "
                    "use arrays of float64 or int64",
                    loc=loc,
                )

    def _check_zero(self, value: ir.Expr, mixed: set[str], loc: Any) -> None:
        """Refuses ``-x`` where x may be the int 0 in Python: compiled it would be -0.0."""
        if value.op in ("binop", "inplace_binop", "unary"):
            operation = value.immutable_fn if value.op == "inplace_binop" else value.fn
            if operation in _SIGNED and any(one.name in mixed for one in value.list_vars()):
                raise errors.UnsupportedError(
                    "0 here and a float elsewhere: compiled it is a float, and its sign differs: write 0.0", loc=loc
                )

    def _check_bools(self, value: ir.Expr, operands: list[Any], loc: Any) -> None:
        """Refuses what means one thing for Python's bools, and another for numpy's or compiled ones."""
        if not operands or not all(isinstance(one, types.Boolean) for one in operands):
            return
        if value.fn is operator.invert and not isinstance(value.value, types.Array):
            raise errors.UnsupportedError("~ of a bool is -1 or -2 in Python: write not", loc=loc)
        if (value.immutable_fn if value.op == "inplace_binop" else value.fn) in (
            operator.add,
            operator.sub,
            operator.mul,
        ):
            raise errors.UnsupportedError("arithmetic with two bools is another in numpy: write int(...)", loc=loc)

    def _check_new_array(self, statement: ir.Assign, kinds: Any) -> None:
        """Refuses arrays whose elements Python would not widen: only those of the env are its ``Numbers``."""
        value, kind = statement.value, kinds[statement.target.name]
        if value.op != "call" or not isinstance(kind, types.Array) or not _is_narrow(kind.dtype):
            return
        called = kinds[value.func.name]
        if isinstance(called, types.BoundFunction):
            is_refused = str(called.typing_key).endswith((".astype", ".view"))
        else:
            is_refused = isinstance(called, types.Function) and called.typing_key not in _FOR_NARROW
        if is_refused:
            raise errors.UnsupportedError(f"an array of {kind.dtype}: {_NARROW}", loc=statement.loc)


_SIGNED = (operator.neg, operator.mul, operator.truediv, operator.floordiv, operator.mod)


def _maybe_integer_zeros(func_ir: Any, kinds: Any) -> set[str]:
    """Variables that are floats, and in Python sometimes the int 0, which has no sign."""

    def is_zero(name: str) -> bool:
        """Whether a variable is an int that may be 0."""
        definition = func_ir._definitions.get(name, [None])[0]
        return isinstance(kinds.get(name), types.Integer) and not (
            isinstance(definition, ir.Const) and definition.value
        )

    found: set[str] = set()
    while True:
        before = len(found)
        for block in func_ir.blocks.values():
            for statement in block.find_insts(ir.Assign):
                value, name = statement.value, statement.target.name
                sources: list[Any] = []
                if isinstance(value, ir.Var):
                    sources = [value]
                elif isinstance(value, ir.Expr) and value.op == "phi":
                    sources = value.incoming_values
                elif isinstance(value, ir.Expr) and value.op == "call":
                    is_choice = getattr(kinds[value.func.name], "typing_key", None) in (min, max)
                    sources = value.args if is_choice else []
                names = [one.name for one in sources if isinstance(one, ir.Var)]
                if isinstance(kinds[name], types.Float) and any(one in found or is_zero(one) for one in names):
                    found.add(name)
        if len(found) == before:
            return found


def _is_narrow(kind: Any) -> bool:
    """A number that is not a float64 or int64. In numpy a uint64 is one of its own kind, too."""
    return isinstance(kind, types.Float | types.Integer) and (kind.bitwidth != 64 or kind == types.uint64)


_FOR_NARROW = (as_float, as_int, widened, fitting, apart, bool)


class SameNumbers(CompilerBase):
    """Numba's compiler with these two passes."""

    def define_pipelines(self) -> list[Any]:
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.add_pass_after(_AsPythonDoes, InlineClosureLikes)
        passes.add_pass_after(_OnlyWideNumbers, NopythonTypeInference)
        passes.finalize()
        return [passes]


def forbid_approximations() -> None:
    """Refuses a Numba that approximates or does not compile, and tells LLVM about ``pow``."""
    if numba.config.DISABLE_JIT:
        raise UnsupportedError("stepmill.jit: NUMBA_DISABLE_JIT=1 is set: make(..., jit=False) runs the env in Python")
    if numba.config.USING_SVML:
        raise UnsupportedError(
            "stepmill.jit: Numba uses Intel's SVML here, whose sines and exponentials have other last digits than "
            "Python's: set NUMBA_DISABLE_INTEL_SVML=1 before the program starts, or make(..., jit=False)"
        )
    c_library = ctypes.CDLL("libm.so.6")
    llvm.add_symbol("stepmill_pow", ctypes.cast(c_library.pow, ctypes.c_void_p).value)
