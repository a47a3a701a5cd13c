"""``tfrtool index``."""

from dataclasses import dataclass

from tfrtool.cli.output import Outcome, emit, warn
from tfrtool.cli.parameters import SHARDS, command, resolve_shards
from tfrtool.declare import Options, option


@dataclass(frozen=True, kw_only=True)
class _IndexOptions(Options):
    out: str | None = option(
        None,
        "Write the indexes to DIR instead of next to the shards.",
        metavar="DIR",
        path="output directory",
    )


@command(
    "tfrtool index 'data/*-train.tfrecord-*'",
    "tfrtool index data/cats_vs_dogs --out indexes",
    options=_IndexOptions,
)
@SHARDS
def index_command(shards: tuple[str, ...], out: str | None, as_json: bool) -> Outcome:
    """Write a DALI index next to each shard.

    SHARDS are files, quoted globs and directories. SHARD.idx has one line per record: its offset
    and its size in bytes, framing included. Existing indexes are replaced. Only the framing is
    checked; run tfrtool verify to find damaged payloads.

    Exit code 3 means that some shards couldn't be indexed, because they are compressed or their
    framing is damaged.
    """
    from tfrtool.errors import ShardError, printable
    from tfrtool.records.random_access import index_paths, write_index
    from tfrtool.storage.arguments import as_path

    paths = resolve_shards(shards)
    indexes = index_paths(paths, None if out is None else as_path(out))
    errors: list[ShardError] = []
    for path, index in zip(paths, indexes, strict=True):
        try:
            records, name = write_index(path, index), printable(str(index))
        except ShardError as error:
            errors.append(error)
            if len(errors) == len(paths):
                raise
            warn(f"not indexed: {printable(str(error))}")
            continue
        data = {"path": printable(str(path)), "index": name, "records": records}
        emit(data if as_json else f"{records:>12,}  {name}")
    return Outcome.DAMAGE if errors else Outcome.FINE
