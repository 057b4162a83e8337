"""Iterator invalidation: loops, comprehensions and calls that change what they run over. Python reads it step by step,
and sees the change; this front end reads it as a whole. So it is refused, but for changes that no later step reads.

    for x in chain(xs, ys): ys[1] = x        refused: ys is changed
    for x in (k * y for y in ys): k = x      refused: k is
    [f(x) for x in xs]                       refused where f appends to xs, as a variable of the function around it
    for k, x in enumerate(xs): xs[k] = 2 * x
    for x in xs: xs.append(2 * x)            a loop over indices (`flattening.py`)
"""

from __future__ import annotations

import ast
import builtins
import itertools
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from autobatch.errors import UnsupportedError
from autobatch.frontend.library.tables import is_dict
from autobatch.frontend.lowering.calls import lookup
from autobatch.frontend.lowering.state import Ended, LoweringState, variable
from autobatch.frontend.memory import heaps, list_heap
from autobatch.frontend.memory.heap import is_dict_value, is_list
from autobatch.frontend.syntax.flattening import Body, appended, in_front
from autobatch.frontend.syntax.iterator_variables import READERS, end_of, place_of
from autobatch.frontend.syntax.scopes import ORDERED, mutated_by, shown
from autobatch.frontend.syntax.sources import (
    FunctionSource,
    changed,
    is_user_function,
    nodes_in,
    stores,
)
from autobatch.frontend.types import values as v

# ---- iterators
#
# Where Python reads step by step what this front end reads as a whole: iterators in variables (and what changes
# inside of a loop: above). What would not be the same is refused, from the source alone.
#
#     g = (x * k for x in xs)         once, before k is another:    a sequence
#     sum(g) + sum(g)                 refused: the second sum is 0


ITERATORS = (map, filter, zip, enumerate, reversed, *(x for n, x in vars(itertools).items() if not n.startswith("_")))
"""What gives iterators: what is read of one is gone."""

NAMES = frozenset(getattr(x, "__name__", "") for x in ITERATORS) | {"from_iterable"}
VIEWS = ("keys", "values", "items")
Loop = ast.For | ast.While
Function = ast.FunctionDef | ast.Lambda


def changed_behind(function: Function, node: ast.stmt | ast.expr, names: Sequence[str]) -> bool:
    """Is a list changed behind a statement that some variable holds?"""
    return any(changed_list(x, None) in names and place_of(x) > place_of(node) for x in ast.walk(function))


def given_names(node: ast.AST | None) -> list[str]:
    """The variables that generators are given: `zip(g(xs), ys)` gives xs and ys."""
    match node:
        case ast.Name(id=name):
            return [name]
        case ast.Call(args=args, keywords=keywords):
            return [n for x in (*args, *(k.value for k in keywords)) for n in given_names(x)]
        case ast.Starred(value=value):
            return given_names(value)
        case _:
            return []


def refuse_moving_views(s: LoweringState, function: v.Abstract, args: Sequence[ast.expr]) -> None:
    """Refuse `f(d.items(), d)` where f changes what it is given: the view would have to show that."""
    views = [k for k, x in enumerate(args) if _shows(x)]
    if not views:
        return
    source = text_of(s, function)
    if source is None:
        return
    captured = set(source.free) if isinstance(function, v.LocalFunction) else set()
    given = {a.arg for a in ast.walk(source.node) if isinstance(a, ast.arg)} | captured
    if given.isdisjoint(changed(*source.body)):
        return
    for k in views:
        others = captured.union(*(_names(x) for n, x in enumerate(args) if n != k))
        if _names(args[k]) & others:
            s.refuse(f"{source.name} may change what a view or an iterator that it is given shows", "pass list(...)")


def text_of(s: LoweringState, function: v.Abstract) -> FunctionSource | None:
    """The text of a function of the user."""
    match function:
        case v.LocalFunction(source=source):
            return source
        case v.Static(value=types.FunctionType() as held) if is_user_function(held):
            return lookup(s, held)
        case _:
            return None


def _shows(node: ast.expr) -> bool:
    """Does an expression give a view or an iterator?"""
    match node:
        case ast.Call(func=ast.Attribute(attr=name), args=[]):
            return name in VIEWS
        case ast.Call(func=ast.Name(id=name)):
            return name in NAMES
    return False


