"""Memory for objects, one column for each number of a field and one row for each object; aliasing of containers.

    node = Node(y, node)            <memory of Node> = (count, value[32], next[32]);  node is the row `count`
    node.value += 1.0               value[node] = value[node] + 1.0, under all names of the object

Objects are values of the front end as long as that can be. Where it cannot (they are linked to each other by a loop,
changed through a list, or by a function that was given them), all objects of their class have such memory: arrays,
which the lowering passes from statement to statement as it does variables (`heaps.py`). There an object is the number
of its row, so two names of one object are two equal numbers.

Containers that the function builds are values, and a change makes a new one. So it is known which of them may be one:

    row = m[0]; row.append(1)         m would have to change too
    c = a if test else b; c.n += 1    a or b would have to change too

Every container has *roots*: the objects that it may be. A changed one keeps those of what it was, one behind a branch
has those of both arms. What is read of a list whose items are columns has, beside, the roots of its *holders*: that
list, and those that have items in common with it, which it has *kept*. What is put into such a list is noted by its
roots, under all its names. What may be held by something else that is still there is not changed (`rebinding.py`).

    x = C(); q = [C(k) for k in ks]; q.append(x)      q holds what x is
    r = [c for c in q if c.n > 0]; y = r[0]           r has kept items of q, so y is held by r and by q
    z = q.pop()                                       z is held by r still, and may be y
"""

from __future__ import annotations

import ast
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any, TypeGuard

from autobatch.errors import SourceError, Span, UnsupportedError
from autobatch.frontend.syntax.scopes import is_cell
from autobatch.frontend.types import values as v
from autobatch.frontend.types.values import RecordLayout, describe, holds_containers, without_functions
from autobatch.ir.core import Array, List, OwnField

if TYPE_CHECKING:
    from autobatch.frontend.types.values import Abstract, Layout

