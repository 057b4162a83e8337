"""What names of arrays are for symbols: operators, methods and properties; and parts of arrays by their numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from autobatch.call.tracing.log import INTEGER, OperationKind, sliced
from autobatch.call.tracing.templates import Template, Type, type_of

BINARY = ("add", "sub", "mul", "truediv", "floordiv", "mod", "matmul", "and_", "or_", "xor", "lshift", "rshift")
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


def update(name: str) -> Callable[..., Any]:
    return lambda x, index, *args, **kwargs: getattr(x.at[index], name)(*args, **kwargs)


def swapped(fun: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The operator whose operands stand the other way round."""
    return lambda a, b: fun(b, a)


def method(name: str) -> Callable[..., Any]:
    return lambda x, *args, **kwargs: getattr(x, name)(*args, **kwargs)


class Updates:
    """`x.at`, and `x.at[index]`."""

    def __init__(self, symbol: Any, *index: Any) -> None:
        self._symbol, self._index = symbol, index

    def __getitem__(self, index: Any) -> Updates:
        return Updates(self._symbol, index)

    def __getattr__(self, name: str) -> Any:
        (index,) = self._index
        return lambda *args, **kwargs: self._symbol._run.call(
            f".at.{name}", update(name), (self._symbol, index, *args), kwargs
        )


def row(memo: dict[Any, Template | None], of: Type, count: int) -> Template:
    """The template of `x[k]` or `x[k, n]`, of a part by its numbers: these are operands, so that all parts are read by
    one operation."""
    key = "row", of, count
    found = memo.get(key)
    if found is None:
        rest = of.shape[count:]
        sizes, zeros = (*(1,) * count, *rest), (0,) * len(rest)
        made = (jax.ShapeDtypeStruct(rest, of.dtype),)
        kind = OperationKind(("row", of, count), lambda x, *at: (sliced(x, (*at, *zeros), sizes).reshape(rest),), made)
        result = type_of(rest, of.dtype, of.weak)
        reads, types = tuple(range(1 + count)), (of.pair, *(INTEGER,) * count)
        found = memo[key] = Template(kind, reads, types, ((0, 0),), None, (result,), True)
    return found


def _attributes() -> dict[str, str]:
    """What names of arrays are: properties, methods, or questions for their values."""
    made = {"weak_type": "property", "aval": "property"}
    for name in dir(jax.Array):
        if not name.startswith("_"):
            made[name] = "method" if callable(getattr(jax.Array, name)) else "property"
    asked = ("item", "tolist", "tobytes", "addressable_data", "block_until_ready", "copy_to_host_async", "devices")
    return {**made, **dict.fromkeys((*asked, "delete", "is_deleted", "is_ready", "unsafe_buffer_pointer"), "asked")}


ATTRIBUTES = _attributes()
