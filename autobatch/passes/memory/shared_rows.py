"""Objects that all examples share, among which computed numbers choose: rows of shared arrays, for any back end.

    func @f(%1: ref<Node in shared0>, ...):        module(shared %8: int32[16], %9: float32[16])
      %2 = load[field='low'](%1)                   func @f(...):
      %3 = load[field='at'](%2)             ->       %2 = dynamic_slice(%8, 0)
                                                     %3 = dynamic_slice(%9, max(%2, 0))

Their columns (`data/columns.py`) are shared inputs like any other array, so derivatives reach what they hold.
`rows.py` has how each operation reads columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from autobatch.data.schema import Schema, SharedColumns, is_shared_store
from autobatch.errors import UnsupportedError
from autobatch.ir import jax_compat
from autobatch.ir.core import Apply, Literal, Module, Operand, Value
from autobatch.ir.ops import Op
from autobatch.ir.rewrite import region_values, with_entry_apart
from autobatch.ir.types import INT, Array, List, Ref, Tag, Type
from autobatch.passes.memory.chosen_rows import PartialLowering
from autobatch.passes.memory.rows import ZERO


def shared_as_rows(module: Module, schema: Schema, shared: Sequence[SharedColumns]) -> Module:
    """The module without objects that all examples share: what it reads of them are shared inputs. UnsupportedError
    where such an object is a result, or a string is read of one."""
    if not shared:
        return module
    columns = {x.begin + name: x.first + k for x in shared for k, name in enumerate(x.names)}
    return _Shared(with_entry_apart(module), schema, columns).whole()


def _is_shared(type: Type) -> bool:
    match type:
        case Ref(store=store) | List(store=str() as store):
            return is_shared_store(store)
        case List(elem=elem):
            return _is_shared(elem)
        case _:
            return False


class _Shared(PartialLowering):
    """`columns`: the shared input that each column is."""

    def __init__(self, module: Module, schema: Schema, columns: Mapping[str, int]) -> None:
        values = (v for f in module.functions for v in region_values(f.region))
        super().__init__(module, schema, frozenset(v for v in values if _is_shared(v.type)))
        self.columns = columns

    def whole(self) -> Module:
        """The module; parameters of the entry that are such objects are the first rows of their stores."""
        region = self.module.functions[0].region
        roots = [a for a in region.args if a in self.chosen]
        if any(_is_shared(x.type) for x in region.results):
            raise self.refused("an object as a result that all examples share")
        self.env.update(dict.fromkeys(roots, ZERO))
        first, *others = (self.function(f) for f in self.module.functions)
        args = tuple(a for a, b in zip(first.region.args, region.args, strict=True) if b not in roots)
        first = replace(first, region=replace(first.region, args=args))
        return replace(self.module, functions=(first, *others))

    def take(self, name: str, elem: Type, row: Operand, result: Value | None = None) -> Value:
        """A row of a column, read as JAX reads an element of an array."""
        if isinstance(elem, Tag):
            raise UnsupportedError(
                "computed numbers choose among objects that all examples share, and here a string or a member of an "
                "enum is read of one",
                self.span,
                "hold its number beside it, and read that",
            )
        column, of = self.module.shared[self.columns[name]], self.type(elem)
        assert isinstance(of, Array) and isinstance(column.type, Array)
        cut = self.fresh.value(replace(column.type, shape=(1, *of.shape)))
        found = self.fresh.value(of) if result is None else self.value(result)
        read = Op("dynamic_slice", (("slice_sizes", (1, *of.shape)),), jax_compat.primitive("dynamic_slice"))
        first = (Literal(0, INT) for _ in of.shape)
        self.made.append(Apply((cut,), read, (column, row, *first), self.span))
        squeeze = Op("squeeze", (("dimensions", (0,)),), jax_compat.primitive("squeeze"))
        self.made.append(Apply((found,), squeeze, (cut,), self.span))
        return found
