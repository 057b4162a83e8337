"""What structure does behind a test of computed numbers runs in front of it, for the rows that take the arm and others.

    %4 = gt(%3, 0.0)                                %s = call @f.total(%2), status %t
    %7 = if %4 then:                          ->    %4 = gt(%3, 0.0)
      %5 = call @f(%2)                              %7 = if %4 then:
      %6 = add(%3, %5); yield %6                      check(%t == 0); %6 = add(%3, %s); yield %6
    else: yield %3                                  else: yield %3

Frames need to know which calls and turns there are before any number is computed. Which calls and turns there can be is
structure; a row that does not take the arm computes them for nothing. What fails in them is a number (`total.py`), and
fails the rows that take the arm. Nothing that runs in front may wait for a loop that computed numbers end: a row that
does not take the arm might never leave it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import jax
import networkx as nx

from autobatch.data.schema import Schema
from autobatch.ir import jax_compat
from autobatch.ir.blocks import STATUS
from autobatch.ir.core import (
    Apply,
    Call,
    For,
    Function,
    If,
    Instruction,
    Literal,
    Module,
    Operand,
    Region,
    Value,
    While,
    regions,
    walk,
)
from autobatch.ir.ops import OF_CONTROL, Op, own
from autobatch.ir.rewrite import Fresh, copy_region, free_values, with_regions
from autobatch.ir.types import BOOL, Array
from autobatch.passes.control.implied import definitions, implied
from autobatch.passes.control.statuses import FINE
from autobatch.passes.control.total import HELD, Status, Total, UnstatedFailure
from autobatch.passes.simplify.inline import call_graph
from autobatch.source import Span

Obstacle = tuple[str, Span]


def speculate(
    module: Module,
    device: frozenset[Value],
    fallible: frozenset[Value],
    schema: Schema,
    obstacle_in: Callable[[Instruction], Obstacle | None],
    stands: Callable[[If], bool],
) -> tuple[Module, Mapping[Span, Obstacle], Mapping[Span, Span]]:
    """The module in which what structure does in such branches runs in front of them; for the other branches what
    stands in the way; and for the loops and calls that run in front, which branch they stood in. `device`: the values
    that computed numbers decide. `stands`: can a branch not stay as it is?"""
    made = _Speculation(module, device, fallible, schema, obstacle_in, stands)
    return made.run(), made.obstacles, made.in_front


@dataclass
class _Codes:
    """The statuses that something can have: its own, and those of the functions that it calls."""

    direct: set[int] = field(default_factory=set)
    callees: set[str] = field(default_factory=set)


class _Speculation:
    def __init__(
        self,
        module: Module,
        device: frozenset[Value],
        fallible: frozenset[Value],
        schema: Schema,
        obstacle_in: Callable[[Instruction], Obstacle | None],
        stands: Callable[[If], bool],
    ) -> None:
        self.module, self.obstacle_in, self.stands = module, obstacle_in, stands
        self.fresh, self.shared = Fresh(module), frozenset(module.shared)
        self.total = Total(self.fresh, schema, set(device), fallible, self.called)
        self.graph, self.made = call_graph(module), definitions(module)
        self.failing = self.found(self.may_fail)
        self.endless = self.found(self.waits)
        self.obstacles: dict[Span, Obstacle] = {}
        self.in_front: dict[Span, Span] = {}
        self.names = {f.name for f in module.functions}
        self.wanted: dict[str, str] = {}
        self.of_status: dict[Operand, _Codes] = {}
        self.of_function: dict[str, _Codes] = {}
        self.now = _Codes()
        self.owner = module.functions[0]
        self.circles = {n: c for c in nx.strongly_connected_components(self.graph) for n in c}

    def run(self) -> Module:
        functions: dict[str, Function] = {}
        for f in self.module.functions:
            self.owner = f
            functions[f.name] = replace(f, region=self.region(f.region))
        made: list[Function] = []
        done: set[str] = set()
        while todo := [name for name in self.wanted if name not in done]:
            for name in todo:
                done.add(name)
                made.append(self.function(functions[name], self.wanted[name]))
        if not self.of_status and not self.total.changed:
            return self.module
        whole = [*functions.values(), *made]
        found = replace(self.module, functions=tuple(replace(f, region=self.resolved(f.region)) for f in whole))
        entry = whole[0].name
        reached = {entry} | nx.descendants(call_graph(found), entry)
        return replace(found, functions=tuple(f for f in found.functions if f.name in reached))

    # ---- what functions do

    def found(self, does: Callable[[Instruction], bool]) -> frozenset[str]:
        """The functions that do something, themselves or in what they call."""
        own_ = {f.name for f in self.module.functions if any(map(does, walk(f.region)))}
        return frozenset(own_.union(*(nx.ancestors(self.graph, name) for name in own_)))

    def may_fail(self, i: Instruction) -> bool:
        if not isinstance(i, Apply) or i.op.is_jax:
            return False
        return i.op.name == "check" or not self.total.fallible.isdisjoint(i.results)

    def waits(self, i: Instruction) -> bool:
        """Is this a loop that computed numbers end?"""
        match i:
            case While(condition=test):
                return self.total.on_device(test.results[0])
            case For(count=count):
                return self.total.on_device(count)
            case Apply(op=op):
                return jax_compat.holds_loop(op) or op.name in (*OF_CONTROL, "gradient_of")
            case _:
                return False

    def called(self, name: str) -> tuple[str, bool]:
        if name not in self.failing or name in self.wanted.values():
            self.now.callees.update({name} & set(self.wanted.values()))
            return name, False
        if name not in self.wanted:
            self.wanted[name] = self.new_name(f"{name}.total")
        self.now.callees.add(self.wanted[name])
        return self.wanted[name], True

    def new_name(self, name: str) -> str:
        while name in self.names:
            name += "'"
        self.names.add(name)
        return name

    def function(self, function: Function, name: str) -> Function:
        """What takes the place of a function: it gives two statuses behind its results."""
        env: dict[Value, Operand] = {}
        copied = copy_region(function.region, env, self.fresh)
        known = {new for old, new in env.items() if old in self.total.device and isinstance(new, Value)}
        self.total.device |= known
        renamed = {new for old, new in env.items() if old in self.total.fallible and isinstance(new, Value)}
        self.total.fallible |= renamed
        for old, new in env.items():
            if old in self.of_status:
                self.of_status[new] = self.of_status[old]
        with self.codes() as codes:
            body = self.total.body(copied.body, copied.results)
        for i in walk(copied):
            if isinstance(i, Apply) and i.op.name == "check" and i.op["kind"] == HELD:
                held = self.of_status[i.operands[0]]
                codes.direct |= held.direct
                codes.callees |= held.callees
        self.of_function[name] = codes
        results = (*body.results, body.status.of_all, body.status.of_host)
        return Function(name, Region(copied.args, tuple(body.made), results), function.span)

    # ---- branches

    def region(self, region: Region) -> Region:
        body: list[Instruction] = []
        for i in region.body:
            whole = with_regions(i, self.region)
            if isinstance(whole, If) and self.total.on_device(whole.condition) and self.stands(whole):
                try:
                    self.refuse(whole)
                    front: list[Instruction] = []
                    arms = [
                        self.arm(r, front, whole.span, self.outside(whole.condition, truth, front))
                        for r, truth in ((whole.then, True), (whole.orelse, False))
                    ]
                    body += front
                    whole = replace(whole, then=arms[0], orelse=arms[1])
                    self.total.changed = True
                except UnstatedFailure as failed:
                    self.obstacles.setdefault(whole.span, (failed.what, failed.span))
            body.append(whole)
        return replace(region, body=tuple(body))

    def refuse(self, branch: If) -> None:
        """Raise Failed where something cannot run in front."""
        for arm, truth in ((branch.then, True), (branch.orelse, False)):
            tests = [test for test, _ in implied(branch.condition, truth, self.made, self.total.device)]
            for k in self.lifted(arm):
                i = arm.body[k]
                for inner in (i, *(j for r in regions(i) for j in walk(r))):
                    if self.waits(inner):
                        raise UnstatedFailure("a loop that computed numbers end is in it", inner.span)
                    if isinstance(inner, Call):
                        self.refuse_call(inner, tests)
                    if isinstance(inner, Apply) and not self.can_be_checked(inner):
                        raise UnstatedFailure("what may fail in it is not known ahead", inner.span)

    def refuse_call(self, call: Call, tests: Sequence[Value]) -> None:
        """`tests`: what the host knows of rows that come to this call."""
        if call.callee in self.endless:
            raise UnstatedFailure(
                f"{call.callee} is called in it, which holds a loop that computed numbers end", call.span
            )
        callee = self.module.function(call.callee) if call.callee in self.graph else None
        if callee is not None and all(isinstance(a.type, Array) for a in callee.region.args):
            raise UnstatedFailure(f"{call.callee} is called in it, which calls itself", call.span)
        objects = [x for x in call.operands if not isinstance(x.type, Array)]
        if (
            call.callee in self.circles[self.owner.name]
            and self.owner.region.args
            and all(x in self.owner.region.args for x in objects)
            and not (call.callee == self.owner.name and self.counts(call, tests))
        ):
            raise UnstatedFailure(
                f"{call.callee} is called in it with the same objects: numbers alone end that", call.span
            )
        reached = {call.callee} | (nx.descendants(self.graph, call.callee) if call.callee in self.graph else set())
        for name in sorted(reached & self.graph.nodes):
            for i in walk(self.module.function(name).region):
                if isinstance(i, Apply) and not self.can_be_checked(i):
                    raise UnstatedFailure(f"{name} is called in it, and what may fail there is not known ahead", i.span)

    def counts(self, call: Call, tests: Sequence[Value]) -> bool:
        """Does a function call itself with other values of what tests of structure read? They end it."""
        pairs = zip(self.owner.region.args, call.operands, strict=True)
        moving = {a for a, x in pairs if x != a and not self.total.on_device(a)}
        seen, todo = set[Value](), list(tests)
        while todo:
            x = todo.pop()
            if x in moving:
                return True
            if x not in seen and x in self.made:
                seen.add(x)
                todo += free_values(Region((), (self.made[x][0],), ()))
        return False

    def can_be_checked(self, i: Apply) -> bool:
        if self.total.fallible.isdisjoint(i.results) or any(map(self.total.on_device, i.operands)):
            return True
        return i.op.name in ("load", "load_is_none", "length", "item", "text")

    def lifted(self, arm: Region) -> list[int]:
        """The instructions of an arm that run in front: those that are no arithmetic, and what they need."""
        maker = {r: k for k, i in enumerate(arm.body) for r in i.results}
        todo = [k for k, i in enumerate(arm.body) if self.obstacle_in(i) is not None]
        found: set[int] = set()
        while todo:
            k = todo.pop()
            if k not in found:
                found.add(k)
                read = free_values(Region((), (arm.body[k],), ()))
                todo += [maker[x] for x in read if x in maker]
        return sorted(found)

    def outside(self, condition: Operand, truth: bool, front: list[Instruction]) -> Operand:
        """A status: does the host know of a row that it is not in the arm where a condition is `truth`? It may be told
        by a test of structure that is part of it: `x < least or depth == 0`."""
        found: Operand = FINE
        for test, holds in implied(condition, truth, self.made, self.total.device):
            elsewhere = Literal(1, STATUS)
            arms = (FINE, elsewhere) if holds else (elsewhere, FINE)
            found = self.total.first(found, self.total.statuses.chosen(test, *arms, front), front)
        return found

    def arm(self, arm: Region, front: list[Instruction], branch: Span, outside: Operand) -> Region:
        """What stays of an arm of the branch."""
        lifted = set(self.lifted(arm))
        body: list[Instruction] = []
        known = Status(outside, outside)
        for k, i in enumerate(arm.body):
            if k not in lifted:
                body.append(i)
                continue
            if not isinstance(i, Apply | If):
                self.in_front.setdefault(i.span, branch)
            with self.codes() as codes:
                if known.of_host == Status().of_host:
                    status = self.total.instruction(i, front)
                else:
                    inside = self.total.like(i.results)
                    inner = self.total.body([replace(i, results=inside)], inside)
                    status = self.total.guarded(known.of_host, inner, i.results, front)
            if not status.is_fine:
                self.of_status[status.of_all] = codes
                body.append(Apply((), own("check", kind=HELD, message=""), (status.of_all,), i.span))
            known = self.total.both(known, status, front)
        return Region((), tuple(body), arm.results)

    # ---- statuses

    def codes(self) -> _Noting:
        return _Noting(self)

    def all_codes(self, codes: _Codes) -> list[int]:
        found, seen, todo = set(codes.direct), set[str](), list(codes.callees)
        while todo:
            name = todo.pop()
            if name not in seen:
                seen.add(name)
                found |= self.of_function[name].direct
                todo += self.of_function[name].callees
        return sorted(found)

    def resolved(self, region: Region) -> Region:
        """Checks of statuses as checks of what they stand for."""
        body: list[Instruction] = []
        for i in region.body:
            if not isinstance(i, Apply) or i.op.name != "check" or i.op["kind"] != HELD:
                body.append(with_regions(i, self.resolved))
                continue
            (status,) = i.operands
            for code in self.all_codes(self.of_status[status]):
                site, other = self.total.sites[code - 1], self.fresh.value(BOOL)
                body.append(Apply((other,), Op("ne", (), jax.lax.ne_p), (status, Literal(code, STATUS)), site.span))
                body.append(Apply((), own("check", kind=site.kind, message=_plain(site.message)), (other,), site.span))
        return replace(region, body=tuple(body))


class _Noting:
    """Notes the statuses that are made inside."""

    def __init__(self, of: _Speculation) -> None:
        self.of, self.codes = of, _Codes()

    def __enter__(self) -> _Codes:
        self.outer, self.of.now = self.of.now, self.codes
        self.first = len(self.of.total.sites)
        return self.codes

    def __exit__(self, *_: object) -> None:
        self.of.now = self.outer
        self.codes.direct.update(range(self.first + 1, len(self.of.total.sites) + 1))


def _plain(message: str) -> str:
    """A message as a format string that says the same."""
    return message.replace("{", "{{").replace("}", "}}")
