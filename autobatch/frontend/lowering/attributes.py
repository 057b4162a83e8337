"""`x.name`: fields of objects in the examples, of containers, of arrays, of Python objects; methods and properties."""

from __future__ import annotations

import functools
import inspect
import math
import operator
import types
from collections import OrderedDict, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.data.columns import UNKNOWN, VALUE, Class, Field, nullable_types
from autobatch.frontend.library.graphs import refuse_unknown, viewed
from autobatch.frontend.library.numpy_arrays import is_dynamic, is_own_attribute
from autobatch.frontend.library.strings import tag_attribute
from autobatch.frontend.lowering.joins import conditional
from autobatch.frontend.lowering.numbers import negate, present, traced, without
from autobatch.frontend.lowering.selection import apply_choice, failure_of
from autobatch.frontend.lowering.state import ClassTest, DictsDiffer, Fact, LoweringState, hand_out, wrap
from autobatch.frontend.memory import heaps, list_heap
from autobatch.frontend.syntax.sources import LIBRARIES, is_bound_method, is_user_function, mutated, source_of
from autobatch.frontend.types import values as v
from autobatch.frontend.types.statics import MISSING, inputs, is_namedtuple
from autobatch.frontend.types.values import LeafLayout, ListingLayout, enum_class, is_python
from autobatch.ir.core import BOOL, INT, Array, List, Operand, Ref, Tag, Type, Value
from autobatch.ir.ops import own

_ARRAY_PROPERTIES = {name: (lambda x, name=name: getattr(x, name)) for name in ("T", "mT", "real", "imag")}

_NUMBER_METHODS = {f.__name__: f for f in (float.is_integer, int.bit_length, int.bit_count)}
"""Those of Python's numbers that arrays have not (`prelude.py`)."""


def attribute(s: LoweringState, value: v.Abstract, name: str) -> v.Abstract:
    """`value.name`"""
    if name == "__class__":
        return s.call(v.Static(type), [value])
    value = viewed(s, present(s, value, none=without(name)))
    match value:
        case v.Static():
            return _of_object(s, value, name)
        case v.Record() | v.MemoryRow() if is_dynamic(value) and not is_own_attribute(name):
            return s.context.rules.stacked(s, getattr, (value, v.Static(name)))
        case v.MemoryRow(heap=heap):
            there = heaps.there(s, value, without(name)[1])
            return _of_class(s, there, heap.cls, name) if heap.in_segments else list_heap.read(s, there, name, bind)
        case v.Leaf(operand=operand) if isinstance(operand.type, Ref):
            return field(s, value, name)
        case v.Leaf(operand=operand) if isinstance(operand.type, Tag):
            return tag_attribute(s, operand, name)
        case v.Leaf(operand=operand) if isinstance(operand.type, Array):
            return _of_array(s, value, operand.type, name)
        case v.Record(cls=cls, keys=("array", "index")) if cls is At:
            return _of_at(s, value, name)
        case v.Record(kind="table", cls=cls) if cls is deque and name == "maxlen":
            return value.items[1]
        case v.Record(kind=kind, cls=cls):
            refuse_unknown(s, value, name)
            found = value.get(name) if kind in ("namedtuple", "object") else None
            if isinstance(found, v.Optional) and found.unset:
                return list_heap.set_or_of_class(s, value, name, value.cls, found, bind)
            if found is None or isinstance(found, v.Unset):
                return _of_class(s, value, _RECORDS.get(kind, cls), name)
            return found
        case v.Choice():
            return apply_choice(s, value, lambda t, x: attribute(t, x, name), failure_of(s, operator.attrgetter(name)))
        case v.Listing() | v.Leaf() | v.Record() if is_stack(s, value):
            return of_stack(s, value, name)
        case v.Listing(is_tuple=True) | v.Lazy(is_tuple=True):
            return _of_class(s, value, tuple, name)
        case v.Listing() | v.Leaf() | v.Lazy():
            return _of_class(s, value, list, name)
        case v.Method(function=v.Static(value=cls), receiver=receiver, name=v.SUPER):
            return _of_base(s, cls, receiver, name)
        case v.LocalFunction(source=source) if name == "__name__":
            return v.Static(source.name)
        case _:
            s.refuse(
                f"this value has no attribute {name!r} that can be compiled",
                "check the spelling, or read it outside and pass it as an argument",
            )


