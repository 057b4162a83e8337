"""`for` over a list that its turns change, as the loop over indices that it is in Python.

    for x in todo:                       at = 0
        if x > 0.3:              ->      while at < len(todo):
            todo.append(0.5 * x)             x = todo[at]; at += 1
                                             if x > 0.3: todo.append(0.5 * x)

So do `enumerate(todo)` and `reversed(todo)`. A turn that assigns `todo` another list leaves alone what the loop runs
over, which then has a name of its own. Lists that have memory are read where they are, turn by turn, without this.
(The Python Language Reference, 8.3; `Objects/listobject.c` of CPython for `reversed`.)
"""

from __future__ import annotations

import ast
import builtins
from typing import Any

from autobatch.frontend.lowering.access import variable
from autobatch.frontend.lowering.state import LoweringState
from autobatch.frontend.memory.list_heap import is_dict_row, is_row
from autobatch.frontend.memory.list_sites import is_list
from autobatch.frontend.syntax.flattening import Body, placed
from autobatch.frontend.syntax.sources import stores
from autobatch.frontend.types import values as v

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
