"""Draws many programs of `constructs()`, runs each on every back end, and counts by construct what came of it:

    python -m tests.properties.many --count 5000 --seed 0 --json FILE

Values are compared always, derivatives where plain Python is smooth: with what JAX takes of plain Python where JAX can
trace it, else with difference quotients. Gradients by what all share, which machine code takes itself, are compared
with those derivatives. Child processes run the programs, so that one that ends the process or takes more than a minute
on a back end is counted, printed and left. What differs is printed whole.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import selectors
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

if __name__ == "__main__":  # a test that imports this has settings of its own
    os.environ.setdefault("AUTOBATCH_TESTS_XLA", "quick")
    os.environ.setdefault("AUTOBATCH_TRACE", "0")
    os.environ.setdefault("AUTOBATCH_COMPILATION_CACHE", "off")
    os.environ.setdefault("AUTOBATCH_WINDOW_COSTS", "typical")
    os.environ.setdefault("AUTOBATCH_CHECK_MEMORY", "1")

import jax
import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings

import autobatch as ab
from autobatch.api.batched import Batched
from autobatch.backends.llvm.program import WholeProgram
from autobatch.testing import Program
from autobatch.testing.examples import differences
from autobatch.testing.programs import CONSTRUCTS, SPECIAL, constructs, load, numbers, search_tree
from autobatch.testing.ways import Mismatch, Plain, Subject, Way, floats, moved, weigh, weight
from tests import executables, quick_xla

BACKENDS = ("interpret", "xla", "llvm", "auto")
CHUNK = 150
"""Programs that one process runs."""
SECONDS = 60.0
"""That a program may take on one back end."""
START = 120.0
"""Seconds for a process to begin."""
LARGEST = 1e4
"""Of a slope that a difference quotient is held against."""
REFUSED = (ab.UnsupportedError, ab.TypeConflictError)

Drawn = tuple[Program, list[Any]]


def drawn(start: int, count: int, wanted: tuple[str, ...] = ()) -> list[Drawn]:
    """Programs with batches, the same for the same seed."""
    found: dict[str, Drawn] = {}

    @seed(start)
    @settings(
        max_examples=4 * count,  # some are drawn again and again
        database=None,
        phases=[Phase.generate],
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(program=constructs(*wanted), batch=numbers())
    def draw(program: Program, batch: list[Any]) -> None:
        found.setdefault(program.source, (program, batch))

    draw()
    return list(found.values())[:count]


def traceable(source: str) -> bool:
    """Does JAX take the derivative of plain Python? Not where Python computes by itself."""
    return "jnp.copysign" in source and not re.search(r"float\(|math\.copysign|1\.0 / ", source.split("def below")[1])


def differentiable(subject: Subject, k: int, by_jax: bool) -> bool:
    """Has an example derivatives to compare? Not where it fails, or where results are no more finite. A difference
    quotient wants finite numbers, one slope on all sides, and no number of which both sides are another path than
    itself."""
    example, plain = floats(subject.examples[k]), subject.plain(k)
    if plain.error is not None or not all(abs(x) < LARGEST for x in floats(plain.result).values()):
        return False
    if by_jax:
        return True
    numbers = set(example.values())
    special = numbers & {0.25, *SPECIAL} or len(numbers) < len(example) or not max(map(abs, numbers)) < LARGEST
    return not special and all(straight(subject, subject.examples[k], np.random.default_rng(n)) for n in range(4))


def straight(subject: Subject, example: Any, rng: np.random.Generator) -> bool:
    """Is the slope along a random direction one number, of the example and what all share?"""
    both = [example, subject.shared]
    directions = [{place: rng.normal(size=np.shape(x)) for place, x in floats(value).items()} for value in both]
    values = []
    for step in (-2e-6, -1e-6, 0.0, 1e-6, 2e-6):
        try:
            near, shared = moved(both, directions, step)
            values.append(weigh(subject.run(shared, near)))
        except Exception:
            return False
    if not np.all(np.isfinite(values)) or max(map(abs, values)) > LARGEST:
        return False
    slopes = np.diff(values) / 1e-6
    return bool(np.ptp(slopes) <= 1e-3 * max(1.0, float(np.abs(slopes).max())) and np.abs(slopes).max() < LARGEST)


def outcome(subject: Subject, backend: str, examples: list[int]) -> tuple[str, str]:
    """What came of some examples on a back end, and the words for it."""
    way = Way(backend, {"trace": backend == "auto"}, False)
    plain, batch = [subject.plain(k) for k in examples], [subject.examples[k] for k in examples]
    try:
        with ab.options(backend=backend, trace=backend == "auto"):
            found = list(subject.mismatches(way, plain, batch))
        wrong = [m for m in found if not is_order(m) and not is_zero_times_infinity(m)]
        if not wrong:
            return ("order" if is_order(found[0]) else "zero times infinity", str(found[0])) if found else ("same", "")
        if backend != "llvm" and all(is_sign_of_zero(m, plain) for m in wrong):
            return "zero", str(wrong[0])
        chosen = examples if wrong[0].example is None else [examples[wrong[0].example]]
        words = f"{wrong[0]}; {[(subject.examples[k], subject.plain(k)) for k in chosen]}"
        if all(ill_conditioned(subject, k) for k in chosen):
            return "ill-conditioned", words
        return ("jump" if subject.jumps(way, chosen) else "mismatch"), words
    except REFUSED as error:
        return "refused", str(error)
    except Exception as error:
        return "error", f"{type(error).__name__}: {error}"


def ill_conditioned(subject: Subject, k: int) -> bool:
    """Does plain Python give something else each time that the numbers are moved by a rounding, as `sin(exp(200))`
    does? At a jump it gives one of two things."""
    both, found = [subject.examples[k], subject.shared], []
    for n in range(5):
        rng = np.random.default_rng(n)
        near = [
            {p: np.asarray(x) * rng.uniform(-1, 1, np.shape(x)) for p, x in floats(value).items()} for value in both
        ]
        example, shared = moved(both, near, 4 * float(np.finfo(np.float64).eps))
        try:
            found.append(weigh(subject.run(shared, example)))
        except Exception:
            return False
    gaps = np.diff(sorted(found))
    return bool(np.all(np.isfinite(found)) and gaps.min() > 1e-6 * max(1.0, max(map(abs, found))))


WEIGHED = f"""

