"""Arrays of NumPy whose shape is data, which are filled and changed in place.

    t = np.zeros((n, m))      a buffer, a list of n * m numbers; offset 0, extents (n, m), strides (m, 1)
    t[i, j] = x               buffer[offset + i * m + j] = x
    row = t[i]                a view of the same buffer: offset i * m, extents (m,), strides (1,)
    t.sum(axis=0) + 1.0       the array as a value (`stacking.py`), a copy

They are objects that hold a list, so that they are shared, changed, kept in containers and differentiated as objects of
the user are. Axes at the end whose length is fixed belong to the elements of the buffer: np.zeros((n, 3)) has elements
of shape (3,). This is the strided layout of NumPy's own arrays ("Internal organization of NumPy arrays").
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, lru_cache, partial, reduce
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.frontend.library import numpy_arrays, stacking
from autobatch.frontend.library.numpy_arrays import DynamicArray, dynamic_class, is_dynamic, marked
from autobatch.frontend.library.prelude import run
from autobatch.frontend.lowering.attributes import At, array_method, attribute, is_stack, updated
from autobatch.frontend.lowering.comprehensions import make_map
from autobatch.frontend.lowering.joins import convert
from autobatch.frontend.lowering.numbers import operand_of, present, traced, unary
from autobatch.frontend.lowering.operators import COMPARE, apply_binary, compare_with, index_array, not_equal, subscript
from autobatch.frontend.lowering.sequences import (
    arithmetic,
    as_index,
    bounds_of,
    is_inside,
    length,
    make_range,
    pair,
    sequence,
    sliced,
)
from autobatch.frontend.lowering.state import LoweringState
from autobatch.frontend.lowering.tracing import trace
from autobatch.frontend.memory import array_stores, list_heap
from autobatch.frontend.memory.heaps import left_by_entry
from autobatch.frontend.types import values as v
from autobatch.frontend.types.specialisation import need
from autobatch.frontend.types.values import LeafLayout, ListingLayout
from autobatch.ir.core import Array, List

Arguments = Sequence[v.Abstract]
Named = dict[str, v.Abstract]
Axes = list[tuple[v.Abstract, v.Abstract]]
"""The extent and the stride of each axis."""
_ALL = v.Static(slice(None))


@cache
def _class_of(
    rank: int, dtype: np.dtype[Any], shape: tuple[int, ...], known: tuple[int | None, ...] = ()
) -> type[DynamicArray]:
    """Arrays with so many axes whose length is data, of elements of one type: a class of its own, as the fields of a
    class have one type each."""
    known = known or (None,) * rank
    return type("ndarray", (DynamicArray,), {"rank": rank, "dtype": dtype, "element_shape": shape, "known": known})


# ---- making


def made(s: LoweringState, function: Any, args: Arguments, named: Named) -> v.Abstract | None:
    """The result of a function of NumPy that makes an array whose shape is data; None of any other call."""
    maker = _MAKERS.get(function)
    return None if maker is None else maker(s, args, named)


def _filled(s: LoweringState, args: Arguments, named: Named, fill: int | None) -> v.Abstract | None:
    """`np.zeros(shape, dtype)` and its kin; without a `fill`, `np.full(shape, fill_value, dtype)`."""
    names = ("shape", "dtype") if fill is not None else ("shape", "fill_value", "dtype")
    given = dict(zip(names, args, strict=False)) | named
    shape = _extents(s, given.get("shape"))
    if shape is None or set(given) - set(names):
        return None
    value = given["fill_value"] if fill is None else v.Static(fill)
    return _allocate(
        s, shape, value, _dtype(s, given.get("dtype"), v.Static(float(fill)) if fill is not None else value)
    )


def _filled_like(s: LoweringState, args: Arguments, named: Named, fill: int | None) -> v.Abstract | None:
    """`np.zeros_like(a, dtype)` and its kin; without a `fill`, `np.full_like(a, fill_value, dtype)`."""
    names = ("a", "dtype") if fill is not None else ("a", "fill_value", "dtype")
    given = dict(zip(names, args, strict=False)) | named
    if "a" not in given or not is_stack(s, given["a"]) or set(given) - set(names):
        return None
    shape, dtype = _shape_of(s, given["a"])
    value = given["fill_value"] if fill is None else v.Static(fill)
    return _allocate(s, shape, value, _dtype(s, given["dtype"], value) if "dtype" in given else dtype)


def _arange(s: LoweringState, args: Arguments, named: Named) -> v.Abstract | None:
    """`np.arange(stop)`, `np.arange(start, stop, step)` of integers."""
    if named or not args or not all(map(stacking.is_scalar, args)) or all(isinstance(x, v.Static) for x in args):
        return None
    need(s, *args)
    start, stop, step = [v.Static(0), *args, v.Static(1)] if len(args) == 1 else [*args, v.Static(1)][:3]
    return marked(stacking.stack(s, make_range(s, start, stop, step)), True)


def _identity(s: LoweringState, args: Arguments, named: Named) -> v.Abstract | None:
    """`np.eye(n)`"""
    if len(args) != 1 or set(named) - {"dtype"} or (extents := _extents(s, args[0])) is None:
        return None
    array = _allocate(s, [*extents, *extents], v.Static(0), _dtype(s, named.get("dtype"), v.Static(0.0)))
    run(s, numpy_arrays.put_diagonal, [array, as_element(s, _class(array), v.Static(1))], {})
    return array


def _linspace(s: LoweringState, args: Arguments, named: Named) -> v.Abstract | None:
    """`np.linspace(start, stop, num)`"""
    given = dict(zip(("start", "stop", "num"), args, strict=False)) | named
    if set(given) != {"start", "stop", "num"} or _extents(s, given["num"]) is None:
        return None
    return marked(stacking.stack(s, run(s, numpy_arrays.spaced, [], given)), True)


def _itself(s: LoweringState, args: Arguments, named: Named) -> v.Abstract | None:
    """`np.asarray(a)` of such an array is the array."""
    return args[0] if len(args) == 1 and not named and is_dynamic(args[0]) else None


def _copied(s: LoweringState, args: Arguments, named: Named) -> v.Abstract | None:
    """`np.copy(a)` and `np.array(a)` of such an array."""
    if named == {"copy": v.Static(False)}:
        return _itself(s, args, {})
    if len(args) != 1 or named or not is_dynamic(args[0]):
        return None
    value = stack_of(s, args[0])
    return of_stack(s, value) if isinstance(value, v.Listing) else _of_fixed(s, value)


_MAKERS: dict[Any, Callable[[LoweringState, Arguments, Named], v.Abstract | None]] = {
    np.zeros: partial(_filled, fill=0),
    np.ones: partial(_filled, fill=1),
    np.empty: partial(_filled, fill=0),
    np.full: partial(_filled, fill=None),
    np.zeros_like: partial(_filled_like, fill=0),
    np.ones_like: partial(_filled_like, fill=1),
    np.empty_like: partial(_filled_like, fill=0),
    np.full_like: partial(_filled_like, fill=None),
    np.arange: _arange,
    np.eye: _identity,
    np.identity: _identity,
    np.linspace: _linspace,
    np.copy: _copied,
    np.asarray: _itself,
    np.asanyarray: _itself,
    np.array: _copied,
}


def _extents(s: LoweringState, shape: v.Abstract | None) -> list[v.Abstract] | None:
    """The extents of a shape of which some are data; None of another one. Shared integers become constants."""
    match shape:
        case v.Record(kind="tuple" | "list", items=items):
            found = list(items)
        case v.Leaf(type=Array()):
            found = [shape]
        case _:
            return None
    if not all(isinstance(x, v.Static | v.Leaf) for x in found):
        return None
    for x in found:
        need(s, x)
    return None if all(isinstance(x, v.Static) for x in found) else [as_index(s, x) for x in found]


def _dtype(s: LoweringState, dtype: v.Abstract | None, fill: v.Abstract) -> np.dtype[Any]:
    """The dtype of an array that is made with a dtype; without one, that of a value."""
    if dtype is not None and not isinstance(dtype, v.Static):
        s.refuse("the dtype of an array is data", "write it as a constant")
    if dtype is not None and dtype.value is not None:
        return np.dtype(jax.dtypes.canonicalize_dtype(np.dtype(dtype.value)))
    if isinstance(fill, v.Static):
        return np.dtype(jax.dtypes.canonicalize_dtype(np.asarray(fill.value).dtype))
    type = operand_of(s, fill).type
    assert isinstance(type, Array)
    return np.dtype(type.dtype)


def _allocate(s: LoweringState, shape: Arguments, fill: v.Abstract, dtype: np.dtype[Any]) -> v.Abstract:
    """An array of one value. Axes behind the last one whose length is data belong to its elements."""
    rank = max(k for k, x in enumerate(shape) if not isinstance(x, v.Static)) + 1
    fixed = tuple(int(x.value) for x in shape[rank:] if isinstance(x, v.Static))
    for x in shape[:rank]:
        if not isinstance(x, v.Static):
            fine = traced(s, operator.ge, x, v.Static(0))
            s.check(fine.operand, "ValueError", "negative dimensions are not allowed")
    cls = _class_of(rank, dtype, fixed)
    element = v.Record("list", (0,), (as_element(s, cls, fill),))
    return _of_buffer(s, cls, apply_binary(s, operator.mul, element, _product(s, shape[:rank])), shape[:rank])


def _product(s: LoweringState, extents: Arguments) -> v.Abstract:
    return reduce(lambda a, b: arithmetic(s, operator.mul, a, b), extents)


def _of_buffer(s: LoweringState, cls: type[DynamicArray], buffer: v.Abstract, extents: Arguments) -> v.Abstract:
    """An array with a buffer of its own, row by row."""
    buffer = s.context.rules.made_by(s, buffer, ("the buffers of arrays", cls.dtype, cls.element_shape))
    strides: list[v.Abstract] = [v.Static(1)] if extents else []
    for extent in reversed(extents[1:]):
        strides.insert(0, arithmetic(s, operator.mul, strides[0], extent))
    return s.call(v.Static(cls), [buffer, v.Static(0), pair(*extents), pair(*strides)])


def _view(s: LoweringState, array: v.Abstract, offset: v.Abstract, axes: Axes) -> v.Abstract:
    """A view of an array, from an offset."""
    of = _class(array)
    known = tuple(n.value if isinstance(n, v.Static) and any(of.known) else None for n, _ in axes)
    cls = _class_of(len(axes), of.dtype, of.element_shape, known)
    extents, strides = pair(*(n for n, _ in axes)), pair(*(step for _, step in axes))
    return s.call(v.Static(cls), [attribute(s, array, "buffer"), offset, extents, strides])


def as_element(s: LoweringState, cls: type[DynamicArray], value: v.Abstract) -> v.Abstract:
    """A value that is stored in an array, as one of its elements."""
    value = present(s, value)
    if _is_written_out(value):
        value = trace(s, jnp.array, [value], {})
    if is_stack(s, value) and len(cls.element_shape) == 1 and len(_shape_of(s, value)[0]) == 1:
        value = trace(s, jnp.array, [_fixed(s, value, cls.element_shape[0])], {})
    if is_stack(s, value) or not isinstance(value, v.Leaf | v.Static):
        s.refuse("this cannot be an element of an array whose length is data", "set a number, or as many as it has")
    if cls.dtype.kind in "iub" and _is_float(value):
        s.refuse("floats are cut to integers here, as the array is one of integers", "make it one of floats")
    return traced(s, _converted(cls.dtype, cls.element_shape), value)


def _fixed(s: LoweringState, values: v.Abstract, count: int) -> v.Abstract:
    """The numbers of an array whose length is data, which is this one, written out."""
    fits = compare_with(s, operator.eq, length(s, values), v.Static(count))
    s.check(operand_of(s, fits), "ValueError", f"could not broadcast input array into shape ({count},)")
    found = sequence(s, values)
    assert isinstance(found, v.Lazy)
    return pair(*(found.item(s, v.Static(k)) for k in range(count)))


def _is_float(value: v.Abstract) -> bool:
    if isinstance(value, v.Static):
        return np.asarray(value.value).dtype.kind == "f"
    return isinstance(value, v.Leaf) and isinstance(value.type, Array) and "float" in value.type.dtype


@lru_cache(maxsize=256)
def _converted(dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
    def converted(x: Any) -> Any:
        return jnp.broadcast_to(jnp.asarray(x, dtype), shape)

    converted.__module__ = "jax"
    return converted


# ---- as values


def stack_of(s: LoweringState, array: v.Abstract) -> v.Abstract:
    """The array as a value: what `np.array` makes of its elements; a view of one element as that."""
    return _stacked(s, array, attribute(s, array, "offset"), _axes(s, array))


def _stacked(s: LoweringState, array: v.Abstract, offset: v.Abstract, axes: Axes) -> v.Abstract:
    if not axes:
        return marked(_element(s, array, offset), True)
    (extent, stride), *inner = axes
    if isinstance(extent, v.Static) and any(_class(array).known) and all(isinstance(n, v.Static) for n, _ in inner):
        places = (arithmetic(s, operator.mul, v.Static(i), stride) for i in range(extent.value))
        parts = [_stacked(s, array, arithmetic(s, operator.add, offset, at), inner) for at in places]
        return marked(trace(s, jnp.array, [pair(*parts)], {}), True)

    def part(t: LoweringState, i: v.Abstract) -> tuple[bool, Callable[[LoweringState], v.Abstract]]:
        at = arithmetic(t, operator.add, offset, arithmetic(t, operator.mul, i, stride))
        return True, lambda u: _stacked(u, array, at, inner)

    made = make_map(s, v.Lazy(extent, lambda t, i: i), part)
    return replace(made, array=True) if isinstance(made, v.Listing) else stacking.stack(s, made)


def of_stack(s: LoweringState, value: v.Abstract) -> v.Abstract:
    """An array that is a value, with memory of its own."""
    if isinstance(value, v.Leaf) and isinstance(value.type, Array):
        row = LeafLayout(Array(value.type.dtype, value.type.shape[1:]), numpy=True)
        value = v.Listing(tuple(convert(s, value, ListingLayout(row, array=True))), row, array=True)
    shape, dtype = _shape_of(s, value)
    rank = _depth(value)
    fixed = tuple(int(x.value) for x in shape[rank:] if isinstance(x, v.Static))
    if rank > 2:
        s.refuse("an array with more than two axes whose length is data is changed here", "make it with np.zeros")
    rows = replace(value, array=False) if isinstance(value, v.Listing) else value
    buffer = run(s, numpy_arrays.flat if rank == 2 else numpy_arrays.listed, [rows], {})
    return _of_buffer(s, _class_of(rank, dtype, fixed), buffer, shape[:rank])


def _of_fixed(s: LoweringState, value: v.Abstract) -> v.Abstract:
    """An array of a fixed shape, with memory of its own: the one element of a buffer."""
    array = v.Leaf(operand_of(s, value), numpy=True)
    assert isinstance(array.type, Array)
    dtype, shape = np.dtype(array.type.dtype), array.type.shape
    if array_stores.has_views(s, array.type):
        cls = _class_of(len(shape), dtype, (), shape)
        places = map(v.Static, np.ndindex(*shape))
        parts = (as_element(s, cls, traced(s, operator.getitem, array, at)) for at in places)
        return _of_buffer(
            s, cls, v.Record("list", tuple(range(math.prod(shape))), tuple(parts)), list(map(v.Static, shape))
        )
    cls = _class_of(0, dtype, shape)
    return _of_buffer(s, cls, v.Record("list", (0,), (as_element(s, cls, array),)), [])


def _depth(value: v.Abstract) -> int:
    """How many axes of an array that is a value have a length that is data."""
    rank, elem = 1, value.elem if isinstance(value, v.Listing) else None
    while isinstance(elem, ListingLayout):
        rank, elem = rank + 1, elem.elem
    return rank


def _shape_of(s: LoweringState, array: v.Abstract) -> tuple[list[v.Abstract], np.dtype[Any]]:
    """The shape of an array whose length is data, and its dtype. Of a value, its rows have one length."""
    if is_dynamic(array):
        return [*(n for n, _ in _axes(s, array)), *map(v.Static, _class(array).element_shape)], _class(array).dtype
    if isinstance(array, v.Listing) and isinstance(array.elem, ListingLayout):
        first = stacking.stack(s, run(s, numpy_arrays.first, [replace(array, array=False)], {}))
        shape, dtype = _shape_of(s, first)
        return [length(s, array), *shape], dtype
    assert isinstance(array, v.Listing | v.Leaf)
    if isinstance(array, v.Listing):
        assert isinstance(array.elem, LeafLayout)
        elem = array.elem.type
    else:
        assert isinstance(array.type, List)
        elem = array.type.elem
    assert isinstance(elem, Array)
    return [length(s, array), *map(v.Static, elem.shape)], np.dtype(elem.dtype)


# ---- reading


def _class(array: v.Abstract) -> Any:
    cls = dynamic_class(array)
    assert cls is not None
    return cls


def operate(s: LoweringState, function: Any, args: Sequence[v.Abstract]) -> v.Abstract:
    """An operator on arrays whose length is data."""
    if function is operator.getitem and is_dynamic(args[0]):
        return load(s, args[0], args[1])
    if function is np.array:
        return of_stack(s, args[0])
    if function is np.asarray:
        return _of_fixed(s, args[0])
    if function is np.putmask:
        run(s, numpy_arrays.put_mask, [args[0], *(as_value(s, x) for x in args[1:])], {})
        return v.Static(None)
    if function is getattr:
        assert isinstance(args[1], v.Static)
        return attribute_of(s, args[0], args[1].value)
    if function is operator.setitem:
        store(s, args[0], args[1], args[2])
        return v.Static(None)
    args = [as_value(s, x) for x in args]
    if any(is_stack(s, x) for x in args):
        made = stacking.operate(s, function, args)
        return s.context.sites.part(made, args[0]) if function is operator.getitem else made
    if len(args) == 1:
        return unary(s, function, args[0])
    a, b = args
    if function is operator.ne:
        return not_equal(s, a, b)
    return compare_with(s, function, a, b) if function in COMPARE.values() else apply_binary(s, function, a, b)


def as_value(s: LoweringState, value: v.Abstract) -> v.Abstract:
    """Such an array as a value; other values as they are."""
    return stack_of(s, value) if is_dynamic(value) else value


def as_result(s: LoweringState, value: v.Abstract) -> v.Abstract:
    """Such an array as the entry leaves it; other values as they are."""
    if not is_dynamic(value):
        return value
    for row in (value, attribute(s, value, "buffer")):
        if isinstance(row, v.MemoryRow):
            left_by_entry(s, row.heap.whole)
    return stack_of(s, value)


def _axes(s: LoweringState, array: v.Abstract) -> Axes:
    extents, strides = (attribute(s, array, name) for name in ("extents", "strides"))
    assert isinstance(extents, v.Record) and isinstance(strides, v.Record)
    known = zip(_class(array).known, extents.items, strict=True)
    return list(zip((x if n is None else v.Static(n) for n, x in known), strides.items, strict=True))


def attribute_of(s: LoweringState, array: v.Abstract, name: str) -> v.Abstract:
    """`array.name`"""
    cls, (extents, dtype) = _class(array), _shape_of(s, array)
    match name:
        case "shape":
            return pair(*extents)
        case "size":
            return _product(s, extents)
        case "ndim":
            return v.Static(len(extents))
        case "dtype":
            return v.Static(dtype)
        case "T" if not cls.element_shape:
            return _view(s, array, attribute(s, array, "offset"), _axes(s, array)[::-1])
        case "copy":
            return v.Method(v.Static(np.copy), array, name)
        case "T" | "real" | "imag" | "flat":
            return s.context.sites.part(attribute(s, stack_of(s, array), name), array)
        case _:
            return v.Method(v.Static(array_method(name)), array, name)


def _parts(s: LoweringState, array: v.Abstract, index: v.Abstract) -> tuple[v.Abstract, Axes, list[v.Abstract]]:
    """Where the part that an index picks begins, its axes, and what of the index is for the elements."""
    rank = _class(array).rank
    keys = _keys(s, index, rank + len(_class(array).element_shape))
    offset, axes = attribute(s, array, "offset"), []
    for k, (extent, stride) in enumerate(_axes(s, array)):
        key = present(s, keys[k]) if k < len(keys) else _ALL
        bounds = bounds_of(key)
        if bounds is not None:
            if key != _ALL:
                first, extent, step = _range(s, extent, bounds)
                offset = arithmetic(s, operator.add, offset, arithmetic(s, operator.mul, first, stride))
                stride = arithmetic(s, operator.mul, stride, step)
            axes.append((extent, stride))
        elif stacking.is_scalar(key):
            place = _inside(s, as_index(s, key), k, extent)
            offset = arithmetic(s, operator.add, offset, arithmetic(s, operator.mul, place, stride))
        else:
            s.refuse(
                "an array whose length is data, which is changed in place, is indexed by integers and slices",
                "index its elements in a loop or a comprehension",
            )
    return offset, axes, keys[rank:]


def _keys(s: LoweringState, index: v.Abstract, rank: int | None) -> list[v.Abstract]:
    """The index of each axis of so many, where an ellipsis stands for slices; its parts where none is given."""
    match index:
        case v.Record(kind="tuple", items=items):
            keys = list(items)
        case v.Static(value=tuple() as held):
            keys = list(map(v.Static, held))
        case _:
            keys = [index]
    if rank is None:
        return [x for x in keys if x != v.Static(...)]
    if v.Static(...) in keys:
        at = keys.index(v.Static(...))
        keys[at : at + 1] = [_ALL] * (rank - len(keys) + 1)
    if len(keys) > rank:
        s.refuse(
            f"too many indices for array: array is {rank}-dimensional, but {len(keys)} were indexed", "check the index"
        )
    return keys


def _range(
    s: LoweringState, extent: v.Abstract, bounds: Sequence[v.Abstract]
) -> tuple[v.Abstract, v.Abstract, v.Abstract]:
    """The first place of a slice, how many there are, and its step."""
    places = sliced(s, make_range(s, v.Static(0), extent, v.Static(1)), bounds)
    if isinstance(places, v.Record):
        held = [x.value for x in places.items if isinstance(x, v.Static)]
        return v.Static(held[0] if held else 0), v.Static(len(held)), v.Static(held[1] - held[0] if held[1:] else 1)
    assert isinstance(places, v.Lazy)
    step = bounds[2].value if isinstance(bounds[2], v.Static) else None
    return places.item(s, v.Static(0)), places.length, v.Static(1 if step is None else step)


def _inside(s: LoweringState, key: v.Abstract, axis: int, extent: v.Abstract) -> v.Abstract:
    """A place from the start of an axis, after a check that there is one."""
    words = f"index {{}} is out of bounds for axis {axis} with size {{}}"
    inside = traced(s, is_inside, key, extent).operand
    s.check(inside, "IndexError", words, (operand_of(s, key), operand_of(s, extent)))
    if isinstance(key, v.Static):
        return key if key.value >= 0 else arithmetic(s, operator.add, extent, key)
    return traced(s, _from_start, key, extent)


def _from_start(i: Any, n: Any) -> Any:
    return i + n * (i < 0)


def load(s: LoweringState, array: v.Abstract, index: v.Abstract) -> v.Abstract:
    """`array[index]`: an element or a part of one, or a view."""
    cls = _class(array)
    if not all(stacking.is_scalar(x) or bounds_of(x) is not None for x in _keys(s, index, None)):
        return subscript(s, stack_of(s, array), index)
    offset, axes, rest = _parts(s, array, index)
    if rest and not axes:
        return s.context.sites.part(index_array(s, marked(_element(s, array, offset), True), pair(*rest)), array)
    if not axes and not cls.element_shape:
        return marked(_element(s, array, offset), True)
    view = _view(s, array, offset, axes)
    if not rest or all(x == _ALL for x in rest):
        return view
    made = stacking.index_rows(s, stack_of(s, view), pair(*[_ALL] * len(axes), *rest))
    return s.context.sites.part(marked(made, True), array)


def _element(s: LoweringState, array: v.Abstract, place: v.Abstract) -> v.Abstract:
    found = sequence(s, attribute(s, array, "buffer"))
    if isinstance(found, v.Lazy):
        return found.item(s, place)
    return run(s, numpy_arrays.element, [attribute(s, array, "buffer"), place], {})


# ---- changing


def store(s: LoweringState, array: v.Abstract, index: v.Abstract, value: v.Abstract) -> None:
    """`array[index] = value`, broadcast as NumPy does."""
    cls, value = _class(array), as_value(s, list_heap.copied(s, present(s, value)))
    if isinstance(value, v.Listing) or (isinstance(value, v.Leaf) and isinstance(value.type, List)):
        value = stacking.stack(s, value)
    if is_stack(s, index):
        run(s, numpy_arrays.put_where, [array, as_value(s, index), value], {})
        return
    offset, axes, rest = _parts(s, array, index)
    if axes:
        view, rank = (
            _view(s, array, offset, axes),
            len(axes) + len(cls.element_shape) - sum(map(stacking.is_scalar, rest)),
        )
        each = _rank_of(s, value) >= rank or (_is_written_out(value) and rank == 1)
        run(s, numpy_arrays.put_each if each else numpy_arrays.put_into_all, [view, value, pair(*rest)], {})
        return
    if not rest:
        value = as_element(s, cls, value)
    elif _rank_of(s, value) == 0:
        value = as_element(s, _class_of(1, cls.dtype, ()), value)
    if rest:
        place = v.Record("object", ("array", "index"), (_element(s, array, offset), pair(*rest)), At)
        value = traced(s, updated("set"), place, value)
    run(s, numpy_arrays.put, [array, offset, value], {})


def _is_written_out(value: v.Abstract) -> bool:
    return isinstance(value, v.Record) and value.kind in ("list", "tuple")


def _rank_of(s: LoweringState, value: v.Abstract) -> int:
    """How many axes a value has that is set."""
    if is_stack(s, value):
        return len(_shape_of(s, value)[0])
    if isinstance(value, v.Leaf) and isinstance(value.type, Array):
        return len(value.type.shape)
    return np.ndim(value.value) if isinstance(value, v.Static) else 0
