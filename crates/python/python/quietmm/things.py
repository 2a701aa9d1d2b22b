"""What there is to choose from: machines with the source of each constant, policies, workloads, scenarios, rules, figures."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Union

from . import _quietmm
from .errors import InputError, error_of

__all__ = [
    "Constant", "Figure", "Machine", "Named", "Policy", "Workload",
    "figure", "machine", "machines", "mechanisms", "policies", "policy", "rules", "scenarios", "traces", "workloads",
]


@dataclass(frozen=True)
class Named:
    """A name, and what it is."""

    name: str
    about: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Constant:
    """A constant of a machine: ``value`` in ``unit``, as text, and where it is from."""

    key: str
    value: str
    unit: str
    source: str


@dataclass(frozen=True)
class Machine:
    """A machine that can be simulated.

    ``name`` is that of one that comes along, or a TOML file; ``memory`` is in bytes. ``sets`` are constants that were changed.
    """

    name: str
    about: str = field(compare=False)
    cpus: int = field(compare=False)
    memory: int = field(compare=False)
    constants: tuple[Constant, ...] = field(repr=False, compare=False)
    sets: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return self.name

    def __getitem__(self, key: str) -> Constant:
        """The constant of this name, with its section (``cost.ipi_send``) or without; as it was before ``but``."""
        for constant in self.constants:
            if key in (constant.key, constant.key.split(".", 1)[-1]):
                return constant
        raise KeyError(key)

    def but(self, **constants: Any) -> Machine:
        """The same with other constants, with their units: ``machine("numa-4x12").but(ipi_send="2us")``."""
        changed = dict(self.sets) | {key: str(value) for key, value in constants.items()}
        return replace(self, sets=tuple(changed.items()))


@dataclass(frozen=True)
class Policy:
    """A policy: a bundle, with other choices for some mechanisms behind it. ``about`` says what the bundle is."""

    name: str
    about: str = field(default="", compare=False)

    def __str__(self) -> str:
        return self.name

    def but(self, **choices: str) -> Policy:
        """The same with other choices: ``policy("linux").but(unmap="per-page")`` is ``linux+unmap=per-page``."""
        return Policy("+".join([self.name, *(f"{name}={choice}" for name, choice in choices.items())]), self.about)


@dataclass(frozen=True)
class Workload:
    """Work. ``machine`` and ``scale``, by which memory and work are divided, are what it has where nothing is said."""

    name: str
    about: str
    machine: str
    scale: int
    needs_trace: bool

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Figure:
    """What a figure is: its label, its ``unit`` (empty for a count), which way is ``better`` ("less", "more" or "")."""

    key: str
    label: str
    unit: str
    better: str
    about: str


AnyMachine = Union[str, "os.PathLike[str]", Machine]
AnyPolicy = Union[str, Policy]


def asked(words: list[str]) -> Any:
    """What a command prints as JSON."""
    code, output, complaints = _quietmm.obey([*words, "--json"])
    if code != 0:
        raise error_of(code, complaints)
    return json.loads(output)


@functools.lru_cache(maxsize=None)
def _list() -> Any:
    return asked(["list"])


def _named(kind: str) -> dict[str, Named]:
    return {one["name"]: Named(one["name"], one["about"]) for one in _list()[kind]}


def machine(name: AnyMachine) -> Machine:
    """A machine by its name, or from a TOML file (docs/machines.md), with each constant and its source."""
    if isinstance(name, Machine):
        return name
    name = os.fspath(name)
    found = asked(["list", f"--machine={name}"])
    constants = tuple(Constant(**constant) for constant in found["constants"])
    return Machine(name, found["about"], found["cpus"], found["memory"], constants)


class _Machines(Mapping[str, Machine]):
    """All machines; the constants of one are read when it is looked at."""

    def __getitem__(self, name: str) -> Machine:
        if name not in _named("machines"):
            raise KeyError(f"unknown machine '{name}'; there are {', '.join(self)}")
        return machine(name)

    def __iter__(self) -> Iterator[str]:
        return iter(_named("machines"))

    def __len__(self) -> int:
        return len(_named("machines"))

    def __repr__(self) -> str:
        return f"machines({', '.join(self)})"


def machines() -> Mapping[str, Machine]:
    """The machines that come along, by name."""
    return _Machines()


def policy(name: AnyPolicy, **choices: str) -> Policy:
    """A policy by its name: a bundle, with other choices behind it."""
    text = str(name)
    bundles = {one["name"]: one["about"] for one in _list()["policies"]["bundles"]}
    bundle = text.split("+")[0]
    if bundle not in bundles:
        raise InputError(f"unknown policy '{bundle}'; bundles are {', '.join(bundles)}")
    found = Policy(text, bundles[bundle])
    return found.but(**choices) if choices else found


def policies() -> dict[str, Policy]:
    """The bundles, by name; ``mechanisms()`` says what else can be chosen."""
    return {one["name"]: Policy(one["name"], one["about"]) for one in _list()["policies"]["bundles"]}


def mechanisms() -> dict[str, dict[str, str]]:
    """What a policy chooses: for each mechanism its choices, and what each does."""
    return {one["name"]: {each["name"]: each["about"] for each in one["choices"]} for one in _list()["policies"]["mechanisms"]}


def workloads() -> dict[str, Workload]:
    """The workloads, by name."""
    return {one["name"]: Workload(**one) for one in _list()["workloads"]}


def traces() -> dict[str, Named]:
    """Recordings of real programs that come along, for the workload ``trace``."""
    return _named("traces")


def scenarios() -> dict[str, Named]:
    """The situations that ``check`` explores."""
    return _named("scenarios")


def rules() -> dict[str, Named]:
    """Steps of the memory manager that can be left out, to see what happens."""
    return _named("rules")


def figure(key: str) -> Figure:
    """What the figure with this key is."""
    try:
        label, unit, better, about = _quietmm.figure(key)
    except ValueError as error:
        raise InputError(str(error)) from None
    return Figure(key, label, unit, better, about)
