"""Variables that an inner function changes (`scopes.py`): calls pass them on, and give them back changed.

    add(y)        %n2 = call @add(%y, %n)

A function is given the cells that it reads or changes, and those of the functions that it calls; it returns those that
are changed. Which these are the text says of the function itself; of what it calls it shows when it is lowered, and
then all is lowered again. A loop carries what the calls in its turns change (`heaps.py` does the same with memory).
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import lru_cache
from typing import NoReturn

from autobatch.frontend.lowering.state import LoweringState, MemoryChanged
from autobatch.frontend.memory.heap import containers
from autobatch.frontend.memory.rebinding import rebind, without_memory
from autobatch.frontend.syntax.iterator_variables import contains, place_of
from autobatch.frontend.syntax.scopes import is_cell, owner_of, shown
from autobatch.frontend.syntax.sources import FunctionSource
from autobatch.frontend.types import values as v
from autobatch.frontend.types.values import static_type
from autobatch.ir.core import Array


def note(s: LoweringState, source: FunctionSource) -> None:
    """Note what a function does with cells of functions around it."""
    memory = s.context.memory
    memory.read.update((source.node, n) for n in source.cells_read)
    memory.written.update((source.node, n) for n in source.cells_changed)
    declared = (n.names for n in ast.walk(source.node) if isinstance(n, ast.Nonlocal))
    memory.assigned.update(name for names in declared for name in names)


def begin(s: LoweringState, owner: ast.AST | None) -> None:
    """Begin with dicts of no results (`functions.py`), those that are variables of a function, or of the example."""
    caches = s.context.memory.caches
    names = sorted(name for node, name in caches.owners if node is owner)
    s.context.rules.execute(s, [caches.beginnings[name] for name in names])


def given(s: LoweringState, source: FunctionSource, arguments: Iterable[v.Abstract]) -> dict[str, v.Abstract]:
    """The cells that a function is handed."""
    memory = s.context.memory
    names = sorted(n for node, n in memory.read if node is source.node and is_cell(n))
    if names and memory.caches.run_with_effect([source.node]):
        raise MemoryChanged
    found: dict[str, v.Abstract] = {}
    for name in names:
        changed = (source.node, name) in memory.written
        pass_through(s, source, name, changed)
        bound = s.env.get(name)
        value = bound.value if bound is not None else v.Unset(shown(name))
        if changed:
            _refuse_shared(s, name, value, arguments)
        found[name] = _as_number(s, value) if changed else value
    return found


def pass_through(s: LoweringState, function: FunctionSource, name: str, changed: bool) -> None:
    """Note that every function on the way to the owner of a cell, which a function names, passes it on."""
    memory = s.context.memory
    on_the_way = []
    for source, _ in reversed(s.context.active):
        if (source.node, name) in memory.caches.owners:
            break
        if name in source.locals:
            if _is_recursive(s, source) and _is_passed(function, source):
                outlive(s, function, *_beside(function, name))  # it may be that of a call around this one
            break
        on_the_way.append(source.node)
    else:
        if (None, name) not in memory.caches.owners:
            outlive(s, function, *_beside(function, name))
    if memory.caches.run_with_effect(on_the_way):
        raise MemoryChanged
    for noted in (memory.read, memory.written) if changed else (memory.read,):
        unknown = {(node, name) for node in on_the_way} - noted
        if unknown:
            noted |= unknown
            raise MemoryChanged


def _beside(function: FunctionSource, name: str) -> list[str]:
    """A variable, and the others of the same function that an inner one changes."""
    return [name, *sorted(n for n in function.cells_changed if n != name and owner_of(n) == owner_of(name))]


def _is_passed(function: FunctionSource, owner: FunctionSource) -> bool:
    """Is an inner function named in the function that it belongs to, but to call it?"""
    if not isinstance(function.node, ast.FunctionDef):
        return True
    called = {n.func for n in ast.walk(owner.node) if isinstance(n, ast.Call)}
    named = (n for n in ast.walk(owner.node) if isinstance(n, ast.Name) and n.id == function.node.name)
    return any(n not in called for n in named)


def _is_recursive(s: LoweringState, function: FunctionSource) -> bool:
    """Does a function call itself, as far as is known?"""
    by_name = isinstance(function.node, ast.FunctionDef) and function.node.name in function.loads
    return by_name or sum(x is function for x, _ in s.context.active) > 1


def outlive(s: LoweringState, function: FunctionSource, *names: str) -> NoReturn:
    """Let variables, which an inner function names, outlive the function that they belong to (`scopes.py`), from the
    next round on."""
    memory = s.context.memory
    places = {(function.file, function.node.lineno, shown(name)) for name in names}
    if places <= memory.outliving:
        name = shown(names[0])
        s.refuse(
            f"{name} is a variable of a function around this one, which this one outlives, and is changed",
            "make an object of a class that holds it, with a method that changes it; or give a lambda a default: "
            f"lambda x, {name}={name}: ...",
        )
    memory.outliving |= places
    around = [x for x in memory.sources.values() if x.file == function.file and contains(x.node, function.node)]
    stale = {n for x in around for n in ast.walk(x.node)}
    memory.sources = {key: x for key, x in memory.sources.items() if x.node not in stale}
    memory.forget_results()
    for heap in memory.heaps.values():
        heap.forget_functions(stale)
    raise MemoryChanged


def check_as_captured(s: LoweringState, function: v.LocalFunction) -> None:
    """A variable that a function has captured, and that the function at hand has assigned since, outlives this one."""
    for name, held in function.captured or ():
        bound = s.env.get(name)
        if bound is not None and bound.value is not held and name in _assigned_later(s.frame.source, function.source):
            outlive(s, function.source, name)


def check_kept(s: LoweringState, function: v.LocalFunction) -> None:
    """Memory holds a function: the variables that it has captured, and that are assigned later, outlive theirs."""
    captured = dict(function.captured or ())
    for source, _ in s.context.active:
        if names := sorted(_assigned_later(source, function.source).intersection(captured)):
            outlive(s, function.source, *names)


@lru_cache(maxsize=1024)
def _assigned_later(owner: FunctionSource, inner: FunctionSource) -> frozenset[str]:
    """The variables that a function may assign after it has made an inner one."""
    if owner.file != inner.file or not contains(owner.node, inner.node):
        return frozenset()
    loops = (n for n in ast.walk(owner.node) if isinstance(n, ast.For | ast.While))
    around = [n for n in loops if any(contains(part, inner.node) for part in n.body)]
    place, own = place_of(inner.node), set(ast.walk(inner.node))
    names = [n for n in ast.walk(owner.node) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load)]
    again = {n for loop in around for n in ast.walk(loop)}
    return frozenset(n.id for n in names if n not in own and (place_of(n) > place or n in again)) & owner.locals


def _as_number(s: LoweringState, value: v.Abstract) -> v.Abstract:
    """A constant that a call may change is a number of the program."""
    if isinstance(value, v.Static) and isinstance(static_type(value.value), Array):
        return v.Leaf(s.scalar(value.value))
    return value


def _refuse_shared(s: LoweringState, name: str, value: v.Abstract, arguments: Iterable[v.Abstract]) -> None:
    """Refuse a call that is given, as an argument, what it changes as a variable of the function around it."""
    identities = s.context.identities
    if shared := [x for x in containers(value) if identities.may_be_held(x, arguments)]:
        words = f"{shown(name)} is an argument of a function that changes it as a variable of the function around it"
        raise without_memory(s, shared, words, "let the function take it from one place")


def written(s: LoweringState, function: ast.AST) -> list[str]:
    """The cells that a function gives back."""
    return sorted(n for node, n in s.context.memory.written if node is function and is_cell(n))


def with_written(s: LoweringState, function: ast.AST, result: v.Abstract) -> v.Abstract:
    """What a function returns: its result, and behind it the cells that it changes."""
    names = written(s, function)
    items = (result, *(_current(s, n) for n in names))
    return v.Record("tuple", tuple(range(len(items))), items) if names else result


def _current(s: LoweringState, name: str) -> v.Abstract:
    bound = s.env.get(name)
    return v.Unset(shown(name)) if bound is None else _as_number(s, bound.value)


def take_written(s: LoweringState, source: FunctionSource, returned: v.Abstract) -> v.Abstract:
    """The result of a call, whose changes of cells hold from here on."""
    names = written(s, source.node)
    if not names:
        return returned
    assert isinstance(returned, v.Record)
    result, *changed = returned.items
    for name, value in zip(names, changed, strict=True):
        _take(s, source, name, value)
    return result


def _take(s: LoweringState, source: FunctionSource, name: str, value: v.Abstract) -> None:
    """A cell is what a call has made of it; so is every other variable that holds the same object."""
    bound = s.env.get(name)
    if bound is None or not any(True for _ in containers(bound.value)):
        s.bind(name, value)
        return
    old, identities = bound.value, s.context.identities
    others = [b.value for n, b in s.env.items() if n != name]
    identities.same(value, old)
    if not identities.may_be_held(old, others):
        s.bind(name, value)
    elif name in s.context.memory.assigned:
        s.refuse(
            f"{shown(name)} is assigned in {source.name}, and another variable or list may hold the same object",
            "change it in place, or give the other one a copy",
        )
    else:
        rebind(s, name, value)
