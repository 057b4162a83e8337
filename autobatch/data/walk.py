"""Walks over user objects: which objects there are, in pre-order, what each of them holds, and whether it still does.

`walk` is iterative, so depth costs heap, not stack. Every object met for the first time in its example is a *visit*
with the next number of a global count; its field values go to the table of its class. References become visit numbers
by `id` while the objects are alive. An object in two examples is two visits. Machine code does the same in a tenth of
the time (`reading.py`); this is for what that cannot read, and for errors.

A `Snapshot` tells whether objects have changed since they were packed, without packing them again. Of the objects that
one leads to, the names and values of all fields are kept, and compared by identity: a field that was set, or a list
that was changed, shows. Objects whose numbers can change in place (arrays) have no snapshot.
"""

from __future__ import annotations

import collections
import dataclasses
import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, repeat
from operator import attrgetter, is_
from typing import Any

import numpy as np

from autobatch.data.columns import Ints
from autobatch.data.infer import RecordKind, Signature, names_of_table, sort_of_array
from autobatch.data.leaves import (
    Category,
    array_type,
    category,
    cure,
    describe_library_object,
    is_library_object,
    vocabulary_of,
)
from autobatch.data.reading import ObjectKind, ObjectShape, TypeRegistry, has_plain_attributes, leaf_code
from autobatch.errors import BatchError

# ---- walks


EXAMPLE = -1
"""The entry of `Walk.visits` that stands for an example itself; the visits that follow are its objects."""

_MANY_TUPLES = 1 << 20
_Values = Sequence[Any]


@dataclass(eq=False)
class FieldValues:
    """The values of one field; `targets` are the visits that they are, -1 for leaves (None: all leaves)."""

    values: _Values
    targets: Ints | None


@dataclass(eq=False)
class ObjectTable:
    """All objects of one form. Lists have the one field `items`, flat, and `lengths`. `pending`: those of the example
    that is walked; `found`: of each field the values and their visits so far."""

    index: int
    kind: RecordKind | None
    cls: type | None
    names: tuple[str, ...]
    extract: Callable[[Any], _Values]
    signature: Signature = ()
    orders: set[tuple[str, ...]] = field(default_factory=set)
    """The orders in which dicts have their keys."""
    pending: list[_Values] = field(default_factory=list)
    found: list[tuple[list[Any], list[int]]] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    fields: list[FieldValues] = field(default_factory=list)

    def resolve(self, seen: dict[int, int]) -> None:
        """The objects of an example, whose visits are known now, are found."""
        if not self.pending:
            return
        width, flat = len(self.names), list(chain.from_iterable(self.pending))
        if self.kind is None:
            self.lengths.extend(map(len, self.pending))
        self.pending.clear()
        for k, (values, targets) in enumerate(self.found):
            column = flat[k::width]  # `zip` would make an iterator for each row
            values += column
            targets.extend(map(seen.get, map(id, column), repeat(-1)))

    def close(self) -> None:
        """Nothing more is found."""
        self.fields = [FieldValues(values, _targets(targets)) for values, targets in self.found]


def _targets(visits: list[int]) -> Ints | None:
    found = np.array(visits, np.int64)
    return found if (found >= 0).any() else None


@dataclass(eq=False)
class ObjectWalk:
    """`visits[n]` is the table of visit n, or `EXAMPLE`; `starts[i]` is the visit of example i itself."""

    tables: list[ObjectTable]
    visits: Ints
    starts: Ints
    roots: FieldValues


def walk(examples: Sequence[Any], keys_are_data: bool = False) -> ObjectWalk:
    """Visit every object of the examples. Raises BatchError for what cannot be packed. `keys_are_data`: also those of
    dicts of strings."""
    with collector_paused():
        return Walker(examples, keys_are_data).whole()


