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
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import networkx
import numpy as np

from autobatch.call.results import NamedConstants, Objects
from autobatch.call.tracing.classes import Instances, OpClass, OperandSlot, OperationClasses, list_type
from autobatch.call.tracing.log import CodePlace, ItemsMarker, LeafMarker, SharedMarker, Uniform, span_of_place, spread
from autobatch.call.tracing.returned import Checked, ConstantNode, FreePlace, Prints
from autobatch.frontend.library.domains import FINE, fail, failure_at
from autobatch.ir.strings import Printed
from autobatch.planning.activations import CALLS
from autobatch.planning.numbering import stable_order

# ---- compounds
#
# Classes that always come together become one: each compound is a row of a batch, so fewer and larger ones are better.
#
# A class and the class that reads it are joined where each instance of the one has exactly one of the other, and where
# nothing outside reads a result before the whole compound is done; so the compounds of an example are in an order, too.
#
# z = W @ h; i = sigmoid(z[:n]); ...; h = o * tanh(c)     sixteen classes of a turn, one compound with results h and c


Edge = tuple[int, int, int, int]
"""The class of a producer, which of its results, the class of a consumer, which of its operands."""


@dataclass
class Compound:
    """Classes that are computed together, each after what it reads. `outs`: the results that others read, by class."""

    number: int
    members: tuple[int, ...]
    outs: dict[tuple[int, int], int] = field(default_factory=dict)


@dataclass
class _Edges:
    """Who reads what among the steps of a batch, without what is the same for all examples."""

    producer: np.ndarray
    consumer: np.ndarray
    edge: np.ndarray
    """The number of its class of edges."""
    classes: list[Edge]

    @classmethod
    def of(cls, classes: OperationClasses, found: Instances) -> _Edges:
        if found.edges is None:
            found.edges = cls._of(classes, found)
        made: _Edges = found.edges
        return made

    @classmethod
    def _of(cls, classes: OperationClasses, found: Instances) -> _Edges:
        uniform = np.array([c.uniform for c in classes.all], np.bool_)[found.classes]
        read = np.flatnonzero((found.producer >= 0) & ~found.element)
        producer, consumer = found.producer[read], found.owner[read]
        varies = ~(uniform[producer] | uniform[consumer])
        read, producer, consumer = read[varies], producer[varies], consumer[varies]
        distinct, edge = _numbered(classes.pairs(found, read))
        first = np.full(len(distinct), len(read))
        np.minimum.at(first, edge, np.arange(len(read)))
        of = zip(
            found.classes[producer[first]].tolist(),
            found.out[read[first]].tolist(),
            found.classes[consumer[first]].tolist(),
            (found.slot[read[first]] - np.array(classes.first, np.int64)[found.classes[consumer[first]]]).tolist(),
            strict=True,
        )
        return cls(producer, consumer, edge, list(of))

    def by_class(self) -> Sequence[tuple[np.ndarray, np.ndarray]]:
        """The producers and consumers of each class of edges."""
        if not self.classes:
            return []
        order = stable_order(self.edge)
        bounds = np.cumsum(np.bincount(self.edge, minlength=len(self.classes)))[:-1]
        producer, consumer = np.split(self.producer[order], bounds), np.split(self.consumer[order], bounds)
        return list(zip(producer, consumer, strict=True))


