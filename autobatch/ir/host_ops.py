"""Leaf operations on the host, in NumPy, for many rows at once: what structural code computes with.

Values have a leading axis of rows: `[rows, *shape]`. Python numbers (weak types) have their full width here, int64
and float64, and our own operations mean what Python means by them. `HOST` covers what structural code is made of;
`evaluate` hands the rest to JAX, on the CPU, at the width that JAX has.

    can_evaluate(op)               is there a row of `HOST` for it?
    evaluate(op, types, xs)        its results, by `HOST` or by JAX
    fails(op, *xs)                 the rows in which Python would raise, or None if it never does
    never_fails(op)                does it never, for any operands?
    failure(op, *xs)               what it raises for one row: exception kind and message
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from autobatch.ir import jax_compat, leaf
from autobatch.ir.buffers import TOO_LARGE_FOR_HOST
from autobatch.ir.core import Array
from autobatch.ir.ops import Op

# ---- host primitives
#
# JAX primitives in NumPy, over rows: `HOST`, one row a primitive.
#
# Values have a leading axis of rows, `[rows, *shape]`. The results are those of XLA on the CPU, but for the last bits
# of transcendental functions, and may be wider than the result's dtype: `host_ops.evaluate` narrows them.


Rows = NDArray[Any]

_PYTHON = {"int32": np.int64, "float32": np.float64, "complex64": np.complex128}


def host_dtype(type: Array) -> Any:
    """The dtype that values of a type have on the host."""
    return np.dtype(_PYTHON[type.dtype]) if type.weak and type.dtype in _PYTHON else jax_compat.dtype_of(type.dtype)


# ---- operands: one width, one rank


def same_width(xs: Sequence[Rows]) -> list[Rows]:
    """Operands of one kind in the narrowest of their widths: a Python number joins the array it meets."""
    narrow: dict[str, Any] = {}
    for x in xs:
        held = narrow.setdefault(x.dtype.kind, x.dtype)
        if x.dtype.itemsize < held.itemsize:
            narrow[x.dtype.kind] = x.dtype
    return [x.astype(narrow[x.dtype.kind], copy=False) for x in xs]


def same_rank(xs: Sequence[Rows]) -> list[Rows]:
    """Scalars get axes of size one where they meet arrays."""
    rank = max((x.ndim for x in xs), default=0)
    return [x if x.ndim == rank else x.reshape(*x.shape[:1], *(1,) * (rank - x.ndim), *x.shape[1:]) for x in xs]


def _elementwise(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda op, *xs: function(*same_rank(same_width(xs)))


def is_integer(*xs: Rows) -> bool:
    return all(x.dtype.kind in "iu" for x in xs)


# ---- JAX primitives


def _divide(x: Rows, y: Rows) -> Rows:
    """As XLA: integers towards zero, and a zero divisor gives -1."""
    if not is_integer(x, y):
        return np.asarray(np.divide(x, y))
    quotient = np.floor_divide(x, np.where(y == 0, 1, y))
    quotient = quotient + ((quotient < 0) & (quotient * y != x))
    return np.where(y == 0, np.asarray(-1).astype(x.dtype), quotient)


def _remainder(x: Rows, y: Rows) -> Rows:
    """As XLA: the sign of the dividend; a zero divisor gives the dividend back."""
    if not is_integer(x, y):
        return np.asarray(np.fmod(x, y))
    return np.where(y == 0, x, np.fmod(x, np.where(y == 0, 1, y)))


def power(x: Rows, y: Rows) -> Rows:
    if not is_integer(x, y):
        return np.asarray(np.power(x, y.astype(x.dtype) if y.dtype.kind in "iu" else y))
    return np.asarray(np.power(x, np.maximum(y, 0)))


def _integer_power(op: Op, x: Rows) -> Rows:
    y = op["y"]
    return np.asarray(1 / x**-y if y < 0 else x**y)


def _round_as_jax(op: Op, x: Rows) -> Rows:
    if int(op["rounding_method"]) == 1:
        return np.asarray(np.rint(x))
    return np.asarray(np.where(np.abs(x) % 1 == 0.5, np.trunc(x) + np.sign(x), np.rint(x)))


def _convert(op: Op, x: Rows) -> Rows:
    target = host_dtype(Array(str(np.dtype(op["new_dtype"])), (), op["weak_type"]))
    return saturate(x, target)


def saturate(x: Rows, target: Any) -> Rows:
    """A conversion as XLA makes it: floats out of an integer's range become its ends, NaN becomes 0."""
    if np.dtype(target).kind not in "iu" or x.dtype.kind not in "fV":
        return x.astype(target)
    info, wide = np.iinfo(target), np.trunc(np.nan_to_num(x.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf))
    inside = (wide > float(info.min)) & (wide < float(info.max))
    ends = np.where(wide >= float(info.max), info.max, info.min)
    return np.where(inside, np.where(inside, wide, 0).astype(target), ends.astype(target))


