"""One small function for each construct, whose IR is a golden file."""

from __future__ import annotations

import contextlib

import jax.numpy as jnp

from tests.frontend.programs import Node, Tree, child_sum, parameters, tree_lstm


def half(n):
    return n // 2


def branch(n):
    if n > 0:
        x = n * 2
    elif n < -5:
        x = -n
    else:
        x = 0
    return x


def early_return(t):
    if t.left is None:
        return t.word
    y = t.left.word + 1
    return y * 2


def partial_return(n):
    if n > 0:
        if n > 5:
            return 100
        x = 1
    else:
        x = 2
    return x + n


def for_loop(w, xs):
    s = 0
    for x in xs:
        s = s + x * w
    return s


def loop_with_break(xs):
    last = -1
    for k, x in enumerate(xs):
        if x < 0:
            break
        last = k
    return last


def while_loop(t):
    depth = 0
    while t.left is not None:
        t = t.left
        depth += 1
    return depth


def comprehension(xs):
    return [half(x) for x in xs if x > 1]


def reductions(xs):
    return sum(x * x for x in xs), any(x > 2 for x in xs), max(xs, default=0), len(xs)


def recursion_down(t, depth=0):
    if t is None:
        return 0
    return depth + recursion_down(t.left, depth + 1) + recursion_down(t.right, depth + 1)


def failure(n):
    assert n < 10, f"{n} is too large"
    if n == 3:
        raise ValueError(f"not {n}")
    return n


def arithmetic(n):
    return n // 3, n % 3, n / 3, n**2, round(n / 3), int(n * 1.5), -n, abs(n)


def traced(w, n):
    return jnp.tanh(w * n).sum()


def table(p, pair):
    name, n = pair
    return p[name] * n


def constant_keys(n):
    seen = {"low": 0, "high": n}
    seen["low"] += n * 2
    seen |= {"sum": seen["low"] + seen["high"]}
    return seen


def counts(xs):
    """A dict of keys that are data."""
    found = {}
    for x in xs:
        found[x] = found.get(x, 0) + 1
    return max(found.values(), default=0), len(found)


def set_of_data(xs):
    seen = set()
    for x in xs:
        if x in seen:
            return x
        seen.add(x)
    return -100


def changed_list(xs):
    made = [0]
    for x in xs:
        made.append(made[-1] + x)
    made[0] = 7
    made.pop()
    return made, len(made)


def evens(xs):
    for x in xs:
        if x % 2 == 0:
            yield x


def generator(xs):
    s = 0
    for x in evens(xs):
        s += x
    return s


def caught(n):
    try:
        x = 10 // n
        if x > 5:
            raise ValueError(x)
    except ZeroDivisionError:
        return -1
    except ValueError:
        x = 0
    else:
        x += 1
    finally:
        n += 1
    return x + n


@contextlib.contextmanager
def doubled(n):
    yield 2 * n


def with_block(n):
    with doubled(n) as twice, contextlib.suppress(ZeroDivisionError):
        twice = twice // n
    return twice


def matched(pair):
    match pair:
        case ("a", 0):
            return 0
        case ("a", n) if n > 3:
            return n
        case (_, n):
            return -n


def printed(n):
    if n > 0:
        print("n is", n)
    return n


def words(pair):
    word, n = pair
    if word == "a":
        return n
    return len(word) * n if word.startswith("b") else 0


def closure(n):
    total = 0

    def add(k, by=2):
        nonlocal total
        total += k * by
        return total

    add(n)
    return add(k=1, by=n)


class Point:
    def __init__(self, x, y):
        self.x, self.y = x, y

    @property
    def norm(self):
        return abs(self.x) + abs(self.y)

    def __add__(self, other):
        return Point(self.x + other.x, self.y + other.y)


def objects(n):
    p = Point(n, 1) + Point(y=n, x=2)
    p.x *= 3
    return p.norm


def unpacked(xs):
    first, *rest = [len(xs), *xs[:2], 5]
    return first, rest[-1], [(k, x) for k, x in enumerate(rest)]


TREES = [Node(0, 1), Node(1, 2, left=Node(2, 3), right=Node(3, 4))]
LISTS = [[3, 1], [], [5, -2, 7]]
ENTRIES = {
    "branch": (branch, [1, -1, -9], ()),
    "early_return": (early_return, TREES, ()),
    "partial_return": (partial_return, [-1, 3, 9], ()),
    "for_loop": (for_loop, LISTS[:1], (jnp.arange(3.0),)),
    "loop_with_break": (loop_with_break, LISTS, ()),
    "while_loop": (while_loop, TREES, ()),
    "comprehension": (comprehension, LISTS, ()),
    "reductions": (reductions, LISTS, ()),
    "recursion_down": (recursion_down, TREES, ()),
    "failure": (failure, [1, 3, 20], ()),
    "arithmetic": (arithmetic, [-7, 0, 5], ()),
    "traced": (traced, [1, 2], (jnp.arange(3.0),)),
    "table": (table, [("a", 1), ("b", 2)], ({"a": jnp.ones(2), "b": jnp.zeros(2)},)),
    "constant_keys": (constant_keys, [1, -2], ()),
    "counts": (counts, LISTS, ()),
    "set_of_data": (set_of_data, [[1, 2], [3, 4, 3]], ()),
    "changed_list": (changed_list, LISTS, ()),
    "generator": (generator, LISTS, ()),
    "caught": (caught, [0, 1, 5], ()),
    "with_block": (with_block, [0, 3], ()),
    "matched": (matched, [("a", 0), ("a", 9), ("b", 1)], ()),
    "printed": (printed, [1, -1], ()),
    "words": (words, [("a", 1), ("bc", 2), ("cd", 3)], ()),
    "closure": (closure, [1, 2], ()),
    "objects": (objects, [1, -2], ()),
    "unpacked": (unpacked, LISTS[:1] + [[1, 2, 3, 4]], ()),
    "tree_lstm": (tree_lstm, TREES, (parameters(),)),
    "child_sum": (child_sum, [Tree(1), Tree(2, [Tree(3), Tree(4)])], (parameters(),)),
}