# ---- memory


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
    (`object_graphs.py`)?"""

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


def refused_field(heap: Heap, key: str, field: Layout) -> tuple[str, str]:
    """What to refuse, and the cure, where memory cannot hold what a field, element, key or value is."""
    cure = "keep numbers, arrays, and such lists, dicts and objects in them"
    if heap.is_record:
        kind, place = ("dicts", f"key {key!r}") if heap.is_dict else ("lists", f"element {key}")
        return f"{kind} that other containers hold are changed, and their {place} holds {describe(field)}", cure
    if heap.is_dict and isinstance(field, RecordLayout):
        found, value = map(describe, field.items)
        words = f"dicts that other containers hold are changed, with keys of {found}, values of {value}"
        if not heap.no_record:
            return words, cure
        return f"{words}; {heap.no_record}", "make such a dict with all its keys at once, each a constant string"
    if heap.in_segments:
        return f"lists that other containers hold are changed, and hold {describe(field)}", cure
    return (
        f"objects of {heap.name} are changed or linked under control that numbers decide, and their field {key!r} "
        f"holds {describe(field)}",
        "keep numbers, arrays, strings and other such objects in them: of a node of an example its number",
    )


# ---- aliasing of containers


MEMORY = 0
"""The holder that memory is, which is there to the end."""


Roots = frozenset[int]
NONE: Roots = frozenset()


@dataclass(frozen=True)
class Kin:
    """What a container may be, and lists that it is an item of. `kept`: of a list, other lists whose items it may have.
    `value` keeps its identity from being given again."""

    value: v.Abstract
    roots: Roots
    holders: Roots = NONE
    kept: Roots = NONE

    @property
    def lists(self) -> Roots:
        """All lists whose items this one may have."""
        return self.roots | self.kept


IS, IN, HAS, WITH = range(4)
"""How a container may be kin to another: it is that one, an item of it, holds it, or has items that it has too."""


@dataclass(frozen=True)
class ReturnedIdentity:
    """What the result of a function may be and hold. `forms`: those of its containers. `kinships`: the number of such a
    one, of what kind it is kin to another, and the number of that one, counted through all that the function was given
    and then the result; memory is -1. A result that comes to other forms has all of these kinships everywhere."""

    forms: tuple[str, ...] = ()
    kinships: frozenset[tuple[int, int, int]] = frozenset()

    def joined(self, other: ReturnedIdentity) -> ReturnedIdentity:
        return ReturnedIdentity(other.forms, self.kinships | other.kinships)


class Identities:
    """The kin of containers, by identity."""

    def __init__(self) -> None:
        self._kin: dict[int, Kin] = {}
        self._held: dict[int, Roots] = {}
        self._views: dict[int, tuple[v.Abstract, v.Abstract]] = {}
        self._like_sets: set[int] = set()

    def of(self, value: v.Abstract) -> Kin:
        found = self._kin.get(id(value))
        if found is None:
            found = self._kin[id(value)] = Kin(value, frozenset({id(value)}))
        return found

    def holders(self, value: v.Abstract) -> Roots:
        """The lists that may hold a container."""
        kin = self.of(value)
        return kin.holders.union(*(self._held.get(r, NONE) for r in kin.roots))

    def collected(
        self, made: v.Listing | v.Lazy, items: Iterable[v.Abstract], others: Iterable[v.Abstract] = ()
    ) -> None:
        """Note that a list has been made of these items, or of values like them. What `others` are, or lists hold, it
        may hold twice."""
        mine, kept = self.of(made).roots, NONE
        outer = NONE.union(*(self.of(x).roots for other in others for x in containers(other)))
        for part in (x for item in items for x in containers(item)):
            roots, holders = self.of(part).roots, self.holders(part)
            kept |= holders
            if holders or roots & outer:
                kept |= mine
            for root in roots:
                self._held[root] = self._held.get(root, NONE) | mine
        self._keep(made, kept)

    def joined(self, made: v.Listing | v.Lazy, *parts: v.Abstract) -> None:
        """Note that a list has been made of the items of other lists."""
        kept = NONE
        for part in parts:
            if isinstance(part, v.Record):
                self.collected(made, part.items)
                lists = NONE.union(*(self.holders(x) for item in part.items for x in containers(item)))
            else:
                lists = self.of(part).lists if _is_container(part) else NONE
            if kept & lists:
                kept |= self.of(made).roots
            kept |= lists - self.of(made).roots
        self._keep(made, kept)

    def _keep(self, made: v.Abstract, kept: Roots) -> None:
        kin = self.of(made)
        self._kin[id(made)] = replace(kin, kept=kin.kept | kept)

    def changed(self, new: v.Abstract, old: v.Abstract, added: Sequence[v.Abstract]) -> None:
        """Note that a list has become another one, of its own items and of these: each stands there once, unless it is
        added again."""
        for part, before in ((new, old), *_columns_of(new, old)):
            if isinstance(part, v.Listing):
                kin, known = self.of(part), self.of(before)
                seen = [self.holders(x) | self.of(x).lists for item in added for x in containers(item)]
                again = any(known.lists & x for x in seen)
                kept = kin.kept if again else kin.kept - known.roots | known.kept
                self._kin[id(part)] = replace(kin, kept=kept)

    def view(self, value: v.Abstract, whole: v.Abstract, of_set: bool = False) -> v.Abstract:
        """Note that a value shows what a dict holds, also what it will hold; the value. `of_set`: as a set does."""
        self._views[id(value)] = (value, whole)
        if of_set:
            self._like_sets.add(id(value))
        return value

    def is_like_a_set(self, value: v.Abstract) -> bool:
        """Is it what `keys()` or `items()` of a dict gave?"""
        return id(value) in self._like_sets

    def is_view(self, value: v.Abstract, whole: v.Abstract) -> bool:
        """May a value be a view of this dict, or hold one?"""
        if isinstance(value, v.Record) and value.kind != "table":
            return any(self.is_view(x, whole) for x in value.items) or self._shows(value, whole)
        return self._shows(value, whole)

    def _shows(self, value: v.Abstract, whole: v.Abstract) -> bool:
        found = self._views.get(id(value))
        return found is not None and not self.of(found[1]).roots.isdisjoint(self.of(whole).roots)

    def item(self, holder: v.Abstract, value: v.Abstract) -> None:
        """Note that a value is an item of a list, or a part of one."""
        held = self.of(holder).lists
        for part in containers(value):
            kin = self.of(part)
            self._kin[id(part)] = replace(kin, holders=kin.holders | held)

    def taken_out(self, value: v.Abstract, lists: Sequence[v.Abstract], others: Iterable[v.Abstract]) -> None:
        """Note that a value is an item no more, of what was all of these. `others`, of which some were read as items of
        that too, may be the same."""
        were, kept = NONE.union(*(self.of(x).roots for x in lists)), NONE.union(*(self.of(x).kept for x in lists))
        beside = [x for other in others for x in containers(other)]
        left = were if were & kept else NONE  # it may stand there twice
        for x in beside:
            kin = self.of(x)
            if _form(x) == "list" and not kin.roots & were and kin.lists & (were | kept):
                left |= kin.roots
        for part in containers(value):
            kin = self.of(part)
            self._kin[id(part)] = replace(kin, roots=kin.roots - were or frozenset({id(part)}), holders=left)
            for x in beside:
                if x is not part and _form(x) == _form(part) and were & self.holders(x):
                    self._relate(part, x)

    def renewed(self, new: v.Abstract, old: v.Abstract, added: Sequence[v.Abstract]) -> None:
        """Note that a function of ours has made a list, which nothing else is or holds, of the items of another one and
        of these."""
        self._kin[id(new)] = Kin(new, frozenset({id(new)}), kept=self.of(old).lists)
        if isinstance(new, v.Listing):
            self.collected(new, [*(old.items if isinstance(old, v.Record) else ()), *added])
            self.changed(new, old, added)

    def stored(self, value: v.Abstract) -> None:
        """Note that memory of objects or lists holds a value, or has held it (`heap.py`)."""
        for part in containers(value):
            for root in self.of(part).roots:
                self._held[root] = self._held.get(root, NONE) | {MEMORY}

    def is_stored(self, value: v.Abstract) -> bool:
        """May memory hold a value, or a part of it?"""
        return any(MEMORY in self.holders(x) for x in containers(value))

    def same(self, new: v.Abstract, *olds: v.Abstract) -> None:
        """Note that a value is one of others, at another point of the program, and so are its parts."""
        olds = tuple(x.value if isinstance(x, v.Optional) else x for x in olds)
        match new:
            case v.Optional(value=inner):
                self.same(inner, *olds)
            case v.Leaf() if is_array(new):
                self._join(new, [x for x in olds if is_array(x)])
            case v.Listing():
                self._join(new, [x for x in olds if _is_container(x) or is_array(x)])
                self.joined(new, *(x for x in olds if isinstance(x, v.Record) and x.kind in ("list", "tuple")))
            case v.Record(keys=keys, items=items):
                if _is_container(new):
                    self._join(new, [x for x in olds if _is_container(x)])
                records = [x for x in olds if isinstance(x, v.Record)]
                for key, item in zip(keys, items, strict=True):
                    self.same(item, *(part for x in records if (part := x.get(key)) is not None))
                    if new.kind == "table" and isinstance(item, v.Listing):
                        self.collected(item, (part for x in records if x.kind == "dict" for part in x.items))

    def successor(self, new: v.Abstract, old: v.Abstract) -> None:
        """Note that a container has been changed."""
        self._join(new, [old])
        for part, before in _columns_of(new, old):
            self._join(part, [before])

    def _join(self, new: v.Abstract, olds: Sequence[v.Abstract]) -> None:
        self._kin[id(new)] = _together(new, [self.of(x) for x in (new, *olds)])

    def may_share(self, a: v.Abstract, b: v.Abstract) -> bool:
        """May the two hold one object?"""
        return any(self._may_be_one(x, y) for x in _seen(a) for y in _seen(b))

    def may_be_one(self, a: v.Abstract, b: v.Abstract) -> bool:
        """May the two be one object, where they are containers?"""
        return not (_is_container(a) and _is_container(b)) or self._may_be_one(a, b)

    def _may_be_one(self, x: v.Abstract, y: v.Abstract) -> bool:
        if _kind(x) != _kind(y):
            return False
        ours, theirs = self.of(x), self.of(y)
        return bool(ours.roots & theirs.roots or ours.holders & self.holders(y) or theirs.holders & self.holders(x))

    def may_have_same(self, a: v.Abstract, b: v.Abstract) -> bool:
        """May lists in the two have items in common?"""
        ours, theirs = ([self.of(x).lists for x in _seen(y) if _form(x) == "list"] for y in (a, b))
        return any(x & y for x in ours for y in theirs)

    def have_same(self, a: v.Abstract, b: v.Abstract) -> None:
        """Note that lists in the two may have items in common."""
        ours, theirs = ([x for x in _seen(y) if _form(x) == "list"] for y in (a, b))
        kept = NONE.union(*(self.of(x).lists for x in (*ours, *theirs)))
        for x in (*ours, *theirs):
            kin = self.of(x)
            self._kin[id(x)] = replace(kin, kept=kin.kept | (kept - kin.roots))

    def may_be_in(self, a: v.Abstract, b: v.Abstract) -> bool:
        """May a list in the second hold something that the first holds?"""
        lists = NONE.union(*(self.of(x).lists for x in containers(b)))
        return any(lists & self.holders(x) for x in _seen(a))

    def relate(self, a: v.Abstract, b: v.Abstract) -> None:
        """Note that two values may hold one object."""
        for x in _seen(a):
            for y in _seen(b):
                self._relate(x, y)

    def relate_parts(self, a: v.Abstract, b: v.Abstract) -> None:
        """The same of two that are not one themselves."""
        for x in _seen(a):
            for y in _seen(b):
                if x is not a or y is not b:
                    self._relate(x, y)

    def _relate(self, x: v.Abstract, y: v.Abstract) -> None:
        if x is not y and _kind(x) == _kind(y):
            kins = self.of(x), self.of(y)
            for part in (x, y):
                self._kin[id(part)] = _together(part, kins)

    def hold(self, a: v.Abstract, b: v.Abstract) -> None:
        """Note that lists in the second may hold what the first holds."""
        for part in _seen(a):
            kin = self.of(part)
            self._kin[id(part)] = replace(kin, holders=kin.holders | self._roots(b))

    def _roots(self, value: v.Abstract) -> frozenset[int]:
        return NONE.union(*(self.of(x).roots for x in _seen(value)))

    def may_be_held(self, value: v.Abstract, others: Iterable[v.Abstract]) -> bool:
        """May a container be one of these values or a part of them, or may a list among them hold it? (An object that
        was taken out of a list may be what that list held, but not the list itself.)"""
        roots, holders, form = self.of(value).roots, self.holders(value), _form(value)
        if MEMORY in holders:
            return True
        seen = [(x, self.of(x)) for other in others for x in containers(other)]
        return any(kin.lists & holders or (kin.roots & roots and _form(x) == form) for x, kin in seen)

    def returned(self, result: v.Abstract, given: Iterable[v.Abstract]) -> ReturnedIdentity:
        """What the result of a function may be, which was given some values."""
        parts, others = list(_passed(result)), [x for value in given for x in _passed(value)]
        found = {(k, IN, -1) for k, x in enumerate(parts) if MEMORY in self.holders(x)}
        for k, x in enumerate(parts):
            for n, y in enumerate((*others, *parts)):
                if n != k + len(others):
                    found |= {(k, kind, n) for kind in self._kinships(x, y)}
        return ReturnedIdentity(tuple(map(_form, parts)), frozenset(found))

    def _kinships(self, x: v.Abstract, y: v.Abstract) -> Iterator[int]:
        if self._may_be_one(x, y):
            yield IS
        if self.of(y).lists & self.holders(x):
            yield IN
        if self.of(x).lists & self.holders(y):
            yield HAS
        if _form(x) == _form(y) == "list" and self.of(x).lists & self.of(y).lists:
            yield WITH

    def related(self, given: Sequence[v.Abstract]) -> frozenset[tuple[int, int]]:
        """Which of some values may be one container, or hold one, by their places; one value with itself, if parts of
        it may."""
        parts = [(k, x) for k, value in enumerate(given) for x in _passed(value)]
        return frozenset(
            (j, k) for n, (j, x) in enumerate(parts) for k, y in parts[:n] if any(True for _ in self._kinships(x, y))
        )

    def relate_given(self, given: Sequence[v.Abstract], related: Iterable[tuple[int, int]]) -> None:
        """Note what a function is given, of which these may be one container, or hold one."""
        for j, k in ((j, k) for j, k in related if max(j, k) < len(given)):
            for x in _passed(given[j]):
                for y in _passed(given[k]):
                    if x is not y:
                        self._relate(x, y)
                        self._note_kin(x, IN, y)
                        self._note_kin(y, IN, x)

    def from_call(self, result: v.Abstract, returned: ReturnedIdentity, given: Iterable[v.Abstract]) -> None:
        """Note what the result of a call may be, and its parts."""
        parts, others = list(_passed(result)), [x for value in given for x in _passed(value)]
        exact = returned.forms == tuple(map(_form, parts))
        for k, kind, n in sorted(returned.kinships):
            kin = [*others, *parts][n : n + 1] if exact or n < len(others) else parts
            for x in parts[k : k + 1] if exact else parts:
                if n < 0:
                    self.stored(x)
                else:
                    for y in kin:
                        self._note_kin(x, kind, y)

    def _note_kin(self, x: v.Abstract, kind: int, y: v.Abstract) -> None:
        ours, theirs = self.of(x), self.of(y)
        if kind == IS:
            self._relate(x, y)
        elif kind == IN:
            self._kin[id(x)] = replace(ours, holders=ours.holders | theirs.lists)
        elif kind == HAS:
            for root in theirs.roots:
                self._held[root] = self._held.get(root, NONE) | ours.roots
        else:
            self._kin[id(x)] = replace(ours, kept=ours.kept | theirs.lists - ours.roots)


def _columns_of(new: v.Abstract, old: v.Abstract) -> list[tuple[v.Abstract, v.Abstract]]:
    """The lists that a dict or deque has, beside what they were."""
    if not (isinstance(new, v.Record) and isinstance(old, v.Record) and new.kind == old.kind == "table"):
        return []
    pairs = ((x, old.get(k)) for k, x in zip(new.keys, new.items, strict=True))
    return [(x, y) for x, y in pairs if isinstance(x, v.Listing) and y is not None and x is not y]


def _together(value: v.Abstract, kins: Sequence[Kin]) -> Kin:
    """What is known of a container that may be what several others are."""
    parts = ((k.roots, k.holders, k.kept) for k in kins)
    return Kin(value, *(NONE.union(*x) for x in zip(*parts, strict=True)))


def _seen(value: v.Abstract) -> Iterator[v.Abstract]:
    """As `containers`, without the columns of tables, which nobody else sees."""
    columns = _columns(value)
    return (x for x in containers(value) if id(x) not in columns)


def _passed(value: v.Abstract) -> Iterator[v.Abstract]:
    """As `containers`, without arrays of a fixed shape, which calls pass by value."""
    return (x for x in containers(value) if not isinstance(x, v.Leaf))


def _columns(value: v.Abstract) -> set[int]:
    match value:
        case v.Record(kind=kind, items=items):
            own = {id(x) for x in items} if kind == "table" else set()
            return own.union(*map(_columns, items))
        case v.Optional(value=inner):
            return _columns(inner)
        case _:
            return set()


def _kind(value: v.Abstract) -> object:
    """What kind of container it is: those of two kinds are never one."""
    return (value.kind, value.cls) if isinstance(value, v.Record) and value.kind != "list" else _form(value)


def _form(value: v.Abstract) -> str:
    """What a container is: a list, an array, an object, or one of those that are found by keys. It stays that."""
    if not isinstance(value, v.Record):
        return "array" if isinstance(value, v.Leaf) else "list"
    return value.kind if value.kind in ("list", "object") else "table"


def _is_container(value: v.Abstract) -> bool:
    match value:
        case v.Listing() | v.Lazy(is_list=True) | v.Lazy(is_tuple=True):
            return True
        case v.Record(kind=kind):
            return kind in _MUTABLE
        case _:
            return is_array(value)


_MUTABLE = ("list", "dict", "table", "object")


def containers(value: v.Abstract) -> Iterator[v.Abstract]:
    """The lists, dicts, objects and arrays that a value is or holds; items of lists that a comprehension made left
    out."""
    match value:
        case v.Record(kind=kind, items=items):
            if kind in _MUTABLE:
                yield value
            for item in items:
                yield from containers(item)
        case v.Listing() | v.Lazy(is_list=True) | v.Lazy(is_tuple=True):
            yield value
        case v.Leaf() if is_array(value):
            yield value
        case v.Optional(value=inner):
            yield from containers(inner)
        case v.LocalFunction(captured=captured):
            for _, held in captured or ():
                yield from containers(held)
        case v.Method(receiver=receiver):
            yield from containers(receiver)


# ---- list sites
#
# Which expressions make the lists and dicts that other containers hold.
#
#     buckets = [[] for _ in range(3)]      the inner `[]` makes a list that a list holds
#     buckets[k % 3].append(y)              which is changed there: all lists that are held have memory from here on
#
# Lists are values as long as they are changed through variables alone. What another container holds is changed under
# two names, so such lists have memory (`list_heap.py`), from where they are made: by the expression, which is their
# *site*. So it is with dicts (`container_heap.py`). Where dicts have memory, lists that are held have it too; where
# lists have it, dicts stay values until one of them is changed.


class Sites:
    """What one round of the lowering has seen: by identity, the lists and the expressions that made them; those that
    containers hold, and those that functions were lent."""

    def __init__(self, identities: Identities) -> None:
        self._identities = identities
        self._made: dict[int, tuple[v.Abstract, object]] = {}
        self._held: list[v.Abstract] = []
        self._lent: list[v.Abstract] = []
        self._arrays: list[v.Abstract] = []
        self._parts: dict[int, tuple[v.Abstract, v.Abstract]] = {}
        self._views: dict[int, tuple[v.Abstract, Array]] = {}

    def made(self, value: v.Abstract, site: object) -> None:
        """Note that an expression has made a list; one that is known stays its own."""
        self._made.setdefault(id(value), (value, site))

    def is_made(self, value: v.Abstract) -> bool:
        """Is it what an expression has made, and not one of several behind a branch?"""
        return id(value) in self._made

    def makers(self, value: v.Abstract) -> set[object]:
        """The expressions that may have made a container: an object of an argument, of which nothing is known, all that
        make such ones."""
        roots = self._identities.of(value).roots
        found = {site for r, (_, site) in self._made.items() if r in roots}
        if found or not isinstance(value, v.Record):
            return found
        alike = [(x, site) for x, site in self._made.values() if isinstance(x, v.Record) and x.cls is value.cls]
        return {site for x, site in alike if (x.kind == "tuple") is (value.kind == "tuple")}

    def part(self, part: v.Abstract, whole: v.Abstract) -> v.Abstract:
        """Note that an array is a part of another one, which is a value; the part."""
        if is_array(part):
            self._parts[id(part)] = (part, whole)
        return part

    def view(self, array: v.Abstract, type: Array) -> None:
        """Note that an array of a fixed shape, a value, would share its memory with one of a type in NumPy."""
        self._views[id(array)] = (array, type)

    def viewed(self, array: v.Abstract) -> set[Array]:
        """The types of the arrays that one, or what it may be at another point of the program, is a view of."""
        roots = {id(array), *self._identities.of(array).roots}
        return {self._views[r][1] for r in roots if r in self._views}

    def is_part(self, array: v.Abstract) -> bool:
        return id(array) in self._parts

    def is_part_of_dynamic(self, array: v.Abstract) -> bool:
        """Is it a part, read as a value, of an array that has memory (`dynamic_arrays.py`)?"""
        return id(array) in self._parts and not is_array(self.whole(array))

    def whole(self, array: v.Abstract) -> v.Abstract:
        """The array that one is a part of, or the part of a part."""
        while id(array) in self._parts:
            array = self._parts[id(array)][1]
        return array

    def is_part_of(self, value: v.Abstract, array: v.Abstract) -> bool:
        """Is it, or holds it, a part of an array?"""
        if isinstance(value, v.Record):
            return any(self.is_part_of(x, array) for x in value.items)
        while id(value) in self._parts:
            value = self._parts[id(value)][1]
            if value is array:
                return True
        return False

    def array_makers(self, array: v.Abstract) -> set[object]:
        """The expressions that may have made an array which is a value, or what it is a part of; of an argument, those
        of all that functions were given."""
        while id(array) in self._parts:
            array = self._parts[id(array)][1]
        return self.makers(array) or {site for x in self._arrays for site in self.makers(x)}

    def hold(self, value: v.Abstract) -> list[v.Abstract]:
        """Note that a container holds a value; the lists in it."""
        found = list(_lists(value))
        self._held += found
        return found

    def lend(self, value: v.Abstract) -> None:
        """Note that a function is given a value."""
        self._lent += _lists(value)
        self.pass_arrays(value)

    def pass_arrays(self, value: v.Abstract) -> None:
        """Note that a function sees a value, for the arrays in it."""
        self._arrays += (x for x in containers(value) if isinstance(x, v.Listing) and x.array)

    def of(self, values: Iterable[v.Abstract], known: dict[object, Heap], dicts: bool) -> dict[object, type]:
        """The expressions that may have made some lists, in order, with their classes; those without memory. `dicts`:
        those of dicts too."""
        roots = {r for x in values for r in (id(x), *self._identities.of(x).roots)}
        found = {site: class_of(value) for r, (value, site) in self._made.items() if r in roots}
        return {site: cls for site, cls in found.items() if site not in known and (dicts or cls in (list, tuple))}

    def of_forms(self, forms: Collection[Form], known: dict[object, Heap]) -> dict[object, type]:
        """The expressions that have made containers of some kinds, with their classes; those without memory."""
        made = ((x, site) for x, site in self._made.values() if isinstance(x, v.Record) and site not in known)
        return {site: class_of(x) for x, site in made if {(x.kind, x.cls, k) for k in (x.keys, None)} & {*forms}}

    def may_be_given(self, value: v.Abstract) -> bool:
        """May this list be one of the examples? One that a display or the like has made is none; what is behind a
        branch, in a loop, or comes of a call or a list, may be either."""
        _, site = self._made.get(id(value), (value, None))
        return not isinstance(site, ast.List | ast.ListComp | ast.BinOp)

    def needed(self, known: dict[object, Heap], lent: bool = False, dicts: bool = False) -> dict[object, type]:
        """The expressions whose lists have no memory and are held. `lent`: or that functions were given; `dicts`: those
        of dicts too."""
        return self.of([*self._held, *(self._lent if lent else ())], known, dicts or dicts_have_memory(known))

    def refused(
        self, known: dict[object, Heap], error: UnsupportedError, lent: bool = False, dicts: bool = False
    ) -> UnsupportedError:
        """What to raise where a list or dict that is held is changed."""
        sites = self.needed(known, lent, dicts)
        return NeedsMemory((), error, sites) if sites else error


def dicts_have_memory(known: dict[object, Heap]) -> bool:
    """Have some dicts memory?"""
    return any(heap.is_dict for heap in known.values())


def class_of(value: v.Abstract) -> type:
    """The class of a list or dict that may have memory."""
    if is_set_value(value):
        cls = type(value.value) if isinstance(value, v.Static) else value.cls if isinstance(value, v.Record) else None
        return cls or set
    if isinstance(value, v.Record) and value.kind == "tuple":
        return record_class(tuple, value.keys)
    if not is_dict_value(value):
        return tuple if isinstance(value, v.Listing) and value.is_tuple else list
    assert isinstance(value, v.Record)
    if value.kind == "dict" and value.keys and all(type(k) is str for k in value.keys):
        return record_class(dict, value.keys)
    return value.cls or dict


def is_list(value: v.Abstract) -> bool:
    """Is it a list that the function builds, which is a value?"""
    return (isinstance(value, v.Listing) and not value.array) or (isinstance(value, v.Record) and value.kind == "list")


def is_array(value: v.Abstract) -> bool:
    """Is it an array of NumPy that the function makes, and that is a value?"""
    if isinstance(value, v.Listing):
        return value.array
    return isinstance(value, v.Leaf) and isinstance(value.type, Array) and bool(value.type.shape and value.numpy)


def is_given(value: v.Abstract) -> TypeGuard[v.Leaf]:
    """Is it a list of the examples?"""
    return isinstance(value, v.Leaf) and isinstance(value.type, List) and value.type.store is not None


def is_dict_value(value: v.Abstract) -> bool:
    """Is it a dict or set that the function builds, which is a value, of a class that may have memory?"""
    if is_set_value(value):
        return True
    if not isinstance(value, v.Record) or (value.cls or dict) not in DICTS:
        return False
    return value.kind == "dict" or (value.kind == "table" and "values" in value.keys)


def is_set_value(value: v.Abstract) -> bool:
    """Is it a set that the function builds, which is a value?"""
    if isinstance(value, v.Static):
        return type(value.value) in SETS
    return isinstance(value, v.Record) and value.kind == "table" and value.cls in SETS


def _sets_of_constants(value: v.Abstract) -> Iterator[v.Abstract]:
    if isinstance(value, v.Static) and is_set_value(value):
        yield value
    elif isinstance(value, v.Record):
        for item in value.items:
            yield from _sets_of_constants(item)
    elif isinstance(value, v.Optional):
        yield from _sets_of_constants(value.value)


def _lists(value: v.Abstract) -> Iterator[v.Abstract]:
    if isinstance(value, v.Lazy):
        yield value
    yield from _sets_of_constants(value)
    yield from (x for x in containers(value) if is_list(x) or is_dict_value(x))
