"""Assignment in all its forms: names, unpacking, `x[k] = v` and `x += v` on containers that the function built."""

from __future__ import annotations

import ast
import operator
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np

from autobatch.frontend.library import sets, tables
from autobatch.frontend.library.graphs import make_plain
from autobatch.frontend.library.numpy_arrays import is_dynamic, kind_of
from autobatch.frontend.library.tables import EMPTY, concatenate
from autobatch.frontend.lowering import unions
from autobatch.frontend.lowering.attributes import attribute, forms_of, is_stack, written
from autobatch.frontend.lowering.joins import as_listing, conditional
from autobatch.frontend.lowering.numbers import operand_of, present, traced
from autobatch.frontend.lowering.operators import BINARY, apply_binary, augmented, subscript
from autobatch.frontend.lowering.selection import of_each
from autobatch.frontend.lowering.sequences import arithmetic, bounds_of, clipped, in_range, length, sequence, sliced
from autobatch.frontend.lowering.state import (
    Impure,
    LoweringState,
    UnseenInTraces,
    expand,
)
from autobatch.frontend.memory import array_stores, container_heap, heaps, list_heap
from autobatch.frontend.memory.heap import containers, is_array, is_given, refused_without_memory
from autobatch.frontend.memory.list_heap import hold
from autobatch.frontend.memory.rebinding import is_own, rebind, refuse_change, refuse_given
from autobatch.frontend.types import values as v
from autobatch.frontend.types.unify import as_table, constant
from autobatch.ir.core import Array


def assign(s: LoweringState, target: ast.expr, value: v.Abstract) -> None:
    """Bind a target to a value."""
    with s.at(target):
        list_heap.refuse_view(s, value)
        if isinstance(target, ast.Attribute):
            hold(s, value)
        match target:
            case ast.Name(id=name):
                s.bind(name, value)
            case ast.Tuple(elts=targets) | ast.List(elts=targets):
                _unpack(s, targets, value)
            case ast.Subscript(value=container, slice=index):
                held = s.evaluate(container)
                _store(s, container, held, s.evaluate(index), value)
            case ast.Attribute(value=ast.Name(id=name), attr=attr) if name == s.frame.constructing and isinstance(
                made := s.evaluate(target.value), v.Record
            ):
                _refuse_itself(s, made, value)
                s.bind(name, put(made, attr, value))
            case ast.Attribute(value=ast.Name(id=name), attr=attr) if _is_built(s, name, attr):
                made = s.env[name].value
                assert isinstance(made, v.Record)
                _refuse_itself(s, made, value)
                rebind(s, name, put(made, attr, value))
            case ast.Attribute(value=holder, attr=attr):
                _set_attribute(s, holder, s.evaluate(holder), attr, value)
            case _:
                s.refuse("this cannot be assigned to", "assign to a variable")


def _refuse_itself(s: LoweringState, made: v.Record, value: v.Abstract) -> None:
    """`self.parent = self` while an object is made: as a value it cannot be a part of itself, as a row it can."""
    if any(x is made for x in containers(value)):
        assert made.cls is not None
        classes = [made.cls] if made.kind == "object" and heaps.may_be_set(made.cls, "") else []
        words = f"an object of {made.cls.__name__} holds itself"
        raise refused_without_memory(classes, words, s.span, "let the field be None, and set it behind the call")


def _set_attribute(
    s: LoweringState, holder: ast.expr, held: v.Abstract, name: str, value: v.Abstract, by_object: bool = False
) -> None:
    """`holder.name = value`, where the holder is not a value that a variable holds. `by_object`: by that of `object`,
    and not by the `__setattr__` of the class."""
    hold(s, value)
    held = present(s, held)

    def set_one(t: LoweringState, x: v.Abstract) -> v.Abstract:
        _set_attribute(t, holder, x, name, value, by_object)
        return v.Static(None)

    if held == v.Static(None):
        s.check(s.scalar(False), "AttributeError", f"'NoneType' object has no attribute {name!r}")
        s.dead = True
        return
    if of_each(s, [held], set_one, lambda x: setattr(x, name, None)) is not None:
        return
    if isinstance(held, v.MemoryRow):
        classes = heaps.classes_of(s, held)
        if len(classes) > 1 and any(heaps.setter_of(c, name, by_object) is not None for c in classes):
            list_heap.by_class(s, held, lambda t, x, _: set_one(t, x))
            return
        setter = heaps.setter_of(heaps.class_of(s, held), name, by_object)
        there = heaps.there(s, held, f"'NoneType' object has no attribute {name!r}")
        if setter is not None:
            s.call(v.Static(setter[0]), [*map(v.Static, setter[1]), there, *map(v.Static, setter[2]), value])
        else:
            heaps.set_field(s, there, name, value, by_object)
        return
    cls = held.cls if isinstance(held, v.Record) and held.cls in s.context.built else None
    if cls is not None and (heaps.may_be_set(cls, name) or heaps.setter_of(cls, name) is not None):
        raise refused_without_memory([cls], _NOT_SET, s.span, _BUILD)
    refuse_change(s, holder, _NOT_SET, _BUILD, held)


