"""Statements in the body of a `try` as simpler ones: what may fail is a statement of its own, in Python's order.

    s = s + (xs[k] if c else 0.0)          if c: t = xs[k]
                                           else: t = 0.0            (under names that no variable has)
                                           s = s + t

    if xs[k] > 0.0: ...            ->      t = xs[k] > 0.0
                                           if t: ...

What is evaluated in front of a choice or a comprehension is put in front of it too. Each statement is rewritten once.
"""

from __future__ import annotations

import ast
import builtins
import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from autobatch.frontend.lowering.state import LoweringState, variable
from autobatch.frontend.memory.heap import is_list
from autobatch.frontend.memory.list_heap import is_dict_row, is_row
from autobatch.frontend.syntax.sources import stores
from autobatch.frontend.types import values as v

Body = list[ast.stmt]
Node = TypeVar("Node", bound=ast.AST)
TO_THE_END = ("sum", "max", "min", "sorted", "list", "tuple", "set")
_CHOICES = (ast.IfExp, ast.BoolOp, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def with_test_apart(s: LoweringState, node: ast.stmt) -> Body | None:
    """An `if` or `match` whose test, which may fail, is a statement in front of it; None for what needs no change."""
    if not isinstance(node, ast.If | ast.Match):
        return None
    test = node.test if isinstance(node, ast.If) else node.subject
    if isinstance(test, ast.Name | ast.Constant):
        return None
    known = s.context.memory.rewritten
    if node not in known:
        assign, read = _kept(test, _name("test", test))
        made = copy.copy(node)
        if isinstance(made, ast.If):
            made.test = read
        else:
            made.subject = read
        known[node] = [assign, made]
    found: Body = known[node]
    return found


def with_test_inside(s: LoweringState, node: ast.While) -> ast.While:
    """A `while` whose test is a statement of its turns; its `else` stands there too, in front of a `break`."""
    leaves = any(isinstance(n, ast.Break | ast.Continue) for b in node.orelse for n in ast.walk(b))
    if isinstance(node.test, ast.Name | ast.Constant) or leaves:
        return node
    known = s.context.memory.rewritten
    if node not in known:
        test = ast.UnaryOp(ast.Not(), node.test)
        leave = ast.If(test, [*node.orelse, ast.Break()], [])
        known[node] = placed(ast.While(ast.Constant(True), [leave, *node.body], []), node)
    found: ast.While = known[node]
    return found


def flattened(s: LoweringState, node: ast.stmt) -> Body | None:
    """A statement as several, none of which holds a choice or a comprehension; None where that cannot be."""
    known = s.context.memory.rewritten
    if node not in known:
        known[node] = _flattened(node)
    found: Body | None = known[node]
    return found


def _flattened(node: ast.stmt) -> Body | None:
    made = copy.copy(node)
    match made:
        case ast.Assign() | ast.AnnAssign() | ast.Return() | ast.Expr() | ast.AugAssign() if made.value is not None:
            part = made.value
        case ast.For():
            part = made.iter
        case _:
            return None
    if not _has_choice(part) or any(isinstance(n, ast.NamedExpr) for n in ast.walk(node)):
        return None
    writer = _Flat()
    read = writer.expression(part)
    if read is None:
        return None
    if isinstance(made, ast.For):
        made.iter = read
    else:
        made.value = read
    return [*writer.before, made]


def _has_choice(node: ast.AST) -> bool:
    if isinstance(node, ast.Lambda):
        return False
    return isinstance(node, _CHOICES) or any(_has_choice(x) for x in ast.iter_child_nodes(node))


def _name(what: str, node: ast.expr) -> str:
    return f"<{what} {node.lineno} {node.col_offset}>"


def _kept(value: ast.expr, name: str) -> tuple[ast.stmt, ast.expr]:
    """A statement that keeps a value in a variable, and what reads that."""
    assign = ast.Assign([ast.Name(name, ast.Store())], value)
    return placed(assign, value), ast.copy_location(ast.Name(name, ast.Load()), value)


def placed(made: Node, node: ast.AST) -> Node:
    """A statement that was made, at the place of another."""
    for part in ast.walk(made):
        if not hasattr(part, "lineno"):
            ast.copy_location(part, node)
    return made


@dataclass
class _Flat:
    """Writes an expression without choices; `before` are the statements in front of it."""

    before: Body = field(default_factory=list)

    def expression(self, node: ast.expr) -> ast.expr | None:
        """What stands for an expression behind the statements; None where it cannot be taken apart."""
        if not _has_choice(node):
            return node
        name = _name("part", node)
        match node:
            case ast.IfExp():
                return self.choice(node, name)
            case ast.BoolOp():
                return self.both(node, name)
            case ast.ListComp():
                return self.comprehension(node, name, ast.List([], ast.Load()), _append)
            case ast.Call(func=ast.Name(id="any" | "all" as kind), args=[ast.GeneratorExp(generators=[_]) as inner]):
                return self.comprehension(inner, name, ast.Constant(kind == "all"), _ending(kind == "any"))
            case ast.Call(func=ast.Name(id=called), args=[ast.GeneratorExp() as inner, *rest]) if called in TO_THE_END:
                read = self.comprehension(inner, name, ast.List([], ast.Load()), _append)
                if read is None or any(map(_has_choice, (*rest, *node.keywords))):
                    return None
                made = copy.copy(node)
                made.args = [read, *rest]
                return made
            case ast.BinOp() | ast.Call() | ast.Compare() | ast.Subscript() | ast.Tuple() | ast.List() | ast.UnaryOp():
                return self.parts(node)
        return None

    def kept(self, value: ast.expr, what: str) -> ast.expr:
        if isinstance(value, ast.Name | ast.Constant):
            return value
        assign, read = _kept(value, _name(what, value))
        self.before.append(assign)
        return read

    def parts(self, node: ast.expr) -> ast.expr | None:
        """The operands in order; those in front of the last choice are kept in variables."""
        made = copy.copy(node)
        places = list(_operands(made))
        last = max(k for k, (_, _, x) in enumerate(places) if _has_choice(x))
        for k, (name, position, part) in enumerate(places):
            if k > last:
                break
            found = self.expression(part)
            if found is None or isinstance(part, ast.Starred):
                return None
            called = isinstance(node, ast.Call) and name == "func"
            read = found if called or k == last else self.kept(found, "operand")
            if position is None:
                setattr(made, name, read)
            else:
                getattr(made, name)[position] = read
        return made

    def choice(self, node: ast.IfExp, name: str) -> ast.expr | None:
        test = self.expression(node.test)
        arms = [self.arm(x, name) for x in (node.body, node.orelse)]
        if test is None or arms[0] is None or arms[1] is None:
            return None
        self.before.append(placed(ast.If(test, arms[0], arms[1]), node))
        return ast.copy_location(ast.Name(name, ast.Load()), node)

    def both(self, node: ast.BoolOp, name: str) -> ast.expr | None:
        first, *rest = node.values
        read = self.expression(first)
        if read is None:
            return None
        self.before.append(_kept(read, name)[0])
        test: ast.expr = ast.copy_location(ast.Name(name, ast.Load()), node)
        if rest:
            more = rest[0] if len(rest) == 1 else ast.copy_location(ast.BoolOp(node.op, rest), rest[0])
            arm = self.arm(more, name)
            if arm is None:
                return None
            asked = test if isinstance(node.op, ast.And) else ast.UnaryOp(ast.Not(), test)
            self.before.append(placed(ast.If(asked, arm, []), node))
        return ast.copy_location(ast.Name(name, ast.Load()), node)

    def arm(self, node: ast.expr, name: str) -> Body | None:
        inner = _Flat()
        read = inner.expression(node)
        return None if read is None else [*inner.before, _kept(read, name)[0]]

    def comprehension(
        self, node: ast.ListComp | ast.GeneratorExp, name: str, start: ast.expr, turn: Callable[[str, ast.expr], Body]
    ) -> ast.expr | None:
        """What loops make of `start` in a variable, a `turn` for each element. Their variables have names of their
        own."""
        first = self.expression(node.generators[0].iter)
        if first is None or any(g.is_async for g in node.generators):
            return None
        own = _own_names(node)
        inner = _Flat()
        read = inner.expression(_renamed(node.elt, own))
        if read is None:
            return None
        body = _loops(node, own, first, [*inner.before, *turn(name, read)])
        self.before += [placed(x, node) for x in (ast.Assign([ast.Name(name, ast.Store())], start), *body)]
        return ast.copy_location(ast.Name(name, ast.Load()), node)


def in_front(node: ast.expr) -> tuple[Body, ast.expr] | None:
    """An expression as statements and what reads their result; None where it cannot be taken apart."""
    writer = _Flat()
    read = writer.expression(node)
    return None if read is None else (writer.before, read)


def appended(node: ast.ListComp) -> tuple[Body, ast.expr]:
    """A comprehension as loops that append to a variable, and what reads that."""
    own, name = _own_names(node), _name("part", node)
    start = ast.Assign([ast.Name(name, ast.Store())], ast.List([], ast.Load()))
    body = _loops(node, own, node.generators[0].iter, _append(name, _renamed(node.elt, own)))
    return [placed(x, node) for x in (start, *body)], ast.copy_location(ast.Name(name, ast.Load()), node)


def _own_names(node: ast.ListComp | ast.GeneratorExp) -> dict[str, str]:
    """Names that no variable has, for those of a comprehension."""
    targets = {n.id for g in node.generators for n in ast.walk(g.target) if isinstance(n, ast.Name)}
    return {n: f"<{n} {node.lineno} {node.col_offset}>" for n in targets}


def _loops(node: ast.ListComp | ast.GeneratorExp, own: dict[str, str], first: ast.expr, body: Body) -> Body:
    """The loops of a comprehension around what is done for an element; `first`: what the outer one runs over."""
    for k, g in reversed(list(enumerate(node.generators))):
        for test in reversed(g.ifs):
            body = [ast.If(_renamed(test, own), body, [])]
        source = first if k == 0 else _renamed(g.iter, own)
        body = [ast.For(_renamed(g.target, own), source, body, [])]
    return body


def _append(name: str, element: ast.expr) -> Body:
    return [ast.Expr(ast.Call(ast.Attribute(ast.Name(name, ast.Load()), "append", ast.Load()), [element], []))]


def _ending(found: bool) -> Callable[[str, ast.expr], Body]:
    """The turn of `any` (`all`): the first element that is true (false) decides."""

    def turn(name: str, element: ast.expr) -> Body:
        test = element if found else ast.UnaryOp(ast.Not(), element)
        return [ast.If(test, [ast.Assign([ast.Name(name, ast.Store())], ast.Constant(found)), ast.Break()], [])]

    return turn


def _renamed(node: Node, own: dict[str, str]) -> Node:
    made = copy.deepcopy(node)
    for part in ast.walk(made):
        if isinstance(part, ast.Name):
            part.id = own.get(part.id, part.id)
    return made


def _operands(node: ast.expr) -> Sequence[tuple[str, int | None, ast.expr]]:
    """The expressions that an expression evaluates, in order, and where they stand in it."""
    found: list[tuple[str, int | None, ast.expr]] = []
    for name, value in ast.iter_fields(node):
        if isinstance(value, ast.expr):
            found.append((name, None, value))
        elif isinstance(value, list):
            setattr(node, name, list(value))
            found += [(name, k, x) for k, x in enumerate(value) if isinstance(x, ast.expr)]
    return found


# ---- by index
#
# `for` over a list that its turns change, as the loop over indices that it is in Python.
#
#     for x in todo:                       at = 0
#         if x > 0.3:              ->      while at < len(todo):
#             todo.append(0.5 * x)             x = todo[at]; at += 1
#                                              if x > 0.3: todo.append(0.5 * x)
#
# So do `enumerate(todo)` and `reversed(todo)`. A turn that assigns `todo` another list leaves alone what the loop runs
# over, which then has a name of its own. Lists that have memory are read where they are, turn by turn, without this.
# (The Python Language Reference, 8.3; `Objects/listobject.c` of CPython for `reversed`.)


LEN: Any = len  # by value: the function may have a variable of that name


def list_of(s: LoweringState, node: ast.For) -> ast.Name | None:
    """The variable whose list a loop runs over, if that can be read by index."""
    match node.iter:
        case ast.Name() as name:
            pass
        case ast.Call(func=ast.Name(id="enumerate" | "reversed" as kind), args=[ast.Name() as name, *rest]):
            if variable(s, kind) != v.Static(getattr(builtins, kind)) or len(rest) + len(node.iter.keywords) > 1:
                return None
        case _:
            return None
    held = s.env[name.id].value if name.id in s.env else None
    if held is None or is_dict_row(held) or not (is_list(held) or is_row(held)):
        return None
    return name


def run_by_index(s: LoweringState, node: ast.For, name: ast.Name) -> None:
    """Execute a loop over the list of a variable that its turns change."""
    known = s.context.memory.rewritten
    if node.iter not in known:
        kept = name.id in s.context.memory.assigned or name.id in stores(node.target, *node.body)
        known[node.iter] = _by_index(node, name, kept)
    s.context.rules.execute(s, known[node.iter])


def _by_index(node: ast.For, name: ast.Name, kept: bool) -> Body:
    """The statements. `kept`: the list gets a name of its own, since the turns may assign that variable."""
    place = f"{node.lineno} {node.col_offset}>"
    at, number, items = f"<at {place}", f"<from {place}", f"<over {place}" if kept else name.id
    front: Body = [_set(items, name)] if kept else []
    length = ast.Call(ast.Constant(LEN), [_get(items)], [])
    element: ast.expr = ast.Subscript(_get(items), _get(at), ast.Load())
    first: ast.expr = ast.Constant(0)
    test: ast.expr = ast.Compare(_get(at), [ast.Lt()], [length])
    step: ast.operator = ast.Add()
    match node.iter:
        case ast.Call(func=ast.Name(id="enumerate"), args=[_, *rest], keywords=keywords):
            start = [*rest, *(k.value for k in keywords)]
            front += [_set(number, x) for x in start]
            count = ast.BinOp(_get(at), ast.Add(), _get(number)) if start else _get(at)
            element = ast.Tuple([count, element], ast.Load())
        case ast.Call():
            first, step = ast.BinOp(length, ast.Sub(), ast.Constant(1)), ast.Sub()
            test = ast.Compare(ast.Constant(0), [ast.LtE(), ast.Lt()], [_get(at), length])
    turn = [ast.Assign([node.target], element), ast.AugAssign(ast.Name(at, ast.Store()), step, ast.Constant(1))]
    loop = ast.While(test, [*turn, *node.body], node.orelse)
    return [placed(x, node) for x in (*front, _set(at, first), loop)]


def compared_when_it_ends(s: LoweringState, node: ast.For) -> Body | None:
    """A loop over `zip(a, b, strict=True)` whose lengths are compared where it ends, as in Python, and not before the
    first turn; None for other loops."""
    over: ast.expr = node.iter
    numbered: ast.Call | None = None
    if isinstance(over, ast.Call) and isinstance(over.func, ast.Name) and over.func.id == "enumerate" and over.args:
        numbered = over
        over = numbered.args[0]
    match over:
        case ast.Call(func=ast.Name(id="zip"), args=[_, _, *_] as args, keywords=[ast.keyword("strict", strict)]):
            whole = all(isinstance(a, ast.Name | ast.Attribute | ast.Subscript | ast.List | ast.Tuple) for a in args)
            if not whole or not isinstance(strict, ast.Constant) or strict.value is not True:
                return None
            if variable(s, "zip") != v.Static(zip):
                return None
        case _:
            return None
    known = s.context.memory.rewritten
    if node not in known:
        names = [f"<zip {k} {node.lineno} {node.col_offset}>" for k in range(len(args))]
        zipped = ast.Call(ast.Name("zip", ast.Load()), [_get(n) for n in names], [])
        if numbered is not None:
            zipped = ast.Call(numbered.func, [zipped, *numbered.args[1:]], numbered.keywords)
        compared = ast.Expr(ast.Call(_known(of_one_length), [_get(n) for n in names], []))
        loop = ast.For(node.target, zipped, node.body, [compared, *node.orelse])
        known[node] = [placed(x, node) for x in (*map(_set, names, args), loop)]
    found: Body = known[node]
    return found


def of_one_length(*lists: Any) -> None:
    """What `zip(strict=True)` says where its arguments end; known to the front end (`prelude.py`)."""
    for _ in zip(*lists, strict=True):
        pass


def run_by_steps(s: LoweringState, node: ast.For, iterator: v.Abstract) -> None:
    """Execute a loop over an iterator of a class of the user, which `__next__` steps:

    while more:
        try: x = iterator.__next__()
        except StopIteration: more = False; continue
        ...
    """
    place, known = f"{node.lineno} {node.col_offset}>", s.context.memory.rewritten
    name, more = f"<iterator {place}", f"<more {place}"
    if node.iter not in known:
        step = ast.Call(ast.Attribute(_get(name), "__next__", ast.Load()), [], [])
        end = ast.ExceptHandler(_known(StopIteration), None, [_set(more, ast.Constant(False)), ast.Continue()])
        turn = ast.Try([ast.Assign([node.target], step)], [end], [], [])
        loop = ast.While(_get(more), [turn, *node.body], node.orelse)
        known[node.iter] = [placed(x, node) for x in (_set(more, ast.Constant(True)), loop)]
    s.bind(name, iterator)
    s.context.rules.execute(s, known[node.iter])


def _known(value: Any) -> ast.Constant:
    """Something of Python's, as the front end reads it."""
    return ast.Constant(value)


def _get(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _set(name: str, value: ast.expr) -> ast.Assign:
    return ast.Assign([ast.Name(name, ast.Store())], value)
