"""A Ray cluster as a crew."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import ray
from ray import exceptions

from .crew import Job, Lost, piece
from .errors import InputError

#: Machines come and go: how many there are is asked so often, in seconds.
LOOK = 2.0


class Cluster:
    """Each CPU of the cluster is a worker. Every machine needs the same build of this package, and the files that are named."""

    def __init__(self, address: str) -> None:
        self._ours = not ray.is_initialized()
        if self._ours:
            try:
                ray.init(address=address, log_to_driver=False)
            except (OSError, ValueError) as why:
                raise InputError(f"no cluster at {address}: {why}") from None
        # Lost pieces are counted and cut by whoever hands them out.
        self._remote = ray.remote(num_cpus=1, max_retries=0)(piece)
        self._asked, self._size = 0.0, 1
        self._begun: set[Any] = set()

    def size(self) -> int:
        """See ``Crew``."""
        now = time.monotonic()
        if now - self._asked > LOOK:
            self._asked, self._size = now, max(1, int(ray.cluster_resources().get("CPU", 1)))
        return self._size

    def begin(self, job: Job, items: Sequence[int]) -> Any:
        """See ``Crew``."""
        one = self._remote.remote(job, items)
        self._begun.add(one)
        return one

    def ready(self, pieces: Sequence[Any], seconds: float) -> Sequence[Any]:
        """See ``Crew``."""
        first, rest = ray.wait(list(pieces), num_returns=1, timeout=seconds)
        more = ray.wait(rest, num_returns=len(rest), timeout=0)[0] if first and rest else []
        return [*first, *more]

    def result(self, piece: Any) -> tuple[list[str], float]:
        """See ``Crew``."""
        self._begun.discard(piece)
        try:
            done: tuple[list[str], float] = ray.get(piece)
            return done
        except exceptions.RayTaskError as failed:
            # What the item itself raised, not what became of its worker.
            raise failed.cause from None
        except exceptions.RayError as lost:
            raise Lost(str(lost).splitlines()[0]) from None

    def close(self, broken: bool) -> None:
        """See ``Crew``."""
        if self._ours:
            ray.shutdown()
        elif broken:
            for one in self._begun:
                ray.cancel(one)