def _select(op: Op, which: Rows, *cases: Rows) -> Rows:
    aligned = same_rank(same_width(cases))
    which = same_rank([which, aligned[0]])[0]
    result = aligned[0]
    for position, case in enumerate(aligned[1:], 1):
        result = np.where(which == position, case, result)
    return result


def _clamp(op: Op, low: Rows, x: Rows, high: Rows) -> Rows:
    low, x, high = same_rank(same_width([low, x, high]))
    return np.asarray(np.minimum(np.maximum(x, low), high))


def _shift_right_logical(x: Rows, y: Rows) -> Rows:
    unsigned = np.dtype(f"u{x.dtype.itemsize}")
    return np.asarray(np.right_shift(x.view(unsigned), y.astype(unsigned)).view(x.dtype))


def _broadcast_in_dim(op: Op, x: Rows) -> Rows:
    target, held = op["shape"], [1] * len(op["shape"])
    for axis, position in enumerate(op["broadcast_dimensions"]):
        held[position] = x.shape[1 + axis]
    return np.asarray(np.broadcast_to(x.reshape(len(x), *held), (len(x), *target)))


def _slice(op: Op, x: Rows) -> Rows:
    strides = op["strides"] or (1,) * (x.ndim - 1)
    limits = zip(op["start_indices"], op["limit_indices"], strides, strict=True)
    return np.asarray(x[(slice(None), *(slice(*bounds) for bounds in limits))])


def _dynamic_slice(op: Op, x: Rows, *starts: Rows) -> Rows:
    """Starts are moved so that the slice lies inside, as JAX does."""
    index: list[Rows] = [np.arange(len(x)).reshape(-1, *(1,) * len(starts))]
    for axis, (start, size) in enumerate(zip(starts, op["slice_sizes"], strict=True)):
        first = np.clip(start.astype(np.int64), 0, x.shape[1 + axis] - size)
        along = first[:, None] + np.arange(size)
        index.append(along.reshape(len(x), *(size if k == axis else 1 for k in range(len(starts)))))
    return np.asarray(x[tuple(index)])


def _axes(op: Op) -> tuple[int, ...]:
    return tuple(a + 1 for a in op["axes"])


def _extreme(reduce: Callable[..., Any], ends: tuple[Any, str]) -> Callable[[Op, Rows], Rows]:
    """`max` or `min` over axes that may be empty: then the least or the greatest number."""
    infinite, finite = ends

    def apply(op: Op, x: Rows) -> Rows:
        kind = x.dtype.kind
        start = infinite if kind == "f" else infinite > 0 if kind == "b" else getattr(np.iinfo(x.dtype), finite)
        return np.asarray(reduce(x, axis=_axes(op), initial=start))

    return apply


def _reduction(reduce: Callable[..., Any]) -> Callable[[Op, Rows], Rows]:
    return lambda op, x: np.asarray(reduce(x, axis=_axes(op)))


def _position(find: Callable[..., Any]) -> Callable[[Op, Rows], Rows]:
    return lambda op, x: np.asarray(find(x, axis=op["axes"][0] + 1))


