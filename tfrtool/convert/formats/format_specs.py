"""File formats of ``convert``, each declared once.

The options, the errors, how files are detected and the tests follow from `FORMATS`. What reads
and writes a format is imported when it is used, so that the help stays light.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Literal

from tfrtool.errors import enumeration
from tfrtool.sources.formats.arrow_magic import MAGICS

FormatName = Literal[
    "tfrecord", "parquet", "hf", "arrow", "jsonl", "csv", "arrayrecord", "webdataset"
]
"""The names of all formats: the words for ``--from`` and ``--to``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatSpec:
    """A file format.

    Attributes:
        name: the word for ``--from`` and ``--to``.
        title: its name in messages.
        implementation: the class that reads and writes it, a `Format`.
        holds: what its files hold. "payloads" are copied as they are; "table" has columns;
            "samples" are groups of files; a file of a group may be the label.
        file_pattern: found in the names of its files.
        file_name: name of a file to write, with dataset, split, index and count.
        magic: possible first bytes of its files.
        detector: a function of the first bytes, if they are not fixed.
        names_labels: whether class names become a column of its files.
        compressible: whether its files are compressed if their name ends in .gz.
        stream_suffix: suffix of the temporary file for standard input and output; "" if the
            format can't be streamed.
    """

    name: FormatName
    title: str
    implementation: str
    holds: Literal["payloads", "table", "samples"]
    file_pattern: re.Pattern[str]
    file_name: str
    magic: tuple[bytes, ...] = ()
    detector: str = ""
    names_labels: bool = False
    compressible: bool = False
    stream_suffix: str = ""

    def starts(self, head: bytes) -> bool:
        """Return whether the first bytes of a file are those of this format."""
        if self.detector:
            return bool(resolve_name(self.detector)(head))
        return head.startswith(self.magic)


_PACKAGE = "tfrtool.convert.formats"

FORMATS: Mapping[str, FormatSpec] = {
    spec.name: spec
    for spec in (
        FormatSpec(
            name="tfrecord",
            title="TFRecord",
            implementation=f"{_PACKAGE}.payload_formats:TfrecordFormat",
            holds="payloads",
            # Numbers and a compression may follow.
            file_pattern=re.compile(r"\.tfrecord", re.IGNORECASE),
            file_name="{dataset}-{split}.tfrecord-{index:05d}-of-{count:05d}",
            detector="tfrtool.records.compression:starts_record",
            compressible=True,
        ),
        FormatSpec(
            name="parquet",
            title="Parquet",
            implementation=f"{_PACKAGE}.parquet:ParquetFormat",
            holds="table",
            file_pattern=re.compile(r"\.parquet$", re.IGNORECASE),
            # The library datasets knows the split of such names.
            file_name="{split}-{index:05d}-of-{count:05d}.parquet",
            magic=(b"PAR1",),
            names_labels=True,
        ),
        FormatSpec(
            name="hf",
            title="Hugging Face",
            implementation=f"{_PACKAGE}.parquet:HuggingFaceFormat",
            holds="table",
            file_pattern=re.compile(r"\.parquet$", re.IGNORECASE),
            file_name="{split}-{index:05d}-of-{count:05d}.parquet",
            magic=(b"PAR1",),
        ),
        FormatSpec(
            name="arrow",
            title="Arrow",
            implementation=f"{_PACKAGE}.parquet:ArrowFormat",
            holds="table",
            file_pattern=re.compile(r"\.(arrow|arrows|feather|ipc)$", re.IGNORECASE),
            file_name="{split}-{index:05d}-of-{count:05d}.arrow",
            magic=MAGICS,
            names_labels=True,
            stream_suffix=".arrows",
        ),
        FormatSpec(
            name="jsonl",
            title="JSON Lines",
            implementation=f"{_PACKAGE}.json_lines:JsonLinesFormat",
            holds="table",
            file_pattern=re.compile(r"\.(jsonl|ndjson)(\.gz)?$", re.IGNORECASE),
            file_name="{dataset}-{split}-{index:05d}-of-{count:05d}.jsonl",
            names_labels=True,
            compressible=True,
            stream_suffix=".jsonl",
        ),
        FormatSpec(
            name="csv",
            title="CSV",
            implementation=f"{_PACKAGE}.csv_table:CsvFormat",
            holds="table",
            file_pattern=re.compile(r"\.(csv|tsv)(\.gz)?$", re.IGNORECASE),
            file_name="{dataset}-{split}-{index:05d}-of-{count:05d}.csv",
            names_labels=True,
            compressible=True,
            stream_suffix=".csv",
        ),
        FormatSpec(
            name="arrayrecord",
            title="ArrayRecord",
            implementation=f"{_PACKAGE}.payload_formats:ArrayRecordFormat",
            holds="payloads",
            file_pattern=re.compile(r"\.array_?records?(-\d{5,}-of-\d{5,})?$", re.IGNORECASE),
            file_name="{dataset}-{split}.array_record-{index:05d}-of-{count:05d}",
            # The header of Riegeli's first block (riegeli/records/block.h).
            magic=(bytes.fromhex("83af70d10d884a3f 0000000000000000 4000000000000000"),),
        ),
        FormatSpec(
            name="webdataset",
            title="WebDataset",
            implementation=f"{_PACKAGE}.web_dataset:WebDatasetFormat",
            holds="samples",
            file_pattern=re.compile(r"\.(tar|tar\.gz|tgz)$", re.IGNORECASE),
            file_name="{dataset}-{split}-{index:05d}-of-{count:05d}.tar",
            detector="tfrtool.sources.archives:starts_tar",
            compressible=True,
        ),
    )
}
"""By name, in the order in which they are asked whether a file is theirs."""

FORMAT_NAMES = ", ".join(FORMATS)


def titles_of_formats(is_listed: Callable[[FormatSpec], object]) -> str:
    """Return the titles of some formats, as part of a sentence."""
    return enumeration([spec.title for spec in FORMATS.values() if is_listed(spec)], "and")


def names_of_formats(is_listed: Callable[[FormatSpec], object]) -> str:
    """Return the names of some formats, as alternatives in a sentence."""
    return enumeration([spec.name for spec in FORMATS.values() if is_listed(spec)], "or")
