"""`zip(*rows)` where the number of rows is data: the columns of a list of tuples, or of a list of lists.

hs, ns = zip(*[go(k) for k in t.kids])      of nothing it is nothing, so that unpacking it fails as in Python
"""

from __future__ import annotations

import operator
from typing import Any

from autobatch.frontend.lowering.appending import columns
from autobatch.frontend.lowering.attributes import fields_of
from autobatch.frontend.lowering.comprehensions import collect
from autobatch.frontend.lowering.joins import stored
from autobatch.frontend.lowering.numbers import operand_of, present, traced
from autobatch.frontend.lowering.reductions import extreme
from autobatch.frontend.lowering.selection import select
from autobatch.frontend.lowering.sequences import item, length, sequence
from autobatch.frontend.lowering.state import LoweringState
from autobatch.frontend.memory.list_heap import copied
from autobatch.frontend.types import values as v
from autobatch.frontend.types.layouts import RecordLayout
from autobatch.ir.types import Ref


def transposed(s: LoweringState, found: v.Lazy) -> v.Abstract:
    """The columns of rows: tuples of one length, or lists, of which the shortest tells how many columns there are."""
    rows = collect(s, found, lambda t, x: (True, lambda u: _row(u, x)))
    if isinstance(rows, v.Record):
        return v.Record("tuple", (), ())
    if isinstance(rows.elem, RecordLayout) and rows.elem.kind in ("tuple", "namedtuple"):
        return _of_tuples(s, rows, rows.elem)
    lengths = collect(s, found, lambda t, x: (True, lambda u: length(u, x)))
    count = extreme(s, [lengths], {"default": v.Static(0)}, operator.lt)
    whole = sequence(s, rows)
    assert isinstance(whole, v.Lazy)
    return v.Lazy(count, lambda t, i: v.Lazy(whole.length, lambda u, j: item(u, whole.item(u, j), i), is_tuple=True))


def _row(s: LoweringState, value: v.Abstract) -> v.Abstract:
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
