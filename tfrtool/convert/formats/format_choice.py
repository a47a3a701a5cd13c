"""Which formats a conversion reads and writes, and with which options."""

from collections.abc import Sequence
from typing import NamedTuple

from tfrtool.convert.convert_options import ConvertOptions
from tfrtool.convert.formats.format_specs import (
    FORMAT_NAMES,
    FORMATS,
    FormatSpec,
    titles_of_formats,
)
from tfrtool.convert.formats.record_format import Format, format_of, format_of_files, format_of_name
from tfrtool.errors import UsageError
from tfrtool.examples.arrow.messages import MessageColumns
from tfrtool.records.compression import named_compression
from tfrtool.sources.formats.csv_options import CsvOptions
from tfrtool.storage.remote_path import AnyPath


class FormatChoice(NamedTuple):
    """The formats of a conversion.

    Attributes:
        source: the format to read.
        target: the format to write.
        single: whether the target is one file.
    """

    source: Format
    target: Format
    single: bool

    @property
    def makes_table(self) -> bool:
        """Whether payloads become columns."""
        return self.source.payloads and self.target.spec.holds == "table"

    @property
    def copies_payloads(self) -> bool:
        """Whether payloads are read and written."""
        return self.source.payloads and self.target.payloads


def choose_formats(
    paths: Sequence[AnyPath], target: AnyPath, options: ConvertOptions
) -> FormatChoice:
    """Choose the formats of a conversion, and check all options against them.

    Raises:
        UsageError: the files have several formats, or an option doesn't apply.
        SourceError: a file can't be read, or its format is unknown.
    """
    name = options.from_format or format_of_files(paths).name
    source = FORMATS[name]
    written, single = _choose_target(target, options.to, source)
    options.check(source, written, single=single)
    reads, writes = _source_format(source, options), _target_format(written, source, options)
    return FormatChoice(reads, writes, single)


def _choose_target(target: AnyPath, to: str | None, source: FormatSpec) -> tuple[FormatSpec, bool]:
    """Return the format to write, and whether the target is one file."""
    named = format_of_name(target.name)
    if named_compression(target) and named is None and not target.is_dir():
        titles = titles_of_formats(lambda spec: spec.compressible)
        hint = f"remove {target.suffix} from the name"
        raise UsageError(f"only {titles} files can be compressed", path=target, hint=hint)
    if named is not None and not target.is_dir() and to in (None, named.name):
        return named, True
    if to is None and source.name == "tfrecord":
        hint = f"use --to with one of {FORMAT_NAMES}"
        raise UsageError("unknown output format", path=target, hint=hint)
    return FORMATS[to or "tfrecord"], False


def _source_format(source: FormatSpec, options: ConvertOptions) -> Format:
    """Return the format to read, with the options that it has."""
    if source.name == "csv":
        return format_of(source.name, CsvOptions.take({**vars(options)}))
    if options.proto is not None:
        return format_of(source.name, MessageColumns.read(options.proto))
    return format_of(source.name, flatten=True) if options.flatten else format_of(source.name)


def _target_format(target: FormatSpec, source: FormatSpec, options: ConvertOptions) -> Format:
    """Return the format to write; the options of CSV are those of CSV that is read, if any is."""
    if target.name == "csv" and source.name != "csv":
        return format_of(target.name, CsvOptions.take({**vars(options)}))
    return format_of(target.name)


def path_without_suffixes(target: AnyPath, single: bool) -> AnyPath:
    """Return the target whose name is that of the dataset."""
    path = target.with_suffix("") if single else target
    may_be_compressed = any(
        spec.compressible and spec.holds != "payloads" and spec.file_pattern.search(path.name)
        for spec in FORMATS.values()
    )
    return path.with_suffix("") if named_compression(path) or may_be_compressed else path
