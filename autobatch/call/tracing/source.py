"""The program over traced structure: Python for one example, which the front end compiles, and the examples it takes.

class Compound1: a0: the compound that computed h before, or a Number; k0: x

def compound1(n, s0):                        # mul (f.py:3), add (f.py:3)
    return compute1(value1_0(n.a0, s0), n.k0, s0)

def value1_0(n, s0):
    if isinstance(n, Compound1):
        return compound1(n, s0)
    return n.value
"""

from __future__ import annotations

import itertools
import linecache
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from autobatch.call.blueprints import NamedConstants, Objects
from autobatch.call.tracing.classes import OpClass, OperandSlot, OperationClasses, list_type
from autobatch.call.tracing.compounds import Compound, Compounds, Dispatch, ResultPool
from autobatch.call.tracing.graphs import ConstantNode
from autobatch.call.tracing.log import CodePlace, ItemsMarker, LeafMarker, SharedMarker, Uniform, span_of_place, spread
from autobatch.call.tracing.returned import Checked, FreePlace, Prints
from autobatch.frontend.tracing.traced_failures import FINE, fail, failure_at
from autobatch.ir.printed import Printed
from autobatch.planning.foreseen import CALLS

_numbers = itertools.count()


UNREACHED = "    raise TypeError('a row of no known kind')"


class TracedRow:
    """A row of traced structure: a compound of an example, or a number."""


@dataclass
class TraceSource:
    """Python for one example: `main(shared, trace)`."""

    main: Callable[..., Any]
    text: str
    rows: dict[str, type]
    """The classes of rows by name."""
    pools: Dispatch
    fails: bool

    def failed(self) -> TracedRow:
        """The row of an example that failed while it was traced."""
        made: TracedRow = self.rows["Failed"]()
        made.__dict__["why"] = 0
        return made


