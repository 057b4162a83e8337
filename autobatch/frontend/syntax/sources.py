"""From a Python function to its syntax tree, with the places in the file where it was written."""

from __future__ import annotations

import ast
import inspect
import linecache
import types
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any

from autobatch.errors import NOWHERE, Span, UnsupportedError
from autobatch.frontend.syntax.iterator_variables import (
    with_iterators_as_places,
    with_methods_written_out,
    without_parameters,
)
from autobatch.frontend.syntax.scopes import is_cell, mutated_by, with_names_of_their_own, with_outliving_variables

# ---- live names
#
# Where the variables of a function are live: read on some way from there before they are set again.
#
# for c in xs:          c is not live behind the loop, though another one reads a variable of that name
#     out.append(c)
# for c in ys:
#     s = s + c
#
# A backward walk over the statements (Aho, Lam, Sethi, Ullman: Compilers, 2nd edition, 9.2.5); what is live is a set of
# bits, one for each variable. Where the flow is not followed (`try`, functions inside that hold a variable), it is
# live.


INNER = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)
Names = int
"""A set of variables, as bits."""


@dataclass(frozen=True)
class _Ways:
    """What is live behind a statement; where `break` leads to, and `continue`."""

    behind: Names = 0
    broken: Names = 0
    continued: Names = 0

    def then(self, behind: Names) -> _Ways:
        return replace(self, behind=behind)


class LiveNames:
    """The live variables of a function of this body."""

    def __init__(self, body: Sequence[ast.stmt]) -> None:
        self._bits: dict[str, Names] = {}
        self._known: dict[ast.AST, Names] = {}
        self._live: dict[ast.stmt, Names] = {}
        self._held = self._held_inside(body)
        self._sequence(body, _Ways())

    def behind(self, node: ast.AST, name: str) -> bool | None:
        """Is a variable live behind a statement? None where that is none of this function."""
        found = self._live.get(node) if isinstance(node, ast.stmt) else None
        return None if found is None else bool((found | self._held) & self._bits.get(name, 0))

    def _bit(self, name: str) -> Names:
        return self._bits.setdefault(name, 1 << len(self._bits))

    # ---- statements: what is live in front of them

    def _sequence(self, statements: Sequence[ast.stmt], ways: _Ways) -> Names:
        behind = ways.behind
        for statement in reversed(statements):
            # paths that have left the turn run on beside the others, behind flags, to where the loop ends
            self._live[statement] = self._live.get(statement, 0) | behind | ways.broken | ways.continued
            behind = self._statement(statement, ways.then(behind))
        return behind

    def _statement(self, node: ast.stmt, ways: _Ways) -> Names:
        match node:
            case ast.If(test=test, body=body, orelse=orelse):
                return self._reads(test) | self._sequence(body, ways) | self._sequence(orelse, ways)
            case ast.For(target=target, iter=source, body=body, orelse=orelse):
                turns = self._loop(body, orelse, ways, self._reads(target), self._sets(target))
                return self._reads(source) | turns
            case ast.While(test=test, body=body, orelse=orelse):
                return self._loop(body, orelse, ways, self._reads(test), 0)
            case ast.Break():
                return ways.broken
            case ast.Continue():
                return ways.continued
            case ast.Return() | ast.Raise():
                return self._reads(node)
            case ast.With(items=items, body=body):
                return self._read_by(items) | self._sequence(body, ways)
            case ast.Match(subject=subject, cases=cases):
                found = self._reads(subject) | ways.behind
                for c in cases:
                    found |= self._reads(c.pattern) | self._sequence(c.body, ways)
                    found |= self._reads(c.guard) if c.guard is not None else 0
                return found
            case ast.Try() | ast.TryStar():
                return self._guarded(node, ways)
            case _:
                return self._reads(node) | (ways.behind & ~self._sets(node))

    def _loop(
        self, body: Sequence[ast.stmt], orelse: Sequence[ast.stmt], ways: _Ways, reads: Names, sets: Names
    ) -> Names:
        """Where a loop begins a turn, or ends. `reads`, `sets`: what its head does in front of each turn."""
        begins = reads | self._sequence(orelse, ways)
        while True:
            turn = self._sequence(body, _Ways(begins, ways.behind, begins))
            found = begins | (turn & ~sets)
            if found == begins:
                return begins
            begins = found

    def _guarded(self, node: ast.Try | ast.TryStar, ways: _Ways) -> Names:
        """Any statement of the body may be the last one in front of a handler: what is read anywhere in it, or behind
        it, is live in all of it."""
        live = ways.behind | ways.broken | ways.continued | self._reads(node)
        for inner in ast.walk(node):
            if isinstance(inner, ast.stmt) and inner is not node:
                self._live[inner] = self._live.get(inner, 0) | live
        return live

    # ---- what one reads and sets

    def _reads(self, node: ast.AST) -> Names:
        """What an expression, or a whole statement, reads. The variables of comprehensions are their own."""
        found = self._known.get(node)
        if found is None:
            found = self._known[node] = self._find_reads(node)
        return found

    def _read_by(self, nodes: Sequence[ast.AST]) -> Names:
        found = 0
        for node in nodes:
            found |= self._find_reads(node)
        return found

    def _find_reads(self, node: ast.AST) -> Names:
        match node:
            case ast.Name(id=name, ctx=context):
                return self._bit(name) if isinstance(context, ast.Load) else 0
            case ast.AugAssign(target=ast.Name(id=name), value=value):
                return self._bit(name) | self._find_reads(value)
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                first, *rest = node.generators
                own = 0
                for generator in node.generators:
                    own |= self._named(generator.target)
                values = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
                inside = self._read_by([*values, *first.ifs, first.target, *rest])
                return self._find_reads(first.iter) | (inside & ~own)
            case _:
                return self._read_by(list(ast.iter_child_nodes(node)))

    def _sets(self, node: ast.AST) -> Names:
        """What a statement, or the head of one, sets whatever happens."""
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                return self._bit(name)
            case ast.Assign(targets=parts) | ast.Delete(targets=parts) | ast.Tuple(elts=parts) | ast.List(elts=parts):
                found = 0
                for part in parts:
                    found |= self._sets(part)
                return found
            case ast.AnnAssign(target=target, value=ast.expr()) | ast.Starred(value=target):
                return self._sets(target)
            case _:
                return 0

    def _named(self, node: ast.AST) -> Names:
        """Every variable that is named inside."""
        found = 0
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name):
                found |= self._bit(inner.id)
        return found

    def _held_inside(self, body: Sequence[ast.stmt]) -> Names:
        """The variables that inner functions may read at any time, or that are those of other functions."""
        found = 0
        for inner in (n for statement in body for n in ast.walk(statement)):
            if isinstance(inner, INNER):
                found |= self._named(inner)
            elif isinstance(inner, ast.Global | ast.Nonlocal):
                for name in inner.names:
                    found |= self._bit(name)
        return found


