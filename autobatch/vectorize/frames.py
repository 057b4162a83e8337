"""From functions to equations: every region of every function becomes a space of rows, one row an activation.

    func @encode(%1: ref<Node>):                       space encode.else:
      ...                                                hl = gather[encode.else:8](encode.then.%3, encode.else.%12)
      if %2 then: ... else:                        ->    %11 = dot_general(hl, %0)
        %8 = call @encode(%7)                            %12 = tanh(%11)
        %11 = dot_general(%8, %0)
        %12 = tanh(%11)

A number is computed in the region where its operation stands. Wherever else it goes (through calls, results,
branches, lists) it goes as a pointer on the host; the reader gathers its rows. So branches need no masks, a tail call
copies nothing, and a value handed through a loop is read from where it was computed. (FRAMES.md, section 1.)
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import assert_never

from autobatch.analysis.structure import Structure, is_load
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
    Value,
    While,
)
from autobatch.ir.system import (
    CallSite,
    Column,
    Compute,
    Constant,
    Data,
    Equation,
    Fold,
    Gather,
    Shared,
    Space,
    System,
    Variable,
)
from autobatch.ir.types import Array, List, Ref, Type
from autobatch.runtime.schema import Schema, field_column
from autobatch.runtime.spec import Definition, PlanSpec, RegionSpec, TableSpec
from autobatch.vectorize.slices import structural_slice


@dataclass(frozen=True, slots=True)
class Source:
    """Where a number comes from: a `value` computed in the region `space`, a uniform operand, or a data column."""

    kind: str
    value: Operand | str
    space: Space | None = None


@dataclass
class _Region:
    """A region while its space is being built."""

    function: Function
    region: Region
    space: Space
    tables: dict[str, TableSpec] = field(default_factory=dict)
    exports: dict[Value, int] = field(default_factory=dict)
    arms: dict[int, tuple[_Region, _Region]] = field(default_factory=dict)
    variables: dict[Operand, Variable] = field(default_factory=dict)

    def spec(self) -> RegionSpec:
        arms = {k: (a.spec(), b.spec()) for k, (a, b) in self.arms.items()}
        return RegionSpec(self.space, tuple(self.tables.values()), self.exports, arms)


def build_system(module: Module, facts: Structure, schema: Schema) -> tuple[System, PlanSpec]:
    """The equations of a module whose loops are functions, and what the planner needs to make their tables."""
    return _Builder(module, facts, schema).build()


class _Builder:
    def __init__(self, module: Module, facts: Structure, schema: Schema) -> None:
        self.module, self.facts, self.schema = module, facts, schema
        self.functions = {f.name: f for f in module.functions}
        self.shared = frozenset(module.shared)
        self.spaces: list[Space] = []
        self.equations: list[Equation] = []
        self.count = 0
        self.definitions: dict[Source, tuple[Definition, Variable]] = {}
        self.regions: list[_Region] = []
        self.home: dict[Value, _Region] = {}
        self.definition: dict[Value, tuple[Instruction, int]] = {}
        self.parameter: dict[Value, tuple[str, int]] = {}
        self.sites: dict[str, list[tuple[Call, _Region]]] = defaultdict(list)
        self.uniform: set[Value] = set()
        self.sources: dict[Value, frozenset[Source]] = {}
        self.calls: list[Call] = []

    def build(self) -> tuple[System, PlanSpec]:
        roots = {f.name: self.lay_out(f, f.region, f.name) for f in self.module.functions}
        self.find_sources()
        for region in self.regions:
            for instruction in region.region.body:
                if isinstance(instruction, Apply):
                    self.compute(instruction, region)
        outputs, tables = self.outputs(roots[self.module.functions[0].name])
        sites = self.call_sites()
        used = frozenset
        spec = PlanSpec(
            self.module,
            *structural_slice(self.module, self.facts),
            {name: r.spec() for name, r in roots.items()},
            tuple(d for d, _ in self.definitions.values()),
            {s.value: d.index for s, (d, _) in self.definitions.items() if s.kind == "uniform"},  # type: ignore[misc]
            {str(s.value): d.index for s, (d, _) in self.definitions.items() if s.kind == "data"},
            used(self.facts.on_host),
            used(self.facts.on_device),
            used(v for v in self.facts.direct if self.facts.is_column(v)),
            self.slots(tables),
            tuple(tables),
            tuple(self.spaces),
        )
        return System(tuple(self.spaces), tuple(self.equations), tuple(outputs), sites), spec

    def slots(self, outputs: list[TableSpec | None]) -> dict[str, tuple[int, ...]]:
        """The results of each function that some caller needs as numbers."""
        needed: dict[str, set[int]] = {f.name: set() for f in self.module.functions}
        needed[self.module.functions[0].name].update(k for k, t in enumerate(outputs) if t is not None)
        for name, sites in self.sites.items():
            for call, _ in sites:
                needed[name].update(k for k, r in enumerate(call.results) if r in self.facts.on_device)
        return {name: tuple(sorted(ks)) for name, ks in needed.items()}

    # ---- layout

    def space(self, name: str, kind: str = "region") -> Space:
        self.spaces.append(Space(len(self.spaces), name, kind))
        return self.spaces[-1]

    def lay_out(self, function: Function, region: Region, name: str) -> _Region:
        built = _Region(function, region, self.space(name))
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
                        self.lay_out(function, then, f"{name}.then{suffix}"),
                        self.lay_out(function, orelse, f"{name}.else{suffix}"),
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
        return isinstance(instruction, Apply) and not is_load(instruction.op) and instruction.op.name != "pack_list"

    def origin(self, x: Operand, region: _Region) -> frozenset[Source]:
        """The sources of an operand that `region` hands on."""
        if isinstance(x, Literal) or x in self.shared or x in self.uniform:
            return frozenset([Source("uniform", x)])
        if self.facts.is_column(x):
            return frozenset([Source("value", x, region.space)])
        if self.is_computed(x):
            return frozenset([Source("value", x, self.home[x].space)])
        return self.sources.get(x, frozenset())

    def find_sources(self) -> None:
        """Least fixpoint of `sources`, together with the values that turn out to be uniform."""
        pointers = [v for v in self.facts.on_device if not self.is_computed(v) and not self.facts.is_column(v)]
        while True:
            self.sources = {}
            changed = True
            while changed:
                changed = False
                for value in pointers:
                    new = self.incoming(value)
                    if new != self.sources.get(value, frozenset()):
                        self.sources[value] = new
                        changed = True
            uniform = {v for v in self.facts.on_device if self.is_computed(v) and self.has_uniform_operands(v)}
            if uniform <= self.uniform:
                return
            self.uniform |= uniform

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

    def incoming(self, value: Value) -> frozenset[Source]:
        if value in self.parameter:
            name, k = self.parameter[value]
            sites = self.sites[name]
            found = [self.origin(call.operands[k], region) for call, region in sites]
            if name == self.module.functions[0].name:
                found.append(frozenset([Source("data", f"#root{k}")]))
            return frozenset().union(*found)
        instruction, k = self.definition[value]
        match instruction:
            case Apply(op=op, operands=xs) if op.name == "pack_list":
                return frozenset().union(*(self.origin(x, self.home[value]) for x in xs))
            case Apply(op=op, operands=xs):
                if op.name == "item" and self.in_made_list(xs[0]):
                    return self.origin(xs[0], self.home[value])
                return frozenset([Source("data", self.data_column(instruction))])
            case If():
                index = next(n for n, i in enumerate(self.home[value].region.body) if i is instruction)
                return frozenset().union(*(self.origin(a.region.results[k], a) for a in self.home[value].arms[index]))
            case Call(callee=callee):
                return self.result(callee, k)
            case Map(body=body, filtered=filtered):
                call = body.body[0]
                assert isinstance(call, Call)
                return self.result(call.callee, k + filtered)
            case For() | While():
                raise AssertionError("loops are functions by now")
        assert_never(instruction)

    def result(self, callee: str, k: int) -> frozenset[Source]:
        body = next(r for r in self.regions if r.region is self.functions[callee].region)
        return self.origin(body.region.results[k], body)

    def in_made_list(self, x: Operand) -> bool:
        return isinstance(x.type, List) and x.type.store is None

    def data_column(self, load: Apply) -> str:
        type = load.operands[0].type
        if load.op.name == "item":
            assert isinstance(type, List)
            return f"{type.store}.#values"
        assert isinstance(type, Ref)
        return field_column(self.schema, type.store, load.op["field"], load.results[0].type)

    # ---- equations

    def variable(self, type: Type, space: Space | None, hint: str = "") -> Variable:
        assert isinstance(type, Array)
        self.count += 1
        return Variable(self.count - 1, type, space, hint)

    def source(self, source: Source) -> tuple[Definition, Variable]:
        """The definition and the variable of a source, made on first use."""
        if source not in self.definitions:
            variable = self.source_variable(source)
            self.definitions[source] = (Definition(len(self.definitions), variable.space), variable)
            if source.kind == "value":
                assert isinstance(source.value, Value)
                region = next(r for r in self.regions if r.space == source.space)
                region.exports[source.value] = self.definitions[source][0].index
        return self.definitions[source]

    def source_variable(self, source: Source) -> Variable:
        value = source.value
        if source.kind == "data":
            assert isinstance(value, str)
            return self.data_variable(value)
        assert not isinstance(value, str)
        if source.kind == "uniform":
            atom = self.uniform_atom(value)
            if isinstance(atom, Variable):
                return atom
            variable = self.variable(atom.type, None)
            self.equations.append(Constant(variable, atom))
            return variable
        region = next(r for r in self.regions if r.space == source.space)
        atom = self.read(value, region)
        assert isinstance(atom, Variable)
        return atom

    def data_variable(self, column: str) -> Variable:
        if column.startswith("#root"):
            argument = self.module.functions[0].region.args[int(column.removeprefix("#root"))]
            kind, type = "#root", argument.type
        else:
            kind, type = data_type(self.schema, column)
        space = next((s for s in self.spaces if s.kind == "data" and s.name == kind), None) or self.space(kind, "data")
        variable = self.variable(type, space)
        self.equations.append(Data(variable, column))
        return variable

    def uniform_atom(self, x: Operand) -> Variable | Literal:
        if isinstance(x, Literal):
            return x
        root = self.regions[0]
        if x not in root.variables and x in self.shared:
            variable = self.variable(x.type, None, x.hint)
            self.equations.append(Shared(variable, self.module.shared.index(x)))
            root.variables[x] = variable
        if x in self.uniform:
            self.compute_once(x)
        return root.variables[x]

    def compute_once(self, x: Value) -> None:
        root = self.regions[0]
        if x in root.variables:
            return
        instruction, _ = self.definition[x]
        assert isinstance(instruction, Apply)
        atoms = []
        for operand in instruction.operands:
            same = self.uniform_operand(operand)
            assert same is not None
            atoms.append(self.uniform_atom(same))
        for result in instruction.results:
            root.variables[result] = self.variable(result.type, None, result.hint)
        variables = tuple(root.variables[r] for r in instruction.results)
        self.equations.append(Compute(variables, instruction.op, tuple(atoms), None, instruction.span))

    def read(self, x: Operand, region: _Region) -> Variable | Literal:
        """The variable by which an operation in `region` reads `x`."""
        same = self.uniform_operand(x)
        if same is not None:
            return self.uniform_atom(same)
        assert isinstance(x, Value)
        if x not in region.variables:
            if self.is_computed(x) and not self.facts.is_column(x) and self.home[x] is region:
                instruction, _ = self.definition[x]
                assert isinstance(instruction, Apply)
                for r in instruction.results:
                    region.variables.setdefault(r, self.variable(r.type, region.space, r.hint))
            elif self.facts.is_column(x):
                table = f"{region.space}:{x.id}"
                region.variables[x] = self.variable(x.type, region.space, x.hint)
                region.tables[table] = TableSpec(table, "column", x)
                self.equations.append(Column(region.variables[x], table))
            else:
                self.gather(x, region)
        return region.variables[x]

    def gather(self, x: Value, region: _Region) -> None:
        table = f"{region.space}:{x.id}"
        region.variables[x] = self.variable(x.type, region.space, x.hint)
        definitions, variables = self.members(x, region)
        region.tables[table] = TableSpec(table, "pointer", x, definitions)
        calls, inside = self.dependencies(x)
        self.equations.append(Gather(region.variables[x], table, variables, calls, inside))

    def members(self, x: Operand, region: _Region) -> tuple[tuple[int, ...], tuple[Variable, ...]]:
        def order(s: Source) -> tuple[int, str]:
            return (s.space.index if s.space else -1, str(s.value))

        found = [self.source(s) for s in sorted(self.origin(x, region), key=order)]
        return tuple(d.index for d, _ in found), tuple(v for _, v in found)

    def compute(self, instruction: Apply, region: _Region) -> None:
        result = instruction.results[0] if instruction.results else None
        wanted = [r for r in instruction.results if r in self.facts.on_device and not self.facts.is_column(r)]
        if result is None or not wanted or not self.is_computed(wanted[0]):
            return
        if any(r in self.uniform for r in instruction.results):
            return
        if instruction.op.name == "reduce":
            self.fold(instruction, region)
            return
        operands = tuple(self.read(x, region) for x in instruction.operands)
        for r in instruction.results:
            if r not in region.variables:
                region.variables[r] = self.variable(r.type, region.space, r.hint)
        variables = tuple(region.variables[r] for r in instruction.results)
        self.equations.append(Compute(variables, instruction.op, operands, region.space, instruction.span))

    def fold(self, instruction: Apply, region: _Region) -> None:
        result, made = instruction.results[0], instruction.operands[0]
        assert isinstance(made, Value)
        table = f"{region.space}:{made.id}"
        definitions, variables = self.members(made, region)
        if table not in region.tables:
            elements = self.space(f"{table}.elements", "elements")
            region.tables[table] = TableSpec(table, "fold", made, definitions, elements)
        spec = region.tables[table]
        assert spec.elements is not None
        if result not in region.variables:
            region.variables[result] = self.variable(result.type, region.space, result.hint)
        kind = instruction.op["kind"]
        calls, inside = self.dependencies(made)
        self.equations.append(Fold(region.variables[result], kind, table, spec.elements, variables, calls, inside))

    # ---- what a value depends on within its own activation: the segments of fission follow from it

    def dependencies(self, x: Operand) -> tuple[tuple[int, ...], tuple[Variable, ...]]:
        """The calls and the computed variables of the same activation that a pointer may lead to."""
        calls: set[int] = set()
        inside: set[Variable] = set()
        seen: set[Operand] = set()
        todo = [x]
        while todo:
            value = todo.pop()
            if value in seen or not isinstance(value, Value) or value not in self.definition:
                continue
            seen.add(value)
            if self.uniform_operand(value) is not None or self.facts.is_column(value):
                continue
            if self.is_computed(value):
                variable = self.read(value, self.home[value])
                assert isinstance(variable, Variable)
                inside.add(variable)
                continue
            instruction, k = self.definition[value]
            match instruction:
                case Call():
                    calls.add(self.call_index(instruction))
                case Map(body=body):
                    call = body.body[0]
                    assert isinstance(call, Call)
                    calls.add(self.call_index(call))
                case If(then=then, orelse=orelse):
                    todo += [then.results[k], orelse.results[k]]
                case Apply(op=op, operands=xs):
                    todo += [y for y in xs if op.name == "pack_list" or self.in_made_list(y)]
                case For() | While():
                    raise AssertionError("loops are functions by now")
                case _:
                    assert_never(instruction)
        return tuple(sorted(calls)), tuple(sorted(inside, key=lambda v: v.id))

    def call_index(self, call: Call) -> int:
        for n, known in enumerate(self.calls):
            if known is call:
                return n
        self.calls.append(call)
        return len(self.calls) - 1

    def call_sites(self) -> tuple[CallSite, ...]:
        sites: list[CallSite] = []
        while len(sites) < len(self.calls):
            call = self.calls[len(sites)]
            found = [self.dependencies(x) for x in call.operands]
            calls = sorted({c for cs, _ in found for c in cs})
            inside = sorted({v for _, vs in found for v in vs}, key=lambda v: v.id)
            sites.append(CallSite(call.callee, tuple(calls), tuple(inside)))
        return tuple(sites)

    def outputs(self, entry: _Region) -> tuple[list[Variable], list[TableSpec | None]]:
        """Results of the entry, gathered into the order of the examples (lists: into the order of their elements)."""
        example = self.space("example", "example")
        variables: list[Variable] = []
        tables: list[TableSpec | None] = []
        for k, result in enumerate(entry.region.results):
            type, made = result.type, False
            if isinstance(type, List) and type.store is None:
                type, made = type.elem, True
            if not isinstance(type, Array):
                tables.append(None)
                continue
            name = f"example:{k}"
            definitions, sources = self.members(result, entry)
            space = self.space(f"{name}.elements", "elements") if made else example
            variables.append(self.variable(type, space))
            tables.append(TableSpec(name, "fold" if made else "pointer", result, definitions, space if made else None))
            self.equations.append(Gather(variables[-1], name, sources))
        return variables, tables


def data_type(schema: Schema, column: str) -> tuple[str, Array]:
    """The space of a data column (named after its store) and the type of its rows."""
    if column.endswith(".#values"):
        element = schema.list(column.removesuffix(".#values")).elem
        assert isinstance(element, Array)
        return column, element
    for store in schema.stores:
        for f in store.fields:
            if f.column == column:
                assert isinstance(f.type, Array)
                return store.name, f.type
    raise KeyError(column)
