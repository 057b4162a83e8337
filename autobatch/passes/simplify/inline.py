"""Inlining: a call of a function that does not reach itself is replaced by the function's body.

    %3 = call @cell(%1, %2)            ->      %7 = tanh(%1); %8 = add(%7, %2)

What remains are recursive functions, which become frames. The body is copied once for each call.
"""

from __future__ import annotations

from dataclasses import replace

import networkx as nx

from autobatch.ir.core import Apply, Call, For, Function, If, Instruction, Map, Module, Operand, Region, Value, While
from autobatch.ir.rewrite import Fresh, calls, copy_region, substitute


def recursive_functions(module: Module) -> frozenset[str]:
    """The names of the functions that can reach themselves through calls."""
    graph = call_graph(module)
    return frozenset(
        name
        for component in nx.strongly_connected_components(graph)
        for name in component
        if len(component) > 1 or graph.has_edge(name, name)
    )


def call_graph(module: Module) -> nx.DiGraph[str]:
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from(f.name for f in module.functions)
    graph.add_edges_from((f.name, c.callee) for f in module.functions for c in calls(f.region))
    return graph


def inline(module: Module) -> Module:
    """Dissolve every call of a non-recursive function; functions that nothing calls any more are dropped."""
    recursive = recursive_functions(module)
    fresh = Fresh(module)
    done: dict[str, Function] = {}
    for name in _callees_first(module):
        function = module.function(name)
        done[name] = replace(function, region=_region(function.region, {}, done, recursive, fresh))
    entry = module.functions[0].name
    graph = call_graph(replace(module, functions=tuple(done.values())))
    kept = nx.descendants(graph, entry) | {entry}
    return replace(module, functions=tuple(done[f.name] for f in module.functions if f.name in kept))


def _callees_first(module: Module) -> list[str]:
    condensed = nx.condensation(call_graph(module))
    order = reversed(list(nx.topological_sort(condensed)))
    return [name for c in order for name in sorted(condensed.nodes[c]["members"])]


def _region(
    region: Region, env: dict[Value, Operand], done: dict[str, Function], recursive: frozenset[str], fresh: Fresh
) -> Region:
    body: list[Instruction] = []
    for instruction in region.body:
        match instruction:
            case Call(results=results, callee=callee, operands=xs) if callee not in recursive:
                target = done[callee].region
                inner: dict[Value, Operand] = dict(zip(target.args, (substitute(x, env) for x in xs), strict=True))
                copy = copy_region(replace(target, args=()), inner, fresh)
                body.extend(copy.body)
                env.update(zip(results, copy.results, strict=True))
            case _:
                body.append(_nested(instruction, env, done, recursive, fresh))
    return Region(region.args, tuple(body), tuple(substitute(r, env) for r in region.results))


def _nested(
    instruction: Instruction,
    env: dict[Value, Operand],
    done: dict[str, Function],
    recursive: frozenset[str],
    fresh: Fresh,
) -> Instruction:
    def sub(xs: tuple[Operand, ...]) -> tuple[Operand, ...]:
        return tuple(substitute(x, env) for x in xs)

    def go(region: Region) -> Region:
        return _region(region, env, done, recursive, fresh)

    match instruction:
        case If(condition=c, then=then, orelse=orelse):
            return replace(instruction, condition=substitute(c, env), then=go(then), orelse=go(orelse))
        case For(count=n, init=init, body=inner):
            return replace(instruction, count=substitute(n, env), init=sub(init), body=go(inner))
        case While(init=init, condition=test, body=inner):
            return replace(instruction, init=sub(init), condition=go(test), body=go(inner))
        case Map(count=n, body=inner):
            return replace(instruction, count=substitute(n, env), body=go(inner))
        case Apply(results=results, op=op, operands=xs, span=span):
            return Apply(results, op, sub(xs), span)
        case _:
            return replace(instruction, operands=sub(instruction.operands))