_RECORDS: dict[str, type] = {"tuple": tuple, "list": list, "dict": dict}


def _runs_code(held: Any, found: Any, name: str) -> bool:
    """Does reading an attribute run code, which may look at all that the object holds?"""
    if found is None:
        return hasattr(type(held), "__getattr__") and name not in getattr(held, "__dict__", {})
    if is_namedtuple(held) and name in held._fields:
        return False
    plain = types.FunctionType | types.MemberDescriptorType | types.GetSetDescriptorType
    return hasattr(type(found), "__get__") and not isinstance(found, plain)


def _of_object(s: LoweringState, value: v.Static, name: str) -> v.Abstract:
    held = value.value
    if held is None:
        s.check(s.scalar(False), "AttributeError", f"'NoneType' object has no attribute {name!r}")
        s.dead = True
        return v.Static(None)
    found = inspect.getattr_static(type(held), name, None)
    if isinstance(found, property) and found.fget is not None and inputs(held):
        return s.call(v.Static(found.fget), [value])
    if isinstance(found, functools.cached_property) and name not in vars(held) and inputs(held):
        return s.call(v.Static(found.func), [value])
    if type(held) in (dict, list, tuple, set, frozenset) and isinstance(found, types.MethodDescriptorType):
        return v.Method(v.Static(found), value, name)
    if _runs_code(held, found, name):
        hand_out(s.context, held)
    try:
        item = getattr(held, name)
    except AttributeError as error:
        s.refuse(str(error), "check the spelling")
    if is_bound_method(item) and item.__self__ is held:
        return v.Method(v.Static(item.__func__), value, name)
    origin = value.origin.child(("attribute", name)) if value.origin is not None else None
    if isinstance(held, types.ModuleType) and held.__name__.split(".")[0] in LIBRARIES:
        origin = None
    return wrap(s.context, item, origin)


def _of_class(s: LoweringState, value: v.Abstract, cls: type | None, name: str) -> v.Abstract:
    """A class attribute, method or property of an object that the function built."""
    if cls is OrderedDict and name not in ("popitem", "move_to_end"):
        cls = dict  # whose other methods mean the same
    found = inspect.getattr_static(cls, name, MISSING) if cls is not None else MISSING
    if cls is None or found is MISSING:
        s.refuse(f"{cls.__name__ if cls else 'this value'} has no attribute {name!r}", "check the spelling")
    return bind(s, found, value, cls, name)


def bind(s: LoweringState, found: Any, receiver: v.Abstract, cls: type, name: str) -> v.Abstract:
    """What reading a class attribute through an object gives: bound method, property value, or the attribute."""
    if isinstance(receiver, v.MemoryRow) and len(receiver.heap.members) > 1:
        positions = s.positions(receiver)
        receiver = replace(receiver, classes=positions, bound=frozenset(receiver.heap.members[k] for k in positions))
    match found:
        case property(fget=getter) if getter is not None:
            return s.call(v.Static(getter), [receiver])
        case _ if hasattr(found, "func") and type(found).__name__ == "cached_property":
            _refuse_cached(s, found.func, receiver, name)
            return s.call(v.Static(found.func), [receiver])
        case staticmethod():
            return v.Static(found.__func__)
        case classmethod():
            return v.Method(v.Static(found.__func__), v.Static(cls), name)
        case types.FunctionType() | types.MethodDescriptorType() | types.WrapperDescriptorType():
            return v.Method(v.Static(found), receiver, name)
        case _ if callable(found) and (hasattr(found, "__wrapped__") or hasattr(found, "__autobatch_function__")):
            return v.Method(v.Static(found), receiver, name)
        case types.MemberDescriptorType():
            s.check(s.scalar(False), "AttributeError", f"{cls.__name__!r} object has no attribute {name!r}")
            s.dead = True
            return v.Static(None)
        case _ if is_user_function(getattr(type(found), "__get__", None)):
            return s.call(v.Static(type(found).__get__), [v.Static(found), receiver, v.Static(cls)])
        case _ if hasattr(type(found), "__get__") and not isinstance(found, type):
            s.refuse(f"{name} of {cls.__name__} is computed by Python itself", "keep it in an attribute of your own")
        case _:
            return wrap(s.context, found, v.FreeOrigin(cls, cls.__name__, (("attribute", name),)))


