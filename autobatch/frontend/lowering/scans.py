"""Loops that carry state and append to lists: the state after each turn is a function of the turn.

    out, h = [], h0                          def step(k):
    for x in xs:                                 return h0 if k == 0 else cell(step(k - 1), xs[k - 1])
        h = cell(h, x)               ->      out = [step(k + 1) for k in range(len(xs))]
        out.append(h)                        h = step(len(xs))

Equal activations are one frame, so `step` runs once for each turn.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

import jax.numpy as jnp

from autobatch.frontend.library.joined import concatenate
from autobatch.frontend.lowering.appending import appended_lists, is_built_list, reads_alias, run_turn
from autobatch.frontend.lowering.assignment import assign
from autobatch.frontend.lowering.branches import run
from autobatch.frontend.lowering.carrying import (
    Layouts,
    Turn,
    aliases_of,
    carried_names,
    enter_turn,
    leave,
    settle,
    yields_of,
)
from autobatch.frontend.lowering.joins import stored
from autobatch.frontend.lowering.numbers import operand_of, traced, undefined
from autobatch.frontend.lowering.state import FunctionFrame, LoweringState, OpenBlock
from autobatch.frontend.memory import heaps
from autobatch.frontend.memory.rebinding import rebind
from autobatch.frontend.types import values as v
from autobatch.frontend.types.layouts import layout_of, leaf_types, leaves, list_types
from autobatch.ir.core import Call, Function, If, Map, Operand, Region, Value
from autobatch.ir.rewrite import copy_region, free_values
from autobatch.ir.types import INT, List


def scan(s: LoweringState, node: ast.For, found: v.Lazy) -> bool:
    """Lower the loop as a function of the turn, if it appends one element to each of some lists in every turn."""
    lists = appended_lists(node.body)
    if not lists or node.orelse or reads_alias(s, node, lists) or not all(is_built_list(_old(s, n)) for n in lists):
        return False
    made: dict[str, v.Abstract] = {}

    def turn(layouts: Layouts) -> Turn:
        t, args = enter_turn(s, layouts, ())
        index = s.context.value(INT, "turn")
        run(t, lambda u: made.update(_body(u, node, found.item(u, v.Leaf(index)))))
        return Turn(t, args, index)

    others = {name for name, _ in aliases_of(s, node)}  # of the lists, which are bound with them
    others.update(heaps.variables(s))
    names = [n for n in carried_names(s, node) if n not in lists and n not in others]
    layouts, last, initial = settle(s, names, turn, node=node)
    if last.end.dead or heaps.is_changed(s, last.end):
        return False
    items = [stored(last.end, made[n]) for n in lists]
    if any(s.context.identities.may_share(x, last.end.env[n].value) for x in items for n in names):
        return False  # what is behind the loop may be in a list, too
    elements = [layout_of(x) for x in items]
    yields = [*yields_of(last.end, layouts), *(o for x in items for o in leaves(x))]
    types = [*(a.type for a in last.args), *(t for k in elements for t in leaf_types(k))]
    name, captured = _function(s, last, initial, yields, types)

    def state_after(t: LoweringState, turns: Operand) -> tuple[Value, ...]:
        results = tuple(s.context.value(x) for x in types)
        t.emit(Call(results, name, (turns, *captured), t.span))
        return results

    count = operand_of(s, found.length)
    _lists(s, lists, items, count, len(last.args), state_after)
    leave(s, layouts, state_after(s, count)[: len(last.args)])
    return True


def _old(s: LoweringState, name: str) -> v.Abstract | None:
    return s.env[name].value if name in s.env else None


def _body(s: LoweringState, node: ast.For, item: v.Abstract) -> dict[str, v.Abstract]:
    """One turn; what it appends is kept aside."""
    assign(s, node.target, item)
    return run_turn(s, node.body)


def _function(
    s: LoweringState, last: Turn, initial: Sequence[Operand], yields: Sequence[Operand], types: Sequence[object]
) -> tuple[str, tuple[Value, ...]]:
    """The function of the turn: its name, and what it takes beside the number of turns."""
    context = s.context
    assert last.index is not None
    name = context.unique(f"{s.frame.source.name}.scan")
    block = OpenBlock(None)
    inner = LoweringState(FunctionFrame(context, s.frame.source, {}), block, {}, span=s.span)
    turns = context.value(INT, "turns")
    started = traced(inner, jnp.greater, v.Leaf(turns), v.Static(0)).operand
    arm = LoweringState(inner.frame, OpenBlock(block), {}, span=s.span)
    index = traced(arm, jnp.subtract, v.Leaf(turns), v.Static(1)).operand
    previous = tuple(context.value(y.type) for y in yields)
    body = Region((last.index, *last.args), tuple(last.end.block.body), tuple(yields))
    captured = free_values(Region((), (), (*initial, *_free(body, s))), context.shared_values)
    parameters = tuple(context.value(x.type, x.hint) for x in captured)
    env: dict[Value, Operand] = dict(zip(captured, parameters, strict=True))
    begin = copy_region(Region((), (), tuple(initial)), env, None)
    env |= {last.index: index} | dict(zip(last.args, previous, strict=False))
    then = copy_region(Region((), body.body, body.results), env, None)
    again = Call(previous, name, (index, *parameters), s.span)
    nothing = LoweringState(inner.frame, OpenBlock(block), {}, span=s.span)
    rest = [undefined(nothing, y.type) for y in yields[len(last.args) :]]
    results = tuple(context.value(y.type) for y in yields)
    choice = If(
        results,
        started,
        Region((), (*arm.block.body, again, *then.body), then.results),
        Region((), tuple(nothing.block.body), (*begin.results, *rest)),
        s.span,
    )
    region = Region((turns, *parameters), (*block.body, choice), results)
    context.functions[name] = Function(name, region, s.span)
    return name, captured


def _free(body: Region, s: LoweringState) -> tuple[Value, ...]:
    return free_values(body, s.context.shared_values)


def _lists(
    s: LoweringState,
    names: Sequence[str],
    items: Sequence[v.Abstract],
    count: Operand,
    skipped: int,
    state_after: Callable[[LoweringState, Operand], tuple[Value, ...]],
) -> None:
    """The lists of what the turns appended, which is like `items`."""
    elements = list(map(layout_of, items))
    t = s.fork()
    turn = s.context.value(INT, "turn")
    turns = traced(t, jnp.add, v.Leaf(turn), v.Static(1)).operand
    made = iter(state_after(t, turns)[skipped:])
    yields: list[Operand] = []
    for layout in elements:
        yields += [next(made) for _ in leaf_types(layout)] or [t.scalar(0)]
    results = tuple(s.context.value(List(x.type)) for x in yields)
    s.emit(Map(results, count, Region((turn,), tuple(t.block.body), tuple(yields)), False, s.span))
    columns = iter(results)
    for name, layout, item in zip(names, elements, items, strict=True):
        column = v.Listing(tuple(next(columns) for _ in list_types(layout)), layout)
        s.context.identities.collected(column, [item])
        for x in column.lists:
            s.block.memo["length", x] = v.Leaf(count) if isinstance(count, Value) else v.Static(count.value)
        old = s.env[name].value
        rebind(s, name, concatenate(s, old, column))
