"""Regions: what passes rewrite them with, and the masked operation, which holds one.

Helpers for passes: fresh values, constants, copies of regions under a substitution, free values.

A masked operation is one that holds branches and loops, for lanes that decide each for itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, assert_never

from autobatch.ir import jax_compat
from autobatch.ir.core import (
    Apply,
    Array,
    Call,
    For,
    Function,
    If,
    Instruction,
    List,
    Literal,
    Map,
    Module,
    Operand,
    Region,
    Type,
    Value,
    While,
    operands,
    regions,
    walk,
)
from autobatch.ir.ops import Op, same_constant

# ---- rewriting


class Fresh:
    """A source of values whose ids no value of the module has, nor any inside of its masked operations."""

    def __init__(self, module: Module) -> None:
        self._next = 1 + max((v.id for v in _all_values(module)), default=-1)

    @staticmethod
    def behind(values: Iterable[Value]) -> Fresh:
        """A source of values that are none of these."""
        fresh = Fresh(Module(()))
        fresh._next = 1 + max((v.id for v in values), default=-1)
        return fresh

    def value(self, type: Type, hint: str = "") -> Value:
        self._next += 1
        return Value(self._next - 1, type, hint)

    def like(self, values: Iterable[Value]) -> tuple[Value, ...]:
        return tuple(self.value(v.type, v.hint) for v in values)


class ConstantPool:
    """The constant arrays of a module, while a pass adds to them: what it has added already is not added again."""

    def __init__(self, module: Module) -> None:
        self._given = tuple(module.constants)
        self._added = list[Any]()

    @property
    def all(self) -> tuple[Any, ...]:
        return (*self._given, *self._added)

    def literal(self, array: Any) -> Literal:
        """An array as an operand."""
        place = next((k for k, known in enumerate(self._added) if same_constant(known, array)), len(self._added))
        if place == len(self._added):
            self._added.append(array)
        return Literal(None, jax_compat.type_of(array), len(self._given) + place)


def _all_values(module: Module) -> Iterable[Value]:
    yield from module.shared
    for function in module.functions:
        yield from with_masked(function.region)


def with_masked(region: Region) -> Iterable[Value]:
    """The values of a region, and of masked operations in it, which `passes/simplify.py` opens."""
    yield from region_values(region)
    for i in walk(region):
        if isinstance(i, Apply) and i.op.name == "masked" and not i.op.is_jax:
            yield from with_masked(i.op["region"])


def region_values(region: Region) -> Iterable[Value]:
    """Every value that a region and the regions inside it define."""
    yield from region.args
    for instruction in region.body:
        yield from instruction.results
        for inner in regions(instruction):
            yield from region_values(inner)


def substitute(operand: Operand, env: Mapping[Value, Operand]) -> Operand:
    return env.get(operand, operand) if isinstance(operand, Value) else operand


def copy_region(region: Region, env: dict[Value, Operand], fresh: Fresh | None) -> Region:
    """A copy of `region` with operands replaced by `env`. With `fresh`, every value it defines is renamed as well
    (and `env` learns the new names), so the copy may stand beside the original."""

    def define(values: tuple[Value, ...]) -> tuple[Value, ...]:
        if fresh is None:
            return values
        new = fresh.like(values)
        env.update(zip(values, new, strict=True))
        return new

    args = define(region.args)
    body = tuple(copy_instruction(i, env, fresh) for i in region.body)
    return Region(args, body, tuple(substitute(r, env) for r in region.results))


def copy_instruction(instruction: Instruction, env: dict[Value, Operand], fresh: Fresh | None) -> Instruction:
    """A copy of one instruction; see `copy_region`."""

    def sub(xs: tuple[Operand, ...]) -> tuple[Operand, ...]:
        return tuple([substitute(x, env) for x in xs])

    new: Instruction
    match instruction:
        case Apply(results=results, op=op, operands=xs, span=span):
            new = Apply(results, op, sub(xs), span)
        case Call():
            new = replace(instruction, operands=sub(instruction.operands))
        case If(condition=condition, then=then, orelse=orelse):
            new = replace(
                instruction,
                condition=substitute(condition, env),
                then=copy_region(then, env, fresh),
                orelse=copy_region(orelse, env, fresh),
            )
        case For(count=count, init=init, body=body):
            new = replace(instruction, count=substitute(count, env), init=sub(init), body=copy_region(body, env, fresh))
        case While(init=init, condition=test, body=body):
            new = replace(
                instruction,
                init=sub(init),
                condition=copy_region(test, env, fresh),
                body=copy_region(body, env, fresh),
            )
        case Map(count=count, body=body):
            new = replace(instruction, count=substitute(count, env), body=copy_region(body, env, fresh))
        case _:
            assert_never(instruction)
    if fresh is None:
        return new
    results = fresh.like(instruction.results)
    env.update(zip(instruction.results, results, strict=True))
    if isinstance(new, Apply):  # nearly all of them
        return Apply(results, new.op, new.operands, new.span)
    return replace(new, results=results)


def with_regions(instruction: Instruction, change: Callable[[Region], Region]) -> Instruction:
    """The instruction with each of its regions changed."""
    match instruction:
        case If(then=then, orelse=orelse):
            return replace(instruction, then=change(then), orelse=change(orelse))
        case While(condition=test, body=body):
            return replace(instruction, condition=change(test), body=change(body))
        case For(body=body) | Map(body=body):
            return replace(instruction, body=change(body))
        case Apply() | Call():
            return instruction
        case _:
            assert_never(instruction)


def with_operands(region: Region, put: Callable[[Operand], Operand]) -> Region:
    """The region with each operand replaced that it or a region inside it reads."""

    def each(i: Instruction) -> Instruction:
        match new := with_regions(i, lambda r: with_operands(r, put)):
            case Apply(results=results, op=op, operands=xs, span=span):
                return Apply(results, op, tuple(map(put, xs)), span)
            case Call(operands=xs):
                return replace(new, operands=tuple(map(put, xs)))
            case If(condition=condition):
                return replace(new, condition=put(condition))
            case For(count=count, init=init):
                return replace(new, count=put(count), init=tuple(map(put, init)))
            case While(init=init):
                return replace(new, init=tuple(map(put, init)))
            case Map(count=count):
                return replace(new, count=put(count))
            case _:
                assert_never(new)

    return Region(region.args, tuple(map(each, region.body)), tuple(map(put, region.results)))


def free_values(region: Region, shared: frozenset[Value] = frozenset()) -> tuple[Value, ...]:
    """The values that a region reads and does not define, in order of first use; the module's shared ones left out."""
    if region.free is None:
        read, defined = dict[Operand, None](), set(region.args)
        for instruction in region.body:
            read.update(dict.fromkeys(operands(instruction)))
            for inner in regions(instruction):
                read.update(dict.fromkeys(free_values(inner)))
            defined.update(instruction.results)
        read.update(dict.fromkeys(region.results))
        found = tuple(x for x in read if isinstance(x, Value) and x not in defined)
        object.__setattr__(region, "free", found)
        return free_values(region, shared)
    return tuple(x for x in region.free if x not in shared) if shared else region.free


