"""Work in numbered items, cut into pieces of seconds, and spread over whoever works: threads here, or a Ray cluster.

An item is deterministic, so a piece may run twice: its first result counts. A bounded number of pieces is under way at any time, so memory does not
grow with the work. A piece that is lost, with its worker or with a whole machine, is run again; one of several items in halves, so that an item that
kills whoever runs it is found.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent import futures
from typing import Any, Protocol

from .errors import InputError, QuietmmError, RunError

#: A piece should take so many seconds.
PIECE = 2.0
#: Pieces for each worker that are under way: one runs, one waits.
AHEAD = 2
#: Items of a piece, at most.
MOST = 1000
#: A single item that was lost so often is given up.
LOST = 5


class Job(Protocol):
    """What is done; goes to each worker."""

    def run(self, items: Sequence[int], tell: Callable[[int, int], object] | None = None) -> list[str]:
        """Does these items, one after another: a line for each."""


class Lost(Exception):
    """A piece is lost with whoever had it."""


class Crew(Protocol):
    """Whoever works."""

    def size(self) -> int:
        """How many work side by side, now."""

    def begin(self, job: Job, items: Sequence[int]) -> Any:
        """Hands a piece out."""

    def ready(self, pieces: Sequence[Any], seconds: float) -> Sequence[Any]:
        """Those of the pieces that are done, or lost; waits so long for the first."""

    def result(self, piece: Any) -> tuple[list[str], float]:
        """Its lines, and how many seconds it took; or ``Lost``."""

    def close(self, broken: bool) -> None:
        """Lets everybody go; ``broken``: with pieces under way, which nobody wants any more."""


def piece(job: Job, items: Sequence[int], tell: Callable[[int, int], object] | None = None) -> tuple[list[str], float]:
    """What a worker does with a piece."""
    began = time.monotonic()
    lines = job.run(items, tell)
    return lines, time.monotonic() - began


class Threads:
    """Threads of this process: the interpreter's lock is let go while they run."""

    def __init__(self, jobs: int | None = None) -> None:
        self._size = jobs or os.cpu_count() or 1
        self._pool = futures.ThreadPoolExecutor(self._size, "quietmm")
        self._stop = threading.Event()

    def size(self) -> int:
        """See ``Crew``."""
        return self._size

    def _tell(self, _done: int, _all: int) -> None:
        if self._stop.is_set():
            raise Lost

    def begin(self, job: Job, items: Sequence[int]) -> Any:
        """See ``Crew``."""
        return self._pool.submit(piece, job, items, self._tell)

    def ready(self, pieces: Sequence[Any], seconds: float) -> Sequence[Any]:
        """See ``Crew``."""
        return list(futures.wait(pieces, seconds, futures.FIRST_COMPLETED).done)

    def result(self, piece: Any) -> tuple[list[str], float]:
        """See ``Crew``."""
        done: tuple[list[str], float] = piece.result()
        return done

    def close(self, broken: bool) -> None:
        """See ``Crew``."""
        if broken:
            self._stop.set()
        self._pool.shutdown(cancel_futures=True)


def spread(
    job: Job,
    items: Sequence[int],
    crew: Crew,
    take: Callable[[list[str]], object],
    tell: Callable[[float, float], object] | None = None,
) -> None:
    """Does these items, and hands their lines to ``take``, in any order."""
    again: deque[tuple[Sequence[int], int]] = deque()
    under_way: dict[Any, tuple[Sequence[int], int]] = {}
    at, done, each = 0, 0, PIECE

    def next_piece() -> tuple[Sequence[int], int] | None:
        nonlocal at
        if again:
            return again.popleft()
        if at == len(items):
            return None
        # Small ones at the end, so that nobody waits for the last.
        fair = (len(items) - at) // (AHEAD * crew.size())
        count = max(1, min(int(PIECE / max(each, 1e-6)), fair, MOST))
        at += count
        return items[at - count : at], 0

    finished = False
    try:
        while True:
            while len(under_way) < AHEAD * crew.size():
                new = next_piece()
                if new is None:
                    break
                under_way[crew.begin(job, new[0])] = new
            if not under_way:
                break
            for one in crew.ready(list(under_way), 0.5):
                part, losses = under_way.pop(one)
                try:
                    lines, seconds = crew.result(one)
                except Lost as why:
                    if len(part) > 1:
                        half = len(part) // 2
                        again.extend([(part[:half], 0), (part[half:], 0)])
                    elif losses + 1 < LOST:
                        again.append((part, losses + 1))
                    else:
                        raise RunError(f"item {part[0]} was lost {LOST} times with whoever ran it: {why}") from None
                    continue
                take(lines)
                done += len(part)
                # What comes now may take longer or shorter: the last pieces count for most.
                each = 0.7 * each + 0.3 * seconds / len(part) if done > len(part) else seconds / len(part)
            if tell is not None:
                tell(done, len(items))
        finished = True
    finally:
        crew.close(not finished)


def crew_at(address: str | None, jobs: int | None) -> Crew:
    """Threads of this process, or the Ray cluster at an address."""
    if jobs is not None and jobs < 1:
        raise InputError(f"jobs={jobs}: one at least")
    if address is None:
        return Threads(jobs)
    if jobs is not None:
        raise InputError(f"jobs={jobs} is for this machine; a cluster works with all its CPUs")
    try:
        from .cluster import Cluster
    except ImportError as missing:
        raise QuietmmError(f"a cluster needs Ray: pip install 'quietmm[ray]' ({missing})") from None
    return Cluster(address)
