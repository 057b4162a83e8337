"""Helpers for passes that rewrite modules: fresh values, constants, copies of regions under a substitution, free
values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, assert_never

from autobatch.ir import jax_compat
from autobatch.ir.core import (
    Apply,
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
    Type,
    Value,
    While,
    operands,
    regions,
    walk,
)
from autobatch.ir.ops import same_constant


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
