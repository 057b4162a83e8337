"""The model as a function of one sentence, with autobatch. `python -m ... with_autobatch WORKLOAD`."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jax.nn import log_softmax, sigmoid

import autobatch as ab
from benchmarks.competitors import packed

from . import workload


@dataclass
class Sentence:
    words: list[int]
    tags: list[int]


@ab.batched(in_axes=(None, 0))
def loss(p: dict[str, Any], s: Sentence) -> Any:
    h = c = jnp.zeros(p["state"].shape[0])
    total = 0.0
    for word, tag in zip(s.words, s.tags, strict=True):
        i, f, g, o = jnp.split(p["emb"][word] @ p["input"] + h @ p["state"] + p["bias"], 4)
        c = sigmoid(f) * c + sigmoid(i) * jnp.tanh(g)
        h = sigmoid(o) * jnp.tanh(c)
        total = total - log_softmax(h @ p["out"] + p["out_bias"])[tag]
    return total


def main() -> None:
    sentences, weights, _ = workload.read(sys.argv[1])
    sizes = [workload.size(s) for s in sentences]
    packed.serve(loss, packed.parameters(weights), [Sentence(words, tags) for words, tags in sentences], sizes)


if __name__ == "__main__":
    main()
