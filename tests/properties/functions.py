"""Functions for one example, written the way users write them.

Each is run on batches that Hypothesis draws and compared with the plain Python loop (`test_equivalence.py`).
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np

import autobatch as ab
from tests.properties.strategies import Add, Block, Item, Many, Mul, Neg, Node, Num, Var, Vertex


def params(size: int = 3) -> dict[str, np.ndarray]:
    """Parameters of all functions: an embedding, square matrices, a bias and a head of two classes."""
    rng = np.random.default_rng(7)
    held = {name: rng.normal(size=(size, size)) for name in ("U", "V", "W")}
    held["emb"] = rng.normal(size=(5, size))
    held["b"] = rng.normal(size=size)
    held["out"] = rng.normal(size=(size, 2))
    return held


# ---- up, down, and both


@ab.batched(in_axes=(None, 0))
def bottom_up(p, t: Node):
    if t.left is None:
        return jnp.tanh(p["emb"][t.word] * t.x)
    return jnp.tanh(p["U"] @ bottom_up(p, t.left) + p["V"] @ bottom_up(p, t.right) + p["b"] * t.x)


@ab.batched(in_axes=(None, 0))
def with_loss(p, t: Node):
    """State and the summed loss of every node, out of one recursion."""
    if t.left is None:
        h, below = jnp.tanh(p["emb"][t.word]), 0.0
    else:
        left, a = with_loss(p, t.left)
        right, b = with_loss(p, t.right)
        h, below = jnp.tanh(p["U"] @ left + p["V"] @ right), a + b
    return h, below - jax.nn.log_softmax(h @ p["out"])[t.word % 2]


@ab.batched(in_axes=(None, 0))
def unary_chains(p, t: Node):
    if t.left is None:
        return p["emb"][t.word]
    if t.right is None:
        return unary_chains(p, t.left)
    return jnp.sin(unary_chains(p, t.left) - p["W"] @ unary_chains(p, t.right))


@ab.batched(in_axes=(None, 0))
def child_sum(p, t: Many):
    total = p["b"] * 0.0
    for kid in t.kids:
        total = total + child_sum(p, kid)
    return jnp.tanh(p["W"] @ total + t.x)


@ab.batched(in_axes=(None, 0))
def child_reduction(p, t: Many):
    """Children through a comprehension, all of the reductions."""
    states = [child_reduction(p, kid) for kid in t.kids]
    top = max([s[0] for s in states], default=0.25)
    low = min([s[1] for s in states], default=-0.25)
    return jnp.tanh(p["U"] @ sum([jnp.tanh(s) for s in states], p["b"]) + top - low * t.x)


@ab.batched(in_axes=(None, 0))
def child_fold(p, t: Many):
    """A loop over children whose body calls, each turn reading the turn before."""
    h = p["b"] * t.x
    for kid in t.kids:
        h = jnp.tanh(p["U"] @ h + p["V"] @ child_fold(p, kid))
    return h


def down(p, t, depth, context):
    here = jnp.tanh(p["W"] @ context + t.x)
    if t.left is None:
        return here * depth, depth
    left, a = down(p, t.left, depth + 1, here)
    right, b = down(p, t.right, depth + 1, here * 0.5)
    return jnp.tanh(p["U"] @ left + p["V"] @ right) + here, max(a, b)


@ab.batched(in_axes=(None, 0))
def down_then_up(p, t: Node):
    return down(p, t, 0, p["b"])


def annotate(p, t, context):
    """Only down: the sum over the leaves of what reaches them."""
    here = jnp.tanh(p["W"] @ context) * t.x
    if t.left is None:
        return here.sum()
    return annotate(p, t.left, here) + annotate(p, t.right, here + 1)


@ab.batched(in_axes=(None, 0))
def top_down(p, t: Node):
    return annotate(p, t, p["b"])


def thread(p, t, state):
    if t.left is None:
        return jnp.tanh(p["U"] @ state + p["emb"][t.word])
    between = thread(p, t.left, state)
    return thread(p, t.right, jnp.cos(p["V"] @ between + t.x))


@ab.batched(in_axes=(None, 0))
def chained(p, t: Node):
    """The result of the left call is handed to the right call."""
    return thread(p, t, p["b"])


def twice(p, t, state):
    if t.left is None:
        return state * t.x + 1
    a = twice(p, t.left, state)
    b = twice(p, t.right, a + state)
    return twice(p, t.left, b * 0.5) + a


@ab.batched(in_axes=(None, 0))
def chained_thrice(p, t: Node):
    """Three calls behind one another, the first child visited twice with other numbers."""
    return twice(p, t, p["b"].sum())


# ---- sequences


@ab.batched(in_axes=(None, 0))
def forward(p, words: list[int]):
    h = p["b"]
    for w in words:
        h = jnp.tanh(p["W"] @ h + p["emb"][w])
    return h @ p["out"]


@ab.batched(in_axes=(None, 0))
def joined(p, words: list[int]):
    """Forward and backward over the tokens, and the two joined at each token."""
    h, there = p["b"], []
    for w in words:
        h = jnp.tanh(p["U"] @ h + p["emb"][w])
        there.append(h)
    g, back = p["b"], []
    for w in reversed(words):
        g = jnp.tanh(p["V"] @ g + p["emb"][w])
        back.append(g)
    return [jnp.concatenate([a, b]) for a, b in zip(there, reversed(back))]


def follow(p, words, at, h):
    if at == len(words):
        return h
    return follow(p, words, at + 1, jnp.sin(p["W"] @ h) + p["emb"][words[at]])


@ab.batched(in_axes=(None, 0))
def tail_recursion(p, words: list[int]):
    return follow(p, words, 0, p["b"])


@ab.batched(in_axes=(None, 0))
def nested_loops(p, sentences: list[list[list[int]]]):
    """Sentences of words of characters, a recurrence at each of the three levels."""
    text = p["b"]
    for sentence in sentences:
        h = p["b"] * 0.0
        for word in sentence:
            c = p["b"] + 1
            for character in word:
                c = jnp.tanh(p["U"] @ c + p["emb"][character])
            h = jnp.tanh(p["V"] @ h + c)
        text = jnp.sin(p["W"] @ text + h)
    return text


@ab.batched(in_axes=(None, 0))
def ragged_results(p, words: list[int]):
    """A list of lists of numbers, a list of ints, and a number."""
    table = [[w * v for v in words if v > w] for w in words]
    return {"table": table, "next": [w + 1 for w in words], "norm": sum([p["emb"][w] @ p["b"] for w in words])}


@ab.batched(in_axes=(None, 0))
def interrupted(p, items: list[Item]):
    """break, continue, an early return and an else, all decided by data."""
    h, seen = p["b"], 0
    for item in items:
        if item.kind == "skip":
            continue
        if item.kind == "stop" and item.n > 5:
            return h * 2, seen
        if item.n < -1:
            break
        h = jnp.tanh(p["W"] @ h + item.x)
        seen += item.n
    else:
        seen += 100
    return h, seen


@ab.batched(in_axes=(None, 0))
def searched(p, items: list[Item]):
    """while with a structural condition, over an index."""
    at, total = 0, 0.0
    while at < len(items) and items[at].kind != "stop":
        total = total + items[at].x * p["b"][0]
        at += 2 if items[at].n % 2 == 0 else 1
    return total, at


@ab.batched(in_axes=(None, 0))
def table_keys(p, items: list[Item]):
    """Strings as keys of a shared dict, and strings in the result."""
    matrices = {"go": p["U"], "skip": p["V"], "stop": p["W"]}
    h = p["b"]
    for item in items:
        h = jnp.tanh(matrices[item.kind] @ h)
    return h, items[-1].kind if items else "none"


# ---- several kinds, several arguments


@ab.batched(in_axes=(None, 0))
def evaluate(values, e):
    match e:
        case Num():
            return e.value
        case Var(index=index):
            return values[index]
        case Neg(arg=arg):
            return -evaluate(values, arg)
        case Add(left=left, right=right):
            return evaluate(values, left) + evaluate(values, right)
        case Mul(left=left, right=right):
            return evaluate(values, left) * evaluate(values, right)
        case _:
            raise TypeError("no expression")


@ab.batched(in_axes=(None, 0))
def simplified(values, e):
    """Three paths in one cycle by isinstance, with what the branches share behind the join."""
    if isinstance(e, (Num, Var)):
        size, x = 1, e.value if isinstance(e, Num) else values[e.index]
    elif isinstance(e, Neg):
        size, x = simplified(values, e.arg)
        x = -x
    else:
        a, x = simplified(values, e.left)
        b, y = simplified(values, e.right)
        size, x = a + b, x + y if isinstance(e, Add) else x * y
    return size + 1, jnp.tanh(x)


def run_block(p, block, state):
    for statement in block.body:
        state = run_statement(p, statement, state)
    return state


def run_statement(p, statement, state):
    if isinstance(statement, Block):
        return run_block(p, statement, jnp.tanh(state))
    return p["W"] @ state + run_value(p, statement.value, state)


def run_value(p, e, state):
    if isinstance(e, Num):
        return e.value
    if isinstance(e, Var):
        return state[e.index]
    if isinstance(e, Neg):
        return -run_value(p, e.arg, state)
    left, right = run_value(p, e.left, state), run_value(p, e.right, state)
    return left + right if isinstance(e, Add) else left * right


@ab.batched(in_axes=(None, 0))
def mutual(p, block: Block):
    return run_block(p, block, p["b"])


@ab.batched(in_axes=(None, 0, 0))
def two_trees(p, a: Node, b: Node):
    """Both trees at once, as deep as they agree."""
    if a.left is None or b.left is None:
        return a.x * p["b"] + b.x
    return jnp.tanh(p["U"] @ two_trees(p, a.left, b.left) + p["V"] @ two_trees(p, a.right, b.right))


@ab.batched
def fib(n: int):
    if n < 2:
        return n
    return fib(n - 1) + fib(n - 2)


@ab.batched(in_axes=(None, 0))
def float_fib(p, n: int):
    if n < 2:
        return p["b"]
    return jnp.tanh(float_fib(p, n - 1) + p["W"] @ float_fib(p, n - 2))


@ab.batched(in_axes=(None, 0))
def messages(p, vertices: list[Vertex]):
    """Two rounds of message passing: comprehensions that read neighbours."""
    h = [p["b"] * v.x for v in vertices]
    for _ in range(2):
        h = [jnp.tanh(p["W"] @ h[i] + sum([h[j] for j in v.near], p["b"])) for i, v in enumerate(vertices)]
    return h


@ab.batched(in_axes=(None, 0))
def message_rounds(p, vertices: list[Vertex]):
    """As many rounds as there are vertices."""
    h = [v.x for v in vertices]
    for _ in range(len(vertices)):
        h = [jnp.tanh(sum([h[j] for j in v.near]) * p["b"][0] + v.x) for v in vertices]
    return h


def measure(p, t):
    if t.left is None:
        return t.x * p["b"][0]
    return jnp.sin(measure(p, t.left) + measure(p, t.right))


@ab.batched(in_axes=(None, 0))
def called_from_elsewhere(p, t: Node):
    """`measure` is called recursively, from the entry, and from another recursion."""
    if t.left is None:
        return measure(p, t) * 2
    return called_from_elsewhere(p, t.left) + measure(p, t.right) * measure(p, t)


# ---- structure that decides


def size(t):
    return 1 if t.left is None else 1 + size(t.left) + size(t.right)


@ab.batched(in_axes=(None, 0))
def larger_first(p, t: Node):
    """The larger child first: control waits for structural results of calls."""
    if t.left is None:
        return p["emb"][t.word], t.x
    a, b = (t.left, t.right) if size(t.left) > size(t.right) else (t.right, t.left)
    h, x = larger_first(p, a)
    g, y = larger_first(p, b)
    return (jnp.tanh(p["U"] @ h + p["V"] @ g), x + y) if size(a) > 3 else (h - g, x * y)


@ab.batched(in_axes=(None, 0))
def filtered(p, t: Many):
    """Filters, any and all over children, recursion into some of them."""
    chosen = [kid for kid in t.kids if kid.name != "b" and (kid.kids or kid.x > 0)]
    total = sum([filtered(p, kid) for kid in chosen])
    if any(kid.name == "c" for kid in t.kids):
        total = total + 1
    if all(len(kid.kids) == 0 for kid in t.kids):
        return total * p["b"][0] + t.x
    return jnp.tanh(total) + len(chosen) + max([len(kid.kids) for kid in t.kids])


@ab.batched
def numbers(words: list[int]):
    """Integers only: exact, and Python's meaning of division for negative numbers."""
    total, product = 0, 1
    for k, w in enumerate(words):
        total += (w - 3) // 2 - (k - 5) % 3
        product = product * (w - 2) % 7
    best = max([w * w - 3 * w for w in words], default=-1)
    return {"total": total, "product": product, "best": best, "half": total / 2, "odd": total % 2 == 1}


