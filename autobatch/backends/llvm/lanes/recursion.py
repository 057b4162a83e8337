"""A recursion for a gang of rows: its functions under masks; rows that they give up run alone, block by block.

    failed, results = call @first(mask, ...)            `activations.py`
    for lane in failed: results[lane] = call @row(...)   `blocks.py`, with a stack in memory that grows

A gang is given up where the native stack, or the one that its rows may have, is full, and where its lanes together run
as many blocks as a row may; a lane that fails a check is done. What such a row gives, or fails with and where, the
blocks say: the gang has only to find out that it might be something else. So nothing of that can be told from outside.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import assert_never

from autobatch.backends.llvm.lanes.analysis import last_calls, uniform_values, yielded
from autobatch.backends.llvm.lanes.blocks import run_program
from autobatch.backends.llvm.lanes.control import GUARDED, RegionWriter, cost, joined, melded
from autobatch.backends.llvm.lanes.ops import Environment, shape_of
from autobatch.backends.llvm.lanes.program import (
    AddressTable,
    Gang,
    handed,
    is_large,
    is_shared,
    of_lane,
    received,
    types_of,
)
from autobatch.backends.llvm.lanes.reverse import inner_gradient
from autobatch.backends.llvm.lanes.tensors import (
    Tensor,
    TensorVariable,
    apart,
    copied,
    fresh,
    kept,
    scalar,
    select,
    set_all,
    zeros,
)
from autobatch.backends.llvm.lanes.writer import ROOM, LaneValue, LaneWriter
from autobatch.backends.llvm.machine_code import RefusedError
from autobatch.backends.llvm.text import LlvmFunction
from autobatch.backends.llvm.text import LlvmFunction as Text
from autobatch.ir.core import (
    Apply,
    Call,
    For,
    Function,
    If,
    Instruction,
    Literal,
    Map,
    Operand,
    Region,
    Value,
    While,
    walk,
)
from autobatch.ir.leaf import BlockProgram
from autobatch.ir.ops import Op
from autobatch.ir.regions import free_values

# ---- masked regions
#
# Regions of a recursion under masks: straight code as blocks compute it, branches, loops; calls are `activations.py`.
#
#     m = mask & (x > 0)
#     if any(m): y = arm                 an arm that calls or loops runs only where a lane wants it
#     mask &= ~failed                    behind whatever checks, the lanes that have failed a check are gone
#
# What is computed between two instructions of control is computed as in a block: values that others read are rounded. A
# branch or a loop that all lanes share the test of is a jump, and what it yields stays one number. With one lane every
# branch is a jump, and a row that fails a check is given up.


LEFT, LIMIT, FAILED = 0, 8, 16
"""Where the state of a gang has the blocks that are left to it, the address that its stack must not go below, and the
mask of lanes that have failed."""


def bits(w: LaneWriter, mask: LaneValue) -> str:
    """A mask as an integer."""
    return w.f.let(f"bitcast {w.vector('i1')} {w.spread(mask).text} to i{w.width}")


def lanes_of(w: LaneWriter, bits: str) -> LaneValue:
    return w.between_blocks(LaneValue(w.f.let(f"bitcast i{w.width} {bits} to {w.vector('i1')}"), "bool"))


class Regions(ABC):
    """`uniform`: the values that all lanes share; `fails`: can a lane fail a check?"""

    def __init__(self, gang: Gang, uniform: frozenset[Value], fails: bool) -> None:
        self.gang, self.w, self.f, self.uniform, self.fails = gang, gang.w, gang.w.f, uniform, fails
        self.control = RegionWriter(gang.w, gang.constant, partial(inner_gradient, gang))
        self.given_up = self.f.name("given_up")

    @abstractmethod
    def called(self, call: Call, env: Environment, mask: LaneValue, room: str) -> list[Tensor]:
        """The results of a call. `room`: the entries that the stack has left behind it."""

    def give_up(self, condition: str) -> None:
        on = self.f.name("on")
        self.f.branch(condition, self.given_up, on)
        self.f.block(on, falls=False)

    def charge(self, blocks: int) -> None:
        """So many blocks are run, at most, by each lane."""
        f = self.f
        left = f.sub(f.load("i64", "%state", LEFT), blocks)
        f.do(f"store i64 {left}, ptr {f.at('%state', LEFT)}")
        self.give_up(f.let(f"icmp slt i64 {left}, 0"))

    def alive(self, mask: LaneValue) -> LaneValue:
        """The lanes of a mask that have not failed."""
        if not self.fails:
            return mask
        failed = lanes_of(self.w, self.f.load(f"i{self.w.width}", "%state", FAILED))
        return self.w.both(mask, self.w.negated(failed))

    # ---- regions

    def body(
        self, body: Sequence[Instruction], wanted: Sequence[Operand], env: Environment, mask: LaneValue
    ) -> LaneValue:
        """Runs instructions; `env` gets what the operands `wanted` and control read of it. The lanes that go on."""
        at = 0
        while at < len(body):
            end = at
            while end < len(body) and is_plain(body[end]):
                end += 1
            if end > at:
                self.straight(body[at:end], (*body[end:],), wanted, env, mask)
                at = end
                continue
            instruction = body[at]
            if isinstance(instruction, Apply):
                mask = self.check(instruction, env, mask)
            else:
                env.update(zip(instruction.results, self.instruction(instruction, env, mask), strict=True))
                mask = self.alive(mask) if may_fail(instruction) else mask
            at += 1
        return mask

    def straight(
        self,
        body: Sequence[Instruction],
        rest: tuple[Instruction, ...],
        wanted: Sequence[Operand],
        env: Environment,
        mask: LaneValue,
    ) -> None:
        """What one block computes."""
        made = {r for i in body for r in i.results}
        live = tuple(v for v in free_values(Region((), rest, tuple(wanted))) if v in made)
        found = self.control.once(Region((), tuple(body), live), (), env, mask)
        for v, x in zip(live, found, strict=True):
            env[v] = self.of(v, apart(kept(self.w, x)), mask)

    def of(self, v: Operand, x: Tensor, mask: LaneValue) -> Tensor:
        """A value: single numbers, where the lanes of a mask share them."""
        return self.control.single(x, mask) if v in self.uniform else x

    def instruction(self, i: Instruction, env: Environment, mask: LaneValue) -> list[Tensor]:
        match i:
            case Apply():
                raise AssertionError("a check")
            case If():
                return self.branch(i, env, mask)
            case For(count=count):
                if isinstance(count, Literal) or count in self.uniform:
                    return self.counted(i, env, mask)
                return self.uneven(i, env, mask)
            case While():
                return self.conditional(i, env, mask)
            case Call():
                return self.called(i, env, mask, self.f.sub("%room", 1))
            case Map():
                raise RefusedError("lists")
            case _:
                assert_never(i)

    def check(self, i: Apply, env: Environment, mask: LaneValue) -> LaneValue:
        """The lanes of a mask that pass. That one fails is behind a jump: else each check would wait for the memory
        that the one before has written."""
        f, w = self.f, self.w
        wrong = w.negated(self.control.read(i.operands[0], env).one())
        if w.width == 1:  # a row alone is given up as soon as it fails
            self.give_up(wrong.text)
            return mask
        bad, passed = w.spread(w.both(mask, wrong)), w.slot("bool")
        passed.set(mask)
        with f.when(wrong.text if wrong.shared else w.any(bad), rarely=True):
            place, of = f.at("%state", FAILED), f"i{w.width}"
            found = f.let(f"or {of} {f.let(f'load {of}, ptr {place}')}, {bits(w, bad)}")
            f.do(f"store {of} {found}, ptr {place}")
            passed.set(w.both(mask, w.negated(wrong)))
        return passed.get()

    # ---- branches

    def sides(self, condition: LaneValue, mask: LaneValue) -> tuple[LaneValue, LaneValue]:
        return self.w.both(mask, condition), self.w.both(mask, self.w.negated(condition))

    def is_guarded(self, region: Region) -> bool:
        """Does it run only where a lane wants it? A read of one row for all lanes may be of none that there is."""
        found = list(walk(region))
        reads = any(isinstance(i, Apply) and i.op.name == "take_row" for i in found)
        return reads or cost(region) >= GUARDED or not all(is_plain(i) or isinstance(i, If) for i in found)

    def branch(self, branch: If, env: Environment, mask: LaneValue) -> list[Tensor]:
        w = self.w
        condition = self.control.read(branch.condition, env).one()
        if condition.shared or w.width == 1:
            found = self.variables(branch.results)
            with self.f.when(condition.text) as otherwise:
                set_all(w, found, self.of_arm(branch.then, env, mask, branch.results))
                otherwise()
                set_all(w, found, self.of_arm(branch.orelse, env, mask, branch.results))
            return [copied(w, v.get()) for v in found]
        arms = zip((branch.then, branch.orelse), self.sides(condition, mask), strict=True)
        sides = [self.arm(region, env, inside, branch.results) for region, inside in arms]
        return joined(w, branch, condition, sides, self.uniform, lambda x: self.control.read(x, env))

    def of_arm(self, region: Region, env: Environment, inside: LaneValue, results: Sequence[Value]) -> list[Tensor]:
        found = self.region(region, (), env, inside)
        return [self.of(r, x, inside) for r, x in zip(results, found, strict=True)]

    def arm(self, region: Region, env: Environment, inside: LaneValue, results: Sequence[Value]) -> list[Tensor]:
        if not self.is_guarded(region):
            return self.of_arm(region, env, inside, results)
        found, inside = self.cleared(results, self.uniform), self.w.between_blocks(inside)
        with self.f.when(self.w.any(inside)):
            set_all(self.w, found, self.of_arm(region, env, inside, results))
        return [copied(self.w, v.get()) for v in found]

    def cleared(self, of: Sequence[Operand], shared: frozenset[Value] = frozenset()) -> list[TensorVariable]:
        found = [TensorVariable(self.w, *shape_of(x.type), isinstance(x, Value) and x in shared) for x in of]
        for v in found:
            v.set(zeros(self.w, v.dtype, v.shape))
        return found

    def variables(self, of: Sequence[Value]) -> list[TensorVariable]:
        return [TensorVariable(self.w, *shape_of(v.type), v in self.uniform) for v in of]

    def region(self, region: Region, args: Sequence[Tensor], env: Environment, mask: LaneValue) -> list[Tensor]:
        inner = {**env, **dict(zip(region.args, args, strict=True))}
        self.body(region.body, region.results, inner, mask)
        return [self.control.read(x, inner) for x in region.results]

    # ---- loops

    def conditional(self, loop: While, env: Environment, mask: LaneValue) -> list[Tensor]:
        w = self.w
        carried, goes_on = self.started(loop, env), w.slot("bool")
        goes_on.set(self.alive(mask))

        def more() -> str:
            self.charge(blocks_of(loop.condition) + blocks_of(loop.body))
            active = self.alive(goes_on.get())
            (test,) = self.region(loop.condition, [v.get() for v in carried], env, active)
            goes_on.set(w.both(self.alive(active), test.one()))
            return w.any(goes_on.get())

        with self.f.whilst(more):
            self.turn(loop.body, [v.get() for v in carried], carried, env, goes_on.get())
        return [copied(w, v.own.get()) for v in carried]

    def started(self, loop: While | For, env: Environment) -> list[TensorVariable]:
        """The variables that a loop carries. Lanes that share one in the loop, but not behind it, have left it one by
        one: then each keeps what it had."""
        args = loop.body.args[1:] if isinstance(loop, For) else loop.body.args
        carried = self.variables(args)
        set_all(self.w, carried, [self.control.read(x, env) for x in loop.init])
        for v, r in zip(carried, loop.results, strict=True):
            if v.shared and r not in self.uniform:
                v.kept_apart()
        return carried

    def turn(
        self,
        body: Region,
        args: Sequence[Tensor],
        carried: Sequence[TensorVariable],
        env: Environment,
        active: LaneValue,
    ) -> None:
        found = self.region(body, [copied(self.w, x) for x in args], env, active)
        for k, (x, v) in enumerate(zip(found, carried, strict=True)):
            if not v.shared:
                found[k] = select(self.w, active, x, v.get())
                continue
            found[k] = self.control.single(x, active)
            if v.left is not None:
                v.left.set(select(self.w, active, found[k], v.left.get()))
        set_all(self.w, carried, found)

    def counted(self, loop: For, env: Environment, mask: LaneValue) -> list[Tensor]:
        """All lanes have the same number of turns."""
        f, w = self.f, self.w
        carried = self.started(loop, env)
        if isinstance(loop.count, Literal) and isinstance(loop.count.value, int):
            count, charged = str(max(0, loop.count.value)), True
        else:
            held = w.cast("sext", self.control.read(loop.count, env).one(), "int64")
            count, charged = w.intrinsic("smax", held, w.constant(0, "int64")).text, False
        with f.loop(0, count, 1) as index:
            if not charged:
                self.charge(1 + blocks_of(loop.body))
            args = [self.index(loop, index), *(v.get() for v in carried)]
            alive = self.alive(mask)
            found = self.region(loop.body, [copied(w, x) for x in args], env, alive)
            set_all(w, carried, self.control.of_turn(carried, found, alive))
            f.ask()
        return [copied(w, v.own.get()) for v in carried]

    def uneven(self, loop: For, env: Environment, mask: LaneValue) -> list[Tensor]:
        """Each lane has its own number of turns."""
        f, w = self.f, self.w
        count = self.control.read(loop.count, env).one()
        carried = self.started(loop, env)
        turn, goes_on = f.slot(0), w.slot("bool")

        def more() -> str:
            self.charge(1 + blocks_of(loop.body))
            at = self.index(loop, f.get(turn)).one()
            goes_on.set(w.both(self.alive(mask), w.instruction("icmp slt", at, count, "bool")))
            return w.any(goes_on.get())

        with f.whilst(more):
            args = [self.index(loop, f.get(turn)), *(v.get() for v in carried)]
            self.turn(loop.body, args, carried, env, goes_on.get())
            f.set(turn, f.add(f.get(turn), 1))
        return [copied(w, v.own.get()) for v in carried]

    def index(self, loop: For, turn: str) -> Tensor:
        dtype, _ = shape_of(loop.body.args[0].type)
        whole = LaneValue(turn, "int64", True)
        return scalar(whole if dtype == "int64" else self.w.cast("trunc", whole, dtype))


def is_plain(i: Instruction) -> bool:
    """Does it compute numbers, and nothing else?"""
    return isinstance(i, Apply) and i.op.name != "check"


def may_fail(i: Instruction) -> bool:
    """May lanes fail in an instruction?"""
    inside = walk(Region((), (i,), ()))
    return any(isinstance(j, Call) or (isinstance(j, Apply) and not is_plain(j)) for j in inside)


def blocks_of(region: Region) -> int:
    """How many blocks a lane may run in a region, but for turns that are charged one by one."""
    found = 1
    for i in region.body:
        match i:
            case Apply():
                found += int(not is_plain(i))
            case If(then=then, orelse=orelse):
                found += 1 + max(blocks_of(then), blocks_of(orelse))
            case For(count=Literal(value=int() as count), body=body):
                found += 2 + max(0, count) * (1 + blocks_of(body))
            case For() | While():
                found += 2
            case Call():
                found += 1
            case Map():
                raise AssertionError("a loop by now")
            case _:
                assert_never(i)
    return found


# ---- activations
#
# The functions of a recursion for a gang: each is a function of machine code, which calls others under masks.
#
#     func @trace(%ray, %depth):                trace(mask, state, table, room, ray: vectors, depth: i32):
#       %hit = ...                                if room < 0 or the stack is full: give the gang up
#       %c = if %hit: ...            ->           m = mask & hit
#         %s = call @trace(...)                   if any(m): s = trace(m, ..., room - 1, ...); is the gang given up?
#                                                 return select(...)
#
# An arm runs if a lane wants it, so lanes that call meet again behind the call (ispc's model: Pharr and Mark, "ispc: A
# SPMD compiler for high-performance CPU programming", InPar 2012). A call that is the last thing its function does is a
# turn of a loop, as it is where blocks run. `room` counts the entries that the stack of each row would have left; the
# lanes of an activation have come through the same calls, so it is one number.


class RecursionFunctions:
    """The functions of one recursion, for the gangs of one function of machine code. `uniform`: the values that all
    lanes share; `fails`: can a check in them fail?"""

    def __init__(
        self, gang: Gang, functions: Sequence[Function], uniform: frozenset[Value], table: AddressTable
    ) -> None:
        self.gang, self.uniform, self.table = gang, uniform, table
        self.functions = {f.name: f for f in functions}
        first = len(gang.functions)
        self.names = {f.name: f"@activation{first + k}" for k, f in enumerate(functions)}
        checks = any(isinstance(i, Apply) and i.op.name == "check" for f in functions for i in walk(f.region))
        self.fails = checks and gang.w.width > 1

    def write(self) -> None:
        self.gang.functions += [_Activation(self, f).text() for f in self.functions.values()]

    # ---- what is passed on

    def parameters(self, name: str) -> list[tuple[Value, bool]]:
        """The parameters of a function, and which of them all lanes share."""
        return [(a, a in self.uniform) for a in self.functions[name].region.args]

    def result_type(self, name: str, w: LaneWriter) -> str:
        """Of a function: was it run to its end, and its results."""
        found = ["i1"]
        for x in self.functions[name].region.results:
            found += types_of(w, x.type, False)
        return f"{{ {', '.join(found)} }}"

    def call(
        self, w: LaneWriter, name: str, mask: LaneValue, room: str, xs: Sequence[Tensor], around: str
    ) -> tuple[str, list[Tensor]]:
        """An `i1`, whether the gang has not been given up, and the results. `around`: the state and the table."""
        of = self.result_type(name, w)
        arguments = [f"i{w.width} {bits(w, mask)}", around, f"i64 {room}"]
        for (a, shared), x in zip(self.parameters(name), xs, strict=True):
            arguments += handed(w, x, a.type, shared)
        made = w.f.let(f"call fastcc {of} {self.names[name]}({', '.join(arguments)})")
        fine = w.f.let(f"extractvalue {of} {made}, 0")
        at = 1
        results = []
        for result in self.functions[name].region.results:
            types = types_of(w, result.type, False)
            texts = [w.f.let(f"extractvalue {of} {made}, {at + k}") for k in range(len(types))]
            results.append(received(w, texts, result.type, False))
            at += len(types)
        return fine, results


class _Activation(Regions):
    """One function."""

    def __init__(self, all: RecursionFunctions, function: Function) -> None:
        self.all, self.function = all, function
        inner = Text("")
        inner.declarations, inner.metadata = all.gang.w.f.declarations, all.gang.w.f.metadata
        w = LaneWriter(inner, all.gang.w.width)
        super().__init__(all.gang.inside(w, all.table.frame(inner)), all.uniform, all.fails)
        self.around = "ptr %state, ptr %table"
        self.turns = bool(last_calls(function))

    # ---- the whole

    def text(self) -> str:
        f, w, region = self.f, self.w, self.function.region
        of = self.all.result_type(self.function.name, w)
        self.enter()
        parameters = [f"i{w.width} %mask", self.around, "i64 %room"]
        xs: list[Tensor] = []
        for k, (a, shared) in enumerate(self.all.parameters(self.function.name)):
            types = types_of(w, a.type, shared)
            names = [f"%p{k}.{n}" for n in range(len(types))]
            parameters += [f"{t} {n}" for t, n in zip(types, names, strict=True)]
            xs.append(received(w, names, a.type, shared))
        held: Environment = {v: self.all.table.captured(w, v) for v in free_values(region)}
        self.returns = self.cleared(region.results)
        self.run(held, xs, lanes_of(w, "%mask"))
        self.leave(of)
        self.all.gang.scratch = self.gang.scratch
        if w.width > 1 and w.reserved > ROOM:  # each call has it anew
            raise RefusedError(f"a call needs {w.reserved:,} bytes for its arrays, more than {ROOM:,}")
        self.all.gang.w.reserved = max(self.all.gang.w.reserved, w.reserved)
        for write in self.gang.behind:
            write()
        f.head = f"internal fastcc {of} {self.all.names[self.function.name]}({', '.join(parameters)}) nounwind"
        return str(f)

    def enter(self) -> None:
        """Is there room for this activation? Else the gang is given up."""
        f = self.f
        here = f.let(f"ptrtoint ptr {f.array_slot('i64', 1)} to i64")
        low = f.let(f"icmp ult i64 {here}, {f.load('i64', '%state', LIMIT)}")
        full = f.let("icmp slt i64 %room, 0")
        self.give_up(f.let(f"or i1 {low}, {full}"))

    def leave(self, of: str) -> None:
        f, w = self.f, self.w
        held = f.let(f"insertvalue {of} zeroinitializer, i1 true, 0")
        at = 1
        for x, v in zip(self.function.region.results, self.returns, strict=True):
            for argument in handed(w, v.get(), x.type, False):
                held = f.let(f"insertvalue {of} {held}, {argument}, {at}")
                at += 1
        f.do(f"ret {of} {held}")
        f.block(self.given_up, falls=False)
        f.do(f"ret {of} zeroinitializer")

    # ---- turns

    def run(self, held: Environment, xs: Sequence[Tensor], mask: LaneValue) -> None:
        """The body, again and again for lanes that call the function as the last thing they do."""
        region = self.function.region
        if not self.turns:
            self.charge(blocks_of(region))
            self.returning(region.body, region.results, {**held, **dict(zip(region.args, xs, strict=True))}, mask)
            return
        self.arguments = [TensorVariable(self.w, *shape_of(a.type), a in self.uniform) for a in region.args]
        set_all(self.w, self.arguments, xs)
        self.again = self.w.slot("bool")
        self.again.set(mask)
        with self.f.whilst(lambda: self.w.any(self.again.get())):
            self.charge(blocks_of(region))
            active = self.again.get()
            self.again.set(self.w.constant(False, "bool"))
            env = {**held, **{a: v.get() for a, v in zip(region.args, self.arguments, strict=True)}}
            env = {a: copied(self.w, x) for a, x in env.items()} if self.arguments else env
            self.returning(region.body, region.results, env, active)

    def returning(
        self, body: Sequence[Instruction], results: Sequence[Operand], env: Environment, mask: LaneValue
    ) -> None:
        """The end of a function: what its lanes return."""
        last = body[-1] if body else None
        name = self.function.name
        if isinstance(last, Call) and self.turns and last.callee == name and last.results == tuple(results):
            mask = self.body(body[:-1], last.operands, env, mask)
            self.turn_again(last, env, mask)
        elif isinstance(last, If):
            reads: tuple[Operand, ...] = (last.condition, *free_values(Region((), (last,), tuple(results))))
            mask = self.body(body[:-1], reads, env, mask)
            self.either(last, results, env, mask)
        elif isinstance(last, Call) and last.results == tuple(results):
            mask = self.body(body[:-1], last.operands, env, mask)
            self.returned(self.called(last, env, mask, "%room"), mask)
        else:
            mask = self.body(body, results, env, mask)
            self.returned([self.control.read(x, env) for x in results], mask)

    def turn_again(self, call: Call, env: Environment, mask: LaneValue) -> None:
        w = self.w
        new = [self.control.read(x, env) for x in call.operands]
        held = []
        for v, x, a in zip(self.arguments, new, self.function.region.args, strict=True):
            held.append(x if a in self.uniform or w.width == 1 else select(w, mask, x, v.get()))
        set_all(w, self.arguments, held)
        self.again.set(w.instruction("or", self.again.get(), mask))

    def either(self, branch: If, results: Sequence[Operand], env: Environment, mask: LaneValue) -> None:
        """A branch that is the last thing a function does."""
        condition = self.control.read(branch.condition, env).one()

        def arm(region: Region, inside: LaneValue) -> None:
            self.returning(region.body, yielded(branch, region, results), dict(env), inside)

        if condition.shared or self.w.width == 1:
            with self.f.when(condition.text) as otherwise:
                arm(branch.then, mask)
                otherwise()
                arm(branch.orelse, mask)
            return
        for region, inside in zip((branch.then, branch.orelse), self.sides(condition, mask), strict=True):
            if self.is_guarded(region):
                with self.f.when(self.w.any(inside)):
                    arm(region, inside)
            else:
                arm(region, inside)

    def returned(self, xs: Sequence[Tensor], mask: LaneValue) -> None:
        for v, x in zip(self.returns, xs, strict=True):
            v.set(kept(self.w, x if self.w.width == 1 else select(self.w, mask, x, v.get())))

    # ---- calls

    def called(self, call: Call, env: Environment, mask: LaneValue, room: str) -> list[Tensor]:
        if not self.fails:
            return self.calling(call, env, mask, room)
        found = self.cleared(call.results)
        with self.f.when(self.w.any(mask)):  # all of its lanes may have failed
            set_all(self.w, found, self.calling(call, env, mask, room))
        return [copied(self.w, v.get()) for v in found]

    def calling(self, call: Call, env: Environment, mask: LaneValue, room: str) -> list[Tensor]:
        xs = [self.control.read(x, env) for x in call.operands]
        fine, found = self.all.call(self.w, call.callee, mask, room, xs, self.around)
        self.give_up(self.f.let(f"xor i1 {fine}, true"))
        return found


STACK = 1 << 19
"""Bytes of the native stack that a gang may use: threads have some megabytes."""


def run_recursion(gang: Gang, op: Op, xs: Sequence[Tensor], mask: LaneValue | None) -> list[Tensor]:
    """The results of an operation `blocks` for the lanes of a mask, then their statuses."""
    large = any(is_large(x.type) for f in op["program"].structured for x in f.region.results)
    if gang.w.width == 1 and (gang.warp is not None or large):
        return run_program(gang, op, xs, partial(inner_gradient, gang))
    return _Recursion(gang, op, xs, mask).run()


class _Recursion:
    def __init__(self, gang: Gang, op: Op, xs: Sequence[Tensor], mask: LaneValue | None) -> None:
        self.gang, self.op, self.w, self.f = gang, op, gang.w, gang.w.f
        self.program: BlockProgram = op["program"]
        self.xs = [kept(self.w, x) for x in xs]
        self.mask = self.w.spread(self.w.constant(True, "bool")) if mask is None else mask
        functions = self.program.structured if gang.w.width == 1 else melded(self.program.structured)
        if any(is_large(x.type) for f in functions for x in f.region.results):
            raise RefusedError("a recursion of a gang that returns large arrays")
        inputs: tuple[Value, ...] = (*self.program.parameters, *self.program.captured)
        self.given = dict(zip(inputs, self.xs, strict=True))
        shared = frozenset(v for v, x in self.given.items() if is_shared(x))
        uniform = uniform_values(functions, shared)
        self.table = AddressTable(gang, self.given)
        self.all = RecursionFunctions(gang, functions, uniform, self.table)

    def run(self) -> list[Tensor]:
        f, w = self.f, self.w
        self.all.write()
        row = self.row()
        types = self.program.types
        found = [TensorVariable(w, *shape_of(t)) for t in types]
        table = self.table.filled(w)
        state = f.array_slot("i64", 3)
        f.do(f"store i64 {self.op['steps']}, ptr {f.at(state, LEFT)}")
        here = f.let(f"ptrtoint ptr {state} to i64")
        f.do(f"store i64 {f.sub(here, STACK)}, ptr {f.at(state, LIMIT)}")
        f.do(f"store i64 0, ptr {f.at(state, FAILED)}")
        first = self.program.structured[0]
        xs = [self.given[v] for v in self.program.parameters]
        around = f"ptr {state}, ptr {table}"
        mask = self.w.spread(self.mask)
        fine, results = self.all.call(w, first.name, mask, str(self.op["depth"]), xs, around)
        set_all(w, found, [*results, zeros(w, *shape_of(types[-1]))])
        failed = f.load(f"i{w.width}", state, FAILED)
        again = f.let(f"select i1 {fine}, i{w.width} {failed}, i{w.width} {bits(w, mask)}")
        with f.when(f.let(f"icmp ne i{w.width} {again}, 0")):
            self.run_again(row, table, again, found)
        return [copied(w, v.get()) for v in found]

    def run_again(self, row: str, table: str, again: str, found: Sequence[TensorVariable]) -> None:
        """Row after row for the lanes of a mask."""
        f, w = self.f, self.w
        places = []
        for v in found:
            memory = fresh(w, v.dtype, v.shape)
            memory.fill(v.get())
            places.append(memory)
        pointers = ", ".join(f"ptr {m.pointer}" for m in places)
        if w.width == 1:
            f.do(f"call void {row}(ptr {table}, i64 0, {pointers})")
        else:
            with f.loop(0, w.width, 1) as lane:
                shifted = f.let(f"lshr i{w.width} {again}, {f.let(f'trunc i64 {lane} to i{w.width}')}")
                with f.when(f.let(f"trunc i{w.width} {shifted} to i1")):
                    f.do(f"call void {row}(ptr {table}, i64 {lane}, {pointers})")
        set_all(w, found, [m.tensor for m in places])

    def row(self) -> str:
        """A function that runs one row by blocks."""
        name = f"@row{len(self.gang.functions)}"
        f = LlvmFunction("")
        f.declarations, f.metadata = self.f.declarations, self.f.metadata
        w = LaneWriter(f, 1)
        inner = self.gang.inside(w, self.table.frame(f))
        xs = [self.table.captured(w, v, "%lane") for v in self.given]
        found = run_program(inner, self.op, xs, partial(inner_gradient, inner))
        for k, (x, t) in enumerate(zip(found, self.program.types, strict=True)):
            of_lane(w, f"%r{k}", *shape_of(t), self.w.width, "%lane").fill(x)
        for write in inner.behind:
            write()
        f.do("ret void")
        pointers = ", ".join(f"ptr %r{k}" for k in range(len(found)))
        f.head = f"internal void {name}(ptr %table, i64 %lane, {pointers}) nounwind noinline cold"
        self.gang.functions.append(str(f))
        self.gang.scratch = max(self.gang.scratch, inner.scratch)
        return name
