"""Loops: those that all activations run equally often are one operation, all others become functions.

A loop over numbers alone that every activation runs equally often is a scan. It needs no frames: its rows are affine,
it is the same for all lanes, and JAX batches it as one primitive. Inner loops come first, so a nest of them becomes one
operation. A loop that shared integers count is a scan over as many turns as a size class holds; those past the count do
nothing.

    %4 = for 1000 init(%x) body(%i, %h):          %4 = scan[length=1000, ...](%x, %W)
      %5 = dot_general(%h, %W)             ->
      %6 = tanh(%5)
      yield %6

Back ends that run the whole function of an example lay out no row ahead of it. For them the host runs nothing: loops
that numbers count test their counters, and checks of indices stay where no count proves them.

    %4 = for %n init(%x) body(%i, %h):            %4 = while (0, %x) test (%i, %h): yield %i < %n
      bounds[axis=0, size=5](%j)            ->      do (%i, %h): bounds[axis=0, size=5](%j); ...; yield %i + 1, ...
      ...

    %4 = for 3 init(%x) body(%i, %h):             %4 = for 3 init(%x) body(%i, %h):
      bounds[axis=0, size=5](%i)            ->      ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from autobatch.errors import Span
from autobatch.ir import jax_compat, leaf
from autobatch.ir.core import (
    BOOL,
    INT,
    Apply,
    Array,
    Call,
    For,
    Function,
    If,
    Instruction,
    Literal,
    Map,
    Module,
    Operand,
    Region,
    Value,
    While,
    operands,
    regions,
    walk,
)
from autobatch.ir.interpret import counted_loop, outside, words
from autobatch.ir.ops import NO_ELEMENTS, Op, own
from autobatch.ir.regions import Fresh, copy_region, free_values, region_values, with_regions
from autobatch.passes.structure import Decisions

# ---- turn bounds
#
# The checks of indices in a uniform loop, for all its turns at once, before it.
#
#     %4 = for 3 init(%x) body(%i, %h):            %9: int32[3] = getitem(%ids, iota)
#       %5 = getitem(%ids, %i)                     bounds[axis=0, size=5](%9)
#       bounds[axis=0, size=5](%5)           ->    %4 = for 3 init(%x) body(%i, %h):
#       %6 = getitem(%table, %5)                     %5 = getitem(%ids, %i)
#       ...                                          %6 = getitem(%table, %5) ...
#
# An index that depends on what the loop carries is known turn by turn only: such a loop stays one, unless shared arrays
# decide the index, which the host does not know anyway.


Evaluate = Callable[[Operand, dict[Value, Any]], Any]


def is_bounds(instruction: Instruction) -> bool:
    """Is it the check of an index?"""
    return isinstance(instruction, Apply) and not instruction.op.is_jax and instruction.op.name == "bounds"


def steps_to(operand: Operand, body: Sequence[Instruction]) -> tuple[list[Apply], list[Value]]:
    """The operations of a loop's body that compute a value, and what they read from elsewhere."""
    needed, steps = [operand], []
    for instruction in reversed(body):
        if isinstance(instruction, Apply) and any(r in needed for r in instruction.results):
            steps.append(instruction)
            needed += instruction.operands
    made = {r for i in steps for r in i.results}
    return steps[::-1], list(dict.fromkeys(x for x in needed if isinstance(x, Value) and x not in made))