def _real_function(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda op, x: function(x)


HOST: dict[str, Callable[..., Any]] = {
    # arithmetic
    "add": _elementwise(np.add),
    "add_any": _elementwise(np.add),
    "sub": _elementwise(np.subtract),
    "mul": _elementwise(np.multiply),
    "div": _elementwise(_divide),
    "rem": _elementwise(_remainder),
    "pow": _elementwise(power),
    "integer_pow": _integer_power,
    "max": _elementwise(np.maximum),
    "min": _elementwise(np.minimum),
    "clamp": _clamp,
    "nextafter": _elementwise(np.nextafter),
    "atan2": _elementwise(np.arctan2),
    # comparison and logic
    "eq": _elementwise(np.equal),
    "ne": _elementwise(np.not_equal),
    "lt": _elementwise(np.less),
    "le": _elementwise(np.less_equal),
    "gt": _elementwise(np.greater),
    "ge": _elementwise(np.greater_equal),
    "and": _elementwise(np.bitwise_and),
    "or": _elementwise(np.bitwise_or),
    "xor": _elementwise(np.bitwise_xor),
    "shift_left": _elementwise(np.left_shift),
    "shift_right_arithmetic": _elementwise(np.right_shift),
    "shift_right_logical": _elementwise(_shift_right_logical),
    "select_n": _select,
    # functions of one number
    "convert_element_type": _convert,
    "round": _round_as_jax,
    "copy": _real_function(np.copy),
    "stop_gradient": _real_function(np.copy),
    "rsqrt": _real_function(lambda x: 1 / np.sqrt(x)),
    "logistic": _real_function(lambda x: 1 / (1 + np.exp(-x))),
    "abs": _real_function(np.abs),
    "asin": _real_function(np.arcsin),
    "acos": _real_function(np.arccos),
    "atan": _real_function(np.arctan),
    "not": _real_function(np.invert),
    "neg": _real_function(np.negative),
    "one_minus_square": _real_function(lambda x: (1 + x) * (1 - x)),
    "is_finite": _real_function(np.isfinite),
    **{
        name: _real_function(getattr(np, name))
        for name in ("sign", "floor", "ceil", "sqrt", "cbrt", "square", "exp", "exp2", "expm1", "log", "log1p", "log2")
    },
    **{name: _real_function(getattr(np, name)) for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    # shapes
    "broadcast_in_dim": _broadcast_in_dim,
    "reshape": lambda op, x: x.reshape(len(x), *op["new_sizes"]),
    "squeeze": lambda op, x: x.reshape(len(x), *(n for k, n in enumerate(x.shape[1:]) if k not in op["dimensions"])),
    "transpose": lambda op, x: x.transpose(0, *(p + 1 for p in op["permutation"])),
    "rev": lambda op, x: np.flip(x, tuple(d + 1 for d in op["dimensions"])),
    "concatenate": lambda op, *xs: np.concatenate(same_width(xs), op["dimension"] + 1),
    "slice": _slice,
    "dynamic_slice": _dynamic_slice,
    # reductions
    "reduce_sum": _reduction(np.sum),
    "reduce_prod": _reduction(np.prod),
    "reduce_and": _reduction(np.bitwise_and.reduce),
    "reduce_or": _reduction(np.bitwise_or.reduce),
    "reduce_xor": _reduction(np.bitwise_xor.reduce),
    "reduce_max": _extreme(np.max, (-np.inf, "min")),
    "reduce_min": _extreme(np.min, (np.inf, "max")),
    "argmax": _position(np.argmax),
    "argmin": _position(np.argmin),
}
"""NumPy functions `(op, *arrays) -> array` for JAX primitives, by name. They may give a wider dtype than the result
has; `evaluate` narrows it."""


Bools = NDArray[np.bool_]

_INT64 = np.iinfo(np.int64)
_EXACT = 1 << 53


# ---- Python's arithmetic


def _arithmetic(function: Callable[[Rows, Rows], Any]) -> Callable[..., Any]:
    """One of Python's operators on numbers; bools count as ints."""

    def apply(op: Op, *xs: Rows) -> Any:
        x, y = same_rank(same_width(_numbers(xs)))
        return function(x, y)

    return apply


def _numbers(xs: Sequence[Rows]) -> list[Rows]:
    return [x.astype(np.int64) if x.dtype.kind == "b" else x for x in xs]


def _true_divide(x: Rows, y: Rows) -> Rows:
    """Ints that a float cannot hold exactly are divided one by one, as Python rounds once."""
    result = np.asarray(np.true_divide(x, y))
    if is_integer(x, y) and ((abs(x) > _EXACT) | (abs(y) > _EXACT)).any():
        x, y = np.broadcast_arrays(x, y)
        exact = [a / b if b else np.nan for a, b in zip(x.ravel().tolist(), y.ravel().tolist(), strict=True)]
        return np.array(exact).reshape(x.shape)
    return result


def _python_power(x: Rows, y: Rows) -> Rows:
    """NumPy's power of floats may differ from Python's in the last bit, and so decide otherwise."""
    if is_integer(x, y) or "c" in x.dtype.kind + y.dtype.kind:
        return power(x, y)
    x, y = np.broadcast_arrays(x, y)
    powers = [_float_power(a, b) for a, b in zip(x.ravel().tolist(), y.ravel().tolist(), strict=True)]
    return np.array(powers, np.float64).reshape(x.shape)


def _float_power(x: float, y: float) -> float:
    try:
        result = x**y
    except ArithmeticError:
        return float("nan")
    return result if isinstance(result, float) else float("nan")


def _round(op: Op, x: Rows) -> Rows:
    digits = op["ndigits"]
    (x,) = _numbers([x])
    if digits is None:
        return x if is_integer(x) else saturate(np.rint(x), np.int64)
    if is_integer(x) and digits >= 0:
        return x
    return np.array([round(v, digits) for v in x.ravel().tolist()], x.dtype).reshape(x.shape)


def _int(op: Op, x: Rows) -> Rows:
    return saturate(x, np.int64)


OWN_HOST: dict[str, Callable[..., Any]] = {
    "floordiv": _arithmetic(np.floor_divide),
    "mod": _arithmetic(np.remainder),
    "truediv": _arithmetic(_true_divide),
    "pow": _arithmetic(_python_power),
    "round": _round,
    "int": _int,
}
"""The same for our own numeric operations; `pow` and `round` are other operations than JAX's of that name."""


def can_evaluate(op: Op) -> bool:
    """Has `evaluate` a NumPy function for this operation?"""
    if not op.is_jax:
        return op.name in OWN_HOST
    if op.name == "convert_element_type":
        return not jax.numpy.issubdtype(op["new_dtype"], jax.dtypes.extended)
    if op.name in ("argmax", "argmin"):
        return len(op["axes"]) == 1
    return op.name in HOST and not (op.name == "reshape" and op["dimensions"] is not None)


def evaluate(op: Op, types: Sequence[Array], xs: Sequence[Rows], rows: int = 1) -> list[Rows]:
    """The results, `[rows, *shape]` each, in the dtypes that their types have on the host.

    `types` are the result types. `rows` is read only when there are no operands. Rows that fail (`fails`) get some
    value."""
    if not can_evaluate(op) or not xs:
        return evaluate_with_jax(op, types, *xs, rows=rows)
    function = HOST[op.name] if op.is_jax else OWN_HOST[op.name]
    with np.errstate(all="ignore"):
        out = function(op, *map(np.asarray, xs))
    return [np.asarray(out).astype(host_dtype(types[0]), copy=False)]


OF_WIDTH = frozenset({"clz", "population_count"})
"""Operations that ask how many bits a number has on the device: the host has 64 for each."""


def evaluate_with_jax(op: Op, types: Sequence[Array], *xs: Rows, rows: int = 1) -> list[Rows]:
    """The results by JAX on the CPU: one program for each power of two of rows, so that few are compiled."""
    rows = len(xs[0]) if xs else rows
    if op.is_jax and op.name in OF_WIDTH:
        xs = tuple(np.asarray(x).astype(jax_compat.device_dtype(types[0])) for x in xs)
    if not rows:
        return [np.zeros((0, *t.shape), host_dtype(t)) for t in types]
    size = 1 << (rows - 1).bit_length()
    with jax.default_device(jax.local_devices(backend="cpu")[0]), jax.ensure_compile_time_eval():
        padded = [np.concatenate([x, np.repeat(x[-1:], size - rows, 0)]) if size > rows else x for x in xs]
        outs = _program(op, tuple(types), len(xs), _x64())(*padded)
        if not xs:
            outs = [np.broadcast_to(out, (rows, *np.shape(out))) for out in outs]
        return [np.asarray(out)[:rows].astype(host_dtype(t), copy=False) for out, t in zip(outs, types, strict=True)]


def _x64() -> bool:
    return bool(jax.config.read("jax_enable_x64"))


def _program(op: Op, types: tuple[Array, ...], arity: int, x64: bool) -> Callable[..., Any]:
    try:
        hash(op)
    except TypeError:  # params that cannot be hashed, such as NumPy arrays
        return _compile(op, types, arity)
    return _cached_program(op, types, arity, x64)


@cache
def _cached_program(op: Op, types: tuple[Array, ...], arity: int, x64: bool) -> Callable[..., Any]:
    return _compile(op, types, arity)


def _compile(op: Op, types: tuple[Array, ...], arity: int) -> Callable[..., Any]:
    def run(*xs: Any) -> Sequence[Any]:
        return leaf.evaluate(op, types, *xs)

    return jax.jit(jax.vmap(run) if arity else run)


# ---- failures


def never_fails(op: Op) -> bool:
    """Has the operation a result for all operands?"""
    return can_evaluate(op) and (op.is_jax, op.name) not in _FAILS


def fails(op: Op, *xs: Rows) -> Bools | None:
    """The rows in which Python raises: a division by zero, an int that needs more than 64 bits, a float that no int
    can hold. None for an operation that never fails.

    JAX primitives wrap and saturate on arrays; on Python ints (int64 here) they must not."""
    xs = tuple(map(np.asarray, xs))
    rule = _FAILS.get((op.is_jax, op.name))
    if rule is None:
        return None if can_evaluate(op) or not xs else _too_wide(xs)
    if op.is_jax and not all(x.dtype == np.int64 for x in xs):
        return None
    with np.errstate(all="ignore"):
        aligned = same_rank(same_width(xs if op.is_jax else _numbers(xs)))
        failed = np.asarray(rule(op, *aligned))
    return _any(failed)


def is_checked(op: Op, *xs: Rows) -> bool:
    """Does a check stand before the operation where it may fail (`domains.py`)? What the check says counts;
    the operation may be done ahead of it, or where it does not hold, and has any value then."""
    named = op.name in ("floordiv", "mod", "truediv", "int", "round") or (op.name == "pow" and not is_integer(*xs))
    return named and not op.is_jax


def _any(failed: Bools) -> Bools:
    """The rows in which some element is true."""
    return np.asarray(failed.reshape(len(failed), -1).any(1))


def _too_wide(xs: Sequence[Rows]) -> Bools | None:
    """Rows with ints that JAX's default integer cannot hold."""
    wide = [x for x in xs if x.dtype == np.int64]
    if _x64() or not wide:
        return None
    failed = [_any(x != x.astype(np.int32)) for x in wide]
    return np.asarray(np.logical_or.reduce(failed))


def _sum_fails(op: Op, x: Rows, y: Rows) -> Bools:
    total = x + y
    return np.asarray(((x ^ total) & (y ^ total)) < 0)


def _difference_fails(op: Op, x: Rows, y: Rows) -> Bools:
    difference = x - y
    return np.asarray(((x ^ y) & (x ^ difference)) < 0)


def _product_fails(op: Op, x: Rows, y: Rows) -> Bools:
    product = x * y
    least = ((x == -1) & (y == _INT64.min)) | ((y == -1) & (x == _INT64.min))
    return np.asarray(least | ((x != 0) & (np.floor_divide(product, np.where(x == 0, 1, x)) != y)))


def _power_overflows(x: Rows, y: Rows) -> Bools:
    """Exact: no power but (-2) ** 63 is so near 2 ** 63 that float64 could not tell on which side it lies."""
    size = np.power(np.abs(x.astype(np.float64)), np.maximum(y, 0))
    least = (x < 0) & (y % 2 == 1) & (size == 2.0**63)
    return np.asarray((y > 1) & (size >= 2.0**63) & ~least)


def _power_fails(op: Op, x: Rows, y: Rows) -> Bools:
    if is_integer(x, y):
        return np.asarray((y < 0) | _power_overflows(x, y))
    if "c" in x.dtype.kind + y.dtype.kind:
        return np.asarray((x == 0) & ((y.real < 0) | (y.imag != 0)))
    finite = np.isfinite(x) & np.isfinite(y)
    complex_result = (x < 0) & (y != np.trunc(y))
    return np.asarray(finite & (((x == 0) & (y < 0)) | complex_result | ~np.isfinite(np.power(x, y))))


def _quotient_fails(op: Op, x: Rows, y: Rows) -> Bools:
    least = is_integer(x, y) and op.name == "floordiv"
    return np.asarray((y == 0) | ((x == _INT64.min) & (y == -1) if least else False))


def _shift_fails(op: Op, x: Rows, y: Rows) -> Bools:
    amount = np.clip(y, 0, 63)
    return np.asarray((y < 0) | ((x != 0) & ((y > 63) | (np.right_shift(np.left_shift(x, amount), amount) != x))))


def _to_int_fails(op: Op, x: Rows) -> Bools:
    if x.dtype.kind != "f" or (op.name == "round" and op["ndigits"] is not None):
        return np.zeros(x.shape, bool)
    return np.asarray(~(np.abs(x) < 2.0**63))


_FAILS: dict[tuple[bool, str], Callable[..., Bools]] = {
    (False, "floordiv"): _quotient_fails,
    (False, "mod"): _quotient_fails,
    (False, "truediv"): _quotient_fails,
    (False, "pow"): _power_fails,
    (False, "round"): _to_int_fails,
    (False, "int"): _to_int_fails,
    (True, "add"): _sum_fails,
    (True, "sub"): _difference_fails,
    (True, "mul"): _product_fails,
    (True, "neg"): lambda op, x: x == _INT64.min,
    (True, "abs"): lambda op, x: x == _INT64.min,
    (True, "square"): lambda op, x: _power_overflows(x, np.full_like(x, 2)),
    (True, "integer_pow"): lambda op, x: _power_overflows(x, np.full_like(x, op["y"])),
    (True, "pow"): _power_fails,
    (True, "shift_left"): _shift_fails,
    (True, "shift_right_arithmetic"): lambda op, x, y: y < 0,
}
"""By (is it a JAX primitive?, name): the elements that fail."""

_OPERATORS: dict[str, Callable[..., Any]] = {
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "truediv": operator.truediv,
    "pow": operator.pow,
    "int": int,
    "round": round,
}


def failure(op: Op, *xs: Any) -> tuple[str, str]:
    """What Python raises for operands (of one row) that fail: the name of the exception, and its message."""
    if op.is_jax:
        shifted_back = op.name.startswith("shift") and bool(np.any(np.asarray(xs[1]) < 0))
        return ("ValueError", "negative shift count") if shifted_back else TOO_LARGE_FOR_HOST
    arrays = np.broadcast_arrays(*map(np.asarray, xs))
    for values in zip(*(a.ravel().tolist() for a in arrays), strict=True):
        try:
            result = _OPERATORS[op.name](*values)
        except (ArithmeticError, ValueError) as error:
            return type(error).__name__, str(error.args[-1])
        if isinstance(result, complex):
            return "ValueError", "a negative number to a fractional power is complex"
        if op.name == "pow" and isinstance(result, float) and isinstance(values[0], int):
            return "ValueError", "an int to the power of a negative int is a float; write float(x) ** n"
    return TOO_LARGE_FOR_HOST
