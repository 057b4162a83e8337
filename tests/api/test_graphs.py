"""networkx graphs and scipy sparse matrices as examples: functions use them as they would in plain Python."""

from typing import Any

import jax
import jax.numpy as jnp
import networkx as nx
import numpy as np
import pytest

import autobatch as ab
from tests.passes.frames.programs import prepared


def line(n: int, cls: Any = nx.Graph, names: str = "") -> Any:
    """A path of n nodes with attributes."""
    g = cls(bias=0.5 * n)
    label = (lambda i: names[i]) if names else (lambda i: i)
    for i in range(n):
        g.add_node(label(i), x=float(i + 1), h=np.full(2, i, np.float32))
    for i in range(n - 1):
        g.add_edge(label(i), label(i + 1), w=float(i + 1))
    return g


GRAPHS = [line(3), line(5), nx.star_graph(3)]
for node in GRAPHS[2]:
    GRAPHS[2].nodes[node].update(x=2.0 * node, h=np.ones(2, np.float32))
for k, edge in enumerate(GRAPHS[2].edges):
    GRAPHS[2].edges[edge]["w"] = 0.5 * k
    GRAPHS[2].graph["bias"] = 1.0
DIRECTED = [line(3, nx.DiGraph), nx.DiGraph([(0, 1), (0, 2), (1, 2)])]
for node in DIRECTED[1]:
    DIRECTED[1].nodes[node]["x"] = node + 0.5


def agrees(function: Any, graphs: Any, **named: Any) -> None:
    f = ab.batched(function, **named)
    wanted = f.loop(graphs)
    for got in (f(graphs), f(ab.pack(graphs)), f(ab.pack([*graphs, *graphs])[len(graphs) :])):
        for a, b in zip(ab.unbatch(got), wanted, strict=True):
            if isinstance(b, list):
                assert len(a) == len(b)
            np.testing.assert_allclose(a, b, rtol=1e-5)


def rounds(g: Any) -> Any:
    h = [g.nodes[v]["h"] for v in g]
    for _ in range(2):
        h = [jnp.tanh(sum((h[u] for u in g[v]), jnp.zeros(2)) + h[v]) for v in g]
    return sum(h)


def rounds_by_node(g: Any) -> Any:
    h = {v: g.nodes[v]["h"] for v in g.nodes}
    for _ in range(3):
        h = {v: jnp.tanh(sum((h[u] for u in g.neighbors(v)), jnp.zeros(2)) + h[v]) for v in h}
    return sum(h.values()) * len(h)


def items_of_rounds(g: Any) -> Any:
    """Lists of arrays that the host knows are arguments of what it computes."""
    h = {v: g.nodes[v]["h"] for v in g.nodes}
    h = {v: jnp.tanh(sum((h[u] for u in g[v]), jnp.zeros(2))) for v in g}
    return sum(x for v, x in h.items())


def rounds_of_items(g: Any) -> Any:
    """As many write it: dicts that a loop over the nodes fills; names of nodes are used again."""
    h = {}
    for v in g.nodes:
        h[v] = g.nodes[v]["h"]
    for _ in range(3):
        new, total = {}, {}
        for v in g.nodes:
            near = jnp.zeros(2)
            for u in g.neighbors(v):
                near = near + h[u]
            total[v] = jnp.sum(near)
            new[v] = jnp.tanh(near + h[v])
        h = {}
        for v, x in new.items():
            h[v] = x * total[v]
    return sum(h[v] for v in g)


def attention(g: Any) -> Any:
    found: Any = dict()
    for v, data in g.nodes(data=True):
        weights = [jnp.exp(jnp.sum(data["h"] * g.nodes[u]["h"])) for u in g[v]]
        found[v] = sum(w * g.nodes[u]["h"] for w, u in zip(weights, g[v], strict=True)) / (1.0 + sum(weights))
    return sum(found.values())


