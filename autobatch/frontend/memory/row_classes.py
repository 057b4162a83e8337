"""Objects of several classes in one memory: of which class a row is, and what its attributes are.

    isinstance(node, Leaf)      and(ge(%node, 0), eq(%class[%node], 0))
    node.area()                 a chain of such tests, where the classes define it each in its own way

What tests have shown of a row is a fact about its number, as it is of references to objects of the examples.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import reduce
from typing import Any, NoReturn

from autobatch.frontend.lowering.joins import conditional
from autobatch.frontend.lowering.numbers import combine, negate, traced
from autobatch.frontend.lowering.state import LoweringState
from autobatch.frontend.memory import heaps
from autobatch.frontend.memory.heaps import classes_of, positions
from autobatch.frontend.types import values as v
from autobatch.ir.core import Operand, Value
from autobatch.ir.template import CLASS

_FIELD = object()
"""Stands for a field, where else what a class defines stands."""

Bind = Callable[[LoweringState, Any, v.Abstract, type, str], v.Abstract]
Group = tuple[Any, frozenset[int]]


def is_class(s: LoweringState, row: v.MemoryRow, classes: frozenset[int]) -> Operand:
    """Is the object of one of these classes? Static where it is known. None is of no class."""
    possible, there = positions(s, row), negate(s, heaps.missing(s, row))
    if not possible & classes:
        return s.scalar(False)
    if possible <= classes:
        return there
    wanted = possible & classes
    key = ("is_class", row.operand, wanted)
    known = s.block.recall(key)
    if isinstance(known, v.Leaf):
        return known.operand
    tag = heaps.field(s, row, CLASS)
    assert tag is not None
    tests = [traced(s, operator.eq, tag, v.Static(k)).operand for k in sorted(wanted)]
    result = reduce(lambda a, b: combine(s, "or", a, b), tests)
    if s.block.truth(there) is not True:
        result = combine(s, "and", there, result)
    if isinstance(row.operand, Value) and isinstance(result, Value):
        fact = s.block.fact(row.operand)
        s.block.facts[row.operand] = replace(fact, classes=possible)
        s.context.meanings[result] = ("is_class", row.operand, wanted)
    s.block.memo[key] = v.Leaf(result)
    return result


def is_instance(s: LoweringState, row: v.MemoryRow, classes: tuple[type, ...]) -> v.Abstract:
    """`isinstance(row, classes)`"""
    fit = frozenset(k for k, c in enumerate(row.heap.members) if issubclass(c, classes))
    if type(None) in classes:
        return conditional(
            s,
            heaps.missing(s, row),
            lambda t: v.Static(True),
            lambda t: is_instance(t, replace(row, null=False), tuple(c for c in classes if c is not type(None))),
        )
    found = is_class(s, row, fit)
    known = s.block.truth(found)
    return v.Leaf(found) if known is None else v.Static(known)


def read(s: LoweringState, row: v.MemoryRow, name: str, bind: Bind) -> v.Abstract:
    """`row.name`: a field, method, property or class attribute of an object that is not None."""
    groups = _groups(s, row, name)
    if not positions(s, row):  # tests have ruled out all classes
        s.check(s.scalar(False), "AttributeError", f"'NoneType' object has no attribute {name!r}")
        s.dead = True
        return v.Static(None)
    if not groups:
        _refuse_unknown(s, row, name)
    row = _of_owners(s, row, name, groups)
    if len(groups) > 1 and all(callable(found) and found is not _FIELD for found, _ in groups):
        return v.Method(v.Static(None), row, name)
    return _by_class(s, row, groups, lambda t, r, found: _read_one(t, r, name, found, bind))


def _read_one(s: LoweringState, row: v.MemoryRow, name: str, found: Any, bind: Bind) -> v.Abstract:
    if found is not _FIELD:
        return bind(s, found, row, classes_of(s, row)[0], name)
    held = heaps.field(s, row, name)
    assert held is not None
    if isinstance(held, v.Optional) and held.unset:
        return by_class(s, row, lambda t, r, cls: _set_or_of_class(t, r, name, cls, held, bind))
    return held


def _set_or_of_class(
    s: LoweringState, row: v.MemoryRow, name: str, cls: type, held: v.Optional, bind: Bind
) -> v.Abstract:
    """A field that objects of the class are made without, and that is set later: what the class has of that name where
    it is not set, and else a failure."""
    default = inspect.getattr_static(cls, name, _FIELD)
    if default is _FIELD or _is_slot(cls, name):
        s.check(negate(s, held.missing), "AttributeError", f"{cls.__name__!r} object has no attribute {name!r}")
        return held.value
    return conditional(s, held.missing, lambda t: bind(t, default, row, cls, name), lambda t: held.value)


def has(s: LoweringState, row: v.MemoryRow, name: str) -> v.Abstract:
    """`hasattr(row, name)`"""
    there = replace(row, null=False)
    absent = lambda t: v.Static(hasattr(None, name))
    return conditional(s, heaps.missing(s, row), absent, lambda t: v.Leaf(_is_set(t, there, name)))


def _is_set(s: LoweringState, row: v.MemoryRow, name: str) -> Operand:
    members = row.heap.members
    always = frozenset(k for k, c in enumerate(members) if hasattr(c, name) and not _is_slot(c, name))
    fields = frozenset(k for k, c in enumerate(members) if name in row.heap.forms.get(c, ())) - always
    held = heaps.field(s, row, name) if fields else None
    if not isinstance(held, v.Optional) or not held.unset:
        return is_class(s, row, always | fields)
    is_set = combine(s, "and", is_class(s, row, fields), negate(s, held.missing))
    return combine(s, "or", is_class(s, row, always), is_set)


def _is_slot(cls: type, name: str) -> bool:
    return inspect.ismemberdescriptor(inspect.getattr_static(cls, name, None))


def called(
    s: LoweringState, method: v.Method, bind: Bind, args: Iterable[v.Abstract], kwargs: dict[str, Any]
) -> v.Abstract:
    """A call of a method that classes define each in its own way."""
    row, given = method.receiver, list(args)
    assert isinstance(row, v.MemoryRow)

    def one(t: LoweringState, narrowed: v.MemoryRow, found: Any) -> v.Abstract:
        return t.call(_read_one(t, narrowed, method.name, found, bind), given, kwargs)

    return _by_class(s, row, _groups(s, row, method.name), one)


def by_class(
    s: LoweringState, row: v.MemoryRow, each: Callable[[LoweringState, v.MemoryRow, type], v.Abstract]
) -> v.Abstract:
    """What is done with an object that is not None, for each class that it may have."""
    groups = [(row.heap.members[k], frozenset({k})) for k in sorted(positions(s, row))]
    return _by_class(s, row, groups, each)


def _groups(s: LoweringState, row: v.MemoryRow, name: str) -> list[Group]:
    """What a name is of the classes that an object may have: those of which it is the same form one group."""
    groups: list[Group] = []
    for k in sorted(positions(s, row)):
        cls = row.heap.members[k]
        found = _FIELD if name in row.heap.forms.get(cls, ()) else inspect.getattr_static(cls, name, None)
        same = next((n for n, (other, _) in enumerate(groups) if other is found), None)
        if found is not None and same is None:
            groups.append((found, frozenset({k})))
        elif same is not None:
            groups[same] = (found, groups[same][1] | {k})
    return groups


def _of_owners(s: LoweringState, row: v.MemoryRow, name: str, groups: list[Group]) -> v.MemoryRow:
    """The object, which is of a class that has the attribute; a check fails where it is not."""
    owners = frozenset(k for _, classes in groups for k in classes)
    if others := positions(s, row) - owners:
        without = row.heap.members[min(others)].__name__
        s.check(is_class(s, row, owners), "AttributeError", f"{without!r} object has no attribute {name!r}")
    return replace(row, classes=owners)


def _by_class(
    s: LoweringState,
    row: v.MemoryRow,
    groups: list[Group],
    each: Callable[[LoweringState, v.MemoryRow, Any], v.Abstract],
) -> v.Abstract:
    """A chain of class tests."""
    (found, classes), *rest = groups
    narrowed = replace(row, classes=classes)
    if not rest:
        return each(s, narrowed, found)
    return conditional(
        s,
        is_class(s, row, classes),
        lambda t: each(t, narrowed, found),
        lambda t: _by_class(t, row, rest, each),
    )


def _refuse_unknown(s: LoweringState, row: v.MemoryRow, name: str) -> NoReturn:
    names = " or ".join(c.__name__ for c in classes_of(s, row)) or row.heap.name
    s.refuse(f"{names} has no attribute {name!r}", "check the spelling")
