"""Programs over data of several types: expressions, nested lists, tokens, records, by the types that parts have."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import Any


class Op(enum.Enum):
    ADD = 1
    MUL = 2


@dataclass
class Add:
    left: Any
    right: Any


@dataclass
class Neg:
    arg: Any


@dataclass
class Item:
    key: int | str
    value: float | list[float]


class Shape:
    def area(self):
        return 0.0


@dataclass
class Square(Shape):
    side: float | str

    def area(self):
        return self.side**2 if isinstance(self.side, float) else 1.0


TREES = [Add(1.0, Neg(Add("x", 2.5))), Neg("y"), Add(Add(1.0, "x"), Add("y", 3.0)), Neg(2.0)]
NESTED = [2.0, [1.0, 5.0], [[3.0, 4.0], 0.5], [[], [1.0, [2.0, [3.0]]]]]
MIXED = [[1, "a", 2.5, None], ["b", "cc"], [], [None, 7]]
TUPLES = [("+", "x", ("*", 2.0, "x")), ("*", 3.0, 4.0), "x", 5.0]
LISTS = [["+", 1, ["*", 2, 3]], ["*", ["+", 1, 1], 4], 5]
RECORDS = [{"a": [1.0, {"b": 2.0}], "c": "s"}, {"a": [], "c": 3.0}, [1.0], "x"]
TOKENS = [["(", 1.0, "+", 2.0, ")"], [3.0], [1.5, "+", "(", 2.0, "+", 4.0, ")"]]
NUMBERS = [[3, "a", 1.5, "b"], [2.5], ["c", 4]]
WORDS = [["a", 1.0], [2.0, "b", "c"], ["d"]]


# ---- of a number x too


def evaluated(e, x):
    if isinstance(e, str):
        return x if e == "x" else x * x
    if isinstance(e, float):
        return e
    if isinstance(e, Neg):
        return -evaluated(e.arg, x)
    return evaluated(e.left, x) + evaluated(e.right, x)


def matched(e, x):
    match e:
        case float():
            return e
        case str(name):
            return x if name == "x" else x * x
        case Neg(arg):
            return -matched(arg, x)
        case Add(left=a, right=b):
            return matched(a, x) + matched(b, x)


def by_type(e, x):
    if type(e) is float:
        return e
    if type(e) == str:  # noqa: E721
        return x + len(e)
    if type(e) is Neg:
        return -by_type(e.arg, x)
    return by_type(e.left, x) + by_type(e.right, x)


def dispatched(e, x):
    table = {
        float: lambda v: v,
        str: lambda v: x,
        Neg: lambda v: -dispatched(v.arg, x),
        Add: lambda v: dispatched(v.left, x) + dispatched(v.right, x),
    }
    return table[type(e)](e)


def on_a_stack(e, x):
    total, stack = 0.0, [e]
    while stack:
        n = stack.pop()
        if isinstance(n, float):
            total += n
        elif isinstance(n, str):
            total += x
        elif isinstance(n, Neg):
            stack.append(n.arg)
        else:
            stack.append(n.left)
            stack.append(n.right)
    return total


def of_tuples(e, x):
    if isinstance(e, float):
        return e
    if isinstance(e, str):
        return x
    op, a, b = e
    a, b = of_tuples(a, x), of_tuples(b, x)
    return a + b if op == "+" else a * b


# ---- of one argument


def size(e):
    if isinstance(e, (float, str)):
        return 1
    if isinstance(e, Neg):
        return 1 + size(e.arg)
    return 1 + size(e.left) + size(e.right)


def doubled(e):
    if isinstance(e, float):
        return e * 2
    if isinstance(e, str):
        return e
    if isinstance(e, Neg):
        return Neg(doubled(e.arg))
    return Add(doubled(e.left), doubled(e.right))


def shown(e):
    if isinstance(e, str):
        return e
    if isinstance(e, float):
        return "c"
    if isinstance(e, Neg):
        return "-" + shown(e.arg)
    return "(" + shown(e.left) + "+" + shown(e.right) + ")"


def total(t):
    return t if isinstance(t, float) else sum(total(k) for k in t)


def depth(t):
    if not isinstance(t, list):
        return 0
    return 1 + max([depth(k) for k in t], default=0)


def flattened(t):
    out = []

    def walk(t):
        if isinstance(t, list):
            for k in t:
                walk(k)
        else:
            out.append(t)

    walk(t)
    return out


def counted(xs):
    whole, real, letters, nothing = 0, 0.0, 0, 0
    for x in xs:
        if x is None:
            nothing += 1
        elif isinstance(x, int):
            whole += x
        elif isinstance(x, float):
            real += x
        else:
            letters += len(x)
    return whole, real, letters, nothing


def words_of(xs):
    return [x for x in xs if isinstance(x, str)]


def first_equal(xs):
    for i, x in enumerate(xs):
        if x == "b" or x == 7:
            return i
    return -1


def truths(xs):
    return [1 if x else 0 for x in xs], sum(1 for x in xs if x != "a")


def parsed(tokens):
    pos = 0

    def atom():
        nonlocal pos
        t = tokens[pos]
        pos += 1
        if t == "(":
            a = whole()
            pos += 1
            return a
        return t

    def whole():
        nonlocal pos
        a = atom()
        while pos < len(tokens) and tokens[pos] == "+":
            pos += 1
            a = a + atom()
        return a

    return whole()


def numbers_sorted(xs):
    return sorted(x for x in xs if not isinstance(x, str)), max([x for x in xs if isinstance(x, (int, float))])


def partitioned(xs):
    numbers, words = [], []
    for x in xs:
        (words if isinstance(x, str) else numbers).append(x)
    return len(numbers), words


def walked(t):
    if isinstance(t, dict):
        return sum(walked(v) for v in t.values())
    if isinstance(t, list):
        return sum(walked(v) for v in t)
    return len(t) * 100.0 if isinstance(t, str) else t


def of_lists(e):
    if isinstance(e, list):
        a, b = of_lists(e[1]), of_lists(e[2])
        return a + b if e[0] == "+" else a * b
    return e


def patterns(e):
    match e:
        case (_, a, b):
            return 1 + patterns(a) + patterns(b)
        case float():
            return 10
        case _:
            return 100


def last_number(xs):
    best = None
    for x in xs:
        if isinstance(x, float):
            best = x
    return best


def handed_on(xs):
    best = xs[0]
    for x in xs:
        if isinstance(x, str):
            best = x
    return best, xs[::-1], xs[-1]


def by_another_test(xs):
    found = 0.0
    for x in xs:
        if x != "a" and x != "b" and x != "c" and x != "d":
            found = found + x
            found += math.sin(x) + abs(x) + max(x, 0.5)
    return found


def items(xs):
    out = 0.0
    for i in xs:
        value = i.value if isinstance(i.value, float) else sum(i.value)
        out += value * (i.key if isinstance(i.key, int) else len(i.key) + 10)
    return out


def with_units(q):
    value, unit = q
    if unit == "m":
        return value
    if unit == "km":
        return value * 1000
    return value * unit


def of_members(xs):
    found = 0.0
    for x in xs:
        if isinstance(x, Op):
            found += 10 * x.value
        else:
            found += x
    return found


def areas(xs):
    return sum(x.area() if isinstance(x, Shape) else (x if isinstance(x, float) else -1.0) for x in xs)


def kind(x):
    if isinstance(x, bool):
        return 1
    if isinstance(x, int):
        return 2
    return 3 if isinstance(x, (float, int)) else 4


def none_or_number(xs):
    found = 0.0
    for x in xs:
        if x is not None:
            found += x
    return found, len(xs), [x is None for x in xs]


def has_attribute(xs):
    return [1 if hasattr(x, "arg") else 2 for x in xs]


ITEMS = [[Item(1, 2.0), Item("a", [1.0, 2.0])], [Item("b", 3.0)]]
OF_TWO = [
    (evaluated, TREES), (matched, TREES), (by_type, TREES), (dispatched, TREES), (on_a_stack, TREES),
    (of_tuples, TUPLES),
]  # fmt: skip
OF_ONE = [
    (size, TREES), (total, NESTED), (depth, NESTED), (flattened, NESTED),
    (counted, MIXED), (words_of, MIXED), (first_equal, MIXED), (truths, MIXED), (parsed, TOKENS),
    (numbers_sorted, NUMBERS), (partitioned, NUMBERS), (walked, RECORDS), (of_lists, LISTS), (patterns, TUPLES),
    (last_number, WORDS), (handed_on, WORDS), (by_another_test, WORDS), (items, ITEMS),
    (with_units, [(1.0, "m"), (2.0, 3), (4.0, "km")]),
    (of_members, [[1.5, Op.ADD, 2.0], [Op.MUL, 3.0]]),
    (areas, [[Square(2.0), "none", Square("big")], [3.0, Square(1.0)]]),
    (kind, [True, 3, 2.5, "s"]),
    (none_or_number, [[None, 1.0], [2.0], [None, None]]),
    (none_or_number, [[None], [None, None]]),
    (has_attribute, [[Neg(1.0), None], [None, Neg(2.0), Neg(0.5)]]),
]  # fmt: skip
