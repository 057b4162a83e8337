"""Programs that fill arrays of NumPy whose shape depends on the lengths of the examples."""

from __future__ import annotations

import numpy as np

K = 3


class Grid:
    def __init__(self, n, m):
        self.cells = np.zeros((n, m))

    def add(self, i, j, x):
        if 0 <= i < self.cells.shape[0] and 0 <= j < self.cells.shape[1]:
            self.cells[i, j] += x


class Mat:
    def __init__(self, n):
        self.m = np.eye(n)
        self.n = n

    def set(self, i, j, x):
        self.m[i, j] = x

    def trace(self):
        s = 0.0
        for i in range(self.n):
            s += self.m[i, i]
        return s

    def mul(self, v):
        out = np.zeros(self.n)
        for i in range(self.n):
            for j in range(self.n):
                out[i] += self.m[i, j] * v[j]
        return out


def running_totals(a):
    t = np.zeros(len(a))
    t[0] = a[0]
    i = 1
    while i < len(a):
        t[i] += t[i - 1]
        t[i] += a[i]
        i += 1
    t *= 2.0
    t[1:] += 1.0
    t[:2] = 5.0
    return t, t.sum(), len(t), t.shape[0], t[::-1][0]


def bubble_sort(a):
    t = np.array(a)
    n = len(t)
    for i in range(n):
        for j in range(n - 1 - i):
            if t[j] > t[j + 1]:
                t[j], t[j + 1] = t[j + 1], t[j]
    return t


def histogram(a):
    t = np.zeros(int(max(a)) + 1, dtype=int)
    for x in a:
        t[int(x)] += 1
    return t.max(), t


def shortest_paths(a):
    n = len(a)
    d = np.full((n, n), 100.0)
    for i in range(n):
        d[i, i] = 0.0
        j = int(a[i]) % n
        d[i, j] = min(d[i, j], a[i] + 1)
    for k in range(n):
        for i in range(n):
            for j in range(n):
                if d[i, k] + d[k, j] < d[i, j]:
                    d[i, j] = d[i, k] + d[k, j]
    return d.min(), d.sum(), d[0].copy()


def arrays_in_a_dict(a):
    d = {}
    for x in a:
        if x not in d:
            d[x] = np.zeros(len(a))
        d[x][0] += x
        d[x][1] += 1.0
    return sum(t[0] * t[1] for t in d.values())


def chart(a):
    n = len(a)
    c = np.full((n, n + 1, K), -np.inf)
    for i in range(n):
        c[i, i + 1] = a[i] * np.arange(K)
    for w in range(2, n + 1):
        for i in range(n - w + 1):
            for k in range(i + 1, i + w):
                for q in range(K):
                    v = c[i, k, q] + c[k, i + w, (q + 1) % K]
                    if v > c[i, i + w, q]:
                        c[i, i + w, q] = v
    return c[0, n].max()


def appended(a):
    t = np.zeros(0)
    for x in a:
        if x > 1:
            t = np.append(t, x * 2)
        else:
            t = np.concatenate([t, [x, 1.0]])
    return t, len(t), t.sum()


def rows_appended(a):
    t = np.zeros((0, 2))
    for x in a:
        if x > 1:
            t = np.concatenate([t, np.array([[x, 1.0]])])
    return t.shape[0], t.sum()


def picked(a):
    t = np.array(a)
    u = t[t > 1]
    return u.sum()


def gathered(a):
    t = np.zeros(len(a))
    for i in range(len(a)):
        if a[i] > 1:
            t[i] = a[i]
    idx = np.array([0, 2, 1])
    return t[idx], t[[0, 1]].sum()


def of_either_length(a):
    if a[0] > 1:
        t = np.zeros(2)
    else:
        t = np.ones(3)
    return t.sum(), len(t)


def masked(a):
    t = np.array(a)
    t[t > 1] = 9.0
    m = t < 2
    t[m] = -1.0
    return t


