"""Comprehensions whose turns make or change objects that have memory: they are loops, since one turn follows another.

[Node(x) for x in xs]            for x in xs:
                         ->          made = [*made, Node(x)]
"""

from __future__ import annotations

from collections.abc import Callable

from autobatch.frontend.library.joined import EMPTY, concatenate
from autobatch.frontend.lowering.carrying import Layouts, Turn, enter_turn, leave, region_of, settle, yields_of
from autobatch.frontend.lowering.joins import arms, attempt, join, stored
from autobatch.frontend.lowering.numbers import operand_of
from autobatch.frontend.lowering.state import LoweringState
from autobatch.frontend.memory import heaps
from autobatch.frontend.types import values as v
from autobatch.ir.core import For, Operand
from autobatch.ir.types import INT

Body = Callable[[LoweringState, v.Abstract], tuple[bool | Operand, Callable[[LoweringState], v.Abstract]]]
"""Whether an item is kept, and what it becomes."""
_MADE = "<made>"


def in_loop(s: LoweringState, found: v.Lazy, body: Body) -> v.Record | v.Listing:
    """The list that a comprehension makes, one element after the other."""
    before = dict(s.env)
    s.bind(_MADE, EMPTY)

    def turn(layouts: Layouts) -> Turn:
        t, args = enter_turn(s, layouts, ())
        index = s.context.value(INT, "turn")
        attempt(t, lambda u: _turn(u, body, found.item(u, v.Leaf(index))))
        return Turn(t, args, index)

    layouts, made, initial = settle(s, [*heaps.variables(s), _MADE], turn)
    assert made.index is not None
    yields = made.args if made.end.dead else yields_of(made.end, layouts)
    results = tuple(s.context.value(a.type) for a in made.args)
    region = region_of((made.index, *made.args), made.end, yields)
    s.emit(For(results, operand_of(s, found.length), tuple(initial), region, s.span))
    leave(s, layouts, results)
    listing = s.env[_MADE].value
    s.restore(before)
    assert isinstance(listing, v.Record | v.Listing)
    return listing


def _turn(s: LoweringState, body: Body, item: v.Abstract) -> v.Abstract:
    kept, element = body(s, item)

    def add(t: LoweringState) -> v.Abstract:
        new = v.Record("list", (0,), (stored(t, element(t)),))
        t.bind(_MADE, concatenate(t, t.env[_MADE].value, new))
        return v.Static(None)

    if isinstance(kept, bool):
        return add(s) if kept else v.Static(None)
    a, b = arms(s, kept)
    attempt(a, add)
    join(s, kept, a, b)
    return v.Static(None)