FunctionNode = ast.FunctionDef | ast.Lambda
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


@dataclass(frozen=True, eq=False)
class FunctionSource:
    """The text of one function. `function` is the Python object, None for a function inside a lowered one. `cells_read`
    and `cells_changed`: the cells of functions around it (`scopes.py`) that it, or a function inside it, names."""

    node: FunctionNode
    file: str
    name: str
    globals: dict[str, Any]
    function: Any = None
    loads: frozenset[str] = frozenset()
    locals: frozenset[str] = frozenset()
    free: tuple[str, ...] = ()
    places: dict[ast.AST, Span] = field(default_factory=dict)
    cells_read: frozenset[str] = frozenset()
    cells_changed: frozenset[str] = frozenset()

    @property
    def span(self) -> Span:
        return self.at(self.node)

    @cached_property
    def is_shown(self) -> bool:
        """May errors name lines of it? What stands for methods of other libraries carries the place of its call."""
        return not str(self.globals.get("__name__")).startswith(COMPILED)

    @cached_property
    def is_ascii(self) -> bool:
        """Is a byte a character in all lines of it?"""
        return all(line.isascii() for line in linecache.getlines(self.file))

    @property
    def body(self) -> list[ast.stmt]:
        """The statements; those of a lambda are one `return`."""
        if isinstance(self.node, ast.Lambda):
            return [ast.copy_location(ast.Return(self.node.body), self.node.body)]
        return self.node.body

    def at(self, node: ast.AST) -> Span:
        """The place of a node; columns count characters, as editors do."""
        found = self.places.get(node)
        if found is None:
            found = self.places[node] = self._at(node)
        return found

    def _at(self, node: ast.AST) -> Span:
        line = getattr(node, "lineno", None)
        if line is None:
            return self.span if node is not self.node else Span(self.file, 0, 0)
        end_line = getattr(node, "end_lineno", line) or line
        end = getattr(node, "end_col_offset", 0) or 0
        if self.is_ascii:
            return Span(self.file, line, getattr(node, "col_offset", 0) + 1, end_line, end + 1)
        return Span(
            self.file,
            line,
            _characters(self.file, line, getattr(node, "col_offset", 0)) + 1,
            end_line,
            _characters(self.file, end_line, end) + 1,
        )

    @cached_property
    def named_inside(self) -> frozenset[str]:
        """The variables that functions inside this one name: a call may read them."""
        parts = (n for statement in self.body for n in ast.walk(statement))
        inner = (n for n in parts if isinstance(n, ast.FunctionDef | ast.Lambda))
        return frozenset(n.id for function in inner for n in ast.walk(function) if isinstance(n, ast.Name))

    @cached_property
    def _live(self) -> LiveNames:
        return LiveNames(self.body)

    def read_after(self, name: str, node: ast.AST) -> bool:
        """May the variable be read behind a statement, before it is set again?"""
        found = self._live.behind(node, name)
        return name in self.loads if found is None else found


