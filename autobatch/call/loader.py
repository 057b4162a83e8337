"""`Loader`: shuffled minibatches of a packed data set, cut and bound on a background thread.

loader = Loader(data, 64)           which examples: a seed and the number of the epoch
for batch in loader:                a thread that is `prefetch` minibatches ahead
    params = step(params, batch)    Group.place     tables of all plans, on the device before they are asked for
"""

from __future__ import annotations

import atexit
import contextvars
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any, Generic, TypeVar
from zlib import crc32

import jax
import numpy as np
import numpy.typing as npt

from autobatch.call import packed
from autobatch.call.batch import Batch, GroupedBatch
from autobatch.call.packed import Group, cut_together
from autobatch.data.columns import Ints
from autobatch.errors import BatchError

# ---- prefetch
#
# Results made ahead of time by a thread of their own, for the device to find its next batch ready.
#
#     consumer    take 0 ......... take 1 ......... take 2 .....      waits only where the thread is behind
#     thread      make 0, 1, 2     make 3           make 4            at most `ahead` results nobody has taken
#
# The thread refers to what it makes results of, never to the iterator: an iterator that nobody holds any more ends its
# thread. Nothing is joined then, since the garbage collector may run anywhere, also where a lock is held that the
# thread waits for; at the end of the process it is.


S = TypeVar("S")
T = TypeVar("T")

_running: weakref.WeakSet[_Worker] = weakref.WeakSet()


class Prefetched(Iterator[T], Generic[T]):
    """`make(task)` for each task in order. An error of `make` is raised where its result would have come; then there is
    no further result. `close` ends the thread after the result at hand."""

    def __init__(self, make: Callable[[S], T], tasks: Iterable[S], ahead: int) -> None:
        self._worker = _Worker(make, tasks, ahead)
        self._finalizer = weakref.finalize(self, self._worker.stop)
        self._finalizer.atexit = False
        self._ended = False
        self._worker.start()

    def __next__(self) -> T:
        if self._ended:
            raise StopIteration
        kind, value = self._worker.results.get()
        if kind == "made":
            self._worker.room.release()
            made: T = value
            return made
        self.close()
        if isinstance(value, StopIteration):  # it would look like the end
            raise RuntimeError("StopIteration was raised where a batch is made") from value
        if kind == "failed":
            raise value
        raise StopIteration

    def close(self) -> None:
        self._ended = True
        self._finalizer()


class _Worker(threading.Thread):
    """Puts what it makes into `results`: ("made", result), ("failed", error) or ("end", None). `room` counts how many
    more it may make now. It sees the options and the JAX settings of the thread that it was made in."""

    def __init__(self, make: Callable[[Any], Any], tasks: Iterable[Any], ahead: int) -> None:
        super().__init__(name="autobatch-prefetch", daemon=True)
        self._make, self._tasks = make, tasks
        self._context = contextvars.copy_context()
        self._x64, self._device = packed.x64(), jax.config.jax_default_device  # type: ignore[attr-defined]
        self.results: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        self.room = threading.Semaphore(ahead)
        self.stopped = False
        _running.add(self)

    def run(self) -> None:
        try:
            self._context.run(self._run)
            self.results.put(("end", None))
        except BaseException as error:  # whatever it is, the consumer has to hear of it, or waits for ever
            self.results.put(("failed", error))
        finally:
            del self._make, self._tasks

    def _run(self) -> None:
        with ExitStack() as settings:
            settings.enter_context(jax.enable_x64(self._x64))
            settings.enter_context(jax.default_device(self._device))
            for task in self._tasks:
                self.room.acquire()
                if self.stopped:
                    return
                self.results.put(("made", self._make(task)))

    def stop(self) -> None:
        self.stopped = True
        self.room.release()


@atexit.register
def _stop_all() -> None:
    """A thread that works while the interpreter goes down would crash it."""
    workers = list(_running)
    for worker in workers:
        worker.stop()
    for worker in workers:
        if worker.is_alive():
            worker.join()


# ---- sampling
#
# Which examples the minibatches of an epoch hold: decided by a seed and the number of the epoch alone.
#
#     count=7, batch_size=3           [4 0 6] [2 5 1] [3]          shuffled; the last minibatch is what is left
#     drop_last=True                  [4 0 6] [2 5 1]
#     keys (sizes of the examples)    similar examples together, the minibatches in random order
#
# Bucketing: what is left over, if anything, is drawn first, so that no example is left out more often than another. The
# others are permuted and cut into pools of `POOL` minibatches. Within a pool they are sorted by their keys, each moved
# by up to one minibatch at random, so that the same examples do not meet in every epoch. Then the minibatches of all
# pools are permuted.


POOL = 32
"""Bucketing sorts so many minibatches at a time."""


