"""The functions of a recursion for a gang: each is a function of machine code, which calls others under masks.

    func @trace(%ray, %depth):                trace(mask, state, table, room, ray: vectors, depth: i32):
      %hit = ...                                if room < 0 or the stack is full: give the gang up
      %c = if %hit: ...            ->           m = mask & hit
        %s = call @trace(...)                   if any(m): s = trace(m, ..., room - 1, ...); is the gang given up?
                                                return select(...)

An arm runs if a lane wants it, so lanes that call meet again behind the call (ispc's model: Pharr and Mark, "ispc: A
SPMD compiler for high-performance CPU programming", InPar 2012). A call that is the last thing its function does is a
turn of a loop, as it is where blocks run. `room` counts the entries that the stack of each row would have left; the
lanes of an activation have come through the same calls, so it is one number.
"""

from __future__ import annotations

from collections.abc import Sequence

from autobatch.backends.llvm.lanes.handing import AddressTable, handed, received, types_of
from autobatch.backends.llvm.lanes.likely import last_calls, yielded
from autobatch.backends.llvm.lanes.masked_regions import LIMIT, Regions, bits, blocks_of, lanes_of
from autobatch.backends.llvm.lanes.ops import Environment, shape_of
from autobatch.backends.llvm.lanes.program import Gang
from autobatch.backends.llvm.lanes.tensors import (
    Tensor,
    TensorVariable,
    copied,
    kept,
    select,
    set_all,
)
from autobatch.backends.llvm.lanes.writer import ROOM, LaneValue, LaneWriter
from autobatch.backends.llvm.machine_code import RefusedError
from autobatch.backends.llvm.text import LlvmFunction as Text
from autobatch.ir.core import (
    Apply,
    Call,
    Function,
    If,
    Instruction,
    Operand,
    Region,
    Value,
    walk,
)
from autobatch.ir.rewrite import free_values


class RecursionFunctions:
    """The functions of one recursion, for the gangs of one function of machine code. `uniform`: the values that all
    lanes share; `fails`: can a check in them fail?"""

    def __init__(
        self, gang: Gang, functions: Sequence[Function], uniform: frozenset[Value], table: AddressTable
    ) -> None:
        self.gang, self.uniform, self.table = gang, uniform, table
        self.functions = {f.name: f for f in functions}
        first = len(gang.functions)
        self.names = {f.name: f"@activation{first + k}" for k, f in enumerate(functions)}
        checks = any(isinstance(i, Apply) and i.op.name == "check" for f in functions for i in walk(f.region))
        self.fails = checks and gang.w.width > 1

    def write(self) -> None:
        self.gang.functions += [_Activation(self, f).text() for f in self.functions.values()]

    # ---- what is handed on

    def parameters(self, name: str) -> list[tuple[Value, bool]]:
        """The parameters of a function, and which of them all lanes share."""
        return [(a, a in self.uniform) for a in self.functions[name].region.args]

    def result_type(self, name: str, w: LaneWriter) -> str:
        """Of a function: was it run to its end, and its results."""
        found = ["i1"]
        for x in self.functions[name].region.results:
            found += types_of(w, x.type, False)
        return f"{{ {', '.join(found)} }}"

    def call(
        self, w: LaneWriter, name: str, mask: LaneValue, room: str, xs: Sequence[Tensor], around: str
    ) -> tuple[str, list[Tensor]]:
        """An `i1`, whether the gang has not been given up, and the results. `around`: the state and the table."""
        of = self.result_type(name, w)
        arguments = [f"i{w.width} {bits(w, mask)}", around, f"i64 {room}"]
        for (a, shared), x in zip(self.parameters(name), xs, strict=True):
            arguments += handed(w, x, a.type, shared)
        made = w.f.let(f"call fastcc {of} {self.names[name]}({', '.join(arguments)})")
        fine = w.f.let(f"extractvalue {of} {made}, 0")
        at = 1
        results = []
        for result in self.functions[name].region.results:
            types = types_of(w, result.type, False)
            texts = [w.f.let(f"extractvalue {of} {made}, {at + k}") for k in range(len(types))]
            results.append(received(w, texts, result.type, False))
            at += len(types)
        return fine, results


