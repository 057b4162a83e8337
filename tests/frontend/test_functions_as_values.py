"""Functions as values: transforms of JAX inside, functions as arguments, functions that data chooses, methods of
several classes; operators of the user's own numbers; variables that are swapped, reassigned, assigned on one path."""

from __future__ import annotations

import enum
import functools
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import autobatch as ab
from tests.frontend.batches import Program, Programs, agree, fails, refused

programs = Programs()
P = {"w": np.float32(0.5), "b": np.array([0.5, -1.0, 2.0], np.float32), "W": np.eye(3, dtype=np.float32) / 2}


class Activation(enum.Enum):
    TANH = 1
    RELU = 2
    SQUARE = 3


@dataclass
class Layer:
    kind: str
    act: Activation
    x: float
    n: int = 0
    inner: list[Layer] | None = None


LAYERS = [
    Layer("dense", Activation.TANH, 0.5, 2, [Layer("scale", Activation.RELU, -1.5, 1)]),
    Layer("scale", Activation.SQUARE, 2.0, 0, []),
    Layer(
        "shift",
        Activation.RELU,
        -0.25,
        3,
        [Layer("dense", Activation.TANH, 1.0, 0), Layer("shift", Activation.SQUARE, 3.0)],
    ),
]


# ---- transforms of JAX inside a per-example function


def potential(p, q):
    return 0.5 * jnp.sum((p["W"] @ q) ** 2) + jnp.sum(jnp.cos(q)) * p["w"]


@programs.over(LAYERS, P)
def leapfrog(p, t):
    """`jax.grad` in a loop whose trip count is data."""
    q, v = p["b"] * t.x, p["b"]
    for _ in range(t.n):
        v = v - 0.1 * jax.grad(potential, argnums=1)(p, q)
        q = q + 0.1 * v
    return q, v


@programs.over(LAYERS, P)
def own_grad(p, t):
    """`ab.grad` and `ab.value_and_grad` of a function of arrays, in a recursion."""
    below = sum([own_grad(p, c) for c in t.inner or []], p["b"])
    value, slope = ab.value_and_grad(lambda q: potential(p, q * t.x))(below)
    return slope * 0.5 + value


@programs.over(LAYERS, P)
def rows(p, t):
    """`jax.vmap` and `jax.jit` of local functions and of lambdas that read the example."""
    each = jax.vmap(lambda r: jnp.tanh(r * t.x) @ p["b"])(p["W"])
    step = jax.jit(lambda a, k: a * k + t.x)
    return jax.vmap(jax.grad(lambda x: jnp.sin(x) * p["w"]))(each), step(each, t.n)


@programs.over(LAYERS, P)
def second_derivative(p, t):
    return jax.grad(jax.grad(lambda x: jnp.sin(x * p["w"]) * x))(t.x), jax.hessian(lambda q: potential(p, q))(
        p["b"] * t.x
    )


@programs.over(LAYERS, P)
def reused_gradient(p, t):
    """A gradient function in a variable, called several times, chosen by data."""
    first, second = jax.grad(lambda x: x**3), jax.value_and_grad(jnp.sin)
    f = first if t.n > 1 else (lambda x: second(x)[1])
    return f(t.x) + f(p["w"])


def test_gradients_through_gradients():
    f = ab.batched(own_grad, in_axes=(None, 0))
    expected = jax.grad(lambda p: sum(own_grad(p, t).sum() for t in LAYERS))(P)
    found = jax.grad(lambda p: f(p, LAYERS).sum())(P)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6), found, expected)


# ---- functions as arguments


def fold(f, layers, start):
    for layer in layers:
        start = f(start, layer)
    return start


def twice(f):
    return lambda *args: f(f(*args), *args[1:])


@programs.over(LAYERS, P)
def passed_on(p, t):
    """Functions as arguments, closures that are returned, partial application, keyword functions."""
    add = lambda a, layer: a + layer.x * p["w"]  # noqa: E731
    scaled = functools.partial(fold, lambda a, layer: a * (1 + layer.n), t.inner or [])
    return fold(add, t.inner or [], t.x), fold(twice(add), [t], 0.0), scaled(start=p["w"])


def walk(t, leaf, node):
    """A recursion that hands its own arguments on."""
    below = [walk(c, leaf, node) for c in t.inner or []]
    return node(t, below) if below else leaf(t)


