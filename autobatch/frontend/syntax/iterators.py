"""Where Python reads step by step what this front end reads as a whole: iterators in variables (and what changes
beneath a loop: `beneath.py`). What would not be the same is refused, from the source alone.

    g = (x * k for x in xs)         once, before k is another:    a sequence
    sum(g) + sum(g)                 refused: the second sum is 0
"""

from __future__ import annotations

import ast
import itertools
import types
from collections.abc import Iterator, Sequence
from functools import lru_cache

from autobatch.frontend.lowering.calls import lookup
from autobatch.frontend.lowering.state import LoweringState
from autobatch.frontend.memory.list_sites import is_dict_value, is_list
from autobatch.frontend.syntax.bound_methods import READERS
from autobatch.frontend.syntax.sources import FunctionSource, changed, is_user_function, mutated_by
from autobatch.frontend.syntax.syntax_trees import place_of
from autobatch.frontend.types import values as v

ITERATORS = (map, filter, zip, enumerate, reversed, *(x for n, x in vars(itertools).items() if not n.startswith("_")))
"""What gives iterators: what is read of one is gone."""

NAMES = frozenset(getattr(x, "__name__", "") for x in ITERATORS) | {"from_iterable"}
VIEWS = ("keys", "values", "items")
Loop = ast.For | ast.While
Function = ast.FunctionDef | ast.Lambda


def refuse_late_reads(s: LoweringState, node: ast.Assign) -> None:
    """Refuse `g = (x for x in xs)` where what is read of g later is not the whole sequence as it is now."""
    match node:
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Attribute() as value) if _is_reader(s, value):
            why = _misread(s, node, name, False)
            if why is not None:
                s.refuse(f"{name} is a method of a list or dict, {why}", f"call it as a method: {ast.unparse(value)}()")
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if (steps := is_iterator(s, value)) or is_view(value):
            why = _misread(s, node, name, steps)
            if why is not None:
                s.refuse(f"{name} is an iterator, or a view of a dict, {why}", f"make a list of it: {name} = list(...)")


def refuse_kept(s: LoweringState, node: ast.Assign | ast.AnnAssign | ast.NamedExpr, value: v.Abstract) -> None:
    """Refuse `g = generator(xs)` where g is not read once, and as what it would be now."""
    if not isinstance(value, v.Generator):
        return
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    if not isinstance(targets[0], ast.Name) or len(targets) > 1 or isinstance(node, ast.NamedExpr):
        s.refuse("a generator is kept here", "give it a name of its own, or make a list of it: list(...)")
    name = targets[0].id
    function = s.frame.source.node
    why = _misread(s, node, name, True, value.source.free)
    if why is None and _is_changed_behind(function, node, {*given_names(node.value), *value.source.free}):
        why = "that runs while what it was given is changed"
    if why is not None:
        s.refuse(f"{name} is a generator {why}", f"make a list of it: {name} = list(...)")


def _is_changed_behind(function: Function, node: ast.stmt | ast.expr, names: set[str]) -> bool:
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


def refuse_second_reads(s: LoweringState, function: v.Abstract, args: Sequence[ast.expr]) -> None:
    """Refuse an iterator that a function of the user is called with, and reads more than once."""
    if not isinstance(function, v.LocalFunction) or any(isinstance(a, ast.Starred) for a in args):
        return
    node = function.source.node
    parameters = [p.arg for p in (*node.args.posonlyargs, *node.args.args)]
    for name, arg in zip(parameters, args, strict=False):
        if is_iterator(s, arg) and (why := _read_again(node, node, name)) is not None:
            s.refuse(f"{name} of {function.source.name} is an iterator {why}", "pass a list: list(...)")


def refuse_moving_views(s: LoweringState, function: v.Abstract, args: Sequence[ast.expr]) -> None:
    """Refuse `f(d.items(), d)` where f changes what it is given: the view would have to show that."""
    views = [k for k, x in enumerate(args) if _shows(x)]
    if not views:
        return
    source = _source_of(s, function)
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


def _source_of(s: LoweringState, function: v.Abstract) -> FunctionSource | None:
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


def is_iterator(s: LoweringState, node: ast.expr) -> bool:
    """Does an expression make an iterator?"""
    match node:
        case ast.GeneratorExp():
            return True
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name) as function) if name in NAMES:
            found = s.evaluate(function)
            held = found.value if isinstance(found, v.Static) else None
            return name == "from_iterable" or any(held is x for x in ITERATORS)
        case _:
            return False


def _is_reader(s: LoweringState, node: ast.Attribute) -> bool:
    """Is it a method that reads a list or dict, a value, as it is now? In memory it reads what is there."""
    held = s.env.get(node.value.id) if isinstance(node.value, ast.Name) else None
    return held is not None and node.attr in READERS and (is_list(held.value) or is_dict_value(held.value))


def is_view(node: ast.expr) -> bool:
    """Does an expression give a view of a dict?"""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in VIEWS


@lru_cache(maxsize=512)
def _parents(function: Function) -> dict[ast.AST, ast.AST]:
    return {child: node for node in ast.walk(function) for child in ast.iter_child_nodes(node)}


def _misread(
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
        ends += [_end(t) for t in _turns(function, read) if isinstance(t, ast.For | ast.While) and t not in around]
    last = max(ends, default=place_of(node))
    for x in ast.walk(function):
        if free.isdisjoint((changed_name(x), *_changed_by_call(s, x))) or _is_inside(node, x, function):
            continue
        if _end(node) < place_of(x) < last:
            return "read after what it depends on has changed"
    return None


def _changed_by_call(s: LoweringState, node: ast.AST) -> list[str]:
    """The variables whose values a function of the user may change: those that it is given, or takes from here."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return []
    bound = s.env.get(node.func.id)
    held = bound.value if bound is not None else v.Static(s.frame.source.globals.get(node.func.id))
    source = _source_of(s, held)
    if source is None:
        return []
    written = set(changed(*source.body))
    parameters = [p.arg for p in (*source.node.args.posonlyargs, *source.node.args.args)]
    given = [*zip(parameters, node.args, strict=False), *((k.arg, k.value) for k in node.keywords)]
    lent = [x.id for parameter, x in given if isinstance(x, ast.Name) and parameter in written]
    return [*lent, *written.difference(source.locals, parameters)]


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


def _end(node: ast.stmt | ast.expr) -> tuple[int, int]:
    return node.end_lineno or 0, node.end_col_offset or 0


def _is_inside(assign: ast.AST, node: ast.AST, function: Function) -> bool:
    """Is a node a part of an assignment, or of a comprehension, whose variables are its own?"""
    parents = _parents(function)
    while node in parents:
        if node is assign or isinstance(node, ast.comprehension | ast.Lambda):
            return True
        node = parents[node]
    return False
