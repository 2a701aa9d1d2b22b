"""Grids of runs: ``quietmm sweep``, here or on a cluster, in one file."""

from __future__ import annotations

import functools
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

from . import _quietmm
from .commands import flags, told
from .crew import crew_at, spread
from .errors import InputError, RunError, error_of, translated
from .progress import Progress, teller
from .results import Frame, Spread
from .things import AnyMachine, AnyPolicy, Machine, Policy, figure

if TYPE_CHECKING:
    import matplotlib.axes

__all__ = ["Point", "Study", "study", "sweep"]

#: Values of an axis: as the command takes them (``"1,2,4..64"``, ``"100ns..2us"``), or one after another.
Values = Union[str, int, Iterable[Union[str, int, Policy, Machine]]]


@dataclass(frozen=True)
class Point:
    """A point of a grid: where it stands, its figures or its ``error``, and the command that comes to the same."""

    point: int
    at: Mapping[str, Any]
    metrics: Mapping[str, float]
    error: str | None
    command: str | None
    json: Mapping[str, Any] = field(repr=False, compare=False)

    @classmethod
    def of(cls, json: Mapping[str, Any]) -> Point:
        """From a line of the file."""
        return cls(json["point"], json["at"], json.get("metrics", {}), json.get("error"), json.get("command"), json)


@dataclass(frozen=True)
class Study(Frame):
    """The file of a sweep. Its points are read as they are looked at, never all at once. Its length is how many it has when it is done: of a shard those
    of that part."""

    path: Path
    header: Mapping[str, Any] = field(repr=False)
    _count: int = field(repr=False)
    _kept: object = field(default=None, repr=False, compare=False)

    @property
    def axes(self) -> dict[str, list[Any]]:
        """What is varied, and over which values; the last goes round first."""
        return dict(self.header["vary"])

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Point]:
        """The points that are there, in the order of the file. A line that is not as it was written raises ``InputError``, with its number."""
        with open(self.path, "rb") as file:
            reader, _ = _headed(self.path, file.readline())
            for nth, line in enumerate(file, 2):
                # The last may be on its way.
                if not line.endswith(b"\n"):
                    break
                try:
                    reader.point(line)
                except ValueError as why:
                    raise InputError(f"{self.path}: line {nth} {why}; take the line out, and its point is run again") from None
                yield Point.of(json.loads(line))

    def rows(self) -> list[dict[str, Any]]:
        """A dictionary for each point: where it stands, its error, its figures."""
        return [{"point": one.point, **one.at, "error": one.error, **one.metrics} for one in self]

    def _asked(self, key: str, axes: Iterable[str]) -> None:
        """Names that nothing has are refused."""
        figure(key)
        for axis in axes:
            if axis not in self.axes:
                raise InputError(f"'{axis}' is not varied; axes are {', '.join(self.axes)}")

    def spread(self, key: str, *axes: str) -> dict[tuple[Any, ...], Spread]:
        """A figure by the values of these axes, over all the others (seeds, say). Points that failed are left out."""
        self._asked(key, axes)
        found: dict[tuple[Any, ...], list[float]] = {}
        for one in self:
            if key in one.metrics:
                found.setdefault(tuple(one.at[axis] for axis in axes), []).append(one.metrics[key])
        return {at: Spread.of(values) for at, values in found.items()}

    def gain(self, key: str, by: str, *axes: str, base: Any = None) -> dict[tuple[Any, ...], Spread]:
        """By how many per cent of that of ``base`` (the first value of the axis ``by``) a figure is smaller: pair by pair, so that what chance
        does to both is not in the error. Keys have the values of ``axes``, then that of ``by``."""
        self._asked(key, (by, *axes))
        base = self.axes[by][0] if base is None else base if isinstance(base, int) else str(base)
        if base not in self.axes[by]:
            raise InputError(f"'{base}' is no value of {by}; there are {', '.join(map(str, self.axes[by]))}")
        found: dict[tuple[Any, ...], dict[Any, float]] = {}
        for one in self:
            if key in one.metrics:
                rest = tuple((name, value) for name, value in one.at.items() if name != by)
                found.setdefault(rest, {})[one.at[by]] = one.metrics[key]
        gains: dict[tuple[Any, ...], list[float]] = {}
        for rest, values in found.items():
            for name, value in values.items():
                if name != base and values.get(base):
                    gains.setdefault((*(dict(rest)[axis] for axis in axes), name), []).append((1 - value / values[base]) * 100)
        return {at: Spread.of(values) for at, values in gains.items()}

    def plot(self, key: str = "elapsed_s", x: str | None = None, by: str | None = None, ax: matplotlib.axes.Axes | None = None) -> Any:
        """A figure over the axis ``x`` (the first of numbers), a line for each value of ``by`` (the policy), over all the others mean and standard
        deviation. Needs ``pip install quietmm[plot]``."""
        from .plots import bars, curves

        numbers = [name for name, values in self.axes.items() if name != "seed" and all(isinstance(one, int) for one in values)]
        x = x or (numbers[0] if numbers else None)
        by = by or ("policy" if "policy" in self.axes else None)
        if x is None:
            by = by or next(iter(self.axes))
            return bars("", key, {str(at[0]): one for at, one in self.spread(key, by).items()}, ax)
        lines: dict[str, list[tuple[float, Spread]]] = {}
        for at, one in self.spread(key, x, *([by] if by else [])).items():
            lines.setdefault(str(at[1]) if by else "", []).append((at[0], one))
        ends = self.axes[x]
        return curves(key, x, lines, all(isinstance(end, int) and end > 0 for end in ends) and max(ends) >= 16 * min(ends), ax)