class TraceWriter:
    """Writes the program of some compounds. `roots`: the classes of results of whole examples."""

    def __init__(
        self,
        classes: OperationClasses,
        compounds: Compounds,
        roots: Sequence[int],
        name: str,
        fails: bool,
        constants: NamedConstants,
        failures: Mapping[tuple[str, str, CodePlace], int],
    ) -> None:
        self.classes, self.compounds, self.roots, self.name, self.fails = classes, compounds, tuple(roots), name, fails
        self.constants, self.failures = constants, dict(failures)
        self.pools, self.written = Dispatch(classes, compounds), set[str]()
        self.lines: list[str] = []
        self.space: dict[str, Any] = {"__name__": name, "Objects": Objects, "Printed": Printed, "constants": constants}
        self.space |= {"fail": fail, "failure_at": failure_at}
        self.rows: dict[str, type] = {}
        self.shared: dict[SharedMarker | Uniform, str] = {}
        self.uniforms: dict[int, str] = {}

    def write(self) -> TraceSource:
        prelude = self._prelude()
        self.names = [
            *self.shared.values(),
            *(f"{n}_{k}" for c, n in self.uniforms.items() for k in range(self._outs(c))),
        ]
        self.more = "".join(f", {n}" for n in self.names)
        for compound in self.compounds.all:
            self._compound(compound)
        for c in self.classes.all:
            if c.kind is None:
                self._result(c)
        roots = {f"Compound{self.compounds.of_class[k].number}": f"result{k}" for k in self.roots}
        main = ["def main(shared, trace):", *(f"    {line}" for line in prelude)]
        if self.fails:
            main += [f"    if isinstance(trace, {self._row('Failed')}):", "        raise RuntimeError('it failed')"]
        for row, name in roots.items():
            main += [f"    if isinstance(trace, {row}):", f"        return {name}(trace{self.more})"]
        main.append(UNREACHED)
        text = "\n".join([*main, "", *self.lines]) + "\n"
        file = f"<structure of {self.name}, {next(_numbers)}>"
        linecache.cache[file] = (len(text), None, text.splitlines(True), file)
        exec(compile(text, file, "exec"), self.space)
        made = self.space["main"]
        made.__name__ = made.__qualname__ = self.name
        return TraceSource(made, text, self.rows, self.pools, self.fails)

    # -- what is the same for all examples

    def _prelude(self) -> list[str]:
        lines: list[str] = []
        held = list(self.classes.fixed())
        for x in held:
            if isinstance(x, SharedMarker):
                self._of_shared(x, lines)
        for u in spread(x for x in held if isinstance(x, Uniform)):
            for operand in u.operands:
                if isinstance(operand, SharedMarker):
                    self._of_shared(operand, lines)
            if u in self.shared:
                continue
            name = self.shared[u] = f"u{len(self.shared)}"
            self.space[f"make_{name}"] = jax.jit(_picked(u.make, u.number))
            operands = ", ".join(self.shared[x] for x in u.operands)
            lines.append(f"{name} = make_{name}({operands})")
        for c in self.classes.all:
            if c.uniform:
                self._uniform(c, lines)
        return lines

    def _of_shared(self, x: SharedMarker, lines: list[str]) -> None:
        if x not in self.shared:
            self.shared[x] = f"s{x.number}"
            lines.append(f"s{x.number} = shared[{x.number}]")

    def _outs(self, number: int) -> int:
        kind = self.classes.all[number].kind
        assert kind is not None
        return len(kind.outs)

    def _uniform(self, c: OpClass, lines: list[str]) -> None:
        """A class whose instances are all the same."""
        if c.number in self.uniforms:
            return
        operands, constants = [], {}
        for j, slot in enumerate(c.slots):
            if slot.fixed is not None:
                operands.append(self.shared[slot.fixed])
            elif slot.is_constant:
                constants[j] = slot.same
            else:
                ((producer, out),) = slot.producers
                self._uniform(self.classes.all[producer], lines)
                operands.append(f"{self.uniforms[producer]}_{out}")
        name = self.uniforms[c.number] = f"c{c.number}"
        assert c.kind is not None
        self.space[f"make_{name}"] = jax.jit(_with_constants(c.kind.make, len(c.slots), constants, _types(c)))
        outs = [f"{name}_{k}" for k in range(len(c.kind.outs))]
        lines.append(f"{', '.join(outs)}, = make_{name}({', '.join(operands)})")

    # -- compounds

    def _named(self, compound: Compound) -> str:
        return f"compound{compound.number}"

    def _row(self, name: str) -> str:
        if name not in self.rows:
            self.rows[name] = self.space[name] = type(name, (TracedRow,), {CALLS: {}})
        return name

    def _foretell(self, row: str, field: str, function: str) -> None:
        """Say that a function is called on all rows of a class, or on what a field of theirs holds: see `foreseen`."""
        calls = vars(self.rows[self._row(row)])[CALLS]
        calls[field] = tuple({*calls.get(field, ()), function})

    def _compound(self, compound: Compound) -> None:
        """The function of a compound."""
        self._row(f"Compound{compound.number}")
        operands: list[str] = []
        members: list[tuple[OpClass, list[Any]]] = []
        for k in compound.members:
            c = self.classes.all[k]
            if c.kind is not None:
                members.append((c, [self._operand(c, j, slot, operands) for j, slot in enumerate(c.slots)]))
        if not members:
            return
        name = f"compute{compound.number}"
        self.space[name] = jax.jit(_computed(members, list(compound.outs)))
        where = sorted({_where(c) for c, _ in members} - {""})
        self._foretell(f"Compound{compound.number}", "", self._named(compound))
        self.lines += [
            f"def {self._named(compound)}(n{self.more}):",
            f"    # {', '.join(c.name for c, _ in members)[:100]}; {', '.join(where)[:200]}",
            f"    return {name}({', '.join(operands)})",
            "",
        ]

    def _result(self, c: OpClass) -> None:
        """The function of a result, or of an element of a list in it."""
        of = self.compounds.of_class[c.number]
        checks = self._checks(c.structure.checks, c) if isinstance(c.structure, Checked) else []
        text = self._structured(c.structure, c)  # which may write functions of its own
        self._foretell(f"Compound{of.number}", "", f"result{c.number}")
        self.lines.append(f"def result{c.number}(n{self.more}):")
        if any(e[2] == c.number for e in self.compounds.inner):
            self.lines.append(f"    found = {self._named(of)}(n{self.more})")
        self.lines += [*checks, f"    return {text}", ""]

    def _checks(self, checks: ItemsMarker, c: OpClass) -> list[str]:
        """What makes an example fail, where a check of it says so."""
        if not c.slots[checks.number].producers:
            return []
        text = self._elements(c, checks.number)
        each = f"failure_at(k, {text}) for k, x in enumerate(n.l{c.number}_{checks.number})"
        lines = [f"    first = min([{each}], default={FINE})"]
        for (kind, message, place), number in self.failures.items():
            span = span_of_place(place)
            where = repr(span.file), span.line, span.column, span.end_line, span.end_column
            lines.append(f"    fail(first, {number}, {kind!r}, {message!r}, {', '.join(map(str, where))})")
        return lines

    def _structured(self, structure: Any, c: OpClass) -> str:
        match structure:
            case LeafMarker(number=j):
                return self._leaf(c, j, c.slots[j])
            case ItemsMarker(number=j):
                if not c.slots[j].producers:  # with the type that it has elsewhere
                    return "[]" if self._has_elements(structure.of) else "[0.0 for _ in range(0)]"
                return f"[{self._elements(c, j)} for x in n.l{c.number}_{j}]"
            case FreePlace(text=text, lists=lists):
                groups = "".join(f"{self._group(x, c)}, " for x in lists)
                return f"Objects({self._structured(text, c)}, ({groups}), constants)"
            case Checked(result=result):
                return self._structured(result, c)
            case Prints(result=result, lines=lines):
                return f"Printed({self._structured(result, c)}, {self._structured(lines, c)})"
            case ConstantNode(value=held):
                return self._constant(held)
            case tuple():
                parts = "".join(f"{self._structured(x, c)}, " for x in structure)
                if not hasattr(structure, "_fields"):
                    return f"({parts})"
                return f"{self._constant(type(structure))}({parts})"
            case dict():
                return "{" + ", ".join(f"{k!r}: {self._structured(x, c)}" for k, x in structure.items()) + "}"
            case _:
                return repr(structure)

    def _constant(self, value: Any) -> str:
        """The name of a class or a member of an enum."""
        name = f"constant_{self.constants.number(value)}"
        self.space[name] = value
        return name

    def _has_elements(self, of: Any) -> bool:
        """Have such lists an element in some example?"""
        return any(s.producers for c in self.classes.all for s in c.slots if s.type == list_type(of))

    def _group(self, items: ItemsMarker, c: OpClass) -> str:
        """The numbers of one group; where an example has none of them, as of their type."""
        if c.slots[items.number].producers:
            return self._structured(items, c)
        zero = number_name(items.of)
        self.space[f"no_{zero}"] = np.zeros(*items.of)
        return f"[no_{zero} for _ in range(0)]"

    def _elements(self, c: OpClass, j: int) -> str:
        numbers = sorted(k for k, _ in c.slots[j].producers)
        text = f"result{numbers[-1]}(x{self.more})"
        for k in numbers[-2::-1]:
            text = f"result{k}(x{self.more}) if isinstance(x, Compound{self.compounds.of_class[k].number}) else {text}"
        return text

    def _leaf(self, c: OpClass, j: int, slot: OperandSlot) -> str:
        """A number of a result."""
        plain = isinstance(slot.same, (str, int)) or (isinstance(slot.same, float) and math.isfinite(slot.same))
        if slot.is_constant and not plain:
            name = f"constant{c.number}_{j}"
            self.space[name] = np.asarray(slot.same)
            return name
        if slot.is_constant:
            return repr(slot.same)
        edge = next(((*p, c.number, j) for p in slot.producers if (*p, c.number, j) in self.compounds.inner), None)
        if edge is None:
            return self._text(c, j, slot)
        of = self.compounds.of_class[c.number]
        return "found" if len(of.outs) == 1 else f"found[{of.outs[edge[:2]]}]"

    def _operand(self, c: OpClass, j: int, slot: OperandSlot, operands: list[str]) -> Any:
        """How a member finds an operand: one of the compound, by its number, a constant, or the result of a member."""
        if slot.is_constant:
            return ("constant", slot.same, slot.type)
        for producer, out in slot.producers:
            if (producer, out, c.number, j) in self.compounds.inner:
                return ("member", (producer, out))
        text = self._text(c, j, slot)
        if text not in operands:
            operands.append(text)
        return ("operand", operands.index(text))

    def _text(self, c: OpClass, j: int, slot: OperandSlot) -> str:
        """An operand that comes from outside of a compound."""
        if slot.fixed is not None:
            return self.shared[slot.fixed]
        if slot.is_data:
            return f"n.k{c.number}_{j}"
        if len(slot.producers) == 1 and not slot.numbers:
            ((producer, out),) = slot.producers
            if self.classes.all[producer].uniform:
                return f"{self.uniforms[producer]}_{out}"
        return self._dispatched(c, j)

    def _dispatched(self, c: OpClass, j: int) -> str:
        """A value that some compound computes: which one, the row says."""
        pool = self.pools(c, j)
        if pool.name not in self.written:
            self.written.add(pool.name)
            self.lines.append(f"def {pool.name}(n{self.more}):")
            for row, text in self._arms(pool).items():  # all are tested: a batch may hold no row of the last kind
                self.lines += [f"    if isinstance(n, {row}):", f"        return {text}"]
            self.lines += [UNREACHED, ""]
        self._foretell(f"Compound{self.compounds.of_class[c.number].number}", f"a{c.number}_{j}", pool.name)
        return f"{pool.name}(n.a{c.number}_{j}{self.more})"

    def _arms(self, pool: ResultPool) -> dict[str, str]:
        """What rows a pool has, and the value of each."""
        arms: dict[str, str] = {}
        for producer, out in pool.producers:
            if self.classes.all[producer].uniform:
                arms[self._row(f"Uniform{producer}_{out}")] = f"{self.uniforms[producer]}_{out}"
                continue
            of = self.compounds.of_class[producer]
            index = of.outs[producer, out]
            picked = "" if len(of.outs) == 1 else f"[{index}]"
            if self.pools.is_ambiguous(pool, of):
                arms[self._row(f"Result{of.number}_{index}")] = f"{self._named(of)}(n.of{self.more}){picked}"
            else:
                arms[self._row(f"Compound{of.number}")] = f"{self._named(of)}(n{self.more}){picked}"
        if pool.numbers:
            arms[self._row(number_name(pool.type))] = "n.value"
        return arms