@ab.batched
def kept_nodes(t: Node):
    """Nodes of the input as results: the deepest leaf on the left, None where there is no child."""
    node = t
    while node.left is not None:
        node = node.left
    return node, t.right, node.word


def last(t):
    return t if not t.kids else last(t.kids[-1])


@ab.batched(in_axes=(None, 0))
def of_a_found_node(p, t: Many):
    """What only the host knows (tags, lengths, None) of a node that a call has found, as numbers."""
    found = last(t)
    scale = {"a": 0.25, "b": t.x, "c": 0.5}[found.name]
    return scale * p["b"] + (found.name == t.name), p["b"] * len(found.kids) * (found is t)


@ab.batched(in_axes=(None, 0))
def lists_decide(p, t: Many):
    """Lists made by the function: their lengths and items decide control, their elements are numbers or not."""
    sizes = [len(kid.kids) for kid in t.kids]
    states = [lists_decide(p, kid) for kid in t.kids if kid.x > 0]
    wide = [s for s in sizes if s > 1]
    pair = [len(states), len(sizes) + 1]
    h = p["b"] if len(states) > 0 and len(wide) == 0 else p["b"] * t.x
    for k in range(pair[len(wide) % 2] % 4):
        h = jnp.tanh(h + (sizes[k] if k < len(sizes) else -1))
    return sum(states, h)


