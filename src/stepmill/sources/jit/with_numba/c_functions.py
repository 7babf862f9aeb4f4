"""Makes functions that the engine can call, as ``stepmill/c_env.h`` has them, of a ``stepmill.jit`` class."""

from __future__ import annotations

import ctypes
import linecache
import os
import re
import traceback
from dataclasses import dataclass
from typing import Any

import llvmlite.binding as llvm
import numba
import numpy as np
from llvmlite import ir as llvm_ir
from numba.core import cgutils, errors, types
from numba.core.ccallback import CFunc
from numba.core.compiler_lock import global_compiler_lock
from numba.core.registry import cpu_target
from numba.core.runtime import nrt
from numba.extending import intrinsic
from numba.np import numpy_support

from stepmill.errors import CompileError
from stepmill.sources.jit.declaration import Declaration
from stepmill.sources.jit.python_twin import in_tree
from stepmill.sources.jit.with_numba.env_types import RANDOM, FieldsType, array_at, place_of, wide
from stepmill.sources.jit.with_numba.same_numbers import compiled, forbid_approximations, renamed
from stepmill.values.spaces import FlatSpace

ERROR_SIZE = 1024  # STEPMILL_ERROR_SIZE
_MOST_LINES = 6  # of what Numba says
_SAYS_NOTHING = ("Failed in", "During:", "There are", "- Of which", "- Resolution", "This error", "None")
_BYTE = llvm_ir.IntType(8)
_POINTER = _BYTE.as_pointer()


def prepare() -> None:
    """What has to be so before anything is compiled, or loaded."""
    forbid_approximations()
    nrt.rtsys.initialize(cpu_target.target_context)  # what allocates arrays: code from elsewhere may need it
    llvm.add_symbol("stepmill_jit_explain", ctypes.cast(_explain, ctypes.c_void_p).value)


# ---- from C's arguments to the author's ----------------------------------------------------------


def _cast_to(kind: Any) -> Any:
    """From a pointer to one with a type of ours."""

    @intrinsic
    def cast(typing_context: Any, pointer: Any) -> Any:
        return kind(types.voidptr), lambda context, builder, signature, args: args[0]

    return cast


