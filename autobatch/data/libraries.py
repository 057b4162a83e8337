"""Objects of other libraries, as records of plain fields: networkx graphs and scipy sparse matrices.

A graph of class G has the fields, nodes and edges being positions in networkx's order,
    size          the number of nodes
    labels        the node labels, where they are not 0, 1, ..., size - 1
    adjacency     for each node its neighbours (its successors, in a directed graph)
    incidence     for each of them the edge to it, the last one in a multigraph
    predecessors  likewise, in a directed graph
    degrees       for each node; in_degrees and out_degrees in a directed graph
    sources       for each edge its first node, and its second one in targets; edge_keys in a multigraph
    node_<a>      for each node its attribute a, something of its type where it has none; likewise edge_<a>
    without_<..>  where the node or edge has none, for attributes that some have not
    graph_<a>     the attribute a of the graph

A sparse matrix has data, indices, indptr and shape, by rows. What functions see of both is in `graphs.py`.
"""

from __future__ import annotations

import enum
import sys
from typing import Any

import jax
import networkx as nx
import numpy as np


def is_library_object(x: Any) -> bool:
    """Is there a description of this object here?"""
    return isinstance(x, nx.Graph) or _is_sparse(x)


def _is_sparse(x: Any) -> bool:
    sparse = sys.modules.get("scipy.sparse")  # nobody holds a sparse matrix who has not imported it
    return sparse is not None and bool(sparse.issparse(x))


def describe_library_object(x: Any) -> dict[str, Any]:
    """The fields of a graph or a sparse matrix."""
    return _describe_graph(x) if isinstance(x, nx.Graph) else _describe_sparse(x)


def _describe_graph(graph: Any) -> dict[str, Any]:
    position = {label: i for i, label in enumerate(graph)}
    edges = list(graph.edges(keys=True)) if graph.is_multigraph() else list(graph.edges)
    number: dict[tuple[int, int], int] = {}
    for k, (u, v, *_) in enumerate(edges):
        number[position[u], position[v]] = k
        if not graph.is_directed():
            number[position[v], position[u]] = k
    adjacency = [[position[v] for v in graph.adj[u]] for u in graph]
    described: dict[str, Any] = {
        "size": len(position),
        "adjacency": adjacency,
        "incidence": [[number[u, v] for v in near] for u, near in enumerate(adjacency)],
        "degrees": [d for _, d in graph.degree],
        "sources": [position[e[0]] for e in edges],
        "targets": [position[e[1]] for e in edges],
    }
    if any(type(label) is not int or label != i for i, label in enumerate(graph)):
        described["labels"] = list(graph)
    if graph.is_directed():
        described["predecessors"] = [[position[v] for v in graph.pred[u]] for u in graph]
        described["in_degrees"] = [d for _, d in graph.in_degree]
        described["out_degrees"] = [d for _, d in graph.out_degree]
    if graph.is_multigraph():
        described["edge_keys"] = [e[2] for e in edges]
    node_data, edge_data = [graph.nodes[u] for u in graph], [graph.edges[e] for e in edges]
    for prefix, data in (("node", node_data), ("edge", edge_data)):
        for name in sorted({n for held in data for n in held}, key=str):
            column = [held.get(name) for held in data]
            if any(value is None for value in column):
                blank = _blank(next((value for value in column if value is not None), None))
                described[f"without_{prefix}_{name}"] = [value is None for value in column]
                column = [blank if value is None else value for value in column]
            described[f"{prefix}_{name}"] = column
    return described | {f"graph_{name}": value for name, value in graph.graph.items()}


def _blank(value: Any) -> Any:
    """What stands for a missing value beside such a one: leaves have no None in lists, references do."""
    if isinstance(value, (bool, int, float, complex, str)):
        return value if isinstance(value, enum.Enum) else type(value)()
    if isinstance(value, (np.ndarray, np.generic, jax.Array)):
        return np.zeros(value.shape, value.dtype)[()]
    return value if isinstance(value, enum.Enum) else None


INTEGER_LISTS = {
    **dict.fromkeys(("degrees", "in_degrees", "out_degrees", "sources", "targets"), 1),
    **dict.fromkeys(("adjacency", "incidence", "predecessors"), 2),
}
"""Fields of graphs that are lists of integers, so deep: without edges they do not show it."""


STRUCTURE = frozenset(("size", "labels", "sources", "targets", "edge_keys"))
"""Fields of graphs that say which nodes and edges there are."""


def _describe_sparse(matrix: Any) -> dict[str, Any]:
    rows = matrix.tocsr()
    return {
        "data": np.asarray(rows.data),
        "indices": np.asarray(rows.indices),
        "indptr": np.asarray(rows.indptr),
        "shape": tuple(int(n) for n in matrix.shape),
    }


def is_graph_class(cls: type) -> bool:
    """Are its instances networkx graphs?"""
    return issubclass(cls, nx.Graph)


def is_sparse_class(cls: type) -> bool:
    """Are its instances scipy sparse matrices or arrays?"""
    return cls.__module__.startswith("scipy.sparse")


def fill_graph(graph: Any, fields: dict[str, Any]) -> None:
    """Give an empty graph the nodes, edges and attributes that were described."""
    nodes, edges = (
        fields.get("labels", range(fields["size"])),
        list(zip(fields["sources"], fields["targets"], strict=True)),
    )
    attributes: dict[str, list[dict[str, Any]]] = {"node": [{} for _ in nodes], "edge": [{} for _ in edges]}
    for name, column in fields.items():
        prefix, _, attribute = name.partition("_")
        if prefix == "graph":
            graph.graph[attribute] = column
        if prefix in attributes and name != "edge_keys":
            missing = fields.get(f"without_{name}", [False] * len(column))
            for held, value, none in zip(attributes[prefix], column, missing, strict=True):
                if not none:
                    held[attribute] = value
    for label, held in zip(nodes, attributes["node"], strict=True):
        graph.add_node(label, **held)
    keys = fields.get("edge_keys")
    for i, ((u, v), held) in enumerate(zip(edges, attributes["edge"], strict=True)):
        if keys is None:
            graph.add_edge(nodes[u], nodes[v], **held)
        else:
            graph.add_edge(nodes[u], nodes[v], key=keys[i], **held)


def rebuild_sparse(cls: type, fields: dict[str, Any]) -> Any:
    """The sparse matrix that was described."""
    sparse = sys.modules["scipy.sparse"]  # imported, since its class is
    arrays = fields["data"], fields["indices"], fields["indptr"]
    rows = sparse.csr_array(arrays, shape=tuple(fields["shape"]))
    rows.check_format()  # SciPy's C++ trusts the indices
    return cls(rows)


def is_row_matrix(cls: type) -> bool:
    """Does a class of scipy keep sparse matrices by rows?"""
    return is_sparse_class(cls) and cls.__name__.startswith("csr")