def calls(region: Region) -> Iterable[Call]:
    """Every call in a region, in program order."""
    return (i for i in walk(region) if isinstance(i, Call))


def with_entry_apart(module: Module) -> Module:
    """A module whose entry nothing calls: where something does, one that calls it alone."""
    first = module.functions[0]
    if all(call.callee != first.name for f in module.functions for call in calls(f.region)):
        return module
    fresh, region = Fresh(module), first.region
    args, results = fresh.like(region.args), tuple(fresh.value(x.type) for x in region.results)
    call = Call(results, first.name, args, first.span)
    entry = Function(f"{first.name}.call", Region(args, (call,), results), first.span)
    return replace(module, functions=(entry, *module.functions))


# ---- masked operations


class Allowed(NamedTuple):
    """A loop may have `most` turns; a derivative keeps `states` of it for each factor of `states` in these. Of a loop
    whose turns the program counts it keeps what all turns compute where there are at most `counted` of them. `refill`:
    do rows that are done make room for others? None: as it pays."""

    most: int
    states: int
    counted: int = 1024
    refill: bool | None = None

    @property
    def levels(self) -> int:
        """How many factors there are."""
        found = 1
        while self.states**found < self.most:
            found += 1
        return found


NO_LIMIT = Allowed((1 << 30) - 1, 32)
"""Of a loop that nothing else ends: more than anybody waits for, and fewer than an int32 counts."""


def out_of_turns(iterations: int) -> str:
    """What a loop fails with that has more than `max_iterations` turns."""
    return (
        f"this loop never ends, presumably: max_iterations={iterations} turns of this loop were not enough; let its "
        "test become false, or raise ab.options(max_iterations=...) if it is meant to run so long"
    )


class Limit(NamedTuple):
    """A loop may have so many `turns`; behind them its last value, a status, is `site`."""

    turns: Allowed
    site: int


def is_masked(op: Op) -> bool:
    """Is this an operation whose rows decide each for itself (a masked one, or a program of blocks), or the derivative
    of one?"""
    while op.name == "pullback":
        op = op["rule"].op
    return op.name in ("masked", "blocks", "gradient_of") and not op.is_jax


def may_have_failed(op: Op) -> bool:
    """Are rows that fail, in this operation or behind it, cut off from derivatives?"""
    while op.name == "pullback":
        op = op["rule"].op
    return dict(op.params).get("cut") is True


