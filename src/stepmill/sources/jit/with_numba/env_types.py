"""The types of ``self`` and ``random``, as compiled functions see them."""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any

from llvmlite import ir as llvm_ir
from numba.core import errors, types
from numba.core.datamodel import models
from numba.core.imputils import impl_ret_borrowed, lower_builtin
from numba.core.typing import templates
from numba.extending import (
    infer_getattr,
    intrinsic,
    lower_getattr_generic,
    lower_setattr_generic,
    overload_method,
    register_model,
)
from numba.np import arrayobj, numpy_support

from stepmill.sources.jit.declaration import Declaration
from stepmill.sources.jit.with_numba.same_numbers import compiled, fault_of_elements

_numbers = itertools.count()


class FieldsType(types.Type):
    """``self``: a pointer to the memory of an env."""

    def __init__(self, jit_class: Declaration) -> None:
        self.jit_class = jit_class
        self.constants = jit_class.constants()
        # Numba keeps types by name: a class that is compiled again, with other constants, is another.
        super().__init__(f"{jit_class.__qualname__}@{next(_numbers):08x}")

    def kind(self, name: str) -> Any:
        """The type of a field as functions see it."""
        field = self.jit_class.state[name]
        base = numpy_support.from_dtype(field.base)
        if field.shape:
            return types.Array(base, len(field.shape), "C")
        return wide(base)


def wide(kind: Any) -> Any:
    """The type of a number as Python has it: a float64, an int64 or a bool."""
    return types.float64 if isinstance(kind, types.Float) else kind if kind is types.bool_ else types.int64


class RandomType(types.Type):
    """``random``: a pointer to a ``stepmill_random``."""

    def __init__(self) -> None:
        super().__init__("random")


RANDOM = RandomType()
register_model(FieldsType)(models.OpaqueModel)
register_model(RandomType)(models.OpaqueModel)


@infer_getattr
class _Attributes(templates.AttributeTemplate):
    key = FieldsType

    def generic_resolve(self, fields: FieldsType, name: str) -> Any:
        if name in (fields.jit_class.state.names or ()):
            return fields.kind(name)
        if name in fields.constants:
            fault = fault_of_elements((fields.constants[name],)) if isinstance(fields.constants[name], tuple) else None
            if fault is not None:
                raise errors.TypingError(f"self.{name}: {fault}")
            return types.unliteral(self.context.resolve_value_type(fields.constants[name]))
        if name not in fields.jit_class.functions:
            return None
        function = types.Dispatcher(compiled(fields.jit_class.functions[name]))

        class Method(templates.AbstractTemplate):
            key = (FieldsType, name)

            def generic(self, args: Any, keywords: Any) -> Any:
                return function.get_call_type(self.context, (fields, *args), keywords).as_method()

        _lower_method(name)
        return types.BoundFunction(Method, fields)


@functools.cache
def _lower_method(name: str) -> None:
    """Calls of ``self.name(...)``, of any class."""

    @lower_builtin((FieldsType, name), FieldsType, types.VarArg(types.Any))
    def call(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        fields = signature.args[0]
        function = types.Dispatcher(compiled(fields.jit_class.functions[name]))
        resolved = function.get_call_type(context.typing_context, signature.args, {})
        implementation = context.get_function(function, resolved)
        result = implementation(builder, args)
        for library in getattr(implementation, "libs", ()):
            context.active_code_library.add_linking_library(library)
        return result


@lower_getattr_generic(FieldsType)
def _get_field(context: Any, builder: Any, fields: FieldsType, value: Any, name: str) -> Any:
    kind = fields.kind(name) if name in (fields.jit_class.state.names or ()) else None
    if kind is None:
        constant = fields.constants[name]
        kind = types.unliteral(context.typing_context.resolve_value_type(constant))
        return context.get_constant_generic(builder, kind, constant)
    base, place = place_of(context, builder, fields, value, name)
    if isinstance(kind, types.Array):
        return array_at(context, builder, kind, fields.jit_class.state[name].shape, place)
    return context.cast(builder, context.unpack_value(builder, base, place), base, kind)


@lower_setattr_generic(FieldsType)
def _set_field(context: Any, builder: Any, signature: Any, args: Any, name: str) -> None:
    fields, kind = signature.args
    if name not in (fields.jit_class.state.names or ()) or fields.jit_class.state[name].shape:
        raise errors.UnsupportedError(
            f"self.{name} cannot be assigned: if it is an array, write self.{name}[...] = value"
        )
    base, place = place_of(context, builder, fields, args[0], name)
    context.pack_value(builder, base, context.cast(builder, args[1], kind, base), place)


def place_of(context: Any, builder: Any, fields: FieldsType, value: Any, name: str) -> tuple[Any, Any]:
    assert fields.jit_class.state.fields is not None
    field, offset = fields.jit_class.state.fields[name][:2]
    base = numpy_support.from_dtype(field.base)
    place = builder.gep(value, [context.get_constant(types.intp, offset)])
    return base, builder.bitcast(place, context.get_data_type(base).as_pointer())


def array_at(context: Any, builder: Any, kind: types.Array, shape: tuple[int, ...], data: Any) -> Any:
    """An array over memory that somebody else owns."""
    size = context.get_abi_sizeof(context.get_data_type(kind.dtype))
    strides = [size * math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    array = arrayobj.make_array(kind)(context, builder)
    arrayobj.populate_array(
        array,
        data=builder.bitcast(data, array.data.type),
        shape=[context.get_constant(types.intp, one) for one in shape],
        strides=[context.get_constant(types.intp, one) for one in strides],
        itemsize=context.get_constant(types.intp, size),
        meminfo=None,
    )
    return impl_ret_borrowed(context, builder, kind, array._getvalue())


def _draw(builder: Any, index: int, result: Any, values: Any) -> Any:
    """Calls one of the functions of a ``stepmill_random``."""
    function = llvm_ir.FunctionType(result, [one.type for one in values]).as_pointer()
    table = builder.bitcast(values[0], function.as_pointer())
    return builder.call(builder.load(builder.gep(table, [llvm_ir.IntType(32)(index)])), values)


@intrinsic
def _draw_uniform(typing_context: Any, random: Any) -> Any:
    return types.float64(RANDOM), lambda context, builder, _, args: _draw(builder, 0, llvm_ir.DoubleType(), args)


@intrinsic
def _draw_integer(typing_context: Any, random: Any, low: Any, high: Any) -> Any:
    whole = types.int64(RANDOM, types.int64, types.int64)
    return whole, lambda context, builder, _, args: _draw(builder, 1, llvm_ir.IntType(64), args)


@intrinsic
def _draw_normal(typing_context: Any, random: Any) -> Any:
    return types.float64(RANDOM), lambda context, builder, _, args: _draw(builder, 2, llvm_ir.DoubleType(), args)


@overload_method(RandomType, "uniform", strict=False)
def _uniform(random: Any, low: Any = 0.0, high: Any = 1.0) -> Any:
    return lambda random, low=0.0, high=1.0: low + (high - low) * _draw_uniform(random)


@overload_method(RandomType, "integer", strict=False)
def _integer(random: Any, low: Any, high: Any) -> Any:
    return lambda random, low, high: _draw_integer(random, low, high)


@overload_method(RandomType, "normal", strict=False)
def _normal(random: Any, mean: Any = 0.0, deviation: Any = 1.0) -> Any:
    return lambda random, mean=0.0, deviation=1.0: mean + deviation * _draw_normal(random)
