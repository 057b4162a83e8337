"""Local functions and lambdas as Python functions again, to hand to JAX: their free variables are tracers.

    k = t.word; jax.vmap(lambda x: x * k + t.label)(xs)

What such a function reads of an object of the examples (`t.label`) is loaded beforehand.
"""

from __future__ import annotations

import ast
import copy
import types
from collections.abc import Callable
from typing import Any

from autobatch.frontend.lowering.access import enclosing_value
from autobatch.frontend.lowering.state import LoweringState
from autobatch.frontend.types import values as v
from autobatch.ir.types import Ref


def rebuild_function(
    s: LoweringState, function: v.LocalFunction, python: Callable[[v.Abstract], Any]
) -> Callable[..., Any]:
    """A Python function with the text of a local one; `python` gives what its captured variables are."""
    s.context.traced.add((function.source.span, s.span))
    captured = dict(function.captured or ())
    for name in function.source.free:
        if name not in captured and (found := enclosing_value(s, name)) is not None:
            captured[name] = found
    group = {x.source.node: x for x in captured.values() if isinstance(x, v.LocalFunction) and x.captured is None}
    plain = {n: x for n, x in captured.items() if not (isinstance(x, v.LocalFunction) and x.captured is None)}
    objects = {n: x for n, x in plain.items() if isinstance(x, v.Leaf) and isinstance(x.type, Ref)}
    loads = _Loads(s, objects)
    node = loads.visit(copy.deepcopy(_with_defaults(function)))
    values = {n: python(x) for n, x in plain.items() if n not in objects}
    values |= {n: python(x) for n, x in loads.found.items()}
    values |= {_default(n): python(x) for n, x in function.defaults}
    others = [
        loads.visit(copy.deepcopy(g)) for g in group if isinstance(g, ast.FunctionDef) and g is not function.source.node
    ]
    made = types.FunctionType(_factory(node, others, tuple(values), function.source.file), function.source.globals)
    result: Callable[..., Any] = made(*values.values())
    return result


class _Loads(ast.NodeTransformer):
    """Replaces `t.label`, where t is an object of the examples, by a variable that holds the field."""

    def __init__(self, s: LoweringState, objects: dict[str, v.Leaf]) -> None:
        self.state, self.objects = s, objects
        self.found: dict[str, v.Abstract] = {}

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        names = _chain(node)
        if not names or names[0] not in self.objects:
            return self.generic_visit(node)
        value: v.Abstract = self.objects[names[0]]
        path, rest = names[:1], names[1:]
        while rest and isinstance(value, v.Leaf) and isinstance(value.type, Ref):
            value = self.state.context.rules.attribute(self.state, value, rest[0])
            path, rest = [*path, rest[0]], rest[1:]
        held = "_".join(("_field", *path))
        self.found[held] = value
        result: ast.expr = ast.Name(held, ast.Load())
        for name in rest:
            result = ast.Attribute(result, name, ast.Load())
        return ast.copy_location(result, node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id in self.objects and isinstance(node.ctx, ast.Load):
            self.state.refuse(
                f"{node.id} is an object of the examples and used inside a function that JAX traces",
                f"read what is needed of it before: value = {node.id}.field",
            )
        return node


def _chain(node: ast.expr) -> list[str]:
    """The names of `a.b.c`."""
    match node:
        case ast.Name(id=name):
            return [name]
        case ast.Attribute(value=value, attr=name):
            before = _chain(value)
            return [*before, name] if before else []
        case _:
            return []


def _default(name: str) -> str:
    return f"_default_{name}"


def _factory(node: Any, others: list[ast.stmt], names: tuple[str, ...], file: str) -> types.CodeType:
    """Code of a function that takes the captured variables and returns the local function."""
    body: list[ast.stmt] = list(others)
    if isinstance(node, ast.Lambda):
        body.append(ast.Return(node))
    else:
        body += [node, ast.Return(ast.Name(node.name, ast.Load()))]
    parameters = [ast.arg(n) for n in names]
    arguments = ast.arguments(posonlyargs=[], args=parameters, kwonlyargs=[], kw_defaults=[], defaults=[])
    factory = ast.FunctionDef("factory", arguments, body, [], None, None)
    if "type_params" in ast.FunctionDef._fields:
        factory.type_params = []  # type: ignore[attr-defined]
    tree = ast.fix_missing_locations(ast.Module([factory], []))
    module = compile(tree, file, "exec")
    return next(c for c in module.co_consts if isinstance(c, types.CodeType))


def _with_defaults(function: v.LocalFunction) -> Any:
    """The node with its default values read from the factory's parameters, decorators dropped."""
    node: Any = function.source.node
    known = {n for n, _ in function.defaults}

    def default(parameter: ast.arg, old: Any) -> Any:
        return ast.Name(_default(parameter.arg), ast.Load()) if parameter.arg in known else old

    a = node.args
    named = [*a.posonlyargs, *a.args]
    positional = named[len(named) - len(a.defaults) :]
    arguments = ast.arguments(
        posonlyargs=a.posonlyargs,
        args=a.args,
        vararg=a.vararg,
        kwonlyargs=a.kwonlyargs,
        kw_defaults=[default(p, d) for p, d in zip(a.kwonlyargs, a.kw_defaults, strict=True)],
        kwarg=a.kwarg,
        defaults=[default(p, d) for p, d in zip(positional, a.defaults, strict=True)],
    )
    fields = {f: getattr(node, f) for f in node._fields} | {"args": arguments}
    if isinstance(node, ast.FunctionDef):
        fields["decorator_list"] = []
    return ast.copy_location(type(node)(**fields), node)