@dataclass(frozen=True)
class Sampling:
    """`keys[i]`: what examples are bucketed by; None: not at all. Without `shuffle` examples come in their order, or in
    that of their keys."""

    count: int
    batch_size: int
    shuffle: bool
    seed: int
    drop_last: bool
    keys: npt.NDArray[np.generic] | None = None

    @property
    def batches(self) -> int:
        """Minibatches an epoch."""
        whole, rest = divmod(self.count, self.batch_size)
        return whole + bool(rest and not self.drop_last)

    def epoch(self, number: int) -> list[Ints]:
        """The examples of each minibatch of an epoch, in their order."""
        rng = np.random.default_rng((self.seed, number))
        order: Ints = rng.permutation(self.count) if self.shuffle else np.arange(self.count)
        if self.keys is not None and not self.shuffle:
            order = np.argsort(self.keys, kind="stable")
        rest = self.count % self.batch_size
        rows = order[: self.count - rest]
        if self.keys is not None and self.shuffle:
            rows = self._bucketed(rows, self.keys, rng)
        batches = list(rows.reshape(-1, self.batch_size))
        if rest and not self.drop_last:
            batches.append(order[-rest:])
        return batches

    def _bucketed(self, rows: Ints, keys: npt.NDArray[np.generic], rng: np.random.Generator) -> Ints:
        size = POOL * self.batch_size
        pools = []
        for start in range(0, len(rows), size):
            pool = rows[start : start + size]
            pool = pool[np.argsort(keys[pool], kind="stable")]
            place = np.arange(len(pool)) + rng.uniform(0, self.batch_size, len(pool))
            pools.append(pool[np.argsort(place, kind="stable")])
        batches = np.concatenate(pools).reshape(-1, self.batch_size) if pools else rows.reshape(0, self.batch_size)
        return rng.permutation(batches).reshape(-1)


def checksum(batches: list[Ints]) -> int:
    """A number that tells orders apart."""
    total = 0
    for rows in batches:
        total = crc32(np.ascontiguousarray(rows, "<i8").tobytes(), crc32(len(rows).to_bytes(8, "little"), total))
    return total


State = dict[str, Any]


@dataclass
class _Position:
    """Where an epoch is: its number, how many batches it has given, and the examples of the last of them."""

    epoch: int = 0
    batch: int = 0
    indices: Ints | None = None


