"""Which arguments of a call move, and their derivatives in the structure of the arguments.

Shared values are counted as `gradients.Structure` counts them, batched leaves as `arguments.bind` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp

from autobatch.backends.cuda.arrays import DeviceArray
from autobatch.call.arguments import ArgumentNode, ArgumentSlot, BoundArguments, Form, Raw, fill, one_level, parts
from autobatch.call.gradients import SharedStructure, has_derivative


@dataclass(frozen=True)
class Selection:
    """Some arguments of a call: `shared`, the numbers of their run-time values; `slots`, their batched leaves."""

    bound: BoundArguments
    forms: tuple[Form, ...]
    shared: tuple[int, ...]
    slots: tuple[int, ...]
    numbers: Mapping[int, Sequence[int]]

    def shared_in(self, form: Form) -> bool:
        """Has a shared part of an argument a derivative?"""
        return any(self.numbers[id(raw)] for raw in parts(form, Raw))

    def entries(self, shared: Mapping[int, Any], slots: Mapping[int, Any]) -> list[Any]:
        """Derivatives in the structure of the arguments: of shared values by number, of batched leaves by index."""

        wanted = set(self.shared)

        def held(number: int, value: Any) -> Any:
            if number not in wanted or not has_derivative(value):
                return None
            found = shared.get(number)
            return jnp.zeros_like(jnp.asarray(value)) if found is None else found

        structure = SharedStructure("", held)
        made = {id(raw): structure.raw(raw) for raw in self.bound.shared}

        def of_slot(slot: ArgumentSlot) -> Any:
            found = slots.get(slot.index)
            if slot.kind != "array" or found is None or slot.axis == 0:
                return found
            if isinstance(found, DeviceArray):
                return found.with_axis(0, slot.axis)
            return jnp.moveaxis(found, 0, slot.axis)

        return [fill(form, of_slot, lambda raw: made[id(raw)]) for form in self.forms]


def select(bound: BoundArguments, forms: Callable[[BoundArguments], Sequence[Form]]) -> Selection:
    """The arguments that `forms` takes of a call. A container that stands twice becomes two, as in JAX: each place has
    a derivative of its own."""
    numbers, again = _numbers(bound)
    if again:
        bound = _apart(bound)
        numbers, again = _numbers(bound)
    chosen = tuple(forms(bound))
    shared = [id(raw) for form in chosen for raw in parts(form, Raw)]
    every = [k for ks in numbers.values() for k in ks]  # an object that no copy is made of may stand elsewhere too
    wanted = every if again else [k for raw in shared for k in numbers[raw]]
    slots = tuple(s.index for form in chosen for s in parts(form, ArgumentSlot))
    return Selection(bound, chosen, tuple(sorted(set(wanted))), slots, numbers)


def _numbers(bound: BoundArguments) -> tuple[dict[int, list[int]], bool]:
    """The numbers of the values in each shared part that have a derivative; does anything stand twice?"""
    found: list[int] = []

    def note(number: int, value: Any) -> None:
        if has_derivative(value):
            found.append(number)

    structure, numbers = SharedStructure("", note), {}
    for raw in bound.shared:
        before = len(found)
        structure.raw(raw)
        numbers[id(raw)] = found[before:]
    return numbers, structure.again


def count_floats(raw: Raw) -> int:
    """How many values of a shared part have a derivative."""
    found: list[int] = []
    SharedStructure("", lambda k, value: found.append(k) if has_derivative(value) else None).raw(raw)
    return len(found)


def _apart(bound: BoundArguments) -> BoundArguments:
    def copied(value: Any) -> Any:
        children, _, rebuild = one_level(value)
        return value if children is None else rebuild([copied(x) for _, x in children])

    def replaced(form: Form) -> Form:
        if isinstance(form, ArgumentNode):
            return replace(form, children=tuple(map(replaced, form.children)))
        return replace(form, value=copied(form.value)) if isinstance(form, Raw) and not form.static else form

    return replace(bound, forms={name: replaced(form) for name, form in bound.forms.items()})
