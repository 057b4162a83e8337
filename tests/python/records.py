"""Programs whose lists, tuples and dicts have elements of several types, lie in others, or link to their own kind."""

from __future__ import annotations

import copy
import heapq
import math


class Queue:
    """A priority queue as the documentation of `heapq` has it: entries are marked as removed."""

    def __init__(self):
        self.heap, self.at, self.count = [], {}, 0

    def put(self, key, priority):
        if key in self.at:
            self.at[key][2] = -1
        self.count += 1
        entry = [priority, self.count, key]
        self.at[key] = entry
        heapq.heappush(self.heap, entry)

    def get(self):
        while self.heap:
            priority, _, key = heapq.heappop(self.heap)
            if key >= 0:
                del self.at[key]
                return key, priority
        return -1, 0.0


def scheduled(x):
    queue, total = Queue(), 0.0
    queue.put(0, x)
    queue.put(1, x / 2)
    while len(queue.at) > 0:
        key, priority = queue.get()
        total += priority
        if priority > 1.0:
            queue.put(key, priority - 1.5)
            queue.put((key + 1) % 3, priority / 3)
    return total


class Graph:
    def __init__(self):
        self.edges = {}

    def add(self, a, b, weight):
        self.edges.setdefault(a, []).append([b, weight])


def shortest(x):
    graph = Graph()
    for a, b, weight in [(0, 1, x), (0, 2, 1.5), (1, 2, x / 2), (2, 3, 1.0)]:
        graph.add(a, b, weight)
    distance, queue = {0: 0.0}, [(0.0, 0)]
    while queue:
        d, node = heapq.heappop(queue)
        if d > distance[node]:
            continue
        for other, weight in graph.edges.get(node, []):
            if d + weight < distance.get(other, math.inf):
                distance[other] = d + weight
                heapq.heappush(queue, (distance[other], other))
    return distance[3]


def table(x):
    rows = [["a", 0.0, 0], ["b", 1.0, 0], ["c", 2.0, 0]]
    k = int(x) % 3
    rows[k][1] += x
    rows[k][2] += 1
    best = max(rows, key=lambda r: r[1])
    return best[0], best[2]


def cancelled(x):
    queue, entries = [], {}
    for k in range(4):
        entry = [math.sin(x * k), k, True]
        entries[k] = entry
        heapq.heappush(queue, entry)
    entries[int(x) % 4][2] = False
    left = []
    while queue:
        _, k, live = heapq.heappop(queue)
        if live:
            left.append(k)
    return left


def frames(x):
    stack, total = [[x, 0, False]], 0.0
    while stack:
        top = stack[-1]
        if top[2]:
            total += top[0] * top[1]
            stack.pop()
        else:
            top[2] = True
            if top[0] > 0.5 and top[1] < 5:
                stack.append([top[0] * 0.6, top[1] + 1, False])
    return total


def counted(x):
    rows, names = [[0, 0.0] for _ in range(3)], ["a", "b", "c"]
    while x > 0.4:
        row = rows[int(x * 10.03) % 3]
        row[0] += 1
        row[1] += x
        x *= 0.7
    return [names[r[0] % 3] for r in rows], [r[1] / max(r[0], 1) for r in rows]


def returned(x):
    rows = [[k, x * k, None] for k in range(3)]
    for k in range(2):
        if x * k > 1:
            rows[k + 1][2] = rows[k][0]
    last = rows[int(x) % 3]
    last[1] = -1.0
    return rows, last


def copied(x):
    row = [1, x, True]
    rows = [row, row[:], list(row), copy.copy(row)]
    rows[int(x) % 4][0] = 5
    return [a for a, _, _ in rows]


def compared(x):
    rows = [[x * k % 1.3, k, "n"] for k in range(4)]
    rows[int(x) % 4][1] = 9
    rows.sort()
    return rows[0][1], rows[1] < rows[2], rows[0] == rows[3], max(rows)[1]


