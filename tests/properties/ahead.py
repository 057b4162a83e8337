"""Programs whose structure computed numbers choose between: loops over lists, calls and reads behind their tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp


@dataclass
class Node:
    value: float
    children: list[Node] = field(default_factory=list)
    next: Node | None = None
    kids: list[float] = field(default_factory=list)


def comprehension(p: Any, node: Node) -> Any:
    total = p * node.value
    if total > 0:
        total = total + sum(p * c.value for c in node.children)
    return total


def recursion(p: Any, node: Node) -> Any:
    total = p * node.value
    if total > 0:
        total = total + sum(recursion(p, c) for c in node.children)
    return total


def loops_in_both_arms(p: Any, node: Node) -> Any:
    total = p * node.value
    if total > 0:
        for c in node.children:
            total = total * 0.5 + jnp.log(c.value * p)
    else:
        for c in node.children:
            if c.value > p:
                total = total - c.value
    return total


def one_way_down(p: Any, node: Node) -> Any:
    """A decision tree: both sides are laid out, and one of them counts."""
    if not node.children:
        return p * node.value
    if p * node.value > node.children[0].value:
        return one_way_down(p, node.children[0]) + 1.0
    return one_way_down(p, node.children[-1]) * p


def falls_off_the_end(p: Any, node: Node) -> Any:
    if node.value * p > 1.0:
        return node.value * falls_off_the_end(p, node.next)
    return jnp.sqrt(jnp.abs(node.value) + 1) + p


def infinite_where_not_taken(p: Any, node: Node) -> Any:
    y = p * node.value
    if y > 0.5:
        y = y + sum(jnp.log(y - 0.5) * k for k in node.kids)
    return y


def asserts(p: Any, node: Node) -> Any:
    if p * node.value > 0.0:
        assert node.next is not None, "no next"
        mean = asserts(p, node.next) / len(node.kids)
        return mean + node.kids[0]
    return p * node.value


def _checked(p: Any, node: Node, k: Any) -> Any:
    assert k * p > 0, "kid"
    if node.next is None:
        return k * p
    if k > 1.5:
        return _checked(p, node.next, k) + len(node.next.kids)
    return p


def breaks(p: Any, node: Node) -> Any:
    total = p
    for k in node.kids:
        if total > 3.0:
            break
        total = total + _checked(p, node, k)
    return total


def while_in_an_arm(p: Any, node: Node) -> Any:
    best, i = -1.0, 0
    while i < len(node.kids):
        if node.kids[i] * p > best:
            j = 0
            while j <= i:
                best = best + node.kids[j]
                j += 1
        i += 1
    return best


def nested_arms(p: Any, node: Node) -> Any:
    total = 0.0
    for c in node.children:
        if c.value * p > total:
            if c.next is not None:
                total = total + recursion(p, c.next)
                if total > 1.0:
                    total = total + max([k * p for k in c.kids], default=0.0)
            else:
                total = nested_arms(p, c) - p
    return total


FUNCTIONS = (
    comprehension,
    recursion,
    loops_in_both_arms,
    one_way_down,
    falls_off_the_end,
    infinite_where_not_taken,
    asserts,
    breaks,
    while_in_an_arm,
    nested_arms,
)
