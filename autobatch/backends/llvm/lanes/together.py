"""Lanes that walk together: of a loop that reads arrays which all lanes share at a place that each lane carries, a turn
is one of the lanes that are at the least place. What it reads there is one number for all of them, a load in place of a
gather.

    while node < n:                        at = the least node of the lanes that go on
      far = hit(x[node], y[node], ...)       far = hit(x[at], y[at], ...)      x[at], y[at]: single numbers
      node = skip[node]                      the lanes that are at `at` go on, the others wait

No lane sees when its turns are run, so nothing of what is computed depends on it. Walks that only go forward meet
again, as of neighbouring rays down a tree in the order of its nodes. (Wald et al., Interactive rendering with coherent
ray tracing, 2001, whose packets walk so; here a place is all that they need to have in common. That the lanes furthest
behind go first is the rule of Collange, Stack-less SIMT reconvergence at low cost, 2011.)

Lanes that seldom meet lose more turns so than the gathers would cost. So it is counted how many take part, and the loop
goes on with gathers where they are too few.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from autobatch.backends.llvm.lanes.analysis import Carried, carried_alike, shared_inside
from autobatch.backends.llvm.lanes.tensors import Tensor, TensorVariable, in_registers, scalar, select, set_all, zeros
from autobatch.backends.llvm.lanes.writer import BYTES, ELEMENTS, FLOATS, LaneValue, LaneWriter, StackSlot
from autobatch.ir.core import Apply, Array, If, Instruction, Literal, Operand, Region, Value, While, walk

# ---- walks
#
# Which loops the lanes of a gang walk through together, and what is known of a turn before it runs.
#
# while node < n:                        the place: `node`, at which x, y and skip are read
#   far = hit(x[node], y[node], ...)
#   if far < best: node += 1             the ends of a turn: the next place, in some of the lanes,
#   else: node = skip[node]              and one that all lanes share which are at one place


READS = ("dynamic_slice", "gather", "take_row")
"""Operations that read their first operand at a place."""

FEWEST = 2
"""Reads of a turn from which on it pays: the least place of a gang costs about as much as a gather."""

GATHER, FUNCTION, OTHERS = 10, 16, 8
"""What a gather costs, a function of floats, and to find where the gang goes on: in operations on numbers."""

UNIT = 8
"""Costs are compared in fractions of one."""

LEAST_WORTH = 2 * UNIT
"""A turn with gathers costs so many times as much at least: else half of the lanes would have to be at one place."""


@dataclass(frozen=True)
class End:
    """An end of a turn: a region, behind the branches that lead there, and what is carried on from it (None: it is not
    known there yet), of which `value`, which all lanes share that are at one place."""

    region: Region
    value: Operand
    carried: tuple[Operand | None, ...]
    steps: bool = False
    """Is the value the next place? Then no lane that waits is in front of it."""


@dataclass(frozen=True)
class Gate:
    """The loop goes on only while what it carries as `number` is `value`; all that a turn may leave there is `ends`."""

    number: int
    value: Literal
    ends: tuple[End, ...]


@dataclass(frozen=True)
class LaneWalk:
    """A loop's lanes walk together by what it carries as number `key`, of which `reads` reads are loads then.

    `ends`: what turns leave there, `all_of_it`: and nothing else; `test`: what decides beside the gates whether a lane
    goes on; `worth`: how many times as much a turn with gathers costs; `size`: how many places the smallest array has
    that is read there."""

    key: int
    reads: int
    worth: int
    size: int
    ends: tuple[End, ...]
    all_of_it: bool
    gates: tuple[Gate, ...]
    test: tuple[Operand, ...]
    alike: frozenset[Value]
    """What lanes share that are at one place."""

    def changed(self, args: Sequence[Value], end: End) -> list[int]:
        """What lanes at an end of a turn carry on that is new, beside the place and what gates look at."""
        known = {self.key, *(g.number for g in self.gates)}
        return [k for k, (a, x) in enumerate(zip(args, end.carried, strict=True)) if x != a and k not in known]


def course_of(loop: While, shared: Sequence[Value], given: Sequence[bool] | None = None) -> LaneWalk | Carried:
    """How lanes go through a loop: together from place to place, or else turn by turn. `shared`: of what it reads from
    outside, what all lanes share; `given`: which of what it begins with."""
    if given is None:
        given = [isinstance(x, Literal) or x in shared for x in loop.init]
    carried = carried_alike(loop, shared, given)
    return _walk_of(loop, shared, carried) or carried


def reads_alike(loop: While, shared: Sequence[Value], carried: Carried) -> int:
    """How many reads of arrays in memory are at a place that lanes share because they are in one turn; 0 where what
    these save is little beside the rest of the turn."""
    alone = shared_inside(loop.body, shared)
    reads = [i for i in walk(loop.body) if isinstance(i, Apply) and i.op.name in READS and _is_large(i.operands[0])]
    found = sum(_read_at(i, carried.inside) and not _read_at(i, alone) for i in reads)
    return found if found and _worth(loop, found, carried.inside) >= LEAST_WORTH else 0


def _walk_of(loop: While, shared: Sequence[Value], carried: Carried) -> LaneWalk | None:
    """Only a loop of small values can be left and begun again at will."""
    args = loop.body.args
    if any(not isinstance(a.type, Array) or not in_registers(math.prod(a.type.shape)) for a in args):
        return None
    alone, best = carried.inside, (FEWEST - 1, -1)
    for k, a in enumerate(args):
        assert isinstance(a.type, Array)
        if not a.type.shape and a.type.dtype in ("int32", "int64"):
            known = shared_inside(loop.body, (*shared, a))
            read = sum(_is_read(i, shared) and _read_at(i, known) and not _read_at(i, alone) for i in walk(loop.body))
            best = max(best, (read, -k))
    reads, key = best[0], -best[1]
    if reads < FEWEST:
        return None
    found = _walk(loop, key, reads, shared_inside(loop.body, (*shared, args[key])))
    return found if found.worth >= LEAST_WORTH else None


def _is_read(i: Instruction, shared: Sequence[Value]) -> bool:
    """Does an instruction read an array of which all lanes have the same, and that is in memory?"""
    if not isinstance(i, Apply) or i.op.name not in READS:
        return False
    array = i.operands[0]
    return _is_large(array) and isinstance(array, Value) and array in shared


def _is_large(x: Operand) -> bool:
    return isinstance(x.type, Array) and not in_registers(math.prod(x.type.shape))


def _read_at(i: Instruction, known: frozenset[Value]) -> bool:
    """Is the place that a read reads known to be shared?"""
    assert isinstance(i, Apply)
    return all(isinstance(x, Literal) or x in known for x in i.operands[1:])


def _walk(loop: While, key: int, reads: int, known: frozenset[Value]) -> LaneWalk:
    body, test = loop.body, loop.condition
    parts = tuple(_parts(test, test.results[0]))
    gates = []
    for k, arg in enumerate(test.args):
        assert isinstance(arg.type, Array)
        may = k != key and not arg.type.shape and arg.type.dtype in ("int32", "int64")
        value = next((v for part in parts if may and (v := _wanted(test, part, arg)) is not None), None)
        found = list(_ends(body, body.results[k], (), known, ("select_n", "within")))
        if value is not None and None not in found:
            gates.append(Gate(k, value, tuple(e for e in found if e is not None)))
    held = [test.args[g.number] for g in gates]
    rest = tuple(p for p in parts if all(_wanted(test, p, a) is None for a in held))
    steps = {i.results[0] for i in walk(body) if _is_step(i, body.args[key])}
    found = list(_ends(body, body.results[key], body.results, known))
    ends = [replace(e, steps=e.value in steps) for e in found if e is not None]
    ends.sort(key=lambda end: not end.steps)
    others = [k for k in range(len(body.args)) if k not in {key, *(g.number for g in gates)}]
    known_there = all(e.carried[k] is not None for e in ends for k in others)
    all_of_it = bool(gates) and None not in found and known_there
    worth = _worth(loop, reads, known)
    return LaneWalk(key, reads, worth, _size(loop, key, known), tuple(ends), all_of_it, tuple(gates), rest, known)


def _worth(loop: While, reads: int, known: frozenset[Value]) -> int:
    """How many times as much a turn with gathers costs, in units: of what is not the same for lanes at one place."""
    rest = OTHERS
    for i in walk(loop.body):
        if isinstance(i, Apply) and not known.issuperset(i.results):
            array = i.operands[0].type if i.op.name in READS else None
            read = math.prod(array.shape) if isinstance(array, Array) else 1
            rest += FUNCTION if i.op.name in FLOATS else min(read, GATHER)
    return UNIT + UNIT * GATHER * reads // rest


def _size(loop: While, key: int, known: frozenset[Value]) -> int:
    """How many places the smallest array has of those that are read at the place itself."""
    a, body = loop.body.args[key], list(walk(loop.body))
    below = {i.results[0] for i in body if isinstance(i, Apply) and i.op.name == "lt" and i.operands[0] == a}
    above = {i.results[0] for i in body if isinstance(i, Apply) and i.op.name == "add" and a in i.operands}
    same = {a} | {
        i.results[0]
        for i in body
        if isinstance(i, Apply)
        and i.op.name == "select_n"
        and (i.operands[0] in below and i.operands[1] == a and i.operands[2] in above)
    }
    types = [i.operands[0].type for i in body if isinstance(i, Apply) and i.op.name in READS and i.operands[1] in same]
    return min([t.shape[0] for t in types if isinstance(t, Array)], default=(1 << 31) - 1)


def _parts(test: Region, x: Operand) -> Iterator[Operand]:
    """What has to be true so that a test is."""
    made = next((i for i in test.body if x in i.results), None)
    if isinstance(made, Apply) and made.op.name == "and":
        for operand in made.operands:
            yield from _parts(test, operand)
    else:
        yield x


def _wanted(test: Region, part: Operand, arg: Value) -> Literal | None:
    """The number that an argument has to be for a part of a test."""
    made = next((i for i in test.body if part in i.results), None)
    if isinstance(made, Apply) and made.op.name == "eq" and arg in made.operands:
        return next((x for x in made.operands if isinstance(x, Literal)), None)
    return None


def _ends(
    region: Region,
    x: Operand,
    carried: tuple[Operand | None, ...],
    known: frozenset[Value],
    through: Sequence[str] = (),
) -> Iterator[End | None]:
    """What a result of a region may be, behind its branches and some operations; None: also what lanes do not share, or
    what is known at another place alone. (What is undefined is so behind a check that has failed, which is a gate.)"""
    at = next((k for k, i in enumerate(region.body) if x in i.results), None)
    made = None if at is None else region.body[at]
    if isinstance(x, Literal) or x in known:
        if not isinstance(made, Apply) or made.op.name != "undefined":
            yield End(region, x, carried)
    elif isinstance(made, If) and at is not None:
        later = {r for i in region.body[at + 1 :] for r in i.results}
        for arm in (made.then, made.orelse):
            of_arm = dict(zip(made.results, arm.results, strict=True))
            there = tuple(None if y in later else of_arm.get(y, y) if isinstance(y, Value) else y for y in carried)
            yield from _ends(arm, of_arm[x], there, known, through)
    elif isinstance(made, Apply) and made.op.name in through and (made.operands[0] in known or len(made.operands) == 1):
        for operand in made.operands[made.op.name == "select_n" :]:
            yield from _ends(region, operand, carried, known, through)
    else:
        yield None


def _is_step(i: Instruction, key: Value) -> bool:
    """Is an instruction `key + 1`?"""
    if not isinstance(i, Apply) or i.op.name != "add" or key not in i.operands:
        return False
    return any(isinstance(x, Literal) and x.value == 1 for x in i.operands)


PERIOD = 512
"""Every so many turns of a walk, and at its end, it is asked whether enough lanes take part. (Not more often: a branch
that is taken at other places of each walk keeps the processor from guessing the others, and costs a third.)"""

PATIENCE = 64
"""So many turns without anybody it takes, at first, until it is gathers; and so much patience is saved up."""

REST = 64
"""So many loops then run with gathers before another one is tried."""

Note = tuple[tuple[Operand, ...], Callable[[Sequence[Tensor], LaneValue], None]]
Notes = Mapping[int, Sequence[Note]]
"""Of some regions, by their identity: who is told at their end what some operands are, and in which lanes."""

Body = Callable[[Sequence[Tensor], LaneValue, Notes], list[Tensor]]
"""What a turn leaves of what it is given, in the lanes of a mask."""

Test = Callable[[Sequence[Operand] | None, Sequence[Tensor], LaneValue], LaneValue]
"""For which lanes of a mask some parts of the test are true; None: all of them."""


class JointTurns:
    """Writes the turns of a loop. `most`: so many turns of the gang at most; `turn`: where they are counted; `live`:
    the lanes that go on, before and behind it."""

    def __init__(
        self,
        w: LaneWriter,
        walk: LaneWalk,
        loop: While,
        carried: Sequence[TensorVariable],
        live: StackSlot,
        turn: str,
        most: int | None,
    ) -> None:
        self.w, self.f, self.walk, self.carried, self.live, self.turn = w, w.f, walk, carried, live, turn
        self.most = 1 << 62 if most is None else most
        self.keys = carried[walk.key]
        self.dtype = self.keys.dtype
        self.of, self.last = ELEMENTS[self.dtype], (1 << 8 * BYTES[ELEMENTS[self.dtype]] - 1) - 1
        self.now, self.at = w.slot("bool"), w.slot(self.dtype, shared=True)
        self.places = [w.slot(self.dtype, shared=True) for _ in walk.ends]
        self.taken = [w.slot("bool") for _ in walk.ends]
        new = [walk.changed(loop.body.args, end) if walk.all_of_it else [] for end in walk.ends]
        self.new = [{k: TensorVariable(w, carried[k].dtype, carried[k].shape) for k in numbers} for numbers in new]
        """What is carried on from each end that is new."""
        self.shut = w.slot("bool", shared=True)
        self.lazy = False
        """Are the places of lanes that go on right away not written? All turns then begin with a lane."""
        self.patience = self.f.cleared_slot("i64", str(UNIT * PATIENCE * w.width))
        self.stop, self.lanes, self.parts = self.f.slot(0), self.f.slot(0), self.f.slot(0)
        names = ("together", "seek", "look", "over", "apart")
        self.head, self.seek, self.look, self.over, self.done = map(self.f.name, names)

    def write(self, body: Body, test: Test) -> None:
        """Turns until no lane is left, the gang has had all of its turns, or too few lanes are at one place. (The test
        has been true for all lanes that are live.)"""
        f = self.f
        patience = f.get(self.patience)
        waits = f.let(f"icmp slt i64 {patience}, 0")
        f.set(self.patience, f.add(patience, f.let(f"zext i1 {waits} to i64")))
        f.set(self.stop, min(PERIOD, self.most))
        f.set(self.parts, 0)
        f.set(self.lanes, self.count(self.live.get()))
        f.branch(waits, self.done, self.seek)
        f.block(self.head, falls=False)
        self.take_part(test)
        self.one_turn(body, test)
        self.least()
        self.review()
        f.block(self.done)

    def given(self) -> list[Tensor]:
        """What is carried, in lanes that are at one place."""
        found = [v.get() for v in self.carried]
        found[self.walk.key] = scalar(self.at.get())
        return found

    def key(self) -> LaneValue:
        return self.keys.get().one()

    def put(self, mask: LaneValue, place: LaneValue) -> None:
        """Lanes are at a place from now on."""
        self.keys.set(scalar(self.w.select(mask, place, self.key())))

    # ---- a turn

    def take_part(self, test: Test) -> None:
        """The lanes at a place whose turn it is, but for those that are done. A turn of none would read what nobody may
        have."""
        f, w = self.f, self.w
        now, live = self.now.get(), self.live.get()
        inside, outside = f.name("inside"), f.name("outside")
        f.branch(f.let(f"icmp ult {self.of} {self.at.get().text}, {self.walk.size}"), inside, outside)
        f.block(outside, falls=False)
        self.put(now, self.at.get())
        f.do(f"br label %{self.over}")
        f.block(inside, falls=False)
        goes_on = test(self.walk.test, self.given(), now)
        self.lazy = goes_on.shared and self.walk.all_of_it
        some = w.both(now, goes_on)
        on, ended = f.name("on"), f.name("ended")
        f.branch(goes_on.text if goes_on.shared else w.any(some), on, ended)
        f.block(ended, falls=False)
        self.put(now, self.at.get())
        self.live.set(w.both(live, w.negated(now)))
        f.do(f"br label %{self.seek}")
        f.block(on, falls=False)
        if not goes_on.shared:
            self.live.set(w.both(live, w.instruction("or", w.negated(now), goes_on)))
            self.now.set(some)

    def one_turn(self, body: Body, test: Test) -> None:
        f, w = self.f, self.w
        f.ask()
        active, before = self.now.get(), self.key()
        f.set(self.parts, f.add(f.get(self.parts), self.count(active)))
        found = body(self.given(), active, self.notes())
        quiet, shut = f.name("quiet"), f.name("shut")
        f.branch(self.shut.get().text, shut, quiet)
        f.block(shut, falls=False)
        self.update(found, active, range(len(found)))
        goes_on = test(None, [v.get() for v in self.carried], active)
        self.live.set(w.both(self.live.get(), w.instruction("or", w.negated(active), goes_on)))
        f.do(f"br label %{self.over}")
        f.block(quiet, falls=False)
        self.go_on(found, active, before)

    def update(self, found: Sequence[Tensor], active: LaneValue, numbers: Sequence[int]) -> None:
        carried = [self.carried[k] for k in numbers]
        set_all(self.w, carried, [select(self.w, active, found[k], self.carried[k].get()) for k in numbers])

    def notes(self) -> Notes:
        """Whoever wants to know what regions yield."""
        w = self.w
        found: dict[int, list[Note]] = {}
        self.shut.set(w.constant(False, "bool"))
        for end, place, taken, new in zip(self.walk.ends, self.places, self.taken, self.new, strict=True):
            place.set(w.constant(self.last, self.dtype))
            taken.set(w.constant(False, "bool"))
            for v in new.values():
                v.set(zeros(w, v.dtype, v.shape))
            asked = (end.value, *(x for k in new if (x := end.carried[k]) is not None))
            found.setdefault(id(end.region), []).append((asked, partial(self.note, place, taken, list(new.values()))))
        for gate in self.walk.gates:
            for end in gate.ends:
                found.setdefault(id(end.region), []).append(((end.value,), partial(self.check, gate)))
        return found

    def note(
        self, place: StackSlot, taken: StackSlot, new: Sequence[TensorVariable], xs: Sequence[Tensor], mask: LaneValue
    ) -> None:
        place.set(self.w.first(xs[0].one(), mask))
        taken.set(mask)
        set_all(self.w, new, xs[1:])

    def check(self, gate: Gate, xs: Sequence[Tensor], mask: LaneValue) -> None:
        """A gate that a turn may shut is looked at by each lane."""
        w, number = self.w, self.w.first(xs[0].one(), mask)
        other = w.instruction("icmp ne", number, w.constant(gate.value.value, number.dtype), "bool")
        self.shut.set(w.instruction("or", self.shut.get(), other))

    # ---- who takes part

    def review(self) -> None:
        """Have enough lanes taken part, and may there be more turns? Of gathers each turn would be of all lanes."""
        f = self.f
        f.declare("declare i64 @llvm.smin.i64(i64, i64)")

        def patience() -> tuple[str, str]:
            with_gathers = f.mul(f.mul(f.get(self.lanes), f.get(self.turn)), UNIT)
            gain = f.sub(f.mul(f.get(self.parts), self.walk.worth), with_gathers)
            left = f.add(f.get(self.patience), gain)
            return left, f.let(f"icmp slt i64 {left}, 0")

        f.block(self.look, falls=False)
        turn, (_, few) = f.get(self.turn), patience()
        f.set(self.stop, f.least(f.add(turn, PERIOD), self.most))
        ends = f.let(f"or i1 {few}, {f.let(f'icmp uge i64 {turn}, {self.most}')}")
        f.branch(ends, self.over, self.seek)
        f.block(self.over, falls=False)
        left, few = patience()
        left = f.let(f"call i64 @llvm.smin.i64(i64 {left}, i64 {UNIT * PATIENCE * self.w.width})")
        f.set(self.patience, f.let(f"select i1 {few}, i64 {-REST}, i64 {left}"))

    def count(self, mask: LaneValue) -> str:
        f, w = self.f, self.w
        bits = f.let(f"bitcast {w.vector('i1')} {w.spread(mask).text} to i{w.width}")
        f.declare(f"declare i{w.width} @llvm.ctpop.i{w.width}(i{w.width})")
        found = f.let(f"call i{w.width} @llvm.ctpop.i{w.width}(i{w.width} {bits})")
        return f.let(f"zext i{w.width} {found} to i64")

    # ---- where the gang goes on

    def go_on(self, found: Sequence[Tensor], active: LaneValue, before: LaneValue) -> None:
        """Go on where some lanes of the turn do, with those that wait there. It is a jump: the processor guesses, and
        need not wait for what the lanes have found; for the same reason lanes are found by masks rather than by
        what they carry by now. What is carried is set behind the jump: behind that of a branch on the same mask, which
        LLVM then makes one of the two."""
        f, w = self.f, self.w
        waiting = w.both(self.live.get(), w.negated(active))
        ends = list(zip(self.walk.ends, self.places, self.taken, strict=True))
        for k, (end, slot, taken) in enumerate(ends):
            only = self.lazy and k == len(ends) - 1
            here, otherwise = f.name("here"), f.name("otherwise")
            f.branch("true" if only else w.any(taken.get()), here, otherwise)
            f.block(here, falls=False)
            going, place = active if only else taken.get(), slot.get()
            if self.walk.all_of_it:
                self.renew(k, going)
            else:
                self.update(found, active, self.others)
            self.turned()
            if self.lazy:
                for _, other, left in ends[k + 1 :]:
                    self.put(left.get(), other.get())
            there = w.both(waiting, w.instruction("icmp eq", before, place, "bool"))
            self.at.set(place)
            self.now.set(w.instruction("or", going, there))
            if end.steps:
                f.do(f"br label %{self.head}")
            else:
                self.unless_behind(place, going)
            f.block(otherwise, falls=False)
        self.update(found, active, self.others)
        self.turned()
        f.do(f"br label %{self.seek}")

    @property
    def others(self) -> list[int]:
        """What is carried, but for what gates have looked at."""
        gates = {g.number for g in self.walk.gates}
        return [k for k in range(len(self.carried)) if k not in gates]

    def renew(self, first: int, going: LaneValue) -> None:
        """What lanes carry on from the ends of a turn, of which those before `first` have none."""
        w = self.w
        found: dict[int, Tensor] = {}
        masks = [going, *(taken.get() for taken in self.taken[first + 1 :])]
        for mask, new in zip(masks, self.new[first:], strict=True):
            for k, v in new.items():
                found[k] = select(w, mask, v.get(), found.get(k, self.carried[k].get()))
        set_all(w, [self.carried[k] for k in found], list(found.values()))
        if not self.lazy:
            for mask, place in zip(masks, self.places[first:], strict=True):
                self.put(mask, place.get())

    def turned(self) -> None:
        """A turn is counted, and from time to time it is looked at how many take part."""
        f = self.f
        f.set(self.turn, f.add(f.get(self.turn), 1))
        off, on = f.name("off"), f.name("on")
        f.branch(f.let(f"icmp eq i64 {f.get(self.turn)}, {f.get(self.stop)}"), off, on)
        f.block(off, falls=False)
        if self.lazy:
            for place, taken in zip(self.places, self.taken, strict=True):
                self.put(taken.get(), place.get())
        f.do(f"br label %{self.look}")
        f.block(on, falls=False)

    def unless_behind(self, place: LaneValue, going: LaneValue) -> None:
        """Go on at a place, but where a lane is in front of it."""
        f, w = self.f, self.w
        others = w.both(self.live.get(), w.negated(going))
        behind = w.both(others, w.instruction("icmp slt", self.key(), place, "bool"))
        back = f.name("back")
        f.branch(w.any(behind), back, self.head)
        f.block(back, falls=False)
        if self.lazy:
            self.put(going, place)
        f.do(f"br label %{self.seek}")

    def least(self) -> None:
        """Go on at the least place of all lanes."""
        f, w = self.f, self.w
        f.block(self.seek, falls=False)
        live, key, found = self.live.get(), self.key(), f.name("found")
        f.branch(w.any(live), found, self.over)
        f.block(found, falls=False)
        suffix = w.suffix_of(self.dtype, False)
        of = w.type_of(self.dtype)
        f.declare(f"declare {self.of} @llvm.vector.reduce.smin.{suffix}({of})")
        keys = w.select(live, key, w.constant(self.last, self.dtype))
        place = LaneValue(
            f.let(f"call {self.of} @llvm.vector.reduce.smin.{suffix}({of} {keys.text})"), self.dtype, True
        )
        self.at.set(place)
        self.now.set(w.both(live, w.instruction("icmp eq", key, place, "bool")))
        f.do(f"br label %{self.head}")
