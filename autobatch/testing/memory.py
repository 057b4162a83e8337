"""Random programs that make data of their own: lists, dicts, objects and strings, which they change, alias and read.

What they do with them stands in tables (`memory.py`); here rows are drawn and their names filled in.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from hypothesis import strategies as st

from autobatch.testing.writing import COUNT, INTEGER, NUMBER, VECTOR, DrawnScope, Lines, StatementWriter

# ---- containers
#
# What random programs do with data of their own, as rows of Python text: a table for each kind of container.
#
# Names in braces are drawn where a row is used (`memory.py`):
#
#     {v} {w}      the container, and one of the same kind: the same one where there is no other
#     {x} {y}      a number from -1 to 1; any number
#     {a}          three numbers from -1 to 1
#     {i} {k}      an integer; one that structure decides
#     {b} {B}      a condition on structure; one that computed numbers may decide
#     {n}          a variable that holds a number
#     {t}          a node of the data
#     {e} {f} {g}  new names
#     {numbers}    a container of that kind: one that there is, or a new one
#     {its_cell}   a variable that holds a container of that kind, to be assigned; a new name where there is none


@dataclass(frozen=True)
class ContainerLoop:
    """A loop over a container, and the kinds of the names that its head assigns. `changes`: the body may change the
    container, which it does not walk through itself."""

    head: str
    names: Mapping[str, str]
    changes: bool = False


@dataclass(frozen=True)
class ContainerKind:
    """How containers of a kind are made, changed and read."""

    made: tuple[str, ...]
    changes: tuple[str, ...]
    computed: tuple[str, ...] = ()
    """Changes for programs where computed numbers may decide how many elements there are."""
    numbers: tuple[str, ...] = ()
    vectors: tuple[str, ...] = ()
    integers: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    loops: tuple[ContainerLoop, ...] = ()
    fails: tuple[str, ...] = ()
    """Numbers that some examples do not have."""


NUMBERS = ContainerKind(
    made=(
        "[{x}, {y}]",
        "[{x}] * ({i} % 3 + 1)",
        "[]",
        "list({t}.xs)",
        "[{e}.x * {y} for {e} in {t}.kids]",
        "{t}.xs + [{x}]",
        "[{y}, {y}, {y}]",
    ),
    changes=(
        "{v}.append({x})",
        "{v}.append({x})",
        "{v}.insert({i} % 3, {x})",
        "{v}.insert(0, {x})",
        "{v}.insert(-1, {x})",
        "{v}.extend([{x}, {y}])",
        "{v}.extend({w}[:2])",
        "{v} += [{x}]",
        "{v}.reverse()",
        "{v}.sort()",
        "{v}.sort(key=lambda {e}: -{e})",
        "if {v}:\n    {n} = {n} * 0.5 + {v}.pop()",
        "if {v}:\n    {n} = jnp.tanh({n} + {v}.pop(0))",
        "if {v}:\n    {n} = jnp.tanh({n} - {v}.pop({i} % len({v})))",
        "if len({v}) > 1:\n    {v}[-1] = {v}[-2] * 0.5 + {x}",
        "if len({v}) > 1:\n    {v}[0], {v}[-1] = {v}[-1], {v}[0]",
        "if len({v}) > 2:\n    {v}[1:3] = [{x}, {v}[0], {x}]",
        "if {v}:\n    {v}[{i} % len({v})] = {x}",
        "if {v}:\n    {v}[{i} % len({v})] += {x}",
        "if {v}:\n    {v}[-1 - {i} % len({v})] = {x}",
        "if {v}:\n    del {v}[0]",
        "del {v}[2:]",
        "{v}[:1] = []",
        "{v}[1:2] = [{x}, {x}]",
        "{v} = {v} + [{x}]",
        "{v} = [{x}] + {v}[:3]",
        "{v} = {v}[-3:]",
        "{v} = {v}[1:]",
        "{v} = {v}[::-1]",
        "{v} = {v}[:2] * 2",
        "{v} = {w}",
        "{v} = {v}.copy()",
        "{v} = list(reversed({v}))",
        "{v} = sorted({v}, reverse=True)",
        "{v} = [jnp.tanh({e} + {y}) for {e} in {v}]",
        "{v} = [{e} * {y} for {e} in {v} if {b}]",
        "{v} = [jnp.tanh({e} * {f}) for {e}, {f} in zip({v}, {w})]",
        "while len({v}) > 3:\n    {v}[0] = jnp.tanh({v}[0] + {v}.pop())",
        "while len({v}) < 3:\n    {v}.append({x})",
        "{v}.clear()",
        "if {v}:\n    {v} = {v} + [{v}.pop() * 0.5 + {x}]",
        "if {v}:\n    {n} = jnp.tanh({n} + push({v}, {v}.pop(0) + {x}))",
        "if {v}:\n    {n} = jnp.tanh({n} + max([{v}, {v}.pop()][0], default={x}))",
        "{n} = jnp.tanh({n} + push({v}, {x}))",
        "gather({t}, {v}, {y})",
        "{v} = doubled({v})",
        "for {e} in {t}.xs:\n    if len({v}) < 4:\n        {v}.append({e})",
        "for {e} in {v}:\n    {n} = jnp.tanh({n} + {e})\n    if len({v}) < 5:\n        {v}.append({x})",
        "for {f}, {e} in enumerate({v}):\n    if {f} + 1 < len({v}):\n        {v}[{f} + 1] += {e}",
        "for {e} in reversed({v}):\n    {n} = jnp.tanh({n} + {e})\n    if len({w}) > 1:\n        {w}.pop(0)",
    ),
    computed=(
        "{v} = [{e} for {e} in {v} if {e} > 0.1037]",
        "if {B}:\n    {v}.append({x})\nelif {v}:\n    {v}.pop()",
        "if {B} and {v}:\n    {n} = jnp.tanh({n} + {v}.pop())",
        "if {B}:\n    {v} = {w}",
        "while {v} and {v}[-1] > 0.2113:\n    {n} = jnp.tanh({n} + {v}.pop())",
        "for {e} in {t}.xs:\n    if not {v} or {e} * {y} > {v}[-1] + 0.0371:\n        {v}.append({e})",
        "for {e} in {v}:\n    if {e} > 0.1037 and len({w}) < 6:\n        {w}.append({n} + {e} * 0.5)",
        "for {f}, {e} in enumerate({v}):\n    if {e} < 0.1037:\n        del {v}[{f}]\n        {n} = {e}",
    ),
    numbers=(
        "sum({v})",
        "({v}[-1] if {v} else {y})",
        "({v}[0] if {v} else {y})",
        "({v}[{i} % len({v})] if {v} else 0.5)",
        "({v}[len({v}) // 2] if {v} else 0.5)",
        "max({v}, default={y})",
        "min([0.5, *{v}])",
        "sum([{e} * {y} for {e} in {v}])",
        "sum([{e} * {f} for {f}, {e} in enumerate({v})])",
        "sum([{e} * {f} for {e}, {f} in zip({v}, {w})])",
        "sum([{e} * {f} for {e}, {f} in zip({v}, {v}[1:])])",
        "sum({v}[1:])",
        "sum({v}[::2])",
        "sum({v}[-2:])",
        "sum(sorted({v})[:2])",
        "len({v}) * {y}",
    ),
    integers=("len({v})", "len({v}[1:])"),
    conditions=("len({v}) > 1", "not {v}", "bool({v})", "{v} is {w}"),
    loops=(
        ContainerLoop("for {e} in {v}:", {"e": NUMBER}),
        ContainerLoop("for {e} in list({v}):", {"e": NUMBER}, changes=True),
        ContainerLoop("for {e} in reversed({v}):", {"e": NUMBER}),
        ContainerLoop("for {f}, {e} in enumerate({v}):", {"e": NUMBER, "f": INTEGER}),
        ContainerLoop("for {f} in range(len({v})):", {"f": INTEGER}),
        ContainerLoop("for {e}, {f} in zip({v}, {w}[1:]):", {"e": NUMBER, "f": NUMBER}),
    ),
    fails=("{v}[1]", "{v}.pop()", "max({v})", "{v}[{i} % 4]"),
)
INTEGERS = ContainerKind(
    made=("[{i} % 5, 1]", "list({t}.ns)", "[]", "[0] * 3", "list(range({i} % 4))", "[{e}.n for {e} in {t}.kids]"),
    changes=(
        "{v}.append({i} % 7)",
        "if {i} % 7 not in {v}:\n    {v}.append({i} % 7)",
        "if {v}:\n    {v}[0] = ({v}[-1] + {i}) % 5",
        "if {v}:\n    {v}[{i} % len({v})] += 1",
        "{v}.sort()",
        "{v}.reverse()",
        "if {v}:\n    {n} = {n} * 0.5 + {v}.pop() / 8",
        "if {i} in {v}:\n    {v}.remove({i})",
        "{v} = [({e} + {i}) % 5 for {e} in {v}]",
        "{v} = [{e} for {e} in {v} if {e} % 2 == 0]",
        "{v} = {w}[:3]",
        "{v} = sorted({v}, key=lambda {e}: (-{e}) % 3)",
        "{v}.insert(0, len({v}))",
        "{v} = sorted(set({v}))",
    ),
    numbers=("sum({v}) / 8", "({v}[-1] / 4 if {v} else 0.25)", "float(max({v}, default=1))"),
    integers=("sum({v}) % 11", "({v}[-1] if {v} else 2)", "{v}.count(1)", "({v}.index({i}) if {i} in {v} else 0)"),
    conditions=("{i} in {v}", "{v} == [1, 2]", "{v} < {w}", "any({e} > 1 for {e} in {v})"),
    loops=(
        ContainerLoop("for {e} in {v}:", {"e": INTEGER}),
        ContainerLoop("for {e} in sorted({v}):", {"e": INTEGER}),
        ContainerLoop("for {f}, {e} in enumerate({v}):", {"e": INTEGER, "f": INTEGER}),
    ),
    fails=("1.0 / {v}[0]", "float({v}.index(1))"),
)
VECTORS = ContainerKind(
    made=("[{a}, p['b']]", "[{a}]", "[{e}.v for {e} in {t}.kids]", "[]"),
    changes=(
        "{v}.append({a})",
        "{v}.insert(0, {a})",
        "if {v}:\n    {v}[-1] = jnp.tanh({v}[0] + {a})",
        "if len({v}) > 1:\n    {e} = {v}.pop()\n    {v}[-1] = jnp.tanh({v}[-1] + {e})",
        "{v} = [jnp.sin({e} * {y}) for {e} in {v}]",
        "{v} = {v}[1:]",
        "{v} = {w}",
    ),
    numbers=("sum({v}, p['b'])[0]", "({v}[-1] @ {v}[0] if {v} else {y})"),
    vectors=("sum({v}, {a})", "({v}[-1] if {v} else p['b'])", "({v}[{i} % len({v})] if {v} else {a})"),
    integers=("len({v})",),
    conditions=("len({v}) > 1",),
    loops=(ContainerLoop("for {e} in {v}:", {"e": VECTOR}),),
)
PAIRS = ContainerKind(
    made=("[({x}, {i} % 5)]", "[]", "[({e}.x, {e}.n) for {e} in {t}.kids]", "list(zip({t}.xs, {t}.ns))"),
    changes=(
        "{v}.append(({x}, {i} % 5))",
        "{v}.insert(0, ({x}, len({v})))",
        "if {v}:\n    {e}, {f} = {v}.pop()\n    {n} = jnp.tanh({n} + {e} * {f})",
        "if {v}:\n    {e}, {f} = {v}[0]\n    {v}[-1] = (jnp.tanh({e} + {x}), {f} % 3)",
        "{v} = sorted({v}, key=lambda {e}: {e}[1])",
        "{v} = [({e} * 0.5, ({f} + 1) % 5) for {e}, {f} in {v}]",
        "{v} = [({e}, {f}) for {e}, {f} in {v} if {f} != 2]",
        "{v} = {w}[-2:]",
        "{v}.reverse()",
    ),
    computed=("{v} = sorted({v}, key=lambda {e}: {e}[0])", "if {B}:\n    {v}.append(({x}, {i} % 5))"),
    numbers=(
        "sum([{e} * {f} for {e}, {f} in {v}])",
        "({v}[-1][0] * {v}[0][1] if {v} else 0.5)",
        "min([{e} for {e}, {f} in {v}], default={y})",
    ),
    integers=("sum([{f} for {e}, {f} in {v}]) % 7", "len({v})"),
    conditions=("len({v}) > 1", "any([{f} == 1 for {e}, {f} in {v}])"),
    loops=(
        ContainerLoop("for {e}, {f} in {v}:", {"e": NUMBER, "f": INTEGER}),
        ContainerLoop("for {g}, ({e}, {f}) in enumerate({v}):", {"e": NUMBER, "f": INTEGER, "g": INTEGER}),
    ),
)
ROWS = ContainerKind(
    made=(
        "[[{x}], [{y}]]",
        "[]",
        "[[{x}] for {e} in {t}.kids]",
        "[list({e}.xs) for {e} in {t}.kids]",
        "[[] for {e} in range(2)]",
    ),
    changes=(
        "{v}.append([{x}])",
        "{v}.append([{x}, {y}])",
        "{v}.append({numbers})",
        "{v}.append([])",
        "{v} = [{e} + [{x}] for {e} in {v}]",
        "{v} = [{e}[1:] for {e} in {v}]",
        "if {v}:\n    {e} = {v}.pop()\n    {n} = jnp.tanh({n} + sum({e}))",
        "if {v}:\n    {v}[0] = [{x}, *{v}[-1][:2]]",
        "{v} = [{numbers}, {numbers}]",
        "{v}.reverse()",
    ),
    numbers=(
        "sum([sum({e}) for {e} in {v}])",
        "sum([{f} * {y} for {e} in {v} for {f} in {e}])",
        "(sum({v}[-1]) if {v} else {y})",
        "sum([{e}[0] for {e} in {v} if {e}])",
        "({v}[0][0] if {v} and {v}[0] else 0.5)",
    ),
    integers=("len({v})", "sum([len({e}) for {e} in {v}])"),
    conditions=("any([len({e}) > 1 for {e} in {v}])", "len({v}) > 1"),
    loops=(ContainerLoop("for {e} in {v}:", {"e": "numbers"}),),
)
GROWN = ContainerKind(
    made=("[[{x}], [{y}]]", "[[] for {e} in range(3)]", "[[{x}] * 2]"),
    changes=(
        "{v}[{k} % len({v})].append({x})",
        "{v}[0].append({x})",
        "if {v}[0]:\n    {v}[0][-1] = {x}",
        "if {v}[-1]:\n    {n} = jnp.tanh({n} + {v}[-1].pop())",
        "{v}[-1].extend([{x}, {y}])",
        "{v}[0] = {v}[-1]",
        "{v}.append({numbers})",
        "{its_numbers} = {v}[0]",
        "{v}[-1] = {numbers}",
        "for {e} in {v}:\n    {e}.append({x})",
    ),
    numbers=ROWS.numbers,
    loops=ROWS.loops,
)
"""Lists of lists whose inner lists are changed where they stand."""
QUEUE = ContainerKind(
    made=("collections.deque([{x}, {y}])", "collections.deque()", "collections.deque({t}.xs)"),
    changes=(
        "{v}.append({x})",
        "{v}.appendleft({x})",
        "if {v}:\n    {n} = jnp.tanh({n} + {v}.popleft())",
        "if {v}:\n    {n} = jnp.tanh({n} - {v}.pop())",
        "{v}.extend([{x}, {y}])",
        "while len({v}) > 2:\n    {v}.append(jnp.tanh({v}.popleft() * {v}.popleft()))",
    ),
    numbers=("sum({v})", "({v}[0] if {v} else {y})", "({v}[-1] if {v} else {y})"),
    integers=("len({v})",),
    conditions=("not {v}", "len({v}) > 1"),
    loops=(ContainerLoop("for {e} in {v}:", {"e": NUMBER}),),
)
TABLE = ContainerKind(
    made=("{{}}", "{{0: {x}}}", "{{{k} % 4: {x}, 5: {y}}}", "{{{e}.n: {e}.x for {e} in {t}.kids}}"),
    changes=(
        "{v}[{k} % 4] = {x}",
        "{v}[{k} % 4] = {v}.get({k} % 4, 0.25) * 0.5 + {x}",
        "if {k} % 4 in {v}:\n    {v}[{k} % 4] = jnp.tanh({v}[{k} % 4] + {x})\nelse:\n    {v}[{k} % 4] = {y}",
        "if {k} % 4 in {v}:\n    del {v}[{k} % 4]",
        "{n} = {n} * 0.5 + {v}.pop({k} % 4, 0.5)",
        "{n} = {n} * 0.5 + {v}.setdefault({k} % 4, {x})",
        "{v}.update({{1: {x}, {k} % 4: {x}}})",
        "{v} = {w}",
        "{v} = dict({v})",
        "{v} = {{{e}: {f} * 0.5 for {e}, {f} in {v}.items()}}",
        "for {e} in range({k} % 4):\n    {v}[{e}] = {v}.get({e} - 1, {y}) * 0.5 + {x}",
        "{v}.clear()",
    ),
    numbers=(
        "sum({v}.values())",
        "sum([{e} * {f} for {e}, {f} in {v}.items()])",
        "{v}.get({k} % 4, {y})",
        "({v}[{k} % 4] if {k} % 4 in {v} else 0.5)",
        "(list({v}.values())[-1] if {v} else {y})",
        "sum([{v}[{e}] * {e} for {e} in {v}])",
        "sum([{v}[{e}] * 0.5 for {e} in sorted({v})][:2])",
    ),
    integers=("len({v})", "sum({v}.keys()) % 5", "max({v}, default=1)"),
    conditions=("{k} % 4 in {v}", "not {v}", "{v} is {w}"),
    loops=(
        ContainerLoop("for {e}, {f} in {v}.items():", {"e": INTEGER, "f": NUMBER}),
        ContainerLoop("for {e} in {v}:", {"e": INTEGER}),
        ContainerLoop("for {e} in sorted({v}):", {"e": INTEGER}, changes=True),
        ContainerLoop("for {f} in {v}.values():", {"f": NUMBER}),
    ),
    fails=("{v}[{k} % 4]", "{v}[{k}]", "{v}.pop({k} % 4)"),
)
NAMED = ContainerKind(
    made=('{{"a": {x}, "b": {y}}}', "{{}}", "{{{t}.tag: {x}}}", '{{"a": {x}, "b": {x}, "c": 0.25}}'),
    changes=(
        "{v}[{t}.tag] = {x}",
        '{v}["a"] = {x}',
        "{v}[{t}.tag] = {v}.get({t}.tag, 0.5) * 0.5 + {x}",
        '{v}[{t}.tag + "b"] = {x}',
        "for {e} in {t}.kids:\n    {v}[{e}.tag] = {v}.get({e}.tag, {y}) * 0.5 + {x}",
        '{v}.pop("a", None)',
    ),
    numbers=("sum({v}.values())", "{v}.get({t}.tag, {y})", "sum([{f} * len({e}) for {e}, {f} in {v}.items()])"),
    integers=("len({v})", 'len("".join({v}))'),
    conditions=("{t}.tag in {v}", '"b" in {v}'),
    loops=(ContainerLoop("for {e}, {f} in {v}.items():", {"e": "text", "f": NUMBER}),),
    fails=("{v}[{t}.tag]",),
)
SPANS = ContainerKind(
    made=("{{}}", "{{(0, 1): {x}}}", "{{({e}.n, {f}): {y} for {f}, {e} in enumerate({t}.kids)}}"),
    changes=(
        "{v}[{k} % 3, 1] = {x}",
        "{v}[{t}.n, len({t}.kids)] = {x}",
        "for {e} in range(2):\n    {v}[{e}, {k} % 3] = {v}.get(({e} - 1, {k} % 3), {y}) * 0.5 + {x}",
        "if (0, 1) in {v}:\n    {v}[0, 1] = jnp.tanh({v}[0, 1] + {x})",
    ),
    numbers=(
        "sum({v}.values())",
        "{v}.get(({k} % 3, 1), {y})",
        "sum([({e} - {g}) * {f} for ({e}, {g}), {f} in {v}.items()])",
    ),
    conditions=("({k} % 3, 1) in {v}",),
    loops=(ContainerLoop("for ({e}, {g}), {f} in {v}.items():", {"e": INTEGER, "g": INTEGER, "f": NUMBER}),),
    fails=("{v}[0, 1]",),
)
SEEN = ContainerKind(
    made=("set()", "{{{k} % 4, 2}}", "set({t}.ns)", "{{{e}.n for {e} in {t}.kids}}"),
    changes=(
        "{v}.add({k} % 4)",
        "{v}.discard({k} % 4)",
        "if {k} % 4 not in {v}:\n    {v}.add({k} % 4)\n    {n} = jnp.tanh({n} + {x})",
        "{v} = {v} | {w}",
        "{v} = {v} - {{1}}",
        "{v}.update([{k} % 4, 3])",
    ),
    numbers=("len({v}) * {y}", "sum([{e} * 0.25 for {e} in sorted({v})])"),
    integers=("len({v})", "max({v}, default=0)"),
    conditions=("{k} % 4 in {v}", "{v} <= {w}"),
    loops=(ContainerLoop("for {e} in sorted({v}):", {"e": INTEGER}, changes=True),),
)
TALLY = ContainerKind(
    made=("collections.defaultdict(float)", "collections.Counter({t}.ns)", "collections.Counter()"),
    changes=("{v}[{k} % 4] += {k} % 3", "for {e} in {t}.ns:\n    {v}[{e}] += 1", "{v}[{t}.n] += 1"),
    numbers=("sum({v}.values()) / 8", "{v}[{k} % 4] * {y}", "sum([{e} * {f} for {e}, {f} in {v}.items()]) / 8"),
    conditions=("{k} % 4 in {v}",),
    loops=(ContainerLoop("for {e} in {v}:", {"e": INTEGER}),),
)
CELL = ContainerKind(
    made=("Cell({x}, {k} % 5)", "Cell({y})", "Cell({x}, 1, Cell({y}))"),
    changes=(
        "{v}.value = jnp.tanh({v}.value + {x})",
        "{v}.value += {x}",
        "{v}.n = ({v}.n + {k}) % 5",
        "{v}.next = Cell({x}, {k} % 5)",
        "{v} = Cell({x}, {k} % 5, {v})",
        "{v} = Cell({x})",
        "{v} = {w}",
        "if {v}.next is not None:\n    {v} = {v}.next",
        "if {v}.next is not None:\n    {v}.next.value = {x}",
        "{v}.next = None",
        "{v} = replace({v}, value={x})",
        "shift({v}, {x})",
        "for {e} in {t}.kids:\n    {v} = Cell({e}.x, {e}.n, {v})",
    ),
    computed=("if {v}.value > 0.2113:\n    {v}.value = {x}", "{v} = {v} if {B} else {w}"),
    numbers=("{v}.value", "({v}.next.value if {v}.next is not None else {y})", "walk({v})", "{v}.value * {v}.n"),
    integers=("{v}.n", "length({v})"),
    conditions=("{v}.next is None", "{v}.n > 1", "{v} is {w}"),
    fails=("1.0 / {v}.n",),
)
CELLS = ContainerKind(
    made=("[Cell({x})]", "[]", "[{cell}, {cell}]", "[Cell({e}.x, {e}.n) for {e} in {t}.kids]"),
    changes=(
        "{v}.append(Cell({x}, {k} % 5))",
        "{v}.append({cell})",
        "if {v}:\n    {v}[-1].value = {x}",
        "if {v}:\n    {v}[{k} % len({v})].value += {x}",
        "for {e} in {v}:\n    {e}.value = jnp.tanh({e}.value + {y})",
        "if {v}:\n    {e} = {v}.pop()\n    {n} = jnp.tanh({n} + {e}.value)",
        "if len({v}) > 1:\n    {v}[0].next = {v}[-1]",
        "{v} = sorted({v}, key=lambda {e}: {e}.n)",
        "{v} = {v} + {w}[:2]",
        "{v} = [{e} for {e} in {v} if {e}.n < 2]",
        "{v} = [Cell({e}.value * 0.5, {e}.n, {e}) for {e} in {v}]",
        "if {v}:\n    {its_cell} = {v}[{k} % len({v})]",
        "if {v}:\n    {its_cell} = {v}.pop(0)",
        "if {v}:\n    {v}[-1] = {cell}",
        "{v}.insert(0, {cell})",
        "{v} = [{cell} for {e} in {t}.kids]",
        "{v} = {w}[1:]",
        "{v} = {v}[:3] * 2",
        "{v} = {w}",
    ),
    computed=("if {B}:\n    {v}.append(Cell({x}))", "if {v} and {B}:\n    {v}[0] = {v}[-1]"),
    numbers=(
        "sum([{e}.value for {e} in {v}])",
        "({v}[-1].value if {v} else {y})",
        "sum([walk({e}) for {e} in {v}])",
    ),
    integers=("len({v})", "sum([{e}.n for {e} in {v}]) % 7"),
    conditions=("len({v}) > 1", "any([{e}.n > 1 for {e} in {v}])"),
    loops=(
        ContainerLoop("for {e} in {v}:", {"e": "cell"}),
        ContainerLoop("for {f}, {e} in enumerate({v}):", {"e": "cell", "f": INTEGER}),
    ),
)
TEXT = ContainerKind(
    made=("{t}.tag", "WORDS[{k} % 4]", '""', '"ab"', '"".join([{e}.tag for {e} in {t}.kids])', "str({k})"),
    changes=(
        "{v} = {v}[-3:] + {t}.tag",
        '{v} = {v}[:3] + ("b" if {b} else "c")',
        "{v} = {v}[1:]",
        "{v} = {v}[::-1]",
        '{v} = {v}.replace("a", "c")',
        "{v} = WORDS[{k} % 4]",
        "{v} = {w}",
    ),
    numbers=(
        "sum([ord({e}) / 97 for {e} in {v}])",
        '{{"a": {x}, "b": {y}}}.get({v}[:1], 0.25)',
        "len({v}) * {y}",
        '({x} if {v} == "ab" else {y})',
    ),
    integers=(
        "len({v})",
        '{v}.count("a")',
        '{v}.find("b")',
        'sum([{e} == "a" for {e} in {v}])',
        "(ord({v}[0]) % 7 if {v} else 0)",
    ),
    conditions=(
        '{v} == "a"',
        '"a" in {v}',
        '{v} < "b"',
        '{v}.startswith("a")',
        "{v} == {w}",
        "not {v}",
        '({v} and {v}[-1] == "b")',
    ),
    loops=(
        ContainerLoop("for {e} in {v}:", {"e": "text"}, changes=True),
        ContainerLoop("for {f}, {e} in enumerate({v}):", {"e": "text", "f": INTEGER}),
    ),
    fails=("ord({v}[0]) / 97", '{{"a": {x}, "b": {y}}}[{v}[:1]]'),
)

FEATURES: Mapping[str, Mapping[str, ContainerKind]] = {
    "lists": {"numbers": NUMBERS, "integers": INTEGERS, "vectors": VECTORS, "pairs": PAIRS, "rows": ROWS},
    "inner": {"grown": GROWN},
    "queues": {"queue": QUEUE},
    "dicts": {"table": TABLE, "named": NAMED, "spans": SPANS},
    "tallies": {"seen": SEEN, "tally": TALLY},
    "objects": {"cell": CELL, "cells": CELLS},
    "strings": {"text": TEXT},
}
"""Kinds of containers by what a program is asked to make."""
KINDS = {name: kind for kinds in FEATURES.values() for name, kind in kinds.items()}


HEADER = """
import collections
from dataclasses import replace

