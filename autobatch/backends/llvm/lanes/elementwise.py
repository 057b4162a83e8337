"""Element-wise operations: what works number by number, of integers, floats and complex numbers.

A complex number is two numbers, the real part and the imaginary one. What only moves elements, or chooses among them,
is the same for all (`tensors.py`, `ops.py`). What is linear is done to each part by itself. The rest is written here
with operations on numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from autobatch.backends.llvm.lanes.tensors import Element, Indices, Shapes, Tensor, of_index, word
from autobatch.backends.llvm.lanes.writer import (
    BYTES,
    COMPLEX,
    ELEMENTS,
    FLOATS,
    HALVES,
    LaneValue,
    LaneWriter,
    whole,
    whole_power,
)
from autobatch.backends.llvm.machine_code import RefusedError
from autobatch.ir import jax_compat
from autobatch.ir.ops import Op

# ---- halves
#
# Floats of 16 bits: in registers and in memory they are their bits, arithmetic is that of float32.
#
#     add(a: bfloat16, b: bfloat16)   ->   narrowed(add(widened(a), widened(b)))
#
# The conversions are written with integers, so they are the same on a processor that has instructions for them and on
# one that has none, to the last bit.


Rule = Callable[[LaneWriter, Op, Sequence[Tensor], Shapes], list[Tensor]]


def widened(w: LaneWriter, x: LaneValue) -> LaneValue:
    """A float of 16 bits as the float32 that it is."""
    bits = w.cast("zext", x, "uint32")
    if x.dtype == "bfloat16":
        return w.cast("bitcast", _with(w, "shl", bits, 16), "float32")
    size = _with(w, "shl", _with(w, "and", bits, 0x7FFF), 13)
    # the exponent is less by 112 than float32 has it; a product with a power of two does subnormal numbers as well
    found = w.instruction("fmul", w.cast("bitcast", size, "float32"), w.constant(2.0**112, "float32"))
    endless = w.instruction("icmp uge", size, w.constant(0x0F800000, "uint32"), "bool")
    special = w.cast("bitcast", _with(w, "or", size, 0x7F800000), "float32")
    found = w.select(endless, special, found)
    sign = _with(w, "shl", _with(w, "and", bits, 0x8000), 16)
    return w.cast("bitcast", w.instruction("or", w.cast("bitcast", found, "uint32"), sign), "float32")


def narrowed(w: LaneWriter, x: LaneValue, dtype: str) -> LaneValue:
    """A float32 as the nearest float of 16 bits, of two the one whose last bit is 0."""
    bits = w.cast("bitcast", x, "uint32")
    size, sign = _with(w, "and", bits, 0x7FFFFFFF), _with(w, "lshr", _with(w, "and", bits, 0x80000000), 16)
    nan = w.instruction("icmp ugt", size, w.constant(0x7F800000, "uint32"), "bool")
    if dtype == "bfloat16":
        found, quiet = _rounded(w, size, 16), 0x7FC0
    else:
        shifted = w.instruction("sub", size, w.constant(112 << 23, "uint32"))
        found, quiet = _rounded(w, shifted, 13), 0x7E00
        large = w.instruction("icmp uge", size, w.constant(0x47800000, "uint32"), "bool")
        found = w.select(large, w.constant(0x7C00, "uint32"), found)
        # added to 1/2, a number below 2^-14 has its last digit where that of 1/2 is
        half = w.constant(0.5, "float32")
        low = w.cast("bitcast", w.instruction("fadd", w.cast("bitcast", size, "float32"), half), "uint32")
        low = w.instruction("sub", low, w.constant(0x3F000000, "uint32"))
        found = w.select(w.instruction("icmp ult", size, w.constant(0x38800000, "uint32"), "bool"), low, found)
    found = w.select(nan, w.constant(quiet, "uint32"), found)
    return w.cast("trunc", w.instruction("or", found, sign), dtype)


def _with(w: LaneWriter, name: str, x: LaneValue, value: int) -> LaneValue:
    return w.instruction(name, x, w.constant(value, x.dtype))


def _rounded(w: LaneWriter, bits: LaneValue, away: int) -> LaneValue:
    """Without its last bits, to the nearest, of two to the even one."""
    last = _with(w, "and", _with(w, "lshr", bits, away), 1)
    more = w.instruction("add", _with(w, "add", bits, (1 << (away - 1)) - 1), last)
    return _with(w, "lshr", more, away)


def in_single(rule: Rule, convert: Callable[[LaneWriter, LaneValue, str], LaneValue]) -> Rule:
    """A rule for numbers of float32, for floats of 16 bits: each result is rounded once."""

    def as_dtype(w: LaneWriter, x: Tensor, dtype: str) -> Tensor:
        if x.dtype == dtype:
            return x

        def at(index: Indices) -> Element:
            return (convert(w, x.one(index), dtype),)

        return Tensor(dtype, x.shape, at)

    def wider(dtype: str) -> str:
        return "float32" if dtype in HALVES else dtype

    def made(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
        held = [as_dtype(w, x, wider(x.dtype)) for x in xs]
        found = rule(w, op, held, [(wider(dtype), shape) for dtype, shape in results])
        return [as_dtype(w, x, dtype) for x, (dtype, _) in zip(found, results, strict=True)]

    return made


Make = Callable[..., LaneValue]
"""`make(writer, operation, *numbers)`."""


def _arithmetic(of_floats: Callable[[LaneWriter, LaneValue, LaneValue], LaneValue], of_integers: str) -> Make:
    def make(w: LaneWriter, op: Op, a: LaneValue, b: LaneValue) -> LaneValue:
        if a.is_float:
            return of_floats(w, a, b)
        if a.dtype == "bool":
            return w.instruction("or" if of_integers == "add" else "and", a, b)
        return w.instruction(of_integers, a, b)

    return make


def _divide(w: LaneWriter, op: Op, a: LaneValue, b: LaneValue) -> LaneValue:
    if a.is_float:
        return w.instruction("fdiv", a, b)
    return _whole_division(w, "div", a, b)


def _remainder(w: LaneWriter, op: Op, a: LaneValue, b: LaneValue) -> LaneValue:
    if a.is_float:
        return FLOATS["rem"](w, op, a, b)
    return _whole_division(w, "rem", a, b)


def _whole_division(w: LaneWriter, what: str, a: LaneValue, b: LaneValue) -> LaneValue:
    """As XLA has it: by zero the quotient is -1 and the remainder the dividend; the least number by -1 is itself and
    leaves nothing. No lane may trap, so those divide by 1."""
    name = f"{'s' if a.is_signed else 'u'}{what}"
    if b.shared and whole(b.text) not in (None, 0, -1):
        return w.instruction(name, a, b)
    one, minus = w.constant(1, a.dtype), w.constant(-1, a.dtype)
    by_zero = w.instruction("icmp eq", b, w.constant(0, a.dtype), "bool")
    unsafe = by_zero
    if a.is_signed:
        least = w.constant(-(1 << (a.bits - 1)), a.dtype)
        beyond = w.both(w.instruction("icmp eq", a, least, "bool"), w.instruction("icmp eq", b, minus, "bool"))
        unsafe = w.instruction("or", by_zero, beyond)
    found = w.instruction(name, a, w.select(unsafe, one, b))
    if what == "div":
        return w.select(by_zero, minus, found)  # of unsigned numbers the largest: the same bits
    return w.select(by_zero, a, found)


def _extreme(name: str) -> Make:
    def make(w: LaneWriter, op: Op, a: LaneValue, b: LaneValue) -> LaneValue:
        if a.is_float:
            return w.intrinsic(f"{name}imum", a, b)
        if a.dtype == "bool":
            return w.instruction("or" if name == "max" else "and", a, b)
        return w.intrinsic(f"{'s' if a.is_signed else 'u'}{name}", a, b)

    return make


def _negative(w: LaneWriter, op: Op, x: LaneValue) -> LaneValue:
    if not x.is_float:
        return w.instruction("sub", w.constant(0, x.dtype), x)
    return w.opposite(x)


def _abs(w: LaneWriter, op: Op, x: LaneValue) -> LaneValue:
    if x.is_float:
        return w.intrinsic("fabs", x)
    return w.intrinsic("smax", x, _negative(w, op, x)) if x.is_signed else x


def _sign(w: LaneWriter, op: Op, x: LaneValue) -> LaneValue:
    zero, one = w.constant(0, x.dtype), w.constant(1, x.dtype)
    if x.is_float:
        size = w.select(w.instruction("fcmp oeq", x, zero, "bool"), x, w.intrinsic("copysign", one, x))
        return w.select(w.instruction("fcmp uno", x, x, "bool"), x, size)
    if not x.is_signed:
        return w.select(w.instruction("icmp eq", x, zero, "bool"), zero, one)
    return w.intrinsic("smax", w.intrinsic("smin", x, one), w.constant(-1, x.dtype))


def _compare(of_floats: str, of_signed: str, of_unsigned: str) -> Make:
    def make(w: LaneWriter, op: Op, a: LaneValue, b: LaneValue) -> LaneValue:
        predicate = of_signed if a.is_signed else of_unsigned
        name = f"fcmp {of_floats}" if a.is_float else f"icmp {predicate}"
        return w.instruction(name, a, b, "bool")

    return make


def _in_total_order(predicate: str) -> Make:
    """-NaN, -inf, ..., -0, 0, ..., inf, NaN: the order of the bits as signed numbers, where those after the sign of
    negative ones are turned round."""

    def key(w: LaneWriter, x: LaneValue) -> LaneValue:
        if not x.is_float:
            return x
        bits = w.cast("bitcast", x, f"int{x.bits}")
        negative = w.instruction("ashr", bits, w.constant(x.bits - 1, bits.dtype))
        turned = w.instruction("and", negative, w.constant((1 << (x.bits - 1)) - 1, bits.dtype))
        return w.instruction("xor", bits, turned)

    def make(w: LaneWriter, op: Op, a: LaneValue, b: LaneValue) -> LaneValue:
        return BY_NUMBER[predicate](w, op, key(w, a), key(w, b))

    return make


def _logical(name: str) -> Make:
    return lambda w, op, a, b: w.instruction(name, a, b)


def _not(w: LaneWriter, op: Op, x: LaneValue) -> LaneValue:
    return w.instruction("xor", x, w.constant(-1, x.dtype) if x.dtype != "bool" else w.constant(True, "bool"))


def _shift(name: str) -> Make:
    """By as many bits as there are, or more, as XLA has it: all bits are gone, or are the sign."""

    def make(w: LaneWriter, op: Op, a: LaneValue, by: LaneValue) -> LaneValue:
        inside = w.instruction("icmp ult", by, w.constant(a.bits, a.dtype), "bool")
        found = w.instruction(name, a, w.select(inside, by, w.constant(a.bits - 1, a.dtype)))
        return found if name == "ashr" else w.select(inside, found, w.constant(0, a.dtype))

    return make


def _intrinsic(name: str) -> Make:
    def make(w: LaneWriter, op: Op, x: LaneValue) -> LaneValue:
        if not x.is_float or jax_compat.has_tolerance(op):
            raise RefusedError(f"{name} of {x.dtype}")
        return w.intrinsic(name, x)

    return make


def _rsqrt(w: LaneWriter, op: Op, x: LaneValue) -> LaneValue:
    return w.instruction("fdiv", w.constant(1.0, x.dtype), _intrinsic("sqrt")(w, op, x))


def _square(w: LaneWriter, op: Op, x: LaneValue) -> LaneValue:
    return _arithmetic(LaneWriter.product, "mul")(w, op, x, x)


def _integer_pow(w: LaneWriter, op: Op, x: LaneValue) -> LaneValue:
    """Of floats, up to the third power by products: more of them would round too often."""
    if x.is_float and not 0 <= op["y"] <= 3:
        return whole_power(w, x, op["y"])
    times, left, power = _arithmetic(LaneWriter.product, "mul"), abs(op["y"]), x
    total: LaneValue | None = None
    while left:
        if left & 1:
            total = power if total is None else times(w, op, total, power)
        left >>= 1
        power = times(w, op, power, power) if left else power
    total = w.constant(1, x.dtype) if total is None else total
    return _divide(w, op, w.constant(1, x.dtype), total) if op["y"] < 0 else total


def _power(w: LaneWriter, op: Op, x: LaneValue, y: LaneValue) -> LaneValue:
    """Of floats. An exponent that is an integer is the float next to it, as XLA has it."""
    return FLOATS["pow"](w, op, x, y if y.is_float else convert(w, y, x.dtype))


def _round(w: LaneWriter, op: Op, x: LaneValue) -> LaneValue:
    to_even = int(op["rounding_method"]) == 1
    return w.intrinsic("roundeven" if to_even else "round", x)


def _is_finite(w: LaneWriter, op: Op, x: LaneValue) -> LaneValue:
    return w.instruction("fcmp olt", w.intrinsic("fabs", x), w.constant(float("inf"), x.dtype), "bool")


def _clamp(w: LaneWriter, op: Op, low: LaneValue, x: LaneValue, high: LaneValue) -> LaneValue:
    return _extreme("min")(w, op, _extreme("max")(w, op, x, low), high)


def convert(w: LaneWriter, x: LaneValue, dtype: str) -> LaneValue:
    """A number in another dtype, as XLA has it: what does not fit an integer is the nearest that does, NaN is 0."""
    if x.dtype == dtype:
        return x
    if x.dtype in HALVES:
        return convert(w, widened(w, x), dtype)
    if dtype in HALVES:
        return narrowed(w, convert(w, x, "float32"), dtype)
    to_float = dtype.startswith("float")
    if dtype == "bool":
        zero = w.constant(0, x.dtype)
        return w.instruction("fcmp une" if x.is_float else "icmp ne", x, zero, "bool")
    if x.is_float and to_float:
        return w.cast("fpext" if dtype == "float64" else "fptrunc", x, dtype)
    if x.is_float:
        return _nearest_integer(w, x, dtype)
    if to_float:
        return w.cast("sitofp" if x.is_signed else "uitofp", x, dtype)
    bits = w.constant(0, dtype).bits
    if bits == x.bits:
        return LaneValue(x.text, dtype, x.shared)
    return w.cast("trunc" if bits < x.bits else "sext" if x.is_signed else "zext", x, dtype)


def _nearest_integer(w: LaneWriter, x: LaneValue, dtype: str) -> LaneValue:
    """Towards zero. In lanes it is written out: of LLVM's own operation each lane is a number by itself."""
    signed = dtype.startswith("int")
    if x.shared or w.width == 1:
        return w.intrinsic(f"fpto{'s' if signed else 'u'}i.sat", x, dtype=dtype)
    bits = w.constant(0, dtype).bits
    least, beyond = (-(1 << (bits - 1)), 1 << (bits - 1)) if signed else (0, 1 << bits)
    low, high = w.constant(least, x.dtype), w.constant(beyond, x.dtype)
    above, below = w.instruction("fcmp oge", x, low, "bool"), w.instruction("fcmp olt", x, high, "bool")
    fits = w.select(w.both(above, below), x, w.constant(0, x.dtype))
    found = w.cast("fptosi" if signed else "fptoui", fits, dtype)
    found = w.select(w.instruction("fcmp oge", x, high, "bool"), w.constant(beyond - 1, dtype), found)
    return w.select(w.instruction("fcmp olt", x, low, "bool"), w.constant(least, dtype), found)


