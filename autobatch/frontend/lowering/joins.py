"""Behind a branch: two states become one, by an `If` whose results are the values that differ.

if c: x = 1                    %2: float32* = if %c then: yield 1.0 else: yield %f
else: x = t.f           ->
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import jax.numpy as jnp

from autobatch.errors import SourceError, Span
from autobatch.frontend.library.numpy_arrays import dynamic_class, is_dynamic
from autobatch.frontend.lowering.numbers import coerce, negate, operand_of, present, traced, undefined
from autobatch.frontend.lowering.state import (
    FLAGS,
    RAISED,
    RESULT,
    RETURNED,
    Ended,
    LoweringState,
    UnknownResult,
    enclosing_value,
    expand,
)
from autobatch.frontend.memory.heap import Heap, is_array, is_dict_value, is_given, is_list, is_state
from autobatch.frontend.syntax import cells
from autobatch.frontend.syntax.scopes import is_cell, shown
from autobatch.frontend.syntax.sources import FunctionSource
from autobatch.frontend.types import values as v
from autobatch.frontend.types.statics import Kind, container_kind
from autobatch.frontend.types.unify import (
    LayoutConflict,
    as_table,
    is_open,
    position_among,
    refuse_alternatives,
    type_conflict,
    unify,
)
from autobatch.frontend.types.values import (
    ChoiceLayout,
    FunctionLayout,
    HeldLayout,
    Layout,
    LeafLayout,
    ListingLayout,
    MethodLayout,
    OptionalLayout,
    RecordLayout,
    RowLayout,
    is_object,
    layout_of,
    leaf_types,
    list_types,
    rebuild,
)
from autobatch.ir import jax_compat
from autobatch.ir.core import (
    INT,
    Apply,
    Array,
    BuiltObject,
    If,
    Instruction,
    List,
    Map,
    Operand,
    Ref,
    Region,
    Tag,
    Value,
)
from autobatch.ir.ops import OWN, own

LEFT = "<left>"
"""The name of a variable on a path that has returned: nobody reads it."""
Thunk = Callable[[LoweringState], v.Abstract]


def conditional(
    s: LoweringState, condition: Operand, then: Thunk, orelse: Thunk, places: tuple[Span, Span] | None = None
) -> v.Abstract:
    """The value of `then() if condition else orelse()`; only the arm taken runs. `places` is where the arms are."""
    known = s.block.truth(condition)
    if known is not None:
        return then(s) if known else orelse(s)
    a, b = arms(s, condition)
    x, y = attempt(a, then), attempt(b, orelse)
    if a.dead and b.dead and not (a.block.body or b.block.body):
        raise UnknownResult
    return join(s, condition, a, b, [(x, y)], places=places)[0]


def arms(s: LoweringState, condition: Operand) -> tuple[LoweringState, LoweringState]:
    """The state at the start of either arm of a branch."""
    a, b = s.fork(), s.fork()
    a.assume(condition, True)
    b.assume(condition, False)
    return a, b


def attempt(s: LoweringState, thunk: Thunk) -> v.Abstract:
    """Run one arm; it ends where a result is not known yet."""
    try:
        return thunk(s)
    except UnknownResult:
        drop(s)
    except Ended:
        s.dead = True
    except SourceError as error:
        if not s.defer(error):
            raise
        drop(s)
    return v.Static(None)


def drop(s: LoweringState) -> None:
    """End an arm of which something is not known yet."""
    s.frame.unknown = True
    s.block.body.clear()
    s.dead = True


def join(
    s: LoweringState,
    condition: Operand,
    a: LoweringState,
    b: LoweringState,
    extra: Sequence[tuple[v.Abstract, v.Abstract]] = (),
    node: ast.AST | None = None,
    places: tuple[Span, Span] | None = None,
) -> list[v.Abstract]:
    """Continue `s` behind a branch whose arms ended in `a` and `b`; returns the joined `extra` values."""
    if a.dead or b.dead:
        live = _adopt(s, condition, a, b)
        return [x if live is a else y for x, y in extra]
    names = [n for n in {**a.env, **b.env} if a.env.get(n) is not b.env.get(n)]
    names = [n for n in names if _wanted(s, n, node)]
    if any(_keep_generators(t, names) for t in (a, b)) or any(
        isinstance(x, v.Generator) for pair in extra for x in pair
    ):
        extra = [(stored(a, x), stored(b, y)) for x, y in extra]
        return join(s, condition, a, b, extra, node, places)  # there are more variables now: those of memory
    pairs = [(_bound(a, n), _bound(b, n)) for n in names]
    pairs = [_alike(x, y) if n == s.frame.constructing else (x, y) for n, (x, y) in zip(names, pairs, strict=True)]
    first, second = places or (s.span, s.span)
    pairs += [(v.BoundVariable(x, first), v.BoundVariable(y, second)) for x, y in extra]
    try:
        joined = _merge(s, condition, a, b, pairs, [*names, *("" for _ in extra)])
    except SourceError as error:
        if a.block.guessed is b.block.guessed or not s.defer(error):
            raise
        drop(a if a.block.guessed else b)
        return join(s, condition, a, b, extra, node, places)
    for value, (x, y) in zip(joined, pairs, strict=True):
        s.context.identities.same(value, x.value, y.value)
    s.env = {n: x for n, x in a.env.items() if b.env.get(n) is x}
    alike: dict[tuple[int, int], v.Abstract] = {}
    for name, value, (x, y) in zip(names, joined, pairs, strict=False):
        # two names of one container stay so
        s.env[name] = v.BoundVariable(alike.setdefault((id(x.value), id(y.value)), value), x.span)
    return joined[len(names) :]


def _keep_generators(s: LoweringState, names: Sequence[str]) -> bool:
    """Let variables that hold generators hold objects; do any?"""
    found = {n: bound for n in names if (bound := s.env.get(n)) is not None and isinstance(bound.value, v.Generator)}
    for name, bound in found.items():
        s.bind(name, stored(s, bound.value), bound.span)
    return bool(found)


def _alike(x: v.BoundVariable, y: v.BoundVariable) -> tuple[v.BoundVariable, v.BoundVariable]:
    """An object that `__init__` is at, on two paths: an attribute that one has set is there on the other, unset."""
    one, other = (k.value.value if isinstance(k.value, v.Optional) else k.value for k in (x, y))
    if not (isinstance(one, v.Record) and isinstance(other, v.Record)):
        return x, y
    return _with_all(x, one, other), _with_all(y, other, one)


def _with_all(bound: v.BoundVariable, made: v.Record, other: v.Record) -> v.BoundVariable:
    more = tuple(k for k in other.keys if k not in made.keys)
    whole = replace(made, keys=(*made.keys, *more), items=(*made.items, *(v.Unset(str(k)) for k in more)))
    return replace(bound, value=replace(bound.value, value=whole) if isinstance(bound.value, v.Optional) else whole)


_TRUE = v.Static(True)


def _bound(s: LoweringState, name: str) -> v.BoundVariable:
    bound = s.env.get(name)
    if name == s.frame.constructing and len(s.frame.trying) == s.frame.tried and _bound(s, RAISED).value == _TRUE:
        return v.BoundVariable(v.Unset(name), s.span)
    if name not in FLAGS:
        left = s.flag(RETURNED) == v.Static(True) and name != RESULT and not is_state(name)
        if bound is None or left:
            return v.BoundVariable(
                v.Unset(name if bound is None and s.flag(RETURNED) != v.Static(True) else LEFT), s.span
            )
        return bound
    flag = s.flag(name)
    known = s.block.truth(flag.operand) if isinstance(flag, v.Leaf) else None
    return v.BoundVariable(flag if known is None else v.Static(known), bound.span if bound else s.span)


def _wanted(s: LoweringState, name: str, node: ast.AST | None) -> bool:
    """Is the variable read behind `node`, the last statement that has run?"""
    threaded = (is_cell(name) and name not in s.frame.source.locals) or name == s.frame.constructing
    return node is None or name.startswith("<") or threaded or s.frame.source.read_after(name, node)


def _merge(
    s: LoweringState,
    condition: Operand,
    a: LoweringState,
    b: LoweringState,
    pairs: Sequence[tuple[v.BoundVariable, v.BoundVariable]],
    names: Sequence[str],
) -> list[v.Abstract]:
    layouts: list[Layout] = []
    lefts: list[list[Operand]] = []
    rights: list[list[Operand]] = []
    for (x, y), name in zip(pairs, names, strict=True):
        ours, theirs = stored(a, x.value), stored(b, y.value)
        ours, theirs = level(a, ours, theirs), level(b, theirs, ours)
        layout = common(ours, theirs, name, x.span, y.span)
        layouts.append(layout)
        lefts.append(convert(a, ours, layout))
        rights.append(convert(b, theirs, layout))
    flat = list(zip(chain.from_iterable(lefts), chain.from_iterable(rights), strict=True))
    types = [t for k in layouts for t in leaf_types(k)]
    results: dict[Value, tuple[Operand, Operand]] = {}
    merged: list[Operand] = []
    for (left, right), type in zip(flat, types, strict=True):
        if left == right:
            merged.append(left)
        elif (left, right) == (s.scalar(True), s.scalar(False)):
            merged.append(condition)
        elif (left, right) == (s.scalar(False), s.scalar(True)):
            merged.append(negate(s, condition))
        else:
            result = s.context.value(type)
            results[result] = (left, right)
            merged.append(result)
            words = [s.one_of(left), s.one_of(right)] if isinstance(type, Tag) else [None]
            if None not in words:
                s.context.meanings[result] = ("one_of", frozenset[Any]().union(*filter(None, words)))
    if results or a.block.body or b.block.body:
        then = Region((), tuple(a.block.body), tuple(x for x, _ in results.values()))
        orelse = Region((), tuple(b.block.body), tuple(y for _, y in results.values()))
        s.emit(If(tuple(results), condition, then, orelse, s.span))
    operands = iter(merged)
    return [rebuild(k, operands) for k in layouts]


def common(x: v.Abstract, y: v.Abstract, name: str, first: Span, second: Span, turns: bool = False) -> Layout:
    """The layout of two values that meet; raises TypeConflictError with both places. `turns`: see `common_layouts`."""
    return common_layouts(layout_of(x), layout_of(y), name, first, second, turns)


def common_layouts(a: Layout, b: Layout, name: str, first: Span, second: Span, turns: bool = False) -> Layout:
    """The layout that two layouts have in common; raises TypeConflictError with both places. `turns`: are they what a
    variable has before a loop, and behind a turn of it?"""
    try:
        return unify(a, b)
    except LayoutConflict as conflict:
        what = {"": "the value", "<result>": "the result"}.get(name, f"the variable {shown(name)!r}")
        words = f"{what} has different types on two paths: {conflict}"
        cure, other = "make both paths give the same type, dtype and shape", "the other value comes from here"
        if turns:
            words = f"{what} has another type behind a turn of the loop than before it: {conflict}"
            cure = "begin with the type, dtype and shape that a turn gives, and let each turn keep them"
            other = "before the loop it comes from here"
        if any(isinstance(x, HeldLayout) and is_object(x.value.value) for x in (a, b)):
            cure = "give it to each example as its own: in_axes 0 for this argument, and [x] * n in the place of x"
        also = [(other, first)] if first != second else ()
        raise type_conflict(conflict, words, second, cure, also) from None


def stored(s: LoweringState, value: v.Abstract) -> v.Abstract:
    """A value that can cross a join: lazy sequences become lists, generators objects."""
    if isinstance(value, v.Lazy):
        return s.context.rules.materialise(s, value)
    if isinstance(value, v.Generator):
        return stepped(s, value)
    if isinstance(value, v.Record):
        items = tuple(stored(s, i) for i in value.items)
        return value if all(x is y for x, y in zip(items, value.items, strict=True)) else replace(value, items=items)
    return value


def stepped(s: LoweringState, value: v.Abstract) -> v.Abstract:
    """A value that something holds: a generator is an object, which is stepped."""
    return s.context.rules.iterator(s, value) if isinstance(value, v.Generator) else value


def captured(s: LoweringState, value: v.Abstract, inside: tuple[FunctionSource, ...] = ()) -> v.Abstract:
    """A value in which local functions hold the variables that they read from the functions around them, as they are
    now: they leave the function at hand. `inside`: those of which it is a variable."""
    match value:
        case v.LocalFunction(captured=None, source=source) if source not in inside:
            return replace(value, captured=tuple(sorted(_read_by(s, value, (*inside, source)).items())))
        case v.LocalFunction():
            cells.check_as_captured(s, value)
            for _, read in value.captured or ():
                if isinstance(read, v.LocalFunction):
                    captured(s, read, (*inside, value.source))
            return value
        case v.Record(items=items):
            held = tuple(captured(s, x, inside) for x in items)
            if all(x is y for x, y in zip(held, items, strict=True)):
                return value  # the very object: who changes what comes back changes it
            made = replace(value, items=held)
            s.context.identities.same(made, value)
            return made
        case v.Listing(elem=elem) if is_open(elem):
            return s.context.rules.materialise(s, value)
        case v.Optional(value=present):
            return replace(value, value=captured(s, present, inside))
        case v.Method(function=function, receiver=receiver):
            return replace(value, function=captured(s, function, inside), receiver=captured(s, receiver, inside))
        case v.Choice(alternatives=alternatives):
            return replace(value, alternatives=tuple(captured(s, x, inside) for x in alternatives))
        case _:
            return value


def _read_by(s: LoweringState, function: v.LocalFunction, inside: tuple[FunctionSource, ...]) -> dict[str, v.Abstract]:
    """The variables of the functions around it that a local function, or one that it names, reads."""
    found: dict[str, v.Abstract] = {}
    todo = list(function.source.free)
    while todo:
        name = todo.pop()
        value = None if name in found else enclosing_value(s, name)
        if value is None or isinstance(value, v.Unset):
            continue
        if isinstance(value, v.LocalFunction) and value.captured is None:
            found[name] = value
            todo += value.source.free
        else:
            found[name] = captured(s, stored(s, value), inside)
    return found


def as_array(s: LoweringState, value: v.Abstract) -> v.Abstract:
    """An array of the examples whose length is data as one that the function has made; any other value as it is."""
    store = value.type.store if isinstance(value, v.Leaf) and isinstance(value.type, List) else None
    if store is None or not s.context.schema.list(store).from_array:
        return value
    return s.context.rules.stacked(s, operator.getitem, (value, v.Static(slice(None))))


def level(s: LoweringState, value: v.Abstract, other: v.Abstract) -> v.Abstract:
    """Containers that are static or of the examples meet containers built in the function: take them apart. A list that
    meets one with memory has memory too, from where it is made."""
    if s.context.memory.sites:
        in_memory = list(_beside_memory(value, layout_of(other)))
        s.context.memory.add_sites(s.context.sites.of(in_memory, s.context.memory.sites, dicts=True))
    if (cls := dynamic_class(value)) is not None and cls.rank == 0 and isinstance(other, v.Leaf | v.Static):
        value = s.context.rules.stacked(s, operator.pos, (value,))
    if is_dynamic(other) and is_array(value):
        s.context.memory.fill(s.context.sites.makers(value))
    if isinstance(other, v.Listing) and other.array:
        value = as_array(s, value)
    if isinstance(value, v.Record) and isinstance(other, v.Record) and value.kind != "object":
        if value.keys != other.keys:
            return value
        return replace(value, items=tuple(level(s, x, y) for x, y in zip(value.items, other.items, strict=True)))
    if _is_held(s, value) and (isinstance(other, v.Record) or container_kind_of(other) is not None):
        assert isinstance(value, v.Leaf)
        parts = s.context.rules.parts(s, value)
        return value if parts is None else level(s, parts, expand(s, other))
    if _is_held(s, other) and container_kind_of(value) is not None:
        return expand(s, value)
    made = isinstance(other, v.Leaf) and isinstance(other.type, BuiltObject)
    if isinstance(value, v.Static) and (made or isinstance(other, v.Record | v.Listing)):
        return expand(s, value)
    if isinstance(value, v.Static) and isinstance(other, v.Static) and value.value is not other.value:
        return expand(s, value)
    return value


def _beside_memory(value: v.Abstract, layout: Layout) -> Iterator[v.Abstract]:
    """The lists and dicts of a value that stand where those with memory may stand in one of a layout."""
    match layout, value:
        case RowLayout(heap=heap), _ if _has_kind(heap, value):
            yield value
        case OptionalLayout(value=inner), _:
            yield from _beside_memory(value.value if isinstance(value, v.Optional) else value, inner)
        case RecordLayout(keys=keys, items=layouts), v.Record() if keys == value.keys:
            for item, inner in zip(value.items, layouts, strict=True):
                yield from _beside_memory(item, inner)
        case ListingLayout(elem=inner), v.Record(kind="list" | "tuple"):
            for item in value.items:
                yield from _beside_memory(item, inner)
        case _:
            return


def _has_kind(heap: Heap, value: v.Abstract) -> bool:
    """Is it a list where lists have this memory, or a dict or tuple where these have it?"""
    if heap.is_record and heap.python_class is tuple:
        return isinstance(value, v.Record) and value.kind == "tuple"
    return is_list(value) or is_given(value) if heap.is_list else heap.is_dict and is_dict_value(value)


def _is_held(s: LoweringState, value: v.Abstract) -> bool:
    """Is it a tuple, NamedTuple or dict of the examples that is not None here?"""
    if not isinstance(value, v.Leaf) or not isinstance(value.type, Ref) or s.block.fact(value.operand).null:
        return False
    return all(c.kind != "object" for c in s.context.schema.store(value.type.store).classes)


def container_kind_of(value: v.Abstract) -> Kind | None:
    """What plain container a static value is."""
    return container_kind(value.value) if isinstance(value, v.Static) else None


def _adopt(s: LoweringState, condition: Operand, a: LoweringState, b: LoweringState) -> LoweringState:
    """One arm never ends: what follows belongs to the other one alone, so that one goes on in the block around."""
    live, dead = (b, a) if a.dead else (a, b)
    if dead.block.body:
        _emit_failing(s, condition, dead is a, dead.block.body)
    s.assume(condition, live is a)
    s.block.body += live.block.body
    s.block.known |= live.block.known
    s.block.facts |= live.block.facts
    s.block.memo |= live.block.memo
    s.env, s.dead = live.env, live.dead
    return live


def _emit_failing(s: LoweringState, condition: Operand, when: bool, body: list[Instruction]) -> None:
    """The code of an arm that always fails. A lone failure becomes a check of the condition."""
    *before, last = body
    pure = all(isinstance(i, Apply) and (i.op.is_jax or not OWN[i.op.name].fails) for i in before)
    if pure and isinstance(last, Apply) and last.op.name == "check" and last.operands[0] == s.scalar(False):
        s.block.body += before
        holds = negate(s, condition) if when else condition
        s.emit(Apply((), last.op, (holds, *last.operands[1:]), last.span))
        return
    full, empty = Region((), tuple(body), ()), Region((), (), ())
    s.emit(If((), condition, full if when else empty, empty if when else full, s.span))


def convert(s: LoweringState, value: v.Abstract, layout: Layout) -> list[Operand]:
    """The operands of a value as a value of another layout, one that `unify` found."""
    if isinstance(value, v.Unset) and not isinstance(layout, OptionalLayout):
        return [undefined(s, t) for t in leaf_types(layout)]
    match layout:
        case LeafLayout(type=BuiltObject()):
            return [s.context.rules.boxed(s, value)]
        case LeafLayout(type=type):
            if isinstance(value, v.Static) and value.value is None:
                s.context.puts_none(type)
                return [undefined(s, type)]
            return [coerce(s, operand_of(s, value), type)]
        case OptionalLayout():
            return _convert_optional(s, value, layout)
        case RowLayout():
            value = present(s, value) if isinstance(value, v.Optional) else value
            return [value.operand if isinstance(value, v.MemoryRow) else s.scalar(-1)]
        case RecordLayout(items=items, keys=keys):
            value = expand(s, value)
            if layout.kind == "table":
                value = as_table(value)
            assert isinstance(value, v.Record)
            parts = dict(zip(value.keys, value.items, strict=True))
            return [x for k, i in zip(keys, items, strict=True) for x in convert(s, parts[k], i)]
        case ListingLayout(elem=elem):
            return _convert_list(s, value, elem)
        case FunctionLayout(defaults=defaults, captured=captured):
            assert isinstance(value, v.LocalFunction)
            given = [x for _, x in (*value.defaults, *(value.captured or ()))]
            return [o for x, k in zip(given, (*defaults, *captured), strict=True) for o in convert(s, x, k)]
        case MethodLayout(function=function, receiver=receiver):
            assert isinstance(value, v.Method)
            return [*convert(s, value.function, function), *convert(s, value.receiver, receiver)]
        case ChoiceLayout(alternatives=alternatives):
            return _convert_choice(s, value, alternatives)
        case _:
            return []


def _convert_choice(s: LoweringState, value: v.Abstract, alternatives: Sequence[Layout]) -> list[Operand]:
    """One of several functions, or a value that is one of them, as one of more."""
    index: Operand = s.scalar(0)
    match value:
        case v.Choice(index=index, alternatives=given):
            pass
        case v.Optional(value=inner, missing=missing):
            index, given = traced(s, _number, v.Leaf(missing)).operand, (inner, v.Static(None))
        case _:
            given = (value,)
    places = [position_among(alternatives, layout_of(x)) for x in given]
    there = {k: x for k, x in zip(places, given, strict=True) if k is not None}
    if not there:
        assert isinstance(value, v.Choice)
        refuse_alternatives(s, value)
    if len(given) == 1:
        index = s.scalar(next(iter(there)))
    elif places != list(range(len(places))):
        index = traced(s, _place, v.Leaf(index), v.Static(tuple(places))).operand
    parts = [convert(s, there[k], x) if k in there else _nothing(s, x) for k, x in enumerate(alternatives)]
    return [index, *chain.from_iterable(parts)]


def _nothing(s: LoweringState, layout: Layout) -> list[Operand]:
    return [undefined(s, t) for t in leaf_types(layout)]


def _number(missing: Any) -> Any:
    return jax_compat.weakened(jnp.where(missing, 1, 0))


def _place(index: Any, places: tuple[int, ...]) -> Any:
    return sum(place * (index == k) for k, place in enumerate(places))


def _convert_optional(s: LoweringState, value: v.Abstract, layout: OptionalLayout) -> list[Operand]:
    absent = isinstance(value, v.Unset) if layout.unset else isinstance(value, v.Static) and value.value is None
    if absent:
        return [*(undefined(s, t) for t in leaf_types(layout.value)), s.scalar(True)]
    if isinstance(value, v.Optional) and value.unset == layout.unset:
        return [*convert(s, value.value, layout.value), value.missing]
    if isinstance(value, v.Optional) and value.unset:
        value = present(s, value)
    return [*convert(s, value, layout.value), s.scalar(False)]


def _convert_list(s: LoweringState, value: v.Abstract, elem: Layout) -> list[Operand]:
    if isinstance(value, v.Listing):
        return list(value.lists) if value.elem == elem else _convert_items(s, value, elem)
    if isinstance(value, v.Leaf) and isinstance(value.type, Array):
        parts = tuple(traced(s, operator.getitem, value, v.Static(k)) for k in range(value.type.shape[0]))
        value = v.Record("list", tuple(range(len(parts))), parts)
    if isinstance(value, v.Leaf):
        assert isinstance(value.type, List)
        return _convert_items(s, v.Listing((value.operand,), LeafLayout(value.type.elem)), elem)
    assert isinstance(value, v.Record)
    columns = zip(*(convert(s, i, elem) for i in value.items), strict=True) if value.items else None
    types = list_types(elem)
    if columns is None or not leaf_types(elem):
        rows: list[tuple[Operand, ...]] = [tuple(s.scalar(0) for _ in value.items) for _ in types]
    else:
        rows = list(columns)
    return [s.apply(own("pack_list"), row, List(t)) for row, t in zip(rows, types, strict=True)]


def _convert_items(s: LoweringState, value: v.Listing, elem: Layout) -> list[Operand]:
    """A list with every element converted."""
    t, turn = s.fork(), s.context.value(INT, "turn")
    items = [t.apply(own("item"), (x, turn), x.type.elem) for x in value.lists if isinstance(x.type, List)]
    yields = convert(t, rebuild(value.elem, iter(items)), elem) or [t.scalar(0)]
    results = tuple(s.context.value(List(x)) for x in list_types(elem))
    count = s.apply(own("length"), value.lists[:1], INT)
    s.emit(Map(results, count, Region((turn,), tuple(t.block.body), tuple(yields)), False, s.span))
    return list(results)


def as_listing(s: LoweringState, value: v.Record) -> v.Listing:
    """A list display as a list of the program: all elements must have one type."""
    if not value.items:
        s.refuse("the type of an empty list's elements is not known", "start from a list that is not empty")
    layout = layout_of(value.items[0])
    for item in value.items[1:]:
        layout = common_layout(layout, item, s.span)
    made = v.Listing(tuple(_convert_list(s, value, layout)), layout)
    s.context.identities.collected(made, value.items)
    return made


def common_layout(layout: Layout, value: v.Abstract, span: Span) -> Layout:
    try:
        return unify(layout, layout_of(value))
    except LayoutConflict as conflict:
        raise type_conflict(conflict, f"the elements of a list have different types: {conflict}", span) from None
