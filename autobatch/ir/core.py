"""The per-example IR, whole: structured SSA over six instructions, and templates of arguments and results.

A `Module` is what one `@batched` function becomes for ONE example. Its functions call each other; values of an
enclosing region are visible in the regions inside it; the `shared` values of the module are visible everywhere.

    module(shared %0: float32[5x4])
    func @encode(%1: ref<Node>) -> (float32[4]):
      %2: ref<Node> = load[field='left'](%1)
      %3: bool = is_none(%2)
      %4: float32[4] = if %3 then:
        ...
        yield %7
      else:
        %8: float32[4] = call @encode(%2)
        yield %8
      return %4

`Map` is a comprehension (iterations are independent), `For` has a trip count known on entry, `While` does not.
Tuples, dicts and dataclasses built inside the function do not exist here: the front end flattens them away. Only
where no fixed number of values can stand for an object (a tree that a recursion builds) is it *made*, by `make`: then
it is a value of the type `made<>`, which is passed on and never read.

A template says how Python values stand around IR values. Arguments are ordinary Python objects (tuples, dicts,
dataclasses, Equinox modules) whose array leaves are replaced by `Input`; everything else in them is static. Results are
a tree of templates with `Output` at the leaves.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, assert_never

import numpy as np

from autobatch.common.record import record
from autobatch.errors import NOWHERE, Span
from autobatch.ir.ops import Op, constant_key

# ---- types
#
# Types of the per-example IR: arrays, tags, references into column stores, lists, and objects that are made.


@record
class Array:
    """An array (a scalar has shape `()`). `dtype` is NumPy's name, or JAX's for typed random keys (`key<fry>`)."""

    dtype: str
    shape: tuple[int, ...] = ()
    weak: bool = False

    def __str__(self) -> str:
        dims = "x".join(map(str, self.shape))
        return f"{self.dtype}{'*' if self.weak else ''}[{dims}]"

    @property
    def is_scalar(self) -> bool:
        return self.shape == ()

    @property
    def is_integer(self) -> bool:
        return self.dtype.startswith(("int", "uint"))

    @property
    def is_bool(self) -> bool:
        return self.dtype == "bool"


@record
class Tag:
    """A string (`vocabulary` is "str") or a member of an enum (its qualified name), as an index into a vocabulary."""

    vocabulary: str

    def __str__(self) -> str:
        return f"tag<{self.vocabulary}>"


@record
class Ref:
    """A row of a column store, or None. What class the row has is data, read by `is_class`."""

    store: str

    def __str__(self) -> str:
        return f"ref<{self.store}>"


@record
class List:
    """A list of `elem`. `store` names the list store it lies in; None for a list that a `Map` has made."""

    elem: Type
    store: str | None = None

    def __str__(self) -> str:
        where = f" in {self.store}" if self.store is not None else ""
        return f"list<{self.elem}{where}>"


@record
class BuiltObject:
    """An object that the program has made, one of the examples that stands beside such objects, or None.

    It is passed on and stored; what it holds is known when everything has run, and leaves the program as columns."""

    def __str__(self) -> str:
        return "made<>"


ROWS = (1 << 31) - 1
"""The length of the first axis of a column that is handed to machine code: as many rows as the examples have, at most
so many. The text of a program says no more of it."""

Type = Array | Tag | Ref | List | BuiltObject
"""The closed set of types."""

BOOL = Array("bool")
INT = Array("int32", weak=True)
"""A Python int. On the host it has 64 bits, on the device the default integer type of JAX."""
FLOAT = Array("float32", weak=True)
"""A Python float."""
STR = Tag("str")
MADE = BuiltObject()


@record
class Value:
    """One SSA value. `id` is unique in the module; `hint` is the user's name for it, for printing only."""

    id: int
    type: Type
    hint: str = field(default="", compare=False)

    def __hash__(self) -> int:
        return self.id  # passes look values up by the million

    def __str__(self) -> str:
        return f"%{self.id}"


