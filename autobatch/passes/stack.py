"""Recursion whose calls depend on computed numbers: each call of it from outside becomes one operation.

    func @f(%x):                                   func @f(%x):
      %c = gt(%x, %threshold)                        %r, %status = blocks[program=...](%x, %threshold)
      if %c then: call @f(mul(%x, 0.5)) ...   ->     return %r

Such control is found when loops are functions and the facts are known (`structure.py`); it is taken out of the
module as it was before. What the program does is in `ir/leaf.py`; it holds the strongly connected component of the
function, and whatever that calls.
"""

from __future__ import annotations

import re
import string
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, assert_never

import networkx as nx

from autobatch.errors import Span, UnsupportedError
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
    Literal,
    Map,
    Module,
    Operand,
    Region,
    Type,
    Value,
    While,
    regions,
    walk,
)
from autobatch.ir.leaf import Block, BlockProgram, Branch, End, Enter, Fail, Jump, Move, Return, Site, targets
from autobatch.ir.ops import Op, of_control, own
from autobatch.ir.regions import Fresh, calls, copy_region, free_values, with_regions
from autobatch.passes.liveness import with_saved_registers
from autobatch.passes.loops import as_loop
from autobatch.passes.overflows import UNKNOWN, checked_integer, in_place, is_inside
from autobatch.passes.simplify import call_graph, recursive_functions
from autobatch.passes.structure import StructureFacts

# ---- blocks
#
# From functions to basic blocks: structured control becomes jumps, calls push what is read behind them.
#
#     func @f(%n, %a):                              0 f: %c = gt(%n, 0); branch %c 1 3
#       %c = gt(%n, 0)                              1: %m = sub(%n, 1); %n := %m; enter 0 saving (%a) then 2
#       %r = if %c then:                     ->     2 restores (%a): %s := %r; %t = add(%s, %a); %n := %t; jump 0
#         %s = call @f(%n - 1, %a)                  3: %r := %a; return
#         %t = call @f(%s + %a, %a)
# yield %t                                  (were %a not the same in all calls: here it is captured, no register) else:
# yield %a return %r
#
# A parameter that every call passes on unchanged is captured: it is neither saved nor kept for each example twice.


# ---- structured
#
# The functions of a program of blocks as they were before they were cut: regions with branches, loops and calls.
#
#     func @f(%n, %a):                              func @f(%n):
#       %c = gt(%n, 0)                                %c = gt(%n, 0)
#       %r = if %c then:                     ->       %r = if %c then:
#         %s = call @f(%n - 1, %a)                      %s = call @f(%n - 1)
#         yield %s                                      yield %s
#       else: yield %a                                else: yield %a          (%a: an operand that the program captures)
#
# A back end that runs rows in gangs calls them under masks. What they say is what the blocks say: parameters that every
# call passes on unchanged are captured there, comprehensions are loops, a bound is a check.


def structured(
    functions: Sequence[Function],
    module: Module,
    operand: Callable[[Operand], Operand],
    is_same: Callable[[Value], bool],
    fresh: Fresh,
) -> tuple[Function, ...]:
    """The functions with what `operand` makes of each operand, without the parameters that `is_same` in all calls."""
    return tuple(_Structuring(module, operand, is_same, fresh).function(f) for f in functions)


def is_choice(branch: If) -> bool:
    """Does a branch compute nothing, and choose between values of one type?"""
    if branch.then.body or branch.orelse.body or isinstance(branch.condition, Literal):
        return False
    pairs = zip(branch.results, branch.then.results, branch.orelse.results, strict=True)
    return all(
        isinstance(x, Value) and isinstance(y, Value) and isinstance(r.type, Array) and r.type == x.type == y.type
        for r, x, y in pairs
    )


def chosen(branch: If, operand: Callable[[Operand], Operand]) -> Iterator[Apply]:
    """The operations that stand for a choice."""
    condition = operand(branch.condition)
    for r, x, y in zip(branch.results, branch.then.results, branch.orelse.results, strict=True):
        operands = (condition, operand(y), operand(x))
        yield Apply((r,), Op("select_n", (), jax_compat.primitive("select_n"), choice=True), operands, branch.span)