@dataclass(frozen=True, eq=False)
class Lent(FunctionSource):
    """The text of a function of this package; all of it stands where the user called it. `copied`: what it is given is
    nobody else's, so that nobody changes it."""

    place: Span = NOWHERE
    copied: bool = False

    def at(self, node: ast.AST) -> Span:
        return self.place


@dataclass(frozen=True)
class Inlined:
    """A loop over a generator (`generators.py`): its statements, the function with them in its place, and the names
    that the variables of the generator have there."""

    block: Sequence[ast.stmt]
    whole: FunctionSource
    own: dict[str, str]


def _characters(file: str, line: int, offset: int) -> int:
    """A byte offset in a line, as a count of characters."""
    text = linecache.getline(file, line)
    return offset if text.isascii() else len(text.encode()[:offset].decode(errors="ignore"))


def source_of(
    function: types.FunctionType, caller: Span = NOWHERE, outliving: frozenset[tuple[str, int, str]] = frozenset()
) -> FunctionSource:
    """The source of a Python function; raises UnsupportedError, at the place of its caller, when its text cannot be
    found. `outliving`: variables of which it is known that they outlive their function (`scopes.py`), each by the file
    and line of a function that names it."""
    code = function.__code__
    file = code.co_filename
    if (written := getattr(function, WRITTEN, None)) is not None:
        return describe(with_names_of_their_own(written), file, function.__qualname__, function.__globals__, function)
    text = "".join(linecache.getlines(file, function.__globals__))
    if not text:
        raise UnsupportedError(
            f"the source of {function.__qualname__} is not available ({file})",
            caller,
            cure="write it in a file or a notebook cell; code made by exec or typed at a bare prompt has no text",
        )
    try:
        _parse(file, text)
    except SyntaxError as error:
        raise _changed(function, file) from error
    found = [n for n in _functions(file, text) if _first_line(n) == code.co_firstlineno and _name(n) == code.co_name]
    stars = bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + stars]
    found = [n for n in found if parameters(n) == names]
    if len(found) > 1:
        found = [n for n in found if _holds(n, code)] or found
    if not found:
        raise _changed(function, file)
    if isinstance(found[0], ast.AsyncFunctionDef):
        place = Span(file, found[0].lineno, found[0].col_offset + 1)
        raise UnsupportedError(f"{function.__qualname__} is a coroutine", place, "write it with `def`")
    node = with_methods_written_out(found[0])
    node = with_iterators_as_places(node, function.__globals__, mutated)
    known = frozenset((line, name) for other, line, name in outliving if other == file)
    node = with_names_of_their_own(with_outliving_variables(node, known))
    without_parameters(node, function)
    return describe(node, file, function.__qualname__, function.__globals__, function)


WRITTEN = "__syntax_tree__"
"""The attribute of a function that has its syntax tree, where this package has written that."""


def _changed(function: types.FunctionType, file: str) -> UnsupportedError:
    return UnsupportedError(
        f"the text of {function.__qualname__} was not found in {file}: the file has changed since it was imported",
        cure="import the module again",
    )


