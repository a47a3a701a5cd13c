"""``tfrtool count``."""

from tfrtool.cli.damage import unreadable_shards, warn_of_unreadable
from tfrtool.cli.output import Outcome, emit, warn
from tfrtool.cli.parameters import SHARDS, command, resolve_sources
from tfrtool.cli.process import stdout_closed

_AT_ONCE = 4
"""Remote shards to count at once: most of the time is spent waiting for the store."""


@command("tfrtool count train.tfrecord", "tfrtool count 'data/*-train.tfrecord-*'")
@SHARDS
def count_command(shards: tuple[str, ...], as_json: bool) -> Outcome:
    """Count the records of each shard, and in total.

    SHARDS are files, quoted globs and directories, or - for a shard on standard input. Only the
    framing is checked; run tfrtool verify to find damaged payloads.

    Exit code 3 means that a shard's framing is damaged; only the records that could be reached are
    counted.
    """
    from tfrtool.engines.pool import run_in_order
    from tfrtool.errors import ShardError, printable
    from tfrtool.records.count import ShardCount, count_shard
    from tfrtool.records.stream import Location, path_of
    from tfrtool.storage.remote_path import RemotePath

    def counted(source: Location) -> ShardCount | ShardError:
        try:
            return count_shard(source)
        except ShardError as error:
            return error

    sources = resolve_sources(shards)
    outcome, total, unreadable = Outcome.FINE, 0, 0
    at_once = _AT_ONCE if any(isinstance(one, RemotePath) for one in sources) else 1
    counts = run_in_order(counted, sources, at_once, computes=False)
    for source, count in zip(sources, counts, strict=True):
        if isinstance(count, ShardError):
            warn_of_unreadable(count, len(sources))
            unreadable += 1
            continue
        total += count.records
        name = printable(str(path_of(source)))
        for fault in count.faults[:1]:
            outcome = Outcome.DAMAGE
            more = f" (and {count.fault_count - 1:,} more)" if count.fault_count > 1 else ""
            warn(f"{name}: {fault.title}: {printable(fault.message)}{more}")
        data = {"path": name, "records": count.records}
        emit(data if as_json else f"{count.records:>12,}  {name}")
        if stdout_closed():
            return outcome
    if len(sources) > 1 and not as_json:
        emit(f"{total:>12,}  total")
    if unreadable:
        raise unreadable_shards(unreadable, len(sources))
    return outcome