def _refuse_cached(s: LoweringState, function: types.FunctionType, receiver: v.Abstract, name: str) -> None:
    """Refuse a property that is kept when it is computed first, where computing it anew may give something else."""
    source = source_of(function)
    if isinstance(receiver, v.MemoryRow) or source.node.args.args[0].arg in mutated(source.node):
        s.refuse(
            f"{name} is kept when it is computed first, and it, or what it is computed of, changes something",
            "set an attribute in __init__, or make it a property",
        )


def _of_array(s: LoweringState, value: v.Leaf, type: Array, name: str) -> v.Abstract:
    match name:
        case "shape":
            return v.Static(type.shape)
        case "ndim":
            return v.Static(len(type.shape))
        case "size":
            return v.Static(int(np.prod(type.shape)))
        case "dtype":
            return v.Static(np.dtype(type.dtype)) if not type.dtype.startswith("key") else v.Static(type.dtype)
        case "at":
            return v.Record("object", ("array",), (value,), At)
        case _ if name in _ARRAY_PROPERTIES:
            return replace(traced(s, _ARRAY_PROPERTIES[name], value), numpy=value.numpy)
        case _ if name in _NUMBER_METHODS and is_python(type):
            return v.Method(v.Static(_NUMBER_METHODS[name]), value, name)
        case "numerator" if is_python(type) and type.is_integer:
            return value
        case "denominator" if is_python(type) and type.is_integer:
            return v.Static(1)
        case _ if not any(hasattr(c, name) for c in (jax.Array, np.ndarray, int, float, complex)):
            what = "a number" if type.is_scalar else "an array"
            s.refuse(f"{what} has no attribute {name!r}", "check the spelling, and what the name before the dot holds")
        case _:
            return v.Method(v.Static(array_method(name)), value, name)


def is_stack(s: LoweringState, value: v.Abstract) -> bool:
    """Is it an array whose length is data: stacked by the function, or of the examples, where it differs in length?"""
    match value:
        case v.Listing(array=array):
            return array
        case v.Leaf(operand=Value(type=List(store=str(name)))):
            return s.context.schema.list(name).from_array
        case v.Record(cls=cls):
            return cls in (Transposed, Expanded) or is_dynamic(value)
        case _:
            return is_dynamic(value)


class Transposed:
    """The class of `x.T` of an array whose length is data: what can be done with it is to multiply by it."""

    rows: Any


class Expanded:
    """The class of `x[None]` of an array whose length is data: an operand that is combined with each row of another."""

    rows: Any


