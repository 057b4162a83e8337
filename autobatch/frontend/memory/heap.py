"""Memory for objects: one column for each number of a field, one row for each object that an example makes.

    node = Node(y, node)            <memory of Node> = (count, value[32], next[32]);  node is the row `count`
    node.value += 1.0               value[node] = value[node] + 1.0, under all names of the object

Objects are values of the front end as long as that can be. Where it cannot (they are linked to each other by a loop,
changed through a list, or by a function that was given them), all objects of their class have such memory: arrays,
which the lowering hands from statement to statement as it does variables (`heaps.py`). There an object is the number of
its row, so two names of one object are two equal numbers.
"""

from __future__ import annotations

import ast
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from autobatch.errors import SourceError, Span, UnsupportedError
from autobatch.frontend.syntax.scopes import is_cell
from autobatch.frontend.types.values import RecordLayout, holds_containers, without_functions
from autobatch.ir.core import OwnField

if TYPE_CHECKING:
    from autobatch.frontend.types.values import Abstract, Layout

SETS = (set, frozenset)
DICTS = (dict, Counter, defaultdict, OrderedDict, *SETS)
"""The classes of dicts that may have memory; a set has it as a dict whose values say nothing."""


Tag = tuple[Any, frozenset[Any]]
"""A place or key of a record, and the constants of which one is there."""


def record_class(base: type, keys: tuple[Any, ...], tag: Tag | None = None) -> type:
    """The class of the dicts that have these constant keys in this order, or of the lists or tuples that have these
    places, as the class of rows: each key or place is a field (`list_heap.py`). `base`: dict, list or tuple; `tag`:
    what those of the class have in common besides."""
    return _record_class(base, keys, tag)


@cache
def _record_class(base: type, keys: tuple[Any, ...], tag: Tag | None) -> type:
    return type(base.__name__, (base,), {"record_keys": keys, "__module__": "builtins"})


def record_base(cls: type) -> type | None:
    """What records of a class are to Python; None of other classes."""
    return cls.__base__ if "record_keys" in vars(cls) else None


Form = tuple[str, type | None, tuple[Any, ...] | None]
"""The kind of a container, its class, where it has one of its own, and its keys, None where these differ."""

OBJECTS = "autobatch_objects"
"""How the parameters of the entry begin that are all objects which an example has of some classes."""

PREFIX = "<memory of "
"""How the names of variables begin that hold such memory."""


def is_state(name: str) -> bool:
    """Is this a variable that calls and loops may change without naming it: memory, or a cell of inner functions?"""
    return name.startswith(PREFIX) or is_cell(name)


