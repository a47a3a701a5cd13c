"""The options of commands that write datasets from records."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from tfrtool.convert.formats.format_specs import (
    FormatName,
    FormatSpec,
    names_of_formats,
    titles_of_formats,
)
from tfrtool.declare import Options, declared, option
from tfrtool.engines.engine import workers_option
from tfrtool.errors import SchemaError, UsageError
from tfrtool.images.recipe import parse_size
from tfrtool.inspection.inspect_options import StoredOptions
from tfrtool.inspection.shard_options import ProtoOptions
from tfrtool.records.shard_sets import check_split_name
from tfrtool.sources.formats.csv_options import CsvOptions
from tfrtool.storage.progress import OnProgress, no_progress
from tfrtool.writing.run_options import (
    SEEDS,
    CompressionOptions,
    NameOptions,
    RunOptions,
    SizeOptions,
    check_splits,
    parse_names,
    parse_pairs,
    parse_splits,
)


def _parse_added(name_of: str, texts: Iterable[str]) -> dict[str, Any]:
    """Parse ``NAME=VALUE``, typed by its value, or ``NAME:DTYPE[:SHAPE]=VALUE``."""
    from tfrtool.examples.dtypes import relative_change, text_number
    from tfrtool.examples.example import Feature
    from tfrtool.examples.schema import FeatureSpec

    added: dict[str, Any] = {}
    for text in texts:
        name, equals, digits = text.partition("=")
        if not equals:
            expected = "NAME=VALUE, such as source=kaggle or weight:float32=1"
            raise UsageError(f"invalid {name_of} {text!r}", expected=expected)
        if ":" in name:
            try:
                spec = FeatureSpec.parse(text)
            except SchemaError as error:
                raise UsageError(str(error)) from error
            added[spec.name] = Feature(dtype=spec.dtype, values=spec.default or ())
            continue
        number = text_number(digits)
        if isinstance(number, float) and number.is_integer() and relative_change(number):
            what = f"{name_of} {text!r} would be rounded to float32"
            raise UsageError(what, expected=f"{name}:int64=, {name}:string= or {name}:float32=")
        added[name] = digits if number is None else number
    return added


def _parse_tags(texts: Iterable[str]) -> dict[str, str]:
    """Parse ``NAME=FILE``; a file's name may have further equals signs."""
    tags: dict[str, str] = {}
    for text in texts:
        name, _, path = text.partition("=")
        if not name or not path:
            raise UsageError(
                f"invalid --tag {text[:100]!r}", expected="NAME=FILE, such as blurry=blurry.txt"
            )
        if name in tags:
            raise UsageError(f"--tag {name!r} is given twice")
        tags[name] = path
    return tags


@dataclass(frozen=True, kw_only=True)
class CopyOptions(CompressionOptions):
    """Options of jobs that copy records into new shards."""

    allow_mixed: bool = option(
        False, "Merge sources even if the features of their records differ.", group="Source"
    )


@dataclass(frozen=True, kw_only=True)
class ReshardOptions(CopyOptions):
    """Options of reshard."""

    splits: Mapping[str, float] | None = option(
        None,
        "Put this fraction of all records into a split. Repeat for each split.  "
        "[default: the splits of SOURCE]",
        metavar="NAME=FRACTION",
        group="Splits and order",
        cli="--split",
        repeat=True,
        parse=parse_splits,
        common=True,
    )
    stratify: str | None = option(
        None,
        "Keep the proportions of this feature's values the same in every split.",
        metavar="FEATURE",
        group="Splits and order",
        common=True,
    )
    group_by: str | None = option(
        None,
        "Keep records in the same split if they share a value of this feature.",
        metavar="FEATURE",
        group="Splits and order",
        common=True,
    )
    shuffle: bool = option(
        False,
        "Write the records of each split in random order.",
        group="Splits and order",
        common=True,
    )
    seed: int = option(
        0, "Random seed for --shuffle and --split.", group="Splits and order", **SEEDS, common=True
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.shuffle, bool):
            what = f"shuffle must be True or False, got {self.shuffle!r}; the seed is seed=N"
            raise UsageError(what)
        if self.stratify is not None and self.group_by is not None:
            raise UsageError("--stratify and --group-by can't be used together")
        check_splits(self.splits or {}, self.stratify or self.group_by)