def set_by_name(
    s: LoweringState, node: ast.Call, function: v.Abstract, args: Sequence[v.Abstract]
) -> v.Abstract | None:
    """`setattr(holder, "name", value)`, also `object.__setattr__`; None for any other call."""
    match function:
        case v.Static(value=called):
            given = list(node.args)
        case v.Method(function=v.Static(value=called), receiver=receiver):
            given, args = [ast.Constant(None), *node.args], [receiver, *args]
        case _:
            return None
    if called is not setattr and called != object.__setattr__:
        return None
    match given, args:
        case [ast.Name() as holder, _, _], [held, v.Static(value=str(name)), value] if not isinstance(
            held, v.MemoryRow
        ):
            assign(s, ast.copy_location(ast.Attribute(holder, name, ast.Store()), node), value)
        case [holder, _, _], [held, v.Static(value=str(name)), value]:
            _set_attribute(s, holder, held, name, value, called is not setattr)
        case _:
            return None
    return v.Static(None)


_NOT_SET = "attributes cannot be assigned: objects of the examples and of the function are not changed"
_BUILD = "build a new object, e.g. with dataclasses.replace"


def _is_built(s: LoweringState, name: str, attribute: str) -> bool:
    """Is it an object that this function has built, with an attribute that may be set?"""
    bound = s.env.get(name)
    if bound is None or not isinstance(bound.value, v.Record) or bound.value.kind != "object":
        return False
    return heaps.may_be_set(bound.value.cls, attribute)


def _unpack(s: LoweringState, targets: Sequence[ast.expr], value: v.Abstract) -> None:
    found = sequence(s, value)
    stars = [k for k, t in enumerate(targets) if isinstance(t, ast.Starred)]
    count = length(s, found)
    if not stars:
        _check_count(s, count, len(targets))
        for position, target in enumerate(targets):
            assign(s, target, _at(s, found, v.Static(position)))
        return
    star = stars[0]
    behind = len(targets) - star - 1
    _check_count(s, count, len(targets) - 1, or_more=True)
    for position, target in enumerate(targets[:star]):
        assign(s, target, _at(s, found, v.Static(position)))
    inner, end = targets[star], -behind if behind else None
    assert isinstance(inner, ast.Starred)
    middle: v.Abstract
    if (held := forms_of(s, value)) is not None and isinstance(value, v.Leaf):
        middle = unions.elements(s, value, held, slice(star, end))
    else:
        middle = sliced(s, found, [v.Static(star), v.Static(end), v.Static(None)])
    if isinstance(middle, v.Record):
        middle = replace(middle, kind="list")
    kept = replace(middle, is_tuple=False, is_list=True) if held is not None and isinstance(middle, v.Lazy) else None
    assign(s, inner.value, kept or s.context.rules.materialise(s, middle))
    for position, target in enumerate(targets[star + 1 :]):
        index: v.Abstract = v.Static(position - behind)
        if isinstance(found, v.Record) or isinstance(count, v.Static):
            size = count.value if isinstance(count, v.Static) else 0
            index = v.Static(size + position - behind)
        else:
            index = apply_binary(s, operator.add, count, index)
        assign(s, target, _at(s, found, index))


def _at(s: LoweringState, found: v.Record | v.Lazy, index: v.Static | v.Abstract) -> v.Abstract:
    if isinstance(found, v.Record) and isinstance(index, v.Static):
        return found.items[index.value] if index.value < len(found.items) else v.Static(None)
    assert isinstance(found, v.Lazy)
    return found.item(s, index)


