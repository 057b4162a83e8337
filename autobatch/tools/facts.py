"""What an explanation says, as plain data, and as text for a terminal.

The facts are the one source of the text, of the page and of `Explanation.data`. Their fields are the keys of
`Explanation.data`, nested in the same way; tuples become lists. Places are named by the words of `PLACES`. Bytes are
bytes, rows are rows: nothing is rounded or shortened here.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import linecache
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePath
from typing import Any

from autobatch.errors import Span, UnsupportedError
from autobatch.frontend.syntax.sources import source_of

# ---- facts


PLACES = {
    "refused": "cannot be compiled",
    "stack": "in a data-dependent recursion: block by block, with a stack for each row",
    "level": "inside the level loop of a recurrence: once for every window of every level",
    "masked": "branches and loops on computed numbers: all rows at once, those that take part under a mask",
    "frame": "one operation over all frames of the batch, before or after the levels",
    "example": "one operation over all examples, a row each",
    "once": "one operation for the whole batch: the same for all examples",
    "host": "structure: computed ahead on the host, while planning",
    "nothing": "nothing is left to do: names, static values, what another line has computed or nobody reads",
    "not reached": "no example of these types comes here",
}
"""The places of lines and operations, the most expensive first, and what they mean."""


@dataclass(frozen=True)
class LinePlace:
    """Where some operations of a line run. `kind`: a key of `PLACES`. `when`: "before" or "after" the levels, where
    there are levels; after those of `recurrence`. For "level", `recurrence` is the one whose loop it is. `rows` is the
    largest number of rows that one of the `operations` runs on, None where rows have no meaning."""

    kind: str
    when: str | None = None
    recurrence: int | None = None
    operations: int = 0
    rows: int | None = None


@dataclass(frozen=True)
class SourceLine:
    """A line of the source. `place`: that of its most expensive operation, None where the margin is empty (`else:`,
    comments, continued lines). `places`: all of them, the most expensive first. `notes`: what is said under the line,
    and `columns` the range (from, to), from 1, that it is about."""

    number: int
    text: str
    place: LinePlace | None = None
    places: tuple[LinePlace, ...] = ()
    notes: tuple[str, ...] = ()
    columns: tuple[int, int] | None = None


@dataclass(frozen=True)
class SourceText:
    """The source of one function."""

    name: str
    file: str
    lines: tuple[SourceLine, ...]


@dataclass(frozen=True)
class Strategy:
    """How a function, or a loop that became one, is run. `strategy`: "frames" (a row for each activation or turn),
    "example" (a row for each example), "inlined", "one operation" (a loop as a `scan`, a sum without levels), "host"
    (it computes structure alone, and has no rows on the device), "masked" (a loop that computed numbers end, or an arm
    that few rows may take: are the rows that go on packed together? what does a gradient keep?), "ahead" (a loop or
    call behind a test of computed numbers, which runs in front of it), "stack" (its calls are data-dependent: it
    runs block by block for all rows that call it, with a stack for each)."""

    name: str
    strategy: str
    why: str
    file: str
    line: int


@dataclass(frozen=True)
class RowFacts:
    """Rows of one kind. `kind`: "region" (activations that run one region of a function), "distinct" (distinct rows of
    another kind), "data" (objects of the examples), "elements" (of the lists that are reduced or returned) or
    "example". `found` rows are in the examples, of which `computed` are left when equal ones are one; room is for
    `capacity`."""

    name: str
    kind: str
    found: int
    computed: int
    capacity: int


@dataclass(frozen=True)
class WindowFacts:
    """How often a level loop computes `width` rows of a task at once."""

    width: int
    count: int


@dataclass(frozen=True)
class TaskFacts:
    """Straight-line code that a level loop runs over rows of one kind: window by window where XLA runs the loop."""

    name: str
    rows: int
    computed: int
    operations: int
    windows: tuple[WindowFacts, ...]


@dataclass(frozen=True)
class LevelFacts:
    """`rows` that one turn of the loop must compute, and rows that its windows do compute."""

    rows: int
    computed: int


@dataclass(frozen=True)
class RecurrenceFacts:
    """A level loop. `occupancy` is `rows / computed`, None without rows. `buffer_bytes`: arrays that carry rows from
    level to level, and out of the loop. `native`: machine code runs it, and computes the rows there are."""

    index: int
    rows: int
    computed: int
    occupancy: float | None
    tasks: tuple[TaskFacts, ...]
    levels: tuple[LevelFacts, ...]
    buffer_bytes: int
    native: bool = False


@dataclass(frozen=True)
class Multiplier:
    """What computes a product in windows of so many rows, `native` or `xla`, and why."""

    width: int
    by: str
    why: str


@dataclass(frozen=True)
class ProductFacts:
    """A matrix product or another contraction. Shapes are those of one row; an operand that `varies` has its own value
    in each row, so its array has an axis of rows in front. `rows` are all rows that the product runs on; inside a level
    loop they come in the windows of the task. `operation` names what holds it too, such as `scan`. `multipliers`: for
    each width of windows, where the option `products` leaves a choice."""

    operation: str
    place: LinePlace
    left: tuple[int, ...]
    left_varies: bool
    right: tuple[int, ...]
    right_varies: bool
    result: tuple[int, ...]
    rows: int | None
    task: str | None
    file: str
    line: int
    multipliers: tuple[Multiplier, ...] = ()


@dataclass(frozen=True)
class Bytes:
    """What a call holds and moves: `tables` of integers, `columns` of the examples, `shared` arguments, `results` made
    on the host, and the `buffers` of the level loops."""

    tables: int
    columns: int
    shared: int
    results: int
    buffers: int


@dataclass(frozen=True)
class BackendFacts:
    """`asked` for by the argument of `batched` or an option, `taken`, and why."""

    asked: str
    taken: str
    why: str


@dataclass(frozen=True)
class Refusal:
    """Why the function is not compiled: `kind` is the class of the error."""

    kind: str
    message: str
    cure: str
    file: str
    line: int
    column: int


@dataclass(frozen=True)
class FailedExample:
    """An example that failed while planning."""

    index: int
    kind: str
    message: str
    file: str
    line: int


@dataclass(frozen=True)
class CallFactsShown:
    """All that is known of one call. Of a function that is refused, only the first four and `texts`.

    `size_class`: the examples that the executable has room for, where capacities of rows are in `rows`."""

    function: str
    examples: int
    backend: BackendFacts
    refusal: Refusal | None
    texts: tuple[SourceText, ...]
    failed: tuple[FailedExample, ...] = ()
    strategies: tuple[Strategy, ...] = ()
    rows: tuple[RowFacts, ...] = ()
    recurrences: tuple[RecurrenceFacts, ...] = ()
    products: tuple[ProductFacts, ...] = ()
    widths: tuple[int, ...] = ()
    bytes: Bytes | None = None


def plain(fact: Any) -> Any:
    """Dicts, lists, strings and numbers alone, as JSON has them."""
    if dataclasses.is_dataclass(fact):
        return {f.name: plain(getattr(fact, f.name)) for f in dataclasses.fields(fact)}
    if isinstance(fact, tuple):
        return [plain(x) for x in fact]
    return fact


# ---- words
#
# The words that the text and the page have in common.


def label(place: LinePlace, loops: int) -> str:
    """A place in two or three words; `loops` is the number of level loops there are."""
    match place.kind:
        case "level":
            return f"level r{place.recurrence}"
        case "frame" if place.when == "after" and loops > 1:
            return f"frame after r{place.recurrence}"
        case "frame" if place.when is not None:
            return f"frame {place.when}"
        case "masked" if place.when is None and place.recurrence is not None:
            return f"masked r{place.recurrence}"
        case "nothing":
            return "-"
        case kind:
            return kind


def margin(line: SourceLine, loops: int) -> str:
    """The place of a line; a plus where other operations of it run elsewhere on the device."""
    if line.place is None:
        return ""
    on_device = {label(p, loops) for p in line.places if p.kind in ("level", "frame", "example", "masked")}
    return label(line.place, loops) + (" +" if len(on_device) > 1 else "")


def meanings(facts: CallFactsShown) -> list[tuple[str, str, str]]:
    """What the margin says: each kind of place that occurs, its word, what it means."""
    named = {"level": "level rN", "masked": "masked, rN in a level loop", "nothing": "-"}
    found = [(kind, named.get(kind, kind), PLACES[kind]) for kind in kinds(facts) if kind != "refused"]
    if any(margin(line, len(facts.recurrences)).endswith("+") for text in facts.texts for line in text.lines):
        found.append(("", "+", "other operations of the line run elsewhere"))
    return found


def row_name(rows: RowFacts) -> str:
    """What the rows are."""
    if rows.kind == "data":
        words = {"#root": "examples", "#argument": "argument"}
        name = re.sub("|".join(words), lambda found: words[found[0]], rows.name)
        return f"elements of {name.removesuffix('.#values')}" if name.endswith(".#values") else name
    return rows.name


def rows_title(facts: CallFactsShown) -> str:
    """Whether equal rows were found."""
    shared = any(r.computed < r.found for r in facts.rows)
    return "rows: equal ones are computed once" if shared else "rows"


def products_title(facts: CallFactsShown) -> str:
    """How many products are in no level loop."""
    outside = sum(p.place.kind != "level" for p in facts.products)
    return f"matrix products: {outside} of {len(facts.products)} outside the level loops"


def file_name(path: str) -> str:
    """A file without its folders."""
    return PurePath(path).name


def kinds(facts: CallFactsShown) -> list[str]:
    """The kinds of places that occur, in the order of `PLACES`."""
    found = {line.place.kind for text in facts.texts for line in text.lines if line.place is not None}
    return [kind for kind in PLACES if kind in found]


def heading(facts: CallFactsShown) -> str:
    """What was explained: examples and back end, or that it is refused."""
    if facts.refusal is not None:
        return f"{facts.function}: refused ({facts.refusal.kind})"
    backend = facts.backend
    count = f"{facts.examples:,} example{'' if facts.examples == 1 else 's'}"
    return f"{facts.function}: {count} on {backend.taken} ({backend.why})"


def rows_of(line: SourceLine) -> str:
    """The rows of the most expensive operation of a line."""
    return "" if line.place is None or line.place.rows is None else f"{line.place.rows:,}"


def place_of(text: SourceText) -> str:
    """File and first line."""
    return f"{file_name(text.file)}:{text.lines[0].number}"


def shapes(product: ProductFacts) -> str:
    """`[rows, 8] x [8, 24]`: an operand with its own value in each row has an axis of rows."""

    def one(shape: tuple[int, ...], varies: bool) -> str:
        return "[" + ", ".join([*(["rows"] if varies else []), *map(str, shape)]) + "]"

    if not product.left and not product.right:
        return f"{product.operation} to {one(product.result, product.rows is not None)}"
    both = f"{one(product.left, product.left_varies)} x {one(product.right, product.right_varies)}"
    return both if product.operation == "dot_general" else f"{product.operation} {both}"


def windows_of(product: ProductFacts, facts: CallFactsShown) -> str:
    """The rows of a product; in a level loop, how many at once and how often."""
    if product.task is None or product.place.recurrence is None:
        return "" if product.rows is None else f"{product.rows:,}"
    loop = facts.recurrences[product.place.recurrence]
    task = next(t for t in loop.tasks if t.name == product.task)
    if loop.native:
        return f"{task.rows:,}"
    return " + ".join(f"{w.count:,} of {w.width:,}" for w in task.windows) or "none"


def multipliers_of(product: ProductFacts) -> str:
    """What computes a product at each width of windows, where there is a choice: `native at 16, 8; xla at 64 (why)`."""
    by: dict[tuple[str, str], list[int]] = {}
    for m in product.multipliers:
        by.setdefault((m.by, m.why), []).append(m.width)
    words = [
        f"{name} at {', '.join(map(str, widths))}" + (f" ({why})" if name == "xla" else "")
        for (name, why), widths in by.items()
    ]
    return "; ".join(words)


def percent(part: float | None) -> str:
    """A share, never rounded to nothing or to all."""
    if part is None:
        return "-"
    if 0 < part < 0.01:
        return "under 1 %"
    return f"{min(int(part * 100 + 0.5), 99 if part < 1 else 100)} %"


def summary(loop: RecurrenceFacts) -> str:
    """A level loop in one sentence."""
    if not loop.levels:
        return "no rows, no levels"
    levels = f"{len(loop.levels):,} level{'' if len(loop.levels) == 1 else 's'}"
    rows = f"{loop.rows:,} row{'' if loop.rows == 1 else 's'}"
    if loop.native:
        return f"{rows} on {levels}; machine code, one call, no windows"
    return f"{rows} on {levels}; {loop.computed:,} computed in windows: occupancy {percent(loop.occupancy)}"


def bytes_of(facts: CallFactsShown) -> list[tuple[str, int]]:
    """What is held, and how many bytes it has."""
    if facts.bytes is None:
        return []
    b = facts.bytes
    named = [
        ("tables of integers", b.tables),
        ("columns of the examples", b.columns),
        ("shared arguments", b.shared),
        ("results made on the host", b.results),
        ("buffers of the level loops", b.buffers),
    ]
    return [(name, size) for name, size in named if size]


SHOWN_LEVELS = 16
SHOWN_FAILURES = 5


def as_text(facts: CallFactsShown) -> str:
    """The whole explanation."""
    parts = [[heading(facts)], *([f"{place_of(t)}  {t.name}", *_source(t, facts)] for t in facts.texts)]
    if facts.refusal is not None and not any(line.notes for t in facts.texts for line in t.lines):
        parts.append([facts.refusal.message, facts.refusal.cure])
    parts.append(_legend(facts))
    parts.append(_failed(facts))
    parts.append(_table("strategies", [(s.name, s.strategy, s.why) for s in facts.strategies]))
    rows = [(row_name(r), f"{r.found:,}", f"{r.computed:,}", f"{r.capacity:,}") for r in facts.rows]
    parts.append(_table(rows_title(facts), [("", "found", "computed", "capacity"), *rows] if rows else []))
    parts += [_levels(loop) for loop in facts.recurrences]
    loops = len(facts.recurrences)
    products = [
        (label(p.place, loops), shapes(p), windows_of(p, facts), f"{file_name(p.file)}:{p.line}", multipliers_of(p))
        for p in facts.products
    ]
    parts.append(_table(products_title(facts), [("", "shapes", "rows", "", ""), *products] if products else []))
    parts.append(_table("bytes", [(name, f"{size:,}") for name, size in bytes_of(facts)]))
    return "\n\n".join("\n".join(line.rstrip() for line in part if line) for part in parts if part)


def _source(text: SourceText, facts: CallFactsShown) -> Iterator[str]:
    """The lines with their margin: place, rows, number."""
    loops = len(facts.recurrences)
    margins = [margin(line, loops) for line in text.lines]
    width = max(map(len, margins), default=0)
    wide = max((len(rows_of(line)) for line in text.lines), default=0)
    digits = len(str(text.lines[-1].number))
    for word, line in zip(margins, text.lines, strict=True):
        before = f"  {word:<{width}}  {rows_of(line):>{wide}}  {line.number:>{digits}}  "
        yield f"{before}{line.text}"
        if line.columns is not None:
            first, last = line.columns
            yield " " * (len(before) + first - 1) + "^" * (last - first)
        yield from (" " * len(before) + note for note in line.notes)


def _legend(facts: CallFactsShown) -> list[str]:
    """What the words of the margin mean."""
    found = meanings(facts)
    width = max((len(word) for _, word, _ in found), default=0)
    return [f"  {word:<{width}}  {meaning}" for _, word, meaning in found]


def _failed(facts: CallFactsShown) -> list[str]:
    """Examples that failed while planning."""
    if not facts.failed:
        return []
    lines = [f"{len(facts.failed):,} of the {facts.examples:,} examples fail"]
    for f in facts.failed[:SHOWN_FAILURES]:
        where = f" at {file_name(f.file)}:{f.line}" if f.line else ""
        lines.append(f"  example {f.index}{where}: {f.kind}: {f.message}")
    return lines


def _levels(loop: RecurrenceFacts) -> list[str]:
    """A level loop: rows, occupancy, windows, and how wide its levels are."""
    lines = [f"levels of r{loop.index}", f"  {summary(loop)}"]
    for task in loop.tasks:
        windows = ", ".join(f"{w.count:,} of {w.width:,} rows" for w in task.windows) or "none"
        more = "" if loop.native else f", windows: {windows}"
        lines.append(f"  {task.name}: {task.rows:,} rows, {task.operations} operations{more}")
    widths = [f"{level.rows:,}" for level in loop.levels]
    if len(widths) > SHOWN_LEVELS:
        half = SHOWN_LEVELS // 2
        widths = [*widths[:half], "...", *widths[-half:]]
    return [*lines, "  rows on each level: " + " ".join(widths)] if widths else lines


def _table(title: str, rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns side by side, numbers to the right."""
    if not rows:
        return []
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    number = [all(_is_number(row[k]) for row in rows[1:] or rows) for k in range(len(rows[0]))]
    cells = ([f"{c:>{w}}" if n else f"{c:<{w}}" for c, w, n in zip(row, widths, number, strict=True)] for row in rows)
    return [title, *("  " + "  ".join(row) for row in cells)]