def of_stack(s: LoweringState, value: v.Abstract, name: str) -> v.Abstract:
    """An attribute of an array whose length is data."""
    if isinstance(value, v.Record) and value.cls is Expanded:
        s.refuse(
            f"an array whose length is data has no .{name} behind [None]",
            "combine it with another: x[:, None] - y[None]",
        )
    if isinstance(value, v.Record):
        if name == "T":
            return value.items[0]
        s.refuse(f"the transpose of an array whose length is data has no .{name} here", "it is an operand of @ alone")
    assert isinstance(value, v.Leaf | v.Listing)
    if isinstance(value, v.Listing) and isinstance(value.elem, ListingLayout):
        if name in ("shape", "size", "T"):
            return s.call(v.Static(np.transpose if name == "T" else getattr(np, name)), [value])
        if name in ("dtype", "at"):
            s.refuse(f"an array with two axes whose length is data has no .{name} here", "ask its rows: x[0].shape")
        return (
            v.Static(2 + _depth(value.elem)) if name == "ndim" else v.Method(v.Static(array_method(name)), value, name)
        )
    if isinstance(value, v.Leaf):
        assert isinstance(value.type, List)
        row, rows = value.type.elem, value.operand
    else:
        assert isinstance(value.elem, LeafLayout)
        row, rows = value.elem.type, value.lists[0]
    assert isinstance(row, Array)
    match name:
        case "shape":
            count = v.Leaf(s.apply(own("length"), (rows,), INT))
            return v.Record("tuple", tuple(range(len(row.shape) + 1)), (count, *map(v.Static, row.shape)))
        case "size":
            return traced(s, operator.mul, v.Leaf(s.apply(own("length"), (rows,), INT)), v.Static(math.prod(row.shape)))
        case "ndim":
            return v.Static(len(row.shape) + 1)
        case "dtype":
            return v.Static(np.dtype(row.dtype))
        case "T":
            return v.Record("object", ("rows",), (value,), Transposed) if row.shape else value
        case "at":
            s.refuse("an array whose length is data has no .at", "work on its rows in a comprehension")
        case _:
            return v.Method(v.Static(array_method(name)), value, name)


def _depth(elem: ListingLayout) -> int:
    """How many axes the rows of a list of lists have, less one."""
    inner = elem.elem
    if isinstance(inner, ListingLayout):
        return 1 + _depth(inner)
    return len(inner.type.shape) if isinstance(inner, LeafLayout) and isinstance(inner.type, Array) else 0


class At:
    """The class of `x.at` and of `x.at[index]`."""

    array: Any
    index: Any


def _of_at(s: LoweringState, value: v.Record, name: str) -> v.Abstract:
    """A method of `x.at[index]`."""
    if not callable(getattr(jnp.zeros(1).at[0], name, None)):
        s.refuse(f"x.at[...] has no method {name!r}", "it has add, set, multiply, min, max, get and a few more")
    return v.Method(v.Static(updated(name)), value, name)


_UPDATES: dict[str, Any] = {}


def updated(name: str) -> Any:
    """A function that calls a method of `x.at[index]`; one for each name, so that its traces are found again."""
    if name not in _UPDATES:

        def update(at: At, *args: Any, **kwargs: Any) -> Any:
            return getattr(at.array.at[at.index], name)(*args, **kwargs)

        update.__module__, update.__name__ = "jax", f"at[...].{name}"
        _UPDATES[name] = update
    return _UPDATES[name]


_METHODS: dict[str, Any] = {}


def array_method(name: str) -> Any:
    """A function that calls a method of an array; one for each name, so that its traces are found again."""
    if name not in _METHODS:

        def method(x: Any, *args: Any, **kwargs: Any) -> Any:
            return getattr(x, name)(*args, **kwargs)

        method.__module__, method.__name__ = "jax", name
        method.array_method = name  # type: ignore[attr-defined]
        _METHODS[name] = method
    return _METHODS[name]


def classes_of(s: LoweringState, value: v.Leaf) -> frozenset[int]:
    """The classes that a reference may have here."""
    known = s.block.fact(value.operand)
    possible = s.possible(value.operand)
    return possible & value.classes if value.classes is not None and known.classes is None else possible


_NUMBERS_OF = {bool: np.bool_, int: np.integer, float: np.floating, complex: np.complexfloating}


def python_class(type: Type) -> type:
    """The class of a number, string, array or list of the examples."""
    if isinstance(type, Tag):
        return enum_class(type) or str
    if not isinstance(type, Array):
        return list
    if is_python(type):
        return next(cls for cls, kind in _NUMBERS_OF.items() if np.issubdtype(type.dtype, kind))
    return jax.Array


