"""Arithmetic on statuses: what an example has failed with, as a number, and 0 where with nothing."""

from __future__ import annotations

from collections.abc import Sequence

import jax

from autobatch.ir.blocks import STATUS
from autobatch.ir.core import Apply, Instruction, Literal, Operand, Value
from autobatch.ir.ops import Op
from autobatch.ir.rewrite import Fresh
from autobatch.ir.types import BOOL, Type

FINE = Literal(0, STATUS)
"""The status of what did not fail."""


class Statuses:
    """Writes instructions behind those that are `made` already."""

    def __init__(self, fresh: Fresh) -> None:
        self.fresh = fresh

    def is_fine(self, status: Operand, made: list[Instruction]) -> Value:
        return self.of(BOOL, "eq", jax.lax.eq_p, (status, FINE), made)

    def both(self, x: Operand, y: Operand, made: list[Instruction]) -> Value:
        return self.of(BOOL, "and", jax.lax.and_p, (x, y), made)

    def chosen(self, condition: Operand, one: Operand, other: Operand, made: list[Instruction]) -> Value:
        """`one if condition else other`"""
        return self.of(STATUS, "select_n", jax.lax.select_n_p, (condition, other, one), made)

    def first(self, status: Operand, other: Operand, made: list[Instruction]) -> Value:
        """`status if status != 0 else other`"""
        return self.chosen(self.is_fine(status, made), other, status, made)

    def moved(self, status: Operand, base: int, made: list[Instruction]) -> Value:
        """`status + base if status != 0 else 0`"""
        fine = self.is_fine(status, made)
        later = self.of(STATUS, "add", jax.lax.add_p, (status, Literal(base, STATUS)), made)
        return self.chosen(fine, FINE, later, made)

    def of(self, type: Type, name: str, primitive: object, xs: Sequence[Operand], made: list[Instruction]) -> Value:
        found = self.fresh.value(type)
        made.append(Apply((found,), Op(name, (), primitive), tuple(xs)))
        return found