@ab.batched(in_axes=(None, 0))
def kept_or_called(p, t: Many):
    """A value of this activation, or the result of a call, behind the same join: it is read through a buffer."""
    below = sum([kept_or_called(p, kid) for kid in t.kids]) * p["b"][0]
    if t.kids and t.name == "a":
        below = kept_or_called(p, t.kids[-1]) + 1.0
    return jnp.tanh(below + t.x)


@ab.batched(in_axes=(None, 0))
def nan_in_data(p, t: Node):
    if t.left is None:
        return jnp.log(t.x) * p["b"]
    return nan_in_data(p, t.left) + nan_in_data(p, t.right)


def doubled(x):
    """Doubles until 10: never ends for a row of zeros."""
    return jax.lax.while_loop(lambda x: x < 10.0, lambda x: x * 2.0, x)


@ab.batched(in_axes=(None, 0))
def inner_numeric_loop(p, t: Node):
    """A loop on computed numbers inside each activation, in the recurrence and before it."""
    if t.left is None:
        return doubled(jnp.abs(t.x) + 0.1)
    own = doubled(jnp.abs(t.x) + 0.1)
    return doubled((inner_numeric_loop(p, t.left) + inner_numeric_loop(p, t.right)) / 25.0) + own / 10


@ab.batched(in_axes=(None, 0))
def closures(p, t: Many):
    """Local functions, lambdas and keyword arguments with defaults."""
    scale = t.x * 2

    def cell(h, *, gain=1.5, act=lambda x: jnp.tanh(x)):
        return act(p["W"] @ h) * gain + scale

    h = cell(p["b"])
    for k, kid in enumerate(t.kids):
        h = h + cell(closures(p, kid), gain=0.5) if k % 2 else h - cell(closures(p, kid), act=jnp.sin)
    return h


@ab.batched
def rounding(words: list[float]):
    """Python's round, int and math on structural and computed numbers."""
    return [(round(x), int(x), x // 0.5, math.floor(x), round(x * 10, 1)) for x in words]
