"""`sum`, `any`, `all`, `min`, `max` over containers, lists and comprehensions; `sorted` and `list.sort`: order by keys.

    sorted(t.kids, key=lambda c: (c.rank, c.name))        %9: list<int> = sort_order(%ranks, %names)

The elements stay where they are; what is made is the list of their positions. Keys that are compared by what their
class defines, or element by element, are put into order by such comparisons, one by one.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax.numpy as jnp

from autobatch.frontend.library import equality
from autobatch.frontend.library.numpy_arrays import kind_of
from autobatch.frontend.library.strings import is_ordered
from autobatch.frontend.library.tables import concatenate, flatten
from autobatch.frontend.lowering import unions
from autobatch.frontend.lowering.attributes import fields_of, written
from autobatch.frontend.lowering.branches import truth
from autobatch.frontend.lowering.comprehensions import collect
from autobatch.frontend.lowering.joins import as_listing, conditional, stored
from autobatch.frontend.lowering.loops import for_statement
from autobatch.frontend.lowering.numbers import coerce, combine, integer, is_number, operand_of, present, traced
from autobatch.frontend.lowering.operators import apply_binary, compare_with
from autobatch.frontend.lowering.selection import of_each
from autobatch.frontend.lowering.sequences import item, length, listing_item, sequence
from autobatch.frontend.lowering.state import LoweringState, variable
from autobatch.frontend.lowering.tracing import alike_for_all
from autobatch.frontend.lowering.unions import taken_as
from autobatch.frontend.memory import list_heap
from autobatch.frontend.syntax.sources import stores
from autobatch.frontend.types import values as v
from autobatch.frontend.types.values import (
    HeldLayout,
    Layout,
    LeafLayout,
    ListingLayout,
    RecordLayout,
    RowLayout,
    type_name,
)
from autobatch.ir import jax_compat
from autobatch.ir.core import INT, Array, For, List, Operand, Ref, Region, Tag, Value
from autobatch.ir.ops import NO_ELEMENTS, own

# ---- order by keys


def ordered(s: LoweringState, value: v.Abstract, options: dict[str, v.Abstract]) -> v.Abstract:
    """`sorted(value, key=..., reverse=...)`"""
    key, reverse = options.get("key"), options.get("reverse", v.Static(False))
    key = None if key == v.Static(None) else key
    if not isinstance(reverse, v.Static):
        s.refuse("`reverse` must be a constant here", "sort by a key that is negated where the order is reversed")
    found = sequence(s, value)
    if isinstance(found, v.Record):
        take_back = s.mark()
        keys = [x if key is None else s.call(key, [x]) for x in found.items]
        if all(isinstance(k, v.Static) for k in keys):
            ranks = [k.value for k in keys if isinstance(k, v.Static)]
            order = sorted(range(len(ranks)), key=lambda k: ranks[k], reverse=bool(reverse.value))
            return v.Record("list", tuple(range(len(order))), tuple(found.items[k] for k in order))
        if len(keys) < 2:
            return v.Record("list", tuple(range(len(keys))), found.items)
        take_back()
        found = sequence(s, as_listing(s, found))
        assert isinstance(found, v.Lazy)
    ranked = keys_of(s, found, key)
    if ranked is None:
        return v.Record("list", (), ())
    whole, positions = found, order_of(s, ranked, reverse=bool(reverse.value))
    return v.Lazy(found.length, lambda t, i: whole.item(t, item(t, positions, i)))


def keys_of(s: LoweringState, found: v.Lazy, key: v.Abstract | None) -> v.Listing | None:
    """The keys of the elements of a sequence; None where nothing is known of its elements."""

    def body(t: LoweringState, x: v.Abstract) -> tuple[bool, Callable[[LoweringState], v.Abstract]]:
        return True, lambda u: _key(u, x if key is None else u.call(key, [x]))

    keys = collect(s, found, body)
    return None if isinstance(keys, v.Record) else keys


def order_of(s: LoweringState, keys: v.Listing, *, reverse: bool) -> v.Listing:
    """The positions of keys in ascending order; equal ones keep theirs."""
    if _has_comparison(s, keys.elem):
        found = list_heap.copied(s, s.call(v.Static(_falling if reverse else _rising), [keys]))
        assert isinstance(found, v.Listing | v.Record)
        return found if isinstance(found, v.Listing) else as_listing(s, found)
    _refuse_unordered(s, keys.elem)
    positions = s.apply(own("sort_order", reverse=reverse), keys.lists, List(INT))
    s.block.memo["length", positions] = length(s, keys)
    return v.Listing((positions,), LeafLayout(INT))


def _key(s: LoweringState, value: v.Abstract) -> v.Abstract:
    value = taken_as(s, present(s, value), unions.is_number, unions.is_word)
    if (found := equality.key(s, value)) is not None:
        value = found
    if isinstance(value, v.Leaf) and isinstance(value.type, Ref):
        value = fields_of(s, value) or value
    if isinstance(value, v.Record):
        return v.Record(value.kind, value.keys, tuple(_key(s, x) for x in value.items), value.cls)
    return v.Leaf(integer(s, operand_of(s, value))) if is_number(value) else stored(s, value)


def first_of(s: LoweringState, keys: v.Listing, *, greatest: bool) -> v.Abstract:
    """The position of the first of the least or the greatest keys, of which there is one."""
    if _has_comparison(s, keys.elem):
        return s.call(v.Static(_greatest if greatest else _least), [keys])
    return item(s, order_of(s, keys, reverse=greatest), v.Static(0))


def _has_comparison(s: LoweringState, layout: Layout) -> bool:
    """Are keys compared by what their class defines, or element by element, and not by numbers?"""
    match layout:
        case ListingLayout():
            return True
        case RecordLayout(kind="object", cls=cls):
            return cls is not None and _is_ordered(cls)
        case RecordLayout(kind="tuple" | "list" | "namedtuple", items=items):
            return any(_has_comparison(s, x) for x in items)
        case RowLayout(heap=heap):
            return heap.is_list or all(map(_is_ordered, heap.members))
        case _:
            return False


def _is_ordered(cls: type) -> bool:
    return any(getattr(cls, m) is not getattr(object, m) for m in ("__lt__", "__gt__"))


# ---- order by comparison: lowered like functions of the user


def _rising(keys: Any) -> Any:
    order = list(range(len(keys)))
    for k in range(1, len(keys)):
        place = k
        while place > 0 and keys[k] < keys[order[place - 1]]:
            order[place] = order[place - 1]
            place = place - 1
        order[place] = k
    return order


def _falling(keys: Any) -> Any:
    order = list(range(len(keys)))
    for k in range(1, len(keys)):
        place = k
        while place > 0 and keys[order[place - 1]] < keys[k]:
            order[place] = order[place - 1]
            place = place - 1
        order[place] = k
    return order


def _least(keys: Any) -> Any:
    best = 0
    for k in range(1, len(keys)):
        if keys[k] < keys[best]:
            best = k
    return best


def _greatest(keys: Any) -> Any:
    best = 0
    for k in range(1, len(keys)):
        if keys[k] > keys[best]:
            best = k
    return best


def _refuse_unordered(s: LoweringState, layout: Layout) -> None:
    match layout:
        case LeafLayout(type=Array() as type) if type.is_scalar and not type.dtype.startswith(("key", "complex")):
            return
        case LeafLayout(type=Tag() as type) if is_ordered(type):
            return
        case RecordLayout(kind="tuple" | "list" | "namedtuple", items=items):
            for part in items:
                _refuse_unordered(s, part)
        case HeldLayout():
            return
        case _:
            s.refuse("these values have no order", "give a key: a number, a string, or a tuple of those")


# ---- reductions


Comparison = Callable[[Any, Any], Any]


def sum_of(s: LoweringState, value: v.Abstract, start: v.Abstract, *, builtin: bool = False) -> v.Abstract:
    """`sum(value, start)`. `builtin`: it is Python's, whose sum of nothing is an int."""
    found = sequence(s, value)
    if _is_list(start):
        lists = collect(s, found, lambda t, x: (True, lambda u: stored(u, x)), listed=True)
        return concatenate(s, start, flatten(s, lists))
    if isinstance(found, v.Record):
        return _combined(s, operator.add, found.items, start)
    if not is_number(start) or _are_added(s, value, found):
        return s.call(v.Static(_added), [value, start])
    listing = collect(s, found, lambda t, x: (True, lambda u: _term(u, x, "sum() adds")))
    if isinstance(listing, v.Record):
        return start
    total = _reduce(s, listing, "sum")
    if builtin and start == v.Static(0) and isinstance(found.length, v.Leaf) and isinstance(total.operand, Value):
        s.context.meanings[total.operand] = ("sum", found.length.operand)
    return total if start == v.Static(0) else apply_binary(s, operator.add, start, total)


