"""Lists and dicts that the function builds: where they are made, and the methods that change them.

They are made as values, or in memory, where those that the expression makes have some. Where a value is changed, the
variables that hold it get the new container:

    out = [a]; out.append(b)      ->      out is (a, b) from here on
"""

from __future__ import annotations

import ast
import inspect
import operator
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np

from autobatch.frontend.library import sets, tables
from autobatch.frontend.library.prelude import place_to_remove
from autobatch.frontend.library.tables import EMPTY, concatenate
from autobatch.frontend.lowering.joins import stored
from autobatch.frontend.lowering.numbers import operand_of, present, traced, without
from autobatch.frontend.lowering.reductions import ordered
from autobatch.frontend.lowering.sequences import (
    arithmetic,
    in_range,
    is_inside,
    item,
    length,
    reverse,
    sequence,
    sliced,
)
from autobatch.frontend.lowering.state import LoweringState, expand
from autobatch.frontend.memory import array_stores, container_heap, list_heap
from autobatch.frontend.memory.heap import Heap, is_array, is_dict_value, is_given, is_list
from autobatch.frontend.memory.list_heap import hold
from autobatch.frontend.memory.rebinding import rebind, refuse_change, refuse_given, take_out
from autobatch.frontend.syntax.scopes import MUTATORS
from autobatch.frontend.syntax.sources import changed_parts, read_before_change, temporary_tuples
from autobatch.frontend.types import values as v
from autobatch.frontend.types.unify import as_table, constant

# ---- construction


def made_by(s: LoweringState, value: v.Abstract, site: object) -> v.Abstract:
    """A list or dict that an expression has made: one with memory, where those that it makes have that. An array whose
    length is data likewise."""
    array_stores.check_kept(s, value, site)
    array_stores.note_view(s, value)
    if array_stores.is_made_in_memory(s, value, site):
        return s.context.rules.stacked(s, np.asarray, (value,))
    if is_array(value):
        if site in s.context.memory.filled:
            return s.context.rules.stacked(s, np.array, (value,))
        s.context.sites.made(value, site)
        return value
    is_tuple = (
        isinstance(value, v.Record) and value.kind == "tuple" and site not in temporary_tuples(s.frame.source.node)
    )
    if not (is_tuple or is_list(value) or is_dict_value(value) or is_given(value)) and not isinstance(value, v.Lazy):
        return value
    if isinstance(value, v.Lazy) and (value.dicts or (isinstance(site, ast.Call) and not value.is_list)):
        return value  # a view, or what zip() gives, which is no list
    heap = s.context.memory.sites.get(site)
    if heap is None:
        if isinstance(value, v.Lazy) and isinstance(site, ast.Subscript) and _is_own(s, value, site):
            value = s.context.rules.materialise(s, value)
        s.context.sites.made(value, site)
        return value
    heap = heap.whole
    if is_given(value):
        return s.context.rules.adopted(s, heap, value) if heap.is_list else value
    if not heap.is_dict:
        return container_heap.allocate(s, heap, value)
    if heap.is_set:
        return container_heap.allocate(s, heap, tables.pairs_of(s, as_table(value)))
    assert isinstance(value, v.Record)
    if heap.is_record:
        return list_heap.allocate(s, heap, value)
    if heap.cls is defaultdict:
        _note_factory(s, heap, value.get("factory"))
    return container_heap.allocate(s, heap, tables.pairs_of(s, value))


def _is_own(s: LoweringState, value: v.Lazy, site: ast.Subscript) -> bool:
    """Is a slice a list of its own at once: it is changed, or may meet a list that has memory?"""
    return bool(s.context.memory.sites) or (value.is_list and site in changed_parts(s.frame.source.node))


def _note_factory(s: LoweringState, heap: Heap, factory: v.Abstract | None) -> None:
    """Note what gives the missing values of the dicts in a memory, which they have in common."""
    if factory is None or not _is_fixed(s, factory):
        s.refuse(
            "a defaultdict that another container holds is changed, and its factory reads variables of a function",
            "give it a class or a function of the module: defaultdict(float)",
        )
    if heap.factory is not None and heap.factory != factory:
        s.refuse(
            "defaultdicts of different factories may stand in one place, and are changed there",
            "give them one factory, or use .setdefault(key, default)",
        )
    heap.factory = factory


def _is_fixed(s: LoweringState, factory: v.Abstract) -> bool:
    """Does it mean the same wherever it is called?"""
    if isinstance(factory, v.LocalFunction):
        names = {n.id for n in ast.walk(factory.source.node) if isinstance(n, ast.Name)}
        own = {*s.env, *s.frame.enclosing, *s.frame.source.locals}
        return not factory.captured and not factory.defaults and names.isdisjoint(own)
    return isinstance(factory, v.Static)