def _is_number(cell: str) -> bool:
    return cell.replace(",", "").isdigit()


# ---- written
#
# Functions as they are written: their lines, and the lines on which something is done.


Where = tuple[str, int]
"""A line: file and number."""


@dataclass(frozen=True)
class WrittenLines:
    """The lines `first` to `last` of a file. `statements`: the lines of each, without those of the body inside it."""

    name: str
    file: str
    first: int
    last: int
    statements: tuple[tuple[int, int], ...]

    def lines(self) -> list[tuple[int, str]]:
        """Numbers and texts, without the indentation that they all have."""
        found = [linecache.getline(self.file, n).rstrip().expandtabs() for n in range(self.first, self.last + 1)]
        indent = self.indent
        return [(n, text[indent:]) for n, text in enumerate(found, self.first)]

    @property
    def indent(self) -> int:
        """How many blanks stand before all lines."""
        texts = (linecache.getline(self.file, n).expandtabs() for n in range(self.first, self.last + 1))
        return min((len(t) - len(t.lstrip()) for t in texts if t.strip()), default=0)

    def holds(self, other: WrittenLines) -> bool:
        """Is the other text a part of this one?"""
        return self.file == other.file and self.first <= other.first and other.last <= self.last


def written(function: Callable[..., Any]) -> WrittenLines | None:
    """A Python function as it is written; None where its text is not available."""
    function = inspect.unwrap(getattr(function, "__autobatch_function__", function))
    function = getattr(function, "__func__", function)
    if not inspect.isfunction(function):
        return None
    try:
        source = source_of(function)
    except UnsupportedError:
        return None
    return _described(source.node, source.file, source.name)


