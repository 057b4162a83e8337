"""What is known of a region before its code is written: which memory is free again, which indices are in range.

Lifetimes: what nobody reads again is written over.

    %1 = mul(%x, 2.0)                  array A
    %2 = scatter(%1, %i, %y)           the last read of %1: %2 is A with one number changed, and not a copy
    %3 = add(%2, %x)                   array B; the last read of %2
    %4 = mul(%3, %3)                   array A again

An array that is computed where it is read (`tensors.py`) reads what its operands read, until it is laid out. Time is
the order of the text, in which all turns of a loop are one: what a region inside another reads from outside is read for
as long as it runs, so nothing in it writes over that. An arm of a branch runs once, and lanes write under its mask: so
it may change an array from outside of which its result is made (`changed`), where nobody reads that behind the branch.

    %3 = if %c then: %2 = scatter(%1, %i, %y); yield %2     %3 and %2 lie where %1 does
         else: yield %1

Indices are in range, as they nearly always are: a turn runs as if all were, and again where one was not.

    %ok = 0 - n <= %q < n                    q: in range, asked once            if q < n, unsigned, in all lanes of the
    %s = 0 if %ok else 1                     s = 0                              mask: done; else the turn as it is
    %k = %q + n if %q < 0 else %q      ->    k = q                              written runs again, with all its checks
    %x = table[clamp(%k)]                    x = gather(table, q, mask=q < n)

What Python does with an index takes ten instructions, which say where a row has failed; what has to be known of a turn
that is fine takes one, and keeps the gather inside of the array as well. Two reads of neighbours, `t[q]` and
`t[q + 1]`, are one gather of numbers of twice the size, for which processors take as long. (Checks that are taken out
of the likely way, and a slower one behind a branch: the guards of tracing compilers, as in Gal and others, "Trace-based
just-in-time type specialization for dynamic languages", PLDI 2009.)
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from autobatch.backends.llvm.lanes.gathers import FEW, bounded, gathered, moved, neighbours, place_of, read
from autobatch.backends.llvm.lanes.ops import Environment
from autobatch.backends.llvm.lanes.tensors import Indices, Tensor, in_registers, kept, registers, scalar
from autobatch.backends.llvm.lanes.writer import LaneValue, LaneWriter
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
    Operand,
    Region,
    Value,
    While,
    regions,
    walk,
)
from autobatch.ir.leaf import BlockProgram
from autobatch.ir.ops import Op
from autobatch.ir.regions import free_values

# ---- lifetimes


Places = frozenset[str]
"""Pointers to memory of our own."""
NO_PLACES: Places = frozenset()

CHANGING = ("dynamic_update_slice", "scatter", "scatter-add", "scatter-max", "scatter-min", "scatter-mul")
"""Operations whose result is their first operand, but for some numbers."""


@dataclass
class RegionLifetimes:
    """A region that is being written. `last`: which instruction reads a value last, or their number, where its results
    do; `captured`: what is read from outside for as long as it runs; `known`: the values that it has itself; `now`: the
    instruction that is written."""

    body: tuple[Instruction, ...]
    last: dict[Value, int]
    captured: Places
    known: set[Value]
    now: int = 0

    def is_written(self, i: Instruction) -> bool:
        return bool(self.body) and self.body[self.now] is i

    def is_later(self, v: Value) -> bool:
        """Is a value of this region read behind the instruction that is written?"""
        return v in self.known and self.last.get(v, -1) > self.now


class Lifetimes:
    """Of the values of regions inside each other. `reads`: what each value reads when it is read itself."""

    def __init__(self) -> None:
        self._reads: dict[Value, Places] = {}
        self._readers: dict[str, set[Value]] = {}
        """The values that read some memory, but for some that are read no more."""
        self.origins = BranchOrigins()
        self.scopes: list[RegionLifetimes] = []
        self.carried: Counter[str] = Counter()
        """The memory of loops and branches that are being written, of how many each: it is needed until the outermost
        ends."""

    # ---- regions

    def enter(self, region: Region, args: Iterable[Tensor], lasting: bool, given: Collection[Value] = ()) -> None:
        """`lasting`: what the arguments are is needed behind the region. `given`: what it may change from outside."""
        for v, x in zip(region.args, args, strict=True):
            self.set(v, origin_of(x) or self.of((v,)))
        inside = regions(self.scopes[-1].body[self.scopes[-1].now]) if self.scopes and self.scopes[-1].body else ()
        captured = self.of(v for r in (region, *inside) for v in free_values(r)) - self.of(given)
        if lasting:
            captured |= self.of(region.args)
        for v in given:
            self.set(v, self.of((v,)))
        self.scopes.append(RegionLifetimes(region.body, _last_reads(region), captured, {*region.args, *given}))

    def leave(self) -> None:
        self.scopes.pop()

    # ---- values

    def of(self, values: Iterable[object]) -> Places:
        return NO_PLACES.union(*(self._reads.get(v, NO_PLACES) for v in values if isinstance(v, Value)))

    def set(self, v: Value, places: Places) -> None:
        """What a value reads."""
        self._reads[v] = places
        for place in places:
            self._readers.setdefault(place, set()).add(v)

    def made(self, v: Value, x: Tensor, among: Places) -> None:
        """A value is a tensor. `among`: what it reads where it is not laid out."""
        self.set(v, origin_of(x) if x.memory is not None else among)

    def results(self, i: Instruction, xs: Mapping[Value, Tensor]) -> None:
        """The results of the instruction that is written, of which single numbers have been read."""
        among = self.of(values_read(i)).union(*(origin_of(x) for x in xs.values()))
        if isinstance(i, Apply) and i.op.name == "masked" and not i.op.is_jax:
            among |= self.of(i.op["region"].results)
        for v, x in xs.items():
            self.made(v, x, NO_PLACES if x.size == 1 or isinstance(i, If | While | For) else among)
            self.scopes[-1].known.add(v)

    def is_free(self, place: str) -> bool:
        """Does nothing read some memory behind the instruction that is written?"""
        if any(place in s.captured for s in self.scopes):
            return False
        readers = self._readers.get(place, set())
        gone = {v for v in readers if place not in self._reads[v] or not any(s.is_later(v) for s in self.scopes)}
        readers -= gone  # they stay so, unless a region inside is given them
        return not readers

    def may_change(self, x: Tensor, others: Iterable[object]) -> bool:
        """May the instruction that is written have the memory of an operand, beside its others?"""
        own = origin_of(x)
        return bool(own) and own.isdisjoint(self.of(others)) and all(map(self.is_free, own))

    def ended(self) -> list[str]:
        """The memory that nothing reads from now on, behind the instruction that is written."""
        i = self.scopes[-1].body[self.scopes[-1].now]
        held_by = [v for v in (*values_read(i), *i.results) if v in self._reads]
        held = self.of(held_by)
        found = frozenset(p for p in held if not self.carried[p] and self.is_free(p))
        for v in held_by:  # who gets it next has it alone: what was there is forgotten, so that it ends once
            self._reads[v] = self._reads[v] - found
        return sorted(found)


Makers = Mapping[Value, tuple[Instruction, int]]
"""What makes each value of a region, and which of its results it is."""


class BranchOrigins:
    """Of which values from outside the results of branches are made: each branch is looked at once."""

    def __init__(self) -> None:
        self.known: dict[int, tuple[If, dict[int, Value]]] = {}

    def of(self, branch: If) -> Mapping[int, Value]:
        """Of the results of a branch, those that are made of one value from outside, in an arm or in both, by
        operations that change an array here and there; and that value."""
        if id(branch) not in self.known:
            arms = (branch.then, branch.orelse)
            made: list[Makers] = [{r: (i, k) for i in arm.body for k, r in enumerate(i.results)} for arm in arms]
            found: dict[int, Value] = {}
            for k, xs in enumerate(zip(*(arm.results for arm in arms), strict=True)):
                origins = {v for v in map(self.origin, xs, made) if v is not None}
                if len(origins) == 1:
                    found[k] = origins.pop()
            self.known[id(branch)] = branch, found
        return self.known[id(branch)][1]

    def origin(self, x: Operand | None, made: Makers) -> Value | None:
        """The value from outside that an array is, but for some numbers; None: there is none."""
        while isinstance(x, Value) and x in made:
            i, k = made[x]
            match i:
                case Apply() if i.op.name in CHANGING:
                    x = i.operands[0]
                case While(init=init) | For(init=init):
                    x = init[k]
                case If():
                    x = self.of(i).get(k)
                case _:
                    return None
        return x if isinstance(x, Value) else None


def is_undefined(x: Operand, region: Region) -> bool:
    """Is a result of a region any numbers?"""
    return any(x in i.results and isinstance(i, Apply) and i.op.name == "undefined" for i in region.body)


def origin_of(x: Tensor) -> Places:
    return frozenset((x.memory.pointer,)) if x.memory is not None and x.memory.own else NO_PLACES


def values_read(i: Instruction) -> tuple[Value, ...]:
    """What an instruction reads, and what regions in it read from outside."""
    match i:
        case Apply(operands=xs):
            found = xs
        case If(condition=condition):
            found = (condition,)
        case While(init=init) | For(init=init):
            found = init
        case _:
            found = ()
    inside = (v for r in regions(i) for v in free_values(r))
    return tuple(v for v in (*found, *inside) if isinstance(v, Value))


def _last_reads(region: Region) -> dict[Value, int]:
    last = {v: k for k, i in enumerate(region.body) for v in values_read(i)}
    return last | {v: len(region.body) for v in region.results if isinstance(v, Value)}


# ---- pressure
#
# How many numbers a region holds at once, which decides how many registers each value of a gang gets.
#
#     %1 = mul(%x, %x)        live behind it: %1, %x
#     %2 = add(%1, %y)        live behind it: %2, %x
#     %3 = div(%2, %x)        live behind it: %3                 2 numbers at once, of each lane
#
# A chain of operations waits for each of them; a gang of two registers a value has two chains to go on with. Where
# values no longer fit into registers, what is gained is lost to memory.


def most_at_once(region: Region, varying: Sequence[bool]) -> int:
    """The most numbers of one lane that are live behind an instruction of a region, or of one inside it. What all
    lanes share (`varying`: which arguments they do not) and arrays in memory take no registers."""
    shared = {x for x, varies in zip(region.args, varying, strict=True) if not varies}
    return _most(region, set(), shared)


def _most(region: Region, behind: set[Value], shared: set[Value]) -> int:
    """`behind`: what is read after the region."""
    live = behind | values_of(region.results)
    most = _count(live - shared)
    for i in reversed(region.body):
        live -= set(i.results)
        for inner in _inside(i):
            known = shared | _given_shared(i, inner, shared)
            most = max(most, _most(inner, live | _needed_again(i, inner), known))
        live |= _read(i)
        most = max(most, _count(live - shared))
    return most


def _needed_again(i: Instruction, inner: Region) -> set[Value]:
    """A loop's next turn reads what its body and its test read from outside."""
    return _read(i) | set(inner.args) if isinstance(i, While | For) else set()


