"""What random programs do with data of their own, as rows of Python text: a table for each kind of container.

Names in braces are drawn where a row is used (`memory.py`):

    {v} {w}      the container, and one of the same kind: the same one where there is no other
    {x} {y}      a number from -1 to 1; any number
    {a}          three numbers from -1 to 1
    {i} {k}      an integer; one that structure decides
    {b} {B}      a condition on structure; one that computed numbers may decide
    {n}          a variable that holds a number
    {t}          a node of the data
    {e} {f} {g}  new names
    {numbers}    a container of that kind: one that there is, or a new one
    {its_cell}   a variable that holds a container of that kind, to be assigned; a new name where there is none
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autobatch.testing.writing import INTEGER, NUMBER, VECTOR


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
