"""What a branch that computed numbers decide says of structure all the same.

    %4 = is_class[names=('Split',)](%1)
    %9 = if %4 then: ...; yield %8 else: yield False     `isinstance(node, Split) and x > node.at`
    %11 = if %9 then: load[field='at'](%1) ...           %4 holds in this arm, whatever %8 is

A read that moves in front of such a branch leaves its arm behind. The tests of structure that the host knows in front
of the branch come along; all others say nothing there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace

from jax import lax

from autobatch.ir.core import Apply, If, Instruction, Literal, Module, Operand, Region, Value, While, operands, walk
from autobatch.ir.ops import Op, own
from autobatch.ir.rewrite import Fresh, region_values, with_regions
from autobatch.ir.types import BOOL

Definitions = Mapping[Value, tuple[Instruction, int]]
"""What makes each value, and which of its results it is."""

Test = tuple[Value, bool]
"""A test of structure, and what it says."""


def definitions(module: Module) -> Definitions:
    """What makes the values of a module."""
    inside = (i for f in module.functions for i in walk(f.region))
    return {r: (i, k) for i in inside for k, r in enumerate(i.results)}


def implied(condition: Operand, truth: bool, made: Definitions, device: Collection[Operand]) -> Iterator[Test]:
    """The tests of which the host knows what they say where a condition is `truth`, and that stand in front of it.
    `device`: the values that computed numbers decide."""
    if not isinstance(condition, Value):
        return
    if condition not in device:
        yield condition, truth
        return
    match made.get(condition):
        case Apply(op=op, operands=xs), _:
            if op.name == "not":
                yield from implied(xs[0], not truth, made, device)
            elif op.name in ("and", "or") and truth is (op.name == "and"):
                for x in xs:
                    yield from implied(x, truth, made, device)
        case If(condition=c, then=then, orelse=orelse), k:
            for arm, other, side in ((then, orelse, True), (orelse, then, False)):
                constant = other.results[k]
                if isinstance(constant, Literal) and constant.value is not truth:
                    yield from implied(c, side, made, device)
                    inside = set(region_values(arm))
                    found = implied(arm.results[k], truth, made, device)
                    yield from ((test, holds) for test, holds in found if test not in inside)
        case _:
            pass


def without_tests(module: Module, device: frozenset[Value]) -> Module:
    """The module whose branches and loops say nothing of what holds in them, where computed numbers decide them: in
    front of `if t is None or budget < 0` a read of `t` may fail."""
    return _blind(module, device, {})


def with_implied_tests(module: Module, device: frozenset[Value]) -> Module:
    """The same, but they say what the host knows in front of them: that of `t`, where `t` comes with its test."""
    return _blind(module, device, definitions(module))


def _blind(module: Module, device: frozenset[Value], made: Definitions) -> Module:
    fresh = Fresh(module)

    def region(of: Region) -> Region:
        return replace(of, body=tuple(map(blind, of.body)))

    def behind(condition: Operand, truth: bool, arm: Region) -> Region:
        checks: list[Instruction] = []
        for test, holds in implied(condition, truth, made, device):
            checked = test
            if not holds:
                checked = fresh.value(BOOL)
                checks.append(Apply((checked,), Op("not", (), lax.not_p), (test,)))
            checks.append(Apply((), own("check", kind="AssertionError", message=""), (checked,)))
        return replace(arm, body=(*checks, *arm.body))

    def blind(i: Instruction) -> Instruction:
        whole = with_regions(i, region)
        match whole:
            case If(condition=x, then=then, orelse=orelse) if x in device:
                arms = behind(x, True, then), behind(x, False, orelse)
                return replace(whole, condition=fresh.value(BOOL), then=arms[0], orelse=arms[1])
            case While(condition=test, body=body) if test.results[0] in device:
                blinded = replace(test, results=(fresh.value(BOOL), *test.results[1:]))
                return replace(whole, condition=blinded, body=behind(test.results[0], True, body))
            case _:
                return whole

    return replace(module, functions=tuple(replace(f, region=region(f.region)) for f in module.functions))


def with_tests_in_front(module: Module, device: frozenset[Value], is_test: Callable[[Instruction], bool]) -> Module:
    """The module whose tests of structure stand in front of branches that computed numbers decide: `k < 0` in front of
    `x < least or k < 0`. `is_test`: can they not fail, and are they no work?"""

    def region(of: Region) -> Region:
        body: list[Instruction] = []
        for i in of.body:
            whole = with_regions(i, region)
            if isinstance(whole, If) and whole.condition in device:
                defined = {r for arm in (whole.then, whole.orelse) for r in region_values(arm)}
                whole = replace(whole, then=left(whole.then, defined, body), orelse=left(whole.orelse, defined, body))
            body.append(whole)
        return replace(of, body=tuple(body))

    def left(arm: Region, defined: set[Value], front: list[Instruction]) -> Region:
        kept: list[Instruction] = []
        for i in arm.body:
            if is_test(i) and defined.isdisjoint(x for x in operands(i) if isinstance(x, Value)):
                front.append(i)
                defined.difference_update(i.results)
            else:
                kept.append(i)
        return replace(arm, body=tuple(kept))

    return replace(module, functions=tuple(replace(f, region=region(f.region)) for f in module.functions))
