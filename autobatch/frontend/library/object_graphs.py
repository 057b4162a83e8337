"""Objects as rows of the memory of their class: those of the examples, and deep copies.

Where objects of the examples are changed, the entry is given all objects that each example has of some classes, in the
order of their rows in the columns. They are the first rows of the memory, before the entry runs, so an object of the
examples is found there by its number:

    f(tree, autobatch_objects0)     first = row(objects[0]);  memory of Node = (count, value[...], next[...])
    node.next                       next[node]
    tree                            row(%tree) - first

Where they only stand among those that the function makes (`Heap.adopts`), each gets a row where it is read: from there
on there is one kind of object. Dicts and sets of the examples with keys that are data become lists of these.

A deep copy makes a new row for each row that is led to, found again by the number of the old one:

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, NoReturn

import jax.numpy as jnp

from autobatch.errors import UnsupportedError
from autobatch.frontend.library.builtin_functions import METHODS
from autobatch.frontend.library.prelude import run
from autobatch.frontend.library.tables import pairs_of
from autobatch.frontend.lowering import unions
from autobatch.frontend.lowering.attributes import (
    attribute,
    class_list,
    classes_of,
    fields_of,
    is_class,
    is_none,
    written,
)
from autobatch.frontend.lowering.calls import rows_copied
from autobatch.frontend.lowering.joins import conditional, stored
from autobatch.frontend.lowering.numbers import operand_of, traced
from autobatch.frontend.lowering.state import Fact, LoweringMemory, LoweringState, expand
from autobatch.frontend.memory import container_heap, heaps, list_heap
from autobatch.frontend.memory.heap import Heap, NeedsMemory, add_heap, record_class
from autobatch.frontend.memory.list_heap import copied, hold
from autobatch.frontend.memory.rebinding import keys_of, list_of_examples
from autobatch.frontend.types import values as v
from autobatch.frontend.types.statics import container_kind
from autobatch.frontend.types.unify import as_table
from autobatch.frontend.types.values import (
    Layout,
    LeafLayout,
    ListingLayout,
    OptionalLayout,
    RecordLayout,
    RowLayout,
    layout_of,
    leaf_type,
)
from autobatch.ir import buffers
from autobatch.ir.core import INT, Array, List, Ref
from autobatch.ir.ops import own

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


def _row_to_copy(s: LoweringState, words: v.Abstract, k: v.Abstract, at: v.Abstract) -> v.MemoryRow:
    return v.MemoryRow(operand_of(s, at), _heap(s, words, k))


def _count(s: LoweringState, heap: Heap) -> v.Abstract:
    return heaps.memory_of(s, heap)[0]


def _known(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    found = traced(s, buffers.read_weak, args[0], args[1])
    return traced(s, operator.sub, found, v.Static(1))


def _cloned(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    row = _row_to_copy(s, *args)
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
    return list_heap.length(s, _row_to_copy(s, *args))


def _renewed_element(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    words, k, at, i, copies = args
    row = _row_to_copy(s, words, k, at)
    copies, made = Copies.of(s, words).renewed(s, list_heap.element(s, row, i), copies)
    list_heap.put(s, row.heap, made, list_heap.place(s, row, i))
    return copies


def _row_count(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    return _count(s, _heap(s, *args))


def _renewed_row(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    words, k, at, copies = args
    row = _row_to_copy(s, words, k, at)
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


COPY_MARKS: dict[Any, Callable[[LoweringState, Arguments, Named], v.Abstract]] = {
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
# back to itself, is copied there (`object_graphs.py`).


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
    **COPY_MARKS,
}


# ---- objects that are changed


def with_memory(s: LoweringState, memory: LoweringMemory, given: Mapping[str, v.Abstract]) -> None:
    """Let the classes of the objects that the entry is given have memory, one for all those of an argument."""
    for value in given.values():
        type, found = _reference_of(value), list[Heap]()
        for k, cls in enumerate(class_list(s, type)):
            of = _class_of(s, type, k)
            key = ("given", of) if cls.kind == "table" else of
            found.append(memory.heaps[key] if key in memory.heaps else add_heap(memory.heaps, key, of))
        for heap in found:
            heap.whole.given = True
            if heap.whole is not found[0].whole:
                found[0].whole.join(heap.whole)
        memory.heaps["given", type.store] = found[0].whole


def _class_of(s: LoweringState, store: Ref, position: int) -> type:
    """The class of rows that objects of a class of the examples are."""
    cls = class_list(s, store)[position]
    of = record_class(dict, keys_of(s.context.schema, store, position)) if cls.kind == "dict" else cls.cls
    assert of is not None
    return of


def _reference_of(value: v.Abstract) -> Ref:
    """The type of the objects that an argument of the entry holds."""
    assert isinstance(value, v.Leaf) and isinstance(value.type, List) and isinstance(value.type.elem, Ref)
    return value.type.elem


def memory_given(s: LoweringState, value: v.Abstract) -> Heap:
    """The memory of the objects that an argument of the entry holds."""
    found = heaps.given_heap(s, _reference_of(value))
    assert found is not None
    return found


def fill(s: LoweringState, given: Mapping[str, v.Abstract]) -> None:
    """Put the objects that the entry is given into memory, in front of it."""
    for value in given.values():
        s.bind(memory_given(s, value).first, run(s, _first, [value], {}))
    for value in given.values():
        run(s, _all, [value], {})


def _first(objects: Any) -> Any:
    """Lowered like a function of the user, as are the next ones."""
    return _number_of_first(objects) if len(objects) > 0 else 0


def _all(objects: Any) -> Any:
    for k in range(len(objects)):
        _put(objects, k)


def _left(memory: Any, numbers: Any, objects: Any) -> Any:
    return [_row(memory, numbers, k) for k in range(len(objects))]


def _number_of_first(objects: Any) -> Any:
    """Stands for the number of the row of the first object, in the columns."""
    raise NotImplementedError


def _put(objects: Any, k: Any) -> Any:
    """Stands for a new row with the fields of an object."""
    raise NotImplementedError


def _row(memory: Any, numbers: Any, k: Any) -> Any:
    """Stands for an object in memory as the caller is given it back."""
    raise NotImplementedError


def _item(s: LoweringState, objects: v.Abstract, k: v.Abstract) -> v.Leaf:
    assert isinstance(objects, v.Leaf)
    found = s.apply(own("item"), (objects.operand, operand_of(s, k)), _reference_of(objects))
    s.block.facts[found] = Fact(None, False)
    return v.Leaf(found)


def _lower_number(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    return v.Leaf(s.apply(own("row"), (_item(s, args[0], v.Static(0)).operand,), INT))


def _lower_put(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    return _row_of_fields(s, [_item(s, *args)], kwargs)


def _row_by_number(s: LoweringState, value: v.Leaf, heap: Heap) -> v.Abstract:
    """The row of an object of the examples in the memory that was given all of them."""
    first, row = heaps.first_of(s, heap), v.Leaf(s.apply(own("row"), (value.operand,), INT))
    null = s.block.truth(is_none(s, value.operand)) is not False
    found = traced(s, _number if null else operator.sub, row, first)
    assert isinstance(value.type, Ref)
    of = [_class_of(s, value.type, k) for k in classes_of(s, value)]
    classes = None if heap.in_segments else frozenset(map(heap.members.index, of))
    return v.MemoryRow(operand_of(s, found), heap, null, classes)


def _number(row: Any, first: Any) -> Any:
    return jnp.where(row < 0, -1, row - first)


class LeftObjects(NamedTuple):
    """What the objects of a list that the entry was given are in the end. `set`: the attributes that were set;
    `inside`: those that hold lists which were changed; `after`: where all that was set are numbers, these by attribute,
    else the objects; None where nothing was changed."""

    set: tuple[str, ...]
    inside: tuple[str, ...]
    after: v.Abstract


def holds_given(heap: Heap) -> bool:
    """Are in these lists objects that the entry was given?"""
    items = heap.layout.items if heap.layout is not None else ()
    held = [x.value if isinstance(x, OptionalLayout) else x for x in items]
    return any(isinstance(x, RowLayout) and x.heap.whole.given for x in held)


def left(s: LoweringState, given: Sequence[v.Abstract], are_held: bool) -> list[LeftObjects]:
    """What the objects are that the entry was given, list by list. `are_held`: do other results hold them?"""
    memories = [memory_given(s, x) for x in given]
    changed = [(tuple(s.context.fields_set[heap]), tuple(_changed_inside(s, heap))) for heap in memories]
    numbers = not are_held and all(
        not inside and (not names or _are_numbers(heap, names))
        for heap, (names, inside) in zip(memories, changed, strict=True)
    )
    found = []
    for value, heap, names in zip(given, memories, changed, strict=True):
        is_read = _any(names) if numbers or heap.in_segments else are_held or any(map(_any, changed))
        args = [v.Static(heap), v.Static(numbers), value]
        found.append(LeftObjects(*names, run(s, _left, args, {}) if is_read else v.Static(None)))
    return found


def _any(names: tuple[tuple[str, ...], ...]) -> bool:
    return any(len(x) > 0 for x in names)


def _changed_inside(s: LoweringState, heap: Heap) -> Iterator[str]:
    """The attributes that hold lists which were changed, as they are those of the examples."""
    lists = {
        s.context.memory.sites[x].whole for x in s.context.memory.sites if isinstance(x, tuple) and x[0] == "given"
    }
    for name, held in {name: x for cls in heap.members for name, x in heap.field_layouts(cls).items()}.items():
        inner = held.value if isinstance(held, OptionalLayout) else held
        if isinstance(inner, RowLayout) and inner.heap.whole in lists and s.context.fields_set[inner.heap.whole]:
            yield name


def _are_numbers(heap: Heap, names: Sequence[str]) -> bool:
    """Are these attributes numbers of one class of objects?"""
    assert heap.layout is not None
    held = dict(zip(heap.layout.keys, heap.layout.items, strict=True))
    return len(heap.members) == 1 and all(n in held and isinstance(leaf_type(held[n]), Array) for n in names)


def _lower_row(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    memory, numbers, k = args
    assert isinstance(memory, v.Static) and isinstance(numbers, v.Static)
    row = v.MemoryRow(operand_of(s, k), memory.value)
    if memory.value.in_segments:
        return v.Record("tuple", (0,), (list_heap.copied(s, row),))
    if not numbers.value:
        return row
    names = tuple(s.context.fields_set[memory.value])
    return v.Record("dict", names, tuple(heaps.field(s, row, n) or v.Unset(n) for n in names))


# ---- objects among those that are made


def _as_row(x: Any) -> Any:
    return None if x is None else _of_fields(x)


def _of_fields(x: Any) -> Any:
    """Stands for a row with the fields of an object of the examples."""
    raise NotImplementedError


def brought_in(s: LoweringState, value: v.Abstract) -> v.Abstract:
    """An object of the examples as a row of the memory of its class, where that adopts such; a dict or set whose keys
    are data as lists of its keys and values; else the value."""
    if not isinstance(value, v.Leaf) or not isinstance(value.type, Ref):
        return value
    if (given := heaps.given_heap(s, value.type)) is not None:
        return _row_by_number(s, value, given)
    if (tables := _positions_of_tables(s, value)) is not None:
        return _table_of_given(s, value, tables)
    if heaps.adopting_heap(s, value.type) is None:
        return value
    key = ("row of", value.operand)
    if (known := s.block.recall(key)) is None:
        known = s.block.memo[key] = run(s, _as_row, [value], {})
    return known


def _positions_of_tables(s: LoweringState, value: v.Leaf) -> frozenset[int] | None:
    """The classes of an object that are dicts or sets whose keys are data, where all others are empty dicts."""
    assert isinstance(value.type, Ref)
    classes, fields = class_list(s, value.type), s.context.schema.store(value.type.store).fields
    found = frozenset(k for k, c in enumerate(classes) if c.kind == "table")
    others = [k for k in range(len(classes)) if k not in found]
    empty = all(classes[k].kind == "dict" and not any(k in f.classes for f in fields) for k in others)
    return found if found and empty else None


def _table_of_given(s: LoweringState, value: v.Leaf, tables: frozenset[int]) -> v.Abstract:
    """A dict or set of the examples by lists of its keys and values."""
    key = ("table of", value.operand)
    if (known := s.block.recall(key)) is None:
        absent, empty = is_none(s, value.operand), v.Record("list", (), ())
        known = s.block.memo[key] = conditional(
            s,
            absent,
            lambda t: v.Static(None),
            lambda t: conditional(
                t,
                is_class(t, value.operand, tables),
                lambda u: _opened_table(u, replace(value, classes=tables)),
                lambda u: v.Record("table", ("keys", "values"), (empty, empty), dict),
            ),
        )
    return known


def _opened_table(s: LoweringState, value: v.Leaf) -> v.Abstract:
    found = fields_of(s, value)
    assert found is not None
    s.context.identities.stored(found)
    return found


def _row_of_fields(s: LoweringState, args: Arguments, kwargs: Named) -> v.Abstract:
    (value,) = args
    assert isinstance(value, v.Leaf)
    first, *others = sorted(classes_of(s, value))
    if not others:
        return _row_of_given(s, value)
    return conditional(
        s,
        is_class(s, value.operand, frozenset({first})),
        lambda t: _row_of_given(t, value),
        lambda t: _row_of_fields(t, args, kwargs),
    )


def _row_of_given(s: LoweringState, value: v.Leaf) -> v.Abstract:
    assert isinstance(value.type, Ref)
    (position,) = classes_of(s, value)
    kind = class_list(s, value.type)[position].kind
    match kind, heaps.given_heap(s, value.type) or heaps.adopting_heap(s, value.type):
        case "dict" | "tuple", Heap(is_record=True) as heap:
            parts = unions.parts(s, value)
            assert parts is not None
            held = replace(parts, items=tuple(_held(s, x) for x in parts.items))
            return list_heap.allocate(s, heap, held, v.Leaf(heaps.as_stored(s, value.operand)))
        case "dict" | "table", Heap() as heap:
            table = fields_of(s, value)
            assert table is not None
            return container_heap.allocate(s, heap, pairs_of(s, as_table(table)))
    fields = fields_apart(s, value, "a row in memory")
    assert fields is not None
    assert fields.cls is not None
    memory = heaps.heap_of(s, fields.cls)
    if memory is None:
        words = f"objects {fields.cls.__name__} of the examples stand where some are that the function makes"
        raise NeedsMemory([fields.cls], UnsupportedError(words, s.span, "make a new one of its fields"))
    if memory.given:
        fields = replace(fields, items=tuple(_held(s, x) for x in fields.items))
    return heaps.allocate(s, memory, fields, v.Leaf(heaps.as_stored(s, value.operand)))


def _held(s: LoweringState, value: v.Abstract) -> v.Abstract:
    """What an object of the examples holds: a list that is changed has memory of its own, as the object has."""
    name = list_of_examples(s, value)
    site = ("given", name)
    if name is None or site not in s.context.memory.sites:
        return value
    if not isinstance(value, v.Leaf):
        return s.context.rules.made_by(s, value, site)
    of_lists = isinstance(value.type, List) and isinstance(value.type.elem, List)

    def copied(t: LoweringState) -> v.Abstract:
        if of_lists:
            return t.context.rules.made_by(t, t.call(v.Static(rows_copied), [value]), site)
        return container_heap.allocate(t, t.context.memory.sites[site].whole, value)

    return conditional(s, is_none(s, value.operand), lambda t: v.Static(None), copied)


MARKS: dict[Any, Callable[[LoweringState, Arguments, Named], v.Abstract]] = {
    _of_fields: _row_of_fields,
    _number_of_first: _lower_number,
    _put: _lower_put,
    _row: _lower_row,
}
