"""Which values the host can compute, which of them anybody needs, and where the others come from.

The structural slice: a value is *host-computable* when it derives from example data and constants through operations
alone, not from shared arrays. It is *structural* when control, a reference or an index of the host needs it. A number
that the device needs is computed there, unless it is an integer, bool or tag that the host can compute: that becomes a
column. Runs on a module whose loops are functions (`passes/loops.py`).

Provenance: each region of each function is a space of rows. A number is computed in the region where its operation
stands; everything else (parameters, results of calls and of branches, loads, elements of lists) is a pointer to some of
these *sources*. `Provenance.sources` is their least fixpoint over the calls of the module; a pointer with one uniform
source is that value.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, assert_never

import numpy as np
from numpy.typing import NDArray

from autobatch.data.columns import Schema, field_column
from autobatch.data.spec import Number, RegionSpec, TableSpec, element_type
from autobatch.ir import host_ops
from autobatch.ir.core import (
    INT,
    Apply,
    Array,
    BuiltObject,
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
    Ref,
    Region,
    Value,
    While,
    operands,
    walk,
)
from autobatch.ir.host_ops import never_fails
from autobatch.ir.ops import INHERENT, Op, about
from autobatch.ir.system import Space, Variable

# ---- the structural slice


@dataclass
class StructureFacts:
    """Facts about the values of a module.

    `host`: computable there; `direct`: without waiting for the result of a call. `on_host` and `on_device`: needed
    there (a value can be needed in both places; a list needed on the device is one whose elements are; one needed on
    the host may be needed for its length alone, when its elements are not computable there). `uniform`: computed from
    shared values alone, so once for the whole batch. `numbers`: shared integers, and uniform values of such, that
    decide structure: the host is told what they are."""

    numbers: set[Value] = field(default_factory=set)
    uniform: set[Value] = field(default_factory=set)
    host: set[Value] = field(default_factory=set)
    direct: set[Value] = field(default_factory=set)
    on_host: set[Value] = field(default_factory=set)
    on_device: set[Value] = field(default_factory=set)

    def is_host(self, operand: Operand) -> bool:
        return isinstance(operand, Literal) or operand in self.host or operand in self.numbers

    def is_column(self, operand: Operand) -> bool:
        """Does the device receive this value as a column that the host has computed?"""
        if not isinstance(operand, Value) or operand not in self.direct or operand in self.uniform:
            return False
        return is_small(operand)


def is_small(value: Value) -> bool:
    """Integers and bools travel as columns; floats and arrays have derivatives, or cost too much on the host."""
    return isinstance(value.type, Array) and value.type.is_scalar and (value.type.is_integer or value.type.is_bool)


def is_load(op: Op) -> bool:
    return op.name in ("load", "item")


def is_host_only(op: Op) -> bool:
    """Does the device not know this operation? Its result is a column even where it waits for the result of a call."""
    return not op.is_jax and about(op).host and not is_load(op)


def analyse(
    module: Module, traced: frozenset[int] = frozenset(), numbers: frozenset[int] = frozenset()
) -> StructureFacts:
    """Both facts, by fixpoint over the functions of the module. `traced` are parameters of the entry whose values the
    host will not know: arrays that an outer `jax.jit` traces. `numbers` are shared values, by position, that the host
    may be told: Python integers of the call. It asks for what decides structure (`n`, or `n > 0`), and a plan is for
    these values; every other one is a number like a shared float, and a plan is for all its values."""
    known = frozenset(module.shared[k] for k in numbers)
    asked = frozenset(_Analysis(module, traced, known | decided(module, known), frozenset()).run().numbers)
    return _Analysis(module, traced, asked, asked).run()


def decided(module: Module, shared: frozenset[Value]) -> frozenset[Value]:
    """The scalars that operations compute from these shared values alone. What can fail is not among them (a division,
    a sum that overflows): it fails for the examples that run it."""
    found = set(shared)
    for instruction in (i for f in module.functions for i in walk(f.region)):
        if isinstance(instruction, Apply) and never_fails(instruction.op):
            read = [x for x in instruction.operands if isinstance(x, Value)]
            scalars = all(isinstance(r.type, Array) and r.type.is_scalar for r in instruction.results)
            if read and scalars and all(x in found for x in read):
                found.update(instruction.results)
    return frozenset(found - shared)


class _Analysis:
    """`numbers`: the uniform values that structure may depend on; `columns`: those that columns of numbers may."""

    def __init__(
        self, module: Module, traced: frozenset[int], numbers: frozenset[Value], columns: frozenset[Value]
    ) -> None:
        self.module, self.traced, self.numbers, self.columns = module, traced, numbers, columns
        self.facts = StructureFacts()
        self.functions = {f.name: f for f in module.functions}
        self.sites: dict[str, list[Call]] = defaultdict(list)
        self.definition: dict[Value, tuple[Instruction, int]] = {}
        self.parameter: dict[Value, tuple[str, int]] = {}
        self.turns: set[Value] = set()
        for f in module.functions:
            self.parameter.update({a: (f.name, k) for k, a in enumerate(f.region.args)})
            for instruction in walk(f.region):
                self.definition.update({r: (instruction, k) for k, r in enumerate(instruction.results)})
                if isinstance(instruction, Call):
                    self.sites[instruction.callee].append(instruction)
                if isinstance(instruction, Map):
                    self.turns.update(instruction.body.args)

    def run(self) -> StructureFacts:
        self.find_uniform()
        self.find_host()
        self.find_needs()
        return self.facts

    def find_uniform(self) -> None:
        known = set(self.module.shared)
        for function in self.module.functions:
            for instruction in walk(function.region):
                op = instruction.op if isinstance(instruction, Apply) else None
                if op is not None and not (is_load(op) or is_host_only(op) or op.exact):
                    read = [x for x in operands(instruction) if isinstance(x, Value)]
                    if read and all(x in known for x in read):
                        known.update(instruction.results)
                        self.facts.uniform.update(instruction.results)

    # ---- what the host can compute: the largest solution, by removal

    def find_host(self) -> None:
        self.everything = frozenset((*self.definition, *self.parameter, *self.turns))
        self.facts.host = self._largest(set(self.everything), self.numbers, through_calls=True)
        self.facts.direct = self._largest(set(self.facts.host), self.columns, through_calls=False)

    def _largest(self, held: set[Value], numbers: frozenset[Value], *, through_calls: bool) -> set[Value]:
        """The values that stay when each goes that waits for one that is gone."""
        waiting: dict[Value, list[Value]] = defaultdict(list)
        gone: list[Value] = []
        for value in held:
            needed = self.waits_for(value, numbers, through_calls)
            if needed is None:
                gone.append(value)
                continue
            for operand in needed:
                if isinstance(operand, Literal) or operand in numbers:
                    continue
                if operand in held:
                    waiting[operand].append(value)
                else:
                    gone.append(value)
                    break
        while gone:
            value = gone.pop()
            if value in held:
                held.remove(value)
                gone += waiting[value]
        return held

    def waits_for(self, value: Value, numbers: frozenset[Value], through_calls: bool) -> Iterable[Operand] | None:
        """What the host has to know for it to know a value; None where that is not enough."""
        if value in self.turns or value in numbers:
            return ()
        if isinstance(element_type(value.type), BuiltObject):
            return None  # known when everything has run
        if isinstance(value.type, Array) and value.type.dtype.startswith("key<"):
            return None  # random bits are made on the device, from raw key data that the host never reads
        if value in self.parameter:
            name, k = self.parameter[value]
            if k in self.traced and name == self.module.functions[0].name:
                return None
            return [site.operands[k] for site in self.sites[name]]
        instruction, k = self.definition[value]
        match instruction:
            case Apply(op=op) if op.name in INHERENT:
                return None
            case Apply(op=op, operands=xs):
                of_host = is_host_only(op) or op.exact  # it has more bits there
                return () if op.name == "length" or (not through_calls and of_host) else xs
            case If(condition=c, then=then, orelse=orelse):
                return (c, then.results[k], orelse.results[k])
            case Call(callee=callee):
                return (self.functions[callee].region.results[k],) if through_calls else None
            case Map(count=count, body=body, filtered=filtered):
                return (count, body.results[k + filtered]) if through_calls else None
            case For() | While():
                raise AssertionError("loops are functions by now")
        assert_never(instruction)

    # ---- who needs what: from the entry's results, from control, and from effects

    def find_needs(self) -> None:
        entry = self.module.functions[0]
        self.todo: list[tuple[Operand, bool]] = []
        for result in entry.region.results:
            self.need(result, device=self.is_numeric(result))
        reached = self.reached_functions()
        for name in reached:
            for instruction in walk(self.functions[name].region):
                match instruction:
                    case If(condition=c):
                        self.need(c, device=False)
                    case Map(count=n, body=body, filtered=filtered):
                        self.need(n, device=False)
                        if filtered:
                            self.need(body.results[0], device=False)
                    case Apply(op=op, operands=xs) if not op.is_jax and about(op).effect:
                        for x in xs:
                            self.need(x, device=False)
                    case _:
                        pass
        while self.todo:
            operand, device = self.todo.pop()
            if isinstance(operand, Value):
                self.propagate(operand, device)

    def reached_functions(self) -> set[str]:
        reached, todo = {self.module.functions[0].name}, [self.module.functions[0]]
        while todo:
            for instruction in walk(todo.pop().region):
                if isinstance(instruction, Call) and instruction.callee not in reached:
                    reached.add(instruction.callee)
                    todo.append(self.functions[instruction.callee])
        return reached

    def is_numeric(self, operand: Operand) -> bool:
        """Does this result leave as pointers (to device numbers, made objects), not as what the host computed?"""
        return isinstance(element_type(operand.type), Array | BuiltObject)

    def need(self, operand: Operand, *, device: bool) -> None:
        """Note that `operand` is needed; a small host value that the device needs is needed on the host too."""
        if isinstance(operand, Value) and operand in self.numbers and not device:
            self.facts.numbers.add(operand)
            self.facts.on_host.add(operand)
            return
        if not isinstance(operand, Value) or operand not in self.everything:
            return
        if device and self.facts.is_column(operand):
            self._note(operand, on_device=True)
            device = False
        self._note(operand, on_device=device)

    def _note(self, value: Value, *, on_device: bool) -> None:
        place = self.facts.on_device if on_device else self.facts.on_host
        if value not in place:
            place.add(value)
            self.todo.append((value, on_device))

    def propagate(self, value: Value, device: bool) -> None:
        if device and self.facts.is_column(value):
            return
        if value in self.turns:
            return
        if value in self.parameter:
            name, k = self.parameter[value]
            for site in self.sites[name]:
                self.need(site.operands[k], device=device)
            return
        instruction, k = self.definition[value]
        match instruction:
            case Apply(op=op, operands=xs):
                for x in xs:
                    if op.name in ("make", "adopt"):
                        self.need(x, device=self.is_numeric(x))
                    elif op.name == "pack_list":
                        self.need_element(x, device)
                    else:
                        self.need(x, device=device and (self.is_made_list(x) or not is_load(op)))
            case If(then=then, orelse=orelse):
                self.need(then.results[k], device=device)
                self.need(orelse.results[k], device=device)
            case Call(callee=callee):
                self.need(self.functions[callee].region.results[k], device=device)
            case Map(count=count, body=body, filtered=filtered):
                self.need(count, device=False)
                self.need_element(body.results[k + filtered], device)
            case For() | While():
                raise AssertionError("loops are functions by now")
            case _:
                assert_never(instruction)

    def need_element(self, element: Operand, device: bool) -> None:
        """An element of a list that a `Map` made. A list may be needed on the host for its length alone."""
        if device or self.facts.is_host(element) or element in self.numbers or self.is_made_list(element):
            self.need(element, device=device)

    def is_made_list(self, operand: Operand) -> bool:
        """A list that a `Map` made: its elements are rows of the device, its length is known to the host."""
        return isinstance(operand.type, List) and operand.type.store is None


# ---- decisions
#
# What shared integers decide, computed on the host at every call: what a plan is for.
#
# if n > 3:                 n = 4, n = 5: one plan, for True          n = 2: another one, for False
# f(node.left, n - 1)       a plan for each n


class Decisions:
    """The values `asked` of a module, as functions of shared values alone: those at the positions `deciding`."""

    def __init__(self, module: Module, asked: Sequence[Value]) -> None:
        self.asked, self.constants = asked, module.constants
        makers = {r: i for f in module.functions for i in walk(f.region) if isinstance(i, Apply) for r in i.results}
        self.steps: list[Apply] = []
        needed: set[Value] = set()
        todo: list[Operand] = list(asked)
        while todo:
            value = todo.pop()
            if isinstance(value, Value) and value not in needed:
                needed.add(value)
                if value in makers:
                    todo += makers[value].operands
        for made in makers.values():
            if not needed.isdisjoint(made.results) and made not in self.steps:
                self.steps.append(made)
        self.deciding = tuple(k for k, x in enumerate(module.shared) if x in needed)
        self.read = tuple(module.shared[k] for k in self.deciding)

    def values(self, integers: Sequence[int]) -> tuple[Number, ...]:
        """The values of `asked`, for values of the shared inputs at `deciding`."""
        held = {x: np.array([n]) for x, n in zip(self.read, integers, strict=True)}
        for step in self.steps:
            types = [r.type for r in step.results if isinstance(r.type, Array)]
            operands = [self.literal(x) if isinstance(x, Literal) else held[x] for x in step.operands]
            held.update(zip(step.results, host_ops.evaluate(step.op, types, operands, 1), strict=True))
        return tuple(held[x][0].item() for x in self.asked)

    def literal(self, x: Literal) -> NDArray[Any]:
        return np.asarray(x.value if x.constant < 0 else self.constants[x.constant])[None]


# ---- provenance


LISTS = ("pack_list", "flatten")
"""Operations that make a list of pointers, and compute nothing."""

OBJECTS = ("make", "adopt", "none")
"""Operations whose result is an object: a pointer too."""


@dataclass(frozen=True, slots=True)
class PointerSource:
    """Where a number comes from: a `value` computed in the region `space`, a uniform operand, or a data column."""

    kind: str
    value: Operand | str
    space: Space | None = None


@dataclass
class RegionRows:
    """A region, its space, and what the planner has to record in it."""

    function: Function
    region: Region
    space: Space
    tables: dict[str, TableSpec] = field(default_factory=dict)
    exports: dict[Value, int] = field(default_factory=dict)
    arms: dict[int, tuple[RegionRows, RegionRows]] = field(default_factory=dict)
    variables: dict[Operand, Variable] = field(default_factory=dict)

    def spec(self) -> RegionSpec:
        arms = {k: (a.spec(), b.spec()) for k, (a, b) in self.arms.items()}
        return RegionSpec(self.space, tuple(self.tables.values()), self.exports, arms)


Incoming = tuple[Sequence[PointerSource], Sequence[tuple[Operand, RegionRows]]]
"""Sources, and operands whose sources are those of a pointer too, with the regions that pass them on."""


class Provenance:
    """Every region as a space, and the sources of every value that the device needs."""

    def __init__(self, module: Module, facts: StructureFacts, schema: Schema) -> None:
        self.module, self.facts, self.schema = module, facts, schema
        self.functions = {f.name: f for f in module.functions}
        self.shared = frozenset(module.shared)
        self.spaces: list[Space] = []
        self.regions: list[RegionRows] = []
        self.home: dict[Value, RegionRows] = {}
        self.definition: dict[Value, tuple[Instruction, int]] = {}
        self.parameter: dict[Value, tuple[str, int]] = {}
        self.sites: dict[str, list[tuple[Call, RegionRows]]] = defaultdict(list)
        self.uniform: set[Value] = set()
        self.sources: dict[Value, frozenset[PointerSource]] = {}
        self.roots = {f.name: self.lay_out(f, f.region, f.name) for f in module.functions}
        self.find_sources()

    # ---- layout

    def space(self, name: str, kind: str = "region", base: int = -1) -> Space:
        self.spaces.append(Space(len(self.spaces), name, kind, base))
        return self.spaces[-1]

    def lay_out(self, function: Function, region: Region, name: str, base: int = -1) -> RegionRows:
        """`base`: the space of what an arm stands in."""
        built = RegionRows(function, region, self.space(name, base=base))
        self.regions.append(built)
        for k, argument in enumerate(region.args):
            self.parameter[argument] = (function.name, k)
            self.home[argument] = built
        branches = 0
        for n, instruction in enumerate(region.body):
            for k, result in enumerate(instruction.results):
                self.definition[result] = (instruction, k)
                self.home[result] = built
            match instruction:
                case If(then=then, orelse=orelse):
                    suffix = str(branches) if branches else ""
                    branches += 1
                    built.arms[n] = (
                        self.lay_out(function, then, f"{name}.then{suffix}", built.space.index),
                        self.lay_out(function, orelse, f"{name}.else{suffix}", built.space.index),
                    )
                case Call(callee=callee):
                    self.sites[callee].append((instruction, built))
                case Map(body=body):
                    call = body.body[0]
                    assert isinstance(call, Call)
                    self.sites[call.callee].append((call, built))
                    self.definition.update({r: (call, k) for k, r in enumerate(call.results)})
                case Apply():
                    pass
                case For() | While():
                    raise AssertionError("loops are functions by now")
                case _:
                    assert_never(instruction)
        return built

    # ---- where numbers come from

    def is_computed(self, value: Value) -> bool:
        """Is this value the result of arithmetic on the device (not a load, not a copy of a pointer)?"""
        if value not in self.definition or value not in self.facts.on_device:
            return False
        instruction, _ = self.definition[value]
        if not isinstance(instruction, Apply) or is_load(instruction.op) or instruction.op.name in LISTS + OBJECTS:
            return False
        return not isinstance(value.type, List)  # an undefined list holds nothing

    def origin(self, x: Operand, region: RegionRows) -> frozenset[PointerSource]:
        """The sources of an operand that `region` passes on."""
        if (known := self.known_origin(x, region)) is not None:
            return frozenset([known])
        assert isinstance(x, Value)
        return self.sources.get(x, frozenset())

    def known_origin(self, x: Operand, region: RegionRows) -> PointerSource | None:
        """The one source of an operand that is no pointer; None of a pointer."""
        if isinstance(x, Literal) or x in self.shared or x in self.uniform:
            return PointerSource("uniform", x)
        if self.facts.is_column(x):
            return PointerSource("value", x, region.space)
        return PointerSource("value", x, self.home[x].space) if self.is_computed(x) else None

    def find_sources(self) -> None:
        """Least fixpoint of `sources`, together with the values that turn out to be uniform."""
        pointers = [v for v in self.facts.on_device if not self.is_computed(v) and not self.facts.is_column(v)]
        incoming = {v: self.incoming(v) for v in pointers}
        while True:
            self.sources = self.least(incoming)
            uniform = {v for v in self.facts.on_device if self.is_computed(v) and self.has_uniform_operands(v)}
            if uniform <= self.uniform:
                return
            self.uniform |= uniform

    def least(self, incoming: Mapping[Value, Incoming]) -> dict[Value, frozenset[PointerSource]]:
        """The least sources that hold those that come in: what a pointer gains, those gain that it is handed to."""
        found: dict[Operand, set[PointerSource]] = {}
        readers: defaultdict[Operand, list[Value]] = defaultdict(list)
        for value, (own, handed) in incoming.items():
            found[value] = set(own)
            for x, region in handed:
                if (known := self.known_origin(x, region)) is not None:
                    found[value].add(known)
                elif x in incoming:
                    readers[x].append(value)
        waiting = dict.fromkeys(v for v in incoming if found[v])
        while waiting:
            value = next(iter(waiting))
            del waiting[value]
            for reader in readers[value]:
                if not found[value] <= found[reader]:
                    found[reader] |= found[value]
                    waiting[reader] = None
        return {v: frozenset(found[v]) for v in incoming if found[v]}

    def has_uniform_operands(self, value: Value) -> bool:
        instruction, _ = self.definition[value]
        assert isinstance(instruction, Apply)
        return all(self.uniform_operand(x) is not None for x in instruction.operands)

    def uniform_operand(self, x: Operand) -> Operand | None:
        """The one value that `x` is on all rows of the batch, or None when rows may differ."""
        if isinstance(x, Literal) or x in self.shared or x in self.uniform:
            return x
        if self.facts.is_column(x) or self.is_computed(x) or isinstance(x.type, List):
            return None
        sources = self.sources.get(x, frozenset())
        if len(sources) == 1 and (only := next(iter(sources))).kind == "uniform":
            assert not isinstance(only.value, str)
            return only.value
        return None

    def incoming(self, value: Value) -> Incoming:
        """What a pointer is made of, as the program says it."""
        if value in self.parameter:
            name, k = self.parameter[value]
            is_argument = name == self.module.functions[0].name
            own = [PointerSource("data", f"#argument{k}")] if is_argument else []
            return own, [(call.operands[k], region) for call, region in self.sites[name]]
        instruction, k = self.definition[value]
        match instruction:
            case Apply(op=op, operands=xs):
                if op.name == "pack_list":
                    return [], [(x, self.home[value]) for x in xs]
                if op.name == "flatten" or (op.name == "item" and self.in_made_list(xs[0])):
                    return [], [(xs[0], self.home[value])]
                if op.name == "undefined" or op.name in OBJECTS:
                    return [], []
                return [PointerSource("data", self.data_column(instruction))], []
            case If():
                index = next(n for n, i in enumerate(self.home[value].region.body) if i is instruction)
                return [], [(arm.region.results[k], arm) for arm in self.home[value].arms[index]]
            case Call(callee=callee):
                return [], [self.result(callee, k)]
            case Map(body=body, filtered=filtered):
                call = body.body[0]
                assert isinstance(call, Call)
                return [], [self.result(call.callee, k + filtered)]
            case For() | While():
                raise AssertionError("loops are functions by now")
        assert_never(instruction)

    def result(self, callee: str, k: int) -> tuple[Operand, RegionRows]:
        body = self.roots[callee]
        return body.region.results[k], body

    def in_made_list(self, x: Operand) -> bool:
        return isinstance(x.type, List) and x.type.store is None

    def data_column(self, load: Apply) -> str:
        type = load.operands[0].type
        if load.op.name == "item":
            assert isinstance(type, List)
            return f"{type.store}.#values"
        assert isinstance(type, Ref)
        return field_column(self.schema, type.store, load.op["field"], load.results[0].type)


# ---- slices
#
# The structural slice of a module: what the host must compute, as a module of its own.
#
#     func @encode(%1: ref<Node>) -> float32[4]:            func @encode(%1: ref<Node>):
#       %2 = load[left](%1)                                   %2 = load[left](%1)
#       %3 = is_none(%2)                                      %3 = is_none(%2)
#       %4 = if %3 then: ... tanh ... else:           ->      if %3 then: else:
#              %8 = call @encode(%2)                            call @encode(%2)
#              ...
#
# Parameters and results that only the device needs are gone, and so is arithmetic on them. Its interpreter finds the
# structural results of calls. The *failing slice* holds also what the device would read, where reading can fail
# (`t.left.x` of a leaf, `states[3]` of two): its interpreter finds what an example fails with first.


def structural_slice(module: Module, facts: StructureFacts) -> tuple[Module, dict[str, tuple[int, ...]]]:
    """`module` without everything that only the device computes; and which results of each function are left."""
    slicer = _Slicer(module, facts, failing=False)
    return slicer.run(), {f.name: tuple(slicer.results(f.name)) for f in module.functions}


def failing_slice(module: Module, facts: StructureFacts) -> Module:
    """The structural slice with every operation that can fail, and the lists that those read: of the elements that
    only the device computes, a list holds as many zeros."""
    return _Slicer(module, facts, failing=True).run()


class _Slicer:
    def __init__(self, module: Module, facts: StructureFacts, *, failing: bool) -> None:
        self.module, self.facts, self.failing = module, facts, failing
        self.functions = {f.name: f for f in module.functions}
        self.needed: dict[str, set[int]] = {f.name: set() for f in module.functions}
        for function in module.functions:
            for instruction in walk(function.region):
                if isinstance(instruction, Call):
                    wanted = (k for k, r in enumerate(instruction.results) if self.kept(r))
                    self.needed[instruction.callee].update(wanted)

    def run(self) -> Module:
        return replace(self.module, functions=tuple(self.function(f) for f in self.module.functions))

    def kept(self, x: Operand) -> bool:
        if not isinstance(x, Value):
            return False
        if isinstance(x.type, List):
            return x in self.facts.on_host or (self.failing and x in self.facts.on_device)
        return x in self.facts.on_host and self.facts.is_host(x)

    def can_fail(self, instruction: Apply) -> bool:
        """Does this read what may not be there? Its operands are structure, which the slice holds."""
        op, xs = instruction.op, instruction.operands
        reads = op.name in ("load", "item") or (op.name == "reduce" and op["kind"] in ("min", "max"))
        return reads and all(isinstance(x, Literal) or self.kept(x) for x in xs)

    def element(self, x: Operand) -> Operand:
        """An element of a list of which perhaps only the length is asked for."""
        return x if isinstance(x, Literal) or self.kept(x) else Literal(0, INT)

    def parameters(self, function: Function) -> list[int]:
        return [k for k, a in enumerate(function.region.args) if self.kept(a)]

    def results(self, callee: str) -> list[int]:
        """The results of a function that some caller needs on the host."""
        return sorted(self.needed[callee])

    def function(self, function: Function) -> Function:
        region = function.region
        args = tuple(region.args[k] for k in self.parameters(function))
        results = tuple(region.results[k] for k in self.results(function.name))
        return replace(function, region=Region(args, self.body(region), results))

    def body(self, region: Region) -> tuple[Instruction, ...]:
        return tuple(new for i in region.body if (new := self.instruction(i)) is not None)

    def instruction(self, instruction: Instruction) -> Instruction | None:
        match instruction:
            case Apply(op=op, operands=xs, results=results) if op.name == "pack_list":
                elements = tuple(map(self.element, xs))
                return replace(instruction, operands=elements) if self.kept(results[0]) else None
            case Apply(results=results) if any(r in self.facts.numbers for r in results):
                return None  # told, not computed
            case Apply(op=op, results=results):
                effect = not op.is_jax and about(op).effect
                asked = effect or any(self.kept(r) for r in results) or (self.failing and self.can_fail(instruction))
                return instruction if asked else None
            case If(results=results, then=then, orelse=orelse):
                keep = [k for k, r in enumerate(results) if self.kept(r)]
                arms = [Region((), self.body(arm), tuple(arm.results[k] for k in keep)) for arm in (then, orelse)]
                if not keep and not arms[0].body and not arms[1].body:
                    return None
                return replace(instruction, results=tuple(results[k] for k in keep), then=arms[0], orelse=arms[1])
            case Call():
                return self.call(instruction)
            case Map(results=results, body=body, filtered=filtered):
                call = body.body[0]
                assert isinstance(call, Call)
                keep = [k for k, r in enumerate(results) if self.kept(r)]
                inner = self.call(call)
                yields = tuple(self.element(body.results[k + filtered]) for k in keep)
                flag = (body.results[0],) if filtered else ()
                return replace(
                    instruction,
                    results=tuple(results[k] for k in keep),
                    body=Region(body.args, (inner,), (*flag, *yields)),
                )
            case For() | While():
                raise AssertionError("loops are functions by now")

    def call(self, call: Call) -> Call:
        operands = tuple(call.operands[k] for k in self.parameters(self.functions[call.callee]))
        results = tuple(call.results[k] for k in self.results(call.callee))
        return replace(call, operands=operands, results=results)