def _are_added(s: LoweringState, value: v.Abstract, found: v.Lazy) -> bool:
    """Are the elements of a list objects of the user, which are added to numbers?"""
    is_list = isinstance(value, v.Listing | v.MemoryRow) or (isinstance(value, v.Leaf) and isinstance(value.type, List))
    return is_list and written(s, found.item(s.fork(), v.Static(0)), "__radd__")


def _added(items: Any, total: Any) -> Any:
    """Lowered like a function of the user."""
    for x in items:
        total = total + x
    return total


def product_of(s: LoweringState, value: v.Abstract, start: v.Abstract) -> v.Abstract:
    """`math.prod(value, start=start)`"""
    found = sequence(s, value)
    if isinstance(found, v.Record):
        return _combined(s, operator.mul, found.items, start)
    listing = collect(s, found, lambda t, x: (True, lambda u: _term(u, x, "prod() multiplies")))
    if isinstance(listing, v.Record):
        return start
    total = multiplied(s, listing)
    return total if start == v.Static(1) else apply_binary(s, operator.mul, start, total)


def multiplied(s: LoweringState, listing: v.Listing) -> v.Leaf:
    """The product of numbers or arrays. Those that can move are multiplied one after the other, as Python does: the
    derivative by one of them is the product of the others then, which no division by a zero gives."""
    assert isinstance(listing.elem, LeafLayout) and isinstance(listing.elem.type, Array)
    type = listing.elem.type
    if type.is_integer or type.is_bool:
        return _reduce(s, listing, "prod")
    t, turn, before = s.fork(), s.context.value(INT, "turn"), s.context.value(type, "product")
    factor = listing_item(t, listing, v.Leaf(turn))
    after = coerce(t, traced(t, operator.mul, v.Leaf(before), factor).operand, type)
    result = s.context.value(type)
    region = Region((turn, before), tuple(t.block.body), (after,))
    s.emit(For((result,), operand_of(s, length(s, listing)), (coerce(s, s.scalar(1), type),), region, s.span))
    return v.Leaf(result, numpy=listing.elem.numpy or None)