@dataclass(eq=False)
class Heap:
    """The memory of a class, or of lists or dicts that may stand in one place. `layout`: what its objects have in
    common, None while the first one is looked at; of lists, what their elements have, of dicts their pairs. `joined`:
    the memory that this one is a part of, as objects of both were found in one place. `members`: the classes whose
    objects have it; of several, each row says its own (`CLASS` of `ir/core.py`), and there is a column for each
    field of any of them. `forms`: the fields of each class; `own`: the columns of fields that are not those of the same
    name, as objects of other classes hold something else under that name; `tags`: what those of a class hold at one
    place, where that is always one of some constants. `factory`: what gives a `defaultdict` its values. `tagged`: are
    its records of different classes by a constant in them, as `("add", a, b)` is by its string? `untagged`: they cannot
    be, as it is set. `no_record`: why its dicts, of constant keys at first, or lists, of fixed length, are no records.
    `copies`: of what lists of the examples are some of its lists copies, by where these lie? Then it must not matter
    which list is which, as it does where they are `told_apart`: one is changed, or compared by `is`. `adopts`: the
    stores of the examples whose objects may stand where these do, so that each of them has a row as well, from where it
    is read. `may_adopt`: those of which that is possible. `given`: are all objects of each example in it from the start
    (`given_objects.py`)?"""

    name: str
    cls: type
    layout: RecordLayout | None = None
    joined: Heap | None = None
    members: list[type] = field(default_factory=list)
    forms: dict[type, tuple[str, ...]] = field(default_factory=dict)
    own: dict[tuple[type, str], OwnField] = field(default_factory=dict)
    tags: dict[type, Tag | None] = field(default_factory=dict)
    factory: Abstract | None = None
    tagged: bool = False
    untagged: bool = False
    no_record: str = ""
    copies: frozenset[str] = frozenset()
    told_apart: bool = False
    may_adopt: frozenset[str] = frozenset()
    adopts: frozenset[str] = frozenset()
    given: bool = False

    @property
    def whole(self) -> Heap:
        """The memory that this one has become a part of, or itself."""
        return self if self.joined is None else self.joined.whole

    @property
    def is_list(self) -> bool:
        """Are its objects lists, or tuples of any length (`list_heap.py`)?"""
        return self.python_class in (list, tuple)

    @property
    def is_dict(self) -> bool:
        """Are its objects dicts (`container_heap.py`)?"""
        return self.python_class in DICTS

    @property
    def is_set(self) -> bool:
        """Are its objects sets?"""
        return self.cls in SETS

    @property
    def is_record(self) -> bool:
        """Are its objects dicts whose keys are fields, or lists or tuples whose places are (`list_heap.py`)?"""
        return record_base(self.cls) is not None

    @property
    def is_strings(self) -> bool:
        """Are its objects strings, lists of code points?"""
        return self.cls is str

    @property
    def in_segments(self) -> bool:
        """Are its objects lists, dicts or strings, which are as long as they grow?"""
        return (self.is_list or self.is_strings or self.is_dict) and not self.is_record

    @property
    def kind(self) -> str:
        """What its objects are called: list, dict, Counter."""
        return self.cls.__name__

    @property
    def python_class(self) -> type:
        """What `type()` of its objects is: of records `dict`, `list` or `tuple`."""
        return record_base(self.cls) or self.cls

    def column(self, cls: type, name: str) -> str | OwnField:
        """The key of the column of a field."""
        return self.own.get((cls, name), name)

    def field_layouts(self, cls: type) -> dict[str, Layout]:
        """What the fields of a class hold, by name."""
        assert self.layout is not None
        held = dict(zip(self.layout.keys, self.layout.items, strict=True))
        return {name: held[self.column(cls, name)] for name in self.forms.get(cls, ())}

    def fits(self, other: Heap) -> bool:
        """May the two be one memory?"""
        if self is other or self.differ_in_copies(other):
            return self is other
        if self.is_record or other.is_record:
            return self.python_class is other.python_class
        if not (self.in_segments or other.in_segments):
            return True
        made = [x.factory for x in (self, other) if x.factory is not None]
        return self.cls is other.cls and all(x == made[0] for x in made)

    def differ_in_copies(self, other: Heap) -> bool:
        """Has one of the two copies of lists of the examples, which would not do for the other?"""
        return bool(self.copies or other.copies) and (self.told_apart or other.told_apart)

    def join(self, other: Heap) -> None:
        """Take the objects of another memory in. What fields hold is found anew."""
        if self.is_record != other.is_record:
            (plain,) = (x for x in (self, other) if not x.is_record)
            if plain.may_be_record:
                plain.become_record()
            else:
                for one in (self, other):
                    one.give_up_record("one of them may be one whose keys are computed")
        other.joined = self
        if self.tagged != other.tagged:
            self.members, other.members = [], []
        self.tagged, self.untagged = self.tagged or other.tagged, self.untagged or other.untagged
        self.no_record = self.no_record or other.no_record
        self.factory = other.factory if self.factory is None else self.factory
        self.copies, self.told_apart = self.copies | other.copies, self.told_apart or other.told_apart
        self.given = self.given or other.given
        self.may_adopt, self.adopts = self.may_adopt & other.may_adopt, self.adopts | other.adopts
        if not self.in_segments:
            self.members += [c for c in other.members if c not in self.members]
            self.name = self.name if self.is_record else "|".join(c.__name__ for c in self.members)
            self.forget()

    @property
    def may_be_record(self) -> bool:
        """Has it lists of which nothing shows that they cannot be records?"""
        return self.cls is list and not self.no_record and not self.copies

    def become_record(self) -> None:
        """Let its lists be records, until something is done with one that records do not do."""
        self.cls, self.members = record_class(list, ()), []
        self.forget()

    def give_up_record(self, why: str) -> None:
        """Let its dicts be lists of pairs, and its lists of elements of one type."""
        if self.is_record:
            self.cls, self.no_record = self.python_class, why
            self.members = [self.cls]
            self.forget()

    def tag(self, tagged: bool) -> None:
        """Let its records be of different classes by their tags, or not, because these are set."""
        self.tagged, self.untagged, self.members = tagged, not tagged, []
        self.forget()

    def forget(self) -> None:
        """Let what fields hold be found anew."""
        self.layout, self.forms, self.own, self.tags = None, {}, {}, {}

    def forget_functions(self, nodes: Collection[ast.AST]) -> None:
        """Let what it holds of functions with these texts be found anew."""
        left = without_functions(self.layout, nodes) if self.layout is not None else None
        if isinstance(left, RecordLayout):
            self.layout = left
        else:
            self.forget()

    @property
    def variable(self) -> str:
        """The variable that holds it."""
        return f"{PREFIX}{self.name}>"

    @property
    def first(self) -> str:
        """The variable that holds the number of the first object of the example in its columns, where it is `given`
        them."""
        return f"{PREFIX}the first {self.name}>"


def add_heap(heaps: dict[object, Heap], key: object, cls: type) -> Heap:
    """Memory for a class, or for the lists or dicts that an expression makes; under a name unlike all others. Fields
    that hold lists or dicts as values may hold those that have memory from now on."""
    for other in heaps.values():
        if not isinstance(key, type) and other.layout is not None and holds_containers(other.layout):
            other.forget()
    taken = {h.name for h in heaps.values()}
    names = (f"{cls.__name__}{suffix}" for suffix in ("", *(f"_{k}" for k in range(2, len(taken) + 2))))
    made = heaps[key] = Heap(next(n for n in names if n not in taken), cls, members=[cls])
    return made


class NeedsMemory(UnsupportedError):
    """What is refused here is possible where objects of some classes have memory, or some lists, dicts and tuples.
    `sites`: the expressions that make these, and of what class they are; `forms`: what kinds of these, wherever they
    are made."""

    def __init__(
        self,
        classes: Collection[type],
        error: SourceError,
        sites: Mapping[object, type] | None = None,
        forms: Collection[Form] = (),
    ) -> None:
        super().__init__(error.message, error.span, error.cure, error.also)
        self.error = error
        self.classes = (*classes, *(cls for _, cls, _ in forms if cls is not None))
        self.sites = dict(sites or {})
        self.forms = tuple(dict.fromkeys(forms))


class CompilesInMemory(UnsupportedError):
    """Raised where a function compiles, but what structure alone decides is traced in place of giving it memory."""

    @classmethod
    def because(cls, error: UnsupportedError) -> CompilesInMemory:
        return cls(error.message, error.span, error.cure, error.also)


def refused_without_memory(classes: Collection[type], message: str, span: Span, cure: str = "") -> UnsupportedError:
    """What to raise where objects of some classes would have to have memory; of none, an ordinary refusal."""
    error = UnsupportedError(message, span, cure)
    return NeedsMemory(classes, error) if classes else error
