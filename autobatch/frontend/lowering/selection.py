"""One of several static alternatives, picked by an integer of the program: tables by tag, lists of parameters."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any

import jax.numpy as jnp
import numpy as np

from autobatch.errors import SourceError, TypeConflictError, UnsupportedError
from autobatch.frontend.library.numpy_arrays import kind_of
from autobatch.frontend.lowering.joins import conditional
from autobatch.frontend.lowering.numbers import coerce, operand_of, traced
from autobatch.frontend.lowering.state import ClassTest, Ended, LoweringState, expand
from autobatch.frontend.lowering.tracing import trace
from autobatch.frontend.types import values as v
from autobatch.frontend.types.unify import LayoutConflict, position_among, unify
from autobatch.frontend.types.values import ChoiceLayout, Layout, LeafLayout, NotStored, is_python, layout_of, type_name
from autobatch.ir import jax_compat
from autobatch.ir.core import STR, Array, List, Literal, Operand, Ref, Tag, Value


def select(s: LoweringState, index: Operand, alternatives: Sequence[v.Abstract]) -> v.Abstract:
    """`alternatives[index]`; the index is in range. Containers of one shape are picked part by part, so that their
    numbers are rows of columns; what differs in type stays a choice, whose parts and results are picked."""
    if len(alternatives) == 1 or all(a == alternatives[0] for a in alternatives):
        return alternatives[0]
    containers = [expand(s, a) for a in alternatives]
    first = containers[0]
    if isinstance(first, v.Record) and all(_is_like(first, c) for c in containers):
        parts = {k: [c.get(k) for c in containers if isinstance(c, v.Record)] for k in first.keys}
        items = tuple(select(s, index, [x for x in xs if x is not None]) for xs in parts.values())
        made = v.Record(first.kind, first.keys, items, first.cls, first.treedef)
        s.context.identities.same(made, *containers)
        return made
    try:
        layout = layout_of(alternatives[0])
        for other in alternatives[1:]:
            layout = unify(layout, layout_of(other))
    except (LayoutConflict, NotStored):
        return v.Choice(index, tuple(alternatives))
    if isinstance(layout, LeafLayout) and isinstance(layout.type, Array) and not layout.type.dtype.startswith("key"):
        row = gather(s, index, alternatives, layout.type)
        s.context.identities.same(row, *alternatives)
        return row
    return chain(s, index, alternatives)


def _is_like(record: v.Record, other: v.Abstract) -> bool:
    """Is it a container of the same kind with the same parts?"""
    return (
        isinstance(other, v.Record)
        and (record.kind, record.cls, record.treedef) == (other.kind, other.cls, other.treedef)
        and set(record.keys) == set(other.keys)
    )


def gather(s: LoweringState, index: Operand, alternatives: Sequence[v.Abstract], type: Array) -> v.Abstract:
    """Numbers and arrays of one type: a row of the stacked alternatives."""
    rows = tuple(v.Leaf(coerce(s, operand_of(s, a), type)) for a in alternatives)
    picked = trace(s, _pick, [v.Leaf(index), *rows], {})
    assert isinstance(picked, v.Leaf)
    return v.Leaf(coerce(s, picked.operand, type), numpy=kind_of(alternatives) if type.shape else None)


def _pick(index: Any, *rows: Any) -> Any:
    return jnp.stack([jnp.asarray(r) for r in rows])[index]


def chain(s: LoweringState, index: Operand, alternatives: Sequence[v.Abstract]) -> v.Abstract:
    """Anything else: a chain of branches."""

    def at(t: LoweringState, position: int) -> v.Abstract:
        if position == len(alternatives) - 1:
            return alternatives[position]
        hit = traced(t, operator.eq, v.Leaf(index), v.Static(position)).operand
        return conditional(t, hit, lambda _: alternatives[position], lambda u: at(u, position + 1))

    return at(s, 0)


def of_each(
    s: LoweringState, values: Sequence[v.Abstract], use: Any, python: Callable[..., Any] | None = None
) -> v.Abstract | None:
    """`use(state, *values)` of each alternative, where one of the values is a choice between classes, or values that
    are no functions (those are passed on as they are); None where none is. `python`: what Python does with the
    values."""
    k = next((k for k, x in enumerate(values) if isinstance(x, v.Choice) and not _of_functions(x)), None)
    if k is None:
        return None
    choice, before, after = values[k], values[:k], values[k + 1 :]
    assert isinstance(choice, v.Choice)
    failure = None if python is None else lambda x: _failure(s, python, [*before, x, *after])
    return apply_choice(s, choice, lambda t, x: use(t, *before, x, *after), failure)


def _of_functions(choice: v.Choice) -> bool:
    return all(map(is_function, choice.alternatives))


def is_function(value: v.Abstract) -> bool:
    """Is it a function, or a method of an object, or one of several?"""
    if isinstance(value, v.Choice):
        return _of_functions(value)
    if isinstance(value, v.Static):
        return callable(value.value) and not isinstance(value.value, type)
    return isinstance(value, v.LocalFunction | v.Method)


def apply_choice(s: LoweringState, choice: v.Choice, use: Any, failure: Failure | None = None) -> v.Abstract:
    """The result of `use` on the alternative picked at run time. `failure`: what Python raises for an alternative
    that has no such operation; the example fails with that."""

    def at(t: LoweringState, fit: Sequence[int]) -> v.Abstract:
        if len(fit) == 1:
            result: v.Abstract = use(t, choice.alternatives[fit[0]])
            return result
        hit = is_one_of(t, choice, frozenset(fit[:1]))
        return conditional(t, hit, lambda u: use(u, choice.alternatives[fit[0]]), lambda u: at(u, fit[1:]))

    fit: Sequence[int] = sorted(possible(s, choice))
    if failure is not None:
        fit = _with_meaning(s, choice, fit, use, failure)
    if not fit:
        s.dead = True
        return v.Static(None)
    return at(s, fit)


Failure = Callable[[v.Abstract], type[Exception] | None]


def failure_of(s: LoweringState, python: Callable[..., Any]) -> Failure:
    """What a function of Python of one value raises for some alternatives."""
    return lambda x: _failure(s, python, [x])


def _with_meaning(s: LoweringState, choice: v.Choice, fit: Sequence[int], use: Any, failure: Failure) -> Sequence[int]:
    """Those of some alternatives for which `use` has a meaning, as Python has it."""
    refused = {k: error for k in fit if (error := _refusal(s.fork(), use, choice.alternatives[k])) is not None}
    if not refused:
        return fit
    failures = {k: failure(choice.alternatives[k]) for k in refused}
    for k, kind in failures.items():
        if kind is None:
            raise refused[k]
        name = type_name(choice.alternatives[k])
        s.check(is_one_of(s, choice, frozenset([k]), negated=True), kind.__name__, f"a value of type {name} here")
    return [k for k in fit if k not in refused]


def _refusal(s: LoweringState, use: Any, value: v.Abstract) -> SourceError | None:
    try:
        use(s, value)
    except Ended:
        return None
    except (UnsupportedError, TypeConflictError) as error:
        return error
    return None


def _failure(s: LoweringState, python: Callable[..., Any], values: Sequence[v.Abstract]) -> type[Exception] | None:
    """What Python raises for values of these types, whatever they are: TypeError or AttributeError, or IndexError of a
    number of NumPy; None where it takes some, or where that is not known."""
    options = [x.alternatives if isinstance(x, v.Choice) else (x,) for x in values]
    found = {_failure_of_one(s, python, picked) for picked in product(*options)}
    return found.pop() if len(found) == 1 else None


def _failure_of_one(
    s: LoweringState, python: Callable[..., Any], values: Sequence[v.Abstract]
) -> type[Exception] | None:
    samples = [_sample(s, x) for x in values]
    if python in _OPERATORS or python in _OF_SEQUENCES:
        samples = [
            _stand_in(x, python) if found is _UNKNOWN else found for x, found in zip(values, samples, strict=True)
        ]
    if any(x is _UNKNOWN for x in samples):
        return None
    try:
        python(*samples)
    except TypeError:
        return TypeError
    except AttributeError:
        return AttributeError
    except IndexError:
        return IndexError if isinstance(samples[0], np.generic) else None
    except Exception:
        return None
    return None


_UNKNOWN = object()
_OF_NUMBERS = (operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod)
_OF_BITS = (operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift, operator.pow, operator.matmul)
_OPERATORS = frozenset[Any]([*_OF_NUMBERS, *_OF_BITS, operator.lt, operator.le, operator.gt, operator.ge])
_OF_SEQUENCES = frozenset[Any]([zip, enumerate, reversed, any, all, list, tuple, set, frozenset, len])


def _stand_in(value: v.Abstract, python: Callable[..., Any]) -> Any:
    """An object with the operators that the class of an object of the user has, all of which give None; for functions
    of sequences only where it is none."""
    cls = value.cls if isinstance(value, v.Record) and value.kind == "object" else None
    if isinstance(value, v.MemoryRow) and len(value.heap.members) == 1 and not value.heap.in_segments:
        cls = value.heap.members[0]
    is_sequence = cls is not None and any(hasattr(cls, n) for n in ("__iter__", "__getitem__", "__len__"))
    if cls is None or cls.__module__ == "builtins" or (is_sequence and python in _OF_SEQUENCES):
        return _UNKNOWN
    names = {f"__{before}{f.__name__.rstrip('_')}__" for f in _OPERATORS for before in ("", "r")}
    own = [n for n in names if hasattr(cls, n) and getattr(cls, n) is not getattr(object, n, None)]
    return type(cls.__name__, (), {n: lambda *operands: None for n in own})()


def _sample(s: LoweringState, value: v.Abstract) -> Any:
    """A value of the same type."""
    match value:
        case v.Static(value=None | bool() | int() | float() | complex() | str() as held):
            return held
        case v.Leaf(type=Array() as type) if is_python(type):
            return True if type.is_bool else 1 if type.is_integer else 1.0
        case v.Leaf(type=Array() as type) if type.is_scalar and not type.dtype.startswith("key"):
            return np.dtype(jax_compat.dtype_of(type.dtype)).type(1)
        case v.Leaf(type=Tag()) if value.type == STR:
            return "1"
        case v.Leaf(type=List()) | v.Listing(array=False, is_tuple=False) | v.Record(kind="list"):
            return [1]
        case v.Listing(array=False) | v.Record(kind="tuple"):
            return (1,)
        case v.Record(kind="dict"):
            return {1: 1}
        case v.MemoryRow(heap=heap) if heap.python_class in (list, tuple, dict):
            return heap.python_class([(1, 1)])
        case v.Leaf(type=Ref(store=store)):
            kinds = {c.kind for c in s.context.schema.store(store).classes}
            return (1,) if kinds == {"tuple"} else {1: 1} if kinds == {"dict"} else _UNKNOWN
        case _:
            return _UNKNOWN


def possible(s: LoweringState, choice: v.Choice) -> frozenset[int]:
    """The alternatives that may be picked here."""
    everything = frozenset(range(len(choice.alternatives)))
    if not isinstance(choice.index, Value):
        return everything
    known = s.block.fact(choice.index).classes
    match s.context.meanings.get(choice.index):
        case ("of_class", row, by_class, _):
            held = [by_class[k] for k in s.positions(row) if k in by_class]
            everything = everything if None in held or not held else frozenset().union(*held)
    return everything if known is None else everything & known


def telling(
    s: LoweringState,
    value: v.Abstract,
    row: v.MemoryRow | v.Leaf,
    by_class: Mapping[int, frozenset[Any] | None],
    name: str,
) -> v.Abstract:
    """A value, the field `name`, of which the class of an object says what it may be; behind a comparison that says of
    which it is."""
    if isinstance(value, v.Leaf) and isinstance(value.operand, Value):
        s.context.meanings[value.operand] = ("of_class", row, by_class, name)
    return value


def with_index(
    s: LoweringState,
    found: v.Abstract,
    row: v.MemoryRow | v.Leaf,
    layouts: Mapping[int, Layout | None],
    name: str,
) -> v.Abstract:
    """A field that holds values of several sorts, of which the class of the object says which it is."""
    if not isinstance(found, v.Choice) or not isinstance(found.index, Value):
        return found
    layout, by_class = layout_of(found), dict[int, frozenset[Any] | None]()
    assert isinstance(layout, ChoiceLayout)
    for k, held in layouts.items():
        parts = held.alternatives if isinstance(held, ChoiceLayout) else (held,)
        places = [position_among(layout.alternatives, x) if x is not None else None for x in parts]
        by_class[k] = None if None in places else frozenset(places)
    s.context.meanings[found.index] = ("of_class", row, by_class, name)
    return found


def is_one_of(s: LoweringState, choice: v.Choice, fit: frozenset[int], negated: bool = False) -> Operand:
    """Is it one of these alternatives that is picked? Static where it is known."""
    may_be = possible(s, choice)
    fit = may_be - fit if negated else fit
    if not may_be & fit or may_be <= fit:
        return s.scalar(bool(may_be & fit))
    key = ("is_class", choice.index, fit)
    known = s.block.recall(key)
    if isinstance(known, v.Leaf):
        return known.operand
    result = traced(s, _is_in, v.Leaf(choice.index), v.Static(tuple(sorted(fit & may_be)))).operand
    if isinstance(result, Value):
        s.context.meanings[result] = ("is_class", ClassTest(choice.index, fit, may_be - fit))
        s.block.memo[key] = v.Leaf(result)
    return result


def picked(s: LoweringState, choice: v.Choice, fit: frozenset[int]) -> v.Abstract:
    """The same as a value."""
    found = is_one_of(s, choice, fit)
    known = found.value if isinstance(found, Literal) else s.block.truth(found)
    return v.Leaf(found) if known is None else v.Static(known)


def tested(s: LoweringState, choice: v.Choice, test: Callable[[LoweringState, v.Abstract], v.Abstract]) -> v.Abstract:
    """A test of the alternative picked, as one of which are picked, where the types say whether it holds."""
    found = [test(s.fork(), x) for x in choice.alternatives]
    always, never = (frozenset(k for k, x in enumerate(found) if x == v.Static(truth)) for truth in (True, False))
    if len(always | never) == len(found):
        return picked(s, choice, always)
    result = apply_choice(s, choice, test)
    if isinstance(result, v.Leaf) and isinstance(result.operand, Value):
        may_be = possible(s, choice)
        told = ClassTest(choice.index, may_be - never, may_be - always)
        s.context.meanings.setdefault(result.operand, ("is_class", told))
    return result


def _is_in(index: Any, places: tuple[int, ...]) -> Any:
    return functools.reduce(operator.or_, (index == k for k in places))


def narrowed(s: LoweringState, choice: v.Choice) -> v.Abstract:
    """The one value that it can be here; else as it is."""
    fit = possible(s, choice)
    return choice.alternatives[min(fit)] if len(fit) == 1 else choice
