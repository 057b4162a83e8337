"""Python values around IR values: how arguments enter a compiled function, and how its results leave it.

Arguments are ordinary Python objects (tuples, dicts, dataclasses, Equinox modules) whose array leaves are replaced by
`Input`; everything else in them is static. Results are a tree of the classes below with `Output` at the leaves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, assert_never

import numpy as np

from autobatch.ir.core import Type


@dataclass(frozen=True, slots=True)
class Input:
    """A leaf of an argument. `shared`: the same for every example, `index` counts in `Module.shared`; otherwise
    `index` counts the parameters of the entry function. `optional`: a batched array or tag that is None in some
    examples; the entry then takes one bool parameter more, right after it: is it None? `numpy`: it is an array of
    NumPy, whose indices fail where they are out of range; an array of JAX clamps them."""

    index: int
    type: Type
    shared: bool = False
    optional: bool = False
    numpy: bool = False


def is_numpy(value: Any) -> bool:
    """Is it an array or a number of NumPy?"""
    return isinstance(value, (np.ndarray, np.generic))


@dataclass(frozen=True, slots=True)
class Integers:
    """The shared inputs that are integers and bools of Python, by index. `known`: their values in the call at hand,
    which another call of the same program may change. `unknown`: the names of those that JAX traces. `names`: of those
    that are known."""

    known: Mapping[int, int] = field(default_factory=dict)
    unknown: Mapping[int, str] = field(default_factory=dict)
    names: Mapping[int, str] = field(default_factory=dict)

    def on_device(self) -> Integers:
        """The same, where no host looks at any of them."""
        return Integers({}, {**self.unknown, **self.names})


NO_INTEGERS = Integers()


@dataclass(frozen=True, slots=True)
class Output:
    """A leaf of a result: which result of the entry function holds it. `python`: it was a Python number, and
    `ab.unbatch` gives one back."""

    index: int
    type: Type
    python: bool = False


@dataclass(frozen=True, slots=True)
class Container:
    """A tuple, list, dict, NamedTuple, registered pytree or class instance. `keys` are positions, dict keys or field
    names; `kind` is "tuple" | "list" | "mixture" | "dict" | "table" | "namedtuple" | "pytree" | "object". A "pytree"
    keeps its `treedef`. A "list" was written out, and its elements are numbers, or containers of them, of one type; the
    elements of a "mixture", a list too, are not. A "table" is a dict, set or deque, of which its children are the lists
    of its keys and values, or of its elements; an empty one is made of its class and the arguments `given`."""

    kind: str
    children: tuple[Template, ...]
    keys: tuple[Any, ...] = ()
    cls: type | None = None
    treedef: Any = None
    given: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class ListTemplate:
    """A list whose length is known at run time. `element` says what an element is: each output in it is a list, with
    one entry an element. `length`: a result that is a list of that length, whatever it holds. `is_tuple`: it is a
    tuple; `is_array`: an array, whose first axis is that long."""

    element: Template
    length: int
    is_tuple: bool = False
    is_array: bool = False


class ChangedArguments:
    """The class of a result beside the lists that arguments are afterwards, by their names, and what objects of the
    examples are (`ChangedFields`): what the caller gave is changed as the function has changed it."""


@dataclass(frozen=True, slots=True)
class ChangedFields:
    """The key of what objects are afterwards: a tuple of lists, each of all objects that an example has of some kinds,
    or of dicts of their attributes that were set. `names`: those, for each list; `inside`: the attributes whose lists
    were changed; `lists`: the arguments that are lists of such objects, which come behind."""

    names: tuple[tuple[str, ...], ...]
    inside: tuple[tuple[str, ...], ...]
    lists: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OptionalTemplate:
    """A value that is None where the result `missing`, a bool, is true."""

    value: Template
    missing: int


@dataclass(frozen=True, slots=True)
class ChoiceTemplate:
    """A value of one of several types: the result `index` says of which."""

    alternatives: tuple[Template, ...]
    index: int


@dataclass(frozen=True, slots=True)
class Fixed:
    """A static result, the same for every example: None, a string, an enum member, a function."""

    value: Any


@dataclass(frozen=True, slots=True)
class Pointer:
    """An object in the memory of a class: the result at `index` says which row, below zero for None."""

    index: int
    of: str


class OwnField(NamedTuple):
    """A column of a field of objects in memory, as objects of other classes hold something of another sort under that
    name. `member`: the first class that has it, by position."""

    name: Any
    member: int


CLASS, ORIGIN = "<class>", "<origin>"
"""Fields of objects in memory: of several classes, of which of them each is, by position; of a memory that adopts
objects of the examples, the number of that which a row stands for, or -1."""


@dataclass(frozen=True, slots=True)
class HeapTemplate:
    """The memory of a class as the function leaves it: result `count` says how many objects there are, of at most
    `room`, and those at `columns` hold their fields. Each output in `fields` counts the columns. Of lists `segments`
    are the results that say how long each is, and where its elements stand in the columns (`ir/buffers.py`); then
    `fields` has one child, what an element is, or none. `members`: where objects of several classes have
    the memory, what those of each class are, with the fields that they have; the field `CLASS` says which it is."""

    name: str
    count: int
    columns: tuple[int, ...]
    fields: Container
    room: int
    segments: tuple[int, ...] = ()
    members: tuple[Container, ...] = ()


@dataclass(frozen=True, slots=True)
class MadeTemplate:
    """What the objects of a class that the program makes are. Each output in `fields` counts the operands of the
    operation `make` whose class this is."""

    name: str
    fields: Container


Template = Output | Container | ListTemplate | OptionalTemplate | ChoiceTemplate | Fixed | Pointer


def outputs(template: Template) -> Iterator[Output]:
    """The results that a template is made of."""
    match template:
        case Output():
            yield template
        case Container(children=children) | ChoiceTemplate(alternatives=children):
            for child in children:
                yield from outputs(child)
        case ListTemplate(element=inner) | OptionalTemplate(value=inner):
            yield from outputs(inner)
        case _:
            pass


def renumbered(template: Template, places: Sequence[int]) -> Template:
    """The same template where result k of the function is at `places[k]` among those that the program computes."""
    return _RenumberedTemplate(places).of(template)


class _RenumberedTemplate:
    def __init__(self, places: Sequence[int]) -> None:
        self.places = places
        self.made: dict[int, Container] = {}

    def of(self, template: Template) -> Template:
        match template:
            case Output(index=index):
                return replace(template, index=self.places[index])
            case Container(children=children):
                if id(template) not in self.made:  # what stands twice is one object
                    self.made[id(template)] = replace(template, children=tuple(map(self.of, children)))
                return self.made[id(template)]
            case ListTemplate(element=element, length=length):
                return replace(template, element=self.of(element), length=self.places[length])
            case OptionalTemplate(value=value, missing=missing):
                return OptionalTemplate(self.of(value), self.places[missing])
            case ChoiceTemplate(alternatives=alternatives, index=index):
                return ChoiceTemplate(tuple(map(self.of, alternatives)), self.places[index])
            case Pointer(index=index, of=of):
                return Pointer(self.places[index], of)
            case Fixed():
                return template
            case _:
                assert_never(template)


def heap_renumbered(heap: HeapTemplate, places: Sequence[int]) -> HeapTemplate:
    """The same for the memory of a class."""
    columns, segments = (tuple(places[k] for k in held) for held in (heap.columns, heap.segments))
    return replace(heap, count=places[heap.count], columns=columns, segments=segments)
