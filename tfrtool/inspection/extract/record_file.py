"""The image of one record as a file."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tfrtool.errors import ShardError, UsageError, WriteError, os_errors_as, printable
from tfrtool.examples.content import describe_bytes
from tfrtool.examples.example import PayloadKind, decode_example
from tfrtool.inspection.extract.extract import plan_extract, stored_values
from tfrtool.inspection.extract.safe_names import with_suffix
from tfrtool.inspection.inspect_options import ExtractOptions
from tfrtool.records.count import as_error
from tfrtool.records.framing import Fault, Record
from tfrtool.records.random_access import decode_record
from tfrtool.records.reader import read_shard
from tfrtool.storage.atomic_files import new_file
from tfrtool.storage.remote_path import AnyPath

_UNUSED = ("by", "name", "flat", "limit", "annotations")
_SAME_SUFFIXES = ({".jpg", ".jpeg"}, {".tif", ".tiff"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFile:
    """A file that was extracted from a record.

    Attributes:
        file: path of the file.
        shard: path of the shard.
        record: number of the record, from 0.
        feature: feature with the content.
        content: kind of the content, such as "image/jpeg".
        bytes: size, in bytes.
    """

    file: Path
    shard: AnyPath
    record: int
    feature: str
    content: str
    bytes: int

    @property
    def usual_suffix(self) -> str | None:
        """The suffix for this content, or None if the file has it."""
        usual, suffix = Path(with_suffix("file", self.content)).suffix, self.file.suffix.lower()
        return None if suffix == usual or {suffix, usual} in _SAME_SUFFIXES else usual


def extract_record(
    shards: Sequence[AnyPath], record: int, file: Path, options: ExtractOptions
) -> RecordFile:
    """Write the image of a record to a file, byte for byte.

    Raises:
        UsageError: the file exists, there are several shards, or an option is for directories.
        ShardError: there is no such record, it is damaged, or it has nothing to extract.
        WriteError: the file can't be written.
    """
    for name in _UNUSED:
        if getattr(options, name):
            raise UsageError(f"--{name} can't be used with --record")
    if len(shards) != 1:
        raise UsageError("--record requires a single shard", found=f"{len(shards):,}")
    if file.exists() and not options.overwrite:
        raise UsageError("already exists", path=file, hint="use --overwrite to replace it")
    (shard,) = shards
    plan = plan_extract(shards, options)

    def contents_of(payload: bytes) -> Sequence[bytes]:
        example = decode_example(payload, PayloadKind.SEQUENCE_EXAMPLE)
        return stored_values(plan, payload, example)

    values = decode_record(contents_of, _find_record(shard, record), shard)
    if len(values) > 1:
        what = f"feature {printable(plan.feature)!r} has several values"
        raise ShardError(what, path=shard, record=record, expected="1", found=len(values))
    with os_errors_as(WriteError, file, "can't be written"), new_file(file) as target:
        target.write(values[0])
    return RecordFile(
        file=file,
        shard=shard,
        record=record,
        feature=plan.feature,
        content=describe_bytes(values[0]),
        bytes=len(values[0]),
    )


def _find_record(shard: AnyPath, record: int) -> Record:
    """Return a record by its number; an error if it is damaged or doesn't exist."""
    for item in read_shard(shard):
        if isinstance(item, Fault) and item.record == record:
            raise as_error(shard, item)
        if isinstance(item, Record) and item.index == record:
            return item
    raise UsageError(f"no record {record}", path=shard, hint="records are numbered from 0")