@record
class Literal:
    """A constant operand: a Python scalar, or the position of an array in `Module.constants`."""

    value: bool | int | float | complex | str | None = field(compare=False)
    type: Type
    constant: int = -1
    key: Hashable = field(init=False, repr=False)
    """What the value is compared by."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", constant_key(self.value))

    @property
    def is_wide(self) -> bool:
        """An int that needs more than 32 bits: the host has 64, the device only under x64."""
        return self.constant < 0 and type(self.value) is int and not -(1 << 31) <= self.value < 1 << 31

    def __str__(self) -> str:
        return f"const{self.constant}: {self.type}" if self.constant >= 0 else f"{self.value!r}: {self.type}"


Operand = Value | Literal


@record
class Region:
    """A block with arguments. `results` are yielded to the instruction that owns the region; `free`: what
    `rewrite.free_values` has found, which many passes ask of the same regions inside regions."""

    args: tuple[Value, ...]
    body: tuple[Instruction, ...]
    results: tuple[Operand, ...]
    free: tuple[Value, ...] | None = field(default=None, init=False, compare=False, repr=False)


@record
class Apply:
    """`results = op(operands)`: one leaf operation."""

    results: tuple[Value, ...]
    op: Op
    operands: tuple[Operand, ...]
    span: Span = field(default=NOWHERE, compare=False)


@record
class If:
    """Two regions without arguments, one of which runs."""

    results: tuple[Value, ...]
    condition: Operand
    then: Region
    orelse: Region
    span: Span = field(default=NOWHERE, compare=False)


@record
class For:
    """`count` turns. The body takes the turn (a Python int from 0) and the carried values, and yields the next ones."""

    results: tuple[Value, ...]
    count: Operand
    init: tuple[Operand, ...]
    body: Region
    span: Span = field(default=NOWHERE, compare=False)


@record
class While:
    """`condition` and `body` both take the carried values; `condition` yields one bool, `body` the next values."""

    results: tuple[Value, ...]
    init: tuple[Operand, ...]
    condition: Region
    body: Region
    span: Span = field(default=NOWHERE, compare=False)


@record
class Map:
    """A comprehension: `count` independent turns of `body`, which takes the turn. Each result is a `List` of what the
    body yields. When `filtered`, the body yields one bool more, first: the turns where it is true are kept."""

    results: tuple[Value, ...]
    count: Operand
    body: Region
    filtered: bool = False
    span: Span = field(default=NOWHERE, compare=False)


@record
class Call:
    """A call of a function of the module: one activation."""

    results: tuple[Value, ...]
    callee: str
    operands: tuple[Operand, ...]
    span: Span = field(default=NOWHERE, compare=False)


Instruction = Apply | If | While | For | Map | Call
"""The closed set of instructions: a pass is one `match` over it that ends in `assert_never`."""


@record
class Function:
    """A function for one example. Its region's results are what it returns. `is_loop`: it was a loop or comprehension,
    and calls of it are turns; `waits`: a `while` loop."""

    name: str
    region: Region
    span: Span = field(default=NOWHERE, compare=False)
    waits: bool = field(default=False, compare=False)
    is_loop: bool = field(default=False, compare=False)


@record
class Module:
    """`functions[0]` is the entry. `shared` are inputs that are the same for every example; `constants` arrays that
    literals name."""

    functions: tuple[Function, ...]
    shared: tuple[Value, ...] = ()
    constants: tuple[Any, ...] = ()

    def function(self, name: str) -> Function:
        return next(f for f in self.functions if f.name == name)


def regions(instruction: Instruction) -> tuple[Region, ...]:
    """The regions that an instruction owns, in program order."""
    match instruction:
        case Apply() | Call():  # nearly all of them
            return ()
        case If(then=then, orelse=orelse):
            return (then, orelse)
        case While(condition=condition, body=body):
            return (condition, body)
        case For(body=body) | Map(body=body):
            return (body,)


def operands(instruction: Instruction) -> tuple[Operand, ...]:
    """The operands that an instruction itself reads, without those of its regions."""
    match instruction:
        case Apply(operands=xs) | Call(operands=xs):
            return xs
        case If(condition=c):
            return (c,)
        case While(init=init):
            return init
        case For(count=count, init=init):
            return (count, *init)
        case Map(count=count):
            return (count,)


def walk(region: Region) -> Iterator[Instruction]:
    """Every instruction of a region and of the regions inside it, in program order."""
    for instruction in region.body:
        yield instruction
        for inner in regions(instruction):
            yield from walk(inner)


# ---- elementwise
#
# Which leaf operations are one pass over their operands: computing them again costs little.


# fmt: off
BY_NUMBER = frozenset((
    "abs", "add", "add_any", "and", "ceil", "convert_element_type", "copy", "cos", "cosh", "div", "eq", "erf", "exp",
    "exp2", "expm1", "floor", "ge", "gt", "integer_pow", "is_finite", "le", "log", "log1p", "logistic", "lt", "max",
    "log2", "min", "mul", "ne", "neg", "not", "one_minus_square", "or", "pow", "rsqrt", "select_n", "sign", "sin",
    "sinh", "sqrt", "square", "sub", "tan", "tanh", "truediv", "xor",
))
"""Operations that work number by number on operands of one shape."""

MOVING = ("broadcast_in_dim", "concatenate", "convert", "reshape", "slice", "split", "squeeze")
ELEMENTWISE = BY_NUMBER | frozenset(MOVING)
"""With those that only move the numbers of one row."""

CHEAP = ELEMENTWISE | frozenset((
    "atan2", "clamp", "dynamic_slice", "expand_dims", "floordiv", "gather", "imag", "int", "iota", "mod", "pad",
    "real", "reduce_and", "reduce_max", "reduce_min", "reduce_or", "reduce_sum", "rem", "rev", "round",
    "select_and_scatter_add", "stop_gradient", "transpose", "undefined", "unknown",
))
"""With reductions within a row, and reads of a few numbers."""

INFINITE = frozenset((
    "acos", "acosh", "asin", "atan2", "atanh", "cosh", "digamma", "div", "erf_inv", "exp", "exp2", "expm1",
    "integer_pow", "lgamma", "log", "log1p", "log2", "mod", "pow", "rem", "rsqrt", "sinh", "sqrt", "tan", "truediv",
))
"""Operations number by number whose value or derivative is infinite somewhere."""

LINEAR = frozenset((
    "add", "add_any", "broadcast_in_dim", "concatenate", "conv_general_dilated", "convert", "convert_element_type",
    "copy", "dot_general", "dynamic_slice", "dynamic_update_slice", "gather", "mul", "neg", "pad", "reduce_sum",
    "reshape", "rev", "scatter-add", "select_n", "slice", "split", "squeeze", "sub", "transpose",
))
"""Linear in each operand: the derivative by one is finite where the others are zero."""

FINITE_DERIVATIVE = frozenset((
    "add", "add_any", "broadcast_in_dim", "concatenate", "convert", "convert_element_type", "copy", "cumsum",
    "dynamic_slice", "dynamic_update_slice", "expand_dims", "gather", "max", "min", "neg", "pad", "reduce_sum",
    "reshape", "rev", "scatter-add", "select_n", "slice", "split", "squeeze", "stack", "stop_gradient", "sub",
    "transpose",
))
"""The derivative is finite whatever the operands are."""

CONSTANT = frozenset(("stop_gradient", "floor", "ceil", "round", "sign", "floordiv"))
"""The derivative is zero wherever there is one."""

SIDE_BY_SIDE = ("concatenate", "stack")
"""What makes an array of values, as of the elements of a list of which one is read."""
# fmt: on


def stays_finite(op: Op, operands: Iterable[object]) -> bool:
    """Has an operation a finite value and a finite derivative wherever its operands are finite? Those that are literals
    are what they are."""
    if op.name in INFINITE or not any(op.name in known for known in (CHEAP, LINEAR, FINITE_DERIVATIVE)):
        return False
    return not any(map(is_infinite, operands))


def is_infinite(x: object) -> bool:
    """Is it a literal that is no finite number?"""
    return isinstance(x, Literal) and isinstance(x.value, float) and x.constant < 0 and not math.isfinite(x.value)


# ---- templates


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
