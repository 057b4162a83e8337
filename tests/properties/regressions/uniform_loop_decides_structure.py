"""A uniform loop of several results, one of them unbound before it, became a scan of which the host needs a result: the
count of a path decides structure."""

import autobatch as ab


def deciding(p, t, k):
    for c in t.kids:
        k = deciding(p, c, (len(t.kids) + k) % 11)
        for i in range(3):
            before = k
            k = (k * 2 + i) % 13
        k += before
    return k


@ab.batched(in_axes=(None, 0))
def main(p, t):
    return t.x * p["W"].sum() if deciding(p, t, 1) % 2 else -t.x