def _leading_zeros(w: LaneWriter, op: Op, x: LaneValue) -> LaneValue:
    of, suffix = w.type_of(x.dtype, x.shared), w.suffix_of(x.dtype, x.shared)
    w.f.declare(f"declare {of} @llvm.ctlz.{suffix}({of}, i1)")
    return LaneValue(w.f.let(f"call {of} @llvm.ctlz.{suffix}({of} {x.text}, i1 false)"), x.dtype, x.shared)


def _same(w: LaneWriter, op: Op, x: LaneValue) -> LaneValue:
    return x


BY_NUMBER: Mapping[str, Make] = {
    **FLOATS,
    "abs": _abs,
    "add": _arithmetic(LaneWriter.sum, "add"),
    "add_any": _arithmetic(LaneWriter.sum, "add"),
    "and": _logical("and"),
    "ceil": _intrinsic("ceil"),
    "clamp": _clamp,
    "clz": _leading_zeros,
    "convert_element_type": lambda w, op, x: convert(w, x, str(op["new_dtype"])),
    "copy": _same,
    "div": _divide,
    "eq": _compare("oeq", "eq", "eq"),
    "eq_to": _in_total_order("eq"),
    "floor": _intrinsic("floor"),
    "ge": _compare("oge", "sge", "uge"),
    "gt": _compare("ogt", "sgt", "ugt"),
    "integer_pow": _integer_pow,
    "is_finite": _is_finite,
    "le": _compare("ole", "sle", "ule"),
    "le_to": _in_total_order("le"),
    "lt": _compare("olt", "slt", "ult"),
    "lt_to": _in_total_order("lt"),
    "max": _extreme("max"),
    "min": _extreme("min"),
    "mul": _arithmetic(LaneWriter.product, "mul"),
    "ne": _compare("une", "ne", "ne"),
    "neg": _negative,
    "not": _not,
    "or": _logical("or"),
    "pow": _power,
    "population_count": lambda w, op, x: w.intrinsic("ctpop", x),
    "rem": _remainder,
    "round": _round,
    "rsqrt": _rsqrt,
    "shift_left": _shift("shl"),
    "shift_right_arithmetic": _shift("ashr"),
    "shift_right_logical": _shift("lshr"),
    "sign": _sign,
    "sqrt": _intrinsic("sqrt"),
    "square": _square,
    "stop_gradient": _same,
    "sub": _arithmetic(LaneWriter.difference, "sub"),
    "xor": _logical("xor"),
}
"""By the name of JAX's primitive."""

