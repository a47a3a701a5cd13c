"""Edit a dataset, shard by shard: re-encode images; select, drop, cast, rename and add features."""

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from tfrtool.convert.carried import CarriedMetadata, inferred_features
from tfrtool.convert.class_edit import (
    ClassEdit,
    UneditableError,
    class_edits,
    edit_class_metadata,
)
from tfrtool.convert.convert_options import EditOptions
from tfrtool.convert.feature_values import image_feature
from tfrtool.convert.record_lists import listed_numbers
from tfrtool.convert.source_records import (
    check_unchanged,
    faults_of,
    find_sources,
    no_readable_record,
    read_counted,
    shard_stamp,
)
from tfrtool.declare import takes
from tfrtool.engines.local_copies import local_copies
from tfrtool.errors import DatasetError, SourceError, TfrtoolError, UsageError, suggestion
from tfrtool.examples.dataset_files import DatasetFiles
from tfrtool.examples.dtypes import as_dtype
from tfrtool.examples.example import (
    DTYPES,
    LISTS,
    DType,
    Feature,
    PayloadKind,
    Value,
    decode_example,
    encode_example,
    feature_key,
    feature_name,
)
from tfrtool.examples.fields import Field, Kind, ListOf, Struct, Values, image_sizes, leaves_of
from tfrtool.examples.objects.record_features import OBJECTS
from tfrtool.examples.proto import example_pb2 as pb
from tfrtool.examples.tfds_metadata import (
    FEATURES,
    KEYPOINTS,
    LABEL_MAP,
    LABEL_SIGNS,
    dimensions,
    labels_file,
)
from tfrtool.features.schema_files import SCHEMA, SchemaFields
from tfrtool.features.stored_layout import stored_dtype, stored_features
from tfrtool.features.tfds_tree import tfds_dict, tfds_parts, tree_of_tfds, with_tfds_facts
from tfrtool.images.audit import RenderedImage, audit_image, render_image
from tfrtool.images.decoder import quiet_pillow
from tfrtool.images.recipe import Encode, ImageRecipe, Resize
from tfrtool.inspection.rows.batches import infer_columns
from tfrtool.inspection.verify.payload_check import unparseable
from tfrtool.records.compression import detect_compression
from tfrtool.records.count import count_shard
from tfrtool.records.framing import LocatedFault, Record
from tfrtool.records.tally import Tally
from tfrtool.records.writer import ShardWriter
from tfrtool.sources.class_map import ClassMap
from tfrtool.storage.arguments import as_local_path, as_member, as_path
from tfrtool.storage.json_values import reading_metadata, to_json_values
from tfrtool.storage.opening import open_regular
from tfrtool.storage.progress import RECORDS, count_work
from tfrtool.storage.remote_path import AnyPath, RemotePath
from tfrtool.writing.job import FileTask, Job, JobPlan, numbered, publish_records
from tfrtool.writing.job_report import (
    DROPPED,
    Faults,
    FinishedFile,
    JobReport,
    Written,
)
from tfrtool.writing.run_options import JobSettings

_PNG = b"\x89PNG\r\n\x1a\n"
_SKIP = "use --on-error skip to skip such records"
_EXACT_FLOAT32 = 2**24

_OBJECT_STARTS = (OBJECTS, "objects/")
_MEASURED = ("area", "segmentation", "mask")
"""Features of objects in pixels of the image; boxes and key points are fractions of its sides."""