def _check_count(s: LoweringState, count: v.Abstract, wanted: int, or_more: bool = False) -> None:
    few = f"not enough values to unpack (expected {'at least ' if or_more else ''}{wanted}, got {{}})"
    many = f"too many values to unpack (expected {wanted})"
    if isinstance(count, v.Static):
        if count.value < wanted or (count.value > wanted and not or_more):
            s.refuse(
                few.format(count.value) if count.value < wanted else many,
                "unpack as many names as there are values, or the rest with `*rest`",
            )
        return
    s.check(traced(s, operator.ge, count, v.Static(wanted)).operand, "ValueError", few, (operand_of(s, count),))
    if not or_more:
        s.check(traced(s, operator.le, count, v.Static(wanted)).operand, "ValueError", many)


def _store(s: LoweringState, container: ast.expr, held: v.Abstract, index: v.Abstract, value: v.Abstract) -> None:
    """`name[index] = value` for a list or dict that the function built, and that the name holds."""
    hold(s, value)
    held = present(s, held)
    if is_given(held) and not is_stack(s, held):
        refuse_given(s, held, "only a list or dict built in this function can be changed", "build a new one")
    if not is_dynamic(held) and (is_stack(s, held) or s.context.sites.is_part(held)):
        _need_filled(s, held)
    if is_dynamic(held):
        s.context.rules.stacked(s, operator.setitem, (held, index, value))
        return
    if _calls(s, held, "__setitem__", [index, value]):
        return
    if list_heap.is_row(held):
        _store_in_row(s, list_heap.there(s, held), index, value)
        return
    if not isinstance(container, ast.Name) or container.id not in s.env:
        if isinstance(container, ast.Subscript | ast.Attribute) and tables.is_dict(held):
            refuse_change(
                s, container, "a dict that lies in a dict, a list or an object is not changed in place",
                "use one dict, with pairs as keys: d[a, b] = value", held,
            )  # fmt: skip
        array_stores.need_memory(s, held)
        words = "only a list or dict built in this function can be changed"
        refuse_change(s, container, words, "build a new one", held)
    old = expand(s, present(s, s.evaluate(container)))
    if isinstance(old, v.Static) and isinstance(old.value, np.ndarray):
        old = v.Leaf(operand_of(s, old), numpy=True)
    if isinstance(old, v.Leaf) and isinstance(old.type, Array):
        array_stores.store(s, container.id, old, index, value)
        return
    if tables.is_deque(old):
        items = tables.items_of(old)
        written_out = isinstance(items, v.Record) and isinstance(index, v.Static)
        changed = _put_static(s, items, index, value) if written_out else _with_item(s, items, index, value)
        _become(s, container.id, tables.with_items(s, old, changed), old, value)
        return
    if _is_list(old) and (bounds := bounds_of(index)) is not None:
        _become(s, container.id, _with_slice(s, old, bounds, value), old, value)
        return
    if _is_list(old) and not (isinstance(old, v.Record) and isinstance(index, v.Static)):
        _become(s, container.id, _with_item(s, old, index, value), old, value)
        return
    if not isinstance(old, v.Record) or old.kind not in ("list", "dict", "table"):
        make_plain(s, old)
        words = "an item can be assigned only in a list or dict built in this function"
        refuse_change(s, container, words, "build a new one", old)
    if old.kind != "list":
        rebind(s, container.id, tables.with_item(s, old, index, value))
        return
    rebind(s, container.id, _put_static(s, old, index, value))


def _check_seen(s: LoweringState, target: ast.expr, old: v.Abstract) -> None:
    """`a += x` of an array of NumPy that something else may hold, or that is a part of another: these get memory."""
    if not is_array(old) or not kind_of([old]):
        return
    if s.context.sites.is_part_of_dynamic(old):
        words = "a part of an array whose length is data is changed, which has no view of it"
        raise UnseenInTraces(words, s.span, "change the array itself: t[:, k] += x")
    if s.context.sites.is_part(old) or (isinstance(old, v.Listing) and _may_be_seen(s, target, old)):
        s.context.memory.unseen = True
        _need_filled(s, old)


def _may_be_seen(s: LoweringState, target: ast.expr, array: v.Abstract) -> bool:
    """May anything else hold an array that a variable holds, or a part of it? Where none is a variable, all may."""
    if not isinstance(target, ast.Name) or not is_own(s, array):
        return True
    others = [b.value for n, b in s.env.items() if n != target.id]
    if any(s.context.sites.is_part_of(x, array) for x in others):
        return True
    return s.context.identities.may_be_held(array, [*others, *s.frame.enclosing.values(), *s.frame.borrowed])


