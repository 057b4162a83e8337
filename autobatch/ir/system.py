"""A system of recurrence equations over rows: the form between control flow and schedules.

    space node:
      hl = gather(leaf.h, node.h)[node:12]          rows of the concatenation of both, by a column of the plan
      z  = dot_general(hl, %U)
      h  = tanh(z)

Order has no meaning here, and cycles are allowed through gathers. A `Variable` is an array `[rows, ...]` over its
space, or one value when its space is None (uniform). (Karp, Miller and Winograd 1967.)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import assert_never

from autobatch.errors import NOWHERE, Span
from autobatch.ir.core import Array, Literal
from autobatch.ir.ops import Op


@dataclass(frozen=True, slots=True)
class Space:
    """A set of rows.

    `kind`: "region" (activations that run one region of a function; an arm is run by rows of the space with the index
    `base`), "data" (rows of a column store), "elements" (of the lists that a fold reads), "example", "distinct" (the
    distinct rows, by the columns `keys`, of the space with the index `base`)."""

    index: int
    name: str
    kind: str = "region"
    base: int = -1
    keys: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Variable:
    """`type` is that of one row."""

    id: int
    type: Array
    space: Space | None
    hint: str = field(default="", compare=False)

    def __hash__(self) -> int:
        return self.id  # passes look variables up by the million

    def __str__(self) -> str:
        return f"%{self.id}" if self.space is None else f"{self.space}.%{self.id}"


Atom = Variable | Literal


@dataclass(frozen=True, slots=True)
class Shared:
    """An input that is the same for every example."""

    result: Variable
    index: int


@dataclass(frozen=True, slots=True)
class Constant:
    result: Variable
    literal: Literal


@dataclass(frozen=True, slots=True)
class HostColumn:
    """Numbers that the host has computed, one a row."""

    result: Variable
    table: str


@dataclass(frozen=True, slots=True)
class Data:
    """A column of the packed examples; its space is that of the store's rows."""

    result: Variable
    column: str


@dataclass(frozen=True, slots=True)
class Compute:
    """A leaf operation on every row of `space` (once, when that is None). `used`: which of its results have a finite
    derivative, or are used by all rows that have them (`passes/liveness.py`)."""

    results: tuple[Variable, ...]
    op: Op
    operands: tuple[Atom, ...]
    space: Space | None
    span: Span = field(default=NOWHERE, compare=False)
    used: frozenset[int] = field(default=frozenset(), compare=False)

    def unused(self) -> Iterator[Variable]:
        """The other results."""
        return (r for k, r in enumerate(self.results) if k not in self.used)


@dataclass(frozen=True, slots=True)
class Gather:
    """Rows of the concatenation of `sources`, by the column `table`. `calls` are the calls of the same activation whose
    results these may be (positions in `System.calls`), `inside` the variables of the same activation."""

    result: Variable
    table: str
    sources: tuple[Variable, ...]
    calls: tuple[int, ...] = ()
    inside: tuple[Variable, ...] = ()
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Fold:
    """Each row reduces a run of rows of the concatenation of `sources`: the elements of its list, in order. `even`: the
    derivative of a maximum (minimum) belongs to all elements that are equal to it; else to the first of them. Of the
    kind `PLACED` it has them side by side, in an array with room for more."""

    result: Variable
    kind: str
    table: str
    elements: Space
    sources: tuple[Variable, ...]
    calls: tuple[int, ...] = ()
    inside: tuple[Variable, ...] = ()
    span: Span = field(default=NOWHERE, compare=False)
    even: bool = False


PLACED = "placed"
"""The kind of a fold that puts elements side by side (`padded`)."""


@dataclass(frozen=True, slots=True)
class CallSite:
    """What the arguments of one call depend on within its own activation: variables, and results of other calls."""

    callee: str
    calls: tuple[int, ...]
    inside: tuple[Variable, ...]


@dataclass(frozen=True, slots=True)
class Spread:
    """Each row reads the row of `source`, over distinct rows, that is equal to it."""

    result: Variable
    source: Variable