def describe(
    node: FunctionNode,
    file: str,
    name: str,
    globals: dict[str, Any],
    function: types.FunctionType | None = None,
) -> FunctionSource:
    """A `FunctionSource` with the tables that the front end looks names up in."""
    body = [node.body] if isinstance(node, ast.Lambda) else node.body
    loads = list(dict.fromkeys(name for statement in body for name in _loads(statement)))
    assigned = frozenset(_assigned(node)) - _declared(node)
    free = tuple(n for n in loads if n not in assigned and not is_cell(n))
    shared = frozenset(_cells(node)) - assigned
    written = shared.intersection(_cells_changed(node))
    return FunctionSource(node, file, name, globals, function, frozenset(loads), assigned, free, {}, shared, written)


def _cells(node: FunctionNode) -> Iterator[str]:
    return (n.id for n in ast.walk(node) if isinstance(n, ast.Name) and is_cell(n.id))


def _cells_changed(node: FunctionNode) -> Iterator[str]:
    """The cells that a function or one inside it assigns, or whose lists, dicts or objects it changes."""
    yield from (n.id for n in ast.walk(node) if isinstance(n, ast.Name) and not isinstance(n.ctx, ast.Load))
    yield from mutated(node)


def stores(*nodes: ast.AST) -> list[str]:
    """The variables that statements assign, in order, those of inner functions left out."""
    return list(dict.fromkeys(name for node in nodes for name in _stored(node)))


@lru_cache(maxsize=512)
def read_before_change(function: FunctionNode) -> frozenset[ast.AST]:
    """The calls that change a variable's list or dict where the same expression holds that: `[(xs, 1), xs.pop()]`.
    A choice holds none: what `xs and xs.pop()` and `xs.pop() if xs else y` ask first is not kept."""
    found: set[ast.AST] = set()
    for node in ast.walk(function):
        if not isinstance(node, ast.expr) or isinstance(node, ast.BoolOp | ast.IfExp):
            continue
        held: set[str] = set()
        for part in ast.iter_child_nodes(node):
            found.update(c for c in ast.walk(part) if isinstance(c, ast.Call) and not held.isdisjoint(mutated_by(c)))
            names = _items_of(part) if _reads_again(node) else (part, *_items_of(part))
            held.update(n.id for n in names if isinstance(n, ast.Name))
    return frozenset(found)


def _reads_again(node: ast.expr) -> bool:
    """Are the variables among its parts read again where a later part changes what they hold (`changed_later`)? Not if
    a part may assign them, or is an argument whose position is not known."""
    if not isinstance(node, ast.Call | ast.BinOp | ast.Tuple | ast.List):
        return False
    if isinstance(node, ast.Call) and node.keywords and any(isinstance(x, ast.Starred) for x in node.args):
        return False
    return not any(isinstance(x, ast.NamedExpr) for x in ast.walk(node))


def changed_later(parts: Sequence[ast.expr], behind: Sequence[ast.expr] = ()) -> list[int]:
    """Which parts of an expression are variables whose container a part behind them changes. Python has evaluated the
    container itself, so that what is read of it is what it holds then."""
    found = []
    for k, part in enumerate(parts):
        rest = (*parts[k + 1 :], *behind)
        if isinstance(part, ast.Name) and any(part.id in mutated(x) for x in rest):
            found.append(k)
    return found


def _items_of(node: ast.AST) -> Sequence[ast.AST]:
    """What a container that an expression writes down holds."""
    return node.elts if isinstance(node, ast.Tuple | ast.List) else ()


def changed(*nodes: ast.AST) -> list[str]:
    """The variables that statements assign, or whose lists and dicts they change."""
    return list(dict.fromkeys((*stores(*nodes), *(name for node in nodes for name in mutated(node)))))


@lru_cache(maxsize=4096)  # a statement is lowered once for each type that its function is called with
def _stored(node: ast.AST) -> tuple[str, ...]:
    return tuple(_stores(node))


@lru_cache(maxsize=4096)
def nodes_in(node: ast.AST) -> tuple[ast.AST, ...]:
    """As `ast.walk`, of a statement that is lowered."""
    return tuple(ast.walk(node))


