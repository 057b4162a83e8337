"""Random programs whose objects hold words: constants, words of the examples, and what is chosen among these.

Words are pushed onto a list of objects, set, compared with constants, with each other and with those of the examples,
and counted; some are read as numbers, which machine code does by their letters.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

TOKENS = ("+", "*", "x", "add", "1", "22", "305", "number")
_CONSTANTS = ("+", "*", "x", "add", "number", "times", "")
_HEAD = """from dataclasses import dataclass
from typing import Any


@dataclass
class Item:
    name: str
    kind: str = "x"
    value: float = 0.0
    left: Any = None
    right: Any = None


"""


def program(seed: int) -> str:
    """The text of a function `counted(tokens)` of a list of `TOKENS` that returns a float."""
    draw = random.Random(seed)
    lines = [*_weight(draw), "", "", *_counted(draw)]
    return _HEAD + "\n".join(lines) + "\n"


def _weight(draw: random.Random) -> Iterator[str]:
    """What a tree of items weighs."""
    yield "def weight(item):"
    yield "    if item is None:"
    yield "        return 0.5"
    for k in range(draw.randint(1, 3)):
        field, word = draw.choice(["name", "kind"]), draw.choice(_CONSTANTS)
        yield f"    if item.{field} {draw.choice(['==', '==', '!='])} {word!r}:"
        yield f"        return {draw.choice(_SUMS)} + {k}"
    yield f"    return {draw.choice(_SUMS)}"


_SUMS = (
    "weight(item.left) + weight(item.right)",
    "item.value - 0.5 * weight(item.left)",
    "item.value * weight(item.right) * 0.1",
    "item.value",
)


def _counted(draw: random.Random) -> Iterator[str]:
    yield "def counted(tokens):"
    yield f"    items, last, total = [Item({draw.choice(_CONSTANTS)!r})], {draw.choice(_CONSTANTS)!r}, 0.0"
    yield "    for k, t in enumerate(tokens):"
    for n in range(draw.randint(2, 4)):
        yield f"        {'if' if n == 0 or draw.random() < 0.3 else 'elif'} {_condition(draw)}:"
        for _ in range(draw.randint(1, 2)):
            yield from (f"            {line}" for line in _change(draw))
    yield f"    for item in items:\n        total += {draw.choice(['weight(item)', 'item.value'])}"
    yield f"        if item.{draw.choice(['name', 'kind'])} == {draw.choice(['last', 'tokens[0]', 'items[0].name'])}:"
    yield "            total += 3.0"
    yield f"    return total + weight(items[-1]) + (1.0 if last == {draw.choice(_CONSTANTS)!r} else 0.0)"


def _word(draw: random.Random) -> str:
    held = ["t", "last", "items[-1].name", "items[0].kind"]
    if draw.random() < 0.3:
        a, b = (draw.choice([*held, repr(draw.choice(_CONSTANTS))]) for _ in range(2))
        return f"({a} if k % 2 else {b})"
    return draw.choice([*held, *(repr(draw.choice(_CONSTANTS)) for _ in range(4))])


def _condition(draw: random.Random) -> str:
    return draw.choice(
        [
            f"t == {draw.choice(TOKENS)!r}",
            f"{_word(draw)} == {_word(draw)}",
            "t.isdigit()",
            "len(t) > 1",
            f"t in {TOKENS[:2]!r}",
        ]
    )


def _number(draw: random.Random) -> str:
    return draw.choice(["1.5", "0.5 * k", "total", "float(t) if t.isdigit() else 2.0", "float(len(items))"])


def _change(draw: random.Random) -> Iterator[str]:
    kind = draw.random()
    if kind < 0.35:
        yield f"items.append(Item({_word(draw)}, {_word(draw)}, {_number(draw)}))"
    elif kind < 0.5:
        yield "if len(items) > 2:"
        yield "    b, a = items.pop(), items.pop()"
        yield f"    items.append(Item({_word(draw)}, {_word(draw)}, {_number(draw)}, a, b))"
    elif kind < 0.65:
        yield f"items[{draw.choice(['-1', '0'])}].{draw.choice(['name', 'kind'])} = {_word(draw)}"
    elif kind < 0.8:
        yield f"last = {_word(draw)}"
    else:
        yield f"total = 0.5 * total + {_number(draw)}"
