"""`def`, `lambda` and `class` inside a lowered function, and what decorators make of functions.

A decorator of the user may read what is not there yet: the function itself, above all.

    @twice                          def walk(*given):
    def walk(k):            ->          def `walk itself`(k): ... walk(k - 1) ...       as it was written
        ... walk(k - 1) ...             return `the decorator`(`walk itself`)(*given)

What it calls by its name is what the decorator makes of it, which is there when the decorator has returned. So that is
called anew in each call, which means the same, as it keeps nothing between them: else it is refused.

Under `functools.cache` and `lru_cache`, where it matters how often a function runs, it has a dict of its results:

    @functools.cache                 def go(k):
    def go(k):                           def `go itself`(k): ...            as it was written
        ...                  ->          key = (k,)
                                         if key in results: return results[key]
                                         value = `go itself`(k)
                                         results[key] = value
                                         return value

The dict is a cell (`cells.py`) that begins where the decorator stands; that of a function of a module begins with the
example. Anywhere else the decorator is left out: calls with the same arguments are equal rows, which are computed once.
How often a function runs matters where it changes something, or prints; where what it reads is changed between calls of
it; and where it recurses on the device, which knows no rows (`passes/stack.py`): then all is lowered again.
"""

from __future__ import annotations

import ast
import functools
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from autobatch.errors import UnsupportedError
from autobatch.frontend.library import tables
from autobatch.frontend.lowering.calls import activate, bind_arguments, defaults_of, lookup
from autobatch.frontend.lowering.state import Cached, LoweringState, MemoryChanged, enclosing_value, wrap
from autobatch.frontend.memory import heaps
from autobatch.frontend.memory.heap import NeedsMemory
from autobatch.frontend.syntax import cells
from autobatch.frontend.syntax.cells import note
from autobatch.frontend.syntax.scopes import cell, shown
from autobatch.frontend.syntax.sources import (
    FunctionNode,
    FunctionSource,
    changed,
    describe,
    is_user_function,
    parameters,
)
from autobatch.frontend.types import values as v

# ---- functools.cache