def number_name(type: Any) -> str:
    shape, dtype = type
    return "_".join(["Number", re.sub(r"\W", "_", str(dtype)), *map(str, shape)])


def _types(c: OpClass) -> list[Any]:
    return [s.type for s in c.slots]


def _where(c: OpClass) -> str:
    code, instruction = c.place.code, c.place.instruction
    if code is None:
        return ""
    line = next(itertools.islice(code.co_positions(), instruction // 2, None), (None,))[0]
    return f"{code.co_filename.rpartition('/')[2]}:{line}"


# ---- arithmetic


def _picked(make: Callable[..., Sequence[Any]], number: int) -> Callable[..., Any]:
    return lambda *xs: make(*xs)[number]


def _with_constants(
    make: Callable[..., Sequence[Any]], count: int, constants: dict[int, Any], types: Sequence[Any]
) -> Callable[..., Any]:
    def run(*xs: Any) -> Any:
        given = iter(xs)
        return tuple(make(*(constant(constants[j], types[j]) if j in constants else next(given) for j in range(count))))

    return run


def constant(value: Any, type: Any) -> Any:
    """A number in the dtype that its operation reads. Python's integers stay themselves, for the places of slices."""
    is_int = isinstance(value, int) and not isinstance(value, bool)
    return value if is_int and type[1] == np.int32 else np.asarray(value, type[1])


def _computed(members: Sequence[Any], outs: Sequence[tuple[int, int]]) -> Callable[..., Any]:
    """The function of a compound: all of its operands in, the results that others read out."""

    def run(*xs: Any) -> Any:
        held: dict[tuple[int, int], Any] = {}

        def value(read: Any) -> Any:
            match read:
                case ("operand", k):
                    return xs[k]
                case ("constant", x, type):
                    return constant(x, type)
                case (_, key):
                    return held[key]

        for c, reads in members:
            assert c.kind is not None
            held.update(((c.number, k), x) for k, x in enumerate(c.kind.make(*map(value, reads))))
        found = tuple(held[o] for o in outs)
        return found[0] if len(found) == 1 else found

    return run
