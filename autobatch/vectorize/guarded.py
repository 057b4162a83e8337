"""What an arm reads is computed inside it, where its derivative may be infinite elsewhere.

    %3 = div(1.0, %1)                          %3 = div(1.0, %1)
    %4 = gt(%3, 0.5)                           %4 = gt(%3, 0.5)
    %5 = if %4 then: yield %3           ->     %5 = if %4 then: %6 = div(1.0, %1); yield %6
         else: yield 0.0                            else: yield 0.0

A row that does not take the arm has a cotangent of zero for `%3`, and zero times infinity is not a number. Inside the
arm the row is masked. (`y != 0 and 1 / y > 0.5` guards the division that the arm does again.) What both arms hand on,
every row uses: it stays outside, and is computed once.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import replace

from autobatch.ir.core import Apply, If, Instruction, Operand, Region, Value
from autobatch.ir.elementwise import ELEMENTWISE, INFINITE
from autobatch.ir.rewrite import Fresh, copy_instruction, copy_region, free_values, with_regions
from autobatch.ir.types import Array

CARRYING = INFINITE | {"add", "cos", "logistic", "mul", "neg", "sin", "square", "sub", "tanh"}
"""Operations through which a derivative passes, whatever their operands are."""


class Guard:
    """Moves copies of such operations into the arms of branches that computed numbers decide."""

    def __init__(self, fresh: Fresh, device: set[Value]) -> None:
        """`device`: the values that computed numbers decide; it learns the copies."""
        self.fresh, self.device = fresh, device

    def region(self, region: Region, outside: Mapping[Value, Apply]) -> Region:
        """`outside`: what makes the values that are visible here."""
        makers = dict(outside)
        body: list[Instruction] = []
        for instruction in region.body:
            if isinstance(instruction, If) and instruction.condition in self.device:
                common = _used(instruction.then) & _used(instruction.orelse)
                arms = [self.arm(r, makers, common) for r in (instruction.then, instruction.orelse)]
                instruction = replace(instruction, then=arms[0], orelse=arms[1])
            instruction = with_regions(instruction, lambda r: self.region(r, makers))
            if isinstance(instruction, Apply):
                makers.update(dict.fromkeys(instruction.results, instruction))
            body.append(instruction)
        return replace(region, body=tuple(body))

    def arm(self, arm: Region, makers: Mapping[Value, Apply], common: Set[Value]) -> Region:
        copies: list[Instruction] = []
        env: dict[Value, Operand] = {}

        def again(x: Operand) -> None:
            if not isinstance(x, Value) or x in env or x in common or not _moves(x) or not self.is_infinite(x, makers):
                return
            for y in makers[x].operands:
                again(y)
            copies.append(copy_instruction(makers[x], env, self.fresh))
            self.device.update(copies[-1].results)

        for x in free_values(arm):
            again(x)
        if not copies:
            return arm
        inside = copy_region(arm, env, None)
        return replace(inside, body=(*copies, *inside.body))

    def is_infinite(self, x: Operand, makers: Mapping[Value, Apply]) -> bool:
        """Does `x` come of such an operation through others that work number by number?"""
        todo, seen = [x], set[Operand]()
        while todo:
            y = todo.pop()
            made = makers.get(y) if isinstance(y, Value) and y in self.device else None
            if y in seen or made is None or not (made.op.name in INFINITE or made.op.name in ELEMENTWISE):
                continue
            if made.op.name in INFINITE:
                return True
            seen.add(y)
            todo += made.operands
        return False


def _used(arm: Region) -> set[Value]:
    """The values that what an arm yields is computed of, by operations that every row does which takes it: they have a
    cotangent that the row would have without a batch."""
    found = {x for x in arm.results if isinstance(x, Value) and _moves(x)}
    for i in reversed(arm.body):
        if isinstance(i, Apply) and i.op.name in CARRYING and found.intersection(i.results):
            found.update(x for x in i.operands if isinstance(x, Value) and _moves(x))
    return found


def _moves(x: Value) -> bool:
    return isinstance(x.type, Array) and x.type.dtype.startswith(("float", "complex", "bfloat"))