def _is_list(value: v.Abstract) -> bool:
    if isinstance(value, v.Static):
        return isinstance(value.value, (list, tuple))
    return isinstance(value, v.Listing | v.Lazy) or (isinstance(value, v.Record) and value.kind in ("list", "tuple"))


def _combined(s: LoweringState, function: Comparison, items: Sequence[v.Abstract], start: v.Abstract) -> v.Abstract:
    total = start
    for x in items:
        total = apply_binary(s, function, total, x)
    return total


def _term(s: LoweringState, value: v.Abstract, does: str) -> v.Abstract:
    value = taken_as(s, present(s, value), unions.is_number)
    if (made := of_each(s, (value,), lambda t, x: _term(t, x, does), lambda x: sum([x]))) is not None:
        return made
    if not is_number(value):
        cure = "take the parts one by one; or give sum() an object that it starts with: sum(vectors, Vector(0.0, 0.0))"
        s.refuse(f"{does} numbers and arrays, and this is a {type_name(value)}", cure)
    return v.Leaf(integer(s, operand_of(s, value)), numpy=kind_of([value]))


def _reduce(s: LoweringState, listing: v.Listing, kind: str) -> v.Leaf:
    assert isinstance(listing.elem, LeafLayout)
    result = s.apply(own("reduce", kind=kind), listing.lists, listing.elem.type)
    return v.Leaf(result, numpy=listing.elem.numpy or None)


def reduce_sequence(s: LoweringState, value: v.Abstract, kind: str) -> v.Abstract:
    """`any(value)`, `all(value)`"""
    found = sequence(s, value)
    if isinstance(found, v.Record):
        return _reduce_items(s, found.items, kind)

    def body(t: LoweringState, x: v.Abstract) -> tuple[bool, Callable[[LoweringState], v.Abstract]]:
        return True, lambda u: v.Leaf(as_operand(u, truth(u, x)))

    listing = collect(s, found, body)
    if isinstance(listing, v.Record):
        return v.Static(kind == "all")
    return _reduce(s, listing, kind)


def as_operand(s: LoweringState, condition: bool | Operand) -> Operand:
    return s.scalar(condition) if isinstance(condition, bool) else condition