@lru_cache(maxsize=4096)
def mutated(node: ast.AST) -> tuple[str, ...]:
    """The variables whose lists, dicts and objects a statement changes."""
    found = []
    for n in nodes_in(node):
        match n:
            case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store() | ast.Del()):
                found.append(name)
            case ast.Attribute(value=ast.Name(id=name), ctx=ast.Store()):
                found.append(name)
            case ast.Call():
                found += mutated_by(n)
    return tuple(found)


def _loads(node: ast.AST) -> Iterator[str]:
    """The variables that are read, in order, those of inner functions with them, but of comprehensions their own."""
    if isinstance(node, ast.Name):
        if isinstance(node.ctx, ast.Load):
            yield node.id
        return
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        yield node.target.id
    if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
        own = {n.id for g in node.generators for n in ast.walk(g.target) if isinstance(n, ast.Name)}
        first = node.generators[0].iter
        yield from _loads(first)
        inside = [x for g in node.generators for x in (g.target, g.iter, *g.ifs) if x is not first]
        elements = [x for x in _children(node) if not isinstance(x, ast.comprehension)]
        yield from (name for x in (*inside, *elements) for name in _loads(x) if name not in own)
        return
    for child in _children(node):
        yield from _loads(child)


def _children(node: ast.AST) -> list[ast.AST]:
    """As `ast.iter_child_nodes`, in a third of the time: a long function has many thousands."""
    found: list[ast.AST] = []
    for value in vars(node).values():
        if isinstance(value, list):
            found += [x for x in value if isinstance(x, ast.AST)]
        elif isinstance(value, ast.AST) and not isinstance(value, _NO_CHILDREN):
            found.append(value)
    return found


_NO_CHILDREN = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop)


def _stores(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name):  # most of them
        if not isinstance(node.ctx, ast.Load):
            yield node.id
        return
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
            return
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
            yield name
        case ast.Lambda():
            return
        case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
            for n in ast.walk(node):
                if isinstance(n, ast.NamedExpr):
                    yield n.target.id
            return
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            yield from ((a.asname or a.name).split(".")[0] for a in names)
    for child in _children(node):
        yield from _stores(child)


def _assigned(node: FunctionNode) -> Iterator[str]:
    yield from parameters(node)
    body = [node.body] if isinstance(node, ast.Lambda) else node.body
    yield from stores(*body)


def _declared(node: FunctionNode) -> frozenset[str]:
    """Names declared global or nonlocal, not in functions inside."""
    found = set[str]()
    todo: list[ast.AST] = [node.body] if isinstance(node, ast.Lambda) else [*node.body]
    while todo:
        part = todo.pop()
        if isinstance(part, ast.Global | ast.Nonlocal):
            found.update(part.names)
        elif not isinstance(part, _SCOPES):
            todo += _children(part)
    return frozenset(found)


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """As `ast.walk`."""
    todo = deque([node])
    while todo:
        found = todo.popleft()
        yield found
        todo.extend(_children(found))


@lru_cache(maxsize=4096)
def attributes_set(function: ast.AST) -> frozenset[str]:
    """The attributes that the text of a function sets, of whatever objects."""
    return frozenset(
        n.attr for n in ast.walk(function) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)
    )


@lru_cache(maxsize=64)
def _parse(file: str, text: str) -> ast.Module:
    return ast.parse(text, file)


@lru_cache(maxsize=64)
def _functions(file: str, text: str) -> Sequence[FunctionNode | ast.AsyncFunctionDef]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    return [n for n in _walk(_parse(file, text)) if isinstance(n, kinds)]


def _first_line(node: FunctionNode | ast.AsyncFunctionDef) -> int:
    decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
    return min([node.lineno, *(d.lineno for d in decorators)])


def _name(node: FunctionNode | ast.AsyncFunctionDef) -> str:
    return "<lambda>" if isinstance(node, ast.Lambda) else node.name


def parameters(node: FunctionNode | ast.AsyncFunctionDef) -> tuple[str, ...]:
    a = node.args
    named = (*a.posonlyargs, *a.args, *a.kwonlyargs)
    stars = tuple(x for x in (a.vararg, a.kwarg) if x is not None)
    return tuple(x.arg for x in (*named, *stars))


def _holds(node: ast.AST, code: types.CodeType) -> bool:
    """Does the code come from inside the node? Tells lambdas on one line apart."""
    start, end = _extent(node)
    for first, last, column, last_column in code.co_positions():
        if first is None or last is None or column is None or last_column is None or column == last_column:
            continue
        if (first, column) < start or end < (last, last_column):
            return False
    return True