@dataclass(frozen=True, kw_only=True)
class FilterOptions(CopyOptions, StoredOptions):
    """Options of filter."""

    where: str | None = option(
        None,
        'Keep records that match an SQL condition, such as "label = 1 AND height > 64".',
        metavar="EXPR",
        group="Selection",
        common=True,
    )
    keep: str | os.PathLike[str] | None = option(
        None,
        "Keep only the records listed in FILE: one SHARD:RECORD per line, or the mistakes in "
        "predictions.jsonl of evaluate.",
        metavar="FILE",
        group="Selection",
        path="local input",
        common=True,
    )
    drop: str | os.PathLike[str] | None = option(
        None,
        "Drop the records listed in FILE, such as evaluate --drop-list writes.",
        metavar="FILE",
        group="Selection",
        path="local input",
        common=True,
    )
    dedupe: bool = option(
        False,
        "Drop exact duplicates: of the image, or of the record if it has none.",
        group="Selection",
        common=True,
    )
    dedupe_by: str | None = option(
        None,
        "Keep only the first record with each value of this feature, such as image/filename.",
        metavar="FEATURE",
        group="Selection",
        common=True,
    )
    sample: int | float | str | None = option(
        None,
        "Keep a random sample of what the other options keep: a number, or a share such as 5% or "
        "0.05.",
        metavar="SIZE",
        group="Selection",
        parse=str,
        common=True,
    )
    sample_per: str | None = option(
        None,
        "Take --sample separately from the records with each value of this feature, such as label.",
        metavar="FEATURE",
        group="Selection",
    )
    seed: int = option(0, "Random seed for --sample.", group="Selection", **SEEDS)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.where is None:
            asked = {"--as-stored": self.as_stored, "--type": self.types}
            for flag in [flag for flag, value in asked.items() if value]:
                raise UsageError(f"{flag} requires --where")