class UncastableError(UneditableError):
    """Features of a record have values that can't be cast; says which, by feature."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        """Take a clause for each feature."""
        super().__init__("; ".join(reasons.values()))
        self.reasons = reasons


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The changes to each record, in the order in which they are made.

    All names are those before any change. A SequenceExample's context and its feature lists may
    share a name, which then means both; what is added goes into the context.
    """

    classes: tuple[ClassEdit, ...] = ()
    image: str | None = None  # the feature whose images are re-encoded
    recipe: ImageRecipe | None = None  # how; None leaves images alone
    same_format: bool = False  # whether PNGs stay PNGs, whatever the recipe says
    select: tuple[str, ...] | None = None  # the features that stay; None for all
    drop: tuple[str, ...] = ()
    cast: Mapping[str, DType] = field(default_factory=dict)
    rename: Mapping[str, str] = field(default_factory=dict)
    add: bytes = b""  # a serialized Example with the same features for every record

    def keeps(self, name: str) -> bool:
        """Return whether a feature is kept, under any name."""
        return name not in self.drop and (self.select is None or name in self.select)

    @property
    def names(self) -> set[str]:
        """The features that are named, and are to be there."""
        return {*(self.select or ()), *self.drop, *self.cast, *self.rename}

    @property
    def added(self) -> dict[str, Any]:
        """The features that are added, as messages, by name."""
        features = pb.Example.FromString(self.add).features.feature
        return {feature_name(entry.key): entry.value for entry in features}

    def check(self, known: Collection[str]) -> None:
        """Raise a `UsageError` if a name is unknown, or what is asked for contradicts itself."""
        for name in sorted(self.names - {*known}):
            raise UsageError(
                f"no feature {name!r}", hint=suggestion(name, sorted(known), "features")
            )
        for name in (*self.cast, *self.rename):
            if not self.keeps(name):
                raise UsageError(f"feature {name!r} is dropped, so it can't be cast or renamed")
        if self.recipe is not None and self.image is None:
            raise UsageError(
                "--encode and --resize require an image feature, and the first records have none"
            )
        measured = [f"{start}{name}" for start in _OBJECT_STARTS for name in _MEASURED]
        if self.recipe is not None and self.recipe.resize is not None:
            stale = [name for name in measured if name in known and self.keeps(name)]
            if stale:
                raise UsageError(
                    f"{', '.join(stale)} would no longer match the resized images",
                    hint=f"use --drop {','.join(stale)}",
                )
        if self.image is not None and not self.keeps(self.image):
            raise UsageError(f"--encode and --resize require {self.image!r}, which is dropped")
        after = [self.rename.get(name, name) for name in known if self.keeps(name)]
        if known and not after and not self.added:
            raise UsageError("no features would remain: keep or add at least one")
        twice = {name for name in (*after, *self.added) if [*after, *self.added].count(name) > 1}
        if twice:
            raise UsageError(
                f"two features would be named {min(twice)!r}",
                hint="use --drop or --rename on the existing one",
            )

    def to_json(self) -> dict[str, Any]:
        """Return the changes for a report; floats are strings, because JSON has no NaN."""
        added = {
            name: [
                feature_name(one)
                if isinstance(one, bytes)
                else one
                if type(one) is int
                else f"{one}"
                for one in feature.values
            ]
            for name, feature in decode_example(self.add).features.items()
        }
        facts = to_json_values(replace(self, classes=())) | {"add": added}
        return {name: fact for name, fact in facts.items() if fact}

    def with_tags(self, names: Collection[str]) -> bytes:
        """Return `add` with 1 for the tags of these names, which is 0 otherwise."""
        tags = {name: Feature(dtype=DType.INT64, values=(1,)) for name in names}
        return encode_example({**decode_example(self.add).features, **tags})

    def apply(
        self, payload: bytes, dropped: Counter[str] | None = None, add: bytes | None = None
    ) -> bytes:
        """Return a payload with the changes; the same bytes where there is nothing to change.

        ``dropped`` counts objects, if the payload can be changed. ``add`` is in place of `add`.
        `UneditableError` if a value does not fit, or the payload has no features.
        """
        try:
            message = pb.SequenceExample.FromString(payload)
        except DecodeError as error:
            raise UneditableError("not a tf.train.Example or SequenceExample") from error
        changed, counts = self.recipe is not None and self._encode_images(message), Counter[str]()
        uncastable = dict[str, str]()
        for one in self.classes:
            changed |= one.apply(message.context.feature, counts)
        for entries in (message.context.feature, message.feature_lists.feature_list):
            changed |= self._edit(entries, uncastable)
        if uncastable:
            raise UncastableError(uncastable)
        if dropped is not None:
            dropped.update(counts)
        if self.add:
            message.MergeFromString(self.add if add is None else add)
        return message.SerializeToString() if changed or self.add else payload

    def _edit(self, entries: Any, uncastable: dict[str, str]) -> bool:
        changed = False
        arriving = {*self.rename.values(), *(self.added if self.add else ())}
        for at in reversed(range(len(entries))):
            entry = entries[at]
            name = feature_name(entry.key)
            if not self.keeps(name):
                del entries[at]
                changed = True
                continue
            dtype = self.cast.get(name)
            if dtype is not None:
                try:
                    for step in _steps(entry):
                        changed |= _cast(name, step, dtype)
                except UneditableError as error:
                    uncastable.setdefault(name, str(error))
            if name in self.rename:
                entry.key = feature_key(self.rename[name])
                changed = True
            elif name in arriving:
                raise UneditableError(f"two features would be named {name!r}")
        return changed

    def _encode_images(self, message: pb.SequenceExample) -> bool:
        """Re-encode the images of a record, and update the features that describe them."""
        encoded_images: list[RenderedImage] = []
        for entries in (message.context.feature, message.feature_lists.feature_list):
            for entry in entries:
                if feature_name(entry.key) == self.image:
                    for step in _steps(entry):
                        values = step.bytes_list.value
                        for at, data in enumerate(values):
                            image = self._encoded(data)
                            if image is not None:
                                values[at] = image.data
                                encoded_images.append(image)
        if len(encoded_images) == 1:
            self._describe(message.context.feature, encoded_images[0])
        return bool(encoded_images)

    def _encoded(self, data: bytes) -> RenderedImage | None:
        recipe = self.recipe or ImageRecipe()
        if self.same_format and data.startswith(_PNG):
            recipe = replace(recipe, encode=Encode.PNG)
        verdict = audit_image(data, recipe)
        if verdict.problem is None and not recipe.always and verdict.conversion is None:
            return None
        try:
            if verdict.problem is None:
                return render_image(data, recipe)
            problem = verdict.problem
        except SourceError as error:
            problem = str(error)
        raise UneditableError(f"the image in {self.image!r} can't be re-encoded: {problem}")

    def _describe(self, entries: Iterable[Any], image: RenderedImage) -> None:
        """Set the size and format features of an image, if the record has them."""
        base = (self.image or "").removesuffix("/encoded").removesuffix("_raw")
        facts = {"height": image.height, "width": image.width, "channels": image.channels}
        for entry in entries:
            name = feature_name(entry.key)
            feature = entry.value
            fact = facts.get(name.removeprefix(f"{base}/"))
            if fact is not None and len(feature.int64_list.value) == 1:
                feature.int64_list.value[0] = fact
            elif name == f"{base}/format" and len(feature.bytes_list.value) == 1:
                found, png = feature.bytes_list.value[0].lower(), image.data.startswith(_PNG)
                if (found in (b"jpg", b"jpeg")) is png or (found == b"png") is not png:
                    feature.bytes_list.value[0] = b"png" if png else b"jpeg"


