"""Runs and checks: each is the command of the same name, with the same figures."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

from . import _quietmm
from .errors import HarmError, InputError, error_of
from .progress import Progress, teller
from .results import Checked, Comparison
from .things import AnyMachine, AnyPolicy, Machine

__all__ = ["check", "compare", "replay", "run"]

#: What `quietmm compare` compares where nothing is said.
POLICIES = ("linux+unmap=per-page", "linux", "quiet")


def flags(
    machine: AnyMachine | None,
    sets: Mapping[str, object] | None,
    **values: object,
) -> list[str]:
    """The flags of a command line; what is ``None`` is not said."""
    words = []
    changed: dict[str, object] = {}
    if isinstance(machine, Machine):
        changed.update(machine.sets)
    if machine is not None:
        words.append(f"--machine={os.fspath(machine) if not isinstance(machine, Machine) else machine.name}")
    changed.update(sets or {})
    words += [f"--set={key}={value}" for key, value in changed.items()]
    return words + [f"--{name.rstrip('_').replace('_', '-')}={value}" for name, value in values.items() if value is not None]


def names(given: str | Iterable[object]) -> list[str]:
    """Names one after another, or as the command takes them: ``"linux,quiet"``."""
    return given.split(",") if isinstance(given, str) else [str(one) for one in given]


def told(words: list[str], progress: Progress, unit: str = "runs") -> tuple[int, bytes, list[str]]:
    """Obeys, and tells how far it is."""
    with teller(progress, unit) as tell:
        whole = None if tell is None else lambda done, all: tell(done / 1000, all / 1000)
        return _quietmm.obey(words, whole)


def _compared(words: list[str], progress: Progress) -> Comparison:
    code, output, complaints = told([*words, "--json"], progress)
    if not output:
        raise error_of(code, complaints)
    results = json.loads(output)
    if len(results) != 1:
        raise InputError("one machine at a time; several are a sweep")
    result = Comparison.of(results[0])
    if code != 0:
        raise HarmError("\n".join([*complaints, *(story for run in result.runs for story in run.stories[:1])]), result)
    return result


def run(
    workload: str = "lru-file-mmap-read",
    policy: AnyPolicy = "linux",
    *,
    machine: AnyMachine | None = None,
    cpus: int | None = None,
    scale: int | None = None,
    threads: int | None = None,
    parts: int | None = None,
    trace: str | None = None,
    sets: Mapping[str, object] | None = None,
    seed: int = 1,
    runs: int = 1,
    broken: str | None = None,
    profile: bool = False,
    jobs: int | None = None,
    progress: Progress = None,
) -> Comparison:
    """Runs one workload under one policy on a simulated machine: ``quietmm run``.

    ``cpus`` is how many CPUs the machine is given, ``scale`` what memory and work are divided by; ``sets`` changes constants, with their units
    (``{"ipi_send": "2us"}``); seeds are ``seed`` to ``seed + runs - 1``. ``broken`` leaves a rule out. ``jobs`` host threads run side by side, and
    change no figure. The figures of the run are ``run(...).metrics``; ``figure(key)`` has their units: ``elapsed_s`` is in seconds, IPIs are counts.

    Raises ``InputError`` for what cannot be run, ``RunError`` for a run that fails, ``HarmError`` where memory was used after it was freed although no
    rule is broken. Ctrl-C ends it at once.
    """
    words = ["run", str(workload), f"--policy={policy}"]
    words += flags(machine, sets, cpus=cpus, scale=scale, threads=threads, parts=parts, trace=trace, seed=seed, runs=runs, jobs=jobs)
    words += [f"--break={broken}"] if broken is not None else []
    words += ["--profile"] if profile else []
    return _compared(words, progress)


def compare(
    workload: str = "lru-file-mmap-read",
    policies: str | Iterable[AnyPolicy] = POLICIES,
    *,
    machine: AnyMachine | None = None,
    cpus: int | None = None,
    scale: int | None = None,
    threads: int | None = None,
    parts: int | None = None,
    trace: str | None = None,
    sets: Mapping[str, object] | None = None,
    seed: int = 1,
    runs: int = 1,
    broken: str | None = None,
    profile: bool = False,
    jobs: int | None = None,
    progress: Progress = None,
) -> Comparison:
    """Runs the same work under several policies, of which the first is the baseline: ``quietmm compare``. Parameters and errors are those of ``run``."""
    chosen = names(policies)
    if not chosen:
        raise InputError("no policies; one at least, of which the first is the baseline")
    words = ["compare", str(workload), f"--policies={','.join(chosen)}"]
    words += flags(machine, sets, cpus=cpus, scale=scale, threads=threads, parts=parts, trace=trace, seed=seed, runs=runs, jobs=jobs)
    words += [f"--break={broken}"] if broken is not None else []
    words += ["--profile"] if profile else []
    return _compared(words, progress)


def _checked(words: list[str], progress: Progress) -> Any:
    code, output, complaints = told(["check", *words, "--json"], progress, "searches")
    if not output:
        raise error_of(code, complaints)
    return json.loads(output)


def check(
    *scenarios: str,
    architecture: str | None = None,
    mutant: str | None = None,
    schedules: int | None = None,
    departures: int | None = None,
    ways: str | Iterable[str] | None = None,
    seed: int = 1,
    save: str | os.PathLike[str] | None = None,
    jobs: int | None = None,
    progress: Progress = None,
) -> Checked:
    """Looks for a schedule that breaks an invariant: ``quietmm check``.

    ``scenarios`` are all unless named, on machines of that ``architecture``: x86-64, but for those that are about another.
    ``schedules`` are tried by each random way, twice as many for each kind of hardware by the exhaustive one, which
    departs from the ordinary order at so many ``departures``; ``ways`` are ``random``, ``priorities`` and ``exhaustive``, all unless some are named. With ``mutant`` that rule is left out (``"all"``: each in turn), and a schedule must show
    it. Counterexamples are put into the folder ``save``, where you are if none is named. What is found is in the result and raises nothing: ``.ok``.
    """
    words = [*map(str, scenarios), *flags(None, None, architecture=architecture, mutant=mutant, schedules=schedules, departures=departures)]
    words += flags(None, None, seed=seed, way=None if ways is None else ",".join(names(ways)), jobs=jobs)
    words += [f"--save={os.fspath(save)}"] if save is not None else []
    return Checked.of(_checked(words, progress))


def replay(file: str | os.PathLike[str]) -> Mapping[str, Any]:
    """Runs a counterexample's file again: ``as_saved`` says whether it does what it says."""
    return dict(_checked([f"--replay={os.fspath(file)}"], False))