@dataclass(frozen=True, slots=True)
class Link:
    """A step of a path: a row of variable `reader` of a linear recurrence adds the entries of `table` that point to its
    source `member` (`table` None: the same row; `fold`: all entries of its run). These are rows of variable `target`,
    or, where that is negative, of the term `~target`; `sign` is -1 where they are subtracted. The reader -1 is the row
    that wants the sum."""

    reader: int
    target: int
    table: str | None
    member: int = 0
    fold: bool = False
    sign: int = 1


@dataclass(frozen=True, slots=True)
class PathSum:
    """Each row adds up the terms that paths of links lead to, once for each path: what a linear recurrence adds up.

    `variables` are those of the recurrence, `terms` what is added up, `elements` the space of (row, term) pairs."""

    result: Variable
    name: str
    elements: Space
    terms: tuple[Variable, ...]
    variables: tuple[Variable, ...]
    links: tuple[Link, ...]
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Given:
    """An array that is handed in: a value that another program has kept, or the cotangent of one of its outputs."""

    result: Variable
    index: int


@dataclass(frozen=True, slots=True)
class Contract:
    """The cotangent of the uniform operand `wrt` of a computation that ran on every row of `space`: its rule, applied
    to all rows at once, those past the last one masked. None stands for what the rule does not read.

    For a product of rows by a matrix it is ONE product of all rows with all cotangents. `of` is the computation."""

    result: Variable
    of: Compute
    wrt: int
    operands: tuple[Atom | None, ...]
    cotangents: tuple[Variable | None, ...]
    space: Space
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class RowRead:
    """Rows that `of` has read of the array that is its first operand; the rest say which. `cotangent` is that of what
    was read. The array is the same for all, or each row has its copy of one, by `through`."""

    of: Compute
    cotangent: Variable
    through: Gather | None = None


@dataclass(frozen=True, slots=True)
class Scatter:
    """The cotangent of an array whose rows are read by number, one for all or one for each row of a space: `into`
    (None: zeros) with the cotangents of the rows that were read added where these lie, those of every `of`."""

    result: Variable
    rows: tuple[RowRead, ...]
    into: Variable | None
    span: Span = field(default=NOWHERE, compare=False)


@dataclass(frozen=True, slots=True)
class Selected:
    """What a fold by max or min has taken: 1 at the first of the greatest (least) elements of a run, or equal parts at
    all of them where it is `even`; 0 at the rest."""

    result: Variable
    fold: Fold


@dataclass(frozen=True, slots=True)
class Taken:
    """Each row of a variable has the cotangents of the places where a fold of the kind `PLACED` has put it."""

    result: Variable
    of: Variable
    reader: RowReader


@dataclass(frozen=True, slots=True)
class RowReader:
    """Rows that have read a variable as source `member` of `equation`, and their cotangents; those of the elements of a
    fold are multiplied by `factor`, where there is one."""

    equation: Gather | Fold | Spread | PathSum
    member: int
    cotangent: Variable
    factor: Variable | None = None


@dataclass(frozen=True, slots=True)
class Collect:
    """Each row adds up the cotangents of the rows that have read it: the adjoint of gathers, by their inverse index."""

    result: Variable
    of: Variable
    readers: tuple[RowReader, ...]
    span: Span = field(default=NOWHERE, compare=False)

    @property
    def sources(self) -> tuple[Variable, ...]:
        """The cotangents, each once."""
        return tuple(dict.fromkeys(r.cotangent for r in self.readers))


@dataclass(frozen=True, slots=True)
class Follow:
    """Each row reads the row of `source` that it has read of the variable that `source` stands for: the adjoint of
    `Collect`, for one reader. Zero where it has read another variable; a sum where it has read a run of rows."""

    result: Variable
    source: Variable
    of: Variable
    equation: Gather | Fold | Spread | PathSum
    member: int
    factor: Variable | None = None
    span: Span = field(default=NOWHERE, compare=False)

    @property
    def sources(self) -> tuple[Variable, ...]:
        return (self.source,)


Equation = (
    Shared
    | Constant
    | HostColumn
    | Data
    | Compute
    | Gather
    | Fold
    | Spread
    | PathSum
    | Given
    | Contract
    | Scatter
    | Selected
    | Taken
    | Collect
    | Follow
)
"""The closed set of equations. The last seven stand in the programs of derivatives alone."""


@dataclass(frozen=True, slots=True)
class System:
    spaces: tuple[Space, ...]
    equations: tuple[Equation, ...]
    outputs: tuple[Variable, ...]
    calls: tuple[CallSite, ...] = ()


