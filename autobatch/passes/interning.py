"""Data-dependent strings and enum members: numbers, one for each word.

    %4 = if %3 then: tag['a'] else: tag['b']            %7 = word(tag['a']); %8 = word(tag['b'])
    %5 = tag_equal(%4, %2)                       ->     %4 = if %3 then: %7 else: %8
    %6 = put(%keys, %n, %4)                             %5 = eq(%4, word(%2)); %6 = put(%keys, %n, %4)

What the host knows stays what it is; where it meets what only the device knows, it is handed over as a number. That of
a character is its code point, so what is asked of characters is arithmetic (`code_point_functions.py`). A string of the
examples that is read at a computed place is a list of such numbers. What looks into longer strings, or makes them, is
refused.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, assert_never

import jax
import jax.numpy as jnp

from autobatch.errors import NOWHERE, UnsupportedError
from autobatch.ir import jax_compat, strings
from autobatch.ir.core import (
    BOOL,
    INT,
    STR,
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
    Region,
    Tag,
    Type,
    Value,
    While,
    operands,
    regions,
    walk,
)
from autobatch.ir.ops import Op, own
from autobatch.ir.regions import ConstantPool, Fresh, free_values, region_values, with_operands, with_regions
from autobatch.passes import code_point_functions
from autobatch.passes.arenas import Device, decided_by_device, lists_of_numbers
from autobatch.passes.chosen_rows import handing_on
from autobatch.passes.fallible import all_single, deciding
from autobatch.passes.overflows import UNKNOWN
from autobatch.passes.simplify import recursive_functions
from autobatch.passes.stack import words

# ---- handed words
#
# Constant words that recursions read as numbers: the entry passes them on.
#
#     func @f(%1: int32*):                      func @main(...):
#       %2 = tag[value='in']()                    %8 = tag[value='in'](); %9 = word(%8)
#       %3 = word(%2)                    ->       call @f(0, %9)
#       ... eq(%1, %3) ... call @f(..)          func @f(%1: int32*, %3: int32*): ... call @f(.., %3)
#
# What number a word has, the host says of each batch; a recursion on the device holds numbers alone.


Words = dict[Any, Value]
"""The numbers of words, by their type and what they are."""


def with_words_handed(module: Module) -> Module:
    """The module whose recursions are given the numbers of the constant words that they read."""
    fresh, recursive = Fresh(module), recursive_functions(module)
    entry, *others = module.functions
    if entry.name in recursive:
        return module
    found: dict[str, Words] = {f.name: {} for f in module.functions}
    made = [replace(f, region=_without(f.region, found[f.name], fresh)) if f.name in recursive else f for f in others]
    if not any(found.values()):
        return module
    entry, *others = handing_on([entry, *made], found, fresh.like)
    first: list[Instruction] = []
    for (type, word), number in found[entry.name].items():
        tag = fresh.value(type)
        first.append(Apply((tag,), own("tag", value=word), (), entry.span))
        first.append(Apply((number,), own("word"), (tag,), entry.span))
    entry = replace(entry, region=replace(entry.region, body=(*first, *entry.region.body)))
    return replace(module, functions=(entry, *others))


def _without(region: Region, numbers: Words, fresh: Fresh) -> Region:
    """A region without such words; notes the values that their numbers are."""
    inside = [i for i in walk(region) if isinstance(i, Apply)]
    tags = {i.results[0]: (i.results[0].type, i.op["value"]) for i in inside if i.op.name == "tag"}
    names: dict[Operand, Value] = {}
    for i in inside:
        if i.op.name == "word" and i.operands[0] in tags:
            key = tags[i.operands[0]]
            if key not in numbers:
                numbers[key] = fresh.value(INT)
            names[i.results[0]] = numbers[key]
    if not names:
        return region
    made = with_operands(_dropping(region, set(names)), lambda x: names.get(x, x))
    read = {x for i in walk(made) for x in (*operands(i), *(x for r in regions(i) for x in r.results))}
    return _dropping(made, set(tags) - read - {*made.results})


def _dropping(region: Region, results: set[Any]) -> Region:
    """A region without the operations that compute these values."""
    kept = (i for i in region.body if not isinstance(i, Apply) or results.isdisjoint(i.results) or not i.results)
    return replace(region, body=tuple(with_regions(i, lambda r: _dropping(r, results)) for i in kept))


# ---- word reads
#
# Which characters and parts of the host's strings are read where only the device knows the place.
#
# for %n do (%k):                          %n: computed numbers say how often it turns
#   %4 = text['__getitem__'](%1, %k)       one of the letters of %1, which are copied where it is defined


def read_in_loops(region: Region, device: Collection[Operand]) -> Iterator[Value]:
    """The characters of strings that are read at places which loops of computed numbers count."""
    for i in walk(region):
        if isinstance(i, For | Map | While) and deciding(i)[0] in device and decided_by_device(i, device):
            free = set(free_values(Region((), (i,), ())))
            within = (j for r in regions(i) for j in walk(r))
            inside = (j for j in within if isinstance(j, Apply) and j.op.name == "text" and j.operands)
            read = (j for j in inside if is_read(j) and isinstance(j.operands[-1], Value))
            yield from (j.results[0] for j in read if j.operands[-1] not in free)


def is_read(text: Apply) -> bool:
    """Is it a character, or a part, of a string?"""
    name, args = text.op["function"], text.op["args"]
    return (name == "__getitem__" or name.endswith("_item")) and args[:2] == (..., ...) and ... not in args[2:]


_Split = tuple[str, tuple[Any, ...]]
"""How a string is split: the function that reads a part (`ir/strings.py`), and what it is given beside."""

CURE = "compute it before packing and store the result in a field, or choose between numbers"


def words_as_numbers(module: Module, device: Device) -> Module:
    """The module with numbers in place of the data-dependent words; such a result is its
    number, which is looked up where results are put together. `device`: as in `lists_of_numbers`. UnsupportedError
    where such a word is looked into, or made of others."""
    found = decided_words(module, device)
    if not found:
        return module
    fresh, constants = Fresh(module), ConstantPool(module)
    functions, parameters = list[Function](), {f.name: f.region.args for f in module.functions}
    for f in module.functions:
        if found.isdisjoint(region_values(f.region)):
            functions.append(f)
            continue
        rewriter = Rewriter(fresh, found, f.region, constants, parameters)
        functions.append(replace(f, region=rewriter.entry(f.region)))
    return with_words_handed(replace(module, functions=tuple(functions), constants=constants.all))


def decided_words(module: Module, device: Device) -> frozenset[Value]:
    """The words that only the device knows."""
    values = {v for f in module.functions for v in region_values(f.region)}
    if module.functions[0].name in recursive_functions(module) or not any(is_word(x.type) for x in values):
        return frozenset()
    lists, numbers = lists_of_numbers(module, device, alone=False)
    read = frozenset(
        i.results[0]
        for f in module.functions
        for i in walk(f.region)
        if isinstance(i, Apply) and i.op.name == "item" and i.operands[0] in lists and is_word(i.results[0].type)
    )
    read |= frozenset(r for f in module.functions for r in read_in_loops(f.region, numbers))
    behind = device(read)
    return frozenset(x for x in values if is_word(x.type) and any(x in k for k in (lists, numbers, read, behind)))


def is_word(type: Type) -> bool:
    """Is it a string, a member of an enum, or a list of such?"""
    while isinstance(type, List):
        type = type.elem
    return isinstance(type, Tag)


def _numbered(type: Type) -> Type:
    """The type of words as numbers."""
    return List(_numbered(type.elem)) if isinstance(type, List) else INT


class Rewriter:
    """`found`: the words that become numbers; `constants`: the constant arrays of the module; `parameters`: those of
    its functions, by name; `returned`: what stands in `found` for the results, where these do not. What the host knows
    is numbered where it is defined, once."""

    def __init__(
        self,
        fresh: Fresh,
        found: frozenset[Any],
        region: Region,
        constants: ConstantPool,
        parameters: Mapping[str, Sequence[Value]],
        returned: Sequence[Any] = (),
    ) -> None:
        self.fresh, self.found, self.constants, self.parameters = fresh, found, constants, parameters
        self.returned = returned or region.results
        tags = [i for i in walk(region) if isinstance(i, Apply) and i.op.name == "tag"]
        self.constants_of = {i.results[0]: i.op["value"] for i in tags}
        self.asked = self.all_asked(region)
        self.split = dict[Operand, set[_Split]]()
        for i in walk(region):
            if isinstance(i, Apply) and i.op.name == "text" and i.results[0] in found and is_read(i):
                self.split.setdefault(i.operands[0], set()).add((i.op["function"], i.op["args"][2:]))
        self.single = all_single(region)
        self.codes: dict[Operand, Operand] = {}
        self.parts: dict[Any, Operand] = {}
        self.made: list[Instruction] = []
        self.first: list[Instruction] = []
        self.names: dict[Value, Operand] = {}
        self.span = region.body[0].span if region.body else NOWHERE

    def all_asked(self, region: Region) -> frozenset[Operand]:
        """The words of the host that are read as numbers, or at computed places."""
        asked: set[Operand] = set()

        def flow(sources: Sequence[Operand], targets: Sequence[Any]) -> None:
            asked.update(x for x, y in zip(sources, targets, strict=True) if y in self.found)

        flow(region.results, self.returned)
        for i in walk(region):
            match i:
                case Apply(operands=xs, results=ys):
                    if any(x in self.found for x in (*xs, *ys)):
                        asked.update(x for x in xs if is_word(x.type))
                case If(results=results, then=then, orelse=orelse):
                    flow(then.results, results)
                    flow(orelse.results, results)
                case For(results=results, init=init, body=body):
                    flow(init, body.args[1:])
                    flow(body.results, body.args[1:])
                case While(init=init, body=body):
                    flow(init, body.args)
                    flow(body.results, body.args)
                case Map(results=results, body=body, filtered=filtered):
                    asked.update(x for x, y in zip(body.results[filtered:], results, strict=True) if y in self.found)
                case Call(operands=xs, callee=callee):
                    flow(xs, self.parameters[callee])
                case _:
                    assert_never(i)
        packed = {i.results[0]: i for i in walk(region) if isinstance(i, Apply) and i.op.name == "pack_list"}
        todo = list(asked)
        while todo:  # the elements of lists that are written out
            if (made := packed.get(todo.pop())) is not None:  # type: ignore[arg-type]
                todo += set(made.operands) - asked
                asked.update(made.operands)
        return frozenset(x for x in asked if x not in self.found)

    def refused(self, what: str, cure: str = CURE) -> UnsupportedError:
        return UnsupportedError(f"a data-dependent string {what}", self.span, cure)

    # ---- regions

    def entry(self, region: Region) -> Region:
        made = self.yielding(region, self.returned)
        return _without_unread(with_operands(replace(made, body=(*self.first, *made.body)), self.named_as))

    def named_as(self, x: Operand) -> Operand:
        while isinstance(x, Value) and x in self.names:
            x = self.names[x]
        return x

    def region(self, region: Region) -> Region:
        before, self.made = self.made, []
        args = self.values(region.args)
        self.number(region.args)
        for instruction in region.body:
            self.span = instruction.span
            self.instruction(instruction)
            self.number(instruction.results)
        made = Region(args, tuple(self.made), self.reads(region.results))
        self.made = before
        return made

    def value(self, x: Value) -> Value:
        return replace(x, type=self.type_of(x.type)) if x in self.found else x

    def type_of(self, type: Type) -> Type:
        """What a word, or a list of words, becomes."""
        return _numbered(type)

    def values(self, xs: Sequence[Value]) -> tuple[Value, ...]:
        return tuple(map(self.value, xs))

    def reads(self, xs: Sequence[Operand]) -> tuple[Operand, ...]:
        """Operands as they are: words that are numbers as such."""
        return tuple(self.value(x) if isinstance(x, Value) else x for x in xs)

    def given(self, xs: Sequence[Operand], targets: Sequence[Any]) -> tuple[Operand, ...]:
        return tuple(self.code(x) if y in self.found else x for x, y in zip(xs, targets, strict=True))

    # ---- words of the host as numbers

    def code(self, x: Operand) -> Operand:
        """A word, or a list of them, as numbers."""
        if x in self.found:
            assert isinstance(x, Value)
            return self.value(x)
        return self.codes.get(x, x)

    def number(self, defined: Sequence[Value]) -> None:
        """Number the words of the host that have just been defined, as far as anybody asks."""
        for x in defined:
            if x in self.asked and x not in self.codes:
                known = self.constants_of.get(x)
                self.codes[x] = self.numbered(x) if known is None else self.constant(known, x.type)
            if x not in self.found:
                for split in sorted(self.split.get(x, ()), key=repr):
                    self.parts[x, split] = self.all_parts(x, *split)

    def numbered(self, x: Operand) -> Operand:
        if isinstance(x.type, Tag):
            return self.applied(INT, own("word"), x)
        assert isinstance(x.type, List)
        element = x.type.elem
        return self.listed(
            self.applied(INT, own("length"), x), lambda turn: self.numbered(self.applied(element, own("item"), x, turn))
        )

    def listed(self, count: Operand, of: Any) -> Operand:
        """The list of what each turn gives."""
        turn, before = self.fresh.value(INT), self.made
        self.made = []
        x = of(turn)
        body, self.made = Region((turn,), tuple(self.made), (x,)), before
        found = self.fresh.value(List(x.type))
        self.made.append(Map((found,), count, body, False, self.span))
        return found

    def letters(self, text: Operand) -> Operand:
        """The characters of a string of the host, as a list of code points."""
        return self.all_parts(text, "__getitem__", ())

    def all_parts(self, text: Operand, function: str, how: tuple[Any, ...]) -> Operand:
        """The characters, or the parts, of a string of the host, as a list of their numbers."""
        counted = "__len__" if function == "__getitem__" else function.replace("_item", "_count")
        count = self.applied(INT, own("text", function=counted, args=(..., *how)), text)
        read = own("text", function=function, args=(..., ..., *how))
        return self.listed(count, lambda k: self.applied(INT, own("word"), self.applied(STR, read, text, k)))

    def letters_of(self, text: str) -> Operand:
        """As `letters`, of a constant."""
        if text not in self.parts:
            known, codes = self.fresh.value(List(INT)), tuple(Literal(ord(c), INT) for c in text)
            self.first.append(Apply((known,), own("pack_list"), codes, self.span))
            self.parts[text] = known
        return self.parts[text]

    # ---- instructions

    def instruction(self, i: Instruction) -> None:
        match i:
            case Apply():
                self.apply(i)
                return
            case If(then=then, orelse=orelse):
                arms = [self.yielding(arm, i.results) for arm in (then, orelse)]
                made: Instruction = replace(i, then=arms[0], orelse=arms[1])
            case For(init=init, body=body):
                inner = self.yielding(body, body.args[1:])
                made = replace(i, init=self.given(init, body.args[1:]), body=inner)
            case While(init=init, condition=test, body=body):
                start = self.given(init, body.args)
                made = replace(i, init=start, condition=self.region(test), body=self.yielding(body, body.args))
            case Map(body=body, filtered=filtered):
                made = replace(i, body=self.yielding(body, i.results, filtered))
            case Call(operands=xs, callee=callee):
                made = replace(i, operands=self.given(xs, self.parameters[callee]))
            case _:
                assert_never(i)
        self.made.append(replace(made, results=self.values(i.results)))

    def yielding(self, region: Region, targets: Sequence[Any], before: int = 0) -> Region:
        """A region whose results, behind the first, become these values."""
        made = self.region(region)
        results = (*region.results[:before], *self.given(region.results[before:], targets))
        return replace(made, results=tuple(self.reads(results)))

    def apply(self, i: Apply) -> None:
        op, xs = i.op, i.operands
        if op.is_jax or not any(x in self.found for x in (*xs, *i.results)):
            if op.name == "word" and (known := self.number_of(xs[0])) is not None:
                self.names[i.results[0]] = known
                return
            self.made.append(i)
            if i.results and i.results[0] in self.asked:
                kind = self.type_of(i.results[0].type)
                if op.name == "undefined":
                    self.codes[i.results[0]] = self.applied(kind, own("undefined", type=kind))
                elif op.name == "pack_list":
                    self.codes[i.results[0]] = self.applied(kind, op, *map(self.code, xs))
            return
        coded = tuple(self.code(x) if is_word(x.type) else x for x in xs)
        match op.name:
            case "word" | "word_of":
                self.names[self.value(i.results[0])] = coded[0]
            case "tag_equal":
                self.put(i.results[0], "eq", *coded)
            case "tag_index":
                self.position(i, coded[0])
            case "text":
                self.text(i, coded)
            case "undefined":
                (result,) = self.values(i.results)
                self.made.append(Apply((result,), own("undefined", type=result.type), (), i.span))
            case "check":
                message = words(op["message"])
                self.made.append(replace(i, op=own("check", kind=op["kind"], message=message), operands=xs[:1]))
            case "pack_list" | "flatten" | "length" | "item" | "put" | "find":
                self.made.append(replace(i, operands=coded, results=self.values(i.results)))
            case "sort_order" if all(x in self.single for x in xs if is_word(x.type)):
                self.made.append(replace(i, operands=coded))
            case "sort_order":
                raise self.refused("is sorted, or compared with others", "sort by numbers")
            case name:
                raise self.refused(f"is an operand of {name}")

    def position(self, i: Apply, code: Operand) -> None:
        """The position of a word among keys, the first of equal ones; a check that it is one of them."""
        keys, type = i.op["keys"], i.operands[0].type
        given = [self.constant(k, type) for k in keys]
        hits = [self.same(code, k) for k in given]
        some = hits[0]
        for hit in hits[1:]:
            some = self.applied(BOOL, jax_op("or"), some, hit)
        self.check(some, "KeyError", UNKNOWN)
        found: Operand = Literal(0, INT)
        for k in reversed(range(1, len(keys))):
            found = self.applied(INT, jax_op("select_n"), hits[k], found, Literal(k, INT))
        self.made.append(Apply(i.results, jax_op("select_n"), (hits[0], found, Literal(0, INT)), i.span))

    def same(self, a: Operand, b: Operand) -> Operand:
        """Are two words equal?"""
        return self.applied(BOOL, jax_op("eq"), a, b)

    def number_of(self, x: Operand) -> Operand | None:
        """The number of a constant; None where none is."""
        return self.constant(self.constants_of[x], x.type) if x in self.constants_of else None

    def constant(self, word: Any, type: Type) -> Operand:
        """What stands for a constant: its number."""
        if isinstance(word, str) and len(word) == 1 and type == STR:
            return Literal(strings.number(word), INT)
        key = (word, type)
        if key not in self.parts:
            before, self.made = self.made, self.first
            self.parts[key] = self.applied(INT, own("word"), self.applied(type, own("tag", value=word)))
            self.made = before
        return self.parts[key]

    # ---- functions of strings

    def text(self, i: Apply, xs: Sequence[Operand]) -> None:
        """A function of a string of the host at a computed place, or of characters."""
        name, args, rest = i.op["function"], i.op["args"], iter(zip(i.operands, xs, strict=True))
        given = [next(rest) if a is ... else (a, a) for a in args]
        (whole, code), *others = given
        if name == "__getitem__" and whole not in self.found:
            self.letter(i, whole, others[0][1])
        elif is_read(i) and whole not in self.found:  # of which there is such a part, as was asked
            held = self.parts[whole, (name, args[2:])]
            self.made.append(Apply(self.values(i.results), own("item", there=True), (held, others[0][1]), i.span))
        elif name == "chr":
            self.named(i, code)
        elif name == "__contains__" and isinstance(whole, str) and self.is_single(others[0][0]):
            self.contained(i, whole, others[0][1])
        elif name in code_point_functions.KNOWN and all(self.is_single(x) for x, _ in given):
            self.known(
                i,
                code_point_functions.KNOWN[name],
                [Literal(ord(x), INT) if isinstance(x, str) else c for x, c in given],
            )
        else:
            raise self.refused(_looked_into(name))

    def is_single(self, x: Any) -> bool:
        """Is it a string of one character?"""
        return len(x) == 1 if isinstance(x, str) else x in self.single

    def contained(self, i: Apply, whole: str, code: Operand) -> None:
        """Is a character one of some?"""
        codes = tuple(map(ord, whole))
        self.become(i, lambda c: jnp.any(jnp.stack([c == k for k in codes])), (code,))

    def known(self, i: Apply, known: code_point_functions.KnownFunction, xs: Sequence[Operand]) -> None:
        if known.check is not None:
            (fine,) = self.traced(known.check, xs)
            self.check(fine, "ValueError", known.message)
        self.become(i, known.meaning, xs)

    def letter(self, i: Apply, whole: Any, place: Operand) -> None:
        """`text[place]`"""
        held = self.letters_of(whole) if isinstance(whole, str) else self.parts[whole, ("__getitem__", ())]
        count = self.applied(INT, own("length"), held)
        (inside,) = self.traced(lambda k, n: (-n <= k) & (k < n), (place, count))
        self.check(inside, "IndexError", "string index out of range")
        self.made.append(Apply(self.values(i.results), own("item"), (held, place), i.span))

    def named(self, i: Apply, code: Operand) -> None:
        """`chr(code)`"""
        (inside,) = self.traced(lambda k: (k >= 0) & (k < strings.BEHIND), (code,))
        self.check(inside, "ValueError", "chr() arg not in range(0x110000)")
        self.become(i, lambda k: k, (code,))

    def become(self, i: Apply, function: Any, xs: Sequence[Operand]) -> None:
        """The result of an instruction is a function of numbers."""
        (result,) = self.values(i.results)
        assert isinstance(result.type, Array)
        kind = bool if result.type == BOOL else None
        of = lambda *xs: jnp.asarray(function(*xs), kind) if kind else jax_compat.weakened(jnp.asarray(function(*xs)))
        (self.names[result],) = self.traced(of, xs)

    # ---- instructions of arithmetic

    def applied(self, type: Type, op: Op, *xs: Operand) -> Operand:
        found = self.fresh.value(type)
        self.made.append(Apply((found,), op, tuple(xs), self.span))
        return found

    def put(self, result: Value, name: str, *xs: Operand) -> None:
        self.made.append(Apply((result,), jax_op(name), tuple(xs), self.span))

    def check(self, holds: Operand, kind: str, message: str) -> None:
        self.made.append(Apply((), own("check", kind=kind, message=message), (holds,), self.span))

    def traced(self, function: Any, xs: Sequence[Operand]) -> tuple[Operand, ...]:
        """The results of a function of JAX, whose operations are added."""
        closed, _ = jax_compat.trace(function, *(x.type for x in xs if isinstance(x.type, Array)))
        return tuple(jax_compat.inline(closed, xs, self.fresh.value, self.constant_array, self.made.append, self.span))

    def constant_array(self, array: Any) -> Literal:
        """An array of the module's constants."""
        return self.constants.literal(array)