def _inside(i: Instruction) -> tuple[Region, ...]:
    if isinstance(i, Apply):
        return (i.op["region"],) if i.op.name == "masked" and not i.op.is_jax else ()
    return regions(i)


def _given_shared(i: Instruction, inner: Region, shared: set[Value]) -> set[Value]:
    if not isinstance(i, Apply):
        return set()
    given = zip(inner.args, i.operands, strict=True)
    return {x for x, g in given if not isinstance(g, Value) or g in shared}


def _read(i: Instruction) -> set[Value]:
    """What an instruction reads, and what regions in it read from outside."""
    match i:
        case Apply(operands=xs):
            return values_of(xs)
        case If(condition=condition):
            found = values_of([condition])
        case While(init=init) | For(init=init):
            found = values_of(init)
        case _:
            found = set()
    return found.union(*(free_values(r) for r in regions(i)))


def values_of(xs: Iterable[object]) -> set[Value]:
    return {x for x in xs if isinstance(x, Value)}


def _count(live: set[Value]) -> int:
    return sum(n for n in map(_size, live) if in_registers(n))


def _size(x: Value) -> int:
    return math.prod(x.type.shape) if isinstance(x.type, Array) else 1


# ---- widths
#
# How large the arrays are that each row has for itself: what decides whether rows form gangs.


