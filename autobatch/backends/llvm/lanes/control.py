"""Branches and loops of one gang: what its lanes agree on is a jump, what they do not is a mask.

    m = mask & (x > 0)
    if any(m): y = arm              a gang whose lanes all skip an arm skips it
    y = select(x > 0, y, other)

    while any(active = mask & test(h)):
      h = select(active, body(h), h)

With one lane all of this is jumps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, NamedTuple, assert_never

from autobatch.backends.llvm.lanes.analysis import (
    CHANGING,
    NOTHING,
    Carried,
    Lifetimes,
    Likely,
    carried_alike,
    is_undefined,
    last_calls,
    one_of,
    origin_of,
    reads_of,
    values_read,
)
from autobatch.backends.llvm.lanes.ops import Environment, LeafOperations, shape_of
from autobatch.backends.llvm.lanes.program import is_shared
from autobatch.backends.llvm.lanes.tensors import (
    ChangeInPlace,
    MemoryTensor,
    Tensor,
    TensorVariable,
    apart,
    copied,
    every,
    in_registers,
    kept,
    registers,
    scalar,
    select,
    set_all,
    zeros,
)
from autobatch.backends.llvm.lanes.together import JointTurns, LaneWalk, Notes, course_of
from autobatch.backends.llvm.lanes.writer import FLOATS, LaneValue, LaneWriter, StackSlot
from autobatch.backends.llvm.machine_code import RefusedError
from autobatch.backends.llvm.text import TURNS
from autobatch.ir.core import (
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
    operands,
    regions,
    walk,
)
from autobatch.ir.ops import Op, own
from autobatch.ir.regions import Fresh, copy_instruction, copy_region, free_values, limit_of, substitute, with_regions

GUARDED = 10
"""Operations from which on an arm stands behind `any` of its mask."""


SLOW = ("sqrt", "rsqrt", "div")
"""Operations that the processor does one after another."""

NOTED = 40
"""The same of an arm behind which there is a jump on its mask anyway."""


Derivatives = Callable[[Op, Sequence[Tensor], LaneValue | None], list[Tensor]]
"""What an operation `gradient_of` gives, in the lanes of a mask."""


class InPlace(NamedTuple):
    """An array from outside of a branch that its arms change where it lies."""

    value: Value
    variable: TensorVariable


class RegionWriter(LeafOperations):
    """Runs regions. A mask of None means all lanes. `derivatives`: those that are taken inside of them. `lifetimes`:
    memory is used again, so nobody reads what an environment has when its region is done."""

    def __init__(
        self,
        w: LaneWriter,
        constants: Callable[[Any], Tensor],
        derivatives: Derivatives,
        lifetimes: Lifetimes | None = None,
    ) -> None:
        super().__init__(w, constants)
        self.derivatives, self.lifetimes = derivatives, lifetimes
        self.uses: dict[Value, int] = {}
        """How often the region that is written reads each value."""
        self.likely: Likely | None = None
        """What is written is the likely way of a turn."""
        self.notes: Notes = {}
        """Of which regions it is noted what they yield."""
        self.alike: frozenset[Value] = frozenset()
        """What the lanes of a mask share besides, by the loop that they are in."""
        self.walks = False
        """Do they walk together?"""

    def lowered(self, op: Op, xs: Sequence[Tensor], operands: Sequence[Type], results: Sequence[Type]) -> list[Tensor]:
        if op.name == "gradient_of":
            return self.derivatives(op, [kept(self.w, x) for x in xs], None)
        return super().lowered(op, xs, operands, results)

    def region(
        self,
        region: Region,
        args: Sequence[Tensor],
        env: Environment,
        mask: LaneValue | None,
        lasting: bool = False,
        given: Collection[Value] = (),
    ) -> list[Tensor]:
        """What a region yields. `env` gets what is computed in it. `lasting`: arguments are needed behind it; `given`:
        the arrays from outside that it may change where they lie."""
        env.update(zip(region.args, args, strict=True))
        uses, times, outer = reads(region), self.lifetimes, self.uses
        known = {} if self.likely is None else dict(self.likely.known)
        if times is not None:
            times.enter(region, args, lasting, given)
        for k, instruction in enumerate(region.body):
            if times is not None:
                times.scopes[-1].now = k
            self.uses = uses
            if isinstance(instruction, Apply) and instruction.op.name not in ("masked", "blocks", "gradient_of"):
                self.mask = mask
                if self.likely is None or not self.likely.takes(instruction, env, mask):
                    self.apply(instruction, env, uses)
            else:
                env.update(zip(instruction.results, self.instruction(instruction, env, mask), strict=True))
            if times is not None:
                self.reuse(times, instruction, env)
        self.uses = outer
        if self.likely is not None:
            self.likely.known = known
        found = [self.read(x, env) for x in region.results]
        self.note(region, env, mask)
        if times is not None:
            times.leave()
        return found

    def note(self, region: Region, env: Environment, mask: LaneValue | None) -> None:
        """Tell who wants to know what a region yields."""
        for xs, tell in self.notes.get(id(region), ()):
            assert mask is not None
            tell([self.read(x, env) for x in xs], mask)

    def reuse(self, times: Lifetimes, i: Instruction, env: Environment) -> None:
        """Behind an instruction: memory that nobody reads again is free. A single number is read at once: what is
        laid out behind it may change."""
        for r in i.results:
            if r in env and env[r].size == 1 and times.of(values_read(i)):
                x = env[r]
                env[r] = registers(self.w, x.dtype, x.shape, [x.at((0,) * len(x.shape))])
        times.results(i, {r: env[r] for r in i.results if r in env})
        for place in times.ended():
            self.w.release(place)

    def operands(self, i: Apply, env: Environment, arrays: Sequence[Any]) -> list[Tensor]:
        found, times = super().operands(i, env, arrays), self.lifetimes
        if times is None or i.op.name not in CHANGING or not times.scopes[-1].is_written(i):
            return found
        if times.may_change(found[0], i.operands[1:]):
            found[0] = replace(found[0], given=ChangeInPlace(self.mask))
        return found

    def instruction(self, instruction: Instruction, env: Environment, mask: LaneValue | None) -> list[Tensor]:
        match instruction:
            case Apply(op=op, operands=xs):
                if op.name == "blocks":
                    raise RefusedError("a program of blocks inside another operation")
                if op.name == "gradient_of":
                    return self.derivatives(op, [kept(self.w, self.read(x, env)) for x in xs], mask)
                args = [kept(self.w, self.read(x, env)) for x in xs]
                if self.lifetimes is not None:
                    for v, x in zip(op["region"].args, xs, strict=True):
                        self.lifetimes.set(v, self.lifetimes.of((x,)))
                wanted = [bool(self.uses.get(r)) for r in instruction.results]
                return self.wanted(op["region"], wanted, args, mask)
            case If():
                return self.branch(instruction, env, mask)
            case While():
                return self.conditional(instruction, env, mask)
            case For():
                return self.counted(instruction, env, mask)
            case Map() | Call():
                raise RefusedError("calls and lists")
            case _:
                assert_never(instruction)

    def wanted(
        self, region: Region, wanted: Sequence[bool], args: Sequence[Tensor], mask: LaneValue | None
    ) -> list[Tensor]:
        """The results of a region that are read; any numbers for the others, so that nothing in it keeps them."""
        kept_alone = tuple(x for x, is_read in zip(region.results, wanted, strict=True) if is_read)
        found = iter(map(apart, self.once(replace(region, results=kept_alone), args, {}, mask, lasting=True)))
        return [
            next(found) if is_read else zeros(self.w, *shape_of(x.type))
            for x, is_read in zip(region.results, wanted, strict=True)
        ]

    def hold(self, inside: Sequence[Region], env: Environment) -> None:
        """What regions read from outside is computed before them, once."""
        for x in dict.fromkeys(v for region in inside for v in free_values(region)):
            if x in env:
                env[x] = kept(self.w, env[x])
                if self.lifetimes is not None:
                    self.lifetimes.made(x, env[x], self.lifetimes.of((x,)))

    def variables(self, of: Sequence[Operand]) -> list[TensorVariable]:
        return [TensorVariable(self.w, *shape_of(x.type)) for x in of]

    # ---- branches

    def branch(self, branch: If, env: Environment, mask: LaneValue | None) -> list[Tensor]:
        arms = (branch.then, branch.orelse)
        self.hold(arms, env)
        condition = self.read(branch.condition, env).one()
        with self.in_place(branch, env) as own:
            if condition.shared or self.w.width == 1:
                held = self.held(branch.results, own)
                with self.w.f.when(condition.text) as otherwise:
                    set_all(self.w, held, self.of_arm(branch.then, env, mask, branch.results, own))
                    otherwise()
                    set_all(self.w, held, self.of_arm(branch.orelse, env, mask, branch.results, own))
                return [v.get() if k in own else copied(self.w, v.get()) for k, v in enumerate(held)]
            both = [self.w.both(mask, condition), self.w.both(mask, self.w.negated(condition))]
            sides = [self.arm(arm, env, inside, branch.results, own) for arm, inside in zip(arms, both, strict=True)]
            return joined(self.w, branch, condition, sides, self.alike, lambda x: self.read(x, env), own)

    @contextmanager
    def in_place(self, branch: If, env: Environment) -> Iterator[Mapping[int, InPlace]]:
        """Of the results of a branch, the arrays that its arms change where they lie, as nobody else reads those."""
        times, own = self.lifetimes, dict[int, InPlace]()
        if times is not None and times.scopes[-1].is_written(branch) and any(is_large(r) for r in branch.results):
            outside = {v for arm in (branch.then, branch.orelse) for v in free_values(arm)}
            for k, v in times.origins.of(branch).items():
                x = env.get(v)
                if x is None or in_registers(x.size) or x.memory is None or any(v == o.value for o in own.values()):
                    continue
                if times.may_change(x, outside - {v}):
                    own[k] = InPlace(v, TensorVariable(self.w, x.dtype, x.shape, memory=x.memory))
        if times is None or not own:
            yield own
            return
        memory = places([o.variable for o in own.values()])
        times.carried.update(memory)
        yield own
        times.carried.subtract(memory)

    def held(self, results: Sequence[Value], own: Mapping[int, InPlace]) -> list[TensorVariable]:
        """The variables for the results of a branch."""
        return [
            own[k].variable if k in own else TensorVariable(self.w, *shape_of(r.type), r in self.alike)
            for k, r in enumerate(results)
        ]

    def of_arm(
        self,
        arm: Region,
        env: Environment,
        mask: LaneValue | None,
        results: Sequence[Value],
        own: Mapping[int, InPlace],
    ) -> list[Tensor]:
        """The results of an arm, as the lanes of a mask run it."""
        xs = self.region(arm, (), dict(env), mask, given=[o.value for o in own.values()])
        xs = [self.single(x, mask) if r in self.alike else x for r, x in zip(results, xs, strict=True)]
        left = {k: o.variable for k, o in own.items() if not o.variable.has(xs[k])}
        left = {k: v for k, v in left.items() if not is_undefined(arm.results[k], arm)}
        if left:  # what it has made elsewhere goes there, in its lanes
            memory = places([o.variable for o in own.values()])
            # another result may lie there too, or be read from there
            xs = [replace(x, fixed=False) if x.memory is None or memory & origin_of(x) else x for x in xs]
            xs = [x if k in own else copied(self.w, x) for k, x in enumerate(xs)]
            new = [xs[k] if mask is None else select(self.w, mask, xs[k], v.get()) for k, v in left.items()]
            set_all(self.w, list(left.values()), new)
        return [own[k].variable.get() if k in own else x for k, x in enumerate(xs)]

    def single(self, x: Tensor, mask: LaneValue | None) -> Tensor:
        """What the lanes of a mask share, as single numbers."""
        elements = [tuple(self.w.first(n, mask) for n in x.at(index)) for index in every(x.shape)]
        return registers(self.w, x.dtype, x.shape, elements)

    def arm(
        self, arm: Region, env: Environment, mask: LaneValue, results: Sequence[Value], own: Mapping[int, InPlace]
    ) -> list[Tensor]:
        """The results of an arm for the lanes of a mask; any numbers for the others."""
        if cost(arm) < (NOTED if id(arm) in self.notes else GUARDED) and not (self.walks and is_slow(arm)):
            return self.of_arm(arm, env, mask, results, own)
        found = self.held(results, own)
        for k, v in enumerate(found):
            if k not in own:
                v.set(zeros(self.w, v.dtype, v.shape))
        mask = self.w.between_blocks(mask)
        with self.w.f.when(self.w.any(mask)):
            set_all(self.w, found, self.of_arm(arm, env, mask, results, own))
        return [v.get() if k in own else copied(self.w, v.get()) for k, v in enumerate(found)]

    # ---- loops

    def conditional(self, loop: While, env: Environment, mask: LaneValue | None) -> list[Tensor]:
        course = self.course(loop, env)
        alike = course if isinstance(course, Carried) else NOTHING
        carried, unread = self.started(loop, env, mask, alike), self.unread(loop)
        turn, goes_on = self.w.f.slot(0), self.w.slot("bool")
        goes_on.set(mask or self.w.constant(True, "bool"))
        some = any(unread) or bool(alike.numbers)

        def more() -> str:
            still = goes_on.get() if some else mask  # a test of what lanes that are done have proves nothing
            return self.more(loop, carried, env, still, goes_on, self.w.f.get(turn))

        def turns() -> None:
            with self.sharing(alike.inside), self.w.f.whilst(more):
                active = mask if alike.together else self.lanes(goes_on)
                self.turn(loop.body, [v.get() for v in carried], carried, env, active, unread)
                self.w.f.set(turn, self.w.f.add(self.w.f.get(turn), 1))

        if isinstance(course, Carried):
            turns()
        else:
            self.walked(course, loop, carried, env, mask, goes_on, turn, more, turns)
        return self.ended(loop, carried, goes_on)

    def course(self, loop: While, env: Environment) -> LaneWalk | Carried:
        """How the lanes of a gang go through a loop."""
        return NOTHING if self.w.width == 1 else course_of(loop, *self.shared(loop, env))

    def alike_in(self, loop: For, env: Environment) -> Carried:
        """The same of a loop whose turns are counted."""
        return NOTHING if self.w.width == 1 else carried_alike(loop, *self.shared(loop, env))

    def shared(self, loop: While | For, env: Environment) -> tuple[list[Value], list[bool]]:
        """Of what a loop reads from outside, what the lanes share that are there; and which of what it begins with."""
        read = dict.fromkeys(v for r in regions(loop) for v in free_values(r))
        known = [v for v in read if v in env and is_shared(env[v])]
        return known, [isinstance(x, Literal) or is_shared(env[x]) for x in loop.init]

    @contextmanager
    def sharing(self, alike: frozenset[Value], walks: bool = False) -> Iterator[None]:
        """What lanes share of what is written now."""
        outer = self.alike, self.walks
        self.alike, self.walks = alike, walks
        try:
            yield
        finally:
            self.alike, self.walks = outer

    def walked(
        self,
        walk: LaneWalk,
        loop: While,
        carried: Sequence[TensorVariable],
        env: Environment,
        mask: LaneValue | None,
        goes_on: StackSlot,
        turn: str,
        more: Callable[[], str],
        turns: Callable[[], None],
    ) -> None:
        """The turns of a loop: together, then those that are left. A limit is that of each lane's own turns, and none
        has more than the gang: where the gang reaches it, the loop is begun again with gathers."""
        w, f, limit = self.w, self.w.f, limit_of(loop)

        def body(xs: Sequence[Tensor], active: LaneValue, notes: Notes) -> list[Tensor]:
            outer, self.notes = self.notes, notes
            with self.sharing(walk.alike, walks=True):
                found = self.region(loop.body, xs, dict(env), active)
            self.notes = outer
            return found

        def test(parts: Sequence[Operand] | None, xs: Sequence[Tensor], active: LaneValue) -> LaneValue:
            asked = loop.condition if parts is None else replace(loop.condition, results=tuple(parts))
            found = [x.one() for x in self.region(asked, xs, dict(env), active, lasting=True)]
            return reduce(w.both, found, w.constant(True, "bool"))

        with f.when(more()):
            most = None if limit is None else limit.turns.most
            JointTurns(w, walk, loop, carried, goes_on, turn, most).write(body, test)
        again, together = f.slot(1), f.slot(1)
        with f.whilst(lambda: f.let(f"icmp ne i64 {f.get(again)}, 0")):
            turns()
            f.set(again, 0)
            if limit is not None:
                late = f.let(f"and i1 {w.any(goes_on.get())}, {f.let(f'icmp ne i64 {f.get(together)}, 0')}")
                with f.when(late):
                    set_all(w, carried, [self.read(x, env) for x in loop.init])
                    goes_on.set(mask or w.constant(True, "bool"))
                    for slot, value in ((turn, 0), (together, 0), (again, 1)):
                        f.set(slot, value)

    def unread(self, loop: While) -> list[bool]:
        """Of what a loop of a gang carries, what nobody reads behind it: lanes that are done need not keep it."""
        last = len(loop.results) - 1 if limit_of(loop) is not None else -1
        return [self.w.width > 1 and k != last and not self.uses.get(r) for k, r in enumerate(loop.results)]

    def started(
        self, loop: While | For, env: Environment, mask: LaneValue | None = None, alike: Carried = NOTHING
    ) -> list[TensorVariable]:
        """The variables that a loop carries, before its first turn. `alike`: what lanes in it share."""
        body = loop.body
        self.hold([body, *([loop.condition] if isinstance(loop, While) else [])], env)
        of = body.args[1:] if isinstance(loop, For) else body.args
        held = [self.read(x, env) for x in loop.init]
        memory = [self.taken(loop, k, x, mask) for k, x in enumerate(held)]
        carried = [
            TensorVariable(self.w, *shape_of(v.type), k in alike.numbers, memory=m)
            for k, (v, m) in enumerate(zip(of, memory, strict=True))
        ]
        set_all(self.w, carried, held)
        if not alike.together:
            for k in alike.numbers:
                carried[k].kept_apart()
        if self.lifetimes is not None:
            self.lifetimes.carried.update(places(carried))
        return carried

    def taken(self, loop: While | For, number: int, x: Tensor, mask: LaneValue | None) -> MemoryTensor | None:
        """The memory of what a loop begins with, where nobody else reads that."""
        times = self.lifetimes
        if times is None or in_registers(x.size):
            return None
        inside = regions(loop)
        others = [v for k, v in enumerate(loop.init) if k != number] + [v for r in inside for v in free_values(r)]
        return x.memory if times.may_change(x, others) else None

    def out(self, loop: While | For, carried: Sequence[TensorVariable]) -> list[Tensor]:
        """What a loop has computed."""
        found = [v.own.get() for v in carried]
        if self.lifetimes is None:
            return [copied(self.w, x) for x in found]
        self.lifetimes.carried.subtract(places(carried))
        return [x if v.memory is not None else copied(self.w, x) for v, x in zip(carried, found, strict=True)]

    def more(
        self,
        loop: While,
        carried: Sequence[TensorVariable],
        env: Environment,
        mask: LaneValue | None,
        goes_on: StackSlot,
        turn: str,
    ) -> str:
        """Does a lane go on, which is what `goes_on` is set to, and may there be another turn? An `i1`."""
        (test,) = self.region(loop.condition, [v.get() for v in carried], dict(env), mask, lasting=True)
        active = test.one() if mask is None else self.w.both(mask, test.one())
        goes_on.set(active)
        some = self.w.any(goes_on.get())
        limit = limit_of(loop)
        if limit is None:
            return some
        early = self.w.f.let(f"icmp ult i64 {turn}, {limit.turns.most}")
        return self.w.f.let(f"and i1 {some}, {early}")

    def lanes(self, goes_on: StackSlot) -> LaneValue | None:
        """The mask of a turn; with one lane there is none."""
        return None if self.w.width == 1 else goes_on.get()

    def turn(
        self,
        body: Region,
        args: Sequence[Tensor],
        carried: Sequence[TensorVariable],
        env: Environment,
        active: LaneValue | None,
        unread: Sequence[bool] = (),
    ) -> None:
        found = self.once(body, args, env, active)
        for k, (x, v) in enumerate(zip(found, carried, strict=True)):
            is_read = not (unread and unread[k])
            if v.shared:
                found[k] = self.single(x, active)
                if v.left is not None and is_read:
                    now = found[k] if active is None else select(self.w, active, found[k], v.left.get())
                    v.left.set(now)
            elif active is not None and not v.has(x) and (is_read or v.memory is not None):
                # what is in memory has changed in these lanes alone, and may be that of a loop around
                found[k] = select(self.w, active, x, v.get())
        set_all(self.w, carried, found)

    def ended(self, loop: While, carried: Sequence[TensorVariable], goes_on: StackSlot) -> list[Tensor]:
        found = self.out(loop, carried)
        limit = limit_of(loop)
        if limit is not None:
            late = scalar(self.w.constant(limit.site, found[-1].dtype))
            found[-1] = kept(self.w, select(self.w, goes_on.get(), late, found[-1]))
        return found

    def counted(self, loop: For, env: Environment, mask: LaneValue | None) -> list[Tensor]:
        alike = self.alike_in(loop, env)
        carried = self.started(loop, env, mask, alike)
        with counted_turns(self.w, loop) as index, self.sharing(alike.inside):
            found = self.once(loop.body, [self.index(loop, index), *(v.get() for v in carried)], env, mask)
            set_all(self.w, carried, self.of_turn(carried, found, mask))
        return self.out(loop, carried)

    def of_turn(self, carried: Sequence[TensorVariable], xs: Sequence[Tensor], mask: LaneValue | None) -> list[Tensor]:
        """What a turn of all lanes of a mask leaves. What is in memory may be that of other lanes, too."""
        found = list[Tensor]()
        for v, x in zip(carried, xs, strict=True):
            if v.shared:
                found.append(self.single(x, mask))
            elif mask is not None and v.memory is not None and not v.has(x):
                found.append(select(self.w, mask, x, v.get()))
            else:
                found.append(x)
        return found

    def once(
        self, body: Region, args: Sequence[Tensor], env: Environment, mask: LaneValue | None, lasting: bool = False
    ) -> list[Tensor]:
        """What a region yields: as if all of its indices were in range (`analysis.py`), and again where one was not."""
        own = any(not in_registers(x.size) and not (x.memory is not None and x.memory.shared) for x in args)
        reads = None if own or self.w.width == 1 or self.likely is not None else reads_of(body)
        if reads is None:
            return self.region(body, args, dict(env), mask, lasting)
        found = self.variables(body.results)
        self.likely = Likely(self.w, reads, mask)
        set_all(self.w, found, self.region(body, args, dict(env), mask, lasting=True))
        wrong, self.likely = self.likely.wrong(), None
        with self.w.f.when(wrong, rarely=True):
            set_all(self.w, found, self.region(body, args, dict(env), mask))
        return [copied(self.w, v.get()) for v in found]

    def index(self, loop: For, turn: str) -> Tensor:
        dtype, _ = shape_of(loop.body.args[0].type)
        whole = LaneValue(turn, "int64", True)
        return scalar(whole if dtype == "int64" else self.w.cast("trunc", whole, dtype))


def joined(
    w: LaneWriter,
    branch: If,
    condition: LaneValue,
    sides: Sequence[Sequence[Tensor]],
    alike: Collection[Value],
    read: Callable[[Operand], Tensor],
    own: Collection[int] = (),
) -> list[Tensor]:
    """The results of a branch on whose condition lanes differ. Those that they share are what stands before it, or of
    the arm that computes them, which is left out where no lane wants it: in the other one there may be any number.
    `own`: those that the arms have written where they are."""
    found: list[Tensor] = []
    for k, (r, x, y) in enumerate(zip(branch.results, *sides, strict=True)):
        of_then, of_orelse = branch.then.results[k], branch.orelse.results[k]
        if k in own:
            found.append(x)
        elif r not in alike:
            found.append(kept(w, select(w, condition, x, y)))
        elif isinstance(of_then, Value) and of_then == of_orelse:
            found.append(read(of_then))
        else:
            found.append(x if one_of(branch, k) == of_then else y)
    return found


def is_large(v: Value) -> bool:
    return isinstance(v.type, Array) and not in_registers(math.prod(v.type.shape))


def places(variables: Sequence[TensorVariable]) -> set[str]:
    """Where variables lie that are in memory."""
    return {v.memory.pointer for v in variables if v.memory is not None}


def turns(loop: For) -> int:
    if not isinstance(loop.count, Literal) or not isinstance(loop.count.value, int):
        raise RefusedError("a loop of a number of turns that is not known")
    return loop.count.value


def cost(region: Region) -> int:
    """Operations of a region; a loop is many."""
    return sum(GUARDED if regions(i) and not isinstance(i, If) else 1 for i in walk(region))


def is_slow(region: Region) -> bool:
    """Does it hold an operation that the processor takes long for? Lanes that walk together often skip it together."""
    return any(isinstance(i, Apply) and (i.op.name in FLOATS or i.op.name in SLOW) for i in walk(region))


def counted_turns(w: LaneWriter, loop: For, vectors: bool = True) -> AbstractContextManager[str]:
    """The iterations of a loop that is counted: LLVM may make vectors of them where they have no loop of their own, and
    what they carry is reduced (of others it says on standard error that it makes none), unless something else is done
    in each (`vectors`)."""
    carried = zip(loop.body.args[1:], loop.body.results, strict=True)
    body = (*loop.body.args, *(r for i in walk(loop.body) for r in i.results))
    plain = vectors and all(isinstance(v.type, Array) and in_registers(math.prod(v.type.shape)) for v in body)
    plain = plain and not any(isinstance(i, For | While) for i in walk(loop.body))
    plain = plain and all(x in _accumulated(loop.body, {before}) for before, x in carried)
    whole = turns(loop)
    if w.f.interrupts is not None and whole > PART:
        return _in_parts(w, whole, plain)
    return w.loop(whole) if plain else w.f.loop(0, whole, 1)


_REDUCTIONS = frozenset(("add", "mul", "max", "min", "and", "or", "xor"))


def _accumulated(region: Region, of: Collection[Operand]) -> set[Operand]:
    """The values of a region that are one of some, or the reduction of that and something, on each path."""
    found = set(of)
    for i in region.body:
        match i:
            case Apply(op=op, operands=xs):
                first, *rest = (x in found for x in xs) if xs else (False,)
                if (
                    (op.name in _REDUCTIONS and (first or any(rest)))
                    or (op.name in ("sub", "convert_element_type") and first)
                    or (op.name == "select_n" and all(rest))
                ):
                    found.update(i.results)
            case If(results=results, then=then, orelse=orelse):
                a, b = _accumulated(then, found), _accumulated(orelse, found)
                arms = zip(results, then.results, orelse.results, strict=True)
                found.update(r for r, x, y in arms if x in a and y in b)
    return found


PART = 1 << 16
"""Turns of a loop between which somebody asks whether the call is still wanted."""


@contextmanager
def _in_parts(w: LaneWriter, whole: int, plain: bool) -> Iterator[str]:
    f = w.f
    with f.loop(0, whole, PART) as begin:
        f.ask(TURNS)
        count = f.least(f.sub(str(whole), begin), PART)
        with w.loop(count) if plain else f.loop(0, count, 1) as at:
            yield f.add(begin, at)


def reads(region: Region) -> dict[Value, int]:
    """How often a region reads a value; what regions inside it read is counted as more than once."""
    found: dict[Value, int] = {}
    for i in region.body:
        if isinstance(i, Apply):
            for x in i.operands:
                if isinstance(x, Value):
                    found[x] = found.get(x, 0) + 1
        else:
            inside = [v for r in regions(i) for v in free_values(r)]
            for v in (*inside, *(x for x in _operands(i) if isinstance(x, Value))):
                found[v] = found.get(v, 0) + 2
    for x in region.results:
        if isinstance(x, Value):
            found[x] = found.get(x, 0) + 1
    return found


def _operands(i: Instruction) -> tuple[Operand, ...]:
    match i:
        case If(condition=condition):
            return (condition,)
        case While(init=init) | For(init=init):
            return init
        case _:
            return ()


# ---- melding
#
# Calls that both arms of a branch make are one call, so that lanes which disagree on the branch stay together in it.
#
#     %r = if %c then:                        %a = call @f(%l)                          what both compute, once
#       %a = call @f(%l); %s = sin(%a)        %r = if %c then:
#       yield %s                        ->      %s = sin(%a); yield %s
#     else:                                   else:
#       %b = call @f(%l)                        %d = call @f(%m)
#       %d = call @f(%m)                        %t = add(%a, %d); yield %t
#       yield %b + %d
#
#     %r = if %c then: call @f(%l)      ->    %x = if %c then: yield %l else: yield %m
#          else: call @f(%m) * 2              %a = call @f(%x)
#                                             %r = if %c then: yield %a else: yield %a * 2
#
# Each lane does the same in the same order. What is moved is no product of floats, which would be rounded apart from
# the sum that it meets: so the bits are those of one row alone. (Branch fusion: Coutinho, Sampaio, Pereira and Meira,
# "Divergence analysis and optimizations", PACT 2011.) A call that is the last thing its function does is a turn of a
# loop, where lanes meet anyway.


def melded(functions: Sequence[Function]) -> tuple[Function, ...]:
    """The functions of a recursion with calls of both arms melded."""
    captured = dict.fromkeys(v for f in functions for v in free_values(f.region))
    fresh = Fresh(Module(tuple(functions), tuple(captured)))
    return tuple(_Melding(f, fresh).function() for f in functions)


def parts(functions: Sequence[Function]) -> bool:
    """Do lanes part that call? Is there a branch in melded functions both of whose arms call functions of the
    recursion, but as the last thing that they do?"""
    for f in functions:
        turns = {id(c) for c in last_calls(f)}
        for i in walk(f.region):
            if isinstance(i, If) and all(_calls(arm, turns) for arm in (i.then, i.orelse)):
                return True
    return False


def _calls(region: Region, turns: Collection[int]) -> bool:
    return any(isinstance(i, Call) and id(i) not in turns for i in walk(region))


@dataclass
class _Arm:
    """What is left of an arm, and what its values are called that were moved out of it."""

    body: list[Instruction]
    results: tuple[Operand, ...]
    names: dict[Value, Operand]

    def renamed(self, i: Instruction) -> Instruction:
        return copy_instruction(i, dict(self.names), None)

    def effect(self) -> int | None:
        """Where the first instruction stands that is more than arithmetic."""
        return next((k for k, i in enumerate(self.body) if not _is_arithmetic(i)), None)

    def before(self, end: int, xs: Sequence[Operand]) -> tuple[list[Instruction], list[Value]]:
        """What stands before a call and has to be computed there: what its operands `xs` need, and what would be
        rounded otherwise behind it. And which values of the latter are read behind the call."""
        fixed = [i for i in self.body[:end] if not _may_move(i)]
        wanted = {x for x in xs if isinstance(x, Value)} | {r for i in fixed for r in i.results}
        found: list[Instruction] = []
        for i in reversed(self.body[:end]):
            if not wanted.isdisjoint(i.results):
                found.insert(0, i)
                wanted.update(x for x in operands(i) if isinstance(x, Value))
        self.body = [*(i for i in self.body[:end] if _may_move(i)), *self.body[end:]]
        made = {r for i in fixed for r in i.results}
        return found, [v for v in free_values(Region((), tuple(self.body), self.results)) if v in made]

    def region(self) -> Region:
        body = tuple(map(self.renamed, self.body))
        return Region((), body, tuple(substitute(x, self.names) for x in self.results))


@dataclass
class _Side:
    """An arm, and where its first call stands."""

    arm: _Arm
    at: int
    call: Call

    def operands(self) -> tuple[Operand, ...]:
        return tuple(substitute(x, self.arm.names) for x in self.call.operands)


class _Melding:
    def __init__(self, function: Function, fresh: Fresh) -> None:
        self.of, self.fresh = function, fresh
        self.turns = {id(c) for c in last_calls(function)}

    def function(self) -> Function:
        return replace(self.of, region=self.region(self.of.region))

    def region(self, region: Region) -> Region:
        body: list[Instruction] = []
        for i in region.body:
            inner = i if isinstance(i, Apply | Call) else with_regions(i, self.region)
            body += self.branch(inner) if isinstance(inner, If) else [inner]
        return replace(region, body=tuple(body))

    def branch(self, branch: If) -> list[Instruction]:
        if not all(_calls(arm, self.turns) for arm in (branch.then, branch.orelse)):
            return [branch]
        one, other = (_Arm(list(r.body), r.results, {}) for r in (branch.then, branch.orelse))
        made: list[Instruction] = []
        while True:
            self.move_equals(one, other, made)
            if not self.move_call(branch, one, other, made):
                break
        return [*made, replace(branch, then=one.region(), orelse=other.region())] if made else [branch]

    def move_equals(self, one: _Arm, other: _Arm, made: list[Instruction]) -> None:
        """Arithmetic that stands before any call in both arms, in front of the branch."""
        at = 0
        while at < len(one.body) and _is_arithmetic(one.body[at]):
            found = one.renamed(one.body[at])
            k = next((k for k in range(other.effect() or len(other.body)) if self.equal(found, other, k, one)), None)
            if k is None or not _may_move(found):
                at += 1
                continue
            made.append(found)
            del one.body[at]
            other.names.update(zip(other.body.pop(k).results, found.results, strict=True))

    def equal(self, found: Instruction, other: _Arm, at: int, one: _Arm) -> bool:
        """Is an instruction the same as one of the other arm, of values from outside of both?"""
        beside = other.renamed(other.body[at])
        if not isinstance(found, Apply) or not isinstance(beside, Apply) or found.op != beside.op:
            return False
        inside = {r for arm in (one, other) for i in arm.body for r in i.results}
        return found.operands == beside.operands and inside.isdisjoint(found.operands)

    def move_call(self, branch: If, one: _Arm, other: _Arm, made: list[Instruction]) -> bool:
        """The first call of both arms, in front of the branch, where it is of one function."""
        places = one.effect(), other.effect()
        if places[0] is None or places[1] is None:
            return False
        first, second = one.body[places[0]], other.body[places[1]]
        if not isinstance(first, Call) or not isinstance(second, Call) or first.callee != second.callee:
            return False
        if not self.turns.isdisjoint((id(first), id(second))):
            return False
        given = self.chosen(branch, [_Side(one, places[0], first), _Side(other, places[1], second)], made)
        results = self.fresh.like(first.results)
        made.append(replace(first, results=results, operands=given))
        for arm, call in ((one, first), (other, second)):
            arm.body.remove(call)
            arm.names.update(zip(call.results, results, strict=True))
        return True

    def chosen(self, branch: If, sides: Sequence[_Side], made: list[Instruction]) -> tuple[Operand, ...]:
        """The operands of a call that both arms make, behind a branch of what they need."""
        given = [side.operands() for side in sides]
        befores = [side.arm.before(side.at, side.call.operands) for side in sides]
        kept = [v for _, live in befores for v in live]
        if given[0] == given[1] and not any(found for found, _ in befores):
            return given[0]
        arms = []
        for side, (body, live), xs in zip(sides, befores, given, strict=True):
            blanks = {v: self.fresh.value(v.type) for v in kept if v not in live}
            none = [Apply((b,), own("undefined", type=b.type), ()) for b in blanks.values()]
            whole = Region((), (*map(side.arm.renamed, body), *none), (*xs, *(blanks.get(v, v) for v in kept)))
            arms.append(copy_region(whole, {}, self.fresh))
        chosen = tuple(self.fresh.value(x.type) for x in (*given[0], *kept))
        made.append(If(chosen, branch.condition, arms[0], arms[1], branch.span))
        for side in sides:
            side.arm.names.update(zip(kept, chosen[len(given[0]) :], strict=True))
        return chosen[: len(given[0])]


def _is_arithmetic(i: Instruction) -> bool:
    return isinstance(i, Apply) and i.op.name != "check"


def _may_move(i: Instruction) -> bool:
    """Is it the same wherever it stands? A product of floats that meets a sum is rounded once with it."""
    assert isinstance(i, Apply)
    return i.op.name == "take_row" or all(
        isinstance(r.type, Array) and not r.type.dtype.startswith(("float", "complex", "bfloat")) for r in i.results
    )
