"""Data-dependent strings that are built from others or indexed: lists of code points.

    %4 = text['__add__'](%3, 'ab')                %8 = flatten(pack_list(%3, pack_list(97, 98)))
    %5 = text['__len__'](%4)               ->     %5 = length(%8)
    %6 = tag_equal(%4, %1)                        %6 = spelt['__eq__'](%8, letters of %1)

Such a list has memory, as others of data-dependent length have (`arenas.py`), and functions pass it on and return it. A
result of the entry is an array: its length, and behind it the code points. What is only chosen and compared stays a
number (`interning.py`), and a string of one character is one too, except where no host has any string (`alone`).
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import jax.numpy as jnp
import networkx as nx

from autobatch.errors import Span, UnsupportedError
from autobatch.ir import strings
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
from autobatch.ir.regions import ConstantPool, Fresh, decided_by_floats, region_values, with_entry_apart, with_regions
from autobatch.passes import code_point_functions
from autobatch.passes.arenas import Device
from autobatch.passes.fallible import all_single
from autobatch.passes.interning import Rewriter, decided_words, is_word, jax_op
from autobatch.passes.object_rows import in_store
from autobatch.passes.simplify import recursive_functions
from autobatch.passes.stack import words

# ---- spelling formats
#
# Formats of data-dependent strings, as pieces that are joined.
#
# %4 = text['format', args=('{:03d}: {}', ..., ...)](%1, %2)     zfill(digits of %1, 3), ': ', digits of %2


LETTERS = List(INT)
SPEC = re.compile(r"(?:(?P<fill>.)?(?P<align>[<>^=]))?(?P<sign>[-+ ]?)(?P<zero>0?)(?P<width>[0-9]*)(?P<kind>[ds]?)")


class Speller(Protocol):
    """What pieces are made with."""

    fresh: Fresh
    made: list[Instruction]
    span: Span

    def refused(self, what: str, cure: str = ...) -> UnsupportedError: ...
    def text_of(self, x: Any) -> Operand: ...
    def letters_of(self, text: str) -> Operand: ...
    def applied(self, type: Type, op: Op, *xs: Operand) -> Operand: ...
    def traced(self, function: Any, xs: Sequence[Operand]) -> tuple[Operand, ...]: ...


def pieces(s: Speller, given: Sequence[Any]) -> list[Operand]:
    """What `form.format(...)` joins, as letters."""
    form, *values = given
    if not isinstance(form, str):
        raise s.refused("is a format", "write the format as a constant")
    made = list[Operand]()
    plain = 0
    for text, name, spec, conversion in string.Formatter().parse(form):
        made += [s.letters_of(text)] if text else []
        if name is None:
            continue
        if name.isdecimal() or not name:
            x = values[int(name)] if name else values[plain]
            plain += not name
        else:
            raise s.refused("is formatted by a name", "format by position, with {}")
        if conversion not in (None, "s") and not (conversion in ("r", "a") and (not is_string(x))):
            raise s.refused(f"is formatted with !{conversion}", "write the quotes yourself")
        made.append(_formatted(s, x, spec or "", conversion is not None))
    return made


def is_string(x: Any) -> bool:
    """Is it a string, constant or not?"""
    return isinstance(x, str) or (isinstance(x, Value) and is_word(x.type))


def _formatted(s: Speller, x: Any, spec: str, converted: bool) -> Operand:
    """A value with a specification, as letters."""
    if not isinstance(x, Value | Literal):
        return s.letters_of(format(str(x) if converted else x, spec))
    if not spec:
        return _plain(s, x)
    found = SPEC.fullmatch(spec)
    is_number = (not is_string(x)) and not converted
    kind = "d" if is_number else "s"
    if found is None or (is_number and x.type == BOOL) or (found["kind"] or kind) != kind:
        raise s.refused(
            f"is formatted with {spec!r}", "write a width, with 0, <, > or ^ before it and d or s behind it"
        )
    align, fill = found["align"], found["fill"] or ("0" if found["zero"] else " ")
    if found["zero"] and not align:
        align = "=" if is_number else "<"
    if not is_number and (found["sign"] or align == "="):
        raise s.refused(f"is formatted with {spec!r}", "write a width, with <, > or ^ before it")
    letters = _plain(s, x)
    if found["sign"] in ("+", " ") and is_number:
        letters = _signed(s, x, letters, found["sign"])
    if not found["width"]:
        return letters
    align = align or (">" if is_number else "<")
    width: Operand = Literal(int(found["width"]), INT)
    if align == "=":
        if fill != "0" or found["sign"] == " ":
            raise s.refused(f"is formatted with {spec!r}", "fill with zeros, or in front of the sign")
        return s.applied(LETTERS, own("spelt", function="zfill"), letters, width)
    function = {"<": "ljust", ">": "rjust", "^": "centred"}[align]
    return s.applied(LETTERS, own("spelt", function=function), letters, width, s.letters_of(fill))


def _signed(s: Speller, x: Operand, letters: Operand, sign: str) -> Operand:
    """With a sign in front of what is not negative."""
    (positive,) = s.traced(lambda k: jnp.asarray(k >= 0, bool), (x,))
    first = s.fresh.value(LETTERS)
    arms = [Region((), (), (s.letters_of(text),)) for text in (sign, "")]
    s.made.append(If((first,), positive, arms[0], arms[1], s.span))
    both = s.applied(List(LETTERS), own("pack_list"), first, letters)
    return s.applied(LETTERS, own("flatten"), both)


def _plain(s: Speller, x: Any) -> Operand:
    """`str(x)` as letters."""
    if is_string(x):
        return s.text_of(x)
    if x.type == BOOL:
        arms = [Region((), (), (s.letters_of(str(b)),)) for b in (True, False)]
        found = s.fresh.value(LETTERS)
        s.made.append(If((found,), x, arms[0], arms[1], s.span))
        return found
    count, sign = s.traced(code_point_functions.digits, (x,))
    found, turn = s.fresh.value(LETTERS), s.fresh.value(INT)
    before, s.made = s.made, []
    (code,) = s.traced(code_point_functions.digit, (x, turn, count, sign))
    body, s.made = Region((turn,), tuple(s.made), (code,)), before
    s.made.append(Map((found,), count, body, False, s.span))
    return found


def strings_as_letters(module: Module, device: Device, capacity: int, alone: bool) -> Module:
    """The module with lists of code points in place of the data-dependent strings that
    are indexed or built; the same where there are none. `device`: as in `lists_of_numbers`; `alone`: there is no
    host that knows any string."""
    if not any(isinstance(i, Apply) and _asks_words(i, alone) for i in _inside(module)):
        return module
    module = with_entry_apart(module) if alone else module
    entry = module.functions[0]
    if entry.name in recursive_functions(module):
        return module
    values = (x for f in module.functions for x in region_values(f.region))
    named = frozenset(x for x in values if is_word(x.type))
    decided = named if alone else decided_words(module, device)
    found = _spelt(module, decided, alone)
    if not alone and decided_by_floats(module):  # else it is traced
        found |= _returned(entry, named - decided)
    if not found and not alone:
        return module
    constants, fresh = ConstantPool(module), Fresh(module)
    parameters = {f.name: f.region.args for f in module.functions}
    room = max(capacity, *(_longest(f.region) for f in module.functions))
    functions = list[Function]()
    for f in module.functions:
        rewriter = _Speller(fresh, found, f, constants, parameters, alone, room)
        functions.append(replace(f, region=rewriter.whole(f.region) if f is entry else rewriter.entry(f.region)))
    return replace(module, functions=tuple(functions), constants=constants.all)


def keeps_made_strings(module: Module) -> bool:
    """Does memory hold strings, which no host knows, that are put together from others?"""
    kept = [i.operands[0] for i in _inside(module) if isinstance(i, Apply) and i.op.name == "word"]
    if not kept or not any(isinstance(i, Apply) and _is_text(i) for i in _inside(module)):
        return False
    named = (x for f in module.functions for x in region_values(f.region) if is_word(x.type))
    return not _spelt(module, frozenset(named), True).isdisjoint(kept)


def _inside(module: Module) -> Iterator[Instruction]:
    return (i for f in module.functions for i in walk(f.region))


def _longest(region: Region) -> int:
    """How long the longest list or string is that is written out."""
    found = [1]
    for i in walk(region):
        if isinstance(i, Apply) and not i.op.is_jax:
            params = dict(i.op.params)
            held = [*params.get("args", ()), *params.get("keys", ()), params.get("value")]
            found += [len(i.operands), *(len(x) for x in held if isinstance(x, str))]
    return max(found)


def _asks_words(i: Apply, alone: bool) -> bool:
    """Is it a function of strings, or an order of some, which machine code knows by their letters alone?"""
    return _is_text(i) or (alone and i.op.name == "sort_order" and any(is_word(x.type) for x in i.operands))


def _is_text(i: Apply) -> bool:
    return not i.op.is_jax and i.op.name == "text"


def _spelt(module: Module, words: frozenset[Value], alone: bool) -> frozenset[Word]:
    """Those of some words that are looked into, or made of others, and what these may be."""
    entry, *others = module.functions
    single = frozenset() if alone else all_single(entry.region)
    handed = {a for f in others for a in f.region.args}
    free = words - (_atoms(module) | set(entry.region.args) if alone else set())
    joined, seeds = _flows(module, free), set[Word]()
    for i in _inside(module):
        if not isinstance(i, Apply) or not _is_text(i):
            continue
        looked_into = any(x in words for x in (*i.operands, *i.results)) and not _is_of_characters(i, words, single)
        if alone or looked_into:
            made = [r for r in i.results if i.op["function"] not in ("__getitem__", "chr") or alone]
            read = [x for x in i.operands if x not in handed or not _in_table(i)]
            seeds.update(x for x in (*read, *made) if x in free and is_word(x.type))
    for i in _inside(module):
        if isinstance(i, Apply) and i.op.name == "sort_order":
            seeds.update(x for x in i.operands if x in free and is_word(x.type) and x not in single)
    joined.add_nodes_from(seeds)
    return frozenset(x for seed in seeds for x in nx.node_connected_component(joined, seed))


Result = tuple[str, int]
"""A result of a function: its name, and which one."""
Word = Value | Result


def _in_table(i: Apply) -> bool:
    """Is it a function of one string, and of constants, which a table of words may hold?"""
    name = i.op["function"]
    return name not in ("__getitem__", "ord") and len(i.operands) <= 1 + name.endswith("_item")


def _returned(entry: Function, words: frozenset[Value]) -> frozenset[Value]:
    """Of words that the host knows, the strings that are made and are results, or may be: no vocabulary has them."""
    only, region = Module((entry,)), entry.region
    free = words - _atoms(only) - set(region.args)
    joined = _flows(only, free)
    made = {r for i in walk(region) if isinstance(i, Apply) and _is_text(i) for r in i.results if r in free}
    joined.add_nodes_from(made)
    found = set[Value]()
    for x in region.results:
        if isinstance(x, Value) and x in joined:
            component = nx.node_connected_component(joined, x)
            found |= component if component & made else set()
    return frozenset(found)


def _atoms(module: Module) -> set[Value]:
    """The words that are constants, or are read of the examples or of memory."""
    inside = [i for i in _inside(module) if isinstance(i, Apply)]
    atoms = {r for i in inside if i.op.name in ("tag", "load", "word_of") for r in i.results}
    return atoms | {i.results[0] for i in inside if i.op.name == "item" and in_store(i.operands[0])}


def _flows(module: Module, free: frozenset[Value] | set[Value]) -> Any:
    """Which of some words, and of results of functions, may be one another."""
    joined = nx.Graph()
    called = {f.name: f.region for f in module.functions}

    def flow(sources: Sequence[Operand | Result], targets: Sequence[Operand | Result]) -> None:
        pairs = zip(sources, targets, strict=True)
        joined.add_edges_from(p for p in pairs if all(x in free or isinstance(x, tuple) for x in p))

    for f in module.functions:
        flow(f.region.results, _results(f))
    for i in _inside(module):
        match i:
            case Apply(op=op, operands=xs, results=results) if op.name in _LISTS:
                given = [xs[0], *xs[2:]] if op.name == "put" else xs
                strings = [x for x in (*given, *results) if is_word(x.type)]
                flow(strings[:-1], strings[1:])
            case If(results=results, then=then, orelse=orelse):
                flow(then.results, results)
                flow(orelse.results, results)
            case For(results=results, init=init, body=body):
                for given in (init, body.results, results):
                    flow(given, body.args[1:])
            case While(results=results, init=init, condition=test, body=body):
                for given in (init, body.results, results, test.args):
                    flow(given, body.args)
            case Map(results=results, body=body, filtered=filtered):
                flow(body.results[filtered:], results)
            case Call(operands=xs, results=results, callee=name) if name in called:
                flow(xs, called[name].args)
                flow(_results(module.function(name)), results)
            case _:
                pass
    return joined


def _results(f: Function) -> tuple[Result, ...]:
    return tuple((f.name, k) for k in range(len(f.region.results)))


_LISTS = ("pack_list", "flatten", "item", "put", "find")
"""What is made of words, or read, and is represented as these are."""


def _is_of_characters(i: Apply, words: frozenset[Value], single: frozenset[Value]) -> bool:
    """Is it a function of characters, which are numbers (`interning.py`)?"""
    name, rest = i.op["function"], iter(i.operands)
    given = [next(rest) if a is ... else a for a in i.op["args"]]

    def is_single(x: Any) -> bool:
        return len(x) == 1 if isinstance(x, str) else x in single

    if name == "chr" or (name == "__getitem__" and given[0] not in words):
        return True
    if name == "__contains__":
        return isinstance(given[0], str) and is_single(given[1])
    return name in code_point_functions.KNOWN and all(map(is_single, given))


class _Speller(Rewriter):
    """`found`: what becomes a list of code points."""

    def __init__(
        self,
        fresh: Fresh,
        found: frozenset[Any],
        function: Function,
        constants: ConstantPool,
        parameters: Mapping[str, Sequence[Value]],
        alone: bool,
        room: int,
    ) -> None:
        self.alone, self.room = alone, room
        self.in_tables = dict[Operand, Operand]()  # the strings that are words of tables, where these are no letters
        super().__init__(fresh, found, function.region, constants, parameters, _results(function))

    def whole(self, region: Region) -> Region:
        """The entry, whose results are arrays in the place of such lists."""
        made = self.entry(region)
        self.made, self.span = list(made.body), region.body[-1].span
        results = tuple(
            self.packed(x) if y in self.found else x for x, y in zip(made.results, region.results, strict=True)
        )
        return Region(made.args, tuple(self.made), results)

    def packed(self, x: Operand) -> Operand:
        """A string as an array; of a list each of its elements."""
        assert isinstance(x.type, List)
        if x.type == LETTERS:
            return self.applied(Array("int32", (self.room + 1,)), own("spelt", function="packed", room=self.room), x)
        element = x.type.elem
        return self.listed(
            self.applied(INT, own("length"), x), lambda turn: self.packed(self.applied(element, own("item"), x, turn))
        )

    def type_of(self, type: Type) -> Type:
        return List(self.type_of(type.elem)) if isinstance(type, List) else LETTERS

    # ---- strings that stay what they are, as letters

    def all_asked(self, region: Region) -> frozenset[Operand]:
        texts_ = [i for i in walk(region) if isinstance(i, Apply) and (_is_text(i) or i.op.name == "sort_order")]
        read = [i for i in texts_ if self.concerns(i) and not (self.alone and _is_text(i) and _in_table(i))]
        operands = {x for i in read for x in i.operands if is_word(x.type)}
        return super().all_asked(region) | frozenset(x for x in operands if x not in self.found)

    def concerns(self, i: Apply) -> bool:
        if any(x in self.found for x in (*i.operands, *i.results)):
            return True
        return self.alone and _asks_words(i, True)

    def number(self, defined: Sequence[Value]) -> None:
        for x in defined:
            if x in self.asked and x not in self.codes and x not in self.constants_of:
                self.codes[x] = self.numbered(x)

    def code(self, x: Operand) -> Operand:
        if x in self.found or x in self.codes:
            return super().code(x)
        if x in self.constants_of:
            return self.letters_of(self.constants_of[x])
        if isinstance(x, Value) and is_word(x.type):
            what = "that is kept in memory" if not self.alone else "of the examples"
            cure = "use backend='xla'" if self.alone else "keep such strings in variables, lists and dicts of their own"
            raise UnsupportedError(f"a string {what} is put together with others, or looked into", self.span, cure)
        return x

    def letters_of_data(self, x: Operand) -> Operand:
        """A string of the examples as a list, where no host knows it."""
        count = self.applied(INT, own("text", function="__len__", args=(...,)), x)
        found = self.fresh.value(LETTERS)

        def letter(turn: Operand) -> Operand:
            single = self.applied(Tag("str"), own("text", function="__getitem__", args=(..., ...)), x, turn)
            return self.applied(INT, own("text", function="ord", args=(...,)), single)

        self.become_list(found, count, letter)
        return found

    def numbered(self, x: Operand) -> Operand:
        if isinstance(x.type, Tag):
            return self.letters_of_data(x) if self.alone else self.letters(x)
        return super().numbered(x)

    def text_of(self, x: Any) -> Operand:
        """An operand or constant that is a string, as letters."""
        return self.letters_of(x) if isinstance(x, str) else self.code(x)

    # ---- instructions

    def apply(self, i: Apply) -> None:
        if i.op.is_jax or not self.concerns(i):
            super().apply(i)
            return
        match i.op.name:
            case "tag_equal" if any(map(self.is_single, i.operands)):
                self.equal_to_letter(i, *sorted(i.operands, key=self.is_single))
            case "tag_equal":
                self.compare(i.results[0], "__eq__", *map(self.code, i.operands))
            case "text":
                self.spelt_text(i)
            case "sort_order":
                keys = tuple(self.code(x) if is_word(x.type) else x for x in i.operands)
                self.made.append(replace(i, operands=keys))
            case "word":
                raise UnsupportedError(
                    "a string that computed numbers put together is kept in a list, dict or object that has memory",
                    self.span,
                    "keep such strings in variables, and in lists and dicts that nothing else holds",
                )
            case _:
                super().apply(i)

    def same(self, a: Operand, b: Operand) -> Operand:
        found = self.fresh.value(BOOL)
        self.compare(found, "__eq__", a, b)
        return found

    def number_of(self, x: Operand) -> Operand | None:
        return None  # of words that stay what they are others know the numbers

    def constant(self, word: Any, type: Type) -> Operand:
        return self.letters_of(word)

    def compare(self, result: Value, function: str, *xs: Operand) -> None:
        self.made.append(Apply((result,), own("spelt", function=function), tuple(xs), self.span))

    def spelt_text(self, i: Apply) -> None:
        """A function of strings, on their letters."""
        name, rest, result = i.op["function"], iter(i.operands), i.results[0]
        given = [next(rest) if a is ... else a for a in i.op["args"]]
        if self.alone and _in_table(i) and self.of_table(i):
            return
        if self.of_characters(i, given):
            return
        match name:
            case "of_letters":
                self.names[self.value(result)] = given[0]
            case "__len__":
                self.made.append(Apply(i.results, own("length"), (self.text_of(given[0]),), self.span))
            case "__getitem__":
                self.become_single(result, self.letter_at(self.text_of(given[0]), self.whole_number(given[1])))
            case "chr":
                code = self.whole_number(given[0])
                (inside,) = self.traced(lambda k: (k >= 0) & (k < strings.BEHIND), (code,))
                self.check(inside, "ValueError", "chr() arg not in range(0x110000)")
                self.become_single(result, code)
            case "ord":  # of what may have more
                word = self.text_of(given[0])
                (one,) = self.traced(lambda n: n == 1, (self.applied(INT, own("length"), word),))
                self.check(one, "TypeError", "ord() expected a character, but string of another length found")
                self.made.append(Apply(i.results, own("item"), (word, Literal(0, INT)), self.span))
            case "__add__":
                self.joined(result, [self.text_of(x) for x in given])
            case "join":
                between, *parts = map(self.text_of, given)
                self.joined(result, [x for k, p in enumerate(parts) for x in ([between, p] if k else [p])])
            case "format":
                self.joined(result, pieces(self, given))
            case "__mul__":
                word, times = self.text_of(given[0]), self.whole_number(given[1])
                length = self.applied(INT, own("length"), word)
                (count,) = self.traced(lambda n, k: n * jnp.maximum(k, 0), (length, times))
                again = lambda k, n: (k % jnp.maximum(n, 1),)
                self.become_list(result, count, lambda k: self.letter_of(word, self.traced(again, (k, length))[0]))
            case "part":
                self.part(result, self.text_of(given[0]), given[1:])
            case "fits":
                assert isinstance(given[0], str)
                self.fitting(result, given[0], given[1:])
            case _ if name in ("index", "rindex", *code_point_functions.FUNCTIONS):
                self.function_of_letters(result, name, given)
            case _:
                raise self.refused(f"is looked into: {name.strip('_')}()")

    def of_characters(self, i: Apply, given: Sequence[Any]) -> bool:
        """A function of strings of one character, which are numbers in it."""
        name, whole = i.op["function"], given[0]
        if name == "__contains__" and isinstance(whole, str) and self.is_single(given[1]):
            self.contained(i, whole, self.only_letter(given[1]))
        elif name in code_point_functions.KNOWN and all(map(self.is_single, given)):
            self.known(i, code_point_functions.KNOWN[name], list(map(self.only_letter, given)))
        else:
            return False
        return True

    def equal_to_letter(self, i: Apply, x: Operand, single: Operand) -> None:
        """Is a string one letter, and that one?"""
        code = self.only_letter(single)
        if self.is_single(x):
            self.become(i, lambda a, b: a == b, [self.only_letter(x), code])
        elif x in self.constants_of:
            self.names[i.results[0]] = Literal(False, BOOL)
        else:
            self.compare(i.results[0], "is_letter", self.code(x), code)

    def only_letter(self, x: Any) -> Operand:
        """The code point of a string of one character."""
        known = x if isinstance(x, str) else self.constants_of.get(x)
        return self.letter_of(self.code(x), Literal(0, INT)) if known is None else Literal(ord(known), INT)

    def of_table(self, i: Apply) -> bool:
        """A function of one string of the examples, and of constants: a column, or a table of words, of the vocabulary
        (`data/columns.py`)."""
        result, word = i.results[0], self.in_tables.get(i.operands[0], i.operands[0])
        if word in self.found or not isinstance(word.type, Tag) or word in self.constants_of:
            return False
        given = (word, *i.operands[1:])
        if result.type != STR:
            self.made.append(replace(i, operands=given))
            return True
        known = self.applied(STR, i.op, *given)
        self.in_tables[result] = known
        if result in self.found:
            self.names[self.value(result)] = self.letters_of_data(known)
        else:
            self.names[result] = known
        return True

    def function_of_letters(self, result: Value, name: str, given: Sequence[Any]) -> None:
        """A function of letters (`code_point_functions.py`)."""
        if name == "int" and len(given) > 1:
            raise self.refused("is read as a number of another base", "write int(s)")
        if len(given) > 1 and isinstance(given[1], tuple):
            hits = [self.asked_of(name, [given[0], x, *given[2:]]) for x in given[1]]
            some: Operand = Literal(False, BOOL)
            for hit in hits:
                some = self.applied(BOOL, jax_op("or"), some, hit)
            self.names[result] = some
            return
        if name == "int":
            message = "an int does not fit into the integers of the device; jax_enable_x64 makes them wider"
            self.check(self.asked_of("is_narrow", given[:1]), "OverflowError", message)
        if name in code_point_functions.LOWERING:
            (fine,) = self.traced(jnp.logical_not, (self.asked_of("__contains__", [given[0], "\u03a3"]),))
            self.check(fine, "NotImplementedError", f"{name}() of a capital sigma, in a data-dependent string")
        known = [... if isinstance(x, Value) else x for x in given]
        if name != "split_item" and strings.may_fail(name, known, []):  # of which there is such a part, as was asked
            kind, message = strings.WHAT_FAILS.get(
                name, ("TypeError", "The fill character must be exactly one character long")
            )
            fits = self.fresh.value(BOOL)
            self.fitting(fits, name, given)
            self.check(self.named_as(fits), kind, words(message))
        self.compare(self.value(result), {"index": "find", "rindex": "rfind"}.get(name, name), *self.as_letters(given))

    def as_letters(self, given: Sequence[Any]) -> list[Operand]:
        """Words as their letters, and whole numbers; what is not given is left out."""
        whole = [x for x in given if x is not None]
        return [self.text_of(x) if is_string(x) else self.whole_number(x) for x in whole]

    def asked_of(self, name: str, given: Sequence[Any]) -> Operand:
        found = self.fresh.value(BOOL)
        self.compare(found, name, *self.as_letters(given))
        return found

    def fitting(self, result: Value, name: str, given: Sequence[Any]) -> None:
        """Has a function a result?"""
        letters = self.as_letters(given)
        match name:
            case "int":
                self.compare(result, "fits_int", *letters)
            case "index" | "rindex":
                found = self.applied(INT, own("spelt", function="find"), *letters)
                (self.names[result],) = self.traced(lambda k: jnp.asarray(k >= 0, bool), (found,))
            case "__getitem__":
                count = self.applied(INT, own("length"), letters[0])
                (self.names[result],) = self.traced(_is_place, (letters[1], count))
            case "chr":
                (self.names[result],) = self.traced(_is_code, letters)
            case "ord" | "center" | "ljust" | "rjust":
                count = self.applied(INT, own("length"), letters[-1])
                (self.names[result],) = self.traced(lambda n: jnp.asarray(n == 1, bool), (count,))
            case "split_count" | "partition_item" | "rpartition_item":
                count = self.applied(INT, own("length"), letters[1 if name == "split_count" else 2])
                (self.names[result],) = self.traced(lambda n: jnp.asarray(n > 0, bool), (count,))
            case _:
                raise self.refused(f"is looked into: {name.strip('_')}()")

    # ---- pieces of strings

    def whole_number(self, x: Any) -> Operand:
        return Literal(x, INT) if isinstance(x, int) else x

    def letter_of(self, word: Operand, place: Operand) -> Operand:
        return self.applied(INT, own("item"), word, place)

    def letter_at(self, word: Operand, place: Operand) -> Operand:
        count = self.applied(INT, own("length"), word)
        (inside,) = self.traced(lambda k, n: (-n <= k) & (k < n), (place, count))
        self.check(inside, "IndexError", "string index out of range")
        return self.letter_of(word, place)

    def become_single(self, result: Value, code: Operand) -> None:
        """The result is the string of one character."""
        if result in self.found:
            self.made.append(Apply((self.value(result),), own("pack_list"), (code,), self.span))
        else:
            self.made.append(Apply((result,), own("text", function="chr", args=(...,)), (code,), self.span))

    def joined(self, result: Value, parts: Sequence[Operand]) -> None:
        """The result has the letters of some strings."""
        whole = self.applied(List(LETTERS), own("pack_list"), *parts)
        self.made.append(Apply((self.value(result),), own("flatten"), (whole,), self.span))

    def become_list(self, result: Value, count: Operand, of: Any) -> None:
        turn, before = self.fresh.value(INT), self.made
        self.made = []
        x = of(turn)
        body, self.made = Region((turn,), tuple(self.made), (x,)), before
        self.made.append(Map((self.value(result),), count, body, False, self.span))

    def part(self, result: Value, word: Operand, bounds: Sequence[Any]) -> None:
        """`word[start:stop:step]`"""
        start, stop, step = (x if x is None else self.whole_number(x) for x in bounds)
        if step is not None and not (isinstance(step, Literal) and step.value):
            raise self.refused("is cut with a computed step", "write the step as a constant")
        by = int(step.value) if step is not None else 1  # type: ignore[arg-type]
        length = self.applied(INT, own("length"), word)
        ends = [x for x in (start, stop) if x is not None]

        def first_and_count(n: Any, *xs: Any) -> tuple[Any, Any]:
            least, most = (0, n) if by > 0 else (-1, n - 1)
            rest = iter(xs)

            def end(x: Any, default: Any) -> Any:
                if x is None:
                    return default
                k = next(rest)
                return jnp.clip(jnp.where(k < 0, k + n, k), least, most)

            begin = end(start, least if by > 0 else most)
            behind = end(stop, most if by > 0 else least)
            return begin, jnp.maximum((behind - begin + by - (1 if by > 0 else -1)) // by, 0)

        begin, count = self.traced(first_and_count, (length, *ends))
        place = lambda b, k: (b + k * by,)
        self.become_list(result, count, lambda k: self.letter_of(word, self.traced(place, (begin, k))[0]))


def _is_place(k: Any, n: Any) -> Any:
    return jnp.asarray((-n <= k) & (k < n), bool)


def _is_code(k: Any) -> Any:
    return jnp.asarray((k >= 0) & (k < strings.BEHIND), bool)


# ---- texts in front
#
# Functions of strings that are the same in every turn of a loop stand in front of it.
#
#     while ...:                                %2 = text['lower'](%1)
#       %2 = text['lower'](%1)            ->    while ...:
#       %3 = text['split_item'](%2, %k)           %3 = text['split_item'](%2, %k)
#
# The host computes them, which sees nothing of loops that computed numbers end. Only those that have a result for all
# strings: a row that comes to no turn computes them for nothing.


def texts_in_front(module: Module) -> Module:
    """The module in which such functions of the entry stand in front of its loops."""
    entry = module.functions[0]
    if not any(_never_fails(i) for i in walk(entry.region)):
        return module
    return replace(module, functions=(replace(entry, region=_region(entry.region)), *module.functions[1:]))


def _region(region: Region) -> Region:
    body = list[Instruction]()
    for i in region.body:
        inner = with_regions(i, _region)
        if isinstance(inner, For | While | Map):
            front, inner = _taken_out(inner)
            body += front
        body.append(inner)
    return replace(region, body=tuple(body))


def _taken_out(loop: Instruction) -> tuple[list[Instruction], Instruction]:
    inside: set[Value] = {x for r in regions(loop) for x in region_values(r)}
    front = list[Instruction]()

    def clean(region: Region) -> Region:
        body = list[Instruction]()
        for i in region.body:
            if _never_fails(i) and inside.isdisjoint(operands(i)):
                front.append(i)
                inside.difference_update(i.results)
            else:
                body.append(with_regions(i, clean) if isinstance(i, If) else i)
        return replace(region, body=tuple(body))

    return front, with_regions(loop, clean)


def _never_fails(i: Instruction) -> bool:
    if not isinstance(i, Apply) or i.op.is_jax or i.op.name != "text":
        return False
    return not strings.may_fail(i.op["function"], i.op["args"], [isinstance(x.type, Array) for x in i.operands])