def widest(region: Region, varying: Sequence[bool]) -> int:
    """The most numbers in an array of a row. What all rows share (`varying`: which arguments they do not) lies in
    memory once, however large it is."""
    shared = {x for x, varies in zip(region.args, varying, strict=True) if not varies}
    return max([1, *map(_size, _own(region, shared))])


def _own(region: Region, shared: Collection[Value]) -> Iterable[Value]:
    """The values of which each row has its own."""
    yield from (x for x in region.args if x not in shared)
    for i in walk(region):
        yield from i.results
        yield from (x for r in regions(i) for x in r.args)
        if isinstance(i, Apply) and i.op.name == "masked":
            inner: Region = i.op["region"]
            given = zip(inner.args, i.operands, strict=True)
            yield from _own(inner, {x for x, g in given if not isinstance(g, Value) or g in shared})
        if isinstance(i, Apply) and i.op.name == "blocks":
            for f in i.op["program"].structured:
                yield from _own(f.region, ())


def widest_of(op: Op, varying: Sequence[bool]) -> int:
    """The same of an operation with control of its own on operands that differ between rows, or do not."""
    if op.name == "masked":
        return widest(op["region"], varying)
    program: BlockProgram = op["program"]
    given = zip((*program.parameters, *program.captured), varying, strict=True)
    shared = {x for x, varies in given if not varies}
    sizes = (_size(x) for f in program.structured for x in _own(f.region, ()) if x not in shared)
    return max([1, *sizes, *(_size(x) for x in program.captured if x not in shared)])


