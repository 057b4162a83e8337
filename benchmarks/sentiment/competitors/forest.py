"""How those who batch by hand lay a batch of trees out for training: breadth first. Python 3.8 and later.

Roots are the first rows, and the children of inner node j are the rows `trees + 2 j` and `trees + 2 j + 1`. So the
states of both children of neighbouring inner nodes lie side by side: operands of a level are a view, not a gather, and
each state is read once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from . import workload


@dataclass
class Forest:
    """`inner` and `leaves` are the rows of these nodes, `levels` the pieces of `inner` by depth, from the roots."""

    trees: int
    labels: list[int]
    inner: list[int]
    levels: list[tuple[int, int]]
    leaves: list[int]
    words: list[int]


def breadth_first(trees: list[Any]) -> Forest:
    order, inner, levels, first = list(trees), [], [], 0
    while first < len(order):
        last, begin = len(order), len(inner)
        for row in range(first, last):
            if not workload.is_leaf(order[row]):
                inner.append(row)
                order += order[row][1:]
        if len(inner) > begin:
            levels.append((begin, len(inner)))
        first = last
    leaves = [row for row, node in enumerate(order) if workload.is_leaf(node)]
    return Forest(len(trees), [n[0] for n in order], inner, levels, leaves, [order[row][1] for row in leaves])
