"""Branches and loops that numbers of the rows decide, for all rows at once under an explicit mask.

    m = live & (x > 0)
    y = cond(any(m), arm, zeros)            an arm that no row takes is skipped
    z = select(x > 0, y, other)

    active = live & test(h)
    while any(active):                      a row that is done keeps what it has
      h = select(active, body(h), h)
      active = active & test(h)

What all rows share stays uniform: a condition of it is a plain `cond`, a loop that it ends a plain `while`. Where a
derivative is wanted every arm is behind its `any`, and inside it rows outside the mask compute with the numbers of one
inside (DESIGN.md, section 4: double where), so nothing that is not finite comes of them. A loop has a derivative by
`backends/xla/masked_loops.py`.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, assert_never

import jax
import jax.numpy as jnp

from autobatch.backends.xla import stack_adjoint, sweeps
from autobatch.backends.xla.compaction import arm_width, loop_widths, packed
from autobatch.backends.xla.cut import over_rows_in_part
from autobatch.backends.xla.lanes import WITH_CONTROL, is_float, over_rows, select_rows
from autobatch.backends.xla.machine_rows import by_machine_code
from autobatch.backends.xla.masked_loops import Until, differentiable_loop, plain_loop
from autobatch.ir import jax_compat, leaf
from autobatch.ir.core import (
    Apply,
    Call,
    For,
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
from autobatch.ir.elementwise import MOVING
from autobatch.ir.masked import NO_LIMIT, Allowed, limit_of, may_have_failed
from autobatch.ir.ops import Op
from autobatch.ir.rewrite import free_values, region_values
from autobatch.ir.types import Array
from autobatch.passes.analysis.unused import unused_results
from autobatch.passes.autodiff.rules import inner_pullback

GUARDED = 10
"""Operations from which on an arm stands behind `any` of its mask."""


@dataclass(frozen=True)
class LiveRows:
    """`count` rows of which those of `live`, bool[count], matter. None: there are no rows. `loops`: the option of that
    name, what runs loops over them."""

    count: int
    live: Any
    loops: str = "xla"


def on_rows(
    op: Op, xs: Sequence[Any], varying: Sequence[bool], rows: LiveRows | None, careful: bool = False
) -> list[Any]:
    """The results of a masked operation, or of the pullback of one: with a leading axis of rows where `vary` says so.
    `careful`: derivatives of them are wanted."""
    if op.name == "gradient_of":
        return _inner_gradient(op, xs, varying, rows, careful)
    if rows is not None and not careful:

        def plain(xs: Sequence[Any], live: Any) -> list[Any]:
            return on_rows(op, xs, varying, LiveRows(rows.count, live))

        found = by_machine_code(op, xs, varying, rows.live, rows.loops, plain)
        if found is not None:
            return found
    if op.name == "pullback":
        return _pulled_back(op["rule"], xs, varying, rows)
    if op.name == "blocks":
        return _blocks(op, xs, varying, rows if any(varying) else None, careful)
    region: Region = op["region"]
    if rows is None or not any(varying):
        return _Lanes(region, [False] * len(xs), 0, careful).run(region, xs, None)
    cut: Container[Value] = frozenset()
    if careful:
        cut = frozenset(region_values(region)) if may_have_failed(op) else unused_results(region, region.args)
    lanes = _Lanes(region, varying, rows.count, careful, cut)
    found = lanes.run(region, lanes.entering(xs, varying, rows.live), rows.live)
    return [lanes.spread(x, r) for x, r in zip(found, region.results, strict=True)]


def packings(op: Op, varying: Sequence[bool], rows: int) -> Iterator[tuple[While | If, list[int]]]:
    """The outermost loops of a masked operation whose rows differ in their turns, and its arms that few rows may take,
    each with the numbers of rows that it is compiled for."""
    lanes = _Lanes(op["region"], varying, rows, False)

    def inside(region: Region, lanes: _Lanes) -> Iterator[tuple[While | If, list[int]]]:
        for instruction in region.body:
            below = lanes
            if isinstance(instruction, While) and (widths := lanes.widths(instruction)) is not None:
                yield instruction, widths
                below = lanes.of_width(rows, "loops")
            elif isinstance(instruction, If) and lanes.varies(instruction.condition):
                for arm in (instruction.then, instruction.orelse):
                    if (width := lanes.width_of(arm)) is not None:
                        yield instruction, [rows, width]
            for r in regions(instruction):
                yield from inside(r, below)

    return inside(op["region"], lanes)


def vary(op: Op, varying: Sequence[bool]) -> list[bool]:
    """Which results of `on_rows` have an axis of rows."""
    if op.name != "pullback":
        count = len(op["program"].types) if op.name == "blocks" else len(op["region"].results)
        count = len(op["wrt"]) if op.name == "gradient_of" else count
        return [any(varying)] * count
    rule: leaf.DerivativeRule = op["rule"]
    rest = iter(varying)
    of = [number is None and next(rest) for number in rule.numbers]
    return [of[k] for k in rule.wrt]


def _blocks(op: Op, xs: Sequence[Any], varying: Sequence[bool], rows: LiveRows | None, careful: bool) -> list[Any]:
    """A program of blocks on rows, or once."""
    count = next((x.shape[0] for x, v in zip(xs, varying, strict=True) if v), 1)
    live = None if rows is None else rows.live
    if careful:
        found = stack_adjoint.differentiable(op, xs, varying, count, live)
    else:
        found, _ = sweeps.run(op, xs, varying, count, live)
    return found if any(varying) else [x[0] for x in found]


def _inner_gradient(
    op: Op, xs: Sequence[Any], varying: Sequence[bool], rows: LiveRows | None, careful: bool
) -> list[Any]:
    """The derivatives of a number of each row: also by what all rows share."""
    given, flags = list(xs), list(varying)
    if any(flags):
        count = next(x.shape[0] for x, v in zip(xs, varying, strict=True) if v)
        for k in op["wrt"]:
            if not flags[k]:
                given[k], flags[k] = jnp.broadcast_to(xs[k], (count, *jnp.shape(xs[k]))), True
    number = op["region"].results[0].type
    one = jnp.ones((), jax_compat.device_dtype(number))
    types = [op["region"].args[k].type for k in op["wrt"]]
    found = on_rows(inner_pullback(op), [*given, one], [*flags, False], rows, careful)
    return [jnp.asarray(x, jax_compat.device_dtype(t)) for x, t in zip(found, types, strict=True)]


def _inside_of_blocks(op: Op, _: Sequence[Array], xs: Sequence[Any], varying: Sequence[bool]) -> list[Any]:
    """An inner derivative in a program of blocks, which sees to it that all rows hold numbers that loops end on."""
    rows = next((x.shape[0] for x, v in zip(xs, varying, strict=True) if v), None)
    return on_rows(op, xs, varying, None if rows is None else LiveRows(rows, jnp.ones((rows,), bool)), careful=True)


WITH_CONTROL["gradient_of"] = _inside_of_blocks


def _pulled_back(
    rule: leaf.DerivativeRule, xs: Sequence[Any], varying: Sequence[bool], rows: LiveRows | None
) -> list[Any]:
    """The cotangents of the operands `rule.wrt`; that of an operand that all rows share is summed over live rows."""
    rest = iter(zip(xs, varying, strict=True))
    held = [
        next(rest) if number is None else (jax_compat.literal(number, type), False)
        for number, type in zip(rule.numbers, rule.operands, strict=True)
    ]
    values, flags = [x for x, _ in held], [v for _, v in held]

    def primal(*moved: Any) -> list[Any]:
        whole = list(values)
        for k, x in zip(rule.wrt, moved, strict=True):
            whole[k] = x
        found = on_rows(rule.op, whole, flags, rows, careful=True)
        return [y for y, has in zip(found, rule.cotangents, strict=True) if has]

    found, pull = jax.vjp(primal, *(jnp.asarray(values[k]) for k in rule.wrt))
    on_all = [v for v, has in zip(vary(rule.op, flags), rule.cotangents, strict=True) if has]
    cotangents = []
    for y, (ct, _), varies in zip(found, rest, on_all, strict=True):
        whole = jnp.broadcast_to(ct, y.shape).astype(y.dtype)
        cotangents.append(
            select_rows(rows.live, whole, jnp.zeros_like(whole)) if varies and rows is not None else whole
        )
    pulled: list[Any] = list(pull(cotangents))
    return pulled


Environment = dict[Value, Any]


class _Lanes:
    """One region on `rows` rows. `varying`: the values with an axis of rows; an axis that a value may need in some turn
    or arm it has in all. `cut`: results with no contribution to derivatives from rows where their cotangents are zero
    and what comes of them is not finite."""

    def __init__(
        self,
        region: Region,
        varying: Sequence[bool],
        rows: int,
        careful: bool,
        cut: Container[Value] = frozenset(),
    ) -> None:
        self.rows, self.careful = rows, careful
        self.cut = cut
        self.packed: frozenset[str] = frozenset()
        self.varying = {a for a, v in zip(region.args, varying, strict=True) if v}
        self.find(region)

    # ---- which values differ between rows

    def varies(self, x: Operand) -> bool:
        return isinstance(x, Value) and x in self.varying

    def find(self, region: Region) -> None:
        for instruction in region.body:
            self.find_in(instruction)

    def find_in(self, instruction: Instruction) -> None:
        results = instruction.results
        match instruction:
            case Apply(operands=xs):
                if any(map(self.varies, xs)):
                    self.varying.update(results)
            case If(condition=condition, then=then, orelse=orelse):
                for arm in (then, orelse):
                    self.find(arm)
                    self.flow(arm.results, results)
                if self.varies(condition):
                    self.varying.update(results)
            case For(init=init, body=body):
                self.carry(init, body.args[1:], (body,))
                self.flow(body.args[1:], results)
            case While(init=init, condition=test, body=body):
                self.carry(init, body.args, (body, test))
                self.flow(body.args, results)
            case Map() | Call():
                raise AssertionError("no calls and no lists in a masked region")
            case _:
                assert_never(instruction)

    def flow(self, sources: Sequence[Operand], targets: Sequence[Value]) -> None:
        self.varying.update(y for x, y in zip(sources, targets, strict=True) if self.varies(x))

    def carry(self, init: Sequence[Operand], carried: Sequence[Value], inside: Sequence[Region]) -> None:
        """Of what a loop carries, all that is not the same for all rows before it or after a turn; everything, where
        its second region, the test, differs between rows."""
        body, *tests = inside
        self.flow(init, carried)
        before = -1
        while before != len(self.varying):
            before = len(self.varying)
            self.find(body)
            self.flow(body.results, carried)
            for test in tests:
                self.flow(carried, test.args)
                self.find(test)
                if self.varies(test.results[0]):
                    self.varying.update(carried)

    # ---- values

    def spread(self, x: Any, source: Operand, target: Operand | None = None) -> Any:
        """A value of `source` in its type, with an axis of rows: in any case, or where `target` has one."""
        assert isinstance(source.type, Array)
        found, dtype = jnp.asarray(x), jax_compat.device_dtype(source.type)
        found = found if found.dtype == dtype else found.astype(dtype)
        if self.varies(source) or not (target is None or self.varies(target)):
            return found
        return jnp.broadcast_to(found, (self.rows, *source.type.shape))

    def all_spread(self, xs: Sequence[Any], sources: Sequence[Operand], targets: Sequence[Value]) -> list[Any]:
        return [self.spread(*each) for each in zip(xs, sources, targets, strict=True)]

    def entering(self, xs: Sequence[Any], varying: Sequence[bool], mask: Any) -> list[Any]:
        """Floats that enter a mask: where a derivative is wanted, rows outside it get those of its first row."""
        if not self.careful or mask is None or not any(varying):
            return list(xs)
        first = jnp.argmax(mask)

        def safe(x: Any) -> Any:
            one = jax.lax.stop_gradient(jax.lax.dynamic_index_in_dim(x, first, keepdims=True))
            return select_rows(mask, x, one)

        return [safe(x) if v and is_float(x) else x for x, v in zip(xs, varying, strict=True)]

    def read(self, xs: Sequence[Operand], env: Environment) -> list[Any]:
        return [leaf.literal_value(x) if isinstance(x, Literal) else env[x] for x in xs]

    # ---- instructions

    def run(
        self, region: Region, args: Sequence[Any], mask: Any, outer: Mapping[Value, Any] | None = None
    ) -> list[Any]:
        """What a region yields for the rows of `mask` (None: for all)."""
        env: Environment = dict(outer or {})
        env.update(zip(region.args, args, strict=True))
        for instruction in region.body:
            env.update(zip(instruction.results, self.instruction(instruction, env, mask), strict=True))
        return self.read(region.results, env)

    def instruction(self, instruction: Instruction, env: Environment, mask: Any) -> Sequence[Any]:
        match instruction:
            case Apply(op=op, operands=xs, results=results):
                types = [r.type for r in results if isinstance(r.type, Array)]
                if op.name in ("gradient_of", "blocks"):
                    return self.with_control(op, self.read(xs, env), list(map(self.varies, xs)), mask)
                run = over_rows_in_part if any(r in self.cut for r in results) else over_rows
                return run(op, types, self.read(xs, env), list(map(self.varies, xs)))
            case If():
                return self.branch(instruction, env, mask)
            case While():
                return self.conditional(instruction, env, mask)
            case For():
                return self.counted(instruction, env, mask)
            case Map() | Call():
                raise AssertionError("no calls and no lists in a masked region")
            case _:
                assert_never(instruction)

    def with_control(self, op: Op, xs: Sequence[Any], varying: Sequence[bool], mask: Any) -> list[Any]:
        live = jnp.ones((self.rows,), bool) if mask is None else mask
        return on_rows(op, xs, varying, LiveRows(self.rows, live) if any(varying) else None, self.careful)

    def branch(self, branch: If, env: Environment, mask: Any) -> Sequence[Any]:
        (condition,) = self.read([branch.condition], env)
        if not self.varies(branch.condition):
            arms = (partial(self.arm, region, branch.results, env, mask) for region in (branch.then, branch.orelse))
            same: list[Any] = jax.lax.cond(condition, *arms)
            return same
        sides = [
            self.guarded(region, branch.results, env, inside)
            for region, inside in ((branch.then, _both(mask, condition)), (branch.orelse, _both(mask, ~condition)))
        ]
        return [select_rows(condition, x, y) for x, y in zip(*sides, strict=True)]

    def arm(self, region: Region, results: Sequence[Value], env: Environment, inside: Any) -> list[Any]:
        captured = [x for x in free_values(region) if x in env]
        held = self.entering([env[x] for x in captured], list(map(self.varies, captured)), inside)
        found = self.run(region, (), inside, {**env, **dict(zip(captured, held, strict=True))})
        return self.all_spread(found, region.results, results)

    def guarded(self, region: Region, results: Sequence[Value], env: Environment, inside: Any) -> Sequence[Any]:
        """The results of an arm; any values in rows that do not take it. An arm that few rows take is run for those."""
        wide = partial(self.arm, region, results, env, inside)
        if not region.body or (not self.careful and _cost(region) < GUARDED):
            return wide()

        def skip() -> list[Any]:
            return [jax_compat.zeros((self.rows, *r.type.shape), jax_compat.device_dtype(r.type)) for r in results]  # type: ignore[union-attr,arg-type]

        def fewer() -> list[Any]:
            assert width is not None
            some = packed(inside, width)
            captured = [x for x in free_values(region) if x in env]
            taken = {x: some.take([env[x]])[0] if self.varies(x) else env[x] for x in captured}
            narrow = self.of_width(width, "arms")
            return some.put(skip(), narrow.arm(region, results, taken, some.live))

        found: Sequence[Any]
        width = self.width_of(region)
        if width is None:
            found = jax.lax.cond(jnp.any(inside), wide, skip)
        else:
            count = jnp.sum(inside, dtype=jnp.int32)
            found = jax.lax.switch((count > 0).astype(jnp.int32) + (count > width), (skip, fewer, wide))
        return found

    def counted(self, loop: For, env: Environment, mask: Any) -> Sequence[Any]:
        """A loop with as many turns as the program says."""
        assert isinstance(loop.count, Literal) and isinstance(loop.count.value, int)
        index, carried = loop.body.args[0], loop.body.args[1:]

        def step(state: list[Any], turn: Any) -> tuple[list[Any], None]:
            found = self.run(loop.body, [turn.astype(jax_compat.device_dtype(index.type)), *state], mask, env)  # type: ignore[arg-type]
            return self.all_spread(found, loop.body.results, carried), None

        start = self.all_spread(self.read(loop.init, env), loop.init, carried)
        final: list[Any] = jax.lax.scan(step, start, jnp.arange(loop.count.value))[0]
        return final

    def conditional(self, loop: While, env: Environment, mask: Any) -> Sequence[Any]:
        """What a loop carries, after it. Where rows differ in their turns, those that go on are packed together."""
        test, body = loop.condition, loop.body
        varies = self.varies(test.results[0])
        captured = [x for x in dict.fromkeys((*free_values(test), *free_values(body))) if x in env]
        everyone = jnp.ones((self.rows,), bool) if mask is None else mask
        held = [everyone, *(env[x] for x in captured)]
        start = self.all_spread(self.read(loop.init, env), loop.init, body.args)
        limit = limit_of(loop)
        widths = self.widths(loop) or [self.rows]
        turns = _MaskedTurns(loop, captured, varies, NO_LIMIT if limit is None else limit.turns)
        lanes = self if len(widths) == 1 else self.of_width(self.rows, "loops")
        state = [jnp.asarray(turns.more(lanes, start, dict(zip(captured, held[1:], strict=True)), everyone)), *start]
        _, (goes_on, *final) = turns.run(lanes, widths, held, state, jnp.int32(0))
        if limit is not None:
            late = jnp.asarray(limit.site, final[-1].dtype)
            final[-1] = jnp.where(goes_on, late, final[-1])
        return final

    def widths(self, loop: While) -> list[int] | None:
        """How many rows the turns of a loop are compiled for; None where it is not for this loop to pack its rows."""
        if not self.varies(loop.condition.results[0]) or "loops" in self.packed:
            return None
        return loop_widths(loop, self.rows, self.careful)

    def width_of(self, arm: Region) -> int | None:
        """For how few rows an arm is compiled once more."""
        return None if "arms" in self.packed else arm_width(arm, self.rows)

    def uncut(self) -> _Lanes:
        """The same region where nothing is differentiated in reverse."""
        lanes = copy(self)
        lanes.cut = frozenset()
        return lanes

    def of_width(self, rows: int, what: str) -> _Lanes:
        """The same region on some of the rows, packed together; what is inside `what` is not packed again."""
        lanes = copy(self)
        lanes.rows, lanes.packed = rows, self.packed | {what}
        return lanes


@dataclass(frozen=True)
class _MaskedTurns:
    """The turns of a loop that reads `captured`. The state is which rows go on (where they differ; else whether all
    do), and what is carried; held are the rows that there are, and `captured`."""

    loop: While
    captured: list[Value]
    varies: bool
    turns: Allowed

    def more(self, lanes: _Lanes, carried: Sequence[Any], outer: Environment, rows: Any) -> Any:
        (goes_on,) = lanes.run(self.loop.condition, carried, rows, outer)
        return goes_on & rows if self.varies else goes_on

    def step(self, lanes: _Lanes, held: Sequence[Any], state: Sequence[Any]) -> list[Any]:
        (rows, *outer), (active, *old), body = held, state, self.loop.body
        rows = active if self.varies else rows
        flags = [list(map(lanes.varies, xs)) for xs in (self.captured, body.args)]
        given = dict(zip(self.captured, lanes.entering(outer, flags[0], rows), strict=True))
        new = lanes.run(body, lanes.entering(old, flags[1], rows), rows, given)
        new = lanes.all_spread(new, body.results, body.args)
        if self.varies:
            new = [select_rows(active, x, y) for x, y in zip(new, old, strict=True)]
        return [self.more(lanes, new, dict(zip(self.captured, outer, strict=True)), rows), *new]

    def run(
        self, lanes: _Lanes, widths: Sequence[int], held: Sequence[Any], state: Sequence[Any], begun: Any
    ) -> tuple[Any, list[Any]]:
        """How many turns there were, and the last state, by loops of these widths one after another."""
        until = Until(self.turns, widths[1] if len(widths) > 1 else 0, self.loop.span)
        step = partial(self.step, lanes.uncut())
        if lanes.careful:
            begun, state = differentiable_loop(step, held, state, until, begun, partial(self.step, lanes))
        else:
            begun, state = plain_loop(step, held, state, until, begun)
        if len(widths) == 1:
            return begun, state

        def fewer(held: Sequence[Any], state: Sequence[Any], begun: Any) -> tuple[Any, list[Any]]:
            some = packed(state[0], widths[1])
            outer = [some.take([x])[0] if lanes.varies(v) else x for x, v in zip(held[1:], self.captured, strict=True)]
            active, *carried = some.take(state)
            active = active & some.live
            narrow = lanes.of_width(widths[1], "loops")
            begun, found = self.run(narrow, widths[1:], [active, *outer], [active, *carried], begun)
            return begun, some.put(state, found)

        found: tuple[Any, list[Any]] = jax.lax.cond(
            jnp.any(state[0]), fewer, lambda _, state, begun: (begun, list(state)), list(held), list(state), begun
        )
        return found


def _both(mask: Any, condition: Any) -> Any:
    return condition if mask is None else mask & condition


def _cost(region: Region) -> int:
    """What a region computes, in operations on small rows."""
    total = 0
    for i in walk(region):
        if regions(i) and not isinstance(i, If):
            return GUARDED
        if isinstance(i, Apply) and i.op.name not in MOVING:
            size = max((math.prod(r.type.shape) for r in i.results if isinstance(r.type, Array)), default=1)
            contracts = i.op.name in ("dot_general", "conv_general_dilated", "scan", "while", "cond")
            total += GUARDED if contracts else max(1, size // 16)
    return total
