"""Programs of many kinds, each written for one example: what `python -m benchmarks.choice` runs.

`wrt`: the argument that the derivative of the sum of the results is taken by; None: the program has none. `packed`: are
lists packed before the call, as training does it? Else each call packs them.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.simd.programs.expressions import ADD, NUMBER, SINE, VARIABLE, expressions

STEPS = 8


@dataclass(frozen=True)
class Case:
    """A function for one example, its axes, and its arguments."""

    name: str
    function: Callable[..., Any]
    in_axes: Any
    arguments: tuple[Any, ...]
    wrt: int | None = None
    packed: bool = False
    trace: bool = False
    """May structure be found by running the function with symbols, where it does not compile?"""


# ---- numbers


def settled(x: Any) -> Any:
    """A loop that numbers end."""
    turns = 0.0
    while x < 100.0:
        x = x * 1.1 + 0.01
        turns = turns + 1.0
    return turns


def branch(x: Any) -> Any:
    return jnp.exp(x) * jnp.sin(x) if x > 0 else jnp.sqrt(1.0 + x * x)


def newton(a: Any) -> Any:
    x = a
    while abs(x * x - a) > 1e-4 * a:
        x = 0.5 * (x + a / x)
    return x


def escape(a: Any, b: Any) -> Any:
    x, y, n = 0.0, 0.0, 0
    while x * x + y * y < 4.0 and n < 50:
        x, y = x * x - y * y + a, 2.0 * x * y + b
        n += 1
    return n


def collatz(n: Any) -> Any:
    steps = 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


def option(s: Any, k: Any) -> Any:
    """The price of a European call."""
    d = (jnp.log(s / k) + 0.045) / 0.3
    n = 0.5 * (1.0 + jax.scipy.special.erf(d / math.sqrt(2.0)))
    m = 0.5 * (1.0 + jax.scipy.special.erf((d - 0.3) / math.sqrt(2.0)))
    return s * n - k * m


def pendulum(a: Any, v: Any) -> Any:
    """Sixty-four steps of a fixed length."""
    for _ in range(64):
        v = v - 0.05 * jnp.sin(a)
        a = a + 0.05 * v
    return a


def adaptive(x: Any) -> Any:
    """Euler's method with a step that the error decides."""
    t, step, y = 0.0, 0.1, x
    while t < 1.0:
        once = y - step * y * y
        half = y - 0.5 * step * y * y
        twice = half - 0.5 * step * half * half
        if abs(once - twice) < 1e-3:
            y, t, step = twice, t + step, step * 1.2
        else:
            step = step * 0.5
    return y


# ---- arrays


def layer(w: Any, x: Any) -> Any:
    return jnp.tanh(w @ x).sum()


def perceptron(layers: Any, x: Any) -> Any:
    for w, b in layers:
        x = jnp.tanh(x @ w + b)
    return x.sum()


def recurrent(w: Any, x: Any) -> Any:
    h = x
    for _ in range(STEPS):
        h = jnp.tanh(w @ h + x)
    return h.sum()


def iterated(w: Any, x: Any) -> Any:
    """Products in a loop that numbers end."""
    h = x
    while jnp.sum(h * h) > 0.5:
        h = 0.9 * jnp.tanh(w @ h)
    return h.sum()


def attention(q: Any, k: Any, x: Any) -> Any:
    return (jax.nn.softmax((x @ q) @ (x @ k).T) @ x).sum()


def every(x: Any) -> Any:
    return jnp.tanh(x) * x + 1.0


def scaled(x: Any) -> Any:
    return 2.0 * x + 1.0


def total(x: Any) -> Any:
    return jnp.sum(x * x)


def normalised(x: Any) -> Any:
    return jax.nn.softmax(x)


def ordered(x: Any) -> Any:
    return jnp.sort(x)


def filtered(a: Any, ys: Any) -> Any:
    """A Kalman filter of two numbers over an array of observations."""
    m, p = jnp.zeros(2), jnp.eye(2)
    for k in range(16):
        m, p = a @ m, a @ p @ a.T + 0.1 * jnp.eye(2)
        s = p[0, 0] + 0.5
        gain = p[:, 0] / s
        m = m + gain * (ys[k] - m[0])
        p = p - jnp.outer(gain, p[0])
    return m.sum()


