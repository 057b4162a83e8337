"""The derivative of a region in reverse, in the code of a gang.

    forward     y = region(x), where each loop writes the state before each of its turns to a tape
    backward    the instructions from the last to the first, each with the rule that JAX has for it; an arm of a branch
                and a turn of a loop are run again before they are run backward

All gangs use the same memory for their tapes (`tape.py`), one after another. A lane that takes no part in a turn has
no part in its cotangents either: each that leaves a branch or a turn is zero outside of its mask.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, Protocol

from autobatch.backends.llvm.lanes.analysis import NOTHING, Carried
from autobatch.backends.llvm.lanes.blocks import BlockMachine, Derivatives, laid_out, run_program, stack_of
from autobatch.backends.llvm.lanes.control import InPlace, RegionWriter, counted_turns, turns
from autobatch.backends.llvm.lanes.elementwise import BY_NUMBER as OPERATIONS
from autobatch.backends.llvm.lanes.elementwise import convert
from autobatch.backends.llvm.lanes.gathers import PLACES_READ, PLACES_WRITTEN
from autobatch.backends.llvm.lanes.ops import Environment, Equations, of_jaxpr, shape_of
from autobatch.backends.llvm.lanes.program import Gang
from autobatch.backends.llvm.lanes.reductions import total as all_of
from autobatch.backends.llvm.lanes.tape import (
    Chain,
    Cotangents,
    LoopTape,
    Totals,
    accumulate,
    args_of,
    summed,
    versions_of,
)
from autobatch.backends.llvm.lanes.tensors import (
    ChangeInPlace,
    Element,
    Indices,
    MemoryTensor,
    Tensor,
    TensorVariable,
    apart,
    constant,
    copied,
    kept,
    scalar,
    select,
    set_all,
    word,
    words,
    zeros,
)
from autobatch.backends.llvm.lanes.writer import BYTES, HALVES, LaneValue, LaneWriter, stored
from autobatch.backends.llvm.machine_code import RefusedError
from autobatch.errors import NOWHERE, UnsupportedError
from autobatch.ir import jax_compat
from autobatch.ir.core import (
    BY_NUMBER,
    INFINITE,
    Apply,
    Array,
    For,
    If,
    Instruction,
    Literal,
    Operand,
    Region,
    Value,
    While,
    regions,
)
from autobatch.ir.leaf import Block, BlockProgram, DerivativeRule, Enter
from autobatch.ir.ops import Op
from autobatch.ir.regions import NO_LIMIT, Allowed, free_values, limit_of, may_have_failed
from autobatch.passes.derivative_rules import has_derivative, row_rule
from autobatch.passes.liveness import is_number, unused_in_blocks, unused_results

# ---- moving
#
# Which values of a region can move: they are of floats, and depend on operands that a derivative is taken by.


def moving(region: Region, by: Iterable[Value]) -> frozenset[Value]:
    """The values of a region, and of all inside it, that move where those of `by` do."""
    found = set(by)
    before = -1
    while before != len(found):  # loops pass on what their bodies find
        before = len(found)
        _find(region, found)
    return frozenset(found)


def is_moving(x: Operand, found: Iterable[Value]) -> bool:
    return isinstance(x, Value) and x in found


def _find(region: Region, found: set[Value]) -> None:
    for i in region.body:
        _find_in(i, found)


def _find_in(i: Instruction, found: set[Value]) -> None:
    match i:
        case Apply(op=op, operands=xs, results=results):
            if op.name == "masked":
                inner: Region = op["region"]
                _flow(xs, inner.args, found)
                _find(inner, found)
                _flow(inner.results, results, found)
            elif any(is_moving(x, found) for x in xs):
                found.update(r for r in results if isinstance(r.type, Array) and has_derivative(r.type))
        case If(then=then, orelse=orelse, results=results):
            for arm in (then, orelse):
                _find(arm, found)
                _flow(arm.results, results, found)
        case For(init=init, body=body, results=results):
            _flow(init, body.args[1:], found)
            _find(body, found)
            _flow(body.results, body.args[1:], found)
            _flow(body.args[1:], results, found)
        case While(init=init, body=body, results=results):
            _flow(init, body.args, found)
            _find(body, found)
            _flow(body.results, body.args, found)
            _flow(body.args, results, found)
        case _:
            raise AssertionError("no calls and no lists in a masked region")


def _flow(sources: Sequence[Operand], targets: Sequence[Value], found: set[Value]) -> None:
    found.update(y for x, y in zip(sources, targets, strict=True) if is_moving(x, found))


# ---- reverse blocks
#
# The derivative of a program of blocks in reverse, for one row.
#
#     forward     each block that runs writes its number and what it reads to a tape
#     backward    the blocks of the tape from the last to the first: each is run again, and then backward
#
# A register has a cotangent, which the block takes that has set it. What a call saved on the stack, the block behind it
# took from there: backward that block puts the cotangents on a stack of their own, and the call takes them. Blocks that
# set nothing that moves leave nothing on the tape.


class Backward(Protocol):
    """Runs regions forward and then backward."""

    totals: Totals

    def again(self, region: Region, env: Environment) -> None:
        """Forward, such that it can be run backward next; `env` gets what is computed."""
        ...

    def pull(self, region: Region, env: Environment, total: Cotangents, mask: LaneValue | None) -> None: ...


Write = Callable[[frozenset[Value], frozenset[Value]], Backward]
"""Of the values that move, and of those that a row may not use."""


class TapedMachine(BlockMachine):
    """Runs an operation `blocks` with a tape, and then backward. `wrt`: do its operands move?"""

    def __init__(self, gang: Gang, op: Op, derivatives: Derivatives, wrt: Sequence[bool], write: Write) -> None:
        super().__init__(gang, op, derivatives)
        if gang.warp is not None:
            raise RefusedError("the derivative of a recursion in a kernel of a GPU")
        inputs = (*self.program.parameters, *self.program.captured)
        self.found = moving_in(self.program, [v for v, moves in zip(inputs, wrt, strict=True) if moves])
        self.inputs, blocks = inputs, self.program.blocks
        self.code = write(self.found, unused_in_blocks(self.program))
        self.taped = {k: self.inputs_of(b) for k, b in enumerate(blocks) if self.moves(b)}
        saved = {k: self.moving(b.end.saved) for k, b in enumerate(blocks) if isinstance(b.end, Enter)}
        self.saved = {k: values for k, values in saved.items() if values}
        size, self.places_on_tape = laid_out(self.taped)
        self.tape, self.written = stack_of(gang, size), self.f.slot(0)
        size, self.places_of_saved = laid_out(self.saved)
        self.returned, self.pending = stack_of(gang, size), self.f.slot(0)

    def moving(self, values: Sequence[Value]) -> list[Value]:
        return [v for v in values if v in self.found]

    def moves(self, block: Block) -> bool:
        """Does it set anything that moves, or push or pop it?"""
        held = [m.register for m in (*block.takes, *block.moves)] + [r for i in block.body for r in i.results]
        held += [*(block.restores or ()), *(block.end.saved if isinstance(block.end, Enter) else ())]
        return bool(self.moving(held))

    def inputs_of(self, block: Block) -> list[Value]:
        """What a block has from those before it."""
        return list(dict.fromkeys((*self.read(block), *(block.restores or ()))))

    # ---- forward

    def begun(self, number: int, env: Environment) -> None:
        if number not in self.taped:
            return
        f = self.f
        turn = f.get(self.written)
        self.tape.ensure(turn, lambda: self.leave(self.program.too_long(number)))
        self.tape.place(turn, 0, "int64", ()).write((), (self.w.constant(number, "int64"),))
        for v, place in zip(self.taped[number], self.places_on_tape[number], strict=True):
            self.tape.place(turn, place, *shape_of(v.type)).fill(env[v] if v in env else self.kept[v].get())
        f.set(self.written, f.add(turn, 1))

    def push(self, number: int, end: Enter, env: Environment) -> None:
        if number in self.saved:  # here there is a way out where no memory is left, and backward none
            self.returned.ensure(self.f.get(self.height), lambda: self.leave(self.program.too_deep(number)))
        super().push(number, end, env)

    # ---- backward

    def pull(self, cts: Sequence[Tensor | None]) -> list[tuple[int, Tensor]]:
        """The cotangents of the operands that move, by their numbers, from those of the results. A row that has failed
        has none."""
        f, w = self.f, self.w
        held = [v for v in self.found if v in self.kept or v in self.inputs]
        self.held = {v: TensorVariable(w, *shape_of(v.type)) for v in held if v not in self.code.totals.memory}
        for v in self.held.values():
            v.set(zeros(w, v.dtype, v.shape))
        fine = f.let(f"icmp eq i64 {f.get(self.status)}, 0")
        with f.when(fine):
            for result, ct in zip(self.program.results, cts, strict=False):
                if ct is not None and result in self.held:
                    self.add(result, ct)
            self.backward()
        return [(k, copied(w, self.held[v].get())) for k, v in enumerate(self.inputs) if v in self.held]

    def backward(self) -> None:
        f = self.f
        head, body, done, never = (f.name(stem) for stem in ("head", "backward", "done", "never"))
        labels = {number: f.name("back") for number in self.taped}
        f.block(head)
        left = f.get(self.written)
        f.branch(f.let(f"icmp eq i64 {left}, 0"), done, body)
        f.block(body, falls=False)
        turn = f.sub(left, 1)
        f.set(self.written, turn)
        (number,) = self.tape.place(turn, 0, "int64", ()).read(())
        table = " ".join(f"i64 {k}, label %{label}" for k, label in labels.items())
        f.do(f"switch i64 {number.text}, label %{never} [{table}]")
        for k, label in labels.items():
            f.block(label, falls=False)
            self.block_backward(k, self.program.blocks[k], turn)
            f.do(f"br label %{head}")
        f.block(never, falls=False)
        f.do("unreachable")
        f.block(done, falls=False)

    def block_backward(self, number: int, block: Block, turn: str) -> None:
        env: Environment = dict(self.captured)
        for v, place in zip(self.taped[number], self.places_on_tape[number], strict=True):
            env[v] = self.tape.place(turn, place, *shape_of(v.type)).final
        taken = [(m.register, self.cast(self.control.read(m.source, env), m.register)) for m in block.takes]
        env.update(taken)
        region = Region((), block.body, ())
        self.code.again(region, env)
        own = Cotangents(self.w, self.code.totals)
        for m, ct in [(m, self.take(m.register)) for m in block.moves]:
            self.hand_on(own, m.source, ct)
        if number in self.saved:
            for v, ct in zip(self.saved[number], self.popped(number), strict=True):
                own.add(v, ct)
        for r in (r for i in block.body for r in i.results):
            self.hand_on(own, r, self.take(r))
        self.code.pull(region, env, own, None)
        of_taken = [(m.source, self.take(m.register), own.take(m.register)) for m in block.takes]
        for source, *each in of_taken:
            for ct in each:
                self.hand_on(own, source, ct)
        before = None if block.restores is None else self.call_before(number)
        if before in self.saved:
            assert before is not None
            self.pushed(before, [[self.take(v), own.take(v)] for v in self.saved[before]])
        for v in list(own.held):
            if v in self.held:
                self.add(v, own.of(v))

    def hand_on(self, own: Cotangents, source: Operand, ct: Tensor | None) -> None:
        """What a register had is that of the value that it was set to."""
        if ct is None or not is_moving(source, self.found):
            return
        assert isinstance(source, Value)
        if shape_of(source.type) != (ct.dtype, ct.shape):
            raise RefusedError("the derivative of a recursion whose results differ in type")
        own.add(source, ct)

    def take(self, v: Value) -> Tensor | None:
        """The cotangent of a register, which is zero from here on: before this it was another value."""
        if v not in self.held or v not in self.kept:
            return None
        held = self.held[v]
        found = copied(self.w, held.get())
        held.set(zeros(self.w, held.dtype, held.shape))
        return found

    def add(self, v: Value, ct: Tensor) -> None:
        accumulate(self.held[v], ct)

    def pushed(self, call: int, cts: Sequence[Sequence[Tensor | None]]) -> None:
        f, values = self.f, zip(self.saved[call], self.places_of_saved[call], cts, strict=True)
        height = f.get(self.pending)
        for v, place, each in values:
            total = zeros(self.w, *shape_of(v.type))
            for ct in each:
                total = total if ct is None else summed(self.w, total, ct)
            self.returned.place(height, place, *shape_of(v.type)).fill(total)
        f.set(self.pending, f.add(height, 1))

    def popped(self, call: int) -> list[Tensor]:
        f = self.f
        height = f.sub(f.get(self.pending), 1)
        f.set(self.pending, height)
        values = zip(self.saved[call], self.places_of_saved[call], strict=True)
        return [copied(self.w, self.returned.place(height, place, *shape_of(v.type)).tensor) for v, place in values]


def moving_in(program: BlockProgram, by: Sequence[Value]) -> frozenset[Value]:
    """The values of a program that move where those of `by` do."""
    found, before = frozenset(by), -1
    while before != len(found):
        before = len(found)
        for block in program.blocks:
            for m in block.takes:
                found |= {m.register} if is_moving(m.source, found) else set()
            found |= moving(Region((), block.body, ()), found)
            for m in block.moves:
                found |= {m.register} if is_moving(m.source, found) else set()
    return found


MANY = 1024
"""Turns of a counted loop up to which all states are kept."""


Told = Callable[[Sequence[Tensor]], None]
"""Is told the results of a region."""


def pulled_back(
    gang: Gang,
    rule: DerivativeRule,
    xs: Sequence[Tensor],
    told: Told = lambda results: None,
    totals: Sequence[MemoryTensor | None] = (),
) -> list[Tensor | None]:
    """The cotangents of the operands `rule.wrt` of a masked operation. `xs`: the operands that are no numbers, then the
    cotangents of its results; `told`: who wants to know those; `totals`: where one row after another
    adds cotangents up, for which None is returned."""
    w, region = gang.w, rule.op["region"]
    rest = iter(xs)
    operands = [
        next(rest) if number is None else constant(w, number, *shape_of(t))
        for number, t in zip(rule.numbers, rule.operands, strict=True)
    ]
    given = [next(rest) if has else None for has in rule.cotangents]
    return _pulled(gang, region, operands, given, rule.wrt, gang.mask, may_have_failed(rule.op), told, totals)


def inner_gradient(gang: Gang, op: Op, xs: Sequence[Tensor], mask: LaneValue | None) -> list[Tensor]:
    """The results of an operation `gradient_of` in the lanes of a mask."""
    w, region = gang.w, op["region"]
    one = constant(w, 1.0, *shape_of(region.results[0].type))
    found = _pulled(gang, region, xs, [one], op["wrt"], mask, cut=False)
    return [kept(w, x) for x in found if x is not None]


def _pulled(
    gang: Gang,
    region: Region,
    operands: Sequence[Tensor],
    cotangents: Sequence[Tensor | None],
    wrt: Sequence[int],
    mask: LaneValue | None,
    cut: bool,
    told: Told = lambda results: None,
    totals: Sequence[MemoryTensor | None] = (),
) -> list[Tensor | None]:
    """The cotangents of the arguments `wrt` of a region from those of its results. `cut`: there may be rows that have
    failed, of which nothing comes: where all cotangents of the results are zero those of the arguments are, even where
    a derivative in between is not finite."""
    unused = unused_results(region, (x for x in region.args if is_number(x.type)))
    into = Totals(gang.w, {region.args[k]: m for k, m in zip(wrt, totals, strict=False) if m is not None})
    code = _RegionReverse(gang, moving(region, [region.args[k] for k in wrt]), unused, into)
    env: Environment = {}
    with code.recording(True):
        told(code.region(region, operands, env, mask))
    idle = code.idle([ct for ct in cotangents if ct is not None]) if cut else None
    if idle is not None:
        into.mask = gang.w.negated(idle)
    total = code.cotangents()
    for result, ct in zip(region.results, cotangents, strict=True):
        if ct is not None:
            total.add(result, code.inside(mask, ct))
    code.pull(region, env, total, mask)
    found = [None if region.args[k] in into.memory else total.of(region.args[k]) for k in wrt]
    if idle is None:
        return found
    return [None if x is None else select(gang.w, idle, zeros(gang.w, x.dtype, x.shape), x) for x in found]


class _RegionReverse(RegionWriter):
    """Runs regions forward and backward. `found`: the values that move; `unused`: those with no contribution from lanes
    where their cotangents are zero and their result is not finite."""

    def __init__(self, gang: Gang, found: frozenset[Value], unused: frozenset[Value], totals: Totals) -> None:
        super().__init__(gang.w, gang.constant, partial(inner_gradient, gang))
        self.gang, self.found, self.unused, self.totals = gang, found, unused, totals
        self.records = False
        self.chains: dict[Value, Chain] = {}
        self.owned: dict[int, list[Chain]] = {}
        """Of the loops that begin them, by identity, as are the instructions that change or read their arrays."""
        self.changes: dict[int, Chain] = {}
        self.marks: dict[int, list[tuple[Chain, str]]] = {}
        """Of branches: how much had been written before them."""
        self.tapes: dict[int, LoopTape] = {}
        self.machines: dict[int, TapedMachine] = {}
        self.inner: dict[int, Environment] = {}

    def cotangents(self) -> Cotangents:
        return Cotangents(self.w, self.totals)

    @contextmanager
    def recording(self, records: bool) -> Iterator[None]:
        """Are the loops that are run now to be run backward next?"""
        before, self.records = self.records, records
        try:
            yield
        finally:
            self.records = before

    def inside(self, mask: LaneValue | None, x: Tensor) -> Tensor:
        """Zeros outside of a mask."""
        return x if mask is None else select(self.w, mask, x, zeros(self.w, x.dtype, x.shape))

    # ---- forward

    def instruction(self, instruction: Instruction, env: Environment, mask: LaneValue | None) -> list[Tensor]:
        is_inner = isinstance(instruction, Apply) and instruction.op.name == "gradient_of"
        if is_inner and not self.found.isdisjoint(instruction.results):
            raise RefusedError("the derivative of a derivative")
        if isinstance(instruction, Apply) and instruction.op.name == "masked":
            inner: Environment = {}
            self.inner[id(instruction)] = inner
            args = [kept(self.w, self.read(x, env)) for x in instruction.operands]
            for x, arg in zip(instruction.operands, instruction.op["region"].args, strict=True):
                self.totals.alias(x, arg)
            return list(map(apart, self.region(instruction.op["region"], args, inner, mask)))
        if isinstance(instruction, Apply) and instruction.op.name == "blocks":
            return self.recursion(instruction, [kept(self.w, self.read(x, env)) for x in instruction.operands])
        return super().instruction(instruction, env, mask)

    # ---- arrays that loops change where they lie

    def begin(self, loop: While | For) -> None:
        """Give one memory to each array that a loop changes here and there, unless one around it has done so."""
        self.end(loop)
        if self.w.width > 1 or self.gang.warp is not None or self.w.f.interrupts is None:
            return
        for k, (x, a) in enumerate(zip(loop.init, args_of(loop), strict=True)):
            versions = None if x in self.chains or a in self.chains else versions_of(loop, k)
            if versions is None or not isinstance(a.type, Array):
                continue
            chain = Chain(self.gang, versions, a.type, self.records, a in self.found)
            self.owned.setdefault(id(loop), []).append(chain)
            self.chains.update(dict.fromkeys(versions.values, chain))
            self.changes.update((id(i), chain) for i in (*versions.writes, *versions.reads))
            if chain.total is not None:
                self.totals.memory.update(dict.fromkeys(versions.values, chain.total))

    def end(self, loop: While | For) -> None:
        for chain in self.owned.pop(id(loop), ()):
            for v in chain.versions.values:
                self.chains.pop(v, None)
                self.totals.memory.pop(v, None)
            for i in (*chain.versions.writes, *chain.versions.reads):
                self.changes.pop(id(i), None)

    def used(self, inside: Sequence[Region], loop: While | For | None = None) -> list[Chain]:
        """Of such arrays with a log those that regions read, or that a loop carries."""
        if not self.chains:
            return []
        values = [v for r in inside for v in free_values(r)] + list(args_of(loop) if loop else ())
        found = (self.chains[v] for v in values if v in self.chains)
        return [c for c in dict.fromkeys(found) if c.logs]

    def apply(self, i: Apply, env: Environment, uses: dict[Value, int], arrays: Sequence[Any] = ()) -> None:
        super().apply(i, env, uses, arrays)
        if id(i) in self.changes and i.op.name in PLACES_READ and i.results[0] in env:
            env[i.results[0]] = copied(self.w, env[i.results[0]])  # before the next change

    def operands(self, i: Apply, env: Environment, arrays: Sequence[Any]) -> list[Tensor]:
        found, chain = super().operands(i, env, arrays), self.changes.get(id(i))
        if chain is not None and i.op.name in PLACES_WRITTEN:
            found[0] = replace(found[0], given=ChangeInPlace(self.mask, chain.note if chain.logs else None))
        return found

    @contextmanager
    def in_place(self, branch: If, env: Environment) -> Iterator[Mapping[int, InPlace]]:
        yield {
            k: InPlace(r, TensorVariable(self.w, *shape_of(r.type), memory=self.chains[r].memory))
            for k, r in enumerate(branch.results)
            if r in self.chains
        }

    def taken(self, loop: While | For, number: int, x: Tensor, mask: LaneValue | None) -> MemoryTensor | None:
        return self.memory_of(args_of(loop)[number])

    def memory_of(self, v: Value) -> MemoryTensor | None:
        """The memory of all versions of an array, of which a value is one."""
        return self.chains[v].memory if v in self.chains else None

    def recursion(self, i: Apply, xs: Sequence[Tensor]) -> list[Tensor]:
        if not self.records:
            return run_program(self.gang, i.op, xs, self.derivatives)
        wrt = [is_moving(x, self.found) for x in i.operands]
        code = partial(_RegionReverse, self.gang, totals=self.totals)
        machine = TapedMachine(self.gang, i.op, self.derivatives, wrt, code)
        for x, v in zip(i.operands, machine.inputs, strict=True):
            if v not in machine.kept:  # else it is a register, which may change
                self.totals.alias(x, v)
        self.machines[id(i)] = machine
        return machine.run(xs)

    def again(self, region: Region, env: Environment) -> None:
        """Run a region of straight code forward, to be run backward next: a quotient's derivative reads it."""
        read = tuple(r for i in region.body if isinstance(i, Apply) and _is_quotient(i) for r in i.results)
        with self.recording(True):
            self.region(replace(region, results=read), (), env, None)

    def unread(self, loop: While) -> list[bool]:
        """Derivatives read what the function itself does not."""
        return [False] * len(loop.results)

    def branch(self, branch: If, env: Environment, mask: LaneValue | None) -> list[Tensor]:
        if self.records:
            f = self.w.f
            self.marks[id(branch)] = [(c, f.slot(0)) for c in self.used((branch.then, branch.orelse))]
            for chain, slot in self.marks[id(branch)]:
                f.set(slot, chain.mark())
        with self.recording(False):
            return super().branch(branch, env, mask)

    def out(self, loop: While | For, carried: Sequence[TensorVariable]) -> list[Tensor]:
        pairs = zip(loop.results, carried, strict=True)
        return [v.get() if r in self.chains else copied(self.w, v.own.get()) for r, v in pairs]

    def conditional(self, loop: While, env: Environment, mask: LaneValue | None) -> list[Tensor]:
        self.begin(loop)
        if not self.records:
            found = super().conditional(loop, env, mask)
            self.end(loop)
            return found
        f, course = self.w.f, self.course(loop, env)
        alike = course if isinstance(course, Carried) else NOTHING
        carried = self.started(loop, env, alike=alike)
        limit = limit_of(loop)
        tape = self.tape(loop, carried, alike, NO_LIMIT if limit is None else limit.turns)
        goes_on = self.w.slot("bool")
        goes_on.set(mask or self.w.constant(True, "bool"))
        with (
            self.recording(False),
            self.sharing(alike.inside),
            f.whilst(lambda: self.more(loop, carried, env, goes_on.get(), goes_on, f.get(tape.turns))),
        ):
            turn = f.get(tape.turns)
            tape.put(turn, [*(v.get() for v in carried), *self.of_lanes(goes_on.get())])
            self.turn(loop.body, [v.get() for v in carried], carried, env, self.lanes(goes_on))
            f.set(tape.turns, f.add(turn, 1))
        return self.ended(loop, carried, goes_on)

    def of_lanes(self, mask: LaneValue) -> list[Tensor]:
        """What a tape keeps of the lanes that take a turn, behind what the loop carries."""
        return [] if self.w.width == 1 else [scalar(mask)]

    def counted(self, loop: For, env: Environment, mask: LaneValue | None) -> list[Tensor]:
        self.begin(loop)
        if not self.records:
            found = super().counted(loop, env, mask)
            self.end(loop)
            return found
        f, alike = self.w.f, self.alike_in(loop, env)
        carried = self.started(loop, env, alike=alike)
        count = turns(loop)
        states = count if count <= MANY else math.isqrt(count - 1) + 1
        tape = self.tape(loop, carried, alike, Allowed(count, max(states, 2)))
        with self.recording(False), counted_turns(self.w, loop, vectors=False) as turn, self.sharing(alike.inside):
            tape.put(turn, [v.get() for v in carried])
            args = [self.index(loop, turn), *(v.get() for v in carried)]
            set_all(self.w, carried, self.of_turn(carried, self.region(loop.body, args, dict(env), mask), mask))
            f.set(tape.turns, f.add(turn, 1))
        return self.out(loop, carried)

    def tape(self, loop: While | For, carried: Sequence[TensorVariable], alike: Carried, allowed: Allowed) -> LoopTape:
        """Where the states of a loop are kept; of one whose lanes leave it one by one also which are in it."""
        side = self.w.width * self.gang.threads
        found = LoopTape(self.w, self.w.f.slot(0), allowed, self.gang.threads, alike)
        count = allowed.states * allowed.levels
        mask = [("bool", (), None)] if isinstance(loop, While) and self.w.width > 1 else []
        of = zip(carried, args_of(loop), strict=True)
        for kind, shape, memory in (*((v.dtype, v.shape, self.memory_of(a)) for v, a in of), *mask):
            if memory is not None:
                found.memory.append(memory)
                continue
            dtype = word(kind)
            many = math.prod(shape) * words(kind)
            base = self.gang.memory(dtype, many * count)
            found.memory.append((base, kind, shape, many * BYTES[stored(dtype)] * side))
        found.marks += [(chain, self.gang.memory("int64", count)) for chain in self.used(regions(loop), loop)]
        self.tapes[id(loop)] = found
        return found

    # ---- backward

    def pull(self, region: Region, env: Environment, total: Cotangents, mask: LaneValue | None) -> None:
        """From the cotangents of what a region makes to those of what it reads. `env`: what its forward run left."""
        for i in reversed(region.body):
            cts = [total.take(r) if r in self.found else None for r in i.results]
            if all(ct is None for ct in cts) and not any(r in self.totals.memory for r in i.results):
                continue
            match i:
                case Apply(op=op) if op.name == "masked":
                    inner: Region = op["region"]
                    for x, ct in zip(inner.results, cts, strict=True):
                        if ct is not None:
                            total.add(x, ct)
                    self.pull(inner, self.inner[id(i)], total, mask)
                    for x, arg in zip(i.operands, inner.args, strict=True):
                        ct = total.take(arg)
                        if ct is not None:
                            total.add(x, ct)
                case Apply(op=op) if op.name == "blocks":
                    for k, ct in self.machines[id(i)].pull(cts):
                        total.add(i.operands[k], ct)
                case Apply():
                    there = [ct for ct in cts if ct is not None]
                    is_cut = bool(there) and not self.unused.isdisjoint(i.results)
                    for x, found in self.pull_leaf(i, env, cts):
                        total.add(x, self.without_unused(op, found, there) if is_cut else found)
                case If():
                    self.pull_branch(i, env, cts, total, mask)
                case While() | For():
                    self.pull_loop(i, env, cts, total, mask)
                case _:
                    raise AssertionError("no calls and no lists in a masked region")

    def pull_leaf(self, i: Apply, env: Environment, cts: Sequence[Tensor | None]) -> Iterable[tuple[Operand, Tensor]]:
        """What an operation contributes to the cotangents of its operands."""
        if _is_quotient(i):
            return self.pull_quotient(i, env, cts)
        if i.results[0] in self.totals.memory:
            new, others = i.operands[PLACES_WRITTEN[i.op.name].new], [self.read(x, env) for x in i.operands[1:]]
            written = self.changes[id(i)].pull(i, others)
            return [(new, written)] if is_moving(new, self.found) else []
        if self.totals.reads(i):
            assert cts[0] is not None
            self.totals.add_read(i, [self.read(x, env) for x in i.operands[1:]], cts[0])
            return []
        wrt = [k for k, x in enumerate(i.operands) if is_moving(x, self.found)]
        numbers = [x.value if isinstance(x, Literal) else None for x in i.operands]
        operands = [x.type for x in i.operands if isinstance(x.type, Array)]
        results = [r.type for r in i.results if isinstance(r.type, Array)]
        has = tuple(ct is not None for ct in cts)
        rule = DerivativeRule(i.op, tuple(operands), tuple(numbers), tuple(results), has, tuple(wrt))
        given = [self.read(x, env) for x, number in zip(i.operands, numbers, strict=True) if number is None]
        there = [ct for ct in cts if ct is not None]
        found = self.expansion(_equations(rule), [*given, *there])
        return zip([i.operands[k] for k in wrt], found, strict=True)

    def pull_quotient(
        self, i: Apply, env: Environment, cts: Sequence[Tensor | None]
    ) -> Iterator[tuple[Operand, Tensor]]:
        """Of z = x / y: g / y for x, and -(g / y) z for y. (JAX has x y^-2 g; the power takes longer than the rest.)"""
        w, (x, y) = self.w, i.operands
        (g,), by, z = cts, self.read(y, env), self.read(i.results[0], env)
        assert g is not None
        of, dtype, shape = g, z.dtype, z.shape
        first = kept(w, Tensor(dtype, shape, lambda k: (w.instruction("fdiv", of.one(k), by.one(k)),)))
        if is_moving(x, self.found):
            yield x, first
        if is_moving(y, self.found):
            second = Tensor(dtype, shape, lambda k: (w.product(w.opposite(first.one(k)), z.one(k)),))
            yield y, kept(w, second)

    def without_unused(self, op: Op, x: Tensor, cts: Sequence[Tensor]) -> Tensor:
        """The contribution of an operation whose results may not be used: zero where their cotangents are, number by
        number where they have one shape. Of an operation that may not work number by number (what was sorted is at
        another place) what is finite stays."""
        w, zero = self.w, zeros(self.w, x.dtype, x.shape)
        if any(ct.shape != x.shape for ct in cts):
            return select(w, self.idle(cts), zero, x)
        x = kept(w, x)

        by_number = op.name in BY_NUMBER | INFINITE

        def at(index: Indices) -> Element:
            idle = _all_zero(w, cts, index)
            if not by_number:
                idle = w.both(idle, w.negated(_is_finite(w, x.at(index))))
            return tuple(w.select(idle, none, each) for none, each in zip(zero.at(index), x.at(index), strict=True))

        return Tensor(x.dtype, x.shape, at)

    def idle(self, cts: Sequence[Tensor]) -> LaneValue:
        """The lanes in which all cotangents are zero."""
        w = self.w
        found: LaneValue = w.constant(True, "bool")
        for ct in cts:
            found = w.both(found, all_of(w, "and", "bool", ct.shape, partial(_all_zero, w, [ct])))
        return found

    def captured(self, inside: Sequence[Region], env: Environment) -> list[Value]:
        """What regions read from outside that moves."""
        read = dict.fromkeys(v for r in inside for v in free_values(r))
        return [x for x in read if x in env and x in self.found and x not in self.totals.memory]

    def pull_branch(
        self, branch: If, env: Environment, cts: Sequence[Tensor | None], total: Cotangents, mask: LaneValue | None
    ) -> None:
        arms = (branch.then, branch.orelse)
        self.hold(arms, env)
        for chain, slot in self.marks[id(branch)]:
            chain.undo(self.w.f.get(slot))
        read = self.captured(arms, env)
        sums = self.variables(read)
        for v in sums:
            v.set(zeros(self.w, v.dtype, v.shape))
        condition = self.read(branch.condition, env).one()
        jumps = condition.shared or self.w.width == 1

        def arm(region: Region, inside: LaneValue | None) -> None:
            own = self.cotangents()
            below = dict(env)
            with self.recording(True):
                self.region(region, (), below, inside)
            for x, ct in zip(region.results, cts, strict=True):
                if ct is not None and is_moving(x, self.found):
                    own.add(x, self.inside(inside, ct))
            self.pull(region, below, own, inside)
            for v, x in zip(sums, read, strict=True):
                if x in own.held:
                    accumulate(v, self.inside(inside, own.of(x)))

        if jumps:
            with self.w.f.when(condition.text) as otherwise:
                arm(branch.then, mask)
                otherwise()
                arm(branch.orelse, mask)
        else:
            for region, test in ((branch.then, condition), (branch.orelse, self.w.negated(condition))):
                inside = self.w.both(mask, test)
                with self.w.f.when(self.w.any(inside)):
                    arm(region, inside)
        for x, v in zip(read, sums, strict=True):
            total.add(x, copied(self.w, v.get()))

    def pull_loop(
        self,
        loop: While | For,
        env: Environment,
        cts: Sequence[Tensor | None],
        total: Cotangents,
        mask: LaneValue | None,
    ) -> None:
        f, body, tape = self.w.f, loop.body, self.tapes[id(loop)]
        self.hold([body, *([loop.condition] if isinstance(loop, While) else [])], env)
        args = args_of(loop)
        moves = [k for k, x in enumerate(args) if x in self.found and x not in self.totals.memory]
        begun = [(k, c) for c in self.owned.get(id(loop), ()) for k, x in enumerate(args) if self.chains.get(x) is c]
        totals = [(k, c.total) for k, c in begun if c.total is not None]
        for k, whole in totals:
            whole.fill(cts[k] or zeros(self.w, whole.dtype, whole.shape))
        read = self.captured([body], env)
        states, sums = self.variables([args[k] for k in moves]), self.variables(read)
        for v, k in zip(states, moves, strict=True):
            ct = cts[k]
            v.set(zeros(self.w, v.dtype, v.shape) if ct is None else ct)
        for v in sums:
            v.set(zeros(self.w, v.dtype, v.shape))
        left = f.slot(0)
        f.set(left, f.get(tape.turns))
        with f.whilst(lambda: f.let(f"icmp ne i64 {f.get(left)}, 0")):
            turn = f.sub(f.get(left), 1)
            f.set(left, turn)
            self.restore(loop, env, tape, turn, mask)
            tape.undo(turn)
            state, active = self.state(tape, turn, len(args), mask)
            below, own = dict(env), self.cotangents()
            index = [self.index(loop, turn)] if isinstance(loop, For) else []
            with self.recording(True), self.sharing(tape.alike.inside):
                self.region(body, [*index, *state], below, active)
            for v, k in zip(states, moves, strict=True):
                if is_moving(body.results[k], self.found):
                    own.add(body.results[k], self.inside(active, v.get()))
            self.pull(body, below, own, active)
            new = [own.of(args[k]) for k in moves]
            if active is not None:
                new = [select(self.w, active, x, v.get()) for x, v in zip(new, states, strict=True)]
            for v, x in zip(sums, read, strict=True):  # before the states change, which these may read
                if x in own.held:
                    accumulate(v, self.inside(active, own.of(x)))
            set_all(self.w, states, new)
        for v, k in zip(states, moves, strict=True):
            total.add(loop.init[k], copied(self.w, v.get()))
        for x, v in zip(read, sums, strict=True):
            total.add(x, copied(self.w, v.get()))
        self.end(loop)
        for k, whole in totals:
            total.add(loop.init[k], copied(self.w, whole.tensor))

    def state(
        self, tape: LoopTape, turn: str, count: int, mask: LaneValue | None
    ) -> tuple[list[Tensor], LaneValue | None]:
        """What a loop carried before a turn, and the lanes that took it."""
        found = tape.get(turn)
        state = [self.single(x, None) if k in tape.alike.numbers else x for k, x in enumerate(found[:count])]
        return state, found[count].one() if len(found) > count else mask

    def restore(self, loop: While | For, env: Environment, tape: LoopTape, turn: str, mask: LaneValue | None) -> None:
        """See to it that the state before a turn is on the tape: where it was overwritten, turns run again."""
        f = self.w.f
        first: Any = turn
        for level in range(1, tape.allowed.levels):
            unit = tape.allowed.states**level
            behind = f.add(turn, 1)
            last = f.let(f"icmp eq i64 {f.let(f'urem i64 {behind}, {unit}')}, 0")
            first = f.let(f"select i1 {last}, i64 {f.sub(behind, unit)}, i64 {first}")
        if tape.allowed.levels == 1:
            return
        at = f.slot(0)
        f.set(at, first)
        args, alike = args_of(loop), tape.alike.numbers
        carried = [TensorVariable(self.w, *shape_of(a.type), k in alike, self.memory_of(a)) for k, a in enumerate(args)]
        goes_on = self.w.slot("bool")
        with (
            f.when(f.let(f"icmp ult i64 {first}, {turn}")),
            self.recording(False),
            self.sharing(tape.alike.inside),
        ):
            tape.undo(first)
            state, active = self.state(tape, first, len(args), mask)
            set_all(self.w, carried, state)
            goes_on.set(active or self.w.constant(True, "bool"))
            with f.whilst(lambda: f.let(f"icmp ult i64 {f.get(at)}, {turn}")):
                here = f.get(at)
                index = [self.index(loop, here)] if isinstance(loop, For) else []
                whole = self.lanes(goes_on) if isinstance(loop, While) else mask
                self.turn(loop.body, [*index, *(v.get() for v in carried)], carried, env, whole)
                f.set(at, f.add(here, 1))
                if isinstance(loop, While) and self.w.width > 1:
                    self.more(loop, carried, env, goes_on.get(), goes_on, f.get(at))
                    tape.put(f.get(at), [*(v.get() for v in carried), scalar(goes_on.get())])
                else:
                    tape.put(f.get(at), [v.get() for v in carried])


