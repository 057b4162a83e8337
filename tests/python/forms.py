"""Trees, lists and messages that are tuples and dicts of several forms, as arguments."""

from __future__ import annotations

import enum
import math
import random

RANDOM = random.Random(7)
ARITY = {"add": 2, "mul": 2, "neg": 1, "sin": 1, "if": 3}


def tree(depth=4):
    if depth == 0 or RANDOM.random() < 0.25:
        return RANDOM.choice([("num", round(RANDOM.uniform(-2, 2), 2)), ("var",)])
    kind = RANDOM.choice(list(ARITY))
    return (kind, *(tree(depth - 1) for _ in range(ARITY[kind])))


def by_comparison(e, x):
    op = e[0]
    if op == "num":
        return e[1]
    if op == "var":
        return x
    if op == "neg":
        return -by_comparison(e[1], x)
    if op == "sin":
        return math.sin(by_comparison(e[1], x))
    if op == "if":
        return by_comparison(e[2], x) if by_comparison(e[1], x) > 0 else by_comparison(e[3], x)
    a, b = by_comparison(e[1], x), by_comparison(e[2], x)
    return a + b if op == "add" else a * b


def by_length(e, x):
    if len(e) == 1:
        return x
    if len(e) == 2:
        op, a = e
        if op == "num":
            return a
        u = by_length(a, x)
        return -u if op == "neg" else math.sin(u)
    if len(e) == 4:
        _, test, then, orelse = e
        return by_length(then, x) if by_length(test, x) > 0 else by_length(orelse, x)
    op, a, b = e
    return by_length(a, x) + by_length(b, x) if op == "add" else by_length(a, x) * by_length(b, x)


def by_star(e, x):
    op, *parts = e
    if op == "num":
        return parts[0]
    if op == "var":
        return x
    values = [by_star(a, x) for a in parts]
    if op == "neg":
        return -values[0]
    if op == "sin":
        return math.sin(values[0])
    if op == "if":
        return values[1] if values[0] > 0 else values[2]
    return values[0] + values[1] if op == "add" else values[0] * values[1]


def by_membership(e, x):
    if e[0] in ("num", "var"):
        return e[1] if e[0] == "num" else x
    if e[0] in ("neg", "sin"):
        u = by_membership(e[1], x)
        return -u if e[0] == "neg" else math.sin(u)
    if e[0] not in ("add", "mul"):
        return by_membership(e[2], x) if by_membership(e[1], x) > 0 else by_membership(e[3], x)
    a, b = by_membership(e[1], x), by_membership(e[2], x)
    return a + b if e[0] == "add" else a * b


def by_pattern(e, x):
    match e:
        case ("num", u):
            return u
        case ("var",):
            return x
        case ("neg", a):
            return -by_pattern(a, x)
        case ("sin", a):
            return math.sin(by_pattern(a, x))
        case ("if", test, a, b):
            return by_pattern(a, x) if by_pattern(test, x) > 0 else by_pattern(b, x)
        case ("add" | "mul" as op, a, b):
            u, w = by_pattern(a, x), by_pattern(b, x)
            return u + w if op == "add" else u * w


def by_table(e, x):
    functions = {"add": lambda a, b: a + b, "mul": lambda a, b: a * b}
    if e[0] in functions:
        return functions[e[0]](by_table(e[1], x), by_table(e[2], x))
    if e[0] == "num":
        return e[1]
    if e[0] == "neg":
        return -by_table(e[1], x)
    if e[0] == "sin":
        return math.sin(by_table(e[1], x))
    return by_table(e[2], x) if e[0] == "if" else x


def size(e, x):
    if len(e) <= 1 or e[0] == "num":
        return 1
    return 1 + sum(size(a, x) for a in e[1:])


def depth(e, x):
    if not isinstance(e, tuple):
        return 0
    return 1 + max([depth(a, x) for a in e[1:]], default=0)


def numbers_in(e, x):
    if isinstance(e, str):
        return 0.0
    if isinstance(e, float):
        return e * x
    return sum(numbers_in(a, x) for a in e)


def with_a_stack(e, x):
    todo, total = [e], 0.0
    while todo:
        top = todo.pop()
        if top[0] == "num":
            total += top[1]
        elif top[0] != "var":
            for a in top[1:]:
                todo.append(a)
    return total * x