# ---- changes


Arguments = Sequence[v.Abstract]
Named = dict[str, v.Abstract]
Change = Callable[[LoweringState, v.Abstract, Arguments, Named], tuple[v.Abstract, v.Abstract]]
NONE = v.Static(None)


def call_method(
    s: LoweringState, node: ast.Call, function: v.Abstract, args: Arguments, kwargs: dict[str, v.Abstract]
) -> v.Abstract | None:
    """The result of a call that changes a container, None when the call is no such method."""
    if not isinstance(function, v.Method) or not changes(function.function):
        return None
    assert isinstance(function.function, v.Static)
    method = function.function.value
    for x in (*args, *kwargs.values()):
        hold(s, x)
    if list_heap.is_row(function.receiver):
        return change_row(s, list_heap.there(s, function.receiver), method, args, kwargs)
    if not isinstance(node.func, ast.Attribute):
        return None
    name, change = method.__name__, CHANGES.get(method)
    holder = node.func.value
    if change is None or (kwargs and method not in _WITH_NAMES) or not isinstance(holder, ast.Name):
        message = f"{name}() on this list or dict cannot be compiled"
        refuse_change(s, holder, message, "build a new one: [*old, x], {**old, key: x}", function.receiver)
    if node in read_before_change(s.frame.source.node):
        s.refuse(
            f"{holder.id} is read and then changed in one expression, which reads what it is changed to",
            f"change it in a statement of its own in front: x = {ast.unparse(node)}",
        )
    _narrow(s, holder.id, name)
    # the arguments may have changed the list: `stack.append(stack.pop() + stack.pop())`
    receiver = s.env[holder.id].value if holder.id in s.env else function.receiver
    result, new = change(s, receiver, args, kwargs)
    s.context.identities.changed(new, receiver, args)
    rebind(s, holder.id, new)
    return result


def _narrow(s: LoweringState, name: str, method: str) -> None:
    """A variable whose method was found is not None; nor is any other that holds the same."""
    bound = s.env.get(name)
    if bound is None or not isinstance(bound.value, v.Optional) or bound.value.unset:
        return
    there = present(s, bound.value, none=without(method))
    for other, held in list(s.env.items()):
        if held.value is bound.value:
            s.bind(other, there, held.span)


def set_default(s: LoweringState, node: ast.Call, function: v.Abstract) -> v.Abstract | None:
    """`groups.setdefault(key, [])` of a dict of any keys: the list is made where the key is missing. None for any other
    call."""
    match node:
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id=name), attr="setdefault"),
            args=[asked, (ast.List(elts=[]) | ast.Dict(keys=[]) | ast.Call(args=[])) as default],
            keywords=[],
        ) if isinstance(function, v.Method) and default in s.context.memory.sites:
            receiver = function.receiver
        case _:
            return None
    if not (isinstance(receiver, v.Record) and receiver.kind in ("dict", "table")):
        return None
    key = constant(s.evaluate(asked))
    if receiver.kind == "dict" and isinstance(key, v.Static):
        return None
    table = as_table(receiver)
    value = tables.get_else(s, table, key, lambda t: hold(t, t.evaluate(default)))
    rebind(s, name, tables.store(s, table, key, value))
    return value


def change_row(s: LoweringState, row: v.MemoryRow, method: Any, args: Arguments, kwargs: Named) -> v.Abstract:
    """The result of a method that changes a list or dict in memory."""
    if row.heap.is_dict:
        return _change_dict(s, row, method, args, kwargs)
    match method.__name__, args:
        case "append", [value]:
            list_heap.append(s, row, value)
        case "extend", [more]:
            container_heap.extend(s, row, more)
        case "pop", []:
            return list_heap.pop(s, row)
        case "clear", []:
            list_heap.shorten(s, row, v.Static(0))
        case _:
            result, new = CHANGES[method](s, list_heap.copied(s, row), args, kwargs)
            container_heap.assign_list(s, row, new)
            return result
    return NONE


def _change_dict(s: LoweringState, row: v.MemoryRow, method: Any, args: Arguments, kwargs: Named) -> v.Abstract:
    match method.__name__, args:
        case "setdefault", [key]:
            return container_heap.set_default(s, row, key, lambda t: NONE)
        case "setdefault", [key, default]:
            return container_heap.set_default(s, row, key, lambda t: default)
        case "add", [key]:
            container_heap.store_value(s, row, key, v.Static(True))
            return NONE
        case "clear", []:
            if row.heap.is_record:
                list_heap.give_up(s, row, "it is cleared")
            list_heap.shorten(s, row, v.Static(0))
            return NONE
        case _:
            result, new = CHANGES[method](s, list_heap.copied(s, row), args, kwargs)
            container_heap.assign_dict(s, row, new)
            return result