def holds_loop(op: Op) -> bool:
    """Does a masked operation, or the derivative of one, hold a loop that computed numbers end?"""
    if op.name == "pullback":
        return bool(op["loops"])
    return op.name == "blocks" or any(_is_loop(i) or _derives_loop(i) for i in walk(op["region"]))


def derives_loop(op: Op) -> bool:
    """Is it, or does it hold, the derivative of something with a loop that computed numbers end?"""
    if op.name in ("pullback", "gradient_of"):
        return holds_loop(op)
    inside = (i for b in op["program"].blocks for i in b.body) if op.name == "blocks" else walk(op["region"])
    return any(map(_derives_loop, inside))


def _derives_loop(instruction: Instruction) -> bool:
    return isinstance(instruction, Apply) and instruction.op.name == "gradient_of" and holds_loop(instruction.op)


def _is_loop(instruction: Instruction) -> bool:
    return isinstance(instruction, While) or (isinstance(instruction, Apply) and instruction.op.name == "blocks")


def cut(op: Op) -> Op:
    """The operation with rows that may have failed, or do not use its results: they have no part in derivatives."""
    return replace(op, params=tuple(sorted({**dict(op.params), "cut": True}.items())))


def refill_of(op: Op) -> bool | None:
    """What the user wants of rows that are done in a masked operation; None where nothing."""
    found: bool | None = dict(op.params).get("refill")
    return found


def limit_of(loop: While) -> Limit | None:
    """How many turns a loop may have; None where nobody has said."""
    last = loop.body.body[-1] if loop.body.body else None
    if not isinstance(last, Apply) or last.op.name != "within" or last.results != loop.body.results[-1:]:
        return None
    return Limit(Allowed(last.op["turns"], last.op["states"]), last.op["site"])


# ---- by floats
#
# Do floats decide a branch or loop somewhere?
#
#     %3 = lt(%2, 1.0)                 %2 is a float
#     %5 = while (%0) test (%1): %3    so this loop is decided by one
#
# Where none does, control is structure, integers, and what is read of objects by them.


def decided_by_floats(module: Module) -> bool:
    """Is there such a branch or loop in the module?"""
    found = _ByFloats(module)
    while found.grows():
        pass
    return found.decides


class _ByFloats:
    """`values`: what floats decide, so far, floats aside."""

    def __init__(self, module: Module) -> None:
        self.module, self.values, self.decides = module, set[Operand](), False

    def grows(self) -> bool:
        before = len(self.values)
        for function in self.module.functions:
            for i in walk(function.region):
                self.instruction(i)
        return len(self.values) > before

    def by_floats(self, xs: Sequence[Operand]) -> bool:
        return any(x in self.values or _is_float(x) for x in xs)

    def flow(self, sources: Sequence[Operand], targets: Sequence[Value]) -> None:
        self.values.update(y for x, y in zip(sources, targets, strict=True) if x in self.values)

    def decided(self, condition: Operand, results: Sequence[Value]) -> None:
        if condition in self.values:
            self.decides = True
            self.values.update(results)

    def instruction(self, i: Instruction) -> None:
        match i:
            case Apply(results=results, op=op, operands=xs):
                compared = op.name in _COMPARING and any(_holds_floats(x) or x in self.values for x in xs)
                self.decides |= compared
                if compared or self.by_floats(xs):
                    self.values.update(r for r in results if not _is_float(r))
            case If(results=results, condition=condition, then=then, orelse=orelse):
                self.flow(then.results, results)
                self.flow(orelse.results, results)
                self.decided(condition, results)
            case For(results=results, count=count, init=init, body=body):
                self.carried(init, body, body.args[1:], results)
                self.decided(count, results)
            case While(results=results, init=init, condition=test, body=body):
                self.carried(init, body, body.args, results)
                self.flow(init, test.args)
                self.flow(body.results, test.args)
                self.decided(test.results[0], results)
            case Map(results=results, count=count, body=body, filtered=filtered):
                for condition in (count, *body.results[:filtered]):
                    self.decided(condition, results)
                self.flow(body.results[filtered:], results)
            case Call(results=results, callee=callee, operands=xs):
                region = self.module.function(callee).region
                self.flow(xs, region.args)
                self.flow(region.results, results)

    def carried(self, init: Sequence[Operand], body: Region, args: Sequence[Value], results: Sequence[Value]) -> None:
        for sources in (init, body.results):
            self.flow(sources, args)
            self.flow(sources, results)


_COMPARING = ("sort_order", "find")
"""What tells positions by comparing elements: of floats, as no trace can. (Their length, no float decides.)"""


def _holds_floats(x: Operand) -> bool:
    return isinstance(x.type, List) and isinstance(x.type.elem, Array) and is_float(x.type.elem)


def _is_float(x: Operand) -> bool:
    return isinstance(x.type, Array) and is_float(x.type)


def is_float(type: Array) -> bool:
    return not (type.is_integer or type.is_bool)
