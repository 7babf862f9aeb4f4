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
from stepmill.sources.jit.with_numba.python_numbers import CHECKED, as_float, as_int, checked_function, power, widened


@functools.cache
def _replacements() -> dict[Any, Any]:
    own = {getattr(math, name): numba.njit(renamed(checked_function(name))) for name in CHECKED}
    own |= {math.pow: power, builtins.pow: power, operator.pow: power}
    return own


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
    | {"minimum", "rint", "sign", "signbit", "sqrt", "square", "trunc", "where"}
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
    if id(value) in _FOREIGN:
        module = math if _FOREIGN[id(value)].startswith("math.") else np
        return f"{_FOREIGN[id(value)]} {_WHY[module]}"
    return None


@register_pass(mutates_CFG=False, analysis_only=False)
class _AsPythonDoes(FunctionPass):
    """Puts our functions in the place of those with other results, and refuses what has no such function."""

    _name = "stepmill_as_python_does"

    def __init__(self) -> None:
        FunctionPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        values: dict[str, Any] = {}  # what is known of variables: modules, functions
        for block in state.func_ir.blocks.values():
            body = []
            for statement in block.body:
                if isinstance(statement, ir.Assign):
                    self._look_at(statement, values)
                    body += self._replaced(statement, values)
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

    def _replaced(self, statement: ir.Assign, values: dict[str, Any]) -> list[ir.Stmt]:
        value, loc, scope = statement.value, statement.loc, statement.target.scope
        if not isinstance(value, ir.Expr):
            return [statement]
        function = scope.redefine("$stepmill", loc)
        if value.op in ("binop", "inplace_binop"):
            operation = value.immutable_fn if value.op == "inplace_binop" else value.fn
            if operation is operator.matmul:
                raise errors.UnsupportedError("@ adds in another order than numpy: write the loop", loc=loc)
            if operation is operator.pow:
                call = ir.Expr.call(function, [value.lhs, value.rhs], (), loc)
                return [
                    ir.Assign(ir.Global("power", power, loc), function, loc),
                    ir.Assign(call, statement.target, loc),
                ]
        called = values.get(value.func.name) if value.op == "call" else None
        if called is builtins.round and len(value.args) + len(value.kws) > 1:
            raise errors.UnsupportedError("round with digits rounds otherwise than Python's", loc=loc)
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
        for block in state.func_ir.blocks.values():
            for statement in block.find_insts(ir.Assign):
                if isinstance(statement.value, ir.Expr):
                    self._check(statement.value, state.typemap, statement.loc)
                    self._check_new_array(statement, state.typemap)
        return False

    def _check(self, value: ir.Expr, kinds: Any, loc: Any) -> None:
        if value.op == "getattr" and value.attr in _METHODS and isinstance(kinds[value.value.name], types.Array):
            raise errors.UnsupportedError(f".{value.attr}() adds in another order than numpy: write the loop", loc=loc)
        operands = []
        if value.op in ("binop", "inplace_binop", "unary"):
            operands = [getattr(kinds[one.name], "dtype", kinds[one.name]) for one in value.list_vars()]
        elif value.op == "call" and getattr(kinds[value.func.name], "typing_key", None) not in _FOR_NARROW:
            operands = [kinds[one.name] for one in value.args]
        for kind in operands:
            if _is_narrow(kind):
                raise errors.UnsupportedError(
                    f"arithmetic with {kind} has other types in numpy than compiled: write float(...) or int(...), or "
                    "use arrays of float64 or int64",
                    loc=loc,
                )

    def _check_new_array(self, statement: ir.Assign, kinds: Any) -> None:
        """Refuses arrays whose elements Python would not widen: only those of the env are its ``Numbers``."""
        value, kind = statement.value, kinds[statement.target.name]
        if value.op != "call" or not isinstance(kind, types.Array) or not _is_narrow(kind.dtype):
            return
        called = kinds[value.func.name]
        if isinstance(called, types.Function) and called.typing_key not in _FOR_NARROW:
            raise errors.UnsupportedError(f"an array of {kind.dtype}: {_NARROW}", loc=statement.loc)


def _is_narrow(kind: Any) -> bool:
    return isinstance(kind, types.Float | types.Integer) and kind.bitwidth != 64


_FOR_NARROW = (as_float, as_int, widened, bool)


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
