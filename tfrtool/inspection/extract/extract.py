"""The verb: the images of a shard become files again, byte for byte."""

import base64
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from tfrtool.declare import takes
from tfrtool.errors import ShardError, UsageError, named_record, printable, some_of
from tfrtool.examples.content import decode_text, describe_bytes
from tfrtool.examples.example import DType, Example, Feature, PayloadKind, Value, decode_example
from tfrtool.examples.roles import SAMPLE, FirstRecords, LabelNames, find_encoded
from tfrtool.examples.sound import is_sound_name, rate_feature
from tfrtool.examples.tfds_metadata import FEATURES, info_beside
from tfrtool.features.metadata_types import has_metadata_types
from tfrtool.inspection.extract.annotations import AnnotatedImages, ExtractedObjects
from tfrtool.inspection.extract.extract_files import NewFiles, metadata_beside, new_files
from tfrtool.inspection.extract.safe_names import (
    numbered,
    safe_part,
    safe_path,
    shard_stem,
    with_suffix,
)
from tfrtool.inspection.inspect_options import ExtractOptions
from tfrtool.inspection.summary.summary_json import shortest_float, value_json
from tfrtool.inspection.verify.payload_check import unparseable
from tfrtool.records.framing import Fault, LocatedFault, Record
from tfrtool.records.reader import read_records
from tfrtool.records.shards import find_shards
from tfrtool.records.stream import open_shard
from tfrtool.sources.annotations.annotation_kinds import KINDS
from tfrtool.storage.arguments import Paths, as_local_path
from tfrtool.storage.capped_list import CappedList
from tfrtool.storage.json_values import Shown, to_json_values
from tfrtool.storage.progress import Progress
from tfrtool.storage.remote_path import AnyPath

if TYPE_CHECKING:
    from tfrtool.inspection.extract.array_files import ArrayFiles

# How many faults, records and names a report lists; the metadata has a line about each record.
_LISTED = 1000

