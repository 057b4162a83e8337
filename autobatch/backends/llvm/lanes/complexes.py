"""Complex numbers: an element is two numbers, the real part and the imaginary one.

What only moves elements, or chooses among them, is the same for all (`tensors.py`, `operators.py`). What is linear is
done to each part by itself. The rest is written here with operations on numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from autobatch.backends.llvm.lanes.by_number import BY_NUMBER, convert
from autobatch.backends.llvm.lanes.tensors import Element, Indices, Shapes, Tensor, word
from autobatch.backends.llvm.lanes.writer import COMPLEX, LaneValue, LaneWriter
from autobatch.backends.llvm.machine_code import RefusedError
from autobatch.ir.ops import Op

Pair = tuple[LaneValue, LaneValue]
Make = Callable[[LaneWriter, Op, Sequence[Pair]], Pair]


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


def _power(w: LaneWriter, op: Op, xs: Sequence[Pair]) -> Pair:
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


def _sign(w: LaneWriter, op: Op, xs: Sequence[Pair]) -> Pair:
    ((a, b),) = xs
    size, _ = _size(w, (a, b))
    none = w.instruction("fcmp oeq", size, w.constant(0.0, a.dtype), "bool")
    by = w.select(none, w.constant(1.0, a.dtype), size)
    return w.instruction("fdiv", a, by), w.instruction("fdiv", b, by)


def _same(w: LaneWriter, op: Op, xs: Sequence[Pair]) -> Pair:
    return xs[0]


def _square(w: LaneWriter, op: Op, xs: Sequence[Pair]) -> Pair:
    return _mul(w, op, [xs[0], xs[0]])


MAKE: Mapping[str, Make] = {
    "add": _add,
    "add_any": _add,
    "copy": _same,
    "cos": _cos,
    "div": _div,
    "exp": _exp,
    "integer_pow": _power,
    "log": _log,
    "mul": _mul,
    "neg": _neg,
    "sign": _sign,
    "sin": _sin,
    "sqrt": _sqrt,
    "square": _square,
    "stop_gradient": _same,
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


def _compare(equal: bool) -> Callable[..., list[Tensor]]:
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


def _is_finite(w: LaneWriter, x: Pair) -> LaneValue:
    real, imaginary = (_do(w, "is_finite", part) for part in x)
    return w.instruction("and", real, imaginary)


COMPLEX_RULES: Mapping[str, Callable[..., list[Tensor]]] = {
    **{name: _elements(name) for name in MAKE},
    "abs": _to_number(lambda w, x: _size(w, x)[0]),
    "complex": _complex,
    "conj": _conj,
    "convert_element_type": _converted,
    "eq": _compare(True),
    "imag": _to_number(lambda w, x: x[1]),
    "is_finite": _to_number(_is_finite),
    "ne": _compare(False),
    "real": _to_number(lambda w, x: x[0]),
}
"""By the name of the operation, where an operand or a result is complex."""
