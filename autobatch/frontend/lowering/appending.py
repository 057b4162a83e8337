"""Loops that only append to a list, or give each node of a graph its value: they are comprehensions.

out = []                                out = [f(c) for c in t.kids]
for c in t.kids:              ->
    y = f(c)
    out.append(y)

h = {}                                  h = {v: f(d["x"]) for v, d in g.nodes(data=True)}
for v, d in g.nodes(data=True):   ->
    h[v] = f(d["x"])
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import jax.numpy as jnp

from autobatch.frontend.library.joined import concatenate
from autobatch.frontend.library.views import by_nodes_of, graph_of_nodes, is_plain, is_set_whole
from autobatch.frontend.lowering.assignment import assign
from autobatch.frontend.lowering.branches import condition, run
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
from autobatch.frontend.lowering.comprehensions import make_map
from autobatch.frontend.lowering.joins import stored
from autobatch.frontend.lowering.numbers import operand_of, traced, undefined
from autobatch.frontend.lowering.sequences import length
from autobatch.frontend.lowering.state import Ended, FunctionFrame, LoweringState, OpenBlock
from autobatch.frontend.memory import heaps
from autobatch.frontend.memory.list_heap import hold
from autobatch.frontend.memory.rebinding import rebind
from autobatch.frontend.syntax.sources import changed, nodes_in, stores
from autobatch.frontend.types import values as v
from autobatch.frontend.types.layouts import Layout, RecordLayout, layout_of, leaf_types, leaves, list_types, rebuild
from autobatch.ir.core import Call, Function, If, Map, Operand, Region, Value
from autobatch.ir.rewrite import copy_region, free_values
from autobatch.ir.types import INT, List


def appended_lists(body: Sequence[ast.stmt], key: str | None = None) -> list[str]:
    """The lists to which each turn appends one element, and the dicts in which it sets one item, that of `key`, if it
    does nothing else with them; else none."""
    appends = [pair for b in body if (pair := appended(b, key)) is not None]
    lists = [name for name, _ in appends]
    plain = [b for b in body if appended(b, key) is None]
    if len(set(lists)) != len(lists):
        return []
    if any(isinstance(n, (ast.Break, ast.Continue, ast.Return)) for b in body for n in nodes_in(b)):
        return []
    if any(_mentions(b, name) for b in (*plain, *(x for _, x in appends)) for name in lists):
        return []
    return lists


def reads_alias(s: LoweringState, node: ast.For, lists: Sequence[str]) -> bool:
    """May a turn read a list that it appends to by another name, or in a function that it calls?"""
    if not s.frame.source.named_inside.isdisjoint(lists):
        return True
    return any(_mentions(b, name) for name, _ in aliases_of(s, node) for b in node.body)


@dataclass(frozen=True)
class _Shape:
    """The statements of a turn: `before`, then `inside` where `test` holds. No test: all are inside. Where the loop is
    over the nodes of a graph, `key` is the name of the node, and `graph` the one."""

    before: tuple[ast.stmt, ...]
    test: ast.expr | None
    inside: tuple[ast.stmt, ...]
    key: str | None = None
    graph: v.Abstract | None = None

    def set_by_node(self) -> frozenset[str]:
        """The dicts in which a turn sets the item of the node."""
        pairs = (appended(b, self.key) for b in self.inside if appended(b) is None)
        return frozenset(pair[0] for pair in pairs if pair is not None)


def _shape(body: Sequence[ast.stmt]) -> _Shape:
    """Find the `if` around the appending statements, or the `if ...: continue` in front of them."""
    for position, node in enumerate(body):
        match node:
            case ast.If(test=test, body=[ast.Continue()], orelse=[]):
                skip = ast.copy_location(ast.UnaryOp(ast.Not(), test), test)
                return _Shape(tuple(body[:position]), skip, tuple(body[position + 1 :]))
            case ast.If(test=test, body=inside, orelse=[]) if position == len(body) - 1:
                return _Shape(tuple(body[:position]), test, tuple(inside))
    return _Shape((), None, tuple(body))


def appended_list(s: LoweringState, node: ast.For, found: v.Lazy) -> bool:
    """Lower the loop as a `Map` if its turns append to lists and hand on nothing else."""
    shape = _over_nodes(s, node, _shape(node.body))
    lists = appended_lists(shape.inside, shape.key)
    tests = () if shape.test is None else (shape.test,)
    if not lists or node.orelse or reads_alias(s, node, lists):
        return False
    if any(_mentions(b, n) for b in (*shape.before, *tests) for n in lists):
        return False
    if any(isinstance(n, (ast.Break, ast.Continue, ast.Return)) for b in shape.before for n in nodes_in(b)):
        return False
    pairs = [(b, appended(b, shape.key)) for b in shape.inside]
    plain = [*shape.before, *(b for b, pair in pairs if pair is None)]
    elements = [pair[1] for _, pair in pairs if pair is not None]
    if changed(*elements, *tests):
        return False  # `out.append(h.pop())`
    if any(n in s.env and _read_first(node.body, n) for n in changed(*plain)):
        return False
    if any(s.frame.source.read_after(n, node) for n in changed(node.target, *plain)):
        return False
    return _lower(s, node, found, lists, shape)


def _over_nodes(s: LoweringState, node: ast.For, shape: _Shape) -> _Shape:
    """The shape of a loop over the nodes of a graph that sets items by node in every turn; others as they are."""
    key = node.target.elts[0] if isinstance(node.target, ast.Tuple) and node.target.elts else node.target
    if is_plain(s, node) or shape.test is not None or not isinstance(key, ast.Name) or key.id in changed(*shape.inside):
        return shape
    by_node = replace(shape, key=key.id)
    if not by_node.set_by_node() or (graph := graph_of_nodes(s, node.iter)) is None:
        return shape
    return replace(by_node, graph=graph)


def is_built_list(value: v.Abstract | None) -> bool:
    """Is it a list that the function builds?"""
    return isinstance(value, v.Listing) or (isinstance(value, v.Record) and value.kind == "list")


def _lower(s: LoweringState, node: ast.For, found: v.Lazy, lists: Sequence[str], shape: _Shape) -> bool:
    before = [s.env[n].value if n in s.env else None for n in lists]
    by_node = shape.set_by_node() if shape.graph is not None else frozenset[str]()
    for name, old in zip(lists, before, strict=True):
        if not (is_set_whole(old, shape.graph) if name in by_node else is_built_list(old)):
            return False

    def element(t: LoweringState) -> v.Abstract:
        made = run_turn(t, shape.inside, shape.key)
        return v.Record("tuple", tuple(range(len(lists))), tuple(made[n] for n in lists))

    def body(t: LoweringState, x: v.Abstract) -> tuple[bool | Operand, Callable[[LoweringState], v.Abstract]]:
        assign(t, node.target, x)
        run_turn(t, shape.before)
        return True if shape.test is None else condition(t, shape.test), element

    listing = make_map(s, found, body)
    for name, old, column in zip(lists, before, columns(s, listing, len(lists)), strict=True):
        assert old is not None
        if name in by_node and shape.graph is not None:
            rebind(s, name, by_nodes_of(s, shape.graph, column, node))
        else:
            rebind(s, name, concatenate(s, old, column))
    return True


def run_turn(s: LoweringState, body: Sequence[ast.stmt], key: str | None = None) -> dict[str, v.Abstract]:
    """Run the statements of a turn; what they append, or set as the item of `key`, is kept aside, by the name of the
    list or dict."""
    made: dict[str, v.Abstract] = {}
    for statement in body:
        pair = appended(statement, key)
        if pair is None:
            s.context.rules.execute(s, [statement])
        else:
            with s.at(statement):
                made[pair[0]] = hold(s, stored(s, s.evaluate(pair[1])))
    if s.dead:
        raise Ended
    return made


def columns(s: LoweringState, value: v.Abstract, count: int) -> list[v.Abstract]:
    """A list of tuples as a tuple of lists."""
    if isinstance(value, v.Record):
        return [v.Record("list", (), ()) for _ in range(count)]
    assert isinstance(value, v.Listing)
    assert isinstance(value.elem, RecordLayout)
    rest = iter(value.lists)
    return [_column(s, value, k, rest) for k in value.elem.items]


def _column(s: LoweringState, rows: v.Listing, layout: Layout, rest: Iterator[Operand]) -> v.Abstract:
    """One position of all rows; what is the same constant in all of them has no list there."""
    lists = tuple(next(rest) for _ in leaf_types(layout))
    if lists:
        made: v.Abstract = v.Listing(lists, layout)
    else:
        constant = rebuild(layout, iter(()))
        made = s.context.rules.materialise(s, v.Lazy(length(s, rows), lambda t, i: constant))
    if isinstance(made, v.Listing):
        s.context.identities.joined(made, rows)
    return made


def appended(node: ast.stmt, key: str | None = None) -> tuple[str, ast.expr] | None:
    """The list and the element of `name.append(element)`; with a `key`, also the dict and the value of
    `name[key] = value`."""
    match node:
        case ast.Expr(
            ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append"), args=[element], keywords=[])
        ):
            return name, element
        case ast.Assign(targets=[ast.Subscript(value=ast.Name(id=name), slice=ast.Name(id=index))], value=value) if (
            index == key
        ):
            return name, value
        case _:
            return None


def _mentions(node: ast.AST, name: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == name for n in nodes_in(node))


def _read_first(body: Sequence[ast.stmt], name: str) -> bool:
    """May a turn read the variable before it sets it? Then it hands something on from turn to turn."""
    for statement in body:
        reads = any(
            isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Load) for n in nodes_in(statement)
        )
        if reads or (isinstance(statement, ast.AugAssign) and _mentions(statement.target, name)):
            return True
        if isinstance(statement, ast.Assign) and name in stores(statement):
            return False
    return True


# ---- scans
#
# Loops that carry state and append to lists: the state after each turn is a function of the turn.
#
#     out, h = [], h0                          def step(k):
#     for x in xs:                                 return h0 if k == 0 else cell(step(k - 1), xs[k - 1])
#         h = cell(h, x)               ->      out = [step(k + 1) for k in range(len(xs))]
#         out.append(h)                        h = step(len(xs))
#
# Equal activations are one frame, so `step` runs once for each turn.


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
