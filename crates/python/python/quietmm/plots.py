"""Pictures, by matplotlib. Each takes the axes to draw on, or makes some, and returns them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .results import Spread
from .things import figure

if TYPE_CHECKING:
    import matplotlib.axes


def _axes(ax: matplotlib.axes.Axes | None) -> Any:
    if ax is not None:
        return ax
    import matplotlib.pyplot

    return matplotlib.pyplot.subplots(layout="constrained")[1]


def label(key: str) -> str:
    """A figure's name and unit."""
    what = figure(key)
    return f"{what.label}, {what.unit}" if what.unit else what.label


def bars(title: str, key: str, spreads: Mapping[str, Spread], ax: matplotlib.axes.Axes | None) -> Any:
    """A bar for each name."""
    ax = _axes(ax)
    errors = [spread.stddev for spread in spreads.values()]
    ax.barh(list(spreads), [spread.mean for spread in spreads.values()], xerr=errors if any(errors) else None)
    ax.invert_yaxis()
    ax.set(xlabel=label(key), title=title)
    return ax


def curves(
    key: str, x: str, lines: Mapping[str, Sequence[tuple[float, Spread]]], logarithmic: bool, ax: matplotlib.axes.Axes | None
) -> Any:
    """A line for each name, with the standard deviation of each point."""
    ax = _axes(ax)
    for name, points in lines.items():
        xs, spreads = [at for at, _ in points], [spread for _, spread in points]
        errors = [spread.stddev for spread in spreads]
        ax.errorbar(xs, [spread.mean for spread in spreads], errors if any(errors) else None, label=name, marker="o", capsize=3)
    if logarithmic:
        ax.set_xscale("log", base=2)
    ax.set(xlabel=x, ylabel=label(key))
    if len(lines) > 1:
        ax.legend()
    return ax
