"""python -m benchmarks.ulp [--json] [--full] [--only sin,cos] [--count N]

For each function and dtype: the largest error over a sample, in units in the last place, where it is, and nanoseconds
for one number beside NumPy's (SciPy's, where NumPy has none). `--full`: all 2^32 numbers of float32 for functions of
one of them.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

import numpy as np

from benchmarks.ulp.functions import FUNCTIONS, Measured
from benchmarks.ulp.measure import drawn, every_float32, exact_of, nanoseconds, worst_of


def row(name: str, measured: Measured, dtype: str, count: int, full: bool) -> dict[str, Any] | None:
    if exact_of(measured, dtype) is None:
        return None
    rng = np.random.default_rng(0)
    whole = full and dtype == "float32" and measured.count == 1
    worst = worst_of(measured, dtype, every_float32() if whole else drawn(measured, dtype, count, rng))
    ours, numpy = nanoseconds(measured, dtype, rng)
    return {
        "function": name,
        "dtype": dtype,
        "ulps": round(worst.ulps, 3),
        "at": list(worst.at),
        "numbers": "all" if whole else "sampled",
        "nanoseconds": round(ours, 2),
        "numpy_nanoseconds": None if numpy is None else round(numpy, 2),
    }


def line(found: dict[str, Any]) -> str:
    numpy = found["numpy_nanoseconds"]
    at = ", ".join(f"{x:.9g}" for x in found["at"])
    return (
        f"| {found['function']} | {found['dtype']} | {found['ulps']:.3f} | {at} | {found['numbers']} "
        f"| {found['nanoseconds']:.2f} | {'' if numpy is None else f'{numpy:.2f}'} |"
    )


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ulp", description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--only", default=",".join(FUNCTIONS))
    parser.add_argument("--dtypes", default="float32,float64")
    parser.add_argument("--count", type=int, default=200_000)
    options = parser.parse_args(arguments)
    if not options.json:
        print("| function | dtype | ulp | at | numbers | ns | NumPy's ns |\n|---|---|---|---|---|---|---|")
    rows = []
    for name in options.only.split(","):
        for dtype in options.dtypes.split(","):
            found = row(name, FUNCTIONS[name], dtype, options.count, options.full)
            if found is not None:
                rows.append(found)
                if not options.json:
                    print(line(found), flush=True)
    if options.json:
        print(json.dumps(rows))


if __name__ == "__main__":
    main(sys.argv[1:])