@dataclass(frozen=True, kw_only=True)
class AppendOptions(RunOptions):
    """Options of append."""

    split: str | None = option(
        None,
        "Put all of SOURCE into this split.  [default: SOURCE's own splits, or split like DATASET]",
        metavar="NAME",
        group="Source",
    )
    out: str | os.PathLike[str] | None = option(
        None,
        "Directory of the new version. Required if DATASET is not named after a version.  "
        "[default: next to DATASET]",
        metavar="DIR",
        group="Output",
        path="output",
    )
    version: str | None = option(
        None,
        "Number of the new version.  [default: next minor version]",
        metavar="X.Y.Z",
        group="Output",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.split is not None:
            check_split_name(self.split)


@dataclass(frozen=True, kw_only=True)
class EditOptions(RunOptions, NameOptions):
    """Options of edit."""

    select: Sequence[str] | None = option(
        None,
        "Keep only these features.",
        metavar="A,B",
        group="Labels and features",
        repeat=True,
        parse=parse_names,
        common=True,
    )
    drop: Sequence[str] = option(
        (),
        "Drop these features.",
        metavar="A,B",
        group="Labels and features",
        repeat=True,
        parse=parse_names,
        common=True,
    )
    class_map: Sequence[str] = option(
        (),
        "Rename class OLD, merge it with an existing class NEW, or drop its objects (OLD=). "
        "FILE has two columns, OLD and NEW. Repeatable.",
        metavar="FILE|OLD=NEW",
        group="Labels and features",
        repeat=True,
    )
    cast: Mapping[str, str] | None = option(
        None,
        "Convert a feature to string, int64 or float32. Repeatable.",
        metavar="NAME=DTYPE",
        group="Labels and features",
        repeat=True,
        parse=lambda texts: parse_pairs("--cast", texts, "NAME=DTYPE, such as label=float32"),
        common=True,
    )
    rename: Mapping[str, str] | None = option(
        None,
        "Rename a feature. Repeatable.",
        metavar="OLD=NEW",
        group="Labels and features",
        repeat=True,
        parse=lambda texts: parse_pairs("--rename", texts, "OLD=NEW, such as label=class"),
        common=True,
    )
    add: Mapping[str, Any] | None = option(
        None,
        "Add a feature with this value to every record. NAME:DTYPE[:SHAPE]=VALUE sets its type. "
        "Repeatable.",
        metavar="NAME=VALUE",
        group="Labels and features",
        repeat=True,
        parse=partial(_parse_added, "--add"),
        common=True,
    )
    tag: Mapping[str, str | os.PathLike[str]] | None = option(
        None,
        "Add an int64 feature: 1 for the records listed in FILE, such as a tag of view, and 0 for "
        "all others. Repeatable.",
        metavar="NAME=FILE",
        group="Labels and features",
        repeat=True,
        parse=_parse_tags,
    )
    encode: Literal["jpeg", "png", "keep"] | None = option(
        None,
        "Encode every image as JPEG or PNG; keep converts only images that aren't valid JPEGs.",
        group="Images",
    )
    resize: int | tuple[int, int] | None = option(
        None,
        "Scale the shorter side to N pixels, or the image to exactly W x H.",
        metavar="N|WxH",
        group="Images",
        parse=parse_size,
        common=True,
    )
    on_error: Literal["stop", "skip"] = option(
        "stop",
        "Stop at the first record that is damaged or can't be changed, or skip such records and "
        "list them (exit code 3).",
        group="Execution",
        common=True,
    )


CHANGES_EXACT = "--exact can't be used together with --select, --rename or --cast"

_EXCLUDED: Mapping[str, Sequence[str]] = {
    "schema": ("select", "lists", "exact"),
    "types": ("cast", "schema", "proto"),
    "proto": ("exact", "lists", "rename", "schema", "cast", "label_feature"),
    "explode": ("proto", "exact", "rename", "schema", "cast"),
}
"""Options of convert that can't be used together with others."""


@dataclass(frozen=True, kw_only=True)
class ConvertOptions(SizeOptions, ProtoOptions, StoredOptions, CsvOptions):
    """Options of convert."""

    from_format: FormatName | None = option(
        None, "Format of SOURCE.  [default: detected]", group="Source", cli="--from", common=True
    )
    select: Sequence[str] | None = option(
        None,
        "Keep only these columns.",
        metavar="A,B",
        group="Labels and features",
        parse=lambda text: text.split(","),
        common=True,
    )
    rename: Mapping[str, str] | None = option(
        None,
        "Rename a column. Repeatable.",
        metavar="OLD=NEW",
        group="Labels and features",
        repeat=True,
        parse=lambda texts: parse_pairs("--rename", texts, "OLD=NEW, such as class=label"),
        common=True,
    )
    cast: Mapping[str, str] | None = option(
        None,
        "Convert a column to int64, float32, string, timestamp, date or decimal(DIGITS,SCALE). "
        "Repeatable.",
        metavar="NAME:TYPE",
        group="Labels and features",
        repeat=True,
        parse=lambda texts: parse_pairs("--cast", texts, "NAME:TYPE, such as price:float32", ":"),
        common=True,
    )
    schema: str | os.PathLike[str] | None = option(
        None,
        "Keep only the columns in this file, and convert them to its types. FILE is what tfrtool "
        "inspect schema --emit json, schema or pbtxt prints.",
        metavar="FILE",
        group="Labels and features",
        path="local input",
        common=True,
    )
    lists: bool = option(
        False,
        "Keep a list for a feature that some records don't have, instead of a nullable value.",
        group="Labels and features",
    )
    flatten: bool = option(
        False,
        "No longer needed: structs and objects always become features such as objects/bbox.",
        group="Labels and features",
    )
    label_feature: str | None = option(
        None,
        "Label column, for .cls members of WebDataset and for dataset_info.json.  "
        "[default: detected]",
        metavar="NAME",
        group="Labels and features",
    )
    exact: bool = option(
        False,
        "Also keep the exact payloads, in a column _payload, so that converting back gives the "
        "same bytes.",
        group="Labels and features",
    )
    shards: int | None = option(
        None,
        "Number of files per split.",
        metavar="N",
        group="Shards",
        least=1,
        most=99_999,
        common=True,
    )
    to: FormatName | None = option(
        None,
        "Format of TARGET.  [default: by suffix, or tfrecord for tables]",
        group="Output",
        common=True,
    )
    verify: Literal["none", "values", "bytes"] = option(
        "values",
        "Read TARGET back and compare all values, or the payloads byte for byte.",
        group="Output",
        common=True,
    )
    on_note: Callable[[str], None] = option(
        lambda _: None, "Called with each loss and note before anything is written.", cli=None
    )

    def check(self, source: FormatSpec, target: FormatSpec, *, single: bool) -> None:
        """Raise a `UsageError` if options don't fit the formats, or each other.

        Args:
            source: the format to read.
            target: the format to write.
            single: whether the target is one file.
        """
        self._check_together()
        if self.flatten and not _can_have_structs(source):
            titles = titles_of_formats(_can_have_structs)
            raise UsageError(f"--flatten applies to {titles}, not to {source.name}")
        if "csv" not in (source.name, target.name):
            for name in self.changed():
                what = f"{name} applies to CSV, not to {source.name} or {target.name}"
                raise UsageError(what)
        elif source.name != "csv":
            self._check_csv_written()
        if self.index and (single or target.name != "tfrecord"):
            raise UsageError("--index requires a directory of TFRecord shards as TARGET")
        for name in ("proto", "explode"):
            if getattr(self, name) is not None:
                _check_makes_table(name, source, target)
        for flag, value in {"--as-stored": self.as_stored, "--type": self.types}.items():
            if value and not (source.holds == "payloads" and target.holds == "table"):
                raise UsageError(f"{flag} applies to records that become a table")
        if self.types and source.name != "tfrecord":
            raise UsageError(f"--type applies to TFRecord files, not to {source.name}")
        if self.label_feature and target.holds == "table":
            titles = titles_of_formats(lambda spec: spec.holds != "table")
            raise UsageError(f"--label-feature applies to {titles}, not to {target.name}")
        if self.cast and source.holds == target.holds == "payloads":
            what = "--cast applies to tables, and neither SOURCE nor TARGET is one"
            raise UsageError(what, hint="change records with --cast of tfrtool edit")

    def _check_together(self) -> None:
        """Raise a `UsageError` for two options that exclude each other, whatever the formats."""
        flags = {one.name: one.flag for one in declared(ConvertOptions)}
        pairs = [(name, other) for name, others in _EXCLUDED.items() for other in others]
        for name, other in pairs:
            if getattr(self, name) not in (None, False) and getattr(self, other):
                raise UsageError(f"{flags[name]} and {flags[other]} can't be used together")
        if self.exact and (self.select or self.rename or self.cast):
            raise UsageError(CHANGES_EXACT)

    def _check_csv_written(self) -> None:
        """Raise a `UsageError` for options with which CSV can be read, but not written."""
        from tfrtool.sources.formats.cell_types import cell_number

        self.check_written()
        for text in self.null:
            if cell_number(text) is not None:
                raise UsageError(f"--null {text!r} is a number, which a value may be")


def _can_have_structs(spec: FormatSpec) -> bool:
    """Return whether a column of a format can have structs."""
    return spec.holds == "table" and spec.name != "csv"


def _check_makes_table(name: str, source: FormatSpec, target: FormatSpec) -> None:
    """Raise a `UsageError` if an option that makes a table of payloads is given for others."""
    if source.holds != "payloads":
        titles = titles_of_formats(lambda spec: spec.holds == "payloads")
        raise UsageError(f"--{name} applies to {titles}, not to {source.name}")
    if target.holds != "table":
        names = names_of_formats(lambda spec: spec.holds == "table")
        what = f"--{name} makes tables, and {target.name} is not one"
        raise UsageError(what, hint=f"use a table format: --to {names}")


@dataclass(frozen=True, kw_only=True)
class DiffOptions(Options):
    """How records are compared."""

    key: str | None = option(
        None,
        "Feature that identifies a record, such as image/filename. Without it, a changed record is "
        "listed as one only in SOURCE and one only in TARGET.",
        metavar="FEATURE",
    )
    by_position: bool = option(
        False, "Without a key, match changed records by their position in each split."
    )
    limit: int = option(
        10, "Maximum number of records to list for each kind of difference.", metavar="N", least=0
    )
    workers: int | None = workers_option()
    on_progress: OnProgress = option(no_progress, "called with the number of bytes read.", cli=None)
