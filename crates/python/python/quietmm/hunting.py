"""Hunts: ``check`` and ``churn`` with many seeds, as a study. What is found is told once for each invariant and place, by its shortest schedule."""

from __future__ import annotations

import json
import os
import re
import tempfile
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from . import _quietmm
from .commands import flags, names
from .crew import crew_at, spread
from .errors import InputError, error_of
from .progress import Progress, teller
from .things import AnyPolicy, scenarios as all_scenarios

__all__ = ["Finding", "Hunt", "hunt"]

#: What a run counts that must never be.
HARM = ("stale_accesses", "lost_writes", "wrong_contents")
CHURN = ("churn", "swap-churn")
POLICIES = ("linux", "vanilla", "quiet")


@dataclass(frozen=True)
class Finding:
    """What breaks an invariant somewhere, by the shortest schedule that was found: its ``length`` in departures from the ordinary order (of a run, which
    has none, ``None``). ``command`` finds it again, and ``file`` plays it (``quietmm check --replay``). ``seen`` says by how many searches."""

    invariant: str
    place: str
    what: str
    length: int | None
    command: str
    seen: int
    replay: str | None = field(repr=False)
    file: Path | None


@dataclass(frozen=True)
class Hunt:
    """What a hunt came to. ``schedules`` were played by checks, ``runs`` made of churn; ``path`` is its file, a line for each search."""

    findings: tuple[Finding, ...]
    searches: int
    schedules: int
    runs: int
    path: Path | None
    _kept: object = field(default=None, repr=False, compare=False)

    @property
    def ok(self) -> bool:
        """Nothing was found."""
        return not self.findings


@dataclass(frozen=True)
class HuntJob:
    """All searches: what is the same with every seed once, then each of the others with the first seed, then with the second."""

    once: tuple[tuple[str, ...], ...]
    each: tuple[tuple[str, ...], ...]
    seeds: Sequence[int]
    revision: str

    def words(self, item: int) -> list[str]:
        """The command line of a search."""
        if item < len(self.once):
            return list(self.once[item])
        item -= len(self.once)
        return [*self.each[item % len(self.each)], f"--seed={self.seeds[item // len(self.each)]}"]

    def count(self) -> int:
        """How many there are."""
        return len(self.once) + len(self.each) * len(self.seeds)

    def run(self, items: Sequence[int], tell: Callable[[int, int], object] | None = None) -> list[str]:
        """A line for each search."""
        if _quietmm.__revision__ != self.revision:
            raise InputError(f"all machines need the same build: a worker has {_quietmm.__revision__}, and here is {self.revision}")
        return [self._line(item, tell) for item in items]

    def _line(self, item: int, tell: Callable[[int, int], object] | None) -> str:
        words = self.words(item)
        line: dict[str, Any] = {"item": item, "command": "quietmm " + " ".join(words)}
        with tempfile.TemporaryDirectory(prefix="quietmm-") as folder:
            kept = [f"--save={folder}"] if words[0] == "check" else []
            code, output, complaints = _quietmm.obey([*words, *kept, "--jobs=1", "--json"], tell)
            if code == 2:
                raise error_of(code, complaints)
            if not output:
                if words[0] == "check":
                    line["schedules"] = 0
                line["findings"] = [_finding("failed", words[1], "\n".join(complaints))]
            elif words[0] == "check":
                found = json.loads(output)
                line["schedules"] = found["schedules"] if "schedules" in found else _tried(found)
                stories = found.get("violations") or [one for one in [found.get("counterexample")] if one]
                line["findings"] = [_finding_of(story) for story in stories]
            else:
                line["findings"] = [one for run in json.loads(output)[0]["runs"] for one in _harm(words[1], run)]
        return _quietmm.sealed(json.dumps(line, separators=(",", ":")))


def _tried(found: Mapping[str, Any]) -> int:
    """Schedules of a search for mutants."""
    return sum(way["schedules"] for rule in found["rules"] for way in rule.values() if isinstance(way, dict) and "schedules" in way)


def _finding(invariant: str, where: str, what: str, length: int | None = None, replay: str | None = None) -> dict[str, Any]:
    # One place is where the same is said but for its numbers.
    place = f"{where}: {re.sub(r'0x[0-9a-f]+|[0-9]+', 'N', what)}"
    return {"invariant": invariant, "place": place, "what": what, "length": length, "replay": replay}