def _reduce_items(s: LoweringState, items: Sequence[v.Abstract], kind: str) -> v.Abstract:
    decisive = kind == "any"
    result: Operand | None = None
    for x in items:
        condition = truth(s, x)
        if condition is decisive:
            return v.Static(decisive)
        if not isinstance(condition, bool):
            result = condition if result is None else combine(s, "or" if decisive else "and", result, condition)
    return v.Static(not decisive) if result is None else v.Leaf(result)


def extreme(
    s: LoweringState, args: Sequence[v.Abstract], kwargs: dict[str, v.Abstract], better: Comparison
) -> v.Abstract:
    """`min` and `max`: of several arguments or of one sequence, with `key` and `default`."""
    value = args[0] if len(args) == 1 else v.Record("tuple", tuple(range(len(args))), tuple(args))
    key, default = kwargs.get("key"), kwargs.get("default")
    key = None if key == v.Static(None) else key
    found = sequence(s, value)
    if isinstance(found, v.Record):
        return _extreme_item(s, found.items, key, default, better)
    if default is None:
        return _extreme_of_list(s, found, key, better, checked=True)
    some = truth(s, compare_with(s, operator.gt, found.length, v.Static(0)))
    if isinstance(some, bool):
        return _extreme_of_list(s, found, key, better) if some else default
    return conditional(s, some, lambda t: _extreme_of_list(t, found, key, better), lambda t: default)


def _extreme_item(
    s: LoweringState,
    items: Sequence[v.Abstract],
    key: v.Abstract | None,
    default: v.Abstract | None,
    better: Comparison,
) -> v.Abstract:
    if not items:
        if default is not None:
            return default
        s.check(s.scalar(False), "ValueError", NO_ELEMENTS["min" if better is operator.lt else "max"])
        s.dead = True
        return v.Static(None)
    best = items[0]
    best_key = best if key is None else s.call(key, [best])
    for x in items[1:]:
        x_key = x if key is None else s.call(key, [x])
        best, best_key = _pick(s, better, x, x_key, best, best_key, key is None)
    return best


def _pick(
    s: LoweringState, better: Comparison, x: v.Abstract, x_key: v.Abstract, y: v.Abstract, y_key: v.Abstract, same: bool
) -> tuple[v.Abstract, v.Abstract]:
    """The better of two items and its key; the first of equal ones."""
    x_key, y_key = present(s, x_key), present(s, y_key)
    if same and is_number(x_key) and is_number(y_key) and not _both_static(x_key, y_key):
        best: v.Abstract = traced(s, _smaller if better is operator.lt else _larger, x_key, y_key)
        return best, best
    condition = truth(s, compare_with(s, better, x_key, y_key))
    if isinstance(condition, bool):
        return (x, x_key) if condition else (y, y_key)
    chosen = conditional(s, condition, lambda t: _pair(x, x_key), lambda t: _pair(y, y_key))
    assert isinstance(chosen, v.Record)
    return chosen.items[0], chosen.items[1]


def _pair(x: v.Abstract, y: v.Abstract) -> v.Record:
    return v.Record("tuple", (0, 1), (x, y))


def _both_static(x: v.Abstract, y: v.Abstract) -> bool:
    return isinstance(x, v.Static) and isinstance(y, v.Static)


@alike_for_all
@jax_compat.choosing
def _where(condition: Any, x: Any, y: Any) -> Any:
    return jnp.where(condition, x, y)


@alike_for_all
@jax_compat.choosing
def _smaller(x: Any, y: Any) -> Any:
    return jnp.where(x < y, x, y)


@alike_for_all
@jax_compat.choosing
def _larger(x: Any, y: Any) -> Any:
    return jnp.where(x > y, x, y)


def _extreme_of_list(
    s: LoweringState, found: v.Lazy, key: v.Abstract | None, better: Comparison, *, checked: bool = False
) -> v.Abstract:
    """Of a list that has an element; `checked` fails the examples whose list is empty."""
    kind = "min" if better is operator.lt else "max"
    keys = keys_of(s, found, key)
    if keys is None:
        s.refuse(
            f"{kind}() of a list whose elements are not known", "annotate the list, or give an example that has one"
        )
    count = length(s, keys)
    if checked:
        some = compare_with(s, operator.gt, count, v.Static(0))
        s.check(operand_of(s, some), "ValueError", NO_ELEMENTS[kind])
    if isinstance(keys.elem, LeafLayout) and isinstance(keys.elem.type, Array):
        if key is None:
            return _reduce(s, keys, kind)
        items = collect(s, found, lambda t, x: (True, lambda u: stored(u, present(u, x))))
        if isinstance(items, v.Listing) and isinstance(items.elem, LeafLayout) and isinstance(items.elem.type, Array):
            return _carried(s, keys, items, count, better)
    return found.item(s, first_of(s, keys, greatest=better is operator.gt))