def _steps(entry: Any) -> Iterable[Any]:
    """Return the features of an entry: one, or the steps of a feature list."""
    return entry.value.feature if isinstance(entry, pb.FeatureListEntry) else (entry.value,)


def _cast(name: str, feature: Any, dtype: DType) -> bool:
    """Convert a feature's values to another type; return whether they had another one."""
    kind = feature.WhichOneof("kind")
    if kind is None or DTYPES[kind] is dtype:
        return False
    values = []
    for value in getattr(feature, kind).value:
        try:
            values.append(cast_value(value, dtype))
        except (ValueError, OverflowError):
            what = "text" if isinstance(value, bytes) else f"value {value!r}"
            raise UneditableError(
                f"{what} in feature {name!r} can't be cast to {dtype.value}"
            ) from None
    typed_list = getattr(feature, LISTS[dtype])
    typed_list.SetInParent()
    typed_list.value.extend(values)
    return True


def cast_value(value: Value, dtype: DType) -> Value:
    """Return a value in another type; `ValueError` if something would be lost.

    Text is rounded to the nearest float32, and a float32 gets the shortest text that restores it.
    """
    if dtype is DType.STRING and isinstance(value, float):
        import numpy as np

        return str(np.float32(value)).encode()
    if dtype is DType.FLOAT32 and isinstance(value, int) and abs(value) > _EXACT_FLOAT32:
        import numpy as np

        if int(np.float32(value)) != value:
            raise ValueError
    return as_dtype(value, dtype)