# ---- indices in range


LARGEST = 500
"""Instructions of a turn up to which it is written twice."""

UNFIT = ("masked", "blocks", "gradient_of", "dynamic_update_slice")
"""Operations that have control of their own, or change memory: a turn with one of them is not written twice."""


@dataclass(frozen=True)
class Index:
    """A number that is an index of an axis of `size` numbers, as Python means it."""

    of: Value
    size: int


@dataclass
class LikelyReads:
    """What of a region is an index and its checks. `places`: by the start of a read, which index it is; `checks`: the
    values that say whether an index is in range; `pairs`: reads of neighbours, by both of their results, the lower one
    first."""

    places: dict[Value, Index] = field(default_factory=dict)
    checks: dict[Value, Index] = field(default_factory=dict)
    pairs: dict[Value, tuple[Apply, Apply]] = field(default_factory=dict)


def reads_of(region: Region) -> LikelyReads | None:
    """What is likely in a region. None: it has no such reads, or is not to be written twice."""
    found = list(walk(region))
    if len(found) > LARGEST or any(_is_unfit(i) for i in found):
        return None
    made = {i.results[0]: i for i in found if isinstance(i, Apply) and len(i.results) == 1}
    all = LikelyReads()
    for i in made.values():
        if i.op.name == "dynamic_slice":
            for x, size in zip(i.operands[1:], _shape(i.operands[0]), strict=True):
                if (index := _wrapped(x, size, made)) is not None and isinstance(x, Value):
                    all.places[x] = index
        elif i.op.name == "reduce_and" and (tested := _in_range(i, made)) is not None:
            all.checks[i.results[0]] = tested
    if not all.places:
        return None
    for body in _bodies(region):
        all.pairs.update(_pairs(body, all, made))
    return all


def _is_unfit(i: Instruction) -> bool:
    if isinstance(i, While | For) or (isinstance(i, Apply) and (i.op.name in UNFIT or i.op.name.startswith("scatter"))):
        return True
    return any(not in_registers(math.prod(_shape(r))) for r in i.results)


