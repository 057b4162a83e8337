"""Programs whose schedules the tests in this folder look at, and how to look."""

from __future__ import annotations

import re
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.nn import log_softmax, sigmoid

import autobatch as ab
from tests.properties.strategies import Many, Node

SIZE = 8


def parameters(size: int = SIZE) -> dict[str, Any]:
    rng = np.random.default_rng(0)

    def matrix(rows: int, columns: int) -> Any:
        return jnp.asarray(rng.normal(0, rows**-0.5, (rows, columns)), jnp.float32)

    return {
        "emb": matrix(5, size),
        "Wl": matrix(size, 3 * size),
        "U": matrix(2 * size, 5 * size),
        "Wo": matrix(size, 3),
        "W": matrix(size, 3 * size),
        "Us": matrix(size, 3 * size),
        "Wf": matrix(size, size),
        "Uf": matrix(size, size),
        "b": jnp.ones(size),
    }


@ab.batched(in_axes=(None, 0))
def tree_lstm(p, t: Node):
    """Binary tree-LSTM with a loss at every node. The input of a leaf is no integer alone."""
    if t.left is None:
        i, o, u = jnp.split((p["emb"][t.word] * t.x) @ p["Wl"], 3)
        c, below = sigmoid(i) * jnp.tanh(u), 0.0
    else:
        hl, cl, a = tree_lstm(p, t.left)
        hr, cr, b = tree_lstm(p, t.right)
        i, fl, fr, o, u = jnp.split(jnp.concatenate([hl, hr]) @ p["U"], 5)
        c, below = sigmoid(i) * jnp.tanh(u) + sigmoid(fl) * cl + sigmoid(fr) * cr, a + b
    h = sigmoid(o) * jnp.tanh(c)
    return h, c, below - log_softmax(h @ p["Wo"])[t.word % 3]


@ab.batched(in_axes=(None, 0))
def child_sum(p, t: Many):
    """Child-sum tree-LSTM: any number of children."""
    kids = [child_sum(p, kid) for kid in t.kids]
    x = p["b"] * t.x
    i, o, u = jnp.split(x @ p["W"] + sum([h for h, _ in kids], p["b"] * 0) @ p["Us"], 3)
    f = x @ p["Wf"]
    c = sigmoid(i) * jnp.tanh(u) + sum([sigmoid(f + h @ p["Uf"]) * c for h, c in kids])
    return sigmoid(o) * jnp.tanh(c), c


@ab.batched(in_axes=(None, 0))
def rnn(p, xs: list[float]):
    h = p["b"]
    for x in xs:
        h = jnp.tanh(h @ p["Wf"] + (p["b"] * x) @ p["Uf"])
    return h @ p["Wo"]


@ab.batched(in_axes=(None, 0))
def lstm(p, words: list[int]):
    """An LSTM over words: what a word has to do with the gates is the same wherever it stands."""
    h = c = p["b"] * 0
    total = 0.0
    for word in words:
        i, o, u = jnp.split(p["emb"][word] @ p["W"] + h @ p["Us"], 3)
        c = sigmoid(i) * jnp.tanh(u) + (1 - sigmoid(i)) * c
        h = sigmoid(o) * jnp.tanh(c)
        total = total - log_softmax(h @ p["Wo"])[word % 3]
    return total


def random_tree(rng: np.random.Generator, leaves: int) -> Node:
    """A random binary tree."""
    parts = [Node(float(rng.normal()), int(rng.integers(5))) for _ in range(leaves)]
    while len(parts) > 1:
        at = int(rng.integers(len(parts) - 1))
        parts[at : at + 2] = [Node(float(rng.normal()), int(rng.integers(5)), parts[at], parts[at + 1])]
    return parts[0]


def random_many(rng: np.random.Generator, nodes: int) -> Many:
    """A random tree, each node below one that was made before it."""
    made = [Many(float(rng.normal()))]
    for _ in range(nodes - 1):
        made.append(Many(float(rng.normal()), []))
        made[int(rng.integers(len(made) - 1))].kids.append(made[-1])
    return made[0]


def prepared(function: Any, *args: Any) -> Any:
    """The program of a call, and the plan that it runs on."""
    return function.prepare(function.bound(args, {}))


def schedule_of(function: Any, *args: Any) -> Any:
    return prepared(function, *args).program.compiled.schedule


# ---- reading optimised HLO


def computations(hlo: str) -> dict[str, list[str]]:
    """The instructions of each computation of a module."""
    found: dict[str, list[str]] = {}
    name = ""
    for line in hlo.splitlines():
        header = re.match(r"^(?:ENTRY )?%?([\w.\-]+) .*\{$", line)
        if header:
            name = header.group(1)
            found[name] = []
        elif name and "=" in line:
            found[name].append(line.strip())
    return found


def called(line: str) -> list[str]:
    """The computations that an instruction names."""
    names = re.findall(r"(?:body|condition|calls|to_apply)=%?([\w.\-]+)", line)
    for group in re.findall(r"(?:branch_computations|called_computations)=\{([^}]*)\}", line):
        names += [n.strip().lstrip("%") for n in group.split(",")]
    return names


def reachable(found: dict[str, list[str]], roots: list[str]) -> set[str]:
    """The computations that some computations run, directly or through others."""
    seen: set[str] = set()
    while roots:
        name = roots.pop()
        if name in found and name not in seen:
            seen.add(name)
            roots += [c for line in found[name] for c in called(line)]
    return seen


def loop_bodies(found: dict[str, list[str]]) -> set[str]:
    """Every computation that runs inside some while loop."""
    bodies = [c for lines in found.values() for line in lines if " while(" in line for c in called(line)]
    return reachable(found, bodies)


def is_product(line: str) -> bool:
    """Is an instruction a matrix product?"""
    return bool(re.search(r"\bdot\(|custom_call_target=\"[^\"]*(?:matmul|gemm|dot|product)", line, re.IGNORECASE))
