"""Deep copies of what has memory: a new row for each row that is led to, found again by the number of the old one.

    copy.deepcopy(x)      copies = zeros(rows); first = (the number of rows)
                          x' = renewed(x): each row in it is a new one, a copy as it is, and copies[row] = its number
                          at = first
                          while at < (the number of rows): renew what the row `at` holds;  at = at + 1

What stands in several places is copied once, and what leads back to itself does so in the copy (Cheney, "A nonrecursive
list compacting algorithm", 1970). Each memory has such an array and such a loop; memories whose rows lead to each other
have one loop around theirs.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from autobatch.errors import UnsupportedError
from autobatch.frontend.library.builtin_functions import METHODS
from autobatch.frontend.library.prelude import run
from autobatch.frontend.lowering.attributes import (
    attribute,
    class_list,
    classes_of,
    written,
)
from autobatch.frontend.lowering.joins import conditional, stored
from autobatch.frontend.lowering.numbers import operand_of, traced
from autobatch.frontend.lowering.state import LoweringState, expand
from autobatch.frontend.memory import container_heap, heaps, list_heap
from autobatch.frontend.memory.heap import Heap, NeedsMemory
from autobatch.frontend.memory.list_heap import copied, hold
from autobatch.frontend.types import values as v
from autobatch.frontend.types.statics import container_kind
from autobatch.frontend.types.values import (
    Layout,
    LeafLayout,
    ListingLayout,
    OptionalLayout,
    RecordLayout,
    RowLayout,
    layout_of,
)
from autobatch.ir import buffers
from autobatch.ir.core import INT, Array, List, Ref

Arguments = Sequence[v.Abstract]
Named = dict[str, v.Abstract]
NONE = v.Static(None)


# ---- which memories there are copies in


def _pointed(layout: Layout) -> Iterator[Heap]:
    """The memories whose rows values of a layout hold."""
    match layout:
        case RowLayout(heap=heap):
            yield heap.whole
        case RecordLayout(items=items):
            for item in items:
                yield from _pointed(item)
        case OptionalLayout(value=inner) | ListingLayout(elem=inner):
            yield from _pointed(inner)
        case _:
            return


def _targets(heap: Heap) -> list[Heap]:
    return list(dict.fromkeys(_pointed(heap.layout))) if heap.layout is not None else []


def led_to(s: LoweringState, value: v.Abstract) -> tuple[Heap, ...]:
    """The memories that a value leads to."""
    found: dict[Heap, None] = {}
    todo = list(_pointed(layout_of(value)))
    while todo:
        heap = todo.pop(0)
        if heap not in found:
            found[heap] = None
            todo += _targets(heap)
    return tuple(found)


def refuse_parts(s: LoweringState, heap: Heap) -> None:
    """Refuse what copies of rows cannot hold."""
    for cls in heap.members:
        if "__deepcopy__" in vars(cls):
            s.refuse("deepcopy() of a class that has a __deepcopy__ cannot be compiled", "call a method of your own")
    if heap.layout is not None and any(_of_examples(x) for x in heap.layout.items):
        refuse_of_examples(s)


def refuse_of_examples(s: LoweringState) -> NoReturn:
    s.refuse(
        "deepcopy() of objects of the examples cannot be compiled",
        "leave it out, as nothing changes them; or build new objects of their fields",
    )


def leads_to_memory(value: v.Abstract) -> bool:
    """Does a value hold rows of memory?"""
    return any(_pointed(layout_of(value)))


def _of_examples(layout: Layout) -> bool:
    match layout:
        case LeafLayout(type=Ref() | List(elem=Ref())):
            return True
        case RecordLayout(items=items):
            return any(map(_of_examples, items))
        case OptionalLayout(value=inner) | ListingLayout(elem=inner):
            return _of_examples(inner)
        case _:
            return False


def _components(found: Sequence[Heap]) -> list[tuple[int, ...]]:
    """The memories by number, those that lead to each other together, those that lead to others first."""
    reach = {h: {h} for h in found}
    for _ in found:
        for h in found:
            reach[h] |= {y for x in _targets(h) for y in reach[x]}
    together = {tuple(k for k, y in enumerate(found) if y in reach[h] and h in reach[y]): h for h in found}
    return sorted(together, key=lambda ks: -len(reach[together[ks]]))


# ---- Python that is lowered like functions of the user; `_words` name the memories


def _new_row(words: Any, k: Any, row: Any, copies: Any) -> Any:
    """A row of memory `k`, and its copy, which is made unless there is one."""
    if row < 0:
        found = row
    else:
        found = known(copies[k], row)
        if found < 0:
            found = cloned(words, k, row)
            copies = noted(copies, k, row, found)
    return copies, found


def _all_items(words: Any, items: Any, copies: Any) -> Any:
    made = []
    for x in items:
        copies, y = renewed(words, x, copies)
        made.append(y)
    return copies, made


def _elements(words: Any, k: Any, at: Any, copies: Any) -> Any:
    for i in range(row_length(words, k, at)):
        copies = renewed_element(words, k, at, i, copies)
    return copies


def _rows(words: Any, k: Any, at: Any, copies: Any) -> Any:
    while at < row_count(words, k):
        copies = renewed_row(words, k, at, copies)
        at = at + 1
    return at, copies


def _rounds(words: Any, ks: Any, at: Any, copies: Any) -> Any:
    while are_left(words, ks, at):
        at, copies = one_round(words, ks, at, copies)
    return copies


# ---- what these call: marks, which are never run


def known(copies: Any, row: Any) -> Any: ...
def cloned(words: Any, k: Any, row: Any) -> Any: ...
def noted(copies: Any, k: Any, row: Any, new: Any) -> Any: ...
def renewed(words: Any, x: Any, copies: Any) -> Any: ...
def row_length(words: Any, k: Any, at: Any) -> Any: ...
def renewed_element(words: Any, k: Any, at: Any, i: Any, copies: Any) -> Any: ...
def row_count(words: Any, k: Any) -> Any: ...
def renewed_row(words: Any, k: Any, at: Any, copies: Any) -> Any: ...
def are_left(words: Any, ks: Any, at: Any) -> Any: ...
def one_round(words: Any, ks: Any, at: Any, copies: Any) -> Any: ...


def _heap(s: LoweringState, words: v.Abstract, k: v.Abstract) -> Heap:
    assert isinstance(words, v.Static) and isinstance(k, v.Static)
    return next(h for h in heaps.heaps_of(s) if h.variable == words.value[k.value])


def _row(s: LoweringState, words: v.Abstract, k: v.Abstract, at: v.Abstract) -> v.MemoryRow:
    return v.MemoryRow(operand_of(s, at), _heap(s, words, k))


def _count(s: LoweringState, heap: Heap) -> v.Abstract:
    return heaps.memory_of(s, heap)[0]


def _known(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    found = traced(s, buffers.read_weak, args[0], args[1])
    return traced(s, operator.sub, found, v.Static(1))


def _cloned(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    row = _row(s, *args)
    if row.heap.in_segments:
        return v.Leaf(container_heap.allocate(s, row.heap, list_heap.elements(s, row)).operand)
    count, *columns = heaps.memory_of(s, row.heap, write=True)
    heaps.check_room(s, row.heap, count)
    read = [traced(s, buffers.read, c, v.Leaf(row.operand)) for c in columns]
    after = [traced(s, buffers.write, c, x, count) for c, x in zip(columns, read, strict=True)]
    heaps.bind_memory(s, row.heap, [traced(s, operator.add, count, v.Static(1)), *after])
    return v.Leaf(operand_of(s, count))


def _noted(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    copies, k, row, new = args
    assert isinstance(copies, v.Record) and isinstance(k, v.Static)
    items = list(copies.items)
    items[k.value] = traced(s, buffers.write, items[k.value], traced(s, operator.add, new, v.Static(1)), row)
    return replace(copies, items=tuple(items))


def _renewed(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    copies, made = Copies.of(s, args[0]).renewed(s, args[1], args[2])
    return v.Record("tuple", (0, 1), (copies, made))


def _row_length(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    return list_heap.length(s, _row(s, *args))


def _renewed_element(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    words, k, at, i, copies = args
    row = _row(s, words, k, at)
    copies, made = Copies.of(s, words).renewed(s, list_heap.element(s, row, i), copies)
    list_heap.put(s, row.heap, made, list_heap.place(s, row, i))
    return copies


def _row_count(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    return _count(s, _heap(s, *args))


def _renewed_row(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    words, k, at, copies = args
    row = _row(s, words, k, at)
    if row.heap.in_segments:
        return run(s, _elements, args, {})
    return list_heap.by_class(s, row, lambda t, one, cls: _renewed_fields(t, words, one, cls, copies))


def _renewed_fields(s: LoweringState, words: v.Abstract, row: v.MemoryRow, cls: type, copies: v.Abstract) -> v.Abstract:
    for name, layout in row.heap.field_layouts(cls).items():
        if any(_pointed(layout)):
            held = heaps.field(s, row, name)
            assert held is not None
            copies, made = Copies.of(s, words).renewed(s, held, copies)
            heaps.put_field(s, row, name, made)
    return copies


def _are_left(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    words, ks, at = args
    assert isinstance(ks, v.Static) and isinstance(at, v.Record)
    left = [
        traced(s, operator.lt, x, _count(s, _heap(s, words, v.Static(k))))
        for k, x in zip(ks.value, at.items, strict=True)
    ]
    found = left[0]
    for x in left[1:]:
        found = traced(s, operator.or_, found, x)
    return found


def _one_round(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    words, ks, at, copies = args
    assert isinstance(ks, v.Static) and isinstance(at, v.Record)
    after = list(at.items)
    for n, k in enumerate(ks.value):
        after[n], copies = _parts(run(s, _rows, [words, v.Static(k), after[n], copies], {}))
    return v.Record("tuple", (0, 1), (replace(at, items=tuple(after)), copies))


def _parts(pair: v.Abstract) -> tuple[v.Abstract, ...]:
    assert isinstance(pair, v.Record)
    return pair.items


class Copies:
    """One deep copy: `words` name the memories it has copies in, as a constant of the program."""

    def __init__(self, found: Sequence[Heap]) -> None:
        self.heaps = tuple(found)
        self.words = v.Static(tuple(h.variable for h in found))

    @classmethod
    def of(cls, s: LoweringState, words: v.Abstract) -> Copies:
        assert isinstance(words, v.Static)
        return cls([_heap(s, words, v.Static(k)) for k in range(len(words.value))])

    def begun(self, s: LoweringState) -> tuple[v.Abstract, v.Abstract]:
        """What there are copies of: of nothing. And how many rows there are of each memory."""
        capacity, names = s.context.memory.capacity, tuple(range(len(self.heaps)))
        counts = tuple(_count(s, h) for h in self.heaps)
        blanks = tuple(traced(s, heaps.blank(INT, capacity)) for _ in names)
        return v.Record("tuple", names, blanks), v.Record("tuple", names, counts)

    def renewed(self, s: LoweringState, value: v.Abstract, copies: v.Abstract) -> tuple[v.Abstract, v.Abstract]:
        """What there are copies of then, and the value with copies of all rows in it."""
        match value:
            case v.MemoryRow(operand=operand, heap=heap):
                k = v.Static(self.heaps.index(heap.whole))
                copies, new = _parts(run(s, _new_row, [self.words, k, v.Leaf(operand), copies], {}))
                return copies, replace(value, operand=operand_of(s, new))
            case v.Optional(value=inner, missing=missing):

                def there(t: LoweringState) -> v.Abstract:
                    return v.Record("tuple", (0, 1), self.renewed(t, inner, copies))

                if not leads_to_memory(inner):
                    return copies, value
                pair = v.Record("tuple", (0, 1), (copies, inner))
                after, made = _parts(conditional(s, missing, lambda t: pair, there))
                return after, replace(value, value=made)
            case v.Record(items=items) if leads_to_memory(value):
                made_items = []
                for x in items:
                    copies, y = self.renewed(s, x, copies)
                    made_items.append(y)
                return copies, replace(value, items=tuple(made_items))
            case v.Listing() if leads_to_memory(value):
                after, made = _parts(run(s, _all_items, [self.words, value, copies], {}))
                return after, made
            case _:
                return copies, value

    def finished(self, s: LoweringState, copies: v.Abstract, first: v.Abstract) -> None:
        """Let copies hold copies of what they hold."""
        assert isinstance(first, v.Record)
        for ks in _components(self.heaps):
            if not any(_targets(self.heaps[k]) for k in ks):
                continue
            if len(ks) == 1:
                _, copies = _parts(run(s, _rows, [self.words, v.Static(ks[0]), first.items[ks[0]], copies], {}))
            else:
                at = v.Record("tuple", tuple(range(len(ks))), tuple(first.items[k] for k in ks))
                copies = run(s, _rounds, [self.words, v.Static(ks), at, copies], {})


MARKS: dict[Any, Callable[[LoweringState, Arguments, Named], v.Abstract]] = {
    known: _known,
    cloned: _cloned,
    noted: _noted,
    renewed: _renewed,
    row_length: _row_length,
    renewed_element: _renewed_element,
    row_count: _row_count,
    renewed_row: _renewed_row,
    are_left: _are_left,
    one_round: _one_round,
}


# ---- copying
#
# `copy.copy` and `copy.deepcopy`: of lists, dicts and objects, one of its own with the same in it, or copies of it.
#
# A deep copy follows what stands in another by its type; what has memory, and so may stand in several places, or lead
# back to itself, is copied there (`graph_copies.py`).


def _each(items: Any) -> Any:
    """Lowered like a function of the user."""
    return [copy.deepcopy(x) for x in items]


def shallow(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    """`copy.copy(x)`"""
    (value,) = args
    if written(s, value, "__copy__"):
        return s.call(attribute(s, value, "__copy__"), [])
    value = _opened(s, value)
    if (fields := fields_apart(s, value, "copy()")) is not None:
        return _made(s, fields, lambda _, x: x)
    return _of_container(s, value)


def deep(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    """`copy.deepcopy(x)`"""
    if len(args) != 1 or kwargs:
        s.refuse("deepcopy() takes what is copied alone here", "leave its memo out")
    value = stored(s, args[0])
    found = led_to(s, value)
    if not found:
        return _deep(s, value, (), None)
    for heap in found:
        refuse_parts(s, heap)
    copies = Copies(found)
    memo = _Memo(copies, *copies.begun(s))
    made = _deep(s, value, (), memo)
    copies.finished(s, memo.held, memo.first)
    return made


@dataclass
class _Memo:
    """A deep copy of what leads to memory: what there are copies of so far, and how many rows there were before it."""

    copies: Copies
    held: v.Abstract
    first: v.Abstract

    def renewed(self, s: LoweringState, value: v.Abstract) -> v.Abstract:
        self.held, made = self.copies.renewed(s, value, self.held)
        return made


def _deep(s: LoweringState, value: v.Abstract, path: tuple[Any, ...], memo: _Memo | None) -> v.Abstract:
    """`path`: the way there from what is copied; `memo`: where that leads to memory."""
    if written(s, value, "__deepcopy__"):
        s.refuse("deepcopy() of a class that has a __deepcopy__ cannot be compiled", "call a method of your own")
    if isinstance(value, v.MemoryRow) and memo is not None:
        return memo.renewed(s, value)
    value = _opened(s, value)
    if isinstance(value, v.Leaf) and isinstance(value.type, Ref):
        refuse_of_examples(s)

    def part(key: Any, x: v.Abstract) -> v.Abstract:
        made = _deep(s, x, (*path, key), memo)
        return s.context.rules.made_by(s, made, ("deepcopy", s.frame.source, s.span, *path, key))

    if (fields := fields_apart(s, value, "deepcopy()")) is not None:
        _refuse_twice(s, fields)
        return _made(s, fields, part)
    if isinstance(value, v.Record):
        _refuse_twice(s, value)
    match value:
        case v.Record(kind="list", items=items):
            made = replace(value, items=tuple(part("item", x) for x in items))
        case v.Record(kind="tuple" | "namedtuple" | "dict", items=items):
            made = replace(value, items=tuple(part(k, x) for k, x in zip(value.keys, items, strict=True)))
        case v.Record(kind="table", items=items):
            made = replace(value, items=tuple(copied(s, _deep(s, x, path, memo)) for x in items))
        case v.Listing(is_tuple=False) if memo is not None and leads_to_memory(value):
            return hold(s, memo.renewed(s, value))
        case v.Listing(is_tuple=False):
            return s.call(v.Static(_each), [value])
        case _:
            return _of_container(s, value)
    hold(s, made)
    return made


def _refuse_twice(s: LoweringState, value: v.Record) -> None:
    """Refuse a container that holds one list, dict or object, which is a value, at two places; of memory there are
    copies."""
    held = [x for x in value.items if isinstance(x, v.Listing | v.Record)]
    twice = [x for k, x in enumerate(held) if any(x is y for y in held[:k])]
    if not twice:
        return
    words = "deepcopy() of what holds one object at two places cannot be compiled"
    error = UnsupportedError(words, s.span, "build a new one of its parts")
    classes = {x.cls for x in twice if isinstance(x, v.Record) and x.kind == "object" and x.cls is not None}
    if classes:
        raise NeedsMemory(classes, error)
    sites = s.context.sites.of(twice, s.context.memory.sites, True)
    raise NeedsMemory((), error, sites) if sites else error


def _opened(s: LoweringState, value: v.Abstract) -> v.Abstract:
    """A value that is there, with what a constant container holds."""
    if isinstance(value, v.Optional):
        s.refuse("what is copied here may be None", "test for None in front of it")
    if isinstance(value, v.MemoryRow):
        return value if not value.null else replace(heaps.there(s, value, "None is copied here"))
    return expand(s, value) if isinstance(value, v.Static) and container_kind(value.value) is not None else value


def fields_apart(s: LoweringState, value: v.Abstract, name: str) -> v.Record | None:
    """An object as the record of its fields; None for anything else."""
    match value:
        case v.Record(kind="object"):
            return value
        case v.MemoryRow() if not list_heap.is_row(value):
            cls = heaps.class_of(s, value)
            if cls is None:
                s.refuse(f"{name} of an object of several classes", "test with isinstance() which it is")
            return heaps.fields(s, value, cls)
        case v.Leaf(operand=operand) if isinstance(operand.type, Ref):
            classes = classes_of(s, value)
            found = class_list(s, operand.type)[min(classes)]
            if len(classes) != 1 or found.kind != "object" or found.cls is None:
                s.refuse(f"{name} of this value cannot be compiled", "build a new one of its parts")
            store = s.context.schema.store(operand.type.store)
            names = tuple(f.name for f in store.fields if min(classes) in f.classes)
            return v.Record("object", names, tuple(attribute(s, value, n) for n in names), found.cls)
        case _:
            return None


def _made(s: LoweringState, fields: v.Record, part: Callable[[Any, v.Abstract], v.Abstract]) -> v.Abstract:
    """A new object with these fields, or copies of them."""
    if fields.kind != "object" or fields.cls is None:
        return fields
    pairs = zip(fields.keys, fields.items, strict=True)
    made = replace(fields, items=tuple(x if isinstance(x, v.Unset) else part(k, x) for k, x in pairs))
    s.context.built.add(fields.cls)
    hold(s, made)
    heap = heaps.heap_of(s, fields.cls)
    return heaps.allocate(s, heap, made) if heap is not None else made


def _of_container(s: LoweringState, value: v.Abstract) -> v.Abstract:
    """A list, dict or set of its own; what nobody changes as it is."""
    match value:
        case v.Record(kind="list") | v.Listing(is_tuple=False):
            return METHODS[list.copy](s, value, [], {})
        case v.Record(kind="dict" | "table"):
            return METHODS[dict.copy](s, value, [], {})
        case v.MemoryRow():
            return METHODS[dict.copy if value.heap.is_dict else list.copy](s, value, [], {})
        case v.Leaf(operand=operand) if isinstance(operand.type, List):
            return METHODS[list.copy](s, value, [], {})
        case v.Static() | v.Record(kind="tuple" | "namedtuple") | v.Listing() | v.LocalFunction():
            return value
        case v.Leaf(operand=operand) if isinstance(operand.type, Array):
            return value
        case _:
            s.refuse("this value cannot be copied here", "build a new one of its parts")


COPIES: dict[Any, Callable[[LoweringState, Arguments, Named], v.Abstract]] = {
    copy.copy: shallow,
    copy.deepcopy: deep,
    **MARKS,
}
