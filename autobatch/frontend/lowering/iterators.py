"""Iterators that are kept, passed or read in several places: objects, whose `__next__` gives the next item.

What `iter` makes of a list, and what `zip` makes of iterators, are written here as generators and classes, in Python,
and lowered as those of the user are. Where nothing else holds such an object, its fields are variables, as of any other
object; else it has memory.
"""

from __future__ import annotations

import ast
import copy
import inspect
from typing import Any

import jax
import numpy as np

from autobatch.frontend.library.groups import GROUPS, is_groups
from autobatch.frontend.lowering.attributes import written
from autobatch.frontend.lowering.joins import captured
from autobatch.frontend.lowering.sequences import begin, sequence
from autobatch.frontend.lowering.state import Ended, LoweringState
from autobatch.frontend.syntax import cells
from autobatch.frontend.syntax.generators import lent, through
from autobatch.frontend.syntax.invalidation import (
    changed_behind,
    given_names,
    is_consumed,
    is_reader,
    is_view,
    makes_iterator,
    misread,
    text_of,
)
from autobatch.frontend.syntax.scopes import shown
from autobatch.frontend.syntax.state_machines import NotAMachine, class_of, yields
from autobatch.frontend.types import values as v


def object_of(s: LoweringState, generator: v.Generator) -> v.Abstract:
    """The object that a generator is."""
    source, held = generator.source, generator.captured
    if is_groups(generator):
        s.refuse("what itertools.groupby() gives is kept or passed", GROUPS)
    if generator.local:
        function = v.LocalFunction(source, (), held)
        if source.cells_read:
            cells.outlive(s, source, *sorted(source.cells_read))
        made = captured(s, function)
        assert isinstance(made, v.LocalFunction)
        cells.check_kept(s, made)
        held = made.captured
    around = dict(held or ())
    own = next((n for n, x in around.items() if isinstance(x, v.LocalFunction) and x.source is source), None)
    around.pop(own or "", None)
    names = {name: f"gi_outer{k}" for k, name in enumerate(around)}
    known, key = s.context.memory.rewritten, ("class", source)
    if key not in known:
        assert isinstance(source.node, ast.FunctionDef)
        try:
            known[key] = class_of(source.node, source.file, source.globals, names, own)
        except NotAMachine as found:
            what = f"{source.name} is a generator that is kept, passed or read in several places, and {found.what}"
            s.refuse(what, found.cure, source.at(found.node))
    given = {names[name]: value for name, value in around.items()}
    return s.call(v.Static(known[key]), [], dict(generator.arguments) | given)


def iterator_of(s: LoweringState, value: v.Abstract) -> v.Abstract:
    """`iter(value)`"""
    if is_iterator(s, value):
        return value
    begun = begin(s, value)
    if isinstance(begun, v.Generator):
        return object_of(s, begun)
    if is_iterator(s, begun):
        return begun
    return object_of(s, _stepping(s, begun))


def _stepping(s: LoweringState, value: v.Abstract) -> v.Generator:
    """What steps through a value that is no iterator itself: lists, and what is read by index, as they are when an item
    is asked for; others as they are now."""
    if value == v.Static(None):
        s.check(s.scalar(False), "TypeError", "'NoneType' object is not iterable")
        raise Ended
    if isinstance(value, v.Lazy) and value.range is not None:
        return lent(s, _range, **dict(zip(("start", "stop", "step"), value.range, strict=True)))
    if s.call(v.Static(isinstance), [value, v.Static(_BY_INDEX)]) != v.Static(True):
        found = s.context.rules.materialise(s, sequence(s, value))
        value = s.context.rules.made_by(s, found, ("items", s.frame.source, s.span))
    return lent(s, _items, items=value)


def generator_of(s: LoweringState, value: v.Abstract) -> v.Generator:
    """What steps through a value, as a generator, whose text may become a part of a loop."""
    if isinstance(value, v.Generator):
        return value
    if is_iterator(s, value):
        return lent(s, through, iterator=value)
    return _stepping(s, begin(s, value))


def kept(s: LoweringState, node: ast.Assign | ast.AnnAssign | ast.NamedExpr, value: v.Abstract) -> v.Abstract:
    """The value of an assignment: a generator is an object, unless one loop runs over it, and over what it is now."""
    if not isinstance(value, v.Generator):
        return value
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    match targets:
        case [ast.Name(id=name)] if not isinstance(node, ast.NamedExpr):
            also = [*given_names(node.value), *value.source.free]
            once = misread(s, node, name, True, value.source.free) is None
            once = once and not changed_behind(s.frame.source.node, node, also)
            return value if once else object_of(s, value)
        case _:
            return object_of(s, value)