def _finding_of(story: Mapping[str, Any]) -> dict[str, Any]:
    replay = Path(story["file"]).read_text(encoding="utf-8") if story["file"] else None
    return _finding(story["invariant"], story["scenario"], story["what"], len(story["departures"]), replay)


def _harm(workload: str, run: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    counted = {key: run["metrics"].get(key, 0) for key in HARM}
    if any(counted.values()):
        stories = run.get("stories") or [""]
        names = ", ".join(key for key, count in counted.items() if count)
        story = stories[0].splitlines()[0] if stories[0] else names
        # Some stories name what was broken; the invariant that a rule that is left out serves may be another.
        broken = re.search(r"\((INV-[0-9]+)\)", story)
        yield _finding(broken[1] if broken else names, f"{workload} with {run['policy']}", story)


class _File:
    """The lines of a hunt: a header, then a line for each search that is done; in order when all are."""

    def __init__(self, path: Path, header: str, count: int) -> None:
        self.path, self.header, self.count = path, header, count
        # Of each search, whether it is done: a byte.
        self.done = bytearray(count)
        try:
            self._file: TextIO = open(path, "a+", encoding="utf-8", errors="replace", newline="\n")
        except OSError as why:
            raise InputError(f"{path}: {why.strerror}") from None
        try:
            self._locked()
            self._begin()
        except BaseException:
            self._file.close()
            raise

    def _begin(self) -> None:
        """Goes on behind what is there."""
        path, header = self.path, self.header
        self._file.seek(0)
        first = self._file.readline()
        if not first.endswith("\n"):
            # Nothing ever came behind a header that is cut.
            if not header.startswith(first):
                raise InputError(f"{path}: it is no file of a hunt; another name")
            self._file.truncate(0)
            self._file.write(header)
        elif first != header:
            # One that was refused before its first search left nothing but this.
            if not first.startswith('{"hunt":') or self._file.read(1):
                raise InputError(f"{path}: another hunt, or one of another build, is in it; another name, or the same call")
            self._file.truncate(0)
            self._file.write(header)
        else:
            end = self._file.tell()
            nth = 1
            while (line := self._file.readline()).endswith("\n"):
                nth += 1
                wrong = "is not as it was written"
                if (text := _quietmm.opened(line.encode())) is not None:
                    item = json.loads(text)["item"]
                    wrong = self._note(item)
                if wrong:
                    raise InputError(f"{path}: line {nth} {wrong}; take the line out, and its search is done again")
                end = self._file.tell()
            self._file.truncate(end)
        self._file.flush()

    def _note(self, item: int) -> str:
        """This search is done; or why it cannot be."""
        if not 0 <= item < self.count:
            return f"is of search {item}, and there are {self.count}, from 0"
        if self.done[item]:
            return f"is of search {item}, which was there before"
        self.done[item] = 1
        return ""

    def missing(self) -> Sequence[int]:
        """Searches that are not done."""
        if not any(self.done):
            return range(self.count)
        return array("Q", (item for item, done in enumerate(self.done) if not done))

    def _locked(self) -> None:
        try:
            import fcntl
        except ImportError:
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"{self.path}: another hunt writes there; wait for it, or give another name") from None
        except OSError:
            # A file system without locks.
            return

    def take(self, lines: list[str]) -> None:
        """Adds lines."""
        self._file.writelines(lines)
        self._file.flush()

    def lines(self) -> Iterator[dict[str, Any]]:
        """All lines that are there."""
        self._file.flush()
        with open(self.path, encoding="utf-8", errors="replace") as file:
            next(file)
            yield from map(json.loads, file)

    def finish(self) -> None:
        """Puts all lines in order, in one step."""
        # Where the line of each search begins: eight bytes each, however many there are.
        places = array("Q", bytes(8 * self.count))
        last, ordered = -1, True
        with open(self.path, "rb") as file:
            at = len(file.readline())
            for line in file:
                item = json.loads(line)["item"]
                places[item] = at
                last, ordered = item, ordered and last < item
                at += len(line)
            if not ordered:
                beside = self.path.with_name(f".{self.path.name}.{os.getpid()}.partial")
                with open(beside, "wb") as to:
                    to.write(self.header.encode())
                    for place in filter(None, places):
                        file.seek(place)
                        to.write(file.readline())
                    to.flush()
                    os.fsync(to.fileno())
                os.replace(beside, self.path)

    def close(self) -> None:
        """Lets go of it: others may write it."""
        self._file.close()


