"""Arrays made of a list whose length is data: `jnp.stack([f(k) for k in t.kids])`, and what can be done with them.

Their first axis has no fixed length, so they are kept as lists: reductions over that axis are reductions of the list,
everything else works row by row.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.frontend.library.numpy_arrays import BY_NAME, alike, fits, kind_of, marked, written_out
from autobatch.frontend.library.prelude import (
    accumulate,
    along_first,
    at_places,
    in_order,
    middle,
    place_of_greatest,
    place_of_least,
    places_in_order,
    run,
    where_true,
)
from autobatch.frontend.library.tables import concatenate, flatten
from autobatch.frontend.lowering.attributes import Expanded, array_method, fields_of, is_stack
from autobatch.frontend.lowering.comprehensions import collect, columns, make_map
from autobatch.frontend.lowering.joins import as_listing, stored
from autobatch.frontend.lowering.numbers import operand_of, present, traced
from autobatch.frontend.lowering.operators import compare_with, index_array
from autobatch.frontend.lowering.reductions import extreme, multiplied, reduce_sequence, sum_of
from autobatch.frontend.lowering.selection import select
from autobatch.frontend.lowering.sequences import bounds_of, is_inside, item, length, pair, sequence, sliced, zipped
from autobatch.frontend.lowering.state import LoweringState
from autobatch.frontend.lowering.tracing import trace
from autobatch.frontend.memory.list_heap import copied
from autobatch.frontend.types import values as v
from autobatch.frontend.types.values import LeafLayout, ListingLayout, RecordLayout, RowLayout, name_of_type
from autobatch.ir.core import Array, List, Ref
from autobatch.ir.ops import own

_MAKERS = (jnp.stack, jnp.array, jnp.asarray)
_JOINING = (jnp.concatenate, jnp.vstack)
_FUNCTIONS: dict[str, Any] = {
    **{n: getattr(jnp, n) for n in ("sum", "mean", "max", "min", "any", "all", "prod", "var", "std")},
    **{n: getattr(jnp, n) for n in ("argmax", "argmin", "cumsum", "cumprod", "flip", "sort", "argsort", "median")},
    "softmax": jax.nn.softmax,
    "logsumexp": jax.nn.logsumexp,
    "norm": jnp.linalg.norm,
}
"""Functions along an axis, by name."""
_OF_AXIS = {function: name for name, function in _FUNCTIONS.items()}
_SCANS = {"cumsum": operator.add, "cumprod": operator.mul}
_OF_TWO = {
    "sum": jnp.add,
    "prod": jnp.multiply,
    "max": jnp.maximum,
    "min": jnp.minimum,
    "any": jnp.logical_or,
    "all": jnp.logical_and,
}
_ORDERED = {"sort": in_order, "argsort": places_in_order, "median": middle}
"""Functions of an array of numbers that put it in order."""
_ROWWISE = frozenset(
    {
        *(getattr(jnp, n) for n, f in vars(np).items() if isinstance(f, np.ufunc) and hasattr(jnp, n)),
        *(getattr(jnp, n) for n in ("abs", "where", "clip", "round", "real", "imag", "nan_to_num")),
        *(getattr(jax.nn, n) for n in ("sigmoid", "relu", "gelu", "silu", "softplus", "elu", "leaky_relu")),
        jax.nn.log_sigmoid,
    }
) - {jnp.matmul}
"""Functions that work number by number."""


def stacking(
    s: LoweringState, function: Any, args: Sequence[v.Abstract], kwargs: dict[str, v.Abstract]
) -> v.Abstract | None:
    """The result of a function of JAX on a list of the program; None when there is none among the arguments."""
    if function in (*_JOINING, jnp.stack, jnp.column_stack) and args and isinstance(args[0], v.Record):
        parts = [_array_of(s, x) for x in args[0].items]
        if not any(map(_is_list, parts)):
            return trace(s, function, [pair(*parts), *args[1:]], kwargs) if function in _JOINING else None
        if function in (jnp.stack, jnp.vstack, jnp.column_stack) and all(_rank(x) == 1 for x in parts):
            axis = 1 if function is jnp.column_stack else _axis(s, args[1:], kwargs, 0)[0]
            _check_alike(s, parts, "all input arrays must have the same shape")
            return _as_rows(s, parts) if axis in (0, -2) else run(s, BY_NAME["column_stack"], [pair(*parts)], {})
        if function in _JOINING:
            return _joined(s, parts, _axis(s, args[1:], kwargs, 0)[0])
    if not any(_is_list(a) or is_stack(s, a) for a in (*args, *kwargs.values())):
        return None
    if not kwargs and (made := _mapped(s, args)) is not None:
        return made
    if function in _MAKERS and not kwargs:
        return stack(s, args[0])
    if function is jnp.append and _axis(s, args[2:], kwargs)[0] in (None, 0) and _rank(args[0]) == 1:
        return _joined(s, [args[0], v.Record("list", (0,), (args[1],)) if _rank(args[1]) == 0 else args[1]], 0)
    if function in (jnp.dot, jnp.matmul) or getattr(function, "array_method", "") == "dot":
        return matmul(s, args[0], args[1])
    if function is jnp.outer and not kwargs:
        return outer(s, *args)
    if function is jnp.einsum and not kwargs and isinstance(args[0], v.Static) and isinstance(args[0].value, str):
        return einsum(s, args[0].value.replace(" ", ""), args[1:])
    if function in _ROWWISE and not kwargs:
        return combined(s, function, [_stack_of(s, a) if _is_list(a) else a for a in args])
    method = getattr(function, "array_method", "")
    name = _OF_AXIS.get(function) or (method if method in _FUNCTIONS and hasattr(jax.Array, method) else "")
    if name:
        rest = args[2:] if name == "norm" and args[1:2] == [v.Static(None)] else args[1:]  # its `ord`
        if name == "norm" and len(rest) == len(args) - 1 and rest:
            s.refuse(
                "norm() of an array whose length is data is the Euclidean one", "write it out: jnp.abs(x).sum(axis)"
            )
        axis, keep = _axis(s, rest, kwargs, -1 if name in ("softmax", "sort", "argsort") else None)
        return along(s, name, _stack_of(s, args[0]), axis, keep)
    if method in _SELF and len(args) == 1 + (method == "astype") and not kwargs:
        return _same_numbers(s, method, _stack_of(s, args[0]), args[1:])
    if (written := written_out(function)) is not None:
        arrays = [_stack_of(s, a) if _is_list(a) else a for a in args]
        missing = list(inspect.signature(written).parameters.values())[len(args) :]
        defaults = {p.name: v.Static(p.default) for p in missing if p.default is not p.empty}
        if fits(written, list(map(_rank, arrays))):
            return run(s, written, arrays, {**defaults, **kwargs})
    shown = method or getattr(function, "__name__", "this function")
    what = "an array" if any(is_stack(s, a) for a in (*args, *kwargs.values())) else "a list"
    s.refuse(
        f"{shown}() of {what} whose length is data cannot be compiled",
        "reduce it over its first axis (sum, mean, max, softmax), or work on its rows in a comprehension",
    )


def _check_alike(s: LoweringState, parts: Sequence[v.Abstract], words: str) -> None:
    """Arrays that are stacked or combined have one length."""
    first, *others = (length(s, sequence(s, x)) for x in parts)
    for other in others:
        if other != first:
            same = traced(s, operator.eq, first, other).operand
            s.check(same, "ValueError", words)


def _as_rows(s: LoweringState, parts: Sequence[v.Abstract]) -> v.Listing:
    """An array whose rows these arrays are, which have one length."""
    lists = [replace(_stack_of(s, x), array=False) for x in parts]
    return stack(s, as_listing(s, v.Record("list", tuple(range(len(lists))), tuple(lists))))


def _array_of(s: LoweringState, value: v.Abstract) -> v.Abstract:
    """A list or tuple of numbers that is written out, as an array; other values as they are."""
    if not isinstance(value, v.Record) or value.kind not in ("list", "tuple"):
        return value
    return trace(s, jnp.array, [value], {})


_SELF = frozenset(("copy", "astype", "flatten", "ravel", "tolist"))
"""Methods that give the same numbers in another form."""


def _same_numbers(s: LoweringState, method: str, value: v.Listing, rest: Sequence[v.Abstract]) -> v.Abstract:
    if method == "copy":
        return value
    if method == "astype":
        assert isinstance(rest[0], v.Static)
        return rowwise(s, _of_dtype(np.dtype(rest[0].value)), (value,))
    if method == "tolist" and not _is_deep(value) and not _row(value).shape:
        return replace(value, array=False)
    if method in ("flatten", "ravel") and _rank(value) == 1:
        return value
    if method in ("flatten", "ravel") and _is_deep(value):
        assert isinstance(value.elem, ListingLayout)
        return stack(s, flatten(s, replace(value, array=False, elem=replace(value.elem, array=False))))
    s.refuse(f"{method}() of an array with these axes whose length is data", "write a comprehension over its rows")


@lru_cache(maxsize=32)
def _of_dtype(dtype: np.dtype[Any]) -> Any:
    def of_dtype(x: Any) -> Any:
        return x.astype(dtype)

    of_dtype.__module__ = "jax"
    return of_dtype


def _mapped(s: LoweringState, args: Sequence[v.Abstract]) -> v.Abstract | None:
    """`jax.vmap(f)(rows)`: the function, row by row. None for any other call."""
    match args:
        case [v.Method(name=v.DEFERRED, receiver=v.Record(items=(v.Static(value=transform), given, named))), *xs]:
            if transform is not jax.vmap or not isinstance(given, v.Record) or not isinstance(named, v.Record):
                return None
        case _:
            return None
    says = dict(zip(named.keys, named.items, strict=True))
    axes = given.items[1] if len(given.items) > 1 else says.pop("in_axes", v.Static(0))
    if isinstance(axes, v.Record):
        each = [a.value if isinstance(a, v.Static) else ... for a in axes.items]
    else:
        held = axes.value if isinstance(axes, v.Static) else ...
        each = list(held) if isinstance(held, tuple | list) else [held] * len(xs)
    fits = len(each) == len(xs) and all(
        a is None or (a == 0 and is_stack(s, x)) for a, x in zip(each, xs, strict=False)
    )
    if says or len(given.items) > 2 or not fits:
        s.refuse(
            "jax.vmap() over an array whose length is data maps its rows alone", "use a comprehension and jnp.stack"
        )

    def of_row(t: LoweringState, *rows: v.Abstract) -> v.Abstract:
        items = iter(rows)
        return t.call(given.items[0], [x if a is None else next(items) for a, x in zip(each, xs, strict=True)])

    made = _each(s, [_stack_of(s, x) for a, x in zip(each, xs, strict=True) if a == 0], of_row)
    return stack(s, replace(made, array=False))


def _is_list(value: v.Abstract) -> bool:
    return isinstance(value, v.Listing) or (isinstance(value, v.Leaf) and isinstance(value.type, List))


def stack(s: LoweringState, value: v.Abstract) -> v.Listing:
    """A list of numbers or arrays of one shape as an array; so are its elements, where they are such lists."""
    found = sequence(s, value)
    assert isinstance(found, v.Lazy)
    made = value if isinstance(value, v.Listing) else stored(s, found)
    if isinstance(made, v.Listing) and isinstance(made.elem, LeafLayout) and isinstance(made.elem.type, Array):
        return rowwise(s, _strong, (replace(made, array=True),)) if made.elem.type.weak else replace(made, array=True)
    if isinstance(made, v.Listing) and isinstance(made.elem, ListingLayout):
        return made if made.array and made.elem.array else _each(s, [made], stack)
    if isinstance(made, v.Listing) and isinstance(made.elem, RecordLayout) and made.elem.kind in ("list", "tuple"):
        return stack(s, _each(s, [made], lambda t, row: trace(t, jnp.array, [row], {})))
    elem = made.elem if isinstance(made, v.Listing) else None
    if isinstance(elem, RowLayout) or (isinstance(elem, LeafLayout) and isinstance(elem.type, List)):
        assert isinstance(made, v.Listing)
        words = "the requested array has an inhomogeneous shape after 1 dimensions"
        s.check(operand_of(s, run(s, alike, [value], {})), "ValueError", words)
        return _each(s, [made], lambda t, row: stack(t, copied(t, row)))
    of = made.elem.type if isinstance(made, v.Listing) and isinstance(made.elem, LeafLayout) else None
    held = f"; this is a list of {name_of_type(of)}" if of is not None and not isinstance(of, Array) else ""
    s.refuse(f"only numbers and arrays of one shape can be stacked{held}", "stack the parts one by one")


def _strong(x: Any) -> Any:
    return jax.lax.convert_element_type(x, x.dtype)


def _stack_of(s: LoweringState, value: v.Abstract) -> v.Listing:
    if isinstance(value, v.Record) and value.cls is Expanded:
        s.refuse(
            "an array whose length is data is behind [None] an operand of arithmetic alone",
            "combine it with another: x[:, None] - y[None]",
        )
    if isinstance(value, v.Record):
        s.refuse("the transpose of an array whose length is data is an operand of @ alone", "write x where it is x.T.T")
    return value if isinstance(value, v.Listing) and value.array else stack(s, value)


def _row(value: v.Listing) -> Array:
    assert isinstance(value.elem, LeafLayout) and isinstance(value.elem.type, Array)
    return value.elem.type


def _is_deep(value: v.Abstract) -> bool:
    """Are the rows, too, arrays whose length is data?"""
    return isinstance(value, v.Listing) and isinstance(value.elem, ListingLayout)


def _is_expanded(value: v.Abstract) -> bool:
    return isinstance(value, v.Record) and value.cls is Expanded


def _rank(value: v.Abstract) -> int:
    """How many axes a value has."""
    if isinstance(value, v.Record) and value.cls is Expanded:
        return 1 + _rank(value.items[0])
    if isinstance(value, v.Listing):
        elem, rank = value.elem, 1
        while isinstance(elem, ListingLayout):
            elem, rank = elem.elem, rank + 1
        return rank + (len(elem.type.shape) if isinstance(elem, LeafLayout) and isinstance(elem.type, Array) else 0)
    if isinstance(value, v.Leaf) and isinstance(value.type, Array):
        return len(value.type.shape)
    return np.ndim(value.value) if isinstance(value, v.Static) and hasattr(value.value, "ndim") else 0


def _axis(
    s: LoweringState, args: Sequence[v.Abstract], kwargs: dict[str, v.Abstract], default: Any = None
) -> tuple[Any, bool]:
    """The axis, and whether it stays, with length 1."""
    axis, keep = args[0] if args else kwargs.get("axis", v.Static(default)), kwargs.get("keepdims", v.Static(False))
    if (
        not (isinstance(axis, v.Static) and isinstance(keep, v.Static))
        or set(kwargs) - {"axis", "keepdims"}
        or args[1:]
    ):
        s.refuse(
            "only the axis and keepdims can be given for an array whose length is data",
            "drop the other arguments, or make the array of a list whose length is fixed",
        )
    return axis.value, bool(keep.value)


def along(s: LoweringState, name: str, value: v.Listing, axis: Any, keep: bool) -> v.Abstract:
    """A function along an axis: the first one, all, or one of the rows."""
    rank = _rank(value)
    if isinstance(axis, int) and axis % rank:
        inner = axis % rank - 1
        if _is_deep(value):
            return _each(s, [value], lambda t, row: along(t, name, _stack_of(t, row), inner, keep))
        return rowwise(s, _of_row(name, inner, keep), (value,))
    if not (axis is None or axis == 0 or axis == -rank):
        s.refuse(
            f"the axis of {name}() of an array whose length is data must be a constant", "write it as a number: axis=0"
        )
    if name == "flip" and (axis is not None or rank == 1):
        return index_rows(s, value, v.Static(slice(None, None, -1)))
    if name in _SCANS or name == "flip":
        if axis is None and rank > 1:
            s.refuse(f"{name}() of all axes of an array whose length is data", "give the axis: axis=0")
        return stack(s, run(s, accumulate, [value], {"function": v.Static(_SCANS[name])}))
    if name in _ORDERED:
        if rank > 1:
            s.refuse(f"{name}() of an array whose length is data is along its last axis, or of numbers", "give axis=-1")
        made = run(s, _ORDERED[name], [value], {})
        return made if name == "median" else stack(s, made)
    if _is_deep(value) and axis is not None and name in ("argmax", "argmin"):
        turned = run(s, BY_NAME["transpose"], [value], {})
        assert isinstance(turned, v.Listing)
        return along(s, name, turned, 1, keep)
    made = _of_first(s, name, value, axis)
    if keep and isinstance(made, v.Listing) and name != "softmax":
        return v.Record("object", ("rows",), (made,), Expanded)
    if not keep or isinstance(made, v.Listing):
        return made
    return traced(s, jnp.expand_dims, made, v.Static(0 if axis is not None else tuple(range(rank))))


def _of_first(s: LoweringState, name: str, value: v.Listing, axis: Any) -> v.Abstract:
    if name in ("softmax", "logsumexp"):
        return _softmax(s, name == "softmax", value, axis)
    if name in ("var", "std"):
        apart = rowwise(s, operator.sub, (value, _reduced(s, "mean", value, axis)))
        found = _reduced(s, "mean", rowwise(s, operator.mul, (apart, apart)), axis)
        return _applied(s, jnp.sqrt, found) if name == "std" else found
    if name == "norm":
        return _applied(s, jnp.sqrt, _reduced(s, "sum", rowwise(s, operator.mul, (value, value)), axis))
    if name in ("argmax", "argmin"):
        if axis is None and _rank(value) > 1:
            s.refuse(f"{name}() of all axes of an array whose length is data", "give the axis: axis=0")
        return run(s, place_of_greatest if name == "argmax" else place_of_least, [value], {})
    return _reduced(s, name, value, axis)


def _applied(s: LoweringState, function: Any, *args: v.Abstract) -> v.Abstract:
    """A function that works number by number, on what a reduction gives."""
    return rowwise(s, function, args) if any(isinstance(a, v.Listing) for a in args) else traced(s, function, *args)


def _reduced(s: LoweringState, kind: str, value: v.Listing, axis: Any) -> v.Abstract:
    """A reduction over the first axis, or over all axes."""
    if axis is not None and _is_deep(value):
        if kind == "mean":
            return rowwise(s, operator.truediv, (_stack_of(s, _reduced(s, "sum", value, axis)), length(s, value)))
        return stack(s, run(s, along_first, [value], {"function": v.Static(_OF_TWO[kind])}))
    if axis is None and _is_deep(value):
        value = _each(s, [value], lambda t, row: _reduced(t, kind, _stack_of(t, row), None))
    elif axis is None and _rank(value) > 1:
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


@lru_cache(maxsize=256)
def _of_row(name: str, axis: int, keep: bool) -> Any:
    """The function along an axis of one row; one for each, so that its traces are found again."""
    function, given = _FUNCTIONS[name], {"keepdims": True} if keep else {}

    def of_row(row: Any) -> Any:
        return function(row, axis=axis, **given)

    of_row.__module__, of_row.__name__ = "jax", name
    return of_row


def combined(s: LoweringState, function: Any, args: Sequence[v.Abstract]) -> v.Abstract:
    """A function that works number by number. What is behind `[None]` alone, or with arrays of fewer axes, stays so."""
    most = max((_rank(a) for a in args if _is_expanded(a)), default=0)
    if not most or any(isinstance(a, v.Listing) and _rank(a) >= most for a in args):
        return rowwise(s, function, args)
    made = rowwise(s, function, [_collapsed(a) for a in args])
    return v.Record("object", ("rows",), (made,), Expanded)


def _collapsed(value: v.Abstract) -> v.Abstract:
    """An operand as each row of another one meets it."""
    return value.items[0] if isinstance(value, v.Record) and value.cls is Expanded else value


def rowwise(s: LoweringState, function: Any, args: Sequence[v.Abstract]) -> v.Listing:
    """A function that works number by number, on arrays whose length is data and on others that are broadcast along
    their last axes, as NumPy does. One behind `[None]` is combined with each row of the others."""
    expanded = any(map(_is_expanded, args))
    rank = max(_rank(a) for a in args if isinstance(a, v.Listing))
    whole = [a for a in args if isinstance(a, v.Listing) and _rank(a) == rank]
    deep = expanded or any(map(_is_deep, whole))
    for a in args:
        if _is_expanded(a) and _rank(a) == rank:
            continue
        others = isinstance(a, v.Listing) and _rank(a) < rank and not deep
        if others or (not isinstance(a, v.Listing) and _rank(a) >= rank):
            s.refuse("an array is combined with an array whose length is data, along that axis", "use a comprehension")

    def row(t: LoweringState, *rows: v.Abstract) -> v.Abstract:
        items = iter(rows)
        given = [next(items) if isinstance(a, v.Listing) and _rank(a) == rank else a for a in args]
        if deep:
            given = [_collapsed(a) for a in given]
            return rowwise(t, function, [_broadcast(t, a, rank - 2) for a in given])
        return traced(t, function, *given)

    return _each(s, whole, row)


def _broadcast(s: LoweringState, row: v.Abstract, rank: int) -> v.Abstract:
    """An operand of a row whose first axis has a length that is data: a first axis of length one is dropped."""
    if (
        isinstance(row, v.Leaf)
        and isinstance(row.type, Array)
        and len(row.type.shape) > rank
        and row.type.shape[0] == 1
    ):
        return traced(s, operator.getitem, row, v.Static(0))
    return row


def _each(s: LoweringState, stacks: Sequence[v.Listing], do: Callable[..., v.Abstract]) -> v.Listing:
    """`do(state, *rows)` for the rows of arrays of one length."""
    _check_alike(s, stacks, "operands could not be broadcast together")
    found = sequence(s, zipped(s, stacks, False))
    assert isinstance(found, v.Lazy)

    def body(t: LoweringState, rows: v.Abstract) -> tuple[bool, Any]:
        assert isinstance(rows, v.Record)
        return True, lambda u: do(u, *rows.items)

    made = make_map(s, found, body)
    assert isinstance(made, v.Listing)
    return replace(made, array=True)


def _joined(s: LoweringState, parts: Sequence[v.Abstract], axis: Any) -> v.Abstract:
    """Arrays behind one another; along an axis of the rows, row by row."""
    stacks = [_stack_of(s, x) if _is_list(x) else x for x in parts]
    if axis == 0:
        stacks = [_rows_of(s, x) if isinstance(x, v.Leaf) else x for x in stacks]
        return stack(s, concatenate(s, *(replace(x, array=False) if isinstance(x, v.Listing) else x for x in stacks)))
    if not isinstance(axis, int) or not all(isinstance(x, v.Listing) and not _is_deep(x) for x in stacks):
        s.refuse("arrays whose length is data are joined along their first axis, or row by row", "use a comprehension")
    return _each(
        s, [x for x in stacks if isinstance(x, v.Listing)], lambda t, *rows: traced(t, _side_by_side(axis), *rows)
    )


def _rows_of(s: LoweringState, array: v.Leaf) -> v.Record:
    """The rows of an array whose shape is fixed."""
    assert isinstance(array.type, Array)
    return pair(*(traced(s, operator.getitem, array, v.Static(k)) for k in range(array.type.shape[0])))


@lru_cache(maxsize=16)
def _side_by_side(axis: int) -> Any:
    def side_by_side(*rows: Any) -> Any:
        return jnp.concatenate(rows, axis=axis - 1 if axis > 0 else axis)

    side_by_side.__module__ = "jax"
    return side_by_side


def operate(s: LoweringState, function: Any, args: Sequence[v.Abstract]) -> v.Abstract:
    """An operator on such arrays."""
    if function is operator.getitem:
        return marked(index_rows(s, args[0], args[1]), kind_of(args[:1]))
    if function is operator.matmul:
        return marked(matmul(s, args[0], args[1]), kind_of(args))
    kind, args = kind_of(args), [a if _is_expanded(a) or not is_stack(s, a) else _stack_of(s, a) for a in args]
    return marked(combined(s, function, args), kind)


def index_rows(s: LoweringState, value: v.Abstract, index: v.Abstract) -> v.Abstract:
    """`rows[i]`, a row; `rows[i, j]`, a part of one; `rows[a:b]`, such an array again."""
    if isinstance(index, v.Static) and isinstance(index.value, tuple):
        index = v.Record("tuple", tuple(range(len(index.value))), tuple(map(v.Static, index.value)))
    if isinstance(value, v.Record):
        value = _stack_of(s, value)
    match index:
        case v.Static(value=None):
            return v.Record("object", ("rows",), (_stack_of(s, value),), Expanded)
        case v.Record(kind="tuple", items=(v.Static(value=None), *rest)) if not (rest and rest[0] == v.Static(None)):
            part = v.Record("tuple", tuple(range(len(rest))), tuple(rest))
            return index_rows(s, index_rows(s, value, part) if rest else value, v.Static(None))
        case _ if (bounds := bounds_of(index)) is not None:
            return stack(s, sliced(s, value, bounds))
        case v.Record(kind="tuple", items=(first, *rest)) if bounds_of(first) is not None:
            rows, kind = _stack_of(s, index_rows(s, value, first)), kind_of([value])
            return _each(s, [rows], lambda t, row: _part_of(t, marked(row, kind), rest)) if rest else rows
        case v.Record(kind="tuple", items=(first, *rest)) if is_scalar(first):
            row = _row_at(s, value, first)
            return _part_of(s, row, rest) if rest else row
        case _ if is_scalar(index):
            return _row_at(s, value, index)
        case v.Listing() | v.Leaf() | v.Record(kind="list") if (picked := _picked(s, value, index)) is not None:
            return picked
        case _:
            s.refuse(
                "an array whose length is data is indexed by numbers, or cut by one slice",
                "index its rows in a comprehension",
            )


def _part_of(s: LoweringState, row: v.Abstract, rest: Sequence[v.Abstract]) -> v.Abstract:
    """What of a row the other parts of an index pick."""
    index = v.Record("tuple", tuple(range(len(rest))), tuple(rest))
    return index_rows(s, row, index) if is_stack(s, row) else index_array(s, row, index)


def _picked(s: LoweringState, value: v.Abstract, index: v.Abstract) -> v.Abstract | None:
    """`rows[mask]`, and `rows[places]` of an array or list of integers; None of anything else."""
    index = _array_of(s, index)
    if isinstance(index, v.Leaf) and isinstance(index.type, Array):
        if len(index.type.shape) != 1 or not index.type.is_integer:
            return None
        rows = pair(*(index_rows(s, value, x) for x in _rows_of(s, index).items))
        return marked(trace(s, jnp.stack, [rows], {}), kind_of([value]))
    places = _stack_of(s, index)
    if _is_deep(places) or _row(places).shape or not (_row(places).is_bool or _row(places).is_integer):
        return None
    made = run(s, where_true if _row(places).is_bool else at_places, [value, places], {})
    return marked(stack(s, made), kind_of([value]))


def _row_at(s: LoweringState, value: v.Abstract, index: v.Abstract) -> v.Abstract:
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
        return isinstance(value.value, (int, np.integer)) and not isinstance(value.value, bool)
    type = value.type if isinstance(value, v.Leaf) else None
    return isinstance(type, Array) and type.is_scalar and type.is_integer


def matmul(s: LoweringState, a: v.Abstract, b: v.Abstract) -> v.Abstract:
    """`rows @ W`, row by row; `weights @ rows`, a sum over the rows; `rows @ others.T`, the products of all pairs;
    `rows.T @ others`, a sum of outer products."""
    turned_a, turned_b = (isinstance(x, v.Record) and is_stack(s, x) for x in (a, b))
    a, b = (x.items[0] if isinstance(x, v.Record) and is_stack(s, x) else x for x in (a, b))
    a, b = (_stack_of(s, x) if _is_list(x) else x for x in (a, b))
    match a, b:
        case v.Listing(), v.Listing() if turned_a and not turned_b and not (_is_deep(a) or _is_deep(b)):
            return sum_of(s, _each(s, [a, b], lambda t, x, y: traced(t, _outer, x, y)), v.Static(0))
        case v.Listing(), v.Listing() if turned_b and not turned_a and _rank(a) == 2 and not _is_deep(a):
            return _each(s, [a], lambda t, x: matmul(t, b, x))
        case _, v.Listing() if turned_b and not turned_a and _rank(a) == 1:
            return matmul(s, b, a)
        case v.Listing(), v.Listing() if not (turned_a or turned_b) and _is_deep(a):
            return _each(s, [a], lambda t, x: matmul(t, x, b))
        case v.Listing(), v.Listing() if not (turned_a or turned_b) and _rank(a) == 1:
            return sum_of(s, _each(s, [a, b], lambda t, x, y: traced(t, operator.mul, x, y)), v.Static(0))
        case v.Listing(), _ if not (turned_a or _is_deep(a) or isinstance(b, v.Listing)) and _row(a).shape:
            return _each(s, [a], lambda t, x: traced(t, operator.matmul, x, b))
        case _:
            s.refuse("this product of arrays whose length is data cannot be compiled", "use a comprehension and sum()")


def outer(s: LoweringState, a: v.Abstract, b: v.Abstract) -> v.Abstract:
    """`np.outer(a, b)`: the second one times each number of the first one."""
    a, b = (_stack_of(s, x) if _is_list(x) or is_stack(s, x) else x for x in (a, b))
    if _rank(a) != 1 or _rank(b) != 1:
        s.refuse("outer() of arrays with more than one axis", "write x[:, None] * y[None]")
    if isinstance(a, v.Leaf):
        a = stack(s, as_listing(s, _rows_of(s, a)))
    assert isinstance(a, v.Listing)
    return _each(s, [a], lambda t, x: _applied(t, operator.mul, b, x))


def einsum(s: LoweringState, spec: str, xs: Sequence[v.Abstract]) -> v.Abstract:
    """`jnp.einsum`: an axis whose length is data is a loop over the rows of all operands that have it; what it is not
    in the result is summed."""
    given, arrow, out = spec.partition("->")
    named = given.split(",")
    plain = all(len(set(n)) == len(n) and n.isalpha() for n in named if n) and len(set(out)) == len(out)
    if not (arrow and plain and len(named) == len(xs)):
        s.refuse(
            "einsum() of arrays whose length is data is by letters, each once in an operand, with a result",
            "write it as 'nd,md->nm'",
        )
    xs = [_stack_of(s, x) if _is_list(x) or is_stack(s, x) else x for x in xs]
    if any(len(n) != _rank(x) for n, x in zip(named, xs, strict=True)):
        s.refuse("an operand of einsum() has other axes than its letters say", "a letter for each axis")
    open = [n[0] for n, x in zip(named, xs, strict=True) if isinstance(x, v.Listing)]
    if not open:
        return traced(s, _einsum(spec), *xs)
    first = out[0] if out and out[0] in open else next((c for c in open if c not in out), "")
    having = [x for n, x in zip(named, xs, strict=True) if first and n[:1] == first and isinstance(x, v.Listing)]
    elsewhere = any(first in (n[1:] if isinstance(x, v.Listing) else n) for n, x in zip(named, xs, strict=True))
    if not first or elsewhere:
        s.refuse(
            "einsum() with an axis whose length is data that is not the first one", "put these axes first, or transpose"
        )
    rest = ",".join(n[1:] if n[:1] == first else n for n in named) + "->" + out.removeprefix(first)

    def of_row(t: LoweringState, *rows: v.Abstract) -> v.Abstract:
        items = iter(rows)
        return einsum(t, rest, [next(items) if n[:1] == first else x for n, x in zip(named, xs, strict=True)])

    made = _each(s, having, of_row)
    return stack(s, replace(made, array=False)) if first in out else sum_of(s, made, v.Static(0))


@lru_cache(maxsize=256)
def _einsum(spec: str) -> Any:
    def einsum(*xs: Any) -> Any:
        return jnp.einsum(spec, *xs)

    einsum.__module__ = "jax"
    return einsum


def _outer(x: Any, y: Any) -> Any:
    return jnp.tensordot(x, y, 0)


def _softmax(s: LoweringState, normalised: bool, value: v.Listing, axis: Any) -> v.Abstract:
    """`softmax` and `logsumexp` over the first axis, or over all axes."""
    top = _applied(s, jax.lax.stop_gradient, _reduced(s, "max", value, axis))
    weights = rowwise(s, _shifted_exp, (value, top))
    total = _reduced(s, "sum", weights, axis)
    if normalised:
        return rowwise(s, operator.truediv, (weights, total))
    return _applied(s, _log_plus, total, top)


def _shifted_exp(x: Any, top: Any) -> Any:
    return jnp.exp(x - top)


def _log_plus(total: Any, top: Any) -> Any:
    return jnp.log(total) + top


# ---- transposing
#
# `zip(*rows)` where the number of rows is data: the columns of a list of tuples, or of a list of lists.
#
# hs, ns = zip(*[go(k) for k in t.kids])      of nothing it is nothing, so that unpacking it fails as in Python


def transposed(s: LoweringState, found: v.Lazy) -> v.Abstract:
    """The columns of rows: tuples of one length, or lists, of which the shortest tells how many columns there are."""
    rows = collect(s, found, lambda t, x: (True, lambda u: _row_of_transposing(u, x)))
    if isinstance(rows, v.Record):
        return v.Record("tuple", (), ())
    if isinstance(rows.elem, RecordLayout) and rows.elem.kind in ("tuple", "namedtuple"):
        return _of_tuples(s, rows, rows.elem)
    lengths = collect(s, found, lambda t, x: (True, lambda u: length(u, x)))
    count = extreme(s, [lengths], {"default": v.Static(0)}, operator.lt)
    whole = sequence(s, rows)
    assert isinstance(whole, v.Lazy)
    return v.Lazy(count, lambda t, i: v.Lazy(whole.length, lambda u, j: item(u, whole.item(u, j), i), is_tuple=True))


def _row_of_transposing(s: LoweringState, value: v.Abstract) -> v.Abstract:
    """A row; a tuple of the examples as its fields."""
    value = present(s, value)
    if isinstance(value, v.Leaf) and isinstance(value.type, Ref):
        return fields_of(s, value) or value
    return stored(s, copied(s, value))


def _of_tuples(s: LoweringState, rows: v.Listing, row: RecordLayout) -> v.Abstract:
    made = columns(s, rows, len(row.items))
    count = traced(s, _where_some, length(s, rows), v.Static(len(made)))

    def column(t: LoweringState, index: v.Abstract) -> v.Abstract:
        return made[index.value] if isinstance(index, v.Static) else select(t, operand_of(t, index), made)

    return v.Lazy(count, column)


def _where_some(rows: Any, count: Any) -> Any:
    return count * (rows > 0)
