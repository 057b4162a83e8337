"""Types of the per-example IR: arrays, tags, references into column stores, lists, and objects that are made."""

from __future__ import annotations

from autobatch.common.record import record


@record
class Array:
    """An array (a scalar has shape `()`). `dtype` is NumPy's name, or JAX's for typed random keys (`key<fry>`)."""

    dtype: str
    shape: tuple[int, ...] = ()
    weak: bool = False

    def __str__(self) -> str:
        dims = "x".join(map(str, self.shape))
        return f"{self.dtype}{'*' if self.weak else ''}[{dims}]"

    @property
    def is_scalar(self) -> bool:
        return self.shape == ()

    @property
    def is_integer(self) -> bool:
        return self.dtype.startswith(("int", "uint"))

    @property
    def is_bool(self) -> bool:
        return self.dtype == "bool"


@record
class Tag:
    """A string (`vocabulary` is "str") or a member of an enum (its qualified name), as an index into a vocabulary."""

    vocabulary: str

    def __str__(self) -> str:
        return f"tag<{self.vocabulary}>"


@record
class Ref:
    """A row of a column store, or None. What class the row has is data, read by `is_class`."""

    store: str

    def __str__(self) -> str:
        return f"ref<{self.store}>"


@record
class List:
    """A list of `elem`. `store` names the list store it lies in; None for a list that a `Map` has made."""

    elem: Type
    store: str | None = None

    def __str__(self) -> str:
        where = f" in {self.store}" if self.store is not None else ""
        return f"list<{self.elem}{where}>"


@record
class BuiltObject:
    """An object that the program has made, one of the examples that stands beside such objects, or None.

    It is handed on and stored; what it holds is known when everything has run, and leaves the program as columns."""

    def __str__(self) -> str:
        return "made<>"


ROWS = (1 << 31) - 1
"""The length of the first axis of a column that is handed to machine code: as many rows as the examples have, at most
so many. The text of a program says no more of it."""

Type = Array | Tag | Ref | List | BuiltObject
"""The closed set of types."""

BOOL = Array("bool")
INT = Array("int32", weak=True)
"""A Python int. On the host it has 64 bits, on the device the default integer type of JAX."""
FLOAT = Array("float32", weak=True)
"""A Python float."""
STR = Tag("str")
MADE = BuiltObject()