def class_list(s: LoweringState, type: Ref) -> tuple[Class, ...]:
    return s.context.schema.store(type.store).classes


def alternatives(s: LoweringState, value: v.Abstract) -> Mapping[int, Field]:
    """The classes that stand for values which are no records, among those that a reference may have: where each has
    its value (`unions.py`)."""
    if not isinstance(value, v.Leaf) or not isinstance(value.type, Ref):
        return {}
    known, store = s.context.alternatives, value.type.store
    if store not in known:
        held = s.context.schema.store(store)
        known[store] = {f.classes[0]: f for f in held.fields if held.classes[f.classes[0]].kind == "value"}
    return {k: f for k, f in known[store].items() if k in classes_of(s, value)} if known[store] else {}


def one_of(s: LoweringState, value: v.Leaf, classes: Collection[int]) -> v.Abstract:
    """The value that a reference stands for; the example fails where it has none of these classes."""
    check_is_one_of(s, value, classes)
    return _first_of(s, value, sorted(classes))


def check_is_one_of(s: LoweringState, value: v.Leaf, classes: Collection[int]) -> None:
    found = alternatives(s, value)
    names = " or ".join(sorted(python_class(found[k].type).__name__ for k in classes))
    s.check(is_none(s, value.operand, negated=True), "TypeError", "None where a value is needed")
    there = is_class(s, value.operand, frozenset(classes))
    s.check(there, "TypeError", f"a value of another type where {names} is needed")


def _first_of(s: LoweringState, value: v.Leaf, classes: Sequence[int]) -> v.Abstract:
    first, *rest = classes
    if not rest:
        return field(s, value, VALUE)
    this = is_class(s, value.operand, frozenset([first]))
    return conditional(s, this, lambda t: field(t, value, VALUE), lambda t: _first_of(t, value, rest))


def field(s: LoweringState, value: v.Leaf, name: str) -> v.Abstract:
    """A field, method, property or class attribute of an object of the examples."""
    key = ("load", value.operand, name, value.classes)
    known = s.block.recall(key)
    if known is not None:
        return known
    result = _field(s, value, name)
    s.block.memo[key] = result
    return result


def _field(s: LoweringState, value: v.Leaf, name: str, of_table: bool = False) -> v.Abstract:
    """`of_table`: one of the lists of a dict or set whose keys are data, which are no attributes."""
    assert isinstance(value.type, Ref)
    store = s.context.schema.store(value.type.store)
    possible = classes_of(s, value)
    if not possible:
        s.check(s.scalar(False), "AttributeError", f"'NoneType' object has no attribute {name!r}")
        s.dead = True
        return v.Static(None)
    tables = {k for k, c in enumerate(store.classes) if c.kind == "table"}
    own = possible if of_table else possible - tables
    fields = [f for f in store.fields if f.name == name and own & set(f.classes)]
    covered = frozenset(c for f in fields for c in f.classes) & possible
    groups: list[tuple[frozenset[int], Field | None, Any]] = []
    for f in fields:
        _group(groups, frozenset(f.classes) & possible, f, None)
    values = alternatives(s, value)
    for position in sorted(possible - covered - values.keys()):
        cls, kind = store.classes[position].cls, store.classes[position].kind
        found = inspect.getattr_static(cls, name, MISSING) if cls is not None and kind != "table" else MISSING
        if found is not MISSING:
            _group(groups, frozenset({position}), None, found)
    if not groups and (having := [k for k, f in values.items() if hasattr(python_class(f.type), name)]):
        return attribute(s, one_of(s, value, having), name)
    if not groups and forms_of(s, value) is not None:
        if name in ("keys", "values", "items"):
            refuse_unordered(s, value)
        return _of_class(s, value, dict if store.classes[min(possible - values.keys())].kind == "dict" else tuple, name)
    if not groups and (parts := fields_of(s, value)) is not None:
        if name in ("keys", "values", "items"):
            refuse_unordered(s, value)
        return attribute(s, parts, name)
    if not groups:
        names = " or ".join(sorted(store.classes[c].name for c in possible))
        if s.context.memory.sets_attribute(name):
            s.guess()
        s.refuse(f"no {names} of the examples has the attribute {name!r}", "check the spelling, or pack with `like=`")
    if len(groups) > 1 and all(g[1] is None and callable(g[2]) for g in groups):
        return v.Method(v.Static(None), value, name)
    return _by_class(s, value, name, groups)


