"""Which arrays are NumPy's: their indices fail where they are out of range, those of JAX clamp.

    table[k + 1]        table is one of NumPy        fails, as in Python
    (table * w)[k]      w is one of JAX              clamps: what comes of both is JAX's
    np.cumsum(table)    of NumPy alone               fails

`Leaf.numpy` says what an array is: True or False where the arguments of the call decide, None where it is JAX's in any
case. Where paths meet it is NumPy's if it is on one of them. Numbers are neither, but those that NumPy made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from autobatch.frontend.types import values as v
from autobatch.frontend.types.layouts import Layout, LeafLayout, ListingLayout, OptionalLayout, RecordLayout, layout_of
from autobatch.frontend.types.statics import inputs
from autobatch.ir.core import Value
from autobatch.ir.types import Array, List, Type

_OPERATORS = "_operator"
_MAKERS = (np.array, np.asarray, np.stack, np.vstack, np.hstack, np.concatenate)


def kind_of(values: Sequence[v.Abstract]) -> bool | None:
    """What an operator makes of these values: an array of NumPy of such arrays and of Python's numbers alone."""
    found: bool | None = None
    for kind in _kinds(values):
        if kind is None:
            return None
        found = kind and found is not False
    return found


def _kinds(values: Sequence[v.Abstract]) -> Iterator[bool | None]:
    """The kind of every array among some values."""
    for value in values:
        match value:
            case v.Leaf(operand=operand, numpy=numpy):
                if not _is_python(operand.type):
                    yield numpy
            case v.Optional(value=inner):
                yield from _kinds([inner])
            case v.Record(items=items):
                yield from _kinds(items)
            case v.Static(value=held):
                yield from (i.numpy for i in inputs(held) if not _is_python(i.type))
            case v.Listing(elem=LeafLayout(numpy=numpy), array=True):
                yield numpy
            case _:
                yield None


def _is_python(type: Type) -> bool:
    return isinstance(type, Array) and type.is_scalar and (type.weak or type.is_bool)


def of_call(function: Callable[..., Any], args: Sequence[v.Abstract]) -> bool | None:
    """What a call of an operator, or of a method or property of arrays, makes; None for other functions."""
    if getattr(function, "__module__", "") != _OPERATORS and not hasattr(function, "array_method"):
        return None
    return kind_of(args[:1] if function.__name__ == "getitem" else args)


def of_numpy(function: Any, args: Sequence[v.Abstract]) -> bool | None:
    """What a call of a function of NumPy makes: NumPy's, but where it calls a method of its argument (`np.sum`)."""
    if isinstance(function, np.ufunc) or function in _MAKERS or not list(_kinds(args)):
        return True
    return kind_of(args)


def is_of_numpy(function: Any) -> bool:
    """Is it a function of NumPy?"""
    module = getattr(function, "__module__", None) or ""
    return isinstance(function, np.ufunc) or (isinstance(module, str) and module.split(".")[0] == "numpy")


def marked(value: v.Abstract, kind: bool | None) -> v.Abstract:
    """The value with arrays of that kind."""
    match value:
        case v.Leaf(operand=operand) if isinstance(operand.type, Array | List) and value.numpy is not kind:
            return replace(value, numpy=kind)
        case v.Optional(value=inner):
            return replace(value, value=marked(inner, kind))
        case v.Listing(elem=elem):
            return replace(value, elem=_marked(elem, kind is True))
        case v.Record(items=items):
            return replace(value, items=tuple(marked(i, kind) for i in items))
        case _:
            return value


def _marked(layout: Layout, kind: bool) -> Layout:
    match layout:
        case LeafLayout(type=type) if _is_array(type):
            return replace(layout, numpy=kind)
        case OptionalLayout(value=inner):
            return replace(layout, value=_marked(inner, kind))
        case ListingLayout(elem=inner):
            return replace(layout, elem=_marked(inner, kind))
        case RecordLayout(items=items):
            return replace(layout, items=tuple(_marked(i, kind) for i in items))
        case _:
            return layout


def _is_array(type: Type) -> bool:
    """Is it an array, also one whose length is data? Of numbers layouts do not say whose they are."""
    return isinstance(type, List) or (isinstance(type, Array) and bool(type.shape))


def passed_kinds(value: v.Abstract, shared: frozenset[Value]) -> list[bool]:
    """Of each array that a value passes to a call: is it NumPy's?"""
    return list(_flags(layout_of(value, shared)))


def _flags(layout: Layout) -> Iterator[bool]:
    match layout:
        case LeafLayout(type=type, numpy=numpy) if _is_array(type):
            yield numpy
        case OptionalLayout(value=inner) | ListingLayout(elem=inner):
            yield from _flags(inner)
        case RecordLayout(items=items):
            for item in items:
                yield from _flags(item)
        case _:
            return
