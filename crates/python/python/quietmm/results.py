"""What came of it. Figures are those of the command's JSON, to the last digit; ``figure(key)`` says what each is, and its unit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import matplotlib.axes
    import pandas
    import polars

__all__ = ["Checked", "Comparison", "Coverage", "Frame", "Latency", "Run", "Spread", "Violation"]

Json = Mapping[str, Any]


class Frame:
    """What can become a frame: a row for each run."""

    def rows(self) -> list[dict[str, Any]]:
        """A dictionary for each run: what it was, then its figures."""
        raise NotImplementedError

    def to_pandas(self) -> pandas.DataFrame:
        """As a pandas frame, a line for each run. Needs ``pip install quietmm[pandas]``."""
        import pandas

        return pandas.DataFrame(self.rows())

    def to_polars(self) -> polars.DataFrame:
        """As a polars frame, a line for each run. Needs ``pip install quietmm[polars]``."""
        import polars

        return polars.DataFrame(self.rows(), infer_schema_length=None)


@dataclass(frozen=True)
class Spread:
    """Mean, and standard deviation of the sample, over ``count`` runs."""

    mean: float
    stddev: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Of these values, of which there is one at least."""
        return cls(fmean(values), stdev(values) if len(values) > 1 else 0.0, len(values))

    @property
    def error(self) -> float:
        """The standard error of the mean."""
        return float(self.stddev / self.count**0.5)

    def __str__(self) -> str:
        return f"{self.mean:.4g} ± {self.stddev:.2g}"


@dataclass(frozen=True)
class Latency:
    """How long an operation took, in nanoseconds: how many, their mean, and percentiles by name (``p50``, ``p99``)."""

    count: int
    json: Json = field(repr=False)

    def __getitem__(self, key: str) -> float:
        return float(self.json[key])


@dataclass(frozen=True)
class Run:
    """One run: ``metrics`` by key, ``latency`` by operation and pages (``"all"`` for any), and ``json``, all that the command has for it."""

    policy: str
    seed: int
    metrics: Mapping[str, float]
    json: Json = field(repr=False, compare=False)

    @classmethod
    def of(cls, json: Json) -> Run:
        """From the command's JSON."""
        return cls(json["policy"], json["seed"], json["metrics"], json)

    def __getitem__(self, key: str) -> float:
        return self.metrics[key]

    @property
    def latency(self) -> dict[str, dict[str, Latency]]:
        """Latencies, in nanoseconds, by operation, then by pages."""
        every = self.json.get("latency", {})
        return {op: {pages: Latency(one.get("count", 0), one) for pages, one in by.items()} for op, by in every.items()}

    @property
    def stories(self) -> tuple[str, ...]:
        """The first accesses that must never be, told."""
        return tuple(self.json.get("stories", ()))


@dataclass(frozen=True)
class Comparison(Frame):
    """One workload on one machine under some policies, the first of which is the baseline.

    ``command`` is the command line that comes to the same figures; ``verdict`` is what it comes to in words.
    """

    workload: str
    machine: str
    cpus: int
    scale: int
    policies: tuple[str, ...]
    runs: tuple[Run, ...]
    verdict: tuple[str, ...]
    notes: tuple[str, ...]
    command: str
    json: Json = field(repr=False, compare=False)

    @classmethod
    def of(cls, json: Json) -> Comparison:
        """From the command's JSON."""
        return cls(
            json["workload"], json["machine"], json["cpus"], json["scale"],
            tuple(one["name"] for one in json["policies"]), tuple(map(Run.of, json["runs"])),
            tuple(json["verdict"]), tuple(json["notes"]), json["command"], json,
        )

    @property
    def run(self) -> Run:
        """The only run; of several, that of the first policy with the first seed."""
        return self.runs[0]

    @property
    def metrics(self) -> Mapping[str, float]:
        """The figures of the only run."""
        return self.run.metrics

    def __getitem__(self, key: str) -> dict[str, Spread]:
        """A figure, by policy, over its seeds."""
        return {name: Spread.of([run[key] for run in self.runs if run.policy == name]) for name in self.policies}

    def gain(self, key: str = "elapsed_s") -> dict[str, float]:
        """By how many per cent of the baseline's each policy's figure is smaller, in the mean over seeds."""
        spreads = self[key]
        first = spreads[self.policies[0]].mean
        return {name: (1 - spread.mean / first) * 100 if first else 0.0 for name, spread in spreads.items()}

    def rows(self) -> list[dict[str, Any]]:
        """A dictionary for each run: what it was, then its figures."""
        same = {"workload": self.workload, "machine": self.machine, "cpus": self.cpus, "scale": self.scale}
        return [{**same, "policy": run.policy, "seed": run.seed, **run.metrics} for run in self.runs]

    def plot(self, key: str = "elapsed_s", ax: matplotlib.axes.Axes | None = None) -> Any:
        """A bar for each policy; with several seeds the standard deviation on it. Needs ``pip install quietmm[plot]``."""
        from .plots import bars

        return bars(f"{self.workload}, {self.machine}, {self.cpus} CPUs", key, self[key], ax)

    def __str__(self) -> str:
        return "\n".join(self.verdict) or self.command


@dataclass(frozen=True)
class Coverage:
    """What was tried of a scenario, on a machine of this ``architecture``: schedules, how many of these were different, decisions of the ordinary
    runs and how many were made otherwise; ``complete`` if all schedules with so few departures were tried."""

    scenario: str
    architecture: str
    schedules: int
    distinct: int
    steps: int
    points: int
    departed: int
    complete: bool
    violation: str | None


@dataclass(frozen=True)
class Violation:
    """A schedule that breaks an invariant, as short as it became: its ``departures`` from the ordinary order, and its file for ``replay``."""

    scenario: str
    architecture: str
    invariant: str
    what: str
    rule: str | None
    departures: tuple[tuple[int, str], ...]
    file: str | None
    json: Json = field(repr=False, compare=False)

    @classmethod
    def of(cls, json: Json) -> Violation:
        """From the command's JSON."""
        made = tuple((at, act) for at, act in json["departures"])
        return cls(json["scenario"], json["architecture"], json["invariant"], json["what"], json["rule"], made, json["file"], json)


@dataclass(frozen=True)
class Checked(Frame):
    """What a check came to. With a rule left out a violation is what is looked for; else it is a bug."""

    coverage: tuple[Coverage, ...]
    violations: tuple[Violation, ...]
    missed: tuple[str, ...]
    json: Json = field(repr=False, compare=False)

    @classmethod
    def of(cls, json: Json) -> Checked:
        """From the command's JSON."""
        found = json.get("violations") or [one for one in [json.get("counterexample")] if one]
        coverage = tuple(Coverage(**one) for one in json.get("scenarios", ()))
        return cls(coverage, tuple(map(Violation.of, found)), tuple(json.get("missed", ())), json)

    @property
    def ok(self) -> bool:
        """Nothing is broken; with rules left out: each was found."""
        return not self.missed if "mutants" in self.json else not self.violations

    def rows(self) -> list[dict[str, Any]]:
        """A dictionary for each scenario."""
        return [dict(vars(one)) for one in self.coverage]