EVERYWHERE = [
    lambda g: len(g) + g.number_of_nodes() * 10 + g.order() * 100 + len(g.nodes),
    lambda g: g.number_of_edges() + g.size() * 10 + len(g.edges),
    lambda g: sum(g.nodes[v]["x"] for v in g),
    lambda g: sum(g.nodes[v]["x"] for v in g.nodes),
    lambda g: sum(data["x"] for v, data in g.nodes(data=True)),
    lambda g: sum(x for v, x in g.nodes(data="x")) + sum(x for v, x in g.nodes.data("x")),
    lambda g: sum(data["x"] for data in g.nodes.values()),
    lambda g: sum(sum(g.nodes[u]["x"] * g.nodes[v]["x"] for u in g.neighbors(v)) for v in g),
    lambda g: sum(sum(g.nodes[u]["x"] for u in g[v]) * len(g[v]) for v in g),
    lambda g: sum(sum(g.nodes[u]["x"] for u in g.adj[v]) for v in g),
    lambda g: sum(data["w"] * g.nodes[u]["x"] for v in g for u, data in g[v].items()),
    lambda g: sum(g.nodes[u]["x"] - g.nodes[v]["x"] for u, v in g.edges),
    lambda g: sum(data["w"] for u, v, data in g.edges(data=True)),
    lambda g: sum(w * g.nodes[v]["x"] for u, v, w in g.edges(data="w")),
    lambda g: sum(g.edges[u, v]["w"] + g[u][v]["w"] for u, v in g.edges()),
    lambda g: sum(g.degree[v] * g.nodes[v]["x"] + g.degree(v) for v in g),
    lambda g: sum(d for v, d in g.degree) + sum(d for v, d in g.degree()),
    lambda g: [g.degree[v] for v in g],
    lambda g: g.graph["bias"] + g.graph.get("nothing", 1.0) + ("bias" in g.graph) + ("other" in g.graph),
    lambda g: sum(1 for v in g if "x" in g.nodes[v]) + sum(g.nodes[v].get("y", 0.25) for v in g),
    lambda g: (1 if g.is_directed() else 2) + (10 if g.is_multigraph() else 20),
    lambda g: sum(x * v for v, x in {v: g.nodes[v]["x"] for v in g.nodes}.items()),
    rounds,
    rounds_by_node,
    items_of_rounds,
    rounds_of_items,
    attention,
]


@pytest.mark.parametrize("function", EVERYWHERE)
def test_views_and_methods(function: Any) -> None:
    agrees(function, GRAPHS)


@pytest.mark.parametrize("function", [EVERYWHERE[k] for k in (2, 7, 14, 16)] + [rounds_by_node, rounds_of_items])
def test_labels_that_are_names(function: Any) -> None:
    agrees(function, [line(3, names="abc"), line(4, names="dbca")])
    agrees(lambda g: g.nodes["b"]["x"] + ("c" in g) + ("z" in g), [line(3, names="abc"), line(4, names="dbca")])


def test_rounds_are_maps_over_nodes() -> None:
    """Each is one product over all nodes of all graphs, however it is written: no level is walked."""

    def by_loops(w: Any, g: Any) -> Any:
        h = {}
        for v in g.nodes:
            h[v] = g.nodes[v]["h"]
        for _ in range(3):
            new = {}
            for v in g.nodes:
                near = sum((h[u] for u in g.neighbors(v)), jnp.zeros(2))
                new[v] = jnp.tanh(w @ near)
            h = new
        return sum(h.values())

    f = ab.batched(by_loops, in_axes=(None, 0), backend="xla")
    w = np.array([[0.5, -1.0], [0.25, 0.75]], np.float32)
    np.testing.assert_allclose(f(w, GRAPHS), f.loop(w, GRAPHS), rtol=1e-5)
    found = f.explain(w, GRAPHS).data
    assert [p for p in found["products"] if p["place"]["kind"] == "level"] == []
    assert len(found["products"]) == 3 and found["recurrences"] == []


def test_rounds_have_room_for_the_neighbours_of_nodes_that_differ() -> None:
    """In 40 equal rings all nodes compute the same: one row a round, and two neighbours of it."""
    rings = [nx.cycle_graph(12) for _ in range(40)]
    for g in rings:
        nx.set_node_attributes(g, 1, "kind")
    table = np.array([[0.5, -1.0], [0.25, 0.75]], np.float32)

    def by_kind(table: Any, g: Any) -> Any:
        h = {v: table[g.nodes[v]["kind"]] for v in g.nodes}
        for _ in range(2):
            h = {v: jnp.tanh(sum((h[u] for u in g.neighbors(v)), jnp.zeros(2))) for v in g.nodes}
        return sum(h.values())

    f = ab.batched(by_kind, in_axes=(None, 0), backend="xla")
    np.testing.assert_allclose(f(table, rings), f.loop(table, rings), rtol=1e-5)
    held = prepared(f, table, rings)
    capacity = held.ready.signature.capacity
    room = [capacity[fold.elements] for fold in held.program.compiled.request.folds]
    assert room == [16, 16, 16], "two neighbours, twice, and the nodes of one ring in the last sum"