def learned(known: TypeRegistry, x: Any, is_shape: bool) -> TypeRegistry:
    """What the machine knows, with the type of an object, or its shape."""
    cls = type(x)
    if is_shape:
        return _with_shape(known, x)
    if (code := leaf_code(cls)) is not None:
        return known.with_type(cls, code)
    if cls in _OF_SHAPES:
        return known.with_type(cls, _OF_SHAPES[cls])
    if category(cls) is Category.REFUSED or issubclass(cls, dict) or is_library_object(x):
        return known.with_type(cls, ObjectKind.REFUSED)
    names = _fixed_names(cls)
    if names is not None and issubclass(cls, tuple):
        return known.with_type(cls, ObjectKind.ITEMS, ObjectShape("namedtuple", cls, names))
    if not has_plain_attributes(cls, names or ()):
        return known.with_type(cls, ObjectKind.REFUSED)
    if names is None:
        return known.with_type(cls, ObjectKind.PLAIN)
    return known.with_type(cls, ObjectKind.FIELDS, ObjectShape("object", cls, names))


_OF_SHAPES: dict[type, ObjectKind] = {tuple: ObjectKind.TUPLE, collections.defaultdict: ObjectKind.DICT}


def _with_shape(known: TypeRegistry, x: Any) -> TypeRegistry:
    cls = type(x)
    if cls is tuple:
        held = dict(enumerate(x))
    else:
        held = x if isinstance(x, dict) else vars(x)
    order = sorted(held)
    names, values = tuple(map(str, order)), [held[n] for n in order]
    if cls not in (tuple, dict, collections.defaultdict):
        shape = ObjectShape("object", cls, names)
    else:
        arrays = tuple(k for k, v in enumerate(values) if category(type(v)) is Category.ARRAY)
        unsaid = {k for k, v in enumerate(values) if k in arrays or type(v) in (dict, set, frozenset)}
        signature = tuple(None if k in unsaid else Walker(()).sort(v) for k, v in enumerate(values))
        kind: RecordKind = "tuple" if cls is tuple else "dict"
        shape = ObjectShape(kind, None, names, signature, None if cls is tuple else tuple(x), arrays)
    place = {n: k for k, n in enumerate(order)}
    return known.with_shape(cls, [(n, type(v), place[n]) for n, v in held.items()], shape)


