"""What the files of a conversion hold: each is read through once, before anything is written."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from tfrtool.convert.convert_options import ConvertOptions
from tfrtool.convert.formats.convert_request import ConvertRequest
from tfrtool.convert.formats.payload_formats import PayloadFormat
from tfrtool.convert.formats.record_format import Format, Scan, naming_file
from tfrtool.engines.pool import map_shards
from tfrtool.examples.arrow.infer import ColumnsFold
from tfrtool.examples.fields import has_logical_types
from tfrtool.features.feature_columns import FeatureColumns
from tfrtool.features.first_examples import FirstExamples
from tfrtool.features.sound_fields import sound_types, with_rates
from tfrtool.features.sources import read_declared_features
from tfrtool.inspection.rows.batches import all_features
from tfrtool.inspection.rows.ranking_shards import ranking_columns
from tfrtool.records.stream import total_bytes
from tfrtool.storage.progress import BYTES, Meter
from tfrtool.storage.remote_path import AnyPath

_MIN_BYTES_PER_PROCESS = 64 * 1024 * 1024
"""Bytes that are scanned in the time that a process takes to start, roughly."""

_AS_STORED_WITH = "with {}, features are written as they are stored"


class ScannedFiles(NamedTuple):
    """What files hold.

    Attributes:
        format: their format; if payloads are not columns of features, with those that they become.
        by_path: what each file holds.
        fold: what all payloads hold.
        notes: how files become columns, one clause each.
    """

    format: Format
    by_path: Mapping[AnyPath, Scan]
    fold: ColumnsFold
    notes: Sequence[str]

    @property
    def scans(self) -> list[Scan]:
        """What each file holds; a file in two splits is there once."""
        return [*self.by_path.values()]


def scan_files(request: ConvertRequest) -> ScannedFiles:
    """Read all files through.

    Raises:
        SourceError: a file can't be read, or is not what its name indicates.
        SchemaError: no feature can hold a column.
    """
    source_format, paths, notes = request.source_format, request.files.paths, list[str]()
    if request.makes_table:
        first = FirstExamples(())
        is_stored = request.options.as_stored or source_format.spec.name != "tfrecord"
        if request.target_format.spec.name == "hf" and not is_stored:
            first = FirstExamples.of(paths)
        source_format, notes = _declared_format(
            request.options, source_format, paths, sound_types(first)
        )
        source_format = _with_sound(source_format, first)
    settings = request.settings
    meter = Meter(settings.on_progress, "scanning", BYTES, total_bytes(paths))
    scanning = map_shards(
        partial(_scan, source_format),
        paths,
        settings.workers,
        _MIN_BYTES_PER_PROCESS,
        on_counts=meter.add,
    )
    by_path, fold = dict[AnyPath, Scan](), ColumnsFold()
    for scan in scanning:
        if scan.path not in by_path:
            fold.merge(scan.fold)
        by_path[scan.path] = scan
    meter.finish()
    scan_notes = [note for scan in by_path.values() for note in scan.notes]
    return ScannedFiles(source_format, by_path, fold, [*scan_notes, *notes])


def _scan(source_format: Format, path: AnyPath) -> Scan:
    with naming_file(path):
        return source_format.scan(path)


def _with_sound(source_format: Format, first: FirstExamples) -> Format:
    """Return a format of payloads whose samples know their rates, by the first records."""
    if not isinstance(source_format, PayloadFormat) or not first.payloads:
        return source_format
    columns = source_format.decoded
    if not isinstance(columns, FeatureColumns):
        return source_format
    return type(source_format)(FeatureColumns.of(with_rates(columns.root, first)))


def _declared_format(
    options: ConvertOptions,
    source_format: Format,
    shards: Sequence[AnyPath],
    sound: Mapping[str, str],
) -> tuple[Format, list[str]]:
    """Return a format of payloads that decodes what is known of them, and notes.

    That is what types and features.json describe, or lists of Examples. Where features.json
    describes only what features hold by themselves, they are decoded as such. ``sound`` are types
    of features that no file or option describes.
    """
    if options.as_stored or not isinstance(source_format, PayloadFormat) or source_format.decoded:
        return source_format, []
    declared = read_declared_features(shards)
    described, is_certain = declared.root, declared.is_certain
    is_flat = described is None or not (is_certain or has_logical_types(described))
    if described is not None and is_flat and not options.types:
        return source_format, []
    names = ("cast", "lists", "schema") if described is None else ()
    asked = [f"--{name}" for name in names if getattr(options, name)]
    is_tfrecord, types = source_format.spec.name == "tfrecord", options.types
    if sound and described is None and not asked:
        types = {**sound, **(types or {})}
    workers, on_progress = options.pool, options.on_progress
    if options.types or described is not None or (is_tfrecord and not asked):
        found = all_features(
            shards,
            types=types,
            lists=options.lists,
            workers=workers,
            on_progress=on_progress,
        )
        if found.columns is not None:
            return type(source_format)(found.columns), [*found.notes]
        if described is not None:
            return source_format, [*found.notes]
    notes = list[str]()
    columns = None
    if is_tfrecord:
        columns = ranking_columns(
            shards, notes.append, exact=True, workers=workers, on_progress=on_progress
        )
    if columns is None:
        return source_format, []
    for name in (*asked, *(["--exact"] if options.exact else [])):
        return source_format, [_AS_STORED_WITH.format(name)]
    return type(source_format)(columns), notes
