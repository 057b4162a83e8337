"""Methods of a list, dict or set that are called by another name, where the text shows which variable they change.

    out = []                              out = []
    push = out.append                     out.append
    for x in xs:                  ->      for x in xs:
        push(x)                               out.append(x)
    visit(out.append)                     visit(lambda *given: out.append(*given))

A name stands for the method as long as the variable holds one object: it is assigned once, and in a loop in front of
the name, in the same block. An argument is such a method where the variable was made as a list, dict or set. So it is
with methods that read (`get = known.get`): they see what the variable holds when they are called.
"""

from __future__ import annotations

import ast
import builtins
import copy
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache

from autobatch.frontend.syntax.syntax_trees import become, bound_names

FunctionNode = ast.FunctionDef | ast.Lambda
_LOOPS = (ast.For, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_MADE = (ast.List, ast.ListComp, ast.Dict, ast.DictComp, ast.Set, ast.SetComp)
_MAKERS = frozenset({"list", "dict", "set", "deque", "defaultdict", "Counter", "OrderedDict"})


READERS = frozenset({"copy", "count", "get", "index", "items", "keys", "values"})
"""Methods that read a list, dict or set."""


def with_methods_written_out(node: FunctionNode, mutators: frozenset[str]) -> FunctionNode:
    """The function with such names replaced; itself where there are none. `mutators`: the methods that change a list,
    dict or set."""
    if not isinstance(node, ast.FunctionDef) or not any(True for _ in _kept(node, mutators | READERS)):
        return node
    return _rewritten(node, mutators)


@lru_cache(maxsize=256)
def _rewritten(node: ast.FunctionDef, mutators: frozenset[str]) -> ast.FunctionDef:
    made = copy.deepcopy(node)
    text = _AssignedNames(made)
    for statement, pairs in list(text.aliases(mutators | READERS)):
        known = {name: method for name, method in pairs if text.stands_for(name, method, statement)}
        if len(known) == len(pairs):
            _write_out(made, statement, known)
    text = _AssignedNames(made)
    for method in list(_kept(made, mutators | READERS)):
        if method.attr in READERS and text.is_read_at_once(method):
            continue
        if text.is_container(method.value) and not text.is_in_loop(text.stored[_name(method.value)]):
            become(method, _function(method))
    return made


def _kept(node: ast.AST, mutators: frozenset[str]) -> Iterator[ast.Attribute]:
    """The methods of variables that change them, and are not called where they stand."""
    called = {id(n.func) for n in ast.walk(node) if isinstance(n, ast.Call)}
    for n in ast.walk(node):
        match n:
            case ast.Attribute(value=ast.Name(), attr=attr, ctx=ast.Load()) if attr in mutators and id(n) not in called:
                yield n


class _AssignedNames:
    """Where a function assigns its variables, and those of functions inside it; `times`: how often."""

    def __init__(self, function: ast.FunctionDef) -> None:
        self.function = function
        self.parents = {child: n for n in ast.walk(function) for child in ast.iter_child_nodes(n)}
        self.stored: dict[str, ast.AST] = {}
        self.times = Counter[str]()
        for n in ast.walk(function):
            for name in bound_names(n):
                self.times[name] += 1
                self.stored[name] = n

    def aliases(self, mutators: frozenset[str]) -> Iterator[tuple[ast.Assign, Sequence[tuple[str, ast.Attribute]]]]:
        """`push = out.append` and `push, pop = out.append, out.pop`."""
        kept = set(_kept(self.function, mutators))
        for n in ast.walk(self.function):
            match n:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Attribute() as method) if method in kept:
                    yield n, [(name, method)]
                case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=methods)):
                    pairs = [
                        (x.id, m)
                        for x, m in zip(names, methods, strict=False)
                        if isinstance(x, ast.Name) and isinstance(m, ast.Attribute) and m in kept
                    ]
                    if len(pairs) == len(names) == len(methods):
                        yield n, pairs

    def stands_for(self, name: str, method: ast.Attribute, statement: ast.Assign) -> bool:
        """Is a name that method wherever it is read, and does it only call it?"""
        held = _name(method.value)
        if self.times[name] != 1 or self.times[held] != 1:
            return False
        reads = [n for n in ast.walk(self.function) if isinstance(n, ast.Name) and n.id == name]
        for n in reads:
            if isinstance(n.ctx, ast.Store):
                continue
            call = self.parents[n]
            if not isinstance(call, ast.Call) or call.func is not n or not self._is_behind(n, statement):
                return False
        return not self.is_in_loop(self.stored[held]) or self._is_behind(statement, self.stored[held])

    def is_read_at_once(self, method: ast.Attribute) -> bool:
        """Is it given to a function of Python, which returns before anything changes?"""
        call = self.parents[method]
        call = self.parents[call] if isinstance(call, ast.keyword) else call
        match call:
            case ast.Call(func=ast.Name(id=name)):
                return name not in self.times and hasattr(builtins, name)
            case _:
                return False

    def is_in_loop(self, node: ast.AST) -> bool:
        """Is a node run more than once in an activation of its function?"""
        while node in self.parents:
            node = self.parents[node]
            if isinstance(node, _LOOPS):
                return True
            if isinstance(node, ast.FunctionDef | ast.Lambda):
                return False
        return False

    def _is_behind(self, node: ast.AST, stored: ast.AST) -> bool:
        """Does a node stand behind an assignment, in the same block or inside of what stands there?"""
        while not isinstance(stored, ast.stmt):
            stored = self.parents[stored]
        blocks = (getattr(self.parents[stored], x, []) for x in ("body", "orelse", "finalbody"))
        behind = next(b[b.index(stored) + 1 :] for b in blocks if isinstance(b, list) and stored in b)
        while node in self.parents:
            if node in behind:
                return True
            node = self.parents[node]
        return False

    def is_container(self, node: ast.expr) -> bool:
        """Is it a variable that was made as a list, dict or set, once?"""
        name = _name(node)
        if self.times[name] != 1 or name not in self.stored:
            return False
        match self.parents.get(self.stored[name]):
            case ast.Assign(targets=[ast.Name()], value=value) | ast.AnnAssign(value=value):
                pass
            case _:
                return False
        match value:
            case ast.Call(func=ast.Name(id=maker) | ast.Attribute(attr=maker)):
                return maker in _MAKERS
            case _:
                return isinstance(value, _MADE)


def _write_out(function: ast.AST, statement: ast.Assign, known: dict[str, ast.Attribute]) -> None:
    """Let the calls of names call the methods, and their assignment read these alone."""
    for n in ast.walk(function):
        match n:
            case ast.Call(func=ast.Name(id=name) as called) if name in known:
                held = copy.copy(known[name].value)
                become(called, ast.Attribute(ast.copy_location(held, called), known[name].attr, ast.Load()))
    become(statement, ast.Expr(statement.value))


def _function(method: ast.Attribute) -> ast.Lambda:
    """`lambda *given: out.append(*given)`"""
    given = ast.Starred(ast.Name("<given>", ast.Load()), ast.Load())
    call = ast.Call(ast.Attribute(copy.copy(method.value), method.attr, ast.Load()), [given], [])
    rest = ast.arg("<given>")
    return ast.Lambda(ast.arguments([], [], rest, [], [], None, []), call)


def _name(node: ast.expr) -> str:
    assert isinstance(node, ast.Name)
    return node.id
