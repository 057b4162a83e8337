"""Structure as numbers: objects and lists are rows of columns, which the device reads itself.

    func @f(%1: list<float32*[] in '#root'>):      module(shared %8: int32*[rows], %9: float32*[rows])
      %2 = length(%1)                              func @f(%1: int32*[]):
      %6 = for %2 (0.0) do (%3, %4):                 %10 = max(%1, 0); %11 = take_row(%8, %10); ...
        %5 = item(%1, %3)                   ->       %2 = sub(%13, %11)
        ...                                          %6 = for %2 (0.0) do (%3, %4):
                                                       %5 = take_row(%9, %15)

A reference is the number of a row of its store, a list that of a row of its list store, and -1 is None: what columns
hold (`data/columns.py`). A string or a member of an enum is its position in the vocabulary; those that the program
names are shared inputs, because the vocabulary comes with the data. What Python checks of a read stands before it as a
check of its own. Rows are in range also where such a check has failed, or where nothing is there: every read may be
made by every lane.

For back ends that run the whole function of an example (`passes/loops.py`): whatever structure decides is
decided on the device then, and no row is laid out ahead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, assert_never

import jax

from autobatch.data.columns import (
    BEGINS,
    LETTERS,
    OFFSETS,
    VALUES,
    ColumnInput,
    Schema,
    Step,
    WordInput,
    field_column,
    name_of,
)
from autobatch.data.spec import element_type
from autobatch.errors import UnsupportedError
from autobatch.ir.core import (
    BOOL,
    INT,
    ROWS,
    STR,
    Apply,
    Array,
    BuiltObject,
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
    walk,
)
from autobatch.ir.ops import OWN, Op, own
from autobatch.ir.regions import Fresh, region_values
from autobatch.passes.failures import ReadChecks
from autobatch.passes.fallible import fallible_reads
from autobatch.passes.overflows import UNKNOWN

CURE = "use backend='xla', which knows structure before it computes"


class OnRows(NamedTuple):
    """A module without structure, and what its last shared inputs are."""

    module: Module
    inputs: tuple[ColumnInput | WordInput, ...]


def has_structure(module: Module) -> bool:
    """Is there an object, a list of the examples or a string among the values of a module?"""
    values = (v for f in module.functions for v in region_values(f.region))
    return any(_is_structure(v.type) for v in values)


def structure_as_rows(module: Module, schema: Schema) -> OnRows:
    """The module on numbers of rows. UnsupportedError where it makes objects, or looks into strings."""
    return Lowering(module, schema).run()


def _is_structure(type: Type) -> bool:
    match type:
        case Array():
            return False
        case List(elem=elem, store=None):
            return _is_structure(elem)
        case Tag() | Ref() | List() | BuiltObject():
            return True
        case _:
            assert_never(type)


class Lowering:
    """Structure as numbers, everywhere; `chosen_rows.py` does so for a part of it."""

    def __init__(self, module: Module, schema: Schema) -> None:
        self.module, self.schema, self.fresh = module, schema, Fresh(module)
        self.fallible = fallible_reads(module, schema)
        self.inputs: dict[ColumnInput | WordInput, Value] = {}
        self.env: dict[Value, Operand] = {}
        self.letters: set[Operand] = set()
        self.tables: dict[Operand, tuple[Step, ...]] = {}
        self.made: list[Instruction] = []
        self.span = module.functions[0].span

    def run(self) -> OnRows:
        functions = tuple(map(self.function, self.module.functions))
        made = replace(self.module, functions=functions, shared=(*self.module.shared, *self.inputs.values()))
        return OnRows(made, tuple(self.inputs))

    def function(self, function: Function) -> Function:
        self.span = function.span
        return replace(function, region=self.region(function.region))

    # ---- types and operands

    def type(self, type: Type) -> Type:
        """A type as numbers."""
        match type:
            case Array():
                return type
            case Ref() | Tag() | List(store=str()):
                return INT
            case List(elem=elem):
                return List(self.type(elem))
            case BuiltObject():
                raise self.refused("an object that the function makes and hands on")
            case _:
                assert_never(type)

    def value(self, x: Value) -> Value:
        found = self.type(x.type)
        return x if found is x.type else replace(x, type=found)

    def values(self, xs: Sequence[Value]) -> tuple[Value, ...]:
        return tuple(map(self.value, xs))

    def read(self, x: Operand) -> Operand:
        if isinstance(x, Literal):
            return x if isinstance(x.type, Array) else Literal(-1, INT)
        return self.env.get(x) or self.value(x)

    def reads(self, xs: Sequence[Operand]) -> tuple[Operand, ...]:
        return tuple(map(self.read, xs))

    def refused(self, what: str) -> UnsupportedError:
        return UnsupportedError(f"backend='llvm' has no machine code for this: {what}", self.span, CURE)

    # ---- instructions

    def region(self, region: Region) -> Region:
        before, self.made = self.made, []
        args = self.values(region.args)
        for instruction in region.body:
            self.span = instruction.span
            self.instruction(instruction)
        found = Region(args, tuple(self.made), self.reads(region.results))
        self.made = before
        return found

    def instruction(self, i: Instruction) -> None:
        match i:
            case Apply():
                self.checked(i)
                return
            case Call(operands=xs):
                made: Instruction = replace(i, operands=self.reads(xs))
            case If(condition=condition, then=then, orelse=orelse):
                arms = self.region(then), self.region(orelse)
                made = replace(i, condition=self.read(condition), then=arms[0], orelse=arms[1])
            case For(count=count, init=init, body=body):
                made = replace(i, count=self.read(count), init=self.reads(init), body=self.region(body))
            case While(init=init, condition=test, body=body):
                made = replace(i, init=self.reads(init), condition=self.region(test), body=self.region(body))
            case Map(count=count, body=body):
                made = replace(i, count=self.read(count), body=self.region(body))
            case _:
                assert_never(i)
        self.made.append(replace(made, results=self.values(i.results)))

    def checked(self, apply: Apply) -> None:
        """An operation behind what Python checks of it, where an example can fail in it."""
        is_part = not apply.op.is_jax and apply.op.name == "text" and apply.op["function"].endswith("_item")
        if not is_part and not self.fallible.isdisjoint(apply.results):  # of parts the front end has asked
            checks = ReadChecks(self.fresh, self.schema)
            if checks.read(apply):
                for check in checks.made:
                    assert isinstance(check, Apply)
                    self.apply(check)
        self.apply(apply)

    def apply(self, apply: Apply) -> None:
        op, xs = apply.op, apply.operands
        if op.is_jax or op.name not in OWN:
            self.made.append(replace(apply, operands=self.reads(xs), results=self.values(apply.results)))
            return
        match op.name:
            case "load":
                self.load(apply)
            case "load_is_none":
                self.is_missing(apply)
            case "is_none":
                self.put(apply.results[0], "lt", self.read(xs[0]), Literal(0, INT))
            case "none":
                self.type(apply.results[0].type)
                self.env[apply.results[0]] = Literal(-1, INT)
            case "is_class":
                self.is_class(apply)
            case "same":
                self.same(apply)
            case "length" if in_store(xs[0]):
                first, behind = self.ends(xs[0])
                count = self.number("sub", behind, first)
                self.made.append(Apply(apply.results, own("int"), (count,), self.span))  # for Python from here on
            case "item" if in_store(xs[0]):
                self.item(apply)
            case "tag":
                kind = apply.results[0].type
                assert isinstance(kind, Tag)
                self.env[apply.results[0]] = self.input(WordInput(kind.vocabulary, op["value"]), INT)
            case "tag_equal":
                self.put(apply.results[0], "eq", *self.reads(xs))
            case "tag_index":
                self.tag_index(apply)
            case "undefined":
                self.undefined(apply)
            case "row" | "row_of":
                self.env[apply.results[0]] = self.read(xs[0])
            case "word" | "word_of":
                self.word(apply)
            case "sort_order" if any(isinstance(element_type(x.type), Tag) for x in xs):
                raise self.refused("strings that are sorted, or compared with others by order")
            case "text":
                self.text(apply)
            case "make" | "adopt":
                raise self.refused(_WORDS[op.name])
            case _:
                self.made.append(replace(apply, operands=self.reads(xs), results=self.values(apply.results)))

    # ---- arithmetic

    def put(self, result: Value, name: str, *xs: Operand) -> Value:
        """`result` is an operation of JAX on numbers."""
        self.made.append(Apply((result,), Op(name, (), _PRIMITIVES[name]), tuple(xs), self.span))
        return result

    def number(self, name: str, *xs: Operand) -> Value:
        return self.put(self.fresh.value(INT), name, *xs)

    def test(self, name: str, *xs: Operand) -> Value:
        return self.put(self.fresh.value(BOOL), name, *xs)

    # ---- columns

    def input(self, of: ColumnInput | WordInput, type: Array) -> Value:
        if of not in self.inputs:
            self.inputs[of] = self.fresh.value(type)
        return self.inputs[of]

    def take(self, name: str, elem: Type, row: Operand, result: Value | None = None) -> Value:
        """A row of a column whose elements are of a type."""
        of = self.type(elem)
        assert isinstance(of, Array)
        column = self.input(ColumnInput(name), replace(of, shape=(ROWS, *of.shape)))
        found = self.fresh.value(of) if result is None else self.value(result)
        self.made.append(Apply((found,), own("take_row"), (column, row), self.span))
        return found

    def there(self, x: Operand) -> Operand:
        """The row of an object or list; some row where it is None."""
        row = self.read(x)
        return ZERO if isinstance(row, Literal) else self.number("max", row, ZERO)

    def load(self, load: Apply) -> None:
        (ref,), result = load.operands, load.results[0]
        assert isinstance(ref.type, Ref)
        column = field_column(self.schema, ref.type.store, load.op["field"], result.type)
        self.take(column, result.type, self.there(ref), result)

    def is_missing(self, load: Apply) -> None:
        (ref,) = load.operands
        assert isinstance(ref.type, Ref)
        column = field_column(self.schema, ref.type.store, load.op["field"], load.op["type"]) + "?"
        self.take(column, BOOL, self.there(ref), load.results[0])

    def is_class(self, test: Apply) -> None:
        (ref,), result, names = test.operands, test.results[0], test.op["names"]
        assert isinstance(ref.type, Ref)
        classes = self.schema.store(ref.type.store).classes
        positions = [k for k, c in enumerate(classes) if c.name in names]
        some = self.test("ge", self.read(ref), ZERO)
        if len(positions) < len(classes):
            tag = self.take(f"{ref.type.store}.#tag", INT, self.there(ref))
            found: Operand = Literal(False, BOOL)
            for n, k in enumerate(positions):
                here = self.test("eq", tag, Literal(k, INT))
                found = here if n == 0 else self.test("or", found, here)
            self.put(result, "and", some, found)
            return
        self.env[result] = some

    def same(self, test: Apply) -> None:
        """Rows of one store are equal, or both are None."""
        a, b = test.operands
        x, y = self.reads((a, b))
        if a.type == b.type:
            self.put(test.results[0], "eq", x, y)
            return
        self.put(test.results[0], "and", self.test("lt", x, ZERO), self.test("lt", y, ZERO))

    def begin(self, xs: Operand) -> Value:
        """The row of the first element of a list."""
        assert isinstance(xs.type, List)
        return self.take(f"{xs.type.store}.#offsets", INT, self.there(xs))

    def ends(self, xs: Operand) -> tuple[Value, Value]:
        """The row of the first element of a list, and that behind its last one."""
        assert isinstance(xs.type, List)
        row, offsets = self.there(xs), f"{xs.type.store}.#offsets"
        return self.take(offsets, INT, row), self.take(offsets, INT, self.number("add", row, ONE))

    def item(self, item: Apply) -> None:
        """An element, by an index from the front or from the end. Where an index may be out of range, a check stands in
        front, and what has failed reads the first row."""
        xs, index = item.operands
        assert isinstance(xs.type, List)
        at = self.read(index)
        if index.type != INT:
            at = self.fresh.value(INT)
            self.made.append(Apply((at,), own("int"), (self.read(index),), self.span))
        if item.results[0] not in self.fallible and not isinstance(index, Literal) and self.counts(item):
            place: Operand = self.number("add", self.begin(xs), at)
        else:
            first, behind = self.ends(xs)
            count = self.number("sub", behind, first)
            negative = self.test("lt", at, ZERO)
            forward = self.number("select_n", negative, at, self.number("add", at, count))
            inside = self.test("and", self.test("ge", forward, ZERO), self.test("lt", forward, count))
            place = self.number("select_n", inside, ZERO, self.number("add", first, forward))
        self.element(xs, place, item.results[0])

    def element(self, xs: Operand, place: Operand, result: Value) -> None:
        """An element, by its place among those of all lists of the store."""
        assert isinstance(xs.type, List)
        self.take(f"{xs.type.store}.#values", xs.type.elem, place, result)

    def counts(self, item: Apply) -> bool:
        """Is the index the turn of a loop, so that it counts from the front?"""
        return item.operands[1] in self.turns

    @property
    def turns(self) -> frozenset[Value]:
        if self._turns is None:
            self._turns = frozenset(_turns_of(self.module))
        return self._turns

    _turns: frozenset[Value] | None = None

    # ---- strings and members of enums

    def tag_index(self, index: Apply) -> None:
        """The position of a tag among keys, the first of equal ones; a check that it is one of them."""
        (tag,), keys, kind = self.reads(index.operands), index.op["keys"], index.operands[0].type
        assert isinstance(kind, Tag)
        hits = [self.test("eq", tag, self.input(WordInput(kind.vocabulary, key), INT)) for key in keys]
        if index.results[0] in self.fallible:
            some = hits[0]
            for hit in hits[1:]:
                some = self.test("or", some, hit)
            check = own("check", kind="KeyError", message=UNKNOWN)
            self.made.append(Apply((), check, (some,), self.span))
        found: Operand = ZERO
        for k in reversed(range(len(keys))):
            found = self.number("select_n", hits[k], found, Literal(k, INT))
        self.env[index.results[0]] = found

    def word(self, apply: Apply) -> None:
        """A word by its number, or the other way round: here both are its place in the vocabulary."""
        self.env[apply.results[0]] = self.read(apply.operands[0])

    def text(self, text: Apply) -> None:
        """A function of a string of the examples, as a column of the vocabulary (`data/columns.py`); its length,
        and the code points of its characters (`code_points.py`)."""
        (word, *rest), result, name, args = text.operands, text.results[0], text.op["function"], text.op["args"]
        if name == "ord" and word in self.letters:
            self.env[result] = self.read(word)
            return
        if not isinstance(word.type, Tag) or args.count(...) != len(text.operands) or word in self.letters:
            raise self.refused(_WORDS["text"])
        row, steps = self.there(word), self.tables.get(word, ())
        if name in ("__len__", "__getitem__") and args == (...,) * len(text.operands):
            self.looked_into(text, row, steps)
        elif name.endswith("_item"):
            self.part_of(text, row, steps)
        elif rest:
            raise self.refused(_WORDS["text"])
        elif result.type == STR:
            self.env[result], self.tables[result] = row, (*steps, (name, args))
        else:
            if name == "int":
                self.check_width(row, (*steps, ("is_narrow", (...,))))
            assert isinstance(result.type, Array)
            self.env[result] = self.take(name_of((*steps, (name, args)), VALUES), result.type, row)

    def looked_into(self, text: Apply, row: Operand, steps: tuple[Step, ...]) -> None:
        """`len(word)`, `word[k]`"""
        offsets, result = name_of(steps, OFFSETS), text.results[0]
        first = self.take(offsets, INT, row)
        if text.op["function"] == "__len__":
            behind = self.take(offsets, INT, self.number("add", row, ONE))
            self.made.append(Apply((result,), own("int"), (self.number("sub", behind, first),), self.span))
            return
        self.letters.add(result)
        place = self.number("add", first, self.read(text.operands[1]))
        self.env[result] = self.take(name_of(steps, LETTERS), INT, place)

    def part_of(self, text: Apply, row: Operand, steps: tuple[Step, ...]) -> None:
        """`word.split()[k]`: a row of the table of all parts."""
        name, args, result = text.op["function"], text.op["args"], text.results[0]
        place = self.read(text.operands[1]) if args[1] is ... else Literal(args[1], INT)
        steps = (*steps, (name, (..., ..., *args[2:])))
        begins = name_of(steps, BEGINS)
        first, behind = self.take(begins, INT, row), self.take(begins, INT, self.number("add", row, ONE))
        at = self.number("add", first, place)
        inside = self.test("and", self.test("ge", place, ZERO), self.test("lt", at, behind))
        self.env[result], self.tables[result] = self.number("select_n", inside, ZERO, at), steps

    def check_width(self, row: Operand, steps: tuple[Step, ...]) -> None:
        fits = self.take(name_of(steps, VALUES), BOOL, row)
        message = "an int does not fit into the int32 of the device; jax_enable_x64 makes it wider"
        self.made.append(Apply((), own("check", kind="OverflowError", message=message), (fits,), self.span))

    def undefined(self, apply: Apply) -> None:
        type = self.type(apply.results[0].type)
        if isinstance(type, Array):
            self.made.append(replace(apply, op=own("undefined", type=type), results=self.values(apply.results)))
        else:
            self.made.append(replace(apply, op=own("undefined", type=type), results=self.values(apply.results)))


def _turns_of(module: Module) -> Sequence[Value]:
    return [v for f in module.functions for i in walk(f.region) if isinstance(i, For | Map) for v in i.body.args[:1]]


def in_store(x: Operand) -> bool:
    return isinstance(x.type, List) and x.type.store is not None


ZERO, ONE = Literal(0, INT), Literal(1, INT)

_PRIMITIVES: dict[str, Any] = {
    "add": jax.lax.add_p,
    "and": jax.lax.and_p,
    "eq": jax.lax.eq_p,
    "ge": jax.lax.ge_p,
    "lt": jax.lax.lt_p,
    "max": jax.lax.max_p,
    "or": jax.lax.or_p,
    "select_n": jax.lax.select_n_p,
    "sub": jax.lax.sub_p,
}

_WORDS = {
    "make": "an object that the function makes and hands on",
    "adopt": "an object of the examples beside those that the function makes",
    "text": "a function that looks into a string",
}
