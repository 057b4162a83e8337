"""Simplification: the same program with fewer calls, operations and lists.

Inlining: a call of a function that does not reach itself is replaced by the function's body, which is copied once for
each call. What remains are recursive functions, which become frames.

    %3 = call @cell(%1, %2)             ->    %7 = tanh(%1); %8 = add(%7, %2)

Common subexpressions: an operation that a dominating region has done already is not done again. Everything but checks
is pure, loads too: nothing in a per-example function mutates its data. Two objects that are made alike are two, all the
same; so are two seeds of derivatives.

    %3 = load[left](%1)                       %3 = load[left](%1)
    %4 = is_none(%3)                    ->    %4 = is_none(%3)
    %7 = load[left](%1)                       ... %3 wherever %7 stood
    %8 = call @encode(%7)                     %8 = call @encode(%3)

What a loop carries and does not change is not carried, and what both arms of a branch give is that. So the integers of
memory (`frontend/memory/heap.py`) that a loop only passes on do not become numbers of the device with the others.

Fusion of lists (deforestation): lists that a function makes and reads again need no memory. What is only reduced is a
loop that carries what it reduces to. What loops over the same turns read again is computed where it is read, if it is a
few operations that no example fails in. Other lists stay, and so do those that are others but for one element: they lie
where those did.

    %5 = map %1 do (%2): ... yield %4         %t = for %1 (0.0) do (%2, %a): ...; yield add(%a, %4)
    %6 = reduce[kind='sum'](%5)         ->

    %5 = map %1 do (%2): ... yield %4         for %1 do (%8): ...; %9 = (the body of the map at turn %8)
    for %1 do (%8): %9 = item(%5, %8)   ->

The forward region: what only derivatives need is left out of the region that machine code is written of. Masked
operations are the instructions that they hold, for lanes have masks there anyhow. What an arm computes again because
its derivative may be infinite elsewhere (`passes/speculate.py`) is computed once, and what nobody reads not at
all.

    %4 = masked (%1) do (%5):                 %6 = exp(%1)
      %6 = exp(%5)                            %7 = add(%6, 1.0)
      %7 = add(%6, 1.0)                 ->    %9 = sqrt(%7)
      yield %7, %6                            yield %9
    %8 = exp(%1); %9 = sqrt(%4.0); ...
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import networkx as nx

from autobatch.data.columns import Schema
from autobatch.ir.core import (
    Apply,
    Array,
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
    Type,
    Value,
    While,
    operands,
    regions,
    walk,
)
from autobatch.ir.ops import OWN, about
from autobatch.ir.regions import (
    Fresh,
    calls,
    copy_instruction,
    copy_region,
    substitute,
    with_masked,
    with_operands,
    with_regions,
)
from autobatch.passes.fallible import fallible_reads
from autobatch.passes.loops import as_loop

# ---- inlining


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
        done[name] = replace(function, region=_inline_region(function.region, {}, done, recursive, fresh))
    entry = module.functions[0].name
    graph = call_graph(replace(module, functions=tuple(done.values())))
    kept = nx.descendants(graph, entry) | {entry}
    return replace(module, functions=tuple(done[f.name] for f in module.functions if f.name in kept))


def _callees_first(module: Module) -> list[str]:
    condensed = nx.condensation(call_graph(module))
    order = reversed(list(nx.topological_sort(condensed)))
    return [name for c in order for name in sorted(condensed.nodes[c]["members"])]


def _inline_region(
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
        return _inline_region(region, env, done, recursive, fresh)

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


# ---- constants
#
# Operations on integers and bools that the program holds: what they give is known while compiling.
#
#     %3 = eq(17, 0)                      (Python's `%` by 17 asks whether that is zero)
#     %4 = select_n(%3, 17, 1)     ->     17 wherever %4 stood
#     %5 = and(%2, true)                  %2 wherever %5 stood
#
# Floats are left alone: the device computes them, in its own precision.


COMPARED: Mapping[str, Callable[[int, int], bool]] = {
    "eq": operator.eq,
    "ge": operator.ge,
    "gt": operator.gt,
    "le": operator.le,
    "lt": operator.lt,
    "ne": operator.ne,
}

UNIT: Mapping[tuple[str, bool], bool | None] = {
    ("and", True): None,
    ("and", False): False,
    ("or", False): None,
    ("or", True): True,
    ("ne", False): None,
    ("eq", True): None,
}
"""Of a bool and a constant, in either order: what that is; None: the bool."""


def known_constant(apply: Apply) -> Operand | None:
    """What the result of an operation is, where that is a constant or one of its operands; None elsewhere."""
    if len(apply.results) != 1 or not apply.op.is_jax:
        return None
    name, xs, type = apply.op.name, apply.operands, apply.results[0].type
    if name == "select_n" and (chosen := _constant(xs[0])) is not None and 0 <= chosen < len(xs) - 1:
        found = xs[1 + chosen]
        return found if _same_numbers(found.type, type) else None
    if len(xs) == 2:
        return _of_two(name, xs[0], xs[1], type)
    if name == "sign" and (x := _constant(xs[0])) is not None and isinstance(type, Array) and type.is_integer:
        return Literal((x > 0) - (x < 0), type)
    return None


def _of_two(name: str, a: Operand, b: Operand, type: Type) -> Operand | None:
    x, y = _constant(a), _constant(b)
    if x is not None and y is not None and name in COMPARED:
        return Literal(COMPARED[name](x, y), type)
    for one, other in ((a, b), (b, a)):
        if isinstance(one, Literal) and isinstance(one.value, bool) and (name, one.value) in UNIT:
            found = UNIT[name, one.value]
            if found is None:
                return other if _same_numbers(other.type, type) else None
            return Literal(found, type)
    return None


def _constant(x: Operand) -> int | None:
    """The integer or bool of one number that the device holds exactly."""
    if not isinstance(x, Literal) or x.constant >= 0 or x.is_wide or not isinstance(x.value, bool | int):
        return None
    of_whole = isinstance(x.type, Array) and x.type.shape == () and not x.type.dtype.startswith("float")
    return int(x.value) if of_whole else None


def _same_numbers(a: Type, b: Type) -> bool:
    return isinstance(a, Array) and isinstance(b, Array) and (a.dtype, a.shape) == (b.dtype, b.shape)


_T = TypeVar("_T")


def eliminate_common(module: Module) -> Module:
    """Every function with repeated operations removed."""
    functions = tuple(replace(f, region=_region(f.region, {}, {})) for f in module.functions)
    return replace(module, functions=functions)


def _region(region: Region, known: dict[Hashable, tuple[Value, ...]], env: dict[Value, Operand]) -> Region:
    """`known` are the operations of this region and of those around it, by key."""
    body: list[Instruction] = []
    own: list[Hashable] = []
    for instruction in region.body:
        if isinstance(instruction, Apply):
            new = copy_instruction(instruction, env, None)
            assert isinstance(new, Apply)
            if (constant := known_constant(new)) is not None:
                env[instruction.results[0]] = constant
                continue
            if new.op.name == "check" and _is_true(new.operands[0]):
                continue
            key = key_of(new)
            if key is not None and key in known:
                env.update(zip(instruction.results, known[key], strict=True))
                continue
            if key is not None:
                known[key] = new.results
                own.append(key)
            body.append(new)
        else:
            inner = copy_instruction(with_regions(instruction, lambda r: _region(r, known, env)), env, None)
            body.append(_without_unchanged(inner, env))
    for key in own:
        del known[key]  # what stands in a region is known in no other one beside it
    return Region(region.args, tuple(body), tuple(substitute(r, env) for r in region.results))


def _without_unchanged(i: Instruction, env: dict[Value, Operand]) -> Instruction:
    """A branch or loop without the results that are what was there before it, which are noted in `env`."""
    match i:
        case If(then=then, orelse=orelse):
            same = [k for k, (x, y) in enumerate(zip(then.results, orelse.results, strict=True)) if _is_same(x, y)]
            env.update((i.results[k], then.results[k]) for k in same)
            arms = (replace(r, results=_without(r.results, same)) for r in (then, orelse))
            return _with(i, same, then=next(arms), orelse=next(arms)) if same else i
        case For(init=init, body=body):
            turn, *args = body.args
            same = [k for k, (x, y) in enumerate(zip(args, body.results, strict=True)) if x == y]
            if not same:
                return i
            inner = _renamed(body, {args[k]: init[k] for k in same})
            inner = replace(inner, args=(turn, *_without(args, same)), results=_without(inner.results, same))
            env.update((i.results[k], init[k]) for k in same)
            return _with(i, same, init=_without(init, same), body=inner)
        case While(init=init, condition=test, body=body):
            same = [k for k, (x, y) in enumerate(zip(body.args, body.results, strict=True)) if x == y]
            if not same:
                return i
            inner = _renamed(body, {body.args[k]: init[k] for k in same})
            tested = _renamed(test, {test.args[k]: init[k] for k in same})
            inner = replace(inner, args=_without(body.args, same), results=_without(inner.results, same))
            tested = replace(tested, args=_without(test.args, same))
            env.update((i.results[k], init[k]) for k in same)
            return _with(i, same, init=_without(init, same), condition=tested, body=inner)
        case _:
            return i


def _with(i: Instruction, same: Sequence[int], **changes: Any) -> Instruction:
    return replace(i, results=_without(i.results, same), **changes)


def _without(xs: Sequence[_T], places: Collection[int]) -> tuple[_T, ...]:
    return tuple(x for k, x in enumerate(xs) if k not in places)


def _renamed(region: Region, names: Mapping[Value, Operand]) -> Region:
    return with_operands(region, lambda x: names.get(x, x) if isinstance(x, Value) else x)


def _is_same(x: Operand, y: Operand) -> bool:
    """Are two operands, which are there in front of a branch, one? Of constants that is not asked: they say more where
    they are not."""
    return x == y and isinstance(x, Value)


def _is_true(x: Operand) -> bool:
    return isinstance(x, Literal) and x.constant < 0 and x.value is True


def key_of(instruction: Apply) -> Hashable | None:
    """What makes two operations one, or None for those that must stay apart."""
    op = instruction.op
    if not op.is_jax and (about(op).effect or op.name in ("undefined", "make", "seed")):
        return None
    key = (
        op,
        instruction.operands,
        tuple(r.type for r in instruction.results),
    )
    try:
        hash(key)
    except TypeError:
        return None
    return key


# ---- fusion of lists


SMALL = 16
"""Operations of a turn up to which it is computed again wherever it is read."""


def without_made_lists(module: Module, schema: Schema) -> Module:
    """The module with loops in place of comprehensions, as far as that can be; the same where there are none."""
    if not any(isinstance(i, Map) for f in module.functions for i in walk(f.region)):
        return module
    made = _MadeLists(module, schema)
    return replace(module, functions=tuple(replace(f, region=made.region(f.region)) for f in module.functions))


class _MadeLists:
    def __init__(self, module: Module, schema: Schema) -> None:
        self.fresh = Fresh(module)
        self.fallible = fallible_reads(module, schema)
        self.turns = {
            v for f in module.functions for i in walk(f.region) if isinstance(i, For | Map) for v in i.body.args[:1]
        }

    def region(self, region: Region) -> Region:
        body = tuple(with_regions(i, self.region) for i in region.body)
        done: list[Instruction] = []
        rest = replace(region, body=body)
        while rest.body:
            first, *others = rest.body
            rest = replace(rest, body=tuple(others))
            if not isinstance(first, Map):
                done.append(first)
                continue
            found = as_loop(first, rest.body, rest.results, self.fresh)
            if found is not None:
                kept = [i for k, i in enumerate(rest.body) if k not in found.gone]
                done += [*found.before, found.loop]
                rest = replace(rest, body=(*found.behind, *kept))
            elif self.is_repeatable(first) and not _escapes(first.results, rest, self.turns):
                rest = self.repeated(first, rest)
            else:
                done.append(first)
        return replace(region, body=tuple(done), results=rest.results)

    def is_repeatable(self, of: Map) -> bool:
        """Is a turn a few operations that no example fails in, and no store?"""
        inside = list(walk(of.body))
        few = not of.filtered and len(inside) <= SMALL and all(map(self.is_plain, inside))
        return few and Update.of(of) is None

    def is_plain(self, i: Instruction) -> bool:
        if isinstance(i, Call | For | While | Map) or not self.fallible.isdisjoint(i.results):
            return False
        if isinstance(i, Apply):
            effect = not i.op.is_jax and i.op.name in OWN and OWN[i.op.name].effect
            return not effect
        return True

    def repeated(self, of: Map, rest: Region) -> Region:
        """What is behind a comprehension, with its turns where they are read."""

        def inside(region: Region) -> Region:
            made: list[Instruction] = []
            names: dict[Value, Operand] = {}
            for i in region.body:
                read = i.operands[0] if isinstance(i, Apply) and i.operands else None
                if not isinstance(i, Apply) or read not in of.results:
                    made.append(with_regions(i, inside))
                elif i.op.name == "length":
                    names[i.results[0]] = of.count
                elif i.op.name == "item":
                    turn = copy_region(replace(of.body, args=()), {of.body.args[0]: i.operands[1]}, self.fresh)
                    made += turn.body
                    names[i.results[0]] = turn.results[of.results.index(read)]
                else:
                    made += self.reduced(of, i)
            found = replace(region, body=tuple(made))
            return with_operands(found, lambda x: substitute(x, names)) if names else found

        return inside(rest)

    def reduced(self, of: Map, reduction: Apply) -> Sequence[Instruction]:
        """A reduction of the list, with a loop of its own."""
        lists = self.fresh.like(of.results)
        again = replace(of, results=lists, body=copy_region(of.body, {}, self.fresh))
        read = lists[of.results.index(reduction.operands[0])]
        alone = replace(reduction, operands=(read, *reduction.operands[1:]))
        found = as_loop(again, (alone,), (), self.fresh)
        assert found is not None
        return (*found.before, found.loop, *found.behind)


def _escapes(lists: Sequence[Value], rest: Region, turns: Collection[Value]) -> bool:
    """Are the lists read in another way than element by element in loops, by their length, or by a reduction?"""
    if any(x in lists for x in rest.results):
        return True
    for i in walk(rest):
        inner = [x for r in regions(i) for x in r.results]
        if any(x in lists for x in inner):
            return True
        if not any(x in lists for x in operands(i)):
            continue
        if not isinstance(i, Apply):
            return True
        plain = i.op.name in ("length", "reduce") or (i.op.name == "item" and i.operands[1] in turns)
        if not plain:
            return True
    return False


def is_item(i: Instruction) -> bool:
    return isinstance(i, Apply) and i.op.name == "item" and not i.op.is_jax


def reads_at(i: Instruction, turn: Value) -> bool:
    """Is this the element of a list at the turn?"""
    return is_item(i) and operands(i)[1] == turn


@dataclass(frozen=True)
class Update:
    """Lists of which the element at a place gets a value each."""

    place: Operand
    lists: tuple[Operand, ...]
    values: tuple[Operand, ...]

    @staticmethod
    def of(made: Map) -> Update | None:
        turn, inner = made.body.args[0], walk(made.body)
        reads = {i.results[0]: i.operands[0] for i in inner if isinstance(i, Apply) and reads_at(i, turn)}
        tests = [i for i in made.body.body if isinstance(i, Apply) and i.op.name == "eq" and i.operands[0] == turn]
        choices = [i for i in made.body.body if isinstance(i, If)]
        if made.filtered or len(tests) != 1 or len(choices) != 1 or choices[0].then.body:
            return None
        (test,), (choice,) = tests, choices
        inside = sum(1 for _ in walk(made.body))
        if choice.condition != test.results[0] or inside != len(reads) + 2 or made.body.results != choice.results:
            return None
        others, place = choice.orelse.results, test.operands[1]
        if not all(x in reads for x in others) or any(x in reads for x in (place, *choice.then.results)):
            return None
        return Update(place, tuple(reads[x] for x in others), choice.then.results)  # type: ignore[index]


# ---- the forward region


WITH_REGIONS = ("masked", "blocks", "gradient_of")
"""Operations whose parameters are programs: they are not compared."""


def forward(region: Region) -> Region:
    """The region without masked operations, in which nothing is computed twice or for nobody."""
    return _read(_Forward(region).region(region))


class _Forward:
    def __init__(self, whole: Region) -> None:
        self.whole = whole
        self.env: dict[Value, Operand] = {}
        self.known: dict[Hashable, tuple[Operand, ...]] = {}
        self.dissolved: set[Value] = set()
        self.fresh: Fresh | None = None

    def region(self, region: Region) -> Region:
        body: list[Instruction] = []
        own: list[Hashable] = []
        self.block(region.body, body, own)
        results = self.all_of(region.results)
        for key in own:
            del self.known[key]  # what stands in a region is known in no other one beside it
        return Region(region.args, tuple(body), results)

    def all_of(self, xs: Sequence[Operand]) -> tuple[Operand, ...]:
        env = self.env
        return tuple([env.get(x, x) if isinstance(x, Value) else x for x in xs])

    def block(self, instructions: Sequence[Instruction], body: list[Instruction], own: list[Hashable]) -> None:
        for i in instructions:
            if not isinstance(i, Apply):
                body.append(self.control(i))
            elif i.op.name == "masked" and not i.op.is_jax:
                held = self.held(i)
                self.block(held.body, body, own)
                self.env.update(zip(i.results, self.all_of(held.results), strict=True))
            else:
                self.apply(Apply(i.results, i.op, self.all_of(i.operands), i.span), body, own)

    def held(self, masked: Apply) -> Region:
        """What a masked operation holds, its arguments what it is given. Its values are its own, unless the operation
        stands in two places."""
        region: Region = masked.op["region"]
        given = dict(zip(region.args, self.all_of(masked.operands), strict=True))
        values = {r for i in region.body for r in i.results}
        if self.dissolved.isdisjoint(values):
            self.dissolved |= values
            self.env.update(given)
            return region
        self.fresh = self.fresh or Fresh.behind(with_masked(self.whole))
        return copy_region(replace(region, args=()), given, self.fresh)

    def apply(self, i: Apply, body: list[Instruction], own: list[Hashable]) -> None:
        if (constant := known_constant(i)) is not None:
            self.env[i.results[0]] = constant
            return
        key = None if i.op.name in WITH_REGIONS else key_of(i)
        if key is not None and key in self.known:
            self.env.update(zip(i.results, self.known[key], strict=True))
            return
        if key is not None:
            self.known[key] = i.results
            own.append(key)
        body.append(i)

    def control(self, i: Instruction) -> Instruction:
        match with_regions(i, self.region):
            case If(condition=x) as branch:
                return replace(branch, condition=substitute(x, self.env))
            case For(count=x, init=xs) as loop:
                return replace(loop, count=substitute(x, self.env), init=self.all_of(xs))
            case While(init=xs) as loop:
                return replace(loop, init=self.all_of(xs))
            case other:
                return other


def _read(region: Region) -> Region:
    """The region without what nobody reads. (An example fails by a status, which is read.)"""
    live: set[Value] = set()
    return _with_read(region, region.results, live)


def _with_read(region: Region, results: Sequence[Operand], live: set[Value]) -> Region:
    """`live`: what is read behind an instruction, or by one; it gets what this region reads."""
    _add(live, results)
    body: list[Instruction] = []
    for i in reversed(region.body):
        if isinstance(i, Apply):
            if not live.isdisjoint(i.results) or (not i.op.is_jax and i.op.name in OWN and OWN[i.op.name].effect):
                _add(live, i.operands)
                body.append(i)
        elif not live.isdisjoint(i.results):
            i = _branch(i, live) if isinstance(i, If) else with_regions(i, lambda r: _with_read(r, r.results, live))
            _add(live, operands(i))
            body.append(i)
    return Region(region.args, tuple(reversed(body)), tuple(results))


def _branch(branch: If, live: set[Value]) -> If:
    wanted = [r in live for r in branch.results]

    def chosen(xs: Sequence[Operand]) -> list[Operand]:
        return [x for x, is_wanted in zip(xs, wanted, strict=True) if is_wanted]

    then, orelse = (_with_read(arm, chosen(arm.results), live) for arm in (branch.then, branch.orelse))
    results = tuple(r for r in branch.results if r in live)
    return If(results, branch.condition, then, orelse, branch.span)


def _add(live: set[Value], xs: Iterable[Operand]) -> None:
    live.update([x for x in xs if isinstance(x, Value)])