def check_all_turns(
    checks: Sequence[Apply],
    loop: For,
    room: int,
    value: Evaluate,
    fresh: Callable[[Array], Value],
    constant: Callable[[Any], Literal],
) -> list[Instruction]:
    """The checks of indices that depend on the turn and on values from outside the loop, in all turns. `room`: turns at
    most. Where there are several, those of the first turn in which one fails come first, as it fails first."""
    if not checks:
        return []
    turn, counted = loop.body.args[0], (loop.count,) if isinstance(loop.count, Value) else ()
    found = [steps_to(c.operands[0], loop.body.body) for c in checks]
    captured = list(dict.fromkeys(x for _, reads in found for x in reads if x != turn))

    def of_turn(t: Any, outer: Sequence[Any]) -> list[Any]:
        env: dict[Value, Any] = {turn: t, **dict(zip(captured, outer, strict=True))}
        for i in (i for steps, _ in found for i in steps if i.results[0] not in env):
            types = [r.type for r in i.results if isinstance(r.type, Array)]
            env.update(zip(i.results, leaf.evaluate(i.op, types, *(value(x, env) for x in i.operands)), strict=True))
        return [jnp.asarray(value(c.operands[0], env)) for c in checks]

    def of_all(*operands: Any) -> list[Any]:
        count, outer = operands[: len(counted)], operands[len(counted) :]
        turns = jnp.arange(room)
        indices = jax.vmap(lambda t: of_turn(t, outer))(turns)
        if count:
            indices = [jnp.where((turns < count[0]).reshape(-1, *(1,) * (x.ndim - 1)), x, 0) for x in indices]
        return [*(_of_first(indices, checks) if len(checks) > 1 and room else ()), *indices]

    reading, ordered = (*counted, *captured), [*(checks if len(checks) > 1 and room else ()), *checks]
    if not reading:
        with jax.ensure_compile_time_eval():
            return _known(ordered, of_all())
    closed, _ = jax_compat.trace(of_all, *(x.type for x in reading if isinstance(x.type, Array)))
    made: list[Instruction] = []
    known = jax_compat.inline(closed, reading, fresh, constant, made.append, loop.span)
    return [*made, *(replace(c, operands=(x,)) for c, x in zip(ordered, known, strict=True))]


def _of_first(indices: Sequence[Any], checks: Sequence[Apply]) -> list[Any]:
    """The indices of the first turn in which one of them is out of range; of turn 0 where none is."""
    wrong = [(x < -c.op["size"]) | (x >= c.op["size"]) for x, c in zip(indices, checks, strict=True)]
    turns = jnp.stack([w.reshape(len(w), -1).any(1) for w in wrong]).any(0)
    first = jnp.arange(len(turns)) == jnp.argmax(turns)
    return [jnp.where(first.reshape(-1, *(1,) * (x.ndim - 1)), x, 0).sum(0) for x in indices]


def _known(checks: Sequence[Apply], indices: Sequence[Any]) -> list[Instruction]:
    """The check that fails always, first of some whose indices are known; nothing where none does."""
    for check, index in zip(checks, indices, strict=True):
        if message := words(np.asarray(index), check.op["axis"], check.op["size"]):
            failing = own("check", kind="IndexError", message=message)
            return [Apply((), failing, (Literal(False, BOOL),), check.span)]
    return []


def depends_on(roots: Iterable[Operand], makers: dict[Value, Sequence[Operand]], wanted: frozenset[Value]) -> bool:
    """Is some root computed from one of these values?"""
    todo, seen = list(roots), set[Operand]()
    while todo:
        x = todo.pop()
        if x in wanted:
            return True
        if isinstance(x, Value) and x not in seen:
            seen.add(x)
            todo += makers.get(x, ())
    return False


FEWEST = 16
"""A scan whose count is not in the program has room for so many turns at least."""


class Turns:
    """Room for turns: `counts` of a module, which shared integers decide, and the turns that a program has for each."""

    def __init__(self, module: Module, counts: Sequence[Value], integers: Mapping[int, int]) -> None:
        self.decisions = Decisions(module, counts)
        self.room = [_size_class(n) for n in self.found(integers)]

    def found(self, integers: Mapping[int, int]) -> list[int]:
        return [int(n.real) for n in self.decisions.values([integers[k] for k in self.decisions.deciding])]

    def enough(self, integers: Mapping[int, int]) -> bool:
        """Is there room for what these values of shared inputs count? False where one of them is not known."""
        if not self.decisions.asked:
            return True
        known = all(k in integers for k in self.decisions.deciding)
        return known and all(n <= room for n, room in zip(self.found(integers), self.room, strict=True))


def _size_class(turns: int) -> int:
    return max(FEWEST, 1 << max(turns - 1, 0).bit_length())


def fuse_uniform_loops(module: Module, integers: Mapping[int, int], keep: int) -> tuple[Module, Turns]:
    """Replace every `For` with a body of arithmetic by the scan it is, where its count is a literal or what shared
    `integers` decide. The derivative of a scan keeps what all turns compute where there are at most `keep`."""
    fuser = _Fuser(module, integers, keep)
    functions = tuple(replace(f, region=fuser.run(f.region)) for f in module.functions)
    return replace(module, functions=functions, constants=tuple(fuser.constants)), fuser.turns()