def _without_unread(region: Region) -> Region:
    """The region without the words, and lists of them, that are written out and that numbers stand for now."""
    while True:
        read = {x for i in walk(region) for x in (*operands(i), *(x for r in regions(i) for x in r.results))}
        read.update(region.results)
        made = [i for i in walk(region) if isinstance(i, Apply) and i.op.name in _WRITTEN_OUT]
        gone = {i.results[0] for i in made if is_word(i.results[0].type)} - read
        if not gone:
            return region
        region = _without_words(region, gone)


_WRITTEN_OUT = ("tag", "undefined", "pack_list")


def _without_words(region: Region, gone: Collection[Value]) -> Region:
    kept = (i for i in region.body if not (isinstance(i, Apply) and i.results and i.results[0] in gone))
    return replace(region, body=tuple(with_regions(i, lambda r: _without_words(r, gone)) for i in kept))


def _looked_into(name: str) -> str:
    words = {"__add__": "is made of others by +", "join": "is made of others", "__mul__": "is made of others by *"}
    return words.get(name, f"is looked into: {name.strip('_')}()")


_PRIMITIVES = {"eq": jax.lax.eq_p, "or": jax.lax.or_p, "select_n": jax.lax.select_n_p}


def jax_op(name: str) -> Op:
    return Op(name, (), _PRIMITIVES[name])
