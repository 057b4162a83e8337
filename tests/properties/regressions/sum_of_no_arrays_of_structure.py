"""The sum of no arrays of the examples, which the host reduces, was 0 beside rows that are arrays."""

import autobatch as ab


def f0(p, t, a, k):
    for c in t.kids:
        a, k = f0(p, c, a, k)
    a = a + sum([t.v for _ in t.kids], a)
    return a, k + len(t.xs) if a.sum() > 0.2113 else k


@ab.batched(in_axes=(None, 0))
def main(p, t):
    a, k = f0(p, t, t.v, 0)
    return a, p["W"][k % 3]