def _makers(module: Module) -> dict[Value, Sequence[Operand]]:
    """What the values of each function are computed from."""
    made: dict[Value, Sequence[Operand]] = {}
    for instruction in (i for f in module.functions for i in walk(f.region)):
        inside = [x for r in regions(instruction) for x in r.results]
        callee = module.function(instruction.callee).region.results if isinstance(instruction, Call) else ()
        made.update((r, (*operands(instruction), *inside, *callee)) for r in instruction.results)
        if isinstance(instruction, For):
            body = instruction.body
            made.update(zip(body.args[1:], zip(instruction.init, body.results, strict=True), strict=True))
    return made


class _Fuser:
    def __init__(self, module: Module, integers: Mapping[int, int], keep: int) -> None:
        self.module, self.integers, self.keep = module, integers, keep
        self.uniform = {module.shared[k] for k in integers}
        for instruction in (i for f in module.functions for i in walk(f.region)):
            if not isinstance(instruction, Apply) or not instruction.op.is_jax or not instruction.operands:
                continue
            if all(isinstance(x, Literal) or x in self.uniform for x in instruction.operands):
                self.uniform.update(instruction.results)
        self.unknown = frozenset(module.shared) - {module.shared[k] for k in integers}
        self.makers = _makers(module)
        self.counts: list[Value] = []
        self.fresh = Fresh(module)
        self.constants = list(module.constants)
        self.renamed: dict[Value, Operand] = {}

    def region(self, region: Region) -> Region:
        body: list[Instruction] = []
        for instruction in region.body:
            body.extend(self.instruction(instruction))
        return replace(region, body=tuple(body))

    def run(self, region: Region) -> Region:
        """The region with its loops fused, readers reading the results of the scans."""
        fused = self.region(region)
        return copy_region(fused, self.renamed, None)

    def instruction(self, instruction: Instruction) -> Sequence[Instruction]:
        match instruction:
            case If(then=then, orelse=orelse):
                return [replace(instruction, then=self.region(then), orelse=self.region(orelse))]
            case While(condition=test, body=body):
                return [replace(instruction, condition=self.region(test), body=self.region(body))]
            case Map(body=body):
                return [replace(instruction, body=self.region(body))]
            case For(body=body):
                loop = replace(instruction, body=copy_region(self.region(body), self.renamed, None))
                return self.fused(loop)
            case _:
                return [instruction]

    def fused(self, loop: For) -> list[Instruction]:
        """The loop as a scan, behind the checks of its indices; the loop itself where it is no scan."""
        checks = [i for i in loop.body.body if isinstance(i, Apply) and is_bounds(i)]
        bare = replace(loop, body=replace(loop.body, body=tuple(i for i in loop.body.body if not is_bounds(i))))
        if not self.is_uniform(bare):
            return [loop]
        at_once: list[Apply] = []
        for check in checks:
            _, reads = steps_to(check.operands[0], loop.body.body)
            bounded = check.op["size"] or isinstance(loop.count, Literal)
            if bounded and not any(x in loop.body.args[1:] for x in reads):
                at_once.append(check)
            elif not depends_on(check.operands, self.makers, self.unknown):
                return [loop]
        made = check_all_turns(at_once, loop, self.room(loop), self.value, self.fresh.value, self.constant)
        return [*made, *self.scan(bare)]

    def room(self, loop: For) -> int:
        """The turns that a scan in the place of the loop has."""
        if isinstance(loop.count, Value):
            return Turns(self.module, [loop.count], self.integers).room[0]
        assert isinstance(loop.count.value, int)
        return loop.count.value

    def turns(self) -> Turns:
        return Turns(self.module, self.counts, self.integers)

    def is_uniform(self, loop: For) -> bool:
        """A count that is the same everywhere, and arithmetic on arrays only."""
        if not (loop.count in self.uniform if isinstance(loop.count, Value) else isinstance(loop.count.value, int)):
            return False
        reads = [*loop.init, *free_values(loop.body)]
        arithmetic = all(
            isinstance(i, Apply)
            and (i.op.is_jax or i.op.name in leaf.NUMERIC)
            and not i.op.exact  # the host has bits for it
            and all(isinstance(x.type, Array) for x in (*i.operands, *i.results))
            and not any(isinstance(x, Literal) and x.is_wide for x in i.operands)
            for i in loop.body.body
        )
        return bool(loop.init) and arithmetic and all(isinstance(x.type, Array) for x in reads)

    def scan(self, loop: For) -> list[Instruction]:
        captured = free_values(loop.body)
        carried = loop.body.args[1:]
        if isinstance(loop.count, Value):
            self.counts.append(loop.count)
        room = self.room(loop)
        counted = (loop.count,) if isinstance(loop.count, Value) else ()

        def turn(index: Any, state: tuple[Any, ...], outer: Sequence[Any]) -> tuple[Any, ...]:
            env: dict[Value, Any] = dict(zip(captured, outer, strict=True))
            env.update(zip(carried, state, strict=True))
            env[loop.body.args[0]] = index
            for i in loop.body.body:
                assert isinstance(i, Apply)
                types = [r.type for r in i.results if isinstance(r.type, Array)]
                values = leaf.evaluate(i.op, types, *(self.value(x, env) for x in i.operands))
                env.update(zip(i.results, values, strict=True))
            return tuple(self.cast(self.value(r, env), c) for r, c in zip(loop.body.results, carried, strict=True))

        def whole(*operands: Any) -> tuple[Any, ...]:
            count, operands = operands[: len(counted)], operands[len(counted) :]
            init, outer = operands[: len(carried)], operands[len(carried) :]
            start = tuple(self.cast(x, c) for x, c in zip(init, carried, strict=True))

            def step(index: Any, state: tuple[Any, ...]) -> Any:
                if not count:
                    return turn(index, state, outer)
                return jax.lax.cond(index < count[0], lambda s: turn(index, s, outer), lambda s: s, state)

            final: tuple[Any, ...] = counted_loop(step, room, start, self.keep)
            return final

        types = [x.type for x in (*counted, *carried, *captured) if isinstance(x.type, Array)]
        closed, _ = jax_compat.trace(whole, *types)
        made: list[Instruction] = []
        found = jax_compat.inline(
            closed, (*counted, *loop.init, *captured), self.fresh.value, self.constant, made.append, loop.span
        )
        self.renamed.update(zip(loop.results, found, strict=True))
        return made

    def value(self, x: Operand, env: dict[Value, Any]) -> Any:
        if isinstance(x, Value):
            return env[x]
        assert isinstance(x.type, Array)
        return jnp.asarray(self.constants[x.constant]) if x.constant >= 0 else jax_compat.literal(x.value, x.type)

    def cast(self, x: Any, like: Value) -> Any:
        """A value in the type of the loop's own: a Python number stays one."""
        assert isinstance(like.type, Array)
        dtype, found = jax_compat.device_dtype(like.type), jnp.asarray(x)
        if like.type.weak and (found.dtype, found.shape) == (dtype, like.type.shape):
            return found
        return jnp.broadcast_to(jnp.asarray(x, dtype), like.type.shape)

    def constant(self, array: Any) -> Literal:
        self.constants.append(array)
        return Literal(None, jax_compat.type_of(array), len(self.constants) - 1)


