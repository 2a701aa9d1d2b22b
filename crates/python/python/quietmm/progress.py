"""How far it is: a bar in terminals and notebooks, or whatever a caller makes of it."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Union

__all__ = ["Progress"]

#: ``None``: a bar where somebody looks, if tqdm is there. ``False``: nothing. ``True``: a bar. A callable: it is called some times a second with how
#: many runs are done and how many there are; what it raises stops the work.
Progress = Union[None, bool, Callable[[float, float], object]]


#: Seconds between two pictures of a bar, at least.
DRAWN = 0.5


def _somebody_looks() -> bool:
    if "ipykernel" in sys.modules:
        return True
    return sys.stderr is not None and sys.stderr.isatty()


@contextmanager
def teller(progress: Progress, unit: str = "runs") -> Iterator[Callable[[float, float], object] | None]:
    """What is to be called with how much is done, and of how much."""
    if callable(progress):
        yield progress
        return
    if progress is False or (progress is None and not _somebody_looks()):
        yield None
        return
    try:
        if "ipykernel" in sys.modules and importlib.util.find_spec("ipywidgets"):
            from tqdm.notebook import tqdm
        else:
            from tqdm import tqdm
    except ImportError:
        yield None
        return
    form = "{l_bar}{bar}| {n:.1f} of {total:.0f} {unit} [{elapsed}, about {remaining} left]"
    with tqdm(total=0, unit=unit, bar_format=form, leave=False) as bar:

        drawn = 0.0

        def tell(done: float, all: float) -> None:
            nonlocal drawn
            # Notebooks without widgets keep all that was ever drawn.
            if done < all and time.monotonic() - drawn < DRAWN:
                return
            drawn = time.monotonic()
            bar.total = all
            bar.n = done
            bar.refresh()

        yield tell