def test_items_of_some_nodes_are_not_those_of_all() -> None:
    """A dict that a loop may leave without the items of some nodes is none by nodes."""

    def some(g: Any) -> Any:
        h = {}
        for v in g.nodes:
            if v != 0:
                h[v] = 2.0
        return len(h) + sum(h.values())

    with ab.options(trace=True):
        agrees(some, GRAPHS)


def spanning(w: Any, g: Any) -> Any:
    """Kruskal's tree, by sets of nodes that find each other through a dict."""

    def find(parent: Any, a: Any) -> Any:
        while parent[a] != a:
            parent[a] = parent[parent[a]]
            a = parent[a]
        return a

    parent = {a: a for a in g.nodes}
    total = 0.0 * w
    for a, b in sorted(g.edges, key=lambda e: -w * g.edges[e]["w"]):
        first, second = find(parent, a), find(parent, b)
        if first != second:
            parent[first] = second
            total = total * 0.5 + g.edges[a, b]["w"] * w
    return total


def relaxed(w: Any, g: Any) -> Any:
    """The distances of Bellman and Ford."""
    distance = {}
    for a in g:
        distance[a] = 1000.0 + 0 * w
    distance[0] = w * 0.0
    for _ in range(len(g) - 1):
        for a, b, edge in g.edges(data=True):
            if distance[a] + edge["w"] * w < distance[b]:
                distance[b] = distance[a] + edge["w"] * w
    return sum(x for x in distance.values() if x < 500)


def emptied(w: Any, g: Any) -> Any:
    left = {a: w * g.nodes[a]["x"] for a in g}
    other = left.copy()
    total = w * 0
    while len(left) > 1:
        a = min(left, key=lambda b: left[b])
        total = total * 0.5 + left.pop(a) + other[a]
        if total > 100:
            del left[a]
    return total


def mapped_and_changed(w: Any, g: Any) -> Any:
    """`h` stays a map over nodes; `best` is a dict like others."""
    h = {a: g.nodes[a]["x"] * w for a in g}
    for _ in range(2):
        h = {a: jnp.tanh(sum((h[b] for b in g[a]), 0.0)) for a in g}
    best = {a: 0 for a in g}
    for a in g:
        if h[a] > 0.5:
            best[a] += 1
    return sum(h[a] * best[a] for a in g)


@pytest.mark.parametrize(
    "function", [pytest.param(spanning, marks=pytest.mark.long), relaxed, emptied, mapped_and_changed]
)
def test_dicts_by_nodes_that_are_changed(function: Any) -> None:
    """Where numbers decide: dicts by nodes are such ones no more."""
    for backend in ("interpret", "llvm"):
        f = ab.batched(function, in_axes=(None, 0), backend=backend)
        np.testing.assert_allclose(f(jnp.float32(0.7), GRAPHS), f.loop(jnp.float32(0.7), GRAPHS), rtol=1e-5)


def test_the_derivative_of_a_dict_by_nodes_that_is_changed() -> None:
    f = ab.batched(mapped_and_changed, in_axes=(None, 0), backend="interpret")
    step = 1e-2
    up, down = (np.sum(f(jnp.float32(0.7 + x), GRAPHS)) for x in (step, -step))
    np.testing.assert_allclose(ab.grad(f)(jnp.float32(0.7), GRAPHS), (up - down) / (2 * step), rtol=1e-2, atol=1e-2)


def test_numbers_that_are_nodes() -> None:
    agrees(lambda g: sum(v * g.nodes[v]["x"] for v in g), GRAPHS)
    agrees(lambda g: (3 in g) + 2 * g.has_node(1) + 4 * g.has_edge(0, 1) + 8 * g.has_edge(1, 2), GRAPHS)
    agrees(lambda g: sum(v for v in g[1]) + (2 in g[1]) + 10 * ((1, 2) in g.edges), GRAPHS)
    shifted = [nx.relabel_nodes(g, lambda v: v + 7) for g in GRAPHS]
    agrees(lambda g: sum(v * g.nodes[v]["x"] + g.nodes[7]["x"] for v in g), shifted)


