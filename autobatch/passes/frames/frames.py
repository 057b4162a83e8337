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

from collections.abc import Sequence
from typing import Protocol, assert_never

from autobatch.data.returned import element_type
from autobatch.data.schema import Schema
from autobatch.data.spec import OUTPUT, Definition, MadeObjects, MadeSpec, MakeSpec, PlanSpec, TableSpec
from autobatch.ir.core import Apply, Call, For, If, Literal, Map, Module, Operand, Value, While
from autobatch.ir.system import (
    PLACED,
    Atom,
    CallSite,
    Compute,
    Constant,
    Data,
    Equation,
    Fold,
    Gather,
    HostColumn,
    Shared,
    Space,
    System,
    Variable,
)
from autobatch.ir.types import INT, Array, BuiltObject, List, Ref, Type
from autobatch.passes.analysis.structure import StructureFacts
from autobatch.passes.analysis.unused import unused_in_module
from autobatch.passes.frames.counted import counted
from autobatch.passes.frames.provenance import PointerSource, Provenance, RegionRows, failing_slice, structural_slice
from autobatch.source import NOWHERE, Span

# ---- outputs
#
# What leaves the program: results of the entry in the order of the examples, and the objects that it has made.
#
#     func @f(%t) -> (made<>):           space made: one row an object
#       %n = make[of='Node'](%x, %m)     output 1: gather[made](f.%x)      Node.x
#       return %n                          output 2: rows of made            Node.left
#                                          output 3: the class of each object
#
# A number leaves through a gather; everything else is rows and tags that the host knows when all has run.


class OutputNumbers(Protocol):
    """The equations under construction (`frames.py`)."""

    p: Provenance
    equations: list[Equation]

    def variable(self, type: Type, space: Space | None, hint: str = "") -> Variable: ...

    def members(self, x: Operand, region: RegionRows) -> tuple[tuple[int, ...], tuple[Variable, ...]]: ...

    def define(self, source: PointerSource) -> int: ...


class SystemOutputs:
    """`variables` are the numbers that leave, in the order of those `tables` that are not structure."""

    def __init__(self, numbers: OutputNumbers) -> None:
        self.n, self.p = numbers, numbers.p
        self.variables: list[Variable] = []
        self.tables: list[TableSpec] = []
        self.example = self.p.space("example", "example")

    def entry(self, entry: RegionRows) -> None:
        """Results of the entry: one row an example, or an element of the lists that they are."""
        for result in entry.region.results:
            self.output(result, [(result, entry)], None)

    def output(
        self,
        like: Operand,
        values: Sequence[tuple[Operand, RegionRows]],
        owner: Space | None,
        structure: bool = False,
    ) -> None:
        """One output: of rows of `owner`, which are numbers or structure like the operand `like`. `structure`: the host
        knows it, although it is a number."""
        name, type, depth = f"{OUTPUT}{len(self.tables)}", like.type, 0
        while isinstance(type, List) and type.store is None:
            type, depth = type.elem, depth + 1
        lists = tuple(self.p.space(f"{name}.lists{n}", "elements") for n in range(depth - 1))
        elements = self.p.space(f"{name}.elements", "elements") if depth else None
        if structure or not isinstance(type, Array):
            self.tables.append(TableSpec(name, "structure", like, (), elements, lists, owner))
            return
        found = [pair for x, region in values for pair in zip(*self.n.members(x, region), strict=True)]
        members = dict(sorted(found))
        self.variables.append(self.n.variable(type, elements or owner or self.example))
        kind = "fold" if depth else "pointer"
        self.tables.append(TableSpec(name, kind, like, tuple(members), elements, lists, owner))
        self.n.equations.append(Gather(self.variables[-1], name, tuple(members.values())))

    def made(self) -> MadeObjects | None:
        """The objects that the module makes; None where it makes none."""
        places: dict[str, list[tuple[Apply, RegionRows]]] = {}
        stores: dict[str, None] = {}
        for region in self.p.regions:
            for instruction in region.region.body:
                if not isinstance(instruction, Apply) or not self.p.facts.on_device.issuperset(instruction.results):
                    continue
                if instruction.op.name == "make":
                    places.setdefault(instruction.op["of"], []).append((instruction, region))
                elif instruction.op.name == "adopt":
                    type = instruction.operands[0].type
                    assert isinstance(type, Ref)
                    stores[type.store] = None
        if not places and not stores:
            return None
        space = self.p.space("made", "elements")
        classes = tuple(self.of_class(name, found, space) for name, found in sorted(places.items()))
        adopted = tuple((s, self.n.define(PointerSource("adopted", s))) for s in sorted(stores))
        made = MadeObjects(space, classes, adopted, len(self.tables))
        types: list[Type] = [INT, *(Ref(s) for s in sorted(stores))]
        for kind in types:
            self.output(Value(-1, kind), (), space, structure=True)
        return made

    def of_class(self, name: str, found: Sequence[tuple[Apply, RegionRows]], space: Space) -> MadeSpec:
        first = len(self.tables)
        for k, like in enumerate(found[0][0].operands):
            self.output(like, [(make.operands[k], region) for make, region in found], space)
        return MadeSpec(name, first, tuple(self.place(make, region) for make, region in found))

    def place(self, make: Apply, region: RegionRows) -> MakeSpec:
        """Where an object is made: what its fields are is recorded there, row by row."""
        result = make.results[0]
        definition = self.n.define(PointerSource("made", result, region.space))
        region.exports[result] = definition
        fields = []
        for k, x in enumerate(make.operands):
            pointed = isinstance(element_type(x.type), Array | BuiltObject)
            fields.append(TableSpec(f"{region.space}:{result.id}.{k}", "field" if pointed else "kept", x))
            region.tables[fields[-1].name] = fields[-1]
        return MakeSpec(definition, region.space.index, tuple(fields))


