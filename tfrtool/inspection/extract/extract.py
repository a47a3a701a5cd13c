"""The verb: the images of a shard become files again, byte for byte."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from tfrtool.errors import ShardError, UsageError, printable
from tfrtool.examples.content import describe_bytes
from tfrtool.examples.example import DType, Example, PayloadKind, decode_example
from tfrtool.examples.roles import LabelNames
from tfrtool.inspection.extract.extract_earlier import metadata_beside
from tfrtool.inspection.extract.extract_files import Staging, staging_files
from tfrtool.inspection.extract.extract_metadata import features_json
from tfrtool.inspection.extract.extract_names import (
    below_class,
    is_misnamed,
    shard_stem,
    with_suffix,
)
from tfrtool.inspection.extract.extract_plan import (
    ExtractOptions,
    ExtractPlan,
    find_feature,
    plan_extract,
)
from tfrtool.inspection.extract.extract_report import (
    LISTED,
    ExtractReport,
    LeftOutRecord,
    RenamedFile,
    ShardFault,
)
from tfrtool.inspection.extract.safe_names import SafePath, numbered, safe_part, safe_path
from tfrtool.inspection.summary.summary_json import shortest_float
from tfrtool.records.framing import Fault, FaultKind, Record
from tfrtool.records.reader import read_records
from tfrtool.records.shards import find_shards
from tfrtool.records.stream import open_shard

__all__ = ["ExtractOptions", "ExtractReport", "extract"]


def extract(
    shards: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    options: ExtractOptions,
    on_progress: Callable[[int, int], None] = lambda *_: None,
) -> ExtractReport:
    """Write the values of a string feature as files, in folders by class, byte for byte.

    A file has the name that its record gives, made safe; where the record gives none, it is made
    of the shard's name and the record's number. Its class folder is that name's own, if it has
    one, and otherwise put before it. The other features go to a JSON Lines file beside the
    directory. All of it gets its final name at the end; an exception, Ctrl-C included, leaves
    nothing behind. Memory is bounded by one record and the number of folders.

    Args:
        shards: files, patterns and directories, one or several.
        options: what to take out, and where to.
        on_progress: called after each record with the bytes of shards that are read, and all.

    Raises:
        UsageError: the directory is in use, or a feature that was asked for is not there.
        ShardError: a shard can't be read, or there was nothing to take out.
        WriteError: something can't be written.
    """
    shards = find_shards(shards)
    if not shards:
        raise UsageError("no shards to take anything out of")
    with staging_files(options.directory, overwrite=options.overwrite) as staging:
        extraction = _Extraction(plan_extract(shards, options), options, staging)
        total, before = sum(_size(path) for path in shards), 0
        for path in shards:
            extraction.enter(path)
            with open_shard(path) as file:
                for item in read_records(file):
                    extraction.add(item)
                    on_progress(before + file.tell(), total)
                    if extraction.full:
                        break
            before += _size(path)
            if extraction.full:
                break
        report = extraction.report()
        if not report.files:
            raise ShardError("nothing was taken out", path=shards[0], found=_first_reason(report))
        staging.publish()
    return report


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _first_reason(report: ExtractReport) -> str:
    if report.left_out:
        return f"record {report.left_out[0].record}: {report.left_out[0].reason}"
    return report.faults[0].fault.message if report.faults else "no records"


class _Extraction:
    """A fold over the records and faults of shards."""

    def __init__(self, plan: ExtractPlan, options: ExtractOptions, staging: Staging) -> None:
        self._plan = plan
        self._options = options
        self._staging = staging
        self._shard = Path()
        self._stem = ""
        self._label_names = LabelNames()
        self._records = 0
        self._bytes = 0
        self._classes: Counter[str] = Counter()
        self._unlabelled = 0
        self._mismatched = 0
        self._left_out: list[LeftOutRecord] = []
        self._renamed: list[RenamedFile] = []
        self._faults: list[ShardFault] = []
        self._counts: Counter[type] = Counter()
        self._odd_classes: set[str] = set()

    @property
    def full(self) -> bool:
        """Whether as many records have been taken as were asked for."""
        return self._records == self._options.limit

    def enter(self, shard: Path) -> None:
        self._shard = shard
        self._stem = shard_stem(shard)
        self._label_names = LabelNames.beside(shard.parent, self._plan.by)

    def add(self, item: Record | Fault) -> None:
        if isinstance(item, Fault):
            self._note(self._faults, ShardFault(shard=self._shard, fault=item))
            return
        self._records += 1
        try:
            # An Example is a SequenceExample without feature lists, to the byte.
            example = decode_example(item.payload, PayloadKind.SEQUENCE_EXAMPLE)
        except ValueError:
            fault = Fault(
                kind=FaultKind.PARSE,
                offset=item.offset,
                record=item.index,
                message="no tf.train.Example or SequenceExample",
            )
            self._note(self._faults, ShardFault(shard=self._shard, fault=fault))
            return
        feature = find_feature(example, self._plan.feature)
        name = printable(self._plan.feature)
        if feature is None:
            self._leave_out(item, example, f"it has no feature {name!r}")
        elif feature.dtype not in (DType.STRING, None):
            found = feature.dtype.value
            self._leave_out(item, example, f"its feature {name!r} is {found}, not string")
        elif not feature.values:
            self._leave_out(item, example, f"its feature {name!r} has no value")
        else:
            values = [value for value in feature.values if isinstance(value, bytes)]
            self._take_out(item, example, values)

    def _take_out(self, record: Record, example: Example, values: Sequence[bytes]) -> None:
        files = []
        class_name = self._class_name(example)
        recorded = self._recorded_name(example)
        named = SafePath(parts=()) if recorded is None else safe_path(recorded)
        parts = named.parts or (f"{self._stem}-{record.index:06d}",)
        folders: tuple[str, ...] = ()
        if not self._options.flat:
            folders = below_class(self._class_folder(class_name), parts[:-1])
        for number, value in enumerate(values, 1):
            content = describe_bytes(value)
            name = parts[-1] if len(values) == 1 else numbered(parts[-1], number, "-")
            name = with_suffix(name, content)
            self._mismatched += is_misnamed(name, content)
            file = self._staging.tree.add((*folders, name), value)
            files.append(file)
            self._count(file, value, class_name)
            reasons = named.reasons
            if file != "/".join((*folders, name)):
                reasons = (*reasons, "the name was taken")
            if reasons:
                shown = printable((recorded or name.encode()).decode("utf-8", "backslashreplace"))
                entry = RenamedFile(file=file, recorded=shown, reason=", ".join(reasons))
                self._note(self._renamed, entry)
        self._write_line(record, example, file=files[0] if len(files) == 1 else files)

    def _recorded_name(self, example: Example) -> bytes | None:
        feature = None if self._plan.name is None else example.features.get(self._plan.name)
        if feature is None or len(feature.values) != 1 or not isinstance(feature.values[0], bytes):
            return None
        return feature.values[0]

    def _class_name(self, example: Example) -> str | None:
        feature = None if self._plan.by is None else example.features.get(self._plan.by)
        if feature is None:
            return None
        if len(feature.values) == 1 and isinstance(feature.values[0], float):
            return str(shortest_float(feature.values[0]))
        return self._label_names.text(feature.values)

    def _class_folder(self, class_name: str | None) -> SafePath:
        if class_name is None:
            return SafePath(parts=())
        folder = safe_part(class_name)
        if folder.parts and folder.reasons and class_name not in self._odd_classes:
            self._odd_classes.add(class_name)
            entry = RenamedFile(
                file=f"{folder.parts[0]}/",
                recorded=printable(class_name),
                reason=", ".join(folder.reasons),
            )
            self._note(self._renamed, entry)
        return folder

    def _count(self, file: str, value: bytes, class_name: str | None) -> None:
        self._bytes += len(value)
        self._classes[os.path.dirname(file) or "."] += 1  # noqa: PTH120 - a text, not a path
        self._unlabelled += class_name is None and self._plan.by is not None

    def _leave_out(self, record: Record, example: Example, reason: str) -> None:
        entry = LeftOutRecord(shard=self._shard, record=record.index, reason=reason)
        self._note(self._left_out, entry)
        self._write_line(record, example, left_out=reason)

    def _write_line(
        self,
        record: Record,
        example: Example,
        file: str | list[str] | None = None,
        left_out: str | None = None,
    ) -> None:
        line: dict[str, Any] = {
            "file": file,
            "shard": printable(str(self._shard)),
            "record": record.index,
        }
        if left_out is not None:
            line["left_out"] = left_out
        line["features"] = features_json(example, None if file is None else self._plan.feature)
        self._staging.write_line(json.dumps(line, allow_nan=False))

    def _note(self, kept: list[Any], entry: LeftOutRecord | RenamedFile | ShardFault) -> None:
        self._counts[type(entry)] += 1
        if len(kept) < LISTED:
            kept.append(entry)

    def report(self) -> ExtractReport:
        return ExtractReport(
            directory=self._options.directory,
            metadata=metadata_beside(self._options.directory),
            feature=self._plan.feature,
            by=self._plan.by,
            name=self._plan.name,
            files=self._classes.total(),
            bytes=self._bytes,
            classes=dict(sorted(self._classes.items())),
            unlabelled=self._unlabelled,
            mismatched=self._mismatched,
            left_out=tuple(self._left_out),
            left_out_count=self._counts[LeftOutRecord],
            renamed=tuple(self._renamed),
            renamed_count=self._counts[RenamedFile],
            faults=tuple(self._faults),
            fault_count=self._counts[ShardFault],
        )
