"""explain: the margin of every line, the tables, the page; and what must hold for every program."""

from __future__ import annotations

import ast
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import autobatch as ab
from autobatch.tools.facts import PLACES
from tests.properties import functions as f
from tests.properties import strategies as draws
from tests.tools import programs
from tests.tools.programs import Many, Node, all_kinds, head, nested, parameters, refused, rnn, tree, tree_lstm

TREES = [tree(5), tree(3, seed=1), tree(1, seed=2)]
NARROW = ab.options(widths=(8, 4), products="xla")


def fresh(function):
    """The same function, that knows no types from earlier calls."""
    return type(function)(function.__wrapped__, function.settings)


def margins(explanation):
    """The word of each line of `programs.py` that has one, as the text shows it."""
    file = Path(programs.__file__).name
    found = {}
    here = False
    for line in str(explanation).splitlines():
        if heading := re.match(r"(\w+\.py):\d+  ", line):
            here = heading[1] == file
        elif here and (row := re.match(r"  (\S.*?|)  +(?:[\d,]+  +)?(\d+)  ", line)):
            found[int(row[2])] = row[1]
    return found


# ---- the margin


@pytest.mark.parametrize(
    ("function", "batch"),
    [
        (tree_lstm, TREES),
        (rnn, [[0.5, 0.25], [], [1.0]]),
        (all_kinds, [Many(1.0, [Many(2.0)]), Many(3.0)]),
        (head, TREES),
        (nested, [[0.5, 0.25], [1.0]]),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_the_margin_says_what_the_comments_say(function, batch):
    found = margins(fresh(function).explain(parameters(), batch))
    asked = {n: word for n, word in programs.words().items() if n in found}
    assert asked, "no line of the function has a comment"
    assert {n: found[n] for n in asked} == asked


@pytest.mark.parametrize(
    ("name", "function", "batch"), [("tree_lstm", tree_lstm, TREES), ("rnn", rnn, [[0.5, 0.25], [], [1.0]])]
)
def test_text(name, function, batch, golden):
    with NARROW:
        golden("explain", name, f"{fresh(function).explain(parameters(), batch)}\n")


def test_text_of_a_refused_function(golden):
    golden("explain", "refused", f"{refused.explain(parameters(), TREES)}\n")


def test_a_type_conflict_marks_both_places():
    @ab.batched
    def conflict(t: Node):
        if t.left is None:
            return jnp.ones((2, 2)) * t.x
        return jnp.ones(3) * t.x

    found = conflict.explain([tree(2)]).data
    assert found["refusal"]["kind"] == "TypeConflictError"
    (text,) = found["texts"]
    marked = [line for line in text["lines"] if line["place"]]
    assert [line["text"].strip() for line in marked] == ["return jnp.ones((2, 2)) * t.x", "return jnp.ones(3) * t.x"]
    assert all(line["notes"] for line in marked)


def positive(y, t):
    for node in [t, t]:
        return node.x + hash(node)
    return -y


def test_a_refusal_in_a_helper_shows_both_functions():
    outer = ab.batched(lambda p, t: positive(p * t.x, t), in_axes=(None, 0))
    first, second = outer.explain(1.0, [Node(1.0)]).data["texts"]
    assert "lambda p, t" in first["lines"][0]["text"] and second["name"] == "positive"
    (marked,) = [line for t in (first, second) for line in t["lines"] if line["place"]]
    assert marked["text"] == "        return node.x + hash(node)" and marked["place"]["kind"] == "refused"
    start, stop = marked["columns"]
    assert marked["text"][start - 1 : stop - 1] == "hash(node)"


def test_a_function_without_source_is_a_refusal():
    space: dict = {}
    exec("def plus(x):\n    return x + 1", space)
    found = ab.batched(space["plus"]).explain(np.ones(2))
    assert found.data["texts"] == [] and found.data["refusal"]["kind"] == "UnsupportedError"
    assert "not available" in str(found) and "not available" in found.html()


def test_arguments_that_are_no_batch_raise():
    with pytest.raises(ab.BatchError):
        tree_lstm.explain(parameters(), Node(1.0))


# ---- what the call costs


def test_products_are_hoisted():
    found = tree_lstm.explain(parameters(), TREES).data
    shown = [(p["place"]["kind"], p["place"]["when"], p["left"], p["right"], p["rows"]) for p in found["products"]]
    rows = {r["name"]: r["computed"] for r in found["rows"]}
    assert sorted(shown, key=str) == sorted(
        [
            ("frame", "before", [4], [4, 12], rows["tree_lstm.then"]),
            ("frame", "before", [4], [4, 3], rows["tree_lstm.then"]),
            ("frame", "after", [4], [4, 3], rows["tree_lstm.else"]),
            ("level", None, [8], [8, 20], rows["tree_lstm.else"]),
        ],
        key=str,
    )


def test_products_inside_a_scan_are_named():
    @ab.batched(in_axes=(None, 0))
    def scanned(w, x):
        return jax.lax.scan(lambda h, _: (jnp.tanh(h @ w), 0.0), x, None, length=3)[0]

    (product,) = scanned.explain(jnp.eye(3), np.ones((2, 3))).data["products"]
    assert product["operation"] == "scan(dot_general)" and product["place"]["kind"] == "example"


def test_equal_rows_are_counted():
    found = f.child_reduction.explain(f.params(), [draws.Many(0.5, [draws.Many(0.5), draws.Many(0.5)])] * 8).data
    assert all(0 < r["computed"] <= r["found"] for r in found["rows"])
    words = rnn_over_words.explain(parameters(), [[1, 2, 1, 1], [1, 2, 1, 1]]).data
    (distinct,) = [r for r in words["rows"] if r["kind"] == "distinct"]
    assert (distinct["name"], distinct["found"], distinct["computed"]) == (
        'rnn_over_words.for0.then by p["emb"][w]',
        8,
        2,
    )


@ab.batched(in_axes=(None, 0))
def rnn_over_words(p, words: list[int]):
    h = p["b"]
    for w in words:
        h = jnp.tanh(h @ p["W"] + p["emb"][w] @ p["W"])
    return h


def test_failed_examples_are_told():
    @ab.batched
    def fails(t: Many):
        return 1 // len(t.kids) + sum([fails(k) for k in t.kids])

    found = fails.explain([Many(1.0)])
    (failed,) = found.data["failed"]
    assert failed["kind"] == "ZeroDivisionError" and failed["index"] == 0
    assert "ZeroDivisionError" in str(found) and "ZeroDivisionError" in found.html()


@pytest.mark.parametrize(
    ("backend", "why"),
    [("auto", "llvm [0-9]+ and xla [0-9]+ microseconds"), ("xla", "asked for"), ("interpret", "row by row")],
)
def test_the_back_end_and_why(backend, why):
    function = ab.batched(tree_lstm.__wrapped__, in_axes=(None, 0), backend=backend)
    found = function.explain(parameters(), ab.pack(TREES)).data["backend"]
    assert found["asked"] == backend and found["taken"] == ("xla" if backend == "auto" else backend)
    assert re.search(why, found["why"])


def test_nothing_is_compiled_and_the_call_needs_no_new_specialisation():
    function = ab.batched(tree_lstm.__wrapped__, in_axes=(None, 0), backend="xla")
    first, second = (str(function.explain(parameters(), ab.pack(TREES))) for _ in range(2))
    assert first == second
    info = function.cache_info()
    assert (info.specialisations, info.executables) == (1, 0)
    function(parameters(), ab.pack(TREES))
    info = function.cache_info()
    assert (info.specialisations, info.executables) == (1, 1)


def test_batches_of_every_kind():
    function = fresh(tree_lstm)
    packed = function.pack(TREES)
    wanted = function.explain(parameters(), packed).data
    behind_jit = jax.jit(lambda b: b)(packed)
    for batch in (TREES, behind_jit, jax.jit(lambda b: b)(ab.pack(TREES)), packed[:]):
        found = function.explain(parameters(), batch).data
        assert found["recurrences"] == wanted["recurrences"] and found["rows"] == wanted["rows"]
    assert function.explain(parameters(), packed[[0]]).data["examples"] == 1
    assert function.explain(parameters(), packed[[]]).data["examples"] == 0
    with ab.disable():
        assert function.explain(parameters(), TREES).data["rows"] == wanted["rows"]


def test_arrays_alone():
    g = ab.batched(lambda x: jnp.sum(x * 2))
    found = g.explain(np.ones((4, 3)))
    assert found.data["recurrences"] == [] and found.data["examples"] == 4
    assert jax.jit(lambda x: g.explain(x).data["examples"] * x)(np.ones((4, 3))).shape == (4, 3)


def test_under_jit_a_batch_is_refused():
    packed = tree_lstm.pack(TREES)
    tree_lstm(parameters(), packed)
    with pytest.raises(ab.BatchError, match=r"outside jax\.jit"):
        jax.jit(lambda b: len(tree_lstm.explain(parameters(), b).data))(packed)


# ---- what holds for every program

PROGRAMS = {
    "bottom_up": (f.bottom_up, draws.trees()),
    "with_loss": (f.with_loss, draws.dags()),
    "child_sum": (f.child_sum, draws.many_trees()),
    "top_down": (f.top_down, draws.trees()),
    "chained": (f.chained_thrice, draws.trees()),
    "forward": (f.forward, draws.tokens()),
    "nested_loops": (f.nested_loops, draws.sentences()),
    "interrupted": (f.interrupted, draws.items()),
    "mutual": (f.mutual, draws.programs_of_blocks()),
    "messages": (f.messages, draws.graphs()),
}


def executable(source: str, first: int) -> set[int]:
    """The lines on which a statement of a function begins, numbered from the first line of its text."""
    (function,) = ast.parse(source).body
    inner = [n for n in ast.walk(function) if isinstance(n, ast.stmt) and n is not function]
    told = [n for n in inner if not (isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant))]
    return {first + n.lineno - 1 for n in told}


@pytest.mark.parametrize("name", PROGRAMS)
@settings(max_examples=6)
@given(data=st.data())
def test_invariants(name, data):
    function, examples = PROGRAMS[name]
    batch = data.draw(st.lists(examples, max_size=5))
    with ab.options(loops="xla"):
        found = function.explain(f.params(), batch).data
    assert json.loads(json.dumps(found)) == found
    assert found["examples"] == len(batch)
    rows = {r["name"]: r for r in found["rows"]}
    for loop in found["recurrences"]:
        assert sum(level["rows"] for level in loop["levels"]) == loop["rows"] == sum(t["rows"] for t in loop["tasks"])
        assert sum(level["computed"] for level in loop["levels"]) == loop["computed"]
        assert loop["occupancy"] is None if not loop["rows"] else 0 < loop["occupancy"] <= 1
        for task in loop["tasks"]:
            assert task["rows"] == rows[task["name"].rpartition("/")[0]]["computed"]
            assert task["computed"] == sum(w["width"] * w["count"] for w in task["windows"])
            assert {w["width"] for w in task["windows"]} <= set(found["widths"])
        assert loop["buffer_bytes"] > 0
    assert all(r["computed"] <= r["found"] and r["computed"] <= r["capacity"] for r in rows.values())
    for text in found["texts"]:
        lines = {line["number"]: line for line in text["lines"]}
        source = "\n".join(line["text"] for line in text["lines"])
        for number in executable(source, text["lines"][0]["number"]):
            assert lines[number]["place"]["kind"] in PLACES, lines[number]
        assert all(line["places"][:1] == ([line["place"]] if line["place"] else []) for line in lines.values())
    assert {s["name"] for s in found["strategies"]}


@pytest.mark.parametrize("wide", [False, True])
def test_bytes_are_those_of_the_device(wide):
    """Floats of Python have 64 bits on the host, and 32 on the device where x64 is off."""
    with jax.enable_x64(wide):
        function, batch = fresh(rnn), rnn.pack([[0.5, 0.25], [], [1.0]])
        held = function.explain(parameters(), batch).data["bytes"]
        tables = jax.device_put(function.prepare(function.bound((parameters(), batch), {})).tables)
        floats = sum(x.nbytes for x in tables.values() if jnp.issubdtype(x.dtype, jnp.floating))
    assert held["columns"] == floats > 0


# ---- the page


class Page(HTMLParser):
    """Checks that tags are closed in order, and collects what a page could load."""

    EMPTY = frozenset({"meta", "br", "rect", "line"})

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.loads: list[tuple[str, str | None]] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.loads += [(k, v) for k, v in attrs if k in ("src", "href", "xlink:href", "srcset", "action", "data")]
        if tag not in self.EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


@pytest.mark.parametrize(
    ("function", "batch"), [(tree_lstm, TREES), (refused, TREES), (all_kinds, [Many(1.0)])], ids=["lstm", "no", "all"]
)
def test_the_page_is_whole_and_loads_nothing(function, batch):
    text = function.explain(parameters(), batch).html()
    page = Page(text)
    assert page.loads == []
    assert not re.search(r"https?:|//|url\(|@import|<script|<link|<iframe", re.sub(r"//[ =]", "", text))
    assert {"html", "title", "main", "h1"} <= {tag for tag, _ in page.tags}


def test_the_page_shows_the_levels():
    explanation = tree_lstm.explain(parameters(), TREES)
    page = Page(explanation.html())
    pictures = [a for tag, a in page.tags if tag == "svg"]
    loops = explanation.data["recurrences"]
    assert len(pictures) == len(loops)
    ids = {a["id"] for _, a in page.tags if "id" in a}
    for picture in pictures:
        assert picture["role"] == "img" and set(picture["aria-labelledby"].split()) <= ids
    bars = [a for tag, a in page.tags if tag == "rect"]
    assert len(bars) == 2 * sum(len(loop["levels"]) for loop in loops)


def test_the_picture_of_a_deep_loop_is_bounded():
    deep = Node(1.0)
    for _ in range(700):
        deep = Node(0.5, 0, deep, Node(1.0))
    explanation = f.bottom_up.explain(f.params(), [deep])
    assert len(explanation.data["recurrences"][0]["levels"]) == 700
    page = Page(explanation.html())
    assert len([tag for tag, _ in page.tags if tag == "rect"]) <= 240
    assert len(str(explanation)) < 10_000


def test_the_page_escapes_the_source():
    @ab.batched
    def sharp(x):
        y = x if "</td><b>&amp;" else x  # <i>
        return y * 2

    text = sharp.explain(np.ones(2)).html()
    page = Page(text)
    assert not {"b", "i"} & {tag for tag, _ in page.tags}
    assert 'y = x if "</td><b>&amp;" else x  # <i>' in "".join(page.text)


def test_in_a_notebook_the_page_is_apart():
    explanation = rnn.explain(parameters(), [[0.5]])
    page = Page(explanation._repr_html_())
    ((tag, held),) = page.tags
    assert tag == "iframe" and held["srcdoc"] == explanation.html()
    assert repr(explanation) == str(explanation)


def test_a_circle_through_one_of_several_loops():
    """Only one of the loops leads back to the function."""
    found = f.filtered.explain(f.params(), [draws.Many(0.5, [draws.Many(0.25)], "c")]).data["strategies"]
    assert ("filtered", "it calls itself in a loop") in {(s["name"], s["why"]) for s in found}
