"""What features.json says about shards, and how their records differ from it."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tfrtool.errors import DatasetError, SchemaError, human_count, printable, some_of
from tfrtool.examples.example import feature_name
from tfrtool.examples.tfds_metadata import FEATURES, info_beside
from tfrtool.inspection.profile import ShardProfile
from tfrtool.inspection.verify.dataset_check import DatasetFault
from tfrtool.inspection.verify.feature_faults import FeatureFault, Mismatches
from tfrtool.records.framing import FaultKind
from tfrtool.records.stream import Stream
from tfrtool.storage.remote_path import AnyPath

if TYPE_CHECKING:  # numpy and Arrow are loaded where there is a features.json
    from tfrtool.examples.fields import Struct

_NAMES_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredFolders:
    """What features.json says in each folder of some shards.

    Attributes:
        roots: the fields, by folder.
        faults: files of TFDS' datasets that can't be read.
        notes: what is not compared.
    """

    roots: "Mapping[AnyPath, Struct]" = field(default_factory=dict)
    faults: tuple[DatasetFault, ...] = ()
    notes: tuple[str, ...] = ()

    @classmethod
    def read(cls, sources: Iterable[AnyPath | Stream]) -> "DeclaredFolders":
        """Read those of shards; a stream has none."""
        by_folder: dict[AnyPath, list[AnyPath]] = {}
        for source in sources:
            if not isinstance(source, Stream):
                by_folder.setdefault(source.parent, []).append(source)
        roots: dict[AnyPath, Struct] = {}
        faults, notes = list[DatasetFault](), list[str]()
        for folder, shards in by_folder.items():
            if not _may_have_features(folder):
                continue  # numpy and Arrow are not loaded for nothing
            from tfrtool.features.sources import read_declared_features

            try:
                declared = read_declared_features(shards)
            except (DatasetError, SchemaError) as error:
                path = folder if error.path is None else folder / Path(str(error.path)).name
                faults.append(DatasetFault(path, error.what, FaultKind.PARSE))
                continue
            if declared.problem is not None and info_beside(folder) is not None:
                faults.append(DatasetFault(folder / FEATURES, declared.problem, FaultKind.PARSE))
            else:
                notes += (f"{FEATURES}: {note}" for note in declared.notes)
            if declared.root is not None:
                roots[folder] = declared.root
        return cls(roots=roots, faults=tuple(faults), notes=tuple(dict.fromkeys(notes)))

    def is_list(self, folder: AnyPath, name: str | None) -> bool:
        """Return whether a feature of the records in a folder has any number of values."""
        root = self.roots.get(folder)
        if root is None or name is None:
            return False
        from tfrtool.examples.fields import ListOf, field_at

        return isinstance(field_at(root, name), ListOf)


def _may_have_features(folder: AnyPath) -> bool:
    """Return whether a folder may have a features.json; a store isn't asked before it is read."""
    if not isinstance(folder, Path):
        return True
    with suppress(OSError):
        return (folder / FEATURES).exists()
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureFindings:
    """How the records of some shards compare with features.json.

    Attributes:
        checked: number of records that were compared; None without a features.json.
        faults: how they differ.
        notes: what is not compared, what TFDS reads all the same, and features that features.json
            doesn't name.
    """

    checked: int | None = None
    faults: tuple[DatasetFault | FeatureFault, ...] = ()
    notes: tuple[str, ...] = ()


def find_mismatches(
    declared: DeclaredFolders, shards: Sequence[ShardProfile], images: Iterable[Mismatches] = ()
) -> FeatureFindings:
    """Return how the records of all shards together differ from features.json.

    ``images`` are those of images.
    """
    if not declared.roots:
        return FeatureFindings(faults=declared.faults, notes=declared.notes)
    from tfrtool.inspection.verify.feature_check import FeatureCheck

    total, others, checked = Mismatches(), Counter[str](), 0
    for check in (shard.fold(FeatureCheck) for shard in shards if shard.holds_examples):
        if check is not None:
            total.merge(check.mismatches, 0)
            others.update({feature_name(key): count for key, count in check.others.items()})
            checked += check.checked
    for mismatches in images:
        total.merge(mismatches, 0)
    notes = [*declared.notes, *total.warnings()]
    if others:
        named = [f"{name} ({human_count(count, 'record')})" for name, count in others.most_common()]
        what = human_count(len(others), "feature")
        notes.append(f"{what} not in {FEATURES}: {some_of(named, _NAMES_SHOWN)}")
    return FeatureFindings(
        checked=checked,
        faults=(*declared.faults, *total.faults()),
        notes=tuple(map(printable, notes)),
    )