def functions_of_arrays(a):
    t = np.zeros(len(a))
    for i in range(len(a)):
        t[i] = a[i] ** 2 if a[i] > 1 else 0.5
    u = np.where(t > 1, t, -t)
    return u, np.sqrt(np.abs(u)).sum(), np.clip(u, 0, 4), u.argmax(), np.cumsum(t), np.sort(t)


def game_of_life(a):
    n = len(a)
    g = np.zeros((n + 2, n + 2), dtype=int)
    for i in range(n):
        g[1 + i, 1 + int(a[i]) % n] = 1
        g[1 + i, 1 + i] = 1
    for _ in range(2):
        h = g.copy()
        for i in range(1, n + 1):
            for j in range(1, n + 1):
                c = g[i - 1 : i + 2, j - 1 : j + 2].sum() - g[i, j]
                h[i, j] = 1 if c == 3 or (c == 2 and g[i, j] == 1) else 0
        g = h
    return g.sum()


def two_names(a):
    t = np.array(a)
    u = t
    t += 1.0
    if a[0] > 1:
        u[0] = 50.0
    return t.sum(), u.sum()


def rows_swapped(a):
    t = np.zeros((len(a), 2))
    for i in range(len(a)):
        t[i, 0] = a[i]
        t[i, 1] = i
    for i in range(len(a) - 1):
        if t[i, 0] > t[i + 1, 0]:
            tmp = t[i].copy()
            t[i] = t[i + 1]
            t[i + 1] = tmp
    return t


def remembered(a):
    memo = np.full(len(a) + 1, -1.0)

    def go(i):
        if i >= len(a):
            return 0.0
        if memo[i] >= 0:
            return memo[i]
        memo[i] = max(go(i + 1), a[i] + go(i + 2))
        return memo[i]

    return go(0)


def union_find(a):
    n = len(a)
    p = np.arange(n)

    def find(i):
        while p[i] != i:
            p[i] = p[p[i]]
            i = p[i]
        return i

    for i in range(n):
        x, y = find(i), find(int(a[i]) % n)
        if x != y:
            p[x] = y
    return sum(1 for i in range(n) if find(i) == i)


def adjacency(a):
    n = len(a)
    adj = np.zeros((n, n), dtype=bool)
    for i in range(n):
        j = int(a[i]) % n
        if i != j:
            adj[i, j] = adj[j, i] = True
    deg = adj.sum(axis=1)
    return deg.max(), int(adj.sum()), adj[0].any(), np.any(adj)


def forward_substitution(a):
    m = len(a)
    A = np.zeros((m, m))
    for i in range(m):
        A[i, i] = a[i] + 1.0
        if i > 0:
            A[i, i - 1] = 0.5
    x = np.zeros(m)
    for i in range(m):
        x[i] = (a[i] - A[i, :i] @ x[:i]) / A[i, i]
    return x


def parts_set(a):
    n = len(a)
    t = np.empty((2, n))
    t[0] = a
    t[1, :] = [x * 2 for x in a]
    t[0, 1:] = t[1, :-1]
    return t.sum(axis=1), t


def views_of_rows(a):
    t = np.zeros((len(a), 3))
    r = t[0]
    for i in range(len(a)):
        if a[i] > 0:
            t[i] = a[i]
        if i > 0:
            t[i] += t[i - 1] * 0.5
            t[i, 1:] += 1.0
    r[2] += 5.0
    q = t[1]
    t[1] = 7.0
    s = 0.0
    for x in t[len(a) - 1]:
        s += x
    return t.sum(), r.sum(), q, r @ q, np.maximum(r, q).max(), q[1], len(q), s, -q, q > 6, t[0].shape[0]


