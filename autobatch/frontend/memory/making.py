"""Where lists and dicts are made: as values, or in memory, where those that the expression makes have some."""

from __future__ import annotations

import ast
from collections import defaultdict

import numpy as np

from autobatch.frontend.library import tables
from autobatch.frontend.lowering.state import LoweringState
from autobatch.frontend.memory import array_stores, container_heap, list_heap
from autobatch.frontend.memory.heap import Heap
from autobatch.frontend.memory.identity import is_array, is_dict_value, is_given, is_list
from autobatch.frontend.syntax.sources import changed_parts, temporary_tuples
from autobatch.frontend.types import values as v
from autobatch.frontend.types.unify import as_table


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
