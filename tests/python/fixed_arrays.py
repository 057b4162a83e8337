"""Programs that change arrays of a fixed shape which several names, containers, objects or helpers hold."""

from __future__ import annotations

import numpy as np


class Body:
    def __init__(self, x):
        self.pos, self.vel = np.array([x, 0.0]), np.array([1.0, -1.0])

    def kick(self, f):
        self.vel += f
        self.vel[0] *= 0.5

    def step(self, dt):
        self.pos = self.pos + self.vel * dt
        self.pos[1] += 0.1


class Filter:
    def __init__(self, n):
        self.state = np.zeros(n)

    def __call__(self, x):
        self.state[1:] = self.state[:-1]
        self.state[0] = x
        return self.state.mean()


def bodies(a):
    all_bodies = [Body(x) for x in a]
    for _ in range(3):
        for b in all_bodies:
            if b.pos[0] > 1.0:
                b.kick(np.array([0.1, 0.2]))
            b.step(0.5)
    return sum(b.pos[0] + b.vel[1] for b in all_bodies)


def filtered(a):
    f = Filter(3)
    return [f(x) for x in a]


def two_names(a):
    t = np.zeros(4)
    u = t
    u += a[0]
    if a[0] > 1:
        t[1] = 7.0
    return t, u


def by_branch(a):
    t, u = np.zeros(3), np.ones(3)
    w = t if a[0] > 1 else u
    w += 1.0
    return t, u, w


def by_index(a):
    t = np.zeros(3)
    kept = [t, t * 2]
    w = kept[int(a[0]) % 2]
    w += 1.0
    return t, w


def by_dtype(a):
    c = np.zeros(5, dtype=int) if a[0] > 1 else np.ones(5, dtype=int)
    for x in a:
        c[int(x)] += 1
    return c


def in_a_list(a):
    held = [np.zeros(3), np.ones(3)]
    for i, x in enumerate(a):
        if x > 1:
            held[i % 2][i % 3] = x
    return held[0] + held[1]


def in_a_dict(a):
    counts = {"hi": np.zeros(3), "lo": np.zeros(3)}
    for i, x in enumerate(a):
        counts["hi" if x > 1 else "lo"][i % 3] += x
    return counts["hi"], counts["lo"]


def in_tuples(a):
    state = np.zeros(2), np.ones(2)
    for x in a:
        s, t = state
        if x > 1:
            s[0] += x
            t[1] -= x
    return state[0] + state[1]


def put(t, i, x):
    t[i] = x


def normalised(v):
    v /= np.sum(v) + 1.0
    return v


def swapped(A, i, j):
    A[[i, j]] = A[[j, i]]


def by_helpers(a):
    w, A = np.ones(3), np.eye(3)
    for i, x in enumerate(a):
        put(w, int(x) % 3, x)
        normalised(w)
        swapped(A, i % 3, (i + 1) % 3)
        A[i % 3] *= x
    return w, A


def in_a_closure(a):
    buffer, pos = np.zeros(4), 0

    def push(x):
        nonlocal pos
        buffer[pos % 4] = x
        pos += 1

    for x in a:
        if x > 0.5:
            push(x)
    return buffer, pos


def best_so_far(a):
    grid = np.zeros((3, 3))
    best = grid
    for x in a:
        if x > 1:
            best = grid.copy()
            grid[0, 0] += x
    return best, grid


def names_that_part(a):
    x = np.zeros(3)
    y = x
    for v in a:
        y[0] += v
        if v > 1:
            y = x.copy()
    return x, y


def taken_and_given_back(a):
    stack = [np.zeros(2)]
    while stack and len(stack) < 4:
        t = stack.pop()
        t[0] += 1.0
        if t[0] < a[0]:
            stack.append(t)
    return len(stack)


def carried_by_a_loop(a):
    t = np.array([a[0], 1.0, 2.0])
    u = t.copy()
    for x in a:
        if x > 1:
            u *= x
            u = t
    return t, u


def a_row_of_a_matrix(a):
    A = np.zeros((3, 3))
    r = A[0]
    for i, x in enumerate(a):
        if x > 1:
            r[i % 3] = x
    A[1] = r
    return A, r


def a_transpose(a):
    A = np.zeros((3, 3))
    B = A.T
    for i, x in enumerate(a):
        A[i % 3, 0] += x
        B[i % 3, 1] -= x
    return A, B


def a_column(a):
    A = np.zeros((2, 2))
    v = A[:, 0]
    v += a[0]
    return A


def the_inner_part(a):
    g = np.zeros((4, 4))
    inner = g[1:3, 1:3]
    for x in a:
        inner += x
        g[0] = x
    return g, inner.sum()


def halves(a):
    t = np.zeros(6)
    low, high = t[:3], t[3:]
    for x in a:
        if x > 1:
            low[0] += x
        else:
            high[:] = x
    return t, low * 2, high.dot(low)


def every_other(a):
    t = np.zeros(4)
    even, odd = t[::2], t[1::2]
    even += a[0]
    odd -= a[0]
    if a[0] > 1:
        t[0] = 9.0
    return t, even, odd


def rows_in_a_list(a):
    A = np.zeros((2, 2))
    parts = [A[0, :], A[:, 1]]
    for k, x in enumerate(a):
        parts[k % 2][0] += x
    return A


def seen_through_a_part(a):
    held = {"t": np.zeros(3)}
    u = held["t"][:2]
    held["t"][0] = a[0]
    return u.sum()


OF_ONE = [
    bodies, filtered, two_names, by_branch, by_index, by_dtype, in_a_list, in_a_dict, in_tuples, by_helpers,
    in_a_closure, best_so_far, names_that_part, taken_and_given_back, carried_by_a_loop, a_row_of_a_matrix,
    a_transpose, a_column, the_inner_part, halves, every_other, rows_in_a_list, seen_through_a_part,
]  # fmt: skip
