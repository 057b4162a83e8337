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
inside (a double `where`), so nothing that is not finite comes of them. A loop has a derivative by
`backends/xla/masks.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, assert_never

import jax
import jax.numpy as jnp

from autobatch.backends.xla import stack, stack_adjoint
from autobatch.backends.xla.row_operations import (
    WITH_CONTROL,
    by_machine_code,
    is_float,
    over_rows,
    over_rows_in_part,
    select_rows,
)
from autobatch.common import runtime
from autobatch.errors import NOWHERE, Span
from autobatch.ir import jax_compat, leaf
from autobatch.ir.core import (
    MOVING,
    Apply,
    Array,
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
from autobatch.ir.ops import Op
from autobatch.ir.regions import NO_LIMIT, Allowed, free_values, limit_of, may_have_failed, region_values
from autobatch.options import OptionError
from autobatch.passes.costs import EXPENSIVE, in_words
from autobatch.passes.derivative_rules import inner_pullback
from autobatch.passes.liveness import unused_results

# ---- compaction
#
# Rows under a mask of which few are active are packed together, and go on as fewer rows.
#
#     while count(active) > 64: 256 rows take a turn
#     at = places of the active rows                      row 3, 17, 40, ... of 256
#     state = state256[at]                                run on as row 0, 1, 2, ... of 64
#     while count(active) > 16: 64 rows take a turn
#     ...                                                 until 8 rows are left
#     state256[at] = state
#
# A loop whose rows need from few turns to many then computes little more rows than it has to: for trip counts that are
# distributed exponentially 1.4 times as many by halves, 1.8 by quarters, where 1,000 rows that all take the turns of
# the longest are 7 times as many. Each width is a copy of the loop in the executable, so a long one has fewer of them.
# The same for an arm of a branch: if few rows take it, they are computed as few.
#
# What it costs was measured on CPUs (`benchmarks/masks.py`), and on other platforms, whose lanes are cheap, it is off.


WORK = 1024
"""Operations on numbers in a turn of all rows from which on fewer rows are faster. A turn of XLA's CPU loops that does
next to nothing takes as long as some hundred of them."""

ARM_COST, ARM_ROWS = 64, 128
"""Operations of an arm on one row, and rows, from which on the same holds of an arm: its rows are looked for and put
back each time that the branch runs, which takes as long as some forty operations on each of all rows."""

FEWEST = 8
"""Rows that a vector unit computes at once: fewer are not faster."""

COPIES, COPIES_FOR_WORK = 256, 2048
"""How many instructions the copies of a loop may have: in any case, and where its turns are much work. An instruction
takes about a millisecond to compile."""


def loop_widths(loop: While, rows: int, careful: bool) -> list[int]:
    """How many rows a loop on `rows` rows computes in a turn, from all of them to the fewest: by halves, or by quarters
    where the loop is long."""
    cost = cost_of(loop.condition) + cost_of(loop.body)
    if not _is_measured() or rows * cost < WORK:
        return [rows]
    room = min(COPIES + rows * cost // 256, COPIES_FOR_WORK) // _emitted(loop, careful)
    halves, quarters = ([rows, *_narrowings(rows, cost, factor)] for factor in (2, 4))
    return halves if len(halves) <= room + 1 else quarters[: room + 1]


def _narrowings(rows: int, cost: int, factor: int) -> Iterator[int]:
    while rows * cost >= WORK and (narrower := _narrower(rows, factor)) < rows:
        yield narrower
        rows = narrower


def _emitted(instruction: Instruction, careful: bool) -> int:
    """How many instructions there will be in the executable: a loop with a derivative is run, recorded, run again,
    run once more and reversed."""
    inside = sum(_emitted(i, careful) for region in regions(instruction) for i in region.body)
    return 1 + inside * (5 if careful and isinstance(instruction, While) else 1)


def arm_width(arm: Region, rows: int) -> int | None:
    """For how few rows an arm of a branch on `rows` rows is compiled once more. None: it is not worth it."""
    if not _is_measured() or rows < ARM_ROWS or cost_of(arm) < ARM_COST:
        return None
    return _narrower(rows, 16)


def _narrower(rows: int, factor: int) -> int:
    return max(FEWEST, -(-rows // (factor * FEWEST)) * FEWEST)


def _is_measured() -> bool:
    return runtime.platform() == "cpu"


def cost_of(region: Region) -> int:
    """What a region computes for one row, in operations on numbers; a loop that nobody can count has ten turns."""
    return sum(map(_cost, region.body))


def _cost(instruction: Instruction) -> int:
    match instruction:
        case Apply(op=op) if op.name in MOVING:
            return 0
        case Apply(op=op, operands=xs, results=results):
            size = sum(map(_size, results)) * (8 if op.name in EXPENSIVE else 1)
            contracts = op.name in ("dot_general", "conv_general_dilated", "scan", "while", "cond")
            return size * max([1, *map(_size, xs)]) if contracts else size
        case If(then=then, orelse=orelse):
            return max(cost_of(then), cost_of(orelse))
        case For(count=Literal(value=int(count)), body=body):
            return count * cost_of(body)
        case _:
            return 10 * sum(map(cost_of, regions(instruction)))


def _size(x: Any) -> int:
    return math.prod(x.type.shape) if isinstance(x.type, Array) else 1


class CompactedRows(NamedTuple):
    """Some of the rows as fewer ones: row `at[k]` is the `k`-th, for each `k` of `live`, bool[width]."""

    rows: int
    at: Any
    live: Any

    def take(self, xs: Sequence[Any]) -> list[Any]:
        """These rows of arrays; those past the last of them have the numbers of some row."""
        at = jnp.minimum(self.at, self.rows - 1)
        return [jnp.take(x, at, axis=0, mode="clip") for x in xs]

    def put(self, xs: Sequence[Any], found: Sequence[Any]) -> list[Any]:
        """Arrays with these rows replaced."""
        past = self.rows + jnp.arange(self.live.shape[0], dtype=jnp.int32)
        at = jnp.where(self.live, self.at, past)
        return [x.at[at].set(y, mode="drop", unique_indices=True) for x, y in zip(xs, found, strict=True)]


def packed(mask: Any, width: int) -> CompactedRows:
    """The rows of a mask, `width` of them at most, in their order."""
    rows = mask.shape[0]
    before = jnp.cumsum(mask, dtype=jnp.int32)
    at = jnp.searchsorted(before, jnp.arange(1, width + 1, dtype=jnp.int32)).astype(jnp.int32)
    return CompactedRows(rows, at, at < rows)


# ---- masked loops
#
# A loop that computed numbers end, with a derivative in reverse: states are kept at few turns and computed again.
#
# `states` are kept for each of a few units of turns, the `levels`. State `p` lies by the digits of `p` in base
# `states`: a multiple of `states ** k` in the slots of level `k`, where the next one overwrites nothing that is needed:
#
# forward      every state is written where it belongs; the slots of the finest level are overwritten again and again
# backward     turn p needs state p; where its block has been overwritten, turns run again from the multiple before
#
# So a loop keeps `states * levels` of them however long it is, and computes a turn again at most `levels - 1` times,
# none of the first `states`. (Multi-level checkpointing: Griewank and Walther, Evaluating Derivatives, 12.3.)


State = Sequence[Any]
Step = Callable[[State, State], list[Any]]


class Until(NamedTuple):
    """A loop runs while more than `least` rows go on, and until it has had all its `turns`. `place`: where it is."""

    turns: Allowed
    least: int = 0
    place: Span = NOWHERE

    def goes_on(self, turn: Any, state: State) -> Any:
        some = jnp.sum(state[0], dtype=jnp.int32) > self.least if self.least else jnp.any(state[0])
        return some & (turn < self.turns.most)


def plain_loop(step: Step, held: State, start: State, until: Until, begun: Any) -> tuple[Any, list[Any]]:
    """`state = step(held, state)`, where `state[0]` says which rows go on, after `begun` turns: how many turns there
    were then, and the last state."""

    def turn(carry: Any) -> Any:
        return carry[0] + 1, step(held, carry[1])

    found: tuple[Any, list[Any]] = jax.lax.while_loop(lambda c: until.goes_on(*c), turn, (begun, list(start)))
    return found


def differentiable_loop(
    step: Step, held: State, start: State, until: Until, begun: Any, moved: Step
) -> tuple[Any, list[Any]]:
    """The same, with a derivative, that of `moved`, which computes the same. Neither closes over a tracer."""
    loop = _MaskedLoop(step, moved, [is_float(x) for x in held], [is_float(x) for x in start], until)
    return loop.run(held, start, begun)


class _MaskedLoop:
    """`held` and `start`: which of what is read in all turns, and of the state, can move."""

    def __init__(self, step: Step, moved: Step, held: Sequence[bool], start: Sequence[bool], until: Until) -> None:
        self.step, self.moved, self.held, self.start, self.until = step, moved, held, start, until
        self.levels, self.states = until.turns.levels, until.turns.states

    def run(self, held: State, start: State, begun: Any) -> tuple[Any, list[Any]]:
        @jax.custom_vjp
        def loop(moving: Any, fixed: Any, begun: Any) -> tuple[Any, list[Any]]:
            outer, state = self.joined(moving, fixed)
            return plain_loop(self.step, outer, state, self.until, begun)

        def forward(moving: Any, fixed: Any, begun: Any) -> tuple[tuple[Any, list[Any]], Any]:
            outer, state = self.joined(moving, fixed)
            final, kept, turns = self.recorded(outer, state, begun)
            return (begun + turns, final), (outer, kept, turns)

        def backward(residuals: Any, cotangents: Any) -> Any:
            outer, kept, turns = residuals
            moved = [ct for ct, flag in zip(cotangents[1], self.start, strict=True) if flag]
            return self.reversed(outer, kept, turns, moved), None, None

        loop.defvjp(forward, backward)
        moving = [[x for x, f in zip(xs, flags, strict=True) if f] for xs, flags in self.parts(held, start)]
        fixed = [[x for x, f in zip(xs, flags, strict=True) if not f] for xs, flags in self.parts(held, start)]
        found: tuple[Any, list[Any]] = loop(moving, fixed, begun)
        return found

    def parts(self, held: State, start: State) -> list[tuple[State, Sequence[bool]]]:
        return [(held, self.held), (start, self.start)]

    def joined(self, moving: Any, fixed: Any) -> list[list[Any]]:
        """What is held and the state, from what moves in them and what does not."""
        return [_merged(m, f, flags) for m, f, flags in zip(moving, fixed, (self.held, self.start), strict=True)]

    def recorded(self, outer: State, start: State, begun: Any) -> tuple[list[Any], list[Any], Any]:
        """The last state, the kept ones, and the number of turns from `begun` on."""
        self.check_memory(start)
        empty = [jnp.zeros((self.states * self.levels, *jnp.shape(x)), jnp.result_type(x)) for x in start]

        def turn(carry: Any) -> Any:
            at, state, kept = carry
            return at + 1, self.step(outer, state), self.put(kept, at, state)

        at, final, kept = jax.lax.while_loop(
            lambda c: self.until.goes_on(begun + c[0], c[1]), turn, (jnp.int32(0), list(start), empty)
        )
        return final, kept, at

    def check_memory(self, state: State) -> None:
        """Refuse what could not be kept: half of the memory is for everything else."""
        kept, most = self.states * self.levels, runtime.memory_limit() // 2
        needed = kept * sum(math.prod(jnp.shape(x)) * jnp.result_type(x).itemsize for x in state)
        if needed > most:
            where, turns = self.until.place, self.until.turns.most
            raise OptionError(
                f"{where}: the derivative of this loop keeps {kept:,} states of its rows, {in_words(needed)}, and half "
                f"of the memory is {in_words(most)}\n{where.excerpt()}\n  with checkpoint='all' set max_iterations "
                f"(now {turns:,}) to the turns that the loop needs, or choose checkpoint='sqrt' or 32; else call with "
                "fewer examples at a time"
            )

    def reversed(self, outer: State, kept: State, turns: Any, cotangents: State) -> Any:
        """The cotangents of what moves: of what is held, and of the first state."""
        moving = [x for x, flag in zip(outer, self.held, strict=True) if flag]
        fixed = [x for x, flag in zip(outer, self.held, strict=True) if not flag]

        def turn(carry: Any) -> Any:
            after, kept, total, cts = carry
            at = after - 1
            kept = self.again(outer, kept, at)
            state = self.get(kept, at)
            others = [x for x, flag in zip(state, self.start, strict=True) if not flag]

            def moved(of_held: State, of_state: State) -> list[Any]:
                new = self.moved(_merged(of_held, fixed, self.held), _merged(of_state, others, self.start))
                return [x for x, flag in zip(new, self.start, strict=True) if flag]

            _, pull = jax.vjp(moved, moving, [x for x, flag in zip(state, self.start, strict=True) if flag])
            more, cts = pull(list(cts))
            return at, kept, [a + b for a, b in zip(total, more, strict=True)], cts

        zeros = [jnp.zeros_like(x) for x in moving]
        first = (turns, list(kept), zeros, list(cotangents))
        _, _, total, cts = jax.lax.while_loop(lambda c: c[0] > 0, turn, first)
        return [total, cts]

    def again(self, outer: State, kept: list[Any], at: Any) -> list[Any]:
        """The kept states with state `at` among them."""
        first = at
        for level in range(1, self.levels):
            unit = self.states**level
            first = jnp.where((at + 1) % unit == 0, at + 1 - unit, first)

        def turn(carry: Any) -> Any:
            here, state, kept = carry
            state = self.step(outer, state)
            return here + 1, state, self.put(kept, here + 1, state)

        found: list[Any] = jax.lax.while_loop(lambda c: c[0] < at, turn, (first, self.get(kept, first), kept))[2]
        return found

    def slot(self, turn: Any) -> Any:
        """Where the state before a turn lies: at the level of its last digit that is not zero."""
        found = turn // self.states ** (self.levels - 1) % self.states
        for level in range(1, self.levels):
            digit = turn // self.states ** (self.levels - 1 - level) % self.states
            found = jnp.where(digit != 0, level * self.states + digit, found)
        return found

    def put(self, kept: State, turn: Any, state: State) -> list[Any]:
        at = self.slot(turn)
        return [jax.lax.dynamic_update_index_in_dim(b, x, at, 0) for b, x in zip(kept, state, strict=True)]

    def get(self, kept: State, turn: Any) -> list[Any]:
        at = self.slot(turn)
        return [jax.lax.dynamic_index_in_dim(b, at, keepdims=False) for b in kept]


def _merged(moving: State, fixed: State, flags: Sequence[bool]) -> list[Any]:
    a, b = iter(moving), iter(fixed)
    return [next(a) if flag else next(b) for flag in flags]


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
        found, _ = stack.run(op, xs, varying, count, live)
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
    and their result is not finite."""

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
        if not region.body or (not self.careful and _region_cost(region) < GUARDED):
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


def _region_cost(region: Region) -> int:
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
