"""A region as one function of machine code over the rows of a batch, and how it is called.

    i64 run(operands, constants, results, scratch: pointers; begin, end: rows)

It computes the rows from `begin` to `end`, and returns whether one of them failed. How many rows there are is no part
of the text, and no row depends on another: any cut of a batch into calls gives the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, assert_never

import numpy as np

from autobatch.backends.llvm import machine_code
from autobatch.backends.llvm.lanes.analysis import (
    CHANGING,
    Lifetimes,
    most_at_once,
    shared_inside,
    uniform_values,
    widest,
)
from autobatch.backends.llvm.lanes.control import RegionWriter
from autobatch.backends.llvm.lanes.gathers import PLACES_READ
from autobatch.backends.llvm.lanes.ops import Environment, located, shape_of
from autobatch.backends.llvm.lanes.program import (
    MOST_SUMMED,
    Body,
    CodeOperand,
    CodeSignature,
    EmittedCode,
    Gang,
    GangLoop,
    Result,
    finished,
)
from autobatch.backends.llvm.lanes.recursion import run_recursion
from autobatch.backends.llvm.lanes.refill import LoopSplit, asked_in, refilled, walks
from autobatch.backends.llvm.lanes.reverse import Told, inner_gradient, pulled_back
from autobatch.backends.llvm.lanes.tape import versions_of
from autobatch.backends.llvm.lanes.tensors import SMALL, Tensor, in_registers, kept, registers_of
from autobatch.backends.llvm.lanes.together import FUNCTION, READS
from autobatch.backends.llvm.lanes.writer import FLOATS, STACK, LaneValue, LaneWriter
from autobatch.backends.llvm.machine_code import RefusedError, UnavailableError
from autobatch.backends.llvm.region import CURE, TURNS, WholeRegion, all_regions
from autobatch.backends.llvm.text import Interrupts, LlvmFunction
from autobatch.common.runtime import stage
from autobatch.errors import NOWHERE, Span, UnsupportedError
from autobatch.ir.core import (
    Apply,
    Array,
    Call,
    For,
    If,
    Instruction,
    Literal,
    Map,
    Operand,
    Region,
    Type,
    Value,
    While,
    walk,
)
from autobatch.ir.core import Operand as Read
from autobatch.ir.leaf import DerivativeRule
from autobatch.ir.ops import own
from autobatch.ir.regions import region_values, with_operands

# ---- gangs
#
# Do the rows of a batch form gangs, or does each run by itself? By what a gang's turn costs, and its rows' one by one.
#
#     for word in words: total += table[word]     rows of one example are read by vector loads; of 16, number by number
#
# A gang does an operation on all of its rows at once. Where they read or write memory at places of their own it does so
# one after another, where they part in a branch it runs both arms, and in a loop inside another it takes as many turns
# as its slowest row. A row by itself takes the arm it needs, and pays where the processor has guessed the wrong one.
#
# The costs are in operations on numbers, fitted to 60 programs, each measured both ways (Zen 5, vectors of 512 bits):
# of 10 that were 1.2 to 3 times as fast row by row 8 are found (not a parser and a stack machine), and one (insertion
# sort in an array) is 1.4 times as slow by it.


PLACE = 48
"""What a number costs a gang that its rows read or write at places of their own."""

PARTED = 64
"""What a branch costs a gang in which its rows part, beside its arms."""

GUESSED = 16
"""The same for a row by itself: every other guess is wrong."""

TAKEN = 0.25
"""How often an arm is run."""

SLOWEST = 2.5
"""Turns of the slowest row of a gang, for one turn of a row, where loops are inside each other."""

ALONE = 0.5
"""What an operation of a row by itself costs: the processor does several at once."""

DIVISION = 4
"""Operations that a division is."""


def form_gangs(region: Region, shared: int, lanes: int) -> bool:
    """Do the rows of a region form gangs of so many lanes, whose first arguments are shared?"""
    cost = _GangCost()
    first = region.args[:shared]
    cost.region(region, {*first, *shared_inside(region, first)}, _Often())
    return lanes * cost.alone >= cost.gang


@dataclass(frozen=True)
class _Often:
    """How often something runs in a row, and in a gang; in so many loops that rows leave one by one."""

    row: float = 1.0
    gang: float = 1.0
    loops: int = 0

    def times(self, turns: float, parts: bool = False) -> _Often:
        slowest = SLOWEST if parts and self.loops else 1.0
        return _Often(self.row * turns, self.gang * turns * slowest, self.loops + parts)


class _GangCost:
    """Of a row by itself (`alone`), and of a gang."""

    def __init__(self) -> None:
        self.alone = self.gang = 0.0

    def region(self, region: Region, known: Collection[Value], often: _Often) -> None:
        for i in region.body:
            self.instruction(i, known, often)

    def instruction(self, i: Instruction, known: Collection[Value], often: _Often) -> None:
        match i:
            case Apply():
                self.applied(i, known, often)
            case For(count=count, body=body):
                turns = count.value if isinstance(count, Literal) else TURNS
                assert isinstance(turns, int)
                self.region(body, known, often.times(turns))
            case While(condition=test, body=body):
                inside = often.times(TURNS, parts=not _is_shared(test.results[0], known))
                self.region(test, known, inside)
                self.region(body, known, inside)
            case If(condition=condition, then=then, orelse=orelse):
                if not _is_shared(condition, known):
                    self.add(often, GUESSED, PARTED)
                for arm in (then, orelse):
                    self.region(arm, known, often.times(TAKEN))
            case Call():
                pass  # the functions of a recursion are counted where it begins
            case Map():
                raise AssertionError("a loop by now")
            case _:
                assert_never(i)

    def applied(self, i: Apply, known: Collection[Value], often: _Often) -> None:
        op, xs = i.op, i.operands
        if op.name == "masked":
            given = [a for a, x in zip(op["region"].args, xs, strict=True) if _is_shared(x, known)]
            self.region(op["region"], {*given, *shared_inside(op["region"], given)}, often)
        elif op.name == "blocks":
            program = op["program"]
            inputs = zip((*program.parameters, *program.captured), xs, strict=True)
            given = [v for v, x in inputs if _is_shared(x, known)]
            inside = {*given, *uniform_values(program.structured, given)}
            for f in program.structured:
                self.region(f.region, inside, often.times(TURNS, parts=True))
        elif op.name in (*READS, *CHANGING) and not in_registers(_size(xs[0].type)):
            self.memory(i, known, often)
        elif not all(_is_shared(x, known) for x in xs):
            self.numbers(i, often)

    def memory(self, i: Apply, known: Collection[Value], often: _Often) -> None:
        """Numbers of an array that are read or written."""
        xs = i.operands
        if i.op.name.startswith("scatter"):
            places, moved = xs[1:2], xs[2].type
        elif i.op.name in CHANGING:
            places, moved = xs[2:], xs[1].type
        else:
            places, moved = xs[1:], i.results[0].type
        size = _size(moved)
        if all(_is_shared(x, known) for x in places):
            self.add(often, ALONE * size, size)
        else:
            self.add(often, 1 + size / SMALL, PLACE * size)

    def numbers(self, i: Apply, often: _Often) -> None:
        """Operations on numbers."""
        name, types = i.op.name, [x.type for x in (*i.operands, *i.results)]
        size = max([1, *map(_size, types[len(i.operands) :])])
        if name.startswith(("reduce", "cum", "arg")):
            size = _size(types[0])
        if name == "dot_general" and isinstance(types[0], Array):
            (summed, _), _ = i.op["dimension_numbers"]
            size *= math.prod(types[0].shape[k] for k in summed)
        work = size * (FUNCTION if name in FLOATS else DIVISION if name in ("div", "sqrt", "rem") else 1)
        self.add(often, ALONE * work, work)

    def add(self, often: _Often, row: float, gang: float) -> None:
        self.alone += often.row * row
        self.gang += often.gang * gang


def _is_shared(x: Operand, known: Collection[Value]) -> bool:
    return isinstance(x, Literal) or x in known


def _size(of: Type) -> int:
    return math.prod(of.shape) if isinstance(of, Array) else 1


ENTRY = "run"
"""The name of the function."""

MANY = 600
"""Instructions of a function up to which its values are two registers each, where they fit."""

WIDEST = 128
"""Numbers of an array up to which each lane of a gang has its own."""


SCRATCH = 1 << 28
"""Bytes that arrays and the states of loops may take, for each thread."""


@dataclass(frozen=True)
class Direct:
    """The frame of a call that has its pointers as parameters."""

    def argument(self, number: int) -> str:
        return f"%a{number}"

    def result(self, number: int) -> str:
        return f"%r{number}"


class _Control(RegionWriter):
    """Runs the region of a whole function: recursion is a program of blocks among other operations."""

    def __init__(self, gang: Gang, arrays: Sequence[Any], lifetimes: Lifetimes | None = None) -> None:
        super().__init__(gang.w, gang.constant, partial(inner_gradient, gang), lifetimes)
        self.gang, self.arrays = gang, arrays

    def read(self, x: Read, env: Environment, arrays: Sequence[Any] = ()) -> Tensor:
        return super().read(x, env, arrays or self.arrays)

    def instruction(self, instruction: Instruction, env: Environment, mask: LaneValue | None) -> list[Tensor]:
        try:
            if isinstance(instruction, Apply) and instruction.op.name == "blocks":
                xs = [kept(self.w, self.read(x, env)) for x in instruction.operands]
                return run_recursion(self.gang, instruction.op, xs, mask)
            return super().instruction(instruction, env, mask)
        except RefusedError as error:
            located(error, instruction)
            raise


@dataclass(frozen=True)
class WholeCode:
    """The text of a whole function, what goes in and comes out, and how many rows a gang has."""

    program: EmittedCode
    signature: CodeSignature
    width: int
    arrays: tuple[Any, ...] = ()
    """Operands that the program holds itself, behind those of the call but before its last one."""


def write(whole: WholeRegion, sites: bool) -> WholeCode:
    """The code of a region. `sites`: its last result says what an example has failed with. UnsupportedError where there
    is none, or no processor for it."""
    try:
        with stage("LLVM: write IR"), registers_of(whole.registers):
            return _write(whole, sites)
    except UnavailableError as error:
        raise unavailable(error) from error


def unavailable(error: UnavailableError) -> UnsupportedError:
    """The error of a user on whose machine no code of ours runs."""
    return UnsupportedError(f"backend='llvm' is not available: {error}", cure="use backend='xla'")


def _write(whole: WholeRegion, sites: bool) -> WholeCode:
    region = whole.region
    refused: RefusedError | None = None
    try:
        operands = tuple(CodeOperand(*shape_of(v.type), varies=k >= whole.shared) for k, v in enumerate(region.args))
        results = [Result(*shape_of(r.type)) for r in region.results]
        if sites and not machine_code.is_written_for_others():
            results[-1] = replace(results[-1], seldom=True)
        signature = CodeSignature(operands, tuple(results), False)
        for width in (*_wider(whole), *widths(whole)):
            try:
                return WholeCode(_program(signature, width, whole, sites), signature, width)
            except RefusedError as error:
                refused = refused or error
    except RefusedError as error:
        refused = error
    assert refused is not None
    raise refusal(refused, region)


def refusal(refused: RefusedError, region: Region) -> UnsupportedError:
    """The error of a user whose function is refused: by an operation, or by the room that all of them take."""
    span = refused.span or _largest(region)
    return UnsupportedError(f"backend='llvm' has no machine code for this: {refused}", span, CURE)


def _largest(region: Region) -> Span:
    """Where the largest array is made."""
    placed = [i for i in walk(region) if i.span != NOWHERE]
    return max(placed, key=_numbers).span if placed else NOWHERE


def _numbers(i: Instruction) -> int:
    return max((math.prod(r.type.shape) for r in i.results if isinstance(r.type, Array)), default=0)


def widths(whole: WholeRegion) -> Iterator[int]:
    """Rows of a gang: as many as a vector has numbers of 32 bits, or one."""
    lanes = machine_code.host().target.lanes
    fits = widest(whole.region, _varying(whole)) <= WIDEST and not whole.walks_examples
    if fits and form_gangs(whole.forward, whole.shared, lanes):
        yield lanes
    yield 1


def _wider(whole: WholeRegion) -> Iterator[int]:
    """Rows of a gang whose values are two registers each: two chains of operations, of which one goes on while the
    other waits. Where twice the numbers are more than twice the registers it waits for memory instead. (Of Mandelbrot's
    loop it takes two thirds of the time, of noise, which holds 27 numbers at once, four fifths.) A long function has
    many chains already, and twice the instructions would take the compiler twice the time. (A recursion holds what it
    has kept behind its calls besides, so each of its functions may have a third of the registers.)"""
    if sum(1 for _ in walk(whole.forward)) > MANY:
        return
    if walks(whole.forward, whole.forward.args[: whole.shared]):
        return
    varying, target = _varying(whole), machine_code.host().target
    programs = [i.op["program"] for i in walk(whole.region) if isinstance(i, Apply) and i.op.name == "blocks"]
    held = [most_at_once(f.region, [True] * len(f.region.args)) for p in programs for f in p.structured]
    if all(n <= target.registers // 3 for n in held) and most_at_once(whole.forward, varying) <= target.registers:
        yield from (2 * n for n in widths(whole) if n > 1)


def _varying(whole: WholeRegion) -> list[bool]:
    return [k >= whole.shared for k in range(len(whole.region.args))]


def _program(signature: CodeSignature, width: int, whole: WholeRegion, sites: bool) -> EmittedCode:
    f = LlvmFunction("")
    gang = direct(f, width, signature)
    failed = f.slot(0)
    split = (
        LoopSplit.of(whole.forward, whole.forward.args[: whole.shared], asked_in(whole.region)) if width > 1 else None
    )
    if split is None:
        GangLoop(gang, "%begin", "%end").run(_body(whole, sites, failed))
    else:
        ended = partial(notice, gang.w, failed) if sites else lambda results, done: None
        refilled(split, lambda gang: _Control(gang, whole.constants), gang, "%begin", "%end", ended)
    f.do(f"ret i64 {f.get(failed)}")
    return completed(f, gang)


def direct(f: LlvmFunction, width: int, signature: CodeSignature) -> Gang:
    """The gang of a function that is called directly. Of one lane, arrays may lie in scratch memory."""
    gang = Gang(LaneWriter(f, width), signature, Direct())
    if width == 1:
        gang.reserves_outside()
    gang.w.room = STACK
    gang.w.whole = not machine_code.is_written_for_others()
    asking(f, signature)
    return gang


def asking(f: LlvmFunction, signature: CodeSignature) -> None:
    """Loops ask whether the call is still wanted, where it is one of this process."""
    if not machine_code.is_written_for_others():
        f.interrupts = Interrupts(f, f"%r{len(signature.results)}")


def completed(f: LlvmFunction, gang: Gang) -> EmittedCode:
    """The program of a function that is written to its end."""
    more = f.interrupts.leave(gang.behind) if f.interrupts is not None else ""
    headed(f, gang)
    if gang.scratch > SCRATCH:
        raise RefusedError(f"it needs {gang.scratch:,} bytes for its arrays, more than {SCRATCH:,}")
    return finished(f, f"{f}{more}", gang)


def headed(f: LlvmFunction, gang: Gang) -> None:
    """Write the head of the function, now that all of its parameters are known."""
    parameters = [f"ptr noalias %a{k}" for k in range(len(gang.signature.operands) + len(gang.constants))]
    parameters += [f"ptr noalias %r{k}" for k in range(len(gang.signature.results) + 1)]
    f.head = f"i64 @{ENTRY}({', '.join([*parameters, 'i64 %begin', 'i64 %end'])}) nounwind"


def _body(whole: WholeRegion, sites: bool, failed: str) -> Body:
    def body(gang: Gang, xs: Sequence[Tensor]) -> Sequence[Tensor]:
        found = region_of(gang, whole, xs)
        if sites:
            found[-1] = kept(gang.w, found[-1])
            notice(gang.w, failed, found, gang.mask)
        return found

    return body


def region_of(gang: Gang, whole: WholeRegion, xs: Sequence[Tensor]) -> list[Tensor]:
    """The results of a region in the lanes of a gang."""
    lifetimes = Lifetimes() if whole.has_arrays else None
    return _Control(gang, whole.constants, lifetimes).once(whole.forward, xs, {}, gang.mask)


def notice(w: LaneWriter, failed: str, results: Sequence[Tensor], mask: LaneValue | None) -> None:
    """Has a row of a mask failed, whose last result is its status?"""
    status = w.spread(results[-1].one())
    wrong = w.instruction("icmp ne", status, w.constant(0, status.dtype), "bool")
    some = w.any(wrong if mask is None else w.both(mask, wrong))
    w.f.set(failed, w.f.let(f"or i64 {w.f.get(failed)}, {w.f.let(f'zext i1 {some} to i64')}"))


# ---- gradient
#
# The derivative of a whole function in reverse, as one function over the rows of a batch.
#
#     operands   those of the function, the arrays that its literals name, the weight of each row
# results    of each operand asked for: its cotangents row by row; of a shared one their sum over the rows of a call; of
# a column the cotangents of what each row has in it for itself status     has a row failed? (Which one, and of what,
# only the function itself says.)
#
# The region runs forward with a tape and then backward (`lanes/reverse.py`), gang by gang, so what is kept does not
# grow with the batch.


def write_gradient(whole: WholeRegion, sites: bool, output: int, wrt: Sequence[int]) -> WholeCode:
    """The code of a derivative. UnsupportedError where there is none."""
    try:
        with registers_of(whole.registers):
            return _written(whole, sites, output, wrt)
    except RefusedError as error:
        raise refusal(error, whole.region) from error


@dataclass(frozen=True)
class Derivative:
    """What the code of a derivative computes. `arrays`: its operands before the last one, which the program holds."""

    rule: DerivativeRule
    signature: CodeSignature
    arrays: tuple[Any, ...]

    @property
    def reads_tables(self) -> bool:
        """Is it by large arrays that all rows share, and read at places of their own, as columns are?"""
        made = {(r.dtype, r.shape) for r in self.signature.results if r.summed and math.prod(r.shape) > MOST_SUMMED}
        inside = (i for r in all_regions(self.rule.op["region"]) for i in r.body if isinstance(i, Apply))
        return any(i.op.name in PLACES_READ and shape_of(i.operands[0].type) in made for i in inside)

    @property
    def changes_arrays(self) -> bool:
        """Are there loops that change arrays here and there? One lane does not copy these (`lanes/tape.py`)."""
        loops = (i for r in all_regions(self.rule.op["region"]) for i in r.body if isinstance(i, For | While))
        return any(versions_of(i, k) is not None for i in loops for k in range(len(i.init)))

    def body(self, gang: Gang, xs: Sequence[Tensor], told: Told = lambda results: None) -> Sequence[Tensor | None]:
        """The cotangents of the rows of a gang. `told`: who wants to know the results of the function."""
        return pulled_back(gang, self.rule, xs, told, gang.totals)


def derivative_of(whole: WholeRegion, sites: bool, output: int, wrt: Sequence[int]) -> Derivative:
    """The derivative of result `output` by the operands `wrt`. `sites`: rows that have failed have none."""
    region, constants = _without_arrays(whole)
    inputs = len(whole.region.args)
    types = tuple(a.type for a in region.args if isinstance(a.type, Array))
    results = tuple(r.type for r in region.results if isinstance(r.type, Array))
    op = own("masked", region=region, sites=(), **({"cut": True} if sites else {}))
    has = tuple(k == output for k in range(len(results)))
    rule = DerivativeRule(op, types, (None,) * len(types), results, has, tuple(wrt))
    varies = [whole.shared <= k < inputs for k in range(len(types))]
    operands = [CodeOperand(*shape_of(t), v) for t, v in zip(types, varies, strict=True)]
    weight = CodeOperand(*shape_of(results[output]), True)
    columns = {k for k, a in enumerate(whole.region.args) if a in whole.columns}
    made = tuple(Result(*shape_of(types[k]), not varies[k], column=k if k in columns else None) for k in wrt)
    return Derivative(rule, CodeSignature((*operands, weight), made, False), tuple(constants))


def _written(whole: WholeRegion, sites: bool, output: int, wrt: Sequence[int]) -> WholeCode:
    found = derivative_of(whole, sites, output, wrt)
    refused: RefusedError | None = None
    alone = found.reads_tables or found.changes_arrays
    for width in widths(whole):
        if width > 1 and alone:
            continue  # each lane would have all of a table, or copy its arrays in each turn
        f = LlvmFunction("")
        gang, failed = direct(f, width, found.signature), f.slot(0)

        def body(gang: Gang, xs: Sequence[Tensor], failed: str = failed) -> Sequence[Tensor | None]:
            return found.body(gang, xs, lambda results: notice(gang.w, failed, results, gang.mask) if sites else None)

        try:
            GangLoop(gang, "%begin", "%end").run(body)
            f.do(f"ret i64 {f.get(failed)}")
            program = completed(f, gang)
        except RefusedError as error:
            refused = refused or error
            continue
        return WholeCode(program, found.signature, width, found.arrays)
    assert refused is not None
    raise refused


def _without_arrays(whole: WholeRegion) -> tuple[Region, list[np.ndarray[Any, Any]]]:
    """The region with arguments more for the arrays that its literals name."""
    number = 1 + max((v.id for v in region_values(whole.region)), default=-1)
    made: dict[int, Value] = {}

    def put(x: Read) -> Read:
        if not isinstance(x, Literal) or x.constant < 0:
            return x
        return made.setdefault(x.constant, Value(number + len(made), x.type))

    region = with_operands(whole.region, put)
    arrays = [np.asarray(whole.constants[k]) for k in made]
    return replace(region, args=(*region.args, *made.values())), arrays