def results(equation: Equation) -> tuple[Variable, ...]:
    return equation.results if isinstance(equation, Compute) else (equation.result,)


def reads(equation: Equation) -> Iterable[Variable]:
    """The variables that an equation reads."""
    match equation:
        case Compute(operands=xs):
            return (x for x in xs if isinstance(x, Variable))
        case Gather(sources=xs) | Fold(sources=xs):
            return xs
        case Spread(source=source):
            return (source,)
        case PathSum(terms=terms):
            return terms
        case Contract(operands=xs, cotangents=cts):
            return (x for x in (*xs, *cts) if isinstance(x, Variable))
        case Scatter(rows=rows, into=into):
            xs = tuple(x for r in rows for x in (*r.of.operands[1:], r.cotangent) if isinstance(x, Variable))
            return xs if into is None else (*xs, into)
        case Selected(fold=fold):
            return fold.sources
        case Taken(reader=reader):
            return (reader.cotangent,)
        case Collect(sources=sources, readers=readers):
            return (*sources, *(r.factor for r in readers if r.factor is not None))
        case Follow(source=source, factor=factor):
            return (source,) if factor is None else (source, factor)
        case Shared() | Constant() | HostColumn() | Data() | Given():
            return ()
        case _:
            assert_never(equation)


def space_of(equation: Equation) -> Space | None:
    """The space over whose rows an equation runs."""
    return equation.space if isinstance(equation, Compute) else equation.result.space


def print_system(system: System) -> str:
    """The equations of each space, in an order that does not depend on how the system was built."""
    lines: list[str] = []
    for space in (None, *system.spaces):
        inside = [e for e in system.equations if space_of(e) == space]
        if inside:
            lines.append(f"space {space}:" if space else "uniform:")
            lines.extend(f"  {print_equation(e)}" for e in inside)
    lines.append("return " + ", ".join(map(str, system.outputs)))
    return "\n".join(lines) + "\n"


def print_equation(equation: Equation) -> str:
    left = ", ".join(f"{_short(r)}: {r.type}" for r in results(equation))
    match equation:
        case Shared(index=index):
            right = f"shared {index}"
        case Constant(literal=literal):
            right = str(literal.value) if literal.constant < 0 else f"constant {literal.constant}"
        case HostColumn(table=table):
            right = f"column[{table}]"
        case Data(column=column):
            right = f"data[{column}]"
        case Compute(op=op, operands=xs):
            right = f"{op.name}({', '.join(_short(x) for x in xs)})"
        case Gather(table=table, sources=sources):
            right = f"gather[{table}]({', '.join(map(str, sources))})"
        case Spread(source=source):
            right = f"spread({source})"
        case PathSum(name=name, terms=terms):
            right = f"sum over paths[{name}]({', '.join(map(str, terms))})"
        case Given(index=index):
            right = f"given {index}"
        case Contract(of=of, wrt=wrt, operands=xs, cotangents=cts):
            read = ", ".join("_" if x is None else str(x) for x in (*xs, *cts))
            right = f"contract {of.op.name}/{wrt}({read})"
        case Scatter(rows=rows, into=into):
            read = ", ".join(f"{r.cotangent} at {', '.join(map(_short, r.of.operands[1:]))}" for r in rows)
            right = f"scatter({read})" + ("" if into is None else f" into {into}")
        case Selected(fold=fold):
            right = f"selected {fold.kind}[{fold.table}]({', '.join(map(str, fold.sources))})"
        case Taken(of=read_variable, reader=reader):
            right = f"taken {read_variable}({reader.cotangent})"
        case Collect(of=read_variable, readers=readers):
            read = ", ".join(f"{r.cotangent}{'' if r.factor is None else f' * {r.factor}'}" for r in readers)
            right = f"collect {read_variable}({read})"
        case Follow(source=source, of=read_variable):
            right = f"follow {read_variable}({source})"
        case Fold(kind=kind, table=table, sources=sources):
            right = f"fold {kind}[{table}]({', '.join(map(str, sources))})"
        case _:
            assert_never(equation)
    return f"{left} = {right}"


def _short(x: Atom) -> str:
    return f"%{x.id}" if isinstance(x, Variable) else str(x)