def _bodies(region: Region) -> Iterator[tuple[Instruction, ...]]:
    yield region.body
    for i in region.body:
        for inner in regions(i):
            yield from _bodies(inner)


def _shape(x: Operand) -> tuple[int, ...]:
    return x.type.shape if isinstance(x.type, Array) else ()


# ---- what Python does with an index

Made = Mapping[Value, Apply]


def _is(x: Operand, made: Made, name: str) -> tuple[Operand, ...] | None:
    """The operands of what makes a value, where that is an operation of this name."""
    found = made.get(x) if isinstance(x, Value) else None
    return found.operands if found is not None and found.op.name == name else None


def _literal(x: Operand) -> int | None:
    if isinstance(x, Literal) and x.constant < 0 and isinstance(x.value, int) and not _shape(x):
        return x.value
    return None


def _wrapped(x: Operand, size: int, made: Made) -> Index | None:
    """`q if q >= 0 else q + size`."""
    match _is(x, made, "select_n"):
        case (below, Value() as q, other):
            match _is(below, made, "lt"), _is(other, made, "add"):
                case (tested, zero), (moved, by):
                    if tested == q and moved == q and _literal(zero) == 0 and _literal(by) == size:
                        return Index(q, size)
    return None


def _in_range(i: Apply, made: Made) -> Index | None:
    """`-size <= q < size`, of a number: an array of indices is read whole."""
    match _is(i.operands[0], made, "and"):
        case (low, high):
            match _is(low, made, "ge"), _is(high, made, "lt"):
                case (Value() as q, least), (other, most):
                    size = _literal(most)
                    if other == q and size is not None and _literal(least) == -size and not _shape(q):
                        return Index(q, size)
    return None


def _apart(x: Value, made: Made) -> tuple[Value, int]:
    """A value as another one and what is added to it."""
    by = 0
    while (found := made.get(x)) is not None and found.op.name in ("add", "sub"):
        one, other = found.operands
        step = _literal(other)
        if step is None or not isinstance(one, Value) or one.type != x.type:
            break
        x, by = one, by + (step if found.op.name == "add" else -step)
    return x, by


def _pairs(body: tuple[Instruction, ...], all: LikelyReads, made: Made) -> dict[Value, tuple[Apply, Apply]]:
    """Reads of one instruction after another of a body that are of neighbours in one array."""
    found: dict[Value, tuple[Apply, Apply]] = {}
    open: dict[tuple[Operand, Value, int], Apply] = {}
    for i in body:
        if not isinstance(i, Apply) or i.op.name != "dynamic_slice" or len(i.operands) != 2:
            continue
        table, start = i.operands
        if not isinstance(start, Value) or start not in all.places or tuple(i.op["slice_sizes"]) != (1,):
            continue
        root, by = _apart(all.places[start].of, made)
        before, behind = open.pop((table, root, by - 1), None), open.pop((table, root, by + 1), None)
        if before is not None:
            found[before.results[0]] = found[i.results[0]] = (before, i)
            if behind is not None:
                open[table, root, by + 1] = behind
        elif behind is not None:
            found[i.results[0]] = found[behind.results[0]] = (i, behind)
        else:
            open[table, root, by] = i
    return found


# ---- the likely way


