"""Upper and lower case, of code points (`spelt.py`). A letter may become up to three: 'ß'.upper() is 'SS'.

spelt['title'](a)     each letter by a table of those that change; which table, by the letter in front of it
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from autobatch.ir import texts
from autobatch.passes.strings import characters
from autobatch.passes.strings.spelt_words import CodePoints, inside, places, woven

_NONE = -1


@functools.cache
def _changes(name: str) -> tuple[Any, Any]:
    """The code points that a method changes, ascending; and what each becomes, in rows of three."""
    method = getattr(str, name)
    changed = [(k, method(chr(k))) for k in range(texts.BEHIND) if method(chr(k)) != chr(k)]
    rows = [[*map(ord, word), *[_NONE] * (3 - len(word))] for _, word in changed]
    return np.array([k for k, _ in changed], np.int32), np.array(rows, np.int32)


def _changed(name: str, letters: Any) -> Any:
    """int32[room, 3]: what each letter becomes."""
    keys, rows = (jnp.asarray(x) for x in _changes(name))
    at = jnp.minimum(jnp.searchsorted(keys, letters), keys.shape[0] - 1)
    same = jnp.stack([letters, *[jnp.full_like(letters, _NONE)] * 2], 1)
    return jnp.where((keys[at] == letters)[:, None], rows[at], same)


def _spread(a: CodePoints, becomes: Any) -> CodePoints:
    """The word of what each letter becomes."""
    lengths = jnp.where(inside(a), jnp.sum(becomes != _NONE, 1), 0)
    return woven(a, lengths, lambda source, k: becomes[source, jnp.clip(k, 0, 2)])


def _each(name: str) -> Callable[[CodePoints], CodePoints]:
    return lambda a: _spread(a, _changed(name, a.letters))


def _before(cased: Any) -> Any:
    """Of the letter in front of each one."""
    return jnp.roll(cased, 1).at[0].set(False)


def _title(a: CodePoints) -> CodePoints:
    inner = _before(characters.holds("is_cased", a.letters))
    return _spread(a, jnp.where(inner[:, None], _changed("lower", a.letters), _changed("title", a.letters)))


def _capitalize(a: CodePoints) -> CodePoints:
    first = (places(a) == 0)[:, None]
    return _spread(a, jnp.where(first, _changed("title", a.letters), _changed("lower", a.letters)))


def _is_title(a: CodePoints) -> Any:
    begins, lower = (characters.holds(name, a.letters) & inside(a) for name in ("istitle", "islower"))
    cased = begins | lower
    inner = _before(cased)
    return jnp.any(cased) & ~jnp.any(begins & inner) & ~jnp.any(lower & ~inner)


def _is_upper(a: CodePoints) -> Any:
    upper, title, lower = (characters.holds(name, a.letters) & inside(a) for name in ("isupper", "istitle", "islower"))
    return jnp.any(upper) & ~jnp.any(lower | (title & ~upper))


def _is_lower(a: CodePoints) -> Any:
    title, lower = (characters.holds(name, a.letters) & inside(a) for name in ("istitle", "islower"))
    return jnp.any(lower) & ~jnp.any(title)


FUNCTIONS: dict[str, Callable[[CodePoints], Any]] = {
    **{name: _each(name) for name in ("upper", "lower", "casefold", "swapcase")},
    "title": _title,
    "capitalize": _capitalize,
    "istitle": _is_title,
    "isupper": _is_upper,
    "islower": _is_lower,
}
LOWERING = frozenset(("lower", "swapcase", "title", "capitalize"))
"""The functions of which a capital sigma depends on the letters around it."""