class _Structuring:
    def __init__(
        self, module: Module, operand: Callable[[Operand], Operand], is_same: Callable[[Value], bool], fresh: Fresh
    ) -> None:
        self.module, self.operand, self.is_same, self.fresh = module, operand, is_same, fresh

    def function(self, function: Function) -> Function:
        region = self.region(function.region)
        return replace(function, region=replace(region, args=tuple(a for a in region.args if not self.is_same(a))))

    def region(self, region: Region) -> Region:
        results = tuple(self.operand(x) for x in region.results)
        return Region(region.args, tuple(self.body(region.body, region.results)), results)

    def body(self, body: Sequence[Instruction], results: Sequence[Operand]) -> list[Instruction]:
        made: list[Instruction] = []
        for n, instruction in enumerate(body):
            if isinstance(instruction, Map):
                found = as_loop(instruction, body[n + 1 :], results, self.fresh)
                assert found is not None, "the blocks have it as a loop"
                behind = [i for k, i in enumerate(body[n + 1 :]) if k not in found.gone]
                return [*made, *self.body((*found.before, found.loop, *found.behind, *behind), results)]
            made += self.instruction(instruction)
        return made

    def instruction(self, instruction: Instruction) -> list[Instruction]:
        put, span = self.operand, instruction.span
        match instruction:
            case Apply(op=op, operands=xs) if op.name == "bounds" and not op.is_jax:
                made: list[Instruction] = []
                (inside,) = in_place(is_inside, tuple(map(put, xs)), self.fresh, made.append, span, op["size"])
                return [*made, self.check(inside, "IndexError", UNKNOWN, span)]
            case Apply(op=op, operands=xs):
                whole = replace(instruction, operands=tuple(map(put, xs)))
                return checked_integer(whole, self.fresh) if op.exact else [whole]
            case If() if is_choice(instruction):
                return [*chosen(instruction, put)]
            case If(condition=condition, then=then, orelse=orelse):
                arms = (self.region(then), self.region(orelse))
                return [replace(instruction, condition=put(condition), then=arms[0], orelse=arms[1])]
            case For(count=count, init=init, body=body):
                return [replace(instruction, count=put(count), init=tuple(map(put, init)), body=self.region(body))]
            case While(init=init, condition=test, body=body):
                regions = (self.region(test), self.region(body))
                return [replace(instruction, init=tuple(map(put, init)), condition=regions[0], body=regions[1])]
            case Call(callee=callee, operands=xs):
                pairs = zip(self.module.function(callee).region.args, xs, strict=True)
                return [replace(instruction, operands=tuple(put(x) for a, x in pairs if not self.is_same(a)))]
            case Map():
                raise AssertionError("a loop by now")
            case _:
                assert_never(instruction)

    def check(self, condition: Operand, kind: str, message: str, span: Span) -> Apply:
        return Apply((), own("check", kind=kind, message=message), (condition,), span)


@dataclass(frozen=True)
class LoweredBlocks:
    """A program, and what its operation reads: arguments of the call by position, or operands of the module."""

    program: BlockProgram
    operands: tuple[int | Operand, ...]

    def arguments(self, given: Sequence[Operand]) -> tuple[Operand, ...]:
        """The operands of the operation that stands for a call."""
        return tuple(given[x] if isinstance(x, int) else x for x in self.operands)


def to_blocks(module: Module, entry: str, forced: Span, fresh: Fresh) -> LoweredBlocks:
    """The function `entry` of a module and all that it calls, as one program. Raises UnsupportedError where one of them
    does more than arithmetic."""
    return _Lowering(module, entry, forced, fresh).run()


@dataclass(eq=False)
class _Draft:
    """A block under construction; `ends` names drafts by their position."""

    name: str
    number: int
    behind_call: bool = False
    takes: list[Move] = field(default_factory=list)
    body: list[Apply] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    end: End = field(default_factory=lambda: Return(()))


@dataclass(frozen=True)
class _Tail:
    """What a region yields is what its function returns."""


@dataclass(frozen=True)
class _Join:
    """What a region yields is moved to registers, and `target` goes on."""

    registers: tuple[Value, ...]
    target: _Draft


@dataclass(frozen=True)
class _YieldTest:
    """What a region yields decides what goes on."""

    then: _Draft
    orelse: _Draft


_Goal = _Tail | _Join | _YieldTest


