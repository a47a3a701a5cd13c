"""``tfrtool index``."""

from tfrtool.cli.output import Outcome, emit, warn
from tfrtool.cli.parameters import SHARDS, LocalPath, command, shards_of


@command(
    "tfrtool index 'data/*-train.tfrecord-*'",
    "tfrtool index data/cats_vs_dogs --out indices",
    options={
        "--out DIR": "Write them there instead, into folders as the shards are in: other tools' "
        "patterns take what stands beside shards for one."
    },
    kinds={"DIR": LocalPath(written=True, file_okay=False)},
)
@SHARDS
def index_command(shards: tuple[str, ...], out: str | None, as_json: bool) -> Outcome:
    """Write an index for DALI beside each shard.

    SHARD.idx has a line "offset size" for each record, in bytes, the frame of 16 bytes included.
    Existing indices are replaced. Only the framing is checked: tfrtool verify finds damage within
    payloads. SHARDS: files, quoted globs and directories. Compressed shards and those with damaged
    framing can't be indexed: the others are, with exit code 3. tfrtool.open needs no index.
    """
    from tfrtool.errors import ShardError, printable
    from tfrtool.records.random_access import index_paths, write_index
    from tfrtool.storage.locations import as_path

    paths = shards_of(shards)
    places = index_paths(paths, None if out is None else as_path(out))
    errors: list[ShardError] = []
    for path, place in zip(paths, places, strict=True):
        try:
            records, name = write_index(path, place), printable(str(place))
        except ShardError as error:
            errors.append(error)
            if len(errors) == len(paths):
                raise
            warn(f"not indexed: {printable(str(error))}")
            continue
        data = {"path": printable(str(path)), "index": name, "records": records}
        emit(data if as_json else f"{records:>12,}  {name}")
    return Outcome.DAMAGE if errors else Outcome.FINE
