"""What an explanation says, as plain data: the one source of its text, of its page and of `Explanation.data`.

The fields here are the keys of `Explanation.data`, nested in the same way; tuples become lists. Places are named by the
words of `PLACES`. Bytes are bytes, rows are rows: nothing is rounded or shortened here.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

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
