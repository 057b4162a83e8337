"""Objects of other libraries among the examples, seen through the classes of `graphs.py` and `sparse.py`."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from autobatch.data.leaves import is_graph_class, is_row_matrix, is_sparse_class
from autobatch.frontend.library import graphs, sparse
from autobatch.frontend.lowering.state import LoweringState, MemoryChanged
from autobatch.frontend.syntax.sources import COMPILED
from autobatch.frontend.types import values as v
from autobatch.ir.types import Ref


def viewed(s: LoweringState, value: v.Abstract) -> v.Abstract:
    """A graph or sparse matrix of the examples as the object that the compiler takes it for; other values as they
    are."""
    if not isinstance(value, v.Leaf) or not isinstance(value.type, Ref):
        return value
    classes = [c.cls for c in s.context.schema.store(value.type.store).classes]
    if all(c is not None and is_graph_class(c) for c in classes):
        return v.Record("object", ("raw",), (value,), graphs.Graph)
    if all(c is not None and is_sparse_class(c) for c in classes):
        by_rows = v.Static(all(c is not None and is_row_matrix(c) for c in classes))
        return v.Record("object", ("raw", "by_rows"), (value, by_rows), sparse.Sparse)
    return value


def nodes_of(s: LoweringState, value: v.Abstract) -> v.Leaf | None:
    """The graph whose nodes a view runs over, where all graphs number theirs; None for other values."""
    if not isinstance(value, v.Record) or value.cls not in _OF_NODES:
        return None
    raw = value.items[0]
    assert isinstance(raw, v.Leaf) and isinstance(raw.type, Ref)
    fields = s.context.schema.store(raw.type.store).fields
    return None if any(f.name == "labels" for f in fields) else raw


_OF_NODES = (graphs.Graph, graphs.Nodes, graphs.ByNode, graphs.Adjacency)


def graph_of_nodes(s: LoweringState, source: ast.expr) -> v.Abstract | None:
    """The graph over whose nodes `for` goes, in `g`, `g.nodes`, `h` by nodes, and `nodes()`, `keys()`, `items()` and
    `data()` of these; None for others. Evaluates what stands before such a method."""
    match source:
        case ast.Name() | ast.Attribute():
            found = source
        case ast.Call(func=ast.Attribute(value=found, attr="nodes" | "keys" | "items" | "data")):
            pass
        case _:
            return None
    value = viewed(s, s.evaluate(found))
    if not isinstance(value, v.Record) or value.cls not in (graphs.Graph, graphs.Nodes, graphs.ByNode):
        return None
    return value.items[0]


def by_nodes_of(s: LoweringState, graph: v.Abstract, values: v.Abstract, site: ast.AST) -> v.Record:
    """A dict that has a value for each node of a graph, and that `site` has made: a comprehension or a loop."""
    made = v.Record("object", ("raw", "each"), (graph, values), graphs.ByNode)
    s.context.sites.made(made, site)
    return made


def is_plain(s: LoweringState, site: ast.AST) -> bool:
    """Is what an expression or loop makes, or may make, for each node of a graph a dict like others?"""
    return site in s.context.memory.plain


def make_plain(s: LoweringState, value: v.Abstract) -> None:
    """Where a dict by nodes is used as only other dicts can be: let it be one, from where it is made."""
    if not isinstance(value, v.Record) or value.cls is not graphs.ByNode:
        return
    sites = {x for x in s.context.sites.makers(value) if isinstance(x, ast.AST)}
    if not sites <= s.context.memory.plain:
        s.context.memory.plain |= sites
        raise MemoryChanged


def is_set_whole(value: v.Abstract | None, graph: v.Abstract | None) -> bool:
    """Is a dict that of the nodes of a graph, in their order, once an item has been set for each of them?"""
    if not isinstance(value, v.Record):
        return False
    if value.kind == "dict":
        return not value.items
    return value.cls is graphs.ByNode and value.items[0] == graph


def refuse_view(s: LoweringState, value: v.Record) -> None:
    """Refuse to return what stands for a view."""
    if value.cls is graphs.ByNode:
        make_plain(s, value)
        s.refuse("a dict by nodes cannot be returned", "return the list of its values: [h[v] for v in g]")
    if value.cls is not None and value.cls.__module__.startswith(COMPILED):
        s.refuse("a view of a graph cannot be returned", "return numbers, or lists of them")


def refuse_unknown(s: LoweringState, value: v.Record, name: str) -> None:
    """Refuse what networkx or scipy has, and this compiler does not."""
    if value.cls is graphs.ByNode and not hasattr(value.cls, name) and name not in value.keys:
        make_plain(s, value)
    if value.cls in (graphs.Graph, sparse.Sparse) and not hasattr(value.cls, name) and name not in value.keys:
        if value.cls is graphs.Graph:
            s.refuse(f"{name!r} of a networkx graph cannot be compiled", graphs.PRECOMPUTE)
        s.refuse(f"{name!r} of a scipy sparse matrix cannot be compiled", "compute it before packing, or use its data")


Field = Callable[[LoweringState, v.Leaf, str], v.Abstract]


def packed_field(
    s: LoweringState, function: Any, args: Sequence[v.Abstract], load: Field, there: Field
) -> v.Abstract | None:
    """`graphs.field(raw, name)` and the like; None for other functions."""
    if function not in (graphs.field, graphs.has_field, graphs.unsupported):
        return None
    first, second = args
    assert isinstance(second, v.Static)
    if function is graphs.unsupported:
        assert isinstance(first, v.Static)
        s.refuse(f"{first.value} cannot be compiled", second.value)
    assert isinstance(first, v.Leaf)
    return (load if function is graphs.field else there)(s, first, second.value)
