"""From functions to equations: every region of every function becomes a space of rows, one row an activation.

    func @encode(%1: ref<Node>):                       space encode.else:
      ...                                                hl = gather[encode.else:8](encode.then.%3, encode.else.%12)
      if %2 then: ... else:                        ->    %11 = dot_general(hl, %0)
        %8 = call @encode(%7)                            %12 = tanh(%11)
        %11 = dot_general(%8, %0)
        %12 = tanh(%11)

A number is computed in the region where its operation stands. Wherever else it goes (through calls, results,
branches, lists) it goes as a pointer on the host; the reader gathers its rows. So branches need no masks, a tail call
copies nothing, and a value handed through a loop is read from where it was computed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, assert_never

from autobatch.data.columns import Schema
from autobatch.data.spec import (
    OUTPUT,
    CountedSpec,
    Definition,
    MadeObjects,
    MadeSpec,
    MakeSpec,
    PlanSpec,
    RegionSpec,
    TableSpec,
    element_type,
)
from autobatch.errors import NOWHERE, Span
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
    Type,
    Value,
    While,
    regions,
    walk,
)
from autobatch.ir.regions import Fresh, copy_instruction, with_regions
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
from autobatch.passes.fission import Schedule
from autobatch.passes.liveness import unused_in_module
from autobatch.passes.structure import (
    PointerSource,
    Provenance,
    RegionRows,
    StructureFacts,
    failing_slice,
    structural_slice,
)

# ---- counted
#
# Loops that count: all of their turns are known before the first one.
#
#     func @f.for0(%1: turn, %2: count, %3: h, %4: list):          a counter, its bound, and what turns pass on:
#       %5 = lt(%1, %2)                                            numbers that the device computes in each turn (%8),
#       if %5 then:                                                and what the host reads there (%6)
#         %6 = item(%4, %1)
#         ...
#         %9 = call @f.for0(%10 = add(%1, 1), %2, %8, %4)
#
# What a turn does on the host depends on no turn before it, so the planner runs all turns of all loops at once
# (`planning/activations.py`). A loop that does not count, as one with a `break`, is run turn by turn.


COMPARED = {"lt": (0, 1, False), "le": (0, 1, True), "gt": (1, 0, False), "ge": (1, 0, True)}
"""Of a comparison: which operand is the smaller one, which is the larger one, and whether they may be equal."""

OF_THE_ROW = frozenset(("make", "adopt", "pack_list"))
"""Operations that name the row they stand in, or pointers, so that they cannot be done ahead of it."""


def counted(module: Module, facts: StructureFacts, roots: Mapping[str, RegionSpec]) -> dict[str, CountedSpec]:
    """The functions of a module that are loops which count."""
    found = {f.name: _CountedLoop(f, facts, roots[f.name]).spec() for f in module.functions if f.is_loop}
    return {name: spec for name, spec in found.items() if spec is not None}


@dataclass
class _CountedLoop:
    function: Function
    facts: StructureFacts
    root: RegionSpec
    steps: dict[int, int] = field(default_factory=dict)
    delayed: dict[int, Operand] = field(default_factory=dict)
    exports: dict[int, int] = field(default_factory=dict)
    later: set[int] = field(default_factory=set)

    def spec(self) -> CountedSpec | None:
        """None where turns depend on one another, or on more than a counter."""
        body = self.function.region.body
        if not body or not isinstance(body[-1], If) or not all(isinstance(i, Apply) for i in body[:-1]):
            return None
        self.last, self.before = body[-1], [i for i in body[:-1] if isinstance(i, Apply)]
        self.then = self.last.then.body
        call = self.next_turn()
        if call is None or not all(map(self.hand_on, range(len(call.operands)), call.operands)):
            return None
        if not (self.exports or self.later) or not self.only_recorded(call):
            return None
        return self.bounded()

    def next_turn(self) -> Call | None:
        """The one call of the loop itself."""
        name = self.function.name
        every = [i for i in walk(self.function.region) if isinstance(i, Call) and i.callee == name]
        found = [i for i in self.then if isinstance(i, Call) and i.callee == name]
        results = [*self.last.results, *(r for i in found for r in i.results)]
        on_host = any(r in self.facts.on_host for r in results)
        return found[0] if len(every) == 1 and len(found) == 1 and not on_host else None

    def hand_on(self, k: int, x: Operand) -> bool:
        """Is it known what a turn passes on as argument k, without the turns before it?"""
        arg = self.function.region.args[k]
        if x is arg:
            return True
        if arg in self.facts.on_host:
            step = self.step(arg, x)
            if step:
                self.steps[k] = step
            else:
                self.delayed[k] = x
        if arg not in self.facts.on_device or self.facts.is_column(arg):
            return True
        exports = self.root.arms[len(self.before)][0].exports
        if isinstance(x, Value) and x in exports:
            self.exports[k] = exports[x]
        else:
            self.later.add(k)
        return isinstance(arg.type, Array)

    def only_recorded(self, next_turn: Call) -> bool:
        """Do arguments of which it is known later where they are go into tables alone? A call is one with others of
        the same arguments, so it has to know them."""
        args = self.function.region.args
        late: set[Operand] = {args[k] for k in self.later}
        for i in _inside_out(self.function.region):
            match i:
                case If(results=results, then=then, orelse=orelse):
                    late.update(r for k, r in enumerate(results) if {then.results[k], orelse.results[k]} & late)
                case Call(operands=operands) if i is not next_turn and late.intersection(operands):
                    return False
                case Map() | For() | While() if late:
                    return False
                case Apply(op=op, operands=operands) if op.name in OF_THE_ROW and late.intersection(operands):
                    return False
        return True

    def step(self, arg: Value, x: Operand) -> int:
        """By how much a counter grows; zero for all else."""
        made = next((i for i in self.then if isinstance(i, Apply) and x in i.results), None)
        if made is None or made.op.name not in ("add", "sub"):
            return 0
        left, right = made.operands
        if made.op.name == "add" and right is arg:
            left, right = right, left
        if left is not arg or not isinstance(right, Literal) or type(right.value) is not int:
            return 0
        return right.value if made.op.name == "add" else -right.value

    def bounded(self) -> CountedSpec | None:
        """The counter that ends the loop, and what it is compared with."""
        args = self.function.region.args
        test = next((i for i in self.before if self.last.condition in i.results), None)
        if test is None or test.op.name not in COMPARED:
            return None
        small, large, inclusive = COMPARED[test.op.name]
        moving = {args[k] for k in (*self.steps, *self.delayed)}
        delayed = needed(self.delayed.values(), [*self.before, *self.then], {args[k] for k in self.delayed})
        for k, step in self.steps.items():
            counter, bound = test.operands[small], test.operands[large]
            if step < 0:
                counter, bound = bound, counter
            bounding = needed([bound], self.before, moving)
            if counter is args[k] and bounding is not None and delayed is not None:
                return CountedSpec(
                    k, bound, inclusive, bounding, dict(self.steps), dict(self.delayed), delayed,
                    dict(self.exports), frozenset(self.later),
                )  # fmt: skip
        return None


def _inside_out(region: Region) -> Iterator[Instruction]:
    """Every instruction of a region, behind those that stand in it."""
    for instruction in region.body:
        for inner in regions(instruction):
            yield from _inside_out(inner)
        yield instruction


def needed(
    wanted: Collection[Operand], instructions: Sequence[Instruction], apart: Collection[Value]
) -> tuple[Apply, ...] | None:
    """The operations among some that make values, in order; None where they read any that are `apart`, or where they
    are more than operations on structure."""
    todo, found = [x for x in wanted if isinstance(x, Value)], list[Instruction]()
    makers = {r: i for i in instructions for r in i.results}
    seen = set[Value]()
    while todo:
        x = todo.pop()
        if x in seen:
            continue
        seen.add(x)
        made = makers.get(x)
        if x in apart or (made is not None and not (isinstance(made, Apply) and _is_ahead(made))):
            return None
        if isinstance(made, Apply):
            found.append(made)
            todo += [y for y in made.operands if isinstance(y, Value)]
    return tuple(i for i in instructions if isinstance(i, Apply) and i in found)


def _is_ahead(made: Apply) -> bool:
    """Can it be done before its row is there?"""
    of_made_list = any(isinstance(x.type, List) and x.type.store is None for x in made.operands)
    return made.op.name not in OF_THE_ROW and not of_made_list


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
    """The equations under construction."""

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


# ---- specialise
#
# Join early, specialise late: what a cycle does behind a branch moves into the branch's arms.
#
#     %5 = if %2 then: ... yield %3              %7 = if %2 then: ... %8 = tanh(%3); yield %8
#          else: ... yield %4             ->          else: ... %9 = tanh(%4); yield %9
#     %7 = tanh(%5)
#
# Code behind a join runs once over the rows of both arms, which is best for stages: one matrix product over all nodes.
# Inside a recurrence it would cost leaves their own level, and rows that only pass would take part in the loop. Only
# operations that a recurrence holds are moved, and only where their other operands exist before the branch.


def in_recurrences(schedule: Schedule, values: Mapping[Variable, Value]) -> frozenset[Value]:
    """The values of the module that some recurrence of the schedule computes."""
    return frozenset(
        values[r]
        for recurrence in schedule.recurrences()
        for task in recurrence.tasks
        for equation in task.equations
        if isinstance(equation, Compute)
        for r in equation.results
        if r in values
    )


def specialise(module: Module, cyclic: frozenset[Value]) -> Module | None:
    """The module with operations that make `cyclic` values moved into arms; None when there is nothing to move."""
    sinker = _Sinker(module, cyclic)
    functions = tuple(replace(f, region=sinker.region(f.region)) for f in module.functions)
    return replace(module, functions=functions) if sinker.moved else None


class _Sinker:
    def __init__(self, module: Module, cyclic: frozenset[Value]) -> None:
        self.fresh, self.cyclic = Fresh(module), cyclic
        self.moved = 0

    def region(self, region: Region) -> Region:
        body = [with_regions(i, self.region) for i in region.body]
        at = 0
        while at < len(body):
            branch = body[at]
            if isinstance(branch, If):
                chosen = self.movable(branch, body[at + 1 :])
                if chosen:
                    self.moved += len(chosen)
                    body[at] = self.sink(branch, chosen)
                    body[at + 1 :] = [i for i in body[at + 1 :] if i not in chosen]
            at += 1
        return replace(region, body=tuple(body))

    def movable(self, branch: If, behind: list[Instruction]) -> list[Apply]:
        """Operations behind a branch that depend on it and otherwise only on what stands before it."""
        later = {r for i in behind for r in i.results}
        available: set[Value] = set(branch.results)
        chosen: list[Apply] = []
        for instruction in behind:
            if not isinstance(instruction, Apply) or not self.cyclic.issuperset(instruction.results):
                continue
            inside = [x for x in instruction.operands if isinstance(x, Value)]
            depends = any(x in available for x in inside)
            if depends and all(x in available or x not in later for x in inside):
                chosen.append(instruction)
                available.update(instruction.results)
        return chosen

    def sink(self, branch: If, chosen: list[Apply]) -> If:
        results = tuple(r for i in chosen for r in i.results)

        def extended(arm: Region) -> Region:
            env: dict[Value, Operand] = dict(zip(branch.results, arm.results, strict=True))
            copies = tuple(copy_instruction(i, env, self.fresh) for i in chosen)
            return Region((), (*arm.body, *copies), (*arm.results, *(env[r] for r in results)))

        return replace(
            branch,
            results=(*branch.results, *results),
            then=extended(branch.then),
            orelse=extended(branch.orelse),
        )
