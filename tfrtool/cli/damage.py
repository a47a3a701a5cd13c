"""Warnings about damaged records and unreadable shards, and the outcome they lead to."""

from collections.abc import Callable, Sequence

from tfrtool.cli.output import Outcome, warn
from tfrtool.errors import ShardError, human_count, printable
from tfrtool.page import shortened
from tfrtool.records.framing import LocatedFault

_NAMED = 10
"""Number of faults to print."""


def warn_of_damage(lines: Sequence[str]) -> None:
    """Print the first lines about skipped records."""
    for line in shortened(lines, _NAMED, hint="run tfrtool verify --json to list all damage"):
        warn(f"skipped: {line}")


class Damage:
    """Prints the first faults and counts all of them: a verb's ``on_fault``."""

    def __init__(self, on_error: str, *, before: Callable[[], None] = lambda: None) -> None:
        """Take "skip", or "stop" to raise an error at the first fault.

        ``before`` is called before a fault is printed.
        """
        self._stop, self._before = on_error == "stop", before
        self._count = 0

    def __call__(self, found: LocatedFault) -> None:
        """Print or count a fault."""
        if self._stop:
            from tfrtool.records.count import as_error

            raise as_error(found.path, found.fault)
        self._count += 1
        if self._count <= _NAMED:
            self._before()
            warn(str(found))

    def outcome(self) -> Outcome:
        """Print how many faults were not printed, and return the command's outcome."""
        more = self._count - _NAMED
        if more > 0:
            warn(f"{human_count(more, 'more fault')}; run tfrtool verify --json to list all")
        return Outcome.DAMAGE if self._count else Outcome.FINE


def warn_of_unreadable(error: ShardError, total: int) -> None:
    """Print that one of several shards can't be read; raise the error if it is the only one."""
    if total == 1:
        raise error
    warn(printable(str(error)))


def unreadable_shards(count: int, total: int) -> ShardError:
    """Return the error for a number of shards, of ``total``, that couldn't be read."""
    return ShardError(f"{count:,} of {human_count(total, 'shard')} can't be read")
