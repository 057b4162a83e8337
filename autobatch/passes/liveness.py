"""Registers of a program of blocks: which are read later, and which may be one.

Liveness says what a call must save, and what has to be kept at all. A value that is made and read in one block is no
register. (Aho, Lam, Sethi and Ullman: Compilers, section 9.2.5.)

    2: %t = sub(%n, 1); %n := %t; enter 0 then 3      live before: %n         %n is read behind the call: it is saved
    3 restores (%n): %a := %r; ...                    live before: %r         what was saved comes from the stack

Coalescing: registers that a move connects are one where their lives do not overlap, and the move is gone. Two values
interfere where one of them is set while the other one will still be read, unless it is set to just that one. Moves are
tried in the order of the program. (Chaitin, "Register allocation and spilling via graph coloring", 1982.)

    7: %420 := %402; jump 1          %402 is not read any more where %420 is: both are %402
    1: %371 := %358; ...             7: jump 1
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import assert_never

import networkx as nx

from autobatch.ir.core import (
    CONSTANT,
    FINITE_DERIVATIVE,
    SIDE_BY_SIDE,
    Apply,
    Array,
    Call,
    For,
    If,
    Instruction,
    List,
    Map,
    Module,
    Operand,
    Region,
    Type,
    Value,
    While,
    regions,
    stays_finite,
)
from autobatch.ir.leaf import NUMERIC, Block, BlockProgram, Branch, End, Enter, Fail, Jump, Move, Return
from autobatch.ir.ops import Op

# ---- liveness


Live = frozenset[Value]


def with_saved_registers(program: BlockProgram) -> BlockProgram:
    """The program whose calls save what is live behind them, and whose blocks behind calls restore that."""
    behind = {b.end.after for b in program.blocks if isinstance(b.end, Enter)}
    blocks = [replace(b, restores=None) for b in program.blocks]
    live = _live_before(program, blocks)
    saved = {k: tuple(sorted(_across(blocks, k, live), key=lambda v: v.id)) for k in behind}
    restored = [replace(b, restores=saved.get(k)) for k, b in enumerate(blocks)]
    return replace(
        program,
        blocks=tuple(
            replace(b, end=replace(b.end, saved=saved[b.end.after])) if isinstance(b.end, Enter) else b
            for b in restored
        ),
    )


def registers(program: BlockProgram) -> tuple[Value, ...]:
    """The values that are kept between blocks, in a fixed order; the parameters and the results are among them."""
    live = _live_before(program, program.blocks)
    found = frozenset((*program.parameters, *program.results)).union(*live)
    return tuple(sorted(found, key=lambda v: v.id))


def _live_before(program: BlockProgram, blocks: Sequence[Block]) -> list[Live]:
    """For each block the registers that it or a later one reads before they are set: the least solution."""
    ignored = frozenset(program.captured)
    reads = [read_by(b) - ignored for b in blocks]
    made = [_made(b) for b in blocks]
    live: list[Live] = [frozenset() for _ in blocks]
    changed = True
    while changed:
        changed = False
        for k in reversed(range(len(blocks))):
            end = blocks[k].end
            moved = frozenset(m.register for m in blocks[k].moves)
            across = _across(blocks, end.after, live) if isinstance(end, Enter) else frozenset()
            found = reads[k] | (((live_behind(end, live) - moved) | across) - made[k])
            if found != live[k]:
                live[k], changed = found, True
    return live


def _across(blocks: Sequence[Block], after: int, live: Sequence[Live]) -> Live:
    """What is read behind a call, but for what it returns."""
    return live[after] - {m.source for m in blocks[after].takes if isinstance(m.source, Value)}


def live_before(program: BlockProgram) -> list[Live]:
    """For each block the registers that it or a later one reads before they are set."""
    return _live_before(program, program.blocks)


def live_behind(end: End, live: Sequence[Live]) -> Live:
    """What the block that runs next reads; a call saves by itself what is read behind it."""
    match end:
        case Jump(target=target) | Enter(target=target):
            return live[target]
        case Branch(then=then, orelse=orelse):
            return live[then] | live[orelse]
        case Return(results=results):
            return frozenset(results)
        case Fail():
            return frozenset()
        case _:
            assert_never(end)


def set_by(block: Block) -> Live:
    """The values that a block sets."""
    return _made(block) | frozenset(m.register for m in block.moves)


def _made(block: Block) -> Live:
    """What a block sets before its moves."""
    made = [r for i in block.body for r in i.results]
    return frozenset((*(block.restores or ()), *(m.register for m in block.takes), *made))


def read_by(block: Block) -> Live:
    """What a block reads before it sets it. Moves come last: what is saved and tested is what was there before them."""
    known = set(block.restores or ())
    found: set[Value] = set()

    def read(operands: Iterable[Operand]) -> None:
        found.update(x for x in operands if isinstance(x, Value) and x not in known)

    read(m.source for m in block.takes)
    known.update(m.register for m in block.takes)
    for instruction in block.body:
        read(instruction.operands)
        known.update(instruction.results)
    read(m.source for m in block.moves)
    end = block.end
    if isinstance(end, Branch):
        read((end.condition,))
    if isinstance(end, Enter):
        read(end.saved)
    return frozenset(found)


# ---- unused
#
# Values that a row may compute and not use: they have no part in its derivative.
#
#     %1 = sqrt(%0)                %1 is used where the arm is taken
#     %2 = gt(%0, 0.0)
#     %3 = if %2 then: yield %1
#          else: yield %0
#
# The cotangent of such a value is zero in the rows that do not use it, and zero times the derivative of a square root
# at zero is not a number. Each back end takes the contribution of a row for zero where the cotangent of an operation
# found here is zero and its result is not finite. What every row uses keeps the derivative that JAX has for it:
# that of `jnp.where(x > 0, jnp.sqrt(x), 0.0)` is not a number at zero, for both arms of a `where` are computed. `max`
# and `min` of Python are branches (`Op.choice`), and who reads an element of a list in memory uses no other.


def unused_results(region: Region, given: Iterable[Value]) -> frozenset[Value]:
    """The results of operations that a row may not use, and whose derivatives may not be finite. `given`: the arguments
    that may not be."""
    found = _Used({})
    found.region(region, region.results)
    return _infinite([region], {}, set(given)) & found.unused


def unused_in_module(module: Module) -> frozenset[Value]:
    """The same of all functions: what each of them uses of its arguments, and what all calls of it use of its results,
    are the greatest sets that agree. Numbers among the data may not be finite."""
    known = {
        f.name: (frozenset(range(len(f.region.args))), frozenset(range(len(f.region.results))))
        for f in module.functions
    }
    before = None
    while known != before:
        before, found = known, _Used({name: arguments for name, (arguments, _) in known.items()})
        arguments = {}
        for f in module.functions:
            inside = found.region(f.region, [f.region.results[k] for k in known[f.name][1]])
            arguments[f.name] = frozenset(k for k, x in enumerate(f.region.args) if x in inside)
        known = {
            name: (arguments[name], frozenset(k for k in results if (name, k) not in found.dropped))
            for name, (_, results) in before.items()
        }
    functions = {f.name: f.region for f in module.functions}
    given = {x for x in (*module.shared, *module.functions[0].region.args) if is_number(x.type)}
    return _infinite(functions.values(), functions, given) & found.unused


def unused_in_blocks(program: BlockProgram) -> frozenset[Value]:
    """The same of the operations of a program of blocks: what is used on each way from a block is the greatest
    solution."""
    blocks = program.blocks
    values = {v for b in blocks for v in _values_of(b)}
    behind = [b.end.after for b in blocks if isinstance(b.end, Enter)]
    before: list[set[Value]] = [set(values) for _ in blocks]
    again = True
    while again:
        again, found = False, _Used({})
        for k in reversed(range(len(blocks))):
            used = _used_before(found, blocks[k], before, behind)
            again |= used != before[k]
            before[k] = used
    regions = [Region((), b.body, ()) for b in blocks]
    return _infinite(regions, {}, {v for v in values if is_number(v.type)}) & found.unused


def _values_of(block: Block) -> Iterator[Value]:
    xs = [x for m in (*block.takes, *block.moves) for x in (m.register, m.source)]
    xs += [x for i in block.body for x in (*i.operands, *i.results)]
    yield from (x for x in (*xs, *(block.restores or ())) if isinstance(x, Value))


def _used_before(found: _Used, block: Block, before: Sequence[set[Value]], behind: Sequence[int]) -> set[Value]:
    """What is used in every row that runs a block. `before`: the same of the blocks, as far as it is known; `behind`:
    the blocks behind calls, to which a function returns."""
    used, saved = set[Value](), set[Value]()
    match block.end:
        case Jump(target=target):
            used = before[target]
        case Branch(then=then, orelse=orelse):
            used = before[then] & before[orelse]
        case Enter(target=target, after=after):
            used, saved = before[target], before[after] & set(block.end.saved)
        case Return(results=results):
            used = {r for r in results if all(r in before[k] for k in behind)}
        case Fail():
            used = {v for each in before for v in each}
        case _:
            assert_never(block.end)
    used = found.region(Region((), block.body, ()), _sources(block.moves, used) | saved)
    return _sources(block.takes, used)


def _sources(moves: Iterable[Move], used: set[Value]) -> set[Value]:
    """What is used before registers are set."""
    of = {m.register: m.source for m in moves}
    return {x for v in used if isinstance(x := of.get(v, v), Value)}


def is_number(type: Type) -> bool:
    """One float, which may be infinite as numbers of Python often are? Arrays of data are taken for finite."""
    return _moves(type) and isinstance(type, Array) and type.is_scalar


class _Used:
    """A pass from the last instruction to the first. `unused`: floats that are not used in every row that has them;
    `dropped`: the results of functions that a call does not use. A list is used where all its elements are.
    `arguments`: what functions use of theirs."""

    def __init__(self, arguments: Mapping[str, Set[int]]) -> None:
        self.arguments = arguments
        self.unused = set[Value]()
        self.dropped = set[tuple[str, int]]()

    def region(self, region: Region, results: Iterable[Operand]) -> set[Value]:
        """What a region uses in every row that runs it, where `results` of it are used."""
        used = {x for x in results if isinstance(x, Value)}
        for i in reversed(region.body):
            self.unused.update(r for r in i.results if r not in used and _moves(r.type))
            used |= self.instruction(i, used)
        return used

    def instruction(self, i: Instruction, used: set[Value]) -> set[Value]:
        match i:
            case If():
                arms = [self.region(arm, _those(arm.results, i.results, used)) for arm in (i.then, i.orelse)]
                return arms[0] & arms[1]
            case For() | While():
                return self.loop(i, used)
            case Map():  # there may be no turn
                self.region(i.body, () if i.filtered else _those(i.body.results, i.results, used))
                return set()
            case Call():
                self.dropped.update((i.callee, k) for k, r in enumerate(i.results) if r not in used)
                return {x for k, x in enumerate(i.operands) if k in self.arguments[i.callee] and isinstance(x, Value)}
            case Apply(op=op) if op.name == "masked":
                inner = self.region(op["region"], _those(op["region"].results, i.results, used))
                return set(_those(i.operands, op["region"].args, inner))
            case Apply(op=op):
                made = [r for r in i.results if isinstance(r.type, List) or _moves(r.type)]
                whole = _uses_all(op) and not used.isdisjoint(made)
                return {x for x in i.operands if isinstance(x, Value)} if whole else set()
            case _:
                assert_never(i)

    def loop(self, loop: For | While, used: set[Value]) -> set[Value]:
        """Of what is carried, the last turn uses what is used behind the loop, and each before it what the next one
        does. There may be no turn, so what is read from outside may not be used."""
        args = loop.body.args[isinstance(loop, For) :]
        carried = {k for k, r in enumerate(loop.results) if r in used}
        before = -1
        while before != len(carried):
            before = len(carried)
            inside = self.region(loop.body, [loop.body.results[k] for k in carried])
            carried = {k for k in carried if args[k] in inside}
        return {x for k, x in enumerate(loop.init) if k in carried and isinstance(x, Value)}


def _uses_all(op: Op) -> bool:
    """Does an operation use all that it is given, so that it has a derivative by it?"""
    if op.name in CONSTANT:
        return False
    if op.name == "reduce":
        return op["kind"] not in ("max", "min") or ("ties", "even") in op.params
    if op.is_jax:
        return op.name not in SIDE_BY_SIDE and not op.choice
    return op.name in NUMERIC or op.name in ("flatten", "pack_list", "padded")


def _infinite(whole: Iterable[Region], functions: Mapping[str, Region], infinite: set[Value]) -> frozenset[Value]:
    """The results of operations whose derivatives may not be finite: for what they are, or for what they are given."""
    operations: list[Apply] = []
    flows: list[tuple[Operand, Value]] = []
    for i in (i for region in whole for i in _inside(region)):
        match i:
            case Apply(op=op) if op.name == "masked":
                operations.append(i)
                flows += zip(i.operands, op["region"].args, strict=True)
                flows += zip(op["region"].results, i.results, strict=True)
            case Apply():
                operations.append(i)
            case For() | While():
                args = i.body.args[isinstance(i, For) :]
                flows += zip((*i.init, *i.body.results, *args), (*args, *args, *i.results), strict=True)
            case Call(callee=callee):
                flows += zip(i.operands, functions[callee].args, strict=True)
                flows += zip(functions[callee].results, i.results, strict=True)
            case Map():
                flows += zip(i.body.results[i.filtered :], i.results, strict=True)
            case If():
                flows += [pair for arm in (i.then, i.orelse) for pair in zip(arm.results, i.results, strict=True)]
    before = -1
    while before != len(infinite):
        before = len(infinite)
        for i in operations:
            reads = i.op.name == "take_row" or not (i.op.is_jax or i.op.name in NUMERIC)  # of the data, or of a list
            if not infinite.isdisjoint(i.operands) or not (reads or stays_finite(i.op, i.operands)):
                infinite.update(i.results)
            elif reads:
                infinite.update(r for r in i.results if is_number(r.type))
        infinite.update(y for x, y in flows if x in infinite)
    return frozenset(
        r
        for i in operations
        if i.op.name not in FINITE_DERIVATIVE
        for r in i.results
        if not stays_finite(i.op, i.operands) or not infinite.isdisjoint(i.operands)
    )


def _inside(region: Region) -> Iterator[Instruction]:
    for i in region.body:
        yield i
        inner = (i.op["region"],) if isinstance(i, Apply) and i.op.name == "masked" else regions(i)
        for each in inner:
            yield from _inside(each)


def _those(xs: Iterable[Operand], results: Iterable[Value], used: set[Value]) -> list[Value]:
    return [x for x, r in zip(xs, results, strict=True) if r in used and isinstance(x, Value)]


def _moves(type: Type) -> bool:
    return isinstance(type, Array) and type.dtype.startswith(("float", "complex", "bfloat"))


# ---- coalescing


def coalesced(program: BlockProgram, of: Callable[[Value], bool]) -> BlockProgram:
    """The program with fewer registers, of those values that `of` says may be merged."""
    graph = _interference(program, of)
    merged: nx.utils.UnionFind[Value] = nx.utils.UnionFind(graph.nodes)
    for move in (m for b in program.blocks for m in (*b.takes, *b.moves)):
        a, b = move.register, move.source
        if not isinstance(b, Value) or a not in graph or b not in graph or a.type != b.type:
            continue
        a, b = merged[a], merged[b]
        if a != b and not graph.has_edge(a, b):
            merged.union(a, b)
            kept, gone = (a, b) if merged[a] == a else (b, a)
            graph.add_edges_from((kept, x) for x in list(graph.neighbors(gone)))
            graph.remove_node(gone)
    return _renamed(program, {x: merged[x] for x in merged if merged[x] != x})


def _interference(program: BlockProgram, of: Callable[[Value], bool]) -> nx.Graph[Value]:
    graph: nx.Graph[Value] = nx.Graph()
    never = {*program.captured}
    live = live_before(program)

    def candidates(values: Iterable[Operand]) -> set[Value]:
        found = {x for x in values if isinstance(x, Value) and x not in never and of(x)}
        graph.add_nodes_from(found)
        return found

    def defined(made: Iterable[Value], after: set[Value], sources: dict[Value, Operand]) -> None:
        own = candidates(made)
        for d in own:
            graph.add_edges_from((d, x) for x in after | own if x not in (d, sources.get(d)))

    def moved(moves: Sequence[Move], after: set[Value]) -> set[Value]:
        defined((m.register for m in moves), after, {m.register: m.source for m in moves})
        return (after - {m.register for m in moves}) | candidates(m.source for m in moves)

    inputs = candidates(program.parameters)
    defined(inputs, candidates(live[0]) if live else set(), {})
    for block in program.blocks:
        after = candidates(live_behind(block.end, live))
        after = moved(block.moves, after)
        if isinstance(block.end, Branch):
            after |= candidates((block.end.condition,))
        if isinstance(block.end, Enter):
            after |= candidates(block.end.saved)
        for i in reversed(block.body):
            defined(i.results, after, {})
            after = (after - set(i.results)) | candidates(i.operands)
        after = moved(block.takes, after)
        defined(block.restores or (), after, {})
    return graph


def _renamed(program: BlockProgram, names: dict[Value, Value]) -> BlockProgram:
    def value(x: Value) -> Value:
        return names.get(x, x)

    def operand(x: Operand) -> Operand:
        return value(x) if isinstance(x, Value) else x

    def moves(moves: Sequence[Move]) -> tuple[Move, ...]:
        found = (Move(value(m.register), operand(m.source)) for m in moves)
        return tuple(m for m in found if m.register != m.source)

    def block(b: Block) -> Block:
        end = b.end
        if isinstance(end, Branch):
            end = replace(end, condition=operand(end.condition))
        elif isinstance(end, Enter):
            end = replace(end, saved=tuple(map(value, end.saved)))
        elif isinstance(end, Return):
            end = replace(end, results=tuple(map(value, end.results)))
        return replace(
            b,
            restores=None if b.restores is None else tuple(map(value, b.restores)),
            takes=moves(b.takes),
            body=tuple(_applied(i, value, operand) for i in b.body),
            moves=moves(b.moves),
            end=end,
        )

    return replace(
        program,
        parameters=tuple(map(value, program.parameters)),
        results=tuple(map(value, program.results)),
        blocks=tuple(map(block, program.blocks)),
    )


def _applied(i: Apply, value: Callable[[Value], Value], operand: Callable[[Operand], Operand]) -> Apply:
    return replace(i, results=tuple(map(value, i.results)), operands=tuple(map(operand, i.operands)))
