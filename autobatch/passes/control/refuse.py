"""What frames cannot run: control that depends on computed numbers, found before any code is made."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import jax
from jax import lax

from autobatch.data.columns import Schema
from autobatch.errors import Span, UnsupportedError
from autobatch.ir.core import (
    BOOL,
    Apply,
    BuiltObject,
    Call,
    If,
    Instruction,
    List,
    Literal,
    Map,
    Module,
    Operand,
    Ref,
    Region,
    Tag,
    Type,
    Value,
    operands,
    regions,
    walk,
)
from autobatch.ir.ops import Op, own
from autobatch.ir.regions import Fresh, with_regions
from autobatch.passes.analysis.structure import StructureFacts
from autobatch.passes.control.status import ReadChecks

CURE = (
    "let it decide arithmetic alone: read and call in front of it, choose between the results in it; or decide it from "
    "the example itself: its fields, lengths, classes and integers"
)

OF_OBJECTS = (
    "hand on what is read of it in place of the object (`best = child.value`, not `best = child`), or decide it from "
    "the example itself"
)

_AS_INTEGER = "pass {name} as a Python int: close over it, or name it in static_argnames of jax.jit"
_AS_BATCH = "pass {name} in a Batch, which brings its plan along (f.pack), or call outside jax.jit"


def refuse_numeric_control(
    module: Module,
    facts: StructureFacts,
    traced: Mapping[int, str],
    batched: Mapping[int, str],
    obstacles: Mapping[Span, tuple[str, Span]],
) -> None:
    """Raise UnsupportedError for the first instruction whose control or index is known to the device alone. `traced`
    are the names of shared integers, by position, whose values the host would know if JAX did not trace them, and
    `batched` those of the entry's parameters. `obstacles`: why control at a place is no masked operation."""
    check = _Check(module, facts, traced, batched, obstacles)
    for function in module.functions:
        for instruction in walk(function.region):
            match instruction:
                case If(condition=c, span=span):
                    check.demand(c, span, "this condition", "depends on numbers that are computed in the batch")
                case Map(count=n, body=body, filtered=filtered, span=span):
                    check.demand(n, span, "the length of this loop", "depends on numbers computed in the batch")
                    for keep in body.results[:filtered]:
                        what, problem = "which elements are kept", "depends on numbers computed in the batch"
                        check.demand(keep, span, what, problem)
                case Apply(op=op, operands=xs, span=span) if op.name == "check":
                    for x in xs:
                        check.demand(x, span, f"this {op['kind']}", "depends on numbers that are computed in the batch")
                case Apply(op=op, span=span) if op.name == "gradient" and not op.is_jax:
                    what, where = obstacles[span]
                    raise UnsupportedError(
                        "inside a function a derivative is taken of arithmetic, branches and loops on numbers, and of "
                        f"recursion on numbers: of this one {what}, in line {where.line}",
                        span,
                        "read in front of it, and hand it numbers and arrays; or take the derivative outside, of the "
                        "batched function (ab.grad)",
                    )
                case Apply(op=op, operands=xs, span=span) if not op.is_jax:
                    for x in xs:
                        if isinstance(x.type, Ref | Tag) or (isinstance(x.type, List) and x.type.store is not None):
                            problem = "depends on numbers that are computed in the batch"
                            check.demand(
                                x, span, "this object", problem, OF_OBJECTS if isinstance(x.type, Ref) else CURE
                            )
                    if op.name == "item":
                        check.demand(xs[1], span, "this index", "depends on numbers that are computed in the batch")
                    if op.name in ("sort_order", "text"):
                        what = "this order" if op.name == "sort_order" else "this string"
                        for x in xs:
                            check.demand(x, span, what, "depends on numbers that are computed in the batch")
                    if op.name == "stack":
                        raise UnsupportedError(
                            "a list whose length differs between examples cannot become an array",
                            span,
                            "reduce it instead (sum, max, min, any, all), or return the list itself",
                        )
                case _:
                    pass