def build_system(
    module: Module, facts: StructureFacts, schema: Schema
) -> tuple[System, PlanSpec, dict[Variable, Value]]:
    """The equations of a module whose loops are functions, what the planner needs to make their tables, and which value
    of the module each computed variable is."""
    builder = _SystemBuilder(Provenance(module, facts, schema))
    system, spec = builder.build()
    values = {
        variable: value
        for region in builder.regions
        for value, variable in region.variables.items()
        if isinstance(value, Value) and region is builder.p.home.get(value)
    }
    return system, spec, values


class _SystemBuilder:
    def __init__(self, provenance: Provenance) -> None:
        self.p, self.facts = provenance, provenance.facts
        self.module, self.regions = provenance.module, provenance.regions
        self.equations: list[Equation] = []
        self.count = 0
        self.definitions: dict[PointerSource, tuple[Definition, Variable | None]] = {}
        self.calls: list[Call] = []
        self.unused = unused_in_module(self.module)

    def build(self) -> tuple[System, PlanSpec]:
        for region in self.regions:
            for instruction in region.region.body:
                if isinstance(instruction, Apply):
                    self.compute(instruction, region)
        outputs = SystemOutputs(self)
        outputs.entry(self.p.roots[self.module.functions[0].name])
        made = outputs.made()
        sites = self.call_sites()
        used = frozenset
        roots = {name: r.spec() for name, r in self.p.roots.items()}
        spec = PlanSpec(
            self.module,
            *structural_slice(self.module, self.facts),
            failing_slice(self.module, self.facts),
            roots,
            tuple(d for d, _ in self.definitions.values()),
            {s.value: d.index for s, (d, _) in self.definitions.items() if s.kind == "uniform"},  # type: ignore[misc]
            {str(s.value): d.index for s, (d, _) in self.definitions.items() if s.kind == "data"},
            used(self.facts.on_host),
            used(self.facts.on_device),
            used(v for v in self.facts.direct if self.facts.is_column(v)),
            self.slots(outputs.tables),
            tuple(outputs.tables),
            made,
            tuple(self.p.spaces),
            dict.fromkeys(sorted(self.facts.numbers, key=lambda x: x.id), 0),
            counted(self.module, self.facts, roots),
        )
        return System(tuple(self.p.spaces), tuple(self.equations), tuple(outputs.variables), sites), spec

    def slots(self, outputs: list[TableSpec]) -> dict[str, tuple[int, ...]]:
        """The results of each function that some caller needs as numbers."""
        needed: dict[str, set[int]] = {f.name: set() for f in self.module.functions}
        entry = self.module.functions[0]
        results = zip(range(len(entry.region.results)), outputs, strict=False)
        needed[entry.name].update(k for k, table in results if table.is_pointed)
        for name, sites in self.p.sites.items():
            for call, _ in sites:
                needed[name].update(k for k, r in enumerate(call.results) if r in self.facts.on_device)
        return {name: tuple(sorted(ks)) for name, ks in needed.items()}

    # ---- equations

    def variable(self, type: Type, space: Space | None, hint: str = "") -> Variable:
        assert isinstance(type, Array)
        self.count += 1
        return Variable(self.count - 1, type, space, hint)

    def source(self, source: PointerSource) -> tuple[Definition, Variable]:
        """The definition and the variable of a source, made on first use."""
        if source not in self.definitions:
            made = self.source_variable(source)
            self.definitions[source] = (Definition(len(self.definitions), made.space), made)
            if source.kind == "value":
                assert isinstance(source.value, Value)
                region = next(r for r in self.regions if r.space == source.space)
                region.exports[source.value] = self.definitions[source][0].index
        definition, variable = self.definitions[source]
        assert variable is not None
        return definition, variable

    def define(self, source: PointerSource) -> int:
        """The definition of objects: pointers name it, and no equation reads it."""
        return self.definitions.setdefault(source, (Definition(len(self.definitions), source.space), None))[0].index

    def source_variable(self, source: PointerSource) -> Variable:
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
        atom = self.read(value, region, NOWHERE)
        assert isinstance(atom, Variable)
        return atom

    def data_variable(self, column: str) -> Variable:
        if column.startswith("#argument"):
            argument = self.module.functions[0].region.args[int(column.removeprefix("#argument"))]
            kind, type = "#argument", argument.type
        else:
            kind, type = data_type(self.p.schema, column)
        space = next((s for s in self.p.spaces if s.kind == "data" and s.name == kind), None) or self.p.space(
            kind, "data"
        )
        variable = self.variable(type, space)
        self.equations.append(Data(variable, column))
        return variable

    def uniform_atom(self, x: Operand) -> Variable | Literal:
        if isinstance(x, Literal):
            return x
        root = self.regions[0]
        if x not in root.variables and x in self.p.shared:
            variable = self.variable(x.type, None, x.hint)
            self.equations.append(Shared(variable, self.module.shared.index(x)))
            root.variables[x] = variable
        if x in self.p.uniform:
            self.compute_once(x)
        return root.variables[x]

    def compute_once(self, x: Value) -> None:
        root = self.regions[0]
        if x in root.variables:
            return
        instruction, _ = self.p.definition[x]
        assert isinstance(instruction, Apply)
        atoms = []
        for operand in instruction.operands:
            same = self.p.uniform_operand(operand)
            assert same is not None
            atoms.append(self.uniform_atom(same))
        for result in instruction.results:
            root.variables[result] = self.variable(result.type, None, result.hint)
        variables = tuple(root.variables[r] for r in instruction.results)
        self.add(variables, instruction, tuple(atoms), None)

    def read(self, x: Operand, region: RegionRows, reader: Span) -> Variable | Literal:
        """The variable by which an operation in `region`, written at `reader`, reads `x`."""
        same = self.p.uniform_operand(x)
        if same is not None:
            return self.uniform_atom(same)
        assert isinstance(x, Value)
        if x not in region.variables:
            if self.p.is_computed(x) and not self.facts.is_column(x) and self.p.home[x] is region:
                instruction, _ = self.p.definition[x]
                assert isinstance(instruction, Apply)
                for r in instruction.results:
                    region.variables.setdefault(r, self.variable(r.type, region.space, r.hint))
            elif self.facts.is_column(x):
                table = f"{region.space}:{x.id}"
                region.variables[x] = self.variable(x.type, region.space, x.hint)
                region.tables[table] = TableSpec(table, "column", x)
                self.equations.append(HostColumn(region.variables[x], table))
            else:
                self.gather(x, region, reader)
        return region.variables[x]

    def gather(self, x: Value, region: RegionRows, reader: Span) -> None:
        table = f"{region.space}:{x.id}"
        region.variables[x] = self.variable(x.type, region.space, x.hint)
        definitions, variables = self.members(x, region, x.type)
        region.tables[table] = TableSpec(table, "pointer", x, definitions)
        calls, inside = self.dependencies(x)
        place = self.place(x, reader)
        self.equations.append(Gather(region.variables[x], table, variables, calls, inside, place))

    def place(self, x: Value, reader: Span) -> Span:
        """Where rows of `x` are asked for: where it is loaded or returned by a call, else where it is read."""
        match self.p.definition.get(x, (None, 0))[0]:
            case Apply(span=span):
                return span
            case Call(callee=callee, span=span) if span != self.p.functions[callee].span:  # not the turns of a loop
                return span
            case _:
                return reader

    def members(
        self, x: Operand, region: RegionRows, read: Type | None = None
    ) -> tuple[tuple[int, ...], tuple[Variable, ...]]:
        """What a value may come from, or the elements of a list. What an equation reads has a type, `read`: where
        nothing is ever put into a list it is a zero, which no row points to."""

        def order(s: PointerSource) -> tuple[int, str]:
            return (s.space.index if s.space else -1, str(s.value))

        sources = self.p.origin(x, region) or ({PointerSource("uniform", Literal(0, read))} if read else ())
        found = [self.source(s) for s in sorted(sources, key=order)]
        return tuple(d.index for d, _ in found), tuple(v for _, v in found)

    def compute(self, instruction: Apply, region: RegionRows) -> None:
        result = instruction.results[0] if instruction.results else None
        wanted = [r for r in instruction.results if r in self.facts.on_device and not self.facts.is_column(r)]
        if result is None or not wanted or not self.p.is_computed(wanted[0]):
            return
        if any(r in self.p.uniform for r in instruction.results):
            return
        if instruction.op.name in ("reduce", "padded"):
            self.fold(instruction, region)
            return
        operands = tuple(self.read(x, region, instruction.span) for x in instruction.operands)
        for r in instruction.results:
            if r not in region.variables:
                region.variables[r] = self.variable(r.type, region.space, r.hint)
        variables = tuple(region.variables[r] for r in instruction.results)
        self.add(variables, instruction, operands, region.space)

    def add(self, results: tuple[Variable, ...], of: Apply, operands: tuple[Atom, ...], space: Space | None) -> None:
        """What all rows share is computed where none of them runs its region, too."""
        used = frozenset(k for k, r in enumerate(of.results) if space is not None and r not in self.unused)
        self.equations.append(Compute(results, of.op, operands, space, of.span, used))

    def fold(self, instruction: Apply, region: RegionRows) -> None:
        result, made = instruction.results[0], instruction.operands[0]
        assert isinstance(made, Value) and isinstance(made.type, List)
        table = f"{region.space}:{made.id}"
        definitions, variables = self.members(made, region, made.type.elem)
        if table not in region.tables:
            elements = self.p.space(f"{table}.elements", "elements")
            region.tables[table] = TableSpec(table, "fold", made, definitions, elements)
        spec = region.tables[table]
        assert spec.elements is not None
        if result not in region.variables:
            region.variables[result] = self.variable(result.type, region.space, result.hint)
        kind = PLACED if instruction.op.name == "padded" else instruction.op["kind"]
        calls, inside = self.dependencies(made)
        variable, place = region.variables[result], instruction.span
        even = ("ties", "even") in instruction.op.params
        self.equations.append(Fold(variable, kind, table, spec.elements, variables, calls, inside, place, even))

    # ---- what a value depends on within its own activation: the segments of fission follow from it

    def dependencies(self, x: Operand) -> tuple[tuple[int, ...], tuple[Variable, ...]]:
        """The calls and the computed variables of the same activation that a pointer may lead to."""
        calls: set[int] = set()
        inside: set[Variable] = set()
        seen: set[Operand] = set()
        todo = [x]
        while todo:
            value = todo.pop()
            if value in seen or not isinstance(value, Value) or value not in self.p.definition:
                continue
            seen.add(value)
            if self.p.uniform_operand(value) is not None or self.facts.is_column(value):
                continue
            if self.p.is_computed(value):
                variable = self.read(value, self.p.home[value], NOWHERE)
                assert isinstance(variable, Variable)
                inside.add(variable)
                continue
            instruction, k = self.p.definition[value]
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
                    todo += [y for y in xs if op.name == "pack_list" or self.p.in_made_list(y)]
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
