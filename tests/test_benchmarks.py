"""What competes computes what plain Python computes; the driver's arithmetic. No timing."""

import json
import os
import subprocess
import sys
from functools import cache

import jax
import numpy as np
import pytest

from benchmarks import masks, memory, overhead, training, walks
from benchmarks.choice import __main__ as choice
from benchmarks.choice import programs
from benchmarks.compare import OURS, ROOT, Competitor, Entry, Workload, report, table
from benchmarks.competitors import packed, workloads
from benchmarks.dags.competitors import with_autobatch as dags
from benchmarks.dags.competitors import workload as graphs
from benchmarks.parsing.competitors import with_autobatch as parsing
from benchmarks.parsing.competitors import workload as parsed
from benchmarks.sentiment.__main__ import TRAINING
from benchmarks.sentiment.competitors import train_autobatch, train_jax
from benchmarks.sentiment.competitors import with_autobatch as sentiment
from benchmarks.sentiment.competitors import workload as trees
from benchmarks.sequences.competitors import with_autobatch as sequences
from benchmarks.sequences.competitors import workload as sentences
from benchmarks.simd import __main__ as simd
from benchmarks.simd.kernels import KERNELS
from benchmarks.simd.peers import MissingError, Plain, compiled_c
from benchmarks.tagger.__main__ import TRAINING as TAGGING
from benchmarks.tagger.competitors import with_autobatch as tagger
from benchmarks.tagger.competitors import workload as tagged
from examples.language import parser

SPELLED = [[[[3, 1, 2], 0, [4], 1], [2, 0, 8, 1]], [[[1], 1], [3, 3]], [[0, 1, [2, 2]], [1, 0, 7]], [[[4, 0]], [5]]]
"""Sentences of rare words, which are lists of letters, and frequent ones."""
TABLES = {"vocabulary": 2, "alphabet": 5}
COMPETING = {
    "sentiment": (
        sentiment.loss,
        packed.parameters(trees.weights(6, 4)),
        list(map(sentiment.phrase, trees.random_trees(3))),
    ),
    "sequences": (
        sequences.loss,
        packed.parameters(sentences.weights(6, 4)),
        [sequences.Sentence(*s) for s in sentences.sentences(3)],
    ),
    "dags": (
        dags.loss,
        packed.parameters(graphs.weights(4)),
        [dags.root([["input", 3], ["layer", 0], ["gate", 0, 1], ["gate", 2, 1]])],
    ),
    "parsing": (
        parser.loss,
        parsing.parameters(parsed.weights(4)),
        [parsing.example(*s) for s in parsed.sentences(40) if parsed.size(s) < 8],
    ),
    "tagger": (
        tagger.loss,
        tagger.parameters(tagged.weights(**TABLES, embedding=6, hidden=4)),
        [tagger.sentence(*s) for s in SPELLED],
    ),
}
SIZES = {"embedding": 6, "hidden": 4}
RATE = 0.1
"""So large that a wrong gradient of any weight shows in the loss after a few steps."""


@pytest.mark.parametrize("name", COMPETING)
def test_what_competes_is_the_model(name):
    loss, p, examples = COMPETING[name]
    np.testing.assert_allclose(loss(p, examples), loss.loop(p, examples), rtol=1e-5)


def test_every_node_of_a_graph_reaches_the_last_one():
    for graph in graphs.graphs(50):
        read = [k for node in graph for k in graphs.operands(node)]
        assert set(read) == set(range(len(graph) - 1)), "a node that nobody reads"
        assert all(k < position for position, node in enumerate(graph) for k in graphs.operands(node))
        assert graphs.SMALLEST <= graphs.size(graph) <= graphs.LARGEST


def test_a_factor_is_the_median_of_the_factors_within_a_round():
    """The machine is half as fast in the second round, for both alike."""
    entries = [Entry(OURS, "ours"), Entry("other", "theirs"), Entry("absent", "nowhere")]
    found = [
        Competitor(entries[0], [], rates={16: [400.0, 200.0, 420.0]}, losses={16: -8.00001}),
        Competitor(entries[1], [], rates={16: [100.0, 50.0, 101.0]}, losses={16: -8.0}),
        Competitor(entries[2], [], missing="no interpreter that has it"),
    ]
    made = report(Workload("nowhere", "trees", "a model", entries), found, [1, 16])
    other = made["competitors"]["other"]
    assert other["examples_per_second"] == {16: 100.0} and other["autobatch_is_faster_by"] == {16: 4.0}
    assert made["losses_differ_by"] == pytest.approx(1.25e-6, rel=1e-3)
    printed = table(made, [1, 16])
    assert "4.00" in printed and "not measured: no interpreter that has it" in printed