@contextmanager
def collector_paused() -> Iterator[None]:
    """Nothing becomes garbage while walking; the collector would look at all that has been kept, again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class Walker:
    def __init__(self, examples: Sequence[Any], keys_are_data: bool = False) -> None:
        self.examples, self.keys_are_data = examples, keys_are_data
        self.tables: list[ObjectTable] = []
        self.fixed: dict[type, ObjectTable] = {}
        self.forms: dict[Any, ObjectTable] = {}
        self.atoms: set[type] = {type(None), bool, int, float, complex, str}
        self.visits: list[int] = []
        self.lists = self.table(None, list, ("items",), list.copy)
        self.fixed[list] = self.lists
        self.example, self.copied, self.originals = 0, 0, set[int]()
        self.categorised, self.arrays = set[type](), set[type]()

    def whole(self) -> ObjectWalk:
        starts: list[int] = []
        roots: list[int] = []
        for i, example in enumerate(self.examples):
            self.example = i
            starts.append(len(self.visits))
            self.visits.append(EXAMPLE)
            seen = {} if type(example) in self.atoms else self.one(example)
            for table in self.tables:
                table.resolve(seen)
            roots.append(seen.get(id(example), -1))
        for table in self.tables:
            table.close()
        visits, begins = np.array(self.visits, np.int64), np.array(starts, np.int64)
        return ObjectWalk(self.tables, visits, begins, FieldValues(self.examples, _targets(roots)))

    def one(self, example: Any, met: list[Any] | None = None) -> dict[int, int]:
        """Visit the objects of one example: its visit numbers by id. `met`: they are put there."""
        self.copied, self.originals = 0, set()
        fixed, atoms, visit, count = self.fixed, self.atoms, self.visits.append, len(self.visits)
        seen: dict[int, int] = {}
        stack = [example]
        pop = stack.pop
        while stack:
            x = pop()
            key = id(x)
            if key in seen:
                continue
            table = fixed.get(type(x))
            if table is None:
                chosen = self.choose(x)
                if chosen is None:
                    continue
                table, values = chosen
            else:
                try:
                    values = table.extract(x)
                except AttributeError as error:
                    raise self.unset(x, error) from None
            seen[key] = count
            count += 1
            visit(table.index)
            if met is not None:
                met.append(x)
            children = [v for v in values if type(v) not in atoms]
            if children:
                if tuple in map(type, children):
                    values = self.copies(values)
                    children = [v for v in values if type(v) not in atoms]
                children.reverse()
                stack += children
            table.pending.append(values)
        return seen

    def table(
        self,
        kind: RecordKind | None,
        cls: type | None,
        names: tuple[str, ...],
        extract: Callable[[Any], _Values],
        signature: Signature = (),
    ) -> ObjectTable:
        made = ObjectTable(len(self.tables), kind, cls, names, extract, signature, found=[([], []) for _ in names])
        self.tables.append(made)
        return made

    def choose(self, x: Any) -> tuple[ObjectTable, _Values] | None:
        """The table of an object whose class was not met before or has several forms, and its values; None for a
        leaf."""
        cls = type(x)
        kind = category(cls)
        if kind is Category.REFUSED:
            raise self.refused(x, cure(cls))
        if kind is not Category.OBJECT:
            self.atoms.add(cls)
            return None
        if cls is tuple:
            return self.tuple_table(x), x
        if issubclass(cls, dict):
            return self.dict_table(x)
        if cls in (set, frozenset):
            return self.of_keys(cls), (list(x),)
        made = self.with_fixed_fields(cls)
        if made is None:
            return self.plain_table(x)
        try:
            return made, made.extract(x)
        except AttributeError as error:
            raise self.unset(x, error) from None

    def with_fixed_fields(self, cls: type) -> ObjectTable | None:
        """The new table of a class whose instances all have the same fields; None where that is not known."""
        names = _fixed_names(cls)
        if names is None or cls is tuple:
            return None
        kind: RecordKind = "namedtuple" if issubclass(cls, tuple) else "object"
        made = self.fixed[cls] = self.table(kind, cls, names, _extractor(cls, names))
        return made

    def tuple_table(self, x: tuple[Any, ...]) -> ObjectTable:
        form = (tuple, *self.form(x))
        if (known := self.forms.get(form)) is None:
            names = tuple(map(str, range(len(x))))
            known = self.forms[form] = self.table("tuple", None, names, tuple, self.signature(x))
        return known

    def copies(self, values: _Values) -> _Values:
        """The values with a new tuple for each tuple: a tuple is a value, and has a row wherever it appears."""
        held = [v for v in values if type(v) is tuple]
        self.copied += len(held)
        self.originals.update(map(id, held))
        if self.copied > _MANY_TUPLES and len(self.originals) * 16 < self.copied:
            raise BatchError(
                f"examples[{self.example}] writes out {self.copied:,} tuples, but holds {len(self.originals):,}: "
                "a tuple is a value, packed once for each appearance; use a dataclass or a NamedTuple for shared nodes"
            )
        return [(*v,) if type(v) is tuple else v for v in values]

    def dict_table(self, x: dict[Any, Any]) -> tuple[ObjectTable, _Values]:
        """A dict of constant strings has a field for each; any other one its keys and its values, in order."""
        if self.is_table(x):
            if isinstance(x, collections.defaultdict) and x.default_factory is not None:
                raise self.refused(x, "what it makes of missing keys is code; use dict(x)")
            return self.of_keys(dict), (list(x), list(x.values()))
        names = tuple(sorted(x))
        values = [x[k] for k in names]
        form = (dict, names, *self.form(values))
        if (known := self.forms.get(form)) is None:
            known = self.forms[form] = self.table("dict", None, names, list, self.signature(values))
        known.orders.add(tuple(x))
        return known, values

    def of_keys(self, cls: type) -> ObjectTable:
        """The table of the dicts or sets of one type whose keys are data."""
        if (known := self.forms.get(cls)) is None:
            known = self.forms[cls] = self.table("table", cls, names_of_table(cls), tuple)
        return known

    def is_table(self, x: Any) -> bool:
        """Is it a dict or set whose keys are data? An empty dict is one."""
        if not isinstance(x, dict):
            return type(x) in (set, frozenset)
        if not all(type(k) is str for k in x):
            return True
        return not x or self.keys_are_data

    def plain_table(self, x: Any) -> tuple[ObjectTable, _Values]:
        """An instance of a class whose attributes may differ by instance."""
        held = describe_library_object(x) if is_library_object(x) else attributes_of(x)
        names = tuple(sorted(held))
        if not all(type(n) is str for n in names):
            raise self.refused(x, "its attributes are not named by strings")
        form = (type(x), names)
        if (known := self.forms.get(form)) is None:
            known = self.forms[form] = self.table("object", type(x), names, list)
        return known, [held[n] for n in names]

    def form(self, values: _Values) -> tuple[Any, ...]:
        """A cheap key of the sorts of some elements: equal keys have equal signatures."""
        kinds = tuple(map(type, values))
        if not self.categorised.issuperset(kinds):
            self.categorised.update(kinds)
            self.arrays.update(k for k in kinds if category(k) is Category.ARRAY)
        if not self.arrays.isdisjoint(kinds):
            return (*kinds, *[(v.dtype, v.ndim > 0) for v in values if type(v) in self.arrays])
        return kinds

    def signature(self, values: _Values) -> Signature:
        """The sort of each element, as `infer.sort_of_type` gives it for its type."""
        return tuple(map(self.sort, values))

    def sort(self, value: Any) -> str | None:
        match category(type(value)):
            case Category.NONE:
                return None
            case Category.NUMBER:
                return "number"
            case Category.STRING:
                return "str"
            case Category.MEMBER:
                return vocabulary_of(type(value))
            case Category.ARRAY:
                try:
                    found = array_type(value)
                except TypeError as error:
                    raise self.refused(value, str(error)) from None
                return sort_of_array(found)
            case Category.OBJECT if self.is_table(value):
                return "table"
            case Category.OBJECT | Category.REFUSED:
                return "list" if isinstance(value, list) else "record"

    def unset(self, x: Any, error: AttributeError) -> BatchError:
        return self.refused(x, f"{error}; every field of a dataclass needs a value")

    def refused(self, x: Any, why: str) -> BatchError:
        return BatchError(
            f"{find_path(self.examples[self.example], x, self.example)}: a value of class "
            f"{type(x).__module__}.{type(x).__qualname__} cannot be packed: {why}"
        )


def _fixed_names(cls: type) -> tuple[str, ...] | None:
    """The fields of a class whose instances all have the same; None where that is not known."""
    if dataclasses.is_dataclass(cls):
        return tuple(f.name for f in dataclasses.fields(cls))
    if hasattr(cls, "__attrs_attrs__"):
        return tuple(a.name for a in cls.__attrs_attrs__)
    return tuple(cls._fields) if issubclass(cls, tuple) and hasattr(cls, "_fields") else None


def _extractor(cls: type, names: tuple[str, ...]) -> Callable[[Any], _Values]:
    """A function from an instance to the values of its fields."""
    if issubclass(cls, tuple) or not names:
        return tuple if names else lambda x: ()
    get = attrgetter(*names)
    return get if len(names) > 1 else lambda x: (get(x),)


def attributes_of(x: Any) -> dict[str, Any]:
    """The instance attributes of an object, in `__dict__` and in slots; the slots that are not set are left out."""
    held = dict(getattr(x, "__dict__", {}))
    for base in type(x).__mro__:
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            mangled = f"_{base.__name__.lstrip('_')}{name}" if name.startswith("__") and name[-2:] != "__" else name
            if name not in ("__dict__", "__weakref__") and hasattr(x, mangled):
                held.setdefault(mangled, getattr(x, mangled))
    return held


def find_path(example: Any, wanted: Any, index: int) -> str:
    """`examples[3].left.words[2]`: where in an example an object is, for error messages."""
    seen = {id(example)}
    stack: list[tuple[Any, Any]] = [(example, None)]
    while stack:
        x, path = stack.pop()
        if x is wanted:
            steps = []
            while path is not None:
                step, path = path
                steps.append(step)
            return spell(index, steps[::-1])
        for step, value in reversed(list(_children(x))):
            if value is wanted or id(value) not in seen:
                seen.add(id(value))
                stack.append((value, (step, path)))
    return f"examples[{index}]"


def _children(x: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(x, dict):
        return ((f"[{k!r}]", v) for k, v in x.items())
    if isinstance(x, (list, tuple)) and not hasattr(x, "_fields"):
        return ((f"[{i}]", v) for i, v in enumerate(x))
    if category(type(x)) is not Category.OBJECT:
        return iter(())
    names = _fixed_names(type(x))
    held = attributes_of(x) if names is None else {n: getattr(x, n, None) for n in names}
    return ((f".{n}", v) for n, v in held.items())


def spell(index: int, steps: Sequence[str]) -> str:
    """A path in words; the middle of a very long one is left out."""
    if len(steps) > 24:
        steps = [*steps[:8], f" ... {len(steps) - 16} more ... ", *steps[-8:]]
    return f"examples[{index}]" + "".join(steps)


# ---- snapshots


FIXED = (int, float, bool, type(None))
"""The classes of values that never change."""


class Snapshot:
    """`of` gives one; it keeps the objects alive."""

    def __init__(self, objects: list[Any], lists: list[list[Any]]) -> None:
        self.objects, self.lists = objects, lists
        self.classes = list(map(type, objects))
        fields = list(map(vars, objects))
        self.names, self.held = list(chain.from_iterable(fields)), self._values(fields)
        self.lengths = self._lengths(fields)

    @staticmethod
    def of(root: Any) -> Snapshot | None:
        """None where something that `root` leads to is no plain object or list, and no number."""
        objects: list[Any] = []
        lists: list[list[Any]] = []
        seen = set[int]()
        todo = [root]
        while todo:
            x = todo.pop()
            if type(x) in FIXED or id(x) in seen:
                continue
            seen.add(id(x))
            if type(x) is list:
                lists.append(x)
                todo += x
            elif type(getattr(x, "__dict__", None)) is dict and not hasattr(type(x), "__slots__"):
                objects.append(x)
                todo += vars(x).values()
            else:
                return None
        return Snapshot(objects, lists)

    def _values(self, fields: Sequence[Mapping[str, Any]]) -> list[Any]:
        """What all objects and lists hold, by one call of the interpreter's, which takes a third of the time of a chain
        over them. (What a dict refers to is its values, and keys that are no strings.)"""
        return gc.get_referents(*fields, *self.lists)

    def _lengths(self, fields: Sequence[Mapping[str, Any]]) -> list[int]:
        return list(map(len, chain(fields, self.lists)))

    def holds(self) -> bool:
        """Do all objects hold what they held?"""
        fields = list(map(vars, self.objects))
        now = self._values(fields)
        if len(now) != len(self.held) or self._lengths(fields) != self.lengths:
            return False
        same = list(chain.from_iterable(fields)) == self.names and list(map(type, self.objects)) == self.classes
        return same and all(map(is_, now, self.held))