def value_and_slope(e, x):
    if e[0] == "num":
        return e[1], 0.0
    if e[0] == "var":
        return x, 1.0
    if e[0] == "neg":
        u, du = value_and_slope(e[1], x)
        return -u, -du
    if e[0] == "sin":
        u, du = value_and_slope(e[1], x)
        return math.sin(u), du * math.cos(u)
    if e[0] == "if":
        test, _ = value_and_slope(e[1], x)
        return value_and_slope(e[2], x) if test > 0 else value_and_slope(e[3], x)
    (u, du), (w, dw) = value_and_slope(e[1], x), value_and_slope(e[2], x)
    return (u + w, du + dw) if e[0] == "add" else (u * w, du * w + u * dw)


def constant_or_none(e, x):
    if e[0] == "num":
        return e[1]
    if e[0] == "var":
        return None
    values = [constant_or_none(a, x) for a in e[1:]]
    if any(u is None for u in values):
        return None
    return values[0] + values[1] if e[0] == "add" else float(len(values))


def dict_tree(depth=4):
    if depth == 0 or RANDOM.random() < 0.25:
        return RANDOM.choice([{"op": "const", "value": RANDOM.random()}, {"op": "x"}])
    kind = RANDOM.choice(["neg", "exp", "mul", "sub"])
    if kind in ("neg", "exp"):
        return {"op": kind, "arg": dict_tree(depth - 1)}
    return {"op": kind, "l": dict_tree(depth - 1), "r": dict_tree(depth - 1)}


def of_dicts(e, x):
    op = e["op"]
    if op == "const":
        return e["value"]
    if op == "x":
        return x
    if "arg" in e:
        u = of_dicts(e["arg"], x)
        return -u if op == "neg" else math.exp(-abs(u))
    a, b = of_dicts(e["l"], x), of_dicts(e["r"], x)
    return a * b if op == "mul" else a - b


def by_get(e, x):
    if e.get("value") is not None:
        return e["value"]
    if e["op"] == "x":
        return x
    a = e.get("arg")
    if a is not None:
        return -by_get(a, x)
    return by_get(e["l"], x) + by_get(e["r"], x)


def by_patterns_of_dicts(e, x):
    match e:
        case {"op": "const", "value": u}:
            return u
        case {"op": "x"}:
            return x
        case {"op": "neg", "arg": a}:
            return -by_patterns_of_dicts(a, x)
        case {"op": "exp", "arg": a}:
            return math.exp(-abs(by_patterns_of_dicts(a, x)))
        case {"op": "mul", "l": a, "r": b}:
            return by_patterns_of_dicts(a, x) * by_patterns_of_dicts(b, x)
        case {"op": "sub", "l": a, "r": b}:
            return by_patterns_of_dicts(a, x) - by_patterns_of_dicts(b, x)


def events():
    kinds = [
        ("push", RANDOM.random()),
        ("scale", RANDOM.random(), 2.0),
        ("name", "ab" * RANDOM.randint(1, 3)),
        ("flip",),
    ]
    return [RANDOM.choice(kinds) for _ in range(RANDOM.randint(1, 6))]


def of_events(found, x):
    for e in found:
        if e[0] == "push":
            x += e[1]
        elif e[0] == "scale":
            x *= e[1] * e[2]
        elif e[0] == "name":
            x += len(e[1])
        else:
            x = -x
    return x


def messages():
    kinds = [{"type": "deposit", "amount": RANDOM.random() * 10}, {"type": "rename", "to": "x" * RANDOM.randint(1, 4)}]
    kinds += [{"type": "split", "n": RANDOM.randint(1, 3)}, {"type": "none"}]
    return [RANDOM.choice(kinds) for _ in range(RANDOM.randint(1, 6))]


def of_messages(found, x):
    for m in found:
        if m["type"] == "deposit":
            x += m["amount"]
        elif m["type"] == "rename":
            x += len(m["to"]) * 0.1
        elif m["type"] == "split":
            x /= m["n"]
    return x


def shape():
    a, b, c = (RANDOM.uniform(3, 4) for _ in range(3))
    return RANDOM.choice([("circle", a), ("rectangle", (a, b)), ("triangle", (a, b, c))])


def area(s, x):
    kind, size_ = s
    if kind == "circle":
        return math.pi * size_ * size_ * x
    if kind == "rectangle":
        return size_[0] * size_[1] * x
    a, b, c = size_
    half = (a + b + c) / 2
    return math.sqrt(half * (half - a) * (half - b) * (half - c)) * x


class Op(enum.Enum):
    LITERAL = 1
    NEGATED = 2
    SUM = 3


def enum_tree(depth=3):
    if depth == 0 or RANDOM.random() < 0.25:
        return (Op.LITERAL, RANDOM.random())
    if RANDOM.random() < 0.5:
        return (Op.NEGATED, enum_tree(depth - 1))
    return (Op.SUM, [enum_tree(depth - 1) for _ in range(RANDOM.randint(1, 3))])


