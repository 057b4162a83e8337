"""Fit the constants of the costs that back ends state to what calls have taken.

`python -m benchmarks.choice.fit FILE [FILE ...]`: reports of `python -m benchmarks.choice --json`. Prints constants for
`backends/llvm/program.py` and `backends/xla/program.py`, and the regret of choosing by them: the time of the back
end that they choose over that of the faster one. What is minimised is the regret, softened, and the error of the
logarithms of times, cut off at a factor of 7: a program that XLA runs for seconds says nothing of the others.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize

from autobatch.backends.interface import Load, Work
from autobatch.backends.llvm import program as of_llvm
from autobatch.backends.xla import program as of_xla
from autobatch.compiler.choice import CLOSE, CallFacts, load_of, use_of

FLOOR = 10.0
"""Microseconds below which nobody sees a difference."""
SOFT = 0.15
MOST_OFF = 2.0


@dataclass(frozen=True)
class Sample:
    """A call, and what it took by both back ends. `asked`: the call that costs are compared for when it is chosen."""

    name: str
    work: Work
    load: Load
    asked: Load
    llvm: float
    xla: float


def samples(paths: Sequence[Path]) -> list[Sample]:
    """Those of some reports."""
    found = []
    for case in (case for path in paths for case in json.loads(path.read_text())["cases"]):
        times = case["times"]
        if case.get("work") and "llvm" in times and "xla" in times:
            work, packed = Work(**case["work"]), case["name"].endswith("packed")
            load = Load(case["rows"], case["what"] == "gradient", packed)
            facts = CallFacts(True, load.derives, work.structured, load.rows, packed, False, False, "cpu", False)
            use = use_of(facts)
            assert use is not None
            given = {k: max(times[k], FLOOR) for k in ("llvm", "xla")}
            found.append(Sample(case["name"], work, load, load_of(use), **given))
    return found


def fitted(given: Sequence[Sample], derives: bool) -> tuple[Any, Any]:
    """The constants of both for values, or for derivatives."""
    held = [s for s in given if s.load.derives == derives]
    start = [m.DERIVATIVES if derives else m.VALUES for m in (of_llvm, of_xla)]
    count = len(fields(start[0]))
    first = np.log(np.asarray([x for s in start for x in astuple(s)]) + 1e-9)

    def constants(x: Any) -> tuple[Any, Any]:
        values = np.exp(x).tolist()
        return type(start[0])(*values[:count]), type(start[1])(*values[count:])

    def loss(x: Any) -> float:
        own, other = constants(x)
        a = np.log([of_llvm.cost(s.work, s.load, own).call for s in held])
        b = np.log([of_xla.cost(s.work, s.load, other).call for s in held])
        took = np.log([s.llvm for s in held]), np.log([s.xla for s in held])
        apart = np.log([of_llvm.cost(s.work, s.asked, own).call for s in held])
        apart -= np.log([of_xla.cost(s.work, s.asked, other).call for s in held])
        chosen = 1 / (1 + np.exp((apart - np.log(CLOSE)) / SOFT))
        regret = chosen * took[0] + (1 - chosen) * took[1] - np.minimum(*took)
        off = sum((np.clip(x - t, -MOST_OFF, MOST_OFF) ** 2).mean() for x, t in zip((a, b), took, strict=True))
        return float(20 * regret.mean() + off + 0.02 * ((x - first) ** 2).mean())

    best = first
    for _ in range(3):
        best = minimize(loss, best, method="Powell", options={"maxiter": 15}).x
    return constants(best)


def rounded(x: Any) -> Any:
    """Constants of two digits, as they stand in the source."""
    return replace(x, **{f.name: float(f"{getattr(x, f.name):.2g}") for f in fields(x)})


def report(given: Sequence[Sample], derives: bool, own: Any, other: Any) -> str:
    """The constants, and what choosing by them costs."""
    lines, regrets = [f"{own}", f"{other}"], []
    for s in (s for s in given if s.load.derives == derives):
        a, b = of_llvm.cost(s.work, s.asked, own).call, of_xla.cost(s.work, s.asked, other).call
        regret = (s.llvm if a <= CLOSE * b else s.xla) / min(s.llvm, s.xla)
        regrets.append(regret)
        if regret > 1.2:
            lines.append(
                f"  {regret:.2f} {s.name}, {s.load.rows}: llvm {s.llvm:.0f} ({a:.0f}), xla {s.xla:.0f} ({b:.0f})"
            )
    mean = np.exp(np.log(regrets).mean())
    return "\n".join([*lines, f"regret of {len(regrets)}: {mean:.3f} on average, {max(regrets):.2f} at worst"])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.choice.fit", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--as-they-are", action="store_true", help="judge the constants in the source, fit nothing")
    options = parser.parse_args(arguments)
    given = samples(options.files)
    for derives in (False, True):
        if options.as_they_are:
            found = (of_llvm.DERIVATIVES, of_xla.DERIVATIVES) if derives else (of_llvm.VALUES, of_xla.VALUES)
        else:
            found = tuple(map(rounded, fitted(given, derives)))
        print("derivatives" if derives else "values", report(given, derives, *found), sep="\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