@programs.over(LAYERS, P)
def catamorphism(p, t):
    return walk(t, lambda t: t.x * p["w"], lambda t, below: sum(below) - t.x), walk(
        t, lambda t: 1, lambda t, b: 1 + sum(b)
    )


def renamed_append(p, t):
    out = []
    push = out.append
    for k in range(t.n):
        push(k * t.x)
    return out


def handed_append(p, t):
    out = []
    list(map(out.append, t.inner or []))
    return len(out)


@pytest.mark.parametrize("function", [renamed_append, handed_append])
def test_a_list_is_changed_by_another_name(function):
    agree(Program(function, LAYERS, (P,)), jit=False)


# ---- functions that data chooses


def dense(p, t, h):
    return jnp.tanh(p["W"] @ h + t.x)


def scale(p, t, h):
    return h * t.x


KINDS = {"dense": dense, "scale": scale, "shift": lambda p, t, h: h + p["b"] * t.x}
ACTIVATIONS = {Activation.TANH: jnp.tanh, Activation.RELU: jax.nn.relu, Activation.SQUARE: lambda x: x * x}


@programs.over(LAYERS, P)
def by_tag(p, t):
    """A dict of functions by string, and one by enum member."""
    h = sum([by_tag(p, c) for c in t.inner or []], p["b"])
    return ACTIVATIONS[t.act](KINDS[t.kind](p, t, h))


@programs.over(LAYERS, P)
def by_tag_with_default(p, t):
    f = KINDS.get(t.kind, scale)
    local = {"dense": lambda x: x + p["w"], "scale": jnp.sin}
    return f(p, t, p["b"]), local[t.kind](t.x) if t.kind in local else t.x


@programs.over(LAYERS, P)
def by_position(p, t):
    """A tuple and a list of functions, by an integer of the data."""
    fs = [jnp.sin, jnp.cos, lambda x: x * p["w"], jnp.exp]
    return fs[t.n](t.x), (dense, scale)[t.n % 2](p, t, p["b"])


@dataclass
class Circle:
    radius: float

    def area(self, p):
        return 3.0 * self.radius**2 * p["w"]

    def grown(self, by):
        return Circle(self.radius + by)


@dataclass
class Square:
    side: float
    inside: Circle | Square | None = None

    def area(self, p):
        return self.side**2 - (0.0 if self.inside is None else self.inside.area(p))

    def grown(self, by):
        return Square(self.side * by, self.inside)

    @property
    def double(self):
        return 2 * self.side


SHAPES = [Circle(1.5), Square(2.0), Square(3.0, Square(2.5, Circle(0.5)))]


@programs.over(SHAPES, P)
def methods_of_several_classes(p, s):
    area = s.area
    larger = s.grown(p["w"]) if isinstance(s, Circle) else Circle(s.double)
    return s.area(p) + area(p), larger.area(p), s.double if isinstance(s, Square) else 0.0


# ---- operators of the user's own classes


@dataclass
class Dual:
    x: float
    dx: float = 0.0

    def __add__(self, other):
        other = other if isinstance(other, Dual) else Dual(other)
        return Dual(self.x + other.x, self.dx + other.dx)

    __radd__ = __add__

    def __mul__(self, other):
        other = other if isinstance(other, Dual) else Dual(other)
        return Dual(self.x * other.x, self.x * other.dx + self.dx * other.x)

    __rmul__ = __mul__

    def __neg__(self):
        return Dual(-self.x, -self.dx)

    def __sub__(self, other):
        return self + -other

    def __pow__(self, n):
        result = Dual(1.0)
        for _ in range(n):
            result = result * self
        return result

    def __lt__(self, other):
        return self.x < other.x


@dataclass(frozen=True)
class Complex:
    re: float
    im: float

    def __add__(self, o):
        return Complex(self.re + o.re, self.im + o.im)

    def __mul__(self, o):
        return Complex(self.re * o.re - self.im * o.im, self.re * o.im + self.im * o.re)

    def __abs__(self):
        return jnp.sqrt(self.re**2 + self.im**2)

    def __eq__(self, o):
        return self.re == o.re and self.im == o.im

    def __bool__(self):
        return self.re != 0 or self.im != 0