def _has_axes(value: v.Leaf) -> bool:
    return isinstance(value.type, Array) and bool(value.type.shape)


def _need_filled(s: LoweringState, array: v.Abstract) -> NoReturn:
    """An array whose length is data, and which is a value, is changed: let it have memory from where it is made."""
    cure = "change a copy: x.copy()"
    if kind_of([array]) is None:
        s.refuse("arrays of JAX are not changed in place", "make it one of NumPy")
    makers = s.context.sites.array_makers(array)
    array_stores.need_memory(s, array)
    if not makers or any(isinstance(n, ast.Subscript) for n in makers):
        raise Impure("an array that was made outside this function, or a part of one, is changed", s.span, cure)
    s.context.memory.fill(makers)
    s.refuse("this array cannot be changed in place", cure)


def _calls(s: LoweringState, held: v.Abstract, method: str, args: Sequence[v.Abstract]) -> bool:
    """Call a method that a class of the user has for what is written with brackets; False where there is none."""
    if not written(s, held.value if isinstance(held, v.Optional) else held, method):
        return False
    s.call(attribute(s, present(s, held), method), args)
    return True


def _become(s: LoweringState, name: str, new: v.Abstract, old: v.Abstract, added: v.Abstract) -> None:
    """Let a list be another one, that has `added` in it."""
    s.context.identities.changed(new, old, [added])
    rebind(s, name, new)


def _store_in_row(s: LoweringState, row: v.MemoryRow, index: v.Abstract, value: v.Abstract) -> None:
    bounds = bounds_of(index)
    if row.heap.is_dict:
        container_heap.store_value(s, row, present(s, index), value)
    elif bounds is None:
        container_heap.store_element(s, row, index, value)
    else:
        container_heap.assign_list(s, row, _with_slice(s, list_heap.copied(s, row), bounds, value))


def _put_static(s: LoweringState, items: v.Abstract, index: v.Abstract, value: v.Abstract) -> v.Abstract:
    """A copy of a list that is written out with one item set, at a place that is known."""
    assert isinstance(items, v.Record) and isinstance(index, v.Static)
    if not -len(items.items) <= index.value < len(items.items):
        s.check(s.scalar(False), "IndexError", "list assignment index out of range")
        s.dead = True
        return items
    return put(items, index.value % len(items.items), value)


def _is_list(value: v.Abstract) -> bool:
    return isinstance(value, v.Listing) or (isinstance(value, v.Record) and value.kind == "list")


def _with_slice(s: LoweringState, items: v.Abstract, bounds: Sequence[v.Abstract], value: v.Abstract) -> v.Abstract:
    """A copy of a list with the elements of a slice replaced by those of another sequence; of a slice with a step,
    `GONE` takes them out."""
    start, stop, step = bounds
    if step not in (v.Static(None), v.Static(1)):
        return _with_steps(s, items, bounds, value)
    first, last = clipped(s, items, start, stop)
    none, more = v.Static(None), sequence(s, value)
    before, behind = sliced(s, items, [none, first, none]), sliced(s, items, [last, none, none])
    return concatenate(s, EMPTY, before, replace(more, kind="list") if isinstance(more, v.Record) else more, behind)


def _with_steps(s: LoweringState, items: v.Abstract, bounds: Sequence[v.Abstract], value: v.Abstract) -> v.Abstract:
    """The same of a slice with a step, which is as long before as behind."""
    more = sequence(s, value)
    if isinstance(items, v.Record) and isinstance(more, v.Record) and all(isinstance(b, v.Static) for b in bounds):
        places = range(len(items.items))[slice(*(b.value for b in bounds if isinstance(b, v.Static)))]
        if value is GONE:
            left = tuple(x for k, x in enumerate(items.items) if k not in places)
            return v.Record("list", tuple(range(len(left))), left)
        if len(places) == len(more.items):
            new = dict(zip(places, more.items, strict=True))
            return replace(items, items=tuple(new.get(k, x) for k, x in enumerate(items.items)))
    given = [items, *bounds]
    made = s.call(v.Static(_taken_out), given) if value is GONE else s.call(v.Static(_stepped), [*given, value])
    return list_heap.copied(s, made)


def _stepped(items: Any, start: Any, stop: Any, step: Any, more: Any) -> Any:
    """Lowered like a function of the user, as is the next one."""
    made, new, places = list(items), list(more), list(range(len(items)))[start:stop:step]
    if len(places) != len(new):
        raise ValueError("attempt to assign a sequence of another size to an extended slice")
    for k in range(len(places)):
        made[places[k]] = new[k]
    return made


