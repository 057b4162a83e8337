"""Dicts inside dicts, lists and objects that are changed in place where numbers decide.

Each program is a plain function of `w`, that all examples share, and `x`, a number of its own.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

PROGRAMS: list[Callable[[Any, Any], Any]] = []


def program(f: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    PROGRAMS.append(f)
    return f


@program
def bigrams(w: Any, x: Any) -> Any:
    """Which word follows which, as a model of language begins."""
    counts: Any = defaultdict(Counter)
    last, n = 0, 0
    while x < 3.0:
        x = x * 1.2 + 0.15
        word = int(x * 7.0) % 4
        counts[last][word] += 1
        last, n = word, n + 1
    s = w * 0.0
    for a, row in counts.items():
        total = sum(row.values())
        for b, c in row.items():
            s = s + w * c / total * (a + 1) + x * b
    return s + n + len(counts)


@program
def transitions(w: Any, x: Any) -> Any:
    table: Any = defaultdict(lambda: defaultdict(float))
    a = 0
    while x < 3.0:
        x = x * 1.25 + 0.2
        b = int(x * 5.0) % 3
        table[a][b] += x * w
        a = b
    s = 0.0
    for k in table:
        for j, v in table[k].items():
            s = s * 0.7 + v * (k + 1) + j
    return s + table[0].get(2, 0.25) + (1.0 if 1 in table[0] else w)


@program
def assigned(w: Any, x: Any) -> Any:
    held: dict[int, dict[int, Any]] = {0: {}, 1: {}}
    k = 0
    while x < 3.0:
        x = x * 1.3 + 0.2
        held[k % 2][k % 3] = x * w
        k = k + 1
    s = 0.0
    for row in held.values():
        for key, v in row.items():
            s = s * 0.5 + v * (key + 1)
    return s + len(held[0]) + 2 * len(held[1])


@program
def by_set_default(w: Any, x: Any) -> Any:
    found: dict[int, dict[int, Any]] = {}
    k = 0
    while x < 3.0:
        x = x * 1.3 + 0.2
        found.setdefault(k % 2, {})[int(x * 3.0) % 5] = x * w
        k = k + 1
    s = 0.0
    for a in found:
        for b in found[a]:
            s = s * 0.5 + found[a][b] * (a + b + 1)
    return s


@program
def rows(w: Any, x: Any) -> Any:
    """A list of dicts."""
    held: list[dict[int, Any]] = [{} for _ in range(3)]
    k = 0
    while x < 3.0:
        x = x * 1.3 + 0.2
        held[k % 3][k] = x * w
        if k in held[0]:
            held[0][k] = held[0][k] * 0.5
        k = k + 1
    return sum(sum(row.values()) * (i + 1) for i, row in enumerate(held)) + len(held[-1])


@program
def aliases(w: Any, x: Any) -> Any:
    """Two names of an inner dict are one dict; a copy is another."""
    held: dict[int, dict[int, Any]] = {0: {0: w}, 1: {1: x}}
    other = held[0].copy()
    k = 0
    while x < 3.0:
        x = x * 1.4 + 0.2
        row = held[k % 2]
        row[k] = x
        other[k] = w
        held[1 - k % 2] = row
        k = k + 1
    held[0][9] = w * x
    return sum(held[1].values()) + 3.0 * sum(other.values()) + (1.0 if held[0] is held[1] else 0.0) + len(row)


@program
def taken_out(w: Any, x: Any) -> Any:
    held: dict[int, dict[int, Any]] = {0: {0: w, 5: 2.0 * w}, 1: {1: w}}
    k, s = 0, 0.0
    while x < 3.0:
        x = x * 1.3 + 0.2
        row = held[k % 2]
        row[k] = x * w
        if k % 3 == 2:
            del row[k]
        s = s + row.pop(k - 2, 0.5 * x)
        row.update({7: x, 8: w})
        if len(row) > 4:
            key, v = row.popitem()
            s = s + v * key
        k = k + 1
    held[1].clear()
    return s + sum(held[0].values()) + len(held[1])


@program
def handed_on(w: Any, x: Any) -> Any:
    """A dict that a function is given, and changes."""

    def note(seen: dict[int, Any], key: int, y: Any) -> None:
        seen[key] = seen.get(key, 0.0) + y

    seen: dict[int, Any] = {}
    k = 0
    while x < 3.0:
        x = x * 1.3 + 0.2
        note(seen, k % 3, x * w)
        k = k + 1
    return sum(v * (k + 1) for k, v in seen.items())


class Model:
    def __init__(self) -> None:
        self.counts: dict[int, Any] = {}
        self.total = 0.0

    def see(self, key: int, y: Any) -> None:
        self.counts[key] = self.counts.get(key, 0.0) + y
        self.total += y


@program
def of_object(w: Any, x: Any) -> Any:
    """A dict that is a field."""
    model, k = Model(), 0
    while x < 3.0:
        x = x * 1.3 + 0.2
        model.see(k % 3, x * w)
        k = k + 1
    return sum(v / model.total * (k + 1) for k, v in model.counts.items())


@program
def three_deep(w: Any, x: Any) -> Any:
    held: Any = defaultdict(lambda: defaultdict(Counter))
    k = 0
    while x < 3.0:
        x = x * 1.3 + 0.2
        held[k % 2][k % 3][int(x * 3.0) % 2] += 1
        k = k + 1
    s = w
    for a, inner in held.items():
        for b, row in inner.items():
            for c, n in row.items():
                s = s * 0.5 + x * n * (a + 2 * b + 3 * c + 1)
    return s


@program
def lists_in_dicts(w: Any, x: Any) -> Any:
    held: Any = defaultdict(lambda: defaultdict(list))
    k = 0
    while x < 3.0:
        x = x * 1.3 + 0.2
        held[k % 2][k % 3].append(x * w)
        k = k + 1
    return sum(sum(sum(v) * (b + 1) for b, v in row.items()) * (a + 1) for a, row in held.items())


@program
def pairs_as_keys(w: Any, x: Any) -> Any:
    held: dict[int, dict[tuple[int, int], Any]] = {}
    k = 0
    while x < 3.0:
        x = x * 1.3 + 0.2
        row = held.setdefault(k % 2, {})
        row[k % 3, k % 2] = row.get((k % 3, k % 2), w) + x
        k = k + 1
    return sum(v * (a + 2 * b + 1) for row in held.values() for (a, b), v in row.items())