def searched(x):
    rows = [[k, k * 0.5, "a"] for k in range(3)]
    rows[int(x) % 3][2] = "b"
    row = rows[1]
    return [1, 0.5, "a"] in rows, 1 in row, len(row), rows[-1][-1], isinstance(row, list), row is rows[0]


def appended(x):
    rows = [[k, x * k] for k in range(3)]
    rows[int(x) % 3].append(2.0)
    return [len(r) for r in rows], sum(sum(r) for r in rows)


def indexed(x):
    rows, k = [[k, x * k, 1] for k in range(3)], int(x) % 3
    rows[k][k] += 2
    return sum(rows[1]), rows[k][(k + 1) % 3]


def assigned(x):
    rows = [[0, x, "a"], [1, x, "b"]]
    rows[int(x) % 2][:] = [5, 1.0, "z"]
    return rows


def of_lengths(x):
    rows = [[1, x], [2, x, True]]
    k = int(x) % 2
    rows[k][0] += 1
    return rows[0][0], rows[1][2], len(rows[k])


def evicted(x):
    cache, clock, hits = {}, 0, 0
    for k in [1, 2, 1, 3, 2, 1]:
        clock += 1
        if k in cache:
            cache[k][1] = clock
            cache[k][0] += x
            hits += 1
        else:
            if len(cache) >= 2:
                del cache[min(cache, key=lambda q: cache[q][1])]
            cache[k] = [x * k, clock]
    return hits, sorted(cache), sum(v for v, _ in cache.values())


def matched(x):
    events = [[0, x, "on"], [1, x, "off"]]
    events[int(x) % 2][1] += 1.0
    total = 0.0
    for event in events:
        match event:
            case [_, v, "on"]:
                total += v
            case [k, v, _]:
                total -= v * k
    return total


def best_so_far(x):
    best = []
    for k in range(4):
        y = math.cos(x * k)
        if not best or y > best[0]:
            best = [y, k]
    best[1] += 1
    return best


def linked_lists(x):
    head, n = None, 0
    while x > 0.2:
        head = [n, x, head]
        n += 1
        x *= 0.5
    total = 0.0
    while head is not None:
        total += head[0] * head[1]
        head = head[2]
    return total


def linked_tuples(x):
    head, n = None, 0
    while x > 0.2:
        head = (n, x, head)
        n += 1
        x *= 0.5
    total, kept = 0.0, head
    while head is not None:
        a, b, head = head
        total += a * b
    return total, kept


def linked_dicts(x):
    head, n = None, 0
    while x > 0.2:
        head = {"n": n, "x": x, "next": head}
        n += 1
        x *= 0.5
    total = 0.0
    while head is not None:
        total += head["n"] * head["x"]
        head = head["next"]
    return total


def ends_in_empty(x):
    pairs, lists = (), []
    while x > 0.2:
        pairs, lists = (x, pairs), [x, lists]
        x *= 0.5
    total = 0.0
    while pairs:
        total = total * 0.5 + pairs[0] + lists[0]
        pairs, lists = pairs[1], lists[1]
    return total


def reversed_pairs(x):
    def rev(pairs, done=None):
        return done if pairs is None else rev(pairs[1], (pairs[0], done))

    def total(pairs):
        return 0.0 if pairs is None else pairs[0] * 0.9 + total(pairs[1])

    pairs = None
    while x > 0.3:
        pairs = (x, pairs)
        x *= 0.6
    return total(rev(pairs)), total(pairs)


def tree_of_tuples(x):
    def build(depth, y):
        return None if depth == 0 or y < 0.1 else (build(depth - 1, y * 0.5), y, build(depth - 1, y * 0.3))

    def total(tree):
        if tree is None:
            return 0.0
        left, value, right = tree
        return total(left) * 0.5 + value + total(right)

    return total(build(4, x))