def _arrays_of(flat: FlatSpace, numbers: bool) -> Any:
    """From a pointer to the pointers of arrays to what the author sees. ``numbers``: those without a shape as such."""
    kinds = []
    for leaf in flat.leaves:
        base = numpy_support.from_dtype(np.dtype(leaf.dtype))
        kinds.append(wide(base) if numbers and not leaf.shape else types.Array(base, len(leaf.shape), "C"))
    named = type(in_tree(flat, [None] * len(kinds))) if isinstance(flat.tree, dict) else None
    whole = kinds[0] if isinstance(flat.tree, int) else types.BaseTuple.from_types(kinds, named)

    @intrinsic
    def arrays(typing_context: Any, pointer: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointers = builder.bitcast(args[0], _POINTER.as_pointer())
            values = []
            for i, (leaf, kind) in enumerate(zip(flat.leaves, kinds, strict=True)):
                data = builder.load(builder.gep(pointers, [llvm_ir.IntType(32)(i)]))
                if isinstance(kind, types.Array):
                    values.append(array_at(context, builder, kind, leaf.shape, data))
                else:
                    base = numpy_support.from_dtype(np.dtype(leaf.dtype))
                    place = builder.bitcast(data, context.get_data_type(base).as_pointer())
                    values.append(context.cast(builder, context.unpack_value(builder, base, place), base, kind))
            return values[0] if isinstance(flat.tree, int) else context.make_tuple(builder, whole, values)

        return whole(types.voidptr), generate

    return arrays


@intrinsic
def _put_result(typing_context: Any, result: Any, returned: Any) -> Any:
    """Fills a ``stepmill_result``."""
    kinds = list(returned) if isinstance(returned, types.BaseTuple) else []
    if len(kinds) != 3 or not all(isinstance(types.unliteral(one), types.Number | types.Boolean) for one in kinds):
        raise errors.TypingError(f"step: expected to return reward, terminated, truncated, got {returned}")

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        values = cgutils.unpack_tuple(builder, args[1], 3)
        reward = context.cast(builder, values[0], kinds[0], types.float64)
        builder.store(reward, builder.bitcast(args[0], llvm_ir.DoubleType().as_pointer()))
        for offset, i in ((8, 1), (9, 2)):
            flag = context.cast(builder, values[i], kinds[i], types.bool_)
            builder.store(builder.zext(flag, _BYTE), builder.gep(args[0], [llvm_ir.IntType(32)(offset)]))
        return context.get_dummy_value()

    return types.void(types.voidptr, returned), generate


def _putting_settings(fields: FieldsType) -> Any:
    """Stores the settings, which come as doubles, in the memory of an env."""

    @intrinsic
    def put(typing_context: Any, env: Any, settings: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            numbers = builder.bitcast(args[1], llvm_ir.DoubleType().as_pointer())
            for i, key in enumerate(fields.jit_class.settings):
                number = builder.load(builder.gep(numbers, [llvm_ir.IntType(32)(i)]))
                base, place = place_of(context, builder, fields, args[0], key)
                context.pack_value(builder, base, context.cast(builder, number, types.float64, base), place)
            return context.get_dummy_value()

        return types.void(types.voidptr, types.voidptr), generate

    return put


def _options_of(jit_class: Declaration) -> Any:
    """The options of a reset, with the defaults of those that are NaN: they were not given."""
    defaults = list(jit_class.options.values())
    whole = types.BaseTuple.from_types([types.float64] * len(defaults), jit_class.options_type)

    @intrinsic
    def options(typing_context: Any, pointer: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            numbers = builder.bitcast(args[0], llvm_ir.DoubleType().as_pointer())
            values = []
            for i, default in enumerate(defaults):
                number = builder.load(builder.gep(numbers, [llvm_ir.IntType(32)(i)]))
                is_given = builder.fcmp_ordered("==", number, number)
                values.append(builder.select(is_given, number, llvm_ir.DoubleType()(default)))
            return context.make_tuple(builder, whole, values)

        return whole(types.voidptr), generate

    return options


# ---- errors --------------------------------------------------------------------------------------


@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
def _explain(kind: int, value: int, trace: int, error: int) -> None:
    """Writes what was raised as the message of a function in C."""
    name = ctypes.cast(kind, ctypes.py_object).value.__name__
    said = ctypes.cast(value, ctypes.py_object).value if value else ""
    if isinstance(said, tuple):
        said = ", ".join(map(str, said))
    place = ""
    if trace:
        last = traceback.extract_tb(ctypes.cast(trace, ctypes.py_object).value)[-1:]
        place = "".join(f" ({one.filename}, line {one.lineno})" for one in last)
    text = f"{name}: {said}{place}".encode(errors="replace")[: ERROR_SIZE - 1]
    ctypes.memmove(error, text + b"\0", len(text) + 1)


def _guarded(function: Any, count: int) -> Any:
    """Calls a function of ``count`` pointers: 0, or 1 if it raised, with what it raised as the message.

    Only then the interpreter is asked. Otherwise an exception of a compiled callback is printed, and lost.
    """
    kinds = (types.voidptr,) * count
    function.compile(kinds)
    compiled_function = function.overloads[kinds]

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        context.active_code_library.add_linking_library(compiled_function.library)
        status, _ = context.call_internal_no_propagate(
            builder, compiled_function.fndesc, compiled_function.signature, args[:count]
        )
        with cgutils.if_unlikely(builder, status.is_error):
            python = context.get_python_api(builder)
            lock = python.gil_ensure()
            context.call_conv.raise_error(builder, python, status)
            parts = [cgutils.alloca_once_value(builder, llvm_ir.Constant(python.pyobj, None)) for _ in range(3)]
            python.err_fetch(*parts)
            kind = llvm_ir.FunctionType(llvm_ir.VoidType(), [_POINTER] * 4)
            explain = cgutils.get_or_insert_function(builder.module, kind, "stepmill_jit_explain")
            raised = [builder.load(one) for one in parts]
            builder.call(explain, [*(builder.bitcast(one, _POINTER) for one in raised), args[count]])
            for one in raised:
                python.decref(one)
            python.gil_release(lock)
        return builder.zext(status.is_error, llvm_ir.IntType(32))

    whole = types.int32(*(types.voidptr,) * (count + 1))
    if count == 2:
        return intrinsic(lambda typing_context, a, b, error: (whole, generate))
    if count == 3:
        return intrinsic(lambda typing_context, a, b, c, error: (whole, generate))
    return intrinsic(lambda typing_context, a, b, c, d, error: (whole, generate))


# ---- the functions -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Function:
    """A function that C can call: here, and as machine code that can be pickled."""

    symbol: str
    code: Any
    library: Any

    @classmethod
    def from_code(cls, symbol: str, code: Any) -> Function:
        """One that was compiled in another process."""
        with global_compiler_lock:
            return cls(symbol, code, cpu_target.target_context.codegen().unserialize_library(code))

    def address(self) -> int:
        with global_compiler_lock:
            return int(self.library.get_pointer_to_function(self.symbol))


@global_compiler_lock
def compile_functions(jit_class: Declaration) -> dict[str, Function]:
    """Init, reset, step and observe."""
    compiled.cache_clear()  # functions that were compiled before have the globals of that time
    known = ("init", "reset", "step", "observe")
    own = {name: compiled(jit_class.functions[name]) for name in known if name in jit_class.functions}
    fields = FieldsType(jit_class)
    bodies = {
        "init": (_calling_init(own.get("init"), fields), 2),
        "reset": (_calling_reset(own["reset"], fields), 3),
        "step": (_calling_step(own["step"], fields), 4),
        "observe": (_calling_observe(own["observe"], fields), 3),
    }
    try:
        return {name: _c_function(*body) for name, body in bodies.items()}
    except errors.NumbaError as error:
        raise CompileError(_explained(jit_class, error), output=str(error)) from error
    except Exception as error:  # what Numba does not support may raise anything in its own code
        text = f"{jit_class.__qualname__} cannot be compiled by Numba, which failed: {type(error).__name__}: {error}"
        raise CompileError(_plain(text), output=traceback.format_exc()) from error


def _calling_init(init: Any, fields: FieldsType) -> Any:
    put_settings, as_self = _putting_settings(fields), _cast_to(fields)
    if init is None:
        return lambda env, settings: put_settings(env, settings)

    def call(env, settings):
        put_settings(env, settings)
        init(as_self(env))

    return call


def _calling_reset(reset: Any, fields: FieldsType) -> Any:
    as_self, as_random = _cast_to(fields), _cast_to(RANDOM)
    if fields.jit_class.options_type is None:
        return lambda env, random, options: reset(as_self(env), as_random(random))
    options_of = _options_of(fields.jit_class)
    return lambda env, random, options: reset(as_self(env), as_random(random), options_of(options))


def _calling_step(step: Any, fields: FieldsType) -> Any:
    as_self, as_random, action_of = _cast_to(fields), _cast_to(RANDOM), _arrays_of(fields.jit_class.action, True)
    return lambda env, action, random, result: _put_result(
        result, step(as_self(env), action_of(action), as_random(random))
    )


def _calling_observe(observe: Any, fields: FieldsType) -> Any:
    as_self, observation_of = _cast_to(fields), _arrays_of(fields.jit_class.observation, False)
    if not fields.jit_class.info.leaves:
        return lambda env, observation, info: observe(as_self(env), observation_of(observation))
    info_of = _arrays_of(fields.jit_class.info, False)
    return lambda env, observation, info: observe(as_self(env), observation_of(observation), info_of(info))


def _c_function(body: Any, count: int) -> Function:
    """A function of ``count`` pointers and one to a message, which C can call."""
    call = _guarded(numba.njit(renamed(body), no_cpython_wrapper=True), count)
    entry: Any = {
        2: lambda a, b, error: call(a, b, error),
        3: lambda a, b, c, error: call(a, b, c, error),
        4: lambda a, b, c, d, error: call(a, b, c, d, error),
    }[count]
    result = CFunc(renamed(entry), ((types.voidptr,) * (count + 1), types.int32), {}, {})._compile_uncached()
    result.library.enable_object_caching()
    code = result.library.serialize_using_object_code()
    return Function(result.fndesc.llvm_cfunc_wrapper_name, code, result.library)


def _plain(text: str) -> str:
    """Without colours, and without the numbers in names of ours."""
    return re.sub(r"\x1b\[[\d;]*m|@[0-9a-f]{8,}", "", text)


def _explained(jit_class: Declaration, error: errors.NumbaError) -> str:
    """Numba's message, as far as the author's lines are concerned."""
    text = _plain(str(error))
    text = re.sub(
        r"Cannot resolve setattr: .*?\.(\w+) = .*", r"self.\1 is not in `state`; or write self.\1[...] = value", text
    )
    files = {one.__code__.co_filename for one in jit_class.functions.values()}
    places = re.findall(r'File "([^"]+)", line (\d+)', text)
    if getattr(error, "loc", None) is not None:
        places.insert(0, (error.loc.filename, str(error.loc.line)))
    where = ""
    for file, line in places:
        if os.path.abspath(file) in files:
            where = f"\n  {os.path.abspath(file)}, line {line}: {linecache.getline(file, int(line)).strip()}"
    text = re.sub(r'\n\s*File "[^"]*", line \d+:\n(?:.+\n)*', "\n", text + "\n")  # with the source that it shows
    reasons = [one.strip() for one in text.splitlines() if one.strip() and not one.strip().startswith(_SAYS_NOTHING)]
    exact = [found[1] for one in reasons if (found := re.match(r"\w*Error: (.+)", one))]
    shown = list(dict.fromkeys(exact or reasons))[:_MOST_LINES]
    return f"{jit_class.__qualname__} cannot be compiled by Numba:{where}" + "".join(f"\n  {one}" for one in shown)
