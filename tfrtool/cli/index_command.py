"""``tfrtool index``."""

from __future__ import annotations

import click

from tfrtool.cli.options import debug_option, json_option
from tfrtool.cli.output import emit, emit_json
from tfrtool.cli.parameters import INPUT, shards_of

__all__ = ["index_command"]


@click.command(
    name="index",
    epilog="\b\nExample:\n  tfrtool index 'data/*-train.tfrecord-*'",
)
@click.argument("shards", nargs=-1, required=True, type=INPUT)
@json_option
@debug_option
def index_command(shards: tuple[str, ...], as_json: bool) -> None:
    """Write an index beside each shard: SHARD.idx, a line "offset size" for each record.

    DALI reads it, and so does tfrtool.open. Offset and size are in bytes, the frame of 16 bytes
    included. An index that is there is replaced. SHARDS: files, quoted globs and directories;
    compressed shards can't be indexed.
    """
    from tfrtool.errors import printable
    from tfrtool.records.index import index_path, write_index

    for path in shards_of(shards):
        records = write_index(path)
        if as_json:
            emit_json(
                {
                    "path": printable(str(path)),
                    "index": printable(str(index_path(path))),
                    "records": records,
                }
            )
        else:
            emit(f"{records:>12,}  {printable(str(index_path(path)))}")
