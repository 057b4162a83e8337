"""What the first call of a function of many operations takes, in a new process: with empty caches, and from the cache.

`python -m benchmarks.startup [--operations 2000] [--rounds 5] [--json FILE]`. The function is written by a generator:
arithmetic on floats and integers, branches, `while` loops, `for` loops and calls of a helper, in equal parts. Its
operations are leaf operations, as `leaf_operations` counts them: primitives of JAX in the program of one example (`%`
of an integer by a constant is six), what calls do included, and what is in a loop counted once. Each figure is that of
a process of its own, which has imported everything before, and has collected the garbage of that, which takes 80 ms
whenever Python begins with it. The folder of the caches is a new one for each round: `cold` is its first process,
`warm` the second, `edited` a third, in which a helper has changed by a constant. What `cold` and `warm` compute has to
be the same to the last bit, and `edited` something else.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import autobatch as ab
from autobatch.ir.core import Apply, walk
from autobatch.ir.printer import parse
from autobatch.passes.simplify import eliminate_common, inline

HEADER = """\
import math


def blend(a, b, t):
    return a + (b - a) * t * {constant}


def many(x, y, n):
    a, b, k = x, y, n
"""

PARTS = (
    (
        30,
        """\
    a = a * 0.75 + b * 0.25 - {c}
    b = math.sin(a) * {c} + b / (1.0 + a * a)
    c = abs(a - b) + 0.5 * max(a, b) - min(b, {c})
    k = k * 5 + {i} - k // 3
""",
    ),
    (
        24,
        """\
    if a > b + {c}:
        a = a - b * 0.5
        k = k % 17 + {i}
    elif k % 2 == 0:
        b = b * 0.5 + a * a * 0.01
    else:
        a, b = b - 0.125, a * 0.875 + {c}
""",
    ),
    (
        10,
        """\
    while a * a + b * b > {c} + 1.0:
        a = a * 0.5 - b * 0.125
        b = b * 0.5 + a * 0.125
""",
    ),
    (
        8,
        """\
    for j in range(3):
        a = a + (b - a) * 0.25 * j
        k = k + j * {i}
""",
    ),
    (
        22,
        """\
    a = blend(a, b, 0.5 + 0.25 * math.cos(b)) - blend(b, a, {c})
    b = math.exp(-a * a) * b + math.sqrt(abs(b)) * {c} - c * 0.0625
""",
    ),
)
"""Statements, behind how many leaf operations they are: primitives of JAX, calls inlined, none computed twice."""

CHILD = """
import gc, importlib, json, sys, time
import numpy as np
import jax, jax.numpy as jnp
import autobatch as ab
sys.path.insert(0, sys.argv[1])
import many
jnp.zeros(1).block_until_ready()
gc.collect()
r = np.random.default_rng(0)
given = (r.normal(size=64).astype("float32"), r.normal(size=64).astype("float32"),
         r.integers(0, 99, 64).astype("int32"))
wall, processor = time.perf_counter(), time.process_time()
f = ab.batched(many.many, backend="llvm")
found = f(*given)
wall, processor = time.perf_counter() - wall, time.process_time() - processor
again = time.perf_counter()
f(*given)
again = time.perf_counter() - again
print(json.dumps({"wall": wall, "processor": processor, "again": again, "compiler": "llvmlite" in sys.modules,
                  "results": [np.asarray(x).tolist() for x in found]}))
"""


def source(operations: int, constant: float = 1.0) -> str:
    """A module with a function `many` of so many leaf operations, or a few more."""
    parts = [HEADER.format(constant=constant)]
    made = number = 0
    while made < operations:
        count, part = PARTS[number % len(PARTS)]
        parts.append(part.format(c=f"{(number % 7 + 1) / 8}", i=number % 11 + 1))
        made, number = made + count, number + 1
    return "".join([*parts, "    return a, b, k\n"])


def leaf_operations(function: Callable[..., Any], *given: Any) -> int:
    """How many leaf operations a function is for one example, those in its branches and loops counted once."""
    lowered = ab.batched(function, backend="llvm", options={"compilation_cache": False}).lower(*given)
    module = eliminate_common(inline(parse(lowered.as_text("example"))))
    found = [i for f in module.functions for i in walk(f.region) if isinstance(i, Apply)]
    return sum(i.op.name != "undefined" for i in found)


def first_call(folder: Path, caches: Path) -> dict[str, Any]:
    """The first call in a new process."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(caches), "JAX_PLATFORMS": "cpu"}
    ran = subprocess.run(
        [sys.executable, "-c", CHILD, str(folder)], env=environment, check=True, capture_output=True, text=True
    )
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


def one_round(operations: int) -> dict[str, dict[str, Any]]:
    """The three processes over a new folder of caches."""
    with tempfile.TemporaryDirectory() as made:
        folder, caches = Path(made) / "source", Path(made) / "caches"
        folder.mkdir()
        module = folder / "many.py"
        module.write_text(source(operations))
        found = {"cold": first_call(folder, caches), "warm": first_call(folder, caches)}
        module.write_text(source(operations, constant=0.5))
        found["edited"] = first_call(folder, caches)
    if found["cold"]["results"] != found["warm"]["results"] or found["edited"]["results"] == found["cold"]["results"]:
        raise SystemExit("the program of the cache is another one")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operations", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    rounds = [one_round(asked.operations) for _ in range(asked.rounds)]
    report: dict[str, Any] = {"operations": asked.operations}
    for name in rounds[0]:
        for kind in ("wall", "processor"):
            times = [1000 * r[name][kind] for r in rounds]
            report[f"{name}_{kind}_ms"] = {"median": statistics.median(times), "least": min(times)}
        median, least = report[f"{name}_wall_ms"].values()
        loaded = ", LLVM loaded" if rounds[0][name]["compiler"] else ""
        print(f"{name:8} {median:8.1f} ms, at least {least:.1f}{loaded}")
    if asked.json:
        asked.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