@pytest.mark.parametrize(
    "function",
    [
        lambda g: sum(g.nodes[u]["x"] * (v + 1) for v in g for u in g.successors(v)),
        lambda g: sum(g.nodes[u]["x"] * (v + 1) for v in g for u in g.predecessors(v)),
        lambda g: sum(g.in_degree(v) * 2 + g.out_degree[v] * 3 + g.degree(v) for v in g),
        lambda g: sum(len(g.pred[v]) + 2 * len(g.succ[v]) for v in g),
        lambda g: 1 if g.is_directed() else 2,
        lambda g: g.has_successor(0, 1) + 2 * g.has_predecessor(0, 1),
    ],
)
def test_directed(function: Any) -> None:
    agrees(function, DIRECTED)


def test_recursion_over_successors() -> None:
    def below(g: Any, v: Any) -> Any:
        return g.nodes[v]["x"] + sum(below(g, u) for u in g.successors(v))

    agrees(lambda g: below(g, 0), DIRECTED)


def test_multigraphs() -> None:
    several = [nx.MultiGraph(), nx.MultiGraph()]
    several[0].add_edges_from([(0, 1, {"w": 1.0}), (0, 1, {"w": 2.0}), (1, 2, {"w": 3.0})])
    several[1].add_edges_from([(0, 1, {"w": 4.0}), (1, 1, {"w": 5.0})])
    agrees(lambda g: sum(data["w"] for u, v, data in g.edges(data=True)) + sum(g.degree(v) for v in g), several)
    agrees(lambda g: sum(len(g[v]) * (v + 1) for v in g) + g.number_of_edges(), several)
    with pytest.raises(ab.UnsupportedError, match=r"(?s)g\[u\]\[v\] of a multigraph.*g\.edges\(data=True\)"):
        ab.batched(lambda g: g[0][1][0]["w"])(several)


def test_graphs_without_nodes_or_edges() -> None:
    lonely = nx.Graph()
    lonely.add_node(0, x=3.0)
    agrees(lambda g: sum(g.nodes[v]["x"] for v in g) + 0.0, [lonely])
    agrees(lambda g: sum(g.nodes[v]["x"] for v in g) + 0.0, [nx.Graph(), lonely, *GRAPHS])
    agrees(lambda g: sum(len(g[v]) for v in g) + g.number_of_edges(), [lonely, nx.Graph()])


def test_attributes_that_some_nodes_have() -> None:
    g = line(3)
    g.nodes[1]["y"] = 5.0
    g.edges[0, 1]["cost"] = 2.0
    agrees(lambda g: sum(g.nodes[v].get("y", 1.0) for v in g) + sum(("y" in g.nodes[v]) * 7 for v in g), [g, line(2)])
    agrees(lambda g: sum(data.get("cost", 0.5) for u, v, data in g.edges(data=True)), [g, line(2)])
    with pytest.raises(ab.ExampleError, match="(?s)2 of .*KeyError: y"):
        ab.batched(lambda g: g.nodes[0]["y"])([g, line(2)])


def test_what_is_packed_comes_back(tmp_path: Any) -> None:
    g = line(3, nx.DiGraph)
    g.nodes[1]["y"] = 5.0
    graphs = [*GRAPHS, g, line(3, names="abc"), nx.MultiGraph([(0, 1), (0, 1)]), nx.Graph()]
    batch = ab.pack(graphs)
    batch.save(tmp_path / "graphs")
    for held in (batch, ab.load(tmp_path / "graphs")):
        for a, b in zip(held, graphs, strict=True):
            assert type(a) is type(b)
            assert list(a) == list(b)
            assert list(a.edges) == list(b.edges)
            assert a.graph == b.graph


def test_under_jit_and_slices() -> None:
    f = ab.batched(rounds_by_node)
    data = ab.pack(GRAPHS).plan(f)
    np.testing.assert_allclose(jax.jit(f)(data[[2, 0]]), np.asarray(f(data))[[2, 0]], rtol=1e-5)


def test_the_reference_back_end() -> None:
    agrees(rounds_by_node, GRAPHS, backend="interpret")


def test_graphs_inside_other_data() -> None:
    agrees(lambda t: sum(t[0].nodes[v]["x"] for v in t[0]) * t[1], [(GRAPHS[0], 2.0), (GRAPHS[1], 3.0)])
    agrees(lambda gs: sum(len(g) for g in gs), [GRAPHS, GRAPHS[:1]])


