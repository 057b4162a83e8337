"""Lists of which computed numbers say how long they are: a length, and arrays with room for so many elements.

    while lt(%x, 1.0) carrying %xs:             while lt(%x, 1.0) carrying %n, %buffer:
      %y = item(%xs, -1)                          check[kind='IndexError'](...); %y = dynamic_slice(%buffer, %n - 1)
      %zs = flatten(pack_list(%xs, [%y]))  ->     check[kind='MemoryError'](%n + 1 <= 32)
      yield %zs                                   %new = dynamic_update_slice(%buffer, %y, %n); yield %n + 1, %new

Where structure decides, lists stay what they are, and the host lays them out. What is left here is arithmetic, for
masks and machine code like any other, and for derivatives. How much room there is, is an option; an example that needs
more fails with a `MemoryError`, upon which a call outside `jax.jit` is run again with more (`autobatch/call/room.py`).

Other lists that are read where only the device knows the place are copied into such memory where they are made. A
comprehension is a loop, or all of its turns at once where it is a few operations (`arena_turns.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import assert_never

import jax.numpy as jnp

from autobatch.data.schema import Schema
from autobatch.errors import UnsupportedError
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
    operands,
    regions,
    walk,
)
from autobatch.ir.rewrite import ConstantPool, Fresh, free_values, region_values, with_operands, with_regions
from autobatch.ir.types import BOOL, INT, Array, List
from autobatch.passes.analysis.device import deciding
from autobatch.passes.analysis.fallible import fallible_reads
from autobatch.passes.control.comprehensions import as_loop
from autobatch.passes.memory import arena_operations as lists
from autobatch.passes.memory.arena_lists import (
    TABLES,
    Device,
    decided_by_device,
    floats_decide,
    has_tables,
    is_inner,
    lists_of_numbers,
    reads_by_number,
)
from autobatch.passes.memory.arena_memory import ArenaMemory, KnownElements, ListInMemory
from autobatch.passes.memory.arena_stores import stores_behind_branches
from autobatch.passes.memory.arena_turns import at_once, is_cut, is_update
from autobatch.passes.simplify.inline import recursive_functions
from autobatch.passes.strings import spelt


def lists_in_arenas(
    module: Module, schema: Schema, device: Device, capacity: int, alone: bool, checked: bool, handed: bool = False
) -> Module:
    """The module with arrays in place of the lists that computed numbers decide; the same where there are none.
    `device`, `handed`: as in `lists_of_numbers`; `alone`: there is no host that knows any list; `checked`: are reads
    that can fail behind checks already? UnsupportedError where such a list is a result, or holds objects."""
    made = _with_arenas(module, schema, device, capacity, alone, checked, handed)
    if has_tables(made):
        raise _refused_table(
            made, "a dict or set whose keys are no constants is made in a recursion, which has no memory for it"
        )
    return made


def _with_arenas(
    module: Module, schema: Schema, device: Device, capacity: int, alone: bool, checked: bool, handed: bool
) -> Module:
    """As `lists_in_arenas`; dicts and sets of an entry that calls itself stay."""
    entry, *others = module.functions
    if entry.name in recursive_functions(module) or not any(_has_lists(f.region) for f in module.functions):
        return module
    found, numbers = lists_of_numbers(module, device, alone, handed)
    wanted = frozenset[Operand]()
    if not alone:
        handed_on = _handed_on(module, found)
        joined = _joined_in_loops(entry.region, found, numbers)
        wanted = frozenset((*_read_by_number(entry.region, found, numbers), *joined, *handed_on))
    if not found and not wanted:
        return module
    inside = [i for f in module.functions for i in walk(f.region)]
    turns = {v for i in inside if isinstance(i, For | Map) for v in i.body.args[:1]}
    longest = max((len(i.operands) for i in inside if isinstance(i, Apply) and _shows(i)), default=1)
    fallible = frozenset[Value]() if checked else fallible_reads(module, schema)
    constants = ConstantPool(module)
    made = _Arenas(Fresh(module), found, fallible, turns, max(capacity, longest), constants)
    made.wanted, made.alone = wanted, alone
    made.on_host = frozenset(_reads_of_host(entry.region, wanted, numbers))
    made.functions = {f.name: f.region for f in module.functions}
    changed = (replace(entry, region=made.entry(entry.region)), *map(made.function, others))
    whole = replace(module, functions=changed, constants=constants.all)
    return stores_behind_branches(whole)


def left_to_traces(module: Module, device: Device) -> UnsupportedError | None:
    """What to say of dicts and sets that structure alone decides, as traces follow each key to its value; None where
    there are none."""
    if not has_tables(module) or floats_decide(module, device):
        return None
    why = "this dict or set has keys that are no constants, and numbers decide nothing here"
    return _refused_table(module, f"{why}: such functions are traced")


def _refused_table(module: Module, message: str) -> UnsupportedError:
    inside = (i for f in module.functions for i in walk(f.region))
    place = next(i.span for i in inside if isinstance(i, Apply) and i.op.name in TABLES)
    return UnsupportedError(message, place, "leave ab.options(trace=True) as it is, or use a list")


def _has_lists(region: Region) -> bool:
    values = (v for i in walk(region) for v in (*i.results, *operands(i)))
    return any(isinstance(v.type, List) for v in values)


def _read_by_number(region: Region, found: frozenset[Value], device: Collection[Operand]) -> Iterator[Operand]:
    """The lists of structure that are copied, because numbers decide what is read of them."""
    for i in reads_by_number(region, device):
        read = i.operands[0]
        holds = isinstance(i.results[0].type, Array) or is_inner(i)
        if holds and read not in found and lists.is_storable(lists.made_type(read)):
            yield read


def _joined_in_loops(region: Region, found: frozenset[Value], device: Collection[Operand]) -> Iterator[Operand]:
    """The lists of structure of which lists that have memory are made in loops that computed numbers decide."""
    for i in walk(region):
        if isinstance(i, If) or not decided_by_device(i, device):
            continue
        free = {x for x in free_values(Region((), (i,), ())) if isinstance(x.type, List)} - found
        for j in (j for r in regions(i) for j in walk(r)):
            if isinstance(j, Apply) and j.op.name in ("pack_list", "flatten") and not found.isdisjoint(j.results):
                yield from (x for x in j.operands if x in free and lists.is_storable(lists.made_type(x)))


def _reads_of_host(region: Region, wanted: frozenset[Operand], device: Collection[Operand]) -> Iterator[Value]:
    """Elements of lists which are copied that the host reads all the same, since it may have to know them."""
    decided = [i for i in walk(region) if any(x in device for x in deciding(i))]
    inside = {r for i in decided for j in walk(Region((), (i,), ())) for r in j.results}
    for i in walk(region):
        if not isinstance(i, Apply) or i.op.name != "item" or i.operands[0] not in wanted:
            continue
        (element,) = i.results
        if i.operands[1] not in device and element not in inside and isinstance(element.type, Array):
            yield element


def _handed_on(module: Module, found: frozenset[Value]) -> Iterator[Operand]:
    """The lists of structure that the entry hands to functions in which they have memory."""
    for call in (i for i in walk(module.functions[0].region) if isinstance(i, Call)):
        for x, parameter in zip(call.operands, module.function(call.callee).region.args, strict=True):
            if parameter in found and isinstance(x, Value) and x not in found:
                yield x


class _Arenas(ArenaMemory):
    """`wanted`: lists of structure that are copied where they are made; `on_host`: elements that are read of the lists
    themselves, as inner lists are which no number decides; `alone`: as in `lists_in_arenas`."""

    wanted: frozenset[Operand] = frozenset()
    on_host: frozenset[Value] = frozenset()
    alone: bool = False
    outermost: Region | None = None
    functions: Mapping[str, Region] = MappingProxyType({})

    # ---- regions

    def entry(self, region: Region) -> Region:
        """The entry: a list among its results is its length, and behind it its buffers."""
        self.outermost = region
        return with_operands(self.region(region, region.results), self.named)

    def function(self, function: Function) -> Function:
        """A function that calls itself; the very one where no list in it has memory."""
        values = region_values(function.region)
        if self.lists.isdisjoint(values) and not any(map(self.calls_with, walk(function.region))):
            return function
        returned = [x if isinstance(x, Value) else self.fresh.value(x.type) for x in function.region.results]
        made = with_operands(self.region(function.region, returned), self.named)
        return replace(function, region=_without_unread(made))

    def calls_with(self, i: Instruction) -> bool:
        """Does a call hand on lists that have memory, or get it where they come in?"""
        return isinstance(i, Call) and any(x in self.lists for x in (*i.operands, *self.functions[i.callee].args))

    def region(self, region: Region, targets: Sequence[Operand]) -> Region:
        """`targets`: what the results become; none where no list is among them."""
        before, self.made = self.made, []
        in_front, self.in_front = self.in_front, region is self.outermost and not self.alone
        args = self.values(region.args)
        self.copy_wanted(region.args)
        self.body(region)
        results = self.given(region.results, targets) if targets else region.results
        made, self.made, self.in_front = Region(args, tuple(self.made), results), before, in_front
        return made

    def body(self, region: Region) -> None:
        """Add what becomes of the instructions of a region."""
        rest = region
        while rest.body:
            first, *others = rest.body
            rest = replace(rest, body=tuple(others))
            self.span = first.span
            if isinstance(first, Map) and not self.lists.isdisjoint(first.results):
                if is_cut(self, first):
                    continue
                if (found := as_loop(first, rest.body, rest.results, self.fresh)) is not None:
                    kept = [i for k, i in enumerate(rest.body) if k not in found.gone]
                    rest = replace(rest, body=(*found.before, found.loop, *found.behind, *kept))
                    continue
            self.instruction(first)
            self.copy_wanted(first.results)

    def copy_wanted(self, values: Iterable[Value]) -> None:
        for x in values:
            if x in self.wanted:
                self.copies[x] = ListInMemory(self.held(x))

    # ---- instructions

    def instruction(self, i: Instruction) -> None:
        match i:
            case Apply():
                self.apply(i)
            case If(then=then, orelse=orelse):
                arms = self.region(then, i.results), self.region(orelse, i.results)
                self.made.append(replace(i, results=self.values(i.results), then=arms[0], orelse=arms[1]))
            case For(init=init, body=body):
                start = self.given(init, body.args[1:])
                inner = self.region(body, body.args[1:])
                self.made.append(replace(i, results=self.values(i.results), init=start, body=inner))
            case While(init=init, condition=test, body=body):
                start = self.given(init, body.args)
                tested, inner = self.region(test, ()), self.region(body, body.args)
                self.made.append(replace(i, results=self.values(i.results), init=start, condition=tested, body=inner))
            case Map() if not self.lists.isdisjoint(i.results):
                self.comprehension(i)
            case Map(body=body):
                self.made.append(replace(i, body=self.region(body, ())))
            case Call(operands=xs, callee=callee):
                given = self.given(xs, self.functions[callee].args)
                self.made.append(replace(i, operands=given, results=self.values(i.results)))
            case _:
                assert_never(i)

    def apply(self, i: Apply) -> None:
        xs = i.operands
        of_lists = any(x in self.lists for x in (*xs, *i.results))
        if self.on_host.isdisjoint(i.results) and not any(isinstance(r.type, List) for r in i.results):
            of_lists = of_lists or (i.op.name in ("item", "length", "reduce") and xs[0] in self.copies)
        if i.op.is_jax or not of_lists:
            self.made.append(i)
            if _shows(i):
                self.env[i.results[0]] = KnownElements(xs)
            return
        match i.op.name:
            case "pack_list":
                self.env[i.results[0]] = KnownElements(xs)
            case "undefined":
                self.env[i.results[0]] = KnownElements(())
            case "flatten":
                self.flattened(i)
            case "length":
                found = self.known(xs[0])
                n = Literal(len(found.elements), INT) if isinstance(found, KnownElements) else self.held(xs[0])[0]
                self.names[i.results[0]] = n
            case "item":
                self.item(i)
            case "reduce":
                self.reduced(i)
            case "find":
                columns, wanted = [self.held(x) for x in xs[: len(xs) // 2]], map(self.element, xs[len(xs) // 2 :])
                given = (columns[0][0], *(b for c in columns for b in c[1:]), *(p for x in wanted for p in x))
                (self.names[i.results[0]],) = self.traced(lists.position([len(c) - 1 for c in columns]), given)
            case "spelt":
                self.spelt(i)
            case "put":
                self.room_for(xs[1], 1)
                parts, element = self.held(xs[0]), self.element(xs[2])
                self.env[i.results[0]] = ListInMemory(self.put(parts, xs[1], element))
            case "sort_order":
                keys = [self.ranked(x) for x in xs]
                self.refuse_nan(keys[0][0], [b for k in keys for b in k[1:]])
                order = lists.order(dict(i.op.params).get("reverse", False))
                self.env[i.results[0]] = ListInMemory(
                    self.traced(order, (keys[0][0], *(b for k in keys for b in k[1:])))
                )
            case name:
                raise self.refused(f"is an operand of {name}", "read numbers and arrays of it")

    def refuse_nan(self, n: Operand, keys: Sequence[Operand]) -> None:
        """Let an example fail that has NaN among the keys of an order: where Python puts what is compared with it
        depends on which elements its algorithm compares."""
        floats = [k for k in keys if isinstance(k.type, Array) and k.type.dtype.startswith(("float", "bfloat"))]
        if floats:
            (fine,) = self.traced(lists.no_nan, (n, *floats))
            self.check(fine, "ValueError", lists.NAN_IN_ORDER)

    def ranked(self, x: Operand) -> tuple[Operand, ...]:
        """Keys of an order: of lists how many are less."""
        parts = self.held(x)
        if isinstance(x.type, List) and isinstance(x.type.elem, List):
            return parts[0], *self.traced(lists.ranks, parts)
        return parts

    def spelt(self, i: Apply) -> None:
        """A function of strings, of their code points; of lists that are not too long where a list is made."""
        of_lists = [isinstance(x.type, List) for x in i.operands]
        of = spelt.function(i.op["function"], dict(i.op.params).get("room", 0), of_lists)
        found = self.traced(of, [p for x in i.operands for p in self.element(x)])
        if isinstance(i.results[0].type, List):
            self.room_for(found[0])
            self.env[i.results[0]] = ListInMemory(found)
        else:
            (self.names[i.results[0]],) = found

    # ---- comprehensions

    def comprehension(self, of: Map) -> None:
        if is_update(self, of):
            return
        self.room_for(of.count)
        if not at_once(self, of):
            self.loop(of)

    def loop(self, of: Map) -> None:
        """A comprehension as a loop that writes an element of each list in each turn."""
        blanks = [self.blank(r) for r in of.results]
        init = (Literal(0, INT), *(b for _, *buffers in blanks for b in buffers))
        carried, before = tuple(self.fresh.value(x.type) for x in init), self.made
        inner = self.region(of.body, ())
        self.made = list(inner.body)
        n, after, rest = carried[0], list[Operand](), iter(carried[1:])
        for (_, *buffers), x in zip(blanks, inner.results[of.filtered :], strict=True):
            held = [next(rest) for _ in buffers]
            after += self.stored((n, *held), n, self.element(x))[1:]
        keep = inner.results[: of.filtered] or (Literal(True, BOOL),)
        (following,) = self.traced(lambda n, k: (n + jnp.where(k, 1, 0),), (n, *keep))
        body, self.made = Region((*of.body.args, *carried), tuple(self.made), (following, *after)), before
        found = self.fresh.like(carried)
        self.made.append(For(found, of.count, init, body, of.span))
        rest = iter(found[1:])
        for r, (_, *buffers) in zip(of.results, blanks, strict=True):
            self.env[r] = ListInMemory((found[0], *(next(rest) for _ in buffers)))


def _without_unread(region: Region) -> Region:
    """The region without the lists that have become arrays."""
    read = {x for i in walk(region) for x in (*operands(i), *(x for r in regions(i) for x in r.results))}
    read.update(region.results)

    def kept(i: Instruction) -> bool:
        return not isinstance(i, Apply) or i.op.name not in ("pack_list", "undefined") or i.results[0] in read

    def cleared(r: Region) -> Region:
        return replace(r, body=tuple(with_regions(i, cleared) for i in r.body if kept(i)))

    return cleared(region)


def _shows(i: Apply) -> bool:
    """Is this a list whose elements are written one by one? One that is not set yet has none."""
    return i.op.name == "pack_list" or (i.op.name == "undefined" and isinstance(i.results[0].type, List))
