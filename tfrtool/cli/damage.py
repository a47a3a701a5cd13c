"""What commands do about damage that is left out."""

from collections.abc import Sequence

from tfrtool.cli.output import Outcome, warn
from tfrtool.cli.render.page import shortened
from tfrtool.errors import ShardError, human_count, printable
from tfrtool.records.framing import LocatedFault

_NAMED = 10


def warn_of_damage(lines: Sequence[str]) -> None:
    """Name the first lines about records that are left out."""
    for line in shortened(lines, _NAMED, hint="tfrtool verify --json lists all damage"):
        warn(f"left out: {line}")


class Damage:
    """Names the first of what is left out, and counts all: a verb's ``on_fault``."""

    def __init__(self, on_error: str) -> None:
        """Go on, or stop at the first damage with an error."""
        self._stop = on_error == "stop"
        self._count = 0

    def __call__(self, found: LocatedFault) -> None:
        """Name a fault."""
        if self._stop:
            from tfrtool.records.count import as_error

            raise as_error(found.path, found.fault)
        self._count += 1
        if self._count <= _NAMED:
            warn(str(found))

    def outcome(self) -> Outcome:
        """Say how many were not named, and return how the command ended."""
        more = self._count - _NAMED
        if more > 0:
            warn(f"{human_count(more, 'fault')} more; tfrtool verify --json lists them all")
        return Outcome.DAMAGE if self._count else Outcome.FINE


class UnreadableShards:
    """Names shards that can't be read while the others are, and ends with an error."""

    def __init__(self, total: int) -> None:
        """Begin a command on so many shards."""
        self._total, self._count = total, 0

    def add(self, error: ShardError) -> None:
        """Name a shard that can't be read; if there are no others, raise the error."""
        if self._total == 1:
            raise error
        self._count += 1
        warn(printable(str(error)))

    def check(self) -> None:
        """Raise an error if there were any."""
        if self._count:
            shards = human_count(self._total, "shard")
            raise ShardError(f"{self._count:,} of {shards} can't be read")