def _names(node: ast.expr) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def makes_iterator(s: LoweringState, node: ast.expr) -> bool:
    """Does an expression make an iterator?"""
    match node:
        case ast.GeneratorExp():
            return True
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name) as function) if name in NAMES:
            if not _is_path(s, function):
                return False  # a method, of what an expression makes once
            found = s.evaluate(function)
            held = found.value if isinstance(found, v.Static) else None
            return name == "from_iterable" or any(held is x for x in ITERATORS)
        case ast.Call(func=ast.Name(id=name)):
            bound = s.env.get(name)
            source = text_of(s, bound.value if bound is not None else v.Static(s.frame.source.globals.get(name)))
            return source is not None and source.is_shown and _returns_iterator(source.node)
        case _:
            return False


def _is_path(s: LoweringState, node: ast.expr) -> bool:
    """Is it a name, or an attribute of a module or class, as `itertools.chain.from_iterable` is?"""
    if isinstance(node, ast.Name):
        return True
    while isinstance(node, ast.Attribute):
        node = node.value
    bound = s.env.get(node.id) if isinstance(node, ast.Name) else None
    return isinstance(node, ast.Name) and (bound is None or isinstance(bound.value, v.Static))


@lru_cache(maxsize=4096)
def _returns_iterator(function: Function) -> bool:
    """Does a function return a generator expression, or what a function of that kind gives, by its text?"""
    returned = [function.body] if isinstance(function, ast.Lambda) else []
    returned += [n.value for n in ast.walk(function) if isinstance(n, ast.Return) and n.value is not None]
    names = [x.func for x in returned if isinstance(x, ast.Call)]
    named = {getattr(f, "id", None) or getattr(f, "attr", None) for f in names}
    return any(isinstance(x, ast.GeneratorExp) for x in returned) or not named.isdisjoint(NAMES)


def is_reader(s: LoweringState, node: ast.Attribute) -> bool:
    """Is it a method that reads a list or dict, a value, as it is now? In memory it reads what is there."""
    held = s.env.get(node.value.id) if isinstance(node.value, ast.Name) else None
    return held is not None and node.attr in READERS and (is_list(held.value) or is_dict_value(held.value))


def is_view(node: ast.expr) -> bool:
    """Does an expression give a view of a dict?"""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in VIEWS


@lru_cache(maxsize=512)
def _parents(function: Function) -> dict[ast.AST, ast.AST]:
    return {child: node for node in ast.walk(function) for child in ast.iter_child_nodes(node)}


def misread(
    s: LoweringState, node: ast.stmt | ast.expr, name: str, steps: bool, also: Sequence[str] = ()
) -> str | None:
    """Why the reads of a variable are not those of a sequence. `steps`: it is an iterator. `also`: what it depends on
    but its text here does not name."""
    function = s.frame.source.node
    if steps and (why := _read_again(function, node, name)) is not None:
        return why
    free = {x.id for x in ast.walk(node) if isinstance(x, ast.Name)}.union(also) - {name}
    around = set(_turns(function, node))
    ends = [place_of(x) for x in _reads(function, name) if place_of(x) > place_of(node)]
    for read in _reads(function, name):  # what a loop changes behind a read, is read in its next turn
        ends += [end_of(t) for t in _turns(function, read) if isinstance(t, ast.For | ast.While) and t not in around]
    last = max(ends, default=place_of(node))
    for x in ast.walk(function):
        if free.isdisjoint((changed_name(x), *_changed_by_call(s, x))) or _is_inside(node, x, function):
            continue
        if end_of(node) < place_of(x) < last:
            return "read after what it depends on has changed"
    return None


