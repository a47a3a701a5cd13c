"""The verb: the images of a shard become files again, byte for byte."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tfrtool.errors import ShardError, UsageError, printable
from tfrtool.examples.content import describe_bytes
from tfrtool.examples.example import DType, Example, PayloadKind, decode_example
from tfrtool.examples.roles import LabelNames
from tfrtool.inspection.extract.extract_earlier import metadata_beside
from tfrtool.inspection.extract.extract_files import NewFiles, new_files
from tfrtool.inspection.extract.extract_metadata import features_json
from tfrtool.inspection.extract.extract_names import (
    below_class,
    is_misnamed,
    shard_stem,
    with_suffix,
)
from tfrtool.inspection.extract.extract_plan import ExtractPlan, find_feature, plan_extract
from tfrtool.inspection.extract.extract_report import (
    LISTED,
    ExtractReport,
    LeftOutRecord,
    RenamedFile,
)
from tfrtool.inspection.extract.safe_names import SafePath, numbered, safe_part, safe_path
from tfrtool.inspection.first_of import FirstOf
from tfrtool.inspection.summary.summary_json import shortest_float
from tfrtool.inspection.verify.payload_check import unparseable
from tfrtool.records.framing import Fault, LocatedFault, Record
from tfrtool.records.reader import read_records
from tfrtool.records.shards import find_shards
from tfrtool.records.stream import open_shard
from tfrtool.storage.locations import as_path
from tfrtool.storage.progress import OnProgress, Progress, silent


def extract(
    shards: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    directory: str | os.PathLike[str],
    *,
    feature: str | None = None,
    by: str | None = None,
    name: str | None = None,
    flat: bool = False,
    limit: int | None = None,
    overwrite: bool = False,
    on_progress: OnProgress = silent,
) -> ExtractReport:
    """Write the values of a string feature as files, in folders by class, byte for byte.

    A file has the name that its record gives, made safe; where the record gives none, it is made
    of the shard's name and the record's number. Its class folder is that name's own, if it has
    one, and otherwise put before it. The other features go to a JSON Lines file beside the
    directory. All of it gets its final name at the end; an exception, Ctrl-C included, leaves
    nothing behind. Memory is bounded by one record and the number of folders.

    Args:
        shards: files, patterns and directories, one or several.
        directory: where the files go; unless ``overwrite``, it is empty, or not there yet.
        feature: the string feature whose values become files; None takes the image.
        by: the feature that decides the class folder; None takes the label, if there is one.
        name: the feature that names the files; None takes what is in common use.
        flat: no folders at all: each file lies in the directory under its base name.
        limit: how many whole records to take at most; None for all.
        overwrite: whether what an earlier extract made there is replaced.
        on_progress: told after each record how many bytes of shards are read.

    Raises:
        UsageError: the directory is in use, or a feature that was asked for is not there.
        ShardError: a shard can't be read, or there was nothing to take out.
        WriteError: something can't be written.
    """
    directory, shards = as_path(directory), find_shards(shards)
    if not shards:
        raise UsageError("no shards to take anything out of")
    if flat and by is not None:
        raise UsageError("folders by a feature and one flat folder exclude each other")
    if limit is not None and limit < 1:
        raise UsageError(f"limit is at least 1, not {limit}")
    with new_files(directory, overwrite=overwrite) as files:
        plan = plan_extract(shards, feature, by, name)
        extraction = _Extraction(replace(plan, by=None) if flat else plan, flat, files)
        for path, item in _items(shards, on_progress):
            extraction.add(path, item)
            if extraction.records == limit:
                break
        report = extraction.report(directory)
        if not report.files:
            reasons = [f"record {one.record}: {one.reason}" for one in report.left_out]
            reasons += [entry.fault.message for entry in report.faults]
            found = next(iter(reasons), "no records")
            raise ShardError("nothing was taken out", path=shards[0], found=found)
        files.publish()
    return report


def _items(
    shards: Sequence[Path], on_progress: OnProgress
) -> Iterator[tuple[Path, Record | Fault]]:
    sizes = [path.stat().st_size if path.exists() else 0 for path in shards]
    before = 0
    for path, size in zip(shards, sizes, strict=True):
        with open_shard(path) as file:
            for item in read_records(file):
                done = before + file.tell()
                on_progress(Progress(what="extract", done=done, total=sum(sizes), unit="B"))
                yield path, item
        before += size


class _Extraction:
    """A fold over the records and faults of shards."""

    def __init__(self, plan: ExtractPlan, flat: bool, files: NewFiles) -> None:
        self._plan = plan
        self._flat = flat
        self._files = files
        self._shard, self._stem, self._label_names = Path(), "", LabelNames()
        self.records = 0
        self._bytes = self._unlabelled = self._mismatched = 0
        self._classes: Counter[str] = Counter()
        self._left_out = FirstOf[LeftOutRecord](LISTED)
        self._renamed = FirstOf[RenamedFile](LISTED)
        self._faults = FirstOf[LocatedFault](LISTED)
        self._odd_classes: set[str] = set()

    def add(self, shard: Path, item: Record | Fault) -> None:
        if shard != self._shard:
            self._shard, self._stem = shard, shard_stem(shard)
            self._label_names = LabelNames.beside(shard.parent, self._plan.by)
        if isinstance(item, Fault):
            self._faults.add(LocatedFault(path=self._shard, fault=item))
            return
        self.records += 1
        try:
            # An Example is a SequenceExample without feature lists, to the byte.
            example = decode_example(item.payload, PayloadKind.SEQUENCE_EXAMPLE)
        except ValueError:
            self._faults.add(LocatedFault(path=self._shard, fault=unparseable(item)))
            return
        feature = find_feature(example, self._plan.feature)
        name = printable(self._plan.feature)
        if feature is None:
            reason = f"it has no feature {name!r}"
        elif feature.dtype not in (DType.STRING, None):
            reason = f"its feature {name!r} is {feature.dtype.value}, not string"
        elif not feature.values:
            reason = f"its feature {name!r} has no value"
        else:
            values = [value for value in feature.values if isinstance(value, bytes)]
            files = self._take_out(item, example, values)
            self._write_line(item, example, file=files[0] if len(files) == 1 else files)
            return
        self._left_out.add(LeftOutRecord(shard=self._shard, record=item.index, reason=reason))
        self._write_line(item, example, left_out=reason)

    def _take_out(self, record: Record, example: Example, values: list[bytes]) -> list[str]:
        class_name = self._class_name(example)
        recorded = next(iter(example.values(self._plan.name)), None)
        if not isinstance(recorded, bytes) or len(example.values(self._plan.name)) != 1:
            recorded = None
        named = SafePath(parts=()) if recorded is None else safe_path(recorded)
        parts = named.parts or (f"{self._stem}-{record.index:06d}",)
        folders: tuple[str, ...] = ()
        if not self._flat:
            folders = below_class(self._class_folder(class_name), parts[:-1])
        files = []
        for number, value in enumerate(values, 1):
            content = describe_bytes(value)
            name = parts[-1] if len(values) == 1 else numbered(parts[-1], number, "-")
            name = with_suffix(name, content)
            file = self._files.add((*folders, name), value)
            files.append(file)
            self._mismatched += is_misnamed(name, content)
            self._bytes += len(value)
            self._classes[file.rpartition("/")[0] or "."] += 1
            self._unlabelled += class_name is None and self._plan.by is not None
            taken = file != "/".join((*folders, name))
            if taken or named.reasons:
                reasons = (*named.reasons, "the name was taken") if taken else named.reasons
                shown = printable((recorded or name.encode()).decode("utf-8", "backslashreplace"))
                entry = RenamedFile(file=file, recorded=shown, reason=", ".join(reasons))
                self._renamed.add(entry)
        return files

    def _class_name(self, example: Example) -> str | None:
        values = example.values(self._plan.by)
        if len(values) == 1 and isinstance(values[0], float):
            return str(shortest_float(values[0]))
        return self._label_names.text(values)

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
            self._renamed.add(entry)
        return folder

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
        self._files.write_line(json.dumps(line, allow_nan=False))

    def report(self, directory: Path) -> ExtractReport:
        return ExtractReport(
            directory=directory,
            metadata=metadata_beside(directory),
            feature=self._plan.feature,
            by=self._plan.by,
            name=self._plan.name,
            files=self._classes.total(),
            bytes=self._bytes,
            classes=dict(sorted(self._classes.items())),
            unlabelled=self._unlabelled,
            mismatched=self._mismatched,
            left_out=tuple(self._left_out.kept),
            left_out_count=self._left_out.count,
            renamed=tuple(self._renamed.kept),
            renamed_count=self._renamed.count,
            faults=tuple(self._faults.kept),
            fault_count=self._faults.count,
        )