def interpreter(package):
    """One that has a package, or skips: that of the tests, of the `make` target, or of BENCHMARKS_<PACKAGE>."""
    names = [os.environ.get(f"BENCHMARKS_{package.upper()}"), str(ROOT / f".venv-{package}/bin/python"), sys.executable]
    for name in filter(None, names):
        try:
            if subprocess.run([name, "-c", f"import {package}"], capture_output=True).returncode == 0:
                return name
        except OSError:
            continue
    pytest.skip(f"no interpreter here has {package}")


FEW = [
    [3, [1, 5], [2, [0, 5], [4, 7]]],
    [0, 11],
    [2, [2, [1, 7], [3, [0, 5], [1, 2]]], [4, 3]],
    [1, [2, 9], [0, 5]],
]


@cache
def trained_by_plain_python():
    """The loss of four trees before and after a step of gradient descent for every two, and the parameters then."""
    first = p = packed.parameters(trees.weights(**SIZES))
    examples = [sentiment.phrase(t) for t in FEW]

    def total(p, some):
        return sum(sentiment.loss.loop(p, some))

    for some in (examples[:2], examples[2:]):
        p = jax.tree.map(lambda x, g: x - RATE * g, p, jax.grad(total)(p, some))
    return total(first, examples), total(p, examples), p


