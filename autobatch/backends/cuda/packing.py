"""Arrays on a GPU whose rows do not lie one behind the other, or not where their numbers may: copied as kernels read.

from[i, j, k, l]  at  i s0 + j s1 + k s2 + l s3 bytes      ->      to, in the order of rows
"""

from __future__ import annotations

import math
from functools import cache

from autobatch.backends.cuda import ptx
from autobatch.backends.cuda.arrays import DeviceArray, made
from autobatch.backends.cuda.kernel import DEVICE, DeviceFunction, headed, numbers
from autobatch.errors import BatchError

AXES = 4
"""Axes that are left when those that lie behind each other are one."""

UNITS = (8, 4, 2, 1)
"""Bytes that are copied at once."""

BLOCK = 128


@cache
def text(machine: str = DEVICE) -> str:
    """The module with a kernel for each unit."""
    written: list[str] = []
    declared: dict[str, None] = {}
    for unit in UNITS:
        f = DeviceFunction("")
        thread, threads = numbers(f, machine)
        of = f"i{8 * unit}"
        with f.loop(thread, "%count", threads) as at:
            rest, place = at, "0"
            for axis in reversed(range(AXES)):
                index = f.let(f"urem i64 {rest}, %n{axis}")
                rest = f.let(f"udiv i64 {rest}, %n{axis}")
                place = f.add(f.mul(index, f"%s{axis}"), place)
            found = f.let(f"load {of}, ptr {f.at('%from', place)}")
            f.do(f"store {of} {found}, ptr {f.let(f'getelementptr {of}, ptr %to, i64 {at}')}")
        f.do("ret void")
        sizes = [f"i64 %{x}{k}" for k in range(AXES) for x in "ns"]
        written.append(headed(f, f"pack{unit}", ["ptr %from", "ptr %to", *sizes, "i64 %count"], machine))
        declared.update(f.declarations)
    return "\n".join([*declared, *written])


def packed(x: DeviceArray, stream: int) -> DeviceArray:
    """A copy whose rows lie one behind the other."""
    found = made(x.device, x.shape, x.dtype, stream)
    if x.size == 0:
        return found
    unit = next(u for u in UNITS if all(n % u == 0 for n in (x.dtype.itemsize, x.view.place, *x.view.strides)))
    axes = merged([*zip(x.shape, x.view.strides, strict=True), (x.dtype.itemsize // unit, unit)])
    if len(axes) > AXES:
        raise BatchError(
            f"an array on a GPU of shape {x.shape} with the strides {x.view.strides}: its rows do not lie one behind "
            "the other, and it has too many axes to be copied here; make it contiguous"
        )
    axes = [(1, 0)] * (AXES - len(axes)) + axes
    count = math.prod(n for n, _ in axes)
    function = x.device.function(ptx.kept(text(), x.device.architecture), f"pack{unit}")
    with x.device.current():
        sizes = [n for axis in axes for n in axis]
        places = [x.view.place, found.view.place, *sizes, count]
        x.device.launch(function, -(-count // BLOCK), BLOCK, stream, places)
    return found


def merged(axes: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Axes, each with its size and stride, as few as say the same.

    >>> merged([(5, 24), (1, 7), (3, 8), (2, 4)])
    [(30, 4)]
    """
    found: list[tuple[int, int]] = []
    for n, stride in axes:
        if n == 1:
            continue
        if found and found[-1][1] == n * stride:
            found[-1] = (found[-1][0] * n, stride)
        else:
            found.append((n, stride))
    return found
