"""What can go wrong. The text of each is what the command says on standard error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from . import _quietmm

__all__ = ["HarmError", "InputError", "QuietmmError", "RunError"]


class QuietmmError(Exception):
    """A command failed."""


class InputError(QuietmmError, ValueError):
    """What was asked for cannot be: exit code 2 of the command."""


class RunError(QuietmmError, RuntimeError):
    """A run failed: exit code 1 of the command. ``result`` is what is there all the same, or ``None``."""

    def __init__(self, text: str, result: Any = None) -> None:
        super().__init__(text)
        self.result = result


class HarmError(RunError):
    """Memory was used after it was freed, or data was lost, although no rule was broken: a bug of the memory manager. ``result`` has the figures."""


def error_of(code: int, complaints: list[str]) -> QuietmmError:
    """The exception for an exit code."""
    text = "\n".join(complaints)
    return InputError(text) if code == 2 else RunError(text)


@contextmanager
def translated() -> Iterator[None]:
    """Failures of the extension become exceptions of this package."""
    try:
        yield
    except _quietmm.Failed as failed:
        raise error_of(*failed.args) from None
