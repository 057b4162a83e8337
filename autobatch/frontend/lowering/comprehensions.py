"""Comprehensions and generator expressions: `Map`, or one item after the other over a container.

[f(c) for c in t.kids if c.ok]        %3: list<..> = map filtered %n body(%i): ... yield %ok, %y
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Sequence
from functools import partial

from autobatch.errors import SourceError
from autobatch.frontend.library import graphs, tables
from autobatch.frontend.library.groups import is_groups
from autobatch.frontend.library.joined import EMPTY, concatenate, flatten
from autobatch.frontend.library.views import by_nodes_of, is_plain, viewed
from autobatch.frontend.lowering.access import variable
from autobatch.frontend.lowering.assignment import assign
from autobatch.frontend.lowering.branches import condition, harmless
from autobatch.frontend.lowering.carrying import Layouts, Turn, enter_turn, leave, region_of, settle, yields_of
from autobatch.frontend.lowering.joins import arms, as_listing, attempt, join, stored
from autobatch.frontend.lowering.numbers import operand_of, undefined
from autobatch.frontend.lowering.sequences import begin, sequence
from autobatch.frontend.lowering.state import Ended, LoweringState, UnknownResult
from autobatch.frontend.memory import heaps, record_heap
from autobatch.frontend.memory.list_heap import hold, tuple_of
from autobatch.frontend.syntax import beneath
from autobatch.frontend.syntax.beneath import refuse_calls_of_elements
from autobatch.frontend.syntax.generators import expression, yielded
from autobatch.frontend.types import values as v
from autobatch.frontend.types.layouts import Layout, layout_of, leaf_types, leaves, list_types
from autobatch.ir.core import Apply, For, If, Map, Operand, Region
from autobatch.ir.types import INT, List

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


def comprehension(s: LoweringState, node: ast.ListComp | ast.GeneratorExp) -> v.Abstract:
    """The list that a comprehension makes."""
    if isinstance(node, ast.GeneratorExp):
        beneath.refuse(s, node)
    elif beneath.changes(node):
        return beneath.in_turns(s, node, node.elt)
    before = dict(s.env)
    items = begin(s, s.evaluate(node.generators[0].iter))
    if isinstance(node, ast.GeneratorExp) and isinstance(items, v.Generator):
        return expression(s, node, items)
    if isinstance(items, v.Generator) and is_groups(items):
        return yielded(s, expression(s, node, items))
    result = _generate(s, node.generators, node.elt, items)
    refuse_calls_of_elements(s, node.generators, node.elt)
    s.restore(before)
    return result


def set_comprehension(s: LoweringState, node: ast.SetComp) -> v.Abstract:
    """The set that a comprehension makes."""
    if beneath.changes(node):
        return s.context.rules.make_set(s, beneath.in_turns(s, node, node.elt))
    before = dict(s.env)
    found = _generate(s, node.generators, node.elt)
    refuse_calls_of_elements(s, node.generators, node.elt)
    s.restore(before)
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
    found = sequence(s, s.evaluate(first.iter) if source is None else source)
    if unrolled and isinstance(found, v.Lazy) and isinstance(found.length, v.Static):
        items = tuple(found.item(s, v.Static(k)) for k in range(found.length.value))
        found = v.Record("tuple", tuple(range(len(items))), items)

    def inner(t: LoweringState) -> v.Abstract:
        return stored(t, _generate(t, rest, element, unrolled=unrolled) if rest else hold(t, t.evaluate(element)))

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
        kept, element = body(t, found.item(t, v.Leaf(turn)))
        element = partial(_checked, element, s)
        if kept is True:
            value = element(t)
            layout, yields = layout_of(value), leaves(value)
        elif kept is False:
            return in_loop(s, found, body) if heaps.is_changed(s, t) else v.Record("list", (), ())
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
    if heaps.is_changed(s, t):
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
    """A lazy sequence, or what a generator yields, as a list."""
    if isinstance(value, v.Generator):
        return yielded(s, value)
    if not isinstance(value, v.Lazy):
        return value
    if record_heap.is_view(value):
        return record_heap.as_it_is(s, value, "list")
    made = make_map(s, value, lambda t, x: (True, lambda u: stored(u, x)))
    return tuple_of(made) if value.is_tuple else made


def dict_comprehension(s: LoweringState, node: ast.DictComp) -> v.Abstract:
    """A dict, whose keys may be known while compiling."""
    pair = ast.copy_location(ast.Tuple([node.key, node.value], ast.Load()), node)
    if beneath.changes(node):
        return tables.of_pairs(s, beneath.in_turns(s, node, pair))
    if (by_node := _by_node(s, node)) is not None:
        return by_node
    before = dict(s.env)
    items = begin(s, s.evaluate(node.generators[0].iter))
    if isinstance(items, v.Generator) and is_groups(items):
        known = s.context.memory.rewritten
        pairs = known.setdefault(node, ast.copy_location(ast.GeneratorExp(pair, node.generators), node))
        return tables.of_pairs(s, yielded(s, expression(s, pairs, items)))
    found = _generate(s, node.generators, pair, items, unrolled=True)
    s.restore(before)
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
    s.restore(before)
    return by_nodes_of(s, found.items[0], values, node)


def nested_reduction(s: LoweringState, node: ast.Call) -> ast.expr | None:
    """`sum(e for a in A for b in B)` as `sum(sum(e for b in B) for a in A)`; likewise any() and all()."""
    match node:
        case ast.Call(func=ast.Name(id="sum" | "any" | "all" as name), args=[ast.GeneratorExp() as inner], keywords=[]):
            if len(inner.generators) < 2 or variable(s, name) != v.Static(getattr(builtins, name)):
                return None
        case _:
            return None
    first, *rest = inner.generators
    part = ast.copy_location(ast.GeneratorExp(inner.elt, rest), inner)
    reduced = ast.copy_location(ast.Call(node.func, [part], []), node)
    return ast.copy_location(
        ast.Call(node.func, [ast.copy_location(ast.GeneratorExp(reduced, [first]), inner)], []), node
    )