def _numbered(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The distinct ones of numbers of which there are few, in order, and which of them each one is."""
    distinct = np.unique(values)
    return distinct, np.searchsorted(distinct, values)


class Compounds:
    """The compounds of one function. `links`: edges that hold compounds together; `refused`: those that some batch
    showed not to; `inner`: all that is read within a compound, `outer`: what some batch showed not to be."""

    def __init__(self) -> None:
        self.links: set[Edge] = set()
        self.refused: set[Edge] = set()
        self.outer: set[Edge] = set()
        self.known: set[int] = set()
        self.inner: set[Edge] = set()
        self.of_class: dict[int, Compound] = {}
        self.all: list[Compound] = []
        self._trees: dict[int, list[tuple[Edge, bool]]] = {}
        self._version = -1

    @property
    def state(self) -> Any:
        """What a program depends on."""
        return tuple((c.members, tuple(c.outs)) for c in self.all), frozenset(self.inner)

    def rows_of(self, classes: OperationClasses, found: Instances) -> np.ndarray:
        """The row that each instance of a batch is in, by a number of this batch; -1 for what is the same for all."""
        if found.rows is None:
            edges = _Edges.of(classes, found)
            group = np.arange(len(found.classes))
            for edge, (producer, consumer) in zip(edges.classes, edges.by_class(), strict=True):
                if edge in self.inner:
                    group = _united(group, producer, consumer)
            uniform = np.array([c.uniform for c in classes.all], np.bool_)
            group[uniform[found.classes]] = -1
            found.rows = group
        made: np.ndarray = found.rows
        return made

    def _holds(self, classes: OperationClasses, found: Instances, edges: _Edges) -> bool:
        """Are the compounds that are known those of a batch, too? Its rows are known then."""
        if self._version != classes.version:
            return False
        is_inner = [e in self.inner for e in edges.classes]
        if any(not inner and e not in self.outer for e, inner in zip(edges.classes, is_inner, strict=True)):
            return False
        parts = dict(zip(edges.classes, edges.by_class(), strict=True))
        group = np.full(len(found.classes), -1)
        order = stable_order(found.classes)
        count = np.bincount(found.classes, minlength=len(classes.all))
        bounds = np.cumsum(count)
        for compound in self.all:
            first = compound.members[0]
            mine = order[bounds[first] - count[first] : bounds[first]]
            group[mine] = mine
            for edge, forward in self._tree(compound):
                known, new = parts.get(edge, (mine[:0], mine[:0]))[:: 1 if forward else -1]
                group[new] = group[known]
            if any(count[k] != len(mine) for k in compound.members):
                return False
        inside = group[edges.producer] == group[edges.consumer]
        uniform = np.array([c.uniform for c in classes.all], np.bool_)[found.classes]
        if np.any(inside != np.array(is_inner, np.bool_)[edges.edge]) or np.any((group < 0) != uniform):
            return False
        last = np.zeros(len(group) + 1, np.int64)
        last[group] = np.arange(len(group))  # the last one stays
        early = ~inside & (edges.consumer < last[group[edges.producer]])
        key = np.sort(group[~uniform] * len(classes.all) + found.classes[~uniform])
        if np.any(early) or np.any(key[1:] == key[:-1]):
            return False
        found.rows = group
        return True

    def _tree(self, compound: Compound) -> Sequence[tuple[Edge, bool]]:
        """Edges that lead from the first member of a compound to all others, and whether to a consumer each."""
        if compound.number not in self._trees:
            members, made, reached = set(compound.members), list[tuple[Edge, bool]](), {compound.members[0]}
            inner = sorted(e for e in self.inner if e[0] in members and e[2] in members)
            while True:
                edge = next((e for e in inner if (e[0] in reached) != (e[2] in reached)), None)
                if edge is None:
                    break
                made.append((edge, edge[0] in reached))
                reached |= {edge[0], edge[2]}
            self._trees[compound.number] = made
        return self._trees[compound.number]

    def add(self, classes: OperationClasses, found: Instances) -> None:
        """Learn from a batch which classes belong together. Compounds only become smaller: what once was not together,
        or not read within, never is."""
        edges = _Edges.of(classes, found)
        if self._holds(classes, found, edges):
            return
        self._trees.clear()
        self._version = classes.version
        group = np.arange(len(found.classes))
        joined: set[Edge] = set()
        seen = set(found.classes.tolist())
        count = np.bincount(found.classes, minlength=len(classes.all))
        pure = [_is_all(classes, e) and e not in self.outer for e in edges.classes]
        readers = np.array([count[e[2]] if p else -1 for e, p in zip(edges.classes, pure, strict=True)], np.int64)
        for number in self._candidates(classes, found, edges):
            at = edges.edge == number
            tried = _united(group, edges.producer[at], edges.consumer[at])
            if _fits(tried, found.classes, edges, readers):
                group = tried
                joined.add(edges.classes[number])
        self.refused |= set(edges.classes) - joined
        gone = {
            e for e in self.links if e not in joined and (not seen.isdisjoint((e[0], e[2])) or not _is_all(classes, e))
        }
        self.refused |= gone
        links = (self.links - gone) | joined
        if links != self.links or any(c.number not in self.of_class and not c.uniform for c in classes.all):
            self.links = links
            self._make(classes)
        within = set(edges.edge[group[edges.producer] == group[edges.consumer]].tolist())
        self.outer |= {e for k, e in enumerate(edges.classes) if k not in within}
        self.inner |= {edges.classes[k] for k in within}
        kept = {e for e in self.inner if e not in self.outer and self._together(e[0], e[2]) and _is_all(classes, e)}
        self.outer |= self.inner - kept
        self.inner = kept
        for c in self.all:
            c.members = self._ordered(classes, c.members)
        self._note_outs(classes)
        self.known |= seen

    def _candidates(self, classes: OperationClasses, found: Instances, edges: _Edges) -> list[int]:
        """Classes of edges where each instance of the producer meets one of the consumer."""
        count = np.bincount(found.classes, minlength=len(classes.all))
        made = []
        for number, (producer, _, consumer, _) in enumerate(edges.classes):
            at = edges.edge == number
            size = int(at.sum())
            edge = edges.classes[number]
            if edge in self.refused or producer == consumer or size != count[consumer] or not _is_all(classes, edge):
                continue
            if edge not in self.links and not self.known.isdisjoint((producer, consumer)):
                continue  # one was there before without the other
            if size == count[producer] and len(np.unique(edges.producer[at])) == size:
                made.append(number)
        return sorted(made, key=lambda k: (edges.classes[k][2], -edges.classes[k][0]))

    def _make(self, classes: OperationClasses) -> None:
        """The compounds as classes that are connected."""
        root = {c.number: c.number for c in classes.all if not c.uniform}

        def find(k: int) -> int:
            while root[k] != k:
                k = root[k]
            return k

        for a, _, b, _ in self.links:
            if a in root and b in root:
                root[find(a)] = find(b)
        members: dict[int, list[int]] = {}
        for k in root:
            members.setdefault(find(k), []).append(k)
        outs = {frozenset(c.members): c.outs for c in self.all}
        self.all = [Compound(n, tuple(m), outs.get(frozenset(m), {})) for n, m in enumerate(members.values())]
        self.of_class = {k: c for c in self.all for k in c.members}

    def _note_outs(self, classes: OperationClasses) -> None:
        """What is read from outside."""
        for c in classes.all:
            if c.uniform:
                continue
            for j, slot in enumerate(c.slots):
                for producer, out in slot.producers:
                    inner = (producer, out, c.number, j) in self.inner and c.kind is not None
                    if inner or classes.all[producer].uniform or classes.all[producer].kind is None:
                        continue
                    of = self.of_class[producer]
                    of.outs.setdefault((producer, out), len(of.outs))

    def _together(self, a: int, b: int) -> bool:
        return a in self.of_class and self.of_class[a] is self.of_class.get(b)

    def _ordered(self, classes: OperationClasses, members: Sequence[int]) -> tuple[int, ...]:
        """Members, each after what it reads of the others."""
        made = dict[int, None]()

        def add(k: int) -> None:
            if k in made:
                return
            for j, slot in enumerate(classes.all[k].slots):
                for producer, out in slot.producers:
                    if (producer, out, k, j) in self.inner:
                        add(producer)
            made[k] = None

        for k in sorted(members):
            add(k)
        return tuple(made)


def _is_all(classes: OperationClasses, edge: Edge) -> bool:
    """Has the operand of an edge never been anything else, in any batch?"""
    producer, out, consumer, operand = edge
    slot = classes.all[consumer].slots[operand]
    return not slot.numbers and slot.producers.keys() == {(producer, out)}


def _united(group: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Groups where the groups of `a[k]` and `b[k]` are one; each group meets at most one other."""
    into = np.arange(len(group))
    x, y = group[a], group[b]
    into[np.maximum(x, y)] = np.minimum(x, y)
    for _ in range(64):
        further = into[into]
        if np.array_equal(further, into):
            break
        into = further
    found: np.ndarray = into[group]
    return found


def _fits(group: np.ndarray, classes: np.ndarray, edges: _Edges, readers: np.ndarray) -> bool:
    """Has each group one instance of a class at most, are its inner edges those of all groups of its kind, and does
    nothing outside read of it before it is done? `readers`: how many instances the consumer of each edge has,
    -1 where its operand has been something else."""
    if len(np.unique(group * (int(classes.max(initial=0)) + 1) + classes)) != len(group):
        return False
    last = np.zeros(len(group), np.int64)
    np.maximum.at(last, group, np.arange(len(group)))
    inner = group[edges.producer] == group[edges.consumer]
    if np.any(~inner & (edges.consumer < last[group[edges.producer]])):
        return False
    within = np.bincount(edges.edge, weights=inner, minlength=len(edges.classes))
    return bool(np.all((within == 0) | (within == readers)))


# ---- dispatch
#
# Which function finds the value that an operand is: one for each operand, one for all of a cycle of the same type.
#
#     h = tanh(h @ W + x)     reads itself: its cycle has one function for each type of value that it goes on with
#     y = h @ V               reads the cycle, and is in none: its operand has a function of its own
#
# Few functions call each other then, however many compounds a cycle has.


@dataclass
class ResultPool:
    """What some operands of one type may be: results of classes, or a number."""

    name: str
    type: Any
    producers: dict[tuple[int, int], None] = field(default_factory=dict)
    numbers: bool = False


class Dispatch:
    """The pools of a program's operands."""

    def __init__(self, classes: OperationClasses, compounds: Compounds) -> None:
        self.classes, self.compounds = classes, compounds
        self._of: dict[tuple[int, int], ResultPool] = {}
        self._ambiguous: dict[tuple[int, int], bool] = {}
        cycles, made = self._cycles(), dict[Hashable, ResultPool]()
        for c, j, slot in self._values():
            own = cycles.get(compounds.of_class[c.number].number)
            inside = own is not None and any(cycles.get(k) == own for k in self._read(slot))
            key: Hashable = (own, slot.type) if inside else (c.number, j, "alone")
            name = f"cycle{own}_{len(made)}" if inside else f"value{c.number}_{j}"
            pool = made.setdefault(key, ResultPool(name, slot.type))
            pool.producers.update(slot.producers)
            pool.numbers |= slot.numbers
            self._of[c.number, j] = pool

    def __call__(self, c: OpClass, j: int) -> ResultPool:
        """The pool of an operand."""
        return self._of[c.number, j]

    def _values(self) -> Iterator[tuple[OpClass, int, OperandSlot]]:
        """The operands that rows are read for."""
        for c in self.classes.all:
            for j, slot in enumerate(c.slots):
                inner = any((*p, c.number, j) in self.compounds.inner for p in slot.producers)
                if not c.uniform and slot.producers and slot.fixed is None and not inner:
                    yield c, j, slot

    def _read(self, slot: OperandSlot) -> list[int]:
        """The compounds that an operand may be of."""
        return [self.compounds.of_class[p].number for p, _ in slot.producers if not self.classes.all[p].uniform]

    def _cycles(self) -> dict[int, int]:
        """The cycle that a compound is in, by number, for those that are in one."""
        graph = networkx.DiGraph()
        for c, _, slot in self._values():
            graph.add_edges_from((self.compounds.of_class[c.number].number, k) for k in self._read(slot))
        found: dict[int, int] = {}
        for number, members in enumerate(sorted(map(sorted, networkx.strongly_connected_components(graph)))):
            if len(members) > 1 or graph.has_edge(members[0], members[0]):
                found.update(dict.fromkeys(members, number))
        return found

    def is_ambiguous(self, pool: ResultPool, of: Compound) -> bool:
        """Does a pool hold several results of a compound? Then rows say which one they mean."""
        key = id(pool), of.number
        if key not in self._ambiguous:
            self._ambiguous[key] = sum(self.compounds.of_class.get(p) is of for p, _ in pool.producers) > 1
        return self._ambiguous[key]


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
