"""What leaves the program: results of the entry in the order of the examples, and the objects that it has made.

    func @f(%t) -> (made<>):           space made: one row an object
      %n = make[of='Node'](%x, %m)     output 1: gather[made](f.%x)      Node.x
      return %n                          output 2: rows of made            Node.left
                                         output 3: the class of each object

A number leaves through a gather; everything else is rows and tags that the host knows when all has run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from autobatch.data.returned import element_type
from autobatch.data.spec import OUTPUT, MadeObjects, MadeSpec, MakeSpec, TableSpec
from autobatch.ir.core import Apply, Operand, Value
from autobatch.ir.system import Equation, Gather, Space, Variable
from autobatch.ir.types import INT, Array, BuiltObject, List, Ref, Type
from autobatch.passes.frames.provenance import PointerSource, Provenance, RegionRows


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