def _taken_out(items: Any, start: Any, stop: Any, step: Any) -> Any:
    places = list(range(len(items)))[start:stop:step]
    return [items[k] for k in range(len(items)) if k not in places]


def _with_item(s: LoweringState, items: v.Abstract, index: v.Abstract, value: v.Abstract) -> v.Abstract:
    """A copy of a list with one item set; the position, or the length, is known only when the program runs."""
    position = in_range(s, present(s, index), length(s, items))
    found = sequence(s, as_listing(s, items) if isinstance(items, v.Record) else items)
    assert isinstance(found, v.Lazy)

    def at(t: LoweringState, i: v.Abstract) -> v.Abstract:
        here = traced(t, operator.eq, i, position).operand
        return conditional(t, here, lambda u: value, lambda u: found.item(u, i))

    return s.context.rules.materialise(s, v.Lazy(found.length, at))


def put(record: v.Record, key: Any, value: v.Abstract) -> v.Record:
    """A copy of a container with one item set."""
    if key in record.keys:
        items = tuple(value if k == key else x for k, x in zip(record.keys, record.items, strict=True))
        return replace(record, items=items)
    return replace(record, keys=(*record.keys, key), items=(*record.items, value))


def augment(s: LoweringState, node: ast.AugAssign) -> None:
    """`x += v`, which changes a list that this function has built, under all its names. What stands in the target is
    evaluated once."""

    def changed(old: v.Abstract, is_element: bool = False) -> v.Abstract:
        if list_heap.is_row(old):
            return _augmented_row(s, node, list_heap.there(s, old))
        if not is_element:
            array_stores.check_augmented(s, node.target, old)
            _check_seen(s, node.target, old)
        made = augmented(s, BINARY[type(node.op)], old, s.evaluate(node.value))
        return s.context.rules.made_by(s, made, node) if is_array(made) else made

    target = node.target
    match target:
        case ast.Name(id=name):
            old = s.evaluate(ast.copy_location(ast.Name(name, ast.Load()), target))
            if _changes_in_place(s, old) and is_own(s, old):
                rebind(s, name, changed(old))
            else:
                assign(s, target, changed(old))
        case ast.Subscript(value=container, slice=place):
            with s.at(target):
                held, index = s.evaluate(container), s.evaluate(place)
                if is_dynamic(held) and is_stack(s, index):
                    more = s.evaluate(node.value)
                    if is_stack(s, more) or (isinstance(more, v.Leaf) and _has_axes(more)):
                        s.refuse("as many numbers as a mask picks are data", "write where(mask, x + y, x)")
                    new = apply_binary(s, BINARY[type(node.op)], held, more)
                    s.context.rules.stacked(s, np.putmask, (held, index, new))
                    return
                if isinstance(container, ast.Name) and isinstance(held, v.Leaf) and array_stores.is_mask(index, held):
                    more = s.evaluate(node.value)
                    if isinstance(more, v.Leaf) and isinstance(more.type, Array) and more.type.shape:
                        s.refuse("as many numbers as a mask picks are data", "write where(mask, x + y, x)")
                    new = augmented(s, BINARY[type(node.op)], array_stores.picked(s, held, index), more)
                    array_stores.store(s, container.id, held, index, new, of_all=True)
                    return
                old = _item(s, held, index)
            new = changed(old, is_element=isinstance(held, v.Leaf) or is_dynamic(held))  # what stores it looks at that
            with s.at(target):
                _store(s, container, held, index, new)
        case ast.Attribute(value=ast.Name() as holder, attr=attr):
            assign(s, target, changed(s.evaluate(ast.copy_location(ast.Attribute(holder, attr, ast.Load()), target))))
        case ast.Attribute(value=holder, attr=attr):
            with s.at(target):
                held = s.evaluate(holder)
                old = attribute(s, held, attr)
            new = changed(old)
            with s.at(target):
                _set_attribute(s, holder, held, attr, new)


def _augmented_row(s: LoweringState, node: ast.AugAssign, row: v.MemoryRow) -> v.MemoryRow:
    """`row += more`, `row *= n`: the list, which has changed."""
    if row.heap.is_dict:
        container_heap.assign_dict(s, row, augmented(s, BINARY[type(node.op)], row, s.evaluate(node.value)))
    elif isinstance(node.op, ast.Add):
        container_heap.extend(s, row, s.evaluate(node.value))
    else:
        container_heap.assign_list(s, row, augmented(s, BINARY[type(node.op)], row, s.evaluate(node.value)))
    return row