def _changed_by_call(s: LoweringState, node: ast.AST) -> list[str]:
    """The variables whose values a function of the user may change: those that it is given, or takes from here."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return []
    bound = s.env.get(node.func.id)
    held = bound.value if bound is not None else v.Static(s.frame.source.globals.get(node.func.id))
    source = text_of(s, held)
    if source is None:
        return []
    written = set(changed(*source.body))
    parameters = [p.arg for p in (*source.node.args.posonlyargs, *source.node.args.args)]
    given = [*zip(parameters, node.args, strict=False), *((k.arg, k.value) for k in node.keywords)]
    lent = [x.id for parameter, x in given if isinstance(x, ast.Name) and parameter in written]
    return [*lent, *written.difference(source.locals, parameters)]


def is_consumed(s: LoweringState, source: FunctionSource, place: int | str, depth: int = 4) -> bool:
    """Is a parameter read once, by a loop or a function that runs over it? `place`: its name, or where it stands."""
    arguments = source.node.args
    names = [p.arg for p in (*arguments.posonlyargs, *arguments.args)]
    name = place if isinstance(place, str) else names[place] if place < len(names) else None
    reads = _reads(source.node, name) if name is not None else []
    if name is None or len(reads) != 1 or any(True for _ in _turns(source.node, reads[0])):
        return name is not None and not reads
    match _parents(source.node)[reads[0]]:
        case ast.For(iter=items) | ast.comprehension(iter=items):
            return items is reads[0]
        case ast.Starred() | ast.Compare() | ast.Assign(targets=[ast.Tuple() | ast.List()]):
            return True
        case ast.Call(func=ast.Name(id=reader), args=args) if reader in source.locals or not hasattr(builtins, reader):
            if reader in NAMES:
                return True
            inner = text_of(s, v.Static(source.globals.get(reader))) if reader not in source.locals else None
            if inner is None or reads[0] not in args or depth == 0:
                return False
            return is_consumed(s, inner, args.index(reads[0]), depth - 1)
        case ast.Call(func=ast.Name()):
            return True
        case ast.Call(func=ast.Attribute(attr=reader)):
            return reader in NAMES or reader in _READING
        case _:
            return False


_READING = frozenset({"extend", "extendleft", "join", "update"})
"""Methods that run over what they are given."""


def _read_again(function: Function, made: ast.AST, name: str) -> str | None:
    """Is a variable read more than once where it was `made` once?"""
    reads = _reads(function, name)
    if len(reads) > 1:
        return "that is read more than once, and the second time gives what is left"
    around = set(_turns(function, made))
    if any(not around.issuperset(_turns(function, x)) for x in reads):
        return "that is read in a loop or function, and the second time gives what is left"
    return None


def _reads(function: Function, name: str) -> list[ast.Name]:
    return [x for x in ast.walk(function) if isinstance(x, ast.Name) and x.id == name and isinstance(x.ctx, ast.Load)]


def _turns(function: Function, node: ast.AST) -> Iterator[ast.AST]:
    """The loops and functions that a node is done in more than once."""
    parents = _parents(function)
    while node is not function and node in parents:
        child, node = node, parents[node]
        if isinstance(node, ast.While) or (isinstance(node, ast.For) and child is not node.iter):
            yield node
        if isinstance(node, Function) and node is not function:
            yield node
        if isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
            first = node.generators[0]
            if child is not first:
                yield node
        if isinstance(node, ast.comprehension) and child is not node.iter:
            yield node


def changed_name(node: ast.AST) -> str | None:
    """The variable that a piece of source assigns or changes the value of."""
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            return name
        case ast.Call() if found := mutated_by(node):
            return found[0]
        case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store() | ast.Del()):
            return name
        case ast.Attribute(value=ast.Name(id=name), ctx=ast.Store()):
            return name
        case _:
            return None


def changed_list(node: ast.AST, own: str | None) -> str | None:
    """The variable whose list a piece of source changes, elsewhere than at the index `own`."""
    match node:
        case ast.Subscript(slice=ast.Name(id=index), ctx=ast.Store()) if index == own:
            return None
        case ast.Call() | ast.Subscript():
            return changed_name(node)
        case ast.AugAssign(target=ast.Name(id=name), value=ast.List()):
            return name
        case _:
            return None


def _is_inside(assign: ast.AST, node: ast.AST, function: Function) -> bool:
    """Is a node a part of an assignment, or of a comprehension, whose variables are its own?"""
    parents = _parents(function)
    while node in parents:
        if node is assign or isinstance(node, ast.comprehension | ast.Lambda):
            return True
        node = parents[node]
    return False


STEPS = "a loop runs that reads it step by step"
AT_ONCE = frozenset({"product", "combinations", "combinations_with_replacement", "permutations"})
"""Iterators that read what they are given before their first step."""


@dataclass(frozen=True)
class Read:
    """Variables that are read step by step: those whose lists are run over, and those that the expression of a step
    names."""

    lists: frozenset[str] = frozenset()
    named: frozenset[str] = frozenset()

    def __or__(self, other: Read) -> Read:
        return Read(self.lists | other.lists, self.named | other.named)


def changes_own_list(s: LoweringState, node: ast.For, name: str) -> bool:
    """Do the turns of a loop change the list of a variable, elsewhere than at the element of the turn?"""
    names, own = _with_aliases(s, {name}), _counter(node)
    parts = (x for inner in node.body for x in nodes_in(inner))
    return any(changed_list(x, own) in names and not _leaves(node, x) for x in parts)


def sees_changes(s: LoweringState, node: ast.For) -> bool:
    """Is what a loop runs over changed in its turns?"""
    return any(True for _ in _changes_read(s, node))


def refuse_changes(s: LoweringState, node: ast.For) -> None:
    """Refuse a loop over lists that are changed in its turns, but for the element of the turn: `xs[k] = 2 * x`."""
    for name, what, cure in _changes_read(s, node):
        _refuse(s, name, what, cure)


def _changes_read(s: LoweringState, node: ast.For) -> Iterator[tuple[str | None, str, str]]:
    """What is changed of what a loop runs over, while what is done, and what to do."""
    read = _read(s, node.iter)
    lists, named = _with_aliases(s, read.lists), _with_aliases(s, read.named)
    lists -= {n for n in lists if n in s.env and _is_dict(s.env[n].value)}  # those fail as Python's do
    own = _counter(node)
    for part in (x for inner in node.body for x in nodes_in(inner)):
        if (name := changed_list(part, own)) in lists and not _leaves(node, part):
            cure = f"loop over a copy, list({shown(name or '')}), or over indices with `while`"
            yield name, "a loop runs over it", cure
        if not isinstance(part, ast.Name) and (name := changed_name(part)) in named and not _leaves(node, part):
            yield name, STEPS, "make a list of what it runs over: list(...)"
    for name in read.named.intersection(stores(node.target, *node.body)):
        yield name, STEPS, "make a list of what it runs over: list(...)"


def refuse_other_items(s: LoweringState, node: ast.For) -> None:
    """Refuse a loop over the values of a dict that sets them, but for the one of the turn: `d[k] = 2 * x`. Those of a
    dict in memory are read where it is, turn by turn."""
    match node.iter:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="items" | "values" as kind), args=[]):
            names = {n for n in _with_aliases(s, {name}) if n in s.env and is_dict(s.env[n].value)}
        case _:
            return
    own = node.target.elts[0] if kind == "items" and isinstance(node.target, ast.Tuple) else None
    key = own.id if isinstance(own, ast.Name) and own.id not in stores(*node.body) else None
    for part in (x for inner in node.body for x in nodes_in(inner)):
        match part:
            case ast.Subscript(value=ast.Name(id=held), slice=index, ctx=ast.Store()) if held in names:
                if isinstance(index, ast.Name) and index.id == key:
                    continue
            case ast.Call(func=ast.Attribute(value=ast.Name(id=held), attr="update")) if held in names:
                pass
            case _:
                continue
        if not _leaves(node, part):
            words, cure = (
                f"{shown(held)} is changed while a loop runs over its {kind}()",
                f"loop over list({shown(held)}.{kind}())",
            )
            raise s.context.sites.refused(s.context.memory.sites, UnsupportedError(words, s.span, cure), dicts=True)


def changes_argument(s: LoweringState, node: ast.For) -> bool:
    """Does a loop over a generator change a list which the generator was given?"""
    given = _with_aliases(s, given_names(node.iter))
    parts = (x for inner in node.body for x in nodes_in(inner))
    return any(changed_list(part, None) in given and not _leaves(node, part) for part in parts)


def changed_by_calls(s: LoweringState, node: ast.For) -> str | None:
    """What a loop runs over that functions change which its turns call. What these change is known behind it."""
    read = _read(s, node.iter)
    for part in (x for inner in node.body for x in nodes_in(inner)):
        if (name := _changed_in_call(s, part, read)) is not None and not _leaves(node, part):
            return name
    return None


def refuse_calls(s: LoweringState, node: ast.For) -> None:
    """Refuse a loop whose turns call functions that change what it runs over."""
    if (name := changed_by_calls(s, node)) is not None:
        _refuse(s, name, "a loop runs over it, by a function that it calls", "loop over a copy: list(...)")


def refuse_calls_of_elements(s: LoweringState, generators: Sequence[ast.comprehension], *elements: ast.expr) -> None:
    """Refuse a comprehension whose elements call functions that change what it runs over."""
    read = Read()
    for generator in generators:
        read |= _read(s, generator.iter)
    parts = [*elements, *(x for g in generators for x in g.ifs)]
    for part in (x for inner in parts for x in nodes_in(inner)):
        if (name := _changed_in_call(s, part, read)) is not None:
            _refuse(s, name, "a comprehension runs over it", "run over a copy: list(...)")


def refuse_given(s: LoweringState, node: ast.Call, function: v.Abstract) -> None:
    """Refuse `max(xs, key=f)`, `map(f, xs)` where f changes xs."""
    if isinstance(function, v.LocalFunction) or _name_of(node.func) in ORDERED:
        return
    given = [*node.args, *(k.value for k in node.keywords)]
    functions = [x for x in given if isinstance(x, ast.Lambda) or _local(s, x) is not None]
    if not functions:
        return
    read = Read()
    for x in given:
        read |= _read(s, x)
    for part in (x for each in functions for x in (each, *ast.walk(each))):
        if (name := _changed_by(s, _local(s, part), read)) is not None:
            _refuse(s, name, "this call runs over it", "give it a copy: list(...)")


def _refuse(s: LoweringState, name: str | None, while_what: str, cure: str) -> None:
    s.refuse(f"{shown(name or '')} is changed while {while_what}", cure)


def _read(s: LoweringState, node: ast.expr) -> Read:
    """What is read of an expression step by step, when a loop runs over it."""
    match node:
        case ast.Name(id=name):
            return Read(frozenset((name,)))
        case ast.Starred(value=value) | ast.NamedExpr(value=value):
            return _read(s, value)
        case ast.IfExp(body=first, orelse=second):
            return _read(s, first) | _read(s, second)
        case ast.GeneratorExp(generators=[first, *_]):
            own = {n.id for g in node.generators for n in ast.walk(g.target) if isinstance(n, ast.Name)}
            parts = [x for x in ast.walk(node) if isinstance(x, ast.Name) and x is not first.iter]
            return _read(s, first.iter) | Read(named=_named(s, {x.id for x in parts} - own))
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr=attr), args=[]) if attr in VIEWS:
            return Read()  # dicts fail as Python's do, or `refuse_other_items`
        case ast.Call(func=function) if _name_of(function) in AT_ONCE:
            return Read()
        case ast.Call(args=args, keywords=keywords) if makes_iterator(s, node):
            found = Read()
            for x in (*args, *(k.value for k in keywords)):
                found |= _read_of_argument(s, x)
            return found
        case _:
            return Read()


def _read_of_argument(s: LoweringState, node: ast.expr) -> Read:
    """What an iterator reads of an argument: of a function what that names."""
    match node:
        case ast.Lambda(args=ast.arguments(args=own), body=body):
            names = {x.id for x in ast.walk(body) if isinstance(x, ast.Name)} - {a.arg for a in own}
            return Read(named=_named(s, names))
        case ast.Name(id=name) if (function := _local(s, node)) is not None:
            return Read(named=_named(s, {name}) | _named(s, {*function.source.free, *function.source.cells_read}))
        case _:
            return _read(s, node)


def _named(s: LoweringState, names: Iterable[str]) -> frozenset[str]:
    """Variables with those that the functions which they hold name."""
    found, todo = set[str](), list(names)
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            held = s.env[name].value if name in s.env else None
            if isinstance(held, v.LocalFunction):
                todo += [*held.source.free, *held.source.cells_read]
    return frozenset(found)


def _local(s: LoweringState, node: ast.AST) -> v.LocalFunction | None:
    """The function of a `def` inside a compiled one that a variable holds."""
    held = s.env[node.id].value if isinstance(node, ast.Name) and node.id in s.env else None
    return held if isinstance(held, v.LocalFunction) else None


def _changed_in_call(s: LoweringState, node: ast.AST, read: Read) -> str | None:
    """What is read step by step, and changed by a call: by the function, or by one that it is given."""
    if not isinstance(node, ast.Call):
        return None
    functions = (_local(s, x) for x in (node.func, *node.args, *(k.value for k in node.keywords)))
    return next((n for f in functions if (n := _changed_by(s, f, read)) is not None), None)


def _changed_by(s: LoweringState, function: v.LocalFunction | None, read: Read) -> str | None:
    """What is read step by step, and changed by a function. One that it assigns is another list from then on."""
    if function is None:
        return None
    written = {n for node, n in s.context.memory.written if node is function.source.node}
    for name in sorted(written.intersection(read.lists | read.named)):
        if name in read.named or name not in s.context.memory.assigned or _is_changed_in_place(s, name):
            return name
    return None


def _is_changed_in_place(s: LoweringState, name: str) -> bool:
    """Does any function that runs now, or one inside it, change the list of a variable in place?"""
    return any(changed_list(x, None) == name for source, _ in s.context.active for x in ast.walk(source.node))


def _with_aliases(s: LoweringState, names: Iterable[str]) -> set[str]:
    """Variables, and others that hold the same list or object."""
    found = set(names)
    held = [x for n in found if n in s.env and isinstance(x := s.env[n].value, v.Record | v.Listing)]
    return found.union(n for n, b in s.env.items() if any(b.value is x for x in held))


def _is_dict(value: v.Abstract) -> bool:
    return is_dict(value) or list_heap.is_dict_row(value)


def _name_of(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _counter(node: ast.For) -> str | None:
    """The variable that counts the turns."""
    match node:
        case ast.For(
            target=ast.Tuple(elts=[ast.Name(id=counter), _]),
            iter=ast.Call(func=ast.Name(id="enumerate"), args=[_], keywords=[]),
        ):
            assigned = [x for inner in node.body for x in nodes_in(inner) if changed_name(x) == counter]
            return None if assigned else counter
        case _:
            return None


def _leaves(loop: ast.For, changed: ast.AST) -> bool:
    """Does the loop end behind a change? `xs.remove(x); break` is what it seems to be."""
    for block in _blocks(loop.body):
        if isinstance(block[-1], ast.Break | ast.Return | ast.Raise) and any(
            x is changed for statement in block for x in ast.walk(statement)
        ):
            return True
    return False


def _blocks(body: list[ast.stmt]) -> Iterator[list[ast.stmt]]:
    """The blocks of a loop, without those of loops in it."""
    yield body
    for node in body:
        if isinstance(node, ast.If):
            yield from _blocks(node.body)
            yield from _blocks(node.orelse) if node.orelse else ()


# ---- changing
#
# Comprehensions that change variables from turn to turn are loops, in front of what they stand in.
#
# [heappop(h) for _ in range(n)]     ->     t = []
#                                           for k in range(n): t.append(heappop(h))


Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


@lru_cache(maxsize=4096)
def changes(node: Comprehension) -> bool:
    """Does it change variables that are not its own, by `xs.pop()` or `:=`?"""
    own = {n.id for g in node.generators for n in ast.walk(g.target) if isinstance(n, ast.Name)}
    parts = list(ast.walk(node))
    changed = {name for n in parts for name in mutated_by(n)}
    return not changed <= own or any(isinstance(n, ast.NamedExpr) for n in parts)


def in_turns(s: LoweringState, node: ast.ListComp | ast.SetComp | ast.DictComp, element: ast.expr) -> v.Abstract:
    """The list of the elements."""
    known = s.context.memory.rewritten
    if node not in known:
        known[node] = appended(ast.copy_location(ast.ListComp(element, node.generators), node))
    return _behind(s, known[node])


def reduced(s: LoweringState, node: ast.Call) -> v.Abstract | None:
    """A call of `sum`, `any`, `sorted` or another builtin that is given such a generator expression, and runs it to its
    end or to the element that decides; None for other calls."""
    match node:
        case ast.Call(func=ast.Name(id=name), args=[ast.GeneratorExp() as inner, *_]) if changes(inner):
            if variable(s, name) != v.Static(getattr(builtins, name, None)):
                return None
        case _:
            return None
    known = s.context.memory.rewritten
    if node not in known:
        known[node] = in_front(node)
    return None if known[node] is None else _behind(s, known[node])


def ended(s: LoweringState, node: ast.Call, evaluate: Callable[[], list[v.Abstract]]) -> list[v.Abstract] | v.Abstract:
    """The arguments of a call. Where that is `any` or `all` of a generator expression that changes objects in memory,
    its result: the element that decides is the last one that is looked at."""
    match node:
        case ast.Call(func=ast.Name(id="any" | "all" as name), args=[ast.GeneratorExp()]):
            if variable(s, name) != v.Static(getattr(builtins, name)):
                return evaluate()
        case _:
            return evaluate()
    before, take_back = {n: s.env[n].value for n in heaps.variables(s)}, s.mark()
    found = evaluate()
    if all(s.env[n].value is x for n, x in before.items()):
        return found
    take_back()
    known = s.context.memory.rewritten
    if node not in known:
        known[node] = in_front(node)
    if known[node] is None:
        s.refuse(f"{name}() of elements that change objects ends where one decides", "write a loop")
    return _behind(s, known[node])


def refuse(s: LoweringState, node: ast.GeneratorExp) -> None:
    """A generator expression that runs step by step, and changes what others read meanwhile."""
    if changes(node):
        s.refuse("a generator expression that is kept or handed on changes a variable", "write a loop, or [...]")


def _behind(s: LoweringState, written: tuple[Body, ast.expr]) -> v.Abstract:
    statements, read = written
    s.context.rules.execute(s, statements)
    if s.dead:
        raise Ended
    return s.evaluate(read)
