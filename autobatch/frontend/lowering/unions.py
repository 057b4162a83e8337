"""Values of the examples that may be of several types: `Expr | float`, `list[int | str]`, `float | list[...]`.

What is no record stands there in a record "value" (`data/infer.py`), so that it is a reference whose class says which
type it has. Where that is known, by `isinstance`, `type` or `match`, the reference is read as the value itself; where
it is not, an operator takes the values of those types that it has a meaning for, and the example fails with a TypeError
if it has another one there.

    def total(t): return t if isinstance(t, float) else sum(total(k) for k in t)

      %0 = is_class[names=('float',)](%t)
      if %0 then: load[field='#value'](%t)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from autobatch.data.columns import VALUE
from autobatch.frontend.lowering.attributes import (
    alternatives,
    check_is_one_of,
    classes_of,
    field,
    is_class,
    is_none,
    may_be_none,
    one_of,
)
from autobatch.frontend.lowering.joins import conditional
from autobatch.frontend.lowering.state import LoweringState
from autobatch.frontend.types import values as v
from autobatch.frontend.types.layouts import (
    HeldLayout,
    Layout,
    OptionalLayout,
    layout_of,
    leaf_type,
    static_type,
)
from autobatch.ir.core import Array, List, Tag, Type

Sort = Callable[[Type], bool]


def narrowed(s: LoweringState, value: v.Abstract) -> v.Abstract:
    """The value itself where its type is known here; else as it is. Where it can be of none, no path leads here."""
    assert isinstance(value, v.Leaf)
    classes, null = classes_of(s, value), s.block.fact(value.operand).null
    if not classes:  # it has been tested for all that it may be
        if null and may_be_none(s, value.type):
            return v.Static(None)
        s.check(s.scalar(False), "TypeError", "None where a value is needed")
        s.dead = True
        return value
    found = alternatives(s, value)
    if null or len(found) != 1 or len(classes) > 1:
        return value
    return one_of(s, value, found)


def taken_as(s: LoweringState, value: v.Abstract, *sorts: Sort) -> v.Abstract:
    """The value as one of the first of these sorts that it may be of; as it is where it can be none of them."""
    found = alternatives(s, value)
    for sort in sorts:
        fit = [k for k, f in found.items() if sort(f.type)]
        if fit:
            assert isinstance(value, v.Leaf)
            return one_of(s, value, fit)
    return value


def by_type(
    s: LoweringState, value: v.Abstract, use: Callable[[LoweringState, v.Abstract], v.Abstract], none: v.Abstract
) -> v.Abstract:
    """What `use` gives of the value, whichever type it has; `none` for None."""
    assert isinstance(value, v.Leaf)

    def of(t: LoweringState) -> v.Abstract:
        found = alternatives(t, value)
        if not found:
            return use(t, value)
        first = frozenset([min(found)])
        there = is_class(t, value.operand, first)
        return conditional(t, there, lambda u: use(u, field(u, replace(value, classes=first), VALUE)), of)

    return conditional(s, is_none(s, value.operand), lambda t: none, of)


def of_sorts(
    s: LoweringState, value: v.Abstract, use: Callable[[LoweringState, v.Abstract], v.Abstract], *sorts: Sort
) -> v.Abstract:
    """What `use` gives of the value, which is to be of one of these sorts."""
    fit = [k for k, f in alternatives(s, value).items() if any(sort(f.type) for sort in sorts)]
    if not fit:
        return use(s, value)
    assert isinstance(value, v.Leaf)
    check_is_one_of(s, value, fit)
    return by_type(s, value, use, v.Static(None))


def alike(s: LoweringState, a: v.Abstract, b: v.Abstract) -> tuple[v.Abstract, v.Abstract]:
    """Two operands, of which one that may be of several types is taken for what the other is."""
    if not alternatives(s, a) and not alternatives(s, b):
        return a, b
    a = taken_as(s, a, *_sorts_beside(s, b))
    return a, taken_as(s, b, *_sorts_beside(s, a))


def _sorts_beside(s: LoweringState, other: v.Abstract) -> Sequence[Sort]:
    """The sorts that may stand in an operation with a value, the likeliest first."""
    types = [f.type for f in alternatives(s, other).values()]
    if not types and (type := _type_of(layout_of(other))) is not None:
        types = [type]
    return [sort for sort in SORTS if any(map(sort, types))] or SORTS


def _type_of(layout: Layout) -> Type | None:
    if isinstance(layout, OptionalLayout):
        return _type_of(layout.value)
    return static_type(layout.value.value) if isinstance(layout, HeldLayout) else leaf_type(layout)


def is_number(type: Type) -> bool:
    return isinstance(type, Array)


def is_word(type: Type) -> bool:
    return isinstance(type, Tag)


def is_list(type: Type) -> bool:
    return isinstance(type, List)


SORTS: Sequence[Sort] = (is_number, is_word, is_list)