# Binary values are kept in full up to here: hashes and keys, but not images and masks.
_KEPT_BYTES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedRecord:
    """A whole record that nothing was taken out of, and why."""

    shard: AnyPath
    record: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RenamedFile:
    """A file that doesn't have the name that the record gives."""

    file: str  # below the directory
    recorded: str  # fit to be printed


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ExtractReport(Shown):
    """Result of extracting files from shards. Long lists are cut; the counts are complete.

    Attributes:
        directory: directory with the extracted files.
        metadata: JSON Lines file with the other features, one line per record.
        feature: feature whose values became files.
        by: feature that determines the class directory, or None.
        name: feature that determines the file name. None if names are made from the shard's name
            and the record number.
        files: number of files written.
        bytes: total size of the files, in bytes.
        classes: number of files in each directory; "." is the directory itself.
        unlabelled: number of files without a class, which are not in a class directory.
        skipped: first records from which nothing was extracted, with the reason.
        skipped_count: total number of such records.
        renamed: first files whose name differs from the one in the record.
        renamed_count: total number of such files.
        faults: first faults found in the shards.
        fault_count: total number of faults.
        annotations: the exported objects, or None if annotations were not requested.
        label_guess: feature that may be the label, if the label is unknown.
    """

    directory: Path
    metadata: Path
    feature: str
    by: str | None
    name: str | None
    files: int
    bytes: int
    classes: Mapping[str, int]
    unlabelled: int
    skipped: tuple[SkippedRecord, ...]
    skipped_count: int
    renamed: tuple[RenamedFile, ...]
    renamed_count: int
    faults: tuple[LocatedFault, ...]
    fault_count: int
    annotations: ExtractedObjects | None = None
    label_guess: str | None = None

    @property
    def complete(self) -> bool:
        """Whether every record is intact and was extracted, with all of its objects."""
        objects_complete = self.annotations is None or self.annotations.complete
        return objects_complete and not self.fault_count and not self.skipped_count

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``extract --json`` prints."""
        data = to_json_values(replace(self, annotations=None))
        del data["annotations"]
        if self.annotations is not None:
            data["annotations"] = to_json_values(self.annotations)
        data["classes"] = dict(self.classes)  # the very names of the folders
        data["renamed"] = [{"file": one.file, "from": one.recorded} for one in self.renamed]
        return {"dir": data.pop("directory"), **data}


@takes(ExtractOptions)
def extract(
    shards: Paths, directory: str | os.PathLike[str], options: ExtractOptions
) -> ExtractReport:
    """Write the values of a string feature as files, unchanged, in one directory per class.

    A file is named after its record, with unsafe characters replaced; a record without a name is
    named after its shard and record number. A directory in the record's name is used as the class
    directory; otherwise the class is put in front.

    The other features are written to a JSON Lines file next to the directory. Everything is moved
    into place at the end: after an error or Ctrl-C, nothing is left behind. Memory is bounded by
    one record and the number of directories.

    Args:
        shards: files, glob patterns and directories, one or several.
        directory: directory to write to. It must be empty or not exist, unless ``overwrite`` is
            true.

    Raises:
        UsageError: the directory is in use, or a given feature does not exist.
        ShardError: a shard can't be read, or there was nothing to extract.
        WriteError: a file can't be written.
    """
    directory, shards = as_local_path(directory), find_shards(shards)
    if not shards:
        raise UsageError("no shards to extract from")
    flat = options.flat
    with new_files(directory, overwrite=options.overwrite) as files:
        plan = plan_extract(shards, options)
        objects: AnnotatedImages | None = None
        if options.annotations is not None:
            objects = resolve_name(KINDS[options.annotations].writer)(files, shards)
        plan = replace(plan, by=None, guess=None) if flat or objects else plan
        extraction = _Extraction(plan, flat, files, objects)
        total = sum(path.stat().st_size for path in shards if path.exists())
        for path, item, read in _items(shards):
            options.on_progress(Progress(what="extracting", done=read, total=total, unit="B"))
            extraction.add(path, item)
            if extraction.records == options.limit:
                break
        report = extraction.report(directory)
        if not report.files:
            reasons = [
                f"{named_record(one.shard.name, one.record)}: {one.reason}"
                for one in report.skipped
            ]
            reasons += [entry.fault.message for entry in report.faults]
            reason = next(iter(reasons), "no records")
            raise ShardError(f"nothing to extract: {reason}", path=shards[0])
        files.publish()
    return report


_NAMES_SHOWN = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractPlan:
    """The features that become files, class folders and names; None for none of these."""

    feature: str
    by: str | None
    name: str | None
    arrays: "ArrayFiles | None" = None  # if the feature is numbers
    guess: str | None = None  # of the class folders, where no label is known


def plan_extract(shards: Sequence[AnyPath], options: ExtractOptions) -> ExtractPlan:
    """Choose the features, from the options and the first records.

    If none of these has a feature that was asked for, all others are searched for it.
    """
    feature, by, name = options.feature, options.by, options.name
    wanted, first = {feature, by, name} - {None}, FirstRecords()
    for _ in first.read(shards, most=None):
        if first.records >= SAMPLE and wanted <= first.features.keys():
            break
    types, path = {key: item.dtype for key, item in first.features.items()}, shards[0]
    if not first.records:
        reason = first.payload.title
        if first.payload is PayloadKind.EMPTY and first.faults.entries:
            reason = f"no intact records ({first.faults.entries[0].message})"
        expected = "records with features"
        raise ShardError("nothing to extract", path=path, expected=expected, found=reason)
    names = [f"{printable(key)} ({_dtype(types[key])})" for key in sorted(types)]
    listed = some_of(names, _NAMES_SHOWN) or "records without features"
    for missing in sorted(map(str, wanted - types.keys())):
        raise UsageError(f"no feature {missing!r}", path=path, found=listed)
    feature = feature or find_encoded(first.features, info_beside(path.parent))
    if options.feature is None and options.types and len(options.types) == 1:
        (feature,) = options.types
    feature = feature or (None if first.images else _find_sound(first.features))
    arrays = None if feature is None else _array_files(feature, path, first.features, options.types)
    if feature is None:
        if first.images:
            what, images = "several features hold images", map(repr, sorted(first.images))
            hint = "use --feature to choose one"
            raise UsageError(what, path=path, found=", ".join(images), hint=hint)
        strings = DType.STRING in types.values()
        another = "use --feature to extract another string feature" if strings else None
        raise ShardError(
            "no feature holds an image or sound", path=path, found=listed, hint=another
        )
    other = "a string feature other than the extracted one"
    for asked, part, expected in (
        (name, "name the files", other),
        (feature, "become files", "string, or numbers with a sample rate"),
    ):
        is_known = asked is None or (asked == feature and arrays is not None)
        dtype = DType.STRING if is_known else types[str(asked)]
        if dtype not in (DType.STRING, None) or asked == feature == name:
            what = f"feature {asked!r} can't {part}"
            raise UsageError(what, path=path, expected=expected, found=_dtype(dtype))
    guess = first.roles.guess if by is None and first.roles.label is None else None
    by, name = by or first.roles.label, name or first.roles.name
    return ExtractPlan(
        feature=feature,
        arrays=arrays,
        by=by if by != feature else None,
        name=name if name != feature else None,
        guess=guess if guess not in (feature, arrays and arrays.rate) else None,
    )


def _array_files(
    name: str,
    path: AnyPath,
    features: Mapping[str, Feature],
    types: Mapping[str, str] | None,
) -> "ArrayFiles | None":
    """Return what makes files of a feature that is numbers; None if it is something else.

    NumPy isn't imported for strings without types or metadata.
    """
    stored = features.get(name)
    is_string = stored is None or stored.dtype in (DType.STRING, None)
    has_types = bool(types) or (path.parent / FEATURES).exists() or has_metadata_types(path)
    if is_string and not has_types:
        return None
    from tfrtool.inspection.extract.array_files import array_files
    from tfrtool.inspection.pictures.array_images import declared_root

    return array_files(name, declared_root(path, types), features)


def _find_sound(features: Mapping[str, Feature]) -> str | None:
    """Return the feature that is sound, encoded or as samples; None without exactly one."""
    found = [
        name
        for name, feature in features.items()
        if _is_encoded_sound(feature)
        or (is_sound_name(name) and _is_samples(feature) and rate_feature(features, name))
    ]
    return found[0] if len(found) == 1 else None


def _is_encoded_sound(feature: Feature) -> bool:
    value = feature.values[0] if len(feature.values) else None
    return isinstance(value, bytes) and describe_bytes(value).startswith("audio/")


def _is_samples(feature: Feature) -> bool:
    return feature.dtype in (DType.INT64, DType.FLOAT32) and len(feature.values) > 1


def _dtype(dtype: DType | None) -> str:
    return "never set" if dtype is None else dtype.value


def find_feature(example: Example, name: str) -> Feature | None:
    """Return a feature of a record; a feature list is one feature with the values of all steps."""
    feature = example.features.get(name)
    if feature is not None or name not in example.feature_lists:
        return feature
    steps = [step for step in example.feature_lists[name] if step.dtype is not None]
    dtypes = {step.dtype for step in steps}
    if len(dtypes) != 1:  # steps that disagree
        return Feature(dtype=None, values=())
    return Feature(dtype=dtypes.pop(), values=tuple(v for step in steps for v in step.values))


def stored_values(plan: ExtractPlan, payload: bytes, example: Example) -> Sequence[bytes]:
    """Return the contents of the files of a record; `ValueError` with the reason if it has none."""
    feature, name = find_feature(example, plan.feature), printable(plan.feature)
    if feature is None:
        raise ValueError(f"no feature {name!r}")
    if plan.arrays is not None:
        return plan.arrays.files(payload, example)
    if feature.dtype not in (DType.STRING, None):
        raise ValueError(f"feature {name!r} is {_dtype(feature.dtype)}, not string")
    if not feature.values:
        raise ValueError(f"feature {name!r} has no value")
    return [value for value in feature.values if isinstance(value, bytes)]


def _items(shards: Sequence[AnyPath]) -> Iterator[tuple[AnyPath, Record | Fault, int]]:
    """Yield records and faults with their shards, and how many bytes are read by then."""
    done = 0
    for path in shards:
        with open_shard(path) as file:
            for item in read_records(file):
                yield path, item, done + file.tell()
            done += file.tell()


class _Extraction:
    """A fold over the records and faults of shards."""

    def __init__(
        self, plan: ExtractPlan, flat: bool, files: NewFiles, objects: AnnotatedImages | None
    ) -> None:
        self._plan, self._objects = plan, objects
        self._flat = flat
        self._files = files
        self._shard: AnyPath = Path()
        self._stem, self._label_names = "", LabelNames()
        self.records = 0
        self._bytes = self._unlabelled = 0
        self._classes: Counter[str] = Counter()
        self._skipped = CappedList[SkippedRecord](_LISTED)
        self._renamed = CappedList[RenamedFile](_LISTED)
        self._faults = CappedList[LocatedFault](_LISTED)

    def add(self, shard: AnyPath, item: Record | Fault) -> None:
        if shard != self._shard:
            self._shard, self._stem = shard, shard_stem(shard)
            self._label_names = LabelNames.read(shard.parent, self._plan.by)
        if isinstance(item, Fault):
            self._faults.add(LocatedFault(path=shard, fault=item))
            return
        self.records += 1
        try:
            # An Example is a SequenceExample without feature lists, to the byte.
            example = decode_example(item.payload, PayloadKind.SEQUENCE_EXAMPLE)
        except ValueError:
            self._faults.add(LocatedFault(path=shard, fault=unparseable(item)))
            return
        line: dict[str, Any] = {"file": None, "shard": printable(str(shard)), "record": item.index}
        taken_out = None
        try:
            values = stored_values(self._plan, item.payload, example)
            if self._objects is not None and len(values) > 1:
                what = "has several images, but the objects belong to one"
                raise ValueError(f"feature {self._plan.feature!r} {what}")
        except ValueError as error:
            reason = printable(str(error))
            self._skipped.add(SkippedRecord(shard=shard, record=item.index, reason=reason))
            if self._objects is not None:
                self._objects.leave_out(shard, item.index, example.features, reason)
            line["skipped"] = reason
        else:
            taken_out = self._plan.feature
            files = self._take_out(item.index, example, values)
            line["file"] = files[0] if len(files) == 1 else files
        line["features"] = _features_json(example, without=taken_out)
        self._files.add_line(json.dumps(line, allow_nan=False))

    def _take_out(self, record: int, example: Example, values: Sequence[bytes]) -> list[str]:
        """Write the values of a record, and return the paths of the files."""
        named = example.values(self._plan.name)
        recorded = named[0] if len(named) == 1 and isinstance(named[0], bytes) else None
        path = () if recorded is None else safe_path(recorded)
        *folders, base = path or (f"{self._stem}-{record:06d}",)
        label = example.values(self._plan.by)
        class_name = self._label_names.text(label)
        if len(label) == 1 and isinstance(label[0], float):
            class_name = str(shortest_float(label[0]))
        if self._flat:
            folders = []
        elif class_name is not None:
            # TFDS writes the class "cat" of a file in "PetImages/Cat", which has its folder then.
            folder = safe_part(class_name)
            if folder.casefold() not in ("", *(part.casefold() for part in folders)):
                folders = [folder, *folders]
        files: list[str] = []
        at = -1 if self._objects and self._objects.moves_images else 0
        for number, value in enumerate(values, 1):
            name = base if len(values) == 1 else numbered(base, number, "-")
            parts = (*folders, with_suffix(name, describe_bytes(value)))
            if self._objects is None:
                paths = [self._files.add(parts, value)]
            else:
                paths = self._objects.add(self._shard, record, example.features, parts, value)
            file, files = paths[0], files + paths
            self._bytes += len(value)
            self._classes[file.rpartition("/")[0] or "."] += 1
            self._unlabelled += class_name is None and self._plan.by is not None
            changed = recorded is not None and "/".join(path).encode() != recorded
            if changed or not f"/{file}".endswith(f"/{'/'.join(parts[at:])}"):
                shown = (recorded or parts[-1].encode()).decode("utf-8", "backslashreplace")
                self._renamed.add(RenamedFile(file=file, recorded=printable(shown)))
        return files

    def report(self, directory: Path) -> ExtractReport:
        objects = None if self._objects is None else self._objects.report()
        if objects is not None:
            line: dict[str, Any] = {
                "file": objects.files,
                "shard": None,
                "record": None,
                "features": {},
            }
            self._files.add_line(json.dumps(line))
        return ExtractReport(
            directory=directory,
            metadata=metadata_beside(directory),
            feature=self._plan.feature,
            by=self._plan.by,
            label_guess=self._plan.guess,
            name=self._plan.name,
            files=self._classes.total(),
            bytes=self._bytes,
            classes=dict(sorted(self._classes.items())),
            unlabelled=self._unlabelled,
            skipped=tuple(self._skipped.entries),
            skipped_count=self._skipped.count,
            renamed=tuple(self._renamed.entries),
            renamed_count=self._renamed.count,
            faults=tuple(self._faults.entries),
            fault_count=self._faults.count,
            annotations=objects,
        )


def _features_json(example: Example, without: str | None) -> dict[str, Any]:
    """Return all features of a record but one, as values; the steps of a feature list are a list.

    A single value stands for itself, several are a list, and a feature that is there without a
    kind is null.
    """
    data = {n: _feature_json(item) for n, item in example.features.items() if n != without}
    for name, steps in example.feature_lists.items():
        if name != without:
            data[f"{name} (list)" if name in data else name] = list(map(_feature_json, steps))
    return data


def _feature_json(feature: Feature) -> Any:
    values = [_value_json(value) for value in feature.values]
    return None if feature.dtype is None else values[0] if len(values) == 1 else values


def _value_json(value: Value) -> Any:
    """Return text as it is, and other bytes described, with their base64 up to a kibibyte."""
    if not isinstance(value, bytes):
        return value_json(value)
    text = decode_text(value)
    if text is not None:
        return text
    data: dict[str, Any] = {"bytes": len(value), "content": describe_bytes(value)}
    if len(value) <= _KEPT_BYTES:
        data["base64"] = base64.b64encode(value).decode()
    return data