class _Lowering:
    def __init__(self, module: Module, entry: str, forced: Span, fresh: Fresh) -> None:
        self.module, self.entry, self.forced, self.fresh = module, module.function(entry), forced, fresh
        self.functions = _reached(module, self.entry)
        self.drafts: list[_Draft] = []
        self.order: list[_Draft] = []
        self.captured: dict[int | Operand, Value] = {}
        self.same = _unchanged_parameters(self.functions, self.entry, frozenset(module.shared))
        self.returns: dict[tuple[int, Type], Value] = {}
        self.failures: list[Site] = []
        self.entries = {f.name: self.draft(f.name) for f in self.functions}

    def run(self) -> LoweredBlocks:
        for function in self.functions:
            self.check_types(function)
            draft = self.start(self.entries[function.name])
            self.region(draft, function.region.body, function.region.results, _Tail())
        held = self.entry.region.args
        moving = [k for k, a in enumerate(held) if a not in self.same]
        results = tuple(self.returned(k, r.type) for k, r in enumerate(self.entry.region.results))
        whole = structured(self.functions, self.module, self.operand, self.same.__contains__, self.fresh)
        program = BlockProgram(
            self.entry.name,
            tuple(held[k] for k in moving),
            tuple(self.captured.values()),
            results,
            self.blocks(),
            tuple(self.failures),
            self.forced,
            tuple(f.name for f in self.functions),
            whole,
        )
        return LoweredBlocks(with_saved_registers(program), (*moving, *self.captured))

    def check_types(self, function: Function) -> None:
        for x in (*function.region.args, *function.region.results):
            if not isinstance(x.type, Array):
                self.refuse_object(function.span)

    def refuse_object(self, span: Span) -> NoReturn:
        raise UnsupportedError(
            "a recursion whose calls depend on computed numbers hands on an object, a list or a string",
            span,
            "hand on numbers and arrays alone: read the fields before the first call",
            [("these numbers decide which calls there are", self.forced)],
        )

    # ---- drafts

    def draft(self, name: str) -> _Draft:
        self.drafts.append(_Draft(name, len(self.drafts)))
        return self.drafts[-1]

    def start(self, draft: _Draft) -> _Draft:
        """Blocks are numbered in the order of the program: in that order they run where several are ready."""
        self.order.append(draft)
        return draft

    def blocks(self) -> tuple[Block, ...]:
        """The drafts that are reached, without those that only jump on."""
        through = {d.number: self.landing(d).number for d in self.drafts}
        first = self.entries[self.entry.name].number
        seen, todo = {first}, [first]
        while todo:
            for target in (through[t] for t in targets(self.drafts[todo.pop()].end)):
                if target not in seen:
                    seen.add(target)
                    todo.append(target)
        kept = [d for d in self.order if d.number in seen]
        assert kept[0].number == first
        place = {d.number: n for n, d in enumerate(kept)}
        names: dict[str, int] = {}
        made = []
        for d in kept:
            names[d.name] = names.get(d.name, -1) + 1
            end = _renumbered(d.end, lambda t: place[through[t]])
            restores = () if d.behind_call else None
            made.append(
                Block(f"{d.name}.{names[d.name]}", restores, tuple(d.takes), tuple(d.body), tuple(d.moves), end)
            )
        return tuple(made)

    def landing(self, draft: _Draft) -> _Draft:
        """Where a draft leads to that does nothing but jump."""
        seen = set[int]()
        while isinstance(draft.end, Jump) and not (draft.takes or draft.body or draft.moves or draft.behind_call):
            if draft.number in seen or draft is self.entries[self.entry.name]:
                break
            seen.add(draft.number)
            draft = self.drafts[draft.end.target]
        return draft

    # ---- operands

    def capture(self, source: int | Operand) -> Value:
        if source not in self.captured:
            type = self.entry.region.args[source].type if isinstance(source, int) else source.type
            self.captured[source] = self.fresh.value(type)
        return self.captured[source]

    def operand(self, x: Operand) -> Operand:
        if isinstance(x, Value) and x in self.same:
            found = self.same[x]
            return found if isinstance(found, Literal) and found.constant < 0 else self.capture(found)
        if x in self.module.shared or (isinstance(x, Literal) and x.constant >= 0):
            return self.capture(x)
        return x

    def returned(self, k: int, type: Type) -> Value:
        """The register of result `k` of every function whose result `k` has this type."""
        if (k, type) not in self.returns:
            self.returns[k, type] = self.fresh.value(type)
        return self.returns[k, type]

    # ---- control

    def region(
        self,
        draft: _Draft,
        body: Sequence[Instruction],
        results: Sequence[Operand],
        goal: _Goal,
    ) -> None:
        """Lower instructions into `draft`, and on to the goal with what they yield."""
        for n, instruction in enumerate(body):
            last = n + 1 == len(body)
            match instruction:
                case Apply():
                    draft = self.apply(draft, instruction)
                case Call():
                    if last and isinstance(goal, _Tail) and tuple(results) == instruction.results:
                        draft.moves += self.handed(instruction)
                        draft.end = Jump(self.entries[instruction.callee].number)
                        return
                    draft = self.call(draft, instruction)
                case If() if is_choice(instruction):
                    draft.body += chosen(instruction, self.operand)
                case If():
                    if last:
                        self.branch(draft, instruction, results, goal)
                        return
                    join = self.draft(draft.name)
                    self.branch(draft, instruction, instruction.results, _Join(instruction.results, join))
                    draft = self.start(join)
                case For():
                    draft = self.counted(draft, instruction)
                case While():
                    draft = self.conditional(draft, instruction)
                case Map(span=span):
                    found = as_loop(instruction, body[n + 1 :], results, self.fresh)
                    if found is None:
                        self.refuse_object(span)
                    behind = [i for k, i in enumerate(body[n + 1 :]) if k not in found.gone]
                    whole = (*found.before, found.loop, *found.behind, *behind)
                    self.region(draft, whole, results, goal)
                    return
                case _:
                    assert_never(instruction)
        self.finish(draft, results, goal)

    def finish(self, draft: _Draft, results: Sequence[Operand], goal: _Goal) -> None:
        found = [self.operand(x) for x in results]
        match goal:
            case _Tail():
                registers = [self.returned(k, r.type) for k, r in enumerate(results)]
                draft.moves += [Move(r, x) for r, x in zip(registers, found, strict=True)]
                draft.end = Return(tuple(registers))
            case _Join(registers=into, target=target):
                draft.moves += [Move(r, x) for r, x in zip(into, found, strict=True)]
                draft.end = Jump(target.number)
            case _YieldTest(then=then, orelse=orelse):
                draft.end = _branch(found[0], then, orelse)
            case _:
                assert_never(goal)

    def branch(self, draft: _Draft, branch: If, results: Sequence[Operand], goal: _Goal) -> None:
        """Both arms, on to the goal with `results`, of which some are those of the branch."""
        arms = [self.draft(draft.name), self.draft(draft.name)]
        draft.end = _branch(self.operand(branch.condition), *arms)
        for arm, region in zip(arms, (branch.then, branch.orelse), strict=True):
            yielded = dict(zip(branch.results, region.results, strict=True))
            self.start(arm)
            found = [yielded.get(x, x) if isinstance(x, Value) else x for x in results]
            self.region(arm, region.body, found, goal)

    def handed(self, call: Call) -> list[Move]:
        parameters = self.module.function(call.callee).region.args
        pairs = zip(parameters, call.operands, strict=True)
        return [Move(p, self.operand(x)) for p, x in pairs if p not in self.same and p != x]

    def call(self, draft: _Draft, call: Call) -> _Draft:
        after = self.draft(draft.name)
        draft.moves += self.handed(call)
        draft.end = Enter(self.entries[call.callee].number, (), after.number, call.span)
        after.behind_call = True
        after.takes += [Move(r, self.returned(k, r.type)) for k, r in enumerate(call.results)]
        return self.start(after)

    def counted(self, draft: _Draft, loop: For) -> _Draft:
        head, turn, behind = (self.draft(draft.name) for _ in range(3))
        index, carried = loop.body.args[0], loop.body.args[1:]
        more, following = self.fresh.value(BOOL), self.fresh.value(index.type)
        self.finish(draft, (Literal(0, INT), *loop.init), _Join(loop.body.args, head))
        self.start(head)
        head.body.append(_integer("lt", more, index, self.operand(loop.count), loop.span))
        head.end = _branch(more, turn, behind)
        step = _integer("add", following, index, Literal(1, INT), loop.span)
        self.start(turn)
        self.region(turn, (*loop.body.body, step), (following, *loop.body.results), _Join(loop.body.args, head))
        behind.takes += [Move(r, c) for r, c in zip(loop.results, carried, strict=True)]
        return self.start(behind)

    def conditional(self, draft: _Draft, loop: While) -> _Draft:
        head, turn, behind = (self.draft(draft.name) for _ in range(3))
        held = loop.condition.args
        self.finish(draft, loop.init, _Join(held, head))
        self.region(self.start(head), loop.condition.body, loop.condition.results, _YieldTest(turn, behind))
        turn.takes += [Move(a, x) for a, x in zip(loop.body.args, held, strict=True)]
        self.region(self.start(turn), loop.body.body, loop.body.results, _Join(held, head))
        behind.takes += [Move(r, x) for r, x in zip(loop.results, held, strict=True)]
        return self.start(behind)

    # ---- leaf operations

    def apply(self, draft: _Draft, instruction: Apply) -> _Draft:
        op, xs = instruction.op, tuple(self.operand(x) for x in instruction.operands)
        if not op.is_jax and op.name == "check":
            return self.check(draft, xs[0], op["kind"], words(op["message"]), instruction.span)
        if any(not isinstance(x.type, Array) for x in (*xs, *instruction.results)):
            self.refuse_object(instruction.span)
        if not op.is_jax and op.name == "gradient":
            raise UnsupportedError(
                "a derivative is taken of a recursion whose calls depend on computed numbers, behind such a number",
                instruction.span,
                "take it before the branch or the loop that it stands in, or use backend='xla'",
                [("these numbers decide whether it is taken", self.forced)],
            )
        if not op.is_jax and op.name == "bounds":
            message = f"index {UNKNOWN} is out of bounds for axis {op['axis']} with size {op['size']}"
            (inside,) = in_place(is_inside, xs, self.fresh, draft.body.append, instruction.span, op["size"])
            return self.check(draft, inside, "IndexError", message, instruction.span)
        made = replace(instruction, operands=xs)
        for i in checked_integer(made, self.fresh) if op.exact else [made]:
            assert isinstance(i, Apply)
            if i.op.name == "check":
                return self.check(draft, i.operands[0], i.op["kind"], i.op["message"], i.span)
            draft.body.append(i)
        return draft

    def check(self, draft: _Draft, condition: Operand, kind: str, message: str, span: Span) -> _Draft:
        good, bad = self.draft(draft.name), self.draft(draft.name)
        draft.end = _branch(condition, good, bad)
        self.start(bad).end = Fail(len(self.failures))
        self.failures.append(Site(kind, message, span))
        return self.start(good)