# ---- kinds
#
# Loops become functions: after this pass an activation is a call, whatever it was in the source.
#
#     %4 = for %n init(%h) body(%i, %x):          %4 = call @f.for0(0, %n, %h, captured...)
#       ...                               ->      func @f.for0(%i, %n, %x, captured...):
#       yield %y                                    %more = lt(%i, %n)
#                                                   %r = if %more then: ...; %t = call @f.for0(%i + 1, %n, %y, ...)
#                                                                       yield %t
#                                                        else: yield %x
#                                                   return %r
#
# A `Map` keeps its count, and its body becomes one call. The next turn of a loop is a tail call: whatever it passes on
# unchanged is resolved on the host, so a captured value costs nothing per turn.


def loops_to_functions(module: Module, watched: frozenset[Value] = frozenset()) -> tuple[Module, frozenset[Value]]:
    """Turn every `For`, `While` and `Map` body into a function of the module. Also what the `watched` values are called
    there."""
    lifter = _Lifter(module)
    functions = [replace(f, region=lifter.region(f.region, f.name)) for f in module.functions]
    return replace(module, functions=(*functions, *lifter.made)), frozenset(map(lifter.name_of, watched))


class _Lifter:
    def __init__(self, module: Module) -> None:
        self.fresh = Fresh(module)
        self.shared = frozenset(module.shared)
        self.made: list[Function] = []
        self.renamed: dict[Value, Value] = {}
        self.names = {f.name for f in module.functions}

    def region(self, region: Region, owner: str) -> Region:
        return replace(region, body=tuple(self.instruction(i, owner) for i in region.body))

    def instruction(self, instruction: Instruction, owner: str) -> Instruction:
        match instruction:
            case Apply() | Call():
                return instruction
            case If(then=then, orelse=orelse):
                return replace(instruction, then=self.region(then, owner), orelse=self.region(orelse, owner))
            case For():
                return self.counted(instruction, owner)
            case While():
                return self.conditional(instruction, owner)
            case Map():
                return self.comprehension(instruction, owner)

    def name(self, owner: str, what: str) -> str:
        n = 0
        while f"{owner}.{what}{n}" in self.names:
            n += 1
        self.names.add(f"{owner}.{what}{n}")
        return f"{owner}.{what}{n}"

    def name_of(self, value: Value) -> Value:
        """Inside loops in each other a value is renamed for each of them."""
        while value in self.renamed:
            value = self.renamed[value]
        return value

    def function(
        self,
        name: str,
        args: tuple[Value, ...],
        captured: tuple[Value, ...],
        region: Region,
        span: Span,
        waits: bool = False,
    ) -> None:
        """Add a function of `args` and then `captured`, renamed so that each value is defined once."""
        whole = Region((*args, *captured), region.body, region.results)
        names: dict[Value, Operand] = {}
        renamed = copy_region(whole, names, self.fresh)
        self.renamed.update((old, new) for old, new in names.items() if isinstance(new, Value))
        self.made.append(Function(name, self.region(renamed, name), span, waits, is_loop=True))

    def counted(self, loop: For, owner: str) -> Instruction:
        name = self.name(owner, "for")
        captured = free_values(loop.body, self.shared)
        turn, carried = loop.body.args[0], loop.body.args[1:]
        count, more, following = (self.fresh.value(t) for t in (INT, BOOL, turn.type))
        again = self.fresh.like(carried)
        step = Region(
            (),
            (
                *loop.body.body,
                _integer("add", following, turn, Literal(1, INT), loop.span),
                Call(again, name, (following, count, *loop.body.results, *captured), loop.span),
            ),
            again,
        )
        out = self.fresh.like(carried)
        body = (
            _integer("lt", more, turn, count, loop.span),
            If(out, more, step, Region((), (), carried), loop.span),
        )
        self.function(name, (turn, count, *carried), captured, Region((), body, out), loop.span)
        return Call(loop.results, name, (Literal(0, INT), loop.count, *loop.init, *captured), loop.span)

    def conditional(self, loop: While, owner: str) -> Instruction:
        name = self.name(owner, "while")
        carried = self.fresh.like(loop.body.args)
        test = copy_region(replace(loop.condition, args=()), dict(zip(loop.condition.args, carried, strict=True)), None)
        turn = copy_region(replace(loop.body, args=()), dict(zip(loop.body.args, carried, strict=True)), None)
        inside = Region(carried, (*test.body, *turn.body), (*test.results, *turn.results))
        captured = free_values(inside, self.shared)
        again, out = self.fresh.like(carried), self.fresh.like(carried)
        step = Region((), (*turn.body, Call(again, name, (*turn.results, *captured), loop.span)), again)
        body = (*test.body, If(out, test.results[0], step, Region((), (), carried), loop.span))
        self.function(name, carried, captured, Region((), body, out), loop.span, waits=True)
        return Call(loop.results, name, (*loop.init, *captured), loop.span)

    def comprehension(self, loop: Map, owner: str) -> Instruction:
        name = self.name(owner, "map")
        captured = free_values(loop.body, self.shared)
        self.function(name, loop.body.args, captured, loop.body, loop.span)
        turn = self.fresh.value(INT)
        results = tuple(self.fresh.value(r.type) for r in loop.body.results)
        body = Region((turn,), (Call(results, name, (turn, *captured), loop.span),), results)
        return replace(loop, body=body)