class _Activation(Regions):
    """One function."""

    def __init__(self, all: RecursionFunctions, function: Function) -> None:
        self.all, self.function = all, function
        inner = Text("")
        inner.declarations, inner.metadata = all.gang.w.f.declarations, all.gang.w.f.metadata
        w = LaneWriter(inner, all.gang.w.width)
        super().__init__(all.gang.inside(w, all.table.frame(inner)), all.uniform, all.fails)
        self.around = "ptr %state, ptr %table"
        self.turns = bool(last_calls(function))

    # ---- the whole

    def text(self) -> str:
        f, w, region = self.f, self.w, self.function.region
        of = self.all.result_type(self.function.name, w)
        self.enter()
        parameters = [f"i{w.width} %mask", self.around, "i64 %room"]
        xs: list[Tensor] = []
        for k, (a, shared) in enumerate(self.all.parameters(self.function.name)):
            types = types_of(w, a.type, shared)
            names = [f"%p{k}.{n}" for n in range(len(types))]
            parameters += [f"{t} {n}" for t, n in zip(types, names, strict=True)]
            xs.append(received(w, names, a.type, shared))
        held: Environment = {v: self.all.table.captured(w, v) for v in free_values(region)}
        self.returns = self.cleared(region.results)
        self.run(held, xs, lanes_of(w, "%mask"))
        self.leave(of)
        self.all.gang.scratch = self.gang.scratch
        if w.width > 1 and w.reserved > ROOM:  # each call has it anew
            raise RefusedError(f"a call needs {w.reserved:,} bytes for its arrays, more than {ROOM:,}")
        self.all.gang.w.reserved = max(self.all.gang.w.reserved, w.reserved)
        for write in self.gang.behind:
            write()
        f.head = f"internal fastcc {of} {self.all.names[self.function.name]}({', '.join(parameters)}) nounwind"
        return str(f)

    def enter(self) -> None:
        """Is there room for this activation? Else the gang is given up."""
        f = self.f
        here = f.let(f"ptrtoint ptr {f.array_slot('i64', 1)} to i64")
        low = f.let(f"icmp ult i64 {here}, {f.load('i64', '%state', LIMIT)}")
        full = f.let("icmp slt i64 %room, 0")
        self.give_up(f.let(f"or i1 {low}, {full}"))

    def leave(self, of: str) -> None:
        f, w = self.f, self.w
        held = f.let(f"insertvalue {of} zeroinitializer, i1 true, 0")
        at = 1
        for x, v in zip(self.function.region.results, self.returns, strict=True):
            for argument in handed(w, v.get(), x.type, False):
                held = f.let(f"insertvalue {of} {held}, {argument}, {at}")
                at += 1
        f.do(f"ret {of} {held}")
        f.block(self.given_up, falls=False)
        f.do(f"ret {of} zeroinitializer")

    # ---- turns

    def run(self, held: Environment, xs: Sequence[Tensor], mask: LaneValue) -> None:
        """The body, again and again for lanes that call the function as the last thing they do."""
        region = self.function.region
        if not self.turns:
            self.charge(blocks_of(region))
            self.returning(region.body, region.results, {**held, **dict(zip(region.args, xs, strict=True))}, mask)
            return
        self.arguments = [TensorVariable(self.w, *shape_of(a.type), a in self.uniform) for a in region.args]
        set_all(self.w, self.arguments, xs)
        self.again = self.w.slot("bool")
        self.again.set(mask)
        with self.f.whilst(lambda: self.w.any(self.again.get())):
            self.charge(blocks_of(region))
            active = self.again.get()
            self.again.set(self.w.constant(False, "bool"))
            env = {**held, **{a: v.get() for a, v in zip(region.args, self.arguments, strict=True)}}
            env = {a: copied(self.w, x) for a, x in env.items()} if self.arguments else env
            self.returning(region.body, region.results, env, active)

    def returning(
        self, body: Sequence[Instruction], results: Sequence[Operand], env: Environment, mask: LaneValue
    ) -> None:
        """The end of a function: what its lanes return."""
        last = body[-1] if body else None
        name = self.function.name
        if isinstance(last, Call) and self.turns and last.callee == name and last.results == tuple(results):
            mask = self.body(body[:-1], last.operands, env, mask)
            self.turn_again(last, env, mask)
        elif isinstance(last, If):
            reads: tuple[Operand, ...] = (last.condition, *free_values(Region((), (last,), tuple(results))))
            mask = self.body(body[:-1], reads, env, mask)
            self.either(last, results, env, mask)
        elif isinstance(last, Call) and last.results == tuple(results):
            mask = self.body(body[:-1], last.operands, env, mask)
            self.returned(self.called(last, env, mask, "%room"), mask)
        else:
            mask = self.body(body, results, env, mask)
            self.returned([self.control.read(x, env) for x in results], mask)

    def turn_again(self, call: Call, env: Environment, mask: LaneValue) -> None:
        w = self.w
        new = [self.control.read(x, env) for x in call.operands]
        held = []
        for v, x, a in zip(self.arguments, new, self.function.region.args, strict=True):
            held.append(x if a in self.uniform or w.width == 1 else select(w, mask, x, v.get()))
        set_all(w, self.arguments, held)
        self.again.set(w.instruction("or", self.again.get(), mask))

    def either(self, branch: If, results: Sequence[Operand], env: Environment, mask: LaneValue) -> None:
        """A branch that is the last thing a function does."""
        condition = self.control.read(branch.condition, env).one()

        def arm(region: Region, inside: LaneValue) -> None:
            self.returning(region.body, yielded(branch, region, results), dict(env), inside)

        if condition.shared or self.w.width == 1:
            with self.f.when(condition.text) as otherwise:
                arm(branch.then, mask)
                otherwise()
                arm(branch.orelse, mask)
            return
        for region, inside in zip((branch.then, branch.orelse), self.sides(condition, mask), strict=True):
            if self.is_guarded(region):
                with self.f.when(self.w.any(inside)):
                    arm(region, inside)
            else:
                arm(region, inside)

    def returned(self, xs: Sequence[Tensor], mask: LaneValue) -> None:
        for v, x in zip(self.returns, xs, strict=True):
            v.set(kept(self.w, x if self.w.width == 1 else select(self.w, mask, x, v.get())))

    # ---- calls

    def called(self, call: Call, env: Environment, mask: LaneValue, room: str) -> list[Tensor]:
        if not self.fails:
            return self.calling(call, env, mask, room)
        found = self.cleared(call.results)
        with self.f.when(self.w.any(mask)):  # all of its lanes may have failed
            set_all(self.w, found, self.calling(call, env, mask, room))
        return [copied(self.w, v.get()) for v in found]

    def calling(self, call: Call, env: Environment, mask: LaneValue, room: str) -> list[Tensor]:
        xs = [self.control.read(x, env) for x in call.operands]
        fine, found = self.all.call(self.w, call.callee, mask, room, xs, self.around)
        self.give_up(self.f.let(f"xor i1 {fine}, true"))
        return found