def study(path: str | os.PathLike[str]) -> Study:
    """The file of a sweep that is there."""
    with open(path, "rb") as file:
        reader, header = _headed(path, file.readline())
    return Study(Path(path), header, reader.count)


def _headed(path: str | os.PathLike[str], line: bytes) -> tuple[_quietmm.SweepReader, dict[str, Any]]:
    """What reads the other lines of a file with this first one, and what that says."""
    try:
        return _quietmm.SweepReader(line), _asked_of(line)
    except ValueError as why:
        raise InputError(f"{os.fspath(path)}: {why}") from None


def _asked_of(header: str | bytes) -> dict[str, Any]:
    """What a first line says, without its checksum."""
    asked: dict[str, Any] = json.loads(header)
    asked.pop("sum", None)
    return asked


@functools.lru_cache(maxsize=4)
def _grid(words: tuple[str, ...]) -> _quietmm.Sweep:
    """A worker reads a grid once."""
    with translated():
        return _quietmm.Sweep(words)


@dataclass(frozen=True)
class SweepJob:
    """The points of a grid, for whoever runs them."""

    words: tuple[str, ...]
    header: str

    def run(self, items: Sequence[int], tell: Callable[[int, int], object] | None = None) -> list[str]:
        """The lines of these points."""
        grid = _grid(self.words)
        if grid.header != self.header:
            # Files may have changed since this worker read them.
            _grid.cache_clear()
            grid = _grid(self.words)
        if grid.header != self.header:
            here, there = _asked_of(grid.header), _asked_of(self.header)
            differ = [f"{key} is {here.get(key)} on a worker and {there[key]} here" for key in there if here.get(key) != there[key]]
            raise InputError(f"all machines need the same build, and the same files: {', '.join(differ)}")
        with translated():
            return grid.run(items, tell)


def _values(values: Values) -> str:
    if isinstance(values, (str, int)):
        return str(values)
    if isinstance(values, range) and len(values) > 1 and values.step > 0:
        # However long it is.
        return f"{values.start}..{values[-1]}:+{values.step}"
    values = list(values)
    if any(isinstance(one, Machine) and one.sets for one in values):
        raise InputError("machines that are varied are varied whole: constants by an axis of their own")
    return ",".join(map(str, values))