def _group(
    groups: list[tuple[frozenset[int], Field | None, Any]], classes: frozenset[int], f: Field | None, found: Any
) -> None:
    """Classes whose attribute is read the same way form one group."""
    for position, (others, g, attribute_) in enumerate(groups):
        alike = f is not None and g is not None and (f.type, f.always_none) == (g.type, g.always_none)
        if alike or (f is None and g is None and attribute_ is found):
            merged = f
            if f is not None and g is not None and (f.optional, f.nullable) != (g.optional, g.nullable):
                merged = f if f.optional or f.nullable else g
            groups[position] = (others | classes, merged, found)
            return
    groups.append((classes, f, found))


def fields_of(s: LoweringState, value: v.Leaf) -> v.Record | None:
    """A tuple, NamedTuple or dict of the examples as a record of its fields; None for other objects."""
    assert isinstance(value.type, Ref)
    classes = class_list(s, value.type)
    possible = sorted(classes_of(s, value) - alternatives(s, value).keys())
    fields = s.context.schema.store(value.type.store).fields
    kinds = {(classes[c].kind, classes[c].cls) for c in possible}
    of_dicts = all(kind == "dict" or (kind == "table" and cls is dict) for kind, cls in kinds)
    if not kinds or (len(kinds) > 1 and not of_dicts) or any(kind == "object" for kind, _ in kinds):
        return None
    if len(possible) < len(classes_of(s, value)):
        there = is_class(s, value.operand, frozenset(possible))
        s.check(there, "TypeError", f"a value of another type where a {classes[possible[0]].kind} is needed")
    forms = [tuple(sorted(f.name for f in fields if c in f.classes)) for c in possible]
    cls, names = classes[possible[0]], list(forms[0])
    if len(set(forms)) > 1 or len(kinds) > 1:
        _refuse_forms(s, cls, forms)
    if cls.kind == "namedtuple":
        order = {n: k for k, n in enumerate(cls.cls._fields)}  # type: ignore[union-attr]
        names.sort(key=lambda n: order[n])
    elif cls.kind in ("tuple", "list"):
        names.sort(key=int)
    elif cls.keys:
        names = list(cls.keys)
    items = tuple(_field(s, value, n, True) if cls.kind == "table" else field(s, value, n) for n in names)
    if names:  # what was read is not None
        s.block.facts[value.operand] = replace(s.block.fact(value.operand), null=False)
    keys = tuple(range(len(names))) if cls.kind in ("tuple", "list") else tuple(names)
    assert cls.kind != "value"
    return v.Record(cls.kind, keys, items, cls.cls)


def parts_of(s: LoweringState, value: v.Leaf) -> v.Record | None:
    """The same; None for those that may be of several forms, too."""
    return None if forms_of(s, value) is not None else fields_of(s, value)


Keys = tuple[Any, ...]
"""The keys of a dict, or the places of a tuple."""