def hunt(
    scenarios: str | Iterable[str] | None = None,
    *,
    seeds: Iterable[int] = range(1, 11),
    workloads: str | Iterable[str] = CHURN,
    policies: str | Iterable[AnyPolicy] = POLICIES,
    schedules: int | None = None,
    departures: int | None = None,
    scale: int | None = None,
    mutant: str | None = None,
    out: str | os.PathLike[str] | None = None,
    save: str | os.PathLike[str] | None = None,
    address: str | None = None,
    jobs: int | None = None,
    progress: Progress = None,
) -> Hunt:
    """Looks for what breaks an invariant: ``check`` of each of ``scenarios`` (all), and a run of each of ``workloads`` under each of ``policies``, with
    each of ``seeds``. The exhaustive way of ``check``, which is the same with every seed, is gone once.

    ``schedules`` and ``departures`` are those of ``check``, ``scale`` that of the runs. ``mutant`` leaves a rule out everywhere: then something must be
    found. ``address`` is a Ray cluster, as for ``sweep``. ``out`` is the file, a line for each search, the same bytes with any number of workers; one
    that is there is gone on with. The replay file of each finding is put into the folder ``save``.
    """
    checked = list(all_scenarios()) if scenarios is None else names(scenarios)
    far = flags(None, None, mutant=mutant, schedules=schedules)
    once = [("check", name, "--way=exhaustive", *far, *flags(None, None, departures=departures)) for name in checked]
    each = [("check", name, "--way=random,priorities", *far) for name in checked]
    broken = [f"--break={mutant}"] if mutant is not None else []
    runs = [(work, one) for work in names(workloads) for one in names(policies)]
    each += [("run", work, f"--policy={one}", *flags(None, None, scale=scale), *broken) for work, one in runs]
    seeds = seeds if isinstance(seeds, range) else list(seeds)
    if not each or not len(seeds):
        raise InputError("nothing to look at: no scenario and no workload, or no seed")
    job = HuntJob(tuple(once), tuple(each), seeds, _quietmm.__revision__)
    kept = None
    if out is None:
        kept = tempfile.TemporaryDirectory(prefix="quietmm-")
        out = os.path.join(kept.name, "hunt.jsonl")
    asked = {"hunt": 1, "program": f"quietmm {_quietmm.__version__}", "revision": _quietmm.__revision__, "once": once, "each": each}
    told_seeds = f"{seeds.start}..{seeds.stop}:+{seeds.step}" if isinstance(seeds, range) else seeds
    file = _File(Path(out), json.dumps({**asked, "seeds": told_seeds}, separators=(",", ":")) + "\n", job.count())
    try:
        with teller(progress, "searches") as tell:
            spread(job, file.missing(), crew_at(address, jobs), file.take, tell)
        found = _told(file, Path(save) if save is not None else None)
        file.finish()
    finally:
        file.close()
    return Hunt(*found, path=Path(out), _kept=kept)


def _told(file: _File, save: Path | None) -> tuple[tuple[Finding, ...], int, int, int]:
    """Each finding once; searches, schedules, runs."""
    best: dict[tuple[str, str], tuple[tuple[int, int], dict[str, Any], str]] = {}
    seen: dict[tuple[str, str], int] = {}
    searches = schedules = runs = 0
    for line in file.lines():
        searches += 1
        schedules += line.get("schedules", 0)
        runs += "schedules" not in line
        for one in line["findings"]:
            key = (one["invariant"], one["place"])
            seen[key] = seen.get(key, 0) + 1
            # Among those of a length the first: the same whoever came when.
            rank = (one["length"] or 0, line["item"])
            if key not in best or rank < best[key][0]:
                best[key] = (rank, one, line["command"])
    findings = []
    for nth, key in enumerate(sorted(best), 1):
        _, one, command = best[key]
        path = None
        if save is not None and one["replay"]:
            save.mkdir(parents=True, exist_ok=True)
            name = re.sub(r"[^A-Za-z0-9-]+", "-", f"{one['invariant']}-{one['place'].split(':')[0]}")
            path = save / f"{nth:03}-{name}.replay.toml"
            path.write_text(one["replay"], encoding="utf-8")
        findings.append(Finding(*key, one["what"], one["length"], command, seen[key], one["replay"], path))
    return tuple(findings), searches, schedules, runs
