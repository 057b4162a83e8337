"""Which reads an example can fail in, by what has been tested and read before, and which strings have one character.

    %3 = load[left](%1)            can fail: %1 may be None
    %4 = load[right](%1)           cannot: %1 has been read
    %5 = is_none(%3)
    if %5 then: ... else:
      %6 = load[x](%3)             cannot: %3 is not None here
    for %7 do (%8):                %7 = length(%2)
      %9 = item(%2, %8)            cannot: %8 counts from 0 to the length
    %10 = item(%2, 3)              can fail

A read that follows another one of the same object cannot be what its example fails with *first*. The answer is on the
safe side: a read that is not listed never fails, one that is may still never do so. Runs before loops become functions,
where what a loop has tested is seen in the regions around.

Strings that have one character, whatever they are, are code points under data-dependent control flow; what is read of
them cannot fail in some ways that it could of others.

    %4 = text['__getitem__', args=('abc', ...)](%k)      one character, and so is what chooses between such
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, assert_never

from autobatch.data.columns import Schema, field_column
from autobatch.data.spec import element_type
from autobatch.ir.core import (
    Apply,
    Array,
    BuiltObject,
    Call,
    For,
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
    Value,
    While,
    walk,
)
from autobatch.ir.ops import INHERENT
from autobatch.ir.regions import region_values
from autobatch.ir.strings import may_fail
from autobatch.passes.structure import decided


def fallible_reads(module: Module, schema: Schema) -> frozenset[Value]:
    """The results of operations that are kept for their results alone, and that an example may fail in."""
    found = _FallibleReads(module, schema)
    for function in module.functions:
        found.region(function.region, _KnownHere())
    return frozenset(found.fallible)


def is_there(item: Apply) -> bool:
    """Does an index count from the front, to an element that is there?"""
    return ("there", True) in item.op.params


def lacking(load: Apply, schema: Schema) -> tuple[str, ...]:
    """The classes that an object may be of which have no such field."""
    type = load.operands[0].type
    assert isinstance(type, Ref)
    store = schema.store(type.store)
    result = load.op["type"] if load.op.name == "load_is_none" else load.results[0].type
    column = field_column(schema, type.store, load.op["field"], result)
    having = next(f for f in store.fields if f.column == column).classes
    return tuple(c.name for k, c in enumerate(store.classes) if k not in having)


@dataclass
class _KnownHere:
    """What holds at a point of the program: objects and lists that are not None, classes that objects do not have."""

    there: set[Value] = field(default_factory=set)
    excluded: dict[Value, frozenset[str]] = field(default_factory=dict)
    fitting: set[Any] = field(default_factory=set)
    """Functions of strings with their operands that have results."""

    def copy(self) -> _KnownHere:
        return _KnownHere(set(self.there), dict(self.excluded), set(self.fitting))

    def exclude(self, x: Value, names: frozenset[str]) -> None:
        self.excluded[x] = self.excluded.get(x, frozenset()) | names


class _FallibleReads:
    def __init__(self, module: Module, schema: Schema) -> None:
        self.schema = schema
        self.fallible: list[Value] = []
        self.counts: dict[Value, Operand] = {}
        self.single = frozenset(x for f in module.functions for x in all_single(f.region))
        self.definition: dict[Value, tuple[Instruction, int]] = {}
        for function in module.functions:
            for instruction in walk(function.region):
                self.definition.update({r: (instruction, k) for k, r in enumerate(instruction.results)})
                if isinstance(instruction, For | Map):
                    self.counts[instruction.body.args[0]] = instruction.count

    def region(self, region: Region, known: _KnownHere) -> None:
        """`known` learns what holds at the end of the region."""
        for instruction in region.body:
            match instruction:
                case Apply():
                    self.apply(instruction, known)
                case If():
                    self.branch(instruction, known)
                case For(body=body) | Map(body=body):
                    self.region(body, known.copy())
                case While(condition=test, body=body):
                    inner = known.copy()
                    self.region(test, inner)
                    self.assume(test.results[0], True, inner)
                    for tested, carried in zip(test.args, body.args, strict=True):
                        self.rename(tested, carried, inner)
                    self.region(body, inner)
                case _:
                    pass

    def rename(self, old: Value, new: Value, known: _KnownHere) -> None:
        if old in known.there:
            known.there.add(new)
        if old in known.excluded:
            known.excluded[new] = known.excluded[old]

    def branch(self, branch: If, known: _KnownHere) -> None:
        ends = []
        for arm, truth in ((branch.then, True), (branch.orelse, False)):
            inner = known.copy()
            self.assume(branch.condition, truth, inner)
            self.region(arm, inner)
            ends.append((arm, inner))
        for k, result in enumerate(branch.results):
            if all(arm.results[k] in inner.there for arm, inner in ends):
                known.there.add(result)

    # ---- one operation

    def apply(self, instruction: Apply, known: _KnownHere) -> None:
        op = instruction.op
        if op.name == "check":
            self.assume(instruction.operands[0], True, known)
        elif op.is_jax or op.name in ("int", "round"):
            if self.number_fails(instruction):
                self.fallible.append(instruction.results[0])
        elif self.read_fails(instruction, known):
            self.fallible.append(instruction.results[0])
        if op.name in ("load", "load_is_none", "item", "length"):
            read = instruction.operands[0]
            if isinstance(read, Value):
                known.there.add(read)
                if op.name.startswith("load"):
                    known.exclude(read, frozenset(lacking(instruction, self.schema)))
            if self.gives_objects(instruction):
                known.there.add(instruction.results[0])

    def read_fails(self, read: Apply, known: _KnownHere) -> bool:
        op, xs = read.op, read.operands
        match op.name:
            case "load" | "load_is_none":
                possible = frozenset(lacking(read, self.schema)) - known.excluded.get(xs[0], frozenset())  # type: ignore[arg-type]
                return xs[0] not in known.there or bool(possible)
            case "length":
                return self.may_be_none(xs[0], known)
            case "item":
                return not is_there(read) and (self.may_be_none(xs[0], known) or not self.in_range(*xs))
            case "tag_index":
                keys = op["keys"]
                return not (isinstance(keys[0], enum.Enum) and set(type(keys[0])) <= set(keys))
            case "text":
                return self.text_fails(read, known)
            case _:
                return False

    def text_fails(self, text: Apply, known: _KnownHere) -> bool:
        function, args, xs = text.op["function"], text.op["args"], text.operands
        numbers = [isinstance(x.type, Array) for x in xs]
        if not may_fail(function, args, numbers) or (function, args, xs) in known.fitting:
            return False
        if function == "ord":
            return xs[0] not in self.single
        if (function == "__getitem__" or function.endswith("_item")) and args[1] is ... and xs[-1] in self.counts:
            counted = self.made_by(self.counts[xs[-1]])
            return not (isinstance(counted, Apply) and _counts(counted, text))
        return True

    def may_be_none(self, xs: Operand, known: _KnownHere) -> bool:
        assert isinstance(xs.type, List)
        return xs.type.store is not None and xs not in known.there

    def number_fails(self, instruction: Apply) -> bool:
        """Arithmetic that Python refuses, and that the host does where it knows the numbers. Most of it stands behind
        checks of the front end (`frontend/library/domains.py`)."""
        name, xs = instruction.op.name, instruction.operands
        if name.startswith("shift_"):
            return not (isinstance(xs[1], Literal) and isinstance(xs[1].value, int) and xs[1].value >= 0)
        if instruction.op.is_jax or (name == "round" and instruction.op["ndigits"] is not None):
            return False
        return isinstance(xs[0].type, Array) and not (xs[0].type.is_integer or xs[0].type.is_bool)

    def gives_objects(self, read: Apply) -> bool:
        """Is what this reads never None?"""
        type = read.operands[0].type
        if isinstance(type, List):
            return read.op.name == "item" and type.store is not None and not self.schema.list(type.store).nullable
        assert isinstance(type, Ref)
        if read.op.name != "load":
            return False
        column = field_column(self.schema, type.store, read.op["field"], read.results[0].type)
        return not next(f for f in self.schema.store(type.store).fields if f.column == column).nullable

    # ---- what a condition says

    def assume(self, condition: Operand, truth: bool, known: _KnownHere) -> None:
        if not isinstance(condition, Value) or condition not in self.definition:
            return
        match self.definition[condition]:
            case Apply(op=op, operands=xs), _:
                match op.name:
                    case "not":
                        self.assume(xs[0], not truth, known)
                    case "and" | "or" if truth is (op.name == "and"):
                        for x in xs:
                            self.assume(x, truth, known)
                    case "text" if truth and op["function"] == "fits":
                        known.fitting.add((op["args"][0], op["args"][1:], xs))
                    case "is_none" if not truth and isinstance(xs[0], Value):
                        known.there.add(xs[0])
                    case "is_class" if isinstance(xs[0], Value):
                        self.assume_class(xs[0], frozenset(op["names"]), truth, known)
            case If(condition=c, then=then, orelse=orelse), k:
                for arm, other, side in ((then, orelse, True), (orelse, then, False)):
                    constant = other.results[k]
                    if isinstance(constant, Literal) and constant.value is not truth:
                        self.assume(c, side, known)
                        self.assume(arm.results[k], truth, known)

    def assume_class(self, x: Value, names: frozenset[str], truth: bool, known: _KnownHere) -> None:
        assert isinstance(x.type, Ref)
        if not truth:
            known.exclude(x, names)
            return
        known.there.add(x)
        known.exclude(x, frozenset(c.name for c in self.schema.store(x.type.store).classes) - names)

    # ---- indices

    def in_range(self, xs: Operand, index: Operand) -> bool:
        """Is this the turn of a loop over the list, from the front or from the end, a constant that fits, or the place
        where something has been found?"""
        if isinstance(index, Literal):
            made = self.made_by(xs)
            fixed = made is not None and isinstance(made, Apply) and made.op.name == "pack_list"
            return fixed and isinstance(index.value, int) and -len(made.operands) <= index.value < len(made.operands)  # type: ignore[union-attr]
        if index in self.counts:
            return self.covers(self.counts[index], xs)
        match self.made_by(index):
            case Apply(op=op) if op.name == "find":  # which has been looked at
                return True
            case Apply(op=op, operands=(last, Value() as turn)) if op.name == "sub" and turn in self.counts:
                match self.made_by(last):
                    case Apply(op=inner, operands=(count, Literal(value=1))) if inner.name == "sub":
                        return count == self.counts[turn] and self.covers(count, xs)
        return False

    def covers(self, count: Operand, xs: Operand) -> bool:
        """Has the list at least so many elements?"""
        match self.made_by(xs):
            case Map(count=made, filtered=False) if made == count:
                return True
        match self.made_by(count):
            case Apply(op=op, operands=(held,)) if op.name == "length" and held == xs:
                return True
            case Apply(op=op, operands=(a, b)) if op.name == "min":
                return self.covers(a, xs) or self.covers(b, xs)
            case Apply(op=op, operands=(a, b)) if op.name == "max":
                return all(self.covers(x, xs) or _is_zero(x) for x in (a, b))
        match self.made_by(xs):
            case Apply(op=op, operands=elements) if op.name == "pack_list":
                return isinstance(count, Literal) and isinstance(count.value, int) and count.value <= len(elements)
        return False

    def made_by(self, x: Operand) -> Instruction | None:
        return self.definition[x][0] if isinstance(x, Value) and x in self.definition else None


def _counts(counted: Apply, text: Apply) -> bool:
    """Is this how many characters, or parts, the string has of which one is read?"""
    if counted.op.name != "text":
        return False
    function = text.op["function"].replace("_item", "_count") if text.op["function"] != "__getitem__" else "__len__"
    word, _, *how = text.op["args"]
    same = counted.op["args"] == (word, *how) and counted.operands == text.operands[: len(counted.operands)]
    return counted.op["function"] == function and same and ... not in how


def _is_zero(x: Operand) -> bool:
    return isinstance(x, Literal) and x.constant < 0 and x.value == 0


# ---- device
#
# Which values only the device knows: what is computed from shared floats and arrays, and what they decide.
#
#     %2 = mul(%0, %1)            %0 is a shared array: %2 is a number of the device
#     %3 = gt(%2, 0.0)
#     %4 = if %3 then: ...        and so is what this gives
#     %5 = length(%6)             a length never is
#
# The counterpart of `structure.py` for modules whose loops are not functions yet: a value is listed here where
# that would not call it host-computable. The least fixpoint over the functions of the module.


def device_values(
    module: Module,
    traced: frozenset[int] = frozenset(),
    numbers: frozenset[int] = frozenset(),
    left: frozenset[Value] = frozenset(),
) -> frozenset[Value]:
    """The values that the host cannot compute. `traced` are parameters of the entry, and `numbers` shared values, by
    position, as `structure.analyse` has them. `left`: values that are left to the device."""
    known = frozenset(module.shared[k] for k in numbers)
    told = known | decided(module, known)
    found = _DeviceValues(module, told)
    found.add(x for x in module.shared if x not in told)
    found.add(left)
    found.add(a for k, a in enumerate(module.functions[0].region.args) if k in traced)
    while found.changed:
        found.changed = False
        for function in module.functions:
            found.region(function.region)
    return frozenset(found.values)


def deciding(instruction: Instruction) -> Sequence[Operand]:
    """What decides which parts of an instruction run, and how often."""
    match instruction:
        case Apply() | Call():
            return ()
        case If(condition=x) | For(count=x):
            return (x,)
        case While(condition=test):
            return test.results[:1]
        case Map(count=x, body=body, filtered=filtered):
            return (x, *body.results[:filtered])
        case _:
            assert_never(instruction)


def depending_on(module: Module, values: Iterable[Value]) -> frozenset[Value]:
    """What is computed from some values, and what they decide."""
    found = _DeviceValues(module, frozenset(), inherent=False)
    found.add(values)
    while found.changed:
        found.changed = False
        for function in module.functions:
            found.region(function.region)
    return frozenset(found.values)


class _DeviceValues:
    """`inherent`: are random keys and objects that are made among them?"""

    def __init__(self, module: Module, told: frozenset[Value], inherent: bool = True) -> None:
        self.inherent = inherent
        self.functions: Mapping[str, Region] = {f.name: f.region for f in module.functions}
        self.told = told
        self.values: set[Value] = set()
        self.changed = True

    def add(self, values: Iterable[Value]) -> None:
        new = set(values) - self.told - self.values
        self.changed |= bool(new)
        self.values |= new

    def holds(self, x: Operand) -> bool:
        return not isinstance(x, Literal) and x in self.values

    def flow(self, sources: Sequence[Operand], targets: Sequence[Value]) -> None:
        self.add(y for x, y in zip(sources, targets, strict=True) if self.holds(x))

    def region(self, region: Region) -> None:
        if self.inherent:
            self.add(a for a in region.args if _is_key(a))
        for instruction in region.body:
            if self.inherent:
                made = isinstance(instruction, Apply) and instruction.op.name in INHERENT
                self.add(
                    r
                    for r in instruction.results
                    if made or _is_key(r) or isinstance(element_type(r.type), BuiltObject)
                )
            self.instruction(instruction)

    def instruction(self, instruction: Instruction) -> None:
        results = instruction.results
        match instruction:
            case Apply(op=op, operands=xs):
                is_masked = op.name == "masked" and not op.is_jax  # nothing before masks
                if is_masked:
                    self.flow(xs, op["region"].args)
                    self.region(op["region"])
                if is_masked and not self.inherent:
                    self.flow(op["region"].results, results)
                elif op.name != "length" and any(map(self.holds, xs)):
                    self.add(results)
            case If(condition=condition, then=then, orelse=orelse):
                for arm in (then, orelse):
                    self.region(arm)
                    self.flow(arm.results, results)
                self.decide(condition, results)
            case For(count=count, init=init, body=body):
                self.carry(init, body.results, body.args[1:])
                self.region(body)
                self.flow(body.args[1:], results)
                self.decide(count, results)
            case While(init=init, condition=test, body=body):
                self.carry(init, body.results, body.args)
                self.flow(body.args, test.args)
                self.region(test)
                self.region(body)
                self.flow(body.args, results)
                self.decide(test.results[0], (*results, *body.args, *test.args))
            case Map(count=count, body=body, filtered=filtered):
                self.region(body)
                self.flow(body.results[filtered:], results)
                for x in (count, *body.results[:filtered]):
                    self.decide(x, results)
            case Call(callee=callee, operands=xs):
                self.flow(xs, self.functions[callee].args)
                self.flow(self.functions[callee].results, results)
            case _:
                assert_never(instruction)

    def carry(self, init: Sequence[Operand], again: Sequence[Operand], carried: Sequence[Value]) -> None:
        self.flow(init, carried)
        self.flow(again, carried)

    def decide(self, x: Operand, results: Sequence[Value]) -> None:
        if self.holds(x):
            self.add(results)


def _is_key(value: Value) -> bool:
    return isinstance(value.type, Array) and value.type.dtype.startswith("key<")


# ---- strings of one character


def all_single(region: Region) -> frozenset[Value]:
    """The strings, and lists of strings, of which every one has one character: the greatest fixpoint."""
    sources: dict[Value, list[Operand] | None] = {}

    def flow(given: Sequence[Operand], targets: Sequence[Value]) -> None:
        for x, y in zip(given, targets, strict=True):
            held = sources.setdefault(y, [])
            if held is not None:
                held.append(x)

    for i in walk(region):
        match i:
            case Apply(results=results):
                for y in results:
                    sources[y] = _sources(i)
            case If(results=results, then=then, orelse=orelse):
                flow(then.results, results)
                flow(orelse.results, results)
            case For(results=results, init=init, body=body):
                for given in (init, body.results):
                    flow(given, body.args[1:])
                flow(body.args[1:], results)
            case While(results=results, init=init, condition=test, body=body):
                for given in (init, body.results):
                    flow(given, body.args)
                flow(body.args, test.args)
                flow(body.args, results)
            case Map(results=results, body=body, filtered=filtered):
                flow(body.results[filtered:], results)
            case Call():
                pass
            case _:
                assert_never(i)
    single = {x for x in region_values(region) if _of_strings(x.type) and sources.get(x) is not None}
    size = -1
    while size != len(single):
        size = len(single)
        single = {x for x in single if all(y in single for y in sources[x] or ())}
    return frozenset(single)


def _of_strings(type: Any) -> bool:
    while isinstance(type, List):
        type = type.elem
    return isinstance(type, Tag)


def _sources(i: Apply) -> list[Operand] | None:
    """What decides whether a string has one character; None where it may have more."""
    op, xs = i.op, i.operands
    match op.name:
        case "tag":
            return [] if isinstance(op["value"], str) and len(op["value"]) == 1 else None
        case "text":
            return [] if op["function"] in ("__getitem__", "chr") else None
        case "pack_list" | "flatten" | "undefined":
            return list(xs)
        case "item":
            return [xs[0]]
        case "put":
            return [xs[0], xs[2]]
        case _:
            return None