def _integer(name: str, result: Value, x: Operand, y: Operand, span: Span) -> Apply:
    primitive = {"add": jax.lax.add_p, "lt": jax.lax.lt_p}[name]
    return Apply((result,), Op(name, (), primitive), (x, y), span)


# ---- comprehensions
#
# Comprehensions that are reduced at once are loops that carry what they reduce to.
#
#     %xs = map %n do (%i): ... yield %x               %t = for %n (0) do (%i, %a):
#     %t = reduce[kind='sum'](%xs)              ->       ...; %b = add(%a, %x); yield %b
#
# A program of blocks has no lists: this is what becomes of `max(f(move) for move in range(n))` there.


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
            Apply((), own("check", kind="ValueError", message=NO_ELEMENTS[r.op["kind"]]), (out[0],), r.span)
            for r in self.reductions
            if r.op.name == "reduce" and r.op["kind"] in NO_ELEMENTS and not _is_checked(r, rest)
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


def _no_constant(array: Any) -> Literal:
    raise AssertionError("a fold holds no array")


# ---- loops on the device


def run_on_device(module: Module) -> Module:
    """The module with its loops and checks as the device runs them."""
    fresh = Fresh(module)

    def each(instruction: Instruction) -> list[Instruction]:
        whole = with_regions(instruction, region)
        match whole:
            case For(count=Literal()):
                return [_without_checks(whole, module)]
            case For():
                return [_counted(whole, fresh)]
            case _:
                return [whole]

    def region(region: Region) -> Region:
        return replace(region, body=tuple(j for i in region.body for j in each(i)))

    functions = tuple(replace(f, region=region(f.region)) for f in module.functions)
    return replace(module, functions=functions)