def forms_of(s: LoweringState, value: v.Abstract) -> Mapping[int, Keys] | None:
    """The keys of each class that a tuple or dict of the examples may have; None for other values, and where all are of
    one form, and no constant tells more."""
    if not isinstance(value, v.Leaf) or not isinstance(value.type, Ref):
        return None
    classes, found = class_list(s, value.type), dict[int, Keys]()
    possible = classes_of(s, value) - alternatives(s, value).keys()
    kinds = {classes[k].kind for k in possible}
    if kinds not in ({"tuple"}, {"dict"}):
        return None
    fields = s.context.schema.store(value.type.store).fields
    for k in possible:
        names = [f.name for f in fields if k in f.classes]
        found[k] = tuple(range(len(names))) if kinds == {"tuple"} else classes[k].keys or tuple(sorted(names))
    is_told = any(classes[k].tag is not None for k in possible)
    return found if is_told or len({frozenset(keys) for keys in found.values()}) > 1 else None


def _classes(s: LoweringState, value: v.Abstract) -> Sequence[type | None]:
    """The classes that an object may have; none of what is no object of the user."""
    match value:
        case v.Record(kind="object" | "namedtuple", cls=cls):
            return [cls]
        case v.MemoryRow():
            return heaps.classes_of(s, value)
        case v.Leaf(operand=operand) if isinstance(operand.type, Ref):
            return [class_list(s, operand.type)[c].cls for c in sorted(classes_of(s, value))]
        case v.Static(value=held) if inputs(held):
            return [type(held)]
        case _:
            return []


def _of_base(s: LoweringState, cls: type, receiver: v.Abstract, name: str) -> v.Abstract:
    """`super().name` in a method of a class: the next class that has it in the order of the object's own class."""
    held = receiver.value if isinstance(receiver, v.Static) else None
    classes = _classes(s, receiver) if held is None else [held if isinstance(held, type) else type(held)]
    orders = [c.__mro__ for c in classes if c is not None and issubclass(c, cls)] or [cls.__mro__]
    bases = {next((c for c in mro[mro.index(cls) + 1 :] if name in vars(c)), None) for mro in orders}
    if len(bases) > 1:
        s.refuse(f"super().{name} is not the same for all classes of the object", "name the class: Base.method(self)")
    (base,) = bases
    if base is None:
        s.refuse(f"no base class of {cls.__name__} has the attribute {name!r}", "check the spelling")
    found = vars(base)[name]
    return bind(s, found, receiver, orders[0][0] if isinstance(found, classmethod) else base, name)


def written(s: LoweringState, value: v.Abstract, method: str) -> bool:
    """Do the classes of the user that an object may have define this method?"""
    found = [inspect.getattr_static(c, method, None) if c is not None else None for c in _classes(s, value)]
    return bool(found) and all(inspect.isfunction(f) for f in found)


def _refuse_forms(s: LoweringState, cls: Class, forms: Sequence[Sequence[str]]) -> NoReturn:
    distinct = list(dict.fromkeys(forms))
    if cls.kind in ("dict", "table"):
        words = " and ".join("{" + ", ".join(map(repr, form)) + "}" for form in distinct[:3])
        raise DictsDiffer(
            f"the dicts here have different keys in different examples: {words}",
            s.span,
            "give all of them the same keys, None where there is no value; or give them to the function as a list, not "
            "packed, with values of one type: then their keys are data",
        )
    lengths = " and ".join(str(len(form)) for form in distinct[:3])
    s.refuse(f"the tuples here have different lengths in different examples: {lengths}", "use a list")


def refuse_unordered(s: LoweringState, value: v.Abstract) -> None:
    """Refuse to go through the keys of dicts that have them in different orders."""
    if isinstance(value, v.Leaf) and isinstance(value.type, Ref):
        fields = s.context.schema.store(value.type.store).fields
        for c in classes_of(s, value):
            cls = class_list(s, value.type)[c]
            if cls.kind == "dict" and not cls.keys and sum(c in f.classes for f in fields) > 1:
                raise DictsDiffer(
                    "the keys of these dicts come in different orders in different examples",
                    s.span,
                    "pack them in one order: dict(sorted(d.items()))",
                )