@dataclass(frozen=True, slots=True, kw_only=True)
class EditTask(FileTask):
    """A shard whose records are those of another one, changed, in the same order.

    Attributes:
        source: the other shard.
        stamp: its size and time of change (ns).
        changes: what to change in each record.
        tagged: the numbers of the records with each tag. `changes` adds a feature of it.
        stop: whether to stop at a record that is damaged or can't be changed.
    """

    source: AnyPath
    stamp: tuple[int, int]
    changes: Changes
    tagged: Mapping[str, frozenset[int]]
    stop: bool

    def write(self, path: Path) -> Written:
        """Write the shard, compressed like the source."""
        faults, read, dropped = Faults(stop=self.stop), Tally(), Counter[str]()
        with open_regular(self.source) as file:
            compression = detect_compression(file)
        with quiet_pillow(), ShardWriter(path, compression) as writer:
            writer.write(self._changed(read, faults, dropped))
        check_unchanged(self.source, self.stamp)
        return Written(tally=writer.tally, read=read, faults=faults, facts={DROPPED: {**dropped}})

    def _changed(self, read: Tally, faults: Faults, dropped: Counter[str]) -> Iterator[bytes]:
        records, number = iter(read_counted(self.source, read, faults, hint=_SKIP)), -1
        with_tags = cache(self.changes.with_tags)
        for record in records:
            count_work(1, RECORDS)
            number = record.index
            try:
                tags = tuple(name for name, listed in self.tagged.items() if number in listed)
                yield self.changes.apply(record.payload, dropped, with_tags(tags) if tags else None)
            except UneditableError as error:
                if self.stop:
                    location, what = {"record": record.index, "offset": record.offset}, str(error)
                    if isinstance(error, UncastableError):
                        what = "; ".join((what, *self._more_uncastable({*error.reasons}, records)))
                    raise DatasetError(what, path=self.source, **location, hint=_SKIP) from error
                fault = unparseable(record, str(error))
                faults.add(LocatedFault(path=self.source, fault=fault))
        last = max((max(listed, default=-1) for listed in self.tagged.values()), default=-1)
        if last > number and not faults.count:
            what = f"--tag lists record {last}, which doesn't exist"
            raise DatasetError(what, path=self.source, expected=f"less than {number + 1}")

    def _more_uncastable(self, known: set[str], records: Iterator[Record]) -> Iterator[str]:
        """Yield the first record that can't be cast of each other feature, in this shard."""
        changes = replace(self.changes, recipe=None)
        with suppress(TfrtoolError):  # damage: what was found before is enough
            while known < {*changes.cast} and (record := next(records, None)) is not None:
                try:
                    changes.apply(record.payload)
                except UncastableError as error:
                    for name, reason in error.reasons.items():
                        if name not in known:
                            yield f"{reason} (record {record.index})"
                    known |= error.reasons.keys()
                except UneditableError:
                    continue


def _count(path: AnyPath, expected: int | None) -> int:
    """Return the number of records of a shard; in a store, that of the metadata will do."""
    if expected is not None and isinstance(path, RemotePath):
        return expected
    return count_shard(path).records


