"""Objects of the examples as rows of the memory of their class.

Where they are changed, the entry is given all objects that each example has of some classes, in the order of their
rows in the columns. They are the first rows of the memory, before the entry runs, so an object of the examples is found
there by its number:

    f(tree, autobatch_objects0)     first = row(objects[0]);  memory of Node = (count, value[...], next[...])
    node.next                       next[node]
    tree                            row(%tree) - first

Where they only stand among those that the function makes (`Heap.adopts`), each gets a row where it is read: from there
on there is one kind of object. Dicts and sets of the examples with keys that are data become lists of these.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax.numpy as jnp

from autobatch.errors import UnsupportedError
from autobatch.frontend.library.graph_copies import fields_apart
from autobatch.frontend.library.prelude import run
from autobatch.frontend.library.tables import pairs_of
from autobatch.frontend.lowering import unions
from autobatch.frontend.lowering.attributes import class_list, classes_of, fields_of, is_class, is_none
from autobatch.frontend.lowering.calls import rows_copied
from autobatch.frontend.lowering.joins import conditional
from autobatch.frontend.lowering.numbers import operand_of, traced
from autobatch.frontend.lowering.state import Fact, LoweringMemory, LoweringState
from autobatch.frontend.memory import container_heap, heaps, list_heap
from autobatch.frontend.memory.heap import Heap, NeedsMemory, add_heap, record_class
from autobatch.frontend.memory.rebinding import keys_of, list_of_examples
from autobatch.frontend.types import values as v
from autobatch.frontend.types.unify import as_table
from autobatch.frontend.types.values import OptionalLayout, RowLayout, leaf_type
from autobatch.ir.core import INT, Array, List, Ref
from autobatch.ir.ops import own

Arguments = Sequence[v.Abstract]
Named = dict[str, v.Abstract]

# ---- objects that are changed


def with_memory(s: LoweringState, memory: LoweringMemory, given: Mapping[str, v.Abstract]) -> None:
    """Let the classes of the objects that the entry is given have memory, one for all those of an argument."""
    for value in given.values():
        type, found = _elements(value), list[Heap]()
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


def _elements(value: v.Abstract) -> Ref:
    """The type of the objects that an argument of the entry holds."""
    assert isinstance(value, v.Leaf) and isinstance(value.type, List) and isinstance(value.type.elem, Ref)
    return value.type.elem


def memory_given(s: LoweringState, value: v.Abstract) -> Heap:
    """The memory of the objects that an argument of the entry holds."""
    found = heaps.given_heap(s, _elements(value))
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
    found = s.apply(own("item"), (objects.operand, operand_of(s, k)), _elements(objects))
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