def _item(s: LoweringState, held: v.Abstract, index: v.Abstract) -> v.Abstract:
    """`held[index]`, which is set afterwards, so that nothing is put into a `defaultdict` before."""
    if isinstance(held, v.Record) and tables.has_default(held):
        return tables.get_or_make(s, held, index)
    if isinstance(held, v.MemoryRow) and held.heap.is_dict:
        return container_heap.load_old(s, list_heap.there(s, held), present(s, index))
    return subscript(s, held, index)


def _changes_in_place(s: LoweringState, value: v.Abstract) -> bool:
    """Does `+=` or `|=` change it, under all its names?"""
    if sets.is_set(value) or tables.is_dict(value):
        return not sets.is_frozen(value)
    return _is_list(value) and not is_stack(s, value)


GONE = v.Record("list", (), ())
"""What stands for nothing where a slice is deleted, not assigned."""
_NOT_DELETED = "only variables, and items of a list or dict in a variable, can be deleted"
_WITHOUT = "build a new list or dict without the item"


def delete(s: LoweringState, node: ast.Delete) -> None:
    """`del x`, `del x.name`, `del xs[i]`, `del xs[a:b]`, `del d[key]`"""
    for target in node.targets:
        match target:
            case ast.Name(id=name):
                s.bind(name, v.Unset(name))
            case ast.Subscript(value=container, slice=index) if list_heap.is_row(row := s.evaluate(container)):
                _delete_in_row(s, list_heap.there(s, row), s.evaluate(index))
            case ast.Subscript(slice=index) if written(s, row, "__delitem__"):
                _calls(s, row, "__delitem__", [s.evaluate(index)])
            case ast.Subscript(value=ast.Name(id=name) as container, slice=index) if name in s.env:
                _delete_item(s, container, s.evaluate(index))
            case ast.Subscript(value=container):
                refuse_change(s, container, _NOT_DELETED, _WITHOUT, s.evaluate(container))
            case ast.Attribute(value=holder, attr=attr):
                s.evaluate(ast.copy_location(ast.Attribute(holder, attr, ast.Load()), target))  # it must be there
                assign(s, ast.copy_location(ast.Attribute(holder, attr, ast.Store()), target), v.Unset(attr))
            case _:
                s.refuse(_NOT_DELETED, _WITHOUT)


def _delete_in_row(s: LoweringState, row: v.MemoryRow, index: v.Abstract) -> None:
    if row.heap.is_dict:
        container_heap.delete(s, row, index)
        return
    bounds = bounds_of(index)
    if bounds is None:
        first = in_range(s, present(s, index), length(s, row))
        bounds = [first, arithmetic(s, operator.add, first, v.Static(1)), v.Static(None)]
    if not s.dead:
        container_heap.assign_list(s, row, _with_slice(s, list_heap.copied(s, row), bounds, GONE))


def _delete_item(s: LoweringState, container: ast.Name, index: v.Abstract) -> None:
    name, old = container.id, expand(s, present(s, s.env[container.id].value))
    if _is_list(old) or tables.is_deque(old):
        items = tables.items_of(old) if tables.is_deque(old) else old
        bounds = bounds_of(index)
        if bounds is None:
            first = in_range(s, present(s, index), length(s, items))
            if s.dead:
                return
            bounds = [first, arithmetic(s, operator.add, first, v.Static(1)), v.Static(None)]
        left_over = _with_slice(s, items, bounds, GONE)
        rebind(s, name, tables.with_items(s, old, left_over) if tables.is_deque(old) else left_over)
        return
    if not isinstance(old, v.Record) or old.kind not in ("dict", "table"):
        make_plain(s, old)
        refuse_change(s, container, "this item cannot be deleted", "build a new list or dict without the item")
    index = constant(index)
    if old.kind == "table" or not isinstance(index, v.Static):
        left = tables.delete(s, as_table(old), index)
        if left is None:
            s.dead = True
        else:
            rebind(s, name, left)
        return
    if index.value not in old.keys:
        s.check(s.scalar(False), "KeyError", repr(index.value).replace("{", "{{").replace("}", "}}"))
        s.dead = True
        return
    table = {k: x for k, x in zip(old.keys, old.items, strict=True) if k != index.value}
    rebind(s, name, v.Record("dict", tuple(table), tuple(table.values())))