@takes(EditOptions)
def edit(
    source: str | os.PathLike[str], target: str | os.PathLike[str], options: EditOptions
) -> JobReport:
    """Change the features of all records, writing one output shard per input shard.

    Changes are made in this order: re-encode images, change classes, and drop, cast, rename and add
    features. All names are those in ``source``. Everything else is preserved, including unknown
    fields of the messages, and an unchanged record keeps its exact bytes. No value changes
    silently: 3.0 can become an int64, but 3.5 can't; text is rounded to the nearest float32.

    Args:
        source: shards, a glob pattern, or a dataset directory.
        target: directory to write to.

    Raises:
        UsageError: no record has a named feature, two features would have the same name, or the
            target can't be written to.
        DatasetError: a record can't be changed.
        WriteError: a file can't be written.
    """
    settings, class_map = options.settings(as_path(target)), ClassMap.parse(options.class_map)
    added = (options.add, options.tag)
    wanted = (options.drop, options.rename, options.cast, *added, options.encode, class_map)
    if options.select is None and options.resize is None and not any(wanted):
        raise UsageError(
            "nothing to change",
            hint="use --select, --drop, --rename, --cast, --add, --tag, --class-map, --encode or "
            "--resize",
        )
    found = find_sources(source, settings.folder)
    carried = CarriedMetadata(found.folders, found.paths)
    changes = _changes_of(options, found.paths)
    tags = {name: as_local_path(path) for name, path in (options.tag or {}).items()}
    tagged = {name: listed_numbers(path, found.paths) for name, path in tags.items()}
    with local_copies(found.paths, settings.workers, settings.on_progress):
        known = _known_features(found.paths, changes, settings)
        if changes.recipe and any(name.startswith(_OBJECT_STARTS) for name in known):
            # Boxes are for the images as they lie.
            changes = replace(changes, recipe=replace(changes.recipe, orient=False))
        if class_map:
            edits = class_edits(class_map, carried.labels, known)
            changes = replace(changes, classes=tuple(edits))
        changes.check(known)
        _edit_types(carried, changes)
        tasks = _edit_tasks(found, changes, tagged, settings)
        facts = changes.to_json() | ({"class_map": [*options.class_map]} if class_map else {})
        plan = JobPlan(
            tasks=tasks,
            inputs=[(str(task.source), task.stamp, task.changes, task.tagged) for task in tasks],
            options={**settings.identity, **facts, "on_error": options.on_error},
            faults=faults_of(found, {}, stop=settings.stop),
            warnings=(*found.notes, *carried.warnings),
        )
        with Job(settings, "edit") as job:
            job.begin(plan)
            files = job.write(tasks)
            texts = _edited_texts(job, files, carried, changes, known) if job.folder else {}
            return publish_records(job, files, texts)


def _edited_texts(
    job: Job,
    files: Sequence[FinishedFile],
    carried: CarriedMetadata,
    changes: Changes,
    known: Collection[str],
) -> dict[str, str]:
    """Return the metadata of edited files, which are in the folder of the job."""
    staged = list[AnyPath]()
    if job.folder and any(file.shard.records for file in files):
        staged = [job.folder / file.shard.path for file in files]
    carried.features = edit_class_metadata(changes.classes, carried.labels, carried.features)
    _edit_metadata(carried, changes, known, staged)
    return carried.texts(job.settings, files)


def _changes_of(options: EditOptions, shards: Sequence[AnyPath]) -> Changes:
    """Return the changes that options make, except those to classes."""
    recipe = None
    if options.encode is not None or options.resize is not None:
        resize = Resize.of(options.resize)
        recipe = ImageRecipe(encode=Encode(options.encode or "keep"), resize=resize)
    casts = (options.cast or {}).items()
    return Changes(
        image=image_feature(shards) if recipe else None,
        recipe=recipe,
        same_format=options.encode is None,
        select=None if options.select is None else tuple(options.select),
        drop=tuple(options.drop),
        cast={name: as_member(DType, word, "cast") for name, word in casts},
        rename=dict(options.rename or {}),
        add=_added_features(options),
    )


def _added_features(options: EditOptions) -> bytes:
    """Return an Example with the features that every record gets; tags are 0."""
    if twice := {*(options.add or ())} & {*(options.tag or ())}:
        raise UsageError(f"--add and --tag both add {min(twice)!r}")
    tags = dict.fromkeys(options.tag or (), 0)
    return encode_example({**(options.add or {}), **tags}) if options.add or tags else b""


def _known_features(shards: Sequence[AnyPath], changes: Changes, settings: JobSettings) -> set[str]:
    """Return the features of all records; `DatasetError` if they have none that can be changed."""
    columns = infer_columns(shards, workers=settings.workers, on_progress=settings.on_progress)
    if not columns.parsed and (changes.names or columns.kind is not PayloadKind.EMPTY):
        if columns.kind is PayloadKind.EMPTY:
            raise no_readable_record(shards)
        raise DatasetError(
            "its records have no features",
            path=shards[0],
            expected="tf.train.Example or SequenceExample",
            found=columns.kind.title,
        )
    return {feature_name(column.key) for column in columns.columns}


def _edit_tasks(
    found: DatasetFiles,
    changes: Changes,
    tagged: Mapping[str, Mapping[AnyPath, frozenset[int]]],
    settings: JobSettings,
) -> list[EditTask]:
    """Return a task for each shard."""
    tasks = []
    for split, shards in found.splits.items():
        for path, expected in shards.shards.items():
            stamp = shard_stamp(path)
            task = EditTask(
                split=split,
                records=_count(path, expected),
                size=stamp[0],
                source=path,
                stamp=stamp,
                changes=changes,
                tagged={name: numbers[path] for name, numbers in tagged.items() if path in numbers},
                stop=settings.stop,
            )
            tasks.append(task)
    return numbered(tasks, settings.name)


