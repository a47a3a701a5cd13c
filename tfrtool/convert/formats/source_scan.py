"""What the files of a conversion hold: each is read through once, before anything is written."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from tfrtool.convert.formats.assumed_scan import assume_content
from tfrtool.convert.formats.convert_request import ConvertRequest
from tfrtool.convert.formats.payload_formats import PayloadFormat
from tfrtool.convert.formats.record_format import Format, Scan, naming_file
from tfrtool.engines.pool import map_shards
from tfrtool.examples.arrow.infer import ColumnsFold
from tfrtool.examples.fields import has_logical_types
from tfrtool.features.feature_columns import FeatureColumns
from tfrtool.features.first_examples import FirstExamples
from tfrtool.features.metadata_types import has_metadata_types
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
        assumed: whether only the first records were read; the rest has to be like them.
    """

    format: Format
    by_path: Mapping[AnyPath, Scan]
    fold: ColumnsFold
    notes: Sequence[str]
    assumed: bool = False

    @property
    def scans(self) -> list[Scan]:
        """What each file holds; a file in two splits is there once."""
        return [*self.by_path.values()]


def scan_files(request: ConvertRequest, *, assume: bool = False) -> ScannedFiles:
    """Read all files through; or, with ``assume``, only the first records where these may do.

    Raises:
        SourceError: a file can't be read, or is not what its name indicates.
        SchemaError: no feature can hold a column.
    """
    source_format, paths, notes = request.source_format, request.files.paths, list[str]()
    if request.makes_table and not request.options.as_stored:
        source_format, notes = _decoded_format(request)
    assumed = assume_content(request, source_format) if assume else None
    if assumed is not None:
        return ScannedFiles(source_format, *assumed, notes, assumed=True)
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


def _decoded_format(request: ConvertRequest) -> tuple[Format, list[str]]:
    """Return a format of payloads that decodes what is known of them, and notes."""
    source_format, shards = request.source_format, request.files.paths
    if not isinstance(source_format, PayloadFormat) or source_format.decoded:
        return source_format, []
    first: FirstExamples | None = None
    if (source_format.spec.name, request.target_format.spec.name) == ("tfrecord", "hf"):
        first = FirstExamples.of(shards)
    columns, notes = _known_columns(request, {} if first is None else sound_types(first))
    if columns is None:
        return source_format, notes
    if first is not None:
        columns = replace(columns, root=with_rates(columns.root, first))
    return type(source_format)(columns), notes


def _known_columns(
    request: ConvertRequest, sound: Mapping[str, str]
) -> tuple[FeatureColumns | None, list[str]]:
    """Return the columns that payloads are known to have, if they are not a feature each.

    That is what types and features.json describe, or lists of Examples. Where features.json
    describes only what features hold by themselves, they are decoded as such. ``sound`` are types
    of features that no file or option describes.
    """
    options, shards, types = request.options, request.files.paths, request.options.types
    workers, on_progress, notes = options.pool, options.on_progress, list[str]()
    is_tfrecord = request.source_format.spec.name == "tfrecord"
    declared, conflicts = read_declared_features(shards), list[str]()
    described = declared.root
    if described is None:
        names = ("cast", "lists", "schema")
        conflicts = [f"--{name}" for name in names if getattr(options, name)]
        types = types if conflicts else {**sound, **(types or {})}
        is_known = is_tfrecord and not conflicts and has_metadata_types(shards[0])
    else:
        is_known = declared.is_certain or has_logical_types(described)
    if types or is_known:
        found = all_features(
            shards, types=types, lists=options.lists, workers=workers, on_progress=on_progress
        )
        if found.columns is not None or described is not None:
            return found.columns, [*found.notes]
    if described is not None or not is_tfrecord:
        return None, []
    conflicts += ["--exact"] if options.exact else []
    columns = ranking_columns(
        shards, notes.append, exact=True, workers=workers, on_progress=on_progress
    )
    if columns is not None and conflicts:
        return None, [_AS_STORED_WITH.format(conflicts[0])]
    return columns, notes
