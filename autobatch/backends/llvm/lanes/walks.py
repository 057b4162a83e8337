"""Which loops the lanes of a gang walk through together (`together.py`), and what is known of a turn before it runs.

while node < n:                        the place: `node`, at which x, y and skip are read
  far = hit(x[node], y[node], ...)
  if far < best: node += 1             the ends of a turn: the next place, in some of the lanes,
  else: node = skip[node]              and one that all lanes share which are at one place
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from autobatch.backends.llvm.lanes.floats import FLOATS
from autobatch.backends.llvm.lanes.tensors import SMALL
from autobatch.backends.llvm.lanes.uniform import Carried, carried_alike, shared_inside
from autobatch.ir.core import Apply, If, Instruction, Literal, Operand, Region, Value, While, walk
from autobatch.ir.types import Array

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
    if any(not isinstance(a.type, Array) or math.prod(a.type.shape) > SMALL for a in args):
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
    return isinstance(x.type, Array) and math.prod(x.type.shape) > SMALL


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