def viterbi(a):
    n = len(a)
    W = np.array([[0.0, 0.3, 0.6], [0.3, 0.0, 0.3], [0.6, 0.3, 0.0]])
    d = np.zeros((n, K))
    d[0] = a[0] * np.arange(K)
    for i in range(1, n):
        m = d[i - 1][:, None] - W
        d[i] = m.max(axis=0) + a[i] * np.arange(K)
        if a[i] > 2:
            d[i] -= d[i].mean()
    return d[-1].max(), d[n - 1]


def as_python(a):
    t = np.zeros(len(a))
    for i, x in enumerate(a):
        if x > 1:
            t[i] = x
    return t.tolist(), list(t), sorted(t), sum(t), max(t), min(t), [v * 2 for v in t], [y for y in t if y > 1]


def in_an_object(a):
    m = Mat(len(a))
    for i, x in enumerate(a):
        if x > 1:
            m.set(i, (i + 1) % len(a), x)
    return m.trace(), m.mul(a)


def in_lists_and_dicts(a):
    t = np.zeros(len(a))
    u = [t, t]
    d = {"x": t}
    for i, x in enumerate(a):
        if x > 1:
            u[0][i] = x
        elif x > 0:
            d["x"][i] = -x
    return u[1].sum(), t.sum(), d["x"].min()


def grown(a):
    t = np.zeros(1)
    for x in a:
        if x > 1:
            u = np.zeros(len(t) + 1)
            u[: len(t)] = t
            u[-1] = x
            t = u
    return t, len(t)


def sieve(a):
    n = int(a[0] * 3) + 5
    t = np.ones(n, dtype=bool)
    t[0] = False
    t[1] = False
    for i in range(2, n):
        if t[i]:
            for j in range(i * i, n, i):
                t[j] = False
    return t.sum()


def edit_distance(a, b):
    n, m = len(a), len(b)
    t = np.zeros((n + 1, m + 1), dtype=int)
    t[:, 0] = np.arange(n + 1)
    t[0, :] = np.arange(m + 1)
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            cost = 0 if a[i - 1] == b[j - 1] else 1
            t[i, j] = min(t[i - 1, j] + 1, t[i, j - 1] + 1, t[i - 1, j - 1] + cost)
    return t[n, m]


def alignment(a, b):
    n, m = len(a), len(b)
    t = np.zeros((n + 1, m + 1))
    p = np.zeros((n + 1, m + 1), dtype=int)
    for i in range(1, n + 1):
        for j in range(1, m + 1):
            c = [t[i - 1, j - 1] + a[i - 1] * b[j - 1], t[i - 1, j] - 0.5, t[i, j - 1] - 0.5]
            k = 0
            for q in range(1, 3):
                if c[q] > c[k]:
                    k = q
            t[i, j] = c[k]
            p[i, j] = k
    i, j, path = n, m, []
    while i > 0 and j > 0:
        path.append((i, j))
        if p[i, j] == 0:
            i, j = i - 1, j - 1
        elif p[i, j] == 1:
            i -= 1
        else:
            j -= 1
    return t[n, m], path


def convolution(a, b):
    t = np.zeros(len(a) + len(b) - 1)
    for i in range(len(a)):
        for j in range(len(b)):
            t[i + j] += a[i] * b[j]
    return t


def two_rows(a, b):
    prev = np.arange(len(b) + 1)
    for x in a:
        cur = np.zeros(len(b) + 1, dtype=int)
        cur[0] = prev[0] + 1
        for j in range(1, len(b) + 1):
            cur[j] = min(prev[j] + 1, cur[j - 1] + 1, prev[j - 1] + (0 if x == b[j - 1] else 1))
        prev = cur
    return prev[-1]


def list_of_arrays(a, b):
    ts = [np.zeros(len(b)) for _ in a]
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            if x > y:
                ts[i][j] = x - y
    return sum(t.sum() for t in ts)


def cells(a, b):
    g = Grid(len(a), len(b))
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            g.add(i - 1, j, x)
            if y > 1:
                g.add(i, j + 1, y)
    return g.cells.sum(), g.cells[0, 0]


