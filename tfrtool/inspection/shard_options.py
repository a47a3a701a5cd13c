"""The options of `inspect shard`. They load no module that other commands need for theirs."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tfrtool.declare import Options, option

if TYPE_CHECKING:
    from tfrtool.examples.schema import Schema


@dataclass(frozen=True, kw_only=True)
class ProtoOptions(Options):
    """What records are, if they are neither Examples nor SequenceExamples."""

    proto: str | None = option(
        None,
        "Decode records as MESSAGE. FILE is what protoc --descriptor_set_out --include_imports "
        "writes.",
        metavar="FILE:MESSAGE",
    )


@dataclass(frozen=True, kw_only=True)
class ShardOptions(Options):
    """What is shown of a shard."""

    limit: int = option(3, "Number of records to show per shard.", metavar="N", least=0)
    record: int | None = option(
        None, "Show the record with this index, counted from 0.", metavar="I", least=0
    )
    schema: "Schema | None" = option(
        None, "schema to parse with. None uses the inferred schema.", cli=None
    )
    whole: bool = option(
        False, "Read remote shards completely, not only the records to show.", cli="--all"
    )
