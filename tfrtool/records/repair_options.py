"""The options of `repair`."""

from dataclasses import dataclass

from tfrtool.declare import Options, option
from tfrtool.records.checksum_styles import ChecksumStyle
from tfrtool.storage.progress import OnProgress, no_progress


@dataclass(frozen=True, kw_only=True)
class RepairOptions(Options):
    """What is accepted as a record."""

    accept_checksums: ChecksumStyle | str | None = option(
        None,
        "Read a file whose writer stored other checksums, which tfrtool verify names. Records are "
        "written with proper ones.",
        metavar="STYLE",
    )
    on_progress: OnProgress = option(
        no_progress,
        "called with the number of bytes read, if the shard is not compressed.",
        cli=None,
    )
