"""The model of `examples/language/parser.py`. `python -m ... with_autobatch WORKLOAD [llvm|xla]`."""

from __future__ import annotations

import sys
from typing import Any

import jax.numpy as jnp
import numpy as np

import autobatch as ab
from benchmarks.competitors import packed, worker
from examples.language.parser import Parsed, parse

from . import workload


def parameters(weights: dict[str, Any]) -> dict[str, Any]:
    p = packed.parameters(weights)
    return {**p, "words": p.pop("emb"), "longest": jnp.zeros(workload.LONGEST)}


def example(words: list[int], actions: list[int]) -> Parsed:
    return Parsed(words, actions)


def found(p: dict[str, Any], sentences: Any) -> float:
    phrases, reductions = (np.asarray(x, np.float64) for x in parse(p, sentences))
    return float(phrases.sum() + 0.01 * (reductions * np.arange(1, workload.LONGEST + 1)).sum())


def main() -> None:
    sentences, weights = workload.read(sys.argv[1])
    p, data = parameters(weights), ab.pack([words for words, _ in sentences])

    def run(chosen: range) -> float:
        return found(p, data[np.arange(chosen.start, chosen.stop)])

    with ab.options(backend=sys.argv[2]):
        worker.serve([workload.size(s) for s in sentences], run, {"version": ab.__version__})


if __name__ == "__main__":
    main()