def sweep(
    grid: Mapping[str, Values],
    workload: str | None = None,
    *,
    out: str | os.PathLike[str] | None = None,
    address: str | None = None,
    policy: AnyPolicy | None = None,
    machine: AnyMachine | None = None,
    cpus: int | None = None,
    scale: int | None = None,
    threads: int | None = None,
    parts: int | None = None,
    trace: str | None = None,
    sets: Mapping[str, object] | None = None,
    seed: int | None = None,
    broken: str | None = None,
    shard: str | None = None,
    csv: str | os.PathLike[str] | None = None,
    report: str | os.PathLike[str] | None = None,
    jobs: int | None = None,
    progress: Progress = None,
) -> Study:
    """Runs every combination of what ``grid`` varies: ``quietmm sweep`` (docs/sweep.md).

    ``sweep({"cpus": "1,2,4..64", "policy": ["linux", "quiet"], "seed": range(1, 6)}, "unmap-storm", out="study.jsonl")``. What can be varied are
    ``workload``, ``machine``, ``policy``, ``cpus``, ``threads``, ``scale``, ``parts``, ``trace``, ``seed`` and each constant of a machine; what is not
    varied is said by the parameter of that name.

    Without ``address`` it runs on this machine, ``jobs`` threads side by side (every core). With one, on that Ray cluster: ``"auto"`` for the one that
    this machine is part of, ``"ray://HOST:10001"``, ``"local"`` for one that is begun here. Workers and machines may come, go and die meanwhile.

    ``out`` is the file of the results. It has the same bytes wherever it is run, and with however many workers; one that is there is gone on with, also
    by the command, and after Ctrl-C. Without it the file goes with the result. ``csv`` and ``report`` write a table and a page beside it.

    Raises ``InputError`` before anything runs for a grid that cannot be, ``RunError`` at the end if points failed or did harm; its ``result`` is the
    study. Points that failed have an ``error``.
    """
    kept = None
    if out is None:
        kept = tempfile.TemporaryDirectory(prefix="quietmm-")
        out = os.path.join(kept.name, "study.jsonl")
    if isinstance(machine, Machine) and "machine" in grid:
        raise InputError("the machine is varied too; one of both")
    words = [] if workload is None else [str(workload)]
    words += [f"--vary={name}={_values(values)}" for name, values in grid.items()]
    words += flags(machine, sets, policy=policy, cpus=cpus, scale=scale, threads=threads, parts=parts, trace=trace, seed=seed)
    words += [f"--break={broken}"] if broken is not None else []
    files = flags(None, None, out=os.fspath(out), shard=shard, csv=csv, report=report)
    if address is None:
        code, _, complaints = told(["sweep", *words, *files, *flags(None, None, jobs=jobs)], progress)
    else:
        code, complaints = _on_cluster(address, jobs, tuple(words), files, progress)
    if code == 2:
        raise error_of(code, complaints)
    try:
        found = study(out)
        result = Study(Path(out), found.header, len(found), kept)
    except (OSError, InputError):
        if code == 0:
            raise
        # What went wrong, not that nothing came of it.
        raise error_of(code, complaints) from None
    if code != 0:
        raise RunError("\n".join(complaints), result)
    return result


def _on_cluster(address: str, jobs: int | None, words: tuple[str, ...], files: list[str], progress: Progress) -> tuple[int, list[str]]:
    with translated():
        file = _quietmm.Sweep([*words, *files], True)
        try:
            missing = file.missing()
            # Which part of a grid it is matters only to the file.
            job = SweepJob(words, _quietmm.Sweep(words).header)
            with teller(progress) as tell:
                if missing:
                    spread(job, missing, crew_at(address, jobs), file.take, tell)
            code, _, complaints = file.conclude()
            return code, complaints
        finally:
            # Whoever keeps the exception keeps the file, but not for himself.
            file.close()