def _extent(node: ast.AST) -> tuple[tuple[int, int], tuple[int, int]]:
    """Line and column where a statement or expression begins, and where it ends."""
    assert isinstance(node, ast.stmt | ast.expr)
    assert node.end_lineno is not None and node.end_col_offset is not None, "the text was parsed"
    return (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)


def is_bound_method(value: Any) -> bool:
    """A method of Python, or one of a module of Equinox, which has its own class of them."""
    return isinstance(value, types.MethodType) or (
        isinstance(getattr(value, "__func__", None), types.FunctionType) and hasattr(value, "__self__")
    )


def is_user_function(value: Any) -> bool:
    """Is it a Python function whose text is lowered? Functions of libraries are traced."""
    if not isinstance(value, types.FunctionType):
        return False
    module = value.__module__ or ""
    if module.startswith(COMPILED):
        return True
    if module.split(".")[0] in LIBRARIES:
        return False
    file = value.__code__.co_filename
    outside = (_STANDARD_LIBRARY, _PACKAGE, "<frozen")
    return "site-packages" not in file and not file.startswith(outside)


COMPILED = "autobatch.frontend."
"""What stands for operators, and for methods of other libraries, is lowered wherever this package is installed."""
LIBRARIES = frozenset({"jax", "jaxlib", "numpy", "scipy", "equinox", "flax", "haiku", "optax", "math", "networkx"})
_PACKAGE = __file__.removesuffix("frontend/syntax/sources.py")
"""This package: derivatives of array functions are traced, wherever it is installed."""
_STANDARD_LIBRARY = inspect.__file__.removesuffix("inspect.py")


# ---- own parts
#
# Slices that become lists of their own at once, as the function changes what it has cut out.
#
# r = l[1:]; r.append(y)        r is a list that is built here
# r = l[1:]; total = sum(r)     r only reads l: nothing is copied


@lru_cache(maxsize=256)
def changed_parts(function: ast.FunctionDef | ast.Lambda) -> frozenset[ast.AST]:
    """The slices that a variable may hold whose list the function changes, under this name or another one."""
    flows = [(target, source) for n in ast.walk(function) for target, source in _flows(n)]
    names = set(mutated(function)) | {
        n.target.id for n in ast.walk(function) if isinstance(n, ast.AugAssign) and isinstance(n.target, ast.Name)
    }
    count = -1
    while len(names) != count:
        count = len(names)
        names |= {source.id for target, source in flows if target in names and isinstance(source, ast.Name)}
    return frozenset(source for target, source in flows if target in names and isinstance(source, ast.Subscript))


@lru_cache(maxsize=256)
def temporary_tuples(function: ast.FunctionDef | ast.Lambda) -> frozenset[ast.AST]:
    """The tuples of a function that nothing keeps: indices, `x[i, j]`, and what is unpacked at once, `a, b = b, a`."""
    found: set[ast.AST] = set()
    for node in ast.walk(function):
        match node:
            case ast.Subscript(slice=ast.Tuple() as index):
                found.add(index)
            case ast.Assign(targets=targets, value=ast.Tuple() as value):
                if all(isinstance(t, ast.Tuple | ast.List) for t in targets):
                    found.add(value)
    return frozenset(found)


def _flows(node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """The variables that a statement or expression gives a value, and the parts of it that the value may be."""
    targets: list[ast.expr]
    match node:
        case ast.Assign(targets=targets, value=value):
            pass
        case ast.AnnAssign(target=one, value=ast.expr() as value):
            targets = [one]
        case ast.NamedExpr(target=name, value=value):
            targets = [name]
        case _:
            return
    for target in targets:
        if isinstance(target, ast.Name):
            yield from ((target.id, x) for x in _results(value))
        elif isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
            for inner, part in zip(target.elts, value.elts, strict=False):
                if isinstance(inner, ast.Name):
                    yield from ((inner.id, x) for x in _results(part))


def _results(node: ast.expr) -> Iterator[ast.expr]:
    match node:
        case ast.IfExp(body=body, orelse=orelse):
            yield from _results(body)
            yield from _results(orelse)
        case ast.BoolOp(values=values):
            for value in values:
                yield from _results(value)
        case ast.NamedExpr(value=value):
            yield from _results(value)
        case ast.Name() | ast.Subscript():
            yield node