_OPERATORS = ("__setitem__", "__delitem__", "__iadd__", "__imul__", "__ior__", "__iand__", "__isub__", "__ixor__")


def changes(function: v.Abstract) -> bool:
    """Is it a method of lists or dicts that changes them?"""
    method = function.value if isinstance(function, v.Static) else None
    of_container = getattr(method, "__objclass__", None) in (list, dict, set, deque, OrderedDict)
    named = getattr(method, "__name__", "") in (*MUTATORS, *_OPERATORS)
    return named and (of_container or (inspect.isfunction(method) and method in CHANGES))


def refuse_by_another_name(s: LoweringState, function: v.Static) -> NoReturn:
    """`push = xs.append; push(1)`: which variable holds the list is not known where it is called."""
    name = function.value.__name__
    s.refuse(
        f"{name}() of this list or dict is called by another name, which does not say what variable it changes",
        f"call it as a method: xs.{name}(...)",
    )


def _list(s: LoweringState, receiver: v.Abstract) -> v.Record | v.Listing:
    found = expand(s, receiver)
    if is_given(found):
        refuse_given(s, found, "only a list built in this function can be changed", "build a new one")
    if isinstance(found, v.Static) or not isinstance(found, v.Record | v.Listing):
        s.refuse("only a list built in this function can be changed", "build a new one")
    return found


def _made(items: Sequence[v.Abstract]) -> v.Record:
    return v.Record("list", tuple(range(len(items))), tuple(items))


def _append(s: LoweringState, receiver: v.Abstract, args: Arguments, named: Named) -> tuple[v.Abstract, v.Abstract]:
    return NONE, concatenate(s, _list(s, receiver), _made([stored(s, x) for x in args]))


def _extend(s: LoweringState, receiver: v.Abstract, args: Arguments, named: Named) -> tuple[v.Abstract, v.Abstract]:
    more = sequence(s, args[0])
    return NONE, concatenate(s, _list(s, receiver), replace(more, kind="list") if isinstance(more, v.Record) else more)


def _part(s: LoweringState, items: v.Abstract, start: v.Abstract, stop: v.Abstract) -> v.Abstract:
    return sliced(s, items, [start, stop, NONE])


def _insert(s: LoweringState, receiver: v.Abstract, args: Arguments, named: Named) -> tuple[v.Abstract, v.Abstract]:
    items, (position, new) = _list(s, receiver), args
    return NONE, concatenate(s, _part(s, items, NONE, position), _made([new]), _part(s, items, position, NONE))


def _pop(s: LoweringState, receiver: v.Abstract, args: Arguments, named: Named) -> tuple[v.Abstract, v.Abstract]:
    items, position = _list(s, receiver), args[0] if args else v.Static(-1)
    if s.frame.trying:  # a handler may look at what Python says
        count = length(s, items)
        s.check(operand_of(s, traced(s, operator.gt, count, v.Static(0))), "IndexError", "pop from empty list")
        if args:
            s.check(operand_of(s, traced(s, is_inside, position, count)), "IndexError", "pop index out of range")
    result = item(s, items, position)
    take_out(s, result, receiver, items)
    if position == v.Static(-1):
        return result, s.context.rules.materialise(s, _part(s, items, NONE, position))
    first = in_range(s, position, length(s, items))
    behind = _part(s, items, arithmetic(s, operator.add, first, v.Static(1)), NONE)
    return result, concatenate(s, _part(s, items, NONE, first), behind)


def _remove(s: LoweringState, receiver: v.Abstract, args: Arguments, named: Named) -> tuple[v.Abstract, v.Abstract]:
    items = _list(s, receiver)
    _, new = _pop(s, items, [place_to_remove(s, items, args[0])], named)
    return NONE, new


def _sort(s: LoweringState, receiver: v.Abstract, args: Arguments, named: Named) -> tuple[v.Abstract, v.Abstract]:
    return NONE, s.context.rules.materialise(s, ordered(s, _list(s, receiver), named))


def _clear(s: LoweringState, receiver: v.Abstract, args: Arguments, named: Named) -> tuple[v.Abstract, v.Abstract]:
    return NONE, _made([])


def _reverse(s: LoweringState, receiver: v.Abstract, args: Arguments, named: Named) -> tuple[v.Abstract, v.Abstract]:
    found = reverse(s, _list(s, receiver))
    return NONE, replace(found, kind="list") if isinstance(found, v.Record) else s.context.rules.materialise(s, found)


