"""Objects that computed numbers choose, as numbers of rows; all others stay what they are.

    %5 = while (%1) do (%2: ref<Node>):             %20 = rows_of[space='Node'](%1)
      %3 = if %c then: load[left](%2) ...           %21: list<int> = map %20 do (%22):
                                                      %23 = row_at[space='Node'](%22, %1)
                                             ->       yield row(load[left](%23))
                                                    %24 = row(%1)
                                                    %5 = while (%24) do (%2: int):
                                                      %3 = if %c then: item(%21, max(%2, 0)) ...

The host still reads the examples: of each field that is read of such an object it makes a list, a number for each row
that the example has. What the device reads of the object is an element of this list, at a place that only the device
knows, as of any other list (`arenas.py`), so derivatives reach fields by it. A list of the examples that numbers choose
is the number of its row too, and a list of objects that they choose one of numbers.

`rows.py` has how each operation reads columns. There everything is a number, here only what the host cannot know.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, assert_never

from jax import lax

from autobatch.data.columns import Schema, SharedColumns, is_shared_store
from autobatch.errors import UnsupportedError
from autobatch.ir import jax_compat
from autobatch.ir.core import (
    BOOL,
    INT,
    Apply,
    Array,
    Call,
    For,
    Function,
    If,
    Instruction,
    List,
    Literal,
    Map,
    Module,
    Operand,
    Ref,
    Region,
    Tag,
    Type,
    Value,
    While,
    regions,
    walk,
)
from autobatch.ir.ops import Op, own
from autobatch.ir.regions import calls, region_values, with_entry_apart, with_regions
from autobatch.passes.arenas import TABLES
from autobatch.passes.fallible import deciding, lacking
from autobatch.passes.object_rows import ZERO, Lowering
from autobatch.passes.simplify import recursive_functions

# ---- partial rows
#
# Structure as numbers in a part of a module: some objects and lists become numbers of rows, all others stay what they
# are. This file does so for those of the examples that computed numbers choose, and for what all
# examples share.


def refers(type: Type) -> bool:
    """Does it say which object or list of the examples it is, or hold such?"""
    match type:
        case Ref() | List(store=str()):
            return True
        case List(elem=elem):
            return refers(elem)
        case _:
            return False


class PartialLowering(Lowering):
    """`chosen`: what becomes a number of a row."""

    def __init__(self, module: Module, schema: Schema, chosen: Collection[Value]) -> None:
        super().__init__(module, schema)
        self.chosen = chosen
        self.functions: Mapping[str, Region] = {f.name: f.region for f in module.functions}

    # ---- types and operands

    def type(self, type: Type) -> Type:
        return type if isinstance(type, Tag) else super().type(type)

    def value(self, x: Value) -> Value:
        return super().value(x) if x in self.chosen else x

    def plain(self, x: Operand) -> Operand:
        """An operand as it is."""
        return self.env.get(x, x) if isinstance(x, Value) and not refers(x.type) else x

    def given(self, xs: Sequence[Operand], targets: Sequence[Operand]) -> tuple[Operand, ...]:
        """Operands that become these."""
        pairs = zip(xs, targets, strict=True)
        return tuple(self.read(x) if y in self.chosen else self.plain(x) for x, y in pairs)

    # ---- instructions

    def region(self, region: Region, targets: Sequence[Operand] = ()) -> Region:
        """`targets`: what the results become; results are read as they are where there are none."""
        before, self.made = self.made, []
        args = self.values(region.args)
        self.note(region.args)
        for instruction in region.body:
            self.span = instruction.span
            self.instruction(instruction)
            self.note(instruction.results)
        results = self.given(region.results, targets or region.results)
        found = Region(args, tuple(self.made), results)
        self.made = before
        return found

    def note(self, defined: Sequence[Value]) -> None:
        """Look at what has just been defined."""

    def is_on_rows(self, xs: Sequence[Operand]) -> bool:
        """Is an operation, of these operands and results, one on rows?"""
        return any(x in self.chosen for x in xs)

    def instruction(self, i: Instruction) -> None:
        match i:
            case Apply():
                xs = (*i.operands, *i.results)
                if self.is_on_rows(xs):
                    self.checked(i)
                else:
                    self.made.append(replace(i, operands=tuple(map(self.plain, i.operands))))
                return
            case Call(operands=xs, callee=callee):
                made: Instruction = replace(i, operands=self.given(xs, self.functions[callee].args))
            case If(condition=condition, then=then, orelse=orelse):
                arms = self.region(then, i.results), self.region(orelse, i.results)
                made = replace(i, condition=self.plain(condition), then=arms[0], orelse=arms[1])
            case For(count=count, init=init, body=body):
                start, carried = self.given(init, body.args[1:]), body.args[1:]
                made = replace(i, count=self.plain(count), init=start, body=self.region(body, carried))
            case While(init=init, condition=test, body=body):
                start, tested = self.given(init, body.args), self.region(test)
                made = replace(i, init=start, condition=tested, body=self.region(body, body.args))
            case Map(count=count, body=body, filtered=filtered):
                flags = body.results[:filtered]
                made = replace(i, count=self.plain(count), body=self.region(body, (*flags, *i.results)))
            case _:
                assert_never(i)
        self.made.append(replace(made, results=self.values(i.results)))


Device = Callable[[frozenset[Value]], Collection[Operand]]
"""The values that only the device knows, where those given are such."""


def objects_as_rows(module: Module, schema: Schema, device: Device, wide: bool = False) -> Module | None:
    """The module with rows in place of the objects and lists of the examples that computed numbers choose; None where
    they choose none. `wide`: also of those that stand in branches and loops which numbers decide. Such a
    result is the number of its row. UnsupportedError where such an object stands beside those that are made."""
    module = with_entry_apart(module)
    found = _find(module, device, wide)
    if not found.chosen:
        return None
    asked = frozenset[Value]()
    while True:
        lowering = _Chosen(module, schema, found, asked)
        made = lowering.whole()
        if lowering.missing <= asked:
            return made
        asked |= lowering.missing


class _ChosenValues(NamedTuple):
    """`chosen`: the objects and lists that are numbers of rows. `around`: branches and loops that numbers decide (by
    identity), in which everything is on rows, so that it is arithmetic as a whole."""

    chosen: frozenset[Value]
    around: frozenset[int]


def _find(module: Module, device: Device, wide: bool) -> _ChosenValues:
    """What numbers choose. How long such a list of the examples is, only the device knows; and what a loop carries is
    chosen in all turns where it is in one. Keys of dicts are in memory, so objects among them are rows. Everything is
    on rows where numbers decide calls of recursions on such; if `wide`, where they decide anything, and what is called
    there is given rows."""
    inside = [i for f in module.functions for i in walk(f.region)]
    recursive, functions = recursive_functions(module), {f.name: f.region for f in module.functions}
    left = frozenset[Value]()
    while True:
        found = device(left)
        more, around = set[Value](), set[int]()
        for i in inside:
            match i:
                case Apply(op=op, operands=xs) if op.name == "length" and xs[0] in found and _in_store(xs[0].type):
                    more.update(i.results)
                case Apply(op=op, operands=xs) if op.name in TABLES:
                    both = (v for v in (*xs, *i.results) if isinstance(v, Value))
                    more.update(v for v in both if isinstance(v.type, List) and refers(v.type))
                case For(body=body):
                    pairs = zip(body.args[1:], i.results, strict=True)
                    more.update(v for pair in pairs if any(x in found for x in pair) for v in pair if refers(v.type))
                case _:
                    pass
            if not any(x in found for x in deciding(i)):
                continue
            called = [functions[j.callee].args for j in calls(Region((), (i,), ())) if j.callee in recursive]
            if wide or any(x in found and refers(x.type) for args in called for x in args):
                around.add(id(i))
                inside_of = (*(region_values(r) for r in regions(i)), *(called if wide else ()))
                more.update(v for values in inside_of for v in values if refers(v.type))
        if more <= left:
            chosen = frozenset(v for v in found if isinstance(v, Value) and refers(v.type))
            return _ChosenValues(chosen, frozenset(around))
        left |= more


def _in_store(type: Type) -> bool:
    return isinstance(type, List) and type.store is not None


class _RowColumn(NamedTuple):
    """What is read of each row of a space: of each object of a store, each list of a list store, or each element of all
    of its lists (`#values`). `holder`: the type of the row; `type`: of what is read of it."""

    space: str
    read: Op
    holder: Ref | List
    type: Type


class _Chosen(PartialLowering):
    """`chosen`: what becomes a number of a row; `asked`: the objects and lists of the host of which somebody wants
    this number; `missing`: those that were asked for."""

    def __init__(self, module: Module, schema: Schema, found: _ChosenValues, asked: frozenset[Value]) -> None:
        super().__init__(module, schema, found.chosen)
        self.around, self.asked = found.around, asked
        self.within = False  # of what is on rows as a whole
        self.missing = set[Value]()
        self.codes: dict[Value, Value] = {}
        self.columns: dict[_RowColumn, Value] = {}

    # ---- the module

    def whole(self) -> Module:
        """The module, with the columns that each function reads handed to it by the entry."""
        first, *others = self.module.functions
        made, own = list[Function](), dict[str, dict[_RowColumn, Value]]()
        for function in (first, *others):
            self.columns, self.span = {}, function.span
            targets = () if function is first else function.region.results
            region = self.region(function.region, targets)
            made.append(replace(function, region=region))
            own[function.name] = self.columns
        entry, *rest = handing_on(made, own, self.fresh.like)
        entry = replace(entry, region=self.with_columns(entry.region, own[first.name]))
        return replace(self.module, functions=(entry, *rest))

    def with_columns(self, region: Region, columns: Mapping[_RowColumn, Value]) -> Region:
        """The entry, behind the columns."""
        before, self.made = self.made, []
        roots = tuple(a for a in region.args if isinstance(a.type, Ref) or _in_store(a.type))
        for column, result in columns.items():
            self.column(column, result, roots)
        body, self.made = (*self.made, *region.body), before
        return replace(region, body=body)

    def column(self, of: _RowColumn, result: Value, roots: tuple[Value, ...]) -> None:
        """What is read of each row, as a list."""
        count, turn, row = self.fresh.value(INT), self.fresh.value(INT), self.fresh.value(of.holder)
        self.emit(count, own("rows_of", space=of.space), *roots)
        before, self.made = self.made, []
        self.emit(row, own("row_at", space=of.space), turn, *roots)
        found = self.cell(of, row, turn)
        if refers(of.type):
            found = self.emit(self.fresh.value(INT), own("row"), found)
        body, self.made = Region((turn,), tuple(self.made), (found,)), before
        self.made.append(Map((result,), count, body, False, self.span))

    def cell(self, of: _RowColumn, row: Value, turn: Value) -> Value:
        """What is read of one row, by the number that it has."""
        result = self.fresh.value(of.type)
        if of.read.name == "item":
            first, place = self.fresh.value(INT), self.fresh.value(INT)
            self.emit(first, own("first"), row)
            self.emit(place, Op("sub", (), lax.sub_p), turn, first)
            return self.emit(result, of.read, row, place)
        read = Apply((result,), of.read, (row,), self.span)
        if of.read.name not in ("load", "load_is_none") or not (without := lacking(read, self.schema)):
            self.made.append(read)
            return result
        lacks, found, nothing = self.fresh.value(BOOL), self.fresh.value(of.type), self.fresh.value(of.type)
        self.emit(lacks, own("is_class", names=without), row)
        none = Region((), (Apply((nothing,), own("undefined", type=of.type), (), self.span),), (nothing,))
        self.made.append(If((found,), lacks, none, Region((), (read,), (result,)), self.span))
        return found

    def emit(self, result: Value, op: Op, *xs: Operand) -> Value:
        self.made.append(Apply((result,), op, xs, self.span))
        return result

    def read(self, x: Operand) -> Operand:
        """An operand of what runs on the device: the number of a row for an object or list of the examples. Where
        numbers decide everything around it, the host is not told what it knows of the row."""
        if not refers(x.type) or not isinstance(x, Value) or x in self.chosen or x in self.env:
            return super().read(x)
        row = self.code(x)
        if self.within and row.type == INT:
            return self.emit(self.fresh.value(INT), own("unknown"), row)
        return row

    # ---- what the host knows, as rows

    def code(self, x: Value) -> Operand:
        """The row of an object or list that the host knows; a list of rows for one of such."""
        if x not in self.codes:
            self.missing.add(x)
            return Literal(0, INT)
        return self.codes[x]

    def note(self, defined: Sequence[Value]) -> None:
        """Number what has just been defined, as far as anybody asks."""
        for x in defined:
            if x in self.asked:
                self.codes[x] = self.numbered(x)

    def numbered(self, x: Value) -> Value:
        if not isinstance(x.type, List) or x.type.store is not None:
            return self.emit(self.fresh.value(INT), own("row"), x)
        count, turn, item = self.fresh.value(INT), self.fresh.value(INT), self.fresh.value(x.type.elem)
        self.emit(count, own("length"), x)
        before, self.made = self.made, []
        found = self.numbered(self.emit(item, own("item"), x, turn))
        body, self.made = Region((turn,), tuple(self.made), (found,)), before
        result = self.fresh.value(List(found.type))
        self.made.append(Map((result,), count, body, False, self.span))
        return result

    # ---- instructions

    def instruction(self, i: Instruction) -> None:
        before = self.within
        self.within = before or id(i) in self.around
        super().instruction(i)
        self.within = before

    def is_on_rows(self, xs: Sequence[Operand]) -> bool:
        return super().is_on_rows(xs) or (self.within and any(refers(x.type) for x in xs))

    # ---- columns

    def cells(self, column: _RowColumn, row: Operand, result: Value | None = None) -> Value:
        """What is read of a row that numbers choose."""
        of = self.type(column.type)
        if column not in self.columns:
            self.columns[column] = self.fresh.value(List(of))
        found = self.fresh.value(of) if result is None else self.value(result)
        return self.emit(found, own("item", there=True), self.columns[column], row)

    def load(self, load: Apply) -> None:
        (ref,), result = load.operands, load.results[0]
        assert isinstance(ref.type, Ref)
        self.cells(_RowColumn(ref.type.store, load.op, ref.type, result.type), self.there(ref), result)

    def word(self, apply: Apply) -> None:
        self.made.append(replace(apply, operands=self.reads(apply.operands)))

    def is_missing(self, load: Apply) -> None:
        (ref,) = load.operands
        assert isinstance(ref.type, Ref)
        self.cells(_RowColumn(ref.type.store, load.op, ref.type, BOOL), self.there(ref), load.results[0])

    def is_class(self, test: Apply) -> None:
        (ref,) = test.operands
        assert isinstance(ref.type, Ref)
        found = self.cells(_RowColumn(ref.type.store, test.op, ref.type, BOOL), self.there(ref))
        self.put(test.results[0], "and", self.test("ge", self.read(ref), Literal(0, INT)), found)

    def begin(self, xs: Operand) -> Value:
        assert isinstance(xs.type, List) and xs.type.store is not None
        return self.cells(_RowColumn(xs.type.store, own("first"), xs.type, INT), self.there(xs))

    def ends(self, xs: Operand) -> tuple[Value, Value]:
        assert isinstance(xs.type, List) and xs.type.store is not None
        begin = self.begin(xs)
        count = self.cells(_RowColumn(xs.type.store, own("length"), xs.type, INT), self.there(xs))
        return begin, self.number("add", begin, count)

    def element(self, xs: Operand, place: Operand, result: Value) -> None:
        assert isinstance(xs.type, List) and xs.type.store is not None
        self.cells(_RowColumn(f"{xs.type.store}.#values", own("item"), xs.type, xs.type.elem), place, result)


def handing_on(
    functions: Sequence[Function],
    own: Mapping[str, dict[Any, Value]],
    like: Callable[[Sequence[Value]], tuple[Value, ...]],
) -> Iterator[Function]:
    """The functions, each with the columns that it reads, or passes on, behind its parameters; those of the entry, the
    first one, are values that it has."""
    size = -1
    while size < sum(map(len, own.values())):
        size = sum(map(len, own.values()))
        for function in functions:
            mine = own[function.name]
            for call in calls(function.region):
                for column, value in own[call.callee].items():
                    if column not in mine:
                        (mine[column],) = like([value])
    order = {name: list(columns) for name, columns in own.items()}

    def given(region: Region, columns: Mapping[Any, Value]) -> Region:
        return replace(region, body=tuple(instruction(i, columns) for i in region.body))

    def instruction(i: Instruction, columns: Mapping[Any, Value]) -> Instruction:
        if isinstance(i, Call):
            return replace(i, operands=(*i.operands, *(columns[c] for c in order[i.callee])))
        return with_regions(i, lambda r: given(r, columns))

    for k, function in enumerate(functions):
        columns = own[function.name]
        region = given(function.region, columns)
        args = region.args if k == 0 else (*region.args, *(columns[c] for c in order[function.name]))
        yield replace(function, region=replace(region, args=args))


# ---- shared rows
#
# Objects that all examples share, among which computed numbers choose: rows of shared arrays, for any back end.
#
#     func @f(%1: ref<Node in shared0>, ...):        module(shared %8: int32[16], %9: float32[16])
#       %2 = load[field='low'](%1)                   func @f(...):
#       %3 = load[field='at'](%2)             ->       %2 = dynamic_slice(%8, 0)
#                                                      %3 = dynamic_slice(%9, max(%2, 0))
#
# Their columns (`data/columns.py`) are shared inputs like any other array, so derivatives reach what they hold.
# `rows.py` has how each operation reads columns.


def shared_as_rows(module: Module, schema: Schema, shared: Sequence[SharedColumns]) -> Module:
    """The module without objects that all examples share: what it reads of them are shared inputs. UnsupportedError
    where such an object is a result, or a string is read of one."""
    if not shared:
        return module
    columns = {x.begin + name: x.first + k for x in shared for k, name in enumerate(x.names)}
    return _Shared(with_entry_apart(module), schema, columns).whole()


def _is_shared(type: Type) -> bool:
    match type:
        case Ref(store=store) | List(store=str() as store):
            return is_shared_store(store)
        case List(elem=elem):
            return _is_shared(elem)
        case _:
            return False


class _Shared(PartialLowering):
    """`columns`: the shared input that each column is."""

    def __init__(self, module: Module, schema: Schema, columns: Mapping[str, int]) -> None:
        values = (v for f in module.functions for v in region_values(f.region))
        super().__init__(module, schema, frozenset(v for v in values if _is_shared(v.type)))
        self.columns = columns

    def whole(self) -> Module:
        """The module; parameters of the entry that are such objects are the first rows of their stores."""
        region = self.module.functions[0].region
        roots = [a for a in region.args if a in self.chosen]
        if any(_is_shared(x.type) for x in region.results):
            raise self.refused("an object as a result that all examples share")
        self.env.update(dict.fromkeys(roots, ZERO))
        first, *others = (self.function(f) for f in self.module.functions)
        args = tuple(a for a, b in zip(first.region.args, region.args, strict=True) if b not in roots)
        first = replace(first, region=replace(first.region, args=args))
        return replace(self.module, functions=(first, *others))

    def take(self, name: str, elem: Type, row: Operand, result: Value | None = None) -> Value:
        """A row of a column, read as JAX reads an element of an array."""
        if isinstance(elem, Tag):
            raise UnsupportedError(
                "computed numbers choose among objects that all examples share, and here a string or a member of an "
                "enum is read of one",
                self.span,
                "hold its number beside it, and read that",
            )
        column, of = self.module.shared[self.columns[name]], self.type(elem)
        assert isinstance(of, Array) and isinstance(column.type, Array)
        cut = self.fresh.value(replace(column.type, shape=(1, *of.shape)))
        found = self.fresh.value(of) if result is None else self.value(result)
        read = Op("dynamic_slice", (("slice_sizes", (1, *of.shape)),), jax_compat.primitive("dynamic_slice"))
        first = (Literal(0, INT) for _ in of.shape)
        self.made.append(Apply((cut,), read, (column, row, *first), self.span))
        squeeze = Op("squeeze", (("dimensions", (0,)),), jax_compat.primitive("squeeze"))
        self.made.append(Apply((found,), squeeze, (cut,), self.span))
        return found
