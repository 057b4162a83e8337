"""A container that a function built is changed: every variable that holds it holds the changed one from here on."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Hashable, Sequence
from itertools import chain
from typing import NoReturn

from autobatch.data.columns import Schema
from autobatch.errors import UnsupportedError
from autobatch.frontend.lowering.state import (
    RESULT,
    RETURNED,
    ChangesGiven,
    ChangesObjects,
    Impure,
    LoweringState,
    MemoryChanged,
)
from autobatch.frontend.memory.heap import NeedsMemory, is_dict_value, is_list, refused_without_memory
from autobatch.frontend.syntax.scopes import shown
from autobatch.frontend.types import values as v
from autobatch.ir.core import List, Ref


def keys_of(schema: Schema, type: Ref, position: int) -> tuple[str, ...]:
    """The keys of a class of dicts of the examples, in their order where all agree on it."""
    store = schema.store(type.store)
    return store.classes[position].keys or tuple(f.name for f in store.fields if position in f.classes)


def kinds_in(schema: Schema, type: Ref) -> list[Hashable]:
    """What kinds of objects and dicts lie in a store (`ChangesObjects`); nothing where others do too."""
    classes = schema.store(type.store).classes
    if not all(c.kind in ("object", "dict", "table") for c in classes):
        return []
    return [tuple(sorted(keys_of(schema, type, k))) if c.kind == "dict" else c.cls for k, c in enumerate(classes)]


def list_of_examples(s: LoweringState, value: v.Abstract | None) -> str | None:
    """Where a list of the examples lies that a value is; None where it is none."""
    match value:
        case v.Leaf(type=List(store=str(name))):
            return name
        case v.Record(kind="list", items=()):
            return next((x[1] for x in s.context.sites.makers(value) if isinstance(x, tuple) and x[0] == "given"), None)
        case _:
            return None


def given_change(s: LoweringState, value: v.Abstract | None, error: UnsupportedError) -> UnsupportedError | None:
    """What to raise where a value is changed that is of the examples: an object or dict, a list that such hold. None
    where it is not, or cannot be changed."""
    schema, stores = s.context.schema, list[Ref]()
    match value.value if isinstance(value, v.Optional) else value:
        case v.Leaf(type=Ref() as type):
            stores = [type]
        case _ as held if (name := list_of_examples(s, held)) is not None:
            return list_change(s, name, error)
        case v.Record(kind="table", cls=cls):
            stores = [Ref(x.name) for x in schema.stores if any(c.cls is (cls or dict) for c in x.classes)]
    return _objects_change(s, stores, error)


def _objects_change(s: LoweringState, stores: Sequence[Ref], error: UnsupportedError) -> ChangesObjects | None:
    kinds = [kinds_in(s.context.schema, x) for x in stores]
    return ChangesObjects(chain.from_iterable(kinds), error) if kinds and all(kinds) else None


def list_change(s: LoweringState, name: str, error: UnsupportedError) -> UnsupportedError | None:
    """The same of a list of the examples, by where it lies: the objects that hold such lists have memory first, and
    then they hold lists that have."""
    schema = s.context.schema
    type = List(schema.list(name).elem, name)
    stores = [Ref(x.name) for x in schema.stores if any(f.type == type for f in x.fields)]
    if not all(("given", x.store) in s.context.memory.heaps for x in stores):
        return _objects_change(s, stores, error)
    known = ("given", name) in s.context.memory.sites or any(x.elem == type for x in schema.lists)
    return None if known or not stores else NeedsMemory((), error, {("given", name): list})


def refuse_given(s: LoweringState, value: v.Abstract, message: str, cure: str) -> NoReturn:
    """Refuse to change a list of the examples, as it is."""
    error = UnsupportedError(message, s.span, cure)
    found = given_change(s, value, error)
    if found is None and isinstance(value, v.Leaf) and isinstance(value.type, List):
        held = value.type.elem  # its objects are to be the caller's
        if isinstance(held, Ref) and ("given", held.store) not in s.context.memory.heaps:
            found = _objects_change(s, [held], error)
    raise found or ChangesGiven(message, s.span, cure)


def refuse_change(
    s: LoweringState, changed: ast.expr, message: str, cure: str, held: v.Abstract | None = None
) -> NoReturn:
    """Refuse to change what an expression stands for. Of what was made outside the function, a trace may not either.
    `held`: what the expression is, where that is known."""
    root = changed
    while isinstance(root, ast.Attribute | ast.Subscript):
        root = root.value
    bound = s.env.get(root.id) if isinstance(root, ast.Name) and root.id not in s.frame.enclosing else None
    if held is not None:
        _note_deque(s, held)
    known, dicts = s.context.memory.sites, held is not None and is_dict_value(held)
    if s.context.sites.needed(known, dicts=dicts):
        raise s.context.sites.refused(known, UnsupportedError(message, s.span, cure), dicts=dicts)
    if (error := given_change(s, held, UnsupportedError(message, s.span, cure))) is not None:
        raise error
    if bound is not None and not any(_holds(x, bound.value) for x in s.frame.borrowed):
        s.refuse(message, cure)
    raise Impure(message, s.span, cure)


def without_memory(s: LoweringState, values: Sequence[v.Abstract], words: str, cure: str) -> UnsupportedError:
    """What to raise where something would do if the objects, lists, dicts and tuples that values are had memory."""
    records = [x for x in values if isinstance(x, v.Record) and x.kind == "object" and x.cls in s.context.built]
    known = s.context.memory.sites
    sites = s.context.sites.of(values, known, dicts=True)
    if not records and not sites:  # they are arguments of a function
        sites = s.context.sites.needed(known, lent=True, dicts=True)
    error = UnsupportedError(words, s.span, cure)
    return NeedsMemory([x.cls for x in records if x.cls is not None], error, sites) if records or sites else error


def rebind(s: LoweringState, name: str, new: v.Abstract) -> None:
    """Let every variable that holds a container hold the changed one; refuse where another object holds it too."""
    bound = s.env.get(name)
    old = bound.value if bound is not None else None
    if old is None or name in s.frame.enclosing or any(_holds(x, old) for x in s.frame.borrowed):
        cure = "lists, dicts and objects of arguments and of enclosing functions are not changed: return a new one"
        words = f"{shown(name)} is changed, but was made outside this function"
        error = _refusal(s, old, words, cure, Impure)
        raise error if isinstance(error, NeedsMemory) else given_change(s, old, error) or error
    others = [n for n, b in s.env.items() if b.value is old]
    rest = [b.value for n, b in s.env.items() if n not in others and not (n == RESULT and _goes_on(s))]
    if any(_holds(x, old) for x in rest):
        words = f"{shown(name)} is changed while another container holds it"
        raise _refusal(s, old, words, "build the outer container afterwards")
    if isinstance(new, v.Record) and any(_holds(x, old) for x in new.items):
        words = f"{shown(name)} is put into itself"
        raise _refusal(s, old, words, "put a copy of it there: list(x), dict(x)")
    identities, caches = s.context.identities, s.context.memory.caches
    if identities.is_stored(old) and caches.run_with_effect(list(caches.known)):
        raise MemoryChanged  # what a function under `functools.cache` has returned is changed
    if identities.may_be_held(old, [*rest, *s.frame.enclosing.values(), *s.frame.borrowed]):
        words = f"{shown(name)} is changed, but another variable or list may hold the same object"
        cure = "change a copy: list(x), dict(x), dataclasses.replace(x); or build a new list of changed elements"
        error = _refusal(s, old, words, cure)
        raise error if isinstance(error, NeedsMemory) else given_change(s, old, error) or error
    if any(identities.is_view(x, old) for x in rest):
        s.refuse(
            f"{shown(name)} is changed, and another variable holds a view of it: keys(), values() or items()",
            "ask for the view again behind the change, or keep a list: list(d.values())",
        )
    identities.successor(new, old)
    for other in others:
        s.bind(other, new)


def _goes_on(s: LoweringState) -> bool:
    """Has the function not returned here, so that what other paths return is nothing of this one?"""
    flag = s.flag(RETURNED)
    return flag == v.Static(False) or (isinstance(flag, v.Leaf) and s.block.truth(flag.operand) is False)


def take_out(s: LoweringState, value: v.Abstract, *lists: v.Abstract) -> None:
    """Note that an item has been taken out of a list, which is all of these."""
    others = [b.value for b in s.env.values()]
    s.context.identities.taken_out(value, lists, [*others, *s.frame.enclosing.values(), *s.frame.borrowed])


def _refusal(
    s: LoweringState, value: v.Abstract | None, message: str, cure: str, kind: type[UnsupportedError] = UnsupportedError
) -> UnsupportedError:
    """An object of a class that this lowering makes may be changed where it has memory."""
    if value is not None:
        _note_deque(s, value)
    if isinstance(value, v.Record) and value.kind == "object" and value.cls in s.context.built:
        return refused_without_memory([value.cls], message, s.span, cure)
    error = kind(message, s.span, cure)
    if value is None or not (is_list(value) or is_dict_value(value)):
        return error
    found = s.context.sites.refused(s.context.memory.sites, error, kind is Impure, is_dict_value(value))
    return found if isinstance(found, NeedsMemory) or kind is Impure else without_memory(s, [value], message, cure)


def _note_deque(s: LoweringState, value: v.Abstract) -> None:
    """A deque that cannot be changed as a value has memory."""
    if isinstance(value, v.Record) and value.cls is deque:
        s.context.memory.let_deques_be_objects()


def is_own(s: LoweringState, value: v.Abstract) -> bool:
    """Was a container built in this function?"""
    return not any(_holds(x, value) for x in (*s.frame.borrowed, *s.frame.enclosing.values()))


def _holds(outer: v.Abstract, inner: v.Abstract) -> bool:
    if outer is inner:
        return True
    return isinstance(outer, v.Record) and any(_holds(x, inner) for x in outer.items)
