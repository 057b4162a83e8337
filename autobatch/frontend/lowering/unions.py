"""Values of the examples that may be of several types or forms: `Expr | float`, `("num", 2.0)` or `("neg", tree)`.

What is no record stands there in a record "value" (`data/infer.py`), so that it is a reference whose class says which
type it has. Where that is known, by `isinstance`, `type` or `match`, the reference is read as the value itself; where
it is not, an operator takes the values of those types that it has a meaning for, and the example fails with a TypeError
if it has another one there.

    def total(t): return t if isinstance(t, float) else sum(total(k) for k in t)

      %0 = is_class[names=('float',)](%t)
      if %0 then: load[field='#value'](%t)

Tuples and dicts of several forms in one place are records of several classes of the schema, one for each form. What is
read of such a value is found class by class, and what it says about the class is noted: behind `e[0] == "num"`,
`len(e) == 2` or `"left" in e` it is one of those of which that is true.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from autobatch.data.columns import VALUE
from autobatch.frontend.lowering.attributes import (
    Keys,
    alternatives,
    check_is_one_of,
    class_list,
    classes_of,
    field,
    fields_of,
    forms_of,
    is_class,
    is_none,
    may_be_none,
    one_of,
)
from autobatch.frontend.lowering.joins import conditional
from autobatch.frontend.lowering.numbers import operand_of
from autobatch.frontend.lowering.selection import select, telling, with_index
from autobatch.frontend.lowering.state import LoweringState
from autobatch.frontend.types import values as v
from autobatch.frontend.types.values import HeldLayout, Layout, OptionalLayout, layout_of, leaf_type, static_type
from autobatch.ir.core import Array, List, Operand, Ref, Tag, Type

# ---- several types


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


# ---- several forms


WHOLE = slice(None)


def load(s: LoweringState, value: v.Leaf, forms: Mapping[int, Keys], key: Any) -> v.Abstract:
    """`value[key]` of a constant key; KeyError or IndexError where it is not there."""
    of_dicts = is_dict(s, value)
    places = {k: _place(keys, key, of_dicts) for k, keys in forms.items()}
    owners = frozenset(k for k, place in places.items() if place is not None)
    error = ("KeyError", repr(key).replace("{", "{{").replace("}", "}}"))
    _check(s, value, forms)
    s.check(is_class(s, value.operand, owners), *(error if of_dicts else ("IndexError", "tuple index out of range")))
    if not owners:
        s.dead = True
        return v.Static(None)
    return _by_class(s, value, owners, lambda k: places[k], lambda t, x, place: _field(t, x, place))


def holds(s: LoweringState, value: v.Leaf, forms: Mapping[int, Keys], key: Any) -> v.Abstract:
    """`key in value` of a dict, for a constant key."""
    owners = frozenset(k for k, keys in forms.items() if key in keys)
    _check(s, value, forms)
    found = is_class(s, value.operand, owners)
    known = s.block.truth(found)
    return v.Leaf(found) if known is None else v.Static(known)


def has_keys(s: LoweringState, value: v.Leaf, forms: Mapping[int, Keys], keys: Sequence[Any]) -> Operand | bool:
    """Is it a dict, and not None, with all these keys?"""
    found = is_class(s, value.operand, frozenset(k for k, held in forms.items() if all(key in held for key in keys)))
    known = s.block.truth(found)
    return found if known is None else known


def get(s: LoweringState, value: v.Leaf, forms: Mapping[int, Keys], key: Any, default: v.Abstract) -> v.Abstract:
    """`value.get(key, default)` of a dict, for a constant key."""
    there = holds(s, value, forms, key)
    if isinstance(there, v.Static):
        return load(s, value, forms, key) if there.value else default
    return conditional(s, operand_of(s, there), lambda t: load(t, value, forms, key), lambda t: default)


def count(s: LoweringState, value: v.Leaf, forms: Mapping[int, Keys], of: slice = WHOLE) -> v.Abstract:
    """How many elements or keys it has, or a part of it."""
    _check(s, value, forms)
    counts = {k: len(keys[of]) for k, keys in forms.items()}
    found = _by_class(s, value, frozenset(forms), counts.__getitem__, lambda t, x, n: v.Static(n))
    return telling(s, found, value, {k: frozenset({n}) for k, n in counts.items()}, f"len {of}")


Part = Literal["key", "value", "item"]


def elements(
    s: LoweringState, value: v.Leaf, forms: Mapping[int, Keys], of: slice = WHOLE, part: Part = "value"
) -> v.Record | v.Lazy:
    """The elements of a tuple, or what a dict holds, or some of them."""

    def read(t: LoweringState, x: v.Leaf, key: Any) -> v.Abstract:
        if part == "value":
            return _field(t, x, key)
        return v.Static(key) if part == "key" else v.Record("tuple", (0, 1), (v.Static(key), _field(t, x, key)))

    def item(t: LoweringState, index: v.Abstract) -> v.Abstract:
        at = index.value if isinstance(index, v.Static) else 0
        here = {k: keys[of] for k in classes_of(t, value) if len((keys := forms.get(k, ()))[of]) > at}
        if isinstance(index, v.Static):
            return _by_class(t, value, frozenset(here), lambda k: here[k][at], read)
        picked = lambda u, x, keys: select(u, operand_of(u, index), [read(u, x, key) for key in keys])
        return _by_class(t, value, frozenset(here), here.__getitem__, picked)

    _check(s, value, forms)
    if len(forms) == 1:
        (keys,) = forms.values()
        items = tuple(read(s, value, key) for key in keys[of])
        return v.Record("tuple", tuple(range(len(items))), items)
    return v.Lazy(count(s, value, forms, of), item, is_tuple=not is_dict(s, value))


def parts(s: LoweringState, value: v.Leaf) -> v.Record | None:
    """All that an object of the examples of one class holds, with the constants that tell the class."""
    if (found := forms_of(s, value)) is None:
        return fields_of(s, value)
    ((_, keys),) = found.items()
    items = tuple(_field(s, value, key) for key in keys)
    return v.Record("dict" if is_dict(s, value) else "tuple", keys, items)


def is_dict(s: LoweringState, value: v.Leaf) -> bool:
    """Is it a dict, and no tuple?"""
    assert isinstance(value.type, Ref)
    return any(class_list(s, value.type)[k].kind == "dict" for k in classes_of(s, value))


def _place(keys: Keys, key: Any, of_dicts: bool) -> Any:
    """The key of a class that a key or an index stands for; None where it has none."""
    if of_dicts:
        return key if key in keys else None
    return keys[key] if isinstance(key, int) and -len(keys) <= key < len(keys) else None


def _check(s: LoweringState, value: v.Leaf, forms: Mapping[int, Keys]) -> None:
    """Fail where it is None, or no tuple or dict."""
    s.check(is_none(s, value.operand, negated=True), "TypeError", "'NoneType' object is not subscriptable")
    kind = "dict" if is_dict(s, value) else "tuple"
    there = is_class(s, value.operand, frozenset(forms))
    s.check(there, "TypeError", f"a value of another type where a {kind} is needed")


def _by_class(
    s: LoweringState,
    value: v.Leaf,
    classes: frozenset[int],
    about: Callable[[int], Any],
    each: Callable[[LoweringState, v.Leaf, Any], v.Abstract],
) -> v.Abstract:
    """What is done with a value of some classes: once for all of which the same is to be known."""
    groups: dict[Any, frozenset[int]] = {}
    for k in sorted(classes & classes_of(s, value)):
        groups[about(k)] = groups.get(about(k), frozenset()) | {k}
    if not groups:  # no class has such an element
        s.check(s.scalar(False), "IndexError", "index out of range")
        s.dead = True
        return v.Static(None)
    if len(groups) == 1:
        (known,) = groups
        return each(s, replace(value, classes=groups[known]), known)
    layouts: dict[int, Layout | None] = {}

    def noted(t: LoweringState, x: v.Leaf, known: Any) -> v.Abstract:
        found = each(t, x, known)
        layouts.update(dict.fromkeys(x.classes or (), layout_of(found)))
        return found

    return with_index(s, _first_of(s, value, list(groups.items()), noted), value, layouts, str(groups.keys()))


def _first_of(
    s: LoweringState,
    value: v.Leaf,
    groups: Sequence[tuple[Any, frozenset[int]]],
    each: Callable[[LoweringState, v.Leaf, Any], v.Abstract],
) -> v.Abstract:
    (known, classes), *rest = groups
    if not rest:
        return each(s, replace(value, classes=classes), known)
    return conditional(
        s,
        is_class(s, value.operand, classes),
        lambda t: each(t, replace(value, classes=classes), known),
        lambda t: _first_of(t, value, rest, each),
    )


def _field(s: LoweringState, value: v.Leaf, key: Any) -> v.Abstract:
    """A field that is there, of which the class may say what it is."""
    name, possible = str(key), classes_of(s, value) & (value.classes or classes_of(s, value))
    assert isinstance(value.type, Ref)
    tags = {k: c.tag for k, c in enumerate(class_list(s, value.type))}
    constants = {k: tag[1] if tag is not None and tag[0] == name else None for k, tag in tags.items()}
    first, *others = {constants[k] for k in possible}
    if first is not None and not others and len(first) == 1:
        return v.Static(next(iter(first)))
    types = {k: f.type for f in s.context.schema.store(value.type.store).fields if f.name == name for k in f.classes}
    found = _by_class(s, value, possible, types.__getitem__, lambda t, x, _: field(t, x, name))
    return telling(s, found, value, constants, name) if any(constants.values()) else found
