"""Thirty-two bytes at once, for kernels: which of them lie between two bounds, as bits, and where the first and last of these are.

No branch hangs on where a word ends, which no processor foretells: a loop over its letters costs more in wrong guesses than in all
the rest. The instructions are LLVM's vectors, which it makes of what the processor has.
"""

from __future__ import annotations

from typing import Any, Final

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

BYTES: Final = 32
"""How many are read at once; an array ends so many bytes behind the last place that is asked for."""

_EIGHT = ir.IntType(64)
_VECTOR = ir.VectorType(ir.IntType(8), BYTES)


@intrinsic
def between(_: Any, data: Any, at: Any, fold: Any, lowest: Any, count: Any) -> Any:
    """Bit k: whether data[at + k], with the bits of `fold` set, is one of the `count` bytes from `lowest` on."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        bits, low, how_many = (_in_all(builder, value) for value in arguments[2:])
        folded = builder.or_(_loaded(context, builder, signature, arguments, _VECTOR), bits)
        inside = builder.icmp_unsigned("<", builder.sub(folded, low), how_many)
        return builder.zext(builder.bitcast(inside, ir.IntType(BYTES)), _EIGHT)

    return types.uint64(data, types.int64, types.uint8, types.uint8, types.uint8), generate


@intrinsic
def eight(_: Any, data: Any, at: Any) -> Any:
    """data[at : at + 8] as a number."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _loaded(context, builder, signature, arguments, _EIGHT)

    return types.uint64(data, types.int64), generate


@intrinsic
def first_bit(_: Any, bits: Any) -> Any:
    """The place of the lowest bit that is set; 64 where none is."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 0))

    return types.int64(types.uint64), generate


@intrinsic
def bits_end(_: Any, bits: Any) -> Any:
    """The place behind the highest bit that is set; 0 where none is."""

    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        free = builder.ctlz(arguments[0], ir.Constant(ir.IntType(1), 0))
        return builder.sub(ir.Constant(_EIGHT, 64), free)

    return types.int64(types.uint64), generate


@intrinsic
def prefetch(_: Any, table: Any, at: Any) -> Any:
    """Asks memory for the line in which number `at` of a table lies, its rows end to end."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = _place(context, builder, signature, arguments)
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [place.type, number, number, number])
        call = builder.module.declare_intrinsic("llvm.prefetch", [place.type], kind)
        read, keep, data = (ir.Constant(number, value) for value in (0, 3, 1))
        builder.call(call, [place, read, keep, data])
        return context.get_dummy_value()

    return types.void(table, types.int64), generate


def _place(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
    """Where number arguments[1] of the array arguments[0] lies."""
    first = context.make_array(signature.args[0])(context, builder, arguments[0]).data
    return builder.gep(first, [arguments[1]])


def _loaded(context: Any, builder: Any, signature: Any, arguments: Any, kind: Any) -> Any:
    place = builder.bitcast(_place(context, builder, signature, arguments), kind.as_pointer())
    return builder.load(place, align=1)


def _in_all(builder: Any, value: Any) -> Any:
    """A vector that has `value` in every place."""
    none = ir.Constant(_VECTOR, ir.Undefined)
    one = builder.insert_element(none, value, ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(one, none, ir.Constant(ir.VectorType(ir.IntType(32), BYTES), [0] * BYTES))