def _static_keys(s: LoweringState, receiver: v.Abstract, *keys: v.Abstract) -> bool:
    """Is it a dict of constant keys, and are these such?"""
    found = expand(s, receiver)
    return not tables.is_table(found) and all(isinstance(k, v.Static) for k in keys)


def _any_table(s: LoweringState, receiver: v.Abstract) -> v.Record:
    found = expand(s, receiver)
    if not isinstance(found, v.Record) or found.kind not in ("dict", "table"):
        s.refuse("only a dict built in this function can be changed", "build a new one")
    return found


def _table(s: LoweringState, receiver: v.Abstract) -> dict[Any, v.Abstract]:
    found = expand(s, receiver)
    if not isinstance(found, v.Record):
        s.refuse("only a dict built in this function can be changed", "build a new one")
    return dict(zip(found.keys, found.items, strict=True))


def _dict(table: dict[Any, v.Abstract]) -> v.Record:
    return v.Record("dict", tuple(table), tuple(table.values()))


def _update(s: LoweringState, receiver: v.Abstract, args: Arguments, named: Named) -> tuple[v.Abstract, v.Abstract]:
    found = _any_table(s, receiver)
    for more in (*args, _dict(named)):
        found = tables.updated(s, found, more)
    return NONE, found


def _set_default(
    s: LoweringState, receiver: v.Abstract, args: Arguments, named: Named
) -> tuple[v.Abstract, v.Abstract]:
    key, default = constant(args[0]), args[1] if len(args) > 1 else NONE
    if not _static_keys(s, receiver, key):
        found = as_table(_any_table(s, receiver))
        value = tables.get(s, found, key, default)
        return value, tables.store(s, found, key, value)
    assert isinstance(key, v.Static)
    table = _table(s, receiver)
    return table.setdefault(key.value, default), _dict(table)


def _pop_key(s: LoweringState, receiver: v.Abstract, args: Arguments, named: Named) -> tuple[v.Abstract, v.Abstract]:
    asked = constant(args[0])
    if not _static_keys(s, receiver, asked):
        return tables.popped(s, as_table(_any_table(s, receiver)), asked, args[1] if len(args) > 1 else None)
    assert isinstance(asked, v.Static)
    table, key = _table(s, receiver), asked.value
    if key not in table and len(args) < 2:
        s.check(s.scalar(False), "KeyError", repr(key).replace("{", "{{").replace("}", "}}"))
        s.dead = True
        return NONE, receiver
    value = table.pop(key) if key in table else args[1]
    return value, _dict(table)


def _pop_item(s: LoweringState, receiver: v.Abstract, args: Arguments, named: Named) -> tuple[v.Abstract, v.Abstract]:
    table = as_table(_any_table(s, receiver))
    words = "'dictionary is empty'" if table.cls is OrderedDict else "'popitem(): dictionary is empty'"
    return tables.item_popped(s, table, args[0] if args else named.get("last", v.Static(True)), words)


def _move_to_end(
    s: LoweringState, receiver: v.Abstract, args: Arguments, named: Named
) -> tuple[v.Abstract, v.Abstract]:
    key, last = (args[0] if args else named["key"]), (args[1] if len(args) > 1 else named.get("last", v.Static(True)))
    return NONE, s.call(v.Static(_moved), [as_table(_any_table(s, receiver)), key, last])


def _moved(table: Any, key: Any, last: Any) -> Any:
    """A dict with a key moved to its end or to its front: lowered like a function of the user."""
    value = table[key]
    made = OrderedDict[Any, Any]()
    if not last:
        made[key] = value
    for other, x in table.items():
        if other != key:
            made[other] = x
    if last:
        made[key] = value
    return made


def _clear_table(
    s: LoweringState, receiver: v.Abstract, args: Arguments, named: Named
) -> tuple[v.Abstract, v.Abstract]:
    if not tables.is_table(receiver):
        return NONE, _dict({})
    table = as_table(receiver)
    return NONE, v.Record("table", table.keys, (EMPTY, EMPTY, *table.items[2:]), table.cls)


_WITH_NAMES = (list.sort, dict.update, OrderedDict.popitem, OrderedDict.move_to_end)
"""Those that may be given arguments by name."""
CHANGES: dict[Any, Change] = {
    list.append: _append,
    list.extend: _extend,
    list.insert: _insert,
    list.pop: _pop,
    list.clear: _clear,
    list.remove: _remove,
    list.reverse: _reverse,
    list.sort: _sort,
    dict.update: _update,
    dict.setdefault: _set_default,
    dict.pop: _pop_key,
    dict.popitem: _pop_item,
    OrderedDict.popitem: _pop_item,
    OrderedDict.move_to_end: _move_to_end,
    dict.clear: _clear_table,
    **sets.CHANGES,
}
CHANGES |= tables.changes(CHANGES)