def numbers_of(module: Module) -> frozenset[Value]:
    """All numbers and arrays of a module."""
    inside = (v for f in module.functions for v in region_values(f.region))
    return frozenset(v for v in (*module.shared, *inside) if isinstance(v.type, Array))


def _counted(loop: For, fresh: Fresh) -> While:
    """A loop of a number of turns that is computed, as one that this number ends."""
    final, tested = fresh.value(INT), fresh.value(INT)
    turn, carried = loop.body.args[0], fresh.like(loop.body.args[1:])
    more, following = fresh.value(BOOL), fresh.value(INT)
    less = Apply((more,), Op("lt", (), jax.lax.lt_p), (tested, loop.count), loop.span)
    step = Apply((following,), Op("add", (), jax.lax.add_p), (turn, Literal(1, INT)), loop.span)
    test = Region((tested, *carried), (less,), (more,))
    body = Region(loop.body.args, (*loop.body.body, step), (following, *loop.body.results))
    return While((final, *loop.results), (Literal(0, INT), *loop.init), test, body, loop.span)


TRIED = 1 << 20
"""Turns of a loop of which each is looked at while compiling."""


def _without_checks(loop: For, module: Module) -> For:
    """A loop without the checks of indices that hold in each of its turns, as far as the turn alone decides them."""
    assert isinstance(loop.count, Literal) and isinstance(loop.count.value, int)
    if loop.count.value > TRIED:
        return loop
    turn, turns = loop.body.args[0], np.arange(loop.count.value)

    def holds(check: Apply) -> bool:
        steps, reads = steps_to(check.operands[0], loop.body.body)
        if reads != [turn] and reads:
            return False
        env: dict[Value, Any] = {turn: jnp.asarray(turns)}

        def value(x: Operand) -> Any:
            if isinstance(x, Value):
                return env[x]
            assert isinstance(x.type, Array)
            return jnp.asarray(module.constants[x.constant]) if x.constant >= 0 else jax_compat.literal(x.value, x.type)

        if any(r.type.shape for i in steps for r in i.results if isinstance(r.type, Array)):
            return False
        with jax.ensure_compile_time_eval():
            for i in steps:
                types = [Array(r.type.dtype, turns.shape, r.type.weak) for r in i.results if isinstance(r.type, Array)]
                env.update(zip(i.results, leaf.evaluate(i.op, types, *map(value, i.operands)), strict=True))
            return not outside(value(check.operands[0]), check.op["size"]).any()

    body = tuple(i for i in loop.body.body if not (isinstance(i, Apply) and is_bounds(i) and holds(i)))
    return replace(loop, body=replace(loop.body, body=body))