def words(message: str) -> str:
    """A format string with words for the numbers that nobody knows here."""
    return "".join(
        text + (UNKNOWN if name is not None else "") for text, name, _, _ in string.Formatter().parse(message)
    )


def _integer(name: str, result: Value, x: Operand, y: Operand, span: Span) -> Apply:
    return Apply((result,), Op(name, (), jax_compat.primitive(name)), (x, y), span)


def _branch(condition: Operand, then: _Draft, orelse: _Draft) -> End:
    if isinstance(condition, Literal):
        return Jump((then if condition.value else orelse).number)
    return Branch(condition, then.number, orelse.number)


def _renumbered(end: End, place: Callable[[int], int]) -> End:
    match end:
        case Jump(target=target):
            return Jump(place(target))
        case Branch(condition=condition, then=then, orelse=orelse):
            return Branch(condition, place(then), place(orelse))
        case Enter(target=target, after=after):
            return replace(end, target=place(target), after=place(after))
        case Return() | Fail():
            return end
        case _:
            assert_never(end)


def _reached(module: Module, entry: Function) -> list[Function]:
    """The functions that a function leads to, itself first."""
    found = {entry.name: entry}
    todo = [entry]
    while todo:
        for call in calls(todo.pop().region):
            if call.callee not in found:
                found[call.callee] = module.function(call.callee)
                todo.append(found[call.callee])
    return list(found.values())


