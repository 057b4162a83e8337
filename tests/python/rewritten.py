"""Functions that make trees of tuples, lists and dicts, of their own results and of trees that they were given."""

from __future__ import annotations

import random

RANDOM = random.Random(11)

# ---- trees that are given


def tree(depth=4):
    if depth == 0 or RANDOM.random() < 0.2:
        return RANDOM.choice([("num", round(RANDOM.uniform(-2, 2), 2)), ("num", 0.0), ("num", 1.0), ("var",)])
    op = RANDOM.choice(["add", "mul", "neg"])
    return (op, tree(depth - 1)) if op == "neg" else (op, tree(depth - 1), tree(depth - 1))


def as_dict(e):
    match e:
        case ("num", value):
            return {"op": "num", "value": value}
        case ("var",):
            return {"op": "var"}
        case ("neg", a):
            return {"op": "neg", "arg": as_dict(a)}
        case (op, a, b):
            return {"op": op, "left": as_dict(a), "right": as_dict(b)}


def derivative(e):
    if e[0] == "num":
        return ("num", 0.0)
    if e[0] == "var":
        return ("num", 1.0)
    if e[0] == "neg":
        return ("neg", derivative(e[1]))
    if e[0] == "add":
        return ("add", derivative(e[1]), derivative(e[2]))
    return ("add", ("mul", derivative(e[1]), e[2]), ("mul", e[1], derivative(e[2])))


def simplified(e):
    if e[0] in ("num", "var"):
        return e
    if e[0] == "neg":
        a = simplified(e[1])
        return ("num", -a[1]) if a[0] == "num" else ("neg", a)
    a, b = simplified(e[1]), simplified(e[2])
    if e[0] == "add":
        if a == ("num", 0.0):
            return b
        return a if b[0] == "num" and b[1] == 0.0 else ("add", a, b)
    if a[0] == "num" and a[1] == 0.0:
        return a
    return a if b == ("num", 1.0) else (e[0], a, b)


def swapped(e):
    """Some nodes stay those of the example."""
    if e[0] == "add":
        return ("add", swapped(e[2]), swapped(e[1]))
    return swapped(e[1]) if e[0] == "neg" else e


def halves(e):
    """Of two trees, the one with the greater number on its left edge, in a tuple that is made."""
    if len(e) != 3:
        return ("leaf", e)
    return ("pair", e[2], e[1]) if leftmost(e[1]) < leftmost(e[2]) else ("pair", e[1], e[2])


def leftmost(e):
    while e[0] not in ("num", "var"):
        e = e[1]
    return e[1] if e[0] == "num" else 0.5


def among(e):
    """Subtrees of an example in a list, beside those that are made."""
    found, todo = [], [e]
    while todo:
        at = todo.pop()
        found.append(at if at[0] != "num" else ("num", at[1] + 1.0))
        todo += at[1:] if at[0] not in ("num", "var") else []
    return found


def equal_parts(e):
    """Whole trees are compared."""
    return len(e) == 3 and e[1] == e[2], e == ("var",), ("num", 1.0) == e, e != ("neg", ("var",))


def values_of_dicts(e):
    if e["op"] == "num":
        return {"op": "num", "value": e["value"] * 2}
    if e["op"] == "var":
        return e
    if e["op"] == "neg":
        return {**e, "arg": values_of_dicts(e["arg"])}
    a, b = values_of_dicts(e["left"]), values_of_dicts(e["right"])
    if a == {"op": "num", "value": 0.0}:
        return b
    return {"op": e["op"], "left": a, "right": b}


def evaluated(e, x):
    match e:
        case ("num", value):
            return value
        case ("var",):
            return x
        case ("neg", a):
            return -evaluated(a, x)
        case ("add", a, b):
            return evaluated(a, x) + evaluated(b, x)
        case ("mul", a, b):
            return evaluated(a, x) * evaluated(b, x)


