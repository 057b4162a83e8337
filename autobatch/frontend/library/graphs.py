"""networkx graphs of the examples: what their methods and views mean over packed columns.

This file is compiled, not run: where a function uses a graph of the examples, the compiler takes it for a `Graph` whose
`raw` is the row of the graph (`graphs.py`), and lowers these methods like functions of the user. `field(raw, name)` is
a column of the graph, `has_field` says whether it has one; `data/leaves.py` lists them. Nodes are known by their labels
outside, and by their positions inside.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import jax.numpy as jnp
import networkx as nx

from autobatch.data.leaves import is_graph_class, is_row_matrix, is_sparse_class
from autobatch.frontend.lowering.state import LoweringState, MemoryChanged
from autobatch.frontend.syntax.sources import COMPILED
from autobatch.frontend.types import values as v
from autobatch.ir.core import Ref

PRECOMPUTE = "compute it before packing, and keep it as an attribute of the nodes, the edges or the graph"


def field(raw: Any, name: str) -> Any:
    """A packed field; only the compiler calls it."""
    raise AssertionError("compiled, never run")


def has_field(raw: Any, name: str) -> Any:
    """Is there such a field? Only the compiler calls it."""
    raise AssertionError("compiled, never run")


def unsupported(what: str, cure: str) -> NoReturn:
    """Refuses to compile the call; only the compiler calls it."""
    raise AssertionError("compiled, never run")


# ---- nodes


def labels(raw: Any) -> Any:
    """The nodes, as networkx gives them."""
    return field(raw, "labels") if has_field(raw, "labels") else range(field(raw, "size"))


def label(raw: Any, position: int) -> Any:
    return field(raw, "labels")[position] if has_field(raw, "labels") else position


def find(raw: Any, node: Any) -> Any:
    """The position of a node; -1 where it is none of the graph."""
    if not has_field(raw, "labels"):
        return node if 0 <= node < field(raw, "size") else -1
    for position, known in enumerate(field(raw, "labels")):
        if known == node:
            return position
    return -1


def at(raw: Any, node: Any) -> Any:
    position = find(raw, node)
    if position < 0:
        raise KeyError("the node is not in the graph")
    return position


def is_near(raw: Any, name: str, position: int, node: Any) -> Any:
    other = find(raw, node)
    return any(k == other for k in field(raw, name)[position])


def edge_between(raw: Any, position: int, node: Any) -> Any:
    """The number of the edge to a node."""
    other = find(raw, node)
    for k, near in enumerate(field(raw, "adjacency")[position]):
        if near == other:
            return field(raw, "incidence")[position][k]
    raise KeyError("there is no such edge in the graph")


def pairs(raw: Any) -> Any:
    """The edges, as pairs of positions."""
    return zip(field(raw, "sources"), field(raw, "targets"), strict=True)


# ---- attributes


class Attributes:
    """What nodes, edges and the graph itself know of attributes: a mapping by constant names."""

    raw: Any
    prefix = ""

    def value(self, key: str) -> Any:
        """The attribute, None where there is none."""
        raise AssertionError("compiled, never run")

    def __getitem__(self, key: str) -> Any:
        if not has_field(self.raw, self.prefix + key):
            raise KeyError(key)
        value = self.value(key)
        if value is None:
            raise KeyError(key)
        return value

    def __contains__(self, key: str) -> Any:
        return self.value(key) is not None if has_field(self.raw, self.prefix + key) else False

    def get(self, key: str, default: Any = None) -> Any:
        if not has_field(self.raw, self.prefix + key):
            return default
        value = self.value(key)
        return default if value is None else value


@dataclass
class NodeData(Attributes):
    raw: Any
    position: int
    prefix = "node_"

    def value(self, key: str) -> Any:
        if has_field(self.raw, "without_node_" + key) and field(self.raw, "without_node_" + key)[self.position]:
            return None
        return field(self.raw, "node_" + key)[self.position]


@dataclass
class EdgeData(Attributes):
    raw: Any
    number: int
    prefix = "edge_"

    def value(self, key: str) -> Any:
        if has_field(self.raw, "without_edge_" + key) and field(self.raw, "without_edge_" + key)[self.number]:
            return None
        return field(self.raw, "edge_" + key)[self.number]


@dataclass
class GraphData(Attributes):
    raw: Any
    prefix = "graph_"

    def value(self, key: str) -> Any:
        return field(self.raw, "graph_" + key)


# ---- views


@dataclass
class Nodes:
    """`g.nodes`"""

    raw: Any

    def __len__(self) -> Any:
        return field(self.raw, "size")

    def __iter__(self) -> Any:
        return labels(self.raw)

    def __contains__(self, node: Any) -> Any:
        return find(self.raw, node) >= 0

    def __getitem__(self, node: Any) -> Any:
        return NodeData(self.raw, at(self.raw, node))

    def __call__(self, data: Any = False, default: Any = None) -> Any:
        if data is False:
            return labels(self.raw)
        return self.data(data, default)

    def data(self, data: Any = True, default: Any = None) -> Any:
        if data is False:
            return labels(self.raw)
        if data is True:
            return [(label(self.raw, k), NodeData(self.raw, k)) for k in range(field(self.raw, "size"))]
        return [(label(self.raw, k), NodeData(self.raw, k).get(data, default)) for k in range(field(self.raw, "size"))]

    def items(self) -> Any:
        return self.data(True)

    def values(self) -> Any:
        return [NodeData(self.raw, k) for k in range(field(self.raw, "size"))]

    def keys(self) -> Any:
        return labels(self.raw)


@dataclass
class Neighbours:
    """`g[v]`, `g.adj[v]`, `g.pred[v]`: `name` is the field that they are in."""

    raw: Any
    name: str
    position: int

    def __len__(self) -> Any:
        return len(field(self.raw, self.name)[self.position])

    def __iter__(self) -> Any:
        near = field(self.raw, self.name)[self.position]
        return [label(self.raw, k) for k in near] if has_field(self.raw, "labels") else near

    def keys(self) -> Any:
        return self.__iter__()

    def __contains__(self, node: Any) -> Any:
        return is_near(self.raw, self.name, self.position, node)

    def __getitem__(self, node: Any) -> Any:
        if isinstance(self.raw, nx.MultiGraph):
            unsupported("g[u][v] of a multigraph, which has several edges there,", "go through g.edges(data=True)")
        if self.name == "predecessors":
            unsupported("g.pred[v][u]", "write g[u][v]")
        return EdgeData(self.raw, edge_between(self.raw, self.position, node))

    def items(self) -> Any:
        if isinstance(self.raw, nx.MultiGraph):
            unsupported("g[u].items() of a multigraph", "go through g.edges(data=True)")
        if self.name == "predecessors":
            unsupported("g.pred[v].items()", "write g[u][v] for each predecessor u")
        numbers = field(self.raw, "incidence")[self.position]
        near = field(self.raw, "adjacency")[self.position]
        return [(label(self.raw, k), EdgeData(self.raw, e)) for k, e in zip(near, numbers, strict=True)]

    def values(self) -> Any:
        return [data for _, data in self.items()]


@dataclass
class Adjacency:
    """`g.adj`, `g.succ`, `g.pred`"""

    raw: Any
    name: str

    def __len__(self) -> Any:
        return field(self.raw, "size")

    def __iter__(self) -> Any:
        return labels(self.raw)

    def __contains__(self, node: Any) -> Any:
        return find(self.raw, node) >= 0

    def __getitem__(self, node: Any) -> Any:
        return Neighbours(self.raw, self.name, at(self.raw, node))

    def items(self) -> Any:
        name = self.name
        return [(label(self.raw, k), Neighbours(self.raw, name, k)) for k in range(field(self.raw, "size"))]


@dataclass
class Edges:
    """`g.edges`, `g.out_edges`"""

    raw: Any

    def __len__(self) -> Any:
        return len(field(self.raw, "sources"))

    def __iter__(self) -> Any:
        if isinstance(self.raw, nx.MultiGraph):
            unsupported("g.edges of a multigraph, which gives keys too,", "write g.edges() or g.edges(data=True)")
        return self.__call__()

    def __contains__(self, edge: Any) -> Any:
        u, v = edge[0], edge[1]
        position = find(self.raw, u)
        return is_near(self.raw, "adjacency", position, v) if position >= 0 else False

    def __getitem__(self, edge: Any) -> Any:
        if isinstance(self.raw, nx.MultiGraph):
            unsupported("g.edges[...] of a multigraph", "go through g.edges(data=True)")
        u, v = edge
        return EdgeData(self.raw, edge_between(self.raw, at(self.raw, u), v))

    def __call__(self, nbunch: Any = None, data: Any = False, default: Any = None, keys: bool = False) -> Any:
        if nbunch is not None:
            unsupported("g.edges(nodes)", "go through the neighbours: for u in g[v]")
        if keys:
            unsupported("g.edges(keys=True)", "keep the key as an attribute of the edge")
        if data is False:
            return [(label(self.raw, u), label(self.raw, v)) for u, v in pairs(self.raw)]
        return self.data(data, default)

    def data(self, data: Any = True, default: Any = None) -> Any:
        raw = self.raw
        if data is True:
            return [(label(raw, u), label(raw, v), EdgeData(raw, k)) for k, (u, v) in enumerate(pairs(raw))]
        return [
            (label(raw, u), label(raw, v), EdgeData(raw, k).get(data, default)) for k, (u, v) in enumerate(pairs(raw))
        ]


@dataclass
class Degrees:
    """`g.degree`, `g.in_degree`, `g.out_degree`"""

    raw: Any
    name: str

    def __len__(self) -> Any:
        return field(self.raw, "size")

    def __iter__(self) -> Any:
        return [(label(self.raw, k), d) for k, d in enumerate(field(self.raw, self.name))]

    def __getitem__(self, node: Any) -> Any:
        return field(self.raw, self.name)[at(self.raw, node)]

    def __call__(self, nbunch: Any = None, weight: Any = None) -> Any:
        if weight is not None:
            unsupported("a weighted degree", PRECOMPUTE)
        return self.__iter__() if nbunch is None else self[nbunch]


@dataclass
class Graph:
    """A graph."""

    raw: Any

    def __len__(self) -> Any:
        return field(self.raw, "size")

    def __iter__(self) -> Any:
        return labels(self.raw)

    def __contains__(self, node: Any) -> Any:
        return find(self.raw, node) >= 0

    def __getitem__(self, node: Any) -> Any:
        return Neighbours(self.raw, "adjacency", at(self.raw, node))

    @property
    def nodes(self) -> Any:
        return Nodes(self.raw)

    @property
    def edges(self) -> Any:
        return Edges(self.raw)

    @property
    def out_edges(self) -> Any:
        return Edges(self.raw)

    @property
    def adj(self) -> Any:
        return Adjacency(self.raw, "adjacency")

    @property
    def succ(self) -> Any:
        return Adjacency(self.raw, "adjacency")

    @property
    def pred(self) -> Any:
        return Adjacency(self.raw, "predecessors")

    @property
    def degree(self) -> Any:
        return Degrees(self.raw, "degrees")

    @property
    def in_degree(self) -> Any:
        return Degrees(self.raw, "in_degrees")

    @property
    def out_degree(self) -> Any:
        return Degrees(self.raw, "out_degrees")

    @property
    def graph(self) -> Any:
        return GraphData(self.raw)

    def adjacency(self) -> Any:
        return Adjacency(self.raw, "adjacency").items()

    def neighbors(self, n: Any) -> Any:
        return Neighbours(self.raw, "adjacency", at(self.raw, n)).__iter__()

    def successors(self, n: Any) -> Any:
        return Neighbours(self.raw, "adjacency", at(self.raw, n)).__iter__()

    def predecessors(self, n: Any) -> Any:
        return Neighbours(self.raw, "predecessors", at(self.raw, n)).__iter__()

    def number_of_nodes(self) -> Any:
        return field(self.raw, "size")

    def order(self) -> Any:
        return field(self.raw, "size")

    def number_of_edges(self, u: Any = None, v: Any = None) -> Any:
        if u is not None or v is not None:
            unsupported("number_of_edges(u, v)", "write g.has_edge(u, v)")
        return len(field(self.raw, "sources"))

    def size(self, weight: Any = None) -> Any:
        if weight is not None:
            unsupported("size(weight=...)", "sum g.edges(data=weight)")
        return len(field(self.raw, "sources"))

    def has_node(self, n: Any) -> Any:
        return find(self.raw, n) >= 0

    def has_edge(self, u: Any, v: Any) -> Any:
        position = find(self.raw, u)
        return is_near(self.raw, "adjacency", position, v) if position >= 0 else False

    def has_successor(self, u: Any, v: Any) -> Any:
        return self.has_edge(u, v)

    def has_predecessor(self, u: Any, v: Any) -> Any:
        return self.has_edge(v, u)

    def is_directed(self) -> Any:
        return isinstance(self.raw, nx.DiGraph)

    def is_multigraph(self) -> Any:
        return isinstance(self.raw, nx.MultiGraph)


@dataclass
class ByNode:
    """`{v: ... for v in g}`: `each` holds one value for each node, in their order."""

    raw: Any
    each: Any

    def __len__(self) -> Any:
        return field(self.raw, "size")

    def __iter__(self) -> Any:
        return labels(self.raw)

    def __contains__(self, node: Any) -> Any:
        return find(self.raw, node) >= 0

    def __getitem__(self, node: Any) -> Any:
        return self.each[at(self.raw, node)]

    def get(self, node: Any, default: Any = None) -> Any:
        position = find(self.raw, node)
        return self.each[position] if position >= 0 else default

    def keys(self) -> Any:
        return labels(self.raw)

    def values(self) -> Any:
        return self.each

    def items(self) -> Any:
        return [(label(self.raw, k), x) for k, x in enumerate(self.each)]


# ---- sparse
#
# scipy sparse matrices of the examples, by rows. Compiled, not run, like `graphs.py`.


_ROWS = "convert it with .tocsr() before packing"


@dataclass
class Sparse:
    """A sparse matrix of scipy, by rows. `by_rows`: it was by rows when it was packed."""

    raw: Any
    by_rows: bool

    @property
    def shape(self) -> Any:
        return field(self.raw, "shape")

    @property
    def nnz(self) -> Any:
        return len(field(self.raw, "data"))

    @property
    def data(self) -> Any:
        if not self.by_rows:
            unsupported("the data of a sparse matrix that is not by rows", _ROWS)
        return field(self.raw, "data")

    @property
    def indices(self) -> Any:
        if not self.by_rows:
            unsupported("the indices of a sparse matrix that is not by rows", _ROWS)
        return field(self.raw, "indices")

    @property
    def indptr(self) -> Any:
        if not self.by_rows:
            unsupported("the indptr of a sparse matrix that is not by rows", _ROWS)
        return field(self.raw, "indptr")

    def sum(self, axis: Any = None) -> Any:
        if axis is not None:
            unsupported("sum(axis=...) of a sparse matrix", "multiply it with a vector of ones")
        return sum(field(self.raw, "data"))

    def __matmul__(self, x: Any) -> Any:
        data, indices, starts = field(self.raw, "data"), field(self.raw, "indices"), field(self.raw, "indptr")
        return jnp.stack(
            [
                sum(data[k] * x[indices[k]] for k in range(starts[i], starts[i + 1]))
                for i in range(field(self.raw, "shape")[0])
            ]
        )

    def dot(self, x: Any) -> Any:
        return self.__matmul__(x)


# ---- views
#
# Objects of other libraries among the examples, seen through the classes of `graphs.py` and `graphs.py`.


def viewed(s: LoweringState, value: v.Abstract) -> v.Abstract:
    """A graph or sparse matrix of the examples as the object that the compiler takes it for; other values as they
    are."""
    if not isinstance(value, v.Leaf) or not isinstance(value.type, Ref):
        return value
    classes = [c.cls for c in s.context.schema.store(value.type.store).classes]
    if all(c is not None and is_graph_class(c) for c in classes):
        return v.Record("object", ("raw",), (value,), Graph)
    if all(c is not None and is_sparse_class(c) for c in classes):
        by_rows = v.Static(all(c is not None and is_row_matrix(c) for c in classes))
        return v.Record("object", ("raw", "by_rows"), (value, by_rows), Sparse)
    return value


def nodes_of(s: LoweringState, value: v.Abstract) -> v.Leaf | None:
    """The graph whose nodes a view runs over, where all graphs number theirs; None for other values."""
    if not isinstance(value, v.Record) or value.cls not in _OF_NODES:
        return None
    raw = value.items[0]
    assert isinstance(raw, v.Leaf) and isinstance(raw.type, Ref)
    fields = s.context.schema.store(raw.type.store).fields
    return None if any(f.name == "labels" for f in fields) else raw


_OF_NODES = (Graph, Nodes, ByNode, Adjacency)


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
    if not isinstance(value, v.Record) or value.cls not in (Graph, Nodes, ByNode):
        return None
    return value.items[0]


def by_nodes_of(s: LoweringState, graph: v.Abstract, values: v.Abstract, site: ast.AST) -> v.Record:
    """A dict that has a value for each node of a graph, and that `site` has made: a comprehension or a loop."""
    made = v.Record("object", ("raw", "each"), (graph, values), ByNode)
    s.context.sites.made(made, site)
    return made


def is_plain(s: LoweringState, site: ast.AST) -> bool:
    """Is what an expression or loop makes, or may make, for each node of a graph a dict like others?"""
    return site in s.context.memory.plain


def make_plain(s: LoweringState, value: v.Abstract) -> None:
    """Where a dict by nodes is used as only other dicts can be: let it be one, from where it is made."""
    if not isinstance(value, v.Record) or value.cls is not ByNode:
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
    return value.cls is ByNode and value.items[0] == graph


def refuse_view(s: LoweringState, value: v.Record) -> None:
    """Refuse to return what stands for a view."""
    if value.cls is ByNode:
        make_plain(s, value)
        s.refuse("a dict by nodes cannot be returned", "return the list of its values: [h[v] for v in g]")
    if value.cls is not None and value.cls.__module__.startswith(COMPILED):
        is_graph = value.cls.__name__ != "deque"
        what = "a view of a graph cannot be returned" if is_graph else "the result holds a deque that has memory"
        s.refuse(what, "return numbers, or lists: list(...)")


def refuse_unknown(s: LoweringState, value: v.Record, name: str) -> None:
    """Refuse what networkx or scipy has, and this compiler does not."""
    if value.cls is ByNode and not hasattr(value.cls, name) and name not in value.keys:
        make_plain(s, value)
    if value.cls in (Graph, Sparse) and not hasattr(value.cls, name) and name not in value.keys:
        if value.cls is Graph:
            s.refuse(f"{name!r} of a networkx graph cannot be compiled", PRECOMPUTE)
        s.refuse(f"{name!r} of a scipy sparse matrix cannot be compiled", "compute it before packing, or use its data")


Field = Callable[[LoweringState, v.Leaf, str], v.Abstract]


def packed_field(
    s: LoweringState, function: Any, args: Sequence[v.Abstract], load: Field, there: Field
) -> v.Abstract | None:
    """`graphs.field(raw, name)` and the like; None for other functions."""
    if function not in (field, has_field, unsupported):
        return None
    first, second = args
    assert isinstance(second, v.Static)
    if function is unsupported:
        assert isinstance(first, v.Static)
        s.refuse(f"{first.value} cannot be compiled", second.value)
    assert isinstance(first, v.Leaf)
    return (load if function is field else there)(s, first, second.value)