def _unchanged_parameters(
    functions: Sequence[Function], entry: Function, shared: frozenset[Value]
) -> dict[Value, int | Operand]:
    """The parameters that every call passes on as the first one got them: argument `k` of that, a shared value or a
    constant."""
    changes = object()
    sources: dict[Value, set[Any]] = {a: set() for f in functions for a in f.region.args}
    for k, a in enumerate(entry.region.args):
        sources[a].add(k)
    parameters = {f.name: f.region.args for f in functions}
    sites = [c for f in functions for c in calls(f.region)]
    changed = True
    while changed:
        changed = False
        for site in sites:
            for parameter, given in zip(parameters[site.callee], site.operands, strict=True):
                if isinstance(given, Literal) or given in shared:
                    found = {given}
                else:
                    found = sources.get(given, {changes})
                if not found <= sources[parameter]:
                    sources[parameter] |= found
                    changed = True
    return {p: next(iter(s)) for p, s in sources.items() if len(s) == 1 and changes not in s}


# ---- outline
#
# Data-dependent loops and branches around calls become functions, so that a stack can run them.
#
# %x = while (%a) test: ... do: ... call @gcd(%a, %b)        %x = call @f.loop0(%a, %b)
#                                                      ->    func @f.loop0(%a, %b): %x = while (%a) ...; return %x


