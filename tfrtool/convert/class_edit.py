"""Classes of records that are renamed, merged or dropped."""

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tfrtool.errors import UsageError
from tfrtool.examples.example import feature_name
from tfrtool.examples.objects.label_map import label_map_text, parse_label_map
from tfrtool.examples.objects.record_features import OBJECTS, TFDS_OBJECTS
from tfrtool.examples.tfds_metadata import (
    FEATURES,
    KEYPOINTS,
    LABEL_MAP,
    LABEL_SIGNS,
    Json,
    labels_file,
)
from tfrtool.features.tfds_tree import with_tfds_facts
from tfrtool.sources.class_map import ClassMap
from tfrtool.storage.json_values import reading_metadata
from tfrtool.writing.job_report import json_text


class UneditableError(ValueError):
    """A record can't be changed as it is to be; says why, in a clause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassEdit:
    """Changes of the classes in one feature.

    Attributes:
        label: the feature that has their numbers.
        file: the name of the file that has their names.
        names: the new names by number.
        numbers: new numbers by old ones; None leaves an object out.
        texts: new names by old ones.
    """

    label: str
    file: str
    names: Mapping[int, str]
    numbers: Mapping[int, int | None]
    texts: Mapping[bytes, bytes] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The contents of the file with names."""
        if self.file == LABEL_MAP:
            return label_map_text(self.names)
        return "".join(f"{name}\n" for name in self.names.values())

    def apply(self, entries: Sequence[Any], dropped: Counter[str]) -> bool:
        """Change the features of a record; return whether anything has changed.

        ``dropped`` counts ``objects``, and ``images_without_objects`` that had some.
        """
        known = {feature_name(entry.key): entry.value for entry in entries}
        if self.label not in known:
            return False
        values = known[self.label].int64_list.value
        before, positions = [*values], list[int]()
        for at, number in enumerate(before):
            if number not in self.numbers:
                raise UneditableError(f"class {number} in {self.label!r} has no name")
            if self.numbers[number] is not None:
                positions.append(at)
        values[:] = [self.numbers[before[at]] for at in positions]
        changed = before != [*values]
        texts = known.get(f"{self.label.removesuffix('label')}text")
        if texts is not None:
            old = [*texts.bytes_list.value]
            texts.bytes_list.value[:] = [self.texts.get(one, one) for one in old]
            changed |= old != [*texts.bytes_list.value]
        if len(positions) < len(before):
            dropped["objects"] += len(before) - len(positions)
            dropped["images_without_objects"] += not positions
            start = OBJECTS if self.label.startswith(OBJECTS) else TFDS_OBJECTS
            for name, feature in known.items():
                if name.startswith(start) and name != self.label:
                    _keep(name, feature, positions, len(before))
        return changed


def _keep(name: str, feature: Any, positions: Sequence[int], count: int) -> None:
    """Keep the values of some objects; all objects have the same number of values."""
    kind = feature.WhichOneof("kind")
    values = getattr(feature, kind).value if kind else []
    each, rest = divmod(len(values), count)
    if rest:
        raise UneditableError(f"{name!r} has {len(values)} values for {count} objects")
    values[:] = [one for at in positions for one in values[each * at : each * (at + 1)]]


def class_edits(
    chosen: ClassMap, labels: Mapping[str, str], known: Collection[str]
) -> Iterator[ClassEdit]:
    """Yield what becomes of the classes of records.

    Args:
        chosen: the new names.
        labels: the texts of files with class names, by their names.
        known: the features of the records.

    Raises:
        UsageError: no file names the classes, a class is unknown, or records would lose their only
            label.
    """
    files = [*_files_with_classes(labels, known)]
    if not files:
        raise UsageError("--class-map requires records whose classes have names")
    chosen.check_files(dict.fromkeys(name for _, _, names in files for name in names.values()))
    for file, features, before in files:
        new, firsts = chosen.new_names(before.values()), dict[str, int]()
        for number, name in before.items():
            if new[name]:
                firsts.setdefault(new[name], number if file == LABEL_MAP else len(firsts))
        for label in features:
            if "" in new.values() and not label.startswith((OBJECTS, TFDS_OBJECTS)):
                hint = "use tfrtool filter to drop records"
                raise UsageError(f"records would lose their {label!r}", hint=hint)
            yield ClassEdit(
                label=label,
                file=file,
                names={number: name for name, number in firsts.items()},
                numbers={number: firsts.get(new[name]) for number, name in before.items()},
                texts={old.encode(): name.encode() for old, name in new.items()},
            )


def _files_with_classes(
    labels: Mapping[str, str], known: Collection[str]
) -> Iterator[tuple[str, Sequence[str], Mapping[int, str]]]:
    """Yield each file that names classes of known features, these, and the names by number."""
    for file, text in labels.items():
        features = [f"{OBJECTS}class/label", "image/class/label"]
        if file != LABEL_MAP:
            features = [
                name for name in known if file in {labels_file(name, sign) for sign in LABEL_SIGNS}
            ]
        if not (features := [name for name in features if name in known]):
            continue
        names = dict(enumerate(line.strip() for line in text.split("\n") if line.strip()))
        if file == LABEL_MAP:
            with reading_metadata(file, "the TF Object Detection API"):
                names = parse_label_map(text)
        yield file, features, names


def edit_class_metadata(
    edits: Sequence[ClassEdit], labels: dict[str, str], features: Json | None
) -> Json | None:
    """Change the files with class names; return features.json with the number of classes."""
    for one in edits if features is not None else ():
        with reading_metadata(FEATURES, "TFDS"):
            facts = {"numClasses": str(len(one.names))}
            features = with_tfds_facts(features, one.label, "classLabel", facts)
    for file, edit in {edit.file: edit for edit in edits}.items():
        labels[file] = edit.text
        if KEYPOINTS in labels:
            with reading_metadata(KEYPOINTS, "tfrtool"):
                points = json.loads(labels[KEYPOINTS])
            new = {old.decode(): name.decode() for old, name in edit.texts.items()}
            renamed = dict[str, Any]()
            for name, entry in points.items():
                if new.get(name, name):
                    renamed.setdefault(new.get(name, name), entry)
            labels[KEYPOINTS] = json_text(renamed)
    return features
