"""Methods that change a list or dict built in the function: the variables that hold it get the new container.

out = [a]; out.append(b)      ->      out is (a, b) from here on
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from autobatch.frontend import values as v
from autobatch.frontend.access import expand
from autobatch.frontend.operators import concatenate
from autobatch.frontend.sequences import sequence
from autobatch.frontend.sources import MUTATORS
from autobatch.frontend.state import Impure, State

Arguments = Sequence[v.Abstract]
Change = Callable[[State, v.Abstract, Arguments], tuple[v.Abstract, v.Abstract]]
NONE = v.Static(None)


def call_method(
    s: State, node: ast.Call, function: v.Abstract, args: Arguments, kwargs: dict[str, v.Abstract]
) -> v.Abstract | None:
    """The result of a call that changes a container, None when the call is no such method."""
    if not isinstance(function, v.Method) or not isinstance(function.function, v.Static):
        return None
    method = function.function.value
    if getattr(method, "__objclass__", None) not in (list, dict) or method.__name__ not in MUTATORS:
        return None
    name, change = method.__name__, CHANGES.get(method)
    holder = node.func.value if isinstance(node.func, ast.Attribute) else node.func
    if change is None or kwargs or not isinstance(holder, ast.Name):
        message = f"{name}() on this list or dict cannot be compiled"
        refuse_change(s, holder, message, "build a new one: [*old, x], {**old, key: x}")
    result, new = change(s, function.receiver, args)
    rebind(s, holder.id, new)
    return result


def refuse_change(s: State, changed: ast.expr, message: str, cure: str) -> NoReturn:
    """Refuse to change what an expression stands for. Of what was made outside the function, a trace may not either."""
    root = changed
    while isinstance(root, ast.Attribute | ast.Subscript):
        root = root.value
    bound = s.env.get(root.id) if isinstance(root, ast.Name) and root.id not in s.frame.enclosing else None
    if bound is not None and not any(_holds(x, bound.value) for x in s.frame.borrowed):
        s.refuse(message, cure)
    raise Impure(message, s.span, cure)


def rebind(s: State, name: str, new: v.Abstract) -> None:
    """Let every variable that holds a container hold the changed one; refuse where another object holds it too."""
    bound = s.env.get(name)
    old = bound.value if bound is not None else None
    if old is None or name in s.frame.enclosing or any(_holds(x, old) for x in s.frame.borrowed):
        raise Impure(
            f"{name} is changed, but was made outside this function",
            s.span,
            "lists, dicts and objects of arguments and of enclosing functions are not changed: return a new one",
        )
    others = [n for n, b in s.env.items() if b.value is old]
    if any(_holds(b.value, old) for n, b in s.env.items() if n not in others):
        s.refuse(f"{name} is changed while another container holds it", "build the outer container afterwards")
    for other in others:
        s.bind(other, new)


def _holds(outer: v.Abstract, inner: v.Abstract) -> bool:
    if outer is inner:
        return True
    return isinstance(outer, v.Record) and any(_holds(x, inner) for x in outer.items)


def _list(s: State, receiver: v.Abstract) -> v.Record | v.Listing:
    found = expand(s, receiver)
    if isinstance(found, v.Static) or not isinstance(found, v.Record | v.Listing):
        s.refuse("only a list built in this function can be changed", "build a new one")
    return found


def _made(items: Sequence[v.Abstract]) -> v.Record:
    return v.Record("list", tuple(range(len(items))), tuple(items))


def _items(s: State, receiver: v.Abstract) -> list[v.Abstract]:
    found = _list(s, receiver)
    if not isinstance(found, v.Record):
        s.refuse("this list has a length known only when the program runs", "use a comprehension, or `+`")
    return list(found.items)


def _append(s: State, receiver: v.Abstract, args: Arguments) -> tuple[v.Abstract, v.Abstract]:
    return NONE, concatenate(s, _list(s, receiver), _made(args))


def _extend(s: State, receiver: v.Abstract, args: Arguments) -> tuple[v.Abstract, v.Abstract]:
    more = sequence(s, args[0])
    return NONE, concatenate(s, _list(s, receiver), replace(more, kind="list") if isinstance(more, v.Record) else more)


def _position(s: State, args: Arguments, default: int) -> int:
    index = args[0] if args else v.Static(default)
    if not isinstance(index, v.Static):
        s.refuse("the position must be a constant", "build a new list with slices")
    return int(index.value)


def _insert(s: State, receiver: v.Abstract, args: Arguments) -> tuple[v.Abstract, v.Abstract]:
    items = _items(s, receiver)
    items.insert(_position(s, args, 0), args[1])
    return NONE, _made(items)


def _pop(s: State, receiver: v.Abstract, args: Arguments) -> tuple[v.Abstract, v.Abstract]:
    items, position = _items(s, receiver), _position(s, args, -1)
    if not -len(items) <= position < len(items):
        s.check(s.scalar(False), "IndexError", "pop from an empty list")
        s.dead = True
        return NONE, receiver
    result = items.pop(position)
    return result, _made(items)


def _clear(s: State, receiver: v.Abstract, args: Arguments) -> tuple[v.Abstract, v.Abstract]:
    return NONE, _made([])


def _reverse(s: State, receiver: v.Abstract, args: Arguments) -> tuple[v.Abstract, v.Abstract]:
    return NONE, _made(_items(s, receiver)[::-1])


def _table(s: State, receiver: v.Abstract) -> dict[Any, v.Abstract]:
    found = expand(s, receiver)
    if not isinstance(found, v.Record):
        s.refuse("only a dict built in this function can be changed", "build a new one")
    return dict(zip(found.keys, found.items, strict=True))


def _dict(table: dict[Any, v.Abstract]) -> v.Record:
    return v.Record("dict", tuple(table), tuple(table.values()))


def _update(s: State, receiver: v.Abstract, args: Arguments) -> tuple[v.Abstract, v.Abstract]:
    return NONE, _dict(_table(s, receiver) | _table(s, args[0]))


def _key(s: State, key: v.Abstract) -> Any:
    if not isinstance(key, v.Static):
        s.refuse("the keys of a dict must be constants", "use a list")
    return key.value


def _set_default(s: State, receiver: v.Abstract, args: Arguments) -> tuple[v.Abstract, v.Abstract]:
    table = _table(s, receiver)
    value = table.setdefault(_key(s, args[0]), args[1] if len(args) > 1 else NONE)
    return value, _dict(table)


def _pop_key(s: State, receiver: v.Abstract, args: Arguments) -> tuple[v.Abstract, v.Abstract]:
    table = _table(s, receiver)
    key = _key(s, args[0])
    if key not in table and len(args) < 2:
        s.check(s.scalar(False), "KeyError", repr(key).replace("{", "{{").replace("}", "}}"))
        s.dead = True
        return NONE, receiver
    value = table.pop(key) if key in table else args[1]
    return value, _dict(table)


CHANGES: dict[Any, Change] = {
    list.append: _append,
    list.extend: _extend,
    list.insert: _insert,
    list.pop: _pop,
    list.clear: _clear,
    list.reverse: _reverse,
    dict.update: _update,
    dict.setdefault: _set_default,
    dict.pop: _pop_key,
}