from autobatch.testing.programs import Cell

WORDS = ("abca", "bb", "c", "")


def push(out, x):
    out.append(x * 0.5)
    return x + len(out)


def gather(t, out, x):
    out.append(jnp.tanh(t.x * x))
    for c in t.kids:
        gather(c, out, x)


def doubled(out):
    return [jnp.tanh(2 * e) for e in out]


def shift(cell, x):
    cell.value, cell.n = jnp.tanh(cell.value * 0.5 + x), (cell.n + 1) % 5


def walk(cell):
    total = 0.0
    for _ in range(4):
        if cell is not None:
            total, cell = total * 0.5 + cell.value, cell.next
    return total


def length(cell):
    n = 0
    while cell is not None and n < 9:
        n, cell = n + 1, cell.next
    return n

"""
_HIDDEN = {"numbers": {"rows", "grown"}, "rows": {"numbers"}}
"""What may hold a container that a loop walks through, under another name: nothing is changed there meanwhile."""


class _DrawnNames(dict[str, str]):
    """What stands for a name in braces: drawn where it is first met, then the same."""

    def __init__(self, draw: Callable[[str], str], **known: str) -> None:
        super().__init__(known)
        self.draw = draw

    def __missing__(self, field: str) -> str:
        self[field] = self.draw(field)
        return self[field]


class MemoryWriter(StatementWriter):
    """Draws programs that make containers. `features`: of which kinds (`FEATURES`). `free`: those that code may change
    in code that a data-dependent test runs."""

    def __init__(
        self,
        draw: Callable[[st.SearchStrategy[Any]], Any],
        numeric: bool,
        recursion: bool,
        small: bool,
        features: Collection[str],
        free: Collection[str],
    ) -> None:
        super().__init__(draw, numeric, recursion, small)
        self.header += HEADER
        self.kinds = [kind for feature in features for kind in FEATURES[feature]]
        self.free = {kind for feature in free for kind in FEATURES[feature]}

    # ---- statements

    def statement(self, s: DrawnScope, depth: int) -> Lines:
        held = self.held(s)
        if not held and not s.loops and not s.masked and self.chance(2):
            return self.made(s, depth)
        if held and not self.chance(3):
            forms = [self.changed, self.changed, self.changed, self.read, self.made]
            found: Lines = self.pick(forms + ([self.walked, self.guarded] if depth else []))(s, depth)
            return found
        return super().statement(s, depth)

    def statements(self, s: DrawnScope, count: int, depth: int) -> Lines:
        """At least one container, where a function begins."""
        lines: list[str] = []
        if not self.held(s) and not s.loops and not s.masked and len(s.nodes) == 1:
            lines, s = self.made(s, depth)
        more, s = super().statements(s, count + bool(lines), depth)
        return lines + more, s

    def held(self, s: DrawnScope) -> list[str]:
        """The containers that code may change here."""
        return [v for v, kind in s.variables.items() if kind in KINDS and (kind in self.free or not s.masked)]

    def made(self, s: DrawnScope, depth: int) -> Lines:
        kind = self.pick(self.kinds)
        name = self.fresh(kind)
        return [f"{name} = {self.row(KINDS[kind].made, s)}"], s.with_(name, kind)

    def changed(self, s: DrawnScope, depth: int) -> Lines:
        name = self.pick(self.held(s))
        kind = KINDS[s.variables[name]]
        return self.row(kind.changes + (kind.computed if self.numeric else ()), s, name).split("\n"), s

    def read(self, s: DrawnScope, depth: int) -> Lines:
        """A variable becomes what a container says; perhaps an example fails there."""
        name, target = self.pick(self.held(s)), self.pick(s.of(NUMBER))
        kind = KINDS[s.variables[name]]
        forms = kind.fails if kind.fails and self.chance(8) else kind.numbers
        return [f"{target} = jnp.tanh({target} + {self.row(forms or ('0.5',), s, name)})"], s

    def walked(self, s: DrawnScope, depth: int) -> Lines:
        """A loop over a container."""
        name = self.pick(self.held(s))
        kind = s.variables[name]
        if not KINDS[kind].loops or s.loops > 1:
            return self.changed(s, depth)
        loop = self.pick(KINDS[kind].loops)
        names = _DrawnNames(partial(self.drawn, s, name, 1), v=name)
        head = loop.head.format_map(names)
        computed = self.numeric and kind in self.free
        hidden = {kind} | _HIDDEN.get(kind, set())
        seen = {v: k for v, k in s.variables.items() if loop.changes or k not in hidden}
        inner = replace(s, variables=seen).inside().under(computed)
        for field, of in loop.names.items():
            inner = inner.with_(names[field], COUNT if of == INTEGER and computed else of)
        return self.body(head, s, inner, depth)

    def guarded(self, s: DrawnScope, depth: int) -> Lines:
        """Changes behind a condition that a container decides."""
        name = self.pick(self.held(s))
        conditions = KINDS[s.variables[name]].conditions
        if not conditions:
            return self.changed(s, depth)
        computed = self.numeric and s.variables[name] in self.free
        lines = [f"if {self.row(conditions, s, name)}:", *self.block(s.under(computed), depth)]
        if self.chance(2):
            lines += ["else:", *self.block(s.under(computed), depth)]
        return lines, s

    def results(self, s: DrawnScope) -> list[str]:
        """Containers as results, in programs where structure decides how many elements they have."""
        if self.numeric or not self.chance(3):
            return []
        return [name for name, kind in s.variables.items() if kind in KINDS and kind not in ("seen", "queue")]

    # ---- expressions that read containers

    def number(self, s: DrawnScope, depth: int = 2) -> str:
        return self.of_containers("numbers", s, depth) or super().number(s, depth)

    def vector(self, s: DrawnScope, depth: int = 2) -> str:
        return self.of_containers("vectors", s, depth) or super().vector(s, depth)

    def integer(self, s: DrawnScope, depth: int = 2) -> str:
        return self.of_containers("integers", s, depth, structural=True) or super().integer(s, depth)

    def count(self, s: DrawnScope, depth: int = 2) -> str:
        return self.of_containers("integers", s, depth) or super().count(s, depth)

    def structural(self, s: DrawnScope, depth: int = 1) -> str:
        return self.of_containers("conditions", s, depth, structural=True) or super().structural(s, depth)

    def computed(self, s: DrawnScope, depth: int) -> str:
        return self.of_containers("conditions", s, depth) or super().computed(s, depth)

    def of_containers(self, forms: str, s: DrawnScope, depth: int, structural: bool = False) -> str:
        """Sometimes an expression that reads a container; structural ones read those that structure decides alone."""
        decided = self.free if structural and self.numeric else set()
        held = [
            (name, rows)
            for name, kind in s.variables.items()
            if kind in KINDS and kind not in decided and (rows := getattr(KINDS[kind], forms))
        ]
        if depth == 0 or not held or not self.chance(3):
            return ""
        name, rows = self.pick(held)
        return f"({self.row(rows, s, name, depth - 1)})"

    # ---- rows of the tables

    def row(self, rows: tuple[str, ...], s: DrawnScope, name: str = "", depth: int = 1) -> str:
        """One of them, its names filled in by expressions so deep."""
        return self.pick(rows).format_map(_DrawnNames(partial(self.drawn, s, name, depth), v=name))

    def drawn(self, s: DrawnScope, name: str, depth: int, field: str) -> str:
        if field.startswith("its_"):
            return self.pick(s.of(field.removeprefix("its_")) or [self.fresh(field)])
        if field in KINDS:
            there = s.of(field)
            return self.pick(there) if there and not self.chance(3) else self.row(KINDS[field].made, s, depth=0)
        draw: dict[str, Callable[[], str]] = {
            "w": lambda: self.pick(s.of(s.variables[name])),
            "x": lambda: f"jnp.tanh({self.number(s, depth)})",
            "y": partial(self.number, s, 0),
            "a": lambda: f"jnp.tanh({self.vector(s, depth)})",
            "i": lambda: self.count(s, 0) if self.numeric and s.masked else self.integer(s, 0),
            "k": partial(self.integer, s, 0),
            "b": partial(self.structural, s, 0),
            "B": partial(self.boolean, s, 0),
            "n": lambda: self.pick(s.of(NUMBER)),
            "t": lambda: self.pick(s.nodes),
        }
        return draw[field]() if field in draw else self.fresh(field)