def of_members(e, x):
    match e:
        case (Op.LITERAL, u):
            return u * x
        case (Op.NEGATED, a):
            return -of_members(a, x)
        case (Op.SUM, parts):
            return sum(of_members(a, x) for a in parts)


def code(depth=4):
    if depth == 0 or RANDOM.random() < 0.2:
        return RANDOM.choice([(0, RANDOM.random()), (1,)])
    return (2, code(depth - 1), code(depth - 1)) if RANDOM.random() < 0.6 else (3, code(depth - 1))


def of_codes(e, x):
    if e[0] == 0:
        return e[1]
    if e[0] == 1:
        return x
    if e[0] == 2:
        return of_codes(e[1], x) + of_codes(e[2], x)
    return -of_codes(e[1], x)


def payload(depth=3):
    if depth and RANDOM.random() < 0.6:
        return ("twice", payload(depth - 1))
    numbers = [RANDOM.random() for _ in range(RANDOM.randint(1, 3))]
    return RANDOM.choice([("pair", (RANDOM.random(), RANDOM.random())), ("one", RANDOM.random()), ("list", numbers)])


def of_payloads(e, x):
    if e[0] == "pair":
        return e[1][0] * e[1][1] * x
    if e[0] == "one":
        return e[1] * x
    if e[0] == "list":
        return sum(e[1]) * x
    return of_payloads(e[1], x) * 2


def logic(depth=3):
    if depth == 0 or RANDOM.random() < 0.2:
        return RANDOM.choice([("lit", RANDOM.random() < 0.5), ("gt", RANDOM.uniform(-1, 1))])
    kind = RANDOM.choice(["not", "and", "or"])
    return (kind, *(logic(depth - 1) for _ in range(1 if kind == "not" else 2)))


def of_logic(e, x):
    if e[0] == "lit":
        return e[1]
    if e[0] == "not":
        return not of_logic(e[1], x)
    if e[0] == "gt":
        return x > e[1]
    if e[0] == "and":
        return of_logic(e[1], x) and of_logic(e[2], x)
    return of_logic(e[1], x) or of_logic(e[2], x)


def text(depth=3):
    if depth == 0 or RANDOM.random() < 0.2:
        return ("lit", "abcdef"[: RANDOM.randint(1, 5)])
    return ("cat", text(depth - 1), text(depth - 1)) if RANDOM.random() < 0.5 else ("head", text(depth - 1))


def of_texts(e, x):
    if e[0] == "lit":
        return e[1]
    if e[0] == "cat":
        return of_texts(e[1], x) + of_texts(e[2], x)
    return of_texts(e[1], x)[:2]


def program():
    expression = lambda: RANDOM.choice([("num", RANDOM.random()), ("var",), ("mean", ("var",), ("num", 1.0))])
    kinds = [("set", expression()), ("loop", RANDOM.randint(0, 3), expression()), ("negate",)]
    return [RANDOM.choice(kinds) for _ in range(RANDOM.randint(1, 4))]


def of_programs(statements, x):
    def value(e, x):
        if e[0] == "num":
            return e[1]
        return x if e[0] == "var" else (value(e[1], x) + value(e[2], x)) / 2

    for s in statements:
        if s[0] == "set":
            x = value(s[1], x)
        elif s[0] == "loop":
            for _ in range(s[1]):
                x += value(s[2], x) * 0.1
        else:
            x = -x
    return x


_OF_TREES = [
    by_comparison,
    by_length,
    by_star,
    by_membership,
    by_pattern,
    by_table,
    size,
    depth,
    numbers_in,
    with_a_stack,
]
MAKERS = {f: tree for f in [*_OF_TREES, value_and_slope, constant_or_none]}
MAKERS |= dict.fromkeys([of_dicts, by_get, by_patterns_of_dicts], dict_tree)
MAKERS |= {of_events: events, of_messages: messages, area: shape, of_members: enum_tree, of_codes: code}
MAKERS |= {of_payloads: payload, of_logic: logic, of_texts: text, of_programs: program}
OF_NUMBERS = [f for f in MAKERS if f not in (size, depth, value_and_slope, constant_or_none, of_logic, of_texts)]
NUMBERS = [0.5, -1.5, 2.0, 0.25, -0.75, 1.25, 0.8, -0.3]
EXAMPLES = {f: [[make() for _ in NUMBERS] for _ in range(3)] for f, make in MAKERS.items()}