COSTLY = frozenset((*FLOATS, "div", "rsqrt", "sqrt"))
"""Not computed twice."""


# ---- bits
#
# Operations on the bits of numbers.


DIGITS = {"float32": (8, 23), "float64": (11, 52)}
"""Bits of the exponent and of the fraction."""


def _bits(w: LaneWriter, x: LaneValue) -> LaneValue:
    """As an unsigned number of the same size."""
    return same_bits(w, x, f"uint{x.bits}")


def same_bits(w: LaneWriter, x: LaneValue, dtype: str) -> LaneValue:
    if ELEMENTS[dtype] == x.element:
        return LaneValue(x.text, dtype, x.shared)
    return w.cast("bitcast", x, dtype)


def bitcast(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    """The bits as numbers of another type; a wider number is several narrower ones, the last bits first."""
    (x,), (dtype, shape) = xs, results[0]
    if dtype not in ELEMENTS or x.dtype not in ELEMENTS or "bool" in (dtype, x.dtype):
        raise RefusedError(f"the bits of {x.dtype} as {dtype}")
    own, new = 8 * BYTES[ELEMENTS[x.dtype]], 8 * BYTES[ELEMENTS[dtype]]
    wide, narrow = f"uint{max(own, new)}", f"uint{min(own, new)}"

    def at(index: Indices) -> Element:
        if own == new:
            return (same_bits(w, x.one(index), dtype),)
        if own > new:
            by = w.instruction("mul", of_index(w, index[-1], wide), w.constant(new, wide))
            part = w.cast("trunc", w.instruction("lshr", _bits(w, x.one(index[:-1])), by), narrow)
            return (same_bits(w, part, dtype),)
        total = w.constant(0, wide)
        for k in range(new // own):
            part = w.cast("zext", _bits(w, x.one((*index, k))), wide)
            total = w.instruction("or", total, w.instruction("shl", part, w.constant(k * own, wide)))
        return (same_bits(w, total, dtype),)

    return [Tensor(dtype, shape, at)]


def reduce_precision(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    """Rounded to what has fewer bits of an exponent and of a fraction; what is subnormal there is 0, with its sign."""
    (x,), (dtype, shape) = xs, results[0]
    if dtype not in DIGITS:
        raise RefusedError(f"another precision of {dtype}")
    exponent, fraction = DIGITS[dtype]
    kept, digits = op["exponent_bits"], op["mantissa_bits"]
    of = f"uint{1 + exponent + fraction}"

    def number(value: int) -> LaneValue:
        return w.constant(value, of)

    def at(index: Indices) -> Element:
        given = x.one(index)
        bits = _bits(w, given)
        sign = w.instruction("and", bits, number(1 << (exponent + fraction)))
        size = w.instruction("xor", bits, sign)
        away = fraction - digits
        if away > 0:
            last = w.instruction("and", w.instruction("lshr", size, number(away)), number(1))
            size = w.instruction("add", size, w.instruction("add", last, number((1 << (away - 1)) - 1)))
            size = w.instruction("and", size, number(-1 << away))
        if kept < exponent:
            middle, reach = (1 << (exponent - 1)) - 1, (1 << (kept - 1)) - 1
            most, least = (middle + reach) << fraction, (middle - reach) << fraction
            above = w.instruction("icmp uge", size, number(most + (1 << fraction)), "bool")
            size = w.select(above, number(((1 << exponent) - 1) << fraction), size)
            below = w.instruction("icmp ult", size, number(least + (1 << fraction)), "bool")
            size = w.select(below, number(0), size)
        found = same_bits(w, w.instruction("or", size, sign), dtype)
        return (w.select(w.instruction("fcmp uno", given, given, "bool"), given, found),)

    return [Tensor(dtype, shape, at)]


BITS: Mapping[str, Callable[..., list[Tensor]]] = {
    "bitcast_convert_type": bitcast,
    "reduce_precision": reduce_precision,
}


# ---- complex numbers


Pair = tuple[LaneValue, LaneValue]
MakeComplex = Callable[[LaneWriter, Op, Sequence[Pair]], Pair]


def _do(w: LaneWriter, name: str, *xs: LaneValue) -> LaneValue:
    found = BY_NUMBER.get(name)
    if found is None:
        raise RefusedError(f"{name} of {xs[0].dtype}")
    return found(w, Op(name), *xs)


def _add(w: LaneWriter, op: Op, xs: Sequence[Pair]) -> Pair:
    (a, b), (c, d) = xs
    return _do(w, "add", a, c), _do(w, "add", b, d)


def _sub(w: LaneWriter, op: Op, xs: Sequence[Pair]) -> Pair:
    (a, b), (c, d) = xs
    return _do(w, "sub", a, c), _do(w, "sub", b, d)


def _neg(w: LaneWriter, op: Op, xs: Sequence[Pair]) -> Pair:
    ((a, b),) = xs
    return _do(w, "neg", a), _do(w, "neg", b)


def _mul(w: LaneWriter, op: Op, xs: Sequence[Pair]) -> Pair:
    (a, b), (c, d) = xs
    real = w.difference(w.product(a, c), w.product(b, d))
    return real, w.sum(w.product(a, d), w.product(b, c))


def _size(w: LaneWriter, x: Pair) -> tuple[LaneValue, LaneValue]:
    """|x| as a / b sqrt(1 + ...), which does not overflow where it need not; and the larger of the two parts."""
    a, b = (_do(w, "abs", part) for part in x)
    large, small = w.intrinsic("maxnum", a, b), w.intrinsic("minnum", a, b)
    zero, one, endless = (w.constant(v, a.dtype) for v in (0.0, 1.0, float("inf")))
    none = w.instruction("fcmp oeq", large, zero, "bool")
    ratio = w.instruction("fdiv", small, w.select(none, one, large))
    root = w.intrinsic("sqrt", w.sum(w.product(ratio, ratio), one))
    found = w.instruction("fmul", large, root)
    nan = w.instruction("fcmp uno", a, b, "bool")
    found = w.select(nan, w.instruction("fadd", a, b), found)
    return w.select(w.instruction("fcmp oeq", large, endless, "bool"), endless, found), large


def _div(w: LaneWriter, op: Op, xs: Sequence[Pair]) -> Pair:
    """By numbers of the size of 1: both are divided by the larger part of the divisor."""
    (a, b), (c, d) = xs
    _, large = _size(w, xs[1])
    none = w.instruction("fcmp oeq", large, w.constant(0.0, large.dtype), "bool")
    by = w.select(none, w.constant(1.0, large.dtype), large)
    c, d = w.instruction("fdiv", c, by), w.instruction("fdiv", d, by)
    square = w.sum(w.product(c, c), w.product(d, d))
    real = w.sum(w.product(a, c), w.product(b, d))
    imaginary = w.difference(w.product(b, c), w.product(a, d))
    real, imaginary = w.instruction("fdiv", real, square), w.instruction("fdiv", imaginary, square)
    return w.instruction("fdiv", real, by), w.instruction("fdiv", imaginary, by)


def _complex_power(w: LaneWriter, op: Op, xs: Sequence[Pair]) -> Pair:
    (x,) = xs
    left, power = abs(op["y"]), x
    one = (w.constant(1.0, x[0].dtype), w.constant(0.0, x[0].dtype))
    total: Pair | None = None
    while left:
        if left & 1:
            total = power if total is None else _mul(w, op, [total, power])
        left >>= 1
        power = _mul(w, op, [power, power]) if left else power
    total = one if total is None else total
    return _div(w, op, [one, total]) if op["y"] < 0 else total


def _exp(w: LaneWriter, op: Op, xs: Sequence[Pair]) -> Pair:
    ((a, b),) = xs
    size = _do(w, "exp", a)
    real = w.instruction("fcmp oeq", b, w.constant(0.0, b.dtype), "bool")
    other = w.select(real, b, w.instruction("fmul", size, _do(w, "sin", b)))
    return w.instruction("fmul", size, _do(w, "cos", b)), other


def _log(w: LaneWriter, op: Op, xs: Sequence[Pair]) -> Pair:
    ((a, b),) = xs
    size, _ = _size(w, (a, b))
    return _do(w, "log", size), _do(w, "atan2", b, a)


def _sin(w: LaneWriter, op: Op, xs: Sequence[Pair]) -> Pair:
    ((a, b),) = xs
    real = w.instruction("fmul", _do(w, "sin", a), _do(w, "cosh", b))
    return real, w.instruction("fmul", _do(w, "cos", a), _do(w, "sinh", b))


def _cos(w: LaneWriter, op: Op, xs: Sequence[Pair]) -> Pair:
    ((a, b),) = xs
    real = w.instruction("fmul", _do(w, "cos", a), _do(w, "cosh", b))
    return real, _do(w, "neg", w.instruction("fmul", _do(w, "sin", a), _do(w, "sinh", b)))


def _sqrt(w: LaneWriter, op: Op, xs: Sequence[Pair]) -> Pair:
    """t = sqrt((|a| + |x|) / 2); t + i b / 2t, and the other way round where a < 0."""
    ((a, b),) = xs
    size, _ = _size(w, (a, b))
    half, zero = w.constant(0.5, a.dtype), w.constant(0.0, a.dtype)
    t = w.intrinsic("sqrt", w.instruction("fmul", w.instruction("fadd", _do(w, "abs", a), size), half))
    none = w.instruction("fcmp oeq", t, zero, "bool")
    other = w.instruction("fdiv", w.instruction("fmul", b, half), w.select(none, w.constant(1.0, a.dtype), t))
    left = w.instruction("fcmp olt", a, zero, "bool")
    return w.select(left, _do(w, "abs", other), t), w.select(left, w.intrinsic("copysign", t, b), other)


def _complex_sign(w: LaneWriter, op: Op, xs: Sequence[Pair]) -> Pair:
    ((a, b),) = xs
    size, _ = _size(w, (a, b))
    none = w.instruction("fcmp oeq", size, w.constant(0.0, a.dtype), "bool")
    by = w.select(none, w.constant(1.0, a.dtype), size)
    return w.instruction("fdiv", a, by), w.instruction("fdiv", b, by)


def _complex_same(w: LaneWriter, op: Op, xs: Sequence[Pair]) -> Pair:
    return xs[0]


def _complex_square(w: LaneWriter, op: Op, xs: Sequence[Pair]) -> Pair:
    return _mul(w, op, [xs[0], xs[0]])


MAKE: Mapping[str, MakeComplex] = {
    "add": _add,
    "add_any": _add,
    "copy": _complex_same,
    "cos": _cos,
    "div": _div,
    "exp": _exp,
    "integer_pow": _complex_power,
    "log": _log,
    "mul": _mul,
    "neg": _neg,
    "sign": _complex_sign,
    "sin": _sin,
    "sqrt": _sqrt,
    "square": _complex_square,
    "stop_gradient": _complex_same,
    "sub": _sub,
}
"""Of complex numbers, a complex number."""


def _elements(name: str) -> Callable[..., list[Tensor]]:
    make = MAKE[name]

    def rule(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
        dtype, shape = results[0]

        def at(index: Indices) -> Element:
            found = []
            for x in xs:
                a, b = x.at(index if x.shape else ())
                found.append((a, b))
            return make(w, op, found)

        return [Tensor(dtype, shape, at)]

    return rule


def real_and_imaginary(x: Tensor) -> tuple[Tensor, Tensor]:
    """The real and the imaginary parts of an array."""
    of = word(x.dtype)

    def part(number: int) -> Tensor:
        return Tensor(of, x.shape, lambda index: (x.at(index)[number],), x.held, x.fixed)

    return part(0), part(1)


def joined(dtype: str, real: Tensor, imaginary: Tensor) -> Tensor:
    return Tensor(dtype, real.shape, lambda index: (real.one(index), imaginary.one(index)))


def _complex_compare(equal: bool) -> Callable[..., list[Tensor]]:
    def rule(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
        def at(index: Indices) -> Element:
            pairs = zip(*(x.at(index if x.shape else ()) for x in xs), strict=True)
            real, imaginary = (_do(w, op.name, *pair) for pair in pairs)
            return (w.instruction("and" if equal else "or", real, imaginary),)

        return [Tensor("bool", results[0][1], at)]

    return rule


def _to_number(make: Callable[[LaneWriter, Pair], LaneValue]) -> Callable[..., list[Tensor]]:
    def rule(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
        dtype, shape = results[0]

        def at(index: Indices) -> Element:
            a, b = xs[0].at(index)
            return (make(w, (a, b)),)

        return [Tensor(dtype, shape, at)]

    return rule


def _complex(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    real, imaginary = xs
    return [joined(results[0][0], real, imaginary)]


def _conj(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    (x,), (dtype, shape) = xs, results[0]

    def at(index: Indices) -> Element:
        if x.dtype not in COMPLEX:
            return (x.one(index), w.constant(0.0, x.dtype))
        a, b = x.at(index)
        return a, _do(w, "neg", b)

    return [Tensor(dtype, shape, at)]


def _converted(w: LaneWriter, op: Op, xs: Sequence[Tensor], results: Shapes) -> list[Tensor]:
    (x,), (dtype, shape) = xs, results[0]
    of = word(dtype)

    def at(index: Indices) -> Element:
        found = x.at(index)
        if dtype == "bool":
            real, imaginary = (convert(w, part, "bool") for part in found)
            return (w.instruction("or", real, imaginary),)
        if dtype not in COMPLEX:
            return (convert(w, found[0], dtype),)
        other = found[1] if x.dtype in COMPLEX else w.constant(0.0, of)
        return convert(w, found[0], of), convert(w, other, of)

    return [Tensor(dtype, shape, at)]


def _complex_is_finite(w: LaneWriter, x: Pair) -> LaneValue:
    real, imaginary = (_do(w, "is_finite", part) for part in x)
    return w.instruction("and", real, imaginary)


COMPLEX_RULES: Mapping[str, Callable[..., list[Tensor]]] = {
    **{name: _elements(name) for name in MAKE},
    "abs": _to_number(lambda w, x: _size(w, x)[0]),
    "complex": _complex,
    "conj": _conj,
    "convert_element_type": _converted,
    "eq": _complex_compare(True),
    "imag": _to_number(lambda w, x: x[1]),
    "is_finite": _to_number(_complex_is_finite),
    "ne": _complex_compare(False),
    "real": _to_number(lambda w, x: x[0]),
}
"""By the name of the operation, where an operand or a result is complex."""
