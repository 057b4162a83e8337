"""Which memory the values of a region may still read: what nobody reads again is written over.

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
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from autobatch.backends.llvm.lanes.tensors import Tensor, in_registers
from autobatch.ir.core import Apply, Array, For, If, Instruction, Operand, Region, Value, While, regions, walk
from autobatch.ir.leaf import BlockProgram
from autobatch.ir.ops import Op
from autobatch.ir.rewrite import free_values

Places = frozenset[str]
"""Pointers to memory of our own."""
NOTHING: Places = frozenset()

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
            self.set(v, place_of(x) or self.of((v,)))
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
        return NOTHING.union(*(self._reads.get(v, NOTHING) for v in values if isinstance(v, Value)))

    def set(self, v: Value, places: Places) -> None:
        """What a value reads."""
        self._reads[v] = places
        for place in places:
            self._readers.setdefault(place, set()).add(v)

    def made(self, v: Value, x: Tensor, among: Places) -> None:
        """A value is a tensor. `among`: what it reads where it is not laid out."""
        self.set(v, place_of(x) if x.memory is not None else among)

    def results(self, i: Instruction, xs: Mapping[Value, Tensor]) -> None:
        """The results of the instruction that is written, of which single numbers have been read."""
        among = self.of(values_read(i)).union(*(place_of(x) for x in xs.values()))
        if isinstance(i, Apply) and i.op.name == "masked" and not i.op.is_jax:
            among |= self.of(i.op["region"].results)
        for v, x in xs.items():
            self.made(v, x, NOTHING if x.size == 1 or isinstance(i, If | While | For) else among)
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
        own = place_of(x)
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


Made = Mapping[Value, tuple[Instruction, int]]
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
            made: list[Made] = [{r: (i, k) for i in arm.body for k, r in enumerate(i.results)} for arm in arms]
            found: dict[int, Value] = {}
            for k, xs in enumerate(zip(*(arm.results for arm in arms), strict=True)):
                origins = {v for v in map(self.origin, xs, made) if v is not None}
                if len(origins) == 1:
                    found[k] = origins.pop()
            self.known[id(branch)] = branch, found
        return self.known[id(branch)][1]

    def origin(self, x: Operand | None, made: Made) -> Value | None:
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


def place_of(x: Tensor) -> Places:
    return frozenset((x.memory.pointer,)) if x.memory is not None and x.memory.own else NOTHING


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
    live = behind | _values(region.results)
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
            return _values(xs)
        case If(condition=condition):
            found = _values([condition])
        case While(init=init) | For(init=init):
            found = _values(init)
        case _:
            found = set()
    return found.union(*(free_values(r) for r in regions(i)))


def _values(xs: Iterable[object]) -> set[Value]:
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
