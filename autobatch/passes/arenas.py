"""Lists of which computed numbers say how long they are: a length, and arrays with room for so many elements.

    while lt(%x, 1.0) carrying %xs:             while lt(%x, 1.0) carrying %n, %buffer:
      %y = item(%xs, -1)                          check[kind='IndexError'](...); %y = dynamic_slice(%buffer, %n - 1)
      %zs = flatten(pack_list(%xs, [%y]))  ->     check[kind='MemoryError'](%n + 1 <= 32)
      yield %zs                                   %new = dynamic_update_slice(%buffer, %y, %n); yield %n + 1, %new

Where structure decides, lists stay what they are, and the host lays them out. What is left here is arithmetic, for
masks and machine code like any other, and for derivatives. How much room there is, is an option; an example that needs
more fails with a `MemoryError`, upon which a call outside `jax.jit` is run again with more
(`autobatch/call/prepared.py`).

Other lists that are read where only the device knows the place are copied into such memory where they are made. A
comprehension is a loop, or all of its turns at once where it is a few operations (`arena_memory.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import assert_never

import jax.numpy as jnp
import networkx as nx

from autobatch.data.columns import Schema
from autobatch.errors import UnsupportedError
from autobatch.ir.core import (
    BOOL,
    INT,
    Apply,
    Array,
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
    Region,
    Value,
    While,
    operands,
    regions,
    walk,
)
from autobatch.ir.regions import (
    ConstantPool,
    Fresh,
    calls,
    free_values,
    is_float,
    region_values,
    with_entry_apart,
    with_operands,
    with_regions,
)
from autobatch.passes import arena_memory as lists
from autobatch.passes import code_point_functions
from autobatch.passes.arena_memory import (
    ArenaMemory,
    KnownElements,
    ListInMemory,
    at_once,
    is_cut,
    is_storable,
    is_update,
    made_type,
    stores_behind_branches,
)
from autobatch.passes.fallible import deciding, fallible_reads
from autobatch.passes.loops import as_loop
from autobatch.passes.simplify import call_graph, recursive_functions

# ---- arena lists
#
# Which lists need memory: those of which computed numbers say how long they are, or which they are.
#
#     %1 = pack_list()                              a list of structure: nothing decides it
#     %5 = while (%0, %1) test (%2, %3): lt(%2, 1.0)
#       do (%2, %3):                                %3: computed numbers end the loop that carries it
#         %4 = flatten(pack_list(%3, pack_list(%2)))     and %4 has as many elements as that
#     %6 = length(%5)                               a number that only the device knows
#
# Such a length decides further control, which decides further lists: the least fixpoint of both.


Device = Callable[[frozenset[Value]], Collection[Operand]]
"""The values that only the device knows, where the lengths given are such."""


def lists_of_numbers(
    module: Module, device: Device, alone: bool, handed: bool = False
) -> tuple[frozenset[Value], Collection[Operand]]:
    """The lists of which the device alone knows the length; and all that it alone knows then. `alone`: that is
    everything. Of functions that call themselves those that they pass on where such lists come in, or tables are;
    `handed`: and all of those of which numbers decide which calls there are, or what is read of them."""
    inside = [i for f in module.functions for i in walk(f.region)]
    lengths = frozenset[Value]()
    while True:
        numbers = device(lengths)
        whole = frozenset(_decided(module, numbers) if handed else ())
        read = _read_below(module, numbers) if handed and not alone else frozenset[Value]()
        lists = _ListsNeedingMemory(numbers, alone, module, whole, handed).of(module, read)
        behind = frozenset(
            i.results[0]
            for i in inside
            if isinstance(i, Apply) and i.op.name in ("length", "find") and i.operands[0] in lists
        )
        if behind == lengths:
            return lists, numbers
        lengths = behind


TABLES = ("find", "put")
"""The operations of dicts and sets, whose lists always have memory."""


def has_tables(module: Module) -> bool:
    """Are there dicts or sets of keys that a function makes?"""
    return any(isinstance(i, Apply) and i.op.name in TABLES for f in module.functions for i in walk(f.region))


def floats_decide(module: Module, device: Device) -> bool:
    """Do floats, or other numbers that no trace knows, decide any branch, loop or key?"""
    inside = [i for f in module.functions for i in walk(f.region)]
    values = (v for f in module.functions for v in region_values(f.region))
    unknown = device(frozenset(v for v in values if isinstance(v.type, Array) and is_float(v.type)))
    keys = (x for i in inside if isinstance(i, Apply) and i.op.name == "find" for x in i.operands)
    return any(x in unknown for x in keys) or any(x in unknown for i in inside for x in deciding(i))


def decided_by_device(instruction: Instruction, device: Collection[Operand]) -> bool:
    """Is a branch or loop that calls nothing data-dependent?"""
    if not any(x in device for x in deciding(instruction)):
        return False
    return not any(isinstance(i, Call) for i in walk(Region((), (instruction,), ())))


def reads_by_number(region: Region, device: Collection[Operand]) -> Iterator[Apply]:
    """The reads of lists where only the device knows the place, or in control of its own at a place that is chosen
    there; in loops of its own also those of elements that it has computed, which cannot be read in front."""
    for i in walk(region):
        decided = decided_by_device(i, device)
        inside = [j for r in regions(i) for j in walk(r)] if decided else [i]
        free = set(free_values(Region((), (i,), ()))) if decided else set()
        for j in inside:
            if isinstance(j, Apply) and j.op.name == "item":
                read, index = j.operands
                chosen = index not in free and isinstance(index, Value)
                computed = not isinstance(i, If) and read in device
                if index in device or (read in free and (chosen or computed)):
                    yield j


def is_inner(i: Apply) -> bool:
    """Is it a list of numbers of the examples that is read from a list of such?"""
    return i.op.name == "item" and isinstance(i.results[0].type, List) and is_storable(made_type(i.results[0]))


def is_made(x: Operand) -> bool:
    """Is it a list that the program makes?"""
    return isinstance(x.type, List) and x.type.store is None


def _decided(module: Module, device: Collection[Operand]) -> Iterator[str]:
    """The functions that call themselves under data-dependent control flow, and pass on numbers, arrays and lists of
    them."""
    graph = call_graph(module)
    for names in nx.strongly_connected_components(graph):
        functions = [f for f in module.functions if f.name in names]
        control = (i for f in functions for i in walk(f.region) if any(x in device for x in deciding(i)))
        inside = (j for i in control for j in walk(Region((), (i,), ())))
        handed = (x for f in functions for x in (*f.region.args, *f.region.results) if not isinstance(x.type, Array))
        if any(isinstance(j, Call) and j.callee in names for j in inside) and all(
            isinstance(x.type, List) and is_storable(made_type(x)) for x in handed
        ):
            yield from names


def _read_below(module: Module, device: Collection[Operand]) -> frozenset[Value]:
    """The lists that are handed to functions which read them where only the device knows the place."""
    _, *others = module.functions
    read = {i.operands[0] for f in others for i in reads_by_number(f.region, device)}
    found = {a for f in others for a in f.region.args if a in read and is_made(a) and is_storable(made_type(a))}
    size = -1
    while size < len(found):
        size = len(found)
        for f in others:
            for call in calls(f.region):
                given = zip(call.operands, module.function(call.callee).region.args, strict=True)
                found.update(x for x, a in given if a in found and isinstance(x, Value) and x in f.region.args)
    return frozenset(found)


class _ListsNeedingMemory:
    """`functions`: by name; `whole`: those that pass on no list without memory; `results`: the lists that each function
    gives back, by position; `handed`: as in `lists_of_numbers`."""

    def __init__(
        self, device: Collection[Operand], alone: bool, module: Module, whole: frozenset[str], handed: bool
    ) -> None:
        self.device, self.alone, self.whole, self.handed = device, alone, whole, handed
        self.found: set[Value] = set()
        self.functions = {f.name: f.region for f in module.functions}
        self.results: set[tuple[str, int]] = set()

    def of(self, module: Module, read: frozenset[Value]) -> frozenset[Value]:
        """`read`: lists that functions are handed, and have memory in any case."""
        entry, *others = module.functions
        self.found.update(read)
        if not self.alone:
            self.found.update(r for i in reads_by_number(entry.region, self.device) if is_inner(i) for r in i.results)
        for function in others:
            if function.name in self.whole:
                self.found.update(a for a in function.region.args if isinstance(a.type, List))
        size = -1
        while size < len(self.found) + len(self.results):
            size = len(self.found) + len(self.results)
            self.region(entry.region, self.alone)
            for other in others:
                if self.concerns(other):
                    self.region(other.region, self.alone or other.name in self.whole)
                    self.returned(other.name)
        return frozenset(self.found)

    def concerns(self, function: Function) -> bool:
        """Do lists that have memory come into a function, are its results such, or does it make some?"""
        if self.alone or function.name in self.whole or any(a in self.found for a in function.region.args):
            return True
        with_lists = {name for name, _ in self.results}
        if function.name in with_lists or any(call.callee in with_lists for call in calls(function.region)):
            return True
        inside = list(walk(function.region))
        if self.handed and any(decided_by_device(i, self.device) and any(map(is_made, i.results)) for i in inside):
            return True
        return any(isinstance(i, Apply) and i.op.name in (*TABLES, "spelt") for i in inside)

    def returned(self, name: str) -> None:
        for k, x in enumerate(self.functions[name].results):
            if x in self.found:
                self.results.add((name, k))
            elif (name, k) in self.results and isinstance(x, Value):
                self.add([x])

    def called(self, call: Call) -> None:
        self.flow(call.operands, self.functions[call.callee].args)
        for k, r in enumerate(call.results):
            if r in self.found:
                self.results.add((call.callee, k))
            elif (call.callee, k) in self.results:
                self.add([r])

    def add(self, xs: Sequence[Value]) -> None:
        self.found.update(x for x in xs if is_made(x))

    def flow(self, sources: Sequence[Operand], targets: Sequence[Value]) -> None:
        self.add([y for x, y in zip(sources, targets, strict=True) if x in self.found])

    def region(self, region: Region, inside: bool) -> None:
        """`inside`: is it data-dependent how often it runs?"""
        for instruction in region.body:
            self.instruction(instruction, inside)

    def instruction(self, i: Instruction, inside: bool) -> None:
        decided = inside or decided_by_device(i, self.device)
        if decided:
            self.add(i.results)
        match i:
            case Apply(op=op, operands=xs):
                ordered = op.name == "sort_order" and any(x in self.device for x in xs)
                if op.name in TABLES or op.name == "spelt":
                    self.add([x for x in (*xs, *i.results) if isinstance(x, Value)])
                if inside or ordered or any(x in self.found for x in xs):
                    self.add(i.results)
            case If(then=then, orelse=orelse):
                for arm in (then, orelse):
                    self.region(arm, decided)
                    self.flow(arm.results, i.results)
            case For(init=init, body=body):
                self.carried(init, body.results, (body.args[1:], i.results), decided)
                self.region(body, decided)
            case While(init=init, condition=test, body=body):
                self.carried(init, body.results, (body.args, test.args, i.results), decided)
                self.region(test, decided)
                self.region(body, decided)
            case Map(body=body, filtered=filtered):
                self.region(body, decided)
                self.flow(body.results[filtered:], i.results)
                long = any(x in self.device for x in deciding(i))  # also where it calls what may recurse
                if long or not self.found.isdisjoint(i.results):  # they are written by one loop
                    self.add(i.results)
            case Call():
                self.called(i)
            case _:
                assert_never(i)

    def carried(
        self, init: Sequence[Operand], again: Sequence[Operand], places: Sequence[Sequence[Value]], decided: bool
    ) -> None:
        for place in places:
            if decided:
                self.add(place)
            for sources in (init, again, places[-1]):
                self.flow(sources, place)


def lists_in_arenas(
    module: Module, schema: Schema, device: Device, capacity: int, alone: bool, checked: bool, handed: bool = False
) -> Module:
    """The module with arrays in place of the data-dependent lists; the same where there are none.
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
    """As `lists_in_arenas`; dicts and sets of an entry that calls itself stay, where a host knows lists."""
    if not any(_has_lists(f.region) for f in module.functions):
        return module
    if alone:
        module = with_entry_apart(module)
    entry, *others = module.functions
    if entry.name in recursive_functions(module):
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
    """The lists of structure of which lists that have memory are made in data-dependent loops."""
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
        """Does a call pass on lists that have memory, or get it where they come in?"""
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
        of = code_point_functions.function(i.op["function"], dict(i.op.params).get("room", 0), of_lists)
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
