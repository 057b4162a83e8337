"""Registers of blocks that may be one: a move between them is then no move.

    7: %420 := %402; jump 1          %402 is not read any more where %420 is: both are %402
    1: %371 := %358; ...             7: jump 1

Two values interfere where one of them is set while the other one will still be read, unless it is set to just that one.
Moves are tried in the order of the program; values that do not interfere become one. (Chaitin, "Register allocation and
spilling via graph coloring", 1982.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import networkx as nx

from autobatch.ir.core import Apply, Operand, Value
from autobatch.ir.leaf import Block, BlockProgram, Branch, Enter, Move, Return
from autobatch.passes.analysis.liveness import live_before, live_behind


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
