"""What the front end knows about a Python value while it lowers a function: the abstract values.

A value is *static* (a Python object known while compiling), a *leaf* of the program (number, tag, reference, list), or
built from other values (tuple, dict, dataclass, bound method, local function). Only leaves exist in the IR; their
operands, in the order of `leaves`, are what crosses a join, a loop or a call. See `layouts.py` for their types.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from autobatch.common.record import record
from autobatch.errors import Span
from autobatch.frontend.syntax.scopes import shown
from autobatch.frontend.types.statics import Kind
from autobatch.ir.core import Operand, Type
from autobatch.ir.ops import same_constant

if TYPE_CHECKING:
    from autobatch.frontend.memory.heap import Heap
    from autobatch.frontend.syntax.sources import FunctionSource
    from autobatch.frontend.types.layouts import Layout


@record
class FreeOrigin:
    """Where a free value was read: `owner` is the function, `name` the variable, `path` the way from there."""

    owner: Any
    name: str
    path: tuple[Any, ...] = ()

    def child(self, key: Any) -> FreeOrigin:
        return FreeOrigin(self.owner, self.name, (*self.path, key))


@record
class Static:
    """A Python object known while compiling. It may hold `Input` leaves (shared parameters)."""

    value: Any
    origin: FreeOrigin | None = field(default=None, compare=False)

    def __eq__(self, other: object) -> bool:
        return same_constant(self.value, other.value) if isinstance(other, Static) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.value)


@record
class Leaf:
    """A number, array, tag, reference or list of the program. `classes` narrows a reference that a method was called
    on to the positions of the classes which have that method. `numpy`: is it an array of NumPy, whose indices fail
    where they are out of range? None: no, whatever the arguments of the call are."""

    operand: Operand
    classes: frozenset[int] | None = None
    numpy: bool | None = None

    @property
    def type(self) -> Type:
        return self.operand.type


@record
class Optional:
    """A value that is None (or, for `unset`, not assigned) where `missing` is true; any other use checks that."""

    value: Abstract
    missing: Operand
    unset: str = ""


@record
class Record:
    """A container built in the function, or an argument that holds batched leaves."""

    kind: Kind
    keys: tuple[Any, ...]
    items: tuple[Abstract, ...]
    cls: type | None = None
    treedef: Any = None

    def get(self, key: Any) -> Abstract | None:
        return dict(zip(self.keys, self.items, strict=True)).get(key)


@record
class Listing:
    """A list made by a comprehension: one IR list for each leaf of its elements, all of one length. `array`: it was
    stacked, and behaves as an array whose first axis is as long as the list. `is_tuple`: it is a tuple, which behaves
    as a list that nobody changes."""

    lists: tuple[Operand, ...]
    elem: Layout
    array: bool = False
    is_tuple: bool = False

    @property
    def cls(self) -> type:
        return tuple if self.is_tuple else list


@dataclass(frozen=True, slots=True, eq=False)
class Lazy:
    """A sequence that is not stored: `range`, `enumerate`, `zip`, `reversed`, slices, rows of arrays. `item` takes an
    index already known to be in range. `live`: how long it is at another point of the program; None: always so long.
    `dicts`: those in memory that it runs over, whose keys a loop over it may not change. `is_tuple`: it is a part of a
    tuple, and a tuple where it is stored; `is_list`: of a list, and so a list of its own. `range`: start, stop and
    step, where it is one."""

    length: Abstract
    item: Callable[[Any, Abstract], Abstract]
    live: Callable[[Any], Abstract] | None = None
    dicts: tuple[MemoryRow, ...] = ()
    is_tuple: bool = False
    is_list: bool = False
    range: tuple[Abstract, Abstract, Abstract] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Generator:
    """What a call of a generator function gives: nothing of it has run. A loop over it runs inside its text
    (`generators.py`). `captured`: as in `LocalFunction`; `local`: was it one?"""

    source: FunctionSource
    arguments: tuple[tuple[str, Abstract], ...]
    captured: tuple[tuple[str, Abstract], ...] | None = None
    local: bool = False


@record
class LocalFunction:
    """A `def` or `lambda` inside a lowered function. `captured` are the enclosing variables it reads (None: not
    captured yet, it belongs to the scope at hand)."""

    source: FunctionSource
    defaults: tuple[tuple[str, Abstract], ...]
    captured: tuple[tuple[str, Abstract], ...] | None = None


@record
class Method:
    """A function bound to its first argument."""

    function: Abstract
    receiver: Abstract
    name: str = ""


@record
class Choice:
    """One of several values that do not fit into one type (functions in a table), picked by an integer."""

    index: Operand
    alternatives: tuple[Abstract, ...]


@record
class MemoryRow:
    """An object of the memory that each example has for itself: its row there (`heap.py`), below zero where it is None.
    `null`: may it be? `classes`: those that it may have, as positions in the memory's; None: any of them. `own`: is it
    a list that the function has made, and so no copy of one of the examples? `bound`: the classes that it may have, as
    a method of some was read of it: calls hand that on, which they do not `classes`."""

    operand: Operand
    heap: Heap
    null: bool = False
    classes: frozenset[int] | None = None
    own: bool = False
    bound: frozenset[type] | None = None


@record
class Unset:
    """A variable that no path so far has assigned."""

    name: str = ""


Abstract = (
    Static | Leaf | Optional | Record | Listing | Lazy | Generator | LocalFunction | Method | Choice | MemoryRow | Unset
)


@record
class BoundVariable:
    """A variable: its value and where it was assigned."""

    value: Abstract
    span: Span


SUPER = "<super>"
"""The name of a `Method` that stands for `super()`: `function` is the class whose bases are searched."""

DEFERRED = "<deferred>"
"""The name of a `Method` that stands for `function(*receiver)`, a transform of JAX whose result is called later."""


def not_set(name: str) -> str:
    """What an example fails with that reads a variable which no path before has set."""
    return (
        f"the variable {shown(name)!r} is not set on the path that this example takes; set it before the branch or loop"
    )
