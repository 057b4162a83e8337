"""Structures that Hypothesis draws: the data of the equivalence tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

floats = st.floats(-2, 2, allow_subnormal=False).map(lambda x: round(x, 6))
words = st.integers(0, 4)


@dataclass
class Node:
    """A node with up to two children; `left` alone is a unary node."""

    x: float
    word: int = 0
    left: Node | None = None
    right: Node | None = None


@dataclass
class Many:
    """A node with any number of children."""

    x: float
    kids: list[Many] = field(default_factory=list)
    name: str = "a"


@dataclass
class Num:
    value: float


@dataclass
class Var:
    index: int


@dataclass
class Neg:
    arg: Expression


@dataclass
class Add:
    left: Expression
    right: Expression


@dataclass
class Mul:
    left: Expression
    right: Expression


Expression = Num | Var | Neg | Add | Mul


@dataclass
class Vertex:
    """A vertex of a graph; `near` are positions in the graph's list of vertices."""

    x: float
    near: list[int]


@dataclass
class Item:
    """A token: what a loop should do with it, and a number."""

    kind: str
    n: int
    x: float


@dataclass
class Block:
    """Statements that hold statements: mutual recursion of two kinds."""

    body: list[Block | Assign]


@dataclass
class Assign:
    value: Expression


@st.composite
def shapes(draw: Any, leaves: int) -> Any:
    """A random binary bracketing of some leaves, as nested tuples; long ones are drawn as one list of integers."""
    count = draw(st.integers(1, leaves))
    parts: list[Any] = [None] * count
    while len(parts) > 1:
        at = draw(st.integers(0, len(parts) - 2))
        parts[at : at + 2] = [(parts[at], parts[at + 1])]
    return parts[0]


@st.composite
def trees(draw: Any, leaves: int = 6) -> Node:
    """Full binary trees: every node has two children or none."""

    def build(shape: Any) -> Node:
        node = Node(draw(floats), draw(words))
        if shape is not None:
            node.left, node.right = build(shape[0]), build(shape[1])
        return node

    return build(draw(shapes(leaves)))


@st.composite
def unary_trees(draw: Any, leaves: int = 5) -> Node:
    """Binary trees in which any node may sit on a chain of nodes with one child."""

    def build(shape: Any) -> Node:
        node = Node(draw(floats), draw(words))
        if shape is not None:
            node.left, node.right = build(shape[0]), build(shape[1])
        for _ in range(draw(st.sampled_from([0, 0, 1, 2, 5]))):
            node = Node(draw(floats), draw(words), node)
        return node

    return build(draw(shapes(leaves)))


@st.composite
def dags(draw: Any, nodes: int = 8) -> Node:
    """Nodes whose children are drawn from the nodes made before them."""
    made = [Node(draw(floats), draw(words))]
    for _ in range(draw(st.integers(0, nodes))):
        node = Node(draw(floats), draw(words))
        if draw(st.integers(0, 3)):
            node.left, node.right = draw(st.sampled_from(made)), draw(st.sampled_from(made))
        made.append(node)
    return made[-1]


@st.composite
def many_trees(draw: Any, nodes: int = 8) -> Many:
    """Trees with any number of children, wide ones too."""
    made = [Many(draw(floats), [], draw(st.sampled_from("abc")))]
    for _ in range(draw(st.integers(0, nodes))):
        node = Many(draw(floats), [], draw(st.sampled_from("abc")))
        draw(st.sampled_from(made)).kids.append(node)
        made.append(node)
    return made[0]


def expressions(leaves: int = 6) -> st.SearchStrategy[Any]:
    """Arithmetic over three variables, a class for each operation."""
    terms = st.builds(Num, floats) | st.builds(Var, st.integers(0, 2))

    def extend(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return st.builds(Neg, inner) | st.builds(Add, inner, inner) | st.builds(Mul, inner, inner)

    return st.recursive(terms, extend, max_leaves=leaves)


def programs_of_blocks(leaves: int = 6) -> st.SearchStrategy[Block]:
    """Statements and blocks of statements."""
    assigns = st.builds(Assign, expressions(3))
    inner = st.recursive(assigns, lambda s: st.builds(Block, st.lists(s, max_size=3)), max_leaves=leaves)
    return st.builds(Block, st.lists(inner, max_size=3))


@st.composite
def graphs(draw: Any, vertices: int = 6) -> list[Vertex]:
    """Vertices with neighbours in both directions, loops and repeats allowed."""
    count = draw(st.integers(1, vertices))
    near = st.lists(st.integers(0, count - 1), max_size=3)
    return [Vertex(draw(floats), draw(near)) for _ in range(count)]


def tokens(most: int = 7) -> st.SearchStrategy[list[int]]:
    return st.lists(words, max_size=most)


def rounded(most: int = 6) -> st.SearchStrategy[list[float]]:
    """Numbers to round to a digit after they were multiplied by ten. None lies on a tie of that: 0.005 times ten is
    above 0.05 in Python's double precision and below it in single, so 0.1 and 0.0 are both right."""
    return st.lists(floats.filter(lambda x: abs(x * 100 % 1 - 0.5) > 1e-3), max_size=most)


def sentences() -> st.SearchStrategy[list[list[list[int]]]]:
    """Sentences of words of characters."""
    return st.lists(st.lists(st.lists(words, max_size=3), max_size=3), max_size=3)


def items(most: int = 6) -> st.SearchStrategy[list[Item]]:
    return st.lists(st.builds(Item, st.sampled_from(["go", "skip", "stop"]), st.integers(-3, 9), floats), max_size=most)


def batches(example: st.SearchStrategy[Any], size: int) -> st.SearchStrategy[list[Any]]:
    """Batches of one size: sizes are a part of what an executable is compiled for."""
    return st.lists(example, min_size=size, max_size=size)


def perfect(depth: int, x: float = 0.5) -> Node:
    """A perfect tree: levels of 2**depth, ..., 2, 1 nodes."""
    if depth == 0:
        return Node(x, depth)
    return Node(x, depth % 5, perfect(depth - 1, x * 0.9), perfect(depth - 1, x * 0.8))


def ladder(depth: int) -> Node:
    """A DAG of `depth` nodes with 2**depth paths: both children of a node are the node below."""
    node = Node(0.25, 1)
    for k in range(depth - 1):
        node = Node(0.5 + k / 1000, k % 5, node, node)
    return node


def chain(values: Sequence[float]) -> Node:
    """Nodes on a line, the last value at the bottom."""
    node = None
    for x in reversed(values):
        node = Node(x, 0, node)
    assert node is not None
    return node