class Likely:
    """Writes a turn as if all of its indices were in range. `mask`: the lanes that it is for."""

    def __init__(self, w: LaneWriter, reads: LikelyReads, mask: LaneValue | None) -> None:
        self.w, self.reads, self.mask = w, reads, mask
        self.fine = w.slot("bool", as_bits=True)
        self.fine.set(w.constant(True, "bool"))
        self.known: dict[Index, LaneValue] = {}
        """The lanes in which an index is in range, as far as what is written next knows it."""

    def wrong(self) -> str:
        """Is an index out of range in a lane that there is? An `i1`."""
        return self.w.any(self.w.both(self.mask, self.w.negated(self.fine.get())))

    def takes(self, i: Apply, env: Environment, mask: LaneValue | None) -> bool:
        """Writes a check or a read, where it is one. `mask`: the lanes that run it."""
        result = i.results[0] if len(i.results) == 1 else None
        if result in self.reads.checks and not env[self.reads.checks[result].of].one().shared:
            self.asked(self.reads.checks[result], env, mask)
            env[result] = scalar(self.w.constant(True, "bool"))
            return True
        if i.op.name != "dynamic_slice" or result is None:
            return False
        if result in self.reads.pairs and (result in env or self.pair(*self.reads.pairs[result], env, mask)):
            return True
        return self.slice(i, result, env, mask)

    def asked(self, index: Index, env: Environment, mask: LaneValue | None) -> LaneValue:
        """The lanes in which an index is in range."""
        return self.below(env[index.of].one(), index.size, (index,), mask)

    def below(self, x: LaneValue, size: int, of: tuple[Index, ...], mask: LaneValue | None) -> LaneValue:
        held = [self.known.get(i) for i in of]
        if held[0] is not None and all(k == held[0] for k in held):
            return held[0]
        w = self.w
        found = w.instruction("icmp ult", x, w.constant(size, x.dtype), "bool")
        fine = found
        if mask is not None and mask != self.mask:
            fine = w.instruction("or", found, w.negated(mask))
        self.fine.set(w.both(self.fine.get(), fine))
        self.known.update(dict.fromkeys(of, found))
        return found

    def slice(self, i: Apply, result: Value, env: Environment, mask: LaneValue | None) -> bool:
        w, (table, *starts) = self.w, i.operands
        x, shape, sizes = env[table] if isinstance(table, Value) else None, _shape(table), i.op["slice_sizes"]
        one = [s if isinstance(s, Value) and size == 1 else None for s, size in zip(starts, sizes, strict=True)]
        indices = [None if s is None else self.reads.places.get(s) for s in one]  # wider ones are moved, too
        asked = [index for index in indices if index is not None and not env[index.of].one().shared]
        if x is None or not asked or any(isinstance(s, Literal) and s.constant >= 0 for s in starts):
            return False
        if x.memory is None and (not x.held or max(shape) > FEW):
            return False
        where: LaneValue | None = None
        places = []
        for s, index, size, n in zip(starts, indices, sizes, shape, strict=True):
            if index is not None and index in asked:
                where = w.both(where, self.asked(index, env, mask))
                places.append(place_of(w, env[index.of].one()))
            elif isinstance(s, Value):
                places.append(bounded(w, place_of(w, env[s].one()), n - size + 1))
            else:
                places.append(min(max(_literal(s) or 0, 0), n - size))

        def at(index: Indices) -> tuple[LaneValue, ...]:
            found = [moved(w, p, k) for p, k in zip(places, index, strict=True)]
            return read(w, x, found) if x.memory is None else gathered(w, x.memory, found, where)

        env[result] = kept(w, Tensor(x.dtype, tuple(sizes), at))
        return True

    def pair(self, low: Apply, high: Apply, env: Environment, mask: LaneValue | None) -> bool:
        """Reads two neighbours at once; False where they are not to be."""
        w, table = self.w, low.operands[0]
        of = tuple(self.reads.places[i.operands[1]] for i in (low, high) if isinstance(i.operands[1], Value))
        x = env[table] if isinstance(table, Value) else None
        if x is None or x.memory is None or not x.memory.shared or x.dtype not in ("int32", "uint32", "float32"):
            return False
        if of[0].of in env:
            base = env[of[0].of].one()
        else:
            base = env[of[1].of].one()
            base = w.instruction("add", base, w.constant(-1, base.dtype))
        if base.shared or base.bits != 32:
            return False
        where = self.below(base, of[0].size - 1, of, mask)
        for i, number in zip((low, high), neighbours(w, x.memory, base, where), strict=True):
            env[i.results[0]] = registers(w, x.dtype, (1,), [(number,)])
        return True


