"""Comprehensions that are reduced at once are loops that carry what they reduce to.

    %xs = map %n do (%i): ... yield %x               %t = for %n (0) do (%i, %a):
    %t = reduce[kind='sum'](%xs)              ->       ...; %b = add(%a, %x); yield %b

A program of blocks has no lists: this is what becomes of `max(f(move) for move in range(n))` there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from autobatch.ir import jax_compat, leaf
from autobatch.ir.core import Apply, For, Instruction, Literal, Map, Operand, Region, Value, operands, regions
from autobatch.ir.ops import own
from autobatch.ir.rewrite import Fresh
from autobatch.ir.types import BOOL, Array
from autobatch.source import Span

_COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "sum": jnp.add,
    "prod": jnp.multiply,
    "any": lambda a, x: a | (x != 0),
    "all": lambda a, x: a & (x != 0),
}
_START: dict[str, Any] = {"sum": 0, "prod": 1, "any": False, "all": True}


@dataclass(frozen=True)
class ReducedComprehension:
    """`loop` stands for the comprehension, and `behind` for its reductions, which are `gone`."""

    loop: For
    before: tuple[Apply, ...]
    behind: tuple[Instruction, ...]
    gone: frozenset[int]


def as_loop(
    comprehension: Map, rest: Sequence[Instruction], results: Sequence[Operand], fresh: Fresh
) -> ReducedComprehension | None:
    """The loop for a comprehension whose lists are only reduced by the instructions `rest` behind it; None where they
    are read in another way. `results` are what the region yields."""
    lists = set(comprehension.results)
    reductions = [i for i in rest if _is_reduction(i, comprehension)]
    others = [i for i in rest if i not in reductions]
    if any(x in lists for i in others for x in _reads(i)) or any(x in lists for x in results):
        return None
    return _Reducing(comprehension, reductions, fresh).run(rest)


def _is_reduction(instruction: Instruction, comprehension: Map) -> bool:
    if not isinstance(instruction, Apply) or instruction.op.is_jax or instruction.operands[:1] == ():
        return False
    if instruction.operands[0] not in comprehension.results:
        return False
    fixed = not comprehension.filtered and isinstance(comprehension.count, Literal)
    return instruction.op.name in ("reduce", "length") or (instruction.op.name == "stack" and fixed)


def _reads(instruction: Instruction) -> set[Operand]:
    """What an instruction and those inside it read."""
    found = set(operands(instruction))
    for region in regions(instruction):
        found.update(region.results)
        found.update(x for i in region.body for x in _reads(i))
    return found


class _Reducing:
    def __init__(self, comprehension: Map, reductions: Sequence[Instruction], fresh: Fresh) -> None:
        self.of, self.fresh = comprehension, fresh
        self.reductions = [r for r in reductions if isinstance(r, Apply)]
        self.body: list[Instruction] = list(comprehension.body.body)
        self.yielded = dict(
            zip(comprehension.results, comprehension.body.results[comprehension.filtered :], strict=True)
        )

    def run(self, rest: Sequence[Instruction]) -> ReducedComprehension:
        of = self.of
        turn = of.body.args[0]
        some = self.fresh.value(BOOL)
        carried: list[Value] = [some]
        init: list[Operand] = [Literal(False, BOOL)]
        nexts: list[Operand] = []
        out = list(self.fresh.like(carried))
        before: list[Apply] = []
        keep: Operand = of.body.results[0] if of.filtered else Literal(True, BOOL)
        (now,) = self.traced(lambda a, k: a | k, (some, keep), of.span)
        nexts.append(now)
        for reduction in self.reductions:
            result = reduction.results[0]
            held = [self.fresh.value(result.type) for _ in range(1 + _shares(reduction))]
            init += [self.start(reduction, before)] * len(held)
            nexts += self.folded(reduction, held, some, turn, keep)
            carried += held
            out += [result, *self.fresh.like(held[1:])]
        loop = For(tuple(out), of.count, tuple(init), Region((turn, *carried), tuple(self.body), tuple(nexts)), of.span)
        checks = tuple(
            Apply((), own("check", kind="ValueError", message=EMPTY[r.op["kind"]]), (out[0],), r.span)
            for r in self.reductions
            if r.op.name == "reduce" and r.op["kind"] in EMPTY and not _is_checked(r, rest)
        )
        gone = frozenset(n for n, i in enumerate(rest) if any(i is r for r in self.reductions))
        return ReducedComprehension(loop, tuple(before), checks, gone)

    def start(self, reduction: Apply, before: list[Apply]) -> Operand:
        """What a reduction gives where there are no elements; `max` and `min` give nothing that is read."""
        type = reduction.results[0].type
        assert isinstance(type, Array)
        value = _START.get(reduction.op["kind"], 0) if reduction.op.name == "reduce" else 0
        if type.is_scalar and not type.dtype.startswith("complex"):
            of = bool if type.is_bool else int if type.is_integer else float
            return Literal(of(value), type)
        made = self.traced(
            lambda: jnp.full(type.shape, value, jax_compat.device_dtype(type)), (), reduction.span, before
        )
        return made[0]

    def folded(
        self, reduction: Apply, state: Sequence[Value], some: Value, turn: Value, keep: Operand
    ) -> list[Operand]:
        """What a turn makes of what is held so far: the result, and how many elements share its derivative."""
        held = state[0]
        assert isinstance(reduction.operands[0], Value)
        x = self.yielded[reduction.operands[0]]
        if reduction.op.name == "stack":
            return self.traced(
                lambda a, x, i: jax.lax.dynamic_update_index_in_dim(a, jnp.asarray(x, a.dtype), i, 0),
                (held, x, turn),
                reduction.span,
            )
        if reduction.op.name == "length":
            return self.traced(lambda a, k: a + k, (held, keep), reduction.span)
        kind = reduction.op["kind"]
        combine = _COMBINE.get(kind) or partial(leaf.extreme, kind, _is_even(reduction))

        @jax_compat.choosing
        def fold(x: Any, some: Any, keep: Any, a: Any, *count: Any) -> list[Any]:
            new = leaf.shared_extreme(kind, a, count[0], x) if count else [combine(a, x)]
            if kind not in _START:
                new = [jnp.where(some, n, first) for n, first in zip(new, (x, 1), strict=False)]
            chosen = (jnp.where(keep, n, old) for n, old in zip(new, (a, *count), strict=True))
            return [n if n.dtype == a.dtype else n.astype(a.dtype) for n in chosen]

        first = len(self.body)
        found = self.traced(fold, (x, some, keep, *state), reduction.span)
        self.body[first:] = [_marked(i, reduction.op.exact) for i in self.body[first:]]
        return found

    def traced(
        self, function: Callable[..., Any], xs: Sequence[Operand], span: Span, into: list[Apply] | None = None
    ) -> list[Operand]:
        """The results of a function of JAX, whose operations join the turn, or `into`."""
        closed, _ = jax_compat.trace(function, *(x.type for x in xs if isinstance(x.type, Array)))
        add = self.body.append if into is None else into.append
        return jax_compat.inline(closed, xs, self.fresh.value, _no_constant, add, span)


def _marked(i: Instruction, exact: bool) -> Instruction:
    """An addition or product that a sum or product is made of, which may overflow as that may (`exact`)."""
    if not exact or not isinstance(i, Apply) or i.op.name not in ("add", "mul"):
        return i
    return replace(i, op=replace(i.op, exact=True))


def _is_even(reduction: Apply) -> bool:
    return ("ties", "even") in reduction.op.params


def _shares(reduction: Apply) -> bool:
    """Do equal elements share a derivative?"""
    type = reduction.results[0].type
    return _is_even(reduction) and isinstance(type, Array) and not (type.is_integer or type.is_bool)


def _is_checked(reduction: Apply, rest: Sequence[Instruction]) -> bool:
    """Has the front end asked already whether there are elements?"""
    before = rest[: next(n for n, i in enumerate(rest) if i is reduction)]
    return any(isinstance(i, Apply) and i.op.name == "check" and i.op["kind"] == "ValueError" for i in before)


def _without_elements(function: Callable[[Any], Any]) -> str:
    """What Python says of an empty sequence."""
    try:
        function(())
    except ValueError as error:
        return str(error)
    raise AssertionError(f"{function} does not fail")


EMPTY = {"max": _without_elements(max), "min": _without_elements(min)}


def _no_constant(array: Any) -> Literal:
    raise AssertionError("a fold holds no array")