@ab.batched(in_axes=(None, None, 0, 0, 0, 0))
def main(p, root, xs: list[float], x, y, k):
    a, b, c = plain(p, root, xs, x, y, k)
    return a * (a + {weight("[0]")}) + b * (b + {weight("[1]")}) + c * (c + {weight("[2]")})
"""
"""What `weigh` gives, of the results of `main`."""


def weighed(source: str) -> Batched[..., Any]:
    """The entry of a program with one number as its result."""
    entry = "@ab.batched(in_axes=(None, None, 0, 0, 0, 0))\ndef main("
    assert source.count(entry) == 1
    return load(source.replace(entry, "def plain(") + WEIGHED)


def of_gradients(subject: Subject, function: Batched[..., Any], backend: str, examples: list[int]) -> tuple[str, str]:
    """What came of the gradient of a weighed program by what all share. It is `by xla` where machine code has none."""
    batch = [subject.examples[k] for k in examples]
    args = subject.arguments(subject.shared, subject.columns(batch))
    try:
        wanted = subject.found(Way("xla", {}, False), [subject.plain(k) for k in examples], batch).pulled
        assert wanted is not None
        with ab.options(backend=backend), Asked() as asked:
            found = ab.grad(function, argnums=(0, 1))(*args)
        ours, theirs = floats(found), floats(wanted[0])
        for place in theirs:
            for d in differences(ours.get(place), theirs[place], 10 * subject.tolerance, f"gradient{place}"):
                return "mismatch", f"{d}; {batch}"
        return ("same" if asked.native else "by xla"), ""
    except REFUSED as error:
        return "refused", str(error)
    except Exception as error:
        return "error", f"{type(error).__name__}: {error}"


class Asked:
    """Notes whether machine code had every derivative that it was asked for inside."""

    def __enter__(self) -> Asked:
        self.held, self.found = WholeProgram.gradient, list[bool]()

        def gradient(program: WholeProgram, *args: Any) -> Any:
            made = self.held(program, *args)
            self.found.append(made is not None)
            return made

        WholeProgram.gradient = gradient  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        WholeProgram.gradient = self.held  # type: ignore[method-assign]

    @property
    def native(self) -> bool:
        return bool(self.found) and all(self.found)


def is_order(mismatch: Mismatch) -> bool:
    """Does the example fail in both, with another exception?"""
    difference = mismatch.difference
    return bool(difference.place == "failure" and difference.found and difference.expected)


def is_zero_times_infinity(mismatch: Mismatch) -> bool:
    """Has JAX no number for a derivative that is one here? A cotangent of zero is taken for that of a value that is not
    used, wherever an example may leave it unused (`passes/liveness.py`)."""
    difference = mismatch.difference
    return difference.place.startswith("derivative") and bool(np.any(np.isnan(difference.expected)))


def is_sign_of_zero(mismatch: Mismatch, plain: list[Plain]) -> bool:
    """Is it the sign of a zero alone? XLA takes x + 0.0 for x, which is -0.0 where that is, as `jax.jit` has it; of two
    zeros any is its maximum."""
    if mismatch.difference.place != "result[2]" or mismatch.example is None:
        return False
    return any(np.asarray(x) == 0 for x in plain[mismatch.example].result[:2])


def run(program: Program, batch: list[Any], gradients: bool) -> Iterator[dict[str, str]]:
    """What came of a program: for each back end its values, and its derivatives where there are some to compare."""
    by_jax = traceable(program.source)
    subject = Subject(program.function, batch, (program.parameters(), search_tree()), False, None)
    within = [k for k in range(len(batch)) if gradients and differentiable(subject, k, by_jax)]
    for backend in BACKENDS:
        yield {"stage": f"values on {backend}"}
        subject.grads = False
        kind, words = outcome(subject, backend, list(range(len(batch))))
        yield {"backend": backend, "of": "values", "outcome": kind, "words": words}
        if within and kind == "same":
            yield {"stage": f"derivatives on {backend}"}
            subject.grads = True if by_jax else "differences"
            kind, words = outcome(subject, backend, within)
            yield {"backend": backend, "of": "derivatives", "outcome": kind, "words": words}
            if kind == "same" and backend in ("llvm", "auto"):
                yield {"stage": f"gradients on {backend}"}
                kind, words = of_gradients(subject, weighed(program.source), backend, within)
                yield {"backend": backend, "of": "gradients", "outcome": kind, "words": words}


def child(start: int, first: int, count: int, every: int, wanted: tuple[str, ...]) -> None:
    """Runs the programs of a seed from one on, and prints a line for each step."""
    quick_xla.switch_on()
    jax.config.update("jax_enable_x64", True)
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    for k, (program, batch) in enumerate(drawn(start, count, wanted)):
        if k < first:
            continue
        print(
            json.dumps({"program": k, "constructs": program.constructs, "source": program.source, "batch": repr(batch)})
        )
        for line in run(program, batch, k % every == 0):
            print(json.dumps(line), flush=True)
        executables.let_go()
    print(json.dumps({"end": True}), flush=True)


class Totals:
    """Counts by construct, and what went wrong."""

    def __init__(self) -> None:
        self.programs, self.counts, self.wrong = 0, Counter[tuple[str, str]](), list[dict[str, Any]]()
        self.program: dict[str, Any] = {}

    def add(self, key: str) -> None:
        for construct in [*self.program["constructs"], "all"]:
            self.counts[construct, key] += 1

    def take(self, line: dict[str, Any]) -> None:
        if "program" in line:
            self.program = line
            self.programs += 1
            self.add("drawn")
        elif "outcome" in line:
            self.outcome(line["backend"], line["of"], line["outcome"], line["words"])

    def outcome(self, backend: str, of: str, kind: str, words: str) -> None:
        self.add(f"{backend} {of} {kind}")
        if kind not in ("same", "refused", "by xla", "zero times infinity"):
            found = {**self.program, "backend": backend, "of": of, "outcome": kind, "words": words}
            self.wrong.append(found)
            if kind in WRONG:
                again = self.wrong[:-1] and self.wrong[-2]["source"] == found["source"]
                text = "" if again else words + found["source"][found["source"].index("def below") + 155 :]
                print(f"---- {kind} of {of} on {backend}\n{text}", flush=True)

    def table(self) -> str:
        """For each construct and back end: what was compared, refused and wrong."""
        lines = [f"{'construct':16} {'drawn':>6}  " + "".join(f"{b:^36}" for b in BACKENDS)]
        for construct in [*CONSTRUCTS, "all"]:
            cells = "".join(f"{self.cell(construct, b):^36}" for b in BACKENDS)
            lines.append(f"{construct:16} {self.counts[construct, 'drawn']:6}  {cells}")
        lines.append(
            "values compared + refused, derivatives compared + refused, gradients of machine code + others, at a jump "
            "or ill-conditioned, another failure first, another sign of zero or a number where JAX has 0 times "
            "infinity, wrong"
        )
        return "\n".join(lines)

    def cell(self, construct: str, backend: str) -> str:
        def of(what: str, *kinds: str) -> int:
            return sum(self.counts[construct, f"{backend} {what} {kind}"] for kind in kinds)

        apart = (("jump", "ill-conditioned"), ("order",), ("zero", "zero times infinity"), WRONG)
        both = [sum(of(what, *kinds) for what in ("values", "derivatives", "gradients")) for kinds in apart]
        pairs = [f"{of(what, 'same')}+{of(what, 'refused')}" for what in ("values", "derivatives")]
        pairs.append(f"{of('gradients', 'same')}+{of('gradients', 'by xla', 'refused')}")
        return "  ".join([*pairs, *map(str, both)])


WRONG = ("mismatch", "error", "hang", "crash")


def watched(totals: Totals, arguments: list[str], count: int, until: float) -> None:
    """Runs the programs of one seed in child processes: another one goes on after each that hangs or dies."""
    first = 0
    while first < count and time.time() < until:
        command = [sys.executable, "-m", "tests.properties.many", *arguments, "--child", str(first)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=False) as process:
            assert process.stdout is not None
            ended, stage, reason = False, "", "crash"
            for line in lines_of(process.stdout, until):
                if line is None:
                    reason = "hang"
                    break
                if "program" in line:
                    first = line["program"] + 1
                ended, stage = "end" in line, line.get("stage", stage)
                totals.take(line)
            process.kill()
        if ended or time.time() >= until:
            return
        if not stage:
            raise SystemExit(f"{' '.join(command)} does not begin")
        of, _, backend = stage.split()
        totals.outcome(backend, of, reason, f"exit status {process.returncode}")


def lines_of(stream: Any, until: float) -> Iterator[dict[str, Any] | None]:
    """The lines of a child; None where it takes too long for one."""
    selector, held, limit = selectors.DefaultSelector(), b"", START
    selector.register(stream, selectors.EVENT_READ)
    while True:
        if not selector.select(limit):
            yield None
            return
        data = os.read(stream.fileno(), 1 << 16)
        if not data or time.time() > until:
            return
        *lines, held = (held + data).split(b"\n")
        yield from (json.loads(line) for line in lines)
        limit = SECONDS if lines or limit < START else START


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1000, help="programs in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", help="a file for the counts, and for what went wrong")
    parser.add_argument("--only", default="", help="constructs that are drawn, by commas")
    parser.add_argument("--gradients", type=int, default=2, help="derivatives of each so manieth program")
    parser.add_argument("--minutes", type=float, default=1e6, help="stop after these")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--chunk", type=int, default=0, help=argparse.SUPPRESS)
    given_ = parser.parse_args()
    wanted = tuple(filter(None, given_.only.split(",")))
    if given_.child is not None:
        child(given_.seed, given_.child, given_.chunk, given_.gradients, wanted)
        return
    totals, until = Totals(), time.time() + 60 * given_.minutes
    for begin in range(0, given_.count, CHUNK):
        size = min(CHUNK, given_.count - begin)
        arguments = ["--seed", str(given_.seed * 1000 + begin // CHUNK), "--chunk", str(size)]
        arguments += ["--only", given_.only, "--gradients", str(given_.gradients)]
        watched(totals, arguments, size, until)
        if given_.json:
            counts = {f"{c}: {k}": v for (c, k), v in totals.counts.items()}
            with open(given_.json, "w") as file:
                json.dump({"programs": totals.programs, "counts": counts, "wrong": totals.wrong}, file, indent=1)
    print(totals.table())


if __name__ == "__main__":
    main()