Node = TypeVar("Node", bound=ast.AST)
_LRU_CACHE = "lru_cache.<locals>.decorating_function"
_LOOPS = (ast.For, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(frozen=True)
class CacheBound:
    """How many results a cache keeps; None: all of them."""

    size: int | None


def bound_of(wrapper: v.Abstract) -> CacheBound | None:
    """What `functools.cache`, `lru_cache` or `lru_cache(...)` keep; None of anything else."""
    held = wrapper.value if isinstance(wrapper, v.Static) else None
    if any(held is x for x in (functools.cache, functools.lru_cache)):
        return CacheBound(None if held is functools.cache else 128)
    if not isinstance(held, types.FunctionType) or held.__qualname__ != _LRU_CACHE:
        return None
    names = dict(zip(held.__code__.co_freevars, held.__closure__ or (), strict=True))
    return CacheBound(names["maxsize"].cell_contents)


# ---- functions inside lowered ones


def cached(s: LoweringState, function: v.LocalFunction, bound: CacheBound) -> v.LocalFunction:
    """A local function under such a decorator."""
    source, caches = function.source, s.context.memory.caches
    if bound.size == 0:
        return function
    known = caches.known.setdefault(source.node, Cached(source.span, bound.size))
    if _reads_what_changes(s.frame.source.node, source):
        caches.run_with_effect([source.node])
    if known.place not in caches.remembered:
        return function
    name = _name(source)
    s.context.rules.execute(s, [_beginning(s, source, name)])
    if (s.frame.source.node, name) not in caches.owners:
        caches.owners.add((s.frame.source.node, name))
        raise MemoryChanged  # a loop around the decorator carries what is there before it
    return v.LocalFunction(_with_results(s, source, known, name), function.defaults, function.captured)


def _reads_what_changes(outer: FunctionNode, source: FunctionSource) -> bool:
    """May a variable of the function around it change between two calls of a function that reads it?"""
    function = source.node
    first = min(map(_place, _reads(outer, function, _called(outer, function))), default=None)
    if first is None:
        return False
    read = names_read(outer, source)
    return any(first < _end(n) and not read.isdisjoint(changed(n)) for n in _simple(outer, function))


def names_read(outer: FunctionNode, source: FunctionSource) -> set[str]:
    """The variables that a local function reads from the functions around it, or that others read which it calls."""
    inner = {name: describe(x, "", "", {}) for name, x in _inner(outer) if x is not source.node}
    read, todo = set[str](), [source]
    while todo:
        more = set(todo.pop().free) - read
        read |= more
        todo += [inner[n] for n in more if n in inner]
    return read


def _called(outer: FunctionNode, function: FunctionNode) -> str:
    """The name that a function has."""
    return next((name for name, x in _inner(outer) if x is function), "")


def _inner(outer: FunctionNode) -> Iterator[tuple[str, FunctionNode]]:
    """The functions that a function defines, by name."""
    for n in ast.walk(outer):
        match n:
            case ast.FunctionDef(name=name) if n is not outer:
                yield name, n
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield from ((name, x) for x in ast.walk(value) if isinstance(x, ast.Lambda))


def _reads(
    node: ast.AST, function: FunctionNode, name: str, loop: ast.stmt | ast.expr | None = None
) -> Iterator[ast.stmt | ast.expr]:
    """Where a function is read by its name; of what stands in loops, the outermost one that it is not defined in."""
    if node is function:
        return
    if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
        yield loop or node
    if isinstance(node, _LOOPS) and loop is None and not any(x is function for x in ast.walk(node)):
        loop = node
    for part in ast.iter_child_nodes(node):
        yield from _reads(part, function, name, loop)


def _simple(node: ast.AST, function: FunctionNode) -> Iterator[ast.stmt | ast.expr]:
    """The statements of a function that hold no others, and what its loops assign."""
    for part in ast.iter_child_nodes(node):
        if isinstance(part, ast.FunctionDef | ast.Lambda) or any(x is function for x in ast.walk(part)):
            if not isinstance(part, ast.FunctionDef | ast.Lambda):
                yield from _simple(part, function)
            continue
        if isinstance(part, ast.stmt) and not any(isinstance(x, ast.stmt) for x in ast.iter_child_nodes(part)):
            yield part
        else:
            if isinstance(part, ast.For):
                yield part.target
            yield from _simple(part, function)


def _place(node: ast.stmt | ast.expr) -> tuple[int, int]:
    return node.lineno, node.col_offset


def _end(node: ast.stmt | ast.expr) -> tuple[int, int]:
    return node.end_lineno or node.lineno, node.end_col_offset or node.col_offset


# ---- functions of modules


def call_cached(s: LoweringState, held: Any, args: Sequence[v.Abstract], kwargs: dict[str, v.Abstract]) -> v.Abstract:
    """A call of a function of a module under such a decorator."""
    function, caches = held.__wrapped__, s.context.memory.caches
    bound = held.cache_parameters()["maxsize"]
    if not is_user_function(function) or bound == 0 or not s.context.active:
        return s.call(wrap(s.context, function), args, kwargs)
    source = lookup(s, function)
    known = caches.known.setdefault(source.node, Cached(source.span, bound))
    if known.place not in caches.remembered:
        return s.call(wrap(s.context, function), args, kwargs)
    name = _name(source)
    if (None, name) not in caches.owners:
        caches.owners.add((None, name))
        _beginning(s, source, name)
        raise MemoryChanged
    made = _with_results(s, source, known, name)
    check_keys(s, v.LocalFunction(made, ()), [*args, *kwargs.values()])
    return activate(s, made, bind_arguments(s, made, args, kwargs, defaults_of(s, function)), {})


# ---- what is written


def _name(source: FunctionSource) -> str:
    """The variable that holds the dict."""
    return cell("its results", f"{source.name} {source.span.line}:{source.span.column}")


def _beginning(s: LoweringState, source: FunctionSource, name: str) -> ast.Assign:
    """The statement that makes the dict."""
    beginnings = s.context.memory.caches.beginnings
    if name not in beginnings:
        made = ast.Assign([ast.Name(name, ast.Store())], ast.Dict([], []))
        beginnings[name] = placed(made, source.node)
    return beginnings[name]


_ALL = """
if key in results:
    return results[key]
value = itself()
results[key] = value
return value
"""
_LATEST = """
if key in results:
    value = results.pop(key)
    results[key] = value
    return value
value = itself()
if key not in results:
    if len(results) >= bound:
        del results[next(iter(results))]
    results[key] = value
return value
"""
"""As `functools.lru_cache` does it: what was asked for last stands last."""


def _with_results(s: LoweringState, source: FunctionSource, known: Cached, results: str) -> FunctionSource:
    """The text of a function with a dict of its results, in the place of its own."""
    cache, bound = s.context.memory.sources, known.bound if known.place in s.context.memory.caches.exact else None
    key = ("with results", source, bound)
    if key not in cache:
        node = _with_cache(source, results, bound)
        cache[key] = describe(node, source.file, source.name, source.globals, source.function)
        s.context.memory.caches.written.add(node)
    made = cache[key]
    note(s, made)
    return made


def _with_cache(source: FunctionSource, results: str, bound: int | None) -> ast.FunctionDef:
    function = source.node
    name = function.name if isinstance(function, ast.FunctionDef) else "lambda"
    inner = written(f"{name} itself", _without_defaults(function.args), source.body, function)
    a = function.args
    named = [p.arg for p in (*a.posonlyargs, *a.args)]
    rest = [] if a.vararg is None else [a.vararg.arg]
    alone, others = [p.arg for p in a.kwonlyargs], [] if a.kwarg is None else [a.kwarg.arg]
    meanings = {"results": results, "key": "the key", "value": "the value", "itself": inner.name}
    body = ast.parse(_ALL if bound is None else _LATEST.replace("bound", str(bound))).body
    for n in (x for statement in body for x in ast.walk(statement)):
        if isinstance(n, ast.Name):
            n.id = meanings.get(n.id, n.id)
        elif isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == "itself":
            n.args = [*map(load, named), *(ast.Starred(load(x), ast.Load()) for x in rest)]
            n.keywords = [ast.keyword(x, load(x)) for x in alone] + [ast.keyword(None, load(x)) for x in others]
    told = [*map(load, (*named, *rest, *(x for x in alone if not is_hidden(x)))), *map(_items, others)]
    key = ast.Assign([ast.Name("the key", ast.Store())], ast.Tuple(told, ast.Load()))
    return written(name, a, [inner, *(placed(x, function) for x in (key, *body))], function)


def is_hidden(parameter: str) -> bool:
    """Is it a parameter of ours (`functions.py`)?"""
    return " " in parameter


def _items(name: str) -> ast.expr:
    """`tuple(named.items())`"""
    return ast.Call(load("tuple"), [ast.Call(ast.Attribute(load(name), "items", ast.Load()), [], [])], [])


def _without_defaults(a: ast.arguments) -> ast.arguments:
    return ast.arguments(a.posonlyargs, a.args, a.vararg, a.kwonlyargs, [None for _ in a.kwonlyargs], a.kwarg, [])


def written(name: str, args: ast.arguments, body: Sequence[ast.stmt], at: FunctionNode) -> ast.FunctionDef:
    made = ast.parse("def f(): pass").body[0]
    assert isinstance(made, ast.FunctionDef)
    made.name, made.args, made.body = name, args, [*body]
    return ast.copy_location(made, at)


def load(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def placed(made: Node, at: ast.AST) -> Node:
    for part in ast.walk(made):
        ast.copy_location(part, at)
    return made


def check_keys(s: LoweringState, function: v.LocalFunction, given: Sequence[v.Abstract]) -> None:
    """Refuse arguments that no dict can have as keys, of a function with a dict of its results."""
    if function.source.node not in s.context.memory.caches.written:
        return
    for value in given:
        try:
            tables.hashable(s, value)
        except NeedsMemory:
            raise
        except UnsupportedError as error:
            why = error.message.rpartition(": ")[2]
            words = (
                f"{shown(function.source.name)} is cached by functools, and an argument of it cannot be a key: {why}"
            )
            s.refuse(words, error.cure)


# ---- decorators of the user


_DECORATOR = "the decorator"


def decorated(s: LoweringState, function: v.Abstract, decorator: v.Abstract, node: ast.expr) -> v.Abstract:
    """What a decorator makes of a local function. `node`: the decorator as it is written."""
    name = ast.unparse(node)
    if not isinstance(function, v.LocalFunction) or not _reads_what_is_missing(s, function.source):
        made = s.call(decorator, [function])
        _refuse_kept(s, made, name)
        return made
    trial = s.fork()
    _refuse_kept(s, trial.call(decorator, [function]), name)
    if heaps.is_changed(s, trial):
        _refuse(s, f"the decorator {name} changes something", function.source)
    source, cache = function.source, s.context.memory.sources
    key = ("decorated", source, s.frame.source)
    names = [n for n, _ in function.defaults]
    own = f"{_DECORATOR} {sum(n.startswith(_DECORATOR) for n in names)}"
    if key not in cache:
        text = _with_decorator(source, own, names)
        cache[key] = describe(text, source.file, source.name, source.globals, source.function)
    note(s, cache[key])
    given = tuple((_default(n), x) for n, x in function.defaults)
    return v.LocalFunction(cache[key], ((own, decorator), *given), function.captured)


def _reads_what_is_missing(s: LoweringState, source: FunctionSource) -> bool:
    """Does a function read variables of the function around it that have no value yet, as the decorated one itself?"""
    assert isinstance(source.node, ast.FunctionDef)
    read = names_read(s.frame.source.node, source) & s.frame.source.locals
    return source.node.name in read or any(n not in s.env for n in read)


def _refuse_kept(s: LoweringState, made: v.Abstract, decorator: str) -> None:
    """Refuse a decorator that keeps something between the calls of what it makes."""
    if not isinstance(made, v.LocalFunction):
        return
    known = frozenset().union(*(x.locals for x, _ in s.context.active))
    kept = sorted(made.source.cells_read - known)
    owners = s.context.memory.caches.owners
    kept = [n for n in kept if not any(name == n for _, name in owners)]
    if kept:
        _refuse(s, f"the decorator {decorator} keeps {shown(kept[0])} between the calls of the function", made.source)


def _refuse(s: LoweringState, words: str, source: FunctionSource) -> None:
    s.refuse(words, "keep it in a variable of the function around; results of calls are kept by functools.cache")


def _default(name: str) -> str:
    return f"{name} by default"


def _with_decorator(source: FunctionSource, decorator: str, defaults: Sequence[str]) -> ast.FunctionDef:
    """`defaults`: the parameters that have some."""
    function = source.node
    assert isinstance(function, ast.FunctionDef)
    a, name = function.args, f"{function.name} itself"
    behind: list[ast.expr] = [load(_default(p.arg)) for p in (*a.posonlyargs, *a.args) if p.arg in defaults]
    alone: list[ast.expr | None] = [load(_default(p.arg)) if p.arg in defaults else None for p in a.kwonlyargs]
    own = ast.arguments(a.posonlyargs, a.args, a.vararg, a.kwonlyargs, alone, a.kwarg, behind)
    hidden = [ast.arg(n) for n in (decorator, *map(_default, defaults))]
    outer = ast.arguments([], [], ast.arg("given"), hidden, [None for _ in hidden], ast.arg("named"), [])
    made = ast.Call(load(decorator), [load(name)], [])
    call = ast.Call(made, [ast.Starred(load("given"), ast.Load())], [ast.keyword(None, load("named"))])
    for n in (x for part in (outer, own) for x in ast.walk(part)):
        if not hasattr(n, "lineno"):
            ast.copy_location(n, function)
    inner = written(name, own, function.body, function)
    return written(function.name, outer, [inner, placed(ast.Return(call), function)], function)


# ---- functools.wraps


def _itself(function: Any) -> Any:
    """Lowered like a function of the user."""
    return function


def with_names_copied(held: Any, args: Sequence[v.Abstract]) -> v.Abstract | None:
    """`functools.wraps(f)` and `update_wrapper(made, f)`, which copy names alone; None for any other call."""
    if not any(isinstance(x, v.LocalFunction) for x in args):
        return None
    if held is functools.wraps:
        return v.Static(_itself)
    copies = held is functools.update_wrapper
    copies = copies or (isinstance(held, functools.partial) and held.func is functools.update_wrapper)
    return args[0] if copies else None


# ---- definitions


def define(s: LoweringState, node: FunctionNode) -> v.Abstract:
    """A local function: its text and the values of its defaults. Decorators are called on it."""
    a = node.args
    named = [*a.posonlyargs, *a.args]
    defaults = [(p.arg, d) for p, d in zip(named[len(named) - len(a.defaults) :], a.defaults, strict=True)]
    defaults += [(p.arg, d) for p, d in zip(a.kwonlyargs, a.kw_defaults, strict=True) if d is not None]
    function: v.Abstract = v.LocalFunction(_source(s, node), tuple((n, s.evaluate(d)) for n, d in defaults))
    if isinstance(node, ast.FunctionDef):
        for decorator in reversed(node.decorator_list):
            wrapper = s.evaluate(decorator)
            bound = bound_of(wrapper)
            if bound is not None and isinstance(function, v.LocalFunction):
                function = cached(s, function, bound)
            else:
                function = decorated(s, function, wrapper, decorator)
    return function


def define_class(s: LoweringState, node: ast.ClassDef) -> v.Abstract:
    """A class: Python makes it, once for each set of the classes and functions of modules that it reads from the
    functions around it."""
    outer, read = s.frame.source, dict[str, Any]()
    for name in sorted({n.id for n in ast.walk(node) if isinstance(n, ast.Name)} - _own_names(node)):
        value = enclosing_value(s, name)
        if isinstance(value, v.Static) and callable(value.value):
            read[name] = value.value
        elif name in outer.locals:
            s.refuse(
                f"a class that is defined in a function reads the variable {shown(name)!r} of the function",
                "hand it to the methods that need it, or to __init__",
            )
    known, key = s.context.memory.rewritten, (node, *((name, id(value)) for name, value in read.items()))
    if key not in known:
        # a function of its own: methods read what the module has when they are called, and the rest from around them
        given = ast.arguments([], [ast.arg(name) for name in read], None, [], [], None, [])
        names = dict[str, Any]()
        made = ast.FunctionDef("make", given, [node, ast.Return(ast.Name(node.name, ast.Load()))], [])
        module = ast.fix_missing_locations(ast.Module([ast.copy_location(made, node)], []))
        try:
            exec(compile(module, outer.file, "exec"), outer.globals, names)
            known[key] = names["make"](**read)
        except Exception as error:
            s.refuse(f"Python cannot make this class outside of the function: {error}", "define it in the module")
    return v.Static(known[key])


def _own_names(node: ast.ClassDef) -> set[str]:
    """The name of a class, and the variables of its methods."""
    methods = [n for n in ast.walk(node) if isinstance(n, FunctionNode)]
    stored = {n.id for m in methods for n in ast.walk(m) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return stored.union({node.name}, *map(parameters, methods))


def _source(s: LoweringState, node: FunctionNode) -> FunctionSource:
    cache, outer = s.context.memory.sources, s.frame.source
    if (outer, node) not in cache:
        name = "lambda" if isinstance(node, ast.Lambda) else node.name
        cache[outer, node] = describe(node, outer.file, f"{outer.name}.{name}", outer.globals, outer.function)
    cells.note(s, cache[outer, node])
    return cache[outer, node]
