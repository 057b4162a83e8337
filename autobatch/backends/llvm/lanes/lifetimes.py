"""Which memory the values of a region may still read: what nobody reads again is written over.

    %1 = mul(%x, 2.0)                  array A
    %2 = scatter(%1, %i, %y)           the last read of %1: %2 is A with one number changed, and not a copy
    %3 = add(%2, %x)                   array B; the last read of %2
    %4 = mul(%3, %3)                   array A again

An array that is computed where it is read (`tensors.py`) reads what its operands read, until it is laid out. Time is
the order of the text, in which all turns of a loop are one: what a region inside another reads from outside is read for
as long as it runs, so nothing in it writes over that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from autobatch.backends.llvm.lanes.tensors import Tensor
from autobatch.ir.core import Apply, For, If, Instruction, Region, Value, While, regions
from autobatch.ir.rewrite import free_values

Places = frozenset[str]
"""Pointers to memory of our own."""
NOTHING: Places = frozenset()


@dataclass
class Scope:
    """A region that is being written. `last`: which instruction reads a value last, or their number, where its results
    do; `captured`: what is read from outside for as long as it runs; `now`: the instruction that is written."""

    body: tuple[Instruction, ...]
    last: dict[Value, int]
    captured: Places
    known: list[Value] = field(default_factory=list)
    now: int = 0

    def is_written(self, i: Instruction) -> bool:
        return bool(self.body) and self.body[self.now] is i

    def later(self) -> Iterable[Value]:
        """What is read behind the instruction that is written."""
        return (v for v in self.known if self.last.get(v, -1) > self.now)


class Lifetimes:
    """Of the values of regions inside each other. `reads`: what each value reads when it is read itself."""

    def __init__(self) -> None:
        self.reads: dict[Value, Places] = {}
        self.scopes: list[Scope] = []
        self.carried: Counter[str] = Counter()
        """The memory of loops that are being written, of how many each: it is needed until the outermost ends."""

    # ---- regions

    def enter(self, region: Region, args: Iterable[Tensor], lasting: bool) -> None:
        """`lasting`: what the arguments are is needed behind the region."""
        given = [_place(x) for x in args]
        for v, own in zip(region.args, given, strict=True):
            self.reads[v] = own or self.reads.get(v, NOTHING)
        inside = regions(self.scopes[-1].body[self.scopes[-1].now]) if self.scopes and self.scopes[-1].body else ()
        captured = self.of(v for r in (region, *inside) for v in free_values(r))
        if lasting:
            captured |= self.of(region.args)
        self.scopes.append(Scope(region.body, _last_reads(region), captured, list(region.args)))

    def leave(self) -> None:
        self.scopes.pop()

    # ---- values

    def of(self, values: Iterable[object]) -> Places:
        return NOTHING.union(*(self.reads.get(v, NOTHING) for v in values if isinstance(v, Value)))

    def made(self, v: Value, x: Tensor, among: Places) -> None:
        """A value is a tensor. `among`: what it reads where it is not laid out."""
        self.reads[v] = _place(x) if x.memory is not None else among

    def results(self, i: Instruction, xs: Mapping[Value, Tensor]) -> None:
        """The results of the instruction that is written, of which single numbers have been read."""
        among = self.of(values_read(i)).union(*(_place(x) for x in xs.values()))
        if isinstance(i, Apply) and i.op.name == "masked" and not i.op.is_jax:
            among |= self.of(i.op["region"].results)
        for v, x in xs.items():
            self.made(v, x, NOTHING if x.size == 1 or isinstance(i, If | While | For) else among)
            self.scopes[-1].known.append(v)

    def is_free(self, place: str) -> bool:
        """Does nothing read some memory behind the instruction that is written?"""
        return not any(
            place in s.captured or any(place in self.reads.get(v, NOTHING) for v in s.later()) for s in self.scopes
        )

    def may_change(self, x: Tensor, others: Iterable[object]) -> bool:
        """May the instruction that is written have the memory of an operand, beside its others?"""
        own = _place(x)
        return bool(own) and own.isdisjoint(self.of(others)) and all(map(self.is_free, own))

    def ended(self) -> list[str]:
        """The memory that nothing reads from now on, behind the instruction that is written."""
        i = self.scopes[-1].body[self.scopes[-1].now]
        held = self.of((*values_read(i), *i.results))
        found = frozenset(p for p in held if not self.carried[p] and self.is_free(p))
        if found:  # who gets it next has it alone: what was there is forgotten, so that it ends once
            self.reads = {v: places - found for v, places in self.reads.items()}
        return sorted(found)


def _place(x: Tensor) -> Places:
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