def _by_class(
    s: LoweringState, value: v.Leaf, name: str, groups: list[tuple[frozenset[int], Field | None, Any]]
) -> v.Abstract:
    (classes, f, found), *rest = groups
    if not rest:
        if f is not None:
            return _load(s, value.operand, f)
        cls = class_list(s, value.type)[min(classes)].cls  # type: ignore[arg-type]
        assert cls is not None
        return bind(s, found, v.Leaf(value.operand, classes), cls, name)
    return conditional(
        s,
        is_class(s, value.operand, classes),
        lambda t: _by_class(t, value, name, groups[:1]),
        lambda t: _by_class(t, value, name, rest),
    )


def is_unseen(s: LoweringState, type: Type) -> bool:
    """Is it a list of the examples that is empty wherever it is not None? Elements of an unknown type are None."""
    if not isinstance(type, List) or type.elem != UNKNOWN:
        return False
    return type.store is None or not s.context.schema.list(type.store).optional


def _load(s: LoweringState, operand: Operand, f: Field) -> v.Abstract:
    if f.always_none:
        if s.context.memory.sets_attribute(f.name):
            s.guess()  # where that is done first, it is no longer None here
        s.check(is_none(s, operand, negated=True), "AttributeError", f"'NoneType' object has no attribute {f.name!r}")
        return v.Static(None)
    empty = v.Record("list", (), ())
    if is_unseen(s, f.type):
        assert isinstance(f.type, List)
        s.context.sites.made(empty, ("given", f.type.store))
    if is_unseen(s, f.type) and not f.nullable:
        return empty
    result = s.apply(own("load", field=f.name), (operand,), f.type)
    if is_unseen(s, f.type):
        return v.Optional(empty, is_none(s, result))
    if isinstance(f.type, Ref) and not f.nullable:
        s.block.facts[result] = Fact(None, False)
    if not f.optional or isinstance(f.type, Ref | List):
        return s.context.rules.brought_in(s, v.Leaf(result, numpy=f.numpy or None))
    missing = s.apply(own("load_is_none", field=f.name, type=f.type), (operand,), BOOL)
    return v.Optional(v.Leaf(result, numpy=f.numpy or None), missing)


def may_be_none(s: LoweringState, type: Type) -> bool:
    """Is a list of this type None somewhere in the examples?"""
    return type in nullable_types(s.context.schema)


def is_class(s: LoweringState, operand: Operand, classes: frozenset[int]) -> Operand:
    """Is the object of one of these classes? Static where it is known."""
    possible = s.possible(operand)
    if not possible & classes:
        return s.scalar(False)
    if possible <= classes:
        return is_none(s, operand, negated=True)
    assert isinstance(operand.type, Ref)
    key = ("is_class", operand, classes)
    known = s.block.recall(key)
    if isinstance(known, v.Leaf):
        return known.operand
    names = tuple(class_list(s, operand.type)[c].name for c in sorted(classes & possible))
    result = s.apply(own("is_class", names=names), (operand,), BOOL)
    s.context.meanings[result] = ("is_class", ClassTest(operand, classes, possible - classes))
    s.block.memo[key] = v.Leaf(result)
    return result


def is_none(s: LoweringState, operand: Operand, negated: bool = False) -> Operand:
    """Is a reference or list None?"""
    fact = s.block.fact(operand)
    if not fact.null:
        return s.scalar(negated)
    key = ("is_none", operand)
    known = s.block.recall(key)
    if isinstance(known, v.Leaf):
        result = known.operand
    else:
        result = s.apply(own("is_none"), (operand,), BOOL)
        s.context.meanings[result] = ("is_none", operand)
        s.block.memo[key] = v.Leaf(result)
    truth = s.block.truth(result)
    if truth is not None:
        return s.scalar(truth is not negated)
    if not negated:
        return result
    inverse = s.block.recall(("not", result))
    if not isinstance(inverse, v.Leaf):
        inverse = v.Leaf(negate(s, result))
        s.block.memo[("not", result)] = inverse
    return inverse.operand
