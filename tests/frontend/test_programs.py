"""Programs of many kinds, as users write them."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from tests.frontend.harness import check
from tests.frontend.programs import Node

T = [Node(0, 1), Node(1, 2, Node(2, 3), Node(3, 4, Node(0, 5), Node(0, 6)))]


def newton(w, x):
    y = jnp.float32(1.0)
    while abs(y * y - x * w) > 1e-3:
        y = (y + x * w / y) / 2
    return y


def test_numeric_while():
    check(newton, [2.0, 3.0], jnp.float32(2.0), batched=False)


def numif(w, x):
    if w * x > 3:
        return w * 2
    return w * 3


def test_numeric_if():
    check(numif, [1.0, 2.0], jnp.float32(2.0), batched=False)


@dataclass
class U:
    child: "U | None" = None
    w: float = 1.0


def chain(t):
    while t.child is not None:
        t = t.child
    return t.w


def test_chain():
    check(chain, [U(w=2.0), U(U(U(w=5.0)))])


def d(t, *, k=None, s="x"):
    k = 3 if k is None else k
    return t.word * k if s == "x" else 0


def test_kw():
    check(lambda t: d(t) + d(t, k=t.label) + d(t, s="y"), T)


def two(xs):
    best = None
    where = -1
    for i, x in enumerate(xs):
        if best is None or x > best:
            best = x
            where = i
    return where if best is None else best


def test_optional_best():
    check(two, [[], [1, 5, 2]])


def wid(xs):
    s = 0
    for x in xs:
        s += x / 2
    return s


def test_widen():
    check(wid, [[1, 2], [3]])


def test_np():
    check(lambda w, n: np.dot(w, w) * n + np.linalg.norm(w) + np.float32(2) * n, [1, 2], jnp.arange(3.0))


def mlp(ps, x):
    h = jnp.ones(3) * x
    for l in ps["layers"]:
        h = ps["act"](l["w"] @ h + l["b"])
    return h.sum()


P = {
    "layers": [{"w": jnp.ones((3, 3)), "b": jnp.zeros(3)}, {"w": jnp.ones((2, 3)), "b": jnp.zeros(2)}],
    "act": jnp.tanh,
}


def test_mlp():
    check(mlp, [1.0, 2.0], P)


def test_dyn_params():
    check(lambda ws, n: ws[n] * 2, [0, 1, -1], [jnp.ones(3), jnp.zeros(3)])


def f(t):
    return sum(1 for c in (t.left, t.right) if c is not None)


def test_tuple_of_kids():
    check(f, T)


def g(t):
    kids = [c for c in (t.left, t.right) if c is not None]
    return len(kids) + sum(c.word for c in kids)


def test_filter_static():
    check(g, T)


def depth(t):
    return 0 if t is None else 1 + max(depth(t.left), depth(t.right))


def test_depth():
    check(depth, T)


def path(t):
    # returns node
    while t.right is not None:
        t = t.right
    return t


def test_node_result():
    check(lambda t: path(t).word, T)


def mutual(t):
    def a(x):
        return 0 if x is None else 1 + b(x.left)

    def b(x):
        return 0 if x is None else 2 + a(x.right)

    return a(t) + b(t)


def test_mutual_local():
    check(mutual, T)


def strs(t):
    return {"a": 1, "b": 2}["a" if t.word > 1 else "b"]


def test_dyn_tag_const():
    check(strs, T)


def opres(t):
    return None if t.left is None else t.left.word


def test_opt_result():
    check(opres, T)


def test_opt_use():
    check(lambda t: (opres(t) or 0) + 1, T)


def nested(t):
    def inc():
        return t.word + 1

    x = [inc() for _ in range(2)]
    return x


def test_closure_in_comp():
    check(nested, T)


def test_lambda_sort_key():
    check(lambda t: max((t.word, 1), (t.label, 2)), T)


def scanf(w, t):
    def body(c, x):
        return c + x * t.word, c

    return jax.lax.scan(body, 0.0, w)


def test_scan_closure_node():
    check(scanf, T, jnp.arange(3.0))


def dropout(key, x):
    return jax.random.bernoulli(key, 0.5, (3,)) * x


def test_keys():
    check(lambda p: jax.random.normal(p[0], (2,)) * p[1], [(jax.random.key(0), 1.0), (jax.random.key(1), 2.0)])


def assertf(t):
    assert t.word > 0
    assert isinstance(t, Node), "x"
    return t.word


def test_assert():
    check(assertf, T)


def swap(n):
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a


def test_swap():
    check(swap, [0, 1, 10])


def pw(n):
    return 2**n + (-3) ** 2 + n**0.5


def test_pow():
    check(pw, [0, 3])


def lst(n):
    return [[i * j for j in range(i)] for i in range(n)]


def test_nested_dyn():
    check(lst, [0, 3])


def anyl(xs):
    return any(xs), all(xs), not xs, bool(xs)


def test_any_list():
    check(anyl, [[0, 1], [2], []])


def ifexp_list(xs):
    ys = xs if len(xs) > 1 else xs[:1]
    return len(ys)


def test_list_join():
    check(ifexp_list, [[0, 1], [2], []])