def nearest(points: Any, x: Any) -> Any:
    """The nearest of the points that all examples share."""
    best, at = 1e30, 0
    for k in range(len(points)):
        d = jnp.sum((points[k] - x) ** 2)
        if d < best:
            best, at = d, k  # type: ignore[assignment]
    return at


def searched(edges: Any, x: Any) -> Any:
    lo, hi = 0, len(edges)
    while lo < hi:
        mid = (lo + hi) // 2
        if edges[mid] < x:
            lo = mid + 1
        else:
            hi = mid
    return lo


# ---- lists of numbers


def positive(xs: list[float]) -> Any:
    s = 0.0
    for x in xs:
        s = s + x * x if x > 0 else s
    return s


def horner(x: Any, coefficients: list[float]) -> Any:
    y = 0.0
    for c in coefficients:
        y = y * x + c
    return y


def inserted(xs: list[float]) -> Any:
    """Insertion sort: the median."""
    ys = list(xs)
    for i in range(1, len(ys)):
        x, j = ys[i], i
        while j > 0 and ys[j - 1] > x:
            ys[j] = ys[j - 1]
            j -= 1
        ys[j] = x
    return ys[len(ys) // 2]


def distance(a: list[int], b: list[int]) -> Any:
    """Levenshtein's."""
    row = list(range(len(b) + 1))
    for i in range(len(a)):
        before, row[0] = row[0], i + 1
        for j in range(len(b)):
            cost = before if a[i] == b[j] else before + 1
            before = row[j + 1]
            row[j + 1] = min(cost, row[j + 1] + 1, row[j] + 1)
    return row[len(b)]


def increasing(xs: list[float]) -> Any:
    """The longest increasing subsequence."""
    best = [1] * len(xs)
    for i in range(len(xs)):
        for j in range(i):
            if xs[j] < xs[i] and best[j] + 1 > best[i]:
                best[i] = best[j] + 1
    return max(best)


def counted(words: list[int]) -> Any:
    """The commonest word."""
    seen: dict[int, int] = {}
    for w in words:
        seen[w] = seen.get(w, 0) + 1
    return max(seen.values())


def scheduled(lengths: list[float]) -> Any:
    """Jobs to the first of three machines that is free."""
    free = [0.0, 0.0, 0.0]
    for x in lengths:
        heapq.heappush(free, heapq.heappop(free) + x)
    return max(free)


def merged(edges: list[tuple[int, int]]) -> Any:
    """Union and find: how many components 16 nodes have."""
    parent = list(range(16))
    count = 16
    for a, b in edges:
        while parent[a] != a:
            a = parent[a]
        while parent[b] != b:
            b = parent[b]
        if a != b:
            parent[a] = b
            count -= 1
    return count


def walked(neighbours: list[list[int]]) -> Any:
    """Breadth first: how far the farthest node is."""
    far = [-1] * len(neighbours)
    far[0], queue, k = 0, [0], 0
    while k < len(queue):
        u = queue[k]
        k += 1
        for v in neighbours[u]:
            if far[v] < 0:
                far[v] = far[u] + 1
                queue.append(v)
    return max(far)


def parsed(text: str) -> Any:
    """The sum of the numbers in a text."""
    found, n = 0, 0
    for c in text:
        if c.isdigit():
            n = n * 10 + int(c)
        else:
            found += n
            n = 0
    return found + n


# ---- models over lists


def tagged(w: Any, words: list[int]) -> Any:
    """Products in a loop that structure ends."""
    h = w[0]
    for k in words:
        h = jnp.tanh(w @ h + w[k])
    return h.sum()


def decoded(w: Any, words: list[int]) -> Any:
    """A stack which numbers shrink, over a list of integers."""
    stack, k = [w[0]], 0
    while k < len(words) or len(stack) > 1:
        if k == len(words) or (len(stack) > 1 and stack[-1] @ stack[-2] > 0.0):
            right = stack.pop()
            stack.append(jnp.tanh(w @ right + stack.pop() @ w))
        else:
            stack.append(w[words[k]])
            k += 1
    return stack[0].sum()


def bag(table: Any, words: list[int]) -> Any:
    return jnp.tanh(sum([table[k] for k in words]) / len(words)).sum()


def best_path(scores: Any, words: list[int]) -> Any:
    """Viterbi's algorithm over a matrix of transitions."""
    best = scores[0]
    for k in words:
        best = jnp.max(best[:, None] + scores, 0) + scores[k]
    return jnp.max(best)


def all_paths(scores: Any, words: list[int]) -> Any:
    """The forward algorithm of a conditional random field."""
    alpha = scores[0]
    for k in words:
        alpha = jax.nn.logsumexp(alpha[:, None] + scores, 0) + scores[k]
    return jax.nn.logsumexp(alpha)


def gated(p: Any, words: list[int]) -> Any:
    """A GRU."""
    h = jnp.zeros(p["h"].shape[0])
    for k in words:
        z, r, n = jnp.split(p["x"][k] + h @ p["h"], 3)
        z = jax.nn.sigmoid(z)
        h = (1.0 - z) * jnp.tanh(n * jax.nn.sigmoid(r)) + z * h
    return h.sum()


def pooled(vectors: list[Any]) -> Any:
    """Attention over vectors, of which each example has as many as it likes."""
    a = jnp.stack(vectors)
    w = jax.nn.softmax(a @ a[0])
    return (w @ a).sum()


# ---- trees


@dataclass
class Tree:
    word: int
    children: list[Tree]


def depth(tree: Tree) -> Any:
    return 1 + max([depth(c) for c in tree.children], default=0)


def weighed(scale: Any, tree: Tree) -> Any:
    return scale * tree.word + sum([weighed(scale, c) for c in tree.children]) / 2.0


def folded(w: Any, tree: Tree) -> Any:
    below = sum([folded(w, c) for c in tree.children])
    return jnp.tanh(w @ (w[tree.word] + below))


def read(w: Any, tree: Tree) -> Any:
    return folded(w, tree).sum()


def softened(scale: Any, tree: Tree) -> Any:
    """A list of the results of calls that is read twice."""
    below = [softened(scale, c) for c in tree.children]
    top = max(below, default=0.0)
    return scale * tree.word + sum(jnp.exp(x - top) for x in below)


def summed(p: Any, tree: Tree) -> tuple[Any, Any]:
    """A cell of a child-sum tree-LSTM: its output and its state."""
    below = [summed(p, c) for c in tree.children]
    h_sum = sum((h for h, _ in below), jnp.zeros(p["forget"].shape[0]))
    x = p["words"][tree.word]
    i, o, u = jnp.split(x @ p["input"] + h_sum @ p["state"], 3)
    f = x @ p["forget"]
    c = jax.nn.sigmoid(i) * jnp.tanh(u) + sum(jax.nn.sigmoid(f + h @ p["forget"]) * c for h, c in below)
    return jax.nn.sigmoid(o) * jnp.tanh(c), c


def gathered(p: Any, tree: Tree) -> Any:
    return summed(p, tree)[0].sum()


@dataclass
class Phrase:
    word: int
    left: Phrase | None = None
    right: Phrase | None = None


def composed(p: Any, t: Phrase) -> Any:
    """A cell of a binary tree-LSTM: its state and its output."""
    if t.left is None or t.right is None:
        i, o, u = jnp.split(p["leaf"] @ p["words"][t.word], 3)
        state = jax.nn.sigmoid(i) * jnp.tanh(u)
        return state, jax.nn.sigmoid(o) * jnp.tanh(state)
    (a, x), (b, y) = composed(p, t.left), composed(p, t.right)
    i, f, g, o, u = jnp.split(p["left"] @ x + p["right"] @ y, 5)
    state = jax.nn.sigmoid(i) * jnp.tanh(u) + jax.nn.sigmoid(f) * a + jax.nn.sigmoid(g) * b
    return state, jax.nn.sigmoid(o) * jnp.tanh(state)


def understood(p: Any, t: Phrase) -> Any:
    return (composed(p, t)[1] ** 2).sum()


@dataclass
class Split:
    feature: int
    at: float
    below: Split | None
    above: Split | None
    value: float


def decided(split: Split, x: Any) -> Any:
    """A decision tree that all examples share."""
    while split.below is not None:
        split = split.below if x[split.feature] < split.at else split.above  # type: ignore[assignment]
    return split.value


def queens(n: int) -> int:
    """A recursion that integers of the examples decide."""

    def placed(columns: int, left: int, right: int) -> int:
        if columns == (1 << n) - 1:
            return 1
        found, free = 0, ((1 << n) - 1) & ~(columns | left | right)
        while free:
            place = free & -free
            free ^= place
            found += placed(columns | place, (left | place) << 1, (right | place) >> 1)
        return found

    return placed(0, 0, 0)


def evaluated(e: Any, x: float) -> Any:
    """A recursion of many cases: an expression of its own for each example."""
    if e.kind == NUMBER:
        return e.value
    if e.kind == VARIABLE:
        return x
    if e.kind == SINE:
        return math.sin(evaluated(e.left, x))
    if e.kind == ADD:
        return evaluated(e.left, x) + evaluated(e.right, x)
    return evaluated(e.left, x) * evaluated(e.right, x)


def diffused(x: float) -> float:
    """A table that loops of known lengths change where it lies, with a branch."""
    heat = [math.sin(x * k) for k in range(9)]
    for _ in range(4):
        for k in range(1, 8):
            heat[k] += 0.2 * (heat[k - 1] - 2 * heat[k] + heat[k + 1])
            if heat[k] < -0.5:
                heat[k] = -0.5
    return sum(heat)


def aligned(a: Any, b: Any) -> Any:
    """The alignment of two sequences, as a table."""
    n = len(a)
    cost = jnp.zeros((n + 1, n + 1))
    for i in range(n):
        for j in range(n):
            least = jnp.minimum(cost[i, j + 1], cost[i + 1, j]) + 1.0
            cost = cost.at[i + 1, j + 1].set(jnp.minimum(least, cost[i, j] + jnp.abs(a[i] - b[j])))
    return cost[n, n]


def swapped(x: float) -> float:
    """Bubble sort."""
    found = [math.sin(x * 7 * k * k) for k in range(8)]
    for end in range(7, 0, -1):
        for k in range(end):
            if found[k] > found[k + 1]:
                found[k], found[k + 1] = found[k + 1], found[k]
    return sum(k * found[k] for k in range(8))


def eliminated(x: float) -> float:
    """The determinant of a matrix that is a list of lists."""
    rows = [[x * math.sin(3 * i + 7 * j) + (4.0 if i == j else 0.0) for j in range(6)] for i in range(6)]
    found = 1.0
    for k in range(6):
        found *= rows[k][k]
        for i in range(k + 1, 6):
            factor = rows[i][k] / rows[k][k]
            for j in range(k, 6):
                rows[i][j] -= factor * rows[k][j]
    return found


@dataclass
class Body:
    at: float
    speed: float


def attracted(x: float) -> float:
    """Objects that a list holds, and that change."""
    bodies = [Body(x * k, 0.0) for k in range(5)]
    for _ in range(20):
        for k in range(5):
            for other in bodies:
                if other is not bodies[k]:
                    away = other.at - bodies[k].at
                    bodies[k].speed += 0.01 * away / (abs(away) ** 3 + 0.1)
        for body in bodies:
            body.at += 0.01 * body.speed
    return sum(b.at * b.at for b in bodies)


def cases(rows: int) -> Iterator[Case]:
    """Every program, with so many examples."""
    numbers = np.random.default_rng(0)

    def array(*shape: int) -> Any:
        return jnp.asarray(numbers.standard_normal(shape), jnp.float32)

    def lengths(least: int = 5, most: int = 20) -> Any:
        return numbers.integers(least, most, size=rows)

    def words(d: int) -> list[list[int]]:
        return [numbers.integers(d, size=n).tolist() for n in lengths()]

    def floats() -> list[list[float]]:
        return [numbers.standard_normal(n).tolist() for n in lengths()]

    yield Case("loop", settled, 0, (1.0 + jnp.abs(array(rows)),))
    yield Case("branch", branch, 0, (array(rows),), 0)
    yield Case("newton", newton, 0, (1.0 + jnp.abs(array(rows)),), 0)
    yield Case("escape", escape, 0, (array(rows), array(rows)))
    yield Case("collatz", collatz, 0, (jnp.asarray(numbers.integers(1, 1000, rows), jnp.int32),))
    yield Case("option", option, (0, None), (100.0 + array(rows), jnp.float32(100.0)), 0)
    yield Case("pendulum", pendulum, 0, (array(rows), array(rows)), 0)
    yield Case("adaptive", adaptive, 0, (1.0 + jnp.abs(array(rows)),), 0)
    for d in (4, 16, 32, 64, 96):
        yield Case(f"layer {d}", layer, (None, 0), (array(d, d), array(rows, d)), 0)
    for d in (64, 256):
        layers = [(array(d, d) / d**0.5, array(d)) for _ in range(4)]
        yield Case(f"perceptron {d}", perceptron, (None, 0), (layers, array(rows, d)), 0)
    for d in (4, 16, 32):
        yield Case(f"recurrent {d}", recurrent, (None, 0), (array(d, d), array(rows, d)), 0)
    for d in (16, 64):
        yield Case(f"iterated {d}", iterated, (None, 0), (0.5 * array(d, d) / d**0.5, array(rows, d)), 0)
    for d in (4, 16):
        yield Case(f"attention {d}", attention, (None, None, 0), (array(d, d), array(d, d), array(rows, d, d)), 0)
    for d in (1, 16, 256, 4096):
        yield Case(f"tanh {d}", every, 0, (array(rows, d),))
    for d in (1, 256, 4096):
        yield Case(f"scaled {d}", scaled, 0, (array(rows, d),))
    for d in (16, 4096):
        yield Case(f"sum {d}", total, 0, (array(rows, d),))
    for d in (16, 1024):
        yield Case(f"softmax {d}", normalised, 0, (array(rows, d),))
    for d in (8, 64):
        yield Case(f"sort {d}", ordered, 0, (array(rows, d),))
    for f in (diffused, swapped, eliminated, attracted):
        yield Case(f.__name__, f, 0, (array(rows),), 0)
    for d in (8, 32):
        yield Case(f"aligned {d}", aligned, 0, (array(rows, d), array(rows, d)), 0)
    yield Case("filtered", filtered, (None, 0), (jnp.asarray([[1.0, 0.1], [0.0, 1.0]]), array(rows, 16)), 0)
    yield Case("nearest", nearest, (None, 0), (array(20, 8), array(rows, 8)))
    yield Case("searched", searched, (None, 0), (jnp.sort(array(1000)), array(rows)))

    for packed in (False, True):
        end = " packed" if packed else ""
        yield Case(f"positive{end}", positive, 0, (floats(),), packed=packed)
        yield Case(f"horner{end}", horner, (None, 0), (jnp.float32(0.5), floats()), 0, packed)
        yield Case(f"inserted{end}", inserted, 0, (floats(),), packed=packed)
        yield Case(f"distance{end}", distance, 0, (words(6), words(6)), packed=packed)
        yield Case(f"increasing{end}", increasing, 0, (floats(),), packed=packed)
        yield Case(f"counted{end}", counted, 0, (words(8),), packed=packed)
        yield Case(f"scheduled{end}", scheduled, 0, ([[abs(x) for x in xs] for xs in floats()],), packed=packed)
        edges = [[tuple(e) for e in numbers.integers(16, size=(n, 2)).tolist()] for n in lengths()]
        yield Case(f"merged{end}", merged, 0, (edges,), packed=packed)
        graphs = [numbers.integers(n, size=(n, 3)).tolist() for n in lengths()]
        yield Case(f"walked{end}", walked, 0, (graphs,), packed=packed)
        texts = [" ".join(map(str, numbers.integers(1000, size=n // 3))) for n in lengths()]
        yield Case(f"parsed{end}", parsed, 0, (texts,), packed=packed)
        for d in (16, 64):
            w = array(d, d) / d**0.5
            yield Case(f"tagged {d}{end}", tagged, (None, 0), (w, words(d)), 0, packed)
            yield Case(f"decoded {d}{end}", decoded, (None, 0), (w, words(d)), 0, packed)
            yield Case(f"folded {d}{end}", read, (None, 0), (w, [_tree(numbers, 3, d) for _ in range(rows)]), 0, packed)
            p = {"x": array(d, 3 * d), "h": array(d, 3 * d) / d**0.5}
            yield Case(f"gated {d}{end}", gated, (None, 0), (p, words(d)), 0, packed)
        for d in (16, 64):
            shapes = {"words": (100, d), "leaf": (3 * d, d), "left": (5 * d, d), "right": (5 * d, d)}
            cell = {name: array(*shape) / d**0.5 for name, shape in shapes.items()}
            phrases = [_phrase(numbers, int(numbers.integers(5, 35))) for _ in range(rows)]
            yield Case(f"composed {d}{end}", understood, (None, 0), (cell, phrases), 0, packed)
        for d in (16, 64):
            shapes = {"words": (10, d), "input": (d, 3 * d), "state": (d, 3 * d), "forget": (d, d)}
            cell = {name: array(*shape) / d**0.5 for name, shape in shapes.items()}
            trees = [_tree(numbers, 4, 10) for _ in range(rows)]
            yield Case(f"summed {d}{end}", gathered, (None, 0), (cell, trees), 0, packed)
        trees = [_tree(numbers, 4, 10) for _ in range(rows)]
        yield Case(f"softened{end}", softened, (None, 0), (jnp.float32(0.1), trees), 0, packed)
        yield Case(f"bag{end}", bag, (None, 0), (array(100, 32), words(100)), 0, packed)
        yield Case(f"best path{end}", best_path, (None, 0), (array(9, 9), words(9)), 0, packed)
        yield Case(f"all paths{end}", all_paths, (None, 0), (array(9, 9), words(9)), 0, packed)
        vectors = [list(numbers.standard_normal((n, 16)).astype(np.float32)) for n in lengths()]
        yield Case(f"pooled{end}", pooled, 0, (vectors,), packed=packed)
        trees = [_tree(numbers, 4, 10) for _ in range(rows)]
        yield Case(f"depth{end}", depth, 0, (trees,), packed=packed)
        yield Case(f"evaluated{end}", evaluated, 0, (expressions(rows), array(rows)), 1, packed)
        yield Case(f"weighed{end}", weighed, (None, 0), (jnp.float32(0.5), trees), 0, packed)
    yield Case("queens", queens, 0, (jnp.asarray(numbers.integers(1, 7, rows), jnp.int32),))
    yield Case("decided", decided, (None, 0), (_splits(numbers, 5), array(rows, 4)))


def _tree(numbers: np.random.Generator, most: int, words: int) -> Tree:
    count = int(numbers.integers(4)) if most else 0
    return Tree(int(numbers.integers(words)), [_tree(numbers, most - 1, words) for _ in range(count)])


def _phrase(numbers: np.random.Generator, words: int) -> Phrase:
    if words == 1:
        return Phrase(int(numbers.integers(100)))
    first = int(numbers.integers(1, words))
    return Phrase(0, _phrase(numbers, first), _phrase(numbers, words - first))


def _splits(numbers: np.random.Generator, most: int) -> Split:
    if not most:
        return Split(0, 0.0, None, None, float(numbers.standard_normal()))
    below, above = _splits(numbers, most - 1), _splits(numbers, most - 1)
    return Split(int(numbers.integers(4)), 0.5 * float(numbers.standard_normal()), below, above, 0.0)