def _is_finite(w: LaneWriter, parts: Element) -> LaneValue:
    found: LaneValue = w.constant(True, "bool")
    for part in parts:
        x = convert(w, part, "float32") if part.dtype in HALVES else part
        found = w.both(found, OPERATIONS["is_finite"](w, Op("is_finite"), x))
    return found


def _all_zero(w: LaneWriter, cts: Sequence[Tensor], index: Indices) -> LaneValue:
    """The lanes in which these cotangents are zero at a place."""
    zero: LaneValue | None = None
    for part in (each for ct in cts for each in ct.at(index)):
        x = convert(w, part, "float32") if part.dtype in HALVES else part
        zero = w.both(zero, w.instruction("fcmp oeq", x, w.constant(0.0, x.dtype), "bool"))
    assert zero is not None
    return zero


def _is_quotient(i: Apply) -> bool:
    """Is it one of floats of 32 or 64 bits, number by number?"""
    types = [x.type for x in (*i.operands, *i.results) if isinstance(x.type, Array)]
    floats = {shape_of(t)[0] for t in types} <= {"float32", "float64"}
    return i.op.name == "div" and floats and len({t.shape for t in types}) == 1


def _equations(rule: DerivativeRule) -> Equations:
    """The rule of an operation as equations: of its operands that are no numbers, and of cotangents."""
    try:
        return _known(rule, jax_compat.settings())
    except UnsupportedError as error:  # XLA's way says where
        raise RefusedError(str(error)) from error
    except TypeError as error:
        if "unhashable" not in str(error):
            raise
        return _traced(rule)


@lru_cache(maxsize=4096)
def _known(rule: DerivativeRule, settings: Hashable) -> Equations:
    """`settings`: the width of Python's numbers among them, which types do not tell."""
    return _traced(rule)


def _traced(rule: DerivativeRule) -> Equations:
    given = [t for t, number in zip(rule.operands, rule.numbers, strict=True) if number is None]
    cotangents = [jax_compat.cotangent_type(t) for t, has in zip(rule.results, rule.cotangents, strict=True) if has]
    return of_jaxpr(row_rule(rule, NOWHERE), [*given, *cotangents])