# ---- uniform
#
# Which values all lanes of a gang share that are where they are read: arguments of recursive functions that every
# call gives alike, counters of loops, and what is computed of shared values alone.
#
# trace(ray, depth + 1)     `depth` is 0 in the first call, so it is one number for all lanes, and `depth < 3` a jump
#
# All lanes of an activation come from one call, so an argument is shared where every call gives a shared value. A call
# that is the last thing its function does is a turn of a loop: lanes of several such calls meet there. (The greatest
# solution: everything is shared until something says otherwise. ispc's `uniform`, found rather than declared.)
#
# What a loop carries is shared by the lanes that are still in it, however many have left: a counter is one number for
# the gang, even where each lane has a test of its own. Behind the loop it is shared only if all lanes leave together.
# (The divergence analysis of Karrenberg and Hack, "Improving performance of OpenCL on CPUs", CC 2012, section 4: values
# that a loop's lanes leave with at different times are varying outside of it alone.)


CONTROL = ("masked", "gradient_of", "blocks")
"""Operations with control of their own, whose lanes end apart."""


def uniform_values(functions: Sequence[Function], shared: Collection[Value]) -> frozenset[Value]:
    """The values of some functions that all lanes share. `functions[0]` is called from outside; `shared`: those of its
    arguments, and of the values that all functions read, which all lanes share there."""
    args = {f.name: f.region.args for f in functions}
    first = functions[0].region.args
    varying = {a for a in first if a not in shared}
    outside = [v for v in shared if v not in first]
    while True:
        known = {*outside, *(a for f in functions for a in f.region.args if a not in varying and _is_small(a))}
        found = _SharedValues(known)
        for f in functions:
            found.function(f)
        more = {
            a
            for callee, operands in found.calls
            for a, x in zip(args[callee], operands, strict=True)
            if a not in varying and not found.is_shared(x)
        }
        more |= {a for f in functions for a in _mixed(f) if a not in varying}
        if not more:
            return frozenset(found.known)
        varying |= more


def shared_inside(region: Region, shared: Collection[Value]) -> frozenset[Value]:
    """The values of a region that all lanes share which are in it, where they share some others."""
    found = _SharedValues(set(shared))
    found.body(region)
    return frozenset(found.known)


@dataclass(frozen=True)
class Carried:
    """What the lanes share that are in a loop: of what it carries, by number, and all that is `inside` of it;
    `together`: they leave it together."""

    numbers: frozenset[int] = frozenset()
    inside: frozenset[Value] = frozenset()
    together: bool = False


NOTHING = Carried()


def carried_alike(loop: For | While, shared: Collection[Value], given: Sequence[bool]) -> Carried:
    """`shared`: of what a loop reads from outside, what all lanes share; `given`: which of what it begins with."""
    found = _SharedValues(set(shared))
    args = loop.body.args[1:] if isinstance(loop, For) else loop.body.args
    test = loop.condition if isinstance(loop, While) else None
    if isinstance(loop, For):
        found.known.add(loop.body.args[0])
    varying, together = found.fixed(loop, args, test, {k for k, x in enumerate(given) if not x})
    numbers = frozenset(k for k, a in enumerate(args) if k not in varying and _is_small(a))
    return Carried(numbers, frozenset(found.known), together)


def one_of(branch: If, number: int) -> Operand | None:
    """The one value that a result of a branch has: in both arms, or where it has any. Then lanes of both arms share it,
    if they do where it is computed."""
    of_then, of_orelse = branch.then.results[number], branch.orelse.results[number]
    if _is_undefined(branch.then, of_then):
        return of_orelse
    if _is_undefined(branch.orelse, of_orelse) or (of_then == of_orelse and isinstance(of_then, Value)):
        return of_then
    return None


def _is_undefined(arm: Region, x: Operand) -> bool:
    return any(isinstance(i, Apply) and i.op.name == "undefined" and x in i.results for i in arm.body)


def last_calls(function: Function) -> list[Call]:
    """The calls of a function to itself that are the last thing it does: turns of a loop."""
    return list(_last_calls(function.name, function.region.body, function.region.results))