def outline_calls(
    module: Module, places: Mapping[str, frozenset[Span]], numeric: frozenset[str]
) -> tuple[Module, dict[str, Span]]:
    """The module in which control at such places of functions, around calls, is a function where it takes and gives
    numbers alone; and the new functions, with the places. `numeric`: functions of which that is known."""
    outliner = _Outliner(module, numeric)
    functions = [
        replace(f, region=outliner.region(f.region, f.name, places[f.name])) if f.name in places else f
        for f in module.functions
    ]
    return replace(module, functions=(*functions, *outliner.made)), {f.name: f.span for f in outliner.made}


class _Outliner:
    def __init__(self, module: Module, numeric: frozenset[str]) -> None:
        self.fresh, self.shared, self.numeric = Fresh(module), frozenset(module.shared), numeric
        self.names = {f.name for f in module.functions}
        self.made: list[Function] = []

    def region(self, region: Region, owner: str, places: frozenset[Span]) -> Region:
        return replace(region, body=tuple(self.instruction(i, owner, places) for i in region.body))

    def instruction(self, instruction: Instruction, owner: str, places: frozenset[Span]) -> Instruction:
        if not isinstance(instruction, If | For | While) or instruction.span not in places:
            return with_regions(instruction, lambda r: self.region(r, owner, places))
        whole = Region((), (instruction,), instruction.results)
        called = {c.callee for r in regions(instruction) for c in calls(r)}
        captured = free_values(whole, self.shared)
        if not called or not called <= self.numeric or not _are_numbers((*captured, *instruction.results)):
            return with_regions(instruction, lambda r: self.region(r, owner, places))
        name = self.name(owner)
        body = copy_region(replace(whole, args=captured), {}, self.fresh)
        self.made.append(Function(name, body, instruction.span))
        return Call(instruction.results, name, captured, instruction.span)

    def name(self, owner: str) -> str:
        n = 0
        while f"{owner}.loop{n}" in self.names:
            n += 1
        self.names.add(f"{owner}.loop{n}")
        return f"{owner}.loop{n}"


def _are_numbers(values: tuple[object, ...]) -> bool:
    return all(isinstance(getattr(v, "type", None), Array) for v in values)


TURNS = re.compile(r"(.*)\.(for|while|map)\d+")
"""Names of loops that became functions, and of the functions that they stand in."""


@dataclass(frozen=True)
class Limits:
    """What an operation may use for each example: entries of the stack, and blocks."""

    depth: int
    steps: int


class Repeats(Exception):
    """Functions that recurse on the device, and whose decorator `functools.cache` was left out; by their places."""

    def __init__(self, places: frozenset[Span]) -> None:
        self.places = places


def use_stack(
    module: Module,
    functions: Module,
    facts: StructureFacts,
    limits: Limits,
    cached: frozenset[Span] = frozenset(),
    alone: bool = False,
) -> Module | None:
    """The module with a program of blocks for each recursion whose calls depend on computed numbers, and for each
    data-dependent loop and branch around calls; None where there is nothing that a program of blocks can run.
    `functions` is the module with its loops as functions, and `facts` are about it. Raises `Repeats` where functions
    among these run as often as they are called: `cached`, their places. `alone`: no host lays rows out for any
    recursion."""
    controls = [(_owner(name, module), i) for name, i in _numeric_control(functions, facts)]
    graph, recursive = call_graph(module), recursive_functions(module)
    numeric = _numeric_functions(module, graph)
    wanted = _recursions(graph, recursive & numeric, controls)
    if alone:
        wanted |= {f: module.function(f).span for f in sorted(recursive & numeric) if f not in wanted}
    around: dict[str, set[Span]] = defaultdict(set)
    for owner, control in controls:
        if owner not in wanted and any(_calls_of(control)):
            around[owner].add(control.span)
    whole, outlined = outline_calls(module, {f: frozenset(places) for f, places in around.items()}, numeric)
    if not wanted and not outlined:
        return None
    running = {*wanted, *outlined}.union(*(nx.descendants(call_graph(whole), f) for f in (*wanted, *outlined)))
    repeated = cached.intersection(f.span for f in whole.functions if f.name in running & recursive)
    if repeated:
        raise Repeats(repeated)
    return _Replacing(whole, wanted | outlined, limits).run()


