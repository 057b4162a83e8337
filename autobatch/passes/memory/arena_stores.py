"""Stores that end both arms of a branch stand behind it: an array that either arm changes at one place is not copied.

    %new = if %c then:                                       %u, %k = if %c then:
      %a = dynamic_update_slice(%old, %x, %i)                  yield %x, %i
      yield %a                                           ->   else:
    else:                                                      yield %y, %j
      %b = dynamic_update_slice(%old, %y, %j)                %new = dynamic_update_slice(%old, %u, %k)
      yield %b

Under a mask both arms run, and each would change an array of its own; machine code would keep the old one for the other
arm. An arm that changes nothing stores what is there. So a push and a pop with a push move one element of a stack
rather than all of it. (Code sinking; cf. Briggs and Cooper, "Effective partial redundancy elimination", 1994.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from autobatch.ir import jax_compat
from autobatch.ir.core import Apply, If, Instruction, Literal, Module, Operand, Region, Value, operands, regions, walk
from autobatch.ir.ops import Op
from autobatch.ir.rewrite import Fresh, with_regions
from autobatch.ir.types import Array

STORE = "dynamic_update_slice"


def stores_behind_branches(module: Module) -> Module:
    """The module with such stores of its entry moved."""
    entry, fresh = module.functions[0], Fresh(module)
    return replace(module, functions=(replace(entry, region=_region(entry.region, fresh)), *module.functions[1:]))


def _region(region: Region, fresh: Fresh) -> Region:
    body: list[Instruction] = []
    for i in region.body:
        new = with_regions(i, lambda r: _region(r, fresh))
        body += _behind(new, fresh) if isinstance(new, If) else [new]
    return replace(region, body=tuple(body))


@dataclass(frozen=True)
class _Stored:
    """An array of which each arm, at its end, changes one place, or nothing (None)."""

    result: Value
    base: Value
    arms: tuple[Apply | None, Apply | None]

    @property
    def store(self) -> Apply:
        return next(i for i in self.arms if i is not None)

    @property
    def update(self) -> Array:
        found = self.store.operands[1].type
        assert isinstance(found, Array)
        return found

    def moving(self) -> list[int]:
        """The operands that the branch decides: all but the array, and indices that are one number in both arms."""
        held = [i.operands for i in self.arms if i is not None]
        return [k for k in range(1, len(held[0])) if k == 1 or any(not _same(xs[k], held[0][k]) for xs in held)]


def _same(a: Operand, b: Operand) -> bool:
    return isinstance(a, Literal) and a == b


def _behind(branch: If, fresh: Fresh) -> list[Instruction]:
    """The branch, and the stores behind it."""
    found = [s for k in range(len(branch.results)) if (s := _stored(branch, k)) is not None]
    if not found:
        return [branch]
    taken = {s.result for s in found}
    kept = [k for k, r in enumerate(branch.results) if r not in taken]
    made = [{k: fresh.value(s.store.operands[k].type) for k in s.moving()} for s in found]
    arms = [_arm(arm, which, found, kept, fresh) for which, arm in enumerate((branch.then, branch.orelse))]
    results = (*(branch.results[k] for k in kept), *(v for values in made for v in values.values()))
    stores = [
        replace(
            s.store, results=(s.result,), operands=(s.base, *(v.get(k, x) for k, x in enumerate(s.store.operands) if k))
        )
        for s, v in zip(found, made, strict=True)
    ]
    return [replace(branch, results=results, then=arms[0], orelse=arms[1]), *stores]


def _stored(branch: If, k: int) -> _Stored | None:
    """How both arms make result `k`, where they store into one array from outside."""
    arms = branch.then, branch.orelse
    made = tuple(_store(arm, arm.results[k]) for arm in arms)
    bases = {arm.results[k] if i is None else i.operands[0] for arm, i in zip(arms, made, strict=True)}
    stores = [i for i in made if i is not None]
    if not stores or len(bases) > 1 or not isinstance(base := bases.pop(), Value):
        return None
    if any(base in _defined(arm) for arm in arms):
        return None
    if len({tuple(x.type for x in i.operands) for i in stores}) > 1:
        return None
    return _Stored(branch.results[k], base, (made[0], made[1]))


def _store(arm: Region, result: Operand) -> Apply | None:
    """The store that makes a result which nothing else in the arm reads."""
    made = next((i for i in arm.body if result in i.results), None)
    if not isinstance(made, Apply) or made.op.name != STORE:
        return None
    inside = any(result in operands(i) or any(result in r.results for r in regions(i)) for i in walk(arm))
    return None if inside or arm.results.count(result) > 1 else made


def _defined(arm: Region) -> set[Value]:
    return {r for i in arm.body for r in i.results}


def _arm(arm: Region, which: int, found: Sequence[_Stored], kept: Sequence[int], fresh: Fresh) -> Region:
    """An arm without its stores, which yields what they would have stored, and where."""
    gone = {id(s.arms[which]) for s in found}
    body = [i for i in arm.body if id(i) not in gone]
    results = [arm.results[k] for k in kept]
    for s in found:
        own, moving = s.arms[which], s.moving()
        if own is not None:
            results += [own.operands[k] for k in moving]
            continue
        indices = [Literal(0, x.type) for x in s.store.operands[2:]]
        here = fresh.value(s.update)
        read = Op("dynamic_slice", (("slice_sizes", s.update.shape),), jax_compat.primitive("dynamic_slice"))
        at: list[Operand] = [i if k in moving else s.store.operands[k] for k, i in enumerate(indices, 2)]
        body.append(Apply((here,), read, (s.base, *at), s.store.span))
        results += [here if k == 1 else indices[k - 2] for k in moving]
    return replace(arm, body=tuple(body), results=tuple(results))