def yielded(branch: If, arm: Region, results: Sequence[Operand]) -> tuple[Operand, ...]:
    """What is returned behind an arm of a branch that is the last instruction before `results`."""
    of_arm = dict(zip(branch.results, arm.results, strict=True))
    return tuple(of_arm.get(x, x) if isinstance(x, Value) else x for x in results)


def _last_calls(name: str, body: Sequence[Instruction], results: Sequence[Operand]) -> list[Call]:
    match body[-1] if body else None:
        case Call(callee=callee) as call if callee == name and call.results == tuple(results):
            return [call]
        case If(then=then, orelse=orelse) as branch:
            arms = (then, orelse)
            return [c for arm in arms for c in _last_calls(name, arm.body, yielded(branch, arm, results))]
        case _:
            return []


def _mixed(function: Function) -> list[Value]:
    """The arguments that lanes of several last calls may bring different values for."""
    turns = last_calls(function)
    if len(turns) < 2:
        return []
    return [a for k, a in enumerate(function.region.args) if any(c.operands[k] != a for c in turns)]


def _is_small(x: Operand) -> bool:
    return isinstance(x.type, Array) and in_registers(math.prod(x.type.shape))


class _SharedValues:
    """`known`: what is shared as far as the regions are read; `calls`: those that were met, and what they pass on."""

    def __init__(self, known: set[Value]) -> None:
        self.known = known
        self.calls: list[tuple[str, tuple[Operand, ...]]] = []

    def is_shared(self, x: Operand) -> bool:
        return isinstance(x, Literal) or x in self.known

    def function(self, function: Function) -> None:
        self.body(function.region)

    def body(self, region: Region) -> bool:
        """Reads a region. Is all that it yields shared?"""
        for i in region.body:
            self.instruction(i)
        return all(map(self.is_shared, region.results))

    def add(self, values: Sequence[Value]) -> None:
        self.known.update(v for v in values if _is_small(v))

    def instruction(self, i: Instruction) -> None:
        match i:
            case Apply(op=op, operands=xs):
                if op.name not in CONTROL and all(map(self.is_shared, xs)):
                    self.add(i.results)
            case If(condition=condition, then=then, orelse=orelse):
                arms = (then, orelse)
                for arm in arms:
                    self.body(arm)
                jumps = self.is_shared(condition)
                for k, (r, *both) in enumerate(zip(i.results, then.results, orelse.results, strict=True)):
                    if (jumps or one_of(i, k) is not None) and all(map(self.is_shared, both)):
                        self.add([r])
            case For(count=count, body=body):
                self.known.add(body.args[0])  # lanes that still turn are in the same turn
                self.carried(i, body.args[1:], None, self.is_shared(count))
            case While(condition=test, body=body):
                self.carried(i, body.args, test)
            case Call(callee=callee, operands=xs):
                self.calls.append((callee, xs))
            case Map():
                raise AssertionError("a loop by now")
            case _:
                assert_never(i)

    def carried(self, i: For | While, args: Sequence[Value], test: Region | None, together: bool = True) -> None:
        """A loop. `together`: all lanes have as many turns, as far as its count says."""
        varying, alike = self.fixed(i, args, test, {k for k, x in enumerate(i.init) if not self.is_shared(x)})
        if together and alike:
            self.add([r for k, r in enumerate(i.results) if k not in varying])

    def fixed(
        self, i: For | While, args: Sequence[Value], test: Region | None, varying: set[int]
    ) -> tuple[set[int], bool]:
        """What of a loop the lanes in it do not share, by number, of which `varying` they do not begin with; and
        whether its test is shared."""
        before, calls = set(self.known), len(self.calls)
        while True:
            self.known = set(before)
            del self.calls[calls:]
            self.add([a for k, a in enumerate(args) if k not in varying])
            together = True
            if test is not None:
                self.add([a for k, a in enumerate(test.args) if k not in varying])
                together = self.body(test)
            self.body(i.body)
            more = {k for k, x in enumerate(i.body.results) if not self.is_shared(x)}
            if more <= varying:
                return varying, together
            varying = varying | more
