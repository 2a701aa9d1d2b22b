"""The extension: the laboratory, called with the words of its command line."""

from collections.abc import Callable, Sequence

__version__: str
__revision__: str

class Failed(Exception):
    """A command failed: its exit code, and its complaints."""

Tell = Callable[[int, int], object]

def obey(words: Sequence[str], tell: Tell | None = None) -> tuple[int, bytes, list[str]]:
    """Does what the command does: its exit code, what it prints, its complaints.

    ``tell(done, all)`` is called some times a second, in thousandths of runs. What it raises stops the command, as a signal's handler does.
    """

def figure(key: str) -> tuple[str, str, str, str]:
    """The label, unit, better direction and meaning of a figure."""

def sealed(json: str) -> str:
    """The line of a JSON object, with a checksum at its end."""

def opened(line: bytes) -> str | None:
    """The text of such a line, or ``None`` if it is not as it was written."""

class SweepReader:
    """The lines of a sweep's file. What is wrong with one is a ``ValueError``."""

    def __new__(cls, line: bytes) -> SweepReader: ...
    @property
    def count(self) -> int: ...
    def point(self, line: bytes) -> int: ...

class Sweep:
    """The points of a sweep, one by one."""

    def __new__(cls, words: Sequence[str], file: bool = False) -> Sweep: ...
    @property
    def header(self) -> str: ...
    @property
    def counts(self) -> tuple[int, int]: ...
    def missing(self) -> list[int]: ...
    def run(self, points: Sequence[int], tell: Tell | None = None) -> list[str]: ...
    def take(self, lines: Sequence[str]) -> int: ...
    def conclude(self) -> tuple[int, bytes, list[str]]: ...
    def close(self) -> None: ...