def path(x):
    queue, found, k = [(0, None)], None, 0
    while k < len(queue):
        node, before = queue[k]
        k += 1
        if node * 0.7 > x or k > 12:
            found = (node, before)
            break
        for d in (1, 2):
            queue.append((node * 2 + d, (node, before)))
    steps = []
    while found is not None:
        steps.append(found[0])
        found = found[1]
    return steps[::-1]


def calls(x):
    stack, total = ("call", 3, None), 0.0
    while stack is not None:
        op, n, stack = stack
        if op == "call" and n > 0:
            stack = ("call", n - 1, ("ret", n, stack))
        elif op == "ret":
            total = total * 0.5 + n * x
    return total


def nested_to_the_left(x):
    nested, n = x, 0
    for k in range(3):
        if x * k > 0.5:
            nested = (nested, k)
    while isinstance(nested, tuple):
        n = n * 3 + nested[1]
        nested = nested[0]
    return n, nested


def expression(x):
    e = x
    for k in range(4):
        e = ("+", e, k * 0.5) if x > k * 0.6 else ("neg", e)

    def value(e):
        if isinstance(e, tuple):
            return -value(e[1]) if e[0] == "neg" else value(e[1]) + value(e[2])
        return e

    return value(e)


def events(x):
    log, total = [], 0.0
    for k in range(5):
        y = math.sin(x * k)
        if y > 0.3:
            log.append(("up", y))
        elif y < -0.3:
            log.append(("down", y, k))
        else:
            log.append(("flat",))
    for event in log:
        if event[0] == "up":
            total += event[1]
        elif event[0] == "down":
            total -= event[1] * event[2]
    return total, len(log)


def returned_events(x):
    log = []
    for k in range(5):
        y = math.sin(x * k)
        log.append(("up", y) if y > 0.3 else ("flat",))
    return log


def keyed_events(x):
    log = []
    for k in range(4):
        y = math.cos(x * k)
        log.append({"kind": "a", "v": y} if y > 0 else {"kind": "b", "w": k})
    return sum(e["v"] if e["kind"] == "a" else e["w"] * 2.0 for e in log)


def states(x):
    state, lengths = ("idle",), []
    for k in range(6):
        if state[0] == "idle":
            state = ("run", x, k) if x * k > 1 else ("idle",)
        elif state[0] == "run":
            state = ("run", state[1] * 0.5, state[2]) if state[1] > 0.6 else ("done", state[2])
        lengths.append(len(state))
    return lengths, state[0]


def shapes(x):
    def shape(y):
        return ["circle", y] if y > 1 else ["box", y, 2 * y, True]

    def area(s):
        return 3.0 * s[1] ** 2 if s[0] == "circle" else s[1] * s[2]

    return sum(area(shape(x * k)) for k in range(4))


def parsed(x):
    if x < 0.5:
        return None
    return ("small", x) if x < 1.5 else ("big", x, int(x))


def machine(x):
    code, stack, at = [("push", x), ("less", 3.0, 3), ("push", 1.0), ("half",), ("end",)], [], 0
    while code[at][0] != "end":
        step = code[at]
        if step[0] == "push":
            stack.append(step[1])
        elif step[0] == "half":
            stack.append(stack.pop() * 0.5)
        elif step[0] == "less" and stack[-1] < step[1]:
            at = step[2]
            continue
        at += 1
    return sum(stack)


def one_list(x):
    a, b = [x, 0], [0.5, 1]
    rows = [a, b]
    for c in list(rows):
        if c[0] > 1.0:
            a = rows[-1]
    return a is b, a[1]


def one_tuple(x):
    a = (x, 1)
    b, c = a, (x, 1)
    if x > 1:
        b = c
    return a is b, b is c, a == c


def two_names(x):
    a = {"v": x}
    b = a
    while x > 0.5:
        b["v"] += 1.0
        b = {"v": b["v"]}
        x -= 1.0
    return a["v"], b["v"], a is b


PROGRAMS = [f for f in list(globals().values()) if getattr(f, "__code__", None) and f.__module__ == __name__]
