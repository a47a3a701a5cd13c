"""What a conversion is asked to do: its files, formats, target and options, checked together."""

from dataclasses import dataclass, replace
from functools import partial

from tfrtool.convert.convert_options import ConvertOptions
from tfrtool.convert.formats.format_detection import (
    find_format_files,
    format_of_files,
    format_of_name,
    other_format_files,
)
from tfrtool.convert.formats.format_specs import (
    FORMAT_NAMES,
    FORMATS,
    FormatSpec,
    titles_of_formats,
)
from tfrtool.convert.formats.record_format import Format, format_of
from tfrtool.convert.formats.schema_types import ChosenTypes, chosen_types
from tfrtool.convert.formats.single_file import check_target
from tfrtool.convert.source_records import find_sources
from tfrtool.errors import UsageError, human_count, printable
from tfrtool.examples.dataset_files import DatasetFiles
from tfrtool.records.compression import named_compression
from tfrtool.sources.formats.csv_options import CsvOptions
from tfrtool.storage.arguments import Paths, as_paths
from tfrtool.storage.remote_path import AnyPath
from tfrtool.writing.run_options import JobSettings, check_goal


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertRequest:
    """What a conversion is asked to do.

    Attributes:
        options: all options; they fit the formats.
        types: the types that they give columns.
        files: the source, by split.
        target: the directory or the file to write.
        single: whether it is a file.
        source_format: the format to read.
        target_format: the format to write.
        settings: how files are written.
    """

    options: ConvertOptions
    types: ChosenTypes
    files: DatasetFiles
    target: AnyPath
    single: bool
    source_format: Format
    target_format: Format
    settings: JobSettings

    @property
    def makes_table(self) -> bool:
        """Whether payloads become columns."""
        return self.source_format.payloads and self.target_format.spec.holds == "table"

    @property
    def copies_payloads(self) -> bool:
        """Whether payloads are read and written."""
        return self.source_format.payloads and self.target_format.payloads


def resolve_request(source: Paths, target: AnyPath, options: ConvertOptions) -> ConvertRequest:
    """Find the files, choose the formats, and check all options against them.

    Raises:
        UsageError: the files have several formats, an option doesn't apply, or the target exists.
        SourceError: a file can't be read, or its format is unknown.
    """
    types = chosen_types(options)
    check_goal(target)
    files = find_sources(source, target, partial(find_format_files, name=options.from_format))
    source_spec = FORMATS[options.from_format or format_of_files(files.paths).name]
    if options.from_format is None:
        files.notes += _skipped_files(source, source_spec)
    target_spec, single = _choose_target(target, options.to, source_spec)
    options.check(source_spec, target_spec, single=single)
    settings = replace(options.settings(_named_path(target, single)), workers=options.pool)
    if single:
        check_target(settings, target)
    return ConvertRequest(
        options=options,
        types=types,
        files=files,
        target=target,
        single=single,
        source_format=_source_format(source_spec, options),
        target_format=_target_format(target_spec, source_spec, options),
        settings=settings,
    )


def _skipped_files(source: Paths, read: FormatSpec) -> list[str]:
    """Return a note on the files in directories that aren't read, as their format is another."""
    skipped = [file for path in as_paths(source) for file in other_format_files(path, read)]
    if not skipped or (spec := format_of_name(skipped[0].name)) is None:
        return []
    count, name = human_count(len(skipped), "file"), printable(skipped[0].name)
    return [f"skipped {count} in another format, such as {name} (--from {spec.name} reads it)"]


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
        from tfrtool.examples.arrow.messages import MessageColumns

        return format_of(source.name, MessageColumns.read(options.proto))
    return format_of(source.name)


def _target_format(target: FormatSpec, source: FormatSpec, options: ConvertOptions) -> Format:
    """Return the format to write; the options of CSV are those of CSV that is read, if any is."""
    if target.name == "csv" and source.name != "csv":
        return format_of(target.name, CsvOptions.take({**vars(options)}))
    return format_of(target.name)


def _named_path(target: AnyPath, single: bool) -> AnyPath:
    """Return the target whose name is that of the dataset."""
    path = target.with_suffix("") if single else target
    may_be_compressed = any(
        spec.compressible and spec.holds != "payloads" and spec.file_pattern.search(path.name)
        for spec in FORMATS.values()
    )
    return path.with_suffix("") if named_compression(path) or may_be_compressed else path
