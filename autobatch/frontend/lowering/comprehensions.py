"""Comprehensions and generator expressions: `Map`, or one item after the other over a container.

[f(c) for c in t.kids if c.ok]        %3: list<..> = map filtered %n body(%i): ... yield %ok, %y
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import jax.numpy as jnp

from autobatch.errors import SourceError
from autobatch.frontend.library import graphs, tables
from autobatch.frontend.library.graphs import by_nodes_of, graph_of_nodes, is_plain, is_set_whole, viewed
from autobatch.frontend.library.groups import is_groups
from autobatch.frontend.library.sets import iterated
from autobatch.frontend.library.tables import EMPTY, concatenate, flatten
from autobatch.frontend.lowering.assignment import assign
from autobatch.frontend.lowering.branches import condition, harmless, run
from autobatch.frontend.lowering.carrying import (
    Layouts,
    Turn,
    aliases_of,
    carried_names,
    changed_unseen,
    enter_turn,
    leave,
    region_of,
    settle,
    yields_of,
)
from autobatch.frontend.lowering.exceptions import in_range
from autobatch.frontend.lowering.iterators import held
from autobatch.frontend.lowering.joins import arms, as_listing, attempt, captured, join, stored
from autobatch.frontend.lowering.numbers import operand_of, traced, undefined
from autobatch.frontend.lowering.sequences import length, listing_item, sequence
from autobatch.frontend.lowering.state import Ended, FunctionFrame, LoweringState, OpenBlock, UnknownResult, variable
from autobatch.frontend.memory import heaps, list_heap
from autobatch.frontend.memory.list_heap import hold, tuple_of
from autobatch.frontend.memory.rebinding import rebind
from autobatch.frontend.syntax import invalidation
from autobatch.frontend.syntax.generators import expression, yielded
from autobatch.frontend.syntax.invalidation import refuse_calls_of_elements
from autobatch.frontend.syntax.sources import changed, nodes_in, stores
from autobatch.frontend.types import values as v
from autobatch.frontend.types.unify import is_open
from autobatch.frontend.types.values import Layout, RecordLayout, layout_of, leaf_types, leaves, list_types, rebuild
from autobatch.ir.core import INT, Apply, Call, For, Function, If, List, Map, Operand, Region, Value
from autobatch.ir.regions import copy_region, free_values

# ---- rolled
#
# Comprehensions whose turns make or change objects that have memory: they are loops, since one turn follows another.
#
# [Node(x) for x in xs]            for x in xs:
#                          ->          made = [*made, Node(x)]


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
    s.restore(before, [_MADE])
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


def comprehension(s: LoweringState, node: ast.ListComp | ast.GeneratorExp) -> v.Abstract:
    """The list that a comprehension makes."""
    if isinstance(node, ast.GeneratorExp):
        invalidation.refuse(s, node)
    elif invalidation.changes(node):
        return invalidation.in_turns(s, node, node.elt)
    before = dict(s.env)
    items = iterated(s, node.generators[0].iter)
    if isinstance(node, ast.GeneratorExp) and isinstance(items, v.Generator):
        return expression(s, node, items)
    if isinstance(items, v.Generator) and is_groups(items):
        return yielded(s, expression(s, node, items))
    result = _generate(s, node.generators, node.elt, items)
    refuse_calls_of_elements(s, node.generators, node.elt)
    s.restore(before, _targets(node))
    return result


def _targets(node: ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp) -> Sequence[str]:
    """The variables of a comprehension."""
    return stores(*(g.target for g in node.generators))


def set_comprehension(s: LoweringState, node: ast.SetComp) -> v.Abstract:
    """The set that a comprehension makes."""
    if invalidation.changes(node):
        return s.context.rules.make_set(s, invalidation.in_turns(s, node, node.elt))
    before = dict(s.env)
    found = _generate(s, node.generators, node.elt)
    refuse_calls_of_elements(s, node.generators, node.elt)
    s.restore(before, _targets(node))
    return s.context.rules.make_set(s, found)


def _generate(
    s: LoweringState,
    generators: Sequence[ast.comprehension],
    element: ast.expr,
    source: v.Abstract | None = None,
    *,
    unrolled: bool = False,
) -> v.Abstract:
    """`source`: what the first `for` runs over, where that is known. `unrolled`: one item after the other where their
    number is known while compiling, as keys of a dict must be."""
    first, *rest = generators
    if first.is_async:
        s.refuse("`async for` cannot be compiled", "use `for`")
    found = sequence(s, iterated(s, first.iter) if source is None else source)
    if unrolled and isinstance(found, v.Lazy) and isinstance(found.length, v.Static):
        items = tuple(found.item(s, v.Static(k)) for k in range(found.length.value))
        found = v.Record("tuple", tuple(range(len(items))), items)

    def inner(t: LoweringState) -> v.Abstract:
        if rest:
            return stored(t, _generate(t, rest, element, unrolled=unrolled))
        return stored(t, hold(t, t.evaluate(held(t, element))))

    def body(t: LoweringState, x: v.Abstract) -> tuple[bool | Operand, Callable[[LoweringState], v.Abstract]]:
        assign(t, first.target, x)
        return _filters(t, first.ifs), inner

    result = collect(s, found, body, listed=bool(rest))
    return flatten(s, result) if rest else result


def _filters(s: LoweringState, tests: Sequence[ast.expr]) -> bool | Operand:
    """All filters of a `for`; a later one may read an item only where the earlier ones hold."""
    if not tests:
        return True
    return condition(s, tests[0] if len(tests) == 1 else ast.copy_location(ast.BoolOp(ast.And(), [*tests]), tests[0]))


def collect(s: LoweringState, found: v.Record | v.Lazy, body: Body, *, listed: bool = False) -> v.Record | v.Listing:
    """A list of `body` over a sequence. `listed`: its elements are lists, of any length even where it is fixed."""
    if isinstance(found, v.Record):
        unrolled = _unroll(s, found, body)
        if unrolled is not None:
            return unrolled
        found = _lazy(s, found)
    return make_map(s, found, partial(_listed, body) if listed else body)


def _listed(
    body: Body, s: LoweringState, x: v.Abstract
) -> tuple[bool | Operand, Callable[[LoweringState], v.Abstract]]:
    kept, element = body(s, x)

    def made(t: LoweringState) -> v.Abstract:
        value = element(t)
        return as_listing(t, value) if isinstance(value, v.Record) and value.items else value

    return kept, made


def _lazy(s: LoweringState, found: v.Record) -> v.Lazy:
    lazy = sequence(s, as_listing(s, found))
    assert isinstance(lazy, v.Lazy)
    return lazy


def _unroll(s: LoweringState, found: v.Record, body: Body) -> v.Record | None:
    """One item after the other; None when a filter is not known while compiling."""
    kept: list[v.Abstract] = []
    take_back = s.mark()
    for x in found.items:
        wanted, element = body(s, x)
        if not isinstance(wanted, bool):
            take_back()
            return None
        if wanted:
            kept.append(element(s))
    return v.Record("list", tuple(range(len(kept))), tuple(kept))


def make_map(s: LoweringState, found: v.Lazy, body: Body) -> v.Record | v.Listing:
    """A `Map` over a sequence."""
    t = s.fork()
    turn = s.context.value(INT, "turn")
    element: Callable[[LoweringState], v.Abstract]
    try:
        item = found.item(t, v.Leaf(turn))
        in_range(t, turn)
        kept, element = body(t, item)
        element = partial(_checked, element, s)
        if kept is True:
            value = element(t)
            layout, yields = layout_of(value), leaves(value)
        elif kept is False:
            rolled = heaps.is_changed(s, t) or changed_unseen(s, t, ())
            return in_loop(s, found, body) if rolled else v.Record("list", (), ())
        else:
            value, layout, yields = _where(t, kept, element)
    except _Rolled:
        return in_loop(s, found, body)
    except UnknownResult:
        s.guess()
        return v.Record("list", (), ())
    except SourceError as error:
        if not t.defer(error):
            raise
        s.guess()
        return v.Record("list", (), ())
    except Ended:
        s.emit(Map((), operand_of(s, found.length), Region((turn,), tuple(t.block.body), ()), False, s.span))
        return v.Record("list", (), ())
    if heaps.is_changed(s, t) or changed_unseen(s, t, ()):
        return in_loop(s, found, body)
    filtered = kept is not True
    if not filtered and (copied := _copied(s, t, turn, found.length, yields)) is not None:
        return _listing(s, copied, layout, value)
    if not leaf_types(layout):
        yields = [*yields, t.scalar(0)]
    results = tuple(s.context.value(List(x)) for x in list_types(layout))
    flags = [kept] if not isinstance(kept, bool) else []
    region = Region((turn,), tuple(t.block.body), (*flags, *yields))
    s.emit(Map(results, operand_of(s, found.length), region, filtered, s.span))
    listing = _listing(s, results, layout, value)
    if not filtered and isinstance(found.length, v.Leaf):
        for result in results:
            s.block.memo["length", result] = found.length
    return listing


def _listing(s: LoweringState, lists: tuple[Operand, ...], layout: Layout, item: v.Abstract) -> v.Listing:
    """A new list, whose items are like this one."""
    made = v.Listing(lists, layout)
    s.context.identities.collected(made, [item], [b.value for b in s.env.values()])
    return made


def _checked(element: Callable[[LoweringState], v.Abstract], s: LoweringState, t: LoweringState) -> v.Abstract:
    """The element of a turn; refused where it puts keys into a `defaultdict`, which all turns would share."""
    value = element(t)
    before = ((n, b.value) for n, b in s.env.items() if tables.has_default(b.value))
    if any(n in t.env and t.env[n].value is not x for n, x in before):
        t.refuse(
            "a defaultdict is read in a comprehension, which may put keys into it", "read it with .get(key, default)"
        )
    return value


def _copied(
    s: LoweringState, t: LoweringState, turn: Operand, count: v.Abstract, yields: list[Operand]
) -> tuple[Operand, ...] | None:
    """The lists whose items a comprehension takes one after the other: `[h for h, c in pairs]` is no loop."""
    sources: dict[Operand, Operand] = {}
    for instruction in t.block.body:
        match instruction:
            case Apply(results=(result,), op=op, operands=(items, index)) if op.name == "item" and index == turn:
                if isinstance(items.type, List) and items.type.store is None:
                    sources[result] = items
                    continue
        return None
    lists = tuple(sources[y] for y in yields if y in sources)
    whole = all(s.block.recall(("length", x)) == count for x in lists)
    return lists if yields and len(lists) == len(yields) and whole else None


class _Rolled(Exception):
    """The turns make or change objects where the filter holds."""


def _where(
    t: LoweringState, condition: Operand, element: Callable[[LoweringState], v.Abstract]
) -> tuple[v.Abstract, Layout, list[Operand]]:
    """The element of a filtered comprehension: computed only where the filter holds."""
    a, b = arms(t, condition)
    try:
        value = element(a)
        if heaps.is_changed(t, a):
            raise _Rolled
    except Ended:
        t.emit(If((), condition, Region((), tuple(a.block.body), ()), Region((), (), ()), t.span))
        raise
    layout = layout_of(value)
    ours = leaves(value)
    if harmless(a, a.env):
        t.block.body += a.block.body
        return value, layout, ours
    others = [undefined(b, x) for x in leaf_types(layout)]
    results = tuple(t.context.value(x) for x in leaf_types(layout))
    then, orelse = (Region((), tuple(x.block.body), tuple(ys)) for x, ys in ((a, ours), (b, others)))
    t.emit(If(results, condition, then, orelse, t.span))
    return value, layout, list(results)


def materialise(s: LoweringState, value: v.Abstract) -> v.Abstract:
    """A lazy sequence, or what a generator yields, as a list; a list of functions as one of functions that hold what
    they read."""
    if isinstance(value, v.Generator):
        return yielded(s, value)
    if isinstance(value, v.Listing) and is_open(value.elem):
        each = v.Lazy(length(s, value), lambda t, i: listing_item(t, value, i))
        made = make_map(s, each, lambda t, x: (True, lambda u: captured(u, x)))
        return tuple_of(made) if value.is_tuple else made
    if not isinstance(value, v.Lazy):
        return value
    if list_heap.is_view(value):
        return list_heap.as_it_is(s, value, "list")
    made = make_map(s, value, lambda t, x: (True, lambda u: stored(u, x)))
    return tuple_of(made) if value.is_tuple else made


def dict_comprehension(s: LoweringState, node: ast.DictComp) -> v.Abstract:
    """A dict, whose keys may be known while compiling."""
    pair = ast.copy_location(ast.Tuple([node.key, node.value], ast.Load()), node)
    if invalidation.changes(node):
        return tables.of_pairs(s, invalidation.in_turns(s, node, pair))
    if (by_node := _by_node(s, node)) is not None:
        return by_node
    before = dict(s.env)
    items = iterated(s, node.generators[0].iter)
    if isinstance(items, v.Generator) and is_groups(items):
        known = s.context.memory.rewritten
        pairs = known.setdefault(node, ast.copy_location(ast.GeneratorExp(pair, node.generators), node))
        return tables.of_pairs(s, yielded(s, expression(s, pairs, items)))
    found = _generate(s, node.generators, pair, items, unrolled=True)
    s.restore(before, _targets(node))
    return tables.of_pairs(s, found)


def _by_node(s: LoweringState, node: ast.DictComp) -> v.Abstract | None:
    """`{v: h(v) for v in graph}`: a value for each node of a graph."""
    match node:
        case ast.DictComp(
            key=ast.Name(id=key), generators=[ast.comprehension(target=ast.Name(id=target), iter=source, ifs=[])]
        ) if key == target and not is_plain(s, node):
            found = viewed(s, s.evaluate(source))
        case _:
            return None
    if not isinstance(found, v.Record) or found.cls not in (graphs.Graph, graphs.Nodes, graphs.ByNode):
        return None
    before = dict(s.env)
    values = stored(s, _generate(s, node.generators, node.value))
    s.restore(before, _targets(node))
    return by_nodes_of(s, found.items[0], values, node)


def nested_reduction(s: LoweringState, node: ast.Call) -> ast.expr | None:
    """`sum(e for a in A for b in B)` as `sum(sum(e for b in B) for a in A)`; likewise any() and all()."""
    match node:
        case ast.Call(func=ast.Name(id="sum" | "any" | "all" as name), args=[ast.GeneratorExp() as inner], keywords=[]):
            if len(inner.generators) < 2 or variable(s, name) != v.Static(getattr(builtins, name)):
                return None
        case _:
            return None
    known = s.context.memory.rewritten  # what is noted of loops that these become is found again by them
    if inner not in known:
        first, *rest = inner.generators
        part = ast.copy_location(ast.GeneratorExp(inner.elt, rest), inner)
        reduced = ast.copy_location(ast.Call(node.func, [part], []), node)
        outer = ast.copy_location(ast.GeneratorExp(reduced, [first]), inner)
        known[inner] = ast.copy_location(ast.Call(node.func, [outer], []), node)
    found: ast.expr = known[inner]
    return found


# ---- appending
#
# Loops that only append to a list, or give each node of a graph its value: they are comprehensions.
#
# out = []                                out = [f(c) for c in t.kids]
# for c in t.kids:              ->
#     y = f(c)
#     out.append(y)
#
# h = {}                                  h = {v: f(d["x"]) for v, d in g.nodes(data=True)}
# for v, d in g.nodes(data=True):   ->
#     h[v] = f(d["x"])


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
    """Lower the loop as a `Map` if its turns append to lists and pass on nothing else."""
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
                made[pair[0]] = hold(s, stored(s, s.evaluate(held(s, pair[1]))))
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
    block = OpenBlock(None, context)
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