def _recursions(
    graph: nx.DiGraph[str], recursive: frozenset[str], controls: Sequence[tuple[str, Instruction]]
) -> dict[str, Span]:
    """The functions that need a stack, and the control that says so: what stands in a circle with such control."""
    component = {n: c for c in nx.strongly_connected_components(graph) for n in c}
    found: dict[str, Span] = {}
    for owner, control in controls:
        if owner in recursive and owner not in found:
            found.update(dict.fromkeys(sorted(component[owner]), control.span))
    return found


def _numeric_functions(module: Module, graph: nx.DiGraph[str]) -> frozenset[str]:
    """The functions that take and return numbers and arrays alone, and so do all that they call."""
    others = {
        f.name
        for f in module.functions
        if not all(isinstance(x.type, Array) for x in (*f.region.args, *f.region.results))
    }
    above = {caller for name in others for caller in nx.ancestors(graph, name)}
    return frozenset(f.name for f in module.functions) - others - above


def _numeric_control(functions: Module, facts: StructureFacts) -> Iterator[tuple[str, Instruction]]:
    """Control that the host cannot decide, and the function that it stands in."""
    for function in functions.functions:
        for instruction in walk(function.region):
            match instruction:
                case If(condition=x) | Map(count=x):
                    if not facts.is_host(x):
                        yield function.name, instruction
                case Apply(op=op, operands=xs) if op.name == "check":
                    if not all(map(facts.is_host, xs)):
                        yield function.name, instruction
                case _:
                    pass


def _calls_of(control: Instruction) -> Iterable[Call]:
    whole = Region((), (control,), ())
    return calls(whole)


def _owner(name: str, module: Module) -> str:
    """The function before loops became functions that a function stands in."""
    names = {f.name for f in module.functions}
    while name not in names and (match := TURNS.fullmatch(name)):
        name = match[1]
    return name


class _Replacing:
    """The rewriting of calls into a set of functions."""

    def __init__(self, module: Module, wanted: dict[str, Span], limits: Limits) -> None:
        self.module, self.wanted, self.limits = module, wanted, limits
        self.fresh = Fresh(module)
        self.made: dict[str, LoweredBlocks] = {}

    def run(self) -> Module:
        kept = [f for f in self.module.functions if f.name not in self.wanted]
        entry = self.module.functions[0]
        if entry.name in self.wanted:
            results = self.fresh.like([Value(-1, r.type) for r in entry.region.results])
            call = Call(results, entry.name, entry.region.args, entry.span)
            kept.insert(0, replace(entry, region=Region(entry.region.args, (call,), results)))
        functions = [replace(f, region=self.region(f.region)) for f in kept]
        whole = replace(self.module, functions=tuple(functions))
        reached = {functions[0].name} | nx.descendants(call_graph(whole), functions[0].name)
        return replace(whole, functions=tuple(f for f in functions if f.name in reached))

    def region(self, region: Region) -> Region:
        return replace(region, body=tuple(map(self.instruction, region.body)))

    def instruction(self, instruction: Instruction) -> Instruction:
        if not isinstance(instruction, Call) or instruction.callee not in self.wanted:
            return with_regions(instruction, self.region)
        lowered = self.lowered(instruction.callee)
        status = self.fresh.value(lowered.program.types[-1])
        op = of_control("blocks", program=lowered.program, base=0, depth=self.limits.depth, steps=self.limits.steps)
        operands = lowered.arguments(instruction.operands)
        return Apply((*instruction.results, status), op, operands, instruction.span)

    def lowered(self, name: str) -> LoweredBlocks:
        if name not in self.made:
            self.made[name] = to_blocks(self.module, name, self.wanted[name], self.fresh)
        return self.made[name]


def programs(module: Module) -> tuple[BlockProgram, ...]:
    """The programs of blocks in a module, each once."""
    found: dict[BlockProgram, None] = {}
    for function in module.functions:
        for instruction in walk(function.region):
            if isinstance(instruction, Apply) and instruction.op.name == "blocks":
                found.setdefault(instruction.op["program"])
    return tuple(found)
