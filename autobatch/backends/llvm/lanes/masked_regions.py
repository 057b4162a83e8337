"""Regions of a recursion under masks: straight code as blocks compute it, branches, loops; calls are `activations.py`.

    m = mask & (x > 0)
    if any(m): y = arm                 an arm that calls or loops runs only where a lane wants it
    mask &= ~failed                    behind whatever checks, the lanes that have failed a check are gone

What is computed between two instructions of control is computed as in a block: values that others read are rounded. A
branch or a loop that all lanes share the test of is a jump, and what it yields stays one number. With one lane every
branch is a jump, and a row that fails a check is given up.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import assert_never

from autobatch.backends.llvm.lanes.control import GUARDED, RegionWriter, cost, joined
from autobatch.backends.llvm.lanes.ops import Environment, shape_of
from autobatch.backends.llvm.lanes.program import Gang
from autobatch.backends.llvm.lanes.reverse import inner_gradient
from autobatch.backends.llvm.lanes.tensors import (
    Tensor,
    TensorVariable,
    apart,
    copied,
    kept,
    scalar,
    select,
    set_all,
    zeros,
)
from autobatch.backends.llvm.lanes.writer import LaneValue, LaneWriter
from autobatch.backends.llvm.machine_code import RefusedError
from autobatch.ir.core import (
    Apply,
    Call,
    For,
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
from autobatch.ir.rewrite import free_values

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
