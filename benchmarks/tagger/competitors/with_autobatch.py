"""The model of `examples/language/tagger.py`, for one sentence. `python -m ... with_autobatch WORKLOAD`."""

from __future__ import annotations

import sys
from typing import Any

from benchmarks.competitors import packed
from examples.language.tagger import Sentence, Word, loss

from . import workload


def sentence(words: list[Any], tags: list[int]) -> Sentence:
    return Sentence([Word(None, w) if isinstance(w, list) else Word(w, []) for w in words], tags)


def parameters(weights: dict[str, Any]) -> dict[str, Any]:
    """Those of an LSTM together, as the example has them."""
    p = packed.parameters(weights)
    lstms = {name: {k: p[f"{name}_{k}"] for k in ("input", "state", "bias")} for name in workload.LSTMS}
    return {"words": p["emb_words"], "letters": p["emb_letters"], "hidden": p["hidden"], "out": p["out"], **lstms}


def main() -> None:
    sentences, weights, _ = workload.read(sys.argv[1])
    packed.serve(loss, parameters(weights), [sentence(*s) for s in sentences], [workload.size(s) for s in sentences])


if __name__ == "__main__":
    main()