@pytest.mark.parametrize("script", [train_autobatch, train_jax], ids=lambda script: script.__name__)
def test_what_trains_with_jax_takes_the_steps_of_plain_python(script):
    trained = script.Trained(FEW, trees.weights(**SIZES), RATE)
    trained.reset()
    trained.step(range(0, 2))
    trained.step(range(2, 4))
    _, _, expected = trained_by_plain_python()
    both = {"state": np.concatenate([expected["left"], expected["right"]])}  # as train_jax has them
    for name, value in trained.p.items():
        np.testing.assert_allclose(value, {**expected, **both}[name], rtol=1e-4, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("entry", [e for e in TRAINING.entries if e.needs != "jax"], ids=lambda entry: entry.name)
def test_what_trains_elsewhere_takes_the_steps_of_plain_python(entry, tmp_path):
    python = interpreter(entry.needs)
    workloads.save(tmp_path / "trees.json", FEW, RATE, **SIZES)
    command = [python, "-m", f"{TRAINING.package}.competitors.{entry.script}", str(tmp_path / "trees.json"), entry.form]
    trained = Competitor(entry, command)
    trained.start(threads=1)
    try:
        answer = trained.ask({"warm": 2})
    finally:
        trained.stop()
    before, after, _ = trained_by_plain_python()
    np.testing.assert_allclose((answer["loss"], answer["loss_after"]), (before, after), rtol=1e-5)
    assert before - after > 1e-2 * before, "the steps are too small to tell gradients apart"


@cache
def tagger_by_plain_python():
    """The loss of four sentences before and after a step of gradient descent for every two."""
    loss, p, examples = COMPETING["tagger"]
    before = sum(loss.loop(p, examples))
    for some in (examples[:2], examples[2:]):
        slope = jax.jit(jax.grad(lambda p, some=some: sum(loss.loop(p, some))))(p)
        p = jax.tree.map(lambda x, g: x - RATE * g, p, slope)
    return before, sum(loss.loop(p, examples))


@pytest.mark.parametrize(
    "entry",
    [pytest.param(e, marks=[pytest.mark.long] * (e.needs == "jax")) for e in TAGGING.entries],
    ids=lambda entry: entry.name,
)
def test_taggers_take_the_steps_of_plain_python(entry, tmp_path):
    python = sys.executable if entry.needs == "jax" else interpreter(entry.needs)
    workloads.save(tmp_path / "sentences.json", SPELLED, RATE, **TABLES, **SIZES)
    script = f"{TAGGING.package}.competitors.{entry.script}"
    command = [python, "-m", script, str(tmp_path / "sentences.json"), *filter(None, [entry.form])]
    trained = Competitor(entry, command)
    trained.start(threads=1)
    try:
        answer = trained.ask({"warm": 2})
    finally:
        trained.stop()
    np.testing.assert_allclose((answer["loss"], answer["loss_after"]), tagger_by_plain_python(), rtol=1e-5)


def test_words_of_a_corpus_are_rare_or_have_a_row():
    texts = [["the", "ox"] for _ in range(tagged.RARE + 1)] + [["the", "emu", "ox"]]
    found, sizes = tagged.from_texts(texts, 20)
    letters = "ehmotux"
    assert sizes == {"vocabulary": 2, "alphabet": len(letters)} and len(found) == len(texts)
    assert found[-1][0] == [0, [letters.index(x) for x in "emu"], 1] and found[0][0] == [0, 1]
    drawn, sizes = tagged.sentences(50)
    words = [word for sentence in drawn for word in sentence[0]]
    assert 0.1 < np.mean([isinstance(word, list) for word in words]) < 0.4
    assert all(max(w) < sizes["alphabet"] if isinstance(w, list) else w < sizes["vocabulary"] for w in words)


def test_the_arithmetic_of_a_step_is_that_of_the_plan():
    """Rows that the plan computes, times what they are multiplied with."""
    some = trees.random_trees(8)
    p = packed.parameters(trees.weights(**SIZES))
    rows = {
        r["kind"] + r["name"]: r for r in sentiment.loss.explain(p, [sentiment.phrase(t) for t in some]).data["rows"]
    }
    nodes, inner = rows.pop("regionencode"), rows.pop("regionencode.else1")
    (words,) = (r for r in rows.values() if r["kind"] == "distinct")
    forward = 2 * (words["computed"] * 6 * 12 + inner["computed"] * 8 * 20 + nodes["computed"] * 4 * 5)
    assert trees.arithmetic(some, **SIZES) == forward


def test_figures_of_training_follow_from_the_rounds():
    """A machine that is half as fast in the second round changes no ratio."""
    details = {"flop_of_an_example": 2e9, "executables": {"first epoch": 3, "later": 0}, "memory": {"peak": 30_000_000}}
    ours, by_hand = Entry(OURS, "ours"), Entry(training.BY_HAND, "theirs")
    found = [
        Competitor(
            ours, [], rates={64: [40.0, 20.0, 42.0]}, details={64: details},
            beside={"forward": {64: [150.0, 75.0, 156.0]}, "gradient": {64: [50.0, 25.0, 52.0]},
                    "products": {64: [100.0, 50.0, 105.0]}},
        ),
        Competitor(by_hand, [], details={64: {"memory": {"peak": 20_000_000}}}),
    ]  # fmt: skip
    workload = Workload("nowhere", "trees", "a model", [ours, by_hand], training.figures)
    made = report(workload, found, [16, 64])["figures"]
    assert made["GFLOP/s"] == {64: 80.0} and made["share of these"] == {64: 0.8}
    assert made["backward over forward"] == {64: 2.0} and made["memory over that"] == {64: 1.5}
    assert made["executables of updates, first epoch"] == {64: 3.0}
    assert made["executables of updates, later"] == {64: 0.0}


def test_the_overhead_of_an_operation_is_what_does_not_grow_with_the_batch():
    slope, fixed, error = overhead.line_through([1, 2, 4], [5.0, 7.0, 11.0])
    assert (slope, fixed, error) == pytest.approx((2.0, 3.0, 0.0))
    examples = overhead.sentences(1, 3)
    text = overhead.loss.lower(overhead.parameters(4), examples).as_text("example")
    # the row of a word twice (slice, squeeze), two products, two sums, split; five activations, three products, a sum
    assert overhead.operations_of_a_turn(text) == 16


def test_masked_control_and_vmap_compute_the_same(tmp_path):
    """Only that: a difference is an error of the command."""
    file = tmp_path / "report.json"
    assert (
        masks.main(["--rows", "64", "--rounds", "1", "--seconds", "0", "--only", "costly arm", "--json", str(file)])
        == 0
    )
    (case,) = json.loads(file.read_text())["cases"]
    assert case["factor"] == pytest.approx(case["seconds_of_vmap"] / case["seconds"])


def test_memory_and_what_is_written_by_hand_compute_the_same(tmp_path):
    """As above."""
    file = tmp_path / "report.json"
    assert memory.main(["--lanes", "40", "--rounds", "1", "--only", "stack", "--json", str(file)]) == 0
    (case,) = json.loads(file.read_text())["cases"]
    assert case["factor_of_llvm"] == pytest.approx(case["llvm"] / case["by_hand"])


def test_walks_and_what_is_written_by_hand_compute_the_same(tmp_path):
    """As above, derivatives too."""
    file = tmp_path / "report.json"
    assert walks.main(["--batch", "6", "--depths", "3", "--rounds", "1", "--json", str(file)]) == 0
    (found,) = json.loads(file.read_text())["depths"]
    assert found["factor_of_xla"] == pytest.approx(found["xla"] / found["by_hand"])


def test_a_competitor_that_dies_is_left_out(tmp_path):
    """It answers twice, then it is gone."""
    script = (
        "import sys, json; print('{}', flush=True); sys.stdin.readline(); print(json.dumps({'rate': 1.0}), flush=True)"
    )
    dying = Competitor(Entry("dying", "nowhere"), [sys.executable, "-c", script])
    dying.start(threads=1)
    dying.attempt(dying.take_turn, 16, 0.1)
    assert dying.rates == {16: [1.0]} and not dying.missing
    dying.attempt(dying.take_turn, 16, 0.1)
    dying.attempt(dying.take_turn, 16, 0.1)
    assert dying.started and "failed" in dying.missing and not dying.rates


@pytest.fixture(scope="module")
def in_c(tmp_path_factory):
    try:
        return compiled_c(tmp_path_factory.mktemp("simd"))
    except MissingError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_in_c_and_numpy_compute_what_the_program_does(name, in_c):
    kernel = KERNELS[name](0.02)
    found = Plain(in_c, kernel.name, kernel)()
    if kernel.by_numpy is not None:
        assert simd.away(kernel.by_numpy(*kernel.given), found, kernel) <= kernel.strays
    if name in ("expressions", "binomial", "occlusion", "bodies"):
        return  # plain Python takes seconds, or has no plain examples
    shared = len(kernel.given) - sum(len(np.atleast_1d(x)) == kernel.count for x in kernel.given if not _is_tree(x))
    one = kernel.function.example(*kernel.given[:shared], *(x[0] for x in kernel.given[shared:]))
    for x, out in zip(jax.tree.leaves(one), found, strict=True):
        np.testing.assert_allclose(x, out[0], rtol=1e-3, atol=1e-3)


def _is_tree(x):
    return not isinstance(x, np.ndarray)


def test_factors_to_ispc_count_refused_programs_out():
    fast = {"times": {"ispc": 2.0, "vmap": 8.0}, "loops": True}
    slow = {"times": {"ispc": 0.5, "vmap": 2.0}, "loops": False}
    found = {"fast": fast, "slow": slow, "refused": {"refused": "why", "loops": True}}
    assert simd.mean(found, "ispc") == pytest.approx(1.0)
    assert simd.mean(found, "vmap", only_loops=True) == pytest.approx(8.0)
    assert simd.mean(found, "numba") is None


def test_choice(capsys):
    """One case, as its child measures it."""
    assert choice.main(["--name", "branch", "--rows", "4", "--rounds", "1", "--seconds", "0.001"]) == 0
    found = [choice.Found(**x) for x in json.loads(capsys.readouterr().out)]
    assert [f.what for f in found] == ["value", "gradient"]
    assert all(set(f.times) == {"xla", "llvm", "auto"} and f.regret > 0 for f in found)
    assert "regret of a call" in choice.totals(found)


@pytest.mark.long
def test_programs_of_the_choice():
    """Each computes in plain Python what it is for; derivatives are of numbers."""
    for case in programs.cases(2):
        axes = case.in_axes if isinstance(case.in_axes, tuple) else (case.in_axes,) * len(case.arguments)
        row = [x if axis is None else x[1] for x, axis in zip(case.arguments, axes, strict=True)]
        result = case.function(*row)
        assert case.wrt is None or np.ndim(result) == 0, case.name