def masks_of_tables(a, b):
    t = np.zeros((len(a), len(b)))
    for i in range(len(a)):
        for j in range(len(b)):
            t[i, j] = a[i] - b[j] if a[i] > 0 else 0.0
    t[t < 0] = 0.0
    t[t > 2] *= 2.0
    return t.sum(), t.max()


def transposed(a, b):
    t = np.zeros((len(a), len(b)))
    for i in range(len(a)):
        t[i, i % len(b)] = a[i]
    return t.T[0], t.T.shape[0], t.max()


OF_ONE = (
    running_totals,
    bubble_sort,
    histogram,
    shortest_paths,
    arrays_in_a_dict,
    chart,
    appended,
    rows_appended,
    picked,
    gathered,
    of_either_length,
    masked,
    functions_of_arrays,
    game_of_life,
    two_names,
    rows_swapped,
    remembered,
    union_find,
    adjacency,
    forward_substitution,
    parts_set,
    views_of_rows,
    viterbi,
    as_python,
    in_an_object,
    in_lists_and_dicts,
    grown,
    sieve,
)
OF_TWO = (
    edit_distance,
    alignment,
    convolution,
    two_rows,
    list_of_arrays,
    cells,
    masks_of_tables,
    transposed,
)


def table_of_products(a, b):
    t = np.ones((len(a), len(b)))
    for i in range(len(a)):
        for j in range(len(b)):
            if a[i] > b[j]:
                t[i, j] = a[i] * b[j]
    return t


# ---- `+=`, which NumPy does in place, under all names of an array


def by_another_name(a):
    t = np.array(a)
    u = t
    u += 1.0
    return t.sum(), u.sum()


def by_a_function(a):
    def increase(t):
        t += 1.0

    t = np.array(a)
    increase(t)
    return t.sum()


def after_an_assignment(a):
    t = np.array(a)
    s = t * 2
    s += 1.0
    t = s
    t -= 0.5
    return t.sum(), s.sum()


def by_a_view(a):
    t = np.array(a)
    v = t[1:]
    v += 1.0
    return t.sum(), v.sum()


def of_one_of_two(a):
    t = np.array(a)
    u = t if a[0] > 1 else t * 2
    u *= 3.0
    return t.sum(), u.sum()


def of_rows(a):
    rows = [np.array(a), np.ones(len(a))]
    for row in rows:
        row += 1.0
    return rows[0].sum(), rows[1].sum()


def in_a_dict(a):
    t = np.array(a)
    d = {"t": t}
    d["t"] += 1.0
    return t.sum(), d["t"].sum()


def by_one_name_alone(a):
    total, t = 0.0, np.array(a)
    for k in range(3):
        t += k
        total += t.sum()
    return total


class Held:
    def __init__(self, t):
        self.t = t

    def increase(self):
        self.t += 1.0


def by_an_object(a):
    t = np.array(a)
    held = Held(t)
    held.increase()
    return t.sum(), held.t.sum()


def of_columns(a):
    t = np.zeros((len(a), 3))
    t[:, 0] += a[0]
    t[0, 1:] += 1.0
    t[1:, :2] *= 2.0
    v = t[:, 0] * 1
    v += a[0]
    return t, v


def by_a_view_of_a_view(a):
    t = np.array(a)
    v = t[1:]
    v += 1.0
    w = v[1:]
    w *= 2.0
    return t


def by_rows_and_columns(a):
    t = np.zeros((len(a), len(a)))
    v = t[:, 0]
    v += a[0]
    v[1] = 9.0
    for row in t:
        row += 1.0
    for column in t.T:
        column[1] = 5.0
    return t


AUGMENTED = (
    of_columns,
    by_a_view_of_a_view,
    by_rows_and_columns,
    by_another_name,
    by_a_function,
    after_an_assignment,
    by_a_view,
    of_one_of_two,
    of_rows,
    in_a_dict,
    by_one_name_alone,
    by_an_object,
)