class Loader(Generic[T]):
    """Minibatches of a data set, a new random order every epoch. `for batch in loader` runs one epoch.

    Cutting a minibatch from its data set, the tables of all functions that the data set is planned for, and the
    transfer to the device happen on a thread of their own while the device computes. What is yielded is what
    `data[indices]` would be: it may be passed to functions, to `jax.jit`, cut, and planned again.

    Args:
      data: a `Batch` (`ab.pack(examples).plan(f, g)`, `f.pack(left, right)`), or a pytree of batches and arrays with
        as many rows: what is yielded has the same structure. Several batched arguments of one function are best packed
        together: `for pairs in Loader(f.pack(left, right), 64): f(p, *pairs.args)`. For the numbers of the examples
        pass them too: `Loader((data, np.arange(len(data))), 64)`, or read `loader.indices`.
      batch_size: examples a minibatch.
      shuffle: a new order every epoch; else that of the data.
      seed: the order is decided by `seed` and the number of the epoch alone, whatever else the program draws.
      drop_last: leave out the last minibatch where it would be smaller than the others. It runs on an executable of its
        own, which is compiled once.
      bucket_by: "size" puts examples of similar size (rows of the packed columns: objects and elements of lists)
        together, so that minibatches waste less; an array of one number for each example, such as their depths, puts
        examples together that are similar in that. Every 32 minibatches of the shuffled order are sorted, each example
        is moved by up to one minibatch at random, and the order of the minibatches is random. With `shuffle=False` the
        whole data set comes in ascending order.
      steps: yield so many minibatches at a time, stacked on a leading axis for `jax.lax.scan` as `batch.epoch` stacks
        them; the last of an epoch may hold fewer. All of them in one executable: `steps=len(loader)`.
      prefetch: how many minibatches the thread may be ahead; 0: no thread, each is made when it is asked for.
      device: a device or sharding for the arrays; JAX's default device by default.

    Raises:
      BatchError: the data has no rows, arguments differ in their number, or one of the above does not fit it.
      Whatever fails on the thread is raised by the `for` at the batch that it concerns.

    A loop that is left early abandons its epoch: the next one begins the next epoch. `state` is taken at any time,
    also between two batches; a loader that it is restored to goes on with the very same remaining batches.

    >>> import numpy as np, autobatch as ab
    >>> data = ab.pack([[k] * (k + 1) for k in range(5)])
    >>> loader = Loader(data, 2, seed=1)
    >>> [len(batch) for batch in loader], len(loader), loader.epoch
    ([2, 2, 1], 3, 1)
    >>> sorted(x for batch in loader for words in batch for x in words) == sorted(x for w in data for x in w)
    True
    """

    def __init__(
        self,
        data: T,
        batch_size: int,
        *,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        bucket_by: str | npt.ArrayLike | None = None,
        steps: int | None = None,
        prefetch: int = 2,
        device: Any = None,
    ) -> None:
        self.batch_size = _whole("batch_size", batch_size, 1)
        self.steps = None if steps is None else _whole("steps", steps, 1)
        self.prefetch = _whole("prefetch", prefetch, 0)
        self._source = _Source(data, device)
        count = self._source.count
        keys = _keys(bucket_by, self._source)
        self._sampling = Sampling(count, self.batch_size, shuffle, _whole("seed", seed, 0), drop_last, keys)
        self._bucket_by = bucket_by if bucket_by is None or isinstance(bucket_by, str) else "values"
        if not len(self):
            raise BatchError(f"drop_last leaves no minibatch: {count} examples are fewer than batch_size={batch_size}")
        if self.steps is not None and count % self.batch_size and not drop_last:
            raise BatchError(
                f"steps={steps} stacks minibatches of one size, but of {count} examples the last has "
                f"{count % self.batch_size} instead of {batch_size}: pass drop_last=True"
            )
        self._position = _Position()
        self._restored = False

    def __len__(self) -> int:
        """How many batches an epoch yields."""
        return -(-self._sampling.batches // (self.steps or 1))

    def __repr__(self) -> str:
        return f"Loader({self._source.count} examples, batch_size={self.batch_size}, epoch={self.epoch})"

    @property
    def epoch(self) -> int:
        """The number of the epoch that runs; between loops, of the one that comes next."""
        return self._position.epoch

    @property
    def indices(self) -> Ints | None:
        """The examples of the batch that was yielded last: int64[n], or int64[steps, n] with `steps`."""
        return self._position.indices

    def order(self, epoch: int | None = None) -> list[Ints]:
        """The examples of each batch of an epoch, of the present one by default."""
        batches = self._sampling.epoch(self.epoch if epoch is None else _whole("epoch", epoch, 0))
        if self.steps is None:
            return batches
        return [np.stack(batches[k : k + self.steps]) for k in range(0, len(batches), self.steps)]

    def __iter__(self) -> Iterator[T]:
        """Run one epoch; after `restore`, what is left of it."""
        if not self._restored:
            begun = self._position.batch > 0
            self._position = _Position(self._position.epoch + begun)
        self._restored = False
        return self._run(self._position)

    def _run(self, position: _Position) -> Iterator[T]:
        remaining = self.order(position.epoch)[position.batch :]
        made: Iterator[T]
        made = (
            Prefetched(self._source.cut, remaining, self.prefetch)
            if self.prefetch
            else map(self._source.cut, remaining)
        )
        try:
            for indices, batch in zip(remaining, made, strict=False):
                position.batch, position.indices = position.batch + 1, indices
                yield batch
        finally:
            if isinstance(made, Prefetched):
                made.close()
        position.epoch, position.batch = position.epoch + 1, 0

    # -- resuming

    def state(self) -> State:
        """Where this loader is: a small dict of numbers and strings, to be kept with a checkpoint (as JSON). Batches
        that the thread has made, but no loop has taken, count as not yielded."""
        position = self._position
        done, batch = divmod(position.batch, len(self))  # behind the last batch of an epoch begins the next one
        epoch = position.epoch + done
        return {"epoch": epoch, "batch": batch, **self._identity(epoch)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where `state` was taken: the next loop yields the rest of that epoch.

        Raises BatchError where this loader would yield other batches: of other settings or of another data set."""
        wanted = {"epoch", "batch", *self._identity(0)}
        if not isinstance(state, Mapping) or set(state) != wanted:
            raise BatchError("restore takes what state() of a Loader gave")
        epoch, batch = _whole("epoch", state["epoch"], 0), _whole("batch", state["batch"], 0)
        for name, own in self._identity(epoch).items():
            if state[name] != own:
                raise BatchError(
                    "the state is of a loader that draws its minibatches in another order (another version of NumPy, "
                    "or other values of bucket_by)"
                    if name == "order"
                    else f"the state is of a loader with {name}={state[name]!r}; this one has {name}={own!r}"
                )
        if batch >= len(self):
            raise BatchError(f"the state is at batch {batch}, but an epoch has {len(self)}")
        self._position, self._restored = _Position(epoch, batch), True

    def _identity(self, epoch: int) -> State:
        """What decides the batches of an epoch; `order` is a checksum of them."""
        held = self._sampling
        return {
            "examples": held.count,
            "batch_size": held.batch_size,
            "shuffle": held.shuffle,
            "seed": held.seed,
            "drop_last": held.drop_last,
            "bucket_by": self._bucket_by,
            "steps": self.steps,
            "order": checksum(held.epoch(epoch)),
        }


# ---- the data


class _Source:
    """Where minibatches are cut from: a pytree of batches and arrays, all with `count` rows."""

    def __init__(self, data: Any, device: Any) -> None:
        leaves, self._structure = jax.tree.flatten(data, is_leaf=_is_leaf)
        self._leaves = [_checked(leaf) for leaf in leaves]
        self._put = partial(jax.device_put, device=device)
        on_host = device is None and jax.config.jax_default_device is None and jax.default_backend() == "cpu"  # type: ignore[attr-defined]
        self._move = _stay if on_host else self._put
        counts = sorted({len(leaf) for leaf in self._leaves})
        if len(counts) != 1:
            found = f"the arguments have {' and '.join(map(str, counts))} rows" if counts else "there is no data"
            raise BatchError(f"a Loader takes batches and arrays with one row for each example; {found}")
        self.count = counts[0]
        if not self.count:
            raise BatchError("a Loader of no examples: the data has no rows")

    @property
    def batches(self) -> list[Batch]:
        return [leaf for leaf in self._leaves if isinstance(leaf, Batch)]

    def cut(self, indices: Ints) -> Any:
        """The rows `indices`, on the device; two axes of indices are stacked minibatches."""
        made = [self._rows(leaf, indices) for leaf in self._leaves]
        groups = [g for leaf in made if isinstance(leaf, Batch) for g in _groups(leaf)]
        for group in [*groups, *cut_together(groups)]:
            group.place(self._move)
        return jax.tree.unflatten(self._structure, made)

    def _rows(self, leaf: Any, indices: Ints) -> Any:
        if not isinstance(leaf, Batch):
            return self._put(leaf[indices])
        if indices.ndim > 1:
            return self._move(leaf.epoch(indices))
        if len(indices) == 1 and not isinstance(leaf, GroupedBatch):
            # its tables will lie on the device of this loader: it is not the one that others get
            group = leaf.group() if leaf.component is None else leaf.group().alone(leaf.component)
            return Batch(group.take(indices))
        return leaf[indices]


def _stay(arrays: Any) -> Any:
    """Where the device is the CPU, executables read the arrays of the host; to move them costs more than it saves."""
    return arrays


def _is_leaf(x: Any) -> bool:
    return isinstance(x, (Batch, list))


def _checked(leaf: Any) -> Any:
    if isinstance(leaf, Batch):
        if leaf.is_traced:
            raise BatchError("a Loader cuts its minibatches on the host: it is made and run outside jax.jit")
        return leaf
    if isinstance(leaf, (np.ndarray, jax.Array)) and leaf.ndim:
        return leaf
    if isinstance(leaf, list):
        raise BatchError("a Loader takes packed examples, and a list was given: f.pack(examples), or ab.pack(examples)")
    raise BatchError(f"a Loader takes batches and arrays of rows, not {type(leaf).__name__}")


def _groups(batch: Batch) -> list[Group]:
    """The groups that a batch on the host consists of."""
    if isinstance(batch, GroupedBatch):
        return [g for part in batch.groups for g in _groups(part)]
    return [] if batch.on_host is None else [batch.on_host]


def _sizes(batch: Batch) -> Ints:
    """Rows of the columns for each example."""
    if isinstance(batch, GroupedBatch):
        found: Ints = np.concatenate([_sizes(g) for g in batch.groups])[np.asarray(batch.order)]
        return found
    rows = np.zeros(len(batch), np.int64)
    for starts in batch.columns().starts.values():
        rows += np.diff(starts)
    return rows


def _keys(bucket_by: Any, source: _Source) -> npt.NDArray[np.generic] | None:
    if bucket_by is None:
        return None
    if isinstance(bucket_by, str):
        if bucket_by != "size":
            raise BatchError(
                f"bucket_by={bucket_by!r} is not known; it takes None, 'size', or a number for each example"
            )
        if not source.batches:
            raise BatchError("bucket_by='size' needs a Batch among the data; for arrays pass a number for each example")
        return np.sum([_sizes(b) for b in source.batches], axis=0)  # type: ignore[no-any-return]
    keys = np.asarray(bucket_by)
    if keys.shape != (source.count,) or keys.dtype.kind not in "iufb":
        raise BatchError(
            f"bucket_by has the shape {keys.shape} and dtype {keys.dtype}; it takes a number for each of the "
            f"{source.count} examples"
        )
    return keys


def _whole(name: str, value: Any, least: int) -> int:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)) or value < least:
        raise BatchError(f"{name}={value!r}: it takes an int, at least {least}")
    return int(value)