def test_a_dict_by_nodes_as_result() -> None:
    f = ab.batched(lambda g: {v: 1.0 for v in g})
    assert ab.unbatch(f(GRAPHS)) == f.loop(GRAPHS)


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda g: g.subgraph([0]), "'subgraph' of a networkx graph cannot be compiled.*compute it before packing"),
        (lambda g: g.add_node(9), "'add_node' of a networkx graph cannot be compiled"),
        (lambda g: g.degree(0, weight="w"), "a weighted degree cannot be compiled"),
        (lambda g: nx.density(g), r"density\(\) cannot be traced"),
        (lambda g: g.nodes, "a view of a graph cannot be returned"),
    ],
)
def test_what_is_refused(function: Any, words: str) -> None:
    with pytest.raises(ab.UnsupportedError, match=f"(?s){words}"):
        ab.batched(function)(GRAPHS)


def test_nodes_that_are_not_there() -> None:
    with pytest.raises(ab.ExampleError, match="(?s)2 of .*KeyError: the node is not in the graph") as caught:
        ab.batched(lambda g: g.nodes[4]["x"])(GRAPHS)
    assert [f.index for f in caught.value.failures] == [0, 2]


# ---- sparse matrices

sparse = pytest.importorskip("scipy.sparse")
MATRICES = [
    sparse.csr_array(np.eye(3, dtype=np.float32)),
    sparse.csr_array(np.arange(4.0, dtype=np.float32).reshape(2, 2)),
]


@pytest.mark.parametrize(
    "function",
    [
        lambda m: sum(m.data) + m.nnz + m.shape[0] * 10 + m.shape[1],
        lambda m: m.sum(),
        lambda m: sum(m.data[k] * m.indices[k] for i in range(m.shape[0]) for k in range(m.indptr[i], m.indptr[i + 1])),
        lambda m: [sum(m.data[k] for k in range(m.indptr[i], m.indptr[i + 1])) for i in range(m.shape[0])],
    ],
)
def test_sparse_matrices(function: Any) -> None:
    agrees(function, MATRICES)


def test_products_of_sparse_matrices() -> None:
    tall = [sparse.random_array((n, 3), density=0.5, format="csr", dtype=np.float32, rng=n) for n in (2, 4, 1)]
    w, table = np.arange(1.0, 4.0, dtype=np.float32), np.arange(6.0, dtype=np.float32).reshape(3, 2)
    agrees(lambda m: m @ w, tall)
    agrees(lambda m: (m @ w).sum(), [m.tocsc() for m in tall])
    agrees(lambda m: (m @ table).sum() + m.dot(w).max(), tall)


def test_sparse_matrices_of_other_forms() -> None:
    columns = [m.tocsc() for m in MATRICES]
    agrees(lambda m: m.sum() + m.nnz, columns)
    with pytest.raises(ab.UnsupportedError, match=r"(?s)not by rows cannot be compiled.*tocsr\(\)"):
        ab.batched(lambda m: sum(m.data))(columns)
    with pytest.raises(ab.UnsupportedError, match="'toarray' of a scipy sparse matrix cannot be compiled"):
        ab.batched(lambda m: m.toarray())(MATRICES)


def squares(w: Any, g: Any) -> Any:
    return w * sum(a["weight"] ** 2 for _, _, a in g.edges(data=True)) + sum(
        held["x"] for _, held in g.nodes(data=True)
    )


@pytest.mark.parametrize("labels", [range(3), "abc", [(0, 1), (1, 0), (1, 1)]])
def test_derivatives_by_graphs_are_graphs(labels: Any) -> None:
    """Their nodes and edges are those of the graphs: it failed, for want of the integers that say which these are."""
    a, b, c = labels
    graph = nx.Graph()
    graph.add_nodes_from([(a, {"x": 1.0, "kind": 3}), (b, {"x": 2.0, "kind": 4}), (c, {"x": 3.0, "kind": 5})])
    graph.add_edge(a, b, weight=0.5)
    graph.add_edge(c, b, weight=2.0)
    f = ab.batched(squares, in_axes=(None, 0))
    (found,) = list(ab.grad(lambda w, graphs: jnp.sum(f(w, graphs)), argnums=1)(jnp.float32(3.0), f.pack([graph])))
    assert list(found) == [a, b, c] and set(map(frozenset, found.edges)) == {frozenset((a, b)), frozenset((b, c))}
    assert {frozenset(e): float(found.edges[e]["weight"]) for e in found.edges} == {
        frozenset((a, b)): 3.0,
        frozenset((b, c)): 12.0,
    }
    assert [(float(held["x"]), held["kind"]) for _, held in found.nodes(data=True)] == [(1.0, None)] * 3