def _edit_types(carried: CarriedMetadata, changes: Changes) -> None:
    """Keep the types of features that are stored as they were, under their new names."""
    fields = dict[str, Field]()
    for name, item in carried.types.fields.items():
        keys = [feature.key for feature in stored_features(Struct({name: item}))]
        is_torn = keys != [name] and not changes.rename.keys().isdisjoint(keys)
        if is_torn or not all(map(changes.keeps, keys)):
            continue  # what is left of it is described as it is stored
        new, dtype = changes.rename.get(name, name), changes.cast.get(name)
        values = next(leaf.values for leaf in leaves_of(item))
        if dtype is not None and values.kind is Kind.TIME and stored_dtype(values) is not dtype:
            what = f"{name!r} becomes {dtype.value}, so {SCHEMA} has no {values.dtype}"
            carried.warnings.append(what)
        elif dtype is not None:
            fields[new] = _cast_field(item, dtype)
        elif changes.cast.keys().isdisjoint(keys):
            fields[new] = item
    carried.types = SchemaFields(fields=fields)


def _cast_field(item: Field, dtype: DType) -> Field:
    """Return the field of a feature whose values get another type."""
    if isinstance(item, ListOf):
        return replace(item, item=_cast_field(item.item, dtype))
    if isinstance(item, Struct) or stored_dtype(item) is dtype:
        return item
    word = "text" if dtype is DType.STRING else dtype.value
    return replace(Values.parse(word), shape=item.shape, info=item.info)


def _edit_metadata(
    carried: CarriedMetadata, changes: Changes, known: Collection[str], shards: Sequence[AnyPath]
) -> None:
    """Make the metadata of a dataset that of the edited one.

    ``known`` are the names of features that records have. What TFDS describes as it was stays,
    under its new name; all else is described by what the edited ``shards`` hold.
    """
    new_names = {name: changes.rename.get(name, name) for name in known if changes.keeps(name)}
    files = {
        labels_file(name, sign): labels_file(new, sign)
        for sign in LABEL_SIGNS
        for name, new in new_names.items()
        if name not in changes.cast
    }
    files |= {name: name for name in (LABEL_MAP, KEYPOINTS)}
    labels = carried.labels.items()
    carried.labels = {files[file]: text for file, text in labels if file in files}
    _edit_supervised_keys(carried, changes)
    if carried.features is None:
        return
    with reading_metadata(FEATURES, "TFDS"):
        before = tfds_parts(carried.features)
    after = dict[str, Any]()
    missing, touched = {*changes.added}, {*changes.cast, changes.image}
    for name, feature in before.items():
        parts = [one for one in known if one not in before and one.startswith(f"{name}/")]
        same = touched.isdisjoint([name, *parts]) and all(
            new_names.get(one) == one for one in parts
        )
        if same and changes.keeps(name):
            after[changes.rename.get(name, name)] = feature
        else:
            missing.update(new_names[one] for one in (name, *parts) if one in new_names)
    if missing and shards:
        after |= inferred_features(missing, shards)
    carried.features = tfds_dict(after)
    if changes.image is not None and changes.recipe is not None and changes.recipe.resize:
        name, size = new_names[changes.image], changes.recipe.resize
        image = tree_of_tfds(carried.features)[0].fields.get(name)
        if isinstance(image, Values) and (sizes := image_sizes(image)):
            facts = {"shape": dimensions(size.height or -1, size.width or -1, sizes[-1] or -1)}
            carried.features = with_tfds_facts(carried.features, name, "image", facts)


def _edit_supervised_keys(carried: CarriedMetadata, changes: Changes) -> None:
    """Keep the input and the label that TFDS names, under their new names, if both are kept."""
    items = carried.info.pop("supervisedKeys", {}).get("tuple", {}).get("items", [])
    names = [str(item.get("featureKey")) for item in items]
    if names and all(map(changes.keeps, names)):
        items = [{"featureKey": changes.rename.get(name, name)} for name in names]
        carried.info["supervisedKeys"] = {"tuple": {"items": items}}
