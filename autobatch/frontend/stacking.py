"""Arrays made of a list whose length is data: `jnp.stack([f(k) for k in t.kids])`, and what can be done with them.

Their first axis has no fixed length, so they are kept as lists: reductions over that axis are reductions of the list,
everything else works row by row.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.frontend import values as v
from autobatch.frontend.attributes import array_method, is_stack
from autobatch.frontend.comprehensions import make_map
from autobatch.frontend.indexing import index_array
from autobatch.frontend.joins import stored
from autobatch.frontend.layouts import LeafLayout, name_of_type
from autobatch.frontend.numbers import operand_of, traced
from autobatch.frontend.numpy_arrays import kind_of, marked
from autobatch.frontend.operators import compare_with
from autobatch.frontend.reductions import multiplied, reduce_sequence, sum_of
from autobatch.frontend.sequences import is_inside, item, length, sequence, sliced, zipped
from autobatch.frontend.state import State
from autobatch.ir.ops import own
from autobatch.ir.types import Array, List

_MAKERS = (jnp.stack, jnp.array, jnp.asarray)
_REDUCERS = {getattr(jnp, n): n for n in ("sum", "mean", "max", "min", "any", "all", "prod")}
_ROWWISE = frozenset(
    getattr(owner, n)
    for owner, names in (
        (
            jnp,
            "exp log log1p expm1 tanh sin cos sqrt square abs sign floor maximum minimum where add subtract multiply",
        ),
        (jnp, "divide power isnan isfinite logical_and logical_or logical_not clip negative reciprocal"),
        (jax.nn, "sigmoid relu gelu silu softplus elu leaky_relu log_sigmoid"),
    )
    for n in names.split()
)


def stacking(s: State, function: Any, args: Sequence[v.Abstract], kwargs: dict[str, v.Abstract]) -> v.Abstract | None:
    """The result of a function of JAX on a list of the program; None when there is none among the arguments."""
    if not any(_is_list(a) for a in (*args, *kwargs.values())):
        return None
    if function in _MAKERS and not kwargs:
        return stack(s, args[0])
    if function in _REDUCERS or getattr(function, "array_method", "") in _REDUCERS.values():
        name = _REDUCERS.get(function) or function.array_method
        return reduce_rows(s, name, _stack_of(s, args[0]), _axis(s, args[1:], kwargs))
    if function in (jax.nn.softmax, jax.nn.logsumexp):
        return _softmax(s, function is jax.nn.softmax, _stack_of(s, args[0]), _axis(s, args[1:], kwargs, -1))
    if function in (jnp.dot, jnp.matmul):
        return matmul(s, args[0], args[1])
    if function in _ROWWISE and not kwargs:
        return rowwise(s, function, [_stack_of(s, a) if _is_list(a) else a for a in args])
    name = getattr(function, "array_method", getattr(function, "__name__", "this function"))
    what = "an array" if any(is_stack(s, a) for a in (*args, *kwargs.values())) else "a list"
    s.refuse(
        f"{name}() of {what} whose length is data cannot be compiled",
        "reduce it over its first axis (sum, mean, max, softmax), or work on its rows in a comprehension",
    )


def _is_list(value: v.Abstract) -> bool:
    return isinstance(value, v.Listing) or (isinstance(value, v.Leaf) and isinstance(value.type, List))


def stack(s: State, value: v.Abstract) -> v.Listing:
    """A list of numbers or arrays of one shape as an array."""
    found = sequence(s, value)
    assert isinstance(found, v.Lazy)
    made = value if isinstance(value, v.Listing) else stored(s, found)
    if isinstance(made, v.Listing) and isinstance(made.elem, LeafLayout) and isinstance(made.elem.type, Array):
        return rowwise(s, _strong, (replace(made, array=True),)) if made.elem.type.weak else replace(made, array=True)
    of = made.elem.type if isinstance(made, v.Listing) and isinstance(made.elem, LeafLayout) else None
    held = f"; this is a list of {name_of_type(of)}" if of is not None and not isinstance(of, Array) else ""
    s.refuse(f"only numbers and arrays of one shape can be stacked{held}", "stack the parts one by one")


def _strong(x: Any) -> Any:
    return jax.lax.convert_element_type(x, x.dtype)


def _stack_of(s: State, value: v.Abstract) -> v.Listing:
    return value if isinstance(value, v.Listing) and value.array else stack(s, value)


def _row(value: v.Listing) -> Array:
    assert isinstance(value.elem, LeafLayout) and isinstance(value.elem.type, Array)
    return value.elem.type


def _axis(s: State, args: Sequence[v.Abstract], kwargs: dict[str, v.Abstract], default: Any = None) -> Any:
    axis = args[0] if args else kwargs.get("axis", v.Static(default))
    if not isinstance(axis, v.Static) or set(kwargs) - {"axis"} or len(args) > 1:
        s.refuse(
            "only the axis can be given for an array whose length is data",
            "drop the other arguments, or make the array of a list whose length is fixed",
        )
    return axis.value


def reduce_rows(s: State, kind: str, value: v.Listing, axis: Any) -> v.Abstract:
    """A reduction over the first axis, over all axes, or over an axis of the rows."""
    rank = len(_row(value).shape) + 1
    if isinstance(axis, int) and axis % rank:
        return rowwise(s, array_method(kind), (value, v.Static(axis % rank - 1)))
    if axis is None and rank > 1:
        value = rowwise(s, array_method(kind), (value,))
    if kind in ("any", "all"):
        return reduce_sequence(s, value, kind)
    if kind == "sum":
        return sum_of(s, value, v.Static(0))
    if kind == "mean":
        total = sum_of(s, value, v.Static(0))
        return traced(s, operator.truediv, total, length(s, value))
    if kind == "prod":
        return multiplied(s, value)
    some = compare_with(s, operator.gt, length(s, value), v.Static(0))
    s.check(operand_of(s, some), "ValueError", f"zero-size array to reduction operation {kind}")
    return v.Leaf(s.apply(own("reduce", kind=kind, ties="even"), value.lists, _row(value)))


def rowwise(s: State, function: Any, args: Sequence[v.Abstract]) -> v.Listing:
    """A function that works row by row, on arrays whose length is data and on others that are broadcast along them."""
    stacks = [a for a in args if isinstance(a, v.Listing)]
    rank = max(len(_row(x).shape) for x in stacks)
    for a in args:
        if isinstance(a, v.Leaf) and isinstance(a.type, Array) and len(a.type.shape) > rank:
            s.refuse("an array is combined with an array whose length is data, along that axis", "use a comprehension")
    found = sequence(s, zipped(s, stacks, True))
    assert isinstance(found, v.Lazy)

    def body(t: State, rows: v.Abstract) -> tuple[bool, Any]:
        assert isinstance(rows, v.Record)
        items = iter(rows.items)
        given = [next(items) if isinstance(a, v.Listing) else a for a in args]
        return True, lambda u: traced(u, function, *given)

    made = make_map(s, found, body)
    assert isinstance(made, v.Listing)
    return replace(made, array=True)


def operate(s: State, function: Any, args: Sequence[v.Abstract]) -> v.Abstract:
    """An operator on such arrays."""
    if function is operator.getitem:
        return index_rows(s, args[0], args[1])
    kind, args = kind_of(args), [_stack_of(s, a) if is_stack(s, a) else a for a in args]
    made = matmul(s, args[0], args[1]) if function is operator.matmul else rowwise(s, function, args)
    return marked(made, kind)


def index_rows(s: State, value: v.Abstract, index: v.Abstract) -> v.Abstract:
    """`rows[i]`, a row; `rows[i, j]`, a part of one; `rows[a:b]`, such an array again."""
    if isinstance(index, v.Static) and isinstance(index.value, tuple):
        index = v.Record("tuple", tuple(range(len(index.value))), tuple(map(v.Static, index.value)))
    match index:
        case v.Static(value=slice(start=start, stop=stop, step=step)):
            return stack(s, sliced(s, value, [v.Static(start), v.Static(stop), v.Static(step)]))
        case v.Record(cls=cls, items=items) if cls is slice:
            return stack(s, sliced(s, value, items))
        case v.Record(kind="tuple", items=(first, *rest)) if is_scalar(first):
            row = _row_at(s, value, first)
            return index_array(s, row, v.Record("tuple", tuple(range(len(rest))), tuple(rest))) if rest else row
        case _ if is_scalar(index):
            return _row_at(s, value, index)
        case _:
            s.refuse(
                "an array whose length is data is indexed by numbers, or cut by one slice",
                "index its rows in a comprehension",
            )


def _row_at(s: State, value: v.Abstract, index: v.Abstract) -> v.Abstract:
    """A row: out of range it fails where the array is one of NumPy, and is clamped where it is one of JAX."""
    kind, count = kind_of([value]), length(s, value)
    if kind:
        words = "index {} is out of bounds for axis 0 with size {}"
        inside = traced(s, is_inside, index, count).operand
        s.check(inside, "IndexError", words, (operand_of(s, index), operand_of(s, count)))
    else:
        some = compare_with(s, operator.gt, count, v.Static(0))
        s.check(operand_of(s, some), "IndexError", "index is out of bounds for axis 0 with size 0")
        if index not in (v.Static(0), v.Static(-1)):
            index = traced(s, _clamped, index, count)
    return marked(item(s, value, index), kind)


def _clamped(i: Any, n: Any) -> Any:
    return jnp.clip(jnp.where(i < 0, i + n, i), 0, n - 1)


def is_scalar(value: v.Abstract) -> bool:
    """Is it one integer?"""
    if isinstance(value, v.Static):
        return isinstance(value.value, (int, np.integer))
    return isinstance(value, v.Leaf) and isinstance(value.type, Array) and value.type.is_scalar


def matmul(s: State, a: v.Abstract, b: v.Abstract) -> v.Abstract:
    """`rows @ W`, row by row; `weights @ rows`, a sum over the rows."""
    if isinstance(a, v.Listing) and not isinstance(b, v.Listing) and _row(a).shape:
        found = sequence(s, a)
        assert isinstance(found, v.Lazy)
        made = make_map(s, found, lambda t, x: (True, lambda u: traced(u, operator.matmul, x, b)))
        assert isinstance(made, v.Listing)
        return replace(made, array=True)
    if isinstance(a, v.Listing) and isinstance(b, v.Listing) and not _row(a).shape:
        return sum_of(s, rowwise(s, operator.mul, (a, b)), v.Static(0))
    s.refuse("this product of arrays whose length is data cannot be compiled", "use a comprehension and sum()")


def _softmax(s: State, normalised: bool, value: v.Listing, axis: Any) -> v.Abstract:
    """`softmax` and `logsumexp` over the first axis, or over an axis of the rows."""
    rank = len(_row(value).shape) + 1
    if not isinstance(axis, int):
        s.refuse("the axis of softmax must be a constant int here", "write the axis as a number, e.g. axis=-1")
    if axis % rank:
        return rowwise(s, _row_softmax if normalised else _row_logsumexp, (value, v.Static(axis % rank - 1)))
    top = traced(s, jax.lax.stop_gradient, reduce_rows(s, "max", value, 0))
    weights = rowwise(s, _shifted_exp, (value, top))
    total = reduce_rows(s, "sum", weights, 0)
    if normalised:
        return rowwise(s, operator.truediv, (weights, total))
    return traced(s, _log_plus, total, top)


def _shifted_exp(x: Any, top: Any) -> Any:
    return jnp.exp(x - top)


def _log_plus(total: Any, top: Any) -> Any:
    return jnp.log(total) + top


def _row_softmax(row: Any, axis: int) -> Any:
    return jax.nn.softmax(row, axis=axis)


def _row_logsumexp(row: Any, axis: int) -> Any:
    return jax.nn.logsumexp(row, axis=axis)