def stepped(s: LoweringState, node: ast.Assign) -> ast.expr:
    """What an assignment assigns: where that is an iterator, and not one loop runs over it, one that is stepped."""
    value = node.value
    match node.targets:
        case [ast.Name(id=name)] if isinstance(value, ast.Attribute) and is_reader(s, value):
            if (why := misread(s, node, name, False)) is not None:
                cure = f"call it as a method: {ast.unparse(value)}()"
                s.refuse(f"{shown(name)} is a method of a list or dict, {why}", cure)
            return value
        case [ast.Name(id=name)]:
            if not (steps := makes_iterator(s, value)) and not is_view(value):
                return value
            why = misread(s, node, name, steps)
            if why is None:
                return value
            if not steps or (not is_lazy(value) and (why := misread(s, node, name, False)) is not None):
                kind = "an iterator" if steps else "a view of a dict"
                s.refuse(f"{shown(name)} is {kind}, {why}", f"make a list of it: {shown(name)} = list(...)")
        case [ast.Tuple() | ast.List()]:
            return value  # read at once
        case _:
            pass
    return in_steps(s, value)


def in_steps(s: LoweringState, value: ast.expr) -> ast.expr:
    """An expression whose value something holds: where it makes an iterator, one that is stepped."""
    if not makes_iterator(s, value):
        return value
    known = s.context.memory.rewritten
    if (value, "stepped") not in known:
        known[value, "stepped"] = _stepped(s, value)
    found: ast.expr = known[value, "stepped"]
    return found


def held(s: LoweringState, value: ast.expr) -> ast.expr:
    """An element of a list, tuple or dict, or what one is given: an iterator whose items can be computed when they are
    asked for is stepped."""
    return in_steps(s, value) if is_lazy(value) else value


def given(s: LoweringState, function: v.Abstract, node: ast.Call) -> tuple[list[ast.expr], list[ast.keyword]]:
    """The arguments of a call: iterators as what is stepped, where they are kept or not read once."""
    if isinstance(node.func, ast.Attribute) and node.func.attr in KEEPING:
        return [held(s, x) for x in node.args], node.keywords
    if not any(makes_iterator(s, x) for x in (*node.args, *(k.value for k in node.keywords))):
        return node.args, node.keywords
    bound = isinstance(function, v.Method)
    if isinstance(function, v.Static) and isinstance(function.value, type):
        function, bound = v.Static(inspect.getattr_static(function.value, "__init__", None)), True
    source = text_of(s, function.function if isinstance(function, v.Method) else function)
    if source is None or not source.is_shown:
        return node.args, node.keywords
    text = source.node
    names = [p.arg for p in (*text.args.posonlyargs, *text.args.args)][bound:] + [""] * len(node.args)

    def passed(name: str, value: ast.expr) -> ast.expr:
        consumed = name and not yields(text) and is_consumed(s, source, name)
        return value if consumed else in_steps(s, value)

    named = [ast.keyword(k.arg, passed(k.arg or "", k.value)) for k in node.keywords]
    return [passed(name, x) for name, x in zip(names, node.args, strict=False)], named


KEEPING = frozenset({"add", "append", "appendleft", "insert", "setdefault"})
"""Methods that keep what they are given."""


_OVER_ONE = {"chain": 0, "dropwhile": 1, "enumerate": 0, "filter": 1, "islice": 0, "map": 1, "takewhile": 1, "zip": 0}
"""Which argument these functions take step by step."""
_OVER_ALL = ("chain", "map", "zip")
"""Those that take all behind it so, too."""


def is_lazy(value: ast.expr) -> bool:
    """Can the items of an iterator be computed when they are asked for? Others are read as a whole first."""
    match value:
        case ast.GeneratorExp():
            return True
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=args) if name in _OVER_ONE:
            return len(args) > _OVER_ONE[name] and not any(isinstance(x, ast.Starred) for x in args)
        case _:
            return False


def _stepped(s: LoweringState, value: ast.expr) -> ast.expr:
    """An iterator whose items are computed when they are asked for."""
    made = copy.copy(value)
    match made:
        case ast.GeneratorExp(generators=[first, *rest]):
            first = copy.copy(first)
            first.iter = _step_by_step(s, first.iter)
            made.generators = [first, *rest]
            return made
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=args) if is_lazy(made):
            begin = _OVER_ONE[name]
            end = len(args) if name in _OVER_ALL else begin + 1
            made.args = [_step_by_step(s, x) if begin <= k < end else x for k, x in enumerate(args)]
            return made
        case _:
            return _step_by_step(s, value)


def _step_by_step(s: LoweringState, value: ast.expr) -> ast.expr:
    inner = in_steps(s, value) if is_lazy(value) else value
    known = ast.Constant(step_by_step)  # type: ignore[arg-type]
    return ast.copy_location(ast.Call(ast.copy_location(known, value), [inner], []), value)


def step_by_step(items: Any) -> Any:
    """Known to the front end (`prelude.py`): `generator_of`."""
    return iter(items)


def is_iterator(s: LoweringState, value: v.Abstract) -> bool:
    """Is it an object that steps itself?"""
    return not isinstance(value, v.Generator) and written(s, value, "__next__")


_BY_INDEX = (list, tuple, str, np.ndarray, jax.Array)


def _items(items: Any) -> Any:
    """Lowered like a generator of the user, as those below."""
    place = 0
    while place < len(items):
        yield items[place]
        place += 1


def _range(start: Any, stop: Any, step: Any) -> Any:
    while start < stop if step > 0 else start > stop:
        yield start
        start += step
