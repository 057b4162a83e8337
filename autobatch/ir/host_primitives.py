"""JAX primitives in NumPy, over rows: `HOST`, one row a primitive.

Values have a leading axis of rows, `[rows, *shape]`. The results are those of XLA on the CPU, but for the last bits of
transcendental functions, and may be wider than the result's dtype: `host_ops.evaluate` narrows them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autobatch.ir import jax_compat
from autobatch.ir.ops import Op
from autobatch.ir.types import Array

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