def slope(e, x):
    return evaluated(derivative(e), x)


def simplified_value(e, x):
    return evaluated(simplified(e), x * 2)


def put_in(e, x):
    if e[0] == "var":
        return ("num", x)
    return e if e[0] == "num" else (e[0], *[put_in(part, x) for part in e[1:]])


def put_in_by_length(e, x):
    if e[0] == "var":
        return ("num", x)
    if e[0] == "num":
        return e
    if len(e) == 2:
        return (e[0], put_in_by_length(e[1], x))
    return (e[0], put_in_by_length(e[1], x), put_in_by_length(e[2], x))


def value_put_in(e, x):
    return evaluated(put_in_by_length(e, x), 0.0)


# ---- trees of the function's own results


def of_numbers(n):
    return n if n <= 0 else (of_numbers(n - 1), of_numbers(n - 2))


def of_dicts(n):
    return n if n <= 0 else {"low": of_dicts(n - 1), "high": of_dicts(n - 2)}


def of_lists(n):
    return n if n <= 0 else [of_lists(n - 1), of_lists(n - 2)]


def of_words(n):
    return "leaf" if n <= 0 else (of_words(n - 1), of_words(n - 2))


def total(t):
    return total(t[0]) + total(t[1]) if isinstance(t, tuple) else t


def summed(n):
    return total(of_numbers(n))


def split(xs):
    if len(xs) == 1:
        return xs[0]
    middle = len(xs) // 2
    return (split(xs[:middle]), split(xs[middle:]))


def blended(t, w):
    return w * blended(t[0], w) + (1 - w) * blended(t[1], w) if isinstance(t, tuple) else t


def mixed(xs, w):
    return blended(split(xs), w)


def fitted(xs, ys):
    """A regression tree: a number, or a dict of two of its own results."""
    mean = sum(xs) / len(xs)
    low = [(x, y) for x, y in zip(xs, ys, strict=True) if x < mean]
    high = [(x, y) for x, y in zip(xs, ys, strict=True) if x >= mean]
    if len(xs) < 3 or not low or not high:
        return sum(ys) / len(ys)
    return {
        "at": mean,
        "low": fitted([x for x, _ in low], [y for _, y in low]),
        "high": fitted([x for x, _ in high], [y for _, y in high]),
    }


def predicted(xs, ys, x):
    t = fitted(xs, ys)
    while isinstance(t, dict):
        t = t["low"] if x < t["at"] else t["high"]
    return t


TREES = [tree() for _ in range(12)]
POINTS = [round(RANDOM.uniform(-1, 1), 3) for _ in TREES]
LISTS = [[round(RANDOM.uniform(0, 9), 2) for _ in range(RANDOM.randrange(2, 9))] for _ in range(6)]
TARGETS = [[round(RANDOM.uniform(0, 9), 2) for _ in xs] for xs in LISTS]
WEIGHTS = [round(RANDOM.uniform(0, 1), 3) for _ in LISTS]
COUNTS = [0, 1, 5, 3, 2]
OF_TREES = [derivative, simplified, swapped, halves, among, equal_parts]
OF_COUNTS = [of_numbers, of_dicts, of_lists, of_words, summed]
OF_POINTS = [evaluated, slope, simplified_value, value_put_in]
CASES = {
    **{f: (TREES,) for f in OF_TREES},
    **{f: (COUNTS,) for f in OF_COUNTS},
    **{f: (TREES, POINTS) for f in (*OF_POINTS, put_in_by_length)},
    values_of_dicts: (list(map(as_dict, TREES)),),
    split: (LISTS,),
    mixed: (LISTS, WEIGHTS),
    fitted: (LISTS, TARGETS),
    predicted: (LISTS, TARGETS, POINTS[: len(LISTS)]),
}
DIFFERENTIATED = {slope: 1, simplified_value: 1, value_put_in: 1, mixed: 1}
"""Functions with derivatives, and by which argument."""