def _carried(s: LoweringState, keys: v.Listing, items: v.Listing, count: v.Abstract, better: Comparison) -> v.Abstract:
    """The number with the first best key: a loop that carries it, so that keys may be computed in the batch."""
    t, first = s.fork(), v.Static(0)
    start = [operand_of(s, listing_item(s, x, first)) for x in (keys, items)]
    turn, best_key, best = (s.context.value(x, "turn" if x is INT else "best") for x in (INT, *(o.type for o in start)))
    key, found = (listing_item(t, x, v.Leaf(turn)) for x in (keys, items))
    hit = traced(t, better, key, v.Leaf(best_key))
    chosen = [traced(t, _where, hit, x, v.Leaf(y)).operand for x, y in ((key, best_key), (found, best))]
    region = Region((turn, best_key, best), tuple(t.block.body), tuple(chosen))
    results = tuple(s.context.value(o.type) for o in start)
    s.emit(For(results, operand_of(s, count), tuple(start), region, s.span))
    return v.Leaf(results[1])


# ---- searching
#
# `next(...)` of a generator expression: a loop that stops at the first element.
#
# next((c for c in t.kids if c.ok), d)        found = d
#                                        ->   for c in t.kids:
#                                                 if c.ok: found = c; break


_FOUND, _HIT = "<found>", "<hit>"
Node = TypeVar("Node", bound=ast.AST)


def first_element(s: LoweringState, node: ast.Call) -> v.Abstract | None:
    """The value of `next(elements, default)`; None when the call is another one."""
    match node:
        case ast.Call(func=ast.Name(id="next"), args=[elements, *default], keywords=[]) if len(default) < 2:
            generator = _generator(s, elements)
        case _:
            return None
    if generator is None or variable(s, "next") != v.Static(next):
        return None
    before, own = dict(s.env), stores(*(g.target for g in generator.generators))
    for name in own:
        s.env.pop(name, None)
    s.bind(_FOUND, stored(s, s.evaluate(default[0])) if default else v.Unset(_FOUND))
    s.bind(_HIT, v.Static(False))
    known = s.context.memory.rewritten  # what is noted of a loop is found again by it
    if node not in known:
        known[node] = _search(generator)
    for_statement(s, known[node])
    found, hit = s.env[_FOUND].value, present(s, s.env[_HIT].value)
    s.restore(before, own)
    if not default:
        s.check(operand_of(s, hit), "StopIteration", "")
        if isinstance(found, v.Unset):
            s.dead = True
    return found


def _generator(s: LoweringState, elements: ast.expr) -> ast.GeneratorExp | None:
    """The generator whose first element is asked for: written out, or `iter(items)`."""
    match elements:
        case ast.GeneratorExp():
            return elements
        case ast.Call(func=ast.Name(id="iter"), args=[items], keywords=[]) if variable(s, "iter") == v.Static(iter):
            name = "<element>"
            made = ast.comprehension(ast.Name(name, ast.Store()), items, [], 0)
            return _at(elements, ast.GeneratorExp(ast.Name(name, ast.Load()), [made]))
        case _:
            return None


def _search(generator: ast.GeneratorExp) -> ast.For:
    """The loop, or several in each other: the outer ones stop when an inner one has stopped."""
    body: list[ast.stmt] = [
        ast.Assign([ast.Name(_FOUND, ast.Store())], generator.elt),
        ast.Assign([ast.Name(_HIT, ast.Store())], ast.Constant(True)),
        ast.Break(),
    ]
    for part in reversed(generator.generators):
        for test in reversed(part.ifs):
            body = [ast.If(test, body, [])]
        loop = ast.For(part.target, part.iter, body, [])
        body = [loop, ast.If(ast.Name(_HIT, ast.Load()), [ast.Break()], [])]
    return _at(generator, loop)


def _at(place: ast.AST, made: Node) -> Node:
    """A node that was made, at a place of the source, with all its parts that have none."""
    ast.copy_location(made, place)
    return ast.fix_missing_locations(made)
