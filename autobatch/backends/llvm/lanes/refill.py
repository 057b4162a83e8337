"""A gang that is refilled: where the rows of a loop take very different numbers of turns, a lane that is done takes the
next row, and does not wait for the slowest one.

    fill     lanes that are done store the results of their rows, and take the next rows: what stands in front of the
             loop is computed for them, the other lanes keep what they have
    turn     turns, while more than half of the lanes go on; all of them, when no rows are left

A lane's row is a number of its own, so operands are gathered and results scattered. What is behind the loop is
computed when lanes are filled. (Foley and Sugerman, KD-tree acceleration structures for a GPU raytracer, 2005)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from autobatch.backends.llvm.lanes.control import RegionWriter
from autobatch.backends.llvm.lanes.ops import Environment, shape_of
from autobatch.backends.llvm.lanes.program import CodeOperand, Gang, GangLoop
from autobatch.backends.llvm.lanes.tensors import (
    Tensor,
    TensorVariable,
    constant,
    every,
    in_registers,
    kept,
    registers,
    select,
    set_all,
    word,
    words,
    zeros,
)
from autobatch.backends.llvm.lanes.together import LaneWalk, course_of, reads_alike
from autobatch.backends.llvm.lanes.writer import FLOATS, LaneValue, stored
from autobatch.ir.core import Apply, Array, Function, If, Instruction, Module, Region, Value, While, regions, walk
from autobatch.ir.core import Operand as ReadFrom
from autobatch.ir.regions import (
    Fresh,
    Limit,
    copy_instruction,
    copy_region,
    free_values,
    limit_of,
    refill_of,
    substitute,
)

LARGEST = 40
"""Operations in front of a loop, or behind it, up to which lanes are refilled: they are run for all lanes each time."""


CHEAP = 20
"""Operations of a turn below which gangs wait for their last lane: to refill costs more than the turns it saves. (Of
Mandelbrot's loop, with 10, refilled gangs take 1.6 times as long.)"""

FUNCTION = 16
"""Operations that a function of floats consists of."""


def work(body: Region) -> int:
    """Operations of a turn, as far as they can be told."""
    inside = (i for i in walk(body) if not regions(i))
    total = sum(FUNCTION if isinstance(i, Apply) and i.op.name in FLOATS else 1 for i in inside)
    return total + sum(CHEAP for i in walk(body) if regions(i) and not isinstance(i, If))


@dataclass(frozen=True)
class LoopSplit:
    """A region as what stands in front of its one loop, the loop, and what stands behind it."""

    region: Region
    loop: While
    front: tuple[Instruction, ...]
    behind: tuple[Instruction, ...]

    @staticmethod
    def of(whole: Region, shared: Collection[Value], asked: bool | None = None) -> LoopSplit | None:
        """The split of a region, in which masked operations dissolve. None where lanes are not refilled (`why`).
        `shared`: the arguments that all rows share; `asked`: what the user wants, where no masked operation says it."""
        found = _split(whole, shared, asked)
        return found if isinstance(found, LoopSplit) else None

    @property
    def captured(self) -> tuple[Value, ...]:
        """What the loop reads from in front of it, and what is behind the loop."""
        later = Region((), self.behind, self.region.results)
        read = (v for r in (self.loop.condition, self.loop.body, later) for v in free_values(r))
        before = {*self.region.args, *(r for i in self.front for r in i.results)}
        return tuple(v for v in dict.fromkeys(read) if v in before)


def why(whole: Region, shared: Collection[Value], asked: bool | None = None) -> str:
    """Why lanes are refilled, or are not."""
    found = _split(whole, shared, asked)
    if isinstance(found, str):
        return found
    if asked_in(whole, asked):
        return "asked for"
    return f"a turn has {work(found.loop.body)} operations or more, {len(found.front) + len(found.behind)} stand beside"


def holds_loop(whole: Region) -> bool:
    """Is there a loop that numbers end?"""
    return any(isinstance(i, While) for i in walk(dissolved(whole)))


def walks(whole: Region, shared: Collection[Value]) -> bool:
    """Is there a loop whose lanes walk together?"""
    loops = (i for i in walk(dissolved(whole)) if isinstance(i, While))
    return any(isinstance(course_of(loop, list(shared)), LaneWalk) for loop in loops)


def asked_in(whole: Region, asked: bool | None = None) -> bool | None:
    """Does a masked operation of a region say that lanes are refilled, or not?"""
    held = (i.op for i in whole.body if isinstance(i, Apply) and i.op.name == "masked" and not i.op.is_jax)
    return next((r for r in map(refill_of, held) if r is not None), asked)


def _split(whole: Region, shared: Collection[Value], asked: bool | None) -> LoopSplit | str:
    """The split, or why there is none."""
    asked = asked_in(whole, asked)
    if asked is False:
        return "refill=False is asked for"
    region = dissolved(whole)
    places = [k for k, i in enumerate(region.body) if isinstance(i, While)]
    if len(places) != 1:
        return f"there are {len(places)} loops beside one another" if places else "no loop is the only one"
    (at,) = places
    loop = region.body[at]
    assert isinstance(loop, While)
    if not asked and work(loop.body) < CHEAP:
        return f"a turn has {work(loop.body)} operations: to take the next row costs more"
    if not asked:
        course = course_of(loop, list(shared))
        reads = course.reads if isinstance(course, LaneWalk) else reads_alike(loop, list(shared), course)
        if reads:
            return f"lanes walk together: {reads} reads of a turn are of one place"
    front, behind = region.body[:at], region.body[at + 1 :]
    beside = [j for i in (*front, *behind) for j in (i, *(k for r in regions(i) for k in walk(r)))]
    if any(regions(j) and not isinstance(j, If) for j in beside):
        return "another loop stands beside it"
    if not asked and len(beside) > LARGEST:
        return f"{len(beside)} operations stand beside the loop, and would run for each row that is taken"
    held = (*region.args, *(r for i in front for r in i.results), *loop.body.args)
    if any(isinstance(x.type, Array) and not in_registers(math.prod(x.type.shape)) for x in held):
        return "each row has large arrays"
    return LoopSplit(region, loop, front, behind)


def dissolved(region: Region) -> Region:
    """A region whose masked operations are the instructions that they hold."""
    if not any(isinstance(i, Apply) and i.op.name == "masked" and not i.op.is_jax for i in region.body):
        return region
    fresh = Fresh(Module((Function("", region),)))
    env: dict[Value, ReadFrom] = {}
    body: list[Instruction] = []
    for i in region.body:
        moved = copy_instruction(i, env, None)
        if isinstance(moved, Apply) and moved.op.name == "masked" and not moved.op.is_jax:
            held: Region = moved.op["region"]
            inner = dict(zip(held.args, moved.operands, strict=True))
            copied = copy_region(replace(held, args=()), inner, fresh)
            body += copied.body
            env.update(zip(i.results, copied.results, strict=True))
        else:
            body.append(moved)
    return Region(region.args, tuple(body), tuple(substitute(x, env) for x in region.results))


Ended = Callable[[Sequence[Tensor], LaneValue], None]
"""Is told the results of lanes that are done, those of a mask."""


def refilled(
    split: LoopSplit,
    control: Callable[[Gang], RegionWriter],
    gang: Gang,
    begin: str,
    rows: str,
    ended: Ended = lambda results, done: None,
) -> None:
    """Write the loop over the rows from `begin` to `rows` of a split region."""
    Refilled(gang, begin, rows, split, control(gang), ended).run_all()


class Refilled(GangLoop):
    """The loop over the rows of a split region."""

    def __init__(
        self, gang: Gang, begin: str, rows: str, split: LoopSplit, control: RegionWriter, ended: Ended
    ) -> None:
        super().__init__(gang, begin, rows)
        self.split, self.control, self.ended = split, control, ended
        w = self.w
        loop = split.loop
        self.limit: Limit | None = limit_of(loop)
        self.carried = [TensorVariable(w, *shape_of(a.type)) for a in loop.body.args]
        varies = dict(zip(split.region.args, (x.varies for x in self.signature.operands), strict=True))
        self.shared: Environment = {}
        self.own = [v for v in split.captured if varies.get(v, True)]
        self.held = [TensorVariable(w, *shape_of(v.type)) for v in self.own]
        self.active, self.taken, self.alive, self.late = (w.slot("bool") for _ in range(4))
        later = Region((), split.behind, split.region.results)
        read = {*free_values(later), *([loop.results[-1]] if self.limit is not None else [])}
        self.unread = [r not in read for r in loop.results]
        """What nobody reads behind the loop: lanes that are done need not keep it."""
        self.row, self.turns = w.slot("int64"), w.slot("int32")
        self.next = gang.w.f.slot(begin)

    # ---- the whole

    def run_all(self) -> None:
        f, w, signature = self.f, self.w, self.signature
        frame = self.gang.frame
        arguments = [frame.argument(k) for k in range(len(signature.operands))]
        out = [frame.result(k) for k in range(len(signature.results))]
        live = frame.argument(len(signature.operands)) if signature.masked else None
        for v, x, place in zip(self.split.region.args, signature.operands, arguments, strict=True):
            if not x.varies:
                self.shared[v] = self.operand(x, place, "0")
        none = w.constant(False, "bool")
        for slot in (self.active, self.taken, self.alive, self.late):
            slot.set(none)
        self.row.set(w.constant(0, "int64"))
        self.turns.set(w.constant(0, "int32"))
        for variable in (*self.carried, *self.held):
            variable.set(zeros(w, variable.dtype, variable.shape))
        with f.whilst(self.goes_on_at_all):
            self.finish(out)
            self.fill(arguments, live)
            self.run_turns()
        for write in self.gang.behind:
            write()

    def goes_on_at_all(self) -> str:
        f = self.f
        more = f.let(f"icmp ult i64 {f.get(self.next)}, {self.rows}")
        return f.let(f"or i1 {more}, {self.w.any(self.taken.get())}")

    def environment(self) -> Environment:
        return {**self.shared, **{v: x.get() for v, x in zip(self.own, self.held, strict=True)}}

    # ---- lanes that are done

    def finish(self, out: Sequence[str]) -> None:
        """Store the results of lanes that hold a row and are done."""
        w, split = self.w, self.split
        done = w.both(self.taken.get(), w.negated(self.active.get()))
        with self.f.when(w.any(done)):
            env = self.environment()
            final = [v.get() for v in self.carried]
            if self.limit is not None:
                final[-1] = select(w, self.late.get(), constant(w, self.limit.site, final[-1].dtype), final[-1])
            env.update(zip(split.loop.results, final, strict=True))
            later = Region((), split.behind, split.region.results)
            found = [kept(w, x) for x in self.control.region(later, (), env, done)]
            for x, result, base in zip(found, self.signature.results, out, strict=True):
                assert (x.dtype, x.shape) == (result.dtype, result.shape)
                self.scatter(x, base, done)
            self.ended(found, done)
            self.taken.set(w.both(self.taken.get(), w.negated(done)))

    def scatter(self, x: Tensor, base: str, done: LaneValue) -> None:
        w, many = self.w, words(x.dtype)
        for k, index in enumerate(every(x.shape)):
            for j, number in enumerate(x.at(index)):
                number = w.spread(number)
                if self.signature.masked:
                    number = w.select(self.alive.get(), number, w.constant(0, number.dtype))
                self.write(number, self.lanes_of(stored(number.dtype), base, x.size * many, k * many + j), done)

    def write(self, x: LaneValue, places: str, done: LaneValue) -> None:
        self.w.scatter(x, places, done.text)

    # ---- the next rows

    def fill(self, arguments: Sequence[str], live: str | None) -> None:
        f, w, split = self.f, self.w, self.split
        more = f.let(f"icmp ult i64 {f.get(self.next)}, {self.rows}")
        with f.when(more):
            idle = w.negated(self.taken.get())
            rank, count = self.ranks(idle)
            row = w.instruction("add", rank, LaneValue(f.get(self.next), "int64", True))
            fresh = w.both(idle, w.instruction("icmp ult", row, LaneValue(self.rows, "int64", True), "bool"))
            f.set(self.next, f.add(f.get(self.next), count))
            self.row.set(w.select(fresh, row, self.row.get()))
            alive = fresh
            if live is not None:
                alive = w.both(fresh, self.gathered("bool", live, 1, 0, fresh))
                self.alive.set(w.select(fresh, alive, self.alive.get()))
            env = dict(self.shared)
            for v, x, place in zip(split.region.args, self.signature.operands, arguments, strict=True):
                if x.varies:
                    env[v] = self.taken_rows(x, place, fresh)
            wanted = (*split.loop.init, *self.own)
            found = self.control.region(Region((), split.front, wanted), (), env, alive)
            old = [v.get() for v in (*self.carried, *self.held)]
            new = [select(w, fresh, x, y) for x, y in zip(found, old, strict=True)]
            set_all(w, [*self.carried, *self.held], new)
            self.turns.set(w.select(fresh, w.constant(0, "int32"), self.turns.get()))
            self.late.set(w.both(self.late.get(), w.negated(fresh)))
            self.taken.set(w.instruction("or", self.taken.get(), fresh))
            self.active.set(self.test(w.instruction("or", self.active.get(), alive)))

    def ranks(self, idle: LaneValue) -> tuple[LaneValue, str]:
        """How many idle lanes there are before each lane, and how many in all."""
        f, w, width = self.f, self.w, self.w.width
        ones = w.cast("zext", idle, "int32")
        sums, step = ones, 1
        while step < width:
            places = ", ".join(f"i32 {k - step if k >= step else width}" for k in range(width))
            of = w.vector("i32")
            moved = f.let(f"shufflevector {of} {sums.text}, {of} zeroinitializer, <{width} x i32> <{places}>")
            sums = w.instruction("add", sums, LaneValue(moved, "int32"))
            step *= 2
        last = f.let(f"extractelement {w.vector('i32')} {sums.text}, i64 {width - 1}")
        return w.cast("zext", w.instruction("sub", sums, ones), "int64"), f.let(f"zext i32 {last} to i64")

    def taken_rows(self, x: CodeOperand, base: str, fresh: LaneValue) -> Tensor:
        dtype, many = word(x.dtype), words(x.dtype)
        size = math.prod(x.shape) * many
        elements = [
            tuple(self.gathered(dtype, base, size, k * many + j, fresh) for j in range(many))
            for k in range(math.prod(x.shape))
        ]
        return registers(self.w, x.dtype, x.shape, elements)

    def gathered(self, dtype: str, base: str, size: int, element: int, mask: LaneValue) -> LaneValue:
        """One number of the row of each lane."""
        return self.w.gathered(dtype, self.lanes_of(stored(dtype), base, size, element), mask.text)

    def lanes_of(self, of: str, base: str, size: int, element: int) -> str:
        """Where a number of the row of each lane lies."""
        w = self.w
        offsets = self.row.get()
        if size != 1:
            offsets = w.instruction("mul", offsets, w.constant(size, "int64"))
        if element:
            offsets = w.instruction("add", offsets, w.constant(element, "int64"))
        return self.f.let(f"getelementptr {of}, ptr {base}, <{w.width} x i64> {offsets.text}")

    # ---- turns

    def test(self, mask: LaneValue) -> LaneValue:
        """Which of some lanes the test of the loop holds for."""
        w, loop = self.w, self.split.loop
        state = [v.get() for v in self.carried]
        (found,) = self.control.region(loop.condition, state, self.environment(), mask)
        return w.both(mask, w.spread(found.one()))

    def may_turn(self, limit: Limit) -> LaneValue:
        return self.w.instruction("icmp ult", self.turns.get(), self.w.constant(limit.turns.most, "int32"), "bool")

    def run_turns(self) -> None:
        """Turns, while lanes are not to be refilled, and none has had all that it may: so the turns of all lanes are
        counted by one number."""
        f, w, loop = self.f, self.w, self.split.loop
        if self.limit is not None:
            self.stop_late(self.limit)
        more = f.let(f"icmp ult i64 {f.get(self.next)}, {self.rows}")
        least = f.let(f"select i1 {more}, i{w.width} {self.least()}, i{w.width} 0")
        room = self.room()
        turn = f.slot(0)

        def goes_on() -> str:
            enough = f.let(f"icmp ugt i{w.width} {self.count(self.active.get())}, {least}")
            return f.let(f"and i1 {enough}, {f.let(f'icmp ult i64 {f.get(turn)}, {room}')}")

        with f.whilst(goes_on):
            active, env = self.active.get(), self.environment()
            found = self.control.once(loop.body, [v.get() for v in self.carried], env, active)
            for k, (x, v) in enumerate(zip(found, self.carried, strict=True)):
                found[k] = x if self.unread[k] else select(w, active, x, v.get())
            set_all(w, self.carried, found)
            f.set(turn, f.add(f.get(turn), 1))
            self.active.set(self.test(active))
        if self.limit is not None:
            taken = LaneValue(f.let(f"trunc i64 {f.get(turn)} to i32"), "int32", True)
            self.turns.set(w.instruction("add", self.turns.get(), taken))
            self.stop_late(self.limit)

    def stop_late(self, limit: Limit) -> None:
        """Lanes that would go on, but have had all their turns, end so."""
        w, active = self.w, self.active.get()
        may = self.may_turn(limit)
        self.late.set(w.instruction("or", self.late.get(), w.both(active, w.negated(may))))
        self.active.set(w.both(active, may))

    def room(self) -> str:
        """How many turns all lanes that go on may still have."""
        f, w = self.f, self.w
        if self.limit is None:
            return str(2**62)
        had = w.select(self.active.get(), self.turns.get(), w.constant(0, "int32"))
        name = f"@llvm.vector.reduce.umax.v{w.width}i32"
        f.declare(f"declare i32 {name}({w.vector('i32')})")
        most = f.let(f"call i32 {name}({w.vector('i32')} {had.text})")
        return f.sub(str(self.limit.turns.most), f.let(f"zext i32 {most} to i64"))

    def least(self) -> int:
        return self.w.width * 7 // 8

    def count(self, mask: LaneValue) -> str:
        f, w = self.f, self.w
        bits = f.let(f"bitcast {w.vector('i1')} {mask.text} to i{w.width}")
        f.declare(f"declare i{w.width} @llvm.ctpop.i{w.width}(i{w.width})")
        return f.let(f"call i{w.width} @llvm.ctpop.i{w.width}(i{w.width} {bits})")
