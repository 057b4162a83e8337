"""Methods of lists and dicts that read them: one entry each. Those that change them are in `mutation.py`."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from typing import Any

from autobatch.frontend.library import sets, tables
from autobatch.frontend.library.builtin_functions import BUILTINS, PARTIAL
from autobatch.frontend.lowering import forms
from autobatch.frontend.lowering.attributes import fields_of, forms_of
from autobatch.frontend.lowering.branches import truth
from autobatch.frontend.lowering.comprehensions import collect
from autobatch.frontend.lowering.joins import conditional
from autobatch.frontend.lowering.numbers import integer, operand_of
from autobatch.frontend.lowering.operators import compare, equal, lookup
from autobatch.frontend.lowering.reductions import sum_of
from autobatch.frontend.lowering.sequences import sequence, zipped
from autobatch.frontend.lowering.state import LoweringState, expand
from autobatch.frontend.memory import dict_heap, list_heap
from autobatch.frontend.memory.heap import SETS
from autobatch.frontend.types import values as v
from autobatch.frontend.types.unify import constant
from autobatch.ir.core import Ref

Arguments = Sequence[v.Abstract]
Named = dict[str, v.Abstract]


def _record(args: Arguments) -> v.Record:
    return v.Record("tuple", tuple(range(len(args))), tuple(args))


def _call_partial(s: LoweringState, receiver: v.Abstract, args: Arguments, kwargs: Named) -> v.Abstract:
    assert isinstance(receiver, v.Record)
    function, first, named = receiver.items
    assert isinstance(first, v.Record) and isinstance(named, v.Record)
    return s.call(function, [*first.items, *args], dict(zip(named.keys, named.items, strict=True)) | kwargs)


def _items(s: LoweringState, receiver: v.Abstract, args: Arguments, kwargs: Named) -> v.Abstract:
    if list_heap.is_dict_row(receiver):
        return list_heap.elements(s, list_heap.there(s, receiver))
    if isinstance(receiver, v.Record) and receiver.kind == "table":
        return zipped(s, receiver.items[:2], strict=False)
    if (found := _of_forms(s, receiver, "item")) is not None:
        return found
    table = _table(s, receiver)
    pairs = tuple(v.Record("tuple", (0, 1), (v.Static(k), x)) for k, x in zip(table.keys, table.items, strict=True))
    return _record(pairs)


def _keys(s: LoweringState, receiver: v.Abstract, args: Arguments, kwargs: Named) -> v.Abstract:
    if list_heap.is_dict_row(receiver):
        return list_heap.parts(s, list_heap.there(s, receiver), 0)
    if isinstance(receiver, v.Record) and receiver.kind == "table":
        return _column(s, tables.keys_of(receiver))
    return _of_forms(s, receiver, "key") or _record([v.Static(k) for k in _table(s, receiver).keys])


def _values(s: LoweringState, receiver: v.Abstract, args: Arguments, kwargs: Named) -> v.Abstract:
    if list_heap.is_dict_row(receiver):
        return list_heap.parts(s, list_heap.there(s, receiver), 1)
    if isinstance(receiver, v.Record) and receiver.kind == "table":
        return _column(s, tables.values_of(receiver))
    return _of_forms(s, receiver, "value") or _record(_table(s, receiver).items)


def _of_forms(s: LoweringState, receiver: v.Abstract, part: forms.Part) -> v.Abstract | None:
    """What a dict of the examples holds that may have other keys in each."""
    held = forms_of(s, receiver)
    return forms.elements(s, receiver, held, part=part) if held is not None and isinstance(receiver, v.Leaf) else None


def _column(s: LoweringState, column: v.Abstract) -> v.Abstract:
    """What a dict has in one of its columns, as a list of its own."""
    made = copy(column)
    if isinstance(made, v.Listing):
        s.context.identities.joined(made, column)
    return made


def _table(s: LoweringState, receiver: v.Abstract, ordered: bool = True) -> v.Record:
    table: v.Abstract | None = expand(s, receiver, ordered)
    if isinstance(receiver, v.Leaf) and isinstance(receiver.type, Ref):
        table = fields_of(s, receiver)  # DictsDiffer where they are of several forms
    if not isinstance(table, v.Record) or table.kind != "dict":
        s.refuse("a dict is needed here", "give a dict with constant keys")
    return table


def _get(s: LoweringState, receiver: v.Abstract, args: Arguments, kwargs: Named) -> v.Abstract:
    key, default = constant(args[0]), args[1] if len(args) > 1 else v.Static(None)
    receiver = list_heap.for_key(s, receiver, key)
    if list_heap.is_dict_row(receiver):
        return dict_heap.get(s, list_heap.there(s, receiver), key, default)
    if isinstance(receiver, v.Record) and receiver.kind == "table":
        return tables.get(s, receiver, key, default)
    if isinstance(key, v.Static) and isinstance(receiver, v.Leaf):
        held = forms_of(s, receiver)
        if held is not None:
            return forms.get(s, receiver, held, key.value, default)
    table = _table(s, receiver, ordered=False)
    if isinstance(key, v.Static):
        found = table.get(key.value)
        return default if found is None else found
    hit = truth(s, compare(s, ast.In(), key, _record([v.Static(k) for k in table.keys])))
    if isinstance(hit, bool):
        return lookup(s, table, key) if hit else default
    return conditional(s, hit, lambda t: lookup(t, table, key), lambda t: default)


def _copy(s: LoweringState, receiver: v.Abstract, args: Arguments, kwargs: Named) -> v.Abstract:
    found = expand(s, list_heap.copied(s, receiver))
    if isinstance(found, v.Static):
        return v.Static(found.value.copy())
    return tables.copied(found)


def _of_set(s: LoweringState, receiver: v.Abstract, args: Arguments, kwargs: Named, name: str) -> v.Abstract:
    if isinstance(receiver, v.Static) and all(isinstance(a, v.Static) for a in args):
        return v.Static(getattr(receiver.value, name)(*(a.value for a in args if isinstance(a, v.Static))))
    return sets.method(s, name, receiver, args)


def _count(s: LoweringState, receiver: v.Abstract, args: Arguments, kwargs: Named) -> v.Abstract:
    found = sequence(s, receiver)
    hits = collect(s, found, lambda t, x: (True, lambda u: _as_int(u, equal(u, x, args[0]))))
    return sum_of(s, hits, v.Static(0))


def _as_int(s: LoweringState, value: v.Abstract) -> v.Abstract:
    return v.Static(int(value.value)) if isinstance(value, v.Static) else v.Leaf(integer(s, operand_of(s, value)))


def _view(
    method: Callable[[LoweringState, v.Abstract, Arguments, Named], v.Abstract], of_set: bool = False
) -> Callable[..., v.Abstract]:
    """A method that shows what a dict holds; a later change of the dict would show in what it gives. `of_set`: it is
    compared, and taken together with others, as a set."""

    def found(s: LoweringState, receiver: v.Abstract, args: Arguments, kwargs: Named) -> v.Abstract:
        return s.context.identities.view(method(s, receiver, args, kwargs), receiver, of_set)

    return found


METHODS: dict[Any, Callable[[LoweringState, v.Abstract, Arguments, Named], v.Abstract]] = {
    dict.items: _view(_items, of_set=True),
    dict.keys: _view(_keys, of_set=True),
    dict.values: _view(_values),
    dict.get: _get,
    dict.copy: _copy,
    list.count: _count,
    list.copy: lambda s, receiver, args, kwargs: BUILTINS[list](s, [list_heap.copied(s, receiver), *args], kwargs),
    deque.count: _count,
    deque.copy: _copy,
    tuple.count: _count,
    Counter.most_common: sets.most_common,
    Counter.total: sets.total,
    **{getattr(cls, name): partial(_of_set, name=name) for cls in SETS for name in sets.NAMED},
    **{cls.copy: _copy for cls in (*SETS, Counter, defaultdict)},
    PARTIAL: _call_partial,
}
