"""Results made ahead of time by a thread of their own, for the device to find its next batch ready.

    consumer    take 0 ......... take 1 ......... take 2 .....      waits only where the thread is behind
    thread      make 0, 1, 2     make 3           make 4            at most `ahead` results nobody has taken

The thread refers to what it makes results of, never to the iterator: an iterator that nobody holds any more ends its
thread. Nothing is joined then, since the garbage collector may run anywhere, also where a lock is held that the thread
waits for; at the end of the process it is.
"""

from __future__ import annotations

import atexit
import contextvars
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

import jax

from autobatch.call import transfer

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
        self._x64, self._device = transfer.x64(), jax.config.jax_default_device  # type: ignore[attr-defined]
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
