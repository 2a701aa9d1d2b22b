"""Policies of memory management, compared on simulated machines: the laboratory of quietmm, for Python.

>>> import quietmm
>>> quietmm.compare(policies=["linux", "quiet"], machine="uma-8", scale=2048).gain("ipis_per_reclaimed_page")["quiet"]
100.0

The figures are those of the command ``quietmm``, to the last digit.
"""

from ._quietmm import __revision__, __version__
from .commands import check, compare, replay, run
from .errors import HarmError, InputError, QuietmmError, RunError
from .hunting import Finding, Hunt, hunt
from .results import Checked, Comparison, Coverage, Latency, Run, Spread, Violation
from .sweeping import Point, Study, study, sweep
from .things import (
    Constant, Figure, Machine, Named, Policy, Workload,
    figure, machine, machines, mechanisms, policies, policy, rules, scenarios, traces, workloads,
)

__all__ = [
    "Checked", "Comparison", "Constant", "Coverage", "Figure", "Finding", "HarmError", "Hunt", "InputError", "Latency", "Machine", "Named", "Point",
    "Policy", "QuietmmError", "Run", "RunError", "Spread", "Study", "Violation", "Workload", "__revision__", "__version__", "check", "compare", "figure",
    "hunt", "machine", "machines", "mechanisms", "policies", "policy", "replay", "rules", "run", "scenarios", "study", "sweep", "traces", "workloads",
]