def refuse_wide_constants(module: Module, facts: StructureFacts) -> None:
    """Raise UnsupportedError for an int that the device cannot hold, where it computes with it or returns it."""
    if jax.config.read("jax_enable_x64"):
        return
    entry = module.functions[0]
    _refuse_wide(entry.region.results, entry.span)
    for function in module.functions:
        for instruction in walk(function.region):
            results = instruction.results if isinstance(instruction, Apply) else ()
            if any(r in facts.on_device and not facts.is_column(r) for r in results):
                _refuse_wide(operands(instruction), instruction.span)


def refuse_wide_constants_alone(module: Module) -> None:
    """The same where no host computes with any number."""
    if jax.config.read("jax_enable_x64"):
        return
    for function in module.functions:
        _refuse_wide(function.region.results, function.span)
        for instruction in walk(function.region):
            inside = (x for r in regions(instruction) for x in r.results)
            _refuse_wide((*operands(instruction), *inside), instruction.span)


def _refuse_wide(xs: Iterable[Operand], span: Span) -> None:
    for x in xs:
        if isinstance(x, Literal) and x.is_wide:
            words = f"the constant {x.value} does not fit into the int32 of the device"
            raise WideConstantError(words, span, "write it as a float, or turn on jax_enable_x64")


class WideConstantError(UnsupportedError):
    """An integer of the text for which the device has bits under `jax_enable_x64` alone."""


class TracedDecidesError(UnsupportedError):
    """What an integer decides that JAX traces: as a static argument the host would know it."""


class _Check:
    def __init__(
        self,
        module: Module,
        facts: StructureFacts,
        traced: Mapping[int, str],
        batched: Mapping[int, str],
        obstacles: Mapping[Span, tuple[str, Span]],
    ) -> None:
        self.module, self.facts, self.obstacles = module, facts, obstacles
        self.traced = {module.shared[k]: (name, "an integer", _AS_INTEGER) for k, name in traced.items()}
        entry = module.functions[0].region.args
        self.traced |= {entry[k]: (name, "an array", _AS_BATCH) for k, name in batched.items()}

    def demand(self, x: Operand, span: Span, what: str, problem: str, cure: str = CURE) -> None:
        """The host has to know `x`."""
        if self.facts.is_host(x):
            return
        for name, kind, words in self.traced_below(x):
            error = TracedDecidesError if words is _AS_INTEGER else UnsupportedError
            raise error(
                f"{what} depends on {name}, {kind} that is traced by JAX here, so its value is not known",
                span,
                words.format(name=name),
            )
        also = [self.obstacles[span]] if span in self.obstacles else []
        raise UnsupportedError(f"{what} {problem}", span, cure, also)

    def traced_below(self, x: Operand) -> list[tuple[str, str, str]]:
        """The traced arguments that a value is computed from: name, what it is, and the cure."""
        if not self.traced:
            return []
        makers: dict[Value, Instruction] = {}
        arguments: dict[Value, list[Operand]] = {}
        for function in self.module.functions:
            for instruction in walk(function.region):
                makers.update((r, instruction) for r in instruction.results)
                if isinstance(instruction, Call):
                    parameters = self.module.function(instruction.callee).region.args
                    for parameter, given in zip(parameters, instruction.operands, strict=True):
                        arguments.setdefault(parameter, []).append(given)
        seen: set[Operand] = set()
        todo = [x]
        while todo:
            value = todo.pop()
            if value in seen or not isinstance(value, Value):
                continue
            seen.add(value)
            todo += arguments.get(value, [])
            if (made := makers.get(value)) is not None:
                todo += operands(made)
                todo += [y for region in regions(made) for y in region.results]
                if isinstance(made, Call):
                    todo += self.module.function(made.callee).region.results
        return [words for value, words in self.traced.items() if value in seen]