def around(place: Span) -> WrittenLines | None:
    """The innermost function around a place; None where there is none."""
    nodes = [n for n in ast.walk(_parsed(place.file)) if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))]
    found = [n for n in nodes if _first(n) <= place.line <= (n.end_lineno or n.lineno)]
    inner = max(found, key=_first, default=None)
    return None if inner is None else _described(inner, place.file, inner.name)


def outermost(found: Iterable[WrittenLines | None]) -> list[WrittenLines]:
    """Every text once, without those that lie inside another one."""
    kept: list[WrittenLines] = []
    for text in found:
        if text is not None and not any(other.holds(text) for other in kept):
            kept = [other for other in kept if not text.holds(other)] + [text]
    return kept


@lru_cache(maxsize=64)
def _parse(file: str, text: str) -> ast.Module:
    try:
        return ast.parse(text, file)
    except SyntaxError:
        return ast.Module([], [])


def _parsed(file: str) -> ast.Module:
    return _parse(file, "".join(linecache.getlines(file)))


def _first(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> int:
    decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
    return min([node.lineno, *(d.lineno for d in decorators)])


def _described(node: Any, file: str, name: str) -> WrittenLines:
    body = [node.body] if isinstance(node, ast.Lambda) else node.body
    statements = tuple(sorted({extent for part in body for extent in _statements(part)}))
    return WrittenLines(name.rpartition("<locals>.")[2], file, _first(node), node.end_lineno or node.lineno, statements)


def _statements(node: ast.AST) -> Iterator[tuple[int, int]]:
    """Where each statement stands, inner ones too; texts that document, and names of other scopes, do nothing."""
    documents = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    declares = isinstance(node, ast.Global | ast.Nonlocal)
    if isinstance(node, ast.match_case):
        yield node.pattern.lineno, node.body[0].lineno - 1
    elif isinstance(node, ast.expr) or (isinstance(node, ast.stmt) and not documents and not declares):
        inner = getattr(node, "body", None)
        last = inner[0].lineno - 1 if isinstance(inner, list) else node.end_lineno or node.lineno
        yield node.lineno, max(node.lineno, last)
    if isinstance(node, ast.stmt | ast.match_case):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt | ast.match_case):
                yield from _statements(child)
