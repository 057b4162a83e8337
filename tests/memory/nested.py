"""Lists inside lists, dicts and objects that are changed in place where numbers decide.

Each program is a plain function of `w`, that all examples share, and `x`, a number of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp

PROGRAMS: list[Callable[[Any, Any], Any]] = []


def program(f: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    PROGRAMS.append(f)
    return f


@dataclass
class Tree:
    value: Any
    children: list[Any] = field(default_factory=list)


class Track:
    def __init__(self, start: Any) -> None:
        self.history = [start]

    def add(self, v: Any) -> None:
        self.history.append(self.history[-1] * 0.5 + v)


@program
def bucket_sort(w: Any, x: Any) -> Any:
    buckets: list[list[Any]] = [[] for _ in range(3)]
    y = x
    while y < 3.0:
        y = y * 1.3 + 0.2
        v = (y * 2.7) % 1.0
        buckets[int(v * 3.0)].append(v * w)
    s, d = 0.0, 1.0
    for bucket in buckets:
        for v in sorted(bucket):
            s = s + v * d
            d = d * 0.8
    return s


@program
def groups(w: Any, x: Any) -> Any:
    found: dict[int, list[Any]] = {}
    k = 0
    while x < 3.0:
        x = x * 1.3 + 0.2
        k += 1
        found.setdefault(k % 3, []).append(x * w)
    s = 0.0
    for key, values in found.items():
        s = s * 0.5 + (key + 1) * sum(values) + len(values)
    return s


@program
def grouped_by_default(w: Any, x: Any) -> Any:
    found = defaultdict(list)
    k = 0
    while x < 3.0:
        x = x * 1.3 + 0.2
        k += 1
        found[k % 2].append(x * w)
        found[k % 3].append(0.5 * x)
    return sum(sum(v) * (k + 1) for k, v in found.items())


@program
def edit_distance(w: Any, x: Any) -> Any:
    a, b = [], []
    while x < 3.0:
        x = x * 1.4 + 0.2
        a.append(x)
        if len(b) < 3:
            b.append(x * w)
    n, m = len(a), len(b)
    grid = [[0.0] * (m + 1) for _ in range(n + 1)]
    for i in range(n + 1):
        grid[i][0] = i * 1.0
    for j in range(m + 1):
        grid[0][j] = j * 1.0
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            swap = grid[i - 1][j - 1] + abs(a[i - 1] - b[j - 1])
            grid[i][j] = min(swap, grid[i - 1][j] + 1.0, grid[i][j - 1] + 1.0)
    return grid[n][m]


@program
def pascal(w: Any, x: Any) -> Any:
    rows = [[w]]
    while x < 3.0:
        x = x * 1.5 + 0.3
        last = rows[-1]
        row = [w]
        for k in range(len(last) - 1):
            row.append(last[k] + last[k + 1] * x)
        row.append(1.0)
        rows.append(row)
    return sum(rows[-1]) + rows[-1][len(rows) // 2] * len(rows)


@program
def adjacency(w: Any, x: Any) -> Any:
    places = [0.3, 1.1, 1.9, 2.6]
    near: list[list[int]] = [[] for _ in places]
    while x < 2.0:
        x = x * 1.5 + 0.3
        for i in range(len(places)):
            j = (i * 2 + 1) % len(places)
            if abs(places[i] - places[j]) * x < 1.6 and j not in near[i]:
                near[i].append(j)
                near[j].append(i)
    s = w
    for i in range(len(places)):
        for j in near[i]:
            s = s * 0.9 + places[j] * w
    return s


@program
def brackets(w: Any, x: Any) -> Any:
    out: list[list[Any]] = [[w]]
    while x < 3.0:
        x = x * 1.3 + 0.2
        if (x * 7.0) % 1.0 < 0.5:
            out.append([x])
        elif len(out) > 1:
            top = out.pop()
            out[-1].append(sum(top) * 0.5)
        else:
            out[-1].append(x * w)
    return sum(sum(part) for part in out) + len(out) + out[-1][-1]


@program
def shift_reduce(w: Any, x: Any) -> Any:
    stack: list[Tree] = []
    while x < 3.0:
        x = x * 1.3 + 0.2
        stack.append(Tree(x))
        while len(stack) > 2 and (x * 5.0) % 1.0 < 0.6:
            right = stack.pop()
            left = stack.pop()
            left.children.append(right)
            stack.append(left)
    s = w
    for tree in stack:
        s = s * 0.8 + tree.value * w + sum(child.value for child in tree.children)
    return s


@program
def built_tree(w: Any, x: Any) -> Any:
    root = Tree(w)
    node = root
    k = 0
    while x < 3.0:
        x = x * 1.3 + 0.2
        k += 1
        child = Tree(x * w)
        node.children.append(child)
        if k % 2 == 0:
            node = child
    todo, s, depth = [root], 0.0, 1.0
    while len(todo) > 0:
        node = todo.pop()
        s = s + node.value * depth
        depth = depth * 0.9
        todo.extend(node.children)
    return s


def total(tree: Any, scale: Any) -> Any:
    s = tree.value * scale
    for child in tree.children:
        s = s + total(child, scale * 0.5)
    return s


@program
def walked_tree(w: Any, x: Any) -> Any:
    nodes = [Tree(w)]
    while x < 2.0:
        x = x * 1.4 + 0.2
        parent = nodes[len(nodes) // 2]
        child = Tree(x)
        parent.children.append(child)
        nodes.append(child)
    return total(nodes[0], w)


@program
def union_find(w: Any, x: Any) -> Any:
    parent = [0, 1, 2, 3]
    members = [[0], [1], [2], [3]]
    k = 0
    while x < 3.0:
        x = x * 1.4 + 0.2
        a, b = parent[k % 4], parent[(k * 3 + 1) % 4]
        k += 1
        if a != b and (x * 3.0) % 1.0 < 0.7:
            for i in members[b]:
                parent[i] = a
            members[a].extend(members[b])
            members[b].clear()
    return w * sum(len(m) * len(m) for m in members) + x * parent[3]


@program
def beam(w: Any, x: Any) -> Any:
    beams = [(0.0, [w])]
    while x < 3.0:
        x = x * 1.5 + 0.3
        more = []
        for score, words in beams:
            more.append((score + x * w, [*words, x]))
            more.append((score + 0.5 * words[-1], [*words, 0.3 * x]))
        more.sort(key=lambda pair: -pair[0])
        beams = more[:3]
    score, words = beams[0]
    words.append(w)
    return score + sum(words) + len(words)


@program
def tracks(w: Any, x: Any) -> Any:
    a, b = Track(w), Track(1.0)
    both, k = [a, b], 0
    while x < 3.0:
        x = x * 1.5 + 0.3
        both[k % 2].add(x)
        k += 1
    return a.history[-1] + 2.0 * b.history[-1] + len(a.history)


@program
def aliases(w: Any, x: Any) -> Any:
    grid = [[w], [1.0]]
    row = grid[0]
    same = [[0.5]] * 3
    while x < 3.0:
        x = x * 1.5 + 0.3
        row.append(x)
        same[1][0] = same[2][0] + x
    return sum(grid[0]) + same[0][0] + (1.0 if grid[0] is row else 0.0) + (2.0 if grid[0] == row else 0.0)


@program
def sparse(w: Any, x: Any) -> Any:
    rows: dict[int, list[Any]] = {}
    k = 0
    while x < 3.0:
        x = x * 1.3 + 0.2
        k += 1
        if k % 3 in rows:
            rows[k % 3].append((k % 2, x))
        else:
            rows[k % 3] = [(k % 2, x * w)]
    s = w
    for entries in rows.values():
        for column, value in entries:
            s = s * 0.7 + (column + 1) * value
    return s


@program
def methods(w: Any, x: Any) -> Any:
    out = [[w, 2.0], [1.0, 3.0]]
    k = 0
    while x < 3.0:
        x = x * 1.5 + 0.3
        k += 1
        row = out[k % 2]
        row.insert(1, x)
        row.reverse()
        row.sort()
        row[0] += 0.5
        row[-1] = row[-1] * 0.5
        if len(row) > 4:
            row.pop(0)
            del row[0]
        row += [x * 0.1]
    return sum(out[0][1:]) + out[1][-1] * out[1].index(out[1][0]) + max(out[1])


@program
def vectors(w: Any, x: Any) -> Any:
    out = [[jnp.ones(3) * w], [jnp.ones(3)]]
    k = 0
    while x < 3.0:
        x = x * 1.5 + 0.3
        k += 1
        out[k % 2].append(jnp.tanh(out[k % 2][-1] + x))
    return jnp.sum(out[0][-1]) + 2.0 * jnp.sum(out[1][-1])


@program
def quicksort(w: Any, x: Any) -> Any:
    xs: list[Any] = []
    while x < 3.0:
        x = x * 1.2 + 0.1
        xs.append((x * 7.3) % 1.0)
    parts = [xs]
    done: list[Any] = []
    while len(parts) > 0:
        part = parts.pop()
        if len(part) < 2:
            done.extend(part)
            continue
        small: list[Any] = []
        large: list[Any] = []
        for v in part[1:]:
            if v < part[0]:
                small.append(v)
            else:
                large.append(v)
        parts.append(large)
        parts.append([part[0]])
        parts.append(small)
    s, d = 0.0, 1.0
    for v in done:
        s = s + v * d * w
        d = d * 0.9
    return s


def connect(near: list[list[int]], i: int, j: int) -> None:
    near[i].append(j)
    near[j].append(i)


@program
def reached(w: Any, x: Any) -> Any:
    near: list[list[int]] = [[] for _ in range(4)]
    k = 0
    while x < 3.0:
        x = x * 1.3 + 0.2
        connect(near, k % 4, (k * k + 1) % 4)
        k += 1
    seen, order, todo = [False] * 4, [], [0]
    while todo:
        i = todo.pop(0)
        if seen[i]:
            continue
        seen[i] = True
        order.append(i)
        for j in near[i]:
            if not seen[j]:
                todo.append(j)
    return w * sum(order) + x * len(order)


@program
def transposed(w: Any, x: Any) -> Any:
    m = [[w, x], [1.0, 2.0], [x * x, 0.5]]
    while x < 3.0:
        x = x * 1.4 + 0.2
        m = [[row[j] for row in m] for j in range(len(m[0]))]
        m[0][0] += x
    return m[0][0] + 2.0 * m[0][1] + 3.0 * m[-1][-1] + len(m)


@program
def longest(w: Any, x: Any) -> Any:
    best: Any = None
    rows = [[w], [x]]
    while x < 3.0:
        x = x * 1.4 + 0.2
        row = rows[int(x * 10.0) % 2]
        row.append(x)
        if best is None or len(row) > len(best):
            best = row
    if best is None:
        return w
    best.append(1.0)
    return sum(best) + sum(rows[0])


@program
def changed_in_turns(w: Any, x: Any) -> Any:
    rows = [[w, 1.0], [x, 2.0]]
    while x < 3.0:
        x = x * 1.4 + 0.2
        for i, row in enumerate(rows):
            row.append(x * i)
        for v in rows[0]:
            if len(rows[0]) < 6:
                rows[0].append(v * 0.5)
        for a, b in zip(rows[0], rows[1], strict=False):
            x = x + 0.01 * a * b
    return sum(rows[1]) + max(rows[0]) + len(rows[0])
