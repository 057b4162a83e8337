"""The result of the entry: which of its operands stands where in the Python value that the caller gets."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

from autobatch.frontend import values as v
from autobatch.frontend.access import expand, take_apart
from autobatch.frontend.comprehensions import make_map
from autobatch.frontend.joins import convert, stored
from autobatch.frontend.layouts import Conflict, LeafLayout, describe, layout_of, static_type, unify
from autobatch.frontend.layouts import rebuild as rebuild_value
from autobatch.frontend.numbers import is_python
from autobatch.frontend.sequences import sequence
from autobatch.frontend.state import State
from autobatch.frontend.statics import inputs
from autobatch.ir.core import Literal, Operand
from autobatch.ir.template import Container, Fixed, Output, Template
from autobatch.ir.types import Array


def _holds_numbers(element: v.Abstract) -> bool:
    """Is some part of the elements of a list a number that the compiler knows?"""
    match element:
        case v.Static(value=held):
            return isinstance(static_type(held), Array)
        case v.Record(items=items):
            return any(map(_holds_numbers, items))
        case _:
            return False


def _as_leaves(state: State, element: v.Abstract) -> v.Abstract:
    """The same element with such numbers as operands, so that the list has a row for each of them."""
    match element:
        case v.Static(value=held) if isinstance(type := static_type(held), Array):
            return v.Leaf(Literal(held, type))
        case v.Record(items=items):
            return replace(element, items=tuple(_as_leaves(state, x) for x in items))
        case _:
            return stored(state, element)


def _alike(s: State, items: tuple[v.Abstract, ...]) -> tuple[v.Abstract, ...]:
    """The elements of a list that is written out, as values of one type where they have one: `[1, 2.5]`."""
    items = tuple(stored(s, i) for i in items)
    try:
        layout = reduce(unify, map(layout_of, items)) if items else None
    except Conflict:
        return items
    if not isinstance(layout, LeafLayout):
        return items
    return tuple(rebuild_value(layout, iter(convert(s, i, layout))) for i in items)


class Outputs:
    """Collects the operands that the entry returns."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.operands: list[Operand] = []

    def template(self, value: v.Abstract) -> Template:
        """The template of a result."""
        value = expand(self.state, stored(self.state, value))
        match value:
            case v.Static(value=held):
                return self._static(value, held)
            case v.Leaf(operand=operand):
                return self._output(operand)
            case v.Optional(value=inner, missing=missing):
                return self._optional(inner, missing)
            case v.Record(kind, keys, items, cls, treedef):
                items = _alike(self.state, items) if kind == "list" else items
                return Container(kind, tuple(map(self.template, items)), keys, cls, treedef)
            case v.Listing(elem=elem) if _holds_numbers(rebuild_value(elem, iter(value.lists))):
                found = sequence(self.state, value)
                assert isinstance(found, v.Lazy)
                return self.template(make_map(self.state, found, lambda t, x: (True, lambda u: _as_leaves(u, x))))
            case v.Listing(lists=lists, elem=elem):
                return Container("rows", (self.template(rebuild_value(elem, iter(lists))),))
            case _:
                self.state.refuse(f"the result is {describe(layout_of(value))}", "return numbers, lists and objects")

    def _static(self, value: v.Static, held: object) -> Template:
        if isinstance(type := static_type(held), Array):
            return self._output(Literal(held, type))  # type: ignore[arg-type]
        if inputs(held):
            return self.template(take_apart(self.state.context, held))
        return Fixed(held)

    def _output(self, operand: Operand) -> Output:
        self.operands.append(operand)
        python = isinstance(operand.type, Array) and is_python(operand.type)
        return Output(len(self.operands) - 1, operand.type, python)

    def _optional(self, inner: v.Abstract, missing: Operand) -> Template:
        if not isinstance(inner, v.Leaf):
            self.state.refuse(
                "the result is None on some path and a container on another", "return None for each of its parts"
            )
        output = self._output(inner.operand)
        self.operands.append(missing)
        return Output(output.index, output.type, output.python, len(self.operands) - 1)