def refuse_made_strings(module: Module) -> None:
    """Raise UnsupportedError where a result of the entry may be a string that no example holds: the words of a result
    are those of the examples and of the program."""
    makers = {r: i for f in module.functions for i in walk(f.region) for r in i.results}
    flows = _flows(module)
    seen: set[Operand] = set()
    todo = [x for x in module.functions[0].region.results if _holds_string(x.type)]
    while todo:
        value = todo.pop()
        if value in seen or not isinstance(value, Value):
            continue
        seen.add(value)
        made = makers.get(value)
        if isinstance(made, Apply) and made.op.name == "text":
            raise UnsupportedError(
                "a string that is made inside the function cannot be a result",
                made.span,
                "return a number, a bool or an enum member, or make the strings outside from what is returned",
            )
        todo += [x for x in flows.get(value, ()) if _holds_string(x.type)]


def _holds_string(type: Type) -> bool:
    while isinstance(type, List):
        type = type.elem
    return isinstance(type, Tag | BuiltObject)


def _flows(module: Module) -> dict[Value, list[Operand]]:
    """For each value, those that it may be, or hold."""
    flows: dict[Value, list[Operand]] = {}
    for function in module.functions:
        for instruction in walk(function.region):
            sources: Sequence[Sequence[Operand]]
            match instruction:
                case If(then=then, orelse=orelse):
                    sources = list(zip(then.results, orelse.results, strict=True))
                case Map(body=body, filtered=filtered):
                    sources = [[x] for x in body.results[filtered:]]
                case Call(callee=callee, operands=xs):
                    target = module.function(callee).region
                    sources = [[x] for x in target.results]
                    for parameter, given in zip(target.args, xs, strict=True):
                        flows.setdefault(parameter, []).append(given)
                case _:
                    sources = [operands(instruction) for _ in instruction.results]
            for result, found in zip(instruction.results, sources, strict=True):
                flows.setdefault(result, []).extend(found)
    return flows


# ---- unread
#
# Reads whose result nobody uses fail their example all the same: a check takes their place.
#
#     %4 = load[field='x'](%3)             %5 = is_none(%3)
#                                    ->    %6 = not(%5)
#                                          check[kind='AttributeError', message="'NoneType' object has ..."](%6)
#
# The host checks; the device has nothing to do with it. A read that the host or the device needs is checked where it is
# read, and one that cannot fail (`passes/analysis/fallible.py`) needs no check.


def check_unread(module: Module, facts: StructureFacts, fallible: frozenset[Value], schema: Schema) -> Module:
    """The module with a check behind each of the `fallible` reads that nobody needs; the same module when there is
    none."""
    needed = facts.on_host | facts.on_device | facts.numbers
    checker = _Checker(module, facts, fallible - needed, schema)
    functions = tuple(replace(f, region=checker.region(f.region)) for f in module.functions)
    return replace(module, functions=functions) if checker.checks.made else module


class _Checker:
    def __init__(self, module: Module, facts: StructureFacts, unread: frozenset[Value], schema: Schema) -> None:
        self.facts, self.unread = facts, unread
        self.checks = ReadChecks(Fresh(module), schema)

    def region(self, region: Region) -> Region:
        body: list[Instruction] = []
        for instruction in region.body:
            body.append(with_regions(instruction, self.region))
            if isinstance(instruction, Apply) and self.unread.issuperset(instruction.results) and instruction.results:
                before = len(self.checks.made)
                self.check(instruction)
                body += self.checks.made[before:]
        return replace(region, body=tuple(body))

    def check(self, read: Apply) -> None:
        op = read.op
        if op.name != "text" and self.checks.read(read):
            return
        if op.is_jax:
            self.shift(read)
        elif not (op.name in ("int", "round") and not self.facts.is_column(read.results[0])):
            # the host computes it, whose own message names the operand
            failing = own("check", kind="ValueError", message="")
            self.checks.emit(failing, (Literal(True, BOOL), read.results[0]), read.span)

    def shift(self, shift: Apply) -> None:
        if self.facts.is_column(shift.results[0]):
            amount, checks = shift.operands[1], self.checks
            zero = Literal(0, amount.type)
            holds = checks.apply(Op("ge", (), lax.ge_p), (amount, zero), BOOL, shift.span)
            checks.fails(holds, "ValueError", "negative shift count", shift.span)
