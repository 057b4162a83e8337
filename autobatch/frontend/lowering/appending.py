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

from autobatch.frontend.library.joined import concatenate
from autobatch.frontend.library.views import by_nodes_of, graph_of_nodes, is_plain, is_set_whole
from autobatch.frontend.lowering.assignment import assign
from autobatch.frontend.lowering.branches import condition
from autobatch.frontend.lowering.carrying import aliases_of
from autobatch.frontend.lowering.comprehensions import make_map
from autobatch.frontend.lowering.joins import stored
from autobatch.frontend.lowering.sequences import length
from autobatch.frontend.lowering.state import Ended, LoweringState
from autobatch.frontend.memory.list_heap import hold
from autobatch.frontend.memory.rebinding import rebind
from autobatch.frontend.syntax.sources import changed, nodes_in, stores
from autobatch.frontend.types import values as v
from autobatch.frontend.types.layouts import Layout, RecordLayout, leaf_types, rebuild
from autobatch.ir.core import Operand


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