@dataclass
class Vector:
    xs: list[float]

    def __getitem__(self, k):
        return self.xs[k]

    def __len__(self):
        return len(self.xs)

    def __add__(self, o):
        return Vector([a + b for a, b in zip(self.xs, o.xs)])

    def __matmul__(self, o):
        return sum([a * b for a, b in zip(self.xs, o.xs)], 0.0)

    def __contains__(self, x):
        return any([a == x for a in self.xs])

    def __call__(self, t):
        return sum([a * t**k for k, a in enumerate(self.xs)], 0.0)

    def __iter__(self):
        return iter(self.xs)


@programs.over([[1.0, 2.0], [0.5], [], [3.0, -1.0, 0.25]], P)
def dual_numbers(p, xs):
    total = Dual(p["w"], 1.0)
    for x in xs:
        total = total * x + Dual(x, 0.5) ** 2 - 1.0
    return total, -total + 2.0, (3.0 * total).dx


@programs.over([Complex(0.1, 0.2), Complex(-0.5, 0.5), Complex(0.0, 0.0)])
def complex_numbers(c):
    z = c
    for _ in range(3):
        z = z * z + c
    return z, abs(z), c == Complex(0.0, 0.0), 1 if c else 0


@programs.over([Vector([1.0, 2.0, 3.0]), Vector([0.5]), Vector([])], P)
def vectors(p, v):
    w = v + v
    last = v[len(v) - 1] if len(v) else 0.0
    return w, v @ w, last, v(p["w"]), 2.0 in v, sum([x * x for x in v], 0.0)


# ---- assignments


@programs.over([0, 1, 2, 7])
def swapped(n):
    """Fibonacci by swap; a parameter that a loop reassigns; tuples that turn."""
    a, b, c = 0, 1, 2.5
    while n > 0:
        a, b = b, a + b
        n -= 1
        a, (b, c) = a, (b, c / 2)
    n, a = a, n
    return n, a, b, c


@programs.over([[3, 1, 2], [], [5, 4], [1]], P)
def sorted_by_swaps(p, xs):
    """Bubble sort of a list that was copied: swaps of items."""
    xs = list(xs)
    for i in range(len(xs)):
        for j in range(len(xs) - 1 - i):
            if xs[j] > xs[j + 1]:
                xs[j], xs[j + 1] = xs[j + 1], xs[j]
    return xs, [x * p["w"] for x in xs]


@programs.over([[3, 1, 2], [], [5, 4], [1]], P)
def first_assigned_on_a_path(p, xs):
    """Variables that a branch, a loop, a `match` assigns first, and that are read where they are."""
    if len(xs) > 1:
        y = xs[0] * p["w"]
        z = "long"
    else:
        y, z = p["w"], "short"
    for x in xs:
        last = x
        if x > 2:
            large = x * 2
    match len(xs):
        case 0:
            word, last = "none", -1
        case _:
            word = "some"
    found = large if any([x > 2 for x in xs]) else 0
    return y, z, last, word, found


@programs.over([[3, 1, 2], [], [5, 4], [1]], P)
def first_assigned_in_a_loop(p, xs):
    k = 0
    while k < len(xs):
        here = xs[k] * p["w"]
        if k > 0:
            here = here + before  # noqa: F821
        before = here  # noqa: F841
        k += 1
    return here if k else 0.0


@programs.over(LAYERS)
def optional_lists(t):
    has = t.inner is not None and len(t.inner) > 0
    return len(t.inner or [t]), has, t.inner is None or len(t.inner) > 1, [c.x for c in t.inner or []]


@pytest.mark.parametrize("program", programs, ids=str)
def test_batch_equals_loop(program):
    agree(program, jit=False)


def unassigned_after_a_branch(xs):
    if len(xs) > 1:
        y = xs[0]
    return y


def unassigned_after_a_loop(xs):
    for x in xs:
        y = x
    return x + y


def unassigned_in_every_turn(xs):
    for x in xs:
        y = y + x  # noqa: F821
    return y


def test_what_nothing_assigns_is_refused():
    refused(unassigned_in_every_turn, [[3, 1], [2]], saying="'y' is read before it is set")


def unassigned_in_the_first_turn(xs):
    total = 0
    for x in xs:
        if x > 2:
            total += before  # noqa: F821
        before = x  # noqa: F841
    return total


@pytest.mark.parametrize("function", [unassigned_in_the_first_turn, unassigned_after_a_branch, unassigned_after_a_loop])
def test_what_no_path_has_assigned_fails_as_in_python(function):
    fails(function, [[3, 1], [], [4, 5]])
